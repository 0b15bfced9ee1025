// AVX2: 256 columns of every integer type in 8-bit integers, row by row, and the scales of eight
// rows at a time. The integers are u, or u - offset where u takes 8 bits; scales and what is
// subtracted lie as [group][8 rows], for groups of 16 or 32 as the type has them.
#ifndef BACKENDS_AVX2_UNPACK_H
#define BACKENDS_AVX2_UNPACK_H

#include "../kernels/backends.h"
#include "../kernels/codebook.h"
#include "superblock.h"

#include <immintrin.h>

INLINE __m256i load_32(const void *p) { return _mm256_loadu_si256(p); }
INLINE void store_32(void *p, __m256i v) { _mm256_storeu_si256(p, v); }
INLINE float f16_at(const void *p) { return _cvtsh_ss(load_u16(p)); }

typedef uint32_t Words __attribute__((vector_size(32)));
typedef const uint8_t *const Rows[8]; // where a unit of eight rows begins

// 16 bytes from each of two places.
INLINE __m256i load_both(const void *a, const void *b) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(a)), _mm_loadu_si128(b),
                                   1);
}

// 32 nibbles of 16 bytes: the low ones, then the high ones.
INLINE __m256i nibbles(const uint8_t *p) {
    __m128i v = _mm_loadu_si128((const void *)p);
    __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(v), _mm_srli_epi16(v, 4), 1);
    return _mm256_and_si256(both, _mm256_set1_epi8(15));
}

// 32 bits as bytes of 0 or -1.
INLINE __m256i spread_bits(uint32_t bits) {
    const __m256i byte =
        _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201);
    __m256i v = _mm256_shuffle_epi8(_mm256_set1_epi32((int)bits), byte);
    return _mm256_cmpeq_epi8(_mm256_and_si256(v, bit), bit);
}
INLINE __m256i fifth_bits(const uint8_t *p) {
    return _mm256_and_si256(spread_bits(load_u32(p)), _mm256_set1_epi8(16));
}

// Bits moved up by n, or down by -n, within words of 16.
INLINE __m256i shift_words(__m256i v, int n) {
    return n < 0 ? _mm256_srli_epi16(v, -n) : _mm256_slli_epi16(v, n);
}

INLINE __m256i iq4_lookup(__m256i index) {
    return _mm256_shuffle_epi8(
        _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)kvalues_iq4nl)), index);
}

// True for types that keep 32 weights in 16 bytes and nowhere else; where these of a unit lie from
// column k on; what a byte's lower half stands for.
INLINE bool is_nibbles(Type type) {
    return type == TYPE_Q4_0 || type == TYPE_Q4_1 || type == TYPE_IQ4_NL || type == TYPE_IQ4_XS;
}
INLINE int nibbles_at(Type type, int k) {
    const int bytes = type_info(type)->bytes; // of a block, whose last 16 they are
    return type == TYPE_IQ4_XS ? (int)offsetof(BlockIQ4_XS, qs) + k / 2 : (k / 32 + 1) * bytes - 16;
}
INLINE __m256i nibble_values(Type type, __m256i v) {
    v = _mm256_and_si256(v, _mm256_set1_epi8(15));
    return type == TYPE_IQ4_NL || type == TYPE_IQ4_XS ? iq4_lookup(v) : v;
}

