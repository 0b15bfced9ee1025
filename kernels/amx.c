// Prefill on the AMX tile unit: every weight type becomes bf16 and meets bf16 activations, float32 accumulation.
//
// One tile product is C (16 rows, 16 tokens) += A (16 rows, 32 k) x B (32 k, 16 tokens): 16384 operations in 16 cycles.
// Weights are A, decoded a panel at a time; activations are B, packed once per matrix in k pairs, as the unit wants.
// Blocking, for a strip of STRIP rows handed to a thread: for each K block, for each panel of 32 rows: decode the
// panel (32 KiB, stays in L1), sweep all tokens over it with 2 x 2 tiles, 4 tile loads per 4 products. The packed
// activations of a K block (512 tokens: 512 KiB) stay in L2 for the STRIP / 32 panels, and so do the sums.
// Per panel and K block at 512 tokens: 16.8 MFLOP; 32 x 512 weights decoded, 512 KiB of B and 128 KiB of C from L2.
#include "avx512_unpack.h"
#include "fetch.h"
#include "isa.h"

#include <math.h>

enum {
    TILE = 16,      // rows and columns of C
    TILE_K = 32,    // bf16 values of one tile row
    TILE_LEN = 512, // bf16 values of a tile: 1 KiB
    PANEL = 2 * TILE,
    K_BLOCK = 512,
    STRIP = 128,  // rows whose sums one thread holds
    SWEEP = 512,  // tokens whose sums one thread holds
    PREFETCH = 4, // tiles of B ahead
    MAX_HEAD = 256,
    QUERY_PANELS = ATTEND_MAX_QUERIES / PANEL
};

static _Thread_local _Alignas(64) union {
    struct {
        float sums[STRIP / PANEL][SWEEP * PANEL];
        uint16_t panel[PANEL * K_BLOCK];
    } gemm;
    struct {
        float sums[QUERY_PANELS][PANEL * KV_PAGE];
        uint16_t queries[QUERY_PANELS][PANEL * MAX_HEAD], weights[QUERY_PANELS][PANEL * KV_PAGE];
        uint16_t rows[PANEL * MAX_HEAD], keys[PANEL * MAX_HEAD], values[KV_PAGE * MAX_HEAD];
    } attend;
} memory;

static int round_up(int n, int step) { return (n + step - 1) / step * step; }
static int at_most(int n, int limit) { return n < limit ? n : limit; }

static size_t encoded_bytes(int n_tokens, int cols) {
    return (size_t)round_up(n_tokens, PANEL) * (size_t)round_up(cols, TILE_K) * sizeof(uint16_t);
}

// Where the B tiles of a K block begin: tiles are ordered (K block, token tile, k tile), each 1 KiB.
static size_t block_offset(int n_tokens, int k) { return (size_t)round_up(n_tokens, PANEL) * (size_t)k; }

// 32 values to bf16, round to nearest even; those beyond n are zero.
typedef __m512i (*Load)(const char *x, int n);

INLINE __m512i load_f32(const char *x, int n) {
    __m512 a = _mm512_maskz_loadu_ps(first(n), x), b = _mm512_maskz_loadu_ps(first(n - 16), x + 64);
    return (__m512i)_mm512_cvtne2ps_pbh(b, a);
}

INLINE __m512i load_f16(const char *x, int n) {
    __m256i a = _mm256_maskz_loadu_epi16(first(n), x), b = _mm256_maskz_loadu_epi16(first(n - 16), x + 32);
    return (__m512i)_mm512_cvtne2ps_pbh(_mm512_cvtph_ps(b), _mm512_cvtph_ps(a));
}

INLINE __m512i load_bf16(const char *x, int n) { return _mm512_maskz_loadu_epi16(n < TILE_K ? (1u << n) - 1 : ~0u, x); }

