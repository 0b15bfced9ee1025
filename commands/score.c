// score: how likely texts are. Everything is a Job: tokens fed to a session, and the
// log-probabilities of some of them summed. Windows of a text, texts of a file, and the choices
// after a prompt are packed into the same forward passes.
#include "score_kl.h"
#include "../base/clock.h"
#include "commands.h"
#include "../base/files.h"
#include "../cli/generator.h"
#include "../cli/prompt.h"
#include "../cli/request.h"
#include "../cli/lines.h"
#include "../cli/output.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    DEFAULT_WINDOW = 512, // as llama-perplexity
    MAX_LINE = 4 << 20    // bytes: several times what a context of 131072 tokens takes
};

// All tokens but the last are fed; those from `first` on are scored, each by the logits of the one
// before it.
typedef struct {
    Session *session, *reference; // the reference's: of --kl with a model
    Ids ids;
    int n_fed, n_wanted, first; // n_wanted of those fed last wait for their logits
    int n_taken;                // fed from the prefix cache
    double logprob;
} Job;

typedef struct {
    Pipeline pipeline;
    Workspace *workspace;
    PrefixCache *cache;
    Reference *reference; // of --kl, NULL: none
    int parallel, chunk;
    double start;
    uint64_t n_read, n_all; // tokens fed, and to be fed in all (0: nobody knows)
    double reading_since;
} Scorer;

// Feeds as many tokens of a job as there is room for. Returns how many there would be without the
// cache.
static int feed_job(Scorer *s, Job *job) {
    Error err;
    int begin = job->n_fed, wanted = job->first - 1 > begin ? job->first - 1 - begin : 0;
    int n = job->ids.len - 1 - begin, n_before = job->n_taken ? begin % s->chunk : 0;
    if (n > s->chunk - n_before) n = s->chunk - n_before;
    n = workspace_feed(s->workspace, job->session, job->ids.data + begin, n, wanted, &err);
    if (n < 0 || (job->reference && workspace_feed(s->reference->workspace, job->reference,
                                                   job->ids.data + begin, n, wanted, &err) < n))
        die_error(&err);
    job->n_fed += n;
    s->n_read += (uint64_t)n;
    job->n_wanted = n > wanted ? n - wanted : 0;
    return n_before + n;
}

// Adds what the logits say about the tokens of a job that were fed last. Returns the logits behind.
static const float *take_logprobs(const Scorer *s, Job *job, const float *logits) {
    int n_vocab = s->pipeline.model.config.vocab_size;
    for (int i = job->n_fed - job->n_wanted; i < job->n_fed; i++, logits += n_vocab) {
        float logprob = logits_logprob(logits, n_vocab, job->ids.data[i + 1]);
        if (!(logprob - logprob == 0))
            progress_end(), die(EXIT_RUNTIME, "the logits hold NaN or infinity");
        job->logprob += (double)logprob;
        if (s->reference) reference_compare(s->reference, i, logits);
    }
    job->n_wanted = 0;
    return logits;
}

// Runs all jobs to their end. The sum of a job has the same order whatever it is packed with.
static void run_jobs(Scorer *s, Job *const *jobs, int n) {
    for (int first = 0; first < n;) {
        progress_prefill(s->pipeline.options, s->n_read, s->n_all, s->reading_since);
        int end = n < first + s->parallel ? n : first + s->parallel, kernel_rows = 0;
        for (int i = first; i < end; i++) kernel_rows = feed_job(s, jobs[i]);
        if (n > 1) kernel_rows = 0;
        const float *logits = model_forward(&s->pipeline.model, s->workspace, kernel_rows);
        Reference *r = s->reference;
        if (r && r->workspace) r->rows = model_forward(&r->model, r->workspace, kernel_rows);
        for (int i = first; i < end; i++) logits = take_logprobs(s, jobs[i], logits);
        while (first < n && jobs[first]->n_fed >= jobs[first]->ids.len - 1) first++;
    }
}

