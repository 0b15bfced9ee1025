// Building blocks first: emitting text, extending a sequence by a token, building the batch of a
// forward pass. The loop itself is generate_step() at the end: build_batch() collects the tokens to
// feed, model_forward() computes logits, accept_tokens() turns logits into tokens and text.
//
// A decoding sequence feeds its pending token (the token sampled last), followed by tokens that a
// constraint forces or that speculation has drafted. Prompts fill the rest of the chunk. After the
// pass, every position is sampled in order, as if each token had been fed alone. If a sampled token
// differs from the token that was fed at the next position, the fed token and all after it are
// rewound from the KV cache. A draft is therefore part of the text only if it would have been
// sampled without speculation.
//
// This is bit-exact if the logits of a row do not depend on the number of rows in the pass. For a
// sequence that decodes alone, this holds because kernels are chosen for one row
// (kernels/exactness.h). In a batch such kernels would be slower than kernels for many rows, so
// speculation is limited to single sequences unless the model is batch-invariant.
#include "generate/generate.h"
#include "base/clock.h"
#include "kernels/team.h"
#include "tokenizer/continuation.h"

#include <math.h>

volatile int generate_interrupted; // polled by the thread team as well (kernels/team.h)

void generator_init(Generator *g, const Model *m, const Tokenizer *t, int chunk_size,
                    int max_logits) {
    *g = (Generator){.model = m, .tokenizer = t};
    team_interrupted = &generate_interrupted;
    g->chunk_size = chunk_size > 0 ? chunk_size : GENERATE_CHUNK;
    if (g->chunk_size > m->config.max_context) g->chunk_size = m->config.max_context;
    if (g->chunk_size < max_logits) g->chunk_size = max_logits;
    g->masked = xalloc((size_t)m->config.vocab_size, sizeof *g->masked);
    g->workspace =
        workspace_new(m, g->chunk_size + GENERATE_LOOKAHEAD, max_logits + GENERATE_LOOKAHEAD);
}

// Asks the constraint for the tokens that must come next. The text ends if no token may follow.
static void update_forced(Sequence *s) {
    const Constraint *c = s->request.constraint;
    s->forced.next = 0;
    s->forced.n = c->force(c->arg, s->forced.tokens);
    if (s->forced.n >= 0) return;
    s->forced.n = 0;
    if (s->finish == FINISH_NONE || s->finish == FINISH_LENGTH) s->finish = FINISH_STOP;
}

// The parts of a text after the beginning of the answer.
static TextParts parts_of_start(const Request *r) {
    TextParts p = text_parts_begin(r->reasoning);
    if (!str_is_blank(r->start.text)) text_parts_read(&p, r->start.text, true);
    text_parts_drop(&p, r->start.text.len);
    return p;
}

void sequence_start(Sequence *s, Generator *g, const Request *r, Session *session) {
    *s = (Sequence){
        .request = *r, .session = session, .n_reused = session->n_tokens, .stop_token = -1};
    if (g->cache)
        s->n_from_cache = cache_load(g->cache, session, r->prompt,
                                     r->first_scored ? r->first_scored : r->n_prompt);
    g->n_from_cache += (uint64_t)s->n_from_cache;
    s->n_prefilled = session->n_tokens;
    s->n_stored = s->n_reused / KV_PAGE;
    s->sampler = sampler_new(&r->sample, g->model->config.vocab_size);
    s->drafters = speculation_begin(g->speculation, &r->sample);
    s->decoded.parts = parts_of_start(r);
    s->decoded.drops_space = r->n_prompt <= 1 && tokenizer_has_space_prefix(g->tokenizer);
    if (r->constraint) update_forced(s);
    bool has_scored = r->first_scored && r->n_prompt > 1;
    if (r->max_tokens == 0 && !has_scored) s->finish = FINISH_LENGTH;
}

static void logprobs_free(TokenLogprob *list, int n) {
    for (int i = 0; list && i < n; i++) free(list[i].top);
    free(list);
}

