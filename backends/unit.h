// What the backends' files share: integer types are computed 256 columns at a time, a unit of one
// block or of eight.
#ifndef BACKENDS_UNIT_H
#define BACKENDS_UNIT_H

#include "../kernels/blocks.h"
#include "../kernels/quant.h"

#include <string.h>

#define INLINE static inline __attribute__((always_inline))

enum {
    UNIT = 256,
    GROUPS = UNIT / QUANT_GROUP,
    MAX_UNIT_BYTES = 320, // Q8_0's 272, and what is read beyond a unit
    STREAM_AHEAD = 1024   // bytes fetched ahead of a row's stream: 4 rows hide the latency so
                          // (measured, 1 to 2 KiB)
};

// Integers in the order of bytes that the format has, and so the machine.
INLINE uint16_t load_u16(const void *p) {
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
INLINE uint32_t load_u32(const void *p) {
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
INLINE uint64_t load_u64(const void *p) {
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

INLINE int min_int(int a, int b) { return a < b ? a : b; }
static inline int n_units(int cols) { return (cols + UNIT - 1) / UNIT; }
INLINE int unit_bytes(Type type) { return UNIT / type_info(type)->block * type_info(type)->bytes; }

// A whole unit of n_cols columns: where it lies, or, if the row ends in it, a copy in front of
// zeros (scales of 0, whatever the type).
INLINE const uint8_t *whole_unit(Type type, const uint8_t *p, int n_cols,
                                 uint8_t buffer[MAX_UNIT_BYTES]) {
    if (type_info(type)->block == UNIT || n_cols >= UNIT) return p;
    memset(buffer, 0, MAX_UNIT_BYTES);
    return memcpy(buffer, p, (size_t)(n_cols / type_info(type)->block * type_info(type)->bytes));
}

#endif