// From here on progress is shown, towards n_all tokens.
static void expect_tokens(Scorer *s, uint64_t n_all) {
    s->n_read = 0, s->n_all = n_all;
    s->reading_since = now_sec();
}

// Everything scores in one workspace: as many logits at a time as MAX_LOGITS_BYTES hold.
static void scorer_open(Scorer *s, const Options *o) {
    s->start = now_sec();
    pipeline_open(&s->pipeline, o);
    int most = MAX_LOGITS_BYTES / (4 * s->pipeline.model.config.vocab_size),
        chunk = o->chunk ? o->chunk : GENERATE_CHUNK;
    s->parallel = o->parallel ? o->parallel : DEFAULT_PARALLEL;
    s->chunk = chunk;
    most = most < 1 ? 1 : most < chunk ? most : chunk;
    s->workspace = workspace_new(&s->pipeline.model, chunk, most);
    if (!o->perplexity && !o->ids) s->cache = prefix_cache_open(&s->pipeline, chunk);
    if (!o->kl) return;
    s->reference = xalloc(1, sizeof *s->reference);
    reference_open(s->reference, o, &s->pipeline.model, chunk, most);
}

// Perplexity

typedef struct {
    Ids ids; // of the text that is cut into windows,
    int at;  // and where the next one begins
    LineReader lines;
    JsonDoc doc;
    double nll; // nats
    uint64_t n_tokens, n_bytes, n_fed;
    int n_ctx;
} Perplexity;

// A text as training saw it: after BOS, where the model has one.
static void put_text(const Scorer *s, Str text, Ids *out) {
    if (tokenizer_adds_bos(s->pipeline.tokenizer))
        ids_push(out, tokenizer_bos(s->pipeline.tokenizer));
    tokenizer_encode(s->pipeline.tokenizer, text.data, text.len, out);
}

// As llama.cpp counts: BOS and the text are cut into windows of n_ctx tokens, the first token of
// each is replaced by BOS, the first half of each is context only, and what does not fill a window
// is left out.
static bool next_window(Scorer *s, Perplexity *p, Job *job) {
    if (p->ids.len - p->at < p->n_ctx) return false;
    for (int i = 0; i < p->n_ctx; i++) ids_push(&job->ids, p->ids.data[p->at++]);
    if (tokenizer_adds_bos(s->pipeline.tokenizer))
        job->ids.data[0] = tokenizer_bos(s->pipeline.tokenizer);
    job->first = p->n_ctx / 2 + 1;
    return true;
}

// A line of JSON, {"text": ...}; every token after BOS counts.
static bool next_text(Scorer *s, Perplexity *p, Job *job) {
    const LineReader *l = &p->lines;
    if (lines_next_json(&p->lines, &p->doc, true) != LINE_READY) return false;
    const Json *text = json_get_string(p->doc.root, "text");
    if (!text) die(EXIT_RUNTIME, "%s: line %ld: expected {\"text\": STRING}", l->path, l->number);
    put_text(s, text->string, &job->ids);
    Error err;
    if (!context_fits(job->ids.len, false, p->n_ctx, &err))
        die(EXIT_CONTEXT, "%s: line %ld: %s", l->path, l->number, err.text);
    job->first = 1;
    return true;
}

// The tokens of --ids; every one after the first counts.
static bool next_ids(Scorer *s, Perplexity *p, Job *job) {
    (void)s;
    for (; p->at < p->ids.len; p->at++) ids_push(&job->ids, p->ids.data[p->at]);
    job->first = 1;
    return job->ids.len > 0;
}

