// Reports on a running or finished completion, for people: progress, why it ended, speed.
#pragma once

#include "chat/reply.h"
#include "cli/options.h"
#include "generate/generate.h"

// Starts a request, prefills its prompt with a progress line, and samples the first token.
void prefill_with_progress(const Options *o, Generator *g, Sequence *s, const Request *r,
                           Session *session);
// Warn, even with -q, if n texts were ended because they repeated themselves, or because the
// context (a number of positions) is full, or if -n or the context cut n reasonings before their
// answer.
void warn_loops(int n, const char *noun);
void warn_full(int n, const char *noun, const Model *m, int context);
void warn_unanswered(int n);
// True if the context cut the text; if -n or the context cut the reasoning.
bool is_cut_by_context(const Sequence *s);
bool is_unanswered(const Sequence *s, const Reply *r);
// Notes if -n cut the text, or a character.
void note_ending(const Options *o, const Sequence *s);
// Notes "prefill 512 tok 91.2 tok/s | decode 128 tok 4.6 tok/s | seed 42"; with -v also GB/s, draft
// tokens and the order of the samplers. n_reasoning, n_answer: tokens of the texts, noted if there
// was reasoning.
void note_stats(const Options *o, const Generator *g, int n_reasoning, int n_answer,
                const SampleOptions *sample);
// The reason for n threads: "performance cores: 8 of 16, SMT siblings left out". Static text.
const char *threads_reason(const Options *o, int n);
