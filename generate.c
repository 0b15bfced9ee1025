// A sequence is fed its prompt in chunks, then the token chosen last, with those that must follow
// it; what the logits say is taken token by token, as if each had been fed alone. Text is emitted
// as far as it can no longer change: not within a character, nor within what may become a stop
// string.
#include "generate.h"
#include "kernels/team.h"

#include <stdlib.h>
#include <string.h>

volatile int generate_interrupted;

const char *finish_name(Finish f) {
    static const char *const names[] = {"running", "stop", "length", "cancel", "error"};
    return names[f];
}

void generator_init(Generator *g, Model *m, const Tokenizer *t, int chunk, int parallel) {
    *g = (Generator){.model = m, .tokenizer = t};
    team_interrupted = &generate_interrupted;
    g->max_steps = chunk > 0 ? chunk : GENERATE_CHUNK;
    if (g->max_steps > m->config.max_context) g->max_steps = m->config.max_context;
    if (g->max_steps < parallel) g->max_steps = parallel;
    g->masked = xalloc((size_t)m->config.vocab_size, sizeof *g->masked);
    g->workspace =
        workspace_new(m, g->max_steps + GENERATE_LOOKAHEAD, parallel + GENERATE_LOOKAHEAD);
}

// What must come next; the text ends if nothing may.
static void ask_forced(Sequence *s) {
    s->at_forced = 0;
    s->n_forced = s->request.constraint->force(s->request.constraint->arg, s->forced);
    if (s->n_forced >= 0) return;
    s->n_forced = 0;
    if (s->finish == FINISH_NONE || s->finish == FINISH_LENGTH) s->finish = FINISH_STOP;
}

void sequence_start(Sequence *s, Generator *g, const Request *r, Session *session) {
    *s = (Sequence){
        .request = *r, .session = session, .n_cached = session->n_tokens, .stop_token = -1};
    if (g->cache) s->n_taken = cache_load(g->cache, session, r->prompt, r->n_prompt);
    g->n_taken += (uint64_t)s->n_taken;
    s->n_fed = session->n_tokens;
    s->n_kept = s->n_cached / KV_PAGE;
    s->sampler = sampler_new(&r->sample, g->model->config.vocab_size);
    s->drop_space = r->n_prompt <= 1 && tokenizer_has_space_prefix(g->tokenizer);
    if (g->draft) s->shadow = sampler_new(&r->sample, g->model->config.vocab_size);
    s->lookup = g->has_lookup ? lookup_new() : NULL;
    for (int i = 0; s->lookup && i < r->n_prompt; i++) lookup_push(s->lookup, r->prompt[i]);
    if (r->constraint) ask_forced(s);
    if (r->max_tokens == 0) s->finish = FINISH_LENGTH;
}

void sequence_free(Sequence *s) {
    sampler_free(s->sampler);
    sampler_free(s->shadow);
    lookup_free(s->lookup);
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
        for (size_t at = from > stop.len ? from - stop.len + 1 : 0;
             at + stop.len <= s->text.len && at < found; at++)
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

// Of the token just chosen: its own log-probability, and the best of all.
static void record_logprob(Sequence *s, const float *logits, int n_vocab, int token) {
    int n = s->request.n_logprobs;
    s->logprobs = xrealloc(s->logprobs, (size_t)s->n_generated + 1, sizeof *s->logprobs);
    TokenLogprob *l = &s->logprobs[s->n_generated];
    *l = (TokenLogprob){token, logits_logprob(logits, n_vocab, token),
                        xrealloc(NULL, (size_t)n, sizeof(Alternative))};
    logits_top(logits, n_vocab, l->top, n);
}

// The text grows by one token; what is safe is shown.
static void append_token(Sequence *s, const Generator *g, int token) {
    Str piece = tokenizer_piece(g->tokenizer, token, false);
    if (s->drop_space && piece.len && piece.data[0] == ' ')
        piece = (Str){piece.data + 1, piece.len - 1};
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
            emit_until(s, s->n_emitted +
                              utf8_complete(s->text.data + s->n_emitted, safe - s->n_emitted));
    }
}

// Draws a token from the logits of a position; n_recent tokens came before it. -1 with err if there
// is none.
static int draw(const Sequence *s, const Generator *g, const float *logits, int n_recent,
                Error *err) {
    const Constraint *c = s->request.constraint;
    if (c) {
        memcpy(g->masked, logits, (size_t)g->model->config.vocab_size * sizeof *logits);
        c->mask(c->arg, g->masked);
        logits = g->masked;
    }
    int token = sampler_next(s->sampler, logits, s->session->tokens, n_recent);
    if (token < 0)
        error_set(err, EXIT_RUNTIME,
                  "no token can be sampled at position %d: the logits hold NaN or infinity%s",
                  n_recent, c ? ", or none fits the constraint" : "");
    return token;
}

