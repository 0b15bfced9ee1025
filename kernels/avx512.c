// AVX-512 (F, BW, DQ, VL, VNNI).
//
// Integer types share one form: 256 weights become four registers of unsigned bytes u, with a scale and a minimum for
// each group of 16: w = scale * (u - OFF) - min. A type is an `unpack` function that produces this form; the decode
// kernel (mat), which dots it with int8 activations at once, and the prefill kernel (gemm), which turns it into panels,
// are made from it. F32, F16 and BF16 have float32 activations and a `load` function each.
#include "avx512_unpack.h"
#include "fetch.h"
#include "isa.h"

#include <math.h>

// What the kernels are made from, constant in each of them.
typedef struct {
    Unpack unpack;
    int off;
    bool has_min;
    int group;   // scales are per 16 or per 32 weights
    int block;   // weights per block: with 32 the last unit of a row may be short
    int bytes;   // per 256 weights
    int nibbles; // where they begin in a block, if weights are nibbles
} Format;

enum { MAX_UNIT_BYTES = 288 };

// A whole unit: where it lies, or, if the row ends in it, a copy in front of zeros (scale 0, whatever the type).
INLINE const uint8_t *whole_unit(const uint8_t *p, int n_cols, const Format *f, uint8_t *buffer) {
    if (n_cols >= UNIT) return p;
    memset(buffer, 0, MAX_UNIT_BYTES);
    memcpy(buffer, p, (size_t)(f->bytes / (UNIT / f->block) * (n_cols / f->block)));
    return buffer;
}

static int n_units(int cols) { return (cols + UNIT - 1) / UNIT; }

// The scale of int8 values: max |x| / 127, or NaN if one of them is not finite; the inverse is 0 then.
INLINE float encode_scale(int max_bits, float *inverse) {
    float max;
    memcpy(&max, &max_bits, sizeof max);
    bool is_small = max < 0x1p-100f;
    *inverse = is_small || max_bits >= 0x7f800000 ? 0 : 127 / max;
    return max_bits >= 0x7f800000 ? NAN : is_small ? 0 : max / 127;
}

INLINE __m512i to_integers(__m512 x, float inverse) {
    x = _mm512_mul_ps(x, _mm512_set1_ps(inverse));
    return _mm512_maskz_cvtps_epi32(_mm512_cmp_ps_mask(x, x, _CMP_ORD_Q), x);
}

INLINE __m512i abs_bits(__m512 x) { return _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff)); }

INLINE __m512 load_tail(const float *x, int n) { return _mm512_maskz_loadu_ps(first(n), x); }

// Decode: int8 activations, a scale per group of 16.
typedef struct {
    int8_t q[UNIT];
    float scale[GROUPS];
    float sum[GROUPS]; // scale * sum of q
} MatUnit;

static size_t mat_bytes(int n_tokens, int cols) { return (size_t)n_tokens * (size_t)n_units(cols) * sizeof(MatUnit); }

static void mat_encode(void *encoded, const float *x, int n_tokens, int cols, int token_begin, int token_end) {
    (void)n_tokens;
    for (int t = token_begin; t < token_end; t++) {
        MatUnit *unit = (MatUnit *)encoded + (size_t)t * (size_t)n_units(cols);
        const float *row = x + (size_t)t * (size_t)cols;
        for (int i = 0; i < n_units(cols) * GROUPS; i++) {
            MatUnit *u = unit + i / GROUPS;
            int g = i % GROUPS;
            __m512 v = load_tail(row + i * QUANT_GROUP, cols - i * QUANT_GROUP);
            float inverse, scale = encode_scale(_mm512_reduce_max_epi32(abs_bits(v)), &inverse);
            __m512i q = to_integers(v, inverse);
            _mm_store_si128((__m128i *)(u->q + g * QUANT_GROUP), _mm512_cvtsepi32_epi8(q));
            u->scale[g] = scale;
            u->sum[g] = scale * (float)_mm512_reduce_add_epi32(q);
        }
    }
}

enum { MAT_TOKENS = 4 };

// 256 columns of four rows times NT tokens. Per row about 15 operations to unpack, and per token 4 dot products of 64
// bytes, 4 conversions, 4 spreads of the scales and 5 FMAs.
INLINE void mat_unit(__m512 acc[4][MAT_TOKENS], const uint8_t *const p[4], const MatUnit *x, size_t n, int nt,
                     Type type, const Format *f) {
    const __m512i quarter = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        Unit u = f->unpack(p[i], type);
        __m512 min = u.min;
        if (!f->has_min)
            min = _mm512_mul_ps(u.scale, _mm512_set1_ps((float)f->off));
        else if (f->off)
            min = _mm512_fmadd_ps(u.scale, _mm512_set1_ps((float)f->off), min);
#pragma GCC unroll 4
        for (int t = 0; t < nt; t++) {
            const MatUnit *xt = x + (size_t)t * n;
            __m512 scale = _mm512_mul_ps(u.scale, _mm512_load_ps(xt->scale));
            __m512 a = _mm512_fnmadd_ps(min, _mm512_load_ps(xt->sum), acc[i][t]);
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++) {
                __m512i dot = _mm512_dpbusd_epi32(_mm512_setzero_si512(), u.w[j], _mm512_load_si512(xt->q + 64 * j));
                __m512i spread = _mm512_add_epi32(quarter, _mm512_set1_epi32(4 * j));
                a = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), _mm512_permutexvar_ps(spread, scale), a);
            }
            acc[i][t] = a;
        }
    }
}

