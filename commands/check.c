// Threads share the leaves of all tensors (checksum.h): a leaf is decoded, tested and hashed by one
// thread.
#include "check.h"
#include "../kernels/ops.h"

typedef struct {
    const GgufTensor *tensor;
    uint64_t first_row;
} Leaf;

// Shared by all threads.
typedef struct {
    const Gguf *g;
    Leaf *leaves;     // (n_leaves) of all tensors in file order
    uint8_t *digests; // (n_leaves, BLAKE2B_BYTES)
    int n_leaves;
    Error err; // the first error; code 0: none
} WeightCheck;

// x * 0 is 0 for finite x and NaN for all others, so one sum finds them without a branch.
bool floats_are_finite(const float *x, size_t n) {
    float sum = 0;
    for (size_t i = 0; i < n; i++) sum += x[i] * 0;
    return sum == 0;
}

// Hashes one leaf and checks its rows.
static void check_leaf(void *arg, int i) {
    WeightCheck *check = arg;
    const GgufTensor *t = check->leaves[i].tensor;
    uint64_t n_rows = gguf_n_rows(t), n = checksum_leaf_rows(t), first = check->leaves[i].first_row;
    size_t cols = (size_t)t->dims[0], row_bytes = t->bytes / (size_t)n_rows;
    const uint8_t *data = (const uint8_t *)t->data + first * row_bytes;
    if (n > n_rows - first) n = n_rows - first;
    blake2b(data, (size_t)n * row_bytes, check->digests + (size_t)i * BLAKE2B_BYTES);
    if (!quant_is_supported(t->type)) return;
    float *x = xalloc(cols, sizeof *x);
    for (uint64_t r = 0; r < n; r++) {
        quant_decode_row((Type)t->type, data + r * row_bytes, x, cols);
        if (floats_are_finite(x, cols)) continue;
        team_lock();
        if (!check->err.code)
            error_set(&check->err, EXIT_MODEL, "%s: tensor %.*s: row %llu: NaN or infinite weight",
                      check->g->path, SHOWN(t->name), (unsigned long long)(first + r));
        team_unlock();
    }
    free(x);
}

// Runs on every thread; ops_for() divides the leaves among them.
static void check_leaves(void *arg) {
    WeightCheck *check = arg;
    ops_for(check->n_leaves, 1, check_leaf, check);
}

bool weights_check(const Gguf *g, int n_threads, char checksum[CHECKSUM_HEX], Error *err) {
    size_t n = 0;
    for (int i = 0; i < g->n_tensors; i++) n += checksum_n_leaves(&g->tensors[i]);
    WeightCheck c = {
        .g = g, .leaves = xalloc(n, sizeof *c.leaves), .digests = xalloc(n, BLAKE2B_BYTES)};
    for (const GgufTensor *t = g->tensors; t < g->tensors + g->n_tensors; t++)
        for (uint64_t row = 0; row < gguf_n_rows(t); row += checksum_leaf_rows(t))
            c.leaves[c.n_leaves++] = (Leaf){t, row};
    team_run(n_threads, check_leaves, &c);
    checksum_combine(g->tensors, g->n_tensors, c.digests, checksum);
    free(c.leaves);
    free(c.digests);
    if (!c.err.code && !mapping_is_intact(g->shards, g->n_shards, &c.err))
        c.err.code = EXIT_RUNTIME;
    if (c.err.code) *err = c.err;
    return !c.err.code;
}
