// What the backends of x86 and NEON do alike, in terms of their vectors. A backend includes this
// once, after it has defined
//
//   Floats, WIDTH                    a vector of WIDTH float32 (+, - and * are the compiler's)
//   set_all(x)                       x in every lane
//   multiply_add(a, b, c)            a b + c, rounded once; multiply_less: c - a b
//   smaller(a, b), larger(a, b)      lane by lane; b if one of them is not a number
//   nearest(x)                       to integers, halves to even
//   times_power(x, n)                x 2^n, n integers from EXP_LOW to EXP_HIGH times log2(e)
//   sum_lanes(v), most_lanes(v)      over the lanes
//   keep_first(v, n, other)          the first n lanes of v, then those of other
//   load_tail(p, n), store_tail(...) the first n values, or all; zeros behind them
//   load_floats(type, p, k, n)       the same from value k on of a row of F32, F16 or BF16, or
//                                    WIDTH of the integers of Q8_0
//   store_f16(p, n, v)               the first n values as float16
//   encode_groups(x, n, n_groups, q, sums)   see avx2.c
#ifndef BACKENDS_VECTOR_MATH_H
#define BACKENDS_VECTOR_MATH_H

#include "prefetch.h"
#include "../kernels/backends.h"
#include "../kernels/team.h"

#include <math.h>

// out = x / sqrt(mean(x^2) + eps) * weight
INLINE void vector_rmsnorm(float *out, const float *x, const float *weight, float eps, int n) {
    Floats sum[4] = {set_all(0), set_all(0), set_all(0), set_all(0)};
    for (int i = 0; i < n; i += 4 * WIDTH)
        for (int j = 0; j < 4; j++) {
            Floats v = load_tail(x + i + WIDTH * j, n - i - WIDTH * j);
            sum[j] = multiply_add(v, v, sum[j]);
        }
    float square = sum_lanes((sum[0] + sum[1]) + (sum[2] + sum[3]));
    Floats scale = set_all(1.0f / sqrtf(square / (float)n + eps));
    for (int i = 0; i < n; i += WIDTH)
        store_tail(out + i, n - i,
                   (load_tail(x + i, n - i) * scale) * load_tail(weight + i, n - i));
}

// e^x to 2 ulp between EXP_LOW and EXP_HIGH, held at these ends; NaN stays. The polynomial and the
// two parts of ln 2 are those of Cephes' expf (Moshier 1992).
INLINE Floats exp_floats(Floats x) {
    x = larger(set_all(EXP_LOW), smaller(set_all(EXP_HIGH), x));
    Floats n = nearest(x * set_all(1.44269504f));
    Floats r =
        multiply_less(n, set_all(-2.12194440e-4f), multiply_less(n, set_all(0.693359375f), x));
    Floats p = set_all(1.9875691500e-4f);
    p = multiply_add(p, r, set_all(1.3981999507e-3f));
    p = multiply_add(p, r, set_all(8.3334519073e-3f));
    p = multiply_add(p, r, set_all(4.1665795894e-2f));
    p = multiply_add(p, r, set_all(1.6666665459e-1f));
    p = multiply_add(p, r, set_all(5.0000001201e-1f));
    return times_power(multiply_add(p, r * r, r) + set_all(1), n);
}

// gate = gate / (1 + e^-gate) * up
INLINE void vector_swiglu(float *gate, const float *up, int n) {
    for (int i = 0; i < n; i += WIDTH) {
        Floats g = load_tail(gate + i, n - i);
        store_tail(gate + i, n - i,
                   g / (set_all(1) + exp_floats(set_all(0) - g)) * load_tail(up + i, n - i));
    }
}

INLINE void vector_add(float *x, const float *y, int n) {
    for (int i = 0; i < n; i += WIDTH)
        store_tail(x + i, n - i, load_tail(x + i, n - i) + load_tail(y + i, n - i));
}

// n values to a row of the KV cache.
INLINE void vector_store(Type type, void *row, const float *x, int n) {
    if (type == TYPE_F32) memcpy(row, x, (size_t)n * sizeof(float));
    for (int i = 0; type == TYPE_F16 && i < n; i += WIDTH)
        store_f16((uint16_t *)row + i, n - i, load_tail(x + i, n - i));
    for (int i = 0; type == TYPE_Q8_0 && i < n; i += 32) {
        BlockQ8_0 *b = (BlockQ8_0 *)row + i / 32;
        int sums[2];
        float scale = encode_groups(x + i, 32, 2, b->qs, sums);
        store_f16(&b->d, 1, set_all(scale));
    }
}

// Scores to weights: p = exp(score - max) for the n keys that a query sees, 0 for the others up to
// n_all. A score that is not a number makes the sum none.
INLINE void soften(float *p, int n, int n_all, float *max_out, float *sum_out) {
    const Floats none = set_all(-INFINITY);
    Floats max = none, sum = set_all(0);
    for (int k = 0; k < n; k += WIDTH)
        max = larger(keep_first(load_tail(p + k, WIDTH), n - k, none), max);
    *max_out = n > 0 ? most_lanes(max) : -INFINITY;
    for (int k = 0; k < n_all; k += WIDTH) {
        Floats e = exp_floats(load_tail(p + k, WIDTH) - set_all(*max_out));
        e = keep_first(e, n - k, set_all(0));
        store_tail(p + k, WIDTH, e);
        sum = sum + e;
    }
    *sum_out = n > 0 ? sum_lanes(sum) : 0;
}

// The most keys that any query of the page sees.
static inline int most_keys(const AttentionPage *a) {
    int most = 0;
    for (int i = 0; i < a->n_q; i++) most = a->n_keys[i] > most ? a->n_keys[i] : most;
    return most;
}

#define ROWS(name, function, type)                                                                 \
    static void name(float *out, size_t out_stride, const Tensor *w, const void *encoded,          \
                     int n_tokens, int row_begin, int row_end) {                                   \
        function(out, out_stride, w, encoded, n_tokens, row_begin, row_end, type);                 \
    }

#endif
