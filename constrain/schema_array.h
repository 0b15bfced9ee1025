// Keywords of arrays: items, prefixItems, additionalItems, minItems, maxItems, uniqueItems,
// unevaluatedItems. See schema_compiler.h.
#ifndef CONSTRAIN_SCHEMA_ARRAY_H
#define CONSTRAIN_SCHEMA_ARRAY_H

#include "schema_expand.h"

extern const SchemaKeyword schema_array_keywords[];

// Adds the alternative for the arrays of a conjunction; for one known array.
void array_emit(SchemaCompiler *c, const Conjunction *f);
void array_emit_value(SchemaCompiler *c, const Json *array);

#endif
