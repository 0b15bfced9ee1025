// Bit-exactness: how the bits of a result may depend on the number of rows (tokens) of a forward
// pass.
//
// A backend has up to three kernels for the product of a matrix with n rows of activations: gemv
// for few rows (decode), gemm and, on AMX, gemm_large for many rows (prefill). They may round
// activations in different ways or add in different orders, so the result of a row can differ
// between kernels in its last bits. Integer types on AVX2, AVX-VNNI and AVX-512 are an exception:
// all their kernels have one order of sums. Attention differs in a backend with attend_many. Within
// one kernel, the result of a row depends only on that row: not on the other rows, not on the
// number of threads, not on how the work was divided (kernels.h).
//
// The bits of a row therefore follow from the choice of kernel, and that choice from one number:
//
//   kernel_rows  kernels for         used for
//   0            the actual rows     prompts and batches (the fastest)
//   1            one row             a sequence that decodes alone, with its draft tokens: each row
//                                    has the bits that it would have in a pass of its own; also a
//                                    pass with a prompt whose log-probabilities are requested,
//                                    unless Request.uses_actual_rows is set
//   n            n rows              a chunk of n tokens of which the first come from the prefix
//                                    cache: the others have the bits of an uncached prefill
//
// With is_batch_invariant (--deterministic), kernels for one row are always used, so that no result
// depends on the batch, the chunk size, speculation or the prefix cache. A kernel with the bits of
// gemv (MatmulKernel.has_gemv_bits) is chosen only by speed, in every mode.
#pragma once

#include "kernels/kernels.h"

typedef struct {
    int kernel_rows; // row count used to choose kernels; 0: the actual one
    bool is_batch_invariant;
} Exactness;

// The row count that chooses the kernel for n rows.
static inline int exactness_rows(Exactness e, int n) {
    if (e.is_batch_invariant) return 1;
    return e.kernel_rows ? e.kernel_rows : n;
}

// For the products of experts (experts.h). Each token chooses n_used of n_experts, so a pass of
// `rows` tokens has rows * n_used / n_experts rows for each expert on average. This number chooses
// the kernels, because the actual ones depend on the other tokens. From a page on, the number of
// tokens does, so that whole pages have the same bits in all passes (append_tokens in model.c).
static inline Exactness exactness_of_experts(Exactness e, int n, int n_used, int n_experts) {
    int rows = exactness_rows(e, n);
    if (rows < KV_PAGE) rows = rows * n_used / n_experts;
    return (Exactness){rows > 1 ? rows : 1, e.is_batch_invariant};
}
