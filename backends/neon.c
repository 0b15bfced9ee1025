// ARMv8.2 NEON with dot products.
//
// Integer types are multiplied by int8 activations, a superblock of 256 columns at a time. Decode
// unpacks one row into registers for up to four tokens; GEMM interleaves four rows into a panel for
// all tokens. F32, F16 and BF16 are multiplied by float32 activations, with one kernel for any
// number of tokens. Attention is float32, with integer scores for a Q8_0 cache.
//
// Order of sums. Let d be the integer dot product of a group and q the sum of its activations.
//
//   decode   Lane g mod 4 takes group g: s = fma(d, w_scale * x_scale, s) and, for types with
//   minima,
//            s = fma(-w_min, x_scale * q, s). At the end the four lanes are added.
//   GEMM     A row has one sum: s = fma(d * w_scale, x_scale, s), and the same term for minima.
//
// So decode and GEMM have different bits. Neither result depends on the other tokens or rows.
#define VECTOR_BITS 128
#include "neon_unpack.h"
#include "activations_float.h"
#include "activations_int8.h"
#include "attention.h"
#include "matmul.h"

enum { PANEL_ROWS = 4, TILE_TOKENS = 4, CHUNK_ROWS = 64, CHUNK_TOKENS = 128 };

// Divides the tokens into tiles of four and then of one, and runs a statement for each tile. nt,
// the size, is a constant; t is the first token of the tile.
#define FOR_TILES_OF_4(n_tokens, ...)                                                              \
    for (int t = 0; t < (n_tokens); t += (n_tokens)-t >= TILE_TOKENS ? TILE_TOKENS : 1) {          \
        if ((n_tokens)-t >= TILE_TOKENS) {                                                         \
            enum { nt = TILE_TOKENS };                                                             \
            __VA_ARGS__;                                                                           \
        } else {                                                                                   \
            enum { nt = 1 };                                                                       \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
    }

// Decode of integer types.

// Multiplies a superblock of weights by one token. The dot products of four groups fill a vector.
// 64 weights take 4 products, 3 additions (6 with groups of 16), a conversion, a product of scales
// and an FMA (with minima, two FMAs).
INLINE float32x4_t dot_superblock(float32x4_t acc, const NeonRow *w, const Int8Activations *x,
                                  Type type) {
    const TypeInfo *info = type_info(type);
    int n = info->group / 16;
    UNROLL
    for (int g = 0; g < SUPERBLOCK / info->group; g += 4) {
        int32x4_t d[4];
        UNROLL
        for (int j = 0; j < 4; j++) {
            d[j] = vdupq_n_s32(0);
            for (int i = 0, at = n * (g + j); i < n; i++)
                d[j] = vdotq_s32(d[j], w->q[at + i], vld1q_s8(x->q + 16 * (at + i)));
        }
        float32x4_t sum = vcvtq_f32_s32(vpaddq_s32(vpaddq_s32(d[0], d[1]), vpaddq_s32(d[2], d[3])));
        acc = vfmaq_f32(acc, sum, w->scale[g / 4] * vld1q_f32(x->scale + g));
        if (info->has_min) acc = vfmsq_f32(acc, w->min[g / 4], vld1q_f32(x->sum + g));
    }
    return acc;
}

// Multiplies one row by nt tokens, from t0 on.
INLINE void gemv_row_tile(const Matmul *p, int row, int t0, int nt, Type type) {
    const Tensor *w = p->w;
    const Int8Activations *x = (const Int8Activations *)p->encoded + t0;
    float32x4_t acc[TILE_TOKENS];
    for (int t = 0; t < nt; t++) acc[t] = splat(0);
    for (int k = 0; k < w->cols; k += SUPERBLOCK, x += p->n_tokens) {
        NeonRow r;
        const char *ahead = (const char *)w->data + (size_t)row * w->row_bytes +
                            k / SUPERBLOCK * superblock_bytes(type) + PREFETCH_DISTANCE;
        for (int i = 0; i < superblock_bytes(type); i += 64) __builtin_prefetch(ahead + i);
        unpack_row_neon(type, w, row, k, &r);
        UNROLL
        for (int t = 0; t < nt; t++) acc[t] = dot_superblock(acc[t], &r, x + t, type);
    }
    for (int t = 0; t < nt; t++)
        p->out[(size_t)(t0 + t) * p->out_stride + row] = reduce_add(acc[t]);
}

INLINE void gemv_rows(const Matmul *p, Type type) {
    for (int row = p->row_begin; row < p->row_end; row++)
        FOR_TILES_OF_4(p->n_tokens, gemv_row_tile(p, row, t, nt, type))
}

// Panels of integer types: 256 columns of four rows.

typedef struct {
    int32_t q[SUPERBLOCK / 4][4]; // a register has 4 columns of 4 rows
    float scale[SUPERBLOCK_GROUPS][4], min[SUPERBLOCK_GROUPS][4]; // [group][row]
} NeonPanel;

// EACH(r), registers of the four rows, as the argument of vst4q, which interleaves them.
#define FOUR_ROWS(TYPE, EACH) ((TYPE){{EACH(0), EACH(1), EACH(2), EACH(3)}})

INLINE void pack_panel(NeonPanel *p, const Tensor *w, int row, int row_end, int k, Type type) {
    const TypeInfo *info = type_info(type);
    NeonRow b[PANEL_ROWS];
    for (int r = 0; r < PANEL_ROWS; r++)
        unpack_row_neon(type, w, min_int(row + r, row_end - 1), k, b + r);
#define BYTES(r) vreinterpretq_s32_s8(b[r].q[i])
    for (int i = 0; i < SUPERBLOCK / 16; i++) vst4q_s32(p->q[4 * i], FOUR_ROWS(int32x4x4_t, BYTES));
    for (int g = 0; g < SUPERBLOCK / info->group; g += 4) {
#define SCALE(r) b[r].scale[g / 4]
#define MIN(r)   b[r].min[g / 4]
        vst4q_f32(p->scale[g], FOUR_ROWS(float32x4x4_t, SCALE));
        if (info->has_min) vst4q_f32(p->min[g], FOUR_ROWS(float32x4x4_t, MIN));
    }
}

// Adds the products of a panel with nt tokens to sums (nt, 4). vdotq_laneq multiplies 4 columns of
// 4 rows by 4 columns of one token. A group of 32 columns, for 4 rows, takes 8 loads of weights
// and, per token, 8 products, 3 loads and 4 operations to scale them (5 with minima).
INLINE void panel_tile(float *sums, const NeonPanel *p, const Int8Activations *x, int nt,
                       int n_groups, Type type) {
    const int group = type_info(type)->group;
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
#define DOT_LANE(i)                                                                                \
    dot[t] = vdotq_laneq_s32(                                                                      \
        dot[t], vreinterpretq_s8_s32(vld1q_s32(p->q[(g * group + k) / 4 + i])), v, i);
                DOT_LANE(0) DOT_LANE(1) DOT_LANE(2) DOT_LANE(3)
            }
        for (int t = 0; t < nt; t++) {
            sum[t] = vfmaq_n_f32(sum[t], vcvtq_f32_s32(dot[t]) * scale, x[t].scale[g]);
            if (type_info(type)->has_min) sum[t] = vfmsq_n_f32(sum[t], min, x[t].sum[g]);
        }
    }
    for (int t = 0; t < nt; t++) vst1q_f32(sums + 4 * t, sum[t]);
}

