// In order: names, the binding of arguments to parameters, calls, and the access to attributes,
// items and slices.
#include "chat/jinja/jinja_library.h"

// The first word of a list: up to a space or '|'.
static Str list_word(const char *list) { return (Str){list, strcspn(list, " |")}; }

// The variant of the builtin with this name. False if it has no such name.
static bool find_variant(const Builtin *b, Str name, int *variant) {
    *variant = b->variant;
    for (const char *at = b->names;; at++) {
        Str word = list_word(at);
        if (str_eq(word, name)) return true;
        at += word.len;
        if (!*at) return false;
        *variant += *at == '|';
    }
}

Value library_find(int owner, Str name) {
    for (const Builtin *b = library_builtins; b->names; b++) {
        int variant;
        if (b->owners & owner && find_variant(b, name, &variant))
            return (Value){.kind = VALUE_FUNCTION, .builtin = b, .variant = variant};
    }
    return value_undefined(name, NULL);
}

Value library_method(Heap *h, int owner, Str name, Value self) {
    Value method = library_find(owner, name);
    if (method.kind != VALUE_FUNCTION) return method;
    method.self = heap_alloc(h, 1, sizeof self);
    *method.self = self;
    return method;
}

// Calls

// The slot of an argument: the one of its name or, without a name, of its position. -1: no
// parameter takes it.
static int find_slot(Heap *h, const Parameters *p, Str name, int position) {
    if (!name.data) return position < p->n_positional ? p->start + position : -1;

    int slot = p->start;
    while (slot < h->n_args && !str_eq(h->arg_names[slot], name)) slot++;
    return slot < h->n_args ? slot : -1;
}

// Takes a named argument without a parameter, or whose parameter has an argument already.
static void bind_named(Heap *h, const Parameters *p, Str name, Value v, bool is_duplicate) {
    if (p->kwargs) is_duplicate = dict_find(h, p->kwargs, value_data(name));
    if (is_duplicate) heap_fail(h, "%.*s: two arguments '%.*s'", SHOWN(p->callee), SHOWN(name));
    if (!p->kwargs) heap_fail(h, "%.*s has no parameter '%.*s'", SHOWN(p->callee), SHOWN(name));
    dict_set(h, p->kwargs, value_data(name), v);
}

void library_bind(Heap *h, const Parameters *p, const Args *a) {
    int position = 0;
    for (int i = 0; i < a->n; i++) {
        int slot = find_slot(h, p, a->names[i], position);
        if (!a->names[i].data) position++;
        bool is_duplicate = slot >= 0 && h->args[slot].kind != VALUE_ABSENT;

        if (slot >= 0 && !is_duplicate)
            h->args[slot] = a->values[i];
        else if (a->names[i].data)
            bind_named(h, p, a->names[i], a->values[i], is_duplicate);
        else if (p->varargs)
            list_push(h, p->varargs, a->values[i]);
        else
            heap_fail(h, "%.*s takes at most %d arguments, found %d", SHOWN(p->callee),
                      p->n_positional, a->n);
    }
}

// The name of a variant, for messages.
static Str variant_name(const Builtin *b, int variant) {
    const char *names = b->names;
    for (int i = b->variant; i < variant; i++) names = strchr(names, '|') + 1;
    return list_word(names);
}

// Binds the arguments to the parameters of f and runs it.
static Value run_builtin(Heap *h, Value f, const Args *a) {
    Args bound = *a;
    bound.name = variant_name(f.builtin, f.variant);
    bound.variant = f.variant;
    if (f.self) bound.self = *f.self;
    const char *rest = f.builtin->params;
    if (!rest) return f.builtin->run(h, &bound);

    // Reserve a slot on the argument stack for each parameter.
    Parameters params = {.callee = bound.name, .start = h->n_args};
    int end_required = params.start;
    while (*rest) {
        bool is_optional = *rest == '?';
        Str param = list_word(rest + is_optional);
        heap_push_arg(h, (Value){0}, param);
        if (!is_optional) end_required = h->n_args;
        rest = param.data + param.len + strspn(param.data + param.len, " ");
    }

    params.n_positional = h->n_args - params.start;
    library_bind(h, &params, a);
    for (int i = params.start; i < end_required; i++)
        if (h->args[i].kind == VALUE_ABSENT)
            heap_fail(h, "%.*s needs an argument '%.*s'", SHOWN(bound.name),
                      SHOWN(h->arg_names[i]));

    bound.values = h->args + params.start;
    Value result = f.builtin->run(h, &bound);
    h->n_args = params.start;
    return result;
}

Value library_apply(Heap *h, bool is_test, Str name, const Args *a) {
    Value f = library_find(is_test ? BUILTIN_TEST : BUILTIN_FILTER, name);
    if (f.kind == VALUE_UNDEFINED)
        heap_fail(h, "no %s named '%.*s'", is_test ? "test" : "filter", SHOWN(name));
    return run_builtin(h, f, a);
}

Value library_call(Heap *h, Value f, const Args *a) {
    value_require(h, f);
    if (f.kind != VALUE_FUNCTION) heap_fail(h, "'%s' object is not callable", value_type_name(f));
    return run_builtin(h, f, a);
}

// Attributes, items and slices

