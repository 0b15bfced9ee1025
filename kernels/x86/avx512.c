// AVX-512 (F, BW, DQ, VL) with VNNI.
//
// Integer types are multiplied by int8 activations with VNNI's vpdpbusd, 16 rows at a time. Decode
// transposes the dot products of 16 rows (gemv_16_rows). Small batches transpose the integers of 16
// rows in registers. GEMM packs two groups of 16 rows into a panel. F32, F16 and BF16 are
// multiplied by float32 activations (matmul_float.h). Attention of few queries is float32
// (attention_float.h), with faster kernels for float16 and Q8_0 caches; that of many queries has
// 16-bit integers (attention_int16.h).
//
// Order of sums. All kernels of integer types add as docs/numerics.md says: a row has one sum, to
// which its groups of columns are added in ascending order. The bits of a token therefore do not
// depend on the batch, and are those of AVX2.
//
// Unsigned times signed. vpdpbusd multiplies unsigned bytes by signed bytes and adds four products
// to an int32, without saturation. Weights are stored as unsigned u = w + offset, and the sum
// starts at -offset * q, which is computed when the activations are encoded. The result is exact:
// sum(u x) - offset * sum(x) = sum(w x). The sum also starts at BASE_BITS, so it needs no
// conversion to float (scale_based_dot).
#define VECTOR_BITS 512
#include "kernels/x86/avx512_unpack.h"
#include "kernels/x86/attention_int16.h"

enum {
    K_BLOCK = 512, // columns of a block of activations: two superblocks
    PANEL_ROWS = 32
};

// The activations of a token and K_BLOCK columns. For each block of columns, the tokens follow each
// other. Types with groups of 16 use both starts and sums for each 32 columns; the others use the
// first.
typedef struct {
    int8_t q[K_BLOCK];
    float scale[K_BLOCK / 32];
    int32_t start[2][K_BLOCK / 32]; // BASE_BITS - offset * sum of q
    float sum[2][K_BLOCK / 32];     // scale * sum of q
} VnniActivations;

static size_t vnni_bytes(int n_tokens, int cols) {
    return (size_t)n_tokens * (size_t)round_up(cols, K_BLOCK) / K_BLOCK * sizeof(VnniActivations);
}

// The columns are in their order or, for decode of codebook types, in pairs (avx512_codebook.h).
static void vnni_encode(void *encoded, const float *x, int n_tokens, int cols, int token_begin,
                        int token_end, Type type, bool in_pairs) {
    const int group = type_info(type)->group, offset = type_info(type)->zero_point;

    for (int t = token_begin; t < token_end; t++) {
        const float *row = x + (size_t)t * (size_t)cols;

        for (int k = 0; k < n_superblocks(cols) * SUPERBLOCK; k += 32) {
            VnniActivations *a =
                (VnniActivations *)encoded + (size_t)(k / K_BLOCK) * (size_t)n_tokens + t;
            const int at = k % K_BLOCK / 32;
            int8_t columns[32], *q = a->q + k % K_BLOCK;
            int sums[2];

            a->scale[at] = quantize_int8(row + k, cols - k, 2, in_pairs ? columns : q, sums);
            if (in_pairs) store_pairs(q - k % SUPERBLOCK, k % SUPERBLOCK, columns);
            if (group == 32) sums[0] += sums[1];

            for (int i = 0; i < 2; i++) {
                a->start[i][at] = BASE_BITS - offset * sums[i];
                a->sum[i][at] = a->scale[at] * (float)sums[i];
            }
        }
    }
}

// The activations of a token for superblock b: the first or second half of the columns.
INLINE const VnniActivations *activations_at(const Matmul *p, int token, int b) {
    return (const VnniActivations *)p->encoded + (size_t)(b / 2) * (size_t)p->n_tokens + token;
}

// Adds a dot product times its scales, and subtracts its minimum. `dot` is the dot product plus
// BASE_BITS.
INLINE __m512 add_scaled(__m512 sum, __m512i dot, __m512 scale, __m512 x_scale, __m512 min,
                         __m512 x_sum, bool has_min) {
    sum = fmadd(scale_based_dot(dot, scale), x_scale, sum);
    return has_min ? fnmadd(min, x_sum, sum) : sum;
}

// Decode.
//
// 16 neighboring rows are computed together. Each row is multiplied by the activations as it is
// stored, then the dot products of its groups are transposed, so that a register has one group of
// all 16 rows.
//
// vpdpbusd leaves sums of four columns in each dword: 64 columns of a row are 16 dwords. Two rounds
// of adding neighbors across four rows a to d turn four such registers into one:
//
//     lane (128 bits) i of a row      columns 16 i + {0-3, 4-7, 8-11, 12-15}
//     after two rounds, lane i        columns [16 i, 16 i + 16) of rows {a, b, c, d}
//
// Four such registers are 16 rows. A transposition of their lanes gives, for each 16 of the 64
// columns, a register with the dot products of all rows.
//
// Codebook types need no rounds: their integers and activations are in pairs (avx512_codebook.h),
// so that dword i of all registers has columns [16 i, 16 i + 16). Their products are scaled before
// they are transposed, because that is the order of their unpacked scales (gemv_codebook_rows).

// {a0 + a1, a2 + a3, b0 + b1, b2 + b3} of each lane; takes fewer steps if int16 holds a and b.
INLINE __m512i add_neighbors(__m512i a, __m512i b, bool is_int16) {
    if (is_int16) return _mm512_madd_epi16(_mm512_packs_epi32(a, b), _mm512_set1_epi16(1));
    __m512 x = (__m512)a, y = (__m512)b;
    return _mm512_add_epi32((__m512i)_mm512_shuffle_ps(x, y, 0x88),
                            (__m512i)_mm512_shuffle_ps(x, y, 0xdd));
}

// Lane i of out[j] becomes lane j of in[i].
INLINE void exchange_lanes(__m512i out[4], const __m512i in[4]) {
    __m512i a = _mm512_shuffle_i32x4(in[0], in[1], 0x44);
    __m512i b = _mm512_shuffle_i32x4(in[0], in[1], 0xee);
    __m512i c = _mm512_shuffle_i32x4(in[2], in[3], 0x44);
    __m512i d = _mm512_shuffle_i32x4(in[2], in[3], 0xee);
    out[0] = _mm512_shuffle_i32x4(a, c, 0x88);
    out[1] = _mm512_shuffle_i32x4(a, c, 0xdd);
    out[2] = _mm512_shuffle_i32x4(b, d, 0x88);
    out[3] = _mm512_shuffle_i32x4(b, d, 0xdd);
}

// Dword i of the result is the dot product of columns [16 i, 16 i + 16) in pairs.
INLINE __m512i dot_pairs(const Avx512Row *u, const int8_t *q) {
    __m512i d = _mm512_setzero_si512();
#pragma GCC unroll 4
    for (int n = 0; n < 4; n++) d = _mm512_dpbusd_epi32(d, u->q[n], _mm512_load_si512(q + 64 * n));
    return d;
}

enum {
    GEMV_Q8_0_BLOCKS = 64, // superblocks of a row that gemv_q8_0_tokens takes at a time
    GEMV_Q8_0_AHEAD = 8192 // bytes that it prefetches ahead
};