// One token further; n_recent came before it. Logits are those of its position, or NULL if they
// need not be known.
static void advance(Sequence *s, const Generator *g, const float *logits, int n_recent) {
    const Request *r = &s->request;
    bool is_forced = s->at_forced < s->n_forced;
    int token = is_forced ? s->forced[s->at_forced++] : draw(s, g, logits, n_recent, &s->error);
    if (token < 0) {
        s->finish = FINISH_ERROR;
    } else if (tokenizer_is_stop(g->tokenizer, token) && !r->ignore_eos) {
        s->stop_token = token;
        s->finish = FINISH_STOP;
    } else {
        if (r->n_logprobs) record_logprob(s, logits, g->model->config.vocab_size, token);
        s->n_generated++;
        s->next = token;
        if (s->lookup) lookup_push(s->lookup, token);
        append_token(s, g, token);
        bool is_full = n_recent >= r->max_context,
             is_enough = r->max_tokens >= 0 && s->n_generated >= r->max_tokens;
        if (s->finish == FINISH_NONE && (is_full || is_enough)) s->finish = FINISH_LENGTH;
    }
    if (r->constraint && token >= 0 && s->stop_token < 0) {
        r->constraint->accept(r->constraint->arg, token);
        if (s->at_forced == s->n_forced) ask_forced(s);
    }
    if (s->finish != FINISH_NONE && s->finish != FINISH_CANCEL) emit_until(s, s->text.len);
}

// Feeds the next of a sequence's prompt tokens, at most n. After pages of the cache the forwards
// end where they would without it.
static int feed_prompt(Sequence *s, Generator *g, int n) {
    const Request *r = &s->request;
    int n_left = r->n_prompt - s->n_fed, chunk = g->max_steps,
        n_before = (s->n_fed - s->n_cached) % chunk;
    if (s->n_taken && n > chunk - n_before) n = chunk - n_before;
    if (n > n_left) n = n_left;
    s->wanted = s->first_new = n_left - 1;
    s->kernel_rows = n_before + n;
    n = workspace_feed(g->workspace, s->session, r->prompt + s->n_fed, n, s->wanted, &s->error);
    if (n > 0) s->n_fed += n;
    return n;
}

// The draft model's guesses, at most n that pay in a step that feeds one token anyway.
static int guess_by_draft(Sequence *s, Generator *g, int *out, int n) {
    float trust[SPECULATE_MAX_DRAFT];
    int n_tokens = s->session->n_tokens, *tokens = s->session->tokens;
    double sec = draft_expect(g->draft, trust, n);
    n = cost_choose(&g->pace, 1, trust, n, sec);
    if (n == 0) return 0;
    int *all = xrealloc(NULL, (size_t)n_tokens + 1, sizeof *all);
    memcpy(all, tokens, (size_t)n_tokens * sizeof *all);
    all[n_tokens] = s->next;
    n = draft_propose(g->draft, s->shadow, s->sampler, all, n_tokens + 1, out, n);
    free(all);
    s->has_draft = n > 0;
    return n;
}

// Guesses at most n tokens that may follow the one chosen last: as many as pay in a step that feeds
// n_sure anyway.
static int guess(Sequence *s, Generator *g, int n_sure, int *out, int n) {
    float trust[SPECULATE_MAX_DRAFT];
    int tokens[SPECULATE_MAX_DRAFT],
        n_found = s->lookup ? lookup_draft(s->lookup, tokens, trust) : 0;
    int n_paying = cost_choose(&g->pace, n_sure, trust, n_found < n ? n_found : n, 0);
    memcpy(out, tokens, (size_t)n_paying * sizeof *out);
    if (n_paying == 0 && s->shadow && n_sure == 1) n_paying = guess_by_draft(s, g, out, n);
    g->n_drafted += (uint64_t)n_paying;
    return n_paying;
}

// Feeds the token chosen last, and at most n_more of those that must or may follow it. n_sure:
// tokens that the step feeds in any case, or 0 if none may be guessed.
static int feed_chosen(Sequence *s, Generator *g, int n_more, int n_sure) {
    const Request *r = &s->request;
    int tokens[1 + GENERATE_LOOKAHEAD] = {s->next}, n = 1;
    int n_free = r->max_context - s->session->n_tokens - 1,
        n_left = r->max_tokens - s->n_generated - 1;
    if (n_more > n_free) n_more = n_free;
    if (r->max_tokens >= 0 && n_more > n_left) n_more = n_left;
    for (int i = s->at_forced; i < s->n_forced && n <= n_more; i++) tokens[n++] = s->forced[i];
    s->first_new = 0;
    s->has_draft = false;
    s->kernel_rows = 1;
    s->wanted = r->n_logprobs ? 0 : n - 1;
    s->n_sure = n;
    if (n_sure && n == 1) n += guess(s, g, n_sure, tokens + 1, n_more);
    return workspace_feed(g->workspace, s->session, tokens, n, s->wanted, &s->error);
}