// Tiles [token_begin, token_end) / 16: dword (pair of k) p of token t goes to row p, column t of its tile.
static void encode(void *encoded, const float *x, int n_tokens, int cols, int token_begin, int token_end) {
    int last = token_end == n_tokens ? round_up(n_tokens, PANEL) : token_end;
    for (int first = token_begin; first < last; first += TILE)
        for (int k = 0; k < cols; k += TILE_K) {
            __m512i rows[TILE];
            int block = k / K_BLOCK * K_BLOCK, depth = at_most(round_up(cols - block, TILE_K), K_BLOCK);
            uint16_t *tile = (uint16_t *)encoded + block_offset(n_tokens, block) + (size_t)first * (size_t)depth +
                             (size_t)((k - block) / TILE_K) * TILE_LEN;
            for (int t = 0; t < TILE; t++)
                rows[t] = first + t < n_tokens
                              ? load_f32((const char *)(x + (size_t)(first + t) * (size_t)cols + k), cols - k)
                              : _mm512_setzero_si512();
            transpose(tile, rows, sizeof rows[0], TILE);
        }
}

// Q8_0, whose weights are bytes as they lie and whose scales are one to a tile row: not by way of a Unit.
static void decode_q8_0(uint16_t *tile, const BlockQ8_0 *b, int n) {
    for (int k = 0; k < n; k += TILE_K, tile += TILE_LEN, b++) {
        __m512 scale = f16_to_all(b->d), w[2];
        for (int half = 0; half < 2; half++) {
            __m128i q = _mm_loadu_si128((const __m128i *)(b->qs + 16 * half));
            w[half] = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(q)), scale);
        }
        _mm512_storeu_si512(tile, (__m512i)_mm512_cvtne2ps_pbh(w[1], w[0]));
    }
}

// n weights of a row as bf16, in pieces of 32 that lie TILE_LEN apart (one row of successive A tiles). Per 32 weights:
// two conversions to float32, two FMAs, one rounding, one store.
INLINE void decode_units(uint16_t *tile, Type type, const char *row, int n, Unpack unpack, int off, bool has_min) {
    if (type == TYPE_Q8_0) {
        decode_q8_0(tile, (const BlockQ8_0 *)row, n);
        return;
    }
    uint8_t q[UNIT] __attribute__((aligned(64))), last[320] = {0};
    float scale[GROUPS] __attribute__((aligned(64))), base[GROUPS] __attribute__((aligned(64)));
    for (int k = 0; k < n; k += UNIT, row += quant_row_bytes(type, UNIT)) {
        if (n - k < UNIT) row = memcpy(last, row, quant_row_bytes(type, (size_t)(n - k))); // the row may end here
        Unit u = unpack(row, type);
        __m512 zero = _mm512_mul_ps(u.scale, _mm512_set1_ps((float)off));
        _mm512_store_ps(scale, u.scale);
        _mm512_store_ps(base, has_min ? _mm512_add_ps(zero, u.min) : zero);
        for (int j = 0; j < 4; j++) _mm512_store_si512(q + 64 * j, u.w[j]);
        for (int i = 0; i < UNIT && k + i < n; i += TILE_K, tile += TILE_LEN) {
            __m512 w[2];
            for (int half = 0; half < 2; half++) {
                int at = i + 16 * half;
                __m512 v = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_load_si128((const __m128i *)(q + at))));
                w[half] = _mm512_fmsub_ps(v, _mm512_set1_ps(scale[at / 16]), _mm512_set1_ps(base[at / 16]));
            }
            _mm512_storeu_si512(tile, (__m512i)_mm512_cvtne2ps_pbh(w[1], w[0]));
        }
    }
}

INLINE void decode_floats(uint16_t *tile, const char *row, int n, size_t bytes, Load load) {
    for (; n >= TILE_K; n -= TILE_K, tile += TILE_LEN, row += TILE_K * bytes)
        _mm512_store_si512(tile, load(row, TILE_K));
    if (n > 0) _mm512_store_si512(tile, load(row, n));
}

// The same for every type.
static void decode_row(uint16_t *tile, Type type, const char *row, int n) {
    switch (type) {
    case TYPE_F32: decode_floats(tile, row, n, 4, load_f32); break;
    case TYPE_F16: decode_floats(tile, row, n, 2, load_f16); break;
    case TYPE_BF16: decode_floats(tile, row, n, 2, load_bf16); break;
#define DECODE(type, name, off, has_min, ...)                                                                          \
    case TYPE_##type: decode_units(tile, TYPE_##type, row, n, unpack_##name, off, has_min); break;
        INTEGER_TYPES(DECODE)
    default: break;
    }
}

