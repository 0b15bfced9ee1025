// See stack.h.
// Order: frames and stacks, sets of stacks, used names, what may come next.
#include "constrain/stack.h"
#include "base/bits.h"

// Frames.

static size_t frame_size(const Grammar *g, FrameKind kind, int def) {
    size_t n_words =
        kind == FRAME_OBJECT ? size_div_up((size_t)g->defs[def].object.n_names, 64) : 0;
    return sizeof(StackFrame) + n_words * sizeof(uint64_t);
}

void stacks_init(StackTable *t, const Grammar *g) {
    size_t size = sizeof(StackFrame);
    for (int i = 0; i < g->n_defs; i++)
        if (g->defs[i].kind == DEF_OBJECT && frame_size(g, FRAME_OBJECT, i) > size)
            size = frame_size(g, FRAME_OBJECT, i);
    *t = (StackTable){.grammar = g, .draft = xalloc(1, size)};
    intern_add(&t->frames, t->draft, sizeof(StackFrame), NULL);
    intern_add(&t->sets, "", 0, NULL);
}

void stacks_free(StackTable *t) {
    intern_free(&t->frames);
    intern_free(&t->sets);
    free(t->draft);
    buffer_free(&t->set);
    buffer_free(&t->pushes);
}

// Copies a frame to the draft, which the caller changes and then interns.
static StackFrame *draft_copy(StackTable *t, const StackFrame *f) {
    return memcpy(t->draft, f, frame_size(t->grammar, f->kind, f->def));
}

// The draft on top of a set of stacks.
static Stack intern_draft(StackTable *t, uint32_t below) {
    size_t size = frame_size(t->grammar, t->draft->kind, t->draft->def);
    return (Stack){(uint32_t)intern_add(&t->frames, t->draft, size, NULL), below};
}

typedef struct {
    uint32_t frame;
    Stack below;
} StackPush;

Stack stack_push(StackTable *t, Stack s, FrameKind kind, int def, int state) {
    StackFrame *f = t->draft;
    memset(f, 0, frame_size(t->grammar, kind, def));
    f->kind = kind;
    f->def = def;
    f->state = state;
    f->depth = stack_top(t, s)->depth + (kind >= FRAME_OBJECT);
    if (kind == FRAME_OBJECT) f->missing = t->grammar->defs[def].object.n_required;

    Stack pushed = intern_draft(t, SET_OPEN);
    StackPush push = {pushed.frame, s};
    buffer_append(&t->pushes, &push, sizeof push);
    return pushed;
}

Stack stack_next_part(StackTable *t, Stack s) {
    draft_copy(t, stack_top(t, s))->state++;
    return intern_draft(t, s.below);
}

Stack stack_add_item(StackTable *t, Stack s, int value) {
    StackFrame *f = draft_copy(t, stack_top(t, s));
    const ArrayDef *a = &t->grammar->defs[f->def].array;
    uint32_t n_prefix = (uint32_t)a->n_prefix;
    f->count = count_up(f->count, a->min > n_prefix ? a->min : n_prefix, a->max);
    if (a->is_unique) f->state |= (int32_t)1 << value;
    return intern_draft(t, s.below);
}

Stack stack_add_property(StackTable *t, Stack s, int name) {
    StackFrame *f = draft_copy(t, stack_top(t, s));
    const ObjectDef *o = &t->grammar->defs[f->def].object;
    f->count = count_up(f->count, o->min, o->max);

    if (name != NONE) {
        f->seen[name / 64] |= (uint64_t)1 << (name & 63);
        f->missing -= o->properties[name].is_required;
    }

    if (o->is_ordered) f->position = name == NONE ? NO_LIMIT : o->properties[name].order + 1;

    return intern_draft(t, s.below);
}

// Sets.

const Stack *stack_set(const StackTable *t, uint32_t set, uint32_t *n) {
    *n = (uint32_t)(t->sets.len[set] / sizeof(Stack));
    return intern_key(&t->sets, (int)set);
}

static int compare_stacks(const void *a, const void *b) { return memcmp(a, b, sizeof(Stack)); }

// The number of the set under construction.
static uint32_t intern_set(StackTable *t) {
    size_t n = list_unique(t->set.data, t->set.len / sizeof(Stack), sizeof(Stack), compare_stacks);
    t->set.len = 0;
    return (uint32_t)intern_add(&t->sets, t->set.data, n * sizeof(Stack), NULL);
}

