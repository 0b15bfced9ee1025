// The heap, text, then values: construction, types, comparison, printing.
#include "chat/jinja/jinja_value.h"
#include "base/bits.h"
#include "base/unicode.h"

#include <math.h>
#include <stdio.h>

enum {
    CHUNK_BYTES = 1 << 16,
    MAX_OUT = 8 << 20,  // bytes of output; its mask has the same size
    PUT_BYTES = 8,      // bytes charged for appending a text, in addition to its length
    BYTES_PER_STEP = 64 // bytes touched that count as one evaluation step
};

// Heap

void heap_fail(Heap *h, const char *fmt, ...) {
    Buffer text = {0};
    va_list ap;
    va_start(ap, fmt);
    buffer_vprintf(&text, fmt, ap);
    va_end(ap);
    error_set(h->err, EXIT_RUNTIME, "%s: line %d: %s", h->name, h->line, text.data);
    buffer_free(&text);
    longjmp(h->on_fail, 1);
}

void *heap_alloc(Heap *h, size_t n, size_t size) {
    size_t bytes;
    if (!size_mul(n, size, &bytes) || bytes > h->n_left)
        heap_fail(h, "the template needs too much memory");
    bytes = size_round_up(bytes, 16);
    if (h->chunk_left < bytes) {
        h->chunk_left = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
        h->chunk = arena_alloc(&h->chunks, h->chunk_left, 1);
        h->n_left -= h->chunk_left < h->n_left ? h->chunk_left : h->n_left;
    }
    h->chunk_left -= bytes;
    return (h->chunk += bytes) - bytes;
}

// The capacity is a power of two, at least 2. The array is full if n is 0 or such a power.
void *heap_grow(Heap *h, void *items, int n, size_t size) {
    if (n == 1 || (n & (n - 1))) return items;
    void *more = heap_alloc(h, n ? 2 * (size_t)n : 2, size);
    return n ? memcpy(more, items, (size_t)n * size) : more;
}

void heap_spend(Heap *h, size_t n_steps) {
    if (h->steps < n_steps) heap_fail(h, "the template takes too many steps");
    h->steps -= n_steps;
}

void heap_touch(Heap *h, size_t n_bytes) {
    h->n_touched += n_bytes;
    heap_spend(h, h->n_touched / BYTES_PER_STEP);
    h->n_touched %= BYTES_PER_STEP;
}

void heap_enter(Heap *h) {
    heap_spend(h, 1);
    if (h->depth++ == HEAP_DEPTH) heap_fail(h, "the template is nested too deeply");
}

void heap_free(Heap *h) {
    arena_free(&h->chunks);
    buffer_free(&h->out);
    buffer_free(&h->mask);
}

void heap_push_arg(Heap *h, Value v, Str name) {
    if (h->n_args == HEAP_ARGS)
        heap_fail(h, "the running calls have more than %d arguments", HEAP_ARGS);
    h->args[h->n_args] = v;
    h->arg_names[h->n_args++] = name;
}

void heap_put(Heap *h, Text t) {
    heap_touch(h, t.len + PUT_BYTES);
    if (t.len > MAX_OUT - h->out.len)
        heap_fail(h, "the template makes more than %d bytes of text", MAX_OUT);
    buffer_append(&h->out, t.data, t.len);
    char *mask = buffer_reserve(&h->mask, t.len);
    if (t.mask)
        memcpy(mask, t.mask, t.len);
    else
        memset(mask, 0, t.len);
    h->mask.len += t.len;
}

void heap_puts(Heap *h, const char *text) { heap_put(h, text_of(text)); }

Value heap_pop_string(Heap *h, size_t start) {
    size_t n = h->out.len - start;
    if (!n) return value_text(text_of(""));
    bool has_mask = memchr(h->mask.data + start, 1, n);
    char *data = heap_alloc(h, n, has_mask ? 2 : 1);
    memcpy(data, h->out.data + start, n);
    if (has_mask) memcpy(data + n, h->mask.data + start, n);
    h->out.len = h->mask.len = start;
    return value_text((Text){data, has_mask ? data + n : NULL, n});
}

