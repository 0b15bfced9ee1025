// A file's names and shapes -> Model.
#ifndef MODEL_LOAD_H
#define MODEL_LOAD_H

#include "lora/lora.h"
#include "model.h"

// Options that change how a file is run. Zero-initialise for the defaults.
typedef struct {
    int n_threads; // 0: all cores the process may use
    bool is_batch_invariant;
    const char *kv_type;   // NULL: "f16"
    const char *rope_rule; // NULL: what the file says; the figures below are then ignored where 0
    double rope_theta, rope_scale;
    int rope_orig_ctx;
    LoraOption *adapters; // (n_adapters)
    int n_adapters;
} ModelOptions;

// Binds the tensors of an opened file (which the model then owns), checking every shape. False with
// err (exit 3: tensor, expected shape, found shape). Unknown tensors: one warning.
bool model_bind(Model *m, Gguf *file, const ModelOptions *options, Error *err);
// Opens a file by path, or the built-in model when path is NULL.
bool model_open(Model *m, const char *path, const ModelOptions *options, Error *err);
// Only the file: for commands that need metadata or a vocabulary.
bool model_open_file(Gguf *g, const char *path, Error *err);
void model_close(Model *m);

#endif
