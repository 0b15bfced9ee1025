// ARMv8.2 NEON with dot products.
//
// Integer types are multiplied by int8 activations, a superblock of 256 columns at a time. Decode
// unpacks one row into registers for up to four tokens; GEMM interleaves four rows into a panel for
// all tokens. F32, F16 and BF16 are multiplied by float32 activations (matmul_float.h). Attention
// is float32 (attention_float.h).
//
// Order of sums. Let d be the integer dot product of a group and q the sum of its activations.
//
//   decode   Lane g mod 4 adds group g: s = fma(d, w_scale * x_scale, s) and, if the type has
//            minima, s = fma(-w_min, x_scale * q, s). At the end the four lanes are added.
//   GEMM     A row has one sum: s = fma(d * w_scale, x_scale, s), and the same term for minima.
//
// The results of decode and GEMM therefore differ in their last bits. Neither result depends on the
// other tokens or rows.
#define VECTOR_BITS 128
#include "neon_unpack.h"
#include "activations_int8.h"
#include "attention_float.h"

enum { PANEL_ROWS = 4, GEMV_TOKENS = 4, CHUNK_TOKENS = 128 };

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

// Multiplies one row by nt tokens, at most GEMV_TOKENS, from t0 on.
INLINE void gemv_row_tile(const Matmul *p, int row, int t0, int nt, Type type) {
    const Tensor *w = p->w;
    const Int8Activations *x = (const Int8Activations *)p->encoded + t0;
    float32x4_t acc[GEMV_TOKENS] = {splat(0)};
    for (int k = 0; k < w->cols; k += SUPERBLOCK, x += p->n_tokens) {
        NeonRow r;
        const char *ahead = (const char *)w->data + (size_t)row * w->row_bytes +
                            k / SUPERBLOCK * superblock_bytes(type) + PREFETCH_DISTANCE;
        for (int i = 0; i < superblock_bytes(type); i += 64) __builtin_prefetch(ahead + i);
        unpack_row_neon(type, w, row, k, &r);
        for (int t = 0; t < nt; t++) acc[t] = dot_superblock(acc[t], &r, x + t, type);
    }
    for (int t = 0; t < nt; t++)
        p->out[(size_t)(t0 + t) * p->out_stride + row] = reduce_add(acc[t]);
}

INLINE void gemv_rows(const Matmul *p, Type type) {
    for (int row = p->row_begin; row < p->row_end; row++)
        for (int t = 0; t < p->n_tokens; t += GEMV_TOKENS)
            gemv_row_tile(p, row, t, min_int(p->n_tokens - t, GEMV_TOKENS), type);
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
    float32x4_t sum[GEMM_TILE_TOKENS];

    for (int t = 0; t < nt; t++) sum[t] = vld1q_f32(sums + 4 * t);

    for (int g = 0; g < n_groups; g++) {
        float32x4_t scale = vld1q_f32(p->scale[g]), min = vld1q_f32(p->min[g]);
        int32x4_t dot[GEMM_TILE_TOKENS];
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

// GEMM: chunks of 64 rows and 128 tokens. Panels of 4 rows (1.5 to 4 KiB) and the activations of
// 256 columns (48 KiB) stay in L1 or near it. With few tokens a chunk has 8 rows, so that
// prefetched lines are used soon.

typedef struct {
    float sums[GEMM_CHUNK_ROWS / PANEL_ROWS][CHUNK_TOKENS][PANEL_ROWS]; // 32 KiB
    NeonPanel panel;
} NeonGemmMemory;

_Static_assert(sizeof(NeonGemmMemory) <= KERNEL_SCRATCH, "fits");

static void neon_gemm_begin(GemmStep *s, Type type) {
    (void)type;
    *s->prefetch =
        prefetch_next_rows(s->p->w, s->row, s->token ? 0 : s->n_rows, s->k, SUPERBLOCK, 0);
}

INLINE void neon_gemm_pack(GemmStep *s, int r, Type type) {
    NeonGemmMemory *m = s->memory;
    prefetch_lines(s->prefetch, superblock_bytes(type) / 16 + 1);
    pack_panel(&m->panel, s->p->w, s->row + r, s->p->row_end, s->k, type);
}

#define PANEL_TILE(nt, ...) panel_tile(sums + 4 * t, &m->panel, x + t, nt, __VA_ARGS__)

INLINE void neon_gemm_multiply(GemmStep *s, int r, int t0, int n, Type type) {
    NeonGemmMemory *m = s->memory;
    const Int8Activations *x = (const Int8Activations *)s->x + t0;
    const int n_groups = min_int(SUPERBLOCK, s->n_cols) / type_info(type)->group;
    float *sums = m->sums[r / PANEL_ROWS][t0];
    if (s->k == 0) memset(sums, 0, (size_t)n * sizeof m->sums[0][0]);
    FOR_TOKEN_TILES(n, PANEL_TILE, n_groups, type)
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
         (GemmPlan){.chunk_rows = p->n_tokens < 32 ? 8 : GEMM_CHUNK_ROWS,
                    .chunk_tokens = CHUNK_TOKENS,
                    .block_cols = SUPERBLOCK,
                    .panel_rows = PANEL_ROWS,
                    .token_bytes = sizeof(Int8Activations),
                    .begin = neon_gemm_begin,
                    .pack = neon_gemm_pack,
                    .multiply = neon_gemm_multiply,
                    .store = neon_gemm_store},
         type);
}

INTEGER_TYPES(DEFINE_ROWS, gemv, gemv_rows)
INTEGER_TYPES(DEFINE_ROWS, gemm, gemm_rows)
FLOAT_TYPES(DEFINE_ROWS, gemv, float_gemv_rows)
FLOAT_TYPES(DEFINE_ROWS, gemm, float_gemm_rows)

static void attend_scores(const AttentionPage *a, int key, int n, Prefetch *prefetch) {
    float_scores(a, key, n, prefetch);
}

// Number of tokens from which GEMM is faster than decode. They were measured on AVX-512 and AVX2;
// there are no measurements on ARM hardware.
enum { GEMM_TOKENS = 5, FLOAT_GEMM_TOKENS = 12 };

// clang-format off
const Kernels kernels_neon = {
    .name = "neon",
    .gemv = {FLOAT_TYPES(KERNEL, gemv, float, rows, 1, PANEL_ROWS, 1, false)
            TYPES_OF_16(KERNEL, gemv, int8, 16, 1, 1, 1, false)
            TYPES_OF_32(KERNEL, gemv, int8, 32, 1, 1, 1, false)},
    .gemm = {FLOAT_TYPES(KERNEL, gemm, float, blocks, FLOAT_GEMM_TOKENS, GEMM_CHUNK_ROWS, 1, false)
             TYPES_OF_16(KERNEL, gemm, int8, 16, GEMM_TOKENS, PANEL_ROWS, 1, false)
             TYPES_OF_32(KERNEL, gemm, int8, 32, GEMM_TOKENS, PANEL_ROWS, 1, false)},
    .swiglu = vector_swiglu,
    .attend = attend,
    .store = vector_store,
};
// clang-format on
