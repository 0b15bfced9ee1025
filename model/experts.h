// Mixtures of experts (Shazeer et al. 2017): a layer has E small FFNs, the experts, and a router
// that chooses k of them for each token.
//
//     p = softmax(Wr h) or sigmoid(Wr h)    (E)
//     T = the k experts with the greatest p + b; of equal values the lower index wins
//     w = p of T, divided by its sum if the family normalizes it, times a factor
//     y = sum over e in T, in ascending order, of w_e FFN_e(h)
//
// The bias b is optional and affects the choice only. In some families the experts are divided into
// groups, and only experts of the groups with the greatest values are candidates.
//
// This module has the metadata, the choice and the weighted sum; expert_ffn() of model.c has the
// products. A row is a pair of a step and one of its experts, so n steps have n * k rows. Rows are
// sorted by expert: the weights of an expert are read once per forward pass.
#pragma once

#include "gguf/family.h"

enum { MAX_EXPERTS = 1024 };

typedef struct {
    int n_experts;               // E; 0: all layers have a dense FFN
    int n_used;                  // k
    int n_groups, n_groups_used; // 0 or 1: no groups
    int dim;                     // width of an expert
    int shared_dim;              // width of the shared expert, which computes every token; 0: none
    int n_dense_layers;          // the first layers have a dense FFN
    int layer_step;              // of the others, layers step - 1, 2 step - 1, ... have experts
    bool is_sigmoid;             // p is a sigmoid, not a softmax
    bool is_normalized;          // the weights of T are divided by their sum
    float weight_scale;          // factor of the weights
} ExpertConfig;

// Reads the metadata. hidden_dim: width of a dense FFN. False with err (exit 3) if a value is
// invalid.
bool experts_read(ExpertConfig *c, const Gguf *g, const Family *f, int hidden_dim, Error *err);
// True if a layer has experts.
bool experts_in_layer(const ExpertConfig *c, int layer);
// Mean number of experts that n tokens choose together, if all are equally likely.
double experts_touched(const ExpertConfig *c, int n);

// The choice of the experts for the steps of a forward pass. Buffers are those of the current
// layer, except first_row, which decides how many work items an operation has: a late thread
// (kernels/team.h) reads it while the others are already in a later layer.
typedef struct {
    float *scores;        // (n, E) Wr h, then p
    float *shared_scores; // (n) v . h, see Layer.shared_gate
    int *chosen;          // (n, k) experts of each step, ascending
    float *weights;       // (n, k)
    int *rows;            // (n, k) the row of each choice
    int *steps;           // (n * k) the step of each row
    int *first_row;       // (n_layers, E + 1) see routing_first_row()
} Routing;

Routing routing_new(const ExpertConfig *c, int n_layers, int max_steps);
void routing_free(Routing *r);
// In a layer, expert e has the rows [first_row[e], first_row[e + 1]).
int *routing_first_row(const Routing *r, const ExpertConfig *c, int layer);

// Operations (kernels/ops.h).

// Chooses the experts of n steps by r->scores, and sorts the rows. bias: b, NULL for none. A step
// whose scores are not finite gets the weight NaN, which makes its logits NaN.
void experts_route(Routing *r, const ExpertConfig *c, int layer, const float *bias, int n);
// h (n, dim) = the weighted sum of the rows of y (n * k, dim), plus the shared expert's output,
// which h holds, times sigmoid(shared_scores) if has_shared_gate. Overwrites y.
void experts_combine(float *h, float *y, const Routing *r, const ExpertConfig *c,
                     bool has_shared_gate, int n, int dim);
