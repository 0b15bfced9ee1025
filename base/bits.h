// Bits of floats, and division that rounds up.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t float_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float float_from_bits(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

// n / d rounded up, and n rounded up to a multiple of `step`. n + d and n + step must not overflow.
// Both functions exist for indices (int) and for sizes (size_t).
static inline int div_up(int n, int d) { return (n + d - 1) / d; }
static inline int round_up(int n, int step) { return div_up(n, step) * step; }
static inline size_t size_div_up(size_t n, size_t d) { return (n + d - 1) / d; }
static inline size_t size_round_up(size_t n, size_t step) { return size_div_up(n, step) * step; }
