#include "constraint.h"
#include "../base/clock.h"
#include "constrain.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_KEPT = 64 };

typedef struct Compiled Compiled;
struct Compiled {
    Buffer key;
    Grammar *grammar;
    Matcher *tables; // keeps what is known of its masks
    double sec;
    int n_users;
    Compiled *next; // asked for earlier
};

struct ConstraintCache {
    const Tokenizer *tokenizer;
    Vocabulary *vocabulary; // made when a grammar is asked for first
    Compiled *newest;
    int n;
};

// Where a text that may begin with thoughts stands.
typedef enum {
    T_NONE,   // in what the grammar says
    T_START,  // nothing is written but a beginning of <think>
    T_INSIDE, // before </think>
    T_SPACE   // after it; white space may follow
} Thought;

struct ConstraintState {
    Constraint calls;
    ConstraintCache *cache;
    Compiled *compiled;
    Matcher *matcher;
    bool may_think, drops_space;
    Thought thought;
    Buffer tail; // of the thought, for its ends
    int last;    // the token accepted last, or -1
};

static const char think_open[] = "<think>", think_close[] = "</think>";
enum { N_OPEN = sizeof think_open - 1, N_CLOSE = sizeof think_close - 1 };

const bool constrain_is_built = true;

// --- grammars

ConstraintCache *constraint_cache_new(const Tokenizer *t) {
    ConstraintCache *c = xalloc(1, sizeof *c);
    c->tokenizer = t;
    return c;
}

static const Vocabulary *constraint_vocabulary(ConstraintCache *cache) {
    const Tokenizer *t = cache->tokenizer;
    int n = tokenizer_n_vocab(t);
    if (cache->vocabulary) return cache->vocabulary;
    Str *pieces = xalloc((size_t)n, sizeof *pieces);
    for (int id = 0; id < n; id++)
        if (!tokenizer_is_control(t, id) && !tokenizer_is_stop(t, id))
            pieces[id] = tokenizer_piece(t, id, false);
    cache->vocabulary = vocabulary_new(pieces, n);
    free(pieces);
    return cache->vocabulary;
}

static void put_json(Buffer *out, const Json *j) {
    switch (j->kind) {
    case JSON_NULL: buffer_puts(out, "null"); return;
    case JSON_BOOL: buffer_puts(out, j->boolean ? "true" : "false"); return;
    case JSON_NUMBER: buffer_printf(out, "%a", j->number); return;
    case JSON_STRING: json_quote(out, j->string); return;
    default: break;
    }
    buffer_puts(out, j->kind == JSON_OBJECT ? "{" : "[");
    for (const Json *k = j->child; k; k = k->next) {
        if (j->kind == JSON_OBJECT) json_quote(out, k->key);
        put_json(out, k);
        buffer_puts(out, ",");
    }
    buffer_puts(out, j->kind == JSON_OBJECT ? "}" : "]");
}

// A name for what is wished, the same for the same; empty for nothing.
static void put_key(Buffer *key, const ConstraintSpec *w) {
    if (w->schema || w->schema_text.data) buffer_puts(key, w->is_ordered ? "ordered " : "schema ");
    if (w->schema) put_json(key, w->schema);
    if (w->schema_text.data) buffer_put(key, w->schema_text);
    if (w->grammar.data) buffer_puts(key, "grammar "), buffer_put(key, w->grammar);
    if (w->regex.data) buffer_puts(key, "regex "), buffer_put(key, w->regex);
    for (int i = 0; i < w->n_choices; i++) {
        buffer_puts(key, i ? "," : "choices ");
        json_quote(key, w->choices[i]);
    }
}

static Grammar *compile(const ConstraintSpec *w, Buffer *unknown, Error *err) {
    if (w->schema) return grammar_schema(w->schema, w->is_ordered, unknown, err);
    if (w->schema_text.data)
        return grammar_schema_text(w->schema_text, w->is_ordered, unknown, err);
    if (w->grammar.data) return grammar_gbnf(w->grammar, err);
    return w->regex.data ? grammar_regex(w->regex, err)
                         : grammar_choices(w->choices, w->n_choices, err);
}

// Forgets the one nobody uses that was asked for longest ago.
static void forget_one(ConstraintCache *cache) {
    Compiled **oldest = NULL;
    for (Compiled **link = &cache->newest; *link; link = &(*link)->next)
        if (!(*link)->n_users) oldest = link;
    if (cache->n <= MOST_KEPT || !oldest) return;
    Compiled *old = *oldest;
    *oldest = old->next;
    cache->n--;
    matcher_free(old->tables);
    grammar_free(old->grammar);
    buffer_free(&old->key);
    free(old);
}

