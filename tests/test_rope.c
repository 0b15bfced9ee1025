// Rotary embedding: the tables of Meta's code, the formula of each scaling rule in double,
// rotation, and metadata.
#include "tests/make_gguf.h"
#include "tests/test.h"
#include "rope.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static RopeParams params(RopeRule rule, int dim, double theta, double factor, int orig_ctx) {
    return (RopeParams){.dim = dim,
                        .rule = rule,
                        .theta = theta,
                        .factor = factor,
                        .low_freq_factor = 1,
                        .high_freq_factor = 4,
                        .yarn = {.beta_fast = 32, .beta_slow = 1, .magnitude = 1},
                        .orig_ctx = orig_ctx};
}

// Distance of two floats in units in the last place.
static int64_t ulps(float a, float b) {
    int32_t x, y;
    memcpy(&x, &a, 4);
    memcpy(&y, &b, 4);
    int64_t p = x < 0 ? -(int64_t)(x & INT32_MAX) : x;
    int64_t q = y < 0 ? -(int64_t)(y & INT32_MAX) : y;
    return llabs(p - q);
}

// Compares a table with tests/golden/rope/NAME.csv, computed by the reference.
static void compare(const char *name, RopeParams p) {
    char path[256], line[128];

    snprintf(path, sizeof path, "tests/golden/rope/%s.csv", name);
    FILE *f = fopen(path, "r");
    CHECK(f, "%s", path);
    if (!f) return;

    Rope rope;
    rope_init(&rope, &p);

    int n = 0, pos, i;
    float c, s;
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "%d,%d,%f,%f", &pos, &i, &c, &s) != 4) continue;
        rope_reserve(&rope, pos + 1); // grows in steps, as during decoding
        size_t at = (size_t)pos * (size_t)(p.dim / 2) + (size_t)i;
        CHECK(ulps(rope.cos[at], c) <= 1 && ulps(rope.sin[at], s) <= 1,
              "%s: position %d, pair %d: %.9g %.9g", name, pos, i, (double)rope.cos[at],
              (double)rope.sin[at]);
        n++;
    }

    CHECK(n > 5, "%s: %d rows", name, n);
    fclose(f);
    rope_free(&rope);
}

static void golden(void) {
    compare("llama2-dim128-theta1e4", params(ROPE_NONE, 128, 1e4, 1, 4096));
    compare("llama3-dim128-theta5e5", params(ROPE_NONE, 128, 5e5, 1, 8192));
    compare("llama31-dim128-theta5e5-scaled", params(ROPE_LLAMA3, 128, 5e5, 8, 8192));
    compare("llama32-dim64-theta5e5-scaled8", params(ROPE_LLAMA3, 64, 5e5, 8, 8192));
    compare("seed-dim4-end3-theta1e4", params(ROPE_NONE, 4, 1e4, 1, 4096));
}

// Frequencies that other code computed in double from the published formulas.
static void formulas(void) {
    static const int pairs[10] = {0, 1, 20, 29, 30, 32, 36, 40, 45, 63};
    static const double expected[][10] = {
        [ROPE_NONE] = {1, 0.865964323, 0.0562341325, 0.0153992653, 0.0133352143, 0.01,
                       0.00562341325, 0.00316227766, 0.00153992653, 0.000115478198},
        [ROPE_LINEAR] = {0.25, 0.216491081, 0.0140585331, 0.00384981632, 0.00333380358, 0.0025,
                         0.00140585331, 0.000790569415, 0.000384981632, 2.88695496e-05},
        [ROPE_NTK] = {1, 0.847117185, 0.0362134452, 0.00813506962, 0.00689135728, 0.00494528984,
                      0.00254662923, 0.00131141361, 0.000572080506, 2.88695496e-05},
        [ROPE_DYNAMIC] = {1, 0.840077812, 0.0306471634, 0.00638654405, 0.00536519395, 0.00378638224,
                          0.00188582988, 0.000939248626, 0.00039298696,
                          1.70659078e-05}, // for a context of 10001
        [ROPE_YARN] = {1, 0.865964323, 0.0562341325, 0.0114013791, 0.00948851788, 0.00653846154,
                       0.00302799175, 0.0013378867, 0.000429402589, 2.88695496e-05},
        [ROPE_LLAMA3] = {1, 0.814617234, 0.0165604401, 0.00216657076, 0.00137189357, 0.000524846161,
                         7.78465527e-05, 3.4281022e-05, 1.22976387e-05, 3.06892599e-07},
    };

    for (int rule = ROPE_NONE; rule <= ROPE_LLAMA3; rule++) {
        RopeParams p = params((RopeRule)rule, 128, 1e4, 4, 4096);
        if (rule == ROPE_LLAMA3) {
            p.theta = 5e5;
            p.factor = 8;
            p.orig_ctx = 8192;
        }

        double scale = rule == ROPE_YARN ? 1.138629436111989 : 1; // 0.1 ln 4 + 1

        Rope rope;
        rope_init(&rope, &p);
        rope_reserve(&rope, 10001);

        for (int k = 0; k < 10; k++) {
            double w = expected[rule][k];
            double freq = (double)rope.freqs[pairs[k]];
            if (rule != ROPE_DYNAMIC)
                CHECK(fabs(freq - w) <= 4e-7 * w, "%s, pair %d: %.9g", rope_rule_name(p.rule),
                      pairs[k], freq);

            // The rotation at position 10000, in a table of 64 pairs per position.
            size_t at = 10000 * 64 + (size_t)pairs[k];
            CHECK(fabs((double)rope.cos[at] - scale * cos(1e4 * w)) < 2e-3, "%s, pair %d",
                  rope_rule_name(p.rule), pairs[k]);
            CHECK(fabs((double)rope.sin[at] - scale * sin(1e4 * w)) < 2e-3, "%s, pair %d",
                  rope_rule_name(p.rule), pairs[k]);
        }

        CHECK(rope_rule_from_name(str_of(rope_rule_name(p.rule))) == rule, "%d", rule);
        rope_free(&rope);
    }

    // The file's attention factor replaces the one of the formula.
    RopeParams p = params(ROPE_YARN, 128, 1e4, 4, 4096);
    p.yarn.attn_factor = 1.5;
    Rope rope;
    rope_init(&rope, &p);
    rope_reserve(&rope, 1);
    CHECK(rope.cos[0] == 1.5f, "%g", (double)rope.cos[0]);
    rope_free(&rope);
}

