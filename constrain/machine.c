// Contents, in this order: strings; DFAs with calls; sequences and tags; values; property names;
// objects and arrays with the white space of json.dumps; configurations; loops.
#include "constrain/machine.h"
#include "constrain/json_char.h"
#include "constrain/stack.h"

enum {
    CHUNK = 64 // rows per allocation; rows never move
};

// The states that machine.h draws.
typedef enum {
    AT_END,    // the text is complete
    AT_VALUE,  // before a value
    IN_TEXT,   // in a text of a DFA
    IN_STRING, // in a string that a DFA accepts
    IN_LISTED, // in one of a list of strings
    IN_NAME,   // in the name of a property
    AT_OPEN,   // after { or [
    AT_QUOTE,  // before the opening quote of a name
    AT_COLON,  // after a name
    AT_SPACE,  // after a colon
    AT_NEXT,   // after a comma
    AT_INDENT, // in the indentation of a line
    AT_AFTER,  // after a value in a container
    AT_CLOSE,  // before } or ], at the end of the indentation
    IN_TAG     // in a tag
} StateKind;

// The white space styles of json.dumps: compact separators, the default, and indent=2. A state has
// a bit for each style that agrees with the text so far.
enum { COMPACT = 1, SPACED = 2, INDENTED = 4 };

// A state of the automaton with its stack. States are compared and hashed by their bytes.
// Therefore, there is no padding, and bytes of the union that a kind does not use are 0. Code that
// changes to a kind with other union members starts from state_new().
typedef struct {
    Stack stack;
    uint16_t kind, style;
    uint32_t is_uncounted; // IN_STRING: characters are not counted (see machine_uncounted)
    uint32_t partial;      // an incomplete character (json_char.h)
    union {
        int32_t value; // AT_VALUE, AT_COLON, AT_SPACE: the value that follows
        struct {
            int32_t def, state; // DFA and its state
        } text;                 // IN_TEXT; IN_TAG: the tag, and the number of bytes read
        struct {
            int32_t def, state; // string, and the state of its DFA
            uint32_t count;     // characters so far
        } string;               // IN_STRING
        int32_t node;           // IN_LISTED: the node of the trie
        struct {
            int32_t node, other; // trie node or NONE; state of the DFA ObjectDef.other or 0
        } name;                  // IN_NAME
        struct {
            uint32_t n_spaces;   // spaces that remain
            int32_t next, value; // next kind: AT_VALUE (with a value), AT_QUOTE or AT_CLOSE
        } indent;                // AT_INDENT
    };
} State;
_Static_assert(sizeof(State) == 32, "State has padding");

struct Machine {
    const Grammar *grammar;
    StackTable stacks;
    InternTable configs; // sorted arrays of State; key 0: DEAD
    StepRow **rows;      // (configs.n / CHUNK + 1) chunks of CHUNK rows
    InternTable out;     // State: those of the step in progress
    size_t limit;        // bytes of tables before a flush
};

static State state_new(StateKind kind, Stack stack, uint8_t style) {
    State s;
    memset(&s, 0, sizeof s);
    s.kind = (uint16_t)kind;
    s.stack = stack;
    s.style = style;
    return s;
}

// Adds a state to the step in progress.
static void put(Machine *m, State s) { intern_add(&m->out, &s, sizeof s, NULL); }

static const StackFrame *top(const Machine *m, const State *s) {
    return stack_top(&m->stacks, s->stack);
}

// Characters.

// True if a character of the range leads from a state of a DFA to another one. In a string (NULL:
// none), from which a text of the string can be completed after `count` characters.
static bool has_dfa_step(const Dfa *d, int state, CodeRange r, const StringDef *s, uint32_t count) {
    for (int i = dfa_interval(d, r.lo); i < d->n_bounds && d->bounds[i] <= r.hi; i++) {
        int next = d->next[state * d->n_classes + d->class_of[i]];
        if (s ? string_is_live(s, next, count) : next > 0) return true;
    }
    return false;
}

