// Character sets, and nondeterministic automata (NFA) over code points.
//
// An NFA is a list of edges between numbered states. The pattern compilers build one by Thompson's
// construction ("Regular Expression Search Algorithm", CACM 1968); dfa.h makes it deterministic.
#pragma once

#include "../base/intern.h"
#include "../base/text.h"

enum { CODE_MAX = 0x10ffff };

typedef struct {
    uint32_t lo, hi; // both included
} CodeRange;

// A set of code points. Zero-initialise, add ranges in any order, then hand it to nfa_set, which
// brings it into normal form: ascending disjoint ranges without surrogates, which no text contains.
typedef struct {
    CodeRange *at;
    int n, cap;
} CharSet;

void charset_add(CharSet *s, uint32_t lo, uint32_t hi);
void charset_add_set(CharSet *s, const CharSet *other);
void charset_invert(CharSet *s); // the result is in normal form
void charset_free(CharSet *s);

// Work that compiling may still do. Every construction subtracts its steps, so that no pattern,
// grammar or schema takes longer than about a second.
typedef struct {
    long left;
} Budget;
enum { COMPILE_BUDGET = 40000000 }; // steps
bool budget_spend(Budget *b, long n);

typedef enum {
    NFA_EMPTY, // consumes nothing
    NFA_SET,   // one character of set `arg`
    NFA_CALL,  // a text of rule `arg` (grammars)
    NFA_BEGIN, // consumes nothing, only at the beginning of the text
    NFA_END    // consumes nothing, only at the end of the text
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
    bool is_full;     // the limit of states was reached; later additions are lost
    Budget *budget;
} Nfa;

// The part of an NFA that reads one pattern: a text matches if it leads from start to end.
typedef struct {
    int start, end;
} NfaFragment;

int nfa_state(Nfa *n);
void nfa_edge(Nfa *n, int from, int to, NfaEdgeKind kind, int arg);
int nfa_set(Nfa *n, CharSet *set); // number of an equal set; frees the set
// Adds a state reached from `from` by an edge that consumes nothing, or by one character of a set.
// Returns the new state.
int nfa_empty_step(Nfa *n, int from, NfaEdgeKind kind);
int nfa_step(Nfa *n, int from, int set);
int nfa_char_step(Nfa *n, int from, uint32_t code);
void nfa_free(Nfa *n);
