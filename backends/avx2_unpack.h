// AVX2: the integers of a superblock of one row as 256 bytes, for every integer type.
//
// Types of up to 7 bits become unsigned integers with an offset (zero_point in base/type.h); types
// of 8 bits become signed integers. Scales are unpacked for eight rows at a time (x86_unpack.h);
// those of codebook types for one row (x86_codebook.h).
#pragma once

#include "x86_codebook.h"
#include "x86_unpack.h"

// The 32 nibbles of 16 bytes: first the low nibbles, then the high nibbles.
INLINE __m256i split_nibbles(const uint8_t *p) {
    __m128i v = load_16(p);
    __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(v), _mm_srli_epi16(v, 4), 1);
    return both & _mm256_set1_epi8(15);
}

// 32 bytes: byte i is `value` if bit i of the four bytes at p is set, else 0.
INLINE __m256i bits_as_bytes(const uint8_t *p, int value) {
    const __m256i byte =
        _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201);
    __m256i v = _mm256_shuffle_epi8(_mm256_set1_epi32((int)load_u32(p)), byte);
    return _mm256_cmpeq_epi8(v & bit, bit) & _mm256_set1_epi8((char)value);
}

// The 32 codes of 8 bytes (Q2_0), four in each. Each byte is copied to a dword, whose bytes then
// need shifts by 0, 2, 4 and 6.
INLINE __m256i split_codes(const uint8_t *p) {
    const __m256i byte = _mm256_setr_epi64x(0x0101010100000000, 0x0303030302020202,
                                            0x0505050504040404, 0x0707070706060606);
    __m256i v = _mm256_shuffle_epi8(_mm256_set1_epi64x((int64_t)load_u64(p)), byte);
    v = _mm256_blend_epi16(v, _mm256_srli_epi16(v, 4), 0xaa);
    return (v & _mm256_set1_epi16(0x0003)) | (_mm256_srli_epi16(v, 2) & _mm256_set1_epi16(0x0300));
}

INLINE __m256i and_bytes(__m256i v, int mask) { return v & _mm256_set1_epi8((char)mask); }

// The integers that nibbles encode. Each nibble is the low half of a byte of v.
INLINE __m256i nibble_values(Type type, __m256i v) {
    v = and_bytes(v, 15);
    if (type != TYPE_IQ4_NL && type != TYPE_IQ4_XS) return v;
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load_16(kvalues_iq4nl)), v);
}

// Byte of a superblock at which the nibbles of columns [k, k + 32) begin.
INLINE int nibbles_offset(Type type, int k) {
    const TypeInfo *info = type_info(type);
    return info->nibble_offset + (info->block == 32 ? k / 32 * info->bytes : k / 2);
}

// Extracts a field of `bits` bits of each byte, from bit `from` on, and places it at bit `to`.
INLINE __m256i bit_field(const uint8_t *p, int bits, int from, int to) {
    __m256i v = load_32(p);
    if (from > to) v = _mm256_srli_epi16(v, from - to);
    if (from < to) v = _mm256_slli_epi16(v, to - from);
    return and_bytes(v, ((1 << bits) - 1) << to);
}

// The integers of columns [k, k + 32) of K-quants and TQ2_0; k is a constant. These types store a
// field of 1 to 4 bits of each of 32 weights at the same bits of 32 bytes (see kernels/blocks.h),
// so a shift and a mask extract them. Byte o of the superblock is at p + width * o: `width` is 1 if
// p is a row, 8 if it points into the transposed superblocks of eight rows.
INLINE __m256i bit_fields_32(Type type, const uint8_t *p, int k, int width) {
    const int s = k / 32, half = k / 128;
    const uint8_t *b;
    __m256i low;

    switch (type) {
    case TYPE_Q4_K:
    case TYPE_Q5_K: // the nibbles are at the end of the block, after the fifth bits
        b = p + width * (type_info(type)->bytes - 128 + k / 64 * 32);
        low = bit_field(b, 4, s % 2 * 4, 0);
        if (type == TYPE_Q4_K) return low;
        return low | bit_field(p + width * offsetof(BlockQ5_K, qh), 1, s, 4);
    case TYPE_Q6_K:
        low = bit_field(p + width * (half * 64 + k % 64), 4, s % 4 / 2 * 4, 0);
        b = p + width * (offsetof(BlockQ6_K, qh) + half * 32);
        return low | bit_field(b, 2, s % 4 * 2, 4);
    case TYPE_Q2_K:
        return bit_field(p + width * (offsetof(BlockQ2_K, qs) + half * 32), 2, s % 4 * 2, 0);
    case TYPE_TQ2_0: return bit_field(p + width * half * 32, 2, s % 4 * 2, 0);
    case TYPE_Q3_K:
        low = bit_field(p + width * (offsetof(BlockQ3_K, qs) + half * 32), 2, s % 4 * 2, 0);
        return low | bit_field(p + width * offsetof(BlockQ3_K, hmask), 1, s, 2);
    default: return _mm256_setzero_si256();
    }
}

