// Regular languages: the DFAs of a grammar that are built from regular expressions and from each
// other. Each DFA is built once. A language is represented by its DFA's index in Grammar.defs, or
// by -1 after a failure, whose reason is in budget.err.
#pragma once

#include "constrain/grammar.h"
#include "constrain/regex.h"

typedef struct {
    Grammar *grammar;
    Budget budget;
    InternTable keys; // descriptions of the definitions built so far
    int *defs;        // (keys.n) their indices
} Languages;

// Returns a pointer to the index of the definition that a key describes. The index is -1 until the
// caller has built the definition and sets it. The pointer is valid until the next call.
int *language_find(Languages *l, const void *key, size_t len);
int language_regex(Languages *l, Str pattern, RegexMode mode);
// Combine two languages (either may be -1), or a language and the texts that a pattern matches as a
// whole.
int language_combine(Languages *l, int a, DfaOp op, int b);
int language_narrow(Languages *l, int a, DfaOp op, Str pattern);
