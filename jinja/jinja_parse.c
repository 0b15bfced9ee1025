// Template text -> tree: a lexer that cuts the source into texts and tokens, and a parser by
// recursive descent in the order of Jinja's grammar. Strings of the tree stand in the source, or,
// where they had escapes, in the heap.
#include "jinja_tree.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_NESTING = 100 }; // brackets in brackets, blocks in blocks

typedef enum {
    TEXT,
    OPEN_OUTPUT,
    OPEN_BLOCK,
    CLOSE,
    NAME,
    NUMBER,
    QUOTED,
    OPERATOR,
    END
} TokenKind;
typedef struct {
    TokenKind kind;
    Str s;
    int line;
} Token;

// Lexer

typedef struct {
    Heap *heap;
    const Jinja *t;
    size_t at, counted; // bytes read; of them, bytes whose lines are counted
    int line, n, cap, next, depth;
    Token *tokens; // (n)
} Parser;

static void push_token(Parser *p, TokenKind kind, size_t from, size_t to) {
    for (; p->counted < from; p->counted++) p->line += p->t->source[p->counted] == '\n';
    p->heap->line = p->line;
    if (p->n == p->cap) {
        Token *more = heap_alloc(p->heap, (size_t)(p->cap = 2 * p->cap + 64), sizeof *more);
        if (p->n) memcpy(more, p->tokens, (size_t)p->n * sizeof *more);
        p->tokens = more;
    }
    p->tokens[p->n++] = (Token){kind, {p->t->source + from, to - from}, p->line};
}

static bool is_at(const Parser *p, size_t at, const char *s) {
    size_t n = strlen(s);
    return p->t->n - at >= n && !memcmp(p->t->source + at, s, n);
}

static Text source_text(const Jinja *t, size_t from, size_t to) {
    return (Text){t->source + from, t->ones, to - from};
}

static size_t skip_blanks(const Parser *p, size_t at) {
    Text rest = source_text(p->t, at, p->t->n);
    return p->t->n - text_strip(rest, NULL, true, false).len;
}

// The text before a tag at `end`: without its last blanks where the tag's sign, or lstrip_blocks,
// says so.
static void push_text(Parser *p, size_t end, bool is_block) {
    const char *s = p->t->source;
    size_t line_start = end;
    char sign = end + 2 < p->t->n ? s[end + 2] : 0;
    while (line_start > p->at && (s[line_start - 1] == ' ' || s[line_start - 1] == '\t'))
        line_start--;
    if (end < p->t->n && sign == '-')
        end = p->at + text_strip(source_text(p->t, p->at, end), NULL, false, true).len;
    else if (is_block && sign != '+' && (line_start == 0 || s[line_start - 1] == '\n'))
        end = line_start;
    if (end > p->at) push_token(p, TEXT, p->at, end);
}

