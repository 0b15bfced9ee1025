// Generates texts from a context-free grammar. Each byte of fuzzer input selects a production, so
// that every input is a well-formed text, and a mutation of the input changes a part of the text.
#pragma once

#include "tests/fuzz/targets.h"

// A nonterminal. Wherever its name occurs in a production, one of its productions is inserted.
typedef struct {
    char name;
    const char *const *productions; // (n) the first one ends the recursion
    size_t n;
    int max_repeats; // it is inserted 0 to this many times; 0: exactly once
    bool is_leaf;    // its productions have no nonterminals
} Symbol;

#define SYMBOL(name, table)                                                                        \
    { name, table, sizeof(table) / sizeof *(table), 0, false }
#define LEAF_SYMBOL(name, table)                                                                   \
    { name, table, sizeof(table) / sizeof *(table), 0, true }

typedef struct {
    const Symbol *symbols; // the last one has the name 0
    int max_depth;         // of nested nonterminals
    const uint8_t *data;   // (n) the input that is not used yet
    size_t n;
    Buffer text;
    int depth;
} Productions;

// A choice from 0 to n - 1 by the next byte; 0 at the end of the input.
size_t production_choose(Productions *p, size_t n);
// Appends a production, with its nonterminals replaced.
void production_put(Productions *p, const char *production);
// Prints a text if $FUZZ_SHOW is set.
void fuzz_show(Str text);
// The next number of a pseudo-random sequence (splitmix64).
uint64_t fuzz_random(uint64_t *state);
