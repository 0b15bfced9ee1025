// help: the table of commands, and all that is said about them and their options: for a terminal,
// as a manual page, and as what shells complete words by.
#include "commands.h"
#include "../cli/output.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { COLUMNS = 80, INDENT = 26 };

static const Command commands[] = {
    {"run", 'r', INT_MAX, command_run, "[-m MODEL] [PROMPT | -f FILE | < stdin]", "generate text",
     "llama31 run -m model.gguf --temp 0.6 \"Why is the sky blue?\""},
    {"chat", 'c', 0, command_chat, "[-m MODEL] [-sys TEXT]", "converse",
     "llama31 chat -m model.gguf -sys \"You are terse.\" --session talk.jsonl"},
    {"batch", 'b', 0, command_batch, "[-m MODEL] -i IN.jsonl -o OUT.jsonl",
     "complete a file of prompts",
     "llama31 batch -m model.gguf -i prompts.jsonl -o answers.jsonl --resume"},
    {"score", 's', INT_MAX, command_score, "[-m MODEL] --choices A,B PROMPT | --perplexity FILE",
     "log-probabilities of choices; perplexity; KL divergence",
     "llama31 score -m model.gguf --choices yes,no \"Is this spam? ...\""},
    {"tokenize", 't', INT_MAX, command_tokenize, "[-m MODEL] [TEXT | -f FILE | < stdin]",
     "text to token ids, and back", "llama31 tokenize -m model.gguf --ids \"Hello, world\""},
    {"logits", 'l', 0, command_logits, "[-m MODEL] --ids 1,2,3 | --ids @FILE -o OUT.f32",
     "raw logits, as float32",
     "llama31 logits -m model.gguf --ids 128000,9906 --last -o logits.f32"},
    {"show", 'w', 1, command_show, "[-m MODEL | MODEL] [--tensors]",
     "what is in a model file, and what it needs", "llama31 show model.gguf"},
    {"quantize", 'q', 3, command_quantize, "IN.gguf OUT.gguf TYPE",
     "a smaller file: TYPE is F32 F16 BF16 Q8_0 Q6_K Q5_K_M Q5_K_S Q5_1 Q5_0 Q4_K_M Q4_K_S IQ4_NL "
     "IQ4_XS Q4_1 Q4_0 Q3_K_L Q3_K_M Q3_K_S IQ3_M IQ3_S IQ3_XXS or Q2_K",
     "llama31 quantize model-f16.gguf model-q4_k_m.gguf Q4_K_M"},
    {"bench", 'n', 0, command_bench, "[-m MODEL]", "speed, and the limits of this machine",
     "llama31 bench -m model.gguf --tests p512,d0,b8"},
    {"rope", 'o', 0, command_rope, "[-m MODEL | --dim D] [--positions A..B:STEP]",
     "rotary frequencies, angles, the cis table",
     "llama31 rope --dim 128 --theta 500000 --rope-scaling llama3 --positions 8"},
    {"cache", 'k', 1, command_cache, "DIR", "what a prefix cache holds; check it, empty it",
     "llama31 cache ~/.cache/llama31/prefixes"},
    {"help", 'h', 1, command_help, "[COMMAND] [--man | --completion SHELL]",
     "this, or the options of a command", "llama31 help run"},
};
enum { N_VERBS = sizeof commands / sizeof *commands };

static const char *const exits[] = {"0",   "done",
                                    "1",   "failed at run time (I/O, memory, NaN)",
                                    "2",   "the command line is wrong",
                                    "3",   "the model file is wrong",
                                    "4",   "the prompt does not fit the context",
                                    "5",   "some records of a batch failed",
                                    "130", "interrupted"};
static const char *const variables[] = {
    "LLAMA31_MODEL",
    "the model where there is no -m",
    "LLAMA31_CACHE",
    "folder of the prefix cache where there is no --cache",
    "LLAMA31_ISA",
    "keeps to slower kernels: scalar, avx2, avx512, amx or neon",
    "LLAMA31_HISTORY",
    "file of what was typed in chat (default ~/.local/state/llama31/history); empty: none is kept",
    "SOURCE_DATE_EPOCH",
    "the second since 1970 that chat templates take for now",
    "NO_COLOR",
    "anything: nothing dim or coloured"};
