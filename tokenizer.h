// Text <-> token ids: Llama 3's byte-level BPE and Llama 2's SentencePiece BPE.
#ifndef TOKENIZER_H
#define TOKENIZER_H

#include "gguf.h"

typedef struct Tokenizer Tokenizer;

// A growing list of token ids. Zero-initialise; free ids.data with free().
typedef struct {
    int *data;
    int len, cap;
} Ids;
void ids_push(Ids *ids, int id);

// Reads the vocabulary of a GGUF file (which must stay open). NULL with err (exit 3) if it is
// unusable.
Tokenizer *tokenizer_open(const Gguf *g, Error *err);
void tokenizer_close(Tokenizer *t);

// Appends the ids of ordinary text: what looks like a control token is text. Bytes that are not
// valid UTF-8 follow the rule stated in tokenizer.c; NUL bytes are kept.
void tokenizer_encode(const Tokenizer *t, const char *text, size_t n, Ids *out);
// The same, but control tokens written out in the text ("<|eot_id|>", "</s>") become their ids.
void tokenizer_encode_special(const Tokenizer *t, const char *text, size_t n, Ids *out);

// The same for what a template has made: they do so only where it wrote every byte of them, own (n)
// is 1 there. is_continued: the text goes on after other ordinary text.
void tokenizer_encode_masked(const Tokenizer *t, const char *text, const char *own, size_t n,
                             bool is_continued, Ids *out);
// Names that stand in a template's text, and all that look like names (<x>, [x]), are control
// tokens from now on, even where the file calls them words: no other text can spell them any more.
// Their bytes are still shown.
void tokenizer_reserve_special(Tokenizer *t, Str template_text);

// The bytes of a token (not terminated). Control tokens give their name when `special` is set, else
// nothing.
Str tokenizer_piece(const Tokenizer *t, int id, bool special);
// A Llama 2 text starts with a space that belongs to the first token: true if decoding must drop
// it.
bool tokenizer_has_space_prefix(const Tokenizer *t);

int tokenizer_n_vocab(const Tokenizer *t);
// Id of a control token by name, or -1.
int tokenizer_special_id(const Tokenizer *t, const char *name);
int tokenizer_bos(const Tokenizer *t);       // -1 if the model has none
int tokenizer_eos(const Tokenizer *t);       // the same
bool tokenizer_adds_bos(const Tokenizer *t); // whether a text starts with it
bool tokenizer_is_control(const Tokenizer *t, int id);
bool tokenizer_is_special(const Tokenizer *t, int id); // the same, or a claimed name
// True for every id that ends an answer: eos, eot, eom and their kin.
bool tokenizer_is_stop(const Tokenizer *t, int id);

#endif
