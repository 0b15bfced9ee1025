// AVX2 with FMA and F16C.
//
// Integer types are unpacked 256 columns of 8 rows at a time and meet 8-bit activations: decode
// (mat) as they lie, row by row, prefill (gemm) as panels of 4 columns by 8 rows. Both add the same
// numbers in the same order, so a token has the same bits alone and in any company. F32, F16 and
// BF16 have float32 activations and FMA throughout.
#include "avx2_unpack.h"

#include <immintrin.h>
#include <math.h>

typedef __m256 Floats;
enum { WIDTH = 8 };
static const float EXP_LOW = -87, EXP_HIGH = 88; // whose powers of two are normal numbers

INLINE __m256i first(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

INLINE Floats set_all(float x) { return _mm256_set1_ps(x); }
INLINE Floats multiply_add(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
INLINE Floats multiply_less(Floats a, Floats b, Floats c) { return _mm256_fnmadd_ps(a, b, c); }
INLINE Floats smaller(Floats a, Floats b) { return _mm256_min_ps(a, b); }
INLINE Floats larger(Floats a, Floats b) { return _mm256_max_ps(a, b); }
INLINE Floats nearest(Floats x) {
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

INLINE Floats times_power(Floats x, Floats n) {
    __m256i power =
        _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    return _mm256_mul_ps(x, _mm256_castsi256_ps(power));
}

INLINE float sum_lanes(Floats v) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

INLINE float most_lanes(Floats v) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

INLINE Floats keep_first(Floats v, int n, Floats other) {
    return _mm256_blendv_ps(other, v, _mm256_castsi256_ps(first(n)));
}

INLINE Floats load_tail(const float *x, int n) {
    if (n >= WIDTH) return _mm256_loadu_ps(x);
    return n <= 0 ? _mm256_setzero_ps() : _mm256_maskload_ps(x, first(n));
}

INLINE void store_tail(float *x, int n, Floats v) {
    if (n >= WIDTH)
        _mm256_storeu_ps(x, v);
    else if (n > 0)
        _mm256_maskstore_ps(x, first(n), v);
}

INLINE Floats load_floats(Type type, const void *row, int k, int n) {
    if (type == TYPE_F32) return load_tail((const float *)row + k, n);
    if (type == TYPE_Q8_0)
        return _mm256_cvtepi32_ps(
            _mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)((const int8_t *)row + k))));
    uint16_t buffer[8] = {0};
    const uint16_t *p = (const uint16_t *)row + k;
    if (n < WIDTH) p = n <= 0 ? buffer : memcpy(buffer, p, (size_t)n * 2);
    __m128i h = _mm_loadu_si128((const void *)p);
    if (type == TYPE_F16) return _mm256_cvtph_ps(h);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

INLINE void store_f16(uint16_t *p, int n, Floats v) {
    __m128i h = _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT);
    memcpy(p, &h, (size_t)min_int(WIDTH, n) * 2);
}

INLINE void transpose_block(float *out, int out_step, const float *in, int in_step) {
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

INLINE int sum_integers(__m256i v) {
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

// n values, at most n_groups times 16, to int8 with one scale: max |x| / 127, or NaN (and zeros) if
// one of them is not finite. Also the sum of each group.
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
        __m128i bytes =
            _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
        _mm_storeu_si128((__m128i *)q + g, bytes);
        sums[g] = sum_integers(_mm256_add_epi32(low, high));
    }
    return !is_finite ? NAN : is_small ? 0 : max / 127;
}

#include "gemm_float.h"

// Activations in units of 256 columns, for each unit the tokens one after another: int8 with a
// scale for 32.
typedef struct {
    int8_t q[SUPERBLOCK];
    float scale[SUPERBLOCK / 32];
    float sum[GROUPS]; // scale * sum of q per group (of 16 or 32)
} Activations;

static size_t encoded_bytes(int n_tokens, int cols) {
    return (size_t)n_tokens * (size_t)n_superblocks(cols) * sizeof(Activations);
}

INLINE void encode(void *encoded, const float *x, int n_tokens, int cols, int token_begin,
                   int token_end, int group) {
    for (int t = token_begin; t < token_end; t++)
        for (int k = 0; k < n_superblocks(cols) * SUPERBLOCK; k += 32) {
            Activations *a =
                (Activations *)encoded + (size_t)(k / SUPERBLOCK) * (size_t)n_tokens + t;
            int sums[2], g = k % SUPERBLOCK / group;
            float scale = encode_groups(x + (size_t)t * (size_t)cols + k, cols - k, 2,
                                        a->q + k % SUPERBLOCK, sums);
            a->scale[k % SUPERBLOCK / 32] = scale;
            a->sum[g] = scale * (float)(group == 32 ? sums[0] + sums[1] : sums[0]);
            if (group == 16) a->sum[g + 1] = scale * (float)sums[1];
        }
}

