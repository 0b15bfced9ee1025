// The verbs: one file per thing users do. Each takes the parsed options and returns an exit code.
// It is the last thing that a process does: what lives as long as the verb is static, and left to
// the system in the end.
#ifndef VERBS_VERBS_H
#define VERBS_VERBS_H

#include "../cli/options.h"

typedef struct {
    const char *name;
    char letter;   // in the table of options
    int most_args; // without a dash
    int (*run)(const Options *o);
    const char *usage, *summary, *example;
} Verb;

// The verb of this name, or dies with the one that looks most like it. What -h shows of it.
const Verb *verb_find(const char *name);
int verb_help_print(const Verb *verb);
// GB/s at which n_threads read so much memory again and again (verbs/bench.c); takes some tenths of
// a second.
double bench_read_gb(int n_threads, size_t bytes);

int verb_run(const Options *o);
int verb_chat(const Options *o);
int verb_batch(const Options *o);
int verb_score(const Options *o);
int verb_tokenize(const Options *o);
int verb_logits(const Options *o);
int verb_show(const Options *o);
int verb_quantize(const Options *o);
int verb_bench(const Options *o);
int verb_rope(const Options *o);
int verb_cache(const Options *o);
int verb_help(const Options *o);

#endif
