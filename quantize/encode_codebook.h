// Encoders of the codebook types (kernels/codebook.h) that can be written. Called by encode.c.
#pragma once

#include "../base/type.h"

// False for the infinity or NaN that a scale beyond the range of float16 becomes.
static inline bool f16_is_finite(uint16_t h) { return (h & 0x7c00) != 0x7c00; }
// Encodes a superblock of 256 weights x with the costs c of their squared errors as IQ2_S, IQ3_XXS
// or IQ3_S. False if the scale does not fit in float16. Thread-safe.
bool encode_codebook(Type type, const float *x, const float *cost, void *block);
