// Sampling: frequencies of drawn tokens against a reference in double precision that sorts the
// whole vocabulary; limits, penalties, seeds, log-probabilities.
#include "tests/make_gguf.h"
#include "tests/test.h"
#include "generate/sample.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 1000 };

static const SampleOptions plain = {
    .temp = 1, .top_p = 1, .repeat_penalty = 1, .repeat_last_n = 64, .seed = 1};

static void fill(float *logits, int n, uint64_t seed) {
    for (int i = 0; i < n; i++) logits[i] = 3 * test_normal(&seed);
}

static int sample_one(SampleOptions o, const float *logits, int n) {
    Sampler *s = sampler_new(&o, n);
    int id = sampler_next(s, logits, NULL, 0);
    sampler_free(s);
    return id;
}

// A token of the reference.
typedef struct {
    int id;
    double logit;
} Candidate;

static int compare_candidates(const void *a, const void *b) {
    const Candidate *x = a, *y = b;
    if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
    return x->id - y->id;
}

// The number of the first m candidates, best first, that a truncation keeps.
static int truncate_reference(const SampleOptions *o, SamplerKind kind, const Candidate *c, int m) {
    int n = 0;
    double total = 0, sum = 0;
    for (int i = 0; i < m; i++) total += exp(c[i].logit - c[0].logit);

    for (; n < m; n++) {
        double w = exp(c[n].logit - c[0].logit);
        if (kind == SAMPLER_TOP_K && o->top_k > 0 && n == o->top_k) break;
        if (kind == SAMPLER_MIN_P && w < (double)o->min_p) break;
        if (kind == SAMPLER_TOP_P && o->top_p < 1 && sum >= (double)o->top_p * total) break;
        sum += w;
    }
    return n;
}

// The logit of a token after penalties.
static double penalize(const SampleOptions *o, Candidate c, const int *recent, int n_recent) {
    int count = 0;
    for (int i = n_recent > o->repeat_last_n ? n_recent - o->repeat_last_n : 0; i < n_recent; i++)
        count += recent[i] == c.id;
    if (!count) return c.logit;
    c.logit *= c.logit > 0 ? 1 / (double)o->repeat_penalty : (double)o->repeat_penalty;
    return c.logit - (double)o->presence_penalty - (double)o->frequency_penalty * count;
}

// Reference: the probabilities p (n) of all tokens under the options.
static void reference(const SampleOptions *o, const float *logits, int n, const int *recent,
                      int n_recent, double *p) {
    Candidate *c = xalloc((size_t)n, sizeof *c);
    float *penalties = xalloc((size_t)n, sizeof *penalties); // of DRY, negative
    int *lengths = xalloc((size_t)n, sizeof *lengths);
    SamplerOrder order = samplers_resolve(&o->order);
    double sum = 0;
    int m = n; // candidates left
    if (dry_is_on(&o->dry)) dry_apply(&o->dry, recent, n_recent, lengths, penalties);
    for (int i = 0; i < n; i++) c[i] = (Candidate){i, (double)logits[i]};

    for (int k = 0; k < order.n; k++) {
        for (int i = 0; i < m; i++) {
            if (order.at[k] == SAMPLER_PENALTIES) c[i].logit = penalize(o, c[i], recent, n_recent);
            if (order.at[k] == SAMPLER_DRY) c[i].logit += (double)penalties[c[i].id];
            if (order.at[k] == SAMPLER_TEMPERATURE) c[i].logit /= (double)o->temp;
        }
        qsort(c, (size_t)m, sizeof *c, compare_candidates);
        m = truncate_reference(o, order.at[k], c, m);
    }

    for (int i = 0; i < m; i++) sum += exp(c[i].logit - c[0].logit);
    for (int i = 0; i < n; i++) p[i] = 0;
    for (int i = 0; i < m; i++) p[c[i].id] = exp(c[i].logit - c[0].logit) / sum;
    free(c);
    free(penalties);
    free(lengths);
}

