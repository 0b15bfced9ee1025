// Turns of a chat: check the context, generate and show an answer, and add it to the dialogue and
// the token stream.
// Order: errors, the context, showing an answer, adding and removing turns.
#include "cli/commands/chat.h"
#include "base/signals.h"
#include "cli/completion.h"
#include "cli/answer_view.h"
#include "cli/open_answer.h"
#include "cli/output.h"
#include "cli/report.h"
#include "cli/request.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

void chat_error(Chat *c, int code, const char *fmt, ...) {
    Buffer text = {0}, out = {0};
    va_list ap;
    va_start(ap, fmt);
    buffer_vprintf(&text, fmt, ap);
    va_end(ap);
    if (!c->exit_code) c->exit_code = code;
    if (c->is_terminal)
        note(NULL, "%s", text.data);
    else
        warn("%s", text.data);

    if (c->options->output.is_json) {
        JsonWriter w = json_object(&out);
        json_write_string(&w, "error", buffer_str(&text));
        text_print_json(&w);
    }

    buffer_free(&text);
}

// Context

// Renders the dialogue, joined as in dialogue_join(). False with err if the template fails.
static bool render(const Chat *c, bool joins_calls, int *n_joined, Buffer *text, Buffer *mask,
                   Error *err) {
    const Pipeline *p = &c->pipeline;
    const Dialogue *d = &c->dialogue;
    Dialogue joined = {0};

    *n_joined = p->tpl.is_none ? 0 : dialogue_join(d, joins_calls, &joined);
    TemplateInput in = {.messages = p->tpl.is_none ? d->messages : joined.messages,
                        .n_messages = p->tpl.is_none ? d->n : joined.n,
                        .tools = p->tools,
                        .wants_answer = true,
                        .reasoning = settings_reasoning(&c->settings)};
    text->len = mask->len = 0;
    bool ok = template_render(&p->tpl, p->tokenizer, &in, text, mask, err);

    dialogue_free(&joined);
    return ok;
}

// Renders the dialogue into the token stream. Returns the number of its tokens, or -1 if the
// template fails. Open tool calls are left out only if the template refuses them.
static int update_stream(Chat *c) {
    const Pipeline *p = &c->pipeline;
    Buffer text = {0}, mask = {0};
    int n_joined;
    Error err;
    bool ok = render(c, false, &n_joined, &text, &mask, &err);
    bool joins_calls = !ok && render(c, true, &n_joined, &text, &mask, &(Error){0});

    ok |= joins_calls;
    if (ok) {
        token_stream_update(&c->stream, p->tokenizer, buffer_str(&text), mask.data);
        if (n_joined > c->n_joined)
            note(c->options, "(%s without an answer: joined with the next one%s)",
                 count_of(n_joined - c->n_joined, "message"),
                 joins_calls ? "; the tool calls between them are left out" : "");
        c->n_joined = n_joined;
    } else {
        chat_error(c, err.code, "%s", err.text);
    }

    buffer_free(&text);
    buffer_free(&mask);
    return ok ? c->stream.ids.len : -1;
}

// Drops the oldest turns, but not the system prompt, until the dialogue takes at most half of the
// context or only one turn is left. If that turn exceeds `limit`, nothing is dropped. Returns the
// number of tokens of the dialogue.
static int drop_turns(Chat *c, int limit) {
    Dialogue *d = &c->dialogue, whole = *d;
    int first = dialogue_has(d, 0, "system"), n_dropped = 0, n = update_stream(c);

    // Shorten a copy of the list of messages.
    d->messages = NULL;
    d->n = 0;
    for (int i = 0; i < whole.n; i++) dialogue_push(d, whole.messages[i]);
    for (; n > c->pipeline.ctx / 2; n = update_stream(c), n_dropped++) {
        int next = first + 1;
        while (next < d->n && !dialogue_has(d, next, "user")) next++;
        if (next >= d->n) break;
        d->n -= next - first;
        memmove(d->messages + first, d->messages + next,
                (size_t)(d->n - first) * sizeof *d->messages);
    }

    int n_removed = whole.n - d->n;
    free(d->messages);
    *d = whole;
    if (!n_dropped || n < 0 || n > limit) return n;
    dialogue_drop(d, first, first + n_removed);
    note(c->options, "context full: dropped the oldest %s; %d of %d positions used",
         count_of(n_dropped, "turn"), n, c->pipeline.ctx);
    return n;
}

