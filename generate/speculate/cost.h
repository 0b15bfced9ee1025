// Cost model: how many draft tokens a forward pass should verify.
//
// Let t(n) be the time of a pass over n tokens, b the tokens that the pass holds anyway, and p_i
// the probability that draft i is accepted if all drafts before it are. A pass with k drafts
// generates
//
//     E(k) = b + sum_{i=1..k} p_1 p_2 ... p_i
//
// tokens on average. cost_choose() returns the k with the highest rate
//
//     E(k) / (t(b + k) + k t_draft)
//
// where t_draft is the time that drafting one token takes. This is the walltime analysis of
// Leviathan, Kalman and Matias 2023 (section 3.3), with a measured t(n) instead of a constant pass
// time, and with one acceptance rate per draft instead of one for all drafts.
#pragma once

enum { COST_MAX_TOKENS = 64 }; // longest pass that is measured, in tokens

// Zero-initialize. Batches and single sequences share the table, because the time of a decode pass
// is dominated by reading the weights, once per pass.
typedef struct {
    double sec[COST_MAX_TOKENS + 1]; // t(n), moving average in seconds; 0: not measured yet
    // Weights that a pass over n tokens reads, in bytes: more for more tokens if the model has
    // experts. All 0: the same for every n.
    double bytes[COST_MAX_TOKENS + 1];
} CostModel;

// An exponentially decayed mean (0: none yet) with one more time. A time counts as at most twice
// the mean, so that a thread that lost its core for a while does not look like a slow pass.
double cost_average(double mean, double sec);
// Records that a pass over n tokens took `sec` seconds.
void cost_record(CostModel *c, int n, double sec);
// t(n) in seconds; 0 if no pass has been measured.
double cost_estimate(const CostModel *c, int n);
// Returns k, at most n. p_accept (n): p_1 to p_n. sec_per_draft: t_draft, 0 if drafts cost nothing.
int cost_choose(const CostModel *c, int n_base, const float *p_accept, int n, double sec_per_draft);
