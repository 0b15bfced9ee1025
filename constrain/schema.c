// The entry point of the JSON Schema compiler, and the keywords without a meaning of their own.
#include "constrain.h"
#include "schema_array.h"
#include "schema_logic.h"
#include "schema_number.h"
#include "schema_object.h"
#include "schema_string.h"
#include "schema_value.h"

#define UNSUPPORTED(keyword, from, to)                                                             \
    { .name = keyword, .role = KEYWORD_UNSUPPORTED, .first = from, .last = to, .types = TYPE_ANY }
#define ANNOTATION(keyword, from)                                                                  \
    { .name = keyword, .role = KEYWORD_ANNOTATION, .first = from }

static const SchemaKeyword other_keywords[] = {
    UNSUPPORTED("contains", 6, 0),
    UNSUPPORTED("minContains", 2019, 0),
    UNSUPPORTED("maxContains", 2019, 0),
    UNSUPPORTED("$dynamicRef", 0, 0),
    UNSUPPORTED("$recursiveRef", 0, 0),
    UNSUPPORTED("extends", 0, 4),
    UNSUPPORTED("disallow", 0, 4),
    UNSUPPORTED("divisibleBy", 0, 4),
    ANNOTATION("then", 7), // "then" and "else" are read by "if"
    ANNOTATION("else", 7),
    ANNOTATION("title", 0),
    ANNOTATION("description", 0),
    ANNOTATION("default", 0),
    ANNOTATION("examples", 0),
    ANNOTATION("example", 0),
    ANNOTATION("$comment", 0),
    ANNOTATION("$schema", 0),
    ANNOTATION("$id", 0),
    ANNOTATION("id", 0),
    ANNOTATION("$anchor", 0),
    ANNOTATION("$dynamicAnchor", 0),
    ANNOTATION("$recursiveAnchor", 0),
    ANNOTATION("$vocabulary", 0),
    ANNOTATION("$defs", 0),
    ANNOTATION("definitions", 0),
    ANNOTATION("readOnly", 0),
    ANNOTATION("writeOnly", 0),
    ANNOTATION("deprecated", 0),
    ANNOTATION("contentEncoding", 0),
    ANNOTATION("contentMediaType", 0),
    ANNOTATION("contentSchema", 0),
    {.name = NULL},
};

static const SchemaKeyword *const keyword_tables[] = {
    schema_logic_keywords, schema_value_keywords,  schema_number_keywords, schema_string_keywords,
    schema_array_keywords, schema_object_keywords, other_keywords,         NULL};

static void emit(SchemaCompiler *c, const Conjunction *f) {
    if (f->values) {
        value_emit_listed(c, f);
        return;
    }
    value_emit(c, f);
    number_emit(c, f);
    string_emit(c, f);
    array_emit(c, f);
    object_emit(c, f);
}

static int find_draft(const Json *schema) {
    const Json *s = json_get_string(schema, "$schema");
    if (!s) return 2020;
    if (str_contains(s->string, "draft-03") || str_contains(s->string, "draft-04")) return 4;
    if (str_contains(s->string, "draft-06")) return 6;
    if (str_contains(s->string, "draft-07")) return 7;
    return str_contains(s->string, "2019-09") ? 2019 : 2020;
}

Grammar *grammar_schema(const Json *schema, bool is_ordered, Buffer *unknown, Error *err) {
    Grammar *g = grammar_new();
    Error why;
    SchemaCompiler c = {.grammar = g,
                        .root = schema,
                        .draft = find_draft(schema),
                        .keywords = keyword_tables,
                        .emit = emit,
                        .budget = {COMPILE_BUDGET},
                        .err = err,
                        .unknown = unknown};
    g->is_ordered = is_ordered;
    schema_new_value(&c, NULL, 0); // value 0: none; never compiled
    g->root = schema_value(&c, &(SchemaAssertion){ASSERT_SCHEMA, schema}, 1);
    for (c.value = 1; c.value < g->n_values && !c.failed; c.value++) schema_compile_value(&c);
    if (!c.failed && !grammar_finish(g, &c.budget, &why))
        schema_fail(&c, NULL, NULL, "%s", why.text);
    if (!c.failed && !g->values[g->root].is_possible)
        schema_fail(&c, NULL, NULL, "no value fits; the schema contradicts itself");
    schema_compiler_free(&c);
    if (!c.failed) return g;
    grammar_free(g);
    return NULL;
}

Grammar *grammar_schema_text(Str text, bool is_ordered, Buffer *unknown, Error *err) {
    JsonDoc doc = {0};
    Error why;
    Grammar *g = NULL;
    if (json_parse(&doc, text.data, text.len, &why))
        g = grammar_schema(doc.root, is_ordered, unknown, err);
    else
        error_set(err, EXIT_USAGE, "JSON Schema: %s", why.text);
    json_free(&doc);
    return g;
}
