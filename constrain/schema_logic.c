// Logic: type, $ref, allOf, anyOf, oneOf, not, if, then and else. See schema_keywords.h.
// Order: type, disjoint schemas, not, allOf to oneOf, if.
#include "constrain/schema_keywords.h"

// Type.

static unsigned find_named_types(SchemaCompiler *c, const KeywordUse *u) {
    static const struct {
        const char *name;
        unsigned types;
    } names[] = {{"null", TYPE_NULL},       {"boolean", TYPE_TRUE | TYPE_FALSE},
                 {"integer", TYPE_INTEGER}, {"number", TYPE_NUMBER},
                 {"string", TYPE_STRING},   {"array", TYPE_ARRAY},
                 {"object", TYPE_OBJECT}};
    const Json *type = u->value;
    unsigned types = 0;

    if (type->kind == JSON_ARRAY) {
        for (const Json *t = type->child; t; t = t->next)
            types |= find_named_types(c, &(KeywordUse){.schema = u->schema, .value = t});
        return types;
    }

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (json_is(type, names[i].name)) return names[i].types;
    schema_fail(c, u->schema, "type",
                "\"%.*s\" is not a type; expected null, boolean, integer, number, string, array or "
                "object; {} allows any value",
                SHOWN(type->string));
    return 0;
}

static void assert_type(SchemaCompiler *c, Conjunction *f, const KeywordUse *u) {
    unsigned types = find_named_types(c, u);
    f->types &= u->is_negated ? ~types : types;
}

static bool check_type(SchemaCompiler *c, const KeywordUse *u, const Json *value) {
    return find_named_types(c, u) & schema_type_of(c, value);
}

// Disjoint schemas.
//
// Two schemas are disjoint if no value satisfies both. The functions below can miss that schemas
// are disjoint, but they never return true for schemas that have a value in common.

static bool are_disjoint(SchemaCompiler *c, const Json *a, const Json *b, int depth);

// A superset of the types of the values that satisfy a schema. It is found once for each schema,
// because the same definitions are reached through many references.
static unsigned find_types(SchemaCompiler *c, const Json *schema) {
    enum { MAX_DEPTH = 64 };
    if (schema->kind == JSON_BOOL) return schema->boolean ? TYPE_ANY : 0;
    if (schema->kind != JSON_OBJECT || c->type_depth > MAX_DEPTH || !schema_spend(c, 2))
        return TYPE_ANY;

    SchemaInfo *info = schema_info(c, schema);
    if (info->has_types) return info->types; // any, within a circle of references
    info->has_types = true;

    c->type_depth++;
    KeywordUse u = {.schema = schema};
    while (schema_spend(c, 20) && schema_next(c, &u))
        if (u.keyword && u.keyword->find_types) info->types &= u.keyword->find_types(c, &u);
    c->type_depth--;
    return info->types;
}

// The first of the n schemas of allOf, anyOf or oneOf. $ref is treated as an allOf with one schema,
// its target.
static const Json *find_parts(SchemaCompiler *c, const KeywordUse *u, int *n) {
    *n = u->value->n_items;
    if (!str_is(u->value->key, "$ref")) return u->value->child;
    const Json *target = schema_target(c, u->schema, u->value);
    *n = target ? 1 : 0;
    return target;
}

static bool is_all_of(const KeywordUse *u) {
    return str_is(u->value->key, "allOf") || str_is(u->value->key, "$ref");
}

static unsigned find_part_types(SchemaCompiler *c, const KeywordUse *u) {
    bool is_all = is_all_of(u);
    unsigned types = is_all ? TYPE_ANY : 0;
    int n;
    for (const Json *s = find_parts(c, u, &n); n > 0; n--, s = s->next)
        types = is_all ? types & find_types(c, s) : types | find_types(c, s);
    return types;
}

static bool has_ref_only(const SchemaCompiler *c, const Json *schema) {
    return c->draft <= 7 && json_get(schema, "$ref");
}

