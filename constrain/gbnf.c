// GBNF, llama.cpp's notation for grammars:
//
//   root ::= "yes" | [0-9]+ ("," item){2,4}    # a comment
//
// Rule names are letters, digits and -. Literals and classes have the escapes \n \r \t \xHH \uHHHH
// \UHHHHHHHH \\ \" \[ \]. A dot is any character; * + ? {n} {n,} {n,m} repeat. A rule ends with its
// line, unless a group is open or a | follows.
//
// Each rule is parsed into a pattern tree and becomes a fragment of one NFA, whose edges are
// characters and calls of rules.
#include "constrain.h"
#include "pattern.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    Str name;
    size_t named_at;  // offset at which it is first named
    int pattern;      // node; -1: not defined
    bool is_nullable; // the empty text matches
} GrammarRule;

typedef struct {
    PatternReader reader;
    GrammarRule *rules;
    int n_rules;
} GrammarReader;

static int fail_here(PatternReader *r, const char *why) { return pattern_fail(r, r->at, why); }

// --- parsing

static bool is_name(int c) {
    return c == '-' || (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
}

// Skips spaces and comments; line breaks too if `lines`.
static void skip_space(PatternReader *r, bool lines) {
    for (int c; (c = pattern_peek(r)) >= 0; r->at++) {
        if (c == '#') {
            while (pattern_peek(r) >= 0 && pattern_peek(r) != '\n') r->at++;
            c = pattern_peek(r);
        }
        bool is_line = c == '\n' || c == '\r';
        if (is_line ? !lines : c != ' ' && c != '\t') return;
    }
}

// Skips white space within a rule, whose line ends it unless a group is open.
static void skip_within_rule(PatternReader *r) { skip_space(r, r->depth > 0); }

// The number of the rule of this name, added if it is new.
static int find_rule(GrammarReader *g, Str name, size_t at) {
    enum { MAX_RULES = 4000 };
    for (int i = 0; i < g->n_rules; i++)
        if (str_eq(g->rules[i].name, name)) return i;
    if (g->n_rules == MAX_RULES) return pattern_fail(&g->reader, at, "too many rules");
    g->rules = list_grow(g->rules, g->n_rules, sizeof *g->rules);
    g->rules[g->n_rules] = (GrammarRule){.name = name, .named_at = at, .pattern = -1};
    return g->n_rules++;
}

static Str read_name(PatternReader *r) {
    size_t begin = r->at;
    while (is_name(pattern_peek(r))) r->at++;
    return (Str){r->text.data + begin, r->at - begin};
}

// Reads one character of a literal or class.
static bool read_char(PatternReader *r, uint32_t *code) {
    if (pattern_peek(r) < 0 || pattern_peek(r) == '\n')
        return fail_here(r, "the literal or class is not closed; add \" or ]") > 0;
    if (pattern_peek(r) != '\\') return pattern_read_char(r, code);
    Str after = {r->text.data + r->at + 1, r->text.len - r->at - 1};
    size_t n = pattern_escape(after, code);
    if (!n && after.len && strchr("\\\"[]^-", *after.data))
        *code = (unsigned char)*after.data, n = 1;
    r->at += n ? n + 1 : 0;
    return n ? true : fail_here(r, "unknown escape; write \\\\ for a backslash") > 0;
}

// A literal after its quote.
static int read_literal(PatternReader *r) {
    int sequence = pattern_add(r, PATTERN_SEQUENCE, 0), last = -1;
    uint32_t code;
    while (pattern_peek(r) != '"') {
        CharSet one = {0};
        if (!read_char(r, &code)) return -1;
        charset_add(&one, code, code);
        pattern_append(r, sequence, pattern_add_set(r, &one), &last);
    }
    r->at++;
    return sequence;
}

static bool read_class_member(PatternReader *r, CharSet *s, uint32_t *code) {
    bool ok = read_char(r, code);
    if (ok) charset_add(s, *code, *code);
    return ok;
}

static int read_class(PatternReader *r) {
    CharSet set = {0};
    if (!pattern_read_class(r, &set, read_class_member)) return charset_free(&set), -1;
    return pattern_add_set(r, &set);
}

static int read_choice(GrammarReader *g);

// A group after its (.
static int read_group(GrammarReader *g) {
    PatternReader *r = &g->reader;
    if (++r->depth > PATTERN_MAX_DEPTH) return fail_here(r, "groups are nested too deeply");
    skip_space(r, true);
    int choice = read_choice(g);
    r->depth--;
    if (choice < 0) return -1;
    if (pattern_peek(r) != ')') return fail_here(r, "the group is not closed; add )");
    r->at++;
    return choice;
}

static int read_item(GrammarReader *g) {
    PatternReader *r = &g->reader;
    int c = pattern_peek(r);
    size_t at = r->at;
    if (!is_name(c)) r->at++;
    if (c == '"') return read_literal(r);
    if (c == '[') return read_class(r);
    if (c == '(') return read_group(g);
    if (c == '.') {
        CharSet any = {0};
        charset_add(&any, 0, CODE_MAX);
        return pattern_add_set(r, &any);
    }
    if (c == '<') return pattern_fail(r, at, "tokens in <...> are not supported");
    if (!is_name(c)) return pattern_fail(r, at, "expected a literal, class, group or rule name");
    int rule = find_rule(g, read_name(r), at);
    return rule < 0 ? -1 : pattern_add(r, PATTERN_CALL, rule);
}

static int read_sequence(GrammarReader *g) {
    PatternReader *r = &g->reader;
    int sequence = pattern_add(r, PATTERN_SEQUENCE, 0), last = -1;
    for (int c; (c = pattern_peek(r)) >= 0 && c != '|' && c != ')' && c != '\n' && c != '\r';) {
        int item = read_item(g);
        if (item < 0) return -1;
        skip_within_rule(r);
        if ((item = pattern_read_repeat(r, item, skip_within_rule)) < 0) return -1;
        pattern_append(r, sequence, item, &last);
        skip_within_rule(r);
    }
    return sequence;
}

// Alternatives; a following line that begins with | continues them.
static int read_choice(GrammarReader *g) {
    PatternReader *r = &g->reader;
    int choice = pattern_add(r, PATTERN_CHOICE, 0), last = -1;
    for (;;) {
        int sequence = read_sequence(g);
        if (sequence < 0) return -1;
        pattern_append(r, choice, sequence, &last);
        size_t end = r->at;
        skip_space(r, true);
        if (pattern_peek(r) != '|') return r->at = end, choice;
        r->at++;
        skip_space(r, true);
    }
}

static bool read_rule(GrammarReader *g) {
    PatternReader *r = &g->reader;
    size_t at = r->at;
    Str name = read_name(r);
    if (!name.len) return pattern_fail(r, at, "expected the name of a rule") > 0;
    int rule = find_rule(g, name, at);
    if (rule < 0) return false;
    if (g->rules[rule].pattern >= 0)
        return pattern_fail(r, at, "the rule is defined twice; join the alternatives with |") > 0;
    skip_space(r, false);
    if (!str_begins_with(pattern_rest(r), "::=")) return fail_here(r, "expected ::=") > 0;
    r->at += 3;
    skip_space(r, true);
    int pattern = read_choice(g);
    if (pattern < 0) return false;
    g->rules[rule].pattern = pattern;
    skip_space(r, false);
    if (pattern_peek(r) >= 0 && pattern_peek(r) != '\n' && pattern_peek(r) != '\r')
        return fail_here(r, "expected the end of the line") > 0;
    skip_space(r, true);
    return true;
}

// --- left recursion
//
// A rule that can call itself before it has read a character would let the pushdown automaton loop
// without consuming anything.

// Sets calls[rule] for the rules that a node can call before its first character. Returns whether
// the node can be empty, as far as is known of the rules.
static bool scan_start(const GrammarReader *g, int node, bool *calls) {
    const PatternNode *p = &g->reader.nodes[node];
    bool is_nullable = p->kind == PATTERN_SEQUENCE;
    switch (p->kind) {
    case PATTERN_CALL: calls[p->arg] = true; return g->rules[p->arg].is_nullable;
    case PATTERN_REPEAT: return scan_start(g, p->child, calls) || !p->min;
    case PATTERN_SEQUENCE:
        for (int k = p->child; k >= 0 && is_nullable; k = g->reader.nodes[k].next)
            is_nullable = scan_start(g, k, calls);
        return is_nullable;
    case PATTERN_CHOICE:
        for (int k = p->child; k >= 0; k = g->reader.nodes[k].next)
            is_nullable |= scan_start(g, k, calls);
        return is_nullable;
    default: return false;
    }
}

static bool check_rules(GrammarReader *g) {
    PatternReader *r = &g->reader;
    size_t n = (size_t)g->n_rules, first = 0;
    for (size_t i = 0; i < n; i++)
        if (g->rules[i].pattern < 0)
            return pattern_fail(r, g->rules[i].named_at, "the rule is not defined") > 0;
    bool *calls = xalloc(n * n, sizeof *calls), *is_safe = xalloc(n, sizeof *is_safe), ok = true;
    for (bool changed = true; changed && ok;) {
        changed = false;
        ok = budget_spend(r->nfa.budget, r->n_nodes);
        for (size_t i = 0; i < n; i++)
            if (scan_start(g, g->rules[i].pattern, calls + i * n) && !g->rules[i].is_nullable)
                g->rules[i].is_nullable = changed = true;
    }
    // A rule is safe if it calls only safe rules first; what remains is on or leads to a cycle.
    for (bool changed = true; changed && ok;) {
        changed = false;
        for (size_t i = 0; i < n; i++) {
            bool calls_unsafe = is_safe[i];
            for (size_t k = 0; k < n && !calls_unsafe; k++)
                calls_unsafe = calls[i * n + k] && !is_safe[k];
            if (!calls_unsafe) is_safe[i] = changed = true;
        }
    }
    while (first < n && is_safe[first]) first++;
    if (!ok)
        pattern_fail(r, 0, "too complex");
    else if (first < n)
        ok = pattern_fail(r, g->rules[first].named_at,
                          "the rule can begin with itself (left recursion); put a character or a "
                          "literal first") > 0;
    free(calls), free(is_safe);
    return ok;
}

// --- compilation

static Grammar *compile_rules(GrammarReader *g) {
    PatternReader *r = &g->reader;
    Dfa d;
    int root = 0;
    while (root < g->n_rules && !str_is(g->rules[root].name, "root")) root++;
    if (root == g->n_rules)
        return pattern_fail(r, 0, "the rule root is missing; name the first rule root"), NULL;
    NfaFragment *fragments = xalloc((size_t)g->n_rules, sizeof *fragments);
    for (int i = 0; i < g->n_rules; i++) {
        fragments[i].start = nfa_state(&r->nfa);
        fragments[i].end = pattern_emit(r, g->rules[i].pattern, fragments[i].start);
    }
    bool ok = dfa_build_rules(&d, &r->nfa, fragments, g->n_rules, r->err);
    free(fragments);
    if (!ok) return NULL;
    d.start = d.starts[root];
    if (!dfa_is_empty(&d)) return grammar_of_dfa(&d);
    dfa_free(&d);
    return pattern_fail(r, g->rules[root].named_at,
                        "no text matches the rule root; its recursion never ends"),
           NULL;
}

Grammar *grammar_gbnf(Str text, Error *err) {
    Budget budget = {COMPILE_BUDGET};
    GrammarReader g = {
        .reader = {.text = text, .is_grammar = true, .nfa = {.budget = &budget}, .err = err}};
    bool ok = true;
    err->code = 0;
    skip_space(&g.reader, true);
    while (ok && g.reader.at < text.len) ok = read_rule(&g);
    Grammar *grammar = ok && check_rules(&g) ? compile_rules(&g) : NULL;
    pattern_free(&g.reader);
    free(g.rules);
    return grammar;
}