// After a tag that ends at `at`, whose sign stands before its two brackets.
static void skip_close(Parser *p, size_t at, char sign, bool is_block) {
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

static size_t skip_digits(const Parser *p, size_t at) {
    while (at < p->t->n && (is_digit(p->t->source[at]) || p->t->source[at] == '_')) at++;
    return at;
}

static void lex_number(Parser *p) {
    size_t at = skip_digits(p, p->at);
    const char *s = p->t->source;
    bool is_attribute = p->n && str_is(p->tokens[p->n - 1].s, "."); // a.1.2
    if (!is_attribute && at + 1 < p->t->n && s[at] == '.' && is_digit(s[at + 1]))
        at = skip_digits(p, at + 1);
    size_t sign = at + 1 < p->t->n && (s[at] | 32) == 'e' && strchr("+-", s[at + 1]) && s[at + 1];
    if (!is_attribute && at + 1 + sign < p->t->n && (s[at] | 32) == 'e' &&
        is_digit(s[at + 1 + sign]))
        at = skip_digits(p, at + 1 + sign);
    push_token(p, NUMBER, p->at, at);
    p->at = at;
}

static void lex_operator(Parser *p) {
    static const char *const operators[] = {"**", "//", "==", "!=", ">=", "<=", "+", "-", "*",
                                            "/",  "%",  "~",  "<",  ">",  "=",  ".", ":", "|",
                                            ",",  "(",  ")",  "[",  "]",  "{",  "}"};
    size_t i = 0, n = sizeof operators / sizeof *operators;
    while (i < n && !is_at(p, p->at, operators[i])) i++;
    if (i == n) heap_fail(p->heap, "unexpected character '%.1s'", p->t->source + p->at);
    push_token(p, OPERATOR, p->at, p->at + strlen(operators[i]));
    p->at += strlen(operators[i]);
    if (strchr("([{", *operators[i])) p->depth++;
    if (strchr(")]}", *operators[i]) && p->depth) p->depth--;
}

static void lex_token(Parser *p) {
    const char *s = p->t->source;
    size_t end = p->at + 1;
    if (*(s + p->at) == '"' || *(s + p->at) == '\'') {
        while (end < p->t->n && s[end] != s[p->at]) end += 1 + (s[end] == '\\');
        if (end >= p->t->n) heap_fail(p->heap, "a string has no end");
        push_token(p, QUOTED, p->at + 1, end);
        p->at = end + 1;
    } else if (is_digit(s[p->at])) {
        lex_number(p);
    } else if (is_word(s[p->at])) {
        while (end < p->t->n && is_word(s[end])) end++;
        push_token(p, NAME, p->at, end);
        p->at = end;
    } else {
        lex_operator(p);
    }
}

// The tokens of a tag, after its opening brackets and sign.
static void lex_tag(Parser *p, bool is_block) {
    const char *close = is_block ? "%}" : "}}";
    for (p->depth = 0;;) {
        p->at = skip_blanks(p, p->at);
        push_token(p, END, p->at, p->at); // counts lines
        p->n--;
        if (p->at >= p->t->n) heap_fail(p->heap, "a tag has no end: expected '%s'", close);
        char sign = p->t->source[p->at];
        bool has_sign = (sign == '-' || (sign == '+' && is_block)) && is_at(p, p->at + 1, close);
        if (p->depth == 0 && (has_sign || is_at(p, p->at, close))) {
            push_token(p, CLOSE, p->at, p->at);
            skip_close(p, p->at + 2 + has_sign, sign, is_block);
            return;
        }
        lex_token(p);
    }
}

static size_t find_in_source(const Parser *p, size_t from, const char *s) {
    size_t at =
        from < p->t->n ? str_find((Str){p->t->source + from, p->t->n - from}, str_of(s)) : SIZE_MAX;
    return at == SIZE_MAX ? p->t->n : from + at;
}

// {% word %} at `at`: the byte after it, 0 if it is none. *sign: before its end.
static size_t match_tag(const Parser *p, size_t at, const char *word, char *sign) {
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
static void lex_raw(Parser *p, size_t at, char sign) {
    size_t end, after = 0;
    p->at = sign == '-' ? skip_blanks(p, at) : at;
    for (end = p->at; (end = find_in_source(p, end, "{%")) < p->t->n; end++)
        if ((after = match_tag(p, end, "endraw", &sign))) break;
    if (!after) heap_fail(p->heap, "expected 'endraw'");
    push_text(p, end, true);
    skip_close(p, after, sign, true);
}

static void lex_comment(Parser *p, size_t at) {
    size_t end = find_in_source(p, at + 2, "#}");
    if (end == p->t->n) heap_fail(p->heap, "a comment has no end");
    skip_close(p, end + 2, p->t->source[end - 1], true);
}

static void lex(Parser *p) {
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
            push_token(p, is_block ? OPEN_BLOCK : OPEN_OUTPUT, at, at + 2);
            p->at = at + 2 + (is_at(p, at + 2, "-") || (is_at(p, at + 2, "+")));
            lex_tag(p, is_block);
        }
    }
    push_token(p, END, p->t->n, p->t->n);
}

// Parser: recursive descent, in the order of Jinja's grammar

static const Token *token(const Parser *p) { return &p->tokens[p->next]; }
static const Token *token_after(const Parser *p) { return token(p) + (token(p)->kind != END); }
static bool is_name(const Token *t, const char *s) { return t->kind == NAME && str_is(t->s, s); }
static bool is_operator(const Token *t, const char *s) {
    return t->kind == OPERATOR && str_is(t->s, s);
}