// Takes jobs from a source until it has no more, runs them and adds up what they say.
static void count_jobs(Scorer *s, Perplexity *p, bool (*next)(Scorer *s, Perplexity *p, Job *job),
                       int most) {
    Job *jobs = xalloc((size_t)most, sizeof *jobs), **list = xalloc((size_t)most, sizeof *list);
    for (int n = most; n == most;) {
        for (n = 0; n < most; n++) {
            list[n] = &jobs[n];
            jobs[n] = (Job){.ids = {jobs[n].ids.data, 0, jobs[n].ids.cap}};
            if (!next(s, p, &jobs[n])) break;
            jobs[n].session = session_new(&s->pipeline.model.kv);
            if (s->reference && s->reference->workspace)
                jobs[n].reference = session_new(&s->reference->model.kv);
        }
        run_jobs(s, list, n);
        for (Job *job = jobs; job < jobs + n; job++) {
            p->nll -= job->logprob;
            p->n_fed += (uint64_t)job->ids.len;
            for (int i = job->first; i < job->ids.len; i++, p->n_tokens++)
                p->n_bytes += tokenizer_piece(s->pipeline.tokenizer, job->ids.data[i], false).len;
            session_free(job->session);
            session_free(job->reference);
        }
    }
    for (int i = 0; i < most; i++) free(jobs[i].ids.data);
    free(jobs);
    free(list);
}

// The tokens of --ids, or of a plain text of at least one window.
static void read_tokens(Scorer *s, Perplexity *p) {
    const Options *o = s->pipeline.options;
    Buffer text = {0};
    Error err;
    const char *path = o->perplexity ? o->perplexity : o->ids[0] == '@' ? o->ids + 1 : NULL;
    if (!path)
        buffer_puts(&text, o->ids);
    else if (!file_read(path, &text, &err))
        die_error(&err);
    enter_sandbox(o);
    if (o->perplexity)
        put_text(s, buffer_str(&text), &p->ids);
    else
        ids_parse(text.data, s->pipeline.model.config.vocab_size, &p->ids);
    buffer_free(&text);
    if (o->ids && p->ids.len < 2) die(EXIT_USAGE, "--ids: expected at least two tokens");
    if (o->ids && !context_fits(p->ids.len, false, p->n_ctx, &err)) die_error(&err);
    if (o->perplexity && p->ids.len < p->n_ctx)
        die(EXIT_USAGE,
            "--perplexity: expected at least one window of %d tokens, found %d (a smaller -c, or a "
            ".jsonl of {\"text\"} for short texts)",
            p->n_ctx, p->ids.len);
    if (o->ids) p->n_ctx = p->ids.len;
    if (s->reference && !s->reference->workspace && s->reference->n_rows != p->ids.len)
        die(EXIT_USAGE, "--kl %s: expected the logits of %d tokens, found %d rows", o->kl,
            p->ids.len, s->reference->n_rows);
}

// Of a plain text in windows, of texts that are a line each, or of tokens.
static void score_perplexity(Scorer *s) {
    static Perplexity p;
    const Options *o = s->pipeline.options;
    Buffer out = {0};
    bool is_texts =
        o->perplexity && (o->is_jsonl || str_ends_with(str_of(o->perplexity), ".jsonl"));
    int most = s->pipeline.model.config.max_context;
    p.n_ctx = o->ctx ? o->ctx : is_texts || o->ids || most < DEFAULT_WINDOW ? most : DEFAULT_WINDOW;
    if (p.n_ctx < 4) die(EXIT_USAGE, "-c: expected at least 4, found %d", p.n_ctx);
    if (s->reference && !s->reference->workspace && !o->ids)
        die(EXIT_USAGE, "--kl %s: expected --ids beside logits: the tokens that they are of",
            o->kl);
    if (is_texts) {
        lines_open(&p.lines, o->perplexity, MAX_LINE);
        enter_sandbox(o);
    } else {
        read_tokens(s, &p);
    }
    expect_tokens(s, is_texts ? 0
                     : o->ids ? (uint64_t)p.ids.len - 1
                              : (uint64_t)(p.ids.len / p.n_ctx * (p.n_ctx - 1)));
    count_jobs(s, &p,
               is_texts ? next_text
               : o->ids ? next_ids
                        : next_window,
               is_texts ? 4 * s->parallel : s->parallel);
    if (!p.n_tokens) die(EXIT_RUNTIME, "%s: nothing to score", o->perplexity);
    double perplexity = exp(p.nll / (double)p.n_tokens), sec = now_sec() - s->start;
    if (o->is_json) {
        json_put_number(&out, "{\"perplexity\":", perplexity);
        json_put_number(&out, ",\"nll\":", p.nll);
        buffer_printf(&out, ",\"n_tokens\":%llu,\"n_bytes\":%llu,\"n_ctx\":%d",
                      (unsigned long long)p.n_tokens, (unsigned long long)p.n_bytes, p.n_ctx);
    } else {
        buffer_printf(&out, "perplexity %.4f (%llu tokens, %.4f nats per byte)\n", perplexity,
                      (unsigned long long)p.n_tokens, p.n_bytes ? p.nll / (double)p.n_bytes : 0);
    }
    if (s->reference) reference_put(s->reference, o->is_json, &out);
    if (o->is_json) buffer_puts(&out, "}\n");
    text_print(&out);
    note(o, "%llu tok %.1f tok/s", (unsigned long long)p.n_fed, (double)p.n_fed / sec);
}

