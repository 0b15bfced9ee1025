// Regular expressions: the ECMA-262 notation for the parser of pattern.h, the compilation to a DFA
// (regex_compile), and constraints made of an expression or of choices (constrain.h).
// Order: characters and classes, structure, compilation, constraints.
#include "constrain/regex.h"
#include "constrain/constrain.h"
#include "constrain/pattern.h"
#include "base/unicode.h"

static bool looks_at(const PatternReader *r, const char *s) {
    return str_begins_with(pattern_rest(r), s);
}

// Characters and classes.

// Reads the property after \p into a set.
static bool read_property(PatternReader *r, CharSet *s) {
    Str rest = pattern_rest(r);
    size_t end = str_find(rest, str_of("}"));
    bool has_name = end != SIZE_MAX && *rest.data == '{';
    uint32_t wanted = has_name ? unicode_categories((Str){rest.data + 1, end - 1}) : 0;
    if (!wanted)
        return pattern_fail_here(
            r, "\\p supports only general categories, such as {L} or {Lu}; use a class [...]");

    for (UnicodeRun run = {0}; unicode_next_run(&run);)
        if (wanted >> run.category & 1) charset_add(s, run.first, run.end - 1);

    r->at += end + 1;
    return true;
}

typedef struct {
    int letter;
    uint32_t lo, hi;
} ClassRange;

// Adds the class \d, \w, \s or \p{...} to a set, or the complement if the letter is upper case. The
// letter n stands for the line terminators, which a dot does not match.
static bool read_class(PatternReader *r, CharSet *s, int letter) {
    static const ClassRange ranges[] = {
        {'d', '0', '9'},       {'w', '0', '9'},       {'w', 'A', 'Z'},       {'w', '_', '_'},
        {'w', 'a', 'z'},       {'s', 9, 13},          {'s', 32, 32},         {'s', 0xa0, 0xa0},
        {'s', 0x1680, 0x1680}, {'s', 0x2000, 0x200a}, {'s', 0x2028, 0x2029}, {'s', 0x202f, 0x202f},
        {'s', 0x205f, 0x205f}, {'s', 0x3000, 0x3000}, {'s', 0xfeff, 0xfeff}, {'n', '\n', '\n'},
        {'n', '\r', '\r'},     {'n', 0x2028, 0x2029}};
    int lower = letter | 0x20;
    CharSet set = {0};

    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (ranges[i].letter == lower) charset_add(&set, ranges[i].lo, ranges[i].hi);
    bool ok = lower != 'p' || read_property(r, &set);

    if (letter != lower) charset_invert(&set);
    for (int i = 0; i < set.n; i++) charset_add(s, set.at[i].lo, set.at[i].hi);

    charset_free(&set);
    return ok;
}

// The length of an escape that stands for one character, after the backslash: \n, \x41 and \u0041,
// then \u{41}, control characters, and any punctuation. 0 for any other.
static size_t escape_length(Str rest, uint32_t *code) {
    int c = (unsigned char)*rest.data;
    size_t n = c == 'U' ? 0 : pattern_escape(rest, code);
    if (n) return n;

    if (c == 'u' && rest.len > 1 && rest.data[1] == '{') {
        size_t end = str_find(rest, str_of("}"));
        n = end > 2 && end <= 8 ? pattern_hex(rest, 2, end - 2, code) : 0;
        return n ? n + 1 : 0;
    }
    if (c == 'c' && rest.len > 1) {
        *code = (unsigned char)rest.data[1] & 31;
        return 2;
    }
    if (c == '0' || c == 'b') {
        *code = c == '0' ? 0 : 8;
        return 1;
    }

    bool is_letter = (unsigned)((c | 0x20) - 'a') < 26;
    return is_letter ? 0 : (size_t)utf8_decode(rest.data, rest.len, code);
}

