// AVX-512: 256 weights of every integer type as unsigned bytes u with a scale and a minimum for
// each group of 16: w = scale * (u - OFF) - min, OFF being a constant of the type.
#ifndef KERNELS_AVX512_UNPACK_H
#define KERNELS_AVX512_UNPACK_H

#include "grids.h"
#include "isa.h"
#include "unit.h"

#include <immintrin.h>

typedef struct {
    __m512i w[4];      // u, in the order of the columns
    __m512 scale, min; // per group of 16
} Unit;

typedef Unit (*Unpack)(const void *blocks, Type type);

// Mask of the first n of 16 lanes.
INLINE __mmask16 first(int n) { return (__mmask16)(n >= 16 ? 0xffff : n > 0 ? (1 << n) - 1 : 0); }

INLINE float f16_at(const void *p) {
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(load_u16(p))));
}
INLINE __m512 f16_to_all(uint16_t h) {
    return _mm512_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(h)));
}

// 16 bytes of each of 16 rows, transposed: out[d] holds dword d of rows 0 to 15. The four loads of
// a register cost no shuffle, which leaves 8 of them.
INLINE void transpose_16(__m512i out[4], const void *const row[16], size_t at) {
    __m512i r[4]; // r[i]: rows i, 4 + i, 8 + i, 12 + i
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        r[i] = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)((const char *)row[i] + at)));
        r[i] = _mm512_mask_broadcast_i32x4(
            r[i], 0x00f0, _mm_loadu_si128((const void *)((const char *)row[4 + i] + at)));
        r[i] = _mm512_mask_broadcast_i32x4(
            r[i], 0x0f00, _mm_loadu_si128((const void *)((const char *)row[8 + i] + at)));
        r[i] = _mm512_mask_broadcast_i32x4(
            r[i], 0xf000, _mm_loadu_si128((const void *)((const char *)row[12 + i] + at)));
    }
    __m512i a = _mm512_unpacklo_epi32(r[0], r[1]), b = _mm512_unpackhi_epi32(r[0], r[1]);
    __m512i c = _mm512_unpacklo_epi32(r[2], r[3]), d = _mm512_unpackhi_epi32(r[2], r[3]);
    out[0] = _mm512_unpacklo_epi64(a, c);
    out[1] = _mm512_unpackhi_epi64(a, c);
    out[2] = _mm512_unpacklo_epi64(b, d);
    out[3] = _mm512_unpackhi_epi64(b, d);
}

// out[i][j] = in[j][i] of n x 16 32-bit elements; rows of `in` are in_stride bytes apart, those of
// out 64.
INLINE void transpose(void *out, const void *in, size_t in_stride, int n) {
    const void *row[16];
    for (int i = 0; i < 16; i++) row[i] = (const char *)in + (size_t)i * in_stride;
    for (int i = 0; i < n; i += 4) {
        __m512i r[4];
        transpose_16(r, row, (size_t)i * 4);
        for (int d = 0; d < 4; d++) _mm512_store_si512((char *)out + (i + d) * 64, r[d]);
    }
}

// {a, b} in the two halves
INLINE __m512i halves(int a, int b) {
    return _mm512_inserti64x4(_mm512_set1_epi16((short)a), _mm256_set1_epi16((short)b), 1);
}

// 16 floats from 8 bytes: each byte twice, one per group of 16
INLINE __m512 bytes_to_groups(uint64_t bytes) {
    __m128i b = _mm_cvtsi64_si128((long long)bytes);
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_unpacklo_epi8(b, b)));
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

// 64 nibbles of two blocks of 16 bytes each: low nibbles are the first 16 weights of a block.
INLINE __m512i block_nibbles(const uint8_t *a, const uint8_t *b) {
    const __m512i shift = _mm512_set_epi64(0x0004000400040004, 0x0004000400040004, 0, 0,
                                           0x0004000400040004, 0x0004000400040004, 0, 0);
    __m512i v = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)a));
    v = _mm512_mask_broadcast_i32x4(v, 0xff00, _mm_loadu_si128((const void *)b));
    return _mm512_and_si512(_mm512_srlv_epi16(v, shift), _mm512_set1_epi8(15));
}

INLINE __m512i iq4_plus_128(__m512i nibbles) {
    const __m128i table =
        _mm_setr_epi8(1, 24, 45, 63, 79, 93, 106, 118, (char)129, (char)141, (char)153, (char)166,
                      (char)181, (char)197, (char)217, (char)241);
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), nibbles);
}

