// The operations: each cuts its work into units, which the threads take, and computes them with the
// kernels of this CPU.
#include "ops.h"
#include "backends.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool ops_is_invariant;
_Thread_local int ops_like;
void (*ops_watch)(const Tensor *w, const float *x, int n);

// Scratch memory of the operations, shared by the threads.
static struct {
    void *encoded; // activations in the kernels' form
    size_t encoded_bytes;
    float *inner; // of adapters: A x
    size_t inner_floats;
    float *partial; // attention, page by page
    size_t partial_floats;
} scratch;

static int at_most(int n, int limit) { return n < limit ? n : limit; }
static int n_pieces(int n, int piece) { return (n + piece - 1) / piece; }
static size_t round_up(size_t n, size_t step) { return (n + step - 1) / step * step; }

void ops_for(int n, int chunk, void (*fn)(void *arg, int i), void *arg) {
    for (int c; team_next(n_pieces(n, chunk), &c);)
        for (int i = c * chunk; i < at_most(n, (c + 1) * chunk); i++) fn(arg, i);
    team_end_op(OP_ROPE);
}

typedef float Lanes __attribute__((vector_size(4 * WIDE_LANES), aligned(4), may_alias));
enum {
    STRIP_LANES = LOW_RANK_STRIP / WIDE_LANES,
    STRIP_TOKENS = 4 // at a time: sums stay in registers and do not wait for each other
};

// out (nt, stride), n_rows of a strip, += the strip b (rank, LOW_RANK_STRIP) times x (nt, rank)
static inline __attribute__((always_inline)) void
add_tile(float *out, size_t stride, const Lanes *b, const float *x, int rank, int nt, int n_rows) {
    Lanes sum[STRIP_TOKENS][STRIP_LANES] = {{{0}}};
    for (int k = 0; k < rank; k++, b += STRIP_LANES)
#pragma GCC unroll 4
        for (int t = 0; t < nt; t++)
#pragma GCC unroll 4
            for (int i = 0; i < STRIP_LANES; i++) sum[t][i] += x[t * rank + k] * b[i];
#pragma GCC unroll 4
    for (int t = 0; t < nt; t++, out += stride) {
        if (n_rows < LOW_RANK_STRIP) {
            for (int i = 0; i < n_rows; i++) out[i] += sum[t][i / WIDE_LANES][i % WIDE_LANES];
            continue;
        }
#pragma GCC unroll 4
        for (int i = 0; i < STRIP_LANES; i++) ((Lanes *)out)[i] += sum[t][i];
    }
}

// Rows [first, end) of out (n, stride) += B x, x (n, rank); first begins a strip. All strips for a
// few tokens, then the next: rows of out are often a power of two apart, and would push each other
// out of the cache.
WIDE static void add_strips(float *out, size_t stride, const float *b, const float *x, int rank,
                            int n, int first, int end) {
    for (int t = 0, nt; t < n; t += nt) {
        nt = n - t < STRIP_TOKENS ? 1 : STRIP_TOKENS;
        const float *xt = x + (size_t)t * (size_t)rank;
        for (int r = first; r < end; r += LOW_RANK_STRIP) {
            float *to = out + (size_t)t * stride + r;
            const Lanes *strip = (const Lanes *)(b + (size_t)r * (size_t)rank);
            if (nt == 1)
                add_tile(to, stride, strip, xt, rank, 1, at_most(LOW_RANK_STRIP, end - r));
            else if (end - r < LOW_RANK_STRIP)
                add_tile(to, stride, strip, xt, rank, STRIP_TOKENS, end - r);
            else
                add_tile(to, stride, strip, xt, rank, STRIP_TOKENS, LOW_RANK_STRIP);
        }
    }
}

static void decode_row(const Tensor *w, int row, float *out) {
    quant_decode_row(w->type, (const char *)w->data + (size_t)row * w->row_bytes, out,
                     (size_t)w->cols);
}

void ops_embed(float *out, const Tensor *w, const int *tokens, int n) {
    float *inner = (float *)((char *)team_scratch() + KERNEL_SCRATCH); // (rank)
    for (int i; team_next(n, &i);) {
        float *x = out + (size_t)i * (size_t)w->cols;
        decode_row(w, tokens[i], x);
        for (const LowRank *l = w->added; l; l = l->next) {
            decode_row(&l->a, tokens[i], inner);
            add_strips(x, 0, l->b, inner, l->a.cols, 1, 0, w->cols);
        }
    }
    team_end_op(OP_EMBED);
}