typedef struct {
    ScaleBytes scales;                  // if has_scale_bytes()
    float scale[SUPERBLOCK_GROUPS][16]; // of the others: of each group and row
    float min[SUPERBLOCK_GROUPS][16];   // likewise
    uint8_t padded[16][SUPERBLOCK_MAX_BYTES];
    uint8_t trits[16][SUPERBLOCK]; // integers of TQ1_0
    float product[2][2][8][16];    // codebook types: [token][half][two rows], scaled
    // Q8_0: products of [token][superblock][even or odd blocks][row 4 i + n at 4 n + i][4 blocks]
    float q8_0[2][GEMV_Q8_0_BLOCKS][2][16][4];
} __attribute__((aligned(64))) GemvMemory;

_Static_assert(sizeof(GemvMemory) <= KERNEL_SCRATCH, "fits");

// A superblock of 16 rows and the activations of up to two tokens.
typedef struct {
    GemvMemory *memory;
    const uint8_t *row[16];
    const VnniActivations *x;
    int superblock;      // 0 or 1 within x
    int n_cols;          // columns from this superblock on
    const uint8_t *next; // as many bytes of the following 16 rows, to prefetch
} GemvRows;

// Adds the dot products of a group of 16 rows with a token to their sums. `half` is 1 for the
// second 16 of 32 columns that are two groups. Integer scales are converted here: stored as floats
// and loaded again, they took 0.6 to 0.9 ns per superblock and row (in caches, see gemv_16_rows).
INLINE __m512 gemv_add_group(__m512 sum, __m512i dot, const GemvRows *g, const VnniActivations *x,
                             int group, int half, Type type) {
    const TypeInfo *info = type_info(type);
    const int at = g->superblock * (SUPERBLOCK / 32) + group * info->group / 32;
    const GemvMemory *m = g->memory;
    const __m512 x_scale = splat(x->scale[at]), x_sum = splat(x->sum[half][at]);
    __m512 scale, min;

    if (has_scale_bytes(type)) {
        scale = scale_of_group(type, &m->scales, group);
        min = min_of_group(type, &m->scales, group);
    } else {
        scale = _mm512_load_ps(m->scale[group]);
        min = _mm512_load_ps(m->min[group]);
    }

    // Without a zero point, a conversion is faster than the sum with BASE_BITS.
    if (info->zero_point == 0) {
        sum = fmadd(_mm512_cvtepi32_ps(dot) * scale, x_scale, sum);
        return info->has_min ? fnmadd(min, x_sum, sum) : sum;
    }
    dot = _mm512_add_epi32(dot, _mm512_set1_epi32(x->start[half][at]));
    return add_scaled(sum, dot, scale, x_scale, min, x_sum, info->has_min);
}

// Adds the products of columns [32 i, 32 i + 32) of the superblock to the sums of 16 rows. `first`
// and `second` are the dot products of 16 columns each.
INLINE __m512 gemv_add(__m512 sum, const GemvRows *g, const VnniActivations *x, __m512i first,
                       __m512i second, int i, Type type) {
    if (type_info(type)->group == 32)
        return gemv_add_group(sum, _mm512_add_epi32(first, second), g, x, i, 0, type);
    sum = gemv_add_group(sum, first, g, x, 2 * i, 0, type);
    return gemv_add_group(sum, second, g, x, 2 * i + 1, 1, type);
}

// Lane i of the result is lane `from` of p[i].
INLINE __m512 load_lanes(float (*p)[16], int from) {
    __m512 v = _mm512_castps128_ps512(_mm_load_ps(p[0] + 4 * from));
    v = _mm512_insertf32x4(v, _mm_load_ps(p[1] + 4 * from), 1);
    v = _mm512_insertf32x4(v, _mm_load_ps(p[2] + 4 * from), 2);
    return _mm512_insertf32x4(v, _mm_load_ps(p[3] + 4 * from), 3);
}

// Transposes the products of a superblock and a token (drawn at gemv_codebook_rows) and adds them
// to the sums of 16 rows. x_scale holds the scales of each 32 activations.
INLINE __m512 add_products(__m512 sum, float (*product)[8][16], const float *x_scale, int halves) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        __m512 low[2], high[2];
        for (int h = 0; h < halves; h++) {
            low[h] = load_lanes(product[h], i);
            high[h] = load_lanes(product[h] + 4, i);
        }
        for (int h = 0; h < halves; h++)
            sum = fmadd(_mm512_shuffle_ps(low[h], high[h], 0x88), splat(x_scale[2 * i]), sum);
        for (int h = 0; h < halves; h++)
            sum = fmadd(_mm512_shuffle_ps(low[h], high[h], 0xdd), splat(x_scale[2 * i + 1]), sum);
    }
    return sum;
}

// Multiplies a superblock of 16 rows of a codebook type by nt tokens. The products of two rows a
// and b share a register, or two with groups of 16:
//
//     lane (128 bits) i, one register         columns [64 i, + 32), [64 i + 32, + 32) of a, then b
//     lane (128 bits) i, register h of two    columns [64 i + 16 h, + 16), [64 i + 32 + 16 h, + 16)
//                                             of a, then b
//
// Rows 4 i and 4 i + 1 are in slot i, rows 4 i + 2 and 4 i + 3 in slot i + 4. A lane of four slots
// is loaded as one register; a shuffle of two of these has 16 rows in order.
INLINE void gemv_codebook_rows(__m512 *sum, const GemvRows *g, int nt, Type type) {
    const int at = g->superblock * (SUPERBLOCK / 32), halves = 32 / type_info(type)->group;
    const __m512i of_two_rows = _mm512_setr_epi64(0, 0, 1, 1, 2, 2, 3, 3);
    GemvMemory *m = g->memory;
    __m512i start[2][2];

    for (int t = 0; t < nt; t++)
        for (int h = 0; h < halves; h++)
            start[t][h] = _mm512_permutexvar_epi64(
                of_two_rows, _mm512_castsi256_si512(load_32(g->x[t].start[h] + at)));

#pragma GCC unroll 1
    for (int i = 0; i < 16; i += 4) {
        // Four rows at a time. Stores follow all loads of the codebook, so that the compiler can
        // load it once for all four (IQ3_S: 0.92 of the time, Zen 5, 2026-11-28).
        __m512 product[2][2][2]; // [pair][token][half]
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) {
            Avx512Row u[2];
            unpack_two_decode_rows(u, type, g->row[i + 2 * j], g->row[i + 2 * j + 1]);

            for (int t = 0; t < nt; t++) {
                const int8_t *q = g->x[t].q + g->superblock * SUPERBLOCK;
                const __m512 a = (__m512)dot_pairs(&u[0], q), b = (__m512)dot_pairs(&u[1], q);
                __m512i dot[2] = {(__m512i)_mm512_shuffle_ps(a, b, 0x88),
                                  (__m512i)_mm512_shuffle_ps(a, b, 0xdd)};
                if (halves == 1) dot[0] = _mm512_add_epi32(dot[0], dot[1]);
                dot[0] = _mm512_add_epi32(dot[0], start[t][0]);
                product[j][t][0] =
                    scale_based_dot(dot[0], _mm512_shuffle_ps(u[0].scale, u[1].scale, 0x88));
                if (halves == 1) continue;
                dot[1] = _mm512_add_epi32(dot[1], start[t][1]);
                product[j][t][1] =
                    scale_based_dot(dot[1], _mm512_shuffle_ps(u[0].scale, u[1].scale, 0xdd));
            }
        }

        for (int j = 0; j < 2; j++)
            for (int t = 0; t < nt; t++)
                for (int h = 0; h < halves; h++)
                    _mm512_store_ps(m->product[t][h][i / 4 + 4 * j], product[j][t][h]);
        prefetch_bytes(g->next + i * superblock_bytes(type), 4 * superblock_bytes(type));
    }

    for (int t = 0; t < nt; t++)
        sum[t] = add_products(sum[t], m->product[t], g->x[t].scale + at, halves);
}

