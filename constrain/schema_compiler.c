// See schema_compiler.h.
#include "constrain/schema_compiler.h"
#include "constrain/formats.h"
#include "constrain/number.h"

#include <stdarg.h>

// Memory.

void schema_add_alt(SchemaCompiler *c, int def) {
    grammar_add_alt(c->grammar, c->target.value, def);
}

// Messages.

bool schema_put_pointer(Buffer *out, const Json *from, const Json *target) {
    if (from == target) return true;

    int index = 0;
    for (const Json *k = from->child; k; k = k->next, index++) {
        size_t before = out->len;
        buffer_puts(out, "/");
        if (from->kind == JSON_ARRAY) buffer_printf(out, "%d", index);

        // Items of arrays have no key.
        for (size_t i = 0; i < k->key.len; i++) {
            char ch = k->key.data[i];
            if (ch == '~' || ch == '/')
                buffer_puts(out, ch == '~' ? "~0" : "~1");
            else
                buffer_append(out, &ch, 1);
        }

        if (schema_put_pointer(out, k, target)) return true;
        out->len = before;
    }

    return false;
}

bool schema_fail(SchemaCompiler *c, const Json *schema, const char *keyword, const char *fmt, ...) {
    Buffer text = {0};
    va_list ap;
    if (c->failed) return false;
    c->failed = true;
    if (c->quiet) return false;
    if (!schema) schema = c->target.place;
    buffer_puts(&text, "JSON Schema, #");
    if (schema) schema_put_pointer(&text, c->root, schema);
    buffer_printf(&text, "%s%s: ", keyword ? "/" : "", keyword ? keyword : "");
    va_start(ap, fmt);
    buffer_vprintf(&text, fmt, ap);
    va_end(ap);
    error_set(c->err, EXIT_USAGE, "%s", text.data);
    buffer_free(&text);

    return false;
}

int schema_language(SchemaCompiler *c, const Json *schema, const char *keyword, int dfa) {
    if (dfa < 0) schema_fail(c, schema, keyword, "%s", c->why.text);
    return dfa;
}

bool schema_refuse(SchemaCompiler *c, const KeywordUse *u, const char *where) {
    return schema_fail(c, u->schema, NULL, "\"%.*s\"%s is not supported", SHOWN(u->value->key),
                       where);
}

bool schema_spend(SchemaCompiler *c, long steps) {
    if (c->failed) return false;
    return budget_spend(&c->languages.budget, steps) ||
           schema_too_complex(c, COMPILE_BUDGET, "steps");
}

bool schema_too_complex(SchemaCompiler *c, int limit, const char *unit) {
    return schema_fail(c, NULL, NULL, "too complex: more than %d %s; use \"anyOf\" for \"oneOf\"%s",
                       limit, unit, c->is_closed ? ", or --extra-properties" : "");
}

// Appends the place of a keyword to a list (may be NULL), unless the list has it.
static void put_place(SchemaCompiler *c, Buffer *list, const Json *schema, Str keyword) {
    enum { MAX_LENGTH = 4000 };
    if (!list || list->len > MAX_LENGTH) return;
    Buffer place = {0};
    buffer_puts(&place, "#");
    bool is_inside = schema_put_pointer(&place, c->root, schema);
    buffer_printf(&place, "/%.*s,", SHOWN(keyword));

    // Places are separated by commas. The last one has none.
    if (list->len) buffer_puts(list, ",");
    bool is_listed = list->len && str_contains(buffer_str(list), place.data);
    if (list->len) list->data[--list->len] = 0;
    if (is_inside && !is_listed)
        buffer_printf(list, "%s%.*s", list->len ? ", " : "", (int)place.len - 1, place.data);
    buffer_free(&place);
}

void schema_note_unknown(SchemaCompiler *c, const Json *schema, Str keyword) {
    put_place(c, c->unknown, schema, keyword);
}

bool schema_leave(SchemaCompiler *c, const Json *schema, const Json *value) {
    const SchemaKeyword *keyword = schema_keyword(c, value->key);
    if (!c->unenforced || !keyword || !keyword->check) return false;
    put_place(c, c->unenforced, schema, value->key);
    return true;
}

// Keywords.

const SchemaKeyword *schema_keyword(SchemaCompiler *c, Str name) {
    int i = intern_add(&c->keywords, name.data, name.len, NULL);
    const SchemaKeyword *k = c->keywords.values[i];
    return k && c->draft >= k->first && (!k->last || c->draft <= k->last) ? k : NULL;
}

bool schema_next(SchemaCompiler *c, KeywordUse *u) {
    const Json *previous = u->value, *first = u->schema->child;
    const Json *ref = previous ? previous : json_get_string(u->schema, "$ref");
    bool hides_others = c->draft <= 7 && !u->has_siblings && ref && ref->kind == JSON_STRING;
    if (hides_others && str_is(ref->key, "$ref"))
        u->value = previous ? NULL : ref;
    else
        u->value = previous ? previous->next : first;
    if (!u->value) return false;

    bool is_annotation = str_is(u->value->key, "format") && !format_find(u->value->string);
    u->keyword = is_annotation ? NULL : schema_keyword(c, u->value->key);
    return true;
}

const Json *schema_items(const Json *schema, const char *keyword) {
    const Json *value = json_get(schema, keyword);
    return value ? value->child : NULL;
}

const Json *schema_member(SchemaCompiler *c, const Json *object, Str name) {
    if (!object || !schema_spend(c, object->n_items / 16)) return NULL;
    const Json *m = object->child;
    while (m && !str_eq(m->key, name)) m = m->next;
    return m;
}

unsigned schema_type_of(const SchemaCompiler *c, const Json *value) {
    static const unsigned types[] = {
        [JSON_NULL] = TYPE_NULL,     [JSON_BOOL] = TYPE_FALSE,  [JSON_NUMBER] = TYPE_FRACTION,
        [JSON_STRING] = TYPE_STRING, [JSON_ARRAY] = TYPE_ARRAY, [JSON_OBJECT] = TYPE_OBJECT};
    if (value->kind == JSON_BOOL && value->boolean) return TYPE_TRUE;
    if (value->kind == JSON_NUMBER) // in draft 4, 1.0 and 1e2 are not integers
        if (c->draft == 4 ? !strpbrk(value->string.data, ".eE") : number_is_integer(value))
            return TYPE_INTEGER;
    return types[value->kind];
}

const SchemaPart *schema_part(const SchemaCompiler *c, unsigned type) {
    const SchemaPart *const *part = c->parts;
    while (!((*part)->types & type)) part++;
    return *part;
}
