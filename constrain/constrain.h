// Compilers of constraints: from a JSON Schema, a grammar, a regular expression or a list of
// choices to a Grammar, which a matcher runs (mask.h).
#pragma once

#include "grammar.h"
#include "mask.h"
#include "../base/json.h"

// Each returns NULL with err (exit 2) if the source is invalid, too complex, or matches no text.

// JSON texts that a schema accepts, written with the white space of json.dumps: none, its default,
// or that of indent=2. Drafts 4 to 2020-12 (see docs/constraints.md). is_ordered: properties come
// in the schema's order, else in any order. A keyword is either applied in full or an error;
// annotations and unknown keywords have no effect, and the places of the unknown ones are appended
// to `unknown` (may be NULL).
Grammar *grammar_schema(const Json *schema, bool is_ordered, Buffer *unknown, Error *err);
Grammar *grammar_schema_text(Str text, bool is_ordered, Buffer *unknown, Error *err);
// Texts of the rule `root` of a grammar in llama.cpp's GBNF. Errors name line and column.
Grammar *grammar_gbnf(Str text, Error *err);
// Texts that a regular expression (regex.h) matches as a whole.
Grammar *grammar_regex(Str pattern, Error *err);
// One of n texts.
Grammar *grammar_choices(const Str *choices, int n, Error *err);