static void encode_16(void *encoded, const float *x, int n_tokens, int cols, int token_begin,
                      int token_end) {
    encode(encoded, x, n_tokens, cols, token_begin, token_end, 16);
}

static void encode_32(void *encoded, const float *x, int n_tokens, int cols, int token_begin,
                      int token_end) {
    encode(encoded, x, n_tokens, cols, token_begin, token_end, 32);
}

// 8 rows of 256 columns: integers, and [group][8 rows] their scales and what is subtracted. The
// integers are u, and the offset is part of what is subtracted; or, if u takes 8 bits (is_wide),
// they are signed and nothing is. A panel holds them [k / 4][8 rows][4].
typedef struct {
    float scale[GROUPS][8], base[GROUPS][8];
    int8_t rows[8][SUPERBLOCK], panel[SUPERBLOCK * 8];
    uint8_t last[8][MAX_SUPERBLOCK_BYTES]; // where the rows end in the unit, filled with zeros
    float row_scale[8][GROUPS];
} __attribute__((aligned(64))) Weights;

INLINE bool is_wide(Type type) { return type_info(type)->max_q > 127; }

// Where the units from column k on of rows `row`, row + apart, ... begin.
INLINE void find_rows(const uint8_t *p[8], const Tensor *w, int row, int apart, int row_end, int k,
                      Type type) {
    for (int i = 0; i < 8; i++)
        p[i] = (const uint8_t *)w->data +
               (size_t)min_int(row + i * apart, row_end - 1) * w->row_bytes +
               (size_t)(k / SUPERBLOCK) * (size_t)superblock_bytes(type);
}

// Units that the rows end in are taken from copies.
INLINE void end_rows(const uint8_t *p[8], Weights *m, int n_cols, Type type) {
    if (type_info(type)->block < SUPERBLOCK && n_cols < SUPERBLOCK)
        for (int i = 0; i < 8; i++) p[i] = padded_superblock(type, p[i], n_cols, m->last[i]);
}

// Their scales, and the integers unless they are taken from where they lie.
INLINE void unpack_rows(Weights *m, Rows p, bool is_in_place, Type type) {
    const TypeInfo *info = type_info(type);
    const int n_groups = SUPERBLOCK / info->group;
    for (int i = 0; i < 8 && !is_in_place; i++)
        unpack_unit(type, p[i], m->rows[i], m->row_scale[i]);
    if (!codebook_info(type)->entry_len) unpack_scales(type, p, m->scale, m->base);
    for (int g = 0; codebook_info(type)->entry_len && g < n_groups; g += 8)
        transpose_block(m->scale[g], 8, m->row_scale[0] + g, GROUPS);
    for (int g = 0; !info->has_min && !is_wide(type) && g < n_groups; g++)
        _mm256_store_ps(m->base[g], _mm256_mul_ps(_mm256_load_ps(m->scale[g]),
                                                  _mm256_set1_ps((float)info->zero_point)));
}

// sum + a group's integer products, for 8 rows.
INLINE __m256 add_group(__m256 sum, __m256i dot, const Weights *w, const Activations *x, int g,
                        int group, bool has_base) {
    __m256 d = _mm256_mul_ps(_mm256_cvtepi32_ps(dot), _mm256_load_ps(w->scale[g]));
    sum = _mm256_fmadd_ps(d, _mm256_broadcast_ss(x->scale + g * group / 32), sum);
    if (!has_base) return sum;
    return _mm256_fnmadd_ps(_mm256_load_ps(w->base[g]), _mm256_broadcast_ss(x->sum + g), sum);
}

INLINE __m256i add_either(__m256i a, __m256i b, bool is_words) {
    return is_words ? _mm256_add_epi16(a, b) : _mm256_add_epi32(a, b);
}

// Products of 8 bits with activations: pairs, in 16 bits.
INLINE __m256i multiply_bytes(__m256i q, __m256i x, Type type) {
    return is_wide(type) ? _mm256_maddubs_epi16(_mm256_abs_epi8(q), _mm256_sign_epi8(x, q))
                         : _mm256_maddubs_epi16(q, x);
}

