// Unaligned loads from packed blocks, for kernels. Integers have the byte order of the file format,
// which is little-endian, and so the machine's.
#ifndef KERNELS_LOAD_H
#define KERNELS_LOAD_H

#include <stdint.h>
#include <string.h>

// Kernels take the tensor type as a parameter that is a constant after inlining: branches on it
// and look-ups in tables disappear. This must not be left to the compiler's heuristics.
#define INLINE static inline __attribute__((always_inline))

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

#endif
