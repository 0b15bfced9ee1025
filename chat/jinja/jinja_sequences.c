// Functions of lists and dictionaries: attributes of items, sequences, dictionaries.
#include "chat/jinja/jinja_sequences.h"
#include "chat/jinja/jinja_operators.h"
#include "chat/jinja/jinja_strings.h"

#include <stdio.h>

#pragma GCC diagnostic ignored "-Wunused-parameter" // some builtins need no heap

enum { MAX_RANGE = 100000 }; // as in Jinja's sandbox

// Attributes of items

// Converts a part of a path to a key. Digits become an integer.
static Value path_key(Heap *h, Text part) {
    int64_t index;
    char digits[20];
    bool is_number = part.len && part.len < sizeof digits;
    for (size_t i = 0; i < part.len; i++) is_number &= part.data[i] >= '0' && part.data[i] <= '9';
    if (!is_number) return value_text(part);

    snprintf(digits, sizeof digits, "%.*s", SHOWN(text_str(part)));
    return parse_i64(digits, &index) ? value_int(index) : value_text(part);
}

// Returns an attribute of an item, or the item itself if `attribute` is absent or none. "a.0" is a
// path: item 0 of attribute a. If a part of the path is missing and `fallback` is neither absent
// nor none, `fallback` replaces that part.
static Value item_attribute(Heap *h, Value item, Value attribute, Value fallback) {
    if (attribute.kind <= VALUE_NONE) return item;
    if (attribute.kind != VALUE_STRING) attribute = value_text(value_str(h, attribute));

    Text path = attribute.text;
    for (bool is_last = false; !is_last;) {
        size_t at = text_find(h, path, text_of("."), 0);
        is_last = at == SIZE_MAX;
        Text part = text_part(path, 0, is_last ? path.len : at);
        item = library_item(h, item, path_key(h, part));
        if (item.kind == VALUE_UNDEFINED && fallback.kind > VALUE_NONE) item = fallback;
        if (!is_last) path = text_part(path, at + 1, path.len);
    }
    return item;
}

// A value to compare: strings are in lower case unless has_case.
static Value comparable(Heap *h, Value v, bool has_case) {
    heap_spend(h, 1);
    if (v.kind != VALUE_STRING || has_case) return v;
    return str_case(h, &(Args){.self = v, .variant = CASE_LOWER});
}

// What the items of a sequence are compared by.
typedef struct {
    Value attribute, fallback; // see item_attribute()
    bool has_case;
} SortKey;

static Value sort_key(Heap *h, Value item, const SortKey *key) {
    return comparable(h, item_attribute(h, item, key->attribute, key->fallback), key->has_case);
}

// The key of several attributes, separated by commas, is a list.
static Value sort_keys(Heap *h, Value item, const SortKey *key) {
    Text rest = key->attribute.kind == VALUE_STRING ? key->attribute.text : text_of("");
    size_t at = text_find(h, rest, text_of(","), 0);
    if (at == SIZE_MAX) return sort_key(h, item, key);

    Value keys = value_list(h, VALUE_LIST, 0);
    SortKey one = *key;
    for (; at != SIZE_MAX; at = text_find(h, rest, text_of(","), 0)) {
        one.attribute = value_text(text_part(rest, 0, at));
        list_push(h, keys.list, sort_key(h, item, &one));
        rest = text_part(rest, at + 1, rest.len);
    }
    one.attribute = value_text(rest);
    list_push(h, keys.list, sort_key(h, item, &one));
    return keys;
}

static Value sort_items(Heap *h, const List *list, const SortKey *key, bool is_reverse) {
    Value out = value_list(h, VALUE_LIST, list->n);
    List *keys = value_list(h, VALUE_LIST, list->n).list;
    for (int i = 0; i < list->n; i++) keys->items[i] = sort_keys(h, list->items[i], key);
    int *order = value_order(h, keys, is_reverse);
    for (int i = 0; i < list->n; i++) out.list->items[i] = list->items[order[i]];
    return out;
}

