// AVX2 with FMA and F16C. avx_vnni.c compiles GEMM, attend_many and decode of some types for
// AVX-VNNI.
//
// Integer types are multiplied by int8 activations, eight rows of 256 columns (a superblock) at a
// time. Decode sums across lanes; GEMM interleaves the rows into a panel whose lanes are rows. F32,
// F16 and BF16 are multiplied by float32 activations (matmul_float.h). Attention of few queries
// uses float32 (attention_float.h), that of many queries 16-bit integers (attention_int16.h).
//
// Order of sums. Decode and GEMM add as docs/numerics.md says: a row of integer weights has one
// sum, to which its groups of columns are added in ascending order. The bits of a token therefore
// do not depend on the batch, and are those of AVX-512. Products and sums must not be contracted in
// another way: fma(d, w_scale * x_scale, s) is as accurate but has different bits.
//
// Products of bytes. maddubs multiplies unsigned by signed bytes and adds pairs of products, with
// saturation at 16 bits. Weights of up to 7 bits are stored as unsigned u = w + zero_point, and the
// sum of a group starts at -zero_point * q, q being the sum of its activations. This is exact:
// sum(u x) - zero_point * sum(x) = sum(w x). Weights of 8 bits (Q8_0, IQ4) are signed: |w| is
// multiplied by x, which is negated where w is negative. The sums of two products can be added in
// 16 bits a few times before they must be widened to 32 bits; int16_sums() says how often. The sum
// of a group also starts at BASE_BITS, so that it needs no conversion to float (scale_based_dot).
#define VECTOR_BITS 256
#include "kernels/x86/avx2_unpack.h"
#include "kernels/vector/activations_int8.h"
#include "kernels/x86/attention_int16.h"

// Eight rows of a superblock.
typedef struct {
    float scale[SUPERBLOCK_GROUPS][8]; // of each group (16 or 32 columns) and row
    float min[SUPERBLOCK_GROUPS][8];   // minima, where the type has them
    int8_t rows[8][SUPERBLOCK];        // integers
    int8_t panel[SUPERBLOCK * 8];      // GEMM: the integers as [k / 4][8 rows][4], so that a
                                       // register has 4 columns of each row
    uint8_t padded[8][SUPERBLOCK_MAX_BYTES];
    float row_scale[8][SUPERBLOCK_GROUPS]; // of codebook types: scales before the transpose
} __attribute__((aligned(64))) Avx2Rows;

// The number n of sums of two products that can be added in int16: a power of two, at most what a
// group needs, with n * 2 * 127 * max_q <= 32767. 0: the type has signed integers of 8 bits.
INLINE int int16_sums(Type type) {
    const TypeInfo *info = type_info(type);
    const int fit = 32767 / (2 * 127 * info->max_q), all = info->group / 4;
    if (info->max_q > 127) return 0;
    if (fit >= 8 && all >= 8) return 8;
    if (fit >= 4) return 4;
    return fit >= 2 ? 2 : 1;
}

// True if decode unpacks the integers in registers, without a buffer.
INLINE bool decodes_in_place(Type type) {
    return !codebook_info(type)->entry_len && type != TYPE_TQ1_0;
}

// Unpacks the scales of the superblocks p and, unless is_in_place, their integers.
INLINE void unpack_8_rows(Avx2Rows *m, const uint8_t *const *p, int n_cols, bool is_in_place,
                          Type type) {
    const TypeInfo *info = type_info(type);
    const int n_groups = SUPERBLOCK / info->group;

    if (!is_in_place)
        for (int i = 0; i < 8; i++) unpack_row(type, p[i], m->rows[i], m->row_scale[i]);

    if (codebook_info(type)->entry_len)
        transpose_dwords(m->scale, sizeof m->scale[0], m->row_scale, sizeof m->row_scale[0],
                         n_groups, 1);
    else
        unpack_scales(type, p, n_cols, m->scale, m->min);
}

