// AVX-512: 256 weights of every integer type as unsigned bytes u, with a scale and a minimum for
// each group of 16: w = scale * (u - offset) - min.
#ifndef BACKENDS_AVX512_UNPACK_H
#define BACKENDS_AVX512_UNPACK_H

#include "../kernels/backends.h"
#include "../kernels/codebook.h"
#include "superblock.h"

#include <immintrin.h>

typedef struct {
    __m512i w[4];      // u, in the order of the columns
    __m512 scale, min; // per group of 16
} Unit;

// Mask of the first n of 16 lanes.
INLINE __mmask16 first(int n) { return (__mmask16)(n >= 16 ? 0xffff : n > 0 ? (1 << n) - 1 : 0); }

INLINE float f16_at(const void *p) {
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(load_u16(p))));
}
INLINE __m512 f16_to_all(uint16_t h) {
    return _mm512_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(h)));
}

INLINE __m128i load_16(const void *p) { return _mm_loadu_si128(p); }
INLINE __m256i load_32(const void *p) { return _mm256_loadu_si256(p); }
INLINE __m128i two_u64(uint64_t low, uint64_t high) {
    return _mm_insert_epi64(_mm_cvtsi64_si128((long long)low), (long long)high, 1);
}

// 16 signed bytes.
INLINE __m512 bytes_to_floats(const void *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_16(p)));
}

// 16 bytes of each of 16 rows, transposed: out[d] holds dword d of rows 0 to 15. The four loads of
// a register cost no shuffle, which leaves 8 of them.
INLINE void transpose_16(__m512i out[4], const void *const row[16], size_t at) {
    __m512i r[4]; // r[i]: rows i, 4 + i, 8 + i, 12 + i
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        r[i] = _mm512_broadcast_i32x4(load_16((const char *)row[i] + at));
        r[i] = _mm512_mask_broadcast_i32x4(r[i], 0x00f0, load_16((const char *)row[4 + i] + at));
        r[i] = _mm512_mask_broadcast_i32x4(r[i], 0x0f00, load_16((const char *)row[8 + i] + at));
        r[i] = _mm512_mask_broadcast_i32x4(r[i], 0xf000, load_16((const char *)row[12 + i] + at));
    }
    __m512i a = _mm512_unpacklo_epi32(r[0], r[1]), b = _mm512_unpackhi_epi32(r[0], r[1]);
    __m512i c = _mm512_unpacklo_epi32(r[2], r[3]), d = _mm512_unpackhi_epi32(r[2], r[3]);
    out[0] = _mm512_unpacklo_epi64(a, c);
    out[1] = _mm512_unpackhi_epi64(a, c);
    out[2] = _mm512_unpacklo_epi64(b, d);
    out[3] = _mm512_unpackhi_epi64(b, d);
}

// out[i / every][j] = in[j][i] of n x 16 32-bit elements, for each i that is a multiple of `every`.
// Strides are in bytes; out and its stride are multiples of 64.
INLINE void transpose(void *out, size_t out_stride, const void *in, size_t in_stride, int n,
                      int every) {
    const void *row[16];
    for (int i = 0; i < 16; i++) row[i] = (const char *)in + (size_t)i * in_stride;
    for (int i = 0; i < n; i += 4) {
        __m512i r[4];
        transpose_16(r, row, (size_t)i * 4);
        for (int d = 0; d < 4; d += every)
            _mm512_store_si512((char *)out + (size_t)((i + d) / every) * out_stride, r[d]);
    }
}

// The float16 in the lower and in the upper half of each dword.
INLINE __m512 low_f16(__m512i v) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v)); }
INLINE __m512 high_f16(__m512i v) { return low_f16(_mm512_srli_epi32(v, 16)); }

// Bits [from, from + n) of each dword.
INLINE __m512i bits(__m512i v, int from, int n) {
    return _mm512_and_si512(_mm512_srli_epi32(v, (unsigned)from), _mm512_set1_epi32((1 << n) - 1));
}

