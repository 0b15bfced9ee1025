// Regular languages over code points: sets of characters, automata with free choice (Nfa) built by
// the readers of expressions and grammars, deterministic ones (Dfa) made of them by the subset
// construction.
#ifndef CONSTRAIN_DFA_H
#define CONSTRAIN_DFA_H

#include "../base/text.h"

enum { CODE_MAX = 0x10ffff };

typedef struct {
    uint32_t lo, hi; // both in it
} Range;

// A set of code points. Zero-initialise; add, then seal.
typedef struct {
    Range *at; // once sealed: ascending, apart, without surrogates (no text holds one)
    int n, cap;
} CharSet;

void charset_add(CharSet *s, uint32_t lo, uint32_t hi);
void charset_add_set(CharSet *s, const CharSet *other);
void charset_seal(CharSet *s);
void charset_invert(CharSet *s); // seals
void charset_free(CharSet *s);

// How much work may still go into compiling: every step of every construction takes from it, so
// that no pattern or schema takes longer than about a second.
typedef struct {
    long left;
} Budget;
enum { COMPILE_BUDGET = 40000000 };
bool budget_take(Budget *b, long n);

typedef enum {
    EDGE_EMPTY, // taken without a character
    EDGE_SET,   // a character of sets[arg]
    EDGE_CALL,  // a text of rule arg
    EDGE_BEGIN, // only where the text begins
    EDGE_END    // only where it ends
} EdgeKind;

typedef struct {
    int from, to;
    EdgeKind kind;
    int arg;
} Edge;

typedef struct {
    Edge *edges;
    int n_edges, cap_edges, n_states;
    CharSet *sets;
    int n_sets;
    bool is_full; // it would exceed the limit of states; what was added since is lost
    Budget *budget;
} Nfa;

int nfa_state(Nfa *n);
void nfa_edge(Nfa *n, int from, int to, EdgeKind kind, int arg);
// A new state behind `from`, reached by a character of the set (which is taken over).
int nfa_step(Nfa *n, int from, CharSet *set);
void nfa_free(Nfa *n);

typedef struct {
    int rule, to; // a text of the rule leads to state `to`
} Call;

// State 0 is dead; from every other state an accepting one can be reached.
typedef struct {
    int n_states, n_classes, start;
    uint16_t *next;     // (n_states, n_classes)
    uint16_t *accept;   // (n_states): 0, or the label of the texts that end here
    uint32_t *bounds;   // (n_bounds): interval i of code points begins here; the first is 0
    uint16_t *class_of; // (n_bounds)
    int n_bounds;
    uint16_t ascii[128]; // class of the first code points
    int *call_begin;     // (n_states + 1) into calls; NULL without calls
    Call *calls;
    int *starts, n_rules; // states in which the rules begin; 0: no text follows the rule
} Dfa;

// Deterministic form of an Nfa from `start`. `finals` are n_finals accepting states (label 1).
// `universal` (or -1) is a state after which every text is accepted. False with err when it grows
// beyond limit or budget.
bool dfa_build(Dfa *d, const Nfa *n, int start, int final, int universal, Error *err);
// The same for rules that call each other: rule r from starts[r] to finals[r]. Calls of rules
// without any text go.
bool dfa_build_rules(Dfa *d, const Nfa *n, const int *starts, const int *finals, int n_rules,
                     Error *err);
// Texts of both; texts of a that are none of b; texts of a, whose labels get `bit` where b accepts
// too.
typedef enum { DFA_AND, DFA_AND_NOT, DFA_MARK } DfaOp;
bool dfa_product(Dfa *out, const Dfa *a, const Dfa *b, DfaOp op, int bit, Budget *budget,
                 Error *err);
// All texts, with label 1.
void dfa_any(Dfa *d);
// The texts of n to m characters (m < 0: or more).
bool dfa_length(Dfa *d, int min, int max, Error *err);
// Drops states that lead nowhere, joins those that cannot be told apart (unless it has calls).
void dfa_reduce(Dfa *d);
void dfa_free(Dfa *d);
bool dfa_is_empty(const Dfa *d);

// Index of the interval that holds a code point.
int dfa_interval(const Dfa *d, uint32_t code);
static inline int dfa_class(const Dfa *d, uint32_t code) {
    return code < 128 ? d->ascii[code] : d->class_of[dfa_interval(d, code)];
}
static inline int dfa_next(const Dfa *d, int state, uint32_t code) {
    return d->next[state * d->n_classes + dfa_class(d, code)];
}
// Label of a whole text (0: not accepted), for automata without calls.
int dfa_match(const Dfa *d, Str text);

#endif
