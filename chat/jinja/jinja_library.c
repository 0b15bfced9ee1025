// In order: the functions by subject, the table of their names (builtins), the binding of arguments
// to parameters (run_builtin), and the access to attributes, items and slices.
//
// A function gets its operand (the input of a filter, the object of a method) as a->self, and one
// value per parameter in a->values; omitted arguments are VALUE_ABSENT. Template functions that
// differ only in a detail share a C function and have different values of a->variant.
#include "chat/jinja/jinja_library.h"
#include "base/unicode.h"

#include <ctype.h>
#include <math.h>
#include <time.h>

#pragma GCC diagnostic ignored "-Wunused-parameter" // some builtins need no heap

enum { MAX_RANGE = 100000 }; // as in Jinja's sandbox

// The value of an argument, or `other` if the argument was omitted.
static Value value_or(Value v, Value other) { return v.kind == VALUE_ABSENT ? other : v; }

// Fails if v is undefined. Templates can only test and print undefined values.
static void require_defined(Heap *h, Value v) {
    if (v.kind != VALUE_UNDEFINED) return;
    if (v.owner) heap_fail(h, "'%s object' has no attribute '%.*s'", v.owner, SHOWN(v.name));
    heap_fail(h, "'%.*s' is undefined", SHOWN(v.name));
}

// Strings: case

enum { CASE_LOWER, CASE_UPPER, CASE_CAPITALIZE, CASE_TITLE, CASE_TITLE_FILTER };
enum { CAPITAL_SIGMA = 0x3a3 };

// Returns the upper or lower case of a character, for pairs that have the same length in UTF-8:
// most letters of Latin, Greek, Cyrillic and Armenian, Roman numerals and circled letters.
// Otherwise 0.
static uint32_t other_case(uint32_t code, bool to_upper) {
    // `n` capitals: `first` and every `step`-th after it. Their small letters are at `distance`.
    static const struct {
        uint32_t first, n, step;
        int32_t distance;
    } capitals[] = {
        {'A', 26, 1, 32},   {0xc0, 23, 1, 32},   {0xd8, 7, 1, 32},    {0x100, 24, 2, 1},
        {0x132, 3, 2, 1},   {0x139, 8, 2, 1},    {0x14a, 23, 2, 1},   {0x178, 1, 1, -121},
        {0x179, 3, 2, 1},   {0x1a0, 3, 2, 1},    {0x1af, 1, 1, 1},    {0x1f8, 20, 2, 1},
        {0x386, 1, 1, 38},  {0x388, 3, 1, 37},   {0x38c, 1, 1, 64},   {0x38e, 2, 1, 63},
        {0x391, 17, 1, 32}, {0x3a3, 9, 1, 32},   {0x400, 16, 1, 80},  {0x410, 32, 1, 32},
        {0x460, 17, 2, 1},  {0x48a, 27, 2, 1},   {0x4d0, 48, 2, 1},   {0x531, 38, 1, 48},
        {0x1ea0, 48, 2, 1}, {0x2160, 16, 1, 16}, {0x24b6, 26, 1, 26},
    };

    for (size_t i = 0; i < sizeof capitals / sizeof *capitals; i++) {
        uint32_t distance = (uint32_t)capitals[i].distance; // modulo 2^32
        uint32_t offset = code - capitals[i].first - (to_upper ? distance : 0);
        if (offset < capitals[i].n * capitals[i].step && offset % capitals[i].step == 0)
            return to_upper ? code - distance : code + distance;
    }
    return 0;
}

// Converts to upper, lower or title case. Fails for a letter that other_case() does not know, and
// for a capital sigma that may end a word, because its lower case depends on that.
static Value str_case(Heap *h, const Args *a) {
    Text t = value_str(h, a->self);
    int rule = a->variant;
    char *out = memcpy(heap_alloc(h, t.len + 1, 1), t.data, t.len);
    bool is_first = true; // the next character begins a word

    heap_touch(h, t.len * 16);
    for (Text rest = t; rest.len;) {
        char *place = out + (t.len - rest.len);
        Text c = text_next(&rest);
        uint32_t code = text_code(c);
        int kind = unicode_kind(code);
        bool is_letter = (kind & UNICODE_CLASS) == UNICODE_LETTER;
        bool is_upper = is_letter && kind & UNICODE_UPPER;
        bool is_lower = is_letter && kind & UNICODE_LOWER;

        bool to_upper = rule == CASE_UPPER || (is_first && rule >= CASE_CAPITALIZE);
        uint32_t other = other_case(code, to_upper);
        bool may_be_final =
            code == CAPITAL_SIGMA && !to_upper && unicode_class(text_code(rest)) != UNICODE_LETTER;
        if (may_be_final || (!other && (to_upper ? is_lower : is_upper)))
            heap_fail(h, "%.*s: no %s case of '%.*s' is known", SHOWN(a->name),
                      to_upper ? "upper" : "lower", SHOWN(c));
        if (other) utf8_encode(other, place);

        // The method title() begins a word after a character without case, the filter after one of
        // the characters listed here.
        is_first = false;
        if (rule == CASE_TITLE) is_first = !is_upper && !is_lower;
        if (rule == CASE_TITLE_FILTER) is_first = *c.data && strchr("- ({[<\t\n\r\f\v", *c.data);
    }

    return value_text((Text){out, t.mask, t.len});
}

