// AVX-512 (F, BW, DQ, VL, VNNI).
//
// Integer types have int8 activations. Decode (mat) reads rows as they lie, by `unpack`. From a few
// tokens on (gemm) 32 rows are turned into a panel first. F32, F16 and BF16 have float32
// activations.
#include "avx512_unpack.h"

#include <math.h>

typedef __m512 Floats;
enum { WIDTH = 16 };
static const float EXP_LOW = -105,
                   EXP_HIGH = 89; // 0 and infinity: times_power knows subnormal numbers

INLINE Floats set_all(float x) { return _mm512_set1_ps(x); }
INLINE Floats multiply_add(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
INLINE Floats multiply_less(Floats a, Floats b, Floats c) { return _mm512_fnmadd_ps(a, b, c); }
INLINE Floats smaller(Floats a, Floats b) { return _mm512_min_ps(a, b); }
INLINE Floats larger(Floats a, Floats b) { return _mm512_max_ps(a, b); }
INLINE Floats nearest(Floats x) {
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
INLINE Floats times_power(Floats x, Floats n) { return _mm512_scalef_ps(x, n); }
INLINE float sum_lanes(Floats v) { return _mm512_reduce_add_ps(v); }
INLINE float most_lanes(Floats v) { return _mm512_reduce_max_ps(v); }
INLINE Floats keep_first(Floats v, int n, Floats other) {
    return _mm512_mask_mov_ps(other, first(n), v);
}
INLINE Floats load_tail(const float *x, int n) { return _mm512_maskz_loadu_ps(first(n), x); }
INLINE void store_tail(float *x, int n, Floats v) { _mm512_mask_storeu_ps(x, first(n), v); }

INLINE Floats load_floats(Type type, const void *row, int k, int n) {
    if (type == TYPE_F32) return load_tail((const float *)row + k, n);
    if (type == TYPE_Q8_0) return bytes_to_floats((const int8_t *)row + k);
    __m256i h = _mm256_maskz_loadu_epi16(first(n), (const uint16_t *)row + k);
    if (type == TYPE_F16) return _mm512_cvtph_ps(h);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

INLINE void store_f16(uint16_t *p, int n, Floats v) {
    _mm256_mask_storeu_epi16(p, first(n), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

INLINE void transpose_block(float *out, int out_step, const float *in, int in_step) {
    transpose(out, (size_t)out_step * 4, in, (size_t)in_step * 4, 16, 1);
}

// The scale of int8 values: max |x| / 127, or NaN (and an inverse of 0) if one is not finite.
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

INLINE __m512i abs_bits(__m512 x) {
    return _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff));
}

// n values, at most n_groups times 16, to int8 with one scale. Also the sum of each group.
INLINE float encode_groups(const float *x, int n, int n_groups, int8_t *q, int *sums) {
    __m512 v[2];
    __m512i bits = _mm512_setzero_si512();
    for (int g = 0; g < n_groups; g++) {
        v[g] = load_tail(x + 16 * g, n - 16 * g);
        bits = _mm512_max_epi32(bits, abs_bits(v[g]));
    }
    float inverse, scale = encode_scale(_mm512_reduce_max_epi32(bits), &inverse);
    for (int g = 0; g < n_groups; g++) {
        __m512i integers = to_integers(v[g], inverse);
        _mm_storeu_si128((__m128i *)q + g, _mm512_cvtsepi32_epi8(integers));
        sums[g] = _mm512_reduce_add_epi32(integers);
    }
    return scale;
}

#include "gemm_float.h"

// A unit has eight sums in float32 for each row and token, one for each 32 columns; each takes its
// part of unit after unit, and at the end they are added in a tree. Few tokens and many, a row as
// it lies and a panel of 32 have the same bits so. The sums stand in the order that `mat_pair`
// leaves.
enum { SUMS = SUPERBLOCK / 32, K_BLOCK = 512, PANEL_ROWS = 32, MAT_TOKENS = 2 };

// The 32 columns of a unit that sum i is of.
INLINE int columns_of(int i) { return 64 * (i % 4) + 32 * (i / 4); }

// A dot product d, below 2^22 in size, is summed on top of BASE_BITS: the bits are then those of
// the float BASE + d and need no conversion. scale * (BASE + d) - scale * BASE is scale * d rounded
// once, because the scales of all types have so few bits (19 at most) that scale * BASE is exact.
enum { BASE_BITS = 0x4b400000 };
static const float BASE = 0x1.8p23f;

// Activations come in blocks of K_BLOCK columns, for each block the tokens one after another. Types
// with groups of 16 have two starts and two sums for 32 columns.
typedef struct {
    int8_t q[K_BLOCK];
    float scale[K_BLOCK / 32];
    int32_t start[2][K_BLOCK / 32]; // BASE_BITS - offset * sum of q: weights are unsigned
    float sum[2][K_BLOCK / 32];     // scale * sum of q
} Block;

// sum + a group's dot product (on top of BASE_BITS) with its scales, less its minimum.
INLINE __m512 add_group(__m512 sum, __m512i dot, __m512 scale, __m512 x_scale, __m512 min,
                        __m512 x_sum, bool has_min) {
    __m512 scale_base = _mm512_mul_ps(scale, _mm512_set1_ps(BASE));
    __m512 d = _mm512_fmsub_ps(_mm512_castsi512_ps(dot), scale, scale_base);
    sum = _mm512_fmadd_ps(d, x_scale, sum);
    return has_min ? _mm512_fnmadd_ps(min, x_sum, sum) : sum;
}

// {a0 + a1, a2 + a3, b0 + b1, b2 + b3} of each 128 bits; in fewer steps if int16 holds a and b.
INLINE __m512i add_neighbours(__m512i a, __m512i b, bool is_small) {
    if (is_small) return _mm512_madd_epi16(_mm512_packs_epi32(a, b), _mm512_set1_epi16(1));
    __m512 x = _mm512_castsi512_ps(a), y = _mm512_castsi512_ps(b);
    return _mm512_add_epi32(_mm512_castps_si512(_mm512_shuffle_ps(x, y, 0x88)),
                            _mm512_castps_si512(_mm512_shuffle_ps(x, y, 0xdd)));
}

// The dot products of groups of 16: lane 4 i + j is that of columns [64 j + 16 i, + 16).
INLINE __m512i dots_of_16(const Unit *u, const int8_t *q, Type type) {
    const int most = 127 * 4 * type_info(type)->max_q; // of four products
    __m512i d[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++)
        d[j] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), u->w[j], _mm512_load_si512(q + 64 * j));
    return add_neighbours(add_neighbours(d[0], d[1], most < 32768),
                          add_neighbours(d[2], d[3], most < 32768), 2 * most < 32768);
}

// Eight values of a block, for each of two rows.
INLINE __m512 for_both(const void *x) { return _mm512_broadcast_f32x8(_mm256_load_ps(x)); }

// Of groups of 16, those at `lanes` of two rows.
INLINE __m512 of_both(__m512 a, __m512i lanes, __m512 b) {
    return _mm512_permutex2var_ps(a, lanes, b);
}

// 256 columns of two rows, a half of a register each, times NT tokens (blocks `apart` from each
// other). Per row about 15 operations to unpack, and per token 4 dot products of 64 bytes and 10 to
// 14 operations to bring them into lanes and to scale them.
INLINE void mat_pair(__m512 acc[MAT_TOKENS], const uint8_t *a, const uint8_t *b, const Block *x,
                     int unit, int nt, Type type) {
    const TypeInfo *f = type_info(type);
    const __m512i first_16 =
        _mm512_setr_epi32(0, 4, 8, 12, 2, 6, 10, 14, 16, 20, 24, 28, 18, 22, 26, 30);
    const __m512i second_16 = _mm512_add_epi32(first_16, _mm512_set1_epi32(1));
    Unit u = unpack(type, a), v = unpack(type, b);
    __m512 min = u.scale, scale = of_both(u.scale, first_16, v.scale);
    if (f->has_min) min = of_both(u.min, first_16, v.min);
#pragma GCC unroll 2
    for (int t = 0; t < nt; t++) {
        const int8_t *q = x[t].q + unit * SUPERBLOCK;
        const int at = unit * SUMS;
        __m512i p = dots_of_16(&u, q, type), r = dots_of_16(&v, q, type);
        __m512i dot = _mm512_shuffle_i32x4(p, r, 0x88), second = _mm512_shuffle_i32x4(p, r, 0xdd);
        __m512 x_scale = for_both(x[t].scale + at);
        if (f->group == 32) dot = _mm512_add_epi32(dot, second);
        dot = _mm512_add_epi32(dot, _mm512_castps_si512(for_both(x[t].start[0] + at)));
        acc[t] =
            add_group(acc[t], dot, scale, x_scale, min, for_both(x[t].sum[0] + at), f->has_min);
        if (f->group == 32) continue;
        second = _mm512_add_epi32(second, _mm512_castps_si512(for_both(x[t].start[1] + at)));
        acc[t] = add_group(acc[t], second, of_both(u.scale, second_16, v.scale), x_scale,
                           f->has_min ? of_both(u.min, second_16, v.min) : min,
                           for_both(x[t].sum[1] + at), f->has_min);
    }
}

// The sums of the lower half, or the upper.
INLINE float add_sums(__m512 acc, int half) {
    float s[16];
    _mm512_storeu_ps(s, acc);
    const float *h = s + half * SUMS;
    return ((h[0] + h[4]) + (h[2] + h[6])) + ((h[1] + h[5]) + (h[3] + h[7]));
}

// Four rows times NT tokens. Rows far apart give the memory four streams.
INLINE void integer_mat_tile(float *out, size_t out_stride, const Tensor *w, const Block *x,
                             int n_tokens, const int *row, int nt, Type type) {
    const int bytes = superblock_bytes(type);
    __m512 acc[2][MAT_TOKENS];
    const uint8_t *p[4];
    uint8_t buffers[4][MAX_SUPERBLOCK_BYTES];
    for (int i = 0; i < 4; i++) p[i] = (const uint8_t *)w->data + (size_t)row[i] * w->row_bytes;
    for (int t = 0; t < nt; t++) acc[0][t] = acc[1][t] = _mm512_setzero_ps();
    for (int k = 0; k < w->cols; k += SUPERBLOCK) {
        const int unit = k % K_BLOCK / SUPERBLOCK;
        if (type_info(type)->block < SUPERBLOCK && w->cols - k < SUPERBLOCK)
            for (int i = 0; i < 4; i++)
                p[i] = padded_superblock(type, p[i], w->cols - k, buffers[i]);
        mat_pair(acc[0], p[0], p[1], x, unit, nt, type);
        mat_pair(acc[1], p[2], p[3], x, unit, nt, type);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
#pragma GCC unroll 8
            for (int b = 0; b < bytes; b += 64)
                _mm_prefetch((const char *)p[i] + PREFETCH_DISTANCE + b, _MM_HINT_T0);
            p[i] += bytes;
        }
        x += unit ? n_tokens : 0;
    }
    for (int i = 0; i < 4; i++)
        for (int t = 0; t < nt; t++)
            out[(size_t)t * out_stride + (size_t)row[i]] = add_sums(acc[i / 2][t], i % 2);
}