void ops_rmsnorm(float *out, const float *x, const float *weight, float eps, int n, int dim) {
    for (int i; team_next(n, &i);)
        kernel.rmsnorm(out + (size_t)i * (size_t)dim, x + (size_t)i * (size_t)dim, weight, eps,
                       dim);
    team_end_op(OP_NORM);
}

void ops_gather(float *out, const float *x, const int *index, int n, int dim) {
    for (int i; team_next(n, &i);)
        memcpy(out + (size_t)i * (size_t)dim, x + (size_t)index[i] * (size_t)dim,
               (size_t)dim * sizeof(float));
    team_end_op(OP_REST);
}

// The elementwise operations, in pieces of a row: small enough that the threads share one of a few
// thousand values, large enough (16 KiB) that handing them out costs nothing.
enum { PIECE = 4096 };

static void elementwise(void (*fn)(float *x, const float *y, int n), float *x, const float *y,
                        int n, int dim) {
    int per_row = n_pieces(dim, PIECE);
    for (int i; team_next(n * per_row, &i);) {
        int first = i % per_row * PIECE;
        size_t at = (size_t)(i / per_row) * (size_t)dim + (size_t)first;
        fn(x + at, y + at, at_most(dim - first, PIECE));
    }
    team_end_op(OP_REST);
}

void ops_swiglu(float *gate, const float *up, int n, int dim) {
    elementwise(kernel.swiglu, gate, up, n, dim);
}
void ops_add(float *x, const float *y, int n, int dim) { elementwise(kernel.add, x, y, n, dim); }

static bool is_for(const MatmulKernel *k, int n) { return k->rows && n >= k->min_tokens; }

static const MatmulKernel *pick_kernel(const Tensor *w, int n) {
    const MatmulKernel *gemm = &kernel.gemm[w->type], *tiles = &kernel.gemm_large[w->type];
    int like = ops_is_invariant ? 1 : ops_like ? ops_like : n;
    if (is_for(tiles, like)) return tiles;
    return is_for(gemm, gemm->has_gemv_bits ? n : like) ? gemm : &kernel.gemv[w->type];
}

bool ops_is_batch_invariant(const Tensor *w) {
    const MatmulKernel *gemm = &kernel.gemm[w->type];
    if (kernel.attend_many || kernel.gemm_large[w->type].rows ||
        (gemm->rows && !gemm->has_gemv_bits))
        return false;
    for (const LowRank *l = w->added; l; l = l->next)
        if (!ops_is_batch_invariant(&l->a)) return false;
    return true;
}

// The largest that any kernel for up to n tokens needs for `at_once` of them.
static size_t encoded_bytes(const Tensor *w, int n, int at_once) {
    const MatmulKernel *kernels[] = {&kernel.gemv[w->type], &kernel.gemm[w->type],
                                     &kernel.gemm_large[w->type]};
    size_t most = kernels[0]->encoded_bytes(1, w->cols);
    for (int i = 0; i < 3; i++) {
        size_t bytes = is_for(kernels[i], n) ? kernels[i]->encoded_bytes(at_once, w->cols) : 0;
        if (bytes > most) most = bytes;
    }
    return round_up(most, 64);
}

// The A of an adapter has few rows, which would leave threads idle: they share the tokens or, if
// these are few, the rows by fours, which any Kernels.gemv takes. A unit of that encodes its own
// activations in a place of its own.
enum { INNER_TOKENS = 64, INNER_FEW = 12, INNER_PARTS = 16, INNER_ROWS = 4 };

// Rows of a unit.
static int inner_rows(const Tensor *a, int n) {
    bool is_shared = n < INNER_FEW && pick_kernel(a, n) == &kernel.gemv[a->type];
    return is_shared ? (int)round_up((size_t)n_pieces(a->rows, INNER_PARTS), INNER_ROWS) : a->rows;
}

