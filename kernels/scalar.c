// The kernels in plain C: what every faster one is held against.
//
// Weights are decoded exactly and multiplied by float32 activations: the reference of design and
// tests. Sums run in eight lanes that are added in a fixed order, which compilers turn into vector
// code without reordering anything.
#include "backends.h"

#include <math.h>
#include <string.h>

enum { LANES = 8, CHUNK = 1024 };

static float sum_lanes(const float *s) {
    return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

static float dot(const float *a, const float *b, int n) {
    float lanes[LANES] = {0};
    int i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) lanes[j] += a[i + j] * b[i + j];
    for (; i < n; i++) lanes[i % LANES] += a[i] * b[i];
    return sum_lanes(lanes);
}

static size_t encoded_bytes(int n_tokens, int cols) {
    return (size_t)n_tokens * (size_t)cols * sizeof(float);
}

static void encode(void *encoded, const float *x, int n_tokens, int cols, int token_begin,
                   int token_end) {
    (void)n_tokens;
    size_t first = (size_t)token_begin * (size_t)cols,
           n = (size_t)(token_end - token_begin) * (size_t)cols;
    memcpy((float *)encoded + first, x + first, n * sizeof(float));
}

static void rows(float *out, size_t out_stride, const Tensor *w, const void *encoded, int n_tokens,
                 int row_begin, int row_end) {
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
                    dot(weights, x + (size_t)t * (size_t)w->cols + k, n);
        }
    }
}

static void rmsnorm(float *out, const float *x, const float *weight, float eps, int n) {
    float scale = 1.0f / sqrtf(dot(x, x, n) / (float)n + eps);
    for (int i = 0; i < n; i++) out[i] = x[i] * scale * weight[i];
}

static void swiglu(float *gate, const float *up, int n) {
    for (int i = 0; i < n; i++) gate[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
}

static void add(float *x, const float *y, int n) {
    for (int i = 0; i < n; i++) x[i] += y[i];
}

static void attend(const AttentionPage *p) {
    float row[256], scores[KV_PAGE];
    int dim = p->head_dim;
    size_t row_bytes = quant_row_bytes(p->kv_type, (size_t)dim);
    for (int i = 0; i < p->n_q; i++) {
        float max = -INFINITY, sum = 0, *acc = p->acc + i * dim;
        for (int j = 0; j < p->n_keys[i]; j++) {
            quant_decode_row(p->kv_type, (const char *)p->k + (size_t)j * row_bytes, row,
                             (size_t)dim);
            scores[j] = dot(p->q + i * dim, row, dim);
            // NaN must survive: it is found in the logits
            if (!(scores[j] <= max)) max = scores[j];
        }
        memset(acc, 0, (size_t)dim * sizeof(float));
        for (int j = 0; j < p->n_keys[i]; j++) {
            float weight = expf(scores[j] - max);
            quant_decode_row(p->kv_type, (const char *)p->v + (size_t)j * row_bytes, row,
                             (size_t)dim);
            for (int d = 0; d < dim; d++) acc[d] += weight * row[d];
            sum += weight;
        }
        p->max[i] = max;
        p->sum[i] = sum;
    }
}

static void store(Type type, void *row, const float *x, int n) {
    if (type == TYPE_F32) {
        memcpy(row, x, (size_t)n * sizeof(float));
    } else if (type == TYPE_F16) {
        for (int i = 0; i < n; i++) ((uint16_t *)row)[i] = f32_to_f16(x[i]);
    } else if (!quant_encode_q8_0(x, row, (size_t)n)) {
        memset(row, 0xff, quant_row_bytes(type, (size_t)n)); // not finite: every scale becomes NaN
    }
}

static double peak(int rounds) {
    enum { VALUES = 64 };
    float acc[VALUES], x[VALUES];
    for (int j = 0; j < VALUES; j++) acc[j] = x[j] = 1.0f / (float)(j + rounds);
    for (int i = 0; i < rounds; i++)
        for (int j = 0; j < VALUES; j++) acc[j] = acc[j] * 0.5f + x[j];
    volatile float keep = sum_lanes(acc);
    (void)keep;
    return 2.0 * VALUES * rounds;
}

#define MAT                                                                                        \
    {                                                                                              \
        .min_tokens = 1, .row_step = 1, .token_step = 1, .encoded_bytes = encoded_bytes,           \
        .encode = encode, .rows = rows                                                             \
    }

const Kernels kernels_scalar = {
    .name = "scalar",
    .gemv = {[TYPE_F32] = MAT,     [TYPE_F16] = MAT,     [TYPE_BF16] = MAT,   [TYPE_Q4_0] = MAT,
             [TYPE_Q4_1] = MAT,    [TYPE_Q5_0] = MAT,    [TYPE_Q5_1] = MAT,   [TYPE_Q8_0] = MAT,
             [TYPE_Q2_K] = MAT,    [TYPE_Q3_K] = MAT,    [TYPE_Q4_K] = MAT,   [TYPE_Q5_K] = MAT,
             [TYPE_Q6_K] = MAT,    [TYPE_IQ2_XXS] = MAT, [TYPE_IQ2_XS] = MAT, [TYPE_IQ2_S] = MAT,
             [TYPE_IQ3_XXS] = MAT, [TYPE_IQ3_S] = MAT,   [TYPE_IQ1_S] = MAT,  [TYPE_IQ1_M] = MAT,
             [TYPE_TQ1_0] = MAT,   [TYPE_TQ2_0] = MAT,   [TYPE_IQ4_NL] = MAT, [TYPE_IQ4_XS] = MAT},
    .rmsnorm = rmsnorm,
    .swiglu = swiglu,
    .add = add,
    .attend = attend,
    .store = store,
    .peak_unit = "float32",
    .peak = peak,
};
