// Opens the generator with its prefix cache and draft model.
#pragma once

#include "cli/open_model.h"
#include "generate/generate.h"

// Initializes the generator of at most n_parallel sequences. Dies if the draft model cannot be
// opened.
void generator_open(Pipeline *p, Generator *g, int chunk, int n_parallel);