// How often such pairs may be added before they are widened: 2 times for 5 bits, once for 6.
INLINE int n_word_sums(Type type) {
    int most = type_info(type)->max_q;
    return most <= 31 ? 2 : most <= 63 ? 1 : 0;
}

INLINE __m256i widen_words(__m256i v, bool is_words) {
    return is_words ? _mm256_madd_epi16(v, _mm256_set1_epi16(1)) : v;
}

// Of n vectors, a multiple of four, the sums of each lane: those of v[0] to v[3] become the dwords
// of v[0], and so on. They hold pairs of 16 bits that may be added n_words times more, or (0 times)
// 32 bits.
INLINE void join_fours(__m256i *v, int n, int n_words) {
#pragma GCC unroll 4
    for (int i = 0; i < n / 2; i++)
        v[i] = widen_words(add_either(_mm256_unpacklo_epi32(v[2 * i], v[2 * i + 1]),
                                      _mm256_unpackhi_epi32(v[2 * i], v[2 * i + 1]), n_words > 0),
                           n_words == 1);
#pragma GCC unroll 2
    for (int i = 0; i < n / 4; i++)
        v[i] = widen_words(add_either(_mm256_unpacklo_epi64(v[2 * i], v[2 * i + 1]),
                                      _mm256_unpackhi_epi64(v[2 * i], v[2 * i + 1]), n_words > 1),
                           n_words > 1);
}

// The products of 8 rows with 32 activations, of types that keep 32 weights in 16 bytes: rows i and
// i + 4 share a register, which leaves half of the joining (Q4_0 11.7 -> 8.1 ns, see mat_tile).
INLINE __m256i dots_of_nibbles(Rows p, const int8_t *x, int at, Type type) {
    const __m256i first = load_both(x, x), second = load_both(x + 16, x + 16);
    __m256i v[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        __m256i low = load_both(p[i] + at, p[i + 4] + at), high = _mm256_srli_epi16(low, 4);
        low = multiply_bytes(nibble_values(type, low), first, type);
        high = multiply_bytes(nibble_values(type, high), second, type);
        v[i] = add_either(widen_words(low, is_wide(type)), widen_words(high, is_wide(type)),
                          !is_wide(type));
        __asm__("" : "+x"(v[i])); // else gcc keeps all products to add them at last
    }
    join_fours(v, 4, is_wide(type) ? 0 : 2);
    return v[0];
}

// sum + 8 rows of 32 weights from column k on, unpacked or (in place) not, times the activations.
INLINE __m256 mat_group(__m256 sum, const Weights *w, Rows p, bool is_in_place,
                        const Activations *x, int k, Type type) {
    const int group = type_info(type)->group, n_words = n_word_sums(type);
    const __m256i xk = load_32(x->q + k);
    if (is_in_place && is_nibbles(type))
        return add_group(sum, dots_of_nibbles(p, x->q + k, nibbles_at(type, k), type), w, x, k / 32,
                         32, !is_wide(type));
    __m256i v[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        __m256i q = is_in_place ? integers_of(type, p[i], k) : load_32(w->rows[i] + k);
        v[i] = widen_words(multiply_bytes(q, xk, type), n_words == 0);
    }
    join_fours(v, 8, n_words);
    __m256i low = _mm256_permute2x128_si256(v[0], v[1], 0x20),
            high = _mm256_permute2x128_si256(v[0], v[1], 0x31);
    if (group == 32) low = _mm256_add_epi32(low, high);
    sum = add_group(sum, low, w, x, k / group, group, !is_wide(type));
    return group == 32 ? sum : add_group(sum, high, w, x, k / group + 1, group, !is_wide(type));
}

enum { MAT_TOKENS = 4 }; // that share what is unpacked

// sum[t] + 8 rows of 256 weights times the activations of token t: of one token with the weights
// where they lie, of several with what is unpacked for them. A row's unit takes one token, from L2
// on Zen 3 at some 3.3 GHz, 8 ns for Q4_K and Q4_0, 9 for Q8_0, 11 for Q6_K, 22 to 34 for points.
INLINE void mat_tile(__m256 *sum, Weights *m, Rows p, const Activations *x, int n_tokens,
                     Type type) {
    bool is_in_place = n_tokens == 1 && is_simple(type);
    unpack_rows(m, p, is_in_place, type);
    __asm__ volatile("" ::: "memory"); // else gcc keeps minima in registers and not the sums
    if (is_in_place)
#pragma GCC unroll 8
        for (int k = 0; k < SUPERBLOCK; k += 32) sum[0] = mat_group(sum[0], m, p, true, x, k, type);
    else
        for (int t = 0; t < n_tokens; t++)
#pragma GCC unroll 1
            for (int k = 0; k < SUPERBLOCK; k += 32)
                sum[t] = mat_group(sum[t], m, p, false, x + t, k, type);
}

