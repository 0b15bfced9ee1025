// AVX2: the integers of a superblock of one row as 256 bytes, for every integer type.
//
// Types of up to 7 bits become unsigned integers with an offset (zero_point in base/type.h); types
// of 8 bits become signed integers. Scales are unpacked for eight rows at a time (x86_unpack.h);
// those of codebook types are unpacked here, for one row.
#pragma once

#include "kernels/x86/x86_unpack.h"

INLINE void store_32(void *p, __m256i v) { _mm256_storeu_si256(p, v); }

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

// The integers of columns [k, k + 32) of a type of bit fields; k is a constant. Byte o of the
// superblock is at p + width * o: `width` is 1 if p is a row, 8 if it points into the transposed
// superblocks of eight rows.
INLINE __m256i bit_fields_32(const BitLayout *b, const uint8_t *p, int k, int width) {
    const BitPlace low = low_bits_place(b, k / 32);
    __m256i v = bit_field(p + width * low.at, b->low_bits, low.shift, 0);
    if (!b->high_bits) return v;

    const BitPlace high = high_bits_place(b, k / 32);
    return v | bit_field(p + width * high.at, b->high_bits, high.shift, b->low_bits);
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
    default:
        return bit_layout(type) ? bit_fields_32(bit_layout(type), p, k, 1) : _mm256_setzero_si256();
    }
}

// Codebook types (kernels/codebook.h describes their blocks). Entries are loaded one by one,
// because gathers are slow on many CPUs with AVX2; signs and scales are unpacked for all eight
// groups of 32 together.

// Adds the eighth sign bit of each byte, which is the parity of the other seven.
INLINE Words with_parity(Words signs) {
    Words parity = signs ^ signs << 4; // in the top bit of each byte
    parity ^= parity << 2;
    return signs | ((parity ^ parity << 1) & 0x80808080);
}

// The dwords of the eight groups that hold signs and scale.
INLINE Words sign_words(Type type, const void *block) {
    if (type == TYPE_IQ1_S)
        return (Words)_mm256_cvtepu16_epi32(load_16(((const BlockIQ1_S *)block)->qh));
    if (type == TYPE_IQ3_XXS) return (Words)load_32(((const BlockIQ3_XXS *)block)->signs);
    const uint8_t *p = ((const BlockIQ2_XXS *)block)->qs; // every second dword
    __m256 second = _mm256_shuffle_ps((__m256)load_32(p), (__m256)load_32(p + 32), 0xdd);
    return (Words)_mm256_permute4x64_epi64((__m256i)second, 0xd8);
}

// Stores eight bytes times d.
INLINE void store_byte_scales(uint64_t bytes, float d, float *out) {
    __m256i s = _mm256_cvtepi8_epi32(_mm_cvtsi64_si128((long long)bytes));
    _mm256_storeu_ps(out, _mm256_cvtepi32_ps(s) * splat(d));
}

