// Whether a value that is known (one of "enum", a name) fits a schema, and whether two schemas
// surely share no value.
#include "schema.h"

#include <math.h>
#include <string.h>

enum { MAX_DEPTH = 100 };

bool json_equal(const Json *a, const Json *b) {
    if (a->kind != b->kind) return false;
    switch (a->kind) {
    case JSON_NULL: return true;
    case JSON_BOOL: return a->boolean == b->boolean;
    case JSON_NUMBER: return a->number == b->number;
    case JSON_STRING: return str_eq(a->string, b->string);
    default: break;
    }
    if (a->n_items != b->n_items) return false;
    const Json *y = b->child;
    for (const Json *x = a->child; x; x = x->next) {
        if (a->kind == JSON_OBJECT)
            for (y = b->child; y && !str_eq(x->key, y->key);) y = y->next;
        if (!y || !json_equal(x, y)) return false;
        if (a->kind == JSON_ARRAY) y = y->next;
    }
    return true;
}

unsigned json_type(const Compiler *c, const Json *v) {
    (void)c;
    switch (v->kind) {
    case JSON_NULL: return IS_NULL;
    case JSON_BOOL: return v->boolean ? IS_TRUE : IS_FALSE;
    case JSON_NUMBER: return v->number == floor(v->number) ? IS_INTEGER : IS_FRACTION;
    case JSON_STRING: return IS_STRING;
    case JSON_ARRAY: return IS_ARRAY;
    default: return IS_OBJECT;
    }
}

static uint32_t count_chars(Str s) {
    uint32_t n = 0;
    for (size_t i = 0; i < s.len; i++) n += ((unsigned char)s.data[i] & 0xc0) != 0x80;
    return n;
}

static bool has_member(const Json *object, Str name) {
    for (const Json *m = object->child; m; m = m->next)
        if (str_eq(m->key, name)) return true;
    return false;
}

static const Json *member(const Json *object, Str name) {
    for (const Json *m = object ? object->child : NULL; m; m = m->next)
        if (str_eq(m->key, name)) return m;
    return NULL;
}

static int n_holding(Compiler *c, const Json *schemas, const Json *value, int depth) {
    int n = 0;
    for (const Json *s = schemas->child; s; s = s->next) n += schema_holds(c, s, value, depth);
    return n;
}

static bool property_holds(Compiler *c, const Json *schema, const Json *value, int depth) {
    const Json *named = member(json_get(schema, "properties"), value->key),
               *patterns = json_get(schema, "patternProperties");
    const Json *others = json_get(schema, "additionalProperties");
    bool is_named = named != NULL;
    if (named && !schema_holds(c, named, value, depth)) return false;
    for (const Json *p = patterns ? patterns->child : NULL; p; p = p->next) {
        int dfa = schema_pattern(c, schema, p->key);
        if (dfa < 0 || !dfa_match(&c->c->dfas[dfa], value->key)) continue;
        is_named = true;
        if (!schema_holds(c, p, value, depth)) return false;
    }
    return is_named || !others || schema_holds(c, others, value, depth);
}

static bool items_hold(Compiler *c, const Json *schema, const Json *value, int depth) {
    const Json *items = json_get(schema, "items"), *prefix = json_get(schema, "prefixItems"),
               *rest = items;
    if (items && items->kind == JSON_ARRAY)
        prefix = items, rest = json_get(schema, "additionalItems");
    const Json *p = prefix ? prefix->child : NULL;
    for (const Json *v = value->child; v; v = v->next) {
        const Json *s = p ? p : rest;
        if (s && !schema_holds(c, s, v, depth)) return false;
        if (p) p = p->next;
    }
    return true;
}

static bool depends_hold(Compiler *c, const Json *k, const Json *value, int depth) {
    for (const Json *d = k->child; d; d = d->next) {
        if (!has_member(value, d->key)) continue;
        if (d->kind != JSON_ARRAY) {
            if (!schema_holds(c, d, value, depth)) return false;
            continue;
        }
        for (const Json *name = d->child; name; name = name->next)
            if (name->kind == JSON_STRING && !has_member(value, name->string)) return false;
    }
    return true;
}

static bool names_hold(Compiler *c, const Json *k, const Json *value, int depth) {
    for (const Json *m = value->child; m; m = m->next) {
        Json name = {.kind = JSON_STRING, .string = m->key};
        if (!schema_holds(c, k, &name, depth)) return false;
    }
    return true;
}

static bool is_one_of(const Json *list, const Json *value) {
    for (const Json *v = list->child; v; v = v->next)
        if (json_equal(v, value)) return true;
    return false;
}

static bool string_holds(Compiler *c, Keyword kind, const Json *schema, const Json *k, Str s) {
    uint32_t max = NO_LIMIT;
    if (kind == K_MIN_LENGTH) return count_chars(s) >= k->number;
    if (kind == K_MAX_LENGTH) return count_chars(s) <= k->number;
    int dfa = kind == K_PATTERN ? schema_pattern(c, schema, k->string)
                                : schema_format(c, schema, k->string, &max);
    return dfa < 0 || (dfa_match(&c->c->dfas[dfa], s) && count_chars(s) <= max);
}

