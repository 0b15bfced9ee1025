// How vocabularies of bytes cut a text into pieces, within which tokens merge.
#ifndef PRETOKENIZE_H
#define PRETOKENIZE_H

#include "base/text.h"

typedef struct {
    // The end of the first piece of a text, which is not empty. Linear in the piece.
    const char *(*next_piece)(const char *s, const char *end);
    bool ignores_merges;   // a piece that is a token is taken at once, and a text begins with BOS
    const char *names[16]; // of tokenizer.ggml.pre
} Pretokenizer;

// NULL: unknown.
const Pretokenizer *pretokenizer_find(Str name);

#endif
