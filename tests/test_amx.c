// The AMX kernel's packing, blocking and edges, on an emulated tile unit (test_kernels.c runs it on a real one).
#include "test.h"
#include "../kernels/encode.h"
#include "../kernels/isa.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
extern const Kernels kernels_amx_emulated;

// rows x cols weights of a type against n tokens; compared with the scalar kernel.
static void compare(Type type, int rows, int cols, int n) {
    uint64_t seed = (uint64_t)(rows * 131 + cols * 17 + n) + (uint64_t)type;
    size_t row_bytes = quant_row_bytes(type, (size_t)cols), stride = (size_t)rows + 3;
    float *weights = xalloc((size_t)cols, sizeof(float)), *x = xalloc((size_t)n * (size_t)cols, sizeof(float));
    float *expected = xalloc((size_t)n * stride, sizeof(float)), *found = xalloc((size_t)n * stride, sizeof(float));
    char *data = xalloc((size_t)rows, row_bytes);
    for (int r = 0; r < rows; r++) {
        for (int i = 0; i < cols; i++) weights[i] = test_normal(&seed);
        quant_encode(type, weights, NULL, data + (size_t)r * row_bytes, (size_t)cols);
    }
    for (int i = 0; i < n * cols; i++) x[i] = test_normal(&seed);
    Tensor w = {data, type, rows, cols, row_bytes, NULL};
    kernels_scalar.mat[type].rows(expected, stride, &w, x, n, 0, rows);

    const MatKernel *k = &kernels_amx_emulated.tiles[type];
    void *encoded = xalloc(k->encoded_bytes(n, cols), 1);
    memset(encoded, 0xff, k->encoded_bytes(n, cols)); // NaN wherever packing forgets a place
    for (int t = 0; t < n; t += k->token_step)
        k->encode(encoded, x, n, cols, t, t + k->token_step < n ? t + k->token_step : n);
    for (int r = 0; r < rows; r += k->row_step)
        k->rows(found, stride, &w, encoded, n, r, r + k->row_step < rows ? r + k->row_step : rows);
    double nmse = test_nmse(found, expected, (size_t)n * stride); // the gaps between rows are zero in both
    CHECK(nmse < 5e-5, "%s (%d, %d) x %d: NMSE %g", type_info(type)->name, rows, cols, n, nmse);
    free(weights), free(x), free(expected), free(found), free(data), free(encoded);
}

static bool has_avx512(void) {
    kernels_init("avx512");
    bool has = !strcmp(kernel.name, "avx512");
    kernels_init(NULL);
    if (!has) test_skip("the emulation needs AVX-512");
    return has;
}

static void products(void) {
    static const Type types[] = {TYPE_F32,  TYPE_F16,  TYPE_BF16, TYPE_Q8_0, TYPE_Q4_0,   TYPE_Q4_1,  TYPE_Q5_0,
                                 TYPE_Q5_1, TYPE_Q4_K, TYPE_Q5_K, TYPE_Q6_K, TYPE_IQ4_NL, TYPE_IQ4_XS};
    if (!has_avx512()) return;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        bool is_super = type_info(types[i])->block == 256;
        compare(types[i], 40, is_super ? 512 : 96, 33);
        compare(types[i], 130, is_super ? 768 : 544, 70); // more than a strip, more than a K block
        compare(types[i], 7, is_super ? 256 : 32, 1);
    }
    compare(TYPE_BF16, 33, 40, 515); // columns no multiple of a tile, tokens beyond a sweep
    compare(TYPE_F32, 16, 1030, 17);
}