// Feeds all that go on: first those that have their prompt in, then prompts in the room that
// remains. Returns how many sequences there are.
static int feed_all(Generator *g, Sequence *const *sequences, int n) {
    int n_live = 0, n_fed = 0, n_ahead = GENERATE_LOOKAHEAD, n_room = g->max_steps;
    for (int i = 0; i < n; i++) {
        sequences[i]->n_now = 0;
        if (generate_interrupted && sequences[i]->finish == FINISH_NONE)
            sequences[i]->finish = FINISH_CANCEL;
        n_live += sequences[i]->finish == FINISH_NONE;
    }
    bool may_guess =
        n_live == 1 || g->model->is_batch_invariant; // else a longer step has other bits
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < n; i++) {
            Sequence *s = sequences[i];
            bool is_prompt = s->n_fed < s->request.n_prompt;
            if (s->finish != FINISH_NONE || is_prompt != pass || (is_prompt && n_room <= 0))
                continue;
            int n_sure = may_guess ? n_live + GENERATE_LOOKAHEAD - n_ahead : 0;
            s->n_now = is_prompt ? feed_prompt(s, g, n_room) : feed_chosen(s, g, n_ahead, n_sure);
            if (s->n_now < 0) s->finish = FINISH_ERROR, s->n_now = 0;
            if (s->n_now > 0) n_fed++;
            if (!is_prompt && s->n_now > 0) n_ahead -= s->n_now - 1;
            n_room -= s->n_now;
        }
    return n_fed;
}

// Takes what a forward says about a sequence's tokens, one after another, as if each had been fed
// alone: where the next is another than was fed, or the sequence ends, those behind are forgotten.
// `logits` are those of its first token that wants some. Returns how many of its tokens count.
static int take_logits(Sequence *s, const Generator *g, const float *logits) {
    size_t n_vocab = (size_t)g->model->config.vocab_size;
    int first = s->session->n_tokens - s->n_now;
    for (int i = s->first_new; i < s->n_now; i++) {
        const float *own = i < s->wanted ? NULL : logits + (size_t)(i - s->wanted) * n_vocab;
        advance(s, g, own, first + i + 1);
        if (i + 1 == s->n_now ||
            (s->finish == FINISH_NONE && s->next == s->session->tokens[first + i + 1]))
            continue;
        session_rewind(s->session, first + i + 1);
        return i + 1;
    }
    return s->n_now;
}

// Takes what a forward of `sec` seconds says about all that it fed, in the order they were fed.
static void take_all(Generator *g, Sequence *const *sequences, int n, const float *logits,
                     double sec) {
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < n; i++) {
            Sequence *s = sequences[i];
            bool was_prompt = s->n_generated == 0;
            int n_wanted = s->n_now > s->wanted ? s->n_now - s->wanted : 0;
            if (s->n_now == 0 || was_prompt != pass) continue;
            *(was_prompt ? &s->prefill_sec : &s->decode_sec) += sec;
            int n_good = take_logits(s, g, logits);
            if (was_prompt && g->cache) s->n_kept = cache_store(g->cache, s->session, s->n_kept);
            *(was_prompt ? &g->n_prefill : &g->n_decode) += (uint64_t)n_good;
            if (!was_prompt && s->has_draft)
                draft_learn(g->draft, n_good - s->n_sure, s->n_now - s->n_sure);
            if (!was_prompt && n_good > s->n_sure) g->n_accepted += (uint64_t)(n_good - s->n_sure);
            logits += (size_t)n_wanted * (size_t)g->model->config.vocab_size;
        }
}

bool generate_step(Generator *g, Sequence *const *sequences, int n) {
    int n_fed = feed_all(g, sequences, n), n_chosen = 0, n_prompt = 0, kernel_rows = 0;
    for (int i = 0; i < n; i++) {
        *(sequences[i]->n_generated ? &n_chosen : &n_prompt) += sequences[i]->n_now;
        if (n_fed == 1 && sequences[i]->n_now) kernel_rows = sequences[i]->kernel_rows;
    }
    double start = now_sec();
    const float *logits = model_forward(g->model, g->workspace, kernel_rows);
    double sec = now_sec() - start;
    if (!logits) return n_fed > 0; // interrupted: the next step finds that
    *(n_chosen ? &g->decode_sec : &g->prefill_sec) += sec;
    g->n_steps += n_chosen > 0;
    if (!n_prompt) cost_record(&g->pace, n_chosen, sec);
    take_all(g, sequences, n, logits, sec);
    return true;
}

void generate(Generator *g, Sequence *s, const Request *r, Session *session) {
    sequence_start(s, g, r, session);
    while (s->finish == FINISH_NONE && generate_step(g, &s, 1)) {
    }
}