// Returns 16 sums of two products each, in 16 bits.
INLINE __m256i multiply_bytes(__m256i w, __m256i x, bool is_signed) {
    return is_signed ? _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w))
                     : _mm256_maddubs_epi16(w, x);
}
INLINE __m256i add_int16_or_32(__m256i a, __m256i b, bool is_int16) {
    return is_int16 ? _mm256_add_epi16(a, b) : _mm256_add_epi32(a, b);
}
INLINE __m256i widen_if(__m256i v, bool is_int16) {
    return is_int16 ? _mm256_madd_epi16(v, _mm256_set1_epi16(1)) : v;
}

// The dot product of a group of columns in GEMM. `words` is the part that is still summed in 16
// bits.
typedef struct {
    __m256i dot, words;
} GroupDot;

// These functions differ between AVX2 and AVX-VNNI. add_4_products adds four products of w and x to
// each dword of `sum`. add_products adds the products for columns [4 c, 4 c + 4) of the group.
// n_int16 is the number of sums of two products that are added in 16 bits (int16_sums), or 0 if w
// is signed; start is Int8Activations.start of the group.
#ifdef __AVXVNNI__
// vpdpbusd multiplies unsigned by signed bytes and adds four products to an int32, without
// saturation. Signed weights are multiplied as w + 128; 128 is their zero point.
enum { IS_VNNI = 1 };
INLINE __m256i add_4_products(__m256i sum, __m256i w, __m256i x, bool is_signed) {
    if (is_signed) w = _mm256_xor_si256(w, _mm256_set1_epi8(-128));
    return _mm256_dpbusd_avx_epi32(sum, w, x);
}
INLINE void add_products(GroupDot *s, __m256i w, __m256i x, int c, int n_int16, int start) {
    if (c == 0) s->dot = _mm256_set1_epi32(start);
    s->dot = add_4_products(s->dot, w, x, n_int16 == 0);
}
#else
enum { IS_VNNI = 0 };
INLINE __m256i add_4_products(__m256i sum, __m256i w, __m256i x, bool is_signed) {
    return _mm256_add_epi32(sum, widen_if(multiply_bytes(w, x, is_signed), true));
}
INLINE void add_products(GroupDot *s, __m256i w, __m256i x, int c, int n_int16, int start) {
    const int at_a_time = n_int16 ? n_int16 : 1, n_added = c % at_a_time;
    __m256i v = multiply_bytes(w, x, n_int16 == 0);
    s->words = n_added ? _mm256_add_epi16(s->words, v) : v;
    __asm__("" : "+x"(s->words)); // else gcc 12 keeps products and spills them
    if (n_added < at_a_time - 1) return;
    v = widen_if(s->words, true);
    s->dot = _mm256_add_epi32(c >= at_a_time ? s->dot : _mm256_set1_epi32(start), v);
    __asm__("" : "+x"(s->dot));
}
#endif

// The zero point of the integers that the kernels multiply.
INLINE int stored_zero_point(Type type) {
    return IS_VNNI || int16_sums(type) > 0 ? type_info(type)->zero_point : 0;
}

// Adds the integer dot products of group g, one for each of eight rows. They include
// Int8Activations.start.
INLINE __m256 add_group_8_rows(__m256 sum, __m256i dot, const Avx2Rows *w, const Int8Activations *x,
                               int g, int group, bool has_min) {
    __m256 d = scale_based_dot(dot, _mm256_load_ps(w->scale[g]));
    sum = fmadd(d, _mm256_broadcast_ss(x->scale + g * group / 32), sum);
    if (!has_min) return sum;
    return fnmadd(_mm256_load_ps(w->min[g]), _mm256_broadcast_ss(x->sum + g), sum);
}

// Decode.

