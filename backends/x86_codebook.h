// Codebook types (kernels/codebook.h) on AVX2 and AVX-512: a superblock of one row in registers,
// and the scales of its groups.
//
// Entries are loaded one by one, because gathers are slow on many CPUs. Signs, scales and, for the
// types of join_indices(), indices are unpacked for the whole superblock.
#pragma once

#include "vector.h"
#include "../kernels/codebook.h"

typedef uint32_t SignMasks __attribute__((vector_size(32))); // of eight groups of 32
typedef uint16_t Indices __attribute__((vector_size(32)));

INLINE void store_32(void *p, __m256i v) { _mm256_storeu_si256(p, v); }

// Adds the eighth sign bit of each byte, which is the parity of the other seven.
INLINE SignMasks with_parity(SignMasks signs) {
    SignMasks parity = signs ^ signs << 4; // in the top bit of each byte
    parity ^= parity << 2;
    return signs | ((parity ^ parity << 1) & 0x80808080);
}

// Types that store signs and scale of a group in one word: four times 7 sign bits and a scale of 4
// bits, or in IQ1_S one sign and a scale of 3 bits.
INLINE bool has_group_words(Type type) {
    return type == TYPE_IQ2_XXS || type == TYPE_IQ3_XXS || type == TYPE_IQ1_S;
}

INLINE SignMasks group_words(Type type, const void *block) {
    if (type == TYPE_IQ1_S)
        return (SignMasks)_mm256_cvtepu16_epi32(load_16(((const BlockIQ1_S *)block)->qh));
    if (type == TYPE_IQ3_XXS) return (SignMasks)load_32(((const BlockIQ3_XXS *)block)->signs);
    const uint8_t *p = ((const BlockIQ2_XXS *)block)->qs; // every second dword
    __m256 second = _mm256_shuffle_ps((__m256)load_32(p), (__m256)load_32(p + 32), 0xdd);
    return (SignMasks)_mm256_permute4x64_epi64((__m256i)second, 0xd8);
}

// Bit i of a mask belongs to weight i of the group (CodebookGroup.signs).
INLINE SignMasks sign_masks(Type type, const void *block) {
    const BlockIQ2_XS *iq2_xs = block;
    SignMasks words;
    __m256i v;

    switch (type) {
    case TYPE_IQ2_XXS:
    case TYPE_IQ3_XXS: // four times 7 bits
        words = group_words(type, block);
        return with_parity((words & 0x7f) | (words & 0x3f80) << 1 | (words & 0x1fc000) << 2 |
                           (words & 0xfe00000) << 3);
    case TYPE_IQ2_S: return (SignMasks)load_32(((const BlockIQ2_S *)block)->signs);
    case TYPE_IQ3_S: return (SignMasks)load_32(((const BlockIQ3_S *)block)->signs);
    case TYPE_IQ2_XS: // the top 7 bits of each word of 16 bits
        v = _mm256_packus_epi16(_mm256_srli_epi16(load_32(iq2_xs->qs), 9),
                                _mm256_srli_epi16(load_32(iq2_xs->qs + 32), 9));
        return with_parity((SignMasks)_mm256_permute4x64_epi64(v, 0xd8));
    case TYPE_IQ1_S: return 0 - (group_words(type, block) >> 15);
    default: // IQ1_M: the top bit of each nibble is the sign of 8 weights
        v = _mm256_cvtepu8_epi16(load_16(((const BlockIQ1_M *)block)->qh));
        v = (v | _mm256_slli_epi16(v, 4)) & _mm256_set1_epi8(8);
        return (SignMasks)_mm256_cmpeq_epi8(v, _mm256_set1_epi8(8));
    }
}

// Sets scale[g] to d (2 s + 1) for each group g of 16 or 32.
INLINE void codebook_scales(Type type, const void *block, float *scale) {
    const uint64_t nibbles = 0x0f0f0f0f0f0f0f0f, ones = 0x0101010101010101;
    const uint16_t half = codebook_d(type, block);
    const __m256 d = _mm256_set1_ps(f16_at(&half) * codebook_info(type)->factor);

    if (has_group_words(type)) {
        SignMasks v = group_words(type, block);
        v = 2 * (type == TYPE_IQ1_S ? v >> 12 & 7 : v >> 28) + 1;
        _mm256_storeu_ps(scale, _mm256_cvtepi32_ps((__m256i)v) * d);
        return;
    }

    // Eight scales are 4 bytes of nibbles; in IQ1_M, three bits each, below the four bits of d in
    // two words.
    for (int g = 0; g < SUPERBLOCK / type_info(type)->group; g += 8) {
        const uint8_t *p = ((const BlockIQ2_XS *)block)->scales + g / 2;
        if (type == TYPE_IQ2_S) p = ((const BlockIQ2_S *)block)->scales + g / 2;
        if (type == TYPE_IQ3_S) p = ((const BlockIQ3_S *)block)->scales;
        if (type == TYPE_IQ1_M) p = ((const BlockIQ1_M *)block)->scales + g / 2;
        uint64_t s = type == TYPE_IQ1_M ? _pdep_u64(_pext_u32(load_u32(p), 0x0fff0fff), 7 * ones)
                                        : _pdep_u64(load_u32(p), nibbles);
        __m256i v = _mm256_cvtepi8_epi32(_mm_cvtsi64_si128((long long)(2 * s + ones)));
        _mm256_storeu_ps(scale + g, _mm256_cvtepi32_ps(v) * d);
    }
}