// Multiplies a superblock of 16 rows of any other type by nt tokens, 128 columns at a time. For
// each row: 2 dot products of 64 bytes, 1.5 additions of neighbors, and half a shuffle; for 16 rows
// and a group, 3 or 4 operations to scale it. With weights in L2, one row and token take 3.1 ns for
// Q4_K, 3.4 for Q2_K, and 3.8 for Q5_K and Q6_K (Zen 5, 2026-11-29).
INLINE void gemv_16_rows(__m512 *sum, const GemvRows *g, int nt, Type type) {
    const int most = 127 * 4 * type_info(type)->max_q; // of four products
    // Times 64 columns. Rows of Q8_0 that come here end within a superblock (gemv_q8_0_tokens).
    const int step = type == TYPE_Q8_0 ? 1 : 2;
    const int n_steps = min_int(4 / step, div_up(g->n_cols, 64 * step));
    GemvMemory *m = g->memory;

    if (has_scale_bytes(type))
        unpack_scale_bytes(type, g->row, &m->scales);
    else
        unpack_scales(type, g->row, g->n_cols, m->scale, m->min);
    if (type == TYPE_TQ1_0)
        for (int i = 0; i < 16; i++)
            integers_tq1_0((__m256i *)m->trits[i], (const void *)g->row[i]);

#pragma GCC unroll 1
    for (int s = 0; s < n_steps; s++) {
        const int first = step * s;
        __m512i quads[2][2][4]; // [token][64 columns]: lane i of register n: columns [16 i, + 16)
                                // of rows 4 n to 4 n + 3

#pragma GCC unroll 1
        for (int n = 0; n < 4; n++) {
            __m512i dot[2][2][4];
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++)
#pragma GCC unroll 2
                for (int j = 0; j < step; j++) {
                    const int k = 64 * (first + j);
                    __m512i u = type == TYPE_TQ1_0
                                    ? _mm512_load_si512(m->trits[4 * n + i] + k)
                                    : integers_64(type, g->row[4 * n + i], first + j);
#pragma GCC unroll 2
                    for (int t = 0; t < nt; t++)
                        dot[t][j][i] = _mm512_dpbusd_epi32(
                            _mm512_setzero_si512(), u,
                            _mm512_load_si512(g->x[t].q + g->superblock * SUPERBLOCK + k));
                }

#pragma GCC unroll 2
            for (int t = 0; t < nt; t++)
#pragma GCC unroll 2
                for (int j = 0; j < step; j++)
                    quads[t][j][n] = add_neighbors(
                        add_neighbors(dot[t][j][0], dot[t][j][1], most < 32768),
                        add_neighbors(dot[t][j][2], dot[t][j][3], most < 32768), 2 * most < 32768);
            prefetch_bytes(g->next + (4 * first + step * n) * superblock_bytes(type),
                           step * superblock_bytes(type));
        }

#pragma GCC unroll 2
        for (int t = 0; t < nt; t++)
#pragma GCC unroll 2
            for (int j = 0; j < step; j++) {
                const int i = 2 * (first + j);
                __m512i columns[4]; // 16 columns of 16 rows
                exchange_lanes(columns, quads[t][j]);
                sum[t] = gemv_add(sum[t], g, g->x + t, columns[0], columns[1], i, type);
                sum[t] = gemv_add(sum[t], g, g->x + t, columns[2], columns[3], i + 1, type);
            }
    }
}

// Computes the rows [r, r + 16) for tokens [first, first + nt).
INLINE void gemv_tokens(const Matmul *p, int r, int first, int nt, Type type) {
    GemvRows g = {.memory = team_scratch(), .x = (const VnniActivations *)p->encoded + first};
    __m512 sum[2] = {splat(0), splat(0)};

    superblock_rows(g.row, 16, p->w, r, p->row_end, 0, type);
    g.next = matrix_row(p->w, r + 16);
    const uint8_t *end = matrix_row(p->w, p->w->rows);
    for (int k = 0; k < p->w->cols; k += SUPERBLOCK) {
        g.superblock = k % K_BLOCK / SUPERBLOCK;
        g.n_cols = p->w->cols - k;
        superblock_pad(g.row, 16, g.memory->padded, end, g.n_cols, type);
        if (codebook_info(type)->entry_len)
            gemv_codebook_rows(sum, &g, nt, type);
        else
            gemv_16_rows(sum, &g, nt, type);
        for (int i = 0; i < 16; i++) g.row[i] += superblock_bytes(type);
        g.next += 16 * superblock_bytes(type);
        g.x += g.superblock ? p->n_tokens : 0;
    }

#pragma GCC unroll 2
    for (int t = 0; t < nt; t++)
        store_n(p->out + (size_t)(first + t) * p->out_stride + r, p->row_end - r, sum[t]);
}

// Decode of Q8_0. The 16 rows of gemv_tokens and the next 16 would not fit into L1. Here, row after
// row is multiplied by the activations and scaled, as it is stored; then the products of 16 rows
// are transposed. Memory is read in the order of addresses, too, and prefetched a short distance
// ahead. Time / time of gemv_tokens: 0.85 in caches; from memory, with 2,048 and 8,192 columns,
// 0.84 and 0.91 in one thread, 0.83 and 0.93 in two (Zen 5, 2026-11-29).

// Multiplies a superblock of a row by a token. Float j of lane 0 is the product of block 2 j, that
// of lane 2 the product of block 2 j + 1.
INLINE __m512 multiply_q8_0(const __m512i q[4], __m512 scale, const VnniActivations *x,
                            int superblock) {
    const __m512i even_then_odd = _mm512_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6, 1, 3, 5, 7, 1, 3, 5, 7);
    const __m512i start = _mm512_permutexvar_epi32(
        even_then_odd, _mm512_castsi256_si512(load_32(x->start[0] + 8 * superblock)));
    __m512i dot[4];

#pragma GCC unroll 4
    for (int j = 0; j < 4; j++)
        dot[j] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), q[j],
                                     _mm512_load_si512(x->q + SUPERBLOCK * superblock + 64 * j));

    // Dword j of lane i: columns [64 j + 16 i, + 16), then the block that contains them.
    __m512i sum = add_neighbors(add_neighbors(dot[0], dot[1], false),
                                add_neighbors(dot[2], dot[3], false), false);
    sum = _mm512_add_epi32(sum, _mm512_shuffle_i32x4(sum, sum, 0xb1));
    return scale_based_dot(_mm512_add_epi32(sum, start), scale);
}

