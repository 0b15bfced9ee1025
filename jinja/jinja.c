// The evaluator: opening a template, then scopes, calls, loops, operators, expressions, statements.
//
// Scoping follows Jinja. A scope is created by the template, by each iteration of a loop, each call
// of a macro, each body whose text is captured, and by "with"; "if" has none. An assignment changes
// the innermost scope only, so a loop cannot change variables outside it (templates use namespace()
// for that). A macro sees the scope where it was defined, not the one it is called from.
#include "jinja.h"
#include "../base/unicode.h"
#include "jinja_library.h"
#include "jinja_tree.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_SOURCE = 256 << 10, // bytes
    MAX_MEMORY = 40 << 20,  // bytes of values; the output has a limit of its own
    MAX_STEPS = 5000000
};

// Copies the source: line ends become "\n", the last one is removed.
static void copy_source(Jinja *t, Str source) {
    uint32_t code;
    for (size_t at = 0, n; at < source.len; at += n)
        if (!(n = (size_t)utf8_decode(source.data + at, source.len - at, &code)))
            heap_fail(&t->heap, "invalid UTF-8 at byte %zu", at);
    char *copy = heap_alloc(&t->heap, source.len + 1, 1);
    size_t n = 0;
    for (size_t i = 0; i < source.len; i++) {
        bool is_pair = source.data[i] == '\r' && i + 1 < source.len && source.data[i + 1] == '\n';
        if (!is_pair) copy[n++] = source.data[i] == '\r' ? '\n' : source.data[i];
    }
    if (n && copy[n - 1] == '\n') n--;
    copy[n] = 0;
    t->source = (Text){copy, memset(heap_alloc(&t->heap, n, 1), 1, n), n};
}

static void heap_init(Heap *h, const char *name, Error *err) {
    *h = (Heap){.n_left = MAX_MEMORY, .steps = MAX_STEPS, .name = name, .err = err, .line = 1};
    unicode_init();
}

Jinja *jinja_open(Str source, const char *name, Error *err) {
    Jinja *t = xalloc(1, sizeof *t);
    heap_init(&t->heap, name, err);
    if (!setjmp(t->heap.on_fail)) {
        if (source.len > MAX_SOURCE)
            heap_fail(&t->heap, "the template has %zu bytes, more than %d", source.len, MAX_SOURCE);
        copy_source(t, source);
        jinja_parse(t);
        return t;
    }
    jinja_close(t);
    return NULL;
}

void jinja_close(Jinja *t) {
    if (t) heap_free(&t->heap);
    free(t);
}

Str jinja_source(const Jinja *t) { return text_str(t->source); }

typedef struct Scope {
    Dict variables;
    struct Scope *parent;
} Scope;

struct Macro {
    const JinjaNode *params, *body;
    Str name;
    Scope *scope; // of the definition
};

// A running loop. Items are fetched one ahead, for loop.last and loop.nextitem; with a condition
// the length is unknown until loop.length asks for it.
struct Loop {
    const JinjaNode *node;
    Scope *outer;
    List *items;
    int n_fetched;                   // of the items
    int64_t index;                   // of the current item, from 0
    int length, depth;               // length -1: unknown; depth of recursion, from 0
    Value previous, item, following; // VALUE_ABSENT: none, or not fetched
};

typedef struct {
    Heap heap;
    Scope *scope;
    Value body; // text of the captured body that EXPR_FILTER without an operand filters
} Evaluator;

typedef enum { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE } Flow;

static Value eval(Evaluator *e, const JinjaNode *n);
static Flow exec(Evaluator *e, const JinjaNode *list);

// Scopes

static void declare(Evaluator *e, Scope *s, Str name, Value v) {
    dict_set(&e->heap, &s->variables, value_data(name), v);
}

static Value lookup(Evaluator *e, Str name) {
    for (const Scope *s = e->scope; s; s = s->parent) {
        const Value *v = dict_find(&e->heap, &s->variables, value_data(name));
        if (v) return *v;
    }
    return library_function(name);
}

static Scope *new_scope(Evaluator *e, Scope *parent) {
    Scope *s = heap_alloc(&e->heap, 1, sizeof *s);
    s->parent = parent;
    return s;
}

