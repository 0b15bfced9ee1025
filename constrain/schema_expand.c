// See schema_expand.h.
// Order: values, conjunctions and their expansion, bounds.
#include "constrain/schema_expand.h"

enum { MAX_ALTS = 600, MAX_EXPAND_DEPTH = 400, MAX_VALUES = 20000 };

struct PendingAssertion {
    SchemaAssertion assertion;
    const PendingAssertion *next;
};

struct PendingBranch {
    SchemaSplit *split;
    KeywordUse use;
    const PendingBranch *next;
};

// Values.

// True if all keywords of a schema except `other` (may be NULL) are annotations.
static bool has_annotations_only(SchemaCompiler *c, const Json *schema, const Json *other) {
    for (const Json *k = schema->child; k; k = k->next) {
        const SchemaKeyword *keyword = schema_keyword(c, k->key);
        if (k != other && (!keyword || !keyword->is_annotation)) return false;
    }
    return schema->kind == JSON_OBJECT;
}

bool schema_is_trivial(SchemaCompiler *c, const Json *schema) {
    return schema->kind == JSON_BOOL ? schema->boolean : has_annotations_only(c, schema, NULL);
}

// Replaces a schema that has only a $ref and annotations by its target, and a schema by the first
// that says the same. False after a failure.
static bool resolve(SchemaCompiler *c, SchemaAssertion *a) {
    enum { MAX_STEPS = 64 };
    for (int i = 0; a->kind <= ASSERT_NOT && a->json && i < MAX_STEPS; i++) {
        const Json *ref = json_get_string(a->json, "$ref");
        bool is_hiding = c->draft <= 7 && a->kind == ASSERT_NOT;
        if (!ref || (!is_hiding && !has_annotations_only(c, a->json, ref))) break;
        a->json = schema_target(c, a->json, ref);
    }
    if (a->kind <= ASSERT_NOT && a->json && a->json->kind == JSON_OBJECT)
        a->json = schema_info(c, a->json)->same;
    return a->json;
}

// Orders assertions by kind, then by their place in the document, so that the result of a
// compilation does not depend on addresses.
static int compare_assertions(const void *a, const void *b) {
    const SchemaAssertion *x = a, *y = b;
    if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
    return (x->json > y->json) - (x->json < y->json);
}

int schema_value(SchemaCompiler *c, SchemaAssertion *assertions, int n) {
    int n_kept = 0;
    bool is_never = false, is_new;

    // Remove assertions that always hold.
    for (int i = 0; i < n; i++) {
        SchemaAssertion a = assertions[i];
        if (!resolve(c, &a)) return c->never;
        if (a.kind <= ASSERT_NOT) {
            bool is_true = schema_is_trivial(c, a.json);
            bool is_false = a.json->kind == JSON_BOOL && !a.json->boolean;
            is_never |= a.kind == ASSERT_NOT ? is_true : is_false;
            if (a.kind == ASSERT_NOT ? is_false : is_true) continue;
        }
        memset(&assertions[n_kept], 0, sizeof a); // also padding: sets are compared by their bytes
        assertions[n_kept].kind = a.kind;
        assertions[n_kept++].json = a.json;
    }

    if (is_never) return c->never;

    // Sort them, and remove duplicates.
    size_t n_distinct =
        list_unique(assertions, (size_t)n_kept, sizeof *assertions, compare_assertions);

    // Equal sets share a value.
    int place = intern_add(&c->values, assertions, n_distinct * sizeof *assertions, &is_new);
    if (place >= MAX_VALUES) schema_too_complex(c, MAX_VALUES, "places");
    if (is_new) grammar_add_value(c->grammar);
    return c->never + place;
}

// Conjunctions.

Conjunction conjunction_new(void) {
    CountRange any = {0, NO_LIMIT};
    return (Conjunction){
        .types = TYPE_ANY, .n_values = ANY_VALUE, .length = any, .items = any, .properties = any};
}

Conjunct *conjunction_add(SchemaCompiler *c, Conjunction *f, ConjunctKind kind,
                          const KeywordUse *u) {
    Conjunct *a = arena_alloc(&c->arena, 1, sizeof *a);
    *a = (Conjunct){.kind = kind,
                    .schema = u->schema,
                    .json = u->value,
                    .is_negated = u->is_negated,
                    .assertion = {.kind = u->kind},
                    .next = f->conjuncts};
    f->conjuncts = a;
    return a;
}

