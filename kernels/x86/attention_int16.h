// Attention of many queries with 16-bit integers. vpdpwssd (AVX-512 VNNI, AVX-VNNI) multiplies two
// pairs of int16 and adds both products to an int32: twice the multiply-adds of an FMA of float32.
// AVX2 has vpmaddwd and vpaddd for it.
//
// Integers become float32 by one scale for each query, key, row of values, and row of weights:
//
//   q = q_scale * Q    k = k_scale * K      Q and K have the Euclidean norm ROW_NORM
//   v = v_scale * V                         |V| <= VALUE_MAX
//   e^(s - m) * v_scale = w_scale * W       W <= WEIGHT_MAX, sum of W <= WEIGHT_SUM
//
//   s = q_scale * k_scale * (Q . K)
//   acc = sum over keys of e^(s - m) * v = w_scale * (sum over keys of W * V)
//
// The sums fit in an int32: |Q . K| <= ROW_NORM^2 < 2^31 by the Cauchy-Schwarz inequality, and
// |sum of W * V| <= WEIGHT_SUM * VALUE_MAX < 2^31. Integer sums are exact, so their order has no
// effect. No scale depends on other queries, nor on keys that a query does not see: the bits of a
// query are those that it has alone.
//
// Errors, root mean square: rounding to an integer adds 0.29. A score: 1.3e-5 * |q| * |k|, half of
// what rounding keys to float16 adds at head_dim 64. A value: 7e-5 of the largest of its row. A
// weight: 9e-6 of the largest if few weights are large, 1.4e-4 if all 256 are equal.
//
// kernel.attend computes a query instead if it is not finite, if it sees a key or row of values
// that is not finite, or if |q| * |k| > LONGEST_SCORE for a key that it sees. So the error of a
// score is at most 3.3e-3, root mean square, and numbers that are not finite have the effect of
// float32.
//
// INT16_PANEL queries at a time are in the lanes of two registers: scores and weights are (key,
// query), and the softmax needs no sums across lanes. K and V are converted once for all queries.
#pragma once

#include "kernels/vector/attention_float.h"
#include "kernels/x86/x86_unpack.h"

enum {
    // kernel.attend is faster for up to this many queries (Zen 5, 2026-11-25).
    INT16_ABOVE = WIDTH < 16 ? 47 : 31,
    INT16_PANEL = 2 * WIDTH, // queries, or dimensions of V, of two registers
    INT16_ROWS = WIDTH / 2,  // rows of a tile of a product
    VALUE_MAX = 4095,
    WEIGHT_MAX = 32767,
    WEIGHT_SUM = (1 << 19) - KV_PAGE / 2 // rounding adds at most 1/2 for each key
};
static const float ROW_NORM = 32700;
static const float LONGEST_SCORE = 256; // TinyLlama: at most 128, mostly 16 to 64

// A pair is two int16 in a dword: dimensions d and d + head_dim / 2 of Q and K, or two neighboring
// keys of W and V.
typedef uint32_t PairPanel[INT16_PANEL];

typedef struct {
    uint32_t keys[KV_PAGE][MAX_HEAD_DIM / 2]; // pairs
    PairPanel values[MAX_HEAD_DIM / INT16_PANEL][KV_PAGE / 2];
    float key_scale[KV_PAGE], value_scale[KV_PAGE];
    // INT16_PANEL queries.
    PairPanel queries[MAX_HEAD_DIM / 2], weights[KV_PAGE / 2];
    float query_scale[INT16_PANEL], weight_scale[INT16_PANEL];
    float scores[KV_PAGE][INT16_PANEL]; // then softmax weights
    // INT16_PANEL rows of Q, K or V: as Q8_0, as float32, as pairs.
    BlockQ8_0 blocks[INT16_PANEL * MAX_HEAD_DIM / 32];
    float rows[INT16_PANEL][MAX_HEAD_DIM];
    uint32_t pairs[INT16_PANEL][MAX_HEAD_DIM / 2];
    // Largest scale of the first n keys; infinity if one of them or of their values is not finite.
    float max_key_scale[KV_PAGE + 1];
} __attribute__((aligned(64))) Int16Memory;

_Static_assert(sizeof(Int16Memory) <= KERNEL_SCRATCH, "fits");

// Conversion to integers.

