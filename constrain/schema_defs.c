// Facts of one branch -> alternatives of a node: the automata of its strings and numbers, its
// arrays and objects.
#include "regex.h"
#include "schema.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// --- automata that are made once

static int any_dfa(Compiler *c) {
    bool is_new;
    int *known = schema_known(c, str_of("any"), &is_new);
    if (is_new) {
        Dfa d;
        dfa_any(&d);
        *known = grammar_add_dfa(c->c, &d);
    }
    return *known;
}

// The automaton of an expression, which messages call a keyword's.
static int known_regex(Compiler *c, const Json *place, const char *keyword, Str pattern,
                       RegexMode mode) {
    bool is_new;
    Error why;
    Dfa d;
    Buffer key = {0};
    buffer_printf(&key, "regex %d ", (int)mode);
    buffer_put(&key, pattern);
    int *known = schema_known(c, buffer_str(&key), &is_new);
    buffer_free(&key);
    if (!is_new) return *known;
    *known = -1;
    if (!regex_compile(pattern, mode, &c->budget, &d, &why))
        return schema_fail(c, place, keyword, "%s", why.text), -1;
    return *known = grammar_add_dfa(c->c, &d);
}

int schema_pattern(Compiler *c, const Json *place, Str pattern) {
    return known_regex(c, place, json_get(place, "pattern") ? "pattern" : "patternProperties",
                       pattern, REGEX_SEARCH);
}

int schema_format(Compiler *c, const Json *place, Str name, uint32_t *max) {
    const char *pattern;
    *max = NO_LIMIT;
    switch (format_find(name, &pattern, max)) {
    case FORMAT_KNOWN: return known_regex(c, place, "format", str_of(pattern), REGEX_WHOLE);
    case FORMAT_UNSUPPORTED:
        return schema_fail(c, place, "format", "\"%.*s\" is not supported", SHOWN(name)), -1;
    default: return -1;
    }
}

// --- text and numbers

static void add_text(Compiler *c, Str key, const char *pattern) {
    bool is_new;
    Error why;
    Dfa d;
    int *known = schema_known(c, key, &is_new);
    if (is_new && !regex_compile(str_of(pattern), REGEX_WHOLE, &c->budget, &d, &why)) {
        schema_fail(c, NULL, NULL, "%s", why.text);
        return;
    }
    if (is_new) *known = grammar_add_dfa(c->c, &d);
    if (!dfa_is_empty(&c->c->dfas[*known])) node_add(c->c, c->node, (Alt){ALT_TEXT, *known});
}

static void emit_words(Compiler *c, unsigned types) {
    Buffer words = {0};
    if (types & IS_NULL) buffer_puts(&words, "null");
    if (types & IS_TRUE) buffer_printf(&words, "%strue", words.len ? "|" : "");
    if (types & IS_FALSE) buffer_printf(&words, "%sfalse", words.len ? "|" : "");
    if (words.len) add_text(c, buffer_str(&words), words.data);
    buffer_free(&words);
}

// Takes the values that are not allowed away from an automaton.
static bool exclude(Compiler *c, Dfa *d, const Buffer *pattern) {
    Error why;
    return !pattern->len || regex_combine(d, DFA_SUBTRACT, buffer_str(pattern), &c->budget, &why) ||
           schema_fail(c, NULL, NULL, "%s", why.text);
}

static void put_escaped(Buffer *out, Str s) {
    for (size_t i = 0; i < s.len; i++) {
        if (!s.data[i]) {
            buffer_puts(out, "\\0");
            continue;
        }
        if (strchr("\\^$.*+?()[]{}|/", s.data[i])) buffer_puts(out, "\\");
        buffer_append(out, s.data + i, 1);
    }
}

// An expression of the values of one kind that an atom forbids.
static void put_forbidden(Compiler *c, Buffer *out, const Atom *a, JsonKind kind) {
    const Json *v = a->number ? a->json : a->json->child;
    for (; v; v = a->number ? NULL : v->next) {
        if (v->kind != kind) continue;
        buffer_puts(out, out->len ? "|(" : "(");
        if (kind == JSON_NUMBER)
            number_pattern(out, v->number, false);
        else
            put_escaped(out, v->string);
        buffer_puts(out, ")");
    }
    (void)c;
}

