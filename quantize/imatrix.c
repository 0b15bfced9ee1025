// See imatrix.h.
// Order: normalization, reading, writing.
#include "quantize/imatrix.h"
#include "quantize/gguf_writer.h"

#include <stdio.h>

static const char SUMS[] = ".in_sum2", COUNTS[] = ".counts";

uint64_t imatrix_n_matrices(const GgufTensor *t) { return t->dims[2] * t->dims[3]; }

uint64_t imatrix_n_columns(const GgufTensor *t) { return t->dims[0] * imatrix_n_matrices(t); }

// Sets the importance of a tensor of g from sums of squares (n_columns, unaligned). The sums of
// each matrix are divided by their mean. The result is at least 1/1000, so that columns which the
// text hardly used still count, and 1 for all columns of an expert that the text did not use. False
// with err (exit 3) if a sum is negative or not finite.
static bool set_columns(float **columns, const Gguf *g, const GgufTensor *t, const void *sums,
                        const Gguf *file, Error *err) {
    const float MINIMUM = 1e-3f;
    size_t cols = (size_t)t->dims[0], n = (size_t)imatrix_n_columns(t);
    float *out = xalloc(n, sizeof *out);
    memcpy(out, sums, n * sizeof *out);
    columns[t - g->tensors] = out;

    // Normalize each matrix, or each expert of a mixture of experts, to a mean importance of 1.
    for (float *x = out; x < out + n; x += cols) {
        double sum = 0;
        for (size_t i = 0; i < cols; i++) {
            if (!(x[i] >= 0 && x[i] <= 3e38f))
                return gguf_refuse(file, err, "%.*s: column %zu: invalid sum of squares %g",
                                   SHOWN(t->name), i, (double)x[i]);
            sum += (double)x[i];
        }

        float mean = (float)(sum / (double)cols);
        for (size_t i = 0; i < cols; i++) {
            float v = mean > 0 ? x[i] / mean : 1;
            x[i] = v > MINIMUM ? v : MINIMUM;
        }
    }

    return true;
}

int imatrix_n_unknown(const GgufTensor *t, const float *columns) {
    int n_unknown = 0;
    size_t cols = (size_t)t->dims[0];
    for (const float *x = columns; x < columns + imatrix_n_columns(t); x += cols) {
        size_t c = 0;
        while (c < cols && x[c] == 1) c++;
        n_unknown += c == cols;
    }
    return n_unknown;
}

// Checks the token counts of a tensor: one for all of its matrices, or one each. Sets *has_tokens
// if any is positive.
static bool check_counts(const Gguf *file, const GgufTensor *counts, const GgufTensor *t,
                         bool *has_tokens, Error *err) {
    uint64_t n_matrices = imatrix_n_matrices(t), n = counts->bytes / 4;
    const float *count = counts->data;

    if (n != 1 && n != n_matrices)
        return gguf_refuse(file, err, "%.*s: token counts: expected %llu, found %llu",
                           SHOWN(t->name), (unsigned long long)n_matrices, (unsigned long long)n);

    for (uint64_t i = 0; i < n; i++) {
        if (!(count[i] >= 0 && count[i] <= 3e38f))
            return gguf_refuse(file, err, "%.*s: invalid token count %g", SHOWN(t->name),
                               (double)count[i]);
        *has_tokens |= count[i] > 0;
    }
    return true;
}

// Uses the entry NAME.in_sum2 of an importance matrix: sums for the tensor NAME of the model g. The
// numbers of tokens that they are over are NAME.counts: one for all matrices of the tensor, or one
// each. The importance of a matrix with a count of 0 stays unknown. Sets *is_foreign if g has no
// such tensor.
static bool read_entry(float **columns, const Gguf *g, const Gguf *file, const GgufTensor *sums,
                       bool *is_foreign, Error *err) {
    char name[80]; // tensor names are shorter
    int len = (int)(sums->name.len - strlen(SUMS));
    snprintf(name, sizeof name, "%.*s%s", len, sums->name.data, COUNTS);
    const GgufTensor *counts = gguf_find_tensor(file, name);
    name[len] = 0;
    if (!counts || counts->type != TYPE_F32 || sums->type != TYPE_F32)
        return gguf_refuse(file, err, "%s: expected sums and counts in F32", name);

    const GgufTensor *t = gguf_find_tensor(g, name);
    *is_foreign = !t;
    if (!t) return true;
    uint64_t n = imatrix_n_columns(t);
    if (sums->bytes / 4 != n)
        return gguf_refuse(file, err,
                           "%s: expected %llu columns, found %zu; made for another model?", name,
                           (unsigned long long)n, sums->bytes / 4);

    bool has_tokens = false;
    if (!check_counts(file, counts, t, &has_tokens, err)) return false;
    if (!has_tokens) return true;
    if (!set_columns(columns, g, t, sums->data, file, err)) return false;

    // Experts without tokens have no importance, whatever their sums are.
    uint64_t n_counts = counts->bytes / 4;
    const float *count = counts->data;
    for (uint64_t i = 0; i < n; i++)
        if (n_counts > 1 && count[i / t->dims[0]] == 0) columns[t - g->tensors][i] = 1;
    return true;
}

