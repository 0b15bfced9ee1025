#include "completion.h"
#include "../base/json.h"

#include <stdlib.h>

// A token and its log-probability, as an object that stays open: in our form, or OpenAI's.
static void put_token(Buffer *out, const char *before, const Tokenizer *t, int id, float logprob,
                      bool is_openai) {
    Str piece = tokenizer_piece(t, id, true);
    buffer_puts(out, before);
    if (is_openai)
        json_put_string(out, "{\"token\":", piece);
    else
        buffer_printf(out, "{\"id\":%d", id), json_put_string(out, ",\"token\":", piece);
    json_put_number(out, ",\"logprob\":", (double)logprob);
    if (!is_openai) return;
    buffer_puts(out, ",\"bytes\":[");
    for (size_t i = 0; i < piece.len; i++)
        buffer_printf(out, "%s%d", i ? "," : "", (unsigned char)piece.data[i]);
    buffer_puts(out, "]");
}

void completion_put_logprobs(Buffer *out, const Tokenizer *t, const Sequence *s, int n_top,
                             bool is_openai) {
    buffer_puts(out, "[");
    for (int i = 0; i < s->n_generated; i++) {
        const TokenLogprob *l = &s->logprobs[i];
        put_token(out, i ? "," : "", t, l->id, l->logprob, is_openai);
        buffer_puts(out, is_openai ? ",\"top_logprobs\":[" : ",\"top\":[");
        for (int k = 0; k < n_top; k++) {
            put_token(out, k ? "," : "", t, l->top[k].id, l->top[k].logprob, is_openai);
            buffer_puts(out, "}");
        }
        buffer_puts(out, "]}");
    }
    buffer_puts(out, "]");
}

const char *completion_finish_reason(const Reply *r, const Sequence *s) {
    return r->n_calls && s->finish == FINISH_STOP ? "tool_calls" : finish_name(s->finish);
}

void completion_ids(const Sequence *s, Ids *out) {
    int first = s->request.n_prompt;
    for (int i = 0; i < s->n_generated; i++)
        ids_push(out, first + i < s->session->n_tokens ? s->session->tokens[first + i] : s->next);
}

void completion_parse(Reply *r, const Template *tpl, const Tokenizer *t, const Sequence *s,
                      bool has_tools, int n_before) {
    Ids ids = {0};
    Buffer raw = {0};
    if (!tpl || tpl->is_none) {
        *r = (Reply){.content = str_copy(buffer_str(&s->text))};
        return;
    }
    completion_ids(s, &ids);
    reply_put_raw(t, ids.data, ids.len, &raw);
    bool in_reasoning = reply_begins_in_reasoning(t, s->request.prompt, s->request.n_prompt);
    reply_parse(r, tpl, buffer_str(&raw), buffer_str(&s->text), in_reasoning, has_tools, n_before);
    buffer_free(&raw);
    free(ids.data);
}

void completion_put_members(Buffer *out, const char *before, const Reply *r, const Sequence *s,
                            int n_prompt) {
    json_put_string(out, before, r->content);
    reply_put_extras(out, r);
    buffer_printf(out, ",\"finish_reason\":\"%s\",\"n_prompt\":%d,\"n_generated\":%d,\"seed\":%lld",
                  completion_finish_reason(r, s), n_prompt, s->n_generated,
                  (long long)s->request.sample.seed);
}
