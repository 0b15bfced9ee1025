// Functions of strings: parts, characters, construction. Results that copy bytes copy their
// provenance mask (jinja_value.h).
#include "chat/jinja/jinja_strings.h"
#include "base/unicode.h"

#include <stdio.h>

// Parts

Value str_strip(Heap *h, const Args *a) {
    Value chars = a->values[0];
    Text t = value_str(h, a->self),
         set = chars.kind > VALUE_NONE ? value_string(h, chars) : WHITE_SPACE;
    heap_touch(h, (t.len * 4 + 1) * (set.len / 16 + 1));
    Value v = value_text(text_strip(t, set, a->variant & STRIP_LEFT, a->variant & STRIP_RIGHT));
    v.is_markup = a->self.is_markup;
    return v;
}

// As in Python, an empty part is found before every character and at the end.
Value str_replace(Heap *h, const Args *a) {
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
    return is_last ? text_find_last(h, t, sep) : text_find(h, t, sep, 0);
}

static bool is_space(Text c) { return !text_strip(c, WHITE_SPACE, true, false).len; }

// Removes the first word from t, which begins without white space, and returns it; or the last word
// from t, which ends without.
static Text take_word(Text *t, bool is_last) {
    size_t at = is_last ? t->len : 0;
    while (is_last ? at > 0 : at < t->len) {
        Text rest = text_part(*t, is_last ? text_offset(text_part(*t, 0, at), -1) : at, t->len);
        Text c = text_next(&rest);
        if (is_space(c)) break;
        at = is_last ? at - c.len : at + c.len;
    }

    Text left = text_part(*t, 0, at);
    Text right = text_part(*t, at, t->len);
    *t = is_last ? left : right;
    return is_last ? right : left;
}

// split() or rsplit() without a separator: at most `most` words (< 0: all) between white space,
// then the remaining text.
static Value split_at_spaces(Heap *h, Text t, int64_t most, bool from_right) {
    Value out = value_list(h, VALUE_LIST, 0);
    heap_touch(h, t.len * 16);
    t = text_strip(t, WHITE_SPACE, !from_right, from_right);
    for (; t.len && most != 0; most--) {
        list_push(h, out.list, value_text(take_word(&t, from_right)));
        t = text_strip(t, WHITE_SPACE, !from_right, from_right);
    }

    if (t.len) list_push(h, out.list, value_text(t));
    if (from_right) out.list = list_reversed(h, out.list);
    return out;
}

Value str_split(Heap *h, const Args *a) {
    Value out = value_list(h, VALUE_LIST, 0);
    Text t = value_string(h, a->self);
    bool from_right = a->variant == AT_END;
    int64_t most = value_integer(h, argument_or(a->values[1], value_int(-1)));

    if (a->values[0].kind <= VALUE_NONE) return split_at_spaces(h, t, most, from_right);

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
    if (from_right) out.list = list_reversed(h, out.list);
    return out;
}

Value str_partition(Heap *h, const Args *a) {
    Text t = value_string(h, a->self);
    Text sep = value_string(h, a->values[0]);
    size_t at = find_separator(h, t, sep, a->variant == AT_END);

    // Without a separator, the text is the first part, or the last one for rpartition().
    size_t after = at + sep.len;
    if (at == SIZE_MAX) at = after = a->variant == AT_END ? 0 : t.len;

    Value out = value_list(h, VALUE_TUPLE, 3);
    out.list->items[0] = value_text(text_part(t, 0, at));
    out.list->items[1] = value_text(text_part(t, at, after));
    out.list->items[2] = value_text(text_part(t, after, t.len));
    return out;
}

// The part t[start:end], for the optional arguments `start` and `end`. *first: the index of its
// first character in t.
static Text part_between(Heap *h, Text t, Value start, Value end, int64_t *first) {
    int64_t n = (int64_t)text_length(h, t);
    *first = library_slice_bound(h, start, n, 0, n, 0);
    int64_t last = library_slice_bound(h, end, n, 0, n, n);
    return text_part(t, text_offset(t, *first), text_offset(t, last));
}

