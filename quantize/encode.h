// Encodes rows of float32 weights in the tensor types that can be written.
#pragma once

#include "kernels/quant.h"

// Encodes n weights so that the error sum importance[i] (w[i] - x[i])^2 is small; importance (n)
// may be NULL. Returns false if a value is not finite or too large for the type, or if the type
// cannot be written. The bytes do not depend on the machine.
bool quant_encode(Type type, const float *x, const float *importance, void *row, size_t n);
