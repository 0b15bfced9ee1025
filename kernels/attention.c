// Attention is divided into work items: one KV head of one tile, which is up to
// attention_tile_steps() consecutive positions of a sequence. With grouped-query attention
// (Ainslie et al. 2023), `group` query heads share a KV head, so an item has n_steps * group
// queries, all of which read the same keys and values.
//
//     steps of the batch     tiles               items of a tile: one for each KV head
//     A 510  A 511           [A 510, A 511]      queries = 2 steps * group heads
//     A 512  A 513  A 514    [A 512 ... A 514]   a tile ends with a page (512 = 2 * KV_PAGE)
//     B 7                    [B 7]               another sequence
//
// The keys of an item are read page by page. The softmax over one page is kept unnormalized, as
//
//     m = max s,  l = sum e^(s - m),  acc = sum e^(s - m) v        s = q k, a score
//
// and the results over two sets of keys are merged (online softmax: Milakov and Gimelshein 2018,
// FlashAttention: Dao et al. 2022):
//
//     m = max(m1, m2),  l = l1 e^(m1 - m) + l2 e^(m2 - m),  acc likewise;  at the end out = acc / l
//
// Invariant: the pages of an item are merged in ascending order. If there are too few items to keep
// the threads busy (decoding with a long context), the pages are computed in one operation and
// merged in a second one, in the same order. The bits therefore do not depend on the number of
// threads.
#include "kernels/attention.h"
#include "kernels/load.h"
#include "kernels/team.h"
#include "base/exp.h"

#include <math.h>

// A work item. The queries of a tile for one KV head are numbered by step, then by head of the
// group: query i belongs to step i / group and to head kv_head * group + i % group.
typedef struct {
    const AttentionTile *tile;
    int kv_head, group;
    int first_query, n_queries;
    int n_pages; // pages that hold keys for the item
} AttentionItem;

// The softmax of an item over some of its keys: m, l and acc above.
typedef struct {
    float *max, *sum; // (n_queries)
    float *acc;       // (n_queries, head_dim)
} PartialSoftmax;

// A thread's scratch memory for one item.
typedef struct {
    float queries[ATTEND_MANY_QUERIES * MAX_HEAD_DIM];
    float page[ATTEND_MANY_QUERIES * (MAX_HEAD_DIM + 2)]; // PartialSoftmax of one page
    float all[ATTEND_MANY_QUERIES * (MAX_HEAD_DIM + 2)];  // PartialSoftmax of all pages so far
} ItemScratch;

_Static_assert(sizeof(ItemScratch) <= OPS_SCRATCH, "ItemScratch is larger than OPS_SCRATCH");

static ItemScratch *item_scratch(void) {
    return (ItemScratch *)((char *)team_scratch() + KERNEL_SCRATCH);
}

// Multiplies x (n) by the Hadamard matrix of n, a power of two: the fast Walsh-Hadamard transform.
// Each stage moves the lowest bit of the index to the top, so after all stages the bits are back in
// place.
MULTIVERSION static void hadamard(float *x, int n) {
    float y[MAX_HEAD_DIM];
    for (int stage = 1; stage < n; stage *= 2) {
        memcpy(y, x, (size_t)n * sizeof *x);
        for (int i = 0; i < n / 2; i++) {
            x[i] = (y[2 * i] + y[2 * i + 1]) * 0.70710678f; // 1 / sqrt(2)
            x[i + n / 2] = (y[2 * i] - y[2 * i + 1]) * 0.70710678f;
        }
    }
}

void attention_rotate(Type type, float *x, int n, int head_dim) {
    int width = head_dim & -head_dim;
    for (int i = 0; quant_is_integer(type) && i < n; i += width) hadamard(x + i, width);
}

static int max_queries(void) {
    return kernel.attend_many ? ATTEND_MANY_QUERIES : ATTEND_MAX_QUERIES;
}

// Items per KV head of a tile: more than one if more query heads share the KV head than an item
// holds queries.
static int items_per_head(const AttentionShape *s) {
    return (s->n_heads / s->n_kv_heads + max_queries() - 1) / max_queries();
}

int attention_tile_steps(const AttentionShape *s) {
    int group = s->n_heads / s->n_kv_heads;
    return group < max_queries() ? max_queries() / group : 1;
}

// Pages that hold keys for a tile. A tile does not cross a page boundary, so they are the same for
// all its steps.
static int tile_pages(const AttentionTile *tile) {
    return (tile->first_pos + tile->n_steps - 1) / KV_PAGE + 1;
}

