// Building blocks of a request: tokens, context size, sampling options. What does not fit is
// refused here, before any computation.
#include "request.h"
#include "../os/os.h"

#include <limits.h>

enum { PLAIN_PREDICT = 256 }; // default -n of plain text, which has no natural end

bool prompt_encode(const Pipeline *p, Str prompt, bool is_plain, Ids *out, Error *err) {
    const Tokenizer *t = p->tokenizer;
    if (!is_plain && !p->tpl.is_none) {
        bool has_system = p->system.data;
        Message messages[2] = {message_make(str_of("system"), p->system),
                               message_make(str_of("user"), prompt)};
        TemplateInput in = {.messages = messages + !has_system,
                            .n_messages = 1 + has_system,
                            .tools = p->tools,
                            .wants_answer = true};
        bool ok = template_encode(&p->tpl, t, &in, out, err);
        message_free(&messages[0]);
        message_free(&messages[1]);
        return ok;
    }
    if (tokenizer_adds_bos(t)) ids_push(out, tokenizer_bos(t));
    (p->options->has_special ? tokenizer_encode_special : tokenizer_encode)(t, prompt.data,
                                                                            prompt.len, out);
    if (out->len == 0 && tokenizer_bos(t) >= 0) ids_push(out, tokenizer_bos(t));
    return true;
}

// Positions that the session may reach: -c or, without it, as many as n_predict needs.
static int context_choose(const Pipeline *p, int n_prompt, int n_predict) {
    long most = p->model.config.max_context, need = (long)n_prompt + n_predict;
    if (p->options->ctx) return p->options->ctx;
    if (n_predict < 0) // unlimited
        need = n_prompt > DEFAULT_CONTEXT / 2 ? n_prompt + DEFAULT_CONTEXT / 2L : DEFAULT_CONTEXT;
    return (int)(need < most ? need : most);
}

bool context_fits(int n_tokens, bool needs_next, int context, Error *err) {
    return n_tokens + needs_next <= context ||
           error_set(err, EXIT_CONTEXT,
                     "the prompt does not fit the context: %d tokens, context %d", n_tokens,
                     context);
}

bool request_from_options(const Pipeline *p, const Options *o, const Ids *prompt, bool is_plain,
                          Request *r, Error *err) {
    bool is_chat = !is_plain && !p->tpl.is_none;
    int n = o->n_predict != INT_MIN ? o->n_predict : is_chat ? -1 : PLAIN_PREDICT;
    *r = (Request){.prompt = prompt->data,
                   .n_prompt = prompt->len,
                   .max_tokens = n,
                   .max_context = context_choose(p, prompt->len, n),
                   .ignore_eos = o->ignore_eos,
                   .sample = o->sample,
                   .stops = o->stops,
                   .n_stops = o->n_stops,
                   .n_logprobs = o->logprobs};
    return context_fits(prompt->len, n != 0, r->max_context, err);
}

bool kv_memory_fits(const Model *m, size_t n_positions) {
    size_t need;
    return size_mul(n_positions, kv_position_bytes(&m->kv), &need) && need <= os_memory_available();
}

void kv_memory_check(const Model *m, size_t n_positions) {
    if (kv_memory_fits(m, n_positions)) return;
    die(EXIT_RUNTIME,
        "a KV cache of %zu positions needs %zu MiB, available are %zu MiB; use a smaller -c, or "
        "--kv q8_0",
        n_positions, n_positions * kv_position_bytes(&m->kv) >> 20, os_memory_available() >> 20);
}
