// Causal attention over the paged KV cache.
//
// Per forward pass: attention_prepare() once, then, in every layer, attention() by all threads.
#pragma once

#include "kernels/exactness.h"
#include "kernels/kernels.h"

typedef struct {
    int n_heads, n_kv_heads, head_dim;
    Type k_type, v_type;
} AttentionShape;

// Consecutive positions of one sequence, and its keys and values.
typedef struct {
    int first_step, n_steps; // rows of q and out
    int first_pos;           // position of the first step
    // Per layer and page, at [layer * layer_stride + page]: (n_kv_heads, KV_PAGE, head_dim)
    const void *const *k, *const *v;
    size_t layer_stride;
} AttentionTile;

// The work of one forward pass. Zero-initialize; later passes reuse `partial`.
typedef struct {
    AttentionShape shape;
    const AttentionTile *tiles; // (n_tiles), covering all steps
    int n_tiles;
    int n_items;          // work items of a layer
    int n_pages;          // pages of the longest tile
    size_t partial_len;   // floats of the partial softmax of one item
    bool is_split;        // the pages of an item are separate work items, with results in `partial`
    float *partial;       // (n_items, n_pages, partial_len)
    size_t partial_bytes; // allocated
} Attention;

// The rotation of keys or values that are cached as Q8_0 or Q4_0. Does nothing for other types.
//
// Some dimensions of keys and values are many times larger than the others, and would determine the
// scale that 32 values share. A Hadamard matrix H, which is orthogonal and has elements of one
// magnitude, distributes them over all dimensions (QuaRot: Ashkboos et al. 2024). If keys are
// rotated, so are queries; if values are rotated, the output is rotated back. H is its own inverse,
// so
//
//     (H q) (H k) = q k        H sum_i p_i (H v_i) = sum_i p_i v_i
//
// Replaces each head of x (n / head_dim, head_dim) by H x. If head_dim is not a power of two, parts
// of a head are rotated: as many values as the greatest power of two that divides head_dim.
void attention_rotate(Type type, float *x, int n, int head_dim);

// Maximum number of steps of a tile.
int attention_tile_steps(const AttentionShape *shape);

// Divides the work of a forward pass among n_threads threads, and sizes the scratch buffer.
void attention_prepare(Attention *a, const AttentionShape *shape, const AttentionTile *tiles,
                       int n_tiles, int n_threads);

// out (n_steps, n_heads * head_dim) = softmax(q k^T) v. q has the same shape as out, and is already
// rotated (RoPE, attention_rotate) and multiplied by the factor of the scores. A query sees the
// keys up to its own position.
void attention(float *out, const float *q, const Attention *a, int layer, Exactness exactness);
