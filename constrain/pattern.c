// See pattern.h.
// Order: errors and characters, the parser, escapes, nodes, emission into the NFA.
#include "constrain/pattern.h"

bool pattern_fail(PatternReader *r, size_t at, const char *why) {
    size_t line = 1, column = 1;
    bool is_grammar = r->syntax->is_grammar;
    Error *err = r->nfa.budget->err;
    if (err->code) return false;

    for (size_t i = 0; i < at; i++) {
        if (is_grammar && r->text.data[i] == '\n') {
            line++;
            column = 1;
        } else {
            column += ((unsigned char)r->text.data[i] & 0xc0) != 0x80; // not a continuation byte
        }
    }

    if (is_grammar)
        error_set(err, EXIT_USAGE, "grammar: line %zu, column %zu: %s%.*s%s%s", line, column,
                  r->rule.len ? "rule " : "", SHOWN(r->rule), r->rule.len ? ": " : "", why);
    else
        error_set(err, EXIT_USAGE, "regular expression: character %zu: %s", column, why);

    return false;
}

bool pattern_fail_here(PatternReader *r, const char *why) { return pattern_fail(r, r->at, why); }

Str pattern_rest(const PatternReader *r) {
    return (Str){r->text.data + r->at, r->text.len - r->at};
}

void pattern_skip_space(PatternReader *r, bool lines) {
    lines |= r->depth > 0;
    if (!r->syntax->is_grammar) return; // white space is literal

    for (int c; (c = pattern_peek(r)) >= 0; r->at++) {
        if (c == '#') {
            while (pattern_peek(r) >= 0 && pattern_peek(r) != '\n') r->at++;
            c = pattern_peek(r);
        }

        bool is_line = c == '\n' || c == '\r';
        if (is_line ? !lines : c != ' ' && c != '\t') return;
    }
}

bool pattern_read_char(PatternReader *r, uint32_t *code) {
    int n = utf8_decode(r->text.data + r->at, r->text.len - r->at, code);
    r->at += (size_t)n;
    return n || pattern_fail_here(r, "invalid UTF-8");
}

// Adds the members of a class to a set.
static bool read_members(PatternReader *r, CharSet *s) {
    while (pattern_peek(r) != ']') {
        uint32_t lo, hi;
        size_t at = r->at;
        if (!r->syntax->read_member(r, s, &lo)) return false;

        Str rest = pattern_rest(r);
        if (rest.len < 2 || rest.data[0] != '-' || rest.data[1] == ']') continue;

        // A range.
        r->at++;
        if (!r->syntax->read_member(r, s, &hi)) return false;
        if (lo == UINT32_MAX || hi == UINT32_MAX)
            charset_add(s, '-', '-'); // [\w-x] is not a range
        else if (lo > hi)
            return pattern_fail(r, at, "the range is out of order");
        else
            charset_add(s, lo, hi);
    }

    r->at++;
    return true;
}

int pattern_read_class(PatternReader *r) {
    CharSet set = {0};
    bool is_negated = pattern_peek(r) == '^';
    r->at += is_negated;
    if (!read_members(r, &set)) {
        charset_free(&set);
        return 0;
    }
    if (is_negated) charset_invert(&set);
    return pattern_add(r, PATTERN_SET, nfa_set(&r->nfa, &set));
}

static bool read_number(PatternReader *r, int *n) {
    enum { MAX_NUMBER = 1 << 16 }; // more would exceed the limit of states
    size_t begin = r->at;
    for (*n = 0; pattern_peek(r) >= '0' && pattern_peek(r) <= '9'; r->at++)
        if (*n < MAX_NUMBER) *n = *n * 10 + (pattern_peek(r) - '0');
    return r->at > begin;
}

// Reads n}, n,} or n,m} after an opening brace. *max is -1 for no limit.
static bool read_bounds(PatternReader *r, int *min, int *max) {
    pattern_skip_space(r, false);
    if (!read_number(r, min)) return false;
    *max = *min;
    pattern_skip_space(r, false);

    if (pattern_peek(r) == ',') {
        r->at++;
        pattern_skip_space(r, false);
        if (!read_number(r, max)) *max = -1;
        pattern_skip_space(r, false);
    }

    if (pattern_peek(r) != '}') return false;
    r->at++;
    return true;
}

// Reads *, +, ?, {n}, {n,} or {n,m}, if there is one, as a repetition of a node. Returns the
// repetition or the node itself.
static int read_repeat(PatternReader *r, int node) {
    size_t at = r->at;
    int c = pattern_peek(r);
    bool is_grammar = r->syntax->is_grammar;
    if (c != '*' && c != '+' && c != '?' && c != '{') return node;

    int min = c == '+', max = c == '?' ? 1 : -1;
    r->at++;
    if (c == '{' && !read_bounds(r, &min, &max)) {
        if (is_grammar) return pattern_fail_here(r, "expected {n}, {n,} or {n,m}");
        r->at = at; // a literal brace
        return node;
    }
    if (max >= 0 && max < min)
        return pattern_fail(r, at, "the bounds of the repetition are out of order");

    int repeat = pattern_add(r, PATTERN_REPEAT, 0);
    r->nodes[repeat].child = node;
    r->nodes[repeat].at = at;
    r->nodes[repeat].min = min;
    r->nodes[repeat].max = max;

    if (is_grammar) return repeat;
    if (pattern_peek(r) == '?') r->at++; // a lazy quantifier matches the same texts
    if (pattern_peek(r) == '*' || pattern_peek(r) == '+')
        return pattern_fail_here(r, "nothing to repeat; write \\ before the character itself");
    return repeat;
}

