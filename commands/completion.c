// Completion scripts for shells, from command_table and option_table.
//
// All scripts have one form: the commands, then for each command its options, then the code that
// completes a word from these. Only the syntax of a line differs between shells.
#include "commands.h"

#include <stdio.h>
#include <string.h>

typedef struct {
    const char *name;
    const char *begin; // up to the list of commands
    void (*put_command)(const Command *c);
    const char *middle;        // up to the options
    const char *begin_options; // printf format for the name of the command; NULL: nothing
    void (*put_option)(const Command *c, const Option *option, const char *name);
    const char *end_options, *end;
} Shell;

// Text between single quotes of a shell; characters of `special` get a backslash.
static void put_quoted(const char *text, const char *special) {
    for (; *text; text++) {
        if (strchr(special, *text)) printf("\\");
        printf(*text == '\'' ? "'\\''" : "%c", *text);
    }
}

static bool is_file(const Option *o) { return o->value && !strcmp(o->value, "FILE"); }
static bool is_shell(const Option *o) { return o->value && !strcmp(o->value, "SHELL"); }

// bash: three lists of option names: flags, options with a file, options with another value.
static void put_bash_command(const Command *c) { printf(" %s", c->name); }
static void put_bash_option(const Command *c, const Option *option, const char *name) {
    (void)c;
    printf(" %s+=' %s '", !option->value ? "flags" : is_file(option) ? "files" : "values", name);
}

static void put_zsh_command(const Command *c) {
    printf("\n        '%s:", c->name);
    put_quoted(c->summary, ":\\");
    printf("'");
}
static void put_zsh_option(const Command *c, const Option *option, const char *name) {
    (void)c;
    printf(" \\\n        '*%s[", name);
    put_quoted(option->help, "[]\\");
    printf("]");
    if (option->value) {
        printf(":");
        put_quoted(option->value, ":\\");
        printf(is_file(option) ? ":_files" : is_shell(option) ? ":(bash zsh fish)" : ":");
    }
    printf("'");
}

static void put_fish_command(const Command *c) {
    printf("complete -c llama31 -n __fish_use_subcommand -a %s -d '", c->name);
    put_quoted(c->summary, "\\");
    printf("'\ncomplete -c llama31 -n '__fish_seen_subcommand_from help' -xa %s\n", c->name);
}
static void put_fish_option(const Command *c, const Option *option, const char *name) {
    char kind = name[1] == '-' ? 'l' : name[2] ? 'o' : 's';
    printf("complete -c llama31 -n '__fish_seen_subcommand_from %s' -%c %s%s -d '", c->name, kind,
           name + 1 + (kind == 'l'),
           !option->value     ? ""
           : is_file(option)  ? " -rF"
           : is_shell(option) ? " -xa 'bash zsh fish'"
                              : " -x");
    put_quoted(option->help, "\\");
    printf("'\n");
}

static const Shell shells[] = {
    {"bash",
     "_llama31() {\n"
     "    local word=${COMP_WORDS[COMP_CWORD]} last=${COMP_WORDS[COMP_CWORD-1]}\n"
     "    local flags= files= values= commands='",
     put_bash_command,
     "'\n"
     "    case ${COMP_WORDS[1]} in\n",
     "    %s)", put_bash_option, " ;;\n",
     "    esac\n"
     "    local words=\"$flags $files $values\"\n"
     "    case $COMP_CWORD:$last:$word in\n"
     "    1:*) words=\"$commands --version --help\" ;;\n"
     "    *:--completion:*) words='bash zsh fish' ;;\n"
     "    *:help:[!-]* | *:help:) words=$commands ;;\n"
     "    *)\n"
     "        case $values in *\" $last \"*) return ;; esac\n"
     "        case $files:$word in *\" $last \"* | *:[!-]* | *:) words= ;; esac ;;\n"
     "    esac\n"
     "    if [ -n \"$words\" ]; then COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
     "    else COMPREPLY=($(compgen -f -- \"$word\")); fi\n"
     "}\n"
     "complete -o filenames -F _llama31 llama31\n"},
    {"zsh",
     "#compdef llama31\n"
     "_llama31() {\n"
     "    local -a commands=(",
     put_zsh_command,
     ")\n"
     "    if (( CURRENT == 2 )); then\n"
     "        _describe command commands\n"
     "        return\n"
     "    fi\n"
     "    local command=$words[2]\n"
     "    shift words\n"
     "    (( CURRENT-- ))\n"
     "    case $command in\n",
     "    %s) local -a arguments=(", put_zsh_option, ") ;;\n",
     "    esac\n"
     "    [[ $command == help ]] && arguments+=(\"1:command:(${(j: :)${(@)commands%%:*}})\")\n"
     "    _arguments $arguments '*:file:_files'\n"
     "}\n"
     "_llama31 \"$@\"\n"},
    {"fish", "complete -c llama31 -n __fish_use_subcommand -f\n", put_fish_command, "", NULL,
     put_fish_option, "", ""},
};

bool completion_print(const char *name) {
    const Shell *shell = shells, *end = shells + sizeof shells / sizeof *shells;
    while (shell < end && strcmp(shell->name, name)) shell++;
    if (shell == end) return false;
    const Command *last_command = command_table + n_commands;
    printf("%s", shell->begin);
    for (const Command *c = command_table; c < last_command; c++) shell->put_command(c);
    printf("%s", shell->middle);
    for (const Command *c = command_table; c < last_command; c++) {
        if (shell->begin_options) printf(shell->begin_options, c->name);
        for (const Option *row = option_table; row < option_table + n_option_rows; row++)
            for (int k = 0; k < 3 && row->names[k] && (row->commands & c->flag); k++)
                shell->put_option(c, row, row->names[k]);
        printf("%s", shell->end_options);
    }
    printf("%s", shell->end);
    return true;
}