// Assigns in the scope s, or to an attribute of a namespace.
static void assign(Evaluator *e, Scope *s, const JinjaNode *target, Value v) {
    Heap *h = &e->heap;
    if (target->kind == EXPR_NAME) {
        declare(e, s, target->name, v);
    } else if (target->kind == EXPR_ATTRIBUTE) {
        Value of = eval(e, target->a);
        if (of.kind != VALUE_NAMESPACE)
            heap_fail(h, "cannot assign attribute on non-namespace object");
        dict_set(h, of.dict, value_data(target->name), v);
    } else {
        List *all = value_iterate(h, v);
        int n = 0;
        for (const JinjaNode *part = target->a; part; part = part->next, n++)
            if (n < all->n) assign(e, s, part, all->items[n]);
        if (n != all->n) heap_fail(h, "expected %d values to unpack, found %d", n, all->n);
    }
}

// Macros

// Evaluates a list of EXPR_ARG into a's arrays of JINJA_MAX_ARGS.
static void eval_args(Evaluator *e, const JinjaNode *args, Args *a) {
    Heap *h = &e->heap;
    for (a->n = 0; args; args = args->next) {
        Value v = eval(e, args->a);
        List *list = args->op == '*' ? value_iterate(h, v) : NULL;
        if (args->op == '2' && v.kind != VALUE_DICT)
            heap_fail(h, "argument after ** must be a mapping");
        int n = list ? list->n : args->op ? v.dict->n : 1;
        if (a->n + n > JINJA_MAX_ARGS)
            heap_fail(h, "a call with more than %d arguments", JINJA_MAX_ARGS);
        for (int i = 0; i < n; i++) {
            a->values[a->n] = list ? list->items[i] : args->op ? v.dict->pairs[i].value : v;
            a->names[a->n++] = args->op == '2' ? text_str(v.dict->pairs[i].key.text)
                               : list          ? (Str){0}
                                               : args->name;
        }
    }
}

static Value new_macro(Evaluator *e, const JinjaNode *n, const JinjaNode *params) {
    struct Macro *m = heap_alloc(&e->heap, 1, sizeof *m);
    *m = (struct Macro){params, n->body, n->name, e->scope};
    return (Value){.kind = VALUE_MACRO, .macro = m};
}

// caller: the macro of a call block, or NULL.
static Value call_macro(Evaluator *e, struct Macro *m, const Args *a, const Value *caller) {
    Heap *h = &e->heap;
    Scope *before = e->scope;
    size_t start = h->out.len;
    int i = 0, n_used = 0;
    e->scope = new_scope(e, m->scope);
    for (const JinjaNode *param = m->params; param; param = param->next, i++) {
        int k = i; // argument for the parameter
        if (i >= a->n || a->names[i].data)
            for (k = 0; k < a->n && !str_eq(a->names[k], param->name);) k++;
        Value v = k < a->n   ? a->values[k]
                  : param->a ? eval(e, param->a)
                             : value_undefined(param->name, NULL);
        declare(e, e->scope, param->name, v);
        n_used += k < a->n;
    }
    if (n_used < a->n)
        heap_fail(h, "macro '%.*s' has no parameter for some of its arguments", SHOWN(m->name));
    if (caller) declare(e, e->scope, str_of("caller"), *caller);
    exec(e, m->body);
    e->scope = before;
    return heap_pop_string(h, start);
}

// Loops

// The next item that passes the loop's condition, or VALUE_ABSENT.
static Value loop_fetch(Evaluator *e, struct Loop *l) {
    while (l->n_fetched < l->items->n) {
        Value v = l->items->items[l->n_fetched++];
        if (!l->node->c || l->length >= 0) return v;
        Scope *before = e->scope;
        e->scope = new_scope(e, l->outer);
        assign(e, e->scope, l->node->a, v);
        bool passes = value_truth(eval(e, l->node->c));
        e->scope = before;
        if (passes) return v;
    }
    return (Value){0};
}

