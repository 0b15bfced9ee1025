// The evaluator: it walks the tree that jinja_parse.c makes of a template. Values and their rules
// are in jinja_value.c, what can be called by name in jinja_library.c.
//
// Each string carries a mark per byte that says who wrote it. The marks of the template's literals
// are all 1 and those of the variables all 0 or absent; what copies bytes copies their marks, so
// the rendered text has them right.
#include "../base/unicode.h"
#include "jinja_library.h"
#include "jinja_tree.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_SOURCE = 256 << 10,
    MAX_MEMORY = 40 << 20, // bytes of values
    MAX_STEPS = 5000000
};

// The source with line ends as "\n" and without the last one.
static void copy_source(Jinja *t, Str source) {
    uint32_t code;
    for (size_t at = 0, n; at < source.len; at += n)
        if (!(n = (size_t)utf8_decode(source.data + at, source.len - at, &code)))
            heap_fail(&t->heap, "byte %zu: expected valid UTF-8", at);
    t->source = xrealloc(NULL, source.len + 1, 1);
    for (size_t i = 0; i < source.len; i++) {
        bool is_pair = source.data[i] == '\r' && i + 1 < source.len && source.data[i + 1] == '\n';
        if (!is_pair) t->source[t->n++] = source.data[i] == '\r' ? '\n' : source.data[i];
    }
    if (t->n && t->source[t->n - 1] == '\n') t->n--;
    t->source[t->n] = 0;
    t->ones = memset(xrealloc(NULL, t->n + 1, 1), 1, t->n + 1);
}

static void heap_init(Heap *h, const char *name, Error *err) {
    *h = (Heap){.n_left = MAX_MEMORY, .steps = MAX_STEPS, .name = name, .err = err, .line = 1};
    unicode_init();
}

Jinja *jinja_open(Str source, const char *name, Error *err) {
    Jinja *t = xalloc(1, sizeof *t);
    heap_init(&t->heap, t->name = name, err);
    if (!setjmp(t->heap.on_fail)) {
        if (source.len > MAX_SOURCE)
            heap_fail(&t->heap, "expected at most %d bytes, found %zu", MAX_SOURCE, source.len);
        copy_source(t, source);
        jinja_parse(t);
        return t;
    }
    jinja_close(t);
    return NULL;
}

void jinja_close(Jinja *t) {
    if (!t) return;
    heap_free(&t->heap);
    free(t->source);
    free(t->ones);
    free(t);
}

Str jinja_source(const Jinja *t) { return (Str){t->source, t->n}; }

// Evaluator

typedef struct Variable {
    Str name;
    Value value;
    struct Variable *next;
} Variable;

typedef struct Scope {
    Variable *variables;
    struct Scope *parent;
} Scope;

struct Macro {
    const JinjaNode *params, *body;
    Str name;
    Scope *scope; // where it was defined
};

struct Loop {
    const JinjaNode *node;
    Scope *outer;
    List *items;
    int at;                          // items fetched
    int64_t index;                   // of the item under way, from 0
    int length, depth;               // length -1: not known yet
    Value previous, item, following; // VALUE_ABSENT: none, or not fetched
    Value changed;                   // arguments of the last call of loop.changed
};

typedef struct Evaluator {
    Heap heap;
    Scope *scope;
    Value body; // of the filter block under way
} Evaluator;

typedef enum { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE } Flow;

static Value eval(Evaluator *r, const JinjaNode *n);
static Flow exec(Evaluator *r, const JinjaNode *list);

static void declare(Evaluator *r, Scope *s, Str name, Value v) {
    for (Variable *old = s->variables; old; old = old->next) {
        heap_spend(&r->heap, 1);
        if (!str_eq(old->name, name)) continue;
        old->value = v;
        return;
    }
    Variable *more = heap_alloc(&r->heap, 1, sizeof *more);
    *more = (Variable){name, v, s->variables};
    s->variables = more;
}

static Value lookup(Evaluator *r, Str name) {
    for (const Scope *s = r->scope; s; s = s->parent)
        for (const Variable *v = s->variables; v; v = v->next) {
            heap_spend(&r->heap, 1);
            if (str_eq(v->name, name)) return v->value;
        }
    return library_function(name);
}

static Scope *scope_new(Evaluator *r, Scope *parent) {
    Scope *s = heap_alloc(&r->heap, 1, sizeof *s);
    s->parent = parent;
    return s;
}

