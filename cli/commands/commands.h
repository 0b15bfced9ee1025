// The commands: one file for each, and the table of all of them.
//
// A command gets the parsed options and returns the exit code. It is the last thing that the
// process does. Objects that live as long as the command are therefore static and never freed.
#pragma once

#include "cli/options.h"

typedef struct {
    const char *name;
    unsigned flag;               // CMD_*, its bit in Option.commands
    int max_args;                // positional arguments
    void (*prepare)(Options *o); // completes the options before the sandbox is entered, or NULL
    int (*run)(const Options *o);
    Module module; // required module
    const char *usage, *summary;
    const char *examples; // lines
} Command;

extern const Command command_table[];
extern const int n_commands;

// The command of this name. Dies (exit 2) with a suggestion if there is none.
const Command *command_find(const char *name);

// The command of a command line, and the number of arguments before its options. The first argument
// names it. Without a name, `--help`, `--man` and `--completion` are options of help, and other
// options those of run; so is a model file that text or options follow. On a terminal, no argument
// or a model file alone opens a chat.
const Command *command_choose(int argc, char **argv, int *n_before);

// Prints the options of a command: the common ones, or all with their other spellings.
void command_print_help(const Command *command, bool is_all);
// Prints a completion script for "bash", "zsh" or "fish". False for any other shell.
bool completion_print(const char *shell);

int command_run(const Options *o);
int command_chat(const Options *o);
int command_batch(const Options *o);
int command_score(const Options *o);
// score --perplexity, which does not run on the scheduler of batch (score_perplexity.c).
void score_perplexity(const Options *o);
int command_tokenize(const Options *o);
int command_logits(const Options *o);
int command_show(const Options *o);
int command_quantize(const Options *o);
int command_bench(const Options *o);
// Takes the model argument. Sets model_options.n_threads to the largest number in the list of bench
// -t, if that was given. Dies on other texts.
void bench_prepare(Options *o);
int command_rope(const Options *o);
int command_help(const Options *o);
