// AVX-512 with VBMI: products with the types of the largest codebooks (IQ2_S, IQ1_S and IQ1_M).
// CPUs have had VBMI since Ice Lake and Zen 4. Results are bit-identical to those of avx512.c.
#define PART           3
#define kernels_avx512 kernels_avx512_vbmi
#include "kernels/x86/avx512.c"
