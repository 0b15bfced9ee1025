// run: completes one prompt. This is the simplest command. command_run() reads as the story of a
// prompt:
//
//     text -> prompt_encode() -> token ids -> request_from_settings() -> Request
//          -> generate_step(), once per forward pass -> text, as soon as it is final
//
// All errors end the program with one line on stderr; nothing is printed on stdout before the
// request is known to fit. docs/walkthrough.md follows the same prompt through the model.
#include "cli/commands/commands.h"
#include "base/signals.h"
#include "cli/answer_view.h"
#include "cli/completion.h"
#include "cli/open_answer.h"
#include "cli/open_generator.h"
#include "cli/output.h"
#include "cli/privileges.h"
#include "cli/prompt.h"
#include "cli/report.h"
#include "cli/request.h"

enum { MAX_COMPLETIONS = 64 }; // -N

// Writes a completion as members of a JSON object: its text and how it ended, tool calls, counts,
// times and, if requested, the log-probabilities of its tokens.
static void write_completion(JsonWriter *w, const Generator *g, const Sequence *s, const Reply *r) {
    Error err;
    completion_write(w, "text", r, s, s->request.n_prompt);
    if (!completion_check(s, &err)) json_write_string(w, "note", str_of(err.text));
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

// Prints a text that was not streamed, after its reasoning and, with --echo, the prompt. stdout is
// written in one piece, which other processes that write to the same file do not interrupt.
static void print_text(const Pipeline *p, Str prompt, const Sequence *s) {
    AnswerView view = {.options = p->options};
    Buffer text = {0};
    bool is_raw = view_is_raw(p->options);
    Str reasoning = is_raw ? (Str){"", 0} : sequence_part(s, PART_REASONING);

    view_put(&view, reasoning, PART_REASONING);
    if (reasoning.len) view_put(&view, str_of("\n"), PART_MARKUP);

    if (p->settings.has_echo) buffer_put(&text, prompt);
    buffer_put(&text, is_raw ? buffer_str(&s->text) : sequence_part(s, PART_ANSWER));
    if (!str_ends_with(buffer_str(&text), "\n")) buffer_puts(&text, "\n");
    view_put(&view, buffer_str(&text), PART_ANSWER);
    view_end(&view);
    buffer_free(&text);
}

// Prints several texts, each after a note.
static void print_completions(const Pipeline *p, Str prompt, const Sequence *s, int n) {
    for (int i = 0; i < n; i++) {
        note(p->options, "completion %d, seed %lld:", i + 1, (long long)s[i].request.sample.seed);
        print_text(p, prompt, &s[i]);
    }
}

// Request.emit.
static bool emit_text(void *arg, Str text, TextPart part) {
    view_put(arg, text, part);
    return true;
}

// Objects that live as long as the command.
typedef struct {
    Pipeline pipeline;
    Generator generator;
    Buffer prompt;
    Ids ids;             // of the prompt
    Request request;     // of the first completion
    AnswerState *answer; // its constraint; NULL: none
    AnswerView view;     // of a text that is streamed
    Sequence completions[MAX_COMPLETIONS];
    Reply replies[MAX_COMPLETIONS];
} Run;

// Text becomes tokens, tokens and settings become a request. Without a token limit the KV cache may
// grow to the whole context, so the memory for that must be available.
static bool make_request(Run *run, Error *err) {
    const Pipeline *p = &run->pipeline;
    const Options *o = p->options;
    Str prompt = buffer_str(&run->prompt);
    bool is_raw = o->prompt.is_raw;
    Request *r = &run->request;

    if (!text_may_fit(p, content_strip(prompt).len, err) ||
        !prompt_encode(p, &p->settings, prompt, is_raw, &run->ids, err) ||
        !request_from_settings(p, &p->settings, &run->ids, is_raw, r, err))
        return false;
    if (o->prompt.answer && !request_begin_answer(p, str_of(o->prompt.answer), &run->ids, r, err))
        return false;

    int n_positions = r->max_tokens >= 0 ? run->ids.len : r->max_context;
    AnswerInput in = {.settings = &p->settings,
                      .offer = {.tools = p->tools},
                      .has_reasoning = p->tpl.has_reasoning && !is_raw};
    return kv_memory_check(&p->model, (size_t)n_positions, err) &&
           answer_open(p, &in, r, &run->answer, err);
}

// Generates n completions with consecutive seeds as one batch. The prompt is prefilled once, in the
// session of the first; the others fork it.
static void generate_n(Run *run, int n) {
    const Pipeline *p = &run->pipeline;
    Generator *g = &run->generator;
    Request *r = &run->request;
    Sequence *s = run->completions, *batch[MAX_COMPLETIONS] = {s};
    prefill_with_progress(p->options, g, s, r, session_new(&p->model.kv));

    int n_shared = s->session->n_tokens; // fewer than the prompt after an interrupt
    if (n_shared >= r->n_prompt) n_shared = r->n_prompt - 1;
    for (int i = 1; i < n; i++) {
        Session *session = session_fork(s->session, n_shared);
        if (!session) die(EXIT_RUNTIME, "out of memory for %d completions; use a smaller -N", n);
        r->sample.seed++;
        if (run->answer) answer_clone(run->answer, r);
        batch[i] = &s[i];
        sequence_start(batch[i], g, r, session);
    }

    while (generate_step(g, batch, n)) {
    }
}

// Prints a single text, or ends one that was streamed. Also what precedes an error is printed.
static void end_single(Run *run) {
    const Sequence *s = run->completions;
    if (!run->request.emit)
        print_text(&run->pipeline, buffer_str(&run->prompt), s);
    else if (run->view.has_text || s->finish != FINISH_ERROR)
        view_end(&run->view);
}

// Warns of incomplete texts, even with -q: no script may take one for an answer. Returns their
// number.
static int warn_incomplete(const Sequence *s, int n) {
    int n_incomplete = 0, n_invalid = 0;
    Error why;
    for (int i = 0; i < n; i++) {
        n_incomplete += completion_is_incomplete(&s[i]);
        n_invalid += !completion_check(&s[i], &why);
    }

    if (n_invalid) warn("%s incomplete: %s", count_of(n_invalid, "text"), why.text);
    if (n_incomplete > n_invalid)
        warn("%s incomplete: cut by -n, the context or --stop before the constraint was satisfied",
             count_of(n_incomplete - n_invalid, "text"));
    return n_incomplete;
}

// Prints the completions, unless the only one has been streamed, and notes how they ended. Returns
// the exit code.
static int report(Run *run, int n) {
    const Pipeline *p = &run->pipeline;
    const Options *o = p->options;
    const Sequence *s = run->completions;
    const Template *tpl = o->prompt.is_raw || view_is_raw(o) ? NULL : &p->tpl;
    int n_reasoning = 0, n_answer = 0, n_loops = 0, n_full = 0, n_unanswered = 0;

    if (n == 1 && !o->output.is_json) end_single(run);

    for (int i = 0; i < n; i++) {
        // Errors during generation: memory, or logits that are not finite.
        if (s[i].finish == FINISH_ERROR) die_error(&s[i].error);

        completion_parse(&run->replies[i], tpl, p->tokenizer, &s[i], (ToolOffer){.tools = p->tools},
                         0);
        n_reasoning += run->replies[i].n_reasoning;
        n_answer += run->replies[i].n_answer;
        n_loops += s[i].finish == FINISH_LOOP;
        n_full += is_cut_by_context(&s[i]);
        n_unanswered += is_unanswered(&s[i], &run->replies[i]);
    }

    if (o->output.is_json) print_json(&run->generator, s, run->replies, n);
    if (n > 1 && !o->output.is_json) print_completions(p, buffer_str(&run->prompt), s, n);

    if (n == 1) note_ending(o, s);
    warn_loops(n_loops, "text");
    warn_full(n_full, "text", &p->model, s->request.max_context);
    warn_unanswered(n_unanswered);
    note_stats(o, &run->generator, n_reasoning, n_answer, &p->settings.sample);
    for (int i = 0; i < n; i++)
        if (s[i].finish == FINISH_CANCEL) return EXIT_INTERRUPTED;

    return warn_incomplete(s, n) ? EXIT_INCOMPLETE : EXIT_OK;
}

// Notes the options for schemas where there is neither a schema nor a tool.
static void note_unused_modes(const Pipeline *p) {
    const ConstraintSpec *c = &p->settings.constraint;
    bool has_schema = c->kind == CONSTRAINT_SCHEMA || c->kind == CONSTRAINT_SCHEMA_TEXT;
    bool is_any = c->any_order || c->extra_properties || c->is_strict;
    if (has_schema || p->tools.len || !is_any) return;

    note(p->options, "no effect without a JSON Schema:%s%s%s", c->any_order ? " --any-order" : "",
         c->extra_properties ? " --extra-properties" : "", c->is_strict ? " --strict-schema" : "");
}

int command_run(const Options *o) {
    static Run run;
    Pipeline *p = &run.pipeline;
    Error err;

    if (o->settings.n_logprobs && !o->output.is_json) die(EXIT_USAGE, "--logprobs: needs --json");
    view_check(o);

    // The prompt, and the model that completes it. The weights are mapped, not read: they are paged
    // in from disk by the first forward pass.
    prompt_read(o, &run.prompt);
    pipeline_open(p, o);
    prompt_check(o, &run.prompt);
    template_note_missing(o, &p->tpl);
    note_unused_modes(p);
    if (!make_request(&run, &err)) die_error(&err);

    // A single text is printed while it is generated, except with --no-stream.
    int n = o->output.n_choices ? o->output.n_choices : 1;
    int chunk = run.ids.len < GENERATE_CHUNK ? run.ids.len : GENERATE_CHUNK;
    bool is_streamed = n == 1 && !o->output.is_json && !o->output.is_whole;
    if (is_streamed) {
        run.view = (AnswerView){.options = o};
        run.request.emit = emit_text;
        run.request.arg = &run.view;
    }
    generator_open(p, &run.generator, o->model.chunk ? o->model.chunk : chunk, n);

    if (!o->model.path) note(o, "the built-in story model answers; -m FILE.gguf opens another");
    if (o->settings.has_echo && is_streamed)
        view_put(&run.view, buffer_str(&run.prompt), PART_ANSWER);

    // From here on no file is opened, so the process gives up the rights to do so. An interrupt
    // stops the generation, not the program: what has been generated is still reported.
    close_file_access(o);
    signals_defer(SIGINT);
    generate_n(&run, n);
    return report(&run, n);
}
