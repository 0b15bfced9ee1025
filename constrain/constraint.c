// See constraint.h.
#include "constraint.h"
#include "constrain.h"
#include "number.h"
#include "../base/clock.h"

#include <math.h>

typedef struct CompiledConstraint CompiledConstraint;
struct CompiledConstraint {
    Buffer key; // see put_key
    Grammar *grammar;
    Matcher *tables; // holds the tables that all matchers of the grammar share
    size_t n_bytes;  // of key and grammar
    double compile_sec;
    int n_users;              // states that refer to this constraint
    CompiledConstraint *next; // next in the order of requests, the most recent one first
};

struct ConstraintCache {
    const Tokenizer *tokenizer;
    TokenTable *tokens;         // built for the first constraint
    CompiledConstraint *newest; // the most recently requested
};

// The current position in a text.
typedef enum {
    PHASE_TEXT,   // in constrained text: the answer, or an open tool call
    PHASE_FREE,   // in a free answer
    PHASE_START,  // before <think> is complete
    PHASE_INSIDE, // before </think> is complete
    PHASE_SPACE   // before constrained text; up to two characters of white space may follow
} Phase;

struct ConstraintState {
    Constraint hook;
    ConstraintCache *cache;
    CompiledConstraint *compiled; // NULL: no source
    Matcher *matcher;             // NULL without a source
    ConstraintSpec spec;          // without its source
    bool drops_space; // a space at the beginning of the next token is not part of the text
    Phase phase;
    Buffer tail;        // the text of this phase, or at least its last bytes
    int last_token;     // of the text since the prompt or the reasoning, or -1
    int budget;         // most reasoning tokens; negative: no limit
    int n_reasoning;    // reasoning tokens so far
    bool is_line_end;   // the last reasoning token ended a line
    bool needs_text;    // stop tokens are not allowed yet, so that the answer is not empty
    bool is_beginning;  // PHASE_FREE: a call without a tag can still begin; `tail` is all
    bool is_after_call; // PHASE_SPACE: the answer may also end
    Ids fed;            // tokens to feed next; n_fed of them are in the text
    int n_fed;
    Ids whole; // tokens that contain an opener
};

enum { MAX_BYTES = 256 << 20 }; // of all compiled constraints, without tables

// Compiled constraints.

ConstraintCache *constraint_cache_new(const Tokenizer *t) {
    ConstraintCache *c = xalloc(1, sizeof *c);
    c->tokenizer = t;
    return c;
}

static const TokenTable *find_tokens(ConstraintCache *cache) {
    const Tokenizer *t = cache->tokenizer;
    int n = tokenizer_n_vocab(t);
    if (cache->tokens) return cache->tokens;
    Str *pieces = xalloc((size_t)n, sizeof *pieces);
    for (int id = 0; id < n; id++)
        if (!tokenizer_is_control(t, id) && !tokenizer_is_stop(t, id))
            pieces[id] = tokenizer_piece(t, id, false);
    cache->tokens = token_table_new(pieces, n);
    free(pieces);
    return cache->tokens;
}

// Appends the cache key of a constraint: its kind, modes and source. Unset texts are empty.
static void put_key(Buffer *key, const ConstraintSpec *s) {
    const char *kind = "schema";
    if (s->grammar.data) kind = "grammar";
    if (s->regex.data) kind = "regex";
    if (s->n_choices) kind = "choices";
    buffer_printf(key, "%s %d%d%d ", kind, s->is_ordered, s->is_checked, s->is_closed);

    if (s->schema) json_write_value(&(JsonWriter){.out = key}, NULL, s->schema, NULL);
    buffer_put(key, s->schema_text);
    buffer_put(key, s->grammar);
    buffer_put(key, s->regex);
    for (int i = 0; i < s->n_choices; i++) json_quote(key, s->choices[i]);
}

