// Products of F32, F16 and BF16 weights with float32 activations, for all vector backends: decode,
// GEMM, and the tile that attention_float.h uses as well.
#pragma once

#include "kernels/vector/activations_float.h"
#include "kernels/vector/matmul.h"

enum {
    GEMM_CHUNK_ROWS = 64, // their sums for GEMM_CHUNK_TOKENS tokens take 128 KiB, in L2
    GEMM_CHUNK_TOKENS = 512,
    // Tokens whose activations stay in L1, or near it, while they are multiplied by all panels of a
    // chunk.
    GEMM_SWEEP_TOKENS = 48,
    FLOAT_PANEL = 2 * WIDTH, // outputs (rows of weights) of a tile
    // A tile of decode is four rows by FLOAT_GEMV_TOKENS tokens, with SUM_VECTORS accumulators for
    // each result. Eight accumulators in all hide the latency of FMA.
    FLOAT_GEMV_TOKENS = WIDTH == 16 ? 2 : 1,
    FLOAT_GEMV_STEP = WIDTH == 16 ? 32 : SUM_LANES // columns of a step
};

// Decode. The sums have SUM_LANES lanes (vector_math.h).
INLINE void float_gemv_tile(const Matmul *m, int t0, const int *row, int nt, Type type) {
    const int n = m->w->cols, bytes = type_info(type)->bytes, step = FLOAT_GEMV_STEP;
    const float *x = (const float *)m->encoded + (size_t)t0 * (size_t)n;
    Floats sum[4][FLOAT_GEMV_TOKENS][SUM_VECTORS];
    const char *p[4];

    for (int i = 0; i < 4; i++) {
        p[i] = (const char *)m->w->data + (size_t)row[i] * m->w->row_bytes;
        for (int t = 0; t < nt; t++)
            for (int s = 0; s < SUM_VECTORS; s++) sum[i][t][s] = splat(0);
    }

    int k = 0;
    for (; k + step <= n; k += step) {
        Floats v[FLOAT_GEMV_STEP / WIDTH][FLOAT_GEMV_TOKENS];

        for (int t = 0; t < nt; t++)
            for (int h = 0; h < step / WIDTH; h++)
                v[h][t] = load_n(x + (size_t)t * (size_t)n + k + WIDTH * h, WIDTH);

#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            if (step * bytes >= 64 || k * bytes % 64 == 0)
                for (int b = 0; b < step * bytes; b += 64)
                    __builtin_prefetch(p[i] + k * bytes + PREFETCH_DISTANCE + b);

#pragma GCC unroll 4
            for (int h = 0; h < step / WIDTH; h++) {
                Floats weights = load_as_floats(type, p[i], k + WIDTH * h, WIDTH);
#ifdef __AVX512F__
                if (nt > 1) __asm__("" : "+v"(weights)); // else gcc 12 loads it for each token
#endif
                for (int t = 0; t < nt; t++) {
                    Floats *s = &sum[i][t][h % SUM_VECTORS];
                    *s = fmadd(weights, v[h][t], *s);
                }
            }
        }
    }

    // The last columns, padded with zeros.
    for (; k < n; k += WIDTH)
        for (int i = 0; i < 4; i++)
            for (int t = 0; t < nt; t++) {
                Floats *s = &sum[i][t][k / WIDTH % SUM_VECTORS];
                *s = fmadd(load_as_floats(type, p[i], k, n - k),
                           load_n(x + (size_t)t * (size_t)n + k, n - k), *s);
            }

    for (int i = 0; i < 4; i++)
        for (int t = 0; t < nt; t++)
            m->out[(size_t)(t0 + t) * m->out_stride + (size_t)row[i]] = add_lanes(sum[i][t]);
}

INLINE void float_gemv_rows(const Matmul *p, Type type) {
    gemv_quarters(p, float_gemv_tile, FLOAT_GEMV_TOKENS, type);
}

// The product of activations and a panel of weights, for all tokens: out = x panel. out_stride and
// x_stride count floats from one token to the next, panel_stride bytes from one column k to the
// next.
typedef struct {
    float *out; // (n_tokens, out_stride); the first n_out outputs of a token exist
    size_t out_stride;
    int n_out;
    const float *x; // (n_tokens, x_stride)
    size_t x_stride;
    const void *panel; // (nk, FLOAT_PANEL) of F32, F16 or integers of Q8_0
    size_t panel_stride;
    int nk;
    bool adds;          // add to the values in `out`
    Prefetch *prefetch; // NULL: none
    int prefetch_every; // number of columns per prefetch of four lines
} FloatProduct;