static const Token *take(Parser *p) {
    const Token *t = token(p);
    p->heap->line = t->line;
    if (t->kind != END) p->next++;
    return t;
}

static bool take_name(Parser *p, const char *s) { return is_name(token(p), s) && take(p); }
static bool take_operator(Parser *p, const char *s) { return is_operator(token(p), s) && take(p); }

static _Noreturn void fail_unexpected(Parser *p, const char *expected) {
    const Token *t = token(p);
    p->heap->line = t->line;
    Str found = t->kind == CLOSE ? str_of("the end of the tag")
                : t->kind == END ? str_of("the end")
                                 : t->s;
    heap_fail(p->heap, "expected %s, found \"%.*s\"", expected, SHOWN(found));
}

static void expect_operator(Parser *p, const char *s) {
    if (!take_operator(p, s)) fail_unexpected(p, s);
}

static Str expect_name(Parser *p) {
    if (token(p)->kind != NAME) fail_unexpected(p, "a name");
    return take(p)->s;
}

static void enter(Parser *p) {
    if (p->depth++ == MAX_NESTING) heap_fail(p->heap, "nested deeper than %d levels", MAX_NESTING);
}

static Node *node(Parser *p, NodeKind kind, Node *a, Node *b) {
    Node *n = heap_alloc(p->heap, 1, sizeof *n);
    *n = (Node){.kind = kind, .line = p->heap->line, .a = a, .b = b};
    return n;
}

static Node *constant(Parser *p, Value v) {
    Node *n = node(p, E_CONST, NULL, NULL);
    n->value = v;
    return n;
}

