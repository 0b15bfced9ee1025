// The evaluator: opening a template, then scopes, macros, loops, expressions, statements.
//
// Scoping follows Jinja. These have a scope: the template, each iteration of a loop, each call of a
// macro, each "with", and each body whose text is captured. "if" has none. An assignment changes
// only the innermost scope. A loop therefore cannot change variables outside it; templates use
// namespace() for that. A macro sees the scope of its definition, not the scope of its call.
#include "chat/jinja/jinja.h"
#include "base/unicode.h"
#include "chat/jinja/jinja_library.h"
#include "chat/jinja/jinja_operators.h"
#include "chat/jinja/jinja_tree.h"

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
    const JinjaNode *node; // EXPR_MACRO
    Scope *scope;          // of the definition
};

// A loop. A template can store the variable "loop", so this struct can outlive its statement.
// loop.last and loop.nextitem fetch the following item in advance. The length of a loop with a
// condition is unknown until the template reads loop.length.
struct Loop {
    const JinjaNode *node;
    Scope *outer;
    List *items;
    int n_fetched;                   // items fetched so far
    int64_t index;                   // of the current item, from 0
    int length;                      // -1: unknown
    int depth;                       // of recursion, from 0
    bool is_fetching;                // the condition of the loop is being evaluated
    Value changes;                   // state of loop.changed()
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
    return library_find(BUILTIN_FUNCTION, name);
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

    for (; args; args = args->next) {
        Value v = eval(h, args->a);
        if (args->op == '*') {
            const List *list = value_iterate(h, v);
            for (int i = 0; i < list->n; i++) heap_push_arg(h, list->items[i], (Str){0});
        } else if (args->op == 'p') {
            const Dict *dict = value_mapping(h, v);
            for (int i = 0; i < dict->n; i++)
                heap_push_arg(h, dict->pairs[i].value,
                              text_str(value_string(h, dict->pairs[i].key)));
        } else {
            heap_push_arg(h, v, args->name);
        }
    }

    a->n = h->n_args - start;
    a->values = h->args + start;
    a->names = h->arg_names + start;
}

static Value eval_macro(Heap *h, const JinjaNode *n) {
    struct Macro *m = heap_alloc(h, 1, sizeof *m);
    *m = (struct Macro){n, h->scope};
    return (Value){.kind = VALUE_MACRO, .macro = m};
}

// Returns the text of a macro.
static Value call_macro(Heap *h, struct Macro *m, const Args *a) {
    size_t start = h->out.len;
    int uses = m->node->op;
    Value varargs = value_list(h, VALUE_TUPLE, 0);
    Value kwargs = value_dict(h, VALUE_DICT);
    Parameters params = {.callee = m->node->name,
                         .start = h->n_args,
                         .varargs = uses & USES_VARARGS ? varargs.list : NULL,
                         .kwargs = uses & USES_KWARGS ? kwargs.dict : NULL};

    heap_enter(h);
    h->scope = new_scope(h, m->scope);
    for (const JinjaNode *param = m->node->a; param; param = param->next) {
        heap_push_arg(h, (Value){0}, param->name);
        params.n_positional += !param->op;
    }
    library_bind(h, &params, a);

    // A parameter without an argument gets its default or an undefined value.
    int slot = params.start;
    for (const JinjaNode *param = m->node->a; param; param = param->next) {
        Value v = h->args[slot++];
        if (v.kind == VALUE_ABSENT)
            v = param->a ? eval(h, param->a) : value_undefined(param->name, NULL);
        declare(h, h->scope, param->name, v);
    }
    if (params.varargs) declare(h, h->scope, str_of("varargs"), varargs);
    if (params.kwargs) declare(h, h->scope, str_of("kwargs"), kwargs);

    exec(h, m->node->body);

    h->depth--;
    return heap_pop_string(h, start);
}