// True if t begins (AT_START) or ends (AT_END) with the text e.
static bool has_affix(Heap *h, Text t, Text e, int where) {
    heap_spend(h, 1);
    if (e.len <= t.len) heap_touch(h, e.len);
    return e.len <= t.len &&
           (!e.len || !memcmp(t.data + (where == AT_END ? t.len - e.len : 0), e.data, e.len));
}

// The argument is a string, or a tuple of strings.
Value str_has_affix(Heap *h, const Args *a) {
    int64_t first;
    Text t = part_between(h, value_string(h, a->self), a->values[1], a->values[2], &first);
    List one = {a->values, 1};
    const List *all = a->values[0].kind == VALUE_TUPLE ? a->values[0].list : &one;

    bool has = false;
    for (int i = 0; i < all->n && !has; i++)
        has = has_affix(h, t, value_string(h, all->items[i]), a->variant);
    return value_bool(has);
}

Value str_remove_affix(Heap *h, const Args *a) {
    Text t = value_string(h, a->self);
    Text affix = value_string(h, a->values[0]);
    size_t n = has_affix(h, t, affix, a->variant) ? affix.len : 0;
    return value_text(a->variant == AT_END ? text_part(t, 0, t.len - n) : text_part(t, n, t.len));
}

// The index of a part in characters. Without the part, find() is -1 and index() fails.
Value str_find_part(Heap *h, const Args *a) {
    int64_t first;
    bool is_last = a->variant == FIND_LAST || a->variant == INDEX_LAST;
    Text t = part_between(h, value_string(h, a->self), a->values[1], a->values[2], &first);
    Text part = value_string(h, a->values[0]);

    size_t at = is_last ? text_find_last(h, t, part) : text_find(h, t, part, 0);
    if (at != SIZE_MAX) return value_int(first + (int64_t)text_length(h, text_part(t, 0, at)));
    if (a->variant >= INDEX_FIRST) heap_fail(h, "%.*s: substring not found", SHOWN(a->name));
    return value_int(-1);
}

Value str_count(Heap *h, const Args *a) {
    int64_t first, n = 0;
    Text t = part_between(h, value_string(h, a->self), a->values[1], a->values[2], &first);
    Text part = value_string(h, a->values[0]);
    if (!part.len) return value_int((int64_t)text_length(h, t) + 1);

    size_t at = text_find(h, t, part, 0);
    for (; at != SIZE_MAX; n++) at = text_find(h, t, part, at + part.len);
    return value_int(n);
}

// True for the characters that end a line, as in Python's splitlines().
static bool is_line_end(uint32_t code) {
    return (code >= 0xa && code <= 0xd) || (code >= 0x1c && code <= 0x1e) || code == 0x85 ||
           code == 0x2028 || code == 0x2029;
}

Value str_splitlines(Heap *h, const Args *a) {
    Value out = value_list(h, VALUE_LIST, 0);
    bool keeps_ends = value_truth(a->values[0]);
    Text t = value_string(h, a->self);
    Text rest = t;

    heap_touch(h, t.len * 4);
    while (rest.len) {
        size_t at = t.len - rest.len; // end of the line so far
        Text c = text_next(&rest);
        if (!is_line_end(text_code(c))) continue;

        if (*c.data == '\r' && rest.len && *rest.data == '\n') text_next(&rest);
        size_t end = t.len - rest.len;
        list_push(h, out.list, value_text(text_part(t, 0, keeps_ends ? end : at)));
        t = rest;
    }

    if (t.len) list_push(h, out.list, value_text(t));
    return out;
}

