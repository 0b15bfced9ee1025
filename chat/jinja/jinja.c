// The evaluator: opening a template, then scopes, calls, loops, operators, expressions, statements.
//
// Scoping follows Jinja. These have a scope: the template, each iteration of a loop, each call of a
// macro, and each body whose text is captured. "if" has none. An assignment changes only the
// innermost scope. A loop therefore cannot change variables outside it; templates use namespace()
// for that. A macro sees the scope of its definition, not the scope of its call.
#include "chat/jinja/jinja.h"
#include "base/unicode.h"
#include "chat/jinja/jinja_library.h"
#include "chat/jinja/jinja_tree.h"

#include <math.h>

enum {
    MAX_SOURCE = 256 << 10, // bytes
    MAX_MEMORY = 40 << 20,  // bytes of values; the output has a separate limit
    MAX_STEPS = 5000000
};

// Copies the source, converts line ends to "\n" and removes a final line end.
static void copy_source(Jinja *t, Str source) {
    uint32_t code;
    for (size_t at = 0, n; at < source.len; at += n) {
        n = (size_t)utf8_decode(source.data + at, source.len - at, &code);
        if (!n) heap_fail(&t->heap, "invalid UTF-8 at byte %zu", at);
    }

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
    const JinjaNode *node; // STMT_MACRO
    Scope *scope;          // of the definition
};

// A loop. A template can store the variable "loop", so this struct can outlive its statement.
// loop.last and loop.nextitem fetch the following item in advance.
struct Loop {
    const JinjaNode *node;
    Scope *outer;
    List *items;
    int n_fetched;                   // items fetched so far
    int64_t index;                   // of the current item, from 0
    bool is_fetching;                // the condition of the loop is being evaluated
    Value previous, item, following; // VALUE_ABSENT: no such item, or not fetched
};

typedef enum { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE } Flow;

// Both restore h->scope on return, so the functions that they call need not restore it.
static Value eval(Heap *h, const JinjaNode *n);
static Flow exec(Heap *h, const JinjaNode *list);

// Scopes

static void declare(Heap *h, Scope *s, Str name, Value v) {
    dict_set(h, &s->variables, value_data(name), v);
}

static Value lookup(Heap *h, Str name) {
    for (const Scope *s = h->scope; s; s = s->parent) {
        const Value *v = dict_find(h, &s->variables, value_data(name));
        if (v) return *v;
    }
    if (str_is_one_of(name, "varargs kwargs"))
        heap_fail(h, "'%.*s' of a macro is not supported", SHOWN(name));
    return library_function(name);
}

static Scope *new_scope(Heap *h, Scope *parent) {
    Scope *s = heap_alloc(h, 1, sizeof *s);
    s->parent = parent;
    return s;
}

// Assigns to a variable of the scope s, to an attribute of a namespace, or to each target of a
// tuple.
static void assign(Heap *h, Scope *s, const JinjaNode *target, Value v) {
    if (target->kind == EXPR_NAME) {
        declare(h, s, target->name, v);
    } else if (target->kind == EXPR_ATTRIBUTE) {
        Value of = eval(h, target->a);
        if (of.kind != VALUE_NAMESPACE)
            heap_fail(h, "cannot assign attribute on non-namespace object");
        dict_set(h, of.dict, value_data(target->name), v);
    } else {
        List *all = value_iterate(h, v);
        int n = 0;
        for (const JinjaNode *part = target->a; part; part = part->next, n++)
            if (n < all->n) assign(h, s, part, all->items[n]);
        if (n != all->n) heap_fail(h, "expected %d values to unpack, found %d", n, all->n);
    }
}

// Macros

// Evaluates a list of EXPR_ARG nodes. The values are pushed onto the argument stack of the heap.
static void eval_args(Heap *h, const JinjaNode *args, Args *a) {
    int start = h->n_args;

    for (; args; args = args->next) heap_push_arg(h, eval(h, args->a), args->name);
    a->n = h->n_args - start;
    a->values = h->args + start;
    a->names = h->arg_names + start;
}

