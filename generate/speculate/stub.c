// Replaces generate/speculate/ in builds WITHOUT=speculate: every token takes a forward pass of its
// own.
#include "generate/speculate/speculate.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

Speculation *speculation_new(Model *m, Model *draft, bool has_lookup, int max_steps, Error *err) {
    return NULL;
}
Drafter *speculation_begin(Speculation *sp, const SampleOptions *options, int n_vocab) {
    return NULL;
}
void speculation_end(Drafter *d) {}
int speculation_draft(Drafter *d, const Session *session, int pending, const Sampler *sampler,
                      int n_base, int *out, int max) {
    return 0;
}
void speculation_accept(Drafter *d, const Session *session, int row, int n) {}
void speculation_record_pass(Speculation *sp, int n, double sec) {}
