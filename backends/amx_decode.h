// AMX: rows of every weight type as bf16, laid out as A tiles.
//
// Weights of four bits are looked up: a register holds 32 bf16, made by one FMA for each 16 values
// and one rounding, and vpermw (which reads five bits of each 16-bit index) takes them out, 32 in a
// cycle. The others are put, as bytes, into the mantissa of a power of two by vpermb, which makes
// floats of them without a conversion; an FMA and the rounding follow. The rounding is the dear
// instruction: 2 cycles for 32 weights.
#ifndef BACKENDS_AMX_DECODE_H
#define BACKENDS_AMX_DECODE_H

#include "avx512_unpack.h"
#include "../kernels/backends.h"

enum {
    TILE = 16,      // rows of a tile
    TILE_K = 32,    // bf16 values of one tile row
    TILE_LEN = 512, // bf16 values of a tile: 1 KiB
    PANEL = 2 * TILE
};

static int round_up(int n, int step) { return (n + step - 1) / step * step; }

// Some rows and columns of a matrix, where they lie.
typedef struct {
    const char *at;          // the first row's
    size_t row_bytes, bytes; // from one row to the next; of the columns in one row
    int n_rows, n_cols;
} Piece;

// Rows [row, row_end) and columns [k, k_end), as far as there are such; 32 rows at most.
static Piece piece_of(const Tensor *w, int row, int row_end, int k, int k_end) {
    if (row >= row_end) return (Piece){0};
    size_t begin = quant_row_bytes(w->type, (size_t)k),
           n_cols = (size_t)(min_int(k_end, w->cols) - k);
    return (Piece){(const char *)w->data + (size_t)row * w->row_bytes + begin, w->row_bytes,
                   quant_row_bytes(w->type, n_cols), min_int(row_end - row, PANEL), (int)n_cols};
}

// Brings row r into L2, if it exists: the very lines that it touches.
INLINE void fetch_row(const Piece *p, int r) {
    if (r >= p->n_rows) return;
    const char *row = p->at + (size_t)r * p->row_bytes, *line = row - ((uintptr_t)row & 63);
    for (; line < row + p->bytes; line += 64) _mm_prefetch(line, _MM_HINT_T1);
}

// As loads the spreads of a scale cost nothing; left to itself gcc makes them permutations of the
// register stored.
#define IN_MEMORY(array) __asm__ volatile("" : "+m"(array))

INLINE __m512i to_bf16(__m512 low, __m512 high) { return (__m512i)_mm512_cvtne2ps_pbh(high, low); }

// n weights of a row go to pieces of 32 that lie TILE_LEN apart: one row of successive A tiles.

// By way of a Unit. `one` + u is exact in float32, and so is (`one` + offset) * scale for nearly
// all types.
INLINE void decode_units(uint16_t *tile, Type type, const char *row, int n) {
    const TypeInfo *t = type_info(type);
    // Where the byte goes: 128 + u are the high, 32768 + u the low bits of the mantissa.
    const int place = t->max_q < 128 ? 2 : 1;
    const __m512 one = _mm512_set1_ps(t->max_q < 128 ? 128 : 32768);
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i count = _mm512_slli_epi32(lanes, (unsigned)(8 * place));
    const __mmask64 byte = 0x1111111111111111u << place;
    uint8_t last[MAX_SUPERBLOCK_BYTES];
    float scale[GROUPS] __attribute__((aligned(64))), base[GROUPS] __attribute__((aligned(64)));
    for (int k = 0; k < n; k += SUPERBLOCK, row += superblock_bytes(type)) {
        Unit u = unpack(type, padded_superblock(type, (const uint8_t *)row, n - k, last));
        __m512 zero =
            _mm512_mul_ps(u.scale, _mm512_add_ps(one, _mm512_set1_ps((float)t->zero_point)));
        _mm512_store_ps(scale, u.scale);
        _mm512_store_ps(base, t->has_min ? _mm512_add_ps(zero, u.min) : zero);
        IN_MEMORY(scale);
        IN_MEMORY(base);
#pragma GCC unroll 8
        for (int i = 0; i < SUPERBLOCK; i += TILE_K, tile += TILE_LEN) {
            if (t->block < SUPERBLOCK && k + i >= n) break;
            __m512 w[2];
#pragma GCC unroll 2
            for (int half = 0; half < 2; half++) {
                int at = i + 16 * half;
                __m512i index = _mm512_add_epi32(count, _mm512_set1_epi32(at % 64 << 8 * place));
                __m512i v = _mm512_mask_permutexvar_epi8(_mm512_castps_si512(one), byte, index,
                                                         u.w[at / 64]);
                w[half] = _mm512_fmsub_ps(_mm512_castsi512_ps(v), _mm512_set1_ps(scale[at / 16]),
                                          _mm512_set1_ps(base[at / 16]));
            }
            _mm512_store_si512(tile, to_bf16(w[0], w[1]));
        }
    }
}

