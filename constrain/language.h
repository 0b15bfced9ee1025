// Regular languages: the DFAs of a grammar that are built from regular expressions and from each
// other. Each is built once. A language is represented by the index of its DFA in Grammar.defs, or
// by -1 after a failure, whose reason is in budget.err.
#pragma once

#include "grammar.h"
#include "regex.h"

typedef struct {
    Grammar *grammar;
    Budget budget;
    InternTable keys; // descriptions of the definitions built so far
    int *defs;        // (keys.n) their indices
} Languages;

// Where to find the index of a definition that a key describes. It is -1 until the caller has built
// the definition and sets it. Valid until the next call.
int *language_find(Languages *l, const void *key, size_t len);
int language_regex(Languages *l, Str pattern, RegexMode mode);
// An operation on two languages, of which either may be -1; on a language and the texts that a
// pattern matches as a whole.
int language_combine(Languages *l, int a, DfaOp op, int b);
int language_narrow(Languages *l, int a, DfaOp op, Str pattern);
void languages_free(Languages *l);
