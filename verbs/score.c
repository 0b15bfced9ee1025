// score: how likely texts are. Everything is a Job: tokens fed to a session, and the log-probabilities of some of them
// summed. Windows of a text, texts of a file, and the choices after a prompt are packed into the same forward passes.
#include "verbs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LOGITS_BYTES = 128 << 20,
    DEFAULT_WINDOW = 512, // as llama-perplexity
    DEFAULT_CHUNK = 512,
    DEFAULT_PARALLEL = 16,
    MAX_LINE = 4 << 20
};

// tokens[0, n - 1) are fed; those from `first` on are scored, each by the logits of the one before it.
typedef struct {
    Session *session; // may hold a beginning already
    const int *tokens;
    int n, first, n_fed;
    double logprob;
} Job;

typedef struct {
    Engine engine;
    Workspace *workspace;
    Step *steps;  // (max_steps)
    Job **owners; // (max_steps) of the steps that want logits
    int *targets; // (max_steps) the token that those predict
    int max_steps, max_logits, parallel;
    double start;
} Scorer;

// Takes as many steps of a job as fit; those that want logits enter owners and targets.
static int add_steps(Scorer *s, Job *job, int n_steps, int *n_wanted) {
    Error err;
    int n = 0, pos = job->session->n_tokens;
    while (job->n_fed < job->n - 1 && n_steps + n < s->max_steps) {
        bool is_wanted = job->n_fed + 1 >= job->first;
        if (is_wanted && *n_wanted == s->max_logits) break;
        if (is_wanted) {
            s->owners[*n_wanted] = job;
            s->targets[(*n_wanted)++] = job->tokens[job->n_fed + 1];
        }
        s->steps[n_steps + n] = (Step){job->session, job->tokens[job->n_fed++], pos + n, is_wanted};
        n++;
    }
    if (n && !session_reserve(job->session, pos + n, &err)) die_error(&err);
    return n;
}

// Runs all jobs to their end. The sum of a job has the same order whatever it is packed with.
static void run_jobs(Scorer *s, Job *jobs, int n) {
    int n_vocab = s->engine.model.config.vocab_size;
    for (int first = 0; first < n;) {
        int n_steps = 0, n_wanted = 0;
        for (int i = first; i < n && i < first + s->parallel; i++)
            n_steps += add_steps(s, &jobs[i], n_steps, &n_wanted);
        if (n_steps) {
            const float *logits = model_forward(&s->engine.model, s->workspace, s->steps, n_steps);
            for (int i = 0; i < n_wanted; i++) {
                float logprob = logits_logprob(logits + (size_t)i * (size_t)n_vocab, n_vocab, s->targets[i]);
                if (!(logprob - logprob == 0)) die(EXIT_RUNTIME, "the logits hold NaN or infinity");
                s->owners[i]->logprob += (double)logprob;
            }
        }
        if (generate_interrupted) exit(EXIT_INTERRUPTED);
        while (first < n && jobs[first].n_fed >= jobs[first].n - 1) first++;
    }
}

static void scorer_open(Scorer *s, const Options *o) {
    *s = (Scorer){.start = now_sec()};
    engine_open(&s->engine, o);
    int most = LOGITS_BYTES / (4 * s->engine.model.config.vocab_size);
    s->max_steps = o->chunk ? o->chunk : DEFAULT_CHUNK;
    s->max_logits = most < 1 ? 1 : most < s->max_steps ? most : s->max_steps;
    s->parallel = o->parallel ? o->parallel : DEFAULT_PARALLEL;
    s->workspace = workspace_new(&s->engine.model, s->max_steps, s->max_logits);
    s->steps = xalloc((size_t)s->max_steps, sizeof *s->steps);
    s->owners = xalloc((size_t)s->max_steps, sizeof *s->owners);
    s->targets = xalloc((size_t)s->max_steps, sizeof *s->targets);
}

static void scorer_close(Scorer *s) {
    workspace_free(s->workspace);
    free(s->steps);
    free(s->owners);
    free(s->targets);
    engine_close(&s->engine);
}

static void print_stats(const Scorer *s, uint64_t n_tokens) {
    double sec = now_sec() - s->start;
    if (!s->engine.options->is_quiet)
        fprintf(stderr, "%llu tok %.1f tok/s\n", (unsigned long long)n_tokens, (double)n_tokens / sec);
}

