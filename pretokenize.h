// Pre-tokenizers: how a byte-level BPE vocabulary cuts text into pieces. Tokens merge within a
// piece, never across two.
//
// A GGUF file names its pre-tokenizer in tokenizer.ggml.pre. Each stands for a regular expression,
// of which next_piece() finds the first match. SentencePiece vocabularies have none (tokenizer.c).
#pragma once

#include "base/text.h"

typedef struct {
    // The end of the first piece of a text that is not empty. Takes time linear in the piece.
    const char *(*next_piece)(const char *s, const char *end);
    bool ignores_merges; // a piece that is a token becomes that token, even if merging gives others
                         // (ignore_merges of Hugging Face's tokenizers); texts begin with BOS
    const char *names[16]; // values of tokenizer.ggml.pre, as llama.cpp defines them
} Pretokenizer;

// NULL if the name is unknown.
const Pretokenizer *pretokenizer_find(Str name);
