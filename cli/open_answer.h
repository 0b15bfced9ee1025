// The answer that options and requests ask for: answer_open() combines its reasoning, its
// constraint and the calls of its tools.
#pragma once

#include "chat/reply.h"
#include "cli/open_model.h"
#include "generate/answer.h"

// The reasoning that --reasoning and --reasoning-budget request.
Reasoning reasoning_from_options(const Options *o);
// Checks an object of template variables, and applies those that concern reasoning to the options:
// enable_thinking, thinking, thinking_budget and similar names. False with err (exit 2).
bool template_kwargs_read(Options *o, const Json *kwargs, Error *err);
// template_kwargs_read() of --chat-template-kwargs. Dies if it is invalid.
void template_kwargs_apply(Options *o);

// Compiles the constraint of `own` or, if it has no source, of --json-schema, --grammar, --regex or
// --choices. *out is NULL without any. Prints what a JSON Schema has that is ignored: unknown
// keywords and formats. False with err (exit 2) if it is invalid.
bool constraint_open(ConstraintCache *cache, const Options *o, const ConstraintSpec *own,
                     CompiledConstraint **out, Error *err);

// Sets the constraint of a request: the reasoning of the options, and the constraint of `own` or of
// the options (constraint_open) or, if the offer is forced, a call. Without a constraint, the calls
// of the offered tools are constrained in the form of the template, or excluded. has_reasoning: the
// template knows <think>. *out is NULL if any answer is allowed.
//
// Prints notes: where the constraint begins, calls or arguments that are not enforced. The latter
// are also appended to `notes` (may be NULL). False with err as constraint_open().
bool answer_open(const Pipeline *p, const Options *o, const ConstraintSpec *own, bool has_reasoning,
                 const ToolOffer *offer, Request *r, AnswerState **out, Buffer *notes, Error *err);