// Perplexity

typedef struct {
    double nll; // nats
    uint64_t n_tokens, n_bytes, n_fed;
    int n_ctx;
} Perplexity;

// Runs jobs and adds up what they say.
static void count_jobs(Scorer *s, Perplexity *p, Job *jobs, int n) {
    run_jobs(s, jobs, n);
    for (Job *job = jobs; job < jobs + n; job++) {
        p->nll -= job->logprob;
        p->n_fed += (uint64_t)job->n;
        for (int i = job->first; i < job->n; i++, p->n_tokens++)
            p->n_bytes += tokenizer_piece(s->engine.tokenizer, job->tokens[i], false).len;
        session_free(job->session);
    }
}

// As llama.cpp counts: BOS and the text are cut into windows of n_ctx tokens, the first token of each is replaced by
// BOS, the first half of each is context only, and what does not fill a window is left out.
static void score_windows(Scorer *s, Perplexity *p, Str text) {
    Ids ids = {0};
    bool adds_bos = tokenizer_adds_bos(s->engine.tokenizer);
    if (adds_bos) ids_push(&ids, tokenizer_bos(s->engine.tokenizer));
    tokenizer_encode(s->engine.tokenizer, text.data, text.len, &ids);
    int n_windows = ids.len / p->n_ctx;
    if (!n_windows)
        die(EXIT_USAGE,
            "--perplexity: expected at least one window of %d tokens, found %d (a smaller -c, or a .jsonl of "
            "{\"text\"} for short texts)",
            p->n_ctx, ids.len);
    Job *jobs = xalloc((size_t)s->parallel, sizeof *jobs);
    for (int first = 0; first < n_windows; first += s->parallel) {
        int n = n_windows - first < s->parallel ? n_windows - first : s->parallel;
        for (int i = 0; i < n; i++) {
            int *tokens = ids.data + (size_t)(first + i) * (size_t)p->n_ctx;
            if (adds_bos) tokens[0] = tokenizer_bos(s->engine.tokenizer);
            jobs[i] = (Job){
                .session = session_new(&s->engine.model), .tokens = tokens, .n = p->n_ctx, .first = p->n_ctx / 2 + 1};
        }
        count_jobs(s, p, jobs, n);
    }
    free(jobs);
    free(ids.data);
}

// Texts of JSON lines {"text": ...}; every token after BOS counts.
static void score_texts(Scorer *s, Perplexity *p, const char *path) {
    LineReader l;
    JsonDoc doc = {0};
    int n_batch = 4 * s->parallel, n;
    Ids *ids = xalloc((size_t)n_batch, sizeof *ids);
    Job *jobs = xalloc((size_t)n_batch, sizeof *jobs);
    lines_open(&l, path, MAX_LINE);
    do {
        for (n = 0; n < n_batch && lines_next_json(&l, &doc); n++) {
            const Json *text = json_get_string(doc.root, "text");
            if (!text) die(EXIT_RUNTIME, "%s: line %ld: expected {\"text\": STRING}", l.path, l.number);
            ids[n].len = 0;
            if (tokenizer_adds_bos(s->engine.tokenizer)) ids_push(&ids[n], tokenizer_bos(s->engine.tokenizer));
            tokenizer_encode(s->engine.tokenizer, text->string.data, text->string.len, &ids[n]);
            if (ids[n].len > p->n_ctx)
                die(EXIT_CONTEXT, "%s: line %ld does not fit the context: %d tokens, context %d", l.path, l.number,
                    ids[n].len, p->n_ctx);
            jobs[n] =
                (Job){.session = session_new(&s->engine.model), .tokens = ids[n].data, .n = ids[n].len, .first = 1};
        }
        count_jobs(s, p, jobs, n);
    } while (n == n_batch);
    for (int i = 0; i < n_batch; i++) free(ids[i].data);
    free(ids);
    free(jobs);
    json_free(&doc);
    lines_close(&l);
}

