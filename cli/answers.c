#include "answers.h"
#include "engine.h"
#include "../base/json.h"
#include "output.h"

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

void stats_print(const Options *o, const Generator *g, uint64_t seed) {
    Buffer text = {0};
    buffer_printf(&text, "prefill %llu tok %.1f tok/s", (unsigned long long)g->n_prefill,
                  g->prefill_sec > 0 ? (double)g->n_prefill / g->prefill_sec : 0);
    if (g->n_decode) {
        double per_sec = (double)g->n_decode / g->decode_sec;
        buffer_printf(&text, " | decode %llu tok %.1f tok/s %.1f GB/s", (unsigned long long)g->n_decode, per_sec,
                      per_sec * model_decode_gb(g->model));
    }
    if (o->sample.temp > 0) buffer_printf(&text, " | seed %lld", (long long)seed);
    note(o, "%s", text.data);
    buffer_free(&text);
}