// Text

Text text_part(Text t, size_t from, size_t to) {
    if (from > to) from = to;
    return (Text){t.data + from, t.mask ? t.mask + from : NULL, to - from};
}

// Length of the character at s in bytes, determined by its first byte. At least 1, even for invalid
// UTF-8.
static size_t char_length(const char *s) {
    unsigned char c = (unsigned char)*s;
    if (c < 0xe0) return c < 0x80 ? 1 : 2;
    return c < 0xf0 ? 3 : 4;
}

Text text_next(Text *rest) {
    Text c = text_part(*rest, 0, char_length(rest->data));
    *rest = text_part(*rest, c.len, rest->len);
    return c;
}

size_t text_length(Heap *h, Text t) {
    heap_touch(h, t.len);
    return utf8_length(t.data, t.len);
}

size_t text_offset(Text t, int64_t i) {
    size_t at = i < 0 ? t.len : 0;
    for (; i > 0 && at < t.len; i--) at += char_length(t.data + at);
    for (; i < 0 && at > 0; i++) do
            at--;
        while (((unsigned char)t.data[at] & 0xc0) == 0x80);
    return at;
}

uint32_t text_code(Text c) {
    uint32_t code = 0;
    utf8_decode(c.data, c.len, &code);
    return code;
}

// True if text_strip() removes the character c.
static bool is_stripped(Text c, Text chars) {
    if (chars.data) return str_find(text_str(chars), text_str(c)) != SIZE_MAX;
    return unicode_is_space(text_code(c));
}

Text text_strip(Text t, Text chars, bool left, bool right) {
    while (left && t.len && is_stripped(text_part(t, 0, char_length(t.data)), chars)) text_next(&t);
    if (!right) return t;

    while (t.len) {
        size_t at = text_offset(t, -1);
        if (!is_stripped(text_part(t, at, t.len), chars)) break;
        t.len = at;
    }
    return t;
}

// In the worst case, the search compares every byte of `part` at every byte of `t`. For a long part
// these steps are charged in advance. For a short part only the bytes searched are charged.
size_t text_find(Heap *h, Text t, Text part, size_t from) {
    size_t n = t.len - from, n_part = part.len / BYTES_PER_STEP + 1;
    if (n_part > 1) heap_spend(h, (n / BYTES_PER_STEP + 1) * n_part);
    size_t at = str_find(text_str(text_part(t, from, t.len)), text_str(part));
    heap_spend(h, (at == SIZE_MAX ? n : at) / BYTES_PER_STEP + 1);
    return at == SIZE_MAX ? at : from + at;
}

size_t text_find_last(Heap *h, Text t, Text part) {
    heap_touch(h, (t.len * 4 + 1) * (part.len / 16 + 1));
    if (!part.len) return t.len;
    for (size_t at = t.len; at >= part.len; at--)
        if (!memcmp(t.data + at - part.len, part.data, part.len)) return at - part.len;
    return SIZE_MAX;
}

// Construction

Value value_list(Heap *h, ValueKind kind, int n) {
    Value v = {.kind = kind, .list = heap_alloc(h, 1, sizeof(List))};
    *v.list = (List){heap_alloc(h, (size_t)n, sizeof(Value)), n};
    return v;
}

void list_push(Heap *h, List *list, Value item) {
    list->items = heap_grow(h, list->items, list->n, sizeof item);
    list->items[list->n++] = item;
}

List *list_reversed(Heap *h, const List *list) {
    List *out = value_list(h, VALUE_LIST, list->n).list;
    for (int i = 0; i < list->n; i++) out->items[i] = list->items[list->n - 1 - i];
    return out;
}

Value value_dict(Heap *h, ValueKind kind) {
    return (Value){.kind = kind, .dict = heap_alloc(h, 1, sizeof(Dict))};
}

