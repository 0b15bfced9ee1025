// The index of a schema: checks the kind of every keyword's value before any keyword is used, and
// finds what $ref refers to.
//
// A resource is a schema with an $id, or the root. Its URI is the $id, resolved against the URI of
// the resource around it. A $ref is resolved against the URI of its own resource; what follows # is
// an anchor of the resource found, or a JSON pointer into it.
#include "number.h"
#include "schema_compiler.h"

#include <stdlib.h>
#include <string.h>

// --- URIs (RFC 3986, section 5.2)

// Length of a scheme and its colon; 0: a relative reference.
static size_t scheme_length(Str uri) {
    static const char characters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+-.0123456789";
    size_t n = 0;
    while (n < uri.len && uri.data[n] && strchr(characters, uri.data[n])) n++;
    return n && n < uri.len && uri.data[n] == ':' ? n + 1 : 0;
}

// Offset of the path, which follows the scheme and the authority.
static size_t path_offset(Str uri) {
    size_t at = scheme_length(uri);
    if (uri.len - at < 2 || memcmp(uri.data + at, "//", 2)) return at;
    for (at += 2; at < uri.len && uri.data[at] != '/' && uri.data[at] != '?';) at++;
    return at;
}

// Removes the segments "." and ".." of a path that begins at an offset. Returns the new length.
static size_t remove_dots(char *uri, size_t begin, size_t len) {
    size_t n = begin;
    for (size_t at = begin; at < len;) {
        bool has_slash = uri[at] == '/';
        size_t segment = at + has_slash, end = segment;
        while (end < len && uri[end] != '/') end++;
        size_t n_segment = end - segment;
        bool is_dot = n_segment == 1 && uri[segment] == '.';
        bool is_up = n_segment == 2 && !memcmp(uri + segment, "..", 2);
        if (is_up)
            while (n > begin && uri[--n] != '/') continue;
        if (!is_dot && !is_up)
            memmove(uri + n, uri + at, end - at), n += end - at;
        else if (end == len && has_slash)
            uri[n++] = '/';
        at = end;
    }
    return n;
}

static Str resolve_uri(SchemaCompiler *c, Str base, Str ref) {
    if (!ref.len) return base;
    if (scheme_length(ref)) return ref;
    const char *query = base.len ? memchr(base.data, '?', base.len) : NULL;
    if (query) base.len = (size_t)(query - base.data);
    size_t path = path_offset(base), n = base.len;
    bool has_authority = path > scheme_length(base);
    if (ref.data[0] == '/')
        n = ref.len > 1 && ref.data[1] == '/' ? scheme_length(base) : path;
    else if (ref.data[0] != '?')
        while (n > path && base.data[n - 1] != '/') n--;
    char *out = schema_alloc(c, base.len + ref.len + 2);
    if (n) memcpy(out, base.data, n);
    if (has_authority && n == path && ref.data[0] != '/') out[n++] = '/';
    memcpy(out + n, ref.data, ref.len);
    n += ref.len;
    return (Str){out, remove_dots(out, path_offset((Str){out, n}), n)};
}

// --- the index

// Splits a URI at #. Returns the fragment, with data NULL if there is none.
static Str split_fragment(Str *uri) {
    const char *hash = uri->len ? memchr(uri->data, '#', uri->len) : NULL;
    if (!hash) return (Str){0};
    Str fragment = {hash + 1, uri->len - (size_t)(hash - uri->data) - 1};
    uri->len = (size_t)(hash - uri->data);
    return fragment;
}

static void add_anchor(SchemaCompiler *c, int resource, Str name, const Json *schema) {
    c->anchors = list_grow(c->anchors, c->n_anchors, sizeof *c->anchors);
    c->anchors[c->n_anchors++] = (SchemaAnchor){resource, name, schema};
}

// The resource of a schema inside a resource: a new one if it has an $id. Adds its anchors.
static int enter_schema(SchemaCompiler *c, const Json *schema, int resource) {
    const Json *id = json_get_string(schema, c->draft == 4 ? "id" : "$id");
    const Json *anchor = json_get_string(schema, "$anchor");
    const Json *dynamic = json_get_string(schema, "$dynamicAnchor");
    bool is_hidden = c->draft <= 7 && json_get(schema, "$ref");
    Str uri = id && !is_hidden ? id->string : (Str){0}, fragment = split_fragment(&uri);
    if (uri.len || resource < 0) {
        Str base = resource < 0 ? (Str){0} : c->resources[resource].uri;
        c->resources = list_grow(c->resources, c->n_resources, sizeof *c->resources);
        c->resources[c->n_resources] = (SchemaResource){resolve_uri(c, base, uri), schema};
        resource = c->n_resources++;
    }
    if (fragment.len) add_anchor(c, resource, fragment, schema);
    if (anchor && c->draft >= 2019) add_anchor(c, resource, anchor->string, schema);
    if (dynamic && c->draft >= 2020) add_anchor(c, resource, dynamic->string, schema);
    return resource;
}

static bool index_schema(SchemaCompiler *c, const Json *schema, int resource);

