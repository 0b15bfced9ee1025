// AVX-512 (F, BW, DQ, VL, VNNI).
//
// Integer types share one form: 256 weights become four registers of unsigned bytes u, with a scale and a minimum for
// each group of 16: w = scale * (u - OFF) - min. A type is an `unpack` function that produces this form; the decode
// kernel (mat), which dots it with int8 activations at once, and the prefill kernel (gemm), which turns it into panels,
// are made from it. F32, F16 and BF16 have float32 activations and a `load` function each.
#include "blocks.h"
#include "isa.h"

#include <immintrin.h>
#include <math.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

enum { UNIT = 256, GROUPS = UNIT / QUANT_GROUP };

typedef struct {
    __m512i w[4];      // u, in the order of the columns
    __m512 scale, min; // per group of 16
} Unit;

typedef Unit (*Unpack)(const void *blocks, Type type);

INLINE int min_int(int a, int b) {
    return a < b ? a : b;
}

// Mask of the first n of 16 lanes.
INLINE __mmask16 first(int n) {
    return (__mmask16)(n >= 16 ? 0xffff : n > 0 ? (1 << n) - 1 : 0);
}

INLINE uint16_t load_u16(const void *p) {
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

INLINE __m512 f16_to_all(uint16_t h) {
    return _mm512_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(h)));
}

// {a, b} in the two halves
INLINE __m512i halves(int a, int b) {
    return _mm512_inserti64x4(_mm512_set1_epi16((short)a), _mm256_set1_epi16((short)b), 1);
}

// 16 floats from 8 bytes: each byte twice, one per group of 16
INLINE __m512 bytes_to_groups(uint64_t bytes) {
    __m128i b = _mm_cvtsi64_si128((long long)bytes);
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_unpacklo_epi8(b, b)));
}

// The f16 scales of 8 blocks, `stride` bytes apart, each for two groups of 16.
INLINE __m512 block_scales(const void *blocks, int stride) {
    const uint8_t *p = blocks;
    const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    __m128i h = _mm_cvtsi32_si128(load_u16(p));
    h = _mm_insert_epi16(h, load_u16(p + stride), 1);
    h = _mm_insert_epi16(h, load_u16(p + stride * 2), 2);
    h = _mm_insert_epi16(h, load_u16(p + stride * 3), 3);
    h = _mm_insert_epi16(h, load_u16(p + stride * 4), 4);
    h = _mm_insert_epi16(h, load_u16(p + stride * 5), 5);
    h = _mm_insert_epi16(h, load_u16(p + stride * 6), 6);
    h = _mm_insert_epi16(h, load_u16(p + stride * 7), 7);
    return _mm512_permutexvar_ps(twice, _mm512_castps256_ps512(_mm256_cvtph_ps(h)));
}

// 64 nibbles of two blocks of 16 bytes each: low nibbles are the first 16 weights of a block.
INLINE __m512i block_nibbles(const uint8_t *a, const uint8_t *b) {
    const __m512i shift =
        _mm512_set_epi64(0x0004000400040004, 0x0004000400040004, 0, 0, 0x0004000400040004, 0x0004000400040004, 0, 0);
    __m512i v = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)a));
    v = _mm512_mask_broadcast_i32x4(v, 0xff00, _mm_loadu_si128((const void *)b));
    return _mm512_and_si512(_mm512_srlv_epi16(v, shift), _mm512_set1_epi8(15));
}

INLINE __m512i iq4_plus_128(__m512i nibbles) {
    const __m128i table = _mm_setr_epi8(1, 24, 45, 63, 79, 93, 106, 118, (char)129, (char)141, (char)153, (char)166,
                                        (char)181, (char)197, (char)217, (char)241);
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), nibbles);
}

INLINE __m256i load_32(const void *p) {
    return _mm256_loadu_si256(p);
}

INLINE Unit unpack_q8_0(const void *blocks, Type type) { // OFF 128
    (void)type;
    const BlockQ8_0 *b = blocks;
    Unit u;
    for (int j = 0; j < 4; j++) {
        __m512i v = _mm512_castsi256_si512(load_32(b[2 * j].qs));
        v = _mm512_inserti64x4(v, load_32(b[2 * j + 1].qs), 1);
        u.w[j] = _mm512_xor_si512(v, _mm512_set1_epi8((char)128));
    }
    u.scale = block_scales(b, sizeof *b);
    return u;
}

INLINE Unit unpack_q4_0(const void *blocks, Type type) { // OFF 8
    (void)type;
    const BlockQ4_0 *b = blocks;
    Unit u;
    for (int j = 0; j < 4; j++) u.w[j] = block_nibbles(b[2 * j].qs, b[2 * j + 1].qs);
    u.scale = block_scales(b, sizeof *b);
    return u;
}