// 32 integers of a unit, from column k on, which is known when compiled.
INLINE __m256i integers_of(Type type, const uint8_t *p, int k) {
    const __m256i two_bits = _mm256_set1_epi8(3), four_bits = _mm256_set1_epi8(15);
    const uint8_t *b = p + k / 32 * type_info(type)->bytes; // of types with blocks of 32
    const int s = k / 32;
    __m256i v, high;
    switch (type) {
    case TYPE_Q8_0: return load_32(b + offsetof(BlockQ8_0, qs));
    case TYPE_Q4_0:
    case TYPE_Q4_1:
    case TYPE_IQ4_NL:
    case TYPE_IQ4_XS: return nibble_values(type, nibbles(p + nibbles_at(type, k)));
    case TYPE_Q5_0: return _mm256_or_si256(nibbles(b + 6), fifth_bits(b + 2));
    case TYPE_Q5_1: return _mm256_or_si256(nibbles(b + 8), fifth_bits(b + 4));
    case TYPE_Q4_K:
        v = load_32(p + offsetof(BlockQ4_K, qs) + k / 64 * 32);
        return _mm256_and_si256(k % 64 ? _mm256_srli_epi16(v, 4) : v, four_bits);
    case TYPE_Q5_K:
        v = load_32(p + offsetof(BlockQ5_K, qs) + k / 64 * 32);
        v = _mm256_and_si256(k % 64 ? _mm256_srli_epi16(v, 4) : v, four_bits);
        high = shift_words(load_32(p + offsetof(BlockQ5_K, qh)), 4 - s);
        return _mm256_or_si256(v, _mm256_and_si256(high, _mm256_set1_epi8(16)));
    case TYPE_Q6_K:
        v = load_32(p + k / 128 * 64 + k % 64);
        v = _mm256_and_si256(k % 128 < 64 ? v : _mm256_srli_epi16(v, 4), four_bits);
        high = shift_words(load_32(p + offsetof(BlockQ6_K, qh) + k / 128 * 32), 4 - 2 * (s % 4));
        return _mm256_or_si256(v, _mm256_and_si256(high, _mm256_set1_epi8(0x30)));
    case TYPE_Q2_K:
        v = load_32(p + offsetof(BlockQ2_K, qs) + k / 128 * 32);
        return _mm256_and_si256(shift_words(v, -2 * (s % 4)), two_bits);
    case TYPE_TQ2_0:
        return _mm256_and_si256(shift_words(load_32(p + k / 128 * 32), -2 * (s % 4)), two_bits);
    case TYPE_Q3_K:
        v = shift_words(load_32(p + offsetof(BlockQ3_K, qs) + k / 128 * 32), -2 * (s % 4));
        high = shift_words(load_32(p + offsetof(BlockQ3_K, hmask)), 2 - s);
        return _mm256_or_si256(_mm256_and_si256(v, two_bits),
                               _mm256_and_si256(high, _mm256_set1_epi8(4)));
    default: return _mm256_setzero_si256();
    }
}

// True for the types that integers_of knows; the others come a whole unit at a time.
INLINE bool is_direct(Type type) { return !codebook_info(type)->entry_len && type != TYPE_TQ1_0; }

// True where integers_of costs little (Q6_K 8 %, others 10 to 15 % faster so, the rest up to 5 %
// slower).
INLINE bool is_simple(Type type) {
    return is_direct(type) && type != TYPE_Q5_0 && type != TYPE_Q5_1 && type != TYPE_Q5_K &&
           type != TYPE_Q3_K;
}

// The eighth sign of each byte makes their number even.
INLINE Words even(Words signs) {
    Words parity = signs ^ signs << 4;
    parity ^= parity << 2;
    return signs | ((parity ^ parity << 1) & 0x80808080);
}

// The words that hold the signs and scales of eight groups: of IQ2_XXS every second one.
INLINE Words sign_words(Type type, const void *block) {
    if (type == TYPE_IQ1_S)
        return (Words)_mm256_cvtepu16_epi32(
            _mm_loadu_si128((const void *)((const BlockIQ1_S *)block)->qh));
    if (type == TYPE_IQ3_XXS) return (Words)load_32(((const BlockIQ3_XXS *)block)->signs);
    const uint8_t *p = ((const BlockIQ2_XXS *)block)->qs;
    __m256 odd = _mm256_shuffle_ps(_mm256_castsi256_ps(load_32(p)),
                                   _mm256_castsi256_ps(load_32(p + 32)), 0xdd);
    return (Words)_mm256_permute4x64_epi64(_mm256_castps_si256(odd), 0xd8);
}