// Sums across lanes. Of four vectors v[0] to v[3], dword i of a 128-bit lane of the result v[0] is
// the sum of that lane of v[i]; v[4] to v[7] give v[1]. This takes two rounds of interleave and
// add:
//
//   v0 = {a b c d}, v1 = {e f g h}    unpack_32:  {a e b f} + {c g d h} = {a+c e+g b+d f+h}
//   v2, v3: likewise                  unpack_64:  {a+c e+g ..} + {b+d f+h ..} = {v0 v1 v2 v3}
//
// n_int16 is the number of these two additions that int16 can hold; then the sums are widened.
INLINE void sum_lanes_of_4(__m256i *v, int n, int n_int16) {
#pragma GCC unroll 4
    for (int i = 0; i < n / 2; i++)
        v[i] = widen_if(add_int16_or_32(_mm256_unpacklo_epi32(v[2 * i], v[2 * i + 1]),
                                        _mm256_unpackhi_epi32(v[2 * i], v[2 * i + 1]), n_int16 > 0),
                        n_int16 == 1);
#pragma GCC unroll 2
    for (int i = 0; i < n / 4; i++)
        v[i] = widen_if(add_int16_or_32(_mm256_unpacklo_epi64(v[2 * i], v[2 * i + 1]),
                                        _mm256_unpackhi_epi64(v[2 * i], v[2 * i + 1]), n_int16 > 1),
                        n_int16 > 1);
}

// Dot products of 32 columns of eight rows, for types that store 32 columns as the nibbles of 16
// bytes. Rows i and i + 4 share a register; low nibbles are multiplied by the first 16 activations
// and high nibbles by the second 16. This halves the sums across lanes (Q4_0: 11.7 -> 8.1 ns, see
// gemv_8_rows).
INLINE __m256i dot_nibble_rows(const uint8_t *const *p, const int8_t *x, int at, Type type) {
    const bool is_signed = int16_sums(type) == 0, is_int16 = !is_signed && !IS_VNNI;
    const __m256i first = load_halves(x, x), second = load_halves(x + 16, x + 16);
    __m256i v[4];

#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        __m256i low = load_halves(p[i] + at, p[i + 4] + at), high = _mm256_srli_epi16(low, 4);
        low = nibble_values(type, low);
        high = nibble_values(type, high);

        if (is_int16) {
            v[i] = _mm256_add_epi16(multiply_bytes(low, first, false),
                                    multiply_bytes(high, second, false));
        } else {
            v[i] = add_4_products(_mm256_setzero_si256(), low, first, is_signed);
            v[i] = add_4_products(v[i], high, second, is_signed);
        }
        __asm__("" : "+x"(v[i])); // else gcc 12 keeps all products and spills them
    }
    sum_lanes_of_4(v, 4, is_int16 ? 2 : 0);
    return v[0];
}

// Adds the products of columns [k, k + 32) of eight rows with one token.
INLINE __m256 gemv_32_columns(__m256 sum, const Avx2Rows *w, const uint8_t *const *p,
                              bool is_in_place, const Int8Activations *x, int k, Type type) {
    const int group = type_info(type)->group, fit = int16_sums(type);
    const int n_int16 = (fit >= 2) + (fit >= 4);
    const bool has_min = type_info(type)->has_min;
    const __m256i xk = load_32(x->q + k), start = _mm256_set1_epi32(x->start[k / group]);

    if (is_in_place && type_info(type)->nibble_offset && type != TYPE_Q4_K) { // 16 bytes of nibbles
        __m256i dot = dot_nibble_rows(p, x->q + k, nibbles_offset(type, k), type);
        return add_group_8_rows(sum, _mm256_add_epi32(dot, start), w, x, k / 32, 32, has_min);
    }

    __m256i v[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        __m256i q = is_in_place ? integers_32(type, p[i], k) : load_32(w->rows[i] + k);
        v[i] = fit == 0 ? add_4_products(_mm256_setzero_si256(), q, xk, true)
                        : widen_if(multiply_bytes(q, xk, false), n_int16 == 0);
    }

    sum_lanes_of_4(v, 8, n_int16);

    // v[0] has rows 0 to 3, v[1] rows 4 to 7; their lower lanes are sums of the first 16 columns.
    __m256i low = _mm256_add_epi32(_mm256_permute2x128_si256(v[0], v[1], 0x20), start);
    __m256i high = _mm256_permute2x128_si256(v[0], v[1], 0x31);
    if (group == 32)
        return add_group_8_rows(sum, _mm256_add_epi32(low, high), w, x, k / 32, 32, has_min);

    high = _mm256_add_epi32(high, _mm256_set1_epi32(x->start[k / 16 + 1]));
    sum = add_group_8_rows(sum, low, w, x, k / 16, 16, has_min);
    return add_group_8_rows(sum, high, w, x, k / 16 + 1, 16, has_min);
}

