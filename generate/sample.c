// The stages of sample.h in linear time: the vocabulary is never sorted.
//
// A candidate is a 64-bit key. Keys compare like their values; of equal values, the lower id has
// the greater key:
//
//     | order-preserving bits of a float32, sign bit flipped | 2^32 - 1 - id |
//     63                                                   32 31              0
//
// The value is the logit for top-k and min-p, and afterwards the weight exp((l - max l) / T). Top-k
// and top-p are the same problem: the smallest set of best keys that reaches a goal, which is a
// count or a sum of weights. Quickselect solves it.
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
    int n_vocab;
    uint64_t n_draws;         // random numbers drawn so far: with the seed, the random state
    float *adjusted;          // (n_vocab) logits after bias and penalties; NULL: none are set
    int *counts;              // (n_vocab) occurrences in the penalty window; zero between calls
    uint64_t *keys, *scratch; // (cap_keys) candidates; NULL: greedy
    int cap_keys;
};

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

int logits_argmax(const float *logits, int n_vocab) {
    float best = max_logit(logits, n_vocab);
    if (isnan(best)) return -1;
    int i = 0;
    while (logits[i] != best) i++;
    return i;
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

// Collects the logits of at least `threshold` as candidates, in the order of ids; with top-k, only
// the k best. Returns the number of candidates.
static int collect_candidates(Sampler *s, const float *logits, float threshold) {
    int n = 0, k = s->options.top_k, limit = k > 0 && k < s->n_vocab ? k : s->n_vocab;
    for (int i = 0; i < s->n_vocab; i += SCAN_BLOCK) {
        int m = s->n_vocab - i < SCAN_BLOCK ? s->n_vocab - i : SCAN_BLOCK, n_hits = 0;
        for (int j = 0; j < m; j++) n_hits += logits[i + j] >= threshold;
        if (!n_hits) continue;
        for (int j = 0; j < m; j++)
            if (logits[i + j] >= threshold) s->keys[n++] = make_key(logits[i + j], i + j);
        if (n + SCAN_BLOCK <= s->cap_keys) continue;
        // Full: keep the k best. From here on the worst of them is the threshold.
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

// Draws from all tokens, whose weights sum to `total`. No candidates are collected.
static int draw_from_all(Sampler *s, const float *logits, float best, double total) {
    double r = draw_uniform(s) * total;
    float inv_temp = 1 / s->options.temp;
    int i = 0, id = 0;

    for (; i + SCAN_BLOCK < s->n_vocab; i += SCAN_BLOCK) {
        double block = sum_weights(logits + i, SCAN_BLOCK, best, inv_temp);
        if (r < block) break;
        r -= block;
    }

    for (; i < s->n_vocab && r >= 0; i++) {
        double w = (double)exp_negative((best - logits[i]) * inv_temp);
        if (w > 0) id = i;
        r -= w;
    }

    return id;
}

static bool has_penalty(const SampleOptions *o) {
    return o->repeat_last_n &&
           (o->repeat_penalty != 1 || o->presence_penalty != 0 || o->frequency_penalty != 0);
}

// Applies the penalties to s->adjusted. A token of the window is penalized once, at its first
// occurrence; its count is then reset, which also leaves `counts` zero for the next call.
static void apply_penalties(Sampler *s, const int *recent, int n_recent) {
    const SampleOptions *o = &s->options;

    // Count the tokens of the penalty window.
    int first =
        o->repeat_last_n > 0 && o->repeat_last_n < n_recent ? n_recent - o->repeat_last_n : 0;
    for (int i = first; i < n_recent; i++)
        if (recent[i] >= 0 && recent[i] < s->n_vocab) s->counts[recent[i]]++;

    // Penalize each counted token once.
    for (int i = first; i < n_recent; i++) {
        if (recent[i] < 0 || recent[i] >= s->n_vocab || !s->counts[recent[i]]) continue;
        float *x = &s->adjusted[recent[i]];
        *x = *x > 0 ? *x / o->repeat_penalty : *x * o->repeat_penalty;
        *x -= o->presence_penalty + o->frequency_penalty * (float)s->counts[recent[i]];
        s->counts[recent[i]] = 0;
    }
}

// Applies bias and penalties to a copy of the logits.
static const float *adjust_logits(Sampler *s, const float *logits, const int *recent,
                                  int n_recent) {
    const SampleOptions *o = &s->options;
    memcpy(s->adjusted, logits, (size_t)s->n_vocab * sizeof *logits);
    for (int i = 0; i < o->n_bias; i++)
        if (o->bias[i].id >= 0 && o->bias[i].id < s->n_vocab)
            s->adjusted[o->bias[i].id] += o->bias[i].bias;
    if (has_penalty(o)) apply_penalties(s, recent, n_recent);
    if (dry_is_on(&o->dry)) dry_apply(&o->dry, recent, n_recent, s->counts, s->adjusted);
    return s->adjusted;
}

// The sampler.

Sampler *sampler_new(const SampleOptions *o, int n_vocab) {
    Sampler *s = xalloc(1, sizeof *s);
    s->options = *o;
    s->n_vocab = n_vocab;

    if (o->n_bias || has_penalty(o) || dry_is_on(&o->dry)) {
        s->adjusted = arena_alloc(&s->memory, (size_t)n_vocab, sizeof *s->adjusted);
        s->counts = arena_alloc(&s->memory, (size_t)n_vocab, sizeof *s->counts);
    }

    s->cap_keys =
        (o->top_k > 0 && o->top_k < n_vocab ? o->top_k + SPARE_CANDIDATES : n_vocab) + SCAN_BLOCK;
    if (o->temp > 0) {
        s->keys = arena_alloc(&s->memory, (size_t)s->cap_keys, sizeof *s->keys);
        s->scratch = arena_alloc(&s->memory, (size_t)s->cap_keys, sizeof *s->scratch);
    }

    return s;
}

void sampler_free(Sampler *s) {
    if (s) arena_free(&s->memory);
    free(s);
}

void sampler_sync(Sampler *s, const Sampler *other) { s->n_draws = other->n_draws; }

// The most likely token; -1 if a logit is NaN or +Inf or all logits are -Inf.
static int greedy_token(const Sampler *s, const float *logits) {
    int id = logits_argmax(logits, s->n_vocab);
    return id >= 0 && logits[id] > -INFINITY ? id : -1;
}

// Turns the logits of n candidates into weights, and returns their sum.
static double weigh_candidates(Sampler *s, int n, float best, float inv_temp) {
    double sum = 0;
    for (int i = 0; i < n; i++) {
        float weight = exp_negative((best - key_value(s->keys[i])) * inv_temp);
        s->keys[i] = make_key(weight, key_id(s->keys[i]));
        sum += (double)weight;
    }
    return sum;
}

// Draws one of n candidates with a probability proportional to its weight. sum: of all weights.
static int draw_candidate(Sampler *s, int n, double sum) {
    double r = draw_uniform(s) * sum;
    for (int i = 0; i < n - 1; i++) {
        r -= (double)key_value(s->keys[i]);
        if (r < 0) return key_id(s->keys[i]);
    }
    return key_id(s->keys[n - 1]);
}

int sampler_next(Sampler *s, const float *logits, const int *recent, int n_recent) {
    const SampleOptions *o = &s->options;

    // Bias, penalties, and greedy decoding.
    if (s->adjusted) logits = adjust_logits(s, logits, recent, n_recent);
    if (!(o->temp > 1e-30f)) return greedy_token(s, logits);

    float best = max_logit(logits, s->n_vocab), inv_temp = 1 / o->temp;
    if (!(best > -INFINITY)) return -1;

    // Min-p: w_i >= min_p means that a logit is at most -log(min_p) T below the best one. Top-p
    // alone also bounds this depth: a token with w_i < (1 - top_p) total / n_vocab is not in the
    // nucleus, because it and all smaller tokens sum to less than (1 - top_p) total. (0.01 covers
    // rounding.)
    double depth = (double)EXP_DEPTH; // in units of T; smaller weights count as 0
    double total = 0;                 // sum of all weights, if neither top-k nor min-p is on
    if (o->min_p > 0) depth = fmin(-log((double)o->min_p), depth);
    if (o->top_k <= 0 && o->min_p <= 0) {
        total = sum_weights(logits, s->n_vocab, best, inv_temp);
        if (o->top_p >= 1) return draw_from_all(s, logits, best, total);
        depth = fmin(depth, 0.01 - log((1 - (double)o->top_p) * total / s->n_vocab));
    }

    // Top-k and min-p.
    float threshold = (float)fmax((double)best - depth * (double)o->temp, -3e38);
    int n = collect_candidates(s, logits, threshold);
    double sum = weigh_candidates(s, n, best, inv_temp);

    // Top-p.
    if (o->top_p < 1 && n > 1) {
        n = keep_best(s, n, fmax((double)o->top_p * fmax(total, sum), 1e-30), false);
        sum = 0;
        for (int i = 0; i < n; i++) sum += (double)key_value(s->keys[i]);
    }

    return draw_candidate(s, n, sum);
}
