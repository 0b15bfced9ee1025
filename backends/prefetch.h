// Reading ahead of what is computed.
#ifndef BACKENDS_PREFETCH_H
#define BACKENDS_PREFETCH_H

#include "../kernels/quant.h"

// Memory that will be wanted next, to be fetched a few lines at a time, as evenly as can be: in a
// burst it would keep other loads waiting. Keys and values of a page, and rows that a kernel
// unpacks lightly, come faster from four places in turn than in one stream (AVX-512: 4 tokens of
// 4096 x 4096 Q4_K in .43 ms, not .54).
typedef struct {
    const char *at;
    size_t apart;                  // bytes from one place to the next
    int log_places, next, n_lines; // of 64 bytes
} Prefetch;

static inline Prefetch prefetch_range(const void *at, size_t bytes, int log_places) {
    size_t n_each = at ? bytes / 64 >> log_places : 0;
    return (Prefetch){at, n_each * 64, log_places, 0, (int)(n_each << log_places)};
}

// What follows rows [row, row + n_rows) of w, as much as their columns [k, k + nk) take.
static inline Prefetch prefetch_next_rows(const Tensor *w, int row, int n_rows, int k, int nk) {
    size_t bytes = w->row_bytes * (size_t)n_rows, cols = (size_t)w->cols;
    const char *next = (const char *)w->data + (size_t)(row + n_rows) * w->row_bytes;
    return prefetch_range(next + bytes * (size_t)k / cols, bytes * (size_t)nk / cols, 0);
}

// The same from the four quarters of those rows.
static inline Prefetch prefetch_next_quarters(const Tensor *w, int row, int n_rows, int k, int nk) {
    size_t bytes = w->row_bytes * (size_t)n_rows, cols = (size_t)w->cols, quarter = bytes / 4;
    const char *next =
        (const char *)w->data + (size_t)(row + n_rows) * w->row_bytes + quarter * (size_t)k / cols;
    return (Prefetch){next, quarter, 2, 0, (int)(bytes * (size_t)nk / cols / 64)};
}

static inline void prefetch_lines(Prefetch *a, int n) {
    for (n = n < a->n_lines - a->next ? n : a->n_lines - a->next; n > 0; n--, a->next++) {
        size_t place = (size_t)(a->next & ((1 << a->log_places) - 1)),
               line = (size_t)(a->next >> a->log_places);
        __builtin_prefetch(a->at + place * a->apart + line * 64, 0, 2); // into L2
    }
}

#endif
