// See cost.h for the equation.
#include "generate/speculate/cost.h"

double cost_average(double mean, double sec) {
    if (mean == 0) return sec;
    return 0.8 * mean + 0.2 * (sec < 2 * mean ? sec : 2 * mean);
}

void cost_record(CostModel *c, int n, double sec) {
    if (n >= 1 && n <= COST_MAX_TOKENS) c->sec[n] = cost_average(c->sec[n], sec);
}

// Interpolates linearly between measured lengths. Beyond the longest measured one, the time grows
// with the weights that are read, and each further token is assumed to cost a tenth of a one-token
// pass. The assumption is optimistic on purpose: a longer pass gets tried when its drafts are
// likely to be accepted, and from then on it is measured.
double cost_estimate(const CostModel *c, int n) {
    if (n > COST_MAX_TOKENS) n = COST_MAX_TOKENS;
    int below = n, above = n; // nearest measured lengths
    while (below > 0 && c->sec[below] == 0) below--;
    while (above < COST_MAX_TOKENS && c->sec[above] == 0) above++;
    if (below == n || below == 0) return c->sec[above];
    double base = c->sec[below];
    double growth = c->bytes[below] > 0 ? c->bytes[n] / c->bytes[below] : 1;
    double sec_per_token = 0.1 * (c->sec[1] > 0 ? c->sec[1] : base);
    if (c->sec[above] == 0) return base * growth + sec_per_token * (n - below);
    return base + (c->sec[above] - base) * (n - below) / (above - below);
}

int cost_choose(const CostModel *c, int n_base, const float *p_accept, int n,
                double sec_per_draft) {
    double base_sec = cost_estimate(c, n_base);
    if (base_sec == 0) return 0;

    // Drafting must gain 5 %: smaller differences are measurement noise.
    double best_rate = n_base / base_sec * 1.05;
    int best = 0;

    double p_all = 1, n_expected = n_base;         // p_1 p_2 ... p_k, and E(k) of cost.h
    for (int k = 1; k <= n && p_all > 0.01; k++) { // further drafts are hardly ever accepted
        p_all *= (double)p_accept[k - 1];
        n_expected += p_all;
        double sec = cost_estimate(c, n_base + k);
        if (sec < base_sec) sec = base_sec; // a longer pass is faster by measurement noise only
        double rate = n_expected / (sec + k * sec_per_draft);
        if (rate <= best_rate) continue;

        best_rate = rate;
        best = k;
    }

    return best;
}
