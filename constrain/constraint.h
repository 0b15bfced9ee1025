// Compiled constraints: a JSON Schema, a GBNF grammar, a regular expression or a list of choices.
//
// constraint_compile() compiles a ConstraintSpec to a grammar, which a ConstraintCache keeps for
// later requests. constraint_begin() begins a text: its Matcher (mask.h) follows the bytes and
// computes the masks of the next token. answer.h applies them to the answer of a model, or to the
// tool calls in it.
#pragma once

#include "constrain/mask.h"
#include "base/json.h"
#include "tokenizer.h"

// The requested constraint. At most one of schema, schema_text, grammar, regex and choices is set;
// if none is, any text is allowed. An unset Str has data NULL.
typedef struct {
    const Json *schema; // a parsed JSON Schema
    Str schema_text;    // a JSON Schema
    Str grammar;        // a GBNF grammar
    Str regex;
    const Str *choices; // (n_choices)
    int n_choices;
    bool is_ordered; // properties come in the schema's order
    bool is_closed;  // objects have only described properties (SCHEMA_CLOSED in constrain.h)
} ConstraintSpec;

// The number of sources of a spec.
static inline int constraint_n_sources(const ConstraintSpec *s) {
    return (s->schema != NULL) + (s->schema_text.data != NULL) + (s->grammar.data != NULL) +
           (s->regex.data != NULL) + (s->choices != NULL);
}

// A cache of compiled constraints. Beyond 64 constraints or 256 MB, unused ones are freed.
typedef struct ConstraintCache ConstraintCache;
// `t` must stay open. The cache is never freed.
ConstraintCache *constraint_cache_new(const Tokenizer *t);

// Reference-counted.
typedef struct CompiledConstraint CompiledConstraint;
// Compiles the constraint unless it is cached, and takes a reference to it. *out is NULL if the
// spec has no source. The places of unknown keywords of a schema are appended to `unknown` (may be
// NULL) when it is compiled. Returns false and sets err (exit 2) if the constraint is invalid, or
// if the constraints in use take more than 256 MB.
bool constraint_compile(ConstraintCache *cache, const ConstraintSpec *spec,
                        CompiledConstraint **out, Buffer *unknown, Error *err);
CompiledConstraint *constraint_retain(CompiledConstraint *c); // one more reference; NULL stays NULL
void constraint_release(CompiledConstraint *c);               // c may be NULL
// A matcher at the beginning of a text. It must be freed before the constraint is released.
Matcher *constraint_begin(const CompiledConstraint *c);
double constraint_compile_sec(const CompiledConstraint *c); // duration of the compilation

// Validates JSON texts by a JSON Schema, as the standard defines it: order, white space and
// spellings do not matter, and objects are open. Of equal names in an object, the last one counts.
typedef struct SchemaValidator SchemaValidator;
// NULL with err (exit 2) if the schema is invalid. A keyword that is not supported is an error of
// the compilation, so a schema that constraint_compile() refuses is not validated.
SchemaValidator *validator_new(Str schema, Error *err);
void validator_free(SchemaValidator *v);
// True if the text is valid. Otherwise err has the place of the first failure and what is expected
// there, such as "#/a: expected integer".
bool validator_check(SchemaValidator *v, Str text, Error *err);
