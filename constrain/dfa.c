// Subset construction (Rabin and Scott 1959), products, and Moore's partition refinement.
// Characters fall into classes that no set of the expression tells apart, so that a row has a few
// entries and not a million.
#include "dfa.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_NFA = 1 << 16, MAX_DFA = 30000, MAX_TABLE = 1 << 23 };

bool budget_take(Budget *b, long n) { return (b->left -= n) > 0; }

static bool too_large(Error *err) {
    return error_set(err, EXIT_USAGE, "too complex: more than %d states or %d steps", MAX_DFA,
                     COMPILE_BUDGET);
}

// --- sets

void charset_add(CharSet *s, uint32_t lo, uint32_t hi) {
    if (s->n == s->cap)
        s->at = xrealloc(s->at, (size_t)(s->cap = s->cap ? 2 * s->cap : 8), sizeof *s->at);
    s->at[s->n++] = (Range){lo, hi};
}

void charset_add_set(CharSet *s, const CharSet *other) {
    for (int i = 0; i < other->n; i++) charset_add(s, other->at[i].lo, other->at[i].hi);
}

static int by_lo(const void *a, const void *b) {
    uint32_t x = ((const Range *)a)->lo, y = ((const Range *)b)->lo;
    return (x > y) - (x < y);
}

static void sort_ranges(CharSet *s) {
    int n = 0;
    if (s->n > 1) qsort(s->at, (size_t)s->n, sizeof *s->at, by_lo);
    for (int i = 0; i < s->n; i++) {
        if (n && s->at[i].lo <= s->at[n - 1].hi + 1) {
            if (s->at[i].hi > s->at[n - 1].hi) s->at[n - 1].hi = s->at[i].hi;
        } else {
            s->at[n++] = s->at[i];
        }
    }
    s->n = n;
}

static void complement(CharSet *s) {
    CharSet out = {0};
    uint32_t from = 0;
    sort_ranges(s);
    for (int i = 0; i < s->n; i++) {
        if (s->at[i].lo > from) charset_add(&out, from, s->at[i].lo - 1);
        from = s->at[i].hi + 1;
    }
    if (from <= CODE_MAX) charset_add(&out, from, CODE_MAX);
    free(s->at);
    *s = out;
}

void charset_seal(CharSet *s) {
    complement(s);
    charset_add(s, 0xd800, 0xdfff);
    complement(s);
}

void charset_invert(CharSet *s) {
    charset_add(s, 0xd800, 0xdfff);
    complement(s);
}

void charset_free(CharSet *s) {
    free(s->at);
    *s = (CharSet){0};
}

// --- automata with free choice

int nfa_state(Nfa *n) {
    if (n->n_states < MAX_NFA) return n->n_states++;
    n->is_full = true;
    return 0;
}

void nfa_edge(Nfa *n, int from, int to, EdgeKind kind, int arg) {
    if (n->is_full) return;
    if (n->n_edges == n->cap_edges)
        n->edges = xrealloc(n->edges, (size_t)(n->cap_edges = n->cap_edges ? 2 * n->cap_edges : 64),
                            sizeof(Edge));
    n->edges[n->n_edges++] = (Edge){from, to, kind, arg};
}

// The index of an equal set, or of this one.
static int keep_set(Nfa *n, CharSet *set) {
    for (int i = n->n_sets; i-- > 0 && i > n->n_sets - 64;)
        if (n->sets[i].n == set->n &&
            !memcmp(n->sets[i].at, set->at, (size_t)set->n * sizeof(Range)))
            return charset_free(set), i;
    if (n->n_sets % 16 == 0) n->sets = xrealloc(n->sets, (size_t)n->n_sets + 16, sizeof(CharSet));
    n->sets[n->n_sets] = *set;
    *set = (CharSet){0};
    return n->n_sets++;
}

int nfa_step(Nfa *n, int from, CharSet *set) {
    charset_seal(set);
    int to = nfa_state(n);
    if (n->is_full)
        charset_free(set);
    else if (set->n)
        nfa_edge(n, from, to, EDGE_SET, keep_set(n, set));
    return to;
}