// As gemv_tokens. Rows must be whole superblocks.
INLINE void gemv_q8_0_tokens(const Matmul *p, int r, int first, int nt) {
    GemvMemory *m = team_scratch();
    const int size = superblock_bytes(TYPE_Q8_0), n_blocks = p->w->cols / SUPERBLOCK;
    __m512 sum[2] = {splat(0), splat(0)};

    for (int begin = 0; begin < n_blocks; begin += GEMV_Q8_0_BLOCKS) {
        const int end = min_int(begin + GEMV_Q8_0_BLOCKS, n_blocks);

#pragma GCC unroll 1
        for (int i = 0; i < 16; i++) {
            const uint8_t *row = matrix_row(p->w, min_int(r + i, p->row_end - 1));
            for (int b = begin; b < end; b++) {
                __m512i q[4];
                __m512 scale;
                prefetch_bytes(row + b * size + GEMV_Q8_0_AHEAD, size);
                unpack_q8_0(q, &scale, row + b * size);
#pragma GCC unroll 2
                for (int t = 0; t < nt; t++) {
                    float(*out)[16][4] = m->q8_0[t][b - begin];
                    __m512 v = multiply_q8_0(q, scale, activations_at(p, first + t, b), b % 2);
                    _mm_store_ps(out[0][i % 4 * 4 + i / 4], _mm512_castps512_ps128(v));
                    _mm_store_ps(out[1][i % 4 * 4 + i / 4], _mm512_extractf32x4_ps(v, 2));
                }
            }
        }

        for (int b = begin; b < end; b++)
#pragma GCC unroll 2
            for (int t = 0; t < nt; t++) {
                const float *x_scale = activations_at(p, first + t, b)->scale + b % 2 * 8;
                __m512i product[2][4]; // [odd][j]
                for (int h = 0; h < 2; h++)
                    transpose_lanes(product[h], (const __m512i *)m->q8_0[t][b - begin][h]);
#pragma GCC unroll 8
                for (int i = 0; i < 8; i++)
                    sum[t] = fmadd((__m512)product[i % 2][i / 2], splat(x_scale[i]), sum[t]);
            }
    }

#pragma GCC unroll 2
    for (int t = 0; t < nt; t++)
        store_n(p->out + (size_t)(first + t) * p->out_stride + r, p->row_end - r, sum[t]);
}

// Takes tokens in pairs, which share the unpacked integers.
INLINE void gemv_rows(const Matmul *p, Type type) {
    const bool is_whole_q8_0 = type == TYPE_Q8_0 && p->w->cols % SUPERBLOCK == 0;
    for (int r = p->row_begin; r < p->row_end; r += 16)
        for (int t = 0; t < p->n_tokens; t += 2) {
            const int nt = min_int(p->n_tokens - t, 2);
            if (is_whole_q8_0)
                nt == 2 ? gemv_q8_0_tokens(p, r, t, 2) : gemv_q8_0_tokens(p, r, t, 1);
            else
                nt == 2 ? gemv_tokens(p, r, t, 2, type) : gemv_tokens(p, r, t, 1, type);
        }
}

// GEMM and the kernel of small batches transpose the integers of 16 rows, so that a register has
// has 4 columns of 16 rows. vpdpbusd multiplies it by one dword of activations, which is broadcast.

// Integers of 32 columns from k on: q[c] has columns k + 4 c to k + 4 c + 3 of 16 rows, unsigned.
typedef void (*ColumnsFn)(void *arg, const __m512i q[8], int k);

// Extracts a field of `bits` bits of each byte, from bit `from` on, and places it at bit `to`.
INLINE __m512i field(__m512i v, int bits, int from, int to) {
    if (from > to) v = _mm512_srli_epi16(v, (unsigned)(from - to));
    if (from < to) v = _mm512_slli_epi16(v, (unsigned)(to - from));
    return v & _mm512_set1_epi8((char)(((1 << bits) - 1) << to));
}

// Transposes 32 bytes of 16 rows.
INLINE void transpose_32_bytes(__m512i out[8], const uint8_t *const *p, int at) {
    transpose_rows(out, p, (size_t)at);
    transpose_rows(out + 4, p, (size_t)at + 16);
}

// Types of bit fields. A half of the superblock is 128 columns, four runs of 32. Bytes that several
// runs share are transposed once, with the first of them; in Q6_K these are every second run.
INLINE void fields_of_16_rows(const BitLayout *b, const uint8_t *const *p, ColumnsFn fn,
                              void *arg) {
    const int per_byte = 8 / b->low_bits;
    __m512i low[2][8], high[8], q[8];

#pragma GCC unroll 1
    for (int half = 0; half < 2; half++) {
        if (b->high_bits) transpose_32_bytes(high, p, high_bits_place(b, 4 * half).at);
        if (b->high_bits == 1 && half == 1)
#pragma GCC unroll 8
            for (int c = 0; c < 8; c++) high[c] = _mm512_srli_epi16(high[c], 4);

#pragma GCC unroll 4
        for (int run = 0; run < 4; run++) {
            const bool is_first = b->low_step == 2 ? run < 2 : run % per_byte == 0;
            __m512i *bytes = low[b->low_step == 2 ? run % 2 : 0];
            if (is_first) transpose_32_bytes(bytes, p, low_bits_place(b, 4 * half + run).at);
#pragma GCC unroll 8
            for (int c = 0; c < 8; c++) {
                q[c] = field(bytes[c], b->low_bits, low_bits_place(b, run).shift, 0);
                if (b->high_bits)
                    q[c] |=
                        field(high[c], b->high_bits, high_bits_place(b, run).shift, b->low_bits);
            }
            fn(arg, q, 128 * half + 32 * run);
        }
    }
}

// Unpacks a superblock of 16 rows: the scales and minima as [group][16 rows], then the integers,
// for which it calls fn(arg, q, k) with k = 0, 32 ... 224, in ascending order.
INLINE void unpack_16_rows(Type type, const uint8_t *const *p, int n_cols, float (*scale)[16],
                           float (*min)[16], ColumnsFn fn, void *arg) {
    const TypeInfo *info = type_info(type);
    const bool is_codebook = codebook_info(type)->entry_len;
    const int step = info->block == 32 ? info->bytes : 16;
    __m512i q[8], r[4];

    if (!is_codebook) unpack_scales(type, p, n_cols, scale, min);
    if (bit_layout(type)) {
        fields_of_16_rows(bit_layout(type), p, fn, arg);
        return;
    }
    if (type == TYPE_Q8_0) {
#pragma GCC unroll 1
        for (int i = 0; i < 8; i++) {
            transpose_32_bytes(q, p, i * step + 2);
#pragma GCC unroll 8
            for (int c = 0; c < 8; c++) q[c] ^= _mm512_set1_epi8((char)128);
            fn(arg, q, 32 * i);
        }
        return;
    }

    // Types of nibbles: of 16 bytes, the high nibbles are 16 columns after the low nibbles.
    if (info->nibble_offset) {
#pragma GCC unroll 1
        for (int i = 0; i < 8; i++) {
            transpose_rows(r, p, (size_t)(info->nibble_offset + i * step));
#pragma GCC unroll 8
            for (int c = 0; c < 8; c++) {
                q[c] = field(r[c % 4], 4, c / 4 * 4, 0);
                if (info->zero_point == 128) q[c] = iq4_values_512(q[c]);
            }
            fn(arg, q, 32 * i);
        }
        return;
    }

    // The other types: rows are unpacked two by two, and transposed from memory.
    uint8_t rows[16][SUPERBLOCK] __attribute__((aligned(64)));
    float scales[16][SUPERBLOCK_GROUPS] __attribute__((aligned(64)));
    const uint8_t *row[16];
#pragma GCC unroll 1 // else gcc 12 warns of a row past the end
    for (int i = 0; i < 16; i += 2) {
        Avx512Row u[2];
        unpack_two_decode_rows(u, type, p[i], p[i + 1]);
        for (int n = 0; n < 2; n++) {
            row[i + n] = rows[i + n];
            if (is_codebook) in_column_order(u[n].q);
            if (is_codebook) _mm512_store_ps(scales[i + n], u[n].scale);
            for (int j = 0; j < 4; j++) _mm512_store_si512(rows[i + n] + 64 * j, u[n].q[j]);
        }
    }
    if (is_codebook)
        transpose_dwords(scale, 64, scales, sizeof scales[0], SUPERBLOCK_GROUPS, info->group / 16);
#pragma GCC unroll 1
    for (int k = 0; k < SUPERBLOCK; k += 32) {
        transpose_32_bytes(q, row, k);
        fn(arg, q, k);
    }
}

