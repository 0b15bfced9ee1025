// AVX-512: a superblock of one row in registers, for every integer type: 256 unsigned bytes u, with
// a scale and a minimum for each group of 16: w = scale * (u - offset) - min.
//
// A register holds the bytes of 64 columns. Most formats store 32 or 64 columns side by side in the
// same bits of 32 bytes. These bytes are broadcast to both halves of a register; the halves are
// then shifted by different amounts and masked.
#pragma once

#include "kernels/x86/avx512_codebook.h"

typedef struct {
    __m512i q[4];      // u, in the order of the columns
    __m512 scale, min; // of each group of 16; min is not set where the type has none
} Avx512Row;

INLINE __m512 f16_to_all(uint16_t h) {
    return _mm512_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(h)));
}
INLINE __m128i two_u64(uint64_t low, uint64_t high) {
    return _mm_insert_epi64(_mm_cvtsi64_si128((long long)low), (long long)high, 1);
}
INLINE __m512i join_halves(__m256i low, __m256i high) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}
// One word in all lanes of the lower half, another in the upper half. Both are constants; with
// join_halves, gcc 12 would spill them.
INLINE __m512i words_of_halves(int low, int high) {
    return _mm512_inserti64x4(_mm512_set1_epi16((short)low), _mm256_set1_epi16((short)high), 1);
}
// The low nibbles of lanes 0 and 2, the high nibbles of lanes 1 and 3.
INLINE __m512i nibbles_of_lanes(__m512i v) {
    const __m512i shift = _mm512_set_epi64(0x0004000400040004, 0x0004000400040004, 0, 0,
                                           0x0004000400040004, 0x0004000400040004, 0, 0);
    return _mm512_srlv_epi16(v, shift) & _mm512_set1_epi8(15);
}
// The nibbles of two blocks of 16 bytes. In each block the low nibbles come first.
INLINE __m512i nibbles_of_blocks(const uint8_t *a, const uint8_t *b) {
    __m512i v = _mm512_broadcast_i32x4(load_16(a));
    return nibbles_of_lanes(_mm512_mask_broadcast_i32x4(v, 0xff00, load_16(b)));
}
// The same for neighboring blocks. With one load instead of two, decode of IQ4_XS takes 0.93 to
// 0.97 of the time from memory, 0.90 in caches (Zen 5, 2026-11-29).
INLINE __m512i nibbles_of_neighbors(const uint8_t *p) {
    const __m512i quarters = _mm512_setr_epi64(0, 1, 0, 1, 2, 3, 2, 3);
    return nibbles_of_lanes(_mm512_permutexvar_epi64(quarters, _mm512_castsi256_si512(load_32(p))));
}

// The values of IQ4 nibbles, plus 128 (kvalues_iq4nl + 128).
INLINE __m512i iq4_values_512(__m512i nibbles) {
    const __m128i table =
        _mm_setr_epi8(1, 24, 45, 63, 79, 93, 106, 118, (char)129, (char)141, (char)153, (char)166,
                      (char)181, (char)197, (char)217, (char)241);
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), nibbles);
}

// The 64 codes of 16 bytes (Q2_0), four in each. Each byte is copied to a dword, whose bytes then
// need shifts by 0, 2, 4 and 6.
INLINE __m512i split_codes_512(const uint8_t *p) {
    const __m512i byte = _mm512_set_epi64(
        0x0f0f0f0f0e0e0e0e, 0x0d0d0d0d0c0c0c0c, 0x0b0b0b0b0a0a0a0a, 0x0909090908080808,
        0x0707070706060606, 0x0505050504040404, 0x0303030302020202, 0x0101010100000000);
    __m512i v = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(load_16(p)), byte);
    v = _mm512_srlv_epi16(v, _mm512_set1_epi32(0x00040000));
    return select_bits(_mm512_set1_epi16(0x00ff), v, _mm512_srli_epi16(v, 2)) & _mm512_set1_epi8(3);
}