static Value macro_attribute(Heap *h, Value v, Str name) {
    const JinjaNode *macro = v.macro->node;
    if (str_is(name, "name")) return value_data(macro->name);
    if (str_is(name, "caller")) return value_bool(macro->op & USES_CALLER);
    if (str_is(name, "catch_varargs")) return value_bool(macro->op & USES_VARARGS);
    if (str_is(name, "catch_kwargs")) return value_bool(macro->op & USES_KWARGS);
    if (!str_is(name, "arguments")) return library_attribute(h, v, name);

    Value names = value_list(h, VALUE_TUPLE, 0);
    for (const JinjaNode *param = macro->a; param; param = param->next)
        if (!param->op) list_push(h, names.list, value_data(param->name));
    return names;
}

// Loops

// The item of a loop with a condition. As in Jinja, which filters with a generator, an item that is
// unpacked becomes a tuple.
static Value unpacked_item(Heap *h, const JinjaNode *target, Value v) {
    if (target->kind != EXPR_TUPLE) return v;
    const List *parts = value_iterate(h, v);
    const JinjaNode *part = target->a;
    Value out = value_list(h, VALUE_TUPLE, parts->n);
    for (int i = 0; i < parts->n; i++) {
        out.list->items[i] = part ? unpacked_item(h, part, parts->items[i]) : parts->items[i];
        if (part) part = part->next;
    }
    return out;
}

