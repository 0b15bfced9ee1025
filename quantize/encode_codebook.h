// The encoder of codebook types: IQ2_S, IQ3_XXS and IQ3_S (kernels/codebook.h).
#pragma once

#include "kernels/quant.h"

// Encodes a superblock of 256 weights x with the costs c of their squared errors. False if the
// scale does not fit in float16. Thread-safe.
bool encode_codebook(Type type, const float *x, const float *cost, void *block);
