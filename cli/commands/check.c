// Threads share the leaves of all tensors (checksum.h): a leaf is decoded, tested and hashed by one
// thread.
#include "cli/commands/check.h"
#include "kernels/ops.h"

// Shared by all threads.
typedef struct {
    const Gguf *g;
    ChecksumLeaf *leaves; // (n_leaves) of all tensors
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
    ChecksumLeaf *leaf = &check->leaves[i];
    const GgufTensor *t = &check->g->tensors[leaf->tensor];
    size_t cols = (size_t)t->dims[0];
    size_t row_bytes = t->bytes / (size_t)gguf_n_rows(t);
    const uint8_t *data = (const uint8_t *)t->data + leaf->first_row * row_bytes;

    blake2b(data, (size_t)leaf->n_rows * row_bytes, leaf->digest);
    if (!quant_is_supported(t->type)) return;

    float *x = xalloc(cols, sizeof *x);
    for (uint64_t r = 0; r < leaf->n_rows; r++) {
        quant_decode_row((Type)t->type, data + r * row_bytes, x, cols);
        if (floats_are_finite(x, cols)) continue;

        team_lock();
        if (!check->err.code) // only the first error is reported
            error_set(&check->err, EXIT_MODEL, "%s: tensor %.*s: row %llu: NaN or infinite weight",
                      check->g->path, SHOWN(t->name), (unsigned long long)(leaf->first_row + r));
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
    WeightCheck c = {.g = g};
    c.leaves = checksum_leaves(g->tensors, g->n_tensors, &c.n_leaves);
    team_run(n_threads, check_leaves, &c);
    checksum_combine(g->tensors, c.leaves, c.n_leaves, checksum);
    free(c.leaves);
    if (!c.err.code && !mapping_is_intact(g->shards, g->n_shards, &c.err))
        c.err.code = EXIT_RUNTIME;
    if (c.err.code) *err = c.err;
    return !c.err.code;
}