static Grammar *compile(const ConstraintSpec *s, Buffer *unknown, Error *err) {
    unsigned modes = (s->is_ordered ? SCHEMA_ORDERED : 0) | (s->is_checked ? SCHEMA_CHECKED : 0) |
                     (s->is_closed ? SCHEMA_CLOSED : 0);
    if (s->schema) return grammar_schema(s->schema, modes, unknown, err);
    if (s->schema_text.data) return grammar_schema_text(s->schema_text, modes, unknown, err);
    if (s->grammar.data) return grammar_gbnf(s->grammar, err);
    return s->regex.data ? grammar_regex(s->regex, err)
                         : grammar_choices(s->choices, s->n_choices, err);
}

static void drop(CompiledConstraint **link) {
    CompiledConstraint *old = *link;
    *link = old->next;
    matcher_free(old->tables);
    grammar_free(old->grammar);
    buffer_free(&old->key);
    free(old);
}

// While the cache is above its limits, frees the least recently requested constraint without users.
// All constraints have equal shares of the memory for tables. False if the constraints in use
// exceed the limit.
static bool keep_within_limits(ConstraintCache *cache) {
    enum { MAX_COMPILED = 64, TABLE_BYTES = 128 << 20, MIN_SHARE = 256 << 10 };

    for (;;) {
        CompiledConstraint **oldest = NULL;
        size_t n = 0, n_bytes = 0;
        for (CompiledConstraint **link = &cache->newest; *link; link = &(*link)->next, n++) {
            n_bytes += (*link)->n_bytes;
            if (!(*link)->n_users) oldest = link;
        }

        if (oldest && (n > MAX_COMPILED || n_bytes > MAX_BYTES)) {
            drop(oldest);
            continue;
        }

        // Divide the memory for tables equally among the constraints.
        size_t share = TABLE_BYTES / (n + 1) > MIN_SHARE ? TABLE_BYTES / (n + 1) : MIN_SHARE;
        for (CompiledConstraint *c = cache->newest; c; c = c->next)
            matcher_set_limit(c->tables, share);

        return n <= 1 || n_bytes <= MAX_BYTES;
    }
}

// Finds or compiles the constraint of a spec and makes it the newest of the cache. Returns NULL and
// sets err if it cannot be compiled.
static CompiledConstraint *find_compiled(ConstraintCache *cache, const ConstraintSpec *s,
                                         Buffer *unknown, Error *err) {
    Buffer key = {0};
    put_key(&key, s);

    CompiledConstraint **link = &cache->newest;
    while (*link && !str_eq(buffer_str(&(*link)->key), buffer_str(&key))) link = &(*link)->next;

    CompiledConstraint *found = *link;
    if (found) {
        *link = found->next;
        buffer_free(&key);
    } else {
        double start = now_sec();
        Grammar *grammar = compile(s, unknown, err);
        if (!grammar) {
            buffer_free(&key);
            return NULL;
        }

        found = xalloc(1, sizeof *found);
        *found = (CompiledConstraint){.key = key,
                                      .grammar = grammar,
                                      .n_bytes = key.len + grammar_bytes(grammar),
                                      .compile_sec = now_sec() - start};
        found->tables = matcher_new(grammar, find_tokens(cache), NULL);
    }

    found->next = cache->newest;
    cache->newest = found;
    return found;
}

// States.

// A matcher at the beginning of a constrained text.
static Matcher *new_matcher(const ConstraintState *s) {
    return matcher_new(s->compiled->grammar, find_tokens(s->cache), s->compiled->tables);
}

static ConstraintState *new_state(ConstraintCache *cache, CompiledConstraint *compiled,
                                  const ConstraintSpec *spec) {
    ConstraintState *s = xalloc(1, sizeof *s);
    *s = (ConstraintState){.cache = cache,
                           .compiled = compiled,
                           .spec = *spec,
                           .drops_space = tokenizer_has_space_prefix(cache->tokenizer),
                           .last_token = -1,
                           .budget = -1};
    if (!compiled) return s;
    s->matcher = new_matcher(s);
    compiled->n_users++;
    return s;
}