INLINE void multiply_panel_neon(float *sums, const NeonPanel *p, const Int8Activations *x, int n,
                                int n_cols, Type type) {
    int n_groups = min_int(SUPERBLOCK, n_cols) / type_info(type)->group;
    FOR_TILES_OF_4(n, panel_tile(sums + 4 * t, p, x + t, nt, n_groups, type))
}

// Float types: float32 activations in blocks of 256 columns.

_Static_assert((int)FLOAT_BLOCK_COLS == SUPERBLOCK, "one loop nest for all types");

// Adds the products of x (nt, SUPERBLOCK) with 4 rows of nk values, a multiple of 8, to sums (nt,
// sums_stride). 8 columns of float32 take 2 nt + 8 loads and 8 nt FMAs into 4 nt sums of four
// lanes.
INLINE void float_rows_tile(float *sums, size_t sums_stride, Type type, const void *rows,
                            size_t row_bytes, const float *x, int nk, int nt) {
    float32x4_t acc[TILE_TOKENS][4];
    for (int t = 0; t < nt; t++)
        for (int r = 0; r < 4; r++) acc[t][r] = splat(0);
    for (int k = 0; k < nk; k += 8) {
        float32x4_t w[4][2];
        for (int r = 0; r < 4; r++)
            for (int h = 0; h < 2; h++)
                w[r][h] = load_as_floats(type, (const char *)rows + (size_t)r * row_bytes,
                                         k + 4 * h, WIDTH);
        for (int h = 0; h < 2; h++)
            for (int t = 0; t < nt; t++) {
                float32x4_t v = vld1q_f32(x + t * SUPERBLOCK + k + 4 * h);
                for (int r = 0; r < 4; r++) acc[t][r] = vfmaq_f32(acc[t][r], w[r][h], v);
            }
    }
    for (int t = 0; t < nt; t++) {
        float32x4_t *a = acc[t], sum = vpaddq_f32(vpaddq_f32(a[0], a[1]), vpaddq_f32(a[2], a[3]));
        vst1q_f32(sums + (size_t)t * sums_stride, vld1q_f32(sums + (size_t)t * sums_stride) + sum);
    }
}

