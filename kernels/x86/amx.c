// AMX tiles: matrix products of many tokens and attention of many queries. All other kernels come
// from AVX-512, which this backend is overlaid on.
//
// Prefill: weights of every type and activations are rounded to bf16, products are summed in
// float32. Attention of many queries does the same for Q K^T and for weights V. The results
// therefore differ from those of AVX-512, and the kernels are not used with --deterministic
// (exactness.h).
//
// The tile unit. A tile is one of eight registers of 16 rows of 64 bytes. One product is
//
//     C (16 rows x 16 tokens, float32) += A (16 rows x 32 k) * B (32 k x 16 tokens)
//
// 16384 operations in 16 cycles. B is stored with pairs of k side by side: dword t of row p holds
// k = 2 p and 2 p + 1 of token t. Weights are A, decoded a panel of 32 rows at a time
// (amx_decode.h); activations are B, packed once for all rows. Multiplying two A tiles by two B
// tiles uses each loaded tile twice and fills all eight registers: 4 C, 2 A, 2 B.
//
// Order of sums: in each C, the unit adds the products of even k and of odd k separately, tile by
// tile in the order of the columns. The order does not depend on other rows or tokens.
//
// Blocking. For each chunk of 256 rows, for each block of 512 columns, for each panel of 32 rows:
// decode the panel (32 KiB, stays in L1) and multiply it by up to 512 tokens.
//   - B is read from L2: 2 KiB for 4 products, which take 64 cycles. TILELOADDT1 does not bring it
//     into L1, where it would displace the panel. The sums of the chunk and the B of a block of
//     columns, up to 512 KiB each, stay in L2. A part of the next block's B is prefetched with each
//     panel.
//   - While a row of a panel is decoded, the same row of the next panel is prefetched.
//   - With up to 64 tokens all of B fits in L2 (unless there are many columns). Then a chunk is one
//     panel, which goes through all blocks of columns, of half the depth: its rows are streams and
//     its sums stay in L1.
// With 512 tokens, a panel and block of columns are 16.8 MFLOP, 32 x 512 decoded weights, 512 KiB
// of B and 2 x 64 KiB of sums. On one core of Sapphire Rapids, Q4_K, 4096 x 4096, 512 tokens reach
// half the speed of products on registers (amx_peak); streaming random data into the tiles in this
// way already limits it to 0.6. Decoding takes 0.2 cycles per weight, or 0.5 with 32 tokens.
#define VECTOR_BITS 512
#include "kernels/x86/amx_decode.h"
#include "kernels/vector/matmul.h"

#include <math.h>

enum {
    K_BLOCK = 512,    // columns of a block; 256 is 10 % slower at 96 tokens, 20 % at 128
    CHUNK_ROWS = 256, // 128 and 512 are 5 to 10 % slower
    CHUNK_TOKENS = 512,
    // A chunk is one panel up to this number of tokens: 3 % faster at 64 tokens x 4096 columns, but
    // 8 % slower from 96 tokens on. This is limited by the bytes of activations: 64 tokens x 14336
    // columns would be 20 % slower.
    FEW_TOKENS = 64,
    MOST_IN_L2 = 1 << 20
};

// Contents of the thread's scratch memory.
typedef union {
    struct {
        float sums[CHUNK_ROWS / AMX_PANEL][CHUNK_TOKENS * AMX_PANEL];
        uint16_t panel[AMX_PANEL * K_BLOCK];
    } gemm;
    struct {
        float sums[AMX_PANEL * KV_PAGE];
        uint16_t queries[AMX_PANEL * MAX_HEAD_DIM], weights[AMX_PANEL * KV_PAGE];
        uint16_t rows[AMX_PANEL * MAX_HEAD_DIM], keys[KV_PAGE * MAX_HEAD_DIM],
            values[KV_PAGE * MAX_HEAD_DIM];
    } attend;
} AmxMemory;

_Static_assert(sizeof(AmxMemory) <= KERNEL_SCRATCH, "fits");

// Activations: B tiles.

static int k_block(int n_tokens) { return n_tokens <= FEW_TOKENS ? K_BLOCK / 2 : K_BLOCK; }

static size_t bf16_bytes(int n_tokens, int cols) {
    return (size_t)round_up(n_tokens, AMX_TILE) * (size_t)round_up(cols, AMX_TILE_K) *
           sizeof(uint16_t);
}

