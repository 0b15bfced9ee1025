// Attention of a page (AttentionPage, kernels/kernels.h): scores = Q K^T, softmax, acc = weights V.
//
// attend() is the loop of all vector backends. It reads keys in tiles of KEY_TILE rows, and then
// values in tiles of VALUE_TILE rows, each once for all queries. A backend defines two products of
// a tile, whose n rows begin at row `key` of the page:
//
//   attend_scores   scores[i][key + j] = q[i] . k[key + j]              for j < n and all queries i
//   attend_values   acc[i] = sum over j < n of scores[i][key + j] * v[key + j]
//                   (key == 0; later tiles add to acc)
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

static void attend_scores(const AttentionPage *a, int key, int n, Prefetch *prefetch);
static void attend_values(const AttentionPage *a, int key, int n, Prefetch *prefetch);

// Converts n_rows rows of K or V, from row `key` on, to float32. If only n of them exist, the last
// one is repeated.
static inline void convert_kv_rows(float (*rows)[MAX_HEAD_DIM], int n_rows, Type type,
                                   const void *kv, int key, int n, int head_dim) {
    size_t row_bytes = quant_row_bytes(type, (size_t)head_dim);
    for (int i = 0; i < n_rows; i++) {
        const char *row = (const char *)kv + (size_t)(key + min_int(i, n - 1)) * row_bytes;
        if (type == TYPE_F16)
            convert_row(TYPE_F16, row, rows[i], head_dim);
        else if (type == TYPE_Q8_0)
            convert_row(TYPE_Q8_0, row, rows[i], head_dim);
        else
            convert_row(TYPE_F32, row, rows[i], head_dim);
    }
}

// Converts blocks of Q4_0 to Q8_0. Local arrays, which cannot alias other memory, allow compilers
// to vectorize the loops.
static inline void q4_to_q8(BlockQ8_0 *out, const BlockQ4_0 *in, int n_blocks) {
    for (int b = 0; b < n_blocks; b++) {
        uint8_t nibbles[16];
        int8_t low[16], high[16];
        memcpy(nibbles, in[b].qs, sizeof nibbles);
        for (int i = 0; i < 16; i++) low[i] = (int8_t)((nibbles[i] & 15) - 8);
        for (int i = 0; i < 16; i++) high[i] = (int8_t)((nibbles[i] >> 4) - 8);
        out[b].d = in[b].d;
        memcpy(out[b].qs, low, sizeof low);
        memcpy(out[b].qs + 16, high, sizeof high);
    }
}

// Prefetches V while scores are computed, and K of the next page while values are multiplied.
static void attend(const AttentionPage *page) {
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
        attend_scores(&a, key, min_int(KEY_TILE, n_all - key), &prefetch);

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
        attend_values(&a, key, min_int(VALUE_TILE, n_all - key), &prefetch);
}
