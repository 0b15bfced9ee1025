// tokenize with a constraint: whether generation could have written each of many texts.
#ifndef VERBS_TOKENIZE_CHECK_H
#define VERBS_TOKENIZE_CHECK_H

#include "verbs.h"
#include "../tokenizer.h"

// Reads JSON strings, one a line, and prints {"accepted","n_tokens","at"} for each; then how long
// masks took.
void check_lines(const Options *o, const Tokenizer *t);

#endif
