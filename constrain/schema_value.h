// The keywords that list values, enum and const, and the words null, true and false. See
// schema_compiler.h.
#ifndef CONSTRAIN_SCHEMA_VALUE_H
#define CONSTRAIN_SCHEMA_VALUE_H

#include "schema_expand.h"

extern const SchemaKeyword schema_value_keywords[];

// Adds the alternatives of a conjunction with listed values: those that satisfy all assertions of
// c->value.
void value_emit_listed(SchemaCompiler *c, const Conjunction *f);
// Adds the alternative for the words null, true and false of a conjunction.
void value_emit(SchemaCompiler *c, const Conjunction *f);

#endif