// The indices of a type that stores their low 8 bits in qs and n more bits of each in qh. Each byte
// of qh is copied to a word for each of its indices, and multiplied by the power of two that moves
// the bits of this index to bit 8, where `mask` selects them.
INLINE void join_indices(uint16_t *index, int n_indices, const uint8_t *qs, const uint8_t *qh,
                         int n, int mask) {
    const Indices lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const Indices power = 256 >> lane * (uint16_t)n % 8;
    const __m256i all = _mm256_broadcastsi128_si256(load_16(qh));

    for (int i = 0; i < n_indices; i += 16) {
        Indices byte = (lane * (uint16_t)n / 8 + (uint16_t)(i * n / 8)) | 0x8000;
        Indices high = (Indices)_mm256_shuffle_epi8(all, (__m256i)byte) * power & (uint16_t)mask;
        store_32(index + i, _mm256_cvtepu8_epi16(load_16(qs + i)) | (__m256i)high);
    }
    // Else gcc 12 extracts the indices from the registers one by one, which is 20 % slower.
    __asm__ volatile("" ::: "memory");
}

// Sets up the indices of the types of join_indices(). Returns the first entry of their codebook, or
// -1 for other types.
INLINE int codebook_indices(Type type, const void *block, uint16_t *index) {
    const BlockIQ3_S *iq3_s = block;
    const BlockIQ2_S *iq2_s = block;
    const BlockIQ1_M *iq1_m = block;

    switch (type) {
    case TYPE_IQ3_S:
        join_indices(index, 64, iq3_s->qs, iq3_s->qh, 1, 0x100);
        return CODEBOOK_IQ3_S_AT;
    case TYPE_IQ2_S:
        join_indices(index, 32, iq2_s->qs, iq2_s->qh, 2, 0x300);
        return CODEBOOK_IQ2_S_AT;
    case TYPE_IQ1_M:
        join_indices(index, 32, iq1_m->qs, iq1_m->qh, 4, 0x700);
        return CODEBOOK_IQ1_AT;
    default: return -1;
    }
}

// The codebook entries of the 32 weights of group g; `first` and `index` as in codebook_indices().
INLINE __m256i load_entries(Type type, const void *block, int first, const uint16_t *index, int g) {
    CodebookGroup group = codebook_group(type, block, g);
    const int8_t *const *e = group.entries8;
    const int8_t *const *f = group.entries4;
    const int entry_len = codebook_info(type)->entry_len;

    for (int k = 0; first >= 0 && k < 32 / entry_len; k++) {
        int i = first + index[32 / entry_len * g + k];
        if (entry_len == 8)
            group.entries8[k] = codebook_entries8[i];
        else
            group.entries4[k] = codebook_entries4[i];
    }

    if (entry_len == 4)
        return _mm256_setr_epi32((int)load_u32(f[0]), (int)load_u32(f[1]), (int)load_u32(f[2]),
                                 (int)load_u32(f[3]), (int)load_u32(f[4]), (int)load_u32(f[5]),
                                 (int)load_u32(f[6]), (int)load_u32(f[7]));
    return _mm256_setr_epi64x((int64_t)load_u64(e[0]), (int64_t)load_u64(e[1]),
                              (int64_t)load_u64(e[2]), (int64_t)load_u64(e[3]));
}

// Unpacks the integers of a superblock, as unsigned bytes, and the scale of each group of 16 or 32.
INLINE void unpack_codebook(Type type, const void *block, __m256i q[8], float *scale) {
    const __m256i offset = _mm256_set1_epi8((char)type_info(type)->zero_point);
    const __m256i eight = _mm256_set1_epi8(8), one = _mm256_set1_epi8(1);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201);
    const __m256i byte = _mm256_setr_epi64x(0, 0x0101010101010101, 0, 0x0101010101010101);
    uint16_t index[64];

    codebook_scales(type, block, scale);
    const int first = codebook_indices(type, block, index);

    // A byte shuffle stays within a 128-bit lane, so the lower lane gets the sign bits of the first
    // 16 weights of all eight groups, and the upper lane those of the second 16.
    __m256i signs = (__m256i)sign_masks(type, block);
    signs = _mm256_shufflelo_epi16(_mm256_shufflehi_epi16(signs, 0xd8), 0xd8);
    signs = _mm256_permutevar8x32_epi32(signs, _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));

#pragma GCC unroll 8
    for (int g = 0; g < 8; g++) {
        __m256i v = load_entries(type, block, first, index, g);
        __m256i places = _mm256_add_epi8(byte, _mm256_set1_epi8((char)(2 * g)));
        __m256i sign = _mm256_shuffle_epi8(signs, places);
        sign = _mm256_cmpeq_epi8(sign & bit, bit) | one; // -1, 1
        if (codebook_info(type)->has_delta)              // 8 entry +- 1
            v = _mm256_add_epi8(_mm256_sign_epi8(eight, v), sign);
        else
            v = _mm256_sign_epi8(v, sign);
        q[g] = _mm256_add_epi8(v, offset);
    }
}
