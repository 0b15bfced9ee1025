// Building blocks first: tags in the text, masks, the steps of the automaton that answer.h draws.
// The hook of generation uses them: accept_token() moves the automaton, mask_logits() excludes the
// tokens that it cannot read, force_tokens() returns text that is fed, and constrained text that
// has no alternative. answer_new() is at the end.
#include "generate/answer.h"
#include "tokenizer/continuation.h"

#include <math.h>

typedef enum {
    PHASE_START,     // before <think> is complete; another text may begin instead
    PHASE_REASONING, // before </think> is complete
    PHASE_BLANK,     // in a free answer of white space that may not end yet, after a budget
    PHASE_BARE,      // in a free answer that may be the beginning of a call without a tag
    PHASE_FREE,      // in a free answer otherwise
    PHASE_SPACE,     // before constrained text; up to two characters of white space may follow
    PHASE_TEXT,      // in constrained text: the answer, or a call
    PHASE_END        // nothing can follow
} Phase;

struct AnswerState {
    Constraint hook;
    const Tokenizer *tokenizer;
    AnswerSpec spec;
    CompiledConstraint *constraint; // NULL: none
    Matcher *matcher;               // of the constrained text; NULL without a constraint
    bool drops_space;               // the next constrained token's leading space is not text
    bool is_other;                  // the tail of PHASE_START is not constrained text
    bool has_tag;                   // the constrained text has control tokens
    Str start;                      // the beginning of the answer, in the prompt
    Phase phase, first_phase;       // now, and where the text began
    int fence;                      // of the free answer, see fence_read()
    bool is_fenced;                 // in a code block, in which no call begins
    Buffer tail;                    // text of this phase, or its last bytes where they suffice
    Buffer text;                    // the constrained text so far; of a free answer, its calls
    int last_token;                 // of the text, or of what is fed next; -1: none
    int budget, n_reasoning;        // most reasoning tokens (negative: no limit), and those so far
    Ids fed;                        // tokens that are fed: the first n_fed are in the text
    int n_fed;
    Ids whole;         // tokens that contain an opener
    bool has_misbegun; // a token of `start` did not fit the constraint
};

static const char think_open[] = "<think>", think_close[] = "</think>";
enum {
    N_OPEN = sizeof think_open - 1,
    N_CLOSE = sizeof think_close - 1,
    MAX_SPACE = 2, // characters of white space before constrained text
    MAX_TAG = 32   // bytes of an opener
};

// True if the constraint, if there is one, applies to tool calls only.
static bool is_free(const AnswerState *a) { return !a->constraint || a->spec.n_openers; }

// True in the free answer itself, outside calls.
static bool is_in_free_answer(const AnswerState *a) {
    return a->phase >= PHASE_BLANK && a->phase <= PHASE_FREE;
}

bool answer_may_think(const AnswerState *a) { return a->first_phase <= PHASE_REASONING; }

bool answer_is_complete(const AnswerState *a) {
    if (a->phase == PHASE_TEXT) return matcher_is_end(a->matcher);
    return a->phase == PHASE_END || is_free(a);
}

bool answer_matches(const AnswerState *a, Str text, bool is_whole) {
    if (a->has_misbegun) return false;
    if (answer_may_think(a) || is_free(a) || a->has_tag) return !is_whole || answer_is_complete(a);
    Matcher *m = constraint_begin(a->constraint);
    bool is_match = matcher_accept(m, a->start) == a->start.len &&
                    matcher_accept(m, text) == text.len && (!is_whole || matcher_is_end(m));
    matcher_free(m);
    return is_match;
}

bool answer_check(const AnswerState *a, Str text, Error *err) {
    Buffer whole = {0};
    if (!a->constraint) return true;

    // Reasoning and a free answer are not constrained, and control tokens have no text.
    if (answer_may_think(a) || is_free(a) || a->has_tag) {
        buffer_put(&whole, buffer_str(&a->text));
    } else {
        buffer_put(&whole, a->start);
        buffer_put(&whole, text);
    }

    bool ok = constraint_check(a->constraint, buffer_str(&whole), err);
    buffer_free(&whole);
    return ok;
}

// Tags.

