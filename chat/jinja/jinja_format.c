// Formatting of strings. Both forms read a format specification into a Spec, which put_value()
// applies to a value:
//
//   "%" [(key)] [flags] [width] [.precision] type           format_percent()
//   "{" [field] ["!" conversion] [":" specification] "}"     str_format()
//       specification: [[fill]align][sign][#][0][width][grouping][.precision][type]
//
// Provenance: the text between the fields and a fill character keep the mask of the format, values
// keep their own. Formats can come from data, so widths and precisions are bounded.
#include "chat/jinja/jinja_format.h"
#include "chat/jinja/jinja_strings.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>

enum {
    MAX_WIDTH = 1000000,
    MAX_PRECISION = 1000, // of a number
    MAX_NUMBER = MAX_PRECISION + 400
};

typedef struct {
    Text fill;         // one character; empty: a space
    char align;        // '<', '>', '^', or '=': between sign and digits; 0: of the type
    char sign;         // '+' or ' ' before numbers that are not negative; else 0
    bool has_prefix;   // #: 0x, 0o, 0b
    char grouping;     // ',' or '_' between groups of digits; else 0
    int64_t width;     // at least so many characters
    int64_t precision; // -1: none
    char type;         // letter of the conversion; 0: none
} Spec;

// Reads a number at the beginning of t. False if there is none.
static bool read_count(Heap *h, Text *t, int64_t *count) {
    if (!t->len || !isdigit((unsigned char)*t->data)) return false;
    *count = 0;
    while (t->len && isdigit((unsigned char)*t->data)) {
        *count = *count * 10 + (*text_next(t).data - '0');
        if (*count > MAX_WIDTH)
            heap_fail(h, "format: a width, precision or index of more than %d", MAX_WIDTH);
    }
    return true;
}

// Removes the first byte of t if it is one of `bytes`. Returns it, or 0.
static char take_byte(Text *t, const char *bytes) {
    if (!t->len || !*t->data || !strchr(bytes, *t->data)) return 0;
    return *text_next(t).data;
}

// Appends a text of a number or a value, filled to the width. The first n_sign bytes are its sign
// and prefix.
static void put_filled(Heap *h, Text t, size_t n_sign, const Spec *s, char default_align) {
    char align = s->align ? s->align : default_align;
    Text fill = s->fill.len ? s->fill : text_of(" ");
    int64_t n = s->width - (int64_t)text_length(h, t);
    int64_t left = n;
    if (align == '<') left = 0;
    if (align == '^') left = n / 2;

    if (align == '=') heap_put(h, text_part(t, 0, n_sign));
    for (int64_t i = 0; i < left; i++) heap_put(h, fill);
    heap_put(h, align == '=' ? text_part(t, n_sign, t.len) : t);
    for (int64_t i = left; i < n; i++) heap_put(h, fill);
}

// Numbers

