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

// Fails because of a construct that is not supported.
static bool refuse(PatternReader *r, const char *why) {
    r->is_refused = true;
    return pattern_fail_here(r, why);
}

// Characters and classes.

// Reads the property after \p into a set.
static bool read_property(PatternReader *r, CharSet *s) {
    Str rest = pattern_rest(r);
    size_t end = str_find(rest, str_of("}"));
    bool has_name = end != SIZE_MAX && *rest.data == '{';
    uint32_t wanted = has_name ? unicode_categories((Str){rest.data + 1, end - 1}) : 0;
    if (!wanted)
        return refuse(
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

    if ((c == 'b' && !in_class) || c == 'B') return refuse(r, "\\b and \\B are not supported");
    if ((c >= '1' && c <= '9') || c == 'k') return refuse(r, "backreferences are not supported");

    size_t n = escape_length(pattern_rest(r), code);
    if (!n) return pattern_fail_here(r, "unknown escape; write \\\\ for a backslash");

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

// Adds a choice of two nodes, each of which is a branch.
static int add_choice(PatternReader *r, int a, int b) {
    int choice = pattern_add(r, PATTERN_CHOICE, 0), last = 0;
    const int nodes[] = {a, b};
    for (int i = 0; i < 2; i++) {
        int sequence = pattern_add(r, PATTERN_SEQUENCE, 0);
        pattern_append(r, choice, sequence, &last);
        r->nodes[sequence].child = nodes[i];
    }
    return choice;
}

static int line_terminators(PatternReader *r) {
    CharSet set = {0};
    read_class(r, &set, 'n');
    return nfa_set(&r->nfa, &set);
}

static int read_line_begin(PatternReader *r) {
    int begin = pattern_add(r, PATTERN_BEGIN, 0);
    if (!r->is_multiline) return begin;
    return add_choice(r, begin, pattern_add(r, PATTERN_AFTER, line_terminators(r)));
}

static int read_line_end(PatternReader *r) {
    int end = pattern_add(r, PATTERN_END, 0);
    if (!r->is_multiline) return end;
    int ahead = pattern_add(r, PATTERN_LOOKAHEAD, 0);
    int set = pattern_add(r, PATTERN_SET, line_terminators(r));
    r->nodes[ahead].child = set;
    return add_choice(r, end, ahead);
}

// Makes a group the text before a place. It must be one character or class.
static int make_lookbehind(PatternReader *r, int group, size_t begin) {
    const PatternNode *branch = &r->nodes[r->nodes[group].child];
    const PatternNode *item = &r->nodes[branch->child];
    bool is_set = !branch->next && branch->child && item->kind == PATTERN_SET && !item->next;
    r->is_refused = !is_set;
    if (!is_set)
        return pattern_fail(r, begin, "lookbehind is supported only for one character or class");
    return pattern_add(r, PATTERN_AFTER, item->arg);
}

// Reads the flags after "(?", as in (?s) and (?s:...). Only (?s) and (?m) at the beginning of an
// expression apply to what follows.
static bool read_flags(PatternReader *r) {
    size_t begin = r->at - 1;
    bool is_on = true;
    for (r->at++;; r->at++) {
        int flag = pattern_peek(r);
        if (flag != 's' && flag != 'm' && flag != '-') break;
        if (flag == '-') is_on = false;
        if (flag == 's') r->dot_all = is_on;
        if (flag == 'm') r->is_multiline = is_on;
    }
    int end = pattern_peek(r);
    if (end == ':' || (end == ')' && begin == 0)) return true;

    r->at = begin + 2;
    int first = pattern_peek(r);
    bool has_flags = first == '-' || (unsigned)((first | 0x20) - 'a') < 26;
    r->at = begin + 1;
    if (!has_flags) return pattern_fail_here(r, "unknown kind of group; write (?:...) for a group");
    if (end == ')')
        return refuse(r, "(?s) and (?m) are supported only at the beginning; write (?s:...)");
    return refuse(r, "of the flags, only s and m are supported; write [aA] for (?i)a");
}

// Reads a group with flags after its opening parenthesis.
static int read_flag_group(PatternReader *r) {
    bool dot_all = r->dot_all, is_multiline = r->is_multiline;
    if (!read_flags(r)) return 0;

    bool is_rest = pattern_peek(r) == ')';
    r->at++;
    if (is_rest) return pattern_add(r, PATTERN_SEQUENCE, 0);

    int group = pattern_read_group(r);
    r->dot_all = dot_all;
    r->is_multiline = is_multiline;
    return group;
}

// Reads a group after its opening parenthesis.
static int read_group(PatternReader *r) {
    bool is_negated = looks_at(r, "?!");
    bool is_ahead = looks_at(r, "?=") || is_negated;
    bool is_behind = looks_at(r, "?<=");
    size_t begin = r->at - 1;

    // The kind of the group: (?: (?= (?! (?<= or (?<name>
    if (looks_at(r, "?:") || is_ahead) {
        r->at += 2;
    } else if (is_behind) {
        r->at += 3;
    } else if (looks_at(r, "?<!")) {
        return refuse(r, "negative lookbehind is not supported");
    } else if (looks_at(r, "?<")) {
        size_t end = str_find(pattern_rest(r), str_of(">"));
        if (end == SIZE_MAX)
            return pattern_fail_here(r, "the name of the group is not closed; add >");
        r->at += end + 1;
    } else if (looks_at(r, "?P")) {
        return pattern_fail_here(r, "(?P is not supported; write (?<name>...) for a named group");
    } else if (looks_at(r, "?")) {
        return read_flag_group(r);
    }

    int node = pattern_read_group(r);
    if (node && is_behind) return make_lookbehind(r, node, begin);
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
    case '^': r->at++; return read_line_begin(r);
    case '$': r->at++; return read_line_end(r);
    case '(': r->at++; return read_group(r);
    case '[': r->at++; return pattern_read_class(r);
    case '.':
        r->at++;
        if (r->dot_all)
            charset_add(&set, 0, CODE_MAX);
        else
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

bool regex_is_valid(Str text) {
    Error err;
    Budget budget = {0, &err};
    PatternReader r = {.syntax = &regex_syntax, .text = text, .nfa = {.budget = &budget}};
    bool is_valid = parse(&r) || r.is_refused;
    pattern_free(&r);
    return is_valid;
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

// Lookahead.
//
// Where (?=A) occurs, all that follows it up to the end of the expression, R, is known, except in a
// repetition. The texts that may follow are the intersection of R and A.*, or, for (?!A), R without
// A.*. Their DFA takes the place of the lookahead and of R. Therefore an expression is emitted
// together with what follows it. Alternatives of a group with a lookahead have a copy each of what
// follows the group.

// The rest of an expression: the items of a sequence from `item` on, then `next`.
typedef struct PatternRest {
    int item;
    const struct PatternRest *next;
} PatternRest;

// Where an expression ends.
typedef struct {
    int state;
    bool is_open; // any text follows
} PatternEnd;

// Sets has_lookahead and has_begin of a node and of all nodes in it.
static void mark_node(PatternNode *nodes, int node) {
    PatternNode *p = &nodes[node];
    p->has_lookahead = p->kind == PATTERN_LOOKAHEAD;
    p->has_begin = p->kind == PATTERN_BEGIN;
    for (int k = p->child; k; k = nodes[k].next) {
        mark_node(nodes, k);
        p->has_lookahead |= nodes[k].has_lookahead;
        p->has_begin |= nodes[k].has_begin;
    }
}

static bool rest_has_begin(const PatternReader *r, const PatternRest *rest) {
    for (; rest; rest = rest->next)
        for (int k = rest->item; k; k = r->nodes[k].next)
            if (r->nodes[k].has_begin) return true;
    return false;
}

// Adds the texts of a DFA, after which the text ends, between two states. The first edge is of the
// given kind.
static void emit_dfa(Nfa *n, int from, NfaEdgeKind kind, const Dfa *d, int end) {
    int first = n->n_states;
    for (int i = 0; i < d->n_states; i++) nfa_state(n);
    nfa_edge(n, from, first + d->start, kind, 0);
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

static bool emit_rest(PatternReader *r, PatternRest rest, int from, PatternEnd end);

// Compiles items at a place of the text, see NfaFragment.
static bool compile_rest(PatternReader *r, PatternRest rest, NfaEdgeKind place, bool is_open,
                         Dfa *out) {
    NfaFragment f = {nfa_state(&r->nfa), nfa_state(&r->nfa), place};
    return emit_rest(r, rest, f.start, (PatternEnd){f.end, is_open}) && build(r, f, is_open, out);
}

// Adds a lookahead and what follows it at a place of the text.
static bool emit_ahead_at(PatternReader *r, int ahead, PatternRest rest, int from,
                          NfaEdgeKind place, PatternEnd end) {
    const PatternNode *p = &r->nodes[ahead];
    PatternRest inside = {p->child, NULL};
    Dfa follows = {0}, wanted = {0}, both = {0};
    DfaOp op = p->arg ? DFA_SUBTRACT : DFA_INTERSECT;

    bool ok = compile_rest(r, rest, place, end.is_open, &follows) &&
              compile_rest(r, inside, place, true, &wanted) &&
              dfa_product(&both, &follows, &wanted, op, r->nfa.budget);
    if (ok && !r->nfa.is_full) emit_dfa(&r->nfa, from, place, &both, end.state);

    dfa_free(&follows);
    dfa_free(&wanted);
    dfa_free(&both);
    return ok;
}

// Adds a lookahead and what follows it. A ^ in them holds only at the beginning of the text.
static bool emit_ahead(PatternReader *r, int ahead, PatternRest rest, int from, PatternEnd end) {
    bool has_begin = r->nodes[ahead].has_begin || rest_has_begin(r, &rest);
    if (!has_begin) return emit_ahead_at(r, ahead, rest, from, NFA_EMPTY, end);
    return emit_ahead_at(r, ahead, rest, from, NFA_BEGIN, end) &&
           emit_ahead_at(r, ahead, rest, from, NFA_LATER, end);
}

// Adds a repetition that contains a lookahead, and what follows it.
static bool emit_optional(PatternReader *r, int repeat, PatternRest rest, int from,
                          PatternEnd end) {
    const PatternNode *p = &r->nodes[repeat];
    if (p->max != 1) {
        pattern_emit(r, repeat, from); // fails
        return false;
    }
    bool ok = p->min || emit_rest(r, rest, from, end);
    return ok && emit_rest(r, (PatternRest){p->child, &rest}, from, end);
}

// Adds the states that read the rest of an expression after state `from`, up to its end.
static bool emit_rest(PatternReader *r, PatternRest rest, int from, PatternEnd end) {
    const PatternNode *nodes = r->nodes;
    int k = rest.item;
    bool ok = true;

    for (; k && !nodes[k].has_lookahead; k = nodes[k].next) from = pattern_emit(r, k, from);
    if (r->nfa.is_full) return true; // dfa_build() reports it
    if (!k && rest.next) return emit_rest(r, *rest.next, from, end);
    if (!k) {
        nfa_edge(&r->nfa, from, end.state, NFA_EMPTY, 0);
        return true;
    }

    // Item k is or contains a lookahead.
    const PatternNode *p = &nodes[k];
    PatternRest after = {p->next, rest.next};
    PatternRest inside = {p->child, &after};

    switch (p->kind) {
    case PATTERN_SEQUENCE: return emit_rest(r, inside, from, end);
    case PATTERN_REPEAT: return emit_optional(r, k, after, from, end);
    case PATTERN_LOOKAHEAD: return emit_ahead(r, k, after, from, end);
    default: // a choice
        for (int b = p->child; b && ok; b = nodes[b].next)
            ok = emit_rest(r, (PatternRest){nodes[b].child, &after}, from, end);
        return ok;
    }
}

bool regex_compile(Str pattern, RegexMode mode, Budget *budget, Dfa *out) {
    PatternReader r = {.syntax = &regex_syntax, .text = pattern, .nfa = {.budget = budget}};
    Nfa *n = &r.nfa;
    bool is_search = mode == REGEX_SEARCH;
    int root = parse(&r);
    if (root) mark_node(r.nodes, root);

    // In a search, a match may begin anywhere.
    NfaFragment all = {nfa_state(n), nfa_state(n), NFA_BEGIN};
    int from = is_search ? any_text(n, all.start) : all.start;
    PatternEnd end = {all.end, is_search};
    bool ok = root && emit_rest(&r, (PatternRest){root, NULL}, from, end) &&
              build(&r, all, is_search, out);

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
