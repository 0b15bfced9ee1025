// Constrained generation: implements the Constraint hook of generate.h for a JSON Schema, a GBNF
// grammar, a regular expression or a list of choices.
//
// A ConstraintSpec is compiled to a grammar, which a ConstraintCache keeps for later requests. A
// ConstraintState follows the text of one sequence: create it with constraint_new() or
// constraint_clone(), then attach it to a request with constraint_attach().
//
// A text is optional reasoning, <think>...</think>, and then the answer. The reasoning is free, up
// to a budget of tokens. The answer is constrained as a whole, or it is free and the constraint
// applies to the tool calls that the model opens in it.
#pragma once

#include "../base/json.h"
#include "../generate.h"

enum { MAX_OPENERS = 2 };

// The requested constraint. At most one of schema, schema_text, grammar, regex and choices is set;
// if none is, any answer is allowed. An unset Str has data NULL.
typedef struct {
    const Json *schema; // a parsed JSON Schema
    Str schema_text;    // a JSON Schema
    Str grammar;        // a GBNF grammar
    Str regex;
    const Str *choices; // (n_choices)
    int n_choices;
    bool is_ordered; // properties come in the schema's order
    bool is_checked; // checks a text that was not generated (SCHEMA_CHECKED in constrain.h)
    bool is_closed;  // objects have only described properties (SCHEMA_CLOSED)
    bool may_think;  // an unconstrained <think>...</think> may come first
    bool no_think;   // the answer begins immediately, even if the prompt ends with <think>

    // With has_budget, reasoning ends after `budget` tokens, or up to a tenth later at the end of a
    // line. A negative budget leaves a quarter of the request's tokens for the answer. Then
    // `message` and </think> are fed.
    bool has_budget;
    int budget;
    Str message;

    // Tool calls in a free answer (n_openers > 0). Each text in `openers` opens one; an opener that
    // begins with a brace is the beginning of the call itself, at the beginning of the answer. Then
    // the source constrains the text until it is complete, and `closer` is fed. If has_more is set,
    // only further calls can follow, which need no opener. Without a source, no call can be opened.
    Str openers[MAX_OPENERS];
    int n_openers;
    Str closer;
    bool has_more;
} ConstraintSpec;

// A cache of compiled constraints. Beyond 64 constraints or 256 MB, unused ones are freed.
typedef struct ConstraintCache ConstraintCache;
// `t` must stay open. The cache is never freed.
ConstraintCache *constraint_cache_new(const Tokenizer *t);

typedef struct ConstraintState ConstraintState;

// Compiles the constraint unless it is cached. *out is NULL if neither a constraint nor a budget is
// requested. The message, openers and closer must outlive the state. The places of unknown keywords
// of a schema are appended to `unknown` (may be NULL) when it is compiled. Returns false and sets
// err (exit 2) if the constraint is invalid, or if the constraints in use take more than 256 MB.
bool constraint_new(ConstraintCache *cache, const ConstraintSpec *spec, ConstraintState **out,
                    Buffer *unknown, Error *err);
ConstraintState *constraint_clone(const ConstraintState *s); // at the beginning of a new text
void constraint_free(ConstraintState *s);
// Sets the constraint of a request, whose prompt must be set before: if the prompt ends with
// <think>, the text begins inside the reasoning; if it ends with </think>, there is none.
void constraint_attach(ConstraintState *s, Request *r);
// True if reasoning may come before the answer of an attached constraint.
bool constraint_may_think(const ConstraintState *s);
// True if the text so far satisfies the constraint. A free answer does, except within a tool call.
bool constraint_is_complete(const ConstraintState *s);
// True if `text` satisfies the constraint. Used for a generated text whose stop string has been
// removed. If reasoning may come first or the answer is free, the tokens accepted so far are
// checked instead.
bool constraint_matches(const ConstraintState *s, Str text);

// For checking a text without a model.

// Appends the text of a JSON Schema in which numbers with an exponent have the spelling that the
// constraint reads (number.h). *at (NULL: none), an offset in the result, becomes one in `text`.
void constraint_spell_out(Buffer *out, Str text, size_t *at);
// One bit per token, set if the token may come next. Valid
// until the next call for any state of the same constraint.
const uint64_t *constraint_mask(ConstraintState *s);
// Appends a token to the text. False if one of its bytes does not fit; *n_accepted is the number of
// bytes before it.
bool constraint_accept(ConstraintState *s, int token, size_t *n_accepted);
double constraint_compile_sec(const ConstraintState *s); // duration of the compilation
