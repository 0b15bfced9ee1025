// ARMv8.2 NEON with dot products.
//
// Integer types: activations become int8 with a float scale per 16, and the sum of every 16 for the minima. A block of
// weights is unpacked once (quant_unpack) and met by all tokens: per 16 weights one sdot, one conversion, one FMA.
// F32, F16 and BF16 keep float32 activations: 16 weights are widened once and met by all tokens with four FMAs each.
#include "isa.h"

#include <arm_neon.h>
#include <math.h>
#include <string.h>

enum { TOKENS = 16 }; // that pass over a row at once

// One token's activations: int8 (cols), float scales (cols / 16), float sums (cols / 16), each scale included.
static size_t token_bytes(int cols) { return (size_t)cols + (size_t)(2 * (cols / QUANT_GROUP)) * sizeof(float); }
static size_t integer_bytes(int n_tokens, int cols) { return (size_t)n_tokens * token_bytes(cols); }

static void encode_integer(void *encoded, const float *x, int n_tokens, int cols, int token_begin, int token_end) {
    (void)n_tokens;
    for (int t = token_begin; t < token_end; t++) {
        const float *from = x + (size_t)t * (size_t)cols;
        float *scales = (float *)((char *)encoded + (size_t)t * token_bytes(cols)), *sums = scales + cols / QUANT_GROUP;
        int8_t *q = (int8_t *)(sums + cols / QUANT_GROUP);
        for (int b = 0; b < cols; b += QUANT_GROUP) {
            float32x4_t most = vdupq_n_f32(0);
            for (int i = 0; i < QUANT_GROUP; i += 4) most = vmaxq_f32(most, vabsq_f32(vld1q_f32(from + b + i)));
            float scale = vmaxvq_f32(most) / 127.0f; // NaN stays NaN, and with it the result
            float inverse = scale > 0 ? 1.0f / scale : 0;
            int sum = 0;
            for (int i = 0; i < QUANT_GROUP; i++) {
                q[b + i] = (int8_t)vcvtns_s32_f32(from[b + i] * inverse);
                sum += q[b + i];
            }
            scales[b / QUANT_GROUP] = scale;
            sums[b / QUANT_GROUP] = scale * (float)sum;
        }
    }
}

// One block of weights (at column k) against n tokens; acc and mins hold four partial sums per token.
static void meet_block(const QuantBlock *w, int block, const char *tokens, int cols, int k, int n, float32x4_t *acc,
                       float *mins, bool has_min) {
    for (int t = 0; t < n; t++, tokens += token_bytes(cols)) {
        const float *scales = (const float *)tokens + k / QUANT_GROUP;
        const float *sums = (const float *)tokens + cols / QUANT_GROUP + k / QUANT_GROUP;
        const int8_t *x = (const int8_t *)tokens + (size_t)(2 * (cols / QUANT_GROUP)) * sizeof(float) + k;
        for (int g = 0; g < block / QUANT_GROUP; g++) {
            int32x4_t dot = vdotq_s32(vdupq_n_s32(0), vld1q_s8(w->q + g * QUANT_GROUP), vld1q_s8(x + g * QUANT_GROUP));
            acc[t] = vfmaq_n_f32(acc[t], vcvtq_f32_s32(dot), w->scale[g] * scales[g]);
        }
        if (has_min)
            for (int g = 0; g < block / QUANT_GROUP; g++) mins[t] += w->min[g] * sums[g];
    }
}

static bool type_has_min(Type type) {
    return type == TYPE_Q4_1 || type == TYPE_Q5_1 || type == TYPE_Q2_K || type == TYPE_Q4_K || type == TYPE_Q5_K;
}

