#include "schema_keywords.h"

#include <stdlib.h>

static void assert_listed(SchemaCompiler *c, Conjunction *f, const KeywordUse *u) {
    (void)c;
    const Json *list = json_get(u->schema, "enum"); // is used if the schema has both
    bool has_list = list && list->kind == JSON_ARRAY, is_value = str_is(u->value->key, "const");
    if (is_value ? !has_list : has_list) f->values = u->value, f->is_value = is_value;
}

static void negate_listed(SchemaCompiler *c, Conjunction f, const KeywordUse *u) {
    conjunction_add(c, &f, CONJUNCT_NOT_EQUAL, u)->is_value = str_is(u->value->key, "const");
    schema_expand(c, f);
}

static bool check_enum(SchemaCompiler *c, const KeywordUse *u, const Json *value) {
    (void)c;
    for (const Json *v = u->value->child; v; v = v->next)
        if (json_is_equal(v, value)) return true;
    return false;
}

static bool check_const(SchemaCompiler *c, const KeywordUse *u, const Json *value) {
    (void)c;
    return json_is_equal(u->value, value);
}

static unsigned find_enum_types(SchemaCompiler *c, const KeywordUse *u) {
    (void)c;
    unsigned types = 0;
    for (const Json *v = u->value->child; v; v = v->next) types |= schema_type_of(v);
    return types;
}

static unsigned find_const_type(SchemaCompiler *c, const KeywordUse *u) {
    (void)c;
    return schema_type_of(u->value);
}

const SchemaKeyword schema_value_keywords[] = {
    {"enum", TYPE_ANY, assert_listed, negate_listed, .check = check_enum,
     .find_types = find_enum_types},
    {"const", TYPE_ANY, assert_listed, negate_listed, .check = check_const, .first = 6,
     .find_types = find_const_type},
    {.name = NULL},
};

// Adds the alternative of a text that matches a regular expression.
static void add_text(SchemaCompiler *c, Str pattern) {
    int dfa = pattern.len ? string_regex(c, NULL, NULL, pattern, REGEX_WHOLE) : -1;
    if (dfa >= 0 && !dfa_is_empty(&c->grammar->dfas[dfa]))
        grammar_add_alt(c->grammar, c->target.value, ALT_TEXT, dfa);
}

static void emit_words(SchemaCompiler *c, unsigned types) {
    Buffer words = {0};
    if (types & TYPE_NULL) buffer_puts(&words, "null");
    if (types & TYPE_TRUE) buffer_puts(&words, words.len ? "|true" : "true");
    if (types & TYPE_FALSE) buffer_puts(&words, words.len ? "|false" : "false");
    add_text(c, buffer_str(&words));
    buffer_free(&words);
}

void value_emit(SchemaCompiler *c, const Conjunction *f) {
    emit_words(c, f->types);
    for (const Conjunct *a = f->conjuncts; a && !c->failed; a = a->next) {
        bool is_array = f->types & TYPE_ARRAY && conjunct_next_excluded(a, JSON_ARRAY, NULL),
             is_object = f->types & TYPE_OBJECT && conjunct_next_excluded(a, JSON_OBJECT, NULL);
        if (is_array || is_object)
            schema_fail(c, a->schema, NULL,
                        "an array or object in a list of values under \"not\" is not supported");
    }
}

static int compare_strings(const void *a, const void *b) {
    return str_compare(*(const Str *)a, *(const Str *)b);
}

// Adds the alternative of a string out of a list, which is sorted.
static void add_listed_strings(SchemaCompiler *c, Str *list, int n) {
    int n_distinct = 0;
    if (!n) return;
    qsort(list, (size_t)n, sizeof *list, compare_strings);
    for (int i = 0; i < n; i++)
        if (!i || !str_eq(list[i], list[n_distinct - 1])) list[n_distinct++] = list[i];
    int trie = trie_add(c->grammar, list, n_distinct);
    int string = grammar_add_string(c->grammar, (StringDef){trie, NONE, .max = NO_LIMIT});
    grammar_add_alt(c->grammar, c->target.value, ALT_STRING, string);
}

void value_emit_listed(SchemaCompiler *c, const Conjunction *f) {
    Buffer numbers = {0};
    unsigned words = 0;
    int n_strings = 0, n_values = f->is_value ? 1 : f->values->n_items;
    Str *strings = xalloc((size_t)n_values + 1, sizeof *strings);
    const Json *v = f->is_value ? f->values : f->values->child;
    for (int i = 0; i < n_values && schema_spend(c, 4); i++, v = v->next) {
        bool fits = true;
        for (int k = 0; fits && k < c->target.n_assertions; k++)
            fits = assertion_holds(c, c->target.assertions[k], v);
        if (!fits) continue;
        switch (v->kind) {
        case JSON_NULL:
        case JSON_BOOL: words |= schema_type_of(v); break;
        case JSON_STRING: strings[n_strings++] = v->string; break;
        case JSON_ARRAY: array_emit_value(c, v); break;
        case JSON_OBJECT: object_emit_value(c, v); break;
        case JSON_NUMBER:
            buffer_puts(&numbers, numbers.len ? "|" : "");
            number_put_pattern(&numbers, v->number);
        }
    }
    emit_words(c, words);
    add_text(c, buffer_str(&numbers));
    add_listed_strings(c, strings, n_strings);
    free(strings), buffer_free(&numbers);
}
