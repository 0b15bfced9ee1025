// See nfa.h.
#include "constrain/nfa.h"
#include "base/signals.h"

enum { MAX_NFA_STATES = 1 << 16 };

bool budget_spend(Budget *b, long n) {
    b->left = signals_interrupt() ? 0 : b->left - n;
    return b->left > 0;
}

// Character sets.

void charset_add(CharSet *s, uint32_t lo, uint32_t hi) {
    s->at = list_grow(s->at, s->n, sizeof *s->at);
    s->at[s->n++] = (CodeRange){lo, hi};
}

int compare_codes(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

// Replaces a set by all other code points, in ascending disjoint ranges.
static void complement(CharSet *s) {
    CharSet out = {0};
    uint32_t from = 0; // first code point after the ranges seen so far
    if (s->n > 1) qsort(s->at, (size_t)s->n, sizeof *s->at, compare_codes);
    for (int i = 0; i < s->n; i++) {
        if (s->at[i].lo > from) charset_add(&out, from, s->at[i].lo - 1);
        if (s->at[i].hi + 1 > from) from = s->at[i].hi + 1;
    }
    if (from <= CODE_MAX) charset_add(&out, from, CODE_MAX);
    free(s->at);
    *s = out;
}

void charset_invert(CharSet *s) {
    charset_add(s, 0xd800, 0xdfff);
    complement(s);
}

void charset_free(CharSet *s) {
    free(s->at);
    *s = (CharSet){0};
}

// Automata.

int nfa_state(Nfa *n) {
    if (n->n_states == MAX_NFA_STATES) {
        n->is_full = true;
        return 0;
    }
    n->first = list_grow(n->first, n->n_states, sizeof *n->first);
    n->first[n->n_states] = -1;
    return n->n_states++;
}

void nfa_edge(Nfa *n, int from, int to, NfaEdgeKind kind, int arg) {
    if (n->is_full) return;
    n->edges = list_grow(n->edges, n->n_edges, sizeof *n->edges);
    n->edges[n->n_edges] = (NfaEdge){kind, arg, to, n->first[from]};
    n->first[from] = n->n_edges++;
    n->has_after |= kind == NFA_AFTER;
}

int nfa_step(Nfa *n, int from, NfaEdgeKind kind, int arg) {
    int to = nfa_state(n);
    bool is_empty_set = kind == NFA_SET && !n->sets.len[arg]; // no character leads to the state
    if (!is_empty_set) nfa_edge(n, from, to, kind, arg);
    return to;
}

int nfa_set(Nfa *n, CharSet *set) {
    complement(set);
    charset_invert(set); // inverting twice normalizes the set
    int i = intern_add(&n->sets, set->at, (size_t)set->n * sizeof *set->at, NULL);
    charset_free(set);
    return i;
}

int nfa_range(Nfa *n, uint32_t lo, uint32_t hi) {
    CharSet range = {0};
    charset_add(&range, lo, hi);
    return nfa_set(n, &range);
}

void nfa_free(Nfa *n) {
    free(n->edges);
    free(n->first);
    intern_free(&n->sets);
    *n = (Nfa){0};
}