// Eight bytes times d.
INLINE void eight_scales(uint64_t bytes, float d, float *out) {
    __m256i s = _mm256_cvtepi8_epi32(_mm_cvtsi64_si128((long long)bytes));
    _mm256_storeu_ps(out, _mm256_mul_ps(_mm256_cvtepi32_ps(s), _mm256_set1_ps(d)));
}

// Of eight groups at once what codebook_group says of the signs in `minus`; the odd numbers, one
// for each group, of 16 or of 32, times d.
INLINE Words points_signs(Type type, const void *block, float d, float *scale) {
    const uint64_t nibble = 0x0f0f0f0f0f0f0f0f, ones = 0x0101010101010101;
    const BlockIQ1_M *m = block;
    const BlockIQ2_XS *xs = block;
    const BlockIQ2_S *s2 = block;
    const BlockIQ3_S *s3 = block;
    Words v = {0};
    if (type == TYPE_IQ2_XXS || type == TYPE_IQ3_XXS || type == TYPE_IQ1_S) {
        v = sign_words(type, block);
        Words odd = 2 * (type == TYPE_IQ1_S ? v >> 12 & 7 : v >> 28) + 1;
        _mm256_storeu_ps(scale, _mm256_cvtepi32_ps((__m256i)odd) * _mm256_set1_ps(d));
        if (type == TYPE_IQ1_S) return 0 - (v >> 15);
        return even((v & 0x7f) | (v & 0x3f80) << 1 | (v & 0x1fc000) << 2 | (v & 0xfe00000) << 3);
    }
    for (int h = 0; h < 2 && type != TYPE_IQ3_S; h++) {
        uint64_t s =
            type == TYPE_IQ1_M
                ? _pdep_u64(_pext_u32(load_u32(m->scales + 4 * h), 0x0fff0fff), 7 * ones)
                : _pdep_u64(load_u32((type == TYPE_IQ2_S ? s2->scales : xs->scales) + 4 * h),
                            nibble);
        eight_scales(2 * s + ones, d, scale + 8 * h);
    }
    if (type == TYPE_IQ3_S)
        eight_scales(2 * _pdep_u64(load_u32(s3->scales), nibble) + ones, d, scale);
    if (type == TYPE_IQ2_S) v = (Words)load_32(s2->signs);
    if (type == TYPE_IQ3_S) v = (Words)load_32(s3->signs);
    if (type == TYPE_IQ2_XS) {
        __m256i sevens = _mm256_packus_epi16(_mm256_srli_epi16(load_32(xs->qs), 9),
                                             _mm256_srli_epi16(load_32(xs->qs + 32), 9));
        v = even((Words)_mm256_permute4x64_epi64(sevens, 0xd8));
    }
    for (int g = 0; g < 8 && type == TYPE_IQ1_M; g++)
        v[g] = _pdep_u32(_pext_u32(load_u16(m->qh + 2 * g), 0x8888), (uint32_t)ones) * 255;
    return v;
}

// The indices of IQ3_S, whose ninth bits lie apart.
INLINE void iq3_s_index(const BlockIQ3_S *b, uint16_t index[64]) {
    const __m256i up = _mm256_broadcastsi128_si256(_mm_setr_epi16(256, 128, 64, 32, 16, 8, 4, 2));
    const __m256i byte = _mm256_setr_epi64x(0, 0, 0x0001000100010001, 0x0001000100010001);
    __m256i all = _mm256_set1_epi64x((int64_t)load_u64(b->qh));
    for (int i = 0; i < 4; i++) {
        __m256i at = _mm256_add_epi8(byte, _mm256_set1_epi16((short)(0x8000 | 2 * i)));
        __m256i high = _mm256_mullo_epi16(_mm256_shuffle_epi8(all, at), up);
        __m256i low = _mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)(b->qs + 16 * i)));
        high = _mm256_and_si256(high, _mm256_set1_epi16(0x100));
        store_32(index + 16 * i, _mm256_or_si256(low, high));
    }
    // Else gcc takes them out of the registers one by one, which is slower (20 %).
    __asm__ volatile("" ::: "memory");
}

