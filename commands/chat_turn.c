// chat: a conversation. Before an answer the template makes one text of all messages, whose tokens
// are the stream; what the model said keeps its own. The session is rewound to where it agrees with
// the stream, and the rest is fed. So a turn costs its own tokens, and undoing, editing, loading or
// a template that drops old thoughts costs what differs.
#include "chat_turn.h"
#include "../base/signals.h"
#include "../base/json.h"
#include "../cli/completion.h"
#include "../cli/report.h"
#include "../cli/request.h"
#include "../cli/output.h"
#include "../cli/wrap.h"

#include <ctype.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void chat_complain(const Chat *c, const char *fmt, ...) {
    Buffer text = {0}, out = {0};
    va_list ap;
    va_start(ap, fmt);
    buffer_vprintf(&text, fmt, ap);
    va_end(ap);
    if (c->is_terminal)
        note(NULL, "%s", text.data);
    else
        warn("%s", text.data);
    if (c->options.is_json) {
        json_put_string(&out, "{\"error\":", buffer_str(&text));
        buffer_puts(&out, "}\n");
        text_print(&out);
    }
    buffer_free(&text);
}

void chat_follow(Chat *c, bool is_appended) {
    Error err;
    Buffer text = {0};
    bool by_line = is_appended && !c->is_behind;
    if (!c->options.session_file) return;
    buffer_puts(&text, "");
    (by_line ? transcript_put_last : transcript_put)(&c->dialogue, &text);
    c->is_behind =
        !(by_line ? journal_append : journal_replace)(&c->journal, buffer_str(&text), &err);
    if (c->is_behind) warn("%s", err.text);
    buffer_free(&text);
}

// The answer under way.
typedef struct {
    Chat *chat;
    const Sequence *sequence;
    bool has_text, ends_line, in_reasoning;
    TextWrap wrap;
} Answer;

// Whether the first token of the answer is this one.
static bool begins_with(const Answer *a, const char *name) {
    const Sequence *s = a->sequence;
    int n = s->request.n_prompt, id = tokenizer_special_id(a->chat->pipeline.tokenizer, name);
    int first = s->session->n_tokens > n ? s->session->tokens[n] : s->n_generated ? s->pending : -1;
    return first >= 0 && first == id;
}

// Thoughts are dim, up to their end.
static void show_reasoning(Answer *a, const char *text, size_t n) {
    size_t end = str_find((Str){text, n}, str_of("</think>")),
           n_dim = end == SIZE_MAX ? n : end + 8;
    text_dim(true);
    text_wrap(&a->wrap, text, n_dim);
    if (end == SIZE_MAX) return;
    text_wrap_end(&a->wrap);
    text_dim(a->in_reasoning = false);
    if (n > n_dim) text_wrap(&a->wrap, text + n_dim, n - n_dim);
}

// White space before the first word is the template's matter.
static bool show_piece(void *arg, const char *text, size_t n) {
    Answer *a = arg;
    const Template *tpl = &a->chat->pipeline.tpl;
    while (n && !a->has_text && !tpl->is_none && isspace((unsigned char)*text)) text++, n--;
    if (!n) return true;
    if (!a->has_text && (begins_with(a, "<|python_tag|>") || begins_with(a, "[TOOL_CALLS]")))
        note(&a->chat->options, "tool call:");
    if (!a->has_text && tpl->has_reasoning && n >= 7 && !memcmp(text, "<think>", 7))
        a->in_reasoning = true;
    a->has_text = true;
    a->ends_line = text[n - 1] == '\n';
    if (a->chat->options.is_json) return true;
    if (a->in_reasoning)
        show_reasoning(a, text, n);
    else
        text_wrap(&a->wrap, text, n);
    return true;
}

// The session agrees with the stream up to here (and one token at least is left to feed).
static void rewind_session(Chat *c) {
    const Ids *stream = &c->stream.ids;
    int n = 0, most = stream->len - 1;
    if (most > c->session->n_tokens) most = c->session->n_tokens;
    while (n < most && c->session->tokens[n] == stream->data[n]) n++;
    session_rewind(c->session, n);
}

