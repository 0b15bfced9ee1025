// score --perplexity: exp of the mean negative log-likelihood per token,
// exp(-1/n sum log P(t_i | t_<i)), with its standard error.
//
// Windows of a text and texts of a file are sequences that generate_step() feeds, several of them
// in a forward pass. They do not run on the scheduler of batch, because it would fork common
// prefixes.
#include "cli/commands/commands.h"
#include "base/clock.h"
#include "base/files.h"
#include "cli/lines.h"
#include "cli/output.h"
#include "cli/privileges.h"
#include "cli/request.h"

#include <math.h>

enum { DEFAULT_WINDOW = 512 }; // tokens, as in llama-perplexity

typedef enum { WINDOWS, TEXTS } TextSource;

typedef struct {
    Pipeline pipeline;
    Generator generator;
    int parallel; // sequences per forward pass

    TextSource source;
    int n_ctx;
    Ids ids;          // WINDOWS: all tokens
    int at;           // index of the first token that is in no window yet
    LineReader lines; // TEXTS
    JsonDoc doc;
    uint64_t n_expected; // tokens to feed; 0: unknown
    double start;        // now_sec() when feeding began

    double nll, squares; // negative log-likelihood in nats; the sum of its squares per token
    uint64_t n_tokens, n_bytes, n_fed;
} Perplexity;

// Appends the tokens of a text, after BOS if the model was trained with it.
static void encode_text(const Tokenizer *t, Str text, Ids *out) {
    if (tokenizer_adds_bos(t)) ids_push(out, tokenizer_bos(t));
    tokenizer_encode(t, text, false, out);
}

// Appends the tokens of the next window or text to ids. *first_scored: 1, for every token after the
// first. False at the end.
static bool next_tokens(Perplexity *p, Ids *ids, int *first_scored) {
    const Tokenizer *t = p->pipeline.tokenizer;
    const LineReader *l = &p->lines;
    Error err;

    if (p->source == TEXTS) {
        // Without BOS, an empty text has no token.
        while (ids->len == 0) {
            if (!lines_next_json(&p->lines, &p->doc)) return false;
            encode_text(t, lines_text(l, &p->doc), ids);
        }
        if (!context_fits(ids->len, false, p->n_ctx, &err))
            die(EXIT_CONTEXT, "%s: line %ld: %s", l->path, l->number, err.text);
        return true;
    }

    if (p->ids.len - p->at < p->n_ctx) return false;
    for (int i = 0; i < p->n_ctx; i++) ids_push(ids, p->ids.data[p->at++]);

    // As llama-perplexity: BOS replaces the first token, the second half is scored.
    if (tokenizer_adds_bos(t)) ids->data[0] = tokenizer_bos(t);
    *first_scored = p->n_ctx / 2 + 1;
    return true;
}

// Adds the result of a sequence to the total, and frees the sequence.
static void take_result(Perplexity *p, Sequence *s) {
    double sum = 0, squares = 0;

    if (s->finish == FINISH_ERROR) {
        progress_end();
        die_error(&s->error);
    }

    for (const TokenLogprob *l = s->prompt_logprobs; l < s->prompt_logprobs + s->n_scored; l++) {
        double logprob = (double)l->logprob;
        sum += logprob;
        squares += logprob * logprob;
        p->n_bytes += tokenizer_piece(p->pipeline.tokenizer, l->id, false).len;
    }

    p->nll -= sum;
    p->squares += squares;
    p->n_tokens += (uint64_t)s->n_scored;
    p->n_fed += (uint64_t)s->request.n_prompt;

    session_free(s->session);
    free((int *)s->request.prompt);
    sequence_free(s);
    free(s);
}

// The next window or text as a sequence; NULL at the end.
static Sequence *next_sequence(Perplexity *p) {
    Ids ids = {0};
    Request request = {.first_scored = 1, .uses_actual_rows = true};
    if (!next_tokens(p, &ids, &request.first_scored)) return NULL;

    request.prompt = ids.data;
    request.n_prompt = ids.len;
    Sequence *s = xalloc(1, sizeof *s);
    sequence_start(s, &p->generator, &request, session_new(&p->pipeline.model.kv));
    return s;
}

// Runs all sequences in groups of max_sequences, `parallel` at a time. Results are added in the
// order of the input.
static void run_all(Perplexity *p, int max_sequences) {
    Generator *g = &p->generator;
    Sequence **group = xalloc((size_t)max_sequences, sizeof *group);
    int first = 0, n = 0; // unfinished sequences: [first, n) of the group

    for (;;) {
        if (first == n)
            for (first = n = 0; n < max_sequences && (group[n] = next_sequence(p));) n++;
        if (n == 0) break;

        double share = (double)g->n_prefill / (double)p->n_expected;
        progress_prefill(p->pipeline.options, g->n_prefill, p->n_expected, share, p->start);
        generate_step(g, group + first, n - first < p->parallel ? n - first : p->parallel);
        for (; first < n && group[first]->finish != FINISH_NONE; first++)
            take_result(p, group[first]);
    }

    free(group);
}

