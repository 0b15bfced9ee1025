// Contents, in this order: character classes; the subset construction (Rabin and Scott, "Finite
// Automata and Their Decision Problems", 1959); removal of useless states and minimization by
// partition refinement (Moore, "Gedanken-Experiments on Sequential Machines", 1956); products.
#include "constrain/dfa.h"

enum { MAX_DFA_STATES = 30000, MAX_DFA_ENTRIES = 1 << 23 };

// Frees an automaton that exceeds a limit. Returns false.
static bool fail_too_large(Dfa *d, const Budget *budget) {
    dfa_free(d);
    if (budget->err->code) return false; // a construct that is not supported
    return error_set(budget->err, EXIT_USAGE,
                     "too complex: more than %d states or %d steps; simplify the pattern",
                     MAX_DFA_STATES, COMPILE_BUDGET);
}

void dfa_free(Dfa *d) {
    free(d->next);
    free(d->accept);
    free(d->bounds);
    free(d->class_of);
    free(d->call_begin);
    free(d->calls);
    free(d->starts);
    *d = (Dfa){0};
}

// Returns the DFA state of a key, which is a set of NFA states or a pair of DFA states. Keys and
// states have the same numbers. A new key adds a state whose transitions all lead to the dead
// state. Returns -1 if a limit is exceeded.
static int state_of_key(Dfa *d, InternTable *keys, const void *key, size_t len) {
    bool is_new;
    int state = intern_add(keys, key, len, &is_new);
    size_t width = (size_t)d->n_classes;
    if (!is_new) return state;
    if (state == MAX_DFA_STATES || (size_t)state * width > MAX_DFA_ENTRIES) return -1;
    d->next = list_grow(d->next, state, width * sizeof *d->next);
    d->accept = list_grow(d->accept, state, sizeof *d->accept);
    memset(d->next + (size_t)state * width, 0, width * sizeof *d->next);
    d->accept[state] = 0;
    d->call_begin = list_grow(d->call_begin, state + 1, sizeof *d->call_begin);
    d->call_begin[state + 1] = 0;
    if (state == 0) d->call_begin[0] = 0;
    return d->n_states++;
}

// Character classes.
//
// The sets of an NFA cut the code points into intervals at their bounds. Intervals that are in
// exactly the same sets form a class. With the sets [a-z] and [a-fx], for example:
//
//     interval   0..`   a..f   g..w   x   y..z   {..
//     class        0      2      1    2     1     0

int dfa_interval(const Dfa *d, uint32_t code) {
    return (int)list_lower_bound(d->bounds, (size_t)d->n_bounds, sizeof *d->bounds, code + 1) - 1;
}

// Sets the intervals of a DFA from n bounds in any order. Takes ownership of `bounds`.
static void set_bounds(Dfa *d, uint32_t *bounds, size_t n) {
    d->bounds = bounds;
    d->n_bounds = (int)list_unique(bounds, n, sizeof *bounds, compare_codes);
    d->class_of = xalloc((size_t)d->n_bounds, sizeof *d->class_of);
}

// Subset construction.
//
// A DFA state is the set of states in which the NFA can be after the text so far. To fill a row,
// the edges of that set are sorted into buckets, one per class. A bucket has the NFA states to
// which a character of the class leads; together with the states that follow without consuming
// anything, they are the next DFA state. Calls are sorted into one bucket per rule.

typedef struct {
    int *at, n, cap;
} IntList;

static void int_list_push(IntList *l, int item) {
    if (l->n == l->cap) l->at = xrealloc(l->at, (size_t)(l->cap = 2 * l->cap + 4), sizeof *l->at);
    l->at[l->n++] = item;
}

typedef struct {
    const Nfa *nfa;
    Dfa *dfa;
    InternTable subsets; // sorted NFA states of each DFA state; none for state 0
    IntList *classes;    // (n_sets) the classes that make up each character set
    IntList *buckets;    // (n_buckets) NFA states after each class, then after a call of each rule
    int n_buckets;
    int universal;
    IntList set;      // the set under construction
    int *seen, round; // seen: (NFA states) state s is in the set if seen[s] == round
} SubsetBuilder;

