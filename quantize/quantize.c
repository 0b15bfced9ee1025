// The threads share the leaves of the checksum (checksum.h): a leaf is about 1 MiB of whole rows of
// a new tensor. One thread decodes, encodes, writes and hashes it, so the file does not depend on
// the number of threads.
#include "quantize/quantize.h"
#include "quantize/encode.h"
#include "quantize/gguf_writer.h"
#include "quantize/mixture.h"
#include "gguf/checksum.h"
#include "base/clock.h"
#include "kernels/ops.h"
#include "model/load.h"

#include <stdio.h>
#include <unistd.h>

// The conversion of a file, shared by all threads. All arrays are per tensor.
typedef struct {
    const QuantizeOptions *options;
    const Mixture *mixture;
    const Gguf *g;
    float **columns;      // importance, see imatrix.h; NULL: no importance matrix
    GgufTensor *tensors;  // of the new file; `data` is that of the old tensor
    uint64_t *offsets;    // of the data in the new file
    ChecksumLeaf *leaves; // (n_leaves) of the new tensors
    int n_leaves;
    int fd;
    uint64_t done_bytes, total_bytes; // of the old tensors
    double last_progress;             // now_sec() when progress was shown
    Error err;                        // of the first failure; code 0: none
} Quantizer;

static void set_error(Quantizer *q, const Error *err) {
    team_lock();
    if (!q->err.code) q->err = *err;
    team_unlock();
}

static void add_progress(Quantizer *q, uint64_t bytes) {
    const double INTERVAL_SEC = 0.2;
    team_lock();
    q->done_bytes += bytes;
    double now = now_sec();
    if (now > q->last_progress + INTERVAL_SEC) {
        char line[80];
        snprintf(line, sizeof line, "quantize: %.0f %% of %.1f GB",
                 100.0 * (double)q->done_bytes / (double)q->total_bytes,
                 (double)q->total_bytes * 1e-9);
        q->options->show_progress(q->options->arg, line);
        q->last_progress = now;
    }
    team_unlock();
}

// Converts the rows of a leaf into `out`.
static bool convert_rows(const Quantizer *q, const ChecksumLeaf *leaf, uint8_t *out, Error *err) {
    const GgufTensor *t = &q->g->tensors[leaf->tensor];
    Type type = (Type)q->tensors[leaf->tensor].type;
    size_t cols = (size_t)t->dims[0];
    size_t old_bytes = t->bytes / (size_t)gguf_n_rows(t);
    const float *columns = q->columns ? q->columns[leaf->tensor] : NULL;
    float *x = xalloc(cols, sizeof *x);
    bool ok = true;

    for (size_t r = 0; r < leaf->n_rows && ok; r++) {
        uint64_t row = leaf->first_row + r;
        const float *importance = columns ? columns + row / t->dims[1] * cols : NULL;

        quant_decode_row((Type)t->type, (const uint8_t *)t->data + row * old_bytes, x, cols);
        ok = quant_encode(type, x, importance, out + r * quant_row_bytes(type, cols), cols);
        if (!ok)
            gguf_refuse(q->g, err,
                        "tensor %.*s: row %llu: a value is not finite or too large for %s",
                        SHOWN(t->name), (unsigned long long)row, type_info(type)->name);
    }

    free(x);
    return ok;
}

static void convert_leaf(void *arg, int i) {
    Quantizer *q = arg;
    ChecksumLeaf *leaf = &q->leaves[i];
    const GgufTensor *t = &q->g->tensors[leaf->tensor], *new = &q->tensors[leaf->tensor];
    Error err;

    // After an error on any thread, no more leaves are converted.
    team_lock();
    bool has_failed = q->err.code;
    team_unlock();
    if (has_failed) return;

    uint64_t n_rows = gguf_n_rows(t);
    size_t n = (size_t)leaf->n_rows;
    size_t old_bytes = (size_t)(t->bytes / n_rows);
    size_t new_bytes = (size_t)(new->bytes / n_rows);
    const uint8_t *old = (const uint8_t *)t->data + leaf->first_row * old_bytes;

    // A tensor that keeps its type is copied from the mapping.
    const uint8_t *data = old;
    uint8_t *buffer = NULL;
    if (new->type != t->type) {
        data = buffer = xalloc(n, new_bytes);
        if (!convert_rows(q, leaf, buffer, &err)) set_error(q, &err);
    }

    if (!write_all_at(q->fd, data, n * new_bytes,
                      (int64_t)(q->offsets[leaf->tensor] + leaf->first_row * new_bytes))) {
        error_file(&err, q->options->out);
        set_error(q, &err);
    }

    blake2b(data, n * new_bytes, leaf->digest);
    free(buffer);

    mapping_release(&q->g->shards[t->shard], old, n * old_bytes);
    add_progress(q, n * old_bytes);
}

