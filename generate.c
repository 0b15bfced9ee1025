#include "generate.h"

#include <stdlib.h>
#include <string.h>

volatile int generate_interrupted;

enum { DEFAULT_CHUNK = 512 };

const char *finish_name(Finish f) {
    static const char *const names[] = {"running", "stop", "length", "cancel", "error"};
    return names[f];
}

void generator_init(Generator *g, Model *m, const Tokenizer *t, int chunk, int parallel) {
    *g = (Generator){.model = m, .tokenizer = t};
    g->max_steps = chunk > 0 ? chunk : DEFAULT_CHUNK;
    if (g->max_steps > m->config.max_context) g->max_steps = m->config.max_context;
    if (g->max_steps < parallel) g->max_steps = parallel;
    g->steps = xalloc((size_t)g->max_steps, sizeof *g->steps);
    g->workspace = workspace_new(m, g->max_steps, parallel);
}

void sequence_start(Sequence *s, Generator *g, const Request *r, Session *session) {
    int n_cached = session->n_tokens;
    *s = (Sequence){.request = *r, .session = session, .n_cached = n_cached, .n_fed = n_cached, .stop_token = -1};
    s->sampler = sampler_new(&r->sample, g->model->config.vocab_size);
    s->drop_space = r->n_prompt <= 1 && tokenizer_drops_space(g->tokenizer);
    if (r->max_tokens == 0) s->finish = FINISH_LENGTH;
}

void sequence_free(Sequence *s) {
    sampler_free(s->sampler);
    buffer_free(&s->text);
    for (int i = 0; s->logprobs && i < s->n_generated; i++) free(s->logprobs[i].top);
    free(s->logprobs);
    *s = (Sequence){0};
}

// Hands bytes [n_emitted, end) of the text out.
static void emit_until(Sequence *s, size_t end) {
    if (end <= s->n_emitted) return;
    const char *from = s->text.data + s->n_emitted;
    size_t n = end - s->n_emitted;
    s->n_emitted = end;
    if (s->request.emit && !s->request.emit(s->request.arg, from, n)) s->finish = FINISH_CANCEL;
}

// Offset of the first stop string that ends after byte `from`, or SIZE_MAX.
static size_t find_stop(const Sequence *s, size_t from) {
    size_t found = SIZE_MAX;
    for (int i = 0; i < s->request.n_stops; i++) {
        Str stop = s->request.stops[i];
        if (stop.len == 0) continue;
        for (size_t at = from > stop.len ? from - stop.len + 1 : 0; at + stop.len <= s->text.len && at < found; at++)
            if (!memcmp(s->text.data + at, stop.data, stop.len)) found = at;
    }
    return found;
}

// How much of the text cannot be the beginning of a stop string that is still to be completed.
static size_t safe_length(const Sequence *s) {
    size_t held = 0;
    for (int i = 0; i < s->request.n_stops; i++) {
        Str stop = s->request.stops[i];
        for (size_t k = stop.len < s->text.len + 1 ? stop.len : s->text.len + 1; k-- > held + 1;)
            if (!memcmp(s->text.data + s->text.len - k, stop.data, k)) {
                held = k;
                break;
            }
    }
    return s->text.len - held;
}

static void record_logprob(Sequence *s, const float *logits, int n_vocab, int token) {
    int n = s->request.n_logprobs;
    s->logprobs = xrealloc(s->logprobs, (size_t)s->n_generated + 1, sizeof *s->logprobs);
    TokenLogprob *l = &s->logprobs[s->n_generated];
    *l = (TokenLogprob){token, logits_logprob(logits, n_vocab, token), xrealloc(NULL, (size_t)n, sizeof(Alternative))};
    logits_top(logits, n_vocab, l->top, n);
}

// The text grows by one token; what is safe is shown.
static void append_token(Sequence *s, const Generator *g, int token) {
    Str piece = tokenizer_piece(g->tokenizer, token, false);
    if (s->drop_space && piece.len && piece.data[0] == ' ') piece = (Str){piece.data + 1, piece.len - 1};
    s->drop_space = s->drop_space && piece.len == 0;
    size_t before = s->text.len;
    buffer_put(&s->text, piece);
    size_t stop = find_stop(s, before);
    if (stop != SIZE_MAX) {
        s->text.len = stop;
        s->text.data[stop] = 0;
        s->finish = FINISH_STOP;
    } else if (s->text.len > s->n_emitted) {
        size_t safe = safe_length(s);
        if (safe > s->n_emitted)
            emit_until(s, s->n_emitted + utf8_complete(s->text.data + s->n_emitted, safe - s->n_emitted));
    }
}

