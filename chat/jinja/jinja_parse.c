// Parses the text of a template into a tree: a lexer that splits the source into tokens, then a
// recursive-descent parser whose functions follow Jinja's grammar.
//
// The lexer also controls white space, with the settings of transformers:
//   {%- {{- {#-    remove the white space before the tag
//   -%} -}} -#}    remove the white space after the tag
//   trim_blocks    removes the newline after a block tag or comment, unless the tag ends with +%}
//   lstrip_blocks  removes blanks between the start of a line and a block tag or comment, unless
//                  the tag begins with {%+
//
// In the tree, texts point into the source and quoted strings into the heap. The template wrote
// both, so their provenance masks are all 1.
#include "chat/jinja/jinja_tree.h"

#include <ctype.h>

enum { MAX_NESTING = 100 }; // levels of expressions and blocks

typedef enum {
    TOKEN_TEXT,
    TOKEN_OPEN_OUTPUT, // {{
    TOKEN_OPEN_BLOCK,  // {%
    TOKEN_CLOSE,       // }} or %}
    TOKEN_NAME,
    TOKEN_NUMBER,
    TOKEN_QUOTED, // without its quotes
    TOKEN_OPERATOR,
    TOKEN_END
} JinjaTokenKind;
typedef struct {
    JinjaTokenKind kind;
    Str s;
    int line;
} JinjaToken;

typedef struct {
    Heap *heap;
    const char *source, *ones; // (n) the source, followed by a NUL byte; its provenance mask
    size_t n;
    size_t at;      // lexer: offset of the next byte
    size_t counted; // lexer: offset up to which `line` counts newlines
    int line;
    int depth;          // lexer: open brackets; parser: nested expressions and blocks
    JinjaToken *tokens; // (n_tokens)
    int n_tokens;
    int next; // parser: index of the next token
} JinjaParser;

// Lexer

static void count_lines(JinjaParser *p, size_t to) {
    for (; p->counted < to; p->counted++) p->line += p->source[p->counted] == '\n';
    p->heap->line = p->line;
}

// Adds the token of the source bytes [from, to). The lexer continues at `to`.
static void push_token(JinjaParser *p, JinjaTokenKind kind, size_t from, size_t to) {
    count_lines(p, from);
    p->at = to;
    p->tokens = heap_grow(p->heap, p->tokens, p->n_tokens, sizeof *p->tokens);
    p->tokens[p->n_tokens++] = (JinjaToken){kind, {p->source + from, to - from}, p->line};
}

static bool is_at(const JinjaParser *p, size_t at, const char *s) {
    return !strncmp(p->source + at, s, strlen(s)); // stops at the NUL byte after the source
}

static size_t skip_spaces(const JinjaParser *p, size_t at) {
    return p->n - text_strip((Text){p->source + at, NULL, p->n - at}, WHITE_SPACE, true, false).len;
}

// Adds the text between p->at and a tag at `end`, without the white space that the sign of the tag
// or lstrip_blocks removes.
static void push_text(JinjaParser *p, size_t end, bool is_block) {
    const char *s = p->source;
    size_t line_start = end;
    char sign = end < p->n ? s[end + 2] : 0;
    Text text = {s + p->at, NULL, end - p->at};
    while (line_start > p->at && (s[line_start - 1] == ' ' || s[line_start - 1] == '\t'))
        line_start--;
    if (sign == '-')
        end = p->at + text_strip(text, WHITE_SPACE, false, true).len;
    else if (is_block && sign != '+' && (line_start == 0 || s[line_start - 1] == '\n'))
        end = line_start;
    if (end > p->at) push_token(p, TOKEN_TEXT, p->at, end);
}