void sequence_free(Sequence *s) {
    sampler_free(s->sampler);
    speculation_end(s->drafters);
    buffer_free(&s->text);
    logprobs_free(s->logprobs, s->n_generated + (s->stop_token >= 0));
    logprobs_free(s->prompt_logprobs, s->n_scored);
    *s = (Sequence){0};
}

// Text.

Str sequence_part(const Sequence *s, TextPart part) {
    const TextParts *p = &s->decoded.parts;
    size_t begin = part == PART_ANSWER ? p->answer : p->begin;
    size_t end = part == PART_ANSWER || p->end > s->text.len ? s->text.len : p->end;
    return begin < end ? (Str){s->text.data + begin, end - begin} : (Str){"", 0};
}

// Passes the text up to byte `end` to the request's emit(). If emit() returns false, the sequence
// is cancelled: the text stays as it is, and no token follows.
static void emit_until(Sequence *s, size_t end) {
    size_t *n_emitted = &s->decoded.n_emitted;

    while (*n_emitted < end && s->finish != FINISH_CANCEL) {
        Str piece = {s->text.data + *n_emitted, 0};
        size_t part_end;
        TextPart part = text_parts_at(&s->decoded.parts, *n_emitted, &part_end);
        piece.len = (part_end < end ? part_end : end) - *n_emitted;
        *n_emitted += piece.len;
        if (s->request.emit && !s->request.emit(s->request.arg, piece, part))
            s->finish = FINISH_CANCEL;
    }
}

// Searches the new text for stop strings, which end only the answer. Sets *stop to the offset of a
// complete one, or SIZE_MAX, and returns how many bytes of the text are final.
static size_t search_stop(Sequence *s, size_t *stop) {
    TextState *d = &s->decoded;
    size_t partial;
    *stop = SIZE_MAX;
    text_parts_read(&d->parts, buffer_str(&s->text), false);
    if (d->parts.phase != PARTS_ANSWER) return d->parts.n_assigned;

    size_t begin = d->parts.answer;
    Str answer = {s->text.data + begin, s->text.len - begin};
    size_t from = d->n_searched > begin ? d->n_searched - begin : 0;
    stops_find(&s->request.stops, answer, from, stop, &partial);
    if (*stop != SIZE_MAX) *stop += begin;
    d->n_searched = s->text.len;
    return begin + partial;
}

// Appends the bytes of a token to the text. A complete stop string ends the text; otherwise the
// part that can no longer change is emitted.
static void append_text(Sequence *s, const Generator *g, int token) {
    TextState *d = &s->decoded;
    size_t stop;
    Str piece = tokenizer_piece_in_text(g->tokenizer, token, false, &d->drops_space);

    // The first tokens spell the last word of the answer's beginning, which is not part of the
    // text.
    size_t n_of_word = s->request.start.word.len - d->n_spelled;
    if (n_of_word > piece.len) n_of_word = piece.len;
    d->n_spelled += n_of_word;
    buffer_put(&s->text, (Str){piece.data + n_of_word, piece.len - n_of_word});
    size_t n_final = search_stop(s, &stop);

    if (stop != SIZE_MAX && s->n_generated > s->request.min_tokens) {
        s->text.len = stop;
        s->text.data[stop] = 0;
        s->finish = FINISH_STOP;
    } else if (n_final > d->n_emitted) {
        const char *rest = s->text.data + d->n_emitted;
        emit_until(s, d->n_emitted + utf8_complete(rest, n_final - d->n_emitted));
    }
}

// Ends a finished text: removes the beginning of a character that has no end, and emits the rest,
// which can no longer change.
static void end_text(Sequence *s) {
    size_t n_emitted = s->decoded.n_emitted;
    size_t n_left = s->text.len - n_emitted;
    size_t n_whole = n_left ? utf8_complete(s->text.data + n_emitted, n_left) : 0;

    s->n_cut = (int)(n_left - n_whole);
    s->text.len -= (size_t)s->n_cut;
    if (s->n_cut) s->text.data[s->text.len] = 0;
    text_parts_read(&s->decoded.parts, buffer_str(&s->text), true);
    if (s->finish != FINISH_CANCEL) emit_until(s, s->text.len);
}

// Tokens.