// Logits in, one token further.
static void advance(Sequence *s, const Generator *g, const float *logits) {
    int n_vocab = g->model->config.vocab_size;
    int token = sampler_next(s->sampler, logits, s->session->tokens, s->session->n_tokens);
    if (token < 0) {
        error_set(&s->error, EXIT_RUNTIME, "no token can be sampled at position %d: the logits hold NaN or infinity",
                  s->session->n_tokens);
        s->finish = FINISH_ERROR;
    } else if (tokenizer_is_stop(g->tokenizer, token) && !s->request.ignore_eos) {
        s->stop_token = token;
        s->finish = FINISH_STOP;
    } else {
        if (s->request.n_logprobs) record_logprob(s, logits, n_vocab, token);
        s->n_generated++;
        s->next = token;
        append_token(s, g, token);
        bool is_full = s->session->n_tokens >= s->request.max_context;
        bool is_enough = s->request.max_tokens >= 0 && s->n_generated >= s->request.max_tokens;
        if (s->finish == FINISH_NONE && (is_full || is_enough)) s->finish = FINISH_LENGTH;
    }
    if (s->finish != FINISH_NONE && s->finish != FINISH_CANCEL) emit_until(s, s->text.len);
}

// Adds n steps of a sequence: its next prompt tokens, or the token sampled last.
static int add_steps(Sequence *s, Step *steps, int n) {
    int n_tokens = s->session->n_tokens;
    if (!session_reserve(s->session, n_tokens + n, &s->error)) {
        s->finish = FINISH_ERROR;
        return 0;
    }
    for (int i = 0; i < n; i++) {
        bool is_prompt = s->n_fed < s->request.n_prompt;
        int token = is_prompt ? s->request.prompt[s->n_fed++] : s->next;
        steps[i] = (Step){s->session, token, n_tokens + i, s->n_fed == s->request.n_prompt};
    }
    return n;
}

bool generate_step(Generator *g, Sequence *const *sequences, int n) {
    int n_steps = 0, n_decode = 0, n_wanted = 0;
    Sequence *wanted[n > 0 ? n : 1];
    bool is_fed[n > 0 ? n : 1];
    for (int pass = 0; pass < 2; pass++) { // first all that decode, then prompts in the steps that remain
        for (int i = 0; i < n; i++) {
            Sequence *s = sequences[i];
            if (pass == 0) is_fed[i] = false;
            if (generate_interrupted && s->finish == FINISH_NONE) s->finish = FINISH_CANCEL;
            int n_left = s->request.n_prompt - s->n_fed, n_free = g->max_steps - n_steps;
            if (s->finish != FINISH_NONE || is_fed[i] || (n_left > 0) != pass || n_free == 0) continue;
            int added = add_steps(s, g->steps + n_steps, pass == 0 ? 1 : n_left < n_free ? n_left : n_free);
            if (added == 0) continue;
            is_fed[i] = true;
            n_steps += added;
            if (pass == 0) n_decode += added;
            if (s->n_fed == s->request.n_prompt) wanted[n_wanted++] = s;
        }
    }
    if (n_steps == 0) return false;

    double start = now_sec();
    const float *logits = model_forward(g->model, g->workspace, g->steps, n_steps);
    double sec = now_sec() - start;
    *(n_decode ? &g->decode_sec : &g->prefill_sec) += sec;
    g->n_decode += (uint64_t)n_decode;
    g->n_prefill += (uint64_t)(n_steps - n_decode);
    for (int i = 0; i < n; i++)
        if (is_fed[i]) *(sequences[i]->n_generated ? &sequences[i]->decode_sec : &sequences[i]->prefill_sec) += sec;
    for (int i = 0; i < n_wanted; i++) advance(wanted[i], g, logits + (size_t)i * (size_t)g->model->config.vocab_size);
    return true;
}

void generate(Generator *g, Sequence *s, const Request *r, Session *session) {
    sequence_start(s, g, r, session);
    while (s->finish == FINISH_NONE && generate_step(g, &s, 1)) {
    }
}
