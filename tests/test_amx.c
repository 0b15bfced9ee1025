// AMX kernels: packing, blocking and partial tiles, on the CPU's tile unit and on an emulated one.
#include "tests/test.h"
#include "quantize/encode.h"
#include "kernels/backends.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
extern const Kernels kernels_amx_emulated;

// Runs a check with the tile unit of this CPU, if it has one, and with the emulated unit, if it has
// AVX-512.
static void on_units(void (*check)(const Kernels *kernels)) {
    kernels_init("amx");
    bool has_unit = !strcmp(kernel.name, "amx");
    kernels_init("avx512");
    bool has_avx512 = !strcmp(kernel.name, "avx512");
    kernels_init(NULL);

    if (has_unit) check(&kernels_amx);
    if (has_avx512) check(&kernels_amx_emulated);
    if (!has_avx512) test_skip("the emulation needs AVX-512, or EMULATE=avx512");
}

enum { GAP = 3 }; // columns of out after the rows

// Returns the product as out (n, rows + GAP), computed row_step rows at a time. Activations that
// encode() does not write are NaN.
static float *multiply(const Kernels *kernels, const Tensor *w, const float *x, int n,
                       int row_step) {
    const MatmulKernel *k = &kernels->gemm_large[w->type];
    size_t stride = (size_t)w->rows + GAP;
    size_t bytes = k->encoded_bytes(n, w->cols);
    float *out = xalloc((size_t)n * stride, sizeof(float));
    void *encoded = xalloc(bytes, 1);
    memset(encoded, 0xff, bytes);

    for (int t = 0; t < n; t += k->token_step)
        k->encode(encoded, x, n, w->cols, t, t + k->token_step < n ? t + k->token_step : n);
    for (int r = 0; r < w->rows; r += row_step)
        k->rows(out, stride, w, encoded, n, r, r + row_step < w->rows ? r + row_step : w->rows);

    free(encoded);
    return out;
}

// Multiplies rows x cols weights of a type by n tokens. The result must be close to that of the
// scalar kernel, and its bits must not depend on how rows are divided or on the other tokens.
static void compare(const Kernels *kernels, Type type, int rows, int cols, int n) {
    uint64_t seed = (uint64_t)(rows * 131 + cols * 17 + n) + (uint64_t)type;
    size_t row_bytes = quant_row_bytes(type, (size_t)cols);
    size_t stride = (size_t)rows + GAP;
    float *weights = xalloc((size_t)cols, sizeof(float));
    float *x = xalloc((size_t)n * (size_t)cols, sizeof(float));
    float *expected = xalloc((size_t)n * stride, sizeof(float));
    char *data = xalloc((size_t)rows, row_bytes);

    for (int r = 0; r < rows; r++) {
        for (int i = 0; i < cols; i++) weights[i] = test_normal(&seed);
        quant_encode(type, weights, NULL, data + (size_t)r * row_bytes, (size_t)cols);
    }
    for (int i = 0; i < n * cols; i++) x[i] = test_normal(&seed);

    // The scalar kernel.
    Tensor w = {data, type, rows, cols, row_bytes, 1, NULL, NULL, false};
    kernels_scalar.gemv[type].rows(expected, stride, &w, x, n, 0, rows);

    float *found = multiply(kernels, &w, x, n, 256);
    float *parts = multiply(kernels, &w, x, n, 64);
    double nmse = test_nmse(found, expected, (size_t)n * stride); // the gaps are zero in both
    CHECK(nmse < 5e-5, "%s (%d, %d) x %d: NMSE %g", type_info(type)->name, rows, cols, n, nmse);
    CHECK(!memcmp(found, parts, (size_t)n * stride * sizeof(float)),
          "%s: result depends on how rows are divided", type_info(type)->name);

    // Batches of 1 token and of up to 37.
    for (int t = n - 1; t >= 0;) {
        int count = 1;
        if (t % 3 == 0) count = t < 36 ? t + 1 : 37;

        int begin = t + 1 - count;
        float *few = multiply(kernels, &w, x + (size_t)begin * (size_t)cols, count, 32);
        CHECK(!memcmp(few, found + (size_t)begin * stride, (size_t)count * stride * sizeof(float)),
              "%s (%d, %d): tokens %d to %d of %d have other bits in a smaller batch",
              type_info(type)->name, rows, cols, begin, t, n);
        free(few);
        t -= count + 40;
    }

    free(weights);
    free(x);
    free(expected);
    free(found);
    free(parts);
    free(data);
}