static const Value *loop_peek(Evaluator *e, struct Loop *l) {
    if (l->following.kind == VALUE_ABSENT) l->following = loop_fetch(e, l);
    return &l->following;
}

// Fetches the remaining items if that is needed to count them.
static int loop_length(Evaluator *e, struct Loop *l) {
    if (l->length >= 0) return l->length;
    List *rest = value_list(&e->heap, VALUE_LIST, l->items->n).list;
    rest->n = 0;
    if (loop_peek(e, l)->kind != VALUE_ABSENT) rest->items[rest->n++] = l->following;
    for (Value v; rest->n && (v = loop_fetch(e, l)).kind != VALUE_ABSENT;)
        rest->items[rest->n++] = v;
    l->items = rest, l->n_fetched = 0, l->following = (Value){0};
    return l->length = (int)l->index + 1 + rest->n;
}

static Value loop_attribute(Evaluator *e, struct Loop *l, Str name) {
    Value v;
    if (str_is(name, "index")) return value_int(l->index + 1);
    if (str_is(name, "index0")) return value_int(l->index);
    if (str_is(name, "first")) return value_bool(l->index == 0);
    if (str_is(name, "last")) return value_bool(loop_peek(e, l)->kind == VALUE_ABSENT);
    if (str_is(name, "length")) return value_int(loop_length(e, l));
    if (str_is(name, "revindex")) return value_int(loop_length(e, l) - l->index);
    if (str_is(name, "revindex0")) return value_int(loop_length(e, l) - l->index - 1);
    if (str_is(name, "depth")) return value_int(l->depth + 1);
    if (str_is(name, "depth0")) return value_int(l->depth);
    if (str_is(name, "previtem"))
        v = l->previous;
    else if (str_is(name, "nextitem"))
        v = *loop_peek(e, l);
    else
        heap_fail(&e->heap, "loop has no attribute '%.*s'", SHOWN(name));
    return v.kind == VALUE_ABSENT ? value_undefined(name, NULL) : v;
}

static void exec_for(Evaluator *e, const JinjaNode *n, List *items, Scope *outer, int depth) {
    Scope *before = e->scope;
    struct Loop l = {n, outer, items, .index = -1, .depth = depth};
    Value v;
    l.length = n->c ? -1 : items->n;
    while ((v = *loop_peek(e, &l)).kind != VALUE_ABSENT) {
        heap_spend(&e->heap, 1);
        l.following = (Value){0};
        l.previous = l.item, l.item = v, l.index++;
        e->scope = new_scope(e, outer);
        declare(e, e->scope, str_of("loop"), (Value){.kind = VALUE_LOOP, .loop = &l});
        assign(e, e->scope, n->a, v);
        if (exec(e, n->body) == FLOW_BREAK) break;
    }
    e->scope = outer;
    if (l.index < 0) exec(e, n->other);
    e->scope = before;
}

// Calls, filters and tests: a node with arguments. caller: see call_macro.
static Value eval_call(Evaluator *e, const JinjaNode *n, const Value *caller) {
    Heap *h = &e->heap;
    Value values[JINJA_MAX_ARGS];
    Str names[JINJA_MAX_ARGS];
    Args a = {.values = values, .names = names};
    bool is_cycle =
        n->kind == EXPR_CALL && n->a->kind == EXPR_ATTRIBUTE && str_is(n->a->name, "cycle");
    if (n->kind != EXPR_CALL)
        a.self = n->a ? eval(e, n->a) : e->body;
    else if (is_cycle) // loop.cycle(...) is not a value
        a.self = eval(e, n->a->a);
    eval_args(e, n->b, &a);
    if (n->kind == EXPR_FILTER) return library_apply(h, false, n->name, &a);
    if (n->kind == EXPR_TEST)
        return value_bool(library_apply(h, true, n->name, &a).boolean != n->op);
    if (a.self.kind == VALUE_LOOP && a.n) return values[a.self.loop->index % a.n];
    Value f = eval(e, n->a);
    if (f.kind == VALUE_MACRO) return call_macro(e, f.macro, &a, caller);
    if (f.kind != VALUE_LOOP) return library_call(h, f, &a);
    if (!f.loop->node->op || a.n != 1)
        heap_fail(h, "only a recursive loop can be called, with one argument");
    size_t start = h->out.len;
    exec_for(e, f.loop->node, value_iterate(h, values[0]), f.loop->outer, f.loop->depth + 1);
    return heap_pop_string(h, start);
}

