// Superblocks: the unit in which the backends read integer types.
//
// A superblock is 256 columns of one row: a block of a K-quant or codebook type, or eight blocks of
// a type with blocks of 32. Rows of such a type can end within a superblock, which is then read
// from a copy that is padded with zeros: the scales of the padding are zero, so it adds nothing.
#pragma once

#include "kernels/load.h"
#include "kernels/tensor.h"
#include "kernels/quant.h"

enum {
    SUPERBLOCK = 256,
    SUPERBLOCK_GROUPS = SUPERBLOCK / QUANT_GROUP, // at most: 16, or 8 with groups of 32
    SUPERBLOCK_MAX_BYTES = 320, // 272 of Q8_0, plus what vector loads read past the end
    // Bytes that decode prefetches ahead in each of its streams, which are rows. Four to eight
    // streams hide the latency of memory with 1 to 2 KiB each (measured).
    PREFETCH_DISTANCE = 1024
};

INLINE int n_superblocks(int cols) { return div_up(cols, SUPERBLOCK); }
INLINE int superblock_bytes(Type type) {
    return SUPERBLOCK / type_info(type)->block * type_info(type)->bytes;
}

// Points p[i], i < n, at the superblock that holds column k of row `row + i * step`, or of row
// row_end - 1 where that row is past the range: a tile is always full, and its surplus results are
// not stored.
INLINE void superblock_rows(const uint8_t **p, int n, const Tensor *w, int row, int step,
                            int row_end, int k, Type type) {
    const uint8_t *data =
        (const uint8_t *)w->data + (size_t)(k / SUPERBLOCK) * (size_t)superblock_bytes(type);
    for (int i = 0; i < n; i++) p[i] = data + (size_t)(row + i * step) * w->row_bytes;
    for (int i = n - 1; i >= 0 && row + i * step >= row_end; i--)
        p[i] = data + (size_t)(row_end - 1) * w->row_bytes;
}

// Points p[i] at padded copies if only n_cols columns of the superblocks exist.
INLINE void superblock_pad(const uint8_t **p, int n, uint8_t (*copies)[SUPERBLOCK_MAX_BYTES],
                           int n_cols, Type type) {
    if (type_info(type)->block == SUPERBLOCK || n_cols >= SUPERBLOCK) return;
    for (int i = 0; i < n; i++) {
        memset(copies[i], 0, SUPERBLOCK_MAX_BYTES);
        p[i] = memcpy(copies[i], p[i],
                      (size_t)(n_cols / type_info(type)->block * type_info(type)->bytes));
    }
}

// Prefetches the superblocks that are `ahead` bytes ahead of p[i], into L2.
INLINE void superblock_prefetch(const uint8_t *const *p, int n, ptrdiff_t ahead, Type type) {
#pragma GCC unroll 8
    for (int i = 0; i < n; i++)
#pragma GCC unroll 8
        for (int b = 0; b < superblock_bytes(type); b += 64)
            __builtin_prefetch(p[i] + ahead + b, 0, 2);
}

// Advances p[i] to the next superblock, and prefetches.
INLINE void superblock_next(const uint8_t **p, int n, ptrdiff_t ahead, Type type) {
    superblock_prefetch(p, n, ahead, type);
#pragma GCC unroll 8
    for (int i = 0; i < n; i++) p[i] += superblock_bytes(type);
}