Value *dict_find(Heap *h, const Dict *d, Value key) {
    for (int i = 0; i < d->n; i++)
        if (value_equal(h, d->pairs[i].key, key)) return &d->pairs[i].value;
    return NULL;
}

void dict_set(Heap *h, Dict *d, Value key, Value v) {
    if (key.kind == VALUE_DICT || key.kind == VALUE_LIST)
        heap_fail(h, "unhashable type: '%s'", value_type_name(key));
    Value *old = dict_find(h, d, key);
    if (old) {
        *old = v;
        return;
    }
    d->pairs = heap_grow(h, d->pairs, d->n, sizeof *d->pairs);
    d->pairs[d->n++] = (DictPair){key, v};
}

List *dict_pairs(Heap *h, Value v) {
    if (v.kind != VALUE_DICT) return value_iterate(h, v);
    List *out = value_list(h, VALUE_LIST, v.dict->n).list;
    for (int i = 0; i < out->n; i++) {
        out->items[i] = value_list(h, VALUE_TUPLE, 2);
        out->items[i].list->items[0] = v.dict->pairs[i].key;
        out->items[i].list->items[1] = v.dict->pairs[i].value;
    }
    return out;
}

// As in Python, 1 is an int, but 1.0 and 1e0 are floats.
static Value number_from_json(Heap *h, const Json *j) {
    const char *text = j->string.data; // json_parse() puts a NUL byte after a number
    int64_t integer;
    heap_touch(h, j->string.len);
    if (text[strspn(text, "-0123456789")]) return value_float(j->number);
    if (parse_i64(text, &integer)) return value_int(integer);
    return (Value){.kind = VALUE_BIG_INT, .text = {text, NULL, j->string.len}};
}

Value value_from_json(Heap *h, const Json *j, bool (*is_template_text)(const Json *string)) {
    Value v = value_none();
    heap_spend(h, 1);

    switch (j->kind) {
    case JSON_NULL: break;
    case JSON_BOOL: return value_bool(j->boolean);
    case JSON_NUMBER: return number_from_json(h, j);
    case JSON_STRING:
        v = value_data(j->string);
        if (is_template_text && is_template_text(j))
            v.text.mask = memset(heap_alloc(h, v.text.len, 1), 1, v.text.len);
        break;
    case JSON_ARRAY:
        v = value_list(h, VALUE_LIST, j->n_items);
        j = j->child;
        for (int i = 0; j; j = j->next)
            v.list->items[i++] = value_from_json(h, j, is_template_text);
        break;
    case JSON_OBJECT:
        v = value_dict(h, VALUE_DICT);
        v.dict->pairs = heap_alloc(h, (size_t)j->n_items, sizeof(DictPair));
        for (const Json *m = j->child; m; m = m->next) // json_parse() rejects duplicate keys
            v.dict->pairs[v.dict->n++] =
                (DictPair){value_data(m->key), value_from_json(h, m, is_template_text)};
    }

    return v;
}

// Types

const char *value_type_name(Value v) {
    static const char *const names[] = {
        // in the order of ValueKind
        "Undefined", "Undefined", "NoneType",  "bool",     "int",   "float",
        "int",       "str",       "list",      "tuple",    "range", "dict_items",
        "generator", "dict",      "Namespace", "function", "Macro", "LoopContext"};
    return names[v.kind];
}

bool value_truth(Value v) {
    if (v.kind <= VALUE_NONE) return false;
    if (v.kind == VALUE_BOOL) return v.boolean;
    if (v.kind == VALUE_INT) return v.integer;
    if (v.kind == VALUE_FLOAT) return v.number != 0;
    if (v.kind == VALUE_STRING) return v.text.len;
    if (v.kind == VALUE_DICT) return v.dict->n;
    return !value_is_list(v) || v.kind == VALUE_GENERATOR || v.list->n;
}

void value_require(Heap *h, Value v) {
    if (v.kind != VALUE_UNDEFINED) return;
    if (v.owner) heap_fail(h, "'%s object' has no attribute '%.*s'", v.owner, SHOWN(v.name));
    heap_fail(h, "'%.*s' is undefined", SHOWN(v.name));
}

