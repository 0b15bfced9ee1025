// Completion scripts for shells, from command_table and option_table.
//
// cli/commands/completions/ has a script per shell, with placeholders for the list of commands and
// the options of each command. The functions here write these lists in the syntax of each shell.
#include "cli/commands/commands.h"
#include "chat/template.h"
#include "quantize/mixture.h"

#include <stdio.h>

#pragma GCC diagnostic ignored "-Wunused-parameter" // some shells need no command

typedef struct {
    const char *name;
    const char *script; // with @COMMANDS@, then @OPTIONS@, then @TYPES@
    void (*put_command)(const Command *c);
    const char *begin_options; // printf format for the name of the command
    void (*put_option)(const Command *c, const Option *option, const char *name);
    const char *end_options;
} Shell;

// Text between single quotes of a shell; characters of `special` get a backslash.
static void put_quoted(const char *text, const char *special) {
    for (; *text; text++) {
        if (strchr(special, *text)) printf("\\");
        printf(*text == '\'' ? "'\\''" : "%c", *text);
    }
}

static bool is_file(const Option *o) { return o->value && !strncmp(o->value, "FILE", 4); }

// The values of an option, "A|B|C"; NULL: any.
static const char *choices_of(const Option *o) {
    static Buffer names;
    if (o->offset != offsetof(Options, prompt.template_name))
        return o->value && strchr(o->value, '|') ? o->value : NULL;

    names.len = 0;
    for (int i = 0; template_builtin_name(i); i++)
        buffer_printf(&names, "%s%s", i ? "|" : "", template_builtin_name(i));
    return names.data;
}

// Prints them, if there are any, separated by spaces and enclosed in two texts.
static void put_choices(const char *before, const Option *o, const char *after) {
    const char *c = choices_of(o);
    if (!c) return;
    printf("%s", before);
    for (; *c; c++) putchar(*c == '|' ? ' ' : *c);
    printf("%s", after);
}

// bash: three lists of option names: flags, options with a file, options with another value. The
// list of choices is like " --kv=f32|f16|q8_0 ".
static void put_bash_command(const Command *c) { printf(" %s", c->name); }
static void put_bash_option(const Command *c, const Option *option, const char *name) {
    const char *list = "values";
    if (!option->value) list = "flags";
    if (is_file(option)) list = "files";
    printf(" %s+=' %s '", list, name);
    if (choices_of(option)) printf(" choices+=' %s=%s '", name, choices_of(option));
}

static void put_zsh_command(const Command *c) {
    printf("\n        '%s:", c->name);
    put_quoted(c->summary, ":\\");
    printf("'");
}
static void put_zsh_option(const Command *c, const Option *option, const char *name) {
    printf(" \\\n        '*%s[", name);
    put_quoted(option->help, "[]\\");
    printf("]");
    if (option->value) {
        printf(":");
        put_quoted(option->value, ":\\");
        printf(is_file(option) ? ":_files" : ":");
    }
    put_choices("(", option, ")");
    printf("'");
}

static void put_fish_command(const Command *c) {
    printf("complete -c llama31 -n __fish_use_subcommand -a %s -d '", c->name);
    put_quoted(c->summary, "\\");
    printf("'\ncomplete -c llama31 -n '__fish_seen_subcommand_from help' -xa %s\n", c->name);
}
static void put_fish_option(const Command *c, const Option *option, const char *name) {
    char kind = name[2] ? 'o' : 's';
    if (name[1] == '-') kind = 'l';

    printf("complete -c llama31 -n '__fish_seen_subcommand_from %s' -%c %s", c->name, kind,
           name + 1 + (kind == 'l'));
    if (option->value) printf(is_file(option) ? " -rF" : " -x");
    put_choices("a '", option, "'");
    printf(" -d '");
    put_quoted(option->help, "\\");
    printf("'\n");
}

extern const char completion_bash[], completion_zsh[], completion_fish[]; // completions.S
static const Shell shells[] = {
    {"bash", completion_bash, put_bash_command, "    %s)", put_bash_option, " ;;\n"},
    {"zsh", completion_zsh, put_zsh_command, "    %s) local -a arguments=(", put_zsh_option,
     ") ;;\n"},
    {"fish", completion_fish, put_fish_command, "", put_fish_option, ""},
};

// Prints the script up to a placeholder. Returns the text after the placeholder.
static const char *put_script(const char *script, const char *placeholder) {
    const char *found = strstr(script, placeholder);
    printf("%.*s", (int)(found - script), script);
    return found + strlen(placeholder);
}

bool completion_print(const char *name) {
    const Shell *shell = shells;
    const Shell *end = shells + sizeof shells / sizeof *shells;
    while (shell < end && strcmp(shell->name, name)) shell++;
    if (shell == end) return false;

    // The script has three placeholders, which are replaced by rows of the tables.
    const Command *last_command = command_table + n_commands;
    const char *script = put_script(shell->script, "@COMMANDS@");
    for (const Command *c = command_table; c < last_command; c++) shell->put_command(c);
    script = put_script(script, "@OPTIONS@");
    for (const Command *c = command_table; c < last_command; c++) {
        printf(shell->begin_options, c->name);
        for (const Option *row = option_table; row < option_table + n_option_rows; row++)
            for (int k = 0; k < 3 && row->names[k] && (row->commands & c->flag); k++)
                shell->put_option(c, row, row->names[k]);
        printf("%s", shell->end_options);
    }

    script = put_script(script, "@TYPES@");
    for (int i = 0; mixture_name(i); i++) printf("%s ", mixture_name(i));

    printf("%s", script);
    return true;
}
