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
        for (n = 0; n < n_batch && lines_next_json(&l, &doc, true) == LINE_READY; n++) {
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

// A prompt and its continuations. ids[i] are all tokens of choice i; the first n_shared of them are the prompt.
typedef struct {
    JsonDoc doc; // what id and texts point into, if they come from a file
    const Json *id;
    int n, n_shared;
    Str *texts;       // (n)
    Ids *ids;         // (n)
    Job *jobs;        // (n)
    Session *session; // holds the prompt but for its last token
} Question;

static void question_free(Question *q) {
    for (int i = 0; i < q->n; i++) {
        session_free(q->jobs[i].session);
        free(q->ids[i].data);
    }
    session_free(q->session);
    free(q->texts);
    free(q->ids);
    free(q->jobs);
    json_free(&q->doc);
}

// Encodes. On a template the answer begins a turn of its own; in plain text prompt and choice are encoded together,
// and where their tokens merge across the boundary, all choices are scored from the last token that all have.
static void question_encode(Scorer *s, Question *q, Str prompt) {
    Ids alone = {0};
    q->ids = xalloc((size_t)q->n, sizeof *q->ids);
    q->jobs = xalloc((size_t)q->n, sizeof *q->jobs);
    q->session = session_new(&s->engine.model);
    prompt_encode(&s->engine, prompt, s->engine.options->is_raw, &alone);
    q->n_shared = alone.len;
    for (int i = 0; i < q->n; i++) {
        Ids *ids = &q->ids[i];
        if (s->engine.tpl != TEMPLATE_NONE && !s->engine.options->is_raw) {
            for (int k = 0; k < alone.len; k++) ids_push(ids, alone.data[k]);
            tokenizer_encode(s->engine.tokenizer, q->texts[i].data, q->texts[i].len, ids);
            continue;
        }
        Buffer joint = {0};
        buffer_append(&joint, prompt.data, prompt.len);
        buffer_append(&joint, q->texts[i].data, q->texts[i].len);
        prompt_encode(&s->engine, (Str){joint.data, joint.len}, true, ids);
        int k = 0;
        while (k < q->n_shared && k < ids->len - 1 && ids->data[k] == alone.data[k]) k++;
        q->n_shared = k;
        buffer_free(&joint);
    }
    free(alone.data);
    if (q->n_shared < 1) die(EXIT_USAGE, "score: expected a prompt of at least one token before the choices");
}

static void question_print(const Scorer *s, const Question *q) {
    Buffer out = {0};
    bool is_json = s->engine.options->is_json || s->engine.options->is_jsonl;
    const Json *id = q->id;
    int best = 0;
    for (int i = 1; i < q->n; i++)
        if (q->jobs[i].logprob > q->jobs[best].logprob) best = i;
    if (is_json) buffer_puts(&out, "{");
    if (id && id->kind == JSON_STRING) json_put_string(&out, "\"id\":", id->string);
    if (id && id->kind == JSON_NUMBER) json_put_number(&out, "\"id\":", id->number);
    if (is_json) buffer_puts(&out, id ? ",\"choices\":[" : "\"choices\":[");
    for (int i = 0; i < q->n; i++) {
        int n_tokens = q->ids[i].len - q->n_shared;
        if (is_json) {
            json_put_string(&out, i ? ",{\"text\":" : "{\"text\":", q->texts[i]);
            json_put_number(&out, ",\"logprob\":", q->jobs[i].logprob);
            buffer_printf(&out, ",\"n_tokens\":%d}", n_tokens);
        } else {
            buffer_printf(&out, "%12.6f %5d  ", q->jobs[i].logprob, n_tokens);
            buffer_append(&out, q->texts[i].data, q->texts[i].len);
            buffer_puts(&out, i == best ? "  *\n" : "\n");
        }
    }
    if (is_json) {
        json_put_string(&out, "],\"best\":", q->texts[best]);
        buffer_puts(&out, "}\n");
    }
    text_write(out.data, out.len);
    buffer_free(&out);
}

// The prompts of all questions in one packing, but for their last token; then all choices, as forks of them.
static void answer_questions(Scorer *s, Question *questions, int n) {
    int n_jobs = 0, at = 0;
    for (int i = 0; i < n; i++) n_jobs += questions[i].n;
    Job *jobs = xalloc((size_t)(n + n_jobs), sizeof *jobs);
    for (int i = 0; i < n; i++) {
        Question *q = &questions[i];
        jobs[i] = (Job){.session = q->session, .tokens = q->ids[0].data, .n = q->n_shared, .first = q->n_shared};
    }
    run_jobs(s, jobs, n);
    for (Question *q = questions; q < questions + n; q++)
        for (int k = 0, fed = q->n_shared - 1; k < q->n; k++, at++) {
            jobs[at] = (Job){.session = session_fork(q->session, fed),
                             .tokens = q->ids[k].data + fed,
                             .n = q->ids[k].len - fed,
                             .first = 1};
            if (!jobs[at].session) die(EXIT_RUNTIME, "out of memory: KV cache of %d choices", q->n);
        }
    run_jobs(s, jobs, n_jobs);
    at = 0;
    for (Question *q = questions; q < questions + n; q++) {
        memcpy(q->jobs, jobs + at, (size_t)q->n * sizeof *jobs);
        at += q->n;
        question_print(s, q);
        question_free(q);
    }
    free(jobs);
}

// "A,B,C" after the prompt of the command line.
static void score_choices(Scorer *s) {
    const char *list = s->engine.options->choices;
    Buffer prompt = {0};
    Question q = {.texts = xalloc(strlen(list) + 1, sizeof *q.texts)};
    for (const char *at = list;; at++) {
        Str *text = &q.texts[q.n++];
        *text = (Str){at, strcspn(at, ",")};
        if (!text->len) die(EXIT_USAGE, "--choices: expected A,B,..., found \"%s\"", list);
        at += text->len;
        if (!*at) break;
    }
    prompt_read(s->engine.options, &prompt);
    question_encode(s, &q, (Str){prompt.data, prompt.len});
    answer_questions(s, &q, 1);
    buffer_free(&prompt);
}

// {"id"?, "prompt", "choices": [...]}
static void read_question(Scorer *s, Question *q, const LineReader *l) {
    const Json *root = q->doc.root, *prompt = json_get_string(root, "prompt"), *choices = json_get(root, "choices");
    q->id = json_get(root, "id");
    bool is_good = prompt && choices && choices->kind == JSON_ARRAY && choices->n_items &&
                   (!q->id || q->id->kind == JSON_STRING || q->id->kind == JSON_NUMBER);
    for (const Json *c = is_good ? choices->child : NULL; c; c = c->next)
        is_good = is_good && c->kind == JSON_STRING && c->string.len;
    if (!is_good)
        die(EXIT_RUNTIME, "%s: line %ld: expected {\"id\", \"prompt\": STRING, \"choices\": [STRING...]}", l->path,
            l->number);
    q->texts = xalloc((size_t)choices->n_items, sizeof *q->texts);
    for (const Json *c = choices->child; c; c = c->next) q->texts[q->n++] = c->string;
    question_encode(s, q, prompt->string);
}

// Questions of -f FILE or stdin, a line each; answers in the same order. A pause in the input ends a packing.
static void score_questions(Scorer *s) {
    LineReader l;
    LineState state = LINE_NONE;
    Question *questions = xalloc((size_t)s->parallel, sizeof *questions);
    lines_open(&l, s->engine.options->file, MAX_LINE);
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