// Four rows times NT tokens in float32. Per 16 weights a load (with conversion 2 to 3 operations)
// and an FMA per token.
INLINE void float_mat_tile(float *out, size_t out_stride, const Tensor *w, const float *x,
                           const int *row, int nt, Type type) {
    int n = w->cols, bytes = type_info(type)->bytes;
    __m512 acc[4][2];
    const char *p[4];
    for (int i = 0; i < 4; i++) {
        p[i] = (const char *)w->data + (size_t)row[i] * w->row_bytes;
        for (int t = 0; t < nt; t++) acc[i][t] = _mm512_setzero_ps();
    }
    for (int k = 0; k < n; k += 32) {
        __m512 x0[2], x1[2];
        for (int t = 0; t < nt; t++) {
            x0[t] = load_tail(x + (size_t)t * (size_t)n + k, n - k);
            x1[t] = load_tail(x + (size_t)t * (size_t)n + k + 16, n - k - 16);
        }
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            for (int a = 0; a < 32 * bytes; a += 64)
                _mm_prefetch(p[i] + k * bytes + PREFETCH_DISTANCE + a, _MM_HINT_T0);
            __m512 w0 = load_floats(type, p[i], k, n - k),
                   w1 = load_floats(type, p[i], k + 16, n - k - 16);
            for (int t = 0; t < nt; t++) acc[i][t] = _mm512_fmadd_ps(w0, x0[t], acc[i][t]);
            for (int t = 0; t < nt; t++) acc[i][t] = _mm512_fmadd_ps(w1, x1[t], acc[i][t]);
        }
    }
    for (int i = 0; i < 4; i++)
        for (int t = 0; t < nt; t++)
            out[(size_t)t * out_stride + (size_t)row[i]] = _mm512_reduce_add_ps(acc[i][t]);
}

