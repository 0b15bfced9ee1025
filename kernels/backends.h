// What the instruction-set files export to kernels.c. A NULL entry (for a MatmulKernel: NULL rows)
// leaves the backend below.
#ifndef KERNELS_BACKENDS_H
#define KERNELS_BACKENDS_H

#include "kernels.h"

// A loop outside of these files that is compiled for wider vectors too, and chosen when the program
// is loaded: the same bits. Vectors of WIDE_LANES floats stay in registers there; gcc 12 takes
// larger ones through memory.
#if defined(__x86_64__) && defined(__GLIBC__)
#define WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
enum { WIDE_LANES = 8 };
#else
#define WIDE
enum { WIDE_LANES = 4 };
#endif

// X(type, name) for all integer types, by the size of their groups; what they are made of is in
// base/type.h.
// clang-format off
#define TYPES_OF_16(X) \
    X(Q2_K, q2_k) X(Q3_K, q3_k) X(Q6_K, q6_k) X(IQ2_XS, iq2_xs) X(IQ2_S, iq2_s) X(IQ1_M, iq1_m)
#define TYPES_OF_32(X) \
    X(Q8_0, q8_0) X(Q4_0, q4_0) X(Q4_1, q4_1) X(Q5_0, q5_0) X(Q5_1, q5_1) X(Q4_K, q4_k) X(Q5_K, q5_k) \
    X(IQ4_NL, iq4_nl) X(IQ4_XS, iq4_xs) X(IQ2_XXS, iq2_xxs) X(IQ3_XXS, iq3_xxs) X(IQ3_S, iq3_s) \
    X(IQ1_S, iq1_s) X(TQ1_0, tq1_0) X(TQ2_0, tq2_0)
#define EACH_QUANTIZED_TYPE(X) TYPES_OF_16(X) TYPES_OF_32(X)
#define FLOAT_TYPES(X) X(F32, f32) X(F16, f16) X(BF16, bf16)
// clang-format on

extern const Kernels kernels_scalar;
extern const Kernels kernels_avx2;   // AVX2, FMA, F16C
extern const Kernels kernels_avx512; // AVX-512 F, BW, DQ, VL, VNNI
extern const Kernels kernels_amx;    // AMX tiles, bf16, VBMI (on top of avx512)
extern const Kernels kernels_neon;   // ARMv8.2 dotprod

#endif