// Returns the sign masks of the eight groups of 32. Sets scale[g] to d (2 s + 1) for each group g
// of 16 or 32.
INLINE Words codebook_signs(Type type, const void *block, float d, float *scale) {
    const uint64_t nibble = 0x0f0f0f0f0f0f0f0f, ones = 0x0101010101010101;
    const BlockIQ1_M *iq1_m = block;
    const BlockIQ2_XS *iq2_xs = block;
    const BlockIQ2_S *iq2_s = block;
    const BlockIQ3_S *iq3_s = block;
    Words v = {0};

    // These types store signs and scale of a group together: four times 7 sign bits, whose parity
    // is the eighth, and a scale of 4 bits. IQ1_S has one sign and a scale of 3 bits.
    if (type == TYPE_IQ2_XXS || type == TYPE_IQ3_XXS || type == TYPE_IQ1_S) {
        v = sign_words(type, block);
        Words factor = 2 * (type == TYPE_IQ1_S ? v >> 12 & 7 : v >> 28) + 1;
        _mm256_storeu_ps(scale, _mm256_cvtepi32_ps((__m256i)factor) * splat(d));
        if (type == TYPE_IQ1_S) return 0 - (v >> 15);
        return with_parity((v & 0x7f) | (v & 0x3f80) << 1 | (v & 0x1fc000) << 2 |
                           (v & 0xfe00000) << 3);
    }

    // Scales: 8 of 4 bits in IQ3_S, 16 of 3 bits in IQ1_M, 16 of 4 bits in the other types.
    if (type == TYPE_IQ3_S)
        store_byte_scales(2 * _pdep_u64(load_u32(iq3_s->scales), nibble) + ones, d, scale);
    else
        for (int h = 0; h < 2; h++) {
            const uint8_t *nibbles = (type == TYPE_IQ2_S ? iq2_s->scales : iq2_xs->scales) + 4 * h;
            uint64_t s = _pdep_u64(load_u32(nibbles), nibble);
            if (type == TYPE_IQ1_M)
                s = _pdep_u64(_pext_u32(load_u32(iq1_m->scales + 4 * h), 0x0fff0fff), 7 * ones);
            store_byte_scales(2 * s + ones, d, scale + 8 * h);
        }

    // Signs of 8 weights: 8 bits (IQ2_S, IQ3_S), 7 bits and their parity (IQ2_XS) or one bit
    // (IQ1_M).
    if (type == TYPE_IQ2_S) v = (Words)load_32(iq2_s->signs);
    if (type == TYPE_IQ3_S) v = (Words)load_32(iq3_s->signs);
    if (type == TYPE_IQ2_XS) {
        __m256i sevens = _mm256_packus_epi16(_mm256_srli_epi16(load_32(iq2_xs->qs), 9),
                                             _mm256_srli_epi16(load_32(iq2_xs->qs + 32), 9));
        v = with_parity((Words)_mm256_permute4x64_epi64(sevens, 0xd8));
    }
    if (type == TYPE_IQ1_M) { // bits 3, 7, 11 and 15 of a word
        const __m256i byte = _mm256_broadcastsi128_si256(
            _mm_setr_epi8(0, 0, 1, 1, 4, 4, 5, 5, 8, 8, 9, 9, 12, 12, 13, 13));
        const __m256i bit = _mm256_set1_epi32((int)0x80088008);
        __m256i words = _mm256_cvtepu16_epi32(load_16(iq1_m->qh));
        v = (Words)_mm256_cmpeq_epi8(_mm256_shuffle_epi8(words, byte) & bit, bit);
    }
    return v;
}

// The indices of IQ3_S have nine bits: a byte in qs, and the ninth bit in qh. The byte with the
// ninth bits of 8 indices is multiplied by 256, 128, 64 ... 2, which moves bit i to bit 8 of word
// i.
INLINE void iq3_s_indices(const BlockIQ3_S *b, uint16_t index[64]) {
    const __m256i power =
        _mm256_broadcastsi128_si256(_mm_setr_epi16(256, 128, 64, 32, 16, 8, 4, 2));
    const __m256i byte = _mm256_setr_epi64x(0, 0, 0x0001000100010001, 0x0001000100010001);
    __m256i all = _mm256_set1_epi64x((int64_t)load_u64(b->qh));
    for (int i = 0; i < 4; i++) {
        __m256i at = _mm256_add_epi8(byte, _mm256_set1_epi16((short)(0x8000 | 2 * i)));
        __m256i high = _mm256_mullo_epi16(_mm256_shuffle_epi8(all, at), power);
        __m256i low = _mm256_cvtepu8_epi16(load_16(b->qs + 16 * i));
        high = high & _mm256_set1_epi16(0x100);
        store_32(index + 16 * i, low | high);
    }
    // Else gcc 12 extracts the indices from the registers one by one, which is 20 % slower.
    __asm__ volatile("" ::: "memory");
}