// Tokens from t on.
INLINE void mat_tile(float *out, size_t out_stride, const Tensor *w, const void *encoded,
                     int n_tokens, int t, const int *row, int nt, Type type) {
    out += (size_t)t * out_stride;
    if (type_info(type)->group)
        integer_mat_tile(out, out_stride, w, (const Block *)encoded + t, n_tokens, row, nt, type);
    else
        float_mat_tile(out, out_stride, w, (const float *)encoded + (size_t)t * (size_t)w->cols,
                       row, nt, type);
}

// The rows are taken from the four quarters of the range.
INLINE void mat_rows(float *out, size_t out_stride, const Tensor *w, const void *encoded,
                     int n_tokens, int row_begin, int row_end, Type type) {
    int quarter = (row_end - row_begin + 3) / 4;
    for (int r = row_begin; r < row_begin + quarter; r++) {
        int row[4], t = 0;
        for (int i = 0; i < 4; i++) row[i] = min_int(r + i * quarter, row_end - 1);
        for (; t + 2 <= n_tokens; t += 2)
            mat_tile(out, out_stride, w, encoded, n_tokens, t, row, 2, type);
        if (t < n_tokens) mat_tile(out, out_stride, w, encoded, n_tokens, t, row, 1, type);
    }
}

// 32 rows of K_BLOCK columns: for each half, [k / 4][16 rows][4] as u and [group][16 rows] as scale
// and min.
typedef struct {
    uint8_t w[2][K_BLOCK * 16];
    float scale[2][K_BLOCK / 16][16], min[2][K_BLOCK / 16][16];
} __attribute__((aligned(64))) Panel;

static size_t block_bytes(int n_tokens, int cols) {
    return (size_t)n_tokens * (size_t)((cols + K_BLOCK - 1) / K_BLOCK) * sizeof(Block);
}

INLINE void encode_blocks(void *encoded, const float *x, int n_tokens, int cols, int token_begin,
                          int token_end, Type type) {
    const int group = type_info(type)->group, offset = type_info(type)->zero_point;
    for (int t = token_begin; t < token_end; t++) {
        const float *row = x + (size_t)t * (size_t)cols;
        for (int k = 0; k < n_superblocks(cols) * SUPERBLOCK; k += 32) {
            Block *b = (Block *)encoded + (size_t)(k / K_BLOCK) * (size_t)n_tokens + t;
            int at = k % K_BLOCK / SUPERBLOCK * SUMS + k % 64 / 32 * 4 + k % SUPERBLOCK / 64;
            int sums[2];
            b->scale[at] = encode_groups(row + k, cols - k, 2, b->q + k % K_BLOCK, sums);
            if (group == 32) sums[0] += sums[1];
            for (int i = 0; i < 2; i++) {
                b->start[i][at] = BASE_BITS - offset * sums[i];
                b->sum[i][at] = b->scale[at] * (float)sums[i];
            }
        }
    }
}

// A unit of 16 rows on its way into a panel. What lies ahead is fetched meanwhile, n_ahead lines
// with every 32 columns.
typedef struct {
    const void *p[16];
    __m512i apart; // bytes from the first row to each
    uint8_t *out;
    float (*scale)[16], (*min)[16];
    Prefetch *ahead;
    int n_ahead;
} PanelUnit;

// The dword at `offset` of each row.
INLINE __m512i gather(const PanelUnit *u, int offset) {
    return _mm512_i32gather_epi32(u->apart, (const char *)u->p[0] + offset, 1);
}

// Types of 32 begin with d, and perhaps m.
INLINE void panel_block_scales(const PanelUnit *u, Type type) {
    for (int b = 0; b < SUPERBLOCK / 32; b++) {
        __m512i d = gather(u, b * type_info(type)->bytes);
        _mm512_store_ps(u->scale[b], low_f16(d));
        if (type_info(type)->has_min)
            _mm512_store_ps(u->min[b], _mm512_sub_ps(_mm512_setzero_ps(), high_f16(d)));
    }
}

