// The answer that settings and requests ask for: answer_open() combines its reasoning, its
// constraint and the calls of its tools.
#pragma once

#include "chat/reply.h"
#include "cli/open_model.h"
#include "generate/answer.h"

// Compiles the constraint of `own` or, if its kind is NONE, that of the settings. *out is NULL
// without any. False with err (exit 2) if it is invalid.
bool constraint_open(ConstraintCache *cache, const Settings *s, const ConstraintSpec *own,
                     CompiledConstraint **out, Error *err);

// Notes that a list of choices (n) has one, or some more than once.
void choices_note(const Pipeline *p, const Str *choices, int n);

// What an answer depends on, besides its request.
typedef struct {
    const Settings *settings;
    ConstraintSpec constraint; // of the request; kind NONE: that of the settings
    ToolOffer offer;
    bool has_reasoning; // the template knows <think>
    Buffer *notes;      // receives what is not enforced; may be NULL
} AnswerInput;

// Sets the constraint of a request. The answer is a call of an offered tool in the form of the
// template or, unless the offer is forced, what the constraint of the input allows. Without a
// constraint, calls in a free answer are constrained, or excluded. *out is NULL if any answer is
// allowed.
//
// Prints notes: where the constraint begins, what a JSON Schema has that is ignored, calls or
// arguments that are not enforced. False with err as constraint_open().
bool answer_open(const Pipeline *p, const AnswerInput *in, Request *r, AnswerState **out,
                 Error *err);
