// The engine of score --perplexity and --ids: sums log-probabilities of given tokens.
//
// A ScoreTask feeds tokens to a session and sums the log-probabilities of some of them. Windows of
// a text and texts of a file are tasks. Several tasks share a forward
// pass. The order of additions in a sum does not depend on the other tasks of a pass.
#pragma once

#include "score_kl.h"
#include "../cli/lines.h"

enum { SCORE_MAX_LINE = 4 << 20 }; // bytes of a JSON line: several times the text of 131072 tokens

typedef struct {
    Session *session;
    Session *reference; // of the reference model (--kl); NULL: none
    Ids ids;            // all but the last are fed
    int first_scored;   // index of the first scored id; the logits of the id before it are needed
    int n_fed;          // ids fed so far, or already in the session
    int n_logits;       // rows of logits that the current forward pass computes for this task
    double logprob;     // the sum, in nats
    double squares;     // the sum of the squares
} ScoreTask;

typedef struct {
    Pipeline pipeline;
    Workspace *workspace;
    KlReference *reference;  // of --kl; NULL: none
    int parallel, chunk;     // tasks and tokens per forward pass
    double start;            // now_sec() at the beginning
    uint64_t n_fed, n_total; // progress in tokens; n_total 0: unknown
    double fed_since;        // now_sec() when the progress began
} Scorer;

// Runs tasks (n) to their end, at most `parallel` at a time.
void score_run(Scorer *s, ScoreTask *const *tasks, int n);
// Starts the progress of feeding n_total tokens.
void score_expect(Scorer *s, uint64_t n_total);

// score --perplexity and --ids (score_perplexity.c)
void score_perplexity(Scorer *s);
