// AVX-512: the integers of the codebook types (kernels/codebook.h), a superblock of one row at a
// time.
//
// Gathers of codebook entries take about a cycle each (Zen 5). Therefore an entry is a word of 16
// bits (codebook_words) with a code of 2 or 3 bits for each of its weights, and permutes of words
// look up 32 entries together: 256 entries of a codebook take four permutes and three blends.
//
//   bits of a byte    7 6    5 4    3 2    1 0      the low byte has the codes of weights 0, 2, 4
//   entries of 8      w4     w6     w0     w2       and 6, the high byte those of weights 1, 3, 5
//   entries of 4      w2  -  w2     w0     w0  -    and 7
//
// A register needs one code of each byte. The code and a sign make a nibble, which a byte shuffle
// replaces by one of 16 values. The sign is bit 0 in registers 0 and 2, and bit 2 in registers 1
// and 3, because that is where the sign masks have it: weight i at bit i, and weight i + 1 at the
// same bit of the high byte after a shift by 7.
//
// Pairs. Register n has weights 2 n and 2 n + 1 of each 8 columns, in the order of the columns, so
// no byte changes its place. Dword i of all four registers belongs to columns [16 i, 16 i + 16).
// Decode multiplies by activations in the same order (store_pairs); in_column_order() restores the
// order of the columns.
#pragma once

#include "kernels/x86/x86_unpack.h"

// Takes the bits of a where the mask is set and the bits of b elsewhere.
INLINE __m512i select_bits(__m512i mask, __m512i a, __m512i b) {
    return _mm512_ternarylogic_epi32(mask, a, b, 0xca);
}

// The codebook of a type.
typedef struct {
    int at;          // its first word in codebook_words
    int n_high_bits; // bits of an index beyond 8
    int values;      // its row of codebook_values
} WordCodebook;

static const WordCodebook word_codebooks[TYPE_COUNT] = {
    [TYPE_IQ2_XXS] = {CODEBOOK_IQ2_XXS_AT, 0, 0},
    [TYPE_IQ2_XS] = {CODEBOOK_IQ2_XS_AT, 1, 0},
    [TYPE_IQ2_S] = {CODEBOOK_IQ2_S_AT, 2, 0},
    [TYPE_IQ1_S] = {CODEBOOK_IQ1_AT, 3, 1},
    [TYPE_IQ1_M] = {CODEBOOK_IQ1_AT, 3, 1},
    [TYPE_IQ3_XXS] = {CODEBOOK_N_ENTRIES8 + CODEBOOK_IQ3_XXS_AT, 0, 2},
    [TYPE_IQ3_S] = {CODEBOOK_N_ENTRIES8 + CODEBOOK_IQ3_S_AT, 1, 3},
};

// u by the nibble of code and sign, for even and for odd registers: zero_point +- value, in IQ1
// zero_point + 8 value +- 1.
static const uint8_t codebook_values[4][2][16] = {
    {{72, 56, 0, 0, 89, 39, 0, 0, 107, 21}, {72, 89, 107, 0, 56, 39, 21}},
    {{9, 7, 0, 0, 17, 15, 0, 0, 25, 23}, {9, 17, 25, 0, 7, 15, 23}},
    {{68, 60, 76, 52, 84, 44, 92, 36, 100, 28, 108, 20, 116, 12, 126, 2},
     {68, 76, 84, 92, 60, 52, 44, 36, 100, 108, 116, 126, 28, 20, 12, 2}},
    {{17, 15, 19, 13, 21, 11, 23, 9, 25, 7, 27, 5, 29, 3, 31, 1},
     {17, 19, 21, 23, 15, 13, 11, 9, 25, 27, 29, 31, 7, 5, 3, 1}},
};

// The fields of a superblock, a word or a bit for each 8 columns.
typedef struct {
    __m512i index[2];     // bits 0 to 7 of the indices; of entries of 4: first, second entries
    __mmask32 high[2][3]; // bits 8 to 10 of the indices
    __m512i signs;        // bit i: weight i is negative
} CodebookFields;

