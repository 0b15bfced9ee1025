// Reads every weight of a model file: checks that all are finite, and computes their checksum.
#pragma once

#include "gguf/checksum.h"

// True if no value is NaN or infinite.
bool floats_are_finite(const float *x, size_t n);
// Checks and hashes all tensors. Tensors of types that cannot be computed with are only hashed.
// False with err (exit 3: tensor and row; exit 1 if the file changed meanwhile).
bool weights_check(const Gguf *g, int n_threads, char checksum[CHECKSUM_HEX], Error *err);
