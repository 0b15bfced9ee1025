// Every backend that this CPU supports, including scalar, against sums in double precision.
#include "tests/test.h"
#include "kernels/blocks.h"
#include "kernels/kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const char *const backends[] = {"scalar", "avx2", "avxvnni", "avx512",
                                       "amx",    "neon", "i8mm"};
static uint64_t state;

static const char *backend; // the backend under test

// Selects the backend under test. Skips the case if this CPU does not support it.
static bool use_backend(void) {
    if (kernels_init(backend) && !strcmp(kernel.name, backend)) return true;
    test_skip("not supported by this CPU");
    return false;
}

static int random_int(int n) { return (int)(test_random(&state) % (uint64_t)n); }

// A buffer that ends at a page that must not be read.
typedef struct {
    char *block, *data, *fence;
} Fenced;

static Fenced fenced_new(size_t n) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *block = xalloc(n + 2 * page, 1), *fence = block + n + page;
    fence -= (uintptr_t)fence % page;
    if (mprotect(fence, page, PROT_NONE)) abort();
    return (Fenced){block, fence - n, fence};
}

static void fenced_free(Fenced *f) {
    if (mprotect(f->fence, (size_t)sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE)) abort();
    free(f->block);
}

// Fills blocks with random bits, except for the scales: all values of every field occur.
static void random_weights(Type type, char *p, size_t bytes) {
    const TypeInfo *info = type_info(type);
    size_t size = (size_t)info->bytes;

    for (size_t at = 0; at < bytes; at += size) {
        float x = test_normal(&state) / 16;
        uint16_t h = type == TYPE_BF16 ? f32_to_bf16(x) : f32_to_f16(x);
        if (type == TYPE_F32) {
            memcpy(p + at, &x, size);
        } else if (!quant_is_integer(type)) {
            memcpy(p + at, &h, size);
        } else {
            for (size_t i = 0; i < size; i++) p[at + i] = (char)random_int(256);
            if (info->d_at >= 0) memcpy(p + at + info->d_at, &h, 2);

            // The float16 d of IQ1_M is in the high nibbles of four words.
            for (int i = 0; i < 4 && type == TYPE_IQ1_M; i++) {
                char *top = p + at + offsetof(BlockIQ1_M, scales) + 2 * i + 1;
                *top = (char)((*top & 15) | (h >> 4 * i & 15) << 4);
            }

            // The float16 of the minima follows d.
            h = f32_to_f16(test_normal(&state) / 16);
            if (info->has_min) memcpy(p + at + info->d_at + 2, &h, 2);
        }
    }
}

typedef struct {
    Tensor w;
    Fenced weights;
    int n;
    float *x;        // (n, cols)
    float *expected; // (n, rows)
    double scale; // sum of (w x)^2 over all products of all outputs, which errors are relative to
} Problem;

static Problem problem_new(Type type, int rows, int cols, int n) {
    size_t row_bytes = quant_row_bytes(type, (size_t)cols);
    Problem p = {.w = {NULL, type, rows, cols, row_bytes, 1, NULL, NULL, false},
                 .weights = fenced_new((size_t)rows * row_bytes),
                 .n = n};

    // Random weights and activations.
    p.w.data = p.weights.data;
    random_weights(type, p.weights.data, (size_t)rows * row_bytes);
    p.x = xalloc((size_t)n * (size_t)cols, sizeof(float));
    p.expected = xalloc((size_t)n * (size_t)rows, sizeof(float));
    for (int i = 0; i < n * cols; i++) p.x[i] = test_normal(&state);

    // The products in double precision.
    float *row = xalloc((size_t)cols, sizeof(float));
    for (int r = 0; r < rows; r++) {
        quant_decode_row(type, p.weights.data + (size_t)r * row_bytes, row, (size_t)cols);
        for (int t = 0; t < n; t++) {
            double sum = 0;
            for (int k = 0; k < cols; k++) {
                double product = (double)row[k] * p.x[t * cols + k];
                sum += product;
                p.scale += product * product;
            }
            p.expected[t * rows + r] = (float)sum;
        }
    }

    free(row);
    return p;
}

static void problem_free(Problem *p) {
    free(p->x);
    free(p->expected);
    fenced_free(&p->weights);
}

enum { GAP = 3 }; // columns of out after the rows, which must stay untouched

// Returns the product as out (n, rows + GAP). Encodes the tokens in two parts and computes row_step
// rows at a time.
static float *multiply(const MatmulKernel *m, const Tensor *w, const float *x, int n,
                       int row_step) {
    size_t stride = (size_t)(w->rows + GAP), bytes = (m->encoded_bytes(n, w->cols) + 63) / 64 * 64;
    float *out = xalloc((size_t)(n + 1) * stride, sizeof(float));
    void *encoded = xalloc(bytes + 64, 1);

    // Mark the memory past the encoding and between the outputs.
    memset((char *)encoded + bytes, 77, 64);
    for (size_t i = 0; i < (size_t)(n + 1) * stride; i++) out[i] = -12345;

    // Encode in two parts, and multiply in pieces of rows.
    int half = n / 2 / m->token_step * m->token_step;
    m->encode(encoded, x, n, w->cols, half, n);
    if (half) m->encode(encoded, x, n, w->cols, 0, half);
    for (int r = 0; r < w->rows; r += row_step)
        m->rows(out, stride, w, encoded, n, r, r + row_step < w->rows ? r + row_step : w->rows);

    // Nothing else was written.
    for (size_t i = 0; i < (size_t)(n + 1) * stride; i++)
        if (i % stride >= (size_t)w->rows || i / stride >= (size_t)n)
            CHECK(out[i] == -12345, "%s %s: wrote out[%zu]", kernel.name, type_info(w->type)->name,
                  i);
    for (size_t i = 0; i < 64; i++)
        CHECK(((char *)encoded)[bytes + i] == 77, "%s: encode wrote past the end", kernel.name);

    free(encoded);
    return out;
}

