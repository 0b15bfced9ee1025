// AVX2: 256 weights of every integer type, of which a QuantBlock holds u, or u - offset where u
// takes 8 bits, and the scale (and minimum) of each group, of 16 or 32 as the type has them.
#ifndef KERNELS_AVX2_UNPACK_H
#define KERNELS_AVX2_UNPACK_H

#include "isa.h"
#include "points.h"

#include <immintrin.h>

INLINE __m256i load_32(const void *p) { return _mm256_loadu_si256(p); }
INLINE void store_32(void *p, __m256i v) { _mm256_storeu_si256(p, v); }
INLINE float f16_at(const void *p) { return _cvtsh_ss(load_u16(p)); }

// The float16 values of 8 blocks of 32, `stride` bytes apart.
INLINE void block_scales(const void *blocks, int stride, float sign, float *out) {
    const char *p = blocks;
    uint16_t h[8];
    for (int i = 0; i < 8; i++) memcpy(h + i, p + stride * i, 2);
    __m128i v = _mm_setr_epi16((short)h[0], (short)h[1], (short)h[2], (short)h[3], (short)h[4],
                               (short)h[5], (short)h[6], (short)h[7]);
    _mm256_storeu_ps(out, _mm256_mul_ps(_mm256_cvtph_ps(v), _mm256_set1_ps(sign)));
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

INLINE __m256i iq4_lookup(__m256i index) {
    return _mm256_shuffle_epi8(
        _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)iq4_values)), index);
}

INLINE void unpack_q8_0(const void *blocks, QuantBlock *out) {
    const BlockQ8_0 *b = blocks;
    for (int i = 0; i < 8; i++) store_32(out->q + 32 * i, load_32(b[i].qs));
    block_scales(b, sizeof *b, 1, out->scale);
}

INLINE void unpack_q4_0(const void *blocks, QuantBlock *out) {
    const BlockQ4_0 *b = blocks;
    for (int i = 0; i < 8; i++)
        store_32(out->q + 32 * i, nibbles(b[i].qs));
    block_scales(b, sizeof *b, 1, out->scale);
}

INLINE void unpack_q4_1(const void *blocks, QuantBlock *out) {
    const BlockQ4_1 *b = blocks;
    for (int i = 0; i < 8; i++) store_32(out->q + 32 * i, nibbles(b[i].qs));
    block_scales(b, sizeof *b, 1, out->scale);
    block_scales(&b->m, sizeof *b, -1, out->min);
}

INLINE void unpack_q5_0(const void *blocks, QuantBlock *out) {
    const BlockQ5_0 *b = blocks;
    for (int i = 0; i < 8; i++)
        store_32(out->q + 32 * i, _mm256_or_si256(nibbles(b[i].qs), fifth_bits(b[i].qh)));
    block_scales(b, sizeof *b, 1, out->scale);
}

INLINE void unpack_q5_1(const void *blocks, QuantBlock *out) {
    const BlockQ5_1 *b = blocks;
    for (int i = 0; i < 8; i++)
        store_32(out->q + 32 * i, _mm256_or_si256(nibbles(b[i].qs), fifth_bits(b[i].qh)));
    block_scales(b, sizeof *b, 1, out->scale);
    block_scales(&b->m, sizeof *b, -1, out->min);
}

INLINE void unpack_iq4_nl(const void *blocks, QuantBlock *out) {
    const BlockIQ4_NL *b = blocks;
    for (int i = 0; i < 8; i++) store_32(out->q + 32 * i, iq4_lookup(nibbles(b[i].qs)));
    block_scales(b, sizeof *b, 1, out->scale);
}

// Eight signed bytes less `less`, times d.
INLINE void eight_scales(uint64_t bytes, int less, float d, float *out) {
    __m256i s = _mm256_cvtepi8_epi32(_mm_cvtsi64_si128((long long)bytes));
    s = _mm256_sub_epi32(s, _mm256_set1_epi32(less));
    _mm256_storeu_ps(out, _mm256_mul_ps(_mm256_cvtepi32_ps(s), _mm256_set1_ps(d)));
}

