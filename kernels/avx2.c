// AVX2 with FMA and F16C.
//
// Integer types are brought into the form of QuantBlock, 256 weights at a time. Decode (mat) dots them with int8
// activations; prefill (gemm) turns them into panels of 8 rows for the same 8-bit products. F32, F16 and BF16 have
// float32 activations and FMA throughout.
#include "avx2_unpack.h"
#include "fetch.h"
#include "isa.h"

#include <math.h>

enum { MAX_UNIT_BYTES = 288 };

static int n_units(int cols) { return (cols + UNIT - 1) / UNIT; }

// What the kernels are made from, constant in each of them.
typedef struct {
    Unpack unpack;
    int off; // w = scale * (u - off) - min, u unsigned
    bool has_min;
    int group; // scales are per 16 or per 32 weights
    int block; // weights per block: with 32 the last unit of a row may be short
    int bytes; // per 256 weights
    int max;   // the largest u
} Format;

// Unpacks 256 columns of a row; if the row ends in them, what follows is zero.
INLINE void unpack_unit(const Tensor *w, const uint8_t *row, int column, const Format *f, QuantBlock *out) {
    const uint8_t *p = row + (size_t)(column / UNIT) * (size_t)f->bytes;
    uint8_t buffer[MAX_UNIT_BYTES];
    if (f->block < UNIT && w->cols - column < UNIT) {
        memset(buffer, 0, sizeof buffer);
        p = memcpy(buffer, p, (size_t)((w->cols - column) / 32 * (f->bytes / 8)));
    }
    f->unpack(p, w->type, out);
}

// Int8 activations with a scale per group of 16, as the weights.
typedef struct {
    int8_t q[UNIT];
    float scale[GROUPS];
    float sum[GROUPS]; // scale * sum of q
} MatUnit;

static size_t mat_bytes(int n_tokens, int cols) { return (size_t)n_tokens * (size_t)n_units(cols) * sizeof(MatUnit); }

INLINE int sum_integers(__m256i v) {
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

// n values, at most n_groups times 16, to int8 with one scale: max |x| / 127, or NaN (and zeros) if one of them is not
// finite. Also the sum of each group.
INLINE float encode_groups(const float *x, int n, int n_groups, int8_t *q, int *sums) {
    const __m256i abs = _mm256_set1_epi32(0x7fffffff);
    __m256 v[4];
    __m256i bits = _mm256_setzero_si256();
    for (int i = 0; i < 2 * n_groups; i++) {
        v[i] = load_tail(x + 8 * i, n - 8 * i);
        bits = _mm256_max_epi32(bits, _mm256_and_si256(_mm256_castps_si256(v[i]), abs));
    }
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    int max_bits = _mm_cvtsi128_si32(_mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1)));
    float max;
    memcpy(&max, &max_bits, sizeof max);
    bool is_finite = max_bits < 0x7f800000, is_small = max < 0x1p-100f;
    __m256 inverse = _mm256_set1_ps(is_small ? 0 : 127 / max);
    for (int g = 0; g < n_groups; g++) {
        __m256i low = _mm256_cvtps_epi32(_mm256_mul_ps(v[2 * g], inverse));
        __m256i high = _mm256_cvtps_epi32(_mm256_mul_ps(v[2 * g + 1], inverse));
        if (!is_finite) low = high = _mm256_setzero_si256();
        __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8);
        __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
        _mm_storeu_si128((__m128i *)q + g, bytes);
        sums[g] = sum_integers(_mm256_add_epi32(low, high));
    }
    return !is_finite ? NAN : is_small ? 0 : max / 127;
}

static void mat_encode(void *encoded, const float *x, int n_tokens, int cols, int token_begin, int token_end) {
    (void)n_tokens;
    for (int t = token_begin; t < token_end; t++) {
        MatUnit *units = (MatUnit *)encoded + (size_t)t * (size_t)n_units(cols);
        for (int k = 0; k < n_units(cols) * UNIT; k += QUANT_GROUP) {
            MatUnit *u = units + k / UNIT;
            int sum, g = k % UNIT / QUANT_GROUP;
            u->scale[g] = encode_groups(x + (size_t)t * (size_t)cols + k, cols - k, 1, u->q + k % UNIT, &sum);
            u->sum[g] = u->scale[g] * (float)sum;
        }
    }
}

