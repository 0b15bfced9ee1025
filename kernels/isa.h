// What the instruction-set files export to kernels.c. A NULL entry (for a MatKernel: NULL rows) leaves the rung below.
#ifndef KERNELS_ISA_H
#define KERNELS_ISA_H

#include "kernels.h"

// The integer types, for the tables and functions that exist once for each: X(type, name, off, has_min, group, block,
// bytes, nibbles, max). In the form of unsigned weights w = scale * (u - off) - min; weights per scale and per block;
// bytes per 256 weights; where in a block that holds nibbles only they begin, or 0; the largest u.
#define INTEGER_TYPES(X)                                                                                               \
    X(Q8_0, q8_0, 128, false, 32, 32, 272, 0, 255)                                                                     \
    X(Q4_0, q4_0, 8, false, 32, 32, 144, 2, 15)                                                                        \
    X(Q4_1, q4_1, 0, true, 32, 32, 160, 4, 15)                                                                         \
    X(Q5_0, q5_0, 16, false, 32, 32, 176, 0, 31)                                                                       \
    X(Q5_1, q5_1, 0, true, 32, 32, 192, 0, 31)                                                                         \
    X(Q2_K, q2_k, 0, true, 16, 256, 84, 0, 3)                                                                          \
    X(Q3_K, q3_k, 4, false, 16, 256, 110, 0, 7)                                                                        \
    X(Q4_K, q4_k, 0, true, 32, 256, 144, 16, 15)                                                                       \
    X(Q5_K, q5_k, 0, true, 32, 256, 176, 0, 31)                                                                        \
    X(Q6_K, q6_k, 32, false, 16, 256, 210, 0, 63)                                                                      \
    X(IQ4_NL, iq4_nl, 128, false, 32, 32, 144, 2, 255)                                                                 \
    X(IQ4_XS, iq4_xs, 128, false, 32, 256, 136, 8, 255)                                                                \
    X(IQ2_XXS, iq2_xxs, 128, false, 32, 256, 66, 0, 255)

// X(type, name) for all integer types, by the size of their groups; what they are made of is in base/type.h.
#define TYPES_OF_16(X) X(Q2_K, q2_k) X(Q3_K, q3_k) X(Q6_K, q6_k)
#define TYPES_OF_32(X)                                                                                                 \
    X(Q8_0, q8_0)                                                                                                      \
    X(Q4_0, q4_0) X(Q4_1, q4_1) X(Q5_0, q5_0) X(Q5_1, q5_1) X(Q4_K, q4_k) X(Q5_K, q5_k) X(IQ4_NL, iq4_nl)              \
        X(IQ4_XS, iq4_xs) X(IQ2_XXS, iq2_xxs)
#define EACH_INTEGER_TYPE(X) TYPES_OF_16(X) TYPES_OF_32(X)
#define FLOAT_TYPES(X)       X(F32, f32) X(F16, f16) X(BF16, bf16)

extern const Kernels kernels_scalar;
extern const Kernels kernels_avx2;   // AVX2, FMA, F16C
extern const Kernels kernels_avx512; // AVX-512 F, BW, DQ, VL, VNNI
extern const Kernels kernels_amx;    // AMX tiles, bf16, VBMI (on top of avx512)
extern const Kernels kernels_neon;   // ARMv8.2 dotprod

#endif