bool constraint_new(ConstraintCache *cache, const ConstraintSpec *spec, ConstraintState **out,
                    Buffer *unknown, Error *err) {
    int n = (spec->schema != NULL) + (spec->schema_text.data != NULL) +
            (spec->grammar.data != NULL) + (spec->regex.data != NULL) + (spec->n_choices > 0);
    *out = NULL;
    if (n > 1)
        return error_set(err, EXIT_USAGE,
                         "more than one constraint; use one of a JSON Schema, a grammar, a regular "
                         "expression and choices");
    if (n == 0) {
        if (spec->n_openers || spec->has_budget) *out = new_state(cache, NULL, spec);
        return true;
    }

    CompiledConstraint *compiled = find_compiled(cache, spec, unknown, err);
    if (!compiled) return false;

    // Check the limits after the new state has become a user of its constraint.
    *out = new_state(cache, compiled, spec);
    if (keep_within_limits(cache)) return true;

    constraint_free(*out);
    *out = NULL;
    return error_set(err, EXIT_USAGE,
                     "the constraints in use take more than %d MB; lower --parallel",
                     MAX_BYTES >> 20);
}

ConstraintState *constraint_clone(const ConstraintState *s) {
    return new_state(s->cache, s->compiled, &s->spec);
}

void constraint_free(ConstraintState *s) {
    if (!s) return;
    matcher_free(s->matcher);
    if (s->compiled) s->compiled->n_users--;
    buffer_free(&s->tail);
    free(s->fed.data);
    free(s->whole.data);
    free(s);
}

double constraint_compile_sec(const ConstraintState *s) { return s->compiled->compile_sec; }

// True if the constraint, if there is one, applies to tool calls only.
static bool is_free(const ConstraintState *s) { return !s->compiled || s->spec.n_openers; }

bool constraint_is_complete(const ConstraintState *s) {
    if (s->phase == PHASE_TEXT) return matcher_is_end(s->matcher);
    return is_free(s) && (s->phase != PHASE_SPACE || s->is_after_call);
}

bool constraint_may_think(const ConstraintState *s) { return s->spec.may_think; }

bool constraint_matches(const ConstraintState *s, Str text) {
    if (s->spec.may_think || is_free(s)) return constraint_is_complete(s);
    Matcher *m = new_matcher(s);
    bool is_match = matcher_accept(m, text) == text.len && matcher_is_end(m);
    matcher_free(m);
    return is_match;
}

// Reasoning, and tool calls in a free answer.

static const char think_open[] = "<think>", think_close[] = "</think>";
enum {
    N_OPEN = sizeof think_open - 1,
    N_CLOSE = sizeof think_close - 1,
    MAX_SPACE = 2, // characters of white space before constrained text
    MAX_TAG = 32   // bytes of an opener
};

static bool is_space(Str s) {
    for (size_t i = 0; i < s.len; i++)
        if (s.data[i] != ' ' && s.data[i] != '\n') return false;
    return true;
}

// Removes the bytes of the tail except for the last n.
static void keep_tail(ConstraintState *s, size_t n) {
    if (s->tail.len <= n) return;
    memmove(s->tail.data, s->tail.data + s->tail.len - n, n);
    s->tail.len = n;
}

// True if a token may come next before constrained text: as part of <think>, or as white space
// after </think> or around a call. Calls in a row may have semicolons between them.
static bool reasoning_allows(const ConstraintState *s, int id) {
    const Tokenizer *t = s->cache->tokenizer;
    Str piece = tokenizer_piece(t, id, s->phase == PHASE_START);
    if (s->phase == PHASE_START)
        return piece.len && piece.len <= N_OPEN - s->tail.len &&
               !memcmp(piece.data, think_open + s->tail.len, piece.len);
    bool is_separator = s->is_after_call && str_begins_with(piece, ";") && !s->tail.len;
    if (is_separator) piece = (Str){piece.data + 1, piece.len - 1};
    return s->phase == PHASE_SPACE && s->tail.len < MAX_SPACE && piece.len <= MAX_SPACE &&
           is_space(piece) && !tokenizer_is_control(t, id);
}

// The number of bytes of a tag, at most all, with which a text ends.
static size_t count_begun(Str text, Str tag) {
    size_t n = text.len < tag.len ? text.len : tag.len;
    while (n && memcmp(text.data + text.len - n, tag.data, n) != 0) n--;
    return n;
}