INLINE __m256i load_32(const void *p) { return _mm256_loadu_si256(p); }

INLINE Unit unpack_q8_0(const void *blocks, Type type) { // OFF 128
    (void)type;
    const BlockQ8_0 *b = blocks;
    Unit u;
    for (int j = 0; j < 4; j++) {
        __m512i v = _mm512_castsi256_si512(load_32(b[2 * j].qs));
        v = _mm512_inserti64x4(v, load_32(b[2 * j + 1].qs), 1);
        u.w[j] = _mm512_xor_si512(v, _mm512_set1_epi8((char)128));
    }
    u.scale = block_scales(b, sizeof *b);
    return u;
}

INLINE Unit unpack_q4_0(const void *blocks, Type type) { // OFF 8
    (void)type;
    const BlockQ4_0 *b = blocks;
    Unit u;
    for (int j = 0; j < 4; j++) u.w[j] = block_nibbles(b[2 * j].qs, b[2 * j + 1].qs);
    u.scale = block_scales_18(b);
    return u;
}

INLINE Unit unpack_iq4_nl(const void *blocks, Type type) { // OFF 128
    (void)type;
    const BlockIQ4_NL *b = blocks;
    Unit u;
    for (int j = 0; j < 4; j++) u.w[j] = iq4_plus_128(block_nibbles(b[2 * j].qs, b[2 * j + 1].qs));
    u.scale = block_scales_18(b);
    return u;
}

INLINE Unit unpack_iq4_xs(const void *block, Type type) { // OFF 128
    (void)type;
    const BlockIQ4_XS *b = block;
    Unit u;
    for (int j = 0; j < 4; j++)
        u.w[j] = iq4_plus_128(block_nibbles(b->qs + 32 * j, b->qs + 32 * j + 16));
    uint64_t s = _pdep_u64(load_u32(b->scales_l), 0x0f0f0f0f0f0f0f0f) |
                 _pdep_u64(b->scales_h, 0x3030303030303030);
    u.scale =
        _mm512_mul_ps(_mm512_sub_ps(bytes_to_groups(s), _mm512_set1_ps(32)), f16_to_all(b->d));
    return u;
}

// Q4_K and Q5_K begin with f16 d, dmin and 12 bytes of 8 scales and 8 minima: bytes 0 to 3 and 4 to
// 7 hold the first four of each in their low 6 bits, and in their high bits the high ones of the
// last four, whose low four bits are the nibbles of bytes 8 to 11.
INLINE void k_scales(Unit *u, const void *block) {
    const __m512i of_d = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1);
    const __m512i of_scale = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 8, 8, 9, 9, 10, 10, 11, 11);
    uint64_t a = load_u64((const char *)block + 4);
    uint32_t b = load_u32((const char *)block + 12);
    uint64_t first_four = a & 0x3f3f3f3f3f3f3f3f;
    uint64_t last_four =
        ((b | (uint64_t)b << 28) & 0x0f0f0f0f0f0f0f0f) | (a >> 2 & 0x3030303030303030);
    __m128i packed =
        _mm_insert_epi64(_mm_cvtsi64_si128((long long)first_four), (long long)last_four, 1);
    __m512 d = _mm512_castps128_ps512(_mm_cvtph_ps(_mm_loadu_si32(block)));
    __m512 both = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(packed)),
                                _mm512_permutexvar_ps(of_d, d));
    u->scale = _mm512_permutexvar_ps(of_scale, both);
    u->min = _mm512_permutexvar_ps(_mm512_add_epi32(of_scale, _mm512_set1_epi32(4)), both);
}

// The same of 16 rows at once: one of 8 groups, 16 rows.
INLINE void k_scales_16(float (*scale)[16], float (*min)[16], const void *const row[16]) {
    const __m512i low = _mm512_set1_epi32(15), high = _mm512_set1_epi32(0x30),
                  six = _mm512_set1_epi32(63);
    __m512i r[4];
    transpose_16(r, row, 0);
    __m512 d[2] = {_mm512_cvtph_ps(_mm512_cvtepi32_epi16(r[0])),
                   _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(r[0], 16)))};
    for (int i = 0; i < 8; i++) { // four scales, four minima
        __m512i byte = _mm512_srli_epi32(r[1 + i / 4], 8 * (i % 4));
        __m512i last = _mm512_and_si512(_mm512_srli_epi32(r[3], 8 * (i % 4) + i / 4 * 4), low);
        last = _mm512_or_si512(last, _mm512_and_si512(_mm512_srli_epi32(byte, 2), high));
        float(*to)[16] = i < 4 ? scale + i : min + i - 4;
        _mm512_store_ps(to[0],
                        _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_and_si512(byte, six)), d[i / 4]));
        _mm512_store_ps(to[4], _mm512_mul_ps(_mm512_cvtepi32_ps(last), d[i / 4]));
    }
}

