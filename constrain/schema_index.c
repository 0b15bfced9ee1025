// The index of a schema: checks the kind of every keyword's value before any keyword is used, and
// finds what $ref refers to.
//
// A resource is a schema with an $id, or the root. Its URI is the $id, resolved against the URI of
// the resource around it. A $ref is resolved against the URI of its own resource; what follows # is
// an anchor of the resource found, or a JSON pointer into it.
//
// Order: URIs, the index, then references.
#include "number.h"
#include "schema_compiler.h"

// URIs (RFC 3986, section 5.2, without the removal of dot segments).

// Length of a scheme and its colon; 0: a relative reference.
static size_t scheme_length(Str uri) {
    size_t n = 0;
    while (n < uri.len && !strchr(":/?", uri.data[n])) n++;
    return n && n < uri.len && uri.data[n] == ':' ? n + 1 : 0;
}

// Offset of the path, which follows the scheme and the authority.
static size_t path_offset(Str uri) {
    size_t at = scheme_length(uri);
    if (uri.len - at < 2 || memcmp(uri.data + at, "//", 2)) return at;
    for (at += 2; at < uri.len && uri.data[at] != '/' && uri.data[at] != '?';) at++;
    return at;
}

static Str resolve_uri(SchemaCompiler *c, Str base, Str ref) {
    if (!ref.len) return base;
    if (scheme_length(ref)) return ref;

    // Keep the scheme of the base, its authority, and its directories, unless `ref` replaces them.
    const char *query = base.len ? memchr(base.data, '?', base.len) : NULL;
    if (query) base.len = (size_t)(query - base.data);
    size_t path = path_offset(base), n = base.len;
    bool has_authority = path > scheme_length(base);
    if (ref.data[0] == '/')
        n = ref.len > 1 && ref.data[1] == '/' ? scheme_length(base) : path;
    else if (ref.data[0] != '?')
        while (n > path && base.data[n - 1] != '/') n--;

    char *out = arena_alloc(&c->arena, 1, base.len + ref.len + 2);
    if (n) memcpy(out, base.data, n);
    if (has_authority && n == path && ref.data[0] != '/') out[n++] = '/';
    memcpy(out + n, ref.data, ref.len);
    n += ref.len;
    return (Str){out, n};
}

// The index.

// Splits a URI at #. Returns the fragment, with data NULL if there is none.
static Str split_fragment(Str *uri) {
    const char *hash = uri->len ? memchr(uri->data, '#', uri->len) : NULL;
    if (!hash) return (Str){0};
    Str fragment = {hash + 1, uri->len - (size_t)(hash - uri->data) - 1};
    uri->len = (size_t)(hash - uri->data);
    return fragment;
}

static int add_target(SchemaCompiler *c, Str uri, Str anchor, const Json *schema) {
    c->targets = list_grow(c->targets, c->n_targets, sizeof *c->targets);
    c->targets[c->n_targets] = (SchemaTarget){uri, anchor, schema};
    return c->n_targets++;
}

// Returns the resource of a schema: a new one if the schema has an $id, otherwise the resource
// around it. Adds the anchors of the schema.
static int enter_schema(SchemaCompiler *c, const Json *schema, int resource) {
    const Json *id = json_get_string(schema, c->draft == 4 ? "id" : "$id");
    const Json *anchor = json_get_string(schema, "$anchor");
    const Json *dynamic = json_get_string(schema, "$dynamicAnchor");
    bool is_hidden = c->draft <= 7 && json_get(schema, "$ref");
    Str uri = id && !is_hidden ? id->string : (Str){0}, fragment = split_fragment(&uri);
    Str base = resource < 0 ? (Str){0} : c->targets[resource].uri;

    if (uri.len || resource < 0) {
        base = resolve_uri(c, base, uri);
        resource = add_target(c, base, (Str){0}, schema);
    }

    if (fragment.len) add_target(c, base, fragment, schema);
    if (anchor && c->draft >= 2019) add_target(c, base, anchor->string, schema);
    if (dynamic && c->draft >= 2020) add_target(c, base, dynamic->string, schema);

    return resource;
}

static bool index_schema(SchemaCompiler *c, const Json *schema, int resource);

