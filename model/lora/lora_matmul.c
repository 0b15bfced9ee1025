// Matrix products with adapters, in two operations:
//
//     out = W x, hidden = A x         for all products and pairs
//     out += B hidden
//
// Invariant: one thread computes an element of `out`, in one order that does not depend on the
// number of threads or rows.
#include "model/lora/lora.h"
#include "kernels/load.h"

// B hidden: a strip, LORA_STRIP rows of B, is multiplied in vector registers.

typedef float LoraLanes __attribute__((vector_size(4 * MULTIVERSION_LANES), aligned(4), may_alias));
enum {
    STRIP_LANES = LORA_STRIP / MULTIVERSION_LANES, // vectors of a strip
    STRIP_TOKENS = 4 // tokens per call of add_strip: independent sums, in registers
};

// Adds hidden (n_tokens, rank) times strip (rank, LORA_STRIP) to out (n_tokens, stride). The strip
// has n_rows rows of B; only the last strip of B has fewer than LORA_STRIP.
INLINE void add_strip(float *out, size_t stride, const LoraLanes *strip, const float *hidden,
                      int rank, int n_tokens, int n_rows) {
    LoraLanes sum[STRIP_TOKENS][STRIP_LANES] = {{{0}}};

    for (int k = 0; k < rank; k++, strip += STRIP_LANES)
#pragma GCC unroll 4
        for (int t = 0; t < n_tokens; t++)
#pragma GCC unroll 4
            for (int i = 0; i < STRIP_LANES; i++) sum[t][i] += hidden[t * rank + k] * strip[i];

#pragma GCC unroll 4
    for (int t = 0; t < n_tokens; t++, out += stride) {
        if (n_rows < LORA_STRIP) {
            for (int i = 0; i < n_rows; i++)
                out[i] += sum[t][i / MULTIVERSION_LANES][i % MULTIVERSION_LANES];
            continue;
        }
#pragma GCC unroll 4
        for (int i = 0; i < STRIP_LANES; i++) ((LoraLanes *)out)[i] += sum[t][i];
    }
}

// Adds B hidden (n, rank) to out (n, stride), for n_rows rows of B from the first of a strip on.
// All strips are computed for STRIP_TOKENS tokens before the next tokens: the tokens'
// rows of `out` are often a power of two bytes apart, so many of them would evict each other from
// the cache. The constant arguments let the compiler unroll add_strip.
MULTIVERSION static void add_strips(float *out, size_t stride, const float *b, const float *hidden,
                                    int rank, int n, int n_rows) {
    for (int t = 0, nt; t < n; t += nt) {
        nt = n - t < STRIP_TOKENS ? 1 : STRIP_TOKENS;
        const float *h = hidden + (size_t)t * (size_t)rank;
        for (int r = 0; r < n_rows; r += LORA_STRIP) {
            float *to = out + (size_t)t * stride + r;
            const LoraLanes *strip = (const LoraLanes *)(b + (size_t)r * (size_t)rank);
            if (nt == 1)
                add_strip(to, stride, strip, h, rank, 1, min_int(LORA_STRIP, n_rows - r));
            else if (n_rows - r < LORA_STRIP)
                add_strip(to, stride, strip, h, rank, STRIP_TOKENS, n_rows - r);
            else
                add_strip(to, stride, strip, h, rank, STRIP_TOKENS, LORA_STRIP);
        }
    }
}

void lora_scratch_reserve(LoraScratch *s, MatmulScratch *matmul, const Tensor *const *weights,
                          int n_weights, int n) {
    int n_all = n_weights;
    size_t bytes = 0;
    for (int i = 0; i < n_weights; i++)
        for (const LowRank *l = weights[i]->lora; l; l = l->next) {
            n_all++;
            bytes += (size_t)n * (size_t)l->a.rows * sizeof *s->hidden;
        }

    // The weights, and A of their pairs.
    const Tensor *all[n_all];
    n_all = n_weights;
    memcpy(all, weights, (size_t)n_weights * sizeof *all);
    for (int i = 0; i < n_weights; i++)
        for (const LowRank *l = weights[i]->lora; l; l = l->next) all[n_all++] = &l->a;
    matmul_scratch_reserve(matmul, all, n_all, n, 1);

    if (bytes <= s->bytes) return;
    free(s->hidden);
    s->hidden = xalloc(bytes, 1);
    s->bytes = bytes;
}

bool lora_is_batch_invariant(const Tensor *w) {
    for (const LowRank *l = w->lora; l; l = l->next)
        if (!ops_is_batch_invariant(&l->a)) return false;
    return true;
}

void lora_matmuls(const LoraScratch *s, const MatmulScratch *matmul, const Product *products,
                  int n_products, Exactness exactness) {
    enum { CHUNK = 4 * LORA_STRIP }; // rows of out in a work item
    int n = products[0].n, n_all = n_products, n_chunks = 0;
    for (const Product *p = products; p < products + n_products; p++) {
        n_chunks += div_up(p->w->rows, CHUNK);
        for (const LowRank *l = p->w->lora; l; l = l->next) n_all++;
    }

    // The products, then hidden = A x of all pairs. One operation computes both, so that the few
    // rows of A leave no thread idle.
    Product all[n_all], *pair = all + n_products;
    float *hidden = s->hidden;
    memcpy(all, products, (size_t)n_products * sizeof *all);
    for (const Product *p = products; p < products + n_products; p++)
        for (const LowRank *l = p->w->lora; l; l = l->next) {
            *pair++ = (Product){.out = hidden, .w = &l->a, .x = p->x, .n = n};
            hidden += (size_t)n * (size_t)l->a.rows;
        }
    ops_matmuls(matmul, all, n_all, exactness);
    if (n_all == n_products) return;

    // out += B hidden.
    for (int i; team_next_near(n_chunks, &i);) {
        int chunk = i;
        pair = all + n_products;
        for (const Product *p = products; p < products + n_products; p++) {
            int n_own = div_up(p->w->rows, CHUNK);
            for (const LowRank *l = p->w->lora; l; l = l->next, pair++) {
                if (chunk < 0 || chunk >= n_own) continue;
                int rank = l->a.rows;
                size_t first = (size_t)chunk * CHUNK;
                add_strips(p->out + first, (size_t)p->w->rows, l->b + first * (size_t)rank,
                           pair->out, rank, n, min_int(CHUNK, p->w->rows - (int)first));
            }
            chunk -= n_own;
        }
    }
    team_end_op(OP_MATMUL);
}

void lora_embed(float *out, const Tensor *w, const int *tokens, int n) {
    float *hidden = (float *)((char *)team_scratch() + KERNEL_SCRATCH); // (rank)
    for (int i; team_next(n, &i);)
        for (const LowRank *l = w->lora; l; l = l->next) {
            quant_decode_row(l->a.type,
                             (const char *)l->a.data + (size_t)tokens[i] * l->a.row_bytes, hidden,
                             (size_t)l->a.cols);
            add_strips(out + (size_t)i * (size_t)w->cols, 0, l->b, hidden, l->a.cols, 1, w->cols);
        }
    team_end_op(OP_EMBED);
}