// Reads what follows a backslash into a set: a class (*code becomes UINT32_MAX) or one character.
static bool read_escape(PatternReader *r, CharSet *s, uint32_t *code, bool in_class) {
    int c = pattern_peek(r);
    *code = UINT32_MAX;
    if (c < 0) return pattern_fail_here(r, "nothing follows \\; write \\\\ for a backslash");

    if (c && strchr("dDwWsSpP", c)) {
        r->at++;
        return read_class(r, s, c);
    }

    if ((c == 'b' && !in_class) || c == 'B')
        return pattern_fail_here(r, "\\b and \\B are not supported");
    if ((c >= '1' && c <= '9') || c == 'k')
        return pattern_fail_here(r, "back references are not supported");

    size_t n = escape_length(pattern_rest(r), code);
    if (!n) return pattern_fail_here(r, "unknown escape");

    charset_add(s, *code, *code);
    r->at += n;
    return true;
}

static bool read_class_member(PatternReader *r, CharSet *s, uint32_t *code) {
    if (pattern_peek(r) == '\\') {
        r->at++;
        return read_escape(r, s, code, true);
    }
    if (pattern_peek(r) < 0) return pattern_fail_here(r, "the class is not closed; add ]");
    if (!pattern_read_char(r, code)) return false;
    charset_add(s, *code, *code);
    return true;
}

// Structure.

// Reads a group after its opening parenthesis.
static int read_group(PatternReader *r) {
    bool is_negated = looks_at(r, "?!");
    bool is_ahead = looks_at(r, "?=") || is_negated;
    size_t begin = r->at - 1;

    // What follows the parenthesis: (?: (?= (?! or (?<name>
    if (looks_at(r, "?:") || is_ahead) {
        r->at += 2;
    } else if (looks_at(r, "?<") && !looks_at(r, "?<=") && !looks_at(r, "?<!")) {
        size_t end = str_find(pattern_rest(r), str_of(">"));
        if (end == SIZE_MAX)
            return pattern_fail_here(r, "the name of the group is not closed; add >");
        r->at += end + 1;
    } else if (looks_at(r, "?P")) {
        return pattern_fail_here(r, "(?P is not supported; write (?<name>...) for a named group");
    } else if (looks_at(r, "?")) {
        return pattern_fail_here(r,
                                 "look-behind and flags are not supported; write [aA] for (?i)a");
    }

    int node = pattern_read_group(r);
    if (!node || !is_ahead) return node;

    int ahead = pattern_add(r, PATTERN_LOOKAHEAD, is_negated);
    r->nodes[ahead].child = node;
    r->nodes[ahead].at = begin;
    return ahead;
}

static int read_item(PatternReader *r) {
    CharSet set = {0};
    uint32_t code;
    bool ok = true;

    switch (pattern_peek(r)) {
    case '*':
    case '+':
    case '?':
        return pattern_fail_here(r, "nothing to repeat; write \\ before the character itself");
    case '^': r->at++; return pattern_add(r, PATTERN_BEGIN, 0);
    case '$': r->at++; return pattern_add(r, PATTERN_END, 0);
    case '(': r->at++; return read_group(r);
    case '[': r->at++; return pattern_read_class(r);
    case '.':
        r->at++;
        ok = read_class(r, &set, 'N');
        break;
    case '\\':
        r->at++;
        ok = read_escape(r, &set, &code, false);
        break;
    default: ok = read_class_member(r, &set, &code);
    }

    if (ok) return pattern_add(r, PATTERN_SET, nfa_set(&r->nfa, &set));
    charset_free(&set);
    return 0;
}

static const PatternSyntax regex_syntax = {.read_item = read_item,
                                           .read_member = read_class_member};

static int parse(PatternReader *r) {
    r->nfa.budget->err->code = 0;
    int root = pattern_read_choice(r);
    return root && r->at < r->text.len
               ? pattern_fail_here(r, "unexpected ); write \\) for the character")
               : root;
}