INLINE Unit unpack_iq4_nl(const void *blocks, Type type) { // OFF 128
    (void)type;
    const BlockIQ4_NL *b = blocks;
    Unit u;
    for (int j = 0; j < 4; j++) u.w[j] = iq4_plus_128(block_nibbles(b[2 * j].qs, b[2 * j + 1].qs));
    u.scale = block_scales(b, sizeof *b);
    return u;
}

INLINE Unit unpack_iq4_xs(const void *block, Type type) { // OFF 128
    (void)type;
    const BlockIQ4_XS *b = block;
    Unit u;
    for (int j = 0; j < 4; j++) u.w[j] = iq4_plus_128(block_nibbles(b->qs + 32 * j, b->qs + 32 * j + 16));
    uint32_t low;
    memcpy(&low, b->scales_l, 4);
    uint64_t s = _pdep_u64(low, 0x0f0f0f0f0f0f0f0f) | _pdep_u64(b->scales_h, 0x3030303030303030);
    u.scale = _mm512_mul_ps(_mm512_sub_ps(bytes_to_groups(s), _mm512_set1_ps(32)), f16_to_all(b->d));
    return u;
}

// The 8 scales and 8 minima of 6 bits of Q4_K and Q5_K.
INLINE void k_scales(Unit *u, const uint8_t *packed, uint16_t d, uint16_t dmin) {
    uint32_t a[3];
    memcpy(a, packed, sizeof a);
    uint64_t s = (a[0] & 0x3f3f3f3f) | (uint64_t)((a[2] & 0x0f0f0f0f) | (a[0] >> 2 & 0x30303030)) << 32;
    uint64_t m = (a[1] & 0x3f3f3f3f) | (uint64_t)((a[2] >> 4 & 0x0f0f0f0f) | (a[1] >> 2 & 0x30303030)) << 32;
    u->scale = _mm512_mul_ps(bytes_to_groups(s), f16_to_all(d));
    u->min = _mm512_mul_ps(bytes_to_groups(m), f16_to_all(dmin));
}

// 64 nibbles of 32 bytes: the low ones, then the high ones.
INLINE __m512i pair_nibbles(const uint8_t *p) {
    __m512i v = _mm512_broadcast_i64x4(load_32(p));
    return _mm512_and_si512(_mm512_srlv_epi16(v, halves(0, 4)), _mm512_set1_epi8(15));
}

INLINE Unit unpack_q4_k(const void *block, Type type) { // OFF 0
    (void)type;
    const BlockQ4_K *b = block;
    Unit u;
    for (int j = 0; j < 4; j++) u.w[j] = pair_nibbles(b->qs + 32 * j);
    k_scales(&u, b->scales, b->d, b->dmin);
    return u;
}

INLINE Unit unpack_q5_k(const void *block, Type type) { // OFF 0
    (void)type;
    const BlockQ5_K *b = block;
    Unit u;
    __m512i high = _mm512_broadcast_i64x4(load_32(b->qh));
    for (int j = 0; j < 4; j++) {
        __m512i v = pair_nibbles(b->qs + 32 * j);
        __mmask64 bit = _mm512_test_epi8_mask(high, halves(0x0101 << 2 * j, 0x0202 << 2 * j));
        u.w[j] = _mm512_mask_add_epi8(v, bit, v, _mm512_set1_epi8(16));
    }
    k_scales(&u, b->scales, b->d, b->dmin);
    return u;
}

INLINE Unit unpack_q6_k(const void *block, Type type) { // OFF 32
    (void)type;
    const BlockQ6_K *b = block;
    Unit u;
    const __m512i low_mask = _mm512_set1_epi8(15), high_mask = _mm512_set1_epi8(0x30);
    for (int j = 0; j < 2; j++) {
        __m512i low = _mm512_loadu_si512(b->ql + 64 * j), high = _mm512_broadcast_i64x4(load_32(b->qh + 32 * j));
        __m512i h0 = _mm512_and_si512(_mm512_sllv_epi16(high, halves(4, 2)), high_mask);
        __m512i h1 = _mm512_and_si512(_mm512_srlv_epi16(high, halves(0, 2)), high_mask);
        u.w[2 * j] = _mm512_or_si512(_mm512_and_si512(low, low_mask), h0);
        u.w[2 * j + 1] = _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi16(low, 4), low_mask), h1);
    }
    __m512 s = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)b->scales)));
    u.scale = _mm512_mul_ps(s, f16_to_all(b->d));
    return u;
}