INLINE void panel_iq4_xs_scales(const PanelUnit *u) {
    __m512i r[4];
    transpose_16(r, u->p, 0); // d and scales_h, scales_l
#pragma GCC unroll 8
    for (int g = 0; g < SUPERBLOCK / 32; g++) {
        __m512i s =
            _mm512_or_si512(bits(r[1], 4 * g, 4), _mm512_slli_epi32(bits(r[0], 16 + 2 * g, 2), 4));
        _mm512_store_ps(u->scale[g], _mm512_mul_ps(_mm512_cvtepi32_ps(less_32(s)), low_f16(r[0])));
    }
}

// Nibbles: transposed as they lie, then split.
INLINE void panel_nibbles(const PanelUnit *u, Type type) {
    const TypeInfo *f = type_info(type);
    const __m512i low = _mm512_set1_epi8(15);
    const int step = f->block == 32 ? f->bytes : 16, high = type == TYPE_Q4_K ? 32 : 16;
    if (type == TYPE_Q4_K) k_scales_16(u->scale, u->min, u->p);
    if (type == TYPE_IQ4_XS) panel_iq4_xs_scales(u);
    if (f->block == 32) panel_block_scales(u, type);
    for (int c = 0; c < SUPERBLOCK / 32; c++) {
        __m512i r[4];
        uint8_t *to = u->out + (high == 16 ? 32 * c : 64 * (c / 2) + 16 * (c % 2)) * 16;
        prefetch_lines(u->ahead, u->n_ahead);
        transpose_16(r, u->p, (size_t)(f->nibble_offset + c * step));
#pragma GCC unroll 4
        for (int d = 0; d < 4; d++) {
            __m512i v0 = _mm512_and_si512(r[d], low),
                    v1 = _mm512_and_si512(_mm512_srli_epi16(r[d], 4), low);
            _mm512_store_si512(to + 64 * d, f->zero_point == 128 ? iq4_plus_128(v0) : v0);
            _mm512_store_si512(to + 64 * d + high * 16,
                               f->zero_point == 128 ? iq4_plus_128(v1) : v1);
        }
    }
}

INLINE void panel_q8_0(const PanelUnit *u) {
    panel_block_scales(u, TYPE_Q8_0);
    for (int c = 0; c < SUPERBLOCK / 16; c++) {
        __m512i r[4];
        if (c % 2) prefetch_lines(u->ahead, u->n_ahead);
        transpose_16(r, u->p, (size_t)(c / 2 * (int)sizeof(BlockQ8_0) + 2 + c % 2 * 16));
#pragma GCC unroll 4
        for (int d = 0; d < 4; d++)
            _mm512_store_si512(u->out + (16 * c + 4 * d) * 16,
                               _mm512_xor_si512(r[d], _mm512_set1_epi8((char)128)));
    }
}

// Q6_K: both parts transposed as they lie, then joined.
INLINE void panel_q6_k(const PanelUnit *u) {
    const __m512i low = _mm512_set1_epi8(15), six = _mm512_set1_epi8(63);
    __m512 factor = high_f16(gather(u, offsetof(BlockQ6_K, d) - 2)); // the last of the block
    __m512i s[4];
    transpose_16(s, u->p, offsetof(BlockQ6_K, scales));
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) {
        __m512i one =
            _mm512_srai_epi32(_mm512_slli_epi32(s[i / 4], (unsigned)(24 - 8 * (i % 4))), 24);
        _mm512_store_ps(u->scale[i], _mm512_mul_ps(_mm512_cvtepi32_ps(one), factor));
    }
    for (int i = 0; i < 4; i++) {
        int from = 64 * (i / 2) + 16 * (i % 2);
        __m512i q[4], v[4];
        prefetch_lines(u->ahead, 2 * u->n_ahead);
        transpose_16(q, u->p, (size_t)(128 + 32 * (i / 2) + 16 * (i % 2)));
#pragma GCC unroll 2
        for (int c = 0; c < 2; c++) { // columns 2 from + 32 c, and 64 further
            uint8_t *to = u->out + (128 * (i / 2) + 16 * (i % 2) + 32 * c) * 16;
            transpose_16(v, u->p, (size_t)(from + 32 * c));
#pragma GCC unroll 4
            for (int d = 0; d < 4; d++) {
                __m512i q0 = _mm512_slli_epi16(q[d], c ? 2 : 4),
                        q1 = c ? _mm512_srli_epi16(q[d], 2) : q[d];
                __m512i a = either(low, v[d], q0), b = either(low, _mm512_srli_epi16(v[d], 4), q1);
                _mm512_store_si512(to + 64 * d, _mm512_and_si512(a, six));
                _mm512_store_si512(to + 64 * d + 64 * 16, _mm512_and_si512(b, six));
            }
        }
    }
}

// Any type, row by row.
INLINE void panel_by_row(const PanelUnit *l, Type type) {
    uint8_t q[16][SUPERBLOCK] __attribute__((aligned(64)));
    float scale[16][GROUPS] __attribute__((aligned(64))),
        min[16][GROUPS] __attribute__((aligned(64)));
    const TypeInfo *f = type_info(type);
    for (int i = 0; i < 16; i++) {
        if (i % 2) prefetch_lines(l->ahead, l->n_ahead);
        Unit u = unpack(type, l->p[i]);
        _mm512_store_ps(scale[i], u.scale);
        if (f->has_min) _mm512_store_ps(min[i], u.min);
        for (int j = 0; j < 4; j++) _mm512_store_si512(q[i] + 64 * j, u.w[j]);
    }
    transpose(l->out, 64, q, sizeof q[0], SUPERBLOCK / 4, 1);
    transpose(l->scale, 64, scale, sizeof scale[0], GROUPS, f->group / 16);
    if (f->has_min) transpose(l->min, 64, min, sizeof min[0], GROUPS, f->group / 16);
}