double value_number(Heap *h, Value v) {
    if (!value_is_number(v)) heap_fail(h, "expected a number, found '%s'", value_type_name(v));
    if (v.kind == VALUE_FLOAT) return v.number;
    if (v.kind != VALUE_BIG_INT) return (double)value_integer(h, v);
    heap_touch(h, v.text.len * 8);
    return strtod(v.text.data, NULL); // the digits are followed by a NUL byte
}

int64_t value_integer(Heap *h, Value v) {
    if (v.kind == VALUE_BOOL) return v.boolean;
    if (v.kind == VALUE_BIG_INT) heap_fail(h, "a number is too large");
    if (v.kind != VALUE_INT) heap_fail(h, "expected an integer, found '%s'", value_type_name(v));
    return v.integer;
}

Text value_string(Heap *h, Value v) {
    if (v.kind != VALUE_STRING) heap_fail(h, "expected a string, found '%s'", value_type_name(v));
    return v.text;
}

Dict *value_mapping(Heap *h, Value v) {
    if (v.kind != VALUE_DICT) heap_fail(h, "expected a mapping, found '%s'", value_type_name(v));
    return v.dict;
}

List *value_iterate(Heap *h, Value v) {
    if (value_is_list(v)) {
        List *all = heap_alloc(h, 1, sizeof *all);
        *all = *v.list;
        if (v.kind == VALUE_GENERATOR) v.list->n = 0;
        return all;
    }
    if (v.kind == VALUE_UNDEFINED) return value_list(h, VALUE_LIST, 0).list;
    if (v.kind != VALUE_STRING && v.kind != VALUE_DICT)
        heap_fail(h, "'%s' object is not iterable", value_type_name(v));

    // The keys of a dictionary, or the characters of a string.
    bool is_dict = v.kind == VALUE_DICT;
    int n = is_dict ? v.dict->n : (int)text_length(h, v.text);
    List *all = value_list(h, VALUE_LIST, n).list;
    for (int i = 0; i < n; i++)
        all->items[i] = is_dict ? v.dict->pairs[i].key : value_text(text_next(&v.text));
    return all;
}

// Comparison

static bool lists_are_equal(Heap *h, const List *a, const List *b) {
    if (a->n != b->n) return false;
    for (int i = 0; i < a->n; i++)
        if (!value_equal(h, a->items[i], b->items[i])) return false;
    return true;
}

static bool dicts_are_equal(Heap *h, const Dict *a, const Dict *b) {
    if (a->n != b->n) return false;
    for (int i = 0; i < a->n; i++) {
        const Value *other = dict_find(h, b, a->pairs[i].key);
        if (!other || !value_equal(h, a->pairs[i].value, *other)) return false;
    }
    return true;
}

static bool functions_are_equal(Heap *h, Value a, Value b) {
    bool is_same = a.builtin == b.builtin && a.variant == b.variant && !a.self == !b.self;
    return is_same && (!a.self || value_equal(h, *a.self, *b.self));
}

static bool numbers_are_equal(Heap *h, Value a, Value b) {
    if (a.kind == VALUE_INT && b.kind == VALUE_INT) return a.integer == b.integer;
    if (a.kind == VALUE_BIG_INT && b.kind == VALUE_BIG_INT)
        return str_eq(text_str(a.text), text_str(b.text));
    return value_number(h, a) == value_number(h, b);
}

static bool strings_are_equal(Heap *h, Text a, Text b) {
    heap_touch(h, BYTES_PER_STEP + (a.len == b.len ? a.len : 0));
    return str_eq(text_str(a), text_str(b));
}

