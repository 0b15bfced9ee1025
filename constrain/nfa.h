// Character sets, and nondeterministic automata (NFA) over code points.
//
// An NFA is a list of edges between numbered states. The pattern compilers build one by Thompson's
// construction ("Regular Expression Search Algorithm", CACM 1968); dfa.h makes it deterministic.
#pragma once

#include "base/intern.h"
#include "base/text.h"

enum { CODE_MAX = 0x10ffff };

typedef struct {
    uint32_t lo, hi; // both included
} CodeRange;

// A set of code points. Zero-initialize it, add ranges in any order, and pass it to nfa_set(),
// which normalizes it: ascending disjoint ranges without surrogates, which no text contains.
typedef struct {
    CodeRange *at;
    int n;
} CharSet;

void charset_add(CharSet *s, uint32_t lo, uint32_t hi);
void charset_invert(CharSet *s); // the result is normalized
void charset_free(CharSet *s);
// For qsort(): orders code points, ranges by their first code point, and numbers of states.
int compare_codes(const void *a, const void *b);

// The steps that a compilation or a mask has left, and the error of a compilation. Every
// construction subtracts its steps, so that no pattern, grammar or schema takes longer than about a
// second. An interrupt uses up the budget: whoever sees a failure checks signals_interrupt().
typedef struct {
    long left;
    Error *err;
} Budget;
enum { COMPILE_BUDGET = 40000000 };   // steps
bool budget_spend(Budget *b, long n); // false once the budget is exceeded, or on an interrupt

typedef enum {
    NFA_EMPTY, // consumes nothing
    NFA_SET,   // one character of set `arg`
    NFA_CALL,  // a text of rule `arg` (grammars)
    NFA_BEGIN, // consumes nothing, only at the beginning of the text
    NFA_END,   // consumes nothing, only at the end of the text
    NFA_LATER, // consumes nothing, not at the beginning of the text
    NFA_AFTER  // consumes nothing, only after a character of set `arg`
} NfaEdgeKind;

typedef struct {
    NfaEdgeKind kind;
    int arg, to;
    int next; // next edge from the same state, or -1
} NfaEdge;

typedef struct {
    NfaEdge *edges;
    int *first; // (n_states) first edge of each state, or -1
    int n_edges, n_states;
    InternTable sets; // CodeRange arrays; equal sets are stored once
    bool is_full;     // the limit of states was reached; later additions were dropped
    bool has_after;   // some edge is NFA_AFTER
    Budget *budget;
} Nfa;

// The part of an NFA that reads one pattern. A text matches if it leads from start to end. It
// begins at the beginning of the whole text (NFA_BEGIN), later (NFA_LATER) or at any place
// (NFA_EMPTY).
typedef struct {
    int start, end;
    NfaEdgeKind place;
} NfaFragment;

int nfa_state(Nfa *n); // adds a state and returns its number
void nfa_edge(Nfa *n, int from, int to, NfaEdgeKind kind, int arg);
// Adds a state and an edge that leads to it from `from`. Returns the new state.
int nfa_step(Nfa *n, int from, NfaEdgeKind kind, int arg);
int nfa_set(Nfa *n, CharSet *set);               // the number of a set; frees the set
int nfa_range(Nfa *n, uint32_t lo, uint32_t hi); // the number of the set of a range
void nfa_free(Nfa *n);