// 32 points: loaded one by one, since gathers are slow on many machines.
INLINE __m256i load_points(Type type, const void *block, const uint16_t *index, int g) {
    CodebookGroup p = codebook_group(type, block, g);
    const int8_t *const *e = p.entries8, *const *f = p.entries4;
    for (int k = 0; type == TYPE_IQ3_S && k < 8; k++)
        p.entries4[k] = (codebook_entries4 + CODEBOOK_IQ3_S_AT)[index[8 * g + k]];
    if (codebook_info(type)->entry_len == 4)
        return _mm256_setr_epi32((int)load_u32(f[0]), (int)load_u32(f[1]), (int)load_u32(f[2]),
                                 (int)load_u32(f[3]), (int)load_u32(f[4]), (int)load_u32(f[5]),
                                 (int)load_u32(f[6]), (int)load_u32(f[7]));
    return _mm256_setr_epi64x((int64_t)load_u64(e[0]), (int64_t)load_u64(e[1]),
                              (int64_t)load_u64(e[2]), (int64_t)load_u64(e[3]));
}

INLINE void unpack_points(Type type, const void *block, int8_t *q, float *scale) {
    const __m256i offset = _mm256_set1_epi8((char)type_info(type)->zero_point),
                  eight = _mm256_set1_epi8(8), one = _mm256_set1_epi8(1);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201);
    const __m256i byte = _mm256_setr_epi64x(0, 0x0101010101010101, 0, 0x0101010101010101);
    uint16_t h = codebook_d(type, block);
    __m256i signs =
        (__m256i)points_signs(type, block, f16_at(&h) * codebook_info(type)->factor, scale);
    uint16_t index[64];
    if (type == TYPE_IQ3_S) iq3_s_index(block, index);
    // The lower half of each group's signs into the lower lane.
    signs = _mm256_shufflelo_epi16(_mm256_shufflehi_epi16(signs, 0xd8), 0xd8);
    signs = _mm256_permutevar8x32_epi32(signs, _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));
#pragma GCC unroll 8
    for (int g = 0; g < 8; g++) {
        __m256i v = load_points(type, block, index, g),
                less = _mm256_shuffle_epi8(signs,
                                           _mm256_add_epi8(byte, _mm256_set1_epi8((char)(2 * g))));
        less = _mm256_or_si256(_mm256_cmpeq_epi8(_mm256_and_si256(less, bit), bit), one);
        if (codebook_info(type)->has_delta) // 8 v, less or more one
            v = _mm256_add_epi8(_mm256_sign_epi8(eight, v), less);
        else
            v = _mm256_sign_epi8(v, less);
        store_32(q + 32 * g, _mm256_add_epi8(v, offset));
    }
}

// Five trits of each byte: what a power of three leaves of it, times 3, overflows by.
INLINE void unpack_tq1_0(const void *block, int8_t *q) {
    const BlockTQ1_0 *b = block;
    const __m256i three = _mm256_set1_epi16(3);
    uint8_t bytes[64] = {0}; // 32 and 16 of five, 4 of four
    memcpy(bytes, b->qs, 52);
    for (int h = 0; h < 2; h++) {
        __m256i v = load_32(bytes + 32 * h), zero = _mm256_setzero_si256();
        __m256i low = _mm256_unpacklo_epi8(zero, v), high = _mm256_unpackhi_epi8(zero, v);
        for (int n = 0; n < 5; n++) {
            v = _mm256_packus_epi16(_mm256_mulhi_epu16(low, three),
                                    _mm256_mulhi_epu16(high, three));
            low = _mm256_mullo_epi16(low, three), high = _mm256_mullo_epi16(high, three);
            if (!h) store_32(q + 32 * n, v);
            if (h) _mm_storeu_si128((void *)(q + 160 + 16 * n), _mm256_castsi256_si128(v));
            int last = _mm256_extract_epi32(v, 4);
            if (h && n < 4) memcpy(q + 240 + 4 * n, &last, 4);
        }
    }
}