static const CodeRange *set_ranges(const Nfa *n, int set, int *n_ranges) {
    *n_ranges = (int)(n->sets.len[set] / sizeof(CodeRange));
    return intern_key(&n->sets, set);
}

// Assigns a class to each interval. Two intervals have the same class if they are in the same sets.
static bool make_classes(SubsetBuilder *b) {
    Dfa *d = b->dfa;
    int n_sets = b->nfa->sets.n, n_ranges;
    int *range = xalloc((size_t)n_sets + 1, sizeof(int)); // first possible range of each set
    size_t n_words = (size_t)n_sets / 64 + 1;
    uint64_t *in = xalloc(n_words, sizeof *in); // the sets that contain the current interval
    InternTable classes = {0};
    bool is_new, ok = true;

    // Cut the code points at the bounds of all sets.
    size_t n_bounds = 1;
    for (int s = 0; s < n_sets; s++) n_bounds += 2 * b->nfa->sets.len[s] / sizeof(CodeRange);
    uint32_t *bounds = xalloc(n_bounds, sizeof *bounds);
    n_bounds = 1;
    for (int s = 0; s < n_sets; s++) {
        const CodeRange *set = set_ranges(b->nfa, s, &n_ranges);
        for (int r = 0; r < n_ranges; r++) {
            bounds[n_bounds++] = set[r].lo;
            if (set[r].hi < CODE_MAX) bounds[n_bounds++] = set[r].hi + 1;
        }
    }
    set_bounds(d, bounds, n_bounds);

    for (int i = 0; i < d->n_bounds && ok; i++) {
        memset(in, 0, n_words * sizeof *in);
        for (int s = 0; s < n_sets; s++) {
            const CodeRange *set = set_ranges(b->nfa, s, &n_ranges);
            while (range[s] < n_ranges && set[range[s]].hi < d->bounds[i]) range[s]++;
            if (range[s] < n_ranges && set[range[s]].lo <= d->bounds[i])
                in[s / 64] |= (uint64_t)1 << (s & 63);
        }

        // Intervals in the same sets form one class.
        int class = intern_add(&classes, in, n_words * sizeof *in, &is_new);
        d->class_of[i] = (uint16_t) class;
        for (int s = 0; s < n_sets; s++)
            if (is_new && in[s / 64] >> (s & 63) & 1) int_list_push(&b->classes[s], class);

        ok = budget_spend(b->nfa->budget, n_sets) && class < UINT16_MAX;
    }

    d->n_classes = classes.n;

    free(range);
    free(in);
    intern_free(&classes);
    return ok;
}

static void add_to_set(SubsetBuilder *b, int state) {
    if (b->seen[state] == b->round) return;
    b->seen[state] = b->round;
    int_list_push(&b->set, state);
}

static bool has_class(const SubsetBuilder *b, int set, int class) {
    const IntList *classes = &b->classes[set];
    int i = 0;
    while (i < classes->n && classes->at[i] != class) i++;
    return i < classes->n;
}

// Fills the set with n states and all states that follow without consuming anything. `also` is a
// second kind of edges to follow: NFA_BEGIN at the beginning of the text, NFA_END at its end,
// NFA_LATER after a character. `class` is that of the last character, or -1.
static void close_set(SubsetBuilder *b, const int *states, int n, NfaEdgeKind also, int class) {
    b->set.n = 0;
    b->round++;
    for (int i = 0; i < n; i++) add_to_set(b, states[i]);
    for (int i = 0; i < b->set.n; i++)
        for (int k = b->nfa->first[b->set.at[i]]; k >= 0; k = b->nfa->edges[k].next) {
            const NfaEdge *e = &b->nfa->edges[k];
            bool is_after = e->kind == NFA_AFTER && class >= 0 && has_class(b, e->arg, class);
            if (e->kind == NFA_EMPTY || e->kind == also || is_after) add_to_set(b, e->to);
        }
}

