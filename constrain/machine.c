// Contents, in this order: strings; DFAs with calls; values; property names; objects and arrays
// with the white space of json.dumps; configurations; loops.
#include "machine.h"
#include "json_char.h"
#include "stack.h"

enum {
    MAX_STATES = 2048,        // in a configuration; further ones are dropped (machine_is_exact)
    ROW_BYTES = 1024,         // steps of a configuration
    DEFAULT_LIMIT = 32 << 20, // bytes of tables
    CHUNK = 64                // rows that are allocated together, and never move
};

typedef enum {
    AT_END,    // the text is complete
    AT_VALUE,  // before value def
    IN_TEXT,   // in DFA def, state q
    IN_STRING, // in string def, after count characters; q: state of its DFA, or trie node
    AT_OPEN,   // after { or [
    AT_QUOTE,  // before the opening quote of a name
    IN_NAME,   // in a name; q: trie node or NONE, count: state of ObjectDef.other
    AT_COLON,  // after a name; def: value of the property
    AT_SPACE,  // after a colon; def: value of the property
    AT_NEXT,   // after a comma
    AT_INDENT, // before count more spaces; then state q: AT_VALUE (with def), AT_QUOTE or AT_CLOSE
    AT_AFTER,  // after a value in a container
    AT_CLOSE   // before } or ]
} StateKind;

// Styles of white space: json.dumps with compact separators, by default, and with indent=2. A state
// has a bit for each style that agrees with the text so far.
enum { COMPACT = 1, SPACED = 2, INDENTED = 4 };

// A state of the automaton with its stack. It is compared and hashed by its bytes, so it must have
// no padding.
typedef struct {
    uint32_t stack;
    uint8_t kind, style;
    uint16_t is_uncounted; // IN_STRING: characters are not counted (see machine_uncounted)
    int32_t def, q;
    uint32_t count;
    uint32_t partial; // an incomplete character (json_char.h)
    uint32_t n_same;  // IN_NAME: the first n_same bytes of used name def are the name so far
} State;

struct Machine {
    const Grammar *grammar;
    StackTable stacks;
    InternTable configs; // sorted arrays of State; key 0: DEAD
    uint32_t **rows;     // (configs.n / CHUNK + 1) chunks of CHUNK rows of 256 steps
    State *out;          // (MAX_STATES) states of the step in progress
    uint32_t n_out;
    size_t limit;    // bytes of tables before a flush
    bool is_inexact; // states were dropped
};

static void put(Machine *m, State s) {
    for (uint32_t i = 0; i < m->n_out; i++)
        if (!memcmp(&m->out[i], &s, sizeof s)) return;
    if (m->n_out < MAX_STATES)
        m->out[m->n_out++] = s;
    else
        m->is_inexact = true;
}

static const StackFrame *top(const Machine *m, const State *s) {
    return stack_top(&m->stacks, s->stack);
}

// Strings.

// True if a string may continue with the partial character of a state.
static bool string_has_step(const Machine *m, const StringDef *d, const State *s) {
    const Grammar *g = m->grammar;
    const Dfa *dfa = d->trie == NONE ? &g->defs[d->dfa].dfa : NULL;
    CodeRange r[CHAR_MAX_RANGES];
    int n = char_ranges(s->partial, r);

    for (int k = 0; k < n; k++) {
        uint32_t lo = r[k].lo, hi = r[k].hi;
        if (!dfa) {
            if (trie_lower_bound(g, s->q, lo) < trie_lower_bound(g, s->q, hi + 1)) return true;
            continue;
        }

        for (int i = dfa_interval(dfa, lo); i < dfa->n_bounds; i++) {
            if (dfa->bounds[i] > hi) break;
            int next = dfa->next[s->q * dfa->n_classes + dfa->class_of[i]];
            if (string_is_live(d, next, s->count + 1)) return true;
        }
    }

    return false;
}

static void end_value(Machine *m, State s);

