// The parser makes one pass over the text and one allocation, sized by count_nodes():
//
//   nodes (n_nodes)  |  key pointers (n_nodes), to sort the keys of an object  |  bytes (n + 1)
//
// A string is decoded into `bytes` at its offset in the text. It always fits, because decoding
// never makes it longer.
//
// Order: characters and values of the parser, access to the nodes, the writer.
#include "base/json.h"

#include <math.h>
#include <stdio.h>

enum { MAX_DEPTH = 64 };

typedef struct {
    const char *text;
    size_t n, at; // bytes, current position
    Json *nodes;
    size_t n_nodes;
    const Json **keys; // scratch of check_keys()
    char *bytes;
    JsonDoc *doc;
    Error *err;
} JsonParser;

// Sets the error "expected ..., found ..." for the character at an offset.
static bool expected_at(JsonParser *p, size_t at, const char *expected) {
    char found[16] = "the end";
    if (at < p->n) {
        unsigned char c = (unsigned char)p->text[at];
        snprintf(found, sizeof found, c > 0x20 && c < 0x7f ? "'%c'" : "byte 0x%02x", c);
    }
    return error_set(p->err, EXIT_RUNTIME, "byte %zu: expected %s, found %s", at, expected, found);
}

static int peek(const JsonParser *p) { return p->at < p->n ? (unsigned char)p->text[p->at] : -1; }

static bool begins_with(const JsonParser *p, const char *word) {
    return str_begins_with((Str){p->text + p->at, p->n - p->at}, word);
}

// Skips white space and returns the next character.
static int peek_token(JsonParser *p) {
    while (p->at < p->n && memchr(" \t\n\r", p->text[p->at], 4)) p->at++;
    return peek(p);
}

// Skips the next character if it is one of `chars`.
static bool skip_one_of(JsonParser *p, const char *chars) {
    int c = peek(p);
    bool is_found = c > 0 && strchr(chars, c);
    p->at += is_found;
    return is_found;
}

static bool parse_hex4(JsonParser *p, uint32_t *code) {
    *code = 0;
    for (int i = 0; i < 4; i++, p->at++) {
        int digit = hex_digit(peek(p));
        if (digit < 0) return expected_at(p, p->at, "a hexadecimal digit");
        *code = *code << 4 | (uint32_t)digit;
    }
    return true;
}

