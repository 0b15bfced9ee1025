// Products in float32, and attention made of them, for backends with many lanes and few registers
// (AVX2, AVX-512). Beyond what vector_math.h asks for, a backend defines
//
//   transpose_block(out, out_step, in, in_step)   WIDTH x WIDTH float32: out[j][i] = in[i][j]
//   score_tile, value_tile                        see attend
#ifndef BACKENDS_GEMM_FLOAT_H
#define BACKENDS_GEMM_FLOAT_H

#include "vector_math.h"

enum {
    PANEL_COLS = 2 * WIDTH, // rows of weights (columns of the result) that a tile computes
    CHUNK_ROWS = 64,        // rows whose sums are kept for TOKEN_BLOCK tokens: 128 KiB, in L2
    TOKEN_BLOCK = 512,
    TILE_TOKENS = 6, // 12 accumulators: enough for the latency of FMA, few enough for 16 registers
    SWEEP_TOKENS =
        48, // tokens whose activations stay in L1 or near it while the panels of a chunk pass
    KEY_TILE = PANEL_COLS,
    KEYS_EVERY = 128 / KEY_TILE // columns per four lines fetched: evenly, for float16
};

// Calls TILE(number of tokens, a constant) for all tokens, t being the first of them; tiles of
// nearly the same size.
#define SWEEP(n_tokens, TILE, ...)                                                                 \
    for (int t = 0, left = ((n_tokens) + TILE_TOKENS - 1) / TILE_TOKENS, nt; left;                 \
         t += nt, left--) {                                                                        \
        nt = ((n_tokens)-t + left - 1) / left;                                                     \
        switch (nt) {                                                                              \
        case 1: TILE(1, __VA_ARGS__); break;                                                       \
        case 2: TILE(2, __VA_ARGS__); break;                                                       \
        case 3: TILE(3, __VA_ARGS__); break;                                                       \
        case 4: TILE(4, __VA_ARGS__); break;                                                       \
        case 5: TILE(5, __VA_ARGS__); break;                                                       \
        default: TILE(6, __VA_ARGS__);                                                             \
        }                                                                                          \
    }

// out (nt, out_stride), n_cols columns, (+)= x (nt, x_stride) times a panel [nk][PANEL_COLS] of
// F32, F16 or Q8_0's integers, panel_step bytes from one k to the next. Per k 2 loads, NT
// broadcasts and 2 NT FMAs. Meanwhile four lines of `ahead` (or NULL) are fetched for every `every`
// k.
INLINE void float_tile(float *out, size_t out_stride, const char *panel, size_t panel_step,
                       const float *x, size_t x_stride, int nk, bool is_first, int n_cols,
                       Prefetch *ahead, int every, int nt, Type type) {
    Floats sum[2][TILE_TOKENS];
#pragma GCC unroll 6
    for (int t = 0; t < nt; t++)
        for (int h = 0; h < 2; h++)
            sum[h][t] =
                is_first ? set_all(0)
                         : load_tail(out + (size_t)t * out_stride + WIDTH * h, n_cols - WIDTH * h);
    for (int k = 0; k < nk; k++) {
        if (ahead && k % every == 0) prefetch_lines(ahead, 4);
        const char *at = panel + (size_t)k * panel_step;
        Floats w0 = load_floats(type, at, 0, WIDTH), w1 = load_floats(type, at, WIDTH, WIDTH);
#pragma GCC unroll 6
        for (int t = 0; t < nt; t++) {
            Floats v = set_all(x[(size_t)t * x_stride + (size_t)k]);
            sum[0][t] = multiply_add(w0, v, sum[0][t]);
            sum[1][t] = multiply_add(w1, v, sum[1][t]);
        }
    }
#pragma GCC unroll 6
    for (int t = 0; t < nt; t++)
        for (int h = 0; h < 2; h++)
            store_tail(out + (size_t)t * out_stride + WIDTH * h, n_cols - WIDTH * h, sum[h][t]);
}