static void emit_numbers(Compiler *c, const Facts *f) {
    NumberRange r = {.has_integers = f->types & IS_INTEGER,
                     .has_fractions = f->types & IS_FRACTION};
    r.lo = f->lo, r.hi = f->hi, r.lo_is_out = f->lo_is_out, r.hi_is_out = f->hi_is_out,
    r.is_plain = c->draft == 4;
    Buffer key = {0}, forbidden = {0};
    const Json *place = NULL;
    for (const Atom *a = f->atoms; a; a = a->next) {
        if (a->kind == A_NO_VALUE) put_forbidden(c, &forbidden, a, JSON_NUMBER);
        if (a->kind == A_SEEN && !place) place = a->place;
        if (a->kind != A_MULTIPLE || a->number == r.multiple) continue;
        if (r.multiple != 0)
            schema_fail(c, a->place, "multipleOf", "several of them are not supported");
        r.multiple = a->number;
    }
    buffer_printf(&key, "number %d %d %a %a %d %d %a ", r.has_integers, r.has_fractions, r.lo, r.hi,
                  r.lo_is_out, r.hi_is_out, r.multiple);
    buffer_put(&key, buffer_str(&forbidden));
    bool is_new;
    Error why;
    Dfa d;
    int *known = schema_known(c, buffer_str(&key), &is_new);
    if (is_new && !number_dfa(&r, &c->budget, &d, &why))
        schema_fail(c, place, r.multiple != 0 ? "multipleOf" : NULL, "%s", why.text);
    else if (is_new && exclude(c, &d, &forbidden))
        *known = grammar_add_dfa(c->c, &d);
    if (!c->failed && !dfa_is_empty(&c->c->dfas[*known]))
        node_add(c->c, c->node, (Alt){ALT_TEXT, *known});
    buffer_free(&key), buffer_free(&forbidden);
}

// --- strings

static bool get_bit(const uint64_t *bits, size_t i) { return bits[i / 64] >> (i & 63) & 1; }

static bool may_go_on(const Dfa *d, const StringDef *s, int q, uint32_t count) {
    size_t width = (size_t)s->limit + 1;
    uint32_t next = count < s->limit ? count + 1 : s->limit;
    if (s->max != NO_LIMIT && count == s->limit) return false;
    for (int class = 0; class < d->n_classes; class ++) {
        int to = d->next[q * d->n_classes + class];
        if (to && get_bit(s->live, (size_t)to * width + next)) return true;
    }
    return false;
}

// Which states and lengths lead on to a text that is long enough and not too long: worked out from
// the greatest length down.
static bool fill_live(Compiler *c, StringDef *s) {
    enum { MOST = 1 << 24 };
    const Dfa *d = &c->c->dfas[s->dfa];
    size_t width = (size_t)s->limit + 1, n = (size_t)d->n_states * width;
    if (s->limit > MOST || n > MOST || !budget_spend(&c->budget, (long)(n / 8) * d->n_classes))
        return schema_fail(c, NULL, NULL, "too complex: a pattern of up to %u characters",
                           s->limit);
    s->live = xalloc(n / 64 + 1, sizeof *s->live);
    for (uint32_t count = s->limit + 1; count-- > 0;)
        for (int q = 1; q < d->n_states; q++) {
            bool is_end = d->accept[q] && count >= s->min;
            bool is_free = s->max == NO_LIMIT && count == s->limit; // any state leads somewhere
            size_t bit = (size_t)q * width + count;
            if (is_end || is_free || may_go_on(d, s, q, count))
                s->live[bit / 64] |= (uint64_t)1 << (bit & 63);
        }
    return true;
}

// The automaton that all the patterns and formats among the atoms leave of `dfa`; its index, -1
// after a failure.
static int narrow(Compiler *c, int dfa, int other, bool is_negated) {
    Dfa both;
    Error why;
    bool is_new;
    Buffer key = {0};
    buffer_printf(&key, "product %d %d %d", dfa, other, is_negated);
    int *known = schema_known(c, buffer_str(&key), &is_new);
    buffer_free(&key);
    if (!is_new) return *known;
    *known = -1;
    if (!dfa_product(&both, &c->c->dfas[dfa], &c->c->dfas[other],
                     is_negated ? DFA_SUBTRACT : DFA_INTERSECT, 0, &c->budget, &why))
        return schema_fail(c, NULL, NULL, "%s", why.text), -1;
    return *known = grammar_add_dfa(c->c, &both);
}