// True if `a` lists its values ("const", "enum") and none of the values satisfies b.
static bool values_are_disjoint(SchemaCompiler *c, const Json *a, const Json *b) {
    const Json *one = c->draft >= 6 ? json_get(a, "const") : NULL;
    const Json *list = json_get(a, "enum");
    if ((!one && !list) || has_ref_only(c, a)) return false;

    bool had_failed = c->failed, is_disjoint = true;
    c->quiet++; // if b cannot be checked, the schemas count as not disjoint
    if (one) is_disjoint = !schema_holds(c, b, one);
    for (const Json *v = one ? NULL : list->child; v && is_disjoint; v = v->next)
        is_disjoint = !schema_holds(c, b, v);
    c->quiet--;

    is_disjoint = is_disjoint && !c->failed;
    c->failed = had_failed;
    return is_disjoint;
}

static bool is_required(const Json *schema, Str name) {
    const Json *r = schema_items(schema, "required");
    while (r && !str_eq(r->string, name)) r = r->next;
    return r;
}

// True if b does not allow a property that `a` requires, or if the schemas of a property in `a` and
// b are disjoint and one of them requires this property.
static bool properties_are_disjoint(SchemaCompiler *c, const Json *a, const Json *b, int depth) {
    const Json *others = json_get(b, "additionalProperties");
    const Json *in_b = json_get(b, "properties");

    bool is_closed = others && others->kind == JSON_BOOL && !others->boolean &&
                     !json_get(b, "patternProperties");
    const Json *r = is_closed ? schema_items(a, "required") : NULL;
    for (; r; r = r->next)
        if (!schema_member(c, in_b, r->string)) return true;

    for (const Json *p = schema_items(a, "properties"); p; p = p->next) {
        const Json *q = schema_member(c, in_b, p->key);
        if (q && (is_required(a, p->key) || is_required(b, p->key)) &&
            are_disjoint(c, p, q, depth + 1))
            return true;
    }
    return false;
}

// True if b is disjoint from a part of `a` that all values of `a` satisfy: the target of $ref, one
// schema of allOf, or every schema of anyOf or oneOf.
static bool parts_are_disjoint(SchemaCompiler *c, const Json *a, const Json *b, int depth) {
    KeywordUse u = {.schema = a};
    while (schema_next(c, &u)) {
        int n, n_disjoint = 0;
        if (!u.keyword || u.keyword->find_types != find_part_types) continue;

        const Json *s = find_parts(c, &u, &n);
        for (int i = 0; i < n; i++, s = s->next) n_disjoint += are_disjoint(c, s, b, depth + 1);
        if (is_all_of(&u) ? n_disjoint > 0 : n_disjoint == n) return true;
    }
    return false;
}

static bool are_disjoint(SchemaCompiler *c, const Json *a, const Json *b, int depth) {
    enum { MAX_DEPTH = 6 };
    unsigned types = find_types(c, a) & find_types(c, b);
    if (!types) return true;
    if (a->kind != JSON_OBJECT || b->kind != JSON_OBJECT || depth > MAX_DEPTH ||
        !schema_spend(c, 320))
        return false;

    if (values_are_disjoint(c, a, b) || values_are_disjoint(c, b, a)) return true;
    if (parts_are_disjoint(c, a, b, depth) || parts_are_disjoint(c, b, a, depth)) return true;
    if (types != TYPE_OBJECT || has_ref_only(c, a) || has_ref_only(c, b)) return false;
    return properties_are_disjoint(c, a, b, depth) || properties_are_disjoint(c, b, a, depth);
}

// Not.

static void assert_not(SchemaCompiler *c, Conjunction *f, const KeywordUse *u) {
    conjunction_assert(c, f, u->is_negated ? ASSERT_UNDER_NOT : ASSERT_NOT, u->value);
}

static bool check_not(SchemaCompiler *c, const KeywordUse *u, const Json *value) {
    return !schema_holds(c, u->value, value);
}

// $ref, allOf, anyOf, oneOf.