void ops_reserve_matmuls(const Tensor *const *weights, int n_weights, int n) {
    size_t bytes = 0, inner_bytes = 0, floats = 0;
    for (int i = 0; i < n_weights; i++) {
        bytes += encoded_bytes(weights[i], n, n);
        for (const LowRank *l = weights[i]->added; l; l = l->next) {
            size_t few = INNER_PARTS * encoded_bytes(&l->a, n, at_most(n, INNER_FEW)),
                   many = (size_t)n_pieces(n, INNER_TOKENS) *
                          encoded_bytes(&l->a, n, at_most(n, INNER_TOKENS));
            if (few > inner_bytes) inner_bytes = few;
            if (many > inner_bytes) inner_bytes = many;
            floats += (size_t)n * (size_t)l->a.rows;
        }
    }
    if (inner_bytes > bytes) bytes = inner_bytes;
    if (bytes > scratch.encoded_bytes) {
        free(scratch.encoded);
        scratch.encoded = xalloc(bytes, 1);
        scratch.encoded_bytes = bytes;
    }
    if (floats > scratch.inner_floats) {
        free(scratch.inner);
        scratch.inner = xalloc(floats, sizeof *scratch.inner);
        scratch.inner_floats = floats;
    }
}

// A product as it is computed: its kernel, what that reads, and its rows in chunks.
typedef struct {
    const MatmulKernel *kernel;
    char *encoded;
    const float *inner; // of its first adapter
    int chunk, n_chunks;
} Share;

// Encodes x once for all products whose kernels read the same form.
static void encode(Share *shares, int n_products, const float *x, int n, int cols) {
    char *free_space = scratch.encoded;
    for (int p = 0; p < n_products; p++) {
        const MatmulKernel *k = shares[p].kernel;
        for (int other = 0; other < p; other++)
            if (shares[other].kernel->encode == k->encode)
                shares[p].encoded = shares[other].encoded;
        if (shares[p].encoded) continue;
        shares[p].encoded = free_space;
        free_space += round_up(k->encoded_bytes(n, cols), 64);
        for (int i; team_next(n_pieces(n, k->token_step), &i);)
            k->encode(shares[p].encoded, x, n, cols, i * k->token_step,
                      at_most(n, (i + 1) * k->token_step));
        team_end_op(OP_ENCODE);
    }
}

// Tokens from `first` on, as many as a unit has, and its part of the rows of every A.
static void multiply_inner_unit(const Product *products, int n_products, const float *x, int n,
                                int first, int part, void *encoded) {
    float *out = scratch.inner;
    int nt = at_most(n - first, INNER_TOKENS);
    const MatmulKernel *last = NULL;
    for (int p = 0; p < n_products; p++)
        for (const LowRank *l = products[p].w->added; l; l = l->next) {
            int rank = l->a.rows, rows = inner_rows(&l->a, n), row = part * rows;
            if (row < rank) {
                const MatmulKernel *k = pick_kernel(&l->a, n);
                if (!last || last->encode != k->encode)
                    k->encode(encoded, x + (size_t)first * (size_t)l->a.cols, nt, l->a.cols, 0, nt);
                k->rows(out + (size_t)first * (size_t)rank, (size_t)rank, &l->a, encoded, nt, row,
                        at_most(rank, row + rows));
                last = k;
            }
            out += (size_t)n * (size_t)rank;
        }
}

// Adapters add B (A x) to a product. All A x (n, rank) of some products come first, one after
// another in scratch.inner; B's part of a row is computed by whoever computes the row.
static void multiply_inner(const Product *products, int n_products, Share *shares, const float *x,
                           int n) {
    const float *at = scratch.inner;
    int n_parts = 0;
    size_t bytes = 0;
    for (int p = 0; p < n_products; p++) {
        shares[p].inner = at;
        for (const LowRank *l = products[p].w->added; l; l = l->next) {
            int rank = l->a.rows, parts = n_pieces(rank, inner_rows(&l->a, n));
            size_t needed =
                pick_kernel(&l->a, n)->encoded_bytes(at_most(n, INNER_TOKENS), l->a.cols);
            if (parts > n_parts) n_parts = parts;
            if (needed > bytes) bytes = needed;
            at += (size_t)n * (size_t)rank;
        }
    }
    if (!n_parts) return;
    bytes = round_up(bytes, 64);
    for (int i; team_next(n_pieces(n, INNER_TOKENS) * n_parts, &i);)
        multiply_inner_unit(products, n_products, x, n, i / n_parts * INNER_TOKENS, i % n_parts,
                            (char *)scratch.encoded + (size_t)i * bytes);
    team_end_op(OP_MATMUL);
}

// Rows [first, end) of that, for n tokens.
static void add_low_rank(float *out, const Tensor *w, const float *inner, int n, int first,
                         int end) {
    for (const LowRank *l = w->added; l; inner += (size_t)n * (size_t)l->a.rows, l = l->next)
        add_strips(out, (size_t)w->rows, l->b, inner, l->a.rows, n, first, end);
}