// Adds the products of a superblock of eight rows to sum[t] for nt tokens. With weights in L2, one
// row takes 5.9 ns for Q4_K, 6.5 for Q4_0, 8.0 for Q8_0, 9.5 for Q6_K and 18 to 28 for codebook
// types; with two tokens, 9.8 for Q4_K and 15 for Q6_K (Zen 4, 2026-11-23).
INLINE void gemv_8_rows(__m256 *sum, Avx2Rows *m, const uint8_t *const *p, const uint8_t *next,
                        const Int8Activations *x, int n_cols, int nt, Type type) {
    const bool is_in_place = decodes_in_place(type);
    const int size = superblock_bytes(type);
    unpack_8_rows(m, p, n_cols, is_in_place, type);
    __asm__ volatile("" ::: "memory"); // else gcc 12 keeps minima in registers and spills the sums

    if (is_in_place)
#pragma GCC unroll 8
        for (int k = 0; k < SUPERBLOCK; k += 32) {
            if (k >= n_cols) break;
            prefetch_bytes(next + k / 32 * size, size);
            sum[0] = gemv_32_columns(sum[0], m, p, true, x, k, type);
            if (nt == 2) sum[1] = gemv_32_columns(sum[1], m, p, true, x + 1, k, type);
        }
    else
        for (int t = 0; t < nt; t++)
#pragma GCC unroll 1
            for (int k = 0; k < SUPERBLOCK; k += 32) {
                if (t == 0) prefetch_bytes(next + k / 32 * size, size);
                sum[t] = gemv_32_columns(sum[t], m, p, false, x + t, k, type);
            }
}

// Multiplies eight rows at a time by tokens [first, first + nt). nt is 1 or 2.
INLINE void gemv_tokens(const Matmul *p, int first, int nt, Type type) {
    const uint8_t *end = matrix_row(p->w, p->w->rows);
    Avx2Rows m;

    for (int r = p->row_begin; r < p->row_end; r += 8) {
        const Int8Activations *x = (const Int8Activations *)p->encoded + first;
        __m256 sum[2] = {splat(0), splat(0)};
        const uint8_t *row[8], *next = matrix_row(p->w, r + 8);

        superblock_rows(row, 8, p->w, r, p->row_end, 0, type);
        for (int k = 0; k < p->w->cols; k += SUPERBLOCK, x += p->n_tokens) {
            superblock_pad(row, 8, m.padded, end, p->w->cols - k, type);
            gemv_8_rows(sum, &m, row, next, x, p->w->cols - k, nt, type);
            for (int i = 0; i < 8; i++) row[i] += superblock_bytes(type);
            next += 8 * superblock_bytes(type);
        }

        for (int t = 0; t < nt; t++)
            store_n(p->out + (size_t)(first + t) * p->out_stride + r, p->row_end - r, sum[t]);
    }
}

// If decode works in place, two tokens share the unpacked integers. nt is then a constant, so that
// the sums stay in registers.
INLINE void gemv_rows(const Matmul *p, Type type) {
    for (int t = 0; t < p->n_tokens; t += 2) {
        const int nt = min_int(p->n_tokens - t, 2);
        if (!decodes_in_place(type))
            gemv_tokens(p, t, nt, type);
        else if (nt == 2)
            gemv_tokens(p, t, 2, type);
        else
            gemv_tokens(p, t, 1, type);
    }
}