// Pearson's chi-squared statistic over the tokens with an expected count of at least 5 (all others
// count as one token) is within 4 standard deviations of its mean. Seeds are fixed, so the result
// never changes.
static void check_distribution(SampleOptions o, const float *logits, int n, const char *what) {
    enum { DRAWS = 20000 };
    double *p = xalloc((size_t)n, sizeof *p);
    int *counts = xalloc((size_t)n, sizeof *counts);
    double chi = 0, rest = 0;
    int n_rest = 0, bins = 0;

    reference(&o, logits, n, NULL, 0, p);
    Sampler *s = sampler_new(&o, n);

    for (int i = 0; i < DRAWS; i++) {
        int id = sampler_next(s, logits, NULL, 0);
        CHECK(id >= 0 && id < n && p[id] > 0, "%s: drew %d", what, id);
        if (id >= 0) counts[id]++;
    }

    for (int i = 0; i < n; i++) {
        double e = p[i] * DRAWS;
        if (e >= 5) {
            chi += (counts[i] - e) * (counts[i] - e) / e;
            bins++;
        } else {
            rest += e;
            n_rest += counts[i];
        }
    }
    if (rest >= 5) {
        chi += (n_rest - rest) * (n_rest - rest) / rest;
        bins++;
    }

    CHECK(bins < 2 || fabs(chi - (bins - 1)) < 4 * sqrt(2.0 * (bins - 1)),
          "%s: chi-square %g with %d bins", what, chi, bins);

    sampler_free(s);
    free(p);
    free(counts);
}

static void distribution(void) {
    float logits[N];
    fill(logits, N, 3);

    SampleOptions o = plain;
    check_distribution(o, logits, N, "plain");
    check_distribution(o, logits, 3, "three tokens");

    o.temp = 0.7f;
    check_distribution(o, logits, N, "temp 0.7");

    o.top_p = 0.9f;
    check_distribution(o, logits, N, "temp, top-p");

    o.top_k = 40;
    check_distribution(o, logits, N, "temp, top-k, top-p");

    o.min_p = 0.05f;
    check_distribution(o, logits, N, "temp, top-k, top-p, min-p");

    o.top_k = 0;
    o.top_p = 1;
    check_distribution(o, logits, N, "temp, min-p");

    o = plain;
    o.top_k = 7;
    check_distribution(o, logits, N, "top-k 7");

    for (int i = 0; i < N; i++) logits[i] = (float)(i / 125); // ascending, 125 tokens of each value
    o.top_k = 300;
    check_distribution(o, logits, N, "ties");
}

// Top-k draws only what the reference allows: many sizes, heavy ties, ascending order.
static void selection(void) {
    static float logits[5000];
    uint64_t seed = 9;

    for (int trial = 0; trial < 150; trial++) {
        int n = 1 + (int)(test_random(&seed) % (trial < 148 ? 300 : 5000));

        // Normal, few different values, ascending.
        for (int i = 0; i < n; i++) {
            if (trial % 3 == 0)
                logits[i] = test_normal(&seed);
            else if (trial % 3 == 1)
                logits[i] = (float)(test_random(&seed) % 5);
            else
                logits[i] = (float)i / 64;
        }

        SampleOptions o = plain;
        o.top_k = 1 + (int)(test_random(&seed) % (uint64_t)n);
        o.seed = (uint64_t)trial;

        double *p = xalloc((size_t)n, sizeof *p);
        reference(&o, logits, n, NULL, 0, p);

        Sampler *s = sampler_new(&o, n);
        for (int i = 0; i < 50; i++) {
            int id = sampler_next(s, logits, NULL, 0);
            CHECK(id >= 0 && p[id] > 0, "n %d, top-k %d: drew %d", n, o.top_k, id);
        }

        sampler_free(s);
        free(p);
    }
}

// The first outputs of SplitMix64 for the seed 1234567 (rosettacode.org), as drawn from 2^12 equal
// logits.
static void random_numbers(void) {
    static const uint64_t outputs[] = {6457827717110365317u, 3203168211198807973u,
                                       9817491932198370423u, 4593380528125082431u,
                                       16408922859458223821u};
    static const float logits[1 << 12];
    SampleOptions o = plain;
    o.temp = 1;
    o.seed = 1234567;

    Sampler *s = sampler_new(&o, 1 << 12);
    for (int i = 0; i < 5; i++) {
        int id = sampler_next(s, logits, NULL, 0);
        CHECK(id == (int)(outputs[i] >> 52), "draw %d: %d", i, id);
    }
    sampler_free(s);
}

