// Unpacking that AVX2 and AVX-512 share: the scales and minima of WIDTH rows at a time (8 or 16),
// and the integers of TQ1_0.
//
// The scales of one row are a few small integers, which would leave most of a register empty.
// Therefore 16 bytes of each of WIDTH rows are transposed. A vector then holds the same dword of
// all rows, and the scales of all rows are extracted by the same shifts and masks.
#pragma once

#include "kernels/vector/vector.h"
#include "kernels/codebook.h"

// Vectors with one dword for each of WIDTH rows.
typedef uint32_t Words __attribute__((vector_size(4 * WIDTH)));
typedef int8_t Bytes __attribute__((vector_size(4 * WIDTH)));

// w[d] holds the dword at byte at + 4 d of each row.
INLINE void load_words(const uint8_t *const *row, int at, Words w[4]) {
    transpose_rows((Integers *)w, row, (size_t)at);
}

#if VECTOR_BITS == 256

// Converts the float16 in the lower and in the upper half of each dword.
INLINE void f16_halves(Words w, Floats *low, Floats *high) {
    __m256i v = _mm256_packus_epi32((__m256i)(w & 0xffff), (__m256i)(w >> 16));
    v = _mm256_permute4x64_epi64(v, 0xd8);
    *low = _mm256_cvtph_ps(_mm256_castsi256_si128(v));
    *high = _mm256_cvtph_ps(_mm256_extracti128_si256(v, 1));
}

// The float16 at byte `at` of each row.
INLINE Floats load_f16_rows(const uint8_t *const *row, int at) {
    short h[8];
    for (int i = 0; i < 8; i++) h[i] = (short)load_u16(row[i] + at);
    return _mm256_cvtph_ps(_mm_setr_epi16(h[0], h[1], h[2], h[3], h[4], h[5], h[6], h[7]));
}

// The float16 at bytes `at` and at + 2 of each row.
INLINE void load_f16_pairs(const uint8_t *const *row, int at, Floats *first, Floats *second) {
    *first = load_f16_rows(row, at);
    *second = load_f16_rows(row, at + 2);
}

#else

INLINE void f16_halves(Words w, Floats *low, Floats *high) {
    *low = _mm512_cvtph_ps(_mm512_cvtepi32_epi16((__m512i)w));
    *high = _mm512_cvtph_ps(_mm512_cvtepi32_epi16((__m512i)(w >> 16)));
}

INLINE void load_f16_pairs(const uint8_t *const *row, int at, Floats *first, Floats *second) {
    __m512i r[4]; // rows 4 i to 4 i + 3 in lane i of the dwords
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        r[i] = _mm512_set1_epi32((int)load_u32(row[4 * i] + at));
        for (int k = 1; k < 4; k++)
            r[i] = _mm512_mask_set1_epi32(r[i], (__mmask16)(0x1111 << k),
                                          (int)load_u32(row[4 * i + k] + at));
    }
    __m512i v = _mm512_mask_blend_epi32(0x00f0, r[0], r[1]);
    v = _mm512_mask_blend_epi32(0xff00, v, _mm512_mask_blend_epi32(0xf000, r[2], r[3]));
    f16_halves((Words)v, first, second);
}

#endif

// The integer scales of a superblock of WIDTH rows and, where the type has them, its minima, as
// signed bytes: that of group g is byte g % 4 of dword g / 4. In Q2_K, the byte in `scales` has the
// scale in its low nibble and the minimum in its high one. They are multiplied by d or dmin.
typedef struct {
    Words scales[SUPERBLOCK_GROUPS / 4], mins[SUPERBLOCK_GROUPS / 4];
    Floats d, dmin;
} ScaleBytes;

INLINE Floats scale_of_group(Type type, const ScaleBytes *s, int g) {
    SignedWords w = (SignedWords)(s->scales[g / 4] << (24 - 8 * (g % 4))) >> 24;
    if (type == TYPE_Q2_K) w = (SignedWords)(s->scales[g / 4] >> 8 * (g % 4) & 15);
    return __builtin_convertvector(w, Floats) * s->d;
}
INLINE Floats min_of_group(Type type, const ScaleBytes *s, int g) {
    SignedWords w = (SignedWords)(s->mins[g / 4] << (24 - 8 * (g % 4))) >> 24;
    if (type == TYPE_Q2_K) w = (SignedWords)(s->scales[g / 4] >> (8 * (g % 4) + 4) & 15);
    return __builtin_convertvector(w, Floats) * s->dmin;
}

