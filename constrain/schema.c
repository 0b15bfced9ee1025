// The entry point of the JSON Schema compiler, and keywords that are annotations or not supported.
#include "constrain/constrain.h"
#include "constrain/schema_keywords.h"

// unevaluatedItems and unevaluatedProperties apply to what no other keyword of the schema
// evaluates.

static bool check_unevaluated(SchemaCompiler *c, const KeywordUse *u, const Json *value) {
    bool *marks = xalloc((size_t)value->n_items + 1, sizeof *marks);
    bool ok = true;
    schema_mark_others(c, u, value, marks);

    int i = 0;
    for (const Json *k = value->child; k && ok; k = k->next)
        if (!marks[i++]) ok = schema_holds(c, u->value, k);
    free(marks);
    return ok;
}

static void mark_unevaluated(SchemaCompiler *c, const KeywordUse *u, const Json *value,
                             bool *marks) {
    (void)c;
    (void)u;
    for (int i = 0; i < value->n_items; i++) marks[i] = true;
}

static const SchemaKeyword other_keywords[] = {
    {"$dynamicRef $recursiveRef", .is_unsupported = true},
    {"unevaluatedItems", TYPE_ARRAY, VALUE_SCHEMA, .check = check_unevaluated,
     .mark = mark_unevaluated, .is_unenforced = true, .first = 2019},
    {"unevaluatedProperties", TYPE_OBJECT, VALUE_SCHEMA, .check = check_unevaluated,
     .mark = mark_unevaluated, .is_unenforced = true, .first = 2019},
    {"extends disallow divisibleBy", .is_unsupported = true, .last = 4},
    // implemented by "if"
    {"then else", .value = VALUE_SCHEMA, .is_annotation = true, .first = 7},
    {"$id", .value = VALUE_STRING, .is_annotation = true, .first = 6},
    {"id", .value = VALUE_STRING, .is_annotation = true, .last = 4},
    {"$anchor $dynamicAnchor $schema", .value = VALUE_STRING, .is_annotation = true},
    {"$defs definitions", .value = VALUE_SCHEMA_MAP, .is_annotation = true},
    {"title description default examples example $comment $recursiveAnchor $vocabulary readOnly "
     "writeOnly deprecated contentEncoding contentMediaType contentSchema",
     .is_annotation = true},
    {.names = NULL},
};

static const SchemaPart other_part = {.keywords = other_keywords};
static const SchemaPart *const parts[] = {&logic_part, &value_part,  &number_part, &string_part,
                                          &array_part, &object_part, &other_part,  NULL};

static void emit(SchemaCompiler *c, const Conjunction *f) {
    if (f->n_values != ANY_VALUE) {
        value_emit_listed(c, f);
        return;
    }
    for (int i = 0; parts[i] && !c->failed; i++)
        if (parts[i]->types & f->types) parts[i]->emit(c, f);
}

// Registers the keywords that a row describes.
static void add_keywords(SchemaCompiler *c, const SchemaKeyword *row) {
    for (const char *name = row->names; *name; name += strspn(name, " ")) {
        size_t len = strcspn(name, " ");
        int i = intern_add(&c->keywords, name, len, NULL);
        c->keywords.values[i] = row;
        name += len;
    }
}

// The drafts, by a part of their "$schema". The first is that of schemas without "$schema".
static const struct {
    int draft;
    const char *mark, *name;
} drafts[] = {{2020, "2020-12", "draft 2020-12"}, {2019, "2019-09", "draft 2019-09"},
              {7, "draft-07", "draft 7"},         {6, "draft-06", "draft 6"},
              {4, "draft-04", "draft 4"},         {4, "draft-03", "draft 4"}};
enum { N_DRAFTS = sizeof drafts / sizeof *drafts };

static int find_draft(const Json *schema) {
    const Json *s = json_get_string(schema, "$schema");
    for (int i = 0; s && i < N_DRAFTS; i++)
        if (str_contains(s->string, drafts[i].mark)) return drafts[i].draft;
    return drafts[0].draft;
}

static const char *draft_name(int draft) {
    int i = 0;
    while (drafts[i].draft != draft) i++;
    return drafts[i].name;
}

