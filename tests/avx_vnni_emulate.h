// Emulates vpdpbusd and vpdpwssd, so that kernels/x86/avx_vnni.c can be tested on a machine that
// has only AVX2.
#pragma once

#include <immintrin.h>

#define __AVXVNNI__ 1

// Adds to each int32 of `sum` the products of its four bytes, unsigned ones of u and signed ones of
// s: first of the bytes 0 and 2, then of the bytes 1 and 3.
static inline __m256i emulate_dpbusd(__m256i sum, __m256i u, __m256i s) {
    __m256i u0 = _mm256_and_si256(u, _mm256_set1_epi16(255)), u1 = _mm256_srli_epi16(u, 8),
            s0 = _mm256_srai_epi16(_mm256_slli_epi16(s, 8), 8), s1 = _mm256_srai_epi16(s, 8);
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(u0, s0));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(u1, s1));
}
#define _mm256_dpbusd_avx_epi32 emulate_dpbusd

#define _mm256_dpwssd_avx_epi32(sum, a, b) _mm256_add_epi32(sum, _mm256_madd_epi16(a, b))
