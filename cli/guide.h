// A grammar that guides a generation: what generate.h's Constraint asks, answered by a matcher over
// the model's tokens.
#ifndef CLI_GUIDE_H
#define CLI_GUIDE_H

#include "../constrain/constrain.h"
#include "../generate.h"
#include "options.h"

// What a text is to be; at most one of the first five. All zero: anything.
typedef struct {
    const Json *schema; // a JSON Schema
    Str schema_text;    // or its text; data NULL: none
    Str grammar, regex;
    const Str *choices;
    int n_choices;
    bool is_ordered; // properties in the schema's order
    bool may_think;  // a part <think>...</think> comes first if the model likes, of any text
} GuideWish;

// Grammars that were asked for. Each is compiled once; a few dozen that nobody uses are kept.
typedef struct GuideCache GuideCache;
GuideCache *
guide_cache_new(const Tokenizer *t); // which must stay open; lives as long as the process
const Vocabulary *guide_vocabulary(GuideCache *cache);

typedef struct Guide Guide; // of one text

// *out is NULL if nothing is wished. Keywords of a schema that say nothing are appended to
// `unknown` (may be NULL). False with err (exit 2) if what is wished is wrong.
bool guide_new(GuideCache *cache, const GuideWish *wish, Guide **out, Buffer *unknown, Error *err);
// What the options wish for, with a note of unknown keywords. False with err, also (exit 1) if a
// file cannot be read.
bool guide_of_options(GuideCache *cache, const Options *o, Guide **out, Error *err);
// The same for another text.
Guide *guide_again(const Guide *g);
void guide_free(Guide *g);
// Sets the request's constraint. Its prompt must stand: where it ends with <think>, the text begins
// as thought.
void guide_attach(Guide *g, Request *r);
// Whether the text is complete.
bool guide_is_end(const Guide *g);
Grammar *guide_grammar(const Guide *g, double *compile_sec);

#endif