// Operators

static Value concat(Heap *h, Value a, Value b) {
    size_t start = h->out.len;
    value_put(h, a, NULL, 0);
    value_put(h, b, NULL, 0);
    return heap_pop_string(h, start);
}

// a + b of strings or lists.
static Value add_sequences(Heap *h, Value a, Value b) {
    if (a.kind == VALUE_STRING && b.kind == VALUE_STRING) {
        bool is_markup = a.is_markup || b.is_markup;
        Value v =
            is_markup ? concat(h, library_escape(h, a), library_escape(h, b)) : concat(h, a, b);
        v.is_markup = is_markup;
        return v;
    }
    if (a.kind != b.kind || (a.kind != VALUE_LIST && a.kind != VALUE_TUPLE))
        heap_fail(h, "cannot add '%s' and '%s'", value_type_name(a), value_type_name(b));
    Value v = value_list(h, a.kind, a.list->n + b.list->n);
    if (a.list->n) memcpy(v.list->items, a.list->items, (size_t)a.list->n * sizeof v);
    if (b.list->n) memcpy(v.list->items + a.list->n, b.list->items, (size_t)b.list->n * sizeof v);
    return v;
}

// v * n of a string or list.
static Value repeat_sequence(Heap *h, Value v, int64_t n) {
    size_t start = h->out.len;
    if (v.kind == VALUE_STRING) {
        for (; n > 0; n--) heap_spend(h, 1), heap_put(h, v.text);
        return heap_pop_string(h, start);
    }
    if (v.kind != VALUE_LIST && v.kind != VALUE_TUPLE)
        heap_fail(h, "cannot multiply '%s'", value_type_name(v));
    Value out = value_list(h, v.kind, 0);
    for (; n > 0; n--) heap_spend(h, 1), out = add_sequences(h, out, v);
    return out;
}

static double float_op(Heap *h, int op, double x, double y) {
    if (y == 0 && strchr("/f%", op)) heap_fail(h, "division by zero");
    switch (op) {
    case '+': return x + y;
    case '-': return x - y;
    case '*': return x * y;
    case '/': return x / y;
    case 'f': return floor(x / y);
    case '%': return x - floor(x / y) * y;
    default: return pow(x, y);
    }
}

// Division and modulo round towards minus infinity, as in Python.
static Value int_op(Heap *h, int op, int64_t x, int64_t y) {
    int64_t z = 1;
    bool overflows = false;
    if (y == 0 && (op == 'f' || op == '%')) heap_fail(h, "integer division or modulo by zero");
    switch (op) {
    case '+': overflows = __builtin_add_overflow(x, y, &z); break;
    case '-': overflows = __builtin_sub_overflow(x, y, &z); break;
    case '*': overflows = __builtin_mul_overflow(x, y, &z); break;
    case 'f':
        if ((overflows = y == -1 && x == INT64_MIN)) break;
        z = x / y - (x % y != 0 && (x < 0) != (y < 0));
        break;
    case '%':
        z = y == -1 ? 0 : x % y;
        if (z && (z < 0) != (y < 0)) z += y;
        break;
    default: // power, y >= 0
        if (x == 0 || x == 1 || x == -1) y = y > 0 ? 2 - (y & 1) : 0;
        for (; y > 0 && !overflows; y--) overflows = __builtin_mul_overflow(z, x, &z);
    }
    if (overflows) heap_fail(h, "a number is too large");
    return value_int(z);
}

static bool is_int_or_bool(Value v) { return v.kind == VALUE_INT || v.kind == VALUE_BOOL; }