// 256 weights times 256 activations: per 32 of them sign, two multiply-adds, conversion, spread of the scales and FMA.
INLINE __m256 dot_unit(const QuantBlock *w, const MatUnit *x, bool has_min) {
    const __m256i quarter = _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1), ones = _mm256_set1_epi16(1);
    __m256 sum[2];
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        __m256 scale = _mm256_mul_ps(_mm256_loadu_ps(w->scale + 8 * h), _mm256_loadu_ps(x->scale + 8 * h));
        sum[h] = _mm256_setzero_ps();
        if (has_min)
            sum[h] = _mm256_fnmadd_ps(_mm256_loadu_ps(w->min + 8 * h), _mm256_loadu_ps(x->sum + 8 * h), sum[h]);
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            __m256i wj = load_32(w->q + 128 * h + 32 * j), xj = load_32(x->q + 128 * h + 32 * j);
            __m256i dot = _mm256_maddubs_epi16(_mm256_abs_epi8(wj), _mm256_sign_epi8(xj, wj));
            __m256i spread = _mm256_add_epi32(quarter, _mm256_set1_epi32(2 * j));
            sum[h] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(_mm256_madd_epi16(dot, ones)),
                                     _mm256_permutevar8x32_ps(scale, spread), sum[h]);
        }
    }
    return _mm256_add_ps(sum[0], sum[1]);
}

// Four rows times NT tokens; each block of weights is unpacked once for them. Rows far apart give the memory four
// streams.
INLINE void mat_tile(float *out, size_t out_stride, const Tensor *w, const MatUnit *x, const int *row, int nt,
                     const Format *f) {
    enum { AHEAD = 1024 };
    const uint8_t *p[4];
    int n = n_units(w->cols);
    __m256 acc[4][2];
    for (int i = 0; i < 4; i++) {
        p[i] = (const uint8_t *)w->data + (size_t)row[i] * w->row_bytes;
        acc[i][0] = acc[i][1] = _mm256_setzero_ps();
    }
    for (int b = 0; b < n; b++) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            QuantBlock block;
#pragma GCC unroll 8
            for (int a = 0; a < f->bytes; a += 64)
                _mm_prefetch((const char *)p[i] + (size_t)b * (size_t)f->bytes + AHEAD + a, _MM_HINT_T0);
            unpack_unit(w, p[i], b * UNIT, f, &block);
#pragma GCC unroll 2
            for (int t = 0; t < nt; t++)
                acc[i][t] = _mm256_add_ps(acc[i][t], dot_unit(&block, x + t * n + b, f->has_min));
        }
    }
    for (int i = 0; i < 4; i++)
        for (int t = 0; t < nt; t++) out[(size_t)t * out_stride + (size_t)row[i]] = sum_lanes(acc[i][t]);
}

// The rows are taken from the four quarters of the range.
INLINE void mat_rows(float *out, size_t out_stride, const Tensor *w, const void *encoded, int n_tokens, int row_begin,
                     int row_end, const Format *f) {
    int quarter = (row_end - row_begin + 3) / 4;
    size_t n = (size_t)n_units(w->cols);
    for (int r = row_begin; r < row_begin + quarter; r++) {
        int row[4], t = 0;
        for (int i = 0; i < 4; i++) row[i] = min_int(r + i * quarter, row_end - 1);
        for (; t + 2 <= n_tokens; t += 2)
            mat_tile(out + (size_t)t * out_stride, out_stride, w, (const MatUnit *)encoded + (size_t)t * n, row, 2, f);
        if (t < n_tokens)
            mat_tile(out + (size_t)t * out_stride, out_stride, w, (const MatUnit *)encoded + (size_t)t * n, row, 1, f);
    }
}

enum { FLOAT_K = 256, PANEL_ROWS = 16, CHUNK_ROWS = 64, TILE_TOKENS = 6, SWEEP_TOKENS = 48, TOKEN_BLOCK = 512 };

