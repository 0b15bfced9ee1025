// See schema_check.h.
#include "constrain/schema_check.h"
#include "constrain/number.h"

bool json_is_equal(SchemaCompiler *c, const Json *a, const Json *b) {
    long steps = a->kind == JSON_NUMBER ? 8 : 1 + (long)a->string.len / 16;
    if (a->kind != b->kind || !schema_spend(c, steps)) return false;
    if (a->kind == JSON_NUMBER) return number_compare(a, b) == 0;
    if (a->boolean != b->boolean || !str_eq(a->string, b->string) || a->n_items != b->n_items)
        return false; // members that a kind does not use are empty

    const Json *y = b->child;
    for (const Json *x = a->child; x; x = x->next) {
        if (a->kind == JSON_OBJECT) y = schema_member(c, b, x->key);
        if (!y || !json_is_equal(c, x, y)) return false;
        if (a->kind == JSON_ARRAY) y = y->next;
    }
    return true;
}

// True if a value satisfies a keyword. A failure is that of a schema inside the keyword, if this
// one has failed.
static bool keyword_holds(SchemaCompiler *c, const KeywordUse *u, const Json *value) {
    SchemaCheck *check = &c->check;
    check->failed = NULL;
    if (!u->keyword) return true;
    if (u->keyword->is_unsupported) return schema_refuse(c, u, "");
    if (!u->keyword->check || !(u->keyword->types & schema_type_of(c, value))) return true;
    if (u->keyword->check(c, u, value)) return true;

    if (!check->failed || u->keyword->is_opaque) {
        check->failed = value;
        check->use = *u;
    }
    return false;
}

bool schema_holds(SchemaCompiler *c, const Json *schema, const Json *value) {
    enum { MAX_DEPTH = 1000 };
    bool holds = true;

    if (schema->kind == JSON_BOOL) {
        c->check.failed = schema->boolean ? NULL : value;
        c->check.use = (KeywordUse){.schema = schema};
        return schema->boolean;
    }
    if (c->check.depth > MAX_DEPTH)
        return schema_fail(c, schema, NULL, "the schema refers to itself without end");
    if (!schema_spend(c, 80)) return false;

    c->check.depth++;
    KeywordUse u = {.schema = schema, .has_siblings = c->reads_siblings};
    while (holds && schema_next(c, &u) && !c->failed) holds = keyword_holds(c, &u, value);
    c->check.depth--;
    return holds && !c->failed;
}

void schema_mark_others(SchemaCompiler *c, const KeywordUse *u, const Json *value, bool *marks) {
    unsigned type = schema_type_of(c, value);
    KeywordUse other = {.schema = u->schema};
    while (schema_next(c, &other) && !c->failed)
        if (other.keyword && other.keyword != u->keyword && other.keyword->mark &&
            other.keyword->types & type)
            other.keyword->mark(c, &other, value, marks);
}

void schema_mark(SchemaCompiler *c, const Json *schema, const Json *value, bool *marks) {
    if (schema->kind == JSON_OBJECT && schema_holds(c, schema, value))
        schema_mark_others(c, &(KeywordUse){.schema = schema}, value, marks);
}

bool assertion_holds(SchemaCompiler *c, SchemaAssertion a, const Json *value) {
    if (a.kind == ASSERT_EQUAL) return json_is_equal(c, a.json, value);
    if (a.kind == ASSERT_UNEQUAL) return !json_is_equal(c, a.json, value);
    if (a.kind == ASSERT_NOT) return !schema_holds(c, a.json, value);

    // The schema holds with and without the siblings of each $ref.
    bool holds = schema_holds(c, a.json, value);
    c->reads_siblings = true;
    holds = holds && schema_holds(c, a.json, value);
    c->reads_siblings = false;
    return holds;
}
