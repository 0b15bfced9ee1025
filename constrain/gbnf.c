// GBNF, llama.cpp's form of a grammar:
//
//   root ::= "yes" | [0-9]+ ("," item){2,4}    # a comment
//
// Rule names are letters, digits and -; literals and classes know \n \r \t \xHH \uHHHH \UHHHHHHHH
// \\ \" \[ \]; . is any character; * + ? {n} {n,} {n,m} repeat. A rule ends with its line unless a
// group is open or | follows. Each rule becomes a small automaton whose edges are characters and
// calls of other rules.
#include "constrain.h"
#include "regex.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 200, MAX_REPEAT = 1 << 16, MAX_RULES = 20000 };

typedef struct {
    Str name;
    size_t used_at; // where it is first named, for messages
    int start, end; // states of the Nfa
    bool is_defined;
} Rule;

typedef struct {
    Str text;
    size_t at;
    Nfa nfa;
    Rule *rules;
    int n_rules, depth;
    Error *err;
} Reader;

static int fail(Reader *r, size_t at, const char *why) {
    size_t line = 1, column = 1;
    for (size_t i = 0; i < at; i++)
        if (r->text.data[i] == '\n')
            line++, column = 1;
        else
            column += ((unsigned char)r->text.data[i] & 0xc0) != 0x80;
    if (!r->err->code)
        error_set(r->err, EXIT_USAGE, "grammar: line %zu, column %zu: %s", line, column, why);
    return -1;
}

static int peek(const Reader *r) {
    return r->at < r->text.len ? (unsigned char)r->text.data[r->at] : -1;
}

