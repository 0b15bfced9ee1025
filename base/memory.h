// Memory: overflow-checked sizes, and allocation that ends the program when memory runs out.
#ifndef BASE_MEMORY_H
#define BASE_MEMORY_H

#include "error.h"

// a * b and a + b; false when the result does not fit. Every size that comes from outside passes
// through these.
bool size_mul(size_t a, size_t b, size_t *out);
bool size_add(size_t a, size_t b, size_t *out);

// n * size bytes, zeroed, aligned to 64. Ends the program (exit 1) when memory is short. Free with
// free().
void *xalloc(size_t n, size_t size);
// Grows a plain array to n * size bytes, keeping what it holds; new bytes are not zeroed. Not for
// xalloc memory whose alignment matters.
void *xrealloc(void *p, size_t n, size_t size);
// Makes room for one more item in a list of n that only ever grows by one: doubles it when n is 0
// or a power of two.
void *list_grow(void *list, int n, size_t item_size);

#endif