// The value of a required property or item because of which a value with one alternative is
// impossible; -1 if there is none. Sets *name to the name of the property.
static int find_cause(const Grammar *g, int value, Str *name) {
    const ValueDef *v = &g->values[value];
    if (v->n_alts != 1) return -1;
    const Def *def = &g->defs[v->alts[0]];

    if (def->kind == DEF_OBJECT) {
        for (int i = 0; i < def->object.n_names; i++) {
            const PropertyDef *p = &def->object.properties[i];
            if (!p->is_required || g->values[p->value].is_possible) continue;
            *name = p->name;
            return p->value;
        }
    }

    if (def->kind == DEF_ARRAY) {
        for (int i = 0; i <= def->array.n_prefix; i++)
            if (!g->values[def->array.items[i]].is_possible) return def->array.items[i];
    }
    return -1;
}

// Fails, because the root is impossible. Names the innermost place and property without a value.
static void fail_impossible(SchemaCompiler *c, int root) {
    enum { MAX_DEPTH = 100 };
    Str name = {"", 0};
    int place = root, cause = place;

    for (int i = 0; i < MAX_DEPTH && cause > c->never; i++) {
        place = cause;
        cause = find_cause(c->grammar, place, &name);
    }

    bool has_place = place > c->never;
    const SchemaAssertion *first = has_place ? intern_key(&c->values, place - c->never) : NULL;
    c->target.place = first ? first->json : NULL;
    schema_fail(
        c, NULL, NULL, name.len ? "no value fits property \"%.*s\"; %s" : "no value fits%.*s; %s",
        SHOWN(name), cause > c->never ? "it contains itself" : "the schema contradicts itself");
}

// A schema that constrains nothing.
//
// A wrapper such as {"name": ..., "schema": {...}}, an example document or a misspelled keyword
// would allow any text. Such a document is an error if it has unknown keywords.

// True if a keyword of a schema restricts its values. {"type": "object"} beside an unknown keyword
// that has parts, such as "property": {...}, hardly does.
static bool is_constraint(SchemaCompiler *c, const Json *schema, const Json *value) {
    const SchemaKeyword *keyword = schema_keyword(c, value->key);
    if (!keyword || keyword->is_annotation) return false;
    if (!str_is(value->key, "type")) return true;

    bool is_array = value->kind == JSON_ARRAY;
    bool is_type = is_array || str_is_one_of(value->string, "null boolean integer number string");
    for (const Json *k = schema->child; k && !is_type; k = k->next) {
        bool has_parts = k->kind == JSON_OBJECT || k->kind == JSON_ARRAY;
        bool is_extension = str_begins_with(k->key, "x-");
        if (has_parts && !is_extension && !schema_keyword(c, k->key)) return false;
    }
    return is_type || str_is_one_of(value->string, "array object");
}

// The first unknown keyword of a schema without constraints; NULL if there is none.
static const Json *find_misplaced(SchemaCompiler *c, const Json *schema) {
    const Json *unknown = NULL;
    for (const Json *k = schema->kind == JSON_OBJECT ? schema->child : NULL; k; k = k->next) {
        if (is_constraint(c, schema, k)) return NULL;
        if (!unknown && !schema_keyword(c, k->key)) unknown = k;
    }
    return unknown;
}

// The first object inside a document, at most `depth` members away, that has a constraint.
static const Json *find_inner_schema(SchemaCompiler *c, const Json *document, int depth) {
    for (const Json *k = document->child; k && depth; k = k->next) {
        for (const Json *value = k->kind == JSON_OBJECT ? k->child : NULL; value;
             value = value->next)
            if (is_constraint(c, k, value)) return k;
        const Json *inner = k->kind == JSON_OBJECT ? find_inner_schema(c, k, depth - 1) : NULL;
        if (inner) return inner;
    }
    return NULL;
}

static void check_constrains(SchemaCompiler *c) {
    enum { MAX_DEPTH = 3 };
    const Json *unknown = find_misplaced(c, c->root);
    if (!unknown) return;

    const Json *inner = find_inner_schema(c, c->root, MAX_DEPTH);
    Buffer hint = {0};
    buffer_puts(&hint, inner ? "is the schema at \"#" : "use {} for any JSON");
    if (inner) {
        schema_put_pointer(&hint, c->root, inner);
        buffer_puts(&hint, "\"?");
    }
    schema_fail(c, c->root, NULL,
                "\"%.*s\" is not a keyword of %s, and no other keyword constrains it; %s",
                SHOWN(unknown->key), draft_name(c->draft), hint.data);
    buffer_free(&hint);
}

