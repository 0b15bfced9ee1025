// Keywords of numbers: minimum, maximum, their exclusive forms, multipleOf. See schema_compiler.h.
#ifndef CONSTRAIN_SCHEMA_NUMBER_H
#define CONSTRAIN_SCHEMA_NUMBER_H

#include "schema_expand.h"

extern const SchemaKeyword schema_number_keywords[];

// Adds the alternative for the numbers of a conjunction.
void number_emit(SchemaCompiler *c, const Conjunction *f);

#endif
