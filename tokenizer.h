// Text to token ids and back: the byte-level BPE of Llama 3 and the SentencePiece BPE of Llama 2.
//
// A Tokenizer holds the vocabulary of a GGUF file. Text to ids: tokenizer_encode() and
// tokenizer_encode_masked(), which differ in where special tokens are recognized. Ids to text:
// tokenizer_piece(). Chat templates are in chat/template.h.
//
// A special token written out in a text ("<|eot_id|>") steers the model, so data must never be
// encoded as one. Text that a chat template renders therefore comes with a provenance mask: one
// byte per byte of text, 1 where the template wrote it, 0 where it copied data (messages, tool
// results). A special token is recognized only where all of its bytes have 1.
#pragma once

#include "gguf/gguf.h"

// Read-only after template_open() (chat/template.h): threads may share it.
typedef struct Tokenizer Tokenizer;

// A growing list of token ids. Zero-initialize; free `data` with free().
typedef struct {
    int *data; // (len)
    int len;
} Ids;
void ids_push(Ids *ids, int id);

// Reads the vocabulary of a GGUF file, which must outlive it. NULL with err (exit 3) if it is
// invalid or of an unknown kind.
Tokenizer *tokenizer_open(const Gguf *g, Error *err);
void tokenizer_close(Tokenizer *t);

// Appends the ids of a text. Recognizes special tokens everywhere in the text (parse_special) or
// nowhere. Invalid UTF-8 and NUL bytes are encoded like other bytes.
void tokenizer_encode(const Tokenizer *t, Str text, bool parse_special, Ids *out);
// Recognizes special tokens where the provenance mask (n) is 1. is_continued: the text continues
// ordinary text, so no space is put in front of it.
void tokenizer_encode_masked(const Tokenizer *t, const char *text, const char *provenance, size_t n,
                             bool is_continued, Ids *out);
// A lower bound for the number of tokens of n bytes, from the longest token of the vocabulary.
size_t tokenizer_min_tokens(const Tokenizer *t, size_t n_bytes);
// Reserves special tokens for a chat template: names such as <x> and [x] that its source contains,
// and all user-defined tokens of this form, become special tokens even if the vocabulary lists them
// as ordinary tokens. Their bytes remain part of the decoded text.
void tokenizer_reserve_special(Tokenizer *t, Str template_source);

// The bytes of a token, not terminated. Control tokens have none unless `special` is set.
Str tokenizer_piece(const Tokenizer *t, int id, bool special);
// True if encoding puts a space in front of a text (Llama 2), which decoding must drop.
bool tokenizer_has_space_prefix(const Tokenizer *t);
// The bytes that a token adds to a decoded text. *drops_space is initially
// tokenizer_has_space_prefix(), and false after the first token that is not a control token.
Str tokenizer_piece_in_text(const Tokenizer *t, int id, bool special, bool *drops_space);

int tokenizer_n_vocab(const Tokenizer *t);
int tokenizer_special_id(const Tokenizer *t, const char *name); // -1 if there is none of this name
int tokenizer_bos(const Tokenizer *t);                          // -1 if the model has none
int tokenizer_eos(const Tokenizer *t);                          // -1 if the model has none
bool tokenizer_adds_bos(const Tokenizer *t);                    // texts start with BOS
bool tokenizer_is_control(const Tokenizer *t, int id);
bool tokenizer_is_special(const Tokenizer *t, int id);  // a control token or a reserved one
bool tokenizer_is_stop(const Tokenizer *t, int id);     // ends an answer: EOS, end of turn, ...
const int *tokenizer_stops(const Tokenizer *t, int *n); // the ids (n) of these tokens
// Where the i-th of them comes from: a key of the metadata, the model that is known to have it, or
// the chat template.
const char *tokenizer_stop_origin(const Tokenizer *t, int i);
void tokenizer_add_stop(Tokenizer *t, int id, const char *origin); // id -1: none
