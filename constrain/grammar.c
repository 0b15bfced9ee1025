// See grammar.h.
// Order: building, tries, objects and linking, then grammar_finish(): possible values, object
// names.
#include "constrain/grammar.h"

GrammarMark grammar_mark(const Grammar *g) {
    return (GrammarMark){g->n_defs, g->n_values, g->n_tries};
}

void grammar_truncate(Grammar *g, GrammarMark to) {
    for (; g->n_defs > to.n_defs; g->n_defs--)
        if (g->defs[g->n_defs - 1].kind == DEF_TEXT) dfa_free(&g->defs[g->n_defs - 1].dfa);
    for (; g->n_values > to.n_values; g->n_values--) free(g->values[g->n_values - 1].alts);
    g->n_tries = to.n_tries;
}

void grammar_free(Grammar *g) {
    if (!g) return;
    grammar_truncate(g, (GrammarMark){0});
    free(g->defs);
    free(g->values);
    free(g->tries);
    arena_free(&g->arena);
    buffer_free(&g->unenforced);
    intern_free(&g->checked_tools);
    free(g);
}

size_t grammar_bytes(const Grammar *g) {
    size_t n = sizeof *g + g->arena.n_bytes + (size_t)g->n_tries * sizeof *g->tries +
               (size_t)g->n_defs * sizeof *g->defs;
    for (int i = 0; i < g->n_defs; i++) {
        const Dfa *d = &g->defs[i].dfa;
        if (g->defs[i].kind == DEF_TEXT)
            n += (size_t)d->n_states * ((size_t)d->n_classes + 1) * sizeof *d->next;
    }
    for (int i = 0; i < g->n_values; i++)
        n += sizeof *g->values + (size_t)g->values[i].n_alts * sizeof(int);
    return n;
}

int grammar_add(Grammar *g, Def def) {
    g->defs = list_grow(g->defs, g->n_defs, sizeof def);
    g->defs[g->n_defs] = def;
    return g->n_defs++;
}

int grammar_add_dfa(Grammar *g, Dfa d) { return grammar_add(g, (Def){DEF_TEXT, .dfa = d}); }

int grammar_add_value(Grammar *g) {
    g->values = list_grow(g->values, g->n_values, sizeof *g->values);
    g->values[g->n_values] = (ValueDef){0};
    return g->n_values++;
}

void grammar_add_alt(Grammar *g, int value, int def) {
    ValueDef *v = &g->values[value];
    for (int i = 0; i < v->n_alts; i++)
        if (v->alts[i] == def) return;
    v->alts = list_grow(v->alts, v->n_alts, sizeof *v->alts);
    v->alts[v->n_alts++] = def;
}

Grammar *grammar_of_dfa(Dfa d) {
    Grammar *g = xalloc(1, sizeof *g);
    g->root = grammar_add_value(g);
    grammar_add_alt(g, g->root, grammar_add_dfa(g, d));
    g->values[g->root].is_possible = true;
    return g;
}

// Tries.

static void push_trie_node(Grammar *g, uint32_t code, int lo, int hi) {
    g->tries = list_grow(g->tries, g->n_tries, sizeof *g->tries);
    g->tries[g->n_tries++] = (TrieNode){.code = code, .lo = lo, .hi = hi, .label = NONE};
}

int trie_add(Grammar *g, const Str *strings, int n) {
    int root = g->n_tries;
    size_t *at = xalloc((size_t)n + 1, sizeof *at); // bytes of each string up to the current level
    push_trie_node(g, 0, 0, n);

    // Add nodes level by level, so that the children of a node are consecutive.
    for (int node = root; node < g->n_tries; node++) {
        int lo = g->tries[node].lo, hi = g->tries[node].hi; // the strings below this node
        if (lo < hi && at[lo] == strings[lo].len) g->tries[node].label = lo++;
        g->tries[node].first = g->n_tries;

        // Strings [begin, lo) have the same next character.
        for (int begin = lo; lo < hi; begin = lo) {
            uint32_t first = 0, code;
            for (; lo < hi; lo++) {
                Str rest = {strings[lo].data + at[lo], strings[lo].len - at[lo]};
                size_t len = (size_t)utf8_decode(rest.data, rest.len, &code);
                if (lo > begin && code != first) break;
                first = code;
                at[lo] += len;
            }
            push_trie_node(g, first, begin, lo);
        }

        g->tries[node].n = g->n_tries - g->tries[node].first;
    }

    free(at);
    return root;
}

int trie_lower_bound(const Grammar *g, int node, uint32_t code) {
    const TrieNode *t = &g->tries[node];
    return t->first +
           (int)list_lower_bound(&g->tries[t->first], (size_t)t->n, sizeof *g->tries, code);
}

int trie_child(const Grammar *g, int node, uint32_t code) {
    int i = trie_lower_bound(g, node, code), end = g->tries[node].first + g->tries[node].n;
    return i < end && g->tries[i].code == code ? i : NONE;
}