INLINE Words bytes_minus_32(Words w) { return (Words)((Bytes)w - 32); }

// Q4_K and Q5_K: d and dmin, then 8 scales and 8 minima of 6 bits in 12 bytes:
//
//   byte        4  5  6  7    8  9 10 11    12    13    14    15
//   bits 0-3   s0 s1 s2 s3   m0 m1 m2 m3    s4    s5    s6    s7     low 4 bits
//   bits 4-5                                m4    m5    m6    m7     (bits 4-7: low 4 bits)
//   bits 6-7   s4 s5 s6 s7   m4 m5 m6 m7                             high 2 bits
INLINE void scales_q4_k(const uint8_t *const *row, ScaleBytes *s) {
    const uint32_t low_6 = 0x3f3f3f3f, low_4 = 0x0f0f0f0f, bits_4_5 = 0x30303030;
    Words w[4];
    load_words(row, 0, w);
    f16_halves(w[0], &s->d, &s->dmin);
    s->scales[0] = w[1] & low_6;
    s->scales[1] = (w[3] & low_4) | (w[1] >> 2 & bits_4_5);
    s->mins[0] = w[2] & low_6;
    s->mins[1] = (w[3] >> 4 & low_4) | (w[2] >> 2 & bits_4_5);
}

INLINE void scales_q6_k(const uint8_t *const *row, ScaleBytes *s) {
    Words w[4];
    load_words(row, offsetof(BlockQ6_K, d) - 14, w); // up to the end of the block
    f16_halves(w[3], &s->dmin, &s->d);
    load_words(row, offsetof(BlockQ6_K, scales), s->scales);
}

INLINE void scales_q2_k(const uint8_t *const *row, ScaleBytes *s) {
    Words w[4];
    load_words(row, offsetof(BlockQ2_K, d) - 12, w);
    f16_halves(w[3], &s->d, &s->dmin);
    load_words(row, 0, s->scales);
}

// Q3_K: 16 scales of 6 bits in 12 bytes: low 4 bits in the nibbles of bytes 0 to 7, high 2 bits in
// bytes 8 to 11: scale i has nibble i / 8 of byte i % 8, and bits 2 (i / 4) of byte 8 + i % 4.
INLINE void scales_q3_k(const uint8_t *const *row, ScaleBytes *s) {
    const uint32_t low_4 = 0x0f0f0f0f, bits_4_5 = 0x30303030;
    Words w[4], b[3];
    load_words(row, offsetof(BlockQ3_K, scales) - 2, w); // up to the end of the block
    f16_halves(w[3], &s->dmin, &s->d);
    for (int i = 0; i < 3; i++) b[i] = w[i] >> 16 | w[i + 1] << 16;
    s->scales[0] = bytes_minus_32((b[0] & low_4) | (b[2] << 4 & bits_4_5));
    s->scales[1] = bytes_minus_32((b[1] & low_4) | (b[2] << 2 & bits_4_5));
    s->scales[2] = bytes_minus_32((b[0] >> 4 & low_4) | (b[2] & bits_4_5));
    s->scales[3] = bytes_minus_32((b[1] >> 4 & low_4) | (b[2] >> 2 & bits_4_5));
}

// IQ4_XS: d, scales_h (2 bits for each of 8 groups) and scales_l (4 bits).
INLINE void scales_iq4_xs(const uint8_t *const *row, ScaleBytes *s) {
    Words w[4];
    load_words(row, 0, w);
    f16_halves(w[0], &s->d, &s->dmin);
    for (int i = 0; i < 2; i++) {
        Words low = w[1] >> 16 * i & 0xffff, high = w[0] >> (16 + 8 * i) & 0xff;
        low = (low | low << 8) & 0x00ff00ff;
        high = (high | high << 12) & 0x000f000f;
        low = (low | low << 4) & 0x0f0f0f0f;
        high = (high | high << 6) & 0x03030303;
        s->scales[i] = bytes_minus_32(low | high << 4);
    }
}

// True if unpack_scale_bytes() handles the type: superblocks with integer scales. Codebook types
// are not handled: their scales are unpacked row by row, together with the bits of their entries.
INLINE bool has_scale_bytes(Type type) {
    return type_info(type)->scale_bits && !codebook_info(type)->entry_len;
}

