// See rate.h.
#include "generate/speculate/rate.h"

// The acceptance rate before any draft has been verified. It counts as much as 2 verified drafts.
static const float prior_rate = 0.7f, prior_weight = 2;

void rate_estimate(DraftRate *r, float *p_accept, int n) {
    // Every call lets 0.5 % of the experience fade. Thus a drafter with a rate too low to be used
    // is tried again some time later. If a verified draft adds a tenth to the time of a pass, a
    // rate below 0.16 does not pay (cost_choose). If no draft is ever accepted, the rate is at this
    // limit after 7 drafts, and one draft in 27 passes keeps it there: 0.4 % of the time.
    r->n_accepted *= 0.995f;
    r->n_verified *= 0.995f;
    float p = (prior_rate * prior_weight + r->n_accepted) / (prior_weight + r->n_verified);
    for (int i = 0; i < n; i++) p_accept[i] = p;
}

void rate_record(DraftRate *r, int n_accepted, int n) {
    // Drafts after the first rejected one are not counted: they continue a text that was not
    // generated.
    int n_verified = n_accepted < n ? n_accepted + 1 : n;
    for (int i = 0; i < n_verified; i++) {
        r->n_accepted = 0.97f * r->n_accepted + (float)(i < n_accepted);
        r->n_verified = 0.97f * r->n_verified + 1;
    }
}