// The rows are taken from the eight eighths of the range, which gives the memory eight streams.
INLINE void mat_rows(float *out, size_t out_stride, const Tensor *w, const Activations *encoded,
                     int n_tokens, int row_begin, int row_end, Type type) {
    int apart = (row_end - row_begin + 7) / 8;
    Weights m;
    for (int r = row_begin; r < row_begin + apart; r++)
        for (int first_token = 0; first_token < n_tokens; first_token += MAT_TOKENS) {
            int nt = min_int(n_tokens - first_token, MAT_TOKENS);
            __m256 sum[MAT_TOKENS] = {_mm256_setzero_ps()};
            const uint8_t *p[8];
            find_rows(p, w, r, apart, row_end, 0, type);
            for (int k = 0; k < w->cols; k += SUPERBLOCK) {
                end_rows(p, &m, w->cols - k, type);
                mat_tile(sum, &m, p,
                         encoded + (size_t)(k / SUPERBLOCK) * (size_t)n_tokens + first_token, nt,
                         type);
#pragma GCC unroll 8
                for (int i = 0; i < 8; i++) {
#pragma GCC unroll 8
                    for (int a = 0; a < superblock_bytes(type); a += 64)
                        _mm_prefetch((const char *)p[i] + PREFETCH_DISTANCE + a, _MM_HINT_T0);
                    p[i] += superblock_bytes(type);
                }
            }
            for (int t = 0; t < nt; t++) {
                float *at = out + (size_t)(first_token + t) * out_stride;
                for (int i = 0; i < 8; i++) at[min_int(r + i * apart, row_end - 1)] = sum[t][i];
            }
        }
}

// Four rows from four quarters times one token, 16 columns at a time.
INLINE void float_mat_rows(float *out, size_t out_stride, const Tensor *w, const float *x,
                           int n_tokens, int row_begin, int row_end, Type type) {
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
                    if (k * bytes % 64 == 0)
                        _mm_prefetch(p[i] + k * bytes + PREFETCH_DISTANCE, _MM_HINT_T0);
                    acc[i][0] = _mm256_fmadd_ps(load_floats(type, p[i], k, WIDTH), x0, acc[i][0]);
                    acc[i][1] =
                        _mm256_fmadd_ps(load_floats(type, p[i], k + 8, WIDTH), x1, acc[i][1]);
                }
            }
            for (; k < n; k += 8)
                for (int i = 0; i < 4; i++)
                    acc[i][0] = _mm256_fmadd_ps(load_floats(type, p[i], k, n - k),
                                                load_tail(xt + k, n - k), acc[i][0]);
            for (int i = 0; i < 4; i++)
                out[(size_t)t * out_stride + (size_t)row[i]] =
                    sum_lanes(_mm256_add_ps(acc[i][0], acc[i][1]));
        }
}