static void assert_all_of(SchemaCompiler *c, Conjunction *f, const KeywordUse *u) {
    int n;
    for (const Json *s = find_parts(c, u, &n); n > 0; n--, s = s->next)
        conjunction_assert(c, f, u->kind, s);
}

static void negate_all_of(SchemaCompiler *c, Conjunction f, const KeywordUse *u) {
    int n;
    for (const Json *s = find_parts(c, u, &n); n > 0 && !c->failed; n--, s = s->next)
        schema_expand_with(c, f, ASSERT_NOT, s);
}

// False if it does not matter for closed objects whether a schema holds, because it describes no
// properties or all of them. May be true for other schemas.
static bool may_describe(SchemaCompiler *c, const Json *schema, AssertionKind kind) {
    static const char describing[] =
        "properties patternProperties required $ref allOf anyOf oneOf if dependencies "
        "dependentRequired dependentSchemas";
    KeywordUse u = {.schema = schema};
    bool is_found = false;
    bool is_object = c->is_closed && find_types(c, schema) & TYPE_OBJECT;
    if (!is_object || kind == ASSERT_UNDER_NOT) return false;

    while (schema_next(c, &u)) {
        if (str_is(u.value->key, "additionalProperties")) return false;
        is_found |= str_is_one_of(u.value->key, describing);
    }
    return is_found;
}

// Expands the branch in which it does not matter whether a schema holds. If the schema may describe
// properties, expands the branch in which it holds, too.
static void split_optional(SchemaCompiler *c, Conjunction f, const KeywordUse *u) {
    schema_expand(c, f);
    if (may_describe(c, u->value, u->kind)) schema_expand_with(c, f, u->kind, u->value);
}

// Expands one branch for each schema. For oneOf, a branch excludes all other schemas. For anyOf,
// the later schemas are optional if their properties count together. The number of branches is
// exponential, so long lists are alternatives of which each is closed by itself.
static void split_choice(SchemaCompiler *c, Conjunction f, const KeywordUse *u) {
    enum { MAX_JOINED = 6 };
    bool is_one_of = str_is(u->value->key, "oneOf");
    for (const Json *s = u->value->child; s && !c->failed; s = s->next) {
        Conjunction branch = f;
        bool is_joined = u->value->n_items <= MAX_JOINED && may_describe(c, s, u->kind);
        const Json *other = is_one_of ? u->value->child : s->next;
        for (; other && (is_one_of || is_joined); other = other->next) {
            KeywordUse part = {.schema = u->schema, .value = other, .kind = u->kind};
            if (other == s || are_disjoint(c, s, other, 0)) continue;
            if (is_one_of)
                conjunction_assert(c, &branch, ASSERT_NOT, other);
            else
                conjunction_postpone(c, &branch, &part, split_optional);
        }
        schema_expand_with(c, branch, u->kind, s);
    }
}

static void negate_any_of(SchemaCompiler *c, Conjunction f, const KeywordUse *u) {
    for (const Json *s = u->value->child; s; s = s->next) conjunction_assert(c, &f, ASSERT_NOT, s);
    schema_expand(c, f);
}

// Expands the branch in which no schema holds, and one branch for every two schemas that both hold.
static void negate_one_of(SchemaCompiler *c, Conjunction f, const KeywordUse *u) {
    negate_any_of(c, f, u);
    for (const Json *a = u->value->child; a && !c->failed; a = a->next)
        for (const Json *b = a->next; b && !c->failed; b = b->next) {
            if (are_disjoint(c, a, b, 0)) continue;
            Conjunction both = f;
            conjunction_assert(c, &both, ASSERT_UNDER_NOT, a);
            schema_expand_with(c, both, ASSERT_UNDER_NOT, b);
        }
}

static bool check_parts(SchemaCompiler *c, const KeywordUse *u, const Json *value) {
    bool is_all = is_all_of(u), is_one = str_is(u->value->key, "oneOf");
    int n, n_fit = 0;
    const Json *s = find_parts(c, u, &n);
    for (int i = 0; i < n; i++, s = s->next) {
        bool holds = schema_holds(c, s, value);
        if (holds != is_all && !is_one) return holds; // the first that decides
        n_fit += holds;
    }
    return is_one ? n_fit == 1 : is_all;
}