static void limits(void) {
    float logits[N];
    SampleOptions o = plain, greedy = plain;
    greedy.temp = 0;
    fill(logits, N, 5);

    int best = logits_argmax(logits, N);
    CHECK(sample_one(greedy, logits, N) == best, "greedy");

    // Options with which only the best token can be drawn.
    o.temp = 1e-9f;
    CHECK(sample_one(o, logits, N) == best, "tiny temp");
    o = plain;
    o.top_p = 1e-9f;
    CHECK(sample_one(o, logits, N) == best, "tiny top-p");
    o.top_p = 0;
    CHECK(sample_one(o, logits, N) == best, "top-p 0");
    o = plain;
    o.top_k = 1;
    CHECK(sample_one(o, logits, N) == best, "top-k 1");
    o = plain;
    o.min_p = 1;
    CHECK(sample_one(o, logits, N) == best, "min-p 1");

    // Logits that leave one token or none.
    o = plain;
    o.temp = 1e38f;
    for (int i = 0; i < N; i++) logits[i] = i == 77 ? 0 : -INFINITY;
    CHECK(sample_one(o, logits, N) == 77, "one token left at a huge temp");
    logits[77] = -INFINITY;
    CHECK(sample_one(o, logits, N) == -1 && sample_one(greedy, logits, N) == -1, "all banned");

    // A logit that is NaN or infinite.
    for (int where = 0; where < N; where += 131) {
        fill(logits, N, 6);
        logits[where] = NAN;
        CHECK(sample_one(plain, logits, N) == -1 && sample_one(greedy, logits, N) == -1 &&
                  logits_argmax(logits, N) == -1,
              "NaN at %d", where);
        logits[where] = INFINITY;
        CHECK(sample_one(plain, logits, N) == -1 && sample_one(greedy, logits, N) == -1,
              "Inf at %d", where);
    }

    // Ties.
    for (int i = 0; i < N; i++) logits[i] = i % 100 == 99 ? 2 : 1;
    CHECK(logits_argmax(logits, N) == 99 && sample_one(greedy, logits, N) == 99,
          "not the lowest id of equal logits");
}

// Samples twice with the same recent tokens: penalties must not accumulate.
static int sample_after(SampleOptions o, const float *logits, int n, const int *recent,
                        int n_recent) {
    Sampler *s = sampler_new(&o, n);
    int id = sampler_next(s, logits, recent, n_recent);
    CHECK(sampler_next(s, logits, recent, n_recent) == id, "penalties accumulate");
    sampler_free(s);
    return id;
}

static void penalties(void) {
    const float logits[5] = {3, 2.8f, -1, 2.5f, -2};
    const int recent[6] = {0, 0, 0, 1, 4, 4};
    SampleOptions o = plain;

    o.temp = 0;
    CHECK(sample_after(o, logits, 5, recent, 6) == 0, "none");

    // The comments give the penalized logits of tokens 0 and 1.
    o.repeat_penalty = 1.1f; // 0: 2.73, 1: 2.55
    CHECK(sample_after(o, logits, 5, recent, 6) == 0, "repeat 1.1");
    o.repeat_penalty = 1.3f; // 0: 2.3, 1: 2.15
    CHECK(sample_after(o, logits, 5, recent, 6) == 3, "repeat 1.3");
    o.repeat_last_n = 3; // 1 and 4 only
    CHECK(sample_after(o, logits, 5, recent, 6) == 0, "window");
    o.repeat_last_n = 4; // and 0
    CHECK(sample_after(o, logits, 5, recent, 6) == 3, "a larger window");
    o.repeat_last_n = 0;
    CHECK(sample_after(o, logits, 5, recent, 6) == 0, "window 0");

    // A logit is divided if it is positive, also below 1.
    const float small[2] = {0.9f, 0.8f};
    o.repeat_last_n = 64;
    CHECK(sample_after(o, small, 2, recent, 1) == 1, "a small logit");

    o = plain;
    o.temp = 0;
    o.repeat_last_n = -1;
    o.frequency_penalty = 0.15f; // 0: 2.55, 1: 2.65
    CHECK(sample_after(o, logits, 5, recent, 6) == 1, "frequency");
    o.frequency_penalty = 0;
    o.presence_penalty = 0.15f; // 0: 2.85, 1: 2.65
    CHECK(sample_after(o, logits, 5, recent, 6) == 0, "presence");
    o.presence_penalty = 0.6f; // 0: 2.4, 1: 2.2
    CHECK(sample_after(o, logits, 5, recent, 6) == 3, "presence 0.6");

    LogitBias bias[2] = {{0, -INFINITY}, {2, 4}};
    o = plain;
    o.temp = 0;
    o.bias = bias;
    o.n_bias = 2;
    CHECK(sample_after(o, logits, 5, recent, 6) == 2, "bias");
    o.temp = 1;
    o.n_bias = 1;
    o.top_k = 1;
    CHECK(sample_after(o, logits, 5, recent, 6) == 1, "ban");
}

