// Tensor types: their numbers in GGUF files, and one table of their properties. All code that
// depends on the size or the integers of a type reads this table; layouts are in kernels/blocks.h.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The numbers of the GGUF format. Families, by their blocks (kernels/blocks.h):
//
//     F32, F16, BF16     floating point
//     Qn_0, Qn_1         blocks of 32 integers of n bits with a scale, _1 also with a minimum
//     Qn_K               "K-quants": superblocks of 256, scales and minima are themselves quantized
//     IQn                superblocks whose integers are indices into fixed codebooks; IQ4: into a
//                        list of 16 values
//     TQn_0              ternary: -1, 0 and 1
//     Q1_0, Q2_0         signs in blocks of 128; -1, 0, 1 and 2 in blocks of 64
typedef enum {
    TYPE_F32 = 0,
    TYPE_F16 = 1,
    TYPE_Q4_0 = 2,
    TYPE_Q4_1 = 3,
    TYPE_Q5_0 = 6,
    TYPE_Q5_1 = 7,
    TYPE_Q8_0 = 8,
    TYPE_Q2_K = 10,
    TYPE_Q3_K = 11,
    TYPE_Q4_K = 12,
    TYPE_Q5_K = 13,
    TYPE_Q6_K = 14,
    TYPE_IQ2_XXS = 16,
    TYPE_IQ2_XS = 17,
    TYPE_IQ3_XXS = 18,
    TYPE_IQ1_S = 19,
    TYPE_IQ4_NL = 20,
    TYPE_IQ3_S = 21,
    TYPE_IQ2_S = 22,
    TYPE_IQ4_XS = 23,
    TYPE_IQ1_M = 29,
    TYPE_BF16 = 30,
    TYPE_TQ1_0 = 34,
    TYPE_TQ2_0 = 35,
    TYPE_Q1_0 = 41,
    TYPE_Q2_0 = 42,
    TYPE_COUNT = 43 // greater numbers are unknown
} Type;

// A row of the type table. `block` weights are stored in `bytes` bytes; a row of a matrix is a
// whole number of blocks.
//
// A quantized type stores unsigned integers q, with a scale and perhaps a minimum for each group of
// neighboring weights:
//
//     w = scale * (q - zero_point) - min          0 <= q <= max_q
//
// In codebook types (IQ1, IQ2, IQ3) q - zero_point is the signed value of a codebook entry.
typedef struct {
    const char *name;
    int block, bytes;  // both 0 for types that were removed from the format
    int group;         // weights that share a scale; 0: not a quantized type that can be decoded
    int zero_point;    // integer that represents 0
    int max_q;         // greatest integer
    bool has_min;      // a minimum is subtracted
    int nibble_offset; // of types whose integers are plain nibbles: byte of the block they begin at
    int d_at;          // byte of the block at which d, the float16 scale, is; -1: in pieces
    int scale_bits;    // of the integer scale of a group, a factor of d; 0: the scale is d
} TypeInfo;

