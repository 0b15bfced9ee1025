// Conversions between tensor types and float32.
//
// All quantized types have the same structure: integers with a scale, and sometimes a minimum, for
// each group of 16 or 32 weights. quant_unpack() converts a block of any type into this form, which
// the decoder, the scalar dot product and the backends' slow paths use. The backends' fast paths
// unpack in vector registers, and are tested against quant_unpack().
#pragma once

#include "base/text.h"
#include "base/type.h"

enum { QUANT_GROUP = 16, QUANT_MAX_BLOCK = 256 };

// One block of 32 or 256 weights:
//
//     w[i] = scale[i / 16] * q[i] - min[i / 16]
//
// in float32; the product and the difference are each rounded once. For types with groups of 32,
// the scale of a group is stored twice. The integers are signed: q - zero_point in the terms of
// type_info().
typedef struct {
    int8_t q[QUANT_MAX_BLOCK];
    float scale[QUANT_MAX_BLOCK / QUANT_GROUP];
    float min[QUANT_MAX_BLOCK / QUANT_GROUP];
} QuantBlock;

float f16_to_f32(uint16_t h);
uint16_t f32_to_f16(float f); // round to nearest even
// False for infinity, which a number beyond the range of float16 becomes, and for NaN.
static inline bool f16_is_finite(uint16_t h) { return (h & 0x7c00) != 0x7c00; }
float bf16_to_f32(uint16_t h);
uint16_t f32_to_bf16(float f); // round to nearest even; NaN stays NaN

// True if the kernels can compute with this type.
bool quant_is_supported(uint32_t type);
// True for the supported types that store integers: all except F32, F16 and BF16.
bool quant_is_integer(uint32_t type);
// Bytes of a row of n weights; n is a multiple of the block.
size_t quant_row_bytes(Type type, size_t n);

// The function that unpacks a block of an integer type.
typedef void (*QuantUnpack)(const void *block, QuantBlock *out);
QuantUnpack quant_unpack(Type type);

// Decodes n weights of a row of any supported type, to the bits that the format specifies.
void quant_decode_row(Type type, const void *row, float *out, size_t n);
// The greatest magnitude that can be quantized: 127 times the greatest float16.
#define QUANT_LIMIT (127 * 65504.0f)
// Encodes n float32 values as Q8_0, by ggml's rule: the greatest magnitude of 32 becomes 127,
// halves round away from zero. False if a value is not finite or above QUANT_LIMIT. The encoders
// for files are in quantize/.
bool quant_encode_q8_0(const float *x, void *row, size_t n);
// Encodes n float32 values as Q4_0. The value of greatest magnitude becomes -7.5, -8 or -8.5 before
// rounding, whichever gives the least squared error: 7 % less than with ggml's rule, -8, for
// normally distributed values. False if a value is not finite or far outside the range of Q4_0.
bool quant_encode_q4_0(const float *x, void *row, size_t n);
