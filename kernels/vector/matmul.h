// Matrix products: the loops around the kernels of all vector backends, and the macros that make
// kernel tables.
//
// gemv_quarters() is for few tokens and weights in float32 or 16 bits. It is bound by reading the
// weights from memory, so it reads four streams of rows and packs nothing.
//
// gemm() is for many tokens. It divides a product into blocks that stay in the caches:
//
//     for each chunk of rows                  the sums of a chunk stay in L2
//       for each chunk of tokens
//         for each block of columns           its activations are contiguous, token after token
//           pack() panels                     weights are unpacked and interleaved, once for all
//           multiply() panels by tokens       tokens; a panel stays in L1
//         store()
//
// A backend supplies the sizes and the functions (GemmPlan). All are inlined, so for each type the
// compiler sees one loop nest in which the type is a constant.
//
// Invariant: the sums of an output element are added in the order of the columns, for any sizes of
// the blocks. A result depends neither on the other tokens nor on how threads divide the rows.
#pragma once

#include "kernels/vector/prefetch.h"
#include "kernels/vector/superblock.h"
#include "kernels/backends.h"
#include "kernels/team.h"

// The arguments of MatmulKernel.rows (kernels.h): rows [row_begin, row_end) of w times all tokens.
typedef struct {
    float *out;
    size_t out_stride;
    const Tensor *w;
    const void *encoded;
    int n_tokens, row_begin, row_end;
} Matmul;

// Computes rows row[0..3] for tokens [t, t + nt), nt being a constant.
typedef void (*GemvTile)(const Matmul *p, int t, const int *row, int nt, Type type);

// Multiplies four rows at a time, one of each quarter of the range: each quarter is a stream that
// the hardware prefetcher follows. Takes tokens in pairs, or one by one if max_tokens is 1.
INLINE void gemv_quarters(const Matmul *p, GemvTile tile, int max_tokens, Type type) {
    int quarter = (p->row_end - p->row_begin + 3) / 4;
    for (int r = p->row_begin; r < p->row_begin + quarter; r++) {
        int row[4], t = 0;
        for (int i = 0; i < 4; i++) row[i] = min_int(r + i * quarter, p->row_end - 1);
        for (; max_tokens > 1 && t + 2 <= p->n_tokens; t += 2) tile(p, t, row, 2, type);
        for (; t < p->n_tokens; t++) tile(p, t, row, 1, type);
    }
}

// The state of the loop nest of gemm().
typedef struct {
    const Matmul *p;    // the whole product
    int row, n_rows;    // chunk of rows
    int token, n;       // chunk of tokens
    int k, n_cols;      // block of columns; n_cols is clipped to the matrix
    const void *x;      // activations of the block, from the chunk's first token on
    void *memory;       // team_scratch()
    Prefetch *prefetch; // set by begin(), together with the lines to fetch at each step
    int n_prefetch;
} GemmStep;

typedef struct {
    int chunk_rows, chunk_tokens, block_cols, panel_rows;
    // 0: a panel is packed and multiplied by all tokens of the chunk before the next panel. Else
    // all panels of the chunk are packed, and are then multiplied in turn by this many tokens.
    int sweep_tokens;
    size_t token_bytes;                    // activations of a token and a block of columns
    void (*begin)(GemmStep *s, Type type); // before each block of columns; NULL: nothing to do
    void (*pack)(GemmStep *s, int r, Type type); // packs the panel of rows [s->row + r, ...)
    // Adds to the sums of that panel the products with tokens [s->token + t, s->token + t + n).
    void (*multiply)(GemmStep *s, int r, int t, int n, Type type);
    // Stores the sums of the chunk; out points at its first row and token.
    void (*store)(const GemmStep *s, float *out, size_t out_stride);
} GemmPlan;

INLINE void gemm(const Matmul *p, GemmPlan plan, Type type) {
    Prefetch prefetch = {0};
    GemmStep s = {.p = p, .memory = team_scratch(), .prefetch = &prefetch};
    int packed_rows = plan.sweep_tokens ? plan.chunk_rows : plan.panel_rows;
    int sweep_tokens = plan.sweep_tokens ? plan.sweep_tokens : plan.chunk_tokens;

    for (s.row = p->row_begin; s.row < p->row_end; s.row += plan.chunk_rows)
        for (s.token = 0; s.token < p->n_tokens; s.token += plan.chunk_tokens) {
            s.n_rows = min_int(p->row_end - s.row, plan.chunk_rows);
            s.n = min_int(p->n_tokens - s.token, plan.chunk_tokens);

            for (s.k = 0; s.k < p->w->cols; s.k += plan.block_cols) {
                s.n_cols = min_int(p->w->cols - s.k, plan.block_cols);
                s.x = (const char *)p->encoded +
                      ((size_t)(s.k / plan.block_cols) * (size_t)p->n_tokens + (size_t)s.token) *
                          plan.token_bytes;
                if (plan.begin) plan.begin(&s, type);

                // Pack one panel or all panels of the chunk, then multiply them by all its tokens.
                for (int first = 0; first < s.n_rows; first += packed_rows) {
                    int end = min_int(first + packed_rows, s.n_rows);
                    for (int r = first; r < end; r += plan.panel_rows) plan.pack(&s, r, type);
                    for (int t = 0; t < s.n; t += sweep_tokens)
                        for (int r = first; r < end; r += plan.panel_rows)
                            plan.multiply(&s, r, t, min_int(s.n - t, sweep_tokens), type);
                }
            }
            plan.store(&s, p->out + (size_t)s.token * p->out_stride + s.row, p->out_stride);
        }
}

