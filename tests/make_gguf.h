// Writes GGUF files into memory: sound ones, small whole models, and all kinds of broken ones.
#ifndef TESTS_MAKE_GGUF_H
#define TESTS_MAKE_GGUF_H

#include "../gguf.h"

// A file under construction. make_begin, entries in any order, make_end. To spoil an entry of a
// finished recipe, name it in skip before the recipe runs and write another in its place
// afterwards.
typedef struct {
    Buffer values, infos, data;
    uint64_t n_values, n_tensors;
    uint32_t version, alignment;
    const char *skip; // key or tensor name that is not written
} Maker;

void make_begin(Maker *m);
// The whole file; frees the parts. Counts, version and alignment are those in m, right or wrong.
Buffer make_end(Maker *m);

// A key and its kind; the caller appends the value. False if the key is to be skipped.
bool make_key(Maker *m, const char *key, uint32_t kind);
void make_value(Maker *m, const char *key, GgufKind kind,
                uint64_t bits); // any kind of fixed size, low bytes of bits
void make_u32(Maker *m, const char *key, uint32_t v);
void make_f32(Maker *m, const char *key, float v);
void make_bool(Maker *m, const char *key, bool v);
void make_string(Maker *m, const char *key, const char *v);
// items: bytes of fixed-size items, or of strings each as u64 length + bytes.
void make_array(Maker *m, const char *key, GgufKind item_kind, uint64_t count, const void *items,
                size_t bytes);
// One more string for the items of make_array.
void make_item(Buffer *items, const char *data, size_t n);
void make_le(Buffer *b, uint64_t v, int bytes);

// The description of a tensor alone, as given.
void make_info(Maker *m, const char *name, int n_dims, const uint64_t *dims, uint32_t type,
               uint64_t offset);
// A tensor with its data, aligned. data NULL: zeros.
void make_tensor(Maker *m, const char *name, uint32_t type, uint64_t cols, uint64_t rows,
                 const void *data, size_t bytes);

// A whole small llama model. Zero fields: dim 64, hidden_dim 128, n_layers 2, n_heads 4, n_kv_heads
// 2, head_dim dim / n_heads, max_context 256, type F32, byte-level BPE with the tokens of the 256
// bytes, six merges, Llama 3's control tokens and ChatML's.
typedef struct {
    int dim, hidden_dim, n_layers, n_heads, n_kv_heads, head_dim, max_context;
    Type type;               // of the matrices; norms are F32
    bool is_tied;            // no output.weight
    bool is_sentencepiece;   // Llama 2's kind of vocabulary: bytes, letters and a few words
    bool has_rope_freqs;     // divisors 1, 1, ... 8
    bool is_vocabulary_only; // no tensors
    const char *template;    // tokenizer.chat_template
    uint64_t seed;
    // Encodes one row; needed for types but F32, F16 and BF16 (quant_encode serves).
    bool (*encode)(Type type, const float *x, const float *importance, void *row, size_t n);
} MakeLlama;
void make_llama(Maker *m, MakeLlama o);
// make_begin, make_llama, make_end.
Buffer make_llama_file(MakeLlama o);

// Writes bytes to a file in a folder that is removed at exit; returns its path (static buffer of
// 8).
const char *make_path(const char *name, const void *data, size_t n);

#endif
