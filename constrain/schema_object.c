// Objects: properties, names, and the number of properties. See schema_keywords.h.
// Order: keywords of properties, names and dependencies, then known and other names, objects.
#include "constrain/schema_keywords.h"

#include <stdio.h>

// Adds the conjunct that a property is absent, or that it is present with any value.
static Conjunct *add_presence(SchemaCompiler *c, Conjunction *f, const KeywordUse *u, Str name,
                              bool is_present) {
    static const Json schemas[2] = {{.kind = JSON_BOOL}, {.kind = JSON_BOOL, .boolean = true}};
    Conjunct *a = conjunction_add(c, f, CONJUNCT_PROPERTY, u);
    a->name = name;
    a->is_required = is_present;
    a->assertion = (SchemaAssertion){ASSERT_SCHEMA, &schemas[is_present]};
    return a;
}

// Expands the branch in which a property is absent.
static void expand_without(SchemaCompiler *c, Conjunction f, const KeywordUse *u, Str name) {
    add_presence(c, &f, u, name, false);
    schema_expand(c, f);
}

// The schemas that apply to a property.

enum { MAX_PATTERNS = 12 };

// The distinct patterns of all "patternProperties" of a conjunction, as indices of DFAs.
typedef struct {
    int dfas[MAX_PATTERNS];
    int n;
} PatternList;

static int find_pattern(const PatternList *l, int dfa) {
    int i = 0;
    while (i < l->n && l->dfas[i] != dfa) i++;
    return i;
}

// The name of a property: a known name, or any name that matches certain patterns and no others.
typedef struct {
    Str name; // data NULL: not known
    const PatternList *patterns;
    unsigned matched; // bit i: matches patterns[i]
} PropertyName;

static bool name_matches(SchemaCompiler *c, const Json *schema, Str pattern,
                         const PropertyName *p) {
    int dfa = string_pattern(c, schema, pattern);
    if (p->name.data) return dfa >= 0 && dfa_match(&c->grammar->defs[dfa].dfa, p->name);
    return p->matched >> find_pattern(p->patterns, dfa) & 1;
}

static void append_schema(Buffer *out, AssertionKind kind, const Json *schema) {
    SchemaAssertion a = {kind, schema};
    buffer_append(out, &a, sizeof a);
}

// Appends the schemas (SchemaAssertion) that `schema` applies to a property: the schemas of its
// name and of matching patterns or, if there are none, "additionalProperties". False if no schema
// applies.
static bool find_property_schemas(SchemaCompiler *c, const Json *schema, const PropertyName *p,
                                  AssertionKind kind, Buffer *out) {
    const Json *named =
        p->name.data ? schema_member(c, json_get(schema, "properties"), p->name) : NULL;
    size_t before = out->len;

    if (named) append_schema(out, kind, named);
    for (const Json *k = schema_items(schema, "patternProperties"); k; k = k->next)
        if (name_matches(c, schema, k->key, p)) append_schema(out, kind, k);

    const Json *others = json_get(schema, "additionalProperties");
    if (out->len == before && others) append_schema(out, kind, others);
    return out->len > before;
}

// Properties, patternProperties, additionalProperties.

// Expands one branch for each property, in which it is present and does not satisfy its schema.
static void negate_properties(SchemaCompiler *c, Conjunction f, const KeywordUse *u) {
    if (u->value->kind == JSON_BOOL && u->value->boolean) return;
    if (!str_is(u->value->key, "properties")) {
        schema_leave_negation(c, f, u);
        return;
    }

    for (const Json *p = u->value->child; p && !c->failed; p = p->next) {
        if (schema_is_trivial(c, p)) continue;
        Conjunction branch = f;
        add_presence(c, &branch, u, p->key, true)->assertion = (SchemaAssertion){ASSERT_NOT, p};
        schema_expand(c, branch);
    }
}