// True if a character of the range can continue a name, listed or not.
static bool name_has_step(const Machine *m, const State *s, CodeRange r) {
    const Grammar *g = m->grammar;
    const StackFrame *f = top(m, s);
    const int node = s->name.node, other = s->name.other;

    if (node != NONE) {
        int end = trie_lower_bound(g, node, r.hi + 1);
        for (int k = trie_lower_bound(g, node, r.lo); k < end; k++)
            if (frame_leads_to_name(&m->stacks, f, k, false)) return true;
    }

    return other && frame_allows_other(&m->stacks, f) &&
           has_dfa_step(&g->defs[g->defs[f->def].object.other].dfa, other, r, NULL, 0);
}

// True if a character of the range can come next.
static bool has_step(const Machine *m, const State *s, CodeRange r) {
    const Grammar *g = m->grammar;
    const StringDef *d;
    switch (s->kind) {
    case IN_TEXT: return has_dfa_step(&g->defs[s->text.def].dfa, s->text.state, r, NULL, 0);
    case IN_STRING:
        d = &g->defs[s->string.def].string;
        return has_dfa_step(&g->defs[d->dfa].dfa, s->string.state, r, d, s->string.count + 1);
    case IN_LISTED:
        return trie_lower_bound(g, s->node, r.lo) < trie_lower_bound(g, s->node, r.hi + 1);
    default: return name_has_step(m, s, r);
    }
}

// Reads a byte. True if it completes a character, *code. If the character is still incomplete, adds
// the state, provided that some completion can come next.
static bool read_char(Machine *m, State *s, int b, uint32_t *code) {
    CodeRange r[CHAR_MAX_RANGES];
    s->partial = s->kind == IN_TEXT ? char_step_utf8(s->partial, b, code)
                                    : char_step_json(s->partial, b, code);
    int n = s->partial && s->partial != CHAR_INVALID ? char_ranges(s->partial, r) : 0;
    while (n > 0 && !has_step(m, s, r[n - 1])) n--;
    if (n > 0) put(m, *s);
    return !s->partial;
}

// Strings.

static void end_value(Machine *m, State s);

static void step_string(Machine *m, State s, int b) {
    const StringDef *d = &m->grammar->defs[s.string.def].string;
    const Dfa *dfa = &m->grammar->defs[d->dfa].dfa;
    uint32_t code = 0;

    if (b == '"' && !s.partial) {
        bool is_long_enough = s.string.count >= d->min && s.string.count <= d->max;
        if (dfa->accept[s.string.state] && is_long_enough) end_value(m, s);
    } else if (read_char(m, &s, b, &code)) {
        s.string.state = dfa_next(dfa, s.string.state, code);
        if (!s.is_uncounted) s.string.count = count_up(s.string.count, d->limit, d->max);
        if (string_is_live(d, s.string.state, s.string.count)) put(m, s);
    }
}

static void step_listed(Machine *m, State s, int b) {
    const Grammar *g = m->grammar;
    uint32_t code = 0;

    if (b == '"' && !s.partial) {
        if (g->tries[s.node].label != NONE) end_value(m, s);
    } else if (read_char(m, &s, b, &code)) {
        s.node = trie_child(g, s.node, code);
        if (s.node > 0) put(m, s);
    }
}

// DFAs with calls.

static bool is_tail(const Dfa *d, int state) {
    if (!d->accept[state] || d->call_begin[state] < d->call_begin[state + 1]) return false;
    for (int c = 0; c < d->n_classes; c++)
        if (d->next[state * d->n_classes + c]) return false;
    return true;
}

static State text_new(Stack stack, uint8_t style, int def, int state) {
    State s = state_new(IN_TEXT, stack, style);
    s.text.def = def;
    s.text.state = state;
    return s;
}

// Adds the start states of the rules that a state may call and, if its own rule may end here, the
// states that follow. If a rule could only end after a call, the call pushes no frame (a tail
// call), so that right recursion does not make the stack grow.
static void follow_text(Machine *m, State s) {
    const int def = s.text.def, state = s.text.state;
    const Dfa *d = &m->grammar->defs[def].dfa;

    // Call rules. The frame says where the caller continues; a tail call pushes none. Callers with
    // the same frame share a stack. This is exact, because they call the same rule: each call in a
    // grammar leads to an NFA state of its own. Only calls that can all be skipped, as in (a? b?)*,
    // lead to the same DFA state, and every caller of one of them calls the others, too.
    for (int k = d->call_begin[state]; k < d->call_begin[state + 1]; k++) {
        DfaCall call = d->calls[k];
        if (!call.to) continue;

        Stack stack = is_tail(d, call.to)
                          ? s.stack
                          : stack_push(&m->stacks, s.stack, FRAME_RULE, def, call.to);
        put(m, text_new(stack, s.style, def, d->starts[call.rule]));
    }

    if (d->accept[state]) end_value(m, s);
}