// Reads the rest of an escape, after the backslash. A code point above U+FFFF is a surrogate pair:
// \uD83D\uDE00.
static bool parse_escape(JsonParser *p, uint32_t *code) {
    static const char names[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    size_t start = p->at - 1;
    int c = peek(p);
    const char *name = c > 0 ? strchr(names, c) : NULL;
    if (name) {
        p->at++;
        *code = (unsigned char)meanings[name - names];
        return true;
    }

    // \u and four digits: a code unit of UTF-16.
    if (!skip_one_of(p, "u")) return expected_at(p, p->at, "one of \"\\/bfnrtu after a backslash");
    if (!parse_hex4(p, code)) return false;
    if (*code < 0xd800 || *code > 0xdfff) return true;

    // A high surrogate must be followed by a low surrogate.
    size_t end = p->at;
    uint32_t low = 0;
    if (*code < 0xdc00 && begins_with(p, "\\u")) {
        p->at += 2;
        if (!parse_hex4(p, &low)) return false;
    }
    bool is_lone = low < 0xdc00 || low > 0xdfff;
    if (is_lone && !p->doc->replaces_surrogates) return expected_at(p, start, "a surrogate pair");
    if (is_lone) { // what follows it is read again
        p->doc->n_replaced++;
        p->at = end;
        *code = 0xfffd;
        return true;
    }
    *code = 0x10000 + ((*code & 0x3ff) << 10) + (low & 0x3ff);
    return true;
}

static bool parse_string(JsonParser *p, Str *out) {
    char *start = p->bytes + ++p->at, *end = start;

    for (int c; (c = peek(p)) != '"';) {
        uint32_t code;
        if (c < 0x20)
            return expected_at(p, p->at,
                               c < 0 ? "a closing quote" : "an escaped control character");

        if (c == '\\') {
            p->at++;
            if (!parse_escape(p, &code)) return false;
            end += utf8_encode(code, end);
            continue;
        }

        int len = utf8_decode(p->text + p->at, p->n - p->at, &code);
        if (!len) return expected_at(p, p->at, "valid UTF-8");
        memcpy(end, p->text + p->at, (size_t)len);
        end += len;
        p->at += (size_t)len;
    }

    p->at++;
    *out = (Str){start, (size_t)(end - start)};
    return true;
}

static bool skip_digits(JsonParser *p) {
    if (peek(p) < '0' || peek(p) > '9') return expected_at(p, p->at, "a digit");
    while (peek(p) >= '0' && peek(p) <= '9') p->at++;
    return true;
}

// Checks the number against the grammar of JSON: strtod() accepts more.
static bool parse_number(JsonParser *p, Json *out) {
    size_t start = p->at;
    skip_one_of(p, "-");
    if (!skip_one_of(p, "0") && !skip_digits(p)) return false; // no leading zeros
    if (skip_one_of(p, ".") && !skip_digits(p)) return false;
    if (skip_one_of(p, "eE")) {
        skip_one_of(p, "+-");
        if (!skip_digits(p)) return false;
    }

    // strtod() needs a zero byte after the number, so the digits are copied.
    char *copy = memcpy(p->bytes + start, p->text + start, p->at - start);
    p->bytes[p->at] = 0;
    out->string = (Str){copy, p->at - start};
    out->number = strtod(copy, NULL);
    return isfinite(out->number) || expected_at(p, start, "a number that fits a double");
}

static bool parse_word(JsonParser *p, const char *word) {
    if (!begins_with(p, word)) return expected_at(p, p->at, "a JSON value");
    p->at += strlen(word);
    return true;
}

// Orders members by key, then by position, so that the second of two equal keys is reported.
static int compare_member_keys(const void *a, const void *b) {
    Str x = (*(const Json *const *)a)->key, y = (*(const Json *const *)b)->key;
    int order = str_compare(x, y);
    return order ? order : (x.data > y.data) - (x.data < y.data);
}

static void remove_member(Json *object, const Json *member) {
    const Json **link = &object->child;
    while (*link != member) link = (const Json **)&(*link)->next;
    *link = member->next;
    object->n_items--;
}

// Rejects duplicate keys: parsers differ in which of the values they use.
static bool check_keys(JsonParser *p, Json *object) {
    int n = 0;
    for (const Json *j = object->child; j; j = j->next) p->keys[n++] = j;
    if (n > 1) qsort(p->keys, (size_t)n, sizeof *p->keys, compare_member_keys);
    for (int i = 1; i < n; i++) {
        Str key = p->keys[i]->key;
        if (!str_eq(p->keys[i - 1]->key, key)) continue;
        if (p->doc->keeps_last)
            remove_member(object, p->keys[i - 1]);
        else
            return error_set(p->err, EXIT_RUNTIME, "byte %zu: duplicate key \"%.*s\"",
                             (size_t)(key.data - p->bytes), SHOWN(key));
    }
    return true;
}

static bool parse_value(JsonParser *p, Json *v, int depth);

// An array or object from bracket to bracket; its items become children of `parent`.
static bool parse_items(JsonParser *p, Json *parent, int depth) {
    bool is_object = parent->kind == JSON_OBJECT;
    const char *close = is_object ? "}" : "]";
    const Json **link = &parent->child;
    if (depth == MAX_DEPTH) return expected_at(p, p->at, "at most 64 levels");

    p->at++;
    peek_token(p);
    if (skip_one_of(p, close)) return true;

    for (;;) {
        Json *item = &p->nodes[p->n_nodes++];
        *item = (Json){0};

        if (is_object) {
            if (peek_token(p) != '"') return expected_at(p, p->at, "a quoted key");
            if (!parse_string(p, &item->key)) return false;
            peek_token(p);
            if (!skip_one_of(p, ":")) return expected_at(p, p->at, "':'");
        }

        if (!parse_value(p, item, depth + 1)) return false;
        *link = item;
        link = &item->next;
        parent->n_items++;

        peek_token(p);
        if (skip_one_of(p, close)) return !is_object || check_keys(p, parent);
        if (!skip_one_of(p, ","))
            return expected_at(p, p->at, is_object ? "',' or '}'" : "',' or ']'");
    }
}

static bool parse_value(JsonParser *p, Json *v, int depth) {
    int c = peek_token(p);
    switch (c) {
    case '{': v->kind = JSON_OBJECT; return parse_items(p, v, depth);
    case '[': v->kind = JSON_ARRAY; return parse_items(p, v, depth);
    case '"': v->kind = JSON_STRING; return parse_string(p, &v->string);
    case 't':
    case 'f':
        v->kind = JSON_BOOL;
        v->boolean = c == 't';
        return parse_word(p, v->boolean ? "true" : "false");
    case 'n': return parse_word(p, "null");
    }

    if (c != '-' && (c < '0' || c > '9')) return expected_at(p, p->at, "a JSON value");
    v->kind = JSON_NUMBER;
    return parse_number(p, v);
}

// An upper bound of the number of values: one plus the number of commas and opening brackets
// outside strings.
static size_t count_nodes(const char *text, size_t n) {
    size_t count = 1;
    bool in_string = false;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (c == '"')
            in_string = !in_string;
        else if (in_string)
            i += c == '\\';
        else
            count += c == ',' || c == '[' || c == '{';
    }
    return count;
}