static Value new_macro(Heap *h, const JinjaNode *n) {
    struct Macro *m = heap_alloc(h, 1, sizeof *m);
    *m = (struct Macro){n, h->scope};
    return (Value){.kind = VALUE_MACRO, .macro = m};
}

// Returns the text of a macro.
static Value call_macro(Heap *h, struct Macro *m, const Args *a) {
    size_t start = h->out.len;
    int slot = h->n_args; // of the first parameter

    heap_enter(h);
    h->scope = new_scope(h, m->scope);
    for (const JinjaNode *param = m->node->a; param; param = param->next)
        heap_push_arg(h, (Value){0}, param->name);
    library_bind(h, slot, m->node->name, a);

    // A parameter without an argument gets its default or an undefined value.
    for (const JinjaNode *param = m->node->a; param; param = param->next) {
        Value v = h->args[slot++];
        if (v.kind == VALUE_ABSENT)
            v = param->a ? eval(h, param->a) : value_undefined(param->name, NULL);
        declare(h, h->scope, param->name, v);
    }

    exec(h, m->node->body);

    h->depth--;
    return heap_pop_string(h, start);
}

// Loops

// Fetches the next item that satisfies the condition of the loop. VALUE_ABSENT if there is none.
static Value loop_fetch(Heap *h, struct Loop *l) {
    while (l->n_fetched < l->items->n) {
        Value v = l->items->items[l->n_fetched++];
        if (!l->node->c) return v;
        if (l->is_fetching) heap_fail(h, "the condition of a loop uses this loop");
        l->is_fetching = true;
        h->scope = new_scope(h, l->outer);
        assign(h, h->scope, l->node->a, v);
        bool passes = value_truth(eval(h, l->node->c));
        l->is_fetching = false;
        if (passes) return v;
    }

    return (Value){0};
}

static const Value *loop_peek(Heap *h, struct Loop *l) {
    if (l->following.kind == VALUE_ABSENT) l->following = loop_fetch(h, l);
    return &l->following;
}

static int loop_length(Heap *h, const struct Loop *l) {
    if (l->node->c)
        heap_fail(h, "loop.length, revindex and revindex0 need a loop without a condition");
    return l->items->n;
}

static Value loop_attribute(Heap *h, struct Loop *l, Str name) {
    if (str_is(name, "index")) return value_int(l->index + 1);
    if (str_is(name, "index0")) return value_int(l->index);
    if (str_is(name, "first")) return value_bool(l->index == 0);
    if (str_is(name, "last")) return value_bool(loop_peek(h, l)->kind == VALUE_ABSENT);
    if (str_is(name, "length")) return value_int(loop_length(h, l));
    if (str_is(name, "revindex")) return value_int(loop_length(h, l) - l->index);
    if (str_is(name, "revindex0")) return value_int(loop_length(h, l) - l->index - 1);

    bool is_next = str_is(name, "nextitem");
    if (!is_next && !str_is(name, "previtem"))
        heap_fail(h, "loop has no attribute '%.*s'", SHOWN(name));

    // Jinja turns such an item into a tuple.
    if (l->node->c && l->node->a->kind == EXPR_TUPLE)
        heap_fail(h, "loop.%.*s needs a loop without a condition or with one variable",
                  SHOWN(name));

    Value v = is_next ? *loop_peek(h, l) : l->previous;
    return v.kind == VALUE_ABSENT ? value_undefined(name, NULL) : v;
}

