// Checks known values against schemas: the values that "enum" and "const" list, while a schema is
// compiled, and the values of texts (validator.c).
#pragma once

#include "constrain/schema_compiler.h"

// True if a value satisfies a schema or an assertion. If schema_holds() is false, c->check.failed
// and c->check.use say why.
bool schema_holds(SchemaCompiler *c, const Json *schema, const Json *value);
// Sets a flag for each item or member of a value that a schema evaluates, if the schema holds.
void schema_mark(SchemaCompiler *c, const Json *schema, const Json *value, bool *marks);
// Sets the flags for all keywords of a schema that holds, except u->keyword.
void schema_mark_others(SchemaCompiler *c, const KeywordUse *u, const Json *value, bool *marks);
bool assertion_holds(SchemaCompiler *c, SchemaAssertion a, const Json *value);
// Equality as JSON Schema defines it: 1 equals 1.0, and members have no order.
bool json_is_equal(SchemaCompiler *c, const Json *a, const Json *b);
