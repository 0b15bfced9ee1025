#include "schema_compiler.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

// --- memory

void *schema_alloc(SchemaCompiler *c, size_t size) {
    c->blocks = list_grow((void *)c->blocks, c->n_blocks, sizeof *c->blocks);
    return c->blocks[c->n_blocks++] = xrealloc(NULL, 1, size);
}

int *schema_memo(SchemaCompiler *c, const void *key, size_t len, bool *is_new) {
    int i = intern_add(&c->memo, key, len, is_new);
    if (*is_new) {
        c->memo_values = list_grow(c->memo_values, i, sizeof(int));
        c->memo_values[i] = -1;
    }
    return &c->memo_values[i];
}

void schema_compiler_free(SchemaCompiler *c) {
    for (int i = 0; i < c->n_blocks; i++) free(c->blocks[i]);
    free((void *)c->blocks);
    intern_free(&c->memo), intern_free(&c->values), intern_free(&c->keyword_names);
    free((void *)c->keywords), free(c->memo_values);
}

// --- messages

// Appends the JSON pointer that leads from a value to `target`. False if `target` is not inside it.
static bool put_pointer(Buffer *out, const Json *from, const Json *target) {
    if (from == target) return true;
    int index = 0;
    for (const Json *k = from->child; k; k = k->next, index++) {
        size_t before = out->len;
        buffer_puts(out, "/");
        if (from->kind == JSON_ARRAY) buffer_printf(out, "%d", index);
        for (size_t i = 0; from->kind == JSON_OBJECT && i < k->key.len; i++) {
            char ch = k->key.data[i];
            if (ch == '~' || ch == '/')
                buffer_puts(out, ch == '~' ? "~0" : "~1");
            else
                buffer_append(out, &ch, 1);
        }
        if (put_pointer(out, k, target)) return true;
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
    buffer_puts(&text, "JSON Schema, #");
    if (schema && !put_pointer(&text, c->root, schema)) buffer_puts(&text, "/...");
    buffer_printf(&text, "%s%s: ", keyword ? "/" : "", keyword ? keyword : "");
    va_start(ap, fmt);
    buffer_vprintf(&text, fmt, ap);
    va_end(ap);
    error_set(c->err, EXIT_USAGE, "%s", text.data);
    buffer_free(&text);
    return false;
}

bool schema_expect(SchemaCompiler *c, const KeywordUse *u, const Json *value, JsonKind kind,
                   const char *what) {
    return value->kind == kind ||
           schema_fail(c, u->schema, NULL, "\"%.*s\": expected %s", SHOWN(u->value->key), what);
}

bool schema_refuse(SchemaCompiler *c, const KeywordUse *u, const char *where) {
    return schema_fail(c, u->schema, NULL, "\"%.*s\"%s is not supported", SHOWN(u->value->key),
                       where);
}

bool schema_spend(SchemaCompiler *c, long work) {
    enum { STEPS = 20 }; // budget steps per unit of work
    if (c->failed) return false;
    return budget_spend(&c->budget, work * STEPS) ||
           schema_fail(c, NULL, NULL, "too complex; simplify the schema");
}

void schema_note_unknown(SchemaCompiler *c, const Json *schema, Str keyword) {
    enum { MAX_LENGTH = 4000 };
    if (!c->unknown || c->unknown->len > MAX_LENGTH) return;
    Buffer path = {0};
    buffer_puts(&path, c->unknown->len ? ", #" : "#");
    if (put_pointer(&path, c->root, schema))
        buffer_printf(c->unknown, "%s/%.*s", path.data, SHOWN(keyword));
    buffer_free(&path);
}

// --- keywords

void schema_add_keyword(SchemaCompiler *c, const char *name, const SchemaKeyword *k) {
    int i = intern_add(&c->keyword_names, name, strlen(name), NULL);
    c->keywords = list_grow((void *)c->keywords, i, sizeof *c->keywords);
    c->keywords[i] = k;
    c->n_keywords = i + 1;
}

const SchemaKeyword *schema_keyword(SchemaCompiler *c, const Json *schema, Str name) {
    int i = intern_add(&c->keyword_names, name.data, name.len, NULL);
    const SchemaKeyword *k = i < c->n_keywords ? c->keywords[i] : NULL;
    if (!k || c->draft < k->first || (k->last && c->draft > k->last)) return NULL;
    bool is_broken_ref = str_is(name, "$ref") && !json_get_string(schema, "$ref");
    return is_broken_ref ? NULL : k;
}

bool schema_next(SchemaCompiler *c, KeywordUse *u) {
    const Json *previous = u->value, *first = u->schema->child;
    const Json *ref = previous ? previous : json_get_string(u->schema, "$ref");
    if (c->draft <= 7 && ref && ref->kind == JSON_STRING && str_is(ref->key, "$ref"))
        u->value = previous ? NULL : ref;
    else
        u->value = previous ? previous->next : first;
    if (u->value) u->keyword = schema_keyword(c, u->schema, u->value->key);
    return u->value;
}

const Json *json_member(const Json *object, Str name) {
    const Json *m = object ? object->child : NULL;
    while (m && !str_eq(m->key, name)) m = m->next;
    return m;
}

unsigned schema_type_of(const Json *value) {
    switch (value->kind) {
    case JSON_NULL: return TYPE_NULL;
    case JSON_BOOL: return value->boolean ? TYPE_TRUE : TYPE_FALSE;
    case JSON_NUMBER: return value->number == floor(value->number) ? TYPE_INTEGER : TYPE_FRACTION;
    case JSON_STRING: return TYPE_STRING;
    case JSON_ARRAY: return TYPE_ARRAY;
    default: return TYPE_OBJECT;
    }
}

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

static const Json *child_at(const Json *j, Str step) {
    long index = 0;
    const Json *k = j->child;
    if (j->kind == JSON_OBJECT) return json_member(j, step);
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
        from = child_at(from, decode_step(c, (Str){pointer.data + at, n}));
        at += n + 1;
    }
    return from;
}

