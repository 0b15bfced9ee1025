// Mixtures: which tensor type each tensor of a quantized model gets.
//
// A mixture such as Q4_K_M has a type of its own and rules that give sensitive tensors (attn_v,
// ffn_down, the output matrix ...) a larger one. Names, numbers and rules are llama.cpp's
// (llama_model_quantize), so a name means the same file there and here.
#pragma once

#include "../gguf.h"

typedef struct {
    const char *name;
    uint32_t file_type; // general.file_type in the metadata
    Type type;          // of tensors without a rule
} Mixture;

// The mixture of this name, in upper or lower case. NULL with err (exit 2) if there is none.
const Mixture *mixture_find(const char *name, Error *err);
// Chooses the type of each tensor of g: types (g->n_tensors). Some rules depend on whether the
// encoders have an importance matrix.
void mixture_choose_types(const Mixture *m, const Gguf *g, bool has_imatrix, Type *types);
// The layer number of a tensor named "blk.N. ...", or -1.
int tensor_layer(Str name);