// Strings: parts

enum { STRIP_LEFT = 1, STRIP_RIGHT = 2, STRIP_BOTH = 3 };
enum { AT_START, AT_END };

static Value str_strip(Heap *h, const Args *a) {
    Value chars = a->values[0];
    Text t = value_str(h, a->self),
         set = chars.kind > VALUE_NONE ? value_string(h, chars) : WHITE_SPACE;
    heap_touch(h, (t.len * 4 + 1) * (set.len / 16 + 1));
    Value v = value_text(text_strip(t, set, a->variant & STRIP_LEFT, a->variant & STRIP_RIGHT));
    v.is_markup = a->self.is_markup;
    return v;
}

// As in Python, an empty part is found before every character and at the end.
static Value str_replace(Heap *h, const Args *a) {
    Text t = value_str(h, a->self), part = value_str(h, a->values[0]),
         other = value_str(h, a->values[1]);
    int64_t n = a->values[2].kind <= VALUE_NONE ? -1 : value_integer(h, a->values[2]);
    size_t start = h->out.len, from = 0;

    for (size_t at; n != 0 && (at = text_find(h, t, part, from)) != SIZE_MAX; n--) {
        size_t skip = part.len ? 0 : text_offset(text_part(t, at, t.len), 1);
        heap_put(h, text_part(t, from, at));
        heap_put(h, other);
        heap_put(h, text_part(t, at, at + skip));
        from = at + part.len + skip;
        if (part.len == 0 && skip == 0) break;
    }

    heap_put(h, text_part(t, from, t.len));
    return heap_pop_string(h, start);
}

// Offset of the first separator in t, or of the last one if is_last; SIZE_MAX if there is none.
static size_t find_separator(Heap *h, Text t, Text sep, bool is_last) {
    if (!sep.len) heap_fail(h, "empty separator");
    if (!is_last) return text_find(h, t, sep, 0);
    heap_touch(h, (t.len * 4 + 1) * (sep.len / 16 + 1));
    for (size_t at = t.len; at >= sep.len; at--)
        if (!memcmp(t.data + at - sep.len, sep.data, sep.len)) return at - sep.len;
    return SIZE_MAX;
}

// split() without a separator: at most `most` words (< 0: all) between white space, then the
// remaining text.
static Value split_at_spaces(Heap *h, Text t, int64_t most) {
    Value out = value_list(h, VALUE_LIST, 0);
    heap_touch(h, t.len * 16);
    while ((t = text_strip(t, WHITE_SPACE, true, false)).len) {
        Text word = text_part(t, 0, 0);
        for (Text rest = t, c; rest.len && most != 0 &&
                               text_strip(c = text_next(&rest), WHITE_SPACE, true, false).len;)
            word.len += c.len;
        if (most-- == 0) word = t;
        list_push(h, out.list, value_text(word));
        t = text_part(t, word.len, t.len);
    }
    return out;
}

static List *reversed(Heap *h, const List *list) {
    List *out = value_list(h, VALUE_LIST, list->n).list;
    for (int i = 0; i < list->n; i++) out->items[i] = list->items[list->n - 1 - i];
    return out;
}

static Value str_split(Heap *h, const Args *a) {
    Value out = value_list(h, VALUE_LIST, 0);
    Text t = value_string(h, a->self);
    bool from_right = a->variant == AT_END;
    int64_t most = value_integer(h, value_or(a->values[1], value_int(-1)));

    if (a->values[0].kind <= VALUE_NONE && from_right && most >= 0)
        heap_fail(h, "rsplit with a limit needs a separator");
    if (a->values[0].kind <= VALUE_NONE) return split_at_spaces(h, t, most);

    Text sep = value_string(h, a->values[0]);
    for (; most != 0; most--) {
        size_t at = find_separator(h, t, sep, from_right);
        if (at == SIZE_MAX) break;

        Text left = text_part(t, 0, at);
        Text right = text_part(t, at + sep.len, t.len);
        list_push(h, out.list, value_text(from_right ? right : left));
        t = from_right ? left : right;
    }

    list_push(h, out.list, value_text(t));
    if (from_right) out.list = reversed(h, out.list);
    return out;
}

// True if t begins (AT_START) or ends (AT_END) with the text e.
static bool has_affix(Heap *h, Text t, Text e, int where) {
    heap_spend(h, 1);
    if (e.len <= t.len) heap_touch(h, e.len);
    return e.len <= t.len &&
           (!e.len || !memcmp(t.data + (where == AT_END ? t.len - e.len : 0), e.data, e.len));
}

// The argument is a string, or a tuple of strings.
static Value str_has_affix(Heap *h, const Args *a) {
    Text t = value_string(h, a->self);
    List one = {a->values, 1}, *all = a->values[0].kind == VALUE_TUPLE ? a->values[0].list : &one;
    bool has = false;
    for (int i = 0; i < all->n && !has; i++)
        has = has_affix(h, t, value_string(h, all->items[i]), a->variant);
    return value_bool(has);
}

