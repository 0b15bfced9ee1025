#include "schema_object.h"
#include "schema_string.h"

#include <stdlib.h>
#include <string.h>

static const Json never = {.kind = JSON_BOOL}; // the schema `false`

static void require(SchemaCompiler *c, Conjunction *f, const KeywordUse *u, Str name) {
    conjunction_add(c, f, CONJUNCT_REQUIRED, u)->name = name;
}

static void restrict_property(SchemaCompiler *c, Conjunction *f, const KeywordUse *u, Str name,
                              AssertionKind kind, const Json *schema) {
    Conjunct *a = conjunction_add(c, f, CONJUNCT_PROPERTY, u);
    a->name = name, a->assertion = (SchemaAssertion){kind, schema};
}

static const Json *find_member(const Json *object, Str name) {
    const Json *m = object ? object->child : NULL;
    while (m && !str_eq(m->key, name)) m = m->next;
    return m;
}

// --- which schemas apply to a property

// A name of a property: a known one, or any that matches exactly these patterns.
typedef struct {
    Str name;                    // data NULL: not known
    const Json *const *patterns; // (n_patterns) members of "patternProperties"
    int n_patterns;
    unsigned matched; // bit i: matches patterns[i]
} PropertyName;

static bool name_matches(SchemaCompiler *c, const Json *schema, const Json *pattern,
                         const PropertyName *p) {
    if (p->name.data) {
        int dfa = string_pattern(c, schema, pattern->key);
        return dfa >= 0 && dfa_match(&c->grammar->dfas[dfa], p->name);
    }
    int i = 0;
    while (i < p->n_patterns && !str_eq(p->patterns[i]->key, pattern->key)) i++;
    return i < p->n_patterns && p->matched >> i & 1;
}

static const Json *patterns_of(const Json *schema) {
    const Json *patterns = json_get(schema, "patternProperties");
    return patterns ? patterns->child : NULL;
}

// The schemas that `schema` applies to a property, into out, which has room for all its patterns
// and one more: that of its name and those of matching patterns, or, if there are none, that of all
// others. With `unevaluated`, only this one. Returns their number.
static int find_property_schemas(SchemaCompiler *c, const Json *schema, const Json *unevaluated,
                                 const PropertyName *p, const Json **out) {
    const Json *named = p->name.data ? find_member(json_get(schema, "properties"), p->name) : NULL;
    int n = 0;
    if (named) out[n++] = named;
    for (const Json *k = patterns_of(schema); k; k = k->next)
        if (name_matches(c, schema, k, p)) out[n++] = k;
    if (n) return unevaluated ? 0 : n;
    const Json *others = unevaluated ? unevaluated : json_get(schema, "additionalProperties");
    if (others) out[n++] = others;
    return n;
}

static size_t count_patterns(const Json *schema) {
    const Json *patterns = json_get(schema, "patternProperties");
    return patterns ? (size_t)patterns->n_items : 0;
}

// --- properties, patternProperties, additionalProperties

static void assert_properties(SchemaCompiler *c, Conjunction *f, const KeywordUse *u) {
    if (!str_is(u->value->key, "additionalProperties"))
        schema_expect(c, u, u->value, JSON_OBJECT, "an object of schemas");
    conjunction_add_once(c, f, CONJUNCT_OBJECT, u);
}

// A branch for each property, which is there and does not satisfy its schema.
static void negate_properties(SchemaCompiler *c, Conjunction f, const KeywordUse *u) {
    if (u->value->kind == JSON_BOOL && u->value->boolean) return;
    if (!str_is(u->value->key, "properties")) {
        schema_refuse_negation(c, u);
        return;
    }
    for (const Json *p = u->value->child; p && !c->failed; p = p->next) {
        Conjunction branch = f;
        if (schema_is_trivial(c, p)) continue;
        require(c, &branch, u, p->key);
        restrict_property(c, &branch, u, p->key, ASSERT_NOT, p);
        schema_expand(c, branch);
    }
}

