// ARMv8.2 NEON with dot products.
//
// Activations are encoded in units of 256 columns, for each unit the tokens one after another. For
// integer types they are int8: decode (mat) unpacks a row's weights into registers, prefill (gemm)
// makes panels of 4 rows for all tokens. F32, F16 and BF16 have float32 activations; weights are
// widened once for all tokens.
#include "neon_unpack.h"

#include <math.h>

typedef float32x4_t Floats;
enum { WIDTH = 4 };
static const float EXP_LOW = -87, EXP_HIGH = 88; // whose powers of two are normal numbers

INLINE Floats set_all(float x) { return vdupq_n_f32(x); }
INLINE Floats multiply_add(Floats a, Floats b, Floats c) { return vfmaq_f32(c, a, b); }
INLINE Floats multiply_less(Floats a, Floats b, Floats c) { return vfmsq_f32(c, a, b); }
INLINE Floats smaller(Floats a, Floats b) { return vminq_f32(a, b); }
INLINE Floats larger(Floats a, Floats b) { return vmaxq_f32(a, b); }
INLINE Floats nearest(Floats x) { return vrndnq_f32(x); }
INLINE float sum_lanes(Floats v) { return vaddvq_f32(v); }
INLINE float most_lanes(Floats v) { return vmaxvq_f32(v); }

INLINE Floats times_power(Floats x, Floats n) {
    int32x4_t power = vshlq_n_s32(vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127)), 23);
    return vmulq_f32(x, vreinterpretq_f32_s32(power));
}

INLINE Floats keep_first(Floats v, int n, Floats other) {
    const int32x4_t lane = {0, 1, 2, 3};
    return vbslq_f32(vcltq_s32(lane, vdupq_n_s32(n)), v, other);
}

INLINE Floats load_tail(const float *x, int n) {
    float buffer[4] = {0};
    if (n >= WIDTH) return vld1q_f32(x);
    if (n > 0) memcpy(buffer, x, (size_t)n * sizeof *x);
    return vld1q_f32(buffer);
}

INLINE void store_tail(float *x, int n, Floats v) {
    if (n >= WIDTH)
        vst1q_f32(x, v);
    else if (n > 0)
        memcpy(x, &v, (size_t)n * sizeof *x);
}

INLINE void store_f16(uint16_t *p, int n, Floats v) {
    float16x4_t h = vcvt_f16_f32(v);
    memcpy(p, &h, (size_t)min_int(WIDTH, n) * sizeof *p);
}

// 16 values for each of n_groups to int8 with one scale, which is not finite if one of them is not.
// Also the sum of each group.
INLINE float encode_groups(const float *x, int n, int n_groups, int8_t *q, int *sums) {
    (void)n;
    float32x4_t most = vdupq_n_f32(0);
    for (int i = 0; i < 16 * n_groups; i += 4) most = vmaxq_f32(most, vabsq_f32(vld1q_f32(x + i)));
    float max = vmaxvq_f32(most), inverse = max > 0x1p-100f ? 127 / max : 0;
    for (int g = 0; g < n_groups; g++) {
        int16x4_t v[4];
        for (int j = 0; j < 4; j++)
            v[j] = vqmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + 16 * g + 4 * j), inverse)));
        int8x16_t bytes =
            vcombine_s8(vqmovn_s16(vcombine_s16(v[0], v[1])), vqmovn_s16(vcombine_s16(v[2], v[3])));
        vst1q_s8(q + 16 * g, bytes);
        sums[g] = vaddlvq_s8(bytes);
    }
    return max / 127;
}

#include "vector_math.h"

enum { PANEL_ROWS = 4, TILE_TOKENS = 4, CHUNK_ROWS = 64, TOKEN_BLOCK = 128 };