// GEMM, and for float types decode as well: chunks of 64 rows and 128 tokens. Panels of 4 rows (1.5
// to 4 KiB) and the activations of 256 columns (48 KiB, float32 128 KiB) stay in L1 or near it.
// With few tokens a chunk has 8 rows, so that prefetched lines are used soon.

typedef struct {
    float sums[CHUNK_ROWS / PANEL_ROWS][CHUNK_TOKENS][PANEL_ROWS]; // 32 KiB
    union {
        NeonPanel panel;
        float rows[PANEL_ROWS][SUPERBLOCK];
    };
} NeonGemmMemory;

_Static_assert(sizeof(NeonGemmMemory) <= KERNEL_SCRATCH, "fits");

static void neon_gemm_begin(GemmStep *s, Type type) {
    (void)type;
    *s->prefetch =
        prefetch_next_rows(s->p->w, s->row, s->token ? 0 : s->n_rows, s->k, SUPERBLOCK, 0);
}

INLINE const char *float_rows_at(const GemmStep *s, int r, Type type) {
    return (const char *)s->p->w->data + (size_t)(s->row + r) * s->p->w->row_bytes +
           quant_row_bytes(type, (size_t)s->k);
}

// True if rows of a float type are multiplied without a copy, in the same order: with one token.
INLINE bool is_in_place(const GemmStep *s, int r) {
    return s->n == 1 && s->n_cols == SUPERBLOCK && s->row + r + PANEL_ROWS <= s->p->row_end;
}

INLINE void neon_gemm_pack(GemmStep *s, int r, Type type) {
    NeonGemmMemory *m = s->memory;
    prefetch_lines(s->prefetch, superblock_bytes(type) / 16 + 1);
    if (type_info(type)->group) {
        pack_panel(&m->panel, s->p->w, s->row + r, s->p->row_end, s->k, type);
        return;
    }
    if (is_in_place(s, r)) return;
    if (s->n_cols < SUPERBLOCK) memset(m->rows, 0, sizeof m->rows);
    for (int i = 0; i < PANEL_ROWS; i++)
        convert_row(type, float_rows_at(s, min_int(r + i, s->p->row_end - 1 - s->row), type),
                    m->rows[i], s->n_cols);
}

INLINE void neon_gemm_multiply(GemmStep *s, int r, int t0, int n, Type type) {
    NeonGemmMemory *m = s->memory;
    float *sums = m->sums[r / PANEL_ROWS][t0];
    if (s->k == 0) memset(sums, 0, (size_t)n * sizeof m->sums[0][0]);
    if (type_info(type)->group) {
        multiply_panel_neon(sums, &m->panel, (const Int8Activations *)s->x + t0, n, s->n_cols,
                            type);
        return;
    }
    const float *x = (const float *)s->x + t0 * SUPERBLOCK;
    if (is_in_place(s, r))
        float_rows_tile(sums, 4, type, float_rows_at(s, r, type), s->p->w->row_bytes, x, SUPERBLOCK,
                        1);
    else
        FOR_TILES_OF_4(n, float_rows_tile(sums + 4 * t, 4, TYPE_F32, m->rows, sizeof *m->rows,
                                          x + t * SUPERBLOCK, SUPERBLOCK, nt))
}