// One half of a panel: 16 rows, columns [k, k + nk).
INLINE void panel_half(Panel *panel, int half, const Tensor *w, int row, int row_end, int k, int nk,
                       Prefetch *ahead, int n_ahead, Type type) {
    const int group = type_info(type)->group;
    uint8_t buffers[16][MAX_SUPERBLOCK_BYTES];
    PanelUnit u = {.ahead = ahead, .n_ahead = n_ahead};
    int32_t apart[16];
    for (int i = 0; i < 16; i++) apart[i] = min_int(i, row_end - 1 - row) * (int)w->row_bytes;
    const uint8_t *first_row = (const uint8_t *)w->data + (size_t)row * w->row_bytes;
    for (int c = 0; c < nk; c += SUPERBLOCK) {
        size_t at = (size_t)((k + c) / SUPERBLOCK) * (size_t)superblock_bytes(type);
        bool is_short = type_info(type)->block < SUPERBLOCK && w->cols - k - c < SUPERBLOCK;
        for (int i = 0; i < 16; i++) {
            u.p[i] =
                padded_superblock(type, first_row + at + apart[i], w->cols - k - c, buffers[i]);
            if (is_short) apart[i] = i * MAX_SUPERBLOCK_BYTES; // the row's last unit
        }
        u.apart = _mm512_loadu_si512(apart);
        u.out = panel->w[half] + c * 16;
        u.scale = panel->scale[half] + c / group;
        u.min = panel->min[half] + c / group;
        if (type == TYPE_Q6_K)
            panel_q6_k(&u);
        else if (type == TYPE_Q8_0)
            panel_q8_0(&u);
        else if (type_info(type)->nibble_offset)
            panel_nibbles(&u, type);
        else
            panel_by_row(&u, type);
    }
}

// sum += x times 32 rows, one group of columns from k on: 2 NT accumulators of int32, as many of
// float32. Per 32 columns, for 16 rows and a token: 8 dot products of 16 x 4 bytes and 2 or 3
// operations to scale them (4 or 6 with groups of 16). `at` and h: where x has its values.
INLINE void gemm_group(__m512 sum[2][TILE_TOKENS], const Panel *panel, const Block *x, int k,
                       int at, int h, int nt, int group, bool has_min) {
    __m512i dot[2][TILE_TOKENS];
#pragma GCC unroll 6
    for (int t = 0; t < nt; t++) dot[0][t] = dot[1][t] = _mm512_set1_epi32(x[t].start[h][at]);
#pragma GCC unroll 8
    for (int c = k; c < k + group; c += 4) {
        __m512i w0 = _mm512_load_si512(panel->w[0] + c * 16),
                w1 = _mm512_load_si512(panel->w[1] + c * 16);
#pragma GCC unroll 6
        for (int t = 0; t < nt; t++) {
            int32_t four;
            memcpy(&four, x[t].q + c, 4);
            __m512i v = _mm512_set1_epi32(four);
            dot[0][t] = _mm512_dpbusd_epi32(dot[0][t], w0, v);
            dot[1][t] = _mm512_dpbusd_epi32(dot[1][t], w1, v);
        }
    }
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        __m512 scale = _mm512_load_ps(panel->scale[i][k / group]),
               min = _mm512_load_ps(panel->min[i][k / group]);
#pragma GCC unroll 6
        for (int t = 0; t < nt; t++)
            sum[i][t] = add_group(sum[i][t], dot[i][t], scale, _mm512_set1_ps(x[t].scale[at]), min,
                                  _mm512_set1_ps(x[t].sum[h][at]), has_min);
    }
}

// sums (nt, n_sums, PANEL_ROWS) (+)= x times 32 rows of weights, in SUMS sums or in one. The panel
// (16 KiB of weights) stays in L1 while tokens pass; a tile reads 832 bytes per token, and its
// sums.
INLINE void gemm_tile(float *sums, const Panel *panel, const Block *x, int nk, bool is_first,
                      Prefetch *ahead, int n_ahead, int nt, int group, bool has_min, int n_sums) {
    __m512 sum[2][TILE_TOKENS];
    for (int i = 0; i < SUMS; i++) {
        float *to = sums + i % n_sums * PANEL_ROWS;
        if (i < n_sums) {
#pragma GCC unroll 6
            for (int t = 0; t < nt; t++)
                for (int h = 0; h < 2; h++)
                    sum[h][t] = is_first ? _mm512_setzero_ps()
                                         : _mm512_load_ps(to + t * n_sums * PANEL_ROWS + 16 * h);
        }
        for (int unit = 0; unit < nk / SUPERBLOCK; unit++) {
            int column = unit * SUPERBLOCK + columns_of(i), at = unit * SUMS + i;
            prefetch_lines(ahead, n_ahead);
            gemm_group(sum, panel, x, column, at, 0, nt, group, has_min);
            if (group == 32) continue;
            prefetch_lines(ahead, n_ahead);
            gemm_group(sum, panel, x, column + 16, at, 1, nt, group, has_min);
        }
        if (i < SUMS - n_sums) continue;
#pragma GCC unroll 6
        for (int t = 0; t < nt; t++)
            for (int h = 0; h < 2; h++)
                _mm512_store_ps(to + t * n_sums * PANEL_ROWS + 16 * h, sum[h][t]);
    }
}

typedef void (*Sweep)(float *sums, const Panel *panel, const Block *x, int n_tokens, int nk,
                      bool is_first, Prefetch *ahead, int n_ahead);

#define GEMM_TILE(nt, group, has_min, n_sums)                                                      \
    gemm_tile(sums + t * n_sums * PANEL_ROWS, panel, x + t, nk, is_first, ahead, n_ahead, nt,      \
              group, has_min, n_sums)
