// GBNF, llama.cpp's notation for grammars:
//
//   root ::= "yes" | [0-9]+ ("," item){2,4}    # a comment
//
// Rule names consist of letters, digits, - and _. Literals and classes have the escapes \n \r \t
// \xHH \uHHHH \UHHHHHHHH \\ \" \[ \]. A dot is any character. * + ? {n} {n,} {n,m} repeat. A rule
// ends at the end of its line, unless a group is open or the next line begins with |.
//
// Each rule is parsed into a pattern tree (pattern.h) and becomes a fragment of one NFA, whose
// edges read characters or call rules.
#include "constrain/constrain.h"
#include "constrain/pattern.h"

// Parsing.

static bool is_name(int c) {
    return c == '-' || c == '_' || (c >= '0' && c <= '9') ||
           ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
}

// The number of the rule with this name, which is added if it is new; -1 after a failure.
static int find_rule(PatternReader *r, Str name, size_t at) {
    enum { MAX_RULES = 4000 };
    for (int i = 0; i < r->n_rules; i++)
        if (str_eq(r->rules[i].name, name)) return i;
    if (r->n_rules == MAX_RULES) {
        pattern_fail(r, at, "too many rules");
        return -1;
    }
    r->rules = list_grow(r->rules, r->n_rules, sizeof *r->rules);
    r->rules[r->n_rules] = (GrammarRule){.name = name, .named_at = at};
    return r->n_rules++;
}

static Str read_name(PatternReader *r) {
    size_t begin = r->at;
    while (is_name(pattern_peek(r))) r->at++;
    return (Str){r->text.data + begin, r->at - begin};
}

// Reads one character of a literal or class.
static bool read_char(PatternReader *r, uint32_t *code) {
    if (pattern_peek(r) < 0 || pattern_peek(r) == '\n')
        return pattern_fail_here(r, "the literal or class is not closed; add \" or ]");
    if (pattern_peek(r) != '\\') return pattern_read_char(r, code);
    Str after = {r->text.data + r->at + 1, r->text.len - r->at - 1};
    size_t n = pattern_escape(after, code);
    if (!n && after.len && strchr("\\\"[]^-", *after.data)) {
        *code = (unsigned char)*after.data;
        n = 1;
    }
    r->at += n ? n + 1 : 0;
    return n || pattern_fail_here(r, "unknown escape; write \\\\ for a backslash");
}

// Reads a literal after its opening quote.
static int read_literal(PatternReader *r) {
    int sequence = pattern_add(r, PATTERN_SEQUENCE, 0), last = 0;
    uint32_t code;
    while (pattern_peek(r) != '"') {
        if (!read_char(r, &code)) return 0;
        int one = pattern_add(r, PATTERN_SET, nfa_range(&r->nfa, code, code));
        pattern_append(r, sequence, one, &last);
    }
    r->at++;
    return sequence;
}

static bool read_class_member(PatternReader *r, CharSet *s, uint32_t *code) {
    bool ok = read_char(r, code);
    if (ok) charset_add(s, *code, *code);
    return ok;
}

static int read_item(PatternReader *r) {
    int c = pattern_peek(r);
    size_t at = r->at;
    if (!is_name(c)) r->at++;
    if (c == '"') return read_literal(r);
    if (c == '[') return pattern_read_class(r);
    if (c == '(') return pattern_read_group(r);
    if (c == '.') return pattern_add(r, PATTERN_SET, nfa_range(&r->nfa, 0, CODE_MAX));
    if (c == '<') return pattern_fail(r, at, "tokens in <...> are not supported");
    if (!is_name(c))
        return pattern_fail(r, at, "expected \"...\", [...], (...) or the name of a rule");
    int rule = find_rule(r, read_name(r), at);
    return rule < 0 ? 0 : pattern_add(r, PATTERN_CALL, rule);
}

static bool read_rule(PatternReader *r) {
    size_t at = r->at;
    Str name = read_name(r);
    r->rule = name;
    if (!name.len) return pattern_fail(r, at, "expected the name of a rule");

    int rule = find_rule(r, name, at);
    if (rule < 0) return false;
    if (r->rules[rule].pattern)
        return pattern_fail(r, at, "it is defined twice; join the alternatives with |");

    pattern_skip_space(r, false);
    if (!str_begins_with(pattern_rest(r), "::=")) return pattern_fail_here(r, "expected ::=");
    r->at += 3;
    pattern_skip_space(r, true);

    int pattern = pattern_read_choice(r);
    if (!pattern) return false;
    r->rules[rule].pattern = pattern;

    pattern_skip_space(r, false);
    if (pattern_peek(r) >= 0 && pattern_peek(r) != '\n' && pattern_peek(r) != '\r')
        return pattern_fail_here(r, "expected the end of the line");
    pattern_skip_space(r, true);
    return true;
}

