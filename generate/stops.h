// The ends of a text: stop tokens and stop strings.
//
// The vocabulary has stop tokens of its own (tokenizer_is_stop). A request may name more of them,
// and strings that end the text without being part of it.
#pragma once

#include "tokenizer.h"

// What ends a text, beside the stop tokens of the vocabulary.
typedef struct {
    const Str *strings; // (n_strings) one that is the text of a control token means that token
    int n_strings;
    const int *ids; // (n_ids) tokens
    int n_ids;
} Stops;

// Finds stop strings that end after byte `from` of the text. Stop strings are not aligned with
// tokens: one may begin in the middle of a token and end in a later one.
//
//     *stop     offset of the first complete stop string, or SIZE_MAX
//     *partial  offset of the longest end of the text that begins a stop string, or the length of
//               the text. With the stop string "END", the text "the EN" is final up to "the ".
void stops_find(const Stops *s, Str text, size_t from, size_t *stop, size_t *partial);

// True if a token ends the text.
bool stops_at(const Stops *s, const Tokenizer *t, int token);

// Bans the stop tokens of the vocabulary, for ignore_eos, or all stop tokens, before min_tokens.
void stops_mask(const Stops *s, const Tokenizer *t, bool may_stop, float *logits);