// Four rows times NT tokens. Rows far apart give the memory four streams.
INLINE void mat_tile(float *out, size_t out_stride, const Tensor *w, const MatUnit *x, const int *row, int nt,
                     const Format *f) {
    enum { AHEAD = 1024 };
    size_t n = (size_t)n_units(w->cols);
    __m512 acc[4][MAT_TOKENS];
    const uint8_t *p[4];
    uint8_t buffers[4][MAX_UNIT_BYTES];
    for (int i = 0; i < 4; i++) {
        p[i] = (const uint8_t *)w->data + (size_t)row[i] * w->row_bytes;
        for (int t = 0; t < nt; t++) acc[i][t] = _mm512_setzero_ps();
    }
    for (int k = UNIT; k <= w->cols; k += UNIT, x++) {
        mat_unit(acc, p, x, n, nt, w->type, f);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
#pragma GCC unroll 8
            for (int b = 0; b < f->bytes; b += 64) _mm_prefetch((const char *)p[i] + AHEAD + b, _MM_HINT_T0);
            p[i] += f->bytes;
        }
    }
    if (f->block < UNIT && w->cols % UNIT) {
        for (int i = 0; i < 4; i++) p[i] = whole_unit(p[i], w->cols % UNIT, f, buffers[i]);
        mat_unit(acc, p, x, n, nt, w->type, f);
    }
    for (int i = 0; i < 4; i++)
        for (int t = 0; t < nt; t++) out[(size_t)t * out_stride + (size_t)row[i]] = _mm512_reduce_add_ps(acc[i][t]);
}

// The rows are taken from the four quarters of the range.
INLINE void mat_rows(float *out, size_t out_stride, const Tensor *w, const void *encoded, int n_tokens, int row_begin,
                     int row_end, const Format *f) {
    int quarter = (row_end - row_begin + 3) / 4;
    size_t n = (size_t)n_units(w->cols);
    for (int r = row_begin; r < row_begin + quarter; r++) {
        int row[4];
        for (int i = 0; i < 4; i++) row[i] = min_int(r + i * quarter, row_end - 1);
        const MatUnit *x = encoded;
        int t = 0;
        for (; t + 4 <= n_tokens; t += 4)
            mat_tile(out + (size_t)t * out_stride, out_stride, w, x + (size_t)t * n, row, 4, f);
        for (; t + 2 <= n_tokens; t += 2)
            mat_tile(out + (size_t)t * out_stride, out_stride, w, x + (size_t)t * n, row, 2, f);
        if (t < n_tokens) mat_tile(out + (size_t)t * out_stride, out_stride, w, x + (size_t)t * n, row, 1, f);
    }
}

// Prefill. Activations come in blocks of K_BLOCK columns, for each block the tokens one after another.
enum { K_BLOCK = 512, PANEL_ROWS = 32, CHUNK_ROWS = 64, TILE_TOKENS = 6, SWEEP_TOKENS = 48, TOKEN_BLOCK = 512 };

// A dot product d, below 2^22 in size, is summed on top of BASE_BITS: the bits are then those of the float BASE + d and
// need no conversion. scale * (BASE + d) - scale * BASE is scale * d rounded once, because the scales of all types have
// so few bits (19 at most) that scale * BASE is exact.
enum { BASE_BITS = 0x4b400000 };
static const float BASE = 0x1.8p23f;

typedef struct {
    int8_t q[K_BLOCK];
    float scale[K_BLOCK / 32];
    int32_t start[K_BLOCK / 16]; // BASE_BITS - 128 * sum of q per group (of 16 or 32): weights are unsigned
    float sum[K_BLOCK / 16];     // scale * sum of q
} GemmBlock;

// 32 rows of K_BLOCK columns: for each half, [k / 4][16 rows][4] as w + 128 and [group][16 rows] as scale and min.
typedef struct {
    uint8_t w[2][K_BLOCK * 16];
    float scale[2][K_BLOCK / 16][16], min[2][K_BLOCK / 16][16];
} __attribute__((aligned(64))) Panel;

static size_t gemm_bytes(int n_tokens, int cols) {
    return (size_t)n_tokens * (size_t)((cols + K_BLOCK - 1) / K_BLOCK) * sizeof(GemmBlock);
}

INLINE void gemm_encode(void *encoded, const float *x, int n_tokens, int cols, int token_begin, int token_end,
                        int group) {
    for (int t = token_begin; t < token_end; t++) {
        const float *row = x + (size_t)t * (size_t)cols;
        for (int k = 0; k < n_units(cols) * UNIT; k += 32) {
            GemmBlock *b = (GemmBlock *)encoded + (size_t)(k / K_BLOCK) * (size_t)n_tokens + t;
            int at = k % K_BLOCK;
            __m512 v0 = load_tail(row + k, cols - k), v1 = load_tail(row + k + 16, cols - k - 16);
            __m512i bits = _mm512_max_epi32(abs_bits(v0), abs_bits(v1));
            float inverse, scale = encode_scale(_mm512_reduce_max_epi32(bits), &inverse);
            __m512i q0 = to_integers(v0, inverse);
            __m512i q1 = to_integers(v1, inverse);
            _mm_store_si128((__m128i *)(b->q + at), _mm512_cvtsepi32_epi8(q0));
            _mm_store_si128((__m128i *)(b->q + at + 16), _mm512_cvtsepi32_epi8(q1));
            int s0 = _mm512_reduce_add_epi32(q0), s1 = _mm512_reduce_add_epi32(q1);
            if (group == 32) s0 += s1;
            b->scale[at / 32] = scale;
            b->start[at / group] = BASE_BITS - 128 * s0;
            b->sum[at / group] = scale * (float)s0;
            if (group == 32) continue;
            b->start[at / group + 1] = BASE_BITS - 128 * s1;
            b->sum[at / group + 1] = scale * (float)s1;
        }
    }
}

static void gemm_encode_16(void *encoded, const float *x, int n_tokens, int cols, int token_begin, int token_end) {
    gemm_encode(encoded, x, n_tokens, cols, token_begin, token_end, 16);
}

static void gemm_encode_32(void *encoded, const float *x, int n_tokens, int cols, int token_begin, int token_end) {
    gemm_encode(encoded, x, n_tokens, cols, token_begin, token_end, 32);
}

// The scales (or minima) of 16 rows, one per group.
INLINE void transpose_groups(float (*out)[16], float (*in)[GROUPS], int group) {
    const void *row[16];
    for (int i = 0; i < 16; i++) row[i] = in[i];
    for (int i = 0; i < GROUPS; i += 4) {
        __m512i r[4];
        transpose_16(r, row, (size_t)i * 4);
        for (int d = 0; d < 4; d += group / 16) _mm512_store_si512(out[(i + d) * 16 / group], r[d]);
    }
}

