// Arrays: items, prefixItems, contains, minItems, maxItems, uniqueItems. See schema_keywords.h.
#include "constrain/schema_keywords.h"

// Returns the list of schemas of the first items, and sets *rest to the schema of all other items
// (NULL: any). Before draft 2020, "items" may be this list.
static const Json *prefix_of(const SchemaCompiler *c, const Json *schema, const Json **rest) {
    const Json *items = json_get(schema, "items");
    const Json *prefix = c->draft >= 2020 ? json_get(schema, "prefixItems") : NULL;
    bool is_list = items && items->kind == JSON_ARRAY;
    *rest = is_list ? json_get(schema, "additionalItems") : items;
    return is_list ? items : prefix;
}

// Expands one branch for each schema or value of a list. In a branch, the item at the same index
// does not satisfy the schema (ASSERT_NOT) or differs from the value (ASSERT_UNEQUAL).
static void split_items(SchemaCompiler *c, Conjunction f, const KeywordUse *u, AssertionKind kind) {
    const Json *items = u->value->child;
    for (int i = 0; items && !c->failed; items = items->next, i++) {
        Conjunction branch = f;
        if (branch.items.min < (uint32_t)i + 1) branch.items.min = (uint32_t)i + 1;
        Conjunct *a = conjunction_add(c, &branch, CONJUNCT_ITEM, u);
        a->index = i;
        a->assertion = (SchemaAssertion){kind, items};
        schema_expand(c, branch);
    }
}

static void negate_items(SchemaCompiler *c, Conjunction f, const KeywordUse *u) {
    if (u->value->kind == JSON_ARRAY)
        split_items(c, f, u, ASSERT_NOT);
    else if (!schema_is_trivial(c, u->value))
        schema_leave_negation(c, f, u);
}

static bool check_items(SchemaCompiler *c, const KeywordUse *u, const Json *value) {
    const Json *rest;
    const Json *prefix = prefix_of(c, u->schema, &rest);
    const Json *p = prefix ? prefix->child : NULL;
    for (const Json *item = value->child; item; item = item->next) {
        const Json *schema = p ? p : rest;
        if (schema && !schema_holds(c, schema, item)) return false;
        if (p) p = p->next;
    }
    return true;
}

static void mark_items(SchemaCompiler *c, const KeywordUse *u, const Json *value, bool *marks) {
    const Json *rest;
    const Json *prefix = prefix_of(c, u->schema, &rest);
    int n = prefix ? prefix->n_items : 0;
    for (int i = 0; i < value->n_items; i++) marks[i] |= i < n || rest;
}

// The negation of "uniqueItems": false has no branch.
static void negate_unique(SchemaCompiler *c, Conjunction f, const KeywordUse *u) {
    if (u->value->boolean) schema_leave_negation(c, f, u);
}

static bool check_unique(SchemaCompiler *c, const KeywordUse *u, const Json *value) {
    if (!u->value->boolean) return true;
    for (const Json *a = value->child; a; a = a->next)
        for (const Json *b = a->next; b && !c->failed; b = b->next)
            if (json_is_equal(c, a, b)) return false;
    return true;
}

// Contains.

// The bounds of the number of items that "contains" describes.
static CountRange find_contained(SchemaCompiler *c, const Json *schema) {
    const Json *min = c->draft >= 2019 ? json_get(schema, "minContains") : NULL;
    const Json *max = c->draft >= 2019 ? json_get(schema, "maxContains") : NULL;
    CountRange range = {1, NO_LIMIT};
    if (min) range.min = min->number < 4e9 ? (uint32_t)min->number : NO_LIMIT;
    if (max && max->number < 4e9) range.max = (uint32_t)max->number;
    return range;
}

// Only the number of items is enforced.
static void assert_contains(SchemaCompiler *c, Conjunction *f, const KeywordUse *u) {
    CountRange range = find_contained(c, u->schema);
    if (range.min > f->items.min) f->items.min = range.min;
}

static bool check_contains(SchemaCompiler *c, const KeywordUse *u, const Json *value) {
    CountRange range = find_contained(c, u->schema);
    uint32_t n = 0;
    for (const Json *item = value->child; item; item = item->next)
        n += schema_holds(c, u->value, item);
    return n >= range.min && n <= range.max;
}

static void mark_contained(SchemaCompiler *c, const KeywordUse *u, const Json *value, bool *marks) {
    for (const Json *item = value->child; item && c->draft >= 2020; item = item->next)
        *marks++ |= schema_holds(c, u->value, item);
}

// A bound of "contains" always holds by itself, so its negation has no branch.
static void negate_contains_bound(SchemaCompiler *c, Conjunction f, const KeywordUse *u) {
    (void)c;
    (void)f;
    (void)u;
}

