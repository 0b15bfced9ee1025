// The index of a schema: checks the kind of every keyword's value before any keyword is used, finds
// schemas that are equal except for annotations, and finds what $ref refers to.
//
// A resource is a schema with an $id, or the root. A $ref is a JSON pointer into the resource
// around it, "#" or "#/...", or the text of an $id in the document. Texts are compared as they are.
// A reference that only a resolved URI would find is an error, and so is one to an anchor.
//
// Order: the index, then references.
#include "constrain/number.h"
#include "constrain/schema_check.h"

// The index.

// The $id of a schema, or an empty text.
static Str find_id(const SchemaCompiler *c, const Json *schema) {
    const Json *id = json_get_string(schema, c->draft == 4 ? "id" : "$id");
    bool is_hidden = c->draft <= 7 && json_get(schema, "$ref");
    return id && !is_hidden ? id->string : (Str){0};
}

// Copies of a schema may have the same $id. They are one schema.
static void index_id(SchemaCompiler *c, Str id, const Json *schema) {
    bool is_new;
    int i = intern_add(&c->index.ids, id.data, id.len, &is_new);
    const Json *other = c->index.ids.values[i];
    bool is_copy = other && json_is_equal(c, other, schema);
    c->index.ids.values[i] = is_new || is_copy ? schema : NULL;
}

// What a value must be.
typedef struct {
    unsigned kinds; // bits of JsonKind; 0: any
    const char *what;
    KeywordValue items; // what the items or members must be
} ValueRule;

static const ValueRule value_rules[] = {
    [VALUE_STRING] = {1 << JSON_STRING, "a string", VALUE_ANY},
    [VALUE_BOOL] = {1 << JSON_BOOL, "true or false", VALUE_ANY},
    [VALUE_NUMBER] = {1 << JSON_NUMBER, "a number", VALUE_ANY},
    [VALUE_COUNT] = {1 << JSON_NUMBER, "a whole number of at least 0", VALUE_ANY},
    [VALUE_LIMIT] = {1 << JSON_NUMBER | 1 << JSON_BOOL, "a number", VALUE_ANY},
    [VALUE_LIST] = {1 << JSON_ARRAY, "a list", VALUE_ANY},
    [VALUE_NAME] = {1 << JSON_STRING, "a list of names, such as [\"a\", \"b\"]", VALUE_ANY},
    [VALUE_NAMES] = {1 << JSON_ARRAY, "a list of names, such as [\"a\", \"b\"]", VALUE_NAME},
    [VALUE_NAME_OR_NAMES] = {1 << JSON_STRING | 1 << JSON_ARRAY, "a name or a list of names",
                             VALUE_NAME},
    [VALUE_SCHEMAS] = {1 << JSON_ARRAY, "a list of at least one schema", VALUE_SCHEMA},
    [VALUE_ITEMS] = {0, NULL, VALUE_SCHEMA},
    [VALUE_SCHEMA_OR_NAMES] = {0, "a list of names", VALUE_NAME},
    [VALUE_SCHEMA_MAP] = {1 << JSON_OBJECT, "an object of schemas", VALUE_SCHEMA},
    [VALUE_NAMES_MAP] = {1 << JSON_OBJECT, "an object of lists of names", VALUE_NAMES},
    [VALUE_DEPENDENCIES] = {1 << JSON_OBJECT, "an object of schemas or lists of names",
                            VALUE_SCHEMA_OR_NAMES},
};

// Checks the value of a keyword, or an item or member of it. Indexes the schemas in it.
static bool index_value(SchemaCompiler *c, const KeywordUse *u, const Json *value,
                        KeywordValue expected, const Json *resource) {
    bool may_be_schema = expected == VALUE_ITEMS || expected == VALUE_SCHEMA_OR_NAMES;
    if (expected == VALUE_SCHEMA || (may_be_schema && value->kind != JSON_ARRAY))
        return schema_index(c, value, resource);

    const ValueRule *rule = &value_rules[expected];
    bool fits = !rule->kinds || rule->kinds >> value->kind & 1;
    if (expected == VALUE_COUNT) fits = fits && value->number >= 0 && number_is_integer(value);
    if (expected == VALUE_SCHEMAS) fits = fits && value->n_items;
    if (!fits)
        return schema_fail(c, u->schema, NULL, "\"%.*s\": expected %s", SHOWN(u->value->key),
                           rule->what);

    for (const Json *v = rule->items ? value->child : NULL; v; v = v->next)
        if (!index_value(c, u, v, rule->items, resource)) return false;
    return true;
}

SchemaInfo *schema_info(SchemaCompiler *c, const Json *schema) {
    int i = intern_add(&c->index.schemas, &schema, sizeof schema, NULL);
    return (SchemaInfo *)c->index.schemas.values[i];
}

