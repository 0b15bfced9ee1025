// The layout of a block of each quantized type, as published with the GGUF format (ggml-common.h of
// llama.cpp).
//
// Everything is little-endian; d, dmin and m are float16. Weights are numbered w0 ... w31 or
// w0 ... w255 in row order, groups of 16 or 32 neighboring weights g = 0, 1, ... Bits are drawn
// with the highest on the left. The equation after each struct decodes a weight from its integer q;
// quant.c is the specification in code.
#pragma once

#include <stdint.h>

// Blocks of 32 weights.
//
//   qs[j], j < 16                      qh, as one word of 32 bits
//    7       4 3       0                31                     0
//   | w(j+16) |  w(j)   |              | fifth bits of w31 ... w0 |
//
// The code computes the offsets in three of them from the number of bits and has_min (type.h):
//
//   Q4_1   d  m  qs[16]           w = d q + m
//   Q5_0   d  qh[4]  qs[16]       w = d (q - 16)
//   Q5_1   d  m  qh[4]  qs[16]    w = d q + m

typedef struct {
    uint16_t d;
    int8_t qs[32]; // a weight each
} BlockQ8_0;       // w = d q

typedef struct {
    uint16_t d;
    uint8_t qs[16];
} BlockQ4_0; // w = d (q - 8)

typedef struct {
    uint16_t d;
    uint8_t qs[16];
} BlockIQ4_NL; // w = d kvalues_iq4nl[q]

// The 16 values of the IQ4 types.
extern const int8_t kvalues_iq4nl[16];

// Superblocks of 256 weights, divided into groups. The scale of a group is d times a small integer.
// In types with minima, the minimum of a group is dmin times another small integer.

typedef struct {
    // scales[g], groups of 16        qs[32 h + l], h < 2, l < 32; i = 128 h + l
    //  7     4 3       0              7     6 5     4 3     2 1     0
    // |  min  |  scale  |            | w(i+96)|w(i+64)|w(i+32)|  w(i) |
    uint8_t scales[16];
    uint8_t qs[64];
    uint16_t d, dmin;
} BlockQ2_K; // w = d scale q - dmin min

typedef struct {
    // hmask[l], l < 32: bit s is the third bit of w(32 s + l)
    // qs: the two low bits, as Q2_K
    // scales of 16 groups of 16, 6 bits each:
    //    scales[j], j < 8                scales[8 + j], j < 4: the two high bits of
    //     7         4 3       0           7       6 5       4 3      2 1      0
    //    | low g=j+8 | low g=j |         | g=j+12  |  g=j+8  | g=j+4  |  g=j   |
    uint8_t hmask[32];
    uint8_t qs[64];
    uint8_t scales[12];
    uint16_t d;
} BlockQ3_K; // w = d (scale - 32) (q - 4)

typedef struct {
    // scales and minima of 8 groups of 32, 6 bits each; j < 4:
    //    scales[j]                     scales[4 + j]                 scales[8 + j]
    //     7        6 5         0        7        6 5       0          7       4 3         0
    //    | scale j+4 |           |     | min j+4  |         |        | min j+4 | scale j+4 |
    //    | bits 5..4 | scale j   |     | bits 5..4|  min j  |        | low bits| low bits  |
    // qs[32 p + l], p < 4, l < 32:
    //     7           4 3        0
    //    | w(64p+32+l) | w(64p+l) |
    uint16_t d, dmin;
    uint8_t scales[12];
    uint8_t qs[128];
} BlockQ4_K; // w = d scale q - dmin min

typedef struct {
    // scales, qs: as Q4_K. qh[l], l < 32: bit s is the fifth bit of w(32 s + l)
    uint16_t d, dmin;
    uint8_t scales[12];
    uint8_t qh[32];
    uint8_t qs[128];
} BlockQ5_K; // w = d scale q - dmin min

typedef struct {
    // low four bits:                       high two bits:
    // ql[64 h + l], h < 2, l < 64          qh[32 h + l], l < 32; i = 128 h + l
    //  7             4 3          0         7     6 5     4 3     2 1     0
    // | w(128h+64+l)  | w(128h+l)  |       | w(i+96)|w(i+64)|w(i+32)|  w(i) |
    uint8_t ql[128];
    uint8_t qh[64];
    int8_t scales[16]; // of groups of 16
    uint16_t d;
} BlockQ6_K; // w = d scale (q - 32)

typedef struct {
    // scales of 8 groups of 32, 6 bits each: the low four bits are nibble g of scales_l (low nibble
    // first), the high two are bits 2g+1..2g of scales_h
    uint16_t d, scales_h;
    uint8_t scales_l[4];
    uint8_t qs[128]; // 16 bytes for each group, as IQ4_NL
} BlockIQ4_XS;       // w = d (scale - 32) kvalues_iq4nl[q]

