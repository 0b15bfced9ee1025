// Constrained generation: implements the Constraint hook of generate.h for a JSON Schema, a
// grammar, a regular expression or a list of choices.
//
// A ConstraintSpec is compiled into a grammar, which a ConstraintCache keeps. A ConstraintState
// follows one text: constraint_new() or constraint_clone(), then constraint_attach() to a request.
#pragma once

#include "../base/json.h"
#include "../generate.h"

extern const bool constrain_is_built; // false in stub.c

// The requested constraint. At most one of the first five is given; none: any text.
typedef struct {
    const Json *schema; // a JSON Schema
    Str schema_text;    // the same as text; data NULL: not given
    Str grammar, regex; // the same
    const Str *choices; // (n_choices)
    int n_choices;
    bool is_ordered; // properties come in the schema's order
    bool may_think;  // an unconstrained <think>...</think> may come first
} ConstraintSpec;

// Compiled constraints. Those that no text uses are dropped when there are more than a few dozen.
typedef struct ConstraintCache ConstraintCache;
// `t` must stay open. The cache lives as long as the process.
ConstraintCache *constraint_cache_new(const Tokenizer *t);

typedef struct ConstraintState ConstraintState;

// *out is NULL if nothing is requested. Places of unknown keywords of a schema are appended to
// `unknown` (may be NULL) when it is compiled. False with err (exit 2) for an invalid constraint.
bool constraint_new(ConstraintCache *cache, const ConstraintSpec *spec, ConstraintState **out,
                    Buffer *unknown, Error *err);
ConstraintState *constraint_clone(const ConstraintState *s); // for another text, from its beginning
void constraint_free(ConstraintState *s);
// Sets the constraint of a request whose prompt is set: if it ends with <think>, the text begins
// inside the reasoning.
void constraint_attach(ConstraintState *s, Request *r);
// Whether the text so far satisfies the constraint.
bool constraint_is_complete(const ConstraintState *s);

// For checking a text without a model: the tokens that may come next, as bits; valid until the next
// call for any text of the same constraint.
const uint64_t *constraint_mask(ConstraintState *s);
// Appends a token to the text. False if some of its bytes do not fit; *n_accepted counts those
// before the first that does not.
bool constraint_accept(ConstraintState *s, int token, size_t *n_accepted);
double constraint_compile_sec(const ConstraintState *s); // time that compiling took