// 64 nibbles of 32 bytes: the low ones, then the high ones.
INLINE __m512i pair_nibbles(const uint8_t *p) {
    __m512i v = _mm512_broadcast_i64x4(load_32(p));
    return _mm512_and_si512(_mm512_srlv_epi16(v, halves(0, 4)), _mm512_set1_epi8(15));
}

INLINE Unit unpack_q4_k(const void *block, Type type) { // OFF 0
    (void)type;
    const BlockQ4_K *b = block;
    Unit u;
    for (int j = 0; j < 4; j++) u.w[j] = pair_nibbles(b->qs + 32 * j);
    k_scales(&u, b);
    return u;
}

INLINE Unit unpack_q5_k(const void *block, Type type) { // OFF 0
    (void)type;
    const BlockQ5_K *b = block;
    Unit u;
    __m512i high = _mm512_broadcast_i64x4(load_32(b->qh));
    for (int j = 0; j < 4; j++) {
        __m512i v = pair_nibbles(b->qs + 32 * j);
        __mmask64 bit = _mm512_test_epi8_mask(high, halves(0x0101 << 2 * j, 0x0202 << 2 * j));
        u.w[j] = _mm512_mask_add_epi8(v, bit, v, _mm512_set1_epi8(16));
    }
    k_scales(&u, b);
    return u;
}

INLINE Unit unpack_q6_k(const void *block, Type type) { // OFF 32
    (void)type;
    const BlockQ6_K *b = block;
    Unit u;
    const __m512i low_mask = _mm512_set1_epi8(15), high_mask = _mm512_set1_epi8(0x30);
    for (int j = 0; j < 2; j++) {
        __m512i low = _mm512_loadu_si512(b->ql + 64 * j),
                high = _mm512_broadcast_i64x4(load_32(b->qh + 32 * j));
        __m512i h0 = _mm512_and_si512(_mm512_sllv_epi16(high, halves(4, 2)), high_mask);
        __m512i h1 = _mm512_and_si512(_mm512_srlv_epi16(high, halves(0, 2)), high_mask);
        u.w[2 * j] = _mm512_or_si512(_mm512_and_si512(low, low_mask), h0);
        u.w[2 * j + 1] = _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi16(low, 4), low_mask), h1);
    }
    __m512 s = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)b->scales)));
    u.scale = _mm512_mul_ps(s, f16_to_all(b->d));
    return u;
}

// 64 weights with 2 bits in each of 32 bytes, those at `shift` first, then the next ones.
INLINE __m512i pairs_of_bits(const uint8_t *p, int shift) {
    __m512i v = _mm512_broadcast_i64x4(load_32(p));
    return _mm512_and_si512(_mm512_srlv_epi16(v, halves(shift, shift + 2)), _mm512_set1_epi8(3));
}

INLINE Unit unpack_q2_k(const void *block, Type type) { // OFF 0
    (void)type;
    const BlockQ2_K *b = block;
    Unit u;
    for (int j = 0; j < 4; j++) u.w[j] = pairs_of_bits(b->qs + 32 * (j / 2), 4 * (j % 2));
    __m512i s = _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)b->scales));
    __m512i low = _mm512_and_si512(s, _mm512_set1_epi32(15)), high = _mm512_srli_epi32(s, 4);
    u.scale = _mm512_mul_ps(_mm512_cvtepi32_ps(low), f16_to_all(b->d));
    u.min = _mm512_mul_ps(_mm512_cvtepi32_ps(high), f16_to_all(b->dmin));
    return u;
}

