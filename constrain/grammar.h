// Grammars. Constraints are compiled to a grammar, and the machine (machine.h) runs it.
//
// A grammar describes values that refer to each other. A value has alternatives. An alternative is
// a text (a DFA: numbers, words, regular expressions and GBNF), a string, an object or an array;
// objects and arrays refer to values again. All references are indices into the lists of Grammar.
// The alternatives of the root may also be sequences of values with tags: calls of tools (calls.c).
// For example, {"type":"array","items":{"type":["null","string"]}} becomes
//
//     value 1: definition 2                    value 2: definition 0 | definition 1
//     definition 2: array, items of value 2    definition 0: text "null"; 1: any string
#pragma once

#include "constrain/dfa.h"

enum { NONE = -1 };
#define NO_LIMIT UINT32_MAX

// Precedes the text of a control token among the texts of tokens (mask.h) and in a tag. No UTF-8
// text has this byte, so no string can contain a control token.
#define CONTROL_MARK "\xff"

// A list of strings as a trie over code points, stored breadth first: the children of a node are
// consecutive and sorted by code point.
typedef struct {
    uint32_t code; // of the edge that leads here
    int first, n;  // children
    int lo, hi;    // strings [lo, hi) of the sorted list pass through here
    int label;     // number of the string that ends here, or NONE
} TrieNode;

// The contents of a string: one of the strings of a trie, or a text of a DFA with min to max
// characters.
typedef struct {
    int trie, dfa;     // root node and definition; one of them is NONE
    uint32_t min, max; // characters
    uint32_t limit;    // characters are counted up to this number
    uint64_t *live;    // (n_states, limit + 1) bits: see string_is_live(); NULL: all set
} StringDef;

// True if a text that has led to state q of the DFA after `count` characters can be completed.
static inline bool string_is_live(const StringDef *s, int q, uint32_t count) {
    if (q <= 0 || count > s->max) return false;
    if (!s->live) return true;
    size_t bit = (size_t)q * ((size_t)s->limit + 1) + (count < s->limit ? count : s->limit);
    return s->live[bit / 64] >> (bit & 63) & 1;
}

// The count after one more character, item or property. Without a maximum, counting stops at
// `limit`, above which the count has no effect. This keeps the number of configurations small.
static inline uint32_t count_up(uint32_t count, uint32_t limit, uint32_t max) {
    return max == NO_LIMIT && count >= limit ? limit : count + 1;
}

typedef struct {
    Str name; // for messages
    int value;
    uint32_t order; // position in the schema
    bool is_required;
} PropertyDef;

typedef struct {
    int trie, n_names;       // the listed property names: root node, or NONE
    PropertyDef *properties; // (n_names), sorted by name
    int other;               // DFA of all other names; NONE: no other names are allowed
    int *other_values;       // (n_other) value of a property whose name has label i + 1
    int n_other;
    uint32_t min, max;   // properties
    uint32_t n_required; // listed properties that must be present
    bool is_ordered;     // properties come in the schema's order
} ObjectDef;

typedef struct {
    int *items, n_prefix; // (n_prefix + 1) values of the first items, and of all others
    uint32_t min, max;    // items
    // The items are distinct: each of the values items[0] to items[n_prefix - 1], which have one
    // text each, occurs at most once, in any order.
    bool is_unique;
} ArrayDef;
enum { MAX_UNIQUE = 31 }; // values of such an array (bits of StackFrame.state)

// Values one after another. A sequence is an alternative of the root, or of a part of a sequence.
typedef struct {
    int *parts, n; // (n) at least two values, of which no text is empty
} SequenceDef;

typedef enum { DEF_TEXT, DEF_STRING, DEF_OBJECT, DEF_ARRAY, DEF_SEQUENCE, DEF_TAG } DefKind;
typedef struct {
    DefKind kind;
    union {
        Dfa dfa; // of a text
        StringDef string;
        ObjectDef object;
        ArrayDef array;
        SequenceDef sequence;
        Str tag; // not empty; CONTROL_MARK precedes the text of a control token
    };
} Def;

typedef struct {
    int *alts; // (n_alts) definitions; the DFA of a text or string is not empty
    int n_alts;
    bool is_possible; // some text matches
} ValueDef;

typedef struct Grammar {
    Def *defs;
    ValueDef *values;
    TrieNode *tries;
    int n_defs, n_values, n_tries;
    int root;          // value of the whole text
    Arena arena;       // lists of the definitions
    Buffer unenforced; // places of keywords that only a check of the whole text enforces
    bool may_repeat;   // an object may have an unlisted name twice, which a check finds, too
    InternTable checked_tools; // names of tools whose arguments only a check enforces
} Grammar;

// The size of a grammar at some time.
typedef struct {
    int n_defs, n_values, n_tries;
} GrammarMark;

void grammar_free(Grammar *g);
GrammarMark grammar_mark(const Grammar *g);
void grammar_truncate(Grammar *g, GrammarMark to); // removes what has been added since
size_t grammar_bytes(const Grammar *g);            // approximate memory use
// Adds a definition and returns its index. Takes ownership of a DFA. All other lists of the
// definition must be allocated in the arena.
int grammar_add(Grammar *g, Def def);
int grammar_add_dfa(Grammar *g, Dfa d);
int grammar_add_value(Grammar *g);
// Adds an alternative to a value, unless the value already has it.
void grammar_add_alt(Grammar *g, int value, int def);
// Adds an object with n listed properties, which are sorted by name. Sets the fields of `o` that
// describe them.
int grammar_add_object(Grammar *g, ObjectDef o, const PropertyDef *properties, int n);
// A grammar for the texts of one DFA. Takes ownership of the DFA.
Grammar *grammar_of_dfa(Dfa d);

// Adds a trie of n sorted distinct strings and returns its root.
int trie_add(Grammar *g, const Str *strings, int n);
// Index of the first child whose code is at least `code`, which may be past the last child.
int trie_lower_bound(const Grammar *g, int node, uint32_t code);
// The child of a node, or NONE.
int trie_child(const Grammar *g, int node, uint32_t code);

// Completes what has been added since `from`, to which nothing before refers yet. Removes
// alternatives that no text matches, so that the machine never enters a dead end; none if the value
// `root` is impossible. False with err if the budget is exceeded or the machine does not support an
// object.
bool grammar_finish(Grammar *g, GrammarMark from, int root, Budget *budget);