// Does something for all tokens, t being the first of nt, a constant.
#define SWEEP(n_tokens, ...)                                                                       \
    for (int t = 0; t < (n_tokens); t += (n_tokens)-t >= TILE_TOKENS ? TILE_TOKENS : 1) {          \
        if ((n_tokens)-t >= TILE_TOKENS) {                                                         \
            enum { nt = TILE_TOKENS };                                                             \
            __VA_ARGS__;                                                                           \
        } else {                                                                                   \
            enum { nt = 1 };                                                                       \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
    }

// 256 activations. A short last unit ends in zeros.
typedef struct {
    int8_t q[SUPERBLOCK];
    float scale[GROUPS],
        sum[GROUPS]; // per group (of 16 or 32, as the weights); sum of q, times the scale
} Unit;

static size_t units_of(int n_tokens, int cols) {
    return (size_t)n_tokens * (size_t)n_superblocks(cols);
}
static size_t integer_bytes(int n_tokens, int cols) {
    return units_of(n_tokens, cols) * sizeof(Unit);
}
static size_t float_bytes(int n_tokens, int cols) {
    return units_of(n_tokens, cols) * SUPERBLOCK * sizeof(float);
}

#define ENCODE(group)                                                                              \
    static void encode_##group(void *encoded, const float *x, int n_tokens, int cols, int begin,   \
                               int end) {                                                          \
        for (int t = begin; t < end; t++)                                                          \
            for (int k = 0; k < cols; k += group) {                                                \
                Unit *u = (Unit *)encoded + units_of(n_tokens, k - k % SUPERBLOCK) + t;            \
                int at = k % SUPERBLOCK;                                                           \
                if (at == 0 && cols - k < SUPERBLOCK) memset(u, 0, sizeof *u);                     \
                int sums[2] = {0};                                                                 \
                const float *from = x + (size_t)t * (size_t)cols + k;                              \
                u->scale[at / group] = encode_groups(from, group, group / 16, u->q + at, sums);    \
                u->sum[at / group] = u->scale[at / group] * (float)(sums[0] + sums[1]);            \
            }                                                                                      \
    }
ENCODE(16)
ENCODE(32)

static void encode_float(void *encoded, const float *x, int n_tokens, int cols, int begin,
                         int end) {
    for (int t = begin; t < end; t++)
        for (int k = 0; k < cols; k += SUPERBLOCK) {
            float *u = (float *)encoded + (units_of(n_tokens, k) + (size_t)t) * SUPERBLOCK;
            size_t n = (size_t)min_int(SUPERBLOCK, cols - k);
            memcpy(u, x + (size_t)t * (size_t)cols + k, n * sizeof(float));
            memset(u + n, 0, (SUPERBLOCK - n) * sizeof(float));
        }
}

// 256 weights times 256 activations. The lanes of products are added in integers until four groups
// fill a vector: per 64 weights 4 products, 3 additions (6 in groups of 16), a conversion, a
// product of scales and an FMA (two each).
INLINE float32x4_t dot_unit(float32x4_t acc, const Block *w, const Unit *x, Type type) {
    const TypeInfo *f = type_info(type);
    int n = f->group / 16;
    UNROLL
    for (int g = 0; g < SUPERBLOCK / f->group; g += 4) {
        int32x4_t d[4];
        UNROLL
        for (int j = 0; j < 4; j++) {
            d[j] = vdupq_n_s32(0);
            for (int i = 0, at = n * (g + j); i < n; i++)
                d[j] = vdotq_s32(d[j], w->q[at + i], vld1q_s8(x->q + 16 * (at + i)));
        }
        float32x4_t sum = vcvtq_f32_s32(vpaddq_s32(vpaddq_s32(d[0], d[1]), vpaddq_s32(d[2], d[3])));
        acc = vfmaq_f32(acc, sum, vmulq_f32(w->scale[g / 4], vld1q_f32(x->scale + g)));
        if (f->has_min) acc = vfmsq_f32(acc, w->min[g / 4], vld1q_f32(x->sum + g));
    }
    return acc;
}

// One row times NT tokens; each block of weights is unpacked once for them.
INLINE void mat_tile(float *out, size_t out_stride, const Tensor *w, const Unit *x, int n_tokens,
                     int row, int nt, Type type) {
    float32x4_t acc[TILE_TOKENS];
    for (int t = 0; t < nt; t++) acc[t] = vdupq_n_f32(0);
    for (int k = 0; k < w->cols; k += SUPERBLOCK, x += n_tokens) {
        Block b;
        const char *ahead = (const char *)w->data + (size_t)row * w->row_bytes +
                            k / SUPERBLOCK * superblock_bytes(type) + PREFETCH_DISTANCE;
        for (int i = 0; i < superblock_bytes(type); i += 64) __builtin_prefetch(ahead + i);
        unpack_unit(type, w, row, k, &b);
        UNROLL
        for (int t = 0; t < nt; t++) acc[t] = dot_unit(acc[t], &b, x + t, type);
    }
    for (int t = 0; t < nt; t++) out[(size_t)t * out_stride] = vaddvq_f32(acc[t]);
}

