// Members are always written in the same order, so that equal answers are equal bytes.
#include "answers.h"
#include "engine.h"
#include "../base/json.h"
#include "output.h"

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

const char *answer_finish(const Reply *r, const Sequence *s) {
    return r->n_calls && s->finish == FINISH_STOP ? "tool_calls" : finish_name(s->finish);
}

void answer_ids(const Sequence *s, Ids *out) {
    int first = s->request.n_prompt;
    for (int i = 0; i < s->n_generated; i++)
        ids_push(out, first + i < s->session->n_tokens ? s->session->tokens[first + i] : s->next);
}

void answer_parse(Reply *r, const Template *tpl, const Tokenizer *t, const Sequence *s,
                  bool has_tools, int n_before) {
    Ids ids = {0};
    Buffer raw = {0};
    if (!tpl || tpl->is_none) {
        *r = (Reply){.content = str_copy(buffer_str(&s->text))};
        return;
    }
    answer_ids(s, &ids);
    reply_put_raw(t, ids.data, ids.len, &raw);
    bool in_reasoning = reply_begins_in_reasoning(t, s->request.prompt, s->request.n_prompt);
    reply_parse(r, tpl, buffer_str(&raw), buffer_str(&s->text), in_reasoning, has_tools, n_before);
    buffer_free(&raw);
    free(ids.data);
}

void answer_put(Buffer *out, const char *before, const Reply *r, const Sequence *s, int n_prompt) {
    json_put_string(out, before, r->content);
    reply_put_extras(out, r);
    buffer_printf(out, ",\"finish_reason\":\"%s\",\"n_prompt\":%d,\"n_generated\":%d,\"seed\":%lld",
                  answer_finish(r, s), n_prompt, s->n_generated, (long long)s->request.sample.seed);
}

// A speed in few columns.
static void put_speed(Buffer *out, const char *before, uint64_t n, double sec) {
    double per_sec = sec > 0 ? (double)n / sec : 0;
    buffer_printf(out, per_sec < 99.95 ? "%s %llu tok %.1f tok/s" : "%s %llu tok %.0f tok/s",
                  before, (unsigned long long)n, per_sec);
}

void answer_read(const Options *o, Generator *g, Sequence *s, const Request *r, Session *session) {
    sequence_start(s, g, r, session);
    int n_held = s->n_cached + s->n_taken, n = r->n_prompt - n_held;
    double start = now_sec();
    progress_read(o, 0, (uint64_t)n, start);
    while (s->finish == FINISH_NONE && s->n_fed < r->n_prompt && generate_step(g, &s, 1))
        if (s->n_fed < r->n_prompt) // else the first token may be on the screen
            progress_read(o, (uint64_t)(s->n_fed - n_held), (uint64_t)n, start);
    progress_end();
}

void answer_generate(const Options *o, Generator *g, Sequence *s, const Request *r,
                     Session *session) {
    answer_read(o, g, s, r, session);
    while (s->finish == FINISH_NONE && generate_step(g, &s, 1)) {
    }
}

// How often the end of a text says the same, at least 4 times and 100 bytes of it; else 0. By the
// shortest period of each ending (the prefix function of Knuth, Morris and Pratt, on the text
// backwards).
static int repetitions(Str text) {
    enum { SEEN = 2048, LEAST_BYTES = 100, LEAST_TIMES = 4 };
    static int prefix[SEEN];
    int n = text.len < SEEN ? (int)text.len : SEEN, times = 0;
    if (n == 0) return 0;
    const char *last = text.data + text.len - 1;
    for (int i = 1, k = 0; i < n; i++) {
        while (k && last[-i] != last[-k]) k = prefix[k - 1];
        prefix[i] = k += last[-i] == last[-k];
        int period = i + 1 - k;
        if (i + 1 >= LEAST_BYTES && (i + 1) / period > times) times = (i + 1) / period;
    }
    return times >= LEAST_TIMES ? times : 0;
}

void ending_print(const Options *o, const Generator *g, const Sequence *s) {
    const Request *r = &s->request;
    int times = repetitions(buffer_str(&s->text));
    if (times)
        note(o,
             "the end repeats itself %d times (--repeat-penalty 1.1 or a higher --temp may help)",
             times);
    if (s->finish != FINISH_LENGTH || r->max_tokens == 0) return;
    if (r->max_tokens > 0 && s->n_generated >= r->max_tokens)
        note(o, "ended: %d token%s (-n)", s->n_generated, s->n_generated > 1 ? "s" : "");
    else
        note(o, "ended: context full (%d, %s)", r->max_context,
             r->max_context < g->model->config.max_context ? "-c" : "the model's");
}

void stats_print(const Options *o, const Generator *g, uint64_t seed) {
    Buffer text = {0};
    put_speed(&text, "prefill", g->n_prefill, g->prefill_sec);
    if (g->n_taken)
        buffer_printf(&text, " | cached %llu of %llu tok", (unsigned long long)g->n_taken,
                      (unsigned long long)(g->n_taken + g->n_prefill));
    if (g->n_decode) put_speed(&text, " | decode", g->n_decode, g->decode_sec);
    if (g->n_decode && o->is_verbose)
        buffer_printf(&text, " %.1f GB/s",
                      (double)g->n_steps / g->decode_sec * model_decode_gb(g->model));
    if (g->n_drafted && o->is_verbose)
        buffer_printf(&text, " | guessed %llu of %llu tok", (unsigned long long)g->n_accepted,
                      (unsigned long long)g->n_drafted);
    if (o->sample.temp > 0) buffer_printf(&text, " | seed %lld", (long long)seed);
    note(o, "%s", text.data);
    buffer_free(&text);
}
