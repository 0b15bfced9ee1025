// Listed values: const and enum; null, true and false. See schema_keywords.h.
#include "constrain/schema_keywords.h"

// The first of the n values that "const" or "enum" lists.
static const Json *listed_values(const KeywordUse *u, int *n) {
    bool is_const = str_is(u->value->key, "const");
    *n = is_const ? 1 : u->value->n_items;
    return is_const ? u->value : u->value->child;
}

static void assert_listed(SchemaCompiler *c, Conjunction *f, const KeywordUse *u) {
    int n;
    const Json *v = listed_values(u, &n);
    const Json *list = json_get(u->schema, "enum"); // takes precedence over "const"

    if (u->is_negated) {
        conjunction_exclude(c, f, u, v, n);
    } else if (!list || u->value == list) {
        f->values = v;
        f->n_values = n;
    }
}

static bool check_listed(SchemaCompiler *c, const KeywordUse *u, const Json *value) {
    int n;
    const Json *v = listed_values(u, &n);
    if (v == c->check.listed && value == c->check.candidate) return true;
    for (; n > 0 && !json_is_equal(c, v, value); n--) v = v->next;
    return n > 0;
}

static unsigned find_listed_types(SchemaCompiler *c, const KeywordUse *u) {
    (void)c;
    int n;
    unsigned types = 0;
    for (const Json *v = listed_values(u, &n); n > 0; n--, v = v->next)
        types |= schema_type_of(c, v);
    return types;
}

static const SchemaKeyword keywords[] = {
    {"enum", TYPE_ANY, VALUE_LIST, assert_listed, schema_negate, .check = check_listed,
     .find_types = find_listed_types},
    {"const", TYPE_ANY, VALUE_ANY, assert_listed, schema_negate, .check = check_listed, .first = 6,
     .find_types = find_listed_types},
    {.names = NULL},
};

// Adds an alternative for the texts that match a regular expression, if there are any.
static void add_text(SchemaCompiler *c, Str pattern) {
    int dfa = pattern.len ? string_regex(c, NULL, NULL, pattern, REGEX_WHOLE) : -1;
    if (dfa >= 0 && !dfa_is_empty(&c->grammar->defs[dfa].dfa)) schema_add_alt(c, dfa);
}

// Adds an alternative for those of null, true and false that are among the types.
static void emit_words(SchemaCompiler *c, const Conjunction *f) {
    Buffer words = {0};
    if (f->types & TYPE_NULL) buffer_puts(&words, "null");
    if (f->types & TYPE_TRUE) buffer_puts(&words, words.len ? "|true" : "true");
    if (f->types & TYPE_FALSE) buffer_puts(&words, words.len ? "|false" : "false");
    add_text(c, buffer_str(&words));
    buffer_free(&words);
}

const SchemaPart value_part = {keywords, TYPE_NULL | TYPE_TRUE | TYPE_FALSE, emit_words, NULL,
                               NULL};

static int compare_strings(const void *a, const void *b) {
    return str_compare(*(const Str *)a, *(const Str *)b);
}

// Adds an alternative for a list of strings. Sorts the list.
static void add_listed_strings(SchemaCompiler *c, Str *list, int n) {
    if (c->target.names) buffer_append(c->target.names, list, (size_t)n * sizeof *list);
    if (!n || c->target.names) return;
    n = (int)list_unique(list, (size_t)n, sizeof *list, compare_strings);
    int trie = trie_add(c->grammar, list, n);
    StringDef s = {trie, NONE, .max = NO_LIMIT};
    schema_add_alt(c, grammar_add(c->grammar, (Def){DEF_STRING, .string = s}));
}

void value_emit_listed(SchemaCompiler *c, const Conjunction *f) {
    Buffer numbers = {0};
    Conjunction words = {0};
    int n_strings = 0;
    Str *strings = xalloc((size_t)f->n_values + 1, sizeof *strings);
    const Json *v = f->values;
    c->check.listed = f->values;

    // Emit the listed values that satisfy all assertions.
    for (int i = 0; i < f->n_values && schema_spend(c, 80); i++, v = v->next) {
        bool fits = schema_type_of(c, v) & f->types;
        c->check.candidate = v;
        for (int k = 0; fits && k < c->target.n_assertions; k++)
            fits = assertion_holds(c, c->target.assertions[k], v);
        if (!fits) continue;

        switch (v->kind) {
        case JSON_NULL:
        case JSON_BOOL: words.types |= schema_type_of(c, v); break;
        case JSON_STRING: strings[n_strings++] = v->string; break;
        case JSON_ARRAY:
        case JSON_OBJECT: schema_part(c, schema_type_of(c, v))->emit_value(c, v); break;
        case JSON_NUMBER:
            if (!number_put_pattern(&numbers, v, false))
                schema_fail(c, NULL, NULL, "%.*s has too many digits", SHOWN(v->string));
            break;
        }
    }

    emit_words(c, &words);
    add_text(c, buffer_str(&numbers));
    add_listed_strings(c, strings, n_strings);

    free(strings);
    buffer_free(&numbers);
}
