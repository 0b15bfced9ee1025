// The table of builtins, and those functions that are neither of strings nor of sequences: JSON,
// numbers, tests, state, errors, time.
#include "chat/jinja/jinja_format.h"
#include "chat/jinja/jinja_operators.h"
#include "chat/jinja/jinja_sequences.h"
#include "chat/jinja/jinja_strings.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <time.h>

#pragma GCC diagnostic ignored "-Wunused-parameter" // some builtins need no heap

enum { MAX_ROUND_DIGITS = 300 };

// JSON

static Value filter_tojson(Heap *h, const Args *a) {
    ValueStyle style = {.is_json = true, .comma = text_of(", "), .colon = text_of(": ")};
    style.is_ascii = value_truth(a->values[1]);
    style.is_sorted = value_truth(a->values[3]);
    style.is_indented = a->values[0].kind > VALUE_NONE;

    if (style.is_indented) {
        style.indent = string_indent(h, a->values[0]);
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

// Copies a string for C's number parsers. White space around it, a plus sign and an underscore
// between two digits are removed. A text that is a number in C but not in Python, such as "0x1f",
// becomes empty.
static const char *number_text(Heap *h, Text t) {
    heap_touch(h, t.len * 4);
    t = text_strip(t, WHITE_SPACE, true, true);
    bool has_plus = t.len && *t.data == '+';
    char *copy = heap_alloc(h, t.len + 1, 1);

    size_t n = 0;
    for (size_t i = has_plus; i < t.len; i++) {
        bool is_inner = i > 0 && i + 1 < t.len && isdigit((unsigned char)t.data[i - 1]) &&
                        isdigit((unsigned char)t.data[i + 1]);
        if (t.data[i] != '_' || !is_inner) copy[n++] = t.data[i];
    }

    bool has_two_signs = has_plus && *copy && strchr("+-", *copy);
    if (strspn(copy, "+-.0123456789aefintyAEFINTY") != n || has_two_signs) *copy = 0;
    return copy;
}

// Converts a number, or a string that contains one, to a double. False for other values.
static bool read_number(Heap *h, Value v, double *x) {
    value_require(h, v);
    if (value_is_number(v)) {
        *x = value_number(h, v);
        return true;
    }
    if (v.kind != VALUE_STRING) return false;

    char *end;
    const char *text = number_text(h, v.text);
    *x = strtod(text, &end); // infinite if it is too large, as in Python
    return *text && !*end;
}

// An integer in another base, with its prefix or without. False if the text is none.
static bool read_based(Heap *h, Text t, int64_t base, int64_t *integer) {
    if (base < 2 || base > 36) heap_fail(h, "int: base %lld is not supported", (long long)base);
    t = text_strip(t, WHITE_SPACE, true, true);
    char *digits = memcpy(heap_alloc(h, t.len + 1, 1), t.data, t.len);
    size_t sign = *digits == '-' || *digits == '+';
    char prefix = digits[sign] == '0' ? (char)(digits[sign + 1] | 32) : 0;
    if ((base == 2 && prefix == 'b') || (base == 8 && prefix == 'o')) // not known to C
        memmove(digits + sign, digits + sign + 2, t.len - sign - 1);

    char *end;
    errno = 0;
    *integer = strtoll(digits, &end, (int)base);
    if (errno) heap_fail(h, "a number is too large");
    return *digits && !*end;
}

// Other bases apply only to strings. "3.7" is 3, as in Jinja.
static Value filter_int(Heap *h, const Args *a) {
    Value v = a->self;
    int64_t base = value_integer(h, argument_or(a->values[1], value_int(10)));
    int64_t integer;
    double x;

    if (v.kind == VALUE_INT || v.kind == VALUE_BIG_INT) return v;
    if (v.kind == VALUE_STRING && base != 10 && read_based(h, v.text, base, &integer))
        return value_int(integer);
    if (v.kind == VALUE_STRING && base == 10 && parse_i64(number_text(h, v.text), &integer))
        return value_int(integer);

    if (!read_number(h, v, &x) || !isfinite(x)) return argument_or(a->values[0], value_int(0));
    if (fabs(x) >= 0x1p63) heap_fail(h, "a number is too large");
    return value_int((int64_t)x);
}

static Value filter_float(Heap *h, const Args *a) {
    double x;
    return read_number(h, a->self, &x) ? value_float(x) : argument_or(a->values[0], value_float(0));
}

static Value filter_abs(Heap *h, const Args *a) {
    if (a->self.kind == VALUE_FLOAT) return value_float(fabs(a->self.number));
    int64_t i = value_integer(h, a->self);
    return operator_sign(h, i < 0 ? '-' : '+', value_int(i));
}

// Rounds to n digits after the point, half to even, as Python's round(). Integers stay integers.
static Value round_half_even(Heap *h, Value v, int n) {
    if (v.kind == VALUE_BOOL) v = value_int(v.boolean);
    double x = value_number(h, v);
    if (v.kind != VALUE_FLOAT && n >= 0) return v;

    double unit = pow(10, -n); // exact for n < 0, unlike 10^n
    if (n < 0) x = rint(x / unit) * unit;
    if (v.kind != VALUE_FLOAT) {
        if (fabs(x) >= 0x1p63) heap_fail(h, "a number is too large");
        return value_int((int64_t)x);
    }

    char digits[2 * MAX_ROUND_DIGITS + 20];
    if (!isfinite(x)) return v;
    snprintf(digits, sizeof digits, "%.*f", n < 0 ? 0 : n, x);
    return value_float(strtod(digits, NULL));
}

// round(precision, method): "common", "ceil" or "floor".
static Value filter_round(Heap *h, const Args *a) {
    int64_t n = value_integer(h, argument_or(a->values[0], value_int(0)));
    Str method = str_of("common");
    if (a->values[1].kind != VALUE_ABSENT) method = text_str(value_string(h, a->values[1]));
    if (n > MAX_ROUND_DIGITS || n < -MAX_ROUND_DIGITS)
        heap_fail(h, "round: a precision of more than %d digits", MAX_ROUND_DIGITS);
    if (str_is(method, "common")) return round_half_even(h, a->self, (int)n);

    bool is_ceil = str_is(method, "ceil");
    if (!is_ceil && !str_is(method, "floor"))
        heap_fail(h, "round: expected common, ceil or floor, found '%.*s'", SHOWN(method));
    double scale = pow(10, (double)n);
    double x = value_number(h, a->self) * scale;
    return value_float(((is_ceil ? ceil(x) : floor(x)) + 0.0) / scale); // + 0.0: no -0.0
}

static Value test_divisible(Heap *h, const Args *a) {
    Value rest = operator_binary(h, '%', a->self, a->values[0]);
    return value_bool(value_equal(h, rest, value_int(0)));
}

static Value test_parity(Heap *h, const Args *a) {
    Value rest = operator_binary(h, '%', a->self, value_int(2));
    return value_bool(value_equal(h, rest, value_int(a->variant)));
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

static Value test_same(Heap *h, const Args *a) {
    return value_bool(value_is_same(h, a->self, a->values[0]));
}

static Value test_escaped(Heap *h, const Args *a) {
    return value_bool(a->self.kind == VALUE_STRING && a->self.is_markup);
}

// True if the value is the name of a filter or test.
static Value test_name(Heap *h, const Args *a) {
    Str name = text_str(value_string(h, a->self));
    return value_bool(library_find(a->variant, name).kind == VALUE_FUNCTION);
}

// State: a namespace with the hidden members of an object.

static Value *state_member(Heap *h, Value state, const char *name, Value initial) {
    Value key = value_data(str_of(name));
    Value *found = dict_find(h, state.dict, key);
    if (found) return found;
    dict_set(h, state.dict, key, initial);
    return dict_find(h, state.dict, key);
}

// joiner(sep) is a function that returns "" the first time and `sep` from then on.
static Value call_joiner(Heap *h, const Args *a) {
    Value state = value_dict(h, VALUE_NAMESPACE);
    state_member(h, state, "sep", argument_or(a->values[0], value_text(text_of(", "))));
    return library_method(h, BUILTIN_STATE, str_of("joiner"), state);
}

static Value joiner_next(Heap *h, const Args *a) {
    Value *is_used = state_member(h, a->self, "is_used", value_bool(false));
    bool was_used = is_used->boolean;
    is_used->boolean = true;
    return was_used ? *state_member(h, a->self, "sep", value_none()) : value_text(text_of(""));
}

// cycler(items...) has the members next() and reset(), which step through the items, and current.
static Value call_cycler(Heap *h, const Args *a) {
    if (!a->n) heap_fail(h, "cycler: expected at least one item");
    Value items = value_list(h, VALUE_LIST, 0);
    for (int i = 0; i < a->n; i++) list_push(h, items.list, a->values[i]);

    Value state = value_dict(h, VALUE_NAMESPACE);
    state_member(h, state, "items", items);
    state_member(h, state, "position", value_int(0));
    state_member(h, state, "current", items.list->items[0]);
    state_member(h, state, "next", library_method(h, BUILTIN_STATE, str_of("next"), state));
    state_member(h, state, "reset", library_method(h, BUILTIN_STATE, str_of("reset"), state));
    return state;
}

enum { CYCLER_NEXT, CYCLER_RESET };

static Value cycler_move(Heap *h, const Args *a) {
    const List *items = state_member(h, a->self, "items", value_none())->list;
    Value *position = state_member(h, a->self, "position", value_int(0));
    Value *current = state_member(h, a->self, "current", value_none());
    Value before = *current;

    int64_t next = position->integer + 1;
    if (a->variant == CYCLER_RESET || next == items->n) next = 0;
    *position = value_int(next);
    *current = items->items[next];
    return a->variant == CYCLER_RESET ? value_none() : before;
}

// loop.cycle(items...): the operand is the index of the current iteration.
static Value loop_cycle(Heap *h, const Args *a) {
    if (!a->n) heap_fail(h, "loop.cycle: expected at least one item");
    return a->values[a->self.integer % a->n];
}

// loop.changed(values...): true unless the values are those of the last call.
static Value loop_changed(Heap *h, const Args *a) {
    Value values = value_list(h, VALUE_TUPLE, 0);
    for (int i = 0; i < a->n; i++) list_push(h, values.list, a->values[i]);
    Value *last = state_member(h, a->self, "last", value_none());
    bool has_changed = !value_equal(h, *last, values);
    *last = values;
    return value_bool(has_changed);
}

// Values, errors, time

static Value filter_default(Heap *h, const Args *a) {
    bool is_missing =
        a->self.kind == VALUE_UNDEFINED || (value_truth(a->values[1]) && !value_truth(a->self));
    return is_missing ? argument_or(a->values[0], value_text(text_of(""))) : a->self;
}

// An attribute, but not an item of a dictionary.
static Value filter_attr(Heap *h, const Args *a) {
    Str name = text_str(value_string(h, a->values[0]));
    if (a->self.kind == VALUE_DICT) return library_method(h, BUILTIN_DICT, name, a->self);
    return library_attribute(h, a->self, name);
}

static Value copy_value(Heap *h, const Args *a) {
    return a->self; // values are immutable
}

static Value refuse_change(Heap *h, const Args *a) {
    heap_fail(h, "a template may not change a %s", value_type_name(a->self));
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

// The table

enum {
    FUNCTION = BUILTIN_FUNCTION,
    FILTER = BUILTIN_FILTER,
    TEST = BUILTIN_TEST,
    STR = BUILTIN_STR,
    LIST = BUILTIN_LIST,
    TUPLE = BUILTIN_TUPLE,
    DICT = BUILTIN_DICT,
    LOOP = BUILTIN_LOOP,
    STATE = BUILTIN_STATE,
};

#define OF(kind)  (1 << VALUE_##kind)
#define SEQUENCES (OF(UNDEFINED) | OF(STRING) | OF(LIST) | OF(TUPLE) | OF(RANGE) | OF(DICT))

// clang-format off
const Builtin library_builtins[] = {
    {FUNCTION, "cycler", NULL, call_cycler, 0},
    {FUNCTION, "dict", NULL, call_dict, VALUE_DICT},
    {FUNCTION, "joiner", "?sep", call_joiner, 0},
    {FUNCTION, "namespace", NULL, call_dict, VALUE_NAMESPACE},
    {FUNCTION, "raise_exception", "message", call_raise_exception, 0},
    {FUNCTION, "range", "start ?stop ?step", call_range, 0},
    {FUNCTION, "strftime_now", "format", call_strftime_now, 0},

    {FILTER | STR, "lower|upper|capitalize", "", str_case, CASE_LOWER},
    {FILTER | STR, "replace", "old new ?count", str_replace, 0},
    {FILTER, "abs", "", filter_abs, 0},
    {FILTER, "attr", "name", filter_attr, 0},
    {FILTER, "batch", "linecount ?fill_with", filter_batch, 0},
    {FILTER, "center", "?width", filter_center, 0},
    {FILTER, "default d", "?default_value ?boolean", filter_default, 0},
    {FILTER, "dictsort", "?case_sensitive ?by ?reverse", filter_dictsort, 0},
    {FILTER, "first|last", "", filter_end, END_FIRST},
    {FILTER, "float", "?default", filter_float, 0},
    {FILTER, "format", NULL, filter_format, 0},
    {FILTER, "groupby", "attribute ?default ?case_sensitive", filter_groupby, 0},
    {FILTER, "indent", "?width ?first ?blank", filter_indent, 0},
    {FILTER, "int", "?default ?base", filter_int, 0},
    {FILTER, "items", "", dict_view, DICT_ITEMS_FILTER},
    {FILTER, "join", "?d ?attribute", filter_join, 0},
    {FILTER, "length count", "", filter_length, 0},
    {FILTER, "list", "", filter_list, 0},
    {FILTER, "map", NULL, filter_map, 0},
    {FILTER, "min|max", "?case_sensitive ?attribute", filter_extreme, EXTREME_MIN},
    {FILTER, "reverse", "", filter_reverse, 0},
    {FILTER, "round", "?precision ?method", filter_round, 0},
    {FILTER, "select|reject|selectattr|rejectattr", NULL, filter_select, 0},
    {FILTER, "slice", "slices ?fill_with", filter_slice, 0},
    {FILTER, "sort", "?reverse ?case_sensitive ?attribute", filter_sort, 0},
    {FILTER, "string|escape e|safe|forceescape", "", filter_markup, MARKUP_STRING},
    {FILTER, "sum", "?attribute ?start", filter_sum, 0},
    {FILTER, "title", "", str_case, CASE_TITLE_FILTER},
    {FILTER, "tojson", "?indent ?ensure_ascii ?separators ?sort_keys", filter_tojson, 0},
    {FILTER, "trim", "?chars", str_strip, STRIP_BOTH},
    {FILTER, "truncate", "?length ?killwords ?end ?leeway", filter_truncate, 0},
    {FILTER, "unique", "?case_sensitive ?attribute", filter_unique, 0},
    {FILTER, "urlencode", "", filter_urlencode, 0},
    {FILTER, "wordcount", "", filter_wordcount, 0},

    {STR, "ljust|rjust|center", "width ?fillchar", str_pad, PAD_RIGHT},
    {STR, "zfill", "width", str_pad, PAD_ZEROS},
    {STR, "count", "sub ?start ?end", str_count, 0},
    {STR, "find|rfind|index|rindex", "sub ?start ?end", str_find_part, FIND_FIRST},
    {STR, "format", NULL, str_format, 0},
    {STR, "format_map", "mapping", str_format_map, 0},
    {STR, "isalpha|isdigit isnumeric isdecimal|isalnum|isspace", "", str_is_class, CLASS_LETTER},
    {STR, "isascii", "", str_is_ascii, 0},
    {STR, "islower|isupper", "", str_is_case, CASE_LOWER},
    {STR, "join", "iterable", str_join, 0},
    {STR, "lstrip|rstrip|strip", "?chars", str_strip, STRIP_LEFT},
    {STR, "partition|rpartition", "sep", str_partition, AT_START},
    {STR, "split|rsplit", "?sep ?maxsplit", str_split, AT_START},
    {STR, "splitlines", "?keepends", str_splitlines, 0},
    {STR, "removeprefix|removesuffix", "affix", str_remove_affix, AT_START},
    {STR, "startswith|endswith", "affix ?start ?end", str_has_affix, AT_START},
    {STR, "title", "", str_case, CASE_TITLE},

    {DICT, "get", "key ?default", dict_get, 0},
    {DICT, "keys|values|items", "", dict_view, DICT_KEYS},
    {LIST | TUPLE, "index|count", "value", list_search, LIST_INDEX},
    {LIST | DICT, "copy", "", copy_value, 0},
    {LIST | DICT, "clear pop", NULL, refuse_change, 0},
    {LIST, "append extend insert remove reverse sort", NULL, refuse_change, 0},
    {DICT, "popitem setdefault update", NULL, refuse_change, 0},
    {LOOP, "cycle", NULL, loop_cycle, 0},
    {LOOP, "changed", NULL, loop_changed, 0},
    {STATE, "joiner", "", joiner_next, 0},
    {STATE, "next|reset", "", cycler_move, CYCLER_NEXT},

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
    {TEST, "callable", "", test_kind, OF(FUNCTION) | OF(MACRO) | OF(LOOP) | OF(UNDEFINED)},
    {TEST, "divisibleby", "num", test_divisible, 0},
    {TEST, "even|odd", "", test_parity, 0},
    {TEST, "escaped", "", test_escaped, 0},
    {TEST, "filter", "", test_name, BUILTIN_FILTER},
    {TEST, "test", "", test_name, BUILTIN_TEST},
    {TEST, "lower|upper", "", str_is_case, CASE_LOWER},
    {TEST, "sameas", "other", test_same, 0},
    {TEST, "eq == equalto|ne !=|le <=|ge >=|lt < lessthan|gt > greaterthan|in", "other", test_compare, CMP_EQ},
    {0, NULL, NULL, NULL, 0},
};
