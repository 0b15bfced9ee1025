// What a constraint is compiled into, and the pushdown machine that reads text by it, byte by byte.
//
// A text is read by threads; most of the time there is one. Each stands in one of the small
// automata below and on top of a stack of frames: the objects and arrays that are open, or the
// rules that go on when this one ends. Stacks share their lower part. A set of threads is a
// configuration; configurations are numbered when they are first met, and their steps are kept, so
// that reading a byte is mostly one look into a table.
#ifndef CONSTRAIN_MACHINE_H
#define CONSTRAIN_MACHINE_H

#include "dfa.h"

enum { NONE = -1 };
#define NO_LIMIT UINT32_MAX

// Strings of a list as a tree, breadth first: children of a node stand together, by code point.
typedef struct {
    uint32_t code;
    int first, n;     // children
    int lo, hi;       // which strings of the sorted list go through here
    int label;        // the string that ends here, or NONE
    int other;        // state of ObjectDef.other here
    bool other_leads; // a text from here on can end as a name that is not in the list
} TrieNode;

// The contents of a string: one of a list, or what an automaton accepts, of min to max characters.
typedef struct {
    int trie, dfa; // root, or NONE; index of the automaton
    uint32_t min, max;
    uint32_t limit; // lengths are counted up to here
    uint64_t *live; // (n_states, limit + 1) bits: a fitting text goes on from here; NULL: always
} StringDef;

typedef struct {
    int node;       // of the value
    uint32_t order; // place in the schema
    bool is_required, is_possible;
} Slot;

typedef struct {
    int trie, n_names; // root, or NONE
    Slot *slots;       // (n_names), sorted by name
    int other; // automaton of all other names; its labels - 1 index other_nodes. NONE: no others
    int *other_nodes;
    int n_other;
    uint32_t min, max; // properties
    uint32_t n_required;
} ObjectDef;

typedef struct {
    int *prefix, n_prefix; // nodes of the first items
    int rest;              // of all others
    uint32_t min, max;
} ArrayDef;

typedef enum { ALT_TEXT, ALT_STRING, ALT_OBJECT, ALT_ARRAY } AltKind;
typedef struct {
    AltKind kind;
    int def; // index into dfas, strings, objects or arrays
} Alt;

// A value: any of its alternatives.
typedef struct {
    Alt *alts;
    int n_alts;
    bool is_possible; // some text is one
} Node;

typedef struct Grammar {
    Dfa *dfas;
    StringDef *strings;
    ObjectDef *objects;
    ArrayDef *arrays;
    Node *nodes;
    TrieNode *tries;
    int n_dfas, n_strings, n_objects, n_arrays, n_nodes, n_tries;
    int root;        // node of the whole text
    bool is_ordered; // properties come in the schema's order
} Grammar;

// A tree of n sorted, different strings; the index of its root.
int trie_add(Grammar *c, const Str *strings, int n);
// The child of a node, or NONE; the children with codes in [lo, hi].
int trie_child(const Grammar *c, int node, uint32_t code);

typedef struct Machine Machine;

enum { DEAD = 0 };

Machine *machine_new(const Grammar *c);
void machine_free(Machine *m);
uint32_t machine_start(Machine *m);

uint32_t machine_step_slow(Machine *m, uint32_t config, int byte);
// The steps known so far: 256 to a configuration, UINT32_MAX where a step was never taken.
uint32_t *machine_row(const Machine *m, uint32_t config);
// The configuration after one more byte; DEAD if no text goes on so.
static inline uint32_t machine_step(Machine *m, uint32_t config, int byte) {
    uint32_t next = machine_row(m, config)[byte];
    return next != UINT32_MAX ? next : machine_step_slow(m, config, byte);
}
// Whether the text may end here.
bool machine_is_end(const Machine *m, uint32_t config);
// Bytes in groups that patterns treat alike, as bits; 0 for those that no string holds as they are,
// or that only go on with a character.
uint64_t byte_group(int byte);
// Whether this is the inside of strings whose characters lead back to it, but for those of *others
// (bits of byte_group of their first byte); letters do.
bool machine_is_loop(const Machine *m, uint32_t config, uint64_t *others);
// Whether this is the inside of a string of which the characters must be of one set, and their
// number counts: at most *most more, at least *least. *others as above: they are not in the set.
bool machine_is_counted(const Machine *m, uint32_t config, uint32_t *least, uint32_t *most,
                        uint64_t *others);
// The same string n characters later.
uint32_t machine_skip(Machine *m, uint32_t config, uint32_t n);
// The same string, its characters not counted any more.
uint32_t machine_uncounted(Machine *m, uint32_t config);
// In the middle of a character.
bool machine_is_partial(const Machine *m, uint32_t config);
// Configurations so far; when they are too many, machine_flush forgets all but those in keep, which
// it renumbers.
uint32_t machine_size(const Machine *m);
bool machine_is_full(const Machine *m);
void machine_flush(Machine *m, uint32_t *const *keep, int n);
// Whether it had to give up threads since the last call, as more than fit were alive.
bool machine_overflowed(Machine *m);

#endif
