// The layout of the KV cache, from the outside in:
//
//     Session.pages[p]      positions [p * KV_PAGE, (p + 1) * KV_PAGE) of all layers, in one
//                           allocation: the keys of layer 0, 1, ..., then the values
//     Session.k[layer][p]   the keys of one layer in that page: (n_kv_heads, KV_PAGE, head_dim)
//     session_key(...)      the key of one head at one position: a row of head_dim numbers
//
// The keys that attention reads for one head are therefore contiguous within a page, and a page can
// be shared, or written to the prefix cache, as a whole. Llama 3.1 8B with an F16 cache: 32 layers,
// 8 KV heads of 128 numbers, 128 KiB per position, 32 MiB per page.
#include "model/session.h"
#include "base/bits.h"

#include <stdatomic.h>
#include <sys/mman.h>

struct KvPage {
    _Atomic int n_owners; // sessions that share the page
    char *data;           // (2, n_layers, n_kv_heads, KV_PAGE, head_dim): all keys, then all values
    void *map;            // mapping that contains data, read-only; NULL: data is allocated
    size_t map_bytes;
};

// Bytes of the keys (or values) of one layer in a page, stored as `type`.
static size_t layer_bytes(const KvShape *shape, Type type) {
    return (size_t)shape->n_kv_heads * KV_PAGE * quant_row_bytes(type, (size_t)shape->head_dim);
}

size_t kv_position_bytes(const KvShape *s) {
    return (size_t)s->n_layers * (layer_bytes(s, s->k_type) + layer_bytes(s, s->v_type)) / KV_PAGE;
}

static int pages_of(int n_positions) { return div_up(n_positions, KV_PAGE); }

// Pages.

// Allocates a page with one owner; NULL if memory is short. The page is not zeroed: unused
// positions need no memory. is_filled: all positions will be written.
static KvPage *page_new(const KvShape *shape, bool is_filled) {
    void *data = large_alloc(KV_PAGE * kv_position_bytes(shape), is_filled);
    if (!data) return NULL;
    KvPage *page = xalloc(1, sizeof *page);
    *page = (KvPage){.n_owners = 1, .data = data};
    return page;
}

// Removes one owner of a page; the last owner frees it.
static void page_release(KvPage *page) {
    if (atomic_fetch_sub(&page->n_owners, 1) > 1) return;
    if (page->map)
        munmap(page->map, page->map_bytes);
    else
        free(page->data);
    free(page);
}

// Appends a page to the session's tables: `pages`, and k and v of all layers.
static void append_page(Session *s, KvPage *page) {
    size_t n_layers = (size_t)s->shape.n_layers;
    size_t k_bytes = layer_bytes(&s->shape, s->shape.k_type);
    size_t v_bytes = layer_bytes(&s->shape, s->shape.v_type);
    for (size_t l = 0; l < n_layers; l++) {
        size_t at = l * (size_t)s->cap_pages + (size_t)s->n_pages;
        s->k[at] = page->data + l * k_bytes;
        s->v[at] = page->data + n_layers * k_bytes + l * v_bytes;
    }
    s->pages[s->n_pages++] = page;
}

// Enlarges the tables and the token array to hold n pages. Row l of k and v begins at l *
// cap_pages, so all rows move when cap_pages changes: the tables are built again.
static void grow_tables(Session *s, int n) {
    int n_old = s->n_pages;
    if (n <= s->cap_pages) return;

    s->cap_pages = n > 2 * s->cap_pages ? n : 2 * s->cap_pages;
    size_t cap = (size_t)s->cap_pages, n_entries = cap * (size_t)s->shape.n_layers;
    s->tokens = xrealloc(s->tokens, cap * KV_PAGE, sizeof *s->tokens);
    s->pages = xrealloc(s->pages, cap, sizeof *s->pages);
    s->k = xrealloc(s->k, n_entries, sizeof *s->k);
    s->v = xrealloc(s->v, n_entries, sizeof *s->v);

    s->n_pages = 0;
    while (s->n_pages < n_old) append_page(s, s->pages[s->n_pages]);
}

