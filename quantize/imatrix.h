// Importance matrices: the weight of each column of a weight matrix in the squared error that the
// encoders minimize.
//
// In a product y = W x, an error e in column j of W adds e^2 x_j^2 to the squared error of y. The
// importance of column j is therefore the mean of x_j^2 over the inputs x of some text. Files are
// those of llama.cpp's `imatrix`; calibrate.c computes the sums.
//
// The experts of a mixture are the matrices of one tensor. Each has its own columns, because each
// has other inputs.
//
// `columns` holds a pointer for each tensor of the model g: (n_matrices, cols) with mean 1, or NULL
// if unknown. The caller allocates it, zeroed.
#pragma once

#include "gguf/gguf.h"

// Number of matrices of a tensor: its experts, or 1.
uint64_t imatrix_n_matrices(const GgufTensor *t);
// Number of values for a tensor: dims[0] columns for each of its matrices.
uint64_t imatrix_n_columns(const GgufTensor *t);
// Number of matrices whose columns all have importance 1: experts that the text did not use.
int imatrix_n_unknown(const GgufTensor *t, const float *columns);
// Reads a GGUF file of llama.cpp for the model g: X.in_sum2 and X.counts. Warns about entries for
// tensors that g does not have. False with err (exit 1, or 3 if the file has the older binary form,
// is damaged or belongs to another model).
bool imatrix_read(float **columns, const char *path, const Gguf *g, Error *err);
// imatrix_read() of the bytes of such a file.
bool imatrix_parse(float **columns, Str bytes, const char *path, const Gguf *g, Error *err);
// Appends an importance matrix in GGUF form to `out`. sums: for each tensor of g its sums
// (n_columns); counts: the numbers of tokens that they are over (n_matrices). Tensors without
// tokens are left out. dataset: name of the text, which was fed in n_chunks chunks of chunk_size
// tokens.
void imatrix_put(Buffer *out, const Gguf *g, double *const *sums, double *const *counts,
                 const char *dataset, int n_chunks, int chunk_size);