static bool check_properties(SchemaCompiler *c, const KeywordUse *u, const Json *value) {
    Buffer applied = {0};
    bool ok = true;
    for (const Json *m = value->child; m && ok; m = m->next) {
        applied.len = 0;
        find_property_schemas(c, u->schema, &(PropertyName){.name = m->key}, ASSERT_SCHEMA,
                              &applied);
        const SchemaAssertion *a = (SchemaAssertion *)(void *)applied.data;
        for (size_t n = applied.len / sizeof *a; n > 0 && ok; n--, a++)
            ok = schema_holds(c, a->json, m);
    }
    buffer_free(&applied);
    return ok;
}

static void mark_properties(SchemaCompiler *c, const KeywordUse *u, const Json *value,
                            bool *marks) {
    Buffer applied = {0};
    for (const Json *m = value->child; m; m = m->next, marks++)
        *marks |= find_property_schemas(c, u->schema, &(PropertyName){.name = m->key},
                                        ASSERT_SCHEMA, &applied);
    buffer_free(&applied);
}

// Required, propertyNames.

static void assert_required(SchemaCompiler *c, Conjunction *f, const KeywordUse *u) {
    for (const Json *name = u->value->child; name; name = name->next)
        add_presence(c, f, u, name->string, true)->is_described = u->kind != ASSERT_UNDER_NOT;
}

static void negate_required(SchemaCompiler *c, Conjunction f, const KeywordUse *u) {
    for (const Json *name = u->value->child; name && !c->failed; name = name->next)
        expand_without(c, f, u, name->string);
}

static bool check_required(SchemaCompiler *c, const KeywordUse *u, const Json *value) {
    for (const Json *name = u->value->child; name; name = name->next)
        if (!schema_member(c, value, name->string)) return false;
    return true;
}

static void assert_names(SchemaCompiler *c, Conjunction *f, const KeywordUse *u) {
    conjunction_add(c, f, CONJUNCT_NAMES, u)->assertion =
        (SchemaAssertion){ASSERT_SCHEMA, u->value};
}

static bool check_names(SchemaCompiler *c, const KeywordUse *u, const Json *value) {
    for (const Json *m = value->child; m; m = m->next)
        if (!schema_holds(c, u->value, &(Json){.kind = JSON_STRING, .string = m->key}))
            return false;
    return true;
}

// Dependencies.
//
// A member "name": ["a", "b"] or "name": SCHEMA applies to objects that have the property "name".

// Expands the branch without the property, and the branch with the property and the properties that
// it requires.
static void split_dependency(SchemaCompiler *c, Conjunction f, const KeywordUse *u) {
    expand_without(c, f, u, u->value->key);

    f.types &= TYPE_OBJECT;
    add_presence(c, &f, u, u->value->key, true);
    if (u->value->kind == JSON_ARRAY)
        assert_required(c, &f, u);
    else
        conjunction_assert(c, &f, u->kind, u->value);
    schema_expand(c, f);
}

static void assert_dependencies(SchemaCompiler *c, Conjunction *f, const KeywordUse *u) {
    KeywordUse part = *u;
    for (part.value = u->value->child; part.value; part.value = part.value->next)
        conjunction_postpone(c, f, &part, split_dependency);
}

static void negate_dependencies(SchemaCompiler *c, Conjunction f, const KeywordUse *u) {
    KeywordUse part = *u;
    for (const Json *d = u->value->child; d && !c->failed; d = d->next) {
        Conjunction branch = f;
        add_presence(c, &branch, u, d->key, true);
        part.value = d;
        if (d->kind == JSON_ARRAY)
            negate_required(c, branch, &part);
        else
            schema_expand_with(c, branch, ASSERT_NOT, d);
    }
}

static bool check_dependencies(SchemaCompiler *c, const KeywordUse *u, const Json *value) {
    for (const Json *d = u->value->child; d; d = d->next) {
        if (!schema_member(c, value, d->key)) continue;
        bool ok = d->kind == JSON_ARRAY ? check_required(c, &(KeywordUse){.value = d}, value)
                                        : schema_holds(c, d, value);
        if (!ok) return false;
    }
    return true;
}

static void mark_dependencies(SchemaCompiler *c, const KeywordUse *u, const Json *value,
                              bool *marks) {
    for (const Json *d = u->value->child; d; d = d->next)
        if (d->kind != JSON_ARRAY && schema_member(c, value, d->key))
            schema_mark(c, d, value, marks);
}