// The bits of a where the mask has them, else those of b.
INLINE __m512i either(__m512i mask, __m512i a, __m512i b) {
    return _mm512_ternarylogic_epi32(mask, a, b, 0xca);
}

INLINE __m512i join(__m256i a, __m256i b) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
}
INLINE __m512i join_words(int a, int b) { // as constants: `join` of two has gcc spill them
    return _mm512_inserti64x4(_mm512_set1_epi16((short)a), _mm256_set1_epi16((short)b), 1);
}

// 64 nibbles of two blocks of 16 bytes each: low nibbles are the first 16 weights of a block.
INLINE __m512i block_nibbles(const uint8_t *a, const uint8_t *b) {
    const __m512i shift = _mm512_set_epi64(0x0004000400040004, 0x0004000400040004, 0, 0,
                                           0x0004000400040004, 0x0004000400040004, 0, 0);
    __m512i v = _mm512_broadcast_i32x4(load_16(a));
    v = _mm512_mask_broadcast_i32x4(v, 0xff00, load_16(b));
    return _mm512_and_si512(_mm512_srlv_epi16(v, shift), _mm512_set1_epi8(15));
}

INLINE __m512i iq4_plus_128(__m512i nibbles) {
    const __m128i table =
        _mm_setr_epi8(1, 24, 45, 63, 79, 93, 106, 118, (char)129, (char)141, (char)153, (char)166,
                      (char)181, (char)197, (char)217, (char)241);
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), nibbles);
}

// 64 nibbles of 32 bytes: the low ones, then the high ones.
INLINE __m512i pair_nibbles(const uint8_t *p) {
    __m512i v = _mm512_broadcast_i64x4(load_32(p));
    return _mm512_and_si512(_mm512_srlv_epi16(v, join_words(0, 4)), _mm512_set1_epi8(15));
}

// 64 weights of 2 bits: 32 bytes hold 128, the lowest bits those of the first 32.
INLINE __m512i pairs_of_bits(const uint8_t *p, int j) {
    const int shift = 4 * (j % 2);
    __m512i v = _mm512_broadcast_i64x4(load_32(p + 32 * (j / 2)));
    return _mm512_and_si512(_mm512_srlv_epi16(v, join_words(shift, shift + 2)),
                            _mm512_set1_epi8(3));
}

// v + n where `bits` has a bit.
INLINE __m512i add_where(__m512i v, __mmask64 bits, int n) {
    return _mm512_mask_add_epi8(v, bits, v, _mm512_set1_epi8((char)n));
}

// The fifth bits of two blocks of 32.
INLINE __mmask64 block_bits(const uint8_t *a, const uint8_t *b) {
    return load_u32(a) | (uint64_t)load_u32(b) << 32;
}

// Bits 2 j of 32 bytes, then bits 2 j + 1.
INLINE __mmask64 pair_bits(const uint8_t *p, int j) {
    return _mm512_test_epi8_mask(_mm512_broadcast_i64x4(load_32(p)),
                                 join_words(0x0101 << 2 * j, 0x0202 << 2 * j));
}

// 64 weights of Q6_K.
INLINE __m512i integers_q6_k(const BlockQ6_K *b, int j) {
    const __m512i low_mask = _mm512_set1_epi8(15), high_mask = _mm512_set1_epi8(0x30);
    __m512i low = _mm512_loadu_si512(b->ql + 64 * (j / 2)),
            high = _mm512_broadcast_i64x4(load_32(b->qh + 32 * (j / 2)));
    low = j % 2 ? _mm512_srli_epi16(low, 4) : low;
    high = j % 2 ? _mm512_srlv_epi16(high, join_words(0, 2))
                 : _mm512_sllv_epi16(high, join_words(4, 2));
    return _mm512_or_si512(_mm512_and_si512(low, low_mask), _mm512_and_si512(high, high_mask));
}

// 64 weights: points of a grid by their indices. A gather waits for what its register held before:
// zeros are there at once.
INLINE __m512i eights(int grid_at, __m256i index) {
    return _mm512_mask_i32gather_epi64(_mm512_setzero_si512(), 0xff, index,
                                       codebook_entries8[grid_at], 8);
}
INLINE __m512i fours(int grid_at, __m512i index) {
    return _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), 0xffff, index,
                                       codebook_entries4[grid_at], 4);
}