// Writes the digits of the integer v in a base, without sign. Returns false if it is negative.
static bool write_digits(Heap *h, Value v, char type, char *out, size_t size) {
    if (v.kind == VALUE_BIG_INT) {
        bool is_negative = *v.text.data == '-';
        if (type != 'd') heap_fail(h, "a number is too large");
        if (v.text.len >= size) heap_fail(h, "format: a number of more than %d digits", MAX_NUMBER);
        snprintf(out, size, "%.*s", SHOWN(text_str(text_part(v.text, is_negative, v.text.len))));
        return !is_negative;
    }

    int64_t i = value_integer(h, v);
    uint64_t rest = i < 0 ? -(uint64_t)i : (uint64_t)i;
    unsigned base = 10;
    if (type == 'b') base = 2;
    if (type == 'o') base = 8;
    if ((type | 32) == 'x') base = 16;

    char digits[65];
    size_t n = sizeof digits;
    digits[--n] = 0;
    do {
        digits[--n] = (type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef")[rest % base];
        rest /= base;
    } while (rest);
    snprintf(out, size, "%s", digits + n);
    return i >= 0;
}

// Appends a number with its sign and prefix; groups the digits before the point. Returns the length
// of sign and prefix.
static size_t put_parts(Heap *h, const char *sign, const char *prefix, const char *digits,
                        const Spec *s) {
    size_t n_digits = strspn(digits, "0123456789abcdefABCDEF");
    size_t group = s->type && strchr("boxX", s->type) ? 4 : 3;
    const char separator[] = {s->grouping, 0};

    heap_puts(h, sign);
    heap_puts(h, prefix);
    for (size_t i = 0; i < n_digits; i++) {
        if (s->grouping && i && (n_digits - i) % group == 0) heap_puts(h, separator);
        heap_put(h, (Text){digits + i, NULL, 1});
    }
    heap_puts(h, digits + n_digits);
    return strlen(sign) + strlen(prefix);
}

static void put_number(Heap *h, bool is_negative, const char *prefix, const char *digits,
                       const Spec *s) {
    const char sign[] = {is_negative ? '-' : s->sign, 0};
    size_t start = h->out.len;
    if (s->grouping && s->align == '=' && s->fill.len && *s->fill.data == '0')
        heap_fail(h, "format: '%c' with leading zeros is not supported", s->grouping);

    size_t n_sign = put_parts(h, sign, s->has_prefix ? prefix : "", digits, s);
    Text t = heap_pop_string(h, start).text;
    put_filled(h, t, n_sign, s, '>');
}

static void put_integer_as(Heap *h, Value v, const Spec *s) {
    char prefix[] = {'0', s->type, 0};
    char digits[MAX_NUMBER];
    bool is_positive = write_digits(h, v, s->type ? s->type : 'd', digits, sizeof digits);

    // The precision of "%.3d" is the least number of digits.
    char padded[2 * MAX_NUMBER];
    int64_t n_zeros = s->precision - (int64_t)strlen(digits);
    if (n_zeros < 0) n_zeros = 0;
    if (n_zeros > MAX_PRECISION)
        heap_fail(h, "format: a precision of more than %d digits", MAX_PRECISION);
    memset(padded, '0', (size_t)n_zeros);
    snprintf(padded + n_zeros, sizeof padded - (size_t)n_zeros, "%s", digits);

    put_number(h, !is_positive, strchr("boxX", s->type ? s->type : 'd') ? prefix : "", padded, s);
}

// A float without a type is like 'g', but has a digit after the point, and an exponent from 10 to
// the power of precision - 1 on.
static void write_general(double x, int precision, char *out, size_t size) {
    snprintf(out, size, "%.*e", precision - 1, x);
    char *e = strchr(out, 'e');
    int exponent = atoi(e + 1);
    if (exponent >= -4 && exponent < precision - 1) {
        snprintf(out, size, "%.*g", precision, x);
        if (!strchr(out, '.')) strcat(out, ".0");
        return;
    }

    // Remove the zeros at the end of the digits.
    char *end = e;
    while (end > out + 1 && end[-1] == '0') end--;
    if (end[-1] == '.') end--;
    memmove(end, e, strlen(e) + 1);
}

static void write_float(double x, const Spec *s, char *out, size_t size) {
    int precision = s->precision < 0 ? 6 : (int)s->precision;
    bool is_percent = s->type == '%';
    char form[] = {'%', '#', '.', '*', is_percent ? 'f' : s->type, 0};
    if (!s->has_prefix) memmove(form + 1, form + 2, sizeof form - 2);

    if (!isfinite(x))
        snprintf(out, size, "%s", isnan(x) ? "nan" : "inf");
    else if (s->type)
        snprintf(out, size, form, precision, is_percent ? 100 * x : x);
    else
        write_general(x, precision ? precision : 1, out, size);
    if (s->type && isupper((unsigned char)s->type) && !isfinite(x))
        for (char *c = out; *c; c++) *c = (char)toupper((unsigned char)*c);
    if (is_percent) strcat(out, "%");
}

static void put_float_as(Heap *h, Value v, const Spec *s) {
    double x = value_number(h, v);
    char digits[MAX_NUMBER];
    if (s->precision > MAX_PRECISION)
        heap_fail(h, "format: a precision of more than %d digits", MAX_PRECISION);

    bool is_negative = signbit(x) && !isnan(x);
    if (s->type || s->precision >= 0) {
        write_float(fabs(x), s, digits, sizeof digits - 4);
        put_number(h, is_negative, "", digits, s);
        return;
    }

    // The shortest digits that read back as x.
    Text t = value_str(h, value_float(fabs(x)));
    snprintf(digits, sizeof digits, "%.*s", SHOWN(text_str(t)));
    put_number(h, is_negative, "", digits, s);
}

// Values

static void put_text_as(Heap *h, Text t, const Spec *s, char default_align) {
    if (s->precision >= 0) t = text_part(t, 0, text_offset(t, s->precision));
    put_filled(h, t, 0, s, default_align);
}

// A character, given by its code point.
static void put_code(Heap *h, Value v, const Spec *s, char default_align) {
    int64_t code = value_integer(h, v);
    char utf8[4];
    if (code < 0 || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        heap_fail(h, "format: %lld is not a character", (long long)code);
    size_t n = (size_t)utf8_encode((uint32_t)code, utf8);
    put_filled(h, (Text){utf8, NULL, n}, 0, s, default_align);
}

static bool is_type(char type, const char *types) { return type && strchr(types, type); }

static _Noreturn void fail_type(Heap *h, Value v, char type) {
    heap_fail(h, "format: '%c' is not a type of '%s'", type, value_type_name(v));
}

static void put_string(Heap *h, Value v, const Spec *s) {
    if (s->type && s->type != 's') fail_type(h, v, s->type);
    if (s->sign || s->has_prefix || s->grouping || s->align == '=')
        heap_fail(h, "format: a string has no sign, prefix or groups");
    put_text_as(h, v.text, s, '<');
}

// "{:...}" of a value.
static void put_value(Heap *h, Value v, const Spec *s) {
    bool is_float = v.kind == VALUE_FLOAT;
    bool has_integer_type = !s->type || strchr("bcdoxX", s->type);
    if (v.kind == VALUE_STRING) {
        put_string(h, v, s);
    } else if (!value_is_number(v)) {
        heap_fail(h, "format: '%s' has no format specification", value_type_name(v));
    } else if (is_type(s->type, "eEfFgG%") || (is_float && !s->type)) {
        put_float_as(h, v, s);
    } else if (is_float || !has_integer_type) {
        fail_type(h, v, s->type);
    } else if (s->type == 'c') {
        put_code(h, v, s, '<');
    } else {
        if (s->precision >= 0) heap_fail(h, "format: an integer has no precision");
        put_integer_as(h, v, s);
    }
}

// "%"

// The values of a format: positional ones or, for "%(key)s", those of a dictionary.
typedef struct {
    const Value *values; // (n)
    int n, next;         // `next`: index of the next positional value
    const Dict *dict;    // NULL: none
    bool may_remain;     // not all values need a field
    bool is_markup;      // strings are escaped
} Values;

static Value next_value(Heap *h, Values *values) {
    if (values->next >= values->n) heap_fail(h, "format: not enough arguments");
    return values->values[values->next++];
}

// The value of "%(key)"; t begins after "%".
static Value keyed_value(Heap *h, Text *t, const Values *values) {
    size_t end = text_find(h, *t, text_of(")"), 0);
    if (end == SIZE_MAX) heap_fail(h, "format: a key has no ')'");
    if (!values->dict) heap_fail(h, "format: %%(...) needs a mapping");

    Value key = value_text(text_part(*t, 1, end));
    const Value *found = dict_find(h, values->dict, key);
    if (!found) heap_fail(h, "format: no value '%.*s'", SHOWN(text_str(key.text)));
    *t = text_part(*t, end + 1, t->len);
    return *found;
}

// A count, or "*" for the next value. Without either, *count remains.
static void read_count_or_value(Heap *h, Text *t, Values *values, int64_t *count) {
    if (!take_byte(t, "*")) {
        read_count(h, t, count);
        return;
    }
    *count = value_integer(h, next_value(h, values));
    if (*count > MAX_WIDTH || *count < -MAX_WIDTH)
        heap_fail(h, "format: a width, precision or index of more than %d", MAX_WIDTH);
}

// Reads the flags of "%". True if there is "0".
static bool read_flags(Text *t, Spec *s) {
    bool has_zeros = false;
    for (char flag = take_byte(t, "-+ #0"); flag; flag = take_byte(t, "-+ #0")) {
        if (flag == '-') s->align = '<';
        if (flag == '#') s->has_prefix = true;
        if (flag == '0') has_zeros = true;
        if (flag == '+' || (flag == ' ' && !s->sign)) s->sign = flag;
    }
    return has_zeros;
}

static Spec read_percent_spec(Heap *h, Text *t, Values *values) {
    Spec s = {.precision = -1};
    bool has_zeros = read_flags(t, &s);
    read_count_or_value(h, t, values, &s.width);
    if (s.width < 0) { // of "*"
        s.width = -s.width;
        s.align = '<';
    }

    bool has_point = take_byte(t, ".");
    if (has_point) read_count_or_value(h, t, values, &s.precision);
    if (has_point && s.precision < 0) s.precision = 0;

    take_byte(t, "hlL");
    if (!t->len) heap_fail(h, "format: incomplete");
    Text type = text_next(t);
    s.type = type.len == 1 ? *type.data : 0;

    if (has_zeros && !s.align && !is_type(s.type, "srac")) {
        s.align = '=';
        s.fill = text_of("0");
    }
    return s;
}

// The text of a value for "%s" (str), "%r" (repr) or "%a" (ascii).
static Text converted(Heap *h, Value v, char conversion, bool is_markup) {
    ValueStyle ascii = value_repr;
    ascii.is_ascii = true;
    size_t start = h->out.len;

    if (conversion == 's') {
        if (is_markup) v = string_escape(h, v);
        return value_str(h, v);
    }
    value_put(h, v, conversion == 'a' ? &ascii : &value_repr, 0);
    v = heap_pop_string(h, start);
    return is_markup ? string_escape(h, v).text : v.text;
}

static void put_percent(Heap *h, Value v, Spec s, bool is_markup) {
    bool is_truncated = v.kind == VALUE_FLOAT && is_type(s.type, "diu");

    if (is_type(s.type, "sra")) {
        put_text_as(h, converted(h, v, s.type, is_markup), &s, '>');
    } else if (s.type == 'c' && v.kind == VALUE_STRING) {
        if (text_length(h, v.text) != 1) heap_fail(h, "format: %%c needs one character");
        put_filled(h, v.text, 0, &s, '>');
    } else if (s.type == 'c') {
        put_code(h, v, &s, '>');
    } else if (is_type(s.type, "eEfFgG")) {
        put_float_as(h, v, &s);
    } else if (is_type(s.type, "diuoxX")) {
        if (is_truncated && !(fabs(v.number) < 0x1p63)) heap_fail(h, "a number is too large");
        if (is_truncated) v = value_int((int64_t)v.number);
        if (is_type(s.type, "iu")) s.type = 'd';
        put_integer_as(h, v, &s);
    } else {
        heap_fail(h, "format: unsupported conversion '%%%c'", s.type ? s.type : '?');
    }
}

static Value format_with(Heap *h, Value format, Values *values) {
    Text t = value_string(h, format);
    size_t start = h->out.len;
    values->is_markup = format.is_markup;

    while (t.len) {
        size_t n = text_find(h, t, text_of("%"), 0);
        heap_put(h, text_part(t, 0, n == SIZE_MAX ? t.len : n));
        if (n == SIZE_MAX) break;

        Text percent = text_part(t, n, n + 1);
        t = text_part(t, n + 1, t.len);
        bool has_key = t.len && *t.data == '(';
        Value v = has_key ? keyed_value(h, &t, values) : (Value){0};
        Spec s = read_percent_spec(h, &t, values);
        if (s.type == '%')
            heap_put(h, percent);
        else
            put_percent(h, has_key ? v : next_value(h, values), s, format.is_markup);
    }

    if (values->next < values->n && !values->may_remain)
        heap_fail(h, "format: not all arguments converted");
    Value out = heap_pop_string(h, start);
    out.is_markup = format.is_markup;
    return out;
}

Value format_percent(Heap *h, Value format, Value values) {
    Values all = {.values = &values, .n = 1};
    if (values.kind == VALUE_TUPLE) all = (Values){.values = values.list->items, values.list->n};
    if (values.kind == VALUE_DICT) all.dict = values.dict;
    bool is_list = value_is_list(values) && values.kind != VALUE_TUPLE;
    all.may_remain = is_list || values.kind == VALUE_DICT || values.kind == VALUE_UNDEFINED;
    return format_with(h, format, &all);
}

// The named arguments of a call as a dictionary; NULL if there are none.
static const Dict *named_arguments(Heap *h, const Args *a) {
    Dict *named = value_dict(h, VALUE_DICT).dict;
    for (int i = 0; i < a->n; i++)
        if (a->names[i].data) dict_set(h, named, value_data(a->names[i]), a->values[i]);
    return named->n ? named : NULL;
}

Value filter_format(Heap *h, const Args *a) {
    Value format = a->self;
    Values values = {.values = a->values, .n = a->n, .dict = named_arguments(h, a)};
    if (values.dict && values.dict->n != a->n)
        heap_fail(h, "format takes either positional or named values");
    values.may_remain = values.dict;
    if (format.kind != VALUE_STRING) format = value_text(value_str(h, format));
    return format_with(h, format, &values);
}

// str.format()

// A format with its values. Fields without a name take the next positional value.
typedef struct {
    Values values;
    bool has_auto, has_manual; // fields without a name, fields with an index
    bool is_nested;            // within a format specification
} FormatState;

// The value that a field begins with: of a name or an index.
static Value first_value(Heap *h, FormatState *f, Text name) {
    Text rest = name;
    int64_t index;
    bool is_index = read_count(h, &rest, &index) && !rest.len;
    if (!name.len || is_index) {
        f->has_auto |= !is_index;
        f->has_manual |= is_index;
        if (f->has_auto && f->has_manual) heap_fail(h, "format: fields with and without an index");
        if (!is_index) return next_value(h, &f->values);
        if (index >= f->values.n) heap_fail(h, "format has no argument %lld", (long long)index);
        return f->values.values[index];
    }

    const Value *found = f->values.dict ? dict_find(h, f->values.dict, value_text(name)) : NULL;
    if (!found) heap_fail(h, "format has no argument '%.*s'", SHOWN(text_str(name)));
    return *found;
}

// Removes the bytes up to one of `ends` from t and returns them.
static Text take_until(Text *t, const char *ends) {
    size_t n = 0;
    while (n < t->len && !(t->data[n] && strchr(ends, t->data[n]))) n++;
    Text taken = text_part(*t, 0, n);
    *t = text_part(*t, n, t->len);
    return taken;
}

// The value of a field: NAME, then any number of ".ATTRIBUTE" and "[KEY]".
static Value field_value(Heap *h, FormatState *f, Text field) {
    Value v = first_value(h, f, take_until(&field, ".["));
    while (field.len) {
        bool is_item = *text_next(&field).data == '[';
        Text name = take_until(&field, is_item ? "]" : ".[");
        Text rest = name;
        int64_t index;
        bool is_index = read_count(h, &rest, &index) && !rest.len;

        if (!name.len || (is_item && !take_byte(&field, "]")))
            heap_fail(h, "format: incomplete field");
        if (!is_item)
            v = library_attribute(h, v, text_str(name));
        else
            v = library_item(h, v, is_index ? value_int(index) : value_text(name));
    }
    return v;
}

static bool is_align(Text t) { return t.len && *t.data && strchr("<>^=", *t.data); }

static Spec read_spec(Heap *h, Text t, Value v) {
    Spec s = {.precision = -1};
    Text after_fill = t;
    if (t.len) text_next(&after_fill);
    if (is_align(after_fill)) s.fill = text_next(&t);
    s.align = take_byte(&t, "<>^=");

    s.sign = take_byte(&t, "+- ");
    if (s.sign == '-') s.sign = 0;
    s.has_prefix = take_byte(&t, "#");
    if (take_byte(&t, "0") && !s.fill.len) {
        s.fill = text_of("0");
        if (!s.align && v.kind != VALUE_STRING) s.align = '=';
    }

    read_count(h, &t, &s.width);
    s.grouping = take_byte(&t, ",_");
    if (take_byte(&t, ".") && !read_count(h, &t, &s.precision))
        heap_fail(h, "format: a precision is missing");

    if (t.len) s.type = *text_next(&t).data;
    if (t.len) heap_fail(h, "format: invalid specification");
    return s;
}

static Text expand(Heap *h, Text t, FormatState *f);

// Appends the value of a field, whose text is between the braces.
static void put_field(Heap *h, Text t, FormatState *f) {
    Text field = take_until(&t, "!:");
    Value v = field_value(h, f, field);

    // The conversion, then the specification, which can have fields of its own.
    char conversion = 0;
    if (take_byte(&t, "!")) {
        conversion = take_byte(&t, "sra");
        if (!conversion) heap_fail(h, "format: expected !s, !r or !a");
        v = value_text(converted(h, v, conversion, false));
    }
    bool has_spec = take_byte(&t, ":");
    if (t.len && !has_spec) heap_fail(h, "format: expected ':' after the conversion");
    if (f->is_nested && str_contains(text_str(t), "{")) heap_fail(h, "format: nested too deeply");

    bool was_nested = f->is_nested;
    f->is_nested = true;
    Text spec = expand(h, t, f);
    f->is_nested = was_nested;

    if (spec.len) {
        Spec s = read_spec(h, spec, v);
        size_t start = h->out.len;
        put_value(h, v, &s);
        v = heap_pop_string(h, start);
    }
    heap_put(h, converted(h, v, 's', f->values.is_markup));
}

// Removes a field up to its closing brace from t, which begins after the opening brace.
static Text take_field(Heap *h, Text *t) {
    int depth = 1;
    for (size_t i = 0; i < t->len; i++) {
        depth += t->data[i] == '{';
        depth -= t->data[i] == '}';
        if (depth) continue;

        Text field = text_part(*t, 0, i);
        heap_touch(h, i);
        *t = text_part(*t, i + 1, t->len);
        return field;
    }
    heap_fail(h, "format: expected '}'");
}

// Replaces the fields of t. "{{" and "}}" are braces.
static Text expand(Heap *h, Text t, FormatState *f) {
    size_t start = h->out.len;
    while (t.len) {
        heap_put(h, take_until(&t, "{}"));
        if (!t.len) break;

        Text brace = text_next(&t);
        bool is_open = *brace.data == '{';
        if (take_byte(&t, is_open ? "{" : "}"))
            heap_put(h, brace);
        else if (is_open)
            put_field(h, take_field(h, &t), f);
        else
            heap_fail(h, "format: single '}'");
    }
    return heap_pop_string(h, start).text;
}

static Value expand_string(Heap *h, Value format, Values values) {
    FormatState f = {.values = values};
    f.values.is_markup = format.is_markup;
    Value out = value_text(expand(h, value_string(h, format), &f));
    out.is_markup = format.is_markup;
    return out;
}

Value str_format(Heap *h, const Args *a) {
    List *positional = value_list(h, VALUE_LIST, 0).list;
    for (int i = 0; i < a->n; i++)
        if (!a->names[i].data) list_push(h, positional, a->values[i]);
    Values values = {positional->items, positional->n, .dict = named_arguments(h, a)};
    return expand_string(h, a->self, values);
}

Value str_format_map(Heap *h, const Args *a) {
    return expand_string(h, a->self, (Values){.dict = value_mapping(h, a->values[0])});
}