// The object, j or inside j, whose member `keyword` is this name.
static const Json *find_named(const Json *j, const char *keyword, Str name) {
    const Json *own = json_get_string(j, keyword), *found = NULL;
    if (own && str_eq(own->string, name)) return j;
    for (const Json *k = j->child; k && !found; k = k->next)
        if (k->kind == JSON_OBJECT || k->kind == JSON_ARRAY) found = find_named(k, keyword, name);
    return found;
}

const Json *schema_target(SchemaCompiler *c, const Json *schema, const Json *ref) {
    const char *id = c->draft == 4 ? "id" : "$id";
    Str s = ref->string;
    const char *hash = memchr(s.data, '#', s.len);
    Str base = {s.data, hash ? (size_t)(hash - s.data) : s.len};
    Str fragment = hash ? (Str){hash + 1, s.len - base.len - 1} : (Str){"", 0};
    const Json *root_id = json_get_string(c->root, id), *found = c->root;
    Str own_base = root_id ? root_id->string : (Str){"", 0};
    while (own_base.len && own_base.data[own_base.len - 1] == '#') own_base.len--;
    if (base.len && !str_eq(base, own_base)) {
        found = find_named(c->root, "$id", base);
        if (!found) found = find_named(c->root, "id", base);
    }
    if (found && fragment.len && fragment.data[0] == '/') {
        found = follow_pointer(c, found, fragment);
    } else if (found && fragment.len) {
        const Json *anchored = find_named(found, "$anchor", fragment);
        found = anchored ? anchored : find_named(found, id, (Str){hash, fragment.len + 1});
    }
    if (!found)
        schema_fail(c, schema, "$ref", "\"%.*s\" is not in the schema; include it in \"$defs\"",
                    SHOWN(s));
    return found;
}
