// Small helpers of the kernels: inlining that is not left to the compiler, unaligned loads.
#ifndef KERNELS_LOAD_H
#define KERNELS_LOAD_H

#include <stdint.h>
#include <string.h>

// Kernels take the tensor type as an argument that is a constant after inlining, so that branches
// on it and table look-ups disappear. The compiler's heuristics must not decide about that.
#define INLINE static inline __attribute__((always_inline))

INLINE int min_int(int a, int b) { return a < b ? a : b; }

// Integers of a block, in the byte order of the file, which is that of the machine: little-endian.
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
