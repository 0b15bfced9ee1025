// score --perplexity and --ids: exp of the mean negative log-likelihood per token,
// exp(-1/n sum log P(t_i | t_<i)), with its standard error.
#include "score.h"
#include "../base/clock.h"
#include "../base/files.h"
#include "../cli/output.h"
#include "../cli/privileges.h"
#include "../cli/prompt.h"
#include "../cli/request.h"

#include <math.h>

enum { DEFAULT_WINDOW = 512 }; // tokens, as in llama-perplexity

typedef enum { WINDOWS, TEXTS, IDS } TextSource;

typedef struct {
    TextSource source;
    int n_ctx;        // IDS: all tokens
    Ids ids;          // WINDOWS and IDS: all tokens
    int at;           // index of the first token that is in no task yet
    LineReader lines; // TEXTS
    JsonDoc doc;
    double nll, squares; // negative log-likelihood in nats; the sum of its squares per token
    uint64_t n_tokens, n_bytes, n_fed;
} Perplexity;

// Appends the tokens of a text, after BOS if the model was trained with it.
static void encode_text(const Tokenizer *t, Str text, Ids *out) {
    if (tokenizer_adds_bos(t)) ids_push(out, tokenizer_bos(t));
    tokenizer_encode(t, text, false, out);
}

// Sets ids and first_scored of the next task. False at the end.
static bool next_task(const Scorer *s, Perplexity *p, ScoreTask *task) {
    const Tokenizer *t = s->pipeline.tokenizer;
    const LineReader *l = &p->lines;
    Error err;

    task->first_scored = 1; // every token after the first

    if (p->source == TEXTS) {
        // Without BOS, an empty text has no token.
        while (task->ids.len == 0) {
            if (lines_next_json(&p->lines, &p->doc, true) != LINE_READY) return false;
            encode_text(t, lines_text(l, &p->doc), &task->ids);
        }
        if (!context_fits(task->ids.len, false, p->n_ctx, &err))
            die(EXIT_CONTEXT, "%s: line %ld: %s", l->path, l->number, err.text);
        return true;
    }

    if (p->ids.len - p->at < p->n_ctx) return false;
    for (int i = 0; i < p->n_ctx; i++) ids_push(&task->ids, p->ids.data[p->at++]);
    if (p->source == IDS) return true; // one task

    // As llama-perplexity: BOS replaces the first token, the second half is scored.
    if (tokenizer_adds_bos(t)) task->ids.data[0] = tokenizer_bos(t);
    task->first_scored = p->n_ctx / 2 + 1;
    return true;
}

// Runs all tasks, max_tasks at a time, and adds up their results.
static void run_tasks(Scorer *s, Perplexity *p, int max_tasks) {
    ScoreTask *tasks = xalloc((size_t)max_tasks, sizeof *tasks);
    ScoreTask **list = xalloc((size_t)max_tasks, sizeof *list);

    for (int n = max_tasks; n == max_tasks;) {
        for (n = 0; n < max_tasks; n++) {
            ScoreTask *task = &tasks[n];
            list[n] = task;
            *task = (ScoreTask){.ids = {task->ids.data, 0, task->ids.cap}};
            if (!next_task(s, p, task)) break;

            task->session = session_new(&s->pipeline.model.kv);
            if (s->reference && s->reference->workspace)
                task->reference = session_new(&s->reference->model.kv);
        }

        score_run(s, list, n);
        for (ScoreTask *task = tasks; task < tasks + n; task++) {
            p->nll -= task->logprob;
            p->squares += task->squares;
            p->n_fed += (uint64_t)task->ids.len;
            p->n_tokens += (uint64_t)(task->ids.len - task->first_scored);
            for (int i = task->first_scored; i < task->ids.len; i++)
                p->n_bytes += tokenizer_piece(s->pipeline.tokenizer, task->ids.data[i], false).len;

            session_free(task->session);
            session_free(task->reference);
        }
    }

    for (int i = 0; i < max_tasks; i++) free(tasks[i].ids.data);
    free(tasks);
    free(list);
}