static const SchemaKeyword keywords[] = {
    {"items", TYPE_ARRAY, VALUE_ITEMS, NULL, negate_items, .check = check_items,
     .mark = mark_items},
    {"prefixItems", TYPE_ARRAY, VALUE_SCHEMAS, NULL, negate_items, .check = check_items,
     .mark = mark_items, .first = 2020},
    {"additionalItems", TYPE_ARRAY, VALUE_SCHEMA, NULL, negate_items, .check = check_items,
     .mark = mark_items},
    {"contains", TYPE_ARRAY, VALUE_SCHEMA, assert_contains, NULL, .check = check_contains,
     .mark = mark_contained, .is_unenforced = true, .is_opaque = true, .first = 6},
    {"minContains maxContains", TYPE_ARRAY, VALUE_COUNT, NULL, negate_contains_bound,
     .first = 2019},
    {"minItems", TYPE_ARRAY, VALUE_COUNT, count_assert, schema_negate, .check = count_check},
    {"maxItems", TYPE_ARRAY, VALUE_COUNT, count_assert, schema_negate, .check = count_check,
     .is_max = true},
    {"uniqueItems", TYPE_ARRAY, VALUE_BOOL, NULL, negate_unique, .check = check_unique},
    {.names = NULL},
};

// Unique items.
//
// "uniqueItems" is enforced for listed values, which the machine counts as bits. Other items are
// left to a check, unless there is only one.

// The values that a schema lists, at most MAX_UNIQUE and distinct.
typedef struct {
    const Json *at[MAX_UNIQUE];
    int n;
} ValueList;

// Adds a value to a list, unless the list has it. False if the list is full.
static bool list_value(SchemaCompiler *c, ValueList *l, const Json *value) {
    for (int i = 0; i < l->n; i++)
        if (json_is_equal(c, l->at[i], value)) return true;
    if (l->n == MAX_UNIQUE) return false;
    l->at[l->n++] = value;
    return true;
}

// Adds all values that satisfy a schema to a list, and perhaps others. False if the schema does not
// list them.
static bool list_values(SchemaCompiler *c, const Json *schema, ValueList *l, int depth) {
    enum { MAX_DEPTH = 8 };
    if (schema->kind != JSON_OBJECT || depth > MAX_DEPTH || !schema_spend(c, 20)) return false;

    const Json *ref = json_get_string(schema, "$ref");
    if (ref) {
        const Json *target = schema_target(c, schema, ref);
        return target && list_values(c, target, l, depth + 1);
    }

    const Json *one = c->draft >= 6 ? json_get(schema, "const") : NULL;
    const Json *choice = json_get(schema, "anyOf");
    bool ok = true;
    if (one) return list_value(c, l, one);
    if (json_get(schema, "enum")) {
        for (const Json *v = schema_items(schema, "enum"); v && ok; v = v->next)
            ok = list_value(c, l, v);
        return ok;
    }
    for (const Json *s = choice ? choice->child : NULL; s && ok; s = s->next)
        ok = list_values(c, s, l, depth + 1);
    return choice && ok;
}

// The "uniqueItems" that has an effect on the arrays of a conjunction, and its schema; or NULL.
static const Json *find_unique(const Conjunction *f, const Json **schema) {
    for (const Conjunct *a = f->conjuncts; a && f->items.max > 1; a = a->next) {
        const Json *unique = a->kind == CONJUNCT_SCHEMA ? json_get(a->schema, "uniqueItems") : NULL;
        *schema = a->schema;
        if (unique && unique->boolean) return unique;
    }
    return NULL;
}

// Makes an array without first items one of distinct values, if one of the n assertions on an item
// lists them. False if none does.
static bool make_unique(SchemaCompiler *c, ArrayDef *d, const SchemaAssertion *assertions, int n) {
    ValueList l = {.n = 0};
    bool is_listed = false;
    for (int i = 0; i < n && !is_listed; i++) {
        l.n = 0;
        is_listed = assertions[i].kind < ASSERT_NOT && list_values(c, assertions[i].json, &l, 0);
    }
    if (!is_listed) return false;

    // The values that satisfy all assertions.
    d->items = arena_alloc(&c->grammar->arena, (size_t)l.n + 1, sizeof(int));
    for (int i = 0; i < l.n; i++) {
        bool fits = true;
        for (int k = 0; k < n && fits; k++) fits = assertion_holds(c, assertions[k], l.at[i]);
        SchemaAssertion equal = {ASSERT_EQUAL, l.at[i]};
        if (fits) d->items[d->n_prefix++] = schema_value(c, &equal, 1);
    }
    d->items[d->n_prefix] = c->never;
    if ((uint32_t)d->n_prefix < d->max) d->max = (uint32_t)d->n_prefix;
    d->is_unique = true;
    return true;
}