static void check_product(const Problem *p, const MatmulKernel *m, const char *kernel_name) {
    const Tensor *w = &p->w;
    const char *type = type_info(w->type)->name;

    // Errors must be below 1e-6 with float32 activations, 1e-4 with bf16 (AMX prefill) and 5e-4
    // with 8 bits. The limits here are stricter, because the errors of many outputs are averaged.
    bool is_gemm = m != &kernel.gemv[w->type];
    double error = 0, limit = 1e-10;
    if (m == &kernel.gemm_large[w->type]) limit = 3e-5;
    if (quant_is_integer(w->type)) limit = p->n * w->rows < 10 ? 5e-4 : 1e-4;
    size_t stride = (size_t)(w->rows + GAP);

    int step = (w->rows + 2) / 3 + m->row_step - 1; // gemv accepts any range of rows: here four
    float *whole = multiply(m, w, p->x, p->n, w->rows),
          *parts = multiply(m, w, p->x, p->n, is_gemm ? step - step % m->row_step : 4);
    CHECK(!memcmp(whole, parts, (size_t)p->n * stride * sizeof(float)),
          "%s %s %s: result depends on the range of rows", kernel.name, kernel_name, type);

    // The error against the products in double precision.
    for (int t = 0; t < p->n; t++)
        for (int r = 0; r < w->rows; r++) {
            double e = (double)whole[(size_t)t * stride + (size_t)r] - p->expected[t * w->rows + r];
            error += e * e;
        }
    CHECK(error / p->scale <= limit, "%s %s %s (%d, %d), %d tokens: error %.2e", kernel.name,
          kernel_name, type, w->rows, w->cols, p->n, error / p->scale);

    // A token has the bits that it has alone.
    int every = p->n > 4 ? 5 : 1;
    for (int t = 0; (!is_gemm || m->has_gemv_bits) && t < p->n; t += every) {
        float *alone =
            multiply(&kernel.gemv[w->type], w, p->x + (size_t)t * (size_t)w->cols, 1, w->rows);
        CHECK(!memcmp(alone, whole + (size_t)t * stride, (size_t)w->rows * sizeof(float)),
              "%s %s %s: token %d of %d has other bits than alone", kernel.name, kernel_name, type,
              t, p->n);
        free(alone);
    }

    free(whole);
    free(parts);
}

static void products(void) {
    static const struct {
        int rows, cols, n;
    } shapes[] = {{1, 32, 1},     {70, 96, 5},    {5, 288, 33},  {37, 256, 2},  {64, 768, 7},
                  {33, 4352, 3},  {16, 1056, 12}, {3, 50, 6},    {300, 288, 4}, {48, 1312, 70},
                  {100, 544, 24}, {2, 800, 130},  {18, 16896, 3}};

    if (!use_backend()) return;
    for (uint32_t type = 0; type < TYPE_COUNT; type++) {
        if (!quant_is_supported(type)) continue;

        for (size_t s = type % (uint32_t)test_step(3); s < sizeof shapes / sizeof *shapes;
             s += (size_t)test_step(3)) {
            int block = type_info(type)->block, cols = (shapes[s].cols + block - 1) / block * block;
            state = 1 + s;
            Problem p = problem_new((Type)type, shapes[s].rows, block > 1 ? cols : shapes[s].cols,
                                    shapes[s].n);

            check_product(&p, &kernel.gemv[type], "gemv");
            if (kernel.gemm[type].rows && p.n >= kernel.gemm[type].min_tokens)
                check_product(&p, &kernel.gemm[type], "gemm");
            if (kernel.gemm_large[type].rows && p.n >= kernel.gemm_large[type].min_tokens)
                check_product(&p, &kernel.gemm_large[type], "gemm_large");

            problem_free(&p);
        }
    }
}

// True if fmaf rounds once; that of mingw-w64 rounds twice.
static bool is_fma_exact(void) {
    volatile float a = 24929, b = 673, c = 0x1p-60f; // a * b is halfway between two floats
    return fmaf(a, b, c) == 0x1.000002p24f;
}

