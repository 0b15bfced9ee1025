// See memory.h.
#include "base/memory.h"

#include <sys/mman.h>

bool size_mul(size_t a, size_t b, size_t *out) { return !__builtin_mul_overflow(a, b, out); }
bool size_add(size_t a, size_t b, size_t *out) { return !__builtin_add_overflow(a, b, out); }

// n * size bytes, rounded up to a multiple of 64.
static size_t block_bytes(size_t n, size_t size) {
    size_t bytes;
    if (!size_mul(n, size, &bytes) || !size_add(bytes, 64, &bytes))
        die(EXIT_RUNTIME, "out of memory: size overflow");
    return bytes / 64 * 64;
}

void *xalloc(size_t n, size_t size) {
    size_t bytes = block_bytes(n, size);
    void *p = NULL;
    if (posix_memalign(&p, 64, bytes)) die(EXIT_RUNTIME, "out of memory: %zu bytes", bytes);
    return memset(p, 0, bytes);
}

void *large_alloc(size_t bytes, bool is_filled) {
    void *p = NULL;
#if defined(MADV_HUGEPAGE)
    enum { HUGE_PAGE = 2 << 20 };
    if (is_filled && bytes >= HUGE_PAGE / 2 && bytes < SIZE_MAX - HUGE_PAGE) {
        bytes = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
        if (posix_memalign(&p, HUGE_PAGE, bytes)) return NULL;
        madvise(p, bytes, MADV_HUGEPAGE);
        return p;
    }
#endif
    (void)is_filled;
    return posix_memalign(&p, 64, bytes) ? NULL : p;
}

void *xalloc_large(size_t n, size_t size) {
    size_t bytes = block_bytes(n, size);
    void *p = large_alloc(bytes, true);
    if (!p) die(EXIT_RUNTIME, "out of memory: %zu bytes", bytes);
    return p;
}

void *xrealloc(void *p, size_t n, size_t size) {
    size_t bytes;
    if (!size_mul(n, size, &bytes)) die(EXIT_RUNTIME, "out of memory: size overflow");
    p = realloc(p, bytes ? bytes : 1);
    if (!p) die(EXIT_RUNTIME, "out of memory: %zu bytes", bytes);
    return p;
}

void *list_grow(void *list, int n, size_t item_size) {
    return n & (n - 1) ? list : xrealloc(list, n ? 2 * (size_t)n : 1, item_size);
}

size_t list_unique(void *list, size_t n, size_t item_size,
                   int (*compare)(const void *a, const void *b)) {
    char *items = list;
    size_t n_kept = 1;
    if (n < 2) return n;

    qsort(items, n, item_size, compare);
    for (size_t i = 1; i < n; i++) {
        const char *item = items + i * item_size;
        if (!compare(items + (n_kept - 1) * item_size, item)) continue;
        memmove(items + n_kept * item_size, item, item_size);
        n_kept++;
    }
    return n_kept;
}

size_t list_lower_bound(const void *list, size_t n, size_t item_size, uint32_t code) {
    size_t lo = 0;
    while (lo < n) {
        size_t mid = lo + (n - lo) / 2;
        uint32_t found;
        memcpy(&found, (const char *)list + mid * item_size, sizeof found);
        if (found < code)
            lo = mid + 1;
        else
            n = mid;
    }
    return lo;
}

void *arena_alloc(Arena *a, size_t n, size_t size) {
    a->blocks = list_grow((void *)a->blocks, a->n_blocks, sizeof *a->blocks);
    void *block = memset(xrealloc(NULL, n, size), 0, n * size);
    a->n_bytes += n * size;
    return a->blocks[a->n_blocks++] = block;
}

void arena_free(Arena *a) {
    for (int i = 0; i < a->n_blocks; i++) free(a->blocks[i]);
    free((void *)a->blocks);
    *a = (Arena){0};
}