static Value str_remove_affix(Heap *h, const Args *a) {
    Text t = value_string(h, a->self);
    Text affix = value_string(h, a->values[0]);
    size_t n = has_affix(h, t, affix, a->variant) ? affix.len : 0;
    return value_text(a->variant == AT_END ? text_part(t, 0, t.len - n) : text_part(t, n, t.len));
}

// The position of a part in characters, or -1.
static Value str_find_part(Heap *h, const Args *a) {
    Text t = value_string(h, a->self);
    size_t at = text_find(h, t, value_string(h, a->values[0]), 0);
    return value_int(at == SIZE_MAX ? -1 : (int64_t)text_length(h, text_part(t, 0, at)));
}

// Bit masks of UnicodeClass. The bit of a class is 1 << class >> 1; UNICODE_OTHER has none.
enum { CLASS_LETTER = 1, CLASS_NUMBER = 2, CLASS_SPACE = 4 };

// True if a string is not empty and all its characters are in the set a->variant of classes.
static Value str_is_class(Heap *h, const Args *a) {
    Text t = value_string(h, a->self);
    bool fits = t.len;
    heap_touch(h, t.len * 4);
    while (fits && t.len) fits = (1 << unicode_class(text_code(text_next(&t))) >> 1) & a->variant;
    return value_bool(fits);
}

// Strings: construction

// Returns an attribute of an item, or the item itself if `attribute` is absent or none. If the
// attribute is missing and `fallback` is neither absent nor none, returns that. Jinja has paths,
// too: "a.0" is item 0 of attribute a.
static Value item_attribute(Heap *h, Value item, Value attribute, Value fallback) {
    if (attribute.kind <= VALUE_NONE) return item;
    Str name = attribute.kind == VALUE_STRING ? text_str(attribute.text) : (Str){0};
    if (str_contains(name, ".") || (name.len && isdigit((unsigned char)*name.data)))
        heap_fail(h, "the path '%.*s' of an attribute is not supported", SHOWN(name));
    item = library_item(h, item, attribute);
    return item.kind == VALUE_UNDEFINED && fallback.kind > VALUE_NONE ? fallback : item;
}

// Joins the items of `all` or, if `attribute` is neither absent nor none, their attributes.
static Value join_items(Heap *h, Text sep, Value all, Value attribute) {
    List *list = value_iterate(h, all);
    size_t start = h->out.len;
    for (int i = 0; i < list->n; i++) {
        if (i) heap_put(h, sep);
        value_put(h, item_attribute(h, list->items[i], attribute, value_none()), NULL, 0);
    }
    return heap_pop_string(h, start);
}

static Value str_join(Heap *h, const Args *a) {
    List *list = value_iterate(h, a->values[0]);
    for (int i = 0; i < list->n; i++) value_string(h, list->items[i]);
    return join_items(h, value_string(h, a->self), (Value){.kind = VALUE_LIST, .list = list},
                      value_none());
}

static Value filter_join(Heap *h, const Args *a) {
    Text sep = a->values[0].kind == VALUE_ABSENT ? text_of("") : value_str(h, a->values[0]);
    return join_items(h, sep, a->self, a->values[1]);
}