// Choices

// A prompt and its continuations. The first n_shared tokens of every choice are the prompt.
typedef struct {
    JsonDoc doc; // what id and texts point into, if they come from a file
    const Json *id;
    int n, n_shared;
    Str *texts;   // (n)
    Job *choices; // (n)
    Job prompt;   // but for its last token
} Question;

static void question_free(Question *q) {
    for (int i = 0; i < q->n; i++) {
        session_free(q->choices[i].session);
        free(q->choices[i].ids.data);
    }
    session_free(q->prompt.session);
    free(q->texts);
    free(q->choices);
    json_free(&q->doc);
}

// Encodes. On a template the answer begins a turn of its own; in plain text prompt and choice are
// encoded together, and where their tokens merge across the boundary, all choices are scored from
// the last token that all have.
static void question_encode(Scorer *s, Question *q, Str prompt) {
    const Pipeline *e = &s->pipeline;
    Ids alone = {0};
    Error err;
    q->choices = xalloc((size_t)q->n, sizeof *q->choices);
    if (!prompt_encode(e, prompt, e->options->is_raw, &alone, &err)) die_error(&err);
    q->n_shared = alone.len;
    for (int i = 0; i < q->n; i++) {
        Ids *ids = &q->choices[i].ids;
        if (!e->tpl.is_none && !e->options->is_raw) {
            for (int k = 0; k < alone.len; k++) ids_push(ids, alone.data[k]);
            tokenizer_encode(e->tokenizer, q->texts[i].data, q->texts[i].len, ids);
            continue;
        }
        Buffer joint = {0};
        buffer_put(&joint, prompt);
        buffer_put(&joint, q->texts[i]);
        prompt_encode(e, buffer_str(&joint), true, ids, &err); // plain text is not refused
        int k = 0;
        while (k < q->n_shared && k < ids->len - 1 && ids->data[k] == alone.data[k]) k++;
        q->n_shared = k;
        buffer_free(&joint);
    }
    free(alone.data);
    if (q->n_shared < 1)
        die(EXIT_USAGE, "score: expected a prompt of at least one token before the choices");
}

