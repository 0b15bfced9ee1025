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
#include <errno.h>

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
    int uses;           // parser: the MacroUses of the current macro so far
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
    static const char digits[] = "0123456789_";
    const char *s = p->source + p->at;
    size_t n = strspn(s, digits);
    bool is_attribute = p->n_tokens && str_is(p->tokens[p->n_tokens - 1].s, "."); // a.1.2
    bool has_base = *s == '0' && strchr("bBoOxX", s[1]) && isxdigit((unsigned char)s[2]);

    if (has_base) {
        n = 2 + strspn(s + 2, "0123456789abcdefABCDEF_");
    } else if (!is_attribute) {
        if (s[n] == '.' && is_digit(s[n + 1])) n += 1 + strspn(s + n + 1, digits);
        size_t exponent = n + 1 + (s[n + 1] == '+' || s[n + 1] == '-');
        if ((s[n] | 32) == 'e' && is_digit(s[exponent]))
            n = exponent + strspn(s + exponent, digits);
    }
    push_token(p, TOKEN_NUMBER, p->at, p->at + n);
}

static void lex_quoted(JinjaParser *p) {
    const char *s = p->source;
    char quote = s[p->at];
    size_t end = p->at + 1;
    while (end < p->n && s[end] != quote) end += 1 + (s[end] == '\\');
    if (end >= p->n) heap_fail(p->heap, "a string has no end");
    push_token(p, TOKEN_QUOTED, p->at + 1, end);
    p->at++; // skips the closing quote
}

