// score --choices and --jsonl: log-probabilities of continuations of a prompt.
//
// The prompt is prefilled once; each choice is scored in a fork of its session. Prompts of several
// questions, and then all their choices, are packed together.
#include "score.h"
#include "../cli/output.h"
#include "../cli/privileges.h"
#include "../cli/prompt.h"
#include "../cli/request.h"

#include <math.h>

typedef struct {
    JsonDoc doc;    // memory of id and texts, if they were read from JSON
    const Json *id; // NULL: none
    int n;
    Str *texts;         // (n)
    int n_shared;       // tokens that all choices begin with: the prompt, or most of it
    ScoreTask *choices; // (n)
    ScoreTask prompt;   // without the last shared token, which is fed with each choice
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

// Encodes prompt and choices. After a chat template, a choice begins the assistant's turn and is
// encoded alone. In plain text, prompt and choice are encoded together; where tokens merge across
// the boundary, all choices are scored from the first token in which any of them differs from the
// prompt.
static void question_encode(const Pipeline *p, Question *q, Str prompt) {
    bool is_plain = p->tpl.is_none || p->options->is_raw;
    Ids alone = {0};
    Error err;

    q->choices = xalloc((size_t)q->n, sizeof *q->choices);
    if (!prompt_encode(p, p->options, prompt, p->options->is_raw, &alone, &err)) die_error(&err);
    q->n_shared = alone.len;

    for (int i = 0; i < q->n; i++) {
        Ids *ids = &q->choices[i].ids;
        if (is_plain) {
            Buffer joint = {0};
            buffer_put(&joint, prompt);
            buffer_put(&joint, q->texts[i]);
            prompt_encode(p, p->options, buffer_str(&joint), true, ids,
                          &err); // plain text cannot fail
            buffer_free(&joint);

            int k = 0;
            while (k < q->n_shared && k < ids->len - 1 && ids->data[k] == alone.data[k]) k++;
            q->n_shared = k;
        } else {
            for (int k = 0; k < alone.len; k++) ids_push(ids, alone.data[k]);
            tokenizer_encode(p->tokenizer, q->texts[i], false, ids);
        }
    }

    free(alone.data);
    if (q->n_shared < 1) die(EXIT_USAGE, "score: the prompt needs at least one token");
}

// Prints the choices in their order. A table marks the best choice, JSON names it.
static void question_print(const Question *q, bool is_json) {
    Buffer out = {0};
    JsonWriter w = {.out = &out};
    int best = 0;
    double sum = 0; // of the probabilities, relative to the best choice

    for (int i = 1; i < q->n; i++)
        if (q->choices[i].logprob > q->choices[best].logprob) best = i;
    for (int i = 0; i < q->n; i++) sum += exp(q->choices[i].logprob - q->choices[best].logprob);

    if (is_json) {
        json_begin_object(&w, NULL);
        if (q->id && q->id->kind == JSON_STRING) json_write_string(&w, "id", q->id->string);
        if (q->id && q->id->kind == JSON_NUMBER) json_write_number(&w, "id", q->id->number);
        json_begin_array(&w, "choices");
    } else {
        buffer_printf(&out, "%9s %12s %12s %6s\n", "share", "logprob", "per token", "tokens");
    }

    for (int i = 0; i < q->n; i++) {
        int n_tokens = q->choices[i].ids.len - q->n_shared;
        double logprob = q->choices[i].logprob;
        double per_token = n_tokens ? logprob / n_tokens : 0;
        double share = exp(logprob - q->choices[best].logprob) / sum;

        if (is_json) {
            json_begin_object(&w, NULL);
            json_write_string(&w, "text", q->texts[i]);
            json_write_number(&w, "logprob", logprob);
            json_write_number(&w, "probability", exp(logprob));
            json_write_number(&w, "share", share);
            json_write_number(&w, "logprob_per_token", per_token);
            json_write_int(&w, "n_tokens", n_tokens);
            json_end_object(&w);
        } else {
            buffer_printf(&out, "%7.2f %% %12.6f %12.6f %6d  ", 100 * share, logprob, per_token,
                          n_tokens);
            buffer_put(&out, q->texts[i]);
            buffer_puts(&out, i == best ? "  *\n" : "\n");
        }
    }

    if (is_json) {
        json_end_array(&w);
        json_write_string(&w, "best", q->texts[best]);
        text_print_json(&w);
    } else {
        text_print(&out);
    }
}

// Scores questions (n) and frees them.
static void answer_questions(Scorer *s, Question *questions, int n) {
    const Options *o = s->pipeline.options;
    const Model *m = &s->pipeline.model;
    int max_tasks = n;
    for (int i = 0; i < n; i++) max_tasks += questions[i].n;
    ScoreTask **tasks = xalloc((size_t)max_tasks, sizeof *tasks);

    // Prompts that are prefilled together have the bits of single prompts only if the model is
    // batch-invariant.
    PrefixCache *cache = n == 1 || m->is_batch_invariant ? s->cache : NULL;

    // The tokens that all choices of a question share are computed once.
    int n_tasks = 0;
    for (Question *q = questions; q < questions + n; q++) {
        Ids prompt = {q->choices->ids.data, q->n_shared, 0};
        ScoreTask *task = &q->prompt;
        *task =
            (ScoreTask){.session = session_new(&m->kv), .ids = prompt, .first_scored = q->n_shared};
        if (cache) task->n_from_cache = cache_load(cache, task->session, prompt.data, prompt.len);
        task->n_fed = task->n_from_cache;
        if (s->n_total) s->n_total -= (uint64_t)task->n_from_cache;
        tasks[n_tasks++] = task;
    }
    score_run(s, tasks, n_tasks);

    // Each choice continues a fork of that session. The last shared token is fed again, because its
    // logits score the first token of the choice.
    n_tasks = 0;
    for (Question *q = questions; q < questions + n; q++) {
        if (cache) cache_store(cache, q->prompt.session, 0);

        for (ScoreTask *task = q->choices; task < q->choices + q->n; task++) {
            task->session = session_fork(q->prompt.session, q->n_shared - 1);
            if (!task->session) die(EXIT_RUNTIME, "out of memory: KV caches of %d choices", q->n);
            task->n_fed = q->n_shared - 1;
            task->first_scored = q->n_shared;
            tasks[n_tasks++] = task;
        }
    }
    score_run(s, tasks, n_tasks);

    for (Question *q = questions; q < questions + n; q++) {
        question_print(q, o->is_json || o->is_jsonl);
        question_free(q);
    }
    free(tasks);
}

// Sets the texts from a JSON array. False unless it has items, all of them non-empty strings.
static bool texts_from_json(Question *q, const Json *array) {
    if (!array || array->kind != JSON_ARRAY) return false;
    q->texts = xalloc((size_t)array->n_items, sizeof *q->texts);
    for (const Json *item = array->child; item; item = item->next) {
        if (item->kind != JSON_STRING || !item->string.len) return false;
        q->texts[q->n++] = item->string;
    }
    return q->n;
}

// Sets the texts from "A,B,..." or, for texts with commas, from a JSON array.
static void parse_choices(Question *q, const char *list) {
    Error err;
    bool ok = true;
    if (list[strspn(list, " ")] == '[') {
        if (!json_parse(&q->doc, list, strlen(list), &err))
            die(EXIT_USAGE, "--choices: %s", err.text);
        ok = texts_from_json(q, q->doc.root);
    } else {
        q->texts = list_split(list, &q->n);
        for (int i = 0; i < q->n; i++) ok = ok && q->texts[i].len;
    }
    if (!ok)
        die(EXIT_USAGE, "--choices: expected A,B,... or a JSON array of strings, found \"%s\"",
            list);
}

void score_choices(Scorer *s) {
    const Options *o = s->pipeline.options;
    Buffer prompt = {0};
    Question q = {0};
    parse_choices(&q, o->choices);
    prompt_read(o, &prompt);
    close_file_access(o);
    question_encode(&s->pipeline, &q, buffer_str(&prompt));
    uint64_t n_tokens = (uint64_t)q.n_shared - 1;
    for (int i = 0; i < q.n; i++) n_tokens += (uint64_t)(q.choices[i].ids.len - q.n_shared);
    score_expect(s, n_tokens);
    answer_questions(s, &q, 1);
    buffer_free(&prompt);
}

// Encodes the question of q->doc: {"id"?, "prompt", "choices": [...]}.
static void read_question(const Scorer *s, Question *q, const LineReader *l) {
    const Json *root = q->doc.root, *prompt = json_get_string(root, "prompt");
    q->id = json_get(root, "id");
    bool has_valid_id = !q->id || q->id->kind == JSON_STRING || q->id->kind == JSON_NUMBER;
    if (!prompt || !has_valid_id || !texts_from_json(q, json_get(root, "choices")))
        die(EXIT_RUNTIME,
            "%s: line %ld: expected {\"id\", \"prompt\": STRING, \"choices\": [STRING...]}",
            l->path, l->number);
    question_encode(&s->pipeline, q, prompt->string);
}

// Answers questions from -f FILE or stdin, one per line. Up to `parallel` lines that are available
// are answered together; only the first line is waited for.
void score_questions(Scorer *s) {
    static LineReader l;
    LineState state = LINE_NONE;
    Question *questions = xalloc((size_t)s->parallel, sizeof *questions);

    lines_open(&l, s->pipeline.options->file, SCORE_MAX_LINE);
    close_file_access(s->pipeline.options);
    score_expect(s, 0);

    while (state != LINE_END) {
        // Take up to `parallel` lines, and wait only for the first.
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