// Negated where `minus` has a bit, plus the offset.
INLINE __m512i put_signs(__m512i points, uint64_t minus, Type type) {
    points = _mm512_mask_sub_epi8(points, minus, _mm512_setzero_si512(), points);
    return _mm512_add_epi8(points, _mm512_set1_epi8((char)type_info(type)->zero_point));
}

// Twice 28 bits: the signs of eight points, seven each. Each eighth sign makes the number of minus
// signs even.
INLINE uint64_t two_even_signs(uint64_t low, uint64_t high) {
    uint64_t signs = _pdep_u64(low | high << 28, 0x7f7f7f7f7f7f7f7f);
    uint64_t parity = signs ^ signs << 4; // ends in the top bit of each byte
    parity ^= parity << 2;
    return signs | ((parity ^ parity << 1) & 0x8080808080808080);
}

// Eight indices: bytes, with those bits of `high` above them that `mask` keeps, rotated to their
// place.
INLINE __m256i join_index(const uint8_t *low, uint32_t high, __m256i rotate, int mask) {
    __m256i index = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)low));
    return _mm256_ternarylogic_epi32(_mm256_set1_epi32(mask),
                                     _mm256_rolv_epi32(_mm256_set1_epi32((int)high), rotate), index,
                                     0xca); // where the mask is set the second, else the third
}

INLINE __m512i integers_iq2_xxs(const BlockIQ2_XXS *b, int j) {
    const __m256i bytes = _mm256_setr_epi64x( // 0 to 3 and 8 to 11, each a dword
        (long long)0xffffff01ffffff00, (long long)0xffffff03ffffff02, (long long)0xffffff09ffffff08,
        (long long)0xffffff0bffffff0a);
    const uint8_t *p = b->qs + 16 * j;
    __m256i two = _mm256_broadcastsi128_si256(load_16(p));
    return put_signs(eights(CODEBOOK_IQ2_XXS_AT, _mm256_shuffle_epi8(two, bytes)),
                     two_even_signs(load_u32(p + 4) & 0xfffffff, load_u32(p + 12)), TYPE_IQ2_XXS);
}

INLINE __m512i integers_iq2_xs(const BlockIQ2_XS *b, int j) {
    const uint64_t sevens = 0xfe00fe00fe00fe00;
    const uint8_t *p = b->qs + 16 * j;
    __m256i index = _mm256_cvtepu16_epi32(load_16(p));
    uint64_t minus =
        two_even_signs(_pext_u64(load_u64(p), sevens), _pext_u64(load_u64(p + 8), sevens));
    index = _mm256_and_si256(index, _mm256_set1_epi32(511));
    return put_signs(eights(CODEBOOK_IQ2_XS_AT, index), minus, TYPE_IQ2_XS);
}

INLINE __m512i integers_iq2_s(const BlockIQ2_S *b, int j) {
    const __m256i rotate = _mm256_setr_epi32(8, 6, 4, 2, 0, 30, 28, 26);
    __m256i index = join_index(b->qs + 8 * j, load_u16(b->qh + 2 * j), rotate, 0x300);
    return put_signs(eights(CODEBOOK_IQ2_S_AT, index), load_u64(b->signs + 8 * j), TYPE_IQ2_S);
}

INLINE __m512i integers_iq3_xxs(const BlockIQ3_XXS *b, int j) {
    const uint8_t *signs = b->signs + 8 * j;
    __m512i index = _mm512_cvtepu8_epi32(load_16(b->qs + 16 * j));
    return put_signs(fours(CODEBOOK_IQ3_XXS_AT, index),
                     two_even_signs(load_u32(signs) & 0xfffffff, load_u32(signs + 4)),
                     TYPE_IQ3_XXS);
}

