// See imatrix.h.
// Order: normalization, reading of both formats, writing.
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
static bool set_columns(float **columns, const Gguf *g, const GgufTensor *t, const uint8_t *sums,
                        const char *path, Error *err) {
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
                return error_set(err, EXIT_MODEL, "%s: %.*s: column %zu: invalid sum of squares %g",
                                 path, SHOWN(t->name), i, (double)x[i]);
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

typedef struct {
    float **columns;
    const Gguf *g;         // the model
    const char *path;      // of the importance matrix
    int n_used, n_foreign; // entries for tensors that the model has, and for other tensors
    int n_uncalled;        // entries over 0 calls
    char foreign[64];      // name of the first entry for another tensor
    Error *err;
} ImatrixReader;

// Uses an entry: n sums, and n_counts counts of the tokens that they are over: one for all matrices
// of the tensor, or one each. The importance of a matrix with a count of 0 stays unknown.
static bool add_entry(ImatrixReader *r, Str name, const uint8_t *sums, uint64_t n,
                      const float *counts, uint64_t n_counts) {
    char text[64]; // tensor names are shorter
    snprintf(text, sizeof text, "%.*s", name.len < sizeof text ? (int)name.len : 63, name.data);

    const GgufTensor *t = gguf_find_tensor(r->g, text);
    if (!t) {
        if (!r->n_foreign++) memcpy(r->foreign, text, sizeof text);
        return true;
    }

    if (n != imatrix_n_columns(t))
        return error_set(r->err, EXIT_MODEL,
                         "%s: %s: expected %llu columns, found %llu; made for another model?",
                         r->path, text, (unsigned long long)imatrix_n_columns(t),
                         (unsigned long long)n);

    // The token counts.
    uint64_t n_matrices = imatrix_n_matrices(t);
    bool has_tokens = false;
    if (n_counts != 1 && n_counts != n_matrices)
        return error_set(r->err, EXIT_MODEL, "%s: %s: token counts: expected %llu, found %llu",
                         r->path, text, (unsigned long long)n_matrices,
                         (unsigned long long)n_counts);
    for (uint64_t i = 0; i < n_counts; i++) {
        if (!(counts[i] >= 0 && counts[i] <= 3e38f))
            return error_set(r->err, EXIT_MODEL, "%s: %s: invalid token count %g", r->path, text,
                             (double)counts[i]);
        has_tokens |= counts[i] > 0;
    }
    if (!has_tokens || r->columns[t - r->g->tensors]) return true;

    r->n_used++;
    if (!set_columns(r->columns, r->g, t, sums, r->path, r->err)) return false;

    // Experts without tokens have no importance, whatever their sums are.
    float *columns = r->columns[t - r->g->tensors];
    for (uint64_t i = 0; i < n; i++)
        if (n_counts > 1 && counts[i / t->dims[0]] == 0) columns[i] = 1;
    return true;
}

static bool read_gguf(ImatrixReader *r, const Gguf *file) {
    Str type = gguf_get_text(file, "general.type");
    if (!str_is(type, "imatrix"))
        return error_set(r->err, EXIT_MODEL,
                         "%s: general.type: expected \"imatrix\", found \"%.*s\"", r->path,
                         SHOWN(type));

    for (int i = 0; i < file->n_tensors; i++) {
        const GgufTensor *t = &file->tensors[i];
        if (!str_ends_with(t->name, SUMS)) continue;

        // NAME.in_sum2 holds the sums, NAME.counts the numbers of tokens that were summed.
        Str name = {t->name.data, t->name.len - strlen(SUMS)};
        char text[80]; // tensor names are shorter
        snprintf(text, sizeof text, "%.*s%s", (int)name.len, name.data, COUNTS);
        const GgufTensor *counts = gguf_find_tensor(file, text);
        if (!counts || counts->type != TYPE_F32 || t->type != TYPE_F32)
            return error_set(r->err, EXIT_MODEL, "%s: %.*s: expected sums and counts in F32",
                             r->path, SHOWN(name));

        if (!add_entry(r, name, t->data, t->bytes / 4, counts->data, counts->bytes / 4))
            return false;
    }

    return true;
}

// Removes n bytes from the front of *rest and returns them, or NULL with err.
static const uint8_t *take_bytes(const ImatrixReader *r, Str *rest, size_t n) {
    const uint8_t *p = (const uint8_t *)rest->data;
    int i = r->n_used + r->n_foreign;
    if (n <= rest->len) {
        *rest = (Str){rest->data + n, rest->len - n};
        return p;
    }
    if (i)
        error_set(r->err, EXIT_MODEL, "%s: truncated in tensor %d: expected %zu bytes, found %zu",
                  r->path, i + 1, n, rest->len);
    else
        error_set(r->err, EXIT_MODEL, "%s: not an importance matrix (GGUF, or llama.cpp's .dat)",
                  r->path);
    return NULL;
}

static bool take_u32(const ImatrixReader *r, Str *rest, uint32_t *out) {
    const uint8_t *p = take_bytes(r, rest, 4);
    if (p) *out = p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    return p;
}

// llama.cpp's .dat form, little-endian. Bytes after the entries are ignored.
//
//     u32 n_entries, then for each: u32 length, name, u32 n_calls, u32 n, float32 sums[n]
static bool read_dat(ImatrixReader *r, Str rest) {
    uint32_t n_entries, length, n_calls, n;
    size_t bytes;
    if (!take_u32(r, &rest, &n_entries)) return false;
    for (uint32_t i = 0; i < n_entries; i++) {
        if (!take_u32(r, &rest, &length)) return false;
        Str name = {(const char *)take_bytes(r, &rest, length), length};
        if (!name.data || !take_u32(r, &rest, &n_calls) || !take_u32(r, &rest, &n)) return false;
        if (!size_mul(n, 4, &bytes)) bytes = SIZE_MAX;
        const uint8_t *sums = take_bytes(r, &rest, bytes);
        float count = (float)(n_calls ? n_calls : 1);
        r->n_uncalled += n_calls == 0;
        if (!sums || !add_entry(r, name, sums, n, &count, 1)) return false;
    }
    return true;
}

bool imatrix_parse(float **columns, Str bytes, const char *path, const Gguf *g, Error *err) {
    ImatrixReader r = {.columns = columns, .g = g, .path = path, .err = err};
    Gguf file = {0};

    // The older format (imatrix.dat) has no magic number.
    bool ok = str_begins_with(bytes, "GGUF")
                  ? gguf_parse(&file, bytes.data, bytes.len, path, err) && read_gguf(&r, &file)
                  : read_dat(&r, bytes);
    gguf_close(&file);

    // Entries for tensors that the model lacks are ignored, but at least one entry must be used.
    if (ok && !r.n_used)
        ok = error_set(err, EXIT_MODEL, "%s: no entry for a tensor of %s; made for another model?",
                       path, g->path);
    if (ok && r.n_uncalled)
        warn("%s: %d entries say that they are over 0 calls; their sums are used", path,
             r.n_uncalled);
    if (ok && r.n_foreign)
        warn("%s: %d entr%s for tensors that the model does not have (%s ...)", path, r.n_foreign,
             r.n_foreign == 1 ? "y" : "ies", r.foreign);

    return ok;
}

bool imatrix_read(float **columns, const char *path, const Gguf *g, Error *err) {
    FileMapping map;
    if (!mapping_open(&map, path, err)) return false;
    bool ok = imatrix_parse(columns, (Str){(const char *)map.data, map.bytes}, path, g, err);
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