// Rows [row, row + 32) of w, columns [k, k + n), as A tiles ordered (half of 16 rows, k tile). Rows from `end` on are
// zero. BF16 is copied too: in the file the rows of a tile often lie a power of two apart and share one set of L1.
static void decode_panel(uint16_t *panel, const Tensor *w, int row, int end, int k, int n) {
    int n_tiles = round_up(n, TILE_K) / TILE_K;
    size_t offset = quant_row_bytes(w->type, (size_t)k);
    for (int r = 0; r < PANEL; r++) {
        uint16_t *tile = panel + (size_t)(r / TILE * n_tiles) * TILE_LEN + r % TILE * TILE_K;
        const char *from = (const char *)w->data + (size_t)(row + r) * w->row_bytes + offset;
        if (row + r >= end)
            for (int i = 0; i < n_tiles; i++) memset(tile + i * TILE_LEN, 0, TILE_K * sizeof *tile);
        else
            decode_row(tile, w->type, from, n);
    }
}

typedef struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} __attribute__((packed)) TileConfig;

static void tiles_begin(void) {
    TileConfig c = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        c.row_bytes[i] = 64;
        c.rows[i] = TILE;
    }
    __asm__ volatile("" ::"r"(&c) : "memory"); // gcc 12 believes that _tile_loadconfig reads 8 bytes only
    _tile_loadconfig(&c);
}

// What decode_panel reads of columns from k on, rows [row, row + 32): 32 places, the rows.
static Ahead ahead_of_panel(const Tensor *w, int row, int end, int k) {
    if (row >= end) return (Ahead){0};
    int lines = (int)(quant_row_bytes(w->type, (size_t)at_most(w->cols - k, K_BLOCK)) / 64) + 1;
    const char *from = (const char *)w->data + (size_t)row * w->row_bytes + quant_row_bytes(w->type, (size_t)k);
    return (Ahead){from, w->row_bytes, 5, 0, PANEL * lines};
}

// sums: for each token tile, the C tiles of the panel's two halves, 256 floats each, (row, token). What `ahead` names
// is fetched meanwhile, evenly: in bursts it would keep the loads waiting.
static void multiply_panel(float *sums, const uint16_t *panel, const uint16_t *b, int n_token_tiles, int n_k_tiles,
                           bool is_first, Ahead ahead) {
    const uint16_t *a1 = panel + (size_t)n_k_tiles * TILE_LEN;
    int n_products = n_token_tiles / 2 * n_k_tiles, lines_per_product = (ahead.n_lines + n_products - 1) / n_products;
    __asm__ volatile("" ::: "memory"); // gcc 12 believes that _tile_loadd reads no memory
    for (int t = 0; t < n_token_tiles; t += 2, sums += 4 * 256) {
        const uint16_t *b0 = b + (size_t)t * (size_t)n_k_tiles * TILE_LEN, *b1 = b0 + (size_t)n_k_tiles * TILE_LEN;
        if (is_first) {
            _tile_zero(0);
            _tile_zero(1);
            _tile_zero(2);
            _tile_zero(3);
        } else {
            _tile_loadd(0, sums, 64);
            _tile_loadd(1, sums + 256, 64);
            _tile_loadd(2, sums + 512, 64);
            _tile_loadd(3, sums + 768, 64);
        }
        for (int k = 0; k < n_k_tiles; k++) {
            size_t at = (size_t)k * TILE_LEN;
            for (int line = 0; line < TILE; line++) {
                _mm_prefetch((const char *)(b0 + at + PREFETCH * TILE_LEN + line * TILE_K), _MM_HINT_T0);
                _mm_prefetch((const char *)(b1 + at + PREFETCH * TILE_LEN + line * TILE_K), _MM_HINT_T0);
            }
            fetch(&ahead, lines_per_product);
            _tile_loadd(4, panel + at, 64);
            _tile_loadd(6, b0 + at, 64);
            _tile_dpbf16ps(0, 4, 6);
            _tile_loadd(5, a1 + at, 64);
            _tile_dpbf16ps(1, 5, 6);
            _tile_loadd(7, b1 + at, 64);
            _tile_dpbf16ps(2, 4, 7);
            _tile_dpbf16ps(3, 5, 7);
        }
        _tile_stored(0, sums, 64);
        _tile_stored(1, sums + 256, 64);
        _tile_stored(2, sums + 512, 64);
        _tile_stored(3, sums + 768, 64);
    }
}