INLINE void mat_rows(float *out, size_t out_stride, const Tensor *w, const Unit *x, int n_tokens,
                     int row_begin, int row_end, Type type) {
    for (int row = row_begin; row < row_end; row++)
        SWEEP(n_tokens, mat_tile(out + (size_t)t * out_stride + row, out_stride, w, x + t, n_tokens,
                                 row, nt, type))
}

// 256 columns of 4 rows: bytes as [k / 4][row][4], scales and minima as [group][row].
typedef struct {
    int32_t q[SUPERBLOCK / 4][4];
    float scale[GROUPS][4], min[GROUPS][4];
} Panel;

// sums (nt, 4) += x times 4 rows of weights. Per group of 32 columns, for 4 rows and a token: 8
// products by lane, 3 loads and 4 operations to scale them, 5 if there are minima; for all tokens 8
// loads of weights.
INLINE void integer_tile(float *sums, const Panel *p, const Unit *x, int nt, int n_groups,
                         int group, bool has_min) {
    float32x4_t sum[TILE_TOKENS];
    for (int t = 0; t < nt; t++) sum[t] = vld1q_f32(sums + 4 * t);
    for (int g = 0; g < n_groups; g++) {
        float32x4_t scale = vld1q_f32(p->scale[g]), min = vld1q_f32(p->min[g]);
        int32x4_t dot[TILE_TOKENS];
        for (int t = 0; t < nt; t++) dot[t] = vdupq_n_s32(0);
        UNROLL
        for (int k = 0; k < group; k += 16)
            for (int t = 0; t < nt; t++) {
                int8x16_t v = vld1q_s8(x[t].q + g * group + k);
#define LANE(i)                                                                                    \
    dot[t] = vdotq_laneq_s32(                                                                      \
        dot[t], vreinterpretq_s8_s32(vld1q_s32(p->q[(g * group + k) / 4 + i])), v, i);
                LANE(0) LANE(1) LANE(2) LANE(3)
            }
        for (int t = 0; t < nt; t++) {
            sum[t] = vfmaq_n_f32(sum[t], vmulq_f32(vcvtq_f32_s32(dot[t]), scale), x[t].scale[g]);
            if (has_min) sum[t] = vfmsq_n_f32(sum[t], min, x[t].sum[g]);
        }
    }
    for (int t = 0; t < nt; t++) vst1q_f32(sums + 4 * t, sum[t]);
}

// 8 values of F32, F16 or BF16.
INLINE void load_8(Type type, const void *p, float32x4_t *v) {
    if (type == TYPE_F32) {
        v[0] = vld1q_f32(p), v[1] = vld1q_f32((const float *)p + 4);
    } else if (type == TYPE_F16) {
        float16x8_t h = vld1q_f16(p);
        v[0] = vcvt_f32_f16(vget_low_f16(h)), v[1] = vcvt_high_f32_f16(h);
    } else {
        uint16x8_t h = vld1q_u16(p);
        v[0] = vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(h), 16));
        v[1] = vreinterpretq_f32_u32(vshll_high_n_u16(h, 16));
    }
}

// n values of a float type or of Q8_0 as float32, and zeros up to a multiple of 8.
INLINE void widen(Type type, const void *row, float *out, int n) {
    size_t width = (size_t)type_info(type)->bytes;
    float buffer[8] = {0};
    float32x4_t v[2];
    int i = 0;
#pragma GCC unroll 4
    for (; i + 8 <= n; i += 8) {
        const BlockQ8_0 *b = (const BlockQ8_0 *)row + i / 32;
        if (type == TYPE_Q8_0)
            byte_scales(vld1_s8(b->qs + i % 32), f16_at(&b->d), v);
        else
            load_8(type, (const char *)row + (size_t)i * width, v);
        vst1q_f32(out + i, v[0]), vst1q_f32(out + i + 4, v[1]);
    }
    if (type == TYPE_Q8_0 || i == n) return;
    load_8(type, memcpy(buffer, (const char *)row + (size_t)i * width, (size_t)(n - i) * width), v);
    vst1q_f32(out + i, v[0]), vst1q_f32(out + i + 4, v[1]);
}