// One item of a sequence

Value filter_end(Heap *h, const Args *a) {
    if (a->variant == END_LAST && a->self.kind == VALUE_GENERATOR)
        heap_fail(h, "'generator' object is not reversible");
    List *list = value_iterate(h, a->self);
    if (list->n) return list->items[a->variant == END_LAST ? list->n - 1 : 0];
    return value_undefined(str_of("an item of an empty sequence"), NULL);
}

Value filter_extreme(Heap *h, const Args *a) {
    const List *list = value_iterate(h, a->self);
    SortKey key = {.attribute = a->values[1], .has_case = value_truth(a->values[0])};
    Comparison better = a->variant == EXTREME_MAX ? CMP_GT : CMP_LT;
    if (!list->n) return value_undefined(str_of("an item of an empty sequence"), NULL);

    int best = 0;
    Value best_key = sort_key(h, list->items[0], &key);
    for (int i = 1; i < list->n; i++) {
        Value k = sort_key(h, list->items[i], &key);
        if (!value_compare(h, better, k, best_key)) continue;
        best = i;
        best_key = k;
    }
    return list->items[best];
}

Value filter_sum(Heap *h, const Args *a) {
    const List *list = value_iterate(h, a->self);
    Value sum = argument_or(a->values[1], value_int(0));
    for (int i = 0; i < list->n; i++) {
        Value v = item_attribute(h, list->items[i], a->values[0], value_none());
        heap_spend(h, 1);
        sum = operator_binary(h, '+', sum, v);
    }
    return sum;
}

Value list_search(Heap *h, const Args *a) {
    const List *list = a->self.list;
    int n_found = 0;
    for (int i = 0; i < list->n; i++) {
        if (!value_equal(h, list->items[i], a->values[0])) continue;
        if (a->variant == LIST_INDEX) return value_int(i);
        n_found++;
    }
    if (a->variant == LIST_INDEX) heap_fail(h, "index: the value is not in the list");
    return value_int(n_found);
}

// Sequences

Value filter_list(Heap *h, const Args *a) {
    return (Value){.kind = VALUE_LIST, .list = value_iterate(h, a->self)};
}

Value filter_length(Heap *h, const Args *a) {
    if (a->self.kind == VALUE_UNDEFINED) return value_int(0);
    if (a->self.kind == VALUE_STRING) return value_int((int64_t)text_length(h, a->self.text));
    if (a->self.kind == VALUE_DICT) return value_int(a->self.dict->n);
    if (!value_is_list(a->self) || a->self.kind == VALUE_GENERATOR)
        heap_fail(h, "object of type '%s' has no len()", value_type_name(a->self));
    return value_int(a->self.list->n);
}

// Joins the items or, with `attribute`, their attributes.
Value filter_join(Heap *h, const Args *a) {
    const List *list = value_iterate(h, a->self);
    Text sep = a->values[0].kind == VALUE_ABSENT ? text_of("") : value_str(h, a->values[0]);
    size_t start = h->out.len;
    for (int i = 0; i < list->n; i++) {
        if (i) heap_put(h, sep);
        value_put(h, item_attribute(h, list->items[i], a->values[1], value_none()), NULL, 0);
    }
    return heap_pop_string(h, start);
}

Value filter_reverse(Heap *h, const Args *a) {
    List *list = list_reversed(h, value_iterate(h, a->self));
    if (a->self.kind != VALUE_STRING) return (Value){.kind = VALUE_GENERATOR, .list = list};

    size_t start = h->out.len;
    for (int i = 0; i < list->n; i++) heap_put(h, list->items[i].text);
    return heap_pop_string(h, start);
}

Value filter_sort(Heap *h, const Args *a) {
    SortKey key = {.attribute = a->values[2], .has_case = value_truth(a->values[1])};
    return sort_items(h, value_iterate(h, a->self), &key, value_truth(a->values[0]));
}