INLINE __m512i add_where(__m512i v, __mmask64 mask, int n) {
    return _mm512_mask_add_epi8(v, mask, v, _mm512_set1_epi8((char)n));
}

// The fifth bits of two blocks of 32.
INLINE __mmask64 bits_of_blocks(const uint8_t *a, const uint8_t *b) {
    return load_u32(a) | (uint64_t)load_u32(b) << 32;
}

// A field of 64 columns: 32 at each of two places, which are in the same 32 bytes or in neighboring
// ones. The field is placed at bit `to`. Other orders of the columns, in which 64 bytes are loaded
// and shifted as one, are slower: such a load crosses a cache line in nearly all superblocks
// (decode of Q4_K and Q2_K takes 1.07 of the time, Zen 5, 2026-11-28).
INLINE __m512i fields_of_two(const uint8_t *p, BitPlace a, BitPlace b, int bits, int to) {
    __m512i v =
        a.at == b.at ? _mm512_broadcast_i64x4(load_32(p + a.at)) : _mm512_loadu_si512(p + a.at);
    if (a.shift == b.shift)
        v = a.shift > to ? _mm512_srli_epi16(v, (unsigned)(a.shift - to)) : v;
    else if (a.shift >= to)
        v = _mm512_srlv_epi16(v, words_of_halves(a.shift - to, b.shift - to));
    else
        v = _mm512_sllv_epi16(v, words_of_halves(to - a.shift, to - b.shift));
    return v & _mm512_set1_epi8((char)(((1 << bits) - 1) << to));
}

// The integers of columns 64 j to 64 j + 63 of a type of bit fields.
INLINE __m512i bit_fields_64(const BitLayout *b, const uint8_t *p, int j) {
    __m512i v =
        fields_of_two(p, low_bits_place(b, 2 * j), low_bits_place(b, 2 * j + 1), b->low_bits, 0);
    if (!b->high_bits) return v;

    const BitPlace first = high_bits_place(b, 2 * j), second = high_bits_place(b, 2 * j + 1);
    if (b->high_bits > 1) return v | fields_of_two(p, first, second, b->high_bits, b->low_bits);
    __mmask64 is_set =
        _mm512_test_epi8_mask(_mm512_broadcast_i64x4(load_32(p + first.at)),
                              words_of_halves(0x0101 << first.shift, 0x0101 << second.shift));
    return add_where(v, is_set, 1 << b->low_bits);
}

// The integers of columns 64 j to 64 j + 63; j is a constant. (integers_tq1_0 unpacks all columns
// of TQ1_0, codebook_pairs those of a codebook type.)
INLINE __m512i integers_64(Type type, const uint8_t *p, int j) {
    const int bytes = type_info(type)->bytes;
    const uint8_t *a = p + 2 * j * bytes, *b = a + bytes; // the blocks of a type of 32

    switch (type) {
    case TYPE_Q8_0:
        return join_halves(load_32(a + 2), load_32(b + 2)) ^ _mm512_set1_epi8((char)128);
    case TYPE_Q4_0: return nibbles_of_blocks(a + 2, b + 2);
    case TYPE_Q4_1: return nibbles_of_blocks(a + 4, b + 4);
    case TYPE_Q5_0:
        return add_where(nibbles_of_blocks(a + 6, b + 6), bits_of_blocks(a + 2, b + 2), 16);
    case TYPE_Q5_1:
        return add_where(nibbles_of_blocks(a + 8, b + 8), bits_of_blocks(a + 4, b + 4), 16);
    case TYPE_IQ4_NL: return iq4_values_512(nibbles_of_blocks(a + 2, b + 2));
    case TYPE_IQ4_XS: return iq4_values_512(nibbles_of_neighbors(p + 8 + 32 * j));
    case TYPE_Q1_0:
        return add_where(_mm512_setzero_si512(), load_u64(p + j / 2 * 18 + 2 + j % 2 * 8), 2);
    case TYPE_Q2_0: return split_codes_512(p + j * 18 + 2);
    default:
        return bit_layout(type) ? bit_fields_64(bit_layout(type), p, j) : _mm512_setzero_si512();
    }
}