// Turns the sums of a strip around into out (token, row); only the rows and tokens that exist. All rows of 16 tokens
// before the next 16: their lines lie far apart, each on a page of its own.
static void write_strip(float *out, size_t out_stride, int n_tokens, int n_rows) {
    for (int t = 0; t < n_tokens; t += TILE, out += TILE * out_stride)
        for (int row = 0; row < n_rows; row += TILE) {
            __m512i columns[TILE];
            const float *sums = memory.gemm.sums[row / PANEL] + t * PANEL + row % PANEL * TILE;
            transpose(columns, sums, TILE * sizeof *sums, TILE);
            for (int i = 0; i < TILE && t + i < n_tokens; i++)
                _mm512_mask_storeu_epi32(out + (size_t)i * out_stride + row, first(n_rows - row), columns[i]);
        }
}

// What follows `row` of a strip, in the order of `rows`: its next panel, its next K block, its first one for further
// tokens, or the rows after it, which are most often this thread's too.
static Ahead next_panel(const Tensor *w, int row, int strip, int end, int k, bool is_last_sweep) {
    if (row + PANEL < end) return ahead_of_panel(w, row + PANEL, end, k);
    if (k + K_BLOCK < w->cols) return ahead_of_panel(w, strip, end, k + K_BLOCK);
    return is_last_sweep ? ahead_of_panel(w, end, w->rows, 0) : ahead_of_panel(w, strip, end, 0);
}

static void rows(float *out, size_t out_stride, const Tensor *w, const void *encoded, int n_tokens, int row_begin,
                 int row_end) {
    float(*sums)[SWEEP * PANEL] = memory.gemm.sums;
    uint16_t *panel = memory.gemm.panel;
    tiles_begin();
    for (int strip = row_begin; strip < row_end; strip += STRIP)
        for (int token = 0; token < n_tokens; token += SWEEP) {
            int end = at_most(strip + STRIP, row_end), n = at_most(n_tokens - token, SWEEP);
            for (int k = 0; k < w->cols; k += K_BLOCK) {
                int depth = at_most(w->cols - k, K_BLOCK), padded = round_up(depth, TILE_K);
                const uint16_t *b =
                    (const uint16_t *)encoded + block_offset(n_tokens, k) + (size_t)token * (size_t)padded;
                for (int row = strip; row < end; row += PANEL) {
                    decode_panel(panel, w, row, end, k, depth);
                    multiply_panel(sums[(row - strip) / PANEL], panel, b, round_up(n, PANEL) / TILE, padded / TILE_K,
                                   k == 0, next_panel(w, row, strip, end, k, token + SWEEP >= n_tokens));
                }
            }
            write_strip(out + (size_t)token * out_stride + strip, out_stride, n, end - strip);
        }
    _tile_release();
}

// Attention of a page, for many queries: scores = Q K^T and acc = weights V are multiply_panel's, with 32 queries as A.
// B is K with 16 keys as columns, 32 keys at a time, and then all of V with pairs of keys in a row. At 256 keys, 64
// queries and head_dim 128: 8.4 MFLOP, 64 KiB each of K and V to bf16, 16384 exponentials. Q, K, weights and V are not
// split into two bf16: that is a fifth of the error of a trained model's logits, the matrices' is the rest.

