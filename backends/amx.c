// Prefill on the AMX tile unit: every weight type becomes bf16 and meets bf16 activations, float32
// accumulation.
//
// One tile product is C (16 rows, 16 tokens) += A (16 rows, 32 k) x B (32 k, 16 tokens): 16384
// operations in 16 cycles. Weights are A, decoded a panel at a time (amx_decode.h); activations are
// B, packed once per matrix in k pairs.
//
// Blocking, for a strip of 256 rows: for each K block, for each panel of 32 rows: decode the panel
// (32 KiB, stays in L1) and sweep up to 512 tokens over it with 2 x 2 tiles. TILELOADDT1 brings B
// from L2 (2 KiB for 4 products, 64 cycles) past L1, so that the panel stays there; the sums of the
// strip and the B of the K block, up to 512 KiB each, stay in L2, and the next K block's B is
// fetched into it evenly, a part with each panel. A row of weights is fetched while the same row of
// the panel before is decoded. Up to 64 tokens all B stays in L2 by itself (unless K is large):
// then one panel goes through all K blocks, of half the depth: its rows are streams, its sums never
// leave L1. Per panel and K block at 512 tokens: 16.8 MFLOP; 32 x 512 weights decoded, 512 KiB of B
// and 2 x 64 KiB of sums. Measured (Sapphire Rapids, one core, Q4_K, 4096 x 4096): 512 tokens run
// at half the speed of registers alone (`peak`), which for random data streamed like this cannot
// pass 0.6; a weight costs 0.2 cycles to decode, 0.5 with 32 tokens.
#include "amx_decode.h"
#include "prefetch.h"
#include "../kernels/backends.h"
#include "../kernels/team.h"

#include <math.h>

enum {
    K_BLOCK = 512,  // 256 is 10 % slower at 96 tokens, 20 % at 128
    STRIP = 256,    // rows: 128 and 512 are 5 to 10 % slower
    SWEEP = 512,    // tokens
    FEW = 64,       // tokens; from 96 on strips are 8 % faster, at 64 (4096 columns) 3 % slower
    IN_L2 = 1 << 20 // bytes of activations; at 64 tokens x 14336 columns strips are 20 % faster
};

// Of a thread, in its scratch memory.
typedef union {
    struct {
        float sums[STRIP / PANEL][SWEEP * PANEL];
        uint16_t panel[PANEL * K_BLOCK];
    } gemm;
    struct {
        float sums[PANEL * KV_PAGE];
        uint16_t queries[PANEL * MAX_HEAD_DIM], weights[PANEL * KV_PAGE];
        uint16_t rows[PANEL * MAX_HEAD_DIM], keys[KV_PAGE * MAX_HEAD_DIM],
            values[KV_PAGE * MAX_HEAD_DIM];
    } attend;
} Memory;

_Static_assert(sizeof(Memory) <= KERNEL_SCRATCH, "fits");

static int k_block(int n_tokens) { return n_tokens <= FEW ? K_BLOCK / 2 : K_BLOCK; }

static size_t encoded_bytes(int n_tokens, int cols) {
    return (size_t)round_up(n_tokens, TILE) * (size_t)round_up(cols, TILE_K) * sizeof(uint16_t);
}

// Packed activations: B tiles in the order (token tile, k tile), 1 KiB each.
typedef struct {
    const uint16_t *tiles;
    int n_token_tiles, n_k_tiles;
} Activations;

// Those of tokens from `token` on, SWEEP at most, in the K block that begins at k. K blocks follow
// one another.
static Activations activations_at(const void *encoded, int n_tokens, int cols, int token, int k) {
    int n_k_tiles = min_int(round_up(cols, TILE_K) - k, k_block(n_tokens)) / TILE_K;
    size_t block = (size_t)round_up(n_tokens, TILE) * (size_t)k,
           offset = (size_t)token * (size_t)(n_k_tiles * TILE_K);
    return (Activations){(const uint16_t *)encoded + block + offset,
                         round_up(min_int(n_tokens - token, SWEEP), TILE) / TILE, n_k_tiles};
}