void attention_prepare(Attention *a, const AttentionShape *shape, const AttentionTile *tiles,
                       int n_tiles, int n_threads) {
    enum { MAX_PARTIAL = 1 << 24 }; // floats: 64 MiB
    int max_steps = 0;

    a->shape = *shape;
    a->tiles = tiles;
    a->n_tiles = n_tiles;
    a->n_items = n_tiles * shape->n_kv_heads * items_per_head(shape);
    a->n_pages = 0;

    for (int i = 0; i < n_tiles; i++) {
        if (tile_pages(&tiles[i]) > a->n_pages) a->n_pages = tile_pages(&tiles[i]);
        if (tiles[i].n_steps > max_steps) max_steps = tiles[i].n_steps;
    }

    // Number of floats in the largest PartialSoftmax: max, sum and acc of each query.
    int n_queries = min_int(max_steps * (shape->n_heads / shape->n_kv_heads), max_queries());
    a->partial_len = (size_t)n_queries * (size_t)(shape->head_dim + 2);

    // If there are too few items for the threads, as in decode, each page of an item becomes a
    // separate work item.
    size_t n_partial = (size_t)a->n_items * (size_t)a->n_pages;
    a->is_split = a->n_pages > 1 && n_threads > 1 && a->n_items < 2 * n_threads &&
                  n_partial <= MAX_PARTIAL / a->partial_len;

    size_t bytes = n_partial * a->partial_len * sizeof(float);
    if (!a->is_split || bytes <= a->partial_bytes) return;
    a->partial_bytes = bytes + bytes / 2; // with a margin, because sequences grow
    a->partial = xrealloc(a->partial, a->partial_bytes, 1);
}

// Item `index` of a layer. Items are ordered by KV head, then by tile. Consecutive tiles of a
// sequence read the same keys, which are then still in the CPU's cache.
static AttentionItem item_at(const Attention *a, int index) {
    int per_head = items_per_head(&a->shape), head = index / per_head;
    AttentionItem item = {.tile = &a->tiles[head % a->n_tiles], .kv_head = head / a->n_tiles};
    item.group = a->shape.n_heads / a->shape.n_kv_heads;
    item.first_query = index % per_head * max_queries();
    item.n_queries = min_int(item.tile->n_steps * item.group - item.first_query, max_queries());
    item.n_pages = tile_pages(item.tile);
    return item;
}

// Offset of query i of an item in q and out.
static size_t query_offset(const Attention *a, const AttentionItem *item, int i) {
    int query = item->first_query + i;
    int step = item->tile->first_step + query / item->group;
    int head = item->kv_head * item->group + query % item->group;
    return ((size_t)step * (size_t)a->shape.n_heads + (size_t)head) * (size_t)a->shape.head_dim;
}

// The PartialSoftmax of an item, with its three arrays one after another in `memory`.
static PartialSoftmax partial_in(float *memory, const AttentionItem *item) {
    return (PartialSoftmax){memory, memory + item->n_queries, memory + 2 * item->n_queries};
}

// Merges b into a: a becomes the softmax over the keys of both.
MULTIVERSION static void merge(const AttentionItem *item, int head_dim, PartialSoftmax a,
                               PartialSoftmax b) {
    for (int i = 0; i < item->n_queries; i++) {
        if (b.sum[i] == 0) continue; // the query sees no key of this page
        float max = b.max[i] > a.max[i] ? b.max[i] : a.max[i];
        float scale_a = exp_negative(max - a.max[i]);
        float scale_b = exp_negative(max - b.max[i]);
        for (int d = i * head_dim; d < (i + 1) * head_dim; d++)
            a.acc[d] = a.acc[d] * scale_a + b.acc[d] * scale_b;
        a.sum[i] = a.sum[i] * scale_a + b.sum[i] * scale_b;
        a.max[i] = max;
    }
}