// The stream takes an answer. The tokens of a stop string are forgotten, as far as whole tokens go.
static void keep_answer(Chat *c, const Sequence *s) {
    const Tokenizer *t = c->pipeline.tokenizer;
    Ids ids = {0};
    Buffer raw = {0};
    size_t bytes = 0, len;
    completion_ids(s, &ids);
    for (int i = 0; i < ids.len; i++) bytes += tokenizer_piece(t, ids.data[i], false).len;
    for (; s->finish == FINISH_STOP && s->stop_token < 0 && ids.len > 0; ids.len--, bytes -= len) {
        len = tokenizer_piece(t, ids.data[ids.len - 1], false).len;
        if (bytes - len < s->text.len) break;
    }
    reply_put_raw(t, ids.data, ids.len, &raw);
    token_stream_add_answer(&c->stream, ids.data, ids.len, buffer_str(&raw), buffer_str(&s->text),
                            s->stop_token);
    buffer_free(&raw);
    free(ids.data);
}

static void report(Chat *c, const Sequence *s, const Reply *r) {
    if (c->options.is_json) {
        Buffer out = {0};
        JsonWriter w = {.out = &out};
        json_begin_object(&w, NULL);
        json_write_string(&w, "role", str_of("assistant"));
        completion_write(&w, "content", r, s, s->request.n_prompt - s->n_reused);
        json_write_int(&w, "n_context", c->session->n_tokens);
        json_write_format(&w, "prefill_sec", "%.6f", s->prefill_sec);
        json_write_format(&w, "decode_sec", "%.6f", s->decode_sec);
        json_end_object(&w);
        buffer_puts(&out, "\n");
        text_print(&out);
    }
    Generator *g = &c->generator;
    note_stats(&c->options, g, s->request.sample.seed);
    c->n_prefill += g->n_prefill, c->n_decode += g->n_decode;
    c->prefill_sec += g->prefill_sec, c->decode_sec += g->decode_sec;
    g->n_prefill = g->n_decode = g->n_from_cache = g->n_decode_passes = 0;
    g->prefill_sec = g->decode_sec = 0;
    speculation_reset_stats(g->speculation);
}

// A turn that could not be taken or answered; the first is the exit status.
static void turn_failed(Chat *c, int code, const char *why) {
    chat_complain(c, "%s", why);
    if (!c->code) c->code = code;
}

// Renders the dialogue and what opens an answer; its tokens, or -1, with a complaint, where the
// template refuses.
static int encode(Chat *c) {
    const Dialogue *d = &c->dialogue;
    const Pipeline *e = &c->pipeline;
    TemplateInput in = {
        .messages = d->messages, .n_messages = d->n, .tools = e->tools, .wants_answer = true};
    Buffer text = {0}, own = {0};
    Error err;
    bool ok = template_render(&e->tpl, e->tokenizer, &in, &text, &own, &err);
    if (ok)
        token_stream_update(&c->stream, e->tokenizer, buffer_str(&text), own.data);
    else
        turn_failed(c, err.code, err.text);
    buffer_free(&text);
    buffer_free(&own);
    return ok ? c->stream.ids.len : -1;
}

// Drops the oldest turns, system prompt kept, until the dialogue takes half of the context or one
// turn is left. Returns its tokens.
static int drop_turns(Chat *c) {
    Dialogue *d = &c->dialogue;
    int first = dialogue_has(d, 0, "system"), n_dropped = 0, n = encode(c);
    for (; n > c->options.ctx / 2; n = encode(c), n_dropped++) {
        int next = first + 1;
        while (next < d->n && !dialogue_has(d, next, "user")) next++;
        if (next >= d->n) break;
        dialogue_drop(d, first, next);
    }
    if (n_dropped)
        note(&c->options, "context full: dropped the oldest %s; %d of %d positions used",
             count_of(n_dropped, "turn"), n, c->options.ctx);
    return n;
}

bool chat_fits(Chat *c) {
    int limit = c->options.ctx - 8; // for the first few tokens of the answer
    int n = encode(c), most = c->pipeline.model.config.max_context;
    if (n > limit * 9 / 10 && c->options.keep_going) n = drop_turns(c);
    const char *larger = c->options.ctx < most ? ", or start with a larger -c" : "";
    if (n > limit)
        chat_complain(c,
                      "this turn does not fit the context: %d tokens, context %d (/clear, /undo, "
                      "--keep-going%s, the model's is %d)",
                      n, c->options.ctx, larger, most);
    else if (n > limit * 9 / 10)
        note(&c->options, "context: %d of %d positions used (/clear, /undo%s)", n, c->options.ctx,
             larger);
    return n >= 0 && n <= limit;
}