// Small batches. The integers of 32 columns of 16 rows stay in registers for all tokens.

enum { SMALL_BATCH = 24 }; // tokens at most; their activations of a superblock take 10 KiB

typedef struct {
    float scale[SUPERBLOCK_GROUPS][16], min[SUPERBLOCK_GROUPS][16];
    float sums[SMALL_BATCH][16];
    uint8_t padded[16][SUPERBLOCK_MAX_BYTES];
} __attribute__((aligned(64))) SmallBatchMemory;

_Static_assert(sizeof(SmallBatchMemory) <= KERNEL_SCRATCH, "fits");

// A superblock of 16 rows and the activations of n tokens.
typedef struct {
    SmallBatchMemory *memory;
    const uint8_t *row[16];
    const VnniActivations *x;
    int n, superblock;   // superblock: 0 or 1 within x
    const uint8_t *next; // as in GemvRows
    Type type;
} SmallBatch;

// Adds the products of columns [k, k + 32) with all tokens to their sums. For 16 rows and a token:
// 8 dot products of 16 x 4 bytes and 2 or 3 operations to scale them (4 or 6 with groups of 16).
INLINE void small_batch_columns(void *arg, const __m512i q[8], int k) {
    const SmallBatch *s = arg;
    const TypeInfo *info = type_info(s->type);
    const int group = info->group;
    const int at = (s->superblock * SUPERBLOCK + k) / 32;
    __m512 scale[2], min[2];

    prefetch_bytes(s->next + k / 16 * superblock_bytes(s->type), 2 * superblock_bytes(s->type));
    for (int h = 0; h < 32 / group; h++) {
        scale[h] = _mm512_load_ps(s->memory->scale[k / group + h]);
        min[h] = _mm512_load_ps(s->memory->min[k / group + h]);
    }

#pragma GCC unroll 1
    for (int t = 0; t < s->n; t++) {
        const VnniActivations *x = s->x + t;
        const int8_t *columns = x->q + s->superblock * SUPERBLOCK + k;
        __m512 sum = _mm512_load_ps(s->memory->sums[t]);
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            if (h * group == 32) break;
            __m512i dot = _mm512_set1_epi32(x->start[h][at]);
#pragma GCC unroll 8
            for (int c = h * group / 4; c < (h + 1) * group / 4; c++)
                dot = _mm512_dpbusd_epi32(dot, q[c],
                                          _mm512_set1_epi32((int)load_u32(columns + 4 * c)));
            sum = add_scaled(sum, dot, scale[h], splat(x->scale[at]), min[h], splat(x->sum[h][at]),
                             info->has_min);
        }
        _mm512_store_ps(s->memory->sums[t], sum);
    }
}

INLINE void small_batch(const Matmul *p, Type type) {
    SmallBatchMemory *m = team_scratch();
    const uint8_t *end = matrix_row(p->w, p->w->rows);

    for (int r = p->row_begin; r < p->row_end; r += 16) {
        SmallBatch s = {.memory = m, .x = p->encoded, .n = p->n_tokens, .type = type};
        memset(m->sums, 0, (size_t)s.n * sizeof *m->sums);
        superblock_rows(s.row, 16, p->w, r, p->row_end, 0, type);
        s.next = matrix_row(p->w, r + 16);

        for (int k = 0; k < p->w->cols; k += SUPERBLOCK) {
            s.superblock = k % K_BLOCK / SUPERBLOCK;
            superblock_pad(s.row, 16, m->padded, end, p->w->cols - k, type);
            unpack_16_rows(type, s.row, p->w->cols - k, m->scale, m->min, small_batch_columns, &s);
            for (int i = 0; i < 16; i++) s.row[i] += superblock_bytes(type);
            s.next += 16 * superblock_bytes(type);
            s.x += s.superblock ? s.n : 0;
        }

        for (int t = 0; t < s.n; t++)
            store_n(p->out + (size_t)t * p->out_stride + r, p->row_end - r,
                    _mm512_load_ps(m->sums[t]));
    }
}

// GEMM: packing. A panel is 32 rows of K_BLOCK columns.

typedef struct {
    uint8_t q[2][K_BLOCK * 16]; // two times 16 rows: [k / 4][16 rows][4], unsigned
    float scale[2][K_BLOCK / 16][16], min[2][K_BLOCK / 16][16]; // [group][16 rows]
} __attribute__((aligned(64))) Avx512Panel;

// Where a superblock of 16 rows is packed. n_prefetch lines are prefetched for every 32 columns.
typedef struct {
    uint8_t *out;
    Prefetch *prefetch;
    int n_prefetch;
} PackTarget;

INLINE void pack_columns(void *arg, const __m512i q[8], int k) {
    const PackTarget *to = arg;
    prefetch_lines(to->prefetch, to->n_prefetch);
    for (int c = 0; c < 8; c++) _mm512_store_si512(to->out + (k + 4 * c) * 16, q[c]);
}

// GEMM: chunks of 64 rows and 512 tokens. Their sums (128 KiB) and two panels stay in L2, and the
// activations of GEMM_SWEEP_TOKENS tokens in L1. If there are at most that many tokens, a chunk of
// rows is one panel, which stays in L1.

typedef struct {
    float sums[GEMM_CHUNK_ROWS / PANEL_ROWS][GEMM_CHUNK_TOKENS][PANEL_ROWS];
    Avx512Panel panels[GEMM_CHUNK_ROWS / PANEL_ROWS];
} VnniGemmMemory;

_Static_assert(sizeof(VnniGemmMemory) <= KERNEL_SCRATCH, "fits");

static int vnni_chunk_rows(int n_tokens) {
    return n_tokens > GEMM_SWEEP_TOKENS ? GEMM_CHUNK_ROWS : PANEL_ROWS;
}

