// The quantiser: rows of float32 to blocks of a tensor type.
#ifndef KERNELS_ENCODE_H
#define KERNELS_ENCODE_H

#include "quant.h"

// Encodes n float32 weights in any supported type but IQ2_XXS, Q2_K and Q3_K; the rules are described in encode.c.
// `importance` (n weights of the squared error, one per column) may be NULL. Returns false if a value is not finite
// or beyond what the type can hold. The bytes do not depend on the machine.
bool quant_encode(Type type, const float *x, const float *importance, void *row, size_t n);

#endif