// Indexes a schema inside a resource, and all schemas inside it.
bool schema_index(SchemaCompiler *c, const Json *schema, const Json *resource) {
    bool is_new, ok = true;
    int i = intern_add(&c->index.schemas, &schema, sizeof schema, &is_new);
    if (!is_new || schema->kind == JSON_BOOL) return true;
    if (schema->kind != JSON_OBJECT)
        return schema_fail(c, schema, NULL, "expected a schema (an object, true or false)");

    // References inside are relative to a schema with an $id. One that is only a fragment is an
    // anchor.
    Str id = find_id(c, schema);
    if (id.len) index_id(c, id, schema);
    if (id.len && id.data[0] != '#') resource = schema;

    SchemaInfo *info = arena_alloc(&c->arena, 1, sizeof *info);
    *info = (SchemaInfo){resource, schema, TYPE_ANY, false};
    c->index.schemas.values[i] = info;

    // The content is what the schema says without annotations, except for "then" and "else".
    Buffer content = {0};
    buffer_printf(&content, "%p", (const void *)resource);
    for (const Json *k = schema->child; k && ok; k = k->next) {
        KeywordUse u = {.keyword = schema_keyword(c, k->key), .schema = schema, .value = k};
        if (u.keyword) ok = index_value(c, &u, k, u.keyword->value, resource);
        if (u.keyword && u.keyword->is_annotation && u.keyword->value != VALUE_SCHEMA) continue;
        json_quote(&content, k->key);
        json_write_value(&(JsonWriter){.out = &content}, NULL, k, NULL);
    }

    int same = intern_add(&c->index.contents, content.data, content.len, &is_new);
    if (is_new) c->index.contents.values[same] = schema;
    info->same = c->index.contents.values[same];
    buffer_free(&content);
    return ok;
}

// $ref.

// Decodes %XX, ~0 and ~1 in one step of a JSON pointer that is a URI fragment. Appends a NUL byte.
static Str decode_step(SchemaCompiler *c, Str s) {
    char *out = arena_alloc(&c->arena, 1, s.len + 1);
    size_t n = 0;
    for (size_t i = 0; i < s.len; i++) {
        char ch = s.data[i];
        if (ch == '%' && i + 2 < s.len && hex_digit(s.data[i + 1]) >= 0 &&
            hex_digit(s.data[i + 2]) >= 0) {
            ch = (char)(hex_digit(s.data[i + 1]) << 4 | hex_digit(s.data[i + 2]));
            i += 2;
        }
        if (ch == '~' && i + 1 < s.len && (s.data[i + 1] == '0' || s.data[i + 1] == '1'))
            ch = s.data[++i] == '0' ? '~' : '/';
        out[n++] = ch;
    }

    out[n] = 0;
    return (Str){out, n};
}

static const Json *child_at(SchemaCompiler *c, const Json *j, Str step) {
    int64_t index;
    const Json *k = j->child;
    if (j->kind == JSON_OBJECT) return schema_member(c, j, step);
    bool is_index = step.len && strspn(step.data, "0123456789") == step.len;
    if (j->kind != JSON_ARRAY || !is_index || !parse_i64(step.data, &index)) return NULL;
    while (k && index-- > 0) k = k->next;
    return k;
}

// The target of a reference "#" or "#/...". NULL if there is none, and for any other reference.
static const Json *follow_pointer(SchemaCompiler *c, const Json *from, Str ref) {
    if (!str_is(ref, "#") && !str_begins_with(ref, "#/")) return NULL;
    for (size_t at = 2; from && at <= ref.len;) {
        const char *end = memchr(ref.data + at, '/', ref.len - at);
        size_t n = end ? (size_t)(end - ref.data) - at : ref.len - at;
        from = child_at(c, from, decode_step(c, (Str){ref.data + at, n}));
        at += n + 1;
    }
    return from;
}

// The target of a reference inside a resource, or NULL.
static const Json *find_target(SchemaCompiler *c, const Json *resource, Str ref) {
    const Json *found = follow_pointer(c, resource, ref);
    if (found || str_is(ref, "#") || str_begins_with(ref, "#/")) return found;
    if (resource->kind == JSON_OBJECT && str_eq(find_id(c, resource), ref)) return resource;
    int i = intern_find(&c->index.ids, ref.data, ref.len);
    return i < 0 ? NULL : c->index.ids.values[i];
}

const Json *schema_target(SchemaCompiler *c, const Json *schema, const Json *ref) {
    int known = intern_add(&c->index.targets, &ref, sizeof ref, NULL);
    if (c->index.targets.values[known]) return c->index.targets.values[known];

    Str text = ref->string;
    const Json *resource = schema_info(c, schema)->resource;
    const Json *found = find_target(c, resource, text);

    if (!found && str_begins_with(text, "#/"))
        schema_fail(c, schema, "$ref", "\"%.*s\" is not in the schema; include it in \"$defs\"",
                    SHOWN(text));
    if (!found)
        schema_fail(c, schema, "$ref",
                    "\"%.*s\" is not the \"$id\" of exactly one schema in the document, and URIs "
                    "are not resolved; refer to a schema in \"$defs\" as \"#/$defs/NAME\"",
                    SHOWN(text));

    // A target that is not inside the value of any keyword has not been indexed yet.
    if (found && schema_index(c, found, resource)) c->index.targets.values[known] = found;
    return c->index.targets.values[known];
}