// A pattern ^X{n,m}$ of one character or class X is X* and a length, which is counted faster than
// it is spelled out.
static Str split_repeat(Compiler *c, Str p, uint32_t *min, uint32_t *max) {
    int n, m;
    size_t len = regex_bounded_repeat(p, &n, &m);
    if (!len) return p;
    char *text = schema_alloc(c, len + 2);
    memcpy(text, p.data, len);
    memcpy(text + len, "*$", 2);
    if ((uint32_t)n > *min) *min = (uint32_t)n;
    if ((uint32_t)m < *max) *max = (uint32_t)m;
    return (Str){text, len + 2};
}

static int string_language(Compiler *c, const Facts *f, uint32_t *min, uint32_t *max) {
    int dfa = any_dfa(c);
    Buffer forbidden = {0};
    for (const Atom *a = f->atoms; a && dfa >= 0; a = a->next) {
        uint32_t most = NO_LIMIT;
        int other = -1;
        if (a->kind == A_NO_VALUE) put_forbidden(c, &forbidden, a, JSON_STRING);
        if (a->kind == A_PATTERN)
            other = schema_pattern(c, a->place,
                                   a->is_negated ? a->json->string
                                                 : split_repeat(c, a->json->string, min, max));
        if (a->kind == A_FORMAT) other = schema_format(c, a->place, a->json->string, &most);
        if (c->failed) dfa = -1;
        if (other < 0 || dfa < 0) continue;
        if (most < *max && !a->is_negated) *max = most;
        dfa = dfa == any_dfa(c) && !a->is_negated ? other : narrow(c, dfa, other, a->is_negated);
    }
    if (forbidden.len && dfa >= 0) {
        int other = known_regex(c, NULL, NULL, buffer_str(&forbidden), REGEX_WHOLE);
        dfa = other < 0 ? -1 : narrow(c, dfa, other, true);
    }
    buffer_free(&forbidden);
    return dfa;
}

// Whether the texts are all those of one set of characters.
static bool is_star(const Dfa *d) {
    for (int i = 0; i < d->n_classes; i++)
        if (d->next[d->n_classes + i] > 1) return false;
    return d->n_states == 2 && d->start == 1 && d->accept[1];
}

// Index of a string of this language and length; -1 if there is none.
static int known_string(Compiler *c, int dfa, uint32_t min, uint32_t max) {
    bool is_new;
    Buffer key = {0};
    if (dfa_is_empty(&c->c->dfas[dfa]) || min > max) return -1;
    buffer_printf(&key, "string %d %u %u", dfa, min, max);
    int *known = schema_known(c, buffer_str(&key), &is_new);
    buffer_free(&key);
    if (!is_new) return *known;
    StringDef s = {
        .trie = NONE, .dfa = dfa, .min = min, .max = max, .limit = max == NO_LIMIT ? min : max};
    *known = -1;
    if (!is_star(&c->c->dfas[dfa]) && (min > 0 || max != NO_LIMIT)) {
        if (!fill_live(c, &s)) return -1;
        size_t start = (size_t)c->c->dfas[dfa].start * ((size_t)s.limit + 1);
        if (!get_bit(s.live, start)) return free(s.live), -1;
    }
    return *known = grammar_add_string(c->c, s);
}

static void emit_string(Compiler *c, const Facts *f) {
    uint32_t min = f->min_length, max = f->max_length;
    int dfa = string_language(c, f, &min, &max),
        string = dfa < 0 ? -1 : known_string(c, dfa, min, max);
    if (string >= 0) node_add(c->c, c->node, (Alt){ALT_STRING, string});
}

// --- arrays

// What the schema says of item i, or NULL; `rest` after all that are named.
static const Json *item_schema(const Atom *a, int i, int *n_prefix) {
    const Json *s = a->place, *items = json_get(s, "items"), *prefix = json_get(s, "prefixItems"),
               *rest = items;
    if (items && items->kind == JSON_ARRAY) prefix = items, rest = json_get(s, "additionalItems");
    if (a->is_negated) rest = a->json; // unevaluatedItems
    *n_prefix = prefix && prefix->kind == JSON_ARRAY ? prefix->n_items : 0;
    if (i < 0 || i >= *n_prefix) return rest;
    if (a->is_negated) return NULL;
    const Json *p = prefix->child;
    while (i-- > 0) p = p->next;
    return p;
}

static int count_atoms(const Facts *f) {
    int n = 0;
    for (const Atom *a = f->atoms; a; a = a->next) n++;
    return n;
}