bool chat_is_stuck(const Chat *c) {
    const Options *o = c->options;
    bool can_go_on = c->is_terminal || o->chat.has_commands || o->chat.keep_going;
    return c->is_full && !can_go_on && !o->output.is_json;
}

// True if the dialogue and the beginning of an answer fit the context. Prints a note with advice if
// not. With --keep-going the oldest turns are dropped first.
static bool chat_fits(Chat *c) {
    int limit = c->pipeline.ctx - 8; // leaves a few tokens for the answer
    int n = update_stream(c), most = c->pipeline.model.config.max_context;
    if (n > limit * 9 / 10 && c->options->chat.keep_going) n = drop_turns(c, limit);
    const char *larger = c->pipeline.ctx < most ? ", or restart with a larger -c" : "";
    if (n > limit) {
        c->is_full = c->session->n_tokens > limit / 2; // else only this turn is too long
        chat_error(
            c, EXIT_CONTEXT,
            "this turn does not fit the context: %d tokens, context %d (/clear, /undo%s%s; the "
            "model's limit is %d)%s",
            n, c->pipeline.ctx, c->options->chat.keep_going ? "" : ", --keep-going", larger, most,
            chat_is_stuck(c) ? "; the remaining lines are not read" : "");
    } else if (n > limit * 9 / 10)
        note(c->options, "context: %d of %d positions used (/clear, /undo%s)", n, c->pipeline.ctx,
             larger);
    return n >= 0 && n <= limit;
}

// Showing an answer

typedef struct {
    AnswerView view;
    const char *begun;  // what a terminal shows before the generated text (/answer); NULL: nothing
    AnswerState *state; // NULL: any answer is allowed
} Answer;

// Request.emit
static bool show_piece(void *arg, Str text, TextPart part) {
    Answer *a = arg;
    if (a->view.options->output.is_json) return true;

    if (a->begun && isatty(STDOUT_FILENO)) view_put(&a->view, str_of(a->begun), PART_MARKUP);
    a->begun = NULL;
    view_put(&a->view, text, part);
    return true;
}

// Generates the answer to the token stream.
static void generate_answer(Chat *c, Answer *a, Sequence *s) {
    const Options *o = c->options;
    const Settings *settings = &c->settings;
    Str stops[settings->n_stops + 2];
    int n_stops = 0;
    Request r;
    AnswerInput in = {.settings = settings,
                      .offer = {.tools = c->pipeline.tools},
                      .has_reasoning = c->pipeline.tpl.has_reasoning};

    // Stop strings come from the options and the template. Without -n, an answer of the built-in
    // model ends with its first line.
    for (int i = 0; i < settings->n_stops; i++) stops[n_stops++] = settings->stops[i];
    if (!o->model.path && settings->n_predict == INT_MIN) stops[n_stops++] = str_of("\n");
    if (c->pipeline.tpl.stop) stops[n_stops++] = str_of(c->pipeline.tpl.stop);

    if (!request_from_settings(&c->pipeline, settings, &c->stream.ids, false, &r, &s->error) ||
        (c->begun &&
         !request_begin_answer(&c->pipeline, str_of(c->begun), &c->stream.ids, &r, &s->error)) ||
        !answer_open(&c->pipeline, &in, &r, &a->state, &s->error)) {
        s->finish = FINISH_ERROR;
        return;
    }

    r.stops.strings = stops;
    r.stops.n_strings = n_stops;
    r.emit = show_piece;
    r.arg = a;
    r.sample.seed += (uint64_t)c->n_answers++;

    prefill_with_progress(o, &c->generator, s, &r, c->session);
    while (generate_step(&c->generator, &s, 1)) {
    }

    c->stream.ids.len -= r.start.n_tokens; // of the answer, which becomes a message

    if (a->view.has_text && !o->output.is_json) view_end(&a->view);
}

// Keeping an answer