// The length of the white space at the beginning of a text, at most `most`.
static size_t count_space(Str text, size_t most) {
    size_t n = 0;
    while (n < text.len && n < most && (text.data[n] == ' ' || text.data[n] == '\n')) n++;
    return n;
}

// Removes the bytes of the tail except for the last n.
static void keep_tail(AnswerState *a, size_t n) {
    if (a->tail.len <= n) return;
    memmove(a->tail.data, a->tail.data + a->tail.len - n, n);
    a->tail.len = n;
}

// The number of bytes of a tag, at most all, with which a text ends.
static size_t count_begun(Str text, Str tag) {
    size_t n = text.len < tag.len ? text.len : tag.len;
    while (n && memcmp(text.data + text.len - n, tag.data, n) != 0) n--;
    return n;
}

// Compares a text with a tag at its beginning; white space does not count. Returns the number of
// bytes of the tag that the text has, or SIZE_MAX if they differ.
static size_t count_bare(Str text, Str tag) {
    size_t n = 0;
    for (size_t i = 0; i < text.len && n < tag.len; i++) {
        if (count_space((Str){text.data + i, 1}, 1)) continue;
        if (text.data[i] != tag.data[n++]) return SIZE_MAX;
    }
    return n;
}

// True for an opener that is the beginning of the call itself.
static bool is_bare(Str opener) { return opener.data[0] == '{'; }

// The offset behind the first tag in a text, or SIZE_MAX.
static size_t find_end(Str text, Str tag) {
    size_t at = str_find(text, tag);
    return at == SIZE_MAX ? at : at + tag.len;
}

// The offset of the constrained text of a call that is opened in the end of a free answer, or
// SIZE_MAX.
static size_t find_call(const AnswerState *a, Str answer) {
    for (int i = 0; i < a->spec.n_openers; i++) {
        Str opener = a->spec.openers[i];
        if (!is_bare(opener)) {
            size_t at = find_end(answer, opener);
            if (at != SIZE_MAX) return at;
        } else if (a->phase != PHASE_FREE && count_bare(answer, opener) == opener.len) {
            return str_find(answer, (Str){"{", 1});
        }
    }
    return SIZE_MAX;
}

// The matcher of a call that begins with `text`, after its opener; NULL if no call does.
static Matcher *begin_call(const AnswerState *a, Str text) {
    if (!a->constraint) return NULL;
    Matcher *m = constraint_begin(a->constraint);
    if (matcher_accept(m, text) == text.len) return m;
    matcher_free(m);
    return NULL;
}

// True if a token may come next before constrained text: as part of <think>, or as white space
// after </think>.
static bool may_precede(const AnswerState *a, int id) {
    Str piece = tokenizer_piece(a->tokenizer, id, a->phase == PHASE_START);
    if (a->phase == PHASE_START)
        return piece.len && piece.len <= N_OPEN - a->tail.len &&
               !memcmp(piece.data, think_open + a->tail.len, piece.len);

    return a->tail.len < MAX_SPACE && count_space(piece, MAX_SPACE) == piece.len &&
           !tokenizer_is_control(a->tokenizer, id);
}

// True where constrained text may begin.
static bool awaits_text(const AnswerState *a) {
    return a->phase == PHASE_SPACE || (a->phase == PHASE_START && !is_free(a));
}

// The text of a token in constrained text, kept in `buffer` if need be. A control token, which has
// no text, fits only a tag.
static Str constrained_piece(const AnswerState *a, int id, bool *drops_space, Buffer *buffer) {
    Str piece = tokenizer_piece_in_text(a->tokenizer, id, false, drops_space);
    bool is_stop = tokenizer_is_stop(a->tokenizer, id);
    if (is_stop || !tokenizer_is_control(a->tokenizer, id)) return piece;

    buffer->len = 0;
    buffer_puts(buffer, CONTROL_MARK);
    buffer_put(buffer, tokenizer_piece(a->tokenizer, id, true));
    return buffer_str(buffer);
}

// Appends a token to constrained text. False if it does not fit.
static bool read_text(const AnswerState *a, Matcher *m, int token, bool *drops_space) {
    Buffer buffer = {0};
    Str piece = constrained_piece(a, token, drops_space, &buffer);
    bool fits = matcher_accept(m, piece) == piece.len;
    buffer_free(&buffer);
    return fits;
}