// A page of n keys: each of the four operands of the two products is rounded to bf16, by 0.17 % RMS, the scores (about
// N(0, 1)) are wrong by that much of themselves: NMSE 4 x 0.0017^2 in all.
static void compare_page(Type type, int dim, int n_q, int n) {
    enum { Q = ATTEND_MAX_QUERIES };
    static float q[Q * 256], row[256], found[Q * 256 + 1], expected[Q * 256];
    float max[Q], sum[Q], max_expected[Q], sum_expected[Q];
    uint64_t seed = (uint64_t)(dim * 1000 + n) + (uint64_t)type;
    size_t row_bytes = quant_row_bytes(type, (size_t)dim), at = 0;
    char *kv = xalloc(2 * (size_t)n, row_bytes);
    int n_keys[Q];
    for (int i = 0; i < n_q; i++) n_keys[i] = i ? (int)(test_random(&seed) % (uint64_t)(n + 1)) : n;
    for (int i = 0; i < n_q * dim; i++) q[i] = test_normal(&seed) / sqrtf((float)dim);
    for (; at < 2 * (size_t)n; at++) {
        for (int d = 0; d < dim; d++) row[d] = test_normal(&seed);
        kernels_scalar.store(type, kv + at * row_bytes, row, dim);
    }
    AttendPage page = {q, kv, kv + (size_t)n * row_bytes, NULL, n_keys, type, n_q, dim, max, sum, found};
    found[n_q * dim] = 77;
    kernels_amx_emulated.attend_many(&page);
    CHECK(found[n_q * dim] == 77, "wrote past the end");
    page.n_q = ATTEND_FEW + 1, page.acc = expected;
    kernels_amx_emulated.attend_many(&page);
    CHECK(!memcmp(found, expected, (size_t)(page.n_q * dim) * sizeof(float)), "depends on the other queries");
    page.n_q = n_q;
    page.max = max_expected, page.sum = sum_expected, page.acc = expected;
    kernels_scalar.attend(&page);
    for (int i = 0; i < n_q; i++) {
        CHECK(n_keys[i] ? fabsf(max[i] - max_expected[i]) < 0.05f : isinf(max[i]) && sum[i] == 0, "max %g", max[i]);
        for (int d = i * dim; n_keys[i] && d < (i + 1) * dim; d++) found[d] /= sum[i], expected[d] /= sum_expected[i];
    }
    double nmse = test_nmse(found, expected, (size_t)(n_q * dim));
    CHECK(nmse < 2e-5, "%s dim %d, %d queries, %d keys: NMSE %g", type_info(type)->name, dim, n_q, n, nmse);
    free(kv);
}

// A query that sees a key which is not a number has no result; one that does not see it keeps its own.
static void attention_nan(void) {
    static float q[32 * 64], kv[64], acc[32 * 64];
    static uint16_t k[40][64], v[40][64];
    float max[32], sum[32];
    int n_keys[32];
    if (!has_avx512()) return;
    for (int i = 0; i < 32; i++) n_keys[i] = 8 + i;
    for (int i = 0; i < 40; i++) kernels_scalar.store(TYPE_F16, k[i], kv, 64);
    k[20][63] = 0x7e00;
    kernels_amx_emulated.attend_many(&(AttendPage){q, k, v, NULL, n_keys, TYPE_F16, 32, 64, max, sum, acc});
    for (int i = 0; i < 32; i++)
        CHECK(isnan(acc[64 * i] / sum[i]) == (n_keys[i] > 20), "query %d: %g / %g", i, acc[64 * i], sum[i]);
}

static void attention(void) {
    static const int dims[] = {128, 64, 256, 32, 48, 6}, queries[] = {64, 17, 31, 32, 50, 18},
                     keys[] = {256, 1, 77, 33, 255, 16};
    if (!has_avx512()) return;
    for (int i = 0; i < 6; i++) {
        compare_page(TYPE_F16, dims[i], queries[i], keys[i]);
        if (dims[i] % 32 == 0) compare_page(TYPE_Q8_0, dims[i], queries[i], keys[i]);
    }
}

void test_amx(void) {
    test_case("amx: packing and blocking, emulated", products);
    test_case("amx: attention, emulated", attention);
    test_case("amx: NaN in attention, emulated", attention_nan);
}
#else
void test_amx(void) {}
#endif