// Converts INT16_PANEL rows of K or V, from row `key` on, to float32. If only n of them exist, the
// last one is repeated.
static void convert_panel(Int16Memory *m, Type type, const void *kv, int key, int n, int dim) {
    if (type == TYPE_Q4_0) {
        q4_to_q8(m->blocks, (const BlockQ4_0 *)kv + key * dim / 32,
                 min_int(n, INT16_PANEL) * dim / 32);
        convert_kv_rows(m->rows, INT16_PANEL, TYPE_Q8_0, m->blocks, 0, n, dim);
    } else {
        convert_kv_rows(m->rows, INT16_PANEL, type, kv, key, n, dim);
    }
}

// Converts a query or a key x (n), padded with zeros to a multiple of WIDTH, to n / 2 pairs.
// Returns its scale: infinity or NaN if x is not finite or its squares overflow.
INLINE float int16_row(uint32_t *pairs, const float *x, int n) {
    Floats squares = splat(0);
    for (int i = 0; i < n; i += WIDTH) {
        Floats v = *(const Floats *)(x + i);
        squares = fmadd(v, v, squares);
    }
    float norm = sqrtf(reduce_add(squares));
    Floats factor = splat(norm > 0x1p-60f ? ROW_NORM / norm : 0); // small squares are inexact

    for (int i = 0; i < n / 2; i += WIDTH)
        *(Integers *)(pairs + i) =
            round_pairs(*(const Floats *)(x + i) * factor, load_n(x + n / 2 + i, WIDTH) * factor);
    return norm / ROW_NORM;
}

// Converts INT16_PANEL rows of V, from row `key` of the page on.
INLINE void int16_values(Int16Memory *m, int key, int dim) {
    float inverse[INT16_PANEL];
    for (int i = 0; i < INT16_PANEL; i++) {
        Floats v[MAX_HEAD_DIM / WIDTH];
        for (int d = 0; d < dim; d += WIDTH) v[d / WIDTH] = *(const Floats *)(m->rows[i] + d);
        m->value_scale[key + i] =
            int8_scale(max_abs_bits(v, div_up(dim, WIDTH)), &inverse[i]) * (127.0f / VALUE_MAX);
        inverse[i] *= VALUE_MAX / 127.0f;
    }

    for (int i = 0; i < INT16_PANEL; i += 2)
        for (int d = 0; d < dim; d += WIDTH)
            *(Integers *)(m->values[d / INT16_PANEL][(key + i) / 2] + d % INT16_PANEL) =
                round_pairs(*(const Floats *)(m->rows[i] + d) * splat(inverse[i]),
                            *(const Floats *)(m->rows[i + 1] + d) * splat(inverse[i + 1]));
}

// Softmax.

// 2^x within 3e-6 for x <= 0, by a polynomial of degree 4 for the fraction. NaN stays NaN.
INLINE Floats exp2_floats(Floats x) {
    x = max_floats(splat(EXP_MIN * 1.44269504f), x);
    Floats n = round_floats(x), f = x - n;
    Floats p = fmadd(f, splat(9.5828559e-3f), splat(5.5906441e-2f));
    p = fmadd(f, p, splat(2.4024099e-1f));
    p = fmadd(f, p, splat(6.9312419e-1f));
    return ldexp_floats(fmadd(f, p, splat(1)), n);
}

// The softmax of WIDTH queries, in the lanes from `lane` on of the queries from `first` on:
// converts the scores of n_all keys, an even number, to weights. Without is_masked, each query sees
// all of them.
INLINE void int16_softmax(Int16Memory *m, const AttentionPage *a, int first, int lane, int n_all,
                          bool is_masked) {
    const int q = first + lane;
    const Integers n_keys = (Integers)load_n((const void *)(a->n_keys + q), a->n_q - q);
    const Floats lowest = splat(-INFINITY);
    Floats max = lowest, sum = splat(0), weight_sum = sum, weight_max = sum;

    for (int k = 0; k < n_all; k++) {
        Floats s = *(const Floats *)(m->scores[k] + lane);
        max = max_floats(is_masked ? select_above(n_keys, k, s, lowest) : s, max);
    }

    for (int k = 0; k < n_all; k++) {
        Floats e = exp2_floats((*(const Floats *)(m->scores[k] + lane) - max) * splat(1.44269504f));
        if (is_masked) e = select_above(n_keys, k, e, splat(0));
        Floats w = e * splat(m->value_scale[k]);
        sum = sum + e;
        weight_sum = weight_sum + w;
        weight_max = max_floats(w, weight_max);
        *(Floats *)(m->scores[k] + lane) = w;
    }

    // The inverse of w_scale: 2^100 if all weights are 0.
    Floats inverse = splat(WEIGHT_SUM) / weight_sum;
    inverse = min_floats(splat(WEIGHT_MAX) / weight_max, inverse);
    inverse = min_floats(splat(0x1p100f), inverse);
    *(Floats *)(m->weight_scale + lane) = splat(1) / inverse;
    store_n(a->max + q, a->n_q - q, max);
    store_n(a->sum + q, a->n_q - q, sum);

    for (int k = 0; k < n_all; k += 2)
        *(Integers *)(m->weights[k / 2] + lane) =
            round_pairs(*(const Floats *)(m->scores[k] + lane) * inverse,
                        *(const Floats *)(m->scores[k + 1] + lane) * inverse);
}