static void score_perplexity(Scorer *s) {
    const Options *o = s->engine.options;
    Buffer text = {0}, out = {0};
    Error err;
    Perplexity p = {0};
    bool is_texts = str_ends_with(str_of(o->perplexity), ".jsonl") || o->is_jsonl;
    int most = s->engine.model.config.max_context;
    p.n_ctx = o->ctx ? o->ctx : is_texts || most < DEFAULT_WINDOW ? most : DEFAULT_WINDOW;
    if (p.n_ctx < 4) die(EXIT_USAGE, "-c: expected at least 4, found %d", p.n_ctx);
    if (is_texts) {
        score_texts(s, &p, o->perplexity);
    } else {
        if (!file_read(o->perplexity, &text, &err)) die_error(&err);
        score_windows(s, &p, (Str){text.data, text.len});
    }
    if (!p.n_tokens) die(EXIT_RUNTIME, "%s: nothing to score", o->perplexity);
    double perplexity = exp(p.nll / (double)p.n_tokens);
    if (o->is_json) {
        json_put_number(&out, "{\"perplexity\":", perplexity);
        json_put_number(&out, ",\"nll\":", p.nll);
        buffer_printf(&out, ",\"n_tokens\":%llu,\"n_bytes\":%llu,\"n_ctx\":%d}\n", (unsigned long long)p.n_tokens,
                      (unsigned long long)p.n_bytes, p.n_ctx);
    } else {
        buffer_printf(&out, "perplexity %.4f (%llu tokens, %.4f nats per byte)\n", perplexity,
                      (unsigned long long)p.n_tokens, p.n_bytes ? p.nll / (double)p.n_bytes : 0);
    }
    text_write(out.data, out.len);
    print_stats(s, p.n_fed);
    buffer_free(&text);
    buffer_free(&out);
}

// Choices

// Encodes a prompt with each of n texts after it; returns how many tokens they share. On a template the answer begins a
// turn of its own; in plain text prompt and choice are encoded together, and where their tokens merge across the
// boundary, all choices are scored from the last token that all have.
static int encode_choices(Scorer *s, Str prompt, const Str *texts, Ids *ids, int n) {
    Ids alone = {0};
    prompt_encode(&s->engine, prompt, s->engine.options->is_raw, &alone);
    int n_shared = alone.len;
    for (int i = 0; i < n; i++) {
        if (s->engine.tpl != TEMPLATE_NONE && !s->engine.options->is_raw) {
            for (int k = 0; k < alone.len; k++) ids_push(&ids[i], alone.data[k]);
            tokenizer_encode(s->engine.tokenizer, texts[i].data, texts[i].len, &ids[i]);
            continue;
        }
        Buffer joint = {0};
        buffer_append(&joint, prompt.data, prompt.len);
        buffer_append(&joint, texts[i].data, texts[i].len);
        prompt_encode(&s->engine, (Str){joint.data, joint.len}, true, &ids[i]);
        int k = 0;
        while (k < n_shared && k < ids[i].len - 1 && ids[i].data[k] == alone.data[k]) k++;
        n_shared = k;
        buffer_free(&joint);
    }
    free(alone.data);
    if (n_shared < 1) die(EXIT_USAGE, "score: expected a prompt of at least one token before the choices");
    return n_shared;
}

static void print_answer(const Scorer *s, const Json *id, const Str *texts, const Ids *ids, const Job *jobs, int n,
                         int n_shared) {
    Buffer out = {0};
    bool is_json = s->engine.options->is_json || s->engine.options->is_jsonl;
    int best = 0;
    for (int i = 1; i < n; i++)
        if (jobs[i].logprob > jobs[best].logprob) best = i;
    if (is_json) buffer_puts(&out, "{");
    if (id && id->kind == JSON_STRING) json_put_string(&out, "\"id\":", id->string);
    if (id && id->kind == JSON_NUMBER) json_put_number(&out, "\"id\":", id->number);
    if (is_json) buffer_puts(&out, id ? ",\"choices\":[" : "\"choices\":[");
    for (int i = 0; i < n; i++) {
        int n_tokens = ids[i].len - n_shared;
        if (is_json) {
            json_put_string(&out, i ? ",{\"text\":" : "{\"text\":", texts[i]);
            json_put_number(&out, ",\"logprob\":", jobs[i].logprob);
            buffer_printf(&out, ",\"n_tokens\":%d}", n_tokens);
        } else {
            buffer_printf(&out, "%12.6f %5d  ", jobs[i].logprob, n_tokens);
            buffer_append(&out, texts[i].data, texts[i].len);
            buffer_puts(&out, i == best ? "  *\n" : "\n");
        }
    }
    if (is_json) {
        json_put_string(&out, "],\"best\":", texts[best]);
        buffer_puts(&out, "}\n");
    }
    text_write(out.data, out.len);
    buffer_free(&out);
}