// Compares two values that are not both numbers.
static bool objects_are_equal(Heap *h, Value a, Value b) {
    if (a.kind != b.kind) return false;
    switch (a.kind) {
    case VALUE_ABSENT:
    case VALUE_UNDEFINED:
    case VALUE_NONE: return true;
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_RANGE: return lists_are_equal(h, a.list, b.list);
    case VALUE_DICT: return dicts_are_equal(h, a.dict, b.dict);
    case VALUE_FUNCTION: return functions_are_equal(h, a, b);
    default: return a.list == b.list; // identity; the pointers of the union overlap
    }
}

bool value_equal(Heap *h, Value a, Value b) {
    if (a.kind == VALUE_STRING && b.kind == VALUE_STRING)
        return strings_are_equal(h, a.text, b.text);

    heap_enter(h);
    bool are_numbers = value_is_number(a) && value_is_number(b);
    bool is_equal = are_numbers ? numbers_are_equal(h, a, b) : objects_are_equal(h, a, b);
    h->depth--;
    return is_equal;
}

bool value_is_same(Heap *h, Value a, Value b) {
    if (a.kind != b.kind) return false;
    bool has_identity = a.kind >= VALUE_LIST && a.kind != VALUE_FUNCTION;
    return has_identity ? a.list == b.list : value_equal(h, a, b);
}

static bool value_less(Heap *h, Value a, Value b);

// The first pair of different items decides.
static bool list_is_less(Heap *h, const List *a, const List *b) {
    int i = 0, n = a->n < b->n ? a->n : b->n;
    while (i < n && value_equal(h, a->items[i], b->items[i])) i++;
    if (i == n) return a->n < b->n;

    heap_enter(h);
    bool is_less = value_less(h, a->items[i], b->items[i]);
    h->depth--;
    return is_less;
}

static bool value_less(Heap *h, Value a, Value b) {
    heap_spend(h, 1);

    if (a.kind == VALUE_INT && b.kind == VALUE_INT) return a.integer < b.integer;
    if (value_is_number(a) && value_is_number(b)) return value_number(h, a) < value_number(h, b);
    if (a.kind == VALUE_STRING && b.kind == VALUE_STRING) {
        heap_touch(h, a.text.len < b.text.len ? a.text.len : b.text.len);
        return str_compare(text_str(a.text), text_str(b.text)) < 0;
    }

    if (a.kind != b.kind || (a.kind != VALUE_LIST && a.kind != VALUE_TUPLE))
        heap_fail(h, "'<' not supported between instances of '%s' and '%s'", value_type_name(a),
                  value_type_name(b));
    return list_is_less(h, a.list, b.list);
}

// Insertion sort. qsort() cannot be used, because a comparison that fails jumps out of it
// (heap_fail).
int *value_order(Heap *h, const List *keys, bool is_descending) {
    int *order = heap_alloc(h, (size_t)keys->n, sizeof *order);

    for (int i = 0; i < keys->n; i++) {
        Value key = keys->items[i];
        int at = i;
        for (; at > 0; at--) {
            Value other = keys->items[order[at - 1]];
            bool is_before = is_descending ? value_less(h, other, key) : value_less(h, key, other);
            if (!is_before) break;
            order[at] = order[at - 1];
        }
        order[at] = i;
    }

    return order;
}

static bool value_contains(Heap *h, Value all, Value v) {
    if (all.kind == VALUE_STRING) {
        if (v.kind != VALUE_STRING)
            heap_fail(h, "'in <string>' requires string as left operand, not %s",
                      value_type_name(v));
        return text_find(h, all.text, v.text, 0) != SIZE_MAX;
    }
    if (all.kind == VALUE_DICT) return dict_find(h, all.dict, v);
    List *list = value_iterate(h, all);
    for (int i = 0; i < list->n; i++)
        if (value_equal(h, list->items[i], v)) return true;
    return false;
}

bool value_compare(Heap *h, Comparison op, Value a, Value b) {
    switch (op) {
    case CMP_EQ: return value_equal(h, a, b);
    case CMP_NE: return !value_equal(h, a, b);
    case CMP_LT: return value_less(h, a, b);
    case CMP_GT: return value_less(h, b, a);
    case CMP_LE: return value_less(h, a, b) || value_equal(h, a, b);
    case CMP_GE: return value_less(h, b, a) || value_equal(h, a, b);
    default: return value_contains(h, b, a) == (op == CMP_IN);
    }
}

