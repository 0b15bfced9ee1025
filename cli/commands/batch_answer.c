// The answer of a batch record as JSON: its own form, or a response of the OpenAI API.
// Order: tokens, log-probabilities, the two forms, then record_finish().
#include "cli/commands/batch_record.h"
#include "base/files.h"
#include "cli/completion.h"

#include <math.h>
#include <time.h>

JsonWriter record_begin_line(const Record *r, Buffer *out) {
    JsonWriter w = json_object(out);
    if (r->line.form != FORM_SHORT)
        json_write_format(&w, "id", "\"batch_req_%ld\"", r->line.number);
    json_write_format(&w, r->line.form == FORM_SHORT ? "id" : "custom_id", "%s",
                      r->line.has_id ? r->line.id.data : "null");
    return w;
}

// Begins the line of output with the ids and the hash of the request.
static JsonWriter begin_answer(Record *r) {
    JsonWriter w = record_begin_line(r, &r->answer.text);
    json_write_format(&w, "request", "\"%016llx\"", (unsigned long long)r->line.hash);
    return w;
}

// The tokens (n) of an answer, those of an echoed prompt included. The first token of a prompt has
// no log-probability (NAN) and no alternatives. After an echoed prompt, OpenAI's form also lists
// the stop token, because lm-evaluation-harness assumes that the last token was generated. The
// caller frees the list; the alternatives belong to the sequence.
static TokenLogprob *answer_tokens(const Record *r, int *n) {
    const Sequence *s = &r->sequence;
    int n_echoed = r->request.first_scored ? r->prompt.len : 0;
    bool has_end = n_echoed && r->parent->line.form == FORM_COMPLETION && s->stop_token >= 0;
    int n_generated = s->n_generated + has_end;

    *n = n_echoed + n_generated;
    TokenLogprob *list = xalloc((size_t)*n, sizeof *list);
    if (n_echoed) list[0] = (TokenLogprob){.id = r->prompt.data[0], .logprob = NAN};
    for (int i = 1; i < n_echoed; i++) list[i] = s->prompt_logprobs[i - 1];
    for (int i = 0; i < n_generated; i++) list[n_echoed + i] = s->logprobs[i];
    return list;
}

// Writes the alternatives of a token as {"TOKEN": LOGPROB, ...}, best first. Keys are unique: if
// several tokens have the same text (parts of UTF-8 characters are all written as U+FFFD), only the
// best of them is listed.
static void write_alternatives(JsonWriter *w, const Tokenizer *t, const TokenLogprob *l, int n) {
    InternTable names = {0}; // quoted
    Buffer name = {0};
    if (!l->top) {
        json_write_null(w, NULL);
        return;
    }
    json_begin_object(w, NULL);

    for (int i = 0; i < n; i++) {
        Str piece = tokenizer_piece(t, l->top[i].id, true);

        // Skip a name that a more likely token has used.
        bool is_new;
        name.len = 0;
        json_quote(&name, piece);
        intern_add(&names, name.data, name.len, &is_new);
        if (!is_new) continue;

        json_write_key(w, piece);
        json_write_number(w, NULL, (double)l->top[i].logprob);
    }

    json_end_object(w);
    intern_free(&names);
    buffer_free(&name);
}

// Writes the log-probabilities of /v1/completions: one array per property. Offsets count characters
// of the text.
static void write_completion_logprobs(JsonWriter *w, const Tokenizer *t, const Record *r,
                                      int n_top) {
    int n;
    TokenLogprob *l = answer_tokens(r, &n);
    int64_t offset = 0;
    bool drops_space = r->sequence.request.first_scored && tokenizer_has_space_prefix(t);

    json_begin_object(w, "logprobs");

    json_begin_array(w, "tokens");
    for (int i = 0; i < n; i++) json_write_string(w, NULL, tokenizer_piece(t, l[i].id, true));
    json_end_array(w);

    json_begin_array(w, "token_logprobs");
    for (int i = 0; i < n; i++) json_write_number(w, NULL, (double)l[i].logprob);
    json_end_array(w);

    json_begin_array(w, "top_logprobs");
    for (int i = 0; i < n; i++) write_alternatives(w, t, &l[i], n_top);
    json_end_array(w);

    json_begin_array(w, "text_offset");
    for (int i = 0; i < n; i++) {
        json_write_int(w, NULL, offset);
        Str piece = tokenizer_piece_in_text(t, l[i].id, false, &drops_space);
        offset += (int64_t)utf8_length(piece.data, piece.len);
    }
    json_end_array(w);

    json_end_object(w);
    free(l);
}

