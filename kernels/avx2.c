// AVX2 with FMA and F16C.
//
// Integer types are brought into the form of QuantBlock, 256 weights at a time. Decode (mat) dots
// them with int8 activations; prefill (gemm) turns them into panels of 8 rows for the same 8-bit
// products. F32, F16 and BF16 have float32 activations and FMA throughout.
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

#include "frame_float.h"

// Int8 activations with a scale per group of 16, as the weights.
typedef struct {
    int8_t q[UNIT];
    float scale[GROUPS];
    float sum[GROUPS]; // scale * sum of q
} MatUnit;

static size_t mat_bytes(int n_tokens, int cols) {
    return (size_t)n_tokens * (size_t)n_units(cols) * sizeof(MatUnit);
}

static void mat_encode(void *encoded, const float *x, int n_tokens, int cols, int token_begin,
                       int token_end) {
    (void)n_tokens;
    for (int t = token_begin; t < token_end; t++) {
        MatUnit *units = (MatUnit *)encoded + (size_t)t * (size_t)n_units(cols);
        for (int k = 0; k < n_units(cols) * UNIT; k += QUANT_GROUP) {
            MatUnit *u = units + k / UNIT;
            int sum, g = k % UNIT / QUANT_GROUP;
            u->scale[g] =
                encode_groups(x + (size_t)t * (size_t)cols + k, cols - k, 1, u->q + k % UNIT, &sum);
            u->sum[g] = u->scale[g] * (float)sum;
        }
    }
}

// 256 weights times 256 activations: per 32 of them sign, two multiply-adds, conversion, spread of
// the scales and FMA.
INLINE __m256 dot_unit(const QuantBlock *w, const MatUnit *x, bool has_min) {
    const __m256i quarter = _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1), ones = _mm256_set1_epi16(1);
    __m256 sum[2];
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        __m256 scale =
            _mm256_mul_ps(_mm256_loadu_ps(w->scale + 8 * h), _mm256_loadu_ps(x->scale + 8 * h));
        sum[h] = _mm256_setzero_ps();
        if (has_min)
            sum[h] = _mm256_fnmadd_ps(_mm256_loadu_ps(w->min + 8 * h),
                                      _mm256_loadu_ps(x->sum + 8 * h), sum[h]);
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

// Four rows times NT tokens; each block of weights is unpacked once for them. Rows far apart give
// the memory four streams.
INLINE void mat_tile(float *out, size_t out_stride, const Tensor *w, const MatUnit *x,
                     const int *row, int nt, Type type) {
    const uint8_t *p[4];
    int n = n_units(w->cols), bytes = unit_bytes(type);
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
            for (int a = 0; a < bytes; a += 64)
                _mm_prefetch((const char *)p[i] + (size_t)b * (size_t)bytes + STREAM_AHEAD + a,
                             _MM_HINT_T0);
            unpack_unit(type, w, p[i], b * UNIT, &block);
#pragma GCC unroll 2
            for (int t = 0; t < nt; t++)
                acc[i][t] = _mm256_add_ps(
                    acc[i][t], dot_unit(&block, x + t * n + b, type_info(type)->has_min));
        }
    }
    for (int i = 0; i < 4; i++)
        for (int t = 0; t < nt; t++)
            out[(size_t)t * out_stride + (size_t)row[i]] = sum_lanes(acc[i][t]);
}