// Printing

const ValueStyle value_repr = {.comma = {", ", NULL, 2}, .colon = {": ", NULL, 2}};

// Python's repr(): the shortest digits that read back as x, with an exponent if |x| >= 1e16 or
// |x| < 1e-4.
OWN_FRAME static void put_float(Heap *h, double x, bool is_json) {
    static const char *const not_finite[2][2] = {{"inf", "nan"}, {"Infinity", "NaN"}};
    char text[400];
    if (!isfinite(x)) {
        if (x < 0) heap_puts(h, "-");
        heap_puts(h, not_finite[is_json][isnan(x) != 0]);
        return;
    }

    int digits = double_digits(x) - 1;
    snprintf(text, sizeof text, "%.*e", digits, x);
    int exponent = atoi(strchr(text, 'e') + 1);
    if (exponent >= -4 && exponent < 16)
        snprintf(text, sizeof text, "%.*f", digits - exponent > 1 ? digits - exponent : 1, x);
    heap_puts(h, text);
}

// True for the characters that Python considers printable (str.isprintable).
static bool is_printable(uint32_t c) {
    static const uint32_t hidden[][2] = {
        {0, 0x1f},          {0x7f, 0xa0},     {0xad, 0xad},     {0x600, 0x605},   {0x61c, 0x61c},
        {0x1680, 0x1680},   {0x180e, 0x180e}, {0x2000, 0x200f}, {0x2028, 0x202f}, {0x205f, 0x206f},
        {0x3000, 0x3000},   {0xd800, 0xf8ff}, {0xfeff, 0xfeff}, {0xfff0, 0xfffb}, {0xfffe, 0xffff},
        {0xe0000, 0xe0fff}, {0xf0000, ~0u}};
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++)
        if (c >= hidden[i][0] && c <= hidden[i][1]) return false;
    return true;
}

// Formats the escape sequence of a character in a quoted string. Returns false if it needs none.
static bool escape_char(uint32_t code, char quote, bool is_json, bool is_ascii, char escape[16]) {
    static const char specials[] = "\\\n\r\t\b\f", letters[] = "\\nrtbf"; // repr(): the first 4
    const char *special = code && code < 0x80 ? strchr(specials, (int)code) : NULL;

    bool is_special = special && (is_json || special < specials + 4);
    bool is_plain = is_json ? code >= 0x20 : is_printable(code);
    if (is_ascii && code > 0x7e) is_plain = false;

    if (code == (uint32_t)quote)
        snprintf(escape, 16, "\\%c", quote);
    else if (is_special)
        snprintf(escape, 16, "\\%c", letters[special - specials]);
    else if (is_plain)
        return false;
    else if (code <= 0xff && !is_json)
        snprintf(escape, 16, "\\x%02x", code);
    else if (code <= 0xffff)
        snprintf(escape, 16, "\\u%04x", code);
    else if (!is_json)
        snprintf(escape, 16, "\\U%08x", code);
    else // JSON has no \UXXXXXXXX, but surrogate pairs
        snprintf(escape, 16, "\\u%04x\\u%04x", 0xd800 + ((code - 0x10000) >> 10),
                 0xdc00 + (code & 0x3ff));
    return true;
}

static void put_quoted_text(Heap *h, Text t, bool is_json, bool is_ascii) {
    bool is_double = is_json || (memchr(t.data, '\'', t.len) && !memchr(t.data, '"', t.len));
    const char *quote = is_double ? "\"" : "'";
    heap_puts(h, quote);
    while (t.len) {
        char escape[16];
        Text c = text_next(&t);
        if (escape_char(text_code(c), *quote, is_json, is_ascii, escape)) c = text_of(escape);
        heap_put(h, c);
    }
    heap_puts(h, quote);
}