// Any integer type by way of its QuantBlock; OFF 128.
INLINE Unit unpack_any(const void *blocks, Type type) {
    const uint8_t *p = blocks;
    Unit u;
    QuantBlock b[8];
    int block = type_info(type)->block, bytes = type_info(type)->bytes, n = UNIT / block;
    for (int i = 0; i < n; i++) quant_unpack(type)(p + i * bytes, b + i);
    for (int i = 1; i < n; i++) {
        memcpy(b->q + i * block, b[i].q, (size_t)block);
        for (int g = 0; g < block / QUANT_GROUP; g++) {
            b->scale[i * block / QUANT_GROUP + g] = b[i].scale[g];
            b->min[i * block / QUANT_GROUP + g] = b[i].min[g];
        }
    }
    for (int j = 0; j < 4; j++)
        u.w[j] = _mm512_xor_si512(_mm512_loadu_si512(b->q + 64 * j), _mm512_set1_epi8((char)128));
    u.scale = _mm512_loadu_ps(b->scale);
    u.min = _mm512_loadu_ps(b->min);
    return u;
}

// The last unit of a row may be short: copies what there is in front of zeros (scale 0, whatever the type).
typedef struct {
    int n_full;     // units that lie in the row whole
    int bytes;      // of a unit
    int tail_bytes; // of the short unit, 0 if there is none
} UnitShape;

static UnitShape unit_shape(const Tensor *w) {
    const TypeInfo *info = type_info(w->type);
    UnitShape s = {w->cols / UNIT, info->bytes * (UNIT / info->block), w->cols % UNIT / info->block * info->bytes};
    return s;
}

enum { MAX_UNIT_BYTES = 288 };

INLINE const uint8_t *unit_at(const uint8_t *row, int unit, const UnitShape *s, uint8_t *buffer) {
    const uint8_t *p = row + (size_t)unit * (size_t)s->bytes;
    if (unit < s->n_full) return p;
    memset(buffer, 0, MAX_UNIT_BYTES);
    memcpy(buffer, p, (size_t)s->tail_bytes);
    return buffer;
}

static int n_units(int cols) {
    return (cols + UNIT - 1) / UNIT;
}

// Sixteen values to int8 with their scale: max |x| / 127, or NaN if one of them is not finite. `q` gets zeros then.
INLINE float encode_scale(int max_bits, float *inverse) {
    float max;
    memcpy(&max, &max_bits, sizeof max);
    bool is_small = max < 0x1p-100f;
    *inverse = is_small || max_bits >= 0x7f800000 ? 0 : 127 / max;
    return max_bits >= 0x7f800000 ? NAN : is_small ? 0 : max / 127;
}

INLINE __m512i abs_bits(__m512 x) {
    return _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff));
}

INLINE __m512 load_tail(const float *x, int n) {
    return _mm512_maskz_loadu_ps(first(n), x);
}

// Decode: int8 activations, a scale per group of 16.
typedef struct {
    int8_t q[UNIT];
    float scale[GROUPS];
    float sum[GROUPS]; // scale * sum of q
} MatUnit;

static size_t mat_bytes(int n_tokens, int cols) {
    return (size_t)n_tokens * (size_t)n_units(cols) * sizeof(MatUnit);
}

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
            __m512i q = _mm512_cvtps_epi32(_mm512_mul_ps(v, _mm512_set1_ps(inverse)));
            _mm_store_si128((__m128i *)(u->q + g * QUANT_GROUP), _mm512_cvtsepi32_epi8(q));
            u->scale[g] = scale;
            u->sum[g] = scale * (float)_mm512_reduce_add_epi32(q);
        }
    }
}

