// The constraint that the command line asks for: --json-schema, --grammar, --regex or --choices.
#ifndef CLI_CONSTRAINT_OPTIONS_H
#define CLI_CONSTRAINT_OPTIONS_H

#include "options.h"
#include "../constrain/constraint.h"

// Compiles the constraint of the options; *out is NULL if they have none. Reads the files that they
// name and prints a note about unknown JSON Schema keywords. False with err: exit 2 for an invalid
// constraint, exit 1 for a file that cannot be read.
bool constraint_from_options(ConstraintCache *cache, const Options *o, ConstraintState **out,
                             Error *err);

#endif