// B tiles of some tokens and columns, in the order (token tile, k tile).
typedef struct {
    const uint16_t *tiles;
    int n_token_tiles, n_k_tiles;
} TokenTiles;

// The B tiles of up to CHUNK_TOKENS tokens from `token` on, for the block of columns that begins at
// k. The encoded activations are stored one block of columns after another.
static TokenTiles tiles_at(const void *encoded, int n_tokens, int cols, int token, int k) {
    int n_k_tiles = min_int(round_up(cols, AMX_TILE_K) - k, k_block(n_tokens)) / AMX_TILE_K;
    size_t block = (size_t)round_up(n_tokens, AMX_TILE) * (size_t)k,
           offset = (size_t)token * (size_t)(n_k_tiles * AMX_TILE_K);
    return (TokenTiles){(const uint16_t *)encoded + block + offset,
                        round_up(min_int(n_tokens - token, CHUNK_TOKENS), AMX_TILE) / AMX_TILE,
                        n_k_tiles};
}

static void bf16_encode_tiles(void *encoded, const float *x, int n_tokens, int cols,
                              int token_begin, int token_end) {
    for (int first = token_begin; first < token_end; first += AMX_TILE)
        for (int k = 0; k < cols; k += AMX_TILE_K) {
            __m512i rows[AMX_TILE]; // the 16 pairs of each token, to be transposed
            int block = k / k_block(n_tokens) * k_block(n_tokens);
            uint16_t *tile = (uint16_t *)tiles_at(encoded, n_tokens, cols, first, block).tiles +
                             (k - block) * AMX_TILE;
            for (int t = 0; t < AMX_TILE; t++) {
                const float *from = x + (size_t)(first + t) * (size_t)cols + k;
                rows[t] = first + t < n_tokens ? load_bf16(TYPE_F32, (const char *)from, cols - k)
                                               : _mm512_setzero_si512();
            }
            transpose_dwords(tile, 64, rows, sizeof rows[0], AMX_TILE, 1);
        }
}

// Products of tiles.

// Configures the eight tiles as 16 rows of 64 bytes. The layout of the configuration:
//
//   byte 0        palette, 1
//   byte 16 + 2 i bytes of a row of tile i, as 16 bits
//   byte 48 + i   rows of tile i
static void tiles_begin(void) {
    uint8_t c[64] = {1};
    for (int i = 0; i < 8; i++) {
        c[16 + 2 * i] = 64;
        c[48 + i] = AMX_TILE;
    }
    // gcc 12 assumes that _tile_loadconfig reads only 8 bytes.
    __asm__ volatile("" ::"r"(&c) : "memory");
    _tile_loadconfig(&c);
}

