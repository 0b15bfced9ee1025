// AMX: rows of every weight type as bf16, laid out as A tiles.
//
// An A tile is 16 rows of 32 bf16 (1 KiB). A panel is 32 rows, two tiles high:
//
//     panel      rows 0-15:  tile k 0 | tile k 1 | ...      rows 16-31:  tile k 0 | tile k 1 | ...
//     tile       row 0: 32 bf16, row 1: 32 bf16, ... row 15
//
// So a row of weights is written in pieces of 32 columns that are a tile (AMX_TILE_LEN) apart.
//
// The slow instruction is the rounding to bf16, which takes 2 cycles for 32 weights. Types of four
// bits therefore round a table instead of the weights: an FMA computes its 16 values, and vpermw
// (which uses five bits of each 16-bit index) looks up 32 weights per cycle. For the other types
// vpermb moves each byte into the mantissa of a power of two. This gives a float without a
// conversion; an FMA and the rounding follow.
#pragma once

#include "kernels/x86/avx512_unpack.h"
#include "kernels/backends.h"

enum {
    AMX_TILE = 16,      // rows of a tile
    AMX_TILE_K = 32,    // bf16 values of a row of a tile
    AMX_TILE_LEN = 512, // bf16 values of a tile
    AMX_PANEL = 2 * AMX_TILE
};

// A view of some rows and columns of a matrix.
typedef struct {
    const char *begin;
    size_t row_bytes, bytes; // from one row to the next; of the columns of one row
    int n_rows, n_cols;
} Submatrix;

// Rows [row, row_end), but at most AMX_PANEL rows, and columns [k, k_end), clipped to the matrix.
static Submatrix submatrix(const Tensor *w, int row, int row_end, int k, int k_end) {
    if (row >= row_end) return (Submatrix){0};
    size_t begin = quant_row_bytes(w->type, (size_t)k),
           n_cols = (size_t)(min_int(k_end, w->cols) - k);
    return (Submatrix){(const char *)w->data + (size_t)row * w->row_bytes + begin, w->row_bytes,
                       quant_row_bytes(w->type, n_cols), min_int(row_end - row, AMX_PANEL),
                       (int)n_cols};
}

// Row r, or the last row if there are fewer.
INLINE const char *submatrix_row(const Submatrix *m, int r) {
    return m->begin + (size_t)min_int(r, m->n_rows - 1) * m->row_bytes;
}

// Prefetches row r into L2, unless it is past the end.
INLINE void prefetch_row(const Submatrix *m, int r) {
    if (r >= m->n_rows) return;
    const char *row = m->begin + (size_t)r * m->row_bytes, *line = row - ((uintptr_t)row & 63);
    for (; line < row + m->bytes; line += 64) _mm_prefetch(line, _MM_HINT_T1);
}

// Forces the compiler to read an array from memory. A load that broadcasts a scale is free, but gcc
// 12 would permute the register from which the array was stored.
#define IN_MEMORY(array) __asm__ volatile("" : "+m"(array))

INLINE __m512i to_bf16(__m512 low, __m512 high) { return (__m512i)_mm512_cvtne2ps_pbh(high, low); }

// Four ways to decode a row of n weights. Pieces of 32 columns are stored at `tile`, a tile apart.

// Any integer type. With one = 128 or 32768, the float one + u has u in its mantissa, exactly:
//
//                     byte 3  byte 2  byte 1  byte 0
//   u < 128, 128 + u     0x43       u       0       0
//   u < 256, 32768 + u   0x47    0x00       u       0
//
// and w = scale * (one + u) - (scale * (one + offset) + min). The product scale * (one + offset) is
// exact for nearly all types.
INLINE void decode_superblocks(uint16_t *tile, Type type, const char *row, int n) {
    const TypeInfo *info = type_info(type);
    const int place = info->max_q < 128 ? 2 : 1; // the byte that u is inserted into
    const __m512 one = splat(info->max_q < 128 ? 128 : 32768);
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i count = _mm512_slli_epi32(lanes, (unsigned)(8 * place));
    const __mmask64 byte = 0x1111111111111111u << place;
    uint8_t padded[1][SUPERBLOCK_MAX_BYTES];
    float scale[SUPERBLOCK_GROUPS] __attribute__((aligned(64)));
    float base[SUPERBLOCK_GROUPS] __attribute__((aligned(64)));

    for (int k = 0; k < n; k += SUPERBLOCK, row += superblock_bytes(type)) {
        const uint8_t *p = (const uint8_t *)row;
        superblock_pad(&p, 1, padded, p, n - k, type);
        Avx512Row u = unpack_decode_row(type, p);
        if (codebook_info(type)->entry_len) in_column_order(u.q);

        // w = scale * v - base with v = one + u, which is formed by inserting u into the bits of
        // `one`.
        __m512 zero = u.scale * (one + splat((float)info->zero_point));
        if (info->has_min) zero = zero + u.min;
        _mm512_store_ps(scale, u.scale);
        _mm512_store_ps(base, zero);
        IN_MEMORY(scale);
        IN_MEMORY(base);

#pragma GCC unroll 8
        for (int i = 0; i < SUPERBLOCK; i += AMX_TILE_K, tile += AMX_TILE_LEN) {
            if (info->block < SUPERBLOCK && k + i >= n) break;
            __m512 w[2];

#pragma GCC unroll 2
            for (int half = 0; half < 2; half++) {
                int at = i + 16 * half;
                __m512i index = _mm512_add_epi32(count, _mm512_set1_epi32(at % 64 << 8 * place));
                __m512i v = _mm512_mask_permutexvar_epi8((__m512i)one, byte, index, u.q[at / 64]);
                w[half] = _mm512_fmsub_ps((__m512)v, splat(scale[at / 16]), splat(base[at / 16]));
            }
            _mm512_store_si512(tile, to_bf16(w[0], w[1]));
        }
    }
}