// Up to 8 values of F32, F16 or BF16 from column k on, zeros behind them.
INLINE __m256 load_8(Type type, const void *row, int k, int n) {
    if (type == TYPE_F32) return load_tail((const float *)row + k, n);
    uint16_t buffer[8] = {0};
    const uint16_t *p = (const uint16_t *)row + k;
    if (n < 8) p = n <= 0 ? buffer : memcpy(buffer, p, (size_t)n * 2);
    __m128i h = _mm_loadu_si128((const void *)p);
    if (type == TYPE_F16) return _mm256_cvtph_ps(h);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

static size_t float_bytes(int n_tokens, int cols) { return (size_t)n_tokens * (size_t)cols * sizeof(float); }

static void float_encode(void *encoded, const float *x, int n_tokens, int cols, int token_begin, int token_end) {
    (void)n_tokens;
    size_t begin = (size_t)token_begin * (size_t)cols, end = (size_t)token_end * (size_t)cols;
    memcpy((float *)encoded + begin, x + begin, (end - begin) * sizeof(float));
}

// Four rows from four quarters times one token, 16 columns at a time.
INLINE void float_mat_rows(float *out, size_t out_stride, const Tensor *w, const float *x, int n_tokens, int row_begin,
                           int row_end, Type type) {
    enum { AHEAD = 1024 };
    int quarter = (row_end - row_begin + 3) / 4, n = w->cols, bytes = type_info(type)->bytes;
    for (int r = row_begin; r < row_begin + quarter; r++)
        for (int t = 0; t < n_tokens; t++) {
            const float *xt = x + (size_t)t * (size_t)n;
            const char *p[4];
            __m256 acc[4][2];
            int row[4];
            for (int i = 0; i < 4; i++) {
                row[i] = min_int(r + i * quarter, row_end - 1);
                p[i] = (const char *)w->data + (size_t)row[i] * w->row_bytes;
                acc[i][0] = acc[i][1] = _mm256_setzero_ps();
            }
            int k = 0;
            for (; k + 16 <= n; k += 16) {
                __m256 x0 = _mm256_loadu_ps(xt + k), x1 = _mm256_loadu_ps(xt + k + 8);
#pragma GCC unroll 4
                for (int i = 0; i < 4; i++) {
                    if (k * bytes % 64 == 0) _mm_prefetch(p[i] + k * bytes + AHEAD, _MM_HINT_T0);
                    acc[i][0] = _mm256_fmadd_ps(load_8(type, p[i], k, 8), x0, acc[i][0]);
                    acc[i][1] = _mm256_fmadd_ps(load_8(type, p[i], k + 8, 8), x1, acc[i][1]);
                }
            }
            for (; k < n; k += 8)
                for (int i = 0; i < 4; i++)
                    acc[i][0] = _mm256_fmadd_ps(load_8(type, p[i], k, n - k), load_tail(xt + k, n - k), acc[i][0]);
            for (int i = 0; i < 4; i++)
                out[(size_t)t * out_stride + (size_t)row[i]] = sum_lanes(_mm256_add_ps(acc[i][0], acc[i][1]));
        }
}

static size_t float_gemm_bytes(int n_tokens, int cols) {
    return (size_t)n_tokens * (size_t)((cols + FLOAT_K - 1) / FLOAT_K) * FLOAT_K * sizeof(float);
}

// Activations in blocks of FLOAT_K columns, for each block the tokens one after another.
static void float_gemm_encode(void *encoded, const float *x, int n_tokens, int cols, int token_begin, int token_end) {
    for (int t = token_begin; t < token_end; t++)
        for (int k = 0; k < cols; k += FLOAT_K)
            memcpy((float *)encoded + (size_t)k * (size_t)n_tokens + t * FLOAT_K, x + (size_t)t * (size_t)cols + k,
                   (size_t)min_int(FLOAT_K, cols - k) * sizeof(float));
}

// 16 columns of out (nt, out_stride) (+)= x (nt, x_stride) times a panel (nk, panel_step). Per k 2 loads, NT
// broadcasts and 2 NT FMAs into 12 accumulators.
INLINE void float_tile(float *out, size_t out_stride, const float *panel, int panel_step, const float *x,
                       size_t x_stride, int nk, bool is_first, int n_cols, int nt) {
    __m256 sum[2][TILE_TOKENS];
#pragma GCC unroll 6
    for (int t = 0; t < nt; t++)
        for (int h = 0; h < 2; h++)
            sum[h][t] =
                is_first ? _mm256_setzero_ps() : load_tail(out + (size_t)t * out_stride + 8 * h, n_cols - 8 * h);
    for (int k = 0; k < nk; k++) {
        __m256 w0 = _mm256_loadu_ps(panel + k * panel_step), w1 = _mm256_loadu_ps(panel + k * panel_step + 8);
#pragma GCC unroll 6
        for (int t = 0; t < nt; t++) {
            __m256 v = _mm256_broadcast_ss(x + (size_t)t * x_stride + k);
            sum[0][t] = _mm256_fmadd_ps(w0, v, sum[0][t]);
            sum[1][t] = _mm256_fmadd_ps(w1, v, sum[1][t]);
        }
    }
#pragma GCC unroll 6
    for (int t = 0; t < nt; t++)
        for (int h = 0; h < 2; h++) store_tail(out + (size_t)t * out_stride + 8 * h, n_cols - 8 * h, sum[h][t]);
}

// Calls TILE(number of tokens, a constant) for all tokens, t being the first of them; tiles of nearly the same size.
#define SWEEP(n_tokens, TILE, ...)                                                                                     \
    for (int t = 0, left = ((n_tokens) + TILE_TOKENS - 1) / TILE_TOKENS, nt; left; t += nt, left--) {                  \
        nt = ((n_tokens)-t + left - 1) / left;                                                                         \
        switch (nt) {                                                                                                  \
        case 1: TILE(1, __VA_ARGS__); break;                                                                           \
        case 2: TILE(2, __VA_ARGS__); break;                                                                           \
        case 3: TILE(3, __VA_ARGS__); break;                                                                           \
        case 4: TILE(4, __VA_ARGS__); break;                                                                           \
        case 5: TILE(5, __VA_ARGS__); break;                                                                           \
        default: TILE(6, __VA_ARGS__);                                                                                 \
        }                                                                                                              \
    }

static void float_sweep(float *out, size_t out_stride, const float *panel, int panel_step, const float *x,
                        size_t x_stride, int n_tokens, int nk, bool is_first, int n_cols){
#define FLOAT_TILE(nt, ...)                                                                                            \
    float_tile(out + (size_t)t * out_stride, out_stride, panel, panel_step, x + (size_t)t * x_stride, x_stride, nk,    \
               is_first, n_cols, nt)
    SWEEP(n_tokens, FLOAT_TILE, 0)}

// out[j][i] = in[i][j] of 8 x 8 floats.
INLINE void transpose(float *out, int out_step, const float *in, int in_step) {
    __m256 a[8], b[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) a[i] = _mm256_loadu_ps(in + i * in_step);
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
        b[i] = _mm256_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {
        a[i] = _mm256_shuffle_ps(b[i], b[i + 2], 0x44);
        a[i + 1] = _mm256_shuffle_ps(b[i], b[i + 2], 0xee);
        a[i + 2] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0x44);
        a[i + 3] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0xee);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        _mm256_storeu_ps(out + i * out_step, _mm256_permute2f128_ps(a[i], a[i + 4], 0x20));
        _mm256_storeu_ps(out + (i + 4) * out_step, _mm256_permute2f128_ps(a[i], a[i + 4], 0x31));
    }
}