static void every_type(const Kernels *kernels) {
    static const Type types[] = {TYPE_F32,  TYPE_F16,    TYPE_BF16,  TYPE_Q8_0, TYPE_Q4_0,
                                 TYPE_Q4_1, TYPE_Q5_0,   TYPE_Q5_1,  TYPE_Q4_K, TYPE_Q5_K,
                                 TYPE_Q6_K, TYPE_IQ4_NL, TYPE_IQ4_XS};
    enum { N_TYPES = sizeof types / sizeof *types };
    uint64_t seed = 3;

    // 1 to 300 rows and 1 to 70 tokens; some with more rows than a chunk and 150 tokens.
    for (int i = 0; i < 3 * N_TYPES; i++) {
        Type type = types[i % N_TYPES];
        bool is_large = i < N_TYPES && i % 4 == 0;
        int block = type_info(type)->block == 256 ? 256 : 32;
        int k = (int)(test_random(&seed) % 1300) / block * block;
        int rows = is_large ? 300 : 1 + (int)(test_random(&seed) % 300);
        compare(kernels, type, rows, k + block,
                is_large ? 150 : 1 + (int)(test_random(&seed) % 70));
    }

    // Columns that are not a multiple of a tile; more tokens than a chunk.
    compare(kernels, TYPE_BF16, 33, 40, 515);
    compare(kernels, TYPE_F32, 16, 1030, 17);
    compare(kernels, TYPE_Q8_0, 290, 1056, 300);
}

static void products(void) { on_units(every_type); }

// Attention over a page of n keys, against the scalar kernel. Each of the four operands of the two
// products is rounded to bf16, with an RMS error of 0.17 %. The scores are about N(0, 1), so their
// relative errors become absolute errors of their exponents. Expected NMSE: 4 x 0.0017^2.
static void compare_page(const Kernels *kernels, Type k_type, Type v_type, int dim, int n_q,
                         int n) {
    enum { Q = ATTEND_MANY_QUERIES };
    static float q[Q * 256], row[256], found[Q * 256 + 1], expected[Q * 256];
    float max[Q], sum[Q], max_expected[Q], sum_expected[Q];
    uint64_t seed = (uint64_t)(dim * 1000 + n) + (uint64_t)k_type;
    size_t k_bytes = quant_row_bytes(k_type, (size_t)dim);
    size_t v_bytes = quant_row_bytes(v_type, (size_t)dim);
    char *k = xalloc((size_t)n, k_bytes);
    char *v = xalloc((size_t)n, v_bytes);
    int n_keys[Q];

    // The first query sees all keys, the others a random number of them.
    for (int i = 0; i < n_q; i++) n_keys[i] = i ? (int)(test_random(&seed) % (uint64_t)(n + 1)) : n;
    for (int i = 0; i < n_q * dim; i++) q[i] = test_normal(&seed) / sqrtf((float)dim);

    for (size_t i = 0; i < (size_t)n; i++) {
        for (int d = 0; d < dim; d++) row[d] = test_normal(&seed);
        kernels_scalar.store(k_type, k + i * k_bytes, row, dim);
        for (int d = 0; d < dim; d++) row[d] = test_normal(&seed);
        kernels_scalar.store(v_type, v + i * v_bytes, row, dim);
    }

    AttentionPage page = {.q = q,
                          .k = k,
                          .v = v,
                          .n_keys = n_keys,
                          .k_type = k_type,
                          .v_type = v_type,
                          .n_q = n_q,
                          .head_dim = dim,
                          .max = max,
                          .sum = sum,
                          .acc = found};

    // All queries in one call. The element after the result is not written.
    found[n_q * dim] = 77;
    kernels->attend_many(&page);
    CHECK(found[n_q * dim] == 77, "wrote past the end");

    // Fewer queries, for which the kernel is still used.
    page.n_q = 17;
    page.acc = expected;
    kernels->attend_many(&page);
    CHECK(!memcmp(found, expected, (size_t)(page.n_q * dim) * sizeof(float)),
          "result depends on the other queries");

    // The scalar kernel, one query at a time.
    page.max = max_expected;
    page.sum = sum_expected;
    page.acc = expected;
    for (int i = 0; i < n_q; i++) {
        page.n_q = 1;
        kernels_scalar.attend(&page);
        page.q += dim;
        page.n_keys++;
        page.max++;
        page.sum++;
        page.acc += dim;
    }

    // The results are divided by the sums, which are the denominators of the softmax.
    for (int i = 0; i < n_q; i++) {
        CHECK(n_keys[i] ? fabsf(max[i] - max_expected[i]) < 0.05f : isinf(max[i]) && sum[i] == 0,
              "wrong maximum %g", max[i]);
        if (!n_keys[i]) continue;
        for (int d = i * dim; d < (i + 1) * dim; d++) {
            found[d] /= sum[i];
            expected[d] /= sum_expected[i];
        }
    }
    double nmse = test_nmse(found, expected, (size_t)(n_q * dim));
    CHECK(nmse < 2e-5, "%s, %s dim %d, %d queries, %d keys: NMSE %g", type_info(k_type)->name,
          type_info(v_type)->name, dim, n_q, n, nmse);

    free(k);
    free(v);
}