// Four rows times NT tokens. Per 256 weights of a row about 15 operations to unpack, and per token 4 dot products of 64
// bytes, 4 conversions, 4 spreads of the scales and 5 FMAs: 9 cycles. Four rows far apart give the memory four streams.
INLINE void mat_tile(float *out, size_t out_stride, const Tensor *w, const MatUnit *x, const int *row, int nt,
                     Unpack unpack, int off, bool has_min) {
    enum { AHEAD = 1024 };
    UnitShape shape = unit_shape(w);
    int n = n_units(w->cols);
    __m512 acc[4][2];
    __m512i spread[4];
    uint8_t buffer[MAX_UNIT_BYTES];
    const uint8_t *p[4];
    for (int i = 0; i < 4; i++) {
        const __m512i quarter = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
        spread[i] = _mm512_add_epi32(quarter, _mm512_set1_epi32(4 * i));
        p[i] = (const uint8_t *)w->data + (size_t)row[i] * w->row_bytes;
        for (int t = 0; t < nt; t++) acc[i][t] = _mm512_setzero_ps();
    }
    for (int b = 0; b < n; b++) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            const uint8_t *at = unit_at(p[i], b, &shape, buffer);
            for (int k = 0; k < shape.bytes; k += 64) _mm_prefetch((const char *)at + AHEAD + k, _MM_HINT_T0);
            Unit u = unpack(at, w->type);
            __m512 min = _mm512_mul_ps(u.scale, _mm512_set1_ps((float)off));
            if (has_min) min = off ? _mm512_add_ps(min, u.min) : u.min;
#pragma GCC unroll 2
            for (int t = 0; t < nt; t++) {
                const MatUnit *xu = x + (size_t)t * (size_t)n + b;
                __m512 scale = _mm512_mul_ps(u.scale, _mm512_load_ps(xu->scale));
                __m512 a = _mm512_fnmadd_ps(min, _mm512_load_ps(xu->sum), acc[i][t]);
#pragma GCC unroll 4
                for (int j = 0; j < 4; j++) {
                    __m512i dot =
                        _mm512_dpbusd_epi32(_mm512_setzero_si512(), u.w[j], _mm512_load_si512(xu->q + 64 * j));
                    a = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), _mm512_permutexvar_ps(spread[j], scale), a);
                }
                acc[i][t] = a;
            }
        }
    }
    for (int i = 0; i < 4; i++)
        for (int t = 0; t < nt; t++) out[(size_t)t * out_stride + (size_t)row[i]] = _mm512_reduce_add_ps(acc[i][t]);
}

// The rows are taken from the four quarters of the range.
INLINE void mat_rows(float *out, size_t out_stride, const Tensor *w, const void *encoded, int n_tokens, int row_begin,
                     int row_end, Unpack unpack, int off, bool has_min) {
    int quarter = (row_end - row_begin + 3) / 4;
    size_t n = (size_t)n_units(w->cols);
    for (int r = row_begin; r < row_begin + quarter; r++) {
        int row[4];
        for (int i = 0; i < 4; i++) row[i] = min_int(r + i * quarter, row_end - 1);
        const MatUnit *x = encoded;
        int t = 0;
        for (; t + 2 <= n_tokens; t += 2)
            mat_tile(out + (size_t)t * out_stride, out_stride, w, x + (size_t)t * n, row, 2, unpack, off, has_min);
        if (t < n_tokens)
            mat_tile(out + (size_t)t * out_stride, out_stride, w, x + (size_t)t * n, row, 1, unpack, off, has_min);
    }
}

// Prefill. Activations come in blocks of K_BLOCK columns, for each block the tokens one after another.
enum { K_BLOCK = 512, PANEL_ROWS = 32, TILE_TOKENS = 6 };