// Q4_K and Q5_K: f16 d, dmin and 12 bytes of 8 scales and 8 minima of 6 bits.
INLINE void k_scales(const void *block, QuantBlock *out) {
    const char *p = block;
    uint32_t a[3];
    memcpy(a, p + 4, sizeof a);
    uint64_t s = (a[0] & 0x3f3f3f3f) | (uint64_t)((a[2] & 0x0f0f0f0f) | (a[0] >> 2 & 0x30303030))
                                           << 32;
    uint64_t m =
        (a[1] & 0x3f3f3f3f) | (uint64_t)((a[2] >> 4 & 0x0f0f0f0f) | (a[1] >> 2 & 0x30303030)) << 32;
    eight_scales(s, 0, f16_at(p), out->scale);
    eight_scales(m, 0, f16_at(p + 2), out->min);
}

INLINE void unpack_q4_k(const void *block, QuantBlock *out) {
    const BlockQ4_K *b = block;
    const __m256i mask = _mm256_set1_epi8(15);
    for (int j = 0; j < 4; j++) {
        __m256i v = load_32(b->qs + 32 * j);
        store_32(out->q + 64 * j, _mm256_and_si256(v, mask));
        store_32(out->q + 64 * j + 32, _mm256_and_si256(_mm256_srli_epi16(v, 4), mask));
    }
    k_scales(b, out);
}

INLINE void unpack_q5_k(const void *block, QuantBlock *out) {
    const BlockQ5_K *b = block;
    const __m256i mask = _mm256_set1_epi8(15), sixteen = _mm256_set1_epi8(16);
    __m256i high = load_32(b->qh);
    for (int j = 0; j < 4; j++) {
        __m256i v = load_32(b->qs + 32 * j), h0 = _mm256_slli_epi16(high, 4),
                h1 = _mm256_slli_epi16(high, 3);
        __m256i low = _mm256_and_si256(v, mask),
                top = _mm256_and_si256(_mm256_srli_epi16(v, 4), mask);
        store_32(out->q + 64 * j, _mm256_or_si256(low, _mm256_and_si256(h0, sixteen)));
        store_32(out->q + 64 * j + 32, _mm256_or_si256(top, _mm256_and_si256(h1, sixteen)));
        high = _mm256_srli_epi16(high, 2);
    }
    k_scales(b, out);
}

INLINE void unpack_q6_k(const void *block, QuantBlock *out) {
    const BlockQ6_K *b = block;
    const __m256i mask = _mm256_set1_epi8(15), top = _mm256_set1_epi8(0x30);
    for (int h = 0; h < 2; h++) {
        __m256i high = load_32(b->qh + 32 * h);
        for (int s = 0; s < 4; s++) {
            __m256i low = load_32(b->ql + 64 * h + 32 * (s % 2));
            if (s >= 2) low = _mm256_srli_epi16(low, 4);
            __m256i two = s == 0   ? _mm256_slli_epi16(high, 4)
                          : s == 1 ? _mm256_slli_epi16(high, 2)
                          : s == 2 ? high
                                   : _mm256_srli_epi16(high, 2);
            store_32(out->q + 128 * h + 32 * s,
                     _mm256_or_si256(_mm256_and_si256(low, mask), _mm256_and_si256(two, top)));
        }
    }
    for (int g = 0; g < GROUPS; g += 8)
        eight_scales(load_u64(b->scales + g), 0, f16_at(&b->d), out->scale + g);
}

INLINE void unpack_iq4_xs(const void *block, QuantBlock *out) {
    const BlockIQ4_XS *b = block;
    for (int i = 0; i < 8; i++) store_32(out->q + 32 * i, iq4_lookup(nibbles(b->qs + 16 * i)));
    uint64_t s = _pdep_u64(load_u32(b->scales_l), 0x0f0f0f0f0f0f0f0f) |
                 _pdep_u64(b->scales_h, 0x3030303030303030);
    eight_scales(s, 32, f16_at(&b->d), out->scale);
}

INLINE void unpack_q2_k(const void *block, QuantBlock *out) {
    const BlockQ2_K *b = block;
    for (int s = 0; s < 8; s++) {
        __m256i v = _mm256_srli_epi16(load_32(b->qs + 32 * (s / 4)), 2 * (s % 4));
        store_32(out->q + 32 * s, _mm256_and_si256(v, _mm256_set1_epi8(3)));
    }
    for (int g = 0; g < GROUPS; g += 8) {
        uint64_t s = load_u64(b->scales + g), mask = 0x0f0f0f0f0f0f0f0f;
        eight_scales(s & mask, 0, f16_at(&b->d), out->scale + g);
        eight_scales(s >> 4 & mask, 0, f16_at(&b->dmin), out->min + g);
    }
}