// A query that sees a key with a NaN has the result NaN. Queries that do not see the key have their
// usual result.
static void attend_nan(const Kernels *kernels) {
    static float q[32 * 64], kv[64], acc[32 * 64];
    static uint16_t k[40][64], v[40][64];
    float max[32], sum[32];
    int n_keys[32];

    for (int i = 0; i < 32; i++) n_keys[i] = 8 + i;
    for (int i = 0; i < 40; i++) kernels_scalar.store(TYPE_F16, k[i], kv, 64);

    // A NaN in key 20, which the queries with more than 20 keys see.
    k[20][63] = 0x7e00;
    kernels->attend_many(&(AttentionPage){.q = q,
                                          .k = k,
                                          .v = v,
                                          .n_keys = n_keys,
                                          .k_type = TYPE_F16,
                                          .v_type = TYPE_F16,
                                          .n_q = 32,
                                          .head_dim = 64,
                                          .max = max,
                                          .sum = sum,
                                          .acc = acc});

    for (int i = 0; i < 32; i++)
        CHECK(isnan(acc[64 * i] / sum[i]) == (n_keys[i] > 20), "query %d: %g / %g", i, acc[64 * i],
              sum[i]);
}

static void attention_nan(void) { on_units(attend_nan); }

static void attend_pages(const Kernels *kernels) {
    static const int dims[] = {128, 64, 256, 32, 48, 6};
    static const int queries[] = {64, 17, 256, 32, 150, 18};
    static const int keys[] = {256, 1, 77, 33, 255, 16};

    for (int i = 0; i < 6; i++) {
        compare_page(kernels, TYPE_F16, TYPE_F16, dims[i], queries[i], keys[i]);
        if (dims[i] % 32) continue;
        compare_page(kernels, TYPE_Q8_0, TYPE_Q8_0, dims[i], queries[i], keys[i]);
        compare_page(kernels, TYPE_Q8_0, TYPE_Q4_0, dims[i], queries[i], keys[i]);
        compare_page(kernels, TYPE_Q4_0, TYPE_Q4_0, dims[i], queries[i], keys[i]);
    }
}

static void attention(void) { on_units(attend_pages); }

void test_amx(void) {
    test_case("amx: products", products);
    test_case("amx: attention", attention);
    test_case("amx: NaN in attention", attention_nan);
}
#else
void test_amx(void) {}
#endif
