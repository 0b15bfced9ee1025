// See request.h.
#include "cli/request.h"
#include "cli/open_answer.h"
#include "cli/output.h"
#include "base/os/os.h"
#include "tokenizer/continuation.h"

#include <stdio.h>

enum { PLAIN_PREDICT = 256 }; // default -n of plain text, which has no natural end

bool prompt_encode(const Pipeline *p, const Settings *s, Str prompt, bool is_plain, Ids *out,
                   Error *err) {
    const Tokenizer *t = p->tokenizer;
    bool has_special = p->options->prompt.has_special;

    if (!is_plain && !p->tpl.is_none) {
        if (str_is_blank(prompt)) return error_set(err, EXIT_USAGE, "the prompt is empty");

        bool has_system = p->system.data;
        Message messages[2] = {message_make(str_of("system"), p->system),
                               message_make(str_of("user"), prompt)};
        TemplateInput in = {.messages = messages + !has_system,
                            .n_messages = 1 + has_system,
                            .tools = p->tools,
                            .variables = s->variables,
                            .wants_answer = true,
                            .reasoning = settings_reasoning(s)};
        bool ok = template_encode(&p->tpl, t, &in, out, err);

        message_free(&messages[0]);
        message_free(&messages[1]);
        return ok;
    }

    // A text that begins with BOS needs no other.
    Str bos = tokenizer_piece(t, tokenizer_bos(t), true);
    bool has_bos = has_special && bos.len && str_has_prefix(prompt, bos);
    if (has_bos && tokenizer_adds_bos(t))
        note(p->options, "the text begins with %.*s; no other is added", SHOWN(bos));
    else if (tokenizer_adds_bos(t))
        ids_push(out, tokenizer_bos(t));
    tokenizer_encode(t, prompt, has_special, out);
    if (out->len == 0 && tokenizer_bos(t) >= 0) ids_push(out, tokenizer_bos(t));
    return true;
}

bool request_begin_answer(const Pipeline *p, Str text, Ids *prompt, Request *r, Error *err) {
    const Tokenizer *t = p->tokenizer;
    int n = prompt->len;
    Str before = tokenizer_piece(t, n ? prompt->data[n - 1] : -1, false);
    bool has_space =
        p->tpl.has_space && text.len && *text.data != ' ' && !str_ends_with(before, " ");
    if (p->tpl.is_none)
        return error_set(err, EXIT_USAGE,
                         "the beginning of an answer needs a chat template (--template)");

    Str all = str_of(text_format("%s%.*s", has_space ? " " : "", (int)text.len, text.data));
    size_t n_word = continuation_encode_begun(t, all, prompt);
    r->start = (AnswerStart){.all = all,
                             .text = {all.data + has_space, all.len - has_space},
                             .word = {all.data + all.len - n_word, n_word},
                             .n_tokens = prompt->len - n};
    return request_set_prompt(p, prompt, r, err);
}

// The context size of a session: -c or, without it, as many positions as n_predict needs.
static int context_choose(const Pipeline *p, int n_prompt, int n_predict) {
    long most = p->model.config.max_context, need = (long)n_prompt + n_predict;
    if (p->ctx) return p->ctx;
    if (n_predict < 0) // unlimited
        need = n_prompt > DEFAULT_CONTEXT / 2 ? n_prompt + DEFAULT_CONTEXT / 2L : DEFAULT_CONTEXT;
    return (int)(need < most ? need : most);
}

bool context_fits(int n_tokens, bool needs_next, int context, Error *err) {
    return n_tokens + needs_next <= context ||
           error_set(err, EXIT_CONTEXT,
                     "the prompt does not fit the context: %d tokens%s, context %d", n_tokens,
                     n_tokens == context ? " and one to generate" : "", context);
}

bool text_may_fit(const Pipeline *p, size_t n_bytes, Error *err) {
    int context = p->ctx ? p->ctx : p->model.config.max_context;
    size_t n = tokenizer_min_tokens(p->tokenizer, n_bytes);
    return n <= (size_t)context ||
           error_set(err, EXIT_CONTEXT,
                     "the prompt does not fit the context: at least %zu tokens, context %d", n,
                     context);
}

bool request_set_prompt(const Pipeline *p, const Ids *prompt, Request *r, Error *err) {
    if (!prompt->len) return error_set(err, EXIT_USAGE, "the prompt is empty");
    r->prompt = prompt->data;
    r->n_prompt = prompt->len;
    r->max_context = context_choose(p, prompt->len, r->max_tokens);
    return context_fits(prompt->len, r->max_tokens != 0, r->max_context, err);
}

bool request_from_settings(const Pipeline *p, const Settings *s, const Ids *prompt, bool is_plain,
                           Request *r, Error *err) {
    bool is_chat = !is_plain && !p->tpl.is_none;
    int n = is_chat ? -1 : PLAIN_PREDICT;
    if (s->n_predict != INT_MIN) n = s->n_predict;

    *r = (Request){.max_tokens = n,
                   .ignore_eos = s->ignore_eos,
                   .stops_loops = !s->no_loop_stop && !s->ignore_eos,
                   .min_tokens = s->min_tokens,
                   .sample = s->sample,
                   .stops = {s->stops, s->n_stops, s->stop_ids.data, s->stop_ids.len},
                   .n_logprobs = s->n_logprobs};
    r->sample.dry.tokenizer = p->tokenizer;
    if (is_chat && answer_begins_in_reasoning(p->tokenizer, prompt->data, prompt->len))
        r->reasoning = REASONING_BEGUN;
    else if (is_chat && (p->tpl.has_reasoning || settings_reasoning(s) == REASONING_ON))
        r->reasoning = REASONING_MAYBE;
    if (n >= 0 && s->min_tokens > n)
        return error_set(err, EXIT_USAGE, "min_tokens: expected at most max_tokens, %d, found %d",
                         n, s->min_tokens);
    return request_set_prompt(p, prompt, r, err);
}

const char *kv_type_text(const KvShape *kv, char text[KV_TYPE_TEXT]) {
    const char *keys = type_info(kv->k_type)->name, *values = type_info(kv->v_type)->name;
    snprintf(text, KV_TYPE_TEXT, keys == values ? "%s" : "%s,%s", keys, values);
    return text;
}

bool kv_memory_check(const Model *m, size_t n_positions, Error *err) {
    char need[24], most[24], type[KV_TYPE_TEXT];
    double bytes = (double)n_positions * (double)kv_position_bytes(&m->kv);
    double available = (double)os_memory_available();
    return bytes <= available ||
           error_set(err, EXIT_RUNTIME,
                     "%zu positions need %s of KV cache (%s), %s are available; use a smaller "
                     "context (-c) or type (--kv)",
                     n_positions, scaled(need, bytes, "B"), kv_type_text(&m->kv, type),
                     scaled(most, available, "B"));
}