INLINE __m512i integers_iq3_s(const BlockIQ3_S *b, int j) {
    __m512i index = _mm512_cvtepu8_epi32(load_16(b->qs + 16 * j));
    index = _mm512_mask_add_epi32(index, load_u16(b->qh + 2 * j), index, _mm512_set1_epi32(256));
    return put_signs(fours(CODEBOOK_IQ3_S_AT, index), load_u64(b->signs + 8 * j), TYPE_IQ3_S);
}

// CodebookGroup of IQ1, -1 to 1: eight times that, one less or more for each eight, plus the
// offset.
INLINE __m512i shift_points(__m256i index, unsigned less) {
    const __m512i table = _mm512_set1_epi16(0x1008), more = _mm512_set1_epi8(9); // 0, of -1, 8, 16
    __m512i points = _mm512_shuffle_epi8(table, eights(CODEBOOK_IQ1_AT, index));
    return _mm512_add_epi8(points,
                           _mm512_mask_mov_epi64(more, (__mmask8)less, _mm512_set1_epi8(7)));
}

INLINE __m512i integers_iq1_s(const BlockIQ1_S *b, int j) {
    const __m256i rotate = _mm256_setr_epi32(8, 5, 2, 31, 24, 21, 18, 15);
    uint32_t high = load_u32(b->qh + 4 * j);
    return shift_points(join_index(b->qs + 8 * j, high, rotate, 0x700),
                        (high >> 15 & 1) * 0x0f + (high >> 31) * 0xf0);
}

INLINE __m512i integers_iq1_m(const BlockIQ1_M *b, int j) {
    const __m256i rotate = _mm256_setr_epi32(8, 4, 0, 28, 24, 20, 16, 12);
    uint32_t high = load_u32(b->qh + 4 * j);
    return shift_points(join_index(b->qs + 8 * j, high, rotate, 0x700),
                        _pext_u32(high, 0x88888888));
}

// Five trits of each byte: what a power of three leaves of it, times 3, overflows by.
INLINE void integers_tq1_0(__m512i w[4], const BlockTQ1_0 *b) {
    const __m512i three = _mm512_set1_epi16(3);
    uint8_t rest[32] = {0};
    __m256i t[5], s[5]; // of 32 bytes; of 16 and of the last 4
    memcpy(rest, b->qs + 32, 20);
    __m512i v = _mm512_slli_epi16(_mm512_cvtepu8_epi16(load_32(b->qs)), 8),
            r = _mm512_slli_epi16(_mm512_cvtepu8_epi16(load_32(rest)), 8);
#pragma GCC unroll 5
    for (int n = 0; n < 5; n++) {
        t[n] = _mm512_cvtepi16_epi8(_mm512_mulhi_epu16(v, three));
        s[n] = _mm512_cvtepi16_epi8(_mm512_mulhi_epu16(r, three));
        v = _mm512_mullo_epi16(v, three);
        r = _mm512_mullo_epi16(r, three);
    }
    __m256i s01 = _mm256_permute2x128_si256(s[0], s[1], 0x20),
            s23 = _mm256_permute2x128_si256(s[2], s[3], 0x20);
    __m256i last = _mm256_unpacklo_epi64(_mm256_unpacklo_epi32(s[0], s[1]),
                                         _mm256_unpacklo_epi32(s[2], s[3])); // high half: of qh
    w[0] = join(t[0], t[1]);
    w[1] = join(t[2], t[3]);
    w[2] = join(t[4], s01);
    w[3] = join(s23, _mm256_blend_epi32(s[4], last, 0xf0));
}

