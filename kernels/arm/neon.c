// ARMv8.2 NEON with dot products. neon_i8mm.c compiles the GEMM of this file for the matrix unit of
// ARMv8.6.
//
// Integer types are multiplied by int8 activations, a superblock of 256 columns at a time. Decode
// unpacks a row into registers for up to four tokens; GEMM interleaves four rows into a panel for
// all tokens. F32, F16 and BF16 are multiplied by float32 activations (matmul_float.h). Attention
// is float32 (attention_float.h).
//
// Order of sums, in decode and GEMM. Let d be the integer dot product of a group and q the sum of
// its activations. A row has one sum, to which the groups are added in ascending order:
//
//   s = fma(d * w_scale, x_scale, s)
//   s = fma(-w_min, x_scale * q, s)       if the type has minima
#define VECTOR_BITS 128
#include "kernels/arm/neon_unpack.h"
#include "kernels/vector/activations_int8.h"
#include "kernels/vector/attention_float.h"

enum { PANEL_ROWS = 4, GEMV_TOKENS = 4, CHUNK_TOKENS = 128 };

// Decode of integer types.

// A superblock of PANEL_ROWS rows that have been multiplied by up to GEMV_TOKENS tokens, by row and
// group: d * w_scale, and the negated minima.
typedef struct {
    float products[GEMV_TOKENS][PANEL_ROWS][SUPERBLOCK_GROUPS];
    float minus_min[PANEL_ROWS][SUPERBLOCK_GROUPS];
} GroupProducts;

// Multiplies a superblock of one row by one token. The dot products of four groups fill a vector.
INLINE void dot_superblock(float *products, const NeonRow *w, const Int8Activations *x, Type type) {
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

        float32x4_t dot = vcvtq_f32_s32(vpaddq_s32(vpaddq_s32(d[0], d[1]), vpaddq_s32(d[2], d[3])));
        vst1q_f32(products + g, dot * w->scale[g / 4]);
    }
}

// Adds the groups of a superblock to the sums of one token, which are one lane for each row.
INLINE float32x4_t add_groups(float32x4_t sum, const GroupProducts *m, int t,
                              const Int8Activations *x, Type type) {
    const TypeInfo *info = type_info(type);
    const uint8_t *products[PANEL_ROWS], *minima[PANEL_ROWS];

    for (int r = 0; r < PANEL_ROWS; r++) {
        products[r] = (const uint8_t *)m->products[t][r];
        minima[r] = (const uint8_t *)m->minus_min[r];
    }

    UNROLL
    for (int g = 0; g < SUPERBLOCK / info->group; g += 4) {
        Integers product[4], minus_min[4]; // of a group: a lane for each row
        transpose_rows(product, products, (size_t)g * sizeof(float));
        if (info->has_min) transpose_rows(minus_min, minima, (size_t)g * sizeof(float));

        UNROLL
        for (int j = 0; j < 4; j++) {
            const int scale_at = (g + j) * info->group / INT8_SCALE_GROUP;
            sum = vfmaq_n_f32(sum, vreinterpretq_f32_s32(product[j]), x->scale[scale_at]);
            if (info->has_min)
                sum = vfmaq_n_f32(sum, vreinterpretq_f32_s32(minus_min[j]), x->sum[g + j]);
        }
    }

    return sum;
}

// Multiplies PANEL_ROWS rows by nt tokens, at most GEMV_TOKENS, from t0 on.
INLINE void gemv_tile(const Matmul *p, int row, int t0, int nt, Type type) {
    const Tensor *w = p->w;
    const Int8Activations *x = (const Int8Activations *)p->encoded + t0;
    const int n_rows = min_int(PANEL_ROWS, p->row_end - row);
    float32x4_t sum[GEMV_TOKENS] = {splat(0)};

    for (int k = 0; k < w->cols; k += SUPERBLOCK, x += p->n_tokens) {
        GroupProducts m;

        for (int r = 0; r < PANEL_ROWS; r++) {
            NeonRow b;
            const int at = row + min_int(r, n_rows - 1);
            const char *ahead = (const char *)w->data + (size_t)at * w->row_bytes +
                                k / SUPERBLOCK * superblock_bytes(type) + PREFETCH_DISTANCE;
            for (int i = 0; i < superblock_bytes(type); i += 64) __builtin_prefetch(ahead + i);

            unpack_row_neon(type, w, at, k, &b);
            for (int t = 0; t < nt; t++) dot_superblock(m.products[t][r], &b, x + t, type);
            if (type_info(type)->has_min)
                for (int g = 0; g < SUPERBLOCK / type_info(type)->group; g += 4)
                    vst1q_f32(m.minus_min[r] + g, b.minus_min[g / 4]);
        }

        for (int t = 0; t < nt; t++) sum[t] = add_groups(sum[t], &m, t, x + t, type);
    }

    for (int t = 0; t < nt; t++)
        store_n(p->out + (size_t)(t0 + t) * p->out_stride + row, n_rows, sum[t]);
}