// k_scales of 16 rows at once.
INLINE void panel_k_scales(float (*scale)[16], float (*min)[16], const void *const row[16]) {
    const __m512i low = _mm512_set1_epi32(15), high = _mm512_set1_epi32(0x30), six = _mm512_set1_epi32(63);
    __m512i r[4];
    transpose_16(r, row, 0);
    __m512 d[2] = {_mm512_cvtph_ps(_mm512_cvtepi32_epi16(r[0])),
                   _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(r[0], 16)))};
    for (int i = 0; i < 8; i++) { // four scales, four minima
        __m512i byte = _mm512_srli_epi32(r[1 + i / 4], 8 * (i % 4));
        __m512i last = _mm512_and_si512(_mm512_srli_epi32(r[3], 8 * (i % 4) + i / 4 * 4), low);
        last = _mm512_or_si512(last, _mm512_and_si512(_mm512_srli_epi32(byte, 2), high));
        float(*to)[16] = i < 4 ? scale + i : min + i - 4;
        _mm512_store_ps(to[0], _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_and_si512(byte, six)), d[i / 4]));
        _mm512_store_ps(to[4], _mm512_mul_ps(_mm512_cvtepi32_ps(last), d[i / 4]));
    }
}

INLINE __m512i nibbles_to_panel(__m512i v, const Format *f) {
    return f->off == 128 ? iq4_plus_128(v) : _mm512_add_epi8(v, _mm512_set1_epi8((char)(128 - f->off)));
}

// 256 columns of 16 rows whose weights are nibbles: transposed as they lie, then split.
INLINE void panel_nibbles(uint8_t *out, const void *const row[16], const Format *f) {
    const __m512i low = _mm512_set1_epi8(15);
    const int step = f->block == 32 ? f->bytes / 8 : 16, high = f->unpack == unpack_q4_k ? 32 : 16;
    for (int c = 0; c < UNIT / 32; c++) {
        __m512i r[4];
        transpose_16(r, row, (size_t)(f->nibbles + c * step));
        int k = high == 16 ? 32 * c : 64 * (c / 2) + 16 * (c % 2);
        for (int d = 0; d < 4; d++) {
            __m512i v0 = _mm512_and_si512(r[d], low), v1 = _mm512_and_si512(_mm512_srli_epi16(r[d], 4), low);
            _mm512_store_si512(out + (k + 4 * d) * 16, nibbles_to_panel(v0, f));
            _mm512_store_si512(out + (k + high + 4 * d) * 16, nibbles_to_panel(v1, f));
        }
    }
}

// One half of a panel: 16 rows, columns [k, k + nk).
INLINE void panel_half(Panel *panel, int half, const Tensor *w, int row, int row_end, int k, int nk, Ahead *ahead,
                       const Format *f) {
    uint8_t q[16][UNIT] __attribute__((aligned(64))), buffers[16][MAX_UNIT_BYTES];
    float scale[16][GROUPS] __attribute__((aligned(64))), min[16][GROUPS] __attribute__((aligned(64)));
    const bool has_k_scales = f->unpack == unpack_q4_k || f->unpack == unpack_q5_k;
    for (int column = k; column < k + nk; column += UNIT) {
        const void *p[16];
        for (int i = 0; i < 16; i++) {
            const uint8_t *block = (const uint8_t *)w->data + (size_t)min_int(row + i, row_end - 1) * w->row_bytes;
            block += (size_t)(column / UNIT) * (size_t)f->bytes;
            if (f->block < UNIT) block = whole_unit(block, w->cols - column, f, buffers[i]);
            p[i] = block;
            fetch(ahead, 1);
            Unit u = f->unpack(block, w->type);
            if (!has_k_scales) _mm512_store_ps(scale[i], u.scale);
            if (!has_k_scales && f->has_min) _mm512_store_ps(min[i], u.min);
            for (int j = 0; j < 4 && !f->nibbles; j++)
                _mm512_store_si512(q[i] + 64 * j, _mm512_add_epi8(u.w[j], _mm512_set1_epi8((char)(128 - f->off))));
        }
        if (f->nibbles)
            panel_nibbles(panel->w[half] + (column - k) * 16, p, f);
        else
            transpose(panel->w[half] + (column - k) * 16, q, sizeof q[0], UNIT / 4);
        int group = (column - k) / f->group;
        if (has_k_scales) {
            panel_k_scales(panel->scale[half] + group, panel->min[half] + group, p);
            continue;
        }
        transpose_groups(panel->scale[half] + group, scale, f->group);
        if (f->has_min) transpose_groups(panel->min[half] + group, min, f->group);
    }
}

// sums (nt, CHUNK_ROWS) (+)= x times 32 rows of weights: 2 NT accumulators of int32, as many of float32. Per 32
// columns, for 16 rows and a token: 8 dot products of 16 x 4 bytes and 2 or 3 operations to scale them (4 or 6 with
// groups of 16). The panel (16 KiB of weights) stays in L1 while tokens pass; a tile reads 704 bytes per token.
INLINE void gemm_tile(float *sums, const Panel *panel, const GemmBlock *x, int nk, bool is_first, Ahead *ahead,
                      int n_ahead, int nt, int group, bool has_min) {
    __m512 sum[2][TILE_TOKENS];
#pragma GCC unroll 6
    for (int t = 0; t < nt; t++) sum[0][t] = sum[1][t] = _mm512_setzero_ps();
    for (int g = 0; g < nk / group; g++) {
        __m512i dot[2][TILE_TOKENS];
        fetch(ahead, n_ahead);
#pragma GCC unroll 6
        for (int t = 0; t < nt; t++) dot[0][t] = dot[1][t] = _mm512_set1_epi32(x[t].start[g]);
#pragma GCC unroll 8
        for (int c = 0; c < group / 4; c++) {
            int k = g * group + 4 * c;
            __m512i w0 = _mm512_load_si512(panel->w[0] + k * 16), w1 = _mm512_load_si512(panel->w[1] + k * 16);
#pragma GCC unroll 6
            for (int t = 0; t < nt; t++) {
                int32_t four;
                memcpy(&four, x[t].q + k, 4);
                __m512i v = _mm512_set1_epi32(four);
                dot[0][t] = _mm512_dpbusd_epi32(dot[0][t], w0, v);
                dot[1][t] = _mm512_dpbusd_epi32(dot[1][t], w1, v);
            }
        }
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            __m512 scale = _mm512_load_ps(panel->scale[h][g]), min = _mm512_load_ps(panel->min[h][g]);
            __m512 scale_base = _mm512_mul_ps(scale, _mm512_set1_ps(BASE));
#pragma GCC unroll 6
            for (int t = 0; t < nt; t++) {
                __m512 d = _mm512_fmsub_ps(_mm512_castsi512_ps(dot[h][t]), scale, scale_base);
                sum[h][t] = _mm512_fmadd_ps(d, _mm512_set1_ps(x[t].scale[g * group / 32]), sum[h][t]);
                if (has_min) sum[h][t] = _mm512_fnmadd_ps(min, _mm512_set1_ps(x[t].sum[g]), sum[h][t]);
            }
        }
    }
