// A grammar that constraints a generation: what generate.h's Constraint asks, answered by a matcher
// over the model's tokens.
#ifndef CONSTRAIN_CONSTRAINT_H
#define CONSTRAIN_CONSTRAINT_H

#include "../base/json.h"
#include "../generate.h"

extern const bool constrain_is_built; // false in stub.c

// What a text is to be; at most one of the first five. All zero: anything.
typedef struct {
    const Json *schema; // a JSON Schema
    Str schema_text;    // or its text; data NULL: none
    Str grammar, regex;
    const Str *choices;
    int n_choices;
    bool is_ordered; // properties in the schema's order
    bool may_think;  // a part <think>...</think> comes first if the model likes, of any text
} ConstraintSpec;

// Grammars that were asked for. Each is compiled once; a few dozen that nobody uses are kept.
typedef struct ConstraintCache ConstraintCache;
ConstraintCache *
constraint_cache_new(const Tokenizer *t); // which must stay open; lives as long as the process

typedef struct ConstraintState ConstraintState; // of one text

// *out is NULL if nothing is wished. Keywords of a schema that say nothing are appended to
// `unknown` (may be NULL). False with err (exit 2) if what is wished is wrong.
bool constraint_new(ConstraintCache *cache, const ConstraintSpec *wish, ConstraintState **out,
                    Buffer *unknown, Error *err);
// The same for another text.
ConstraintState *constraint_clone(const ConstraintState *g);
void constraint_free(ConstraintState *g);
// Sets the request's constraint. Its prompt must stand: where it ends with <think>, the text begins
// as thought.
void constraint_attach(ConstraintState *g, Request *r);
// Whether the text is complete.
bool constraint_is_complete(const ConstraintState *g);
// For checking a text without a model: the tokens that may come next, as bits; valid until the next
// call for any text of the same constraint.
const uint64_t *constraint_mask(ConstraintState *g);
// Appends a token to the text. False if some of its bytes do not fit; *n_accepted counts those
// before the first that does not.
bool constraint_accept(ConstraintState *g, int token, size_t *n_accepted);
double constraint_compile_sec(const ConstraintState *g); // time that compiling took

#endif
