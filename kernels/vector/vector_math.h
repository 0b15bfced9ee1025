// Operations that are the same on every vector backend, written with the functions of vector.h:
// entries of the kernel table (vector_rmsnorm, vector_swiglu, vector_add, vector_store) and
// building blocks of the kernels (conversion to float32 or Q8_0, softmax, quantization to int8).
//
// Invariant: the results have the same bits for every WIDTH. A sum over elements that lie in the
// lanes of registers has SUM_LANES partial sums, however many registers hold them.
//
// Invariant: a value that is not finite is never lost. The scale of an int8 group that holds one is
// NaN, and a softmax with a NaN score has a NaN sum.
#pragma once

#include "kernels/vector/vector.h"
#include "kernels/backends.h"

#include <math.h>

// Sums across lanes. Element i is added to partial sum i % SUM_LANES, in ascending order. At the
// end, partial sum i is added to i + 8, then i + 4, i + 2 and i + 1:
//
//     WIDTH 16   sum[0]    s0 ... s15
//     WIDTH 8    sum[0]    s0 ... s7     sum[1]   s8 ... s15
//     WIDTH 4    sum[0]    s0 ... s3     sum[1]   s4 ... s7     sum[2]   s8 ...     sum[3]
enum { SUM_LANES = 16, SUM_VECTORS = SUM_LANES / WIDTH };

INLINE float add_lanes(const Floats *sum) {
    Floats s[SUM_VECTORS];
    for (int i = 0; i < SUM_VECTORS; i++) s[i] = sum[i];
    for (int n = SUM_VECTORS / 2; n > 0; n /= 2)
        for (int i = 0; i < n; i++) s[i] = s[i] + s[i + n];
    return reduce_add(s[0]);
}

// out = x / sqrt(mean(x^2) + eps) * weight. Four sums of SUM_LANES lanes, for 16 columns of 64
// each, hide the latency of FMA.
static inline void vector_rmsnorm(float *out, const float *x, const float *weight, float eps,
                                  int n) {
    enum { VECTORS = 4 * SUM_VECTORS };
    Floats sum[VECTORS], total[SUM_VECTORS];

#pragma GCC unroll 16
    for (int j = 0; j < VECTORS; j++) sum[j] = splat(0);

    for (int i = 0; i < n; i += 4 * SUM_LANES)
#pragma GCC unroll 16
        for (int j = 0; j < VECTORS; j++) {
            Floats v = load_n(x + i + WIDTH * j, n - i - WIDTH * j);
            sum[j] = fmadd(v, v, sum[j]);
        }

#pragma GCC unroll 4
    for (int j = 0; j < SUM_VECTORS; j++)
        total[j] =
            (sum[j] + sum[j + SUM_VECTORS]) + (sum[j + 2 * SUM_VECTORS] + sum[j + 3 * SUM_VECTORS]);
    float square = add_lanes(total);
    Floats scale = splat(1.0f / sqrtf(square / (float)n + eps));
    for (int i = 0; i < n; i += WIDTH)
        store_n(out + i, n - i, (load_n(x + i, n - i) * scale) * load_n(weight + i, n - i));
}

// Integers to floats without a conversion. The float BASE = 1.5 * 2^23 has a unit in the last place
// of 1, so if a sum of integers starts at its bits, BASE_BITS, and adds a d with |d| < 2^22, the
// result read as a float is BASE + d. Returns scale * d for such a sum. It is rounded once: scales
// of all types have at most 19 significant bits, which makes scale * BASE exact.
enum { BASE_BITS = 0x4b400000 };
INLINE Floats scale_based_dot(Integers sum, Floats scale) {
    return fmadd((Floats)sum, scale, scale * splat(-0x1.8p23f));
}

// e^x within 2 ulp; x is clamped to [EXP_MIN, EXP_MAX], NaN stays NaN. The method follows expf
// in Cephes (Moshier, 1992): x = n ln 2 + r with ln 2 in two parts, so that r is exact, and a
// polynomial for e^r.
INLINE Floats exp_floats(Floats x) {
    x = max_floats(splat(EXP_MIN), min_floats(splat(EXP_MAX), x));
    Floats n = round_floats(x * splat(1.44269504f));
    Floats r = fnmadd(n, splat(-2.12194440e-4f), fnmadd(n, splat(0.693359375f), x));
    Floats p = splat(1.9875691500e-4f);
    p = fmadd(p, r, splat(1.3981999507e-3f));
    p = fmadd(p, r, splat(8.3334519073e-3f));
    p = fmadd(p, r, splat(4.1665795894e-2f));
    p = fmadd(p, r, splat(1.6666665459e-1f));
    p = fmadd(p, r, splat(5.0000001201e-1f));
    return ldexp_floats(fmadd(p, r * r, r) + splat(1), n);
}

// gate = silu(gate) * up, silu(x) = x / (1 + e^-x)
static void vector_swiglu(float *gate, const float *up, int n) {
    for (int i = 0; i < n; i += WIDTH) {
        Floats g = load_n(gate + i, n - i);
        store_n(gate + i, n - i, g / (splat(1) + exp_floats(splat(0) - g)) * load_n(up + i, n - i));
    }
}