// A step of prefetching is 32 columns of 16 rows when packing, and a group of columns of a tile of
// tokens when multiplying.
INLINE void vnni_gemm_begin(GemmStep *s, Type type) {
    const int nk = round_up(s->n_cols, SUPERBLOCK), chunk = vnni_chunk_rows(s->p->n_tokens);
    *s->prefetch = prefetch_next_rows(s->p->w, s->row, chunk, s->k, nk, 2);
    int n_tiles = chunk / PANEL_ROWS * div_up(s->n, GEMM_TILE_TOKENS);
    int n_steps = n_tiles * nk / type_info(type)->group + chunk / 16 * nk / 32;
    s->n_prefetch = div_up(s->prefetch->n_lines, n_steps);
}

INLINE void vnni_gemm_pack(GemmStep *s, int r, Type type) {
    const TypeInfo *info = type_info(type);
    Avx512Panel *panel = &((VnniGemmMemory *)s->memory)->panels[r / PANEL_ROWS];
    uint8_t padded[16][SUPERBLOCK_MAX_BYTES];
    const uint8_t *end = matrix_row(s->p->w, s->p->w->rows);
    Prefetch prefetch = *s->prefetch; // in registers
    PackTarget to = {.prefetch = &prefetch, .n_prefetch = s->n_prefetch};

    for (int half = 0; half < 2 && r + 16 * half < s->n_rows; half++) {
        const uint8_t *row[16], *p[16];
        superblock_rows(row, 16, s->p->w, s->row + r + 16 * half, s->p->row_end, s->k, type);

        for (int c = 0; c < s->n_cols; c += SUPERBLOCK) {
            for (int i = 0; i < 16; i++) p[i] = row[i] + c / SUPERBLOCK * superblock_bytes(type);
            superblock_pad(p, 16, padded, end, s->n_cols - c, type);
            to.out = panel->q[half] + c * 16;
            unpack_16_rows(type, p, s->n_cols - c, panel->scale[half] + c / info->group,
                           panel->min[half] + c / info->group, pack_columns, &to);
        }
    }
    *s->prefetch = prefetch;
}

// Multiplies a panel by any number of tokens. Types with the same group size share the code if all
// or none of them have minima. Part 2 compiles it, and avx512_vbmi.c uses it, too.
typedef void (*VnniPanel)(GemmStep *s, int r, int first, int n_tokens);

extern const VnniPanel avx512_panels[2][2]; // group of 32; minima

#if !defined(PART) || PART == 2
// Adds the products of 32 rows with nt tokens to `sum`, for the group of columns that begins at k.
// For these columns, x->scale[at] is the scale of the activations, x->start[h][at] the initial
// value of the integer sums, and x->sum[h][at] the factor of the minima (h: half of the 32
// columns).
//
// Registers: 2 nt integer sums and 2 nt float32 sums. 32 columns of 16 rows and a token take 8 dot
// products of 16 x 4 bytes and 2 or 3 operations to scale them (4 or 6 with groups of 16).
INLINE void gemm_group(__m512 sum[2][GEMM_TILE_TOKENS], const Avx512Panel *panel,
                       const VnniActivations *x, int k, int at, int h, int nt, int group,
                       bool has_min) {
    __m512i dot[2][GEMM_TILE_TOKENS];

#pragma GCC unroll 6
    for (int t = 0; t < nt; t++) dot[0][t] = dot[1][t] = _mm512_set1_epi32(x[t].start[h][at]);

#pragma GCC unroll 8
    for (int c = k; c < k + group; c += 4) {
        __m512i w0 = _mm512_load_si512(panel->q[0] + c * 16);
        __m512i w1 = _mm512_load_si512(panel->q[1] + c * 16);
#pragma GCC unroll 6
        for (int t = 0; t < nt; t++) {
            __m512i v = _mm512_set1_epi32((int)load_u32(x[t].q + c));
            dot[0][t] = _mm512_dpbusd_epi32(dot[0][t], w0, v);
            dot[1][t] = _mm512_dpbusd_epi32(dot[1][t], w1, v);
        }
    }

#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        __m512 scale = _mm512_load_ps(panel->scale[i][k / group]);
        __m512 min = _mm512_load_ps(panel->min[i][k / group]);
#pragma GCC unroll 6
        for (int t = 0; t < nt; t++)
            sum[i][t] = add_scaled(sum[i][t], dot[i][t], scale, splat(x[t].scale[at]), min,
                                   splat(x[t].sum[h][at]), has_min);
    }
}

// Adds the products of the panel of row r with tokens [token, token + nt) of the chunk to their
// sums, for one block of columns. The panel (16 KiB) stays in L1 for all tokens. For each token, a
// tile reads 832 bytes of activations and the sums.
INLINE void gemm_panel_tile(GemmStep *step, int r, int token, int nt, int group, bool has_min) {
    VnniGemmMemory *m = step->memory;
    const Avx512Panel *panel = &m->panels[r / PANEL_ROWS];
    const VnniActivations *x = (const VnniActivations *)step->x + token;
    const int n_cols = round_up(step->n_cols, SUPERBLOCK), n_prefetch = step->n_prefetch;
    float(*sums)[PANEL_ROWS] = m->sums[r / PANEL_ROWS] + token;
    const char *next_x = (const char *)(x + nt);
    __m512 sum[2][GEMM_TILE_TOKENS];

#pragma GCC unroll 6
    for (int t = 0; t < nt; t++)
        for (int h = 0; h < 2; h++)
            sum[h][t] = step->k > 0 ? _mm512_load_ps(sums[t] + 16 * h) : splat(0);

    for (int k = 0; k < n_cols; k += 32)
        for (int h = 0; h < 32 / group; h++) {
            prefetch_lines(step->prefetch, n_prefetch);
            next_x = prefetch_activations(next_x, group);
            gemm_group(sum, panel, x, k + 16 * h, k / 32, h, nt, group, has_min);
        }

#pragma GCC unroll 6
    for (int t = 0; t < nt; t++)
        for (int h = 0; h < 2; h++) _mm512_store_ps(sums[t] + 16 * h, sum[h][t]);
}

#define PANEL_TILE(nt, ...) gemm_panel_tile(s, r, first + t, nt, __VA_ARGS__)
#define DEFINE_PANEL(name, ...)                                                                    \
    static void name(GemmStep *s, int r, int first, int n_tokens) {                                \
        FOR_TOKEN_TILES(n_tokens, PANEL_TILE, __VA_ARGS__)                                         \
    }
DEFINE_PANEL(panel_16, 16, false)
DEFINE_PANEL(panel_16_min, 16, true)
DEFINE_PANEL(panel_32, 32, false)
DEFINE_PANEL(panel_32_min, 32, true)

const VnniPanel avx512_panels[2][2] = {{panel_16, panel_16_min}, {panel_32, panel_32_min}};
#endif

INLINE void vnni_gemm_multiply(GemmStep *s, int r, int t, int n, Type type) {
    const TypeInfo *info = type_info(type);
    avx512_panels[info->group == 32][info->has_min](s, r, t, n);
}