void conjunction_assert(SchemaCompiler *c, Conjunction *f, AssertionKind kind, const Json *json) {
    PendingAssertion *p = arena_alloc(&c->arena, 1, sizeof *p);
    if (!c->is_closed && kind < ASSERT_NOT) kind = ASSERT_SCHEMA;
    *p = (PendingAssertion){{kind, json}, f->assertions};
    f->assertions = p;
}

void conjunction_postpone(SchemaCompiler *c, Conjunction *f, const KeywordUse *u,
                          SchemaSplit *split) {
    PendingBranch *p = arena_alloc(&c->arena, 1, sizeof *p);
    *p = (PendingBranch){split, *u, f->branches};
    f->branches = p;
}

// Expands the branches of the values that differ from u->value, an array or object.
static void split_unequal(SchemaCompiler *c, Conjunction f, const KeywordUse *u) {
    unsigned type = schema_type_of(c, u->value);
    Conjunction other = f;
    other.types &= ~type;
    schema_expand(c, other);

    f.types &= type;
    if (f.types) schema_part(c, type)->split_unequal(c, f, u);
}

void conjunction_exclude(SchemaCompiler *c, Conjunction *f, const KeywordUse *u, const Json *v,
                         int n) {
    Conjunct *a = conjunction_add(c, f, CONJUNCT_NOT_EQUAL, u);
    a->json = v;
    a->n_values = n;

    for (; n-- > 0 && schema_spend(c, 20); v = v->next) {
        unsigned type = schema_type_of(c, v);
        if (type & (TYPE_NULL | TYPE_TRUE | TYPE_FALSE)) f->types &= ~type;
        if (type & f->types & (TYPE_ARRAY | TYPE_OBJECT))
            conjunction_postpone(c, f, &(KeywordUse){.schema = u->schema, .value = v},
                                 split_unequal);
    }
}

void schema_negate(SchemaCompiler *c, Conjunction f, const KeywordUse *u) {
    u->keyword->assert(c, &f, u);
    schema_expand(c, f);
}

void schema_leave_negation(SchemaCompiler *c, Conjunction f, const KeywordUse *u) {
    if (schema_leave(c, u->schema, u->value))
        schema_expand(c, f);
    else
        schema_fail(c, u->schema, NULL,
                    "\"%.*s\" under \"not\" or in a \"oneOf\" whose branches overlap is not "
                    "supported; use \"anyOf\"",
                    SHOWN(u->value->key));
}

// Expands one branch for each keyword of the schema, in which this keyword does not hold.
static void split_not(SchemaCompiler *c, Conjunction f, const KeywordUse *u) {
    KeywordUse part = {.schema = u->schema, .is_negated = true};
    while (schema_next(c, &part) && !c->failed) {
        if (!part.keyword || part.keyword->is_annotation) continue;

        Conjunction branch = f;
        branch.types &= part.keyword->types;
        if (part.keyword->negate)
            part.keyword->negate(c, branch, &part);
        else
            schema_leave_negation(c, branch, &part);
    }
}

static void assert_keyword(SchemaCompiler *c, Conjunction *f, const KeywordUse *u) {
    const SchemaKeyword *keyword = u->keyword;
    bool is_left = keyword->is_unenforced && schema_leave(c, u->schema, u->value);
    if (keyword->is_unsupported || (keyword->is_unenforced && !is_left))
        schema_refuse(c, u, "");
    else if (keyword->split)
        conjunction_postpone(c, f, u, keyword->split);
    else if (keyword->assert)
        keyword->assert(c, f, u);
}

static void assert_schema(SchemaCompiler *c, Conjunction *f, AssertionKind kind,
                          const Json *schema) {
    KeywordUse u = {.schema = schema, .kind = kind, .has_siblings = true};

    // A schema that was asserted before, e.g. by another $ref, adds nothing.
    for (const Conjunct *a = f->conjuncts; a && schema_spend(c, 1); a = a->next)
        if (a->kind == CONJUNCT_SCHEMA && a->schema == schema && a->assertion.kind <= kind) return;
    conjunction_add(c, f, CONJUNCT_SCHEMA, &u);

    while (schema_next(c, &u) && !c->failed) {
        if (u.keyword)
            assert_keyword(c, f, &u);
        else
            schema_note_unknown(c, schema, u.value->key);
    }
}