Value library_escape(Heap *h, Value v) {
    static const char from[] = "&<>'\"";
    static const char *const to[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    if (v.is_markup) return v;

    Text t = value_str(h, v);
    size_t start = h->out.len;
    while (t.len) {
        Text c = text_next(&t);
        const char *found = *c.data ? strchr(from, *c.data) : NULL;
        if (found) c = text_of(to[found - from]);
        heap_put(h, c);
    }

    v = heap_pop_string(h, start);
    v.is_markup = true;
    return v;
}

enum { MARKUP_STRING, MARKUP_ESCAPE, MARKUP_SAFE };

static Value filter_markup(Heap *h, const Args *a) {
    if (a->variant == MARKUP_ESCAPE) return library_escape(h, a->self);
    Value v = value_text(value_str(h, a->self));
    v.is_markup = a->variant == MARKUP_SAFE || (a->self.kind == VALUE_STRING && a->self.is_markup);
    return v;
}

// The indent of a line, given as a string or as a number of spaces.
static Text indent_text(Heap *h, Value by) {
    size_t start = h->out.len;
    if (by.kind == VALUE_STRING) return by.text;
    for (int64_t n = value_integer(h, by); n > 0; n--) heap_puts(h, " ");
    return heap_pop_string(h, start).text;
}

// True for the characters that end a line, as in Python's splitlines().
static bool is_line_end(uint32_t code) {
    return (code >= 0xa && code <= 0xd) || (code >= 0x1c && code <= 0x1e) || code == 0x85 ||
           code == 0x2028 || code == 0x2029;
}

// Indents the lines after the first, and the first one if `first` is true. Blank lines are indented
// if `blank` is true. Line ends become newlines.
static Value filter_indent(Heap *h, const Args *a) {
    Text by = indent_text(h, value_or(a->values[0], value_int(4)));
    bool indents_first = value_truth(a->values[1]), indents_blank = value_truth(a->values[2]);
    Text t = value_string(h, a->self);
    size_t start = h->out.len;
    bool is_pending = false; // the indent of the current line is still to be written

    if (indents_first) heap_put(h, by);
    while (t.len) {
        Text c = text_next(&t);
        if (is_line_end(text_code(c))) {
            if (*c.data == '\r' && !t.len) break; // Jinja appends "\n", and "\r\n" is one line end
            if (*c.data == '\r' && *t.data == '\n') text_next(&t);
            heap_puts(h, "\n");
            if (indents_blank) heap_put(h, by);
            is_pending = !indents_blank;
        } else {
            if (is_pending) heap_put(h, by);
            is_pending = false;
            heap_put(h, c);
        }
    }

    Value out = heap_pop_string(h, start);
    out.is_markup = a->self.is_markup;
    return out;
}

static Value filter_tojson(Heap *h, const Args *a) {
    ValueStyle style = {.is_json = true, .comma = text_of(", "), .colon = text_of(": ")};
    style.is_ascii = value_truth(a->values[1]);
    style.is_sorted = value_truth(a->values[3]);
    style.is_indented = a->values[0].kind > VALUE_NONE;

    if (style.is_indented) {
        style.indent = indent_text(h, a->values[0]);
        style.comma = text_of(",");
    }

    if (a->values[2].kind > VALUE_NONE) {
        List *two = value_iterate(h, a->values[2]);
        if (two->n != 2) heap_fail(h, "separators: expected 2, found %d", two->n);
        style.comma = value_string(h, two->items[0]);
        style.colon = value_string(h, two->items[1]);
    }

    size_t start = h->out.len;
    value_put(h, a->self, &style, 0);
    return heap_pop_string(h, start);
}

// Numbers

// Converts to an integer. A string must be a decimal integer: what else is a number in Python, such
// as "1_000" or "3.7", is refused.
static Value filter_int(Heap *h, const Args *a) {
    Value v = a->self;
    require_defined(h, v);
    if (v.kind == VALUE_INT || v.kind == VALUE_BIG_INT) return v;
    if (v.kind == VALUE_BOOL) return value_int(v.boolean);

    if (v.kind == VALUE_STRING) {
        Text t = text_strip(v.text, WHITE_SPACE, true, true);
        char *digits = memcpy(heap_alloc(h, t.len + 1, 1), t.data, t.len);
        int64_t integer;
        heap_touch(h, v.text.len * 4);
        if (strlen(digits) != t.len || !parse_i64(digits, &integer))
            heap_fail(h, "int: '%.*s' is not a 64-bit integer", SHOWN(t));
        return value_int(integer);
    }

    if (v.kind != VALUE_FLOAT || !isfinite(v.number)) return value_or(a->values[0], value_int(0));
    if (fabs(v.number) >= 0x1p63) heap_fail(h, "a number is too large");
    return value_int((int64_t)v.number);
}

// Lists

// The sort key of an item, see item_attribute(). Strings are in lower case unless has_case.
static Value sort_key(Heap *h, Value item, Value attribute, bool has_case) {
    heap_spend(h, 1);
    item = item_attribute(h, item, attribute, value_none());
    if (item.kind != VALUE_STRING || has_case) return item;
    Str name = str_of("dictsort, or sort without case_sensitive=true");
    return str_case(h, &(Args){.self = item, .variant = CASE_LOWER, .name = name});
}

static Value sort_items(Heap *h, const List *list, Value attribute, bool has_case,
                        bool is_reverse) {
    Value out = value_list(h, VALUE_LIST, list->n), keys = value_list(h, VALUE_LIST, list->n);
    for (int i = 0; i < list->n; i++)
        keys.list->items[i] = sort_key(h, list->items[i], attribute, has_case);
    int *order = value_order(h, keys.list, is_reverse);
    for (int i = 0; i < list->n; i++) out.list->items[i] = list->items[order[i]];
    return out;
}

static Value filter_sort(Heap *h, const Args *a) {
    return sort_items(h, value_iterate(h, a->self), a->values[2], value_truth(a->values[1]),
                      value_truth(a->values[0]));
}

static Value filter_end(Heap *h, const Args *a) {
    if (a->variant == AT_END && a->self.kind == VALUE_GENERATOR)
        heap_fail(h, "'generator' object is not reversible");
    List *list = value_iterate(h, a->self);
    if (list->n) return list->items[a->variant == AT_END ? list->n - 1 : 0];
    return value_undefined(str_of("an item of an empty sequence"), NULL);
}

static Value filter_length(Heap *h, const Args *a) {
    if (a->self.kind == VALUE_UNDEFINED) return value_int(0);
    if (a->self.kind == VALUE_STRING) return value_int((int64_t)text_length(h, a->self.text));
    if (a->self.kind == VALUE_DICT) return value_int(a->self.dict->n);
    if (!value_is_list(a->self) || a->self.kind == VALUE_GENERATOR)
        heap_fail(h, "object of type '%s' has no len()", value_type_name(a->self));
    return value_int(a->self.list->n);
}

static Value filter_list(Heap *h, const Args *a) {
    return (Value){.kind = VALUE_LIST, .list = value_iterate(h, a->self)};
}

static Value filter_reverse(Heap *h, const Args *a) {
    Value out = {.kind = VALUE_GENERATOR, .list = reversed(h, value_iterate(h, a->self))};
    return a->self.kind == VALUE_STRING ? join_items(h, text_of(""), out, value_none()) : out;
}

// The items for map, select and reject. As in Jinja, a false value counts as an empty sequence.
static List *iterate_if_true(Heap *h, Value v) {
    return value_truth(v) ? value_iterate(h, v) : value_list(h, VALUE_LIST, 0).list;
}

// map(attribute="a", default=x), or map("filter", arguments of the filter ...).
static Value filter_map(Heap *h, const Args *a) {
    List *list = iterate_if_true(h, a->self);
    Value out = value_list(h, VALUE_GENERATOR, list->n);
    Value attribute = {0}, fallback = {0};

    for (int i = 0; i < a->n; i++) {
        if (str_is(a->names[i], "attribute")) attribute = a->values[i];
        if (str_is(a->names[i], "default")) fallback = a->values[i];
    }
    if (attribute.kind == VALUE_ABSENT && (!a->n || a->names[0].data))
        heap_fail(h, "map requires a filter argument");

    for (int i = 0; i < list->n; i++) {
        Value v = list->items[i];
        if (attribute.kind == VALUE_ABSENT)
            v = library_apply(h, false, text_str(value_string(h, a->values[0])),
                              &(Args){v, a->values + 1, a->names + 1, .n = a->n - 1});
        else
            v = item_attribute(h, v, attribute, fallback);
        out.list->items[i] = v;
    }

    return out;
}

enum { SELECT_REJECT = 1, SELECT_BY_ATTRIBUTE = 2 };

// The items that pass a test or, with SELECT_REJECT, fail it. With SELECT_BY_ATTRIBUTE, the test
// applies to an attribute of the item.
static Value filter_select(Heap *h, const Args *a) {
    List *list = iterate_if_true(h, a->self);
    Value out = value_list(h, VALUE_GENERATOR, 0);
    int skip = (a->variant & SELECT_BY_ATTRIBUTE) != 0; // arguments before the test
    if (skip && !a->n) heap_fail(h, "selectattr and rejectattr need an attribute");

    // The arguments: an attribute, a test, and its arguments. The default is a test for truth.
    Value attribute = skip ? a->values[0] : (Value){0};
    Args rest = {0};
    if (a->n > skip)
        rest = (Args){{0}, a->values + skip + 1, a->names + skip + 1, .n = a->n - skip - 1};

    for (int i = 0; i < list->n; i++) {
        Value v = sort_key(h, list->items[i], attribute, true);
        rest.self = v;
        if (a->n > skip)
            v = library_apply(h, true, text_str(value_string(h, a->values[skip])), &rest);
        if (value_truth(v) != !!(a->variant & SELECT_REJECT))
            list_push(h, out.list, list->items[i]);
    }

    return out;
}

static Value call_range(Heap *h, const Args *a) {
    bool has_stop = a->values[1].kind != VALUE_ABSENT;
    int64_t from = has_stop ? value_integer(h, a->values[0]) : 0;
    int64_t to = value_integer(h, a->values[has_stop]);
    int64_t step = value_integer(h, value_or(a->values[2], value_int(1)));
    if (step == 0) heap_fail(h, "range() arg 3 must not be zero");
    Value out = value_list(h, VALUE_RANGE, 0);
    for (bool is_end = false; !is_end && (step > 0 ? from < to : from > to);) {
        heap_spend(h, 1);
        if (out.list->n == MAX_RANGE) heap_fail(h, "range: expected at most %d numbers", MAX_RANGE);
        list_push(h, out.list, value_int(from));
        is_end = __builtin_add_overflow(from, step, &from);
    }
    return out;
}

// Dictionaries

enum { DICT_KEYS, DICT_VALUES, DICT_ITEMS, DICT_ITEMS_FILTER };

static Value dict_view(Heap *h, const Args *a) {
    ValueKind kind = a->variant == DICT_ITEMS_FILTER ? VALUE_GENERATOR : VALUE_VIEW;
    if (a->self.kind == VALUE_UNDEFINED && kind == VALUE_GENERATOR) return value_list(h, kind, 0);
    const Dict *d = value_mapping(h, a->self);
    Value out = value_list(h, kind, d->n);
    for (int i = 0; i < out.list->n; i++) {
        Value pair = value_list(h, VALUE_TUPLE, 2);
        pair.list->items[0] = d->pairs[i].key;
        pair.list->items[1] = d->pairs[i].value;
        out.list->items[i] = a->variant >= DICT_ITEMS ? pair : pair.list->items[a->variant];
    }
    return out;
}

// By key, see sort_key().
static Value filter_dictsort(Heap *h, const Args *a) {
    List *pairs = dict_view(h, &(Args){.self = a->self, .variant = DICT_ITEMS}).list;
    return sort_items(h, pairs, value_int(0), false, false);
}

static Value dict_get(Heap *h, const Args *a) {
    Value *found = dict_find(h, value_mapping(h, a->self), a->values[0]);
    return found ? *found : value_or(a->values[1], value_none());
}

static Value refuse_change(Heap *h, const Args *a) {
    heap_fail(h, "a template may not change a %s", value_type_name(a->self));
}

static Value call_namespace(Heap *h, const Args *a) {
    Value out = value_dict(h, VALUE_NAMESPACE);
    for (int i = 0; i < a->n; i++) {
        if (!a->names[i].data) heap_fail(h, "namespace takes only named values");
        dict_set(h, out.dict, value_data(a->names[i]), a->values[i]);
    }
    return out;
}

// Default values, errors, time

static Value filter_default(Heap *h, const Args *a) {
    bool is_missing =
        a->self.kind == VALUE_UNDEFINED || (value_truth(a->values[1]) && !value_truth(a->self));
    return is_missing ? value_or(a->values[0], value_text(text_of(""))) : a->self;
}

static Value call_raise_exception(Heap *h, const Args *a) {
    Text t = value_str(h, a->values[0]);
    heap_fail(h, "%.*s", t.len < 400 ? (int)t.len : 400, t.data);
}

static Value call_strftime_now(Heap *h, const Args *a) {
    Text t = value_string(h, a->values[0]);
    size_t cap = 32 * t.len + 1; // enough for conversions: %c has 24 characters
    char *format = memcpy(heap_alloc(h, t.len + 1, 1), t.data, t.len);
    char *text = heap_alloc(h, cap, 1);
    heap_touch(h, cap);
    return value_text((Text){text, NULL, strftime(text, cap, format, h->now)});
}

// Tests

static Value test_compare(Heap *h, const Args *a) {
    return value_bool(value_compare(h, (Comparison)a->variant, a->self, a->values[0]));
}

static Value test_kind(Heap *h, const Args *a) {
    return value_bool(a->variant >> a->self.kind & 1);
}

static Value test_boolean(Heap *h, const Args *a) {
    return value_bool(a->self.kind == VALUE_BOOL && a->self.boolean == a->variant);
}

static Value test_parity(Heap *h, const Args *a) {
    return value_bool((value_integer(h, a->self) % 2 != 0) == a->variant);
}

// The table

// Where a name is valid: as a function, a filter or a test, or as a method of a type.
enum { FUNCTION = 1, FILTER = 2, TEST = 4, STR = 8, LIST = 16, DICT = 32 };

// A function with its variants. `names` lists the variants, separated by '|'; a variant can have
// several names, separated by spaces. In "first|last", "first" runs with Args.variant = variant,
// "last" with variant + 1.
struct Builtin {
    int owners; // set of the above
    const char *names;
    const char *params; // names, separated by spaces; '?' precedes an optional one. NULL: `run`
                        // gets the arguments of the call unchanged
    Value (*run)(Heap *h, const Args *a);
    int variant; // of the first name
};

#define OF(kind)  (1 << VALUE_##kind)
#define SEQUENCES (OF(UNDEFINED) | OF(STRING) | OF(LIST) | OF(TUPLE) | OF(RANGE) | OF(DICT))

// clang-format off
static const struct Builtin builtins[] = {
    {FUNCTION, "namespace", NULL, call_namespace, 0},
    {FUNCTION, "raise_exception", "message", call_raise_exception, 0},
    {FUNCTION, "range", "start ?stop ?step", call_range, 0},
    {FUNCTION, "strftime_now", "format", call_strftime_now, 0},

    {FILTER | STR, "lower|upper|capitalize", "", str_case, CASE_LOWER},
    {FILTER | STR, "replace", "old new ?count", str_replace, 0},
    {FILTER, "default d", "?default_value ?boolean", filter_default, 0},
    {FILTER, "dictsort", "", filter_dictsort, 0},
    {FILTER, "first|last", "", filter_end, AT_START},
    {FILTER, "indent", "?width ?first ?blank", filter_indent, 0},
    {FILTER, "int", "?default", filter_int, 0},
    {FILTER, "items", "", dict_view, DICT_ITEMS_FILTER},
    {FILTER, "join", "?d ?attribute", filter_join, 0},
    {FILTER, "length count", "", filter_length, 0},
    {FILTER, "list", "", filter_list, 0},
    {FILTER, "map", NULL, filter_map, 0},
    {FILTER, "reverse", "", filter_reverse, 0},
    {FILTER, "select|reject|selectattr|rejectattr", NULL, filter_select, 0},
    {FILTER, "sort", "?reverse ?case_sensitive ?attribute", filter_sort, 0},
    {FILTER, "string|escape e|safe", "", filter_markup, MARKUP_STRING},
    {FILTER, "title", "", str_case, CASE_TITLE_FILTER},
    {FILTER, "tojson", "?indent ?ensure_ascii ?separators ?sort_keys", filter_tojson, 0},
    {FILTER, "trim", "?chars", str_strip, STRIP_BOTH},

    {STR, "find", "sub", str_find_part, 0},
    {STR, "join", "iterable", str_join, 0},
    {STR, "lstrip|rstrip|strip", "?chars", str_strip, STRIP_LEFT},
    {STR, "split|rsplit", "?sep ?maxsplit", str_split, AT_START},
    {STR, "removeprefix|removesuffix", "affix", str_remove_affix, AT_START},
    {STR, "isalpha|isdigit isnumeric|isalnum|isspace", "", str_is_class, CLASS_LETTER},
    {STR, "startswith|endswith", "affix", str_has_affix, AT_START},
    {STR, "title", "", str_case, CASE_TITLE},

    {DICT, "get", "key ?default", dict_get, 0},
    {DICT, "keys|values|items", "", dict_view, DICT_KEYS},
    {LIST | DICT, "clear pop", NULL, refuse_change, 0},
    {LIST, "append extend insert remove reverse sort", NULL, refuse_change, 0},
    {DICT, "popitem setdefault update", NULL, refuse_change, 0},

    {TEST, "defined", "", test_kind, ~(OF(UNDEFINED) | OF(ABSENT))},
    {TEST, "undefined", "", test_kind, OF(UNDEFINED)},
    {TEST, "none", "", test_kind, OF(NONE)},
    {TEST, "boolean", "", test_kind, OF(BOOL)},
    {TEST, "false|true", "", test_boolean, false},
    {TEST, "integer", "", test_kind, OF(INT) | OF(BIG_INT)},
    {TEST, "float", "", test_kind, OF(FLOAT)},
    {TEST, "number", "", test_kind, OF(BOOL) | OF(INT) | OF(FLOAT) | OF(BIG_INT)},
    {TEST, "string", "", test_kind, OF(STRING)},
    {TEST, "mapping", "", test_kind, OF(DICT)},
    {TEST, "sequence", "", test_kind, SEQUENCES},
    {TEST, "iterable", "", test_kind, SEQUENCES | OF(VIEW) | OF(GENERATOR) | OF(LOOP)},
    {TEST, "callable", "", test_kind, OF(FUNCTION) | OF(MACRO) | OF(UNDEFINED)},
    {TEST, "even|odd", "", test_parity, 0},
    {TEST, "eq == equalto sameas|ne !=|le <=|ge >=|lt < lessthan|gt > greaterthan|in", "other", test_compare, CMP_EQ},
};
// clang-format on

// The first word of a list: up to a space or '|'.
static Str list_word(const char *list) { return (Str){list, strcspn(list, " |")}; }

// Returns a VALUE_FUNCTION, or VALUE_UNDEFINED if there is no such name.
static Value find_builtin(int owner, Str name) {
    for (size_t i = 0; i < sizeof builtins / sizeof *builtins; i++) {
        int variant = builtins[i].variant;
        if (!(builtins[i].owners & owner)) continue;
        for (const char *at = builtins[i].names;; at++) {
            Str word = list_word(at);
            if (str_eq(word, name))
                return (Value){.kind = VALUE_FUNCTION, .builtin = &builtins[i], .variant = variant};
            at += word.len;
            if (!*at) break;
            variant += *at == '|';
        }
    }
    return value_undefined(name, NULL);
}

void library_bind(Heap *h, int start, Str callee, const Args *a) {
    int n_params = h->n_args - start;

    for (int i = 0; i < a->n; i++) {
        Str name = a->names[i];
        int k = i;
        if (name.data)
            for (k = 0; k < n_params && !str_eq(h->arg_names[start + k], name);) k++;

        if (k >= n_params && name.data)
            heap_fail(h, "%.*s has no parameter '%.*s'", SHOWN(callee), SHOWN(name));
        if (k >= n_params)
            heap_fail(h, "%.*s takes at most %d arguments, found %d", SHOWN(callee), n_params,
                      a->n);
        if (h->args[start + k].kind != VALUE_ABSENT)
            heap_fail(h, "%.*s: two arguments '%.*s'", SHOWN(callee), SHOWN(name));

        h->args[start + k] = a->values[i];
    }
}

// Binds the arguments to the parameters of f and runs it.
static Value run_builtin(Heap *h, Value f, const Args *a) {
    Args bound = *a;
    int start = h->n_args, end_required = start;
    const char *rest = f.builtin->params, *names = f.builtin->names;

    for (int i = f.builtin->variant; i < f.variant; i++) names = strchr(names, '|') + 1;
    bound.name = list_word(names);
    bound.variant = f.variant;
    if (f.self) bound.self = *f.self;
    if (!rest) return f.builtin->run(h, &bound);

    // Reserve a slot on the argument stack for each parameter.
    while (*rest) {
        bool is_optional = *rest == '?';
        Str param = list_word(rest + is_optional);
        heap_push_arg(h, (Value){0}, param);
        if (!is_optional) end_required = h->n_args;
        rest = param.data + param.len + strspn(param.data + param.len, " ");
    }

    library_bind(h, start, bound.name, a);
    for (int i = start; i < end_required; i++)
        if (h->args[i].kind == VALUE_ABSENT)
            heap_fail(h, "%.*s needs an argument '%.*s'", SHOWN(bound.name),
                      SHOWN(h->arg_names[i]));

    bound.values = h->args + start;
    Value result = f.builtin->run(h, &bound);
    h->n_args = start;
    return result;
}

Value library_apply(Heap *h, bool is_test, Str name, const Args *a) {
    Value f = find_builtin(is_test ? TEST : FILTER, name);
    if (f.kind == VALUE_UNDEFINED)
        heap_fail(h, "no %s named '%.*s'", is_test ? "test" : "filter", SHOWN(name));
    return run_builtin(h, f, a);
}

Value library_function(Str name) { return find_builtin(FUNCTION, name); }

Value library_call(Heap *h, Value f, const Args *a) {
    require_defined(h, f);
    if (f.kind != VALUE_FUNCTION) heap_fail(h, "'%s' object is not callable", value_type_name(f));
    return run_builtin(h, f, a);
}

// Attributes and items

Value library_attribute(Heap *h, Value v, Str name) {
    static const int owners[VALUE_LOOP + 1] = {
        [VALUE_STRING] = STR, [VALUE_LIST] = LIST, [VALUE_TUPLE] = LIST, [VALUE_DICT] = DICT};

    require_defined(h, v);
    if (name.len > 1 && name.data[0] == '_' && name.data[1] == '_')
        heap_fail(h, "access to attribute '%.*s' is unsafe", SHOWN(name));

    Value method = find_builtin(owners[v.kind], name);
    if (method.kind == VALUE_FUNCTION) {
        method.self = heap_alloc(h, 1, sizeof v);
        *method.self = v;
        return method;
    }

    bool has_members = v.kind == VALUE_DICT || v.kind == VALUE_NAMESPACE;
    const Value *found = has_members ? dict_find(h, v.dict, value_data(name)) : NULL;
    return found ? *found : value_undefined(name, value_type_name(v));
}

// As in Jinja, looks for an item first, then for an attribute with this name.
Value library_item(Heap *h, Value v, Value key) {
    bool is_index = key.kind == VALUE_INT || key.kind == VALUE_BOOL;
    int64_t i = is_index ? value_integer(h, key) : 0;
    require_defined(h, v);

    const Value *found = v.kind == VALUE_DICT ? dict_find(h, v.dict, key) : NULL;
    if (found) return *found;
    if (key.kind == VALUE_STRING) return library_attribute(h, v, text_str(key.text));

    // Negative indices count from the end.
    if (v.kind == VALUE_STRING && is_index) {
        int64_t n = (int64_t)text_length(h, v.text);
        if (i < -n || i >= n) return value_undefined(str_of("a character"), "str");
        Text rest = text_part(v.text, text_offset(v.text, i), v.text.len);
        return value_text(text_next(&rest));
    }
    if (value_is_list(v) && v.kind < VALUE_VIEW && is_index) {
        if (i < 0) i += v.list->n;
        if (i >= 0 && i < v.list->n) return v.list->items[i];
    }

    return value_undefined(text_str(value_str(h, key.kind == VALUE_UNDEFINED ? value_none() : key)),
                           value_type_name(v));
}

// A bound of a slice, clamped to [low, high] as in Python.
static int64_t slice_bound(Heap *h, Value bound, int64_t n, int64_t low, int64_t high,
                           int64_t fallback) {
    if (bound.kind == VALUE_NONE) return fallback;
    if (bound.kind == VALUE_BIG_INT) return *bound.text.data == '-' ? low : high;
    int64_t i = value_integer(h, bound);
    if (i < 0) i += n;
    if (i < low) return low;
    return i > high ? high : i;
}

Value library_slice(Heap *h, Value v, Value from, Value to, Value step) {
    int64_t by = step.kind == VALUE_NONE ? 1 : value_integer(h, step);
    bool is_text = v.kind == VALUE_STRING;

    if (by == 0) heap_fail(h, "slice step cannot be zero");
    require_defined(h, v);
    if (!is_text && (!value_is_list(v) || v.kind >= VALUE_VIEW))
        heap_fail(h, "'%s' object has no slices", value_type_name(v));

    int64_t n = is_text ? (int64_t)text_length(h, v.text) : v.list->n;
    int64_t most = n + 2; // a larger step has the same effect
    if (by > most) by = most;
    if (by < -most) by = -most;

    // The first item of the slice, and its end (exclusive).
    int64_t low = by < 0 ? -1 : 0;
    int64_t high = by < 0 ? n - 1 : n;
    int64_t start = slice_bound(h, from, n, low, high, by < 0 ? high : low);
    int64_t end = slice_bound(h, to, n, low, high, by < 0 ? low : high);

    if (is_text && by == 1) // needs no list of characters
        return value_text(text_part(v.text, text_offset(v.text, start), text_offset(v.text, end)));

    List *list = is_text ? value_iterate(h, v) : v.list;
    Value out = {.kind = is_text ? VALUE_LIST : v.kind, .list = heap_alloc(h, 1, sizeof(List))};
    if (by == 1) { // shares the items
        *out.list = (List){list->items + start, end > start ? (int)(end - start) : 0};
        return out;
    }

    int64_t count = by > 0 ? (end - start + by - 1) / by : (start - end - by - 1) / -by;
    *out.list = *value_list(h, VALUE_LIST, count > 0 ? (int)count : 0).list;
    for (int i = 0; i < out.list->n; i++) out.list->items[i] = list->items[start + i * by];
    return is_text ? join_items(h, text_of(""), out, value_none()) : out;
}