static void lex_name(JinjaParser *p) {
    size_t end = p->at;
    while (is_name_char(p->source[end])) end++;
    push_token(p, TOKEN_NAME, p->at, end);
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

// True if the tag ends at p->at, with a sign before its closing bytes or without.
static bool is_tag_end(const JinjaParser *p, const char *close, bool is_block, bool *has_sign) {
    *has_sign = is_at(p, p->at, "-") || (is_block && is_at(p, p->at, "+"));
    return is_at(p, p->at + *has_sign, close);
}

// Adds the tokens of a tag. p->at is after its opening bytes and sign.
static void lex_tag(JinjaParser *p, bool is_block) {
    const char *close = is_block ? "%}" : "}}";

    p->depth = 0;
    for (;;) {
        p->at = skip_spaces(p, p->at);
        count_lines(p, p->at);
        if (p->at >= p->n) heap_fail(p->heap, "a tag has no end: expected '%s'", close);

        // The end of the tag. It cannot be inside brackets.
        char first = p->source[p->at];
        bool has_sign;
        if (p->depth == 0 && is_tag_end(p, close, is_block, &has_sign)) {
            push_token(p, TOKEN_CLOSE, p->at, p->at);
            skip_close(p, p->at + 2 + has_sign, first, is_block);
            return;
        }

        if (first == '"' || first == '\'')
            lex_quoted(p);
        else if (is_digit(first))
            lex_number(p);
        else if (is_name_char(first))
            lex_name(p);
        else
            lex_operator(p);
    }
}

// If the tag {% word %} is at `at`, returns the offset of its end and sets *sign to the sign before
// %}, or to 0. Otherwise returns 0.
static size_t match_tag(const JinjaParser *p, size_t at, const char *word, char *sign) {
    if (!is_at(p, at, "{%")) return 0;
    at += 2;
    at = skip_spaces(p, at + (is_at(p, at, "-") || is_at(p, at, "+")));
    if (!is_at(p, at, word)) return 0;
    at = skip_spaces(p, at + strlen(word));

    bool has_sign = is_at(p, at, "-%}") || is_at(p, at, "+%}");
    *sign = has_sign ? p->source[at++] : 0;
    return is_at(p, at, "%}") ? at + 2 : 0;
}

// Adds the text between {% raw %}, which ends at `at`, and {% endraw %}. trim_blocks does not
// remove a newline after {% raw %}.
static void lex_raw(JinjaParser *p, size_t at, char sign) {
    p->at = sign == '-' ? skip_spaces(p, at) : at;

    size_t end = p->at;
    size_t after = 0;
    for (; end < p->n; end++) {
        after = match_tag(p, end, "endraw", &sign);
        if (after) break;
    }
    if (!after) heap_fail(p->heap, "expected 'endraw', found the end of the template");

    push_text(p, end, true);
    skip_close(p, after, sign, true);
}

static void lex_comment(JinjaParser *p) {
    size_t end = p->at + 2;
    while (end < p->n && !is_at(p, end, "#}")) end++;
    if (end == p->n) heap_fail(p->heap, "a comment has no end");
    skip_close(p, end + 2, p->source[end - 1], true);
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

        char sign;
        size_t after_raw = match_tag(p, at, "raw", &sign);
        if (after_raw) {
            lex_raw(p, after_raw, sign);
        } else if (p->source[at + 1] == '#') {
            lex_comment(p);
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

// A number in base 2, 8 or 16, with its prefix.
static JinjaNode *parse_based(JinjaParser *p, const char *digits) {
    int base = 16;
    if ((digits[1] | 32) == 'b') base = 2;
    if ((digits[1] | 32) == 'o') base = 8;

    char *end;
    errno = 0;
    int64_t integer = strtoll(digits + 2, &end, base);
    if (errno || *end) heap_fail(p->heap, "%s is not a 64-bit integer", digits);
    return new_const(p, value_int(integer));
}

static JinjaNode *parse_numeral(JinjaParser *p) {
    Str s = next_token(p)->s;
    char *digits = heap_alloc(p->heap, s.len + 1, 1);
    size_t n = 0;
    for (size_t i = 0; i < s.len; i++)
        if (s.data[i] != '_') digits[n++] = s.data[i];
    if (n > 1 && isalpha((unsigned char)digits[1]) && (digits[1] | 32) != 'e')
        return parse_based(p, digits);

    double x;
    int64_t integer;
    bool is_int = strspn(digits, "0123456789") == n;
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
    if (accept(p, "*")) {
        n->op = '*';
    } else if (accept(p, "**")) {
        n->op = 'p';
    } else if (token(p)->kind == TOKEN_NAME && is_word(token_after(p), "=")) {
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

// In the order of the bits of MacroUses.
static const char *const macro_uses[] = {"caller", "varargs", "kwargs"};
enum { N_MACRO_USES = sizeof macro_uses / sizeof *macro_uses };

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

    for (int i = 0; i < N_MACRO_USES; i++)
        if (str_is(token(p)->s, macro_uses[i])) p->uses |= 1 << i;
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
        if (accept(p, ".")) {
            bool is_index = token(p)->kind == TOKEN_NUMBER; // a.1
            n = is_index ? new_node(p, EXPR_ITEM, n, parse_numeral(p))
                         : new_named(p, EXPR_ATTRIBUTE, n);
        } else if (accept(p, "[")) {
            n = parse_index(p, n);
        } else if (accept(p, "(")) {
            n = parse_call(p, n);
        } else {
            return n;
        }
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

enum { LEVEL_NOT = 2, LEVEL_COMPARISON = 3, LEVEL_UNARY = 8 }; // of precedence, see operators

// Accepts a comparison operator. Returns the Comparison, or -1 if there is none.
static int accept_comparison(JinjaParser *p) {
    static const char *const signs[] = {"==", "!=", "<=", ">=", "<", ">", "in"}; // see Comparison
    for (int op = CMP_EQ; op <= CMP_IN; op++)
        if (accept(p, signs[op])) return op;
    if (!is_word(token(p), "not") || !is_word(token_after(p), "in")) return -1;
    next_token(p);
    next_token(p);
    return CMP_NOT_IN;
}

// An operand, or a chain of comparisons, such as a < b < c: one node with a list of comparisons.
static JinjaNode *parse_comparison(JinjaParser *p) {
    JinjaNode *left = parse_binary(p, LEVEL_COMPARISON + 1);
    int op = accept_comparison(p);
    if (op < 0) return left;

    JinjaNode *chain = new_node(p, EXPR_COMPARE, left, NULL);
    JinjaNode **tail = &chain->b;
    for (; op >= 0; op = accept_comparison(p)) {
        *tail = new_node(p, EXPR_COMPARE, parse_binary(p, LEVEL_COMPARISON + 1), NULL);
        (*tail)->op = op;
        tail = &(*tail)->next;
    }
    return chain;
}

static JinjaNode *parse_not(JinjaParser *p) {
    if (!accept(p, "not")) return parse_comparison(p);
    enter_nesting(p);
    JinjaNode *n = new_node(p, EXPR_NOT, parse_not(p), NULL);
    p->depth--;
    return n;
}

// Binary operators. Level 0 has the lowest precedence. All operators are left-associative, as in
// Jinja, also "**".
static JinjaNode *parse_binary(JinjaParser *p, int level) {
    static const struct {
        const char *sign;
        int level;
        JinjaNodeKind kind;
        int op;
    } operators[] = {{"or", 0, EXPR_OR, 0},      {"and", 1, EXPR_AND, 0},
                     {"+", 4, EXPR_BINARY, '+'}, {"-", 4, EXPR_BINARY, '-'},
                     {"~", 5, EXPR_BINARY, '~'}, {"*", 6, EXPR_BINARY, '*'},
                     {"/", 6, EXPR_BINARY, '/'}, {"//", 6, EXPR_BINARY, 'f'},
                     {"%", 6, EXPR_BINARY, '%'}, {"**", 7, EXPR_BINARY, 'p'}};
    enum { N_OPERATORS = sizeof operators / sizeof *operators };

    if (level == LEVEL_NOT) return parse_not(p);
    if (level == LEVEL_UNARY) return parse_unary(p, true);

    // The operators of this level, from left to right.
    JinjaNode *left = parse_binary(p, level + 1);
    for (int i = 0; i < N_OPERATORS; i++) {
        if (operators[i].level != level || !accept(p, operators[i].sign)) continue;

        left = new_node(p, operators[i].kind, left, parse_binary(p, level + 1));
        left->op = operators[i].op;
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

// A target without a comma: a name, an attribute (of a namespace), or a tuple in parentheses.
static JinjaNode *parse_one_target(JinjaParser *p) {
    JinjaNode *n = parse_primary(p);
    if (accept(p, ".")) n = new_named(p, EXPR_ATTRIBUTE, n);
    if (n->kind != EXPR_NAME && n->kind != EXPR_ATTRIBUTE && n->kind != EXPR_TUPLE)
        heap_fail(p->heap, "cannot assign to this");
    return n;
}

// An assignment target, or several, which are a tuple.
static JinjaNode *parse_target(JinjaParser *p) {
    JinjaNode *n = parse_one_target(p);
    if (!is_word(token(p), ",")) return n;

    n = new_node(p, EXPR_TUPLE, n, NULL);
    JinjaNode **tail = &n->a->next;
    while (accept(p, ",")) {
        bool is_target = token(p)->kind == TOKEN_NAME || is_word(token(p), "(");
        if (!is_target || is_word(token(p), "in")) break;
        *tail = parse_one_target(p);
        tail = &(*tail)->next;
    }
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
    n->op = accept(p, "recursive");
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
        if (!n->name.data && !n->op && n->a->kind == EXPR_NAME) {
            n->name = n->a->name;
            n->a = NULL;
        } else if (!n->name.data)
            heap_fail(p->heap, "expected the name of a parameter");
    }
    return args;
}

// A macro, from the end of its first tag on. As in Jinja, it takes further arguments only if its
// body uses them, and has no implicit variable with the name of a parameter.
static JinjaNode *parse_macro_body(JinjaParser *p, Str name, JinjaNode *params, const char *end) {
    JinjaNode *macro = new_node(p, EXPR_MACRO, params, NULL);
    macro->name = name;

    int outer = p->uses;
    p->uses = 0;
    macro->body = parse_until(p, end);
    macro->op = p->uses;
    p->uses |= outer;

    JinjaNode **tail = &macro->a;
    for (; *tail; tail = &(*tail)->next)
        for (int i = 0; i < N_MACRO_USES; i++)
            if (str_is((*tail)->name, macro_uses[i])) macro->op &= ~(1 << i);

    if (macro->op & USES_CALLER) {
        *tail = new_node(p, EXPR_ARG, NULL, NULL);
        (*tail)->name = str_of("caller");
        (*tail)->op = 1;
    }
    return macro;
}

// {% macro name(parameters) %} assigns the macro to its name.
static JinjaNode *parse_macro(JinjaParser *p) {
    JinjaNode *target = new_named(p, EXPR_NAME, NULL);
    expect(p, "(");
    JinjaNode *params = parse_params(p);
    return new_node(p, STMT_SET, target, parse_macro_body(p, target->name, params, "endmacro"));
}

// {% call(parameters) macro(arguments) %} outputs the call, with the body as the macro "caller" in
// its last argument.
static JinjaNode *parse_call_block(JinjaParser *p) {
    JinjaNode *params = accept(p, "(") ? parse_params(p) : NULL;
    JinjaNode *call = parse_expression(p);
    if (call->kind != EXPR_CALL) heap_fail(p->heap, "expected a call after {%% call %%}");

    JinjaNode *caller = new_node(p, EXPR_ARG, NULL, NULL);
    caller->name = str_of("caller");
    caller->a = parse_macro_body(p, caller->name, params, "endcall");
    JinjaNode **tail = &call->b;
    while (*tail) tail = &(*tail)->next;
    *tail = caller;
    return new_node(p, STMT_OUTPUT, call, NULL);
}

static JinjaNode *parse_with(JinjaParser *p) {
    JinjaNode *n = new_node(p, STMT_WITH, NULL, NULL);
    for (JinjaNode **tail = &n->a; token(p)->kind != TOKEN_CLOSE; tail = &(*tail)->next) {
        if (n->a) expect(p, ",");
        *tail = new_node(p, STMT_SET, parse_target(p), NULL);
        expect(p, "=");
        (*tail)->b = parse_expression(p);
    }
    n->body = parse_until(p, "endwith");
    return n;
}

static JinjaNode *parse_filter_block(JinjaParser *p) {
    JinjaNode *n = new_node(p, STMT_CAPTURE, NULL, NULL);
    n->b = parse_filter(p, NULL);
    n->body = parse_until(p, "endfilter");
    return n;
}

// A block without an effect of its own.
static JinjaNode *parse_generation(JinjaParser *p) { return parse_until(p, "endgeneration"); }

static JinjaNode *parse_jump(JinjaParser *p, JinjaNodeKind kind) {
    JinjaNode *n = new_node(p, kind, NULL, NULL);
    expect_close(p);
    return n;
}
static JinjaNode *parse_break(JinjaParser *p) { return parse_jump(p, STMT_BREAK); }
static JinjaNode *parse_continue(JinjaParser *p) { return parse_jump(p, STMT_CONTINUE); }

// A tag by its first word; `parse` continues after it.
typedef struct {
    const char *word;
    JinjaNode *(*parse)(JinjaParser *p);
} TagParser;

// The statements of a tag: one, or those of a "generation" block.
static JinjaNode *parse_statement(JinjaParser *p) {
    static const TagParser tags[] = {{"if", parse_if},
                                     {"for", parse_for},
                                     {"set", parse_set},
                                     {"macro", parse_macro},
                                     {"call", parse_call_block},
                                     {"with", parse_with},
                                     {"filter", parse_filter_block},
                                     {"generation", parse_generation},
                                     {"break", parse_break},
                                     {"continue", parse_continue}};

    p->heap->line = token(p)->line;
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++)
        if (accept(p, tags[i].word)) return tags[i].parse(p);
    heap_fail(p->heap, "unknown tag '%.*s'", SHOWN(token(p)->s));
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