INLINE Unit unpack_q3_k(const void *block, Type type) { // OFF 4
    (void)type;
    const BlockQ3_K *b = block;
    Unit u;
    __m512i third = _mm512_broadcast_i64x4(load_32(b->hmask));
    for (int j = 0; j < 4; j++) {
        __m512i v = pairs_of_bits(b->qs + 32 * (j / 2), 4 * (j % 2));
        __mmask64 bit = _mm512_test_epi8_mask(third, halves(0x0101 << 2 * j, 0x0202 << 2 * j));
        u.w[j] = _mm512_mask_add_epi8(v, bit, v, _mm512_set1_epi8(4));
    }
    uint64_t low = load_u64(b->scales);
    uint32_t high = load_u32(b->scales + 8);
    uint64_t s0 = (low & 0x0f0f0f0f0f0f0f0f) | (high << 4 & 0x30303030) |
                  (uint64_t)(high << 2 & 0x30303030) << 32;
    uint64_t s1 = (low >> 4 & 0x0f0f0f0f0f0f0f0f) | (high & 0x30303030) |
                  (uint64_t)(high >> 2 & 0x30303030) << 32;
    __m128i s = _mm_insert_epi64(_mm_cvtsi64_si128((long long)s0), (long long)s1, 1);
    __m512i less_32 = _mm512_sub_epi32(_mm512_cvtepu8_epi32(s), _mm512_set1_epi32(32));
    u.scale = _mm512_mul_ps(_mm512_cvtepi32_ps(less_32), f16_to_all(b->d));
    return u;
}

INLINE Unit unpack_q4_1(const void *blocks, Type type) { // OFF 0
    (void)type;
    const BlockQ4_1 *b = blocks;
    Unit u;
    for (int j = 0; j < 4; j++) u.w[j] = block_nibbles(b[2 * j].qs, b[2 * j + 1].qs);
    u.scale = block_scales(&b->d, sizeof *b);
    u.min = _mm512_sub_ps(_mm512_setzero_ps(), block_scales(&b->m, sizeof *b));
    return u;
}

// The fifth bits of two blocks of 32.
INLINE __m512i add_fifth(__m512i nibbles, const uint8_t *a, const uint8_t *b) {
    uint64_t bits = load_u32(a) | (uint64_t)load_u32(b) << 32;
    return _mm512_mask_add_epi8(nibbles, bits, nibbles, _mm512_set1_epi8(16));
}

INLINE Unit unpack_q5_0(const void *blocks, Type type) { // OFF 16
    (void)type;
    const BlockQ5_0 *b = blocks;
    Unit u;
    for (int j = 0; j < 8; j += 2)
        u.w[j / 2] = add_fifth(block_nibbles(b[j].qs, b[j + 1].qs), b[j].qh, b[j + 1].qh);
    u.scale = block_scales(b, sizeof *b);
    return u;
}

INLINE Unit unpack_q5_1(const void *blocks, Type type) { // OFF 0
    (void)type;
    const BlockQ5_1 *b = blocks;
    Unit u;
    for (int j = 0; j < 8; j += 2)
        u.w[j / 2] = add_fifth(block_nibbles(b[j].qs, b[j + 1].qs), b[j].qh, b[j + 1].qh);
    u.scale = block_scales(&b->d, sizeof *b);
    u.min = _mm512_sub_ps(_mm512_setzero_ps(), block_scales(&b->m, sizeof *b));
    return u;
}

// 64 weights: points of a grid by their indices. A gather waits for what its register held before:
// zeros are there at once.
INLINE __m512i eights(int grid_at, __m256i index) {
    return _mm512_mask_i32gather_epi64(_mm512_setzero_si512(), 0xff, index, grid_eights[grid_at],
                                       8);
}
INLINE __m512i fours(int grid_at, __m512i index) {
    return _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), 0xffff, index, grid_fours[grid_at],
                                       4);
}

// Negated where `minus` has a bit, plus OFF.
INLINE __m512i put_signs(__m512i points, uint64_t minus, Type type) {
    points = _mm512_mask_sub_epi8(points, minus, _mm512_setzero_si512(), points);
    return _mm512_add_epi8(points, _mm512_set1_epi8((char)type_info(type)->offset));
}

// Twice 28 bits: the signs of eight points, seven each. Each eighth sign makes the number of minus
// signs even.
INLINE uint64_t two_even_signs(uint64_t low, uint64_t high) {
    uint64_t signs = _pdep_u64(low | high << 28, 0x7f7f7f7f7f7f7f7f);
    uint64_t parity = signs ^ signs << 4; // ends in the top bit of each byte
    parity ^= parity << 2;
    return signs | ((parity ^ parity << 1) & 0x8080808080808080);
}

// d (2 s + 1) by, for a group of 16 each.
INLINE __m512 odd_scales(__m512i s, uint16_t d, float by) {
    __m512 odd = _mm512_fmadd_ps(_mm512_cvtepi32_ps(s), _mm512_set1_ps(2 * by), _mm512_set1_ps(by));
    return _mm512_mul_ps(odd, f16_to_all(d));
}

