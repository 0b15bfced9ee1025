// Sampling: the next token from the logits of a position.
//
// A Sampler applies these stages. l_i is the logit of token i, n_vocab of them, and the weight of a
// token is w_i = exp(l_i - max l):
//
//   logit bias    l_i += bias_i
//   penalties     of each token among the last repeat_last_n: l_i = l_i > 0 ? l_i / r : l_i * r,
//                 with the repeat penalty r (Keskar et al. 2019), then l_i -= presence + frequency
//                 * count_i, with its number of occurrences count_i (OpenAI's API)
//   DRY           l_i -= a penalty if token i would continue a repetition (dry.h)
//   temperature   l_i = l_i / T; T = 0: the result is the largest l_i
//   top-k         keep the k largest w_i (Fan et al. 2018)
//   min-p         keep w_i >= min_p (Nguyen et al. 2024; the largest w_i is 1)
//   top-p         keep the smallest set of largest w_i that sums to at least top_p times the sum of
//                 all w_i left (nucleus sampling, Holtzman et al. 2019)
//   draw          token i with probability w_i / sum w
//
// This is the default order. SampleOptions.order has another one of the stages between bias and
// draw (samplers.h).
//
// Invariant: the result depends only on the options, the logits, the recent tokens and the number
// of earlier draws. Among equal values the lower id comes first.
#pragma once

#include "generate/dry.h"
#include "generate/samplers.h"

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
    int repeat_last_n;       // number of latest tokens that penalties apply to; -1: all
    DryOptions dry;
    SamplerOrder order;
    LogitBias *bias; // (n_bias) of ids in the vocabulary
    int n_bias;
    uint64_t seed;
} SampleOptions;

// True if no random number is drawn.
bool sample_is_greedy(const SampleOptions *o);
// True if a sampler can change what is drawn: by its values, whether or not the order contains it.
bool sample_has_effect(const SampleOptions *o, SamplerKind kind);

// A token and its log-probability under the model's own distribution, before any option.
typedef struct {
    int id;
    float logprob;
} Alternative;

// Options, random state and scratch memory of one sequence.
typedef struct Sampler Sampler;
Sampler *sampler_new(const SampleOptions *options, int n_vocab);
void sampler_free(Sampler *s);

// Returns the next token, or -1 if a logit is NaN or +Inf or all logits are -Inf. `logits`
// (n_vocab) is not changed; `recent` (n_recent) are the tokens of prompt and text so far, newest
// last.
int sampler_next(Sampler *s, const float *logits, const int *recent, int n_recent);
// Copies the random state of `other`, so that both samplers draw the same numbers (same seed).
void sampler_sync(Sampler *s, const Sampler *other);

// The n most likely tokens with their log-probabilities, best first; logits (n_vocab).
void logits_top(const float *logits, int n_vocab, Alternative *out, int n);
// log softmax of one token.
float logits_logprob(const float *logits, int n_vocab, int id);
// Index of the largest logit (the first among equals), or -1 if a logit is NaN or +Inf.
int logits_argmax(const float *logits, int n_vocab);