// Divides the tokens into tiles of at most GEMM_TILE_TOKENS, whose sizes differ by at most one, and
// calls TILE(nt, ...) for each. nt, the size, is a constant, so that the sums of a tile are
// registers; the variable t is the first token of the tile.
enum { GEMM_TILE_TOKENS = 6 };
#define FOR_TOKEN_TILES(n_tokens, TILE, ...)                                                       \
    for (int t = 0, left = div_up(n_tokens, GEMM_TILE_TOKENS), nt; left; t += nt, left--) {        \
        nt = div_up((n_tokens)-t, left);                                                           \
        switch (nt) {                                                                              \
        case 1: TILE(1, __VA_ARGS__); break;                                                       \
        case 2: TILE(2, __VA_ARGS__); break;                                                       \
        case 3: TILE(3, __VA_ARGS__); break;                                                       \
        case 4: TILE(4, __VA_ARGS__); break;                                                       \
        case 5: TILE(5, __VA_ARGS__); break;                                                       \
        default: TILE(6, __VA_ARGS__);                                                             \
        }                                                                                          \
    }

// Int8 activations of a chunk of tokens and a block of columns are contiguous, and come from L2 or
// L3. A tile prefetches those of the next tile, from `at` on, into L1: this function the share of
// one group of columns. Returns the address of the next share. With 8,192 columns and 512 tokens,
// Q4_K takes 0.81 and Q6_K 0.77 of the time without it on AVX-512, 0.92 and 0.91 on AVX2 (Zen 5, L3
// shared with other programs, 2026-11-28).
INLINE const char *prefetch_activations(const char *at, int group) {
    const int bytes_per_32 = 32 + 5 * 4; // values, scale, initial values and sums
    const int n_lines = div_up(GEMM_TILE_TOKENS * bytes_per_32 * group / 32, 64);
#pragma GCC unroll 5
    for (int i = 0; i < n_lines; i++) __builtin_prefetch(at + 64 * i, 0, 3);
    return at + 64 * n_lines;
}

// DEFINE_ROWS_AS defines NAME, a MatmulKernel.rows, as function(&matmul, last). DEFINE_ROWS, which
// is an X of the lists of types in kernels/backends.h, defines KIND_name as function(&matmul,
// type).
#define DEFINE_ROWS_AS(name, function, last)                                                       \
    static void name(float *out, size_t out_stride, const Tensor *w, const void *encoded,          \
                     int n_tokens, int row_begin, int row_end) {                                   \
        const Matmul p = {out, out_stride, w, encoded, n_tokens, row_begin, row_end};              \
        function(&p, last);                                                                        \
    }
#define DEFINE_ROWS(type, name, kind, function) DEFINE_ROWS_AS(kind##_##name, function, TYPE_##type)

// Parts. So that all cores share the work, the Makefile compiles avx2.c and avx512.c three times,
// with PART = 0, 1 and 2. The table of each object has a part of the entries, and the compiler
// drops the other functions: 0 has gemv of the block and superblock types and everything that is
// not a matrix product, 1 the other gemv, 2 gemm. avx512_vbmi.c is part 3, with the
// products of three types. A backend compiled without PART has all entries.
#ifdef PART
#define IF_PART(part, entry) ((part) == PART ? (entry) : NULL)
#else
#define IF_PART(part, entry) entry
#endif
#define IN_VBMI_PART(type)                                                                         \
    (PART == 3 && ((type) == TYPE_IQ2_S || (type) == TYPE_IQ1_S || (type) == TYPE_IQ1_M))
#ifndef PART_OF_gemv // avx_vnni.c has its own
#define PART_OF_gemv(type) (IN_VBMI_PART(type) ? 3 : (type) >= TYPE_IQ2_XXS)
#endif
#define PART_OF_gemm(type) (IN_VBMI_PART(type) ? 3 : 2)

// KERNEL is the table entry of a type: the kernel KIND_name, for activations encoded by
// ENCODING_encode_FORM in ENCODING_bytes bytes.
#define KERNEL(type, name, kind, encoding, form, tokens, rows_step, tokens_step, exact)            \
    [TYPE_##type] = {.min_tokens = tokens,                                                         \
                     .row_step = rows_step,                                                        \
                     .token_step = tokens_step,                                                    \
                     .encoded_bytes = encoding##_bytes,                                            \
                     .encode = encoding##_encode_##form,                                           \
                     .rows = IF_PART(PART_OF_##kind(TYPE_##type), kind##_##name),                  \
                     .has_gemv_bits = exact},