// Compares a free answer with the opener of a call without a tag; white space does not count.
// Returns the number of bytes of the opener that the answer has, or SIZE_MAX if they differ.
static size_t count_bare(Str answer, Str opener) {
    size_t n = 0;
    for (size_t i = 0; i < answer.len && n < opener.len; i++) {
        if (is_space((Str){answer.data + i, 1})) continue;
        if (answer.data[i] != opener.data[n++]) return SIZE_MAX;
    }
    return n;
}

static bool is_bare(Str opener) { return opener.data[0] == '{'; }

// The offset of the constrained text of a call that is opened in the end of a free answer, or
// SIZE_MAX.
static size_t find_call(const ConstraintState *s, Str answer) {
    for (int i = 0; i < s->spec.n_openers; i++) {
        Str opener = s->spec.openers[i];
        if (!is_bare(opener)) {
            size_t at = str_find(answer, opener);
            if (at != SIZE_MAX) return at + opener.len;
        } else if (s->is_beginning && count_bare(answer, opener) == opener.len) {
            return str_find(answer, (Str){"{", 1});
        }
    }
    return SIZE_MAX;
}

// The matcher of a call after `text`, with which it begins; NULL if the call cannot be completed.
// *n_space is the length of white space before the call.
static Matcher *begin_call(const ConstraintState *s, Str text, size_t *n_space) {
    *n_space = 0;
    while (*n_space < text.len && *n_space < MAX_SPACE && is_space((Str){text.data + *n_space, 1}))
        ++*n_space;
    if (!s->compiled) return NULL;

    Matcher *m = new_matcher(s);
    Str call = {text.data + *n_space, text.len - *n_space};
    if (matcher_accept(m, call) == call.len) return m;
    matcher_free(m);
    return NULL;
}

// Examines the tail of a free answer after a token: the token may open a call.
static void accept_free(ConstraintState *s) {
    Str answer = buffer_str(&s->tail);
    size_t n_space, at = find_call(s, answer);
    bool may_be_bare = false;

    // A call without a tag can open only at the beginning.
    for (int i = 0; i < s->spec.n_openers; i++)
        may_be_bare |=
            is_bare(s->spec.openers[i]) && count_bare(answer, s->spec.openers[i]) != SIZE_MAX;
    s->is_beginning = s->is_beginning && may_be_bare && at == SIZE_MAX;
    s->needs_text = s->needs_text && is_space(answer);

    if (at != SIZE_MAX) {
        Matcher *m = begin_call(s, (Str){answer.data + at, answer.len - at}, &n_space);
        if (m) {
            matcher_free(s->matcher);
            s->matcher = m;
            s->phase = n_space < answer.len - at ? PHASE_TEXT : PHASE_SPACE;
            s->is_after_call = false;
        }
        keep_tail(s, m ? n_space : 0);
    }
    if (!s->is_beginning) keep_tail(s, MAX_TAG);
}

// Begins the answer after the reasoning. The tail is what follows </think> in its last token.
static void begin_answer(ConstraintState *s) {
    s->phase = is_free(s) ? PHASE_FREE : PHASE_SPACE;
    s->is_beginning = true;
    if (is_free(s)) accept_free(s);
}

// Appends a token to the text before constrained text. False if it belongs to constrained text.
static bool accept_unconstrained(ConstraintState *s, int id) {
    Str piece = tokenizer_piece(s->cache->tokenizer, id, true);
    bool is_strict = s->phase == PHASE_SPACE || (s->phase == PHASE_START && !is_free(s));
    bool was_inside = s->phase == PHASE_INSIDE;

    if (is_strict && !reasoning_allows(s, id)) s->phase = PHASE_TEXT;
    if (s->phase == PHASE_TEXT) return false;
    buffer_put(&s->tail, piece);
    s->last_token = id;

    if (s->phase == PHASE_START) {
        Str text = buffer_str(&s->tail);
        size_t n = count_bare(text, str_of(think_open));
        if (n == N_OPEN) {
            s->phase = PHASE_INSIDE;
            keep_tail(s, text.len - str_find(text, (Str){">", 1}) - 1);
        } else if (n == SIZE_MAX) {
            begin_answer(s);
        }
    } else if (s->phase == PHASE_FREE) {
        accept_free(s);
    }

    // </think> may span tokens.
    if (s->phase == PHASE_INSIDE) {
        Str text = buffer_str(&s->tail);
        size_t at = str_find(text, str_of(think_close));
        s->n_reasoning += was_inside;
        s->is_line_end = memchr(piece.data, '\n', piece.len);
        keep_tail(s, at == SIZE_MAX ? N_CLOSE : text.len - at - N_CLOSE);
        s->needs_text = at != SIZE_MAX && s->budget >= 0;
        if (at != SIZE_MAX) begin_answer(s);
    }

    return true;
}

