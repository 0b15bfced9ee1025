// Replaces generate/speculate/ in builds WITHOUT=speculate: every token takes a forward pass of its
// own.
#include "generate/speculate/speculate.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

Speculation *speculation_new(const Model *m, Workspace *ws, const Model *draft, bool has_lookup,
                             Error *err) {
    return NULL;
}
Drafters *speculation_begin(Speculation *sp, const SampleOptions *options) { return NULL; }
void speculation_end(Drafters *d) {}
int speculation_draft(Drafters *d, const DraftPoint *at, int *out, int max) { return 0; }
void speculation_accept(Drafters *d, const Session *session, int row, int n) {}
void speculation_record_pass(Speculation *sp, int n, double sec) {}