// Sets the error of a text whose mask takes too long.
static void fail_readings(Sequence *s) {
    enum { MAX_SHOWN = 40 }; // bytes
    Str end = buffer_str(&s->text);
    while (end.len > MAX_SHOWN || (end.len && (*end.data & 0xc0) == 0x80))
        end = (Str){end.data + 1, end.len - 1};
    error_set(&s->error, EXIT_INCOMPLETE,
              "the constraint is too ambiguous after \"%.*s\"; there, alternatives of a schema "
              "(anyOf, oneOf, patternProperties) or rules of a grammar must begin differently",
              SHOWN(end));
}

// Samples the token that follows the first n_before tokens of a sequence. Returns -1 with s->error
// if no token can be sampled.
static int sample_token(Sequence *s, const Generator *g, const float *logits, int n_before) {
    const Request *r = &s->request;
    const Constraint *c = r->constraint;
    bool may_stop = s->n_generated >= r->min_tokens;
    size_t n_spelled = s->decoded.n_spelled;
    Str unspelled = r->start.word;
    if (n_spelled) unspelled = (Str){unspelled.data + n_spelled, unspelled.len - n_spelled};

    if (c || !may_stop || r->ignore_eos || unspelled.len) {
        memcpy(g->masked, logits, (size_t)g->model->config.vocab_size * sizeof *logits);
        if (c && !c->mask(c->arg, g->masked)) {
            fail_readings(s);
            return -1;
        }
        if (!may_stop || r->ignore_eos) stops_mask(&r->stops, g->tokenizer, may_stop, g->masked);
        if (unspelled.len) continuation_mask(g->tokenizer, unspelled, g->masked);
        logits = g->masked;
    }

    int token = sampler_next(s->sampler, logits, s->session->tokens, n_before);
    if (token < 0)
        error_set(
            &s->error, EXIT_RUNTIME,
            "no token can be sampled at position %d: the logits contain NaN or infinity, or %s",
            n_before, c ? "the constraint allows no token" : "all tokens are banned");
    return token;
}

// Appends the log-probability of a token, with n_top alternatives, to a list of n.
static TokenLogprob *record_logprob(TokenLogprob *list, int n, const float *logits, int n_vocab,
                                    int token, int n_top) {
    list = list_grow(list, n, sizeof *list);
    list[n] = (TokenLogprob){token, logits_logprob(logits, n_vocab, token), NULL};
    if (!n_top) return list;
    list[n].top = xrealloc(NULL, (size_t)n_top, sizeof(Alternative));
    logits_top(logits, n_vocab, list[n].top, n_top);
    return list;
}

// The token that follows the first n_before tokens of a sequence: the next forced one or a sampled
// one. Where the model would end the text, the constraint may continue it. -1 with s->error if
// there is no token.
static int next_token(Sequence *s, const Generator *g, const float *logits, int n_before) {
    const Constraint *c = s->request.constraint;
    ForcedTokens *forced = &s->forced;
    int token = forced->next < forced->n ? forced->tokens[forced->next++]
                                         : sample_token(s, g, logits, n_before);

    bool may_continue = c && c->replace_stop && !s->request.ignore_eos;
    if (token < 0 || !may_continue || !tokenizer_is_stop(g->tokenizer, token)) return token;
    return c->replace_stop(c->arg, token);
}

// Adds the latest token of the text to the loop detector, and returns true if the text has become a
// loop that ends it. n_before: as in advance().
static bool ends_in_loop(Sequence *s, int n_before) {
    const Request *r = &s->request;
    const Constraint *c = r->constraint;
    const int *end = s->session->tokens + n_before;
    if (!r->stops_loops || !loop_add(s->loop, end, s->n_generated - 1, s->pending)) return false;
    return s->n_generated > r->min_tokens && (!c || c->is_free(c->arg));
}

static bool has_reached_limit(const Sequence *s, int n_before) {
    const Request *r = &s->request;
    return n_before >= r->max_context || (r->max_tokens >= 0 && s->n_generated >= r->max_tokens);
}