// The largest of the n scores that one query sees (16 keys lie 512 floats apart); the others become minus infinity.
static float most(float *scores, int n, int n_keys) {
    const __m512 none = _mm512_set1_ps(-INFINITY);
    __m512 max = none;
    for (int k = n / TILE * TILE; k < n_keys; k += TILE)
        _mm512_store_ps(scores + k * PANEL, _mm512_mask_load_ps(none, first(n - k), scores + k * PANEL));
    for (int k = 0; k < n; k += TILE) max = _mm512_max_ps(_mm512_load_ps(scores + k * PANEL), max);
    return _mm512_reduce_max_ps(max);
}

// 2^x to 1e-4, a twentieth of what rounding to bf16 loses; 0 of minus infinity; NaN stays.
INLINE __m512 exp2_roughly(__m512 x) {
    __m512 f = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC); // x - floor(x)
    __m512 p = _mm512_fmadd_ps(f, _mm512_set1_ps(0.0782680404f), _mm512_set1_ps(0.2263076085f));
    p = _mm512_fmadd_ps(f, p, _mm512_set1_ps(0.6954243511f));
    return _mm512_scalef_ps(_mm512_fmadd_ps(f, p, _mm512_set1_ps(1)), x);
}

// weights = exp(scores - max) as a row of A tiles. Returns the sum of what was rounded.
static float soften(uint16_t *weights, const float *scores, float max, int n_keys) {
    const __m512 log2e = _mm512_set1_ps(1.44269504f), m = _mm512_set1_ps(max > -INFINITY ? max * 1.44269504f : 0);
    __m512 even = _mm512_setzero_ps(), odd = even;
    for (int k = 0; k < n_keys; k += PANEL) {
        __m512 a = exp2_roughly(_mm512_fmsub_ps(_mm512_load_ps(scores + k * PANEL), log2e, m));
        __m512 b = exp2_roughly(_mm512_fmsub_ps(_mm512_load_ps(scores + k * PANEL + 512), log2e, m));
        __m512i w = (__m512i)_mm512_cvtne2ps_pbh(b, a);
        _mm512_store_si512(weights + k * TILE, w);
        even = _mm512_add_ps(even, _mm512_castsi512_ps(_mm512_slli_epi32(w, 16)));
        odd = _mm512_add_ps(odd, _mm512_castsi512_ps(_mm512_and_si512(w, _mm512_set1_epi32((int)0xffff0000))));
    }
    return _mm512_reduce_add_ps(_mm512_add_ps(even, odd));
}

// 32 rows of V, as A tiles, to B tiles `step` apart: pair p of keys becomes row p. The columns stay in the order that
// unpacking leaves: {0-3, 8-11, 16-19, 24-27} of 32, then the others.
static void interleave(uint16_t *tile, const uint16_t *rows, int n_dim_tiles, size_t step) {
    for (int d = 0; d < n_dim_tiles; d++, tile += 2 * step)
        for (int p = 0; p < TILE; p++) {
            const uint16_t *from = rows + (p / 8 * n_dim_tiles + d) * TILE_LEN + 2 * (p % 8) * TILE_K;
            __m512i even = _mm512_load_si512(from), odd = _mm512_load_si512(from + TILE_K);
            _mm512_store_si512(tile + p * TILE_K, _mm512_unpacklo_epi16(even, odd));
            _mm512_store_si512(tile + step + p * TILE_K, _mm512_unpackhi_epi16(even, odd));
        }
}

// Query `row` of the sums of V's products, in the order of the dimensions.
static void write_acc(float *acc, const float *sums, int dim) {
    const __m512i low = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    for (int d = 0; d < dim; d += PANEL, sums += 1024) {
        __m512 a = _mm512_load_ps(sums), b = _mm512_load_ps(sums + 512);
        _mm512_mask_storeu_ps(acc + d, first(dim - d), _mm512_permutex2var_ps(a, low, b));
        _mm512_mask_storeu_ps(acc + d + TILE, first(dim - d - TILE), _mm512_permutex2var_ps(a, high, b));
    }
}