// True if a prompt ends with a tag and optional white space.
static bool prompt_ends_with(const Tokenizer *t, const int *ids, int n, const char *tag) {
    enum { MAX_TOKENS = 16 }; // enough for a tag and white space
    Buffer text = {0};
    for (int i = n > MAX_TOKENS ? n - MAX_TOKENS : 0; i < n; i++)
        buffer_put(&text, tokenizer_piece(t, ids[i], true));
    while (text.len && is_space((Str){text.data + text.len - 1, 1})) text.len--;
    bool found = str_ends_with(buffer_str(&text), tag);
    buffer_free(&text);
    return found;
}

// The hook.

void constraint_spell_out(Buffer *out, Str text, size_t *at) { number_spell_out(out, text, at); }

const uint64_t *constraint_mask(ConstraintState *s) {
    return matcher_mask(s->matcher, s->drops_space);
}

// True if a token may follow unconstrained text. It must not complete a tag after which its other
// bytes, as the beginning of constrained text, do not fit.
static bool tag_allows(const ConstraintState *s, int id) {
    Buffer text = {0};
    buffer_put(&text, buffer_str(&s->tail));
    buffer_put(&text, tokenizer_piece(s->cache->tokenizer, id, true));

    // The text after the tag.
    size_t at, n_space;
    if (s->phase == PHASE_FREE) {
        at = find_call(s, buffer_str(&text));
    } else {
        at = str_find(buffer_str(&text), str_of(think_close));
        if (at != SIZE_MAX) at += N_CLOSE;
    }
    bool is_allowed = at == SIZE_MAX;

    if (!is_allowed) {
        Str rest = {text.data + at, text.len - at};
        Matcher *m = begin_call(s, rest, &n_space);
        is_allowed = s->phase == PHASE_FREE ? m != NULL : n_space == rest.len;
        matcher_free(m);
    }

    buffer_free(&text);
    return is_allowed;
}

// Excludes the few tokens that cannot follow unconstrained text. Only tokens that can complete a
// tag are looked at.
static void mask_unconstrained(const ConstraintState *s, float *logits) {
    const Tokenizer *t = s->cache->tokenizer;
    bool is_answer = s->phase == PHASE_FREE;
    int n_tags = is_answer ? s->spec.n_openers : !is_free(s);

    for (int i = 0; i < n_tags; i++) {
        Str tag = is_answer ? s->spec.openers[i] : str_of(think_close);
        bool is_begun = is_bare(tag) ? s->is_beginning : count_begun(buffer_str(&s->tail), tag);
        for (int id = 0; is_begun && id < tokenizer_n_vocab(t); id++) {
            Str piece = tokenizer_piece(t, id, true);
            if (piece.len && memchr(piece.data, tag.data[tag.len - 1], piece.len) &&
                !tag_allows(s, id))
                logits[id] = -INFINITY;
        }
    }

    for (int i = 0; is_answer && i < s->whole.len; i++)
        if (!tag_allows(s, s->whole.data[i])) logits[s->whole.data[i]] = -INFINITY;
    for (int id = 0; s->needs_text && id < tokenizer_n_vocab(t); id++)
        if (tokenizer_is_stop(t, id)) logits[id] = -INFINITY;
}