// sums (nt, sums_stride) += x (nt, SUPERBLOCK) times 4 rows of nk values, a multiple of 8: per 8
// columns of float32 2 nt + 8 loads and 8 nt FMAs into 4 nt sums of four lanes.
INLINE void float_tile(float *sums, size_t sums_stride, Type type, const void *rows,
                       size_t row_bytes, const float *x, int nk, int nt) {
    float32x4_t acc[TILE_TOKENS][4];
    for (int t = 0; t < nt; t++)
        for (int r = 0; r < 4; r++) acc[t][r] = vdupq_n_f32(0);
    for (int k = 0; k < nk; k += 8) {
        float32x4_t w[4][2];
        for (int r = 0; r < 4; r++)
            load_8(type, (const char *)rows + (size_t)r * row_bytes + k * type_info(type)->bytes,
                   w[r]);
        for (int h = 0; h < 2; h++)
            for (int t = 0; t < nt; t++) {
                float32x4_t v = vld1q_f32(x + t * SUPERBLOCK + k + 4 * h);
                for (int r = 0; r < 4; r++) acc[t][r] = vfmaq_f32(acc[t][r], w[r][h], v);
            }
    }
    for (int t = 0; t < nt; t++) {
        float32x4_t *a = acc[t], sum = vpaddq_f32(vpaddq_f32(a[0], a[1]), vpaddq_f32(a[2], a[3]));
        vst1q_f32(sums + (size_t)t * sums_stride,
                  vaddq_f32(vld1q_f32(sums + (size_t)t * sums_stride), sum));
    }
}

// sums (n_tokens, 4) += x times 4 rows of float types, widened once for all tokens; for one token
// they are read as they lie, in the same order.
INLINE void float_rows(float *sums, const Tensor *w, const float *x, int n_tokens, int row,
                       int row_end, int k, Type type) {
    const char *p =
        (const char *)w->data + (size_t)row * w->row_bytes + quant_row_bytes(type, (size_t)k);
    int n = min_int(SUPERBLOCK, w->cols - k);
    if (n_tokens == 1 && n == SUPERBLOCK && row + PANEL_ROWS <= row_end) {
        float_tile(sums, 4, type, p, w->row_bytes, x, SUPERBLOCK, 1);
        return;
    }
    float rows[PANEL_ROWS][SUPERBLOCK];
    if (n < SUPERBLOCK) memset(rows, 0, sizeof rows);
    for (int r = 0; r < PANEL_ROWS; r++)
        widen(type, p + (size_t)min_int(r, row_end - 1 - row) * w->row_bytes, rows[r], n);
    SWEEP(n_tokens, float_tile(sums + 4 * t, 4, TYPE_F32, rows, sizeof *rows, x + t * SUPERBLOCK,
                               SUPERBLOCK, nt))
}

#define FOUR_ROWS(TYPE, EACH) ((TYPE){{EACH(0), EACH(1), EACH(2), EACH(3)}})

// The same for integer types, by a panel.
INLINE void integer_rows(float *sums, const Tensor *w, const Unit *x, int n_tokens, int row,
                         int row_end, int k, Type type) {
    const TypeInfo *f = type_info(type);
    int n_groups = min_int(SUPERBLOCK, w->cols - k) / f->group;
    Block b[PANEL_ROWS];
    Panel p;
    for (int r = 0; r < PANEL_ROWS; r++)
        unpack_unit(type, w, min_int(row + r, row_end - 1), k, b + r);
#define BYTES(r) vreinterpretq_s32_s8(b[r].q[i])
    for (int i = 0; i < SUPERBLOCK / 16; i++) vst4q_s32(p.q[4 * i], FOUR_ROWS(int32x4x4_t, BYTES));
    for (int g = 0; g < SUPERBLOCK / f->group; g += 4) {
#define SCALE(r) b[r].scale[g / 4]
#define MIN(r)   b[r].min[g / 4]
        vst4q_f32(p.scale[g], FOUR_ROWS(float32x4x4_t, SCALE));
        if (f->has_min) vst4q_f32(p.min[g], FOUR_ROWS(float32x4x4_t, MIN));
    }
    SWEEP(n_tokens, integer_tile(sums + 4 * t, &p, x + t, nt, n_groups, f->group, f->has_min))
}

