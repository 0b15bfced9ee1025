// Memory: overflow-checked sizes, and allocation that ends the program when memory runs out, so
// that callers need no error path. <stdlib.h> and <string.h> come with this header.
#pragma once

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

// a * b and a + b; false on overflow. Every size derived from a file or an option is computed with
// these.
bool size_mul(size_t a, size_t b, size_t *out);
bool size_add(size_t a, size_t b, size_t *out);

// n * size bytes, zeroed, aligned to 64. Free with free().
void *xalloc(size_t n, size_t size);
// `bytes` bytes, aligned to 64, not zeroed; NULL if memory is short. Free with free(). The system
// provides the memory when it is first written. is_filled: all of it will be, so a large block is
// in huge pages if the system has them. That saves 511 of 512 page faults, which take up to 10 us
// each in a virtual machine, and misses of the TLB.
void *large_alloc(size_t bytes, bool is_filled);
// n * size bytes of large_alloc() that will be filled; ends the program if memory is short.
void *xalloc_large(size_t n, size_t size);
// As realloc() to n * size bytes: new bytes are not zeroed, and the alignment of xalloc is lost.
void *xrealloc(void *p, size_t n, size_t size);
// Enlarges a list of n items before one more is appended. The list is doubled when n is 0 or a
// power of two, so it must grow by one item at a time.
void *list_grow(void *list, int n, size_t item_size);
// Sorts n items and removes all but one of equal ones. Returns the number of those that remain.
size_t list_unique(void *list, size_t n, size_t item_size,
                   int (*compare)(const void *a, const void *b));
// Index of the first of n items whose code is at least `code`; n if there is none. An item begins
// with its code, a uint32_t, by which the items are sorted.
size_t list_lower_bound(const void *list, size_t n, size_t item_size, uint32_t code);

// Blocks of memory that are freed together. Zero-initialize.
typedef struct {
    void **blocks;
    int n_blocks;
    size_t n_bytes; // of all blocks
} Arena;
void *arena_alloc(Arena *a, size_t n, size_t size); // n * size bytes, zeroed
void arena_free(Arena *a);
