// Pattern trees: the common form of regular expressions (regex.c) and grammar rules (gbnf.c), and
// the reader that both parsers share.
//
// A parser appends nodes and refers to them by number. pattern_emit turns a node into an NFA
// fragment by Thompson's construction; a repetition emits its operand once per copy. For
// example, a(b|c){0,2} becomes the tree and the NFA (unlabelled edges consume nothing)
//
//     SEQUENCE                              .------------------------.
//       SET a                               |           .------------v
//       REPEAT 0..2              0 -a-> 1 --+-> 2 ... 3 +-> 4 ... 5 -> 6
//         CHOICE
//           SEQUENCE SET b       2 ... 3 and 4 ... 5: a copy of the choice each
//           SEQUENCE SET c
#pragma once

#include "nfa.h"

typedef enum {
    PATTERN_SET,      // one character of set `arg` of the NFA
    PATTERN_CALL,     // a text of rule `arg`
    PATTERN_BEGIN,    // the beginning of the text
    PATTERN_END,      // the end of the text
    PATTERN_SEQUENCE, // the children one after the other; no children: the empty text
    PATTERN_CHOICE,   // any of the children
    PATTERN_REPEAT,   // the child, `min` to `max` times
    PATTERN_LOOKAHEAD // the text from here on begins with the child; `arg`: must not (regex.c)
} PatternKind;

typedef struct {
    PatternKind kind;
    int child, next; // first child, next sibling; or -1
    int arg;
    int min, max; // max < 0: no maximum
    size_t at;    // offset in the source: of a repetition's operator, else of the beginning
} PatternNode;

// The text of a pattern being parsed into nodes. Parsers return the number of a node, or -1 after
// pattern_fail.
typedef struct {
    Str text;
    size_t at;
    int depth; // open groups
    bool is_grammar;
    PatternNode *nodes;
    int n_nodes;
    Nfa nfa; // its sets are those of the nodes; pattern_emit adds states
    Error *err;
} PatternReader;

enum { PATTERN_MAX_DEPTH = 200 };

// Reports the first failure (exit 2), at offset `at` of the text. Returns -1.
int pattern_fail(PatternReader *r, size_t at, const char *why);
// The next byte, or -1 at the end.
static inline int pattern_peek(const PatternReader *r) {
    return r->at < r->text.len ? (unsigned char)r->text.data[r->at] : -1;
}
Str pattern_rest(const PatternReader *r);
// Reads one character as it is. False after a failure.
bool pattern_read_char(PatternReader *r, uint32_t *code);
// Reads a class after its [, and its ]. read_member adds one character, or a class such as \w
// (*code becomes UINT32_MAX, which cannot begin a range).
bool pattern_read_class(PatternReader *r, CharSet *s,
                        bool (*read_member)(PatternReader *r, CharSet *s, uint32_t *code));
// Reads *, +, ?, {n}, {n,} or {n,m}, if there is one, as a repetition of a node. Returns it, or the
// node itself. `skip` skips white space within the braces.
int pattern_read_repeat(PatternReader *r, int node, void (*skip)(PatternReader *r));
// Decodes what follows a backslash if it is an escape that both syntaxes have: \t \n \r \f \v \xHH
// \uHHHH (also a surrogate pair) \UHHHHHHHH. Returns its length, 0 if it is none of them.
size_t pattern_escape(Str s, uint32_t *code);
// n hexadecimal digits from offset `from`: the offset after them, or 0.
size_t pattern_hex(Str s, size_t from, size_t n, uint32_t *code);

// Adds a node. PATTERN_SET: the set is freed.
int pattern_add(PatternReader *r, PatternKind kind, int arg);
int pattern_add_set(PatternReader *r, CharSet *set);
// Appends a child to a node; *last is the child before it, -1 at first.
void pattern_append(PatternReader *r, int parent, int child, int *last);

// Adds the states that read a node's texts after state `from`, and returns the last one. Adds no
// edge into `from`. Every node except a sequence adds a state, so that the limit of states ends
// nested repetitions.
int pattern_emit(PatternReader *r, int node, int from);
void pattern_free(PatternReader *r);
