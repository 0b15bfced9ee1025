// Vectors of float32 with the same names for three instruction sets, so that code that does not
// depend on the width of a register is written once (vector_math.h, matmul_float.h, attention.h).
//
// A backend defines VECTOR_BITS before it includes this: 128 (NEON), 256 (AVX2 with FMA and F16C)
// or 512 (AVX-512). Floats is a register of WIDTH floats; + - * and / of Floats are the compiler's
// operators, and these functions exist for all three:
//
//   splat(x)                    x in every lane
//   fmadd(a, b, c)              a * b + c, rounded once; fnmadd(a, b, c): c - a * b
//   min_floats(a, b), max_...   of each lane; b if one of the two is NaN (x86)
//   round_floats(x)             to the nearest integers, ties to even
//   ldexp_floats(x, n)          x * 2^n for integers n between EXP_MIN and EXP_MAX times log2(e)
//   reduce_add(v)               adds the lanes i and i + WIDTH / 2, then i + WIDTH / 4, and so on
//   reduce_max(v)               over the lanes
//   select_first(v, n, other)   the first n lanes of v, the other lanes of `other`
//   load_n(p, n)                the first n values and zeros; n <= 0 and n >= WIDTH are allowed
//   store_n(p, n, v)            the first n values; n as in load_n
//   load_as_floats(type, p, k, n)   load_n from value k of a row of F32, F16 or BF16; of integers
//                               of Q8_0, always WIDTH
//   store_f16(p, n, v)          the first n values as float16
//   max_abs_bits(v, n)          the bits of the largest |x| in n vectors; the bits of a NaN are
//                               larger than those of any number
//   round_int8(v, q)            rounds 16 values to int8, stores them at q and returns their sum
//
// Integers is the same register with integers:
//
//   transpose_rows(out, row, offset)   16 bytes from `offset` on of each of WIDTH rows: out[d]
//                               holds dword d of rows 0 to WIDTH - 1
//   transpose_dwords(...)       the same for any number of columns
//
// SignedWords is Integers as a compiler vector of int32. Only x86:
//
//   round_pairs(a, b)           the nearest int16 of a in the low half of each dword, those of b in
//                               the high half; ties to even
//   select_above(n, k, v, other)   the lanes of v in which the int32 n > k, other lanes of `other`
//   add_pair_products(sum, a, b)   adds the two products of the int16 in each dword
#pragma once

#include "kernels/vector/superblock.h"
#include "kernels/blocks.h"

enum { WIDTH = VECTOR_BITS / 32 };
typedef int32_t SignedWords __attribute__((vector_size(4 * WIDTH)));

// Limits of x in exp_floats(): the powers of two between them are normal numbers.
static const float EXP_MIN = -87;
static const float EXP_MAX = 88;

#if VECTOR_BITS == 128

#include <arm_neon.h>

typedef float32x4_t Floats;
typedef int32x4_t Integers;

INLINE float f16_at(const void *p) {
    __fp16 h;
    memcpy(&h, p, sizeof h);
    return (float)h;
}

INLINE Floats splat(float x) { return vdupq_n_f32(x); }
INLINE Floats fmadd(Floats a, Floats b, Floats c) { return vfmaq_f32(c, a, b); }
INLINE Floats fnmadd(Floats a, Floats b, Floats c) { return vfmsq_f32(c, a, b); }
INLINE Floats min_floats(Floats a, Floats b) { return vminq_f32(a, b); }
INLINE Floats max_floats(Floats a, Floats b) { return vmaxq_f32(a, b); }
INLINE Floats round_floats(Floats x) { return vrndnq_f32(x); }
INLINE float reduce_add(Floats v) { return vaddv_f32(vadd_f32(vget_low_f32(v), vget_high_f32(v))); }
INLINE float reduce_max(Floats v) { return vmaxvq_f32(v); }

INLINE Floats ldexp_floats(Floats x, Floats n) {
    int32x4_t power = vshlq_n_s32(vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127)), 23);
    return vmulq_f32(x, vreinterpretq_f32_s32(power));
}

