#include "pattern.h"

#include <stdlib.h>
#include <string.h>

int pattern_fail(PatternReader *r, size_t at, const char *why) {
    size_t line = 1, column = 1;
    if (r->err->code) return -1;
    for (size_t i = 0; i < at; i++)
        if (r->is_grammar && r->text.data[i] == '\n')
            line++, column = 1;
        else
            column += ((unsigned char)r->text.data[i] & 0xc0) != 0x80; // not a continuation byte
    if (r->is_grammar)
        error_set(r->err, EXIT_USAGE, "grammar: line %zu, column %zu: %s", line, column, why);
    else
        error_set(r->err, EXIT_USAGE, "regular expression: character %zu: %s", column, why);
    return -1;
}

Str pattern_rest(const PatternReader *r) {
    return (Str){r->text.data + r->at, r->text.len - r->at};
}

bool pattern_read_char(PatternReader *r, uint32_t *code) {
    int n = utf8_decode(r->text.data + r->at, r->text.len - r->at, code);
    r->at += (size_t)n;
    return n ? true : pattern_fail(r, r->at, "invalid UTF-8") > 0;
}

bool pattern_read_class(PatternReader *r, CharSet *s,
                        bool (*read_member)(PatternReader *r, CharSet *s, uint32_t *code)) {
    bool is_negated = pattern_peek(r) == '^';
    r->at += is_negated;
    while (pattern_peek(r) != ']') {
        uint32_t lo, hi;
        size_t at = r->at;
        if (!read_member(r, s, &lo)) return false;
        Str rest = pattern_rest(r);
        if (rest.len < 2 || rest.data[0] != '-' || rest.data[1] == ']') continue;
        r->at++;
        if (!read_member(r, s, &hi)) return false;
        if (lo == UINT32_MAX || hi == UINT32_MAX)
            charset_add(s, '-', '-'); // [\w-x] is no range
        else if (lo > hi)
            return pattern_fail(r, at, "the range is out of order") > 0;
        else
            charset_add(s, lo, hi);
    }
    r->at++;
    if (is_negated) charset_invert(s);
    return true;
}

static bool read_number(PatternReader *r, int *n) {
    enum { MAX_NUMBER = 1 << 16 }; // more would exceed the limit of states
    size_t begin = r->at;
    for (*n = 0; pattern_peek(r) >= '0' && pattern_peek(r) <= '9'; r->at++)
        if (*n < MAX_NUMBER) *n = *n * 10 + (pattern_peek(r) - '0');
    return r->at > begin;
}

int pattern_read_repeat(PatternReader *r, int node, void (*skip)(PatternReader *r)) {
    size_t at = r->at;
    int c = pattern_peek(r), min = c == '+', max = c == '?' ? 1 : -1;
    if (c != '*' && c != '+' && c != '?' && c != '{') return node;
    r->at++;
    if (c == '{') {
        skip(r);
        bool ok = read_number(r, &min);
        max = min;
        skip(r);
        if (ok && pattern_peek(r) == ',') {
            r->at++;
            skip(r);
            if (!read_number(r, &max)) max = -1;
            skip(r);
        }
        if (!ok || pattern_peek(r) != '}') {
            if (r->is_grammar) return pattern_fail(r, r->at, "expected {n}, {n,} or {n,m}");
            r->at = at; // a literal brace
            return node;
        }
        r->at++;
    }
    if (max >= 0 && max < min)
        return pattern_fail(r, at, "the bounds of the repetition are out of order");
    int repeat = pattern_add(r, PATTERN_REPEAT, 0);
    r->nodes[repeat].child = node, r->nodes[repeat].at = at;
    r->nodes[repeat].min = min, r->nodes[repeat].max = max;
    return repeat;
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
    if (name) return *code = (unsigned char)meanings[name - names], 1;
    if (s.data[0] == 'x') return pattern_hex(s, 1, 2, code);
    if (s.data[0] == 'U') return pattern_hex(s, 1, 8, code);
    if (s.data[0] != 'u') return 0;
    uint32_t low;
    size_t n = pattern_hex(s, 1, 4, code);
    bool is_high = n && *code >= 0xd800 && *code < 0xdc00; // the low surrogate must be escaped too
    if (is_high && s.len > 7 && s.data[5] == '\\' && s.data[6] == 'u' &&
        pattern_hex(s, 7, 4, &low) && low >= 0xdc00 && low < 0xe000)
        return *code = 0x10000 + ((*code & 0x3ff) << 10) + (low & 0x3ff), 11;
    return n;
}

int pattern_add(PatternReader *r, PatternKind kind, int arg) {
    r->nodes = list_grow(r->nodes, r->n_nodes, sizeof *r->nodes);
    r->nodes[r->n_nodes] =
        (PatternNode){.kind = kind, .child = -1, .next = -1, .arg = arg, .at = r->at};
    return r->n_nodes++;
}

int pattern_add_set(PatternReader *r, CharSet *set) {
    return pattern_add(r, PATTERN_SET, nfa_set(&r->nfa, set));
}

void pattern_append(PatternReader *r, int parent, int child, int *last) {
    *(*last < 0 ? &r->nodes[parent].child : &r->nodes[*last].next) = child;
    *last = child;
}

static int emit_repeat(PatternReader *r, const PatternNode *p, int from) {
    Nfa *nfa = &r->nfa;
    for (int i = 0; i < p->min && !nfa->is_full; i++) from = pattern_emit(r, p->child, from);
    int after = nfa_empty_step(nfa, from, NFA_EMPTY);
    if (p->max < 0) // any number of copies, each back to `after`
        nfa_edge(nfa, pattern_emit(r, p->child, after), after, NFA_EMPTY, 0);
    for (int i = p->min; i < p->max && !nfa->is_full; i++) {
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
    case PATTERN_SET: return nfa_step(nfa, from, p->arg);
    case PATTERN_BEGIN: return nfa_empty_step(nfa, from, NFA_BEGIN);
    case PATTERN_END: return nfa_empty_step(nfa, from, NFA_END);
    case PATTERN_REPEAT: return emit_repeat(r, p, from);
    case PATTERN_CALL:
        to = nfa_state(nfa);
        nfa_edge(nfa, from, to, NFA_CALL, p->arg);
        return to;
    case PATTERN_CHOICE:
        to = nfa_state(nfa);
        for (int k = p->child; k >= 0 && !nfa->is_full; k = r->nodes[k].next)
            nfa_edge(nfa, pattern_emit(r, k, from), to, NFA_EMPTY, 0);
        return to;
    case PATTERN_SEQUENCE:
        for (int k = p->child; k >= 0 && !nfa->is_full; k = r->nodes[k].next)
            from = pattern_emit(r, k, from);
        return from;
    default: return from; // PATTERN_LOOKAHEAD: see regex.c
    }
}

void pattern_free(PatternReader *r) {
    nfa_free(&r->nfa);
    free(r->nodes);
    r->nodes = NULL, r->n_nodes = 0;
}