Value library_attribute(Heap *h, Value v, Str name) {
    static const int owners[VALUE_LOOP + 1] = {[VALUE_STRING] = BUILTIN_STR,
                                               [VALUE_LIST] = BUILTIN_LIST,
                                               [VALUE_TUPLE] = BUILTIN_TUPLE,
                                               [VALUE_RANGE] = BUILTIN_TUPLE,
                                               [VALUE_DICT] = BUILTIN_DICT};

    value_require(h, v);
    if (name.len > 1 && name.data[0] == '_' && name.data[1] == '_')
        heap_fail(h, "access to attribute '%.*s' is unsafe", SHOWN(name));

    Value method = library_method(h, owners[v.kind], name, v);
    if (method.kind == VALUE_FUNCTION) return method;

    if (v.kind == VALUE_TUPLE && v.is_group) {
        if (str_is(name, "grouper")) return v.list->items[0];
        if (str_is(name, "list")) return v.list->items[1];
    }

    bool has_members = v.kind == VALUE_DICT || v.kind == VALUE_NAMESPACE;
    const Value *found = has_members ? dict_find(h, v.dict, value_data(name)) : NULL;
    return found ? *found : value_undefined(name, value_type_name(v));
}

// Item i of a string, list or tuple; < 0 counts from the end.
static Value item_at(Heap *h, Value v, int64_t i) {
    bool is_text = v.kind == VALUE_STRING;
    int64_t n = is_text ? (int64_t)text_length(h, v.text) : v.list->n;
    if (i < -n || i >= n) return value_undefined(str_of("an item"), value_type_name(v));

    if (!is_text) return v.list->items[i < 0 ? i + n : i];
    Text rest = text_part(v.text, text_offset(v.text, i), v.text.len);
    return value_text(text_next(&rest));
}

static bool has_items(Value v) {
    return v.kind == VALUE_STRING || (value_is_list(v) && v.kind < VALUE_VIEW);
}

// As in Jinja, looks for an item first, then for an attribute with this name.
Value library_item(Heap *h, Value v, Value key) {
    value_require(h, v);
    const Value *found = v.kind == VALUE_DICT ? dict_find(h, v.dict, key) : NULL;
    if (found) return *found;
    if (key.kind == VALUE_STRING) return library_attribute(h, v, text_str(key.text));

    bool is_index = key.kind == VALUE_INT || key.kind == VALUE_BOOL;
    if (is_index && has_items(v)) return item_at(h, v, value_integer(h, key));
    if (key.kind == VALUE_UNDEFINED) key = value_none();
    return value_undefined(text_str(value_str(h, key)), value_type_name(v));
}

int64_t library_slice_bound(Heap *h, Value bound, int64_t n, int64_t low, int64_t high,
                            int64_t fallback) {
    if (bound.kind <= VALUE_NONE) return fallback;
    if (bound.kind == VALUE_BIG_INT) return *bound.text.data == '-' ? low : high;
    int64_t i = value_integer(h, bound);
    if (i < 0) i += n;
    if (i < low) return low;
    return i > high ? high : i;
}

// The items start, start + by, ... before `end`.
static List *take_items(Heap *h, const List *list, int64_t start, int64_t end, int64_t by) {
    if (by == 1) { // shares the items
        List *part = heap_alloc(h, 1, sizeof *part);
        *part = (List){list->items + start, end > start ? (int)(end - start) : 0};
        return part;
    }

    int64_t count = by > 0 ? (end - start + by - 1) / by : (start - end - by - 1) / -by;
    List *out = value_list(h, VALUE_LIST, count > 0 ? (int)count : 0).list;
    for (int i = 0; i < out->n; i++) out->items[i] = list->items[start + i * by];
    return out;
}

// Replaces omitted bounds, and negative ones, which count from the end of n items.
static void clamp_bounds(Heap *h, Value from, Value to, int64_t by, int64_t n, int64_t *start,
                         int64_t *end) {
    if (by > 0) {
        *start = library_slice_bound(h, from, n, 0, n, 0);
        *end = library_slice_bound(h, to, n, 0, n, n);
    } else {
        *start = library_slice_bound(h, from, n, -1, n - 1, n - 1);
        *end = library_slice_bound(h, to, n, -1, n - 1, -1);
    }
}

Value library_slice(Heap *h, Value v, Value from, Value to, Value step) {
    int64_t by = step.kind == VALUE_NONE ? 1 : value_integer(h, step);
    if (by == 0) heap_fail(h, "slice step cannot be zero");
    value_require(h, v);
    if (!has_items(v)) heap_fail(h, "'%s' object has no slices", value_type_name(v));

    bool is_text = v.kind == VALUE_STRING;
    int64_t n = is_text ? (int64_t)text_length(h, v.text) : v.list->n;
    int64_t most = n + 2; // a larger step has the same effect
    if (by > most) by = most;
    if (by < -most) by = -most;

    int64_t start, end; // the first item of the slice, and its end (exclusive)
    clamp_bounds(h, from, to, by, n, &start, &end);
    if (is_text && by == 1) // needs no list of characters
        return value_text(text_part(v.text, text_offset(v.text, start), text_offset(v.text, end)));

    List *items = take_items(h, is_text ? value_iterate(h, v) : v.list, start, end, by);
    if (!is_text) return (Value){.kind = v.kind, .list = items};
    size_t at = h->out.len;
    for (int i = 0; i < items->n; i++) heap_put(h, items->items[i].text);
    return heap_pop_string(h, at);
}
