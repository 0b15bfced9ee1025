// The validator of JSON texts, see validator.h. It checks parsed values (schema_check.h) and says
// where and why the first check fails. It does not compile a grammar.
#include "constrain/validator.h"
#include "constrain/schema_check.h"

struct SchemaValidator {
    JsonDoc schema, text;
    SchemaCompiler compiler;
    Grammar *grammar; // only the automata of patterns and formats
};

SchemaValidator *validator_new(Str schema, Error *err) {
    SchemaValidator *v = xalloc(1, sizeof *v);
    Error why;
    v->grammar = xalloc(1, sizeof *v->grammar);
    v->text.keeps_last = true;
    if (!json_parse(&v->schema, schema.data, schema.len, &why))
        error_set(err, EXIT_USAGE, "JSON Schema: %s", why.text);
    else
        schema_open(&v->compiler, v->grammar, v->schema.root, err);
    if (v->schema.root && !v->compiler.failed) return v;
    validator_free(v);
    return NULL;
}

void validator_free(SchemaValidator *v) {
    schema_close(&v->compiler);
    grammar_free(v->grammar);
    json_free(&v->schema);
    json_free(&v->text);
    free(v);
}

void validator_make_strict(SchemaValidator *v) {
    v->text.keeps_last = false;
    v->compiler.reads_siblings = true;
}

// Appends what the keyword of a failed check expects.
static void put_expected(SchemaCompiler *c, Buffer *out) {
    const KeywordUse *u = &c->check.use;
    const Json *expected = u->value;
    Buffer text = {0};

    if (!u->keyword) {
        buffer_puts(out, "no value is allowed");
    } else if (str_is(expected->key, "type")) {
        buffer_puts(out, "expected ");
        if (expected->kind == JSON_STRING) buffer_put(out, expected->string);
        for (const Json *type = expected->child; type; type = type->next)
            buffer_printf(out, "%.*s%s", SHOWN(type->string), type->next ? " or " : "");
    } else if (str_is(expected->key, "required")) {
        const Json *name = expected->child;
        while (name->next && schema_member(c, c->check.failed, name->string)) name = name->next;
        buffer_printf(out, "expected property \"%.*s\"", SHOWN(name->string));
    } else {
        json_write_value(&(JsonWriter){.out = &text}, NULL, expected, NULL);
        buffer_printf(out, "violates \"%.*s\": %.*s", SHOWN(expected->key),
                      SHOWN(buffer_str(&text)));
    }
    buffer_free(&text);
}

bool validator_check(SchemaValidator *v, Str text, Error *err) {
    SchemaCompiler *c = &v->compiler;
    if (!json_parse(&v->text, text.data, text.len, err)) return false;

    // Each text has a budget of its own.
    c->languages.budget.left = COMPILE_BUDGET;
    c->failed = false;
    c->err = err;
    if (schema_holds(c, c->root, v->text.root)) return true;
    if (c->failed) return false; // the schema cannot be evaluated

    Buffer place = {0};
    buffer_puts(&place, "#");
    schema_put_pointer(&place, v->text.root, c->check.failed);
    buffer_puts(&place, ": ");
    put_expected(c, &place);
    error_set(err, EXIT_USAGE, "%s", place.data);
    buffer_free(&place);
    return false;
}