// False if a state of the set, from number i on, depends on the last character, which is not known
// at the beginning of a fragment and at the end of the text.
static bool check_context(const SubsetBuilder *b, int i) {
    const Nfa *n = b->nfa;
    for (; i < b->set.n && n->has_after; i++)
        for (int k = n->first[b->set.at[i]]; k >= 0; k = n->edges[k].next)
            if (n->edges[k].kind == NFA_AFTER)
                return error_set(n->budget->err, EXIT_USAGE,
                                 "lookbehind next to lookahead or $ is not supported");
    return true;
}

// The DFA state of the set; -1 if a limit is exceeded.
static int state_of_set(SubsetBuilder *b) {
    if (b->universal >= 0 && b->seen[b->universal] == b->round) {
        b->set.at[0] = b->universal;
        b->set.n = 1;
    }
    if (b->set.n > 1) qsort(b->set.at, (size_t)b->set.n, sizeof(int), compare_codes);
    return state_of_key(b->dfa, &b->subsets, b->set.at, (size_t)b->set.n * sizeof(int));
}

// Fills the row, the calls and the label of a state.
static bool fill_state(SubsetBuilder *b, int state, const bool *is_final) {
    Dfa *d = b->dfa;
    const Nfa *nfa = b->nfa;
    int n = (int)(b->subsets.len[state] / sizeof(int));
    const int *subset = intern_key(&b->subsets, state);

    // The state accepts if its closure at the end of the text contains a final state.
    close_set(b, subset, n, NFA_END, -1);
    if (!check_context(b, n)) return false;
    for (int i = 0; i < b->set.n; i++)
        if (is_final[b->set.at[i]]) d->accept[state] = 1;

    // Sort the edges into one bucket per class and per rule. A bucket has the states they lead to.
    long work = b->n_buckets;
    for (int i = 0; i < b->n_buckets; i++) b->buckets[i].n = 0;
    for (int i = 0; i < n; i++)
        for (int k = nfa->first[subset[i]]; k >= 0; k = nfa->edges[k].next, work++) {
            const NfaEdge *e = &nfa->edges[k];
            if (e->kind == NFA_CALL) int_list_push(&b->buckets[d->n_classes + e->arg], e->to);
            if (e->kind != NFA_SET) continue;

            const IntList *classes = &b->classes[e->arg];
            for (int c = 0; c < classes->n; c++) int_list_push(&b->buckets[classes->at[c]], e->to);
            work += classes->n;
        }

    if (!budget_spend(nfa->budget, work)) return false;

    // Each bucket that is not empty leads to the state of its closure.
    int n_calls = d->call_begin[state], to = 0;
    const IntList *last = NULL; // the last bucket, which leads to state `to`
    for (int i = 0; i < b->n_buckets; i++) {
        const IntList *bucket = &b->buckets[i];
        if (!bucket->n) continue;

        bool is_same = last && bucket->n == last->n && // frequent; saves the closure
                       !memcmp(bucket->at, last->at, (size_t)bucket->n * sizeof *bucket->at);
        if (!is_same || nfa->has_after) {
            close_set(b, bucket->at, bucket->n, NFA_LATER, i < d->n_classes ? i : -1);
            to = budget_spend(nfa->budget, 12L * b->set.n) ? state_of_set(b) : -1;
        }
        if (to < 0) return false;
        last = bucket;

        if (i < d->n_classes) {
            d->next[state * d->n_classes + i] = (uint16_t)to;
        } else {
            d->calls = list_grow(d->calls, n_calls, sizeof *d->calls);
            d->calls[n_calls++] = (DfaCall){i - d->n_classes, to};
        }
    }

    d->call_begin[state + 1] = n_calls;
    return true;
}

