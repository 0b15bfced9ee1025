#include "stack.h"

#include <stdlib.h>
#include <string.h>

// --- frames

static size_t frame_size(const Grammar *g, FrameKind kind, int def) {
    size_t n_words = kind == FRAME_OBJECT ? ((size_t)g->objects[def].n_names + 63) / 64 : 0;
    return sizeof(StackFrame) + n_words * sizeof(uint64_t);
}

void stacks_init(StackTable *t, const Grammar *g) {
    size_t size = sizeof(StackFrame);
    for (int i = 0; i < g->n_objects; i++)
        if (frame_size(g, FRAME_OBJECT, i) > size) size = frame_size(g, FRAME_OBJECT, i);
    *t = (StackTable){.grammar = g, .draft = xalloc(1, size)};
    intern_add(&t->frames, t->draft, sizeof(StackFrame), NULL);
}

void stacks_free(StackTable *t) {
    intern_free(&t->frames);
    free(t->draft);
}

// An empty frame on a stack; a copy of its top frame. To be changed and interned.
static StackFrame *draft_frame(StackTable *t, uint32_t stack, FrameKind kind, int def) {
    memset(t->draft, 0, frame_size(t->grammar, kind, def));
    t->draft->parent = stack, t->draft->kind = kind, t->draft->def = def;
    t->draft->depth = stack_top(t, stack)->depth;
    return t->draft;
}

static StackFrame *draft_copy(StackTable *t, const StackFrame *f) {
    return memcpy(t->draft, f, frame_size(t->grammar, f->kind, f->def));
}

static uint32_t intern_draft(StackTable *t) {
    size_t size = frame_size(t->grammar, t->draft->kind, t->draft->def);
    return (uint32_t)intern_add(&t->frames, t->draft, size, NULL);
}

uint32_t stack_push_rule(StackTable *t, uint32_t stack, int dfa, int state) {
    draft_frame(t, stack, FRAME_RULE, dfa)->state = state;
    return intern_draft(t);
}

uint32_t stack_push(StackTable *t, uint32_t stack, FrameKind kind, int def) {
    StackFrame *f = draft_frame(t, stack, kind, def);
    f->depth++;
    if (kind == FRAME_OBJECT) f->missing = t->grammar->objects[def].n_required;
    return intern_draft(t);
}

// Without a maximum, a count stops where it no longer matters, so that there are few frames.
static uint32_t count_up(uint32_t count, uint32_t min, uint32_t max) {
    return max == NO_LIMIT && count >= min ? min : count + 1;
}

uint32_t stack_next_item(StackTable *t, uint32_t stack) {
    StackFrame *f = draft_copy(t, stack_top(t, stack));
    const ArrayDef *a = &t->grammar->arrays[f->def];
    uint32_t n_prefix = (uint32_t)a->n_prefix;
    f->count = count_up(f->count, a->min > n_prefix ? a->min : n_prefix, a->max);
    return intern_draft(t);
}

uint32_t stack_add_property(StackTable *t, uint32_t stack, int name) {
    StackFrame *f = draft_copy(t, stack_top(t, stack));
    const ObjectDef *o = &t->grammar->objects[f->def];
    f->count = count_up(f->count, o->min, o->max);
    if (name != NONE) {
        f->seen[name / 64] |= (uint64_t)1 << (name & 63);
        f->missing -= o->properties[name].is_required;
    }
    if (t->grammar->is_ordered)
        f->position = name == NONE ? NO_LIMIT : o->properties[name].order + 1;
    return intern_draft(t);
}

uint32_t stack_copy(StackTable *t, const StackTable *from, uint32_t stack, uint32_t *moved) {
    uint32_t n = 0, *path = xrealloc(NULL, (size_t)from->frames.n, sizeof *path);
    for (uint32_t s = stack; s && !moved[s]; s = stack_top(from, s)->parent) path[n++] = s;
    while (n--) { // from the bottom up, as a frame refers to its parent
        StackFrame *f = draft_copy(t, stack_top(from, path[n]));
        f->parent = f->parent ? moved[f->parent] : 0;
        moved[path[n]] = intern_draft(t);
    }
    free(path);
    return stack ? moved[stack] : 0;
}

// --- which properties and items may come

static bool is_seen(const StackFrame *f, int name) { return f->seen[name / 64] >> (name & 63) & 1; }

// Whether one more property leaves room for the missing required ones.
static bool has_room(const StackFrame *f, const ObjectDef *o) {
    return o->max == NO_LIMIT || f->count + 1 + f->missing <= o->max;
}

// In the schema's order: no required property may be skipped, and enough must remain.
static bool fits_order(const StackFrame *f, const ObjectDef *o, const PropertyDef *p) {
    uint32_t n_later = 0;
    if (p->order < f->position) return false;
    for (int i = 0; i < o->n_names; i++) {
        const PropertyDef *q = &o->properties[i];
        if (q->is_required && !is_seen(f, i) && q->order < p->order) return false;
        n_later += q->is_possible && q->order > p->order;
    }
    return o->other != NONE || f->count + 1 + n_later >= o->min;
}

bool frame_allows_name(const StackTable *t, const StackFrame *f, int name) {
    const ObjectDef *o = &t->grammar->objects[f->def];
    const PropertyDef *p = &o->properties[name];
    return p->is_possible && !is_seen(f, name) && (p->is_required || has_room(f, o)) &&
           (!t->grammar->is_ordered || fits_order(f, o, p));
}

bool frame_allows_other(const StackTable *t, const StackFrame *f) {
    const ObjectDef *o = &t->grammar->objects[f->def];
    return o->other != NONE && has_room(f, o) && (!t->grammar->is_ordered || f->missing == 0);
}

bool frame_leads_to_name(const StackTable *t, const StackFrame *f, int node, int other) {
    if (node == NONE) return other > 0 && frame_allows_other(t, f);
    const TrieNode *n = &t->grammar->tries[node];
    for (int i = n->lo; i < n->hi; i++)
        if (frame_allows_name(t, f, i)) return true;
    return n->other_leads && frame_allows_other(t, f);
}

bool frame_has_more(const StackTable *t, const StackFrame *f) {
    if (f->kind == FRAME_ARRAY) {
        const ArrayDef *a = &t->grammar->arrays[f->def];
        return a->max == NO_LIMIT || f->count + 1 < a->max;
    }
    return frame_leads_to_name(t, f, t->grammar->objects[f->def].trie, 1);
}

bool frame_may_close(const StackTable *t, const StackFrame *f) {
    if (f->kind == FRAME_ARRAY) return f->count + 1 >= t->grammar->arrays[f->def].min;
    return f->missing == 0 && f->count >= t->grammar->objects[f->def].min;
}

int frame_item_value(const StackTable *t, const StackFrame *f) {
    const ArrayDef *a = &t->grammar->arrays[f->def];
    return f->count < (uint32_t)a->n_prefix ? a->prefix[f->count] : a->rest;
}
