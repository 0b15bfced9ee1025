// Text <-> token ids: Llama 3's byte-level BPE and Llama 2's SentencePiece BPE.
#ifndef TOKENIZER_H
#define TOKENIZER_H

#include "base/gguf.h"

typedef struct Tokenizer Tokenizer;

// A growing list of token ids. Zero-initialise; free ids.data with free().
typedef struct {
    int *data;
    int len, cap;
} Ids;
void ids_push(Ids *ids, int id);

// Reads the vocabulary of a GGUF file (which must stay open). NULL with err (exit 3) if it is unusable.
Tokenizer *tokenizer_open(const Gguf *g, Error *err);
void tokenizer_close(Tokenizer *t);

// Appends the ids of ordinary text: what looks like a control token is text. Bytes that are not valid UTF-8 follow
// the rule stated in tokenizer.c; NUL bytes are kept.
void tokenizer_encode(const Tokenizer *t, const char *text, size_t n, Ids *out);
// The same, but control tokens written out in the text ("<|eot_id|>", "</s>") become their ids.
void tokenizer_encode_special(const Tokenizer *t, const char *text, size_t n, Ids *out);

// The bytes of a token (not terminated). Control tokens give their name when `special` is set, else nothing.
Str tokenizer_piece(const Tokenizer *t, int id, bool special);
// A Llama 2 text starts with a space that belongs to the first token: true if decoding must drop it.
bool tokenizer_drops_space(const Tokenizer *t);

int tokenizer_n_vocab(const Tokenizer *t);
// Id of a control token by name, or -1.
int tokenizer_special(const Tokenizer *t, const char *name);
int tokenizer_bos(const Tokenizer *t);       // -1 if the model has none
bool tokenizer_adds_bos(const Tokenizer *t); // whether a text starts with it
bool tokenizer_is_control(const Tokenizer *t, int id);
// True for every id that ends an answer: eos, eot, eom and their kin.
bool tokenizer_is_stop(const Tokenizer *t, int id);

#endif