INLINE void gemv_rows(const Matmul *p, Type type) {
    for (int row = p->row_begin; row < p->row_end; row += PANEL_ROWS)
        for (int t = 0; t < p->n_tokens; t += GEMV_TOKENS)
            gemv_tile(p, row, t, min_int(p->n_tokens - t, GEMV_TOKENS), type);
}

// Panels of integer types: 256 columns of four rows. They are multiplied by units of tokens. A unit
// has UNIT_SUMS registers of sums. Layouts, with token t and row r:
//
//            unit          register of weights     lanes of the sums
//   NEON     1 token       4 rows x 4 columns      {r0 r1 r2 r3}
//   i8mm     2 tokens      2 rows x 8 columns      {t0 r0, t0 r1, t1 r0, t1 r1}, then r2 and r3
//
// The functions and types that depend on the layout are here for NEON and in neon_i8mm.c for i8mm.
#ifndef IS_I8MM
#define IS_I8MM       false
#define GEMM_ENCODING int8
enum { UNIT_TOKENS = 1, UNIT_SUMS = 1 };
typedef Int8Activations GemmUnit;
typedef float UnitScale;

// Interleaves 16 columns of four rows: [k / 4][row][4].
INLINE void interleave_columns(int8_t *out, int8x16_t r0, int8x16_t r1, int8x16_t r2,
                               int8x16_t r3) {
    const int32x4x4_t rows = {{vreinterpretq_s32_s8(r0), vreinterpretq_s32_s8(r1),
                               vreinterpretq_s32_s8(r2), vreinterpretq_s32_s8(r3)}};
    vst4q_s32((int32_t *)(void *)out, rows);
}

// Adds the products of columns [k, k + 16) to the dot products of nt units. vdotq_laneq multiplies
// 4 columns of 4 rows by 4 columns of one token.
INLINE void add_products(int32x4_t (*dot)[UNIT_SUMS], const int8_t *w, const GemmUnit *x, int k,
                         int nt) {
    for (int t = 0; t < nt; t++) {
        int8x16_t v = vld1q_s8(x[t].q + k);
        dot[t][0] = vdotq_laneq_s32(dot[t][0], vld1q_s8(w), v, 0);
        dot[t][0] = vdotq_laneq_s32(dot[t][0], vld1q_s8(w + 16), v, 1);
        dot[t][0] = vdotq_laneq_s32(dot[t][0], vld1q_s8(w + 32), v, 2);
        dot[t][0] = vdotq_laneq_s32(dot[t][0], vld1q_s8(w + 48), v, 3);
    }
}

// sum + v * scale, rounded once.
INLINE float32x4_t add_scaled(float32x4_t sum, float32x4_t v, const UnitScale *scale) {
    return vfmaq_n_f32(sum, v, *scale);
}
#endif
enum { LANE_ROWS = PANEL_ROWS / UNIT_SUMS }; // rows of a register of sums

typedef struct {
    int8_t q[SUPERBLOCK / 16][16 * PANEL_ROWS];
    float scale[UNIT_SUMS][SUPERBLOCK_GROUPS][4]; // by lane, as minus_min
    float minus_min[UNIT_SUMS][SUPERBLOCK_GROUPS][4];
    float32x4_t base[UNIT_SUMS][SUPERBLOCK_GROUPS]; // -BASE * scale, see scale_based_dot()
} NeonPanel;

// Loads a register that the next instruction overwrites. Without volatile, the compiler loads it
// once and copies it, which takes a slot of the units that multiply.
#define LOAD_OPERAND(v) (*(const volatile __typeof__(v) *)&(v))

// EACH(i), registers of the row of each lane, as the argument of vst4q, which interleaves them.
#define FOUR_LANES(EACH) ((float32x4x4_t){{EACH(0), EACH(1), EACH(2), EACH(3)}})