static void write_sums(float *out, size_t out_stride, const float *sums, int n_tokens, int n_rows) {
    for (int t = 0; t < n_tokens; t++)
        for (int r = 0; r < n_rows; r += 8)
            store_tail(out + (size_t)t * out_stride + r, n_rows - r, _mm256_load_ps(sums + t * CHUNK_ROWS + r));
}

// 64 rows times 512 tokens at a time, their sums (128 KiB) in L2; panels of 16 rows times 256 columns in float32
// (16 KiB, L1), decoded once for all tokens.
INLINE void float_gemm_rows(float *out, size_t out_stride, const Tensor *w, const float *encoded, int n_tokens,
                            int row_begin, int row_end, Type type) {
    float sums[TOKEN_BLOCK][CHUNK_ROWS] __attribute__((aligned(64)));
    float panel[FLOAT_K][PANEL_ROWS] __attribute__((aligned(64)));
    float rows[8][FLOAT_K] __attribute__((aligned(64)));
    for (int row = row_begin; row < row_end; row += CHUNK_ROWS)
        for (int first_token = 0; first_token < n_tokens; first_token += TOKEN_BLOCK) {
            int n_rows = min_int(row_end - row, CHUNK_ROWS), n = min_int(n_tokens - first_token, TOKEN_BLOCK);
            for (int k = 0; k < w->cols; k += FLOAT_K)
                for (int r = 0; r < n_rows; r += PANEL_ROWS) {
                    for (int half = 0; half < 2; half++) {
                        for (int i = 0; i < 8; i++) {
                            int at = min_int(row + r + 8 * half + i, row_end - 1);
                            const char *p = (const char *)w->data + (size_t)at * w->row_bytes;
                            for (int c = 0; c < FLOAT_K; c += 8)
                                _mm256_store_ps(rows[i] + c, load_8(type, p, k + c, w->cols - k - c));
                        }
                        for (int c = 0; c < FLOAT_K; c += 8)
                            transpose(panel[c] + 8 * half, PANEL_ROWS, rows[0] + c, FLOAT_K);
                    }
                    const float *x = encoded + (size_t)k * (size_t)n_tokens + first_token * FLOAT_K;
                    float_sweep(sums[0] + r, CHUNK_ROWS, panel[0], PANEL_ROWS, x, FLOAT_K, n,
                                min_int(FLOAT_K, w->cols - k), k == 0, PANEL_ROWS);
                }
            write_sums(out + (size_t)first_token * out_stride + row, out_stride, sums[0], n, n_rows);
        }
}

// Prefill: activations in units of 256 columns, for each unit the tokens one after another.
typedef struct {
    int8_t q[UNIT];
    float scale[UNIT / 32];
    float sum[GROUPS]; // scale * sum of q per group (of 16 or 32)
} GemmUnit;

// 8 rows of 256 columns: [k / 4][8 rows][4] as u (or as signed w, if u takes more than 6 bits), [group][8 rows] as
// scale and what is subtracted.
typedef struct {
    int8_t w[UNIT * 8];
    float scale[GROUPS][8], base[GROUPS][8];
} __attribute__((aligned(32))) Panel;

static size_t gemm_bytes(int n_tokens, int cols) { return (size_t)n_tokens * (size_t)n_units(cols) * sizeof(GemmUnit); }