// Products.

// out[t][j] = x_scale[t] * panel_scale[j] * sum over i of x[t][i] * panel[i][j], each a pair
typedef struct {
    float *out; // (n_rows, out_stride); the first n_out outputs of a row exist
    size_t out_stride;
    int n_rows, n_out;
    const uint32_t *x; // pair i of row t: x[t * row_stride + i * pair_stride]
    size_t row_stride, pair_stride;
    const float *x_scale;     // (n_rows)
    const float *panel_scale; // (INT16_PANEL); NULL: 1
    const uint32_t *panel;    // (n_pairs, INT16_PANEL)
    int n_pairs;
} Int16Product;

// Computes a product, INT16_ROWS rows at a time. x must have a multiple of INT16_ROWS rows. Three
// things keep the inner loop fast; without one of them, attention takes 1.25 to 1.8 times as long:
//   - the number of rows is a constant: otherwise clang 14 keeps the sums in memory;
//   - the function is inlined, which makes the strides constants: otherwise gcc 12 computes an
//     address for each row;
//   - the sums are SignedWords: gcc 12 copies __m512i accumulators at each instruction.
INLINE void int16_product(const Int16Product *product) {
    const Int16Product p = *product;

    for (int t = 0; t < p.n_rows; t += INT16_ROWS) {
        const uint32_t *x = p.x + (size_t)t * p.row_stride;
        SignedWords sum[2][INT16_ROWS];

#pragma GCC unroll 8
        for (int i = 0; i < INT16_ROWS; i++) sum[0][i] = sum[1][i] = (SignedWords){0};

        for (int k = 0; k < p.n_pairs; k++, x += p.pair_stride) {
            Integers w0 = *(const Integers *)(p.panel + k * INT16_PANEL);
            Integers w1 = *(const Integers *)(p.panel + k * INT16_PANEL + WIDTH);
#pragma GCC unroll 8
            for (int i = 0; i < INT16_ROWS; i++) {
                Integers v = (Integers)(x[(size_t)i * p.row_stride] + (Words){0}); // in every lane
                sum[0][i] = add_pair_products(sum[0][i], w0, v);
                sum[1][i] = add_pair_products(sum[1][i], w1, v);
            }
        }

        for (int h = 0; h < 2; h++) {
            Floats scale = p.panel_scale ? *(const Floats *)(p.panel_scale + WIDTH * h) : splat(1);
#pragma GCC unroll 8
            for (int i = 0; i < INT16_ROWS; i++)
                if (t + i < p.n_rows)
                    store_n(p.out + (size_t)(t + i) * p.out_stride + WIDTH * h, p.n_out - WIDTH * h,
                            __builtin_convertvector(sum[h][i], Floats) * scale *
                                splat(p.x_scale[t + i]));
        }
    }
}

