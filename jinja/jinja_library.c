#include "jinja_library.h"
#include "../base/unicode.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_PARAMS = 8, MAX_RANGE = 100000 }; // the second is that of Jinja's sandbox

static Value undefined(Str name, const char *owner) {
    return (Value){.kind = VALUE_UNDEFINED, .name = name, .owner = owner};
}

// The value of a parameter that may be absent.
static Value or_else(Value v, Value other) { return v.kind == VALUE_ABSENT ? other : v; }
static bool truth_or(Value v, bool other) {
    return v.kind == VALUE_ABSENT ? other : value_truth(v);
}

static int64_t int_of(Heap *h, Value v) {
    if (v.kind == VALUE_BOOL) return v.boolean;
    if (v.kind != VALUE_INT) heap_fail(h, "expected a whole number, found '%s'", value_kind(v));
    return v.integer;
}

static int64_t int_or(Heap *h, Value v, int64_t other) {
    return v.kind == VALUE_ABSENT ? other : int_of(h, v);
}

static Text text_arg(Heap *h, Value v) {
    if (v.kind != VALUE_STRING) heap_fail(h, "expected a string, found '%s'", value_kind(v));
    return v.text;
}

// Binds arguments to the slots of the names in `params`, which all are VALUE_ABSENT before.
static void bind(Heap *h, const Builtin *b, const Args *a, Value *slots) {
    int n_slots = 0, n_needed = 0;
    Str names[MAX_PARAMS];
    for (const char *p = b->params; *p; p += strspn(p, " ")) {
        bool is_optional = *p == '?';
        p += is_optional;
        names[n_slots++] = (Str){p, strcspn(p, " ")};
        if (!is_optional) n_needed = n_slots;
        p += strcspn(p, " ");
    }
    for (int i = 0; i < a->n; i++) {
        int k = i;
        if (a->names[i].data)
            for (k = 0; k < n_slots && !str_eq(names[k], a->names[i]);) k++;
        if (k >= n_slots && a->names[i].data)
            heap_fail(h, "%s has no argument '%.*s'", b->name, SHOWN(a->names[i]));
        if (k >= n_slots)
            heap_fail(h, "%s takes at most %d arguments, found %d", b->name, n_slots, a->n);
        slots[k] = a->values[i];
    }
    for (int i = 0; i < n_needed; i++)
        if (slots[i].kind == VALUE_ABSENT)
            heap_fail(h, "%s needs an argument '%.*s'", b->name, SHOWN(names[i]));
}

static Value run(Heap *h, const Builtin *b, Value self, const Args *a) {
    Value slots[MAX_PARAMS] = {{0}};
    if (!b->params) return b->run(h, self, a);
    bind(h, b, a, slots);
    return b->run(h, self, &(Args){slots, NULL, MAX_PARAMS});
}

static const Builtin *find(const Builtin *table, Str name) {
    while (table->name && !str_is(name, table->name)) table++;
    return table->name ? table : NULL;
}

// Strings

