// The AMX kernel's packing, blocking and edges, on an emulated tile unit (test_kernels.c runs it on a real one).
#include "test.h"
#include "../kernels/isa.h"

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
    Tensor w = {data, type, rows, cols, row_bytes};
    kernels_scalar.mat[type].rows(expected, stride, &w, x, n, 0, rows);

    const MatKernel *k = &kernels_amx_emulated.gemm[type];
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

static void emulated(void) {
    static const Type types[] = {TYPE_F32,  TYPE_F16,  TYPE_BF16, TYPE_Q8_0, TYPE_Q4_0,   TYPE_Q4_1,  TYPE_Q5_0,
                                 TYPE_Q5_1, TYPE_Q4_K, TYPE_Q5_K, TYPE_Q6_K, TYPE_IQ4_NL, TYPE_IQ4_XS};
    kernels_init("avx512");
    bool has_avx512 = !strcmp(kernel.name, "avx512");
    kernels_init(NULL);
    if (!has_avx512) {
        test_skip("the emulation needs AVX-512");
        return;
    }
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        bool is_super = type_info(types[i])->block == 256;
        compare(types[i], 40, is_super ? 512 : 96, 33);
        compare(types[i], 130, is_super ? 768 : 544, 70); // more than a strip, more than a K block
        compare(types[i], 7, is_super ? 256 : 32, 1);
    }
    compare(TYPE_BF16, 33, 40, 515); // columns no multiple of a tile, tokens beyond a sweep
    compare(TYPE_F32, 16, 1030, 17);
}

void test_amx(void) { test_case("amx: packing and blocking, emulated", emulated); }
#else
void test_amx(void) {}
#endif
