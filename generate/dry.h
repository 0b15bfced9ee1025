// DRY ("don't repeat yourself"): a penalty on tokens that would continue a repetition.
//
// If the last L tokens of a sequence also occur earlier in it, the token t that followed there
// would make the repetition longer. The penalty grows exponentially with L:
//
//     l_t -= multiplier * base^(L - allowed_length)      if L >= allowed_length
//
// Of several occurrences before the same t, the longest L counts. A repetition never extends over
// a sequence breaker: L is at most the number of tokens after the last token in which the text of
// a breaker ends. A token that contains a whole breaker is not penalized.
//
//     a b c c b c y a b c
//           ^                 L = 3: "a b c" was followed by c
//             ^               L = 1: "c" was followed by b
//                 ^           L = 2: "b c" was followed by y
//
// Weidmann 2024 (text-generation-webui, pull request 5677) defined DRY. Definition, defaults and
// limits are those of llama.cpp (src/llama-sampler.cpp, llama_sampler_dry_apply), with one
// difference: llama.cpp finds a breaker that spans tokens only if its rest is tokenized like a text
// of its own, here its bytes count.
#pragma once

#include "tokenizer.h"

typedef struct {
    float multiplier;   // 0: off
    float base;         // below 1: off
    int allowed_length; // tokens
    int last_n;         // latest tokens that are searched; 0: off, -1: all
    Str *breakers;      // (n_breakers) "none" removes those before it
    int n_breakers;     // 0: newline, colon, double quote and asterisk
    const Tokenizer *tokenizer;
} DryOptions;

bool dry_is_on(const DryOptions *o);
// Subtracts the penalties from `logits`. recent (n_recent): the tokens so far, newest last.
// lengths: scratch memory with an entry for each token of the vocabulary, zero before and after the
// call. Takes time proportional to the number of tokens that are searched.
void dry_apply(const DryOptions *o, const int *recent, int n_recent, int *lengths, float *logits);
