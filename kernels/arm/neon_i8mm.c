// NEON with the 8-bit matrix multiplication of ARMv8.6 (i8mm): the GEMM of neon.c with smmla, which
// multiplies 2 rows x 8 columns of weights by 2 tokens x 8 columns. That is twice the products of a
// dot product instruction. Results are bit-identical to those of NEON.
#define IS_I8MM       true
#define GEMM_ENCODING pairs
#define PART          2 // GEMM
#define kernels_neon  kernels_i8mm
#define VECTOR_BITS   128
#include "kernels/arm/neon_unpack.h"
#include "kernels/vector/activations_int8.h"

enum { UNIT_TOKENS = 2, UNIT_SUMS = 2 };
typedef float UnitScale[4]; // in the lanes of a sum: {t0 t0 t1 t1}

// The activations of two tokens and 256 columns. For each superblock, the pairs follow each other.
typedef struct {
    int8_t q[SUPERBLOCK / 8][UNIT_TOKENS][8];
    UnitScale scale[SUPERBLOCK / INT8_SCALE_GROUP]; // as in Int8Activations
    UnitScale sum[SUPERBLOCK_GROUPS];
} GemmUnit;

static size_t pairs_bytes(int n_tokens, int cols) {
    return (size_t)div_up(n_tokens, 2) * (size_t)n_superblocks(cols) * sizeof(GemmUnit);
}

// The second token of an incomplete pair is zero.
INLINE void encode_pairs(void *encoded, const float *x, int n_tokens, int cols, int token_begin,
                         int token_end, int group) {
    for (int t = token_begin; t < token_end; t++)
        for (int k = 0; k < cols; k += SUPERBLOCK) {
            Int8Activations a;
            GemmUnit *pair = (GemmUnit *)encoded +
                             (size_t)(k / SUPERBLOCK) * (size_t)div_up(n_tokens, 2) + t / 2;
            const int second = t % 2;
            if (!second) memset(pair, 0, sizeof *pair);
            encode_int8(&a, x + (size_t)t * (size_t)cols + k, 1, min_int(cols - k, SUPERBLOCK), 0,
                        1, group, 0);

            for (int i = 0; i < SUPERBLOCK / 8; i++) memcpy(pair->q[i][second], a.q + 8 * i, 8);
            for (int lane = 2 * second; lane < 2 * second + 2; lane++) {
                for (int g = 0; g < SUPERBLOCK / INT8_SCALE_GROUP; g++)
                    pair->scale[g][lane] = a.scale[g];
                for (int g = 0; g < SUPERBLOCK / group; g++) pair->sum[g][lane] = a.sum[g];
            }
        }
}

static void pairs_encode_16(void *encoded, const float *x, int n_tokens, int cols, int token_begin,
                            int token_end) {
    encode_pairs(encoded, x, n_tokens, cols, token_begin, token_end, 16);
}

static void pairs_encode_32(void *encoded, const float *x, int n_tokens, int cols, int token_begin,
                            int token_end) {
    encode_pairs(encoded, x, n_tokens, cols, token_begin, token_end, 32);
}

// Interleaves 16 columns of four rows: [k / 8][row][8].
INLINE void interleave_columns(int8_t *out, int8x16_t r0, int8x16_t r1, int8x16_t r2,
                               int8x16_t r3) {
    const int64x2x4_t rows = {{vreinterpretq_s64_s8(r0), vreinterpretq_s64_s8(r1),
                               vreinterpretq_s64_s8(r2), vreinterpretq_s64_s8(r3)}};
    vst4q_s64((int64_t *)(void *)out, rows);
}

// Adds the products of columns [k, k + 16) to the dot products of nt units.
INLINE void add_products(int32x4_t (*dot)[UNIT_SUMS], const int8_t *w, const GemmUnit *x, int k,
                         int nt) {
    for (int i = 0; i < 2; i++)
        for (int t = 0; t < nt; t++) {
            int8x16_t v = vld1q_s8(x[t].q[k / 8 + i][0]);
            dot[t][0] = vmmlaq_s32(dot[t][0], v, vld1q_s8(w + 32 * i));
            dot[t][1] = vmmlaq_s32(dot[t][1], v, vld1q_s8(w + 32 * i + 16));
        }
}

// sum + v * scale, rounded once.
INLINE float32x4_t add_scaled(float32x4_t sum, float32x4_t v, const UnitScale *scale) {
    return vfmaq_f32(sum, v, vld1q_f32(*scale));
}

#include "kernels/arm/neon.c"
