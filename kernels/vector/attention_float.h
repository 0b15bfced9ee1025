// Attention in float32, for all vector backends: the keys and values of a tile are converted, keys
// are transposed, and float_tile (matmul_float.h) computes both products.
#pragma once

#include "kernels/vector/attention.h"
#include "kernels/vector/matmul_float.h"

// Steps of float_tile per prefetch of four lines. This number spreads the lines of a float16 cache
// evenly.
enum { ATTEND_PREFETCH_STEPS = 128 / KEY_TILE };

typedef struct {
    float scores[ATTEND_MAX_QUERIES][KV_PAGE];
    float rows[VALUE_TILE][MAX_HEAD_DIM]; // keys, then values, as float32
    union {
        float keys[MAX_HEAD_DIM][KEY_TILE]; // transposed
        uint16_t keys_f16[MAX_HEAD_DIM][KEY_TILE];
        float weights[ATTEND_MAX_QUERIES][VALUE_TILE]; // softmax weights times scales of Q8_0
    };
} FloatAttendMemory;

_Static_assert(sizeof(FloatAttendMemory) <= ATTEND_SCRATCH, "fits");

static inline void float_scores(const AttentionPage *a, int key, int n, Prefetch *prefetch) {
    FloatAttendMemory *m = team_scratch();
    convert_kv_rows(m->rows, KEY_TILE, a->k_type, a->k, key, n, a->head_dim);
    for (int h = 0; h < KEY_TILE; h += WIDTH)
        transpose_dwords(m->keys[0] + h, sizeof m->keys[0], m->rows[h], sizeof m->rows[0],
                         a->head_dim, 1);
    FloatProduct p = {.out = m->scores[0] + key,
                      .out_stride = KV_PAGE,
                      .n_out = KEY_TILE,
                      .x = a->q,
                      .x_stride = (size_t)a->head_dim,
                      .panel = m->keys,
                      .panel_stride = sizeof m->keys[0],
                      .nk = a->head_dim,
                      .prefetch = prefetch,
                      .prefetch_every = ATTEND_PREFETCH_STEPS};
    float_panel(&p, a->n_q);
}

// The products with values of Q8_0. The integers are converted inside the product; the softmax
// weights are multiplied by their scales first.
static inline void q8_values(const AttentionPage *a, int key, int n, Prefetch *prefetch) {
    FloatAttendMemory *m = team_scratch();
    const size_t row_bytes = quant_row_bytes(TYPE_Q8_0, (size_t)a->head_dim);
    FloatProduct p = {.out_stride = (size_t)a->head_dim,
                      .n_out = FLOAT_PANEL,
                      .x = m->weights[0],
                      .x_stride = VALUE_TILE,
                      .panel_stride = row_bytes,
                      .nk = n,
                      .adds = key > 0,
                      .prefetch = prefetch,
                      .prefetch_every = 2 * ATTEND_PREFETCH_STEPS - 1};

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

        for (int c = 0; c < 32; c += FLOAT_PANEL) {
            p.out = a->acc + 32 * b + c;
            p.panel = block + offsetof(BlockQ8_0, qs) + c;
            q8_panel(&p, a->n_q);
        }
    }
}

// True if float16 rows are converted in registers, inside the product: values on every backend,
// keys on AVX-512. On AVX-512 this is faster only for few queries. For the 4 queries of a KV head
// and head_dim 128 a page then takes 7 us from L2 and 9 to 11 us from memory (Sapphire Rapids).
INLINE bool multiplies_f16(const AttentionPage *a, Type type) {
    return type == TYPE_F16 && a->head_dim % FLOAT_PANEL == 0 &&
           (WIDTH < 16 || a->n_q <= 2 * GEMM_TILE_TOKENS);
}

static inline void float_values(const AttentionPage *a, int key, int n, Prefetch *prefetch) {
    FloatAttendMemory *m = team_scratch();
    const size_t row_bytes = quant_row_bytes(a->v_type, (size_t)a->head_dim);
    const char *values = (const char *)a->v + (size_t)key * row_bytes;
    const bool is_f16 = multiplies_f16(a, a->v_type);

    if (a->v_type == TYPE_Q8_0) {
        q8_values(a, key, n, prefetch);
        return;
    }

    if (!is_f16) convert_kv_rows(m->rows, n, a->v_type, a->v, key, n, a->head_dim);
    FloatProduct p = {.out_stride = (size_t)a->head_dim,
                      .x = m->scores[0] + key,
                      .x_stride = KV_PAGE,
                      .panel_stride = is_f16 ? row_bytes : sizeof m->rows[0],
                      .nk = n,
                      .adds = key > 0,
                      .prefetch = prefetch,
                      .prefetch_every = ATTEND_PREFETCH_STEPS};

    for (int d = 0; d < a->head_dim; d += FLOAT_PANEL) {
        p.out = a->acc + d;
        p.n_out = a->head_dim - d;

        if (is_f16) {
            p.panel = values + 2 * d;
            f16_panel(&p, a->n_q);
        } else {
            p.panel = m->rows[0] + d;
            float_panel(&p, a->n_q);
        }
    }
}
