// Pattern trees: the common form of regular expressions (regex.c) and of the rules of a GBNF
// grammar (gbnf.c), and the recursive-descent parser that both share.
//
// The two notations have the same structure: alternatives of sequences of items, and an item may be
// a group or be repeated. A PatternSyntax says how they differ. The parser appends nodes to a list
// and refers to them by number. pattern_emit() turns a node into a part of an NFA by Thompson's
// construction; a repetition emits its operand once per copy. For example, a(b|c){0,2} becomes this
// tree and this NFA (edges without a label consume nothing):
//
//     SEQUENCE                              .------------------------.
//       SET a                               |           .------------v
//       REPEAT 0..2              0 -a-> 1 --+-> 2 ... 3 +-> 4 ... 5 -> 6
//         CHOICE
//           SEQUENCE SET b       2 ... 3 and 4 ... 5: a copy of the choice each
//           SEQUENCE SET c
#pragma once

#include "constrain/nfa.h"

typedef enum {
    PATTERN_SET = NFA_SET,     // one character of set `arg` of the NFA
    PATTERN_CALL = NFA_CALL,   // a text of rule `arg`
    PATTERN_BEGIN = NFA_BEGIN, // the beginning of the text
    PATTERN_END = NFA_END,     // the end of the text
    PATTERN_AFTER = NFA_AFTER, // the place after a character of set `arg` of the NFA
    PATTERN_SEQUENCE,          // the children one after another; no children: the empty text
    PATTERN_CHOICE,            // any of the children
    PATTERN_REPEAT,            // the child, `min` to `max` times
    PATTERN_LOOKAHEAD          // what follows begins with the child or, if `arg`, does not
} PatternKind;

typedef struct {
    PatternKind kind;
    int child, next; // first child, next sibling; or 0
    int arg;
    int min, max;                  // max < 0: no maximum
    size_t at;                     // offset in the source; for a repetition, that of its operator
    bool has_lookahead, has_begin; // it is or contains one (regex.c)
} PatternNode;

typedef struct PatternReader PatternReader;

// A rule of a grammar (gbnf.c).
typedef struct {
    Str name;
    size_t named_at;  // offset of the first use of the name
    int pattern;      // node; 0: not defined
    bool is_nullable; // the empty text matches
    bool is_safe;     // known not to be left-recursive (check_rules)
} GrammarRule;

// A notation. Functions that read something return false, or 0 for a node, after pattern_fail().
typedef struct {
    bool is_grammar; // GBNF
    // Reads an item: a literal, class, group or call. Returns its node.
    int (*read_item)(PatternReader *r);
    // Reads a member of a class [...] into a set: one character, or a class such as \w, for which
    // *code becomes UINT32_MAX, because it cannot begin a range.
    bool (*read_member)(PatternReader *r, CharSet *s, uint32_t *code);
} PatternSyntax;

// A pattern that is being parsed into nodes.
struct PatternReader {
    const PatternSyntax *syntax;
    Str text;
    size_t at;
    int depth;          // open groups
    bool is_refused;    // the failure is a construct that is valid, but not supported
    bool dot_all;       // a dot matches line terminators, too (flag s)
    bool is_multiline;  // ^ and $ match at the beginning and end of every line (flag m)
    PatternNode *nodes; // from 1 on
    int n_nodes;
    Nfa nfa; // has the sets of the nodes; pattern_emit() adds states
    GrammarRule *rules;
    int n_rules;
    Str rule; // the name of the rule that is read or checked, for messages; or empty
};

// Reports a failure (exit 2) at offset `at` of the text, or at the current offset. Only the first
// failure is kept. Returns false; as a node number, 0 means no node.
bool pattern_fail(PatternReader *r, size_t at, const char *why);
bool pattern_fail_here(PatternReader *r, const char *why);
// The next byte, or -1 at the end of the text.
static inline int pattern_peek(const PatternReader *r) {
    return r->at < r->text.len ? (unsigned char)r->text.data[r->at] : -1;
}
Str pattern_rest(const PatternReader *r);
// Skips the spaces and comments of a grammar. Also skips line breaks if `lines` is set or a group
// is open; otherwise a line break ends the rule.
void pattern_skip_space(PatternReader *r, bool lines);
// Reads one UTF-8 character. A backslash has no meaning here. False after a failure.
bool pattern_read_char(PatternReader *r, uint32_t *code);
// Each reads a construct after its opening bracket, including the closing bracket, and returns the
// node or 0: the class [...], the group (...).
int pattern_read_class(PatternReader *r);
int pattern_read_group(PatternReader *r);
// Reads alternatives up to the end of the text, of the group, or of the line (GBNF).
int pattern_read_choice(PatternReader *r);
// Decodes an escape that both notations have, after the backslash: \t \n \r \f \v \xHH \uHHHH (also
// a surrogate pair) or \UHHHHHHHH. Returns the length of the escape, or 0 for any other text.
size_t pattern_escape(Str s, uint32_t *code);
// Reads n hexadecimal digits at offset `from`. Returns the offset after them, or 0.
size_t pattern_hex(Str s, size_t from, size_t n, uint32_t *code);

// Adds a node.
int pattern_add(PatternReader *r, PatternKind kind, int arg);
// Appends a child to a node; *last is the child before it, 0 at first.
void pattern_append(PatternReader *r, int parent, int child, int *last);

// Adds the states that read the texts of a node after state `from`, without an edge into `from`.
// Returns the last state. Every node except a sequence adds a state, so that the limit on states
// ends nested repetitions.
int pattern_emit(PatternReader *r, int node, int from);
void pattern_free(PatternReader *r);