// n, n + 1, ... n + 15
INLINE __m512 count_from(float n) {
    return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15) + splat(n);
}

// Looks up 32 weights by the nibbles of 16 bytes. The table holds its 16 values twice, so bit 4 of
// an index, which belongs to the other nibble, does not matter.
INLINE void look_up_nibbles(uint16_t *tile, const void *nibbles, __m512 values) {
    __m256i twice = _mm256_broadcastsi128_si256(load_16(nibbles));
    __m512i index = _mm512_srlv_epi16(_mm512_cvtepu8_epi16(twice), words_of_halves(0, 4));
    _mm512_store_si512(tile, _mm512_permutexvar_epi16(index, to_bf16(values, values)));
}

// Q8_0, Q4_0, Q4_1 and IQ4_NL: blocks of 32 that begin with their scale.
INLINE void decode_blocks(uint16_t *tile, Type type, const char *b, int n) {
    const __m512 values = type == TYPE_IQ4_NL ? bytes_to_floats(kvalues_iq4nl)
                                              : count_from(type == TYPE_Q4_0 ? -8 : 0);
    for (int k = 0; k < n; k += 32, tile += AMX_TILE_LEN, b += type_info(type)->bytes) {
        __m512 d = _mm512_cvtph_ps(_mm256_set1_epi16((short)load_u16(b)));
        if (type == TYPE_Q8_0) {
            _mm512_store_si512(tile,
                               to_bf16(bytes_to_floats(b + 2) * d, bytes_to_floats(b + 18) * d));
        } else if (type == TYPE_Q4_1) {
            __m512 m = _mm512_cvtph_ps(_mm256_set1_epi16((short)load_u16(b + 2)));
            look_up_nibbles(tile, b + 4, fmadd(values, d, m));
        } else {
            look_up_nibbles(tile, b + 2, values * d);
        }
    }
}

INLINE void decode_iq4_xs(uint16_t *tile, const BlockIQ4_XS *b, int n) {
    const __m512 values = bytes_to_floats(kvalues_iq4nl);
    for (int k = 0; k < n; k += SUPERBLOCK, b++) {
        float scale[SUPERBLOCK_GROUPS] __attribute__((aligned(64)));
        _mm512_store_ps(scale, unpack_decode_row(TYPE_IQ4_XS, (const uint8_t *)b).scale);
        IN_MEMORY(scale);
#pragma GCC unroll 8
        for (int g = 0; g < 8; g++, tile += AMX_TILE_LEN)
            look_up_nibbles(tile, b->qs + 16 * g, values * splat(scale[2 * g]));
    }
}

// Q4_K and Q5_K: 256 weights of a row. Scales and minima have been unpacked for 16 rows at a time,
// so the scales of consecutive groups of a row are 16 floats apart.

// Two groups share a table of 32 values, which halves the number of roundings. Bit 4 of an index
// selects the group.
INLINE void decode_q4_k(uint16_t *tile, const BlockQ4_K *b, const float *scale, const float *min) {
    const __m512 count = count_from(0);
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++, tile += 2 * AMX_TILE_LEN, scale += 32, min += 32) {
        __m512 low = _mm512_fmsub_ps(count, splat(scale[0]), splat(min[0]));
        __m512 high = _mm512_fmsub_ps(count, splat(scale[16]), splat(min[16]));
        __m512i table = to_bf16(low, high), bytes = _mm512_cvtepu8_epi16(load_32(b->qs + 32 * j));
        __m512i first = bytes & _mm512_set1_epi16(15);
        __m512i second = _mm512_srli_epi16(bytes, 4) | _mm512_set1_epi16(16);
        _mm512_store_si512(tile, _mm512_permutexvar_epi16(first, table));
        _mm512_store_si512(tile + AMX_TILE_LEN, _mm512_permutexvar_epi16(second, table));
    }
}