Value filter_unique(Heap *h, const Args *a) {
    const List *list = value_iterate(h, a->self);
    SortKey key = {.attribute = a->values[1], .has_case = value_truth(a->values[0])};
    Value out = value_list(h, VALUE_GENERATOR, 0);
    Dict *seen = value_dict(h, VALUE_DICT).dict;
    for (int i = 0; i < list->n; i++) {
        Value k = sort_key(h, list->items[i], &key);
        if (dict_find(h, seen, k)) continue;
        dict_set(h, seen, k, value_none());
        list_push(h, out.list, list->items[i]);
    }
    return out;
}

// Sorts by an attribute and returns a tuple (attribute, items) for each of its values.
Value filter_groupby(Heap *h, const Args *a) {
    SortKey key = {a->values[0], a->values[1], value_truth(a->values[2])};
    const List *sorted = sort_items(h, value_iterate(h, a->self), &key, false).list;
    Value out = value_list(h, VALUE_LIST, 0);
    Value last = {0}; // key of the last group

    for (int i = 0; i < sorted->n; i++) {
        Value item = sorted->items[i];
        Value k = sort_key(h, item, &key);
        if (!i || !value_equal(h, k, last)) {
            Value group = value_list(h, VALUE_TUPLE, 2);
            group.is_group = true;
            group.list->items[0] = item_attribute(h, item, key.attribute, key.fallback);
            group.list->items[1] = value_list(h, VALUE_LIST, 0);
            list_push(h, out.list, group);
        }
        list_push(h, out.list->items[out.list->n - 1].list->items[1].list, item);
        last = k;
    }
    return out;
}

// The items for map, select and reject. As in Jinja, a false value counts as an empty sequence.
static List *iterate_if_true(Heap *h, Value v) {
    return value_truth(v) ? value_iterate(h, v) : value_list(h, VALUE_LIST, 0).list;
}

// map(attribute="a", default=x), or map("filter", arguments of the filter ...).
Value filter_map(Heap *h, const Args *a) {
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

// The items that pass a test or, with SELECT_REJECT, fail it. With SELECT_BY_ATTRIBUTE, the test
// applies to an attribute of the item.
Value filter_select(Heap *h, const Args *a) {
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
        Value v = item_attribute(h, list->items[i], attribute, value_none());
        heap_spend(h, 1);
        rest.self = v;
        if (a->n > skip)
            v = library_apply(h, true, text_str(value_string(h, a->values[skip])), &rest);
        if (value_truth(v) != !!(a->variant & SELECT_REJECT))
            list_push(h, out.list, list->items[i]);
    }

    return out;
}

// Lists of `linecount` items. The last one is filled with `fill_with`, unless that is none.
Value filter_batch(Heap *h, const Args *a) {
    const List *list = value_iterate(h, a->self);
    int64_t size = value_integer(h, a->values[0]);
    Value out = value_list(h, VALUE_GENERATOR, 0);
    if (size < 1) heap_fail(h, "batch: expected at least 1 item, found %lld", (long long)size);

    List *batch = NULL;
    for (int i = 0; i < list->n; i++) {
        if (i % size == 0) {
            list_push(h, out.list, value_list(h, VALUE_LIST, 0));
            batch = out.list->items[out.list->n - 1].list;
        }
        list_push(h, batch, list->items[i]);
    }

    bool is_filled = batch && a->values[1].kind > VALUE_NONE;
    for (; is_filled && batch->n < size; heap_spend(h, 1)) list_push(h, batch, a->values[1]);
    return out;
}

