// Superblocks: the unit in which the backends read integer types.
//
// A superblock is 256 columns of one row: a block of a K-quant or codebook type, or eight blocks of
// a type with blocks of 32. Rows of such a type can end within a superblock (superblock_pad).
#pragma once

#include "kernels/load.h"
#include "kernels/tensor.h"
#include "kernels/quant.h"

enum {
    SUPERBLOCK = 256,
    SUPERBLOCK_GROUPS = SUPERBLOCK / QUANT_GROUP, // at most: 16, or 8 with groups of 32
    SUPERBLOCK_MAX_BYTES = 320, // 272 of Q8_0, plus what vector loads read past the end
    // Bytes that decode of float types, and of all types on ARM, prefetches ahead in each row.
    PREFETCH_DISTANCE = 1024
};

INLINE int n_superblocks(int cols) { return div_up(cols, SUPERBLOCK); }
INLINE int superblock_bytes(Type type) {
    return SUPERBLOCK / type_info(type)->block * type_info(type)->bytes;
}

// The address of a row; that of row w->rows is the end of the matrix.
INLINE const uint8_t *matrix_row(const Tensor *w, int row) {
    return (const uint8_t *)w->data + (size_t)row * w->row_bytes;
}

// Points p[i], i < n, at the superblock that holds column k of row `row + i`, or of row row_end - 1
// where that row is past the range: a tile is always full, and its surplus results are not stored.
INLINE void superblock_rows(const uint8_t **p, int n, const Tensor *w, int row, int row_end, int k,
                            Type type) {
    const int at = k / SUPERBLOCK * superblock_bytes(type);
    for (int i = 0; i < n; i++) p[i] = matrix_row(w, min_int(row + i, row_end - 1)) + at;
}

// Where the last n_cols columns of rows are less than a superblock, the kernels read on, into the
// next row. Its integers are multiplied by zeros, because the activations are padded, and its
// scales must be replaced by zeros. This function copies the superblocks that would be read past
// the end of the matrix, and points p[i] at the copies.
INLINE void superblock_pad(const uint8_t **p, int n, uint8_t (*copies)[SUPERBLOCK_MAX_BYTES],
                           const uint8_t *end, int n_cols, Type type) {
    if (type_info(type)->block == SUPERBLOCK || n_cols >= SUPERBLOCK) return;
    for (int i = 0; i < n; i++) {
        if (end - p[i] >= SUPERBLOCK_MAX_BYTES) continue;
        memset(copies[i], 0, SUPERBLOCK_MAX_BYTES);
        p[i] = memcpy(copies[i], p[i],
                      (size_t)(n_cols / type_info(type)->block * type_info(type)->bytes));
    }
}

// Brings the lines of n bytes into L1. Kernels for few tokens multiply n neighboring rows and
// meanwhile prefetch the next n, a few lines at each step, in the order of their addresses, even if
// they do not fit into L1. Time of decode from memory / time with the next rows prefetched into L2
// and a superblock of each row into L1 (AVX-512, Zen 5, one and two threads, 2,048 and 8,192
// columns, 2026-11-29): Q4_K 0.79 to 0.92, Q6_K 0.82 to 0.96, Q8_0 0.78 to 0.89. With eight distant
// rows, each prefetched 1 KiB ahead, AVX2 takes 1.0 to 1.2 of the time.
INLINE void prefetch_bytes(const uint8_t *p, int n) {
#pragma GCC unroll 20
    for (int at = 0; at < n; at += 64) __builtin_prefetch(p + at, 0, 3);
}