// Adds panel * B to the sums of two token tiles, or of one unless is_pair. Tiles 0 to 3 (or 0 and
// 1) are C, tiles 4 and 5 are A, tiles 6 and 7 are B.
INLINE void multiply_tiles(float *sums, const uint16_t *panel, const uint16_t *b, int n_k_tiles,
                           bool is_first, bool is_pair, Prefetch *prefetch, int n_prefetch) {
    const uint16_t *a1 = panel + (size_t)n_k_tiles * AMX_TILE_LEN;
    const uint16_t *b1 = b + (size_t)n_k_tiles * AMX_TILE_LEN;

    // Load the sums. Tiles 0 and 1 are the products of the two A tiles with b, tiles 2 and 3 those
    // with b1.
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

    for (int k = 0; k < n_k_tiles * AMX_TILE_LEN; k += AMX_TILE_LEN) {
        prefetch_lines(prefetch, n_prefetch);
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

// Multiplies a panel by all token tiles. sums holds, for each token tile, the C tiles of the two
// halves of the panel, 256 floats (row, token) each.
static void multiply_panel(float *sums, const uint16_t *panel, const TokenTiles *b, bool is_first,
                           Prefetch prefetch) {
    int n_steps = (b->n_token_tiles + 1) / 2 * b->n_k_tiles,
        n_prefetch = div_up(prefetch.n_lines, n_steps), t = 0;
    const uint16_t *tiles = b->tiles;
    __asm__ volatile("" ::: "memory"); // gcc 12 assumes that _tile_loadd reads no memory
    for (; t + 2 <= b->n_token_tiles;
         t += 2, sums += 4 * 256, tiles += 2 * b->n_k_tiles * AMX_TILE_LEN)
        multiply_tiles(sums, panel, tiles, b->n_k_tiles, is_first, true, &prefetch, n_prefetch);
    if (t < b->n_token_tiles)
        multiply_tiles(sums, panel, tiles, b->n_k_tiles, is_first, false, &prefetch, n_prefetch);
    __asm__ volatile("" ::: "memory");
}

// GEMM.

static bool is_one_panel(int n_tokens, int cols) {
    return n_tokens <= FEW_TOKENS && bf16_bytes(n_tokens, cols) <= MOST_IN_L2;
}

// Decodes a panel and prefetches the weights that will be decoded next: those of the next panel;
// after the last panel, the next block of columns of the chunk; after the last block, its first
// block again if there are more tokens, else the rows that follow the chunk, which this thread
// usually gets next.
static void amx_gemm_pack(GemmStep *s, int r, Type type) {
    AmxMemory *m = s->memory;
    const Tensor *w = s->p->w;
    const int depth = k_block(s->p->n_tokens), row = s->row + r, end = s->row + s->n_rows;
    bool is_last = s->token + CHUNK_TOKENS >= s->p->n_tokens;
    Submatrix now = submatrix(w, row, end, s->k, s->k + depth), next;
    if (row + AMX_PANEL < end)
        next = submatrix(w, row + AMX_PANEL, end, s->k, s->k + depth);
    else if (s->k + depth < w->cols)
        next = submatrix(w, s->row, end, s->k + depth, s->k + 2 * depth);
    else
        next = is_last ? submatrix(w, end, w->rows, 0, depth) : submatrix(w, s->row, end, 0, depth);
    decode_panel[type](m->gemm.panel, &now, &next);
}

// Multiplies a panel and prefetches a part of the B that is used next: that of the next block of
// columns, or the first block of columns of the next tokens, or of the first tokens again.
static void amx_gemm_multiply(GemmStep *s, int r, int t, int n, Type type) {
    (void)t;
    (void)n;
    (void)type;

    AmxMemory *m = s->memory;
    const int cols = s->p->w->cols, n_tokens = s->p->n_tokens;
    const int next_k = s->k + k_block(n_tokens);
    TokenTiles b = tiles_at(s->p->encoded, n_tokens, cols, s->token, s->k);

    // B of the next block of columns or of the next tokens.
    TokenTiles next;
    if (next_k < cols)
        next = tiles_at(s->p->encoded, n_tokens, cols, s->token, next_k);
    else
        next = tiles_at(s->p->encoded, n_tokens, cols,
                        s->token + CHUNK_TOKENS < n_tokens ? s->token + CHUNK_TOKENS : 0, 0);

    // Each panel prefetches its share of these tiles.
    Prefetch prefetch = {0};
    if (!is_one_panel(n_tokens, cols)) {
        size_t n_panels = (size_t)(round_up(s->n_rows, AMX_PANEL) / AMX_PANEL);
        size_t bytes = (size_t)(next.n_token_tiles * next.n_k_tiles) * AMX_TILE_LEN *
                       sizeof(uint16_t) / n_panels;
        prefetch =
            prefetch_range((const char *)next.tiles + (size_t)(r / AMX_PANEL) * bytes, bytes, 0);
    }

    multiply_panel(m->gemm.sums[r / AMX_PANEL], m->gemm.panel, &b, s->k == 0, prefetch);
}

// Transposes the sums to (token, row). Stores all rows of 16 tokens before the next 16 tokens,
// because the outputs of a token are on different memory pages than those of other tokens.
static void amx_gemm_store(const GemmStep *s, float *out, size_t out_stride) {
    const AmxMemory *m = s->memory;
    for (int t = 0; t < s->n; t += AMX_TILE, out += AMX_TILE * out_stride)
        for (int row = 0; row < s->n_rows; row += AMX_TILE) {
            __m512i columns[AMX_TILE];
            const float *sums =
                m->gemm.sums[row / AMX_PANEL] + t * AMX_PANEL + row % AMX_PANEL * AMX_TILE;
            transpose_dwords(columns, 64, sums, AMX_TILE * sizeof *sums, AMX_TILE, 1);
            for (int i = 0; i < AMX_TILE && t + i < s->n; i++)
                store_n(out + (size_t)i * out_stride + row, s->n_rows - row, (__m512)columns[i]);
        }
}

static void amx_gemm_rows(const Matmul *p, Type type) {
    tiles_begin();
    gemm(p,
         (GemmPlan){.chunk_rows = is_one_panel(p->n_tokens, p->w->cols) ? AMX_PANEL : CHUNK_ROWS,
                    .chunk_tokens = CHUNK_TOKENS,
                    .block_cols = k_block(p->n_tokens),
                    .panel_rows = AMX_PANEL,
                    .pack = amx_gemm_pack,
                    .multiply = amx_gemm_multiply,
                    .store = amx_gemm_store},
         type);
    _tile_release();
}
DEFINE_ROWS_AS(amx_gemm, amx_gemm_rows, w->type)

// Attention of a page, for many queries. multiply_panel computes both products, with 32 queries, or
// their weights, as A. K and V are converted to B once for all queries:
//
//     scores = Q K^T        B: 16 keys as columns, pairs of dimensions in a row
//     acc = weights V       B: 16 dimensions as columns, pairs of keys in a row
//
// K and V in bf16 (64 KiB each at head_dim 128) stay in L2, the data of 32 queries in L1. 256 keys
// and 256 queries take 33.6 MFLOP, 65536 exponentials and 65536 conversions of values. Splitting Q,
// K, weights and V into two bf16 each would remove only a fifth of the error of a trained model's
// logits; four fifths come from rounding the weight matrices.

// Returns the largest of the first n scores of a query and sets the others, up to n_keys, to minus
// infinity. The scores of 16 keys are consecutive; the next 16 are 512 floats further on.
static float mask_and_max(float *scores, int n, int n_keys) {
    const __m512 lowest = splat(-INFINITY);
    __m512 max = lowest;

    for (int k = 0; k < n_keys; k += AMX_TILE, scores += AMX_TILE * AMX_PANEL) {
        __m512 masked = select_first(_mm512_load_ps(scores), n - k, lowest);
        _mm512_store_ps(scores, masked);
        max = max_floats(masked, max);
    }
    return reduce_max(max);
}

// 2^x within 1e-4, a twentieth of the error of rounding to bf16, by a cubic polynomial for the
// fraction. 0 for minus infinity; NaN stays NaN.
INLINE __m512 exp2_bf16(__m512 x) {
    __m512 f = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC); // x - floor(x)
    __m512 p = fmadd(f, splat(0.0782680404f), splat(0.2263076085f));
    p = fmadd(f, p, splat(0.6954243511f));
    return _mm512_scalef_ps(fmadd(f, p, splat(1)), x);
}

// Stores weights = exp(scores - max) as a row of A tiles. Returns the sum of the rounded weights.
static float softmax_bf16(uint16_t *weights, const float *scores, float max, int n_keys) {
    const __m512 log2e = splat(1.44269504f), m = splat(max > -INFINITY ? max * 1.44269504f : 0);
    __m512 even = splat(0), odd = even;
    for (int k = 0; k < n_keys; k += AMX_PANEL) {
        __m512 a = _mm512_load_ps(scores + k * AMX_PANEL),
               b = _mm512_load_ps(scores + k * AMX_PANEL + 512);
        __m512i w = to_bf16(exp2_bf16(_mm512_fmsub_ps(a, log2e, m)),
                            exp2_bf16(_mm512_fmsub_ps(b, log2e, m)));
        _mm512_store_si512(weights + k * AMX_TILE, w);
        even = even + (__m512)_mm512_slli_epi32(w, 16);
        odd = odd + (__m512)(w & _mm512_set1_epi32((int)0xffff0000));
    }
    return reduce_add(even + odd);
}

// Converts 32 rows of K from A tiles to the B tiles of 32 columns, by transposing each tile.
static void keys_to_b(uint16_t *tile, const uint16_t *rows, int n_dim_tiles) {
    for (int t = 0; t < 2 * n_dim_tiles * AMX_TILE_LEN; t += AMX_TILE_LEN)
        transpose_dwords(tile + t, 64, rows + t, AMX_TILE_K * sizeof *rows, AMX_TILE, 1);
}

// Converts 32 rows of V from A tiles to B tiles that are `step` apart: rows 2 p and 2 p + 1 are
// interleaved to row p. Of each 32 columns, unpacklo takes {0-3, 8-11, 16-19, 24-27} for the first
// tile, and unpackhi the other columns for the second; store_acc restores their order.
static void values_to_b(uint16_t *tile, const uint16_t *rows, int n_dim_tiles, size_t step) {
    for (int d = 0; d < n_dim_tiles; d++, tile += 2 * step)
        for (int p = 0; p < AMX_TILE; p++) {
            const uint16_t *from =
                rows + (p / 8 * n_dim_tiles + d) * AMX_TILE_LEN + 2 * (p % 8) * AMX_TILE_K;
            __m512i even = _mm512_load_si512(from), odd = _mm512_load_si512(from + AMX_TILE_K);
            _mm512_store_si512(tile + p * AMX_TILE_K, _mm512_unpacklo_epi16(even, odd));
            _mm512_store_si512(tile + step + p * AMX_TILE_K, _mm512_unpackhi_epi16(even, odd));
        }
}

// Stores a query's row of weights V from the C tiles, in the order of the dimensions.
static void store_acc(float *acc, const float *sums, int dim) {
    const __m512i low = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    for (int d = 0; d < dim; d += AMX_PANEL, sums += 1024) {
        __m512 a = _mm512_load_ps(sums), b = _mm512_load_ps(sums + 512);
        store_n(acc + d, dim - d, _mm512_permutex2var_ps(a, low, b));
        store_n(acc + d + AMX_TILE, dim - d - AMX_TILE, _mm512_permutex2var_ps(a, high, b));
    }
}

// The rows [first, first + 32) of Q, K or V, clipped to the first n.
static Submatrix rows_of_32(const void *begin, Type type, int head_dim, int first, int n) {
    size_t row_bytes = quant_row_bytes(type, (size_t)head_dim);
    return (Submatrix){(const char *)begin + (size_t)first * row_bytes, row_bytes, row_bytes,
                       min_int(n - first, AMX_PANEL), head_dim};
}

// Converts K and V of the first n positions of a page to B tiles.
static void convert_page(AmxMemory *m, const AttentionPage *a, int n) {
    int n_dim_tiles = round_up(a->head_dim, AMX_TILE_K) / AMX_TILE_K,
        n_key_tiles = round_up(n, AMX_TILE_K) / AMX_TILE_K;
    for (int i = 0; i < n_key_tiles; i++) {
        Submatrix keys = rows_of_32(a->k, a->k_type, a->head_dim, i * AMX_PANEL, n);
        Submatrix values = rows_of_32(a->v, a->v_type, a->head_dim, i * AMX_PANEL, n);
        decode_panel[a->k_type](m->attend.rows, &keys, &values);
        keys_to_b(m->attend.keys + 2 * i * n_dim_tiles * AMX_TILE_LEN, m->attend.rows, n_dim_tiles);
        decode_panel[a->v_type](m->attend.rows, &values, &(Submatrix){0});
        values_to_b(m->attend.values + i * AMX_TILE_LEN, m->attend.rows, n_dim_tiles,
                    (size_t)n_key_tiles * AMX_TILE_LEN);
    }
}

// Computes attention of the queries [first, first + 32), clipped to n_q, over the n converted
// positions.
static void attend_32_queries(AmxMemory *m, const AttentionPage *a, int first, int n) {
    int dim = a->head_dim;
    int n_dim_tiles = round_up(dim, AMX_TILE_K) / AMX_TILE_K;
    int n_key_tiles = round_up(n, AMX_TILE_K) / AMX_TILE_K;
    int n_keys = n_key_tiles * AMX_PANEL;
    Submatrix queries = rows_of_32(a->q, TYPE_F32, dim, first, a->n_q);

    // scores = Q K^T
    decode_panel[TYPE_F32](m->attend.queries, &queries, &(Submatrix){0});
    multiply_panel(m->attend.sums, m->attend.queries,
                   &(TokenTiles){m->attend.keys, 2 * n_key_tiles, n_dim_tiles}, true,
                   (Prefetch){0});

    // weights = exp(scores - max), in bf16
    for (int i = 0; i < queries.n_rows; i++) {
        float *scores = m->attend.sums + i * AMX_TILE;
        uint16_t *weights = m->attend.weights + i / AMX_TILE * n_key_tiles * AMX_TILE_LEN +
                            i % AMX_TILE * AMX_TILE_K;
        a->max[first + i] = mask_and_max(scores, a->n_keys[first + i], n_keys);
        a->sum[first + i] = softmax_bf16(weights, scores, a->max[first + i], n_keys);
    }

    // acc = weights V
    multiply_panel(m->attend.sums, m->attend.weights,
                   &(TokenTiles){m->attend.values, 2 * n_dim_tiles, n_key_tiles}, true,
                   (Prefetch){0});
    for (int i = 0; i < queries.n_rows; i++)
        store_acc(a->acc + (size_t)(first + i) * (size_t)dim, m->attend.sums + i * AMX_TILE, dim);
}

static void amx_attend_many(const AttentionPage *a) {
    AmxMemory *m = team_scratch();
    int n = 1; // largest number of keys that a query sees
    for (int i = 0; i < a->n_q; i++) n = a->n_keys[i] > n ? a->n_keys[i] : n;
    tiles_begin();
    convert_page(m, a, n);
    for (int first = 0; first < a->n_q; first += AMX_PANEL) attend_32_queries(m, a, first, n);
    _tile_release();
}

// Multiplies random numbers: with zeros or constants the unit is a quarter faster than with real
// data.
static double amx_peak(int rounds) {
    static uint16_t tiles[4 * AMX_TILE_LEN];
    uint32_t random = 1;

    // Random bf16 numbers with magnitudes from 0.5 to 2 and random signs.
    for (int i = 0; i < 4 * AMX_TILE_LEN; i++) {
        random = random * 1664525 + 1013904223;
        tiles[i] = (uint16_t)(random >> 31 << 15 | (0x3f00 + (random >> 16 & 0xff)));
    }

    __asm__ volatile("" ::: "memory");
    tiles_begin();
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_loadd(4, tiles, 64);
    _tile_loadd(5, tiles + AMX_TILE_LEN, 64);
    _tile_loadd(6, tiles + 2 * AMX_TILE_LEN, 64);
    _tile_loadd(7, tiles + 3 * AMX_TILE_LEN, 64);

    for (int i = 0; i < rounds; i++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 5, 6);
        _tile_dpbf16ps(2, 4, 7);
        _tile_dpbf16ps(3, 5, 7);
    }

    _tile_release();
    return 4.0 * 2 * AMX_TILE * AMX_TILE * AMX_TILE_K * rounds;
}

