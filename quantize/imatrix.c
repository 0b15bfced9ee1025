// Importance matrices: read from a file, or made by running the model.
#include "imatrix.h"
#include "../base/files.h"
#include "../cli/open_model.h"
#include "../cli/output.h"
#include "../kernels/ops.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// How many numbers importance is for a tensor: more than columns where there are several matrices.
static uint64_t n_columns(const GgufTensor *t) { return t->dims[0] * t->dims[2] * t->dims[3]; }

// What is known of one tensor comes into its place, over its mean. A column that the text hardly
// touched is a weight all the same: a thousandth of the mean is the least.
static void set_columns(Imatrix *m, const Gguf *g, const GgufTensor *t, const uint8_t *sums,
                        const char *path) {
    const float LEAST = 1e-3f;
    size_t cols = (size_t)t->dims[0], n = (size_t)n_columns(t);
    float *out = m->columns[t - g->tensors] = xalloc(n, sizeof *out);
    memcpy(out, sums, n * sizeof *out);
    for (float *x = out; x < out + n; x += cols) {
        double sum = 0;
        for (size_t i = 0; i < cols; i++) {
            if (!(x[i] >= 0 && x[i] <= 3e38f))
                die(EXIT_MODEL, "%s: %.*s: column %zu: expected a sum of squares, found %g", path,
                    SHOWN(t->name), i, (double)x[i]);
            sum += (double)x[i];
        }
        float mean = (float)(sum / (double)cols);
        for (size_t i = 0; i < cols; i++) {
            float v = mean > 0 ? x[i] / mean : 1;
            x[i] = v > LEAST ? v : LEAST;
        }
    }
}

// A file under way: who reads it, and what came of it.
typedef struct {
    Imatrix *m;
    const Gguf *g;
    const char *path;
    int n_known, n_foreign;
    Str foreign; // the first
} Reader;

// An entry of n values; `count` is of the tokens behind it. None says nothing.
static void add_entry(Reader *r, Str name, const uint8_t *sums, uint64_t n, float count) {
    char text[256];
    snprintf(text, sizeof text, "%.*s", name.len < 255 ? (int)name.len : 255, name.data);
    const GgufTensor *t = gguf_find_tensor(r->g, text);
    if (!t) {
        if (!r->n_foreign++) r->foreign = name;
        return;
    }
    if (n != n_columns(t))
        die(EXIT_MODEL, "%s: %s: expected %llu columns, found %llu: made of another model?",
            r->path, text, (unsigned long long)n_columns(t), (unsigned long long)n);
    if (!(count >= 0 && count <= 3e38f))
        die(EXIT_MODEL, "%s: %s: expected a count of tokens, found %g", r->path, text,
            (double)count);
    if (count > 0 && !r->m->columns[t - r->g->tensors]) {
        set_columns(r->m, r->g, t, sums, r->path);
        r->n_known++;
    }
}

static void read_gguf(Reader *r) {
    static const char suffix[] = ".in_sum2";
    static Gguf file; // stays open: names point into it
    Error err;
    if (!gguf_open(&file, r->path, &err)) die_error(&err);
    if (!str_is(gguf_get_text(&file, "general.type"), "imatrix"))
        die(EXIT_MODEL, "%s: general.type: expected \"imatrix\", found \"%.*s\"", r->path,
            SHOWN(gguf_get_text(&file, "general.type")));
    for (int i = 0; i < file.n_tensors; i++) {
        const GgufTensor *t = &file.tensors[i];
        if (!str_ends_with(t->name, suffix)) continue;
        Str name = {t->name.data, t->name.len - (sizeof suffix - 1)};
        char text[256];
        snprintf(text, sizeof text, "%.*s.counts", name.len < 240 ? (int)name.len : 240, name.data);
        const GgufTensor *counts = gguf_find_tensor(&file, text);
        if (!counts || counts->type != TYPE_F32 || t->type != TYPE_F32)
            die(EXIT_MODEL, "%s: %.*s: expected sums and counts in F32", r->path, SHOWN(name));
        float count = 0;
        memcpy(&count, counts->data, counts->bytes < 4 ? 0 : sizeof count);
        add_entry(r, name, t->data, t->bytes / 4, count);
    }
}

// The next n bytes of the older form, or dies.
static const uint8_t *take(const Reader *r, Str *rest, size_t n) {
    if (n > rest->len && r->n_known + r->n_foreign)
        die(EXIT_MODEL, "%s: ends within tensor %d: expected %zu bytes more, found %zu", r->path,
            r->n_known + r->n_foreign + 1, n, rest->len);
    if (n > rest->len)
        die(EXIT_MODEL, "%s: no importance matrix: neither GGUF nor llama.cpp's older form",
            r->path);
    const uint8_t *p = (const uint8_t *)rest->data;
    *rest = (Str){rest->data + n, rest->len - n};
    return p;
}