// Scales of one row: 16 lanes, one for each group of 16.

// Eight float16 that are `stride` bytes apart, each in two neighboring lanes.
INLINE __m512 f16_of_blocks(const uint8_t *p, int stride) {
    const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    __m128i h = _mm_cvtsi32_si128(load_u16(p)); // a loop over an array is 3 % slower with gcc 12
    h = _mm_insert_epi16(h, load_u16(p + stride), 1);
    h = _mm_insert_epi16(h, load_u16(p + stride * 2), 2);
    h = _mm_insert_epi16(h, load_u16(p + stride * 3), 3);
    h = _mm_insert_epi16(h, load_u16(p + stride * 4), 4);
    h = _mm_insert_epi16(h, load_u16(p + stride * 5), 5);
    h = _mm_insert_epi16(h, load_u16(p + stride * 6), 6);
    h = _mm_insert_epi16(h, load_u16(p + stride * 7), 7);
    return _mm512_permutexvar_ps(twice, _mm512_castps256_ps512(_mm256_cvtph_ps(h)));
}

// The scales of Q1_0 and Q2_0: two or four float16, each in 8 or 4 neighboring lanes.
INLINE __m512 f16_of_large_blocks(const uint8_t *p, int block) {
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m128i h = _mm_cvtsi32_si128(load_u16(p));
    h = _mm_insert_epi16(h, load_u16(p + 18), 1);
    if (block == 64) h = _mm_insert_epi16(h, load_u16(p + 36), 2);
    if (block == 64) h = _mm_insert_epi16(h, load_u16(p + 54), 3);
    return _mm512_permutexvar_ps(_mm512_srli_epi32(lanes, block == 64 ? 2 : 3),
                                 _mm512_castps128_ps512(_mm_cvtph_ps(h)));
}

// f16_of_blocks with a stride of 18 bytes (Q4_0, IQ4_NL): every ninth word of 128 bytes.
INLINE __m512 f16_of_blocks_18(const uint8_t *p) {
    const __m512i ninth = _mm512_zextsi256_si512(
        _mm256_setr_epi16(0, 0, 9, 9, 18, 18, 27, 27, 36, 36, 45, 45, 54, 54, 63, 63));
    __m512i a = _mm512_loadu_si512(p), b = _mm512_loadu_si512(p + 64);
    return _mm512_cvtph_ps(_mm512_castsi512_si256(_mm512_permutex2var_epi16(a, ninth, b)));
}

// A superblock of Q8_0: 8 blocks of 17 words. The first word of a block is its scale. Lane 0 of
// *scale holds the scales of blocks 0, 2, 4 and 6, lane 2 those of blocks 1, 3, 5 and 7; the other
// lanes are undefined.
INLINE void unpack_q8_0(__m512i q[4], __m512 *scale, const uint8_t *p) {
    // The integers of the first two blocks.
    const __m512i words =
        _mm512_set_epi16(33, 32, 31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 16, 15, 14,
                         13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1);
    const __m512i shift = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 16, 16, 16, 16, 16, 16, 16, 16);
    __m512i v[5];
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        v[j] = _mm512_loadu_si512(p + 64 * j);
        __asm__("" : "+v"(v[j])); // else gcc 12 loads it three times
    }
    v[4] = _mm512_castsi128_si512(load_16(p + 256));

#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        __m512i at = _mm512_add_epi16(words, _mm512_set1_epi16((short)(2 * j)));
        q[j] = _mm512_permutex2var_epi16(v[j], at, v[j + 1]) ^ _mm512_set1_epi8((char)128);
    }

    // The scales are words 2 j and 17 + 2 j of v[j].
    __m512i s = v[0];
#pragma GCC unroll 3
    for (int j = 1; j < 4; j++)
        s = _mm512_mask_mov_epi16(s, (1u << 2 * j) | (1u << (17 + 2 * j)), v[j]);
    s = _mm512_srlv_epi32(s, shift);
    *scale = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(s));
}