// 64 rows times 128 tokens at a time: panels of 4 rows (1.5 to 4 KiB) and the activations of 256
// columns (48 KiB, float32 128 KiB) in L1 or near it. For few tokens 8 rows at a time, so that what
// is fetched ahead is soon wanted.
INLINE void gemm_rows(float *out, size_t out_stride, const Tensor *w, const void *encoded,
                      int n_tokens, int row_begin, int row_end, Type type) {
    float(*sums)[TOKEN_BLOCK][PANEL_ROWS] =
        team_scratch(); // CHUNK_ROWS / PANEL_ROWS of them: 32 KiB
    int chunk = n_tokens < 32 ? 8 : CHUNK_ROWS;
    for (int row = row_begin; row < row_end; row += chunk)
        for (int token = 0; token < n_tokens; token += TOKEN_BLOCK) {
            int end = min_int(row + chunk, row_end), n = min_int(n_tokens - token, TOKEN_BLOCK);
            for (int i = 0; i < chunk / PANEL_ROWS; i++)
                memset(sums[i], 0, (size_t)n * sizeof *sums[i]);
            for (int k = 0; k < w->cols; k += SUPERBLOCK) {
                size_t at = units_of(n_tokens, k) + (size_t)token;
                Prefetch ahead = prefetch_next_rows(w, row, token ? 0 : end - row, k, SUPERBLOCK);
                for (int r = row; r < end; r += PANEL_ROWS) {
                    float *to = sums[(r - row) / PANEL_ROWS][0];
                    prefetch_lines(&ahead, superblock_bytes(type) / 16 + 1);
                    if (type_info(type)->group)
                        integer_rows(to, w, (const Unit *)encoded + at, n, r, row_end, k, type);
                    else
                        float_rows(to, w, (const float *)encoded + at * SUPERBLOCK, n, r, row_end,
                                   k, type);
                }
            }
            for (int t = 0; t < n; t++)
                for (int r = row; r < end; r += PANEL_ROWS)
                    memcpy(out + (size_t)(token + t) * out_stride + r,
                           sums[(r - row) / PANEL_ROWS][t],
                           (size_t)min_int(PANEL_ROWS, end - r) * sizeof(float));
        }
}