static Value eval_binary(Evaluator *e, const JinjaNode *n) {
    Heap *h = &e->heap;
    Value a = eval(e, n->a), b = eval(e, n->b);
    bool are_ints = is_int_or_bool(a) && is_int_or_bool(b);
    bool are_numbers = value_is_number(a) && value_is_number(b);
    if (n->op == '~') return concat(h, a, b);
    if (a.kind == VALUE_UNDEFINED || b.kind == VALUE_UNDEFINED)
        library_call(h, a.kind == VALUE_UNDEFINED ? a : b, NULL); // fails
    if (n->op == '*' && b.kind == VALUE_INT && !value_is_number(a))
        return repeat_sequence(h, a, b.integer);
    if (n->op == '*' && a.kind == VALUE_INT && !value_is_number(b))
        return repeat_sequence(h, b, a.integer);
    if (n->op == '+' && !are_numbers) return add_sequences(h, a, b);
    if (are_ints && n->op != '/' && !(n->op == 'p' && value_integer(h, b) < 0))
        return int_op(h, n->op, value_integer(h, a), value_integer(h, b));
    return value_float(float_op(h, n->op, value_number(h, a), value_number(h, b)));
}

static Value eval_compare(Evaluator *e, const JinjaNode *n) {
    Value left = eval(e, n->a);
    for (const JinjaNode *c = n->b; c; c = c->next) {
        Value right = eval(e, c->a);
        if (!value_compare(&e->heap, (Comparison)c->op, left, right)) return value_bool(false);
        left = right;
    }
    return value_bool(true);
}

// Expressions

static Value eval_items(Evaluator *e, const JinjaNode *n) {
    bool is_dict = n->kind == EXPR_DICT;
    Value v = is_dict ? value_dict(&e->heap, VALUE_DICT)
                      : value_list(&e->heap, n->kind == EXPR_LIST ? VALUE_LIST : VALUE_TUPLE, 0);
    for (const JinjaNode *item = n->a; item; item = item->next) {
        Value first = eval(e, item);
        if (!is_dict) {
            list_push(&e->heap, v.list, first);
        } else {
            item = item->next;
            dict_set(&e->heap, v.dict, first, eval(e, item));
        }
    }
    return v;
}

static Value eval_or_none(Evaluator *e, const JinjaNode *n) {
    return n ? eval(e, n) : value_none();
}

static Value eval_kind(Evaluator *e, const JinjaNode *n) {
    Heap *h = &e->heap;
    Value v, from, to;
    switch (n->kind) {
    case EXPR_CONST: return n->value;
    case EXPR_NAME: return lookup(e, n->name);
    case EXPR_LIST:
    case EXPR_TUPLE:
    case EXPR_DICT: return eval_items(e, n);
    case EXPR_ATTRIBUTE:
        v = eval(e, n->a);
        if (v.kind == VALUE_LOOP) return loop_attribute(e, v.loop, n->name);
        return library_attribute(h, v, n->name);
    case EXPR_ITEM: v = eval(e, n->a); return library_item(h, v, eval(e, n->b));
    case EXPR_SLICE:
        v = eval(e, n->a), from = eval_or_none(e, n->b), to = eval_or_none(e, n->c);
        return library_slice(h, v, from, to, eval_or_none(e, n->other));
    case EXPR_CALL:
    case EXPR_FILTER:
    case EXPR_TEST: return eval_call(e, n, NULL);
    case EXPR_IF:
        if (value_truth(eval(e, n->a))) return eval(e, n->b);
        return n->c ? eval(e, n->c) : value_undefined(str_of("the missing else"), NULL);
    case EXPR_NOT: return value_bool(!value_truth(eval(e, n->a)));
    case EXPR_AND: v = eval(e, n->a); return value_truth(v) ? eval(e, n->b) : v;
    case EXPR_OR: v = eval(e, n->a); return value_truth(v) ? v : eval(e, n->b);
    case EXPR_NEGATIVE:
        v = eval(e, n->a);
        if (v.kind == VALUE_FLOAT) return value_float(-v.number);
        if (!is_int_or_bool(v)) heap_fail(h, "cannot negate '%s'", value_type_name(v));
        return int_op(h, '-', 0, value_integer(h, v));
    case EXPR_BINARY: return eval_binary(e, n);
    case EXPR_COMPARE: return eval_compare(e, n);
    default: heap_fail(h, "not an expression");
    }
}

