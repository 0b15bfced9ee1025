// Thompson's construction: every part of the expression becomes states between the state it is read
// from and the one it returns. A part that is repeated n times is read n times.
#include "regex.h"
#include "../base/unicode.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 200, MAX_REPEAT = 1 << 16 };

typedef struct {
    Str text;
    size_t at;
    Nfa nfa;
    int depth;
    Error *err;
} Reader;

static int peek(const Reader *r) {
    return r->at < r->text.len ? (unsigned char)r->text.data[r->at] : -1;
}

static bool looks_at(const Reader *r, const char *s) {
    size_t n = strlen(s);
    return r->text.len - r->at >= n && !memcmp(r->text.data + r->at, s, n);
}

static int fail(Reader *r, const char *why) {
    if (!r->err->code)
        error_set(r->err, EXIT_USAGE, "regular expression, character %zu: %s", r->at + 1, why);
    return -1;
}

static size_t decode_hex(Str s, size_t from, size_t n_digits, uint32_t *code) {
    *code = 0;
    for (size_t i = from; i < from + n_digits; i++) {
        if (i >= s.len || hex_digit(s.data[i]) < 0) return 0;
        *code = *code << 4 | (uint32_t)hex_digit(s.data[i]);
    }
    return *code <= CODE_MAX ? from + n_digits : 0;
}

size_t escape_decode(Str s, uint32_t *code) {
    static const char names[] = "tnrfv", meanings[] = "\t\n\r\f\v";
    if (!s.len) return 0;
    const char *name = s.data[0] ? strchr(names, s.data[0]) : NULL;
    if (name) return *code = (unsigned char)meanings[name - names], 1;
    if (s.data[0] == 'x') return decode_hex(s, 1, 2, code);
    if (s.data[0] == 'U') return decode_hex(s, 1, 8, code);
    if (s.data[0] != 'u') return 0;
    uint32_t low;
    size_t n = decode_hex(s, 1, 4, code);
    if (n && *code >= 0xd800 && *code < 0xdc00 && s.len > 7 && s.data[5] == '\\' &&
        s.data[6] == 'u' && decode_hex((Str){s.data + 6, s.len - 6}, 1, 4, &low) && low >= 0xdc00 &&
        low < 0xe000)
        return *code = 0x10000 + ((*code & 0x3ff) << 10) + (low & 0x3ff), 11;
    return n;
}

// --- sets of characters

static void add_class(CharSet *s, int letter) {
    static const Range space[] = {
        {9, 13},          {32, 32},         {0xa0, 0xa0},     {0x1680, 0x1680}, {0x2000, 0x200a},
        {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}, {0xfeff, 0xfeff}};
    CharSet set = {0};
    int low = letter | 0x20;
    if (low == 's') {
        for (size_t i = 0; i < sizeof space / sizeof *space; i++)
            charset_add(&set, space[i].lo, space[i].hi);
    } else {
        charset_add(&set, '0', '9');
        if (low == 'w')
            charset_add(&set, 'A', 'Z'), charset_add(&set, '_', '_'), charset_add(&set, 'a', 'z');
    }
    if (letter != low) charset_invert(&set);
    charset_add_set(s, &set);
    charset_free(&set);
}

static void add_unicode(CharSet *s, UnicodeClass wanted, bool is_negated) {
    CharSet set = {0};
    unicode_init();
    for (uint32_t c = 0, end; c < UNICODE_END; c = end) {
        for (end = c + 1; end < UNICODE_END && unicode_class(end) == unicode_class(c);) end++;
        if (unicode_class(c) == wanted) charset_add(&set, c, end - 1);
    }
    if (is_negated) charset_invert(&set);
    charset_add_set(s, &set);
    charset_free(&set);
}

// After \p or \P.
static bool add_property(Reader *r, CharSet *s, bool is_negated) {
    static const char *const names[] = {"{L}", "{Letter}", "{N}", "{Number}"};
    for (int i = 0; i < 4; i++)
        if (looks_at(r, names[i])) {
            r->at += strlen(names[i]);
            add_unicode(s, i < 2 ? UNICODE_LETTER : UNICODE_NUMBER, is_negated);
            return true;
        }
    return fail(r, "of \\p only {L} and {N} are supported") > 0;
}