void schema_open(SchemaCompiler *c, Grammar *g, const Json *schema, Error *err) {
    *c = (SchemaCompiler){.root = schema,
                          .draft = find_draft(schema),
                          .parts = parts,
                          .err = err,
                          .grammar = g,
                          .languages = {.grammar = g, .budget = {COMPILE_BUDGET, &c->why}},
                          .emit = emit};

    for (int i = 0; parts[i]; i++)
        for (const SchemaKeyword *row = parts[i]->keywords; row->names; row++) add_keywords(c, row);

    check_constrains(c);
    schema_index(c, schema, schema);
}

void schema_close(SchemaCompiler *c) {
    arena_free(&c->arena);
    intern_free(&c->languages.keys);
    free(c->languages.defs);
    intern_free(&c->values);
    intern_free(&c->keywords);
    intern_free(&c->index.schemas);
    intern_free(&c->index.targets);
    intern_free(&c->index.ids);
    intern_free(&c->index.contents);
}

// {"type": "object"}
static const Json object_type = {.kind = JSON_STRING, .string = {"object", 6}, .key = {"type", 4}};
static const Json any_object = {.kind = JSON_OBJECT, .child = &object_type, .n_items = 1};

// Compiles all values of the schema. Compiling a value may add more. Returns the value of the root.
static int compile_values(SchemaCompiler *c, const Json *except, unsigned modes) {
    SchemaAssertion assertions[3] = {{ASSERT_SCHEMA, c->root}};
    int n = 1;
    if (modes & SCHEMA_OBJECT) assertions[n++] = (SchemaAssertion){ASSERT_SCHEMA, &any_object};
    if (except) assertions[n++] = (SchemaAssertion){ASSERT_NOT, except};
    for (int i = 1; i < n; i++) schema_index(c, assertions[i].json, assertions[i].json);

    c->never = grammar_add_value(c->grammar);
    intern_add(&c->values, "none", 1, NULL);

    int root = schema_value(c, assertions, n);
    for (int value = c->never + 1; value < c->grammar->n_values && !c->failed; value++)
        schema_compile_value(c, value);
    return root;
}

int grammar_add_schema(Grammar *g, const Json *schema, const Json *except, unsigned modes,
                       Buffer *unknown, Error *err) {
    SchemaCompiler c;
    GrammarMark begin = grammar_mark(g);
    schema_open(&c, g, schema, err);
    c.is_ordered = modes & SCHEMA_ORDERED;
    c.is_closed = modes & SCHEMA_CLOSED;
    c.unknown = unknown;
    if (modes & SCHEMA_CHECKED) c.unenforced = &g->unenforced;

    int root = compile_values(&c, except, modes);
    c.target.place = NULL;
    if (!c.failed && !grammar_finish(g, begin, root, &c.languages.budget))
        schema_fail(&c, NULL, NULL, "%s", c.why.text);
    if (!c.failed && !g->values[root].is_possible) fail_impossible(&c, root);

    schema_close(&c);
    if (!c.failed) return root;
    grammar_truncate(g, begin);
    return NONE;
}

Grammar *grammar_schema(const Json *schema, const Json *except, unsigned modes, Buffer *unknown,
                        Error *err) {
    Grammar *g = xalloc(1, sizeof *g);
    g->root = grammar_add_schema(g, schema, except, modes, unknown, err);
    if (g->root != NONE) return g;
    grammar_free(g);
    return NULL;
}

Grammar *grammar_schema_text(Str text, const Json *except, unsigned modes, Buffer *unknown,
                             Error *err) {
    JsonDoc doc = {0};
    Error why;
    Grammar *g = NULL;
    if (json_parse(&doc, text.data, text.len, &why))
        g = grammar_schema(doc.root, except, modes, unknown, err);
    else
        error_set(err, EXIT_USAGE, "JSON Schema: %s", why.text);
    json_free(&doc);
    return g;
}

void spec_put_schema(const ConstraintSpec *s, Buffer *out) {
    if (s->kind == CONSTRAINT_SCHEMA)
        json_write_value(&(JsonWriter){.out = out}, NULL, s->schema, NULL);
    else
        buffer_put(out, s->text);
}