static bool is_name(int c) {
    return c == '-' || (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
}

static void skip_space(Reader *r, bool lines_too) {
    for (int c; (c = peek(r)) >= 0; r->at++) {
        if (c == '#')
            while (peek(r) >= 0 && peek(r) != '\n') r->at++;
        if (peek(r) < 0 || !(c == ' ' || c == '\t' || peek(r) == '\r' || peek(r) == '\n')) return;
        if ((peek(r) == '\n' || peek(r) == '\r') && !lines_too) return;
    }
}

// The rule of this name, made when it is met first.
static int find_rule(Reader *r, Str name, size_t at) {
    for (int i = 0; i < r->n_rules; i++)
        if (str_eq(r->rules[i].name, name)) return i;
    if (r->n_rules == MAX_RULES) return fail(r, at, "too many rules");
    if (r->n_rules % 64 == 0)
        r->rules = xrealloc(r->rules, (size_t)r->n_rules + 64, sizeof *r->rules);
    r->rules[r->n_rules] =
        (Rule){.name = name, .used_at = at, .start = nfa_state(&r->nfa), .end = nfa_state(&r->nfa)};
    return r->n_rules++;
}

static Str read_name(Reader *r) {
    size_t begin = r->at;
    while (is_name(peek(r))) r->at++;
    return (Str){r->text.data + begin, r->at - begin};
}

// One character of a literal or class.
static bool read_char(Reader *r, uint32_t *code) {
    size_t n;
    Str rest = {r->text.data + r->at, r->text.len - r->at};
    if (!rest.len || *rest.data == '\n')
        return fail(r, r->at, "the literal or class is not closed") > 0;
    if (*rest.data == '\\') {
        Str after = {rest.data + 1, rest.len - 1};
        n = escape_decode(after, code);
        if (!n && after.len && strchr("\\\"[]^-", *after.data))
            *code = (unsigned char)*after.data, n = 1;
        if (!n) return fail(r, r->at, "unknown escape") > 0;
        n++;
    } else if (!(n = (size_t)utf8_decode(rest.data, rest.len, code))) {
        return fail(r, r->at, "invalid UTF-8") > 0;
    }
    r->at += n;
    return true;
}

static int read_literal(Reader *r, int from) {
    uint32_t code;
    r->at++;
    while (peek(r) != '"') {
        CharSet one = {0};
        if (!read_char(r, &code)) return -1;
        charset_add(&one, code, code);
        from = nfa_step(&r->nfa, from, &one);
    }
    r->at++;
    return from;
}

static int read_class(Reader *r, int from) {
    CharSet set = {0};
    uint32_t lo, hi;
    r->at++;
    bool is_negated = peek(r) == '^';
    r->at += is_negated;
    while (peek(r) != ']') {
        size_t at = r->at;
        bool ok = read_char(r, &lo);
        hi = lo;
        if (ok && peek(r) == '-' && r->at + 1 < r->text.len && r->text.data[r->at + 1] != ']') {
            r->at++;
            ok = read_char(r, &hi);
        }
        if (ok && lo > hi) ok = fail(r, at, "range out of order") > 0;
        if (!ok) return charset_free(&set), -1;
        charset_add(&set, lo, hi);
    }
    r->at++;
    if (is_negated) charset_invert(&set);
    return nfa_step(&r->nfa, from, &set);
}

static int read_choice(Reader *r, int from, bool is_nested);

static int read_group(Reader *r, int from) {
    r->at++;
    if (++r->depth > MAX_DEPTH) return fail(r, r->at, "groups are nested too deeply");
    skip_space(r, true);
    int to = read_choice(r, from, true);
    r->depth--;
    if (to < 0) return -1;
    if (peek(r) != ')') return fail(r, r->at, "expected )");
    r->at++;
    return to;
}

static int read_item(Reader *r, int from) {
    int c = peek(r);
    if (c == '"') return read_literal(r, from);
    if (c == '[') return read_class(r, from);
    if (c == '(') return read_group(r, from);
    if (c == '.') {
        CharSet any = {0};
        charset_add(&any, 0, CODE_MAX);
        r->at++;
        return nfa_step(&r->nfa, from, &any);
    }
    if (!is_name(c))
        return fail(r, r->at,
                    c == '<' ? "tokens are not supported"
                             : "expected a literal, class, group or rule");
    size_t at = r->at;
    int rule = find_rule(r, read_name(r), at), to = nfa_state(&r->nfa);
    if (rule < 0) return -1;
    nfa_edge(&r->nfa, from, to, EDGE_CALL, rule);
    return to;
}

static bool read_number(Reader *r, int *n) {
    size_t begin = r->at;
    for (*n = 0; peek(r) >= '0' && peek(r) <= '9'; r->at++)
        if (*n < MAX_REPEAT) *n = *n * 10 + (peek(r) - '0');
    return r->at > begin;
}

// 1: a repetition, 0: none, -1: an error. max -1: no end.
static int read_repeat(Reader *r, bool is_nested, int *min, int *max) {
    int c = peek(r);
    *min = c == '+', *max = c == '?' ? 1 : -1;
    if (c == '*' || c == '+' || c == '?') return r->at++, 1;
    if (c != '{') return 0;
    r->at++;
    skip_space(r, is_nested);
    if (!read_number(r, min)) return fail(r, r->at, "expected a number");
    skip_space(r, is_nested);
    *max = *min;
    if (peek(r) == ',') {
        r->at++;
        skip_space(r, is_nested);
        if (!read_number(r, max)) *max = -1;
        skip_space(r, is_nested);
    }
    if (peek(r) != '}') return fail(r, r->at, "expected }");
    if (*max >= 0 && *max < *min) return fail(r, r->at, "numbers of a repetition out of order");
    return r->at++, 1;
}

static int empty_step(Reader *r, int from) {
    int to = nfa_state(&r->nfa);
    nfa_edge(&r->nfa, from, to, EDGE_EMPTY, 0);
    return to;
}

static int read_again(Reader *r, size_t start, int from) {
    size_t after = r->at;
    r->at = start;
    int to = read_item(r, from);
    r->at = after;
    return r->nfa.is_full ? fail(r, start, "too complex: too many repetitions") : to;
}

// The item at `start`, read once from `begin` to `to`, min to max times.
static int repeat(Reader *r, size_t start, int from, int to, int min, int max) {
    int at = min > 0 ? to : from;
    for (int i = 1; i < min && at >= 0; i++) at = read_again(r, start, at);
    if (at < 0) return -1;
    int out = empty_step(r, at), end;
    if (max < 0) {
        if ((end = read_again(r, start, out)) < 0) return -1;
        nfa_edge(&r->nfa, end, out, EDGE_EMPTY, 0);
    }
    for (int i = min; i < max; i++) {
        if ((at = read_again(r, start, empty_step(r, at))) < 0) return -1;
        nfa_edge(&r->nfa, at, out, EDGE_EMPTY, 0);
    }
    return out;
}

static int read_sequence(Reader *r, int from, bool is_nested) {
    for (int c; (c = peek(r)) >= 0 && c != '|' && c != ')' && c != '\n' && c != '\r';) {
        size_t start = r->at;
        int min, max, begin = empty_step(r, from), to = read_item(r, begin), found;
        if (to < 0) return -1;
        skip_space(r, is_nested);
        if ((found = read_repeat(r, is_nested, &min, &max)) < 0) return -1;
        if (!found && (peek(r) == '*' || peek(r) == '+' || peek(r) == '?'))
            return fail(r, r->at, "nothing to repeat");
        from = found ? repeat(r, start, min > 0 ? begin : from, to, min, max) : to;
        if (from < 0 || r->nfa.is_full) return fail(r, start, "too complex");
        skip_space(r, is_nested);
    }
    return from;
}

// Alternatives; a line that begins with | goes on with them.
static int read_choice(Reader *r, int from, bool is_nested) {
    int out = nfa_state(&r->nfa);
    for (;;) {
        int to = read_sequence(r, empty_step(r, from), is_nested);
        if (to < 0) return -1;
        nfa_edge(&r->nfa, to, out, EDGE_EMPTY, 0);
        size_t end = r->at;
        skip_space(r, true);
        if (peek(r) != '|') return r->at = end, out;
        r->at++;
        skip_space(r, true);
    }
}

static bool read_rule(Reader *r) {
    size_t at = r->at;
    Str name = read_name(r);
    if (!name.len) return fail(r, at, "expected the name of a rule") > 0;
    int rule = find_rule(r, name, at);
    if (rule < 0) return false;
    if (r->rules[rule].is_defined) return fail(r, at, "the rule is defined twice") > 0;
    r->rules[rule].is_defined = true;
    skip_space(r, false);
    if (r->text.len - r->at < 3 || memcmp(r->text.data + r->at, "::=", 3))
        return fail(r, r->at, "expected ::=") > 0;
    r->at += 3;
    skip_space(r, true);
    int start = r->rules[rule].start, end = r->rules[rule].end, to = read_choice(r, start, false);
    if (to < 0) return false;
    nfa_edge(&r->nfa, to, end, EDGE_EMPTY, 0);
    skip_space(r, false);
    if (peek(r) >= 0 && peek(r) != '\n' && peek(r) != '\r')
        return fail(r, r->at, "expected the end of the line") > 0;
    skip_space(r, true);
    return true;
}

// --- left recursion

// Edges that a text may pass before its first character: from each state, those that are empty and
// calls, and, once the called rule may be empty, what follows the call.
typedef struct {
    Reader *r;
    int *begin, *order;
    uint8_t *is_nullable; // rules that accept the empty text
} Starts;

static void index_edges(Starts *s) {
    const Nfa *n = &s->r->nfa;
    s->begin = xalloc((size_t)n->n_states + 2, sizeof(int));
    s->order = xalloc((size_t)n->n_edges + 1, sizeof(int));
    for (int i = 0; i < n->n_edges; i++) s->begin[n->edges[i].from + 2]++;
    for (int i = 0; i <= n->n_states; i++) s->begin[i + 1] += s->begin[i];
    for (int i = 0; i < n->n_edges; i++) s->order[s->begin[n->edges[i].from + 1]++] = i;
}

// Marks the states of a rule that are reached without a character, `calls` the rules called there.
// True if its end is.
static bool reach(const Starts *s, int rule, uint8_t *seen, int *stack, uint8_t *calls) {
    const Nfa *n = &s->r->nfa;
    int top = 0;
    memset(seen, 0, (size_t)n->n_states);
    stack[top++] = s->r->rules[rule].start;
    seen[stack[0]] = 1;
    while (top) {
        int state = stack[--top];
        for (int k = s->begin[state]; k < s->begin[state + 1]; k++) {
            const Edge *e = &n->edges[s->order[k]];
            if (e->kind == EDGE_CALL && calls) calls[e->arg] = 1;
            bool passes = e->kind == EDGE_EMPTY || (e->kind == EDGE_CALL && s->is_nullable[e->arg]);
            if (passes && !seen[e->to]) seen[e->to] = 1, stack[top++] = e->to;
        }
    }
    return seen[s->r->rules[rule].end];
}

// Rules that call themselves before any character: found by taking away, again and again, those
// that call none left.
static bool check_recursion(Starts *s, uint8_t *seen, int *stack) {
    int n = s->r->n_rules, left = n;
    uint8_t *calls = xalloc((size_t)n * (size_t)n + 1, 1), *gone = xalloc((size_t)n + 1, 1);
    for (int i = 0; i < n; i++) reach(s, i, seen, stack, calls + (size_t)i * (size_t)n);
    for (bool changed = true; changed;) {
        changed = false;
        for (int i = 0; i < n; i++) {
            bool calls_any = gone[i];
            for (int k = 0; k < n && !calls_any; k++)
                calls_any = !gone[k] && calls[(size_t)i * (size_t)n + (size_t)k];
            if (!calls_any) gone[i] = changed = true, left--;
        }
    }
    int first = 0;
    while (first < n && gone[first]) first++;
    if (left) fail(s->r, s->r->rules[first].used_at, "a rule begins with itself (left recursion)");
    free(calls), free(gone);
    return !left;
}

static bool check_rules(Reader *r) {
    enum { MOST = 4000 }; // the table of calls is its square
    Starts s = {.r = r};
    if (!r->n_rules || r->n_rules > MOST)
        return fail(r, 0, r->n_rules ? "too many rules" : "expected a rule root") > 0;
    for (int i = 0; i < r->n_rules; i++)
        if (!r->rules[i].is_defined)
            return fail(r, r->rules[i].used_at, "the rule is not defined") > 0;
    index_edges(&s);
    s.is_nullable = xalloc((size_t)r->n_rules, 1);
    uint8_t *seen = xalloc((size_t)r->nfa.n_states, 1);
    int *stack = xalloc((size_t)r->nfa.n_states + 1, sizeof(int));
    bool ok = true;
    for (bool changed = true; changed && ok;) {
        changed = false;
        for (int i = 0; i < r->n_rules; i++) {
            ok = ok && budget_take(r->nfa.budget, r->nfa.n_states / 8 + 1);
            if (!s.is_nullable[i] && reach(&s, i, seen, stack, NULL))
                s.is_nullable[i] = changed = true;
        }
    }
    ok = ok ? check_recursion(&s, seen, stack) : fail(r, 0, "too complex") > 0;
    free(s.begin), free(s.order), free(s.is_nullable), free(seen), free(stack);
    return ok;
}

static Grammar *build(Reader *r) {
    Dfa d;
    Str root = str_of("root");
    int *starts = xalloc((size_t)r->n_rules, sizeof(int)),
        *ends = xalloc((size_t)r->n_rules, sizeof(int)), rule = -1;
    for (int i = 0; i < r->n_rules; i++) {
        starts[i] = r->rules[i].start, ends[i] = r->rules[i].end;
        if (str_eq(r->rules[i].name, root)) rule = i;
    }
    bool ok = rule >= 0 ? true : fail(r, 0, "expected a rule root") > 0;
    ok = ok && dfa_build_rules(&d, &r->nfa, starts, ends, r->n_rules, r->err);
    free(starts), free(ends);
    if (!ok) return NULL;
    d.start = d.starts[rule];
    if (dfa_is_empty(&d)) {
        dfa_free(&d);
        return fail(r, r->rules[rule].used_at, "no text fits the rule root"), NULL;
    }
    return grammar_of_dfa(&d);
}

Grammar *grammar_gbnf(Str text, Error *err) {
    Budget budget = {COMPILE_BUDGET};
    Reader r = {.text = text, .err = err, .nfa = {.budget = &budget}};
    err->code = 0;
    skip_space(&r, true);
    bool ok = true;
    while (ok && r.at < text.len) ok = read_rule(&r);
    Grammar *c = ok && check_rules(&r) ? build(&r) : NULL;
    nfa_free(&r.nfa);
    free(r.rules);
    return c;
}
