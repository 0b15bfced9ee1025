// Tokenization of a text that continues tokens: text that is fed or forced behind a sampled token.
//
// A text has many tokenizations. The model expects the one that the tokenizer produces, so the text
// is encoded together with the token before it.
#pragma once

#include "tokenizer.h"

// Appends the ids of a text that must come after the token `last` (-1: none).
void continuation_encode(const Tokenizer *t, int last, Str text, bool parse_special, Ids *out);
// Appends the ids of a text that the tokens behind it continue, except for those of its last word,
// or of the last 16 tokens of it: the text behind them may change their tokenization. Returns the
// number of bytes at the end of the text that have no ids.
size_t continuation_encode_begun(const Tokenizer *t, Str text, Ids *out);
// Appends the ids of a text that must come next, but does not end there. The last token is left
// out, because the text after it may change its tokenization.
void continuation_encode_open(const Tokenizer *t, int last, Str text, Ids *out);
// Excludes the logits of all tokens except those that spell the beginning of a text, or all of it
// and more.
void continuation_mask(const Tokenizer *t, Str text, float *logits);