size_t regex_bounded_repeat(Str pattern, int *min, int *max) {
    Error err;
    Budget budget = {0, &err};
    PatternReader r = {.syntax = &regex_syntax, .text = pattern, .nfa = {.budget = &budget}};
    int root = parse(&r);
    const PatternNode *nodes = r.nodes;
    size_t length = 0;

    // The items of the only branch.
    int begin = root && !nodes[nodes[root].child].next ? nodes[nodes[root].child].child : 0;
    int repeat = begin ? nodes[begin].next : 0;
    int end = repeat ? nodes[repeat].next : 0;

    if (end && !nodes[end].next && nodes[begin].kind == PATTERN_BEGIN &&
        nodes[end].kind == PATTERN_END && nodes[repeat].kind == PATTERN_REPEAT &&
        nodes[repeat].max >= 0 && nodes[nodes[repeat].child].kind == PATTERN_SET) {
        *min = nodes[repeat].min;
        *max = nodes[repeat].max;
        length = nodes[repeat].at;
    }

    pattern_free(&r);
    return length;
}

// Compilation.

// Adds a state after `from` that loops on every character. Returns this state.
static int any_text(Nfa *n, int from) {
    int loop = nfa_step(n, from, NFA_EMPTY, 0);
    nfa_edge(n, nfa_step(n, loop, NFA_SET, nfa_range(n, 0, CODE_MAX)), loop, NFA_EMPTY, 0);
    return loop;
}

// Builds the DFA of a fragment. is_open: any text follows.
static bool build(PatternReader *r, NfaFragment f, bool is_open, Dfa *out) {
    if (is_open) f.end = any_text(&r->nfa, f.end);
    return !r->nfa.budget->err->code && dfa_build(out, &r->nfa, &f, 0, is_open ? f.end : -1);
}

// Look-ahead.

// Marks the look-aheads at the beginning of an alternative, also after ^. True if there is one.
static bool mark_lookaheads(PatternNode *nodes, int branch) {
    bool found = false;
    for (int k = nodes[branch].child; k; k = nodes[k].next) {
        if (nodes[k].kind != PATTERN_LOOKAHEAD && nodes[k].kind != PATTERN_BEGIN) break;
        if (nodes[k].kind == PATTERN_LOOKAHEAD) found = nodes[k].is_first = true;
    }
    return found;
}

// Compiles a node, after any character if is_later.
static bool compile_node(PatternReader *r, int node, bool is_later, bool is_open, Dfa *out) {
    Nfa *n = &r->nfa;
    NfaFragment f = {.start = nfa_state(n)};
    int from = is_later ? nfa_step(n, f.start, NFA_SET, nfa_range(n, 0, CODE_MAX)) : f.start;
    f.end = pattern_emit(r, node, from);
    return build(r, f, is_open, out);
}

// Adds the texts of a DFA, after which the text ends, between two states.
static void emit_dfa(Nfa *n, int from, const Dfa *d, int end) {
    int first = n->n_states;
    for (int i = 0; i < d->n_states; i++) nfa_state(n);
    nfa_edge(n, from, first + d->start, NFA_EMPTY, 0);
    for (int i = 1; i < d->n_states; i++)
        if (d->accept[i]) nfa_edge(n, first + i, end, NFA_END, 0);

    for (int c = 0; c < d->n_classes; c++) {
        CharSet chars = {0};
        for (int k = 0; k < d->n_bounds; k++)
            if (d->class_of[k] == c)
                charset_add(&chars, d->bounds[k],
                            k + 1 < d->n_bounds ? d->bounds[k + 1] - 1 : CODE_MAX);

        int set = nfa_set(n, &chars);
        for (int i = 1; i < d->n_states; i++) {
            int to = d->next[i * d->n_classes + c];
            if (to) nfa_edge(n, first + i, first + to, NFA_SET, set);
        }
    }
}

