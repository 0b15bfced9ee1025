// The kernel tables of the backends, which kernels_init() overlays (backends.c). A NULL entry, or a
// MatmulKernel whose `rows` is NULL, is inherited from the backend below. Tables with an entry for
// each type are generated from the lists of types in base/type.h.
#pragma once

#include "kernels/kernels.h"

// Encodes activations as float32, token by token (a MatmulKernel.encode).
void float_encode_rows(void *encoded, const float *x, int n_tokens, int cols, int token_begin,
                       int token_end);

// AVX2 and AVX-512 are compiled in parts (IF_PART in kernels/vector/matmul.h).
extern const Kernels kernels_scalar;
extern const Kernels kernels_avx2_0, kernels_avx2_1, kernels_avx2_2; // AVX2, FMA, F16C
extern const Kernels kernels_avxvnni;                                // AVX-VNNI (on top of avx2)
extern const Kernels kernels_avx512_0, kernels_avx512_1, kernels_avx512_2; // F, BW, DQ, VL, VNNI
extern const Kernels kernels_avx512_vbmi; // a fourth part, used if the CPU also has VBMI
extern const Kernels kernels_amx;         // AMX tiles, bf16, VBMI (on top of avx512)
extern const Kernels kernels_neon;        // ARMv8.2 dotprod
extern const Kernels kernels_i8mm;        // ARMv8.6 i8mm (on top of neon)
