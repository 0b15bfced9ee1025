// LoRA adapters (Hu et al. 2021): files that add products of low rank to matrices of a model.
//
// For a matrix W (rows, cols) an adapter has a pair A (rank, cols) and B (rows, rank). A product
// becomes
//
//     y = W x + scale * alpha / rank * B (A x)
//
// Loading: lora_open() maps a file, lora_attach() finds the pair of one matrix, lora_check() makes
// sure that every pair was used. Forward pass: model.c calls lora_matmuls() for its products and,
// if the embedding has adapters, lora_embed() after the look-up. W itself is not changed. The
// products of several adapters are added in the order of the command line.
#pragma once

#include "kernels/ops.h"

// --lora FILE[:SCALE]
typedef struct {
    Str path;
    double scale;
} LoraOption;

// The pair (A, B) of one matrix and one adapter.
typedef struct LowRank {
    Tensor a;       // (rank, cols), in the file's mapping; for the embedding (vocab, rank)
    const float *b; // B, times scale * alpha / rank and the matrix's own factor, in strips of rows:
                    // (rows / LORA_STRIP, rank, LORA_STRIP), zeros after the last row
    const struct LowRank *next; // pair of the next adapter for the same matrix
} LowRank;

enum { LORA_STRIP = 16 }; // floats of a cache line

typedef struct Lora {
    Gguf file;
    double scale;   // of LoraOption, times alpha
    LowRank *pairs; // (n_pairs), allocated for all tensors of the file
    int n_pairs;
    bool *is_attached; // per tensor of the file: it is in a pair
} Lora;

// Maps an adapter: a GGUF file of general.type "adapter" and adapter.type "lora", for models of
// this architecture. False with err: exit 1 if the file cannot be read, 3 if it is something else.
bool lora_open(Lora *a, const LoraOption *option, const char *architecture, Error *err);
// Adds the adapter's pair for the tensor `name`, if there is one, to the front of w->lora. False
// with err (exit 3) if its shapes do not fit w. For the embedding, A is (rows, rank), with a row
// for each token, and B is (cols, rank).
bool lora_attach(Lora *a, const char *name, Tensor *w, bool is_embedding, Error *err);
// False with err (exit 3) if a tensor of the adapter has not been attached to any matrix.
bool lora_check(const Lora *a, Error *err);
void lora_close(Lora *a);
// True if the products A x of w's adapters have the same bits for any number of rows.
bool lora_is_batch_invariant(const Tensor *w);

// The scratch buffer of lora_matmuls(), shared by the threads.
typedef struct {
    float *hidden; // A x of every pair, one after another: (n, rank) each
    size_t bytes;
} LoraScratch;

// Sizes the scratch buffers for products with these weights in one call, for up to n rows of x.
void lora_scratch_reserve(LoraScratch *s, MatmulScratch *matmul, const Tensor *const *weights,
                          int n_weights, int n);
// ops_matmuls() of products with the same x (n, cols), then out += B (A x) for each of their pairs.
void lora_matmuls(const LoraScratch *s, const MatmulScratch *matmul, const Product *products,
                  int n_products, Exactness exactness);
// out (n, dim) += the adapters' rows of the embedding.
void lora_embed(float *out, const Tensor *w, const int *tokens, int n);