#define LENGTH(array) ((int)(sizeof(array) / sizeof *(array)))

const Command *command_find(const char *name) {
    for (int i = 0; i < N_VERBS; i++)
        if (!strcmp(name, commands[i].name)) return &commands[i];
    die(EXIT_USAGE, "%s \"%s\"%s (llama31 help lists them)",
        *name == '-' ? "expected a command, found" : "unknown command", name,
        did_you_mean(name, &commands->name, sizeof *commands, N_VERBS));
}

static const Command *command_of(char letter) {
    for (int i = 0; i < N_VERBS; i++)
        if (commands[i].letter == letter) return &commands[i];
    return NULL;
}

// The words of a text, from column `indent` on, within 80 columns; the line stands at `column`.
static void print_words(const char *text, int column, int indent) {
    for (size_t n; *text; text += n + (text[n] == ' ')) {
        n = strcspn(text, " ");
        if (column > indent && column + 1 + (int)n > COLUMNS) column = printf("\n") - 1;
        if (column > indent) column += printf(" ");
        if (column < indent) column += printf("%*s", indent - column, "");
        column += printf("%.*s", (int)n, text);
    }
    printf("\n");
}

static void print_entry(const char *head, const char *text) {
    int column = printf("  %s", head);
    if (column > INDENT - 2) column = printf("\n") - 1;
    print_words(text, column, INDENT);
}

// "-n, --n-predict N"
static void put_head(const OptionText *o, Buffer *out) {
    out->len = 0;
    for (int k = 0; k < 3 && o->names[k]; k++)
        buffer_printf(out, "%s%s", k ? ", " : "", o->names[k]);
    if (o->value) buffer_printf(out, " %s", o->value);
}

int command_help_print(const Command *command) {
    const char *group = NULL;
    Buffer head = {0};
    OptionText o;
    printf("usage: llama31 %s %s\n", command->name, command->usage);
    print_words(command->summary, 0, 0);
    for (int i = 0; option_text(i, &o); i++) {
        if (!o.names[0]) group = o.help;
        if (!o.names[0] || !strchr(o.commands, command->letter)) continue;
        if (group) printf("\n%s:\n", group);
        group = NULL;
        put_head(&o, &head);
        print_entry(head.data, o.help);
    }
    printf("\nExample:\n  %s\n", command->example);
    buffer_free(&head);
    return EXIT_OK;
}

static void print_pairs(const char *title, const char *const *pairs, int n) {
    printf("\n%s:\n", title);
    for (int i = 0; i < n; i += 2) print_entry(pairs[i], pairs[i + 1]);
}

static int print_overview(void) {
    puts("usage: llama31 COMMAND [OPTIONS]\n\nllama31 help COMMAND lists a command's options; "
         "llama31 "
         "--version [-v]\n\nVerbs:");
    for (int i = 0; i < N_VERBS; i++) print_entry(commands[i].name, commands[i].summary);
    print_pairs("Exit status", exits, LENGTH(exits));
    print_pairs("Environment", variables, LENGTH(variables));
    puts("\nExample:\n  llama31 run \"Once upon a time\"");
    return EXIT_OK;
}

// Text of a manual page: a hyphen of an option is a minus, and a leading point no request.
static void put_roff(const char *text) {
    if (*text == '.' || *text == '\'') printf("\\&");
    for (; *text; text++) {
        if (*text == '-' || *text == '\\') putchar('\\');
        putchar(*text == '\\' ? 'e' : *text);
    }
    putchar('\n');
}

static void put_roff_pairs(const char *title, const char *const *pairs, int n) {
    printf(".SH %s\n", title);
    for (int i = 0; i < n; i += 2) printf(".TP\n.B %s\n", pairs[i]), put_roff(pairs[i + 1]);
}

// With the commands that take it.
static void put_roff_option(const OptionText *o) {
    Buffer head = {0};
    put_head(o, &head);
    printf(".TP\n.B ");
    put_roff(head.data);
    put_roff(o->help);
    printf("(");
    bool is_first = true;
    for (const char *letter = o->commands; *letter; letter++) {
        const Command *command = command_of(*letter);
        if (command) printf("%s%s", is_first ? "" : ", ", command->name);
        is_first = is_first && !command;
    }
    printf(")\n");
    buffer_free(&head);
}

