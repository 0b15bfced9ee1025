// Draft model: a smaller model with the vocabulary of the target model drafts tokens that the
// target verifies (Leviathan, Kalman and Matias 2023).
//
// Unlike in the paper, drafts are not accepted by rejection sampling on the two distributions. The
// target samples each position as it would without drafts, and a draft is accepted if it is the
// sampled token. The output therefore has the same bits, and acceptance stays high because the
// draft sampler uses the random numbers that the target's sampler will use for the same positions:
// where the distributions agree, the tokens agree.
//
// A draft model runs for a single sequence only: in a batch, its time would delay the other
// sequences.
#pragma once

#include "generate/speculate/drafter.h"
#include "generate/speculate/rate.h"
#include "model.h"

// What all sequences share. There is one KV cache: when the model switches to another sequence, it
// recomputes everything after their common prefix.
typedef struct {
    const Model *model;
    Workspace *workspace;
    Session *session; // keys and values of the latest sequence
    DraftRate rate;
} DraftModel;

// The model must outlive the result.
DraftModel *draft_model_new(const Model *m);
// A drafter for a sequence that is sampled with these options.
Drafter draft_model_begin(DraftModel *m, const SampleOptions *options);