INLINE Floats select_first(Floats v, int n, Floats other) {
    const int32x4_t lane = {0, 1, 2, 3};
    return vbslq_f32(vcltq_s32(lane, vdupq_n_s32(n)), v, other);
}

INLINE Floats load_n(const float *x, int n) {
    float buffer[4] = {0};
    if (n >= WIDTH) return vld1q_f32(x);
    if (n > 0) memcpy(buffer, x, (size_t)n * sizeof *x);
    return vld1q_f32(buffer);
}

INLINE void store_n(float *x, int n, Floats v) {
    if (n >= WIDTH)
        vst1q_f32(x, v);
    else if (n > 0)
        memcpy(x, &v, (size_t)n * sizeof *x);
}

INLINE Floats load_as_floats(Type type, const void *row, int k, int n) {
    if (type == TYPE_F32) return load_n((const float *)row + k, n);
    if (type == TYPE_Q8_0) {
        int16x8_t v = vmovl_s8(vld1_s8((const int8_t *)row + k / 8 * 8));
        return vcvtq_f32_s32(k % 8 ? vmovl_high_s16(v) : vmovl_s16(vget_low_s16(v)));
    }
    uint16_t buffer[4] = {0};
    const uint16_t *p = (const uint16_t *)row + k;
    if (n < WIDTH) p = n <= 0 ? buffer : memcpy(buffer, p, (size_t)n * 2);
    uint16x4_t h = vld1_u16(p);
    if (type == TYPE_F16) return vcvt_f32_f16(vreinterpret_f16_u16(h));
    return vreinterpretq_f32_u32(vshll_n_u16(h, 16));
}

INLINE void store_f16(uint16_t *p, int n, Floats v) {
    float16x4_t h = vcvt_f16_f32(v);
    memcpy(p, &h, (size_t)min_int(WIDTH, n) * sizeof *p);
}

INLINE int max_abs_bits(const Floats *v, int n) {
    int32x4_t max = vdupq_n_s32(0);
    for (int i = 0; i < n; i++) max = vmaxq_s32(max, vreinterpretq_s32_f32(vabsq_f32(v[i])));
    return vmaxvq_s32(max);
}

INLINE int round_int8(const Floats *v, int8_t *q) {
    int16x4_t h[4];
    for (int i = 0; i < 4; i++) h[i] = vqmovn_s32(vcvtnq_s32_f32(v[i]));
    int8x16_t bytes =
        vcombine_s8(vqmovn_s16(vcombine_s16(h[0], h[1])), vqmovn_s16(vcombine_s16(h[2], h[3])));
    vst1q_s8(q, bytes);
    return vaddlvq_s8(bytes);
}

INLINE void transpose_rows(Integers out[4], const uint8_t *const *row, size_t offset) {
    int32x4_t r[4];
    for (int i = 0; i < 4; i++) r[i] = vreinterpretq_s32_u8(vld1q_u8(row[i] + offset));
    int64x2_t a = vreinterpretq_s64_s32(vtrn1q_s32(r[0], r[1])),
              b = vreinterpretq_s64_s32(vtrn2q_s32(r[0], r[1])),
              c = vreinterpretq_s64_s32(vtrn1q_s32(r[2], r[3])),
              d = vreinterpretq_s64_s32(vtrn2q_s32(r[2], r[3]));
    out[0] = vreinterpretq_s32_s64(vzip1q_s64(a, c));
    out[1] = vreinterpretq_s32_s64(vzip1q_s64(b, d));
    out[2] = vreinterpretq_s32_s64(vzip2q_s64(a, c));
    out[3] = vreinterpretq_s32_s64(vzip2q_s64(b, d));
}

#else

#include <immintrin.h>

INLINE __m128i load_16(const void *p) { return _mm_loadu_si128(p); }
INLINE __m256i load_32(const void *p) { return _mm256_loadu_si256(p); }
INLINE float f16_at(const void *p) { return _cvtsh_ss(load_u16(p)); }