INLINE void gemm_encode(void *encoded, const float *x, int n_tokens, int cols, int token_begin, int token_end,
                        int group) {
    for (int t = token_begin; t < token_end; t++)
        for (int k = 0; k < n_units(cols) * UNIT; k += 32) {
            GemmUnit *u = (GemmUnit *)encoded + (size_t)(k / UNIT) * (size_t)n_tokens + t;
            int sums[2], g = k % UNIT / group;
            float scale = encode_groups(x + (size_t)t * (size_t)cols + k, cols - k, 2, u->q + k % UNIT, sums);
            u->scale[k % UNIT / 32] = scale;
            u->sum[g] = scale * (float)(group == 32 ? sums[0] + sums[1] : sums[0]);
            if (group == 16) u->sum[g + 1] = scale * (float)sums[1];
        }
}

static void gemm_encode_16(void *encoded, const float *x, int n_tokens, int cols, int token_begin, int token_end) {
    gemm_encode(encoded, x, n_tokens, cols, token_begin, token_end, 16);
}

static void gemm_encode_32(void *encoded, const float *x, int n_tokens, int cols, int token_begin, int token_end) {
    gemm_encode(encoded, x, n_tokens, cols, token_begin, token_end, 32);
}

INLINE bool is_wide(const Format *f) { return f->max > 63; }

// Rows [row, row + 8), the 256 columns from k on.
INLINE void pack_panel(Panel *panel, const Tensor *w, int row, int row_end, int k, Ahead *ahead, const Format *f) {
    int8_t q[8][UNIT] __attribute__((aligned(32)));
    float scale[8][GROUPS], base[8][GROUPS];
    for (int i = 0; i < 8; i++) {
        const uint8_t *p = (const uint8_t *)w->data + (size_t)min_int(row + i, row_end - 1) * w->row_bytes;
        QuantBlock b;
        fetch(ahead, 1);
        unpack_unit(w, p, k, f, &b);
        const __m256i off = _mm256_set1_epi8((char)(is_wide(f) ? 0 : f->off));
        for (int c = 0; c < UNIT; c += 32) store_32(q[i] + c, _mm256_add_epi8(load_32(b.q + c), off));
        for (int g = 0; g < GROUPS; g += 8) {
            __m256 s = _mm256_loadu_ps(b.scale + g), m = f->has_min ? _mm256_loadu_ps(b.min + g) : _mm256_setzero_ps();
            if (!is_wide(f)) m = _mm256_fmadd_ps(s, _mm256_set1_ps((float)f->off), m);
            _mm256_storeu_ps(scale[i] + g, s);
            _mm256_storeu_ps(base[i] + g, m);
        }
    }
    for (int c = 0; c < UNIT / 4; c += 8) transpose((float *)panel->w + c * 8, 8, (const float *)q + c, UNIT / 4);
    for (int g = 0; g < GROUPS; g += 8) {
        transpose(panel->scale[g], 8, scale[0] + g, GROUPS);
        transpose(panel->base[g], 8, base[0] + g, GROUPS);
    }
}

// sums (NT, CHUNK_ROWS) (+)= x times 8 rows of weights. Products of u, which are positive, are added in 16 bits DEEP at
// a time; wide weights are multiplied by their size and each product added in 32 bits. Per 32 columns of 4-bit weights,
// for 8 rows and a token: 8 products, 8 sums and 4 operations to scale them.
INLINE void gemm_tile(float *sums, const Panel *panel, const GemmUnit *x, bool is_first, Ahead *ahead, int n_ahead,
                      int nt, int group, int deep) {
    const __m256i ones = _mm256_set1_epi16(1);
    const int at_once = deep ? deep : 1;
    __m256 sum[TILE_TOKENS];
#pragma GCC unroll 6
    for (int t = 0; t < nt; t++) sum[t] = is_first ? _mm256_setzero_ps() : _mm256_load_ps(sums + t * CHUNK_ROWS);
    for (int g = 0; g < UNIT / group; g++) {
        __m256i dot[TILE_TOKENS];
        fetch(ahead, n_ahead);
#pragma GCC unroll 6
        for (int t = 0; t < nt; t++) dot[t] = _mm256_setzero_si256();
#pragma GCC unroll 8
        for (int c = 0; c < group / 4; c += at_once) {
            __m256i words[TILE_TOKENS];
            for (int d = 0; d < at_once; d++) {
                int k = g * group + 4 * (c + d);
                __m256i w = _mm256_load_si256((const __m256i *)(panel->w + k * 8)), size = _mm256_abs_epi8(w);
#pragma GCC unroll 6
                for (int t = 0; t < nt; t++) {
                    int32_t four;
                    memcpy(&four, x[t].q + k, 4);
                    __m256i v = _mm256_set1_epi32(four);
                    v = deep ? _mm256_maddubs_epi16(w, v) : _mm256_maddubs_epi16(size, _mm256_sign_epi8(v, w));
                    words[t] = d ? _mm256_add_epi16(words[t], v) : v;
                }
            }
#pragma GCC unroll 6
            for (int t = 0; t < nt; t++) {
                __m256i pair = _mm256_madd_epi16(words[t], ones);
                dot[t] = c ? _mm256_add_epi32(dot[t], pair) : pair;
            }
        }
        int at = g * group / QUANT_GROUP;
        __m256 scale = _mm256_load_ps(panel->scale[at]), base = _mm256_load_ps(panel->base[at]);
#pragma GCC unroll 6
        for (int t = 0; t < nt; t++) {
            __m256 d = _mm256_mul_ps(_mm256_cvtepi32_ps(dot[t]), scale);
            sum[t] = _mm256_fmadd_ps(d, _mm256_broadcast_ss(x[t].scale + g * group / 32), sum[t]);
            if (deep) sum[t] = _mm256_fnmadd_ps(base, _mm256_broadcast_ss(x[t].sum + g), sum[t]);
        }
    }
#pragma GCC unroll 6
    for (int t = 0; t < nt; t++) _mm256_store_ps(sums + t * CHUNK_ROWS, sum[t]);
}

