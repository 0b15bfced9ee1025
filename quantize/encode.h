// Encodes rows of float32 weights in the tensor types that can be written.
#pragma once

#include "kernels/quant.h"

// Encodes n weights so that the error sum importance[i] (w[i] - x[i])^2 is small; importance (n)
// may be NULL. Returns false if a value is not finite or too large for the type, or if the type
// cannot be written. The bytes do not depend on the machine.
bool quant_encode(Type type, const float *x, const float *importance, void *row, size_t n);

// encode_codebook.c, called by encode.c

// False for the infinity or NaN that a scale beyond the range of float16 becomes.
static inline bool f16_is_finite(uint16_t h) { return (h & 0x7c00) != 0x7c00; }
// Encodes a superblock of 256 weights x with the costs c of their squared errors as a codebook type
// (kernels/codebook.h): IQ2_S, IQ3_XXS or IQ3_S. False if the scale does not fit in float16.
// Thread-safe.
bool encode_codebook(Type type, const float *x, const float *cost, void *block);
