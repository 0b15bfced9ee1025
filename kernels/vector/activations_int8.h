// Int8 activations, which AVX2 and NEON multiply by weights of integer types: for each superblock
// of 256 columns, the tokens one after another. (AVX-512 uses another form, VnniActivations.)
#pragma once

#include "kernels/vector/vector_math.h"

enum { INT8_SCALE_GROUP = 32 }; // values that share a scale

typedef struct {
    int8_t q[SUPERBLOCK];
    float scale[SUPERBLOCK / INT8_SCALE_GROUP];
    float sum[SUPERBLOCK_GROUPS];     // scale * (sum of q), for each group of the weights
    int32_t start[SUPERBLOCK_GROUPS]; // BASE_BITS - zero_point * (sum of q), for each group
} Int8Activations;

static size_t int8_bytes(int n_tokens, int cols) {
    return (size_t)n_tokens * (size_t)n_superblocks(cols) * sizeof(Int8Activations);
}

// group is the group size of the weights, 16 or 32. zero_point is that of the weights, if they are
// stored as unsigned integers, or 0.
INLINE void encode_int8(void *encoded, const float *x, int n_tokens, int cols, int token_begin,
                        int token_end, int group, int zero_point) {
    for (int t = token_begin; t < token_end; t++)
        for (int k = 0; k < n_superblocks(cols) * SUPERBLOCK; k += INT8_SCALE_GROUP) {
            Int8Activations *a =
                (Int8Activations *)encoded + (size_t)(k / SUPERBLOCK) * (size_t)n_tokens + t;
            int at = k % SUPERBLOCK;
            int sums[2] = {0}; // sums of the quantized values of 16 columns each
            float scale =
                quantize_int8(x + (size_t)t * (size_t)cols + k, cols - k, 2, a->q + at, sums);

            if (group == 32) sums[0] += sums[1];
            a->scale[at / INT8_SCALE_GROUP] = scale;
            for (int i = 0; i < INT8_SCALE_GROUP / group; i++) {
                a->sum[at / group + i] = scale * (float)sums[i];
                a->start[at / group + i] = BASE_BITS - zero_point * sums[i];
            }
        }
}

// For weights that are unpacked as signed integers.
static inline void int8_encode_16(void *encoded, const float *x, int n_tokens, int cols,
                                  int token_begin, int token_end) {
    encode_int8(encoded, x, n_tokens, cols, token_begin, token_end, 16, 0);
}

static inline void int8_encode_32(void *encoded, const float *x, int n_tokens, int cols,
                                  int token_begin, int token_end) {
    encode_int8(encoded, x, n_tokens, cols, token_begin, token_end, 32, 0);
}
