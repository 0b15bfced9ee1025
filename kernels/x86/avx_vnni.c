// AVX2 with AVX-VNNI: GEMM and attend_many of avx2.c with vpdpbusd and vpdpwssd, which multiply and
// add in one instruction where AVX2 takes two to four. The bits are those of AVX2. Intel CPUs have
// had AVX-VNNI since 2021, including those without AVX-512.
#define PART         2 // GEMM, attend_many
#define kernels_avx2 kernels_avxvnni
#include "kernels/x86/avx2.c"
