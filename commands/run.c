// run: one prompt, one text.
#include "commands.h"
#include "../base/signals.h"
#include "../cli/constraint_options.h"
#include "../cli/completion.h"
#include "../cli/generator.h"
#include "../cli/prompt.h"
#include "../cli/report.h"
#include "../cli/request.h"
#include "../cli/output.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ANSWERS = 64 };

static void write_completion(JsonWriter *w, const Pipeline *p, const Sequence *s) {
    Reply r;
    completion_parse(&r, p->options->is_raw ? NULL : &p->tpl, p->tokenizer, s, p->tools.data, 0);
    json_begin_object(w, NULL);
    completion_write(w, "text", &r, s, s->request.n_prompt);
    json_write_format(w, "prefill_sec", "%.6f", s->prefill_sec);
    json_write_format(w, "decode_sec", "%.6f", s->decode_sec);
    if (s->request.n_logprobs)
        completion_write_logprobs(w, "logprobs", p->tokenizer, s, s->request.n_logprobs, false);
    json_end_object(w);
    reply_free(&r);
}

static void print_json(const Pipeline *p, const Sequence *s, int n) {
    Buffer out = {0};
    JsonWriter w = {.out = &out};
    if (n == 1) {
        write_completion(&w, p, s);
    } else {
        json_begin_object(&w, NULL);
        json_begin_array(&w, "choices");
        for (int i = 0; i < n; i++) write_completion(&w, p, &s[i]);
        json_end_array(&w);
        json_end_object(&w);
    }
    buffer_puts(&out, "\n");
    text_print(&out);
}

// n answers to one prompt: the first reads it, the others go on from there, each with the next
// seed. They are printed when all are there.
static void run_choices(const Pipeline *e, Generator *g, ConstraintState *constraint, Request *r,
                        Sequence *s, int n) {
    Sequence *all[MAX_ANSWERS];
    prefill_with_progress(e->options, g, all[0] = s, r, session_new(&e->model.kv));
    int n_shared = s->session->n_tokens < r->n_prompt ? s->session->n_tokens : r->n_prompt - 1;
    for (int i = 1; i < n; i++) {
        Session *session = session_fork(s->session, n_shared); // fewer after an interrupt
        if (!session) die(EXIT_RUNTIME, "out of memory: %d answers", n);
        r->sample.seed++;
        if (constraint) constraint_attach(constraint_clone(constraint), r);
        sequence_start(all[i] = &s[i], g, r, session);
    }
    while (generate_step(g, all, n)) {
    }
}

static void print_choices(const Options *o, const Sequence *s, int n) {
    for (int i = 0; i < n; i++) {
        note(o, "answer %d, seed %lld:", i + 1, (long long)s[i].request.sample.seed);
        text_write(s[i].text.data, s[i].text.len);
        if (s[i].text.len == 0 || s[i].text.data[s[i].text.len - 1] != '\n') text_write("\n", 1);
        stdout_flush();
    }
}

int command_run(const Options *o) {
    static Pipeline e;
    static Buffer prompt;
    static Ids ids;
    static Generator g;
    static Sequence answers[MAX_ANSWERS], *s = answers;
    ConstraintState *constraint;
    Request request;
    Error err;
    if (o->logprobs && !o->is_json) die(EXIT_USAGE, "--logprobs: expected --json beside it");
    prompt_read(o, &prompt);
    pipeline_open(&e, o);
    if (!constraint_from_options(e.constraints, o, &constraint, &err)) die_error(&err);
    if (!prompt_encode(&e, buffer_str(&prompt), o->is_raw, &ids, &err) ||
        !request_from_options(&e, o, &ids, o->is_raw, &request, &err))
        die_error(&err);
    kv_memory_check(&e.model, (size_t)(request.max_tokens >= 0 ? ids.len : request.max_context));
    if (constraint) constraint_attach(constraint, &request);
    int n = o->n_choices ? o->n_choices : 1,
        chunk = ids.len < GENERATE_CHUNK ? ids.len : GENERATE_CHUNK;
    request.emit = o->is_json || n > 1 ? NULL : text_emit;
    generator_open(&e, &g, o->chunk ? o->chunk : chunk, n);
    if (o->has_echo && !o->is_json) text_write(prompt.data, prompt.len);
    enter_sandbox(o);
    signals_defer();
    if (n > 1)
        run_choices(&e, &g, constraint, &request, answers, n);
    else
        generate_with_progress(o, &g, s, &request, session_new(&e.model.kv));
    for (int i = 0; i < n; i++)
        if (answers[i].finish == FINISH_ERROR) die_error(&answers[i].error);
    if (o->is_json)
        print_json(&e, answers, n);
    else if (n > 1)
        print_choices(o, answers, n);
    else if (s->text.len == 0 || s->text.data[s->text.len - 1] != '\n')
        text_write("\n", 1);
    if (n == 1) note_ending(o, &g, s);
    if (constraint && n == 1 && s->finish == FINISH_LENGTH)
        note(o, "the text is not complete: it would go on by its constraint");
    note_stats(o, &g, o->sample.seed);
    return s->finish == FINISH_CANCEL ? EXIT_INTERRUPTED : EXIT_OK;
}