static void exec_for(Heap *h, const JinjaNode *n) {
    Scope *outer = h->scope;
    List *items = value_iterate(h, eval(h, n->b));
    struct Loop *l = heap_alloc(h, 1, sizeof *l); // not on the stack: the template can store it
    Flow flow = FLOW_NEXT;
    bool is_complete = false; // an iteration has reached the end of the body
    Value v;

    heap_enter(h);
    *l = (struct Loop){n, outer, items, .index = -1};

    // Each iteration has its own scope.
    while (flow != FLOW_BREAK && (v = *loop_peek(h, l)).kind != VALUE_ABSENT) {
        heap_spend(h, 1);
        l->following = (Value){0};
        l->previous = l->item;
        l->item = v;
        l->index++;

        h->scope = new_scope(h, outer);
        declare(h, h->scope, str_of("loop"), (Value){.kind = VALUE_LOOP, .loop = l});
        assign(h, h->scope, n->a, v);
        flow = exec(h, n->body);
        is_complete |= flow == FLOW_NEXT;
    }

    // As in Jinja, "else" also runs if break or continue ended every iteration.
    h->scope = outer;
    if (!is_complete) exec(h, n->other);

    h->depth--;
}

// Evaluates a call, a filter or a test. Leaves its arguments on the argument stack; eval() removes
// them.
static Value eval_call(Heap *h, const JinjaNode *n) {
    Args a = {0};
    // The operand of a filter or test. The object of a method is part of the called value.
    if (n->kind != EXPR_CALL) a.self = n->a ? eval(h, n->a) : h->body;
    eval_args(h, n->b, &a);

    if (n->kind == EXPR_FILTER) return library_apply(h, false, n->name, &a);
    if (n->kind == EXPR_TEST)
        return value_bool(library_apply(h, true, n->name, &a).boolean != n->op);

    Value f = eval(h, n->a);
    if (f.kind == VALUE_MACRO) return call_macro(h, f.macro, &a);
    return library_call(h, f, &a);
}

// Operators

static Value concat(Heap *h, Value a, Value b) {
    size_t start = h->out.len;
    value_put(h, a, NULL, 0);
    value_put(h, b, NULL, 0);
    return heap_pop_string(h, start);
}

// a + b, for strings, lists and tuples.
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

// v * n, for a string.
static Value repeat_string(Heap *h, Value v, int64_t n) {
    size_t start = h->out.len;
    if (v.kind != VALUE_STRING) heap_fail(h, "cannot multiply '%s'", value_type_name(v));
    for (; n > 0; n--) {
        heap_spend(h, 1);
        heap_put(h, v.text);
    }
    return heap_pop_string(h, start);
}

static double float_op(Heap *h, int op, double x, double y) {
    if (y == 0 && strchr("/f%", op)) heap_fail(h, "division by zero");
    switch (op) {
    case '+': return x + y;
    case '-': return x - y;
    case '*': return x * y;
    case '/': return x / y;
    case 'f': return floor(x / y);
    default: return x - floor(x / y) * y; // %
    }
}

// Integer operations. As in Python, division rounds toward minus infinity.
static Value int_op(Heap *h, int op, int64_t x, int64_t y) {
    int64_t z = 0;
    bool overflows = false;
    if (y == 0 && (op == 'f' || op == '%')) heap_fail(h, "integer division or modulo by zero");

    switch (op) {
    case '+': overflows = __builtin_add_overflow(x, y, &z); break;
    case '-': overflows = __builtin_sub_overflow(x, y, &z); break;
    case '*': overflows = __builtin_mul_overflow(x, y, &z); break;
    case 'f':
        overflows = y == -1 && x == INT64_MIN;
        if (overflows) break;
        z = x / y - (x % y != 0 && (x < 0) != (y < 0));
        break;
    default: // %
        z = y == -1 ? 0 : x % y;
        if (z && (z < 0) != (y < 0)) z += y;
    }

    if (overflows) heap_fail(h, "a number is too large");
    return value_int(z);
}

static bool is_integral(Value v) { return value_is_number(v) && v.kind != VALUE_FLOAT; }