static const SchemaKeyword keywords[] = {
    {"properties patternProperties", TYPE_OBJECT, VALUE_SCHEMA_MAP, NULL, negate_properties,
     .check = check_properties, .mark = mark_properties},
    {"additionalProperties", TYPE_OBJECT, VALUE_SCHEMA, NULL, negate_properties,
     .check = check_properties, .mark = mark_properties},
    {"required", TYPE_OBJECT, VALUE_NAMES, assert_required, negate_required,
     .check = check_required},
    {"minProperties", TYPE_OBJECT, VALUE_COUNT, count_assert, schema_negate, .check = count_check},
    {"maxProperties", TYPE_OBJECT, VALUE_COUNT, count_assert, schema_negate, .check = count_check,
     .is_max = true},
    {"propertyNames", TYPE_OBJECT, VALUE_SCHEMA, assert_names, NULL, .check = check_names,
     .is_opaque = true, .first = 6},
    {"dependencies", TYPE_OBJECT, VALUE_DEPENDENCIES, assert_dependencies, negate_dependencies,
     .check = check_dependencies, .mark = mark_dependencies},
    {"dependentSchemas", TYPE_OBJECT, VALUE_SCHEMA_MAP, assert_dependencies, negate_dependencies,
     .check = check_dependencies, .mark = mark_dependencies, .first = 2019},
    {"dependentRequired", TYPE_OBJECT, VALUE_NAMES_MAP, assert_dependencies, negate_dependencies,
     .check = check_dependencies, .first = 2019},
    {.names = NULL},
};

// Named properties.

typedef struct {
    PropertyDef *at;
    int n;
} PropertyList;

static void list_property(PropertyList *l, PropertyDef property) {
    l->at = list_grow(l->at, l->n, sizeof *l->at);
    l->at[l->n++] = property;
}

static int compare_properties(const void *a, const void *b) {
    const PropertyDef *x = a, *y = b;
    int order = str_compare(x->name, y->name);
    return order ? order : (x->order > y->order) - (x->order < y->order);
}

// Sorts by name, and merges equal names into one entry with the least order.
static void sort_properties(PropertyList *l) {
    int n = 0;
    if (l->n) qsort(l->at, (size_t)l->n, sizeof *l->at, compare_properties);
    for (int i = 0; i < l->n; i++)
        if (n && str_eq(l->at[n - 1].name, l->at[i].name))
            l->at[n - 1].is_required |= l->at[i].is_required;
        else
            l->at[n++] = l->at[i];
    l->n = n;
}

// Adds the alternative of an object with the properties of a sorted list, which is freed.
static void add_object(SchemaCompiler *c, ObjectDef o, PropertyList *l) {
    o.is_ordered = c->is_ordered;
    schema_add_alt(c, grammar_add_object(c->grammar, o, l->at, l->n));
    free(l->at);
}

// Lists all names that a conjunction mentions. PropertyDef.order is their order without
// --any-order: first the names in "properties", from the first schema to the last; then
// all other names.
static void list_names(const Conjunction *f, PropertyList *l) {
    uint32_t first = UINT32_MAX / 2, next = first; // `first` counts down, `next` counts up

    for (const Conjunct *a = f->conjuncts; a; a = a->next) { // from the last schema to the first
        if (a->kind == CONJUNCT_PROPERTY)
            list_property(l, (PropertyDef){a->name, 0, next++, a->is_required});
        const Json *names = a->kind == CONJUNCT_SCHEMA ? json_get(a->schema, "properties") : NULL;
        if (!names) continue;

        first -= (uint32_t)names->n_items;
        uint32_t order = first;
        for (const Json *k = names->child; k; k = k->next)
            list_property(l, (PropertyDef){k->key, 0, order++, false});
    }
}

// True for a keyword that says which other properties an object may have.
static bool opens_object(SchemaCompiler *c, const Json *keyword) {
    if (!schema_keyword(c, keyword->key)) return false;
    bool is_false = keyword->kind == JSON_BOOL && !keyword->boolean;
    return str_is_one_of(keyword->key, "additionalProperties patternProperties") ||
           (str_is(keyword->key, "unevaluatedProperties") && !is_false);
}