static bool number_holds(Keyword kind, const Json *schema, const Json *k, double x) {
    const Json *strict =
        json_get(schema, kind == K_MINIMUM ? "exclusiveMinimum" : "exclusiveMaximum");
    bool is_strict = strict && strict->kind == JSON_BOOL && strict->boolean; // draft 4
    switch (kind) {
    case K_MINIMUM: return x > k->number || (!is_strict && x == k->number);
    case K_MAXIMUM: return x < k->number || (!is_strict && x == k->number);
    case K_OVER: return k->kind == JSON_BOOL || x > k->number;
    case K_UNDER: return k->kind == JSON_BOOL || x < k->number;
    default: return fmod(x, k->number) == 0;
    }
}

static bool keyword_holds(Compiler *c, Keyword kind, const Json *schema, const Json *k,
                          const Json *v, int depth) {
    const Json *branch;
    switch (kind) {
    case K_REF:
        branch = schema_target(c, schema, k);
        return branch && schema_holds(c, branch, v, depth);
    case K_TYPE: return schema_types(c, schema, k) & json_type(c, v);
    case K_ENUM: return is_one_of(k, v);
    case K_CONST: return json_equal(k, v);
    case K_ALL_OF: return n_holding(c, k, v, depth) == k->n_items;
    case K_ANY_OF: return n_holding(c, k, v, depth) > 0;
    case K_ONE_OF: return n_holding(c, k, v, depth) == 1;
    case K_NOT: return !schema_holds(c, k, v, depth);
    case K_IF:
        branch = json_get(schema, schema_holds(c, k, v, depth) ? "then" : "else");
        return !branch || schema_holds(c, branch, v, depth);
    default: break;
    }
    if (v->kind == JSON_STRING && kind >= K_MIN_LENGTH && kind <= K_FORMAT)
        return string_holds(c, kind, schema, k, v->string);
    if (v->kind == JSON_NUMBER && kind >= K_MINIMUM && kind <= K_MULTIPLE)
        return number_holds(kind, schema, k, v->number);
    if (v->kind == JSON_ARRAY) {
        if (kind == K_MIN_ITEMS) return v->n_items >= k->number;
        if (kind == K_MAX_ITEMS) return v->n_items <= k->number;
        if (kind == K_ARRAY) return items_hold(c, schema, v, depth);
        if (kind == K_UNIQUE && k->boolean)
            for (const Json *a = v->child; a; a = a->next)
                for (const Json *b = a->next; b; b = b->next)
                    if (json_equal(a, b)) return false;
    }
    if (v->kind != JSON_OBJECT) return true;
    if (kind == K_MIN_PROPERTIES) return v->n_items >= k->number;
    if (kind == K_MAX_PROPERTIES) return v->n_items <= k->number;
    if (kind == K_DEPENDENCIES) return depends_hold(c, k, v, depth);
    if (kind == K_NAMES) return names_hold(c, k, v, depth);
    if (kind == K_REQUIRED)
        for (const Json *name = k->child; name; name = name->next)
            if (name->kind == JSON_STRING && !has_member(v, name->string)) return false;
    if (kind == K_OBJECT)
        for (const Json *m = v->child; m; m = m->next)
            if (!property_holds(c, schema, m, depth)) return false;
    return true;
}

bool schema_holds(Compiler *c, const Json *schema, const Json *value, int depth) {
    if (schema->kind == JSON_BOOL) return schema->boolean;
    if (schema->kind != JSON_OBJECT) return schema_fail(c, schema, NULL, "expected a schema");
    if (depth > MAX_DEPTH) return schema_fail(c, schema, NULL, "refers to itself without end");
    if (!schema_spend(c, 4)) return false;
    const Json *ref = c->draft <= 7 ? json_get(schema, "$ref") : NULL;
    if (ref && ref->kind == JSON_STRING)
        return keyword_holds(c, K_REF, schema, ref, value, depth + 1);
    for (const Json *k = schema->child; k && !c->failed; k = k->next) {
        Keyword kind = schema_keyword(c, schema, k->key);
        if (kind == K_UNSUPPORTED || kind == K_UNEVALUATED)
            return schema_fail(c, schema, NULL, "\"%.*s\" is not supported", SHOWN(k->key));
        if (!keyword_holds(c, kind, schema, k, value, depth + 1)) return false;
    }
    return !c->failed;
}

bool term_holds(Compiler *c, Term t, const Json *value) {
    if (t.kind == TERM_VALUE) return json_equal(t.json, value);
    return schema_holds(c, t.json, value, 0) == (t.kind == TERM_IS);
}

// --- schemas apart