// clang-format off
static const TypeInfo type_table[TYPE_COUNT + 1] = {
    //                name       block bytes group zero_point max_q  has_min nibble_offset d_at scale_bits
    [TYPE_F32]     = {"F32",        1,    4,    0,         0,    0,    false,            0,    0,          0},
    [TYPE_F16]     = {"F16",        1,    2,    0,         0,    0,    false,            0,    0,          0},
    [TYPE_BF16]    = {"BF16",       1,    2,    0,         0,    0,    false,            0,    0,          0},
    [TYPE_Q8_0]    = {"Q8_0",      32,   34,   32,       128,  255,    false,            0,    0,          0},
    [TYPE_Q4_0]    = {"Q4_0",      32,   18,   32,         8,   15,    false,            2,    0,          0},
    [TYPE_Q4_1]    = {"Q4_1",      32,   20,   32,         0,   15,     true,            4,    0,          0},
    [TYPE_Q5_0]    = {"Q5_0",      32,   22,   32,        16,   31,    false,            0,    0,          0},
    [TYPE_Q5_1]    = {"Q5_1",      32,   24,   32,         0,   31,     true,            0,    0,          0},
    [TYPE_IQ4_NL]  = {"IQ4_NL",    32,   18,   32,       128,  255,    false,            2,    0,          0},
    [TYPE_Q2_K]    = {"Q2_K",     256,   84,   16,         0,    3,     true,            0,   80,          4},
    [TYPE_Q3_K]    = {"Q3_K",     256,  110,   16,         4,    7,    false,            0,  108,          6},
    [TYPE_Q4_K]    = {"Q4_K",     256,  144,   32,         0,   15,     true,           16,    0,          6},
    [TYPE_Q5_K]    = {"Q5_K",     256,  176,   32,         0,   31,     true,            0,    0,          6},
    [TYPE_Q6_K]    = {"Q6_K",     256,  210,   16,        32,   63,    false,            0,  208,          8},
    [TYPE_IQ4_XS]  = {"IQ4_XS",   256,  136,   32,       128,  255,    false,            8,    0,          6},
    [TYPE_IQ2_XXS] = {"IQ2_XXS",   256,   66,   32,        64,  127,    false,            0,    0,          4},
    [TYPE_IQ2_XS]  = {"IQ2_XS",   256,   74,   16,        64,  127,    false,            0,    0,          4},
    [TYPE_IQ2_S]   = {"IQ2_S",    256,   82,   16,        64,  127,    false,            0,    0,          4},
    [TYPE_IQ3_XXS] = {"IQ3_XXS",   256,   98,   32,        64,  127,    false,            0,    0,          4},
    [TYPE_IQ3_S]   = {"IQ3_S",    256,  110,   32,        16,   31,    false,            0,    0,          4},
    [TYPE_IQ1_S]   = {"IQ1_S",    256,   50,   32,        16,   31,    false,            0,    0,          3},
    [TYPE_IQ1_M]   = {"IQ1_M",    256,   56,   16,        16,   31,    false,            0,   -1,          3},
    [TYPE_TQ1_0]   = {"TQ1_0",    256,   54,   32,         1,    2,    false,            0,   52,          0},
    [TYPE_TQ2_0]   = {"TQ2_0",    256,   66,   32,         1,    2,    false,            0,   64,          0},
    [TYPE_Q1_0]    = {"Q1_0",     128,   18,   32,         1,    2,    false,            0,    0,          0},
    [TYPE_Q2_0]    = {"Q2_0",      64,   18,   32,         1,    3,    false,            0,    0,          0},
    // Not supported, but listed by `show` and named in messages.
    [9] = {"Q8_1", .block = 32, .bytes = 36},   [15] = {"Q8_K", .block = 256, .bytes = 292},
    [24] = {"I8", .block = 1, .bytes = 1},      [25] = {"I16", .block = 1, .bytes = 2},
    [26] = {"I32", .block = 1, .bytes = 4},     [27] = {"I64", .block = 1, .bytes = 8},
    [28] = {"F64", .block = 1, .bytes = 8},     [39] = {"MXFP4", .block = 32, .bytes = 17},
    [40] = {"NVFP4", .block = 64, .bytes = 36},
    // Removed from the format.
    [4] = {.name = "Q4_2"},         [5] = {.name = "Q4_3"},
    [31] = {.name = "Q4_0_4_4"},    [32] = {.name = "Q4_0_4_8"},    [33] = {.name = "Q4_0_8_8"},
    [36] = {.name = "IQ4_NL_4_4"},  [37] = {.name = "IQ4_NL_4_8"},  [38] = {.name = "IQ4_NL_8_8"},
    [TYPE_COUNT] = {.name = "unknown"},
};

// X(type, name, ...) for each type that can be decoded; further arguments are passed on. Integer
// types are listed by the size of their groups. The tables of kernels and of functions by type are
// generated from these lists.
#define TYPES_OF_16(X, ...) \
    X(Q2_K, q2_k, __VA_ARGS__) X(Q3_K, q3_k, __VA_ARGS__) X(Q6_K, q6_k, __VA_ARGS__) \
    X(IQ2_XS, iq2_xs, __VA_ARGS__) X(IQ2_S, iq2_s, __VA_ARGS__) X(IQ1_M, iq1_m, __VA_ARGS__)