// Objects.

int grammar_add_object(Grammar *g, ObjectDef o, const PropertyDef *properties, int n) {
    Str *names = xalloc((size_t)n + 1, sizeof *names);
    o.n_names = n;
    o.properties = arena_alloc(&g->arena, (size_t)n, sizeof *o.properties);

    for (int i = 0; i < n; i++) {
        PropertyDef *p = &o.properties[i];
        *p = properties[i];
        p->name.data =
            memcpy(arena_alloc(&g->arena, 1, p->name.len + 1), p->name.data, p->name.len);
        names[i] = p->name;
        o.n_required += p->is_required;
    }

    o.trie = n ? trie_add(g, names, n) : NONE;
    free(names);
    return grammar_add(g, (Def){DEF_OBJECT, .object = o});
}

// Finishing.
//
// A value is possible (some text matches) if one of its alternatives is possible. An object or
// array is possible if its required parts are. grammar_finish() computes the least fixed point: at
// first nothing is possible. Schemas such as {"$ref":"#"}, which need an infinite text, therefore
// stay impossible.

static bool object_is_possible(const Grammar *g, const ObjectDef *o) {
    uint32_t n_possible = 0;
    bool has_others = false;
    for (int i = 0; i < o->n_names; i++) {
        const PropertyDef *p = &o->properties[i];
        n_possible += g->values[p->value].is_possible;
        if (p->is_required && !g->values[p->value].is_possible) return false;
    }
    for (int i = 0; i < o->n_other; i++) has_others |= g->values[o->other_values[i]].is_possible;
    return o->n_required <= o->max && (has_others || n_possible >= o->min);
}

static bool alt_is_possible(const Grammar *g, int alt) {
    const Def *def = &g->defs[alt];
    if (def->kind == DEF_OBJECT) return object_is_possible(g, &def->object);
    if (def->kind != DEF_ARRAY) return true;

    const ArrayDef *a = &def->array;
    for (int i = 0; i <= a->n_prefix && (uint32_t)i < a->min; i++)
        if (!g->values[a->items[i]].is_possible) return false;
    return true;
}

static bool finish_object(Grammar *g, ObjectDef *o, Budget *budget) {
    if (o->other == NONE) return true;

    // Remove names whose value is impossible.
    Dfa *d = &g->defs[o->other].dfa;
    for (int state = 1; state < d->n_states; state++)
        if (d->accept[state] && !g->values[o->other_values[d->accept[state] - 1]].is_possible)
            d->accept[state] = 0;
    dfa_reduce(d);
    if (dfa_is_empty(d)) o->other = NONE;
    if (o->other != NONE) g->may_repeat = true;

    // The first unlisted name is certain to be new; the second one may repeat it.
    if (o->other == NONE || o->min <= o->n_required + 1) return true;
    return error_set(budget->err, EXIT_USAGE,
                     "\"minProperties\": %u is not supported beside unlisted names, which may "
                     "repeat; list all names, and set \"additionalProperties\": false",
                     o->min);
}

// Removes impossible alternatives.
static void finish_value(const Grammar *g, ValueDef *v) {
    int n = 0;
    for (int k = 0; k < v->n_alts; k++)
        if (alt_is_possible(g, v->alts[k])) v->alts[n++] = v->alts[k];
    v->n_alts = n;
}

// Sets ValueDef.is_possible of all values from `first` on.
static bool find_possible(Grammar *g, int first, Budget *budget) {
    for (bool changed = true; changed;) {
        changed = false;
        if (!budget_spend(budget, 5L * (g->n_values - first) + 20))
            return error_set(budget->err, EXIT_USAGE, "too complex");
        for (int i = g->n_values; i-- > first;)
            for (int k = 0; k < g->values[i].n_alts && !g->values[i].is_possible; k++)
                if (alt_is_possible(g, g->values[i].alts[k]))
                    g->values[i].is_possible = changed = true;
    }
    return true;
}

bool grammar_finish(Grammar *g, GrammarMark from, int root, Budget *budget) {
    if (!find_possible(g, from.n_values, budget)) return false;
    if (!g->values[root].is_possible) return true; // the caller asks for the reason

    for (int i = from.n_values; i < g->n_values; i++) finish_value(g, &g->values[i]);

    // Remove impossible names, and end arrays before an impossible item.
    for (int i = from.n_defs; i < g->n_defs; i++) {
        Def *def = &g->defs[i];
        if (def->kind == DEF_OBJECT && !finish_object(g, &def->object, budget)) return false;
        if (def->kind != DEF_ARRAY) continue;

        ArrayDef *a = &def->array;
        for (uint32_t k = 0; k <= (uint32_t)a->n_prefix; k++)
            if (!g->values[a->items[k]].is_possible && k < a->max) a->max = k;
    }

    return true;
}
