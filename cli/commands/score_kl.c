// See score_kl.h.
#include "cli/commands/score_kl.h"
#include "cli/open_generator.h"

#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

static void open_logits(KlReference *r, const char *path) {
    struct stat st;
    r->path = path;
    if (fstat(r->fd, &st)) die_file(path);
    size_t row_bytes = (size_t)r->n_vocab * sizeof(float);
    if (!S_ISREG(st.st_mode) || !st.st_size || (size_t)st.st_size % row_bytes)
        die(EXIT_USAGE,
            "--kl %s: expected a model, or logits (rows of %d float32), found %lld bytes", path,
            r->n_vocab, (long long)st.st_size);
    size_t n = (size_t)st.st_size / row_bytes;
    r->n_rows = n < MAX_CONTEXT ? (int)n : MAX_CONTEXT;
    r->row = xalloc((size_t)r->n_vocab, sizeof *r->row);
}

void kl_open(KlReference *r, const Options *o, const Model *m, int chunk, int max_rows) {
    char magic[4] = "";
    Error err;

    *r = (KlReference){.n_vocab = m->config.vocab_size};
    r->fd = open(o->kl, O_RDONLY | O_CLOEXEC);
    if (r->fd < 0 || pread(r->fd, magic, sizeof magic, 0) < 0) die_file(o->kl);

    if (memcmp(magic, "GGUF", 4)) {
        open_logits(r, o->kl);
        return;
    }
    close(r->fd);

    ModelOptions options = {.n_threads = m->n_threads,
                            .is_batch_invariant = o->model_options.is_batch_invariant,
                            .kv_type = o->model_options.kv_type};
    if (!model_open(&r->model, o->kl, &options, &err)) die_error(&err);
    same_vocabulary_check(&r->model, m, "--kl");
    r->workspace = workspace_new(&r->model, chunk, max_rows);
}

// D(P || Q) = sum p_i (log p_i - log q_i) in nats, of P = softmax(p) and Q = softmax(q), logits
// (n). With both shifted to a maximum of 0 and sums of exponentials S_P and S_Q, this is 1/S_P sum
// e^p_i (p_i - q_i) - log S_P + log S_Q.
static double kl_divergence(const float *p, const float *q, int n, bool *agree) {
    double sum_p = 0, sum_q = 0, sum = 0;
    int best_p = 0, best_q = 0;

    for (int i = 1; i < n; i++) {
        if (p[i] > p[best_p]) best_p = i;
        if (q[i] > q[best_q]) best_q = i;
    }

    // With the maxima subtracted, log p_i = log_p - log(sum_p). The same holds for q.
    for (int i = 0; i < n; i++) {
        double log_p = (double)p[i] - (double)p[best_p];
        double log_q = (double)q[i] - (double)q[best_q];
        double e = exp(log_p);
        sum_p += e;
        sum_q += exp(log_q);
        sum += e * (log_p - log_q);
    }

    *agree = best_p == best_q;
    double d = sum / sum_p - log(sum_p) + log(sum_q);
    return d < 0 ? 0 : d; // rounding
}

// The position of the first token that a sequence has fed in the last pass.
static int first_position(const Sequence *s) { return s->session->n_tokens - s->pass.n_fed; }

// Runs the last pass of sequences (n) on the reference model. Returns its logits.
static const float *run_reference(KlReference *r, Sequence *const *sequences, int n) {
    Error err;
    for (int i = 0; i < n; i++) {
        const Sequence *s = sequences[i];
        const int *tokens = s->session->tokens + first_position(s);
        if (workspace_feed(r->workspace, s->request.arg, tokens, s->pass.n_fed,
                           s->pass.first_logits, &err) < s->pass.n_fed)
            die_error(&err);
    }
    return model_forward(&r->model, r->workspace, 0);
}

// Reads the logits of position `pos` from the file.
static const float *read_row(const KlReference *r, int pos) {
    size_t bytes = (size_t)r->n_vocab * sizeof *r->row;
    if (pread(r->fd, r->row, bytes, (off_t)((uint64_t)pos * bytes)) != (ssize_t)bytes)
        die_file(r->path);
    return r->row;
}

void kl_compare(KlReference *r, const Generator *g, Sequence *const *sequences, int n) {
    const float *rows = r->workspace ? run_reference(r, sequences, n) : NULL;

    for (int i = 0; i < n; i++) {
        const SequencePass *p = &sequences[i]->pass;

        for (int k = p->first_logits; k < p->n_fed; k++) {
            size_t at = (size_t)(p->logits_row + k - p->first_logits) * (size_t)r->n_vocab;
            const float *q = rows ? rows + at : read_row(r, first_position(sequences[i]) + k);
            bool agree;
            double d = kl_divergence(q, g->logits + at, r->n_vocab, &agree);
            if (!isfinite(d)) die(EXIT_RUNTIME, "the logits contain NaN or infinity");

            r->divergences = list_grow(r->divergences, r->n, sizeof *r->divergences);
            r->divergences[r->n++] = d;
            r->n_agreed += agree;
        }
    }
}

void kl_report(KlReference *r, JsonWriter *w, bool is_json) {
    size_t n = (size_t)r->n;
    double agreement = (double)r->n_agreed / r->n; // share of positions with equal best tokens
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += r->divergences[i];
    double mean = sum / r->n;

    doubles_sort(r->divergences, n);
    double p99 = r->divergences[(n * 99 + 99) / 100 - 1];
    double max = r->divergences[n - 1];

    if (!is_json) {
        buffer_printf(w->out,
                      "KL divergence %.6f nats (99 %% below %.6f, most %.6f), same best token "
                      "%.3f %% (%d positions)\n",
                      mean, p99, max, 100 * agreement, r->n);
        return;
    }

    json_begin_object(w, "kl");
    json_write_number(w, "mean", mean);
    json_write_number(w, "p99", p99);
    json_write_number(w, "max", max);
    json_write_number(w, "top1_agreement", agreement);
    json_write_int(w, "n_positions", r->n);
    json_end_object(w);
}