// Part i of n of these, to be fetched into L2.
static Prefetch part_of(const Activations *b, int i, int n) {
    size_t bytes =
        (size_t)(b->n_token_tiles * b->n_k_tiles) * TILE_LEN * sizeof(uint16_t) / (size_t)n;
    return prefetch_range((const char *)b->tiles + (size_t)i * bytes, bytes, 0);
}

// Tiles [token_begin, token_end) / 16: dword (pair of k) p of token t goes to row p, column t of
// its tile.
static void encode(void *encoded, const float *x, int n_tokens, int cols, int token_begin,
                   int token_end) {
    for (int first = token_begin; first < token_end; first += TILE)
        for (int k = 0; k < cols; k += TILE_K) {
            __m512i rows[TILE];
            int block = k / k_block(n_tokens) * k_block(n_tokens);
            uint16_t *tile =
                (uint16_t *)activations_at(encoded, n_tokens, cols, first, block).tiles +
                (k - block) * TILE;
            for (int t = 0; t < TILE; t++)
                rows[t] =
                    first + t < n_tokens
                        ? load_bf16(TYPE_F32,
                                    (const char *)(x + (size_t)(first + t) * (size_t)cols + k),
                                    cols - k)
                        : _mm512_setzero_si512();
            transpose(tile, 64, rows, sizeof rows[0], TILE, 1);
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
    __asm__ volatile("" ::"r"(&c)
                     : "memory"); // gcc 12 believes that _tile_loadconfig reads 8 bytes only
    _tile_loadconfig(&c);
}

// C tiles 0 to 3 (or 0 and 1, for one token tile) += panel x B. B passes by L1 (TILELOADDT1), where
// the panel stays.
INLINE void multiply_tiles(float *sums, const uint16_t *panel, const uint16_t *b, int n_k_tiles,
                           bool is_first, bool is_pair, Prefetch *ahead, int n_ahead) {
    const uint16_t *a1 = panel + (size_t)n_k_tiles * TILE_LEN,
                   *b1 = b + (size_t)n_k_tiles * TILE_LEN;
    if (is_first) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    } else {
        _tile_loadd(0, sums, 64);
        _tile_loadd(1, sums + 256, 64);
        if (is_pair) _tile_loadd(2, sums + 512, 64);
        if (is_pair) _tile_loadd(3, sums + 768, 64);
    }
    for (int k = 0; k < n_k_tiles * TILE_LEN; k += TILE_LEN) {
        prefetch_lines(ahead, n_ahead);
        _tile_loadd(4, panel + k, 64);
        _tile_stream_loadd(6, b + k, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(5, a1 + k, 64);
        _tile_dpbf16ps(1, 5, 6);
        if (!is_pair) continue;
        _tile_stream_loadd(7, b1 + k, 64);
        _tile_dpbf16ps(2, 4, 7);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, sums, 64);
    _tile_stored(1, sums + 256, 64);
    if (is_pair) _tile_stored(2, sums + 512, 64);
    if (is_pair) _tile_stored(3, sums + 768, 64);
}

// sums: for each token tile, the C tiles of the panel's two halves, 256 floats each, (row, token).
// What `ahead` names is fetched meanwhile, evenly: in bursts it would keep the loads waiting.
static void multiply_panel(float *sums, const uint16_t *panel, const Activations *b, bool is_first,
                           Prefetch ahead) {
    int n_steps = (b->n_token_tiles + 1) / 2 * b->n_k_tiles,
        n_ahead = (ahead.n_lines + n_steps - 1) / n_steps, t = 0;
    const uint16_t *tiles = b->tiles;
    __asm__ volatile("" ::: "memory"); // gcc 12 believes that _tile_loadd reads no memory
    for (; t + 2 <= b->n_token_tiles; t += 2, sums += 4 * 256, tiles += 2 * b->n_k_tiles * TILE_LEN)
        multiply_tiles(sums, panel, tiles, b->n_k_tiles, is_first, true, &ahead, n_ahead);
    if (t < b->n_token_tiles)
        multiply_tiles(sums, panel, tiles, b->n_k_tiles, is_first, false, &ahead, n_ahead);
    __asm__ volatile("" ::: "memory");
}

// Turns the sums of a strip around into out (token, row); only the rows and tokens that exist. All
// rows of 16 tokens before the next 16: their lines lie far apart, each on a page of its own.
static void write_strip(float *out, size_t out_stride, const Memory *m, int n_tokens, int n_rows) {
    for (int t = 0; t < n_tokens; t += TILE, out += TILE * out_stride)
        for (int row = 0; row < n_rows; row += TILE) {
            __m512i columns[TILE];
            const float *sums = m->gemm.sums[row / PANEL] + t * PANEL + row % PANEL * TILE;
            transpose(columns, 64, sums, TILE * sizeof *sums, TILE, 1);
            for (int i = 0; i < TILE && t + i < n_tokens; i++)
                _mm512_mask_storeu_epi32(out + (size_t)i * out_stride + row, first(n_rows - row),
                                         columns[i]);
        }
}

// What follows `row` of a strip, in the order of `rows`: its next panel, its next K block, its
// first one for further tokens, or the rows after it, which are most often this thread's too.
static Piece next_piece(const Tensor *w, int row, int strip, int end, int k, int depth,
                        bool is_last_sweep) {
    if (row + PANEL < end) return piece_of(w, row + PANEL, end, k, k + depth);
    if (k + depth < w->cols) return piece_of(w, strip, end, k + depth, k + 2 * depth);
    return is_last_sweep ? piece_of(w, end, w->rows, 0, depth) : piece_of(w, strip, end, 0, depth);
}

// The activations after these: the next K block's, or the first ones of further tokens, or of all
// for further rows.
static Activations next_activations(const void *encoded, int n_tokens, int cols, int token, int k) {
    k += k_block(n_tokens);
    if (k < cols) return activations_at(encoded, n_tokens, cols, token, k);
    return activations_at(encoded, n_tokens, cols, token + SWEEP < n_tokens ? token + SWEEP : 0, 0);
}

static void rows(float *out, size_t out_stride, const Tensor *w, const void *encoded, int n_tokens,
                 int row_begin, int row_end) {
    bool is_many = n_tokens > FEW || encoded_bytes(n_tokens, w->cols) > IN_L2;
    int step = is_many ? STRIP : PANEL, depth = k_block(n_tokens);
    Memory *m = team_scratch();
    tiles_begin();
    for (int strip = row_begin; strip < row_end; strip += step)
        for (int token = 0; token < n_tokens; token += SWEEP) {
            int end = min_int(strip + step, row_end),
                n_panels = round_up(end - strip, PANEL) / PANEL;
            bool is_last = token + SWEEP >= n_tokens;
            for (int k = 0; k < w->cols; k += depth) {
                Activations b = activations_at(encoded, n_tokens, w->cols, token, k);
                Activations next_b = next_activations(encoded, n_tokens, w->cols, token, k);
                for (int row = strip, i = 0; row < end; row += PANEL, i++) {
                    Piece piece = piece_of(w, row, end, k, k + depth);
                    Piece next = next_piece(w, row, strip, end, k, depth, is_last);
                    decode_panel[w->type](m->gemm.panel, &piece, &next);
                    multiply_panel(m->gemm.sums[i], m->gemm.panel, &b, k == 0,
                                   is_many ? part_of(&next_b, i, n_panels) : (Prefetch){0});
                }
            }
            write_strip(out + (size_t)token * out_stride + strip, out_stride, m,
                        min_int(n_tokens - token, SWEEP), end - strip);
        }
    _tile_release();
}

// Attention of a page, for many queries: scores = Q K^T and acc = weights V are multiply_panel's,
// with 32 queries as A. K and V become B once for all of them: K with 16 keys as columns, V with
// pairs of keys in a row. Their bf16 (64 KiB each at head_dim 128) stay in L2, what belongs to the
// 32 queries in L1. At 256 keys and 256 queries: 33.6 MFLOP, 65536 exponentials, 65536 values
// converted. Q, K, weights and V are not split into two bf16: that is a fifth of the error of a
// trained model's logits, the matrices' is the rest.

// The largest of the n scores that one query sees (16 keys lie 512 floats apart); the others become
// minus infinity.
static float most(float *scores, int n, int n_keys) {
    const __m512 none = _mm512_set1_ps(-INFINITY);
    __m512 max = none;
    for (int k = n / TILE * TILE; k < n_keys; k += TILE)
        _mm512_store_ps(scores + k * PANEL,
                        _mm512_mask_load_ps(none, first(n - k), scores + k * PANEL));
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
    const __m512 log2e = _mm512_set1_ps(1.44269504f),
                 m = _mm512_set1_ps(max > -INFINITY ? max * 1.44269504f : 0);
    __m512 even = _mm512_setzero_ps(), odd = even;
    for (int k = 0; k < n_keys; k += PANEL) {
        __m512 a = exp2_roughly(_mm512_fmsub_ps(_mm512_load_ps(scores + k * PANEL), log2e, m));
        __m512 b =
            exp2_roughly(_mm512_fmsub_ps(_mm512_load_ps(scores + k * PANEL + 512), log2e, m));
        __m512i w = (__m512i)_mm512_cvtne2ps_pbh(b, a);
        _mm512_store_si512(weights + k * TILE, w);
        even = _mm512_add_ps(even, _mm512_castsi512_ps(_mm512_slli_epi32(w, 16)));
        odd = _mm512_add_ps(
            odd, _mm512_castsi512_ps(_mm512_and_si512(w, _mm512_set1_epi32((int)0xffff0000))));
    }
    return _mm512_reduce_add_ps(_mm512_add_ps(even, odd));
}

// 32 rows of K, as A tiles, to the B tiles of 32 columns.
static void turn(uint16_t *tile, const uint16_t *rows, int n_dim_tiles) {
    for (int t = 0; t < 2 * n_dim_tiles * TILE_LEN; t += TILE_LEN)
        transpose(tile + t, 64, rows + t, TILE_K * sizeof *rows, TILE, 1);
}

// 32 rows of V, as A tiles, to B tiles `step` apart: pair p of keys becomes row p. The columns stay
// in the order that unpacking leaves: {0-3, 8-11, 16-19, 24-27} of 32, then the others.
static void interleave(uint16_t *tile, const uint16_t *rows, int n_dim_tiles, size_t step) {
    for (int d = 0; d < n_dim_tiles; d++, tile += 2 * step)
        for (int p = 0; p < TILE; p++) {
            const uint16_t *from =
                rows + (p / 8 * n_dim_tiles + d) * TILE_LEN + 2 * (p % 8) * TILE_K;
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
        _mm512_mask_storeu_ps(acc + d + TILE, first(dim - d - TILE),
                              _mm512_permutex2var_ps(a, high, b));
    }
}

// K and V of the first n positions of a page.
static void convert_page(Memory *m, const AttentionPage *a, int n) {
    int n_dim_tiles = round_up(a->head_dim, TILE_K) / TILE_K,
        n_key_tiles = round_up(n, TILE_K) / TILE_K;
    size_t row_bytes = quant_row_bytes(a->kv_type, (size_t)a->head_dim);
    Tensor k = {a->k, a->kv_type, n, a->head_dim, row_bytes, NULL, NULL}, v = k;
    v.data = a->v;
    for (int i = 0; i < n_key_tiles; i++) {
        Piece keys = piece_of(&k, i * PANEL, n, 0, a->head_dim),
              values = piece_of(&v, i * PANEL, n, 0, a->head_dim);
        decode_panel[a->kv_type](m->attend.rows, &keys, &values);
        turn(m->attend.keys + 2 * i * n_dim_tiles * TILE_LEN, m->attend.rows, n_dim_tiles);
        decode_panel[a->kv_type](m->attend.rows, &values, &(Piece){0});
        interleave(m->attend.values + i * TILE_LEN, m->attend.rows, n_dim_tiles,
                   (size_t)n_key_tiles * TILE_LEN);
    }
}

// Queries [first, first + 32), as many as there are, with the n positions converted.
static void attend_panel(Memory *m, const AttentionPage *a, int first, int n) {
    int dim = a->head_dim, n_dim_tiles = round_up(dim, TILE_K) / TILE_K,
        n_key_tiles = round_up(n, TILE_K) / TILE_K;
    Piece queries = {(const char *)(a->q + (size_t)first * (size_t)dim), (size_t)dim * 4,
                     (size_t)dim * 4, min_int(a->n_q - first, PANEL), dim};
    decode_panel[TYPE_F32](m->attend.queries, &queries, &(Piece){0});
    multiply_panel(m->attend.sums, m->attend.queries,
                   &(Activations){m->attend.keys, 2 * n_key_tiles, n_dim_tiles}, true,
                   (Prefetch){0});
    for (int i = 0; i < queries.n_rows; i++) {
        float *scores = m->attend.sums + i * TILE;
        uint16_t *weights =
            m->attend.weights + i / TILE * n_key_tiles * TILE_LEN + i % TILE * TILE_K;
        a->max[first + i] = most(scores, a->n_keys[first + i], n_key_tiles * PANEL);
        a->sum[first + i] = soften(weights, scores, a->max[first + i], n_key_tiles * PANEL);
    }
    multiply_panel(m->attend.sums, m->attend.weights,
                   &(Activations){m->attend.values, 2 * n_dim_tiles, n_key_tiles}, true,
                   (Prefetch){0});
    for (int i = 0; i < queries.n_rows; i++)
        write_acc(a->acc + (size_t)(first + i) * (size_t)dim, m->attend.sums + i * TILE, dim);
}

static void attend_many(const AttentionPage *a) {
    Memory *m = team_scratch();
    int n = 1; // a page has room for 256 positions
    for (int i = 0; i < a->n_q; i++) n = a->n_keys[i] > n ? a->n_keys[i] : n;
    tiles_begin();
    convert_page(m, a, n);
    for (int first = 0; first < a->n_q; first += PANEL) attend_panel(m, a, first, n);
    _tile_release();
}

// Random numbers: zeros and constants let the unit run a quarter faster than any data.
static double peak(int rounds) {
    static uint16_t tiles[4 * TILE_LEN];
    uint32_t random = 1;
    for (int i = 0; i < 4 * TILE_LEN; i++) {
        random = random * 1664525 + 1013904223;
        tiles[i] = (uint16_t)(random >> 31 << 15 |
                              (0x3f00 + (random >> 16 & 0xff))); // 0.5 to 2, either sign
    }
    __asm__ volatile("" ::: "memory");
    tiles_begin();
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_loadd(4, tiles, 64);
    _tile_loadd(5, tiles + TILE_LEN, 64);
    _tile_loadd(6, tiles + 2 * TILE_LEN, 64);
    _tile_loadd(7, tiles + 3 * TILE_LEN, 64);
    for (int i = 0; i < rounds; i++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 5, 6);
        _tile_dpbf16ps(2, 4, 7);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_release();
    return 4.0 * 2 * TILE * TILE * TILE_K * rounds;
}

// Tokens from which on tiles are the fastest kernel (21 November 2026, Sapphire Rapids, 2 cores,
// gcc 12), against the gemm of avx512.c. 16 tokens of 4096 x 4096: Q4_K .87 ms and .87, Q8_0 1.14
// and .95; 24: Q4_K .97 and 1.18, Q8_0 1.34 and 1.19, Q6_K 1.48 and 1.40; 32: Q6_K 1.55 and 1.72.
// BF16 5; the other types as their like.
enum { FLOATS_FROM = 5, INTEGERS_FROM = 17, BYTES_FROM = 25 };

#define TILES(type, from)       [TYPE_##type] = {from, PANEL, TILE, encoded_bytes, encode, rows, false},
#define FLOAT_TILES(type, name) TILES(type, FLOATS_FROM)
#define INTEGER_TILES(type, name)                                                                  \
    TILES(type, TYPE_##type == TYPE_Q6_K || TYPE_##type == TYPE_Q8_0 ? BYTES_FROM : INTEGERS_FROM)

const Kernels kernels_amx = {
    .name = "amx",
    .gemm_large = {FLOAT_TYPES(FLOAT_TILES) EACH_QUANTIZED_TYPE(INTEGER_TILES)},
    .gemm_large_rows = STRIP,
    .attend_many = attend_many,
    .peak_unit = "AMX bf16",
    .peak = peak,
};