// Multiplies a row of an integer type by a token in the order of sums that docs/numerics.md
// documents.
static float product_as_documented(const Tensor *w, const char *row, const float *x) {
    const TypeInfo *f = type_info(w->type);
    float sum = 0;

    for (int k = 0; k < w->cols; k += 32) {
        QuantBlock b;
        int at = k % f->block;
        quant_unpack(w->type)(row + k / f->block * f->bytes, &b);

        for (int g = 0; g < 32; g += f->group) {
            float max = 0, x_scale, inverse;
            int dot = 0, total = 0, group = (at + g) / QUANT_GROUP;
            bool is_finite = true;
            for (int c = 0; c < 32; c++) {
                max = fmaxf(max, fabsf(x[k + c]));
                is_finite = is_finite && isfinite(x[k + c]);
            }
            inverse = max > 0 ? 127 / max : 0;
            x_scale = is_finite ? max / 127 : NAN;

            for (int c = g; c < g + f->group && is_finite; c++) {
                int q = (int)rintf(x[k + c] * inverse);
                dot += b.q[at + c] * q;
                total += q;
            }

            sum = fmaf((float)dot * b.scale[group], x_scale, sum);
            if (f->has_min) sum = fmaf(-b.min[group], x_scale * (float)total, sum);
        }
    }
    return sum;
}

// True if two results have the same bits, or are both NaN.
static bool same_bits(float a, float b) {
    return !memcmp(&a, &b, sizeof a) || (isnan(a) && isnan(b));
}

// Compares a kernel, bit by bit, with the documented order.
static void check_order(const Problem *p, const MatmulKernel *m, const char *kernel_name) {
    const Tensor *w = &p->w;
    float *out = multiply(m, w, p->x, p->n, w->rows);

    for (int t = 0; t < p->n; t++)
        for (int r = 0; r < w->rows; r++) {
            const char *row = p->weights.data + (size_t)r * w->row_bytes;
            float expected = product_as_documented(w, row, p->x + t * w->cols);
            float found = out[t * (w->rows + GAP) + r];
            CHECK(same_bits(found, expected),
                  "%s %s %s (%d, %d), token %d of %d, row %d: %a, documented order %a", kernel.name,
                  kernel_name, type_info(w->type)->name, w->rows, w->cols, t, p->n, r,
                  (double)found, (double)expected);
        }
    free(out);
}

// All kernels of integer types that do not round the weights have one order of sums, for any number
// of tokens, on every backend with vectors.
static void documented_order(void) {
    static const struct {
        int rows, cols, n;
    } shapes[] = {{3, 2048, 5},  {33, 1312, 3}, {2, 96, 1},    {17, 352, 2},
                  {40, 544, 24}, {70, 800, 40}, {5, 1056, 25}, {16, 256, 4}};
    bool is_scalar = !strcmp(backend, "scalar");

    if (!use_backend() || !is_fma_exact()) return;
    for (uint32_t type = 0; type < TYPE_COUNT && !is_scalar; type++) {
        if (!quant_is_supported(type) || !quant_is_integer((Type)type)) continue;

        for (size_t s = type % (uint32_t)test_step(4); s < sizeof shapes / sizeof *shapes;
             s += (size_t)test_step(4)) {
            int block = type_info(type)->block;
            state = 1 + s;
            Problem p = problem_new((Type)type, shapes[s].rows,
                                    (shapes[s].cols + block - 1) / block * block, shapes[s].n);
            p.x[7] = s == 3 ? NAN : p.x[7];
            memset(p.x + 32, 0, s == 2 ? 32 * sizeof(float) : 0);

            if (kernel.gemm[type].has_gemv_bits) check_order(&p, &kernel.gemv[type], "gemv");
            if (kernel.gemm[type].rows) check_order(&p, &kernel.gemm[type], "gemm");
            problem_free(&p);
        }
    }
}

// A row with an infinite scale has no finite result; all other rows do. Rows end within a
// superblock, so that vector kernels read the scale together with the end of the row before.
static void check_infinite_scale(Type type) {
    enum { ROWS = 35, COLS = 3 * 256 + 128 };
    const uint16_t infinity = 0x7c00; // in types of blocks, the scale comes first
    Problem p = problem_new(type, ROWS, COLS, 8);
    const MatmulKernel *const kernels[] = {&kernel.gemv[type], &kernel.gemm[type],
                                           &kernel.gemm_large[type]};

    for (int r = 6; r < ROWS; r += 8)
        memcpy(p.weights.data + (size_t)r * p.w.row_bytes, &infinity, sizeof infinity);
    for (int g = 0; g < 3; g++) {
        if (!kernels[g]->rows) continue;
        float *out = multiply(kernels[g], &p.w, p.x, p.n, ROWS);
        for (int i = 0; i < p.n * (ROWS + GAP); i++) {
            int r = i % (ROWS + GAP);
            bool is_infinite = r % 8 == 6;
            CHECK(r >= ROWS || !isfinite(out[i]) == is_infinite, "%s %s: %g in row %d", kernel.name,
                  type_info(type)->name, (double)out[i], r);
        }
        free(out);
    }
    problem_free(&p);
}