// Appends a token to the text, which a stop string, a loop or a limit may end.
static void append_token(Sequence *s, const Generator *g, int token, int n_before) {
    s->n_generated++;
    s->pending = token;
    append_text(s, g, token);

    bool is_loop = ends_in_loop(s, n_before);
    if (s->finish != FINISH_NONE) return;
    if (is_loop)
        s->finish = FINISH_LOOP;
    else if (has_reached_limit(s, n_before))
        s->finish = FINISH_LENGTH;
}

// Tells the constraint a token of the text, and asks for the next forced ones.
static void update_constraint(Sequence *s, int token) {
    const Constraint *c = s->request.constraint;
    if (!c) return;
    if (!c->accept(c->arg, token)) {
        error_set(&s->error, EXIT_INCOMPLETE, "token %d does not fit the constraint", token);
        s->finish = FINISH_ERROR;
    }
    if (s->forced.next == s->forced.n) update_forced(s);
}

// Extends a sequence of n_before tokens by the next forced token or a sampled one, and sets
// `finish` if the text ends. `logits` may be NULL if a token is forced and no log-probabilities are
// recorded.
//
// The token becomes `pending`: it belongs to the text, but the next pass computes its keys and
// values. A stop token is never fed.
static void advance(Sequence *s, const Generator *g, const float *logits, int n_before) {
    const Request *r = &s->request;
    int token = next_token(s, g, logits, n_before);

    if (token >= 0 && r->n_logprobs)
        s->logprobs = record_logprob(s->logprobs, s->n_generated, logits,
                                     g->model->config.vocab_size, token, r->n_logprobs);

    if (token < 0) {
        s->finish = generate_interrupted ? FINISH_CANCEL : FINISH_ERROR;
    } else if (stops_at(&r->stops, g->tokenizer, token)) {
        s->stop_token = token;
        s->finish = FINISH_STOP;
    } else {
        append_token(s, g, token, n_before);
        update_constraint(s, token);
    }

    if (s->finish != FINISH_NONE) end_text(s);
}

// The forward pass.

// Counters of the pass that is being built.
typedef struct {
    int n_sequences;        // sequences in the pass
    int n_running;          // unfinished sequences, in the pass or not
    int n_decode, n_prompt; // tokens of decoding sequences and of prompts
    int n_lookahead;        // forced and draft tokens, part of n_decode
    int n_logits;           // rows of logits
    int kernel_rows;        // row count used to choose kernels; 0: the actual one
} PassBatch;

// True once the whole prompt is in the KV cache: the pass with its last token generates the first
// token of the text.
static bool is_decoding(const Sequence *s) { return s->n_generated > 0; }

// Adds n tokens of a sequence to the pass. kernel_rows applies only if the pass has no other
// sequence.
static void feed_tokens(Generator *g, PassBatch *b, Sequence *s, const int *tokens, int n,
                        int kernel_rows) {
    n = workspace_feed(g->workspace, s->session, tokens, n, s->pass.first_logits, &s->error);
    s->lacks_memory = n < 0;
    if (s->lacks_memory) s->finish = FINISH_ERROR;
    if (n <= 0) return;
    s->pass.n_fed = n;
    s->pass.first_step = b->n_decode + b->n_prompt;
    s->pass.logits_row = b->n_logits;
    if (n > s->pass.first_logits) b->n_logits += n - s->pass.first_logits;
    b->kernel_rows = ++b->n_sequences == 1 ? kernel_rows : 0;
}

