// The check of a finished text, see text_check.h.
//
// A text is JSON that a schema allows, or calls. The schema of a text, and that of each tool's
// arguments, has a validator where the grammar leaves keywords to a check (Grammar.unenforced,
// Grammar.checked_tools). Objects with a repeated name fail, too: no reader has all their members.
#include "constrain/text_check.h"
#include "constrain/constrain.h"
#include "constrain/validator.h"

struct TextCheck {
    SchemaValidator *schema; // of texts that are no calls; NULL: the grammar enforces it
    SchemaValidator *shape;  // of calls without a tag, which are JSON as well; NULL: there are none
    bool has_calls;          // a text may be calls
    const char *key;         // name of the arguments of a call
    InternTable tools;       // names of tools, each with the SchemaValidator of its arguments
};

// Adds the tools that the grammar names.
static void add_tools(TextCheck *c, const Grammar *g, const CallSpec *calls) {
    JsonDoc doc = {0};
    Error unused; // the tools and their schemas have been compiled
    if (!json_parse(&doc, calls->tools.data, calls->tools.len, &unused)) return;

    for (const Json *tool = doc.root->child; tool; tool = tool->next) {
        const Json *function = json_get(tool, "function");
        Str name = json_get(function, "name")->string;
        Buffer schema = {0};
        if (intern_find(&g->checked_tools, name.data, name.len) < 0) continue;

        json_write_value(&(JsonWriter){.out = &schema}, NULL, json_get(function, "parameters"),
                         NULL);
        SchemaValidator *v = validator_new(buffer_str(&schema), &unused);
        validator_make_strict(v);
        int i = intern_add(&c->tools, name.data, name.len, NULL);
        c->tools.values[i] = v;
        buffer_free(&schema);
    }
    json_free(&doc);
}

TextCheck *text_check_new(const Grammar *g, const ConstraintSpec *spec) {
    bool is_schema = spec->kind == CONSTRAINT_SCHEMA || spec->kind == CONSTRAINT_SCHEMA_TEXT;
    bool has_calls = spec->calls.tools.len;
    bool has_unenforced = g->unenforced.len || g->may_repeat || g->checked_tools.n;
    if (!has_unenforced || !(is_schema || has_calls)) return NULL;

    TextCheck *c = xalloc(1, sizeof *c);
    Buffer schema = {0}, shape = {0};
    Error unused; // the schemas have been compiled
    *c = (TextCheck){.has_calls = has_calls, .key = spec->calls.key};

    if (is_schema) spec_put_schema(spec, &schema);
    if (is_schema) calls_put_shape(&spec->calls, &shape);
    if (schema.len) c->schema = validator_new(buffer_str(&schema), &unused);
    if (c->schema) validator_make_strict(c->schema);
    if (shape.len) c->shape = validator_new(buffer_str(&shape), &unused);
    if (g->checked_tools.n) add_tools(c, g, &spec->calls);

    buffer_free(&schema);
    buffer_free(&shape);
    return c;
}

void text_check_free(TextCheck *c) {
    if (!c) return;
    if (c->schema) validator_free(c->schema);
    if (c->shape) validator_free(c->shape);
    for (int i = 0; i < c->tools.n; i++) validator_free((SchemaValidator *)c->tools.values[i]);
    intern_free(&c->tools);
    free(c);
}

static bool check_arguments(const TextCheck *c, Str tool, const Json *arguments, Error *err) {
    Buffer text = {0};
    int i = intern_find(&c->tools, tool.data, tool.len);
    if (i < 0) return true; // the grammar enforces them

    json_write_value(&(JsonWriter){.out = &text}, NULL, arguments, NULL);
    bool ok = validator_check((SchemaValidator *)c->tools.values[i], buffer_str(&text), err);
    buffer_free(&text);
    return ok;
}

// Checks an object in a text. One that is not a call passes.
static bool check_call(const TextCheck *c, Str object, Error *err) {
    JsonDoc call = {.keeps_last = true}, unique = {0};
    Error why;
    bool ok = true;

    bool is_json = json_parse(&call, object.data, object.len, &why);
    const Json *name = is_json ? json_get_string(call.root, "name") : NULL;
    const Json *arguments = is_json ? json_get(call.root, c->key) : NULL;
    if (name && arguments)
        ok = json_parse(&unique, object.data, object.len, &why) &&
             check_arguments(c, name->string, arguments, &why);
    if (!ok) error_set(err, EXIT_USAGE, "tool %.*s: %s", SHOWN(name->string), why.text);

    json_free(&call);
    json_free(&unique);
    return ok;
}

// Checks the objects in a text of calls. Between them are tags, brackets and separators.
static bool check_calls(const TextCheck *c, Str text, Error *err) {
    static const Str brace = {"{", 1};
    bool ok = true;

    while (ok && str_contains(text, "{")) {
        size_t at = str_find(text, brace);
        Str object = {text.data + at, json_span((Str){text.data + at, text.len - at})};
        if (!object.len) break;

        ok = check_call(c, object, err);
        text = (Str){object.data + object.len, text.len - at - object.len};
    }
    return ok;
}

// True if a text is calls. All other texts of a schema are JSON.
static bool is_calls(const TextCheck *c, Str text) {
    JsonDoc doc = {.keeps_last = true};
    Error unused;
    if (!c->has_calls || !c->schema) return c->has_calls;

    bool is_json = json_parse(&doc, text.data, text.len, &unused);
    json_free(&doc);
    return !is_json || (c->shape && validator_check(c->shape, text, &unused));
}

bool text_check(const TextCheck *c, Str text, Error *err) {
    if (!c) return true;
    if (is_calls(c, text)) return check_calls(c, text, err);
    return validator_check(c->schema, text, err);
}