// Reads all entries. Those for tensors that the model lacks are ignored, but at least one entry
// must be used.
static bool read_entries(float **columns, const Gguf *g, const Gguf *file, Error *err) {
    int n_used = 0, n_foreign = 0;
    Str foreign = {0}; // the first entry for another tensor
    Str type = gguf_get_text(file, "general.type");
    if (!str_is(type, "imatrix"))
        return gguf_refuse(file, err, "general.type: expected \"imatrix\", found \"%.*s\"",
                           SHOWN(type));

    for (int i = 0; i < file->n_tensors; i++) {
        const GgufTensor *t = &file->tensors[i];
        bool is_foreign;
        if (!str_ends_with(t->name, SUMS)) continue;
        if (!read_entry(columns, g, file, t, &is_foreign, err)) return false;
        if (is_foreign && !n_foreign++) foreign = (Str){t->name.data, t->name.len - strlen(SUMS)};
    }

    for (int i = 0; i < g->n_tensors; i++) n_used += columns[i] != NULL;
    if (!n_used)
        return gguf_refuse(file, err, "no entry for a tensor of %s; made for another model?",
                           g->path);
    if (n_foreign)
        warn("%s: %d entr%s for tensors that the model does not have (%.*s ...)", file->path,
             n_foreign, n_foreign == 1 ? "y" : "ies", SHOWN(foreign));
    return true;
}

bool imatrix_parse(float **columns, Str bytes, const char *path, const Gguf *g, Error *err) {
    Gguf file = {0};
    bool ok =
        gguf_parse(&file, bytes.data, bytes.len, path, err) && read_entries(columns, g, &file, err);
    gguf_close(&file);
    return ok;
}

bool imatrix_read(float **columns, const char *path, const Gguf *g, Error *err) {
    FileMapping map;
    if (!mapping_open(&map, path, err)) return false;
    Str bytes = {(const char *)map.data, map.bytes};
    bool ok = str_begins_with(bytes, "GGUF")
                  ? imatrix_parse(columns, bytes, path, g, err)
                  : error_set(err, EXIT_MODEL,
                              "%s: not an importance matrix in GGUF; "
                              "scripts/convert_imatrix.py OLD.dat NEW.gguf converts imatrix.dat",
                              path);
    mapping_close(&map);
    return ok;
}

static void put_floats(Buffer *b, const double *x, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) buffer_append(b, &(float){(float)x[i]}, sizeof(float));
    gguf_pad(b, 32);
}

void imatrix_put(Buffer *out, const Gguf *g, double *const *sums, double *const *counts,
                 const char *dataset, int n_chunks, int chunk_size) {
    GgufWriter w = {.alignment = 32};
    Buffer data = {0};

    gguf_write_string(&w, "general.type", str_of("imatrix"));
    gguf_write_string_array(&w, "imatrix.datasets", str_of(dataset));
    gguf_write_u32(&w, "imatrix.chunk_count", (uint32_t)n_chunks);
    gguf_write_u32(&w, "imatrix.chunk_size", (uint32_t)chunk_size);

    for (int i = 0; i < g->n_tensors; i++) {
        const GgufTensor *t = &g->tensors[i];
        uint64_t n = imatrix_n_matrices(t);
        double n_tokens = 0;
        for (uint64_t m = 0; m < n; m++) n_tokens += counts[i][m];
        if (n_tokens == 0) continue; // not observed: norms, the embedding, the output matrix

        gguf_write_tensor(&w, t->name, SUMS, TYPE_F32, 2, (uint64_t[]){t->dims[0], n},
                          imatrix_n_columns(t) * sizeof(float));
        gguf_write_tensor(&w, t->name, COUNTS, TYPE_F32, 2, (uint64_t[]){1, n}, n * sizeof(float));
        put_floats(&data, sums[i], imatrix_n_columns(t));
        put_floats(&data, counts[i], n);
    }

    // The data follows the head, in the order of the tensor table.
    gguf_write_head(&w, out);
    buffer_put(out, buffer_str(&data));
    buffer_free(&data);
}
