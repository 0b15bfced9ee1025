// Opens the generator with its prefix cache and draft model or head.
#pragma once

#include "cli/open_model.h"
#include "generate/generate.h"

// Initializes the generator of at most n_parallel sequences. Dies if the draft model or
// head cannot be opened, or does not fit the model.
void generator_open(Pipeline *p, Generator *g, int chunk, int n_parallel);
