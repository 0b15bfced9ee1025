// run: completes one prompt. This is the simplest command. command_run() reads as the story of a
// prompt:
//
//     text -> prompt_encode() -> token ids -> request_from_options() -> Request
//          -> generate_step(), once per forward pass -> text, as soon as it is final
//
// All errors end the program with one line on stderr; nothing is printed on stdout before the
// request is known to fit. docs/walkthrough.md follows the same prompt through the model.
#include "cli/commands/commands.h"
#include "base/signals.h"
#include "cli/completion.h"
#include "cli/open_answer.h"
#include "cli/open_generator.h"
#include "cli/output.h"
#include "cli/privileges.h"
#include "cli/prompt.h"
#include "cli/report.h"
#include "cli/request.h"
#include "cli/sampling.h"

enum { MAX_COMPLETIONS = 64 }; // -N

// Writes a completion as members of a JSON object: its text and how it ended, tool calls, counts,
// times and, if requested, the log-probabilities of its tokens.
static void write_completion(JsonWriter *w, const Generator *g, const Sequence *s, const Reply *r) {
    completion_write(w, "text", r, s, s->request.n_prompt);
    json_write_format(w, "prefill_sec", "%.6f", s->prefill_sec);
    json_write_format(w, "decode_sec", "%.6f", s->decode_sec);
    if (s->request.n_logprobs)
        completion_write_logprobs(w, "logprobs", g->tokenizer, s->logprobs, s->n_generated,
                                  s->request.n_logprobs, false);
}

// One completion is the object itself; several are items of "choices". The draft tokens are those
// of all.
static void print_json(const Generator *g, const Sequence *s, const Reply *replies, int n) {
    Buffer out = {0};
    JsonWriter w = json_object(&out);
    if (n == 1) {
        write_completion(&w, g, s, replies);
    } else {
        json_begin_array(&w, "choices");
        for (int i = 0; i < n; i++) {
            json_begin_object(&w, NULL);
            write_completion(&w, g, &s[i], &replies[i]);
            json_end_object(&w);
        }
        json_end_array(&w);
    }

    json_write_int(&w, "n_drafted", (int64_t)g->n_drafted);
    json_write_int(&w, "n_accepted", (int64_t)g->n_accepted);
    text_print_json(&w);
}

// Prints texts that were not streamed, each after a note and, with --echo, the prompt.
static void print_completions(const Options *o, Str prompt, const Sequence *s, int n) {
    for (int i = 0; i < n; i++) {
        Str text = buffer_str(&s[i].text);
        note(o, "completion %d, seed %lld:", i + 1, (long long)s[i].request.sample.seed);
        if (o->has_echo) text_write(prompt.data, prompt.len);
        text_write(text.data, text.len);
        if (!str_ends_with(text, "\n")) text_write("\n", 1);
    }
}

// Request.emit.
static bool emit_text(void *arg, const char *text, size_t n) {
    (void)arg;
    text_write(text, n);
    return true;
}

// Generates n completions with consecutive seeds as one batch. The prompt is prefilled once, in the
// session of the first; the others fork it.
static void generate_n(const Pipeline *p, Generator *g, const AnswerState *answer, Request *r,
                       Sequence *s, int n) {
    Sequence *batch[MAX_COMPLETIONS] = {s};
    prefill_with_progress(p->options, g, s, r, session_new(&p->model.kv));

    int n_shared = s->session->n_tokens; // fewer than the prompt after an interrupt
    if (n_shared >= r->n_prompt) n_shared = r->n_prompt - 1;
    for (int i = 1; i < n; i++) {
        Session *session = session_fork(s->session, n_shared);
        if (!session) die(EXIT_RUNTIME, "out of memory for %d completions; use a smaller -N", n);
        r->sample.seed++;
        if (answer) answer_clone(answer, r);
        batch[i] = &s[i];
        sequence_start(batch[i], g, r, session);
    }

    while (generate_step(g, batch, n)) {
    }
}

