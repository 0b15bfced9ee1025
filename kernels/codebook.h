// Codebook types (IQ1, IQ2, IQ3): the codebooks, and parsing of a block, 32 weights at a time.
//
// A codebook type stores, for each 4 or 8 neighboring weights, the index of an entry of a fixed
// codebook and a sign mask, and an integer scale s for each group of 16 or 32 weights. With q the
// signed integer made of an entry, a weight is
//
//     w = d * factor * (2 s + 1) * q        q = +-entry             IQ2, IQ3
//                                           q = 8 entry +- 1        IQ1: entries are -1, 0 and 1,
//                                                                   shifted by delta = 1/8
//
// codebook_group() parses 32 weights into entries, sign mask and scales, with integer operations
// only. It is used by quant.c, which is the specification, and by AVX2 and NEON. Layouts are in
// blocks.h.
#pragma once

#include "base/type.h"
#include "kernels/blocks.h"
#include "kernels/load.h"

// X(type, name) for all codebook types.
// clang-format off
#define CODEBOOK_TYPES(X)                                                                          \
    X(IQ2_XXS, iq2_xxs) X(IQ2_XS, iq2_xs) X(IQ2_S, iq2_s) X(IQ3_XXS, iq3_xxs) X(IQ3_S, iq3_s)      \
    X(IQ1_S, iq1_s) X(IQ1_M, iq1_m)
// clang-format on

// The codebooks, one after another: entry e of the codebook of IQ2_XS is
// codebook_entries8[CODEBOOK_IQ2_XS_AT + e]. IQ1_S and IQ1_M share one. Read-only after
// codebook_init(), which kernels_init() calls.
enum { CODEBOOK_N_ENTRIES8 = 256 + 512 + 1024 + 2048, CODEBOOK_N_ENTRIES4 = 256 + 512 };
enum {
    CODEBOOK_IQ2_XXS_AT = 0,
    CODEBOOK_IQ2_XS_AT = 256,
    CODEBOOK_IQ2_S_AT = 768,
    CODEBOOK_IQ1_AT = 1792,
    CODEBOOK_IQ3_XXS_AT = 0,
    CODEBOOK_IQ3_S_AT = 256
};
extern int8_t codebook_entries8[CODEBOOK_N_ENTRIES8][8], codebook_entries4[CODEBOOK_N_ENTRIES4][4];
// The codes of the entries, for AVX-512, in the order of codebook_entries8, then of
// codebook_entries4; see kernels/x86/avx512_codebook.h.
// codebook_bytes has their low bytes, then their high bytes. They are aligned because a load that
// crosses a cache line takes twice as long (IQ1_S: 1.46 of the time, Zen 5, 2026-11-28).
extern uint16_t codebook_words[CODEBOOK_N_ENTRIES8 + CODEBOOK_N_ENTRIES4]
    __attribute__((aligned(64)));
extern uint8_t codebook_bytes[2][CODEBOOK_N_ENTRIES8] __attribute__((aligned(64)));
void codebook_init(void);

typedef struct {
    int entry_len;  // weights of a codebook entry; 0: not a codebook type
    bool has_delta; // IQ1: the sign mask shifts weights by delta instead of negating them
    float factor;
} CodebookInfo;

static const CodebookInfo codebook_table[TYPE_COUNT] = {
    [TYPE_IQ2_XXS] = {8, false, 0.125f}, [TYPE_IQ2_XS] = {8, false, 0.125f},
    [TYPE_IQ2_S] = {8, false, 0.125f},   [TYPE_IQ3_XXS] = {4, false, 0.25f},
    [TYPE_IQ3_S] = {4, false, 1},        [TYPE_IQ1_S] = {8, true, 0.125f},
    [TYPE_IQ1_M] = {8, true, 0.125f},
};

// If the type is a constant at compile time, the fields are constants, too.
INLINE const CodebookInfo *codebook_info(Type type) { return &codebook_table[type]; }

// 32 weights of a block.
typedef struct {
    const int8_t *entries8[4], *entries4[8]; // codebook entries, by entry_len
    uint32_t signs;  // bit i: weight i is negated; IQ1: shifted by -delta, else by +delta
    uint32_t scales; // 2 s + 1 of both groups of 16, a byte each
} CodebookGroup;

// Expands four times 7 sign bits to four times 8. The number of negative weights of 8 is even, so
// the eighth sign is the parity of the other seven.
INLINE uint32_t signs_with_parity(uint32_t signs7) {
    uint32_t signs = (signs7 & 0x7f) | (signs7 & 0x3f80) << 1 | (signs7 & 0x1fc000) << 2 |
                     (signs7 & 0xfe00000) << 3;
    uint32_t parity = signs ^ signs << 4; // of each byte, in its top bit
    parity ^= parity << 2;
    return signs | ((parity ^ parity << 1) & 0x80808080);
}

// 2 s + 1 of two scales, in a byte each.
INLINE uint32_t scale_pair(uint32_t s0, uint32_t s1) { return (s0 | s1 << 8) * 2 + 0x0101; }