INLINE void unpack_scale_bytes(Type type, const uint8_t *const *row, ScaleBytes *s) {
    switch (type) {
    case TYPE_Q4_K:
    case TYPE_Q5_K: scales_q4_k(row, s); break;
    case TYPE_Q6_K: scales_q6_k(row, s); break;
    case TYPE_Q2_K: scales_q2_k(row, s); break;
    case TYPE_Q3_K: scales_q3_k(row, s); break;
    default: scales_iq4_xs(row, s);
    }
}

// Unpacks the scales and, where the type has them, the minima of a superblock of WIDTH rows, as
// [group][row]. Those behind the first n_cols columns become zeros (superblock_pad). Codebook types
// are not handled.
INLINE void unpack_scales(Type type, const uint8_t *const *row, int n_cols, float (*scale)[WIDTH],
                          float (*min)[WIDTH]) {
    const TypeInfo *info = type_info(type);
    Floats d, m;

    if (has_scale_bytes(type)) {
        ScaleBytes s;
        unpack_scale_bytes(type, row, &s);
        for (int g = 0; g < SUPERBLOCK / info->group; g++) {
            store_n(scale[g], WIDTH, scale_of_group(type, &s, g));
            if (info->has_min) store_n(min[g], WIDTH, min_of_group(type, &s, g));
        }
        return;
    }

    // Only d and, in some types, m after it.
    if (info->block == SUPERBLOCK) {
        load_f16_pairs(row, info->d_at - 2, &m, &d);
        for (int g = 0; g < 8; g++) store_n(scale[g], WIDTH, d);
        return;
    }
    for (int g = 0; g < 8; g++) {
        if (32 * g >= n_cols) break;
        load_f16_pairs(row, 32 * g / info->block * info->bytes, &d, &m);
        store_n(scale[g], WIDTH, d);
        if (info->has_min) store_n(min[g], WIDTH, splat(0) - m);
    }
    for (int g = n_cols / 32; g < 8; g++) {
        store_n(scale[g], WIDTH, splat(0));
        store_n(min[g], WIDTH, splat(0));
    }
}

// Unpacks the 256 trits of TQ1_0. A byte v is the fraction v / 256, whose first five digits to base
// 3 are trits: multiplied by 3, the integer part is the next digit. Here each byte is the upper
// half of a word; mulhi gives the digit and mullo the remaining fraction. Digit n of the 52 bytes
// belongs to
//
//   bytes 0 to 31    weights 32 n to 32 n + 31            n < 5
//   bytes 32 to 47   weights 160 + 16 n and following     n < 5
//   bytes 48 to 51   weights 240 + 4 n and following      n < 4
INLINE void integers_tq1_0(__m256i out[8], const BlockTQ1_0 *b) {
    const __m256i three = _mm256_set1_epi16(3), zero = _mm256_setzero_si256();
    const __m256i bytes[2] = {
        load_32(b->qs),
        _mm256_setr_m128i(load_16(b->qs + 32), _mm_cvtsi32_si128((int)load_u32(b->qh)))};
    __m256i digit[2][5];

#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        // Make each byte the upper half of a word.
        __m256i low = _mm256_unpacklo_epi8(zero, bytes[h]);
        __m256i high = _mm256_unpackhi_epi8(zero, bytes[h]);
#pragma GCC unroll 5
        for (int n = 0; n < 5; n++) {
            digit[h][n] = _mm256_packus_epi16(_mm256_mulhi_epu16(low, three),
                                              _mm256_mulhi_epu16(high, three));
            low = _mm256_mullo_epi16(low, three);
            high = _mm256_mullo_epi16(high, three);
        }
    }

    const __m256i *s = digit[1];
    for (int n = 0; n < 5; n++) out[n] = digit[0][n];
    out[5] = _mm256_permute2x128_si256(s[0], s[1], 0x20);
    out[6] = _mm256_permute2x128_si256(s[2], s[3], 0x20);

    __m256i last = _mm256_unpacklo_epi64(_mm256_unpacklo_epi32(s[0], s[1]),
                                         _mm256_unpacklo_epi32(s[2], s[3])); // in its upper half
    out[7] = _mm256_blend_epi32(s[4], last, 0xf0);
}
