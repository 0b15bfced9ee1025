// Stacks of the machine. A stack has one frame for each object and array that is open at the
// current place of the text, and one for each grammar rule that continues when the current rule
// ends.
//
// A stack is represented by the number of its top frame, which refers to its parent frame. Equal
// frames are stored once. Stacks therefore share their lower frames, and two stacks are equal if
// and only if their numbers are.
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
// node. The name may continue if one of them is allowed, or if some unlisted name is.
//
// Unlisted names cannot be repeated either. A frame has a linked list of those used so far. A list
// is represented by the number of its last entry; an entry has the number of the entry before it,
// and a name. The machine does not store the name that it reads, only a used name with the same
// first characters. The caller therefore adds complete names to the list (machine_use_names).
#pragma once

#include "grammar.h"

typedef enum { FRAME_ROOT, FRAME_RULE, FRAME_OBJECT, FRAME_ARRAY } FrameKind;

typedef struct {
    uint32_t parent;
    FrameKind kind;
    int32_t def;       // RULE: index of the DFA; OBJECT, ARRAY: index of the definition
    int32_t state;     // RULE: state of the DFA after the call
    uint32_t count;    // properties or items so far, including the current one
    uint32_t depth;    // open containers up to and including this one
    uint32_t missing;  // required properties that are missing
    uint32_t position; // ordered properties: least PropertyDef.order that may still come
    uint32_t used;     // OBJECT: list of the unlisted names so far, or 0
    uint32_t n_used;   // OBJECT: unlisted names so far, if their number is limited
    uint64_t seen[];   // OBJECT: (n_names) bits
} StackFrame;

typedef struct {
    const Grammar *grammar;
    InternTable frames; // key 0: the root
    InternTable used;   // entries of lists; key 0: the empty list
    StackFrame *draft;  // a frame under construction; large enough for any
} StackTable;

void stacks_init(StackTable *t, const Grammar *g);
void stacks_free(StackTable *t);
static inline const StackFrame *stack_top(const StackTable *t, uint32_t stack) {
    return intern_key(&t->frames, (int)stack);
}

// Each returns the number of a new stack.
// Pushes a frame. `state` is the rule's state after the call, or 0 for an object or array.
uint32_t stack_push(StackTable *t, uint32_t stack, FrameKind kind, int def, int state);
// Counts one more item in the top frame, an array.
uint32_t stack_add_item(StackTable *t, uint32_t stack);
// Adds a property to the top frame, an object. name NONE: an unlisted name.
uint32_t stack_add_property(StackTable *t, uint32_t stack, int name);
// Sets the list of unlisted names of the top frame.
uint32_t stack_set_used(StackTable *t, uint32_t stack, uint32_t used);
uint32_t used_add(StackTable *t, uint32_t list, Str name); // returns a list with one more name
// The last entry, at or before `list`, whose name begins with the texts a and b or, if is_whole, is
// equal to them. 0 if there is none.
uint32_t used_find(const StackTable *t, uint32_t list, Str a, Str b, bool is_whole);
// The first n bytes of the name of an entry.
Str used_prefix(const StackTable *t, uint32_t list, uint32_t n);
uint32_t used_copy(StackTable *t, const StackTable *from, uint32_t list);
// Copies a stack from another table. moved[stack]: number of the stack's copy; 0: none yet.
uint32_t stack_copy(StackTable *t, const StackTable *from, uint32_t stack, uint32_t *moved);

// True if the next property may be this listed name, or any unlisted name.
bool frame_allows_name(const StackTable *t, const StackFrame *f, int name);
bool frame_allows_other(const StackTable *t, const StackFrame *f);
// True if an incomplete name can become a name that may come next. node: its trie node, or NONE;
// other: its state of ObjectDef.other; used, n: the last used name with the same first n bytes, 0
// if there is none, or USED_ALL before a name.
#define USED_ALL UINT32_MAX
bool frame_leads_to_name(const StackTable *t, const StackFrame *f, int node, int other,
                         uint32_t used, uint32_t n);
// True if the container may have one more property or item.
bool frame_has_more(const StackTable *t, const StackFrame *f);
// True if the container may close here.
bool frame_may_close(const StackTable *t, const StackFrame *f);
