// The kernel table: the arithmetic of the program, one function per operation, chosen at start for
// this CPU.
//
// scalar.c fills every entry and is the specification. Each instruction set is one file, compiled
// with its own flags, that exports one table; kernels_init overlays the tables the CPU supports, in
// order, entry by entry.
#ifndef KERNELS_KERNELS_H
#define KERNELS_KERNELS_H

#include "quant.h"
#include "tensor.h"

// Matrix times activations: out[t * out_stride + r] = sum_k W[r][k] * x[t][k].
// Activations are first encoded into the form `rows` reads (float32, 8-bit blocks, bf16 tiles ...);
// a MatmulKernel is therefore overlaid whole. The result for a token must not depend on n_tokens,
// row_begin, row_end or the other tokens: the same bits alone or in a batch, whatever thread
// computes the row.
typedef struct {
    int min_tokens; // worth its encoding from this many tokens on (1 in Kernels.gemv)
    int row_step;   // rows are handed out in multiples of this (the last range may be shorter);
                    // those of Kernels.gemv are right for any range
    int token_step; // encode is handed tokens in multiples of this (the last range may be shorter)
    // Bytes of n_tokens encoded activations of `cols` values; the buffer is 64-byte aligned.
    size_t (*encoded_bytes)(int n_tokens, int cols);
    // Encodes tokens [token_begin, token_end) of x (n_tokens, cols), row-major.
    void (*encode)(void *encoded, const float *x, int n_tokens, int cols, int token_begin,
                   int token_end);
    // Computes rows [row_begin, row_end) for all tokens. Large arrays lie in team_scratch().
    void (*rows)(float *out, size_t out_stride, const Tensor *w, const void *encoded, int n_tokens,
                 int row_begin, int row_end);
    bool has_gemv_bits; // has the bits of Kernels.gemv, and is chosen by speed alone
} MatmulKernel;

enum {
    MAX_HEAD_DIM = 256,      // of all models that there are; arrays are sized by it
    KV_PAGE = 256,           // positions whose keys and values lie together
    ATTEND_MAX_QUERIES = 64, // of one call of attend
    ATTEND_MANY_QUERIES =
        256, // of one call of attend_many, which converts keys and values once for them
    ATTEND_MANY_ABOVE = 16 // queries that attend_many is not worth its conversions for
};

// Attention of n_q query rows (the query heads of one KV head, of one or several steps) over one
// page of keys.
typedef struct {
    const float *q;    // (n_q, head_dim), already multiplied by 1/sqrt(head_dim)
    const void *k, *v; // (>= max n_keys, head_dim) rows of kv_type
    const void
        *next_k;       // keys that will be wanted next, as large as k, to be fetched ahead; or NULL
    const int *n_keys; // (n_q): how many rows of this page query i may see, >= 0
    Type kv_type;      // F32, F16 or Q8_0
    int n_q,
        head_dim; // head_dim is even, <= MAX_HEAD_DIM; n_q <= ATTEND_MAX_QUERIES, or
                  // ATTEND_MANY_QUERIES
    // Result, the softmax kept apart in three parts so that pages can be merged:
    float *max,
        *sum; // (n_q): m = max score, l = sum of exp(score - m); -INFINITY and 0 if n_keys[i] == 0
    float *acc; // (n_q, head_dim): sum of exp(score - m) * v
} AttentionPage;

typedef struct {
    const char *name;              // "scalar", "avx2" ...
    MatmulKernel gemv[TYPE_COUNT]; // any number of tokens; complete after kernels_init for every
                                   // supported type
    MatmulKernel
        gemm[TYPE_COUNT]; // for min_tokens and more (prefill); rows == NULL where there is none
    MatmulKernel gemm_large[TYPE_COUNT]; // for still more, in other bits; likewise
    int gemm_large_rows; // that `tiles` had best be handed at once, while all threads have some
    // out = x / sqrt(mean(x^2) + eps) * weight; n values. out may be x.
    void (*rmsnorm)(float *out, const float *x, const float *weight, float eps, int n);
    // gate = silu(gate) * up
    void (*swiglu)(float *gate, const float *up, int n);
    // x += y
    void (*add)(float *x, const float *y, int n);
    void (*attend)(const AttentionPage *page);
    // The same for more than ATTEND_MANY_ABOVE queries, in less precision (bf16). NULL where there
    // is none.
    void (*attend_many)(const AttentionPage *page);
    // The roofline of bench: runs the unit that carries prefill on registers alone and returns the
    // operations done (a multiply-add is two).
    const char *peak_unit;
    double (*peak)(int rounds);
    // n float32 values to a row of F32, F16 or Q8_0 (the KV cache)
    void (*store)(Type type, void *row, const float *x, int n);
} Kernels;

extern Kernels kernel; // read-only after kernels_init

// Chooses the kernels for this CPU. `cap` limits them: "scalar", "avx2", "avx512", "amx" or "neon";
// NULL means $LLAMA31_ISA, and if that is not set either, no limit. Call before any thread is
// started. Returns false if the name is unknown. kernel.name is the backend reached.
bool kernels_init(const char *cap);
// The backends that this build has, with spaces between.
const char *kernels_names(void);

#endif