static bool check_properties(SchemaCompiler *c, const KeywordUse *u, const Json *value, int depth) {
    const Json **schemas = xalloc(count_patterns(u->schema) + 2, sizeof *schemas);
    bool ok = true;
    for (const Json *m = value->child; m && ok; m = m->next) {
        int n = find_property_schemas(c, u->schema, NULL, &(PropertyName){.name = m->key}, schemas);
        for (int i = 0; i < n && ok; i++) ok = schema_holds(c, schemas[i], m, depth);
    }
    free(schemas);
    return ok;
}

static void assert_unevaluated(SchemaCompiler *c, Conjunction *f, const KeywordUse *u) {
    if (unevaluated_is_needed(c, u) && !json_get(u->schema, "additionalProperties"))
        conjunction_add(c, f, CONJUNCT_OBJECT, u);
}

// --- required, propertyNames

static void assert_required(SchemaCompiler *c, Conjunction *f, const KeywordUse *u) {
    if (!schema_expect(c, u, u->value, JSON_ARRAY, "a list of names")) return;
    for (const Json *name = u->value->child; name; name = name->next)
        if (schema_expect(c, u, name, JSON_STRING, "a list of names"))
            require(c, f, u, name->string);
}

// A branch for each name, which is missing.
static void negate_required(SchemaCompiler *c, Conjunction f, const KeywordUse *u) {
    for (const Json *name = u->value->child; name && !c->failed; name = name->next) {
        Conjunction branch = f;
        if (!schema_expect(c, u, name, JSON_STRING, "a list of names")) return;
        restrict_property(c, &branch, u, name->string, ASSERT_SCHEMA, &never);
        schema_expand(c, branch);
    }
}

static bool check_required(SchemaCompiler *c, const KeywordUse *u, const Json *value, int depth) {
    (void)c, (void)depth;
    for (const Json *name = u->value->child; name; name = name->next)
        if (name->kind == JSON_STRING && !find_member(value, name->string)) return false;
    return true;
}

static void assert_names(SchemaCompiler *c, Conjunction *f, const KeywordUse *u) {
    conjunction_add(c, f, CONJUNCT_NAMES, u)->assertion =
        (SchemaAssertion){ASSERT_SCHEMA, u->value};
}

static bool check_names(SchemaCompiler *c, const KeywordUse *u, const Json *value, int depth) {
    for (const Json *m = value->child; m; m = m->next)
        if (!schema_holds(c, u->value, &(Json){.kind = JSON_STRING, .string = m->key}, depth))
            return false;
    return true;
}

// --- dependencies
//
// A member "name": ["a", "b"] or "name": SCHEMA applies to objects that have the property.

// Without the property, or with it and what it requires.
static void split_dependency(SchemaCompiler *c, Conjunction f, const KeywordUse *u) {
    Conjunction without = f;
    restrict_property(c, &without, u, u->value->key, ASSERT_SCHEMA, &never);
    schema_expand(c, without);
    f.types &= TYPE_OBJECT;
    require(c, &f, u, u->value->key);
    if (u->value->kind == JSON_ARRAY)
        assert_required(c, &f, u);
    else
        conjunction_assert(c, &f, ASSERT_SCHEMA, u->value);
    schema_expand(c, f);
}

static void assert_dependencies(SchemaCompiler *c, Conjunction *f, const KeywordUse *u) {
    if (!schema_expect(c, u, u->value, JSON_OBJECT, "an object")) return;
    for (const Json *d = u->value->child; d; d = d->next)
        conjunction_postpone(c, f, &(KeywordUse){u->keyword, u->schema, d}, split_dependency);
}

static void negate_dependencies(SchemaCompiler *c, Conjunction f, const KeywordUse *u) {
    for (const Json *d = u->value->child; d && !c->failed; d = d->next) {
        Conjunction branch = f;
        KeywordUse dependency = {u->keyword, u->schema, d};
        require(c, &branch, u, d->key);
        if (d->kind == JSON_ARRAY)
            negate_required(c, branch, &dependency);
        else
            schema_expand_with(c, branch, ASSERT_NOT, d);
    }
}