// Run by every thread.
static void convert_leaves(void *arg) {
    Quantizer *q = arg;
    ops_for(q->n_leaves, 1, convert_leaf, q);
}

// Sets the types and sizes of the tensors of the new file.
static bool plan_tensors(Quantizer *q, Error *err) {
    const Gguf *g = q->g;
    size_t n = (size_t)g->n_tensors + 1;

    q->offsets = xalloc(n, sizeof *q->offsets);
    q->tensors = xalloc(n, sizeof *q->tensors);
    mixture_choose_types(q->mixture, g, q->columns, q->tensors);

    for (int i = 0; i < g->n_tensors; i++) {
        const GgufTensor *old = &g->tensors[i];
        GgufTensor *t = &q->tensors[i];

        if (t->type != old->type && !quant_is_supported(old->type))
            return gguf_refuse(g, err, "tensor %.*s: unsupported type %s", SHOWN(old->name),
                               gguf_describe_type(old->type, gguf_file_type(g)));
        if (t->type != old->type)
            t->bytes = gguf_n_rows(t) * quant_row_bytes((Type)t->type, (size_t)t->dims[0]);
        q->total_bytes += old->bytes;
    }

    q->leaves = checksum_leaves(q->tensors, g->n_tensors, &q->n_leaves);
    return true;
}

static void print_type(const GgufTensor *t, Type type) {
    Buffer name = {0};
    buffer_put_escaped(&name, t->name, "");
    fprintf(stderr, "%-32s %-8s -> %s\n", name.data, type_info(t->type)->name,
            type_info(type)->name);
    buffer_free(&name);
}

// Lists the types of all tensors, and warns about losses of accuracy that could be avoided.
static void report_types(const Quantizer *q) {
    const QuantizeOptions *o = q->options;
    int n_unknown = 0, n_tiny = 0, n_matrices = 0, n_unused = 0;
    bool is_requantized = false;
    Str unknown = {0}; // name of the first tensor without importance
    Str unused = {0};  // and of the first one with a matrix without importance

    for (int i = 0; i < q->g->n_tensors; i++) {
        const GgufTensor *t = &q->g->tensors[i];
        Type type = (Type)q->tensors[i].type;
        if (o->is_verbose) print_type(t, type);
        if (type == t->type) continue;
        is_requantized |= quant_is_integer(t->type) && type != TYPE_F32;

        // Importance matrices lack the embedding and the output matrix.
        if (gguf_tensor_layer(t->name) < 0) continue;
        n_tiny += type == TYPE_IQ3_XXS || type == TYPE_IQ2_S;
        if (!q->columns) continue;

        if (!q->columns[i]) {
            if (!n_unknown++) unknown = t->name;
            continue;
        }
        n_matrices += (int)imatrix_n_matrices(t);
        n_unused += imatrix_n_unknown(t, q->columns[i]);
        if (n_unused && !unused.len) unused = t->name;
    }

    if (is_requantized)
        warn("%s is already quantized; quantizing again costs accuracy", q->g->path);
    if (n_unknown)
        warn("the importance matrix lacks %d tensors (%.*s ...)", n_unknown, SHOWN(unknown));
    if (n_unused)
        warn("the importance matrix has no tokens for %d of %d matrices (%.*s ...); all their "
             "columns get weight 1",
             n_unused, n_matrices, SHOWN(unused));
    if (n_tiny && !q->columns)
        warn("%s without an importance matrix costs much accuracy; add --calibrate TEXT or "
             "--imatrix FILE",
             q->mixture->name);
}