// A table of 32 values for each group; bit 4 of an index is the weight's fifth bit.
INLINE void decode_q5_k(uint16_t *tile, const BlockQ5_K *b, const float *scale, const float *min) {
    const __m512i fifth = _mm512_slli_epi16(_mm512_cvtepu8_epi16(load_32(b->qh)), 4);
#pragma GCC unroll 8
    for (int g = 0; g < 8; g++, tile += AMX_TILE_LEN, scale += 16, min += 16) {
        __m512 s = splat(*scale), m = splat(*min);
        __m512i table =
            to_bf16(_mm512_fmsub_ps(count_from(0), s, m), _mm512_fmsub_ps(count_from(16), s, m));
        __m512i bytes = _mm512_cvtepu8_epi16(load_32(b->qs + 32 * (g / 2)));
        if (g % 2) bytes = _mm512_srli_epi16(bytes, 4);
        // The bits above bit 3 come from qh; vpermw ignores all of them except bit 4.
        __m512i index =
            select_bits(_mm512_set1_epi16(15), bytes, _mm512_srli_epi16(fifth, (unsigned)g));
        _mm512_store_si512(tile, _mm512_permutexvar_epi16(index, table));
    }
}

// The first n floats of a row, at most 32, rounded to the nearest bf16 (ties to even), then zeros.
INLINE __m512i load_bf16(Type type, const char *x, int n) {
    if (type == TYPE_BF16) return _mm512_maskz_loadu_epi16(n < AMX_TILE_K ? (1u << n) - 1 : ~0u, x);
    return to_bf16(load_as_floats(type, x, 0, n), load_as_floats(type, x, 16, n - 16));
}

INLINE void decode_floats(uint16_t *tile, Type type, const char *row, int n) {
    const int bytes = AMX_TILE_K * type_info(type)->bytes;
    for (; n > 0; n -= AMX_TILE_K, tile += AMX_TILE_LEN, row += bytes)
        _mm512_store_si512(tile, load_bf16(type, row, n));
}

INLINE void decode_row(uint16_t *tile, Type type, const char *row, int n) {
    const TypeInfo *info = type_info(type);
    if (!info->group)
        decode_floats(tile, type, row, n);
    else if (type == TYPE_IQ4_XS)
        decode_iq4_xs(tile, (const void *)row, n);
    else if (type == TYPE_Q8_0 || (info->block == 32 && info->nibble_offset))
        decode_blocks(tile, type, row, n);
    else
        decode_superblocks(tile, type, row, n);
}

// Decodes m as a panel; if it has fewer than 32 rows, the last row is repeated. For each row, also
// prefetches a row of `next`, which is decoded later.
typedef void (*DecodePanel)(uint16_t *panel, const Submatrix *m, const Submatrix *next);

INLINE void decode_by_row(uint16_t *panel, const Submatrix *m, const Submatrix *next, Type type) {
    int n_tiles = round_up(m->n_cols, AMX_TILE_K) / AMX_TILE_K;
    for (int r = 0; r < AMX_PANEL; r++) {
        prefetch_row(next, r);
        decode_row(panel + (r / AMX_TILE * n_tiles) * AMX_TILE_LEN + r % AMX_TILE * AMX_TILE_K,
                   type, submatrix_row(m, r), m->n_cols);
    }
}

// Q4_K and Q5_K.
INLINE void decode_16_rows(uint16_t *panel, const Submatrix *m, const Submatrix *next, Type type) {
    float scale[8][16] __attribute__((aligned(64)));
    float min[8][16] __attribute__((aligned(64)));

    for (int first = 0; first < AMX_PANEL; first += AMX_TILE)
        for (int k = 0; k < m->n_cols; k += SUPERBLOCK, panel += 8 * AMX_TILE_LEN) {
            const uint8_t *row[AMX_TILE];
            for (int r = 0; r < AMX_TILE; r++)
                row[r] =
                    (const uint8_t *)submatrix_row(m, first + r) + quant_row_bytes(type, (size_t)k);
            unpack_scales(type, row, SUPERBLOCK, scale, min);

            for (int r = 0; r < AMX_TILE; r++) {
                if (k == 0) prefetch_row(next, first + r);

                uint16_t *tile = panel + r * AMX_TILE_K;
                if (type == TYPE_Q4_K)
                    decode_q4_k(tile, (const void *)row[r], scale[0] + r, min[0] + r);
                else
                    decode_q5_k(tile, (const void *)row[r], scale[0] + r, min[0] + r);
            }
        }
}

#define DEFINE_DECODE_PANEL(type, name, ...)                                                       \
    static void decode_panel_##name(uint16_t *panel, const Submatrix *m, const Submatrix *next) {  \
        if (TYPE_##type == TYPE_Q4_K || TYPE_##type == TYPE_Q5_K)                                  \
            decode_16_rows(panel, m, next, TYPE_##type);                                           \
        else                                                                                       \
            decode_by_row(panel, m, next, TYPE_##type);                                            \
    }
INTEGER_TYPES(DEFINE_DECODE_PANEL, )
FLOAT_TYPES(DEFINE_DECODE_PANEL, )

#define DECODE_PANEL_ENTRY(type, name, ...) [TYPE_##type] = decode_panel_##name,
static const DecodePanel decode_panel[TYPE_COUNT] = {INTEGER_TYPES(DECODE_PANEL_ENTRY, )
                                                         FLOAT_TYPES(DECODE_PANEL_ENTRY, )};