// The dot product of q at position m and k at position n depends only on m - n. Up to position
// 100,000 the error is 1e-4 of |q| |k| (root mean square; worst 5e-4), because angles are rounded
// to float32 as in the reference: by up to 0.004 radians. Up to position 10,000 the worst is 1e-4.
static void relative(void) {
    enum { DIM = 128, DISTANCE = 37 };
    uint64_t seed = 7;
    RopeParams p = params(ROPE_LLAMA3, DIM, 5e5, 8, 8192);
    Rope rope;

    rope_init(&rope, &p);
    rope_reserve(&rope, 100001);
    double squares = 0;
    int n = 0;

    // Two heads of q and k. The lengths are those of the second head.
    for (int trial = 0; trial < 100; trial++) {
        float q[2 * DIM], k[2 * DIM];
        double first = 0, qq = 0, kk = 0;

        for (int i = 0; i < 2 * DIM; i++) {
            q[i] = test_normal(&seed);
            k[i] = test_normal(&seed);
        }
        for (int i = DIM; i < 2 * DIM; i++) {
            qq += (double)q[i] * (double)q[i];
            kk += (double)k[i] * (double)k[i];
        }

        for (int pos = 0; pos + DISTANCE <= 100000; pos += pos < 10000 ? 1111 : 9997) {
            float a[2 * DIM], b[2 * DIM];
            memcpy(a, q, sizeof a);
            memcpy(b, k, sizeof b);
            rope_apply(&rope, a, 2, DIM, pos + DISTANCE);
            rope_apply(&rope, b, 2, DIM, pos);

            double dot = 0;
            for (int i = DIM; i < 2 * DIM; i++)
                dot += (double)a[i] * (double)b[i]; // the second head
            if (pos == 0) first = dot;

            double error = fabs(dot - first) / sqrt(qq * kk);
            CHECK(error <= (pos < 10000 ? 1e-4 : 5e-4), "position %d: %g, at 0 %g", pos, dot,
                  first);
            squares += error * error;
            n++;
        }
    }

    CHECK(sqrt(squares / n) <= 1e-4, "%g", sqrt(squares / n));
    rope_free(&rope);
}

// Only the first `dim` values of a head are rotated, each pair by its own angle.
static void partial(void) {
    RopeParams p = params(ROPE_NONE, 4, 1e4, 1, 4096);
    Rope rope;
    rope_init(&rope, &p);
    rope_reserve(&rope, 3);
    float v[6] = {1, 0, 0, 1, 5, 6};
    rope_apply(&rope, v, 1, 6, 2);
    CHECK(fabs((double)v[0] - cos(2)) < 1e-6 && fabs((double)v[1] - sin(2)) < 1e-6, "%g %g",
          (double)v[0], (double)v[1]);
    CHECK(fabs((double)v[2] + sin(.02)) < 1e-6 && fabs((double)v[3] - cos(.02)) < 1e-6, "%g %g",
          (double)v[2], (double)v[3]);
    CHECK(v[4] == 5 && v[5] == 6, "%g %g", (double)v[4], (double)v[5]);
    rope_free(&rope);
}