// The same for any number of tokens.
#define FLOAT_TILE(nt, type)                                                                       \
    float_tile(out + (size_t)t * out_stride, out_stride, panel, panel_step,                        \
               x + (size_t)t * x_stride, x_stride, nk, is_first, n_cols, t == 0 ? ahead : NULL,    \
               every, nt, type)
#define FLOAT_SWEEP(name, type)                                                                    \
    static inline void name(float *out, size_t out_stride, const void *from, size_t panel_step,    \
                            const float *x, size_t x_stride, int n_tokens, int nk, bool is_first,  \
                            int n_cols, Prefetch *ahead, int every) {                              \
        const char *panel = from;                                                                  \
        SWEEP(n_tokens, FLOAT_TILE, type)                                                          \
    }
FLOAT_SWEEP(float_sweep, TYPE_F32)
FLOAT_SWEEP(f16_sweep, TYPE_F16)
FLOAT_SWEEP(bytes_sweep, TYPE_Q8_0)

// Prefill of F32, F16 and BF16: activations in blocks of FLOAT_K columns, for each block the tokens
// one after another; panels of FLOAT_K columns in float32: 16 KiB.
enum { FLOAT_K = 4096 / PANEL_COLS };

static size_t float_bytes(int n_tokens, int cols) {
    return (size_t)n_tokens * (size_t)cols * sizeof(float);
}

static void float_encode(void *encoded, const float *x, int n_tokens, int cols, int token_begin,
                         int token_end) {
    (void)n_tokens;
    size_t begin = (size_t)token_begin * (size_t)cols, end = (size_t)token_end * (size_t)cols;
    memcpy((float *)encoded + begin, x + begin, (end - begin) * sizeof(float));
}

static size_t float_gemm_bytes(int n_tokens, int cols) {
    return (size_t)n_tokens * (size_t)((cols + FLOAT_K - 1) / FLOAT_K) * FLOAT_K * sizeof(float);
}

static void float_gemm_encode(void *encoded, const float *x, int n_tokens, int cols,
                              int token_begin, int token_end) {
    for (int t = token_begin; t < token_end; t++)
        for (int k = 0; k < cols; k += FLOAT_K)
            memcpy((float *)encoded + (size_t)k * (size_t)n_tokens + t * FLOAT_K,
                   x + (size_t)t * (size_t)cols + k,
                   (size_t)min_int(FLOAT_K, cols - k) * sizeof(float));
}

// n_rows of sums (n_tokens, CHUNK_ROWS) to out.
static inline void write_sums(float *out, size_t out_stride, const float *sums, int n_tokens,
                              int n_rows) {
    for (int t = 0; t < n_tokens; t++)
        for (int r = 0; r < n_rows; r += WIDTH)
            store_tail(out + (size_t)t * out_stride + r, n_rows - r,
                       load_tail(sums + t * CHUNK_ROWS + r, WIDTH));
}

typedef struct {
    float sums[TOKEN_BLOCK][CHUNK_ROWS], panels[CHUNK_ROWS / PANEL_COLS][FLOAT_K][PANEL_COLS],
        rows[WIDTH][FLOAT_K];
} FloatMemory;

_Static_assert(sizeof(FloatMemory) <= KERNEL_SCRATCH, "fits");

// WIDTH rows, columns [k, k + nk), to panel[k][row]. The next columns are fetched.
INLINE void float_pack(float *panel, float (*rows)[FLOAT_K], const Tensor *w, int row, int row_end,
                       int k, int nk, Type type) {
    int bytes = type_info(type)->bytes;
    for (int i = 0; i < WIDTH; i++) {
        const char *p =
            (const char *)w->data + (size_t)min_int(row + i, row_end - 1) * w->row_bytes;
        for (int b = 0; b < FLOAT_K * bytes; b += 64)
            __builtin_prefetch(p + (k + FLOAT_K) * bytes + b, 0, 2);
        for (int c = 0; c < nk; c += WIDTH)
            store_tail(rows[i] + c, WIDTH, load_floats(type, p, k + c, nk - c));
    }
    for (int c = 0; c < nk; c += WIDTH)
        transpose_block(panel + c * PANEL_COLS, PANEL_COLS, rows[0] + c, FLOAT_K);
}

