// Float32 activations, which are multiplied by F32, F16 and BF16 weights: for each block of
// FLOAT_BLOCK_COLS columns, the tokens one after another. The last block is padded with zeros.
// (Decode uses float_encode_rows() instead.)
#pragma once

#include "kernels/vector/vector_math.h"

// A panel of 2 * WIDTH rows of a block takes 8 KiB (NEON) or 16 KiB, at most half of L1.
enum { FLOAT_BLOCK_COLS = WIDTH == 16 ? 128 : 256 };

static size_t float_bytes(int n_tokens, int cols) {
    return (size_t)n_tokens * (size_t)round_up(cols, FLOAT_BLOCK_COLS) * sizeof(float);
}

static void float_encode_blocks(void *encoded, const float *x, int n_tokens, int cols,
                                int token_begin, int token_end) {
    for (int t = token_begin; t < token_end; t++)
        for (int k = 0; k < cols; k += FLOAT_BLOCK_COLS) {
            float *block = (float *)encoded + (size_t)k * (size_t)n_tokens + t * FLOAT_BLOCK_COLS;
            int n = min_int(FLOAT_BLOCK_COLS, cols - k);
            memcpy(block, x + (size_t)t * (size_t)cols + k, (size_t)n * sizeof(float));
            memset(block + n, 0, (size_t)(FLOAT_BLOCK_COLS - n) * sizeof(float));
        }
}