// Number of tokens from which AMX is the fastest kernel, for float types, integer types, and types
// that are handled as bytes (Q6_K, Q8_0). Milliseconds for 4096 x 4096 with AMX and with the GEMM
// of AVX-512 (make sweep, Sapphire Rapids, 2 cores, gcc 12, 2026-11-21):
//
//   tokens   Q4_K          Q8_0          Q6_K
//   16       0.87, 0.87    1.14, 0.95
//   24       0.97, 1.18    1.34, 1.19    1.48, 1.40
//   32                                   1.55, 1.72
//
// BF16 is faster with AMX from 5 tokens on. Types that were not measured use the number of the most
// similar type.
enum { FLOAT_TOKENS = 5, INTEGER_TOKENS = 17, BYTES_TOKENS = 25 };

#define AMX_KERNEL(type, name, tokens)                                                             \
    KERNEL(type, gemm, amx, bf16, tiles,                                                           \
           TYPE_##type == TYPE_Q6_K || TYPE_##type == TYPE_Q8_0 ? BYTES_TOKENS : tokens,           \
           AMX_PANEL, AMX_TILE, false)

const Kernels kernels_amx = {
    .name = "amx",
    .gemm_large = {FLOAT_TYPES(AMX_KERNEL, FLOAT_TOKENS) INTEGER_TYPES(AMX_KERNEL, INTEGER_TOKENS)},
    .gemm_large_rows = CHUNK_ROWS,
    .attend_many = amx_attend_many,
    .attend_many_above = 16,
    .peak_unit = "AMX bf16",
    .peak = amx_peak,
};