// Words 0 to 3 from byte `at` of eight rows on.
INLINE void rows_words(Rows p, int at, Words w[4]) {
    __m256i r[4];
    for (int i = 0; i < 4; i++)
        r[i] = _mm256_inserti128_si256(
            _mm256_castsi128_si256(_mm_loadu_si128((const void *)(p[i] + at))),
            _mm_loadu_si128((const void *)(p[i + 4] + at)), 1);
    __m256i low0 = _mm256_unpacklo_epi32(r[0], r[1]), low1 = _mm256_unpacklo_epi32(r[2], r[3]);
    __m256i high0 = _mm256_unpackhi_epi32(r[0], r[1]), high1 = _mm256_unpackhi_epi32(r[2], r[3]);
    w[0] = (Words)_mm256_unpacklo_epi64(low0, low1);
    w[1] = (Words)_mm256_unpackhi_epi64(low0, low1);
    w[2] = (Words)_mm256_unpacklo_epi64(high0, high1);
    w[3] = (Words)_mm256_unpackhi_epi64(high0, high1);
}

// The float16 in the lower and in the upper half of each word.
INLINE void halves(Words w, __m256 *low, __m256 *high) {
    __m256i v = _mm256_packus_epi32((__m256i)(w & 0xffff), (__m256i)(w >> 16));
    v = _mm256_permute4x64_epi64(v, 0xd8);
    *low = _mm256_cvtph_ps(_mm256_castsi256_si128(v));
    *high = _mm256_cvtph_ps(_mm256_extracti128_si256(v, 1));
}

// The signed byte of each word that begins at bit `at`, times d.
INLINE void byte_scales(float (*out)[8], Words w, int at, __m256 d) {
    __m256i s = _mm256_srai_epi32(_mm256_slli_epi32((__m256i)w, 24 - at), 24);
    _mm256_store_ps(out[0], _mm256_mul_ps(_mm256_cvtepi32_ps(s), d));
}
INLINE void four_scales(float (*out)[8], Words w, __m256 d) {
    for (int i = 0; i < 4; i++) byte_scales(out + i, w, 8 * i, d);
}
INLINE Words less_32(Words w) { return (Words)_mm256_sub_epi8((__m256i)w, _mm256_set1_epi8(32)); }

// Q4_K and Q5_K: 8 scales and 8 minima of 6 bits.
INLINE void scales_q4_k(Rows p, float (*scale)[8], float (*base)[8]) {
    const uint32_t six = 0x3f3f3f3f, four = 0x0f0f0f0f, top = 0x30303030;
    Words w[4];
    __m256 d, dmin;
    rows_words(p, 0, w);
    halves(w[0], &d, &dmin);
    four_scales(scale, w[1] & six, d);
    four_scales(scale + 4, (w[3] & four) | (w[1] >> 2 & top), d);
    four_scales(base, w[2] & six, dmin);
    four_scales(base + 4, (w[3] >> 4 & four) | (w[2] >> 2 & top), dmin);
}

INLINE void scales_q6_k(Rows p, float (*scale)[8]) {
    Words w[4];
    __m256 none, d;
    rows_words(p, offsetof(BlockQ6_K, d) - 14, w);
    halves(w[3], &none, &d);
    rows_words(p, offsetof(BlockQ6_K, scales), w);
    for (int i = 0; i < 4; i++) four_scales(scale + 4 * i, w[i], d);
}

