// Sampling options that need the model: defaults from its file, and the tokens of --logit-bias.
#pragma once

#include "cli/open_model.h"

// Completes the sampling options of the command line with the defaults of the model file, where the
// command line is silent, and with the biases of --logit-bias. Warns about invalid defaults; dies
// (exit 2) if a bias is invalid.
void sampling_complete(Options *o, const Pipeline *p);
// True if the vocabulary has all tokens of the logit biases. False with err (exit 2).
bool logit_bias_check(const SampleOptions *s, int n_vocab, Error *err);