// The codebook entries of the 32 weights of group g.
INLINE __m256i load_entries(Type type, const void *block, const uint16_t *iq3_s_index, int g) {
    CodebookGroup group = codebook_group(type, block, g);
    const int8_t *const *e = group.entries8;
    const int8_t *const *f = group.entries4;
    for (int k = 0; type == TYPE_IQ3_S && k < 8; k++)
        group.entries4[k] = (codebook_entries4 + CODEBOOK_IQ3_S_AT)[iq3_s_index[8 * g + k]];
    if (codebook_info(type)->entry_len == 4)
        return _mm256_setr_epi32((int)load_u32(f[0]), (int)load_u32(f[1]), (int)load_u32(f[2]),
                                 (int)load_u32(f[3]), (int)load_u32(f[4]), (int)load_u32(f[5]),
                                 (int)load_u32(f[6]), (int)load_u32(f[7]));
    return _mm256_setr_epi64x((int64_t)load_u64(e[0]), (int64_t)load_u64(e[1]),
                              (int64_t)load_u64(e[2]), (int64_t)load_u64(e[3]));
}

INLINE void unpack_codebook_row(Type type, const void *block, int8_t *q, float *scale) {
    const __m256i offset = _mm256_set1_epi8((char)type_info(type)->zero_point),
                  eight = _mm256_set1_epi8(8), one = _mm256_set1_epi8(1);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201);
    const __m256i byte = _mm256_setr_epi64x(0, 0x0101010101010101, 0, 0x0101010101010101);
    uint16_t d = codebook_d(type, block), index[64];
    __m256i signs =
        (__m256i)codebook_signs(type, block, f16_at(&d) * codebook_info(type)->factor, scale);

    if (type == TYPE_IQ3_S) iq3_s_indices(block, index);

    // A byte shuffle stays within a 128-bit lane, so the lower lane gets the sign bits of the first
    // 16 weights of all eight groups, and the upper lane those of the second 16.
    signs = _mm256_shufflelo_epi16(_mm256_shufflehi_epi16(signs, 0xd8), 0xd8);
    signs = _mm256_permutevar8x32_epi32(signs, _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));

#pragma GCC unroll 8
    for (int g = 0; g < 8; g++) {
        __m256i v = load_entries(type, block, index, g);
        __m256i places = _mm256_add_epi8(byte, _mm256_set1_epi8((char)(2 * g)));
        __m256i sign = _mm256_shuffle_epi8(signs, places);
        sign = _mm256_cmpeq_epi8(sign & bit, bit) | one; // -1, 1
        if (codebook_info(type)->has_delta)              // 8 entry +- 1
            v = _mm256_add_epi8(_mm256_sign_epi8(eight, v), sign);
        else
            v = _mm256_sign_epi8(v, sign);
        store_32(q + 32 * g, _mm256_add_epi8(v, offset));
    }
}

// Unpacks the integers of a superblock and, for codebook types only, the scale of each group.
INLINE void unpack_row(Type type, const uint8_t *p, int8_t *q, float *scale) {
    if (codebook_info(type)->entry_len) {
        unpack_codebook_row(type, p, q, scale);
        return;
    }
    __m256i v[8];
    if (type == TYPE_TQ1_0) integers_tq1_0(v, (const void *)p);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        store_32(q + 32 * i, type == TYPE_TQ1_0 ? v[i] : integers_32(type, p, 32 * i));
}

// Interleaves the integers of the superblocks p of eight rows: panel[i] holds columns [4 i, 4 i +
// 4) of each row. The stored bytes are transposed and then split into integers, which halves the
// number of transposes for 4 bits. Returns false for types whose integers are not bit fields of
// bytes.
INLINE bool interleave_rows(Type type, const uint8_t *const *p, __m256i *panel) {
    const TypeInfo *info = type_info(type);
    __m256i bytes[SUPERBLOCK_MAX_BYTES / 4]; // [i]: bytes 4 i to 4 i + 3 of each row

    if (type == TYPE_Q8_0) {
        for (int i = 0; i < 16; i++)
            transpose_rows(panel + 4 * i, p, (size_t)(i / 2 * info->bytes + 2 + i % 2 * 16));
        return true;
    }
    if (bit_layout(type) && type != TYPE_Q4_K) {
        for (int i = 0; i < info->bytes / 16; i++)
            transpose_rows(bytes + 4 * i, p, (size_t)(16 * i));
        for (int c = 0; c < 8; c++)
#pragma GCC unroll 8
            for (int s = 0; s < 8; s++)
                panel[8 * s + c] =
                    bit_fields_32(bit_layout(type), (const uint8_t *)(bytes + c), 32 * s, 8);
        return true;
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