static void assign(Evaluator *r, const JinjaNode *target, Value v) {
    Heap *h = &r->heap;
    if (target->kind == EXPR_NAME) {
        declare(r, r->scope, target->name, v);
    } else if (target->kind == EXPR_ATTRIBUTE) {
        Value of = eval(r, target->a);
        if (of.kind != VALUE_NAMESPACE)
            heap_fail(h, "cannot assign attribute on non-namespace object");
        value_set(h, of.dict, value_text((Text){target->name.data, NULL, target->name.len}), v);
    } else {
        List *all = value_iterate(h, v);
        int i = 0, n = 0;
        for (const JinjaNode *part = target->a; part; part = part->next) n++;
        if (n != all->n) heap_fail(h, "expected %d values to unpack, found %d", n, all->n);
        for (const JinjaNode *part = target->a; part; part = part->next)
            assign(r, part, all->items[i++]);
    }
}

// Evaluates the arguments of a call into a's arrays of JINJA_MAX_ARGS.
static void eval_args(Evaluator *r, const JinjaNode *args, Args *a) {
    Heap *h = &r->heap;
    for (a->n = 0; args; args = args->next) {
        Value v = eval(r, args->a);
        List *more = args->op == '*' ? value_iterate(h, v) : NULL;
        if (args->op == '2' && v.kind != VALUE_DICT)
            heap_fail(h, "argument after ** must be a mapping");
        int n = more ? more->n : args->op ? v.dict->n : 1;
        if (a->n + n > JINJA_MAX_ARGS)
            heap_fail(h, "a call with more than %d arguments", JINJA_MAX_ARGS);
        for (int i = 0; i < n; i++) {
            a->values[a->n] = more ? more->items[i] : args->op ? v.dict->pairs[i].value : v;
            a->names[a->n++] = args->op == '2' ? text_str(v.dict->pairs[i].key.text)
                               : more          ? (Str){0}
                                               : args->name;
        }
    }
}

static Value call_macro(Evaluator *r, struct Macro *m, const Args *a, const Value *caller) {
    Heap *h = &r->heap;
    Scope *before = r->scope;
    size_t start = h->out.len;
    int i = 0, n_used = 0;
    r->scope = scope_new(r, m->scope);
    for (const JinjaNode *param = m->params; param; param = param->next, i++) {
        Value v = {.kind = VALUE_UNDEFINED, .name = param->name};
        bool is_given = i < a->n && !a->names[i].data;
        if (is_given) v = a->values[i];
        for (int k = 0; k < a->n && !is_given; k++)
            if (a->names[k].data && str_eq(a->names[k], param->name))
                v = a->values[k], is_given = true;
        if (!is_given && param->a) v = eval(r, param->a);
        declare(r, r->scope, param->name, v);
        n_used += is_given;
    }
    if (n_used < a->n)
        heap_fail(h, "macro '%.*s' was given arguments that it does not have", SHOWN(m->name));
    if (caller) declare(r, r->scope, str_of("caller"), *caller);
    exec(r, m->body);
    r->scope = before;
    return heap_take(h, start);
}

// The next item of a loop that passes its condition, or VALUE_ABSENT.
static Value loop_fetch(Evaluator *r, struct Loop *l) {
    while (l->at < l->items->n) {
        Value v = l->items->items[l->at++];
        if (!l->node->c || l->length >= 0) return v;
        Scope *before = r->scope;
        r->scope = scope_new(r, l->outer);
        assign(r, l->node->a, v);
        bool passes = value_truth(eval(r, l->node->c));
        r->scope = before;
        if (passes) return v;
    }
    return (Value){0};
}

static const Value *loop_peek(Evaluator *r, struct Loop *l) {
    if (l->following.kind == VALUE_ABSENT) l->following = loop_fetch(r, l);
    return &l->following;
}

static int loop_length(Evaluator *r, struct Loop *l) {
    if (l->length >= 0) return l->length;
    List *rest = value_list(&r->heap, VALUE_LIST, l->items->n).list;
    rest->n = 0;
    if (loop_peek(r, l)->kind != VALUE_ABSENT) rest->items[rest->n++] = l->following;
    for (Value v; rest->n && (v = loop_fetch(r, l)).kind != VALUE_ABSENT;)
        rest->items[rest->n++] = v;
    l->items = rest, l->at = 0, l->following = (Value){0};
    return l->length = (int)l->index + 1 + rest->n;
}