static void rows_integer(float *out, size_t out_stride, const Tensor *w, const void *encoded, int n_tokens,
                         int row_begin, int row_end) {
    QuantUnpack unpack = quant_unpack(w->type);
    int block = type_info(w->type)->block, bytes = type_info(w->type)->bytes;
    bool has_min = type_has_min(w->type);
    for (int first = 0; first < n_tokens; first += TOKENS) {
        int n = n_tokens - first < TOKENS ? n_tokens - first : TOKENS;
        const char *tokens = (const char *)encoded + (size_t)first * token_bytes(w->cols);
        for (int r = row_begin; r < row_end; r++) {
            const char *row = (const char *)w->data + (size_t)r * w->row_bytes;
            float32x4_t acc[TOKENS];
            float mins[TOKENS] = {0};
            QuantBlock b;
            for (int t = 0; t < n; t++) acc[t] = vdupq_n_f32(0);
            for (int k = 0; k < w->cols; k += block, row += bytes) {
                __builtin_prefetch(row + 1024);
                unpack(row, &b);
                meet_block(&b, block, tokens, w->cols, k, n, acc, mins, has_min);
            }
            for (int t = 0; t < n; t++)
                out[(size_t)(first + t) * out_stride + (size_t)r] = vaddvq_f32(acc[t]) - mins[t];
        }
    }
}

static size_t float_bytes(int n_tokens, int cols) { return (size_t)n_tokens * (size_t)cols * sizeof(float); }

static void encode_float(void *encoded, const float *x, int n_tokens, int cols, int token_begin, int token_end) {
    (void)n_tokens;
    size_t first = (size_t)token_begin * (size_t)cols, n = (size_t)(token_end - token_begin) * (size_t)cols;
    memcpy((float *)encoded + first, x + first, n * sizeof(float));
}

// 16 weights of type F32, F16 or BF16
static float32x4x4_t load16(Type type, const char *p) {
    float32x4x4_t w;
    for (int i = 0; i < 4; i++) {
        if (type == TYPE_F32) {
            w.val[i] = vreinterpretq_f32_u8(vld1q_u8((const uint8_t *)p + 16 * i));
        } else {
            uint16x4_t h = vreinterpret_u16_u8(vld1_u8((const uint8_t *)p + 8 * i));
            w.val[i] =
                type == TYPE_F16 ? vcvt_f32_f16(vreinterpret_f16_u16(h)) : vreinterpretq_f32_u32(vshll_n_u16(h, 16));
        }
    }
    return w;
}

static float32x4_t fma16(float32x4_t acc, float32x4x4_t w, const float *x) {
    for (int i = 0; i < 4; i++) acc = vfmaq_f32(acc, w.val[i], vld1q_f32(x + 4 * i));
    return acc;
}

static void rows_float(float *out, size_t out_stride, const Tensor *w, const void *encoded, int n_tokens, int row_begin,
                       int row_end) {
    size_t cols = (size_t)w->cols, whole = cols / 16 * 16, width = (size_t)type_info(w->type)->bytes;
    for (int first = 0; first < n_tokens; first += TOKENS) {
        int n = n_tokens - first < TOKENS ? n_tokens - first : TOKENS;
        const float *x = (const float *)encoded + (size_t)first * cols;
        for (int r = row_begin; r < row_end; r++) {
            const char *row = (const char *)w->data + (size_t)r * w->row_bytes;
            float32x4_t acc[TOKENS];
            float rest[16];
            for (int t = 0; t < n; t++) acc[t] = vdupq_n_f32(0);
            for (size_t k = 0; k < whole; k += 16) {
                __builtin_prefetch(row + k * width + 1024);
                float32x4x4_t v = load16(w->type, row + k * width);
                for (int t = 0; t < n; t++) acc[t] = fma16(acc[t], v, x + (size_t)t * cols + k);
            }
            quant_decode(w->type, row + whole * width, rest, cols - whole);
            for (int t = 0; t < n; t++) {
                float sum = vaddvq_f32(acc[t]);
                for (size_t k = whole; k < cols; k++) sum += rest[k - whole] * x[(size_t)t * cols + k];
                out[(size_t)(first + t) * out_stride + (size_t)r] = sum;
            }
        }
    }
}

static float dot(const float *a, const float *b, int n) {
    float32x4_t acc[4] = {vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0)};
    int i = 0;
    for (; i + 16 <= n; i += 16)
        for (int j = 0; j < 4; j++) acc[j] = vfmaq_f32(acc[j], vld1q_f32(a + i + 4 * j), vld1q_f32(b + i + 4 * j));
    float sum = vaddvq_f32(vaddq_f32(vaddq_f32(acc[0], acc[1]), vaddq_f32(acc[2], acc[3])));
    for (; i < n; i++) sum += a[i] * b[i];
    return sum;
}

