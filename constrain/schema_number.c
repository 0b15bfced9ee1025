#include "schema_keywords.h"

#include <math.h>

// --- bounds

// True if the keyword is the draft 4 form of exclusiveMinimum or exclusiveMaximum: a flag that
// modifies minimum or maximum.
static bool is_flag(const KeywordUse *u) {
    return u->keyword->is_exclusive && u->value->kind == JSON_BOOL;
}

static bool is_excluded(const KeywordUse *u) {
    const Json *flag =
        json_get(u->schema, u->keyword->is_max ? "exclusiveMaximum" : "exclusiveMinimum");
    return u->keyword->is_exclusive || (flag && flag->kind == JSON_BOOL && flag->boolean);
}

// True if the keyword is a bound that excludes some numbers.
static bool has_bound(SchemaCompiler *c, const KeywordUse *u) {
    return !is_flag(u) && schema_expect(c, u, u->value, JSON_NUMBER, "a number") &&
           (!u->keyword->is_max || u->value->number < 1.79e308);
}

static void narrow(NumberRange *r, double x, bool is_max, bool excluded) {
    double *bound = is_max ? &r->hi : &r->lo;
    bool *bound_is_excluded = is_max ? &r->hi_is_excluded : &r->lo_is_excluded;
    if ((is_max ? x < *bound : x > *bound) || (x == *bound && excluded))
        *bound = x, *bound_is_excluded = excluded;
}

static void assert_bound(SchemaCompiler *c, Conjunction *f, const KeywordUse *u) {
    if (has_bound(c, u)) narrow(&f->number, u->value->number, u->keyword->is_max, is_excluded(u));
}

static void negate_bound(SchemaCompiler *c, Conjunction f, const KeywordUse *u) {
    if (!has_bound(c, u)) return;
    narrow(&f.number, u->value->number, !u->keyword->is_max, !is_excluded(u));
    schema_expand(c, f);
}

static bool check_bound(SchemaCompiler *c, const KeywordUse *u, const Json *value) {
    (void)c;
    double x = value->number, bound = u->value->number;
    if (is_flag(u) || (x == bound && !is_excluded(u))) return true;
    return u->keyword->is_max ? x < bound : x > bound;
}

// --- multipleOf

static void assert_multiple(SchemaCompiler *c, Conjunction *f, const KeywordUse *u) {
    double x = u->value->number;
    if (!schema_expect(c, u, u->value, JSON_NUMBER, "a number")) return;
    if (x <= 0) schema_fail(c, u->schema, "multipleOf", "expected a number above 0");
    bool is_other = f->number.multiple != 0 && f->number.multiple != x;
    f->number.multiple = is_other ? NAN : x; // NAN: several multiples, which number_dfa refuses
}

static bool check_multiple(SchemaCompiler *c, const KeywordUse *u, const Json *value) {
    (void)c;
    return fmod(value->number, u->value->number) == 0;
}

const SchemaKeyword schema_number_keywords[] = {
    {"minimum", TYPE_NUMBER, assert_bound, negate_bound, .check = check_bound},
    {"maximum", TYPE_NUMBER, assert_bound, negate_bound, .check = check_bound, .is_max = true},
    {"exclusiveMinimum", TYPE_NUMBER, assert_bound, negate_bound, .check = check_bound,
     .is_exclusive = true},
    {"exclusiveMaximum", TYPE_NUMBER, assert_bound, negate_bound, .check = check_bound,
     .is_exclusive = true, .is_max = true},
    {"multipleOf", TYPE_NUMBER, assert_multiple, NULL, .check = check_multiple},
    {.name = NULL},
};

void number_emit(SchemaCompiler *c, const Conjunction *f) {
    NumberRange r = f->number;
    Buffer key = {0}, excluded = {0};
    const Json *schema = NULL;
    Dfa d;
    bool is_new;
    if (!(f->types & TYPE_NUMBER)) return;
    r.has_integers = f->types & TYPE_INTEGER, r.has_fractions = f->types & TYPE_FRACTION;
    r.is_strict = c->draft == 4;
    for (const Conjunct *a = f->conjuncts; a; a = a->next) {
        if (a->kind == CONJUNCT_SCHEMA && !schema) schema = a->schema;
        const Json *v = a->json;
        for (int i = 0; i < a->n_values; i++, v = v->next)
            if (v->kind == JSON_NUMBER) number_put_pattern(&excluded, v->number);
    }
    buffer_printf(&key, "number %d %d %a %a %d %d %a ", r.has_integers, r.has_fractions, r.lo, r.hi,
                  r.lo_is_excluded, r.hi_is_excluded, r.multiple);
    buffer_put(&key, buffer_str(&excluded));
    int *dfa = schema_memo(c, key.data, key.len, &is_new);
    if (is_new) {
        bool ok = number_dfa(&r, &c->budget, &d, &c->why);
        if (ok && excluded.len)
            ok = regex_combine(&d, DFA_SUBTRACT, buffer_str(&excluded), &c->budget, &c->why);
        if (ok)
            *dfa = grammar_add_dfa(c->grammar, &d);
        else
            schema_fail(c, schema, r.multiple != 0 ? "multipleOf" : NULL, "%s", c->why.text);
    }
    if (!c->failed && !dfa_is_empty(&c->grammar->dfas[*dfa]))
        grammar_add_alt(c->grammar, c->target.value, ALT_TEXT, *dfa);
    buffer_free(&key), buffer_free(&excluded);
}