typedef void (*Sweep)(float *sums, const Panel *panel, const GemmUnit *x, int n_tokens, bool is_first, Ahead *ahead,
                      int n_ahead);

#define GEMM_SWEEP(name, group, deep)                                                                                  \
    static void name(float *sums, const Panel *panel, const GemmUnit *x, int n_tokens, bool is_first, Ahead *ahead,    \
                     int n_ahead) {                                                                                    \
        SWEEP(n_tokens, GEMM_TILE, group, deep)                                                                        \
    }
#define GEMM_TILE(nt, ...) gemm_tile(sums + t * CHUNK_ROWS, panel, x + t, is_first, ahead, n_ahead, nt, __VA_ARGS__)
GEMM_SWEEP(sweep_wide, 32, 0)
GEMM_SWEEP(sweep_32_4, 32, 8) // weights of at most 4 bits
GEMM_SWEEP(sweep_32_5, 32, 4)
GEMM_SWEEP(sweep_16_5, 16, 4)
GEMM_SWEEP(sweep_16_6, 16, 2)

// 64 rows times 512 tokens at a time, their sums (128 KiB) and the activations of 256 columns (180 KiB) in L2; panels
// of 8 rows (3 KiB), decoded once for all tokens.
INLINE void gemm_rows(float *out, size_t out_stride, const Tensor *w, const GemmUnit *encoded, int n_tokens,
                      int row_begin, int row_end, const Format *f) {
    const Sweep sweep = is_wide(f)       ? sweep_wide
                        : f->group == 16 ? f->max > 31 ? sweep_16_6 : sweep_16_5
                        : f->max > 15    ? sweep_32_5
                                         : sweep_32_4;
    float sums[TOKEN_BLOCK][CHUNK_ROWS] __attribute__((aligned(64)));
    for (int row = row_begin; row < row_end; row += CHUNK_ROWS)
        for (int first_token = 0; first_token < n_tokens; first_token += TOKEN_BLOCK) {
            int n_rows = min_int(row_end - row, CHUNK_ROWS), n = min_int(n_tokens - first_token, TOKEN_BLOCK);
            for (int k = 0; k < w->cols; k += UNIT) {
                Ahead ahead = ahead_of_rows(w, row, CHUNK_ROWS, k, UNIT);
                // A line for each unit unpacked, the rest for each group of columns of a tile.
                int n_groups = CHUNK_ROWS / 8 * ((n + TILE_TOKENS - 1) / TILE_TOKENS) * UNIT / f->group;
                int n_ahead = (ahead.n_lines - CHUNK_ROWS + n_groups - 1) / n_groups;
                for (int r = 0; r < n_rows; r += 8) {
                    Panel panel;
                    pack_panel(&panel, w, row + r, row_end, k, &ahead, f);
                    sweep(sums[0] + r, &panel, encoded + (size_t)(k / UNIT) * (size_t)n_tokens + first_token, n, k == 0,
                          &ahead, n_ahead);
                }
            }
            write_sums(out + (size_t)first_token * out_stride + row, out_stride, sums[0], n, n_rows);
        }
}

#define KERNEL(name, call)                                                                                             \
    static void name(float *out, size_t out_stride, const Tensor *w, const void *encoded, int n_tokens, int row_begin, \
                     int row_end) {                                                                                    \
        call;                                                                                                          \
    }