// `slices` lists of almost equal length. Those that are shorter by one get the item `fill_with`,
// unless that is none.
Value filter_slice(Heap *h, const Args *a) {
    const List *list = value_iterate(h, a->self);
    int64_t n = value_integer(h, a->values[0]);
    Value out = value_list(h, VALUE_GENERATOR, 0);
    if (n < 1) heap_fail(h, "slice: expected at least 1 slice, found %lld", (long long)n);

    int at = 0;
    for (int64_t i = 0; i < n; i++) {
        bool has_extra = i < list->n % n;
        Value slice = value_list(h, VALUE_LIST, 0);
        heap_spend(h, 1);
        for (int64_t k = 0; k < list->n / n + has_extra; k++)
            list_push(h, slice.list, list->items[at++]);
        if (!has_extra && a->values[1].kind > VALUE_NONE) list_push(h, slice.list, a->values[1]);
        list_push(h, out.list, slice);
    }
    return out;
}

Value call_range(Heap *h, const Args *a) {
    bool has_stop = a->values[1].kind != VALUE_ABSENT;
    int64_t from = has_stop ? value_integer(h, a->values[0]) : 0;
    int64_t to = value_integer(h, a->values[has_stop]);
    int64_t step = value_integer(h, argument_or(a->values[2], value_int(1)));
    if (step == 0) heap_fail(h, "range() arg 3 must not be zero");
    Value out = value_list(h, VALUE_RANGE, 0);
    while (step > 0 ? from < to : from > to) {
        heap_spend(h, 1);
        if (out.list->n == MAX_RANGE) heap_fail(h, "range: expected at most %d numbers", MAX_RANGE);
        list_push(h, out.list, value_int(from));
        if (__builtin_add_overflow(from, step, &from)) break;
    }
    return out;
}

// Dictionaries

// keys(), values() and items(); the filter items.
Value dict_view(Heap *h, const Args *a) {
    ValueKind kind = a->variant == DICT_ITEMS_FILTER ? VALUE_GENERATOR : VALUE_VIEW;
    if (a->self.kind == VALUE_UNDEFINED && kind == VALUE_GENERATOR) return value_list(h, kind, 0);

    value_mapping(h, a->self);
    Value out = {.kind = kind, .list = dict_pairs(h, a->self)};
    if (a->variant >= DICT_ITEMS) return out;
    for (int i = 0; i < out.list->n; i++)
        out.list->items[i] = out.list->items[i].list->items[a->variant]; // key or value
    return out;
}

Value dict_get(Heap *h, const Args *a) {
    const Value *found = dict_find(h, value_mapping(h, a->self), a->values[0]);
    return found ? *found : argument_or(a->values[1], value_none());
}

Value filter_dictsort(Heap *h, const Args *a) {
    Str by = str_of("key");
    if (a->values[1].kind != VALUE_ABSENT) by = text_str(value_string(h, a->values[1]));
    bool by_value = str_is(by, "value");
    if (!by_value && !str_is(by, "key"))
        heap_fail(h, "dictsort: expected by='key' or 'value', found '%.*s'", SHOWN(by));

    value_mapping(h, a->self);
    SortKey key = {.attribute = value_int(by_value), .has_case = value_truth(a->values[0])};
    return sort_items(h, dict_pairs(h, a->self), &key, value_truth(a->values[2]));
}

// dict() and namespace(): the pairs of an optional mapping or list, then the named values.
Value call_dict(Heap *h, const Args *a) {
    Value out = value_dict(h, (ValueKind)a->variant);
    for (int i = 0; i < a->n; i++) {
        if (a->names[i].data) {
            dict_set(h, out.dict, value_data(a->names[i]), a->values[i]);
            continue;
        }

        if (i) heap_fail(h, "%.*s takes at most 1 unnamed value", SHOWN(a->name));
        const List *pairs = dict_pairs(h, a->values[i]);
        for (int k = 0; k < pairs->n; k++) {
            const List *pair = value_iterate(h, pairs->items[k]);
            if (pair->n != 2)
                heap_fail(h, "%.*s: expected pairs, found %d values", SHOWN(a->name), pair->n);
            dict_set(h, out.dict, pair->items[0], pair->items[1]);
        }
    }
    return out;
}