// Generates an answer to the stream, of which the session holds a beginning, and shows it as it
// comes.
static void generate_answer(Chat *c, Answer *a, Sequence *s) {
    const Options *o = &c->options;
    const Ids *stream = &c->stream.ids;
    Str stops[o->n_stops + 1];
    int n_stops = 0;
    Request r;
    for (int i = 0; i < o->n_stops; i++) stops[n_stops++] = o->stops[i];
    if (c->pipeline.tpl.stop) stops[n_stops++] = str_of(c->pipeline.tpl.stop);
    if (!request_from_options(&c->pipeline, o, stream, false, &r, &s->error)) {
        s->finish = FINISH_ERROR;
        return;
    }
    r.stops = stops, r.n_stops = n_stops;
    r.emit = show_piece, r.arg = a;
    r.sample.seed += (uint64_t)c->n_answers++;
    generate_with_progress(o, &c->generator, s, &r, c->session);
    text_wrap_end(&a->wrap);
    if (a->in_reasoning && !o->is_json) text_dim(false);
    if (!a->ends_line && !o->is_json) text_write("\n", 1);
}

static void show_fed(const Chat *c) {
    fputs("tokens:", stderr);
    for (int i = c->session->n_tokens; i < c->stream.ids.len; i++)
        fprintf(stderr, " %d", c->stream.ids.data[i]);
    fputs("\n", stderr);
}

// The answer becomes a message of the dialogue.
static void take_answer(Chat *c, const Sequence *s, Reply *r) {
    completion_parse(r, &c->pipeline.tpl, c->pipeline.tokenizer, s, c->pipeline.tools.data,
                     c->dialogue.n);
    keep_answer(c, s);
    Str words = r->content;
    while (!c->pipeline.tpl.is_none && words.len && isspace((unsigned char)*words.data))
        words.data++, words.len--;
    memmove((char *)r->content.data, words.data, r->content.len = words.len);
    dialogue_push(&c->dialogue, reply_message(r));
    chat_follow(c, true);
    for (int i = 0; i < r->n_calls; i++)
        note(&c->options, "(%s %s)", r->calls[i].name.data, r->calls[i].arguments.data);
    if (r->n_calls || reply_is_call(buffer_str(&c->stream.answer)))
        note(&c->options, "(a tool call: /tool TEXT feeds its result back)");
}

void chat_answer(Chat *c) {
    Sequence s = {0};
    Answer a = {.chat = c, .sequence = &s, .ends_line = true};
    Reply r = {0};
    const Ids *stream = &c->stream.ids;
    if (encode(c) < 0) return;
    rewind_session(c);
    if (c->options.show_tokens) show_fed(c);
    a.in_reasoning = reply_begins_in_reasoning(c->pipeline.tokenizer, stream->data, stream->len);
    generate_answer(c, &a, &s);
    bool has_said = s.n_generated > 0 && s.finish != FINISH_ERROR;
    if (has_said || s.finish == FINISH_STOP)
        take_answer(c, &s, &r);
    else if (s.finish == FINISH_ERROR)
        turn_failed(c, s.error.code, s.error.text);
    if (s.finish == FINISH_CANCEL)
        note(&c->options,
             has_said ? "(stopped)" : "(stopped before the answer: /regen, /edit or /undo)");
    note_ending(&c->options, &c->generator, &s);
    if (s.finish == FINISH_LENGTH && c->session->n_tokens >= c->options.ctx - 1)
        note(&c->options, "(/clear, /undo, --keep-going or a larger -c make room)");
    if (s.finish != FINISH_ERROR) report(c, &s, &r);
    reply_free(&r);
    sequence_free(&s);
}

void chat_take(Chat *c, Message m, bool wants_answer) {
    Dialogue *d = &c->dialogue;
    dialogue_push(d, m);
    if (!chat_fits(c)) { // as if it had not been said
        dialogue_remove(d, d->n - 1, d->n);
        if (!c->code) c->code = EXIT_CONTEXT;
        return;
    }
    chat_follow(c, true);
    if (wants_answer) chat_answer(c);
}

void chat_say(Chat *c, const char *role, const char *text, size_t n) {
    Buffer whole = {0};
    if (c->attached.len) {
        buffer_put(&whole, buffer_str(&c->attached));
        buffer_puts(&whole, "\n\n");
        c->attached.len = 0;
    }
    buffer_append(&whole, text, n);
    chat_take(c, message_make(str_of(role), buffer_str(&whole)), true);
    buffer_free(&whole);
}

bool chat_undo(Chat *c) {
    Dialogue *d = &c->dialogue;
    int i = dialogue_last_user(d);
    if (i < 0) {
        chat_complain(c, "there is no message to go back to");
        return false;
    }
    dialogue_remove(d, i, d->n);
    chat_follow(c, false);
    return true;
}