// Adds the eighth sign, which is the parity of the other seven.
INLINE __m512i add_parity(__m512i signs) {
    const __m128i parity =
        _mm_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0);
    __m512i nibble = _mm512_ternarylogic_epi32(signs, _mm512_srli_epi16(signs, 4),
                                               _mm512_set1_epi16(15), 0x28); // (a ^ b) & c
    return signs | _mm512_shuffle_epi8(_mm512_broadcast_i32x4(parity), nibble);
}

// The signs of IQ2_XXS and IQ3_XXS: four times 7 bits in the upper half of each 64-bit word.
INLINE __m512i signs_of_dwords(__m512i v) {
    const __m128i bytes = _mm_setr_epi8(4, 5, 4, 5, 5, 6, 6, 7, 12, 13, 12, 13, 13, 14, 14, 15);
    v = _mm512_shuffle_epi8(v, _mm512_broadcast_i32x4(bytes));
    v = _mm512_srlv_epi16(v, _mm512_set1_epi64(0x0005000600070000));
    return add_parity(v & _mm512_set1_epi16(0x7f));
}

INLINE CodebookFields fields_iq2_xxs(const BlockIQ2_XXS *b) {
    const __m128i indices = _mm_setr_epi8(0, -1, 1, -1, 2, -1, 3, -1, 8, -1, 9, -1, 10, -1, 11, -1);
    __m512i v = _mm512_loadu_si512(b->qs);
    return (CodebookFields){{_mm512_shuffle_epi8(v, _mm512_broadcast_i32x4(indices))},
                            .signs = signs_of_dwords(v)};
}

INLINE CodebookFields fields_iq2_xs(const BlockIQ2_XS *b) {
    __m512i v = _mm512_loadu_si512(b->qs);
    return (CodebookFields){{v},
                            {{_mm512_test_epi16_mask(v, _mm512_set1_epi16(256))}},
                            add_parity(_mm512_srli_epi16(v, 9))};
}

INLINE __mmask32 even_bits(uint64_t v) { return (__mmask32)_pext_u64(v, 0x5555555555555555); }

INLINE CodebookFields fields_iq2_s(const BlockIQ2_S *b) {
    const uint64_t high = load_u64(b->qh);
    return (CodebookFields){{_mm512_cvtepu8_epi16(load_32(b->qs))},
                            {{even_bits(high), even_bits(high >> 1)}},
                            _mm512_cvtepu8_epi16(load_32(b->signs))};
}

INLINE CodebookFields fields_iq3_xxs(const BlockIQ3_XXS *b) {
    const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    __m512i v = _mm512_loadu_si512(b->qs), signs = _mm512_castsi256_si512(load_32(b->signs));
    return (CodebookFields){{v & _mm512_set1_epi16(255), _mm512_srli_epi16(v, 8)},
                            .signs = signs_of_dwords(_mm512_permutexvar_epi32(twice, signs))};
}

INLINE CodebookFields fields_iq3_s(const BlockIQ3_S *b) {
    const uint64_t high = load_u64(b->qh);
    __m512i v = _mm512_loadu_si512(b->qs);
    return (CodebookFields){{v & _mm512_set1_epi16(255), _mm512_srli_epi16(v, 8)},
                            {{even_bits(high)}, {even_bits(high >> 1)}},
                            _mm512_cvtepu8_epi16(load_32(b->signs))};
}

// IQ1: a word of qh has the high bits of four indices, and one or four signs of delta. Shifts move
// the high bits of index k to bits 8 to 10.
INLINE CodebookFields fields_iq1(const uint8_t *qs, const uint8_t *qh, bool is_iq1_m) {
    const __m512i word = _mm512_set_epi64(
        0x0f0e0f0e0f0e0f0e, 0x0d0c0d0c0d0c0d0c, 0x0b0a0b0a0b0a0b0a, 0x0908090809080908,
        0x0706070607060706, 0x0504050405040504, 0x0302030203020302, 0x0100010001000100);
    CodebookFields f = {.index = {_mm512_cvtepu8_epi16(load_32(qs))}};
    __m512i v = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(load_16(qh)), word);
    __m512i high =
        _mm512_sllv_epi16(v, _mm512_set1_epi64(is_iq1_m ? 0x000000040008000c : 0x0000000300060009));
    f.signs = _mm512_srai_epi16(is_iq1_m ? high : v, 15);
    for (int i = 0; i < 3; i++)
        f.high[0][i] = _mm512_test_epi16_mask(
            high, _mm512_set1_epi16((short)(is_iq1_m ? 0x1000 << i : 0x200 << i)));
    return f;
}
INLINE CodebookFields fields_iq1_s(const BlockIQ1_S *b) { return fields_iq1(b->qs, b->qh, false); }
INLINE CodebookFields fields_iq1_m(const BlockIQ1_M *b) { return fields_iq1(b->qs, b->qh, true); }

