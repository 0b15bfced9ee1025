// Tensor types: their numbers, and what a block of each is. Everything that knows of a type's size
// reads this table.
#ifndef BASE_TYPE_H
#define BASE_TYPE_H

#include <stdbool.h>
#include <stdint.h>

// Numbers are those of the GGUF format.
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
    TYPE_COUNT = 42 // numbers from here on are unknown
} Type;

// `block` weights are stored in `bytes` bytes; block is 0 for a number that the format does not
// use, or no longer: such a type has a name only. Types that exist but that we cannot compute with
// have a name and a size. An integer type is unsigned integers u of 0..most with a scale, and
// perhaps a minimum, for each `group` of weights: w = scale * (u - offset) - min.
typedef struct {
    const char *name;
    int block, bytes;
    int group, zero_point, max_q; // group is 0 where there are no integers
    bool has_min;
    int nibble_offset; // weights that are nibbles and nothing else begin at this byte of a block;
                       // 0: other types
} TypeInfo;

// clang-format off
static const TypeInfo type_table[TYPE_COUNT + 1] = {
    [TYPE_F32] = {"F32", 1, 4, 0, 0, 0, false, 0},
    [TYPE_F16] = {"F16", 1, 2, 0, 0, 0, false, 0},
    [TYPE_BF16] = {"BF16", 1, 2, 0, 0, 0, false, 0},
    //          name   block bytes group offset most has_min nibbles
    [TYPE_Q8_0] = {"Q8_0", 32, 34, 32, 128, 255, false, 0},
    [TYPE_Q4_0] = {"Q4_0", 32, 18, 32, 8, 15, false, 2},
    [TYPE_Q4_1] = {"Q4_1", 32, 20, 32, 0, 15, true, 4},
    [TYPE_Q5_0] = {"Q5_0", 32, 22, 32, 16, 31, false, 0},
    [TYPE_Q5_1] = {"Q5_1", 32, 24, 32, 0, 31, true, 0},
    [TYPE_IQ4_NL] = {"IQ4_NL", 32, 18, 32, 128, 255, false, 2},
    [TYPE_Q2_K] = {"Q2_K", 256, 84, 16, 0, 3, true, 0},
    [TYPE_Q3_K] = {"Q3_K", 256, 110, 16, 4, 7, false, 0},
    [TYPE_Q4_K] = {"Q4_K", 256, 144, 32, 0, 15, true, 16},
    [TYPE_Q5_K] = {"Q5_K", 256, 176, 32, 0, 31, true, 0},
    [TYPE_Q6_K] = {"Q6_K", 256, 210, 16, 32, 63, false, 0},
    [TYPE_IQ4_XS] = {"IQ4_XS", 256, 136, 32, 128, 255, false, 8},
    [TYPE_IQ2_XXS] = {"IQ2_XXS", 256, 66, 32, 64, 127, false, 0},
    [TYPE_IQ2_XS] = {"IQ2_XS", 256, 74, 16, 64, 127, false, 0},
    [TYPE_IQ2_S] = {"IQ2_S", 256, 82, 16, 64, 127, false, 0},
    [TYPE_IQ3_XXS] = {"IQ3_XXS", 256, 98, 32, 64, 127, false, 0},
    [TYPE_IQ3_S] = {"IQ3_S", 256, 110, 32, 16, 31, false, 0},
    [TYPE_IQ1_S] = {"IQ1_S", 256, 50, 32, 16, 31, false, 0},
    [TYPE_IQ1_M] = {"IQ1_M", 256, 56, 16, 16, 31, false, 0},
    [TYPE_TQ1_0] = {"TQ1_0", 256, 54, 32, 1, 2, false, 0},
    [TYPE_TQ2_0] = {"TQ2_0", 256, 66, 32, 1, 2, false, 0},
    // Names and sizes only: to say what a file holds.
    [9] = {"Q8_1", 32, 36, 0, 0, 0, false, 0},       [15] = {"Q8_K", 256, 292, 0, 0, 0, false, 0},
    [24] = {"I8", 1, 1, 0, 0, 0, false, 0},          [25] = {"I16", 1, 2, 0, 0, 0, false, 0},
    [26] = {"I32", 1, 4, 0, 0, 0, false, 0},         [27] = {"I64", 1, 8, 0, 0, 0, false, 0},
    [28] = {"F64", 1, 8, 0, 0, 0, false, 0},         [39] = {"MXFP4", 32, 17, 0, 0, 0, false, 0},
    [40] = {"NVFP4", 64, 36, 0, 0, 0, false, 0},     [41] = {"Q1_0", 128, 18, 0, 0, 0, false, 0},
    // Names only: what the format has dropped.
    [4] = {"Q4_2", 0, 0, 0, 0, 0, false, 0},         [5] = {"Q4_3", 0, 0, 0, 0, 0, false, 0},
    [31] = {"Q4_0_4_4", 0, 0, 0, 0, 0, false, 0},    [32] = {"Q4_0_4_8", 0, 0, 0, 0, 0, false, 0},
    [33] = {"Q4_0_8_8", 0, 0, 0, 0, 0, false, 0},    [36] = {"IQ4_NL_4_4", 0, 0, 0, 0, 0, false, 0},
    [37] = {"IQ4_NL_4_8", 0, 0, 0, 0, 0, false, 0},  [38] = {"IQ4_NL_8_8", 0, 0, 0, 0, 0, false, 0},
    [TYPE_COUNT] = {"unknown", 0, 0, 0, 0, 0, false, 0},
};
// clang-format on

// Never NULL. For a type known when compiled, its fields are constants.
static inline const TypeInfo *type_info(uint32_t type) {
    return &type_table[type < TYPE_COUNT && type_table[type].name ? type : TYPE_COUNT];
}

#endif
