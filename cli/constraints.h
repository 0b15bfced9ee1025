// Constraints as the command line and requests name them.
#ifndef CLI_CONSTRAINTS_H
#define CLI_CONSTRAINTS_H

#include "../constrain/constrain.h"
#include "../tokenizer.h"
#include "options.h"

// The constraint of --json-schema, --grammar, --regex or --choices; NULL if there is none. False with err (exit 2, or 1
// if a file cannot be read) if it is wrong, or more than one is given. *sec: how long compiling took.
bool constraint_choose(const Options *o, Grammar **out, double *sec, Error *err);
// The parts of A,B,... as a constraint.
Grammar *constraint_list(const char *list, Error *err);
// The vocabulary of a tokenizer, which must stay open.
Vocabulary *vocabulary_of(const Tokenizer *t);

#endif