static bool check_dependencies(SchemaCompiler *c, const KeywordUse *u, const Json *value,
                               int depth) {
    for (const Json *d = u->value->child; d; d = d->next) {
        if (!find_member(value, d->key)) continue;
        bool ok = d->kind == JSON_ARRAY
                      ? check_required(c, &(KeywordUse){u->keyword, u->schema, d}, value, depth)
                      : schema_holds(c, d, value, depth);
        if (!ok) return false;
    }
    return true;
}

const SchemaKeyword schema_object_keywords[] = {
    SCHEMA_KEYWORD("properties", 0, TYPE_OBJECT, assert_properties, negate_properties,
                   check_properties, .role = KEYWORD_ASSERTION),
    SCHEMA_KEYWORD("patternProperties", 0, TYPE_OBJECT, assert_properties, negate_properties,
                   check_properties, .role = KEYWORD_ASSERTION),
    SCHEMA_KEYWORD("additionalProperties", 0, TYPE_OBJECT, assert_properties, negate_properties,
                   check_properties, .role = KEYWORD_ASSERTION),
    SCHEMA_KEYWORD("required", 0, TYPE_OBJECT, assert_required, negate_required, check_required,
                   .role = KEYWORD_ASSERTION),
    SCHEMA_KEYWORD("minProperties", 0, TYPE_OBJECT, count_assert, count_negate, count_check,
                   .bound = offsetof(Conjunction, properties)),
    SCHEMA_KEYWORD("maxProperties", 0, TYPE_OBJECT, count_assert, count_negate, count_check,
                   .bound = offsetof(Conjunction, properties), .is_max = true),
    SCHEMA_KEYWORD("propertyNames", 6, TYPE_OBJECT, assert_names, NULL, check_names,
                   .role = KEYWORD_ASSERTION),
    SCHEMA_KEYWORD("dependencies", 0, TYPE_OBJECT, assert_dependencies, negate_dependencies,
                   check_dependencies, .role = KEYWORD_APPLICATOR),
    SCHEMA_KEYWORD("dependentRequired", 2019, TYPE_OBJECT, assert_dependencies, negate_dependencies,
                   check_dependencies, .role = KEYWORD_APPLICATOR),
    SCHEMA_KEYWORD("dependentSchemas", 2019, TYPE_OBJECT, assert_dependencies, negate_dependencies,
                   check_dependencies, .role = KEYWORD_APPLICATOR),
    SCHEMA_KEYWORD("unevaluatedProperties", 2019, TYPE_ANY, assert_unevaluated, NULL,
                   unevaluated_check, .role = KEYWORD_ASSERTION),
    {.name = NULL},
};

// --- named properties

typedef struct {
    Str name;
    PropertyDef def;
} NamedProperty;

// Properties in the order in which the schema mentions them, then sorted by name.
typedef struct {
    NamedProperty *at;
    int n;
} PropertyList;

static void list_property(PropertyList *l, Str name, int value, bool is_required) {
    l->at = list_grow(l->at, l->n, sizeof *l->at);
    l->at[l->n] = (NamedProperty){name, {value, (uint32_t)l->n, is_required, false}};
    l->n++;
}

static int compare_properties(const void *a, const void *b) {
    const NamedProperty *x = a, *y = b;
    int order = str_compare(x->name, y->name);
    return order ? order : (x->def.order > y->def.order) - (x->def.order < y->def.order);
}

// Sorts by name and merges repeated names into the first.
static void sort_properties(PropertyList *l) {
    int n = 0;
    if (l->n > 1) qsort(l->at, (size_t)l->n, sizeof *l->at, compare_properties);
    for (int i = 0; i < l->n; i++)
        if (n && str_eq(l->at[n - 1].name, l->at[i].name))
            l->at[n - 1].def.is_required |= l->at[i].def.is_required;
        else
            l->at[n++] = l->at[i];
    l->n = n;
}

// Adds the alternative of an object with these sorted properties; frees the list.
static void add_object(SchemaCompiler *c, ObjectDef o, PropertyList *l) {
    Str *names = xalloc((size_t)l->n + 1, sizeof *names);
    o.n_names = l->n;
    o.properties = xalloc((size_t)l->n + 1, sizeof *o.properties);
    for (int i = 0; i < l->n; i++) {
        names[i] = l->at[i].name, o.properties[i] = l->at[i].def;
        o.n_required += l->at[i].def.is_required;
    }
    o.trie = l->n ? trie_add(c->grammar, names, l->n) : NONE;
    free(names), free(l->at);
    grammar_add_alt(c->grammar, c->value, ALT_OBJECT, grammar_add_object(c->grammar, o));
}