// Adds the tokens of the answer to the token stream. A stop string is not part of the answer: its
// tokens are removed, except for a token that also contains text of the answer.
static void stream_answer(Chat *c, const Sequence *s) {
    const Tokenizer *t = c->pipeline.tokenizer;
    Ids ids = {0};
    Buffer raw = {0}, shown = {0};
    bool has_stop_string = s->finish == FINISH_STOP && s->stop_token < 0;
    size_t bytes = 0;
    int n = 0;

    completion_ids(s, &ids);
    while (n < ids.len && !(has_stop_string && bytes >= s->request.start.all.len + s->text.len))
        bytes += tokenizer_piece(t, ids.data[n++], false).len;

    reply_put_raw(t, ids.data, n, &raw);
    completion_text(s, &shown);
    token_stream_add_answer(&c->stream, ids.data, n, buffer_str(&raw), buffer_str(&shown),
                            s->stop_token);
    buffer_free(&raw);
    buffer_free(&shown);
    free(ids.data);
}

// Adds the answer to the dialogue, as a message.
static void keep_answer(Chat *c, const Sequence *s, Reply *r) {
    const Pipeline *p = &c->pipeline;
    completion_parse(r, &p->tpl, p->tokenizer, s, (ToolOffer){.tools = p->tools}, c->dialogue.n);
    stream_answer(c, s);
    Str text = p->tpl.is_none ? r->content : content_skip_space(r->content);
    memmove((char *)r->content.data, text.data, r->content.len = text.len);
    dialogue_push(&c->dialogue, reply_message(r));
    c->n_new++;
    chat_save_change(c);
    for (int i = 0; i < r->n_calls; i++)
        note(c->options, "(%s %s)", r->calls[i].name.data, r->calls[i].arguments.data);
    if (r->n_calls || reply_is_call(buffer_str(&c->stream.answer)))
        note(c->options, "(a tool call: /tool TEXT sends its result)");
}

// Prints the answer as JSON, a tool call whose arguments violate their schema, and statistics.
static void report_answer(Chat *c, const Sequence *s, const Reply *r) {
    Generator *g = &c->generator;
    Error invalid;
    bool is_valid = completion_check(s, &invalid);
    if (!is_valid && !c->exit_code) c->exit_code = EXIT_INCOMPLETE;

    if (c->options->output.is_json) {
        Buffer out = {0};
        JsonWriter w = json_object(&out);
        Reply raw;
        completion_parse(&raw, NULL, c->pipeline.tokenizer, s, (ToolOffer){0}, 0);
        json_write_string(&w, "role", str_of("assistant"));
        completion_write(&w, "content", view_is_raw(c->options) ? &raw : r, s,
                         s->request.n_prompt - s->n_reused);
        if (!is_valid) json_write_string(&w, "note", str_of(invalid.text));
        reply_free(&raw);
        json_write_int(&w, "n_context", c->session->n_tokens);
        json_write_format(&w, "prefill_sec", "%.6f", s->prefill_sec);
        json_write_format(&w, "decode_sec", "%.6f", s->decode_sec);
        json_write_int(&w, "n_drafted", (int64_t)g->n_drafted);
        json_write_int(&w, "n_accepted", (int64_t)g->n_accepted);
        text_print_json(&w);
    } else if (!is_valid) {
        warn("1 answer incomplete: %s", invalid.text);
    }

    if (c->options->is_verbose)
        note_stats(c->options, g, r->n_reasoning, r->n_answer, &s->request.sample);
    else if (c->is_terminal && g->n_decode)
        note(c->options, "%.1f tok/s", (double)g->n_decode / g->decode_sec);

    // Add the counters of this answer to those of the chat, and reset them.
    c->totals.n_prefill += g->n_prefill;
    c->totals.n_decode += g->n_decode;
    c->totals.prefill_sec += g->prefill_sec;
    c->totals.decode_sec += g->decode_sec;
    g->n_prefill = g->n_decode = g->n_from_cache = g->n_decode_passes = 0;
    g->n_drafted = g->n_accepted = 0;
    g->prefill_sec = g->decode_sec = 0;
}

// Turns