#define GEMM_SWEEP(name, ...)                                                                      \
    static void name(float *sums, const Panel *panel, const Block *x, int n_tokens, int nk,        \
                     bool is_first, Prefetch *ahead, int n_ahead) {                                \
        SWEEP(n_tokens, GEMM_TILE, __VA_ARGS__)                                                    \
    }
GEMM_SWEEP(sweep_32, 32, false, SUMS)
GEMM_SWEEP(sweep_32_min, 32, true, SUMS)
GEMM_SWEEP(sweep_16, 16, false, SUMS)
GEMM_SWEEP(sweep_16_min, 16, true, SUMS)
GEMM_SWEEP(sweep_32_one, 32, false, 1)
GEMM_SWEEP(sweep_32_min_one, 32, true, 1)
GEMM_SWEEP(sweep_16_one, 16, false, 1)
GEMM_SWEEP(sweep_16_min_one, 16, true, 1)

static const Sweep sweeps[2][2][2] = { // group of 32, with minima, one sum
    {{sweep_16, sweep_16_one}, {sweep_16_min, sweep_16_min_one}},
    {{sweep_32, sweep_32_one}, {sweep_32_min, sweep_32_min_one}}};

typedef struct {
    float sums[CHUNK_ROWS / PANEL_ROWS][TOKEN_BLOCK * 2 * PANEL_ROWS];
    Panel panels[CHUNK_ROWS / PANEL_ROWS];
} GemmMemory;

_Static_assert(sizeof(GemmMemory) <= KERNEL_SCRATCH, "fits");

// n_rows of a panel's sums to out (n_tokens, out_stride); eight of them in add_sums' order.
static void write_panel(float *out, size_t out_stride, const float *sums, int n_tokens, int n_rows,
                        int n_sums) {
    for (int t = 0; t < n_tokens; t++, sums += n_sums * PANEL_ROWS)
        for (int r = 0; r < n_rows; r += 16) {
            __m512 s[SUMS];
            for (int i = 0; i < n_sums; i++) s[i] = _mm512_load_ps(sums + i * PANEL_ROWS + r);
            if (n_sums > 1)
                s[0] = ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
            store_tail(out + (size_t)t * out_stride + r, n_rows - r, s[0]);
        }
}

// 64 rows times 512 tokens at a time (128 with eight sums); their sums (128 or 256 KiB) and two
// panels stay in L2. Activations come from L3 once for the 64 rows, SWEEP_TOKENS at a time. With so
// few tokens that they stay in L2, one panel at a time stays in L1.
INLINE void gemm_rows(float *out, size_t out_stride, const Tensor *w, const void *encoded,
                      int n_tokens, int row_begin, int row_end, int n_sums, Type type) {
    const TypeInfo *f = type_info(type);
    const Sweep sweep = sweeps[f->group == 32][f->has_min][n_sums == 1];
    GemmMemory *m = team_scratch();
    const int chunk = n_tokens > SWEEP_TOKENS ? CHUNK_ROWS : PANEL_ROWS,
              block = n_sums == 1 ? TOKEN_BLOCK : TOKEN_BLOCK / 4, per_token = n_sums * PANEL_ROWS;
    for (int row = row_begin; row < row_end; row += chunk)
        for (int first_token = 0; first_token < n_tokens; first_token += block) {
            int n_rows = min_int(row_end - row, chunk), n = min_int(n_tokens - first_token, block);
            for (int k = 0; k < w->cols; k += K_BLOCK) {
                int nk = min_int(K_BLOCK, n_superblocks(w->cols) * SUPERBLOCK - k);
                const Block *x =
                    (const Block *)encoded + (size_t)(k / K_BLOCK) * (size_t)n_tokens + first_token;
                Prefetch ahead = prefetch_next_quarters(w, row, chunk, k, nk);
                // Evenly over 32 columns of 16 rows unpacked, and the groups of columns of a tile.
                int n_tiles = chunk / PANEL_ROWS * ((n + TILE_TOKENS - 1) / TILE_TOKENS);
                int n_steps = n_tiles * nk / f->group + chunk / 16 * nk / 32;
                int n_ahead = (ahead.n_lines + n_steps - 1) / n_steps;
                for (int r = 0; r < n_rows; r += 16)
                    panel_half(&m->panels[r / PANEL_ROWS], r / 16 % 2, w, row + r, row_end, k, nk,
                               &ahead, n_ahead, type);
                for (int t = 0; t < n; t += SWEEP_TOKENS)
                    for (int r = 0; r < n_rows; r += PANEL_ROWS)
                        sweep(m->sums[r / PANEL_ROWS] + t * per_token, &m->panels[r / PANEL_ROWS],
                              x + t, min_int(n - t, SWEEP_TOKENS), nk, k == 0, &ahead, n_ahead);
            }
            for (int r = 0; r < n_rows; r += PANEL_ROWS)
                write_panel(out + (size_t)first_token * out_stride + row + r, out_stride,
                            m->sums[r / PANEL_ROWS], n, min_int(n_rows - r, PANEL_ROWS), n_sums);
        }
}

