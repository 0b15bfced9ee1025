// Attention of a page (AttentionPage, kernels/kernels.h): scores = Q K^T, softmax, acc = weights V.
//
// attend_with() is the loop of all vector backends. It reads keys in tiles of KEY_TILE rows, and
// then values in tiles of VALUE_TILE rows, each once for all queries. A backend passes two products
// of a tile, whose n rows begin at row `key` of the page:
//
//   scores   scores[i][key + j] = q[i] . k[key + j]              for j < n and all queries i
//   values   acc[i] = sum over j < n of scores[i][key + j] * v[key + j]
//            (key == 0; later tiles add to acc)
//
// The thread's scratch memory begins with the scores, float[ATTEND_MAX_QUERIES][KV_PAGE], and the
// products may use it up to ATTEND_SCRATCH. The order in which a query's sums are added does not
// depend on the other queries.
//
// Keys and values of Q4_0 are converted to Q8_0: K before the scores, V after them. The conversion
// is exact, so only the products with Q8_0 have to be fast. For head_dim 128 and 4 queries the
// conversion takes 1.2 of 9.6 us (Zen 4, 2026-11-23).
#pragma once

#include "kernels/vector/prefetch.h"
#include "kernels/vector/vector_math.h"
#include "kernels/team.h"

enum {
    KEY_TILE = 2 * WIDTH,
    VALUE_TILE = 64, // AVX2: 1.1 times as fast as 16; AVX-512: 1.03 times as fast as 32
    PAGE_BLOCKS = KV_PAGE * MAX_HEAD_DIM / 32, // most blocks of Q8_0 or Q4_0 of K or V
    ATTEND_SCRATCH = KERNEL_SCRATCH - PAGE_BLOCKS * sizeof(BlockQ8_0)
};

typedef void (*AttendProduct)(const AttentionPage *a, int key, int n, Prefetch *prefetch);

// Prefetches V while scores are computed, and K of the next page while values are multiplied.
INLINE void attend_with(const AttentionPage *page, AttendProduct scores_of,
                        AttendProduct add_values) {
    AttentionPage a = *page;
    float(*scores)[KV_PAGE] = team_scratch();
    BlockQ8_0 *q8 = (BlockQ8_0 *)((char *)team_scratch() + ATTEND_SCRATCH);

    int n_all = 0; // largest number of keys that a query sees
    for (int i = 0; i < a.n_q; i++) n_all = a.n_keys[i] > n_all ? a.n_keys[i] : n_all;
    size_t n = (size_t)n_all, dim = (size_t)a.head_dim;

    // scores = Q K^T, while the values are prefetched.
    Prefetch prefetch = prefetch_range(page->v, n * quant_row_bytes(page->v_type, dim), 2);

    if (page->k_type == TYPE_Q4_0) {
        q4_to_q8(q8, page->k, n_all * a.head_dim / 32);
        a.k = q8;
        a.k_type = TYPE_Q8_0;
    }
    for (int key = 0; key < n_all; key += KEY_TILE)
        scores_of(&a, key, min_int(KEY_TILE, n_all - key), &prefetch);

    for (int i = 0; i < a.n_q; i++)
        softmax_scores(scores[i], a.n_keys[i], n_all, a.max + i, a.sum + i);

    // acc = weights V, while the next keys are prefetched.
    if (!n_all) memset(a.acc, 0, (size_t)a.n_q * dim * sizeof(float));
    prefetch = prefetch_range(page->next_k, n * quant_row_bytes(page->k_type, dim), 2);

    if (page->v_type == TYPE_Q4_0) {
        q4_to_q8(q8, page->v, n_all * a.head_dim / 32);
        a.v = q8;
        a.v_type = TYPE_Q8_0;
    }
    for (int key = 0; key < n_all; key += VALUE_TILE)
        add_values(&a, key, min_int(VALUE_TILE, n_all - key), &prefetch);
}