#if VECTOR_BITS == 256

typedef __m256 Floats;
typedef __m256i Integers;

// Mask of the first n lanes.
INLINE __m256i first_lanes(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

INLINE Floats splat(float x) { return _mm256_set1_ps(x); }
INLINE Floats fmadd(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
INLINE Floats fnmadd(Floats a, Floats b, Floats c) { return _mm256_fnmadd_ps(a, b, c); }
INLINE Floats min_floats(Floats a, Floats b) { return _mm256_min_ps(a, b); }
INLINE Floats max_floats(Floats a, Floats b) { return _mm256_max_ps(a, b); }
INLINE Floats round_floats(Floats x) {
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

INLINE Floats ldexp_floats(Floats x, Floats n) {
    __m256i power =
        _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    return _mm256_mul_ps(x, _mm256_castsi256_ps(power));
}

INLINE float reduce_add(Floats v) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

INLINE float reduce_max(Floats v) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

INLINE Floats select_first(Floats v, int n, Floats other) {
    return _mm256_blendv_ps(other, v, _mm256_castsi256_ps(first_lanes(n)));
}

INLINE Floats select_above(Integers n, int k, Floats v, Floats other) {
    __m256i is_above = _mm256_cmpgt_epi32(n, _mm256_set1_epi32(k));
    return _mm256_blendv_ps(other, v, _mm256_castsi256_ps(is_above));
}

INLINE Integers round_pairs(Floats a, Floats b) {
    Integers high = _mm256_slli_epi32(_mm256_cvtps_epi32(b), 16);
    return _mm256_blend_epi16(_mm256_cvtps_epi32(a), high, 0xaa);
}

INLINE SignedWords add_pair_products(SignedWords sum, Integers a, Integers b) {
#ifdef __AVXVNNI__
    return (SignedWords)_mm256_dpwssd_avx_epi32((__m256i)sum, a, b);
#else
    return sum + (SignedWords)_mm256_madd_epi16(a, b);
#endif
}

INLINE Floats load_n(const float *x, int n) {
    if (n >= WIDTH) return _mm256_loadu_ps(x);
    return n <= 0 ? _mm256_setzero_ps() : _mm256_maskload_ps(x, first_lanes(n));
}

INLINE void store_n(float *x, int n, Floats v) {
    if (n >= WIDTH)
        _mm256_storeu_ps(x, v);
    else if (n > 0)
        _mm256_maskstore_ps(x, first_lanes(n), v);
}

INLINE Floats load_as_floats(Type type, const void *row, int k, int n) {
    if (type == TYPE_F32) return load_n((const float *)row + k, n);
    if (type == TYPE_Q8_0)
        return _mm256_cvtepi32_ps(
            _mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)((const int8_t *)row + k))));
    uint16_t buffer[8] = {0};
    const uint16_t *p = (const uint16_t *)row + k;
    if (n < WIDTH) p = n <= 0 ? buffer : memcpy(buffer, p, (size_t)n * 2);
    __m128i h = load_16(p);
    if (type == TYPE_F16) return _mm256_cvtph_ps(h);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

INLINE void store_f16(uint16_t *p, int n, Floats v) {
    __m128i h = _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT);
    memcpy(p, &h, (size_t)min_int(WIDTH, n) * 2);
}

INLINE int max_abs_bits(const Floats *v, int n) {
    const __m256i abs = _mm256_set1_epi32(0x7fffffff);
    __m256i bits = _mm256_setzero_si256();
    for (int i = 0; i < n; i++)
        bits = _mm256_max_epi32(bits, _mm256_and_si256(_mm256_castps_si256(v[i]), abs));
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1)));
}

INLINE int round_int8(const Floats *v, int8_t *q) {
    __m256i low = _mm256_cvtps_epi32(v[0]), high = _mm256_cvtps_epi32(v[1]);
    __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8);
    _mm_storeu_si128((void *)q, _mm_packs_epi16(_mm256_castsi256_si128(words),
                                                _mm256_extracti128_si256(words, 1)));
    __m256i both = _mm256_add_epi32(low, high);
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