// Masks.

// True if a token may follow unconstrained text. It must not complete a tag after which its other
// bytes do not fit: as the beginning of a call or, after </think>, as white space.
static bool tag_allows(const AnswerState *a, int id) {
    Buffer text = {0};
    buffer_put(&text, buffer_str(&a->tail));
    buffer_put(&text, tokenizer_piece(a->tokenizer, id, true));

    bool is_call = a->phase != PHASE_REASONING;
    size_t at = is_call ? find_call(a, buffer_str(&text))
                        : find_end(buffer_str(&text), str_of(think_close));
    bool is_allowed = at == SIZE_MAX;

    if (!is_allowed) {
        Str rest = {text.data + at, text.len - at};
        Matcher *m = is_call ? begin_call(a, rest) : NULL;
        is_allowed = is_call ? m != NULL : count_space(rest, MAX_SPACE) == rest.len;
        matcher_free(m);
    }

    buffer_free(&text);
    return is_allowed;
}

// Excludes tokens that complete a tag and cannot follow. Only tokens with its last byte are looked
// at, if the text has begun the tag.
static void mask_tag(const AnswerState *a, Str tag, float *logits) {
    const Tokenizer *t = a->tokenizer;
    bool is_begun = is_bare(tag) ? a->phase != PHASE_FREE : count_begun(buffer_str(&a->tail), tag);
    for (int id = 0; is_begun && id < tokenizer_n_vocab(t); id++) {
        Str piece = tokenizer_piece(t, id, true);
        if (piece.len && memchr(piece.data, tag.data[tag.len - 1], piece.len) && !tag_allows(a, id))
            logits[id] = -INFINITY;
    }
}

static void mask_free_answer(const AnswerState *a, float *logits) {
    int n_stops;
    const int *stops = tokenizer_stops(a->tokenizer, &n_stops);
    for (int i = 0; i < n_stops && a->phase == PHASE_BLANK; i++) logits[stops[i]] = -INFINITY;

    if (a->is_fenced) return;
    for (int i = 0; i < a->spec.n_openers; i++) mask_tag(a, a->spec.openers[i], logits);
    for (int i = 0; i < a->whole.len; i++)
        if (!tag_allows(a, a->whole.data[i])) logits[a->whole.data[i]] = -INFINITY;
}

static bool mask_constrained(const AnswerState *a, float *logits) {
    const Tokenizer *t = a->tokenizer;
    bool is_text = a->phase != PHASE_START || !a->is_other; // may begin, or have begun like <think>
    bool is_before = awaits_text(a), is_end = answer_is_complete(a);
    const uint64_t *mask = matcher_mask(a->matcher, a->drops_space);
    if (!mask) return false;

    for (int id = 0; id < tokenizer_n_vocab(t); id++) {
        bool is_allowed = (is_text && mask[id / 64] >> (id & 63) & 1) ||
                          (is_before && may_precede(a, id)) || (is_end && tokenizer_is_stop(t, id));
        if (!is_allowed) logits[id] = -INFINITY;
    }
    return true;
}

static bool mask_logits(void *arg, float *logits) {
    const AnswerState *a = arg;
    if (!is_in_free_answer(a) && (a->phase > PHASE_FREE || awaits_text(a)))
        return mask_constrained(a, logits);
    if (is_in_free_answer(a))
        mask_free_answer(a, logits);
    else if (a->phase == PHASE_REASONING && !is_free(a))
        mask_tag(a, str_of(think_close), logits);
    return true;
}

// The automaton.

// Appends a text to those that are fed next. A tag may be a special token.
static void feed_text(AnswerState *a, Str text, bool is_tag) {
    continuation_encode(a->tokenizer, a->last_token, text, is_tag, &a->fed);
    if (a->fed.len) a->last_token = a->fed.data[a->fed.len - 1];
}

