// The kernel table: the arithmetic of the program, one function per operation, chosen at start for
// this CPU.
//
// A backend is a set of kernels for one instruction set: a file that is compiled with its own flags
// and exports one table (backends.h). kernels_init() begins with scalar.c, which has every entry
// and is the specification, and overlays the tables that the CPU supports, in order, entry by
// entry.
//
// Kernels are called by the operations (ops.h, attention.h), which divide the work among threads.
#pragma once

#include "kernels/quant.h"
#include "kernels/tensor.h"

// Matrix times activations:
//
//     out[t * out_stride + r] = sum_k W[r][k] * x[t][k]
//
// The activations x are first encoded into the form that `rows` reads (float32, 8-bit blocks, bf16
// tiles ...), so a MatmulKernel is overlaid as a whole.
//
// Contract: the result of a token has the same bits for any n_tokens, row_begin and row_end, and
// for any other tokens. Results therefore do not depend on the number of threads, and they depend
// on the batch only through the choice of kernel (exactness.h).
typedef struct {
    int min_tokens; // fewest tokens for which the kernel is worth its encoding (gemv: 1)
    int row_step;   // row_begin and row_end are multiples of this, except at the end of the matrix;
                    // a gemv accepts any range
    int token_step; // token_begin and token_end are multiples of this, except at the end
    // Bytes of the encoded activations of n_tokens tokens; the buffer is 64-byte aligned.
    size_t (*encoded_bytes)(int n_tokens, int cols);
    // Encodes tokens [token_begin, token_end) of x (n_tokens, cols).
    void (*encode)(void *encoded, const float *x, int n_tokens, int cols, int token_begin,
                   int token_end);
    // Computes rows [row_begin, row_end) for all tokens. Its large local arrays are in
    // team_scratch().
    void (*rows)(float *out, size_t out_stride, const Tensor *w, const void *encoded, int n_tokens,
                 int row_begin, int row_end);
    bool has_gemv_bits; // results are bit-identical to those of gemv
} MatmulKernel;

enum {
    MAX_HEAD_DIM = 256,       // no known model has wider heads
    KV_PAGE = 256,            // positions of a page of the KV cache
    ATTEND_MAX_QUERIES = 64,  // most queries of one call of attend
    ATTEND_MANY_QUERIES = 256 // most queries of one call of attend_many
};

// Attention of n_q queries over one page of keys and values of one KV head. The queries are the
// heads that share it, at one or more positions.
typedef struct {
    const float *q;      // (n_q, head_dim), already multiplied by 1/sqrt(head_dim)
    const void *k, *v;   // (KV_PAGE, head_dim), rows of k_type and v_type
    const void *next_k;  // keys of the next page, to be prefetched; or NULL
    const int *n_keys;   // (n_q) query i sees the first n_keys[i] keys of the page; 0 to KV_PAGE
    Type k_type, v_type; // F32, F16, Q8_0 or Q4_0
    int n_q;             // at most ATTEND_MAX_QUERIES, or ATTEND_MANY_QUERIES
    int head_dim;        // even, at most MAX_HEAD_DIM
    bool is_float32;     // attend() must not round queries, so that all vector backends agree
    // Results: the softmax in three parts, so that pages can be merged (attention.c).
    float *max, *sum; // (n_q) m = max of scores, l = sum of exp(score - m); for a query without
                      // keys, -INFINITY and 0
    float *acc;       // (n_q, head_dim) sum of exp(score - m) * v
} AttentionPage;

typedef struct {
    const char *name; // "scalar", "avx2" ...

    // Up to three kernels for products with each type; see exactness.h for the choice.
    MatmulKernel gemv[TYPE_COUNT];       // any number of tokens; all supported types have one
    MatmulKernel gemm[TYPE_COUNT];       // min_tokens or more; rows == NULL: none
    MatmulKernel gemm_large[TYPE_COUNT]; // AMX: as gemm; never has the bits of gemv
    int gemm_large_rows;                 // best number of rows of one call of gemm_large

    // out (n) = x / sqrt(mean(x^2) + eps) * weight; out may be x
    void (*rmsnorm)(float *out, const float *x, const float *weight, float eps, int n);
    // gate (n) = silu(gate) * up
    void (*swiglu)(float *gate, const float *up, int n);
    // x (n) += y
    void (*add)(float *x, const float *y, int n);

    void (*attend)(const AttentionPage *page);
    // attend() with less precision: in 16-bit integers (AVX2, AVX-512) or bf16 (AMX). It is faster
    // for more than attend_many_above queries, and is used for these if neither keys nor values are
    // F32. The bits of a query do not depend on the other queries. NULL: not available.
    void (*attend_many)(const AttentionPage *page);
    int attend_many_above;

    // Stores x (n) as a row of F32, F16, Q8_0 or Q4_0 in the KV cache.
    void (*store)(Type type, void *row, const float *x, int n);

    // For `bench`: measures the arithmetic limit of prefill. Computes `rounds` rounds of
    // multiply-adds on registers, and returns the number of operations (two per multiply-add).
    double (*peak)(int rounds);
    const char *peak_unit; // name of the arithmetic: "float32", ...
} Kernels;

extern Kernels kernel; // set by kernels_init(); must not change while a job runs (team.h)

// Chooses the kernels for this CPU, up to the ISA level `cap`: "scalar", "avx2", "avxvnni",
// "avx512", "amx", "neon" or "i8mm"; NULL: $LLAMA31_ISA or, if that is unset or empty, no cap.
// kernel.name is then the last backend that was overlaid. False if `cap` is unknown. Call it before
// any thread is started.
bool kernels_init(const char *cap);
// Version of the arithmetic of --deterministic, which all backends except scalar share. It changes
// when any bit of a result does.
enum { DETERMINISTIC_VERSION = 1 };
// Appends the name of the arithmetic: "deterministic 1", or the backend. Runs of one arithmetic
// have the same bits (docs/reproducibility.md). Returns true if all machines, versions and
// compilers share it; the bits of a backend can depend on the program.
bool kernels_put_arithmetic(Buffer *out, bool is_deterministic);
// The backends of this build, separated by spaces.
const char *kernels_names(void);
