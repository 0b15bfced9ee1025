// EAGLE-3 draft head (Li et al. 2025): one decoder layer that drafts tokens from the hidden states
// of the target model. It has an embedding, an output matrix and a KV cache as a model has, so it
// is a Model of one layer, and model_forward() runs it.
//
// With f_P the inputs of three layers of the target at position P side by side (the features), the
// layer's step at position P is the pair (t_{P+1}, g_P), where g_P = Wfc f_P:
//
//     n = rmsnorm(g_P) w2
//     q, k, v = Wq, Wk, Wv of [rmsnorm(e(t_{P+1})) w1; n]       then as in forward() of model.c,
//     x = g_P, or n with is_residual_normed                     from the residual stream x on
//
// e(t) is the embedding of t. The logits of the step are the draft of t_{P+2}. The next step is the
// pair of the drafted token and x after the layer in the place of g.
//
// The features of the latest HEAD_WINDOW positions of a sequence are kept, and the head reads them
// when it drafts. A head that does not draft costs nothing but the copy. Where it has not read
// positions whose features are lost (a long prompt, a prefix from the cache, text without drafts),
// its KV cache begins anew behind them. RoPE depends only on distances of positions, so the head
// counts positions from there. It has less context then, which changes drafts, not the output.
//
// A head reads less than a twentieth of the target's weights, so it drafts in a batch, too.
#pragma once

#include "generate/speculate/drafter.h"
#include "generate/speculate/rate.h"
#include "kernels/ops.h"
#include "model.h"

enum { HEAD_WINDOW = 128, HEAD_LAYERS = 3 };

// What all sequences share.
typedef struct {
    Model model; // the head, with the matrices that it shares with its target
    const Model *target;
    int layers[HEAD_LAYERS]; // of the target: their inputs are the features
    Tensor fc;               // (dim, n_features) Wfc, where n_features is 3 * target's dim
    float *fc_norm;          // (n_features) norm of the features before fc; NULL: none
    float *g_norm;           // (dim) w2
    bool is_residual_normed; // x = n, not g_P ("norm_before_residual" of the file)
    int *ids;                // (draft vocabulary) ids in the target; NULL: the same vocabulary

    // The next pass.
    Workspace *workspace;
    float *target_rows; // (steps of the target's pass, n_features) features of the target's pass
    float *features;    // (HEAD_WINDOW, n_features) of the head's pass
    bool has_features;  // false: the pass continues the previous one with g
    float *g;           // (HEAD_WINDOW, dim) of the pass; then row 0 is x after the layer
    float *logits;      // (vocabulary of the target) of a draft
    MatmulScratch matmul;
    DraftRate rate;
} DraftHead;

// Opens the head m of a target, whose forward passes in target_ws it hooks. All three must outlive
// the result. NULL with err (exit 3) if the head does not fit the target.
DraftHead *head_new(const Model *m, const Model *target, Workspace *target_ws, Error *err);
// A drafter for a sequence that is sampled with these options.
Drafter head_begin(DraftHead *head, const SampleOptions *options);
// The logits (vocabulary of the target) for those of a pass (draft vocabulary).
const float *head_logits(DraftHead *head, const float *logits);
