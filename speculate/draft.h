// A smaller model that proposes tokens (Leviathan, Kalman and Matias 2023): what it would say next
// is checked by the model itself. It draws with the random numbers that the model will draw with,
// so that where both agree on the odds they agree on the token.
#ifndef SPECULATE_DRAFT_H
#define SPECULATE_DRAFT_H

#include "../model.h"
#include "../sample.h"

// Follows one sequence at a time; what two have in common is not fed again.
typedef struct Draft Draft;
// m has the vocabulary of the model it drafts for, and outlives the draft.
Draft *draft_new(const Model *m);
void draft_free(Draft *d);

// What to expect: how likely each of n guesses is right if those before it are, and the seconds
// that one takes.
double draft_expect(Draft *d, float *trust, int n);
// Guesses n tokens that follow tokens (n_tokens), drawn by `shadow` as `sampler` will. Returns how
// many, fewer where context or memory ends.
int draft_propose(Draft *d, Sampler *shadow, const Sampler *sampler, const int *tokens,
                  int n_tokens, int *out, int n);
// Of n guesses n_accepted were right.
void draft_learn(Draft *d, int n_accepted, int n);

#endif
