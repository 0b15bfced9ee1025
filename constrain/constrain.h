// Compilers of constraints. Each compiles a JSON Schema, a GBNF grammar, a regular expression, a
// list of choices or a set of tools to a Grammar, from which a matcher computes token masks
// (mask.h).
#pragma once

#include "constrain/constraint_spec.h"
#include "constrain/grammar.h"
#include "tokenizer.h"

// Each returns NULL with err (exit 2) if the source is invalid, too complex, or matches no text.

// The JSON texts that satisfy a schema of drafts 4 to 2020-12 (see docs/constraints.md), with the
// white space of Python's json.dumps: compact, default, or indent=2. A keyword is enforced in full
// or, with SCHEMA_CHECKED, listed in Grammar.unenforced, or an error. Annotations and unknown
// keywords have no effect. The places of unknown keywords and formats are appended to `unknown`
// (may be NULL).
enum {
    SCHEMA_ORDERED = 1, // properties come in the schema's order; otherwise in any order
    // An object whose schema has "properties" has only properties that the schema describes, see
    // is_closed() in schema_object.c.
    SCHEMA_CLOSED = 2,
    SCHEMA_OBJECT = 4, // the text is an object
    // The grammar may also have texts that violate keywords of which it cannot enforce all. A
    // validator (constraint.h) finds them.
    SCHEMA_CHECKED = 8
};
// except: a schema whose values are excluded; NULL: none.
Grammar *grammar_schema(const Json *schema, const Json *except, unsigned modes, Buffer *unknown,
                        Error *err);
Grammar *grammar_schema_text(Str text, const Json *except, unsigned modes, Buffer *unknown,
                             Error *err);
// Adds the texts of a schema to a grammar. Returns their value, or NONE with err.
int grammar_add_schema(Grammar *g, const Json *schema, const Json *except, unsigned modes,
                       Buffer *unknown, Error *err);
// The texts of the rule `root` of a GBNF grammar. Errors name line, column and rule.
Grammar *grammar_gbnf(Str text, Error *err);
// The texts that a regular expression (regex.h) matches from beginning to end.
Grammar *grammar_regex(Str pattern, Error *err);
// Exactly the n texts of a list.
Grammar *grammar_choices(const Str *choices, int n, Error *err);

// Adds calls of tools to the alternatives of a grammar's root; g->root NONE: it has no other. The
// name comes before the arguments, in any mode. With SCHEMA_CHECKED, a tool whose schema cannot be
// compiled has any JSON object as its arguments, and a problem names it; a tool with unenforced
// keywords is added to Grammar.checked_tools. t: the control tokens of tags; may be NULL.
bool grammar_add_calls(Grammar *g, const CallSpec *spec, const Tokenizer *t, unsigned modes,
                       ConstraintNotes *notes, Error *err);
// Appends the JSON Schema of a spec.
void spec_put_schema(const ConstraintSpec *s, Buffer *out);
// Appends a JSON Schema of the objects that a reader takes for calls without a tag.
void calls_put_shape(const CallSpec *spec, Buffer *out);