static void vnni_gemm_store(const GemmStep *s, float *out, size_t out_stride) {
    const VnniGemmMemory *m = s->memory;
    for (int r = 0; r < s->n_rows; r += PANEL_ROWS)
        for (int t = 0; t < s->n; t++)
            for (int h = 0; h < PANEL_ROWS && r + h < s->n_rows; h += 16)
                store_n(out + (size_t)t * out_stride + r + h, s->n_rows - r - h,
                        _mm512_load_ps(m->sums[r / PANEL_ROWS][t] + h));
}

INLINE void vnni_gemm(const Matmul *p, Type type) {
    gemm(p,
         (GemmPlan){.chunk_rows = vnni_chunk_rows(p->n_tokens),
                    .chunk_tokens = GEMM_CHUNK_TOKENS,
                    .block_cols = K_BLOCK,
                    .panel_rows = PANEL_ROWS,
                    .sweep_tokens = GEMM_SWEEP_TOKENS,
                    .token_bytes = sizeof(VnniActivations),
                    .begin = vnni_gemm_begin,
                    .pack = vnni_gemm_pack,
                    .multiply = vnni_gemm_multiply,
                    .store = vnni_gemm_store},
         type);
}

INLINE void gemm_rows(const Matmul *p, Type type) {
    if (p->n_tokens <= SMALL_BATCH)
        small_batch(p, type);
    else
        vnni_gemm(p, type);
}