// Skips a tag that ends at `at`, and the white space that it removes. `sign` is the byte before the
// closing two bytes of the tag.
static void skip_close(JinjaParser *p, size_t at, char sign, bool is_block) {
    p->at = at;
    if (sign == '-')
        p->at = skip_spaces(p, at);
    else if (is_block && sign != '+' && is_at(p, at, "\n"))
        p->at++;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_name_char(char c) { return isalnum((unsigned char)c) || c == '_' || (c & 0x80); }

static void lex_number(JinjaParser *p) {
    static const char digits[] = "0123456789";
    const char *s = p->source + p->at;
    size_t n = strspn(s, digits);
    if (s[n] == '.' && is_digit(s[n + 1])) n += 1 + strspn(s + n + 1, digits);
    if ((s[n] | 32) == 'e') {
        size_t exponent = n + 1 + (s[n + 1] == '+' || s[n + 1] == '-');
        if (is_digit(s[exponent])) n = exponent + strspn(s + exponent, digits);
    }
    push_token(p, TOKEN_NUMBER, p->at, p->at + n);
}

static void lex_operator(JinjaParser *p) {
    const char *s = p->source + p->at;
    bool is_pair = str_is_one_of((Str){s, 2}, "** // == != >= <=");
    if (!is_pair && !(*s && strchr("+-*/%~<>=.:|,()[]{}", *s)))
        heap_fail(p->heap, "unexpected character '%.1s'", s);
    push_token(p, TOKEN_OPERATOR, p->at, p->at + 1 + is_pair);
    if (strchr("([{", *s)) p->depth++;
    if (strchr(")]}", *s) && p->depth) p->depth--;
}

// Adds the tokens of a tag. p->at is after its opening bytes and sign.
static void lex_tag(JinjaParser *p, bool is_block) {
    const char *close = is_block ? "%}" : "}}";
    const char *s = p->source;

    p->depth = 0;
    for (;;) {
        p->at = skip_spaces(p, p->at);
        count_lines(p, p->at);
        if (p->at >= p->n) heap_fail(p->heap, "a tag has no end: expected '%s'", close);

        // The end of the tag. It cannot be inside brackets.
        char first = s[p->at];
        bool has_sign = (first == '-' || (first == '+' && is_block)) && is_at(p, p->at + 1, close);
        if (p->depth == 0 && (has_sign || is_at(p, p->at, close))) {
            push_token(p, TOKEN_CLOSE, p->at, p->at);
            skip_close(p, p->at + 2 + has_sign, first, is_block);
            return;
        }

        size_t end = p->at + 1;
        if (first == '"' || first == '\'') {
            while (end < p->n && s[end] != first) end += 1 + (s[end] == '\\');
            if (end >= p->n) heap_fail(p->heap, "a string has no end");
            push_token(p, TOKEN_QUOTED, p->at + 1, end);
            p->at++; // skips the closing quote
        } else if (is_digit(first)) {
            lex_number(p);
        } else if (is_name_char(first)) {
            while (is_name_char(s[end])) end++;
            push_token(p, TOKEN_NAME, p->at, end);
        } else {
            lex_operator(p);
        }
    }
}

static void lex_template(JinjaParser *p) {
    for (;;) {
        // Text, up to the next tag.
        size_t at = p->at;
        while (at < p->n && !is_at(p, at, "{{") && !is_at(p, at, "{%") && !is_at(p, at, "{#")) at++;

        bool is_block = at < p->n && p->source[at + 1] != '{';
        push_text(p, at, is_block);
        p->at = at;
        if (at == p->n) break;

        if (p->source[at + 1] == '#') {
            size_t end = at + 2;
            while (end < p->n && !is_at(p, end, "#}")) end++;
            if (end == p->n) heap_fail(p->heap, "a comment has no end");
            skip_close(p, end + 2, p->source[end - 1], true);
        } else {
            push_token(p, is_block ? TOKEN_OPEN_BLOCK : TOKEN_OPEN_OUTPUT, at, at + 2);
            p->at += is_at(p, p->at, "-") || is_at(p, p->at, "+");
            lex_tag(p, is_block);
        }
    }

    push_token(p, TOKEN_END, p->n, p->n);
}

// Parser

static const JinjaToken *token(const JinjaParser *p) { return &p->tokens[p->next]; }
static const JinjaToken *token_after(const JinjaParser *p) {
    return token(p) + (token(p)->kind != TOKEN_END);
}

// True if a token is one of the names and operators in `words`, which are separated by spaces.
static bool is_word(const JinjaToken *t, const char *words) {
    return (t->kind == TOKEN_NAME || t->kind == TOKEN_OPERATOR) && str_is_one_of(t->s, words);
}

static const JinjaToken *next_token(JinjaParser *p) {
    const JinjaToken *t = token(p);
    p->heap->line = t->line;
    if (t->kind != TOKEN_END) p->next++;
    return t;
}

static bool accept(JinjaParser *p, const char *s) { return is_word(token(p), s) && next_token(p); }

static _Noreturn void fail_unexpected(JinjaParser *p, const char *expected) {
    const JinjaToken *t = token(p);
    p->heap->line = t->line;
    Str found = t->s;
    if (t->kind == TOKEN_CLOSE) found = str_of("the end of the tag");
    if (t->kind == TOKEN_END) found = str_of("the end");
    heap_fail(p->heap, "expected %s, found \"%.*s\"", expected, SHOWN(found));
}

static void expect(JinjaParser *p, const char *s) {
    if (!accept(p, s)) fail_unexpected(p, s);
}

static void expect_close(JinjaParser *p) {
    if (token(p)->kind != TOKEN_CLOSE) fail_unexpected(p, "the end of the tag");
    next_token(p);
}

static void enter_nesting(JinjaParser *p) {
    if (p->depth++ == MAX_NESTING) heap_fail(p->heap, "nested deeper than %d levels", MAX_NESTING);
}

static JinjaNode *new_node(JinjaParser *p, JinjaNodeKind kind, JinjaNode *a, JinjaNode *b) {
    JinjaNode *n = heap_alloc(p->heap, 1, sizeof *n);
    *n = (JinjaNode){.kind = kind, .line = p->heap->line, .a = a, .b = b};
    return n;
}

static JinjaNode *new_const(JinjaParser *p, Value v) {
    JinjaNode *n = new_node(p, EXPR_CONST, NULL, NULL);
    n->value = v;
    return n;
}

// A node whose name is the next token.
static JinjaNode *new_named(JinjaParser *p, JinjaNodeKind kind, JinjaNode *a) {
    if (token(p)->kind != TOKEN_NAME) fail_unexpected(p, "a name");
    Str name = next_token(p)->s;
    JinjaNode *n = new_node(p, kind, a, NULL);
    n->name = name;
    return n;
}

// Expressions

static JinjaNode *parse_expression(JinjaParser *p);
static JinjaNode *parse_binary(JinjaParser *p, int level);

// Decodes an escape sequence; s is the text after the backslash. Returns the number of bytes
// decoded, or 0 if this is not an escape sequence; the backslash is then an ordinary character.
static size_t put_escape(Heap *h, const char *s, size_t n) {
    static const char letters[] = "\\'\"abfnrtv\n", bytes[] = "\\'\"\a\b\f\n\r\t\v";
    const char *letter = memchr(letters, *s, sizeof letters - 1);
    if (letter) { // a backslash before a newline removes the newline
        heap_put(h, (Text){bytes + (letter - letters), NULL, *letter != '\n'});
        return 1;
    }

    // A character code: \x41, \u0041, \U00000041.
    static const char kinds[] = "xuU";
    static const size_t lengths[] = {2, 4, 8};
    const char *kind = memchr(kinds, *s, sizeof kinds - 1);
    size_t n_digits = kind ? lengths[kind - kinds] : 0;
    if (!n_digits || n_digits >= n) {
        heap_puts(h, "\\");
        return 0;
    }

    char utf8[4], digits[9] = {0}, *end;
    memcpy(digits, s + 1, n_digits);
    unsigned long code = strtoul(digits, &end, 16);
    if (*end || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        heap_fail(h, "\\%c%s is not a character", *s, digits);
    heap_put(h, (Text){utf8, NULL, (size_t)utf8_encode((uint32_t)code, utf8)});
    return 1 + n_digits;
}

// Concatenates adjacent strings, as Python does.
static JinjaNode *parse_quoted(JinjaParser *p) {
    Heap *h = p->heap;
    size_t start = h->out.len;
    while (token(p)->kind == TOKEN_QUOTED) {
        Str s = next_token(p)->s;
        for (size_t i = 0; i < s.len;)
            if (s.data[i] == '\\')
                i += 1 + put_escape(h, s.data + i + 1, s.len - i - 1);
            else
                heap_put(h, (Text){s.data + i++, NULL, 1});
    }
    Value v = heap_pop_string(h, start);
    v.text.mask = memset(heap_alloc(h, v.text.len, 1), 1, v.text.len);
    return new_const(p, v);
}

static JinjaNode *parse_numeral(JinjaParser *p) {
    Str s = next_token(p)->s;
    char *digits = heap_alloc(p->heap, s.len + 1, 1);
    double x;
    int64_t integer;
    memcpy(digits, s.data, s.len);
    bool is_int = strspn(digits, "0123456789") == s.len;
    if (is_int && parse_i64(digits, &integer)) return new_const(p, value_int(integer));
    if (is_int || !parse_f64(digits, &x)) heap_fail(p->heap, "the number %s is too large", digits);
    return new_const(p, value_float(x));
}

// A list of expressions, pairs or arguments, separated by commas, up to a closing bracket.
static JinjaNode *parse_bracketed(JinjaParser *p, const char *close,
                                  JinjaNode *(*parse_item)(JinjaParser *p)) {
    JinjaNode *first = NULL, **tail = &first;
    while (!accept(p, close)) {
        if (first) expect(p, ",");
        if (first && accept(p, close)) break;
        *tail = parse_item(p);
        while (*tail) tail = &(*tail)->next;
    }
    return first;
}

// "EXPRESSION: EXPRESSION" as two linked nodes, key and value.
static JinjaNode *parse_pair(JinjaParser *p) {
    JinjaNode *key = parse_expression(p);
    expect(p, ":");
    key->next = parse_expression(p);
    return key;
}

static JinjaNode *parse_arg(JinjaParser *p) {
    JinjaNode *n = new_node(p, EXPR_ARG, NULL, NULL);
    if (token(p)->kind == TOKEN_NAME && is_word(token_after(p), "=")) {
        n->name = next_token(p)->s;
        next_token(p);
    }
    n->a = parse_expression(p);
    return n;
}

// Arguments, after "(".
static JinjaNode *parse_args(JinjaParser *p) { return parse_bracketed(p, ")", parse_arg); }

// An expression, or a tuple without brackets, up to a closing bracket or the end of the tag.
// has_condition: expressions may be conditional ("a if b").
static JinjaNode *parse_tuple(JinjaParser *p, bool has_condition) {
    JinjaNode *first = NULL, **tail = &first;
    bool is_tuple = false;
    while (token(p)->kind != TOKEN_CLOSE && !is_word(token(p), ")")) {
        *tail = has_condition ? parse_expression(p) : parse_binary(p, 0);
        tail = &(*tail)->next;
        if (!accept(p, ",")) break;
        is_tuple = true;
    }
    if (first && !is_tuple) return first;
    if (!first && !is_word(token(p), ")")) fail_unexpected(p, "an expression");
    return new_node(p, EXPR_TUPLE, first, NULL);
}

static JinjaNode *parse_primary(JinjaParser *p) {
    if (token(p)->kind == TOKEN_QUOTED) return parse_quoted(p);
    if (token(p)->kind == TOKEN_NUMBER) return parse_numeral(p);

    if (accept(p, "(")) {
        JinjaNode *n = parse_tuple(p, true);
        expect(p, ")");
        return n;
    }
    if (accept(p, "["))
        return new_node(p, EXPR_LIST, parse_bracketed(p, "]", parse_expression), NULL);
    if (accept(p, "{")) return new_node(p, EXPR_DICT, parse_bracketed(p, "}", parse_pair), NULL);

    if (token(p)->kind != TOKEN_NAME) fail_unexpected(p, "an expression");
    if (accept(p, "true True")) return new_const(p, value_bool(true));
    if (accept(p, "false False")) return new_const(p, value_bool(false));
    if (accept(p, "none None")) return new_const(p, value_none());
    return new_named(p, EXPR_NAME, NULL);
}

// An index or slice of the operand `of`, after "[".
static JinjaNode *parse_index(JinjaParser *p, JinjaNode *of) {
    JinjaNode *parts[3] = {NULL}, *n;
    int k = 0; // number of colons
    for (; k < 3 && !is_word(token(p), "]"); k++) {
        if (!is_word(token(p), ":")) parts[k] = parse_expression(p);
        if (!accept(p, ":")) break;
    }
    if (k == 0 && !parts[0]) fail_unexpected(p, "an index");
    expect(p, "]");
    if (k == 0) return new_node(p, EXPR_ITEM, of, parts[0]);
    n = new_node(p, EXPR_SLICE, of, parts[0]);
    n->c = parts[1];
    n->other = parts[2];
    return n;
}

static JinjaNode *parse_call(JinjaParser *p, JinjaNode *of) {
    JinjaNode *n = new_node(p, EXPR_CALL, of, NULL);
    n->b = parse_args(p);
    return n;
}

static JinjaNode *parse_postfix(JinjaParser *p, JinjaNode *n) {
    for (;;) {
        if (accept(p, "."))
            n = new_named(p, EXPR_ATTRIBUTE, n);
        else if (accept(p, "["))
            n = parse_index(p, n);
        else if (accept(p, "("))
            n = parse_call(p, n);
        else
            return n;
    }
}

// The filters of the operand `of`, after "|". They are applied from left to right. If `of` is NULL,
// the operand is the text of a STMT_CAPTURE.
static JinjaNode *parse_filter(JinjaParser *p, JinjaNode *of) {
    do {
        of = new_named(p, EXPR_FILTER, of);
        if (accept(p, "(")) of->b = parse_args(p);
    } while (accept(p, "|"));
    return of;
}

// A test of the operand `of`, after "is". A single argument needs no parentheses, as in
// "x is divisibleby 3".
static JinjaNode *parse_test(JinjaParser *p, JinjaNode *of) {
    bool is_negated = accept(p, "not");
    JinjaNode *n = new_named(p, EXPR_TEST, of);
    const JinjaToken *t = token(p);
    n->op = is_negated;
    if (accept(p, "(")) {
        n->b = parse_args(p);
    } else if (t->kind == TOKEN_NUMBER || t->kind == TOKEN_QUOTED || is_word(t, "[ {") ||
               (t->kind == TOKEN_NAME && !is_word(t, "else or and is if"))) {
        n->b = new_node(p, EXPR_ARG, NULL, NULL);
        n->b->a = parse_postfix(p, parse_primary(p));
    }
    if (is_word(token(p), "is")) heap_fail(p->heap, "a test of a test needs brackets");
    return n;
}

// An operand with its signs, attributes and calls; if has_filters, also its filters and tests.
static JinjaNode *parse_unary(JinjaParser *p, bool has_filters) {
    JinjaNode *n;
    enter_nesting(p);

    if (is_word(token(p), "+ -")) {
        int sign = *next_token(p)->s.data;
        n = new_node(p, EXPR_SIGN, parse_unary(p, false), NULL);
        n->op = sign;
    } else {
        n = parse_primary(p);
    }
    n = parse_postfix(p, n);

    // A filter or test applies to the operand with its sign: in "-1 | string", to -1.
    while (has_filters) {
        if (accept(p, "|"))
            n = parse_filter(p, n);
        else if (accept(p, "is"))
            n = parse_test(p, n);
        else if (accept(p, "("))
            n = parse_call(p, n);
        else
            break;
    }

    p->depth--;
    return n;
}

// Binary operators. Level 0 has the lowest precedence, level 2 is "not", level 3 the comparisons.
// All operators are left-associative, except that comparisons have no chains, such as "a < b < c".
static JinjaNode *parse_binary(JinjaParser *p, int level) {
    enum { LEVEL_NOT = 2, LEVEL_UNARY = 7 };
    static const struct {
        const char *sign;
        int level;
        JinjaNodeKind kind;
        int op;
    } operators[] = {{"or", 0, EXPR_OR, 0},           {"and", 1, EXPR_AND, 0},
                     {"==", 3, EXPR_COMPARE, CMP_EQ}, {"!=", 3, EXPR_COMPARE, CMP_NE},
                     {"<=", 3, EXPR_COMPARE, CMP_LE}, {">=", 3, EXPR_COMPARE, CMP_GE},
                     {"<", 3, EXPR_COMPARE, CMP_LT},  {">", 3, EXPR_COMPARE, CMP_GT},
                     {"in", 3, EXPR_COMPARE, CMP_IN}, {"not", 3, EXPR_COMPARE, CMP_NOT_IN},
                     {"+", 4, EXPR_BINARY, '+'},      {"-", 4, EXPR_BINARY, '-'},
                     {"~", 5, EXPR_BINARY, '~'},      {"*", 6, EXPR_BINARY, '*'},
                     {"/", 6, EXPR_BINARY, '/'},      {"//", 6, EXPR_BINARY, 'f'},
                     {"%", 6, EXPR_BINARY, '%'}};

    enum { N_OPERATORS = sizeof operators / sizeof *operators };

    if (level == LEVEL_UNARY) return parse_unary(p, true);
    if (level == LEVEL_NOT) {
        if (!accept(p, "not")) return parse_binary(p, level + 1);
        enter_nesting(p);
        JinjaNode *n = new_node(p, EXPR_NOT, parse_binary(p, level), NULL);
        p->depth--;
        return n;
    }

    // The operators of this level, from left to right.
    JinjaNode *left = parse_binary(p, level + 1);
    for (int i = 0; i < N_OPERATORS; i++) {
        if (operators[i].level != level || !accept(p, operators[i].sign)) continue;

        if (operators[i].op == CMP_NOT_IN) expect(p, "in");
        left = new_node(p, operators[i].kind, left, parse_binary(p, level + 1));
        left->op = operators[i].op;
        if (left->kind == EXPR_COMPARE) return left;
        i = -1; // restart at the first operator
    }

    return left;
}

static JinjaNode *parse_expression(JinjaParser *p) {
    enter_nesting(p);
    JinjaNode *n = parse_binary(p, 0);
    while (accept(p, "if")) {
        n = new_node(p, EXPR_IF, parse_binary(p, 0), n);
        if (accept(p, "else")) n->c = parse_expression(p);
    }
    p->depth--;
    return n;
}

// Statements

// An assignment target: a name, an attribute (of a namespace), or a tuple of names.
static JinjaNode *parse_target(JinjaParser *p) {
    JinjaNode *n = parse_primary(p);
    if (accept(p, ".")) {
        n = new_named(p, EXPR_ATTRIBUTE, n);
    } else if (is_word(token(p), ",")) {
        n = new_node(p, EXPR_TUPLE, n, NULL);
        for (JinjaNode *last = n->a;
             accept(p, ",") && token(p)->kind == TOKEN_NAME && !is_word(token(p), "in");)
            last = last->next = parse_primary(p);
    }
    if (n->kind != EXPR_NAME && n->kind != EXPR_ATTRIBUTE && n->kind != EXPR_TUPLE)
        heap_fail(p->heap, "cannot assign to this");
    return n;
}

static JinjaNode *parse_body(JinjaParser *p, const char *ends);

// The body of a statement: from the end of its tag up to and including the tag {% end %}.
static JinjaNode *parse_until(JinjaParser *p, const char *end) {
    JinjaNode *body = parse_body(p, end);
    next_token(p);
    expect_close(p);
    return body;
}

// The end of a statement: the tag {% end %}, or {% else %}, a body and {% end %}. Returns the body.
static JinjaNode *parse_else(JinjaParser *p, const char *end) {
    if (accept(p, "else")) return parse_until(p, end);
    next_token(p);
    expect_close(p);
    return NULL;
}

static JinjaNode *parse_if(JinjaParser *p) {
    enter_nesting(p);
    JinjaNode *n = new_node(p, STMT_IF, parse_tuple(p, false), NULL);
    n->body = parse_body(p, "endif else elif");
    n->other = accept(p, "elif") ? parse_if(p) : parse_else(p, "endif");
    p->depth--;
    return n;
}

static JinjaNode *parse_for(JinjaParser *p) {
    JinjaNode *n = new_node(p, STMT_FOR, parse_target(p), NULL);
    expect(p, "in");
    n->b = parse_tuple(p, false);
    if (accept(p, "if")) n->c = parse_expression(p);
    n->body = parse_body(p, "endfor else");
    n->other = parse_else(p, "endfor");
    return n;
}

static JinjaNode *parse_set(JinjaParser *p) {
    JinjaNode *n = new_node(p, STMT_SET, parse_target(p), NULL);
    if (accept(p, "=")) {
        n->b = parse_tuple(p, true);
        expect_close(p);
    } else {
        n->kind = STMT_CAPTURE;
        if (accept(p, "|")) n->b = parse_filter(p, NULL);
        n->body = parse_until(p, "endset");
    }
    return n;
}

// Parameters, after "(": names with optional defaults.
static JinjaNode *parse_params(JinjaParser *p) {
    JinjaNode *args = parse_args(p);
    for (JinjaNode *n = args; n; n = n->next) {
        if (!n->name.data && n->a->kind == EXPR_NAME) {
            n->name = n->a->name;
            n->a = NULL;
        } else if (!n->name.data)
            heap_fail(p->heap, "expected the name of a parameter");
    }
    return args;
}

// A statement. A "generation" block has no effect; its statements are returned.
static JinjaNode *parse_statement(JinjaParser *p) {
    p->heap->line = token(p)->line;
    if (accept(p, "if")) return parse_if(p);
    if (accept(p, "for")) return parse_for(p);
    if (accept(p, "set")) return parse_set(p);
    if (accept(p, "generation")) return parse_until(p, "endgeneration");

    JinjaNode *n = new_node(p, STMT_BREAK, NULL, NULL);
    if (accept(p, "macro")) {
        n = new_named(p, STMT_MACRO, NULL);
        expect(p, "(");
        n->a = parse_params(p);
        n->body = parse_until(p, "endmacro");
    } else if (accept(p, "filter")) {
        n->kind = STMT_CAPTURE;
        n->b = parse_filter(p, NULL);
        n->body = parse_until(p, "endfilter");
    } else {
        if (is_word(token(p), "continue")) n->kind = STMT_CONTINUE;
        if (!accept(p, "break continue"))
            heap_fail(p->heap, "unknown tag '%.*s'", SHOWN(token(p)->s));
        expect_close(p);
    }

    return n;
}

// The statements between the end of a tag and the next tag whose first word is in `ends`; that word
// becomes the next token. With ends "": all statements of the template.
static JinjaNode *parse_body(JinjaParser *p, const char *ends) {
    JinjaNode *first = NULL, **tail = &first;

    enter_nesting(p);
    if (*ends) expect_close(p);

    while (token(p)->kind != TOKEN_END) {
        const JinjaToken *t = next_token(p);
        if (t->kind == TOKEN_TEXT) {
            *tail = new_node(p, STMT_TEXT, NULL, NULL);
            (*tail)->value = value_text((Text){t->s.data, p->ones, t->s.len});
        } else if (t->kind == TOKEN_OPEN_OUTPUT) {
            *tail = new_node(p, STMT_OUTPUT, parse_tuple(p, true), NULL);
            expect_close(p);
        } else if (is_word(token(p), ends)) {
            p->depth--;
            return first;
        } else {
            *tail = parse_statement(p);
        }

        while (*tail) tail = &(*tail)->next;
    }

    if (*ends)
        heap_fail(p->heap, "expected '%.*s', found the end of the template",
                  (int)strcspn(ends, " "), ends);
    p->depth--;
    return first;
}

void jinja_parse(struct Jinja *t) {
    JinjaParser p = {&t->heap, t->source.data, t->source.mask, t->source.len, .line = 1};
    lex_template(&p);
    p.depth = 0;
    t->root = parse_body(&p, "");
}
