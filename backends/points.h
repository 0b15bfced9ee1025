// What the i-quants store, 32 weights at a time, in a form that does not depend on the instruction
// set: which points of the type's grid they are, with which signs and scales.
#ifndef BACKENDS_POINTS_H
#define BACKENDS_POINTS_H

#include "../kernels/blocks.h"
#include "../kernels/grids.h"
#include "unit.h"

#define POINT_TYPES(X)                                                                             \
    X(IQ2_XXS, iq2_xxs)                                                                            \
    X(IQ2_XS, iq2_xs)                                                                              \
    X(IQ2_S, iq2_s) X(IQ3_XXS, iq3_xxs) X(IQ3_S, iq3_s) X(IQ1_S, iq1_s) X(IQ1_M, iq1_m)

typedef struct {
    const int8_t *eights[4], *fours[8]; // the points, of eight weights or of four
    uint32_t minus; // bit i: weight i is negative; of IQ1: less an eighth, and not more
    uint32_t odd;   // 2 s + 1 for the scale s of each group of 16, a byte each
} Points;

INLINE bool is_points(Type type) {
#define IS_TYPE(name, lower) type == TYPE_##name ||
    return POINT_TYPES(IS_TYPE) false;
}
INLINE bool has_fours(Type type) { return type == TYPE_IQ3_XXS || type == TYPE_IQ3_S; }
INLINE bool is_iq1(Type type) { return type == TYPE_IQ1_S || type == TYPE_IQ1_M; }

// Four times seven signs; each eighth makes the number of minus signs even.
INLINE uint32_t even_signs(uint32_t sevens) {
    uint32_t signs = (sevens & 0x7f) | (sevens & 0x3f80) << 1 | (sevens & 0x1fc000) << 2 |
                     (sevens & 0xfe00000) << 3;
    uint32_t parity = signs ^ signs << 4; // ends in the top bit of each byte
    parity ^= parity << 2;
    return signs | ((parity ^ parity << 1) & 0x80808080);
}

INLINE uint32_t odd_of(uint32_t s0, uint32_t s1) { return (s0 | s1 << 8) * 2 + 0x0101; }

// Group g of 32 weights of a block.
INLINE Points points_iq2_xxs(const BlockIQ2_XXS *b, int g) {
    uint32_t v = load_u32(b->qs + 8 * g + 4);
    Points o = {.minus = even_signs(v), .odd = odd_of(v >> 28, v >> 28)};
    for (int k = 0; k < 4; k++) o.eights[k] = (grid_eights + GRID_IQ2_XXS_AT)[b->qs[8 * g + k]];
    return o;
}

INLINE Points points_iq2_xs(const BlockIQ2_XS *b, int g) {
    uint32_t sevens = 0;
    Points o = {.odd = odd_of(b->scales[g] & 15, b->scales[g] >> 4)};
    for (int k = 0; k < 4; k++) {
        uint32_t v = load_u16(b->qs + 8 * g + 2 * k);
        o.eights[k] = (grid_eights + GRID_IQ2_XS_AT)[(v & 511)];
        sevens |= (v >> 9) << 7 * k;
    }
    o.minus = even_signs(sevens);
    return o;
}

INLINE Points points_iq2_s(const BlockIQ2_S *b, int g) {
    Points o = {.minus = load_u32(b->signs + 4 * g),
                .odd = odd_of(b->scales[g] & 15, b->scales[g] >> 4)};
    for (int k = 0; k < 4; k++) {
        int high = b->qh[g] << (8 - 2 * k) & 0x300;
        o.eights[k] = (grid_eights + GRID_IQ2_S_AT)[(b->qs[4 * g + k] | high)];
    }
    return o;
}

INLINE Points points_iq3_xxs(const BlockIQ3_XXS *b, int g) {
    uint32_t v = load_u32(b->signs + 4 * g);
    Points o = {.minus = even_signs(v), .odd = odd_of(v >> 28, v >> 28)};
    for (int k = 0; k < 8; k++) o.fours[k] = (grid_fours + GRID_IQ3_XXS_AT)[b->qs[8 * g + k]];
    return o;
}

INLINE Points points_iq3_s(const BlockIQ3_S *b, int g) {
    uint32_t s = b->scales[g / 2] >> 4 * (g % 2) & 15;
    Points o = {.minus = load_u32(b->signs + 4 * g), .odd = odd_of(s, s)};
    for (int k = 0; k < 8; k++) {
        int high = b->qh[g] << (8 - k) & 0x100;
        o.fours[k] = (grid_fours + GRID_IQ3_S_AT)[(b->qs[8 * g + k] | high)];
    }
    return o;
}

INLINE Points points_iq1_s(const BlockIQ1_S *b, int g) {
    uint32_t v = load_u16(b->qh + 2 * g), s = v >> 12 & 7;
    Points o = {.minus = v >> 15 ? UINT32_MAX : 0, .odd = odd_of(s, s)};
    for (int k = 0; k < 4; k++)
        o.eights[k] = (grid_eights + GRID_IQ1_AT)[(b->qs[4 * g + k] | (v >> 3 * k & 7) << 8)];
    return o;
}

INLINE Points points_iq1_m(const BlockIQ1_M *b, int g) {
    uint32_t v = load_u16(b->qh + 2 * g), s = load_u16(b->scales + g / 2 * 2) >> 6 * (g % 2);
    Points o = {.odd = odd_of(s & 7, s >> 3 & 7)};
    for (int k = 0; k < 4; k++, v >>= 4) {
        o.eights[k] = (grid_eights + GRID_IQ1_AT)[(b->qs[4 * g + k] | (v & 7) << 8)];
        o.minus |= (v >> 3 & 1) * 255 << 8 * k;
    }
    return o;
}

INLINE Points points_of(Type type, const void *block, int g) {
    switch (type) {
#define POINTS_OF(type, name)                                                                      \
    case TYPE_##type: return points_##name(block, g);
        POINT_TYPES(POINTS_OF)
    default: return (Points){0};
    }
}

// What the odd numbers are multiplied by: this float16 times a power of two.
INLINE uint16_t points_d(Type type, const void *block) {
    const uint8_t *p = ((const BlockIQ1_M *)block)->scales; // of whose words it is the high nibbles
    if (type != TYPE_IQ1_M) return (uint16_t)load_u16(block);
    return (uint16_t)(p[1] >> 4 | (p[3] & 0xf0) | (p[5] & 0xf0) << 4 | (p[7] & 0xf0) << 8);
}
INLINE float points_factor(Type type) {
    return type == TYPE_IQ3_S ? 1 : type == TYPE_IQ3_XXS ? 0.25f : 0.125f;
}

#endif
