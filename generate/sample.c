// The stages of sample.h in linear time: the vocabulary is never sorted.
//
// A candidate is a 64-bit key. Keys compare like their values; of equal values, the lower id has
// the greater key:
//
//     | order-preserving bits of a float32, sign bit flipped | 2^32 - 1 - id |
//     63                                                   32 31              0
//
// The value is the logit or, while top-p selects and a token is drawn, the weight exp((l - max l) /
// T). Top-k and top-p are the same problem: the smallest set of best keys that reaches a goal,
// which is a count or a sum of weights. Quickselect solves it.
//
// Logits are never divided by the temperature T. The stages after it multiply the values that they
// compare with logits by T instead. So a logit has the same bits in every order of the stages.
#include "generate/sample.h"
#include "base/exp.h"
#include "base/memory.h"

#include <math.h>

enum {
    SCAN_BLOCK = 64,        // logits compared with the threshold at a time
    SPARE_CANDIDATES = 1024 // candidates collected beyond top_k before the worst are dropped
};

struct Sampler {
    Arena memory; // of the arrays below
    SampleOptions options;
    SamplerOrder order; // the stages that have an effect
    float temp;         // of the draw
    double depth;       // a token whose logit is that far below the best has no weight in any stage
    int n_vocab;
    uint64_t n_draws;         // random numbers drawn so far: with the seed, the random state
    float *adjusted;          // (n_vocab) logits after bias and penalties; NULL: none are set
    int *counts;              // (n_vocab) occurrences in the penalty window; zero between calls
    uint64_t *keys, *scratch; // (cap_keys) candidates; NULL until the first are collected
    int cap_keys;
};

// A token that is being chosen, between two stages.
typedef struct {
    const float *logits; // (n_vocab) with bias and penalties so far
    float temp;          // 1 before the temperature
    float best;          // largest logit of the candidates, if has_best
    bool has_best;
    int n; // candidates; ALL_TOKENS before the first are collected
} Choice;

enum { ALL_TOKENS = -1 };

// Candidates.

// Integers that compare like the floats with these bits. The function is its own inverse. Comparing
// integers vectorizes; comparing floats, which may be NaN, does not.
static int32_t order_bits(int32_t bits) { return bits ^ (bits >> 31 & 0x7fffffff); }

static uint64_t make_key(float value, int id) {
    return (uint64_t)((uint32_t)order_bits((int32_t)float_bits(value)) ^ 0x80000000u) << 32 |
           (0xffffffffu - (uint32_t)id);
}

static float key_value(uint64_t key) {
    return float_from_bits((uint32_t)order_bits((int32_t)((uint32_t)(key >> 32) ^ 0x80000000u)));
}

static int key_id(uint64_t key) { return (int)(0xffffffffu - (uint32_t)key); }

// Weights: w_i = exp((l_i - max l) / T), the largest of which is 1. Their sums are in double.

// Sum of exp((x_i - best) * inv_temp). 16 partial sums in a fixed order, so that the compiler can
// use vectors of any width without changing the result.
static double sum_weights(const float *x, int n, float best, float inv_temp) {
    double part[16] = {0}, sum = 0;
    float w[16];
    size_t i = 0, end = (size_t)n;
    for (; i + 16 <= end; i += 16) {
        for (int j = 0; j < 16; j++) w[j] = exp_negative((best - x[i + (size_t)j]) * inv_temp);
        for (int j = 0; j < 16; j++) part[j] += (double)w[j];
    }
    for (; i < end; i++) sum += (double)exp_negative((best - x[i]) * inv_temp);
    for (int j = 0; j < 16; j++) sum += part[j];
    return sum;
}

// The largest logit, or NaN if a logit is NaN or +Inf. As integers, positive NaNs sort above +Inf
// and negative NaNs below -Inf, so the largest and smallest integer reveal them.
static float max_logit(const float *logits, int n) {
    int32_t high = INT32_MIN, low = INT32_MAX;
    for (int i = 0; i < n; i++) {
        int32_t x = order_bits((int32_t)float_bits(logits[i]));
        high = x > high ? x : high;
        low = x < low ? x : low;
    }
    return high >= (int32_t)float_bits(INFINITY) || low < order_bits((int32_t)float_bits(-INFINITY))
               ? NAN
               : float_from_bits((uint32_t)order_bits(high));
}

