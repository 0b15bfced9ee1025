#include "cost.h"

void cost_record(CostModel *p, int n, double sec) {
    if (n < 1 || n > COST_MAX_TOKENS) return;
    double *seen = &p->sec[n];
    *seen = *seen == 0 ? sec : 0.8 * *seen + 0.2 * sec;
}

// Between lengths that were seen, in proportion. Beyond them each token is taken to cost a tenth of
// the first: little enough that a longer step is tried when it is likely to save some, and is then
// known.
double cost_estimate(const CostModel *p, int n) {
    int below = n, above = n;
    if (n > COST_MAX_TOKENS) n = below = above = COST_MAX_TOKENS;
    while (below > 0 && p->sec[below] == 0) below--;
    while (above < COST_MAX_TOKENS && p->sec[above] == 0) above++;
    if (below == n || below == 0) return p->sec[above];
    double base = p->sec[below];
    if (p->sec[above] == 0) return base + 0.1 * (p->sec[1] > 0 ? p->sec[1] : base) * (n - below);
    return base + (p->sec[above] - base) * (n - below) / (above - below);
}

int cost_choose(const CostModel *p, int n_sure, const float *trust, int n, double sec_each) {
    double is_right = 1, tokens = n_sure, sec = cost_estimate(p, n_sure),
           best_rate = tokens / sec * 1.05; // noise is no gain
    int best = 0;
    if (sec == 0) return 0;
    for (int i = 0; i < n; i++) {
        is_right *= (double)trust[i];
        tokens += is_right;
        double rate = tokens / (cost_estimate(p, n_sure + i + 1) + (i + 1) * sec_each);
        if (rate <= best_rate) continue;
        best_rate = rate;
        best = i + 1;
    }
    return best;
}