// A token with a value that is not finite has no finite result; all other tokens do.
static void not_finite(void) {
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    if (!use_backend()) return;

    for (uint32_t type = 0; type < TYPE_COUNT; type++) {
        if (!quant_is_supported(type)) continue;
        state = 5;
        if (type_info(type)->block > 1 && type_info(type)->block < 256)
            check_infinite_scale((Type)type);
        Problem p = problem_new((Type)type, 19, 512, 8);

        for (int b = 0; b < 3; b++) {
            p.x[3 * 512 + 100 * b] = bad[b];
            const MatmulKernel *const kernels[] = {&kernel.gemv[type], &kernel.gemm[type],
                                                   &kernel.gemm_large[type]};

            for (int g = 0; g < 3; g++) {
                const MatmulKernel *m = kernels[g];
                if (!m->rows) continue;
                float *out = multiply(m, &p.w, p.x, p.n, 19);
                for (int j = 0; j < p.n * (19 + GAP); j++)
                    if (j % (19 + GAP) < 19)
                        CHECK(!isfinite(out[j]) == (j / (19 + GAP) == 3), "%s %s: %g at token %d",
                              kernel.name, type_info(type)->name, (double)out[j], j / (19 + GAP));
                free(out);
            }

            p.x[3 * 512 + 100 * b] = 1;
        }
        problem_free(&p);
    }
}

static void check_near(const float *a, const float *b, int n, double limit, const char *operation) {
    CHECK(test_nmse(a, b, (size_t)n) <= limit, "%s %s (%d): error %.2e", kernel.name, operation, n,
          test_nmse(a, b, (size_t)n));
}

static void elementwise(void) {
    enum { MOST = 4100 };
    static const int sizes[] = {1, 2, 7, 16, 31, 64, 100, 288, 4096, MOST};
    static float x[MOST], y[MOST], out[MOST + 1], expected[MOST];
    if (!use_backend()) return;

    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        int n = sizes[s];
        double square = 0;
        state = 9;
        for (int j = 0; j < n; j++) {
            x[j] = test_normal(&state) * 9;
            y[j] = test_normal(&state);
        }
        for (int j = 0; j < n; j++) square += (double)x[j] * x[j];

        // RMSNorm.
        out[n] = 77;
        kernel.rmsnorm(out, x, y, 1e-5f, n);
        for (int j = 0; j < n; j++) expected[j] = (float)(x[j] / sqrt(square / n + 1e-5f) * y[j]);
        check_near(out, expected, n, 1e-13, "rmsnorm");

        // SwiGLU.
        memcpy(out, x, (size_t)n * sizeof(float));
        kernel.swiglu(out, y, n);
        for (int j = 0; j < n; j++) expected[j] = (float)(x[j] / (1 + exp(-(double)x[j])) * y[j]);
        check_near(out, expected, n, 1e-13, "swiglu");

        // Addition.
        memcpy(out, x, (size_t)n * sizeof(float));
        kernel.add(out, y, n);
        for (int j = 0; j < n; j++) CHECK(out[j] == x[j] + y[j], "%s add", kernel.name);
        CHECK(out[n] == 77, "%s (%d): wrote past the end", kernel.name, n);
    }

    // SwiGLU of large values, and of values that are not finite.
    float gate[4] = {-200, 200, NAN, -INFINITY}, up[4] = {1, 1, 1, 1};
    kernel.swiglu(gate, up, 4);
    CHECK(fabsf(gate[0]) < 1e-30f && gate[1] == 200 && isnan(gate[2]), "%s: %g %g %g", kernel.name,
          (double)gate[0], (double)gate[1], (double)gate[2]);
}

static void stores(void) {
    static const Type types[] = {TYPE_F32, TYPE_F16, TYPE_Q8_0, TYPE_Q4_0};
    static const double limits[] = {0, 1e-7, 5e-5, 1e-2};
    if (!use_backend()) return;
    state = 7;
    for (int c = 0; c < 16; c++) {
        Type type = types[c % 4];
        if (type == TYPE_Q8_0 && !strcmp(kernel.name, "scalar"))
            continue; // tested with quant_encode

        int n = (c / 4 + 1) * (type_info(type)->block == 32 ? 32 : 26);
        float x[128], back[128];
        char row[600];
        memset(row, 77, sizeof row);
        for (int j = 0; j < n; j++) x[j] = test_normal(&state);

        kernel.store(type, row, x, n);
        CHECK(row[quant_row_bytes(type, (size_t)n)] == 77, "%s %d: wrote past the end", kernel.name,
              n);

        // Rounding errors by type.
        quant_decode_row(type, row, back, (size_t)n);
        check_near(back, x, n, limits[c % 4], type_info(type)->name);

        for (int j = 0; type == TYPE_F16 && j < n; j++)
            CHECK(back[j] == f16_to_f32(f32_to_f16(x[j])), "%s: not rounded to nearest even",
                  kernel.name);

        // NaN stays NaN.
        x[n - 1] = NAN;
        kernel.store(type, row, x, n);
        quant_decode_row(type, row, back, (size_t)n);
        CHECK(isnan(back[n - 1]), "%s %s: NaN became %g", kernel.name, type_info(type)->name,
              (double)back[n - 1]);
    }
}

static double dot(const float *x, const float *y, int n) {
    double sum = 0;
    for (int d = 0; d < n; d++) sum += (double)x[d] * (double)y[d];
    return sum;
}