// Q4_K and Q5_K; the 12 bytes are drawn at scales_q4_k (x86_unpack.h). Scales and minima become 16
// dwords, {s0-s3, m0-m3, s4-s7, m4-m7}, and are multiplied by d or dmin. Each is then copied to the
// two groups of 16 that make a group of 32.
INLINE void row_scales_q4_k(Avx512Row *u, const uint8_t *block) {
    const __m512i of_d = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1);
    const __m512i of_scale = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 8, 8, 9, 9, 10, 10, 11, 11);
    uint64_t a = load_u64(block + 4);
    uint32_t b = load_u32(block + 12);
    uint64_t first_four = a & 0x3f3f3f3f3f3f3f3f;
    uint64_t last_four =
        ((b | (uint64_t)b << 28) & 0x0f0f0f0f0f0f0f0f) | (a >> 2 & 0x3030303030303030);
    __m512i packed = _mm512_cvtepu8_epi32(two_u64(first_four, last_four));
    __m512 d = _mm512_castps128_ps512(_mm_cvtph_ps(_mm_loadu_si32(block)));
    __m512 both = _mm512_cvtepi32_ps(packed) * _mm512_permutexvar_ps(of_d, d);
    u->scale = _mm512_permutexvar_ps(of_scale, both);
    u->min = _mm512_permutexvar_ps(_mm512_add_epi32(of_scale, _mm512_set1_epi32(4)), both);
}

// The 16 nibbles of 8 bytes as dwords.
INLINE __m512i nibble_dwords(const uint8_t *p) {
    __m128i v = _mm_loadl_epi64((const void *)p), high = _mm_srli_epi16(v, 4);
    v = _mm_unpacklo_epi8(v, high) & _mm_set1_epi8(15);
    return _mm512_cvtepu8_epi32(v);
}

// 8 bytes as dwords, each in two neighboring lanes.
INLINE __m512i bytes_twice(uint64_t bytes) {
    __m128i b = _mm_cvtsi64_si128((long long)bytes);
    return _mm512_cvtepu8_epi32(_mm_unpacklo_epi8(b, b));
}

// The integer scales of a superblock, one for each group of 16 weights. A codebook type stores s,
// and its scale is 2 s + 1; this function returns s.
INLINE __m512i row_scale_integers(Type type, const uint8_t *p) {
    const __m512i minus_32 = _mm512_set1_epi32(-32);
    const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    const uint64_t nibbles = 0x0f0f0f0f0f0f0f0f, three_bits = 0x0707070707070707;
    const uint32_t bits_4_5 = 0x30303030;
    uint64_t low, words;
    uint32_t high;
    __m512i all;
    __m128i s;

    switch (type) {
    case TYPE_Q2_K: return _mm512_cvtepu8_epi32(load_16(p)) & _mm512_set1_epi32(15);
    case TYPE_Q3_K: // scales_q3_k
        low = load_u64(p + offsetof(BlockQ3_K, scales));
        high = load_u32(p + offsetof(BlockQ3_K, scales) + 8);
        s = two_u64(
            (low & nibbles) | (high << 4 & bits_4_5) | (uint64_t)(high << 2 & bits_4_5) << 32,
            (low >> 4 & nibbles) | (high & bits_4_5) | (uint64_t)(high >> 2 & bits_4_5) << 32);
        return _mm512_add_epi32(_mm512_cvtepu8_epi32(s), minus_32);
    case TYPE_Q6_K: return _mm512_cvtepi8_epi32(load_16(p + offsetof(BlockQ6_K, scales)));
    case TYPE_IQ4_XS:
        low = _pdep_u64(load_u32(p + offsetof(BlockIQ4_XS, scales_l)), nibbles);
        words = _pdep_u64(load_u16(p + offsetof(BlockIQ4_XS, scales_h)), 0x3030303030303030);
        return _mm512_add_epi32(bytes_twice(low | words), minus_32);
    case TYPE_IQ2_XXS: // the top four bits of every second dword
        all = _mm512_loadu_si512(p + offsetof(BlockIQ2_XXS, qs));
        return _mm512_srli_epi32(_mm512_shuffle_epi32(all, 0xf5), 28);
    case TYPE_IQ2_XS: return nibble_dwords(p + offsetof(BlockIQ2_XS, scales));
    case TYPE_IQ2_S: return nibble_dwords(p + offsetof(BlockIQ2_S, scales));
    case TYPE_IQ3_XXS:
        all = _mm512_castsi256_si512(load_32(p + offsetof(BlockIQ3_XXS, signs)));
        return _mm512_srli_epi32(_mm512_permutexvar_epi32(twice, all), 28);
    case TYPE_IQ3_S:
        return bytes_twice(_pdep_u64(load_u32(p + offsetof(BlockIQ3_S, scales)), nibbles));
    case TYPE_IQ1_S:
        s = _mm_srli_epi16(load_16(p + offsetof(BlockIQ1_S, qh)), 12);
        s = (s | _mm_slli_epi16(s, 8)) & _mm_set1_epi8(7);
        return _mm512_cvtepu8_epi32(s);
    case TYPE_IQ1_M: // 16 times three bits, below the four bits of d in each word
        words = _pext_u64(load_u64(p + offsetof(BlockIQ1_M, scales)), 0x0fff0fff0fff0fff);
        return _mm512_cvtepu8_epi32(
            two_u64(_pdep_u64(words, three_bits), _pdep_u64(words >> 24, three_bits)));
    default: return _mm512_setzero_si512();
    }
}