static void step_text(Machine *m, State s, int b) {
    const Dfa *d = &m->grammar->defs[s.text.def].dfa;
    uint32_t code = 0;
    if (!read_char(m, &s, b, &code)) return;
    s.text.state = dfa_next(d, s.text.state, code);
    if (s.text.state) put(m, s);
}

// Sequences and tags.

static State part_new(Stack stack, int value) {
    State s = state_new(AT_VALUE, stack, COMPACT | SPACED | INDENTED);
    s.value = value;
    return s;
}

// Adds the states before the alternatives of a value that are sequences or tags.
static void follow_value(Machine *m, State s) {
    const ValueDef *v = &m->grammar->values[s.value];
    for (int i = 0; i < v->n_alts; i++) {
        const Def *alt = &m->grammar->defs[v->alts[i]];
        if (alt->kind == DEF_SEQUENCE) {
            Stack stack = stack_push(&m->stacks, s.stack, FRAME_SEQUENCE, v->alts[i], 1);
            put(m, part_new(stack, alt->sequence.parts[0]));
        } else if (alt->kind == DEF_TAG) {
            State tag = text_new(s.stack, s.style, v->alts[i], 0);
            tag.kind = IN_TAG;
            put(m, tag);
        }
    }
}

// Adds the states after a part of a sequence. The last part needs no frame.
static void end_part(Machine *m, State s, const StackFrame *f) {
    const SequenceDef *sequence = &m->grammar->defs[f->def].sequence;
    int next = sequence->parts[f->state];
    uint32_t n;

    if (f->state + 1 < sequence->n) {
        put(m, part_new(stack_next_part(&m->stacks, s.stack), next));
        return;
    }
    const Stack *below = stack_set(&m->stacks, s.stack.below, &n);
    for (uint32_t i = 0; i < n; i++) put(m, part_new(below[i], next));
}

static void step_tag(Machine *m, State s, int b) {
    Str tag = m->grammar->defs[s.text.def].tag;
    if ((unsigned char)tag.data[s.text.state++] != b) return;
    if ((size_t)s.text.state < tag.len)
        put(m, s);
    else
        end_value(m, s);
}

// Values.

// Adds the state after a value, or those after the end of a rule's text or of a part.
static void end_value(Machine *m, State s) {
    const StackFrame *f = top(m, &s);
    uint32_t n;

    if (f->kind == FRAME_ROOT) {
        put(m, state_new(AT_END, (Stack){0}, 0));
    } else if (f->kind == FRAME_SEQUENCE) {
        end_part(m, s, f);
    } else if (f->kind != FRAME_RULE) {
        put(m, state_new(AT_AFTER, s.stack, s.style));
    } else if (s.stack.below != SET_OPEN) { // the caller's DFA passes a rule that has read nothing
        const Stack *below = stack_set(&m->stacks, s.stack.below, &n);
        for (uint32_t i = 0; i < n; i++) put(m, text_new(below[i], s.style, f->def, f->state));
    }
}

// Adds the state after the opening quote of a string.
static void begin_string(Machine *m, State s, int alternative) {
    const StringDef *d = &m->grammar->defs[alternative].string;

    State string = state_new(d->trie != NONE ? IN_LISTED : IN_STRING, s.stack, s.style);

    if (d->trie != NONE) {
        string.node = d->trie;
    } else {
        string.string.def = alternative;
        string.string.state = m->grammar->defs[d->dfa].dfa.start;
    }
    put(m, string);
}

static void open_container(Machine *m, State s, FrameKind kind, int alternative) {
    Stack stack = stack_push(&m->stacks, s.stack, kind, alternative, 0);
    put(m, state_new(AT_OPEN, stack, s.style));
}

