// The answer that options and requests ask for: answer_open() combines its reasoning, its
// constraint and the calls of its tools.
#pragma once

#include "chat/reply.h"
#include "cli/open_model.h"
#include "generate/answer.h"

// Compiles the constraint of `own` or, if it has no source, that of the settings. *out is NULL
// without any. Prints what a JSON Schema has that is ignored: unknown keywords and formats. False
// with err (exit 2) if it is invalid.
bool constraint_open(ConstraintCache *cache, const Options *o, const Settings *s,
                     const ConstraintSpec *own, CompiledConstraint **out, Error *err);

// Sets the constraint of a request: the reasoning of the settings, and the constraint of `own` or
// of the settings (constraint_open) or, if the offer is forced, a call. Without a constraint, the
// calls of the offered tools are constrained in the form of the template, or excluded.
// has_reasoning: the template knows <think>. *out is NULL if any answer is allowed.
//
// Prints notes: where the constraint begins, calls or arguments that are not enforced. The latter
// are also appended to `notes` (may be NULL). False with err as constraint_open().
bool answer_open(const Pipeline *p, const Settings *s, const ConstraintSpec *own,
                 bool has_reasoning, const ToolOffer *offer, Request *r, AnswerState **out,
                 Buffer *notes, Error *err);