// DRY by its definition in quadratic time: the penalties (n_vocab) of the tokens (n).
static void dry_reference(const DryOptions *o, const int *tokens, int n, int n_vocab, double *out) {
    static const Str defaults[] = {{"\n", 1}, {":", 1}, {"\"", 1}, {"*", 1}};
    const Str *breakers = o->n_breakers ? o->breakers : defaults;
    int first = o->last_n >= 0 && o->last_n < n ? n - o->last_n : 0;
    int limit = n - first;
    int n_breakers = o->n_breakers ? o->n_breakers : 4;
    Buffer text = {0};
    for (int i = 0; i < n_vocab; i++) out[i] = 0;

    // The limit is the number of tokens after the one that completes a breaker.
    buffer_puts(&text, "");
    for (int i = first; i < n; i++) {
        size_t before = text.len;
        buffer_put(&text, tokenizer_piece(o->tokenizer, tokens[i], true));
        for (int k = 0; k < n_breakers; k++)
            for (size_t end = before + 1; end <= text.len; end++)
                if (end >= breakers[k].len && breakers[k].len &&
                    !memcmp(text.data + end - breakers[k].len, breakers[k].data, breakers[k].len))
                    limit = n - 1 - i;
    }

    // tokens[i] continued a repetition if the `length` tokens before it equal the last ones.
    for (int i = first + 1; i < n; i++) {
        int length = 0;
        while (length < limit && length < i - first &&
               tokens[i - 1 - length] == tokens[n - 1 - length])
            length++;

        Str piece = tokenizer_piece(o->tokenizer, tokens[i], true);
        bool is_breaker = false;
        for (int k = 0; k < n_breakers; k++) is_breaker |= str_find(piece, breakers[k]) != SIZE_MAX;
        int exponent = length - o->allowed_length;
        int most = (int)(88.7228391 / log((double)o->base)); // the power stays below FLT_MAX
        if (exponent < 0 || is_breaker) continue;
        double x = (double)o->multiplier * pow((double)o->base, exponent < most ? exponent : most);
        out[tokens[i]] = fmax(out[tokens[i]], x);
    }

    buffer_free(&text);
}

static Tokenizer *open_vocabulary(Gguf *g, Buffer *file) {
    Error err;
    *file = make_llama_file((MakeLlama){.is_vocabulary_only = true});
    Tokenizer *t =
        gguf_parse(g, file->data, file->len, "sample", &err) ? tokenizer_open(g, &err) : NULL;
    CHECK(t, "%s", err.text);
    return t;
}

// Histories of few tokens with copies of earlier parts. Breakers are cut out of the text, so that
// many begin and end within tokens.
static void dry(void) {
    enum { MOST = 300 };
    Gguf g;
    Buffer file;
    Tokenizer *t = open_vocabulary(&g, &file);
    if (!t) return;

    int n_vocab = tokenizer_n_vocab(t);
    int n_penalties = 0;
    float *logits = xalloc((size_t)n_vocab, sizeof *logits);
    double *expected = xalloc((size_t)n_vocab, sizeof *expected);
    int *lengths = xalloc((size_t)n_vocab, sizeof *lengths), tokens[MOST];
    uint64_t seed = 5;
    Buffer text = {0};

    for (int trial = 0; trial < 1000; trial++) {
        // Random tokens of a few kinds, in part copied from `back` positions earlier.
        int n = 1 + (int)(test_random(&seed) % MOST);
        int n_kinds = 1 + (int)(test_random(&seed) % 8);
        text.len = 0;
        for (int i = 0, back = 1; i < n; i++) {
            if (test_random(&seed) % 8 == 0) back = 1 + (int)(test_random(&seed) % 40);
            bool is_copy = back <= i && test_random(&seed) % 16;
            int kind = (int)(test_random(&seed) % (uint64_t)n_kinds);
            tokens[i] = is_copy ? tokens[i - back] : 250 + kind;
        }
        for (int i = 0; i < n; i++) buffer_put(&text, tokenizer_piece(t, tokens[i], true));

        // Random options, with breakers that are parts of the text.
        Str breakers[3];
        DryOptions o = {.base = trial % 3 ? 1.75f : 3, .tokenizer = t, .breakers = breakers};
        o.multiplier = 0.8f;
        o.allowed_length = (int)(test_random(&seed) % 4);
        o.last_n = trial % 5 ? -1 : 64;
        o.n_breakers = (int)(test_random(&seed) % 4);
        for (int i = 0; i < o.n_breakers; i++) {
            size_t at = test_random(&seed) % text.len;
            size_t len = 1 + test_random(&seed) % 9;
            breakers[i] = (Str){text.data + at, len < text.len - at ? len : text.len - at};
        }

        dry_reference(&o, tokens, n, n_vocab, expected);
        for (int i = 0; i < n_vocab; i++) logits[i] = 0;
        dry_apply(&o, tokens, n, lengths, logits);
        for (int i = 0; i < n_vocab; i++) {
            double x = -(double)logits[i];
            n_penalties += x > 0;
            CHECK(fabs(x - expected[i]) <= 1e-6 * fmax(1, expected[i]) && !lengths[i],
                  "history %d, token %d: %g, expected %g", trial, i, x, expected[i]);
        }
    }

    CHECK(n_penalties > 1000, "only %d penalties", n_penalties);

    tokenizer_close(t);
    gguf_close(&g);
    buffer_free(&file);
    buffer_free(&text);
    free(logits);
    free(expected);
    free(lengths);
}