// What follows a backslash: a class (*code is then UINT32_MAX) or one character, added to the set.
static bool read_escape(Reader *r, CharSet *s, uint32_t *code, bool in_class) {
    int c = peek(r);
    *code = UINT32_MAX;
    if (c < 0) return fail(r, "expected a character after \\") > 0;
    if (strchr("dDwWsS", c)) return r->at++, add_class(s, c), true;
    if (c == 'p' || c == 'P') return r->at++, add_property(r, s, c == 'P');
    if ((c == 'b' && !in_class) || c == 'B') return fail(r, "\\b is not supported") > 0;
    if ((c >= '1' && c <= '9') || c == 'k') return fail(r, "back references are not supported") > 0;
    size_t n = escape_decode((Str){r->text.data + r->at, r->text.len - r->at}, code);
    if (c == 'U') n = 0;
    if (!n && c == 'u' && r->at + 1 < r->text.len && r->text.data[r->at + 1] == '{') {
        const char *end = memchr(r->text.data + r->at, '}', r->text.len - r->at);
        size_t digits = end ? (size_t)(end - r->text.data) - r->at - 2 : 0;
        n = digits && digits <= 6
                ? decode_hex((Str){r->text.data + r->at, r->text.len - r->at}, 2, digits, code)
                : 0;
        n += n > 0;
    } else if (!n && c == 'c' && r->at + 1 < r->text.len) {
        *code = (unsigned char)r->text.data[r->at + 1] & 31;
        n = 2;
    } else if (!n && c == '0') {
        *code = 0, n = 1;
    } else if (!n && c == 'b') {
        *code = 8, n = 1;
    } else if (!n && ((c | 0x20) < 'a' || (c | 0x20) > 'z')) {
        n = (size_t)utf8_decode(r->text.data + r->at, r->text.len - r->at, code);
    }
    if (!n) return fail(r, "unknown escape") > 0;
    charset_add(s, *code, *code);
    r->at += n;
    return true;
}

static bool read_char(Reader *r, uint32_t *code) {
    int n = utf8_decode(r->text.data + r->at, r->text.len - r->at, code);
    r->at += (size_t)n;
    return n ? true : fail(r, "invalid UTF-8") > 0;
}

// A character or class inside [ ].
static bool read_member(Reader *r, CharSet *s, uint32_t *code) {
    if (peek(r) == '\\') return r->at++, read_escape(r, s, code, true);
    if (peek(r) < 0) return fail(r, "expected ]") > 0;
    if (!read_char(r, code)) return false;
    charset_add(s, *code, *code);
    return true;
}

// After [.
static bool read_class(Reader *r, CharSet *s) {
    bool is_negated = peek(r) == '^';
    r->at += is_negated;
    while (peek(r) != ']') {
        uint32_t lo, hi;
        if (!read_member(r, s, &lo)) return false;
        if (peek(r) != '-' || r->at + 1 >= r->text.len || r->text.data[r->at + 1] == ']') continue;
        r->at++;
        if (!read_member(r, s, &hi)) return false;
        if (lo == UINT32_MAX || hi == UINT32_MAX)
            charset_add(s, '-', '-'); // [\w-x]: no range
        else if (lo > hi)
            return fail(r, "range out of order") > 0;
        else
            charset_add(s, lo, hi);
    }
    r->at++;
    if (is_negated) charset_invert(s);
    return true;
}

static void add_dot(CharSet *s) {
    charset_add(s, '\n', '\n');
    charset_add(s, '\r', '\r');
    charset_add(s, 0x2028, 0x2029);
    charset_invert(s);
}

// --- the expression

static int read_choice(Reader *r, int from);

static int empty_step(Reader *r, int from, EdgeKind kind) {
    int to = nfa_state(&r->nfa);
    nfa_edge(&r->nfa, from, to, kind, 0);
    return to;
}