// GEMM: 64 rows times 512 tokens at a time. Their sums (128 KiB) and the activations of 256 columns
// (180 KiB) stay in L2; a panel of 16 rows (6 KiB) is multiplied by all tokens while it is in L1.

typedef struct {
    float sums[GEMM_CHUNK_TOKENS][GEMM_CHUNK_ROWS];
    Avx2Rows panel[2]; // 16 rows
} Avx2GemmMemory;

_Static_assert(sizeof(Avx2GemmMemory) <= KERNEL_SCRATCH, "fits");

// Adds the products of the panel of row r with tokens [token, token + nt) of the chunk to their
// sums (nt, GEMM_CHUNK_ROWS), for one block of columns. For 32 columns of 4-bit weights, 8 rows and
// a token: 8 products, 8 additions (none with AVX-VNNI) and 4 operations to scale them.
//
// The limits are registers and loads: 6 tokens x 2 vectors of rows are 12 sums, which with two
// vectors of weights, a broadcast of four activations and a product take all 16 registers. With one
// vector of rows, each product would need a broadcast of its own (Q4_K 1.21, Q6_K 1.10 times slower
// on Zen 4, 2026-11-23).
INLINE void gemm_panel_tile(GemmStep *s, int r, int token, int nt, int group, int n_int16,
                            bool has_min) {
    Avx2GemmMemory *m = s->memory;
    const Avx2Rows *w = m->panel;
    const Int8Activations *x = (const Int8Activations *)s->x + token;
    Prefetch *prefetch = s->prefetch;
    const int n_prefetch = s->n_prefetch;
    const bool is_first = s->k == 0;
    float *sums = m->sums[token] + r;
    const char *next_x = (const char *)(x + nt);
    __m256 sum[GEMM_TILE_TOKENS][2];

#pragma GCC unroll 6
    for (int t = 0; t < nt; t++)
        for (int h = 0; h < 2; h++)
            sum[t][h] = is_first ? splat(0) : _mm256_load_ps(sums + t * GEMM_CHUNK_ROWS + 8 * h);

    for (int g = 0; g < SUPERBLOCK / group; g++) {
        GroupDot d[GEMM_TILE_TOKENS][2];
        prefetch_lines(prefetch, n_prefetch);
        next_x = prefetch_activations(next_x, group);

        // Multiply four columns of 16 rows by the same columns of each token.
#pragma GCC unroll 8
        for (int c = 0; c < group / 4; c++) {
            const int k = g * group + 4 * c;
            __m256i q[2] = {_mm256_load_si256((const __m256i *)(w[0].panel + k * 8)),
                            _mm256_load_si256((const __m256i *)(w[1].panel + k * 8))};
#pragma GCC unroll 6
            for (int t = 0; t < nt; t++) {
                __m256i four = _mm256_set1_epi32((int)load_u32(x[t].q + k));
#pragma GCC unroll 2
                for (int h = 0; h < 2; h++)
                    add_products(&d[t][h], q[h], four, c, n_int16, x[t].start[g]);
            }
        }

#pragma GCC unroll 6
        for (int t = 0; t < nt; t++)
#pragma GCC unroll 2
            for (int h = 0; h < 2; h++)
                sum[t][h] =
                    add_group_8_rows(sum[t][h], d[t][h].dot, w + h, x + t, g, group, has_min);
    }

#pragma GCC unroll 6
    for (int t = 0; t < nt; t++)
        for (int h = 0; h < 2; h++) _mm256_store_ps(sums + t * GEMM_CHUNK_ROWS + 8 * h, sum[t][h]);
}

// Multiplies a panel by any number of tokens. Types of the same group and n_int16 share the code if
// all or none of them have minima (AVX-VNNI: n_int16 0 or 1).
typedef void (*Avx2Panel)(GemmStep *s, int r, int first, int n_tokens);

#define PANEL_TILE(nt, ...) gemm_panel_tile(s, r, first + t, nt, __VA_ARGS__)
#define DEFINE_PANEL(name, ...)                                                                    \
    static void name(GemmStep *s, int r, int first, int n_tokens) {                                \
        FOR_TOKEN_TILES(n_tokens, PANEL_TILE, __VA_ARGS__)                                         \
    }