// Reads the parameters of a file that has these metadata values and, unless n_divisors is 0, the
// tensor rope_freqs.weight.
static bool read_back(const Maker *values, const float *divisors, uint64_t n_divisors,
                      RopeParams *p, Error *err) {
    Maker m;

    make_begin(&m);
    make_string(&m, "general.architecture", "llama");
    buffer_append(&m.values, values->values.data, values->values.len);
    m.n_values += values->n_values;
    if (n_divisors)
        make_tensor(&m, "rope_freqs.weight", TYPE_F32, n_divisors, 1, divisors, n_divisors * 4);

    Buffer file = make_end(&m);
    static Buffer last; // keeps the bytes of the file, into which the divisors point
    buffer_free(&last);
    last = file;

    Gguf g;
    if (!gguf_parse(&g, file.data, file.len, "test.gguf", err)) return false;
    Family family;
    bool ok = family_read(&family, &g, false, err) && rope_params_read(p, &g, &family, 128, err);
    gguf_close(&g);
    return ok;
}

static void metadata(void) {
    Maker f;
    make_begin(&f);
    RopeParams p;
    Error err;

    make_f32(&f, "llama.rope.freq_base", 5e5f);
    make_u32(&f, "llama.context_length", 131072);
    CHECK(read_back(&f, NULL, 0, &p, &err) && p.rule == ROPE_NONE && p.theta == 5e5 && p.dim == 128,
          "%s", err.text);

    // The divisors of Llama 3.1 are recognized as its rule. Others remain divisors, with the same
    // frequencies up to rounding.
    RopeParams release = params(ROPE_LLAMA3, 128, 5e5, 8, 8192);
    Rope rope, by_file;
    rope_init(&rope, &release);
    float divisors[64];
    for (int i = 0; i < 64; i++) divisors[i] = (float)pow(5e5, -i / 64.0) / rope.freqs[i];
    CHECK(read_back(&f, divisors, 64, &p, &err) && p.rule == ROPE_LLAMA3 && p.factor == 8 &&
              p.orig_ctx == 8192,
          "%s", err.text);
    divisors[40] *= 1.25f;
    CHECK(read_back(&f, divisors, 64, &p, &err) && p.rule == ROPE_FILE, "%s", err.text);
    rope_init(&by_file, &p);
    for (int i = 0; i < 64; i++) {
        double expected = (double)rope.freqs[i] / (i == 40 ? 1.25 : 1);
        CHECK(fabs((double)by_file.freqs[i] - expected) <= 4e-7 * expected, "pair %d", i);
    }
    rope_free(&rope);
    rope_free(&by_file);

    CHECK(!read_back(&f, divisors, 63, &p, &err) && err.code == EXIT_MODEL &&
              strstr(err.text, "rope_freqs"),
          "shape");
    static const float bad_divisors[] = {NAN, 0, -1, 1e-40f, 1e30f}; // 1e-40: infinite frequency
    for (int i = 0; i < 5; i++) {
        divisors[3] = bad_divisors[i];
        CHECK(!read_back(&f, divisors, 64, &p, &err) && strstr(err.text, "1e-9 to 1e9"),
              "divisor %g", (double)divisors[3]);
    }

    make_string(&f, "llama.rope.scaling.type", "yarn");
    make_f32(&f, "llama.rope.scaling.factor", 4);
    make_u32(&f, "llama.rope.scaling.original_context_length", 32768);
    CHECK(read_back(&f, NULL, 0, &p, &err) && p.rule == ROPE_YARN && p.factor == 4 &&
              p.orig_ctx == 32768,
          "%s", err.text);
    CHECK(rope_params_override(&p, "ntk", 1e6, 2, 0, &err) && p.rule == ROPE_NTK &&
              p.theta == 1e6 && p.factor == 2,
          "%s", err.text);
    CHECK(!rope_params_override(&p, "twist", 0, 0, 0, &err) && err.code == EXIT_USAGE,
          "unknown rule");
    CHECK(!rope_params_override(&p, "file", 0, 0, 0, &err) && err.code == EXIT_USAGE,
          "no divisors");

    static const struct {
        const char *key;
        float value;
    } bad[] = {{"llama.rope.freq_base", NAN},
               {"llama.rope.freq_base", 0},
               {"llama.rope.freq_base", -INFINITY},
               {"llama.rope.dimension_count", 63},
               {"llama.rope.dimension_count", 130},
               {"llama.rope.dimension_count", 0.5f},
               {"llama.rope.scaling.factor", 0},
               {"llama.rope.scaling.low_freq_factor", 4},
               {"llama.rope.scaling.original_context_length", 1e11f}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        Maker one;
        make_begin(&one);
        make_f32(&one, bad[i].key, bad[i].value);
        CHECK(!read_back(&one, NULL, 0, &p, &err) && err.code == EXIT_MODEL, "%s = %g", bad[i].key,
              (double)bad[i].value);
        buffer_free(&one.values);
    }
    buffer_free(&f.values);
}

void test_rope(void) {
    test_case("rope: tables of the reference within 1 ulp", golden);
    test_case("rope: formula of every rule", formulas);
    test_case("rope: products depend on the distance only", relative);
    test_case("rope: partial rotation", partial);
    test_case("rope: metadata", metadata);
}
