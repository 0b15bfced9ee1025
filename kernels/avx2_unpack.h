// AVX2: 256 weights of every integer type in the form of QuantBlock.
#ifndef KERNELS_AVX2_UNPACK_H
#define KERNELS_AVX2_UNPACK_H

#include "isa.h"
#include "points.h"

#include <immintrin.h>

INLINE __m256i load_32(const void *p) { return _mm256_loadu_si256(p); }
INLINE void store_32(void *p, __m256i v) { _mm256_storeu_si256(p, v); }
INLINE float f16_at(const void *p) { return _cvtsh_ss(load_u16(p)); }

// The f16 values of 8 blocks of 32, `stride` bytes apart, each for two groups of 16.
INLINE void block_scales(const void *blocks, int stride, float sign, float *out) {
    const __m256i first = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3),
                  last = _mm256_setr_epi32(4, 4, 5, 5, 6, 6, 7, 7);
    const char *p = blocks;
    uint16_t h[8];
    for (int i = 0; i < 8; i++) memcpy(h + i, p + stride * i, 2);
    __m128i v = _mm_setr_epi16((short)h[0], (short)h[1], (short)h[2], (short)h[3], (short)h[4],
                               (short)h[5], (short)h[6], (short)h[7]);
    __m256 s = _mm256_mul_ps(_mm256_cvtph_ps(v), _mm256_set1_ps(sign));
    _mm256_storeu_ps(out, _mm256_permutevar8x32_ps(s, first));
    _mm256_storeu_ps(out + 8, _mm256_permutevar8x32_ps(s, last));
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
        store_32(out->q + 32 * i, _mm256_sub_epi8(nibbles(b[i].qs), _mm256_set1_epi8(8)));
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
    for (int i = 0; i < 8; i++) {
        __m256i v = _mm256_or_si256(nibbles(b[i].qs), fifth_bits(b[i].qh));
        store_32(out->q + 32 * i, _mm256_sub_epi8(v, _mm256_set1_epi8(16)));
    }
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
INLINE __m256 scales_of(const void *bytes, int less, float d) {
    __m256i s = _mm256_cvtepi8_epi32(_mm_loadl_epi64(bytes));
    return _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_sub_epi32(s, _mm256_set1_epi32(less))),
                         _mm256_set1_ps(d));
}

// Eight bytes to floats times d, each for two groups of 16.
INLINE void eight_scales(uint64_t bytes, float d, float *out) {
    const __m256i first = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3),
                  last = _mm256_setr_epi32(4, 4, 5, 5, 6, 6, 7, 7);
    __m256 s = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)bytes)));
    s = _mm256_mul_ps(s, _mm256_set1_ps(d));
    _mm256_storeu_ps(out, _mm256_permutevar8x32_ps(s, first));
    _mm256_storeu_ps(out + 8, _mm256_permutevar8x32_ps(s, last));
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
    eight_scales(s, f16_at(p), out->scale);
    eight_scales(m, f16_at(p + 2), out->min);
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
    const __m256i mask = _mm256_set1_epi8(15), top = _mm256_set1_epi8(0x30),
                  off = _mm256_set1_epi8(32);
    for (int h = 0; h < 2; h++) {
        __m256i high = load_32(b->qh + 32 * h);
        for (int s = 0; s < 4; s++) {
            __m256i low = load_32(b->ql + 64 * h + 32 * (s % 2));
            if (s >= 2) low = _mm256_srli_epi16(low, 4);
            __m256i two = s == 0   ? _mm256_slli_epi16(high, 4)
                          : s == 1 ? _mm256_slli_epi16(high, 2)
                          : s == 2 ? high
                                   : _mm256_srli_epi16(high, 2);
            __m256i v = _mm256_or_si256(_mm256_and_si256(low, mask), _mm256_and_si256(two, top));
            store_32(out->q + 128 * h + 32 * s, _mm256_sub_epi8(v, off));
        }
    }
    _mm256_storeu_ps(out->scale, scales_of(b->scales, 0, f16_at(&b->d)));
    _mm256_storeu_ps(out->scale + 8, scales_of(b->scales + 8, 0, f16_at(&b->d)));
}

INLINE void unpack_iq4_xs(const void *block, QuantBlock *out) {
    const BlockIQ4_XS *b = block;
    for (int i = 0; i < 8; i++) store_32(out->q + 32 * i, iq4_lookup(nibbles(b->qs + 16 * i)));
    uint64_t s = _pdep_u64(load_u32(b->scales_l), 0x0f0f0f0f0f0f0f0f) |
                 _pdep_u64(b->scales_h, 0x3030303030303030);
    float d = f16_at(&b->d);
    eight_scales(s, d, out->scale);
    for (int g = 0; g < GROUPS; g += 8)
        _mm256_storeu_ps(out->scale + g,
                         _mm256_sub_ps(_mm256_loadu_ps(out->scale + g), _mm256_set1_ps(32 * d)));
}

INLINE void unpack_q2_k(const void *block, QuantBlock *out) {
    const BlockQ2_K *b = block;
    for (int s = 0; s < 8; s++) {
        __m256i v = _mm256_srli_epi16(load_32(b->qs + 32 * (s / 4)), 2 * (s % 4));
        store_32(out->q + 32 * s, _mm256_and_si256(v, _mm256_set1_epi8(3)));
    }
    for (int g = 0; g < GROUPS; g += 8) {
        uint64_t s = load_u64(b->scales + g), mask = 0x0f0f0f0f0f0f0f0f;
        uint64_t low = s & mask, high = s >> 4 & mask;
        _mm256_storeu_ps(out->scale + g, scales_of(&low, 0, f16_at(&b->d)));
        _mm256_storeu_ps(out->min + g, scales_of(&high, 0, f16_at(&b->dmin)));
    }
}