// The prompt but for its last token once, then all choices together, as forks of it.
static void answer_question(Scorer *s, const Json *id, Str prompt, const Str *texts, int n) {
    Ids *ids = xalloc((size_t)n, sizeof *ids);
    Job *jobs = xalloc((size_t)n, sizeof *jobs);
    Session *session = session_new(&s->engine.model);
    int n_shared = encode_choices(s, prompt, texts, ids, n), fed = n_shared - 1;
    run_jobs(s, &(Job){.session = session, .tokens = ids[0].data, .n = n_shared, .first = n_shared}, 1);
    for (int i = 0; i < n; i++) {
        jobs[i] = (Job){
            .session = session_fork(session, fed), .tokens = ids[i].data + fed, .n = ids[i].len - fed, .first = 1};
        if (!jobs[i].session) die(EXIT_RUNTIME, "out of memory: KV cache of %d choices", n);
    }
    run_jobs(s, jobs, n);
    print_answer(s, id, texts, ids, jobs, n, n_shared);
    for (int i = 0; i < n; i++) {
        session_free(jobs[i].session);
        free(ids[i].data);
    }
    session_free(session);
    free(ids);
    free(jobs);
}

// "A,B,C" after the prompt of the command line.
static void score_choices(Scorer *s) {
    const char *list = s->engine.options->choices;
    Buffer prompt = {0};
    Str *texts = xalloc(strlen(list) + 1, sizeof *texts);
    int n = 0;
    for (const char *at = list;; at++) {
        texts[n] = (Str){at, strcspn(at, ",")};
        if (!texts[n].len) die(EXIT_USAGE, "--choices: expected A,B,..., found \"%s\"", list);
        at += texts[n++].len;
        if (!*at) break;
    }
    prompt_read(s->engine.options, &prompt);
    answer_question(s, NULL, (Str){prompt.data, prompt.len}, texts, n);
    free(texts);
    buffer_free(&prompt);
}

// Lines {"id"?, "prompt", "choices": [...]} of -f FILE or stdin; a line of answer for each.
static void score_questions(Scorer *s) {
    LineReader l;
    JsonDoc doc = {0};
    lines_open(&l, s->engine.options->file, MAX_LINE);
    while (lines_next_json(&l, &doc)) {
        const Json *prompt = json_get_string(doc.root, "prompt"), *choices = json_get(doc.root, "choices"),
                   *id = json_get(doc.root, "id");
        bool is_good = prompt && choices && choices->kind == JSON_ARRAY && choices->n_items &&
                       (!id || id->kind == JSON_STRING || id->kind == JSON_NUMBER);
        for (const Json *c = is_good ? choices->child : NULL; c; c = c->next)
            is_good = is_good && c->kind == JSON_STRING && c->string.len;
        if (!is_good)
            die(EXIT_RUNTIME, "%s: line %ld: expected {\"id\", \"prompt\": STRING, \"choices\": [STRING...]}", l.path,
                l.number);
        Str *texts = xalloc((size_t)choices->n_items, sizeof *texts);
        int n = 0;
        for (const Json *c = choices->child; c; c = c->next) texts[n++] = c->string;
        answer_question(s, id, prompt->string, texts, n);
        free(texts);
    }
    json_free(&doc);
    lines_close(&l);
}

int verb_score(const Options *o) {
    Scorer s;
    if (!o->perplexity && !o->choices && !o->is_jsonl)
        die(EXIT_USAGE, "score: expected --choices A,B PROMPT, --jsonl or --perplexity FILE (llama31 help score)");
    scorer_open(&s, o);
    (o->perplexity ? score_perplexity : o->is_jsonl ? score_questions : score_choices)(&s);
    scorer_close(&s);
    return EXIT_OK;
}