#define INTEGER_TYPE(type, name, off, has_min, group, block, bytes, nibbles, max)                                      \
    static const Format format_##name = {unpack_##name, off, has_min, group, block, bytes, max};                       \
    KERNEL(mat_##name, mat_rows(out, out_stride, w, encoded, n_tokens, row_begin, row_end, &format_##name))            \
    KERNEL(gemm_##name, gemm_rows(out, out_stride, w, encoded, n_tokens, row_begin, row_end, &format_##name))
INTEGER_TYPES(INTEGER_TYPE)
#define FLOAT_TYPE(type, name)                                                                                         \
    KERNEL(mat_##name, float_mat_rows(out, out_stride, w, encoded, n_tokens, row_begin, row_end, TYPE_##type))         \
    KERNEL(gemm_##name, float_gemm_rows(out, out_stride, w, encoded, n_tokens, row_begin, row_end, TYPE_##type))
FLOAT_TYPES(FLOAT_TYPE)

static void rmsnorm(float *out, const float *x, const float *weight, float eps, int n) {
    __m256 sum[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps()};
    for (int i = 0; i < n; i += 32)
        for (int j = 0; j < 4; j++) {
            __m256 v = load_tail(x + i + 8 * j, n - i - 8 * j);
            sum[j] = _mm256_fmadd_ps(v, v, sum[j]);
        }
    float square = sum_lanes(_mm256_add_ps(_mm256_add_ps(sum[0], sum[1]), _mm256_add_ps(sum[2], sum[3])));
    __m256 scale = _mm256_set1_ps(1.0f / sqrtf(square / (float)n + eps));
    for (int i = 0; i < n; i += 8) {
        __m256 v = _mm256_mul_ps(load_tail(x + i, n - i), scale);
        store_tail(out + i, n - i, _mm256_mul_ps(v, load_tail(weight + i, n - i)));
    }
}

// e^x to 2 ulp for x in [-87, 88], held at these ends; NaN stays.
INLINE __m256 exp_ps(__m256 x) {
    x = _mm256_max_ps(_mm256_set1_ps(-87), _mm256_min_ps(_mm256_set1_ps(88), x));
    __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504f)), 8);
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375f), x);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4f), r);
    __m256 p = _mm256_set1_ps(1.9875691500e-4f);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.3981999507e-3f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(8.3334519073e-3f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(4.1665795894e-2f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.6666665459e-1f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(5.0000001201e-1f));
    p = _mm256_add_ps(_mm256_fmadd_ps(p, _mm256_mul_ps(r, r), r), _mm256_set1_ps(1));
    __m256i power = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    return _mm256_mul_ps(p, _mm256_castsi256_ps(power));
}

static void swiglu(float *gate, const float *up, int n) {
    for (int i = 0; i < n; i += 8) {
        __m256 g = load_tail(gate + i, n - i), e = exp_ps(_mm256_sub_ps(_mm256_setzero_ps(), g));
        __m256 silu = _mm256_div_ps(g, _mm256_add_ps(_mm256_set1_ps(1), e));
        store_tail(gate + i, n - i, _mm256_mul_ps(silu, load_tail(up + i, n - i)));
    }
}

static void add(float *x, const float *y, int n) {
    for (int i = 0; i < n; i += 8)
        store_tail(x + i, n - i, _mm256_add_ps(load_tail(x + i, n - i), load_tail(y + i, n - i)));
}

static void store(Type type, void *row, const float *x, int n) {
    if (type == TYPE_F32) memcpy(row, x, (size_t)n * sizeof(float));
    for (int i = 0; type == TYPE_F16 && i < n; i += 8) {
        __m128i h = _mm256_cvtps_ph(load_tail(x + i, n - i), _MM_FROUND_TO_NEAREST_INT);
        memcpy((uint16_t *)row + i, &h, (size_t)min_int(8, n - i) * 2);
    }
    for (int i = 0; type == TYPE_Q8_0 && i < n; i += 32) {
        BlockQ8_0 *b = (BlockQ8_0 *)row + i / 32;
        int sums[2];
        b->d = _cvtss_sh(encode_groups(x + i, 32, 2, b->qs, sums), _MM_FROUND_TO_NEAREST_INT);
    }
}

// One row of the KV cache as float32, with zeros up to a multiple of 8 values.
INLINE void load_kv(Type type, const void *row, float *out, int n) {
    int i = 0;
    if (type == TYPE_F16) // the usual one without a choice inside the loop
        for (; i + 8 <= n; i += 8) _mm256_store_ps(out + i, load_8(TYPE_F16, row, i, 8));
    for (; i < n; i += 8) {
        if (type == TYPE_Q8_0) {
            const BlockQ8_0 *b = (const BlockQ8_0 *)row + i / 32;
            __m256i q = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)(b->qs + i % 32)));
            _mm256_store_ps(out + i, _mm256_mul_ps(_mm256_cvtepi32_ps(q), _mm256_set1_ps(f16_at(&b->d))));
        } else {
            _mm256_store_ps(out + i, load_8(type, row, i, n - i));
        }
    }
}

enum { MAX_HEAD = 256, KEY_TILE = 16 };

// Scores to weights: p = exp(score - max) for the n keys that a query sees, 0 for the others up to n_all.
static void soften(float *p, int n, int n_all, float *max_out, float *sum_out) {
    float max = -INFINITY;
    __m256 sum = _mm256_setzero_ps();
    for (int k = 0; k < n; k++)
        if (!(p[k] <= max)) max = p[k];
    for (int k = 0; k < n_all; k += 8) {
        __m256 e = exp_ps(_mm256_sub_ps(_mm256_load_ps(p + k), _mm256_set1_ps(max)));
        _mm256_store_ps(p + k, e);
        if (k + 8 > n)
            for (int j = k > n ? k : n; j < k + 8; j++) p[j] = 0;
        sum = _mm256_add_ps(sum, _mm256_load_ps(p + k));
    }
    *max_out = max;
    *sum_out = n > 0 ? sum_lanes(sum) : 0;
}

