// Keywords of strings: minLength, maxLength, pattern, format. See schema_compiler.h.
#ifndef CONSTRAIN_SCHEMA_STRING_H
#define CONSTRAIN_SCHEMA_STRING_H

#include "regex.h"
#include "schema_expand.h"

extern const SchemaKeyword schema_string_keywords[];

// Adds the alternative for the strings of a conjunction.
void string_emit(SchemaCompiler *c, const Conjunction *f);

// Indices of DFAs, each built once; -1 after a failure. Of a regular expression, which messages
// attribute to a keyword; of a "pattern" or a name in "patternProperties"; of all texts.
int string_regex(SchemaCompiler *c, const Json *schema, const char *keyword, Str pattern,
                 RegexMode mode);
int string_pattern(SchemaCompiler *c, const Json *schema, Str pattern);
int string_any(SchemaCompiler *c);

#endif