// Random orders of some or all samplers, with random values and repeated tokens.
static void orders(void) {
    enum { DRAWS = 2000, TOKENS = 80, RECENT = 12 };
    Gguf g;
    Buffer file;
    Tokenizer *t = open_vocabulary(&g, &file);
    uint64_t seed = 21;
    if (!t) return;

    for (int trial = 0; trial < 300; trial++) {
        // Values: each sampler is off in a quarter of the trials.
        SampleOptions o = {.repeat_penalty = 1, .temp = 1, .top_p = 1, .seed = (uint64_t)trial};
        bool is_on[N_SAMPLERS];
        for (int k = 0; k < N_SAMPLERS; k++) is_on[k] = test_random(&seed) % 4;
        if (is_on[SAMPLER_PENALTIES]) o.repeat_last_n = RECENT / 2;
        o.repeat_penalty = 1.5f;
        o.presence_penalty = 0.5f;
        o.frequency_penalty = 0.25f;
        o.dry = (DryOptions){.base = 1.75f, .allowed_length = 1, .last_n = -1, .tokenizer = t};
        if (is_on[SAMPLER_DRY]) o.dry.multiplier = 2;
        if (is_on[SAMPLER_TEMPERATURE]) o.temp = trial % 2 ? 2.5f : 0.6f;
        if (is_on[SAMPLER_TOP_K]) o.top_k = 3 + (int)(test_random(&seed) % 20);
        if (is_on[SAMPLER_MIN_P]) o.min_p = 0.02f * (float)(1 + test_random(&seed) % 10);
        if (is_on[SAMPLER_TOP_P]) o.top_p = 0.7f + 0.025f * (float)(test_random(&seed) % 10);

        // A shuffled order, of which a part may be left out.
        o.order = samplers_resolve(&o.order);
        for (int k = N_SAMPLERS - 1; k > 0; k--) {
            int other = (int)(test_random(&seed) % (uint64_t)(k + 1));
            SamplerKind kind = o.order.at[k];
            o.order.at[k] = o.order.at[other];
            o.order.at[other] = kind;
        }
        if (trial % 3 == 0) o.order.n = 1 + (int)(test_random(&seed) % N_SAMPLERS);

        // The likely tokens are repeated.
        float logits[TOKENS];
        int recent[RECENT], counts[TOKENS] = {0};
        fill(logits, TOKENS, (uint64_t)trial);
        for (int i = 0; i < RECENT; i++) recent[i] = (int)(test_random(&seed) % TOKENS);
        for (int i = 0; i < RECENT; i += 2)
            recent[i] = recent[RECENT - 1 - i] = logits_argmax(logits, TOKENS);

        double p[TOKENS];
        reference(&o, logits, TOKENS, recent, RECENT, p);
        Sampler *s = sampler_new(&o, TOKENS);
        for (int i = 0; i < DRAWS; i++) counts[sampler_next(s, logits, recent, RECENT)]++;
        for (int i = 0; i < TOKENS; i++) {
            double e = p[i] * DRAWS;
            CHECK(p[i] > 0 ? fabs(counts[i] - e) < 5 * sqrt(e * (1 - p[i])) + 1 : !counts[i],
                  "trial %d, token %d: %d draws, expected %g", trial, i, counts[i], e);
        }

        // Greedy decoding: the best token after the samplers before the temperature.
        o.temp = 0;
        Sampler *greedy = sampler_new(&o, TOKENS);
        int n_before = 0;
        while (n_before < o.order.n && o.order.at[n_before] != SAMPLER_TEMPERATURE) n_before++;
        if (n_before > 0 && n_before < o.order.n) {
            o.order.n = n_before;
            reference(&o, logits, TOKENS, recent, RECENT, p);
            int best = 0;
            for (int i = 0; i < TOKENS; i++) best = p[i] > p[best] ? i : best;
            int id = sampler_next(greedy, logits, recent, RECENT);
            CHECK(id == best, "trial %d: greedy %d, expected %d", trial, id, best);
        }
        sampler_free(greedy);
        sampler_free(s);
    }

    tokenizer_close(t);
    gguf_close(&g);
    buffer_free(&file);
}