OWN_FRAME static Value eval_binary(Heap *h, const JinjaNode *n) {
    Value a = eval(h, n->a);
    Value b = eval(h, n->b);
    bool are_ints = is_integral(a) && is_integral(b);
    bool are_numbers = value_is_number(a) && value_is_number(b);

    if (n->op == '~') return concat(h, a, b);
    if (a.kind == VALUE_UNDEFINED || b.kind == VALUE_UNDEFINED)
        library_call(h, a.kind == VALUE_UNDEFINED ? a : b, NULL); // fails

    // Strings and lists.
    if (n->op == '*' && is_integral(b) && !value_is_number(a))
        return repeat_string(h, a, value_integer(h, b));
    if (n->op == '*' && is_integral(a) && !value_is_number(b))
        return repeat_string(h, b, value_integer(h, a));
    if (n->op == '+' && !are_numbers) return add_sequences(h, a, b);

    // Numbers. Two integers give an integer, except for "/".
    if (are_ints && n->op != '/') return int_op(h, n->op, value_integer(h, a), value_integer(h, b));
    return value_float(float_op(h, n->op, value_number(h, a), value_number(h, b)));
}

// Expressions

OWN_FRAME static Value eval_items(Heap *h, const JinjaNode *n) {
    bool is_dict = n->kind == EXPR_DICT;
    Value v = is_dict ? value_dict(h, VALUE_DICT)
                      : value_list(h, n->kind == EXPR_LIST ? VALUE_LIST : VALUE_TUPLE, 0);
    for (const JinjaNode *item = n->a; item; item = item->next) {
        Value first = eval(h, item);
        if (!is_dict) {
            list_push(h, v.list, first);
        } else {
            item = item->next;
            dict_set(h, v.dict, first, eval(h, item));
        }
    }
    return v;
}

static Value eval_or_none(Heap *h, const JinjaNode *n) { return n ? eval(h, n) : value_none(); }

static Value eval_kind(Heap *h, const JinjaNode *n) {
    Value v, from, to;

    switch (n->kind) {
    case EXPR_CONST: return n->value;
    case EXPR_NAME: return lookup(h, n->name);
    case EXPR_LIST:
    case EXPR_TUPLE:
    case EXPR_DICT: return eval_items(h, n);
    case EXPR_ATTRIBUTE:
        v = eval(h, n->a);
        if (v.kind == VALUE_LOOP) return loop_attribute(h, v.loop, n->name);
        return library_attribute(h, v, n->name);
    case EXPR_ITEM: v = eval(h, n->a); return library_item(h, v, eval(h, n->b));
    case EXPR_SLICE:
        v = eval(h, n->a);
        from = eval_or_none(h, n->b);
        to = eval_or_none(h, n->c);
        return library_slice(h, v, from, to, eval_or_none(h, n->other));
    case EXPR_CALL:
    case EXPR_FILTER:
    case EXPR_TEST: return eval_call(h, n);
    case EXPR_IF:
        if (value_truth(eval(h, n->a))) return eval(h, n->b);
        return n->c ? eval(h, n->c) : value_undefined(str_of("the missing else"), NULL);
    case EXPR_NOT: return value_bool(!value_truth(eval(h, n->a)));
    case EXPR_AND: v = eval(h, n->a); return value_truth(v) ? eval(h, n->b) : v;
    case EXPR_OR: v = eval(h, n->a); return value_truth(v) ? v : eval(h, n->b);
    case EXPR_SIGN:
        v = eval(h, n->a);
        if (v.kind == VALUE_UNDEFINED) library_call(h, v, NULL); // fails
        if (v.kind == VALUE_FLOAT) return value_float(n->op == '-' ? -v.number : v.number);
        if (!value_is_number(v))
            heap_fail(h, "bad operand type for unary %c: '%s'", n->op, value_type_name(v));
        return int_op(h, n->op, 0, value_integer(h, v));
    case EXPR_BINARY: return eval_binary(h, n);
    case EXPR_COMPARE:
        v = eval(h, n->a);
        return value_bool(value_compare(h, (Comparison)n->op, v, eval(h, n->b)));
    default: heap_fail(h, "not an expression");
    }
}