static void mask_logits(void *arg, float *logits) {
    ConstraintState *s = arg;
    const Tokenizer *t = s->cache->tokenizer;
    int n = tokenizer_n_vocab(t);

    if (s->phase == PHASE_INSIDE || s->phase == PHASE_FREE ||
        (s->phase == PHASE_START && is_free(s))) {
        mask_unconstrained(s, logits);
        return;
    }

    // The constrained text may begin in place of <think> and of white space.
    bool is_text = s->phase != PHASE_START || !s->tail.len;
    bool is_end = constraint_is_complete(s);
    const uint64_t *mask = constraint_mask(s);

    for (int id = 0; id < n; id++) {
        bool is_allowed = (is_text && mask[id / 64] >> (id & 63) & 1) ||
                          (s->phase != PHASE_TEXT && reasoning_allows(s, id)) ||
                          (is_end && tokenizer_is_stop(t, id));
        if (!is_allowed) logits[id] = -INFINITY;
    }
}

bool constraint_accept(ConstraintState *s, int token, size_t *n_accepted) {
    *n_accepted = 0;
    if (s->n_fed < s->fed.len) s->n_fed += s->fed.data[s->n_fed] == token;
    if (accept_unconstrained(s, token)) return true;
    Str piece = tokenizer_piece_in_text(s->cache->tokenizer, token, false, &s->drops_space);
    s->last_token = token;
    *n_accepted = matcher_accept(s->matcher, piece);
    return *n_accepted == piece.len;
}

static void accept_token(void *arg, int token) { constraint_accept(arg, token, &(size_t){0}); }

// Encodes text that must come next as the tokenizer would encode it after the last token: encodes
// the last token's text and the new text together, and drops the ids of the last token. With
// SentencePiece, which adds a space at the beginning of a text, a line break replaces the last
// token. If one token spans both texts, encodes the new text alone; with SentencePiece, returns no
// ids instead.
static void encode_continuation(const ConstraintState *s, Str text, bool parse_special, Ids *out) {
    const Tokenizer *t = s->cache->tokenizer;
    bool has_space_prefix = tokenizer_has_space_prefix(t);
    Buffer all = {0};

    // Encode the text of the last token and the new text.
    Str before = s->last_token >= 0 ? tokenizer_piece(t, s->last_token, false) : (Str){"", 0};
    if (has_space_prefix) before = (Str){"\n", 1};
    buffer_put(&all, before);
    buffer_put(&all, text);
    tokenizer_encode(t, buffer_str(&all), parse_special, out);

    // Drop the tokens of `before`, if no token spans both texts.
    size_t n_before = before.len + has_space_prefix, n = 0; // bytes
    int k = 0;                                              // tokens
    while (k < out->len && n < n_before) n += tokenizer_piece(t, out->data[k++], false).len;
    if (n == n_before && k < out->len) {
        out->len -= k;
        memmove(out->data, out->data + k, (size_t)out->len * sizeof *out->data);
    } else {
        out->len = 0;
        if (!has_space_prefix) tokenizer_encode(t, text, parse_special, out);
    }
    buffer_free(&all);
}

// The number of leading tokens whose bytes are a prefix of the text.
static int count_matching(const ConstraintState *s, Str text, const Ids *ids) {
    const Tokenizer *t = s->cache->tokenizer;
    int n = 0;
    for (; n < ids->len && !tokenizer_is_control(t, ids->data[n]); n++) {
        Str piece = tokenizer_piece(t, ids->data[n], false);
        if (piece.len > text.len || memcmp(piece.data, text.data, piece.len)) break;
        text = (Str){text.data + piece.len, text.len - piece.len};
    }
    return n;
}

// Appends a text to those that are fed next. A tag may be a special token.
static void feed_text(ConstraintState *s, Str text, bool is_tag) {
    Ids ids = {0};
    encode_continuation(s, text, is_tag, &ids);
    if (!ids.len) tokenizer_encode(s->cache->tokenizer, text, is_tag, &ids);
    for (int i = 0; i < ids.len; i++) ids_push(&s->fed, s->last_token = ids.data[i]);
    free(ids.data);
}

// True if the reasoning has used up its budget and, if a line ends soon, is at the end of a line.
static bool is_over_budget(const ConstraintState *s) {
    if (s->phase != PHASE_INSIDE || s->budget < 0 || s->n_reasoning < s->budget) return false;
    return s->is_line_end || s->n_reasoning - s->budget >= s->budget / 10;
}

