// Each operation is divided into work items (team.h): rows of the activations, pieces of rows, or,
// in a matrix product, chunks of rows of the matrices. A sum is never divided between items.
// Order: rows and elementwise operations, choice of a kernel, matrix products.
#include "kernels/ops.h"
#include "kernels/load.h"

void ops_for(int n, int chunk, void (*fn)(void *arg, int i), void *arg) {
    for (int c; team_next(div_up(n, chunk), &c);)
        for (int i = c * chunk; i < min_int(n, (c + 1) * chunk); i++) fn(arg, i);
    team_end_op(OP_ROPE);
}

void ops_embed(float *out, const Tensor *w, const int *tokens, int n) {
    for (int i; team_next(n, &i);) {
        float *row = out + (size_t)i * (size_t)w->cols;
        quant_decode_row(w->type, (const char *)w->data + (size_t)tokens[i] * w->row_bytes, row,
                         (size_t)w->cols);
        for (int k = 0; w->scale != 1 && k < w->cols; k++) row[k] *= w->scale;
    }
    team_end_op(OP_EMBED);
}

void ops_rmsnorm(float *out, const float *x, const float *weight, float eps, int n, int dim) {
    for (int i; team_next(n, &i);)
        kernel.rmsnorm(out + (size_t)i * (size_t)dim, x + (size_t)i * (size_t)dim, weight, eps,
                       dim);
    team_end_op(OP_NORM);
}

void ops_gather(float *out, const float *x, const int *index, int n, int dim) {
    for (int i; team_next(n, &i);)
        memcpy(out + (size_t)i * (size_t)dim, x + (size_t)index[i] * (size_t)dim,
               (size_t)dim * sizeof(float));
    team_end_op(OP_REST);
}

// Elementwise operations are divided into pieces of a row: small enough that several threads can
// share one row, large enough (16 KiB) that the cost of handing out a piece is negligible.
enum { PIECE = 4096 };

// Calls fn(x, y, n) for the pieces of n rows.
static void elementwise(void (*fn)(float *x, const float *y, int n), float *x, const float *y,
                        int n, int dim) {
    int per_row = div_up(dim, PIECE);
    for (int i; team_next(n * per_row, &i);) {
        int first = i % per_row * PIECE;
        size_t at = (size_t)(i / per_row) * (size_t)dim + (size_t)first;
        fn(x + at, y + at, min_int(dim - first, PIECE));
    }
    team_end_op(OP_REST);
}

void ops_swiglu(float *gate, const float *up, int n, int dim) {
    elementwise(kernel.swiglu, gate, up, n, dim);
}

void ops_add(float *x, const float *y, int n, int dim) { elementwise(kernel.add, x, y, n, dim); }

// Matrix products, in three steps: choose a kernel for each product, encode the activations into
// the form that the kernels read, compute the rows.
//
// Decode is limited by memory bandwidth: every weight is read for one row of activations, so all
// threads must keep reading. Prefill is limited by arithmetic: a weight is decoded once and
// multiplied with many rows. There are different kernels for the two (gemv, gemm), but the work is
// divided in the same way.

// True if a kernel exists and is worth its encoding for n rows.
static bool is_kernel_for(const MatmulKernel *k, int n) { return k->rows && n >= k->min_tokens; }

// The kernel for products of w with n rows.
static const MatmulKernel *choose_kernel(const Tensor *w, int n, Exactness exactness) {
    const MatmulKernel *gemm = &kernel.gemm[w->type], *large = &kernel.gemm_large[w->type];
    int rows = exactness_rows(exactness, n);
    if (!w->is_unrounded && is_kernel_for(large, rows)) return large;
    if (is_kernel_for(gemm, gemm->has_gemv_bits ? n : rows)) return gemm;
    return &kernel.gemv[w->type];
}

bool ops_is_batch_invariant(const Tensor *w) {
    const MatmulKernel *gemm = &kernel.gemm[w->type];
    return !kernel.gemm_large[w->type].rows && (!gemm->rows || gemm->has_gemv_bits);
}

// Bytes of n encoded rows of x: the maximum over the kernels that can be chosen for up to max_rows
// rows.
static size_t encoded_bytes(const Tensor *w, int max_rows, int n) {
    const MatmulKernel *kernels[] = {&kernel.gemv[w->type], &kernel.gemm[w->type],
                                     &kernel.gemm_large[w->type]};
    size_t most = kernels[0]->encoded_bytes(1, w->cols);
    for (int i = 0; i < 3; i++) {
        if (!is_kernel_for(kernels[i], max_rows)) continue;
        size_t bytes = kernels[i]->encoded_bytes(n, w->cols);
        if (bytes > most) most = bytes;
    }
    return size_round_up(most, 64);
}

void matmul_scratch_reserve(MatmulScratch *s, const Tensor *const *weights, int n_weights, int n,
                            int n_groups) {
    size_t bytes = 0;
    for (int i = 0; i < n_weights; i++) {
        bytes += encoded_bytes(weights[i], n, n);
        // The encodings of several groups are each rounded up, by less than one row's encoding.
        if (n_groups > 1) bytes += (size_t)n_groups * encoded_bytes(weights[i], n, 1);
    }

    if (bytes <= s->bytes) return;
    free(s->encoded);
    s->encoded = xalloc_large(bytes, 1);
    s->bytes = bytes;
}