// Puts the text of the prompt before that of a reply.
static void echo_prompt(const Record *r, Reply *reply) {
    const Tokenizer *t = r->pipeline->tokenizer;
    bool drops_space = tokenizer_has_space_prefix(t);
    Buffer text = {0};

    for (int i = 0; i < r->prompt.len; i++)
        buffer_put(&text, tokenizer_piece_in_text(t, r->prompt.data[i], false, &drops_space));
    buffer_put(&text, reply->content);
    free((char *)reply->content.data);
    reply->content = buffer_str(&text);
}

// Writes the members of a choice in OpenAI's form.
static void write_openai_choice(JsonWriter *w, const Record *r, const Reply *reply) {
    const Sequence *s = &r->sequence;
    const Tokenizer *t = r->pipeline->tokenizer;
    bool is_chat = r->parent->line.form == FORM_CHAT;
    int n_logprobs = r->parent->n_logprobs;

    json_write_int(w, "index", r->index);

    if (is_chat) {
        json_begin_object(w, "message");
        json_write_string(w, "role", str_of("assistant"));
        json_write_string(w, "content", completion_rest(reply, s));
        reply_write_extras(w, reply, true);
        json_write_null(w, "refusal");
        json_end_object(w);
    } else {
        json_write_string(w, "text", reply->content);
    }

    if (n_logprobs < 0) {
        json_write_null(w, "logprobs");
    } else if (is_chat) {
        json_begin_object(w, "logprobs");
        completion_write_logprobs(w, "content", t, s->logprobs, s->n_generated, n_logprobs, true);
        json_write_null(w, "refusal");
        json_end_object(w);
    } else {
        write_completion_logprobs(w, t, r, n_logprobs);
    }

    const char *reason = completion_finish_reason(reply, s);
    bool is_own = s->finish == FINISH_LOOP || s->finish == FINISH_ERROR; // the API lacks them
    json_write_string(w, "finish_reason", str_of(is_own ? "length" : reason));
    if (is_own) json_write_string(w, "stop_reason", str_of(reason));
    if (r->parent->n_choices > 1) json_write_int(w, "seed", (int64_t)s->request.sample.seed);
}

void record_parse_reply(const Record *r, Reply *reply) {
    const Pipeline *p = r->pipeline;
    const Record *parent = r->parent;
    ToolOffer offer = {.is_forced = parent->tools.is_forced};
    if (parent->tools.is_offered) offer.tools = buffer_str(&parent->tools.text);
    completion_parse(reply, parent->is_plain ? NULL : &p->tpl, p->tokenizer, &r->sequence, offer,
                     0);
}

void record_take(const Record *r) {
    const Sequence *s = &r->sequence;
    const Pipeline *p = r->pipeline;
    Record *parent = r->parent;
    JsonWriter w = json_object(&parent->answer.choices[r->index]);
    Reply reply;

    record_parse_reply(r, &reply);
    if (parent->settings.has_echo) echo_prompt(r, &reply);

    if (parent->line.form == FORM_SHORT) {
        completion_write(&w, "text", &reply, s, r->prompt.len);
        if (parent->n_logprobs >= 0) {
            int n;
            TokenLogprob *tokens = answer_tokens(r, &n);
            completion_write_logprobs(&w, "logprobs", p->tokenizer, tokens, n,
                                      s->request.n_logprobs, false);
            free(tokens);
        }
    } else {
        write_openai_choice(&w, r, &reply);
    }
    json_end_object(&w);

    parent->answer.n_reasoning += reply.n_reasoning;
    reply_free(&reply);
}

static void write_choices(JsonWriter *w, const Record *r) {
    json_begin_array(w, "choices");
    for (int i = 0; i < r->n_choices; i++)
        json_write_format(w, NULL, "%s", r->answer.choices[i].data);
    json_end_array(w);
}