int command_run(const Options *given) {
    static Options options;
    static Pipeline p;
    static Buffer prompt;
    static Ids ids;
    static Generator g;
    static Sequence completions[MAX_COMPLETIONS], *s = completions;
    static Reply replies[MAX_COMPLETIONS];
    AnswerState *answer;
    Request request;
    Error err;
    const Options *o = &options;

    options = *given;
    if (o->logprobs && !o->is_json) die(EXIT_USAGE, "--logprobs: needs --json");

    // The prompt, and the model that completes it. The weights are mapped, not read: they are paged
    // in from disk by the first forward pass.
    prompt_read(o, &prompt);
    pipeline_open(&p, o);
    prompt_check(o, &prompt);
    template_warn_missing(o, &p.tpl);
    sampling_complete(&options, &p);

    // Text becomes tokens, tokens and options become a request. Without a token limit the KV cache
    // may grow to the whole context, so the memory for that must be available.
    if (!text_may_fit(&p, content_strip(buffer_str(&prompt)).len, &err) ||
        !prompt_encode(&p, o, buffer_str(&prompt), o->is_raw, &ids, &err) ||
        !request_from_options(&p, o, &ids, o->is_raw, &request, &err) ||
        (o->answer && !request_begin_answer(&p, str_of(o->answer), &ids, &request, &err)) ||
        !kv_memory_check(&p.model,
                         (size_t)(request.max_tokens >= 0 ? ids.len : request.max_context), &err) ||
        !answer_open(&p, o, &(ConstraintSpec){0}, p.tpl.has_reasoning && !o->is_raw,
                     &(ToolOffer){.tools = p.tools}, &request, &answer, NULL, &err))
        die_error(&err);

    // A single text is printed while it is generated. From here on no file is opened, so the
    // process gives up the rights to do so. An interrupt stops the generation, not the program:
    // what has been generated is still reported.
    int n = o->n_choices ? o->n_choices : 1;
    int chunk = ids.len < GENERATE_CHUNK ? ids.len : GENERATE_CHUNK;
    request.emit = o->is_json || n > 1 ? NULL : emit_text;
    generator_open(&p, &g, o->chunk ? o->chunk : chunk, n);

    if (!o->model) note(o, "the built-in story model answers; -m FILE.gguf opens another");
    if (o->has_echo && !o->is_json && n == 1) text_write(prompt.data, prompt.len);
    close_file_access(o);
    signals_defer(SIGINT);
    generate_n(&p, &g, answer, &request, completions, n);

    int n_reasoning = 0, n_answer = 0, n_loops = 0, n_incomplete = 0;
    for (int i = 0; i < n; i++) {
        // Errors during generation: memory, or logits that are not finite.
        if (completions[i].finish == FINISH_ERROR) die_error(&completions[i].error);

        const Template *tpl = o->is_raw ? NULL : &p.tpl;
        completion_parse(&replies[i], tpl, p.tokenizer, &completions[i],
                         (ToolOffer){.tools = p.tools}, 0);
        n_reasoning += replies[i].n_reasoning;
        n_answer += replies[i].n_answer;
        n_loops += completions[i].finish == FINISH_LOOP;
        n_incomplete += completion_is_incomplete(&completions[i]);
    }

    if (o->is_json)
        print_json(&g, completions, replies, n);
    else if (n > 1)
        print_completions(o, buffer_str(&prompt), completions, n);
    else if (!str_ends_with(buffer_str(&s->text), "\n"))
        text_write("\n", 1);

    if (n == 1) note_ending(o, &g, s);
    warn_loops(n_loops, "text");
    note_stats(o, &g, n_reasoning, n_answer, o->sample.seed);
    for (int i = 0; i < n; i++)
        if (completions[i].finish == FINISH_CANCEL) return EXIT_INTERRUPTED;

    // The warning is printed even with -q: no script may take an incomplete text for an answer.
    if (!n_incomplete) return EXIT_OK;

    warn("%s incomplete: cut by -n, the context or --stop before the constraint was satisfied",
         count_of(n_incomplete, "text"));
    return EXIT_INCOMPLETE;
}