// What is read as an order, and what is refused.
static void order_names(void) {
    static const char *const same[] = {"penalties;dry;top_k;top_p;min_p;temperature",
                                       "penalties,dry,top-k,nucleus,min-p,temp"};
    static const char *const refused[] = {
        "",      "top_k;",      "top_k;;min_p", "top_k;top_k", "top_k;xtc",
        "TOP_K", "top_k min_p", "typ_p",        "top_n_sigma", "temp;temperature"};
    static const SamplerKind expected[] = {SAMPLER_PENALTIES, SAMPLER_DRY,   SAMPLER_TOP_K,
                                           SAMPLER_TOP_P,     SAMPLER_MIN_P, SAMPLER_TEMPERATURE};
    SamplerOrder order;
    Error err;

    for (int i = 0; i < 2; i++) {
        bool ok = samplers_parse(&order, str_of(same[i]), &err);
        CHECK(ok && order.n == N_SAMPLERS && !memcmp(order.at, expected, sizeof expected), "%s",
              same[i]);
    }
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        CHECK(!samplers_parse(&order, str_of(refused[i]), &err), "\"%s\"", refused[i]);
}

static void seeds(void) {
    float logits[N];
    fill(logits, N, 8);
    SampleOptions o = plain, other = plain;
    other.seed = 2;
    Sampler *a = sampler_new(&o, N);
    Sampler *b = sampler_new(&o, N);
    Sampler *c = sampler_new(&other, N);
    int differ = 0;

    for (int i = 0; i < 200; i++) {
        int id = sampler_next(a, logits, NULL, 0);
        CHECK(sampler_next(b, logits, NULL, 0) == id, "draw %d", i);
        differ += sampler_next(c, logits, NULL, 0) != id;
    }

    CHECK(differ > 150, "%d of 200 differ with another seed", differ);
    sampler_free(a);
    sampler_free(b);
    sampler_free(c);
}

static void logprobs(void) {
    float logits[N];
    fill(logits, N, 11);

    double sum = 0;
    for (int i = 0; i < N; i++) sum += exp((double)logits[i]);
    for (int i = 0; i < N; i += 7) {
        double exact = (double)logits[i] - log(sum);
        CHECK(fabs((double)logits_logprob(logits, N, i) - exact) < 2e-6, "%d: %.9g", i, exact);
    }

    // The most probable tokens: in order, equal ones by id, -1 where there are no more.
    Alternative top[8];
    logits[5] = 40;
    logits[750] = 40;
    logits_top(logits, N, top, 8);
    CHECK(top[0].id == 5 && top[1].id == 750, "%d %d", top[0].id, top[1].id);
    CHECK(fabs((double)top[0].logprob - log(0.5)) < 1e-5, "%g", (double)top[0].logprob);
    for (int i = 1; i < 8; i++)
        CHECK(top[i].logprob <= top[i - 1].logprob && top[i].id >= 0, "order at %d", i);
    int n_better = 0;
    for (int i = 0; i < N; i++) n_better += top[7].id >= 0 && logits[i] > logits[top[7].id];
    CHECK(n_better == 7, "%d tokens above the eighth", n_better);
    logits_top(logits, 2, top, 8);
    CHECK(top[1].id >= 0 && top[2].id == -1, "more alternatives than tokens");
}

void test_sample(void) {
    test_case("sample: drawn tokens have the probabilities of the reference", distribution);
    test_case("sample: top-k selects like a full sort", selection);
    test_case("sample: limits of the options, NaN and infinity", limits);
    test_case("sample: penalties and bias", penalties);
    test_case("sample: random orders of the samplers", orders);
    test_case("sample: names of an order", order_names);
    test_case("sample: DRY equals its definition on random histories with breakers", dry);
    test_case("sample: a seed determines the draws", seeds);
    test_case("sample: the numbers of SplitMix64", random_numbers);
    test_case("sample: log-probabilities", logprobs);
}