// Cuts a text of more than length + leeway characters to `length`, with `end` at its end. Cuts
// before a word unless `killwords` is true.
Value filter_truncate(Heap *h, const Args *a) {
    Text t = value_str(h, a->self);
    int64_t length = value_integer(h, argument_or(a->values[0], value_int(255)));
    Text end = value_string(h, argument_or(a->values[2], value_text(text_of("..."))));
    int64_t leeway = a->values[3].kind <= VALUE_NONE ? 5 : value_integer(h, a->values[3]);
    int64_t kept = length - (int64_t)text_length(h, end);

    if (kept < 0 || leeway < 0) heap_fail(h, "truncate: the end is longer than the length");
    if ((int64_t)text_length(h, t) - leeway <= length) return value_text(t);

    t = text_part(t, 0, text_offset(t, kept));
    size_t space = value_truth(a->values[1]) ? SIZE_MAX : text_find_last(h, t, text_of(" "));
    if (space != SIZE_MAX) t.len = space;
    size_t start = h->out.len;
    heap_put(h, t);
    heap_put(h, end);
    return heap_pop_string(h, start);
}

// Words consist of letters, numbers and underscores.
Value filter_wordcount(Heap *h, const Args *a) {
    Text t = value_str(h, a->self);
    int64_t n = 0;
    bool is_inside = false;

    heap_touch(h, t.len * 4);
    while (t.len) {
        Text c = text_next(&t);
        UnicodeClass class = unicode_class(text_code(c));
        bool is_word = class == UNICODE_LETTER || class == UNICODE_NUMBER || *c.data == '_';
        n += is_word && !is_inside;
        is_inside = is_word;
    }
    return value_int(n);
}

// Characters

// True if a string is not empty and all its characters are in the set a->variant of classes.
Value str_is_class(Heap *h, const Args *a) {
    Text t = value_string(h, a->self);
    bool fits = t.len;
    heap_touch(h, t.len * 4);
    while (fits && t.len) fits = (1 << unicode_class(text_code(text_next(&t))) >> 1) & a->variant;
    return value_bool(fits);
}

Value str_is_ascii(Heap *h, const Args *a) {
    Text t = value_string(h, a->self);
    heap_touch(h, t.len);
    for (size_t i = 0; i < t.len; i++)
        if (t.data[i] & 0x80) return value_bool(false);
    return value_bool(true);
}

// True if a string has letters of one case and none of the other.
Value str_is_case(Heap *h, const Args *a) {
    Text t = value_str(h, a->self);
    bool has[2] = {false, false}; // CASE_LOWER, CASE_UPPER

    heap_touch(h, t.len * 4);
    while (t.len) {
        int kind = unicode_kind(text_code(text_next(&t)));
        if ((kind & UNICODE_CLASS) != UNICODE_LETTER) continue;
        if (kind & UNICODE_LOWER) has[CASE_LOWER] = true;
        if (kind & UNICODE_UPPER) has[CASE_UPPER] = true;
    }
    return value_bool(has[a->variant] && !has[!a->variant]);
}

// Construction

Value str_join(Heap *h, const Args *a) {
    Text sep = value_string(h, a->self);
    const List *list = value_iterate(h, a->values[0]);
    size_t start = h->out.len;
    for (int i = 0; i < list->n; i++) {
        if (i) heap_put(h, sep);
        heap_put(h, value_string(h, list->items[i]));
    }
    return heap_pop_string(h, start);
}

static void put_repeated(Heap *h, Text t, int64_t n) {
    for (; n > 0; n--) heap_put(h, t);
}

// Fills t up to `width` characters: on the left, the right, or both sides as Python's center().
static Value pad(Heap *h, Text t, int64_t width, Text fill, int side) {
    int64_t n = width - (int64_t)text_length(h, t);
    int64_t left = 0;
    if (n <= 0) return value_text(t);
    if (side == PAD_LEFT) left = n;
    if (side == PAD_BOTH) left = n / 2 + (n & width & 1);

    size_t start = h->out.len;
    put_repeated(h, fill, left);
    heap_put(h, t);
    put_repeated(h, fill, n - left);
    return heap_pop_string(h, start);
}