static void neon_gemm_store(const GemmStep *s, float *out, size_t out_stride) {
    const NeonGemmMemory *m = s->memory;
    for (int t = 0; t < s->n; t++)
        for (int r = 0; r < s->n_rows; r += PANEL_ROWS)
            memcpy(out + (size_t)t * out_stride + r, m->sums[r / PANEL_ROWS][t],
                   (size_t)min_int(PANEL_ROWS, s->n_rows - r) * sizeof(float));
}

INLINE void gemm_rows(const Matmul *p, Type type) {
    gemm(p,
         (GemmPlan){.chunk_rows = p->n_tokens < 32 ? 8 : CHUNK_ROWS,
                    .chunk_tokens = CHUNK_TOKENS,
                    .block_cols = SUPERBLOCK,
                    .panel_rows = PANEL_ROWS,
                    .token_bytes = type_info(type)->group ? sizeof(Int8Activations)
                                                          : SUPERBLOCK * sizeof(float),
                    .begin = neon_gemm_begin,
                    .pack = neon_gemm_pack,
                    .multiply = neon_gemm_multiply,
                    .store = neon_gemm_store},
         type);
}

INTEGER_TYPES(DEFINE_ROWS, gemv, gemv_rows)
INTEGER_TYPES(DEFINE_ROWS, gemm, gemm_rows)
FLOAT_TYPES(DEFINE_ROWS, gemv, gemm_rows)

// Attention. Keys and values are converted to float32 a tile at a time. Keys of Q8_0 stay integers,
// in panels. The queries are quantized like activations, and the rounding error is quantized as
// well; the products with both are added. The remaining error is at most 2^-15.9 of the largest of
// 32 values. A key of 128 columns and 4 queries take 64 products of 16 bytes and 440 instructions
// with softmax, instead of 668 in float32.

typedef struct {
    float scores[ATTEND_MAX_QUERIES][KV_PAGE];
    float rows[ATTEND_TILE][MAX_HEAD_DIM];   // keys, then values, as float32
    float q[ATTEND_MAX_QUERIES][SUPERBLOCK]; // queries, padded with zeros; or rounding errors
    Int8Activations q_int8[2 * ATTEND_MAX_QUERIES];
    float sums[2 * ATTEND_MAX_QUERIES][PANEL_ROWS];
} NeonAttendMemory;

_Static_assert(sizeof(NeonAttendMemory) <= KERNEL_SCRATCH, "fits");

static void prepare_queries(const AttentionPage *a, NeonAttendMemory *m) {
    int n_q = a->n_q, dim = a->head_dim;
    memset(m->scores, 0, (size_t)n_q * sizeof *m->scores);
    memset(m->q, 0, (size_t)n_q * sizeof *m->q);
    if (dim % 16) memset(m->rows, 0, sizeof m->rows);
    for (int i = 0; i < n_q; i++) memcpy(m->q[i], a->q + i * dim, (size_t)dim * sizeof(float));
    if (a->kv_type != TYPE_Q8_0) return;
    float *rest = m->q[0];
    int8_encode_32(m->q_int8, a->q, n_q, dim, 0, n_q);
    for (int i = 0; i < n_q * dim; i++) {
        const Int8Activations *x = &m->q_int8[i / dim];
        rest[i] = a->q[i] - x->scale[i % dim / 32] * x->q[i % dim];
    }
    int8_encode_32(m->q_int8 + n_q, rest, n_q, dim, 0, n_q);
}

// Cache lines prefetched for each row of keys or values.
static int row_lines(const AttentionPage *a) {
    return (int)quant_row_bytes(a->kv_type, (size_t)a->head_dim) / 64 + 1;
}