// Attention over one page, of which query i sees n_keys[i] keys, by kernel.attend or, with is_many,
// kernel.attend_many. The result of a query must have the same bits when it is the only query.
static void check_attend(Type k_type, Type v_type, int dim, int n_q, int most_keys, bool is_many) {
    enum { Q = ATTEND_MANY_QUERIES };
    void (*attend)(const AttentionPage *) = is_many ? kernel.attend_many : kernel.attend;
    static float q[Q * 256], values[2][KV_PAGE][256], acc[Q * 256 + 1], alone[256], expected[256];
    float max[Q], sum[Q], max_alone, sum_alone;
    int n_keys[Q];
    Type types[2] = {k_type, v_type};
    Fenced kv[2];
    for (int i = 0; i < n_q * dim; i++)
        q[i] = test_normal(&state) * (k_type == TYPE_Q8_0   ? 0.02f
                                      : k_type == TYPE_Q4_0 ? 0.3f
                                                            : 2.0f);
    for (int i = 0; i < n_q; i++) n_keys[i] = random_int(most_keys + 1);
    n_keys[0] = most_keys;
    for (int s = 0; s < 2; s++) {
        size_t row_bytes = quant_row_bytes(types[s], (size_t)dim);
        kv[s] = fenced_new((size_t)most_keys * row_bytes);
        random_weights(types[s], kv[s].data, (size_t)most_keys * row_bytes);
        for (int j = 0; j < most_keys; j++)
            quant_decode_row(types[s], kv[s].data + (size_t)j * row_bytes, values[s][j],
                             (size_t)dim);
    }
    // AVX-512 multiplies keys of Q8_0 and Q4_0 as integers and rounds the queries to 16 bits
    // (largest error seen: 5.1e-9). Its attend_many rounds queries, keys, values and weights
    // (kernels/x86/attention_int16.h), that of AMX rounds them to bf16.
    bool is_amx = !strcmp(kernel.name, "amx"), is_int16 = is_many && !is_amx;
    bool is_rounded = quant_is_integer(k_type) && (is_amx || !strcmp(kernel.name, "avx512"));
    double limit = is_rounded ? 1e-8 : 1e-10, max_limit = is_rounded ? 1e-3 : 1e-4;
    if (is_many) limit = is_amx ? 1e-3 : 4e-7;
    if (is_many && is_amx) max_limit = 0.1;

    acc[n_q * dim] = 77;
    AttentionPage page = {.q = q,
                          .k = kv[0].data,
                          .v = kv[1].data,
                          .n_keys = n_keys,
                          .k_type = k_type,
                          .v_type = v_type,
                          .n_q = n_q,
                          .head_dim = dim,
                          .max = max,
                          .sum = sum,
                          .acc = acc};
    attend(&page);
    CHECK(acc[n_q * dim] == 77, "%s: wrote past the end", kernel.name);
    for (int i = 0; i < n_q; i++) {
        const float *x = q + i * dim;
        double total = 0, scores[KV_PAGE], top = -INFINITY, k_square = 0;
        for (int j = 0; j < n_keys[i]; j++) {
            scores[j] = dot(x, values[0][j], dim);
            top = fmax(top, scores[j]);
            k_square = fmax(k_square, dot(values[0][j], values[0][j], dim));
        }
        // Root mean square error of a score with the longest key, by the scales of Q and K.
        double score_error = is_int16 ? 1.3e-5 * sqrt(dot(x, x, dim) * k_square) : 0;
        for (int j = 0; j < n_keys[i]; j++) total += scores[j] = exp(scores[j] - top);
        for (int d = 0; d < dim; d++) {
            double out = 0;
            for (int j = 0; j < n_keys[i]; j++) out += scores[j] * values[1][j][d];
            expected[d] = (float)(n_keys[i] ? out / total : 0);
            alone[d] = n_keys[i] ? acc[i * dim + d] / sum[i] : acc[i * dim + d];
        }
        const char *k_name = type_info(k_type)->name, *v_name = type_info(v_type)->name;
        double error = n_keys[i] ? test_nmse(alone, expected, (size_t)dim) : 0;
        CHECK(error < limit + 4 * score_error * score_error,
              "%s attend %s, %s dim %d query %d of %d, %d keys: error %.2e", kernel.name, k_name,
              v_name, dim, i, n_q, n_keys[i], error);
        CHECK(n_keys[i] ? fabs(max[i] - top) < max_limit + 6 * score_error
                        : isinf(max[i]) && sum[i] == 0,
              "%s: wrong maximum %g", kernel.name, (double)max[i]);
        AttentionPage one = page;
        one.q += i * dim;
        one.n_keys += i;
        one.n_q = 1;
        one.max = &max_alone;
        one.sum = &sum_alone;
        one.acc = alone;
        attend(&one);
        CHECK(max_alone == max[i] && sum_alone == sum[i] &&
                  !memcmp(alone, acc + i * dim, (size_t)dim * sizeof(float)),
              "%s attend %s, %s dim %d: query %d of %d has other bits than alone", kernel.name,
              k_name, v_name, dim, i, n_q);
    }
    fenced_free(&kv[0]);
    fenced_free(&kv[1]);
}

