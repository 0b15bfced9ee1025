// Tensor types: block sizes and decoded values are compared with ggml's.
#include "kernels/backends.h"
#include "kernels/blocks.h"
#include "kernels/quant.h"
#include "tests/test.h"
#include "base/files.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = 4096 };

static uint64_t fnv(const void *data, size_t n, uint64_t h) {
    for (const uint8_t *p = data; n--; p++) h = (h ^ *p) * 1099511628211u;
    return h;
}

// Hash of float32 values. All NaNs have the same hash.
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

// Hashes of the output of ggml's dequantize_row_* for the same random bytes.
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

// The type table agrees with the structs of blocks.h.
static void sizes(void) {
    static const struct {
        Type type;
        size_t bytes;
    } blocks[] = {
        {TYPE_Q8_0, sizeof(BlockQ8_0)},
        {TYPE_Q4_0, sizeof(BlockQ4_0)},
        {TYPE_Q4_1, 2 + 2 + 16},
        {TYPE_Q5_0, 2 + 4 + 16},
        {TYPE_Q5_1, 2 + 2 + 4 + 16},
        {TYPE_Q2_K, sizeof(BlockQ2_K)},
        {TYPE_Q3_K, sizeof(BlockQ3_K)},
        {TYPE_Q4_K, sizeof(BlockQ4_K)},
        {TYPE_Q5_K, sizeof(BlockQ5_K)},
        {TYPE_Q6_K, sizeof(BlockQ6_K)},
        {TYPE_IQ4_NL, sizeof(BlockIQ4_NL)},
        {TYPE_IQ4_XS, sizeof(BlockIQ4_XS)},
        {TYPE_IQ2_XXS, sizeof(BlockIQ2_XXS)},
        {TYPE_IQ2_XS, sizeof(BlockIQ2_XS)},
        {TYPE_IQ2_S, sizeof(BlockIQ2_S)},
        {TYPE_IQ3_XXS, sizeof(BlockIQ3_XXS)},
        {TYPE_IQ3_S, sizeof(BlockIQ3_S)},
        {TYPE_IQ1_S, sizeof(BlockIQ1_S)},
        {TYPE_IQ1_M, sizeof(BlockIQ1_M)},
        {TYPE_TQ1_0, sizeof(BlockTQ1_0)},
        {TYPE_TQ2_0, sizeof(BlockTQ2_0)},
        {TYPE_Q1_0, sizeof(BlockQ1_0)},
        {TYPE_Q2_0, sizeof(BlockQ2_0)},
    };
    bool is_listed[TYPE_COUNT] = {0};

    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) is_listed[blocks[i].type] = true;
    for (int type = 0; type < TYPE_COUNT; type++)
        if (type_info((uint32_t)type)->group)
            CHECK(is_listed[type] && kernels_scalar.gemv[type].rows,
                  "%s: not in this list or in backends.h", type_info((uint32_t)type)->name);
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        CHECK((size_t)type_info(blocks[i].type)->bytes == blocks[i].bytes, "type %d",
              blocks[i].type);
    for (uint32_t t = 0; t < TYPE_COUNT; t++)
        CHECK(quant_is_integer(t) == (type_info(t)->group > 0),
              "type %u: quant_is_integer() disagrees with the group size", t);
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

// Blocks of Q1_0 and Q2_0 with scales of either sign, 0, the largest and subnormal ones have the
// values of ggml, bit for bit.
static void few_bits(void) {
    static const Type types[] = {TYPE_Q1_0, TYPE_Q2_0};
    static const char *const names[][2] = {{"types/q1_0.blocks", "types/q1_0.f32"},
                                           {"types/q2_0.blocks", "types/q2_0.f32"}};

    for (int i = 0; i < 2; i++) {
        const char *blocks_path = test_data(names[i][0]);
        const char *values_path = test_data(names[i][1]);
        Buffer blocks = {0}, values = {0};
        Error err;
        float x[64 * 128];
        size_t n = 64 * (size_t)type_info(types[i])->block;

        if (!blocks_path || !values_path) {
            test_skip("no %s", names[i][0]);
            return;
        }

        if (!file_read(blocks_path, &blocks, &err) || !file_read(values_path, &values, &err))
            die_error(&err);
        CHECK(blocks.len == 64 * 18 && values.len == n * sizeof *x, "%zu %zu", blocks.len,
              values.len);

        quant_decode_row(types[i], blocks.data, x, n);
        CHECK(!memcmp(x, values.data, n * sizeof *x), "%s", names[i][0]);

        buffer_free(&blocks);
        buffer_free(&values);
    }
}

