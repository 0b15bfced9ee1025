// tokenize with a constraint: whether generation could have written each of many texts.
#ifndef COMMANDS_TOKENIZE_CHECK_H
#define COMMANDS_TOKENIZE_CHECK_H

#include "commands.h"
#include "../tokenizer.h"

// Reads JSON strings, one a line, and prints {"accepted","n_tokens","at"} for each; then how long
// masks took.
void check_lines(const Options *o, const Tokenizer *t);

#endif
