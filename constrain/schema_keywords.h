// The files of keywords: their tables (schema_compiler.h), and what each adds to c->value from a
// conjunction that allows values of its types.
#pragma once

#include "regex.h"
#include "schema_expand.h"

// type, $ref, allOf, anyOf, oneOf, not, if
extern const SchemaKeyword schema_logic_keywords[];

// minimum, maximum, their exclusive forms, multipleOf
extern const SchemaKeyword schema_number_keywords[];
void number_emit(SchemaCompiler *c, const Conjunction *f);

// minLength, maxLength, pattern, format
extern const SchemaKeyword schema_string_keywords[];
void string_emit(SchemaCompiler *c, const Conjunction *f);
// Each returns the index of a DFA, which is built once; -1 after a failure. The DFA of a regular
// expression, whose errors name the keyword; of a "pattern" or a name in "patternProperties".
int string_regex(SchemaCompiler *c, const Json *schema, const char *keyword, Str pattern,
                 RegexMode mode);
int string_pattern(SchemaCompiler *c, const Json *schema, Str pattern);

// items, prefixItems, additionalItems, minItems, maxItems, uniqueItems, unevaluatedItems
extern const SchemaKeyword schema_array_keywords[];
void array_emit(SchemaCompiler *c, const Conjunction *f);
void array_emit_value(SchemaCompiler *c, const Json *array); // one known array

// properties, patternProperties, additionalProperties, required, propertyNames, minProperties,
// maxProperties, dependencies and its successors, unevaluatedProperties
extern const SchemaKeyword schema_object_keywords[];
void object_emit(SchemaCompiler *c, const Conjunction *f);
void object_emit_value(SchemaCompiler *c, const Json *object); // one known object

// enum, const; and the words null, true and false
extern const SchemaKeyword schema_value_keywords[];
void value_emit(SchemaCompiler *c, const Conjunction *f);
// Of a conjunction with listed values: adds those that satisfy all assertions of c->value.
void value_emit_listed(SchemaCompiler *c, const Conjunction *f);