// 64 rows times 512 tokens at a time.
INLINE void float_gemm_rows(float *out, size_t out_stride, const Tensor *w, const float *encoded,
                            int n_tokens, int row_begin, int row_end, Type type) {
    FloatMemory *m = team_scratch();
    for (int row = row_begin; row < row_end; row += CHUNK_ROWS)
        for (int first_token = 0; first_token < n_tokens; first_token += TOKEN_BLOCK) {
            int n_rows = min_int(row_end - row, CHUNK_ROWS),
                n = min_int(n_tokens - first_token, TOKEN_BLOCK);
            for (int k = 0; k < w->cols; k += FLOAT_K) {
                int nk = min_int(FLOAT_K, w->cols - k);
                const float *x = encoded + (size_t)k * (size_t)n_tokens + first_token * FLOAT_K;
                for (int r = 0; r < (n_rows + PANEL_COLS - 1) / PANEL_COLS * PANEL_COLS; r += WIDTH)
                    float_pack(m->panels[r / PANEL_COLS][0] + r % PANEL_COLS, m->rows, w, row + r,
                               row_end, k, nk, type);
                for (int t = 0; t < n; t += SWEEP_TOKENS)
                    for (int r = 0; r < n_rows; r += PANEL_COLS)
                        float_sweep(m->sums[t] + r, CHUNK_ROWS, m->panels[r / PANEL_COLS],
                                    sizeof m->panels[0][0], x + t * FLOAT_K, FLOAT_K,
                                    min_int(n - t, SWEEP_TOKENS), nk, k == 0, PANEL_COLS, NULL, 1);
            }
            write_sums(out + (size_t)first_token * out_stride + row, out_stride, m->sums[0], n,
                       n_rows);
        }
}

// One row of the KV cache as float32, with zeros up to a multiple of WIDTH values.
INLINE void load_kv(Type type, const void *row, float *out, int n) {
    for (int i = 0; i < n; i += WIDTH) {
        const BlockQ8_0 *b = (const BlockQ8_0 *)row + i / 32;
        if (type == TYPE_Q8_0)
            store_tail(out + i, WIDTH,
                       load_floats(type, b->qs, i % 32, WIDTH) * set_all(f16_at(&b->d)));
        else
            store_tail(out + i, WIDTH, load_floats(type, row, i, n - i));
    }
}

// What attention of a page keeps.
typedef struct {
    float scores[ATTEND_MAX_QUERIES][KV_PAGE];
    float rows[KEY_TILE][MAX_HEAD_DIM]; // keys, then values, as float32
    union {
        float keys[MAX_HEAD_DIM][KEY_TILE]; // transposed
        uint16_t keys_f16[MAX_HEAD_DIM][KEY_TILE];
        float weights[ATTEND_MAX_QUERIES][KEY_TILE]; // times the scales of values
    };
} AttendMemory;

_Static_assert(sizeof(AttendMemory) <= KERNEL_SCRATCH, "fits");

// The tile of KEY_TILE rows from `key` on, of which n exist, as float32 in m->rows.
INLINE void widen_tile(AttendMemory *m, const AttentionPage *a, const void *kv, int key, int n,
                       Type type) {
    size_t row_bytes = quant_row_bytes(type, (size_t)a->head_dim);
    for (int i = 0; i < KEY_TILE; i++)
        load_kv(type, (const char *)kv + (size_t)(key + min_int(i, n - 1)) * row_bytes, m->rows[i],
                a->head_dim);
}

INLINE void widen_any(AttendMemory *m, const AttentionPage *a, const void *kv, int key, int n) {
    if (a->kv_type == TYPE_F16) // each without a choice inside the loop
        widen_tile(m, a, kv, key, n, TYPE_F16);
    else if (a->kv_type == TYPE_Q8_0)
        widen_tile(m, a, kv, key, n, TYPE_Q8_0);
    else
        widen_tile(m, a, kv, key, n, TYPE_F32);
}