// Builds all states that can be reached from the start states of the fragments.
bool dfa_build(Dfa *d, const Nfa *n, const NfaFragment *fragments, int n_rules, int universal) {
    int n_fragments = n_rules ? n_rules : 1;
    *d = (Dfa){.n_rules = n_rules, .starts = xalloc((size_t)n_fragments, sizeof(int))};

    SubsetBuilder b = {.nfa = n, .dfa = d, .universal = universal};
    b.classes = xalloc((size_t)n->sets.n + 1, sizeof *b.classes);
    bool ok = !n->is_full && make_classes(&b);
    b.n_buckets = d->n_classes + d->n_rules;
    b.buckets = xalloc((size_t)b.n_buckets, sizeof *b.buckets);
    b.seen = xalloc((size_t)n->n_states, sizeof(int));

    // State 0 is the dead state; the start states follow.
    bool *is_final = xalloc((size_t)n->n_states, sizeof *is_final);
    ok = ok && state_of_key(d, &b.subsets, NULL, 0) == 0;
    for (int i = 0; i < n_fragments && ok; i++) {
        is_final[fragments[i].end] = true;
        close_set(&b, &fragments[i].start, 1, fragments[i].place, -1);
        ok = fragments[i].place == NFA_BEGIN || check_context(&b, 0);
        d->starts[i] = ok ? state_of_set(&b) : 0;
        ok = ok && d->starts[i] >= 0;
    }

    // Filling a state may add the states to which it leads.
    for (int state = 0; ok && state < d->n_states; state++) ok = fill_state(&b, state, is_final);

    for (int i = 0; i < n->sets.n; i++) free(b.classes[i].at);
    for (int i = 0; i < b.n_buckets; i++) free(b.buckets[i].at);
    free(b.classes);
    free(b.buckets);
    free(b.set.at);
    free(b.seen);
    free(is_final);
    intern_free(&b.subsets);
    if (!ok) return fail_too_large(d, n->budget);

    if (!n_rules) d->start = d->starts[0];
    dfa_reduce(d);
    return true;
}

// Useless and equivalent states.

static bool is_useful_call(const Dfa *d, const bool *is_useful, DfaCall call) {
    return is_useful[call.to] && is_useful[d->starts[call.rule]];
}

static bool leads_to_useful(const Dfa *d, const bool *is_useful, int state) {
    for (int c = 0; c < d->n_classes; c++)
        if (is_useful[d->next[state * d->n_classes + c]]) return true;
    for (int k = d->call_begin[state]; k < d->call_begin[state + 1]; k++)
        if (is_useful_call(d, is_useful, d->calls[k])) return true;
    return false;
}

// Redirects transitions after which no text is accepted to the dead state.
static void remove_useless(Dfa *d) {
    bool *is_useful = xalloc((size_t)d->n_states, sizeof *is_useful);
    for (bool changed = true; changed;) {
        changed = false;
        for (int state = d->n_states; state-- > 1;)
            if (!is_useful[state] && (d->accept[state] || leads_to_useful(d, is_useful, state)))
                is_useful[state] = changed = true;
    }

    for (int i = 0; i < d->n_states * d->n_classes; i++)
        if (!is_useful[d->next[i]]) d->next[i] = 0;
    for (int k = 0; k < d->call_begin[d->n_states]; k++)
        if (!is_useful_call(d, is_useful, d->calls[k])) d->calls[k].to = 0;
    if (!is_useful[d->start]) d->start = 0;

    for (int r = 0; r < d->n_rules; r++)
        if (!is_useful[d->starts[r]]) d->starts[r] = 0;
    free(is_useful);
}

// Merges the states of each part. Parts are numbered in the order of their first states, so rows
// only move toward the beginning.
static void merge_states(Dfa *d, const uint16_t *part, int n_parts) {
    int n = 0;
    for (int state = 0; state < d->n_states; state++) {
        if (part[state] < n) continue;
        for (int c = 0; c < d->n_classes; c++)
            d->next[n * d->n_classes + c] = part[d->next[state * d->n_classes + c]];
        d->accept[n++] = d->accept[state];
    }
    d->start = part[d->start];
    d->n_states = n_parts;
}