#define INTEGER_TYPE(type, name)                                                                   \
    ROWS(mat_##name, mat_rows, TYPE_##type)                                                        \
    ROWS(gemm_##name, gemm_rows, TYPE_##type)
#define FLOAT_TYPE(type, name) ROWS(mat_##name, gemm_rows, TYPE_##type)
EACH_QUANTIZED_TYPE(INTEGER_TYPE)
FLOAT_TYPES(FLOAT_TYPE)

// acc (nt, SUPERBLOCK) += p (nt, KV_PAGE) times nk rows of values, 16 columns: per row 4 loads, one
// more and 4 FMAs for each query.
INLINE void value_tile(float *acc, const float *p, const float *rows, int nk, int nt) {
    float32x4_t sum[TILE_TOKENS][4];
    for (int t = 0; t < nt; t++)
        for (int i = 0; i < 4; i++) sum[t][i] = vld1q_f32(acc + t * SUPERBLOCK + 4 * i);
    for (int k = 0; k < nk; k++) {
        float32x4_t v[4];
        for (int i = 0; i < 4; i++) v[i] = vld1q_f32(rows + k * SUPERBLOCK + 4 * i);
        for (int t = 0; t < nt; t++)
            for (int i = 0; i < 4; i++)
                sum[t][i] = vfmaq_n_f32(sum[t][i], v[i], p[t * KV_PAGE + k]);
    }
    for (int t = 0; t < nt; t++)
        for (int i = 0; i < 4; i++) vst1q_f32(acc + t * SUPERBLOCK + 4 * i, sum[t][i]);
}

// Keys, then values, in tiles of 16 rows converted to float32 once for all queries. Keys of Q8_0
// stay integers, in panels that meet queries encoded twice, as activations are: what the first
// leaves is off by 2^-15.9 of the largest of 32 at most. Per key of 128 columns and 4 queries 64
// products of 16 bytes and 440 instructions in all with soften, 668 in float32. While the scores
// are computed V is fetched, and then the K of the next page.
INLINE void attend_over(const AttentionPage *a, Type type) {
    enum { KEYS = 16 };
    struct {
        float scores[ATTEND_MAX_QUERIES][KV_PAGE], rows[KEYS][SUPERBLOCK];
        float x[ATTEND_MAX_QUERIES]
               [SUPERBLOCK]; // queries, zeros behind them; then what becomes of them
        Unit units[2 * ATTEND_MAX_QUERIES];
        float sums[2 * ATTEND_MAX_QUERIES][PANEL_ROWS];
    } *m = team_scratch();
    _Static_assert(sizeof *m <= KERNEL_SCRATCH, "fits");
    float(*scores)[KV_PAGE] = m->scores, (*rows)[SUPERBLOCK] = m->rows, (*x)[SUPERBLOCK] = m->x;
    int n_all = most_keys(a), n_q = a->n_q, dim = a->head_dim;
    const Tensor keys = {
        .data = a->k, .row_bytes = quant_row_bytes(type, (size_t)dim), .cols = dim};
    size_t x_bytes = (size_t)dim * sizeof(float);
    memset(scores, 0, (size_t)n_q * sizeof *scores);
    memset(x, 0, (size_t)n_q * sizeof *x);
    if (dim % 16) memset(rows, 0, sizeof m->rows);
    for (int i = 0; i < n_q; i++) memcpy(x[i], a->q + i * dim, x_bytes);
    if (type == TYPE_Q8_0) {
        float *rest = x[0];
        encode_32(m->units, a->q, n_q, dim, 0, n_q);
        for (int i = 0; i < n_q * dim; i++) {
            const Unit *u = &m->units[i / dim];
            rest[i] = a->q[i] - u->scale[i % dim / 32] * u->q[i % dim];
        }
        encode_32(m->units + n_q, rest, n_q, dim, 0, n_q);
    }
    for (int is_v = 0; is_v < 2; is_v++) {
        Prefetch ahead = prefetch_range(is_v ? a->next_k : a->v, (size_t)n_all * keys.row_bytes, 2);
        for (int key = 0; key < n_all; key += KEYS) {
            for (int i = 0; i < KEYS; i++) {
                const char *p = (const char *)(is_v ? a->v : a->k) +
                                (size_t)min_int(key + i, n_all - 1) * keys.row_bytes;
                prefetch_lines(&ahead, (int)keys.row_bytes / 64 + 1);
                if (is_v || type != TYPE_Q8_0) widen(type, p, rows[i], dim);
            }
            for (int i = key; !is_v && i < key + KEYS; i += PANEL_ROWS) {
                if (type == TYPE_Q8_0) {
                    memset(m->sums, 0, (size_t)(2 * n_q) * sizeof *m->sums);
                    integer_rows(m->sums[0], &keys, m->units, 2 * n_q, i, n_all, 0, TYPE_Q8_0);
                    for (int t = 0; t < n_q; t++)
                        vst1q_f32(scores[t] + i,
                                  vaddq_f32(vld1q_f32(m->sums[t]), vld1q_f32(m->sums[n_q + t])));
                } else {
                    SWEEP(n_q, float_tile(scores[t] + i, KV_PAGE, TYPE_F32, rows + i - key,
                                          sizeof *rows, x[t], (dim + 7) / 8 * 8, nt))
                }
            }
            for (int d = 0; is_v && d < dim; d += 16)
                SWEEP(n_q, value_tile(x[t] + d, scores[t] + key, rows[0] + d,
                                      min_int(KEYS, n_all - key), nt))
        }
        for (int i = 0; !is_v && i < n_q; i++)
            soften(scores[i], a->n_keys[i], n_all, a->max + i, a->sum + i);
        if (!is_v) memset(x, 0, (size_t)n_q * sizeof *x);
    }
    for (int i = 0; i < n_q; i++) memcpy(a->acc + i * dim, x[i], x_bytes);
}

static void attend(const AttentionPage *a) {
    if (a->kv_type == TYPE_F16)
        attend_over(a, TYPE_F16);
    else if (a->kv_type == TYPE_Q8_0)
        attend_over(a, TYPE_Q8_0);
    else
        attend_over(a, TYPE_F32);
}

// Panels pay from so many tokens on: a guess from AVX-512, not measured on hardware.
enum { GEMM_TOKENS = 5 };

#define MAT(type, name, group)                                                                     \
    [TYPE_##type] = {1, 1, 1, integer_bytes, encode_##group, .rows = mat_##name},
#define GEMM(type, name, group)                                                                    \
    [TYPE_##                                                                                       \
        type] = {GEMM_TOKENS, PANEL_ROWS, 1, integer_bytes, encode_##group, .rows = gemm_##name},
#define FLOAT_MAT(type, name)                                                                      \
    [TYPE_##type] = {1, PANEL_ROWS, 1, float_bytes, encode_float, .rows = mat_##name},
#define MAT_16(type, name)  MAT(type, name, 16)
#define MAT_32(type, name)  MAT(type, name, 32)
#define GEMM_16(type, name) GEMM(type, name, 16)
#define GEMM_32(type, name) GEMM(type, name, 32)

// clang-format off
const Kernels kernels_neon = {
    .name = "neon",
    .gemv = {FLOAT_TYPES(FLOAT_MAT) TYPES_OF_16(MAT_16) TYPES_OF_32(MAT_32)},
    .gemm = {TYPES_OF_16(GEMM_16) TYPES_OF_32(GEMM_32)},
    .swiglu = vector_swiglu,
    .attend = attend,
    .store = vector_store,
};
// clang-format on
