// The kernel tables of the backends, which kernels_init() overlays (backends.c), and macros that
// list the tensor types, from which the tables are built. A NULL entry, or a MatmulKernel whose
// `rows` is NULL, is inherited from the backend below.
#pragma once

#include "kernels.h"

// X(type, name, ...) for each type; further arguments are passed on. Integer types are listed by
// the size of their groups (base/type.h).
// clang-format off
#define TYPES_OF_16(X, ...) \
    X(Q2_K, q2_k, __VA_ARGS__) X(Q3_K, q3_k, __VA_ARGS__) X(Q6_K, q6_k, __VA_ARGS__) \
    X(IQ2_XS, iq2_xs, __VA_ARGS__) X(IQ2_S, iq2_s, __VA_ARGS__) X(IQ1_M, iq1_m, __VA_ARGS__)
#define TYPES_OF_32(X, ...) \
    X(Q8_0, q8_0, __VA_ARGS__) X(Q4_0, q4_0, __VA_ARGS__) X(Q4_1, q4_1, __VA_ARGS__) \
    X(Q5_0, q5_0, __VA_ARGS__) X(Q5_1, q5_1, __VA_ARGS__) X(Q4_K, q4_k, __VA_ARGS__) \
    X(Q5_K, q5_k, __VA_ARGS__) X(IQ4_NL, iq4_nl, __VA_ARGS__) X(IQ4_XS, iq4_xs, __VA_ARGS__) \
    X(IQ2_XXS, iq2_xxs, __VA_ARGS__) X(IQ3_XXS, iq3_xxs, __VA_ARGS__) X(IQ3_S, iq3_s, __VA_ARGS__) \
    X(IQ1_S, iq1_s, __VA_ARGS__) X(TQ1_0, tq1_0, __VA_ARGS__) X(TQ2_0, tq2_0, __VA_ARGS__) \
    X(Q1_0, q1_0, __VA_ARGS__) X(Q2_0, q2_0, __VA_ARGS__)
#define INTEGER_TYPES(X, ...) TYPES_OF_16(X, __VA_ARGS__) TYPES_OF_32(X, __VA_ARGS__)
#define FLOAT_TYPES(X, ...) X(F32, f32, __VA_ARGS__) X(F16, f16, __VA_ARGS__) X(BF16, bf16, __VA_ARGS__)
// clang-format on

// The encoding of activations as float32, the tokens one after another (MatmulKernel.encode).
void float_encode_rows(void *encoded, const float *x, int n_tokens, int cols, int token_begin,
                       int token_end);

// AVX2 and AVX-512 are compiled in parts (IF_PART in backends/matmul.h).
extern const Kernels kernels_scalar;
extern const Kernels kernels_avx2_0, kernels_avx2_1, kernels_avx2_2; // AVX2, FMA, F16C
extern const Kernels kernels_avxvnni;                                // AVX-VNNI (on top of avx2)
extern const Kernels kernels_avx512_0, kernels_avx512_1, kernels_avx512_2; // F, BW, DQ, VL, VNNI
extern const Kernels kernels_avx512_vbmi; // a fourth part, used if the CPU also has VBMI
extern const Kernels kernels_amx;         // AMX tiles, bf16, VBMI (on top of avx512)
extern const Kernels kernels_neon;        // ARMv8.2 dotprod
extern const Kernels kernels_i8mm;        // ARMv8.6 i8mm (on top of neon)