INLINE void unpack_q3_k(const void *block, QuantBlock *out) {
    const BlockQ3_K *b = block;
    const __m256i four = _mm256_set1_epi8(4);
    for (int s = 0; s < 8; s++) {
        __m256i low = _mm256_srli_epi16(load_32(b->qs + 32 * (s / 4)), 2 * (s % 4));
        __m256i bit = _mm256_set1_epi8((char)(1 << s)),
                third = _mm256_and_si256(load_32(b->hmask), bit);
        third =
            _mm256_andnot_si256(_mm256_cmpeq_epi8(third, bit), four); // 4 where the bit is not set
        store_32(out->q + 32 * s,
                 _mm256_sub_epi8(_mm256_and_si256(low, _mm256_set1_epi8(3)), third));
    }
    const uint64_t low = load_u64(b->scales), mask = 0x0f0f0f0f0f0f0f0f;
    const uint32_t high = load_u32(b->scales + 8), top = 0x30303030;
    uint64_t s0 = (low & mask) | (high << 4 & top) | (uint64_t)(high << 2 & top) << 32;
    uint64_t s1 = (low >> 4 & mask) | (high & top) | (uint64_t)(high >> 2 & top) << 32;
    _mm256_storeu_ps(out->scale, scales_of(&s0, 32, f16_at(&b->d)));
    _mm256_storeu_ps(out->scale + 8, scales_of(&s1, 32, f16_at(&b->d)));
}

// The points are loaded one by one: gathers are slow on many machines.
INLINE void unpack_points(Type type, const void *block, QuantBlock *out) {
    uint64_t odd[2] = {0};
    uint16_t d = points_d(type, block);
#pragma GCC unroll 8
    for (int g = 0; g < 8; g++) {
        Points p = points_of(type, block, g);
        const int8_t *const *e = p.eights, *const *f = p.fours;
        __m256i v, minus = spread_bits(p.minus);
        if (has_fours(type))
            v = _mm256_setr_epi32((int)load_u32(f[0]), (int)load_u32(f[1]), (int)load_u32(f[2]),
                                  (int)load_u32(f[3]), (int)load_u32(f[4]), (int)load_u32(f[5]),
                                  (int)load_u32(f[6]), (int)load_u32(f[7]));
        else
            v = _mm256_setr_epi64x((int64_t)load_u64(e[0]), (int64_t)load_u64(e[1]),
                                   (int64_t)load_u64(e[2]), (int64_t)load_u64(e[3]));
        if (is_iq1(type)) // 8 v, less or more one
            v = _mm256_add_epi8(_mm256_sign_epi8(_mm256_set1_epi8(8), v),
                                _mm256_or_si256(minus, _mm256_set1_epi8(1)));
        else
            v = _mm256_sub_epi8(_mm256_xor_si256(v, minus), minus);
        store_32(out->q + 32 * g, v);
        odd[g / 4] |= (uint64_t)p.odd << 16 * (g % 4);
    }
    for (int h = 0; h < 2; h++)
        _mm256_storeu_ps(out->scale + 8 * h,
                         scales_of(odd + h, 0, f16_at(&d) * points_factor(type)));
}

#define UNPACK_POINTS(type, name)                                                                  \
    INLINE void unpack_##name(const void *block, QuantBlock *out) {                                \
        unpack_points(TYPE_##type, block, out);                                                    \
    }
POINT_TYPES(UNPACK_POINTS)

// Five trits of each byte: what a power of three leaves of it, times 3, overflows by.
INLINE void unpack_tq1_0(const void *block, QuantBlock *out) {
    const BlockTQ1_0 *b = block;
    const __m256i three = _mm256_set1_epi16(3), one = _mm256_set1_epi8(1);
    uint8_t bytes[64] = {0}; // 32 and 16 of five, 4 of four
    memcpy(bytes, b->qs, 52);
    for (int h = 0; h < 2; h++) {
        __m256i v = load_32(bytes + 32 * h), zero = _mm256_setzero_si256();
        __m256i low = _mm256_unpacklo_epi8(zero, v), high = _mm256_unpackhi_epi8(zero, v);
        for (int n = 0; n < 5; n++) {
            v = _mm256_packus_epi16(_mm256_mulhi_epu16(low, three),
                                    _mm256_mulhi_epu16(high, three));
            v = _mm256_sub_epi8(v, one);
            low = _mm256_mullo_epi16(low, three), high = _mm256_mullo_epi16(high, three);
            if (!h) store_32(out->q + 32 * n, v);
            if (h) _mm_storeu_si128((void *)(out->q + 160 + 16 * n), _mm256_castsi256_si128(v));
            int last = _mm256_extract_epi32(v, 4);
            if (h && n < 4) memcpy(out->q + 240 + 4 * n, &last, 4);
        }
    }
    for (int g = 0; g < GROUPS; g += 8)
        _mm256_storeu_ps(out->scale + g, _mm256_set1_ps(f16_at(&b->d)));
}

INLINE void unpack_tq2_0(const void *block, QuantBlock *out) {
    const BlockTQ2_0 *b = block;
    for (int s = 0; s < 8; s++) {
        __m256i v = _mm256_srli_epi16(load_32(b->qs + 32 * (s / 4)), 2 * (s % 4));
        v = _mm256_and_si256(v, _mm256_set1_epi8(3));
        store_32(out->q + 32 * s, _mm256_sub_epi8(v, _mm256_set1_epi8(1)));
    }
    for (int g = 0; g < GROUPS; g += 8)
        _mm256_storeu_ps(out->scale + g, _mm256_set1_ps(f16_at(&b->d)));
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