// sums (NT, CHUNK_ROWS) (+)= x times 8 rows of weights. Products of u, which are positive, are
// added in 16 bits DEEP at a time; wide weights (DEEP is 0) are multiplied by their size and each
// product added in 32 bits. Per 32 columns of 4-bit weights, for 8 rows and a token: 8 products, 8
// sums and 4 operations to scale them.
INLINE void gemm_tile(float *sums, const Weights *w, const Activations *x, bool is_first,
                      Prefetch *ahead, int n_ahead, int nt, int group, int deep) {
    const __m256i ones = _mm256_set1_epi16(1);
    const int at_once = deep ? deep : 1;
    __m256 sum[TILE_TOKENS];
#pragma GCC unroll 6
    for (int t = 0; t < nt; t++)
        sum[t] = is_first ? _mm256_setzero_ps() : _mm256_load_ps(sums + t * CHUNK_ROWS);
    for (int g = 0; g < SUPERBLOCK / group; g++) {
        __m256i dot[TILE_TOKENS];
        prefetch_lines(ahead, n_ahead);
#pragma GCC unroll 6
        for (int t = 0; t < nt; t++) dot[t] = _mm256_setzero_si256();
#pragma GCC unroll 8
        for (int c = 0; c < group / 4; c += at_once) {
            __m256i words[TILE_TOKENS];
            for (int d = 0; d < at_once; d++) {
                int k = g * group + 4 * (c + d);
                __m256i q = _mm256_load_si256((const __m256i *)(w->panel + k * 8)),
                        size = _mm256_abs_epi8(q);
#pragma GCC unroll 6
                for (int t = 0; t < nt; t++) {
                    int32_t four;
                    memcpy(&four, x[t].q + k, 4);
                    __m256i v = _mm256_set1_epi32(four);
                    v = deep ? _mm256_maddubs_epi16(q, v)
                             : _mm256_maddubs_epi16(size, _mm256_sign_epi8(v, q));
                    words[t] = d ? _mm256_add_epi16(words[t], v) : v;
                    __asm__("" : "+x"(words[t])); // else gcc keeps all products to add them at last
                }
            }
#pragma GCC unroll 6
            for (int t = 0; t < nt; t++) {
                __m256i pair = _mm256_madd_epi16(words[t], ones);
                dot[t] = c ? _mm256_add_epi32(dot[t], pair) : pair;
                __asm__("" : "+x"(dot[t]));
            }
        }
#pragma GCC unroll 6
        for (int t = 0; t < nt; t++)
            sum[t] = add_group(sum[t], dot[t], w, x + t, g, group, deep > 0);
    }
#pragma GCC unroll 6
    for (int t = 0; t < nt; t++) _mm256_store_ps(sums + t * CHUNK_ROWS, sum[t]);
}

typedef void (*Sweep)(float *sums, const Weights *w, const Activations *x, int n_tokens,
                      bool is_first, Prefetch *ahead, int n_ahead);

#define GEMM_SWEEP(name, group, deep)                                                              \
    static void name(float *sums, const Weights *w, const Activations *x, int n_tokens,            \
                     bool is_first, Prefetch *ahead, int n_ahead) {                                \
        SWEEP(n_tokens, GEMM_TILE, group, deep)                                                    \
    }
#define GEMM_TILE(nt, ...)                                                                         \
    gemm_tile(sums + t * CHUNK_ROWS, w, x + t, is_first, ahead, n_ahead, nt, __VA_ARGS__)
GEMM_SWEEP(sweep_32_wide, 32, 0)
GEMM_SWEEP(sweep_32_7, 32, 1) // weights of 7 bits
GEMM_SWEEP(sweep_16_7, 16, 1)
GEMM_SWEEP(sweep_16_6, 16, 2)
GEMM_SWEEP(sweep_32_5, 32, 4)
GEMM_SWEEP(sweep_16_5, 16, 4)
GEMM_SWEEP(sweep_32_4, 32, 8)

INLINE Sweep sweep_of(Type type) {
    const int most = type_info(type)->max_q;
    if (type_info(type)->group == 16)
        return most > 63 ? sweep_16_7 : most > 31 ? sweep_16_6 : sweep_16_5;
    return is_wide(type) ? sweep_32_wide
           : most > 31   ? sweep_32_7
           : most > 15   ? sweep_32_5
                         : sweep_32_4;
}

typedef struct {
    float sums[TOKEN_BLOCK][CHUNK_ROWS];
    Weights weights;
} GemmMemory;

_Static_assert(sizeof(GemmMemory) <= KERNEL_SCRATCH, "fits");