// Rows are handed out in chunks small enough that threads finish together (eight for each, were
// they equally fast), large enough to stream from memory.
enum { MIN_CHUNK = 8, MAX_CHUNK = 64, CHUNKS_PER_THREAD = 8 };

// Rows [first, end) of a product of n tokens.
static void add_bias(float *out, const Tensor *w, int n, int first, int end) {
    for (int t = 0; t < n; t++)
        for (int r = first; r < end; r++)
            out[(size_t)t * (size_t)w->rows + (size_t)r] += w->bias[r];
}

static int chunk_of(const MatmulKernel *k, Type type, int n_rows) {
    int most = k == &kernel.gemm_large[type] ? kernel.gemm_large_rows : MAX_CHUNK;
    int chunk = at_most(n_rows / (team_size() * CHUNKS_PER_THREAD), most);
    return (int)round_up((size_t)(chunk < MIN_CHUNK ? MIN_CHUNK : chunk), (size_t)k->row_step);
}

void ops_matmuls(const Product *products, int n_products, const float *x, int n) {
    Share shares[MAX_PRODUCTS] = {{0}};
    int n_chunks = 0, n_rows = 0;
    multiply_inner(products, n_products, shares, x, n);
    for (int p = 0; p < n_products; p++) {
        if (ops_watch) ops_watch(products[p].w, x, n);
        shares[p].kernel = pick_kernel(products[p].w, n);
        n_rows += products[p].w->rows;
    }
    encode(shares, n_products, x, n, products[0].w->cols);
    for (int p = 0; p < n_products; p++) {
        Share *s = &shares[p];
        s->chunk = chunk_of(s->kernel, products[p].w->type, n_rows);
        if (products[p].w->added) s->chunk = (int)round_up((size_t)s->chunk, LOW_RANK_STRIP);
        n_chunks += s->n_chunks = n_pieces(products[p].w->rows, s->chunk);
    }
    for (int i; team_next_near(n_chunks, &i);) {
        int p = 0;
        while (i >= shares[p].n_chunks) i -= shares[p++].n_chunks;
        const Share *s = &shares[p];
        const Tensor *w = products[p].w;
        int first = i * s->chunk, end = at_most(w->rows, first + s->chunk);
        s->kernel->rows(products[p].out, (size_t)w->rows, w, s->encoded, n, first, end);
        if (w->bias) add_bias(products[p].out, w, n, first, end);
        if (w->added) add_low_rank(products[p].out, w, s->inner, n, first, end);
    }
    team_end_op(OP_MATMUL);
}

void ops_matmul(float *out, const float *x, const Tensor *w, int n) {
    ops_matmuls(&(Product){out, w}, 1, x, n);
}

// Attention. The unit of work is one KV head of one tile: its queries are computed page after page
// and the pages' partial softmaxes merged in order (Milakov and Gimelshein 2018; Dao et al. 2022).
// With fewer units than threads can share, each page is computed for itself, and the same merge, in
// the same order, follows as a second step: the same bits. More than max_queries() heads for one KV
// head make several units.

static int max_queries(void) {
    return kernel.attend_many ? ATTEND_MANY_QUERIES : ATTEND_MAX_QUERIES;
}

int attention_tile_steps(const AttentionShape *shape) {
    int group = shape->n_heads / shape->n_kv_heads;
    return group < max_queries() ? max_queries() / group : 1;
}

static int tile_pages(const AttentionTile *tile) {
    return (tile->first_pos + tile->n_steps - 1) / KV_PAGE + 1;
}

static int most_pages(const AttentionTile *tiles, int n_tiles) {
    int most = 0;
    for (int i = 0; i < n_tiles; i++)
        if (tile_pages(&tiles[i]) > most) most = tile_pages(&tiles[i]);
    return most;
}

static int units_per_head(const AttentionShape *shape) {
    return n_pieces(shape->n_heads / shape->n_kv_heads, max_queries());
}

// Query i of a unit is one of a tile's queries: number first_query + i, which is head number %
// group of the KV head's group, of step number / group of the tile.
typedef struct {
    const AttentionTile *tile;
    const AttentionShape *shape;
    int layer, kv_head, group, first_query, n_queries;
} AttendUnit;

