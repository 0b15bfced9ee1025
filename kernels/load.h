// Helpers of the kernels: forced inlining, multi-versioned loops, unaligned loads.
#pragma once

#include "base/bits.h"

#include <stdint.h>
#include <string.h>

// Kernels take the tensor type as an argument. After inlining it is a constant, so that branches
// and table lookups that depend on it disappear. Inlining must therefore not be left to the
// compiler's heuristics.
#define INLINE static inline __attribute__((always_inline))

// Compiles a function for several vector widths, of which one is chosen at program start; all give
// the same bits. Vectors of MULTIVERSION_LANES floats stay in registers; gcc 12 moves larger
// vectors through memory.
#if defined(__x86_64__) && defined(__GLIBC__)
#define MULTIVERSION __attribute__((target_clones("avx512f", "avx2", "default")))
enum { MULTIVERSION_LANES = 8 };
#else
#define MULTIVERSION
enum { MULTIVERSION_LANES = 4 };
#endif

INLINE int min_int(int a, int b) { return a < b ? a : b; }

// Unaligned integers of a block. Files and supported machines are little-endian.
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
