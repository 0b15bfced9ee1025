// What the instruction-set files export to kernels.c. A NULL entry (for a MatKernel: NULL rows) leaves the rung below.
#ifndef KERNELS_ISA_H
#define KERNELS_ISA_H

#include "kernels.h"

extern const Kernels kernels_scalar;
extern const Kernels kernels_avx2;   // AVX2, FMA, F16C
extern const Kernels kernels_avx512; // AVX-512 F, BW, DQ, VL, VNNI
extern const Kernels kernels_amx;    // AMX tiles, bf16 (on top of avx512)
extern const Kernels kernels_neon;   // ARMv8.2 dotprod

#endif
