// Logits -> token.
#ifndef SAMPLE_H
#define SAMPLE_H

#include "base/text.h"

typedef struct {
    int id;
    float bias; // added to the logit; -INFINITY bans the token
} LogitBias;

typedef struct {
    float temp;              // 0: greedy
    int top_k;               // 0: off
    float top_p;             // 1: off
    float min_p;             // 0: off
    float repeat_penalty;    // 1: off
    float presence_penalty;  // 0: off
    float frequency_penalty; // 0: off
    int repeat_last_n;       // how many of the last tokens the penalties look at; 0: none, -1: all
    const LogitBias *bias;
    int n_bias;
    uint64_t seed;
} SampleOptions;

// An alternative at a position: log-probability under the model's own distribution (before any
// option).
typedef struct {
    int id;
    float logprob;
} Alternative;

// One per sequence: its options, its random stream (SplitMix64 from `seed`), and its scratch
// memory, allocated once.
typedef struct Sampler Sampler;

Sampler *sampler_new(const SampleOptions *options, int n_vocab);
void sampler_free(Sampler *s);

// The next draws of s are those of `other`, which has the same seed.
void sampler_sync(Sampler *s, const Sampler *other);

// Chooses a token. `logits` (n_vocab) is not changed; `recent` are the tokens so far (prompt and
// text), newest last. Order: bias, penalties, then top-k, min-p, top-p on the tempered
// distribution, then one draw. Ties go to the lower id. Returns -1 if a logit is NaN or +Inf or
// nothing is left to sample. No sort of the whole vocabulary.
int sampler_next(Sampler *s, const float *logits, const int *recent, int n_recent);

// The n best tokens and their log-probabilities, best first, from raw logits (n_vocab).
void logits_top(const float *logits, int n_vocab, Alternative *out, int n);
// log softmax of one token from raw logits.
float logits_logprob(const float *logits, int n_vocab, int id);
// Index of the largest logit (lowest id on ties), or -1 if one is NaN or +Inf.
int logits_argmax(const float *logits, int n_vocab);

#endif