static void q8_scores(const AttentionPage *a, int key, int n, Prefetch *prefetch) {
    NeonAttendMemory *m = team_scratch();
    const Tensor keys = {.data = a->k,
                         .row_bytes = quant_row_bytes(TYPE_Q8_0, (size_t)a->head_dim),
                         .cols = a->head_dim};
    prefetch_lines(prefetch, ATTEND_TILE * row_lines(a));
    for (int i = 0; i < ATTEND_TILE; i += PANEL_ROWS) {
        NeonPanel panel;
        pack_panel(&panel, &keys, key + i, key + n, 0, TYPE_Q8_0);
        memset(m->sums, 0, (size_t)(2 * a->n_q) * sizeof *m->sums);
        multiply_panel_neon(m->sums[0], &panel, m->q_int8, 2 * a->n_q, keys.cols, TYPE_Q8_0);
        for (int t = 0; t < a->n_q; t++)
            vst1q_f32(m->scores[t] + key + i,
                      vld1q_f32(m->sums[t]) + vld1q_f32(m->sums[a->n_q + t]));
    }
}

static void attend_scores(const AttentionPage *a, int key, int n, Prefetch *prefetch) {
    NeonAttendMemory *m = team_scratch();
    if (key == 0) prepare_queries(a, m);
    if (a->kv_type == TYPE_Q8_0) {
        q8_scores(a, key, n, prefetch);
        return;
    }
    convert_kv_tile(m->rows, a, a->k, key, n, prefetch, row_lines(a));
    for (int i = 0; i < ATTEND_TILE; i += PANEL_ROWS)
        FOR_TILES_OF_4(a->n_q,
                       float_rows_tile(m->scores[t] + key + i, KV_PAGE, TYPE_F32, m->rows + i,
                                       sizeof *m->rows, m->q[t], round_up(a->head_dim, 8), nt))
}

// Computes 16 columns, of which n exist, of acc (nt, dim) as weights (nt, KV_PAGE) times nk rows of
// values; adds them to acc unless is_first. A row takes 4 loads, and one load and 4 FMAs per query.
INLINE void value_tile(float *acc, int dim, const float *weights, const float *rows, int nk, int n,
                       bool is_first, int nt) {
    float32x4_t sum[TILE_TOKENS][4];
    for (int t = 0; t < nt; t++)
        for (int i = 0; i < 4; i++)
            sum[t][i] = is_first ? splat(0) : load_n(acc + t * dim + 4 * i, n - 4 * i);
    for (int k = 0; k < nk; k++) {
        float32x4_t v[4];
        for (int i = 0; i < 4; i++) v[i] = vld1q_f32(rows + k * SUPERBLOCK + 4 * i);
        for (int t = 0; t < nt; t++)
            for (int i = 0; i < 4; i++)
                sum[t][i] = vfmaq_n_f32(sum[t][i], v[i], weights[t * KV_PAGE + k]);
    }
    for (int t = 0; t < nt; t++)
        for (int i = 0; i < 4; i++) store_n(acc + t * dim + 4 * i, n - 4 * i, sum[t][i]);
}

static void attend_values(const AttentionPage *a, int key, int n, Prefetch *prefetch) {
    NeonAttendMemory *m = team_scratch();
    convert_kv_tile(m->rows, a, a->v, key, n, prefetch, row_lines(a));
    for (int d = 0; d < a->head_dim; d += 16)
        FOR_TILES_OF_4(a->n_q,
                       value_tile(a->acc + t * a->head_dim + d, a->head_dim, m->scores[t] + key,
                                  m->rows[0] + d, n, a->head_dim - d, key == 0, nt))
}

// Number of tokens from which GEMM is faster than decode. It was measured on AVX-512; there are no
// measurements on ARM hardware.
enum { GEMM_TOKENS = 5 };

// clang-format off
const Kernels kernels_neon = {
    .name = "neon",
    .gemv = {FLOAT_TYPES(KERNEL, gemv, float, blocks, 1, PANEL_ROWS, 1, false)
            TYPES_OF_16(KERNEL, gemv, int8, 16, 1, 1, 1, false)
            TYPES_OF_32(KERNEL, gemv, int8, 32, 1, 1, 1, false)},
    .gemm = {TYPES_OF_16(KERNEL, gemm, int8, 16, GEMM_TOKENS, PANEL_ROWS, 1, false)
             TYPES_OF_32(KERNEL, gemm, int8, 32, GEMM_TOKENS, PANEL_ROWS, 1, false)},
    .swiglu = vector_swiglu,
    .attend = attend,
    .store = vector_store,
};
// clang-format on
