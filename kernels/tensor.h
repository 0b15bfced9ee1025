// A matrix of weights as it is stored in a file: a pointer into the mapping, a type and a shape.
#pragma once

#include "gguf/gguf.h"

// Row-major: row r begins at data + r * row_bytes. A vector has rows == 1.
typedef struct {
    const void *data;
    Type type;
    int rows, cols; // cols is a multiple of the type's block size
    size_t row_bytes;
    float scale;       // factor of products, after the bias, and of embedding rows; 1: none
    const float *bias; // (rows), added to products; NULL: none
    const struct LowRank *lora; // LoRA adapters of this matrix (model/lora/lora.h); NULL: none
    bool is_unrounded;          // no kernel may round the weights (gemm_large does)
} Tensor;

// Finds a tensor of a file and describes its n matrices in out (n). NULL with err (exit 3) if it is
// absent, does not consist of n matrices (rows, cols), or has a type that the kernels do not
// support.
const GgufTensor *tensor_find(const Gguf *file, const char *name, int n, int rows, int cols,
                              Tensor *out, Error *err);
// Rows [first, first + n) of a matrix without a bias.
Tensor tensor_rows(const Tensor *w, int first, int n);