// Feeds the pending token, followed by forced tokens or, if there are none and may_draft is set, by
// draft tokens. Never feeds more tokens than the context and max_tokens allow, so that the text
// ends at the same token with and without drafts.
static void feed_pending(Generator *g, PassBatch *b, Sequence *s, bool may_draft) {
    const Request *r = &s->request;
    int tokens[1 + GENERATE_LOOKAHEAD] = {s->pending};
    int n = 1, n_drafted = 0;
    int n_positions_left = r->max_context - s->session->n_tokens - 1;
    int n_tokens_left = r->max_tokens - s->n_generated - 1;

    int max = GENERATE_LOOKAHEAD - b->n_lookahead; // limit of the tokens after the pending one
    if (max > n_positions_left) max = n_positions_left;
    if (r->max_tokens >= 0 && max > n_tokens_left) max = n_tokens_left;

    const ForcedTokens *forced = &s->forced;
    for (int i = forced->next; i < forced->n && n <= max; i++) tokens[n++] = forced->tokens[i];
    s->pass.first_logits = r->n_logprobs ? 0 : n - 1; // no logits where the next token is forced
    if (n == 1 && may_draft) {
        DraftPoint at = {s->session, s->pending, s->sampler, b->n_running + b->n_lookahead};
        n_drafted = speculation_draft(s->drafters, &at, tokens + 1, max);
    }
    if (n_drafted && r->constraint)
        n_drafted = r->constraint->count_fitting(r->constraint->arg, tokens + 1, n_drafted);

    feed_tokens(g, b, s, tokens, n + n_drafted, 1);
    s->pass.n_drafted = n_drafted;
    g->n_drafted += (uint64_t)n_drafted;
    b->n_decode += s->pass.n_fed;
    if (s->pass.n_fed > 0) b->n_lookahead += s->pass.n_fed - 1;
}

// Feeds prompt tokens into the rest of the chunk. If the beginning of the prompt came from the
// prefix cache, the pass imitates the one that an uncached prefill would run here: it ends at the
// same token, and kernels are chosen for the same number of rows.
static void feed_prompt(Generator *g, PassBatch *b, Sequence *s) {
    const Request *r = &s->request;
    int n_left = r->n_prompt - s->n_prefilled - (r->max_tokens == 0);
    int n = g->chunk_size - b->n_decode - b->n_prompt;
    int n_before = (s->n_prefilled - s->n_reused) % g->chunk_size; // cached rows of that pass
    if (s->n_from_cache && n > g->chunk_size - n_before) n = g->chunk_size - n_before;
    if (n > n_left) n = n_left;

    // The first token whose logits are needed: the one before the first scored token, or the last.
    s->pass.first_generating = s->pass.first_logits = r->n_prompt - s->n_prefilled - 1;
    if (r->first_scored) s->pass.first_logits = r->first_scored - 1 - s->n_prefilled;
    if (s->pass.first_logits < 0) s->pass.first_logits = 0;
    feed_tokens(g, b, s, r->prompt + s->n_prefilled, n, n_before + n);
    s->n_prefilled += s->pass.n_fed;
    b->n_prompt += s->pass.n_fed;
}

// Builds the batch of the next forward pass. Decoding sequences come first, so that a long prompt
// never delays them.
static PassBatch build_batch(Generator *g, Sequence *const *sequences, int n) {
    PassBatch b = {0};

    for (int i = 0; i < n; i++) {
        sequences[i]->pass = (SequencePass){0};
        if (generate_interrupted && sequences[i]->finish == FINISH_NONE) {
            sequences[i]->finish = FINISH_CANCEL;
            end_text(sequences[i]);
        }
        b.n_running += sequences[i]->finish == FINISH_NONE;
    }

    // In a batch, the additional rows of draft tokens could change the choice of kernels and
    // thereby the last bits of all logits (kernels/exactness.h).
    bool may_draft = b.n_running == 1 || g->model->is_batch_invariant;

    for (int i = 0; i < n; i++)
        if (sequences[i]->finish == FINISH_NONE && is_decoding(sequences[i]))
            feed_pending(g, &b, sequences[i], may_draft);

    for (int i = 0; i < n && b.n_decode + b.n_prompt < g->chunk_size; i++)
        if (sequences[i]->finish == FINISH_NONE && !is_decoding(sequences[i]))
            feed_prompt(g, &b, sequences[i]);

    // The log-probabilities of a prompt do not depend on the batch, unless the request allows it.
    for (int i = 0; i < n; i++)
        if (sequences[i]->request.first_scored && sequences[i]->pass.n_fed)
            b.kernel_rows = !sequences[i]->request.uses_actual_rows;

    return b;
}