INLINE void scales_q2_k(Rows p, float (*scale)[8], float (*base)[8]) {
    Words w[4];
    __m256 d, dmin;
    rows_words(p, offsetof(BlockQ2_K, d) - 12, w);
    halves(w[3], &d, &dmin);
    rows_words(p, 0, w);
    for (int i = 0; i < 4; i++) {
        four_scales(scale + 4 * i, w[i] & 0x0f0f0f0f, d);
        four_scales(base + 4 * i, w[i] >> 4 & 0x0f0f0f0f, dmin);
    }
}

INLINE void scales_q3_k(Rows p, float (*scale)[8]) {
    const uint32_t four = 0x0f0f0f0f, top = 0x30303030;
    Words w[4], a[3];
    __m256 none, d;
    rows_words(p, offsetof(BlockQ3_K, scales) - 2, w);
    halves(w[3], &none, &d);
    for (int i = 0; i < 3; i++) a[i] = w[i] >> 16 | w[i + 1] << 16;
    four_scales(scale, less_32((a[0] & four) | (a[2] << 4 & top)), d);
    four_scales(scale + 4, less_32((a[1] & four) | (a[2] << 2 & top)), d);
    four_scales(scale + 8, less_32((a[0] >> 4 & four) | (a[2] & top)), d);
    four_scales(scale + 12, less_32((a[1] >> 4 & four) | (a[2] >> 2 & top)), d);
}

INLINE void scales_iq4_xs(Rows p, float (*scale)[8]) {
    Words w[4];
    __m256 d, none;
    rows_words(p, 0, w);
    halves(w[0], &d, &none);
    for (int g = 0; g < 8; g++) {
        Words s = (w[1] >> 4 * g & 15) | (w[0] >> (16 + 2 * g) << 4 & 0x30);
        byte_scales(scale + g, s - 32, 0, d);
    }
}

// The float16 at byte `at` of eight rows.
INLINE __m256 rows_f16(Rows p, int at) {
    return _mm256_cvtph_ps(_mm_setr_epi16((short)load_u16(p[0] + at), (short)load_u16(p[1] + at),
                                          (short)load_u16(p[2] + at), (short)load_u16(p[3] + at),
                                          (short)load_u16(p[4] + at), (short)load_u16(p[5] + at),
                                          (short)load_u16(p[6] + at), (short)load_u16(p[7] + at)));
}

// What the integers of eight rows are multiplied by, and what is subtracted from their products if
// the type has minima. (Those of points come with them.)
INLINE void unpack_scales(Type type, Rows p, float (*scale)[8], float (*base)[8]) {
    const TypeInfo *info = type_info(type);
    if (type == TYPE_Q4_K || type == TYPE_Q5_K) scales_q4_k(p, scale, base);
    if (type == TYPE_Q6_K) scales_q6_k(p, scale);
    if (type == TYPE_Q2_K) scales_q2_k(p, scale, base);
    if (type == TYPE_Q3_K) scales_q3_k(p, scale);
    if (type == TYPE_IQ4_XS) scales_iq4_xs(p, scale);
    for (int g = 0; g < 8 && info->block == 32; g++) {
        _mm256_store_ps(scale[g], rows_f16(p, g * info->bytes));
        if (info->has_min)
            _mm256_store_ps(base[g], _mm256_setzero_ps() - rows_f16(p, g * info->bytes + 2));
    }
    if (type == TYPE_TQ1_0 || type == TYPE_TQ2_0) {
        __m256 d = rows_f16(p, info->bytes - 2);
        for (int g = 0; g < 8; g++) _mm256_store_ps(scale[g], d);
    }
}

// The integers of a row's unit; of points also the scales, one for each group.
INLINE void unpack_unit(Type type, const uint8_t *p, int8_t *q, float *scale) {
    if (is_direct(type))
#pragma GCC unroll 8
        for (int k = 0; k < SUPERBLOCK; k += 32) store_32(q + k, integers_of(type, p, k));
    if (type == TYPE_TQ1_0) unpack_tq1_0(p, q);
    if (codebook_info(type)->entry_len) unpack_points(type, p, q, scale);
}

#endif