// Checks the members or items of a keyword's value: schemas or, with `strings`, strings.
static bool index_list(SchemaCompiler *c, const KeywordUse *u, const Json *list, bool are_schemas,
                       int resource) {
    bool ok = are_schemas || schema_expect(c, u, list, JSON_ARRAY, "a list of names");
    for (const Json *v = list->child; v && ok; v = v->next)
        ok = are_schemas ? index_schema(c, v, resource)
                         : schema_expect(c, u, v, JSON_STRING, "a list of names");
    return ok;
}

static bool index_keyword(SchemaCompiler *c, const KeywordUse *u, int resource) {
    static const struct {
        JsonKind kind;
        const char *what;
    } kinds[] = {
        [VALUE_STRING] = {JSON_STRING, "a string"},
        [VALUE_BOOL] = {JSON_BOOL, "true or false"},
        [VALUE_NUMBER] = {JSON_NUMBER, "a number"},
        [VALUE_LIST] = {JSON_ARRAY, "a list"},
        [VALUE_SCHEMAS] = {JSON_ARRAY, "a list of schemas"},
        [VALUE_SCHEMA_MAP] = {JSON_OBJECT, "an object of schemas"},
        [VALUE_DEPENDENCIES] = {JSON_OBJECT, "an object of schemas or lists of names"},
    };
    const Json *value = u->value;
    KeywordValue kind = u->keyword->value;
    if (kinds[kind].what && !schema_expect(c, u, value, kinds[kind].kind, kinds[kind].what))
        return false;
    switch (kind) {
    case VALUE_SCHEMA: return index_schema(c, value, resource);
    case VALUE_ITEMS:
        return value->kind == JSON_ARRAY ? index_list(c, u, value, true, resource)
                                         : index_schema(c, value, resource);
    case VALUE_NAMES: return index_list(c, u, value, false, resource);
    case VALUE_SCHEMAS:
        if (!value->n_items)
            return schema_fail(c, u->schema, NULL, "\"%.*s\": expected at least one schema",
                               SHOWN(value->key));
        return index_list(c, u, value, true, resource);
    case VALUE_SCHEMA_MAP: return index_list(c, u, value, true, resource);
    case VALUE_DEPENDENCIES:
        for (const Json *d = value->child; d; d = d->next)
            if (d->kind == JSON_ARRAY || str_is(value->key, "dependentRequired")
                    ? !index_list(c, u, d, false, resource)
                    : !index_schema(c, d, resource))
                return false;
        return true;
    case VALUE_NAME_OR_NAMES:
        return value->kind == JSON_STRING || index_list(c, u, value, false, resource);
    case VALUE_COUNT:
        return (value->kind == JSON_NUMBER && value->number >= 0 && number_is_integer(value)) ||
               schema_fail(c, u->schema, NULL, "\"%.*s\": expected a whole number",
                           SHOWN(value->key));
    case VALUE_LIMIT:
        return value->kind == JSON_BOOL || schema_expect(c, u, value, JSON_NUMBER, "a number");
    default: return true;
    }
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
        KeywordUse u = {schema_keyword(c, k->key), schema, k};
        if (u.keyword && !index_keyword(c, &u, resource)) return false;
    }
    return true;
}

bool schema_index(SchemaCompiler *c) { return index_schema(c, c->root, -1); }

// --- $ref

// Decodes %XX, ~0 and ~1 in one step of a JSON pointer that is a URI fragment.
static Str decode_step(SchemaCompiler *c, Str s) {
    char *out = schema_alloc(c, s.len + 1);
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
    return (Str){out, n};
}

static const Json *child_at(SchemaCompiler *c, const Json *j, Str step) {
    long index = 0;
    const Json *k = j->child;
    if (j->kind == JSON_OBJECT) return schema_member(c, j, step);
    if (j->kind != JSON_ARRAY || !step.len || step.len > 9) return NULL;
    for (size_t i = 0; i < step.len; i++) {
        if (step.data[i] < '0' || step.data[i] > '9') return NULL;
        index = index * 10 + (step.data[i] - '0');
    }
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
    int i = intern_add(&c->indexed, &schema, sizeof schema, NULL), n_found = 0, resource = 0;
    Str uri = ref->string, fragment = split_fragment(&uri);
    const Json *found = NULL;
    uri = resolve_uri(c, c->resources[c->resource_of[i]].uri, uri);
    if (!schema_spend_steps(c, c->n_resources + c->n_anchors)) return NULL;
    for (int k = 0; k < c->n_resources; k++)
        if (str_eq(c->resources[k].uri, uri)) resource = k, n_found++;
    if (n_found == 1) found = c->resources[resource].schema;
    if (found && fragment.len && fragment.data[0] == '/') {
        found = follow_pointer(c, found, fragment);
        // A target that is no part of a keyword is indexed only now.
        if (found && !index_schema(c, found, resource)) return NULL;
    } else if (found && fragment.len) {
        n_found = 0;
        for (int k = 0; k < c->n_anchors; k++)
            if (c->anchors[k].resource == resource && str_eq(c->anchors[k].name, fragment))
                found = c->anchors[k].schema, n_found++;
    }
    if (n_found > 1)
        schema_fail(c, schema, "$ref", "\"%.*s\" is defined twice", SHOWN(ref->string));
    else if (!found || !n_found)
        schema_fail(c, schema, "$ref", "\"%.*s\" is not in the schema; include it in \"$defs\"",
                    SHOWN(ref->string));
    return n_found == 1 ? found : NULL;
}