static int find_logit(const float *logits, float x) {
    int i = 0;
    while (logits[i] != x) i++;
    return i;
}

int logits_argmax(const float *logits, int n_vocab) {
    float best = max_logit(logits, n_vocab);
    return isnan(best) ? -1 : find_logit(logits, best);
}

// log sum exp(l_i), computed as max l + log sum exp(l_i - max l), which cannot overflow. If max l
// is not finite, the result is max l.
static double log_sum_exp(const float *logits, int n) {
    float best = max_logit(logits, n);
    return best > -INFINITY ? (double)best + log(sum_weights(logits, n, best, 1)) : (double)best;
}

float logits_logprob(const float *logits, int n_vocab, int id) {
    return (float)((double)logits[id] - log_sum_exp(logits, n_vocab));
}

// One pass with insertion into the n best so far: n is small, and most logits fail the first test.
void logits_top(const float *logits, int n_vocab, Alternative *out, int n) {
    int m = 0;
    for (int i = 0; i < n_vocab && n > 0; i++) {
        if (m == n && !(logits[i] > out[n - 1].logprob)) continue;
        int at = m < n ? m++ : n - 1;
        for (; at > 0 && logits[i] > out[at - 1].logprob; at--) out[at] = out[at - 1];
        out[at] = (Alternative){i, logits[i]};
    }
    double total = log_sum_exp(logits, n_vocab);
    for (int i = 0; i < m; i++) out[i].logprob = (float)((double)out[i].logprob - total);
    for (int i = m; i < n; i++) out[i] = (Alternative){-1, -INFINITY};
}

// Selection: top-k and top-p.

static uint64_t median_of_3(uint64_t a, uint64_t b, uint64_t c) {
    uint64_t low = a < b ? a : b, high = a < b ? b : a;
    if (c < low) return low;
    return c < high ? c : high;
}

// Takes keys from the best down until their values sum to `goal` > 0 (by_count: until there are
// `goal` keys), and returns the least key taken; 0 if all keys together do not reach the goal.
// Quickselect (Hoare 1961): sums the keys above a pivot, and continues on the side that holds the
// result. Reorders the keys, which must be distinct.
//
//     keys   | taken: above the range | above the pivot | pivot | below the pivot | not taken |
//            0                        lo                mid                       hi          n
//
// `above` is the sum of keys[0, lo). The range [lo, hi) holds the result and shrinks to one side.
static uint64_t select_least(uint64_t *keys, int n, double goal, bool by_count) {
    double above = 0; // sum of keys[0, lo)
    int lo = 0, hi = n;

    while (lo < hi) {
        uint64_t pivot = median_of_3(keys[lo], keys[lo + (hi - lo) / 2], keys[hi - 1]);
        double sum = 0;        // sum of keys[lo, mid), which are above the pivot
        int mid = lo, at = lo; // at: index of the pivot

        // Keys above the pivot move to the front.
        for (int i = lo; i < hi; i++) {
            uint64_t key = keys[i];
            if (key == pivot) at = i;
            if (key <= pivot) continue;

            sum += by_count ? 1 : (double)key_value(key);
            if (at == mid) at = i;
            keys[i] = keys[mid];
            keys[mid++] = key;
        }

        // The goal is reached above the pivot, with it, or below it.
        if (above + sum >= goal) {
            hi = mid;
            continue;
        }

        above += sum + (by_count ? 1 : (double)key_value(pivot));
        if (above >= goal) return pivot;

        keys[at] = keys[mid]; // the pivot ends between both sides
        keys[mid] = pivot;
        lo = mid + 1;
    }

    return 0;
}

// Reduces the first n candidates to the best that reach the goal, and returns their number. Their
// order does not change, because the draw depends on it.
static int keep_best(Sampler *s, int n, double goal, bool by_count) {
    memcpy(s->scratch, s->keys, (size_t)n * sizeof *s->keys);
    uint64_t least = select_least(s->scratch, n, goal, by_count);
    int m = 0;
    for (int i = 0; i < n; i++)
        if (s->keys[i] >= least) s->keys[m++] = s->keys[i];
    return m;
}