// Reads the first byte of one of the alternatives of a value.
static void step_alternative(Machine *m, State s, int alternative, int b) {
    const Grammar *g = m->grammar;
    const Def *alt = &g->defs[alternative];

    if (alt->kind == DEF_TEXT)
        step_text(m, text_new(s.stack, s.style, alternative, alt->dfa.start), b);
    if (alt->kind == DEF_STRING && b == '"') begin_string(m, s, alternative);
    if (alt->kind == DEF_OBJECT && b == '{') open_container(m, s, FRAME_OBJECT, alternative);
    if (alt->kind == DEF_ARRAY && b == '[') open_container(m, s, FRAME_ARRAY, alternative);
}

static void step_value(Machine *m, State s, int b) {
    const ValueDef *v = &m->grammar->values[s.value];
    for (int i = 0; i < v->n_alts; i++) step_alternative(m, s, v->alts[i], b);
}

// Names of properties.
//
// A name is matched against the trie of listed names (State.name.node) and the DFA of other names
// (.other) in parallel, until no listed name begins with its characters. At the closing quote, the
// name is listed if the trie node ends a listed name. Otherwise the DFA must accept it.

static void put_name(Machine *m, State s) {
    if (frame_leads_to_name(&m->stacks, top(m, &s), s.name.node, s.name.other)) put(m, s);
}

static void begin_name(Machine *m, State s) {
    const StackFrame *f = top(m, &s);
    const ObjectDef *o = &m->grammar->defs[f->def].object;
    State name = state_new(IN_NAME, s.stack, s.style);

    name.name.node = o->trie;
    name.name.other = o->other != NONE ? m->grammar->defs[o->other].dfa.start : 0;
    put_name(m, name);
}

static void end_name(Machine *m, State s) {
    const StackFrame *f = top(m, &s);
    const ObjectDef *o = &m->grammar->defs[f->def].object;
    int listed = s.name.node != NONE ? m->grammar->tries[s.name.node].label : NONE;
    int value;

    if (listed != NONE) {
        if (!frame_allows_name(&m->stacks, f, listed)) return;
        value = o->properties[listed].value;
    } else {
        int label = s.name.other ? m->grammar->defs[o->other].dfa.accept[s.name.other] : 0;
        if (!label || !frame_allows_other(&m->stacks, f)) return;
        value = o->other_values[label - 1];
    }

    State colon = state_new(AT_COLON, stack_add_property(&m->stacks, s.stack, listed), s.style);
    colon.value = value;
    put(m, colon);
}

static void step_name(Machine *m, State s, int b) {
    const StackFrame *f = top(m, &s);
    const ObjectDef *o = &m->grammar->defs[f->def].object;
    uint32_t code = 0;

    if (b == '"' && !s.partial) {
        end_name(m, s);
    } else if (read_char(m, &s, b, &code)) {
        const Grammar *g = m->grammar;
        if (s.name.node != NONE) s.name.node = trie_child(g, s.name.node, code);
        if (s.name.other) s.name.other = dfa_next(&g->defs[o->other].dfa, s.name.other, code);
        put_name(m, s);
    }
}

// Objects and arrays.
//
// White space follows one of three styles. A state has all styles that agree with the text so far.
// Where the styles differ, the text selects among them:
//
//                 COMPACT    SPACED     INDENTED
//     after { [   nothing    nothing    line break and indentation, except in {} and []
//     after ,     nothing    space      line break and indentation
//     after :     nothing    space      space
//     before } ]  nothing    nothing    line break and indentation, except in {} and []

static char closing_of(const StackFrame *f) { return f->kind == FRAME_OBJECT ? '}' : ']'; }

// The state before item `value` (a number in ArrayDef.items) of an array.
static State before_item(Machine *m, State s, int value) {
    s.kind = AT_VALUE;
    s.value = m->grammar->defs[top(m, &s)->def].array.items[value];
    s.stack = stack_add_item(&m->stacks, s.stack, value);
    return s;
}

// Adds a state in an indentation or, if no space of it remains, the next state.
static void put_indent(Machine *m, State s) {
    if (s.indent.n_spaces == 0) {
        State next = state_new((StateKind)s.indent.next, s.stack, s.style);
        next.value = s.indent.value;
        s = next;
    }
    put(m, s);
}

// Adds a state that reads the indentation of a new line and continues with state s.
static void put_indented(Machine *m, State s) {
    State indent = state_new(AT_INDENT, s.stack, INDENTED);
    indent.indent.n_spaces = 2 * (top(m, &s)->depth - (s.kind == AT_CLOSE));
    indent.indent.next = s.kind;
    indent.indent.value = s.kind == AT_VALUE ? s.value : 0;
    put_indent(m, indent);
}

