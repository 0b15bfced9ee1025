// Emulates AVX-512, so that its kernels can be tested on a machine that has only AVX2. SIMDe
// (Debian package libsimde-dev) emulates most intrinsics. This file adds those that SIMDe 0.7.4
// lacks and corrects those that it implements wrongly; their semantics follow Intel's manual.
#ifndef TESTS_AVX512_EMULATE_H
#define TESTS_AVX512_EMULATE_H

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <math.h>
#include <simde/x86/avx512.h>
#include <stdint.h>
#include <string.h>

// Functions that are not inlined, because compiling would otherwise take minutes.
#define SLOW static __attribute__((noinline, unused))

typedef uint32_t EmulatedWords __attribute__((vector_size(128)));

#define EMULATE_CONVERT(to, from, x) __builtin_convertvector((from)(x), to)
#define _mm512_cvtepi32_ps(x)        ((__m512)EMULATE_CONVERT(__v16sf, __v16si, x))
#define _mm512_cvtepi8_epi32(x)      ((__m512i)EMULATE_CONVERT(__v16si, __v16qs, x))
#define _mm512_cvtepu8_epi32(x)      ((__m512i)EMULATE_CONVERT(__v16si, __v16qu, x))
#define _mm512_cvtepu8_epi16(x)      ((__m512i)EMULATE_CONVERT(__v32hi, __v32qu, x))
#define _mm512_cvtepu16_epi32(x)     ((__m512i)EMULATE_CONVERT(__v16si, __v16hu, x))
#define _mm512_cvtepi32_epi16(x)     ((__m256i)EMULATE_CONVERT(__v16hi, __v16si, x))
#define _mm512_cvtepi32_epi8(x)      ((__m128i)EMULATE_CONVERT(__v16qi, __v16si, x))
#define _mm512_srai_epi32(x, n)      ((__m512i)((__v16si)(x) >> (n)))
#define _mm512_zextsi256_si512(x)    simde_mm512_inserti64x4(simde_mm512_setzero_si512(), x, 0)
#define _mm512_shuffle_epi32(x, i)   ((__m512i)simde_mm512_shuffle_ps((__m512)(x), (__m512)(x), i))

typedef union {
    __m512i i;
    __m512 f;
    __m256i half[2];
    float floats[16];
    int32_t dwords[16];
    uint16_t words[32];
    int64_t qwords[8];
} EmulatedLanes;

SLOW __m512i emulate_mulhi_epu16(__m512i a, __m512i b) {
    EmulatedWords x = EMULATE_CONVERT(EmulatedWords, __v32hu, a),
                  y = EMULATE_CONVERT(EmulatedWords, __v32hu, b);
    return (__m512i)EMULATE_CONVERT(__v32hu, EmulatedWords, x * y >> 16);
}

static inline __m512 emulate_cvtph_ps(__m256i h) {
    __m256 low = _mm256_cvtph_ps(_mm256_castsi256_si128(h)),
           high = _mm256_cvtph_ps(_mm256_extracti128_si256(h, 1));
    return ((EmulatedLanes){.half = {(__m256i)low, (__m256i)high}}).f;
}

static inline __m256i emulate_cvtps_ph(__m512 x) {
    EmulatedLanes v = {.f = x};
    return _mm256_setr_m128i(_mm256_cvtps_ph((__m256)v.half[0], _MM_FROUND_TO_NEAREST_INT),
                             _mm256_cvtps_ph((__m256)v.half[1], _MM_FROUND_TO_NEAREST_INT));
}

SLOW __m512i emulate_maskz_cvtps_epi32(__mmask16 mask, __m512 x) {
    EmulatedLanes v = {.f = x};
    for (int h = 0; h < 2; h++) v.half[h] = _mm256_cvtps_epi32((__m256)v.half[h]);
    return simde_mm512_maskz_mov_epi32(mask, v.i);
}

// Does not read memory of lanes that the mask excludes.
SLOW __m512i emulate_mask_load(__m512i other, __mmask32 mask, const void *p, int size) {
    EmulatedLanes v = {.i = other};
    for (int i = 0; i < 64 / size; i++)
        if (mask >> i & 1) memcpy((char *)&v + i * size, (const char *)p + i * size, (size_t)size);
    return v.i;
}