static void mark_parts(SchemaCompiler *c, const KeywordUse *u, const Json *value, bool *marks) {
    int n;
    for (const Json *s = find_parts(c, u, &n); n > 0; n--, s = s->next)
        schema_mark(c, s, value, marks);
}

// If, then, else.

// Expands the branch in which the condition holds, and the branch in which it does not. In the
// first, "then" is asserted as `kind`; in the second, "else".
static void split_condition(SchemaCompiler *c, Conjunction f, const KeywordUse *u,
                            AssertionKind kind) {
    AssertionKind condition = kind <= ASSERT_CONDITION ? ASSERT_CONDITION : ASSERT_UNDER_NOT;
    for (int is_else = 0; is_else < 2; is_else++) {
        Conjunction branch = f;
        const Json *consequence = json_get(u->schema, is_else ? "else" : "then");
        conjunction_assert(c, &branch, is_else ? ASSERT_NOT : condition, u->value);
        if (consequence)
            schema_expand_with(c, branch, kind, consequence);
        else if (kind != ASSERT_NOT) // a missing "then" or "else" always holds
            schema_expand(c, branch);
    }
}

static void split_if(SchemaCompiler *c, Conjunction f, const KeywordUse *u) {
    KeywordUse part = *u;
    if (part.kind == ASSERT_SCHEMA) part.kind = ASSERT_CONDITION;
    if (json_get(u->schema, "then") || json_get(u->schema, "else"))
        split_condition(c, f, u, u->kind);
    else
        split_optional(c, f, &part); // a condition alone describes properties
}

static void negate_if(SchemaCompiler *c, Conjunction f, const KeywordUse *u) {
    split_condition(c, f, u, ASSERT_NOT);
}

static bool check_if(SchemaCompiler *c, const KeywordUse *u, const Json *value) {
    bool holds = schema_holds(c, u->value, value);
    const Json *consequence = json_get(u->schema, holds ? "then" : "else");
    return !consequence || schema_holds(c, consequence, value);
}

static void mark_if(SchemaCompiler *c, const KeywordUse *u, const Json *value, bool *marks) {
    const Json *consequence =
        json_get(u->schema, schema_holds(c, u->value, value) ? "then" : "else");
    schema_mark(c, u->value, value, marks);
    if (consequence) schema_mark(c, consequence, value, marks);
}

static const SchemaKeyword keywords[] = {
    {"$ref", TYPE_ANY, VALUE_STRING, assert_all_of, negate_all_of, .check = check_parts,
     .mark = mark_parts, .find_types = find_part_types},
    {"type", TYPE_ANY, VALUE_NAME_OR_NAMES, assert_type, schema_negate, .check = check_type,
     .find_types = find_named_types},
    {"allOf", TYPE_ANY, VALUE_SCHEMAS, assert_all_of, negate_all_of, .check = check_parts,
     .mark = mark_parts, .find_types = find_part_types},
    {"anyOf", TYPE_ANY, VALUE_SCHEMAS, NULL, negate_any_of, .check = check_parts,
     .mark = mark_parts, .split = split_choice, .find_types = find_part_types, .is_opaque = true},
    {"oneOf", TYPE_ANY, VALUE_SCHEMAS, NULL, negate_one_of, .check = check_parts,
     .mark = mark_parts, .split = split_choice, .find_types = find_part_types, .is_opaque = true},
    {"not", TYPE_ANY, VALUE_SCHEMA, assert_not, schema_negate, .check = check_not,
     .is_opaque = true},
    {"if", TYPE_ANY, VALUE_SCHEMA, NULL, negate_if, .check = check_if, .mark = mark_if,
     .split = split_if, .first = 7},
    {.names = NULL},
};

const SchemaPart logic_part = {.keywords = keywords};
