// Software prefetch, spread over a computation.
//
// A kernel that works in L1 and L2 leaves the memory bus idle. It describes the memory that it will
// need next (a Prefetch) and calls prefetch_lines() at regular steps, for a few cache lines each
// time; a burst would delay the loads of the computation itself. The memory may be divided into
// several streams, from which lines are fetched in turn: on AVX-512, 4 tokens x 4096 x 4096 of Q4_K
// take 0.43 ms with four streams and 0.54 ms with one (Sapphire Rapids, 2026-11).
#pragma once

#include "kernels/tensor.h"

typedef struct {
    const char *begin;
    size_t stride;                  // bytes from one stream to the next
    int log_streams, next, n_lines; // lines of 64 bytes: next to fetch, all
} Prefetch;

// Describes `bytes` bytes at `begin` (none if it is NULL), in 2^log_streams streams.
static inline Prefetch prefetch_range(const void *begin, size_t bytes, int log_streams) {
    size_t n_each = begin ? bytes / 64 >> log_streams : 0;
    return (Prefetch){begin, n_each * 64, log_streams, 0, (int)(n_each << log_streams)};
}

// Describes a part of the n_rows rows that follow [row, row + n_rows) of w: the part to prefetch
// while columns [k, k + nk) are computed, which is nk / cols of their bytes.
static inline Prefetch prefetch_next_rows(const Tensor *w, int row, int n_rows, int k, int nk,
                                          int log_streams) {
    size_t bytes = w->row_bytes * (size_t)n_rows, cols = (size_t)w->cols,
           stride = bytes >> log_streams;
    const char *next = (const char *)w->data + (size_t)(row + n_rows) * w->row_bytes;
    return (Prefetch){next + stride * (size_t)k / cols, stride, log_streams, 0,
                      (int)(bytes * (size_t)nk / cols / 64)};
}

// Brings the next n lines into L1. Into L2 instead, a pass of 32 or 64 tokens takes 1.05 of the
// time (8B in Q4_K_M, AVX-512 and AVX2, Zen 5, 2026-11-29).
static inline void prefetch_lines(Prefetch *p, int n) {
    for (n = n < p->n_lines - p->next ? n : p->n_lines - p->next; n > 0; n--, p->next++) {
        size_t stream = (size_t)(p->next & ((1 << p->log_streams) - 1)),
               line = (size_t)(p->next >> p->log_streams);
        __builtin_prefetch(p->begin + stream * p->stride + line * 64, 0, 3);
    }
}