static Value or_undefined(Value v, const char *name) {
    return v.kind == VALUE_ABSENT ? (Value){.kind = VALUE_UNDEFINED, .name = str_of(name)} : v;
}

static Value loop_attribute(Evaluator *r, struct Loop *l, Str name) {
    if (str_is(name, "index")) return value_int(l->index + 1);
    if (str_is(name, "index0")) return value_int(l->index);
    if (str_is(name, "first")) return value_bool(l->index == 0);
    if (str_is(name, "last")) return value_bool(loop_peek(r, l)->kind == VALUE_ABSENT);
    if (str_is(name, "length")) return value_int(loop_length(r, l));
    if (str_is(name, "revindex")) return value_int(loop_length(r, l) - l->index);
    if (str_is(name, "revindex0")) return value_int(loop_length(r, l) - l->index - 1);
    if (str_is(name, "previtem")) return or_undefined(l->previous, "there is no previous item");
    if (str_is(name, "nextitem")) return or_undefined(*loop_peek(r, l), "there is no next item");
    if (str_is(name, "depth")) return value_int(l->depth + 1);
    if (str_is(name, "depth0")) return value_int(l->depth);
    heap_fail(&r->heap, "loop has no attribute '%.*s'", SHOWN(name));
}

static void exec_for(Evaluator *r, const JinjaNode *n, List *items, Scope *outer, int depth) {
    Scope *before = r->scope;
    struct Loop l = {.node = n,
                     .outer = outer,
                     .items = items,
                     .index = -1,
                     .length = n->c ? -1 : items->n,
                     .depth = depth};
    Value v;
    while ((v = *loop_peek(r, &l)).kind != VALUE_ABSENT) {
        heap_spend(&r->heap, 1);
        l.following = (Value){0};
        l.previous = l.item, l.item = v, l.index++;
        r->scope = scope_new(r, outer);
        declare(r, r->scope, str_of("loop"), (Value){.kind = VALUE_LOOP, .loop = &l});
        assign(r, n->a, v);
        if (exec(r, n->body) == FLOW_BREAK) break;
    }
    r->scope = outer;
    if (l.index < 0) exec(r, n->other);
    r->scope = before;
}

static Value call(Evaluator *r, Value f, const Args *a, const Value *caller) {
    Heap *h = &r->heap;
    if (f.kind == VALUE_MACRO) return call_macro(r, f.macro, a, caller);
    if (f.kind != VALUE_LOOP) return library_call(h, f, a);
    if (!f.loop->node->op || a->n != 1)
        heap_fail(h, "this loop is not recursive, or its call has not one argument");
    size_t start = h->out.len;
    exec_for(r, f.loop->node, value_iterate(h, a->values[0]), f.loop->outer, f.loop->depth + 1);
    return heap_take(h, start);
}

static Value eval_call(Evaluator *r, const JinjaNode *n, const Value *caller) {
    Value values[JINJA_MAX_ARGS];
    Str names[JINJA_MAX_ARGS];
    Args a = {values, names, 0};
    bool is_cycle = n->a->kind == EXPR_ATTRIBUTE && str_is(n->a->name, "cycle");
    Value of = is_cycle ? eval(r, n->a->a) : value_none();
    eval_args(r, n->b, &a);
    if (of.kind == VALUE_LOOP && a.n) return a.values[of.loop->index % a.n];
    return call(r, eval(r, n->a), &a, caller);
}

static Value eval_filter(Evaluator *r, const JinjaNode *n) {
    Value values[JINJA_MAX_ARGS], v = n->a ? eval(r, n->a) : r->body;
    Str names[JINJA_MAX_ARGS];
    Args a = {values, names, 0};
    eval_args(r, n->b, &a);
    return library_filter(&r->heap, n->name, v, &a);
}

static Value eval_test(Evaluator *r, const JinjaNode *n) {
    Value values[JINJA_MAX_ARGS], v = eval(r, n->a);
    Str names[JINJA_MAX_ARGS];
    Args a = {values, names, 0};
    eval_args(r, n->b, &a);
    return value_bool(library_test(&r->heap, n->name, v, &a) != n->op);
}

static bool compare(Evaluator *r, int op, Value a, Value b) {
    Heap *h = &r->heap;
    switch (op) {
    case JINJA_EQ: return value_equal(h, a, b);
    case JINJA_NE: return !value_equal(h, a, b);
    case JINJA_LT: return value_less(h, a, b);
    case JINJA_GT: return value_less(h, b, a);
    case JINJA_LE: return value_less(h, a, b) || value_equal(h, a, b);
    case JINJA_GE: return value_less(h, b, a) || value_equal(h, a, b);
    default: return value_contains(h, b, a) == (op == JINJA_IN);
    }
}