static int print_man(void) {
    OptionText o;
    puts(
        ".TH LLAMA31 1 \"\" \"llama31 " VERSION "\" \"User commands\"\n"
        ".SH NAME\nllama31 \\- run Llama models on the CPU\n.SH SYNOPSIS\n.B llama31\n.I "
        "COMMAND\n[\\fIOPTIONS\\fR]\n"
        ".SH DESCRIPTION\nMaps a GGUF file of a Llama model and generates text, converses, "
        "completes files of prompts "
        "or\n"
        "measures. The product goes to standard output, all else to standard error.\n.SH COMMANDS");
    for (int i = 0; i < N_VERBS; i++) {
        printf(".TP\n\\fB%s\\fR ", commands[i].name);
        put_roff(commands[i].usage);
        put_roff(commands[i].summary);
        printf(".br\n");
        put_roff(commands[i].example);
    }
    puts(".SH OPTIONS\nAs \\fB\\-\\-name value\\fR or \\fB\\-\\-name=value\\fR; after each, the "
         "commands that take it.");
    for (int i = 0; option_text(i, &o); i++)
        if (o.names[0])
            put_roff_option(&o);
        else
            printf(".SS %s\n", o.help);
    put_roff_pairs("EXIT STATUS", exits, LENGTH(exits));
    put_roff_pairs("ENVIRONMENT", variables, LENGTH(variables));
    return EXIT_OK;
}

// The names of a command's options; those with a value only, or with a file's name.
typedef enum { ANY_VALUE, SOME_VALUE, FILE_VALUE } ValueKind;

// Of a command, with something between them.
static void put_names(char letter, ValueKind kind, const char *between) {
    OptionText o;
    int n = 0;
    for (int i = 0; option_text(i, &o); i++) {
        bool is_file = o.value && !strcmp(o.value, "FILE");
        if (!strchr(o.commands, letter) || (kind == FILE_VALUE && !is_file) ||
            (kind == SOME_VALUE && (!o.value || is_file)))
            continue;
        for (int k = 0; k < 3 && o.names[k]; k++) printf("%s%s", n++ ? between : "", o.names[k]);
    }
}

static void put_commands(void) {
    for (int i = 0; i < N_VERBS; i++) printf("%s%s", i ? " " : "", commands[i].name);
}

static int print_bash(void) {
    printf("_llama31() {\n    local word=${COMP_WORDS[COMP_CWORD]} "
           "last=${COMP_WORDS[COMP_CWORD-1]} names= files= "
           "values=\n"
           "    if [ \"$COMP_CWORD\" = 1 ]; then\n        COMPREPLY=($(compgen -W '");
    put_commands();
    printf(" --version --help' -- \"$word\"))\n        return\n    fi\n    case ${COMP_WORDS[1]} "
           "in\n");
    for (int i = 0; i < N_VERBS; i++) {
        printf("    %s)\n        names='", commands[i].name);
        put_names(commands[i].letter, ANY_VALUE, " ");
        printf("'\n        files=' ");
        put_names(commands[i].letter, FILE_VALUE, " ");
        printf(" '\n        values=' ");
        put_names(commands[i].letter, SOME_VALUE, " ");
        printf(" ' ;;\n");
    }
    printf("    esac\n    case $last:$word in\n    --completion:*) COMPREPLY=($(compgen -W 'bash "
           "zsh fish' -- "
           "\"$word\")); "
           "return ;;\n"
           "    help:[!-]* | help:) COMPREPLY=($(compgen -W '");
    put_commands();
    printf(
        "' -- \"$word\")); return ;;\n    esac\n"
        "    case $values in *\" $last \"*) return ;; esac\n"
        "    case $files in *\" $last \"*) COMPREPLY=($(compgen -f -- \"$word\")); return ;; esac\n"
        "    case $word in\n    -*) COMPREPLY=($(compgen -W \"$names\" -- \"$word\")) ;;\n"
        "    *) COMPREPLY=($(compgen -f -- \"$word\")) ;;\n    esac\n}\n"
        "complete -o filenames -F _llama31 llama31\n");
    return EXIT_OK;
}