// 64 rows times 512 tokens at a time, their sums (128 KiB) and the activations of 256 columns (180
// KiB) in L2; panels of 8 rows (3 KiB), decoded once for all tokens.
INLINE void gemm_rows(float *out, size_t out_stride, const Tensor *w, const Activations *encoded,
                      int n_tokens, int row_begin, int row_end, Type type) {
    const int group = type_info(type)->group;
    const Sweep sweep = sweep_of(type);
    GemmMemory *m = team_scratch();
    for (int row = row_begin; row < row_end; row += CHUNK_ROWS)
        for (int first_token = 0; first_token < n_tokens; first_token += TOKEN_BLOCK) {
            int n_rows = min_int(row_end - row, CHUNK_ROWS),
                n = min_int(n_tokens - first_token, TOKEN_BLOCK);
            for (int k = 0; k < w->cols; k += SUPERBLOCK) {
                Prefetch ahead = prefetch_next_rows(w, row, CHUNK_ROWS, k, SUPERBLOCK);
                // A line for each unit unpacked, the rest for each group of columns of a tile.
                int n_groups =
                    CHUNK_ROWS / 8 * ((n + TILE_TOKENS - 1) / TILE_TOKENS) * SUPERBLOCK / group;
                int n_ahead = (ahead.n_lines - CHUNK_ROWS + n_groups - 1) / n_groups;
                for (int r = 0; r < n_rows; r += WIDTH) {
                    const uint8_t *p[8];
                    prefetch_lines(&ahead, WIDTH);
                    find_rows(p, w, row + r, 1, row_end, k, type);
                    end_rows(p, &m->weights, w->cols - k, type);
                    unpack_rows(&m->weights, p, false, type);
                    for (int c = 0; c < SUPERBLOCK / 4; c += 8)
                        transpose_block((float *)m->weights.panel + c * 8, 8,
                                        (const float *)m->weights.rows + c, SUPERBLOCK / 4);
                    sweep(m->sums[0] + r, &m->weights,
                          encoded + (size_t)(k / SUPERBLOCK) * (size_t)n_tokens + first_token, n,
                          k == 0, &ahead, n_ahead);
                }
            }
            write_sums(out + (size_t)first_token * out_stride + row, out_stride, m->sums[0], n,
                       n_rows);
        }
}

#define INTEGER_TYPE(type, name)                                                                   \
    ROWS(mat_##name, mat_rows, TYPE_##type)                                                        \
    ROWS(gemm_##name, gemm_rows, TYPE_##type)
#define FLOAT_TYPE(type, name)                                                                     \
    ROWS(mat_##name, float_mat_rows, TYPE_##type)                                                  \
    ROWS(gemm_##name, float_gemm_rows, TYPE_##type)
EACH_QUANTIZED_TYPE(INTEGER_TYPE)
FLOAT_TYPES(FLOAT_TYPE)

static void score_tile(AttendMemory *m, const AttentionPage *a, int key, int n, Prefetch *ahead) {
    float_score_tile(m, a, key, n, ahead);
}

static void value_tile(AttendMemory *m, const AttentionPage *a, int key, int n, Prefetch *ahead) {
    float_value_tile(m, a, key, n, ahead);
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

// Rows are handed out in multiples that fill the four streams of decode, or the panels of prefill.
// From so many tokens on gemm is faster than mat (gemm's time over mat's, Zen 3, 22 November 2026:
// Q4_K 1.07 at 3 tokens, 1.00 at 4, .81 at 5; Q6_K 1.02, .95, .71; Q8_0 1.07, .98, .83; Sapphire
// Rapids, the day before: F16 1.6 at 8, .63 at 12).
enum { MAT_ROWS = 16, GEMM_TOKENS = 4, FLOAT_GEMM_TOKENS = 12 };

#define FLOAT_MAT(type, name)                                                                      \
    [TYPE_##type] = {1, MAT_ROWS, 1, float_bytes, float_encode, .rows = mat_##name},
#define FLOAT_GEMM(type, name)                                                                     \
    [TYPE_##type] = {FLOAT_GEMM_TOKENS, CHUNK_ROWS,        1,                                      \
                     float_gemm_bytes,  float_gemm_encode, .rows = gemm_##name},
#define MAT(type, name, group)                                                                     \
    [TYPE_##type] = {1, MAT_ROWS, 1, encoded_bytes, encode_##group, .rows = mat_##name},
#define GEMM(type, name, group)                                                                    \
    [TYPE_##type] = {GEMM_TOKENS,          WIDTH,          1,                                      \
                     encoded_bytes,        encode_##group, .rows = gemm_##name,                    \
                     .has_gemv_bits = true},
#define MAT_16(type, name)  MAT(type, name, 16)
#define MAT_32(type, name)  MAT(type, name, 32)
#define GEMM_16(type, name) GEMM(type, name, 16)
#define GEMM_32(type, name) GEMM(type, name, 32)

// clang-format off
const Kernels kernels_avx2 = {
    .name = "avx2",
    .gemv = {FLOAT_TYPES(FLOAT_MAT) TYPES_OF_16(MAT_16) TYPES_OF_32(MAT_32)},
    .gemm = {FLOAT_TYPES(FLOAT_GEMM) TYPES_OF_16(GEMM_16) TYPES_OF_32(GEMM_32)},
    .rmsnorm = vector_rmsnorm,
    .swiglu = vector_swiglu,
    .add = vector_add,
    .attend = attend,
    .peak_unit = "FMA float32",
    .peak = peak,
    .store = vector_store,
};
// clang-format on
