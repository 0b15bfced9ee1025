// Draft model: a smaller model with the vocabulary of the target model drafts tokens that the
// target verifies (Leviathan, Kalman and Matias 2023).
//
// Unlike in the paper, drafts are not accepted by rejection sampling on the two distributions. The
// target samples each position as it would without drafts, and a draft is accepted if it is the
// sampled token. The output therefore has the same bits, and acceptance stays high because the
// draft sampler uses the random numbers that the target's sampler will use for the same positions:
// where the distributions agree, the tokens agree.
#pragma once

#include "generate/sample.h"
#include "generate/speculate/head.h"

// A draft model has one KV cache. When it switches to another sequence, it recomputes everything
// after their common prefix. A draft head has one for each sequence.
typedef struct {
    const Model *model;
    Workspace *workspace;
    Session *session;             // the draft model's KV cache of the latest sequence
    DraftHead *head;              // NULL: a model
    float n_accepted, n_verified; // exponentially decayed counts of drafts
    double sec_per_draft;         // moving average; 0: not measured yet
} DraftModel;

// m: a model or a head; both models must outlive the result. max_steps: of the target's passes.
// NULL with err (exit 3) if the head does not fit the target.
DraftModel *draft_new(Model *m, Model *target, int max_steps, Error *err);

// Writes the acceptance rate of the next n drafts, p_accept (n), and returns the seconds that one
// draft takes (0: not measured yet).
double draft_estimate(DraftModel *d, float *p_accept, int n);
// Drafts up to n tokens that follow the session's tokens and `pending`. `draft_sampler` samples
// with the random state of `sampler`. state: of the sequence. Returns the number of drafts: fewer
// than n if the context is full, memory is short, or the program is interrupted.
int draft_generate(DraftModel *d, HeadState *state, Sampler *draft_sampler, const Sampler *sampler,
                   const Session *session, int pending, int *out, int n);
// Updates the acceptance rate after a pass over n drafts, of which the first n_accepted were
// accepted.
void draft_record(DraftModel *d, int n_accepted, int n);