// Reads the tokens of --ids, or of a text of at least one window.
static void read_tokens(const Scorer *s, Perplexity *p) {
    const Options *o = s->pipeline.options;
    Buffer text = {0};
    Error err;

    if (p->source == WINDOWS) {
        if (!file_read(o->perplexity, &text, &err)) die_error(&err);
        close_file_access(o);
        encode_text(s->pipeline.tokenizer, buffer_str(&text), &p->ids);
        if (p->ids.len < p->n_ctx)
            die(EXIT_USAGE,
                "--perplexity: %d tokens are less than a window of %d; use a smaller -c, or a "
                ".jsonl of {\"text\"} for short texts",
                p->ids.len, p->n_ctx);
    } else {
        ids_read(o, s->pipeline.model.config.vocab_size, &p->ids);
        close_file_access(o);
        if (p->ids.len < 2) die(EXIT_USAGE, "--ids: expected at least two tokens");
        if (!context_fits(p->ids.len, false, p->n_ctx, &err)) die_error(&err);
        p->n_ctx = p->ids.len;
    }
    buffer_free(&text);

    // A file of logits must have a row for each token of --ids.
    if (s->reference && !s->reference->workspace && s->reference->n_rows != p->ids.len)
        die(EXIT_USAGE, "--kl %s: expected the logits of %d tokens, found %d rows", o->kl,
            p->ids.len, s->reference->n_rows);
}

// The standard error of the perplexity as in llama-perplexity: the perplexity times the standard
// error of the mean of the negative log-likelihoods. NAN for a single token.
static double standard_error(const Perplexity *p) {
    double n = (double)p->n_tokens, mean = p->nll / n, variance = p->squares / n - mean * mean;
    return n > 1 ? exp(mean) * sqrt(fmax(variance, 0) / (n - 1)) : NAN;
}

static void print_result(Scorer *s, const Perplexity *p) {
    const Options *o = s->pipeline.options;
    Buffer out = {0};
    JsonWriter w = {.out = &out};
    double perplexity = exp(p->nll / (double)p->n_tokens);
    double sec = now_sec() - s->start;

    if (o->is_json) {
        json_begin_object(&w, NULL);
        json_write_number(&w, "perplexity", perplexity);
        json_write_number(&w, "stderr", standard_error(p));
        json_write_number(&w, "nll", p->nll);
        json_write_int(&w, "n_tokens", (int64_t)p->n_tokens);
        json_write_int(&w, "n_bytes", (int64_t)p->n_bytes);
        json_write_int(&w, "n_ctx", p->n_ctx);
        if (s->reference) kl_report(s->reference, &w, true);
        text_print_json(&w);
    } else {
        buffer_printf(&out, "perplexity %.4f +/- %.5f (%llu tokens, %.4f nats per byte)\n",
                      perplexity, standard_error(p), (unsigned long long)p->n_tokens,
                      p->n_bytes ? p->nll / (double)p->n_bytes : 0);
        if (s->reference) kl_report(s->reference, &w, false);
        text_print(&out);
    }

    note(o, "%llu tok %.1f tok/s", (unsigned long long)p->n_fed, (double)p->n_fed / sec);
}

void score_perplexity(Scorer *s) {
    static Perplexity p;
    const Options *o = s->pipeline.options;
    bool is_texts =
        o->perplexity && (o->is_jsonl || str_ends_with(str_of(o->perplexity), ".jsonl"));
    int max_context = s->pipeline.model.config.max_context;

    p.source = o->ids ? IDS : WINDOWS;
    if (is_texts) p.source = TEXTS;

    p.n_ctx = p.source == WINDOWS && max_context > DEFAULT_WINDOW ? DEFAULT_WINDOW : max_context;
    if (o->ctx) p.n_ctx = o->ctx;
    if (p.n_ctx < 4) die(EXIT_USAGE, "-c: expected at least 4, found %d", p.n_ctx);
    if (s->reference && !s->reference->workspace && p.source != IDS)
        die(EXIT_USAGE, "--kl %s: logits need --ids, the tokens they belong to", o->kl);

    if (is_texts) {
        lines_open(&p.lines, o->perplexity, SCORE_MAX_LINE);
        close_file_access(o);
    } else {
        read_tokens(s, &p);
    }

    // For a file of texts, the number of tokens is unknown (0) until all are read.
    score_expect(s, is_texts ? 0 : (uint64_t)(p.ids.len / p.n_ctx * (p.n_ctx - 1)));
    run_tasks(s, &p, is_texts ? 4 * s->parallel : s->parallel);
    if (!p.n_tokens) die(EXIT_RUNTIME, "%s: no tokens to score", o->perplexity);
    print_result(s, &p);
}