static int item_node(Compiler *c, const Facts *f, int i, Term *terms) {
    int n = 0, n_prefix;
    for (const Atom *a = f->atoms; a; a = a->next) {
        if (a->kind == A_ARRAY) {
            const Json *s = item_schema(a, i, &n_prefix);
            if (s) terms[n++] = (Term){TERM_IS, s};
        }
        if (a->kind == A_ITEM && a->number == i) terms[n++] = a->term;
    }
    return schema_node(c, terms, n);
}

static void emit_array(Compiler *c, const Facts *f) {
    enum { MOST = 10000 };
    int n_prefix = 0;
    for (const Atom *a = f->atoms; a; a = a->next) {
        int n = a->kind == A_ITEM ? (int)a->number + 1 : 0;
        if (a->kind == A_ARRAY) item_schema(a, 0, &n);
        if (n > n_prefix) n_prefix = n;
    }
    if (f->min_items > f->max_items) return;
    if (n_prefix > MOST) {
        schema_fail(c, NULL, NULL, "too complex: more than %d items are described", MOST);
        return;
    }
    Term *terms = xalloc((size_t)count_atoms(f) + 1, sizeof *terms);
    ArrayDef d = {.prefix = xalloc((size_t)n_prefix + 1, sizeof(int)), .n_prefix = n_prefix};
    d.min = f->min_items, d.max = f->max_items;
    for (int i = 0; i < n_prefix; i++) d.prefix[i] = item_node(c, f, i, terms);
    d.rest = item_node(c, f, n_prefix, terms);
    free(terms);
    Alt alt = {ALT_ARRAY, grammar_add_array(c->c, d)};
    node_add(c->c, c->node, alt);
}

// --- objects

typedef struct {
    Str *at;
    int n, cap;
} Names;

static void names_put(Names *names, Str name) {
    if (names->n == names->cap)
        names->at = xrealloc(names->at, (size_t)(names->cap = names->cap ? 2 * names->cap : 16),
                             sizeof(Str));
    names->at[names->n++] = name;
}

static int by_name(const void *a, const void *b) {
    return str_compare(*(const Str *)a, *(const Str *)b);
}

// All names that the facts mention: described ones in the schema's order, then the others.
static void collect_names(const Facts *f, Names *names) {
    int n = 0;
    for (const Atom *a = f->atoms; a; a = a->next) n += a->kind == A_OBJECT;
    for (int i = n; i-- > 0;) { // the newest atom comes first
        const Atom *a = f->atoms;
        for (int k = 0; a->kind != A_OBJECT || k++ < i;) a = a->next;
        const Json *properties = json_get(a->place, "properties");
        for (const Json *p = properties ? properties->child : NULL; p; p = p->next)
            names_put(names, p->key);
    }
    for (const Atom *a = f->atoms; a; a = a->next)
        if (a->kind == A_REQUIRED || a->kind == A_PROPERTY) names_put(names, a->name);
}

// Sorts the names and drops repetitions; order[i] becomes the place in which name i was mentioned
// first.
static uint32_t *sort_names(Names *names) {
    Str *mentioned = xalloc((size_t)names->n + 1, sizeof *mentioned);
    uint32_t *order = xalloc((size_t)names->n + 1, sizeof *order);
    int n = 0, all = names->n;
    if (all) memcpy(mentioned, names->at, (size_t)all * sizeof *mentioned);
    if (all > 1) qsort(names->at, (size_t)all, sizeof(Str), by_name);
    for (int i = 0; i < all; i++)
        if (!i || !str_eq(names->at[i], names->at[n - 1])) names->at[n++] = names->at[i];
    names->n = n;
    for (int i = 0; i < n; i++) order[i] = UINT32_MAX;
    for (int i = 0; i < all; i++) {
        Str *found = bsearch(&mentioned[i], names->at, (size_t)n, sizeof(Str), by_name);
        if (order[found - names->at] == UINT32_MAX) order[found - names->at] = (uint32_t)i;
    }
    free(mentioned);
    return order;
}

static const Json *rest_of(const Atom *a) {
    return a->is_negated
               ? a->json
               : json_get(a->place, "additionalProperties"); // is_negated: unevaluatedProperties
}