// All names that a conjunction mentions. Those in "properties" come first and in the order of the
// schema, which is that of a text with --ordered-properties.
static void list_names(const Conjunction *f, PropertyList *l) {
    int n = 0, i = 0;
    for (const Conjunct *a = f->conjuncts; a; a = a->next) n += a->kind == CONJUNCT_OBJECT;
    const Conjunct **objects = xalloc((size_t)n + 1, sizeof *objects);
    for (const Conjunct *a = f->conjuncts; a; a = a->next)
        if (a->kind == CONJUNCT_OBJECT) objects[n - 1 - i++] = a; // the latest is linked first
    for (i = 0; i < n; i++) {
        const Json *properties = json_get(objects[i]->schema, "properties");
        for (const Json *p = properties ? properties->child : NULL; p; p = p->next)
            list_property(l, p->key, 0, false);
    }
    free(objects);
    for (const Conjunct *a = f->conjuncts; a; a = a->next)
        if (a->kind == CONJUNCT_REQUIRED || a->kind == CONJUNCT_PROPERTY)
            list_property(l, a->name, 0, a->kind == CONJUNCT_REQUIRED);
}

// The value of a property: of a known name, or of other names that match certain patterns.
static int property_value(SchemaCompiler *c, const Conjunction *f, const PropertyName *p) {
    size_t max = 0;
    int n = 0;
    for (const Conjunct *a = f->conjuncts; a; a = a->next) max += 2 + count_patterns(a->schema);
    const Json **schemas = xalloc(max + 1, sizeof *schemas);
    SchemaAssertion *assertions = xalloc(max + 1, sizeof *assertions);
    bool is_possible = true;
    for (const Conjunct *a = f->conjuncts; a && !c->failed && is_possible; a = a->next) {
        if (a->kind == CONJUNCT_OBJECT) {
            int n_schemas = find_property_schemas(c, a->schema, a->json, p, schemas);
            for (int i = 0; i < n_schemas; i++)
                assertions[n++] = (SchemaAssertion){ASSERT_SCHEMA, schemas[i]};
        }
        if (!p->name.data) continue;
        if (a->kind == CONJUNCT_PROPERTY && str_eq(a->name, p->name))
            assertions[n++] = a->assertion;
        if (a->kind == CONJUNCT_NAMES)
            is_possible =
                assertion_holds(c, a->assertion, &(Json){.kind = JSON_STRING, .string = p->name});
    }
    int value = is_possible ? schema_value(c, assertions, n) : 0;
    free(schemas), free(assertions);
    return value;
}

// --- other names
//
// All other names are a DFA that labels each name with 1 + the set of patterns it matches (bit i:
// pattern i), so that the machine knows the value when the name ends.

enum { MAX_PATTERNS = 12 };

typedef struct {
    const Json *at[MAX_PATTERNS]; // members of "patternProperties"
    const Json *schemas[MAX_PATTERNS];
    int n;
} PatternList;

static void list_patterns(SchemaCompiler *c, const Conjunction *f, PatternList *l) {
    for (const Conjunct *a = f->conjuncts; a; a = a->next) {
        if (a->kind != CONJUNCT_OBJECT) continue;
        for (const Json *k = patterns_of(a->schema); k && !c->failed; k = k->next) {
            int i = 0;
            while (i < l->n && !str_eq(l->at[i]->key, k->key)) i++;
            if (i < l->n) continue;
            if (l->n == MAX_PATTERNS) {
                schema_fail(c, a->schema, "patternProperties",
                            "more than %d patterns are not supported", MAX_PATTERNS);
                return;
            }
            l->at[l->n] = k, l->schemas[l->n++] = a->schema;
        }
    }
}

