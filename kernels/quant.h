// Tensor types: what the bytes of a weight matrix mean.
//
// Every quantised type is the same thing at heart: integers with a scale, and sometimes a minimum,
// per group of 16 or 32 weights. quant_unpack brings a block of any type into that one form;
// dequantisation, dot products and panel decoders all follow from it.
#ifndef KERNELS_QUANT_H
#define KERNELS_QUANT_H

#include "../base/type.h"
#include "../base/text.h"

enum { QUANT_GROUP = 16, QUANT_MAX_BLOCK = 256 };

// One block (32 or 256 weights): w[i] = scale[i / 16] * q[i] - min[i / 16], in float32, each
// product and difference rounded once. Groups of 32 repeat their scale for both halves.
typedef struct {
    int8_t q[QUANT_MAX_BLOCK];
    float scale[QUANT_MAX_BLOCK / QUANT_GROUP];
    float min[QUANT_MAX_BLOCK / QUANT_GROUP];
} QuantBlock;

float f16_to_f32(uint16_t h);
uint16_t f32_to_f16(float f); // round to nearest even
float bf16_to_f32(uint16_t h);
uint16_t f32_to_bf16(float f); // round to nearest even; NaN stays NaN

// True if we can compute with this type.
bool quant_is_supported(uint32_t type);
// True for the integer types, those that quant_unpack takes; F32, F16 and BF16 are not.
bool quant_is_integer(uint32_t type);
// Bytes of a row of n weights; n must be a multiple of the block.
size_t quant_row_bytes(Type type, size_t n);

// Unpacks one block of an integer type.
typedef void (*QuantUnpack)(const void *block, QuantBlock *out);
QuantUnpack quant_unpack(Type type);

// Dequantises n weights of one row (any supported type) to float32, bit-exact with the published
// formats.
void quant_decode_row(Type type, const void *row, float *out, size_t n);

// Largest magnitude that a quantized type can hold: 127 steps of the largest float16 scale, rounded
// down.
#define QUANT_LIMIT 8e6f
// Encodes n values as Q8_0 by ggml's rule: the largest magnitude of 32 becomes 127, halves are
// rounded away from zero. False if a value is not finite or above QUANT_LIMIT. Encoders of the
// other types: quantize/encode.h.
bool quant_encode_q8_0(const float *x, void *row, size_t n);

#endif