#pragma GCC unroll 6
    for (int t = 0; t < nt; t++)
        for (int h = 0; h < 2; h++) {
            float *to = sums + t * CHUNK_ROWS + 16 * h;
            _mm512_store_ps(to, is_first ? sum[h][t] : _mm512_add_ps(sum[h][t], _mm512_load_ps(to)));
        }
}

// Calls TILE(number of tokens, a constant) for all tokens, t being the first of them; tiles of nearly the same size.
#define SWEEP(n_tokens, TILE)                                                                                          \
    for (int t = 0, left = ((n_tokens) + TILE_TOKENS - 1) / TILE_TOKENS, nt; left; t += nt, left--) {                  \
        nt = ((n_tokens)-t + left - 1) / left;                                                                         \
        switch (nt) {                                                                                                  \
        case 1: TILE(1); break;                                                                                        \
        case 2: TILE(2); break;                                                                                        \
        case 3: TILE(3); break;                                                                                        \
        case 4: TILE(4); break;                                                                                        \
        case 5: TILE(5); break;                                                                                        \
        default: TILE(6);                                                                                              \
        }                                                                                                              \
    }

typedef void (*Sweep)(float *sums, const Panel *panel, const GemmBlock *x, int n_tokens, int nk, bool is_first,
                      Ahead *ahead, int n_ahead);

#define GEMM_SWEEP(name, TILE)                                                                                         \
    static void name(float *sums, const Panel *panel, const GemmBlock *x, int n_tokens, int nk, bool is_first,         \
                     Ahead *ahead, int n_ahead) {                                                                      \
        SWEEP(n_tokens, TILE)                                                                                          \
    }
#define TILE_32(nt)     gemm_tile(sums + t * CHUNK_ROWS, panel, x + t, nk, is_first, ahead, n_ahead, nt, 32, false)
#define TILE_32_MIN(nt) gemm_tile(sums + t * CHUNK_ROWS, panel, x + t, nk, is_first, ahead, n_ahead, nt, 32, true)
#define TILE_16(nt)     gemm_tile(sums + t * CHUNK_ROWS, panel, x + t, nk, is_first, ahead, n_ahead, nt, 16, false)
#define TILE_16_MIN(nt) gemm_tile(sums + t * CHUNK_ROWS, panel, x + t, nk, is_first, ahead, n_ahead, nt, 16, true)
GEMM_SWEEP(sweep_32, TILE_32)
GEMM_SWEEP(sweep_32_min, TILE_32_MIN)
GEMM_SWEEP(sweep_16, TILE_16)
GEMM_SWEEP(sweep_16_min, TILE_16_MIN)

static void write_sums(float *out, size_t out_stride, const float *sums, int n_tokens, int n_rows) {
    for (int t = 0; t < n_tokens; t++)
        for (int r = 0; r < n_rows; r += 16)
            _mm512_mask_storeu_ps(out + (size_t)t * out_stride + r, first(n_rows - r),
                                  _mm512_load_ps(sums + t * CHUNK_ROWS + r));
}

// 64 rows times 512 tokens at a time; their sums (128 KiB) and two panels stay in L2. Activations come from L3 once
// for the 64 rows, SWEEP_TOKENS at a time. With so few tokens that they stay in L2, one panel at a time stays in L1.
INLINE void gemm_rows(float *out, size_t out_stride, const Tensor *w, const void *encoded, int n_tokens, int row_begin,
                      int row_end, const Format *f) {
    const Sweep sweep = f->group == 32 ? f->has_min ? sweep_32_min : sweep_32 : f->has_min ? sweep_16_min : sweep_16;
    float sums[TOKEN_BLOCK][CHUNK_ROWS] __attribute__((aligned(64)));
    Panel panels[CHUNK_ROWS / PANEL_ROWS];
    int chunk = n_tokens > SWEEP_TOKENS ? CHUNK_ROWS : PANEL_ROWS;
    for (int row = row_begin; row < row_end; row += chunk)
        for (int first_token = 0; first_token < n_tokens; first_token += TOKEN_BLOCK) {
            int n_rows = min_int(row_end - row, chunk), n = min_int(n_tokens - first_token, TOKEN_BLOCK);
            for (int k = 0; k < w->cols; k += K_BLOCK) {
                int nk = min_int(K_BLOCK, n_units(w->cols) * UNIT - k);
                const GemmBlock *x =
                    (const GemmBlock *)encoded + (size_t)(k / K_BLOCK) * (size_t)n_tokens + first_token;
                Ahead ahead = ahead_of_rows(w, row, chunk, k, nk);
                // A line for each unit unpacked, the rest for each group of columns of a tile.
                int n_groups = chunk / PANEL_ROWS * ((n + TILE_TOKENS - 1) / TILE_TOKENS) * nk / f->group;
                int n_ahead = (ahead.n_lines - chunk * nk / UNIT + n_groups - 1) / n_groups;
                for (int r = 0; r < n_rows; r += 16)
                    panel_half(&panels[r / 32], r / 16 % 2, w, row + r, row_end, k, nk, &ahead, f);
                for (int t = 0; t < n; t += SWEEP_TOKENS)
                    for (int r = 0; r < n_rows; r += PANEL_ROWS)
                        sweep(sums[t] + r, &panels[r / 32], x + t, min_int(n - t, SWEEP_TOKENS), nk, k == 0, &ahead,
                              n_ahead);
            }
            write_sums(out + (size_t)first_token * out_stride + row, out_stride, sums[0], n, n_rows);
        }
}