static void step_string(Machine *m, State s, int b) {
    const StringDef *d = &m->grammar->defs[s.def].string;
    bool is_listed = d->trie != NONE;
    const Dfa *dfa = is_listed ? NULL : &m->grammar->defs[d->dfa].dfa;
    uint32_t code = 0;

    if (b == '"' && !s.partial) {
        bool is_end = is_listed ? m->grammar->tries[s.q].label != NONE
                                : dfa->accept[s.q] && s.count >= d->min && s.count <= d->max;
        if (is_end) end_value(m, s);
        return;
    }

    s.partial = char_step_json(s.partial, b, &code);
    if (s.partial == CHAR_INVALID) return;
    if (s.partial) {
        if (string_has_step(m, d, &s)) put(m, s);
        return;
    }

    s.q = is_listed ? trie_child(m->grammar, s.q, code) : dfa_next(dfa, s.q, code);
    if (!is_listed && !s.is_uncounted)
        s.count = s.count < d->limit || d->max != NO_LIMIT ? s.count + 1 : d->limit;
    if (is_listed ? s.q > 0 : string_is_live(d, s.q, s.count)) put(m, s);
}

// DFAs with calls.

static bool is_tail(const Dfa *d, int state) {
    if (!d->accept[state] || d->call_begin[state] < d->call_begin[state + 1]) return false;
    for (int c = 0; c < d->n_classes; c++)
        if (d->next[state * d->n_classes + c]) return false;
    return true;
}

// Adds a state between two characters, the start states of the rules that it may call, and, if its
// own rule may end here, the states that follow. If a rule could only end after a call, the call
// pushes no frame (a tail call), so that right recursion does not make the stack grow.
static void put_text(Machine *m, State s) {
    const Dfa *d = &m->grammar->defs[s.def].dfa;
    uint32_t n = m->n_out;
    put(m, s);
    if (m->n_out == n) return; // the state was added before, with all that follow from it

    for (int k = d->call_begin[s.q]; k < d->call_begin[s.q + 1]; k++) {
        DfaCall call = d->calls[k];
        if (!call.to) continue;
        State inner = s;
        if (!is_tail(d, call.to))
            inner.stack = stack_push(&m->stacks, s.stack, FRAME_RULE, s.def, call.to);
        inner.q = d->starts[call.rule];
        put_text(m, inner);
    }

    if (d->accept[s.q]) end_value(m, s);
}

static void step_text(Machine *m, State s, int b) {
    const Dfa *d = &m->grammar->defs[s.def].dfa;
    uint32_t code = 0;
    CodeRange r[CHAR_MAX_RANGES];
    s.partial = char_step_utf8(s.partial, b, &code);
    if (s.partial == CHAR_INVALID) return;
    if (s.partial) {
        if (char_ranges(s.partial, r) && dfa_has_step(d, s.q, r[0])) put(m, s);
        return;
    }
    s.q = dfa_next(d, s.q, code);
    if (s.q) put_text(m, s);
}

// Values.

// Adds the state after a value, or after the end of a rule's text.
static void end_value(Machine *m, State s) {
    const StackFrame *f = top(m, &s);
    State after = {.stack = s.stack, .kind = AT_AFTER, .style = s.style};
    if (f->kind == FRAME_RULE)
        put_text(m, (State){f->parent, IN_TEXT, s.style, .def = f->def, .q = f->state});
    else
        put(m, f->kind == FRAME_ROOT ? (State){.kind = AT_END} : after);
}