// 16 nibbles to dwords.
INLINE __m512i nibble_groups(const uint8_t *p) {
    __m128i v = _mm_loadl_epi64((const void *)p), high = _mm_srli_epi16(v, 4);
    v = _mm_and_si128(_mm_unpacklo_epi8(v, high), _mm_set1_epi8(15));
    return _mm512_cvtepu8_epi32(v);
}

// Eight indices: bytes, with those bits of `high` above them that `mask` keeps, rotated to their
// place.
INLINE __m256i join_index(const uint8_t *low, uint32_t high, __m256i rotate, int mask) {
    __m256i index = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)low));
    return _mm256_ternarylogic_epi32(_mm256_set1_epi32(mask),
                                     _mm256_rolv_epi32(_mm256_set1_epi32((int)high), rotate), index,
                                     0xca); // where the mask is set the second, else the third
}

INLINE Unit unpack_iq2_xxs(const void *block, Type type) { // OFF 64
    const BlockIQ2_XXS *b = block;
    const __m256i bytes = _mm256_setr_epi64x( // 0 to 3 and 8 to 11, each a dword
        (long long)0xffffff01ffffff00, (long long)0xffffff03ffffff02, (long long)0xffffff09ffffff08,
        (long long)0xffffff0bffffff0a);
    __m512i all = _mm512_loadu_si512(b->qs);
    Unit u;
    for (int j = 0; j < 4; j++) {
        const uint8_t *p = b->qs + 16 * j;
        __m256i two = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)p));
        u.w[j] = put_signs(eights(GRID_IQ2_XXS_AT, _mm256_shuffle_epi8(two, bytes)),
                           two_even_signs(load_u32(p + 4) & 0xfffffff, load_u32(p + 12)), type);
    }
    u.scale = odd_scales(_mm512_srli_epi32(_mm512_shuffle_epi32(all, 0xf5), 28), b->d, 0.125f);
    return u;
}

INLINE Unit unpack_iq2_xs(const void *block, Type type) { // OFF 64
    const BlockIQ2_XS *b = block;
    const uint64_t sevens = 0xfe00fe00fe00fe00;
    Unit u;
    for (int j = 0; j < 4; j++) {
        const uint8_t *p = b->qs + 16 * j;
        __m256i index = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)p));
        uint64_t minus =
            two_even_signs(_pext_u64(load_u64(p), sevens), _pext_u64(load_u64(p + 8), sevens));
        index = _mm256_and_si256(index, _mm256_set1_epi32(511));
        u.w[j] = put_signs(eights(GRID_IQ2_XS_AT, index), minus, type);
    }
    u.scale = odd_scales(nibble_groups(b->scales), b->d, 0.125f);
    return u;
}

INLINE Unit unpack_iq2_s(const void *block, Type type) { // OFF 64
    const BlockIQ2_S *b = block;
    const __m256i rotate = _mm256_setr_epi32(8, 6, 4, 2, 0, 30, 28, 26);
    Unit u;
    for (int j = 0; j < 4; j++) {
        __m256i index = join_index(b->qs + 8 * j, load_u16(b->qh + 2 * j), rotate, 0x300);
        u.w[j] = put_signs(eights(GRID_IQ2_S_AT, index), load_u64(b->signs + 8 * j), type);
    }
    u.scale = odd_scales(nibble_groups(b->scales), b->d, 0.125f);
    return u;
}

INLINE Unit unpack_iq3_xxs(const void *block, Type type) { // OFF 64
    const BlockIQ3_XXS *b = block;
    const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    Unit u;
    for (int j = 0; j < 4; j++) {
        __m512i index = _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)(b->qs + 16 * j)));
        const uint8_t *signs = b->signs + 8 * j;
        u.w[j] = put_signs(fours(GRID_IQ3_XXS_AT, index),
                           two_even_signs(load_u32(signs) & 0xfffffff, load_u32(signs + 4)), type);
    }
    __m512i all = _mm512_permutexvar_epi32(twice, _mm512_castsi256_si512(load_32(b->signs)));
    u.scale = odd_scales(_mm512_srli_epi32(all, 28), b->d, 0.25f);
    return u;
}

