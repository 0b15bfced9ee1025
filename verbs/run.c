// run: one prompt, one text.
#include "verbs.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { BASE_PREDICT = 256, DEFAULT_CONTEXT = 8192 };

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

static void print_json(const Tokenizer *t, const Sequence *s, uint64_t seed) {
    Buffer out = {0};
    json_put_string(&out, "{\"text\":", (Str){s->text.data, s->text.len});
    buffer_printf(&out,
                  ",\"finish_reason\":\"%s\",\"n_prompt\":%d,\"n_generated\":%d,\"seed\":%llu,\"prefill_sec\":%.6f,"
                  "\"decode_sec\":%.6f",
                  finish_name(s->finish), s->request.n_prompt, s->n_generated, (unsigned long long)seed, s->prefill_sec,
                  s->decode_sec);
    if (s->request.n_logprobs) {
        buffer_puts(&out, ",\"logprobs\":");
        logprobs_put(&out, t, s, s->request.n_logprobs, false);
    }
    buffer_puts(&out, "}\n");
    text_write(out.data, out.len);
    buffer_free(&out);
}

Template template_choose(const Options *o, const Gguf *g, const Tokenizer *t) {
    bool is_unknown;
    if (o->template_name) {
        int chosen = template_of(o->template_name);
        if (chosen < 0)
            die(EXIT_USAGE, "--template: expected llama3, llama2, zephyr, chatml or none, found \"%s\"",
                o->template_name);
        return (Template)chosen;
    }
    Template found = template_recognise(g, t, &is_unknown);
    if (is_unknown && !o->is_raw)
        die(EXIT_USAGE,
            "%s: its chat template is none that this program knows; choose one with --template "
            "llama3|llama2|zephyr|chatml|none",
            g->path);
    return found;
}

Str system_read(const Options *o, const Model *m, Template tpl) {
    Error err;
    Buffer text = {0};
    if (!o->system) return (Str){0};
    if (tpl == TEMPLATE_NONE)
        die(EXIT_USAGE, "-sys: %s has no chat template; choose one with --template", m->file.path);
    if (o->system[0] != '@') return str_copy(str_of(o->system));
    if (!file_read(o->system + 1, &text, &err)) die_error(&err);
    return (Str){text.data, text.len};
}

void prompt_encode(Template tpl, const Tokenizer *t, Str system, Str prompt, bool has_special, Ids *out) {
    if (tpl != TEMPLATE_NONE) {
        Message messages[2] = {{str_of("system"), system}, {str_of("user"), prompt}};
        template_encode(tpl, t, messages + !system.data, 1 + !!system.data, 0, true, out);
        return;
    }
    if (tokenizer_adds_bos(t)) ids_push(out, tokenizer_bos(t));
    (has_special ? tokenizer_encode_special : tokenizer_encode)(t, prompt.data, prompt.len, out);
    if (out->len == 0 && tokenizer_bos(t) >= 0) ids_push(out, tokenizer_bos(t));
}

int predict_default(Template tpl) { return tpl == TEMPLATE_NONE ? BASE_PREDICT : -1; }

int context_choose(const Options *o, const Model *m, int n_prompt, int n_predict) {
    if (o->ctx) return o->ctx;
    long roomy = n_prompt + DEFAULT_CONTEXT / 2L > DEFAULT_CONTEXT ? n_prompt + DEFAULT_CONTEXT / 2L : DEFAULT_CONTEXT;
    long need = n_predict >= 0 ? (long)n_prompt + n_predict : roomy;
    return need < m->config.max_context ? (int)need : m->config.max_context;
}

int verb_run(const Options *o) {
    Model model;
    Tokenizer *tokenizer;
    Buffer prompt = {0};
    Ids ids = {0};
    prompt_read(o, &prompt);
    model_load(o, &model, &tokenizer);
    Template tpl = o->is_raw ? TEMPLATE_NONE : template_choose(o, &model.file, tokenizer);
    Str system = system_read(o, &model, tpl);
    prompt_encode(tpl, tokenizer, system, (Str){prompt.data, prompt.len}, o->has_special, &ids);
    int n = o->n_predict != INT_MIN ? o->n_predict : predict_default(tpl);
    int context = context_choose(o, &model, ids.len, n);
    if (ids.len > context || (ids.len == context && n != 0))
        die(EXIT_CONTEXT, "the prompt does not fit the context: %d tokens, context %d", ids.len, context);
    memory_check(&model, (size_t)(n >= 0 ? ids.len : context));

    Generator g;
    generator_init(&g, &model, tokenizer, o->chunk ? o->chunk : ids.len < 512 ? ids.len : 512, 1);
    Request request = {.prompt = ids.data,
                       .n_prompt = ids.len,
                       .max_tokens = n,
                       .max_context = context,
                       .ignore_eos = o->ignore_eos,
                       .sample = o->sample,
                       .stops = o->stops,
                       .n_stops = o->n_stops,
                       .n_logprobs = o->is_json ? o->logprobs : 0,
                       .emit = o->is_json ? NULL : text_emit};
    if (!o->has_seed) request.sample.seed = seed_random();
    if (o->has_echo && !o->is_json) text_write(prompt.data, prompt.len);
    Session *session = session_new(&model);
    Sequence s;
    generate(&g, &s, &request, session);
    if (s.finish == FINISH_ERROR) die_error(&s.error);
    if (o->is_json)
        print_json(tokenizer, &s, request.sample.seed);
    else if (s.text.len == 0 || s.text.data[s.text.len - 1] != '\n')
        text_write("\n", 1);
    stats_print(o, &g, request.sample.seed);
    int code = s.finish == FINISH_CANCEL ? EXIT_INTERRUPTED : EXIT_OK;
    sequence_free(&s);
    session_free(session);
    generator_free(&g);
    tokenizer_close(tokenizer);
    model_close(&model);
    buffer_free(&prompt);
    free((char *)system.data);
    free(ids.data);
    return code;
}