// Reads a byte after {, [, a comma or a colon, that is in state s. `item` is the state before the
// next item, name or value.
static void step_before(Machine *m, State s, State item, int b) {
    static const struct {
        uint8_t none, space, line; // styles that write no white space, a space, a line break
    } after[] = {
        [AT_OPEN] = {COMPACT | SPACED, 0, INDENTED},
        [AT_NEXT] = {COMPACT, SPACED, INDENTED},
        [AT_SPACE] = {COMPACT, SPACED | INDENTED, 0},
    };

    if (b == ' ' || b == '\n') {
        item.style &= b == ' ' ? after[s.kind].space : after[s.kind].line;
        if (item.style && b == ' ') put(m, item);
        if (item.style && b == '\n') put_indented(m, item);
        return;
    }

    item.style &= after[s.kind].none;
    if (item.style && item.kind == AT_VALUE) step_value(m, item, b);
    if (item.style && item.kind == AT_QUOTE && b == '"') begin_name(m, item);
}

static void step_item(Machine *m, State s, int b) {
    const StackFrame *f = top(m, &s);
    const ArrayDef *a = &m->grammar->defs[f->def].array;
    State item = s;

    if (s.kind == AT_SPACE) {
        item.kind = AT_VALUE; // with the same value
        step_before(m, s, item, b);
    } else if (f->kind == FRAME_OBJECT) {
        item.kind = AT_QUOTE;
        step_before(m, s, item, b);
    } else if (!a->is_unique) {
        bool is_first = f->count < (uint32_t)a->n_prefix;
        step_before(m, s, before_item(m, s, is_first ? (int)f->count : a->n_prefix), b);
    } else {
        int32_t seen = f->state;
        for (int i = 0; i < a->n_prefix; i++)
            if (!(seen >> i & 1)) step_before(m, s, before_item(m, s, i), b);
    }
}

static void close_container(Machine *m, State s) {
    uint32_t n;
    const Stack *below = stack_set(&m->stacks, s.stack.below, &n);
    for (uint32_t i = 0; i < n; i++) {
        s.stack = below[i];
        end_value(m, s);
    }
}

static void step_open(Machine *m, State s, int b) {
    const StackFrame *f = top(m, &s);
    if (b == closing_of(f)) {
        if (frame_may_close(&m->stacks, f)) close_container(m, s);
    } else if (frame_has_more(&m->stacks, f)) {
        step_item(m, s, b);
    }
}

static void step_after(Machine *m, State s, int b) {
    const StackFrame *f = top(m, &s);
    if (b == ',') {
        s.kind = AT_NEXT;
        if (frame_has_more(&m->stacks, f)) put(m, s);
    } else if (frame_may_close(&m->stacks, f)) {
        State close = s;
        close.kind = AT_CLOSE;
        if (b == '\n' && s.style & INDENTED) put_indented(m, close);
        s.style &= COMPACT | SPACED;
        if (b == closing_of(f) && s.style) close_container(m, s);
    }
}

static void step_state(Machine *m, State s, int b) {
    switch ((StateKind)s.kind) {
    case AT_END: break;

    case AT_VALUE: step_value(m, s, b); break;
    case IN_TEXT: step_text(m, s, b); break;
    case IN_STRING: step_string(m, s, b); break;
    case IN_LISTED: step_listed(m, s, b); break;
    case AT_OPEN: step_open(m, s, b); break;
    case IN_NAME: step_name(m, s, b); break;
    case AT_SPACE:
    case AT_NEXT: step_item(m, s, b); break;
    case AT_AFTER: step_after(m, s, b); break;
    case IN_TAG: step_tag(m, s, b); break;

    // Expected characters.
    case AT_QUOTE:
        if (b == '"') begin_name(m, s);
        break;
    case AT_COLON:
        s.kind = AT_SPACE; // with the same value
        if (b == ':') put(m, s);
        break;
    case AT_INDENT:
        s.indent.n_spaces--;
        if (b == ' ') put_indent(m, s);
        break;
    case AT_CLOSE:
        if (b == closing_of(top(m, &s))) close_container(m, s);
        break;
    }
}

// Configurations.

