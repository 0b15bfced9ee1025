// Encoders of the types whose weights are points of a grid (kernels/encode.c calls them).
#ifndef QUANTIZE_ENCODE_CODEBOOK_H
#define QUANTIZE_ENCODE_CODEBOOK_H

#include "../base/type.h"

// Writes the block of 256 weights x, each squared error of which costs w, as IQ2_S, IQ3_XXS or
// IQ3_S. From several threads at once.
void encode_codebook(Type type, const float *x, const float *w, void *block);

#endif
