// See constraint.h.
#include "constrain/constraint.h"
#include "constrain/constrain.h"
#include "base/clock.h"

struct CompiledConstraint {
    Buffer key; // see put_key
    Grammar *grammar;
    Matcher *tables; // holds the tables that all matchers of the grammar share
    size_t n_bytes;  // of key and grammar
    double compile_sec;
    int n_users;              // references to this constraint
    CompiledConstraint *next; // next in the order of requests, the most recent one first
};

struct ConstraintCache {
    const Tokenizer *tokenizer;
    TokenTable *tokens;         // built for the first constraint
    CompiledConstraint *newest; // the most recently requested
};

enum { MAX_BYTES = 256 << 20 }; // of all compiled constraints, without tables

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

// Appends the cache key of a constraint: its modes, the lengths of its lists and texts, and its
// sources.
static void put_key(Buffer *key, const ConstraintSpec *s) {
    buffer_printf(key, "%d%d %zu %zu %zu %d ", s->is_ordered, s->is_closed, s->schema_text.len,
                  s->grammar.len, s->regex.len, s->n_choices);

    if (s->schema) json_write_value(&(JsonWriter){.out = key}, NULL, s->schema, NULL);
    buffer_put(key, s->schema_text);
    buffer_put(key, s->grammar);
    buffer_put(key, s->regex);
    for (int i = 0; i < s->n_choices; i++) json_quote(key, s->choices[i]);
}

static Grammar *compile(const ConstraintSpec *s, Buffer *unknown, Error *err) {
    unsigned modes = (s->is_ordered ? SCHEMA_ORDERED : 0u) | (s->is_closed ? SCHEMA_CLOSED : 0u);
    if (s->schema) return grammar_schema(s->schema, modes, unknown, err);
    if (s->schema_text.data) return grammar_schema_text(s->schema_text, modes, unknown, err);
    if (s->grammar.data) return grammar_gbnf(s->grammar, err);
    return s->regex.data ? grammar_regex(s->regex, err)
                         : grammar_choices(s->choices, s->n_choices, err);
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
            CompiledConstraint *old = *oldest;
            *oldest = old->next;
            matcher_free(old->tables);
            grammar_free(old->grammar);
            buffer_free(&old->key);
            free(old);
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

bool constraint_compile(ConstraintCache *cache, const ConstraintSpec *spec,
                        CompiledConstraint **out, Buffer *unknown, Error *err) {
    int n = constraint_n_sources(spec);
    *out = NULL;
    if (n > 1)
        return error_set(err, EXIT_USAGE,
                         "more than one constraint; use one of a JSON Schema, a grammar, a regular "
                         "expression and choices");
    if (n == 0) return true;

    CompiledConstraint *found = find_compiled(cache, spec, unknown, err);
    if (!found) return false;

    // Check the limits after the constraint has its new user.
    *out = constraint_retain(found);
    if (keep_within_limits(cache)) return true;

    constraint_release(found);
    *out = NULL;
    return error_set(err, EXIT_USAGE,
                     "the constraints in use take more than %d MB; lower --parallel",
                     MAX_BYTES >> 20);
}

CompiledConstraint *constraint_retain(CompiledConstraint *c) {
    if (c) c->n_users++;
    return c;
}

void constraint_release(CompiledConstraint *c) {
    if (c) c->n_users--;
}

Matcher *constraint_begin(const CompiledConstraint *c) {
    return matcher_new(c->grammar, NULL, c->tables);
}

double constraint_compile_sec(const CompiledConstraint *c) { return c->compile_sec; }