// True if an object may have only properties that the schemas of the conjunction describe. This is
// so if one of them lists properties, and no schema of the place has a keyword for other names. The
// schemas of allOf, anyOf, oneOf, $ref, "then" and others are part of the conjunction. Their
// properties count together, as for "unevaluatedProperties": false. A required name is a property,
// even if no schema lists it.
static bool is_closed(SchemaCompiler *c, const Conjunction *f) {
    if (!c->is_closed) return false;

    for (int i = 0; i < c->target.n_assertions; i++) {
        SchemaAssertion a = c->target.assertions[i];
        const Json *k = a.kind == ASSERT_SCHEMA ? a.json->child : NULL;
        for (; k; k = k->next)
            if (opens_object(c, k)) return false;
    }

    for (const Conjunct *a = f->conjuncts; a; a = a->next)
        if (a->kind == CONJUNCT_SCHEMA && a->assertion.kind == ASSERT_SCHEMA &&
            json_get(a->schema, "properties"))
            return true;
    return false;
}

// The value of a property with a known name, or with other names that match certain patterns.
static int property_value(SchemaCompiler *c, const Conjunction *f, const PropertyName *p) {
    Buffer list = {0};
    bool is_described = false, is_name = true;
    int value = c->never;

    for (const Conjunct *a = f->conjuncts; a && schema_spend(c, 2); a = a->next) {
        AssertionKind kind = a->assertion.kind;
        if (a->kind == CONJUNCT_SCHEMA && find_property_schemas(c, a->schema, p, kind, &list))
            is_described |= kind != ASSERT_UNDER_NOT;
        if (a->kind == CONJUNCT_PROPERTY && p->name.data && str_eq(a->name, p->name)) {
            append_schema(&list, kind, a->assertion.json);
            is_described |= a->is_described;
        }
        if (a->kind == CONJUNCT_NAMES && p->name.data)
            is_name &=
                assertion_holds(c, a->assertion, &(Json){.kind = JSON_STRING, .string = p->name});
    }

    if (is_name && (is_described || !is_closed(c, f)))
        value = schema_value(c, (SchemaAssertion *)(void *)list.data,
                             (int)(list.len / sizeof(SchemaAssertion)));
    buffer_free(&list);
    return value;
}

// Other names.
//
// All names that are not listed are read by one DFA. It labels each name with 1 + the set of
// patterns that the name matches (bit i: pattern i). This label selects the property's value when
// the name ends. Invariant: any beginning of a text of the DFA can become an unlisted name. The
// listed names are therefore subtracted, unless all texts are names.

// Adds the patterns of a schema to the list, and the bits of new patterns to the labels of names.
static int label_patterns(SchemaCompiler *c, const Json *schema, PatternList *l, int names) {
    for (const Json *k = schema_items(schema, "patternProperties"); k && !c->failed; k = k->next) {
        int dfa = string_pattern(c, schema, k->key);
        int i = find_pattern(l, dfa);
        if (dfa < 0 || i < l->n) continue;
        if (i == MAX_PATTERNS) {
            schema_fail(c, schema, "patternProperties", "more than %d patterns are not supported",
                        MAX_PATTERNS);
            break;
        }

        l->dfas[l->n++] = dfa;
        names = language_combine(&c->languages, names, DFA_LABEL + (unsigned)i, dfa);
        schema_language(c, schema, "patternProperties", names);
    }
    return names;
}

// The language of a string without its quotes.
static int string_language(SchemaCompiler *c, const StringDef *s) {
    char length[64];
    if (s->max == NO_LIMIT)
        snprintf(length, sizeof length, "[\\s\\S]{%u,}", s->min);
    else
        snprintf(length, sizeof length, "[\\s\\S]{%u,%u}", s->min, s->max);
    return language_narrow(&c->languages, s->dfa, DFA_INTERSECT, str_of(length));
}