SLOW void emulate_mask_store(void *p, __mmask32 mask, __m512i x, int size) {
    for (int i = 0; i < 64 / size; i++)
        if (mask >> i & 1) memcpy((char *)p + i * size, (const char *)&x + i * size, (size_t)size);
}

// Reduces in the order of the compilers: the upper half is added to the lower half, repeatedly.
SLOW EmulatedLanes emulate_reduce(EmulatedLanes v, int what) {
    for (int n = 8; n; n /= 2)
        for (int i = 0; i < n; i++) {
            if (what == 'a') v.dwords[i] += v.dwords[i + n];
            if (what == 'A') v.floats[i] += v.floats[i + n];
            if (what == 'm')
                v.dwords[i] = v.dwords[i] > v.dwords[i + n] ? v.dwords[i] : v.dwords[i + n];
            if (what == 'M')
                v.floats[i] = v.floats[i] > v.floats[i + n] ? v.floats[i] : v.floats[i + n];
        }
    return v;
}

SLOW __m512 emulate_scalef(__m512 x, __m512 n) {
    EmulatedLanes v = {.f = x}, by = {.f = n};
    for (int i = 0; i < 16; i++) {
        float e = floorf(by.floats[i]);
        v.floats[i] = e != e ? e : scalbnf(v.floats[i], e < -400 ? -400 : e > 400 ? 400 : (int)e);
    }
    return v.f;
}

// x - floor(x), or 0 for infinities.
SLOW __m512 emulate_fraction(__m512 x) {
    EmulatedLanes v = {.f = x};
    for (int i = 0; i < 16; i++)
        v.floats[i] = isinf(v.floats[i]) ? 0 : v.floats[i] - floorf(v.floats[i]);
    return v.f;
}

#define EMULATE_NO               ((__m512i)simde_mm512_setzero_si512())
#define _mm512_mulhi_epu16(a, b) emulate_mulhi_epu16(a, b)
#define _mm512_cvtph_ps(h)       emulate_cvtph_ps(h)
#undef _mm512_cvtps_ph
#define _mm512_cvtps_ph(x, rounding)   emulate_cvtps_ph(x)
#define _mm512_maskz_cvtps_epi32(m, x) emulate_maskz_cvtps_epi32(m, x)
#define _mm512_cvtps_epi32(x)          emulate_maskz_cvtps_epi32(0xffff, x)
#define _mm512_maskz_loadu_ps(m, p)    ((__m512)emulate_mask_load(EMULATE_NO, m, p, 4))
#define _mm512_mask_load_ps(o, m, p)   ((__m512)emulate_mask_load((__m512i)(o), m, p, 4))
#define _mm512_maskz_loadu_epi16(m, p) emulate_mask_load(EMULATE_NO, m, p, 2)
#define _mm256_maskz_loadu_epi16(m, p)                                                             \
    simde_mm512_castsi512_si256(emulate_mask_load(EMULATE_NO, m, p, 2))
#define _mm512_mask_storeu_ps(p, m, x)    emulate_mask_store(p, m, (__m512i)(x), 4)
#define _mm512_mask_storeu_epi32(p, m, x) emulate_mask_store(p, m, x, 4)
#define _mm256_mask_storeu_epi16(p, m, x)                                                          \
    emulate_mask_store(p, m, simde_mm512_castsi256_si512(x), 2)
#define _mm512_reduce_add_epi32(x) (emulate_reduce((EmulatedLanes){.i = (x)}, 'a').dwords[0])
#define _mm512_reduce_max_epi32(x) (emulate_reduce((EmulatedLanes){.i = (x)}, 'm').dwords[0])
#define _mm512_reduce_add_ps(x)    (emulate_reduce((EmulatedLanes){.f = (x)}, 'A').floats[0])
#define _mm512_reduce_max_ps(x)    (emulate_reduce((EmulatedLanes){.f = (x)}, 'M').floats[0])
#undef _mm512_scalef_ps
#define _mm512_scalef_ps(x, n) emulate_scalef(x, n)
#undef _mm512_reduce_ps
#define _mm512_reduce_ps(x, downwards) emulate_fraction(x)
#undef _mm512_madd_epi16 // SIMDe's alias calls the wrong function
#define _mm512_madd_epi16(a, b) simde_mm512_madd_epi16(a, b)

#endif