// Codebook types (codebook.h): q is an entry of a codebook, for 4 or 8 weights, with a sign mask.
// Where 7 bits hold the signs of 8 weights, the eighth is their parity.

typedef struct {
    // for each group of 32, 8 bytes: 4 indices of 8 bits, then a word of 32 bits
    //  31    28 27           21 20           14 13          7 6          0
    // |  scale | signs w31..24 | signs w23..16 | signs w15..8 | signs w7..0 |
    uint16_t d;
    uint8_t qs[64];
} BlockIQ2_XXS; // w = d (scale + 1/2) / 4 q

typedef struct {
    // qs: for each 8 weights a word of 16 bits       scales[g], groups of 32
    //  15      9 8         0                          7              4 3             0
    // |  signs  |   index   |                        | weights 31..16 | weights 15..0 |
    uint16_t d;
    uint8_t qs[64];
    uint8_t scales[8];
} BlockIQ2_XS; // w = d (scale + 1/2) / 4 q

typedef struct {
    // qs[j]: low 8 bits of the index of weights 8j..8j+7; qh[g]: the two high bits of four indices,
    // index 4g + k in bits 2k+1..2k; signs[j]: a bit for each weight; scales: as IQ2_XS
    uint16_t d;
    uint8_t qs[32], signs[32];
    uint8_t qh[8];
    uint8_t scales[8];
} BlockIQ2_S; // w = d (scale + 1/2) / 4 q

typedef struct {
    uint16_t d;
    uint8_t qs[64];    // an index for each 4 weights
    uint8_t signs[32]; // a word of 32 bits for each group of 32: signs and scale, as IQ2_XXS
} BlockIQ3_XXS;        // w = d (scale + 1/2) / 2 q

typedef struct {
    uint16_t d;
    uint8_t qs[64];    // low 8 bits of the index of each 4 weights
    uint8_t qh[8];     // bit k of byte g: the ninth bit of index 8g + k
    uint8_t signs[32]; // a bit for each weight
    uint8_t scales[4]; // nibble g: scale of group g of 32
} BlockIQ3_S;          // w = d (2 scale + 1) q

typedef struct {
    // qs[j]: low 8 bits of the index of weights 8j..8j+7; qh: for each group of 32, a 16-bit word
    //  15       14    12 11     9 8      6 5      3 2      0
    // | -delta | scale  |  high bits of the indices 4g+3 ... 4g |
    uint16_t d;
    uint8_t qs[32];
    uint8_t qh[16];
} BlockIQ1_S; // w = d (2 scale + 1) (q + delta), delta = 1/8 or, where the bit is set, -1/8

typedef struct {
    // qs: as IQ1_S. qh, nibble j: -delta and the high bits of index j
    // scales: 4 words of 16 bits; word v has the scales of the groups of 16 from 4v on
    //  15            12 11       9 8       6 5       3 2       0
    // | bits 4v.. of d | scale 4v+3 |  4v+2  |  4v+1  |   4v   |
    uint8_t qs[32];
    uint8_t qh[16];
    uint8_t scales[8];
} BlockIQ1_M; // as IQ1_S

// Ternary types: weights of -1, 0 and 1.

typedef struct {
    // A byte of qs holds five weights as trits t0 ... t4 (0 to 2). It is the base-3 fraction
    // 0.t0t1t2t3t4 = (81 t0 + 27 t1 + 9 t2 + 3 t3 + t4) / 243 in 256ths, rounded up. Multiplied by
    // 3^n modulo 256, the byte becomes the fraction 0.t(n)t(n+1)..., and 3 times that fraction has
    // the integer part t(n). Trit n of qs[i] is w(32n + i) for i < 32, else w(160 + 16n + i - 32);
    // trit n of qh[i] is w(240 + 4n + i), n < 4.
    uint8_t qs[48];
    uint8_t qh[4];
    uint16_t d;
} BlockTQ1_0; // w = d (trit - 1)

typedef struct {
    uint8_t qs[64]; // as Q2_K
    uint16_t d;
} BlockTQ2_0; // w = d (q - 1)

// Types of 1 and 2 bits: a scale, and 128 signs or 64 codes.

typedef struct {
    uint16_t d;
    // Q1_0: w(i) is +d where bit i % 8 of byte i / 8 is 1, else -d.
    // Q2_0: w(i) = d (code - 1); its code is bits 2 (i % 4) and 2 (i % 4) + 1 of byte i / 4.
    uint8_t qs[16];
} BlockQ1_0, BlockQ2_0;