// A row as decode reads it: the integers of codebook types are in pairs, those of the other types
// in the order of the columns.
INLINE Avx512Row unpack_decode_row(Type type, const uint8_t *p) {
    const TypeInfo *info = type_info(type);
    const bool is_codebook = codebook_info(type)->entry_len;
    Avx512Row u;
    __m256i trits[8];

    // The integers.
    if (type == TYPE_TQ1_0) integers_tq1_0(trits, (const void *)p);
    if (is_codebook) codebook_pairs(u.q, type, p);
    for (int j = 0; j < 4 && !is_codebook; j++)
        u.q[j] = type == TYPE_TQ1_0 ? join_halves(trits[2 * j], trits[2 * j + 1])
                                    : integers_64(type, p, j);

    // The scales: d of each block, or d times the scales of a superblock's groups.
    if (info->block == 32) {
        u.scale = info->bytes == 18 ? f16_of_blocks_18(p) : f16_of_blocks(p, info->bytes);
        if (info->has_min) u.min = splat(0) - f16_of_blocks(p + 2, info->bytes);
        return u;
    }
    if (info->block < SUPERBLOCK) {
        u.scale = f16_of_large_blocks(p, info->block);
        return u;
    }
    if (type == TYPE_Q4_K || type == TYPE_Q5_K) {
        row_scales_q4_k(&u, p);
        return u;
    }

    u.scale = f16_to_all(is_codebook ? codebook_d(type, p) : load_u16(p + info->d_at));
    if (!info->scale_bits) return u;

    __m512 s = _mm512_cvtepi32_ps(row_scale_integers(type, p));
    const float factor = codebook_info(type)->factor;
    if (is_codebook) s = fmadd(s, splat(2 * factor), splat(factor));
    u.scale = s * u.scale;

    if (type == TYPE_Q2_K) {
        __m512i high = _mm512_srli_epi32(_mm512_cvtepu8_epi32(load_16(p)), 4);
        u.min = _mm512_cvtepi32_ps(high) * f16_to_all(load_u16(p + offsetof(BlockQ2_K, dmin)));
    }
    return u;
}

INLINE void unpack_two_decode_rows(Avx512Row u[2], Type type, const uint8_t *a, const uint8_t *b) {
    u[0] = unpack_decode_row(type, a);
    u[1] = unpack_decode_row(type, b);
#if defined(PART) && PART == 3 // replaces the integers; the compiler drops those above
    codebook_pairs_of_two(u[0].q, u[1].q, type, a, b);
#endif
}