#define INTEGER_TYPE(type, name, off, has_min, group, block, bytes, nibbles, max)                                      \
    static const Format format_##name = {unpack_##name, off, has_min, group, block, bytes, nibbles};                   \
    static void mat_##name(float *out, size_t out_stride, const Tensor *w, const void *encoded, int n_tokens,          \
                           int row_begin, int row_end) {                                                               \
        mat_rows(out, out_stride, w, encoded, n_tokens, row_begin, row_end, &format_##name);                           \
    }                                                                                                                  \
    static void gemm_##name(float *out, size_t out_stride, const Tensor *w, const void *encoded, int n_tokens,         \
                            int row_begin, int row_end) {                                                              \
        gemm_rows(out, out_stride, w, encoded, n_tokens, row_begin, row_end, &format_##name);                          \
    }
INTEGER_TYPES(INTEGER_TYPE)

// F32, F16 and BF16: 16 weights from column k on as float32, zeros where the mask is not set.
typedef __m512 (*Load)(const void *row, int k, __mmask16 mask);

INLINE __m512 load_f32(const void *row, int k, __mmask16 mask) {
    return _mm512_maskz_loadu_ps(mask, (const float *)row + k);
}

INLINE __m512 load_f16(const void *row, int k, __mmask16 mask) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, (const uint16_t *)row + k));
}

INLINE __m512 load_bf16(const void *row, int k, __mmask16 mask) {
    __m256i h = _mm256_maskz_loadu_epi16(mask, (const uint16_t *)row + k);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

static size_t float_bytes(int n_tokens, int cols) { return (size_t)n_tokens * (size_t)cols * sizeof(float); }

static void float_encode(void *encoded, const float *x, int n_tokens, int cols, int token_begin, int token_end) {
    (void)n_tokens;
    size_t begin = (size_t)token_begin * (size_t)cols, end = (size_t)token_end * (size_t)cols;
    memcpy((float *)encoded + begin, x + begin, (end - begin) * sizeof(float));
}

// Four rows times NT tokens in float32. Per 16 weights a load (with conversion 2 to 3 operations) and an FMA per token.
INLINE void float_mat_tile(float *out, size_t out_stride, const Tensor *w, const float *x, const int *row, int nt,
                           Load load) {
    enum { AHEAD = 1024 };
    int n = w->cols, bytes = type_info(w->type)->bytes;
    __m512 acc[4][2];
    const char *p[4];
    for (int i = 0; i < 4; i++) {
        p[i] = (const char *)w->data + (size_t)row[i] * w->row_bytes;
        for (int t = 0; t < nt; t++) acc[i][t] = _mm512_setzero_ps();
    }
    for (int k = 0; k < n; k += 32) {
        __mmask16 m0 = first(n - k), m1 = first(n - k - 16);
        __m512 x0[2], x1[2];
        for (int t = 0; t < nt; t++) {
            x0[t] = _mm512_maskz_loadu_ps(m0, x + (size_t)t * (size_t)n + k);
            x1[t] = _mm512_maskz_loadu_ps(m1, x + (size_t)t * (size_t)n + k + 16);
        }
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            for (int a = 0; a < 32 * bytes; a += 64) _mm_prefetch(p[i] + k * bytes + AHEAD + a, _MM_HINT_T0);
            __m512 w0 = load(p[i], k, m0), w1 = load(p[i], k + 16, m1);
            for (int t = 0; t < nt; t++) acc[i][t] = _mm512_fmadd_ps(w0, x0[t], acc[i][t]);
            for (int t = 0; t < nt; t++) acc[i][t] = _mm512_fmadd_ps(w1, x1[t], acc[i][t]);
        }
    }
    for (int i = 0; i < 4; i++)
        for (int t = 0; t < nt; t++) out[(size_t)t * out_stride + (size_t)row[i]] = _mm512_reduce_add_ps(acc[i][t]);
}

INLINE void float_mat_rows(float *out, size_t out_stride, const Tensor *w, const float *x, int n_tokens, int row_begin,
                           int row_end, Load load) {
    int quarter = (row_end - row_begin + 3) / 4;
    for (int r = row_begin; r < row_begin + quarter; r++) {
        int row[4], t = 0;
        for (int i = 0; i < 4; i++) row[i] = min_int(r + i * quarter, row_end - 1);
        for (; t + 2 <= n_tokens; t += 2)
            float_mat_tile(out + (size_t)t * out_stride, out_stride, w, x + (size_t)t * (size_t)w->cols, row, 2, load);
        if (t < n_tokens)
            float_mat_tile(out + (size_t)t * out_stride, out_stride, w, x + (size_t)t * (size_t)w->cols, row, 1, load);
    }
}

