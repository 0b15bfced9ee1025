// Attention in float32, for all vector backends: the keys and values of a tile are converted, keys
// are transposed, and float_tile (matmul_float.h) computes both products.
#pragma once

#include "attention.h"
#include "matmul_float.h"

// Steps of float_tile for each four lines prefetched, which spreads the lines of a float16 cache
// evenly.
enum { ATTEND_PREFETCH_STEPS = 128 / KEY_TILE };

typedef struct {
    float scores[ATTEND_MAX_QUERIES][KV_PAGE];
    float rows[VALUE_TILE][MAX_HEAD_DIM]; // keys, then values, as float32
    union {
        float keys[MAX_HEAD_DIM][KEY_TILE]; // transposed
        uint16_t keys_f16[MAX_HEAD_DIM][KEY_TILE];
        float weights[ATTEND_MAX_QUERIES][VALUE_TILE]; // of Q8_0 values, times their scales
    };
} FloatAttendMemory;

_Static_assert(sizeof(FloatAttendMemory) <= ATTEND_SCRATCH, "fits");

static inline void float_scores(const AttentionPage *a, int key, int n, Prefetch *prefetch) {
    FloatAttendMemory *m = team_scratch();
    convert_kv_rows(m->rows, KEY_TILE, a->k_type, a->k, key, n, a->head_dim);
    for (int h = 0; h < KEY_TILE; h += WIDTH)
        transpose_dwords(m->keys[0] + h, sizeof m->keys[0], m->rows[h], sizeof m->rows[0],
                         a->head_dim, 1);
    float_panel(m->scores[0] + key, KV_PAGE, m->keys, sizeof m->keys[0], a->q, (size_t)a->head_dim,
                a->n_q, a->head_dim, true, KEY_TILE, prefetch, ATTEND_PREFETCH_STEPS);
}

// The products with values of Q8_0. The integers are converted as they are multiplied; their scales
// are multiplied into the weights.
static inline void q8_values(const AttentionPage *a, int key, int n, Prefetch *prefetch) {
    FloatAttendMemory *m = team_scratch();
    size_t row_bytes = quant_row_bytes(TYPE_Q8_0, (size_t)a->head_dim);
    for (int b = 0; b < a->head_dim / 32; b++) {
        const char *block =
            (const char *)a->v + (size_t)key * row_bytes + (size_t)b * sizeof(BlockQ8_0);
        uint16_t scale[VALUE_TILE];

        for (int i = 0; i < VALUE_TILE; i++)
            memcpy(scale + i, block + (size_t)min_int(i, n - 1) * row_bytes, sizeof *scale);
        for (int i = 0; i < a->n_q; i++)
            for (int h = 0; h < VALUE_TILE; h += WIDTH)
                store_n(m->weights[i] + h, WIDTH,
                        load_n(m->scores[i] + key + h, WIDTH) *
                            load_as_floats(TYPE_F16, scale, h, WIDTH));

        for (int c = 0; c < 32; c += FLOAT_PANEL)
            q8_panel(a->acc + 32 * b + c, (size_t)a->head_dim, block + offsetof(BlockQ8_0, qs) + c,
                     row_bytes, m->weights[0], VALUE_TILE, a->n_q, n, key == 0, FLOAT_PANEL,
                     prefetch, 2 * ATTEND_PREFETCH_STEPS - 1);
    }
}

// True if float16 rows are converted in registers, inside the product: values on every backend,
// keys on AVX-512. On AVX-512 this is faster only for few queries. For the 4 queries of a KV head
// and head_dim 128 a page then takes 7 us from L2 and 9 to 11 us from memory (Sapphire Rapids).
INLINE bool multiplies_f16(const AttentionPage *a, Type type) {
    return type == TYPE_F16 && a->head_dim % FLOAT_PANEL == 0 &&
           (WIDTH < 16 || a->n_q <= 2 * GEMM_TILE_TOKENS);
}

static void attend_values(const AttentionPage *a, int key, int n, Prefetch *prefetch) {
    FloatAttendMemory *m = team_scratch();
    const size_t row_bytes = quant_row_bytes(a->v_type, (size_t)a->head_dim);
    const char *values = (const char *)a->v + (size_t)key * row_bytes;
    bool is_f16 = multiplies_f16(a, a->v_type);

    if (a->v_type == TYPE_Q8_0) {
        q8_values(a, key, n, prefetch);
        return;
    }

    if (!is_f16) convert_kv_rows(m->rows, n, a->v_type, a->v, key, n, a->head_dim);
    for (int d = 0; d < a->head_dim; d += FLOAT_PANEL)
        if (is_f16)
            f16_panel(a->acc + d, (size_t)a->head_dim, values + 2 * d, row_bytes,
                      m->scores[0] + key, KV_PAGE, a->n_q, n, key == 0, FLOAT_PANEL, prefetch,
                      ATTEND_PREFETCH_STEPS);
        else
            float_panel(a->acc + d, (size_t)a->head_dim, m->rows[0] + d, sizeof m->rows[0],
                        m->scores[0] + key, KV_PAGE, a->n_q, n, key == 0, a->head_dim - d, prefetch,
                        ATTEND_PREFETCH_STEPS);
}
