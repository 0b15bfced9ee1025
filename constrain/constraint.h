// A grammar that constraints a generation: what generate.h's Constraint asks, answered by a matcher
// over the model's tokens.
#ifndef CONSTRAIN_CONSTRAINT_H
#define CONSTRAIN_CONSTRAINT_H

#include "constrain.h"
#include "../generate.h"
#include "../cli/options.h"

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
const Vocabulary *constraint_vocabulary(ConstraintCache *cache);

typedef struct ConstraintState ConstraintState; // of one text

// *out is NULL if nothing is wished. Keywords of a schema that say nothing are appended to
// `unknown` (may be NULL). False with err (exit 2) if what is wished is wrong.
bool constraint_new(ConstraintCache *cache, const ConstraintSpec *wish, ConstraintState **out,
                    Buffer *unknown, Error *err);
// What the options wish for, with a note of unknown keywords. False with err, also (exit 1) if a
// file cannot be read.
bool constraint_from_options(ConstraintCache *cache, const Options *o, ConstraintState **out,
                             Error *err);
// The same for another text.
ConstraintState *constraint_clone(const ConstraintState *g);
void constraint_free(ConstraintState *g);
// Sets the request's constraint. Its prompt must stand: where it ends with <think>, the text begins
// as thought.
void constraint_attach(ConstraintState *g, Request *r);
// Whether the text is complete.
bool constraint_is_complete(const ConstraintState *g);
Grammar *constraint_grammar(const ConstraintState *g, double *compile_sec);

#endif