#define DEFINE_VNNI(type, name, ...)                                                               \
    static void vnni_encode_gemv_##name(void *encoded, const float *x, int n_tokens, int cols,     \
                                        int begin, int end) {                                      \
        vnni_encode(encoded, x, n_tokens, cols, begin, end, TYPE_##type,                           \
                    codebook_info(TYPE_##type)->entry_len);                                        \
    }                                                                                              \
    static void vnni_encode_gemm_##name(void *encoded, const float *x, int n_tokens, int cols,     \
                                        int begin, int end) {                                      \
        vnni_encode(encoded, x, n_tokens, cols, begin, end, TYPE_##type, false);                   \
    }                                                                                              \
    DEFINE_ROWS(type, name, gemv, gemv_rows)                                                       \
    DEFINE_ROWS(type, name, gemm, gemm_rows)
INTEGER_TYPES(DEFINE_VNNI, )

// Transposes 16 keys of float16 to out [n][KEY_TILE]. A dword of a row holds two dimensions.
INLINE void transpose_f16(uint16_t *out, const uint8_t *const *row, int n, Prefetch *prefetch) {
    const __m512i even_then_odd =
        _mm512_set_epi16(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1, 30, 28, 26, 24,
                         22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);

    for (int i = 0; i < n; i += 8) {
        __m512i r[4];
        if (i % 16 == 0) prefetch_lines(prefetch, 4);
        transpose_rows(r, row, (size_t)i * 2);
        for (int d = 0; d < 4; d++) {
            __m512i pair = _mm512_permutexvar_epi16(even_then_odd, r[d]);
            _mm256_store_si256((void *)(out + (i + 2 * d) * KEY_TILE),
                               _mm512_castsi512_si256(pair));
            _mm256_store_si256((void *)(out + (i + 2 * d + 1) * KEY_TILE),
                               _mm512_extracti64x4_epi64(pair, 1));
        }
    }
}

static void f16_scores(const AttentionPage *a, int key, int n, Prefetch *prefetch) {
    FloatAttendMemory *m = team_scratch();
    const uint8_t *row[KEY_TILE];
    size_t row_bytes = quant_row_bytes(TYPE_F16, (size_t)a->head_dim);

    for (int i = 0; i < KEY_TILE; i++)
        row[i] = (const uint8_t *)a->k + (size_t)(key + min_int(i, n - 1)) * row_bytes;
    for (int h = 0; h < KEY_TILE; h += 16)
        transpose_f16(m->keys_f16[0] + h, row + h, a->head_dim, prefetch);

    FloatProduct p = {.out = m->scores[0] + key,
                      .out_stride = KV_PAGE,
                      .n_out = KEY_TILE,
                      .x = a->q,
                      .x_stride = (size_t)a->head_dim,
                      .panel = m->keys_f16,
                      .panel_stride = sizeof m->keys_f16[0],
                      .nk = a->head_dim,
                      .prefetch = prefetch,
                      .prefetch_every = 2 * ATTEND_PREFETCH_STEPS};
    f16_panel(&p, a->n_q);
}

// Attention with a Q8_0 cache: keys stay integers and are multiplied by queries of 16 bits,
// x = scale * (256 high + low), with one scale for 32 values; the error is at most scale / 2. The
// bytes of a query are laid out as blocks of Q8_0 with scales of zero, so that a row of keys can be
// multiplied without removing its scales.
typedef struct {
    BlockQ8_0 high[MAX_HEAD_DIM / 32], low[MAX_HEAD_DIM / 32];
    float scale[MAX_HEAD_DIM / 32];
    int32_t start[MAX_HEAD_DIM / 32]; // -128 * sum: vpdpbusd takes keys as unsigned, + 128
} Int16Query;

typedef struct {
    FloatAttendMemory m;
    Int16Query queries[ATTEND_MAX_QUERIES];
} Q8AttendMemory;

_Static_assert(sizeof(Q8AttendMemory) <= ATTEND_SCRATCH, "fits");

static bool multiplies_q8_keys(const AttentionPage *a) {
    return a->k_type == TYPE_Q8_0 && a->head_dim % 64 == 0 && !a->is_float32;
}

static void split_query(Int16Query *out, const float *x, int n) {
    for (int b = 0; b < n / 32; b++) {
        __m512 v[2] = {_mm512_loadu_ps(x + 32 * b), _mm512_loadu_ps(x + 32 * b + 16)};
        __m512i sum = _mm512_setzero_si512();
        float inverse;
        float scale = int8_scale(max_abs_bits(v, 2), &inverse);

        for (int h = 0; h < 2; h++) {
            __m512 y = v[h] * splat(inverse * 256); // NaN becomes 0, the scale being NaN
            __m512i q = _mm512_maskz_cvtps_epi32(_mm512_cmp_ps_mask(y, y, _CMP_ORD_Q), y);
            __m512i high = _mm512_srai_epi32(_mm512_add_epi32(q, _mm512_set1_epi32(128)), 8);
            __m128i low = _mm512_cvtepi32_epi8(q); // q - 256 high, -128 to 127

            _mm_storeu_si128((void *)(out->high[b].qs + 16 * h), _mm512_cvtepi32_epi8(high));
            _mm_storeu_si128((void *)(out->low[b].qs + 16 * h), low);
            sum = _mm512_add_epi32(sum, q);
        }

        out->high[b].d = out->low[b].d = 0;
        out->scale[b] = scale / 256;
        out->start[b] = -128 * _mm512_reduce_add_epi32(sum);
    }
}

// Computes the scores (nt, KV_PAGE) of 16 keys. `keys` holds their rows, transposed: [dword][16].
// Two blocks of a row are 17 dwords, and the second scale begins in the middle of a dword (its
// lower half is drawn on the left):
//
//   dword     0          1 ... 7    8          9 ... 16
//             d0 | q0    q0         q0 | d1    q1
//
// Dwords 0 to 8 are multiplied for the first block and 9 to 16 for the second; the query has zeros
// at d0 and d1.
INLINE void q8_score_tile(float *scores, const __m512i *keys, const Int16Query *x, int dim,
                          int nt) {
    __m512 score[GEMM_TILE_TOKENS];

#pragma GCC unroll 6
    for (int t = 0; t < nt; t++) score[t] = splat(0);

    for (int b = 0; b < dim / 32; b++) {
        // The dwords of block b, as drawn above.
        const int begin = b / 2 * 17 + b % 2 * 9;
        const int end = b / 2 * 17 + 9 + b % 2 * 8;
        Floats low_half, high_half;
        f16_halves((Words)keys[b % 2 ? begin - 1 : begin], &low_half, &high_half);

        __m512 scale = b % 2 ? high_half : low_half;
        __m512i high[GEMM_TILE_TOKENS], low[GEMM_TILE_TOKENS];
#pragma GCC unroll 6
        for (int t = 0; t < nt; t++) {
            high[t] = _mm512_setzero_si512();
            low[t] = _mm512_set1_epi32(x[t].start[b]);
        }

        for (int i = begin; i < end; i++) {
            __m512i w = keys[i] ^ _mm512_set1_epi8((char)128);
#pragma GCC unroll 6
            for (int t = 0; t < nt; t++) {
                const char *x_high = (const char *)x[t].high;
                const char *x_low = (const char *)x[t].low;
                high[t] = _mm512_dpbusd_epi32(high[t], w,
                                              _mm512_set1_epi32((int)load_u32(x_high + 4 * i)));
                low[t] =
                    _mm512_dpbusd_epi32(low[t], w, _mm512_set1_epi32((int)load_u32(x_low + 4 * i)));
            }
        }

#pragma GCC unroll 6
        for (int t = 0; t < nt; t++) {
            __m512i dot = _mm512_add_epi32(_mm512_slli_epi32(high[t], 8), low[t]);
            score[t] = fmadd(_mm512_cvtepi32_ps(dot) * scale, splat(x[t].scale[b]), score[t]);
        }
    }

#pragma GCC unroll 6
    for (int t = 0; t < nt; t++) _mm512_storeu_ps(scores + t * KV_PAGE, score[t]);
}

#define Q8_SCORE_TILE(nt, scores)                                                                  \
    q8_score_tile((scores) + t * KV_PAGE, keys, queries + t, a->head_dim, nt)

static void q8_scores(const AttentionPage *a, int key, int n, Prefetch *prefetch) {
    Q8AttendMemory *memory = team_scratch();
    FloatAttendMemory *m = &memory->m;
    Int16Query *queries = memory->queries;
    __m512i *keys = (__m512i *)m->keys;
    const int row_bytes = (int)quant_row_bytes(TYPE_Q8_0, (size_t)a->head_dim);

    if (key == 0) // once per page
        for (int i = 0; i < a->n_q; i++)
            split_query(queries + i, a->q + i * a->head_dim, a->head_dim);

    for (int h = 0; h < KEY_TILE; h += 16) {
        const uint8_t *row[16];
        for (int i = 0; i < 16; i++)
            row[i] = (const uint8_t *)a->k + (key + min_int(h + i, n - 1)) * row_bytes;

        for (int at = 0; at < row_bytes; at += 16) {
            int from = min_int(at, row_bytes - 16);
            prefetch_lines(prefetch, 4);
            transpose_rows(keys + from / 4, row, (size_t)from);
        }
        FOR_TOKEN_TILES(a->n_q, Q8_SCORE_TILE, m->scores[0] + key + h)
    }
}

static void attend_scores(const AttentionPage *a, int key, int n, Prefetch *prefetch) {
    if (multiplies_q8_keys(a))
        q8_scores(a, key, n, prefetch);
    else if (multiplies_f16(a, a->k_type))
        f16_scores(a, key, n, prefetch);
    else
        float_scores(a, key, n, prefetch);
}

static void attend(const AttentionPage *a) { attend_with(a, attend_scores, float_values); }

static double avx512_peak(int rounds) {
    __m512i acc[12], a = _mm512_set1_epi8((char)rounds), b = _mm512_set1_epi8(3);
    for (int j = 0; j < 12; j++) acc[j] = _mm512_set1_epi32(j);
    for (int i = 0; i < rounds; i++) {
#pragma GCC unroll 12
        for (int j = 0; j < 12; j++) acc[j] = _mm512_dpbusd_epi32(acc[j], a, b);
    }
    for (int j = 1; j < 12; j++) acc[0] = acc[0] ^ acc[j];
    volatile int keep = _mm512_reduce_add_epi32(acc[0]);
    (void)keep;
    return 12 * 128.0 * rounds;
}

// GEMV_ROWS: threads get rows in multiples of this, so that the vectors of decode are full.
// GEMM_TOKENS: number of tokens from which small_batch is faster than decode, except for the types
// of GEMM_FOR_2. Time of small_batch / time of decode, weights in L3 (Zen 5, 2026-11-28):
//
//   2 tokens   Q4_K 0.99, Q5_K 0.98, Q2_K 0.82, Q3_K 0.94, Q4_0 1.00, IQ4_XS 0.89, TQ2_0 0.92,
//              Q6_K 1.16, Q8_0 1.08, IQ2_XS 1.10, Q5_0 1.54
//
// FLOAT_GEMM_TOKENS: as in avx2.c.
enum { GEMV_ROWS = 16, GEMM_TOKENS = 3, FLOAT_GEMM_TOKENS = 12 };

#define VNNI_KERNEL(type, name, kind, form, tokens, rows_step, exact)                              \
    KERNEL(type, name, kind, vnni, form##_##name, tokens, rows_step, 1, exact)
#define GEMM_FOR_2(type)                                                                           \
    ((type) <= TYPE_Q4_1 || ((type) >= TYPE_Q2_K && (type) <= TYPE_Q5_K) ||                        \
     (type) == TYPE_IQ4_NL || (type) == TYPE_IQ4_XS || (type) == TYPE_TQ2_0)
#define GEMM_KERNEL(type, name, kind)                                                              \
    VNNI_KERNEL(type, name, kind, gemm, GEMM_FOR_2(TYPE_##type) ? 2 : GEMM_TOKENS, PANEL_ROWS, true)

// clang-format off
const Kernels kernels_avx512 = {
    .name = "avx512",
    .gemv = {FLOAT_TYPES(KERNEL, gemv, float, rows, 1, GEMV_ROWS, 1, false)
            INTEGER_TYPES(VNNI_KERNEL, gemv, gemv, 1, GEMV_ROWS, false)},
    .gemm = {FLOAT_TYPES(KERNEL, gemm, float, blocks, FLOAT_GEMM_TOKENS, PANEL_ROWS, 1, false)
             INTEGER_TYPES(GEMM_KERNEL, gemm)},
    .rmsnorm = IF_PART(0, vector_rmsnorm),
    .swiglu = IF_PART(0, vector_swiglu),
    .add = IF_PART(0, vector_add),
    .attend = IF_PART(0, attend),
    .attend_many = IF_PART(0, int16_attend_many),
    .attend_many_above = INT16_ABOVE,
    .store = IF_PART(0, vector_store),
    .peak_unit = "VNNI int8",
    .peak = IF_PART(0, avx512_peak),
};
// clang-format on
