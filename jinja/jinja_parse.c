// Template text -> tree: a lexer that cuts the source into texts and tokens, and a parser by
// recursive descent in the order of Jinja's grammar. Strings of the tree stand in the source, or,
// where they had escapes, in the heap.
#include "jinja_tree.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_NESTING = 100 }; // brackets in brackets, blocks in blocks

typedef enum {
    TOKEN_TEXT,
    TOKEN_OPEN_OUTPUT,
    TOKEN_OPEN_BLOCK,
    TOKEN_CLOSE,
    TOKEN_NAME,
    TOKEN_NUMBER,
    TOKEN_QUOTED,
    TOKEN_OPERATOR,
    TOKEN_END
} JinjaTokenKind;
typedef struct {
    JinjaTokenKind kind;
    Str s;
    int line;
} JinjaToken;

// Lexer

typedef struct {
    Heap *heap;
    const Jinja *t;
    size_t at, counted; // bytes read; of them, bytes whose lines are counted
    int line, n, cap, next, depth;
    JinjaToken *tokens; // (n)
} JinjaParser;

static void push_token(JinjaParser *p, JinjaTokenKind kind, size_t from, size_t to) {
    for (; p->counted < from; p->counted++) p->line += p->t->source[p->counted] == '\n';
    p->heap->line = p->line;
    if (p->n == p->cap) {
        JinjaToken *more = heap_alloc(p->heap, (size_t)(p->cap = 2 * p->cap + 64), sizeof *more);
        if (p->n) memcpy(more, p->tokens, (size_t)p->n * sizeof *more);
        p->tokens = more;
    }
    p->tokens[p->n++] = (JinjaToken){kind, {p->t->source + from, to - from}, p->line};
}

static bool is_at(const JinjaParser *p, size_t at, const char *s) {
    size_t n = strlen(s);
    return p->t->n - at >= n && !memcmp(p->t->source + at, s, n);
}

static Text source_text(const Jinja *t, size_t from, size_t to) {
    return (Text){t->source + from, t->ones, to - from};
}

static size_t skip_blanks(const JinjaParser *p, size_t at) {
    Text rest = source_text(p->t, at, p->t->n);
    return p->t->n - text_strip(rest, NULL, true, false).len;
}

// The text before a tag at `end`: without its last blanks where the tag's sign, or lstrip_blocks,
// says so.
static void push_text(JinjaParser *p, size_t end, bool is_block) {
    const char *s = p->t->source;
    size_t line_start = end;
    char sign = end + 2 < p->t->n ? s[end + 2] : 0;
    while (line_start > p->at && (s[line_start - 1] == ' ' || s[line_start - 1] == '\t'))
        line_start--;
    if (end < p->t->n && sign == '-')
        end = p->at + text_strip(source_text(p->t, p->at, end), NULL, false, true).len;
    else if (is_block && sign != '+' && (line_start == 0 || s[line_start - 1] == '\n'))
        end = line_start;
    if (end > p->at) push_token(p, TOKEN_TEXT, p->at, end);
}

// After a tag that ends at `at`, whose sign stands before its two brackets.
static void skip_close(JinjaParser *p, size_t at, char sign, bool is_block) {
    p->at = at;
    if (sign == '-')
        p->at = skip_blanks(p, at);
    else if (is_block && sign != '+' && is_at(p, at, "\n"))
        p->at++;
}