// Examines the tail of a free answer: its last token may have opened a call.
static void read_free(AnswerState *a) {
    if (a->is_fenced) keep_tail(a, 0);
    Str answer = buffer_str(&a->tail);
    size_t at = find_call(a, answer);

    if (at != SIZE_MAX) {
        Str call = {answer.data + at, answer.len - at};
        Matcher *m = begin_call(a, call);
        a->phase = m ? PHASE_TEXT : PHASE_FREE;
        if (m) {
            matcher_free(a->matcher);
            a->matcher = m;
            buffer_put(&a->text, call);
        }
        keep_tail(a, 0);
        return;
    }

    // A call without a tag can only begin the answer.
    bool may_be_bare = false;
    for (int i = 0; i < a->spec.n_openers; i++)
        may_be_bare |=
            is_bare(a->spec.openers[i]) && count_bare(answer, a->spec.openers[i]) != SIZE_MAX;
    if (a->phase == PHASE_BLANK && count_space(answer, answer.len) < answer.len)
        a->phase = PHASE_BARE;
    if (a->phase == PHASE_BARE && !may_be_bare) a->phase = PHASE_FREE;
    if (a->phase == PHASE_FREE) keep_tail(a, MAX_TAG);
}

// Begins the answer; a free one in the given phase. The tail is the part of it that its first token
// contains.
static void begin_answer(AnswerState *a, Phase free_phase) {
    a->phase = is_free(a) ? free_phase : PHASE_SPACE;
    if (is_free(a)) read_free(a);
}

// Begins the constrained text anew.
static void begin_text(AnswerState *a) {
    matcher_free(a->matcher);
    a->matcher = constraint_begin(a->constraint);
}

// Examines the tail before <think> is complete.
static void read_start(AnswerState *a) {
    Str text = buffer_str(&a->tail);
    size_t n = count_bare(text, str_of(think_open));
    if (n == SIZE_MAX) begin_answer(a, PHASE_BARE);
    if (n != N_OPEN) return;
    a->phase = PHASE_REASONING;
    if (!is_free(a)) begin_text(a);
    keep_tail(a, text.len - find_end(text, (Str){">", 1}));
}

// Examines the tail of the reasoning. </think> may span tokens.
static void read_reasoning(AnswerState *a) {
    size_t end = find_end(buffer_str(&a->tail), str_of(think_close));
    keep_tail(a, end == SIZE_MAX ? N_CLOSE : a->tail.len - end);
    if (end == SIZE_MAX) return;
    a->fence = 0;
    begin_answer(a, a->budget >= 0 ? PHASE_BLANK : PHASE_BARE);
}

// True if the reasoning has used up its budget and, if a line ends soon, is at the end of a line.
static bool is_over_budget(const AnswerState *a) {
    if (a->budget < 0 || a->n_reasoning < a->budget) return false;
    if (a->n_reasoning - a->budget >= a->budget / 10) return true;
    return str_contains(tokenizer_piece(a->tokenizer, a->last_token, true), "\n");
}

// Continues after constrained text that is complete.
static void end_text(AnswerState *a) {
    a->tail.len = 0;
    a->phase = is_free(a) && !a->spec.is_last ? PHASE_FREE : PHASE_END;
}

// Moves on where no token is needed: at the end of the budget, and after complete text.
static void move_on(AnswerState *a) {
    if (a->phase == PHASE_REASONING && a->n_fed == a->fed.len && is_over_budget(a)) {
        if (a->spec.message.len) feed_text(a, a->spec.message, false);
        feed_text(a, str_of(think_close), true);
    }
    if (a->phase == PHASE_TEXT && !a->drops_space && matcher_is_done(a->matcher)) end_text(a);
}

// The hook of generation.

// Appends a token to the constrained text. False if it does not fit.
static bool accept_constrained(AnswerState *a, int token) {
    Buffer buffer = {0};
    Str piece = constrained_piece(a, token, &a->drops_space, &buffer);
    buffer_put(&a->text, piece);
    a->has_tag |= tokenizer_is_control(a->tokenizer, token);

    bool fits = matcher_accept(a->matcher, piece) == piece.len;
    buffer_free(&buffer);
    return fits;
}