// 16 bytes from each of two places.
INLINE __m256i load_halves(const void *low, const void *high) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(load_16(low)), load_16(high), 1);
}

// r[i]: rows i and 4 + i in the two 128-bit lanes.
INLINE void transpose_rows(Integers out[4], const uint8_t *const *row, size_t offset) {
    Integers r[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) r[i] = load_halves(row[i] + offset, row[i + 4] + offset);
    Integers a = _mm256_unpacklo_epi32(r[0], r[1]), b = _mm256_unpackhi_epi32(r[0], r[1]);
    Integers c = _mm256_unpacklo_epi32(r[2], r[3]), d = _mm256_unpackhi_epi32(r[2], r[3]);
    out[0] = _mm256_unpacklo_epi64(a, c);
    out[1] = _mm256_unpackhi_epi64(a, c);
    out[2] = _mm256_unpacklo_epi64(b, d);
    out[3] = _mm256_unpackhi_epi64(b, d);
}

#else // 512

typedef __m512 Floats;
typedef __m512i Integers;

// Mask of the first n lanes.
INLINE __mmask16 first_lanes(int n) {
    if (n >= 16) return 0xffff;
    return (__mmask16)(n > 0 ? (1 << n) - 1 : 0);
}

// 16 signed bytes.
INLINE __m512 bytes_to_floats(const void *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_16(p)));
}

