// See constraint.h.
#include "constraint.h"
#include "constrain.h"
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

// The current position in a text that may begin with <think>...</think>.
typedef enum {
    REASONING_NONE,   // in the constrained text
    REASONING_START,  // before <think> is complete
    REASONING_INSIDE, // before </think> is complete
    REASONING_SPACE   // after </think>; up to two white space characters may follow
} ReasoningPhase;

struct ConstraintState {
    Constraint hook;
    ConstraintCache *cache;
    CompiledConstraint *compiled;
    Matcher *matcher;
    bool may_think;
    bool drops_space; // a space at the beginning of the next token is not part of the text
    ReasoningPhase phase;
    Buffer tail;    // the text of this phase; in REASONING_INSIDE, only its end
    int last_token; // of the constrained text, or -1
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

// Appends the cache key of a constraint: its kind and source.
static void put_key(Buffer *key, const ConstraintSpec *s) {
    JsonWriter w = {.out = key};

    if (s->is_checked) buffer_puts(key, "checked ");
    if (s->schema || s->schema_text.data) buffer_puts(key, s->is_ordered ? "ordered " : "schema ");
    if (s->schema) json_write_value(&w, NULL, s->schema, NULL);
    if (s->schema_text.data) buffer_put(key, s->schema_text);

    if (s->grammar.data) {
        buffer_puts(key, "grammar ");
        buffer_put(key, s->grammar);
    }
    if (s->regex.data) {
        buffer_puts(key, "regex ");
        buffer_put(key, s->regex);
    }

    if (s->n_choices) buffer_puts(key, "choices ");
    for (int i = 0; i < s->n_choices; i++) json_quote(key, s->choices[i]);
}

static Grammar *compile(const ConstraintSpec *s, Buffer *unknown, Error *err) {
    unsigned modes = (s->is_ordered ? SCHEMA_ORDERED : 0) | (s->is_checked ? SCHEMA_CHECKED : 0);
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

static ConstraintState *new_state(ConstraintCache *cache, CompiledConstraint *compiled,
                                  bool may_think) {
    ConstraintState *s = xalloc(1, sizeof *s);
    *s = (ConstraintState){.cache = cache,
                           .compiled = compiled,
                           .may_think = may_think,
                           .drops_space = tokenizer_has_space_prefix(cache->tokenizer),
                           .last_token = -1};
    s->matcher = matcher_new(compiled->grammar, find_tokens(cache), compiled->tables);
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
    if (n == 0) return true;

    CompiledConstraint *compiled = find_compiled(cache, spec, unknown, err);
    if (!compiled) return false;

    // Check the limits after the new state has become a user of its constraint.
    *out = new_state(cache, compiled, spec->may_think);
    if (keep_within_limits(cache)) return true;

    constraint_free(*out);
    *out = NULL;
    return error_set(err, EXIT_USAGE,
                     "the constraints in use take more than %d MB; lower --parallel",
                     MAX_BYTES >> 20);
}

ConstraintState *constraint_clone(const ConstraintState *s) {
    return new_state(s->cache, s->compiled, s->may_think);
}

void constraint_free(ConstraintState *s) {
    if (!s) return;
    matcher_free(s->matcher);
    s->compiled->n_users--;
    buffer_free(&s->tail);
    free(s);
}

double constraint_compile_sec(const ConstraintState *s) { return s->compiled->compile_sec; }

bool constraint_is_complete(const ConstraintState *s) {
    return s->phase == REASONING_NONE && matcher_is_end(s->matcher);
}

bool constraint_is_exact(const ConstraintState *s) { return matcher_is_exact(s->matcher); }

bool constraint_matches(const ConstraintState *s, Str text) {
    if (s->may_think) return constraint_is_complete(s);
    ConstraintState *other = constraint_clone(s);
    bool is_match =
        matcher_accept(other->matcher, text) == text.len && matcher_is_end(other->matcher);
    constraint_free(other);
    return is_match;
}

// Reasoning.

static const char think_open[] = "<think>", think_close[] = "</think>";
enum { N_OPEN = sizeof think_open - 1, N_CLOSE = sizeof think_close - 1, MAX_SPACE = 2 };

static bool is_space(Str s) {
    for (size_t i = 0; i < s.len; i++)
        if (s.data[i] != ' ' && s.data[i] != '\n') return false;
    return true;
}

// True if a token may come next as part of the reasoning, rather than of the constrained text.
static bool reasoning_allows(const ConstraintState *s, int id) {
    const Tokenizer *t = s->cache->tokenizer;
    Str piece = tokenizer_piece(t, id, s->phase == REASONING_START);
    switch (s->phase) {
    case REASONING_START: // the token continues or completes <think>
        return piece.len && piece.len <= N_OPEN - s->tail.len &&
               !memcmp(piece.data, think_open + s->tail.len, piece.len);
    case REASONING_INSIDE: return !tokenizer_is_stop(t, id);
    case REASONING_SPACE:
        return s->tail.len < MAX_SPACE && is_space(piece) && !tokenizer_is_control(t, id);
    default: return false;
    }
}

// Adds a token to the reasoning. False if it belongs to the constrained text.
static bool reasoning_accept(ConstraintState *s, int id) {
    if (s->phase != REASONING_INSIDE && !reasoning_allows(s, id)) s->phase = REASONING_NONE;
    if (s->phase == REASONING_NONE) return false;

    if (s->phase == REASONING_INSIDE && s->tail.len > N_CLOSE) { // </think> may span tokens
        memmove(s->tail.data, s->tail.data + s->tail.len - N_CLOSE, N_CLOSE);
        s->tail.len = N_CLOSE;
    }

    // A complete tag ends the phase.
    buffer_put(&s->tail, tokenizer_piece(s->cache->tokenizer, id, true));
    if (s->phase == REASONING_START && s->tail.len == N_OPEN) {
        s->phase = REASONING_INSIDE;
        s->tail.len = 0;
    }
    if (s->phase == REASONING_INSIDE && str_contains(buffer_str(&s->tail), think_close)) {
        s->phase = REASONING_SPACE;
        s->tail.len = 0;
    }
    return true;
}

// True if a prompt ends with <think> and optional white space.
static bool prompt_ends_open(const Tokenizer *t, const int *ids, int n) {
    enum { MAX_TOKENS = 16 }; // enough for <think> and white space
    Buffer text = {0};
    for (int i = n > MAX_TOKENS ? n - MAX_TOKENS : 0; i < n; i++)
        buffer_put(&text, tokenizer_piece(t, ids[i], true));
    while (text.len && is_space((Str){text.data + text.len - 1, 1})) text.len--;
    bool found = str_ends_with(buffer_str(&text), think_open);
    buffer_free(&text);
    return found;
}

// The hook.

const uint64_t *constraint_mask(ConstraintState *s) {
    return matcher_mask(s->matcher, s->drops_space);
}

static void mask_logits(void *arg, float *logits) {
    ConstraintState *s = arg;
    const Tokenizer *t = s->cache->tokenizer;
    int n = tokenizer_n_vocab(t);

    // The constrained text may begin in place of <think>, and in place of white space after
    // </think>.
    bool is_text = s->phase != REASONING_INSIDE && (s->phase == REASONING_NONE || !s->tail.len);
    bool is_end = constraint_is_complete(s);
    const uint64_t *mask = constraint_mask(s);

    for (int id = 0; id < n; id++) {
        bool is_allowed = (is_text && mask[id / 64] >> (id & 63) & 1) ||
                          (s->phase != REASONING_NONE && reasoning_allows(s, id)) ||
                          (is_end && tokenizer_is_stop(t, id));
        if (!is_allowed) logits[id] = -INFINITY;
    }
}

bool constraint_accept(ConstraintState *s, int token, size_t *n_accepted) {
    Str piece = tokenizer_piece(s->cache->tokenizer, token, false);
    *n_accepted = 0;
    if (reasoning_accept(s, token)) return true;
    if (s->drops_space && piece.len && piece.data[0] == ' ')
        piece = (Str){piece.data + 1, piece.len - 1};
    s->drops_space = s->drops_space && piece.len == 0;
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
static void encode_continuation(const ConstraintState *s, Str text, Ids *out) {
    const Tokenizer *t = s->cache->tokenizer;
    bool has_space_prefix = tokenizer_has_space_prefix(t);
    Buffer all = {0};

    // Encode the text of the last token and the new text.
    Str before = s->last_token >= 0 ? tokenizer_piece(t, s->last_token, false) : (Str){"", 0};
    if (has_space_prefix) before = (Str){"\n", 1};
    buffer_put(&all, before);
    buffer_put(&all, text);
    tokenizer_encode(t, buffer_str(&all), false, out);

    // Drop the tokens of `before`, if no token spans both texts.
    size_t n_before = before.len + has_space_prefix, n = 0; // bytes
    int k = 0;                                              // tokens
    while (k < out->len && n < n_before) n += tokenizer_piece(t, out->data[k++], false).len;
    if (n == n_before && k < out->len) {
        out->len -= k;
        memmove(out->data, out->data + k, (size_t)out->len * sizeof *out->data);
    } else {
        out->len = 0;
        if (!has_space_prefix) tokenizer_encode(t, text, false, out);
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

static int force_tokens(void *arg, int *out) {
    ConstraintState *s = arg;
    Buffer text = {0};
    Ids ids = {0};
    int n = 0;
    if (s->phase != REASONING_NONE || s->drops_space) return 0;
    if (matcher_is_done(s->matcher)) return -1;

    // Leave out the last token, because the text after it may change its tokenization.
    matcher_forced(s->matcher, &text);
    if (text.len > 1) {
        encode_continuation(s, buffer_str(&text), &ids);
        n = count_matching(s, buffer_str(&text), &ids) - 1;
    }

    if (n > GENERATE_LOOKAHEAD) n = GENERATE_LOOKAHEAD;
    if (n > 0) memcpy(out, ids.data, (size_t)n * sizeof *out);

    free(ids.data);
    buffer_free(&text);
    return n > 0 ? n : 0;
}

void constraint_attach(ConstraintState *s, Request *r) {
    const Tokenizer *t = s->cache->tokenizer;
    s->hook = (Constraint){force_tokens, mask_logits, accept_token, s};
    s->drops_space = r->n_prompt <= 1 && tokenizer_has_space_prefix(t);
    if (s->may_think)
        s->phase = prompt_ends_open(t, r->prompt, r->n_prompt) ? REASONING_INSIDE : REASONING_START;
    r->constraint = &s->hook;
}