// Compiles the schema of "propertyNames", for strings only, into c->never, which has no
// alternatives otherwise. Strings that it lists are appended to `listed` (Str) instead.
static void compile_names(SchemaCompiler *c, const Conjunct *a, Buffer *listed) {
    CompileTarget outer = c->target;
    Conjunction strings = conjunction_new();
    strings.types = TYPE_STRING;

    c->target = (CompileTarget){.value = c->never,
                                .assertions = &a->assertion,
                                .n_assertions = 1,
                                .n_alts = outer.n_alts,
                                .place = outer.place,
                                .names = listed};
    schema_expand_with(c, strings, a->assertion.kind, a->assertion.json);
    c->target = outer;
}

// Removes the alternatives of c->never, which are strings, and returns their union: the complement
// of the strings that match no alternative. -1 after a failure.
static int take_strings(SchemaCompiler *c) {
    ValueDef *strings = &c->grammar->values[c->never];
    int any = string_regex(c, NULL, NULL, str_of(REGEX_ANY), REGEX_WHOLE);
    int in_none = any;

    for (int i = 0; i < strings->n_alts; i++) {
        StringDef s = c->grammar->defs[strings->alts[i]].string;
        in_none = language_combine(&c->languages, in_none, DFA_SUBTRACT, string_language(c, &s));
    }
    strings->n_alts = 0;
    return language_combine(&c->languages, any, DFA_SUBTRACT, in_none);
}

// The names that satisfy "propertyNames", without those that it lists. Adds these to the list.
// -1 after a failure.
static int find_names(SchemaCompiler *c, const Conjunct *a, PropertyList *l) {
    const uint32_t first_order = UINT32_MAX / 4 * 3; // behind all others, see list_names()
    SchemaAssertion assertion = a->assertion;
    Buffer listed = {0};

    compile_names(c, a, &listed);

    // Compile the schema for all types, too, so that any unsupported keyword is an error.
    schema_value(c, &assertion, 1);

    const Str *names = (const Str *)(void *)listed.data;
    for (size_t i = 0; i < listed.len / sizeof *names; i++)
        list_property(l, (PropertyDef){.name = names[i], .order = first_order + (uint32_t)i});
    buffer_free(&listed);

    return take_strings(c);
}

// The names that every "propertyNames" of a conjunction allows, without those that they list.
static int find_allowed_names(SchemaCompiler *c, const Conjunction *f, PropertyList *l) {
    int names = string_regex(c, NULL, NULL, str_of(REGEX_ANY), REGEX_WHOLE);
    for (const Conjunct *a = f->conjuncts; a && !c->failed; a = a->next) {
        if (a->kind != CONJUNCT_NAMES) continue;
        names = language_combine(&c->languages, names, DFA_INTERSECT, find_names(c, a, l));
        schema_language(c, a->schema, "propertyNames", names);
    }
    return names;
}

// Removes the listed names from a language of names.
static int subtract_names(SchemaCompiler *c, int names, const PropertyList *l) {
    Buffer listed = {0};
    for (int i = 0; i < l->n; i++) regex_put_literal(&listed, l->at[i].name);
    if (l->n) names = language_narrow(&c->languages, names, DFA_SUBTRACT, buffer_str(&listed));
    buffer_free(&listed);
    return schema_language(c, NULL, NULL, names);
}

// The DFA of the allowed names: labeled with patterns, which are listed.
static int other_names(SchemaCompiler *c, const Conjunction *f, int allowed, PatternList *patterns,
                       const PropertyList *l) {
    int any = string_regex(c, NULL, NULL, str_of(REGEX_ANY), REGEX_WHOLE);
    int names = allowed;
    for (const Conjunct *a = f->conjuncts; a && !c->failed; a = a->next)
        if (a->kind == CONJUNCT_SCHEMA) names = label_patterns(c, a->schema, patterns, names);
    return names != any && !c->failed ? subtract_names(c, names, l) : names;
}