// Appends a token to the tail of a phase without constrained text, which it may end.
static void accept_other(AnswerState *a, int token) {
    Str piece = tokenizer_piece(a->tokenizer, token, true);
    for (size_t i = 0; i < piece.len; i++) a->is_fenced = fence_read(&a->fence, piece.data[i]);
    buffer_put(&a->tail, piece);
    a->n_reasoning += a->phase == PHASE_REASONING;

    if (is_in_free_answer(a)) read_free(a);
    if (a->phase == PHASE_START) read_start(a);
    if (a->phase == PHASE_REASONING) read_reasoning(a);
}

static bool accept_token(void *arg, int token) {
    AnswerState *a = arg;
    bool fits = true;

    // A token that was to be fed is in the text now.
    bool is_fed = a->n_fed < a->fed.len && a->fed.data[a->n_fed] == token;
    if (is_fed) a->n_fed++;
    a->last_token = token;

    // Constrained text begins with the first token that is neither white space nor like <think>.
    // Text that has begun like <think> may still be constrained text.
    if (awaits_text(a) && !may_precede(a, token)) a->phase = PHASE_TEXT;
    bool may_be_text = a->phase == PHASE_START && !is_free(a) && !a->is_other;
    if (may_be_text) a->is_other = !read_text(a, a->matcher, token, &(bool){false});

    if (a->phase == PHASE_TEXT)
        fits = accept_constrained(a, token);
    else
        accept_other(a, token);

    move_on(a);
    return fits;
}

// Constrained text is followed by a copy of the matcher; other text has no forbidden drafts.
static int count_fitting(void *arg, const int *drafts, int n) {
    const AnswerState *a = arg;
    if (a->phase != PHASE_TEXT) return n;

    Matcher *m = matcher_copy(a->matcher);
    bool drops_space = a->drops_space;
    int n_fitting = 0;
    while (n_fitting < n && !tokenizer_is_stop(a->tokenizer, drafts[n_fitting]) &&
           read_text(a, m, drafts[n_fitting], &drops_space))
        n_fitting++;
    matcher_free(m);
    return n_fitting;
}

// Appends the ids of a tag that must come next. It may be a special token.
static void encode_tag(const AnswerState *a, Str tag, Ids *out) {
    Buffer text = {0};
    for (size_t i = 0; i < tag.len; i++)
        if (tag.data[i] != *CONTROL_MARK) buffer_append(&text, tag.data + i, 1);
    continuation_encode(a->tokenizer, a->last_token, buffer_str(&text), true, out);
    buffer_free(&text);
}

static int force_tokens(void *arg, int *out) {
    AnswerState *a = arg;
    Buffer text = {0};
    Ids ids = {0};
    int n = 0;
    if (a->phase == PHASE_END) return -1;

    for (; n < GENERATE_LOOKAHEAD && a->n_fed + n < a->fed.len; n++)
        out[n] = a->fed.data[a->n_fed + n];
    if (n || a->phase != PHASE_TEXT || a->drops_space) return n;

    // Constrained text without an alternative.
    Str tag = matcher_tag(a->matcher);
    if (tag.len)
        encode_tag(a, tag, &ids);
    else
        matcher_forced(a->matcher, &text);
    if (text.len > 1)
        continuation_encode_open(a->tokenizer, a->last_token, buffer_str(&text), &ids);
    int n_fitting = tag.len ? count_fitting(a, ids.data, ids.len) : ids.len;
    for (; n < GENERATE_LOOKAHEAD && n < n_fitting; n++) out[n] = ids.data[n];

    free(ids.data);
    buffer_free(&text);
    return n;
}

// Ends the reasoning where the model would end the text without an answer.
static int replace_stop(void *arg, int token) {
    AnswerState *a = arg;
    if (a->phase != PHASE_REASONING || (is_free(a) && a->budget < 0)) return token;
    feed_text(a, str_of(think_close), true);
    return a->n_fed < a->fed.len ? a->fed.data[a->n_fed] : token;
}

static bool is_unconstrained(void *arg) {
    const AnswerState *a = arg;
    return a->phase == PHASE_REASONING || is_in_free_answer(a);
}

// The beginning of an answer.