static uint32_t take_u32(const Reader *r, Str *rest) {
    const uint8_t *p = take(r, rest, 4);
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

// Little-endian: how many entries; of each the length of its name, the name, its calls, how many
// values, the values. What follows says where it was made.
static void read_older(Reader *r, Str rest) {
    uint32_t n_entries = take_u32(r, &rest);
    for (uint32_t i = 0; i < n_entries; i++) {
        Str name = {.len = take_u32(r, &rest)};
        name.data = (const char *)take(r, &rest, name.len);
        uint32_t n_calls = take_u32(r, &rest), n = take_u32(r, &rest);
        size_t bytes;
        if (!size_mul(n, 4, &bytes)) bytes = SIZE_MAX;
        add_entry(r, name, take(r, &rest, bytes), n, (float)(n_calls ? n_calls : 1));
    }
}

void imatrix_read(Imatrix *m, const char *path, const Gguf *g) {
    static Buffer bytes;
    char magic[4] = {0};
    Error err;
    Reader r = {m, g, path, 0, 0, {0}};
    m->columns = xalloc((size_t)g->n_tensors + 1, sizeof *m->columns);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool is_gguf = fd >= 0 && read(fd, magic, 4) == 4 && !memcmp(magic, "GGUF", 4);
    if (fd < 0) die_file(path);
    close(fd);
    if (is_gguf)
        read_gguf(&r);
    else if (!file_read(path, &bytes, &err))
        die_error(&err);
    else
        read_older(&r, buffer_str(&bytes));
    if (!r.n_known)
        die(EXIT_MODEL, "%s: nothing about a tensor of %s: made of another model?", path, g->path);
    if (r.n_foreign)
        warn("%s: %s that the model lacks (%.*s ...)", path, count_of(r.n_foreign, "tensor"),
             SHOWN(r.foreign));
}

// What the forward pass under way adds to, seen from inside it.
static struct {
    const Gguf *file;
    double **sums; // per tensor: (dims[0]); NULL until it is met
} seen;

// Each column is summed by one thread, in the order of the tokens.
static void add_squares(void *arg, const Tensor *w, const float *x, int n) {
    enum { PIECE = 64 }; // columns
    (void)arg;
    int i = 0, cols = w->cols;
    while (i < seen.file->n_tensors && seen.file->tensors[i].data != w->data) i++;
    if (i == seen.file->n_tensors) return;
    for (int piece; team_next((cols + PIECE - 1) / PIECE, &piece);) {
        int first = piece * PIECE, end = cols < first + PIECE ? cols : first + PIECE;
        for (int t = 0; t < n; t++)
            for (int c = first; c < end; c++) {
                double v = (double)x[(size_t)t * (size_t)cols + (size_t)c];
                seen.sums[i][c] += v * v;
            }
    }
    team_end_op(OP_REST);
}

// Runs the text through the model, a window after another, each after BOS. Returns their number.
// What does not fill one is left out, as by llama.cpp, unless it is all: short windows would count
// BOS too often, which moves some columns as nothing else does.
static int feed_windows(const Options *o, const Model *m, const Tokenizer *t, const Ids *ids,
                        int n_ctx) {
    Workspace *ws = workspace_new(m, n_ctx, 1);
    workspace_observe(ws, add_squares, NULL);
    int n_windows = ids->len < n_ctx ? 1 : ids->len / n_ctx;
    for (int i = 0; i < n_windows; i++) {
        Error err;
        int first = i * n_ctx, n = ids->len - first < n_ctx ? ids->len - first : n_ctx;
        if (tokenizer_adds_bos(t)) ids->data[first] = tokenizer_bos(t);
        Session *session = session_new(&m->kv);
        if (workspace_feed(ws, session, ids->data + first, n, n, &err) < 0) die_error(&err);
        model_forward(m, ws, 0);
        session_free(session);
        progress_print(o, "calibrate %d of %d windows of %d tokens", i + 1, n_windows, n_ctx);
    }
    progress_end();
    workspace_free(ws);
    return n_windows;
}

static void put_tensor(Buffer *b, Str name, const char *suffix, uint64_t cols, uint64_t *at) {
    gguf_put(b, name.len + strlen(suffix), 8);
    buffer_put(b, name);
    buffer_puts(b, suffix);
    gguf_put(b, 2, 4);
    gguf_put(b, cols, 8);
    gguf_put(b, 1, 8);
    gguf_put(b, TYPE_F32, 4);
    gguf_put(b, *at, 8);
    *at += (cols * 4 + 31) / 32 * 32;
}

static void put_floats(Buffer *b, const float *x, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        gguf_put(b, bits, 4);
    }
    while (b->len % 32) gguf_put(b, 0, 1);
}

