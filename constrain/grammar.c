// See grammar.h.
// Order: building, tries, then grammar_finish(): possible values, object names.
#include "grammar.h"

void grammar_free(Grammar *g) {
    if (!g) return;
    for (int i = 0; i < g->n_defs; i++)
        if (g->defs[i].kind == DEF_TEXT) dfa_free(&g->defs[i].dfa);
    for (int i = 0; i < g->n_values; i++) free(g->values[i].alts);
    free(g->defs);
    free(g->values);
    free(g->tries);
    arena_free(&g->arena);
    free(g);
}

size_t grammar_bytes(const Grammar *g) {
    size_t n = sizeof *g + g->arena.n_bytes + (size_t)g->n_tries * sizeof *g->tries +
               (size_t)g->n_defs * sizeof *g->defs;
    for (int i = 0; i < g->n_defs; i++)
        if (g->defs[i].kind == DEF_TEXT) n += dfa_bytes(&g->defs[i].dfa);
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

// Finishing.
//
// A value is possible (some text matches) if one of its alternatives is possible. An object or
// array is possible if its required parts are. find_possible() computes the least fixed point: at
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

static bool array_is_possible(const Grammar *g, const ArrayDef *a) {
    for (int i = 0; i <= a->n_prefix && (uint32_t)i < a->min; i++)
        if (!g->values[a->items[i]].is_possible) return false;
    return true;
}

static bool alt_is_possible(const Grammar *g, int alt) {
    const Def *def = &g->defs[alt];
    if (def->kind == DEF_OBJECT) return object_is_possible(g, &def->object);
    return def->kind != DEF_ARRAY || array_is_possible(g, &def->array);
}

static bool find_possible(Grammar *g, Budget *budget) {
    for (bool changed = true; changed;) {
        changed = false;
        if (!budget_spend(budget, 5L * g->n_values + 20)) return false;
        for (int i = g->n_values; i-- > 0;)
            for (int k = 0; k < g->values[i].n_alts && !g->values[i].is_possible; k++)
                if (alt_is_possible(g, g->values[i].alts[k]))
                    g->values[i].is_possible = changed = true;
    }
    return true;
}

// Counts the texts from a state. Returns 0 if one of its next states has not been counted yet. The
// sum does not overflow: it has fewer than 2^21 characters, each with a count of less than 2^32.
static uint32_t count_texts(const Dfa *d, int state, const uint32_t *counts) {
    uint64_t n = d->accept[state] != 0;
    for (int i = 0; i < d->n_bounds; i++) {
        int next = d->next[state * d->n_classes + d->class_of[i]];
        uint32_t end = i + 1 < d->n_bounds ? d->bounds[i + 1] : CODE_MAX + 1;
        if (next == 0) continue;
        if (counts[next] == 0) return 0;
        n += (uint64_t)(end - d->bounds[i]) * counts[next];
    }
    return n >> 31 ? NO_LIMIT : (uint32_t)n;
}

// The number of texts from each state, at least 1. A state that reaches a loop has infinitely many
// texts; it is never counted and gets NO_LIMIT.
static uint32_t *count_names(Grammar *g, const Dfa *d, Budget *budget) {
    uint32_t *counts = arena_alloc(&g->arena, (size_t)d->n_states, sizeof *counts);
    for (bool changed = true; changed && budget_spend(budget, (long)d->n_states * d->n_bounds);) {
        changed = false;
        for (int state = d->n_states; --state > 0;) {
            if (counts[state]) continue;
            counts[state] = count_texts(d, state, counts);
            if (counts[state]) changed = true;
        }
    }
    for (int state = 1; state < d->n_states; state++)
        if (counts[state] == 0) counts[state] = NO_LIMIT;
    return counts;
}

// Sets TrieNode.other and PropertyDef.is_other by following the DFA of other names along the trie
// of listed names.
static void align_names(Grammar *g, const ObjectDef *o) {
    const Dfa *d = &g->defs[o->other].dfa;
    int end = o->trie + 1;
    g->tries[o->trie].other = d->start;
    for (int node = o->trie; node < end; node++) {
        const TrieNode *t = &g->tries[node];
        if (t->label != NONE) o->properties[t->label].is_other = d->accept[t->other];
        if (t->n) end = t->first + t->n;
        for (int k = t->first; k < t->first + t->n; k++)
            g->tries[k].other = dfa_next(d, t->other, g->tries[k].code);
    }
}

static bool finish_object(Grammar *g, ObjectDef *o, Budget *budget) {
    // Remove names whose value is impossible.
    if (o->other != NONE) {
        Dfa *d = &g->defs[o->other].dfa;
        bool changed = false;
        for (int state = 1; state < d->n_states; state++)
            if (d->accept[state] && !g->values[o->other_values[d->accept[state] - 1]].is_possible) {
                d->accept[state] = 0;
                changed = true;
            }
        if (changed) dfa_reduce(d);
        if (dfa_is_empty(d)) o->other = NONE;
    }

    if (o->other == NONE) return true;

    // Count the other names. Their number decides whether "minProperties" can be reached.
    const Dfa *d = &g->defs[o->other].dfa;
    o->n_others = count_names(g, d, budget);
    if (!budget_spend(budget, 0)) return error_set(budget->err, EXIT_USAGE, "too complex");
    for (int state = 1; state < d->n_states; state++)
        o->is_limited |= o->n_others[state] != NO_LIMIT;
    if (o->trie != NONE) align_names(g, o);

    if (o->min <= 1 || o->min <= o->n_required || o->n_others[d->start] == NO_LIMIT) return true;
    return error_set(budget->err, EXIT_USAGE,
                     "\"minProperties\": %u is not supported where a limited number of names is "
                     "allowed beside the listed ones",
                     o->min);
}

bool grammar_finish(Grammar *g, Budget *budget) {
    if (!find_possible(g, budget)) return error_set(budget->err, EXIT_USAGE, "too complex");

    // Remove impossible alternatives.
    for (int i = 0; i < g->n_values; i++) {
        ValueDef *v = &g->values[i];
        int n = 0;
        for (int k = 0; k < v->n_alts; k++)
            if (alt_is_possible(g, v->alts[k])) v->alts[n++] = v->alts[k];
        v->n_alts = n;
    }

    // Remove impossible names, and end arrays before an impossible item.
    for (int i = 0; i < g->n_defs; i++) {
        Def *def = &g->defs[i];
        if (def->kind == DEF_OBJECT && !finish_object(g, &def->object, budget)) return false;
        if (def->kind != DEF_ARRAY) continue;

        ArrayDef *a = &def->array;
        for (uint32_t k = 0; k <= (uint32_t)a->n_prefix; k++)
            if (!g->values[a->items[k]].is_possible && k < a->max) a->max = k;
    }

    return true;
}