static const State *config_states(const Machine *m, uint32_t config, uint32_t *n) {
    *n = (uint32_t)(m->configs.len[config] / sizeof(State));
    return intern_key(&m->configs, (int)config);
}

static int compare_states(const void *a, const void *b) { return memcmp(a, b, sizeof(State)); }

StepRow *machine_row(const Machine *m, uint32_t config) {
    return m->rows[config / CHUNK] + config % CHUNK;
}

// Marks the ASCII characters of a range with which a state has a step. Ranges are bisected, because
// most states have one or two such characters.
static void mark_ascii(const Machine *m, const State *s, CodeRange r, uint32_t *next) {
    uint32_t middle = (r.lo + r.hi) / 2;
    if (!has_step(m, s, r)) return;
    if (r.lo == r.hi) {
        next[r.lo] = UINT32_MAX;
    } else {
        mark_ascii(m, s, (CodeRange){r.lo, middle}, next);
        mark_ascii(m, s, (CodeRange){middle + 1, r.hi}, next);
    }
}

// Marks all bytes with which a state has a step, and maybe others, as not yet computed.
static void mark_steps(const Machine *m, const State *s, uint32_t *next) {
    if (s->kind < IN_TEXT || s->kind > IN_NAME || s->partial) {
        memset(next, 0xff, 256 * sizeof *next);
        return;
    }

    next['"'] = next['\\'] = UINT32_MAX;
    mark_ascii(m, s, (CodeRange){0, 0x7f}, next);
    if (has_step(m, s, (CodeRange){0x80, CODE_MAX})) memset(next + 0x80, 0xff, 0x80 * sizeof *next);
}

// Returns the number of the configuration whose states have been put.
static uint32_t intern_config(Machine *m) {
    State *out = (State *)(void *)m->out.arena; // the keys are an array: all have the same size
    size_t n = list_unique(out, (size_t)m->out.n, sizeof *out, compare_states);
    intern_clear(&m->out);

    bool is_new;
    uint32_t config = (uint32_t)intern_add(&m->configs, out, n * sizeof *out, &is_new);
    if (!is_new) return config;
    if (config % CHUNK == 0) {
        m->rows = list_grow(m->rows, (int)config / CHUNK, sizeof *m->rows);
        m->rows[config / CHUNK] = xrealloc(NULL, CHUNK, sizeof(StepRow));
    }

    // A step from many states takes time, even if it leads to DEAD. Most bytes are ruled out here.
    enum { MANY_STATES = 16 };
    StepRow *row = machine_row(m, config);
    uint32_t n_below;
    memset(row->next, n < MANY_STATES ? 0xff : 0, sizeof row->next);
    row->step_cost = (uint32_t)n;
    for (size_t i = 0; i < n; i++) {
        stack_set(&m->stacks, out[i].stack.below, &n_below);
        row->step_cost += n_below;
        if (n >= MANY_STATES) mark_steps(m, &out[i], row->next);
    }
    return config;
}

// Ends a step: adds the states that follow without a byte, and completes the stacks.
static uint32_t end_step(Machine *m) {
    for (int i = 0; i < m->out.n; i++) {
        State s = *(const State *)intern_key(&m->out, i);
        if (s.kind == IN_TEXT && !s.partial) follow_text(m, s);
        if (s.kind == AT_VALUE) follow_value(m, s);
    }

    State *out = (State *)(void *)m->out.arena;
    stack_sort_pushes(&m->stacks);
    for (int i = 0; i < m->out.n; i++) stack_settle(&m->stacks, &out[i].stack);
    m->stacks.pushes.len = 0;
    return intern_config(m);
}

uint32_t machine_step_slow(Machine *m, uint32_t config, int byte) {
    uint32_t n;
    const State *states = config_states(m, config, &n); // valid until a configuration is added
    for (uint32_t i = 0; i < n; i++) step_state(m, states[i], byte);
    uint32_t next = m->out.n ? end_step(m) : DEAD;
    return machine_row(m, config)->next[byte] = next;
}

int machine_count_next(Machine *m, uint32_t config, int *byte) {
    int n = 0;
    for (int b = 0; b < 256 && n < 2; b++)
        if (machine_step(m, config, b) != DEAD) {
            n++;
            *byte = b;
        }
    return n;
}