INLINE CodebookFields codebook_fields(Type type, const void *block) {
    switch (type) {
#define FIELDS_CASE(type, name)                                                                    \
    case TYPE_##type: return fields_##name(block);
        CODEBOOK_TYPES(FIELDS_CASE)
    default: return (CodebookFields){0};
    }
}

INLINE __m512i look_up_64(const uint16_t *words, __m512i index) {
    return _mm512_permutex2var_epi16(_mm512_loadu_si512(words), index,
                                     _mm512_loadu_si512(words + 32));
}

// Looks up bits 0 to 7 of the indices.
INLINE __m512i look_up_256(const uint16_t *words, __m512i index) {
    __mmask32 bit_6 = _mm512_test_epi16_mask(index, _mm512_set1_epi16(64));
    __mmask32 bit_7 = _mm512_test_epi16_mask(index, _mm512_set1_epi16(128));
    __m512i low =
        _mm512_mask_mov_epi16(look_up_64(words, index), bit_6, look_up_64(words + 64, index));
    __m512i high = _mm512_mask_mov_epi16(look_up_64(words + 128, index), bit_6,
                                         look_up_64(words + 192, index));
    return _mm512_mask_mov_epi16(low, bit_7, high);
}

// Looks up bits 0 to 7, then chooses by the high bits.
INLINE __m512i look_up_words(const uint16_t *words, __m512i index, const __mmask32 *high,
                             int n_high_bits) {
    __m512i v[8];
    int n = 1 << n_high_bits;
#pragma GCC unroll 8
    for (int i = 0; i < n; i++) v[i] = look_up_256(words + 256 * i, index);
#pragma GCC unroll 3
    for (int bit = 0; bit < n_high_bits; bit++) {
        n /= 2;
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) v[i] = _mm512_mask_mov_epi16(v[2 * i], high[bit], v[2 * i + 1]);
    }
    return v[0];
}

// The integers u of a superblock, in pairs, from the words of its entries.
INLINE void split_words(__m512i q[4], const __m512i *words, __m512i signs, Type type) {
    const bool is_4 = codebook_info(type)->entry_len == 4;
    signs = signs | _mm512_slli_epi16(signs, 7);

#pragma GCC unroll 4
    for (int n = 0; n < 4; n++) {
        __m512i v = words[is_4 ? n / 2 : 0];
        __m512i sign = n / 2 ? _mm512_srli_epi16(signs, 4) : signs;
        int code_bits = n % 2 ? 0x03 : 0x0c;
        if (is_4) code_bits = n % 2 ? 0x0b : 0x0e;
        if (is_4 ? n % 2 : n / 2) v = _mm512_srli_epi16(v, 4);

        v = select_bits(_mm512_set1_epi8((char)code_bits), v, sign & _mm512_set1_epi8(5));
        const void *values = codebook_values[word_codebooks[type].values][n % 2];
        q[n] = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(load_16(values)), v);
    }
}

INLINE void codebook_pairs(__m512i q[4], Type type, const void *block) {
    const WordCodebook *book = &word_codebooks[type];
    const CodebookFields f = codebook_fields(type, block);
    __m512i words[2];
    for (int i = 0; i < (codebook_info(type)->entry_len == 4 ? 2 : 1); i++)
        words[i] =
            look_up_words(codebook_words + book->at, f.index[i], f.high[i], book->n_high_bits);
    split_words(q, words, f.signs, type);
}