void stack_sort_pushes(StackTable *t) {
    size_t n = t->pushes.len / sizeof(StackPush);
    if (n > 1) qsort(t->pushes.data, n, sizeof(StackPush), compare_codes);
}

// Pushes do not depend on each other in a circle, because no rule calls itself before it has read a
// character. The first stack with a frame settles what the frame was pushed on.
void stack_settle(StackTable *t, Stack *s) {
    if (s->below != SET_OPEN) return;
    StackPush *pushes = (StackPush *)(void *)t->pushes.data;
    size_t n = t->pushes.len / sizeof *pushes;
    size_t first = list_lower_bound(pushes, n, sizeof *pushes, s->frame), end = first;

    for (; end < n && pushes[end].frame == s->frame; end++) stack_settle(t, &pushes[end].below);
    for (size_t i = first; i < end; i++)
        buffer_append(&t->set, &pushes[i].below, sizeof pushes[i].below);
    s->below = intern_set(t);
}

Stack stack_copy(StackTable *t, const StackTable *from, Stack s, const uint32_t *moved) {
    draft_copy(t, stack_top(from, s));
    return intern_draft(t, moved[s.below]);
}

void stack_copy_sets(StackTable *t, const StackTable *from, uint32_t *moved) {
    uint32_t n;

    // A set has a greater number than those below it.
    for (int set = from->sets.n; set-- > 0;) {
        const Stack *s = stack_set(from, (uint32_t)set, &n);
        for (uint32_t i = 0; moved[set] && i < n; i++) moved[s[i].below] = 1;
    }

    for (int set = 0; set < from->sets.n; set++) {
        if (!moved[set]) continue;
        const Stack *s = stack_set(from, (uint32_t)set, &n);
        for (uint32_t i = 0; i < n; i++) {
            Stack copy = stack_copy(t, from, s[i], moved);
            buffer_append(&t->set, &copy, sizeof copy);
        }
        moved[set] = intern_set(t);
    }
}

// Properties and items that may come next.

static bool is_seen(const StackFrame *f, int name) { return f->seen[name / 64] >> (name & 63) & 1; }

// True if the object may have one more property besides the missing required properties.
static bool has_room(const StackFrame *f, const ObjectDef *o) {
    return o->max == NO_LIMIT || f->count + 1 + f->missing <= o->max;
}

// True if a property may come next if properties must be in the schema's order: it is not too late,
// no required property is skipped, and enough properties for the minimum remain.
static bool fits_order(const Grammar *g, const StackFrame *f, const ObjectDef *o,
                       const PropertyDef *p) {
    uint32_t n_later = 0;
    if (p->order < f->position) return false;
    for (int i = 0; i < o->n_names; i++) {
        const PropertyDef *q = &o->properties[i];
        if (q->is_required && !is_seen(f, i) && q->order < p->order) return false;
        n_later += g->values[q->value].is_possible && q->order > p->order;
    }
    return o->other != NONE || f->count + 1 + n_later >= o->min;
}

bool frame_allows_name(const StackTable *t, const StackFrame *f, int name) {
    const Grammar *g = t->grammar;
    const ObjectDef *o = &g->defs[f->def].object;
    const PropertyDef *p = &o->properties[name];
    return g->values[p->value].is_possible && !is_seen(f, name) &&
           (p->is_required || has_room(f, o)) && (!o->is_ordered || fits_order(g, f, o, p));
}

bool frame_allows_other(const StackTable *t, const StackFrame *f) {
    const ObjectDef *o = &t->grammar->defs[f->def].object;
    return o->other != NONE && has_room(f, o) && (!o->is_ordered || f->missing == 0);
}

bool frame_leads_to_name(const StackTable *t, const StackFrame *f, int node, bool has_other) {
    static const TrieNode empty = {0};
    const TrieNode *listed = node == NONE ? &empty : &t->grammar->tries[node];
    for (int i = listed->lo; i < listed->hi; i++)
        if (frame_allows_name(t, f, i)) return true;
    return has_other && frame_allows_other(t, f);
}

bool frame_has_more(const StackTable *t, const StackFrame *f) {
    if (f->kind == FRAME_ARRAY) return f->count < t->grammar->defs[f->def].array.max;
    const ObjectDef *o = &t->grammar->defs[f->def].object;
    return frame_leads_to_name(t, f, o->trie, true);
}

bool frame_may_close(const StackTable *t, const StackFrame *f) {
    if (f->kind == FRAME_ARRAY) return f->count >= t->grammar->defs[f->def].array.min;
    return f->missing == 0 && f->count >= t->grammar->defs[f->def].object.min;
}