INLINE __m512 count_from(float n) {
    return _mm512_add_ps(_mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                         _mm512_set1_ps(n));
}

INLINE __m512 f16_spread(uint16_t h) { return _mm512_cvtph_ps(_mm256_set1_epi16((short)h)); }

// 32 weights whose nibbles are 16 bytes, out of 16 values: the table has them twice, bit 4 may be
// anything.
INLINE void look_up_block(uint16_t *tile, const void *nibbles, __m512 values) {
    __m256i twice = _mm256_broadcastsi128_si256(load_16(nibbles));
    __m512i index = _mm512_srlv_epi16(_mm512_cvtepu8_epi16(twice), join_words(0, 4));
    _mm512_store_si512(tile, _mm512_permutexvar_epi16(index, to_bf16(values, values)));
}

// Q8_0, Q4_0, Q4_1 and IQ4_NL, whose scales are at hand.
INLINE void decode_blocks(uint16_t *tile, Type type, const char *b, int n) {
    const __m512 values = type == TYPE_IQ4_NL ? bytes_to_floats(kvalues_iq4nl)
                                              : count_from(type == TYPE_Q4_0 ? -8 : 0);
    for (int k = 0; k < n; k += 32, tile += TILE_LEN, b += type_info(type)->bytes) {
        __m512 d = f16_spread(load_u16(b));
        if (type == TYPE_Q8_0)
            _mm512_store_si512(tile, to_bf16(_mm512_mul_ps(bytes_to_floats(b + 2), d),
                                             _mm512_mul_ps(bytes_to_floats(b + 18), d)));
        else if (type == TYPE_Q4_1)
            look_up_block(tile, b + 4, _mm512_fmadd_ps(values, d, f16_spread(load_u16(b + 2))));
        else
            look_up_block(tile, b + 2, _mm512_mul_ps(values, d));
    }
}

INLINE void decode_iq4_xs(uint16_t *tile, const BlockIQ4_XS *b, int n) {
    const __m512 values = bytes_to_floats(kvalues_iq4nl);
    for (int k = 0; k < n; k += SUPERBLOCK, b++) {
        float scale[GROUPS] __attribute__((aligned(64)));
        _mm512_store_ps(scale, unpack(TYPE_IQ4_XS, b).scale);
        IN_MEMORY(scale);
#pragma GCC unroll 8
        for (int g = 0; g < 8; g++, tile += TILE_LEN)
            look_up_block(tile, b->qs + 16 * g,
                          _mm512_mul_ps(values, _mm512_set1_ps(scale[2 * g])));
    }
}

// 256 weights of a row whose scales and minima were made with those of other rows: they lie 16
// floats apart. Two groups share a table, which saves half the roundings.
INLINE void decode_q4_k(uint16_t *tile, const BlockQ4_K *b, const float *scale, const float *min) {
    const __m512 count = count_from(0);
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++, tile += 2 * TILE_LEN, scale += 32, min += 32) {
        __m512 low = _mm512_fmsub_ps(count, _mm512_set1_ps(scale[0]), _mm512_set1_ps(min[0]));
        __m512 high = _mm512_fmsub_ps(count, _mm512_set1_ps(scale[16]), _mm512_set1_ps(min[16]));
        __m512i table = to_bf16(low, high), bytes = _mm512_cvtepu8_epi16(load_32(b->qs + 32 * j));
        __m512i first = _mm512_and_si512(bytes, _mm512_set1_epi16(15));
        __m512i second = _mm512_or_si512(_mm512_srli_epi16(bytes, 4), _mm512_set1_epi16(16));
        _mm512_store_si512(tile, _mm512_permutexvar_epi16(first, table));
        _mm512_store_si512(tile + TILE_LEN, _mm512_permutexvar_epi16(second, table));
    }
}

// The same with a table for each group: the fifth bits lie in bytes of their own.
INLINE void decode_q5_k(uint16_t *tile, const BlockQ5_K *b, const float *scale, const float *min) {
    const __m512i fifth = _mm512_slli_epi16(_mm512_cvtepu8_epi16(load_32(b->qh)), 4);
#pragma GCC unroll 8
    for (int g = 0; g < 8; g++, tile += TILE_LEN, scale += 16, min += 16) {
        __m512 s = _mm512_set1_ps(*scale), m = _mm512_set1_ps(*min);
        __m512i table =
            to_bf16(_mm512_fmsub_ps(count_from(0), s, m), _mm512_fmsub_ps(count_from(16), s, m));
        __m512i bytes = _mm512_cvtepu8_epi16(load_32(b->qs + 32 * (g / 2)));
        if (g % 2) bytes = _mm512_srli_epi16(bytes, 4);
        // bit 4 (and others) of `fifth`
        __m512i index = either(_mm512_set1_epi16(15), bytes, _mm512_srli_epi16(fifth, (unsigned)g));
        _mm512_store_si512(tile, _mm512_permutexvar_epi16(index, table));
    }
}