// Text between single quotes of a shell; zsh's lists hold brackets and colons only behind a
// backslash.
static void put_quoted(const char *text, const char *escaped) {
    for (; *text; text++) {
        if (strchr(escaped, *text)) printf("\\");
        printf(*text == '\'' ? "'\\''" : "%c", *text);
    }
}

// ":FILE:_files", what stands for a value and where it comes from.
static void put_zsh_value(const char *value) {
    printf(":");
    put_quoted(value, ":\\");
    printf(":%s", !strcmp(value, "FILE")    ? "_files"
                  : !strcmp(value, "SHELL") ? "(bash zsh fish)"
                                            : "");
}

static int print_zsh(void) {
    OptionText o;
    printf("#compdef llama31\n_llama31() {\n    if (( CURRENT == 2 )); then\n        local -a "
           "commands=(");
    for (int i = 0; i < N_VERBS; i++) {
        printf("\n            '%s:", commands[i].name);
        put_quoted(commands[i].summary, ":\\");
        printf("'");
    }
    printf(")\n        _describe command commands\n        return\n    fi\n    local "
           "command=$words[2]\n    "
           "shift words\n    (( "
           "CURRENT-- ))\n"
           "    case $command in\n");
    for (int i = 0; i < N_VERBS; i++) {
        printf("    %s) _arguments", commands[i].name);
        for (int k = 0; option_text(k, &o); k++)
            for (int n = 0; n < 3 && strchr(o.commands, commands[i].letter) && o.names[n]; n++) {
                printf(" \\\n        '*%s[", o.names[n]);
                put_quoted(o.help, "[]\\");
                printf("]");
                if (o.value) put_zsh_value(o.value);
                printf("'");
            }
        if (commands[i].run == command_help) {
            printf(" \\\n        '1:command:(");
            put_commands();
            printf(")'");
        }
        printf(" \\\n        '*:file:_files' ;;\n");
    }
    printf("    esac\n}\n_llama31 \"$@\"\n");
    return EXIT_OK;
}

static int print_fish(void) {
    OptionText o;
    printf("complete -c llama31 -n __fish_use_subcommand -f\n");
    for (int i = 0; i < N_VERBS; i++) {
        printf("complete -c llama31 -n __fish_use_subcommand -a %s -d '", commands[i].name);
        put_quoted(commands[i].summary, "\\");
        printf("'\n");
    }
    printf("complete -c llama31 -n '__fish_seen_subcommand_from help' -xa '");
    put_commands();
    printf("'\n");
    for (int i = 0; option_text(i, &o); i++)
        for (int k = 0; k < 3 && o.names[k]; k++) {
            const char *name = o.names[k] + 1 + (o.names[k][1] == '-');
            printf("complete -c llama31 -n '__fish_seen_subcommand_from");
            for (const char *letter = o.commands; *letter; letter++)
                if (command_of(*letter)) printf(" %s", command_of(*letter)->name);
            printf("' -%c %s%s -d '",
                   o.names[k][1] == '-' ? 'l'
                   : name[1]            ? 'o'
                                        : 's',
                   name,
                   !o.value                    ? ""
                   : !strcmp(o.value, "FILE")  ? " -rF"
                   : !strcmp(o.value, "SHELL") ? " -xa 'bash zsh fish'"
                                               : " -x");
            put_quoted(o.help, "\\");
            printf("'\n");
        }
    return EXIT_OK;
}

int command_help(const Options *o) {
    static const struct {
        const char *name;
        int (*print)(void);
    } shells[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};
    for (int i = 0; o->completion && i < LENGTH(shells); i++)
        if (!strcmp(o->completion, shells[i].name)) return shells[i].print();
    if (o->completion)
        die(EXIT_USAGE, "--completion: expected bash, zsh or fish, found \"%s\"", o->completion);
    if (o->wants_man) return print_man();
    return o->n_args ? command_help_print(command_find(o->args[0])) : print_overview();
}