static void step_value(Machine *m, State s, int b) {
    const Grammar *g = m->grammar;
    const ValueDef *v = &g->values[s.def];
    for (int i = 0; i < v->n_alts; i++) {
        const Def *alt = &g->defs[v->alts[i]];
        State next = {.stack = s.stack, .style = s.style, .def = v->alts[i]};
        if (alt->kind == DEF_TEXT) {
            next.kind = IN_TEXT;
            next.q = alt->dfa.start;
            if (next.q) step_text(m, next, b);
        } else if (alt->kind == DEF_STRING && b == '"') {
            const StringDef *d = &alt->string;
            bool is_listed = d->trie != NONE;
            next.kind = IN_STRING;
            next.q = is_listed ? d->trie : g->defs[d->dfa].dfa.start;
            if (is_listed || string_is_live(d, next.q, 0)) put(m, next);
        } else if ((alt->kind == DEF_OBJECT && b == '{') || (alt->kind == DEF_ARRAY && b == '[')) {
            FrameKind kind = alt->kind == DEF_OBJECT ? FRAME_OBJECT : FRAME_ARRAY;
            next.kind = AT_OPEN;
            next.def = 0;
            next.stack = stack_push(&m->stacks, s.stack, kind, v->alts[i], 0);
            put(m, next);
        }
    }
}

// Names of properties.
//
// A name follows the trie of listed names (State.q) and the DFA of other names (State.count) in
// parallel, until its characters leave the trie. At the closing quote, it is the listed name that
// ends at the trie node, or else another name if the DFA accepts it. State.def is the last used
// name that begins with the characters so far, or 0.

static Str used_so_far(const Machine *m, const State *s) {
    return used_prefix(&m->stacks, (uint32_t)s->def, s->n_same);
}

static bool leads_to_name(const Machine *m, const State *s) {
    return frame_leads_to_name(&m->stacks, top(m, s), s->q, (int)s->count, (uint32_t)s->def,
                               s->n_same);
}

static void begin_name(Machine *m, State s) {
    const StackFrame *f = top(m, &s);
    const ObjectDef *o = &m->grammar->defs[f->def].object;
    int other = o->other != NONE ? m->grammar->defs[o->other].dfa.start : 0;
    s = (State){s.stack, IN_NAME, s.style, .q = o->trie, .count = (uint32_t)other};
    s.def = (int32_t)f->used;
    if (leads_to_name(m, &s)) put(m, s);
}

static void end_name(Machine *m, State s) {
    const StackFrame *f = top(m, &s);
    const ObjectDef *o = &m->grammar->defs[f->def].object;
    int name = s.q != NONE ? m->grammar->tries[s.q].label : NONE;
    int label = name == NONE && s.count ? m->grammar->defs[o->other].dfa.accept[s.count] : 0;
    if (name != NONE ? !frame_allows_name(&m->stacks, f, name)
                     : !label || !frame_allows_other(&m->stacks, f))
        return;
    if (name == NONE &&
        used_find(&m->stacks, (uint32_t)s.def, used_so_far(m, &s), (Str){"", 0}, true))
        return;
    int value = name != NONE ? o->properties[name].value : o->other_values[label - 1];
    uint32_t stack = stack_add_property(&m->stacks, s.stack, name);
    put(m, (State){stack, AT_COLON, s.style, .def = value});
}

// True if a name may continue with the partial character of a state: to a listed name by a child of
// its trie node, or to an unlisted name.
static bool name_has_step(const Machine *m, const State *s) {
    const Grammar *g = m->grammar;
    const StackFrame *f = top(m, s);
    bool allows_other = s->count && frame_allows_other(&m->stacks, f);
    const Dfa *other = allows_other ? &g->defs[g->defs[f->def].object.other].dfa : NULL;
    CodeRange r[CHAR_MAX_RANGES];
    int n = char_ranges(s->partial, r), state = (int)s->count;
    int end = s->q != NONE ? g->tries[s->q].first + g->tries[s->q].n : 0;

    for (int i = 0; i < n; i++) {
        uint32_t lo = r[i].lo, hi = r[i].hi, to; // [lo, to): before child k
        for (int k = s->q != NONE ? trie_lower_bound(g, s->q, lo) : 0; lo <= hi; k++, lo = to + 1) {
            bool is_child = k < end && g->tries[k].code <= hi;
            to = is_child ? g->tries[k].code : hi + 1;
            if (other && lo < to && dfa_has_step(other, state, (CodeRange){lo, to - 1}))
                return true;
            if (is_child && frame_leads_to_name(&m->stacks, f, k, 0, 0, 0)) return true;
        }
    }

    return false;
}