int pattern_read_choice(PatternReader *r) {
    enum { MAX_NODES = 1 << 18 }; // more would exceed the limit of NFA states
    int choice = pattern_add(r, PATTERN_CHOICE, 0);
    int last_branch = 0, c;

    for (;;) {
        if (r->n_nodes > MAX_NODES) return pattern_fail_here(r, "too complex");

        // A branch is a sequence of items.
        int sequence = pattern_add(r, PATTERN_SEQUENCE, 0), last = 0;
        pattern_append(r, choice, sequence, &last_branch);
        while ((c = pattern_peek(r)) >= 0 && c != '|' && c != ')') {
            if (r->syntax->is_grammar && (c == '\n' || c == '\r')) break;

            int item = r->syntax->read_item(r);
            if (!item) return 0;
            pattern_skip_space(r, false);
            item = read_repeat(r, item);
            if (!item) return 0;
            pattern_append(r, sequence, item, &last);
            pattern_skip_space(r, false);
        }

        size_t end = r->at;
        pattern_skip_space(r, true); // a line that begins with | continues the alternatives
        if (pattern_peek(r) != '|') {
            r->at = end;
            return choice;
        }
        r->at++;
        pattern_skip_space(r, true);
    }
}

int pattern_read_group(PatternReader *r) {
    enum { MAX_DEPTH = 200 };
    if (++r->depth > MAX_DEPTH) return pattern_fail_here(r, "groups are nested too deeply");
    pattern_skip_space(r, true);
    int choice = pattern_read_choice(r);
    r->depth--;
    if (!choice) return 0;
    if (pattern_peek(r) != ')') return pattern_fail_here(r, "the group is not closed; add )");
    r->at++;
    return choice;
}

size_t pattern_hex(Str s, size_t from, size_t n, uint32_t *code) {
    *code = 0;
    for (size_t i = from; i < from + n; i++) {
        if (i >= s.len || hex_digit(s.data[i]) < 0) return 0;
        *code = *code << 4 | (uint32_t)hex_digit(s.data[i]);
    }
    return *code <= CODE_MAX ? from + n : 0;
}

size_t pattern_escape(Str s, uint32_t *code) {
    static const char names[] = "tnrfv", meanings[] = "\t\n\r\f\v";
    if (!s.len) return 0;

    const char *name = s.data[0] ? strchr(names, s.data[0]) : NULL;
    if (name) {
        *code = (unsigned char)meanings[name - names];
        return 1;
    }
    if (s.data[0] == 'x') return pattern_hex(s, 1, 2, code);
    if (s.data[0] == 'U') return pattern_hex(s, 1, 8, code);
    if (s.data[0] != 'u') return 0;

    uint32_t low;
    size_t n = pattern_hex(s, 1, 4, code);

    bool is_high = n && *code >= 0xd800 && *code < 0xdc00; // the low surrogate must be escaped too
    if (is_high && s.len > 7 && s.data[5] == '\\' && s.data[6] == 'u' &&
        pattern_hex(s, 7, 4, &low) && low >= 0xdc00 && low < 0xe000) {
        *code = 0x10000 + ((*code & 0x3ff) << 10) + (low & 0x3ff);
        return 11;
    }

    return n;
}

int pattern_add(PatternReader *r, PatternKind kind, int arg) {
    if (!r->n_nodes) r->n_nodes = 1; // node 0 is no node
    r->nodes = list_grow(r->nodes, r->n_nodes, sizeof *r->nodes);
    r->nodes[r->n_nodes] = (PatternNode){.kind = kind, .arg = arg, .at = r->at};
    return r->n_nodes++;
}

void pattern_append(PatternReader *r, int parent, int child, int *last) {
    if (*last)
        r->nodes[*last].next = child;
    else
        r->nodes[parent].child = child;
    *last = child;
}

static int emit_repeat(PatternReader *r, const PatternNode *p, int from) {
    Nfa *nfa = &r->nfa;

    for (int i = 0; i < p->min; i++) {
        if (nfa->is_full) return from;
        from = pattern_emit(r, p->child, from);
    }

    int after = nfa_step(nfa, from, NFA_EMPTY, 0);
    if (p->max < 0) // a copy with an edge back to `after`
        nfa_edge(nfa, pattern_emit(r, p->child, after), after, NFA_EMPTY, 0);

    for (int i = p->min; i < p->max; i++) {
        if (nfa->is_full) return after;
        from = pattern_emit(r, p->child, from);
        nfa_edge(nfa, from, after, NFA_EMPTY, 0);
    }
    return after;
}

int pattern_emit(PatternReader *r, int node, int from) {
    const PatternNode *p = &r->nodes[node];
    Nfa *nfa = &r->nfa;
    int to;

    switch (p->kind) {
    case PATTERN_REPEAT: return emit_repeat(r, p, from);
    case PATTERN_CHOICE:
        to = nfa_state(nfa);
        for (int k = p->child; k && !nfa->is_full; k = r->nodes[k].next)
            nfa_edge(nfa, pattern_emit(r, k, from), to, NFA_EMPTY, 0);
        return to;
    case PATTERN_SEQUENCE:
        for (int k = p->child; k && !nfa->is_full; k = r->nodes[k].next)
            from = pattern_emit(r, k, from);
        return from;
    case PATTERN_LOOKAHEAD: // regex.c compiles the others
        pattern_fail(r, p->at, "lookahead, or $ with flag m, in a repetition is not supported");
        return from;
    default: // an edge, and for a rule that can match the empty text an edge that passes it
        to = nfa_step(nfa, from, (NfaEdgeKind)p->kind, p->arg);
        if (p->kind == PATTERN_CALL && r->rules[p->arg].is_nullable)
            nfa_edge(nfa, from, to, NFA_EMPTY, 0);
        return to;
    }
}

void pattern_free(PatternReader *r) {
    nfa_free(&r->nfa);
    free(r->nodes);
    free(r->rules);
}