static void write_openai_response(JsonWriter *w, const Record *r) {
    bool is_chat = r->line.form == FORM_CHAT;

    json_begin_object(w, "response");
    json_write_int(w, "status_code", 200);
    json_write_format(w, "request_id", "\"req_%ld\"", r->line.number);

    json_begin_object(w, "body");
    json_write_format(w, "id", "\"%s-%ld\"", is_chat ? "chatcmpl" : "cmpl", r->line.number);
    json_write_string(w, "object", str_of(is_chat ? "chat.completion" : "text_completion"));
    json_write_int(w, "created", (int64_t)time(NULL));
    json_write_string(w, "model", str_of(file_name(r->pipeline->model.file.path)));
    write_choices(w, r);

    int n_prompt = r->prompt.len; // tokens
    for (int i = 1; i < r->n_prompts; i++) n_prompt += r->more_prompts[i - 1].len;
    json_begin_object(w, "usage");
    json_write_int(w, "prompt_tokens", n_prompt);
    json_write_int(w, "completion_tokens", r->answer.n_generated);
    json_write_int(w, "total_tokens", n_prompt + r->answer.n_generated);
    if (r->answer.n_reasoning) {
        json_begin_object(w, "completion_tokens_details");
        json_write_int(w, "reasoning_tokens", r->answer.n_reasoning);
        json_end_object(w);
    }
    json_end_object(w);
    json_end_object(w);

    json_end_object(w);
    json_write_null(w, "error");
}

void record_write(JsonWriter *w, const Record *parent) {
    if (parent->line.form != FORM_SHORT)
        write_openai_response(w, parent);
    else if (parent->n_choices > 1)
        write_choices(w, parent);
    else // the members of the only choice, without its braces
        buffer_printf(w->out, ",%.*s", (int)parent->answer.choices[0].len - 2,
                      parent->answer.choices[0].data + 1);
}

// Writes the line of a request whose choices have all finished.
static void complete_answer(Record *parent, const BatchTask *task) {
    JsonWriter w = begin_answer(parent);
    task->write(&w, parent);
    if (parent->answer.is_incomplete && (parent->line.form != FORM_SHORT || parent->n_choices > 1))
        json_write_bool(&w, "incomplete", true);
    if (parent->answer.failure) json_write_string(&w, "failure", str_of(parent->answer.failure));
    if (parent->answer.n_cut)
        buffer_printf(&parent->answer.notes,
                      "%scut within a character, the beginning of which was left out",
                      parent->answer.notes.len ? "; " : "");
    if (parent->answer.notes.len) json_write_string(&w, "note", buffer_str(&parent->answer.notes));
    json_end_object(&w);
    buffer_puts(&parent->answer.text, "\n");
}

void record_finish(Record *r, const BatchTask *task) {
    Record *parent = r->parent;

    // A text that cannot be continued is incomplete; the same request would end there again.
    // Without memory, or without all log-probabilities of the prompt, there is no answer.
    const Sequence *s = &r->sequence;
    bool has_failed = s->finish == FINISH_ERROR;
    if (has_failed && (s->lacks_memory || r->request.first_scored || !task->has_text)) {
        if (task->only) die_error(&s->error);
        record_fail(r, s->lacks_memory ? "out_of_memory" : "generation_failed", s->error.text);
        return;
    }
    if (has_failed && !parent->answer.failure)
        parent->answer.failure = text_format("%s", s->error.text);

    Error invalid;
    Buffer *notes = &parent->answer.notes;
    if (!completion_check(s, &invalid))
        buffer_printf(notes, "%s%s", notes->len ? "; " : "", invalid.text);

    task->take(r);
    parent->answer.is_incomplete |= completion_is_incomplete(&r->sequence);
    parent->answer.n_generated += r->sequence.n_generated;
    parent->answer.n_cut += r->sequence.n_cut > 0;
    r->state = RECORD_DONE;
    if (--parent->answer.n_unfinished || parent->answer.has_failed) return;
    complete_answer(parent, task); // the last choice to finish
}

void record_fail(Record *r, const char *code, const char *message) {
    Record *parent = r->parent;
    r->state = RECORD_DONE;
    parent->answer.n_unfinished--;
    if (parent->answer.has_failed) return; // another choice has reported an error
    parent->answer.has_failed = true;

    char *text = text_format("line %ld: %s", parent->line.number, message);
    JsonWriter w = begin_answer(parent);
    if (parent->line.form == FORM_SHORT)
        json_write_int(&w, "line", parent->line.number);
    else
        json_write_null(&w, "response");

    json_begin_object(&w, "error");
    json_write_string(&w, "code", str_of(code));
    json_write_string(&w, "message", str_of(text));
    json_end_object(&w);

    json_end_object(&w);
    buffer_puts(&parent->answer.text, "\n");
    free(text);
}