static void attention(void) {
    static const Type types[] = {TYPE_F32, TYPE_F16, TYPE_Q8_0, TYPE_Q4_0};
    static const int dims[] = {64, 128, 32, 256, 48, 6},
                     queries[] = {1, 4, 7, ATTEND_MAX_QUERIES, 5, 3},
                     keys[] = {1, 256, 33, 77, 16, 255};
    if (!use_backend()) return;
    for (int c = 0; c < 6 * 16; c++) {
        Type k_type = types[c / 6 % 4], v_type = types[c / 24];
        int dim = dims[c % 6];
        state = 3 + (uint64_t)c;
        if (dim % type_info(k_type)->block == 0 && dim % type_info(v_type)->block == 0)
            check_attend(k_type, v_type, dim, queries[c % 6], keys[c % 6], false);
    }
}

static void attention_of_many(void) {
    static const Type types[] = {TYPE_F16, TYPE_Q8_0, TYPE_Q4_0};
    static const int dims[] = {64, 128, 96, 256, 80, 6, 192},
                     queries[] = {17, 256, 31, 20, 150, 25, 18},
                     keys[] = {256, 77, 33, 255, 200, 16, 1};
    if (!use_backend()) return;
    for (int c = 0; kernel.attend_many && c < 7 * 9; c++) {
        Type k_type = types[c / 7 % 3], v_type = types[c / 21];
        int dim = dims[c % 7];
        state = 3 + (uint64_t)c;
        if (dim % type_info(k_type)->block == 0 && dim % type_info(v_type)->block == 0)
            check_attend(k_type, v_type, dim, queries[c % 7], keys[c % 7], true);
    }
}

// The float arithmetic that docs/numerics.md documents, in scalar code. The vector backends must
// have its bits, and therefore those of each other.

enum { SUM_LANES = 16 };

static float add_lanes(const float *lanes) {
    float s[SUM_LANES];
    memcpy(s, lanes, sizeof s);
    for (int n = SUM_LANES / 2; n > 0; n /= 2)
        for (int i = 0; i < n; i++) s[i] += s[i + n];
    return s[0];
}

// With n_sums = 4, the sums take 16 columns in turn.
static float dot_of_lanes(const float *a, const float *b, int n, int n_sums) {
    float s[4][SUM_LANES] = {{0}};
    for (int i = 0; i < n; i++) {
        float *lane = &s[i / SUM_LANES % n_sums][i % SUM_LANES];
        *lane = fmaf(a[i], b[i], *lane);
    }
    for (int i = 0; i < SUM_LANES; i++) s[0][i] = (s[0][i] + s[1][i]) + (s[2][i] + s[3][i]);
    return add_lanes(s[0]);
}

// e^x as in exp_floats()
static float exp_as_documented(float x) {
    static const float coefficients[] = {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f,
                                         1.6666665459e-1f, 5.0000001201e-1f};
    float p = 1.9875691500e-4f;
    x = fmaxf(-87, fminf(88, x));
    float n = rintf(x * 1.44269504f);
    float r = fmaf(-n, -2.12194440e-4f, fmaf(-n, 0.693359375f, x));
    for (int i = 0; i < 5; i++) p = fmaf(p, r, coefficients[i]);
    return ldexpf(fmaf(p, r * r, r) + 1, (int)n);
}

// The attention of one query: keys (n, dim), and values as integers or floats times a scale.
static void attend_as_documented(const float *q, const float *keys, const float *values,
                                 const float *scales, int n, int dim, float *max, float *sum,
                                 float *acc) {
    float weights[KV_PAGE], lanes[SUM_LANES] = {0};

    *max = -INFINITY;
    for (int k = 0; k < n; k++) {
        weights[k] = 0;
        for (int d = 0; d < dim; d++) weights[k] = fmaf(keys[k * dim + d], q[d], weights[k]);
        *max = fmaxf(*max, weights[k]);
    }

    for (int k = 0; k < n; k++) {
        weights[k] = exp_as_documented(weights[k] - *max);
        lanes[k % SUM_LANES] += weights[k];
    }
    *sum = add_lanes(lanes);

    for (int d = 0; d < dim; d++) {
        acc[d] = 0;
        for (int k = 0; k < n; k++)
            acc[d] = fmaf(values[k * dim + d], weights[k] * scales[(k * dim + d) / 32], acc[d]);
    }
}

static bool has_documented_arithmetic(void) {
    if (!use_backend()) return false;
    if (strcmp(backend, "scalar") && is_fma_exact()) return true;
    test_skip("has another arithmetic");
    return false;
}

static void documented_elementwise(void) {
    enum { MOST = 4100 };
    static const int sizes[] = {1, 7, 17, 40, 63, 100, 288, 4096, MOST};
    static float x[MOST], y[MOST], out[MOST];
    if (!has_documented_arithmetic()) return;

    state = 4;
    for (int i = 0; i < MOST; i++) {
        x[i] = test_normal(&state) * 20;
        y[i] = test_normal(&state);
    }
    x[3] = 100;
    x[5] = -100;

    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        int n = sizes[s];
        float scale = 1 / sqrtf(dot_of_lanes(x, x, n, 4) / (float)n + 1e-5f);
        kernel.rmsnorm(out, x, y, 1e-5f, n);
        for (int i = 0; i < n; i++)
            CHECK(out[i] == x[i] * scale * y[i], "%s rmsnorm (%d): out[%d] is %a", kernel.name, n,
                  i, (double)out[i]);

        memcpy(out, x, (size_t)n * sizeof *x);
        kernel.swiglu(out, y, n);
        for (int i = 0; i < n; i++)
            CHECK(out[i] == x[i] / (1 + exp_as_documented(-x[i])) * y[i],
                  "%s swiglu (%d): out[%d] is %a", kernel.name, n, i, (double)out[i]);
    }
}