// Attention of INT16_PANEL queries, from query `first` on, clipped to n_q. needs_floats[i] is set
// for queries that kernel.attend must compute.
static void int16_attend_queries(Int16Memory *m, const AttentionPage *a, int first,
                                 bool *needs_floats) {
    const int dim = a->head_dim, n_q = min_int(INT16_PANEL, a->n_q - first);
    int n_all = 0;          // largest number of keys that a query sees, and even
    int n_common = KV_PAGE; // number of keys that all queries see
    for (int i = 0; i < n_q; i++) {
        n_all = a->n_keys[first + i] > n_all ? round_up(a->n_keys[first + i], 2) : n_all;
        n_common = min_int(n_common, a->n_keys[first + i]);
    }

    // scores = K Q^T
    convert_kv_rows(m->rows, INT16_PANEL, TYPE_F32, a->q, first, n_q, dim);
    for (int i = 0; i < INT16_PANEL; i++)
        m->query_scale[i] = int16_row(m->pairs[i], m->rows[i], dim);

    // Queries that need float32.
    int n_integer = 0;
    for (int i = 0; i < n_q; i++) {
        float scale = m->query_scale[i] * m->max_key_scale[a->n_keys[first + i]];
        needs_floats[first + i] = !(scale * ROW_NORM * ROW_NORM <= LONGEST_SCORE); // true for NaN
        n_integer += !needs_floats[first + i];
    }
    if (n_integer == 0) return;

    for (int lane = 0; lane < INT16_PANEL; lane += WIDTH)
        transpose_dwords(m->queries[0] + lane, sizeof m->queries[0], m->pairs[lane],
                         sizeof m->pairs[0], dim / 2, 1);
    int16_product(&(Int16Product){.out = m->scores[0],
                                  .out_stride = INT16_PANEL,
                                  .n_rows = n_all,
                                  .n_out = INT16_PANEL,
                                  .x = m->keys[0],
                                  .row_stride = MAX_HEAD_DIM / 2,
                                  .pair_stride = 1,
                                  .x_scale = m->key_scale,
                                  .panel_scale = m->query_scale,
                                  .panel = m->queries[0],
                                  .n_pairs = dim / 2});

    for (int lane = 0; lane < n_q; lane += WIDTH)
        if (n_common < n_all)
            int16_softmax(m, a, first, lane, n_all, true);
        else
            int16_softmax(m, a, first, lane, n_all, false);

    // acc = weights^T V
    for (int d = 0; d < dim; d += INT16_PANEL)
        int16_product(&(Int16Product){.out = a->acc + (first * dim + d),
                                      .out_stride = (size_t)dim,
                                      .n_rows = n_q,
                                      .n_out = dim - d,
                                      .x = m->weights[0],
                                      .row_stride = 1,
                                      .pair_stride = INT16_PANEL,
                                      .x_scale = m->weight_scale,
                                      .panel = m->values[d / INT16_PANEL][0],
                                      .n_pairs = n_all / 2});
}

// Fills max_key_scale. Scales of values that are not finite become 0, so that they have no effect
// on queries that do not see them.
static void find_max_key_scales(Int16Memory *m, int n) {
    float max = 0;
    for (int k = 0; k < n; k++) {
        float scale = m->key_scale[k] + 0 * m->value_scale[k]; // NaN if one of the two is NaN
        m->max_key_scale[k] = max;
        if (scale <= max) continue;
        max = isnan(scale) ? INFINITY : scale;
        if (isnan(scale)) m->value_scale[k] = 0;
    }
    m->max_key_scale[n] = max;
}

static void int16_attend_many(const AttentionPage *a) {
    Int16Memory *m = team_scratch();
    bool needs_floats[ATTEND_MANY_QUERIES];
    int n = 0; // largest number of keys that a query sees
    for (int i = 0; i < a->n_q; i++) n = a->n_keys[i] > n ? a->n_keys[i] : n;

    for (int key = 0; key < n; key += INT16_PANEL) {
        convert_panel(m, a->k_type, a->k, key, n - key, a->head_dim);
        for (int i = 0; i < INT16_PANEL; i++)
            m->key_scale[key + i] = int16_row(m->keys[key + i], m->rows[i], a->head_dim);
        convert_panel(m, a->v_type, a->v, key, n - key, a->head_dim);
        int16_values(m, key, a->head_dim);
    }
    find_max_key_scales(m, round_up(n, INT16_PANEL));
    for (int i = 0; i < a->n_q; i += INT16_PANEL) int16_attend_queries(m, a, i, needs_floats);

    // kernel.attend overwrites m.
    for (int i = 0; i < a->n_q; i++) {
        AttentionPage p = *a;
        for (p.n_q = 0; p.n_q < ATTEND_MAX_QUERIES && i + p.n_q < a->n_q; p.n_q++)
            if (!needs_floats[i + p.n_q]) break;
        if (p.n_q == 0) continue;
        p.q += i * p.head_dim;
        p.acc += i * p.head_dim;
        p.n_keys += i;
        p.max += i;
        p.sum += i;
        kernel.attend(&p);
        i += p.n_q - 1;
    }
}
