// Keywords that concern values of all types: type, $ref, allOf, anyOf, oneOf, not, if. See
// schema_compiler.h.
#ifndef CONSTRAIN_SCHEMA_LOGIC_H
#define CONSTRAIN_SCHEMA_LOGIC_H

#include "schema_expand.h"

extern const SchemaKeyword schema_logic_keywords[];

#endif