// Collects the logits of at least `threshold` as candidates, in the order of ids; of more than
// `limit`, only the best. Returns the number of candidates.
static int collect_candidates(Sampler *s, const float *logits, float threshold, int limit) {
    int n = 0;
    if (!s->keys) {
        s->keys = arena_alloc(&s->memory, (size_t)s->cap_keys, sizeof *s->keys);
        s->scratch = arena_alloc(&s->memory, (size_t)s->cap_keys, sizeof *s->scratch);
    }

    for (int i = 0; i < s->n_vocab; i += SCAN_BLOCK) {
        int m = s->n_vocab - i < SCAN_BLOCK ? s->n_vocab - i : SCAN_BLOCK, n_hits = 0;
        for (int j = 0; j < m; j++) n_hits += logits[i + j] >= threshold;
        if (!n_hits) continue;
        for (int j = 0; j < m; j++)
            if (logits[i + j] >= threshold) s->keys[n++] = make_key(logits[i + j], i + j);
        if (n + SCAN_BLOCK <= s->cap_keys) continue;
        // Full: keep the best. From here on the worst of them is the threshold.
        n = keep_best(s, n, limit, true);
        threshold = key_value(s->keys[0]);
        for (int j = 1; j < n; j++) threshold = fminf(threshold, key_value(s->keys[j]));
    }

    return n > limit ? keep_best(s, n, limit, true) : n;
}

// Drawing.

// A uniform number in [0, 1): the next output of SplitMix64 (Steele, Lea and Flood 2014), a counter
// whose bits are mixed.
static double draw_uniform(Sampler *s) {
    uint64_t z = s->options.seed + ++s->n_draws * 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (double)((z ^ z >> 31) >> 11) / 9007199254740992.0;
}

// Draws from all tokens. No candidates are collected.
static int draw_from_all(Sampler *s, const Choice *c) {
    float inv_temp = 1 / c->temp;
    double r = draw_uniform(s) * sum_weights(c->logits, s->n_vocab, c->best, inv_temp);
    int i = 0, id = 0;

    for (; i + SCAN_BLOCK < s->n_vocab; i += SCAN_BLOCK) {
        double block = sum_weights(c->logits + i, SCAN_BLOCK, c->best, inv_temp);
        if (r < block) break;
        r -= block;
    }

    for (; i < s->n_vocab && r >= 0; i++) {
        double w = (double)exp_negative((c->best - c->logits[i]) * inv_temp);
        if (w > 0) id = i;
        r -= w;
    }

    return id;
}

// Turns the logits of the candidates into weights, and returns their sum.
static double weigh_candidates(Sampler *s, const Choice *c) {
    float inv_temp = 1 / c->temp;
    double sum = 0;
    for (int i = 0; i < c->n; i++) {
        float weight = exp_negative((c->best - key_value(s->keys[i])) * inv_temp);
        s->keys[i] = make_key(weight, key_id(s->keys[i]));
        sum += (double)weight;
    }
    return sum;
}

// Draws a token with a probability proportional to its weight.
static int draw_token(Sampler *s, const Choice *c) {
    if (c->n == ALL_TOKENS) return draw_from_all(s, c);

    double sum = weigh_candidates(s, c);
    double r = draw_uniform(s) * sum;
    int last = 0;
    for (int i = 0; i < c->n && r >= 0; i++) {
        double w = (double)key_value(s->keys[i]);
        if (w > 0) last = i;
        r -= w;
    }
    return key_id(s->keys[last]);
}

// The candidate with the largest logit.
static int best_token(const Sampler *s, const Choice *c) {
    if (c->n == ALL_TOKENS) return find_logit(c->logits, c->best);
    uint64_t best = s->keys[0];
    for (int i = 1; i < c->n; i++) best = s->keys[i] > best ? s->keys[i] : best;
    return key_id(best);
}

// Penalties.

// Sets the candidates to their logits.
static void read_logits(Sampler *s, const Choice *c) {
    for (int i = 0; i < c->n; i++) {
        int id = key_id(s->keys[i]);
        s->keys[i] = make_key(c->logits[id], id);
    }
}

