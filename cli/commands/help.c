// help: describes commands and options, on the terminal or as a manual page. Everything comes from
// command_table and option_table.
#include "cli/commands/commands.h"
#include "cli/output.h"
#include "quantize/mixture.h"

#include <ctype.h>
#include <stdio.h>
#include <strings.h>

enum { COLUMNS = 80, INDENT = 26 };

static void print_definition(const char *term, const char *text) {
    Buffer out = {0};
    if (strlen(term) > INDENT - 4) // the text begins on the next line
        buffer_printf(&out, "  %s\n%*s", term, INDENT, "");
    else
        buffer_printf(&out, "  %-*s", INDENT - 2, term);
    put_wrapped(&out, str_of(text), " ", INDENT, COLUMNS);
    puts(out.data);
    buffer_free(&out);
}

// "-n, --n-predict N", or "-n N" without the other spellings.
static const char *option_synopsis(const Option *option, bool has_spellings) {
    static Buffer text;
    text.len = 0;
    buffer_puts(&text, option->names[0]);
    for (int k = 1; k < 3 && option->names[k] && has_spellings; k++)
        buffer_printf(&text, ", %s", option->names[k]);
    if (option->value) buffer_printf(&text, " %s", option->value);
    return text.data;
}

// The summary of a command, and the types of quantize.
static Str command_summary(const Command *command) {
    static Buffer text;
    text.len = 0;
    buffer_puts(&text, command->summary);
    if (command->flag == CMD_QUANTIZE)
        for (int i = 0; mixture_name(i); i++)
            buffer_printf(&text, "%s %s", i ? "" : ":", mixture_name(i));
    return buffer_str(&text);
}

// Prints a group of options, by the first word of its title, or one option. False for neither.
static bool print_topic(const char *topic) {
    size_t n = strlen(topic);
    bool is_found = false, is_group = false;

    for (const Option *row = option_table; row < option_table + n_option_rows; row++) {
        bool is_wanted = is_group && row->names[0];
        if (!row->names[0]) is_group = !strncasecmp(row->help, topic, n) && !isalpha(row->help[n]);
        for (int k = 0; k < 3 && row->names[k]; k++) is_wanted |= !strcmp(row->names[k], topic);
        if (!is_wanted) continue;

        print_definition(option_synopsis(row, true), row->help);
        is_found = true;
    }
    return is_found;
}

void command_print_help(const Command *command, bool is_all) {
    const char *group = is_all ? NULL : "Options";
    int n_more = 0;
    Buffer summary = {0};
    put_wrapped(&summary, command_summary(command), " ", 0, COLUMNS);
    printf("usage: llama31 %s %s\n%s\n", command->name, command->usage, summary.data);
    buffer_free(&summary);

    for (const Option *row = option_table; row < option_table + n_option_rows; row++) {
        unsigned wanted = is_all ? command->flag : COMMON(command->flag);
        if (!row->names[0] && is_all) group = row->help;
        if (!row->names[0] || !(row->commands & command->flag)) continue;
        if ((row->commands & wanted) != wanted) {
            n_more++;
            continue;
        }

        if (group) printf("\n%s:\n", group);
        group = NULL;
        print_definition(option_synopsis(row, is_all), row->help);
    }
    if (n_more) printf("\nllama31 help %s --all: %d more\n", command->name, n_more);

    printf("\nExample:\n");
    for (const char *line = command->examples; *line; line += strspn(line, "\n")) {
        int n = (int)strcspn(line, "\n");
        printf("  %.*s\n", n, line);
        line += n;
    }
}

// Prints a line of roff: hyphens become minus signs, backslashes are escaped, and the line cannot
// begin with a request.
static void print_roff(const char *text) {
    if (*text == '.' || *text == '\'') printf("\\&");
    for (; *text; text++) {
        if (*text == '-' || *text == '\\') putchar('\\');
        putchar(*text == '\\' ? 'e' : *text);
    }
    putchar('\n');
}

// Prints the commands that are in a set.
static void print_commands(const char *title, unsigned set) {
    puts(title);
    for (const Command *c = command_table; c < command_table + n_commands; c++)
        if (c->flag & set) print_definition(c->name, c->summary);
}

static void print_overview(void) {
    enum { MAIN = CMD_RUN | CMD_CHAT | CMD_BATCH };
    puts("usage: llama31 COMMAND [OPTIONS]");
    print_commands("\nCommands:", MAIN);
    print_commands("\nTools:", CMD_ALL & ~MAIN);
    puts("\nllama31 help COMMAND lists its options; help --man is the manual page.\n\n"
         "Example:\n  llama31 run \"Once upon a time\"\n  llama31 chat -m model.gguf");
}

// The sections of the manual page that are not generated: manual.roff, embedded by completions.S.
// The generated sections replace @TABLES@.
extern const char manual_sections[];

static void print_man_page(void) {
    const char *tables = strstr(manual_sections, "@TABLES@");

    puts(".TH LLAMA31 1 \"\" \"llama31 " VERSION "\" \"User commands\"");
    printf("%.*s.SH COMMANDS\n", (int)(tables - manual_sections), manual_sections);

    for (const Command *c = command_table; c < command_table + n_commands; c++) {
        printf(".TP\n\\fB%s\\fR ", c->name);
        print_roff(c->usage);
        print_roff(command_summary(c).data);
        printf(".EX\n");
        print_roff(c->examples);
        printf(".EE\n");
    }

    puts(".SH OPTIONS\nAs \\fB\\-\\-name value\\fR or \\fB\\-\\-name=value\\fR. The commands that "
         "accept an option\nfollow it in parentheses.");
    for (const Option *row = option_table; row < option_table + n_option_rows; row++) {
        if (!row->names[0]) {
            printf(".SS %s\n", row->help);
            continue;
        }

        printf(".TP\n.B ");
        print_roff(option_synopsis(row, true));
        print_roff(row->help);
        for (int i = 0, n = 0; i < n_commands; i++)
            if (row->commands & command_table[i].flag)
                printf("%s%s", n++ ? ", " : "(", command_table[i].name);
        puts(")");
    }

    printf("%s", strchr(tables, '\n') + 1);
}

int command_help(const Options *o) {
    if (o->help.completion && !completion_print(o->help.completion))
        die(EXIT_USAGE, "--completion: unknown shell \"%s\"; use bash, zsh or fish",
            o->help.completion);
    if (o->help.completion) return EXIT_OK;
    if (o->help.wants_man)
        print_man_page();
    else if (!o->n_args)
        print_overview();
    else if (!print_topic(o->args[0]))
        command_print_help(command_find(o->args[0]), o->help.wants_all);
    return EXIT_OK;
}