// Adds an alternative with look-aheads: (?=A)(?!B)C is C intersected with A.* minus B.*. In a
// search it begins at the beginning of the text, where ^ holds, or, if is_later, after a character.
static bool emit_branch(PatternReader *r, int branch, bool is_later, bool is_open, NfaFragment f) {
    Dfa d;
    bool ok = compile_node(r, branch, is_later, is_open, &d);

    for (int k = r->nodes[branch].child; ok && k; k = r->nodes[k].next) {
        if (!r->nodes[k].is_first) continue;
        Dfa ahead = {0}, both = {0};
        DfaOp op = r->nodes[k].arg ? DFA_SUBTRACT : DFA_INTERSECT;
        ok = compile_node(r, r->nodes[k].child, is_later, true, &ahead) &&
             dfa_product(&both, &d, &ahead, op, r->nfa.budget);
        dfa_free(&ahead);
        dfa_free(&d);
        d = both;
    }

    if (!ok) return false;
    emit_dfa(&r->nfa, f.start, &d, f.end);
    dfa_free(&d);
    return true;
}

bool regex_compile(Str pattern, RegexMode mode, Budget *budget, Dfa *out) {
    PatternReader r = {.syntax = &regex_syntax, .text = pattern, .nfa = {.budget = budget}};
    Nfa *n = &r.nfa;
    int root = parse(&r);
    bool ok = root, is_search = mode == REGEX_SEARCH;

    NfaFragment all = {nfa_state(n), nfa_state(n)};
    int from = is_search ? any_text(n, all.start) : all.start; // where a match begins

    for (int k = r.nodes[root].child; ok && k; k = r.nodes[k].next) {
        bool has_lookahead = mark_lookaheads(r.nodes, k);
        if (!has_lookahead) nfa_edge(n, pattern_emit(&r, k, from), all.end, NFA_EMPTY, 0);
        if (has_lookahead) ok = emit_branch(&r, k, false, is_search, all);
        if (has_lookahead && is_search)
            ok = ok && emit_branch(&r, k, true, true, (NfaFragment){from, all.end});
    }

    ok = ok && build(&r, all, is_search, out);
    pattern_free(&r);
    return ok;
}

void regex_put_literal(Buffer *pattern, Str text) {
    buffer_puts(pattern, pattern->len ? "|(" : "(");
    for (size_t i = 0; i < text.len; i++) {
        char ch = text.data[i];
        if (strchr("\\^$.*+?()[]{}|/", ch)) buffer_puts(pattern, ch ? "\\" : "\\0");
        if (ch) buffer_append(pattern, &ch, 1);
    }
    buffer_puts(pattern, ")");
}

// Constraints.

Grammar *grammar_regex(Str pattern, Error *err) {
    Budget budget = {COMPILE_BUDGET, err};
    Dfa d;
    if (!regex_compile(pattern, REGEX_WHOLE, &budget, &d)) return NULL;

    if (!dfa_is_empty(&d)) return grammar_of_dfa(d);
    dfa_free(&d);
    error_set(err, EXIT_USAGE, "regular expression: no text matches it");
    return NULL;
}

Grammar *grammar_choices(const Str *choices, int n, Error *err) {
    Buffer pattern = {0};
    uint32_t code;
    bool ok = true;

    for (int i = 0; i < n && ok; i++) {
        ok = choices[i].len || error_set(err, EXIT_USAGE, "choice %d is empty", i + 1);
        for (size_t at = 0, len; at < choices[i].len && ok; at += len) {
            len = (size_t)utf8_decode(choices[i].data + at, choices[i].len - at, &code);
            ok = len || error_set(err, EXIT_USAGE, "choice %d is not valid UTF-8", i + 1);
        }
        regex_put_literal(&pattern, choices[i]);
    }

    Grammar *g = ok ? grammar_regex(buffer_str(&pattern), err) : NULL;
    buffer_free(&pattern);
    return g;
}
