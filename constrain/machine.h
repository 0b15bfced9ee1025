// The machine: a nondeterministic pushdown automaton that reads the texts of a grammar byte by
// byte.
//
// A configuration is the set of all (state, stack) pairs that the automaton can have after the text
// so far; usually there is one pair. Configurations are numbered when they are first reached, and
// their steps are stored, so that reading a byte is mostly one table lookup. The deterministic
// automaton is thus built lazily.
//
// The states. { and [ push a frame on the stack; } and ] pop it. Characters and escapes of strings,
// names and texts are read byte by byte (json_char.h), so a state may also be in the middle of one.
//
//     AT_VALUE --- " ------------> IN_STRING, IN_LISTED --- " ----.
//        |------- text of a DFA -> IN_TEXT (calls push a frame) --|
//        |------- text of a tag -> IN_TAG ------------------------|
//        |                                                        v
//        |                                                 end of the value
//        |                                                   |    |    `-- no frame: AT_END
//        |                                                   |    |-- of a part of a sequence:
//        |                                                   |    |   AT_VALUE of the next part
//        |                                                   |    `-- of a call: IN_TEXT of the
//        |                                                   |        caller
//        `-- { [ --> AT_OPEN ------ } ] ------------------>  |
//                       |            .----- } ] --------->   |
//                       |            |                       |
//                       |         AT_AFTER <-----------------'  of an object or array
//                       |            `-- , --> AT_NEXT
//                       v                        v
//            in arrays:  AT_VALUE of the next item
//            in objects: AT_QUOTE -- " --> IN_NAME -- " --> AT_COLON -- : --> AT_SPACE --> AT_VALUE
//
// White space: after a line break, AT_INDENT counts the spaces; before } or ], AT_CLOSE follows.
//
// Example: after {"a": [1 the stack is [ { root, and the configuration has two states. IN_TEXT
// continues the number. AT_AFTER reads the comma or ] after it, because the number may end here.
#pragma once

#include "constrain/grammar.h"

typedef struct Machine Machine;

enum { DEAD = 0 }; // the empty configuration

Machine *machine_new(const Grammar *g);
void machine_free(Machine *m);
uint32_t machine_start(Machine *m);

// A configuration in the step table.
typedef struct {
    uint32_t next[256]; // configuration after each byte; UINT32_MAX: not yet computed
    uint32_t step_cost; // of a step to this configuration: its states, and the stacks below them
} StepRow;

StepRow *machine_row(const Machine *m, uint32_t config);
// Computes a step that is not in the table yet.
uint32_t machine_step_slow(Machine *m, uint32_t config, int byte);
// The configuration after one more byte; DEAD if no text continues with that byte.
static inline uint32_t machine_step(Machine *m, uint32_t config, int byte) {
    uint32_t next = machine_row(m, config)->next[byte];
    return next != UINT32_MAX ? next : machine_step_slow(m, config, byte);
}
// The number of different bytes that can come next, but at most 2; *byte is one of them.
int machine_count_next(Machine *m, uint32_t config, int *byte);
// True if the text may end here. False for DEAD.
bool machine_is_end(const Machine *m, uint32_t config);
// The rest of a tag that comes next, if nothing else can; otherwise empty. Its CONTROL_MARK, if it
// has one, is included.
Str machine_tag(Machine *m, uint32_t config);
// True if the text ends in the middle of a character. False for DEAD.
bool machine_is_partial(const Machine *m, uint32_t config);

// Configurations inside strings, whose masks have shortcuts (see mask.c).

// A bit for the group to which the first byte of a character belongs. A group has bytes that
// patterns rarely distinguish: a range of letters, the digits, a range of UTF-8 lead bytes, or a
// single punctuation character. 0 for bytes with which no plain character of a string begins.
uint64_t byte_group(int byte);
// True if every plain character leads from the configuration to itself, except characters whose
// first byte is in the groups *others. This holds inside a string without a length, and inside a
// property name that has left all listed names.
bool machine_is_loop(const Machine *m, uint32_t config, uint64_t *others);
// As machine_is_loop(), except that the characters are counted: at least *min and at most *max more
// characters must follow.
bool machine_is_counted(const Machine *m, uint32_t config, uint32_t *min, uint32_t *max,
                        uint64_t *others);
// For a counted configuration: the configuration n characters later, and the same configuration
// without counting.
uint32_t machine_skip(Machine *m, uint32_t config, uint32_t n);
uint32_t machine_uncounted(Machine *m, uint32_t config);

// When the tables are full, machine_flush() forgets all configurations except the n in `keep`,
// whose numbers it updates.
void machine_set_limit(Machine *m, size_t bytes); // the tables are full beyond this size
bool machine_is_full(const Machine *m);
void machine_flush(Machine *m, uint32_t *const *keep, int n);
