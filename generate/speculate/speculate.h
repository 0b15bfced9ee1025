// Speculative decoding: drafts the tokens that a sequence will probably continue with, so that one
// forward pass can verify several of them (Leviathan, Kalman and Matias 2023).
//
// The generation loop calls speculation_draft() before a pass and speculation_accept() after it,
// for each sequence. Drafts come from prompt lookup (lookup.h) or, if it finds none, from a draft
// model (draft_model.h) or an EAGLE-3 head (head.h). The cost model (cost.h) decides how many are
// worth verifying.
//
// Drafts never change the output: the caller samples every position as it would without them and
// accepts a draft only if it is the sampled token. A wrong draft costs time, nothing else.
#pragma once

#include "generate/speculate/drafter.h"
#include "model.h"

// What all sequences of a generator share. All functions accept NULL: no speculation.
typedef struct Speculation Speculation;
// The drafters of one sequence.
typedef struct Drafters Drafters;

// m: the target model, whose forward passes run in ws. draft: a model with its vocabulary or a
// head, or NULL. All must outlive the result. NULL with err (exit 3) if the head does not fit the
// target, NULL without err if nothing drafts.
Speculation *speculation_new(const Model *m, Workspace *ws, const Model *draft, bool has_lookup,
                             Error *err);

// Starts a sequence that is sampled with these options.
Drafters *speculation_begin(Speculation *sp, const SampleOptions *options);
void speculation_end(Drafters *d);

// Drafts at most `max` (SPECULATE_MAX_DRAFT) tokens, and returns their number.
int speculation_draft(Drafters *d, const DraftPoint *at, int *out, int max);
// Records that the session has kept n tokens of a pass, whose first step was step `row` of the
// pass: of a prompt, or the pending token and the accepted tokens of the latest draft.
void speculation_accept(Drafters *d, const Session *session, int row, int n);
// Records that a pass over n tokens, none of a prompt, took `sec` seconds.
void speculation_record_pass(Speculation *sp, int n, double sec);
