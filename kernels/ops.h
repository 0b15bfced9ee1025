// The operations of the forward pass, each divided among the threads of the team.
//
// All threads of a job (team.h) call an operation together, with the same arguments, and return
// when its result is complete. Each output element is computed by one thread in a fixed order, so
// results do not depend on the number of threads. Operations allocate nothing: scratch buffers are
// sized before the job by matmul_scratch_reserve().
#pragma once

#include "kernels/exactness.h"
#include "kernels/kernels.h"
#include "kernels/team.h"

// out (n, w->rows) = (x (n, w->cols) w^T + w->bias) * w->scale
typedef struct {
    float *out;
    const Tensor *w;
    const float *x;
    int n;
} Product;

// Activations in the encoding that a kernel reads, shared by the threads.
typedef struct {
    char *encoded;
    size_t bytes;
} MatmulScratch;

// Sizes the scratch buffer for one call of ops_matmuls() with these weights and up to n rows of x.
// With n_groups above 1, the rows are divided into that many groups at most, and each group is
// multiplied with one matrix of the shape and type of each weight (the experts of a layer).
void matmul_scratch_reserve(MatmulScratch *s, const Tensor *const *weights, int n_weights, int n,
                            int n_groups);

// Computes products as one operation. Products of the same x follow each other, so that it is
// encoded once.
void ops_matmuls(const MatmulScratch *s, const Product *products, int n_products,
                 Exactness exactness);
// True if products with w have the same bits for any number of rows and any Exactness.
bool ops_is_batch_invariant(const Tensor *w);

// out (n, w->cols) = the rows of the embedding matrix w with the indices `tokens` (n), times
// w->scale
void ops_embed(float *out, const Tensor *w, const int *tokens, int n);
// out (n, dim) = rmsnorm of each row of x (n, dim); out may be x
void ops_rmsnorm(float *out, const float *x, const float *weight, float eps, int n, int dim);
// out (n, dim) = the rows of x with the indices `index` (n)
void ops_gather(float *out, const float *x, const int *index, int n, int dim);
// gate (n, dim) = silu(gate) * up
void ops_swiglu(float *gate, const float *up, int n, int dim);
// x (n, dim) += y
void ops_add(float *x, const float *y, int n, int dim);
// Calls fn(arg, i) for every i in [0, n). A work item is `chunk` consecutive i.
void ops_for(int n, int chunk, void (*fn)(void *arg, int i), void *arg);
