// Speculative decoding: drafts the tokens that a sequence will probably continue with, so that one
// forward pass can verify several of them (Leviathan, Kalman and Matias 2023).
//
// The generation loop calls speculation_draft() before a pass and speculation_accept() after it,
// for each sequence. Drafts come from prompt lookup (lookup.h) or, if it finds none, from a draft
// model (draft.h) or an EAGLE-3 head (head.h). The cost model (cost.h) decides how many are worth
// verifying.
//
// Drafts never change the output: the caller samples every position as it would without them and
// accepts a draft only if it is the sampled token. A wrong draft costs time, nothing else.
#pragma once

#include "generate/speculate/lookup.h"
#include "model.h"
#include "generate/sample.h"

enum { SPECULATE_MAX_DRAFT = LOOKUP_MAX_DRAFT }; // most tokens per draft

// Draft model or head, and cost model of a generator. All functions accept NULL: no speculation.
typedef struct Speculation Speculation;
// State of one sequence.
typedef struct Drafter Drafter;

// m: the target model, whose passes have up to max_steps steps. draft: a model with its vocabulary
// or a head, or NULL. Both must outlive the result. NULL with err (exit 3) if the head does not fit
// the target, NULL without err if nothing drafts.
Speculation *speculation_new(Model *m, Model *draft, bool has_lookup, int max_steps, Error *err);

// Starts a sequence that is sampled with these options.
Drafter *speculation_begin(Speculation *sp, const SampleOptions *options, int n_vocab);
void speculation_end(Drafter *d);

// Drafts at most `max` tokens to follow the session's tokens and `pending`, the last sampled token.
// Returns their number. sampler: the sequence's sampler. n_base: tokens that the pass holds without
// these drafts, including `pending`.
int speculation_draft(Drafter *d, const Session *session, int pending, const Sampler *sampler,
                      int n_base, int *out, int max);
// Records that the session has kept n tokens of a pass, whose first step was step `row` of the
// pass: of a prompt, or the pending token and the accepted tokens of the latest draft.
void speculation_accept(Drafter *d, const Session *session, int row, int n);
// Records that a pass over n tokens, none of a prompt, took `sec` seconds.
void speculation_record_pass(Speculation *sp, int n, double sec);