// Applies the penalties to s->adjusted. A token of the window is penalized once, at its first
// occurrence; its count is then reset, which also leaves `counts` zero for the next call.
static void apply_penalties(Sampler *s, const Choice *c, const int *recent, int n_recent) {
    const SampleOptions *o = &s->options;

    // Count the tokens of the penalty window.
    int first =
        o->repeat_last_n > 0 && o->repeat_last_n < n_recent ? n_recent - o->repeat_last_n : 0;
    for (int i = first; i < n_recent; i++) s->counts[recent[i]]++;

    // Penalize each counted token once.
    for (int i = first; i < n_recent; i++) {
        if (!s->counts[recent[i]]) continue;
        float *x = &s->adjusted[recent[i]];
        *x = *x > 0 ? *x / o->repeat_penalty : *x * o->repeat_penalty;
        *x -= (o->presence_penalty + o->frequency_penalty * (float)s->counts[recent[i]]) * c->temp;
        s->counts[recent[i]] = 0;
    }
}

static void apply_dry(Sampler *s, const Choice *c, const int *recent, int n_recent) {
    DryOptions dry = s->options.dry;
    dry.multiplier *= c->temp;
    dry_apply(&dry, recent, n_recent, s->counts, s->adjusted);
}

// Finds the largest logit, unless it has not changed. False if no token can be drawn.
static bool find_best(Sampler *s, Choice *c) {
    if (!c->has_best && c->n == ALL_TOKENS) {
        c->best = max_logit(c->logits, s->n_vocab);
    } else if (!c->has_best) {
        read_logits(s, c);
        c->best = c->logits[best_token(s, c)];
    }
    c->has_best = true;
    return c->best > -INFINITY;
}

// Truncation.

// The logit that is `depth` below the best one, or the one below which tokens have no weight.
static float find_threshold(const Sampler *s, const Choice *c, double depth) {
    return (float)fmax((double)c->best - fmin(depth, s->depth), -3e38);
}

static void apply_top_k(Sampler *s, Choice *c) {
    int k = s->options.top_k;
    if (c->n == ALL_TOKENS)
        c->n = collect_candidates(s, c->logits, find_threshold(s, c, INFINITY), k);
    else if (c->n > k)
        c->n = keep_best(s, c->n, k, true);
}

// w_i >= min_p means that a logit is at most -log(min_p) T below the best one.
static void apply_min_p(Sampler *s, Choice *c) {
    double depth = -log((double)s->options.min_p) * (double)c->temp;
    float threshold = find_threshold(s, c, depth);

    if (c->n == ALL_TOKENS) {
        c->n = collect_candidates(s, c->logits, threshold, s->n_vocab);
        return;
    }

    int n = 0;
    for (int i = 0; i < c->n; i++)
        if (key_value(s->keys[i]) >= threshold) s->keys[n++] = s->keys[i];
    c->n = n;
}

// Among all tokens, one with w_i < (1 - top_p) total / n_vocab is not in the nucleus: it and all
// smaller ones sum to less than (1 - top_p) total. (0.01 covers rounding.)
static void apply_top_p(Sampler *s, Choice *c) {
    double p = (double)s->options.top_p, total = 0;

    if (c->n == ALL_TOKENS) {
        total = sum_weights(c->logits, s->n_vocab, c->best, 1 / c->temp);
        double depth = (0.01 - log((1 - p) * total / s->n_vocab)) * (double)c->temp;
        c->n = collect_candidates(s, c->logits, find_threshold(s, c, depth), s->n_vocab);
    }
    if (c->n == 1) return;

    double sum = weigh_candidates(s, c);
    c->n = keep_best(s, c->n, fmax(p * fmax(total, sum), 1e-30), false);
    read_logits(s, c);
}

// The sampler.

bool sample_has_effect(const SampleOptions *o, SamplerKind kind) {
    switch (kind) {
    case SAMPLER_PENALTIES:
        return o->repeat_last_n &&
               (o->repeat_penalty != 1 || o->presence_penalty != 0 || o->frequency_penalty != 0);
    case SAMPLER_DRY: return dry_is_on(&o->dry);
    case SAMPLER_TEMPERATURE: return o->temp != 1;
    case SAMPLER_TOP_K: return o->top_k > 0;
    case SAMPLER_MIN_P: return o->min_p > 0;
    case SAMPLER_TOP_P: return o->top_p < 1;
    default: return false;
    }
}