#define TYPES_OF_32(X, ...) \
    X(Q8_0, q8_0, __VA_ARGS__) X(Q4_0, q4_0, __VA_ARGS__) X(Q4_1, q4_1, __VA_ARGS__) \
    X(Q5_0, q5_0, __VA_ARGS__) X(Q5_1, q5_1, __VA_ARGS__) X(Q4_K, q4_k, __VA_ARGS__) \
    X(Q5_K, q5_k, __VA_ARGS__) X(IQ4_NL, iq4_nl, __VA_ARGS__) X(IQ4_XS, iq4_xs, __VA_ARGS__) \
    X(IQ2_XXS, iq2_xxs, __VA_ARGS__) X(IQ3_XXS, iq3_xxs, __VA_ARGS__) X(IQ3_S, iq3_s, __VA_ARGS__) \
    X(IQ1_S, iq1_s, __VA_ARGS__) X(TQ1_0, tq1_0, __VA_ARGS__) X(TQ2_0, tq2_0, __VA_ARGS__) \
    X(Q1_0, q1_0, __VA_ARGS__) X(Q2_0, q2_0, __VA_ARGS__)
#define INTEGER_TYPES(X, ...) TYPES_OF_16(X, __VA_ARGS__) TYPES_OF_32(X, __VA_ARGS__)
#define FLOAT_TYPES(X, ...) X(F32, f32, __VA_ARGS__) X(F16, f16, __VA_ARGS__) X(BF16, bf16, __VA_ARGS__)
// clang-format on

// Never NULL: unknown numbers have the name "unknown" and no size. If the type is a compile-time
// constant, so are the fields.
static inline const TypeInfo *type_info(uint32_t type) {
    return &type_table[type < TYPE_COUNT && type_table[type].name ? type : TYPE_COUNT];
}

// Bit fields: how a type of superblocks stores its integers, if shifts and masks extract them. The
// 256 weights of a block are eight runs of 32. A field of 1, 2 or 4 bits of each weight of a run is
// at the same bits of 32 bytes. The low bits of the integers are one field, the high bits another;
// kernels/blocks.h draws them. Code that unpacks or packs such types reads this table, except
// kernels/quant.c, which is the specification.
typedef struct {
    int low_at, low_bits;   // byte of the block at which the low bits begin; bits of a field
    int low_step;           // distance of the runs whose low bits share 32 bytes
    int high_at, high_bits; // as low_at and low_bits; neighboring runs share bytes
} BitLayout;

static const BitLayout bit_layouts[TYPE_COUNT] = {
    //             low: at bits step   high: at bits
    [TYPE_Q2_K] = {16, 2, 1, 0, 0},  [TYPE_Q3_K] = {32, 2, 1, 0, 1},
    [TYPE_Q4_K] = {16, 4, 1, 0, 0},  [TYPE_Q5_K] = {48, 4, 1, 16, 1},
    [TYPE_Q6_K] = {0, 4, 2, 128, 2}, [TYPE_TQ2_0] = {0, 2, 1, 0, 0},
};

// NULL if the integers of the type are not bit fields.
static inline const BitLayout *bit_layout(uint32_t type) {
    return type < TYPE_COUNT && bit_layouts[type].low_bits ? &bit_layouts[type] : NULL;
}

// The place of a field: bits from `shift` on of 32 bytes, from byte `at` of the block on.
typedef struct {
    int at, shift;
} BitPlace;

static inline BitPlace low_bits_place(const BitLayout *b, int run) {
    const int n = 8 / b->low_bits, step = b->low_step; // n runs share 32 bytes
    const int first = run / (n * step) * step + run % step;
    return (BitPlace){b->low_at + 32 * first, run / step % n * b->low_bits};
}

static inline BitPlace high_bits_place(const BitLayout *b, int run) {
    const int n = 8 / b->high_bits;
    return (BitPlace){b->high_at + 32 * (run / n), run % n * b->high_bits};
}
