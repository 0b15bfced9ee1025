// Bit-exactness: how the bits of a result may depend on the number of rows (tokens) of a forward
// pass.
//
// A backend has up to three kernels for the product of a matrix with n rows of activations: gemv
// for few rows (decode), gemm and gemm_large for many (prefill). They round activations in
// different ways or add in different orders, so the same row can differ in its last bits between
// them; so can attention, where a backend has attend_many. Within one kernel, a row's result
// depends on that row alone: not on the other rows, not on the number of threads, not on how the
// work was divided (kernels.h).
//
// The bits of a row therefore follow from the choice of kernel, and that choice from one number:
//
//   kernel_rows  kernels for         used for
//   0            the actual rows     prompts and batches (the fastest)
//   1            one row             a sequence that decodes alone, with its draft tokens: each row
//                                    has the bits of a forward pass of its own
//   n            n rows              the rest of a chunk that begins in the prefix cache: the bits
//                                    of an uncached prefill
//
// With is_batch_invariant (--deterministic) kernels are always those for one row: no result depends
// on the batch, the chunk size, speculation or the prefix cache. A kernel that has the bits of gemv
// (MatmulKernel.has_gemv_bits) is chosen by speed alone, in every mode.
#pragma once

#include <stdbool.h>

typedef struct {
    int kernel_rows; // row count used to choose kernels; 0: the actual one
    bool is_batch_invariant;
} Exactness;

// The row count by which the kernel for n rows is chosen.
static inline int exactness_rows(Exactness e, int n) {
    return e.is_batch_invariant ? 1 : e.kernel_rows ? e.kernel_rows : n;
}
