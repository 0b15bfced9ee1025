// Decode of the types with the largest codebooks (IQ2_S, IQ1_S and IQ1_M) with AVX-512 VBMI, which
// CPUs have since Ice Lake and Zen 4. The results have the bits of avx512.c.
#define PART           3
#define kernels_avx512 kernels_avx512_vbmi
#include "avx512.c"
