// The exponential function in float32, with the same bits on every machine and with every C
// library. The vector backends have their own (exp_floats in kernels/vector/vector_math.h).
#pragma once

#include "base/bits.h"

static const float EXP_DEPTH = 87; // e^-87 is near the smallest normal float32

// e^-t for t >= 0 with an error below 2 ulp, and 0 for t > EXP_DEPTH and NaN. e^-t = 2^n e^r
// with n = round(-t / ln 2) and r = -t - n ln 2, |r| <= ln 2 / 2: e^r is a polynomial, and n
// becomes the exponent bits. There are no branches, so that loops vectorize.
static inline float exp_negative(float t) {
    int32_t bits = (int32_t)float_bits(t), limit = (int32_t)float_bits(EXP_DEPTH);
    uint32_t mask = -(uint32_t)(bits <= limit);
    t = float_from_bits((uint32_t)bits & mask);
    float n = t * -1.44269504f + 12582912.0f; // adding 1.5 * 2^23 rounds to an integer
    int32_t exponent = (int32_t)float_bits(n) - 0x4b400000;
    n -= 12582912.0f;
    float r = (-t - n * 0.693145752f) - n * 1.42860677e-6f;
    float e =
        1 + r * (1 + r * (0.5f + r * (0.166666667f + r * (0.0416666411f + r * (0.00833345205f +
                                                                               r * 0.00139043f)))));
    float scale = float_from_bits((uint32_t)(exponent + 127) << 23);
    return float_from_bits(float_bits(e * scale) & mask);
}