// 32 columns of out (n_tokens, out_stride) (+)= x (n_tokens, x_stride) times two panels of [nk][16], panel_step bytes
// from one k to the next. Per k 2 loads, NT broadcasts and 2 NT FMAs: 12 accumulators for 6 tokens. Meanwhile four
// lines of `ahead` (or NULL) are fetched for every `every` k.
INLINE void float_tile(float *out, size_t out_stride, const void *const panel[2], size_t panel_step, const float *x,
                       size_t x_stride, int nk, bool is_first, int n_rows, Ahead *ahead, int every, int nt, Load load) {
    __m512 sum[2][TILE_TOKENS];
    const __mmask16 mask[2] = {first(n_rows), first(n_rows - 16)};
#pragma GCC unroll 6
    for (int t = 0; t < nt; t++)
        for (int h = 0; h < 2; h++)
            sum[h][t] =
                is_first ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(mask[h], out + (size_t)t * out_stride + 16 * h);
    for (int k = 0; k < nk; k++) {
        if (ahead && k % every == 0) fetch(ahead, 4);
        __m512 w0 = load((const char *)panel[0] + (size_t)k * panel_step, 0, 0xffff);
        __m512 w1 = load((const char *)panel[1] + (size_t)k * panel_step, 0, 0xffff);
#pragma GCC unroll 6
        for (int t = 0; t < nt; t++) {
            __m512 v = _mm512_set1_ps(x[(size_t)t * x_stride + (size_t)k]);
            sum[0][t] = _mm512_fmadd_ps(w0, v, sum[0][t]);
            sum[1][t] = _mm512_fmadd_ps(w1, v, sum[1][t]);
        }
    }
#pragma GCC unroll 6
    for (int t = 0; t < nt; t++)
        for (int h = 0; h < 2; h++) _mm512_mask_storeu_ps(out + (size_t)t * out_stride + 16 * h, mask[h], sum[h][t]);
}

#define FLOAT_TILE(nt)                                                                                                 \
    float_tile(out + (size_t)t * out_stride, out_stride, panel, panel_step, x + (size_t)t * x_stride, x_stride, nk,    \
               is_first, n_rows, t == 0 ? ahead : NULL, every, nt, FLOAT_LOAD)
#define FLOAT_SWEEP(name)                                                                                              \
    static void name(float *out, size_t out_stride, const void *panel0, const void *panel1, size_t panel_step,         \
                     const float *x, size_t x_stride, int n_tokens, int nk, bool is_first, int n_rows, Ahead *ahead,   \
                     int every) {                                                                                      \
        const void *const panel[2] = {panel0, panel1};                                                                 \
        SWEEP(n_tokens, FLOAT_TILE)                                                                                    \
    }
#define FLOAT_LOAD load_f32
FLOAT_SWEEP(float_sweep)
#undef FLOAT_LOAD
#define FLOAT_LOAD load_f16
FLOAT_SWEEP(f16_sweep)

// Prefill: activations in blocks of FLOAT_K columns, for each block the tokens one after another.
enum { FLOAT_K = 128 };

static size_t float_gemm_bytes(int n_tokens, int cols) {
    return (size_t)n_tokens * (size_t)((cols + FLOAT_K - 1) / FLOAT_K) * FLOAT_K * sizeof(float);
}

static void float_gemm_encode(void *encoded, const float *x, int n_tokens, int cols, int token_begin, int token_end) {
    for (int t = token_begin; t < token_end; t++)
        for (int k = 0; k < cols; k += FLOAT_K)
            memcpy((float *)encoded + (size_t)k * (size_t)n_tokens + t * FLOAT_K, x + (size_t)t * (size_t)cols + k,
                   (size_t)min_int(FLOAT_K, cols - k) * sizeof(float));
}

// As gemm_rows, with panels of 32 rows times 128 columns in float32 (16 KiB).
INLINE void float_gemm_rows(float *out, size_t out_stride, const Tensor *w, const float *encoded, int n_tokens,
                            int row_begin, int row_end, Load load) {
    int bytes = type_info(w->type)->bytes;
    float sums[TOKEN_BLOCK][CHUNK_ROWS] __attribute__((aligned(64)));
    float panels[CHUNK_ROWS / 16][FLOAT_K][16] __attribute__((aligned(64)));
    float rows[16][FLOAT_K] __attribute__((aligned(64)));
    for (int row = row_begin; row < row_end; row += CHUNK_ROWS)
        for (int first_token = 0; first_token < n_tokens; first_token += TOKEN_BLOCK) {
            int n_rows = min_int(row_end - row, CHUNK_ROWS), n = min_int(n_tokens - first_token, TOKEN_BLOCK);
            for (int k = 0; k < w->cols; k += FLOAT_K) {
                int nk = min_int(FLOAT_K, w->cols - k);
                const float *x = encoded + (size_t)k * (size_t)n_tokens + first_token * FLOAT_K;
                for (int r = 0; r < n_rows; r += 16) {
                    for (int i = 0; i < 16; i++) {
                        const char *p =
                            (const char *)w->data + (size_t)min_int(row + r + i, row_end - 1) * w->row_bytes;
                        for (int b = 0; b < FLOAT_K * bytes; b += 64)
                            _mm_prefetch(p + (k + FLOAT_K) * bytes + b, _MM_HINT_T1);
                        for (int c = 0; c < nk; c += 16) _mm512_store_ps(rows[i] + c, load(p, k + c, first(nk - c)));
                    }
                    transpose(panels[r / 16], rows, sizeof rows[0], (nk + 15) / 16 * 16);
                }
                for (int t = 0; t < n; t += SWEEP_TOKENS)
                    for (int r = 0; r < n_rows; r += PANEL_ROWS)
                        float_sweep(sums[t] + r, CHUNK_ROWS, panels[r / 16], panels[r / 16 + 1], 64, x + t * FLOAT_K,
                                    FLOAT_K, min_int(n - t, SWEEP_TOKENS), nk, k == 0, PANEL_ROWS, NULL, 1);
            }
            write_sums(out + (size_t)first_token * out_stride + row, out_stride, sums[0], n, n_rows);
        }
}