// The integers of columns 64 j to 64 j + 63, j being known when compiled.
INLINE __m512i integers_of(Type type, const uint8_t *p, int j) {
    const int bytes = type_info(type)->bytes;
    const uint8_t *a = p + 2 * j * bytes, *b = a + bytes; // of types with blocks of 32
    switch (type) {
    case TYPE_Q8_0:
        return _mm512_xor_si512(join(load_32(a + 2), load_32(b + 2)), _mm512_set1_epi8((char)128));
    case TYPE_Q4_0: return block_nibbles(a + 2, b + 2);
    case TYPE_Q4_1: return block_nibbles(a + 4, b + 4);
    case TYPE_Q5_0: return add_where(block_nibbles(a + 6, b + 6), block_bits(a + 2, b + 2), 16);
    case TYPE_Q5_1: return add_where(block_nibbles(a + 8, b + 8), block_bits(a + 4, b + 4), 16);
    case TYPE_IQ4_NL: return iq4_plus_128(block_nibbles(a + 2, b + 2));
    case TYPE_IQ4_XS: return iq4_plus_128(block_nibbles(p + 8 + 32 * j, p + 24 + 32 * j));
    case TYPE_Q4_K: return pair_nibbles(p + offsetof(BlockQ4_K, qs) + 32 * j);
    case TYPE_Q5_K:
        return add_where(pair_nibbles(p + offsetof(BlockQ5_K, qs) + 32 * j),
                         pair_bits(p + offsetof(BlockQ5_K, qh), j), 16);
    case TYPE_Q6_K: return integers_q6_k((const void *)p, j);
    case TYPE_Q2_K: return pairs_of_bits(p + offsetof(BlockQ2_K, qs), j);
    case TYPE_Q3_K:
        return add_where(pairs_of_bits(p + offsetof(BlockQ3_K, qs), j),
                         pair_bits(p + offsetof(BlockQ3_K, hmask), j), 4);
    case TYPE_TQ2_0: return pairs_of_bits(p + offsetof(BlockTQ2_0, qs), j);
#define POINTS(type, name)                                                                         \
    case TYPE_##type: return integers_##name((const void *)p, j);
        CODEBOOK_TYPES(POINTS)
    default: return _mm512_setzero_si512();
    }
}

// The f16 scales of 8 blocks, `stride` bytes apart, each for two groups of 16.
INLINE __m512 block_scales(const void *blocks, int stride) {
    const uint8_t *p = blocks;
    const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    __m128i h = _mm_cvtsi32_si128(load_u16(p));
    h = _mm_insert_epi16(h, load_u16(p + stride), 1);
    h = _mm_insert_epi16(h, load_u16(p + stride * 2), 2);
    h = _mm_insert_epi16(h, load_u16(p + stride * 3), 3);
    h = _mm_insert_epi16(h, load_u16(p + stride * 4), 4);
    h = _mm_insert_epi16(h, load_u16(p + stride * 5), 5);
    h = _mm_insert_epi16(h, load_u16(p + stride * 6), 6);
    h = _mm_insert_epi16(h, load_u16(p + stride * 7), 7);
    return _mm512_permutexvar_ps(twice, _mm512_castps256_ps512(_mm256_cvtph_ps(h)));
}

// The same for the 18 bytes of Q4_0 and IQ4_NL: every ninth 16-bit word of 128 bytes.
INLINE __m512 block_scales_18(const void *blocks) {
    const __m512i ninth = _mm512_zextsi256_si512(
        _mm256_setr_epi16(0, 0, 9, 9, 18, 18, 27, 27, 36, 36, 45, 45, 54, 54, 63, 63));
    __m512i a = _mm512_loadu_si512(blocks), b = _mm512_loadu_si512((const char *)blocks + 64);
    return _mm512_cvtph_ps(_mm512_castsi512_si256(_mm512_permutex2var_epi16(a, ninth, b)));
}

// Q4_K and Q5_K begin with f16 d, dmin and 12 bytes of 8 scales and 8 minima: bytes 0 to 3 and 4 to
// 7 hold the first four of each in their low 6 bits, and in their high bits the high ones of the
// last four, whose low four bits are the nibbles of bytes 8 to 11.
INLINE void k_scales(Unit *u, const uint8_t *block) {
    const __m512i of_d = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1);
    const __m512i of_scale = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 8, 8, 9, 9, 10, 10, 11, 11);
    uint64_t a = load_u64(block + 4);
    uint32_t b = load_u32(block + 12);
    uint64_t first_four = a & 0x3f3f3f3f3f3f3f3f;
    uint64_t last_four =
        ((b | (uint64_t)b << 28) & 0x0f0f0f0f0f0f0f0f) | (a >> 2 & 0x3030303030303030);
    __m512i packed = _mm512_cvtepu8_epi32(two_u64(first_four, last_four));
    __m512 d = _mm512_castps128_ps512(_mm_cvtph_ps(_mm_loadu_si32(block)));
    __m512 both = _mm512_mul_ps(_mm512_cvtepi32_ps(packed), _mm512_permutexvar_ps(of_d, d));
    u->scale = _mm512_permutexvar_ps(of_scale, both);
    u->min = _mm512_permutexvar_ps(_mm512_add_epi32(of_scale, _mm512_set1_epi32(4)), both);
}