// Units follow each other by tile, then by KV head: what the tiles of a sequence share is still in
// the cache.
static AttendUnit attend_unit(const AttentionTile *tiles, int n_tiles, const AttentionShape *shape,
                              int layer, int index) {
    int per_head = units_per_head(shape), head = index / per_head;
    AttendUnit u = {&tiles[head % n_tiles], shape, layer, .kv_head = head / n_tiles};
    u.group = shape->n_heads / shape->n_kv_heads;
    u.first_query = index % per_head * max_queries();
    u.n_queries = at_most(u.tile->n_steps * u.group - u.first_query, max_queries());
    return u;
}

static size_t query_offset(const AttendUnit *u, int i) {
    int query = u->first_query + i;
    int step = u->tile->first_step + query / u->group,
        head = u->kv_head * u->group + query % u->group;
    return ((size_t)step * (size_t)u->shape->n_heads + (size_t)head) * (size_t)u->shape->head_dim;
}

// The softmax of a unit over some keys, not yet divided: max and sum (n_queries), acc (n_queries,
// head_dim).
typedef struct {
    float *max, *sum, *acc;
} Partial;

static Partial partial_at(float *memory, const AttendUnit *u) {
    return (Partial){memory, memory + u->n_queries, memory + 2 * u->n_queries};
}

// Of the largest unit.
static size_t partial_floats(const AttentionTile *tiles, int n_tiles, const AttentionShape *shape) {
    int most = 0;
    for (int i = 0; i < n_tiles; i++) most = tiles[i].n_steps > most ? tiles[i].n_steps : most;
    return (size_t)at_most(most * (shape->n_heads / shape->n_kv_heads), max_queries()) *
           (size_t)(shape->head_dim + 2);
}

// Units are too few to keep the threads busy, and the pages' softmaxes no burden (64 MiB).
static bool splits_pages(int n_units, int n_threads, int n_pages, size_t page_floats) {
    enum { MOST_FLOATS = 1 << 24 };
    return n_pages > 1 && n_threads > 1 && n_units < 2 * n_threads &&
           (size_t)n_units * (size_t)n_pages <= MOST_FLOATS / page_floats;
}

static void attend_page(const AttendUnit *u, const float *q, int page, Partial out) {
    int n_keys[ATTEND_MANY_QUERIES];
    for (int i = 0; i < u->n_queries; i++) {
        int n = u->tile->first_pos + (u->first_query + i) / u->group + 1 - page * KV_PAGE;
        n_keys[i] = n < 0 ? 0 : n > KV_PAGE ? KV_PAGE : n;
    }
    size_t at = (size_t)u->layer * u->tile->layer_stride + (size_t)page;
    size_t head = (size_t)u->kv_head * KV_PAGE *
                  quant_row_bytes(u->shape->kv_type, (size_t)u->shape->head_dim);
    int n_queries = ops_like == 1 && u->group < u->n_queries ? u->group : u->n_queries;
    bool is_many =
        !ops_is_invariant && n_queries > ATTEND_MANY_ABOVE && u->shape->kv_type != TYPE_F32;
    AttentionPage p = {
        .q = q,
        .k = (const char *)u->tile->k[at] + head,
        .v = (const char *)u->tile->v[at] + head,
        .next_k = page + 1 < tile_pages(u->tile) ? (const char *)u->tile->k[at + 1] + head : NULL,
        .n_keys = n_keys,
        .kv_type = u->shape->kv_type,
        .n_q = u->n_queries,
        .head_dim = u->shape->head_dim,
        .max = out.max,
        .sum = out.sum,
        .acc = out.acc};
    if (is_many && kernel.attend_many) {
        kernel.attend_many(&p);
        return;
    }
    for (int left = u->n_queries; left > 0; left -= p.n_q) {
        p.n_q = at_most(left, ATTEND_MAX_QUERIES);
        kernel.attend(&p);
        size_t done = (size_t)p.n_q * (size_t)p.head_dim;
        p.q += done, p.acc += done, p.n_keys += p.n_q, p.max += p.n_q, p.sum += p.n_q;
    }
}

// a += b, the softmax over the keys that follow
static void merge(const AttendUnit *u, Partial a, Partial b) {
    int dim = u->shape->head_dim;
    for (int i = 0; i < u->n_queries; i++) {
        if (b.sum[i] == 0) continue; // no keys in this page
        float top = b.max[i] > a.max[i] ? b.max[i] : a.max[i];
        float scale_a = expf(a.max[i] - top), scale_b = expf(b.max[i] - top);
        for (int d = i * dim; d < (i + 1) * dim; d++)
            a.acc[d] = a.acc[d] * scale_a + b.acc[d] * scale_b;
        a.sum[i] = a.sum[i] * scale_a + b.sum[i] * scale_b;
        a.max[i] = top;
    }
}

