// The adapters' part of a matrix product, in two operations:
//
//     hidden = A x         for all pairs
//     out += B hidden
//
// Invariant: one thread computes an element of `out`, in one order that does not depend on the
// number of threads or rows. A x uses the kernel that Exactness requires.
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

// Adds B hidden (n, rank) to out (n, stride), for rows [first, end) of B. `first` is the first row
// of a strip. All strips are computed for STRIP_TOKENS tokens before the next tokens: the tokens'
// rows of `out` are often a power of two bytes apart, so many of them would evict each other from
// the cache. The constant arguments let the compiler unroll add_strip.
MULTIVERSION static void add_strips(float *out, size_t stride, const float *b, const float *hidden,
                                    int rank, int n, int first, int end) {
    for (int t = 0, nt; t < n; t += nt) {
        nt = n - t < STRIP_TOKENS ? 1 : STRIP_TOKENS;
        const float *h = hidden + (size_t)t * (size_t)rank;
        for (int r = first; r < end; r += LORA_STRIP) {
            float *to = out + (size_t)t * stride + r;
            const LoraLanes *strip = (const LoraLanes *)(b + (size_t)r * (size_t)rank);
            if (nt == 1)
                add_strip(to, stride, strip, h, rank, 1, min_int(LORA_STRIP, end - r));
            else if (end - r < LORA_STRIP)
                add_strip(to, stride, strip, h, rank, STRIP_TOKENS, end - r);
            else
                add_strip(to, stride, strip, h, rank, STRIP_TOKENS, LORA_STRIP);
        }
    }
}

// A x: A has few rows, so dividing only its rows among the threads would leave some idle. The
// threads divide the tokens or, if there are few tokens, the rows into parts (every gemv kernel
// allows that). Each work item encodes the activations that it reads.
enum {
    ITEM_TOKENS = 64, // tokens per work item
    SPLIT_BELOW = 12, // with fewer tokens, the rows of A are divided into parts
    MAX_PARTS = 16,   // parts at most
    PART_ROWS = 4     // the rows of a part are a multiple of this
};

// Rows of A in a work item.
static int rows_per_part(const Tensor *a, int n, Exactness exactness) {
    if (n >= SPLIT_BELOW || ops_matmul_kernel(a, n, exactness) != &kernel.gemv[a->type])
        return a->rows;
    return round_up(div_up(a->rows, MAX_PARTS), PART_ROWS);
}

void lora_scratch_reserve(LoraScratch *s, const Tensor *const *weights, int n_weights, int n) {
    size_t encoded = 0, hidden = 0;

    for (int i = 0; i < n_weights; i++)
        for (const LowRank *l = weights[i]->lora; l; l = l->next) {
            size_t n_items = size_div_up((size_t)n, ITEM_TOKENS);
            size_t parts = MAX_PARTS * ops_encoded_bytes(&l->a, n, min_int(n, SPLIT_BELOW));
            size_t items = n_items * ops_encoded_bytes(&l->a, n, min_int(n, ITEM_TOKENS));
            if (parts > encoded) encoded = parts;
            if (items > encoded) encoded = items;
            hidden += (size_t)n * (size_t)l->a.rows * sizeof *s->hidden;
        }

    if (encoded > s->encoded_bytes) {
        free(s->encoded);
        s->encoded_bytes = encoded;
        s->encoded = xalloc(encoded, 1);
    }
    if (hidden > s->hidden_bytes) {
        free(s->hidden);
        s->hidden_bytes = hidden;
        s->hidden = xalloc(hidden, 1);
    }
}

bool lora_is_batch_invariant(const Tensor *w) {
    for (const LowRank *l = w->lora; l; l = l->next)
        if (!ops_is_batch_invariant(&l->a)) return false;
    return true;
}

// One work item of A x, for all pairs: tokens [first, first + ITEM_TOKENS), and the rows of part
// `part` of each A.
static void multiply_a(const LoraScratch *s, const Product *products, int n_products, int first,
                       int part, char *encoded, Exactness exactness) {
    const float *x = products[0].x;
    float *out = s->hidden;
    int n = products[0].n;
    int n_tokens = min_int(n - first, ITEM_TOKENS);
    const MatmulKernel *last = NULL; // the kernel that `encoded` was encoded for

    for (int p = 0; p < n_products; p++)
        for (const LowRank *l = products[p].w->lora; l; l = l->next) {
            int rank = l->a.rows;
            int rows = rows_per_part(&l->a, n, exactness);
            int row = part * rows;
            if (row < rank) {
                const MatmulKernel *k = ops_matmul_kernel(&l->a, n, exactness);
                if (!last || last->encode != k->encode)
                    k->encode(encoded, x + (size_t)first * (size_t)l->a.cols, n_tokens, l->a.cols,
                              0, n_tokens);
                k->rows(out + (size_t)first * (size_t)rank, (size_t)rank, &l->a, encoded, n_tokens,
                        row, min_int(rank, row + rows));
                last = k;
            }
            out += (size_t)n * (size_t)rank;
        }
}

void lora_matmuls(const LoraScratch *s, const Product *products, int n_products,
                  Exactness exactness) {
    int n = products[0].n;
    int n_parts = 0, n_chunks = 0;
    size_t bytes = 0; // encoded activations of a work item

    for (int p = 0; p < n_products; p++)
        for (const LowRank *l = products[p].w->lora; l; l = l->next) {
            const MatmulKernel *k = ops_matmul_kernel(&l->a, n, exactness);
            int rows = rows_per_part(&l->a, n, exactness);
            int parts = div_up(l->a.rows, rows);
            size_t needed = k->encoded_bytes(min_int(n, ITEM_TOKENS), l->a.cols);
            if (parts > n_parts) n_parts = parts;
            if (needed > bytes) bytes = needed;
        }

    if (!n_parts) return;

    // hidden = x A^T, for all adapters. A work item is a part of the rows of A, for up to
    // ITEM_TOKENS tokens.
    bytes = size_round_up(bytes, 64);
    for (int i; team_next(div_up(n, ITEM_TOKENS) * n_parts, &i);)
        multiply_a(s, products, n_products, i / n_parts * ITEM_TOKENS, i % n_parts,
                   s->encoded + (size_t)i * bytes, exactness);
    team_end_op(OP_MATMUL);

    // out += hidden B^T. The hidden vectors (n, rank) of an adapter are stored behind those of the
    // adapter before it.
    enum { CHUNK = 4 * LORA_STRIP }; // rows of out in a work item
    for (int p = 0; p < n_products; p++) n_chunks += div_up(products[p].w->rows, CHUNK);

    for (int i; team_next_near(n_chunks, &i);) {
        const float *hidden = s->hidden;
        int chunk = i;
        for (const Product *p = products; p < products + n_products; p++) {
            int n_own = div_up(p->w->rows, CHUNK);
            int first = chunk * CHUNK;
            for (const LowRank *l = p->w->lora; l; l = l->next) {
                if (chunk >= 0 && chunk < n_own)
                    add_strips(p->out, (size_t)p->w->rows, l->b, hidden, l->a.rows, n, first,
                               min_int(p->w->rows, first + CHUNK));
                hidden += (size_t)n * (size_t)l->a.rows;
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
            add_strips(out + (size_t)i * (size_t)w->cols, 0, l->b, hidden, l->a.cols, 1, 0,
                       w->cols);
        }
    team_end_op(OP_EMBED);
}
