// Small helpers of the kernels: what is not left to the compiler, and unaligned loads.
#ifndef KERNELS_LOAD_H
#define KERNELS_LOAD_H

#include <stdint.h>
#include <string.h>

// Kernels take the tensor type as an argument that is a constant after inlining, so that branches
// on it and table look-ups disappear. The compiler's heuristics must not decide about that.
#define INLINE static inline __attribute__((always_inline))

// A loop that gcc compiles for several vector widths; the program chooses at start. The bits are
// the same. Vectors of MULTIVERSION_LANES floats stay in registers; gcc 12 moves larger ones
// through memory.
#if defined(__x86_64__) && defined(__GLIBC__)
#define MULTIVERSION __attribute__((target_clones("avx512f", "avx2", "default")))
enum { MULTIVERSION_LANES = 8 };
#else
#define MULTIVERSION
enum { MULTIVERSION_LANES = 4 };
#endif

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