static bool is_word(char c) {
    return c == '_' || (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || (c & 128);
}
static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static size_t skip_digits(const JinjaParser *p, size_t at) {
    while (at < p->t->n && (is_digit(p->t->source[at]) || p->t->source[at] == '_')) at++;
    return at;
}

static void lex_number(JinjaParser *p) {
    size_t at = skip_digits(p, p->at);
    const char *s = p->t->source;
    bool is_attribute = p->n && str_is(p->tokens[p->n - 1].s, "."); // a.1.2
    if (!is_attribute && at + 1 < p->t->n && s[at] == '.' && is_digit(s[at + 1]))
        at = skip_digits(p, at + 1);
    size_t sign = at + 1 < p->t->n && (s[at] | 32) == 'e' && strchr("+-", s[at + 1]) && s[at + 1];
    if (!is_attribute && at + 1 + sign < p->t->n && (s[at] | 32) == 'e' &&
        is_digit(s[at + 1 + sign]))
        at = skip_digits(p, at + 1 + sign);
    push_token(p, TOKEN_NUMBER, p->at, at);
    p->at = at;
}

static void lex_operator(JinjaParser *p) {
    static const char *const operators[] = {"**", "//", "==", "!=", ">=", "<=", "+", "-", "*",
                                            "/",  "%",  "~",  "<",  ">",  "=",  ".", ":", "|",
                                            ",",  "(",  ")",  "[",  "]",  "{",  "}"};
    size_t i = 0, n = sizeof operators / sizeof *operators;
    while (i < n && !is_at(p, p->at, operators[i])) i++;
    if (i == n) heap_fail(p->heap, "unexpected character '%.1s'", p->t->source + p->at);
    push_token(p, TOKEN_OPERATOR, p->at, p->at + strlen(operators[i]));
    p->at += strlen(operators[i]);
    if (strchr("([{", *operators[i])) p->depth++;
    if (strchr(")]}", *operators[i]) && p->depth) p->depth--;
}

static void lex_token(JinjaParser *p) {
    const char *s = p->t->source;
    size_t end = p->at + 1;
    if (*(s + p->at) == '"' || *(s + p->at) == '\'') {
        while (end < p->t->n && s[end] != s[p->at]) end += 1 + (s[end] == '\\');
        if (end >= p->t->n) heap_fail(p->heap, "a string has no end");
        push_token(p, TOKEN_QUOTED, p->at + 1, end);
        p->at = end + 1;
    } else if (is_digit(s[p->at])) {
        lex_number(p);
    } else if (is_word(s[p->at])) {
        while (end < p->t->n && is_word(s[end])) end++;
        push_token(p, TOKEN_NAME, p->at, end);
        p->at = end;
    } else {
        lex_operator(p);
    }
}

// The tokens of a tag, after its opening brackets and sign.
static void lex_tag(JinjaParser *p, bool is_block) {
    const char *close = is_block ? "%}" : "}}";
    for (p->depth = 0;;) {
        p->at = skip_blanks(p, p->at);
        push_token(p, TOKEN_END, p->at, p->at); // counts lines
        p->n--;
        if (p->at >= p->t->n) heap_fail(p->heap, "a tag has no end: expected '%s'", close);
        char sign = p->t->source[p->at];
        bool has_sign = (sign == '-' || (sign == '+' && is_block)) && is_at(p, p->at + 1, close);
        if (p->depth == 0 && (has_sign || is_at(p, p->at, close))) {
            push_token(p, TOKEN_CLOSE, p->at, p->at);
            skip_close(p, p->at + 2 + has_sign, sign, is_block);
            return;
        }
        lex_token(p);
    }
}

static size_t find_in_source(const JinjaParser *p, size_t from, const char *s) {
    size_t at =
        from < p->t->n ? str_find((Str){p->t->source + from, p->t->n - from}, str_of(s)) : SIZE_MAX;
    return at == SIZE_MAX ? p->t->n : from + at;
}

// {% word %} at `at`: the byte after it, 0 if it is none. *sign: before its end.
static size_t match_tag(const JinjaParser *p, size_t at, const char *word, char *sign) {
    if (!is_at(p, at, "{%")) return 0;
    at += 2;
    at = skip_blanks(p, at + (is_at(p, at, "-") || is_at(p, at, "+")));
    if (!is_at(p, at, word)) return 0;
    at = skip_blanks(p, at + strlen(word));
    *sign = is_at(p, at, "-%}") ? '-' : is_at(p, at, "+%}") ? '+' : 0;
    at += *sign != 0;
    return is_at(p, at, "%}") ? at + 2 : 0;
}

// From {% raw %}, which ends at `at`, to after its end.
static void lex_raw(JinjaParser *p, size_t at, char sign) {
    size_t end, after = 0;
    p->at = sign == '-' ? skip_blanks(p, at) : at;
    for (end = p->at; (end = find_in_source(p, end, "{%")) < p->t->n; end++)
        if ((after = match_tag(p, end, "endraw", &sign))) break;
    if (!after) heap_fail(p->heap, "expected 'endraw'");
    push_text(p, end, true);
    skip_close(p, after, sign, true);
}

static void lex_comment(JinjaParser *p, size_t at) {
    size_t end = find_in_source(p, at + 2, "#}");
    if (end == p->t->n) heap_fail(p->heap, "a comment has no end");
    skip_close(p, end + 2, p->t->source[end - 1], true);
}

static void lex(JinjaParser *p) {
    while (p->at < p->t->n) {
        size_t at = p->at, after;
        char sign;
        while (at < p->t->n && !is_at(p, at, "{{") && !is_at(p, at, "{%") && !is_at(p, at, "{#"))
            at++;
        bool is_block = at < p->t->n && p->t->source[at + 1] != '{';
        push_text(p, at, is_block);
        p->at = at;
        if (at == p->t->n) break;
        if (p->t->source[at + 1] == '#') {
            lex_comment(p, at);
        } else if ((after = match_tag(p, at, "raw", &sign))) {
            lex_raw(p, after, sign);
        } else {
            push_token(p, is_block ? TOKEN_OPEN_BLOCK : TOKEN_OPEN_OUTPUT, at, at + 2);
            p->at = at + 2 + (is_at(p, at + 2, "-") || (is_at(p, at + 2, "+")));
            lex_tag(p, is_block);
        }
    }
    push_token(p, TOKEN_END, p->t->n, p->t->n);
}

// JinjaParser: recursive descent, in the order of Jinja's grammar

static const JinjaToken *token(const JinjaParser *p) { return &p->tokens[p->next]; }
static const JinjaToken *token_after(const JinjaParser *p) {
    return token(p) + (token(p)->kind != TOKEN_END);
}
static bool is_name(const JinjaToken *t, const char *s) {
    return t->kind == TOKEN_NAME && str_is(t->s, s);
}
static bool is_operator(const JinjaToken *t, const char *s) {
    return t->kind == TOKEN_OPERATOR && str_is(t->s, s);
}

static const JinjaToken *take(JinjaParser *p) {
    const JinjaToken *t = token(p);
    p->heap->line = t->line;
    if (t->kind != TOKEN_END) p->next++;
    return t;
}

static bool take_name(JinjaParser *p, const char *s) { return is_name(token(p), s) && take(p); }
static bool take_operator(JinjaParser *p, const char *s) {
    return is_operator(token(p), s) && take(p);
}

static _Noreturn void fail_unexpected(JinjaParser *p, const char *expected) {
    const JinjaToken *t = token(p);
    p->heap->line = t->line;
    Str found = t->kind == TOKEN_CLOSE ? str_of("the end of the tag")
                : t->kind == TOKEN_END ? str_of("the end")
                                       : t->s;
    heap_fail(p->heap, "expected %s, found \"%.*s\"", expected, SHOWN(found));
}

static void expect_operator(JinjaParser *p, const char *s) {
    if (!take_operator(p, s)) fail_unexpected(p, s);
}

static Str expect_name(JinjaParser *p) {
    if (token(p)->kind != TOKEN_NAME) fail_unexpected(p, "a name");
    return take(p)->s;
}

static void enter(JinjaParser *p) {
    if (p->depth++ == MAX_NESTING) heap_fail(p->heap, "nested deeper than %d levels", MAX_NESTING);
}

static JinjaNode *node(JinjaParser *p, JinjaNodeKind kind, JinjaNode *a, JinjaNode *b) {
    JinjaNode *n = heap_alloc(p->heap, 1, sizeof *n);
    *n = (JinjaNode){.kind = kind, .line = p->heap->line, .a = a, .b = b};
    return n;
}

static JinjaNode *constant(JinjaParser *p, Value v) {
    JinjaNode *n = node(p, EXPR_CONST, NULL, NULL);
    n->value = v;
    return n;
}

static JinjaNode *parse_expression(JinjaParser *p);
static JinjaNode *parse_or(JinjaParser *p);
static JinjaNode *parse_unary(JinjaParser *p, bool has_filters);
static JinjaNode *parse_args(JinjaParser *p);

// One escape after a backslash, to the output; a backslash that escapes nothing stays.
static size_t put_escape(Heap *h, const char *s, size_t n) {
    static const char letters[] = "\\'\"abfnrtv\n", bytes[] = "\\'\"\a\b\f\n\r\t\v";
    char utf8[4], digits[9] = {0}, *end;
    const char *letter = memchr(letters, *s, sizeof letters - 1);
    size_t n_digits = *s == 'x' ? 2 : *s == 'u' ? 4 : *s == 'U' ? 8 : 0;
    if (letter) {
        heap_put(h, (Text){bytes + (letter - letters), NULL, *letter != '\n'});
        return 1;
    }
    if (!n_digits || n_digits >= n) return heap_puts(h, "\\"), 0;
    memcpy(digits, s + 1, n_digits);
    unsigned long code = strtoul(digits, &end, 16);
    if (*end || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        heap_fail(h, "\\%c%s is no character", *s, digits);
    heap_put(h, (Text){utf8, NULL, (size_t)utf8_encode((uint32_t)code, utf8)});
    return 1 + n_digits;
}

// Strings that stand side by side are one.
static JinjaNode *parse_string(JinjaParser *p) {
    Heap *h = p->heap;
    size_t start = h->out.len;
    while (token(p)->kind == TOKEN_QUOTED) {
        Str s = take(p)->s;
        for (size_t i = 0; i < s.len;) {
            size_t run = 0;
            while (i + run < s.len && s.data[i + run] != '\\') run++;
            heap_put(h, (Text){s.data + i, NULL, run});
            i += run;
            if (i < s.len) i += 1 + put_escape(h, s.data + i + 1, s.len - i - 1);
        }
    }
    Value v = heap_take(h, start);
    v.text.mask = memset(heap_alloc(h, v.text.len, 1), 1, v.text.len);
    return constant(p, v);
}

static JinjaNode *parse_number(JinjaParser *p) {
    char digits[64];
    size_t n = 0;
    Str s = take(p)->s;
    bool is_whole = true;
    double x;
    int64_t whole;
    for (size_t i = 0; i < s.len && n < sizeof digits - 1; i++) {
        if (s.data[i] != '_') digits[n++] = s.data[i];
        is_whole &= is_digit(s.data[i]) || s.data[i] == '_';
    }
    digits[n] = 0;
    if (is_whole && parse_i64(digits, &whole)) return constant(p, value_int(whole));
    if (is_whole || !parse_f64(digits, &x))
        heap_fail(p->heap, "the number %s is too large", digits);
    return constant(p, value_float(x));
}

// Items separated by commas, up to a closing bracket.
static JinjaNode *parse_items(JinjaParser *p, const char *close, bool are_pairs) {
    JinjaNode *first = NULL, **tail = &first;
    while (!take_operator(p, close)) {
        if (first) expect_operator(p, ",");
        if (first && take_operator(p, close)) break;
        *tail = parse_expression(p);
        tail = &(*tail)->next;
        if (!are_pairs) continue;
        expect_operator(p, ":");
        *tail = parse_expression(p);
        tail = &(*tail)->next;
    }
    return first;
}

// An expression, or several with commas: a tuple.
static JinjaNode *parse_tuple(JinjaParser *p, bool has_condition, const char *end) {
    JinjaNode *first = NULL, **tail = &first;
    bool is_tuple = false;
    while (token(p)->kind != TOKEN_CLOSE && !is_operator(token(p), ")") &&
           !(end && is_name(token(p), end))) {
        *tail = has_condition ? parse_expression(p) : parse_or(p);
        tail = &(*tail)->next;
        if (!take_operator(p, ",")) break;
        is_tuple = true;
    }
    if (first && !is_tuple) return first;
    if (!first && !is_operator(token(p), ")")) fail_unexpected(p, "an expression");
    return node(p, EXPR_TUPLE, first, NULL);
}

static JinjaNode *parse_primary(JinjaParser *p) {
    static const struct {
        const char *name;
        ValueKind kind;
        bool boolean;
    } words[] = {{"true", VALUE_BOOL, true},   {"True", VALUE_BOOL, true},
                 {"false", VALUE_BOOL, false}, {"False", VALUE_BOOL, false},
                 {"none", VALUE_NONE, false},  {"None", VALUE_NONE, false}};
    JinjaNode *n;
    if (token(p)->kind == TOKEN_QUOTED) return parse_string(p);
    if (token(p)->kind == TOKEN_NUMBER) return parse_number(p);
    if (take_operator(p, "(")) {
        n = parse_tuple(p, true, NULL);
        expect_operator(p, ")");
        return n;
    }
    if (take_operator(p, "[")) return node(p, EXPR_LIST, parse_items(p, "]", false), NULL);
    if (take_operator(p, "{")) return node(p, EXPR_DICT, parse_items(p, "}", true), NULL);
    if (token(p)->kind != TOKEN_NAME) fail_unexpected(p, "an expression");
    Str name = take(p)->s;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (str_is(name, words[i].name))
            return constant(p, (Value){.kind = words[i].kind, .boolean = words[i].boolean});
    n = node(p, EXPR_NAME, NULL, NULL);
    n->name = name;
    return n;
}

// What stands between the brackets of an index.
static JinjaNode *parse_index(JinjaParser *p, JinjaNode *of) {
    JinjaNode *parts[3] = {NULL}, *n;
    int k = 0;
    for (; k < 3 && !is_operator(token(p), "]"); k++) {
        if (!is_operator(token(p), ":")) parts[k] = parse_expression(p);
        if (!take_operator(p, ":")) break;
    }
    bool is_slice = k > 0 || !parts[0];
    expect_operator(p, "]");
    if (!is_slice) return node(p, EXPR_ITEM, of, parts[0]);
    if (k == 0) fail_unexpected(p, "an index");
    n = node(p, EXPR_SLICE, of, parts[0]);
    n->c = parts[1], n->other = parts[2];
    return n;
}

static JinjaNode *parse_postfix(JinjaParser *p, JinjaNode *n) {
    for (;;) {
        if (take_operator(p, ".")) {
            bool is_index = token(p)->kind == TOKEN_NUMBER;
            JinjaNode *index = is_index ? parse_number(p) : NULL;
            n = node(p, is_index ? EXPR_ITEM : EXPR_ATTRIBUTE, n, index);
            if (!is_index) n->name = expect_name(p);
        } else if (take_operator(p, "[")) {
            n = parse_index(p, n);
        } else if (take_operator(p, "(")) {
            n = node(p, EXPR_CALL, n, NULL);
            n->b = parse_args(p);
        } else {
            return n;
        }
    }
}

// Arguments up to the closing bracket.
static JinjaNode *parse_args(JinjaParser *p) {
    JinjaNode *first = NULL, **tail = &first;
    int count = 0;
    while (!take_operator(p, ")")) {
        if (first) expect_operator(p, ",");
        if (first && take_operator(p, ")")) break;
        if (++count > JINJA_MAX_ARGS)
            heap_fail(p->heap, "a call with more than %d arguments", JINJA_MAX_ARGS);
        JinjaNode *n = node(p, EXPR_ARG, NULL, NULL);
        if (take_operator(p, "**"))
            n->op = '2';
        else if (take_operator(p, "*"))
            n->op = '*';
        else if (token(p)->kind == TOKEN_NAME && is_operator(token_after(p), "="))
            n->name = take(p)->s, take(p);
        n->a = parse_expression(p);
        *tail = n;
        tail = &n->next;
    }
    return first;
}

// After "|": filters, applied from the left. `of` NULL: to the body of a block.
static JinjaNode *parse_filter(JinjaParser *p, JinjaNode *of) {
    do {
        JinjaNode *n = node(p, EXPR_FILTER, of, NULL);
        n->name = expect_name(p);
        if (take_operator(p, "(")) n->b = parse_args(p);
        of = n;
    } while (take_operator(p, "|"));
    return of;
}

// After "is": a test, whose one argument needs no brackets.
static JinjaNode *parse_test(JinjaParser *p, JinjaNode *of) {
    JinjaNode *n = node(p, EXPR_TEST, of, NULL);
    n->op = take_name(p, "not");
    n->name = expect_name(p);
    const JinjaToken *t = token(p);
    bool has_arg =
        t->kind == TOKEN_NUMBER || t->kind == TOKEN_QUOTED || is_operator(t, "[") ||
        is_operator(t, "{") ||
        (t->kind == TOKEN_NAME && !is_name(t, "else") && !is_name(t, "or") && !is_name(t, "and") &&
         !is_name(t, "is") && !is_name(t, "if") && !is_name(t, "recursive"));
    if (take_operator(p, "(")) {
        n->b = parse_args(p);
    } else if (has_arg) {
        n->b = node(p, EXPR_ARG, NULL, NULL);
        n->b->a = parse_postfix(p, parse_primary(p));
    }
    if (is_name(token(p), "is")) heap_fail(p->heap, "a test of a test needs brackets");
    return n;
}

static JinjaNode *parse_filters(JinjaParser *p, JinjaNode *n) {
    for (;;) {
        if (take_operator(p, "|")) {
            n = parse_filter(p, n);
        } else if (take_name(p, "is")) {
            n = parse_test(p, n);
        } else if (take_operator(p, "(")) {
            n = node(p, EXPR_CALL, n, NULL);
            n->b = parse_args(p);
        } else {
            return n;
        }
    }
}

static JinjaNode *parse_unary(JinjaParser *p, bool has_filters) {
    JinjaNode *n;
    enter(p);
    if (take_operator(p, "-"))
        n = node(p, EXPR_NEGATIVE, parse_unary(p, false), NULL);
    else if (take_operator(p, "+"))
        n = parse_unary(p, false);
    else
        n = parse_primary(p);
    n = parse_postfix(p, n);
    if (has_filters) n = parse_filters(p, n);
    p->depth--;
    return n;
}

// The operators of each level, weakest first; all of them group from the left.
static JinjaNode *parse_binary(JinjaParser *p, int level) {
    static const struct {
        const char *sign;
        int level, op;
    } operators[] = {{"+", 0, JINJA_ADD}, {"-", 0, JINJA_SUB}, {"~", 1, JINJA_CONCAT},
                     {"*", 2, JINJA_MUL}, {"/", 2, JINJA_DIV}, {"//", 2, JINJA_FLOOR},
                     {"%", 2, JINJA_MOD}, {"**", 3, JINJA_POW}};
    enum { N_OPERATORS = sizeof operators / sizeof *operators };
    if (level == 4) return parse_unary(p, true);
    JinjaNode *left = parse_binary(p, level + 1);
    for (int i = 0; i < N_OPERATORS; i++) {
        if (operators[i].level != level || !take_operator(p, operators[i].sign)) continue;
        JinjaNode *right = parse_binary(p, level + 1);
        left = node(p, EXPR_BINARY, left, right);
        left->op = operators[i].op;
        i = -1;
    }
    return left;
}

static int take_comparison(JinjaParser *p) {
    static const char *const signs[] = {"==", "!=", "<=", ">=", "<", ">"};
    for (int i = 0; i < 6; i++)
        if (take_operator(p, signs[i])) return JINJA_EQ + i;
    if (take_name(p, "in")) return JINJA_IN;
    if (!is_name(token(p), "not") || !is_name(token_after(p), "in")) return -1;
    take(p), take(p);
    return JINJA_NOT_IN;
}

static JinjaNode *parse_comparison(JinjaParser *p) {
    JinjaNode *left = parse_binary(p, 0), *all = NULL, **tail = NULL;
    for (int op; (op = take_comparison(p)) >= 0; tail = &(*tail)->next) {
        if (!all) all = node(p, EXPR_COMPARE, left, NULL), tail = &all->b;
        *tail = node(p, EXPR_COMPARE, parse_binary(p, 0), NULL);
        (*tail)->op = op;
    }
    return all ? all : left;
}

static JinjaNode *parse_not(JinjaParser *p) {
    if (!take_name(p, "not")) return parse_comparison(p);
    enter(p);
    JinjaNode *n = node(p, EXPR_NOT, parse_not(p), NULL);
    p->depth--;
    return n;
}

static JinjaNode *parse_and(JinjaParser *p) {
    JinjaNode *left = parse_not(p);
    while (take_name(p, "and")) left = node(p, EXPR_AND, left, parse_not(p));
    return left;
}

static JinjaNode *parse_or(JinjaParser *p) {
    JinjaNode *left = parse_and(p);
    while (take_name(p, "or")) left = node(p, EXPR_OR, left, parse_and(p));
    return left;
}

static JinjaNode *parse_expression(JinjaParser *p) {
    enter(p);
    JinjaNode *n = parse_or(p);
    while (take_name(p, "if")) {
        n = node(p, EXPR_IF, parse_or(p), n);
        if (take_name(p, "else")) n->c = parse_expression(p);
    }
    p->depth--;
    return n;
}

// What can be assigned to: a name, an attribute of a namespace, or several of them.
static JinjaNode *parse_target(JinjaParser *p) {
    JinjaNode *n = parse_primary(p);
    if (take_operator(p, ".")) {
        n = node(p, EXPR_ATTRIBUTE, n, NULL);
        n->name = expect_name(p);
    } else if (is_operator(token(p), ",")) {
        n = node(p, EXPR_TUPLE, n, NULL);
        for (JinjaNode *last = n->a;
             take_operator(p, ",") && token(p)->kind == TOKEN_NAME && !is_name(token(p), "in");)
            last = last->next = parse_primary(p);
    }
    if (n->kind != EXPR_NAME && n->kind != EXPR_ATTRIBUTE && n->kind != EXPR_TUPLE)
        heap_fail(p->heap, "cannot assign to this");
    return n;
}

static JinjaNode *parse_body(JinjaParser *p, const char *const *ends);

static void expect_close(JinjaParser *p) {
    if (token(p)->kind != TOKEN_CLOSE) fail_unexpected(p, "the end of the tag");
    take(p);
}

// The body of a statement up to {% end %}.
static JinjaNode *parse_until(JinjaParser *p, const char *end) {
    expect_close(p);
    JinjaNode *body = parse_body(p, (const char *const[]){end, NULL});
    take(p);
    expect_close(p);
    return body;
}

static JinjaNode *parse_if(JinjaParser *p) {
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    enter(p);
    JinjaNode *n = node(p, STMT_IF, parse_tuple(p, false, NULL), NULL);
    expect_close(p);
    n->body = parse_body(p, ends);
    if (take_name(p, "elif"))
        n->other = parse_if(p);
    else if (take_name(p, "else"))
        n->other = parse_until(p, "endif");
    else
        take(p), expect_close(p);
    p->depth--;
    return n;
}

static JinjaNode *parse_for(JinjaParser *p) {
    static const char *const ends[] = {"else", "endfor", NULL};
    JinjaNode *n = node(p, STMT_FOR, parse_target(p), NULL);
    if (!take_name(p, "in")) fail_unexpected(p, "in");
    n->b = parse_tuple(p, false, "recursive");
    if (take_name(p, "if")) n->c = parse_expression(p);
    n->op = take_name(p, "recursive");
    expect_close(p);
    n->body = parse_body(p, ends);
    if (take_name(p, "else"))
        n->other = parse_until(p, "endfor");
    else
        take(p), expect_close(p);
    return n;
}

static JinjaNode *parse_set(JinjaParser *p) {
    JinjaNode *n = node(p, STMT_SET, parse_target(p), NULL);
    if (take_operator(p, "=")) {
        n->b = parse_tuple(p, true, NULL);
        expect_close(p);
    } else {
        n->kind = STMT_CAPTURE;
        if (take_operator(p, "|")) n->b = parse_filter(p, NULL);
        n->body = parse_until(p, "endset");
    }
    return n;
}

// The parameters of a macro, after "(": names with defaults.
static JinjaNode *parse_params(JinjaParser *p) {
    JinjaNode *args = parse_args(p);
    for (JinjaNode *n = args; n; n = n->next) {
        if (!n->name.data && n->a->kind == EXPR_NAME && !n->op)
            n->name = n->a->name, n->a = NULL;
        else if (!n->name.data)
            heap_fail(p->heap, "expected the name of a parameter");
    }
    return args;
}

static JinjaNode *parse_macro(JinjaParser *p) {
    JinjaNode *n = node(p, STMT_MACRO, NULL, NULL);
    n->name = expect_name(p);
    expect_operator(p, "(");
    n->a = parse_params(p);
    n->body = parse_until(p, "endmacro");
    return n;
}

static JinjaNode *parse_call_block(JinjaParser *p) {
    JinjaNode *n = node(p, STMT_CALL, NULL, NULL);
    if (take_operator(p, "(")) n->b = parse_params(p);
    n->a = parse_expression(p);
    if (n->a->kind != EXPR_CALL) heap_fail(p->heap, "expected a call");
    n->body = parse_until(p, "endcall");
    return n;
}

static JinjaNode *parse_with(JinjaParser *p) {
    JinjaNode *n = node(p, STMT_WITH, NULL, NULL), **tail = &n->a;
    while (token(p)->kind != TOKEN_CLOSE) {
        if (n->a) expect_operator(p, ",");
        *tail = node(p, STMT_SET, parse_primary(p), NULL);
        expect_operator(p, "=");
        (*tail)->b = parse_expression(p);
        tail = &(*tail)->next;
    }
    n->body = parse_until(p, "endwith");
    return n;
}

static JinjaNode *parse_statement(JinjaParser *p) {
    JinjaNode *n;
    p->heap->line = token(p)->line;
    if (take_name(p, "if")) return parse_if(p);
    if (take_name(p, "for")) return parse_for(p);
    if (take_name(p, "set")) return parse_set(p);
    if (take_name(p, "macro")) return parse_macro(p);
    if (take_name(p, "call")) return parse_call_block(p);
    if (take_name(p, "with")) return parse_with(p);
    if (take_name(p, "filter")) {
        n = node(p, STMT_FILTER, NULL, parse_filter(p, NULL));
        n->body = parse_until(p, "endfilter");
        return n;
    }
    if (take_name(p, "generation")) {
        n = node(p, STMT_BLOCK, NULL, NULL);
        n->body = parse_until(p, "endgeneration");
        return n;
    }
    bool is_break = take_name(p, "break");
    if (!is_break && !take_name(p, "continue"))
        heap_fail(p->heap, "unknown tag '%.*s'", SHOWN(token(p)->s));
    n = node(p, is_break ? STMT_BREAK : STMT_CONTINUE, NULL, NULL);
    expect_close(p);
    return n;
}

// Statements up to a tag that one of `ends` names, which is left; NULL: to the end.
static JinjaNode *parse_body(JinjaParser *p, const char *const *ends) {
    JinjaNode *first = NULL, **tail = &first;
    enter(p);
    for (; token(p)->kind != TOKEN_END; tail = &(*tail)->next) {
        const JinjaToken *t = take(p);
        if (t->kind == TOKEN_TEXT) {
            *tail = node(p, STMT_TEXT, NULL, NULL);
            (*tail)->value = value_text((Text){t->s.data, p->t->ones, t->s.len});
        } else if (t->kind == TOKEN_OPEN_OUTPUT) {
            *tail = node(p, STMT_OUTPUT, parse_tuple(p, true, NULL), NULL);
            expect_close(p);
        } else {
            for (int i = 0; ends && ends[i]; i++)
                if (is_name(token(p), ends[i])) return p->depth--, first;
            *tail = parse_statement(p);
        }
    }
    if (ends)
        heap_fail(p->heap, "expected '%s', found the end of the template",
                  ends[ends[1] ? ends[2] ? 2 : 1 : 0]);
    p->depth--;
    return first;
}

void jinja_parse(Jinja *t) {
    JinjaParser p = {.heap = &t->heap, .t = t, .line = 1};
    lex(&p);
    p.depth = 0;
    t->root = parse_body(&p, NULL);
}
