// Encodes rows of float32 weights in the tensor types that can be written.
#pragma once

#include "../kernels/quant.h"

// True if quant_encode supports the type. All types with quant_is_supported can be read.
bool quant_can_encode(Type type);
// Encodes n weights so that the error sum importance[i] (w[i] - x[i])^2 is small; importance (n)
// may be NULL. Returns false if a value is not finite or too large for the type. The bytes do not
// depend on the machine.
bool quant_encode(Type type, const float *x, const float *importance, void *row, size_t n);
