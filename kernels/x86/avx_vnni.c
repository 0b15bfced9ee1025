// AVX2 with AVX-VNNI: GEMM and attend_many of avx2.c with vpdpbusd and vpdpwssd, which multiply and
// add in one instruction where AVX2 takes two to four. The bits are those of AVX2. Intel CPUs have
// had AVX-VNNI since 2021, including those without AVX-512.
//
// Decode gains with signed integers and with nibbles of 16 bytes. Time / time of AVX2 with one and
// two tokens, from memory (Zen 5, one thread, 2026-11-28): IQ4_XS 0.82 and 0.71, Q8_0 1.00 and 0.91
// (in caches 0.74 and 0.79), Q4_0 0.93 and 0.97. The other types take 0.97 to 1.07 of the time and
// are left to AVX2.
#define PART         2 // GEMM, attend_many, and decode of these types
#define kernels_avx2 kernels_avxvnni
#define HAS_16_BYTE_NIBBLES(type)                                                                  \
    ((type) == TYPE_Q4_0 || (type) == TYPE_Q4_1 || (type) == TYPE_IQ4_NL || (type) == TYPE_IQ4_XS)
#define PART_OF_gemv(type) ((type) == TYPE_Q8_0 || HAS_16_BYTE_NIBBLES(type) ? PART : -1)
#include "kernels/x86/avx2.c"