#define FLOAT_TYPE(type, name)                                                                                         \
    static void mat_##name(float *out, size_t out_stride, const Tensor *w, const void *encoded, int n_tokens,          \
                           int row_begin, int row_end) {                                                               \
        float_mat_rows(out, out_stride, w, encoded, n_tokens, row_begin, row_end, load_##name);                        \
    }                                                                                                                  \
    static void gemm_##name(float *out, size_t out_stride, const Tensor *w, const void *encoded, int n_tokens,         \
                            int row_begin, int row_end) {                                                              \
        float_gemm_rows(out, out_stride, w, encoded, n_tokens, row_begin, row_end, load_##name);                       \
    }
FLOAT_TYPES(FLOAT_TYPE)

static void rmsnorm(float *out, const float *x, const float *weight, float eps, int n) {
    __m512 sum[4] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps()};
    for (int i = 0; i < n; i += 64)
        for (int j = 0; j < 4; j++) {
            __m512 v = _mm512_maskz_loadu_ps(first(n - i - 16 * j), x + i + 16 * j);
            sum[j] = _mm512_fmadd_ps(v, v, sum[j]);
        }
    float square = _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(sum[0], sum[1]), _mm512_add_ps(sum[2], sum[3])));
    __m512 scale = _mm512_set1_ps(1.0f / sqrtf(square / (float)n + eps));
    for (int i = 0; i < n; i += 16) {
        __mmask16 m = first(n - i);
        __m512 v = _mm512_mul_ps(_mm512_maskz_loadu_ps(m, x + i), scale);
        _mm512_mask_storeu_ps(out + i, m, _mm512_mul_ps(v, _mm512_maskz_loadu_ps(m, weight + i)));
    }
}

// e^x to 2 ulp; 0 below -104, infinity above 89; NaN stays.
INLINE __m512 exp_ps(__m512 x) {
    x = _mm512_max_ps(_mm512_set1_ps(-105), _mm512_min_ps(_mm512_set1_ps(89), x));
    __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), 8);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
    __m512 p = _mm512_set1_ps(1.9875691500e-4f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.3981999507e-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(8.3334519073e-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(4.1665795894e-2f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.6666665459e-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.0000001201e-1f));
    p = _mm512_add_ps(_mm512_fmadd_ps(p, _mm512_mul_ps(r, r), r), _mm512_set1_ps(1));
    return _mm512_scalef_ps(p, n);
}

static void swiglu(float *gate, const float *up, int n) {
    for (int i = 0; i < n; i += 16) {
        __mmask16 m = first(n - i);
        __m512 g = _mm512_maskz_loadu_ps(m, gate + i), e = exp_ps(_mm512_sub_ps(_mm512_setzero_ps(), g));
        __m512 silu = _mm512_div_ps(g, _mm512_add_ps(_mm512_set1_ps(1), e));
        _mm512_mask_storeu_ps(gate + i, m, _mm512_mul_ps(silu, _mm512_maskz_loadu_ps(m, up + i)));
    }
}

static void add(float *x, const float *y, int n) {
    for (int i = 0; i < n; i += 16) {
        __mmask16 m = first(n - i);
        _mm512_mask_storeu_ps(x + i, m,
                              _mm512_add_ps(_mm512_maskz_loadu_ps(m, x + i), _mm512_maskz_loadu_ps(m, y + i)));
    }
}

static void store(Type type, void *row, const float *x, int n) {
    if (type == TYPE_F32) {
        memcpy(row, x, (size_t)n * sizeof(float));
    } else if (type == TYPE_F16) {
        for (int i = 0; i < n; i += 16) {
            __mmask16 m = first(n - i);
            __m256i h = _mm512_cvtps_ph(_mm512_maskz_loadu_ps(m, x + i), _MM_FROUND_TO_NEAREST_INT);
            _mm256_mask_storeu_epi16((uint16_t *)row + i, m, h);
        }
    } else {
        BlockQ8_0 *b = row;
        for (int i = 0; i < n; i += 32, b++) {
            __m512 v0 = _mm512_loadu_ps(x + i), v1 = _mm512_loadu_ps(x + i + 16);
            float inverse,
                scale = encode_scale(_mm512_reduce_max_epi32(_mm512_max_epi32(abs_bits(v0), abs_bits(v1))), &inverse);
            __m512i q0 = to_integers(v0, inverse);
            __m512i q1 = to_integers(v1, inverse);
            b->d = (uint16_t)_mm_extract_epi16(_mm_cvtps_ph(_mm_set_ss(scale), _MM_FROUND_TO_NEAREST_INT), 0);
            _mm_storeu_si128((__m128i *)b->qs, _mm512_cvtsepi32_epi8(q0));
            _mm_storeu_si128((__m128i *)(b->qs + 16), _mm512_cvtsepi32_epi8(q1));
        }
    }
}

// One row of the KV cache as float32, with zeros up to a multiple of 16 values.
INLINE void load_kv(Type type, const void *row, float *out, int n) {
    for (int i = 0; i < n; i += 16) {
        __m512 v;
        if (type == TYPE_Q8_0) {
            const BlockQ8_0 *b = (const BlockQ8_0 *)row + i / 32;
            __m512i q = _mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)(b->qs + i % 32)));
            v = _mm512_mul_ps(_mm512_cvtepi32_ps(q), f16_to_all(b->d));
        } else {
            v = type == TYPE_F16 ? load_f16(row, i, first(n - i)) : load_f32(row, i, first(n - i));
        }
        _mm512_store_ps(out + i, v);
    }
}

enum { MAX_HEAD = 256, KEY_TILE = 32 };

// Scores to weights: p = exp(score - max) for the n keys that a query sees, 0 for the others up to n_all.
static void soften(float *p, int n, int n_all, float *max_out, float *sum_out) {
    __m512 max = _mm512_set1_ps(-INFINITY), sum = _mm512_setzero_ps();
    __mmask16 is_nan = 0;
    for (int k = 0; k < n; k += 16) {
        __m512 s = _mm512_load_ps(p + k);
        is_nan |= _mm512_mask_cmp_ps_mask(first(n - k), s, s, _CMP_UNORD_Q);
        max = _mm512_mask_max_ps(max, first(n - k), max, s);
    }
    float m = is_nan ? NAN : _mm512_reduce_max_ps(max);
    for (int k = 0; k < n_all; k += 16) {
        __m512 e = _mm512_maskz_mov_ps(first(n - k), exp_ps(_mm512_sub_ps(_mm512_load_ps(p + k), _mm512_set1_ps(m))));
        _mm512_store_ps(p + k, e);
        sum = _mm512_add_ps(sum, e);
    }
    *max_out = m;
    *sum_out = n > 0 ? _mm512_reduce_add_ps(sum) : 0;
}