// Expands one assertion into the conjunction.
static void apply(SchemaCompiler *c, Conjunction *f, SchemaAssertion a) {
    bool is_not = a.kind == ASSERT_NOT;
    if (!schema_spend(c, 160) || !resolve(c, &a)) return;

    if (a.kind == ASSERT_EQUAL) {
        f->values = a.json;
        f->n_values = 1;
    } else if (a.kind == ASSERT_UNEQUAL) {
        conjunction_exclude(c, f, &(KeywordUse){.schema = c->root}, a.json, 1);
    } else if (a.json->kind == JSON_BOOL) {
        if (a.json->boolean == is_not) f->types = 0;
    } else if (is_not) {
        conjunction_postpone(c, f, &(KeywordUse){.schema = a.json}, split_not);
    } else {
        assert_schema(c, f, a.kind, a.json);
    }
}

void schema_expand(SchemaCompiler *c, Conjunction f) {
    if (++c->expand_depth > MAX_EXPAND_DEPTH)
        schema_fail(c, f.branches ? f.branches->use.schema : NULL, NULL,
                    "choices are nested too deeply");

    // Applying an assertion may add assertions and choices.
    while (f.assertions && f.types && !c->failed) {
        SchemaAssertion a = f.assertions->assertion;
        f.assertions = f.assertions->next;
        apply(c, &f, a);
    }

    // The latest choice splits the conjunction. A conjunction without choices is emitted. Listed
    // values are checked against all assertions, so they need no branches.
    bool is_empty = !f.types || (f.types == TYPE_STRING && f.length.min > f.length.max);
    if (!c->failed && !is_empty) {
        bool is_listed = f.n_values != ANY_VALUE;
        if (f.branches && !is_listed) {
            const PendingBranch *p = f.branches;
            f.branches = p->next;
            p->split(c, f, &p->use);
        } else if (!is_listed && ++c->target.n_alts > MAX_ALTS) {
            schema_too_complex(c, MAX_ALTS, "combinations of choices");
        } else {
            c->emit(c, &f);
        }
    }
    c->expand_depth--;
}

void schema_expand_with(SchemaCompiler *c, Conjunction f, AssertionKind kind, const Json *json) {
    conjunction_assert(c, &f, kind, json);
    schema_expand(c, f);
}

void schema_compile_value(SchemaCompiler *c, int value) {
    Conjunction f = conjunction_new();
    size_t len = c->values.len[value - c->never];
    SchemaAssertion *assertions = arena_alloc(&c->arena, 1, len + 1);
    memcpy(assertions, intern_key(&c->values, value - c->never), len); // the key moves later
    c->target = (CompileTarget){.value = value,
                                .assertions = assertions,
                                .n_assertions = (int)(len / sizeof *assertions),
                                .place = len ? assertions->json : NULL};

    for (int i = c->target.n_assertions; i-- > 0;)
        conjunction_assert(c, &f, assertions[i].kind, assertions[i].json);
    schema_expand(c, f);
}

// Bounds on counts.

void count_assert(SchemaCompiler *c, Conjunction *f, const KeywordUse *u) {
    (void)c;
    CountRange *r = &f->properties;
    if (u->keyword->types == TYPE_STRING) r = &f->length;
    if (u->keyword->types == TYPE_ARRAY) r = &f->items;

    // The negation of a maximum of n is a minimum of n + 1.
    uint32_t n = u->value->number < 4e9 ? (uint32_t)u->value->number : NO_LIMIT;
    bool is_max = u->keyword->is_max;
    if (u->is_negated) {
        if (n == (is_max ? NO_LIMIT : 0)) f->types = 0; // the keyword always holds
        n = is_max ? n + 1 : n - 1;
        is_max = !is_max;
    }

    if (is_max && n < r->max) r->max = n;
    if (!is_max && n > r->min) r->min = n;
}

bool count_check(SchemaCompiler *c, const KeywordUse *u, const Json *value) {
    (void)c;
    double n = value->n_items;
    if (value->kind == JSON_STRING) n = (double)utf8_length(value->string.data, value->string.len);
    return u->keyword->is_max ? n <= u->value->number : n >= u->value->number;
}
