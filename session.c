// The KV cache is kept in pages of KV_PAGE positions of all layers, keys first, then values. Pages
// are allocated as the sequence grows, untouched memory costs nothing, and sequences with a common
// prefix hold the same pages.
#include "session.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct KvPage {
    _Atomic int n_owners;
    char *data; // (2, n_layers, n_kv_heads, KV_PAGE, head_dim) of kv_type
    void *map;  // the mapping in which it lies, read-only; NULL: memory of our own
    size_t map_bytes;
};

size_t kv_row_bytes(const KvShape *shape) {
    return quant_row_bytes(shape->type, (size_t)shape->head_dim);
}

// Bytes of the keys (or values) that a page holds for one layer.
static size_t layer_bytes(const KvShape *shape) {
    return (size_t)shape->n_kv_heads * KV_PAGE * kv_row_bytes(shape);
}

size_t kv_position_bytes(const KvShape *shape) {
    return 2 * (size_t)shape->n_layers * layer_bytes(shape) / KV_PAGE;
}

// With one owner; NULL when memory is short.
static KvPage *page_new(const KvShape *shape) {
    KvPage *page = calloc(1, sizeof *page);
    void *data = NULL;
    if (!page || posix_memalign(&data, 64, KV_PAGE * kv_position_bytes(shape))) {
        free(page);
        return NULL;
    }
    page->n_owners = 1;
    page->data = data;
    return page;
}

// The last owner frees it.
static void page_release(KvPage *page) {
    if (atomic_fetch_sub(&page->n_owners, 1) > 1) return;
    if (page->map)
        munmap(page->map, page->map_bytes);
    else
        free(page->data);
    free(page);
}

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

// Enters a page into the per-layer tables.
static void session_place(Session *s, KvPage *page) {
    int n_layers = s->shape.n_layers;
    size_t bytes = layer_bytes(&s->shape);
    for (int l = 0; l < n_layers; l++) {
        size_t at = (size_t)l * (size_t)s->cap_pages + (size_t)s->n_pages;
        s->k[at] = page->data + (size_t)l * bytes;
        s->v[at] = page->data + (size_t)(n_layers + l) * bytes;
    }
    s->pages[s->n_pages++] = page;
}

// Room in the tables for n_pages; a layer's part of them moves when they grow.
static void session_grow_tables(Session *s, int n_pages) {
    int n_old = s->n_pages, n_layers = s->shape.n_layers;
    if (n_pages <= s->cap_pages) return;
    s->cap_pages = n_pages > 2 * s->cap_pages ? n_pages : 2 * s->cap_pages;
    s->pages = xrealloc(s->pages, (size_t)s->cap_pages, sizeof *s->pages);
    s->k = xrealloc(s->k, (size_t)n_layers * (size_t)s->cap_pages, sizeof *s->k);
    s->v = xrealloc(s->v, (size_t)n_layers * (size_t)s->cap_pages, sizeof *s->v);
    s->n_pages = 0;
    while (s->n_pages < n_old) session_place(s, s->pages[s->n_pages]);
}

// Room in the tables for n positions.
static void session_grow(Session *s, int n) {
    int n_pages = (n + KV_PAGE - 1) / KV_PAGE;
    if (n > s->cap_tokens) {
        s->cap_tokens = n_pages * KV_PAGE;
        s->tokens = xrealloc(s->tokens, (size_t)s->cap_tokens, sizeof *s->tokens);
    }
    session_grow_tables(s, n_pages);
}

bool session_reserve(Session *s, int n, Error *err) {
    int n_pages = (n + KV_PAGE - 1) / KV_PAGE;
    session_grow(s, n);
    while (s->n_pages < n_pages) {
        KvPage *page = page_new(&s->shape);
        if (!page)
            return error_set(err, EXIT_RUNTIME,
                             "out of memory: KV cache for %d positions (%zu MiB)", n,
                             (size_t)n * kv_position_bytes(&s->shape) >> 20);
        session_place(s, page);
    }
    return true;
}

const void *session_page(const Session *s, int page) { return s->pages[page]->data; }

