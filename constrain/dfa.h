// Deterministic finite automata (DFA) over code points. Patterns, formats, number ranges and
// grammar rules are compiled to them.
//
// A DFA has one row of transitions per state. The columns are not code points but character
// classes: sets of code points that the automaton does not distinguish. A row therefore has a few
// entries instead of 1.1 million. The DFA of a grammar also has calls, which are edges that read a
// text of another rule; they make it a pushdown automaton (machine.h).
#pragma once

#include "constrain/nfa.h"

typedef struct {
    int rule, to; // a text of `rule` leads to state `to`
} DfaCall;

// State 0 is dead: no text is accepted from it. From every other state, some text is accepted.
typedef struct {
    int n_states, n_classes, start;
    uint16_t *next;     // (n_states, n_classes)
    uint16_t *accept;   // (n_states) label of the texts that lead to a state; 0: not accepted
    uint32_t *bounds;   // (n_bounds) first code point of each interval; the first is 0
    uint16_t *class_of; // (n_bounds) class of each interval
    int n_bounds;
    int *call_begin; // (n_states + 1) into calls
    DfaCall *calls;
    int *starts, n_rules; // (n_rules) start state of each rule; 0: the rule has no text
} Dfa;

// Builds the minimal DFA of an NFA fragment; accepted texts have label 1. If n_rules > 0, builds
// the DFA of a grammar instead: fragment r is rule r, the DFA is not minimized, calls of rules that
// have no text are removed, and the caller sets `start` to one of `starts`. universal: an NFA state
// from which every text is accepted, or -1. Returns false and sets err (exit 2) if a limit on
// states or the budget is exceeded.
bool dfa_build(Dfa *d, const Nfa *n, const NfaFragment *fragments, int n_rules, int universal);

typedef enum {
    DFA_INTERSECT, // texts of both
    DFA_SUBTRACT,  // texts of a that are not texts of b
    DFA_LABEL      // DFA_LABEL + i: texts of a; 2^i is added to the label of those that b accepts
} DfaOp;
// The minimal DFA of an operation on two DFAs without calls.
bool dfa_product(Dfa *out, const Dfa *a, const Dfa *b, DfaOp op, Budget *budget);
// Removes states that lead to no accepted text and, without calls, merges equivalent states.
void dfa_reduce(Dfa *d);
void dfa_free(Dfa *d);
static inline bool dfa_is_empty(const Dfa *d) { return d->start == 0; }

// Index of the interval that contains a code point.
int dfa_interval(const Dfa *d, uint32_t code);
static inline int dfa_next(const Dfa *d, int state, uint32_t code) {
    return d->next[state * d->n_classes + d->class_of[dfa_interval(d, code)]];
}
// The label of a text (0: not accepted). For DFAs without calls.
int dfa_match(const Dfa *d, Str text);
