// show --check and --verify: every weight read once.
#include "check.h"
#include "../base/checksum.h"
#include "../kernels/ops.h"

#include <stdlib.h>
#include <string.h>

// What all threads share.
typedef struct {
    const Gguf *g;
    uint8_t *leaves;
    Error err; // the first, code 0 as long as there is none
} Check;

// A tensor under way.
typedef struct {
    Check *check;
    const GgufTensor *t;
    uint8_t *leaves; // of it
} Part;

static void check_fail(const Part *p, uint64_t row) {
    Check *c = p->check;
    Error err;
    error_set(
        &err, EXIT_MODEL,
        "%s: tensor %.*s: row %llu: expected finite weights, found an infinite or undefined one",
        c->g->path, SHOWN(p->t->name), (unsigned long long)row);
    team_lock();
    if (!c->err.code) c->err = err;
    team_unlock();
}

// Scales that are no numbers make weights that are none.
static void check_leaf(void *arg, int i) {
    const Part *p = arg;
    const GgufTensor *t = p->t;
    uint64_t step = checksum_leaf_rows(t), first = (uint64_t)i * step, rows = gguf_tensor_rows(t);
    size_t cols = (size_t)t->dims[0], row_bytes = t->bytes / (size_t)rows;
    const uint8_t *data = (const uint8_t *)t->data + first * row_bytes;
    if (rows - first < step) step = rows - first;
    blake2b(data, (size_t)step * row_bytes, p->leaves + (size_t)i * BLAKE2B_BYTES);
    if (!quant_is_supported(t->type)) return;
    float *x = xalloc(cols, sizeof *x), sum;
    for (uint64_t r = 0; r < step; r++) {
        quant_decode_row((Type)t->type, data + r * row_bytes, x, cols);
        sum = 0;
        for (size_t k = 0; k < cols; k++) sum += x[k] * 0; // 0, or NaN
        if (sum != 0) check_fail(p, first + r);
    }
    free(x);
}

static void check_all(void *arg) {
    Check *c = arg;
    Part p = {.check = c, .leaves = c->leaves};
    for (int i = 0; i < c->g->n_tensors; i++) {
        p.t = &c->g->tensors[i];
        ops_for((int)checksum_n_leaves(p.t), 1, check_leaf, &p);
        p.leaves += checksum_n_leaves(p.t) * BLAKE2B_BYTES;
    }
}

bool weights_check(const Gguf *g, int n_threads, char checksum[2 * BLAKE2B_BYTES + 1], Error *err) {
    size_t n_leaves = 0;
    for (int i = 0; i < g->n_tensors; i++) n_leaves += checksum_n_leaves(&g->tensors[i]);
    Check c = {.g = g, .leaves = xalloc(n_leaves, BLAKE2B_BYTES)};
    team_run(n_threads, check_all, &c);
    checksum_combine(g->tensors, g->n_tensors, c.leaves, checksum);
    free(c.leaves);
    if (!c.err.code && !gguf_is_intact(g, &c.err)) c.err.code = EXIT_RUNTIME;
    if (c.err.code) *err = c.err;
    return !c.err.code;
}

bool checksum_verify(const Gguf *g, const char *checksum, Error *err) {
    Str stored = gguf_get_text(g, CHECKSUM_KEY);
    if (str_is(stored, checksum)) return true;
    if (!stored.data)
        return error_set(err, EXIT_MODEL,
                         "%s: " CHECKSUM_KEY ": expected one to compare, found none", g->path);
    return error_set(err, EXIT_MODEL, "%s: " CHECKSUM_KEY ": expected %.*s, found %s", g->path,
                     SHOWN(stored), checksum);
}