// The choices in the order given; the best is marked, or named.
static void question_print(const Scorer *s, const Question *q) {
    Buffer out = {0};
    bool is_json = s->pipeline.options->is_json || s->pipeline.options->is_jsonl;
    const Json *id = q->id;
    int best = 0;
    double sum = 0; // of the choices' probabilities, relative to the best's
    for (int i = 1; i < q->n; i++)
        if (q->choices[i].logprob > q->choices[best].logprob) best = i;
    for (int i = 0; i < q->n; i++) sum += exp(q->choices[i].logprob - q->choices[best].logprob);
    if (!is_json)
        buffer_printf(&out, "%9s %12s %12s %6s\n", "share", "logprob", "per token", "tokens");
    if (is_json) buffer_puts(&out, "{");
    if (id && id->kind == JSON_STRING) json_put_string(&out, "\"id\":", id->string);
    if (id && id->kind == JSON_NUMBER) json_put_number(&out, "\"id\":", id->number);
    if (is_json) buffer_puts(&out, id ? ",\"choices\":[" : "\"choices\":[");
    for (int i = 0; i < q->n; i++) {
        int n_tokens = q->choices[i].ids.len - q->n_shared;
        double logprob = q->choices[i].logprob,
               share = exp(logprob - q->choices[best].logprob) / sum;
        if (is_json) {
            json_put_string(&out, i ? ",{\"text\":" : "{\"text\":", q->texts[i]);
            json_put_number(&out, ",\"logprob\":", q->choices[i].logprob);
            json_put_number(&out, ",\"probability\":", exp(logprob));
            json_put_number(&out, ",\"share\":", share);
            json_put_number(&out, ",\"logprob_per_token\":", n_tokens ? logprob / n_tokens : 0);
            buffer_printf(&out, ",\"n_tokens\":%d}", n_tokens);
        } else {
            buffer_printf(&out, "%7.2f %% %12.6f %12.6f %6d  ", 100 * share, logprob,
                          n_tokens ? logprob / n_tokens : 0, n_tokens);
            buffer_put(&out, q->texts[i]);
            buffer_puts(&out, i == best ? "  *\n" : "\n");
        }
    }
    if (is_json) {
        json_put_string(&out, "],\"best\":", q->texts[best]);
        buffer_puts(&out, "}\n");
    }
    text_print(&out);
}

// The prompts of all questions in one packing; then all choices, as forks of them.
static void answer_questions(Scorer *s, Question *questions, int n) {
    int most = n, n_jobs = 0;
    for (int i = 0; i < n; i++) most += questions[i].n;
    bool has_cache =
        s->cache &&
        (n == 1 || s->pipeline.model.is_batch_invariant); // packed with others it has other bits
    Job **jobs = xalloc((size_t)most, sizeof *jobs);
    for (Question *q = questions; q < questions + n; q++) {
        q->prompt = (Job){.session = session_new(&s->pipeline.model.kv),
                          .ids = {q->choices->ids.data, q->n_shared, 0},
                          .first = q->n_shared};
        jobs[n_jobs++] = &q->prompt;
        if (has_cache)
            q->prompt.n_taken =
                cache_load(s->cache, q->prompt.session, q->prompt.ids.data, q->n_shared);
        q->prompt.n_fed = q->prompt.n_taken;
        if (s->n_all) s->n_all -= (uint64_t)q->prompt.n_taken;
    }
    run_jobs(s, jobs, n_jobs);
    for (int i = 0; has_cache && i < n; i++) cache_store(s->cache, questions[i].prompt.session, 0);
    n_jobs = 0;
    for (Question *q = questions; q < questions + n; q++)
        for (Job *job = q->choices; job < q->choices + q->n; job++) {
            job->session = session_fork(q->prompt.session, q->n_shared - 1);
            if (!job->session) die(EXIT_RUNTIME, "out of memory: KV cache of %d choices", q->n);
            job->n_fed = q->n_shared - 1;
            job->first = q->n_shared;
            jobs[n_jobs++] = job;
        }
    run_jobs(s, jobs, n_jobs);
    for (Question *q = questions; q < questions + n; q++) {
        question_print(s, q);
        question_free(q);
    }
    free(jobs);
}

// ["A","B"], for choices that hold commas.
static void read_choices(Question *q, const char *list) {
    Error err;
    const Json *c = NULL;
    if (!json_parse(&q->doc, list, strlen(list), &err)) die(EXIT_USAGE, "--choices: %s", err.text);
    for (c = q->doc.root->child; c; c = c->next) {
        if (c->kind != JSON_STRING || !c->string.len)
            die(EXIT_USAGE, "--choices: expected a JSON array of strings, found \"%s\"", list);
        q->texts[q->n++] = c->string;
    }
    if (!q->n) die(EXIT_USAGE, "--choices: expected A,B,..., found \"%s\"", list);
}