// Fetches the next item that satisfies the condition of the loop. VALUE_ABSENT if there is none.
static Value loop_fetch(Heap *h, struct Loop *l) {
    while (l->n_fetched < l->items->n) {
        Value v = l->items->items[l->n_fetched++];
        if (l->length >= 0) return v;

        if (l->is_fetching) heap_fail(h, "the condition of a loop uses this loop");
        l->is_fetching = true;
        h->scope = new_scope(h, l->outer);
        v = unpacked_item(h, l->node->a, v);
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

// The number of items. If the loop has a condition, this fetches all remaining items.
static int loop_length(Heap *h, struct Loop *l) {
    if (l->length >= 0) return l->length;

    List *rest = value_list(h, VALUE_LIST, 0).list;
    Value v = *loop_peek(h, l);
    while (v.kind != VALUE_ABSENT) {
        list_push(h, rest, v);
        v = loop_fetch(h, l);
    }

    l->items = rest;
    l->n_fetched = 0;
    l->following = (Value){0};
    l->length = (int)l->index + 1 + rest->n;
    return l->length;
}

static Value item_or_undefined(Value item, Str name) {
    return item.kind == VALUE_ABSENT ? value_undefined(name, NULL) : item;
}

static Value loop_attribute(Heap *h, struct Loop *l, Str name) {
    if (str_is(name, "index")) return value_int(l->index + 1);
    if (str_is(name, "index0")) return value_int(l->index);
    if (str_is(name, "first")) return value_bool(l->index == 0);
    if (str_is(name, "last")) return value_bool(loop_peek(h, l)->kind == VALUE_ABSENT);
    if (str_is(name, "length")) return value_int(loop_length(h, l));
    if (str_is(name, "revindex")) return value_int(loop_length(h, l) - l->index);
    if (str_is(name, "revindex0")) return value_int(loop_length(h, l) - l->index - 1);
    if (str_is(name, "depth")) return value_int(l->depth + 1);
    if (str_is(name, "depth0")) return value_int(l->depth);
    if (str_is(name, "previtem")) return item_or_undefined(l->previous, name);
    if (str_is(name, "nextitem")) return item_or_undefined(*loop_peek(h, l), name);

    Value state = str_is(name, "cycle") ? value_int(l->index) : l->changes;
    Value method = library_method(h, BUILTIN_LOOP, name, state);
    if (method.kind == VALUE_UNDEFINED) heap_fail(h, "loop has no attribute '%.*s'", SHOWN(name));
    return method;
}

static void run_loop(Heap *h, const JinjaNode *n, Scope *outer, Value items, int depth) {
    struct Loop *l = heap_alloc(h, 1, sizeof *l); // not on the stack: the template can store it
    Flow flow = FLOW_NEXT;
    bool is_complete = false; // an iteration has reached the end of the body
    Value v;

    heap_enter(h);
    *l = (struct Loop){n, outer, value_iterate(h, items), .index = -1, .depth = depth};
    l->length = n->c ? -1 : l->items->n;
    l->changes = value_dict(h, VALUE_NAMESPACE);

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

// Returns the text of a recursive loop over the items in the argument.
static Value call_loop(Heap *h, const struct Loop *l, const Args *a) {
    size_t start = h->out.len;
    if (!l->node->op || a->n != 1)
        heap_fail(h, "only a recursive loop can be called, with one argument");
    run_loop(h, l->node, l->outer, a->values[0], l->depth + 1);
    return heap_pop_string(h, start);
}

// Expressions. Calls, filters and tests leave their arguments on the argument stack; eval() removes
// them.

static Value eval_const(Heap *h, const JinjaNode *n) {
    (void)h;
    return n->value;
}

static Value eval_name(Heap *h, const JinjaNode *n) { return lookup(h, n->name); }

static Value eval_list(Heap *h, const JinjaNode *n) {
    Value v = value_list(h, n->kind == EXPR_LIST ? VALUE_LIST : VALUE_TUPLE, 0);
    for (const JinjaNode *item = n->a; item; item = item->next) list_push(h, v.list, eval(h, item));
    return v;
}

static Value eval_dict(Heap *h, const JinjaNode *n) {
    Value v = value_dict(h, VALUE_DICT);
    for (const JinjaNode *key = n->a; key; key = key->next->next) {
        Value k = eval(h, key);
        dict_set(h, v.dict, k, eval(h, key->next));
    }
    return v;
}

static Value eval_attribute(Heap *h, const JinjaNode *n) {
    Value v = eval(h, n->a);
    if (v.kind == VALUE_LOOP) return loop_attribute(h, v.loop, n->name);
    if (v.kind == VALUE_MACRO) return macro_attribute(h, v, n->name);
    return library_attribute(h, v, n->name);
}

static Value eval_item(Heap *h, const JinjaNode *n) {
    Value v = eval(h, n->a);
    return library_item(h, v, eval(h, n->b));
}

static Value eval_or_none(Heap *h, const JinjaNode *n) { return n ? eval(h, n) : value_none(); }

static Value eval_slice(Heap *h, const JinjaNode *n) {
    Value v = eval(h, n->a);
    Value from = eval_or_none(h, n->b);
    Value to = eval_or_none(h, n->c);
    return library_slice(h, v, from, to, eval_or_none(h, n->other));
}

static Value eval_call(Heap *h, const JinjaNode *n) {
    Args a = {0};
    Value f = eval(h, n->a);
    eval_args(h, n->b, &a);
    if (f.kind == VALUE_MACRO) return call_macro(h, f.macro, &a);
    if (f.kind == VALUE_LOOP) return call_loop(h, f.loop, &a);
    return library_call(h, f, &a);
}

static Value eval_filter(Heap *h, const JinjaNode *n) {
    Args a = {.self = n->a ? eval(h, n->a) : h->body};
    eval_args(h, n->b, &a);
    return library_apply(h, false, n->name, &a);
}

static Value eval_test(Heap *h, const JinjaNode *n) {
    Args a = {.self = eval(h, n->a)};
    eval_args(h, n->b, &a);
    return value_bool(library_apply(h, true, n->name, &a).boolean != n->op);
}

static Value eval_if(Heap *h, const JinjaNode *n) {
    if (value_truth(eval(h, n->a))) return eval(h, n->b);
    return n->c ? eval(h, n->c) : value_undefined(str_of("the missing else"), NULL);
}

static Value eval_not(Heap *h, const JinjaNode *n) {
    return value_bool(!value_truth(eval(h, n->a)));
}

static Value eval_and(Heap *h, const JinjaNode *n) {
    Value v = eval(h, n->a);
    return value_truth(v) ? eval(h, n->b) : v;
}

static Value eval_or(Heap *h, const JinjaNode *n) {
    Value v = eval(h, n->a);
    return value_truth(v) ? v : eval(h, n->b);
}

static Value eval_sign(Heap *h, const JinjaNode *n) {
    return operator_sign(h, n->op, eval(h, n->a));
}

static Value eval_binary(Heap *h, const JinjaNode *n) {
    Value a = eval(h, n->a);
    return operator_binary(h, n->op, a, eval(h, n->b));
}

static Value eval_compare(Heap *h, const JinjaNode *n) {
    Value left = eval(h, n->a);
    for (const JinjaNode *c = n->b; c; c = c->next) {
        Value right = eval(h, c->a);
        if (!value_compare(h, (Comparison)c->op, left, right)) return value_bool(false);
        left = right;
    }
    return value_bool(true);
}

static Value eval(Heap *h, const JinjaNode *n) {
    static Value (*const evaluators[])(Heap * h, const JinjaNode *n) = {
        [EXPR_CONST] = eval_const,   [EXPR_NAME] = eval_name,     [EXPR_LIST] = eval_list,
        [EXPR_TUPLE] = eval_list,    [EXPR_DICT] = eval_dict,     [EXPR_ATTRIBUTE] = eval_attribute,
        [EXPR_ITEM] = eval_item,     [EXPR_SLICE] = eval_slice,   [EXPR_CALL] = eval_call,
        [EXPR_FILTER] = eval_filter, [EXPR_TEST] = eval_test,     [EXPR_IF] = eval_if,
        [EXPR_NOT] = eval_not,       [EXPR_AND] = eval_and,       [EXPR_OR] = eval_or,
        [EXPR_SIGN] = eval_sign,     [EXPR_BINARY] = eval_binary, [EXPR_COMPARE] = eval_compare,
        [EXPR_MACRO] = eval_macro,
    };
    Scope *scope = h->scope;
    int line = h->line, n_args = h->n_args;

    heap_enter(h);
    h->line = n->line;
    Value v = evaluators[n->kind](h, n);

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

static void exec_capture(Heap *h, const JinjaNode *n) {
    Scope *before = h->scope;
    Value v = capture(h, n);
    if (n->a)
        assign(h, before, n->a, v);
    else
        value_put(h, v, NULL, 0);
}

// "elif": the list `other` consists of one STMT_IF.
static Flow exec_if(Heap *h, const JinjaNode *n) {
    while (!value_truth(eval(h, n->a))) {
        const JinjaNode *other = n->other;
        if (!other) return FLOW_NEXT;
        if (other->kind != STMT_IF || other->next) return exec(h, other);
        n = other;
    }
    return exec(h, n->body);
}

// As in Jinja, the values are evaluated in the outer scope.
static Flow exec_with(Heap *h, const JinjaNode *n) {
    Scope *inner = new_scope(h, h->scope);
    for (const JinjaNode *set = n->a; set; set = set->next)
        assign(h, inner, set->a, eval(h, set->b));
    h->scope = inner;
    return exec(h, n->body);
}

static Flow exec_one(Heap *h, const JinjaNode *n) {
    switch (n->kind) {
    case STMT_TEXT: heap_put(h, n->value.text); break;
    case STMT_OUTPUT: value_put(h, eval(h, n->a), NULL, 0); break;
    case STMT_SET: assign(h, h->scope, n->a, eval(h, n->b)); break;
    case STMT_CAPTURE: exec_capture(h, n); break;
    case STMT_FOR: run_loop(h, n, h->scope, eval(h, n->b), 0); break;
    case STMT_IF: return exec_if(h, n);
    case STMT_WITH: return exec_with(h, n);
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
