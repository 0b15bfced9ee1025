// Mixtures: which tensor type each tensor of a quantized model gets.
//
// A mixture such as Q4_K_M has a type of its own and rules that give sensitive tensors (attn_v,
// ffn_down, the output matrix ...) a larger one. Names, numbers and rules are llama.cpp's
// (llama_model_quantize), so that a name selects the same types in both programs.
#pragma once

#include "gguf/gguf.h"

typedef struct {
    const char *name;
    uint32_t file_type; // general.file_type in the metadata
    Type type;          // of tensors without a rule
} Mixture;

// The name of the i-th mixture; NULL after the last.
const char *mixture_name(int i);
// The mixture of this name, in upper or lower case. NULL with err (exit 2) if there is none.
const Mixture *mixture_find(const char *name, Error *err);
// Copies the tensors of g (g->n_tensors) and sets the types that they get. Some rules depend on
// whether the encoders have an importance matrix.
void mixture_choose_types(const Mixture *m, const Gguf *g, bool has_imatrix, GgufTensor *tensors);
