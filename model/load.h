// Loading: the metadata of a GGUF file becomes a Config, its tensors become the weights of a Model.
#pragma once

#include "model/lora/lora.h"
#include "model.h"

// Options that a model is loaded with. Zero-initialize for the defaults.
typedef struct {
    bool is_draft;       // a draft head is allowed (generate/speculate/head.h)
    int n_threads;       // 0: as many as the process may use
    int n_batch_threads; // for forward passes of many steps; 0: n_threads
    bool is_batch_invariant;
    // Forward passes have several sequences. attend_many is not used if it alone would make their
    // results depend on the batch.
    bool is_batch;
    // Type of the KV cache: "f16", "f32", "q8_0", "q4_0" or "KEYS,VALUES"; NULL: "f16".
    const char *kv_type;
    const char *rope_rule;         // NULL: as in the file
    double rope_theta, rope_scale; // base of the frequencies, factor of the rule; 0: as in the file
    int rope_orig_ctx;    // length of the context that the factor extends; 0: as in the file
    LoraOption *adapters; // (n_adapters)
    int n_adapters;
} ModelOptions;

// Opens a model file, or the built-in model if path is NULL. False with err: exit 1 if the file
// cannot be read, 2 if an option is invalid, 3 if the file is.
bool model_open(Model *m, const char *path, const ModelOptions *options, Error *err);
void model_close(Model *m);

// The two halves of model_open(), for commands that need the metadata only. model_bind() takes
// ownership of the file, also when it fails.
bool model_open_file(Gguf *g, const char *path, Error *err);
bool model_bind(Model *m, Gguf *file, const ModelOptions *options, Error *err);
