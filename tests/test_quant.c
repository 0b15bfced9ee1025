// Tensor types: decoded values against the published layouts, and encoders against the error that
// each type allows.
#include "../kernels/blocks.h"
#include "../quantize/encode.h"
#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = 4096 };

static uint64_t fnv(const void *data, size_t n, uint64_t h) {
    for (const uint8_t *p = data; n--; p++) h = (h ^ *p) * 1099511628211u;
    return h;
}

// Hash of float32 values, all NaNs alike.
static uint64_t fnv_floats(const float *x, size_t n) {
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, x + i, sizeof u);
        if (isnan(x[i])) u = 0x7fc00000;
        h = fnv(&u, sizeof u, h);
    }
    return h;
}

// What ggml's dequantize_row_* makes of the same random bytes.
static const struct {
    Type type;
    uint64_t hash;
} decoded[] = {
    {TYPE_Q8_0, 0x5de9cc2b3840004c},    {TYPE_Q4_0, 0x0315b2b93e1ba4d9},
    {TYPE_Q4_1, 0x5b2877a522e0bf7b},    {TYPE_Q5_0, 0x5e8b8d7264792986},
    {TYPE_Q5_1, 0x920fe518fcffb718},    {TYPE_Q2_K, 0x85e05d4ccb6d0ddc},
    {TYPE_Q3_K, 0x997638b773b8ab27},    {TYPE_Q4_K, 0x63926f8dae6d360c},
    {TYPE_Q5_K, 0x4c1483ad69b1c1c2},    {TYPE_Q6_K, 0x08750aa0a4c50841},
    {TYPE_IQ4_NL, 0x5fa02bf864052011},  {TYPE_IQ4_XS, 0x29573e432fea1ad7},
    {TYPE_IQ2_XXS, 0xf53074ebf66681bc}, {TYPE_F16, 0x9a05d7b0b8880629},
    {TYPE_BF16, 0x5fcc685fb6e84fb9},    {TYPE_IQ2_XS, 0xfb39aded34e6e938},
    {TYPE_IQ2_S, 0xe275c1b7948ea325},   {TYPE_IQ3_XXS, 0xa54c88ba5bad46f8},
    {TYPE_IQ3_S, 0x9c285b2129f38e0d},   {TYPE_IQ1_S, 0xf52d6507351d5fe3},
    {TYPE_IQ1_M, 0xacf30dc3342d0766},   {TYPE_TQ1_0, 0x18739f1428905c25},
    {TYPE_TQ2_0, 0x99a8f61d6e66122a},
};

// The one table of sizes agrees with the blocks' structures.
static void sizes(void) {
    static const struct {
        Type type;
        size_t bytes;
    } blocks[] = {
        {TYPE_Q8_0, sizeof(BlockQ8_0)},       {TYPE_Q4_0, sizeof(BlockQ4_0)},
        {TYPE_Q4_1, sizeof(BlockQ4_1)},       {TYPE_Q5_0, sizeof(BlockQ5_0)},
        {TYPE_Q5_1, sizeof(BlockQ5_1)},       {TYPE_Q2_K, sizeof(BlockQ2_K)},
        {TYPE_Q3_K, sizeof(BlockQ3_K)},       {TYPE_Q4_K, sizeof(BlockQ4_K)},
        {TYPE_Q5_K, sizeof(BlockQ5_K)},       {TYPE_Q6_K, sizeof(BlockQ6_K)},
        {TYPE_IQ4_NL, sizeof(BlockIQ4_NL)},   {TYPE_IQ4_XS, sizeof(BlockIQ4_XS)},
        {TYPE_IQ2_XXS, sizeof(BlockIQ2_XXS)}, {TYPE_IQ2_XS, sizeof(BlockIQ2_XS)},
        {TYPE_IQ2_S, sizeof(BlockIQ2_S)},     {TYPE_IQ3_XXS, sizeof(BlockIQ3_XXS)},
        {TYPE_IQ3_S, sizeof(BlockIQ3_S)},     {TYPE_IQ1_S, sizeof(BlockIQ1_S)},
        {TYPE_IQ1_M, sizeof(BlockIQ1_M)},     {TYPE_TQ1_0, sizeof(BlockTQ1_0)},
        {TYPE_TQ2_0, sizeof(BlockTQ2_0)},
    };
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        CHECK((size_t)type_info(blocks[i].type)->bytes == blocks[i].bytes, "type %d",
              blocks[i].type);
    for (uint32_t t = 0; t < TYPE_COUNT; t++)
        CHECK(quant_is_integer(t) == (type_info(t)->group > 0),
              "type %u has no integers or no group", t);
}