static Value eval_compare(Evaluator *r, const JinjaNode *n) {
    Value left = eval(r, n->a);
    for (const JinjaNode *c = n->b; c; c = c->next) {
        Value right = eval(r, c->a);
        if (!compare(r, c->op, left, right)) return value_bool(false);
        left = right;
    }
    return value_bool(true);
}

static Value put_two(Heap *h, Value a, Value b) {
    size_t start = h->out.len;
    value_put(h, a, false);
    value_put(h, b, false);
    return heap_take(h, start);
}

// a + b of texts and lists.
static Value join_two(Heap *h, Value a, Value b) {
    if (a.kind == VALUE_STRING && b.kind == VALUE_STRING) {
        bool is_markup = a.is_markup || b.is_markup;
        Value v =
            is_markup ? put_two(h, library_escape(h, a), library_escape(h, b)) : put_two(h, a, b);
        v.is_markup = is_markup;
        return v;
    }
    if (a.kind != b.kind || (a.kind != VALUE_LIST && a.kind != VALUE_TUPLE))
        heap_fail(h, "cannot add '%s' and '%s'", value_kind(a), value_kind(b));
    Value v = value_list(h, a.kind, a.list->n + b.list->n);
    if (a.list->n) memcpy(v.list->items, a.list->items, (size_t)a.list->n * sizeof v);
    if (b.list->n) memcpy(v.list->items + a.list->n, b.list->items, (size_t)b.list->n * sizeof v);
    return v;
}

static Value repeat(Heap *h, Value v, int64_t n) {
    size_t start = h->out.len;
    if (v.kind == VALUE_STRING) {
        for (; n > 0; n--) heap_spend(h, 1), heap_put(h, v.text);
        return heap_take(h, start);
    }
    if (v.kind != VALUE_LIST && v.kind != VALUE_TUPLE)
        heap_fail(h, "cannot multiply '%s'", value_kind(v));
    Value out = value_list(h, v.kind, 0);
    for (; n > 0; n--) heap_spend(h, 1), out = join_two(h, out, v);
    return out;
}

static double float_op(Heap *h, int op, double x, double y) {
    if (y == 0 && op >= JINJA_DIV && op <= JINJA_MOD) heap_fail(h, "division by zero");
    switch (op) {
    case JINJA_ADD: return x + y;
    case JINJA_SUB: return x - y;
    case JINJA_MUL: return x * y;
    case JINJA_DIV: return x / y;
    case JINJA_FLOOR: return floor(x / y);
    case JINJA_MOD: return x - floor(x / y) * y;
    default: return pow(x, y);
    }
}

static int64_t int_of(Value v) { return v.kind == VALUE_BOOL ? v.boolean : v.integer; }

static Value int_op(Heap *h, int op, int64_t x, int64_t y) {
    int64_t z = 1;
    bool is_over = false;
    if (y == 0 && (op == JINJA_FLOOR || op == JINJA_MOD))
        heap_fail(h, "integer division or modulo by zero");
    switch (op) {
    case JINJA_ADD: is_over = __builtin_add_overflow(x, y, &z); break;
    case JINJA_SUB: is_over = __builtin_sub_overflow(x, y, &z); break;
    case JINJA_MUL: is_over = __builtin_mul_overflow(x, y, &z); break;
    case JINJA_FLOOR:
        if ((is_over = y == -1 && x == INT64_MIN)) break;
        z = x / y - (x % y != 0 && (x < 0) != (y < 0));
        break;
    case JINJA_MOD:
        z = y == -1 ? 0 : x % y;
        if (z && (z < 0) != (y < 0)) z += y;
        break;
    default:
        if (x == 0 || x == 1 || x == -1) y = y > 0 ? 2 - (y & 1) : 0; // 0, 1 or -1 to any power
        for (; y > 0 && !is_over; y--) is_over = __builtin_mul_overflow(z, x, &z);
    }
    if (is_over) heap_fail(h, "a number is too large");
    return value_int(z);
}