// A letter in the other case, where one is a fixed step from the other: Latin, Greek, Cyrillic,
// Armenian; or where capitals and small letters take turns (step 1), as in Latin Extended-A.
static uint32_t other_case(uint32_t c, bool upper) {
    static const struct {
        uint32_t from, to, step; // of the capitals; to the small letter
    } cases[] = {{'A', 'Z', 32},     {0xc0, 0xd6, 32},   {0xd8, 0xde, 32},   {0x100, 0x136, 1},
                 {0x139, 0x147, 1},  {0x14a, 0x176, 1},  {0x179, 0x17d, 1},  {0x391, 0x3a1, 32},
                 {0x3a3, 0x3ab, 32}, {0x400, 0x40f, 80}, {0x410, 0x42f, 32}, {0x460, 0x480, 1},
                 {0x48a, 0x4be, 1},  {0x4d0, 0x52e, 1},  {0x531, 0x556, 48}, {0x1e00, 0x1e94, 1},
                 {0x1ea0, 0x1efe, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t first = cases[i].from + (upper ? cases[i].step : 0),
                 n = cases[i].to - cases[i].from, step = cases[i].step;
        if (c - first <= n && (step > 1 || (c - first) % 2 == 0))
            return upper ? c - step : c + step;
    }
    return c;
}

static uint32_t code_of(Text c) {
    uint32_t code = 0;
    utf8_decode(c.data, c.len, &code);
    return code;
}

static bool is_cased(Text c) {
    return other_case(code_of(c), true) != other_case(code_of(c), false);
}

// A character in one case, written by whom the character was.
static void put_case(Heap *h, Text c, bool upper) {
    char bytes[4], mask[4];
    uint32_t code = code_of(c);
    if (upper && code == 0xdf) {
        heap_put(h, (Text){"SS", c.mask, 2}); // both bytes have marks: the letter has two
        return;
    }
    size_t n = (size_t)utf8_encode(other_case(code, upper), bytes);
    memset(mask, c.mask ? *c.mask : 0, sizeof mask);
    heap_put(h, (Text){bytes, mask, n});
}

typedef enum { CASE_LOWER, CASE_UPPER, CASE_CAPITALIZE, CASE_TITLE, CASE_TITLE_FILTER } CaseRule;

static Value change_case(Heap *h, Text t, CaseRule rule) {
    size_t start = h->out.len;
    bool at_start = true;
    heap_spend(h, t.len / 4);
    while (t.len) {
        Text c = text_next(&t);
        put_case(h, c, rule == CASE_UPPER || (rule >= CASE_CAPITALIZE && at_start));
        at_start = rule == CASE_TITLE          ? !is_cased(c)
                   : rule == CASE_TITLE_FILTER ? strchr("- ({[<\t\n\r\f\v", *c.data) && *c.data
                                               : false;
    }
    return heap_take(h, start);
}

#define CASE_FUNCTION(name, rule)                                                                  \
    static Value name(Heap *h, Value self, const Args *a) {                                        \
        (void)a;                                                                                   \
        return change_case(h, value_str(h, self), rule);                                           \
    }
CASE_FUNCTION(str_lower, CASE_LOWER)
CASE_FUNCTION(str_upper, CASE_UPPER)
CASE_FUNCTION(str_capitalize, CASE_CAPITALIZE)
CASE_FUNCTION(str_title, CASE_TITLE)
CASE_FUNCTION(filter_title, CASE_TITLE_FILTER)

static Value strip(Heap *h, Value self, Value chars, bool left, bool right) {
    Text t = value_str(h, self), set = chars.kind == VALUE_STRING ? chars.text : (Text){0};
    if (chars.kind > VALUE_NONE) text_arg(h, chars);
    heap_spend(h, (t.len / 16 + 1) * (set.len / 16 + 1));
    Value v = value_text(text_strip(t, chars.kind == VALUE_STRING ? &set : NULL, left, right));
    v.is_markup = self.is_markup;
    return v;
}

static Value str_strip(Heap *h, Value self, const Args *a) {
    return strip(h, self, a->values[0], true, true);
}
static Value str_lstrip(Heap *h, Value self, const Args *a) {
    return strip(h, self, a->values[0], true, false);
}
static Value str_rstrip(Heap *h, Value self, const Args *a) {
    return strip(h, self, a->values[0], false, true);
}

// Between all characters where the part is empty, as Python does.
static Value str_replace(Heap *h, Value self, const Args *a) {
    Text t = value_str(h, self), part = value_str(h, a->values[0]),
         other = value_str(h, a->values[1]);
    int64_t n = a->values[2].kind <= VALUE_NONE ? -1 : int_of(h, a->values[2]);
    size_t start = h->out.len;
    size_t from = 0;
    for (size_t at; n != 0 && (at = text_find(h, t, part, from)) != SIZE_MAX; n--) {
        size_t skip = part.len ? 0 : text_offset(text_part(t, at, t.len), 1);
        heap_put(h, text_part(t, from, at));
        heap_put(h, other);
        heap_put(h, text_part(t, at, at + skip));
        from = at + part.len + skip;
        if (part.len == 0 && skip == 0) break;
    }
    heap_put(h, text_part(t, from, t.len));
    return heap_take(h, start);
}

static void list_push(Heap *h, Value *v, int *cap, Value item) {
    if (v->list->n == *cap) {
        Value *more = heap_alloc(h, (size_t)(*cap = *cap ? 2 * *cap : 8), sizeof *more);
        if (v->list->n) memcpy(more, v->list->items, (size_t)v->list->n * sizeof *more);
        v->list->items = more;
    }
    v->list->items[v->list->n++] = item;
}

static void reverse_items(List *list) {
    for (int i = 0, k = list->n - 1; i < k; i++, k--) {
        Value v = list->items[i];
        list->items[i] = list->items[k], list->items[k] = v;
    }
}

// Where the first (or last) separator of t begins; SIZE_MAX: there is none.
static size_t find_edge(Heap *h, Text t, Text sep, bool is_last) {
    if (!sep.len) heap_fail(h, "empty separator");
    if (!is_last) return text_find(h, t, sep, 0);
    heap_spend(h, (t.len / 16 + 1) * (sep.len / 16 + 1));
    for (size_t at = t.len; at >= sep.len; at--)
        if (!memcmp(t.data + at - sep.len, sep.data, sep.len)) return at - sep.len;
    return SIZE_MAX;
}

// Words between white space.
static Value split_words(Heap *h, Text t, int64_t most) {
    Value out = value_list(h, VALUE_LIST, 0);
    int cap = 0;
    heap_spend(h, t.len / 4);
    while ((t = text_strip(t, NULL, true, false)).len) {
        Text word = text_part(t, 0, 0);
        for (Text rest = t, c;
             rest.len && most != 0 && text_strip(c = text_next(&rest), NULL, true, false).len;)
            word.len += c.len;
        if (most-- == 0) word = t;
        list_push(h, &out, &cap, value_text(word));
        t = text_part(t, word.len, t.len);
    }
    return out;
}

static Value split(Heap *h, Value self, const Args *a, bool from_right) {
    Value out = value_list(h, VALUE_LIST, 0);
    Text t = self.text;
    int cap = 0;
    int64_t most = int_or(h, a->values[1], -1);
    if (a->values[0].kind <= VALUE_NONE && from_right && most >= 0)
        heap_fail(h, "rsplit with a limit needs a separator");
    if (a->values[0].kind <= VALUE_NONE) return split_words(h, t, most);
    Text sep = text_arg(h, a->values[0]);
    for (size_t at; most-- != 0 && (at = find_edge(h, t, sep, from_right)) != SIZE_MAX;) {
        list_push(h, &out, &cap,
                  value_text(from_right ? text_part(t, at + sep.len, t.len) : text_part(t, 0, at)));
        t = from_right ? text_part(t, 0, at) : text_part(t, at + sep.len, t.len);
    }
    list_push(h, &out, &cap, value_text(t));
    if (from_right) reverse_items(out.list);
    return out;
}

static Value str_split(Heap *h, Value self, const Args *a) { return split(h, self, a, false); }
static Value str_rsplit(Heap *h, Value self, const Args *a) { return split(h, self, a, true); }

static Value str_splitlines(Heap *h, Value self, const Args *a) {
    Value out = value_list(h, VALUE_LIST, 0);
    int cap = 0;
    bool keeps = truth_or(a->values[0], false);
    Text t = self.text;
    heap_spend(h, t.len / 16);
    for (size_t at = 0; at < t.len;) {
        Text rest = text_part(t, at, t.len), c = text_next(&rest);
        uint32_t code = code_of(c);
        at += c.len;
        if (!((code >= 0xa && code <= 0xd) || (code >= 0x1c && code <= 0x1e) || code == 0x85 ||
              code == 0x2028 || code == 0x2029))
            continue;
        size_t end = at + (code == '\r' && rest.len && *rest.data == '\n');
        list_push(h, &out, &cap, value_text(text_part(t, 0, keeps ? end : at - c.len)));
        t = text_part(t, end, t.len);
        at = 0;
    }
    if (t.len) list_push(h, &out, &cap, value_text(t));
    return out;
}

static Value str_partition(Heap *h, Value self, const Args *a) {
    Text t = self.text, sep = text_arg(h, a->values[0]);
    size_t found = find_edge(h, t, sep, false), at = found == SIZE_MAX ? t.len : found;
    size_t after = found == SIZE_MAX ? at : at + sep.len;
    Value out = value_list(h, VALUE_TUPLE, 3);
    out.list->items[0] = value_text(text_part(t, 0, at));
    out.list->items[1] = value_text(text_part(t, at, after));
    out.list->items[2] = value_text(text_part(t, after, t.len));
    return out;
}

// Whether t begins (or ends) with the string, or one of the tuple of strings.
static bool has_edge(Heap *h, Text t, Value edge, bool at_end) {
    if (edge.kind == VALUE_TUPLE) {
        for (int i = 0; i < edge.list->n; i++)
            if (has_edge(h, t, value_text(text_arg(h, edge.list->items[i])), at_end)) return true;
        return false;
    }
    Text e = text_arg(h, edge);
    heap_spend(h, e.len / 64);
    return e.len <= t.len &&
           (!e.len || !memcmp(t.data + (at_end ? t.len - e.len : 0), e.data, e.len));
}

static Value str_startswith(Heap *h, Value self, const Args *a) {
    return value_bool(has_edge(h, self.text, a->values[0], false));
}

static Value str_endswith(Heap *h, Value self, const Args *a) {
    return value_bool(has_edge(h, self.text, a->values[0], true));
}

static Value str_removeprefix(Heap *h, Value self, const Args *a) {
    bool has = has_edge(h, self.text, a->values[0], false);
    return value_text(text_part(self.text, has ? a->values[0].text.len : 0, self.text.len));
}

static Value str_removesuffix(Heap *h, Value self, const Args *a) {
    bool has = has_edge(h, self.text, a->values[0], true);
    return value_text(text_part(self.text, 0, self.text.len - (has ? a->values[0].text.len : 0)));
}

// The character where the part begins, or -1.
static Value str_position(Heap *h, Value self, const Args *a) {
    size_t at = text_find(h, self.text, text_arg(h, a->values[0]), 0);
    return value_int(at == SIZE_MAX ? -1 : (int64_t)text_length(h, text_part(self.text, 0, at)));
}

static Value str_count(Heap *h, Value self, const Args *a) {
    Text part = text_arg(h, a->values[0]);
    int64_t n = 0;
    if (!part.len) return value_int((int64_t)text_length(h, self.text) + 1);
    for (size_t at = 0; (at = text_find(h, self.text, part, at)) != SIZE_MAX; at += part.len) n++;
    return value_int(n);
}

static Value join(Heap *h, Text sep, Value all, const Value *attribute) {
    List *list = value_iterate(h, all);
    size_t start = h->out.len;
    for (int i = 0; i < list->n; i++) {
        if (i) heap_put(h, sep);
        Value v = list->items[i];
        value_put(h, attribute ? library_item(h, v, *attribute) : v, false);
    }
    return heap_take(h, start);
}

static Value str_join(Heap *h, Value self, const Args *a) {
    List *list = value_iterate(h, a->values[0]);
    for (int i = 0; i < list->n; i++) text_arg(h, list->items[i]);
    return join(h, self.text, (Value){.kind = VALUE_LIST, .list = list}, NULL);
}

// Which kinds of characters a string is made of; false for an empty one.
static bool consists_of(Heap *h, Text t, bool letters, bool numbers, bool spaces) {
    bool fits = t.len;
    heap_spend(h, t.len / 16);
    while (fits && t.len) {
        UnicodeClass c = unicode_class(code_of(text_next(&t)));
        fits = (c == UNICODE_LETTER && letters) || (c == UNICODE_NUMBER && numbers) ||
               (c == UNICODE_SPACE && spaces);
    }
    return fits;
}

#define CLASS_FUNCTION(name, letters, numbers, spaces)                                             \
    static Value name(Heap *h, Value self, const Args *a) {                                        \
        (void)a;                                                                                   \
        return value_bool(consists_of(h, self.text, letters, numbers, spaces));                    \
    }
CLASS_FUNCTION(str_isalpha, true, false, false)
CLASS_FUNCTION(str_isdigit, false, true, false)
CLASS_FUNCTION(str_isalnum, true, true, false)
CLASS_FUNCTION(str_isspace, false, false, true)

// The Str of "{}", "{0}" and "{name}" of a format; the text as it is elsewhere.
static Value str_format(Heap *h, Value self, const Args *a) {
    size_t start = h->out.len;
    int next = 0;
    for (Text t = self.text; t.len;) {
        Text c = text_next(&t);
        bool is_open = *c.data == '{', is_double = t.len && *t.data == *c.data;
        if (!is_open && *c.data != '}') {
            heap_put(h, c);
        } else if (is_double) {
            heap_put(h, text_next(&t));
        } else {
            size_t end = text_find(h, t, text_of("}"), 0);
            if (!is_open || end == SIZE_MAX) heap_fail(h, "single '%c' in a format", *c.data);
            Str name = {t.data, end};
            int i = 0;
            if (end && *name.data <= '9' && *name.data >= '0')
                i = atoi(name.data);
            else if (end)
                while (i < a->n && !(a->names[i].data && str_eq(a->names[i], name))) i++;
            else
                i = next++;
            if (i >= a->n || i < 0) heap_fail(h, "format has no argument '%.*s'", SHOWN(name));
            value_put(h, a->values[i], false);
            t = text_part(t, end + 1, t.len);
        }
    }
    return heap_take(h, start);
}

Value library_escape(Heap *h, Value v) {
    static const char from[] = "&<>'\"";
    static const char *const to[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    Text t = value_str(h, v);
    size_t start = h->out.len;
    while (t.len && !v.is_markup) {
        Text c = text_next(&t);
        const char *found = *c.data ? strchr(from, *c.data) : NULL;
        if (found)
            heap_puts(h, to[found - from]);
        else
            heap_put(h, c);
    }
    if (v.is_markup) heap_put(h, t);
    v = heap_take(h, start);
    v.is_markup = true;
    return v;
}

static Value filter_escape(Heap *h, Value self, const Args *a) {
    (void)a;
    return library_escape(h, self);
}

static Value filter_safe(Heap *h, Value self, const Args *a) {
    (void)a;
    Value v = value_text(value_str(h, self));
    v.is_markup = true;
    return v;
}

static Value filter_string(Heap *h, Value self, const Args *a) {
    (void)a;
    return self.kind == VALUE_STRING ? self : value_text(value_str(h, self));
}

// What lines begin with: a string, or so many spaces.
static Text indent_of(Heap *h, Value by) {
    size_t start = h->out.len;
    if (by.kind == VALUE_STRING) return by.text;
    for (int64_t n = int_of(h, by); n > 0; n--) heap_puts(h, " ");
    return heap_take(h, start).text;
}

static Value filter_indent(Heap *h, Value self, const Args *a) {
    Text t = value_str(h, self), by = indent_of(h, or_else(a->values[0], value_int(4)));
    bool first = truth_or(a->values[1], false), blank = truth_or(a->values[2], false);
    size_t start = h->out.len;
    for (bool is_first = true; is_first || t.len; is_first = false) {
        size_t end = text_find(h, t, text_of("\n"), 0), n = end == SIZE_MAX ? t.len : end + 1;
        bool is_blank = n == 0 || *t.data == '\n';
        if (is_first ? first : blank || !is_blank) heap_put(h, by);
        heap_put(h, text_part(t, 0, n));
        t = text_part(t, n, t.len);
    }
    return heap_take(h, start);
}

// Lists

// What two items are compared by: an attribute ("a.b") of them, in one case unless the case counts.
typedef struct {
    Value attribute; // VALUE_ABSENT: the item itself
    bool has_case;
} SortKey;

static Value key_of(Heap *h, Value item, const SortKey *key) {
    if (key->attribute.kind == VALUE_STRING) {
        Text path = key->attribute.text, dot = text_of(".");
        for (size_t at; (at = text_find(h, path, dot, 0)) != SIZE_MAX;
             path = text_part(path, at + 1, path.len))
            item = library_item(h, item, value_text(text_part(path, 0, at)));
        char first = path.len ? *path.data : 0;
        item = library_item(
            h, item, first >= '0' && first <= '9' ? value_int(atoi(path.data)) : value_text(path));
    } else if (key->attribute.kind > VALUE_NONE) {
        item = library_item(h, item, key->attribute);
    }
    return item.kind == VALUE_STRING && !key->has_case ? change_case(h, item.text, CASE_LOWER)
                                                       : item;
}

// A stable order: each item is put where a binary search of those before it says.
static Value sorted(Heap *h, const List *list, const SortKey *key, bool is_reverse) {
    Value out = value_list(h, VALUE_LIST, list->n), keys = value_list(h, VALUE_LIST, list->n);
    for (int i = 0; i < list->n; i++) {
        Value k = key_of(h, list->items[i], key);
        int low = 0, high = i;
        while (low < high) {
            int mid = (low + high) / 2;
            Value other = keys.list->items[mid];
            bool is_before = is_reverse ? value_less(h, other, k) : value_less(h, k, other);
            *(is_before ? &high : &low) = is_before ? mid : mid + 1;
        }
        size_t n_moved = (size_t)(i - low) * sizeof k;
        heap_spend(h, n_moved / 64);
        memmove(keys.list->items + low + 1, keys.list->items + low, n_moved);
        memmove(out.list->items + low + 1, out.list->items + low, n_moved);
        keys.list->items[low] = k;
        out.list->items[low] = list->items[i];
    }
    return out;
}

static Value filter_sort(Heap *h, Value self, const Args *a) {
    SortKey key = {a->values[2], truth_or(a->values[1], false)};
    return sorted(h, value_iterate(h, self), &key, truth_or(a->values[0], false));
}

static Value dict_pairs(Heap *h, Value self, ValueKind kind) {
    if (self.kind == VALUE_UNDEFINED) return value_list(h, kind, 0);
    if (self.kind != VALUE_DICT) heap_fail(h, "expected a mapping, found '%s'", value_kind(self));
    Value out = value_list(h, kind, self.dict->n);
    for (int i = 0; i < out.list->n; i++) {
        Value pair = value_list(h, VALUE_TUPLE, 2);
        pair.list->items[0] = self.dict->pairs[i].key,
        pair.list->items[1] = self.dict->pairs[i].value;
        out.list->items[i] = pair;
    }
    return out;
}

static Value filter_dictsort(Heap *h, Value self, const Args *a) {
    bool by_value =
        a->values[1].kind == VALUE_STRING && str_is(text_str(a->values[1].text), "value");
    SortKey key = {value_int(by_value), truth_or(a->values[0], false)};
    if (self.kind != VALUE_DICT) heap_fail(h, "expected a mapping, found '%s'", value_kind(self));
    return sorted(h, dict_pairs(h, self, VALUE_LIST).list, &key, truth_or(a->values[2], false));
}

static Value filter_unique(Heap *h, Value self, const Args *a) {
    List *list = value_iterate(h, self);
    SortKey key = {a->values[1], truth_or(a->values[0], false)};
    Value out = value_list(h, VALUE_GENERATOR, 0), seen = value_dict(h, VALUE_DICT);
    int cap = 0;
    for (int i = 0; i < list->n; i++) {
        Value k = key_of(h, list->items[i], &key);
        if (value_find(h, seen.dict, k)) continue;
        value_set(h, seen.dict, k, value_none());
        list_push(h, &out, &cap, list->items[i]);
    }
    return out;
}

static Value extreme(Heap *h, Value self, const Args *a, bool is_max) {
    List *list = value_iterate(h, self);
    SortKey key = {a->values[1], truth_or(a->values[0], false)};
    int best = 0;
    if (!list->n) return undefined(str_of("the extreme of nothing"), NULL);
    for (int i = 1; i < list->n; i++) {
        Value k = key_of(h, list->items[i], &key), other = key_of(h, list->items[best], &key);
        if (is_max ? value_less(h, other, k) : value_less(h, k, other)) best = i;
    }
    return list->items[best];
}

static Value filter_max(Heap *h, Value self, const Args *a) { return extreme(h, self, a, true); }
static Value filter_min(Heap *h, Value self, const Args *a) { return extreme(h, self, a, false); }

static Value filter_first(Heap *h, Value self, const Args *a) {
    (void)a;
    List *list = value_iterate(h, self);
    return list->n ? list->items[0] : undefined(str_of("the first item of nothing"), NULL);
}

static Value filter_last(Heap *h, Value self, const Args *a) {
    (void)a;
    if (self.kind == VALUE_GENERATOR) heap_fail(h, "'generator' object is not reversible");
    List *list = value_iterate(h, self);
    return list->n ? list->items[list->n - 1] : undefined(str_of("the last item of nothing"), NULL);
}

static Value filter_length(Heap *h, Value self, const Args *a) {
    (void)a;
    if (self.kind == VALUE_UNDEFINED) return value_int(0);
    if (self.kind == VALUE_STRING) return value_int((int64_t)text_length(h, self.text));
    if (self.kind == VALUE_DICT) return value_int(self.dict->n);
    if (!value_is_list(self) || self.kind == VALUE_GENERATOR)
        heap_fail(h, "object of type '%s' has no len()", value_kind(self));
    return value_int(self.list->n);
}

static Value filter_list(Heap *h, Value self, const Args *a) {
    (void)a;
    return (Value){.kind = VALUE_LIST, .list = value_iterate(h, self)};
}

static Value filter_reverse(Heap *h, Value self, const Args *a) {
    (void)a;
    List *list = value_iterate(h, self);
    Value out = value_list(h, VALUE_GENERATOR, list->n);
    for (int i = 0; i < list->n; i++) out.list->items[i] = list->items[list->n - 1 - i];
    return self.kind == VALUE_STRING ? join(h, text_of(""), out, NULL) : out;
}

static Value filter_join(Heap *h, Value self, const Args *a) {
    Text sep = a->values[0].kind == VALUE_ABSENT ? text_of("") : value_str(h, a->values[0]);
    return join(h, sep, self, a->values[1].kind > VALUE_NONE ? &a->values[1] : NULL);
}

// What is false has no items, for filters that ask so first, as Jinja's do.
static List *items_if_true(Heap *h, Value v) {
    return value_truth(v) ? value_iterate(h, v) : value_list(h, VALUE_LIST, 0).list;
}

// map(attribute="a") or map("filter", arguments...)
static Value filter_map(Heap *h, Value self, const Args *a) {
    List *list = items_if_true(h, self);
    Value out = value_list(h, VALUE_GENERATOR, list->n), fallback = {0};
    SortKey key = {.has_case = true};
    for (int i = 0; i < a->n; i++) {
        if (str_is(a->names[i], "attribute")) key.attribute = a->values[i];
        if (str_is(a->names[i], "default")) fallback = a->values[i];
    }
    if (!a->n) heap_fail(h, "map requires a filter argument");
    for (int i = 0; i < list->n; i++) {
        Value v = list->items[i];
        if (key.attribute.kind == VALUE_ABSENT)
            v = library_filter(h, text_str(text_arg(h, a->values[0])), v,
                               &(Args){a->values + 1, a->names + 1, a->n - 1});
        else if ((v = key_of(h, v, &key)).kind == VALUE_UNDEFINED && fallback.kind != VALUE_ABSENT)
            v = fallback;
        out.list->items[i] = v;
    }
    return out;
}

// The items that pass (or do not pass) a test, themselves or with an attribute.
static Value select_items(Heap *h, Value self, const Args *a, bool by_attribute, bool wanted) {
    List *list = items_if_true(h, self);
    Value out = value_list(h, VALUE_GENERATOR, 0);
    int cap = 0, skip = by_attribute;
    SortKey key = {.has_case = true};
    if (by_attribute && !a->n) heap_fail(h, "selectattr and rejectattr need an attribute");
    if (by_attribute) key.attribute = a->values[0];
    Args rest = {a->values + skip + 1, a->names + skip + 1, a->n - skip - 1};
    for (int i = 0; i < list->n; i++) {
        Value v = key_of(h, list->items[i], &key);
        bool passes = a->n > skip
                          ? library_test(h, text_str(text_arg(h, a->values[skip])), v, &rest)
                          : value_truth(v);
        if (passes == wanted) list_push(h, &out, &cap, list->items[i]);
    }
    return out;
}

static Value filter_select(Heap *h, Value v, const Args *a) {
    return select_items(h, v, a, false, true);
}
static Value filter_reject(Heap *h, Value v, const Args *a) {
    return select_items(h, v, a, false, false);
}
static Value filter_selectattr(Heap *h, Value v, const Args *a) {
    return select_items(h, v, a, true, true);
}
static Value filter_rejectattr(Heap *h, Value v, const Args *a) {
    return select_items(h, v, a, true, false);
}

// Others

static Value filter_default(Heap *h, Value self, const Args *a) {
    (void)h;
    bool is_missing =
        self.kind == VALUE_UNDEFINED || (truth_or(a->values[1], false) && !value_truth(self));
    return is_missing ? or_else(a->values[0], value_text(text_of(""))) : self;
}

static Value filter_items(Heap *h, Value self, const Args *a) {
    (void)a;
    return dict_pairs(h, self, VALUE_GENERATOR);
}

// A string without white space around it and without a plus sign, as C wants numbers.
static const char *number_of(Text t, char copy[64]) {
    snprintf(copy, 64, "%.*s", SHOWN(text_str(text_strip(t, NULL, true, true))));
    return copy + (*copy == '+');
}

// The number that a value is, or says; or false.
static bool parse_number(Heap *h, Value v, double *x) {
    char copy[64];
    if (value_is_number(v)) return *x = value_number(h, v), true;
    return v.kind == VALUE_STRING && parse_f64(number_of(v.text, copy), x);
}

static Value filter_int(Heap *h, Value self, const Args *a) {
    char copy[64];
    double x;
    int64_t whole;
    if (self.kind == VALUE_INT || self.kind == VALUE_BIG_INT) return self;
    if (self.kind == VALUE_STRING && parse_i64(number_of(self.text, copy), &whole))
        return value_int(whole);
    if (!parse_number(h, self, &x) || !(fabs(x) < 9e18)) return or_else(a->values[0], value_int(0));
    return value_int((int64_t)x);
}

static Value filter_float(Heap *h, Value self, const Args *a) {
    double x;
    return parse_number(h, self, &x) ? value_float(x) : or_else(a->values[0], value_float(0));
}

static Value filter_tojson(Heap *h, Value self, const Args *a) {
    JsonStyle style = {.comma = text_of(", "), .colon = text_of(": ")};
    style.is_ascii = truth_or(a->values[1], false);
    style.is_sorted = truth_or(a->values[3], false);
    style.is_indented = a->values[0].kind > VALUE_NONE;
    if (style.is_indented) style.indent = indent_of(h, a->values[0]), style.comma = text_of(",");
    if (a->values[2].kind > VALUE_NONE) {
        List *two = value_iterate(h, a->values[2]);
        if (two->n != 2) heap_fail(h, "separators: expected 2, found %d", two->n);
        style.comma = text_arg(h, two->items[0]), style.colon = text_arg(h, two->items[1]);
    }
    size_t start = h->out.len;
    value_put_json(h, self, &style, 0);
    return heap_take(h, start);
}

// clang-format off
static const Builtin filters[] = {
    {"capitalize", "", str_capitalize}, {"count", "", filter_length},
    {"d", "?default_value ?boolean", filter_default}, {"default", "?default_value ?boolean", filter_default},
    {"dictsort", "?case_sensitive ?by ?reverse", filter_dictsort}, {"e", "", filter_escape},
    {"escape", "", filter_escape}, {"first", "", filter_first}, {"float", "?default", filter_float},
    {"indent", "?width ?first ?blank", filter_indent}, {"int", "?default", filter_int}, {"items", "", filter_items},
    {"join", "?d ?attribute", filter_join}, {"last", "", filter_last}, {"length", "", filter_length},
    {"list", "", filter_list}, {"lower", "", str_lower}, {"map", NULL, filter_map},
    {"max", "?case_sensitive ?attribute", filter_max}, {"min", "?case_sensitive ?attribute", filter_min},
    {"reject", NULL, filter_reject}, {"rejectattr", NULL, filter_rejectattr},
    {"replace", "old new ?count", str_replace}, {"reverse", "", filter_reverse}, {"safe", "", filter_safe},
    {"select", NULL, filter_select}, {"selectattr", NULL, filter_selectattr},
    {"sort", "?reverse ?case_sensitive ?attribute", filter_sort}, {"string", "", filter_string},
    {"title", "", filter_title}, {"tojson", "?indent ?ensure_ascii ?separators ?sort_keys", filter_tojson},
    {"trim", "?chars", str_strip}, {"unique", "?case_sensitive ?attribute", filter_unique}, {"upper", "", str_upper},
    {0}};
// clang-format on

Value library_filter(Heap *h, Str name, Value v, const Args *a) {
    const Builtin *b = find(filters, name);
    if (!b) heap_fail(h, "no filter named '%.*s'", SHOWN(name));
    return run(h, b, v, a);
}

// Tests

enum {
    TEST_EQUAL,
    TEST_UNEQUAL,
    TEST_LESS,
    TEST_GREATER,
    TEST_LESS_EQUAL,
    TEST_GREATER_EQUAL,
    TEST_IN,
    TEST_EVEN,
    TEST_ODD,
    TEST_DIVISIBLE,
    TEST_SAME,
    TEST_KINDS
};

#define OF(kind) (1u << (kind))
// clang-format off
static const struct {
    const char *name;
    int rule;
    uint32_t kinds; // of TEST_KINDS: bits of those that pass
} tests[] = {
    {"defined", TEST_KINDS, ~(OF(VALUE_UNDEFINED) | OF(VALUE_ABSENT))}, {"undefined", TEST_KINDS, OF(VALUE_UNDEFINED)}, {"none", TEST_KINDS, OF(VALUE_NONE)},
    {"boolean", TEST_KINDS, OF(VALUE_BOOL)}, {"integer", TEST_KINDS, OF(VALUE_INT) | OF(VALUE_BIG_INT)}, {"float", TEST_KINDS, OF(VALUE_FLOAT)},
    {"number", TEST_KINDS, OF(VALUE_BOOL) | OF(VALUE_INT) | OF(VALUE_FLOAT) | OF(VALUE_BIG_INT)}, {"string", TEST_KINDS, OF(VALUE_STRING)},
    {"mapping", TEST_KINDS, OF(VALUE_DICT)},
    {"sequence", TEST_KINDS, OF(VALUE_UNDEFINED) | OF(VALUE_STRING) | OF(VALUE_LIST) | OF(VALUE_TUPLE) | OF(VALUE_RANGE) | OF(VALUE_DICT)},
    {"iterable", TEST_KINDS, OF(VALUE_UNDEFINED) | OF(VALUE_STRING) | OF(VALUE_LIST) | OF(VALUE_TUPLE) | OF(VALUE_RANGE) | OF(VALUE_DICT) | OF(VALUE_VIEW) | OF(VALUE_GENERATOR) | OF(VALUE_LOOP)},
    {"callable", TEST_KINDS, OF(VALUE_FUNCTION) | OF(VALUE_MACRO) | OF(VALUE_UNDEFINED)}, {"true", TEST_SAME, 1}, {"false", TEST_SAME, 0},
    {"eq", TEST_EQUAL, 0}, {"==", TEST_EQUAL, 0}, {"equalto", TEST_EQUAL, 0}, {"ne", TEST_UNEQUAL, 0}, {"!=", TEST_UNEQUAL, 0},
    {"lt", TEST_LESS, 0}, {"<", TEST_LESS, 0}, {"lessthan", TEST_LESS, 0}, {"gt", TEST_GREATER, 0}, {">", TEST_GREATER, 0},
    {"greaterthan", TEST_GREATER, 0}, {"le", TEST_LESS_EQUAL, 0}, {"<=", TEST_LESS_EQUAL, 0}, {"ge", TEST_GREATER_EQUAL, 0},
    {">=", TEST_GREATER_EQUAL, 0}, {"in", TEST_IN, 0}, {"even", TEST_EVEN, 0}, {"odd", TEST_ODD, 0}, {"divisibleby", TEST_DIVISIBLE, 0},
    {"sameas", TEST_EQUAL, 0},
};
// clang-format on

bool library_test(Heap *h, Str name, Value v, const Args *a) {
    size_t i = 0;
    while (i < sizeof tests / sizeof *tests && !str_is(name, tests[i].name)) i++;
    if (i == sizeof tests / sizeof *tests) heap_fail(h, "no test named '%.*s'", SHOWN(name));
    int rule = tests[i].rule, n_args = rule <= TEST_IN || rule == TEST_DIVISIBLE;
    if (a->n != n_args)
        heap_fail(h, "test '%s' takes %d arguments, found %d", tests[i].name, n_args, a->n);
    Value other = n_args ? a->values[0] : value_none();
    switch (rule) {
    case TEST_EQUAL: return value_equal(h, v, other);
    case TEST_UNEQUAL: return !value_equal(h, v, other);
    case TEST_LESS: return value_less(h, v, other);
    case TEST_GREATER: return value_less(h, other, v);
    case TEST_LESS_EQUAL: return !value_less(h, other, v);
    case TEST_GREATER_EQUAL: return !value_less(h, v, other);
    case TEST_IN: return value_contains(h, other, v);
    case TEST_EVEN: return int_of(h, v) % 2 == 0;
    case TEST_ODD: return int_of(h, v) % 2 != 0;
    case TEST_DIVISIBLE:
        if (int_of(h, other) == 0) heap_fail(h, "integer modulo by zero");
        return int_of(h, other) == -1 || int_of(h, v) % int_of(h, other) == 0;
    case TEST_SAME: return v.kind == VALUE_BOOL && v.boolean == tests[i].kinds;
    default: return tests[i].kinds >> v.kind & 1;
    }
}

// Methods and attributes

static Value dict_get(Heap *h, Value self, const Args *a) {
    Value *found = value_find(h, self.dict, a->values[0]);
    return found ? *found : or_else(a->values[1], value_none());
}

static Value dict_items(Heap *h, Value self, const Args *a) {
    (void)a;
    return dict_pairs(h, self, VALUE_VIEW);
}

// One of the two of every pair.
static Value dict_column(Heap *h, Value self, int column) {
    Value pairs = dict_pairs(h, self, VALUE_VIEW);
    for (int i = 0; i < pairs.list->n; i++)
        pairs.list->items[i] = pairs.list->items[i].list->items[column];
    return pairs;
}

static Value dict_keys(Heap *h, Value self, const Args *a) {
    return (void)a, dict_column(h, self, 0);
}
static Value dict_values(Heap *h, Value self, const Args *a) {
    return (void)a, dict_column(h, self, 1);
}
static Value copy(Heap *h, Value self, const Args *a) {
    return (void)h, (void)a, self;
} // nothing changes it

static Value list_index(Heap *h, Value self, const Args *a) {
    for (int i = 0; i < self.list->n; i++)
        if (value_equal(h, self.list->items[i], a->values[0])) return value_int(i);
    heap_fail(h, "the value is not in the list");
}

static Value list_count(Heap *h, Value self, const Args *a) {
    int64_t n = 0;
    for (int i = 0; i < self.list->n; i++) n += value_equal(h, self.list->items[i], a->values[0]);
    return value_int(n);
}

// What would change a value is refused, as by transformers' sandbox.
static Value refuse_change(Heap *h, Value self, const Args *a) {
    (void)a;
    heap_fail(h, "a template may not change a %s", value_kind(self));
}

// clang-format off
static const Builtin str_methods[] = {
    {"capitalize", "", str_capitalize}, {"count", "sub", str_count}, {"endswith", "suffix", str_endswith},
    {"find", "sub", str_position}, {"format", NULL, str_format}, {"isalnum", "", str_isalnum},
    {"isalpha", "", str_isalpha}, {"isdigit", "", str_isdigit}, {"isnumeric", "", str_isdigit},
    {"isspace", "", str_isspace}, {"join", "iterable", str_join}, {"lower", "", str_lower},
    {"lstrip", "?chars", str_lstrip}, {"partition", "sep", str_partition},
    {"removeprefix", "prefix", str_removeprefix}, {"removesuffix", "suffix", str_removesuffix},
    {"replace", "old new ?count", str_replace}, {"rsplit", "?sep ?maxsplit", str_rsplit},
    {"rstrip", "?chars", str_rstrip}, {"split", "?sep ?maxsplit", str_split},
    {"splitlines", "?keepends", str_splitlines}, {"startswith", "prefix", str_startswith},
    {"strip", "?chars", str_strip}, {"title", "", str_title}, {"upper", "", str_upper},
    {0}};
static const Builtin dict_methods[] = {
    {"copy", "", copy}, {"get", "key ?default", dict_get}, {"items", "", dict_items}, {"keys", "", dict_keys},
    {"values", "", dict_values}, {"clear", NULL, refuse_change}, {"pop", NULL, refuse_change},
    {"popitem", NULL, refuse_change}, {"setdefault", NULL, refuse_change}, {"update", NULL, refuse_change},
    {0}};
static const Builtin list_methods[] = {
    {"copy", "", copy}, {"count", "value", list_count}, {"index", "value", list_index},
    {"append", NULL, refuse_change}, {"clear", NULL, refuse_change}, {"extend", NULL, refuse_change},
    {"insert", NULL, refuse_change}, {"pop", NULL, refuse_change}, {"remove", NULL, refuse_change},
    {"reverse", NULL, refuse_change}, {"sort", NULL, refuse_change},
    {0}};
// clang-format on

static Value function(Heap *h, const Builtin *b, Value self) {
    Value v = {.kind = VALUE_FUNCTION, .builtin = b, .self = heap_alloc(h, 1, sizeof self)};
    *v.self = self;
    return v;
}

static _Noreturn void fail_undefined(Heap *h, Value v) {
    if (v.owner) heap_fail(h, "'%s object' has no attribute '%.*s'", v.owner, SHOWN(v.name));
    heap_fail(h, "'%.*s' is undefined", SHOWN(v.name));
}

static Value key_text(Str name) { return value_text((Text){name.data, NULL, name.len}); }

Value library_attribute(Heap *h, Value v, Str name) {
    static const Builtin *const methods[] = {[VALUE_STRING] = str_methods,
                                             [VALUE_LIST] = list_methods,
                                             [VALUE_TUPLE] = list_methods,
                                             [VALUE_DICT] = dict_methods,
                                             [VALUE_LOOP] = NULL};
    if (v.kind == VALUE_UNDEFINED) fail_undefined(h, v);
    if (name.len > 1 && name.data[0] == '_' && name.data[1] == '_')
        heap_fail(h, "access to attribute '%.*s' is unsafe", SHOWN(name));
    const Builtin *b = methods[v.kind] ? find(methods[v.kind], name) : NULL;
    if (b) return function(h, b, v);
    Value *found = v.kind == VALUE_DICT || v.kind == VALUE_NAMESPACE
                       ? value_find(h, v.dict, key_text(name))
                       : NULL;
    if (found) return *found;
    return undefined(name, value_kind(v));
}

Value library_item(Heap *h, Value v, Value key) {
    bool is_index = key.kind == VALUE_INT || key.kind == VALUE_BOOL;
    int64_t i = is_index ? int_of(h, key) : 0;
    if (v.kind == VALUE_UNDEFINED) fail_undefined(h, v);
    Value *found = v.kind == VALUE_DICT ? value_find(h, v.dict, key) : NULL;
    if (found) return *found;
    if (key.kind == VALUE_STRING) return library_attribute(h, v, text_str(key.text));
    if (v.kind == VALUE_STRING && is_index) {
        heap_spend(h, 1 + v.text.len / 64);
        size_t at = text_offset(v.text, i);
        bool is_outside =
            at == v.text.len || (i < 0 && at == 0 && -i > (int64_t)text_length(h, v.text));
        Text rest = text_part(v.text, at, v.text.len);
        return is_outside ? undefined(str_of("a character"), "str") : value_text(text_next(&rest));
    }
    if (value_is_list(v) && v.kind < VALUE_VIEW && is_index) {
        if (i < 0) i += v.list->n;
        if (i >= 0 && i < v.list->n) return v.list->items[i];
    }
    return undefined(text_str(value_str(h, key.kind == VALUE_UNDEFINED ? value_none() : key)),
                     value_kind(v));
}

Value library_slice(Heap *h, Value v, Value from, Value to, Value step) {
    int64_t by = step.kind == VALUE_NONE ? 1 : int_of(h, step);
    if (by == 0) heap_fail(h, "slice step cannot be zero");
    if (v.kind == VALUE_UNDEFINED) fail_undefined(h, v);
    if (v.kind == VALUE_STRING && by == 1) {
        heap_spend(h, 1 + v.text.len / 64);
        size_t start = from.kind == VALUE_NONE ? 0 : text_offset(v.text, int_of(h, from));
        size_t end = to.kind == VALUE_NONE ? v.text.len : text_offset(v.text, int_of(h, to));
        return value_text(text_part(v.text, start, end > start ? end : start));
    }
    bool is_text = v.kind == VALUE_STRING;
    if (!is_text && (!value_is_list(v) || v.kind >= VALUE_VIEW))
        return undefined(str_of("a slice"), value_kind(v));
    List *list = is_text ? value_iterate(h, v) : v.list;
    int64_t n = list->n, low = by < 0 ? -1 : 0, high = by < 0 ? n - 1 : n;
    int64_t start = from.kind == VALUE_NONE ? (by < 0 ? high : low) : int_of(h, from);
    int64_t end = to.kind == VALUE_NONE ? (by < 0 ? low : high) : int_of(h, to);
    if (from.kind != VALUE_NONE && start < 0) start += n;
    if (to.kind != VALUE_NONE && end < 0) end += n;
    start = start < low ? low : start > high ? high : start;
    end = end < low ? low : end > high ? high : end;
    Value out = {.kind = v.kind == VALUE_TUPLE ? VALUE_TUPLE : VALUE_LIST,
                 .list = heap_alloc(h, 1, sizeof(List))};
    if (by == 1) { // shares the items
        *out.list = (List){list->items + start, end > start ? (int)(end - start) : 0};
        return out;
    }
    int64_t count = by > 0 ? (end - start + by - 1) / by : (start - end - by - 1) / -by;
    *out.list = *value_list(h, VALUE_LIST, count > 0 ? (int)count : 0).list;
    for (int i = 0; i < out.list->n; i++) out.list->items[i] = list->items[start + i * by];
    return is_text ? join(h, text_of(""), out, NULL) : out;
}

// Functions

static Value call_range(Heap *h, Value self, const Args *a) {
    (void)self;
    bool has_two = a->values[1].kind != VALUE_ABSENT;
    int64_t from = has_two ? int_of(h, a->values[0]) : 0, to = int_of(h, a->values[has_two]);
    int64_t by = int_or(h, a->values[2], 1), n = 0, width;
    if (by == 0) heap_fail(h, "range() arg 3 must not be zero");
    if (by == INT64_MIN || __builtin_sub_overflow(to, from, &width))
        heap_fail(h, "a number is too large");
    if (width && (width > 0) == (by > 0)) n = (width - (by > 0 ? 1 : -1)) / by + 1;
    if (n > MAX_RANGE)
        heap_fail(h, "range of %lld numbers: expected at most %d", (long long)n, MAX_RANGE);
    Value out = value_list(h, VALUE_RANGE, (int)n);
    heap_spend(h, (size_t)n);
    for (int64_t i = 0; i < n; i++) out.list->items[i] = value_int(from + i * by);
    return out;
}

// A dictionary of the named arguments, after the pairs of a mapping.
static Value collect(Heap *h, const Args *a, ValueKind kind) {
    Value out = value_dict(h, kind);
    for (int i = 0; i < a->n; i++) {
        Value v = a->values[i];
        if (a->names[i].data)
            value_set(h, out.dict, key_text(a->names[i]), v);
        else if (i || v.kind != VALUE_DICT)
            heap_fail(h, "expected a mapping and named values, found '%s'", value_kind(v));
        else
            for (int k = 0; k < v.dict->n; k++)
                value_set(h, out.dict, v.dict->pairs[k].key, v.dict->pairs[k].value);
    }
    return out;
}

static Value call_dict(Heap *h, Value self, const Args *a) {
    return (void)self, collect(h, a, VALUE_DICT);
}
static Value call_namespace(Heap *h, Value self, const Args *a) {
    return (void)self, collect(h, a, VALUE_NAMESPACE);
}

static Value call_raise(Heap *h, Value self, const Args *a) {
    (void)self;
    Text t = value_str(h, a->values[0]);
    heap_fail(h, "%.*s", t.len < 400 ? (int)t.len : 400, t.data);
}

static Value call_strftime(Heap *h, Value self, const Args *a) {
    (void)self;
    char format[64], text[256];
    snprintf(format, sizeof format, "%.*s", SHOWN(text_str(text_arg(h, a->values[0]))));
    size_t n = strftime(text, sizeof text, format, h->now);
    size_t start = h->out.len;
    heap_put(h, (Text){text, NULL, n});
    return heap_take(h, start);
}

// clang-format off
static const Builtin functions[] = {
    {"dict", NULL, call_dict}, {"namespace", NULL, call_namespace}, {"raise_exception", "message", call_raise},
    {"range", "start ?stop ?step", call_range}, {"strftime_now", "format", call_strftime},
    {0}};
// clang-format on

Value library_function(Str name) {
    const Builtin *b = find(functions, name);
    return b ? (Value){.kind = VALUE_FUNCTION, .builtin = b} : undefined(name, NULL);
}

Value library_call(Heap *h, Value f, const Args *a) {
    if (f.kind == VALUE_UNDEFINED) fail_undefined(h, f);
    if (f.kind != VALUE_FUNCTION) heap_fail(h, "'%s' object is not callable", value_kind(f));
    return run(h, f.builtin, f.self ? *f.self : value_none(), a);
}
