// See constraint.h.
#include "constrain/constraint.h"
#include "constrain/constrain.h"
#include "constrain/text_check.h"
#include "base/clock.h"

struct CompiledConstraint {
    Buffer key; // see put_key
    Grammar *grammar;
    TextCheck *check; // of what the grammar does not enforce; NULL: nothing
    Matcher *tables;  // holds the tables that all matchers of the grammar share
    size_t n_bytes;   // of key and grammar
    ConstraintNotes notes;
    double compile_sec;
    int n_users;              // references to this constraint
    CompiledConstraint *next; // next in the order of requests, the most recent one first
};

struct ConstraintCache {
    const Tokenizer *tokenizer;
    Arena controls;             // the texts of control tokens
    TokenTable *tokens;         // built for the first constraint
    CompiledConstraint *newest; // the most recently requested
};

enum { MAX_BYTES = 256 << 20 }; // of all compiled constraints, without tables

ConstraintCache *constraint_cache_new(const Tokenizer *t) {
    ConstraintCache *c = xalloc(1, sizeof *c);
    c->tokenizer = t;
    return c;
}

// The text of a control token among those of all tokens.
static Str mark_control(Arena *arena, Str name) {
    char *marked = arena_alloc(arena, 1, name.len + 1);
    *marked = *CONTROL_MARK;
    memcpy(marked + 1, name.data, name.len);
    return (Str){marked, name.len + 1};
}

static const TokenTable *find_tokens(ConstraintCache *cache) {
    const Tokenizer *t = cache->tokenizer;
    int n = tokenizer_n_vocab(t);
    if (cache->tokens) return cache->tokens;

    // A byte token with the byte of CONTROL_MARK is part of no text.
    Str *pieces = xalloc((size_t)n, sizeof *pieces);
    for (int id = 0; id < n; id++) {
        Str piece = tokenizer_piece(t, id, false);
        if (tokenizer_is_stop(t, id)) continue;
        if (tokenizer_is_control(t, id))
            pieces[id] = mark_control(&cache->controls, tokenizer_piece(t, id, true));
        else if (!memchr(piece.data, *CONTROL_MARK, piece.len))
            pieces[id] = piece;
    }
    cache->tokens = token_table_new(pieces, n);
    free(pieces);
    return cache->tokens;
}

// Appends the cache key of a constraint: its kind, its modes, and its source. Specs with equal keys
// have equal sources.
static void put_key(Buffer *key, const ConstraintSpec *s) {
    const CallSpec *calls = &s->calls;
    buffer_printf(key, "%d%d%d%d ", (int)s->kind, s->any_order, s->extra_properties, s->is_strict);
    if (calls->tools.len) {
        buffer_printf(key, "%d%d%d %s %s ", calls->is_list, calls->is_single, calls->is_opened,
                      calls->key, calls->closer);
        for (int i = 0; i < calls->n_openers; i++) json_quote(key, str_of(calls->openers[i]));
        if (calls->only.data) json_quote(key, calls->only);
        json_quote(key, calls->tools);
    }

    switch (s->kind) {
    case CONSTRAINT_NONE: break;
    case CONSTRAINT_SCHEMA:
    case CONSTRAINT_SCHEMA_TEXT: spec_put_schema(s, key); break;
    case CONSTRAINT_GRAMMAR:
    case CONSTRAINT_REGEX: buffer_put(key, s->text); break;
    case CONSTRAINT_CHOICES:
        for (int i = 0; i < s->choices.n; i++) json_quote(key, s->choices.at[i]);
        break;
    }
}

// The grammar of a spec without its calls. except: values that a schema must not allow, or NULL.
static Grammar *compile_source(const ConstraintSpec *s, const Json *except, unsigned modes,
                               Buffer *unknown, Error *err) {
    switch (s->kind) {
    case CONSTRAINT_NONE: break;
    case CONSTRAINT_SCHEMA: return grammar_schema(s->schema, except, modes, unknown, err);
    case CONSTRAINT_SCHEMA_TEXT: return grammar_schema_text(s->text, except, modes, unknown, err);
    case CONSTRAINT_GRAMMAR: return grammar_gbnf(s->text, err);
    case CONSTRAINT_REGEX: return grammar_regex(s->text, err);
    case CONSTRAINT_CHOICES: return grammar_choices(s->choices.at, s->choices.n, err);
    }
    Grammar *g = xalloc(1, sizeof *g);
    g->root = NONE;
    return g;
}

// The texts of the source and, as a second alternative, calls. An object of the source that a
// reader would take for a call is excluded: what begins as a call is one.
static Grammar *compile(const ConstraintSpec *s, const Tokenizer *t, ConstraintNotes *notes,
                        Error *err) {
    unsigned modes = (s->any_order ? 0u : SCHEMA_ORDERED) |
                     (s->extra_properties ? 0u : SCHEMA_CLOSED) |
                     (s->is_strict ? 0u : SCHEMA_CHECKED);
    Buffer unknown = {0}, shape = {0};
    JsonDoc except = {0};

    calls_put_shape(&s->calls, &shape);
    if (shape.len && !json_parse(&except, shape.data, shape.len, err)) return NULL;

    Grammar *g = compile_source(s, except.root, modes, &unknown, err);
    if (unknown.len) buffer_printf(&notes->ignored, "JSON Schema: ignored: %s", unknown.data);
    if (g && g->unenforced.len)
        buffer_printf(&notes->checked, "JSON Schema: checked at the end, not enforced: %s",
                      g->unenforced.data);
    if (g && s->calls.tools.len && !grammar_add_calls(g, &s->calls, t, modes, notes, err)) {
        grammar_free(g);
        g = NULL;
    }

    buffer_free(&unknown);
    buffer_free(&shape);
    json_free(&except);
    return g;
}

static void notes_free(ConstraintNotes *notes) {
    buffer_free(&notes->ignored);
    buffer_free(&notes->problems);
    buffer_free(&notes->checked);
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
            text_check_free(old->check);
            buffer_free(&old->key);
            notes_free(&old->notes);
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
                                         Error *err) {
    ConstraintNotes notes = {0};
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
        Grammar *grammar = compile(s, cache->tokenizer, &notes, err);
        if (!grammar) {
            buffer_free(&key);
            notes_free(&notes);
            return NULL;
        }

        found = xalloc(1, sizeof *found);
        *found = (CompiledConstraint){.key = key,
                                      .grammar = grammar,
                                      .n_bytes = key.len + grammar_bytes(grammar),
                                      .notes = notes,
                                      .compile_sec = now_sec() - start};
        found->check = text_check_new(grammar, s);
        found->tables = matcher_new(grammar, find_tokens(cache), NULL);
    }

    found->next = cache->newest;
    cache->newest = found;
    return found;
}

bool constraint_compile(ConstraintCache *cache, const ConstraintSpec *spec,
                        CompiledConstraint **out, Error *err) {
    *out = NULL;
    if (spec->kind == CONSTRAINT_NONE && !spec->calls.tools.len) return true;

    CompiledConstraint *found = find_compiled(cache, spec, err);
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

bool constraint_check(const CompiledConstraint *c, Str text, Error *err) {
    return text_check(c->check, text, err);
}

double constraint_compile_sec(const CompiledConstraint *c) { return c->compile_sec; }

const ConstraintNotes *constraint_notes(const CompiledConstraint *c) { return &c->notes; }