// The budget that leaves a quarter of the tokens of a request for the answer, the tags aside.
static int automatic_budget(const Tokenizer *t, const Request *r) {
    int n = r->max_tokens >= 0 ? r->max_tokens : r->max_context - r->n_prompt;
    Ids tags = {0};
    tokenizer_encode(t, str_of("<think></think>"), true, &tags);
    int n_reasoning = n - n / 4 - tags.len;
    free(tags.data);
    return n_reasoning > 0 ? (int)(n_reasoning / 1.1) : 0; // the end of a line may be awaited
}

// True if a prompt ends with a tag and optional white space.
static bool prompt_ends_with(const Tokenizer *t, const int *prompt, int n, const char *tag) {
    enum { MAX_TOKENS = 16 }; // enough for a tag and white space
    Buffer text = {0};
    for (int i = n > MAX_TOKENS ? n - MAX_TOKENS : 0; i < n; i++)
        buffer_put(&text, tokenizer_piece(t, prompt[i], true));
    while (text.len && str_is_blank((Str){text.data + text.len - 1, 1})) text.len--;
    bool found = str_ends_with(buffer_str(&text), tag);
    buffer_free(&text);
    return found;
}

bool answer_begins_in_reasoning(const Tokenizer *t, const int *prompt, int n) {
    return prompt_ends_with(t, prompt, n, think_open);
}

// Finds the tokens that contain an opener. A control token usually is one.
static void find_whole_openers(AnswerState *a) {
    const Tokenizer *t = a->tokenizer;
    for (int i = 0; i < a->spec.n_openers; i++)
        for (int id = 0; id < tokenizer_n_vocab(t); id++)
            if (str_find(tokenizer_piece(t, id, true), a->spec.openers[i]) != SIZE_MAX)
                ids_push(&a->whole, id);
}

// The phase after the first n tokens of a prompt, in which the text begins.
static Phase phase_after(const AnswerState *a, const int *prompt, int n) {
    const AnswerSpec *spec = &a->spec;
    if (!spec->no_think && answer_begins_in_reasoning(a->tokenizer, prompt, n))
        return PHASE_REASONING;
    if (spec->may_think && !prompt_ends_with(a->tokenizer, prompt, n, think_close))
        return PHASE_START;
    return is_free(a) ? PHASE_BARE : PHASE_TEXT;
}

// Reads the beginning of the answer: the tokens of the prompt from number n on. The template may
// have put a space before it.
static void read_beginning(AnswerState *a, const Request *r, int n) {
    const AnswerStart *start = &r->start;
    Str first = start->n_tokens ? tokenizer_piece(a->tokenizer, r->prompt[n], false) : start->word;
    if (start->text.len && *first.data != *start->text.data) a->drops_space = true;
    for (int i = n; i < r->n_prompt; i++) a->has_misbegun |= !accept_token(a, r->prompt[i]);
}

AnswerState *answer_new(const Tokenizer *t, const AnswerSpec *spec, CompiledConstraint *constraint,
                        Request *r) {
    AnswerState *a = xalloc(1, sizeof *a);
    int n_prompt = r->n_prompt - r->start.n_tokens; // without the beginning of the answer
    *a = (AnswerState){.hook = {force_tokens, count_fitting, mask_logits, accept_token,
                                replace_stop, is_unconstrained, a},
                       .tokenizer = t,
                       .spec = *spec,
                       .constraint = constraint,
                       .matcher = constraint ? constraint_begin(constraint) : NULL,
                       .drops_space = n_prompt <= 1 && tokenizer_has_space_prefix(t),
                       .start = r->start.text,
                       .last_token = -1,
                       .budget = -1};
    r->constraint = &a->hook;

    find_whole_openers(a);
    if (spec->budget) a->budget = spec->budget < 0 ? automatic_budget(t, r) : spec->budget;
    a->phase = a->first_phase = phase_after(a, r->prompt, n_prompt);
    move_on(a);
    read_beginning(a, r, n_prompt);
    return a;
}

AnswerState *answer_clone(const AnswerState *a, Request *r) {
    return answer_new(a->tokenizer, &a->spec, constraint_retain(a->constraint), r);
}

void answer_free(AnswerState *a) {
    if (!a) return;
    matcher_free(a->matcher);
    constraint_release(a->constraint);
    buffer_free(&a->tail);
    buffer_free(&a->text);
    free(a->fed.data);
    free(a->whole.data);
    free(a);
}
