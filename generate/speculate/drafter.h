// A drafter proposes the tokens that a sequence will probably continue with. There are three kinds:
// prompt lookup (lookup.h), a draft model (draft_model.h) and an EAGLE-3 head (head.h). Each is
// four functions, so that speculate.c needs to know nothing else about it.
#pragma once

#include "generate/sample.h"
#include "model/session.h"

enum { SPECULATE_MAX_DRAFT = 23 }; // most tokens per draft

// The place in a sequence where a draft begins.
typedef struct {
    const Session *session;
    int pending;            // the last sampled token, which follows those of the session
    const Sampler *sampler; // of the sequence
    int n_base;             // tokens that the pass holds without the draft, including `pending`
} DraftPoint;

// The drafter of one sequence.
typedef struct {
    // Prepares a draft of up to `max` tokens. Writes the acceptance rate of each of them to
    // p_accept (p_i of cost.h), and the seconds that drafting one takes to *sec_per_draft (0:
    // nothing, or not measured yet). Returns their number, at most `max`.
    int (*estimate)(void *arg, const DraftPoint *at, float *p_accept, int max,
                    double *sec_per_draft);
    // Drafts up to n of the tokens that estimate() has just announced. Returns their number: fewer
    // if the drafter's context is full, memory is short, or the program is interrupted.
    int (*draft)(void *arg, const DraftPoint *at, int *out, int n);
    // Called after a pass, of which the session has kept n tokens: of a prompt, or the pending
    // token and the accepted tokens of the draft. `row` is the index of the first one's step in the
    // pass.
    void (*accept)(void *arg, const Session *session, int row, int n);
    void (*free)(void *arg);
    void *arg; // the drafter's state
} Drafter;