static void attend_many(const AttendPage *a) {
    int n_all = 0, dim = a->head_dim, n_dim_tiles = round_up(dim, TILE_K) / TILE_K;
    for (int i = 0; i < a->n_q; i++) n_all = a->n_keys[i] > n_all ? a->n_keys[i] : n_all;
    int n_key_tiles = n_all ? round_up(n_all, PANEL) / PANEL : 1, n_panels = round_up(a->n_q, PANEL) / PANEL;
    size_t row_bytes = quant_row_bytes(a->kv_type, (size_t)dim);
    Tensor q = {a->q, TYPE_F32, a->n_q, dim, (size_t)dim * sizeof(float), NULL};
    Tensor k = {a->k, a->kv_type, n_all, dim, row_bytes, NULL}, v = {a->v, a->kv_type, n_all, dim, row_bytes, NULL};
    uint16_t *rows = memory.attend.rows, *keys = memory.attend.keys, *values = memory.attend.values;
    tiles_begin();
    for (int p = 0; p < n_panels; p++) decode_panel(memory.attend.queries[p], &q, p * PANEL, a->n_q, 0, dim);
    for (int i = 0; i < n_key_tiles; i++) {
        decode_panel(rows, &k, i * PANEL, n_all, 0, dim);
        for (int t = 0; t < 2 * n_dim_tiles * TILE_LEN; t += TILE_LEN)
            transpose(keys + t, rows + t, TILE_K * sizeof *rows, TILE);
        for (int p = 0; p < n_panels; p++)
            multiply_panel(memory.attend.sums[p] + i * 1024, memory.attend.queries[p], keys, 2, n_dim_tiles, true,
                           (Ahead){0});
    }
    for (int i = 0; i < a->n_q; i++)
        a->max[i] = most(memory.attend.sums[i / PANEL] + i % PANEL * TILE, a->n_keys[i], n_key_tiles * PANEL);
    for (int i = 0; i < a->n_q; i++) {
        int half = i % PANEL / TILE;
        uint16_t *weights = memory.attend.weights[i / PANEL] + half * n_key_tiles * TILE_LEN + i % TILE * TILE_K;
        a->sum[i] = soften(weights, memory.attend.sums[i / PANEL] + i % PANEL * TILE, a->max[i], n_key_tiles * PANEL);
    }
    for (int i = 0; i < n_key_tiles; i++) {
        decode_panel(rows, &v, i * PANEL, n_all, 0, dim);
        interleave(values + i * TILE_LEN, rows, n_dim_tiles, (size_t)n_key_tiles * TILE_LEN);
    }
    for (int p = 0; p < n_panels; p++)
        multiply_panel(memory.attend.sums[p], memory.attend.weights[p], values, 2 * n_dim_tiles, n_key_tiles, true,
                       (Ahead){0});
    _tile_release();
    for (int i = 0; i < a->n_q; i++)
        write_acc(a->acc + (size_t)i * (size_t)dim, memory.attend.sums[i / PANEL] + i % PANEL * TILE, dim);
}

static double peak(int rounds) {
    static const uint16_t zeros[TILE_LEN];
    tiles_begin();
    _tile_loadd(4, zeros, 64);
    _tile_loadd(5, zeros, 64);
    _tile_loadd(6, zeros, 64);
    _tile_loadd(7, zeros, 64);
    for (int i = 0; i < rounds; i++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 5, 6);
        _tile_dpbf16ps(2, 4, 7);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_release();
    return 4.0 * 2 * TILE * TILE * TILE_K * rounds;
}

// Decoding a panel costs the same for any number of tokens: integer types pay from 32 on.
#define TILES(type, from)                                                                                              \
    [TYPE_##type] = {.min_tokens = from,                                                                               \
                     .row_step = STRIP,                                                                                \
                     .token_step = PANEL,                                                                              \
                     .encoded_bytes = encoded_bytes,                                                                   \
                     .encode = encode,                                                                                 \
                     .rows = rows},
#define FLOAT_TILES(type, ...)   TILES(type, 8)
#define INTEGER_TILES(type, ...) TILES(type, 32)

const Kernels kernels_amx = {
    .name = "amx",
    .tiles = {FLOAT_TYPES(FLOAT_TILES) INTEGER_TYPES(INTEGER_TILES)},
    .attend_many = attend_many,
    .peak_unit = "AMX bf16",
    .peak = peak,
};
