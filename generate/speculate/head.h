// EAGLE-3 draft head (Li et al. 2025): one decoder layer that drafts tokens from the hidden states
// of the target model. It has an embedding, an output matrix and a KV cache as a model has, so it
// is a Model of one layer, and model_forward() runs it.
//
// With f_P the inputs of three layers of the target at position P side by side (the features), the
// layer's step at position P is the pair (t_{P+1}, g_P), where g_P = Wfc f_P:
//
//     n = rmsnorm(g_P) w2
//     q, k, v = Wq, Wk, Wv of [rmsnorm(e(t_{P+1})) w1; n]       then as in forward() of model.c,
//     x = g_P, or n with norm_before_residual                   from the residual stream x on
//
// The logits of the step are the draft of t_{P+2}. The next step is the pair of the drafted token
// and x after the layer in the place of g.
//
// The features of the latest HEAD_WINDOW positions of a sequence are kept, and the head reads them
// when it drafts. A head that does not draft costs nothing but the copy. Where it has not read
// positions whose features are lost (a long prompt, a prefix from the cache, text without drafts),
// its KV cache begins anew behind them. RoPE depends only on distances of positions, so the head
// counts positions from there. It has less context then, which changes drafts, not the output.
#pragma once

#include "model.h"
#include "kernels/ops.h"

enum { HEAD_WINDOW = 128, HEAD_LAYERS = 3 };

typedef struct {
    const Model *model, *target;
    int layers[HEAD_LAYERS]; // of the target: their inputs are the features
    Tensor fc;               // (dim, n_features), where n_features is 3 * target's dim
    float *fc_norm;          // (n_features) norm of the features before fc; NULL: none
    float *g_norm;           // (dim) w2
    bool norm_before_residual;
    int *ids; // (draft vocabulary) their ids in the target; NULL: the same vocabulary

    float *target_rows; // (steps of the target's pass, n_features)
    float *features;    // (HEAD_WINDOW, n_features) of the head's next pass
    bool has_features;  // false: the next pass continues the previous one with g
    float *g;           // (HEAD_WINDOW, dim) of the pass; then row 0 is x after the layer
    float *logits;      // (vocabulary of the target) of a draft
    MatmulScratch matmul;
} DraftHead;

// State of one sequence. Zero-initialize; to be freed: session and features.
typedef struct {
    Session *session; // keys and values of the pairs from position `first` on
    float *features;  // (HEAD_WINDOW, n_features) position P is row P % HEAD_WINDOW; NULL: no rows
    int first;
    int end, n_kept; // features of positions [end - n_kept, end) are kept
} HeadState;

// Completes the head m with parts of its target, and hooks both. max_steps: of the target's passes.
// NULL with err (exit 3) if the head does not fit the target.
DraftHead *head_new(Model *m, Model *target, int max_steps, Error *err);
// Keeps the features of n positions from `pos` on: rows [row, row + n) of the target's latest pass.
void head_keep(const DraftHead *e, HeadState *s, int pos, int row, int n);
// Prepares a pass of the pairs that the head has not read; n more steps will follow. Writes their
// tokens (HEAD_WINDOW), of which `pending` is the last one, and returns their number. 0: none.
int head_pairs(DraftHead *e, HeadState *s, const Session *text, int pending, int *tokens, int n);
// The logits (vocabulary of the target) for those of a pass (draft vocabulary, or NULL). The next
// pass continues it, unless head_pairs() prepares one.
const float *head_logits(DraftHead *e, const float *logits);