typedef struct {
    int8_t q[K_BLOCK];
    float scale[K_BLOCK / 32];
    int32_t start[K_BLOCK / 16]; // -128 * sum of q per group (of 16 or 32): weights are unsigned
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
            __m512i q0 = _mm512_cvtps_epi32(_mm512_mul_ps(v0, _mm512_set1_ps(inverse)));
            __m512i q1 = _mm512_cvtps_epi32(_mm512_mul_ps(v1, _mm512_set1_ps(inverse)));
            _mm_store_si128((__m128i *)(b->q + at), _mm512_cvtsepi32_epi8(q0));
            _mm_store_si128((__m128i *)(b->q + at + 16), _mm512_cvtsepi32_epi8(q1));
            int s0 = _mm512_reduce_add_epi32(q0), s1 = _mm512_reduce_add_epi32(q1);
            if (group == 32) s0 += s1;
            b->scale[at / 32] = scale;
            b->start[at / group] = -128 * s0;
            b->sum[at / group] = scale * (float)s0;
            if (group == 32) continue;
            b->start[at / group + 1] = -128 * s1;
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

// out[i][j] = in[j][i] of 32-bit elements; rows of `in` are in_stride bytes apart, those of out 64.
INLINE void transpose(void *out, size_t out_step, const void *in, size_t in_stride, __mmask16 wanted) {
    __m512i a[16], b[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) a[i] = _mm512_loadu_si512((const char *)in + (size_t)i * in_stride);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        b[2 * i] = _mm512_unpacklo_epi32(a[2 * i], a[2 * i + 1]);
        b[2 * i + 1] = _mm512_unpackhi_epi32(a[2 * i], a[2 * i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        a[4 * i] = _mm512_unpacklo_epi64(b[4 * i], b[4 * i + 2]);
        a[4 * i + 1] = _mm512_unpackhi_epi64(b[4 * i], b[4 * i + 2]);
        a[4 * i + 2] = _mm512_unpacklo_epi64(b[4 * i + 1], b[4 * i + 3]);
        a[4 * i + 3] = _mm512_unpackhi_epi64(b[4 * i + 1], b[4 * i + 3]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        b[i] = _mm512_shuffle_i32x4(a[i], a[4 + i], 0x88);
        b[4 + i] = _mm512_shuffle_i32x4(a[i], a[4 + i], 0xdd);
        b[8 + i] = _mm512_shuffle_i32x4(a[8 + i], a[12 + i], 0x88);
        b[12 + i] = _mm512_shuffle_i32x4(a[8 + i], a[12 + i], 0xdd);
    }
    char *to = out;
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) {
        int from = i % 4 + (i / 4 % 2) * 4;
        // Two calls, not one with a chosen selector: it must be an immediate also where nothing is unrolled.
        __m512i v = i < 8 ? _mm512_shuffle_i32x4(b[from], b[from + 8], 0x88)
                          : _mm512_shuffle_i32x4(b[from], b[from + 8], 0xdd);
        if (wanted >> i & 1) _mm512_store_si512(to, v), to += out_step;
    }
}

// One half of a panel: 16 rows, columns [k, k + nk). About 100 operations per 1024 weights, as much as the dot products
// of ten tokens.
INLINE void panel_half(Panel *panel, int half, const Tensor *w, int row, int row_end, int k, int nk, Unpack unpack,
                       int off, bool has_min, int group) {
    UnitShape shape = unit_shape(w);
    uint8_t q[16][UNIT] __attribute__((aligned(64))), buffer[MAX_UNIT_BYTES];
    float scale[16][GROUPS] __attribute__((aligned(64))), min[16][GROUPS] __attribute__((aligned(64)));
    const __mmask16 wanted = group == 32 ? 0x5555 : 0xffff;
    for (int unit = 0; unit < nk / UNIT; unit++) {
        for (int i = 0; i < 16; i++) {
            const uint8_t *p = (const uint8_t *)w->data + (size_t)min_int(row + i, row_end - 1) * w->row_bytes;
            Unit u = unpack(unit_at(p, k / UNIT + unit, &shape, buffer), w->type);
            for (int j = 0; j < 4; j++)
                _mm512_store_si512(q[i] + 64 * j, _mm512_add_epi8(u.w[j], _mm512_set1_epi8((char)(128 - off))));
            _mm512_store_ps(scale[i], u.scale);
            if (has_min) _mm512_store_ps(min[i], u.min);
        }
        for (int j = 0; j < 4; j++) transpose(panel->w[half] + (unit * 4 + j) * 1024, 64, q[0] + 64 * j, UNIT, 0xffff);
        transpose(panel->scale[half][unit * UNIT / group], 64, scale, sizeof scale[0], wanted);
        if (has_min) transpose(panel->min[half][unit * UNIT / group], 64, min, sizeof min[0], wanted);
    }
}

// 32 rows times NT tokens: 2 NT accumulators of int32, as many of float32. Per 32 columns, for 16 rows and a token: 8
// dot products of 16 x 4 bytes and 3 or 4 operations to scale them (5 or 7 with groups of 16). The panel (16 KiB of
// weights) stays in L1 while the tokens pass; a tile reads 704 bytes per token.
INLINE void gemm_tile(float *out, size_t out_stride, const Panel *panel, const GemmBlock *x, int nk, bool is_first,
                      int n_rows, int nt, int group, bool has_min) {
    __m512 sum[2][TILE_TOKENS];
    const __mmask16 mask[2] = {first(n_rows), first(n_rows - 16)};
#pragma GCC unroll 6
    for (int t = 0; t < nt; t++) {
        sum[0][t] = sum[1][t] = _mm512_setzero_ps();
        _mm_prefetch((const char *)(out + (size_t)t * out_stride), _MM_HINT_T0);
        _mm_prefetch((const char *)(out + (size_t)t * out_stride + 16), _MM_HINT_T0);
    }
    for (int g = 0; g < nk / group; g++) {
        __m512i dot[2][TILE_TOKENS];
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
#pragma GCC unroll 6
            for (int t = 0; t < nt; t++) {
                __m512 d = _mm512_mul_ps(_mm512_cvtepi32_ps(dot[h][t]), scale);
                sum[h][t] = _mm512_fmadd_ps(d, _mm512_set1_ps(x[t].scale[g * group / 32]), sum[h][t]);
                if (has_min) sum[h][t] = _mm512_fnmadd_ps(min, _mm512_set1_ps(x[t].sum[g]), sum[h][t]);
            }
        }
    }
#pragma GCC unroll 6
    for (int t = 0; t < nt; t++)
        for (int h = 0; h < 2; h++) {
            float *to = out + (size_t)t * out_stride + 16 * h;
            if (!is_first) sum[h][t] = _mm512_add_ps(sum[h][t], _mm512_maskz_loadu_ps(mask[h], to));
            _mm512_mask_storeu_ps(to, mask[h], sum[h][t]);
        }
}

// Calls tile(..., number of tokens as a constant) over all tokens.
#define SWEEP(n_tokens, TILE)                                                                                          \
    for (int t = 0; t < (n_tokens); t += TILE_TOKENS) {                                                                \
        switch (min_int((n_tokens)-t, TILE_TOKENS)) {                                                                  \
        case 1: TILE(1); break;                                                                                        \
        case 2: TILE(2); break;                                                                                        \
        case 3: TILE(3); break;                                                                                        \
        case 4: TILE(4); break;                                                                                        \
        case 5: TILE(5); break;                                                                                        \
        default: TILE(6);                                                                                              \
        }                                                                                                              \
    }

typedef void (*Sweep)(float *out, size_t out_stride, const Panel *panel, const GemmBlock *x, int n_tokens, int nk,
                      bool is_first, int n_rows);

#define GEMM_SWEEP(name, group, has_min)                                                                               \
    static void name(float *out, size_t out_stride, const Panel *panel, const GemmBlock *x, int n_tokens, int nk,      \
                     bool is_first, int n_rows) {                                                                      \
        SWEEP(n_tokens, name##_tile)                                                                                   \
    }
#define GEMM_TILE(nt, group, has_min)                                                                                  \
    gemm_tile(out + (size_t)t * out_stride, out_stride, panel, x + t, nk, is_first, n_rows, nt, group, has_min)
#define sweep_32_tile(nt)     GEMM_TILE(nt, 32, false)
#define sweep_32_min_tile(nt) GEMM_TILE(nt, 32, true)
#define sweep_16_tile(nt)     GEMM_TILE(nt, 16, false)
#define sweep_16_min_tile(nt) GEMM_TILE(nt, 16, true)
GEMM_SWEEP(sweep_32, 32, false)
GEMM_SWEEP(sweep_32_min, 32, true)
GEMM_SWEEP(sweep_16, 16, false)
GEMM_SWEEP(sweep_16_min, 16, true)

INLINE void gemm_rows(float *out, size_t out_stride, const Tensor *w, const void *encoded, int n_tokens, int row_begin,
                      int row_end, Unpack unpack, int off, bool has_min, int group) {
    const Sweep sweep = group == 32 ? has_min ? sweep_32_min : sweep_32 : has_min ? sweep_16_min : sweep_16;
    Panel panel;
    for (int row = row_begin; row < row_end; row += PANEL_ROWS) {
        for (int k = 0; k < w->cols; k += K_BLOCK) {
            int nk = min_int(K_BLOCK, n_units(w->cols) * UNIT - k), n_rows = min_int(row_end - row, PANEL_ROWS);
            for (int half = 0; half * 16 < n_rows; half++)
                panel_half(&panel, half, w, row + 16 * half, row_end, k, nk, unpack, off, has_min, group);
            const GemmBlock *x = (const GemmBlock *)encoded + (size_t)(k / K_BLOCK) * (size_t)n_tokens;
            sweep(out + row, out_stride, &panel, x, n_tokens, nk, k == 0, n_rows);
        }
    }
}

#define INTEGER_TYPE(name, off, has_min, group)                                                                        \
    static void mat_##name(float *out, size_t out_stride, const Tensor *w, const void *encoded, int n_tokens,          \
                           int row_begin, int row_end) {                                                               \
        mat_rows(out, out_stride, w, encoded, n_tokens, row_begin, row_end, unpack_##name, off, has_min);              \
    }                                                                                                                  \
    static void gemm_##name(float *out, size_t out_stride, const Tensor *w, const void *encoded, int n_tokens,         \
                            int row_begin, int row_end) {                                                              \
        gemm_rows(out, out_stride, w, encoded, n_tokens, row_begin, row_end, unpack_##name, off, has_min, group);      \
    }
INTEGER_TYPE(q8_0, 128, false, 32)
INTEGER_TYPE(q4_0, 8, false, 32)
INTEGER_TYPE(iq4_nl, 128, false, 32)
INTEGER_TYPE(iq4_xs, 128, false, 32)
INTEGER_TYPE(q4_k, 0, true, 32)
INTEGER_TYPE(q5_k, 0, true, 32)
INTEGER_TYPE(q6_k, 32, false, 16)
INTEGER_TYPE(any, 128, true, 16)

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

static size_t float_bytes(int n_tokens, int cols) {
    return (size_t)n_tokens * (size_t)cols * sizeof(float);
}

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

// 32 columns of out (n_tokens, out_stride) (+)= x (n_tokens, x_stride) times two panels of [nk][16], panel_step floats
// from one k to the next. Per k 2 loads, NT broadcasts and 2 NT FMAs: 12 accumulators for 6 tokens.
INLINE void float_tile(float *out, size_t out_stride, const float *const panel[2], int panel_step, const float *x,
                       size_t x_stride, int nk, bool is_first, int n_rows, int nt) {
    __m512 sum[2][TILE_TOKENS];
    const __mmask16 mask[2] = {first(n_rows), first(n_rows - 16)};
#pragma GCC unroll 6
    for (int t = 0; t < nt; t++)
        for (int h = 0; h < 2; h++)
            sum[h][t] =
                is_first ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(mask[h], out + (size_t)t * out_stride + 16 * h);
    for (int k = 0; k < nk; k++) {
        __m512 w0 = _mm512_load_ps(panel[0] + k * panel_step), w1 = _mm512_load_ps(panel[1] + k * panel_step);
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

static void float_sweep(float *out, size_t out_stride, const float *panel0, const float *panel1, int panel_step,
                        const float *x, size_t x_stride, int n_tokens, int nk, bool is_first, int n_rows) {
    const float *const panel[2] = {panel0, panel1};
#define FLOAT_TILE(nt)                                                                                                 \
    float_tile(out + (size_t)t * out_stride, out_stride, panel, panel_step, x + (size_t)t * x_stride, x_stride, nk,    \
               is_first, n_rows, nt)
    SWEEP(n_tokens, FLOAT_TILE)
#undef FLOAT_TILE
}

enum { FLOAT_K = 128 };

// Panels of 32 rows times 128 columns in float32 (16 KiB, L1), used for all tokens.
INLINE void float_gemm_rows(float *out, size_t out_stride, const Tensor *w, const float *x, int n_tokens, int row_begin,
                            int row_end, Load load) {
    float panel[2][FLOAT_K][16] __attribute__((aligned(64))), rows[16][FLOAT_K] __attribute__((aligned(64)));
    for (int row = row_begin; row < row_end; row += PANEL_ROWS) {
        int n_rows = min_int(row_end - row, PANEL_ROWS);
        for (int k = 0; k < w->cols; k += FLOAT_K) {
            int nk = min_int(FLOAT_K, w->cols - k);
            for (int half = 0; half < 2; half++) {
                for (int i = 0; i < 16; i++) {
                    int r = min_int(row + 16 * half + i, row_end - 1);
                    const char *p = (const char *)w->data + (size_t)r * w->row_bytes;
                    for (int c = 0; c < nk; c += 16) _mm512_store_ps(rows[i] + c, load(p, k + c, first(nk - c)));
                }
                for (int c = 0; c < nk; c += 16) transpose(panel[half][c], 64, rows[0] + c, sizeof rows[0], 0xffff);
            }
            float_sweep(out + row, out_stride, panel[0][0], panel[1][0], 16, x + k, (size_t)w->cols, n_tokens, nk,
                        k == 0, n_rows);
        }
    }
}

#define FLOAT_TYPE(name)                                                                                               \
    static void mat_##name(float *out, size_t out_stride, const Tensor *w, const void *encoded, int n_tokens,          \
                           int row_begin, int row_end) {                                                               \
        float_mat_rows(out, out_stride, w, encoded, n_tokens, row_begin, row_end, load_##name);                        \
    }                                                                                                                  \
    static void gemm_##name(float *out, size_t out_stride, const Tensor *w, const void *encoded, int n_tokens,         \
                            int row_begin, int row_end) {                                                              \
        float_gemm_rows(out, out_stride, w, encoded, n_tokens, row_begin, row_end, load_##name);                       \
    }
FLOAT_TYPE(f32)
FLOAT_TYPE(f16)
FLOAT_TYPE(bf16)

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
            __m512i q0 = _mm512_cvtps_epi32(_mm512_mul_ps(v0, _mm512_set1_ps(inverse)));
            __m512i q1 = _mm512_cvtps_epi32(_mm512_mul_ps(v1, _mm512_set1_ps(inverse)));
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

// Keys in tiles of 32: converted to float32 once for all queries, K transposed to [dim][32 keys], V as it lies. Both
// products are float_tile's. For the 4 queries of a KV head at head_dim 128 about 2600 cycles per 16 KiB of K and V.
static void attend(const AttendPage *a) {
    float scores[ATTEND_MAX_QUERIES][KV_PAGE] __attribute__((aligned(64)));
    float rows[KEY_TILE][MAX_HEAD] __attribute__((aligned(64))), keys[2][MAX_HEAD][16] __attribute__((aligned(64)));
    size_t row_bytes = quant_row_bytes(a->kv_type, (size_t)a->head_dim);
    int n_all = 0, dim = a->head_dim;
    for (int i = 0; i < a->n_q; i++) n_all = a->n_keys[i] > n_all ? a->n_keys[i] : n_all;
    for (int key = 0; key < n_all; key += KEY_TILE) {
        for (int i = 0; i < KEY_TILE; i++)
            load_kv(a->kv_type, (const char *)a->k + (size_t)min_int(key + i, n_all - 1) * row_bytes, rows[i], dim);
        for (int h = 0; h < 2; h++)
            for (int d = 0; d < dim; d += 16) transpose(keys[h][d], 64, rows[16 * h] + d, sizeof rows[0], 0xffff);
        float_sweep(scores[0] + key, KV_PAGE, keys[0][0], keys[1][0], 16, a->q, (size_t)dim, a->n_q, dim, true, 32);
    }
    for (int i = 0; i < a->n_q; i++) soften(scores[i], a->n_keys[i], n_all, a->max + i, a->sum + i);
    if (!n_all) memset(a->acc, 0, (size_t)a->n_q * (size_t)dim * sizeof(float));
    for (int key = 0; key < n_all; key += KEY_TILE) {
        int n = min_int(KEY_TILE, n_all - key);
        for (int i = 0; i < n; i++)
            load_kv(a->kv_type, (const char *)a->v + (size_t)(key + i) * row_bytes, rows[i], dim);
        for (int d = 0; d < dim; d += 32)
            float_sweep(a->acc + d, (size_t)dim, rows[0] + d, rows[0] + d + 16, MAX_HEAD, scores[0] + key, KV_PAGE,
                        a->n_q, n, key == 0, dim - d);
    }
}

#define MAT(name)                                                                                                      \
    { 1, 16, 1, mat_bytes, mat_encode, mat_##name }
#define GEMM(group, name)                                                                                              \
    { 4, PANEL_ROWS, 1, gemm_bytes, gemm_encode_##group, gemm_##name }
#define FLOAT_MAT(name)                                                                                                \
    { 1, 16, 1, float_bytes, float_encode, mat_##name }
#define FLOAT_GEMM(name)                                                                                               \
    { 6, PANEL_ROWS, 1, float_bytes, float_encode, gemm_##name }

const Kernels kernels_avx512 = {
    .name = "avx512",
    .mat = {[TYPE_F32] = FLOAT_MAT(f32),
            [TYPE_F16] = FLOAT_MAT(f16),
            [TYPE_BF16] = FLOAT_MAT(bf16),
            [TYPE_Q8_0] = MAT(q8_0),
            [TYPE_Q4_0] = MAT(q4_0),
            [TYPE_IQ4_NL] = MAT(iq4_nl),
            [TYPE_IQ4_XS] = MAT(iq4_xs),
            [TYPE_Q4_K] = MAT(q4_k),
            [TYPE_Q5_K] = MAT(q5_k),
            [TYPE_Q6_K] = MAT(q6_k),
            [TYPE_Q4_1] = MAT(any),
            [TYPE_Q5_0] = MAT(any),
            [TYPE_Q5_1] = MAT(any),
            [TYPE_Q2_K] = MAT(any),
            [TYPE_Q3_K] = MAT(any),
            [TYPE_IQ2_XXS] = MAT(any)},
    .gemm = {[TYPE_F32] = FLOAT_GEMM(f32),
             [TYPE_F16] = FLOAT_GEMM(f16),
             [TYPE_BF16] = FLOAT_GEMM(bf16),
             [TYPE_Q8_0] = GEMM(32, q8_0),
             [TYPE_Q4_0] = GEMM(32, q4_0),
             [TYPE_IQ4_NL] = GEMM(32, iq4_nl),
             [TYPE_IQ4_XS] = GEMM(32, iq4_xs),
             [TYPE_Q4_K] = GEMM(32, q4_k),
             [TYPE_Q5_K] = GEMM(32, q5_k),
             [TYPE_Q6_K] = GEMM(16, q6_k),
             [TYPE_Q4_1] = GEMM(16, any),
             [TYPE_Q5_0] = GEMM(16, any),
             [TYPE_Q5_1] = GEMM(16, any),
             [TYPE_Q2_K] = GEMM(16, any),
             [TYPE_Q3_K] = GEMM(16, any),
             [TYPE_IQ2_XXS] = GEMM(16, any)},
    .rmsnorm = rmsnorm,
    .swiglu = swiglu,
    .add = add,
    .attend = attend,
    .store = store,
};
