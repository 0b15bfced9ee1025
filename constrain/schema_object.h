// Keywords of objects: properties, patternProperties, additionalProperties, required,
// propertyNames, minProperties, maxProperties, dependencies and its successors,
// unevaluatedProperties. See schema_compiler.h.
#ifndef CONSTRAIN_SCHEMA_OBJECT_H
#define CONSTRAIN_SCHEMA_OBJECT_H

#include "schema_expand.h"

extern const SchemaKeyword schema_object_keywords[];

// Adds the alternative for the objects of a conjunction; for one known object.
void object_emit(SchemaCompiler *c, const Conjunction *f);
void object_emit_value(SchemaCompiler *c, const Json *object);

#endif