static void add_other_names(SchemaCompiler *c, const Conjunction *f, int allowed, ObjectDef *o,
                            const PropertyList *l) {
    PatternList patterns = {.n = 0};
    Dfa d;
    int names = other_names(c, f, allowed, &patterns, l);
    if (c->failed) return;

    // Copy it, because grammar_finish() removes names from it whose value is impossible.
    const Dfa *shared = &c->grammar->defs[names].dfa;
    if (!dfa_product(&d, shared, shared, DFA_INTERSECT, &c->languages.budget)) {
        schema_language(c, NULL, NULL, -1);
        return;
    }

    // Add a value for each set of patterns that some name matches.
    o->n_other = 1 << patterns.n;
    o->other_values = arena_alloc(&c->grammar->arena, (size_t)o->n_other, sizeof(int));
    bool has_value = false;
    for (int i = 0; i < o->n_other; i++) o->other_values[i] = c->never;
    for (int state = 1; state < d.n_states && schema_spend(c, 4); state++) {
        PropertyName name = {.patterns = &patterns, .matched = d.accept[state] - 1u};
        if (d.accept[state] && o->other_values[name.matched] == c->never)
            o->other_values[name.matched] = property_value(c, f, &name);
        has_value |= d.accept[state] && o->other_values[name.matched] != c->never;
    }

    if (has_value)
        o->other = grammar_add_dfa(c->grammar, d);
    else
        dfa_free(&d);
}

// Leaves "minProperties" to a check if the machine cannot enforce it beside unlisted names. They
// may repeat, so the required properties and one other are all that certainly differ (see
// grammar_finish).
static void lower_minimum(SchemaCompiler *c, const Conjunction *f, ObjectDef *o,
                          const PropertyList *l) {
    uint32_t n_certain = 1;
    for (int i = 0; i < l->n; i++) n_certain += l->at[i].is_required;
    if (o->min <= n_certain) return;

    for (const Conjunct *a = f->conjuncts; a; a = a->next) {
        if (a->kind != CONJUNCT_SCHEMA) continue;
        const Json *minimum = json_get(a->schema, "minProperties");
        bool is_unenforced = minimum && minimum->number > n_certain;
        if (is_unenforced && schema_leave(c, a->schema, minimum)) o->min = n_certain;
    }
}

static void emit_objects(SchemaCompiler *c, const Conjunction *f) {
    ObjectDef o = {.other = NONE, .min = f->properties.min, .max = f->properties.max};
    PropertyList l = {0};
    if (o.min > o.max) return;

    // Add the listed names, each with its value, then all other names.
    list_names(f, &l);
    int allowed = find_allowed_names(c, f, &l);
    sort_properties(&l);
    for (int i = 0; i < l.n && schema_spend(c, 4); i++)
        l.at[i].value = property_value(c, f, &(PropertyName){.name = l.at[i].name});
    if (!c->failed) add_other_names(c, f, allowed, &o, &l);
    if (o.other != NONE) lower_minimum(c, f, &o, &l);
    add_object(c, o, &l);
}

static void split_unequal_objects(SchemaCompiler *c, Conjunction f, const KeywordUse *u) {
    Conjunction more = f;
    uint32_t n = (uint32_t)u->value->n_items;

    // Branches in which a member is absent, or has a different value.
    for (const Json *m = u->value->child; m && !c->failed; m = m->next) {
        Conjunction differs = f;
        expand_without(c, f, u, m->key);
        add_presence(c, &differs, u, m->key, true)->assertion =
            (SchemaAssertion){ASSERT_UNEQUAL, m};
        schema_expand(c, differs);

        add_presence(c, &more, u, m->key, true);
    }

    // The branch in which all members and at least one other property are present.
    if (more.properties.min <= n) more.properties.min = n + 1;
    schema_expand(c, more);
}

static void emit_object_value(SchemaCompiler *c, const Json *object) {
    uint32_t n = (uint32_t)object->n_items, order = 0;
    PropertyList l = {0};

    for (const Json *k = object->child; k; k = k->next) {
        int value = schema_value(c, &(SchemaAssertion){ASSERT_EQUAL, k}, 1);
        list_property(&l, (PropertyDef){k->key, value, order++, true});
    }

    sort_properties(&l);
    add_object(c, (ObjectDef){.other = NONE, .min = n, .max = n}, &l);
}

const SchemaPart object_part = {keywords, TYPE_OBJECT, emit_objects, emit_object_value,
                                split_unequal_objects};
