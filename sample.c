// Candidates are 64-bit keys, value above and complemented id below: comparing keys is comparing
// values with ties to the lower id. What is cut off is found by selection in linear time; nothing
// is ever sorted.
#include "sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SCAN = 64, SPARE = 1024 }; // logits looked at together; room for candidates beyond top_k
static const float deepest = 87;  // exp(-87) is the smallest weight that counts

struct Sampler {
    SampleOptions options;
    int n_vocab;
    uint64_t n_drawn;
    float *changed;        // (n_vocab): logits after bias and penalties
    int *counts;           // (n_vocab): of the tokens penalties look at; zero between calls
    uint64_t *keys, *work; // (cap_keys)
    int cap_keys;
};

// A float's bits, and back.
static int32_t bits_of(float x) {
    int32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}

static float from_bits(int32_t bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

// Floats as integers in the same order, and back (it is its own inverse). Comparing these
// vectorises, floats do not.
static int32_t ordered(int32_t bits) { return bits ^ (bits >> 31 & 0x7fffffff); }

// A candidate as one number, and its two parts.
static uint64_t key_of(float value, int id) {
    return (uint64_t)((uint32_t)ordered(bits_of(value)) ^ 0x80000000u) << 32 |
           (0xffffffffu - (uint32_t)id);
}

static float key_value(uint64_t key) {
    return from_bits(ordered((int32_t)((uint32_t)(key >> 32) ^ 0x80000000u)));
}

static int key_id(uint64_t key) { return (int)(0xffffffffu - (uint32_t)key); }

// exp(-t) for t >= 0, 0 beyond 87, within 2 units in the last place; without branches, so that
// loops are vectorised. exp(-t) = 2^n e^r with r = -t - n ln 2, |r| <= ln 2 / 2.
static inline float exp_minus(float t) {
    int32_t bits = bits_of(t), limit = bits_of(deepest), seen = -(int32_t)(bits <= limit);
    t = from_bits(bits & seen);
    float n = t * -1.44269504f + 12582912.0f; // adding 1.5 * 2^23 rounds to an integer
    int32_t exponent = bits_of(n) - 0x4b400000;
    n -= 12582912.0f;
    float r = (-t - n * 0.693145752f) - n * 1.42860677e-6f;
    float e =
        1 + r * (1 + r * (0.5f + r * (0.166666667f + r * (0.0416666411f + r * (0.00833345205f +
                                                                               r * 0.00139043f)))));
    return from_bits(bits_of(e * from_bits((exponent + 127) * (1 << 23))) & seen);
}

// Sum of exp((x - best) * inv_temp).
static double weigh(const float *x, int n, float best, float inv_temp) {
    double part[16] = {0}, sum = 0;
    float w[16];
    size_t i = 0, end = (size_t)n;
    for (; i + 16 <= end; i += 16) {
        for (int j = 0; j < 16; j++) w[j] = exp_minus((best - x[i + (size_t)j]) * inv_temp);
        for (int j = 0; j < 16; j++) part[j] += (double)w[j];
    }
    for (; i < end; i++) sum += (double)exp_minus((best - x[i]) * inv_temp);
    for (int j = 0; j < 16; j++) sum += part[j];
    return sum;
}

// Largest of the logits; NaN if one is NaN or +Inf.
static float largest(const float *logits, int n) {
    int32_t high = INT32_MIN, low = INT32_MAX;
    for (int i = 0; i < n; i++) {
        int32_t x = ordered(bits_of(logits[i]));
        high = x > high ? x : high;
        low = x < low ? x : low;
    }
    return high >= bits_of(INFINITY) || low < ordered(bits_of(-INFINITY))
               ? NAN
               : from_bits(ordered(high));
}

int logits_argmax(const float *logits, int n_vocab) {
    float best = largest(logits, n_vocab);
    if (isnan(best)) return -1;
    int i = 0;
    while (logits[i] != best) i++;
    return i;
}

// The logarithm of the sum of exp(logit); the largest logit itself where that is not finite.
static double log_sum(const float *logits, int n) {
    float best = largest(logits, n);
    return best > -INFINITY ? (double)best + log(weigh(logits, n, best, 1)) : (double)best;
}

float logits_logprob(const float *logits, int n_vocab, int id) {
    return (float)((double)logits[id] - log_sum(logits, n_vocab));
}

void logits_top(const float *logits, int n_vocab, Alternative *out, int n) {
    int m = 0;
    for (int i = 0; i < n_vocab && n > 0; i++) {
        if (m == n && !(logits[i] > out[n - 1].logprob)) continue;
        int at = m < n ? m++ : n - 1;
        for (; at > 0 && logits[i] > out[at - 1].logprob; at--) out[at] = out[at - 1];
        out[at] = (Alternative){i, logits[i]};
    }
    double total = log_sum(logits, n_vocab);
    for (int i = 0; i < m; i++) out[i].logprob = (float)((double)out[i].logprob - total);
    for (int i = m; i < n; i++) out[i] = (Alternative){-1, -INFINITY};
}

// The last of the fewest best keys whose values, or whose number if by_number, reach `goal` > 0; 0
// if all do not. Quickselect: what lies above a pivot is weighed, and one side dropped. Reorders
// the keys (all different).
static uint64_t last_of_best(uint64_t *keys, int n, double goal, bool by_number) {
    double above = 0; // weight of keys[0, lo)
    for (int lo = 0, hi = n; lo < hi;) {
        uint64_t a = keys[lo], b = keys[lo + (hi - lo) / 2], c = keys[hi - 1];
        uint64_t pivot = a > b ? (b > c ? b : a > c ? c : a) : (a > c ? a : b > c ? c : b);
        double weight = 0;
        int mid = lo, at = lo; // keys[lo, mid) are above the pivot, which is at `at`
        for (int i = lo; i < hi; i++) {
            uint64_t key = keys[i];
            if (key == pivot) at = i;
            if (key <= pivot) continue;
            weight += by_number ? 1 : (double)key_value(key);
            if (at == mid) at = i;
            keys[i] = keys[mid];
            keys[mid++] = key;
        }
        if (above + weight >= goal) {
            hi = mid;
            continue;
        }
        above += weight + (by_number ? 1 : (double)key_value(pivot));
        if (above >= goal) return pivot;
        keys[at] = keys[mid];
        keys[mid] = pivot;
        lo = mid + 1;
    }
    return 0;
}

// Cuts the first n keys to the best ones, in the order they are in.
static int keep_best(Sampler *s, int n, double goal, bool by_number) {
    memcpy(s->work, s->keys, (size_t)n * sizeof *s->keys);
    uint64_t least = last_of_best(s->work, n, goal, by_number);
    int m = 0;
    for (int i = 0; i < n; i++)
        if (s->keys[i] >= least) s->keys[m++] = s->keys[i];
    return m;
}

// Logits of at least `floor` as keys, by id; no more than the top_k best, if that is set.
static int collect(Sampler *s, const float *logits, float floor) {
    int n = 0, k = s->options.top_k, limit = k > 0 && k < s->n_vocab ? k : s->n_vocab;
    for (int i = 0; i < s->n_vocab; i += SCAN) {
        int m = s->n_vocab - i < SCAN ? s->n_vocab - i : SCAN, hits = 0;
        for (int j = 0; j < m; j++) hits += logits[i + j] >= floor;
        if (!hits) continue;
        for (int j = 0; j < m; j++)
            if (logits[i + j] >= floor) s->keys[n++] = key_of(logits[i + j], i + j);
        if (n + SCAN <= s->cap_keys) continue;
        n = keep_best(s, n, limit, true);
        floor = key_value(s->keys[0]); // the worst one kept is the floor from now on
        for (int j = 1; j < n; j++) floor = fminf(floor, key_value(s->keys[j]));
    }
    return n > limit ? keep_best(s, n, limit, true) : n;
}

// Uniform in [0, 1): the n-th output of SplitMix64 (Steele, Lea and Flood, Fast Splittable
// Pseudorandom Number Generators, 2014), a counter times an odd constant, mixed.
static double draw(Sampler *s) {
    uint64_t z = s->options.seed + ++s->n_drawn * 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (double)((z ^ z >> 31) >> 11) / 9007199254740992.0;
}

// A draw from all tokens, whose weights add up to `total`.
static int draw_any(Sampler *s, const float *logits, float best, double total) {
    double r = draw(s) * total, part = 0;
    float inv_temp = 1 / s->options.temp;
    int i = 0, id = 0;
    for (; i + SCAN < s->n_vocab; i += SCAN) {
        part = weigh(logits + i, SCAN, best, inv_temp);
        if (r < part) break;
        r -= part;
    }
    for (; i < s->n_vocab && r >= 0; i++) {
        double w = (double)exp_minus((best - logits[i]) * inv_temp);
        if (w > 0) id = i;
        r -= w;
    }
    return id;
}

static bool has_penalty(const SampleOptions *o) {
    return o->repeat_last_n &&
           (o->repeat_penalty != 1 || o->presence_penalty != 0 || o->frequency_penalty != 0);
}

// Bias, then penalties: the repeat penalty makes a token less likely whatever the sign of its logit
// (Keskar et al. 2019); frequency counts each use, presence the first.
static const float *change(Sampler *s, const float *logits, const int *recent, int n_recent) {
    const SampleOptions *o = &s->options;
    memcpy(s->changed, logits, (size_t)s->n_vocab * sizeof *logits);
    for (int i = 0; i < o->n_bias; i++)
        if (o->bias[i].id >= 0 && o->bias[i].id < s->n_vocab)
            s->changed[o->bias[i].id] += o->bias[i].bias;
    if (!has_penalty(o)) return s->changed;
    int first =
        o->repeat_last_n > 0 && o->repeat_last_n < n_recent ? n_recent - o->repeat_last_n : 0;
    for (int i = first; i < n_recent; i++)
        if (recent[i] >= 0 && recent[i] < s->n_vocab) s->counts[recent[i]]++;
    for (int i = first; i < n_recent; i++) {
        if (recent[i] < 0 || recent[i] >= s->n_vocab || !s->counts[recent[i]]) continue;
        float *x = &s->changed[recent[i]];
        *x = *x > 0 ? *x / o->repeat_penalty : *x * o->repeat_penalty;
        *x -= o->presence_penalty + o->frequency_penalty * (float)s->counts[recent[i]];
        s->counts[recent[i]] = 0;
    }
    return s->changed;
}

Sampler *sampler_new(const SampleOptions *o, int n_vocab) {
    Sampler *s = xalloc(1, sizeof *s);
    s->options = *o;
    s->n_vocab = n_vocab;
    if (o->n_bias || has_penalty(o)) {
        s->changed = xalloc((size_t)n_vocab, sizeof *s->changed);
        s->counts = xalloc((size_t)n_vocab, sizeof *s->counts);
    }
    s->cap_keys = (o->top_k > 0 && o->top_k < n_vocab ? o->top_k + SPARE : n_vocab) + SCAN;
    if (o->temp > 0) {
        s->keys = xalloc((size_t)s->cap_keys, sizeof *s->keys);
        s->work = xalloc((size_t)s->cap_keys, sizeof *s->work);
    }
    return s;
}

void sampler_free(Sampler *s) {
    if (!s) return;
    free(s->changed);
    free(s->counts);
    free(s->keys);
    free(s->work);
    free(s);
}

void sampler_sync(Sampler *s, const Sampler *other) { s->n_drawn = other->n_drawn; }

int sampler_next(Sampler *s, const float *logits, const int *recent, int n_recent) {
    const SampleOptions *o = &s->options;
    if (o->n_bias || has_penalty(o)) logits = change(s, logits, recent, n_recent);
    if (!(o->temp > 1e-30f)) {
        int id = logits_argmax(logits, s->n_vocab);
        return id >= 0 && logits[id] > -INFINITY ? id : -1;
    }
    float best = largest(logits, s->n_vocab), inv_temp = 1 / o->temp;
    if (!(best > -INFINITY)) return -1;

    // How far below the best a logit may lie. The nucleus holds no token of less than (1 - top_p) /
    // n_vocab.
    double depth = o->min_p > 0 ? fmin(-log((double)o->min_p), (double)deepest) : (double)deepest,
           total = 0;
    if (o->top_k <= 0 && o->min_p <= 0) {
        total = weigh(logits, s->n_vocab, best, inv_temp);
        if (o->top_p >= 1) return draw_any(s, logits, best, total);
        depth = fmin(depth, 0.01 - log((1 - (double)o->top_p) * total / s->n_vocab));
    }
    int n = collect(s, logits, (float)fmax((double)best - depth * (double)o->temp, -3e38));
    double kept = 0;
    for (int i = 0; i < n; i++) {
        float weight = exp_minus((best - key_value(s->keys[i])) * inv_temp);
        s->keys[i] = key_of(weight, key_id(s->keys[i]));
        kept += (double)weight;
    }
    if (o->top_p < 1 && n > 1) {
        n = keep_best(s, n, fmax((double)o->top_p * fmax(total, kept), 1e-30), false);
        kept = 0;
        for (int i = 0; i < n; i++) kept += (double)key_value(s->keys[i]);
    }
    double r = draw(s) * kept;
    int i = 0;
    while (i < n - 1 && (r -= (double)key_value(s->keys[i])) >= 0) i++;
    return key_id(s->keys[i]);
}