INLINE void pack_panel(NeonPanel *p, const Tensor *w, int row, int row_end, int k, Type type) {
    const TypeInfo *info = type_info(type);
    NeonRow b[PANEL_ROWS];
    for (int r = 0; r < PANEL_ROWS; r++)
        unpack_row_neon(type, w, min_int(row + r, row_end - 1), k, b + r);

    for (int i = 0; i < SUPERBLOCK / 16; i++)
        interleave_columns(p->q[i], b[0].q[i], b[1].q[i], b[2].q[i], b[3].q[i]);

    for (int h = 0; h < UNIT_SUMS; h++)
        for (int g = 0; g < SUPERBLOCK / info->group; g += 4) {
            const NeonRow *rows = b + h * LANE_ROWS;
#define SCALE(i)     rows[i % LANE_ROWS].scale[g / 4]
#define MINUS_MIN(i) rows[i % LANE_ROWS].minus_min[g / 4]
            vst4q_f32(p->scale[h][g], FOUR_LANES(SCALE));
            if (info->has_min) vst4q_f32(p->minus_min[h][g], FOUR_LANES(MINUS_MIN));
            for (int i = g; i < g + 4; i++)
                p->base[h][i] = scale_based_dot(vdupq_n_s32(0), vld1q_f32(p->scale[h][i]));
        }
}

// Adds the products of a panel with nt units to sums (nt, UNIT_SUMS, 4). The dot products begin at
// BASE_BITS, so that they need no conversion to float. 32 columns of 4 rows take, per unit, 8
// products and 2 operations to scale them (3 with minima); i8mm, for two tokens, 8 and 4 (6).
INLINE void panel_tile(float (*sums)[UNIT_SUMS][4], const NeonPanel *p, const GemmUnit *x, int nt,
                       int n_groups, Type type) {
    static const int32x4_t start = {BASE_BITS, BASE_BITS, BASE_BITS, BASE_BITS};
    const TypeInfo *info = type_info(type);
    float32x4_t sum[GEMM_TILE_TOKENS][UNIT_SUMS];

    for (int t = 0; t < nt; t++)
        for (int h = 0; h < UNIT_SUMS; h++) sum[t][h] = vld1q_f32(sums[t][h]);

    for (int g = 0; g < n_groups; g++) {
        int32x4_t dot[GEMM_TILE_TOKENS][UNIT_SUMS];
        float32x4_t scale[UNIT_SUMS], minus_min[UNIT_SUMS];

        for (int t = 0; t < nt; t++)
            for (int h = 0; h < UNIT_SUMS; h++) dot[t][h] = LOAD_OPERAND(start);

        UNROLL
        for (int i = 0; i < info->group / 16; i++) {
            int k = g * info->group + 16 * i;
            add_products(dot, p->q[k / 16], x, k, nt);
        }

        for (int h = 0; h < UNIT_SUMS; h++) {
            scale[h] = vld1q_f32(p->scale[h][g]);
            minus_min[h] = vld1q_f32(p->minus_min[h][g]);
        }

        // fma(dot + BASE, scale, -BASE * scale) = dot * scale, rounded once.
        for (int t = 0; t < nt; t++)
            for (int h = 0; h < UNIT_SUMS; h++) {
                float32x4_t d = vfmaq_f32(LOAD_OPERAND(p->base[h][g]),
                                          vreinterpretq_f32_s32(dot[t][h]), scale[h]);
                sum[t][h] =
                    add_scaled(sum[t][h], d, x[t].scale + g * info->group / INT8_SCALE_GROUP);
                if (info->has_min) sum[t][h] = add_scaled(sum[t][h], minus_min[h], x[t].sum + g);
            }
    }

    for (int t = 0; t < nt; t++)
        for (int h = 0; h < UNIT_SUMS; h++) vst1q_f32(sums[t][h], sum[t][h]);
}

// GEMM: chunks of 64 rows and 128 tokens. Panels of 4 rows (1.8 KiB, i8mm 2.5 KiB) and the
// activations of 256 columns (48 KiB) stay in L1 or near it. With few tokens a chunk has 8 rows, so
// that prefetched lines are used soon.