bool machine_is_end(const Machine *m, uint32_t config) {
    uint32_t n;
    const State *s = config_states(m, config, &n); // AT_END comes first: all its bytes are 0
    return n && s->kind == AT_END;
}

Str machine_tag(Machine *m, uint32_t config) {
    uint32_t n;
    Str rest = {0};
    const State *states = config_states(m, config, &n);
    for (uint32_t i = 0; i < n; i++) {
        if (states[i].kind != IN_TAG) continue;
        Str tag = m->grammar->defs[states[i].text.def].tag;
        size_t at = (size_t)states[i].text.state;
        rest = (Str){tag.data + at, tag.len - at};
    }

    // Each of its bytes is the only one that fits.
    for (size_t i = 0; i < rest.len; i++) {
        int byte;
        if (machine_count_next(m, config, &byte) != 1) return (Str){0};
        config = machine_step(m, config, byte);
    }
    return rest;
}

bool machine_is_partial(const Machine *m, uint32_t config) {
    uint32_t n;
    const State *s = config_states(m, config, &n);
    return n && s->partial;
}

Machine *machine_new(const Grammar *g) {
    Machine *m = xalloc(1, sizeof *m);
    *m = (Machine){.grammar = g};
    stacks_init(&m->stacks, g);
    *machine_row(m, intern_config(m)) = (StepRow){0}; // DEAD leads to itself
    return m;
}

void machine_free(Machine *m) {
    for (int i = 0; i < m->configs.n; i += CHUNK) free(m->rows[i / CHUNK]);
    stacks_free(&m->stacks);
    intern_free(&m->configs);
    intern_free(&m->out);
    free(m->rows);
    free(m);
}

uint32_t machine_start(Machine *m) {
    const ValueDef *root = &m->grammar->values[m->grammar->root];
    State s = part_new((Stack){0}, m->grammar->root);
    put(m, s);

    // A text may be empty or begin with a call.
    for (int i = 0; i < root->n_alts; i++) {
        const Def *alt = &m->grammar->defs[root->alts[i]];
        if (alt->kind == DEF_TEXT)
            put(m, text_new(s.stack, s.style, root->alts[i], alt->dfa.start));
    }

    return end_step(m);
}

static size_t table_bytes(const Machine *m) {
    return (size_t)m->configs.n * sizeof(StepRow) + m->configs.begin[m->configs.n] +
           m->stacks.frames.begin[m->stacks.frames.n] + m->stacks.sets.begin[m->stacks.sets.n];
}

void machine_set_limit(Machine *m, size_t bytes) { m->limit = bytes; }
bool machine_is_full(const Machine *m) { return table_bytes(m) > m->limit; }

void machine_flush(Machine *m, uint32_t *const *keep, int n) {
    Machine *fresh = machine_new(m->grammar);
    uint32_t *moved = xalloc((size_t)m->stacks.sets.n, sizeof *moved);
    uint32_t n_states;

    // The sets of stacks of the configurations to keep.
    for (int i = 0; i < n; i++) {
        const State *states = config_states(m, *keep[i], &n_states);
        for (uint32_t k = 0; k < n_states; k++) moved[states[k].stack.below] = 1;
    }
    stack_copy_sets(&fresh->stacks, &m->stacks, moved);

    // The configurations.
    for (int i = 0; i < n; i++) {
        const State *states = config_states(m, *keep[i], &n_states);
        for (uint32_t k = 0; k < n_states; k++) {
            State s = states[k];
            s.stack = stack_copy(&fresh->stacks, &m->stacks, s.stack, moved);
            put(fresh, s);
        }
        *keep[i] = intern_config(fresh);
    }
    free(moved);

    // The limit is at least twice the kept size. Otherwise each step would flush again.
    size_t kept = table_bytes(fresh);
    fresh->limit = m->limit > 2 * kept ? m->limit : 2 * kept;

    // Swap the contents, because callers keep the address of the machine.
    Machine old = *m;
    *m = *fresh;
    *fresh = old;
    machine_free(fresh);
}

// Loops.