bool json_parse(JsonDoc *doc, const char *text, size_t n, Error *err) {
    size_t n_nodes = count_nodes(text, n), bytes;

    // Allocate the arena, unless the one of an earlier text is large enough.
    doc->root = NULL;
    if (!size_mul(n_nodes, sizeof(Json) + sizeof(Json *), &bytes) ||
        !size_add(bytes, n + 1, &bytes))
        return error_set(err, EXIT_RUNTIME, "JSON text of %zu bytes is too long", n);
    if (doc->cap < bytes) {
        free(doc->arena);
        doc->cap = 0;
        doc->arena = malloc(bytes);
        if (!doc->arena) return error_set(err, EXIT_RUNTIME, "out of memory: %zu bytes", bytes);
        doc->cap = bytes;
    }

    Json *nodes = doc->arena;
    JsonParser p = {.text = text,
                    .n = n,
                    .nodes = nodes,
                    .n_nodes = 1,
                    .keys = (const Json **)(void *)(nodes + n_nodes),
                    .doc = doc,
                    .err = err};
    p.bytes = (char *)(p.keys + n_nodes);
    *nodes = (Json){0};

    if (!parse_value(&p, nodes, 0)) return false;
    if (peek_token(&p) >= 0) return expected_at(&p, p.at, "the end");
    doc->root = nodes;
    return true;
}

void json_free(JsonDoc *doc) {
    free(doc->arena);
    *doc = (JsonDoc){0};
}

size_t json_span(Str text) {
    int depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < text.len; i++) {
        char c = text.data[i];
        if (in_string && c == '\\') i++;
        in_string ^= c == '"';
        if (in_string) continue;

        depth += c == '{' || c == '[';
        depth -= c == '}' || c == ']';
        if (depth <= 0) return i + 1;
    }
    return 0;
}

const Json *json_get(const Json *obj, const char *key) {
    if (!obj || obj->kind != JSON_OBJECT) return NULL;
    for (const Json *j = obj->child; j; j = j->next)
        if (str_is(j->key, key)) return j;
    return NULL;
}

const Json *json_get_value(const Json *obj, const char *key) {
    const Json *j = json_get(obj, key);
    return j && j->kind != JSON_NULL ? j : NULL;
}

const Json *json_get_string(const Json *obj, const char *key) {
    const Json *j = json_get(obj, key);
    return j && j->kind == JSON_STRING ? j : NULL;
}

// Appends an item to a list of *n. False if it is empty.
static bool list_add(Str **items, int *n, Str item) {
    *items = list_grow(*items, *n, sizeof **items);
    (*items)[(*n)++] = item;
    return item.len;
}

static bool list_array(const Json *array, Str **items, int *n) {
    for (const Json *v = array->child; v; v = v->next)
        if (v->kind != JSON_STRING || !list_add(items, n, v->string)) return false;
    return true;
}

static bool list_words(const char *text, Str **items, int *n) {
    for (const char *s = text;;) {
        Str item = {s, strcspn(s, ",")};
        if (!list_add(items, n, item)) return false;
        if (!s[item.len]) return true;
        s += item.len + 1;
    }
}

Str *json_list(JsonDoc *doc, const char *text, int *n, Error *err) {
    Str *items = NULL;
    bool is_array = text[strspn(text, " ")] == '[';
    *n = 0;

    if (is_array && !json_parse(doc, text, strlen(text), err)) {
        if (doc->arena) err->code = EXIT_USAGE; // otherwise out of memory
        json_free(doc);
        return NULL;
    }

    bool ok = is_array ? list_array(doc->root, &items, n) : list_words(text, &items, n);
    if (ok && *n) return items;
    error_set(err, EXIT_USAGE,
              "expected A,B,... or a JSON array of strings, none of them empty; found \"%s\"",
              text);
    free(items);
    json_free(doc);
    return NULL;
}