INLINE Unit unpack_iq3_s(const void *block, Type type) { // OFF 16
    const BlockIQ3_S *b = block;
    Unit u;
    for (int j = 0; j < 4; j++) {
        __m512i index = _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)(b->qs + 16 * j)));
        index =
            _mm512_mask_add_epi32(index, load_u16(b->qh + 2 * j), index, _mm512_set1_epi32(256));
        u.w[j] = put_signs(fours(GRID_IQ3_S_AT, index), load_u64(b->signs + 8 * j), type);
    }
    uint64_t s = 2 * _pdep_u64(load_u32(b->scales), 0x0f0f0f0f0f0f0f0f) + 0x0101010101010101;
    u.scale = _mm512_mul_ps(bytes_to_groups(s), f16_to_all(b->d));
    return u;
}

// Points of IQ1, -1 to 1: eight times that, one less or more for each eight, plus OFF.
INLINE __m512i shift_points(__m256i index, unsigned less) {
    const __m512i table = _mm512_set1_epi16(0x1008), more = _mm512_set1_epi8(9); // 0, of -1, 8, 16
    __m512i points = _mm512_shuffle_epi8(table, eights(GRID_IQ1_AT, index));
    return _mm512_add_epi8(points,
                           _mm512_mask_mov_epi64(more, (__mmask8)less, _mm512_set1_epi8(7)));
}

INLINE Unit unpack_iq1_s(const void *block, Type type) { // OFF 16
    (void)type;
    const BlockIQ1_S *b = block;
    const __m256i rotate = _mm256_setr_epi32(8, 5, 2, 31, 24, 21, 18, 15);
    Unit u;
    for (int j = 0; j < 4; j++) {
        uint32_t high = load_u32(b->qh + 4 * j);
        u.w[j] = shift_points(join_index(b->qs + 8 * j, high, rotate, 0x700),
                              (high >> 15 & 1) * 0x0f + (high >> 31) * 0xf0);
    }
    __m128i s = _mm_srli_epi16(_mm_loadu_si128((const void *)b->qh), 12);
    s = _mm_and_si128(_mm_or_si128(s, _mm_slli_epi16(s, 8)), _mm_set1_epi8(7));
    u.scale = odd_scales(_mm512_cvtepu8_epi32(s), b->d, 0.125f);
    return u;
}

INLINE Unit unpack_iq1_m(const void *block, Type type) { // OFF 16
    (void)type;
    const BlockIQ1_M *b = block;
    const __m256i rotate = _mm256_setr_epi32(8, 4, 0, 28, 24, 20, 16, 12);
    const uint64_t thirds = 0x0707070707070707, scales = load_u64(b->scales);
    Unit u;
    for (int j = 0; j < 4; j++) {
        uint32_t high = load_u32(b->qh + 4 * j);
        u.w[j] = shift_points(join_index(b->qs + 8 * j, high, rotate, 0x700),
                              _pext_u32(high, 0x88888888));
    }
    uint64_t s = _pext_u64(scales, 0x0fff0fff0fff0fff);
    __m128i bytes =
        _mm_set_epi64x((long long)_pdep_u64(s >> 24, thirds), (long long)_pdep_u64(s, thirds));
    u.scale = odd_scales(_mm512_cvtepu8_epi32(bytes),
                         (uint16_t)_pext_u64(scales, 0xf000f000f000f000), 0.125f);
    return u;
}

// Five trits of each byte: what a power of three leaves of it, times 3, overflows by.
INLINE Unit unpack_tq1_0(const void *block, Type type) { // OFF 1
    (void)type;
    const BlockTQ1_0 *b = block;
    const __m512i three = _mm512_set1_epi16(3);
    uint8_t rest[32] = {0};
    __m256i t[5], s[5]; // of 32 bytes; of 16 and of the last 4
    Unit u;
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
    u.w[0] = _mm512_inserti64x4(_mm512_castsi256_si512(t[0]), t[1], 1);
    u.w[1] = _mm512_inserti64x4(_mm512_castsi256_si512(t[2]), t[3], 1);
    u.w[2] = _mm512_inserti64x4(_mm512_castsi256_si512(t[4]), s01, 1);
    u.w[3] =
        _mm512_inserti64x4(_mm512_castsi256_si512(s23), _mm256_blend_epi32(s[4], last, 0xf0), 1);
    u.scale = f16_to_all(b->d);
    return u;
}

INLINE Unit unpack_tq2_0(const void *block, Type type) { // OFF 1
    (void)type;
    const BlockTQ2_0 *b = block;
    Unit u;
    for (int j = 0; j < 4; j++) u.w[j] = pairs_of_bits(b->qs + 32 * (j / 2), 4 * (j % 2));
    u.scale = f16_to_all(b->d);
    return u;
}

#endif