INLINE void unpack_q3_k(const void *block, QuantBlock *out) {
    const BlockQ3_K *b = block;
    const __m256i four = _mm256_set1_epi8(4), hmask = load_32(b->hmask);
    for (int s = 0; s < 8; s++) {
        __m256i low = _mm256_srli_epi16(load_32(b->qs + 32 * (s / 4)), 2 * (s % 4));
        __m256i high = s < 3 ? _mm256_slli_epi16(hmask, 2 - s) : _mm256_srli_epi16(hmask, s - 2);
        store_32(out->q + 32 * s, _mm256_or_si256(_mm256_and_si256(low, _mm256_set1_epi8(3)),
                                                  _mm256_and_si256(high, four)));
    }
    const uint64_t low = load_u64(b->scales), mask = 0x0f0f0f0f0f0f0f0f;
    const uint32_t high = load_u32(b->scales + 8), top = 0x30303030;
    uint64_t s0 = (low & mask) | (high << 4 & top) | (uint64_t)(high << 2 & top) << 32;
    uint64_t s1 = (low >> 4 & mask) | (high & top) | (uint64_t)(high >> 2 & top) << 32;
    eight_scales(s0, 32, f16_at(&b->d), out->scale);
    eight_scales(s1, 32, f16_at(&b->d), out->scale + 8);
}

typedef uint32_t Words __attribute__((vector_size(32)));

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

// Of eight groups at once what points_of says of the signs in `minus`; the odd numbers, one for each
// group, of 16 or of 32, times d.
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
        uint64_t s = type == TYPE_IQ1_M
                         ? _pdep_u64(_pext_u32(load_u32(m->scales + 4 * h), 0x0fff0fff), 7 * ones)
                         : _pdep_u64(load_u32((type == TYPE_IQ2_S ? s2->scales : xs->scales) + 4 * h),
                                     nibble);
        eight_scales(2 * s + ones, 0, d, scale + 8 * h);
    }
    if (type == TYPE_IQ3_S)
        eight_scales(2 * _pdep_u64(load_u32(s3->scales), nibble) + ones, 0, d, scale);
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

// The indices of IQ2_S and IQ3_S, whose high bits lie apart: 4 or 8 for each byte of qh.
INLINE void points_index(Type type, const uint8_t *qs, const uint8_t *qh, uint16_t *index) {
    const bool is_fours = has_fours(type);
    const int per = is_fours ? 8 : 4;
    const __m256i up = is_fours ? _mm256_broadcastsi128_si256(
                                      _mm_setr_epi16(256, 128, 64, 32, 16, 8, 4, 2))
                                : _mm256_set1_epi64x(0x0004001000400100);
    const __m256i byte = is_fours ? _mm256_setr_epi64x(0, 0, 0x0001000100010001, 0x0001000100010001)
                                  : _mm256_setr_epi64x(0, 0x0001000100010001, 0x0002000200020002,
                                                       0x0003000300030003);
    __m256i all = _mm256_set1_epi64x((int64_t)load_u64(qh));
    for (int i = 0; i < 8 * per; i += 16) {
        __m256i at = _mm256_add_epi8(byte, _mm256_set1_epi16((short)(0x8000 | i / per)));
        __m256i high = _mm256_mullo_epi16(_mm256_shuffle_epi8(all, at), up);
        high = _mm256_and_si256(high, _mm256_set1_epi16(is_fours ? 0x100 : 0x300));
        __m256i low = _mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)(qs + i)));
        store_32(index + i, _mm256_or_si256(low, high));
    }
}

// 32 points: loaded one by one, since gathers are slow on many machines.
INLINE __m256i load_points(Type type, const void *block, const uint16_t *index, int g) {
    Points p = points_of(type, block, g);
    const int8_t *const *e = p.eights, *const *f = p.fours;
    for (int k = 0; type == TYPE_IQ2_S && k < 4; k++)
        p.eights[k] = grid_eights[GRID_IQ2_S_AT + index[4 * g + k]];
    for (int k = 0; type == TYPE_IQ3_S && k < 8; k++)
        p.fours[k] = grid_fours[GRID_IQ3_S_AT + index[8 * g + k]];
    if (has_fours(type))
        return _mm256_setr_epi32((int)load_u32(f[0]), (int)load_u32(f[1]), (int)load_u32(f[2]),
                                 (int)load_u32(f[3]), (int)load_u32(f[4]), (int)load_u32(f[5]),
                                 (int)load_u32(f[6]), (int)load_u32(f[7]));
    return _mm256_setr_epi64x((int64_t)load_u64(e[0]), (int64_t)load_u64(e[1]),
                              (int64_t)load_u64(e[2]), (int64_t)load_u64(e[3]));
}

