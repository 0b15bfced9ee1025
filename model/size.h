// The weights of a model in numbers, for estimates of memory and speed. The forward pass does not
// need them.
#pragma once

#include "model.h"

// Bytes of all tensors.
size_t model_weight_bytes(const Model *m);

typedef struct {
    double weights, bytes;
} PassSize;
// The number of weights that a forward pass over n tokens reads, and their bytes. Two parts of the
// file do not count: an embedding matrix that is not also the output matrix, and experts that no
// token chooses (on average).
PassSize model_pass_size(const Model *m, int n);
