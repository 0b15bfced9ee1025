// Pre-tokenizers: how a byte-level BPE vocabulary cuts text into pieces. Tokens merge within a
// piece, never across two.
//
// A GGUF file names its pre-tokenizer in tokenizer.ggml.pre. A pre-tokenizer is a regular
// expression, and next_piece() finds its first match. SentencePiece vocabularies have no
// pre-tokenizer (tokenizer.c).
#pragma once

#include "base/text.h"

typedef struct {
    // The end of the first piece of a text, which must not be empty. Linear time in the piece.
    const char *(*next_piece)(const char *s, const char *end);
    bool ignores_merges; // a piece that is a token is encoded as this token, even if merging would
                         // end with other tokens (ignore_merges of Hugging Face's tokenizers)
    bool adds_bos;       // texts begin with BOS unless the file says otherwise
    bool normalizes;     // text between special tokens is brought to Unicode form C first
    const char *names[16]; // values of tokenizer.ggml.pre, as llama.cpp defines them
} Pretokenizer;

// NULL if the name is unknown.
const Pretokenizer *pretokenizer_find(Str name);