static void finish(const AttendUnit *u, float *out, Partial p) {
    int dim = u->shape->head_dim;
    for (int i = 0; i < u->n_queries; i++)
        for (int d = 0; d < dim; d++)
            out[query_offset(u, i) + (size_t)d] = p.acc[i * dim + d] / p.sum[i];
}

// What a thread needs for one unit: its queries side by side, and two softmaxes. Lies in its
// scratch memory.
typedef struct {
    float queries[ATTEND_MANY_QUERIES * MAX_HEAD_DIM];
    float page[ATTEND_MANY_QUERIES * (MAX_HEAD_DIM + 2)],
        all[ATTEND_MANY_QUERIES * (MAX_HEAD_DIM + 2)];
} UnitMemory;

_Static_assert(sizeof(UnitMemory) <= OPS_SCRATCH, "fits");

static UnitMemory *unit_memory(void) {
    return (UnitMemory *)((char *)team_scratch() + KERNEL_SCRATCH);
}

// Pages [begin, end).
static void attend_pages(const AttendUnit *u, const float *q, int begin, int end, Partial out) {
    UnitMemory *m = unit_memory();
    Partial one = partial_at(m->page, u);
    size_t dim = (size_t)u->shape->head_dim;
    for (int i = 0; i < u->n_queries; i++)
        memcpy(m->queries + (size_t)i * dim, q + query_offset(u, i), dim * sizeof(float));
    attend_page(u, m->queries, begin, out);
    for (int page = begin + 1; page < end; page++) {
        attend_page(u, m->queries, page, one);
        merge(u, out, one);
    }
}

void attention_reserve(const AttentionTile *tiles, int n_tiles, const AttentionShape *shape,
                       int n_threads) {
    int n_pages = most_pages(tiles, n_tiles),
        n_units = n_tiles * shape->n_kv_heads * units_per_head(shape);
    size_t page_floats = partial_floats(tiles, n_tiles, shape),
           floats = (size_t)n_units * (size_t)n_pages * page_floats;
    if (!splits_pages(n_units, n_threads, n_pages, page_floats)) return;
    if (floats <= scratch.partial_floats) return;
    scratch.partial_floats = floats + floats / 2;
    scratch.partial = xrealloc(scratch.partial, scratch.partial_floats, sizeof(float));
}

static void attend_whole(float *out, const float *q, const AttentionTile *tiles, int n_tiles,
                         int layer, const AttentionShape *shape, int n_units) {
    for (int i; team_next(n_units, &i);) {
        // the last tiles see the most keys: first, so that threads finish together
        AttendUnit u = attend_unit(tiles, n_tiles, shape, layer, n_units - 1 - i);
        Partial all = partial_at(unit_memory()->all, &u);
        attend_pages(&u, q, 0, tile_pages(u.tile), all);
        finish(&u, out, all);
    }
    team_end_op(OP_ATTEND);
}

void attention(float *out, const float *q, const AttentionTile *tiles, int n_tiles, int layer,
               const AttentionShape *shape) {
    int n_units = n_tiles * shape->n_kv_heads * units_per_head(shape),
        n_pages = most_pages(tiles, n_tiles);
    size_t page_floats = partial_floats(tiles, n_tiles, shape);
    if (!splits_pages(n_units, team_size(), n_pages, page_floats)) {
        attend_whole(out, q, tiles, n_tiles, layer, shape, n_units);
        return;
    }
    size_t unit_floats = (size_t)n_pages * page_floats;
    for (int i; team_next(n_units * n_pages, &i);) {
        AttendUnit u = attend_unit(tiles, n_tiles, shape, layer, i / n_pages);
        int page = i % n_pages;
        if (page < tile_pages(u.tile))
            attend_pages(&u, q, page, page + 1,
                         partial_at(scratch.partial + (size_t)i * page_floats, &u));
    }
    team_end_op(OP_ATTEND);
    for (int i; team_next(n_units, &i);) {
        AttendUnit u = attend_unit(tiles, n_tiles, shape, layer, i);
        float *first = scratch.partial + (size_t)i * unit_floats;
        for (int page = 1; page < tile_pages(u.tile); page++)
            merge(&u, partial_at(first, &u), partial_at(first + (size_t)page * page_floats, &u));
        finish(&u, out, partial_at(first, &u));
    }
    team_end_op(OP_ATTEND);
}
