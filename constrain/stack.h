// Stack frames of the machine: the objects and arrays that are open around the current place of the
// text, and the grammar rules that continue when the current one ends.
//
// A stack is the number of its top frame, which refers to its parent. Equal frames are stored once,
// so that stacks share their lower part and are equal if their numbers are.
//
// Properties may come in any order. A frame of an object remembers the set of names that were seen
// (a bit each), how many properties there are, and how many required ones are missing. Two texts
// that have written the same set of properties therefore have the same frame, whatever the order.
// Given properties a, b (required) and c, at most two of them:
//
//     {                seen {}     missing 1   may come: a, b, c (one is left for b)
//     {"a": 1          seen {a}    missing 1   may come: b; not c, as b would be a third
//     {"a": 1, "b": 2  seen {a,b}  missing 0   may close; nothing may come
//
// While a name is being read, the names that begin with its characters are a range [lo, hi) of the
// trie node; the name may go on as long as one of them may come, or another name may.
#pragma once

#include "grammar.h"

typedef enum { FRAME_ROOT, FRAME_RULE, FRAME_OBJECT, FRAME_ARRAY } FrameKind;

typedef struct {
    uint32_t parent;
    FrameKind kind;
    int32_t def;       // RULE: index of the DFA; OBJECT, ARRAY: of the definition
    int32_t state;     // RULE: state of the DFA after the call
    uint32_t count;    // properties so far; items before the current one
    uint32_t depth;    // open containers up to and including this one
    uint32_t missing;  // required properties that are missing
    uint32_t position; // ordered properties: least PropertyDef.order that may still come
    uint64_t seen[];   // OBJECT: (n_names) bits
} StackFrame;

typedef struct {
    const Grammar *grammar;
    InternTable frames; // key 0: the root
    StackFrame *draft;  // room for the largest frame
} StackTable;

void stacks_init(StackTable *t, const Grammar *g);
void stacks_free(StackTable *t);
static inline const StackFrame *stack_top(const StackTable *t, uint32_t stack) {
    return intern_key(&t->frames, (int)stack);
}

// Each returns the number of a new stack.
uint32_t stack_push_rule(StackTable *t, uint32_t stack, int dfa, int state);
uint32_t stack_push(StackTable *t, uint32_t stack, FrameKind kind, int def);
// The top frame after a comma (array), or after a property; name NONE: one that is not listed.
uint32_t stack_next_item(StackTable *t, uint32_t stack);
uint32_t stack_add_property(StackTable *t, uint32_t stack, int name);
// A stack of another table, whose stacks `moved` (or 0) have been copied before.
uint32_t stack_copy(StackTable *t, const StackTable *from, uint32_t stack, uint32_t *moved);

// Whether a property may come next: a listed name; one that is not listed.
bool frame_allows_name(const StackTable *t, const StackFrame *f, int name);
bool frame_allows_other(const StackTable *t, const StackFrame *f);
// Whether a name at a trie node (or NONE) and a state of ObjectDef.other leads to one that may
// come.
bool frame_leads_to_name(const StackTable *t, const StackFrame *f, int node, int other);
// Whether the container may have one more property or item; may close after the current one.
bool frame_has_more(const StackTable *t, const StackFrame *f);
bool frame_may_close(const StackTable *t, const StackFrame *f);
// The value of an array's current item.
int frame_item_value(const StackTable *t, const StackFrame *f);