// Continues after a complete call. False if the answer ends with it.
static bool end_call(ConstraintState *s) {
    if (!s->spec.closer.len && !s->spec.has_more) return false;
    s->tail.len = 0;
    if (s->spec.closer.len) {
        s->phase = PHASE_FREE;
        feed_text(s, s->spec.closer, true);
    } else {
        matcher_free(s->matcher);
        s->matcher = new_matcher(s);
        s->phase = PHASE_SPACE;
        s->is_after_call = true;
    }
    return true;
}

static int force_tokens(void *arg, int *out) {
    ConstraintState *s = arg;
    Buffer text = {0};
    Ids ids = {0};
    int n = 0;

    // Text that is fed: the end of the reasoning, or of a call.
    bool is_done = s->phase == PHASE_TEXT && !s->drops_space && matcher_is_done(s->matcher);
    if (s->n_fed == s->fed.len && is_over_budget(s)) {
        if (s->spec.message.len) feed_text(s, s->spec.message, false);
        feed_text(s, str_of(think_close), true);
    }
    if (is_done && (!is_free(s) || !end_call(s))) return -1;
    for (; n < GENERATE_LOOKAHEAD && s->n_fed + n < s->fed.len; n++)
        out[n] = s->fed.data[s->n_fed + n];
    if (n || s->phase != PHASE_TEXT || s->drops_space) return n;

    // Leave out the last token, because the text after it may change its tokenization.
    matcher_forced(s->matcher, &text);
    if (text.len > 1) {
        encode_continuation(s, buffer_str(&text), false, &ids);
        n = count_matching(s, buffer_str(&text), &ids) - 1;
    }

    if (n > GENERATE_LOOKAHEAD) n = GENERATE_LOOKAHEAD;
    if (n > 0) memcpy(out, ids.data, (size_t)n * sizeof *out);

    free(ids.data);
    buffer_free(&text);
    return n > 0 ? n : 0;
}

// Ends the reasoning where the model would end the text without an answer.
static int replace_stop(void *arg, int token) {
    ConstraintState *s = arg;
    if (s->phase != PHASE_INSIDE || (is_free(s) && s->budget < 0)) return token;
    feed_text(s, str_of(think_close), true);
    return s->fed.data[s->n_fed];
}

// The budget that leaves a quarter of the tokens of a request for the answer, the tags aside.
static int automatic_budget(const Tokenizer *t, const Request *r) {
    int n = r->max_tokens >= 0 ? r->max_tokens : r->max_context - r->n_prompt;
    Ids tags = {0};
    tokenizer_encode(t, str_of("<think></think>"), true, &tags);
    int n_reasoning = n - n / 4 - tags.len;
    free(tags.data);
    return n_reasoning > 0 ? (int)(n_reasoning / 1.1) : 0; // the end of a line may be awaited
}

void constraint_attach(ConstraintState *s, Request *r) {
    const Tokenizer *t = s->cache->tokenizer;
    const ConstraintSpec *spec = &s->spec;

    s->hook = (Constraint){force_tokens, mask_logits, accept_token, replace_stop, s};
    s->drops_space = s->matcher && r->n_prompt <= 1 && tokenizer_has_space_prefix(t);
    if (spec->has_budget) s->budget = spec->budget < 0 ? automatic_budget(t, r) : spec->budget;
    s->phase = is_free(s) ? PHASE_FREE : PHASE_TEXT;
    s->is_beginning = true;
    if (!spec->no_think && prompt_ends_with(t, r->prompt, r->n_prompt, think_open))
        s->phase = PHASE_INSIDE;
    else if (spec->may_think && !prompt_ends_with(t, r->prompt, r->n_prompt, think_close))
        s->phase = PHASE_START;
    s->spec.may_think = s->phase >= PHASE_START;

    // The tokens that contain an opener. A control token usually is one.
    for (int i = 0; i < spec->n_openers; i++)
        for (int id = 0; id < tokenizer_n_vocab(t); id++) {
            Str piece = tokenizer_piece(t, id, true);
            if (piece.len >= spec->openers[i].len && str_find(piece, spec->openers[i]) != SIZE_MAX)
                ids_push(&s->whole, id);
        }
    r->constraint = &s->hook;
}
