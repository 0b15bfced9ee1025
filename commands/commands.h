// The commands: one file per thing users do. Each takes the parsed options and returns an exit
// code. It is the last thing that a process does: what lives as long as the command is static, and
// left to the system in the end.
#ifndef COMMANDS_COMMANDS_H
#define COMMANDS_COMMANDS_H

#include "../cli/options.h"

typedef struct {
    const char *name;
    char letter;   // in the table of options
    int most_args; // without a dash
    int (*run)(const Options *o);
    const char *usage, *summary, *example;
} Command;

// The command of this name, or dies with the one that looks most like it. What -h shows of it.
const Command *command_find(const char *name);
int command_help_print(const Command *command);
// GB/s at which n_threads read so much memory again and again (commands/bench.c); takes some tenths
// of a second.
double bench_read_gb(int n_threads, size_t bytes);

int command_run(const Options *o);
int command_chat(const Options *o);
int command_batch(const Options *o);
int command_score(const Options *o);
int command_tokenize(const Options *o);
int command_logits(const Options *o);
int command_show(const Options *o);
int command_quantize(const Options *o);
int command_bench(const Options *o);
int command_rope(const Options *o);
int command_cache(const Options *o);
int command_help(const Options *o);

#endif