typedef struct {
    float sums[GEMM_CHUNK_ROWS / PANEL_ROWS][CHUNK_TOKENS / UNIT_TOKENS][UNIT_SUMS][4]; // 32 KiB
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

#define PANEL_TILE(nt, ...) panel_tile(sums + t, &m->panel, x + t, nt, __VA_ARGS__)

INLINE void neon_gemm_multiply(GemmStep *s, int r, int t0, int n, Type type) {
    NeonGemmMemory *m = s->memory;
    const GemmUnit *x = (const GemmUnit *)s->p->encoded + (s->token + t0) / UNIT_TOKENS +
                        (size_t)(s->k / SUPERBLOCK) * (size_t)div_up(s->p->n_tokens, UNIT_TOKENS);
    const int n_units = div_up(n, UNIT_TOKENS);
    const int n_groups = min_int(SUPERBLOCK, s->n_cols) / type_info(type)->group;
    float(*sums)[UNIT_SUMS][4] = m->sums[r / PANEL_ROWS] + t0 / UNIT_TOKENS;
    if (s->k == 0) memset(sums, 0, (size_t)n_units * sizeof *sums);
    FOR_TOKEN_TILES(n_units, PANEL_TILE, n_groups, type)
}

static void neon_gemm_store(const GemmStep *s, float *out, size_t out_stride) {
    const NeonGemmMemory *m = s->memory;
    for (int t = 0; t < s->n; t++)
        for (int r = 0; r < s->n_rows; r += LANE_ROWS) {
            const float(*sums)[4] = m->sums[r / PANEL_ROWS][t / UNIT_TOKENS];
            memcpy(out + (size_t)t * out_stride + r,
                   sums[r % PANEL_ROWS / LANE_ROWS] + t % UNIT_TOKENS * LANE_ROWS,
                   (size_t)min_int(LANE_ROWS, s->n_rows - r) * sizeof(float));
        }
}

INLINE void gemm_rows(const Matmul *p, Type type) {
    gemm(p,
         (GemmPlan){.chunk_rows = p->n_tokens < 32 ? 8 : GEMM_CHUNK_ROWS,
                    .chunk_tokens = CHUNK_TOKENS,
                    .block_cols = SUPERBLOCK,
                    .panel_rows = PANEL_ROWS,
                    .token_bytes = sizeof(GemmUnit) / UNIT_TOKENS,
                    .begin = neon_gemm_begin,
                    .pack = neon_gemm_pack,
                    .multiply = neon_gemm_multiply,
                    .store = neon_gemm_store},
         type);
}

INTEGER_TYPES(DEFINE_ROWS, gemv, gemv_rows)
INTEGER_TYPES(DEFINE_ROWS, gemm, gemm_rows)

static void attend(const AttentionPage *a) { attend_with(a, float_scores, float_values); }

// Number of tokens from which GEMM is faster than decode. Time of GEMM / time of decode of integer
// types, computed with llvm-mca 19 (docs/performance.md), i8mm in parentheses, 2026-11:
//
//   Neoverse V1   4 tokens: Q4_K 1.06 (1.01), Q8_0 1.20 (1.13), Q6_K 0.86 (0.85)
//                 5 tokens: Q4_K 0.80 (0.79), Q8_0 0.96 (0.92), Q6_K 0.65 (0.68)
//   Neoverse N2   4 tokens: Q4_K 0.87 (0.78), Q8_0 0.91 (0.74), Q6_K 0.74 (0.69)
//
// FLOAT_GEMM_TOKENS was measured on AVX-512. There are no measurements on ARM hardware.
enum { GEMM_TOKENS = 5, FLOAT_GEMM_TOKENS = 12 };

// clang-format off
const Kernels kernels_neon = {
    .name = IS_I8MM ? "i8mm" : "neon",
    .gemv = {FLOAT_TYPES(KERNEL, gemv, float, rows, 1, PANEL_ROWS, 1, false)
            TYPES_OF_16(KERNEL, gemv, int8, 16, 1, PANEL_ROWS, 1, false)
            TYPES_OF_32(KERNEL, gemv, int8, 32, 1, PANEL_ROWS, 1, false)},
    .gemm = {FLOAT_TYPES(KERNEL, gemm, float, blocks, FLOAT_GEMM_TOKENS, GEMM_CHUNK_ROWS, 1, false)
             TYPES_OF_16(KERNEL, gemm, GEMM_ENCODING, 16, GEMM_TOKENS, PANEL_ROWS, UNIT_TOKENS, true)
             TYPES_OF_32(KERNEL, gemm, GEMM_ENCODING, 32, GEMM_TOKENS, PANEL_ROWS, UNIT_TOKENS, true)},
    .rmsnorm = IF_PART(0, vector_rmsnorm),
    .swiglu = IF_PART(0, vector_swiglu),
    .add = IF_PART(0, vector_add),
    .attend = IF_PART(0, attend),
    .store = IF_PART(0, vector_store),
};
// clang-format on
