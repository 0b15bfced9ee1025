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

// Adds the class \d, \w, \s or \p{...} to a set, or the complement if the letter is upper case. The
// letter n stands for the line terminators, which a dot does not match.
static bool read_class(PatternReader *r, CharSet *s, int letter) {
    static const struct {
        int letter;
        uint32_t lo, hi;
    } ranges[] = {{'d', '0', '9'},       {'w', '0', '9'},       {'w', 'A', 'Z'},
                  {'w', '_', '_'},       {'w', 'a', 'z'},       {'s', 9, 13},
                  {'s', 32, 32},         {'s', 0xa0, 0xa0},     {'s', 0x1680, 0x1680},
                  {'s', 0x2000, 0x200a}, {'s', 0x2028, 0x2029}, {'s', 0x202f, 0x202f},
                  {'s', 0x205f, 0x205f}, {'s', 0x3000, 0x3000}, {'s', 0xfeff, 0xfeff},
                  {'n', '\n', '\n'},     {'n', '\r', '\r'},     {'n', 0x2028, 0x2029}};
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

// Reads what follows a backslash into a set: a class (*code becomes UINT32_MAX) or one character.
static bool read_escape(PatternReader *r, CharSet *s, uint32_t *code, bool in_class) {
    int c = pattern_peek(r);
    Str rest = pattern_rest(r);
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

    // Characters: \n, \x41 and \u0041, then \u{41}, control characters, and any punctuation.
    size_t n = c == 'U' ? 0 : pattern_escape(rest, code);
    if (!n && c == 'u' && rest.len > 1 && rest.data[1] == '{') {
        const char *end = memchr(rest.data, '}', rest.len);
        size_t n_digits = end ? (size_t)(end - rest.data) - 2 : 0;
        n = n_digits && n_digits <= 6 ? pattern_hex(rest, 2, n_digits, code) : 0;
        n += n > 0;
    } else if (!n && c == 'c' && rest.len > 1) {
        *code = (unsigned char)rest.data[1] & 31;
        n = 2;
    } else if (!n && (c == '0' || c == 'b')) {
        *code = c == '0' ? 0 : 8;
        n = 1;
    } else if (!n && ((c | 0x20) < 'a' || (c | 0x20) > 'z')) {
        n = (size_t)utf8_decode(rest.data, rest.len, code);
    }

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
    } else if (looks_at(r, "?")) {
        return pattern_fail_here(r, "look-behind and flags are not supported");
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

static bool compile_node(PatternReader *r, int node, RegexMode mode, Dfa *out) {
    NfaFragment f = {.start = nfa_state(&r->nfa)};
    int universal = -1;
    f.end = pattern_emit(r, node, mode == REGEX_SEARCH ? any_text(&r->nfa, f.start) : f.start);
    if (mode != REGEX_WHOLE) f.end = universal = any_text(&r->nfa, f.end);
    return dfa_build(out, &r->nfa, &f, 0, universal);
}

static bool check_no_lookahead(PatternReader *r, int node) {
    if (r->nodes[node].kind == PATTERN_LOOKAHEAD)
        return pattern_fail(r, r->nodes[node].at,
                            "a look-ahead is supported only at the beginning of the expression; in "
                            "a search, after ^");
    bool ok = true;
    for (int k = r->nodes[node].child; k && ok; k = r->nodes[k].next) ok = check_no_lookahead(r, k);
    return ok;
}

// ^(?=A)(?!B)C is compiled as C intersected with A.* minus B.*. If the pattern has only one branch,
// the look-aheads at its beginning are removed from the tree and compiled separately. A look-ahead
// that remains in a tree is an error.
bool regex_compile(Str pattern, RegexMode mode, Budget *budget, Dfa *out) {
    PatternReader r = {.syntax = &regex_syntax, .text = pattern, .nfa = {.budget = budget}};
    Dfa ahead, both;
    int root = parse(&r);
    if (!root) {
        pattern_free(&r);
        return false;
    }

    // The nodes [first, rest) of the only branch are ^ and the look-aheads at its beginning.
    PatternNode *nodes = r.nodes;
    PatternNode *sequence = &nodes[nodes[root].child];
    int first = sequence->child, rest = first;
    bool is_anchored = mode != REGEX_SEARCH || (first && nodes[first].kind == PATTERN_BEGIN);
    bool may_begin = is_anchored && !sequence->next;
    for (int k = first; may_begin && k; k = nodes[k].next) {
        if (nodes[k].kind == PATTERN_LOOKAHEAD) rest = nodes[k].next;
        may_begin = nodes[k].kind == PATTERN_LOOKAHEAD || nodes[k].kind == PATTERN_BEGIN;
    }

    sequence->child = rest;
    if (rest != first && mode == REGEX_SEARCH) mode = REGEX_PREFIX;

    // Compile the rest, and intersect it with each look-ahead or subtract the look-ahead.
    bool ok = check_no_lookahead(&r, root) && compile_node(&r, root, mode, out);
    for (int k = first; ok && k != rest; k = nodes[k].next) {
        if (nodes[k].kind != PATTERN_LOOKAHEAD) continue;

        ok = check_no_lookahead(&r, nodes[k].child) &&
             compile_node(&r, nodes[k].child, REGEX_PREFIX, &ahead);
        if (ok) {
            DfaOp op = nodes[k].arg ? DFA_SUBTRACT : DFA_INTERSECT;
            ok = dfa_product(&both, out, &ahead, op, budget);
            dfa_free(&ahead);
        }

        dfa_free(out);
        if (ok) *out = both;
    }

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