// What an atom's schema says of a property of this name, into terms.
static int terms_of_name(Compiler *c, const Atom *a, Str name, Term *terms) {
    const Json *named = json_get(a->place, "properties"),
               *patterns = json_get(a->place, "patternProperties");
    int n = 0;
    bool is_named = false;
    for (const Json *p = named ? named->child : NULL; p; p = p->next) {
        if (!str_eq(p->key, name)) continue;
        is_named = true;
        if (!a->is_negated) terms[n++] = (Term){TERM_IS, p};
    }
    for (const Json *p = patterns ? patterns->child : NULL; p; p = p->next) {
        int dfa = schema_pattern(c, a->place, p->key);
        if (dfa < 0 || !dfa_match(&c->c->dfas[dfa], name)) continue;
        is_named = true;
        if (!a->is_negated) terms[n++] = (Term){TERM_IS, p};
    }
    if (!is_named && rest_of(a)) terms[n++] = (Term){TERM_IS, rest_of(a)};
    return n;
}

static size_t most_terms(const Facts *f) {
    size_t n = 1;
    for (const Atom *a = f->atoms; a; a = a->next) {
        const Json *patterns = a->kind == A_OBJECT ? json_get(a->place, "patternProperties") : NULL;
        n += 2 + (size_t)(patterns ? patterns->n_items : 0);
    }
    return n;
}

static int name_node(Compiler *c, const Facts *f, Str name, Term *terms) {
    int n = 0;
    Json text = {.kind = JSON_STRING, .string = name};
    for (const Atom *a = f->atoms; a && !c->failed; a = a->next) {
        if (a->kind == A_OBJECT) n += terms_of_name(c, a, name, terms + n);
        if (a->kind == A_PROPERTY && str_eq(a->name, name)) terms[n++] = a->term;
        if (a->kind == A_NAMES && !term_holds(c, a->term, &text)) return 0;
    }
    return schema_node(c, terms, n);
}

// All other names: an automaton that labels each by the patterns it matches (1 + bits).
typedef struct {
    Str patterns[12];
    const Json *places[12];
    int n;
} Patterns;

static void collect_patterns(Compiler *c, const Facts *f, Patterns *p) {
    for (const Atom *a = f->atoms; a; a = a->next) {
        const Json *patterns = a->kind == A_OBJECT ? json_get(a->place, "patternProperties") : NULL;
        for (const Json *k = patterns ? patterns->child : NULL; k && !c->failed; k = k->next) {
            int i = 0;
            while (i < p->n && !str_eq(p->patterns[i], k->key)) i++;
            if (i < p->n) continue;
            if (p->n == 12) {
                schema_fail(c, a->place, "patternProperties",
                            "more than 12 patterns are not supported");
                return;
            }
            p->patterns[p->n] = k->key, p->places[p->n++] = a->place;
        }
    }
}

static int class_node(Compiler *c, const Facts *f, const Patterns *p, unsigned bits, Term *terms) {
    int n = 0;
    for (const Atom *a = f->atoms; a; a = a->next) {
        const Json *patterns = a->kind == A_OBJECT ? json_get(a->place, "patternProperties") : NULL;
        bool is_named = false;
        for (const Json *k = patterns ? patterns->child : NULL; k; k = k->next)
            for (int i = 0; i < p->n; i++)
                if (str_eq(p->patterns[i], k->key) && bits >> i & 1) {
                    is_named = true;
                    if (!a->is_negated) terms[n++] = (Term){TERM_IS, k};
                }
        if (a->kind == A_OBJECT && !is_named && rest_of(a))
            terms[n++] = (Term){TERM_IS, rest_of(a)};
    }
    return schema_node(c, terms, n);
}

