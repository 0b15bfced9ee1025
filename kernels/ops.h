// Operations over activations, for the forward pass. All threads of a job call each of them
// together with the same arguments; each output element is computed by one thread in one order, so
// the result does not depend on how many there are. An operation's scratch memory is reserved
// before the job, for the largest call: ops_reserve_...
#ifndef KERNELS_OPS_H
#define KERNELS_OPS_H

#include "kernels.h"
#include "team.h"

// Keep to kernels whose result for a token does not depend on how many there are (--deterministic).
// Not to be changed inside a job.
extern bool ops_is_invariant;

// Whether products of w, and attention, have the same bits for any number of tokens anyway.
bool ops_is_batch_invariant(const Tensor *w);

// Kernels are chosen as if there were so many tokens (0: as many as there are); 1 is decode's
// arithmetic. Each thread of a job sets its own, all the same.
extern _Thread_local int ops_like;

// Where it is set, every product is seen by it first: its weights and its inputs x (n, w->cols).
// All threads of the job call it, as any operation here. For calibration.
extern void (*ops_watch)(const Tensor *w, const float *x, int n);

// One product of several that share their input: out (n, w->rows) = x (n, w->cols) w^T.
typedef struct {
    float *out;
    const Tensor *w;
} Product;

enum { MAX_PRODUCTS = 4 };

// out (n, w->rows) = x (n, w->cols) w^T, w's bias where it has one, and what adapters add
void ops_matmul(float *out, const float *x, const Tensor *w, int n);
// Up to MAX_PRODUCTS products of the same x, whose rows are handed out together.
void ops_matmuls(const Product *products, int n_products, const float *x, int n);
// Room for products of `weights` with up to n tokens, together.
void ops_reserve_matmuls(const Tensor *const *weights, int n_weights, int n);

// out (n, dim) = rows `tokens` of the embedding matrix w (vocab, dim), and what adapters add
void ops_embed(float *out, const Tensor *w, const int *tokens, int n);
// out (n, dim) = rmsnorm of each row of x (n, dim)
void ops_rmsnorm(float *out, const float *x, const float *weight, float eps, int n, int dim);
// out (n, dim) = rows `index` of x
void ops_gather(float *out, const float *x, const int *index, int n, int dim);
// gate (n, dim) = silu(gate) * up
void ops_swiglu(float *gate, const float *up, int n, int dim);
// x (n, dim) += y
void ops_add(float *x, const float *y, int n, int dim);
// Calls fn(arg, i) for i in [0, n), `chunk` at a time, spread over the team.
void ops_for(int n, int chunk, void (*fn)(void *arg, int i), void *arg);

// The keys and values that one tile of queries sees: pages of KV_PAGE positions.
typedef struct {
    int first_step,
        n_steps;   // rows of q and out that belong to this tile; positions are consecutive
    int first_pos; // position of the first of them
    // Per layer and page, at [layer * layer_stride + page]: (n_kv_heads, KV_PAGE, head_dim)
    const void *const *k, *const *v;
    size_t layer_stride;
} AttentionTile;

typedef struct {
    int n_heads, n_kv_heads, head_dim;
    Type kv_type;
} AttentionShape;

// out (n, n_heads * head_dim) = causal attention of q (same shape, rotated, multiplied by
// 1/sqrt(head_dim)). Steps [0, n) are covered by the tiles.
void attention(float *out, const float *q, const AttentionTile *tiles, int n_tiles, int layer,
               const AttentionShape *shape);
// Room for such a call on n_threads threads; to be asked for again when sequences have grown.
void attention_reserve(const AttentionTile *tiles, int n_tiles, const AttentionShape *shape,
                       int n_threads);
// How many steps of a sequence may share a tile.
int attention_tile_steps(const AttentionShape *shape);

#endif