// 32 floats of a row, round to nearest even; those beyond n are zero.
INLINE __m512i load_bf16(Type type, const char *x, int n) {
    const __mmask16 low = first(n), high = first(n - 16);
    if (type == TYPE_BF16) return _mm512_maskz_loadu_epi16(n < TILE_K ? (1u << n) - 1 : ~0u, x);
    if (type == TYPE_F32)
        return to_bf16(_mm512_maskz_loadu_ps(low, x), _mm512_maskz_loadu_ps(high, x + 64));
    return to_bf16(_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(low, x)),
                   _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(high, x + 32)));
}

INLINE void decode_floats(uint16_t *tile, Type type, const char *row, int n) {
    for (; n >= TILE_K; n -= TILE_K, tile += TILE_LEN, row += TILE_K * type_info(type)->bytes)
        _mm512_store_si512(tile, load_bf16(type, row, TILE_K));
    if (n > 0) _mm512_store_si512(tile, load_bf16(type, row, n));
}

INLINE void decode_row(uint16_t *tile, Type type, const char *row, int n) {
    switch (type) {
    case TYPE_F32:
    case TYPE_F16:
    case TYPE_BF16: decode_floats(tile, type, row, n); break;
    case TYPE_Q8_0:
    case TYPE_Q4_0:
    case TYPE_Q4_1:
    case TYPE_IQ4_NL: decode_blocks(tile, type, row, n); break;
    case TYPE_IQ4_XS: decode_iq4_xs(tile, (const void *)row, n); break;
    default: decode_units(tile, type, row, n);
    }
}

// Row r of p, or its last one.
INLINE const char *row_of(const Piece *p, int r) {
    return p->at + (size_t)min_int(r, p->n_rows - 1) * p->row_bytes;
}

// A function for each type: a panel of p's rows, as A tiles ordered (half of 16 rows, k tile); the
// last row stands for those that p lacks. `next`, of which a row is fetched with each row, is what
// will be decoded after it.
typedef void (*DecodePanel)(uint16_t *panel, const Piece *p, const Piece *next);

INLINE void decode_rows(uint16_t *panel, const Piece *p, const Piece *next, Type type) {
    int n_tiles = round_up(p->n_cols, TILE_K) / TILE_K;
    for (int r = 0; r < PANEL; r++) {
        fetch_row(next, r);
        decode_row(panel + (r / TILE * n_tiles) * TILE_LEN + r % TILE * TILE_K, type, row_of(p, r),
                   p->n_cols);
    }
}

// Q4_K and Q5_K: the scales of 16 rows at once.
INLINE void decode_k_rows(uint16_t *panel, const Piece *p, const Piece *next, Type type) {
    float scale[8][16] __attribute__((aligned(64))), min[8][16] __attribute__((aligned(64)));
    for (int first = 0; first < PANEL; first += TILE)
        for (int k = 0; k < p->n_cols; k += SUPERBLOCK, panel += 8 * TILE_LEN) {
            const void *row[TILE];
            for (int r = 0; r < TILE; r++)
                row[r] = row_of(p, first + r) + quant_row_bytes(type, (size_t)k);
            k_scales_16(scale, min, row);
            for (int r = 0; r < TILE; r++) {
                if (k == 0) fetch_row(next, first + r);
                if (type == TYPE_Q4_K)
                    decode_q4_k(panel + r * TILE_K, row[r], scale[0] + r, min[0] + r);
                else
                    decode_q5_k(panel + r * TILE_K, row[r], scale[0] + r, min[0] + r);
            }
        }
}

#define PANEL_OF(type, name)                                                                       \
    static void decode_panel_##name(uint16_t *panel, const Piece *p, const Piece *next) {          \
        if (TYPE_##type == TYPE_Q4_K || TYPE_##type == TYPE_Q5_K)                                  \
            decode_k_rows(panel, p, next, TYPE_##type);                                            \
        else                                                                                       \
            decode_rows(panel, p, next, TYPE_##type);                                              \
    }
EACH_QUANTIZED_TYPE(PANEL_OF)
FLOAT_TYPES(PANEL_OF)

#define PANEL_ENTRY(type, name) [TYPE_##type] = decode_panel_##name,
static const DecodePanel decode_panel[TYPE_COUNT] = {EACH_QUANTIZED_TYPE(PANEL_ENTRY)
                                                         FLOAT_TYPES(PANEL_ENTRY)};

#endif