#define INTEGER_TYPE(type, name)                                                                   \
    static void encode_##name(void *encoded, const float *x, int n_tokens, int cols, int begin,    \
                              int end) {                                                           \
        encode_blocks(encoded, x, n_tokens, cols, begin, end, TYPE_##type);                        \
    }                                                                                              \
    ROWS(mat_##name, mat_rows, TYPE_##type)                                                        \
    static void panels_##name(float *out, size_t out_stride, const Tensor *w, const void *encoded, \
                              int n_tokens, int row_begin, int row_end, int n_sums) {              \
        gemm_rows(out, out_stride, w, encoded, n_tokens, row_begin, row_end, n_sums, TYPE_##type); \
    }                                                                                              \
    ROWS(gemm_##name, panels_##name, SUMS)                                                         \
    ROWS(many_##name, panels_##name, 1)
#define FLOAT_TYPE(type, name)                                                                     \
    ROWS(mat_##name, mat_rows, TYPE_##type)                                                        \
    ROWS(gemm_##name, float_gemm_rows, TYPE_##type)
EACH_QUANTIZED_TYPE(INTEGER_TYPE)
FLOAT_TYPES(FLOAT_TYPE)

// Few queries over float16: keys and values stay so. For the 4 queries of a KV head at head_dim 128
// a page takes 7 microseconds in L2 and 9 to 11 from memory.
static bool stays_f16(const AttentionPage *a) {
    return a->kv_type == TYPE_F16 && a->head_dim % KEY_TILE == 0 && a->n_q <= 2 * TILE_TOKENS;
}

// 16 keys of float16 from `key` on, transposed to [head_dim][KEY_TILE].
INLINE void transpose_f16(uint16_t *out, const void *const row[16], int n, Prefetch *ahead) {
    const __m512i even =
        _mm512_set_epi16(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1, 30, 28, 26, 24,
                         22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    for (int i = 0; i < n; i += 8) {
        __m512i r[4];
        if (i % 16 == 0) prefetch_lines(ahead, 4);
        transpose_16(r, row, (size_t)i * 2);
        for (int d = 0; d < 4; d++) {
            __m512i pair = _mm512_permutexvar_epi16(even, r[d]);
            _mm256_store_si256((void *)(out + (i + 2 * d) * KEY_TILE),
                               _mm512_castsi512_si256(pair));
            _mm256_store_si256((void *)(out + (i + 2 * d + 1) * KEY_TILE),
                               _mm512_extracti64x4_epi64(pair, 1));
        }
    }
}

// Keys of Q8_0 meet queries of 16 bits, high and low, with a scale for 32. Both lie as in the
// cache, with zeros for its scales, so that whole rows are multiplied.
typedef struct {
    BlockQ8_0 high[MAX_HEAD_DIM / 32], low[MAX_HEAD_DIM / 32];
    float scale[MAX_HEAD_DIM / 32];
    int32_t start[MAX_HEAD_DIM / 32]; // -128 * sum: keys are made unsigned
} QueryBytes;

typedef struct {
    AttendMemory m;
    QueryBytes queries[ATTEND_MAX_QUERIES];
} BytesMemory;

_Static_assert(sizeof(BytesMemory) <= KERNEL_SCRATCH, "fits");

static bool stays_bytes(const AttentionPage *a) {
    return a->kv_type == TYPE_Q8_0 && a->head_dim % 64 == 0;
}

// x = scale * (256 high + low) within scale / 2.
static void split_query(QueryBytes *out, const float *x, int n) {
    for (int b = 0; b < n / 32; b++) {
        __m512 v[2] = {_mm512_loadu_ps(x + 32 * b), _mm512_loadu_ps(x + 32 * b + 16)};
        __m512i sum = _mm512_setzero_si512();
        float inverse, scale = encode_scale(_mm512_reduce_max_epi32(
                                                _mm512_max_epi32(abs_bits(v[0]), abs_bits(v[1]))),
                                            &inverse);
        for (int h = 0; h < 2; h++) {
            __m512i q = to_integers(v[h], inverse * 256);
            __m512i high = _mm512_srai_epi32(_mm512_add_epi32(q, _mm512_set1_epi32(128)), 8);
            __m128i low = _mm512_cvtepi32_epi8(q); // what is left, -128 to 127
            _mm_storeu_si128((void *)(out->high[b].qs + 16 * h), _mm512_cvtepi32_epi8(high));
            _mm_storeu_si128((void *)(out->low[b].qs + 16 * h), low);
            sum = _mm512_add_epi32(sum, q);
        }
        out->high[b].d = out->low[b].d = 0;
        out->scale[b] = scale / 256;
        out->start[b] = -128 * _mm512_reduce_add_epi32(sum);
    }
}

// scores (nt, KV_PAGE) of 16 keys, transposed as they lie: [dword][16]. 64 columns are 17 dwords
// with their scales. Per dword 16 products of 4 bytes for each half of a query.
INLINE void bytes_tile(float *scores, const __m512i *keys, const QueryBytes *x, int dim, int nt) {
    __m512 score[TILE_TOKENS];
#pragma GCC unroll 6
    for (int t = 0; t < nt; t++) score[t] = _mm512_setzero_ps();
    for (int b = 0; b < dim / 32; b++) {
        const int begin = b / 2 * 17 + b % 2 * 9, end = b / 2 * 17 + 9 + b % 2 * 8;
        __m512 scale = b % 2 ? high_f16(keys[begin - 1]) : low_f16(keys[begin]);
        __m512i high[TILE_TOKENS], low[TILE_TOKENS];
#pragma GCC unroll 6
        for (int t = 0; t < nt; t++)
            high[t] = _mm512_setzero_si512(), low[t] = _mm512_set1_epi32(x[t].start[b]);
        for (int i = begin; i < end; i++) {
            __m512i w = _mm512_xor_si512(keys[i], _mm512_set1_epi8((char)128));
#pragma GCC unroll 6
            for (int t = 0; t < nt; t++) {
                int32_t of_high, of_low;
                memcpy(&of_high, (const char *)x[t].high + 4 * i, 4);
                memcpy(&of_low, (const char *)x[t].low + 4 * i, 4);
                high[t] = _mm512_dpbusd_epi32(high[t], w, _mm512_set1_epi32(of_high));
                low[t] = _mm512_dpbusd_epi32(low[t], w, _mm512_set1_epi32(of_low));
            }
        }
#pragma GCC unroll 6
        for (int t = 0; t < nt; t++) {
            __m512i dot = _mm512_add_epi32(_mm512_slli_epi32(high[t], 8), low[t]);
            score[t] = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(dot), scale),
                                       _mm512_set1_ps(x[t].scale[b]), score[t]);
        }
    }
#pragma GCC unroll 6
    for (int t = 0; t < nt; t++) _mm512_storeu_ps(scores + t * KV_PAGE, score[t]);
}

#define BYTES_TILE(nt, scores)                                                                     \
    bytes_tile((scores) + t * KV_PAGE, keys, queries + t, a->head_dim, nt)

static void bytes_score_tile(AttendMemory *m, const AttentionPage *a, int key, int n,
                             Prefetch *ahead) {
    QueryBytes *queries = ((BytesMemory *)m)->queries;
    __m512i *keys = (__m512i *)m->keys;
    const int row_bytes = (int)quant_row_bytes(TYPE_Q8_0, (size_t)a->head_dim);
    for (int i = 0; key == 0 && i < a->n_q; i++)
        split_query(queries + i, a->q + i * a->head_dim, a->head_dim);
    for (int h = 0; h < KEY_TILE; h += 16) {
        const void *row[16];
        for (int i = 0; i < 16; i++)
            row[i] = (const char *)a->k + (key + min_int(h + i, n - 1)) * row_bytes;
        for (int at = 0; at < row_bytes; at += 16) {
            int from = min_int(at, row_bytes - 16);
            prefetch_lines(ahead, 4);
            transpose_16(keys + from / 4, row, (size_t)from);
        }
        SWEEP(a->n_q, BYTES_TILE, m->scores[0] + key + h)
    }
}

static void score_tile(AttendMemory *m, const AttentionPage *a, int key, int n, Prefetch *ahead) {
    if (stays_bytes(a)) {
        bytes_score_tile(m, a, key, n, ahead);
        return;
    }
    if (!stays_f16(a)) {
        float_score_tile(m, a, key, n, ahead);
        return;
    }
    const void *row[KEY_TILE];
    size_t row_bytes = quant_row_bytes(TYPE_F16, (size_t)a->head_dim);
    for (int i = 0; i < KEY_TILE; i++)
        row[i] = (const char *)a->k + (size_t)(key + min_int(i, n - 1)) * row_bytes;
    for (int h = 0; h < KEY_TILE; h += 16)
        transpose_f16(m->keys_f16[0] + h, row + h, a->head_dim, ahead);
    f16_sweep(m->scores[0] + key, KV_PAGE, m->keys_f16, sizeof m->keys_f16[0], a->q,
              (size_t)a->head_dim, a->n_q, a->head_dim, true, KEY_TILE, ahead, 2 * KEYS_EVERY);
}

static void value_tile(AttendMemory *m, const AttentionPage *a, int key, int n, Prefetch *ahead) {
    if (!stays_f16(a)) {
        float_value_tile(m, a, key, n, ahead);
        return;
    }
    size_t row_bytes = quant_row_bytes(TYPE_F16, (size_t)a->head_dim);
    for (int d = 0; d < a->head_dim; d += PANEL_COLS)
        f16_sweep(a->acc + d, (size_t)a->head_dim,
                  (const char *)a->v + (size_t)key * row_bytes + 2 * d, row_bytes,
                  m->scores[0] + key, KV_PAGE, a->n_q, n, key == 0, PANEL_COLS, ahead, KEYS_EVERY);
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

// Rows are handed out in multiples that fill the four streams of decode, or the panels of prefill.
// From so many tokens on gemm is faster than mat (Sapphire Rapids, 22 November 2026, gemm's time
// over mat's at 2 and 3 tokens: Q4_K 1.1, .79; Q5_K 1.33, .84; Q6_K .84 and Q8_0 .87 at 3;
// Q2_K 1.27, .84; Q3_K 1.18, .78; Q5_0 1.18, .75; float types as in avx2.c).
// Eight sums take a tenth longer than one: from MANY_TOKENS on, when speed is all, there is one.
enum { MAT_ROWS = 16, GEMM_TOKENS = 3, MANY_TOKENS = 25, FLOAT_GEMM_TOKENS = 12 };

#define FLOAT_MAT(type, name)                                                                      \
    [TYPE_##type] = {1, MAT_ROWS, 1, float_bytes, float_encode, mat_##name, false},
#define FLOAT_GEMM(type, name)                                                                     \
    [TYPE_##type] = {FLOAT_GEMM_TOKENS, PANEL_ROWS,  1,    float_gemm_bytes,                       \
                     float_gemm_encode, gemm_##name, false},
#define MAT(type, name)                                                                            \
    [TYPE_##type] = {1, MAT_ROWS, 1, block_bytes, encode_##name, mat_##name, false},
#define GEMM(type, name)                                                                           \
    [TYPE_##type] = {GEMM_TOKENS, PANEL_ROWS, 1, block_bytes, encode_##name, gemm_##name, true},
#define MANY(type, name)                                                                           \
    [TYPE_##type] = {MANY_TOKENS, PANEL_ROWS, 1, block_bytes, encode_##name, many_##name, false},

// clang-format off
const Kernels kernels_avx512 = {
    .name = "avx512",
    .gemv = {FLOAT_TYPES(FLOAT_MAT) EACH_QUANTIZED_TYPE(MAT)},
    .gemm = {FLOAT_TYPES(FLOAT_GEMM) EACH_QUANTIZED_TYPE(GEMM)},
    .gemm_large = {EACH_QUANTIZED_TYPE(MANY)},
    .gemm_large_rows = CHUNK_ROWS,
    .rmsnorm = vector_rmsnorm,
    .swiglu = vector_swiglu,
    .add = vector_add,
    .attend = attend,
    .store = vector_store,
    .peak_unit = "VNNI int8",
    .peak = peak,
};
// clang-format on