static Value eval(Evaluator *e, const JinjaNode *n) {
    Heap *h = &e->heap;
    int line = h->line;
    heap_enter(h);
    h->line = n->line;
    Value v = eval_kind(e, n);
    h->line = line;
    h->depth--;
    return v;
}

// Statements

// The text of n's body, executed in a scope of its own, through the filters n->b.
static Value capture(Evaluator *e, const JinjaNode *n) {
    Scope *before = e->scope;
    size_t start = e->heap.out.len;
    e->scope = new_scope(e, before);
    exec(e, n->body);
    e->scope = before;
    Value outer = e->body;
    e->body = heap_pop_string(&e->heap, start);
    Value v = n->b ? eval(e, n->b) : e->body;
    e->body = outer;
    return v;
}

static Flow exec_one(Evaluator *e, const JinjaNode *n) {
    Heap *h = &e->heap;
    Scope *before = e->scope, *inner;
    Value v;
    switch (n->kind) {
    case STMT_TEXT: heap_put(h, n->value.text); break;
    case STMT_OUTPUT: value_put(h, eval(e, n->a), NULL, 0); break;
    case STMT_IF: // "elif" is an "if" that is all of "other"
        while (!value_truth(eval(e, n->a))) {
            if (!n->other || n->other->kind != STMT_IF || n->other->next)
                return n->other ? exec(e, n->other) : FLOW_NEXT;
            n = n->other;
        }
        return exec(e, n->body);
    case STMT_FOR: exec_for(e, n, value_iterate(h, eval(e, n->b)), e->scope, 0); break;
    case STMT_SET: assign(e, before, n->a, eval(e, n->b)); break;
    case STMT_CAPTURE:
        v = capture(e, n);
        if (n->a)
            assign(e, before, n->a, v);
        else
            value_put(h, v, NULL, 0);
        break;
    case STMT_MACRO: declare(e, e->scope, n->name, new_macro(e, n, n->a)); break;
    case STMT_CALL:
        v = new_macro(e, n, n->b);
        value_put(h, eval_call(e, n->a, &v), NULL, 0);
        break;
    case STMT_WITH:
        inner = new_scope(e, before);
        for (const JinjaNode *set = n->a; set; set = set->next)
            assign(e, inner, set->a, eval(e, set->b));
        e->scope = inner;
        exec(e, n->body);
        e->scope = before;
        break;
    case STMT_BREAK: return FLOW_BREAK;
    case STMT_CONTINUE: return FLOW_CONTINUE;
    default: break;
    }
    return FLOW_NEXT;
}

static Flow exec(Evaluator *e, const JinjaNode *list) {
    Flow flow = FLOW_NEXT;
    heap_enter(&e->heap);
    for (; list && flow == FLOW_NEXT; list = list->next) {
        heap_spend(&e->heap, 1);
        e->heap.line = list->line;
        flow = exec_one(e, list);
    }
    e->heap.depth--;
    return flow;
}

static bool is_any_string(const Json *string) { return string->kind == JSON_STRING; }

static void declare_members(Evaluator *e, const Json *object,
                            bool (*is_template_text)(const Json *)) {
    for (const Json *m = object ? object->child : NULL; m; m = m->next)
        declare(e, e->scope, m->key, value_from_json(&e->heap, m, is_template_text));
}

bool jinja_render(const Jinja *t, const JinjaInput *in, Buffer *text, Buffer *mask, Error *err) {
    Evaluator *e = xalloc(1, sizeof *e);
    heap_init(&e->heap, t->heap.name, err);
    e->heap.now = in->now;
    volatile bool ok = false;
    if (!setjmp(e->heap.on_fail)) {
        e->scope = new_scope(e, NULL);
        for (int i = 0; i < in->n_objects; i++)
            declare_members(e, in->objects[i], in->is_template_text);
        declare_members(e, in->template_vars, is_any_string);
        exec(e, t->root);
        buffer_put(text, buffer_str(&e->heap.out));
        buffer_put(mask, buffer_str(&e->heap.mask));
        ok = true;
    }
    heap_free(&e->heap);
    free(e);
    return ok;
}
