// Attention of a page (AttentionPage, kernels/kernels.h): scores = Q K^T, softmax, acc = weights V.
//
// attend() is the loop of all vector backends. It reads keys, and then values, in tiles of
// ATTEND_TILE rows, each once for all queries. A backend defines two products of a tile, whose n
// rows begin at row `key` of the page:
//
//   attend_scores   scores[i][key + j] = q[i] . k[key + j]              for j < n and all queries i
//   attend_values   acc[i] = sum over j < n of scores[i][key + j] * v[key + j]
//                   (key == 0; later tiles add to acc)
//
// The thread's scratch memory begins with the scores, float[ATTEND_MAX_QUERIES][KV_PAGE]. The order
// in which a query's sums are added does not depend on the other queries.
#pragma once

#include "prefetch.h"
#include "vector_math.h"
#include "../kernels/team.h"

enum { ATTEND_TILE = 2 * WIDTH };

static void attend_scores(const AttentionPage *a, int key, int n, Prefetch *prefetch);
static void attend_values(const AttentionPage *a, int key, int n, Prefetch *prefetch);

// Converts ATTEND_TILE rows of K or V from `key` on to float32. The last of the n rows that exist
// is repeated to fill the tile.
static inline void convert_kv_tile(float (*rows)[MAX_HEAD_DIM], const AttentionPage *a,
                                   const void *kv, int key, int n) {
    size_t row_bytes = quant_row_bytes(a->kv_type, (size_t)a->head_dim);
    for (int i = 0; i < ATTEND_TILE; i++) {
        const char *row = (const char *)kv + (size_t)(key + min_int(i, n - 1)) * row_bytes;
        if (a->kv_type == TYPE_F16)
            convert_row(TYPE_F16, row, rows[i], a->head_dim);
        else if (a->kv_type == TYPE_Q8_0)
            convert_row(TYPE_Q8_0, row, rows[i], a->head_dim);
        else
            convert_row(TYPE_F32, row, rows[i], a->head_dim);
    }
}

// Prefetches V while scores are computed, and K of the next page while values are multiplied.
static void attend(const AttentionPage *a) {
    float(*scores)[KV_PAGE] = team_scratch();
    int n_all = 0; // largest number of keys that a query sees
    for (int i = 0; i < a->n_q; i++) n_all = a->n_keys[i] > n_all ? a->n_keys[i] : n_all;
    size_t bytes = (size_t)n_all * quant_row_bytes(a->kv_type, (size_t)a->head_dim);
    Prefetch prefetch = prefetch_range(a->v, bytes, 2);
    for (int key = 0; key < n_all; key += ATTEND_TILE)
        attend_scores(a, key, min_int(ATTEND_TILE, n_all - key), &prefetch);
    for (int i = 0; i < a->n_q; i++)
        softmax_scores(scores[i], a->n_keys[i], n_all, a->max + i, a->sum + i);
    if (!n_all) memset(a->acc, 0, (size_t)a->n_q * (size_t)a->head_dim * sizeof(float));
    prefetch = prefetch_range(a->next_k, bytes, 2);
    for (int key = 0; key < n_all; key += ATTEND_TILE)
        attend_values(a, key, min_int(ATTEND_TILE, n_all - key), &prefetch);
}