static bool is_zero(float temp) { return !(temp > 1e-30f); }

bool sample_is_greedy(const SampleOptions *o) {
    return is_zero(o->temp) && samplers_have(&o->order, SAMPLER_TEMPERATURE);
}

// Sets the stages that have an effect, and what follows from their order.
static void set_order(Sampler *s) {
    const SampleOptions *o = &s->options;
    SamplerOrder order = samplers_resolve(&o->order);
    bool has_cut = false; // a truncation comes before
    bool begins_with_top_k = false;

    s->temp = samplers_have(&order, SAMPLER_TEMPERATURE) ? o->temp : 1;
    s->depth = (double)EXP_DEPTH * (double)s->temp;

    for (int i = 0; i < order.n; i++) {
        SamplerKind kind = order.at[i];
        if (!sample_has_effect(o, kind)) continue;
        s->order.at[s->order.n++] = kind;

        if (kind >= SAMPLER_TOP_K) {
            begins_with_top_k |= !has_cut && kind == SAMPLER_TOP_K;
            has_cut = true;
        }
        if (has_cut && kind == SAMPLER_TEMPERATURE)
            s->depth = fmax(s->depth, (double)EXP_DEPTH * fmax(1, (double)s->temp));
        if (has_cut && kind < SAMPLER_TEMPERATURE) s->depth = INFINITY; // the best logit may fall
    }

    // Top-k needs little memory if it comes before min-p and top-p.
    bool is_small = begins_with_top_k && o->top_k < s->n_vocab;
    s->cap_keys = (is_small ? o->top_k + SPARE_CANDIDATES : s->n_vocab) + SCAN_BLOCK;
}

Sampler *sampler_new(const SampleOptions *o, int n_vocab) {
    Sampler *s = xalloc(1, sizeof *s);
    s->options = *o;
    s->n_vocab = n_vocab;
    set_order(s);

    bool is_adjusted = o->n_bias;
    for (int i = 0; i < s->order.n; i++) is_adjusted |= s->order.at[i] < SAMPLER_TEMPERATURE;
    if (is_adjusted) {
        s->adjusted = arena_alloc(&s->memory, (size_t)n_vocab, sizeof *s->adjusted);
        s->counts = arena_alloc(&s->memory, (size_t)n_vocab, sizeof *s->counts);
    }

    return s;
}

void sampler_free(Sampler *s) {
    if (s) arena_free(&s->memory);
    free(s);
}

void sampler_sync(Sampler *s, const Sampler *other) { s->n_draws = other->n_draws; }

// Returns the logits or, if any are changed, a copy with the biases.
static const float *add_biases(Sampler *s, const float *logits) {
    const SampleOptions *o = &s->options;
    if (!s->adjusted) return logits;

    memcpy(s->adjusted, logits, (size_t)s->n_vocab * sizeof *logits);
    for (int i = 0; i < o->n_bias; i++) s->adjusted[o->bias[i].id] += o->bias[i].bias;
    return s->adjusted;
}

int sampler_next(Sampler *s, const float *logits, const int *recent, int n_recent) {
    Choice c = {.logits = add_biases(s, logits), .temp = 1, .n = ALL_TOKENS};

    for (int i = 0; i < s->order.n; i++) {
        SamplerKind kind = s->order.at[i];
        if (kind < SAMPLER_TEMPERATURE)
            c.has_best = false;
        else if (!find_best(s, &c))
            return -1;

        switch (kind) {
        case SAMPLER_PENALTIES: apply_penalties(s, &c, recent, n_recent); break;
        case SAMPLER_DRY: apply_dry(s, &c, recent, n_recent); break;
        case SAMPLER_TEMPERATURE: c.temp = s->temp; break;
        case SAMPLER_TOP_K: apply_top_k(s, &c); break;
        case SAMPLER_MIN_P: apply_min_p(s, &c); break;
        default: apply_top_p(s, &c);
        }
        if (is_zero(c.temp)) return best_token(s, &c);
    }

    return find_best(s, &c) ? draw_token(s, &c) : -1;
}
