// The machine: a nondeterministic pushdown automaton that reads a text by a grammar, byte by byte.
//
// A configuration is the set of all (state, stack) pairs in which the automaton can be after the
// text so far; usually there is one. Configurations are numbered when they are first reached, and
// their steps are stored, so that reading a byte is mostly one table lookup: the deterministic
// automaton is built lazily, as far as texts need it.
#pragma once

#include "grammar.h"

typedef struct Machine Machine;

enum { DEAD = 0 }; // the empty configuration

Machine *machine_new(const Grammar *g);
void machine_free(Machine *m);
uint32_t machine_start(Machine *m);

uint32_t machine_step_slow(Machine *m, uint32_t config, int byte);
// The known steps of a configuration: (256), UINT32_MAX where a step was never taken.
uint32_t *machine_row(const Machine *m, uint32_t config);
// The configuration after one more byte; DEAD if no text continues with it.
static inline uint32_t machine_step(Machine *m, uint32_t config, int byte) {
    uint32_t next = machine_row(m, config)[byte];
    return next != UINT32_MAX ? next : machine_step_slow(m, config, byte);
}
// Whether the text may end here; whether it ends within a character.
bool machine_is_end(const Machine *m, uint32_t config);
bool machine_is_partial(const Machine *m, uint32_t config);

// Configurations inside strings, whose masks have short cuts (see mask.c).

// Bytes as groups of bytes that patterns rarely distinguish: letters, digits, each punctuation
// mark, ranges of UTF-8 lead bytes. One bit; 0 for bytes that no character of a string begins with.
uint64_t byte_group(int byte);
// Whether every character except those in `others` leads from the configuration to itself: the
// inside of a string without a length or, in a name, of any other name. *others: groups of first
// bytes.
bool machine_is_loop(const Machine *m, uint32_t config, uint64_t *others);
// Whether the same holds except that characters are counted: at least *min and at most *max more.
bool machine_is_counted(const Machine *m, uint32_t config, uint32_t *min, uint32_t *max,
                        uint64_t *others);
// For counted configurations: the one n characters later; the one that no longer counts.
uint32_t machine_skip(Machine *m, uint32_t config, uint32_t n);
uint32_t machine_uncounted(Machine *m, uint32_t config);

// When the tables are full, machine_flush forgets all configurations except those in keep (n),
// whose numbers it updates.
bool machine_is_full(const Machine *m);
void machine_flush(Machine *m, uint32_t *const *keep, int n);
