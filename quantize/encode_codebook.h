// Encoders of the codebook types (kernels/codebook.h) that can be written. Called by encode.c.
#pragma once

#include "../base/type.h"

// Encodes a superblock of 256 weights x with the costs c of their squared errors as IQ2_S, IQ3_XXS
// or IQ3_S. Thread-safe.
void encode_codebook(Type type, const float *x, const float *cost, void *block);
