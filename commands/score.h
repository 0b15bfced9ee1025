// The engine of score: sums log-probabilities of given tokens.
//
// Everything is a ScoreTask: tokens are fed to a session and the log-probabilities of some of them
// summed. Windows of a text, texts of a file and choices after a prompt are packed into the same
// forward passes. A task's sum has the same order of additions whatever it is packed with.
#pragma once

#include "score_kl.h"
#include "../cli/lines.h"

enum { SCORE_MAX_LINE = 4 << 20 }; // bytes of a JSON line: several times the text of 131072 tokens

typedef struct {
    Session *session;
    Session *reference; // of the reference model (--kl); NULL: none
    Ids ids;            // all but the last are fed
    int first_scored;   // ids from here on are scored, each by the logits of the one before
    int n_fed;          // so far, or already in the session
    int n_logits;       // ids fed last whose logits the current forward pass computes
    int n_from_cache;   // positions that the prefix cache had
    double logprob;     // the sum, in nats
} ScoreTask;

typedef struct {
    Pipeline pipeline;
    Workspace *workspace;
    PrefixCache *cache;      // NULL: none
    KlReference *reference;  // of --kl; NULL: none
    int parallel, chunk;     // tasks and tokens per forward pass
    double start;            // now_sec() at the beginning
    uint64_t n_fed, n_total; // progress in tokens; total 0: unknown
    double fed_since;
} Scorer;

// Runs tasks (n) to their end, at most `parallel` at a time.
void score_run(Scorer *s, ScoreTask *const *tasks, int n);
// Starts the progress of feeding n_total tokens.
void score_expect(Scorer *s, uint64_t n_total);

// score --perplexity and --ids (score_perplexity.c)
void score_perplexity(Scorer *s);
// score --choices, and score --jsonl (score_choices.c)
void score_choices(Scorer *s);
void score_questions(Scorer *s);