// As llama.cpp's imatrix writes it: the sums of all tokens and their number.
static void put_file(Buffer *b, const Gguf *g, float *const *sums, float count, const char *text,
                     int n_windows, int n_ctx) {
    uint64_t at = 0, n = 0;
    Buffer table = {0};
    for (int i = 0; i < g->n_tensors; i++) {
        if (!sums[i]) continue;
        put_tensor(&table, g->tensors[i].name, ".in_sum2", g->tensors[i].dims[0], &at);
        put_tensor(&table, g->tensors[i].name, ".counts", 1, &at);
        n += 2;
    }
    buffer_puts(b, "GGUF");
    gguf_put(b, 3, 4);
    gguf_put(b, n, 8);
    gguf_put(b, 4, 8);
    gguf_put_key(b, str_of("general.type"), GGUF_STRING);
    gguf_put_text(b, str_of("imatrix"));
    gguf_put_key(b, str_of("imatrix.datasets"), GGUF_ARRAY);
    gguf_put(b, GGUF_STRING, 4);
    gguf_put(b, 1, 8);
    gguf_put_text(b, str_of(text));
    gguf_put_key(b, str_of("imatrix.chunk_count"), GGUF_U32);
    gguf_put(b, (uint64_t)n_windows, 4);
    gguf_put_key(b, str_of("imatrix.chunk_size"), GGUF_U32);
    gguf_put(b, (uint64_t)n_ctx, 4);
    buffer_put(b, buffer_str(&table));
    while (b->len % 32) gguf_put(b, 0, 1);
    for (int i = 0; i < g->n_tensors; i++) {
        if (!sums[i]) continue;
        put_floats(b, sums[i], g->tensors[i].dims[0]);
        put_floats(b, &count, 1);
    }
    buffer_free(&table);
}

// What was seen of each tensor, into the matrix; returned as sums: (dims[0]), or NULL for what is
// in no product, as the norms and the embedding.
static float **take_sums(Imatrix *m, const Gguf *g, const char *text) {
    float **sums = xalloc((size_t)g->n_tensors + 1, sizeof *sums);
    for (int i = 0; i < g->n_tensors; i++) {
        size_t cols = (size_t)g->tensors[i].dims[0];
        double all = 0;
        for (size_t c = 0; c < cols; c++) all += seen.sums[i][c];
        if (all == 0) continue;
        sums[i] = xalloc(cols, sizeof **sums);
        for (size_t c = 0; c < cols; c++) sums[i][c] = (float)seen.sums[i][c];
        set_columns(m, g, &g->tensors[i], (const uint8_t *)sums[i], text);
    }
    return sums;
}

void imatrix_calibrate(Imatrix *m, const Options *o, const char *text, const Gguf *g) {
    enum { WINDOW = 512 }; // as llama.cpp
    static Model model;
    static Tokenizer *t;
    static Buffer bytes, file;
    static Ids ids;
    OutFile out;
    Error err;
    Options own = *o;
    own.model = g->path;
    if (!file_read(text, &bytes, &err)) die_error(&err);
    const char *nul = bytes.len ? memchr(bytes.data, 0, bytes.len) : NULL;
    if (nul)
        die(EXIT_USAGE, "--calibrate: expected a text, found a zero byte at %zu of %s",
            (size_t)(nul - bytes.data), text);
    if (o->imatrix && !outfile_open(&out, o->imatrix, o->is_forced ? FILE_FORCE : 0, &err))
        die_error(&err);
    model_open_or_die(&own, &model, &t);
    if (tokenizer_adds_bos(t)) ids_push(&ids, tokenizer_bos(t));
    tokenizer_encode(t, bytes.data, bytes.len, &ids);
    if (ids.len < 2) die(EXIT_USAGE, "--calibrate: expected a text, found nothing in %s", text);
    seen.file = &model.file;
    seen.sums = xalloc((size_t)g->n_tensors + 1, sizeof *seen.sums);
    m->columns = xalloc((size_t)g->n_tensors + 1, sizeof *m->columns);
    for (int i = 0; i < g->n_tensors; i++)
        seen.sums[i] = xalloc((size_t)g->tensors[i].dims[0], sizeof(double));
    int n_ctx = model.config.max_context < WINDOW ? model.config.max_context : WINDOW;
    int n_windows = feed_windows(o, &model, t, &ids, n_ctx);
    tokenizer_close(t);
    model_close(&model);
    float **sums = take_sums(m, g, text);
    if (!o->imatrix) return;
    int n_fed = ids.len < n_ctx ? ids.len : n_windows * n_ctx;
    put_file(&file, g, sums, (float)n_fed, text, n_windows, n_ctx);
    output_write(out.fd, o->imatrix, file.data, file.len);
    if (!outfile_close(&out, &err)) die_error(&err);
}