// The integers of columns [k, k + 32) of a row whose superblock begins at p.
INLINE __m256i integers_32(Type type, const uint8_t *p, int k) {
    const int bytes = type_info(type)->bytes;
    const uint8_t *b = p + k / 32 * bytes; // the block, if blocks have 32 weights
    switch (type) {
    case TYPE_Q8_0: return load_32(b + offsetof(BlockQ8_0, qs));
    case TYPE_Q4_0:
    case TYPE_Q4_1:
    case TYPE_IQ4_NL:
    case TYPE_IQ4_XS: return nibble_values(type, split_nibbles(p + nibbles_offset(type, k)));
    case TYPE_Q5_0:
    case TYPE_Q5_1: // the block ends with the fifth bits and the nibbles
        b += bytes - 20;
        return split_nibbles(b + 4) | bits_as_bytes(b, 16);
    case TYPE_Q1_0: return bits_as_bytes(p + k / 128 * bytes + 2 + k % 128 / 8, 2);
    case TYPE_Q2_0: return split_codes(p + k / 64 * bytes + 2 + k % 64 / 4);
    default: return bit_fields_32(type, p, k, 1);
    }
}

// The integers of four columns of eight rows, for c < 8: dword r has columns [k + 4 c, k + 4 c + 4)
// of row r. The superblocks of the rows are transposed: bytes[i] has bytes 4 i to 4 i + 3 of each
// row.
INLINE __m256i integers_of_8_rows(Type type, const __m256i *bytes, int k, int c) {
    return bit_fields_32(type, (const uint8_t *)(bytes + c), k, 8);
}

// Unpacks the integers of a superblock and, for codebook types only, the scale of each group.
INLINE void unpack_row(Type type, const uint8_t *p, __m256i q[8], float *scale) {
    if (codebook_info(type)->entry_len)
        unpack_codebook(type, p, q, scale);
    else if (type == TYPE_TQ1_0)
        integers_tq1_0(q, (const void *)p);
    else
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) q[i] = integers_32(type, p, 32 * i);
}

// Interleaves the integers of the superblocks p of eight rows: panel[i] holds columns [4 i, 4 i +
// 4) of each row. The stored bytes are transposed and then split into integers, which halves the
// number of transposes for 4 bits. Returns false for types whose integers are not bit fields of
// bytes.
INLINE bool interleave_rows(Type type, const uint8_t *const *p, __m256i *panel) {
    const TypeInfo *info = type_info(type);
    __m256i bytes[SUPERBLOCK_MAX_BYTES / 4];

    switch (type) {
    case TYPE_Q8_0:
        for (int i = 0; i < 16; i++)
            transpose_rows(panel + 4 * i, p, (size_t)(i / 2 * info->bytes + 2 + i % 2 * 16));
        return true;
    case TYPE_Q2_K:
    case TYPE_Q3_K:
    case TYPE_Q5_K:
    case TYPE_Q6_K:
    case TYPE_TQ2_0:
        for (int i = 0; i < info->bytes / 16; i++)
            transpose_rows(bytes + 4 * i, p, (size_t)(16 * i));
        for (int c = 0; c < 8; c++)
#pragma GCC unroll 8
            for (int s = 0; s < 8; s++)
                panel[8 * s + c] = integers_of_8_rows(type, bytes, 32 * s, c);
        return true;
    default: break;
    }
    if (!info->nibble_offset) return false;

    // Of 16 bytes, the high nibbles are 16 columns after the low nibbles; in Q4_K, 32 columns.
    for (int i = 0; i < 8; i++) {
        const int low = type == TYPE_Q4_K ? i / 2 * 16 + i % 2 * 4 : 8 * i;
        const int high = low + (type == TYPE_Q4_K ? 8 : 4);
        __m256i r[4];
        transpose_rows(r, p, (size_t)nibbles_offset(type, 32 * i));
#pragma GCC unroll 4
        for (int d = 0; d < 4; d++) {
            panel[low + d] = nibble_values(type, r[d]);
            panel[high + d] = nibble_values(type, _mm256_srli_epi16(r[d], 4));
        }
    }
    return true;
}