static void decode(void) {
    static uint8_t bytes[N * 4];
    static float x[N];
    for (size_t k = 0; k < sizeof decoded / sizeof *decoded; k++) {
        uint64_t seed = 1000 + decoded[k].type;
        size_t n = quant_row_bytes(decoded[k].type, N);
        for (size_t i = 0; i < n; i++) bytes[i] = (uint8_t)(test_random(&seed) >> 40);
        quant_decode_row(decoded[k].type, bytes, x, N);
        uint64_t hash = fnv_floats(x, N);
        CHECK(hash == decoded[k].hash, "type %d: %016llx", decoded[k].type,
              (unsigned long long)hash);
        CHECK(quant_is_supported(decoded[k].type), "type %d", decoded[k].type);
    }
    CHECK(!quant_is_supported(4) && !quant_is_supported(1u << 31) && !quant_is_integer(TYPE_BF16),
          "");
}

// Relative error that ggml's encoders have on the same rows, and the hash of the bytes: ggml's for
// Q8_0, F16 and BF16, our own for the others (the same on every machine and compiler).
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

enum { ROWS = 64, COLS = 768 }; // three blocks: not a multiple of what the encoders take at once

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

// Rows that leave a search nothing to find, and those that no type can hold.
static void encode_edges(void) {
    static float x[256], y[256];
    static uint8_t bytes[1024];
    static const float values[] = {0, 1, -1, 0.02f, -3e-4f, 1e-30f, 6e4f, -6e4f};
    for (Type t = 0; t < TYPE_COUNT; t++) {
        if (!quant_can_encode(t)) continue;
        float allowed = t == TYPE_Q3_K ? 0.015f : 0.01f; // its scales have 6 bits
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
            CHECK(!quant_encode(t, x, NULL, bytes, 256), "type %d takes %g", t, (double)bad[k]);
        }
    }
}

// Weights marked as important are kept better than without the mark.
static void encode_importance(void) {
    static float x[ROWS * COLS], y[COLS], z[COLS], importance[COLS];
    static uint8_t bytes[COLS * 4];
    make_rows(x);
    for (int i = 0; i < COLS; i++) importance[i] = i % 8 ? 1 : 100;
    static const Type types[] = {TYPE_Q4_0,    TYPE_Q5_1,  TYPE_Q2_K, TYPE_Q3_K,
                                 TYPE_Q4_K,    TYPE_Q5_K,  TYPE_Q6_K, TYPE_IQ4_XS,
                                 TYPE_IQ3_XXS, TYPE_IQ3_S, TYPE_IQ2_S};
    for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
        double plain = 0, marked = 0;
        for (int r = 0; r < ROWS; r++) {
            const float *row = x + r * COLS;
            quant_encode(types[k], row, NULL, bytes, COLS);
            quant_decode_row(types[k], bytes, y, COLS);
            quant_encode(types[k], row, importance, bytes, COLS);
            quant_decode_row(types[k], bytes, z, COLS);
            for (int i = 0; i < COLS; i += 8) {
                plain += (y[i] - row[i]) * (y[i] - row[i]);
                marked += (z[i] - row[i]) * (z[i] - row[i]);
            }
        }
        CHECK(marked < 0.9 * plain, "type %d: %g, unmarked %g", types[k], marked, plain);
    }
}

// Every float16 survives the way through float32; ties go to the even neighbour.
static void half(void) {
    for (uint32_t h = 0; h < 65536; h++) {
        float f = f16_to_f32((uint16_t)h), b = bf16_to_f32((uint16_t)h);
        CHECK(isnan(f) ? (h & 0x7fff) > 0x7c00 : f32_to_f16(f) == h, "f16 %04x", h);
        CHECK(isnan(b) ? (h & 0x7fff) > 0x7f80 : f32_to_bf16(b) == h, "bf16 %04x", h);
        if ((h & 0x7fff) >= 0x7bff) continue;
        float next = f16_to_f32((uint16_t)(h + 1)), middle = f / 2 + next / 2;
        CHECK(f32_to_f16(middle) == h + (h & 1), "after %04x", h);
        CHECK(f32_to_f16(nextafterf(middle, f)) == h &&
                  f32_to_f16(nextafterf(middle, next)) == h + 1,
              "near %04x", h);
    }
    CHECK(f32_to_f16(65519.996f) == 0x7bff && f32_to_f16(65520) == 0x7c00 &&
              f32_to_f16(-1e30f) == 0xfc00,
          "");
    CHECK(f32_to_bf16(1.00390625f) == 0x3f80 && f32_to_bf16(1.01171875f) == 0x3f82, "ties to even");
}

void test_quant(void) {
    test_case("quant: float16 and bfloat16", half);
    test_case("quant: sizes of blocks", sizes);
    test_case("quant: decoded values of every type", decode);
    test_case("quant: encoded bytes and errors", encode);
    test_case("quant: encoding constants and refusals", encode_edges);
    test_case("quant: encoding with importance", encode_importance);
}