// Kinds of values that may fit: all that do, perhaps more.
static unsigned possible_types(Compiler *c, const Json *s, int depth) {
    unsigned types = IS_ANY, any = 0;
    if (s->kind == JSON_BOOL) return s->boolean ? IS_ANY : 0;
    if (s->kind != JSON_OBJECT || depth > 8 || !schema_spend(c, 4)) return IS_ANY;
    for (const Json *k = s->child; k; k = k->next) {
        Keyword kind = schema_keyword(c, s, k->key);
        const Json *target = kind == K_REF ? schema_target(c, s, k) : NULL;
        if (target) types &= possible_types(c, target, depth + 1);
        if (c->draft <= 7 && json_get(s, "$ref")) continue;
        if (kind == K_TYPE) types &= schema_types(c, s, k);
        if (kind == K_CONST) types &= json_type(c, k);
        any = 0;
        for (const Json *sub = k->child; sub; sub = sub->next) {
            if (kind == K_ENUM) any |= json_type(c, sub);
            if (kind == K_ANY_OF || kind == K_ONE_OF) any |= possible_types(c, sub, depth + 1);
            if (kind == K_ALL_OF) types &= possible_types(c, sub, depth + 1);
        }
        if (kind == K_ENUM || kind == K_ANY_OF || kind == K_ONE_OF) types &= any;
    }
    return types;
}

// Whether none of the values `a` lists fits b.
static bool values_apart(Compiler *c, const Json *a, const Json *b) {
    const Json *one = c->draft >= 6 ? json_get(a, "const") : NULL, *list = json_get(a, "enum");
    bool apart = one || (list && list->kind == JSON_ARRAY);
    if (!apart || (c->draft <= 7 && json_get(a, "$ref"))) return false;
    bool before = c->failed;
    c->quiet++;
    if (one) apart = !schema_holds(c, b, one, 0);
    for (const Json *v = list && apart && !one ? list->child : NULL; v && apart; v = v->next)
        apart = !schema_holds(c, b, v, 0);
    c->quiet--;
    apart = apart && !c->failed;
    c->failed = before;
    return apart;
}

static bool is_required(const Json *s, Str name) {
    const Json *required = json_get(s, "required");
    for (const Json *r = required && required->kind == JSON_ARRAY ? required->child : NULL; r;
         r = r->next)
        if (r->kind == JSON_STRING && str_eq(r->string, name)) return true;
    return false;
}

// Whether a property that one of them requires cannot have a value, or not one that fits both.
static bool properties_apart(Compiler *c, const Json *a, const Json *b, int depth) {
    const Json *required = json_get(a, "required"), *others = json_get(b, "additionalProperties");
    const Json *pa = json_get(a, "properties"), *pb = json_get(b, "properties");
    bool is_closed = others && others->kind == JSON_BOOL && !others->boolean &&
                     !json_get(b, "patternProperties");
    for (const Json *r = required && required->kind == JSON_ARRAY ? required->child : NULL; r;
         r = r->next)
        if (is_closed && r->kind == JSON_STRING && !(pb && has_member(pb, r->string))) return true;
    for (const Json *p = pa && pa->kind == JSON_OBJECT ? pa->child : NULL; p; p = p->next) {
        const Json *q = member(pb, p->key);
        if (q && (is_required(a, p->key) || is_required(b, p->key)) &&
            schema_disjoint(c, p, q, depth + 1))
            return true;
    }
    return false;
}

// Whether some part of a, which all its values must fit, is apart from b.
static bool parts_apart(Compiler *c, const Json *a, const Json *b, int depth) {
    const Json *ref = json_get(a, "$ref"),
               *target = ref && ref->kind == JSON_STRING ? schema_target(c, a, ref) : NULL;
    if (target && schema_disjoint(c, target, b, depth + 1)) return true;
    if (c->draft <= 7 && ref) return false;
    for (const Json *k = a->child; k; k = k->next) {
        Keyword kind = schema_keyword(c, a, k->key);
        if (k->kind != JSON_ARRAY || (kind != K_ALL_OF && kind != K_ANY_OF && kind != K_ONE_OF))
            continue;
        int n = 0;
        for (const Json *sub = k->child; sub; sub = sub->next)
            n += schema_disjoint(c, sub, b, depth + 1);
        if (kind == K_ALL_OF ? n > 0 : n == k->n_items) return true;
    }
    return false;
}

bool schema_disjoint(Compiler *c, const Json *a, const Json *b, int depth) {
    unsigned types = possible_types(c, a, 0) & possible_types(c, b, 0);
    if (!types) return true;
    if (a->kind != JSON_OBJECT || b->kind != JSON_OBJECT || depth > 6 || !schema_spend(c, 16))
        return false;
    if (values_apart(c, a, b) || values_apart(c, b, a)) return true;
    if (parts_apart(c, a, b, depth) || parts_apart(c, b, a, depth)) return true;
    if (types != IS_OBJECT || (c->draft <= 7 && (json_get(a, "$ref") || json_get(b, "$ref"))))
        return false;
    return properties_apart(c, a, b, depth) || properties_apart(c, b, a, depth);
}