static Value eval(Heap *h, const JinjaNode *n) {
    Scope *scope = h->scope;
    int line = h->line, n_args = h->n_args;
    heap_enter(h);
    h->line = n->line;
    Value v = eval_kind(h, n);
    h->scope = scope;
    h->line = line;
    h->n_args = n_args;
    h->depth--;
    return v;
}

// Statements

// Executes the body of n in a new scope and applies the filters n->b to its text.
static Value capture(Heap *h, const JinjaNode *n) {
    Scope *before = h->scope;
    size_t start = h->out.len;
    h->scope = new_scope(h, before);
    exec(h, n->body);
    h->scope = before;
    Value outer = h->body;
    h->body = heap_pop_string(h, start);
    Value v = n->b ? eval(h, n->b) : h->body;
    h->body = outer;
    return v;
}

static Flow exec_one(Heap *h, const JinjaNode *n) {
    Scope *before = h->scope;
    Value v;

    switch (n->kind) {
    case STMT_TEXT: heap_put(h, n->value.text); break;
    case STMT_OUTPUT: value_put(h, eval(h, n->a), NULL, 0); break;
    case STMT_IF: // "elif": the list `other` consists of one STMT_IF
        while (!value_truth(eval(h, n->a))) {
            if (!n->other || n->other->kind != STMT_IF || n->other->next)
                return n->other ? exec(h, n->other) : FLOW_NEXT;
            n = n->other;
        }
        return exec(h, n->body);
    case STMT_FOR: exec_for(h, n); break;
    case STMT_SET: assign(h, before, n->a, eval(h, n->b)); break;
    case STMT_CAPTURE:
        v = capture(h, n);
        if (n->a)
            assign(h, before, n->a, v);
        else
            value_put(h, v, NULL, 0);
        break;
    case STMT_MACRO: declare(h, h->scope, n->name, new_macro(h, n)); break;
    case STMT_BREAK: return FLOW_BREAK;
    case STMT_CONTINUE: return FLOW_CONTINUE;
    default: break;
    }

    return FLOW_NEXT;
}

static Flow exec(Heap *h, const JinjaNode *list) {
    Scope *scope = h->scope;
    Flow flow = FLOW_NEXT;
    heap_enter(h);
    for (; list && flow == FLOW_NEXT; list = list->next) {
        heap_spend(h, 1);
        h->line = list->line;
        flow = exec_one(h, list);
        h->scope = scope;
    }
    h->depth--;
    return flow;
}

static bool is_any_string(const Json *string) { return string->kind == JSON_STRING; }

static void declare_members(Heap *h, const Json *object, bool (*is_template_text)(const Json *)) {
    for (const Json *m = object ? object->child : NULL; m; m = m->next)
        declare(h, h->scope, m->key, value_from_json(h, m, is_template_text));
}

bool jinja_render(const Jinja *t, const JinjaInput *in, Buffer *text, Buffer *mask, Error *err) {
    Heap *h = xalloc(1, sizeof *h);
    heap_init(h, t->heap.name, err);
    h->now = in->now;
    volatile bool ok = false;

    // heap_fail() jumps back here.
    if (!setjmp(h->on_fail)) {
        h->args = heap_alloc(h, HEAP_ARGS, sizeof *h->args);
        h->arg_names = heap_alloc(h, HEAP_ARGS, sizeof *h->arg_names);
        h->scope = new_scope(h, NULL);
        for (int i = 0; i < in->n_objects; i++)
            declare_members(h, in->objects[i], in->is_template_text);
        declare_members(h, in->template_vars, is_any_string);
        exec(h, t->root);

        buffer_put(text, buffer_str(&h->out));
        buffer_put(mask, buffer_str(&h->mask));
        ok = true;
    }

    heap_free(h);
    free(h);
    return ok;
}