// scores (n_q, KEY_TILE) = queries times the keys [key, key + n).
static inline void float_score_tile(AttendMemory *m, const AttentionPage *a, int key, int n,
                                    Prefetch *ahead) {
    widen_any(m, a, a->k, key, n);
    for (int h = 0; h < KEY_TILE; h += WIDTH)
        for (int d = 0; d < a->head_dim; d += WIDTH)
            transpose_block(m->keys[d] + h, KEY_TILE, m->rows[h] + d, MAX_HEAD_DIM);
    float_sweep(m->scores[0] + key, KV_PAGE, m->keys, sizeof m->keys[0], a->q, (size_t)a->head_dim,
                a->n_q, a->head_dim, true, KEY_TILE, ahead, KEYS_EVERY);
}

// The same for values of Q8_0: their integers are converted as they are used.
static inline void q8_value_tile(AttendMemory *m, const AttentionPage *a, int key, int n,
                                 Prefetch *ahead) {
    size_t row_bytes = quant_row_bytes(TYPE_Q8_0, (size_t)a->head_dim);
    for (int b = 0; b < a->head_dim / 32; b++) {
        const char *block =
            (const char *)a->v + (size_t)key * row_bytes + (size_t)b * sizeof(BlockQ8_0);
        uint16_t scale[KEY_TILE];
        for (int i = 0; i < KEY_TILE; i++)
            memcpy(scale + i, block + (size_t)min_int(i, n - 1) * row_bytes, sizeof *scale);
        for (int i = 0; i < a->n_q; i++)
            for (int h = 0; h < KEY_TILE; h += WIDTH)
                store_tail(m->weights[i] + h, WIDTH,
                           load_tail(m->scores[i] + key + h, WIDTH) *
                               load_floats(TYPE_F16, scale, h, WIDTH));
        for (int c = 0; c < 32; c += PANEL_COLS)
            bytes_sweep(a->acc + 32 * b + c, (size_t)a->head_dim,
                        block + offsetof(BlockQ8_0, qs) + c, row_bytes, m->weights[0], KEY_TILE,
                        a->n_q, n, key == 0, PANEL_COLS, ahead, 2 * KEYS_EVERY - 1);
    }
}

// acc (n_q, head_dim) (+)= weights times the values [key, key + n).
static inline void float_value_tile(AttendMemory *m, const AttentionPage *a, int key, int n,
                                    Prefetch *ahead) {
    if (a->kv_type == TYPE_Q8_0) {
        q8_value_tile(m, a, key, n, ahead);
        return;
    }
    widen_any(m, a, a->v, key, n);
    for (int d = 0; d < a->head_dim; d += PANEL_COLS)
        float_sweep(a->acc + d, (size_t)a->head_dim, m->rows[0] + d, sizeof m->rows[0],
                    m->scores[0] + key, KV_PAGE, a->n_q, n, key == 0, a->head_dim - d, ahead,
                    KEYS_EVERY);
}

// How the backend computes a tile: as above, or better.
static void score_tile(AttendMemory *m, const AttentionPage *a, int key, int n, Prefetch *ahead);
static void value_tile(AttendMemory *m, const AttentionPage *a, int key, int n, Prefetch *ahead);

// Keys, then values, in tiles of KEY_TILE, converted once for all queries. While the scores are
// computed V is fetched, and then the K of the next page.
static void attend(const AttentionPage *a) {
    AttendMemory *m = team_scratch();
    int n_all = most_keys(a);
    size_t bytes = (size_t)n_all * quant_row_bytes(a->kv_type, (size_t)a->head_dim);
    Prefetch ahead = prefetch_range(a->v, bytes, 2);
    for (int key = 0; key < n_all; key += KEY_TILE)
        score_tile(m, a, key, min_int(KEY_TILE, n_all - key), &ahead);
    for (int i = 0; i < a->n_q; i++)
        soften(m->scores[i], a->n_keys[i], n_all, a->max + i, a->sum + i);
    if (!n_all) memset(a->acc, 0, (size_t)a->n_q * (size_t)a->head_dim * sizeof(float));
    ahead = prefetch_range(a->next_k, bytes, 2);
    for (int key = 0; key < n_all; key += KEY_TILE)
        value_tile(m, a, key, min_int(KEY_TILE, n_all - key), &ahead);
}

#endif
