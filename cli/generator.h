// Creates the generator that the options describe, with prefix cache and draft model.
#ifndef CLI_GENERATOR_H
#define CLI_GENERATOR_H

#include "open_model.h"
#include "../generate.h"

// Dies if the draft model cannot be opened. n_parallel: maximum number of sequences.
void generator_open(Pipeline *p, Generator *g, int chunk, int n_parallel);
// The prefix cache of --cache or $LLAMA31_CACHE, for `chunk` prompt tokens per forward pass. NULL
// if there is none or, with a warning, if it cannot be used.
PrefixCache *prefix_cache_open(const Pipeline *p, int chunk);

#endif