// Generates an answer and adds it to the dialogue. False if generation gives no answer.
static bool chat_answer(Chat *c) {
    Sequence s = {0};
    const Template *tpl = &c->pipeline.tpl;
    Answer a = {.view = {.options = c->options,
                         .is_styled = !c->options->chat.is_plain,
                         .skips_space = !tpl->is_none}};
    Reply r = {0};
    const Ids *stream = &c->stream.ids;

    if (update_stream(c) < 0) return false;

    // Rewind the session to the longest prefix that it shares with the token stream.
    int n_same = 0; // tokens that stay in the session; at least one is fed, for its logits
    while (n_same < stream->len - 1 && n_same < c->session->n_tokens &&
           c->session->tokens[n_same] == stream->data[n_same])
        n_same++;
    session_rewind(c->session, n_same);

    if (c->options->chat.show_tokens) {
        fputs("tokens:", stderr);
        for (int i = n_same; i < stream->len; i++) fprintf(stderr, " %d", stream->data[i]);
        fputs("\n", stderr);
    }

    signals_hold(true); // SIGTERM and SIGHUP keep the part of the answer that was shown
    a.begun = c->begun;
    a.view.has_text = c->begun && *c->begun;
    generate_answer(c, &a, &s);

    // Add the answer to the dialogue, or report its error.
    bool has_text = s.n_generated > 0 && s.finish != FINISH_ERROR;
    bool has_answer = has_text || s.finish == FINISH_STOP;
    if (has_answer)
        keep_answer(c, &s, &r);
    else if (s.finish == FINISH_ERROR)
        chat_error(c, s.error.code, "%s", s.error.text);

    // Print notes on how the answer ended.
    if (s.finish == FINISH_CANCEL)
        note(c->options, has_text ? "(stopped)"
                                  : "(stopped before the answer; the next message joins it, or: "
                                    "/regen, /edit, /undo)");
    note_ending(c->options, &s);
    warn_loops(s.finish == FINISH_LOOP, "answer");
    warn_full(is_cut_by_context(&s), "answer", &c->pipeline.model, c->pipeline.ctx);
    warn_unanswered(is_unanswered(&s, &r));
    if (s.finish == FINISH_LENGTH && c->session->n_tokens >= c->pipeline.ctx - 1)
        note(c->options, "(to make room: /clear, /undo, --keep-going or a larger -c)");
    if (s.finish != FINISH_ERROR) report_answer(c, &s, &r);

    reply_free(&r);
    free((char *)s.request.start.all.data);
    sequence_free(&s);
    answer_free(a.state);
    signals_hold(false);
    return has_answer;
}

bool chat_add(Chat *c, Message m, bool wants_answer) {
    Dialogue *d = &c->dialogue;
    bool is_replacing = c->n_removed; // nothing is saved before the answer

    dialogue_push(d, m);
    c->n_new++;
    bool ok = chat_fits(c);
    if (ok && !is_replacing) chat_save_change(c);
    if (ok && wants_answer) ok = chat_answer(c) || !is_replacing;
    if (ok) return true;

    dialogue_remove(d, d->n - 1, d->n);
    c->n_new--;
    if (dialogue_has(d, d->n - 1, "user") || dialogue_has(d, d->n - 1, "tool"))
        note(c->options, "(the previous message has no answer: /regen or /undo)");
    else if (d->n && d->messages[d->n - 1].has_calls)
        note(c->options, "(the previous tool call has no result: /tool TEXT or /undo)");
    return false;
}

bool chat_say(Chat *c, const char *role, Str text) {
    if (c->attached.len) buffer_puts(&c->attached, "\n\n");
    buffer_put(&c->attached, text);
    Message m = message_make(str_of(role), buffer_str(&c->attached));
    c->attached.len = 0;
    return chat_add(c, m, true);
}

void chat_replace(Chat *c, int from, Str text) {
    Dialogue *d = &c->dialogue;
    int n_old = d->n - from;
    dialogue_undo(d, from);
    c->n_removed = n_old;

    bool ok = text.data ? chat_say(c, "user", text) : chat_fits(c) && chat_answer(c);
    if (!ok && n_old) {
        dialogue_redo(d);
        note(c->options, "(not changed)");
    }
    c->n_removed = 0;
}