// The one language of strings that fit what is said of names, with the lengths counted by the
// automaton itself.
static bool names_language(Compiler *c, const Atom *names, Dfa *d) {
    Error why;
    Dfa lengths, both;
    int outer = c->node, n_alts = c->n_alts, node = grammar_add_node(c->c); // to collect in
    Facts f = schema_facts();
    f.types = IS_STRING;
    f.todo = schema_task(c, NULL, names->term);
    if (node % 256 == 0) {
        c->terms = xrealloc(c->terms, (size_t)node + 256, sizeof *c->terms);
        c->n_terms = xrealloc(c->n_terms, (size_t)node + 256, sizeof *c->n_terms);
    }
    c->terms[node] = schema_alloc(c, sizeof(Term));
    c->terms[node][0] = names->term;
    c->n_terms[node] = 1;
    c->node = node;
    schema_expand(c, f);
    c->node = outer, c->n_alts = n_alts;
    const Node *n = &c->c->nodes[node];
    if (c->failed) return false;
    if (n->n_alts > 1 || (n->n_alts && c->c->strings[n->alts[0].def].trie != NONE))
        return schema_fail(c, names->place, "propertyNames", "lists and choices are not supported");
    const StringDef *s = n->n_alts ? &c->c->strings[n->alts[0].def] : NULL;
    bool ok = dfa_length(&lengths, s ? (int)(s->min < INT32_MAX ? s->min : INT32_MAX) : 1,
                         !s                   ? 0
                         : s->max == NO_LIMIT ? -1
                                              : (int)(s->max < INT32_MAX ? s->max : INT32_MAX),
                         &why);
    if (!ok) return schema_fail(c, names->place, "propertyNames", "%s", why.text);
    ok = dfa_product(&both, &lengths, &c->c->dfas[s ? s->dfa : any_dfa(c)], DFA_INTERSECT, 0,
                     &c->budget, &why);
    dfa_free(&lengths);
    if (!ok) return schema_fail(c, names->place, "propertyNames", "%s", why.text);
    ok = dfa_product(&lengths, d, &both, DFA_INTERSECT, 0, &c->budget, &why);
    dfa_free(&both);
    if (!ok) return schema_fail(c, names->place, "propertyNames", "%s", why.text);
    dfa_free(d);
    *d = lengths;
    return true;
}

// The automaton of other names, and the node of each label.
static bool add_others(Compiler *c, const Facts *f, ObjectDef *o, Term *terms) {
    Patterns p = {.n = 0};
    Error why;
    Dfa d, marked;
    collect_patterns(c, f, &p);
    dfa_any(&d);
    for (int i = 0; i < p.n && !c->failed; i++) {
        int dfa = schema_pattern(c, p.places[i], p.patterns[i]);
        if (dfa < 0) break;
        if (!dfa_product(&marked, &d, &c->c->dfas[dfa], DFA_LABEL, 1 << i, &c->budget, &why))
            schema_fail(c, p.places[i], "patternProperties", "%s", why.text);
        else
            dfa_free(&d), d = marked;
    }
    for (const Atom *a = f->atoms; a && !c->failed; a = a->next)
        if (a->kind == A_NAMES) names_language(c, a, &d);
    o->n_other = 1 << p.n;
    o->other_nodes = xalloc((size_t)o->n_other, sizeof(int));
    uint8_t *used = xalloc((size_t)o->n_other, 1);
    for (int q = 1; q < d.n_states && !c->failed; q++)
        if (d.accept[q]) used[d.accept[q] - 1] = 1;
    for (int bits = 0; bits < o->n_other && !c->failed; bits++)
        if (used[bits]) o->other_nodes[bits] = class_node(c, f, &p, (unsigned)bits, terms);
    free(used);
    o->other = grammar_add_dfa(c->c, &d);
    return !c->failed;
}

static void emit_object(Compiler *c, const Facts *f) {
    Names names = {0};
    ObjectDef o = {.trie = NONE, .other = NONE, .min = f->min_properties, .max = f->max_properties};
    if (o.min > o.max) return;
    collect_names(f, &names);
    uint32_t *order = sort_names(&names);
    Term *terms = xalloc(most_terms(f), sizeof *terms);
    o.n_names = names.n;
    o.slots = xalloc((size_t)names.n + 1, sizeof *o.slots);
    for (int i = 0; i < names.n && schema_spend(c, 4); i++)
        o.slots[i] = (Slot){.node = name_node(c, f, names.at[i], terms), .order = order[i]};
    for (const Atom *a = f->atoms; a && !c->failed; a = a->next) {
        if (a->kind != A_REQUIRED) continue;
        Str *found = bsearch(&a->name, names.at, (size_t)names.n, sizeof(Str), by_name);
        o.n_required += !o.slots[found - names.at].is_required;
        o.slots[found - names.at].is_required = true;
    }
    if (!c->failed) add_others(c, f, &o, terms);
    if (names.n) o.trie = trie_add(c->c, names.at, names.n);
    free(terms), free(order), free(names.at);
    Alt alt = {ALT_OBJECT, grammar_add_object(c->c, o)};
    node_add(c->c, c->node, alt);
}