// Generates the tokens that follow those of a pass, from first_generating on, in order. Stops when
// the new token is not the token that was fed at the next position, or when the sequence ends, and
// rewinds the fed tokens from there on: their keys and values belong to another text. Returns the
// number of fed tokens that remain.
//
//     fed       the  cat  sat  on        pending "the" and three drafts
//     sampled   cat  sat  under          the third draft is wrong
//     result    the KV cache keeps "the cat sat", "under" is pending, "on" is rewound
//
// This pass generates three tokens. Without drafts, three passes would generate the same tokens,
// because logits, random number and penalties depend only on the position and the text before it.
static int accept_tokens(Sequence *s, const Generator *g, const float *logits) {
    size_t n_vocab = (size_t)g->model->config.vocab_size;
    const SequencePass *p = &s->pass;
    int first = s->session->n_tokens - p->n_fed; // position of the first fed token

    for (int i = p->first_generating; i < p->n_fed; i++) {
        int row = p->logits_row + i - p->first_logits;
        int n_before = first + i + 1;
        advance(s, g, i < p->first_logits ? NULL : logits + (size_t)row * n_vocab, n_before);

        if (i + 1 == p->n_fed) break;
        if (s->finish == FINISH_NONE && s->pending == s->session->tokens[n_before]) continue;
        session_rewind(s->session, n_before);
        return i + 1;
    }
    return p->n_fed;
}

// Records the log-probabilities of the prompt tokens that a pass predicts. A sequence without
// tokens to generate ends after the last of them.
static void score_prompt(Sequence *s, const Generator *g, const float *logits) {
    const Request *r = &s->request;
    const SequencePass *p = &s->pass;
    int n_vocab = g->model->config.vocab_size;
    int first = s->session->n_tokens - p->n_fed; // position of the first fed token

    for (int i = p->first_logits; i < p->n_fed && i < p->first_generating; i++) {
        const float *row = logits + (size_t)(p->logits_row + i - p->first_logits) * (size_t)n_vocab;
        int token = r->prompt[first + i + 1];
        s->prompt_logprobs =
            record_logprob(s->prompt_logprobs, s->n_scored, row, n_vocab, token, r->n_logprobs);
        if (!isfinite(s->prompt_logprobs[s->n_scored++].logprob)) {
            error_set(&s->error, EXIT_RUNTIME, "the logits contain NaN or infinity");
            s->finish = FINISH_ERROR;
            return;
        }
    }

    if (r->max_tokens == 0 && s->n_prefilled == r->n_prompt - 1) s->finish = FINISH_LENGTH;
}

bool generate_step(Generator *g, Sequence *const *sequences, int n) {
    double start = now_sec();
    PassBatch b = build_batch(g, sequences, n);
    double built = now_sec(); // drafts take time
    if (b.n_sequences == 0) return false;

    const float *logits = model_forward(g->model, g->workspace, b.kernel_rows);
    double end = now_sec(), sec = end - start;
    if (!logits) return true; // interrupted: the next step cancels the sequences

    // A pass with decoding sequences counts as decode, even if it also has prompt tokens.
    if (b.n_decode) {
        g->n_decode_passes++;
        g->decode_sec += sec;
    } else {
        g->prefill_sec += sec;
    }
    if (b.n_prompt == 0) speculation_record_pass(g->speculation, b.n_decode, end - built);

    for (int i = 0; i < n; i++) {
        Sequence *s = sequences[i];
        if (s->pass.n_fed == 0) continue;

        bool was_decoding = is_decoding(s);
        if (s->request.first_scored && !was_decoding) score_prompt(s, g, logits);
        int n_accepted = accept_tokens(s, g, logits);
        speculation_accept(s->drafters, s->session, s->pass.first_step, n_accepted);
        if (s->pass.n_drafted) g->n_accepted += (uint64_t)n_accepted - 1;
        if (was_decoding) {
            g->n_decode += (uint64_t)n_accepted;
            s->decode_sec += sec;
        } else {
            g->n_prefill += (uint64_t)n_accepted;
            s->prefill_sec += sec;
            if (g->cache) s->n_stored = cache_store(g->cache, s->session, s->n_stored);
        }
    }

    return true;
}