bool json_is(const Json *j, const char *text) {
    return j && j->kind == JSON_STRING && str_is(j->string, text);
}

void json_quote(Buffer *out, Str s) {
    static const char plain[] = "\"\\\b\f\n\r\t", names[] = "\"\\bfnrt";
    buffer_puts(out, "\"");

    for (size_t i = 0, len; i < s.len; i += len) {
        uint32_t code;
        len = (size_t)utf8_decode(s.data + i, s.len - i, &code);

        const char *special = len == 1 && code ? strchr(plain, (int)code) : NULL;
        if (!len) { // not UTF-8: the replacement character
            buffer_append(out, "\xef\xbf\xbd", 3);
            len = 1;
        } else if (special) {
            buffer_printf(out, "\\%c", names[special - plain]);
        } else if (code < 0x20 || (code >= 0x7f && code < 0xa0)) {
            buffer_printf(out, "\\u%04x", code);
        } else {
            buffer_append(out, s.data + i, len);
        }
    }

    buffer_puts(out, "\"");
}

// Writes the comma before a value, and the value's key.
static void start_value(JsonWriter *w, const char *key) {
    if (w->needs_comma) buffer_puts(w->out, ",");
    w->needs_comma = true;
    if (!key) return;
    json_quote(w->out, str_of(key));
    buffer_puts(w->out, ":");
}

static void open_container(JsonWriter *w, const char *key, const char *bracket) {
    start_value(w, key);
    buffer_puts(w->out, bracket);
    w->needs_comma = false;
}

static void close_container(JsonWriter *w, const char *bracket) {
    buffer_puts(w->out, bracket);
    w->needs_comma = true;
}

JsonWriter json_object(Buffer *out) {
    JsonWriter w = {.out = out};
    json_begin_object(&w, NULL);
    return w;
}
void json_begin_object(JsonWriter *w, const char *key) { open_container(w, key, "{"); }
void json_end_object(JsonWriter *w) { close_container(w, "}"); }
void json_begin_array(JsonWriter *w, const char *key) { open_container(w, key, "["); }
void json_end_array(JsonWriter *w) { close_container(w, "]"); }

void json_write_key(JsonWriter *w, Str key) {
    json_write_string(w, NULL, key);
    buffer_puts(w->out, ":");
    w->needs_comma = false;
}

void json_write_null(JsonWriter *w, const char *key) { json_write_format(w, key, "null"); }

void json_write_bool(JsonWriter *w, const char *key, bool value) {
    json_write_format(w, key, value ? "true" : "false");
}

void json_write_int(JsonWriter *w, const char *key, int64_t value) {
    json_write_format(w, key, "%lld", (long long)value);
}

void json_write_number(JsonWriter *w, const char *key, double x) {
    start_value(w, key);
    if (x - x == 0)
        buffer_put_double(w->out, x);
    else
        buffer_puts(w->out, "null");
}

void json_write_string(JsonWriter *w, const char *key, Str s) {
    start_value(w, key);
    json_quote(w->out, s);
}

void json_write_format(JsonWriter *w, const char *key, const char *fmt, ...) {
    va_list ap;
    start_value(w, key);
    va_start(ap, fmt);
    buffer_vprintf(w->out, fmt, ap);
    va_end(ap);
}

void json_write_value(JsonWriter *w, const char *key, const Json *v,
                      bool (*special)(Buffer *out, const Json *v)) {
    start_value(w, key);
    if (special && special(w->out, v)) return;
    w->needs_comma = false; // start_value() wrote it

    switch (v->kind) {
    case JSON_NULL: json_write_null(w, NULL); break;
    case JSON_BOOL: json_write_bool(w, NULL, v->boolean); break;
    case JSON_NUMBER: buffer_put(w->out, v->string); break;
    case JSON_STRING: json_quote(w->out, v->string); break;
    case JSON_ARRAY:
    case JSON_OBJECT:
        open_container(w, NULL, v->kind == JSON_ARRAY ? "[" : "{");
        for (const Json *item = v->child; item; item = item->next) {
            if (v->kind == JSON_OBJECT) json_write_key(w, item->key);
            json_write_value(w, NULL, item, special);
        }
        close_container(w, v->kind == JSON_ARRAY ? "]" : "}");
    }

    w->needs_comma = true;
}
