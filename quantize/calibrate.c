// Calibration: computes an importance matrix by running the model on a text.
#include "quantize/quantize.h"
#include "base/bits.h"
#include "kernels/ops.h"
#include "tokenizer.h"

#include <stdio.h>

typedef struct {
    const Gguf *file;
    double **sums;   // per tensor of the file: (n_matrices, cols), sums of x^2 over all tokens
    double **counts; // per tensor: (n_matrices), numbers of these tokens
} Calibration;

// The tensor whose data w is, or one of whose experts w is (then *matrix is its index). Returns the
// index of the tensor, or -1 if w begins within a matrix: in a tensor with the rows of q, k and v,
// k and v have the inputs of q.
static int find_tensor(const Gguf *g, const Tensor *w, size_t *matrix) {
    for (int i = 0; i < g->n_tensors; i++) {
        const GgufTensor *t = &g->tensors[i];
        size_t offset = (size_t)((uintptr_t)w->data - (uintptr_t)t->data);
        size_t matrix_bytes = (size_t)(t->bytes / imatrix_n_matrices(t));
        if (offset >= t->bytes) continue;
        *matrix = offset / matrix_bytes;
        return offset % matrix_bytes ? -1 : i;
    }
    return -1;
}

// Adds the squares of x (n, w->cols) to the sums of w. All threads call it. One thread sums a
// column, in the order of the tokens, so the sums do not depend on the number of threads.
static void observe_product(void *arg, const Tensor *w, const float *x, int n) {
    enum { SPAN = 64 }; // columns per work item
    const Calibration *calibration = arg;
    int cols = w->cols;
    size_t matrix;

    int i = find_tensor(calibration->file, w, &matrix);
    if (i < 0) return;
    double *sums = calibration->sums[i] + matrix * (size_t)cols;
    for (int item; team_next(div_up(cols, SPAN), &item);) {
        int begin = item * SPAN, end = cols < begin + SPAN ? cols : begin + SPAN;
        if (item == 0) calibration->counts[i][matrix] += n;
        for (int t = 0; t < n; t++)
            for (int c = begin; c < end; c++) {
                double v = (double)x[(size_t)t * (size_t)cols + (size_t)c];
                sums[c] += v * v;
            }
    }

    team_end_op(OP_REST);
}

// Runs the text in windows of n_ctx tokens, each with BOS in place of its first token. An
// incomplete last window is left out, as in llama.cpp, unless it is the only one. A short window
// would give too much weight to BOS, whose activations in some columns are far larger than any
// other token's. Returns the number of windows, 0 with err.
static int run_windows(const QuantizeOptions *o, Calibration *calibration, const Model *m,
                       const Tokenizer *t, Ids *ids, int n_ctx, Error *err) {
    Workspace *ws = workspace_new(m, n_ctx, 1);
    workspace_observe(ws, observe_product, calibration, true);

    int n_windows = ids->len < n_ctx ? 1 : ids->len / n_ctx;
    int n_done = 0;
    while (n_done < n_windows) {
        int first = n_done * n_ctx;
        int n = ids->len - first < n_ctx ? ids->len - first : n_ctx;
        if (tokenizer_adds_bos(t)) ids->data[first] = tokenizer_bos(t);

        Session *session = session_new(&m->kv);
        bool ok = workspace_feed(ws, session, ids->data + first, n, n, err) >= 0;
        if (ok) model_forward(m, ws, 0);
        session_free(session);
        if (!ok) break;

        char line[80];
        snprintf(line, sizeof line, "calibrate: window %d of %d", ++n_done, n_windows);
        o->show_progress(o->arg, line);
    }

    o->show_progress(o->arg, NULL);
    workspace_free(ws);
    return n_done < n_windows ? 0 : n_windows;
}

// Opens the model of g and encodes the text, after BOS.
static bool open_model(const QuantizeOptions *o, const Gguf *g, Model *model, Tokenizer **t,
                       Ids *ids, Error *err) {
    Buffer text = {0};
    if (!file_read_text(o->calibrate, &text, err)) return false;
    if (!model_open(model, g->path, &o->model_options, err)) return false;
    mapping_prefetch(model->file.shards, model->file.n_shards, true);
    *t = tokenizer_open(&model->file, err);
    if (!*t) return false;

    if (tokenizer_adds_bos(*t)) ids_push(ids, tokenizer_bos(*t));
    tokenizer_encode(*t, buffer_str(&text), false, ids);
    buffer_free(&text);
    return ids->len >= 2 || error_set(err, EXIT_USAGE, "--calibrate: %s: no text", o->calibrate);
}

bool imatrix_calibrate(float **columns, const QuantizeOptions *o, const Gguf *g, OutFile *out,
                       Error *err) {
    enum { WINDOW = 512 }; // llama.cpp's default
    static Model model;    // static: after an error, the end of the process releases it
    static Tokenizer *t;
    static Ids ids;
    size_t n_tensors = (size_t)g->n_tensors + 1;

    if (!open_model(o, g, &model, &t, &ids, err)) return false;

    Calibration calibration = {&model.file, xalloc(n_tensors, sizeof(double *)),
                               xalloc(n_tensors, sizeof(double *))};
    for (int i = 0; i < g->n_tensors; i++) {
        const GgufTensor *t = &g->tensors[i];
        calibration.sums[i] = xalloc((size_t)imatrix_n_columns(t), sizeof(double));
        calibration.counts[i] = xalloc((size_t)imatrix_n_matrices(t), sizeof(double));
    }

    int n_ctx = model.config.max_context < WINDOW ? model.config.max_context : WINDOW;
    int n_windows = run_windows(o, &calibration, &model, t, &ids, n_ctx, err);
    tokenizer_close(t);
    model_close(&model);
    if (!n_windows) return false;

    // The sums are used as if they had been read from the file that --imatrix writes.
    Buffer file = {0};
    imatrix_put(&file, g, calibration.sums, calibration.counts, o->calibrate, n_windows, n_ctx);
    if (!imatrix_parse(columns, buffer_str(&file), o->calibrate, g, err)) return false;
    if (out && !write_all(out->fd, file.data, file.len)) return error_file(err, o->imatrix);
    buffer_free(&file);
    return !out || outfile_close(out, err);
}
