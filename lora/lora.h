// LoRA adapters (Hu et al. 2021): files that add products of low rank to a model's matrices, which
// themselves stay as they are.
#ifndef LORA_LORA_H
#define LORA_LORA_H

#include "../gguf.h"
#include "../kernels/quant.h"

// As a command line names it.
typedef struct {
    Str path;
    double scale; // times what the file itself says
} LoraOption;

typedef struct Lora {
    Gguf file;
    double scale;   // of B A, times the rank
    LowRank *pairs; // (n_pairs), one for each matrix; there is room for all tensors
    int n_pairs;
} Lora;

// Maps an adapter: a GGUF file of general.type adapter and adapter.type lora. False with err: exit
// 1 if the file cannot be read, 3 if it is something else.
bool lora_open(Lora *a, const LoraOption *option, Error *err);
// Has the adapter add to products with w what it holds for the tensor of that name, if anything:
// y += scale * alpha / rank * B (A x), A = NAME.lora_a (rank, cols), which stays in the mapping, B
// = NAME.lora_b (rows, rank), which becomes float32. Of the embedding, A is (rows, rank), a row for
// each token, B (cols, rank). False with err (exit 3) if they do not fit.
bool lora_bind(Lora *a, const char *name, Tensor *w, bool is_embedding, Error *err);
// Whether every tensor of the adapter found its matrix. False with err (exit 3).
bool lora_is_bound(const Lora *a, Error *err);
void lora_close(Lora *a);

#endif