// VBMI: permutes of bytes look up the low bytes of the words of 64 entries, then their high bytes;
// that is half as many permutes and table loads. The 64 entries are those of two rows, 8 of each in
// turn.
#if defined(PART) && PART == 3
INLINE __m512i look_up_256_bytes(const uint8_t *bytes, __m512i index) {
    __m512i low =
        _mm512_permutex2var_epi8(_mm512_loadu_si512(bytes), index, _mm512_loadu_si512(bytes + 64));
    __m512i high = _mm512_permutex2var_epi8(_mm512_loadu_si512(bytes + 128), index,
                                            _mm512_loadu_si512(bytes + 192));
    return _mm512_mask_mov_epi8(low, _mm512_movepi8_mask(index), high);
}

INLINE __m512i look_up_bytes(const uint8_t *bytes, __m512i index, const __mmask64 *high,
                             int n_high_bits) {
    __m512i v[8];
    int n = 1 << n_high_bits;
#pragma GCC unroll 8
    for (int i = 0; i < n; i++) v[i] = look_up_256_bytes(bytes + 256 * i, index);
#pragma GCC unroll 3
    for (int bit = 0; bit < n_high_bits; bit++) {
        n /= 2;
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) v[i] = _mm512_mask_mov_epi8(v[2 * i], high[bit], v[2 * i + 1]);
    }
    return v[0];
}

// codebook_pairs for two rows of a type with entries of 8 weights.
INLINE void codebook_pairs_of_two(__m512i q[4], __m512i r[4], Type type, const void *block_q,
                                  const void *block_r) {
    const WordCodebook *book = &word_codebooks[type];
    const CodebookFields f = codebook_fields(type, block_q), g = codebook_fields(type, block_r);
    const uint64_t of_f = 0x00ff00ff00ff00ff;
    __mmask64 high[3];
    __m512i index =
        _mm512_permutex2var_epi64(_mm512_castsi256_si512(_mm512_cvtepi16_epi8(f.index[0])),
                                  _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11),
                                  _mm512_castsi256_si512(_mm512_cvtepi16_epi8(g.index[0])));

    for (int i = 0; i < book->n_high_bits; i++)
        high[i] = _pdep_u64(f.high[0][i], of_f) | _pdep_u64(g.high[0][i], ~of_f);

    __m512i low_bytes = look_up_bytes(codebook_bytes[0] + book->at, index, high, book->n_high_bits);
    __m512i high_bytes =
        look_up_bytes(codebook_bytes[1] + book->at, index, high, book->n_high_bits);
    __m512i words = _mm512_unpacklo_epi8(low_bytes, high_bytes);
    split_words(q, &words, f.signs, type);
    words = _mm512_unpackhi_epi8(low_bytes, high_bytes);
    split_words(r, &words, g.signs, type);
}
#endif

// Changes pairs to the order of the columns: register j has columns [64 j, 64 j + 64).
INLINE void in_column_order(__m512i q[4]) {
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i word =
        lanes | _mm512_slli_epi32(_mm512_add_epi32(lanes, _mm512_set1_epi32(32)), 16);
    const __m512i dword = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    __m512i half[2][2]; // weights 0 to 3, then 4 to 7, of each 8 columns

    for (int i = 0; i < 2; i++) {
        __m512i at = _mm512_add_epi16(word, _mm512_set1_epi16((short)(16 * i)));
        half[i][0] = _mm512_permutex2var_epi16(q[0], at, q[1]);
        half[i][1] = _mm512_permutex2var_epi16(q[2], at, q[3]);
    }
    for (int j = 0; j < 4; j++)
        q[j] = _mm512_permutex2var_epi32(
            half[j / 2][0], _mm512_add_epi32(dword, _mm512_set1_epi32(j % 2 * 8)), half[j / 2][1]);
}

// Stores columns [k, k + 32) of a superblock of activations in pairs.
INLINE void store_pairs(int8_t *q, int k, const int8_t *columns) {
    const __m256i by_register =
        _mm256_setr_epi16(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    uint64_t v[4];
    _mm256_storeu_si256((void *)v, _mm256_permutexvar_epi16(by_register, load_32(columns)));
    for (int n = 0; n < 4; n++) memcpy(q + 64 * n + k / 4, v + n, 8);
}