// What is wished, compiled now or before.
static Compiled *find_compiled(ConstraintCache *cache, const ConstraintSpec *w, Buffer *key,
                               Buffer *unknown, Error *err) {
    Compiled **link = &cache->newest, *found;
    while (*link && !str_eq(buffer_str(&(*link)->key), buffer_str(key))) link = &(*link)->next;
    found = *link;
    if (found) {
        *link = found->next;
    } else {
        double start = now_sec();
        Grammar *grammar = compile(w, unknown, err);
        if (!grammar) return NULL;
        found = xalloc(1, sizeof *found);
        *found = (Compiled){.key = *key, .grammar = grammar, .sec = now_sec() - start};
        *key = (Buffer){0};
        found->tables = matcher_new(grammar, constraint_vocabulary(cache), NULL);
        cache->n++;
    }
    found->next = cache->newest;
    cache->newest = found;
    forget_one(cache);
    return found;
}

ConstraintState *constraint_clone(const ConstraintState *like) {
    ConstraintState *g = xalloc(1, sizeof *g);
    *g = (ConstraintState){.cache = like->cache,
                           .compiled = like->compiled,
                           .may_think = like->may_think,
                           .drops_space = tokenizer_has_space_prefix(like->cache->tokenizer),
                           .last = -1};
    g->matcher =
        matcher_new(g->compiled->grammar, constraint_vocabulary(g->cache), g->compiled->tables);
    g->compiled->n_users++;
    return g;
}

bool constraint_new(ConstraintCache *cache, const ConstraintSpec *w, ConstraintState **out,
                    Buffer *unknown, Error *err) {
    Buffer key = {0};
    int n = (w->schema != NULL) + (w->schema_text.data != NULL) + (w->grammar.data != NULL) +
            (w->regex.data != NULL) + (w->n_choices > 0);
    *out = NULL;
    if (n > 1)
        return error_set(err, EXIT_USAGE,
                         "expected one of a JSON Schema, a grammar, a regex and choices");
    if (n == 0) return true;
    put_key(&key, w);
    Compiled *compiled = find_compiled(cache, w, &key, unknown, err);
    buffer_free(&key);
    if (!compiled) return false;
    *out = constraint_clone(
        &(ConstraintState){.cache = cache, .compiled = compiled, .may_think = w->may_think});
    return true;
}

void constraint_free(ConstraintState *g) {
    if (!g) return;
    matcher_free(g->matcher);
    g->compiled->n_users--;
    buffer_free(&g->tail);
    free(g);
}

double constraint_compile_sec(const ConstraintState *g) { return g->compiled->sec; }

bool constraint_is_complete(const ConstraintState *g) {
    return g->thought == T_NONE && matcher_is_end(g->matcher);
}

// --- thoughts

static bool is_space(Str s) {
    for (size_t i = 0; i < s.len; i++)
        if (s.data[i] != ' ' && s.data[i] != '\n') return false;
    return true;
}

// Whether a token goes on with <think>, or with all that is left of it.
static bool opens(const ConstraintState *g, int id) {
    const Tokenizer *t = g->cache->tokenizer;
    Str s = tokenizer_piece(t, id, true);
    size_t left = N_OPEN - g->tail.len, n = s.len < left ? s.len : left;
    return s.len && s.len <= left && !memcmp(s.data, think_open + g->tail.len, n);
}

// Whether a token may come because of a thought.
static bool may_think(const ConstraintState *g, int id) {
    const Tokenizer *t = g->cache->tokenizer;
    switch (g->thought) {
    case T_START: return opens(g, id);
    case T_INSIDE: return !tokenizer_is_stop(t, id);
    case T_SPACE:
        return g->tail.len < 2 && is_space(tokenizer_piece(t, id, false)) &&
               !tokenizer_is_control(t, id);
    default: return false;
    }
}

// Takes a token into a thought; false if it is the grammar's.
static bool think(ConstraintState *g, int id) {
    Str s = tokenizer_piece(g->cache->tokenizer, id, true);
    if (g->thought == T_NONE) return false;
    if (g->thought == T_START && !opens(g, id)) return g->thought = T_NONE, false;
    if (g->thought == T_SPACE && (!is_space(s) || g->tail.len >= 2))
        return g->thought = T_NONE, false;
    buffer_put(&g->tail, s);
    if (g->thought == T_START && g->tail.len == N_OPEN) g->thought = T_INSIDE, g->tail.len = 0;
    if (g->thought == T_INSIDE && str_contains(buffer_str(&g->tail), think_close))
        g->thought = T_SPACE, g->tail.len = 0;
    if (g->thought == T_INSIDE && g->tail.len > 4 * N_CLOSE) {
        memmove(g->tail.data, g->tail.data + g->tail.len - N_CLOSE, N_CLOSE);
        g->tail.len = N_CLOSE;
        g->tail.data[N_CLOSE] = 0;
    }
    return true;
}