uint64_t byte_group(int byte) {
    static const char ranges[] = "09afgzAFGZ"; // first and last byte of groups 0 to 4
    static const unsigned char leads[] = {0xc2, 0xc4, 0xd0, 0xe0, 0xe2, 0xe3, 0xea, 0xf0};
    static const char punctuation[] = " !#$%&'()*+,-./:;<=>?@[]^_`{|}~\x7f"; // groups 13 to 44
    if (byte < 0x20 || byte == '"' || byte == '\\' || (byte >= 0x80 && byte < 0xc2)) return 0;
    for (int i = 0; ranges[i]; i += 2)
        if (byte >= ranges[i] && byte <= ranges[i + 1]) return (uint64_t)1 << i / 2;
    for (int i = 8; i-- > 0;)
        if (byte >= leads[i]) return (uint64_t)1 << (5 + i);
    return (uint64_t)1 << (13 + (strchr(punctuation, byte) - punctuation));
}

// The groups of the first bytes of characters that do not lead from a state to itself.
static uint64_t leaving_groups(const Dfa *d, int state) {
    uint64_t groups = 0;
    for (int i = 0; i < d->n_bounds; i++) {
        if (d->next[state * d->n_classes + d->class_of[i]] == state) continue;
        uint32_t lo = d->bounds[i] > 0x20 ? d->bounds[i] : 0x20,
                 hi = i + 1 < d->n_bounds ? d->bounds[i + 1] - 1 : CODE_MAX;
        if (lo >= 0xd800 && hi <= 0xdfff) continue;
        for (uint32_t c = lo; c <= hi && c < 0x80; c++) groups |= byte_group((int)c);
        char first[4], last[4];
        if (hi < 0x80) continue;
        utf8_encode(lo < 0x80 ? 0x80 : lo, first);
        utf8_encode(hi, last);
        for (int b = (unsigned char)first[0]; b <= (unsigned char)last[0]; b++)
            groups |= byte_group(b);
    }

    return groups;
}

static bool state_is_loop(const Machine *m, const State *s, uint64_t *others) {
    if (s->partial) return false;
    if (s->kind == IN_STRING) {
        const StringDef *d = &m->grammar->defs[s->string.def].string;
        bool counts = d->max != NO_LIMIT || s->string.count < d->limit;
        if (counts && !s->is_uncounted) return false;
        *others |= leaving_groups(&m->grammar->defs[d->dfa].dfa, s->string.state);
        return true;
    }

    if (s->kind != IN_NAME || s->name.node != NONE) return false;
    int other = m->grammar->defs[top(m, s)->def].object.other;
    *others |= leaving_groups(&m->grammar->defs[other].dfa, s->name.other);
    return true;
}

// True if letters lead the loop to itself. Otherwise the shortcut is wrong for most tokens and
// saves no time.
static bool letters_stay(uint64_t others) {
    return !(others & (byte_group('a') | byte_group('z')));
}

bool machine_is_loop(const Machine *m, uint32_t config, uint64_t *others) {
    uint32_t n;
    const State *states = config_states(m, config, &n);
    *others = 0;
    for (uint32_t i = 0; i < n; i++)
        if (!state_is_loop(m, &states[i], others)) return false;
    return n > 0 && letters_stay(*others);
}

bool machine_is_counted(const Machine *m, uint32_t config, uint32_t *min, uint32_t *max,
                        uint64_t *others) {
    uint32_t n;
    const State *s = config_states(m, config, &n);
    if (n != 1 || s->kind != IN_STRING || s->partial || s->is_uncounted) return false;

    const StringDef *d = &m->grammar->defs[s->string.def].string;
    const uint32_t count = s->string.count;
    if (d->live) return false;
    *others = leaving_groups(&m->grammar->defs[d->dfa].dfa, s->string.state);
    *min = d->min > count ? d->min - count : 0;
    *max = d->max == NO_LIMIT ? NO_LIMIT : d->max - count;
    return letters_stay(*others);
}

uint32_t machine_uncounted(Machine *m, uint32_t config) {
    State s = *(const State *)intern_key(&m->configs, (int)config);
    s.is_uncounted = 1;
    s.string.count = 0;
    put(m, s);
    return intern_config(m);
}

uint32_t machine_skip(Machine *m, uint32_t config, uint32_t n) {
    State s = *(const State *)intern_key(&m->configs, (int)config);
    const StringDef *d = &m->grammar->defs[s.string.def].string;
    uint32_t count = s.string.count + n;
    s.string.count = d->max == NO_LIMIT && count > d->limit ? d->limit : count;
    put(m, s);
    return intern_config(m);
}