static const PatternSyntax gbnf_syntax = {true, read_item, read_class_member};

// Left recursion.
//
// If a rule could call itself before it has read a character, the pushdown automaton could loop
// without consuming anything. Such rules are refused.

// True if a node can match the empty text, given the is_nullable flags so far. Clears *is_safe if,
// before its first character, the node can call a rule that is not known to be safe.
static bool scan_start(const PatternReader *r, int node, bool *is_safe) {
    const PatternNode *p = &r->nodes[node];
    bool is_nullable = p->kind == PATTERN_SEQUENCE;
    switch (p->kind) {
    case PATTERN_CALL: *is_safe &= r->rules[p->arg].is_safe; return r->rules[p->arg].is_nullable;
    case PATTERN_REPEAT: return scan_start(r, p->child, is_safe) || !p->min;
    case PATTERN_SEQUENCE:
        for (int k = p->child; k && is_nullable; k = r->nodes[k].next)
            is_nullable = scan_start(r, k, is_safe);
        return is_nullable;
    case PATTERN_CHOICE:
        for (int k = p->child; k; k = r->nodes[k].next) is_nullable |= scan_start(r, k, is_safe);
        return is_nullable;
    default: return false;
    }
}

static bool fail_rule(PatternReader *r, const GrammarRule *rule, const char *why) {
    r->rule = rule->name;
    return pattern_fail(r, rule->named_at, why);
}

static bool check_rules(PatternReader *r) {
    if (!r->n_rules) return true; // compile_rules() reports that "root" is missing

    GrammarRule *end = r->rules + r->n_rules;
    for (GrammarRule *rule = r->rules; rule < end; rule++)
        if (!rule->pattern) return fail_rule(r, rule, "it is not defined");

    // A rule is nullable if it can match the empty text, possibly through other nullable rules.
    for (bool changed = true; changed;) {
        changed = false;
        if (!budget_spend(r->nfa.budget, r->n_nodes)) return fail_rule(r, r->rules, "too complex");
        for (GrammarRule *rule = r->rules; rule < end; rule++)
            if (!rule->is_nullable && scan_start(r, rule->pattern, &(bool){true}))
                rule->is_nullable = changed = true;
    }

    // A rule is safe if it can call only safe rules before its first character. All other rules
    // are on a cycle or lead to one.
    for (bool changed = true; changed;) {
        changed = false;
        for (GrammarRule *rule = r->rules; rule < end; rule++) {
            bool is_safe = !rule->is_safe;
            if (is_safe) scan_start(r, rule->pattern, &is_safe);
            if (is_safe) rule->is_safe = changed = true;
        }
    }

    for (GrammarRule *rule = r->rules; rule < end; rule++)
        if (!rule->is_safe)
            return fail_rule(r, rule,
                             "it can begin with itself (left recursion); put a character or a "
                             "literal first");

    return true;
}

// Compilation.

static Grammar *compile_rules(PatternReader *r) {
    Dfa d;
    int root = 0, largest = 0, most = 0; // the rule with most states of the NFA

    while (root < r->n_rules && !str_is(r->rules[root].name, "root")) root++;
    if (root == r->n_rules) {
        fail_rule(r, &(GrammarRule){.name = str_of("root")},
                  "it is missing; name the first rule root");
        return NULL;
    }

    NfaFragment *fragments = xalloc((size_t)r->n_rules, sizeof *fragments);
    for (int i = 0; i < r->n_rules; i++) {
        int before = r->nfa.n_states;
        fragments[i].start = nfa_state(&r->nfa);
        fragments[i].end = pattern_emit(r, r->rules[i].pattern, fragments[i].start);
        if (r->nfa.n_states - before > most) {
            most = r->nfa.n_states - before;
            largest = i;
        }
    }

    bool ok = dfa_build(&d, &r->nfa, fragments, r->n_rules, -1);
    free(fragments);
    if (!ok) {
        r->nfa.budget->err->code = 0;
        fail_rule(r, &r->rules[largest], "too complex; simplify this rule, the largest");
        return NULL;
    }

    d.start = d.starts[root];
    if (!dfa_is_empty(&d)) return grammar_of_dfa(d);
    dfa_free(&d);
    fail_rule(r, &r->rules[root], "no text matches it; its recursion never ends");
    return NULL;
}

Grammar *grammar_gbnf(Str text, Error *err) {
    Budget budget = {COMPILE_BUDGET, err};
    PatternReader r = {
        .syntax = &gbnf_syntax, .text = str_skip_bom(text), .nfa = {.budget = &budget}};
    bool ok = true;
    err->code = 0;
    pattern_skip_space(&r, true);
    while (ok && r.at < r.text.len) ok = read_rule(&r);
    Grammar *grammar = ok && check_rules(&r) ? compile_rules(&r) : NULL;
    pattern_free(&r);
    return grammar;
}