// Alternatives.

// The assertions on item i or, if i is the number of first items, on all other items. Returns their
// number.
static int item_assertions(SchemaCompiler *c, const Conjunction *f, int i,
                           SchemaAssertion *assertions) {
    int n = 0;
    for (const Conjunct *a = f->conjuncts; a; a = a->next) {
        if (a->kind == CONJUNCT_ITEM && a->index == i) assertions[n++] = a->assertion;
        if (a->kind != CONJUNCT_SCHEMA) continue;

        const Json *rest;
        const Json *prefix = prefix_of(c, a->schema, &rest);
        const Json *schema = prefix ? prefix->child : NULL;
        for (int k = 0; schema && k < i; k++) schema = schema->next;
        if (!schema) schema = rest;
        if (schema) assertions[n++] = (SchemaAssertion){a->assertion.kind, schema};
    }
    return n;
}

// The number of first items, which have values of their own. Counts the conjuncts.
static int count_first_items(SchemaCompiler *c, const Conjunction *f, size_t *n_conjuncts) {
    int n_first = 0;
    *n_conjuncts = 0;
    for (const Conjunct *a = f->conjuncts; a; a = a->next, ++*n_conjuncts) {
        const Json *rest;
        const Json *prefix = prefix_of(c, a->schema, &rest);
        int n = a->kind == CONJUNCT_ITEM ? a->index + 1 : 0;
        if (a->kind == CONJUNCT_SCHEMA && prefix) n = prefix->n_items;
        if (n > n_first) n_first = n;
    }
    return n_first;
}

static void emit_arrays(SchemaCompiler *c, const Conjunction *f) {
    ArrayDef d = {.min = f->items.min, .max = f->items.max};
    size_t n_conjuncts;
    const Json *schema;
    if (d.min > d.max) return;

    int n_first = count_first_items(c, f, &n_conjuncts);
    SchemaAssertion *assertions = xalloc(n_conjuncts + 1, sizeof *assertions);

    // Distinct items, if the schema asks for them.
    const Json *unique = find_unique(f, &schema);
    int n = unique && !n_first ? item_assertions(c, f, 0, assertions) : 0;
    bool is_unique = n && make_unique(c, &d, assertions, n);
    if (unique && !is_unique && !schema_leave(c, schema, unique))
        schema_fail(c, schema, "uniqueItems",
                    "not supported for more than one item; set it to false");

    // Otherwise the first items, and all others.
    if (!is_unique) {
        d.n_prefix = n_first;
        d.items = arena_alloc(&c->grammar->arena, (size_t)n_first + 1, sizeof(int));
    }
    for (int i = 0; i <= n_first && !is_unique && schema_spend(c, i); i++) {
        n = item_assertions(c, f, i, assertions);
        d.items[i] = schema_value(c, assertions, n);
    }
    free(assertions);

    if (d.min <= d.max) schema_add_alt(c, grammar_add(c->grammar, (Def){DEF_ARRAY, .array = d}));
}

static void split_unequal_arrays(SchemaCompiler *c, Conjunction f, const KeywordUse *u) {
    uint32_t n = (uint32_t)u->value->n_items;
    Conjunction shorter = f, longer = f;

    if (n && n <= f.items.max) shorter.items.max = n - 1;
    if (n) schema_expand(c, shorter);
    if (f.items.min <= n) longer.items.min = n + 1;
    schema_expand(c, longer);

    // An array of the same length, in which one item differs.
    if (f.items.min > n || f.items.max < n) return;
    f.items = (CountRange){n, n};
    split_items(c, f, u, ASSERT_UNEQUAL);
}

static void emit_array_value(SchemaCompiler *c, const Json *array) {
    uint32_t n = (uint32_t)array->n_items;
    ArrayDef d = {.n_prefix = array->n_items, .min = n, .max = n};
    d.items = arena_alloc(&c->grammar->arena, (size_t)n + 1, sizeof(int));

    int i = 0;
    for (const Json *k = array->child; k; k = k->next)
        d.items[i++] = schema_value(c, &(SchemaAssertion){ASSERT_EQUAL, k}, 1);
    schema_add_alt(c, grammar_add(c->grammar, (Def){DEF_ARRAY, .array = d}));
}

const SchemaPart array_part = {keywords, TYPE_ARRAY, emit_arrays, emit_array_value,
                               split_unequal_arrays};