// Rows are handed out in chunks: small enough that the threads finish together (eight chunks per
// thread), large enough to stream from memory. For example, Wq, Wk and Wv of Llama 3.1 8B have 6144
// rows together: on 16 threads, 128 chunks of 48 rows of 4096 weights.
//
// Decode reads a chunk from its beginning to its end or, with weights in float32 or 16 bits, in
// four streams. Large chunks are faster: with 240 rows instead of 64, decode takes 0.97 of the time
// (1B in Q4_K_M and in F16, AVX-512, Zen 5, one thread, 2026-11-29). With 256 rows, the streams
// would be whole pages apart and compete for the same sets of L1.
static int rows_per_chunk(const MatmulKernel *k, Type type, int n_rows) {
    enum { MIN_CHUNK = 8, MAX_CHUNK = 64, MAX_GEMV_CHUNK = 240, CHUNKS_PER_THREAD = 8 };
    int most = k == &kernel.gemm_large[type] ? kernel.gemm_large_rows : MAX_CHUNK;
    if (k == &kernel.gemv[type]) most = MAX_GEMV_CHUNK;
    int chunk = min_int(n_rows / (team_size() * CHUNKS_PER_THREAD), most);
    return round_up(chunk < MIN_CHUNK ? MIN_CHUNK : chunk, k->row_step);
}

// How one product is computed.
typedef struct {
    const MatmulKernel *kernel;
    char *encoded;       // x in the form that the kernel reads
    int n_tiles;         // work items that encode x; 0: the product before shares its encoding
    int chunk, n_chunks; // rows per chunk, number of chunks: work items that compute rows
} ProductPlan;

// Chooses the kernels, places the encodings in the scratch buffer, and divides the work into items.
static void plan_products(ProductPlan *plans, const MatmulScratch *s, const Product *products,
                          int n_products, Exactness exactness) {
    char *unused = s->encoded;
    int n_rows = 0;
    for (int i = 0; i < n_products; i++) n_rows += products[i].w->rows;

    for (int i = 0; i < n_products; i++) {
        const Product *p = &products[i];
        ProductPlan *plan = &plans[i];
        *plan = (ProductPlan){.kernel = choose_kernel(p->w, p->n, exactness)};
        plan->chunk = rows_per_chunk(plan->kernel, p->w->type, n_rows);
        plan->n_chunks = div_up(p->w->rows, plan->chunk);

        // x is encoded once for each form that kernels read: matrices may have different types.
        for (int k = i; k > 0 && products[k - 1].x == p->x && !plan->encoded; k--)
            if (plans[k - 1].kernel->encode == plan->kernel->encode)
                plan->encoded = plans[k - 1].encoded;
        if (plan->encoded) continue;

        plan->encoded = unused;
        plan->n_tiles = div_up(p->n, plan->kernel->token_step);
        unused += size_round_up(plan->kernel->encoded_bytes(p->n, p->w->cols), 64);
    }
}

static void encode_tile(const Product *p, const ProductPlan *plan, int tile) {
    int n_tokens = plan->kernel->token_step;
    plan->kernel->encode(plan->encoded, p->x, p->n, p->w->cols, tile * n_tokens,
                         min_int(p->n, (tile + 1) * n_tokens));
}

static void multiply_chunk(const Product *p, const ProductPlan *plan, int chunk) {
    const Tensor *w = p->w;
    float *out = p->out;
    int first = chunk * plan->chunk;
    int end = min_int(w->rows, first + plan->chunk);
    plan->kernel->rows(out, (size_t)w->rows, w, plan->encoded, p->n, first, end);

    for (int t = 0; t < p->n; t++, out += w->rows) {
        if (w->bias)
            for (int r = first; r < end; r++) out[r] += w->bias[r];
        if (w->scale != 1)
            for (int r = first; r < end; r++) out[r] *= w->scale;
    }
}

void ops_matmuls(const MatmulScratch *s, const Product *products, int n_products,
                 Exactness exactness) {
    ProductPlan plans[n_products];
    int n_tiles = 0, n_chunks = 0;

    plan_products(plans, s, products, n_products, exactness);
    for (int p = 0; p < n_products; p++) {
        n_tiles += plans[p].n_tiles;
        n_chunks += plans[p].n_chunks;
    }

    // Encode the activations.
    for (int i; team_next(n_tiles, &i);) {
        int p = 0;
        while (i >= plans[p].n_tiles) i -= plans[p++].n_tiles;
        encode_tile(&products[p], &plans[p], i);
    }
    team_end_op(OP_ENCODE);

    // Compute the rows. The chunks of all products form one operation, so that the threads wait for
    // each other only once: Wq, Wk and Wv, for example, are read as if they were one matrix.
    for (int i; team_next_near(n_chunks, &i);) {
        int p = 0;
        while (i >= plans[p].n_chunks) i -= plans[p++].n_chunks;
        multiply_chunk(&products[p], &plans[p], i);
    }
    team_end_op(OP_MATMUL);
}