void schema_emit(Compiler *c, const Facts *f) {
    emit_words(c, f->types);
    if (f->types & (IS_INTEGER | IS_FRACTION)) emit_numbers(c, f);
    if (f->types & IS_STRING && !c->failed) emit_string(c, f);
    for (const Atom *a = f->atoms; a && !c->failed; a = a->next) {
        const Json *v = a->kind == A_NO_VALUE ? (a->number ? a->json : a->json->child) : NULL;
        for (; v; v = a->number ? NULL : v->next)
            if (json_type(c, v) & f->types & (IS_ARRAY | IS_OBJECT))
                schema_fail(c, a->place, NULL,
                            "an array or object among values under \"not\" is not supported");
    }
    if (f->types & IS_ARRAY && !c->failed) emit_array(c, f);
    if (f->types & IS_OBJECT && !c->failed) emit_object(c, f);
}

// --- listed values

static int value_node(Compiler *c, const Json *v) {
    return schema_node(c, &(Term){TERM_VALUE, v}, 1);
}

static void emit_array_value(Compiler *c, const Json *v) {
    ArrayDef d = {.prefix = xalloc((size_t)v->n_items + 1, sizeof(int)), .n_prefix = v->n_items};
    d.min = d.max = (uint32_t)v->n_items;
    int i = 0;
    for (const Json *k = v->child; k; k = k->next) d.prefix[i++] = value_node(c, k);
    Alt alt = {ALT_ARRAY, grammar_add_array(c->c, d)};
    node_add(c->c, c->node, alt);
}

static void emit_object_value(Compiler *c, const Json *v) {
    Names names = {0};
    ObjectDef o = {
        .trie = NONE, .other = NONE, .n_names = v->n_items, .n_required = (uint32_t)v->n_items};
    o.min = o.max = (uint32_t)v->n_items;
    for (const Json *k = v->child; k; k = k->next) names_put(&names, k->key);
    uint32_t *order = sort_names(&names);
    o.slots = xalloc((size_t)names.n + 1, sizeof *o.slots);
    for (const Json *k = v->child; k; k = k->next) {
        Str *found = bsearch(&k->key, names.at, (size_t)names.n, sizeof(Str), by_name);
        o.slots[found - names.at] = (Slot){value_node(c, k), order[found - names.at], true, false};
    }
    if (names.n) o.trie = trie_add(c->c, names.at, names.n);
    free(order), free(names.at);
    Alt alt = {ALT_OBJECT, grammar_add_object(c->c, o)};
    node_add(c->c, c->node, alt);
}

void schema_emit_values(Compiler *c, const Json *const *values, int n) {
    Names strings = {0};
    Buffer numbers = {0}, key = {0};
    unsigned words = 0;
    for (int i = 0; i < n && schema_spend(c, 4); i++) {
        const Json *v = values[i];
        if (v->kind == JSON_NULL || v->kind == JSON_BOOL) words |= json_type(c, v);
        if (v->kind == JSON_STRING) names_put(&strings, v->string);
        if (v->kind == JSON_ARRAY) emit_array_value(c, v);
        if (v->kind == JSON_OBJECT) emit_object_value(c, v);
        if (v->kind != JSON_NUMBER) continue;
        if (numbers.len) buffer_puts(&numbers, "|");
        number_pattern(&numbers, v->number,
                       c->draft == 4 && v->number == floor(v->number) && false);
    }
    emit_words(c, words);
    if (numbers.len) {
        buffer_printf(&key, "numbers %s", numbers.data);
        add_text(c, buffer_str(&key), numbers.data);
    }
    if (strings.n) {
        free(sort_names(&strings));
        StringDef s = {.trie = trie_add(c->c, strings.at, strings.n), .dfa = NONE, .max = NO_LIMIT};
        node_add(c->c, c->node, (Alt){ALT_STRING, grammar_add_string(c->c, s)});
    }
    free(strings.at), buffer_free(&numbers), buffer_free(&key);
}

// --- what no text fits

static bool object_is_possible(Grammar *c, ObjectDef *o) {
    uint32_t n = 0;
    for (int i = 0; i < o->n_names; i++) {
        Slot *s = &o->slots[i];
        s->is_possible = c->nodes[s->node].is_possible;
        n += s->is_possible;
        if (s->is_required && !s->is_possible) return false;
    }
    bool has_others = false;
    for (int i = 0; i < o->n_other; i++) has_others |= c->nodes[o->other_nodes[i]].is_possible;
    return o->n_required <= o->max && (has_others || n >= o->min);
}

