// The encoders of quantize/: their error compared with ggml's, their exact bytes, values at the
// limits, and importance matrices.
#include "quantize/encode.h"
#include "tests/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint64_t fnv(const void *data, size_t n, uint64_t h) {
    for (const uint8_t *p = data; n--; p++) h = (h ^ *p) * 1099511628211u;
    return h;
}

// The relative error of ggml's encoders on the same rows, which is the upper limit for ours, and
// the FNV-1a hash of the encoded bytes: ggml's bytes for Q8_0, F16 and BF16, our own for the other
// types (the same on every machine and compiler).
static const struct {
    Type type;
    double error;
    uint64_t hash;
} encoded[] = {
    {TYPE_Q8_0, 0.00587460, 0x06d6f3844edb4a77},    {TYPE_F16, 0.00020787, 0x863cfae3f6349e33},
    {TYPE_BF16, 0.00165120, 0xcaa47d050598f446},    {TYPE_Q4_0, 0.09388936, 0x848052a1923a6382},
    {TYPE_Q4_1, 0.08107173, 0x2aaac61654d74ac6},    {TYPE_Q5_0, 0.04645687, 0x344578e33269f4c2},
    {TYPE_Q5_1, 0.03922612, 0xf19c7bf09c388770},    {TYPE_Q4_K, 0.07450838, 0x56c80d4726f89eae},
    {TYPE_Q5_K, 0.03775271, 0xdd42f4d571ca1547},    {TYPE_Q6_K, 0.01891839, 0x9aec43ed672c4eb0},
    {TYPE_IQ4_NL, 0.08067798, 0x4e6cb0b246217590},  {TYPE_IQ4_XS, 0.08157811, 0xb85e0b84a86a6d13},
    {TYPE_Q2_K, 0.30455395, 0x667ce2d5bf367248},    {TYPE_Q3_K, 0.15889014, 0xdd4d056b2383c14d},
    {TYPE_IQ3_XXS, 0.22242494, 0x1c0b7fde1b0ce463}, {TYPE_IQ3_S, 0.17308154, 0x8f6248dd89b242d9},
    {TYPE_IQ2_S, 0.27703539, 0xdc7614c058090716},
};

enum { ROWS = 64, COLS = 768 }; // 3 superblocks; some encoders process 2 or 4 together

static void make_rows(float *x) {
    uint64_t seed = 7;
    for (int i = 0; i < ROWS * COLS; i++) x[i] = test_normal(&seed) * 0.02f * (i % 97 ? 1 : 3);
}

static void encode(void) {
    static float x[ROWS * COLS], y[ROWS * COLS];
    static uint8_t bytes[sizeof x];

    make_rows(x);
    for (size_t k = 0; k < sizeof encoded / sizeof *encoded; k++) {
        Type t = encoded[k].type;
        size_t row = quant_row_bytes(t, COLS);
        for (int r = 0; r < ROWS; r++)
            CHECK(quant_encode(t, x + r * COLS, NULL, bytes + (size_t)r * row, COLS), "");

        uint64_t hash = fnv(bytes, ROWS * row, 14695981039346656037u);
        CHECK(hash == encoded[k].hash, "type %d: %016llx", t, (unsigned long long)hash);

        quant_decode_row(t, bytes, y, ROWS * COLS);
        double error = sqrt(test_nmse(y, x, ROWS * COLS));
        CHECK(error <= encoded[k].error, "type %d: %.6f, ggml %.6f", t, error, encoded[k].error);
    }
}

static bool can_encode(Type type) {
    static const float zeros[256];
    uint8_t bytes[1024];
    return quant_encode(type, zeros, NULL, bytes, 256);
}

