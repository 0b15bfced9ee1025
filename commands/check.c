// Threads share the leaves of each tensor (checksum.h): a leaf is decoded, tested and hashed
// by one thread.
#include "check.h"
#include "../kernels/ops.h"

#include <stdlib.h>

// Shared by all threads.
typedef struct {
    const Gguf *g;
    uint8_t *leaves; // (n_leaves, BLAKE2B_BYTES) of all tensors in file order
    Error err;       // the first; code 0: none
} WeightCheck;

// The tensor that a thread works on. A copy per thread, because one may still be at a tensor when
// the others have begun the next.
typedef struct {
    WeightCheck *check;
    const GgufTensor *tensor;
    uint8_t *leaves; // of this tensor
} TensorCheck;

static void report_row(const TensorCheck *c, uint64_t row) {
    Error err;
    error_set(&err, EXIT_MODEL, "%s: tensor %.*s: row %llu: NaN or infinite weight",
              c->check->g->path, SHOWN(c->tensor->name), (unsigned long long)row);
    team_lock();
    if (!c->check->err.code) c->check->err = err;
    team_unlock();
}

// x * 0 is 0 for finite x and NaN for all others, so one sum finds them without a branch.
bool floats_are_finite(const float *x, size_t n) {
    float sum = 0;
    for (size_t i = 0; i < n; i++) sum += x[i] * 0;
    return sum == 0;
}

// Hashes one leaf and checks its rows.
static void check_leaf(void *arg, int i) {
    const TensorCheck *c = arg;
    const GgufTensor *t = c->tensor;
    uint64_t n_rows = gguf_n_rows(t), n = checksum_leaf_rows(t), first = (uint64_t)i * n;
    size_t cols = (size_t)t->dims[0], row_bytes = t->bytes / (size_t)n_rows;
    const uint8_t *data = (const uint8_t *)t->data + first * row_bytes;
    if (n > n_rows - first) n = n_rows - first;
    blake2b(data, (size_t)n * row_bytes, c->leaves + (size_t)i * BLAKE2B_BYTES);
    if (!quant_is_supported(t->type)) return;
    float *x = xalloc(cols, sizeof *x);
    for (uint64_t r = 0; r < n; r++) {
        quant_decode_row((Type)t->type, data + r * row_bytes, x, cols);
        if (!floats_are_finite(x, cols)) report_row(c, first + r);
    }
    free(x);
}

// Runs on every thread; ops_for shares out the leaves of a tensor.
static void check_all(void *arg) {
    WeightCheck *check = arg;
    TensorCheck c = {.check = check, .leaves = check->leaves};
    for (int i = 0; i < check->g->n_tensors; i++) {
        c.tensor = &check->g->tensors[i];
        ops_for((int)checksum_n_leaves(c.tensor), 1, check_leaf, &c);
        c.leaves += checksum_n_leaves(c.tensor) * BLAKE2B_BYTES;
    }
}

bool weights_check(const Gguf *g, int n_threads, char checksum[CHECKSUM_HEX], Error *err) {
    size_t n_leaves = 0;
    for (int i = 0; i < g->n_tensors; i++) n_leaves += checksum_n_leaves(&g->tensors[i]);
    WeightCheck c = {.g = g, .leaves = xalloc(n_leaves, BLAKE2B_BYTES)};
    team_run(n_threads, check_all, &c);
    checksum_combine(g->tensors, g->n_tensors, c.leaves, checksum);
    free(c.leaves);
    if (!c.err.code && !mapping_is_intact(g->shards, g->n_shards, &c.err))
        c.err.code = EXIT_RUNTIME;
    if (c.err.code) *err = c.err;
    return !c.err.code;
}

bool checksum_verify(const Gguf *g, const char *checksum, Error *err) {
    Str stored = gguf_get_text(g, CHECKSUM_KEY);
    if (str_is(stored, checksum)) return true;
    if (!stored.data)
        return error_set(err, EXIT_MODEL, "%s: " CHECKSUM_KEY ": no checksum stored", g->path);
    return error_set(err, EXIT_MODEL, "%s: " CHECKSUM_KEY ": expected %.*s, found %s", g->path,
                     SHOWN(stored), checksum);
}