static Value eval_binary(Evaluator *r, const JinjaNode *n) {
    Heap *h = &r->heap;
    Value a = eval(r, n->a), b = eval(r, n->b);
    bool are_ints = (a.kind == VALUE_INT || a.kind == VALUE_BOOL) &&
                    (b.kind == VALUE_INT || b.kind == VALUE_BOOL);
    if (n->op == JINJA_CONCAT) return put_two(h, a, b);
    if (a.kind == VALUE_UNDEFINED || b.kind == VALUE_UNDEFINED)
        library_call(h, a.kind == VALUE_UNDEFINED ? a : b, NULL);
    if (n->op == JINJA_MUL && b.kind == VALUE_INT && !value_is_number(a))
        return repeat(h, a, b.integer);
    if (n->op == JINJA_MUL && a.kind == VALUE_INT && !value_is_number(b))
        return repeat(h, b, a.integer);
    if (n->op == JINJA_ADD && !(value_is_number(a) && value_is_number(b))) return join_two(h, a, b);
    if (are_ints && n->op != JINJA_DIV && !(n->op == JINJA_POW && int_of(b) < 0))
        return int_op(h, n->op, int_of(a), int_of(b));
    return value_float(float_op(h, n->op, value_number(h, a), value_number(h, b)));
}

static Value eval_items(Evaluator *r, const JinjaNode *n) {
    int count = 0;
    for (const JinjaNode *i = n->a; i; i = i->next) count++;
    Value v = n->kind == EXPR_DICT
                  ? value_dict(&r->heap, VALUE_DICT)
                  : value_list(&r->heap, n->kind == EXPR_LIST ? VALUE_LIST : VALUE_TUPLE, count);
    count = 0;
    for (const JinjaNode *i = n->a; i; i = i->next) {
        if (n->kind != EXPR_DICT) {
            v.list->items[count++] = eval(r, i);
            continue;
        }
        Value key = eval(r, i);
        i = i->next;
        value_set(&r->heap, v.dict, key, eval(r, i));
    }
    return v;
}

static Value eval_negative(Evaluator *r, const JinjaNode *n) {
    Value v = eval(r, n->a);
    if (v.kind == VALUE_FLOAT) return value_float(-v.number);
    if (v.kind != VALUE_INT && v.kind != VALUE_BOOL)
        heap_fail(&r->heap, "cannot negate '%s'", value_kind(v));
    return int_op(&r->heap, JINJA_SUB, 0, int_of(v));
}

static Value eval_attribute(Evaluator *r, const JinjaNode *n) {
    Value v = eval(r, n->a);
    return v.kind == VALUE_LOOP ? loop_attribute(r, v.loop, n->name)
                                : library_attribute(&r->heap, v, n->name);
}

static Value eval_slice(Evaluator *r, const JinjaNode *n) {
    Value v = eval(r, n->a), from = n->b ? eval(r, n->b) : value_none(),
          to = n->c ? eval(r, n->c) : value_none();
    return library_slice(&r->heap, v, from, to, n->other ? eval(r, n->other) : value_none());
}

static Value eval_condition(Evaluator *r, const JinjaNode *n) {
    if (value_truth(eval(r, n->a))) return eval(r, n->b);
    return n->c ? eval(r, n->c)
                : (Value){.kind = VALUE_UNDEFINED, .name = str_of("the missing else")};
}

static Value eval_kind(Evaluator *r, const JinjaNode *n) {
    Value v;
    switch (n->kind) {
    case EXPR_CONST: return n->value;
    case EXPR_NAME: return lookup(r, n->name);
    case EXPR_LIST:
    case EXPR_TUPLE:
    case EXPR_DICT: return eval_items(r, n);
    case EXPR_ATTRIBUTE: return eval_attribute(r, n);
    case EXPR_ITEM: v = eval(r, n->a); return library_item(&r->heap, v, eval(r, n->b));
    case EXPR_SLICE: return eval_slice(r, n);
    case EXPR_CALL: return eval_call(r, n, NULL);
    case EXPR_FILTER: return eval_filter(r, n);
    case EXPR_TEST: return eval_test(r, n);
    case EXPR_IF: return eval_condition(r, n);
    case EXPR_NOT: return value_bool(!value_truth(eval(r, n->a)));
    case EXPR_AND: v = eval(r, n->a); return value_truth(v) ? eval(r, n->b) : v;
    case EXPR_OR: v = eval(r, n->a); return value_truth(v) ? v : eval(r, n->b);
    case EXPR_NEGATIVE: return eval_negative(r, n);
    case EXPR_BINARY: return eval_binary(r, n);
    case EXPR_COMPARE: return eval_compare(r, n);
    default: heap_fail(&r->heap, "not an expression");
    }
}