// Checks the value of a keyword, or an item or member of it. Indexes the schemas in it.
static bool index_value(SchemaCompiler *c, const KeywordUse *u, const Json *value,
                        KeywordValue expected, int resource) {
    static const struct {
        unsigned kinds; // bits of JsonKind; 0: any
        const char *what;
        KeywordValue items; // what the items or members must be
    } rules[] = {
        [VALUE_STRING] = {1 << JSON_STRING, "a string", VALUE_ANY},
        [VALUE_BOOL] = {1 << JSON_BOOL, "true or false", VALUE_ANY},
        [VALUE_NUMBER] = {1 << JSON_NUMBER, "a number", VALUE_ANY},
        [VALUE_COUNT] = {1 << JSON_NUMBER, "a whole number", VALUE_ANY},
        [VALUE_LIMIT] = {1 << JSON_NUMBER | 1 << JSON_BOOL, "a number", VALUE_ANY},
        [VALUE_LIST] = {1 << JSON_ARRAY, "a list", VALUE_ANY},
        [VALUE_NAME] = {1 << JSON_STRING, "a list of names", VALUE_ANY},
        [VALUE_NAMES] = {1 << JSON_ARRAY, "a list of names", VALUE_NAME},
        [VALUE_NAME_OR_NAMES] = {1 << JSON_STRING | 1 << JSON_ARRAY, "a list of names", VALUE_NAME},
        [VALUE_SCHEMAS] = {1 << JSON_ARRAY, "a list of at least one schema", VALUE_SCHEMA},
        [VALUE_ITEMS] = {0, NULL, VALUE_SCHEMA},
        [VALUE_SCHEMA_OR_NAMES] = {0, "a list of names", VALUE_NAME},
        [VALUE_SCHEMA_MAP] = {1 << JSON_OBJECT, "an object of schemas", VALUE_SCHEMA},
        [VALUE_NAMES_MAP] = {1 << JSON_OBJECT, "an object of lists of names", VALUE_NAMES},
        [VALUE_DEPENDENCIES] = {1 << JSON_OBJECT, "an object of schemas or lists of names",
                                VALUE_SCHEMA_OR_NAMES},
    };

    bool may_be_schema = expected == VALUE_ITEMS || expected == VALUE_SCHEMA_OR_NAMES;
    if (expected == VALUE_SCHEMA || (may_be_schema && value->kind != JSON_ARRAY))
        return index_schema(c, value, resource);

    bool fits = !rules[expected].kinds || rules[expected].kinds >> value->kind & 1;
    if (expected == VALUE_COUNT) fits = fits && value->number >= 0 && number_is_integer(value);
    if (expected == VALUE_SCHEMAS) fits = fits && value->n_items;
    if (!fits)
        return schema_fail(c, u->schema, NULL, "\"%.*s\": expected %s", SHOWN(u->value->key),
                           rules[expected].what);

    KeywordValue items = rules[expected].items;
    for (const Json *v = items ? value->child : NULL; v; v = v->next)
        if (!index_value(c, u, v, items, resource)) return false;
    return true;
}

// Fails if an applicator beside a keyword unevaluated... may evaluate properties or items. Without
// one, the keyword applies where no other keyword of the schema does, as additional... does.
static bool check_unevaluated(SchemaCompiler *c, const KeywordUse *u) {
    bool is_true = u->value->kind == JSON_BOOL && u->value->boolean;
    if (is_true || !str_begins_with(u->value->key, "unevaluated")) return true;
    for (const Json *k = u->schema->child; k; k = k->next) {
        const SchemaKeyword *beside = schema_keyword(c, k->key);
        if (beside && beside->role == KEYWORD_APPLICATOR)
            return schema_fail(c, u->schema, NULL, "\"%.*s\" beside \"%.*s\" is not supported",
                               SHOWN(u->value->key), SHOWN(k->key));
    }
    return true;
}

// Indexes a schema inside a resource (-1: the root) and all schemas inside it.
static bool index_schema(SchemaCompiler *c, const Json *schema, int resource) {
    bool is_new;
    int i = intern_add(&c->indexed, &schema, sizeof schema, &is_new);
    if (!is_new) return true;
    c->resource_of = list_grow(c->resource_of, i, sizeof *c->resource_of);
    c->resource_of[i] = resource;
    if (schema->kind == JSON_BOOL) return true;
    if (schema->kind != JSON_OBJECT)
        return schema_fail(c, schema, NULL, "expected a schema (an object, true or false)");
    resource = enter_schema(c, schema, resource);
    c->resource_of[i] = resource;

    for (const Json *k = schema->child; k; k = k->next) {
        KeywordUse u = {.keyword = schema_keyword(c, k->key), .schema = schema, .value = k};
        if (!u.keyword) continue;
        if (!check_unevaluated(c, &u) || !index_value(c, &u, k, u.keyword->value, resource))
            return false;
    }

    return true;
}

bool schema_index(SchemaCompiler *c) { return index_schema(c, c->root, -1); }

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

static const Json *follow_pointer(SchemaCompiler *c, const Json *from, Str pointer) {
    for (size_t at = 1; from && at <= pointer.len;) {
        const char *end = memchr(pointer.data + at, '/', pointer.len - at);
        size_t n = end ? (size_t)(end - pointer.data) - at : pointer.len - at;
        from = child_at(c, from, decode_step(c, (Str){pointer.data + at, n}));
        at += n + 1;
    }
    return from;
}

const Json *schema_target(SchemaCompiler *c, const Json *schema, const Json *ref) {
    if (!index_schema(c, schema, 0)) return NULL;

    // URI#fragment. The fragment is an anchor, or a JSON pointer into the resource.
    int i = intern_add(&c->indexed, &schema, sizeof schema, NULL);
    Str uri = ref->string;
    Str fragment = split_fragment(&uri);
    if (str_contains(uri, "./")) {
        schema_fail(c, schema, "$ref", "\"%.*s\": \".\" and \"..\" are not supported in a path",
                    SHOWN(ref->string));
        return NULL;
    }

    bool is_pointer = fragment.len && fragment.data[0] == '/';
    Str anchor = is_pointer ? (Str){0} : fragment;
    uri = resolve_uri(c, c->targets[c->resource_of[i]].uri, uri);
    if (!schema_spend(c, c->n_targets)) return NULL;

    const Json *found = NULL;
    int n_found = 0, resource = 0;
    for (int k = 0; k < c->n_targets; k++)
        if (str_eq(c->targets[k].uri, uri) && str_eq(c->targets[k].anchor, anchor)) {
            found = c->targets[k].schema;
            resource = k;
            n_found++;
        }

    if (is_pointer && found) found = follow_pointer(c, found, fragment);

    // A target that is not inside the value of any keyword has not been indexed yet.
    if (is_pointer && found && !index_schema(c, found, resource)) return NULL;

    if (n_found > 1)
        schema_fail(c, schema, "$ref", "\"%.*s\" is defined twice", SHOWN(ref->string));
    else if (!found)
        schema_fail(c, schema, "$ref", "\"%.*s\" is not in the schema; include it in \"$defs\"",
                    SHOWN(ref->string));

    return n_found == 1 ? found : NULL;
}