// Computes nt tokens of a product, from token t on. Each k takes two loads, nt broadcasts and 2 nt
// FMAs. Only the tile of token 0 prefetches.
INLINE void float_tile(const FloatProduct *product, int t, int nt, Type type) {
    const FloatProduct p = *product;
    const char *panel = p.panel;
    const float *x = p.x + (size_t)t * p.x_stride;
    float *out = p.out + (size_t)t * p.out_stride;
    Prefetch *prefetch = t == 0 ? p.prefetch : NULL;
    Floats sum[2][GEMM_TILE_TOKENS];

#pragma GCC unroll 6
    for (int i = 0; i < nt; i++)
        for (int h = 0; h < 2; h++)
            sum[h][i] =
                p.adds ? load_n(out + (size_t)i * p.out_stride + WIDTH * h, p.n_out - WIDTH * h)
                       : splat(0);

    for (int k = 0; k < p.nk; k++) {
        if (prefetch && k % p.prefetch_every == 0) prefetch_lines(prefetch, 4);

        const char *at = panel + (size_t)k * p.panel_stride;
        Floats w0 = load_as_floats(type, at, 0, WIDTH);
        Floats w1 = load_as_floats(type, at, WIDTH, WIDTH);
#pragma GCC unroll 6
        for (int i = 0; i < nt; i++) {
            Floats v = splat(x[(size_t)i * p.x_stride + (size_t)k]);
            sum[0][i] = fmadd(w0, v, sum[0][i]);
            sum[1][i] = fmadd(w1, v, sum[1][i]);
        }
    }

#pragma GCC unroll 6
    for (int i = 0; i < nt; i++)
        for (int h = 0; h < 2; h++)
            store_n(out + (size_t)i * p.out_stride + WIDTH * h, p.n_out - WIDTH * h, sum[h][i]);
}

// float_panel, f16_panel and q8_panel: float_tile for any number of tokens.
#define FLOAT_TILE(nt, type) float_tile(p, t, nt, type)
#define DEFINE_FLOAT_PANEL(name, type)                                                             \
    static inline void name(const FloatProduct *p, int n_tokens) {                                 \
        FOR_TOKEN_TILES(n_tokens, FLOAT_TILE, type)                                                \
    }
DEFINE_FLOAT_PANEL(float_panel, TYPE_F32)
DEFINE_FLOAT_PANEL(f16_panel, TYPE_F16)
DEFINE_FLOAT_PANEL(q8_panel, TYPE_Q8_0)

// GEMM, in the thread's scratch memory.
typedef struct {
    float sums[GEMM_CHUNK_TOKENS][GEMM_CHUNK_ROWS];
    float panels[GEMM_CHUNK_ROWS / FLOAT_PANEL][FLOAT_BLOCK_COLS][FLOAT_PANEL];
    float rows[WIDTH][FLOAT_BLOCK_COLS]; // converted to float32, not yet transposed into a panel
} FloatGemmMemory;

_Static_assert(sizeof(FloatGemmMemory) <= KERNEL_SCRATCH, "fits");

// Also prefetches the next block of columns of these rows.
INLINE void float_gemm_pack(GemmStep *s, int r, Type type) {
    FloatGemmMemory *m = s->memory;
    const int bytes = type_info(type)->bytes;
    for (int h = 0; h < FLOAT_PANEL; h += WIDTH) {
        for (int i = 0; i < WIDTH; i++) {
            int row = min_int(s->row + r + h + i, s->p->row_end - 1);
            const char *p = (const char *)s->p->w->data + (size_t)row * s->p->w->row_bytes;
            for (int b = 0; b < FLOAT_BLOCK_COLS * bytes; b += 64)
                __builtin_prefetch(p + (s->k + FLOAT_BLOCK_COLS) * bytes + b, 0, 3);
            convert_row(type, p + s->k * bytes, m->rows[i], s->n_cols);
        }
        transpose_dwords(m->panels[r / FLOAT_PANEL][0] + h, sizeof m->panels[0][0], m->rows,
                         sizeof m->rows[0], s->n_cols, 1);
    }
}

INLINE void float_gemm_multiply(GemmStep *s, int r, int t, int n, Type type) {
    FloatGemmMemory *m = s->memory;
    (void)type;
    FloatProduct p = {.out = m->sums[t] + r,
                      .out_stride = GEMM_CHUNK_ROWS,
                      .n_out = FLOAT_PANEL,
                      .x = (const float *)s->x + t * FLOAT_BLOCK_COLS,
                      .x_stride = FLOAT_BLOCK_COLS,
                      .panel = m->panels[r / FLOAT_PANEL],
                      .panel_stride = sizeof m->panels[0][0],
                      .nk = s->n_cols,
                      .adds = s->k > 0};
    float_panel(&p, n);
}

// The sums are the first member of the scratch memory.
static void float_gemm_store(const GemmStep *s, float *out, size_t out_stride) {
    const float(*sums)[GEMM_CHUNK_ROWS] = s->memory;
    for (int t = 0; t < s->n; t++)
        for (int r = 0; r < s->n_rows; r += WIDTH)
            store_n(out + (size_t)t * out_stride + r, s->n_rows - r, load_n(sums[t] + r, WIDTH));
}

INLINE void float_gemm_rows(const Matmul *p, Type type) {
    gemm(p,
         (GemmPlan){.chunk_rows = GEMM_CHUNK_ROWS,
                    .chunk_tokens = GEMM_CHUNK_TOKENS,
                    .block_cols = FLOAT_BLOCK_COLS,
                    .panel_rows = FLOAT_PANEL,
                    .sweep_tokens = GEMM_SWEEP_TOKENS,
                    .token_bytes = FLOAT_BLOCK_COLS * sizeof(float),
                    .pack = float_gemm_pack,
                    .multiply = float_gemm_multiply,
                    .store = float_gemm_store},
         type);
}

FLOAT_TYPES(DEFINE_ROWS, gemv, float_gemv_rows)
FLOAT_TYPES(DEFINE_ROWS, gemm, float_gemm_rows)