DEFINE_PANEL(panel_16_1, 16, 1, false)
DEFINE_PANEL(panel_32_0, 32, 0, false)
DEFINE_PANEL(panel_32_1, 32, 1, false)
#ifdef __AVXVNNI__
DEFINE_PANEL(panel_16_1_min, 16, 1, true)
DEFINE_PANEL(panel_32_1_min, 32, 1, true)

static const Avx2Panel panels[2][2][2] = {{[1] = {panel_16_1, panel_16_1_min}},
                                          {{panel_32_0}, {panel_32_1, panel_32_1_min}}};
#else
DEFINE_PANEL(panel_16_2, 16, 2, false)
DEFINE_PANEL(panel_16_4, 16, 4, false)
DEFINE_PANEL(panel_16_4_min, 16, 4, true)
DEFINE_PANEL(panel_32_4, 32, 4, false)
DEFINE_PANEL(panel_32_4_min, 32, 4, true)
DEFINE_PANEL(panel_32_8, 32, 8, false)
DEFINE_PANEL(panel_32_8_min, 32, 8, true)

// By group of 16 or 32, n_int16, and whether there are minima.
static const Avx2Panel panels[2][9][2] = {
    {[1] = {panel_16_1}, [2] = {panel_16_2}, [4] = {panel_16_4, panel_16_4_min}},
    {{panel_32_0},
     {panel_32_1},
     [4] = {panel_32_4, panel_32_4_min},
     [8] = {panel_32_8, panel_32_8_min}}};
#endif

// One line is prefetched for each row that is unpacked. The other lines are spread evenly over the
// groups of columns that are multiplied.
INLINE void gemm_begin(GemmStep *s, Type type) {
    int n_tiles = GEMM_CHUNK_ROWS / 16 * div_up(s->n, GEMM_TILE_TOKENS),
        n_groups = n_tiles * SUPERBLOCK / type_info(type)->group;
    *s->prefetch = prefetch_next_rows(s->p->w, s->row, GEMM_CHUNK_ROWS, s->k, SUPERBLOCK, 3);
    s->n_prefetch = div_up(s->prefetch->n_lines - GEMM_CHUNK_ROWS, n_groups);
}

INLINE void gemm_pack(GemmStep *s, int r, Type type) {
    Avx2Rows *m = ((Avx2GemmMemory *)s->memory)->panel;
    const uint8_t *end = matrix_row(s->p->w, s->p->w->rows);
    for (int h = 0; h < 2; h++, m++, r += 8) {
        const uint8_t *p[8];
        prefetch_lines(s->prefetch, 8);
        superblock_rows(p, 8, s->p->w, s->row + r, s->p->row_end, s->k, type);
        superblock_pad(p, 8, m->padded, end, s->n_cols, type);
        const bool is_interleaved = interleave_rows(type, p, (__m256i *)m->panel);
        unpack_8_rows(m, p, s->n_cols, is_interleaved, type);
        if (!is_interleaved)
            transpose_dwords(m->panel, sizeof(Integers), m->rows, sizeof m->rows[0], SUPERBLOCK / 4,
                             1);
    }
}

INLINE void gemm_multiply(GemmStep *s, int r, int t, int n, Type type) {
    const TypeInfo *info = type_info(type);
    const int n_int16 = IS_VNNI ? min_int(int16_sums(type), 1) : int16_sums(type);
    panels[info->group == 32][n_int16][info->has_min](s, r, t, n);
}

INLINE void gemm_rows(const Matmul *p, Type type) {
    gemm(p,
         (GemmPlan){.chunk_rows = GEMM_CHUNK_ROWS,
                    .chunk_tokens = GEMM_CHUNK_TOKENS,
                    .block_cols = SUPERBLOCK,
                    .panel_rows = 16,
                    .token_bytes = sizeof(Int8Activations),
                    .begin = gemm_begin,
                    .pack = gemm_pack,
                    .multiply = gemm_multiply,
                    .store = float_gemm_store},
         type);
}