INLINE void unpack_points(Type type, const void *block, QuantBlock *out) {
    const __m256i offset = _mm256_set1_epi8((char)type_info(type)->offset),
                  eight = _mm256_set1_epi8(8), one = _mm256_set1_epi8(1);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201);
    const __m256i byte = _mm256_setr_epi64x(0, 0x0101010101010101, 0, 0x0101010101010101);
    uint16_t h = points_d(type, block);
    __m256i signs =
        (__m256i)points_signs(type, block, f16_at(&h) * points_factor(type), out->scale);
    uint16_t index[64];
    const BlockIQ2_S *s2 = block;
    const BlockIQ3_S *s3 = block;
    if (type == TYPE_IQ2_S) points_index(type, s2->qs, s2->qh, index);
    if (type == TYPE_IQ3_S) points_index(type, s3->qs, s3->qh, index);
    // The lower half of each group's signs into the lower lane.
    signs = _mm256_shufflelo_epi16(_mm256_shufflehi_epi16(signs, 0xd8), 0xd8);
    signs = _mm256_permutevar8x32_epi32(signs, _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));
#pragma GCC unroll 8
    for (int g = 0; g < 8; g++) {
        __m256i v = load_points(type, block, index, g),
                less = _mm256_shuffle_epi8(
                    signs, _mm256_add_epi8(byte, _mm256_set1_epi8((char)(2 * g))));
        less = _mm256_or_si256(_mm256_cmpeq_epi8(_mm256_and_si256(less, bit), bit), one);
        if (is_iq1(type)) // 8 v, less or more one
            v = _mm256_add_epi8(_mm256_sign_epi8(eight, v), less);
        else
            v = _mm256_sign_epi8(v, less);
        store_32(out->q + 32 * g, _mm256_add_epi8(v, offset));
    }
}

#define UNPACK_POINTS(type, name)                                                                  \
    INLINE void unpack_##name(const void *block, QuantBlock *out) {                                \
        unpack_points(TYPE_##type, block, out);                                                    \
    }
POINT_TYPES(UNPACK_POINTS)

// Five trits of each byte: what a power of three leaves of it, times 3, overflows by.
INLINE void unpack_tq1_0(const void *block, QuantBlock *out) {
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
            if (!h) store_32(out->q + 32 * n, v);
            if (h) _mm_storeu_si128((void *)(out->q + 160 + 16 * n), _mm256_castsi256_si128(v));
            int last = _mm256_extract_epi32(v, 4);
            if (h && n < 4) memcpy(out->q + 240 + 4 * n, &last, 4);
        }
    }
    _mm256_storeu_ps(out->scale, _mm256_set1_ps(f16_at(&b->d)));
}

INLINE void unpack_tq2_0(const void *block, QuantBlock *out) {
    const BlockTQ2_0 *b = block;
    for (int s = 0; s < 8; s++) {
        __m256i v = _mm256_srli_epi16(load_32(b->qs + 32 * (s / 4)), 2 * (s % 4));
        store_32(out->q + 32 * s, _mm256_and_si256(v, _mm256_set1_epi8(3)));
    }
    _mm256_storeu_ps(out->scale, _mm256_set1_ps(f16_at(&b->d)));
}

// 256 columns of a row from column k on; if the row ends in them, what follows is zero.
INLINE void unpack_unit(Type type, const Tensor *w, const uint8_t *row, int k, QuantBlock *out) {
    uint8_t buffer[MAX_UNIT_BYTES];
    const uint8_t *p =
        whole_unit(type, row + (size_t)(k / UNIT) * (size_t)unit_bytes(type), w->cols - k, buffer);
    switch (type) {
#define UNPACK(type, name)                                                                         \
    case TYPE_##type: unpack_##name(p, out); break;
        EACH_INTEGER_TYPE(UNPACK)
    default: break;
    }
}

#endif