static bool array_is_possible(const Grammar *c, const ArrayDef *a) {
    for (int i = 0; i < a->n_prefix && (uint32_t)i < a->min; i++)
        if (!c->nodes[a->prefix[i]].is_possible) return false;
    return a->min <= (uint32_t)a->n_prefix || c->nodes[a->rest].is_possible;
}

static bool alt_is_possible(Grammar *c, Alt alt) {
    if (alt.kind == ALT_OBJECT) return object_is_possible(c, &c->objects[alt.def]);
    return alt.kind != ALT_ARRAY || array_is_possible(c, &c->arrays[alt.def]);
}

static bool node_is_possible(Grammar *c, const Node *n) {
    for (int i = 0; i < n->n_alts; i++)
        if (alt_is_possible(c, n->alts[i])) return true;
    return false;
}

// Whether some character that is none of the children's leads on from the automaton's state.
static bool leads_beside(const Grammar *c, const TrieNode *t, const Dfa *d) {
    uint32_t from = 0;
    for (int k = t->first; k <= t->first + t->n; k++) {
        bool is_last = k == t->first + t->n;
        uint32_t to =
            is_last ? CODE_MAX + 1 : c->tries[k].code; // [from, to) lies between two children
        for (int i = from < to ? dfa_interval(d, from) : d->n_bounds;
             i < d->n_bounds && d->bounds[i] < to; i++)
            if (d->next[t->other * d->n_classes + d->class_of[i]]) return true;
        from = to + 1;
    }
    return false;
}

// Follows the automaton of other names along the tree of names.
static void finish_names(Grammar *c, const ObjectDef *o) {
    const Dfa *d = o->other != NONE ? &c->dfas[o->other] : NULL;
    int end = o->trie + 1;
    c->tries[o->trie].other = d ? d->start : 0;
    for (int node = o->trie; node < end; node++) {
        TrieNode *t = &c->tries[node];
        if (t->n) end = t->first + t->n;
        for (int k = t->first; d && k < t->first + t->n; k++)
            c->tries[k].other = dfa_next(d, t->other, c->tries[k].code);
    }
    for (int node = end; d && node-- > o->trie;) {
        TrieNode *t = &c->tries[node];
        t->other_leads =
            t->other && ((t->label == NONE && d->accept[t->other]) || leads_beside(c, t, d));
        for (int k = t->first; k < t->first + t->n; k++) t->other_leads |= c->tries[k].other_leads;
    }
}

static void finish_object(Compiler *c, ObjectDef *o) {
    Dfa *d = o->other != NONE ? &c->c->dfas[o->other] : NULL;
    bool changed = false;
    object_is_possible(c->c, o);
    for (int q = 1; d && q < d->n_states; q++)
        if (d->accept[q] && !c->c->nodes[o->other_nodes[d->accept[q] - 1]].is_possible)
            d->accept[q] = 0, changed = true;
    if (changed) dfa_reduce(d);
    if (d && dfa_is_empty(d)) o->other = NONE;
    if (o->trie != NONE) finish_names(c->c, o);
    // names that come twice are seen for those in the list only
    if (o->other != NONE && o->min > 1 && o->min > o->n_required)
        schema_fail(c, NULL, NULL, "\"minProperties\": %u is not supported where names are free",
                    o->min);
}

static void finish_array(const Grammar *c, ArrayDef *a) {
    for (uint32_t i = 0; i <= (uint32_t)a->n_prefix; i++) {
        int node = i < (uint32_t)a->n_prefix ? a->prefix[i] : a->rest;
        if (!c->nodes[node].is_possible && i < a->max) a->max = i;
    }
}

void schema_finish(Compiler *c) {
    Grammar *s = c->c;
    for (bool changed = true; changed && schema_spend(c, s->n_nodes / 4 + 1);) {
        changed = false;
        for (int i = s->n_nodes; i-- > 0;)
            if (!s->nodes[i].is_possible && node_is_possible(s, &s->nodes[i]))
                s->nodes[i].is_possible = changed = true;
    }
    for (int i = 0; i < s->n_nodes; i++) {
        Node *n = &s->nodes[i];
        int kept = 0;
        for (int k = 0; k < n->n_alts; k++)
            if (alt_is_possible(s, n->alts[k])) n->alts[kept++] = n->alts[k];
        n->n_alts = kept;
    }
    for (int i = 0; i < s->n_objects && !c->failed; i++) finish_object(c, &s->objects[i]);
    for (int i = 0; i < s->n_arrays; i++) finish_array(s, &s->arrays[i]);
}