// After (.
static int read_group(Reader *r, int from) {
    if (looks_at(r, "?:")) {
        r->at += 2;
    } else if (looks_at(r, "?<") && !looks_at(r, "?<=") && !looks_at(r, "?<!")) {
        const char *end = memchr(r->text.data + r->at, '>', r->text.len - r->at);
        if (!end) return fail(r, "expected > after the name of a group");
        r->at = (size_t)(end - r->text.data) + 1;
    } else if (looks_at(r, "?")) {
        return fail(r, "look-around and flags inside an expression are not supported");
    }
    if (++r->depth > MAX_DEPTH) return fail(r, "groups are nested too deeply");
    int to = read_choice(r, from);
    r->depth--;
    if (to < 0) return -1;
    if (peek(r) != ')') return fail(r, "expected )");
    r->at++;
    return to;
}

static int read_set(Reader *r, int from) {
    CharSet set = {0};
    uint32_t code;
    bool ok = true;
    int c = peek(r);
    if (c == '[' || c == '\\' || c == '.') r->at++;
    if (c == '[')
        ok = read_class(r, &set);
    else if (c == '\\')
        ok = read_escape(r, &set, &code, false);
    else if (c == '.')
        add_dot(&set);
    else if ((ok = read_char(r, &code)))
        charset_add(&set, code, code);
    if (ok) return nfa_step(&r->nfa, from, &set);
    charset_free(&set);
    return -1;
}

static int read_atom(Reader *r, int from) {
    int c = peek(r);
    if (c == '*' || c == '+' || c == '?') return fail(r, "nothing to repeat");
    if (c == '^' || c == '$') return r->at++, empty_step(r, from, c == '^' ? EDGE_BEGIN : EDGE_END);
    if (c == '(') return r->at++, read_group(r, from);
    return read_set(r, from);
}

static bool read_count(Reader *r, int *count) {
    if (peek(r) < '0' || peek(r) > '9') return false;
    for (*count = 0; peek(r) >= '0' && peek(r) <= '9'; r->at++)
        if (*count < MAX_REPEAT) *count = *count * 10 + (peek(r) - '0');
    return true;
}

// *, +, ?, {n}, {n,}, {n,m} if there is one; max -1: no end.
static bool read_repeat(Reader *r, int *min, int *max) {
    size_t start = r->at;
    int c = peek(r);
    if (c == '*' || c == '+' || c == '?') {
        r->at++;
        *min = c == '+', *max = c == '?' ? 1 : -1;
        return true;
    }
    if (c != '{') return false;
    r->at++;
    bool ok = read_count(r, min);
    *max = *min;
    if (ok && peek(r) == ',') {
        r->at++;
        if (!read_count(r, max)) *max = -1;
    }
    if (ok && peek(r) == '}') return r->at++, true;
    r->at = start; // a brace that means itself
    return false;
}

// Reads the atom at `start` again, behind `from`.
static int read_again(Reader *r, size_t start, int from) {
    size_t after = r->at;
    r->at = start;
    int to = read_atom(r, from);
    r->at = after;
    return r->nfa.is_full ? fail(r, "too complex: too many repetitions") : to;
}

// The states of an atom repeated; `to` is what its first reading from `from` returned and counts
// when min > 0.
static int repeat(Reader *r, size_t start, int from, int to, int min, int max) {
    int first = min > 0 ? to : from;
    for (int i = 1; i < min && first >= 0; i++) first = read_again(r, start, first);
    if (first < 0) return -1;
    if (max < 0) {
        int loop = empty_step(r, first, EDGE_EMPTY), end = read_again(r, start, loop);
        if (end < 0) return -1;
        nfa_edge(&r->nfa, end, loop, EDGE_EMPTY, 0);
        return loop;
    }
    int out = empty_step(r, first, EDGE_EMPTY);
    for (int i = min; i < max; i++) {
        first = read_again(r, start, empty_step(r, first, EDGE_EMPTY));
        if (first < 0) return -1;
        nfa_edge(&r->nfa, first, out, EDGE_EMPTY, 0);
    }
    return out;
}

static int read_piece(Reader *r, int from) {
    size_t start = r->at;
    int min, max;
    int begin = empty_step(r, from, EDGE_EMPTY),
        to = read_atom(r, begin); // begin: left behind when it may be absent
    if (to < 0 || !read_repeat(r, &min, &max)) return to;
    if (max >= 0 && max < min) return fail(r, "numbers of a repetition out of order");
    if (peek(r) == '?') r->at++; // lazy: the same texts
    if (peek(r) == '*' || peek(r) == '+') return fail(r, "nothing to repeat");
    return repeat(r, start, min > 0 ? begin : from, to, min, max);
}