// ljust(), rjust(), center() and zfill().
Value str_pad(Heap *h, const Args *a) {
    Text t = value_string(h, a->self);
    int64_t width = value_integer(h, a->values[0]);
    if (a->variant == PAD_ZEROS) {
        bool has_sign = t.len && (*t.data == '-' || *t.data == '+');
        size_t start = h->out.len;
        heap_put(h, text_part(t, 0, has_sign));
        put_repeated(h, text_of("0"), width - (int64_t)text_length(h, t));
        heap_put(h, text_part(t, has_sign, t.len));
        return heap_pop_string(h, start);
    }

    Text fill = value_string(h, argument_or(a->values[1], value_text(text_of(" "))));
    if (text_length(h, fill) != 1)
        heap_fail(h, "%.*s: the fill character must be one character", SHOWN(a->name));
    return pad(h, t, width, fill, a->variant);
}

Value filter_center(Heap *h, const Args *a) {
    int64_t width = value_integer(h, argument_or(a->values[0], value_int(80)));
    return pad(h, value_str(h, a->self), width, text_of(" "), PAD_BOTH);
}

Value string_escape(Heap *h, Value v) {
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

Value filter_markup(Heap *h, const Args *a) {
    Value v = value_text(value_str(h, a->self));
    bool is_markup = a->self.kind == VALUE_STRING && a->self.is_markup;
    if (a->variant == MARKUP_FORCE) return string_escape(h, v);
    if (a->variant == MARKUP_ESCAPE) return string_escape(h, a->self);
    v.is_markup = is_markup || a->variant == MARKUP_SAFE;
    return v;
}

Text string_indent(Heap *h, Value by) {
    size_t start = h->out.len;
    if (by.kind == VALUE_STRING) return by.text;
    for (int64_t n = value_integer(h, by); n > 0; n--) heap_puts(h, " ");
    return heap_pop_string(h, start).text;
}

// Indents the lines after the first, and the first one if `first` is true. Blank lines are indented
// if `blank` is true. Line ends become newlines.
Value filter_indent(Heap *h, const Args *a) {
    Text by = string_indent(h, argument_or(a->values[0], value_int(4)));
    bool indents_first = value_truth(a->values[1]);
    bool indents_blank = value_truth(a->values[2]);
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

// Percent-encodes all bytes except letters, digits, "-._~" and, outside a query, "/".
static void put_percent_encoded(Heap *h, Text t, bool is_query) {
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~";
    for (size_t i = 0; i < t.len; i++) {
        unsigned char c = (unsigned char)t.data[i];
        char code[4];
        bool is_plain = c && (strchr(plain, c) || (c == '/' && !is_query));
        snprintf(code, sizeof code, "%%%02X", c);
        if (is_plain)
            heap_put(h, text_part(t, i, i + 1));
        else
            heap_puts(h, is_query && c == ' ' ? "+" : code);
    }
}

// A string, or the pairs of a dictionary or list as a query: "a=1&b=2".
Value filter_urlencode(Heap *h, const Args *a) {
    size_t start = h->out.len;
    bool is_pairs = a->self.kind == VALUE_DICT || value_is_list(a->self);
    if (!is_pairs) {
        put_percent_encoded(h, value_str(h, a->self), false);
        return heap_pop_string(h, start);
    }

    const List *pairs = dict_pairs(h, a->self);
    for (int i = 0; i < pairs->n; i++) {
        const List *pair = value_iterate(h, pairs->items[i]);
        if (pair->n != 2) heap_fail(h, "urlencode: expected pairs, found %d values", pair->n);
        if (i) heap_puts(h, "&");
        put_percent_encoded(h, value_str(h, pair->items[0]), true);
        heap_puts(h, "=");
        put_percent_encoded(h, value_str(h, pair->items[1]), true);
    }
    return heap_pop_string(h, start);
}
