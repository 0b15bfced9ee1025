// The quantiser: rows of float32 to blocks of a tensor type.
#ifndef QUANTIZE_ENCODE_H
#define QUANTIZE_ENCODE_H

#include "../kernels/quant.h"

// Whether a type can be written; all that quant_is_supported can be read.
bool quant_can_encode(Type type);
// Encodes n float32 weights in such a type; the rules are described in encode.c.
// `importance` (n weights of the squared error, one per column) may be NULL. Returns false if a
// value is not finite or beyond what the type can hold. The bytes do not depend on the machine.
bool quant_encode(Type type, const float *x, const float *importance, void *row, size_t n);

#endif