static Node *parse_expression(Parser *p);
static Node *parse_or(Parser *p);
static Node *parse_unary(Parser *p, bool has_filters);
static Node *parse_args(Parser *p);

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
static Node *parse_string(Parser *p) {
    Heap *h = p->heap;
    size_t start = h->out.len;
    while (token(p)->kind == QUOTED) {
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
    v.text.own = memset(heap_alloc(h, v.text.len, 1), 1, v.text.len);
    return constant(p, v);
}

static Node *parse_number(Parser *p) {
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
static Node *parse_items(Parser *p, const char *close, bool are_pairs) {
    Node *first = NULL, **tail = &first;
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
static Node *parse_tuple(Parser *p, bool has_condition, const char *end) {
    Node *first = NULL, **tail = &first;
    bool is_tuple = false;
    while (token(p)->kind != CLOSE && !is_operator(token(p), ")") &&
           !(end && is_name(token(p), end))) {
        *tail = has_condition ? parse_expression(p) : parse_or(p);
        tail = &(*tail)->next;
        if (!take_operator(p, ",")) break;
        is_tuple = true;
    }
    if (first && !is_tuple) return first;
    if (!first && !is_operator(token(p), ")")) fail_unexpected(p, "an expression");
    return node(p, E_TUPLE, first, NULL);
}

static Node *parse_primary(Parser *p) {
    static const struct {
        const char *name;
        Kind kind;
        bool boolean;
    } words[] = {{"true", BOOL, true},   {"True", BOOL, true},  {"false", BOOL, false},
                 {"False", BOOL, false}, {"none", NONE, false}, {"None", NONE, false}};
    Node *n;
    if (token(p)->kind == QUOTED) return parse_string(p);
    if (token(p)->kind == NUMBER) return parse_number(p);
    if (take_operator(p, "(")) {
        n = parse_tuple(p, true, NULL);
        expect_operator(p, ")");
        return n;
    }
    if (take_operator(p, "[")) return node(p, E_LIST, parse_items(p, "]", false), NULL);
    if (take_operator(p, "{")) return node(p, E_DICT, parse_items(p, "}", true), NULL);
    if (token(p)->kind != NAME) fail_unexpected(p, "an expression");
    Str name = take(p)->s;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (str_is(name, words[i].name))
            return constant(p, (Value){.kind = words[i].kind, .boolean = words[i].boolean});
    n = node(p, E_NAME, NULL, NULL);
    n->name = name;
    return n;
}

// What stands between the brackets of an index.
static Node *parse_index(Parser *p, Node *of) {
    Node *parts[3] = {NULL}, *n;
    int k = 0;
    for (; k < 3 && !is_operator(token(p), "]"); k++) {
        if (!is_operator(token(p), ":")) parts[k] = parse_expression(p);
        if (!take_operator(p, ":")) break;
    }
    bool is_slice = k > 0 || !parts[0];
    expect_operator(p, "]");
    if (!is_slice) return node(p, E_ITEM, of, parts[0]);
    if (k == 0) fail_unexpected(p, "an index");
    n = node(p, E_SLICE, of, parts[0]);
    n->c = parts[1], n->other = parts[2];
    return n;
}

static Node *parse_postfix(Parser *p, Node *n) {
    for (;;) {
        if (take_operator(p, ".")) {
            bool is_index = token(p)->kind == NUMBER;
            Node *index = is_index ? parse_number(p) : NULL;
            n = node(p, is_index ? E_ITEM : E_ATTRIBUTE, n, index);
            if (!is_index) n->name = expect_name(p);
        } else if (take_operator(p, "[")) {
            n = parse_index(p, n);
        } else if (take_operator(p, "(")) {
            n = node(p, E_CALL, n, NULL);
            n->b = parse_args(p);
        } else {
            return n;
        }
    }
}

// Arguments up to the closing bracket.
static Node *parse_args(Parser *p) {
    Node *first = NULL, **tail = &first;
    int count = 0;
    while (!take_operator(p, ")")) {
        if (first) expect_operator(p, ",");
        if (first && take_operator(p, ")")) break;
        if (++count > JINJA_ARGS)
            heap_fail(p->heap, "a call with more than %d arguments", JINJA_ARGS);
        Node *n = node(p, E_ARG, NULL, NULL);
        if (take_operator(p, "**"))
            n->op = '2';
        else if (take_operator(p, "*"))
            n->op = '*';
        else if (token(p)->kind == NAME && is_operator(token_after(p), "="))
            n->name = take(p)->s, take(p);
        n->a = parse_expression(p);
        *tail = n;
        tail = &n->next;
    }
    return first;
}

// After "|": filters, applied from the left. `of` NULL: to the body of a block.
static Node *parse_filter(Parser *p, Node *of) {
    do {
        Node *n = node(p, E_FILTER, of, NULL);
        n->name = expect_name(p);
        if (take_operator(p, "(")) n->b = parse_args(p);
        of = n;
    } while (take_operator(p, "|"));
    return of;
}

// After "is": a test, whose one argument needs no brackets.
static Node *parse_test(Parser *p, Node *of) {
    Node *n = node(p, E_TEST, of, NULL);
    n->op = take_name(p, "not");
    n->name = expect_name(p);
    const Token *t = token(p);
    bool has_arg =
        t->kind == NUMBER || t->kind == QUOTED || is_operator(t, "[") || is_operator(t, "{") ||
        (t->kind == NAME && !is_name(t, "else") && !is_name(t, "or") && !is_name(t, "and") &&
         !is_name(t, "is") && !is_name(t, "if") && !is_name(t, "recursive"));
    if (take_operator(p, "(")) {
        n->b = parse_args(p);
    } else if (has_arg) {
        n->b = node(p, E_ARG, NULL, NULL);
        n->b->a = parse_postfix(p, parse_primary(p));
    }
    if (is_name(token(p), "is")) heap_fail(p->heap, "a test of a test needs brackets");
    return n;
}

static Node *parse_filters(Parser *p, Node *n) {
    for (;;) {
        if (take_operator(p, "|")) {
            n = parse_filter(p, n);
        } else if (take_name(p, "is")) {
            n = parse_test(p, n);
        } else if (take_operator(p, "(")) {
            n = node(p, E_CALL, n, NULL);
            n->b = parse_args(p);
        } else {
            return n;
        }
    }
}

static Node *parse_unary(Parser *p, bool has_filters) {
    Node *n;
    enter(p);
    if (take_operator(p, "-"))
        n = node(p, E_NEGATIVE, parse_unary(p, false), NULL);
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
static Node *parse_binary(Parser *p, int level) {
    static const struct {
        const char *sign;
        int level, op;
    } operators[] = {{"+", 0, ADD}, {"-", 0, SUB},    {"~", 1, CONCAT}, {"*", 2, MUL},
                     {"/", 2, DIV}, {"//", 2, FLOOR}, {"%", 2, MOD},    {"**", 3, POW}};
    enum { N_OPERATORS = sizeof operators / sizeof *operators };
    if (level == 4) return parse_unary(p, true);
    Node *left = parse_binary(p, level + 1);
    for (int i = 0; i < N_OPERATORS; i++) {
        if (operators[i].level != level || !take_operator(p, operators[i].sign)) continue;
        Node *right = parse_binary(p, level + 1);
        left = node(p, E_BINARY, left, right);
        left->op = operators[i].op;
        i = -1;
    }
    return left;
}

static int take_comparison(Parser *p) {
    static const char *const signs[] = {"==", "!=", "<=", ">=", "<", ">"};
    for (int i = 0; i < 6; i++)
        if (take_operator(p, signs[i])) return EQ + i;
    if (take_name(p, "in")) return IN;
    if (!is_name(token(p), "not") || !is_name(token_after(p), "in")) return -1;
    take(p), take(p);
    return NOT_IN;
}

static Node *parse_comparison(Parser *p) {
    Node *left = parse_binary(p, 0), *all = NULL, **tail = NULL;
    for (int op; (op = take_comparison(p)) >= 0; tail = &(*tail)->next) {
        if (!all) all = node(p, E_COMPARE, left, NULL), tail = &all->b;
        *tail = node(p, E_COMPARE, parse_binary(p, 0), NULL);
        (*tail)->op = op;
    }
    return all ? all : left;
}

static Node *parse_not(Parser *p) {
    if (!take_name(p, "not")) return parse_comparison(p);
    enter(p);
    Node *n = node(p, E_NOT, parse_not(p), NULL);
    p->depth--;
    return n;
}

static Node *parse_and(Parser *p) {
    Node *left = parse_not(p);
    while (take_name(p, "and")) left = node(p, E_AND, left, parse_not(p));
    return left;
}

static Node *parse_or(Parser *p) {
    Node *left = parse_and(p);
    while (take_name(p, "or")) left = node(p, E_OR, left, parse_and(p));
    return left;
}

static Node *parse_expression(Parser *p) {
    enter(p);
    Node *n = parse_or(p);
    while (take_name(p, "if")) {
        n = node(p, E_IF, parse_or(p), n);
        if (take_name(p, "else")) n->c = parse_expression(p);
    }
    p->depth--;
    return n;
}

// What can be assigned to: a name, an attribute of a namespace, or several of them.
static Node *parse_target(Parser *p) {
    Node *n = parse_primary(p);
    if (take_operator(p, ".")) {
        n = node(p, E_ATTRIBUTE, n, NULL);
        n->name = expect_name(p);
    } else if (is_operator(token(p), ",")) {
        n = node(p, E_TUPLE, n, NULL);
        for (Node *last = n->a;
             take_operator(p, ",") && token(p)->kind == NAME && !is_name(token(p), "in");)
            last = last->next = parse_primary(p);
    }
    if (n->kind != E_NAME && n->kind != E_ATTRIBUTE && n->kind != E_TUPLE)
        heap_fail(p->heap, "cannot assign to this");
    return n;
}

static Node *parse_body(Parser *p, const char *const *ends);

static void expect_close(Parser *p) {
    if (token(p)->kind != CLOSE) fail_unexpected(p, "the end of the tag");
    take(p);
}

// The body of a statement up to {% end %}.
static Node *parse_until(Parser *p, const char *end) {
    expect_close(p);
    Node *body = parse_body(p, (const char *const[]){end, NULL});
    take(p);
    expect_close(p);
    return body;
}

static Node *parse_if(Parser *p) {
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    enter(p);
    Node *n = node(p, S_IF, parse_tuple(p, false, NULL), NULL);
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

static Node *parse_for(Parser *p) {
    static const char *const ends[] = {"else", "endfor", NULL};
    Node *n = node(p, S_FOR, parse_target(p), NULL);
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

static Node *parse_set(Parser *p) {
    Node *n = node(p, S_SET, parse_target(p), NULL);
    if (take_operator(p, "=")) {
        n->b = parse_tuple(p, true, NULL);
        expect_close(p);
    } else {
        n->kind = S_CAPTURE;
        if (take_operator(p, "|")) n->b = parse_filter(p, NULL);
        n->body = parse_until(p, "endset");
    }
    return n;
}

// The parameters of a macro, after "(": names with defaults.
static Node *parse_params(Parser *p) {
    Node *args = parse_args(p);
    for (Node *n = args; n; n = n->next) {
        if (!n->name.data && n->a->kind == E_NAME && !n->op)
            n->name = n->a->name, n->a = NULL;
        else if (!n->name.data)
            heap_fail(p->heap, "expected the name of a parameter");
    }
    return args;
}

static Node *parse_macro(Parser *p) {
    Node *n = node(p, S_MACRO, NULL, NULL);
    n->name = expect_name(p);
    expect_operator(p, "(");
    n->a = parse_params(p);
    n->body = parse_until(p, "endmacro");
    return n;
}

static Node *parse_call_block(Parser *p) {
    Node *n = node(p, S_CALL, NULL, NULL);
    if (take_operator(p, "(")) n->b = parse_params(p);
    n->a = parse_expression(p);
    if (n->a->kind != E_CALL) heap_fail(p->heap, "expected a call");
    n->body = parse_until(p, "endcall");
    return n;
}

static Node *parse_with(Parser *p) {
    Node *n = node(p, S_WITH, NULL, NULL), **tail = &n->a;
    while (token(p)->kind != CLOSE) {
        if (n->a) expect_operator(p, ",");
        *tail = node(p, S_SET, parse_primary(p), NULL);
        expect_operator(p, "=");
        (*tail)->b = parse_expression(p);
        tail = &(*tail)->next;
    }
    n->body = parse_until(p, "endwith");
    return n;
}

static Node *parse_statement(Parser *p) {
    Node *n;
    p->heap->line = token(p)->line;
    if (take_name(p, "if")) return parse_if(p);
    if (take_name(p, "for")) return parse_for(p);
    if (take_name(p, "set")) return parse_set(p);
    if (take_name(p, "macro")) return parse_macro(p);
    if (take_name(p, "call")) return parse_call_block(p);
    if (take_name(p, "with")) return parse_with(p);
    if (take_name(p, "filter")) {
        n = node(p, S_FILTER, NULL, parse_filter(p, NULL));
        n->body = parse_until(p, "endfilter");
        return n;
    }
    if (take_name(p, "generation")) {
        n = node(p, S_BLOCK, NULL, NULL);
        n->body = parse_until(p, "endgeneration");
        return n;
    }
    bool is_break = take_name(p, "break");
    if (!is_break && !take_name(p, "continue"))
        heap_fail(p->heap, "unknown tag '%.*s'", SHOWN(token(p)->s));
    n = node(p, is_break ? S_BREAK : S_CONTINUE, NULL, NULL);
    expect_close(p);
    return n;
}

// Statements up to a tag that one of `ends` names, which is left; NULL: to the end.
static Node *parse_body(Parser *p, const char *const *ends) {
    Node *first = NULL, **tail = &first;
    enter(p);
    for (; token(p)->kind != END; tail = &(*tail)->next) {
        const Token *t = take(p);
        if (t->kind == TEXT) {
            *tail = node(p, S_TEXT, NULL, NULL);
            (*tail)->value = value_text((Text){t->s.data, p->t->ones, t->s.len});
        } else if (t->kind == OPEN_OUTPUT) {
            *tail = node(p, S_OUTPUT, parse_tuple(p, true, NULL), NULL);
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
    Parser p = {.heap = &t->heap, .t = t, .line = 1};
    lex(&p);
    p.depth = 0;
    t->root = parse_body(&p, NULL);
}