static int read_sequence(Reader *r, int from) {
    while (from >= 0 && peek(r) >= 0 && peek(r) != '|' && peek(r) != ')') {
        from = read_piece(r, from);
        if (r->nfa.is_full) return fail(r, "too complex");
    }
    return from;
}

static int read_choice(Reader *r, int from) {
    int out = nfa_state(&r->nfa);
    for (;;) {
        int to = read_sequence(r, empty_step(r, from, EDGE_EMPTY));
        if (to < 0) return -1;
        nfa_edge(&r->nfa, to, out, EDGE_EMPTY, 0);
        if (peek(r) != '|') return out;
        r->at++;
    }
}

static int any_loop(Nfa *n, int from) {
    CharSet any = {0};
    charset_add(&any, 0, CODE_MAX);
    int loop = nfa_state(n), to;
    nfa_edge(n, from, loop, EDGE_EMPTY, 0);
    to = nfa_step(n, loop, &any);
    nfa_edge(n, to, loop, EDGE_EMPTY, 0);
    return loop;
}

static bool compile_plain(Str pattern, RegexMode mode, Budget *budget, Dfa *out, Error *err) {
    Reader r = {.text = pattern, .err = err, .nfa = {.budget = budget}};
    err->code = 0;
    int start = nfa_state(&r.nfa), universal = -1;
    int end = read_choice(&r, mode == REGEX_SEARCH ? any_loop(&r.nfa, start) : start);
    if (end >= 0 && r.at < pattern.len) end = fail(&r, "unexpected )");
    if (end >= 0 && mode != REGEX_WHOLE) end = universal = any_loop(&r.nfa, end);
    bool ok = end >= 0 && dfa_build(out, &r.nfa, start, end, universal, err);
    nfa_free(&r.nfa);
    return ok;
}

// --- look-ahead at the beginning

// End of the group that begins at `from`, or 0.
static size_t group_end(Str s, size_t from) {
    int depth = 0;
    bool in_class = false;
    for (size_t i = from; i < s.len; i++) {
        char c = s.data[i];
        if (c == '\\')
            i++;
        else if (in_class || c == '[')
            in_class = c != ']';
        else if (c == '(')
            depth++;
        else if (c == ')' && --depth == 0)
            return i + 1;
    }
    return 0;
}

// Whether an alternative begins outside all groups.
static bool has_choice(Str s) {
    bool in_class = false;
    for (size_t i = 0; i < s.len; i++) {
        char c = s.data[i];
        if (c == '\\')
            i++;
        else if (in_class || c == '[')
            in_class = c != ']';
        else if (c == '(')
            i = group_end(s, i) ? group_end(s, i) - 1 : s.len;
        else if (c == '|')
            return true;
    }
    return false;
}

static Str rest(Str s, size_t from) { return (Str){s.data + from, s.len - from}; }

static size_t look_at(Str s) {
    return s.len > 3 && s.data[0] == '(' && s.data[1] == '?' &&
                   (s.data[2] == '=' || s.data[2] == '!')
               ? group_end(s, 0)
               : 0;
}

bool regex_compile(Str pattern, RegexMode mode, Budget *budget, Dfa *out, Error *err) {
    bool has_begin = pattern.len && pattern.data[0] == '^';
    Str body = rest(pattern, has_begin);
    if (!look_at(body) || has_choice(body) || (!has_begin && mode == REGEX_SEARCH))
        return compile_plain(pattern, mode, budget, out, err);
    size_t n = look_at(body);
    Dfa ahead, after, all;
    Str inner = {body.data + 3, n - 4};
    if (!compile_plain(inner, REGEX_PREFIX, budget, &ahead, err)) return false;
    bool ok = regex_compile(rest(body, n), mode == REGEX_SEARCH ? REGEX_PREFIX : mode, budget,
                            &after, err);
    if (ok) {
        ok = dfa_product(&all, &after, &ahead, body.data[2] == '=' ? DFA_AND : DFA_AND_NOT, 0,
                         budget, err);
        if (ok) *out = all;
        dfa_free(&after);
    }
    dfa_free(&ahead);
    return ok;
}