void session_append_mapped(Session *s, const int *tokens, void *data, void *map, size_t map_bytes) {
    KvPage *page = xalloc(1, sizeof *page);
    page->n_owners = 1;
    page->data = data;
    page->map = map;
    page->map_bytes = map_bytes;
    session_grow(s, s->n_tokens + KV_PAGE);
    session_place(s, page);
    memcpy(s->tokens + s->n_tokens, tokens, KV_PAGE * sizeof *tokens);
    if (s->n_reproducible == s->n_tokens) s->n_reproducible += KV_PAGE;
    s->n_tokens += KV_PAGE;
}

// Of the keys or values of a layer, which `pages` holds, those of a head at a position.
static void *row_at(const Session *s, const void *const *pages, int layer, int kv_head, int pos) {
    const char *page = pages[(size_t)layer * (size_t)s->cap_pages + (size_t)(pos / KV_PAGE)];
    return (char *)page +
           ((size_t)kv_head * KV_PAGE + (size_t)(pos % KV_PAGE)) * kv_row_bytes(&s->shape);
}

void *session_key(const Session *s, int layer, int kv_head, int pos) {
    return row_at(s, s->k, layer, kv_head, pos);
}
void *session_value(const Session *s, int layer, int kv_head, int pos) {
    return row_at(s, s->v, layer, kv_head, pos);
}

bool session_pad(Session *s, int n, Error *err) {
    if (!session_reserve(s, n, err)) return false;
    for (int i = s->n_tokens / KV_PAGE; i < s->n_pages; i++)
        memset(s->pages[i]->data, 0, KV_PAGE * kv_position_bytes(&s->shape));
    while (s->n_tokens < n) s->tokens[s->n_tokens++] = 0;
    return true;
}

// The first n positions of page `from`, copied into `to`.
static void page_copy(const KvShape *shape, KvPage *to, const KvPage *from, int n) {
    size_t row = kv_row_bytes(shape), stride = KV_PAGE * row, used = (size_t)n * row;
    for (size_t i = 0; i < 2 * (size_t)shape->n_layers * (size_t)shape->n_kv_heads; i++)
        memcpy(to->data + i * stride, from->data + i * stride, used);
}

// The last page, if others hold it too or it is a mapping, and it is about to be written: a copy of
// our own.
static bool session_own_last(Session *s, int n) {
    int last = s->n_pages - 1;
    if (n % KV_PAGE == 0 || (s->pages[last]->n_owners == 1 && !s->pages[last]->map)) return true;
    KvPage *own = page_new(&s->shape);
    if (!own) return false;
    page_copy(&s->shape, own, s->pages[last], n % KV_PAGE);
    page_release(s->pages[last]);
    s->n_pages--;
    session_place(s, own);
    return true;
}

void session_rewind(Session *s, int n) {
    if (n < s->n_tokens) s->n_tokens = n;
    if (n < s->n_reproducible) s->n_reproducible = n;
    while (s->n_pages > (s->n_tokens + KV_PAGE - 1) / KV_PAGE) page_release(s->pages[--s->n_pages]);
    if (!session_own_last(s, s->n_tokens)) die(EXIT_RUNTIME, "out of memory: KV cache");
}

Session *session_fork(const Session *s, int n) {
    Session *f = session_new(&s->shape);
    int n_pages = (n + KV_PAGE - 1) / KV_PAGE;
    session_grow_tables(f, n_pages);
    f->tokens = xrealloc(NULL, (size_t)n_pages * KV_PAGE, sizeof *f->tokens);
    f->cap_tokens = n_pages * KV_PAGE;
    memcpy(f->tokens, s->tokens, (size_t)n * sizeof *f->tokens);
    f->n_tokens = n;
    f->n_reproducible = n < s->n_reproducible ? n : s->n_reproducible;
    for (int i = 0; i < n_pages; i++) {
        atomic_fetch_add(&s->pages[i]->n_owners, 1);
        session_place(f, s->pages[i]);
    }
    if (session_own_last(f, n)) return f;
    session_free(f);
    return NULL;
}
