// Acceptance rate and time of a drafter that computes one token per forward pass of its own.
#pragma once

// Zero-initialize. All sequences share it.
typedef struct {
    float n_accepted, n_verified; // exponentially decayed counts of drafts
    double sec_per_draft;         // moving average; 0: not measured yet
} DraftRate;

// Writes the acceptance rate of the next n drafts to p_accept (n).
void rate_estimate(DraftRate *r, float *p_accept, int n);
// Updates the acceptance rate after a pass over n drafts, of which the first n_accepted were
// accepted.
void rate_record(DraftRate *r, int n_accepted, int n);