// Makes the head of the new file: the metadata of the old file except those of shards, and the
// tensor table. Sets the offsets of the tensors' data in the file. The checksum at *checksum_at is
// a placeholder until all data are hashed. Returns the size of the file.
static uint64_t make_head(Quantizer *q, Buffer *head, size_t *checksum_at) {
    enum { HEADER_BYTES = 24 }; // before the metadata
    static const char replaced[] = "general.quantization_version general.file_type " CHECKSUM_KEY;

    const Gguf *g = q->g;
    GgufWriter w = {.alignment = 32};
    char placeholder[2 * BLAKE2B_BYTES] = {0};
    Error ignored;

    // Metadata. The checksum comes first, as a placeholder until the data is hashed.
    gguf_get_u64(g, "general.alignment", &w.alignment, &ignored); // checked by gguf_open()
    gguf_write_string(&w, CHECKSUM_KEY, (Str){placeholder, sizeof placeholder});
    *checksum_at = HEADER_BYTES + w.metadata.len - sizeof placeholder;
    gguf_write_u32(&w, "general.quantization_version", 2);
    gguf_write_u32(&w, "general.file_type", q->mixture->file_type);
    for (const GgufValue *v = g->values; v < g->values + g->n_values; v++)
        if (!str_begins_with(v->key, "split.") && !str_is_one_of(v->key, replaced))
            gguf_write_value(&w, v);

    // The tensor table. Its offsets are relative to the end of the head, q->offsets to the
    // beginning of the file.
    for (int i = 0; i < g->n_tensors; i++) {
        const GgufTensor *t = &q->tensors[i];
        q->offsets[i] =
            gguf_write_tensor(&w, t->name, "", (Type)t->type, t->n_dims, t->dims, t->bytes);
    }
    uint64_t data_bytes = w.data_bytes;
    gguf_write_head(&w, head);
    for (int i = 0; i < g->n_tensors; i++) q->offsets[i] += head->len;
    return head->len + data_bytes;
}

// Converts and writes all tensors, then the head with their checksum.
static bool write_file(Quantizer *q, const OutFile *file, uint64_t *out_bytes, Error *err) {
    Buffer head = {0};
    size_t checksum_at;
    char checksum[CHECKSUM_HEX];

    *out_bytes = make_head(q, &head, &checksum_at);
    q->fd = file->fd;

    mapping_prefetch(q->g->shards, q->g->n_shards, false);
    team_run(team_default_threads(), convert_leaves, q);
    q->options->show_progress(q->options->arg, NULL);

    *err = q->err;
    if (q->err.code || !mapping_is_intact(q->g->shards, q->g->n_shards, err)) return false;

    // The head is written last, with the checksum of the data.
    checksum_combine(q->tensors, q->leaves, q->n_leaves, checksum);
    memcpy(head.data + checksum_at, checksum, 2 * BLAKE2B_BYTES);
    bool ok = write_all_at(q->fd, head.data, head.len, 0) &&
              (!file->target || ftruncate(q->fd, (off_t)*out_bytes) == 0);
    if (!ok) error_file(err, q->options->out);
    buffer_free(&head);
    return ok;
}

// Sets the importance of the columns, if there is any: reads the matrix, or computes it and writes
// it to `matrix` (NULL: not written).
static bool find_importance(Quantizer *q, OutFile *matrix, Error *err) {
    const QuantizeOptions *o = q->options;
    if (!o->calibrate && !o->imatrix) return true;

    q->columns = xalloc((size_t)q->g->n_tensors + 1, sizeof *q->columns);
    if (o->calibrate) return imatrix_calibrate(q->columns, o, q->g, matrix, err);
    return imatrix_read(q->columns, o->imatrix, q->g, err);
}

bool quantize_file(const QuantizeOptions *o, uint64_t *in_bytes, uint64_t *out_bytes, Error *err) {
    static Gguf g; // static: released by the end of the process
    static Quantizer quantizer;
    Quantizer *q = &quantizer;
    OutFile file, matrix;
    unsigned force = o->is_forced ? FILE_FORCE : 0;
    bool writes_matrix = o->calibrate && o->imatrix;

    q->options = o;
    q->g = &g;
    q->mixture = mixture_find(o->mixture, err);
    if (!q->mixture || !model_open_file(&g, o->in, err)) return false;

    // Both output files are opened before the work starts, so that a wrong path is reported
    // immediately.
    file_register_input(o->calibrate ? o->calibrate : o->imatrix); // never overwritten
    if (!outfile_open(&file, o->out, FILE_STREAM | force, err)) return false;
    bool ok = !writes_matrix || outfile_open(&matrix, o->imatrix, force, err);
    if (ok && writes_matrix && outfile_is_same(&file, &matrix))
        ok = error_set(err, EXIT_USAGE, "--imatrix %s: also the name of the output", o->imatrix);

    ok = ok && find_importance(q, writes_matrix ? &matrix : NULL, err) && plan_tensors(q, err);
    if (ok) {
        report_types(q);
        ok = write_file(q, &file, out_bytes, err);
    }
    if (!ok) outfile_discard(&file);

    *in_bytes = q->total_bytes;
    return ok && outfile_close(&file, err);
}