// A hand-written block for each type. Bits and codes are stored from the lowest bit on. A code of 0
// with a negative scale is -0.
static void few_bits_by_hand(void) {
    uint8_t block[18] = {0x00, 0xc0, 0x05, 0x80, [17] = 0xe4}; // d = -2
    float x[128];
    quant_decode_row(TYPE_Q1_0, block, x, 128);
    CHECK(x[0] == -2 && x[1] == 2 && x[2] == -2 && x[14] == 2 && x[15] == -2 && x[127] == -2,
          "%g %g %g", (double)x[0], (double)x[1], (double)x[127]);
    quant_decode_row(TYPE_Q2_0, block, x, 64);
    CHECK(x[0] == 0 && signbit(x[0]) && x[2] == 2 && x[60] == 2 && x[61] == 0 && x[62] == -2 &&
              x[63] == -4,
          "%g %g %g", (double)x[0], (double)x[2], (double)x[63]);

    // A damaged scale makes every weight infinite or NaN, so that no check can miss it.
    for (int i = 0; i < 3; i++) {
        block[0] = i == 2;
        block[1] = i == 1 ? 0xfc : 0x7c; // inf, -inf, NaN
        for (int k = 0; k < 2; k++) {
            int n = k ? 64 : 128;
            quant_decode_row(k ? TYPE_Q2_0 : TYPE_Q1_0, block, x, (size_t)n);
            for (int w = 0; w < n; w++) CHECK(!isfinite(x[w]), "%d %d: weight %d", i, k, w);
        }
    }
}

// Every float16 and bfloat16 survives a conversion to float32 and back. Values halfway between two
// float16 are rounded to the even one.
static void half(void) {
    for (uint32_t h = 0; h < 65536; h++) {
        float f = f16_to_f32((uint16_t)h);
        float b = bf16_to_f32((uint16_t)h);
        CHECK(isnan(f) ? (h & 0x7fff) > 0x7c00 : f32_to_f16(f) == h, "f16 %04x", h);
        CHECK(isnan(b) ? (h & 0x7fff) > 0x7f80 : f32_to_bf16(b) == h, "bf16 %04x", h);

        // The middle of this value and the next one, and the float32 values next to the middle.
        if ((h & 0x7fff) >= 0x7bff) continue;
        float next = f16_to_f32((uint16_t)(h + 1));
        float middle = f / 2 + next / 2;
        CHECK(f32_to_f16(middle) == h + (h & 1), "halfway above %04x", h);
        CHECK(f32_to_f16(nextafterf(middle, f)) == h &&
                  f32_to_f16(nextafterf(middle, next)) == h + 1,
              "next to halfway above %04x", h);
    }

    // Overflow of float16, and ties of bfloat16.
    CHECK(f32_to_f16(65519.996f) == 0x7bff && f32_to_f16(65520) == 0x7c00 &&
              f32_to_f16(-1e30f) == 0xfc00,
          "");
    CHECK(f32_to_bf16(1.00390625f) == 0x3f80 && f32_to_bf16(1.01171875f) == 0x3f82, "ties to even");
}

// Q4_0 rows of the KV cache.
static void encode_q4_0(void) {
    static float x[N], back[N];
    static BlockQ4_0 blocks[N / 32];
    static const float bad[] = {NAN, INFINITY, -INFINITY, 600000, FLT_MAX};
    uint64_t seed = 8;

    for (int i = 0; i < N; i++) x[i] = test_normal(&seed);
    CHECK(quant_encode_q4_0(x, blocks, N), "normal values refused");
    quant_decode_row(TYPE_Q4_0, blocks, back, N);
    double nmse = test_nmse(back, x, N);
    CHECK(nmse < 0.007, "error %.2e; ggml's rule has 7.4e-3", nmse);

    // Values that Q4_0 can represent are exact: integers from -8 to 7 of a scale of either sign,
    // and zero.
    for (int i = 0; i < 128; i++) x[i] = i < 96 ? ldexpf((float)(i % 16 - 8), i / 32 * 9 - 10) : 0;
    for (int i = 32; i < 64; i++) x[i] = -x[i];
    CHECK(quant_encode_q4_0(x, blocks, 128), "integers refused");
    quant_decode_row(TYPE_Q4_0, blocks, back, 128);
    for (int i = 0; i < 128; i++) CHECK(back[i] == x[i], "%g became %g", x[i], back[i]);

    // Values below the range of float16 become zeros or one of its smallest steps.
    for (int i = 0; i < 64; i++) x[i] = ldexpf(i % 2 ? -1 : 1, i < 32 ? -149 : -22);
    CHECK(quant_encode_q4_0(x, blocks, 64), "small values refused");
    quant_decode_row(TYPE_Q4_0, blocks, back, 64);
    for (int i = 0; i < 64; i++)
        CHECK(fabsf(back[i] - x[i]) < 0x1p-23f, "%g became %g", x[i], back[i]);

    // The scale, an eighth of the largest value, must fit float16.
    x[40] = 500000;
    CHECK(quant_encode_q4_0(x, blocks, 64), "500000 refused");
    for (int i = 0; i < 5; i++) {
        x[40] = bad[i];
        CHECK(!quant_encode_q4_0(x, blocks, 64), "%g accepted", bad[i]);
    }
}

void test_quant(void) {
    test_case("quant: float16 and bfloat16", half);
    test_case("quant: sizes of blocks", sizes);
    test_case("quant: decoded values of every type", decode);
    test_case("quant: Q1_0 and Q2_0 as ggml decodes them", few_bits);
    test_case("quant: Q1_0 and Q2_0 by hand", few_bits_by_hand);
    test_case("quant: rows of Q4_0", encode_q4_0);
}