static void documented_float_products(void) {
    static const Type types[] = {TYPE_F32, TYPE_F16, TYPE_BF16};
    static const int cols[] = {5, 24, 37, 64, 299, 1056};
    float row[1056];
    if (!has_documented_arithmetic()) return;

    for (int c = 0; c < 18; c++) {
        state = 6;
        Problem p = problem_new(types[c / 6], 5, cols[c % 6], 3);
        float *out = multiply(&kernel.gemv[types[c / 6]], &p.w, p.x, 3, 5);

        for (int i = 0; i < 3 * 5; i++) {
            int t = i / 5, r = i % 5;
            quant_decode_row(p.w.type, p.weights.data + (size_t)r * p.w.row_bytes, row,
                             (size_t)p.w.cols);
            float expected = dot_of_lanes(row, p.x + t * p.w.cols, p.w.cols, 1);
            CHECK(out[t * (5 + GAP) + r] == expected, "%s %s, %d columns: %a instead of %a",
                  kernel.name, type_info(p.w.type)->name, p.w.cols, (double)out[t * (5 + GAP) + r],
                  (double)expected);
        }

        free(out);
        problem_free(&p);
    }
}

// Decodes rows of the KV cache. Rows of Q8_0 and Q4_0 are stored as integers with a scale per 32.
static void decode_kv(Type type, const void *rows, int n, float *out, float *scales) {
    const char *p = rows;
    quant_decode_row(type, rows, out, (size_t)n);
    for (int k = 0; k < n; k += 32) {
        uint16_t d;
        scales[k / 32] = 1;
        if (!quant_is_integer(type)) continue;
        memcpy(&d, p + k / 32 * type_info(type)->bytes, sizeof d);
        scales[k / 32] = f16_to_f32(d);
        for (int i = k; i < k + 32; i++) out[i] = rintf(out[i] / scales[k / 32]);
    }
}

static void documented_attention(void) {
    enum { DIM = 64, N_Q = 5 };
    static const Type types[] = {TYPE_F32, TYPE_F16, TYPE_Q8_0, TYPE_Q4_0};
    static const int n_keys[N_Q] = {KV_PAGE, 1, 19, 100, 231};
    static float q[N_Q * DIM], x[2][KV_PAGE * DIM], scales[2][KV_PAGE * DIM / 32], acc[N_Q * DIM];
    static char rows[2][KV_PAGE * DIM * sizeof(float)];
    float max[N_Q], sum[N_Q], expected_max, expected_sum, expected[DIM];
    if (!has_documented_arithmetic()) return;

    for (int c = 0; c < 16; c++) {
        const Type type[2] = {types[c / 4], types[c % 4]};
        state = 8;
        for (int i = 0; i < N_Q * DIM; i++) q[i] = test_normal(&state);
        for (int s = 0; s < 2; s++) {
            for (int i = 0; i < KV_PAGE * DIM; i++) x[s][i] = test_normal(&state);
            kernel.store(type[s], rows[s], x[s], KV_PAGE * DIM);
            decode_kv(type[s], rows[s], KV_PAGE * DIM, x[s], scales[s]);
        }
        for (int i = 0; i < KV_PAGE * DIM; i++) x[0][i] *= scales[0][i / 32]; // exact

        AttentionPage page = {.q = q,
                              .k = rows[0],
                              .v = rows[1],
                              .n_keys = n_keys,
                              .k_type = type[0],
                              .v_type = type[1],
                              .n_q = N_Q,
                              .head_dim = DIM,
                              .is_float32 = true,
                              .max = max,
                              .sum = sum,
                              .acc = acc};
        kernel.attend(&page);

        for (int i = 0; i < N_Q; i++) {
            attend_as_documented(q + i * DIM, x[0], x[1], scales[1], n_keys[i], DIM, &expected_max,
                                 &expected_sum, expected);
            CHECK(max[i] == expected_max && sum[i] == expected_sum &&
                      !memcmp(acc + i * DIM, expected, sizeof expected),
                  "%s: attention of %s, %s, query %d: maximum %a, sum %a instead of %a",
                  kernel.name, type_info(type[0])->name, type_info(type[1])->name, i,
                  (double)max[i], (double)sum[i], (double)expected_sum);
        }
    }
}