// Whether a prompt ends with <think>, white space aside.
static bool ends_open(const Tokenizer *t, const int *ids, int n) {
    Buffer text = {0};
    for (int i = n > 16 ? n - 16 : 0; i < n; i++)
        buffer_put(&text, tokenizer_piece(t, ids[i], true));
    while (text.len && is_space((Str){text.data + text.len - 1, 1})) text.len--;
    bool found = str_ends_with(buffer_str(&text), think_open);
    buffer_free(&text);
    return found;
}

// --- what generate.h asks

const uint64_t *constraint_mask(ConstraintState *g) {
    return matcher_mask(g->matcher, g->drops_space);
}

static void mask(void *arg, float *logits) {
    ConstraintState *g = arg;
    const Tokenizer *t = g->cache->tokenizer;
    int n = tokenizer_n_vocab(t);
    bool is_in_grammar = g->thought == T_NONE || g->tail.len == 0,
         is_end = constraint_is_complete(g);
    const uint64_t *fits = constraint_mask(g);
    if (g->thought == T_INSIDE) is_in_grammar = false;
    for (int id = 0; id < n; id++) {
        bool may = is_in_grammar && fits[id / 64] >> (id & 63) & 1;
        if (!may && g->thought != T_NONE) may = may_think(g, id);
        if (!may && is_end) may = tokenizer_is_stop(t, id);
        if (!may) logits[id] = -INFINITY;
    }
}

bool constraint_accept(ConstraintState *g, int token, size_t *n_accepted) {
    Str s = tokenizer_piece(g->cache->tokenizer, token, false);
    *n_accepted = 0;
    if (think(g, token)) return true;
    if (g->drops_space && s.len && s.data[0] == ' ') s = (Str){s.data + 1, s.len - 1};
    g->drops_space = g->drops_space && s.len == 0;
    g->last = token;
    *n_accepted = matcher_accept(g->matcher, s);
    return *n_accepted == s.len;
}

static void accept(void *arg, int token) { constraint_accept(arg, token, &(size_t){0}); }

// Ids of text that follows what was written: as the tokenizer would cut it after the last token, if
// it cuts there.
static void encode_after(const ConstraintState *g, Str text, Ids *out) {
    const Tokenizer *t = g->cache->tokenizer;
    Buffer all = {0};
    Str before = g->last >= 0 ? tokenizer_piece(t, g->last, false) : (Str){"", 0};
    if (tokenizer_has_space_prefix(t))
        before = (Str){"\n", 1}; // SentencePiece puts a space in front of the first
    buffer_put(&all, before), buffer_put(&all, text);
    tokenizer_encode(t, all.data, all.len, out);
    size_t n = 0;
    int k = 0;
    while (k < out->len && n < before.len + (out->len && tokenizer_has_space_prefix(t)))
        n += tokenizer_piece(t, out->data[k++], false).len;
    if (n == before.len + tokenizer_has_space_prefix(t) && k < out->len) {
        out->len -= k;
        memmove(out->data, out->data + k, (size_t)out->len * sizeof *out->data);
    } else {
        out->len = 0;
        if (!tokenizer_has_space_prefix(t)) tokenizer_encode(t, text.data, text.len, out);
    }
    buffer_free(&all);
}

// How many ids spell the beginning of text, each with all its bytes.
static int count_spelled(const ConstraintState *g, Str text, const Ids *ids) {
    size_t at = 0;
    int n = 0;
    for (; n < ids->len; n++) {
        Str s = tokenizer_piece(g->cache->tokenizer, ids->data[n], false);
        if (tokenizer_is_control(g->cache->tokenizer, ids->data[n]) || s.len > text.len - at ||
            memcmp(s.data, text.data + at, s.len))
            break;
        at += s.len;
    }
    return n;
}

static int force(void *arg, int *out) {
    ConstraintState *g = arg;
    Buffer text = {0};
    Ids ids = {0};
    if (g->thought != T_NONE || g->drops_space) return 0;
    if (matcher_is_done(g->matcher)) return -1;
    matcher_forced(g->matcher, &text);
    if (text.len < 2) return buffer_free(&text), 0;
    encode_after(g, buffer_str(&text), &ids);
    int n = count_spelled(g, buffer_str(&text), &ids);
    n -= n > 0; // the last may be another once it is known what follows
    if (n > GENERATE_LOOKAHEAD) n = GENERATE_LOOKAHEAD;
    if (n > 0) memcpy(out, ids.data, (size_t)n * sizeof *out);
    free(ids.data), buffer_free(&text);
    return n;
}

void constraint_attach(ConstraintState *g, Request *r) {
    const Tokenizer *t = g->cache->tokenizer;
    g->calls = (Constraint){force, mask, accept, g};
    g->drops_space = r->n_prompt <= 1 && tokenizer_has_space_prefix(t);
    if (g->may_think) g->thought = ends_open(t, r->prompt, r->n_prompt) ? T_INSIDE : T_START;
    r->constraint = &g->calls;
}