// 16 rows of n float16 values (a multiple of 8), transposed to [n][16].
INLINE void transpose_f16(uint16_t (*out)[16], const void *const row[16], int n, Ahead *ahead) {
    const __m512i even = _mm512_set_epi16(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1, 30, 28, 26, 24, 22,
                                          20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    for (int i = 0; i < n; i += 8) {
        __m512i r[4];
        if (i % 16 == 0) fetch(ahead, 4);
        transpose_16(r, row, (size_t)i * 2);
        for (int d = 0; d < 4; d++) _mm512_store_si512(out[i + 2 * d], _mm512_permutexvar_epi16(even, r[d]));
    }
}

// Keys in tiles of 32, K transposed to [dim][32 keys], V as it lies. Both products are float_tile's. While the scores
// are computed V is fetched, and then the K of the next page. Many queries have the tile converted to float32 once for
// all; for few it stays float16. For the 4 queries of a KV head at head_dim 128 a page takes 7 microseconds in L2 and 9
// to 11 from memory.
static void attend(const AttendPage *a) {
    float scores[ATTEND_MAX_QUERIES][KV_PAGE] __attribute__((aligned(64)));
    float rows[KEY_TILE][MAX_HEAD] __attribute__((aligned(64))), keys[2][MAX_HEAD][16] __attribute__((aligned(64)));
    uint16_t keys_f16[2][MAX_HEAD][16] __attribute__((aligned(64)));
    size_t row_bytes = quant_row_bytes(a->kv_type, (size_t)a->head_dim);
    int n_all = 0, dim = a->head_dim;
    bool is_direct = a->kv_type == TYPE_F16 && dim % 32 == 0 && a->n_q <= 2 * TILE_TOKENS;
    for (int i = 0; i < a->n_q; i++) n_all = a->n_keys[i] > n_all ? a->n_keys[i] : n_all;
    Ahead ahead = ahead_of(a->v, (size_t)n_all * row_bytes, 2);
    for (int key = 0; key < n_all; key += KEY_TILE) {
        const void *row[KEY_TILE];
        for (int i = 0; i < KEY_TILE; i++)
            row[i] = (const char *)a->k + (size_t)min_int(key + i, n_all - 1) * row_bytes;
        if (is_direct) {
            for (int h = 0; h < 2; h++) transpose_f16(keys_f16[h], row + 16 * h, dim, &ahead);
            f16_sweep(scores[0] + key, KV_PAGE, keys_f16[0], keys_f16[1], 32, a->q, (size_t)dim, a->n_q, dim, true, 32,
                      &ahead, 8);
        } else {
            for (int i = 0; i < KEY_TILE; i++) load_kv(a->kv_type, row[i], rows[i], dim);
            for (int h = 0; h < 2; h++) transpose(keys[h], rows[16 * h], sizeof rows[0], (dim + 15) / 16 * 16);
            float_sweep(scores[0] + key, KV_PAGE, keys[0], keys[1], 64, a->q, (size_t)dim, a->n_q, dim, true, 32,
                        &ahead, 4);
        }
    }
    for (int i = 0; i < a->n_q; i++) soften(scores[i], a->n_keys[i], n_all, a->max + i, a->sum + i);
    if (!n_all) memset(a->acc, 0, (size_t)a->n_q * (size_t)dim * sizeof(float));
    ahead = ahead_of(a->next_k, (size_t)n_all * row_bytes, 2);
    for (int key = 0; key < n_all; key += KEY_TILE) {
        int n = min_int(KEY_TILE, n_all - key);
        const char *v = (const char *)a->v + (size_t)key * row_bytes;
        for (int i = 0; i < n && !is_direct; i++) load_kv(a->kv_type, v + (size_t)i * row_bytes, rows[i], dim);
        for (int d = 0; d < dim; d += 32)
            if (is_direct)
                f16_sweep(a->acc + d, (size_t)dim, v + 2 * d, v + 2 * d + 32, row_bytes, scores[0] + key, KV_PAGE,
                          a->n_q, n, key == 0, 32, &ahead, 4);
            else
                float_sweep(a->acc + d, (size_t)dim, rows[0] + d, rows[0] + d + 16, sizeof rows[0], scores[0] + key,
                            KV_PAGE, a->n_q, n, key == 0, dim - d, &ahead, 4);
    }
}

static double peak(int rounds) {
    __m512i acc[12], a = _mm512_set1_epi8((char)rounds), b = _mm512_set1_epi8(3);
    for (int j = 0; j < 12; j++) acc[j] = _mm512_set1_epi32(j);
    for (int i = 0; i < rounds; i++) {
#pragma GCC unroll 12
        for (int j = 0; j < 12; j++) acc[j] = _mm512_dpbusd_epi32(acc[j], a, b);
    }
    for (int j = 1; j < 12; j++) acc[0] = _mm512_xor_si512(acc[0], acc[j]);
    volatile int keep = _mm512_reduce_add_epi32(acc[0]);
    (void)keep;
    return 12 * 128.0 * rounds;
}

#define FLOAT_MAT(type, name)  [TYPE_##type] = {1, 16, 1, float_bytes, float_encode, mat_##name},
#define FLOAT_GEMM(type, name) [TYPE_##type] = {12, PANEL_ROWS, 1, float_gemm_bytes, float_gemm_encode, gemm_##name},
#define MAT(type, name, ...)   [TYPE_##type] = {1, 16, 1, mat_bytes, mat_encode, mat_##name},
#define GEMM(type, name, off, has_min, group, ...)                                                                     \
    [TYPE_##type] = {5, PANEL_ROWS, 1, gemm_bytes, gemm_encode_##group, gemm_##name},

// clang-format off
const Kernels kernels_avx512 = {
    .name = "avx512",
    .mat = {FLOAT_TYPES(FLOAT_MAT) INTEGER_TYPES(MAT)},
    .gemm = {FLOAT_TYPES(FLOAT_GEMM) INTEGER_TYPES(GEMM)},
    .rmsnorm = rmsnorm,
    .swiglu = swiglu,
    .add = add,
    .attend = attend,
    .store = store,
    .peak_unit = "VNNI int8",
    .peak = peak,
};
// clang-format on