static void rmsnorm(float *out, const float *x, const float *weight, float eps, int n) {
    float scale = 1.0f / sqrtf(dot(x, x, n) / (float)n + eps);
    for (int i = 0; i < n; i++) out[i] = x[i] * scale * weight[i];
}

// Keys and values are widened once, KEYS at a time, for all queries; a query's sums do not depend on the others.
static void attend(const AttendPage *p) {
    enum { KEYS = 16 };
    float tile[KEYS * 256], scores[ATTEND_MAX_QUERIES][KV_PAGE];
    int dim = p->head_dim, n_keys = 0;
    size_t row_bytes = quant_row_bytes(p->kv_type, (size_t)dim);
    for (int i = 0; i < p->n_q; i++) n_keys = p->n_keys[i] > n_keys ? p->n_keys[i] : n_keys;
    for (int first = 0; first < n_keys; first += KEYS) {
        int n = n_keys - first < KEYS ? n_keys - first : KEYS;
        for (int j = 0; j < n; j++)
            quant_decode(p->kv_type, (const char *)p->k + (size_t)(first + j) * row_bytes, tile + j * dim, (size_t)dim);
        for (int i = 0; i < p->n_q; i++)
            for (int j = 0; j < n; j++) scores[i][first + j] = dot(p->q + i * dim, tile + j * dim, dim);
    }
    memset(p->acc, 0, (size_t)p->n_q * (size_t)dim * sizeof(float));
    for (int i = 0; i < p->n_q; i++) {
        float max = -INFINITY, sum = 0;
        for (int j = 0; j < p->n_keys[i]; j++)
            if (!(scores[i][j] <= max)) max = scores[i][j];
        for (int j = 0; j < p->n_keys[i]; j++) sum += scores[i][j] = expf(scores[i][j] - max);
        p->max[i] = max;
        p->sum[i] = sum;
    }
    for (int first = 0; first < n_keys; first += KEYS) {
        int n = n_keys - first < KEYS ? n_keys - first : KEYS;
        for (int j = 0; j < n; j++)
            quant_decode(p->kv_type, (const char *)p->v + (size_t)(first + j) * row_bytes, tile + j * dim, (size_t)dim);
        for (int i = 0; i < p->n_q; i++)
            for (int j = 0; j < n && first + j < p->n_keys[i]; j++)
                for (int d = 0; d < dim; d++) p->acc[i * dim + d] += scores[i][first + j] * tile[j * dim + d];
    }
}

#define INTEGER                                                                                                        \
    {                                                                                                                  \
        .min_tokens = 1, .row_step = 1, .token_step = 1, .encoded_bytes = integer_bytes, .encode = encode_integer,     \
        .rows = rows_integer                                                                                           \
    }
#define FLOAT                                                                                                          \
    {                                                                                                                  \
        .min_tokens = 1, .row_step = 1, .token_step = 1, .encoded_bytes = float_bytes, .encode = encode_float,         \
        .rows = rows_float                                                                                             \
    }

const Kernels kernels_neon = {
    .name = "neon",
    .mat = {[TYPE_F32] = FLOAT,
            [TYPE_F16] = FLOAT,
            [TYPE_BF16] = FLOAT,
            [TYPE_Q4_0] = INTEGER,
            [TYPE_Q4_1] = INTEGER,
            [TYPE_Q5_0] = INTEGER,
            [TYPE_Q5_1] = INTEGER,
            [TYPE_Q8_0] = INTEGER,
            [TYPE_Q2_K] = INTEGER,
            [TYPE_Q3_K] = INTEGER,
            [TYPE_Q4_K] = INTEGER,
            [TYPE_Q5_K] = INTEGER,
            [TYPE_Q6_K] = INTEGER,
            [TYPE_IQ2_XXS] = INTEGER,
            [TYPE_IQ4_NL] = INTEGER,
            [TYPE_IQ4_XS] = INTEGER},
    .rmsnorm = rmsnorm,
    .attend = attend,
};