static Value eval(Evaluator *r, const JinjaNode *n) {
    Heap *h = &r->heap;
    int line = h->line;
    heap_enter(h);
    h->line = n->line;
    Value v = eval_kind(r, n);
    h->line = line;
    h->depth--;
    return v;
}

static Value new_macro(Evaluator *r, const JinjaNode *n, const JinjaNode *params) {
    struct Macro *m = heap_alloc(&r->heap, 1, sizeof *m);
    *m = (struct Macro){params, n->body, n->name, r->scope};
    return (Value){.kind = VALUE_MACRO, .macro = m};
}

// Runs the body in a scope of its own and returns its text, through the filters of n->b.
static Value capture(Evaluator *r, const JinjaNode *n) {
    Scope *before = r->scope;
    size_t start = r->heap.out.len;
    r->scope = scope_new(r, before);
    exec(r, n->body);
    r->scope = before;
    Value outer = r->body;
    r->body = heap_take(&r->heap, start);
    Value v = n->b ? eval(r, n->b) : r->body;
    r->body = outer;
    return v;
}

static void exec_with(Evaluator *r, const JinjaNode *n) {
    Scope *before = r->scope, *inner = scope_new(r, before);
    for (const JinjaNode *set = n->a; set; set = set->next) {
        Value v = eval(r, set->b);
        r->scope = inner;
        assign(r, set->a, v);
        r->scope = before;
    }
    r->scope = inner;
    exec(r, n->body);
    r->scope = before;
}

static Flow exec_one(Evaluator *r, const JinjaNode *n) {
    Heap *h = &r->heap;
    Value v;
    switch (n->kind) {
    case STMT_TEXT: heap_put(h, n->value.text); break;
    case STMT_OUTPUT: value_put(h, eval(r, n->a), false); break;
    case STMT_IF:
        while (!value_truth(eval(r, n->a))) {
            if (!n->other || n->other->kind != STMT_IF || n->other->next)
                return n->other ? exec(r, n->other) : FLOW_NEXT;
            n = n->other;
        }
        return exec(r, n->body);
    case STMT_FOR: exec_for(r, n, value_iterate(h, eval(r, n->b)), r->scope, 0); break;
    case STMT_SET: assign(r, n->a, eval(r, n->b)); break;
    case STMT_CAPTURE: assign(r, n->a, capture(r, n)); break;
    case STMT_MACRO: declare(r, r->scope, n->name, new_macro(r, n, n->a)); break;
    case STMT_CALL:
        v = new_macro(r, n, n->b);
        value_put(h, eval_call(r, n->a, &v), false);
        break;
    case STMT_FILTER: value_put(h, capture(r, n), false); break;
    case STMT_WITH: exec_with(r, n); break;
    case STMT_BLOCK: return exec(r, n->body);
    case STMT_BREAK: return FLOW_BREAK;
    case STMT_CONTINUE: return FLOW_CONTINUE;
    default: break;
    }
    return FLOW_NEXT;
}

static Flow exec(Evaluator *r, const JinjaNode *list) {
    Flow flow = FLOW_NEXT;
    heap_enter(&r->heap);
    for (; list && flow == FLOW_NEXT; list = list->next) {
        heap_spend(&r->heap, 1);
        r->heap.line = list->line;
        flow = exec_one(r, list);
    }
    r->heap.depth--;
    return flow;
}

static bool is_any(const Json *string) { return string->kind == JSON_STRING; }

bool jinja_render(const Jinja *t, const JinjaInput *in, Buffer *text, Buffer *mask, Error *err) {
    Evaluator *r = xalloc(1, sizeof *r);
    heap_init(&r->heap, t->name, err);
    r->heap.now = in->now;
    bool ok = !setjmp(r->heap.on_fail);
    if (ok) {
        r->scope = scope_new(r, NULL);
        for (int i = 0; i < in->n_objects; i++)
            for (const Json *m = in->objects[i]->child; m; m = m->next)
                declare(r, r->scope, m->key, value_json(&r->heap, m, in->is_template_text));
        for (const Json *m = in->template_vars ? in->template_vars->child : NULL; m; m = m->next)
            declare(r, r->scope, m->key, value_json(&r->heap, m, is_any));
        exec(r, t->root);
        buffer_put(text, buffer_str(&r->heap.out));
        buffer_put(mask, buffer_str(&r->heap.mask));
    }
    heap_free(&r->heap);
    free(r);
    return ok;
}