static inline void vector_add(float *x, const float *y, int n) {
    for (int i = 0; i < n; i += WIDTH)
        store_n(x + i, n - i, load_n(x + i, n - i) + load_n(y + i, n - i));
}

// Returns the scale of int8 values, max|x| / 127, and sets its inverse. max_bits is the result of
// max_abs_bits(). A maximum below 2^-100 counts as zero, so that the inverse is finite. If a value
// is not finite, the scale is NaN and the inverse 0.
INLINE float int8_scale(int max_bits, float *inverse) {
    float max = float_from_bits((uint32_t)max_bits);
    bool is_finite = max_bits < 0x7f800000, is_small = max < 0x1p-100f;
    *inverse = !is_finite || is_small ? 0 : 127 / max;
    if (!is_finite) return NAN;
    return is_small ? 0 : max / 127;
}

// Quantizes 16 * n_groups values (at most 32) to int8 and returns their scale. Values from x[n] on
// count as 0. sums[g] becomes the sum of the integers of group g of 16.
INLINE float quantize_int8(const float *x, int n, int n_groups, int8_t *q, int *sums) {
    Floats v[32 / WIDTH];
    const int n_vectors = n_groups * 16 / WIDTH;
    for (int i = 0; i < n_vectors; i++) v[i] = load_n(x + WIDTH * i, n - WIDTH * i);
    float inverse, scale = int8_scale(max_abs_bits(v, n_vectors), &inverse);
    for (int i = 0; i < n_vectors; i++) v[i] = v[i] * splat(inverse);
    for (int i = 0; isnan(scale) && i < n_vectors; i++) v[i] = splat(0); // not 0 * infinity
    for (int g = 0; g < n_groups; g++) sums[g] = round_int8(v + 16 / WIDTH * g, q + 16 * g);
    return scale;
}

// Stores n values as a row of the KV cache.
static void vector_store(Type type, void *row, const float *x, int n) {
    if (type == TYPE_Q4_0) kernels_scalar.store(type, row, x, n);
    if (type == TYPE_F32) memcpy(row, x, (size_t)n * sizeof(float));
    for (int i = 0; type == TYPE_F16 && i < n; i += WIDTH)
        store_f16((uint16_t *)row + i, n - i, load_n(x + i, n - i));
    for (int i = 0; type == TYPE_Q8_0 && i < n; i += 32) {
        BlockQ8_0 *b = (BlockQ8_0 *)row + i / 32;
        int sums[2];
        float scale = quantize_int8(x + i, 32, 2, b->qs, sums);
        store_f16(&b->d, 1, splat(scale));
    }
}

// Converts n values of a row of F32, F16, BF16 or Q8_0 to float32, and adds zeros up to a multiple
// of WIDTH.
INLINE void convert_row(Type type, const void *row, float *out, int n) {
    const BlockQ8_0 *b = row;
    for (int i = 0; type == TYPE_Q8_0 && i < n; i += 32, b++)
        for (int k = 0; k < 32; k += 2 * WIDTH) {
            Floats scale = splat(f16_at(&b->d));
            Floats first = load_as_floats(type, b->qs, k, WIDTH) * scale;
            Floats second = load_as_floats(type, b->qs, k + WIDTH, WIDTH) * scale;
            store_n(out + i + k, WIDTH, first);
            store_n(out + i + k + WIDTH, WIDTH, second);
        }

    if (type == TYPE_Q8_0) return;

    int i = 0;
#pragma GCC unroll 4
    for (; i + WIDTH <= n; i += WIDTH) store_n(out + i, WIDTH, load_as_floats(type, row, i, WIDTH));
    if (i < n) store_n(out + i, WIDTH, load_as_floats(type, row, i, n - i));
}

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

// Softmax of one query without the division. p holds n_all scores, of which the query sees the
// first n: p[k] becomes exp(score - max) for these and 0 for the others, up to a multiple of
// SUM_LANES. max and sum are returned,
// so that pages can be merged (kernels/attention.c).
INLINE void softmax_scores(float *p, int n, int n_all, float *max_out, float *sum_out) {
    const Floats lowest = splat(-INFINITY);
    Floats max = lowest, sum[SUM_VECTORS] = {splat(0)};

    for (int k = 0; k < n; k += WIDTH)
        max = max_floats(select_first(load_n(p + k, WIDTH), n - k, lowest), max);
    *max_out = n > 0 ? reduce_max(max) : -INFINITY;

    for (int k = 0; k < n_all; k += SUM_LANES)
        for (int j = 0; j < SUM_VECTORS; j++) {
            const int at = k + WIDTH * j;
            Floats e = exp_floats(load_n(p + at, WIDTH) - splat(*max_out));
            e = select_first(e, n - at, splat(0));
            store_n(p + at, WIDTH, e);
            sum[j] = sum[j] + e;
        }
    *sum_out = n > 0 ? add_lanes(sum) : 0;
}
