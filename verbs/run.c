// run: one prompt, one text.
#include "verbs.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

// A token and its log-probability, as an object that stays open: in our form, or OpenAI's.
static void put_token(Buffer *out, const char *before, const Tokenizer *t, int id, float logprob, bool is_openai) {
    Str piece = tokenizer_piece(t, id, true);
    buffer_puts(out, before);
    if (is_openai)
        json_put_string(out, "{\"token\":", piece);
    else
        buffer_printf(out, "{\"id\":%d", id), json_put_string(out, ",\"token\":", piece);
    json_put_number(out, ",\"logprob\":", (double)logprob);
    if (!is_openai) return;
    buffer_puts(out, ",\"bytes\":[");
    for (size_t i = 0; i < piece.len; i++) buffer_printf(out, "%s%d", i ? "," : "", (unsigned char)piece.data[i]);
    buffer_puts(out, "]");
}

void logprobs_put(Buffer *out, const Tokenizer *t, const Sequence *s, int n_top, bool is_openai) {
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

void answer_put(Buffer *out, const char *before, Str text, const Sequence *s, int n_prompt) {
    json_put_string(out, before, text);
    buffer_printf(out, ",\"finish_reason\":\"%s\",\"n_prompt\":%d,\"n_generated\":%d,\"seed\":%lld",
                  finish_name(s->finish), n_prompt, s->n_generated, (long long)s->request.sample.seed);
}

static void print_json(const Tokenizer *t, const Sequence *s) {
    Buffer out = {0};
    answer_put(&out, "{\"text\":", buffer_str(&s->text), s, s->request.n_prompt);
    buffer_printf(&out, ",\"prefill_sec\":%.6f,\"decode_sec\":%.6f", s->prefill_sec, s->decode_sec);
    if (s->request.n_logprobs) {
        buffer_puts(&out, ",\"logprobs\":");
        logprobs_put(&out, t, s, s->request.n_logprobs, false);
    }
    buffer_puts(&out, "}\n");
    text_print(&out);
}

int verb_run(const Options *o) {
    static Engine e;
    static Buffer prompt;
    static Ids ids;
    static Generator g;
    static Sequence s;
    if (o->logprobs && !o->is_json) die(EXIT_USAGE, "--logprobs: expected --json beside it");
    prompt_read(o, &prompt);
    engine_open(&e, o);
    prompt_encode(&e, buffer_str(&prompt), o->is_raw, &ids);
    int n = predict_choose(o, e.tpl, o->is_raw), context = context_choose(&e, ids.len, n);
    if (ids.len > context || (ids.len == context && n != 0))
        die(EXIT_CONTEXT, "the prompt does not fit the context: %d tokens, context %d", ids.len, context);
    memory_check(&e.model, (size_t)(n >= 0 ? ids.len : context));

    generator_init(&g, &e.model, e.tokenizer, o->chunk ? o->chunk : ids.len < 512 ? ids.len : 512, 1);
    Request request = request_make(o, n, context);
    request.prompt = ids.data, request.n_prompt = ids.len;
    request.n_logprobs = o->logprobs;
    request.emit = o->is_json ? NULL : text_emit;
    request.sample.seed = e.seed;
    if (o->has_echo && !o->is_json) text_write(prompt.data, prompt.len);
    generate(&g, &s, &request, session_new(&e.model));
    if (s.finish == FINISH_ERROR) die_error(&s.error);
    if (o->is_json)
        print_json(e.tokenizer, &s);
    else if (s.text.len == 0 || s.text.data[s.text.len - 1] != '\n')
        text_write("\n", 1);
    stats_print(o, &g, e.seed);
    return s.finish == FINISH_CANCEL ? EXIT_INTERRUPTED : EXIT_OK;
}