// Reduces a DFA to the names that satisfy "propertyNames": the schema is compiled as a string,
// whose length becomes part of the DFA.
static bool keep_names(SchemaCompiler *c, const Conjunct *names, Dfa *d) {
    Error err;
    Dfa length;
    int value = c->value, n_alts = c->n_alts;
    Conjunction f = conjunction_new();
    f.types = TYPE_STRING;
    // The main loop compiles this value again, with all types, which reports unsupported keywords.
    c->value = schema_new_value(c, &names->assertion, 1);
    schema_expand_with(c, f, names->assertion.kind, names->assertion.json);
    const ValueDef *v = &c->grammar->values[c->value];
    c->value = value, c->n_alts = n_alts;
    if (c->failed) return false;
    const StringDef *s = v->n_alts ? &c->grammar->strings[v->alts[0].def] : NULL;
    if (v->n_alts > 1 || (s && s->trie != NONE))
        return schema_fail(c, names->schema, "propertyNames",
                           "lists and choices are not supported; use \"pattern\"");
    int min = !s ? 1 : s->min < INT32_MAX ? (int)s->min : INT32_MAX;
    int max = !s ? 0 : s->max == NO_LIMIT ? -1 : s->max < INT32_MAX ? (int)s->max : INT32_MAX;
    bool ok = dfa_length(&length, min, max, &err);
    if (ok) {
        int language = s ? s->dfa : string_any(c);
        ok =
            dfa_combine(&length, &c->grammar->dfas[language], DFA_INTERSECT, 0, &c->budget, &err) &&
            dfa_combine(d, &length, DFA_INTERSECT, 0, &c->budget, &err);
        dfa_free(&length);
    }
    return ok || schema_fail(c, names->schema, "propertyNames", "%s", err.text);
}

static void add_other_names(SchemaCompiler *c, const Conjunction *f, ObjectDef *o) {
    PatternList patterns = {.n = 0};
    Error err;
    Dfa d;
    list_patterns(c, f, &patterns);
    dfa_any(&d);
    for (int i = 0; i < patterns.n && !c->failed; i++) {
        int dfa = string_pattern(c, patterns.schemas[i], patterns.at[i]->key);
        if (dfa >= 0 &&
            !dfa_combine(&d, &c->grammar->dfas[dfa], DFA_LABEL, 1 << i, &c->budget, &err))
            schema_fail(c, patterns.schemas[i], "patternProperties", "%s", err.text);
    }
    for (const Conjunct *a = f->conjuncts; a && !c->failed; a = a->next)
        if (a->kind == CONJUNCT_NAMES) keep_names(c, a, &d);
    o->n_other = 1 << patterns.n;
    o->other_values = xalloc((size_t)o->n_other, sizeof(int));
    bool *is_used = xalloc((size_t)o->n_other, sizeof *is_used);
    for (int state = 1; state < d.n_states && !c->failed; state++)
        if (d.accept[state]) is_used[d.accept[state] - 1] = true;
    for (int i = 0; i < o->n_other && !c->failed; i++)
        if (is_used[i])
            o->other_values[i] = property_value(
                c, f, &(PropertyName){.patterns = patterns.at, patterns.n, .matched = (unsigned)i});
    free(is_used);
    o->other = grammar_add_dfa(c->grammar, &d);
}

void object_emit(SchemaCompiler *c, const Conjunction *f) {
    ObjectDef o = {.other = NONE, .min = f->properties.min, .max = f->properties.max};
    PropertyList l = {0};
    if (!(f->types & TYPE_OBJECT) || c->failed || o.min > o.max) return;
    list_names(f, &l);
    sort_properties(&l);
    for (int i = 0; i < l.n && schema_spend(c, 4); i++)
        l.at[i].def.value = property_value(c, f, &(PropertyName){.name = l.at[i].name});
    if (!c->failed) add_other_names(c, f, &o);
    add_object(c, o, &l);
}

void object_emit_value(SchemaCompiler *c, const Json *object) {
    uint32_t n = (uint32_t)object->n_items;
    PropertyList l = {0};
    for (const Json *k = object->child; k; k = k->next)
        list_property(&l, k->key, schema_value(c, &(SchemaAssertion){ASSERT_EQUAL, k}, 1), true);
    sort_properties(&l);
    add_object(c, (ObjectDef){.other = NONE, .min = n, .max = n}, &l);
}