// The same of 16 rows at once: one of 8 groups, 16 rows.
INLINE void k_scales_16(float (*scale)[16], float (*min)[16], const void *const row[16]) {
    __m512i r[4];
    transpose_16(r, row, 0);
    __m512 d[2] = {low_f16(r[0]), high_f16(r[0])};
    for (int i = 0; i < 8; i++) { // four scales, four minima
        __m512i byte = _mm512_srli_epi32(r[1 + i / 4], 8 * (i % 4));
        __m512i low = bits(r[3], 8 * (i % 4) + i / 4 * 4, 4), high = _mm512_srli_epi32(byte, 2);
        __m512i last = _mm512_or_si512(low, _mm512_and_si512(high, _mm512_set1_epi32(0x30)));
        float(*to)[16] = i < 4 ? scale + i : min + i - 4;
        _mm512_store_ps(to[0], _mm512_mul_ps(_mm512_cvtepi32_ps(bits(byte, 0, 6)), d[i / 4]));
        _mm512_store_ps(to[4], _mm512_mul_ps(_mm512_cvtepi32_ps(last), d[i / 4]));
    }
}

// 16 nibbles of 8 bytes, as dwords.
INLINE __m512i nibble_groups(const uint8_t *p) {
    __m128i v = _mm_loadl_epi64((const void *)p), high = _mm_srli_epi16(v, 4);
    v = _mm_and_si128(_mm_unpacklo_epi8(v, high), _mm_set1_epi8(15));
    return _mm512_cvtepu8_epi32(v);
}

// 8 bytes as dwords, each twice.
INLINE __m512i twice_bytes(uint64_t bytes) {
    __m128i b = _mm_cvtsi64_si128((long long)bytes);
    return _mm512_cvtepu8_epi32(_mm_unpacklo_epi8(b, b));
}

INLINE __m512i less_32(__m512i v) { return _mm512_sub_epi32(v, _mm512_set1_epi32(32)); }

