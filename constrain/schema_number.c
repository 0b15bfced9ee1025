// Numbers: ranges and multiples. See schema_keywords.h.
#include "constrain/schema_keywords.h"

// Bounds.

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

static void narrow(NumberRange *r, const Json *x, bool is_max, bool excluded) {
    const Json *bound = r->bounds[is_max];
    int order = is_max ? -1 : 1; // without a bound, x is narrower
    if (bound) order = number_compare(x, bound);

    bool is_narrower = is_max ? order < 0 : order > 0;
    if (is_narrower || (order == 0 && excluded)) {
        r->bounds[is_max] = x;
        r->is_excluded[is_max] = excluded;
    }
}

static void assert_bound(SchemaCompiler *c, Conjunction *f, const KeywordUse *u) {
    (void)c;
    bool is_not = u->is_negated;
    if (!is_flag(u))
        narrow(&f->number, u->value, u->keyword->is_max != is_not, is_excluded(u) != is_not);
    else if (is_not)
        f->types = 0; // a flag alone always holds
}

static bool check_bound(SchemaCompiler *c, const KeywordUse *u, const Json *value) {
    (void)c;
    if (is_flag(u)) return true;
    int order = number_compare(value, u->value);
    if (order == 0) return !is_excluded(u);
    return u->keyword->is_max ? order < 0 : order > 0;
}

// Formats of integers.

void number_assert_format(SchemaCompiler *c, Conjunction *f, const Format *format) {
    (void)c;
    f->types &= ~TYPE_FRACTION;
    for (int is_max = 0; is_max < 2; is_max++)
        narrow(&f->number, &format->bounds[is_max], is_max, false);
}

// Expands the branch of fractions, and one for the integers beyond each bound.
void number_negate_format(SchemaCompiler *c, Conjunction f, const Format *format) {
    Conjunction fraction = f;
    fraction.types &= TYPE_FRACTION;
    schema_expand(c, fraction);

    for (int is_max = 0; is_max < 2; is_max++) {
        Conjunction beyond = f;
        beyond.types &= TYPE_INTEGER;
        narrow(&beyond.number, &format->bounds[is_max], !is_max, true);
        schema_expand(c, beyond);
    }
}

bool number_check_format(SchemaCompiler *c, const Format *format, const Json *value) {
    return schema_type_of(c, value) == TYPE_INTEGER &&
           number_compare(value, &format->bounds[0]) >= 0 &&
           number_compare(value, &format->bounds[1]) <= 0;
}

// MultipleOf.

static bool has_multiple(SchemaCompiler *c, const KeywordUse *u) {
    if (u->value->number <= 0)
        return schema_fail(c, u->schema, "multipleOf", "expected a number above 0");
    return number_is_multiple(u->value, u->value) ||
           schema_refuse(c, u, " with more than 17 digits");
}

static void assert_multiple(SchemaCompiler *c, Conjunction *f, const KeywordUse *u) {
    if (has_multiple(c, u)) conjunction_add(c, f, CONJUNCT_MULTIPLE, u);
}

static bool check_multiple(SchemaCompiler *c, const KeywordUse *u, const Json *value) {
    return has_multiple(c, u) && number_is_multiple(value, u->value);
}

static const SchemaKeyword keywords[] = {
    {"minimum", TYPE_NUMBER, VALUE_NUMBER, assert_bound, schema_negate, .check = check_bound},
    {"maximum", TYPE_NUMBER, VALUE_NUMBER, assert_bound, schema_negate, .check = check_bound,
     .is_max = true},
    {"exclusiveMinimum", TYPE_NUMBER, VALUE_LIMIT, assert_bound, schema_negate,
     .check = check_bound, .is_exclusive = true},
    {"exclusiveMaximum", TYPE_NUMBER, VALUE_LIMIT, assert_bound, schema_negate,
     .check = check_bound, .is_exclusive = true, .is_max = true},
    {"multipleOf", TYPE_NUMBER, VALUE_NUMBER, assert_multiple, schema_negate,
     .check = check_multiple},
    {.names = NULL},
};

// Appends alternatives for the excluded values of a conjunction.
static void put_excluded(SchemaCompiler *c, const Conjunction *f, Buffer *out) {
    for (const Conjunct *a = f->conjuncts; a; a = a->next) {
        const Json *v = a->json;
        for (int i = 0; i < a->n_values; i++, v = v->next) {
            if (v->kind != JSON_NUMBER || !schema_spend(c, 80)) continue;
            if (!number_put_pattern(out, v, true))
                schema_fail(c, NULL, NULL, "a value under \"not\" has too many digits");
        }
    }
}

// The notation of the numbers of a conjunction, which multiples, bounds and excluded values
// restrict.
static NumberNotation find_notation(const Conjunction *f, bool has_excluded) {
    for (const Conjunct *a = f->conjuncts; a; a = a->next)
        if (a->kind == CONJUNCT_MULTIPLE) return NUMBER_PLAIN;
    return f->number.bounds[0] || f->number.bounds[1] || has_excluded ? NUMBER_DUMPS : NUMBER_ANY;
}

static void emit_numbers(SchemaCompiler *c, const Conjunction *f) {
    NumberRange r = f->number;
    Languages *l = &c->languages;
    Buffer excluded = {0};

    put_excluded(c, f, &excluded);
    r.has_integers = f->types & TYPE_INTEGER;
    r.has_fractions = f->types & TYPE_FRACTION;
    r.is_strict = c->draft == 4;
    r.notation = find_notation(f, excluded.len);

    // Build the language: the range without the excluded values, intersected with the multiples.
    int dfa = c->failed ? -1 : number_language(l, &r);
    if (excluded.len) dfa = language_narrow(l, dfa, DFA_SUBTRACT, buffer_str(&excluded));
    schema_language(c, f->conjuncts ? f->conjuncts->schema : NULL, NULL, dfa);
    for (const Conjunct *a = f->conjuncts; a && !c->failed; a = a->next)
        if (a->kind == CONJUNCT_MULTIPLE) {
            DfaOp op = a->is_negated ? DFA_SUBTRACT : DFA_INTERSECT;
            int multiples = number_multiples(l, a->json);
            if (multiples < 0 && schema_leave(c, a->schema, a->json)) continue;
            dfa = language_combine(l, dfa, op, multiples);
            schema_language(c, a->schema, "multipleOf", dfa);
        }

    if (!c->failed && !dfa_is_empty(&c->grammar->defs[dfa].dfa)) schema_add_alt(c, dfa);
    buffer_free(&excluded);
}

const SchemaPart number_part = {keywords, TYPE_NUMBER, emit_numbers, NULL, NULL};
