// A matrix of weights, as it is stored in a file: a view into the mapping, with a type and a shape.
// The kernels read it row by row.
#pragma once

#include "../gguf.h"

// Row-major: row r begins at data + r * row_bytes. A vector has rows == 1.
typedef struct {
    const void *data;
    Type type;
    int rows, cols; // cols is a multiple of the type's block size
    size_t row_bytes;
    const float *bias;          // (rows), added to products; NULL: none
    const struct LowRank *lora; // LoRA adapters of this matrix (lora/lora.h); NULL: none
} Tensor;

// The tensor `name` of a file. NULL with err (exit 3: expected and found shape) unless it has shape
// (rows, cols) and a type that the kernels support.
const GgufTensor *tensor_find(const Gguf *file, const char *name, int rows, int cols, Tensor *out,
                              Error *err);
