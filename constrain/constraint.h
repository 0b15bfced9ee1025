// Compiled constraints: a JSON Schema, a GBNF grammar, a regular expression, a list of choices, or
// the calls of a set of tools.
//
// constraint_compile() compiles a ConstraintSpec to a grammar, which a ConstraintCache keeps for
// later requests. constraint_begin() begins a text: its Matcher (mask.h) follows the bytes and
// computes the masks of the next token. answer.h applies them to the answer of a model, or to the
// tool calls in it.
#pragma once

#include "constrain/constraint_spec.h"
#include "constrain/mask.h"
#include "constrain/validator.h"
#include "tokenizer.h"

// A cache of compiled constraints. Beyond 64 constraints or 256 MB, unused ones are freed.
typedef struct ConstraintCache ConstraintCache;
// `t` must stay open. The cache is never freed.
ConstraintCache *constraint_cache_new(const Tokenizer *t);

// Reference-counted.
typedef struct CompiledConstraint CompiledConstraint;
// Compiles the constraint unless it is cached, and takes a reference to it. *out is NULL if the
// kind of the spec is NONE. Returns false and sets err (exit 2) if the constraint is invalid, or if
// the constraints in use take more than 256 MB.
bool constraint_compile(ConstraintCache *cache, const ConstraintSpec *spec,
                        CompiledConstraint **out, Error *err);
CompiledConstraint *constraint_retain(CompiledConstraint *c); // one more reference; NULL stays NULL
void constraint_release(CompiledConstraint *c);               // c may be NULL
// A matcher at the beginning of a text. It must be freed before the constraint is released.
Matcher *constraint_begin(const CompiledConstraint *c);
// True if a text that a matcher accepts as complete also satisfies what its masks do not enforce.
// Otherwise err has the place and what is expected there, as validator_check().
bool constraint_check(const CompiledConstraint *c, Str text, Error *err);
double constraint_compile_sec(const CompiledConstraint *c); // duration of the compilation

// What a user should know about a constraint.
const ConstraintNotes *constraint_notes(const CompiledConstraint *c);