INLINE Floats splat(float x) { return _mm512_set1_ps(x); }
INLINE Floats fmadd(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
INLINE Floats fnmadd(Floats a, Floats b, Floats c) { return _mm512_fnmadd_ps(a, b, c); }
INLINE Floats min_floats(Floats a, Floats b) { return _mm512_min_ps(a, b); }
INLINE Floats max_floats(Floats a, Floats b) { return _mm512_max_ps(a, b); }
INLINE Floats round_floats(Floats x) {
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
INLINE Floats ldexp_floats(Floats x, Floats n) { return _mm512_scalef_ps(x, n); }
INLINE float reduce_add(Floats v) {
    __m256 h = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
INLINE float reduce_max(Floats v) { return _mm512_reduce_max_ps(v); }
INLINE Floats select_first(Floats v, int n, Floats other) {
    return _mm512_mask_mov_ps(other, first_lanes(n), v);
}
INLINE Floats select_above(Integers n, int k, Floats v, Floats other) {
    return _mm512_mask_mov_ps(other, _mm512_cmpgt_epi32_mask(n, _mm512_set1_epi32(k)), v);
}
INLINE Integers round_pairs(Floats a, Floats b) {
    Integers high = _mm512_slli_epi32(_mm512_cvtps_epi32(b), 16);
    return _mm512_mask_mov_epi16(_mm512_cvtps_epi32(a), 0xaaaaaaaa, high);
}
INLINE SignedWords add_pair_products(SignedWords sum, Integers a, Integers b) {
    return (SignedWords)_mm512_dpwssd_epi32((__m512i)sum, a, b);
}
// Full vectors are loaded without a mask, because the hardware prefetcher of Zen 5 ignores masked
// loads: with them, quantize_int8 took 4.6 and vector_swiglu 3.2 times as long where x was not in
// the caches (2026-11-29).
INLINE Floats load_n(const float *x, int n) {
    if (n >= WIDTH) return _mm512_loadu_ps(x);
    return _mm512_maskz_loadu_ps(first_lanes(n), x);
}
INLINE void store_n(float *x, int n, Floats v) { _mm512_mask_storeu_ps(x, first_lanes(n), v); }

INLINE Floats load_as_floats(Type type, const void *row, int k, int n) {
    if (type == TYPE_F32) return load_n((const float *)row + k, n);
    if (type == TYPE_Q8_0) return bytes_to_floats((const int8_t *)row + k);
    __m256i h = _mm256_maskz_loadu_epi16(first_lanes(n), (const uint16_t *)row + k);
    if (type == TYPE_F16) return _mm512_cvtph_ps(h);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

INLINE void store_f16(uint16_t *p, int n, Floats v) {
    _mm256_mask_storeu_epi16(p, first_lanes(n), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

INLINE int max_abs_bits(const Floats *v, int n) {
    __m512i bits = _mm512_setzero_si512();
    for (int i = 0; i < n; i++)
        bits = _mm512_max_epi32(
            bits, _mm512_and_si512(_mm512_castps_si512(v[i]), _mm512_set1_epi32(0x7fffffff)));
    return _mm512_reduce_max_epi32(bits);
}

INLINE int round_int8(const Floats *v, int8_t *q) {
    __m512i integers = _mm512_cvtps_epi32(v[0]);
    _mm_storeu_si128((void *)q, _mm512_cvtsepi32_epi8(integers));
    return _mm512_reduce_add_epi32(integers);
}

// Loads four dwords of 16 rows from a byte offset and transposes them: out[i] has dword i of all
// rows. A masked broadcast puts 16 bytes of a row into any lane of a register without a shuffle, so
// only eight shuffles remain:
//
//   r[i]     rows i, 4 + i, 8 + i, 12 + i in the four 128-bit lanes, dwords d0 d1 d2 d3 of each
//   a, b     unpacklo, unpackhi of r[0], r[1]:  {r0.d0, r1.d0, r0.d1, r1.d1}, {r0.d2, r1.d2, ...}
//   c, d     the same of r[2], r[3]
//   out[0]   {r0.d0, r1.d0, r2.d0, r3.d0} in each lane, which is rows 0 to 15 in order
// Lane i of r[n] holds 16 bytes of row 4 i + n: out as transpose_rows() returns it.
INLINE void transpose_lanes(Integers out[4], const Integers r[4]) {
    Integers a = _mm512_unpacklo_epi32(r[0], r[1]), b = _mm512_unpackhi_epi32(r[0], r[1]);
    Integers c = _mm512_unpacklo_epi32(r[2], r[3]), d = _mm512_unpackhi_epi32(r[2], r[3]);
    out[0] = _mm512_unpacklo_epi64(a, c);
    out[1] = _mm512_unpackhi_epi64(a, c);
    out[2] = _mm512_unpacklo_epi64(b, d);
    out[3] = _mm512_unpackhi_epi64(b, d);
}

INLINE void transpose_rows(Integers out[4], const uint8_t *const *row, size_t offset) {
    Integers r[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const uint8_t *const *p = row + i;
        r[i] = _mm512_broadcast_i32x4(load_16(p[0] + offset));
        r[i] = _mm512_mask_broadcast_i32x4(r[i], 0x00f0, load_16(p[4] + offset));
        r[i] = _mm512_mask_broadcast_i32x4(r[i], 0x0f00, load_16(p[8] + offset));
        r[i] = _mm512_mask_broadcast_i32x4(r[i], 0xf000, load_16(p[12] + offset));
    }
    transpose_lanes(out, r);
}

#endif

#endif

// out[i / step][j] = in[j][i] of n x WIDTH dwords, for each i that is a multiple of `step`. Strides
// are in bytes; out and its stride are multiples of the size of a register. Columns up to the next
// multiple of 4 are read and written as well.
INLINE void transpose_dwords(void *out, size_t out_stride, const void *in, size_t in_stride, int n,
                             int step) {
    const uint8_t *row[WIDTH];
    for (int i = 0; i < WIDTH; i++) row[i] = (const uint8_t *)in + (size_t)i * in_stride;
    for (int i = 0; i < n; i += 4) {
        Integers r[4];
        transpose_rows(r, row, (size_t)i * 4);
        for (int d = 0; d < 4; d += step)
            *(Integers *)((char *)out + (size_t)((i + d) / step) * out_stride) = r[d];
    }
}
