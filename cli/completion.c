// The tokens of a completion are in its session, except for the last one if it is still pending;
// the text is in the Sequence. reply_parse() looks for reasoning and tool calls in the text with
// special tokens.
#include "cli/completion.h"
#include "generate/answer.h"

// Opens an object and writes a token and its log-probability into it.
static void begin_token(JsonWriter *w, const Tokenizer *t, int id, float logprob, bool is_openai) {
    Str piece = tokenizer_piece(t, id, true);
    json_begin_object(w, NULL);
    if (!is_openai) json_write_int(w, "id", id);
    json_write_string(w, "token", piece);
    json_write_number(w, "logprob", (double)logprob);
    if (!is_openai) return;
    json_begin_array(w, "bytes");
    for (size_t i = 0; i < piece.len; i++) json_write_int(w, NULL, (unsigned char)piece.data[i]);
    json_end_array(w);
}

void completion_write_logprobs(JsonWriter *w, const char *key, const Tokenizer *t,
                               const TokenLogprob *tokens, int n, int n_top, bool is_openai) {
    json_begin_array(w, key);
    for (const TokenLogprob *l = tokens; l < tokens + n; l++) {
        begin_token(w, t, l->id, l->logprob, is_openai);
        json_begin_array(w, is_openai ? "top_logprobs" : "top");
        for (int k = 0; l->top && k < n_top; k++) {
            begin_token(w, t, l->top[k].id, l->top[k].logprob, is_openai);
            json_end_object(w);
        }
        json_end_array(w);
        json_end_object(w);
    }

    json_end_array(w);
}

static bool is_ended(const Sequence *s) {
    return s->finish >= FINISH_STOP && s->finish <= FINISH_LOOP;
}

bool completion_is_incomplete(const Sequence *s) {
    const Constraint *c = s->request.constraint;
    Error err;
    if (s->finish == FINISH_ERROR) return true;
    if (!c || !is_ended(s)) return false;
    return !answer_matches(c->arg, buffer_str(&s->text), true) || !completion_check(s, &err);
}

bool completion_check(const Sequence *s, Error *err) {
    const Constraint *c = s->request.constraint;
    Str text = buffer_str(&s->text);
    if (!c || !is_ended(s) || !answer_matches(c->arg, text, true)) return true;
    return answer_check(c->arg, text, err);
}

const char *completion_finish_reason(const Reply *r, const Sequence *s) {
    static const char *const names[] = {"none", "stop", "length", "repetition", "cancel", "error"};
    return r->n_calls && s->finish == FINISH_STOP ? "tool_calls" : names[s->finish];
}

// The last token may not be in the session yet: it is fed with the next forward pass.
void completion_ids_from(const Sequence *s, int first, Ids *out) {
    first += s->request.n_prompt - s->request.start.n_tokens;
    for (int i = first; i < s->request.n_prompt + s->n_generated; i++)
        ids_push(out, i < s->session->n_tokens ? s->session->tokens[i] : s->pending);
}

void completion_ids(const Sequence *s, Ids *out) { completion_ids_from(s, 0, out); }

void completion_text(const Sequence *s, Buffer *out) {
    buffer_put(out, s->request.start.text);
    buffer_put(out, buffer_str(&s->text));
}

void completion_parse(Reply *r, const Template *tpl, const Tokenizer *t, const Sequence *s,
                      ToolOffer offer, int n_before) {
    Ids ids = {0};
    Buffer raw = {0}, shown = {0};
    if (!tpl || tpl->is_none) {
        *r = (Reply){.content = str_copy(buffer_str(&s->text))};
        return;
    }

    completion_ids(s, &ids);
    completion_text(s, &shown);
    reply_put_raw(t, ids.data, ids.len, &raw);
    raw.len -= (size_t)s->n_cut;

    int n_prompt = s->request.n_prompt - s->request.start.n_tokens;
    ReplyText text = {.raw = buffer_str(&raw), .shown = buffer_str(&shown)};
    text.in_reasoning = answer_begins_in_reasoning(t, s->request.prompt, n_prompt);
    text.may_think = s->request.reasoning != REASONING_NEVER;
    text.is_truncated = s->finish != FINISH_STOP;
    reply_parse(r, tpl, &text, offer, n_before);

    // Tokens count where they begin. The tags count as neither.
    size_t at = 0;
    for (int i = 0; i < ids.len; i++) {
        r->n_reasoning += at >= r->begin && at < r->end;
        r->n_answer += at >= r->answer;
        at += tokenizer_piece(t, ids.data[i], true).len;
    }
    buffer_free(&raw);
    buffer_free(&shown);
    free(ids.data);
}

Str completion_rest(const Reply *r, const Sequence *s) {
    size_t n = r->content.len > s->text.len && !r->n_calls ? r->content.len - s->text.len : 0;
    if (!s->request.start.text.len) n = 0;
    return (Str){r->content.data + n, r->content.len - n};
}

void completion_write(JsonWriter *w, const char *text_key, const Reply *r, const Sequence *s,
                      int n_prompt) {
    if (s->request.start.text.len) json_write_string(w, "answer", s->request.start.text);
    json_write_string(w, text_key, completion_rest(r, s));
    reply_write_extras(w, r, true);
    json_write_string(w, "finish_reason", str_of(completion_finish_reason(r, s)));
    if (completion_is_incomplete(s)) json_write_bool(w, "incomplete", true);
    json_write_int(w, "n_prompt", n_prompt);
    json_write_int(w, "n_generated", s->n_generated);
    if (r->reasoning.data) {
        json_write_int(w, "n_reasoning", r->n_reasoning);
        json_write_int(w, "n_answer", r->n_answer);
    }
    json_write_int(w, "seed", (int64_t)s->request.sample.seed);
}