// Partition refinement. At first, states with the same label are in the same part. Each round
// splits parts: two states stay in the same part if every class leads both to the same part. When a
// round splits nothing, the parts are the states of the minimal DFA.
static void minimize(Dfa *d) {
    enum { MAX_ROUNDS = 200 }; // after that the DFA is left as it is, correct but not minimal
    size_t n = (size_t)d->n_states, width = (size_t)d->n_classes;
    uint16_t *part = xalloc(n, sizeof *part), *next_part = xalloc(n, sizeof *part);
    size_t len = (width / 4 + 1) * 8; // bytes of a key; whole words are hashed faster
    uint16_t *key = xalloc(1, len);   // the parts of the entries of a row and of its state
    InternTable parts = {0};

    // The first partition is by label. Part 0 is the dead state.
    for (size_t state = 1; state < n; state++) part[state] = (uint16_t)(d->accept[state] + 1);
    for (int round = 0, n_parts = 0; round < MAX_ROUNDS; round++) {
        intern_clear(&parts);
        for (size_t state = 0; state < n; state++) {
            const uint16_t *row = d->next + state * width;
            for (size_t c = 0; c < width; c++) key[c] = part[row[c]];
            key[width] = part[state];
            next_part[state] = (uint16_t)intern_add(&parts, key, len, NULL);
        }

        uint16_t *old = part;
        part = next_part;
        next_part = old;
        if (parts.n == n_parts) {
            merge_states(d, part, n_parts);
            break;
        }
        n_parts = parts.n;
    }

    free(part);
    free(next_part);
    free(key);
    intern_free(&parts);
}

void dfa_reduce(Dfa *d) {
    remove_useless(d);
    if (!d->n_rules) minimize(d);
}

// Products.
//
// A state of the product is a pair of states, one of each automaton, which read the text in
// parallel. The pair (0, 0) is the dead state.

// Cuts the code points at the bounds of both automata. The classes of the product are the pairs of
// classes that occur.
static void pair_classes(Dfa *out, const Dfa *a, const Dfa *b, InternTable *pairs) {
    size_t n_a = (size_t)a->n_bounds, n_b = (size_t)b->n_bounds;
    uint32_t *bounds = xalloc(n_a + n_b, sizeof *bounds);
    memcpy(bounds, a->bounds, n_a * sizeof *bounds);
    memcpy(bounds + n_a, b->bounds, n_b * sizeof *bounds);
    set_bounds(out, bounds, n_a + n_b);
    for (int i = 0; i < out->n_bounds; i++) {
        int pair[] = {a->class_of[dfa_interval(a, bounds[i])],
                      b->class_of[dfa_interval(b, bounds[i])]};
        out->class_of[i] = (uint16_t)intern_add(pairs, pair, sizeof pair, NULL);
    }
    out->n_classes = pairs->n;
}

static uint16_t product_label(int a, int b, DfaOp op) {
    if (op >= DFA_LABEL) return (uint16_t)(a && b ? a + (1 << (op - DFA_LABEL)) : a);
    return (uint16_t)((op == DFA_INTERSECT) == (b != 0) ? a : 0);
}

bool dfa_product(Dfa *out, const Dfa *a, const Dfa *b, DfaOp op, Budget *budget) {
    InternTable states = {0}, pairs = {0};
    *out = (Dfa){0};
    pair_classes(out, a, b, &pairs);

    bool ok = state_of_key(out, &states, (int[]){0, 0}, 2 * sizeof(int)) == 0;
    if (a->start && (b->start || op != DFA_INTERSECT))
        out->start = state_of_key(out, &states, (int[]){a->start, b->start}, 2 * sizeof(int));

    for (int state = 1; ok && state < out->n_states; state++) {
        int in_a = ((const int *)intern_key(&states, state))[0];
        int in_b = ((const int *)intern_key(&states, state))[1];
        ok = budget_spend(budget, out->n_classes);
        out->accept[state] = product_label(a->accept[in_a], b->accept[in_b], op);

        for (int c = 0; ok && c < out->n_classes; c++) {
            const int *pair = intern_key(&pairs, c);
            int to[] = {a->next[in_a * a->n_classes + pair[0]],
                        b->next[in_b * b->n_classes + pair[1]]};
            if (!to[0] || (!to[1] && op == DFA_INTERSECT)) continue;

            int next = state_of_key(out, &states, to, sizeof to);
            ok = next >= 0;
            out->next[state * out->n_classes + c] = (uint16_t)next;
        }
    }

    intern_free(&pairs);
    intern_free(&states);
    if (!ok) return fail_too_large(out, budget);

    dfa_reduce(out);
    return true;
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
