// Stacks of the machine. A stack has one frame for each object and array that is open at the
// current place of the text, and one for each grammar rule or sequence that continues when the
// current rule or part ends.
//
// A text can have several readings, whose number may grow exponentially with the depth. Their
// stacks are therefore shared in a graph (Tomita 1985): a stack of the machine is a top frame and
// the set of all stacks below it. Equal frames and equal sets are stored once. For example, an
// array in one of two objects, of which the text does not yet show which one it is:
//
//     [ on set 2        set 2: {a on set 1, {b on set 1        set 1: the root, on the empty set 0
//
// If a step of the machine pushes the same frame on several stacks, the result is one stack, whose
// set is the union of those stacks. The number of sets that a step adds therefore depends on the
// grammar only.
//
// Properties may come in any order. The frame of an object stores the set of names seen so far (a
// bit each), the number of properties, and the number of missing required properties. Texts with
// the same set of properties have the same frame, regardless of their order. For example, with
// properties a, b (required) and c, of which at most two may be present:
//
//     text so far      seen    missing   what may come next
//     {                {}      1         a, b or c (one place is reserved for b)
//     {"a": 1          {a}     1         b; not c, which would leave no place for b
//     {"a": 1, "b": 2  {a,b}   0         only }
//
// The names that begin with the characters of an incomplete name are a range [lo, hi) in its trie
// node. The name may continue if one of them is allowed, or if some unlisted name is. Unlisted
// names are counted but not stored, so an object may repeat one.
#pragma once

#include "constrain/grammar.h"

typedef enum { FRAME_ROOT, FRAME_RULE, FRAME_SEQUENCE, FRAME_OBJECT, FRAME_ARRAY } FrameKind;

typedef struct {
    FrameKind kind;
    int32_t def;       // RULE: index of the DFA; others: index of the definition
    int32_t state;     // RULE: state of the DFA after the call; SEQUENCE: number of the next part;
                       // ARRAY with ArrayDef.is_unique: bits of the values so far
    uint32_t count;    // properties or items so far, including the current one
    uint32_t depth;    // open containers up to and including this one
    uint32_t missing;  // required properties that are missing
    uint32_t position; // ordered properties: least PropertyDef.order that may still come
    uint64_t seen[];   // OBJECT: (n_names) bits
} StackFrame;

typedef struct {
    uint32_t frame, below; // the top frame, and the set of stacks below it
} Stack;
// The set below a frame that the step in progress has pushed, and may push again.
#define SET_OPEN UINT32_MAX

typedef struct {
    const Grammar *grammar;
    InternTable frames; // key 0: the root
    InternTable sets;   // sorted arrays of Stack; key 0: the empty set
    StackFrame *draft;  // a frame under construction; large enough for any
    Buffer set;         // Stack: a set under construction
    Buffer pushes;      // StackPush: the pushes of the step in progress
} StackTable;

void stacks_init(StackTable *t, const Grammar *g);
void stacks_free(StackTable *t);
static inline const StackFrame *stack_top(const StackTable *t, Stack s) {
    return intern_key(&t->frames, (int)s.frame);
}
// The stacks (n) of a set. Valid until a set is added.
const Stack *stack_set(const StackTable *t, uint32_t set, uint32_t *n);

// Pushes a frame. `state` is StackFrame.state, or 0 for an object or array.
Stack stack_push(StackTable *t, Stack s, FrameKind kind, int def, int state);
// Goes to the next part in the top frame, a sequence.
Stack stack_next_part(StackTable *t, Stack s);
// Counts one more item in the top frame, an array. value: its number in ArrayDef.items.
Stack stack_add_item(StackTable *t, Stack s, int value);
// Adds a property to the top frame, an object. name NONE: an unlisted name.
Stack stack_add_property(StackTable *t, Stack s, int name);
// At the end of a step: first sort the pushes, then replace SET_OPEN in each stack.
void stack_sort_pushes(StackTable *t);
void stack_settle(StackTable *t, Stack *s);
// Copies the sets for which moved[set] is not 0, and all sets below them, from another table.
// Replaces moved[set] by the number of the copy, which stack_copy() needs.
void stack_copy_sets(StackTable *t, const StackTable *from, uint32_t *moved);
Stack stack_copy(StackTable *t, const StackTable *from, Stack s, const uint32_t *moved);

// True if the next property may be this listed name, or any unlisted name.
bool frame_allows_name(const StackTable *t, const StackFrame *f, int name);
bool frame_allows_other(const StackTable *t, const StackFrame *f);
// True if an incomplete name can become a name that may come next. node: its trie node, or NONE;
// has_other: it can become an unlisted name of the object, if one is allowed.
bool frame_leads_to_name(const StackTable *t, const StackFrame *f, int node, bool has_other);
// True if the container may have one more property or item.
bool frame_has_more(const StackTable *t, const StackFrame *f);
// True if the container may close here.
bool frame_may_close(const StackTable *t, const StackFrame *f);
