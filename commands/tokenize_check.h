// tokenize --jsonl with a constraint: tells which texts the model could generate under it.
#ifndef COMMANDS_TOKENIZE_CHECK_H
#define COMMANDS_TOKENIZE_CHECK_H

#include "commands.h"
#include "../tokenizer.h"

enum { TOKENIZE_MAX_LINE = 1 << 30 }; // bytes

// Reads a JSON string per line and prints {"accepted","n_tokens","at"}, at: the bytes before the
// first that does not fit. Then reports how long the constraint's token masks took.
void constraint_check_lines(const Options *o, const Tokenizer *t);

#endif