// Keys in tiles of 16: converted to float32 once for all queries, K transposed to [dim][16 keys], V as it lies. Both
// products are float_tile's. While the scores are computed V is fetched, and then the K of the next page.
static void attend(const AttendPage *a) {
    float scores[ATTEND_MAX_QUERIES][KV_PAGE] __attribute__((aligned(64)));
    float rows[KEY_TILE][MAX_HEAD] __attribute__((aligned(64))), keys[MAX_HEAD][KEY_TILE] __attribute__((aligned(64)));
    size_t row_bytes = quant_row_bytes(a->kv_type, (size_t)a->head_dim);
    int n_all = 0, dim = a->head_dim;
    for (int i = 0; i < a->n_q; i++) n_all = a->n_keys[i] > n_all ? a->n_keys[i] : n_all;
    Ahead ahead = ahead_of(a->v, (size_t)n_all * row_bytes, 2);
    for (int key = 0; key < n_all; key += KEY_TILE) {
        for (int i = 0; i < KEY_TILE; i++) {
            fetch(&ahead, 2);
            load_kv(a->kv_type, (const char *)a->k + (size_t)min_int(key + i, n_all - 1) * row_bytes, rows[i], dim);
        }
        for (int h = 0; h < KEY_TILE; h += 8)
            for (int d = 0; d < dim; d += 8) {
                fetch(&ahead, 1);
                transpose(keys[d] + h, KEY_TILE, rows[h] + d, MAX_HEAD);
            }
        float_sweep(scores[0] + key, KV_PAGE, keys[0], KEY_TILE, a->q, (size_t)dim, a->n_q, dim, true, KEY_TILE);
    }
    for (int i = 0; i < a->n_q; i++) soften(scores[i], a->n_keys[i], n_all, a->max + i, a->sum + i);
    if (!n_all) memset(a->acc, 0, (size_t)a->n_q * (size_t)dim * sizeof(float));
    ahead = ahead_of(a->next_k, (size_t)n_all * row_bytes, 2);
    for (int key = 0; key < n_all; key += KEY_TILE) {
        int n = min_int(KEY_TILE, n_all - key);
        for (int i = 0; i < n; i++) {
            fetch(&ahead, 2);
            load_kv(a->kv_type, (const char *)a->v + (size_t)(key + i) * row_bytes, rows[i], dim);
        }
        for (int d = 0; d < dim; d += 16) {
            fetch(&ahead, 4);
            float_sweep(a->acc + d, (size_t)dim, rows[0] + d, MAX_HEAD, scores[0] + key, KV_PAGE, a->n_q, n, key == 0,
                        dim - d);
        }
    }
}

static double peak(int rounds) {
    __m256 acc[12], a = _mm256_set1_ps(1.0f / (float)(rounds + 2)), b = _mm256_set1_ps(0.5f);
    for (int j = 0; j < 12; j++) acc[j] = _mm256_set1_ps((float)j);
    for (int i = 0; i < rounds; i++) {
#pragma GCC unroll 12
        for (int j = 0; j < 12; j++) acc[j] = _mm256_fmadd_ps(acc[j], a, b);
    }
    for (int j = 1; j < 12; j++) acc[0] = _mm256_add_ps(acc[0], acc[j]);
    volatile float keep = sum_lanes(acc[0]);
    (void)keep;
    return 12 * 16.0 * rounds;
}

#define FLOAT_MAT(type, name)  [TYPE_##type] = {1, 16, 1, float_bytes, float_encode, mat_##name},
#define FLOAT_GEMM(type, name) [TYPE_##type] = {12, CHUNK_ROWS, 1, float_gemm_bytes, float_gemm_encode, gemm_##name},
#define MAT(type, name, ...)   [TYPE_##type] = {1, 16, 1, mat_bytes, mat_encode, mat_##name},
#define GEMM(type, name, off, has_min, group, ...)                                                                     \
    [TYPE_##type] = {3, 8, 1, gemm_bytes, gemm_encode_##group, gemm_##name},

// clang-format off
const Kernels kernels_avx2 = {
    .name = "avx2",
    .mat = {FLOAT_TYPES(FLOAT_MAT) INTEGER_TYPES(MAT)},
    .gemm = {FLOAT_TYPES(FLOAT_GEMM) INTEGER_TYPES(GEMM)},
    .rmsnorm = rmsnorm,
    .swiglu = swiglu,
    .add = add,
    .attend = attend,
    .peak_unit = "FMA float32",
    .peak = peak,
    .store = store,
};
// clang-format on