static void step_name(Machine *m, State s, int b) {
    const StackFrame *f = top(m, &s);
    const ObjectDef *o = &m->grammar->defs[f->def].object;
    uint32_t code = 0;

    if (b == '"' && !s.partial) {
        end_name(m, s);
        return;
    }

    Str first = {&(char){(char)b}, 1};
    if (b >= 0x80 && !s.partial &&
        !used_find(&m->stacks, (uint32_t)s.def, used_so_far(m, &s), first, false)) {
        s.def = 0;
        s.n_same = 0;
    } // so that all such characters lead to the same configurations

    s.partial = char_step_json(s.partial, b, &code);
    if (s.partial == CHAR_INVALID) return;
    if (s.partial) {
        if (name_has_step(m, &s)) put(m, s);
        return;
    }

    if (s.q != NONE) s.q = trie_child(m->grammar, s.q, code);
    if (s.count) s.count = (uint32_t)dfa_next(&m->grammar->defs[o->other].dfa, (int)s.count, code);
    if (s.def && s.count) {
        char bytes[4];
        Str next = {bytes, (size_t)utf8_encode(code, bytes)};
        s.def = (int32_t)used_find(&m->stacks, (uint32_t)s.def, used_so_far(m, &s), next, false);
        s.n_same = s.def ? s.n_same + (uint32_t)next.len : 0;
    } else {
        s.def = 0;
        s.n_same = 0;
    }

    if (leads_to_name(m, &s)) put(m, s);
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

// The state before the next item or name, or before the value of a property.
static State before_next(Machine *m, State s) {
    const StackFrame *f = top(m, &s);
    bool is_item = s.kind != AT_SPACE && f->kind == FRAME_ARRAY;
    s.kind = s.kind == AT_SPACE || is_item ? AT_VALUE : AT_QUOTE;
    if (!is_item) return s;
    const ArrayDef *a = &m->grammar->defs[f->def].array;
    s.def = a->items[f->count < (uint32_t)a->n_prefix ? (int)f->count : a->n_prefix];
    s.stack = stack_add_item(&m->stacks, s.stack);
    return s;
}

// Adds the state after a line break. s: the state after the indentation.
static void put_indented(Machine *m, State s) {
    s.style = INDENTED;
    s.count = 2 * (top(m, &s)->depth - (s.kind == AT_CLOSE));
    if (s.count) {
        s.q = s.kind;
        s.kind = AT_INDENT;
    }
    put(m, s);
}

// Reads a byte after {, [, a comma or a colon.
static void step_item(Machine *m, State s, int b) {
    static const struct {
        uint8_t none, space, line; // styles that write no white space, a space, a line break
    } after[] = {
        [AT_OPEN] = {COMPACT | SPACED, 0, INDENTED},
        [AT_NEXT] = {COMPACT, SPACED, INDENTED},
        [AT_SPACE] = {COMPACT, SPACED | INDENTED, 0},
    };
    State item = before_next(m, s);

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

static void close_container(Machine *m, State s) {
    s.stack = top(m, &s)->parent;
    end_value(m, s);
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
    case AT_OPEN: step_open(m, s, b); break;
    case IN_NAME: step_name(m, s, b); break;
    case AT_SPACE:
    case AT_NEXT: step_item(m, s, b); break;
    case AT_AFTER: step_after(m, s, b); break;
    case AT_QUOTE:
        if (b == '"') begin_name(m, s);
        break;
    case AT_COLON:

        if (b == ':') {
            s.kind = AT_SPACE;
            put(m, s);
        }
        break;
    case AT_INDENT:
        if (b != ' ') break;
        if (--s.count == 0) {
            s.kind = (uint8_t)s.q;
            s.q = 0;
        }
        put(m, s);
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

uint32_t *machine_row(const Machine *m, uint32_t config) {
    return m->rows[config / CHUNK] + (size_t)(config % CHUNK) * 256;
}

// The number of the configuration whose states are in m->out.
static uint32_t intern_config(Machine *m) {
    bool is_new;
    if (m->n_out > 1) qsort(m->out, m->n_out, sizeof *m->out, compare_states);
    uint32_t config = (uint32_t)intern_add(&m->configs, m->out, m->n_out * sizeof *m->out, &is_new);
    if (!is_new) return config;
    if (config % CHUNK == 0) {
        m->rows = list_grow(m->rows, (int)config / CHUNK, sizeof *m->rows);
        m->rows[config / CHUNK] = xrealloc(NULL, CHUNK, ROW_BYTES);
    }
    memset(machine_row(m, config), 0xff, ROW_BYTES);
    return config;
}

static uint32_t intern_state(Machine *m, State s) {
    m->out[0] = s;
    m->n_out = 1;
    return intern_config(m);
}

uint32_t machine_step_slow(Machine *m, uint32_t config, int byte) {
    uint32_t n;
    const State *states = config_states(m, config, &n); // valid until a configuration is added
    m->n_out = 0;
    for (uint32_t i = 0; i < n; i++) step_state(m, states[i], byte);
    uint32_t next = intern_config(m);
    return machine_row(m, config)[byte] = next;
}

TextPosition machine_position(const Machine *m, uint32_t config) {
    uint32_t n;
    const State *s = config_states(m, config, &n); // AT_END comes first: all its bytes are 0
    if (!n) return (TextPosition){0};
    return (TextPosition){s->kind == AT_END, s->kind == IN_NAME, s->partial, top(m, s)->depth};
}

// True if a name is one of the listed names of an object.
static bool is_listed_name(const Grammar *g, const ObjectDef *o, Str name) {
    int node = o->trie;
    for (uint32_t code; node != NONE && name.len;) {
        size_t len = (size_t)utf8_decode(name.data, name.len, &code);
        node = trie_child(g, node, code);
        name = (Str){name.data + len, name.len - len};
    }
    return node != NONE && g->tries[node].label != NONE;
}

uint32_t machine_use_names(Machine *m, uint32_t config, Str names, bool is_begin) {
    const State *states = config_states(m, config, &m->n_out);
    for (uint32_t i = 0; i < m->n_out; i++) {
        State *s = &m->out[i];
        *s = states[i];
        const ObjectDef *o = &m->grammar->defs[top(m, s)->def].object;
        uint32_t used = top(m, s)->used;
        UsedName head;
        for (size_t at = 0; at < names.len && is_begin != o->is_limited; at += head.len) {
            memcpy(&head, names.data + at, sizeof head);
            Str name = {names.data + (at += sizeof head), head.len};
            if (!is_listed_name(m->grammar, o, name)) used = used_add(&m->stacks, used, name);
        }
        s->stack = stack_set_used(&m->stacks, s->stack, used);
    }

    return intern_config(m);
}

bool machine_is_exact(const Machine *m) { return !m->is_inexact; }

Machine *machine_new(const Grammar *g) {
    Machine *m = xalloc(1, sizeof *m);
    *m = (Machine){
        .grammar = g, .out = xrealloc(NULL, MAX_STATES, sizeof *m->out), .limit = DEFAULT_LIMIT};
    stacks_init(&m->stacks, g);
    memset(machine_row(m, intern_config(m)), 0, ROW_BYTES); // DEAD leads to itself
    return m;
}

void machine_free(Machine *m) {
    if (!m) return;
    for (int i = 0; i < m->configs.n; i += CHUNK) free(m->rows[i / CHUNK]);
    stacks_free(&m->stacks);
    intern_free(&m->configs);
    free(m->rows);
    free(m->out);
    free(m);
}

uint32_t machine_start(Machine *m) {
    const ValueDef *root = &m->grammar->values[m->grammar->root];
    m->n_out = 0;
    for (int i = 0; i < root->n_alts; i++) {
        State s = {.kind = AT_VALUE, .style = COMPACT | SPACED | INDENTED, .def = m->grammar->root};
        const Def *alt = &m->grammar->defs[root->alts[i]];
        if (alt->kind != DEF_TEXT) {
            put(m, s);
        } else { // the text may be empty or begin with a call
            s.kind = IN_TEXT;
            s.def = root->alts[i];
            s.q = alt->dfa.start;
            put_text(m, s);
        }
    }

    return intern_config(m);
}

static size_t table_bytes(const Machine *m) {
    return (size_t)m->configs.n * ROW_BYTES + m->configs.begin[m->configs.n] +
           m->stacks.frames.begin[m->stacks.frames.n];
}

void machine_set_limit(Machine *m, size_t bytes) { m->limit = bytes; }
bool machine_is_full(const Machine *m) { return table_bytes(m) > m->limit; }

void machine_flush(Machine *m, uint32_t *const *keep, int n) {
    Machine *fresh = machine_new(m->grammar);
    uint32_t *moved = xalloc((size_t)m->stacks.frames.n, sizeof *moved);
    uint32_t *done = xalloc((size_t)m->configs.n, sizeof *done), n_states;

    for (int i = 0; i < n; i++) {
        if (*keep[i] && !done[*keep[i]]) {
            const State *states = config_states(m, *keep[i], &n_states);
            fresh->n_out = n_states;
            for (uint32_t k = 0; k < n_states; k++) {
                fresh->out[k] = states[k];
                fresh->out[k].stack =
                    stack_copy(&fresh->stacks, &m->stacks, states[k].stack, moved);
                if (states[k].kind == IN_NAME)
                    fresh->out[k].def =
                        (int32_t)used_copy(&fresh->stacks, &m->stacks, (uint32_t)states[k].def);
            }
            done[*keep[i]] = intern_config(fresh);
        }

        *keep[i] = done[*keep[i]];
    }

    free(moved);
    free(done);

    size_t kept = table_bytes(fresh); // twice that, or each step would flush again
    fresh->limit = m->limit > 2 * kept ? m->limit : 2 * kept;
    fresh->is_inexact = m->is_inexact;

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
        const StringDef *d = &m->grammar->defs[s->def].string;
        bool counts = d->max != NO_LIMIT || s->count < d->limit;
        if (d->trie != NONE || (counts && !s->is_uncounted)) return false;
        *others |= leaving_groups(&m->grammar->defs[d->dfa].dfa, s->q);
        return true;
    }
    if (s->kind != IN_NAME || s->q != NONE || s->def) return false;
    int other = m->grammar->defs[top(m, s)->def].object.other;
    *others |= leaving_groups(&m->grammar->defs[other].dfa, (int)s->count);
    return true;
}

// True if letters stay in a loop. If not, the shortcut does not pay, because it is wrong for most
// tokens.
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
    const StringDef *d = &m->grammar->defs[s->def].string;
    if (d->trie != NONE || d->live || (d->max == NO_LIMIT && !d->min)) return false;
    *others = leaving_groups(&m->grammar->defs[d->dfa].dfa, s->q);
    *min = d->min > s->count ? d->min - s->count : 0;
    *max = d->max == NO_LIMIT ? NO_LIMIT : d->max - s->count;
    return letters_stay(*others);
}

uint32_t machine_uncounted(Machine *m, uint32_t config) {
    State s = *(const State *)intern_key(&m->configs, (int)config);
    s.is_uncounted = 1;
    s.count = 0;
    return intern_state(m, s);
}

uint32_t machine_skip(Machine *m, uint32_t config, uint32_t n) {
    State s = *(const State *)intern_key(&m->configs, (int)config);
    const StringDef *d = &m->grammar->defs[s.def].string;
    s.count = d->max == NO_LIMIT && s.count + n > d->limit ? d->limit : s.count + n;
    return intern_state(m, s);
}
