// The kernels in plain C: the specification that every vector backend is tested against.
//
// Weights are decoded exactly and multiplied by float32 activations, so the only error is the
// rounding of float32 sums. The vector backends also round activations to 8 bits or bf16, and the
// tests allow them the resulting error (docs/numerics.md).
//
// Sums are computed in LANES lanes, which are added in a fixed order at the end. Compilers can turn
// this into vector code without reordering a sum, so the bits are the same on every machine.
#include "kernels/backends.h"

#include <math.h>

enum { LANES = 8 };

static float sum_lanes(const float *s) {
    return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

// Element i is added to lane i % LANES; then the lanes are added in pairs.
static float dot_lanes(const float *a, const float *b, int n) {
    float lanes[LANES] = {0};
    int i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) lanes[j] += a[i + j] * b[i + j];
    for (; i < n; i++) lanes[i % LANES] += a[i] * b[i];
    return sum_lanes(lanes);
}

// Matrix products: activations are not encoded, only copied.

static size_t copy_bytes(int n_tokens, int cols) {
    return (size_t)n_tokens * (size_t)cols * sizeof(float);
}

void float_encode_rows(void *encoded, const float *x, int n_tokens, int cols, int token_begin,
                       int token_end) {
    (void)n_tokens;
    size_t first = (size_t)token_begin * (size_t)cols;
    memcpy((float *)encoded + first, x + first, copy_bytes(token_end - token_begin, cols));
}

// Decodes a row CHUNK columns at a time, and adds the dot product of each chunk to the output.
static void scalar_rows(float *out, size_t out_stride, const Tensor *w, const void *encoded,
                        int n_tokens, int row_begin, int row_end) {
    enum { CHUNK = 1024 };
    float weights[CHUNK];
    const float *x = encoded;

    for (int r = row_begin; r < row_end; r++) {
        const char *row = (const char *)w->data + (size_t)r * w->row_bytes;
        for (int t = 0; t < n_tokens; t++) out[(size_t)t * out_stride + (size_t)r] = 0;
        for (int k = 0; k < w->cols; k += CHUNK) {
            int n = w->cols - k < CHUNK ? w->cols - k : CHUNK;
            quant_decode_row(w->type, row + quant_row_bytes(w->type, (size_t)k), weights,
                             (size_t)n);
            for (int t = 0; t < n_tokens; t++)
                out[(size_t)t * out_stride + (size_t)r] +=
                    dot_lanes(weights, x + (size_t)t * (size_t)w->cols + k, n);
        }
    }
}

// Elementwise operations, with the C library's sqrtf and expf.

static void scalar_rmsnorm(float *out, const float *x, const float *weight, float eps, int n) {
    float scale = 1.0f / sqrtf(dot_lanes(x, x, n) / (float)n + eps);
    for (int i = 0; i < n; i++) out[i] = x[i] * scale * weight[i];
}

static void scalar_swiglu(float *gate, const float *up, int n) {
    for (int i = 0; i < n; i++) gate[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
}

static void scalar_add(float *x, const float *y, int n) {
    for (int i = 0; i < n; i++) x[i] += y[i];
}

// Attention over one page, a query at a time: scores, their maximum, then the weighted sum of the
// values, with weights exp(score - max).
static void scalar_attend(const AttentionPage *p) {
    float row[MAX_HEAD_DIM], scores[KV_PAGE];
    int dim = p->head_dim;
    size_t k_bytes = quant_row_bytes(p->k_type, (size_t)dim);
    size_t v_bytes = quant_row_bytes(p->v_type, (size_t)dim);

    for (int i = 0; i < p->n_q; i++) {
        float max = -INFINITY, sum = 0;
        float *acc = p->acc + i * dim;

        // scores = K q
        for (int j = 0; j < p->n_keys[i]; j++) {
            quant_decode_row(p->k_type, (const char *)p->k + (size_t)j * k_bytes, row, (size_t)dim);
            scores[j] = dot_lanes(p->q + i * dim, row, dim);
            // This comparison makes a NaN the maximum. A NaN must reach the logits, because
            // sampling reports it there.
            if (!(scores[j] <= max)) max = scores[j];
        }

        // acc = V^T exp(scores - max); the caller divides it by the sum.
        memset(acc, 0, (size_t)dim * sizeof(float));
        for (int j = 0; j < p->n_keys[i]; j++) {
            float weight = expf(scores[j] - max);
            quant_decode_row(p->v_type, (const char *)p->v + (size_t)j * v_bytes, row, (size_t)dim);
            for (int d = 0; d < dim; d++) acc[d] += weight * row[d];
            sum += weight;
        }

        p->max[i] = max;
        p->sum[i] = sum;
    }
}

// A key or value that Q8_0 or Q4_0 cannot hold (NaN, infinity) becomes a row of NaN: all scales are
// 0xffff.
static void scalar_store(Type type, void *row, const float *x, int n) {
    if (type == TYPE_F32) {
        memcpy(row, x, (size_t)n * sizeof(float));
    } else if (type == TYPE_F16) {
        for (int i = 0; i < n; i++) ((uint16_t *)row)[i] = f32_to_f16(x[i]);
    } else if (!(type == TYPE_Q8_0 ? quant_encode_q8_0 : quant_encode_q4_0)(x, row, (size_t)n)) {
        memset(row, 0xff, quant_row_bytes(type, (size_t)n));
    }
}

// Multiply-adds on values that stay in registers. The result is stored to a volatile variable, so
// that the compiler cannot remove the loop.
static double scalar_peak(int rounds) {
    enum { VALUES = 64 };
    float acc[VALUES], x[VALUES];
    for (int j = 0; j < VALUES; j++) acc[j] = x[j] = 1.0f / (float)(j + rounds);
    for (int i = 0; i < rounds; i++)
        for (int j = 0; j < VALUES; j++) acc[j] = acc[j] * 0.5f + x[j];
    volatile float keep = sum_lanes(acc);
    (void)keep;
    return 2.0 * VALUES * rounds;
}

#define SCALAR_GEMV(type, ...)                                                                     \
    [TYPE_##type] = {.min_tokens = 1,                                                              \
                     .row_step = 1,                                                                \
                     .token_step = 1,                                                              \
                     .encoded_bytes = copy_bytes,                                                  \
                     .encode = float_encode_rows,                                                  \
                     .rows = scalar_rows},

const Kernels kernels_scalar = {
    .name = "scalar",
    .gemv = {FLOAT_TYPES(SCALAR_GEMV, ) INTEGER_TYPES(SCALAR_GEMV, )},
    .rmsnorm = scalar_rmsnorm,
    .swiglu = scalar_swiglu,
    .add = scalar_add,
    .attend = scalar_attend,
    .store = scalar_store,
    .peak_unit = "float32",
    .peak = scalar_peak,
};