// "A,B,C", or a JSON array, after the prompt of the command line.
static void score_choices(Scorer *s) {
    const char *list = s->pipeline.options->choices;
    Buffer prompt = {0};
    Question q = {.texts = xalloc(strlen(list) + 1, sizeof *q.texts)};
    if (list[strspn(list, " ")] == '[') read_choices(&q, list);
    for (const char *at = list; !q.doc.root; at++) {
        Str *text = &q.texts[q.n++];
        *text = (Str){at, strcspn(at, ",")};
        if (!text->len) die(EXIT_USAGE, "--choices: expected A,B,..., found \"%s\"", list);
        at += text->len;
        if (!*at) break;
    }
    prompt_read(s->pipeline.options, &prompt);
    enter_sandbox(s->pipeline.options);
    question_encode(s, &q, buffer_str(&prompt));
    uint64_t n_tokens = (uint64_t)q.n_shared - 1;
    for (int i = 0; i < q.n; i++) n_tokens += (uint64_t)(q.choices[i].ids.len - q.n_shared);
    expect_tokens(s, n_tokens);
    answer_questions(s, &q, 1);
    buffer_free(&prompt);
}

// {"id"?, "prompt", "choices": [...]}
static void read_question(Scorer *s, Question *q, const LineReader *l) {
    const Json *root = q->doc.root, *prompt = json_get_string(root, "prompt"),
               *choices = json_get(root, "choices");
    q->id = json_get(root, "id");
    bool is_good = prompt && choices && choices->kind == JSON_ARRAY && choices->n_items &&
                   (!q->id || q->id->kind == JSON_STRING || q->id->kind == JSON_NUMBER);
    for (const Json *c = is_good ? choices->child : NULL; c; c = c->next)
        is_good = is_good && c->kind == JSON_STRING && c->string.len;
    if (!is_good)
        die(EXIT_RUNTIME,
            "%s: line %ld: expected {\"id\", \"prompt\": STRING, \"choices\": [STRING...]}",
            l->path, l->number);
    q->texts = xalloc((size_t)choices->n_items, sizeof *q->texts);
    for (const Json *c = choices->child; c; c = c->next) q->texts[q->n++] = c->string;
    question_encode(s, q, prompt->string);
}

// Questions of -f FILE or stdin, a line each; answers in the same order. A pause in the input ends
// a packing.
static void score_questions(Scorer *s) {
    static LineReader l;
    LineState state = LINE_NONE;
    Question *questions = xalloc((size_t)s->parallel, sizeof *questions);
    lines_open(&l, s->pipeline.options->file, MAX_LINE);
    enter_sandbox(s->pipeline.options);
    expect_tokens(s, 0);
    while (state != LINE_END) {
        int n = 0;
        for (; n < s->parallel; n++) {
            questions[n] = (Question){0};
            state = lines_next_json(&l, &questions[n].doc, n == 0);
            if (state != LINE_READY) break;
            read_question(s, &questions[n], &l);
        }
        answer_questions(s, questions, n);
    }
    free(questions);
}

int command_score(const Options *o) {
    static Scorer s;
    bool is_text = o->perplexity || o->ids;
    if (!!o->perplexity + !!o->ids + !!o->choices + (o->is_jsonl && !is_text) != 1 ||
        (!o->choices && (o->n_args || o->prompt)))
        die(EXIT_USAGE,
            "score: expected one of --choices A,B PROMPT, --jsonl, --perplexity FILE and --ids "
            "LIST");
    if (o->kl && !is_text) die(EXIT_USAGE, "--kl: expected --perplexity or --ids beside it");
    scorer_open(&s, o);
    (is_text ? score_perplexity : o->is_jsonl ? score_questions : score_choices)(&s);
    return EXIT_OK;
}