// Prepares the session for writing at position n: if n is inside the last page, and that page is
// shared or mapped, replaces it by a copy of its positions before n. False if memory is short.
static bool own_last_page(Session *s, int n) {
    if (n % KV_PAGE == 0) return true; // the next position begins a new page
    KvPage *last = s->pages[s->n_pages - 1];
    if (last->n_owners == 1 && !last->map) return true;

    KvPage *own = page_new(&s->shape, false);
    if (!own) return false;

    // The keys of all heads come first, then the values.
    int n_heads = s->shape.n_layers * s->shape.n_kv_heads;
    size_t at = 0; // offset of the rows of head i
    for (int i = 0; i < 2 * n_heads; i++) {
        Type type = i < n_heads ? s->shape.k_type : s->shape.v_type;
        size_t row = quant_row_bytes(type, (size_t)s->shape.head_dim);
        memcpy(own->data + at, last->data + at, (size_t)(n % KV_PAGE) * row);
        at += KV_PAGE * row;
    }

    page_release(last);
    s->n_pages--;
    append_page(s, own);
    return true;
}

// Sessions.

Session *session_new(const KvShape *shape) {
    Session *s = xalloc(1, sizeof *s);
    s->shape = *shape;
    return s;
}

void session_free(Session *s) {
    if (!s) return;
    session_rewind(s, 0);
    free(s->tokens);
    free(s->pages);
    free(s->k);
    free(s->v);
    free(s);
}

bool session_reserve(Session *s, int n, Error *err) {
    grow_tables(s, pages_of(n));
    while (s->n_pages < pages_of(n)) {
        KvPage *page = page_new(&s->shape, n / KV_PAGE > s->n_pages);
        if (!page)
            return error_set(err, EXIT_RUNTIME,
                             "out of memory: KV cache for %d positions (%zu MiB)", n,
                             (size_t)n * kv_position_bytes(&s->shape) >> 20);
        append_page(s, page);
    }
    return true;
}

// The key (table s->k) or value (table s->v) of one head at one position, stored as `type`.
static void *row_at(const Session *s, const void *const *table, Type type, int layer, int kv_head,
                    int pos) {
    const char *page = table[(size_t)layer * (size_t)s->cap_pages + (size_t)(pos / KV_PAGE)];
    size_t row = (size_t)kv_head * KV_PAGE + (size_t)(pos % KV_PAGE);
    return (char *)page + row * quant_row_bytes(type, (size_t)s->shape.head_dim);
}

void *session_key(const Session *s, int layer, int kv_head, int pos) {
    return row_at(s, s->k, s->shape.k_type, layer, kv_head, pos);
}

void *session_value(const Session *s, int layer, int kv_head, int pos) {
    return row_at(s, s->v, s->shape.v_type, layer, kv_head, pos);
}

const void *session_page(const Session *s, int page) { return s->pages[page]->data; }

void session_append_mapped(Session *s, const int *tokens, void *data, void *map, size_t map_bytes) {
    KvPage *page = xalloc(1, sizeof *page);
    *page = (KvPage){.n_owners = 1, .data = data, .map = map, .map_bytes = map_bytes};
    grow_tables(s, s->n_pages + 1);
    append_page(s, page);
    memcpy(s->tokens + s->n_tokens, tokens, KV_PAGE * sizeof *tokens);
    if (s->n_reproducible == s->n_tokens) s->n_reproducible += KV_PAGE;
    s->n_tokens += KV_PAGE;
}

void session_rewind(Session *s, int n) {
    if (n < s->n_tokens) s->n_tokens = n;
    if (n < s->n_reproducible) s->n_reproducible = n;
    while (s->n_pages > pages_of(s->n_tokens)) page_release(s->pages[--s->n_pages]);
    if (!own_last_page(s, s->n_tokens)) die(EXIT_RUNTIME, "out of memory: KV cache");
}

bool session_pad(Session *s, int n, Error *err) {
    if (!session_reserve(s, n, err)) return false;
    for (int i = s->n_tokens / KV_PAGE; i < s->n_pages; i++)
        memset(s->pages[i]->data, 0, KV_PAGE * kv_position_bytes(&s->shape));
    while (s->n_tokens < n) s->tokens[s->n_tokens++] = 0;
    return true;
}

Session *session_fork(const Session *s, int n) {
    Session *fork = session_new(&s->shape);
    grow_tables(fork, pages_of(n));
    for (int i = 0; i < n; i++) fork->tokens[i] = s->tokens[i];
    fork->n_tokens = n;
    fork->n_reproducible = n < s->n_reproducible ? n : s->n_reproducible;

    for (int i = 0; i < pages_of(n); i++) {
        atomic_fetch_add(&s->pages[i]->n_owners, 1);
        append_page(fork, s->pages[i]);
    }

    if (own_last_page(fork, n)) return fork;
    session_free(fork);
    return NULL;
}
