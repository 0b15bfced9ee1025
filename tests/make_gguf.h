// Builds GGUF files in memory, valid and invalid ones, and small complete models.
#pragma once

#include "gguf/gguf.h"

// A file under construction: make_begin, entries in any order, make_end. To replace one entry of a
// complete model, name it in `skip` before make_llama() and add another afterwards.
typedef struct {
    Buffer values, infos, data;
    uint64_t n_values, n_tensors;
    uint32_t version, alignment;
    const char *skip; // key or tensor that is left out
} Maker;

void make_begin(Maker *m);
// Returns the file and frees the parts. Counts, version and alignment are taken from m unchecked.
Buffer make_end(Maker *m);

// Starts a value; the caller appends it to m->values. False if the key is left out.
bool make_key(Maker *m, const char *key, uint32_t kind);
// A value of any fixed-size kind, from the low bytes of bits.
void make_value(Maker *m, const char *key, GgufKind kind, uint64_t bits);
void make_u32(Maker *m, const char *key, uint32_t v);
void make_f32(Maker *m, const char *key, float v);
void make_bool(Maker *m, const char *key, bool v);
void make_string(Maker *m, const char *key, const char *v);
// An array of items as encoded in the file.
void make_array(Maker *m, const char *key, GgufKind item_kind, uint64_t count, const void *items,
                size_t bytes);
// Appends an encoded string to the items of an array.
void make_item(Buffer *items, const char *data, size_t n);
void make_le(Buffer *b, uint64_t v, int bytes); // little-endian

// An entry of the tensor table without data.
void make_info(Maker *m, const char *name, int n_dims, const uint64_t *dims, uint32_t type,
               uint64_t offset);
// A tensor with its data, or zeros if data is NULL.
void make_tensor(Maker *m, const char *name, uint32_t type, uint64_t cols, uint64_t rows,
                 const void *data, size_t bytes);
// The same for `depth` matrices.
void make_matrices(Maker *m, const char *name, uint32_t type, uint64_t cols, uint64_t rows,
                   uint64_t depth, const void *data, size_t bytes);

// A complete small Llama model with random weights. Zero fields mean: dim 64, hidden_dim 128,
// n_layers 2, n_heads 4, n_kv_heads 2, head_dim dim / n_heads, max_context 256, type F32, a
// byte-level BPE vocabulary of the 256 bytes, six merges and the control tokens of Llama 3 and
// ChatML.
typedef struct {
    int dim, hidden_dim, n_layers, n_heads, n_kv_heads, head_dim, max_context;
    int n_experts;           // in every layer, of width hidden_dim, two per token; 0: dense FFN
    Type type;               // of the matrices; norms are F32
    bool is_tied;            // no output.weight
    bool is_sentencepiece;   // a vocabulary as of Llama 2: bytes, letters and a few words
    bool has_rope_freqs;     // frequency divisors 1, ..., 1, 8, ..., 8
    bool is_vocabulary_only; // no tensors
    const char *template;    // tokenizer.chat_template
    uint64_t seed;
    // Encodes one row, for types other than F32, F16 and BF16; quant_encode serves.
    bool (*encode)(Type type, const float *x, const float *importance, void *row, size_t n);
} MakeLlama;
void make_llama(Maker *m, MakeLlama o);
Buffer make_llama_file(MakeLlama o); // make_begin, make_llama, make_end

// Writes a file to a temporary directory that is removed at exit. Returns its path, valid until
// exit.
const char *make_path(const char *name, const void *data, size_t n);