// The rows are taken from the four quarters of the range.
INLINE void mat_rows(float *out, size_t out_stride, const Tensor *w, const void *encoded,
                     int n_tokens, int row_begin, int row_end, Type type) {
    int quarter = (row_end - row_begin + 3) / 4;
    size_t n = (size_t)n_units(w->cols);
    for (int r = row_begin; r < row_begin + quarter; r++) {
        int row[4], t = 0;
        for (int i = 0; i < 4; i++) row[i] = min_int(r + i * quarter, row_end - 1);
        for (; t + 2 <= n_tokens; t += 2)
            mat_tile(out + (size_t)t * out_stride, out_stride, w,
                     (const MatUnit *)encoded + (size_t)t * n, row, 2, type);
        if (t < n_tokens)
            mat_tile(out + (size_t)t * out_stride, out_stride, w,
                     (const MatUnit *)encoded + (size_t)t * n, row, 1, type);
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
                        _mm_prefetch(p[i] + k * bytes + STREAM_AHEAD, _MM_HINT_T0);
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

// Prefill: activations in units of 256 columns, for each unit the tokens one after another.
typedef struct {
    int8_t q[UNIT];
    float scale[UNIT / 32];
    float sum[GROUPS]; // scale * sum of q per group (of 16 or 32)
} GemmUnit;

// 8 rows of 256 columns: [k / 4][8 rows][4] as u (or as signed w, if u takes more than 6 bits),
// [group][8 rows] as scale and what is subtracted.
typedef struct {
    int8_t w[UNIT * 8];
    float scale[GROUPS][8], base[GROUPS][8];
} __attribute__((aligned(32))) Panel;

static size_t gemm_bytes(int n_tokens, int cols) {
    return (size_t)n_tokens * (size_t)n_units(cols) * sizeof(GemmUnit);
}

INLINE void gemm_encode(void *encoded, const float *x, int n_tokens, int cols, int token_begin,
                        int token_end, int group) {
    for (int t = token_begin; t < token_end; t++)
        for (int k = 0; k < n_units(cols) * UNIT; k += 32) {
            GemmUnit *u = (GemmUnit *)encoded + (size_t)(k / UNIT) * (size_t)n_tokens + t;
            int sums[2], g = k % UNIT / group;
            float scale =
                encode_groups(x + (size_t)t * (size_t)cols + k, cols - k, 2, u->q + k % UNIT, sums);
            u->scale[k % UNIT / 32] = scale;
            u->sum[g] = scale * (float)(group == 32 ? sums[0] + sums[1] : sums[0]);
            if (group == 16) u->sum[g + 1] = scale * (float)sums[1];
        }
}

static void gemm_encode_16(void *encoded, const float *x, int n_tokens, int cols, int token_begin,
                           int token_end) {
    gemm_encode(encoded, x, n_tokens, cols, token_begin, token_end, 16);
}

static void gemm_encode_32(void *encoded, const float *x, int n_tokens, int cols, int token_begin,
                           int token_end) {
    gemm_encode(encoded, x, n_tokens, cols, token_begin, token_end, 32);
}

INLINE bool is_wide(Type type) { return type_info(type)->most > 63; }

// Rows [row, row + 8), the 256 columns from k on.
INLINE void pack_panel(Panel *panel, const Tensor *w, int row, int row_end, int k, Ahead *ahead,
                       Type type) {
    int8_t q[8][UNIT] __attribute__((aligned(32)));
    float scale[8][GROUPS], base[8][GROUPS];
    for (int i = 0; i < WIDTH; i++) {
        const uint8_t *p =
            (const uint8_t *)w->data + (size_t)min_int(row + i, row_end - 1) * w->row_bytes;
        QuantBlock b;
        fetch(ahead, 1);
        unpack_unit(type, w, p, k, &b);
        const __m256i off = _mm256_set1_epi8((char)(is_wide(type) ? 0 : type_info(type)->offset));
        for (int c = 0; c < UNIT; c += 32)
            store_32(q[i] + c, _mm256_add_epi8(load_32(b.q + c), off));
        for (int g = 0; g < GROUPS; g += 8) {
            __m256 s = _mm256_loadu_ps(b.scale + g),
                   m = type_info(type)->has_min ? _mm256_loadu_ps(b.min + g) : _mm256_setzero_ps();
            if (!is_wide(type))
                m = _mm256_fmadd_ps(s, _mm256_set1_ps((float)type_info(type)->offset), m);
            _mm256_storeu_ps(scale[i] + g, s);
            _mm256_storeu_ps(base[i] + g, m);
        }
    }
    for (int c = 0; c < UNIT / 4; c += 8)
        transpose_block((float *)panel->w + c * 8, 8, (const float *)q + c, UNIT / 4);
    for (int g = 0; g < GROUPS; g += 8) {
        transpose_block(panel->scale[g], 8, scale[0] + g, GROUPS);
        transpose_block(panel->base[g], 8, base[0] + g, GROUPS);
    }
}

// sums (NT, CHUNK_ROWS) (+)= x times 8 rows of weights. Products of u, which are positive, are
// added in 16 bits DEEP at a time; wide weights are multiplied by their size and each product added
// in 32 bits. Per 32 columns of 4-bit weights, for 8 rows and a token: 8 products, 8 sums and 4
// operations to scale them.
INLINE void gemm_tile(float *sums, const Panel *panel, const GemmUnit *x, bool is_first,
                      Ahead *ahead, int n_ahead, int nt, int group, int deep) {
    const __m256i ones = _mm256_set1_epi16(1);
    const int at_once = deep ? deep : 1;
    __m256 sum[TILE_TOKENS];
#pragma GCC unroll 6
    for (int t = 0; t < nt; t++)
        sum[t] = is_first ? _mm256_setzero_ps() : _mm256_load_ps(sums + t * CHUNK_ROWS);
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
                __m256i w = _mm256_load_si256((const __m256i *)(panel->w + k * 8)),
                        size = _mm256_abs_epi8(w);
#pragma GCC unroll 6
                for (int t = 0; t < nt; t++) {
                    int32_t four;
                    memcpy(&four, x[t].q + k, 4);
                    __m256i v = _mm256_set1_epi32(four);
                    v = deep ? _mm256_maddubs_epi16(w, v)
                             : _mm256_maddubs_epi16(size, _mm256_sign_epi8(v, w));
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

typedef void (*Sweep)(float *sums, const Panel *panel, const GemmUnit *x, int n_tokens,
                      bool is_first, Ahead *ahead, int n_ahead);

#define GEMM_SWEEP(name, group, deep)                                                              \
    static void name(float *sums, const Panel *panel, const GemmUnit *x, int n_tokens,             \
                     bool is_first, Ahead *ahead, int n_ahead) {                                   \
        SWEEP(n_tokens, GEMM_TILE, group, deep)                                                    \
    }
#define GEMM_TILE(nt, ...)                                                                         \
    gemm_tile(sums + t * CHUNK_ROWS, panel, x + t, is_first, ahead, n_ahead, nt, __VA_ARGS__)
GEMM_SWEEP(sweep_32_wide, 32, 0)
GEMM_SWEEP(sweep_16_wide, 16, 0)
GEMM_SWEEP(sweep_32_4, 32, 8) // weights of at most 4 bits
GEMM_SWEEP(sweep_32_5, 32, 4)
GEMM_SWEEP(sweep_16_5, 16, 4)
GEMM_SWEEP(sweep_16_6, 16, 2)

typedef struct {
    float sums[TOKEN_BLOCK][CHUNK_ROWS];
    Panel panel;
} GemmMemory;

_Static_assert(sizeof(GemmMemory) <= KERNEL_SCRATCH, "fits");

// 64 rows times 512 tokens at a time, their sums (128 KiB) and the activations of 256 columns (180
// KiB) in L2; panels of 8 rows (3 KiB), decoded once for all tokens.
INLINE void gemm_rows(float *out, size_t out_stride, const Tensor *w, const GemmUnit *encoded,
                      int n_tokens, int row_begin, int row_end, Type type) {
    const int group = type_info(type)->group, most = type_info(type)->most;
    const Sweep sweep = is_wide(type) ? group == 16 ? sweep_16_wide : sweep_32_wide
                        : group == 16 ? most > 31 ? sweep_16_6 : sweep_16_5
                        : most > 15   ? sweep_32_5
                                      : sweep_32_4;
    GemmMemory *m = team_scratch();
    for (int row = row_begin; row < row_end; row += CHUNK_ROWS)
        for (int first_token = 0; first_token < n_tokens; first_token += TOKEN_BLOCK) {
            int n_rows = min_int(row_end - row, CHUNK_ROWS),
                n = min_int(n_tokens - first_token, TOKEN_BLOCK);
            for (int k = 0; k < w->cols; k += UNIT) {
                Ahead ahead = ahead_of_rows(w, row, CHUNK_ROWS, k, UNIT);
                // A line for each unit unpacked, the rest for each group of columns of a tile.
                int n_groups =
                    CHUNK_ROWS / 8 * ((n + TILE_TOKENS - 1) / TILE_TOKENS) * UNIT / group;
                int n_ahead = (ahead.n_lines - CHUNK_ROWS + n_groups - 1) / n_groups;
                for (int r = 0; r < n_rows; r += WIDTH) {
                    pack_panel(&m->panel, w, row + r, row_end, k, &ahead, type);
                    sweep(m->sums[0] + r, &m->panel,
                          encoded + (size_t)(k / UNIT) * (size_t)n_tokens + first_token, n, k == 0,
                          &ahead, n_ahead);
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
EACH_INTEGER_TYPE(INTEGER_TYPE)
FLOAT_TYPES(FLOAT_TYPE)

static void score_tile(AttendMemory *m, const AttendPage *a, int key, int n, Ahead *ahead) {
    float_score_tile(m, a, key, n, ahead);
}

static void value_tile(AttendMemory *m, const AttendPage *a, int key, int n, Ahead *ahead) {
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
// From so many tokens on gemm is faster than mat (Sapphire Rapids, 21 November 2026, gemm's time
// over mat's: Q4_K 1.4 at 2 tokens, .89 at 3; F16 1.6 at 8, .63 at 12).
enum { MAT_ROWS = 16, GEMM_TOKENS = 3, FLOAT_GEMM_TOKENS = 12 };

#define FLOAT_MAT(type, name)                                                                      \
    [TYPE_##type] = {1, MAT_ROWS, 1, float_bytes, float_encode, .rows = mat_##name},
#define FLOAT_GEMM(type, name)                                                                     \
    [TYPE_##type] = {FLOAT_GEMM_TOKENS, CHUNK_ROWS,        1,                                      \
                     float_gemm_bytes,  float_gemm_encode, .rows = gemm_##name},
#define MAT(type, name) [TYPE_##type] = {1, MAT_ROWS, 1, mat_bytes, mat_encode, .rows = mat_##name},
#define GEMM(type, name, group)                                                                    \
    [TYPE_##type] = {GEMM_TOKENS, WIDTH, 1, gemm_bytes, gemm_encode_##group, .rows = gemm_##name},
#define GEMM_16(type, name) GEMM(type, name, 16)
#define GEMM_32(type, name) GEMM(type, name, 32)

// clang-format off
const Kernels kernels_avx2 = {
    .name = "avx2",
    .mat = {FLOAT_TYPES(FLOAT_MAT) EACH_INTEGER_TYPE(MAT)},
    .gemm = {FLOAT_TYPES(FLOAT_GEMM) TYPES_OF_16(GEMM_16) TYPES_OF_32(GEMM_32)},
    .rmsnorm = frame_rmsnorm,
    .swiglu = frame_swiglu,
    .add = frame_add,
    .attend = attend,
    .peak_unit = "FMA float32",
    .peak = peak,
    .store = frame_store,
};
// clang-format on