// Reads the tokens of --ids, or of a text of at least one window.
static void read_tokens(Perplexity *p) {
    const Options *o = p->pipeline.options;
    Buffer text = {0};
    Error err;

    if (!file_read_text(o->score.perplexity, &text, &err)) die_error(&err);
    close_file_access(o);
    encode_text(p->pipeline.tokenizer, buffer_str(&text), &p->ids);
    if (p->ids.len < p->n_ctx)
        die(EXIT_USAGE,
            "--perplexity: %d tokens are less than a window of %d; use a smaller -c, or a .jsonl "
            "of {\"text\"} for short texts",
            p->ids.len, p->n_ctx);
    buffer_free(&text);
}

// The standard error of the perplexity as in llama-perplexity: the perplexity times the standard
// error of the mean of the negative log-likelihoods. NAN for a single token.
static double standard_error(const Perplexity *p) {
    double n = (double)p->n_tokens, mean = p->nll / n, variance = p->squares / n - mean * mean;
    return n > 1 ? exp(mean) * sqrt(fmax(variance, 0) / (n - 1)) : NAN;
}

static void print_result(Perplexity *p) {
    const Options *o = p->pipeline.options;
    Buffer out = {0};
    double perplexity = exp(p->nll / (double)p->n_tokens);
    double sec = now_sec() - p->start;

    if (o->output.is_json) {
        JsonWriter w = json_object(&out);
        json_write_number(&w, "perplexity", perplexity);
        json_write_number(&w, "stderr", standard_error(p));
        json_write_number(&w, "nll", p->nll);
        json_write_int(&w, "n_tokens", (int64_t)p->n_tokens);
        json_write_int(&w, "n_bytes", (int64_t)p->n_bytes);
        json_write_int(&w, "n_ctx", p->n_ctx);
        text_print_json(&w);
    } else {
        buffer_printf(&out, "perplexity %.4f +/- %.5f (%llu tokens, %.4f nats per byte)\n",
                      perplexity, standard_error(p), (unsigned long long)p->n_tokens,
                      p->n_bytes ? p->nll / (double)p->n_bytes : 0);
        text_print(&out);
    }

    note(o, "%llu tok %.1f tok/s", (unsigned long long)p->n_fed, (double)p->n_fed / sec);
}

// Opens the model, and a generator whose passes compute as many rows of logits as fit
// MAX_LOGITS_BYTES.
static void open_model(Perplexity *p, const Options *o) {
    Model *m = &p->pipeline.model;

    pipeline_open(&p->pipeline, o);
    template_note_missing(o, &p->pipeline.tpl);

    int chunk = o->model.chunk ? o->model.chunk : GENERATE_CHUNK;
    int max_logits = MAX_LOGITS_BYTES / 4 / m->config.vocab_size - GENERATE_LOOKAHEAD;
    if (max_logits < 1) max_logits = 1;
    if (max_logits > chunk) max_logits = chunk;
    generator_init(&p->generator, m, p->pipeline.tokenizer, chunk, max_logits);
    p->parallel = o->batch.parallel ? o->batch.parallel : DEFAULT_PARALLEL;
}

void score_perplexity(const Options *o) {
    static Perplexity p;
    open_model(&p, o);

    int max_context = p.pipeline.model.config.max_context;
    if (o->prompt.is_jsonl || str_ends_with(str_of(o->score.perplexity), ".jsonl"))
        p.source = TEXTS;
    p.n_ctx = p.source == WINDOWS && max_context > DEFAULT_WINDOW ? DEFAULT_WINDOW : max_context;
    if (o->model.ctx) p.n_ctx = o->model.ctx;
    if (p.n_ctx < 4) die(EXIT_USAGE, "-c: expected at least 4, found %d", p.n_ctx);

    if (p.source == TEXTS) {
        lines_open(&p.lines, o->score.perplexity, MAX_LINE);
        close_file_access(o);
    } else {
        read_tokens(&p);
        p.n_expected = (uint64_t)(p.ids.len / p.n_ctx * (p.n_ctx - 1));
    }

    p.start = now_sec();
    run_all(&p, p.source == TEXTS ? 4 * p.parallel : p.parallel);
    if (!p.n_tokens) die(EXIT_RUNTIME, "%s: no tokens to score", o->score.perplexity);
    print_result(&p);
}