// A row times a power of two is encoded with the same relative error, or refused: nothing is cut to
// the range of float16 scales. `offset` moves the row, for types whose minimum has a range of its
// own.
static void encode_range(void) {
    static float x[256], y[256];
    static uint8_t bytes[1024];
    static const float offsets[] = {0, 1, -1, 3, -3};

    for (Type t = 0; t < TYPE_COUNT; t++) {
        if (!can_encode(t)) continue;
        for (size_t k = 0; k < sizeof offsets / sizeof *offsets; k++) {
            double least = 0;
            int n_encoded = 0;
            for (int power = 0; power < 128; power++) {
                uint64_t seed = 11;
                for (int i = 0; i < 256; i++)
                    x[i] = ldexpf(0.1f * test_normal(&seed) + offsets[k], power);
                if (!quant_encode(t, x, NULL, bytes, 256)) break;
                quant_decode_row(t, bytes, y, 256);
                double error = test_nmse(y, x, 256);
                if (power == 0) least = error;
                CHECK(error <= 1.01 * least + 1e-9, "type %d: 2^%d + %g: %g instead of %g", t,
                      power, (double)offsets[k], error, least);
                n_encoded++;
            }

            CHECK(n_encoded >= 14 && (n_encoded < 32 || t == TYPE_F32 || t == TYPE_BF16),
                  "type %d: %d powers of 2", t, n_encoded);
        }
    }
}

// Constant rows are encoded within 1 %; rows with infinity or NaN are refused.
static void encode_edges(void) {
    static float x[256], y[256];
    static uint8_t bytes[1024];
    static const float values[] = {0, 1, -1, 0.02f, -3e-4f, 1e-30f, 6e4f, -6e4f};
    int n_types = 0;

    for (Type t = 0; t < TYPE_COUNT; t++) {
        if (!can_encode(t)) continue;
        n_types++;
        float allowed = t == TYPE_Q3_K ? 0.015f : 0.01f; // 6-bit scales

        for (size_t k = 0; k < sizeof values / sizeof *values; k++) {
            for (int i = 0; i < 256; i++) x[i] = values[k];
            CHECK(quant_encode(t, x, NULL, bytes, 256), "type %d, value %g", t, (double)values[k]);
            quant_decode_row(t, bytes, y, 256);
            for (int i = 0; i < 256; i++)
                CHECK(fabsf(y[i] - x[i]) <= fabsf(x[i]) * allowed + 1e-7f, "type %d: %g from %g", t,
                      (double)y[i], (double)x[i]);
        }

        static const float bad[] = {NAN, INFINITY, -INFINITY};
        for (int k = 0; k < 3; k++) {
            x[100] = bad[k];
            CHECK(!quant_encode(t, x, NULL, bytes, 256), "type %d accepts %g", t, (double)bad[k]);
        }
    }
    CHECK(n_types == 18, "%d types can be written", n_types);
}

// A high importance of some columns lowers their error.
static void encode_importance(void) {
    static float x[ROWS * COLS], y[COLS], z[COLS], importance[COLS];
    static uint8_t bytes[COLS * 4];

    make_rows(x);
    for (int i = 0; i < COLS; i++) importance[i] = i % 8 ? 1 : 100;
    static const Type types[] = {TYPE_Q4_0,    TYPE_Q5_1,  TYPE_Q2_K, TYPE_Q3_K,
                                 TYPE_Q4_K,    TYPE_Q5_K,  TYPE_Q6_K, TYPE_IQ4_XS,
                                 TYPE_IQ3_XXS, TYPE_IQ3_S, TYPE_IQ2_S};

    for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
        double plain = 0, weighted = 0;
        for (int r = 0; r < ROWS; r++) {
            const float *row = x + r * COLS;
            quant_encode(types[k], row, NULL, bytes, COLS);
            quant_decode_row(types[k], bytes, y, COLS);
            quant_encode(types[k], row, importance, bytes, COLS);
            quant_decode_row(types[k], bytes, z, COLS);
            for (int i = 0; i < COLS; i += 8) {
                plain += (y[i] - row[i]) * (y[i] - row[i]);
                weighted += (z[i] - row[i]) * (z[i] - row[i]);
            }
        }

        CHECK(weighted < 0.9 * plain, "type %d: %g, unweighted %g", types[k], weighted, plain);
    }
}

void test_encode(void) {
    test_case("encode: bytes and errors", encode);
    test_case("encode: constants and refusals", encode_edges);
    test_case("encode: range of the scales", encode_range);
    test_case("encode: importance", encode_importance);
}
