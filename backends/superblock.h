// What the backends' files share: integer types are computed 256 columns at a time, a unit of one
// block or of eight.
#ifndef BACKENDS_SUPERBLOCK_H
#define BACKENDS_SUPERBLOCK_H

#include "../kernels/load.h"
#include "../kernels/quant.h"

#include <string.h>

enum {
    SUPERBLOCK = 256,
    GROUPS = SUPERBLOCK / QUANT_GROUP,
    MAX_SUPERBLOCK_BYTES = 320, // Q8_0's 272, and what is read beyond a unit
    PREFETCH_DISTANCE = 1024    // bytes fetched ahead of a row's stream: 4 rows hide the latency so
                                // (measured, 1 to 2 KiB)
};

static inline int n_superblocks(int cols) { return (cols + SUPERBLOCK - 1) / SUPERBLOCK; }
INLINE int superblock_bytes(Type type) {
    return SUPERBLOCK / type_info(type)->block * type_info(type)->bytes;
}

// A whole unit of n_cols columns: where it lies, or, if the row ends in it, a copy in front of
// zeros (scales of 0, whatever the type).
INLINE const uint8_t *padded_superblock(Type type, const uint8_t *p, int n_cols,
                                        uint8_t buffer[MAX_SUPERBLOCK_BYTES]) {
    if (type_info(type)->block == SUPERBLOCK || n_cols >= SUPERBLOCK) return p;
    memset(buffer, 0, MAX_SUPERBLOCK_BYTES);
    return memcpy(buffer, p, (size_t)(n_cols / type_info(type)->block * type_info(type)->bytes));
}

#endif