// A row of Q8_0 of the KV cache: float16 scale, integers rounded to nearest even.
static void documented_store(void) {
    enum { N = 256 };
    static const float factors[N / 32] = {1, 1e-3f, 300, 0x1p-110f, 1e-9f, 7e4f, 0, 1e-5f};
    BlockQ8_0 row[N / 32];
    float x[N];
    if (!has_documented_arithmetic()) return;

    state = 12;
    for (int i = 0; i < N; i++) x[i] = test_normal(&state) * factors[i / 32];
    kernel.store(TYPE_Q8_0, row, x, N);

    for (int b = 0; b < N / 32; b++) {
        float max = 0;
        for (int i = 0; i < 32; i++) max = fmaxf(max, fabsf(x[32 * b + i]));
        if (max < 0x1p-100f) max = 0;
        CHECK(row[b].d == f32_to_f16(max / 127), "%s: scale %d is %x", kernel.name, b, row[b].d);
        for (int i = 0; i < 32; i++)
            CHECK(row[b].qs[i] == (max > 0 ? (int)rintf(x[32 * b + i] * (127 / max)) : 0),
                  "%s: integer %d of block %d is %d", kernel.name, i, b, row[b].qs[i]);
    }
}

static bool is_same_or_nan(const float *a, const float *b, int n) {
    for (int i = 0; i < n; i++)
        if (a[i] != b[i] && !(isnan(a[i]) && isnan(b[i]))) return false;
    return true;
}

// Attention of many queries in 16-bit integers has the bits of attend() for a query that is not
// finite or very large, and for one that sees such a key, or a value that is not finite. All other
// queries keep their bits.
static void attention_extreme(void) {
    enum { N = 40, DIM = 64, BAD = 20, LAST = BAD * DIM + DIM - 1 }; // N queries and keys
    static const float bad[] = {NAN, INFINITY, -INFINITY, 8192};
    static float q[N * DIM], usual[N * DIM], found[N * DIM], expected[DIM];
    static uint16_t kv[2][N * DIM];
    float max[N], sum[N], max_expected, sum_expected;
    int n_keys[N], n_finite = 0;
    AttentionPage page = {.q = q,
                          .k = kv[0],
                          .v = kv[1],
                          .n_keys = n_keys,
                          .k_type = TYPE_F16,
                          .v_type = TYPE_F16,
                          .n_q = N,
                          .head_dim = DIM,
                          .max = max,
                          .sum = sum,
                          .acc = usual};
    if (!use_backend() || !kernel.attend_many || !strcmp(kernel.name, "amx")) return;

    state = 11;
    for (int i = 0; i < N; i++) n_keys[i] = i + 1;
    for (int i = 0; i < N * DIM; i++) q[i] = test_normal(&state);
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < N * DIM; i++) kv[s][i] = f32_to_f16(test_normal(&state));
    kernel.attend_many(&page);

    // The last element of row BAD of K, V or Q, in turn.
    for (int c = 0; c < 3 * 4; c++) {
        const char *name = (const char *[]){"K", "V", "Q"}[c / 4];
        float x = bad[c % 4], saved_q = q[LAST];
        uint16_t saved[2] = {kv[0][LAST], kv[1][LAST]};
        if (c / 4 == 2)
            q[LAST] = x;
        else
            kv[c / 4][LAST] = f32_to_f16(x);
        page.acc = found;
        kernel.attend_many(&page);

        for (int i = 0; i < N; i++) {
            AttentionPage one = page;
            one.q += i * DIM;
            one.n_keys += i;
            one.n_q = 1;
            one.max = &max_expected;
            one.sum = &sum_expected;
            one.acc = expected;
            kernel.attend(&one);
            bool is_seen = c / 4 == 2 ? i == BAD : i >= BAD;
            if (is_seen && c / 4 == 1 && x == 8192) continue; // has a scale of its own
            bool is_right = is_seen ? is_same_or_nan(found + i * DIM, expected, DIM) &&
                                          is_same_or_nan(max + i, &max_expected, 1) &&
                                          is_same_or_nan(sum + i, &sum_expected, 1)
                                    : !memcmp(found + i * DIM, usual + i * DIM, sizeof expected);
            CHECK(is_right, "%s: %g in %s, query %d: %g", kernel.name, (double)x, name, i,
                  (double)found[i * DIM + DIM - 1]);
            if (c == 2 && is_seen) n_finite += isfinite(found[i * DIM] / sum[i]) != 0;
        }

        q[LAST] = saved_q;
        for (int s = 0; s < 2; s++) kv[s][LAST] = saved[s];
    }
    CHECK(n_finite > 0, "%s: a key of -infinity has a weight", kernel.name);
}

void test_kernels(void) {
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {{"products of every type", products},
                 {"order of sums", documented_order},
                 {"values that are not finite", not_finite},
                 {"elementwise", elementwise},
                 {"rows of the KV cache", stores},
                 {"attention over a page", attention},
                 {"attention of many queries", attention_of_many},
                 {"attention of extreme values", attention_extreme},
                 {"arithmetic of norms and SwiGLU", documented_elementwise},
                 {"arithmetic of float products", documented_float_products},
                 {"arithmetic of attention", documented_attention},
                 {"arithmetic of stored rows", documented_store}};

    for (size_t r = 0; r < sizeof backends / sizeof *backends; r++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            char name[80];
            backend = backends[r];
            snprintf(name, sizeof name, "kernels: %s: %s", backend, cases[i].name);
            test_case(name, cases[i].run);
        }
    kernels_init(NULL);
}