// Starts an item: a separator unless it is the first, then the line break and indent, if any.
static void put_separator(Heap *h, const ValueStyle *style, bool is_first, int level) {
    if (!is_first) heap_put(h, style->comma);
    if (!style->is_indented) return;
    heap_puts(h, "\n");
    for (int i = 0; i < level; i++) heap_put(h, style->indent);
}

// The key of a JSON object. As in Python, null, a bool or a number becomes a string.
static Value json_key(Heap *h, Value key) {
    if (key.kind < VALUE_NONE || key.kind > VALUE_STRING)
        heap_fail(h, "tojson: keys must be str, int, float, bool or None, found '%s'",
                  value_type_name(key));
    if (key.kind == VALUE_STRING) return key;

    const ValueStyle json = {.is_json = true};
    size_t start = h->out.len;
    value_put(h, key, &json, 0);
    return heap_pop_string(h, start);
}

static void put_dict(Heap *h, Value v, const ValueStyle *style, int level) {
    const Dict *d = v.dict;
    int *order = style->is_sorted ? value_order(h, value_iterate(h, v), false) : NULL;

    heap_puts(h, "{");
    for (int i = 0; i < d->n; i++) {
        DictPair *pair = &d->pairs[order ? order[i] : i];

        put_separator(h, style, i == 0, level + 1);
        value_put(h, style->is_json ? json_key(h, pair->key) : pair->key, style, 0);
        heap_put(h, style->colon);
        value_put(h, pair->value, style, level + 1);
    }
    if (d->n) put_separator(h, style, true, level);
    heap_puts(h, "}");
}

static void put_list(Heap *h, Value v, const ValueStyle *style, int level) {
    bool is_tuple = v.kind == VALUE_TUPLE && !style->is_json;
    const List *list = v.list;

    heap_puts(h, is_tuple ? "(" : "[");
    for (int i = 0; i < list->n; i++) {
        put_separator(h, style, i == 0, level + 1);
        value_put(h, list->items[i], style, level + 1);
    }
    if (list->n) put_separator(h, style, true, level);
    if (list->n == 1 && is_tuple) heap_puts(h, ","); // (1,) is a tuple, (1) is not
    heap_puts(h, is_tuple ? ")" : "]");
}

static void put_integer(Heap *h, int64_t i) {
    char digits[24];
    snprintf(digits, sizeof digits, "%lld", (long long)i);
    heap_puts(h, digits);
}

void value_put(Heap *h, Value v, const ValueStyle *style, int level) {
    static const char *const words[2][3] = {{"None", "False", "True"}, {"null", "false", "true"}};
    const ValueStyle *inner = style ? style : &value_repr; // of items

    heap_enter(h);
    switch (v.kind) {
    case VALUE_NONE: heap_puts(h, words[inner->is_json][0]); break;
    case VALUE_BOOL: heap_puts(h, words[inner->is_json][1 + v.boolean]); break;
    case VALUE_INT: put_integer(h, v.integer); break;
    case VALUE_FLOAT: put_float(h, v.number, inner->is_json); break;
    case VALUE_BIG_INT: heap_put(h, v.text); break;
    case VALUE_STRING:
        if (style)
            put_quoted_text(h, v.text, style->is_json, style->is_ascii);
        else
            heap_put(h, v.text);
        break;
    case VALUE_LIST:
    case VALUE_TUPLE: put_list(h, v, inner, level); break;
    case VALUE_DICT: put_dict(h, v, inner, level); break;
    default:
        if (inner->is_json)
            heap_fail(h, "Object of type %s is not JSON serializable", value_type_name(v));
        if (v.kind > VALUE_UNDEFINED) heap_fail(h, "a '%s' has no text", value_type_name(v));
        heap_puts(h, style ? "Undefined" : "");
    }

    h->depth--;
}

Text value_str(Heap *h, Value v) {
    if (v.kind == VALUE_STRING) return v.text;
    size_t start = h->out.len;
    value_put(h, v, NULL, 0);
    return heap_pop_string(h, start).text;
}