static void encode(void *encoded, const float *x, int n_tokens, int cols, int begin, int end,
                   Type type) {
    encode_int8(encoded, x, n_tokens, cols, begin, end, type_info(type)->group,
                stored_zero_point(type));
}

#define DEFINE_TYPE(type, name, ...)                                                               \
    static void int8_encode_##name(void *encoded, const float *x, int n_tokens, int cols,          \
                                   int begin, int end) {                                           \
        encode(encoded, x, n_tokens, cols, begin, end, TYPE_##type);                               \
    }                                                                                              \
    DEFINE_ROWS(type, name, gemv, gemv_rows)                                                       \
    DEFINE_ROWS(type, name, gemm, gemm_rows)
INTEGER_TYPES(DEFINE_TYPE, )

static void attend(const AttentionPage *a) { attend_with(a, float_scores, float_values); }

// Measures the peak of integer products: runs the instructions of a GEMM with 4-bit weights,
// without its loads. Returns the number of operations.
static double avx2_peak(int rounds) {
    __m256i w = _mm256_set1_epi8((char)rounds), sum = w;
    for (int i = 0; i < rounds; i++) {
        GroupDot d[6];
#pragma GCC unroll 8
        for (int c = 0; c < 8; c++)
#pragma GCC unroll 6
            for (int j = 0; j < 6; j++) {
                __asm__("" : "+x"(w)); // else products are computed once
                add_products(&d[j], w, w, c, 8, 0);
            }
        for (int j = 0; j < 6; j++) sum = _mm256_xor_si256(sum, d[j].dot);
    }

    volatile int keep = _mm256_extract_epi32(sum, 0);
    (void)keep;
    return 6 * 8 * 64.0 * rounds;
}

// GEMV_ROWS: threads get rows in multiples of this, so that the vectors of decode are full.
// GEMM_TOKENS, FLOAT_GEMM_TOKENS: number of tokens from which GEMM is faster than decode. Time of
// GEMM / time of decode:
//
//   Zen 4, weights in L2, 2026-11-23   2 tokens: Q4_K 1.11, Q6_K 1.08, Q8_0 1.25
//                                      3 tokens: Q4_K 0.85, Q6_K 0.75, Q8_0 0.98
//   Sapphire Rapids, 2026-11-21        8 tokens: F16 1.6; 12 tokens: F16 0.63
enum { GEMV_ROWS = 16, GEMM_TOKENS = 3, FLOAT_GEMM_TOKENS = 12 };

#define INT8_KERNEL(type, name, kind, tokens, rows_step, exact)                                    \
    KERNEL(type, name, kind, int8, name, tokens, rows_step, 1, exact)

// clang-format off
const Kernels kernels_avx2 = {
    .name = IS_VNNI ? "avxvnni" : "avx2",
    .gemv = {FLOAT_TYPES(KERNEL, gemv, float, rows, 1, GEMV_ROWS, 1, false)
            INTEGER_TYPES(INT8_KERNEL, gemv, 1, GEMV_ROWS, false)},
    .gemm = {FLOAT_TYPES(KERNEL, gemm, float, blocks, FLOAT_GEMM_TOKENS, GEMM_CHUNK_ROWS, 1, false)
             INTEGER_TYPES(INT8_KERNEL, gemm, GEMM_TOKENS, 16, true)},
    .rmsnorm = IF_PART(0, vector_rmsnorm),
    .swiglu = IF_PART(0, vector_swiglu),
    .add = IF_PART(0, vector_add),
    .attend = IF_PART(0, attend),
    .attend_many = IF_PART(IS_VNNI ? 2 : 0, int16_attend_many),
    .attend_many_above = INT16_ABOVE,
    .store = IF_PART(0, vector_store),
    .peak_unit = IS_VNNI ? "VNNI int8" : "AVX2 int8",
    .peak = IF_PART(2, avx2_peak),
};
// clang-format on
