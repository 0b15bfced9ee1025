// Threaded operations over activations. All threads of a Team call each operation together with the same arguments;
// an operation ends with a barrier, so the next one sees its result. Work is handed out in chunks as threads become
// free, and each output element is computed by one thread in one order: the result does not depend on their number.
#ifndef KERNELS_OPS_H
#define KERNELS_OPS_H

#include "kernels.h"

typedef struct Team Team;

// Runs program(arg) on the calling thread, with n_threads - 1 others waiting for team_run, and returns its result.
// Once in a process, around everything that computes (1 thread without OpenMP).
int team_serve(int n_threads, int (*program)(void *arg), void *arg);
// Runs body(team, arg) on n_threads threads, at most those of team_serve, and returns when all are done.
void team_run(int n_threads, void (*body)(Team *team, void *arg), void *arg);
// Threads this process may use: affinity mask and cgroup quota.
int team_default_threads(void);

// Seconds spent per kind of operation since the start, while ops_profile is on (the time from barrier to barrier).
typedef enum { OP_EMBED, OP_NORM, OP_ENCODE, OP_MATMUL, OP_ROPE, OP_ATTEND, OP_REST, OP_COUNT } OpKind;
extern bool ops_profile;
extern double ops_sec[OP_COUNT];
const char *ops_kind_name(OpKind kind);

// One product of a group that shares its input.
typedef struct {
    float *out; // (n_tokens, out_stride), columns [0, w->rows) are written
    size_t out_stride;
    const Tensor *w;
} Product;

// x (n, w.cols); out = x w^T for each of the products (at most 4), whose weights have the same number of columns.
// `invariant` keeps to the kernels whose result does not depend on n. `scratch` (64-byte aligned) takes the encoded
// activations: the sum of ops_encode_bytes over the products, for up to n tokens.
void ops_matmul(Team *team, const Product *products, int n_products, const float *x, int n, void *scratch,
                bool invariant);
size_t ops_encode_bytes(const Tensor *w, int n);

// out (n, dim) = rows `tokens` of the embedding matrix w (vocab, dim)
void ops_embed(Team *team, float *out, const Tensor *w, const int *tokens, int n);
// out (n, dim) = rmsnorm of each row of x (n, dim)
void ops_rmsnorm(Team *team, float *out, const float *x, const float *weight, float eps, int n, int dim);
// out (n, dim) = rows `index` of x
void ops_gather(Team *team, float *out, const float *x, const int *index, int n, int dim);
// gate (n, dim) = silu(gate) * up
void ops_swiglu(Team *team, float *gate, const float *up, int n, int dim);
// x (n, dim) += y
void ops_add(Team *team, float *x, const float *y, int n, int dim);
// Calls fn(arg, i) for i in [0, n), `chunk` at a time, spread over the team.
void ops_for(Team *team, int n, int chunk, void (*fn)(void *arg, int i), void *arg);

// The keys and values that one tile of queries sees: pages of KV_PAGE positions.
typedef struct {
    int first_step, n_steps; // rows of q and out that belong to this tile; positions are consecutive
    int first_pos;           // position of the first of them
    // Per layer and page, at [layer * layer_stride + page]: (n_kv_heads, KV_PAGE, head_dim)
    const void *const *k, *const *v;
    size_t layer_stride;
} AttendTile;

typedef struct {
    int n_heads, n_kv_heads, head_dim;
    Type kv_type;
    bool is_invariant; // keep to the kernel whose result does not depend on the number of queries
} AttendShape;

// out (n, n_heads * head_dim) = causal attention of q (same shape, rotated, multiplied by 1/sqrt(head_dim)). Steps
// [0, n) are covered by the tiles. `partial` has ops_attend_floats(...) floats.
void ops_attend(Team *team, float *out, const float *q, const AttendTile *tiles, int n_tiles, int layer,
                const AttendShape *shape, float *partial);
size_t ops_attend_floats(const AttendShape *shape, int n_threads, const AttendTile *tiles, int n_tiles);
// How many steps of a sequence may share a tile.
int ops_attend_tile_steps(const AttendShape *shape);

#endif