// Computes the softmax over one page, for the item's queries (n_queries, head_dim).
static void attend_page(const Attention *a, const AttentionItem *item, const float *queries,
                        int layer, int page, Exactness exactness, PartialSoftmax out) {
    const AttentionTile *tile = item->tile;
    const AttentionShape *s = &a->shape;
    int n_keys[ATTEND_MANY_QUERIES];

    for (int i = 0; i < item->n_queries; i++) {
        int pos = tile->first_pos + (item->first_query + i) / item->group;
        int n = pos + 1 - page * KV_PAGE; // causal: keys up to the query's own position
        n_keys[i] = n < 0 ? 0 : min_int(n, KV_PAGE);
    }

    // The keys and values of the item's KV head in this page.
    size_t at = (size_t)layer * tile->layer_stride + (size_t)page;
    size_t row = (size_t)item->kv_head * KV_PAGE;
    size_t k_at = row * quant_row_bytes(s->k_type, (size_t)s->head_dim);
    size_t v_at = row * quant_row_bytes(s->v_type, (size_t)s->head_dim);
    bool has_next = page + 1 < item->n_pages;
    AttentionPage p = {.q = queries,
                       .k = (const char *)tile->k[at] + k_at,
                       .v = (const char *)tile->v[at] + v_at,
                       .next_k = has_next ? (const char *)tile->k[at + 1] + k_at : NULL,
                       .n_keys = n_keys,
                       .k_type = s->k_type,
                       .v_type = s->v_type,
                       .n_q = item->n_queries,
                       .head_dim = s->head_dim,
                       .is_float32 = exactness.is_batch_invariant,
                       .max = out.max,
                       .sum = out.sum,
                       .acc = out.acc};

    // In attention, the row count that chooses the kernel is the number of queries; one row means
    // the queries of one step.
    int n = item->n_queries;
    if (exactness.kernel_rows == 1) n = min_int(n, item->group);
    bool is_many = n > kernel.attend_many_above && !exactness.is_batch_invariant;
    if (kernel.attend_many && is_many && s->k_type != TYPE_F32 && s->v_type != TYPE_F32) {
        kernel.attend_many(&p);
        return;
    }

    // attend() takes a limited number of queries at a time.
    for (int left = item->n_queries; left > 0; left -= p.n_q) {
        p.n_q = min_int(left, ATTEND_MAX_QUERIES);
        kernel.attend(&p);
        p.q += p.n_q * p.head_dim;
        p.acc += p.n_q * p.head_dim;
        p.n_keys += p.n_q;
        p.max += p.n_q;
        p.sum += p.n_q;
    }
}

// Computes the softmax of an item over pages [begin, end). The queries of an item are not
// contiguous in q, where the heads of a step follow each other, so they are gathered first.
static void attend_pages(const Attention *a, const AttentionItem *item, const float *q, int layer,
                         int begin, int end, Exactness exactness, PartialSoftmax out) {
    ItemScratch *scratch = item_scratch();
    PartialSoftmax one = partial_in(scratch->page, item);
    size_t dim = (size_t)a->shape.head_dim;

    for (int i = 0; i < item->n_queries; i++)
        memcpy(scratch->queries + (size_t)i * dim, q + query_offset(a, item, i),
               dim * sizeof(float));

    attend_page(a, item, scratch->queries, layer, begin, exactness, out);
    for (int page = begin + 1; page < end; page++) {
        attend_page(a, item, scratch->queries, layer, page, exactness, one);
        merge(item, a->shape.head_dim, out, one);
    }
}

// out = acc / l
static void normalize(const Attention *a, const AttentionItem *item, float *out, PartialSoftmax p) {
    int dim = a->shape.head_dim;
    for (int i = 0; i < item->n_queries; i++) {
        float *to = out + query_offset(a, item, i);
        for (int d = 0; d < dim; d++) to[d] = p.acc[i * dim + d] / p.sum[i];
        attention_rotate(a->shape.v_type, to, dim, dim);
    }
}

void attention(float *out, const float *q, const Attention *a, int layer, Exactness exactness) {
    if (!a->is_split) {
        for (int i; team_next(a->n_items, &i);) {
            // In reverse order: the last tiles have the most keys, and with the longest items first
            // the threads finish at about the same time.
            AttentionItem item = item_at(a, a->n_items - 1 - i);
            PartialSoftmax all = partial_in(item_scratch()->all, &item);
            attend_pages(a, &item, q, layer, 0, item.n_pages, exactness, all);
            normalize(a, &item, out, all);
        }
        team_end_op(OP_ATTEND);
        return;
    }

    // A thread takes consecutive pages of a head, so it also computes the page whose keys attend()
    // has prefetched.
    for (int i; team_next_near(a->n_items * a->n_pages, &i);) {
        AttentionItem item = item_at(a, i / a->n_pages);
        int page = i % a->n_pages;
        if (page >= item.n_pages) continue;
        PartialSoftmax one = partial_in(a->partial + (size_t)i * a->partial_len, &item);
        attend_pages(a, &item, q, layer, page, page + 1, exactness, one);
    }
    team_end_op(OP_ATTEND);

    // Merge the pages of each item, in ascending order.
    for (int i; team_next(a->n_items, &i);) {
        AttentionItem item = item_at(a, i);
        float *pages = a->partial + (size_t)i * (size_t)a->n_pages * a->partial_len;
        PartialSoftmax all = partial_in(pages, &item);
        for (int page = 1; page < item.n_pages; page++)
            merge(&item, a->shape.head_dim, all,
                  partial_in(pages + (size_t)page * a->partial_len, &item));
        normalize(a, &item, out, all);
    }
    team_end_op(OP_ATTEND);
}
