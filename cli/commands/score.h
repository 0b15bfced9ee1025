// The parts of score that do not run on the scheduler of batch.
#pragma once

#include "cli/options.h"

// score --perplexity and --ids (score_perplexity.c)
void score_perplexity(const Options *o);