INLINE CodebookGroup codebook_group_iq2_xxs(const BlockIQ2_XXS *b, int g) {
    uint32_t v = load_u32(b->qs + 8 * g + 4);
    CodebookGroup o = {.signs = signs_with_parity(v), .scales = scale_pair(v >> 28, v >> 28)};
    for (int k = 0; k < 4; k++)
        o.entries8[k] = codebook_entries8[CODEBOOK_IQ2_XXS_AT + b->qs[8 * g + k]];
    return o;
}

INLINE CodebookGroup codebook_group_iq2_xs(const BlockIQ2_XS *b, int g) {
    uint32_t signs7 = 0;
    CodebookGroup o = {.scales = scale_pair(b->scales[g] & 15, b->scales[g] >> 4)};
    for (int k = 0; k < 4; k++) {
        uint32_t v = load_u16(b->qs + 8 * g + 2 * k);
        o.entries8[k] = codebook_entries8[CODEBOOK_IQ2_XS_AT + (v & 511)];
        signs7 |= (v >> 9) << 7 * k;
    }
    o.signs = signs_with_parity(signs7);
    return o;
}

INLINE CodebookGroup codebook_group_iq2_s(const BlockIQ2_S *b, int g) {
    CodebookGroup o = {.signs = load_u32(b->signs + 4 * g),
                       .scales = scale_pair(b->scales[g] & 15, b->scales[g] >> 4)};
    for (int k = 0; k < 4; k++) {
        int high = b->qh[g] << (8 - 2 * k) & 0x300;
        o.entries8[k] = codebook_entries8[CODEBOOK_IQ2_S_AT + (b->qs[4 * g + k] | high)];
    }
    return o;
}

INLINE CodebookGroup codebook_group_iq3_xxs(const BlockIQ3_XXS *b, int g) {
    uint32_t v = load_u32(b->signs + 4 * g);
    CodebookGroup o = {.signs = signs_with_parity(v), .scales = scale_pair(v >> 28, v >> 28)};
    for (int k = 0; k < 8; k++)
        o.entries4[k] = codebook_entries4[CODEBOOK_IQ3_XXS_AT + b->qs[8 * g + k]];
    return o;
}

INLINE CodebookGroup codebook_group_iq3_s(const BlockIQ3_S *b, int g) {
    uint32_t s = b->scales[g / 2] >> 4 * (g % 2) & 15;
    CodebookGroup o = {.signs = load_u32(b->signs + 4 * g), .scales = scale_pair(s, s)};
    for (int k = 0; k < 8; k++) {
        int high = b->qh[g] << (8 - k) & 0x100;
        o.entries4[k] = codebook_entries4[CODEBOOK_IQ3_S_AT + (b->qs[8 * g + k] | high)];
    }
    return o;
}

INLINE CodebookGroup codebook_group_iq1_s(const BlockIQ1_S *b, int g) {
    uint32_t v = load_u16(b->qh + 2 * g), s = v >> 12 & 7;
    CodebookGroup o = {.signs = v >> 15 ? UINT32_MAX : 0, .scales = scale_pair(s, s)};
    for (int k = 0; k < 4; k++)
        o.entries8[k] =
            codebook_entries8[CODEBOOK_IQ1_AT + (b->qs[4 * g + k] | (v >> 3 * k & 7) << 8)];
    return o;
}

INLINE CodebookGroup codebook_group_iq1_m(const BlockIQ1_M *b, int g) {
    uint32_t v = load_u16(b->qh + 2 * g), s = load_u16(b->scales + g / 2 * 2) >> 6 * (g % 2);
    CodebookGroup o = {.scales = scale_pair(s & 7, s >> 3 & 7)};
    for (int k = 0; k < 4; k++, v >>= 4) {
        o.entries8[k] = codebook_entries8[CODEBOOK_IQ1_AT + (b->qs[4 * g + k] | (v & 7) << 8)];
        o.signs |= (v >> 3 & 1) * 255 << 8 * k;
    }
    return o;
}

// Weights [32 g, 32 g + 32) of a block.
INLINE CodebookGroup codebook_group(Type type, const void *block, int g) {
    switch (type) {
#define GROUP_OF(type, name)                                                                       \
    case TYPE_##type: return codebook_group_##name(block, g);
        CODEBOOK_TYPES(GROUP_OF)
#undef GROUP_OF
    default: return (CodebookGroup){0};
    }
}

// d of a block, a float16. IQ1_M stores it in the high nibbles of its four scale words.
INLINE uint16_t codebook_d(Type type, const void *block) {
    const uint8_t *p = ((const BlockIQ1_M *)block)->scales;
    if (type != TYPE_IQ1_M) return load_u16(block);
    return (uint16_t)(p[1] >> 4 | (p[3] & 0xf0) | (p[5] & 0xf0) << 4 | (p[7] & 0xf0) << 8);
}