void nfa_free(Nfa *n) {
    for (int i = 0; i < n->n_sets; i++) charset_free(&n->sets[i]);
    free(n->sets);
    free(n->edges);
    *n = (Nfa){0};
}

// --- classes of characters

static int by_code(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

int dfa_interval(const Dfa *d, uint32_t code) {
    int lo = 0, hi = d->n_bounds;
    while (hi - lo > 1) {
        int mid = (lo + hi) / 2;
        if (d->bounds[mid] <= code)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

static void fill_ascii(Dfa *d) {
    for (uint32_t c = 0; c < 128; c++) d->ascii[c] = d->class_of[dfa_interval(d, c)];
}

// Splits classes so that each is within the set or apart from it.
static void refine(Dfa *d, const CharSet *set, int *renamed) {
    int n = d->n_classes;
    for (int c = 0; c < n; c++) renamed[c] = -1;
    uint8_t *outside = xalloc((size_t)n, 1);
    int r = 0;
    for (int i = 0; i < d->n_bounds; i++) { // which classes have parts outside
        while (r < set->n && set->at[r].hi < d->bounds[i]) r++;
        if (r == set->n || set->at[r].lo > d->bounds[i]) outside[d->class_of[i]] = 1;
    }
    r = 0;
    for (int i = 0; i < d->n_bounds; i++) {
        while (r < set->n && set->at[r].hi < d->bounds[i]) r++;
        if (r == set->n || set->at[r].lo > d->bounds[i]) continue;
        int c = d->class_of[i];
        if (!outside[c]) continue;
        if (renamed[c] < 0) renamed[c] = d->n_classes++;
        d->class_of[i] = (uint16_t)renamed[c];
    }
    free(outside);
}

static bool make_classes(Dfa *d, const Nfa *n, Error *err) {
    size_t n_bounds = 1;
    for (int i = 0; i < n->n_sets; i++) n_bounds += 2 * (size_t)n->sets[i].n;
    d->bounds = xrealloc(NULL, n_bounds, sizeof *d->bounds);
    d->bounds[0] = 0;
    n_bounds = 1;
    for (int i = 0; i < n->n_sets; i++)
        for (int r = 0; r < n->sets[i].n; r++) {
            d->bounds[n_bounds++] = n->sets[i].at[r].lo;
            if (n->sets[i].at[r].hi < CODE_MAX) d->bounds[n_bounds++] = n->sets[i].at[r].hi + 1;
        }
    qsort(d->bounds, n_bounds, sizeof *d->bounds, by_code);
    for (size_t i = 0; i < n_bounds; i++)
        if (!i || d->bounds[i] != d->bounds[d->n_bounds - 1])
            d->bounds[d->n_bounds++] = d->bounds[i];
    d->class_of = xalloc((size_t)d->n_bounds, sizeof *d->class_of);
    d->n_classes = 1;
    int *renamed = xrealloc(NULL, (size_t)d->n_bounds + 1, sizeof *renamed);
    bool ok = true;
    for (int i = 0; ok && i < n->n_sets; i++) {
        ok = budget_take(n->budget, d->n_bounds + d->n_classes);
        refine(d, &n->sets[i], renamed);
    }
    free(renamed);
    fill_ascii(d);
    return ok && d->n_classes < UINT16_MAX ? true : too_large(err);
}

// --- subset construction

typedef struct {
    const Nfa *nfa;
    Dfa *dfa;
    int *edge_begin;    // (n_states + 1) into order
    int *order;         // edges by their first state
    int **classes;      // of each set; ended by -1
    int universal, cap; // of the Dfa's states
    size_t *begin;      // (n_states + 1) into items: the Nfa's states of each Dfa state
    int *items;         // ascending
    size_t n_items, cap_items;
    int *table, table_size;  // states by hash
    int *set, n_set, *stamp; // the set under way
    int stamped;
    int **buckets, *n_bucket, *cap_bucket; // targets of each class, then of each rule
    int n_buckets;
    Call *calls;
    int n_calls, cap_calls;
} Subset;

static void index_edges(Subset *s) {
    const Nfa *n = s->nfa;
    s->edge_begin = xalloc((size_t)n->n_states + 2, sizeof(int));
    s->order = xrealloc(NULL, (size_t)n->n_edges + 1, sizeof(int));
    for (int i = 0; i < n->n_edges; i++) s->edge_begin[n->edges[i].from + 2]++;
    for (int i = 0; i <= n->n_states; i++) s->edge_begin[i + 1] += s->edge_begin[i];
    for (int i = 0; i < n->n_edges; i++) s->order[s->edge_begin[n->edges[i].from + 1]++] = i;
}

static void index_sets(Subset *s) {
    Dfa *d = s->dfa;
    s->classes = xalloc((size_t)s->nfa->n_sets + 1, sizeof(int *));
    uint8_t *has = xalloc((size_t)d->n_classes, 1);
    for (int i = 0; i < s->nfa->n_sets; i++) {
        const CharSet *set = &s->nfa->sets[i];
        int n = 0;
        memset(has, 0, (size_t)d->n_classes);
        for (int r = 0; r < set->n; r++)
            for (int b = dfa_interval(d, set->at[r].lo);
                 b < d->n_bounds && d->bounds[b] <= set->at[r].hi; b++)
                n += !has[d->class_of[b]], has[d->class_of[b]] = 1;
        s->classes[i] = xrealloc(NULL, (size_t)n + 1, sizeof(int));
        n = 0;
        for (int c = 0; c < d->n_classes; c++)
            if (has[c]) s->classes[i][n++] = c;
        s->classes[i][n] = -1;
    }
    free(has);
}

static void set_put(Subset *s, int state) {
    if (s->stamp[state] == s->stamped) return;
    s->stamp[state] = s->stamped;
    s->set[s->n_set++] = state;
}

// The set grows by what can be reached without a character.
static void set_close(Subset *s, EdgeKind also) {
    for (int i = 0; i < s->n_set; i++) {
        int state = s->set[i];
        for (int k = s->edge_begin[state]; k < s->edge_begin[state + 1]; k++) {
            const Edge *e = &s->nfa->edges[s->order[k]];
            if (e->kind == EDGE_EMPTY || e->kind == also) set_put(s, e->to);
        }
    }
}

static void set_clear(Subset *s) {
    s->n_set = 0;
    s->stamped++;
}

static int by_number(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

static size_t hash_ints(const int *at, int n) {
    uint64_t h = 0xcbf29ce484222325u;
    for (int i = 0; i < n; i++) h = (h ^ (uint64_t)at[i]) * 0x100000001b3u;
    return (size_t)(h ^ h >> 29);
}

static int *find_slot(Subset *s, const int *at, int n) {
    size_t i = hash_ints(at, n) & (size_t)(s->table_size - 1);
    for (;; i = (i + 1) & (size_t)(s->table_size - 1)) {
        int state = s->table[i];
        if (!state) return &s->table[i];
        if (s->begin[state + 1] - s->begin[state] == (size_t)n &&
            !memcmp(s->items + s->begin[state], at, (size_t)n * sizeof(int)))
            return &s->table[i];
    }
}

static void grow_table(Subset *s) {
    free(s->table);
    s->table = xalloc((size_t)(s->table_size *= 2), sizeof(int));
    for (int state = 1; state < s->dfa->n_states; state++)
        *find_slot(s, s->items + s->begin[state], (int)(s->begin[state + 1] - s->begin[state])) =
            state;
}

// The Dfa state of the set under way: 0 for the empty one, -1 beyond the limit.
static int set_state(Subset *s) {
    Dfa *d = s->dfa;
    if (!s->n_set) return 0;
    if (s->universal >= 0 && s->stamp[s->universal] == s->stamped)
        s->set[0] = s->universal, s->n_set = 1;
    qsort(s->set, (size_t)s->n_set, sizeof(int), by_number);
    if (2 * d->n_states >= s->table_size) grow_table(s);
    int *slot = find_slot(s, s->set, s->n_set);
    if (*slot) return *slot;
    if (d->n_states == MAX_DFA || (size_t)d->n_states * (size_t)d->n_classes > MAX_TABLE) return -1;
    if (s->n_items + (size_t)s->n_set > s->cap_items) {
        s->cap_items = 2 * s->cap_items + (size_t)s->n_set;
        s->items = xrealloc(s->items, s->cap_items, sizeof(int));
    }
    if (d->n_states == s->cap) {
        s->cap *= 2;
        s->begin = xrealloc(s->begin, (size_t)s->cap + 1, sizeof *s->begin);
        d->next = xrealloc(d->next, (size_t)s->cap * (size_t)d->n_classes, sizeof *d->next);
        d->accept = xrealloc(d->accept, (size_t)s->cap, sizeof *d->accept);
        if (d->call_begin) d->call_begin = xrealloc(d->call_begin, (size_t)s->cap + 1, sizeof(int));
    }
    memcpy(s->items + s->n_items, s->set, (size_t)s->n_set * sizeof(int));
    s->n_items += (size_t)s->n_set;
    memset(d->next + (size_t)d->n_states * (size_t)d->n_classes, 0,
           (size_t)d->n_classes * sizeof *d->next);
    d->accept[d->n_states] = 0;
    s->begin[d->n_states + 1] = s->n_items;
    return *slot = d->n_states++;
}

static void bucket_put(Subset *s, int bucket, int state) {
    if (s->n_bucket[bucket] == s->cap_bucket[bucket]) {
        s->cap_bucket[bucket] = s->cap_bucket[bucket] ? 2 * s->cap_bucket[bucket] : 4;
        s->buckets[bucket] =
            xrealloc(s->buckets[bucket], (size_t)s->cap_bucket[bucket], sizeof(int));
    }
    s->buckets[bucket][s->n_bucket[bucket]++] = state;
}

// Sorts the targets of a state's edges by the class or rule that leads to them.
static bool fill_buckets(Subset *s, int state) {
    long work = 0;
    memset(s->n_bucket, 0, (size_t)s->n_buckets * sizeof(int));
    for (size_t i = s->begin[state]; i < s->begin[state + 1]; i++)
        for (int k = s->edge_begin[s->items[i]]; k < s->edge_begin[s->items[i] + 1]; k++) {
            const Edge *e = &s->nfa->edges[s->order[k]];
            work++;
            if (e->kind == EDGE_CALL) bucket_put(s, s->dfa->n_classes + e->arg, e->to);
            if (e->kind != EDGE_SET) continue;
            for (const int *c = s->classes[e->arg]; *c >= 0; c++, work++) bucket_put(s, *c, e->to);
        }
    return budget_take(s->nfa->budget, work + s->n_buckets);
}

static int target(Subset *s, int bucket) {
    set_clear(s);
    for (int i = 0; i < s->n_bucket[bucket]; i++) set_put(s, s->buckets[bucket][i]);
    set_close(s, EDGE_EMPTY);
    return budget_take(s->nfa->budget, 4L * s->n_set) ? set_state(s) : -1;
}

static bool add_call(Subset *s, int rule) {
    int to = target(s, s->dfa->n_classes + rule);
    if (s->n_calls == s->cap_calls)
        s->calls = xrealloc(s->calls, (size_t)(s->cap_calls = s->cap_calls ? 2 * s->cap_calls : 16),
                            sizeof(Call));
    s->calls[s->n_calls++] = (Call){rule, to};
    return to >= 0;
}

// Whether the two classes lead a state to the same place, seen before the targets are worked out.
static bool same_bucket(const Subset *s, int a, int b) {
    return s->n_bucket[a] == s->n_bucket[b] &&
           !memcmp(s->buckets[a], s->buckets[b], (size_t)s->n_bucket[a] * sizeof(int));
}

static bool fill_row(Subset *s, int state) {
    Dfa *d = s->dfa;
    if (!fill_buckets(s, state)) return false;
    for (int c = 0, last = -1; c < d->n_classes; c++) {
        if (!s->n_bucket[c]) continue;
        int to = last >= 0 && same_bucket(s, c, last) ? d->next[state * d->n_classes + last]
                                                      : target(s, c);
        if (to < 0) return false;
        d->next[state * d->n_classes + c] = (uint16_t)to;
        last = c;
    }
    for (int b = d->n_classes; b < s->n_buckets; b++)
        if (s->n_bucket[b] && !add_call(s, b - d->n_classes)) return false;
    if (d->call_begin) d->call_begin[state + 1] = s->n_calls;
    return true;
}

// A state accepts if a final one can be reached from it where the text ends.
static void fill_accept(Subset *s, int state, const uint8_t *is_final) {
    set_clear(s);
    for (size_t i = s->begin[state]; i < s->begin[state + 1]; i++) set_put(s, s->items[i]);
    set_close(s, EDGE_END);
    for (int i = 0; i < s->n_set; i++)
        if (is_final[s->set[i]]) s->dfa->accept[state] = 1;
}

static int start_state(Subset *s, int start) {
    set_clear(s);
    set_put(s, start);
    set_close(s, EDGE_BEGIN);
    return set_state(s);
}

static void subset_init(Subset *s, const Nfa *n, Dfa *d, int n_rules) {
    *s = (Subset){
        .nfa = n, .dfa = d, .universal = -1, .cap = 16, .cap_items = 256, .table_size = 128};
    index_edges(s);
    index_sets(s);
    s->begin = xalloc((size_t)s->cap + 1, sizeof *s->begin);
    s->items = xrealloc(NULL, s->cap_items, sizeof(int));
    s->table = xalloc((size_t)s->table_size, sizeof(int));
    s->set = xrealloc(NULL, (size_t)n->n_states + 1, sizeof(int));
    s->stamp = xalloc((size_t)n->n_states + 1, sizeof(int));
    s->n_buckets = d->n_classes + n_rules;
    s->buckets = xalloc((size_t)s->n_buckets, sizeof(int *));
    s->n_bucket = xalloc((size_t)s->n_buckets, sizeof(int));
    s->cap_bucket = xalloc((size_t)s->n_buckets, sizeof(int));
    d->next = xalloc((size_t)s->cap * (size_t)d->n_classes, sizeof *d->next);
    d->accept = xalloc((size_t)s->cap, sizeof *d->accept);
    if (n_rules) d->call_begin = xalloc((size_t)s->cap + 1, sizeof(int));
    d->n_states = 1;
}

static void subset_free(Subset *s) {
    for (int i = 0; i < s->nfa->n_sets; i++) free(s->classes[i]);
    for (int i = 0; i < s->n_buckets; i++) free(s->buckets[i]);
    free(s->classes), free(s->buckets), free(s->n_bucket), free(s->cap_bucket), free(s->edge_begin),
        free(s->order);
    free(s->begin), free(s->items), free(s->table), free(s->set), free(s->stamp);
}

static bool subset_run(Subset *s, const uint8_t *is_final) {
    for (int state = 1; state < s->dfa->n_states; state++) {
        if (!fill_row(s, state)) return false;
        fill_accept(s, state, is_final);
    }
    return true;
}

bool dfa_build(Dfa *d, const Nfa *n, int start, int final, int universal, Error *err) {
    *d = (Dfa){0};
    if (n->is_full || !make_classes(d, n, err)) return dfa_free(d), too_large(err);
    Subset s;
    subset_init(&s, n, d, 0);
    s.universal = universal;
    uint8_t *is_final = xalloc((size_t)n->n_states, 1);
    is_final[final] = 1;
    d->start = start_state(&s, start);
    bool ok = subset_run(&s, is_final);
    free(is_final);
    subset_free(&s);
    if (!ok) return dfa_free(d), too_large(err);
    dfa_reduce(d);
    return true;
}

bool dfa_build_rules(Dfa *d, const Nfa *n, const int *starts, const int *finals, int n_rules,
                     Error *err) {
    *d = (Dfa){0};
    if (n->is_full || !make_classes(d, n, err)) return dfa_free(d), too_large(err);
    Subset s;
    subset_init(&s, n, d, n_rules);
    uint8_t *is_final = xalloc((size_t)n->n_states, 1);
    d->starts = xalloc((size_t)n_rules, sizeof(int));
    d->n_rules = n_rules;
    bool ok = true;
    for (int r = 0; r < n_rules; r++) {
        is_final[finals[r]] = 1;
        d->starts[r] = start_state(&s, starts[r]);
        ok = ok && d->starts[r] >= 0;
    }
    ok = ok && subset_run(&s, is_final);
    d->calls = s.calls ? s.calls : xalloc(1, sizeof(Call));
    free(is_final);
    subset_free(&s);
    if (!ok) return dfa_free(d), too_large(err);
    dfa_reduce(d);
    return true;
}

// --- trimming and joining states

// Whether some step leads from the state to a useful one.
static bool leads_on(const Dfa *d, const uint8_t *useful, int state) {
    for (int c = 0; c < d->n_classes; c++)
        if (useful[d->next[state * d->n_classes + c]]) return true;
    for (int k = d->calls ? d->call_begin[state] : 0; d->calls && k < d->call_begin[state + 1]; k++)
        if (useful[d->calls[k].to] && useful[d->starts[d->calls[k].rule]]) return true;
    return false;
}

static void trim(Dfa *d) {
    uint8_t *useful = xalloc((size_t)d->n_states, 1);
    for (bool changed = true; changed;) {
        changed = false;
        for (int state = d->n_states; state-- > 1;)
            if (!useful[state] && (d->accept[state] || leads_on(d, useful, state)))
                useful[state] = changed = true;
    }
    for (int i = 0; i < d->n_states * d->n_classes; i++)
        if (!useful[d->next[i]]) d->next[i] = 0;
    for (int k = 0; d->calls && k < d->call_begin[d->n_states]; k++)
        if (!useful[d->calls[k].to] || !useful[d->starts[d->calls[k].rule]]) d->calls[k].to = 0;
    if (!useful[d->start]) d->start = 0;
    for (int r = 0; r < d->n_rules; r++)
        if (!useful[d->starts[r]]) d->starts[r] = 0;
    free(useful);
}

// One round of refinement: states stay together if they were and all their successors were. Returns
// the parts.
static int refine_states(const Dfa *d, const int *part, int *out, int *table, int size) {
    int n = 0;
    memset(table, -1, (size_t)size * sizeof(int));
    for (int state = 0; state < d->n_states; state++) {
        const uint16_t *row = d->next + (size_t)state * (size_t)d->n_classes;
        uint64_t h = (uint64_t)part[state] * 0x9e3779b97f4a7c15u;
        for (int c = 0; c < d->n_classes; c++) h = (h ^ (uint64_t)part[row[c]]) * 0x100000001b3u;
        size_t i = (size_t)(h ^ h >> 31) & (size_t)(size - 1);
        for (;; i = (i + 1) & (size_t)(size - 1)) {
            if (table[i] < 0) break;
            const uint16_t *other = d->next + (size_t)table[i] * (size_t)d->n_classes;
            bool same = part[table[i]] == part[state];
            for (int c = 0; same && c < d->n_classes; c++) same = part[row[c]] == part[other[c]];
            if (same) break;
        }
        if (table[i] < 0)
            table[i] = state, out[state] = n++;
        else
            out[state] = out[table[i]];
    }
    return n;
}

static void join(Dfa *d, const int *part, int n) {
    bool *done = xalloc((size_t)n, sizeof *done);
    int next = 0; // parts are numbered by their first state, so that rows only move down
    for (int state = 0; state < d->n_states; state++) {
        if (done[part[state]]) continue;
        done[part[state]] = true;
        for (int c = 0; c < d->n_classes; c++)
            d->next[next * d->n_classes + c] = (uint16_t)part[d->next[state * d->n_classes + c]];
        d->accept[next++] = d->accept[state];
    }
    d->start = part[d->start];
    d->n_states = n;
    free(done);
}

static void minimise(Dfa *d) {
    enum { MAX_ROUNDS = 200 }; // what is not joined by then stays apart, which is no error
    int size = 16;
    while (size < 2 * d->n_states) size *= 2;
    int *part = xalloc((size_t)d->n_states, sizeof(int)),
        *out = xalloc((size_t)d->n_states, sizeof(int));
    int *table = xalloc((size_t)size, sizeof(int)), n = 0;
    for (int state = 0; state < d->n_states; state++)
        part[state] = state ? d->accept[state] + 1 : 0;
    for (int round = 0; round < MAX_ROUNDS; round++) {
        int parts = refine_states(d, part, out, table, size);
        int *old = part;
        part = out, out = old;
        if (parts == n) {
            join(d, part, n);
            break;
        }
        n = parts;
    }
    free(part), free(out), free(table);
}

void dfa_reduce(Dfa *d) {
    trim(d);
    if (!d->calls) minimise(d);
}

// --- products

// Intervals of both, with a class for each pair of classes that occurs. pairs: (a's, b's) class of
// each new class.
static void pair_classes(Dfa *out, const Dfa *a, const Dfa *b, int **pairs) {
    int *id = xalloc((size_t)a->n_classes * (size_t)b->n_classes, sizeof(int));
    size_t most = (size_t)(a->n_bounds + b->n_bounds);
    out->bounds = xrealloc(NULL, most, sizeof *out->bounds);
    out->class_of = xrealloc(NULL, most, sizeof *out->class_of);
    *pairs = xrealloc(NULL, 2 * most, sizeof(int));
    for (int i = 0, k = 0; i < a->n_bounds && k < b->n_bounds;) {
        int ca = a->class_of[i], cb = b->class_of[k], *c = &id[ca * b->n_classes + cb];
        if (!*c) {
            (*pairs)[2 * out->n_classes] = ca;
            (*pairs)[2 * out->n_classes + 1] = cb;
            *c = ++out->n_classes;
        }
        out->bounds[out->n_bounds] = a->bounds[i] > b->bounds[k] ? a->bounds[i] : b->bounds[k];
        out->class_of[out->n_bounds++] = (uint16_t)(*c - 1);
        uint32_t next_a = i + 1 < a->n_bounds ? a->bounds[i + 1] : UINT32_MAX;
        uint32_t next_b = k + 1 < b->n_bounds ? b->bounds[k + 1] : UINT32_MAX;
        i += next_a <= next_b;
        k += next_b <= next_a;
    }
    fill_ascii(out);
    free(id);
}

typedef struct {
    uint32_t *keys; // a's state * b's states + b's state, + 1
    int *states, size;
    uint32_t *key_of; // (n_states)
    int cap;
} PairTable;

static size_t pair_slot(const PairTable *t, uint32_t key) {
    size_t i = (key * 0x9e3779b1u >> 7) & (size_t)(t->size - 1);
    while (t->keys[i] && t->keys[i] != key + 1) i = (i + 1) & (size_t)(t->size - 1);
    return i;
}

static void grow_pairs(PairTable *t, int n_states) {
    free(t->keys), free(t->states);
    t->size *= 2;
    t->keys = xalloc((size_t)t->size, sizeof *t->keys);
    t->states = xalloc((size_t)t->size, sizeof *t->states);
    for (int state = 1; state < n_states; state++) {
        size_t i = pair_slot(t, t->key_of[state]);
        t->keys[i] = t->key_of[state] + 1;
        t->states[i] = state;
    }
}

static int pair_state(PairTable *t, Dfa *out, uint32_t key) {
    if (2 * out->n_states >= t->size) grow_pairs(t, out->n_states);
    size_t i = pair_slot(t, key);
    if (t->keys[i]) return t->states[i];
    if (out->n_states == MAX_DFA || (size_t)out->n_states * (size_t)out->n_classes > MAX_TABLE)
        return -1;
    if (out->n_states == t->cap) {
        t->cap *= 2;
        t->key_of = xrealloc(t->key_of, (size_t)t->cap, sizeof *t->key_of);
        out->next = xrealloc(out->next, (size_t)t->cap * (size_t)out->n_classes, sizeof *out->next);
        out->accept = xrealloc(out->accept, (size_t)t->cap, sizeof *out->accept);
    }
    t->keys[i] = key + 1;
    t->key_of[out->n_states] = key;
    return t->states[i] = out->n_states++;
}

static uint16_t pair_label(int a, int b, DfaOp op, int bit) {
    if (op == DFA_MARK) return (uint16_t)(a && b ? a + bit : a);
    return (uint16_t)((op == DFA_AND) == (b != 0) ? a : 0);
}

static bool product_rows(PairTable *t, Dfa *out, const Dfa *a, const Dfa *b, const int *pairs,
                         DfaOp op, int bit, Budget *budget) {
    for (int state = 1; state < out->n_states; state++) {
        int sa = (int)(t->key_of[state] / (uint32_t)b->n_states),
            sb = (int)(t->key_of[state] % (uint32_t)b->n_states);
        if (!budget_take(budget, out->n_classes)) return false;
        out->accept[state] = pair_label(a->accept[sa], b->accept[sb], op, bit);
        for (int c = 0; c < out->n_classes; c++) {
            int na = a->next[sa * a->n_classes + pairs[2 * c]],
                nb = b->next[sb * b->n_classes + pairs[2 * c + 1]];
            int to = na && (nb || op != DFA_AND)
                         ? pair_state(t, out, (uint32_t)(na * b->n_states + nb))
                         : 0;
            if (to < 0) return false;
            out->next[state * out->n_classes + c] = (uint16_t)to;
        }
    }
    return true;
}

bool dfa_product(Dfa *out, const Dfa *a, const Dfa *b, DfaOp op, int bit, Budget *budget,
                 Error *err) {
    int *pairs;
    PairTable t = {.size = 64, .cap = 16};
    *out = (Dfa){.n_states = 1};
    pair_classes(out, a, b, &pairs);
    t.keys = xalloc((size_t)t.size, sizeof *t.keys);
    t.states = xrealloc(NULL, (size_t)t.size, sizeof *t.states);
    t.key_of = xalloc((size_t)t.cap, sizeof *t.key_of);
    out->next = xalloc((size_t)t.cap * (size_t)out->n_classes, sizeof *out->next);
    out->accept = xalloc((size_t)t.cap, sizeof *out->accept);
    bool is_dead = !a->start || (!b->start && op == DFA_AND);
    out->start = is_dead ? 0 : pair_state(&t, out, (uint32_t)(a->start * b->n_states + b->start));
    bool ok = product_rows(&t, out, a, b, pairs, op, bit, budget);
    free(t.keys), free(t.states), free(t.key_of), free(pairs);
    if (!ok) return dfa_free(out), too_large(err);
    dfa_reduce(out);
    return true;
}

// An automaton that knows no characters apart, but for surrogates, which no text holds.
static void make_counter(Dfa *d, int n_states) {
    static const uint32_t bounds[] = {0, 0xd800, 0xe000};
    *d = (Dfa){.n_states = n_states, .n_classes = 2, .n_bounds = 3};
    d->bounds = xalloc(3, sizeof *d->bounds);
    d->class_of = xalloc(3, sizeof *d->class_of);
    memcpy(d->bounds, bounds, sizeof bounds);
    d->class_of[1] = 1;
    d->next = xalloc(2 * (size_t)n_states, sizeof *d->next);
    d->accept = xalloc((size_t)n_states, sizeof *d->accept);
    d->start = n_states > 1;
}

void dfa_any(Dfa *d) {
    make_counter(d, 2);
    d->next[2] = d->accept[1] = 1;
    dfa_reduce(d);
}

bool dfa_length(Dfa *d, int min, int max, Error *err) {
    int last = max < 0 ? min : max;
    if (last > MAX_DFA - 2) return too_large(err);
    make_counter(d, last + 2);
    for (int i = 0; i <= last; i++) {
        d->next[2 * (i + 1)] = (uint16_t)(i < last ? i + 2 : max < 0 ? i + 1 : 0);
        d->accept[i + 1] = i >= min;
    }
    dfa_reduce(d);
    return true;
}

bool dfa_is_empty(const Dfa *d) { return d->start == 0; }

void dfa_free(Dfa *d) {
    free(d->next), free(d->accept), free(d->bounds), free(d->class_of);
    free(d->call_begin), free(d->calls), free(d->starts);
    *d = (Dfa){0};
}

int dfa_match(const Dfa *d, Str text) {
    int state = d->start;
    uint32_t code;
    for (size_t i = 0, n; state && i < text.len; i += n) {
        n = (size_t)utf8_decode(text.data + i, text.len - i, &code);
        if (!n) return 0;
        state = dfa_next(d, state, code);
    }
    return d->accept[state];
}
