// The files of the schema compiler that implement keywords. Each defines a SchemaPart
// (schema_compiler.h), which schema.c lists. These files call each other only through the parts,
// except that all may call string_regex() and string_pattern(), and "format" those of numbers.
#pragma once

#include "constrain/formats.h"
#include "constrain/regex.h"
#include "constrain/schema_check.h"
#include "constrain/schema_expand.h"

// type, $ref, allOf, anyOf, oneOf, not, if
extern const SchemaPart logic_part;

// enum, const; null, true and false
extern const SchemaPart value_part;
// For a conjunction with listed values: adds the values that satisfy all assertions of c->target.
void value_emit_listed(SchemaCompiler *c, const Conjunction *f);

// minimum, maximum, their exclusive forms, multipleOf
extern const SchemaPart number_part;
// Formats of integers: assert one, expand the branches in which it does not hold, check a number.
void number_assert_format(SchemaCompiler *c, Conjunction *f, const Format *format);
void number_negate_format(SchemaCompiler *c, Conjunction f, const Format *format);
bool number_check_format(SchemaCompiler *c, const Format *format, const Json *value);

// minLength, maxLength, pattern, format
extern const SchemaPart string_part;
// Compiles a regular expression to a DFA, once per expression. Returns the index of the DFA, or -1
// after a failure; the error names the keyword.
int string_regex(SchemaCompiler *c, const Json *schema, const char *keyword, Str pattern,
                 RegexMode mode);
// As string_regex(), for the value of "pattern" or a name in "patternProperties".
int string_pattern(SchemaCompiler *c, const Json *schema, Str pattern);

// items, prefixItems, additionalItems, contains, minItems, maxItems, uniqueItems
extern const SchemaPart array_part;

// properties, patternProperties, additionalProperties, required, propertyNames, minProperties,
// maxProperties, dependencies, dependentRequired
extern const SchemaPart object_part;