// The integers that a block of 256 has as scales of 16 groups; of points s, of whose 2 s + 1 they
// are made.
INLINE __m512i scale_integers(Type type, const uint8_t *p) {
    const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    const uint64_t nibbles = 0x0f0f0f0f0f0f0f0f, thirds = 0x0707070707070707;
    const uint32_t top = 0x30303030;
    uint64_t low, words;
    uint32_t high;
    __m512i all;
    __m128i s;
    switch (type) {
    case TYPE_Q2_K:
        return _mm512_and_si512(_mm512_cvtepu8_epi32(load_16(p)), _mm512_set1_epi32(15));
    case TYPE_Q3_K:
        low = load_u64(p + offsetof(BlockQ3_K, scales));
        high = load_u32(p + offsetof(BlockQ3_K, scales) + 8);
        s = two_u64((low & nibbles) | (high << 4 & top) | (uint64_t)(high << 2 & top) << 32,
                    (low >> 4 & nibbles) | (high & top) | (uint64_t)(high >> 2 & top) << 32);
        return less_32(_mm512_cvtepu8_epi32(s));
    case TYPE_Q6_K: return _mm512_cvtepi8_epi32(load_16(p + offsetof(BlockQ6_K, scales)));
    case TYPE_IQ4_XS:
        low = _pdep_u64(load_u32(p + offsetof(BlockIQ4_XS, scales_l)), nibbles);
        return less_32(twice_bytes(
            low | _pdep_u64(load_u16(p + offsetof(BlockIQ4_XS, scales_h)), 0x3030303030303030)));
    case TYPE_IQ2_XXS:
        all = _mm512_loadu_si512(p + offsetof(BlockIQ2_XXS, qs));
        return _mm512_srli_epi32(_mm512_shuffle_epi32(all, 0xf5), 28);
    case TYPE_IQ2_XS: return nibble_groups(p + offsetof(BlockIQ2_XS, scales));
    case TYPE_IQ2_S: return nibble_groups(p + offsetof(BlockIQ2_S, scales));
    case TYPE_IQ3_XXS:
        all = _mm512_castsi256_si512(load_32(p + offsetof(BlockIQ3_XXS, signs)));
        return _mm512_srli_epi32(_mm512_permutexvar_epi32(twice, all), 28);
    case TYPE_IQ3_S:
        return twice_bytes(_pdep_u64(load_u32(p + offsetof(BlockIQ3_S, scales)), nibbles));
    case TYPE_IQ1_S:
        s = _mm_srli_epi16(load_16(p + offsetof(BlockIQ1_S, qh)), 12);
        s = _mm_and_si128(_mm_or_si128(s, _mm_slli_epi16(s, 8)), _mm_set1_epi8(7));
        return _mm512_cvtepu8_epi32(s);
    case TYPE_IQ1_M:
        words = _pext_u64(load_u64(p + offsetof(BlockIQ1_M, scales)), 0x0fff0fff0fff0fff);
        return _mm512_cvtepu8_epi32(
            two_u64(_pdep_u64(words, thirds), _pdep_u64(words >> 24, thirds)));
    default: return _mm512_setzero_si512();
    }
}

INLINE uint16_t block_d(Type type, const uint8_t *p) {
    switch (type) {
    case TYPE_Q2_K: return load_u16(p + offsetof(BlockQ2_K, d));
    case TYPE_Q3_K:
    case TYPE_Q6_K:
    case TYPE_TQ1_0:
    case TYPE_TQ2_0: return load_u16(p + type_info(type)->bytes - 2);
    case TYPE_IQ1_M:
        return (uint16_t)_pext_u64(load_u64(p + offsetof(BlockIQ1_M, scales)), 0xf000f000f000f000);
    default: return load_u16(p);
    }
}

// A unit from p on. Its minima are not set where the type has none.
INLINE Unit unpack(Type type, const void *blocks) {
    const uint8_t *p = blocks;
    const TypeInfo *f = type_info(type);
    Unit u;
    if (type == TYPE_TQ1_0) integers_tq1_0(u.w, blocks);
    for (int j = 0; type != TYPE_TQ1_0 && j < 4; j++) u.w[j] = integers_of(type, p, j);
    if (f->block == 32) {
        u.scale = f->bytes == 18 ? block_scales_18(p) : block_scales(p, f->bytes);
        if (f->has_min) u.min = _mm512_sub_ps(_mm512_setzero_ps(), block_scales(p + 2, f->bytes));
        return u;
    }
    if (type == TYPE_Q4_K || type == TYPE_Q5_K) {
        k_scales(&u, p);
        return u;
    }
    u.scale = f16_to_all(block_d(type, p));
    if (type == TYPE_TQ1_0 || type == TYPE_TQ2_0) return u;
    __m512 s = _mm512_cvtepi32_ps(scale_integers(type, p));
    if (codebook_info(type)->entry_len)
        s = _mm512_fmadd_ps(s, _mm512_set1_ps(2 * codebook_info(type)->factor),
                            _mm512_set1_ps(codebook_info(type)->factor));
    u.scale = _mm512_mul_ps(s, u.scale);
    if (type == TYPE_Q2_K) {
        __m512i high = _mm512_srli_epi32(_mm512_cvtepu8_epi32(load_16(p)), 4);
        uint16_t dmin = load_u16(p + offsetof(BlockQ2_K, dmin));
        u.min = _mm512_mul_ps(_mm512_cvtepi32_ps(high), f16_to_all(dmin));
    }
    return u;
}

#endif
