// The validator of JSON texts.
#pragma once

#include "base/text.h"

// Validates JSON texts by a JSON Schema, as the standard defines it: order, white space and
// spellings do not matter, and objects are open. Of equal names in an object, the last one counts.
typedef struct SchemaValidator SchemaValidator;
// NULL with err (exit 2) if the schema is invalid. A keyword that is not supported is an error of
// the compilation, so a schema that constraint_compile() refuses is not validated.
SchemaValidator *validator_new(Str schema, Error *err);
void validator_free(SchemaValidator *v);
// Makes a repeated name in an object an error, and lets no $ref hide other keywords, as in the
// texts of a grammar.
void validator_make_strict(SchemaValidator *v);
// True if the text is valid. Otherwise err has the place of the first failure and what is expected
// there, such as "#/a: expected integer".
bool validator_check(SchemaValidator *v, Str text, Error *err);
