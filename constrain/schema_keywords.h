// The files of the schema compiler that implement keywords. Each defines a table of keywords and
// the functions of its type of value (SchemaEmitter, schema_compiler.h). schema.c lists both. These
// files call each other only through the tables, except that all may call string_regex() and
// string_pattern().
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
// Compiles a regular expression to a DFA, once per expression. Returns the index of the DFA, or -1
// after a failure; the error names the keyword.
int string_regex(SchemaCompiler *c, const Json *schema, const char *keyword, Str pattern,
                 RegexMode mode);
// As string_regex(), for the value of "pattern" or a name in "patternProperties".
int string_pattern(SchemaCompiler *c, const Json *schema, Str pattern);

// items, prefixItems, additionalItems, minItems, maxItems, uniqueItems, unevaluatedItems
extern const SchemaKeyword schema_array_keywords[];
void array_emit(SchemaCompiler *c, const Conjunction *f);
void array_emit_value(SchemaCompiler *c, const Json *array);
void array_split_unequal(SchemaCompiler *c, Conjunction f, const KeywordUse *u);

// properties, patternProperties, additionalProperties, required, propertyNames, minProperties,
// maxProperties, dependencies and its successors, unevaluatedProperties
extern const SchemaKeyword schema_object_keywords[];
void object_emit(SchemaCompiler *c, const Conjunction *f);
void object_emit_value(SchemaCompiler *c, const Json *object);
void object_split_unequal(SchemaCompiler *c, Conjunction f, const KeywordUse *u);

// enum, const; null, true and false
extern const SchemaKeyword schema_value_keywords[];
void word_emit(SchemaCompiler *c, const Conjunction *f);
// For a conjunction with listed values: adds the values that satisfy all assertions of c->target.
void value_emit_listed(SchemaCompiler *c, const Conjunction *f);
