// Builds the head of a GGUF v3 file: header, metadata and tensor table. The caller writes the
// tensor data.
//
//     GgufWriter w = {.alignment = 32};
//     gguf_write_string(&w, "general.type", ...);            metadata, in file order
//     offset = gguf_write_tensor(&w, ...);                   tensors, in file order
//     gguf_write_head(&w, &file);                            padded: the data begin at file.len
#pragma once

#include "gguf/gguf.h"

typedef struct {
    uint64_t alignment; // of tensor data in bytes
    Buffer metadata, tensors;
    uint64_t n_metadata, n_tensors;
    uint64_t data_bytes; // of all tensors so far, each padded to the alignment
} GgufWriter;

void gguf_write_u32(GgufWriter *w, const char *key, uint32_t value);
void gguf_write_string(GgufWriter *w, const char *key, Str value);
// An array of one string.
void gguf_write_string_array(GgufWriter *w, const char *key, Str value);
// Copies a metadata value of another file.
void gguf_write_value(GgufWriter *w, const GgufValue *v);
// Adds a tensor named `name` + `suffix`. Returns the offset of its data from the first tensor's.
uint64_t gguf_write_tensor(GgufWriter *w, Str name, const char *suffix, Type type, int n_dims,
                           const uint64_t *dims, uint64_t bytes);
// Appends the head to `out`, padded to the alignment, and frees the writer's memory.
void gguf_write_head(GgufWriter *w, Buffer *out);
// Pads a buffer with zeros.
void gguf_pad(Buffer *b, uint64_t alignment);
