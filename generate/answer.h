// The answer of a model: reasoning, then text with tool calls. Implements the Constraint hook of
// generate.h with one automaton.
//
// Reasoning is <think>...</think>, with or without a budget of tokens. The answer after it is
// either constrained as a whole, where calls of tools may be an alternative of the constraint, or
// it is free, and the constraint applies to the tool calls that the model opens in it. Constraints
// are optional (constrain/constraint.h); reasoning and budgets are not.
//
// The phases (Phase in answer.c). "Fed" is text that is appended without asking the model.
//
//     START --- <think> ---> REASONING <--- a prompt that ends with <think>
//       |                        |
//       | other text             | </think>: of the model; or fed, after the message, when the
//       |                        | budget is used up; or fed in place of a stop token
//       v                        v
//
//     TEXT <------------------ SPACE       a constrained answer
//       `-- nothing can follow --> END
//
//     BARE <------------------ BLANK       a free answer; without a budget, BARE comes immediately
//       `-- no call without a tag can begin --> FREE
//
//     BLANK, BARE, FREE -- opener --> TEXT                 calls in a free answer
//                                      |
//         FREE <-- nothing can follow -|
//         END  <-- the same, is_last --'
//
// In a free answer, no call opens inside a Markdown code block.
//
// A text that cannot have reasoning begins in TEXT (constrained) or in BARE (free).
#pragma once

#include "constrain/constraint.h"
#include "generate/generate.h"

typedef struct {
    bool may_think; // <think>...</think> may come first
    bool no_think;  // the answer begins immediately, even if the prompt ends with <think>

    // With a positive budget, reasoning ends after `budget` tokens, or up to a tenth later at the
    // end of a line. A negative budget leaves a quarter of the request's tokens for the answer.
    // Then `message` and </think> are fed. 0: no limit.
    int budget;
    Str message;

    // Tool calls in a free answer (n_openers > 0). Each text in `openers` opens one; an opener that
    // begins with a brace is the beginning of the call itself, at the beginning of the answer. Then
    // the constraint applies until its text is complete. With is_last, the answer ends there.
    // Without a constraint, no call can be opened.
    Str openers[MAX_OPENERS];
    int n_openers;
    bool is_last;
} AnswerSpec;

// True if a prompt ends with <think>, so that the text begins inside the reasoning.
bool answer_begins_in_reasoning(const Tokenizer *t, const int *prompt, int n);

typedef struct AnswerState AnswerState;

// Begins the answer to a request and sets its constraint. The prompt and the token limit must be
// set before. The message and openers must outlive the state. `constraint` may be NULL; the
// state takes the caller's reference.
AnswerState *answer_new(const Tokenizer *t, const AnswerSpec *spec, CompiledConstraint *constraint,
                        Request *r);
AnswerState *answer_clone(const AnswerState *a, Request *r); // the same for another request
void answer_free(AnswerState *a);
// True if reasoning may come before the answer.
bool answer_may_think(const AnswerState *a);
// True if the text so far satisfies the constraint. A free answer does, except within a tool call.
bool answer_is_complete(const AnswerState *a);
// True if `text`, after the start of the answer that the request has, satisfies the constraint or,
// unless it is whole, is the beginning of a text that does. Used for a generated text whose stop
// string has been removed. If reasoning may come first or the answer is free, the tokens accepted
// so far are checked instead.
bool answer_matches(const AnswerState *a, Str text, bool is_whole);
// True unless the text, after the start of the answer, or a call in a free answer violates what its
// constraint does not enforce but checks at the end (constraint_check). Then err says where. For a
// text that matches as a whole.
bool answer_check(const AnswerState *a, Str text, Error *err);
