// How the blocks of each quantised type lie in memory, as published with the GGUF format. `d` and
// `m` are float16; everything is little-endian. Weights are numbered i = 0..31 or 0..255 in row
// order.
#ifndef KERNELS_BLOCKS_H
#define KERNELS_BLOCKS_H

#include <assert.h>
#include <stdint.h>

// Types of 32 weights: byte j of `qs` holds weight j in its low and weight j + 16 in its high
// nibble; bit i of `qh` (counted from the low end of its first byte) is the fifth bit of weight i.
typedef struct {
    uint16_t d;
    int8_t qs[32];
} BlockQ8_0; // w = d q

typedef struct {
    uint16_t d;
    uint8_t qs[16];
} BlockQ4_0; // w = d (q - 8)

typedef struct {
    uint16_t d, m;
    uint8_t qs[16];
} BlockQ4_1; // w = d q + m

typedef struct {
    uint16_t d;
    uint8_t qh[4], qs[16];
} BlockQ5_0; // w = d (q - 16)

typedef struct {
    uint16_t d, m;
    uint8_t qh[4], qs[16];
} BlockQ5_1; // w = d q + m

typedef struct {
    uint16_t d;
    uint8_t qs[16];
} BlockIQ4_NL; // w = d kvalues_iq4nl[q]

// Types of 256 weights. "Group" g is 16 or 32 neighbouring weights with an own small integer scale.
typedef struct {
    uint8_t scales[16]; // groups of 16: low nibble scale, high nibble minimum
    uint8_t qs[64];     // weight 128 h + 32 s + l: bits 2s of byte 32 h + l
    uint16_t d, dmin;
} BlockQ2_K; // w = d scale q - dmin minimum

typedef struct {
    uint8_t hmask[32];  // third bit of weight 32 s + l: bit s of byte l
    uint8_t qs[64];     // as Q2_K
    uint8_t scales[12]; // 16 scales of 6 bits: low four in nibbles of bytes 0..7, high two in
                        // bytes 8..11
    uint16_t d;
} BlockQ3_K; // w = d (scale - 32) (q - 4)

typedef struct {
    uint16_t d, dmin;
    uint8_t scales[12]; // 8 scales and 8 minima of 6 bits; see unpack_scales
    uint8_t qs[128]; // weight 64 p + l: low nibble of byte 32 p + l; weight 64 p + 32 + l: its high
                     // nibble
} BlockQ4_K;         // w = d scale q - dmin minimum, groups of 32

typedef struct {
    uint16_t d, dmin;
    uint8_t scales[12]; // as Q4_K
    uint8_t qh[32];     // fifth bit of weight 32 s + l: bit s of byte l
    uint8_t qs[128];    // as Q4_K
} BlockQ5_K;            // w = d scale q - dmin minimum

typedef struct {
    uint8_t ql[128]; // weight 128 h + l (l < 64): low nibble of byte 64 h + l; weight 128 h + 64 +
                     // l: its high nibble
    uint8_t qh[64];  // two high bits of weight 128 h + 32 s + l: bits 2s of byte 32 h + l
    int8_t scales[16]; // groups of 16
    uint16_t d;
} BlockQ6_K; // w = d scale (q - 32)

typedef struct {
    uint16_t d;
    uint16_t scales_h;   // bits 2g: high two bits of the scale of group g
    uint8_t scales_l[4]; // nibble g: low four bits
    uint8_t qs[128];     // 16 bytes per group of 32, as the types of 32
} BlockIQ4_XS;           // w = d (scale - 32) kvalues_iq4nl[q]

typedef struct {
    uint16_t d;
    uint8_t qs[64]; // per group of 32: 4 grid indices, then 32 bits: 4 x 7 sign bits and, on top,
                    // the scale
} BlockIQ2_XXS;     // w = d (scale + 1/2) / 4 * (sign) grid value

typedef struct {
    uint16_t d;
    uint8_t qs[64];    // 32 words: 9 bits of grid index, 7 of signs
    uint8_t scales[8]; // nibbles, of groups of 16
} BlockIQ2_XS;         // w = d (scale + 1/2) / 4 * (sign) grid value

typedef struct {
    uint16_t d;
    uint8_t qs[32], signs[32]; // low 8 bits of 32 grid indices; signs of 8 weights each
    uint8_t qh[8];             // the two bits above, four indices in a byte
    uint8_t scales[8];         // nibbles, of groups of 16
} BlockIQ2_S;                  // as IQ2_XS

typedef struct {
    uint16_t d;
    uint8_t qs[64];    // grid indices, for 4 weights each
    uint8_t signs[32]; // 32 bits per group of 32: 4 x 7 sign bits and, on top, the scale
} BlockIQ3_XXS;        // w = d (scale + 1/2) / 2 * (sign) grid value

typedef struct {
    uint16_t d;
    uint8_t qs[64],
        qh[8]; // low 8 bits of 64 grid indices, for 4 weights each; the ninth of 8 of them
    uint8_t signs[32];
    uint8_t scales[4]; // nibbles, of groups of 32
} BlockIQ3_S;          // w = d (2 scale + 1) (sign) grid value

typedef struct {
    uint16_t d;
    uint8_t qs[32]; // low 8 bits of 32 grid indices
    uint8_t qh[16]; // a word per group of 32: 4 x 3 bits above, 3 of scale, the sign of the eighth
} BlockIQ1_S;       // w = d (2 scale + 1) (grid value +- 1/8)

typedef struct {
    uint8_t qs[32];    // low 8 bits of 32 grid indices
    uint8_t qh[16];    // nibbles: 3 bits above, the sign of the eighth
    uint8_t scales[8]; // 4 words: 4 x 3 bits of scale, of groups of 16, and 4 bits of d
} BlockIQ1_M;          // as IQ1_S

typedef struct {
    uint8_t qs[48]; // five trits each, as fractions of 243 in 256ths: 32 bytes, of 32 neighbours,
                    // then 16, of 16
    uint8_t qh[4];  // four trits each
    uint16_t d;
} BlockTQ1_0; // w = d (trit - 1)

typedef struct {
    uint8_t qs[64]; // weight 128 h + 32 s + l: bits 2s of byte 32 h + l
    uint16_t d;
} BlockTQ2_0; // w = d (q - 1)

static_assert(sizeof(BlockQ8_0) == 34 && sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20,
              "packed");
static_assert(sizeof(BlockQ5_0) == 22 && sizeof(BlockQ5_1) == 24 && sizeof(BlockIQ4_NL) == 18,
              "packed");
static_assert(sizeof(BlockQ2_K) == 84 && sizeof(BlockQ3_K) == 110 && sizeof(BlockQ4_K) == 144,
              "packed");
static_assert(sizeof(BlockQ5_K) == 176 && sizeof(BlockQ6_K) == 210 && sizeof(BlockIQ4_XS) == 136,
              "packed");
static_assert(sizeof(BlockIQ2_XXS) == 66 && sizeof(BlockIQ2_XS) == 74 && sizeof(BlockIQ2_S) == 82,
              "packed");
static_assert(sizeof(BlockIQ3_XXS) == 98 && sizeof(BlockIQ3_S) == 110 && sizeof(BlockIQ1_S) == 50,
              "packed");
static_assert(sizeof(BlockIQ1_M) == 56 && sizeof(BlockTQ1_0) == 54 && sizeof(BlockTQ2_0) == 66,
              "packed");

// The 16 values of the IQ4 types.
extern const int8_t kvalues_iq4nl[16];

#endif
