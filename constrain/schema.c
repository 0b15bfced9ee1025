// JSON Schema -> nodes of a constraint.
//
// What a place of the text must satisfy is a set of terms: schemas that hold, schemas that do not,
// a value to be equal to. A node stands for such a set, so that recursion through $ref ends where a
// set comes again. To work a node out, its terms are taken apart: keywords that all hold become
// facts (a range of numbers, a list of patterns, required names), those that leave a choice (anyOf,
// oneOf, not, if, dependencies) split the facts into branches. Each branch is then a few
// alternatives of a known form: a string of some language, an object of these properties. oneOf is
// each branch without the others, where not is pushed inwards by De Morgan's rules until it meets
// something whose opposite can be stated; what cannot is an error. At last, nodes that no text fits
// are found from below and alternatives that need them go.
#include "schema.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ALTS = 600, MAX_DEPTH = 400, MAX_NODES = 20000, SPENT_PER_STEP = 20 };

struct Block {
    Block *next;
    size_t used, size;
    max_align_t data[];
};

void *schema_alloc(Compiler *c, size_t size) {
    enum { BLOCK = 1 << 16 };
    size = (size + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);
    if (!c->blocks || c->blocks->used + size > c->blocks->size) {
        size_t room = size > BLOCK ? size : BLOCK;
        Block *b = xalloc(1, sizeof *b + room);
        b->next = c->blocks, b->size = room;
        c->blocks = b;
    }
    void *p = (char *)c->blocks->data + c->blocks->used;
    c->blocks->used += size;
    return p;
}

// Appends the place of `target` as a JSON pointer; false if it is not below `from`.
static bool put_path(Buffer *out, const Json *from, const Json *target) {
    if (from == target) return true;
    int index = 0;
    for (const Json *k = from->child; k; k = k->next, index++) {
        size_t before = out->len;
        buffer_puts(out, "/");
        if (from->kind == JSON_ARRAY) buffer_printf(out, "%d", index);
        for (size_t i = 0; from->kind == JSON_OBJECT && i < k->key.len; i++) {
            char one = k->key.data[i];
            buffer_append(out,
                          one == '~'   ? "~0"
                          : one == '/' ? "~1"
                                       : &one,
                          one == '~' || one == '/' ? 2 : 1);
        }
        if (put_path(out, k, target)) return true;
        out->len = before;
    }
    return false;
}

bool schema_fail(Compiler *c, const Json *place, const char *keyword, const char *fmt, ...) {
    Buffer text = {0};
    va_list ap;
    if (c->failed) return false;
    c->failed = true;
    if (c->quiet) return false;
    buffer_puts(&text, "JSON Schema, #");
    if (place && !put_path(&text, c->root, place)) buffer_puts(&text, "/...");
    if (keyword) buffer_printf(&text, "/%s", keyword);
    buffer_puts(&text, ": ");
    va_start(ap, fmt);
    buffer_vprintf(&text, fmt, ap);
    va_end(ap);
    error_set(c->err, EXIT_USAGE, "%s", text.data);
    buffer_free(&text);
    return false;
}

bool schema_spend(Compiler *c, long work) {
    if (c->failed) return false;
    return budget_spend(&c->budget, work * SPENT_PER_STEP)
               ? true
               : schema_fail(c, NULL, NULL, "too complex");
}

// --- keywords

Keyword schema_keyword(const Compiler *c, const Json *place, Str name) {
    static const struct {
        const char *name;
        Keyword kind;
        int first, last; // drafts that know it; 0: all
    } keywords[] = {{"$ref", K_REF, 0, 0},
                    {"type", K_TYPE, 0, 0},
                    {"enum", K_ENUM, 0, 0},
                    {"const", K_CONST, 6, 0},
                    {"allOf", K_ALL_OF, 0, 0},
                    {"anyOf", K_ANY_OF, 0, 0},
                    {"oneOf", K_ONE_OF, 0, 0},
                    {"not", K_NOT, 0, 0},
                    {"if", K_IF, 7, 0},
                    {"then", K_ANNOTATION, 7, 0},
                    {"else", K_ANNOTATION, 7, 0},
                    {"properties", K_OBJECT, 0, 0},
                    {"patternProperties", K_OBJECT, 0, 0},
                    {"additionalProperties", K_OBJECT, 0, 0},
                    {"required", K_REQUIRED, 0, 0},
                    {"minProperties", K_MIN_PROPERTIES, 0, 0},
                    {"maxProperties", K_MAX_PROPERTIES, 0, 0},
                    {"propertyNames", K_NAMES, 6, 0},
                    {"dependencies", K_DEPENDENCIES, 0, 0},
                    {"dependentRequired", K_DEPENDENCIES, 2019, 0},
                    {"dependentSchemas", K_DEPENDENCIES, 2019, 0},
                    {"items", K_ARRAY, 0, 0},
                    {"prefixItems", K_ARRAY, 2020, 0},
                    {"additionalItems", K_ARRAY, 0, 0},
                    {"minItems", K_MIN_ITEMS, 0, 0},
                    {"maxItems", K_MAX_ITEMS, 0, 0},
                    {"uniqueItems", K_UNIQUE, 0, 0},
                    {"minLength", K_MIN_LENGTH, 0, 0},
                    {"maxLength", K_MAX_LENGTH, 0, 0},
                    {"pattern", K_PATTERN, 0, 0},
                    {"format", K_FORMAT, 0, 0},
                    {"minimum", K_MINIMUM, 0, 0},
                    {"maximum", K_MAXIMUM, 0, 0},
                    {"exclusiveMinimum", K_OVER, 0, 0},
                    {"exclusiveMaximum", K_UNDER, 0, 0},
                    {"multipleOf", K_MULTIPLE, 0, 0},
                    {"unevaluatedProperties", K_UNEVALUATED, 2019, 0},
                    {"unevaluatedItems", K_UNEVALUATED, 2019, 0},
                    {"contains", K_UNSUPPORTED, 6, 0},
                    {"minContains", K_UNSUPPORTED, 2019, 0},
                    {"maxContains", K_UNSUPPORTED, 2019, 0},
                    {"$dynamicRef", K_UNSUPPORTED, 0, 0},
                    {"$recursiveRef", K_UNSUPPORTED, 0, 0},
                    {"extends", K_UNSUPPORTED, 0, 4},
                    {"disallow", K_UNSUPPORTED, 0, 4},
                    {"divisibleBy", K_UNSUPPORTED, 0, 4},
                    {"title", K_ANNOTATION, 0, 0},
                    {"description", K_ANNOTATION, 0, 0},
                    {"default", K_ANNOTATION, 0, 0},
                    {"examples", K_ANNOTATION, 0, 0},
                    {"example", K_ANNOTATION, 0, 0},
                    {"$comment", K_ANNOTATION, 0, 0},
                    {"$schema", K_ANNOTATION, 0, 0},
                    {"$id", K_ANNOTATION, 0, 0},
                    {"id", K_ANNOTATION, 0, 0},
                    {"$anchor", K_ANNOTATION, 0, 0},
                    {"$dynamicAnchor", K_ANNOTATION, 0, 0},
                    {"$recursiveAnchor", K_ANNOTATION, 0, 0},
                    {"$vocabulary", K_ANNOTATION, 0, 0},
                    {"$defs", K_ANNOTATION, 0, 0},
                    {"definitions", K_ANNOTATION, 0, 0},
                    {"readOnly", K_ANNOTATION, 0, 0},
                    {"writeOnly", K_ANNOTATION, 0, 0},
                    {"deprecated", K_ANNOTATION, 0, 0},
                    {"contentEncoding", K_ANNOTATION, 0, 0},
                    {"contentMediaType", K_ANNOTATION, 0, 0},
                    {"contentSchema", K_ANNOTATION, 0, 0}};
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
        if (str_is(name, keywords[i].name)) {
            bool is_known = c->draft >= keywords[i].first &&
                            (!keywords[i].last || c->draft <= keywords[i].last);
            if (!is_known) return K_UNKNOWN;
            const Json *k = keywords[i].kind == K_REF ? json_get(place, "$ref") : NULL;
            return k && k->kind != JSON_STRING ? K_UNKNOWN : keywords[i].kind;
        }
    return K_UNKNOWN;
}

unsigned schema_types(Compiler *c, const Json *place, const Json *type) {
    static const struct {
        const char *name;
        unsigned bits;
    } names[] = {{"null", IS_NULL},       {"boolean", IS_TRUE | IS_FALSE},
                 {"integer", IS_INTEGER}, {"number", IS_INTEGER | IS_FRACTION},
                 {"string", IS_STRING},   {"array", IS_ARRAY},
                 {"object", IS_OBJECT}};
    unsigned bits = 0;
    if (type->kind == JSON_ARRAY) {
        for (const Json *t = type->child; t; t = t->next)
            bits |= t->kind == JSON_STRING ? schema_types(c, place, t) : 0;
        return bits;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (json_is(type, names[i].name)) return names[i].bits;
    schema_fail(c, place, "type", "expected the name of a type or a list of them");
    return 0;
}

uint32_t schema_count(Compiler *c, const Json *place, const Json *value) {
    if (value->kind != JSON_NUMBER || value->number < 0 || value->number != floor(value->number)) {
        schema_fail(c, place, NULL, "\"%.*s\": expected a whole number", SHOWN(value->key));
        return 0;
    }
    return value->number < 4e9 ? (uint32_t)value->number : NO_LIMIT;
}

static int find_draft(const Json *root) {
    const Json *s = json_get_string(root, "$schema");
    if (!s) return 2020;
    if (str_contains(s->string, "draft-03") || str_contains(s->string, "draft-04")) return 4;
    if (str_contains(s->string, "draft-06")) return 6;
    if (str_contains(s->string, "draft-07")) return 7;
    return str_contains(s->string, "2019-09") ? 2019 : 2020;
}

// --- $ref

// One step of a JSON pointer in a URI: %XX, ~0 and ~1 are decoded.
static Str decode_step(Compiler *c, Str s) {
    char *out = schema_alloc(c, s.len + 1);
    size_t n = 0;
    for (size_t i = 0; i < s.len; i++) {
        char one = s.data[i];
        if (one == '%' && i + 2 < s.len && hex_digit(s.data[i + 1]) >= 0 &&
            hex_digit(s.data[i + 2]) >= 0) {
            one = (char)(hex_digit(s.data[i + 1]) << 4 | hex_digit(s.data[i + 2]));
            i += 2;
        }
        if (one == '~' && i + 1 < s.len && (s.data[i + 1] == '0' || s.data[i + 1] == '1'))
            one = s.data[++i] == '0' ? '~' : '/';
        out[n++] = one;
    }
    return (Str){out, n};
}

static const Json *child_at(const Json *j, Str step) {
    long index = 0;
    if (j->kind == JSON_OBJECT) {
        for (const Json *k = j->child; k; k = k->next)
            if (str_eq(k->key, step)) return k;
        return NULL;
    }
    if (j->kind != JSON_ARRAY || !step.len || step.len > 9) return NULL;
    for (size_t i = 0; i < step.len; i++) {
        if (step.data[i] < '0' || step.data[i] > '9') return NULL;
        index = index * 10 + (step.data[i] - '0');
    }
    const Json *k = j->child;
    while (k && index-- > 0) k = k->next;
    return k;
}

// The schema whose name (of $id, id or $anchor) is this, searched everywhere below j.
static const Json *find_named(const Json *j, const char *keyword, Str name) {
    const Json *own = json_get_string(j, keyword);
    if (own && str_eq(own->string, name)) return j;
    for (const Json *k = j->child; k; k = k->next) {
        const Json *found =
            k->kind == JSON_OBJECT || k->kind == JSON_ARRAY ? find_named(k, keyword, name) : NULL;
        if (found) return found;
    }
    return NULL;
}

static const Json *follow_pointer(Compiler *c, const Json *from, Str pointer) {
    for (size_t at = 1; from && at <= pointer.len;) {
        const char *end = memchr(pointer.data + at, '/', pointer.len - at);
        size_t n = end ? (size_t)(end - pointer.data) - at : pointer.len - at;
        from = child_at(from, decode_step(c, (Str){pointer.data + at, n}));
        at += n + 1;
    }
    return from;
}

const Json *schema_target(Compiler *c, const Json *place, const Json *ref) {
    Str s = ref->string;
    const char *hash = memchr(s.data, '#', s.len);
    Str base = {s.data, hash ? (size_t)(hash - s.data) : s.len};
    Str fragment = hash ? (Str){hash + 1, s.len - base.len - 1} : (Str){"", 0};
    const Json *own = json_get_string(c->root, c->draft == 4 ? "id" : "$id"), *found = c->root;
    Str own_id = own ? own->string : (Str){"", 0};
    while (own_id.len && own_id.data[own_id.len - 1] == '#') own_id.len--;
    if (base.len && !str_eq(base, own_id)) {
        found = find_named(c->root, "$id", base);
        if (!found) found = find_named(c->root, "id", base);
    }
    if (found && fragment.len && fragment.data[0] == '/')
        found = follow_pointer(c, found, fragment);
    else if (found && fragment.len) {
        const Json *anchored = find_named(found, "$anchor", fragment);
        found = anchored ? anchored
                         : find_named(found, c->draft == 4 ? "id" : "$id",
                                      (Str){hash, fragment.len + 1});
    }
    if (!found) schema_fail(c, place, "$ref", "\"%.*s\" is not in the schema", SHOWN(s));
    return found;
}

// --- terms and nodes

static uint64_t hash_key(Str s) {
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < s.len; i++) h = (h ^ (unsigned char)s.data[i]) * 0x100000001b3u;
    return h ^ h >> 29;
}

int *schema_known(Compiler *c, Str key, bool *is_new) {
    if (2 * c->n_known >= c->known_slots) {
        int old_slots = c->known_slots;
        Known *old = c->known;
        c->known_slots = old_slots ? 2 * old_slots : 256;
        c->known = xalloc((size_t)c->known_slots, sizeof *c->known);
        for (int i = 0; i < old_slots; i++) {
            size_t at = hash_key(old[i].key) & (size_t)(c->known_slots - 1);
            if (!old[i].key.data) continue;
            while (c->known[at].key.data) at = (at + 1) & (size_t)(c->known_slots - 1);
            c->known[at] = old[i];
        }
        free(old);
    }
    size_t at = hash_key(key) & (size_t)(c->known_slots - 1);
    for (; c->known[at].key.data; at = (at + 1) & (size_t)(c->known_slots - 1))
        if (str_eq(c->known[at].key, key)) return *is_new = false, &c->known[at].value;
    c->known[at].key = (Str){memcpy(schema_alloc(c, key.len + 1), key.data, key.len), key.len};
    c->n_known++;
    *is_new = true;
    return &c->known[at].value;
}

static bool says_nothing(const Compiler *c, const Json *s) {
    if (s->kind == JSON_BOOL) return s->boolean;
    if (s->kind != JSON_OBJECT) return false;
    for (const Json *k = s->child; k; k = k->next)
        if (schema_keyword(c, s, k->key) != K_ANNOTATION) return false;
    return true;
}

// A schema that is nothing but a reference is what it refers to.
static const Json *resolve(Compiler *c, const Json *s) {
    for (int i = 0; i < 64 && s; i++) {
        const Json *ref = json_get_string(s, "$ref");
        if (!ref || (c->draft > 7 && s->n_items > 1)) return s;
        s = schema_target(c, s, ref);
    }
    return s;
}

static int by_term(const void *a, const void *b) { return memcmp(a, b, sizeof(Term)); }

int schema_node(Compiler *c, Term *terms, int n) {
    int kept = 0;
    bool is_new, is_never = false;
    for (int i = 0; i < n; i++) {
        Term t = terms[i];
        if (t.kind != TERM_VALUE && !(t.json = resolve(c, t.json))) return 0;
        bool is_true = t.kind != TERM_VALUE && says_nothing(c, t.json);
        bool is_false = t.kind != TERM_VALUE && t.json->kind == JSON_BOOL && !t.json->boolean;
        if (t.kind == TERM_NOT ? is_true : is_false) is_never = true;
        if (t.kind == TERM_NOT ? is_false : is_true) continue;
        memset(&terms[kept], 0, sizeof *terms); // keys are compared by their bytes
        terms[kept].kind = t.kind, terms[kept].json = t.json;
        kept++;
    }
    if (is_never) return 0;
    if (kept > 1) qsort(terms, (size_t)kept, sizeof *terms, by_term);
    n = 0;
    for (int i = 0; i < kept; i++)
        if (!i || memcmp(&terms[i], &terms[n - 1], sizeof *terms)) terms[n++] = terms[i];
    Buffer key = {0};
    buffer_puts(&key, "node ");
    buffer_append(&key, terms, (size_t)n * sizeof *terms);
    int *node = schema_known(c, buffer_str(&key), &is_new);
    buffer_free(&key);
    if (!is_new) return *node;
    if (c->c->n_nodes >= MAX_NODES)
        return schema_fail(c, NULL, NULL, "too complex: more than %d places", MAX_NODES), 0;
    *node = grammar_add_node(c->c);
    if (*node % 256 == 0) {
        c->terms = xrealloc(c->terms, (size_t)*node + 256, sizeof *c->terms);
        c->n_terms = xrealloc(c->n_terms, (size_t)*node + 256, sizeof *c->n_terms);
    }
    c->terms[*node] = schema_alloc(c, ((size_t)n + 1) * sizeof *terms);
    if (n) memcpy(c->terms[*node], terms, (size_t)n * sizeof *terms);
    c->n_terms[*node] = n;
    return *node;
}

// --- facts

Facts schema_facts(void) {
    return (Facts){.types = IS_ANY,
                   .lo = -INFINITY,
                   .hi = INFINITY,
                   .max_length = NO_LIMIT,
                   .max_items = NO_LIMIT,
                   .max_properties = NO_LIMIT};
}

const Task *schema_task(Compiler *c, const Task *next, Term term) {
    Task *t = schema_alloc(c, sizeof *t);
    *t = (Task){.kind = K_ALL_OF, .term = term, .next = next};
    return t;
}

static void put_later(Compiler *c, Facts *f, Keyword kind, const Json *place, const Json *json) {
    Task *t = schema_alloc(c, sizeof *t);
    *t = (Task){.kind = kind, .term = {TERM_IS, place}, .json = json, .next = f->later};
    f->later = t;
}

static void put_is(Compiler *c, Facts *f, const Json *schema) {
    f->todo = schema_task(c, f->todo, (Term){TERM_IS, schema});
}
static void put_not(Compiler *c, Facts *f, const Json *schema) {
    f->todo = schema_task(c, f->todo, (Term){TERM_NOT, schema});
}

static Atom *put_atom(Compiler *c, Facts *f, AtomKind kind, const Json *place, const Json *json) {
    Atom *a = schema_alloc(c, sizeof *a);
    *a = (Atom){.kind = kind, .json = json, .place = place, .next = f->atoms};
    f->atoms = a;
    return a;
}

static void require(Compiler *c, Facts *f, const Json *place, Str name) {
    put_atom(c, f, A_REQUIRED, place, NULL)->name = name;
}

static void put_property(Compiler *c, Facts *f, const Json *place, Str name, Term term) {
    Atom *a = put_atom(c, f, A_PROPERTY, place, NULL);
    a->name = name, a->term = term;
}

static const Json never = {.kind = JSON_BOOL};

static void forbid(Compiler *c, Facts *f, const Json *place, Str name) {
    put_property(c, f, place, name, (Term){TERM_IS, &never});
}

static void at_least(Facts *f, double x, bool is_out) {
    if (x > f->lo || (x == f->lo && is_out)) f->lo = x, f->lo_is_out = is_out;
}

static void at_most(Facts *f, double x, bool is_out) {
    if (x < f->hi || (x == f->hi && is_out)) f->hi = x, f->hi_is_out = is_out;
}

static void raise_to(uint32_t *least, uint32_t n) {
    if (n > *least) *least = n;
}
static void lower_to(uint32_t *most, uint32_t n) {
    if (n < *most) *most = n;
}

static bool expect(Compiler *c, const Json *place, const Json *k, JsonKind kind, const char *what) {
    return k->kind == kind
               ? true
               : schema_fail(c, place, NULL, "\"%.*s\": expected %s", SHOWN(k->key), what);
}

// minimum and its kin; exclusiveMinimum was a flag beside minimum in draft 4.
static void take_bound(Compiler *c, Facts *f, Keyword kind, const Json *s, const Json *k) {
    bool is_low = kind == K_MINIMUM || kind == K_OVER, is_out = kind == K_OVER || kind == K_UNDER;
    const Json *flag = json_get(s, is_low ? "exclusiveMinimum" : "exclusiveMaximum");
    if (is_out && k->kind == JSON_BOOL) return;
    if (!expect(c, s, k, JSON_NUMBER, "a number")) return;
    if (flag && flag->kind == JSON_BOOL && flag->boolean) is_out = true;
    if (is_low)
        at_least(f, k->number, is_out);
    else if (k->number < 1.79e308)
        at_most(f, k->number, is_out);
}

static void take_number(Compiler *c, Facts *f, Keyword kind, const Json *s, const Json *k) {
    if (kind == K_MULTIPLE) {
        if (!expect(c, s, k, JSON_NUMBER, "a number")) return;
        if (k->number <= 0) schema_fail(c, s, "multipleOf", "expected a number above 0");
        put_atom(c, f, A_MULTIPLE, s, k)->number = k->number;
        return;
    }
    if (kind >= K_MINIMUM && kind <= K_UNDER) {
        take_bound(c, f, kind, s, k);
        return;
    }
    uint32_t n = schema_count(c, s, k);
    switch (kind) {
    case K_MIN_LENGTH: raise_to(&f->min_length, n); break;
    case K_MAX_LENGTH: lower_to(&f->max_length, n); break;
    case K_MIN_ITEMS: raise_to(&f->min_items, n); break;
    case K_MAX_ITEMS: lower_to(&f->max_items, n); break;
    case K_MIN_PROPERTIES: raise_to(&f->min_properties, n); break;
    default: lower_to(&f->max_properties, n);
    }
}

static bool has_atom(const Facts *f, AtomKind kind, const Json *place) {
    for (const Atom *a = f->atoms; a; a = a->next)
        if (a->kind == kind && a->place == place) return true;
    return false;
}

static void take_required(Compiler *c, Facts *f, const Json *s, const Json *k) {
    if (!expect(c, s, k, JSON_ARRAY, "a list of names")) return;
    for (const Json *name = k->child; name; name = name->next)
        if (expect(c, s, name, JSON_STRING, "a list of names")) require(c, f, s, name->string);
}

// The parts of properties and items that must be schemas, so that nothing is passed over.
static void check_parts(Compiler *c, const Json *s, const Json *k) {
    if (str_is(k->key, "properties") || str_is(k->key, "patternProperties"))
        expect(c, s, k, JSON_OBJECT, "an object of schemas");
    else if (str_is(k->key, "prefixItems"))
        expect(c, s, k, JSON_ARRAY, "a list of schemas");
}

// Properties that no keyword looked at: simple where no other keyword beside may look at some.
static void take_unevaluated(Compiler *c, Facts *f, const Json *s, const Json *k) {
    bool is_items = str_is(k->key, "unevaluatedItems");
    if (k->kind == JSON_BOOL && k->boolean) return;
    for (const Json *m = s->child; m; m = m->next) {
        Keyword kind = schema_keyword(c, s, m->key);
        if ((kind >= K_ALL_OF && kind <= K_IF) || kind == K_REF || kind == K_DEPENDENCIES ||
            kind == K_UNSUPPORTED) {
            schema_fail(c, s, NULL, "\"%.*s\" beside \"%.*s\" is not supported", SHOWN(k->key),
                        SHOWN(m->key));
            return;
        }
    }
    const char *rest = !is_items                    ? "additionalProperties"
                       : json_get(s, "prefixItems") ? "items"
                                                    : "additionalItems";
    const Json *items = json_get(s, "items");
    bool is_all = json_get(s, rest) || (is_items && items && items->kind != JSON_ARRAY);
    if (!is_all)
        put_atom(c, f, is_items ? A_ARRAY : A_OBJECT, s, k)->is_negated =
            true; // k is what all others are
}

static void note_unknown(Compiler *c, const Json *s, Str name) {
    if (!c->unknown || c->unknown->len > 4000) return;
    Buffer path = {0};
    if (put_path(&path, c->root, s)) {
        buffer_printf(c->unknown, "%s#%s/%.*s", c->unknown->len ? ", " : "",
                      path.data ? path.data : "", SHOWN(name));
    }
    buffer_free(&path);
}

static void take_keyword(Compiler *c, Facts *f, const Json *s, const Json *k) {
    Keyword kind = schema_keyword(c, s, k->key);
    const Json *target;
    switch (kind) {
    case K_ANNOTATION: break;
    case K_UNKNOWN: note_unknown(c, s, k->key); break;
    case K_UNSUPPORTED: schema_fail(c, s, NULL, "\"%.*s\" is not supported", SHOWN(k->key)); break;
    case K_REF:
        if ((target = schema_target(c, s, k))) put_is(c, f, target);
        break;
    case K_TYPE: f->types &= schema_types(c, s, k); break;
    case K_ENUM:
    case K_CONST:
        break; // the whole node is then a list of values, see work_out; elsewhere see branch
    case K_ALL_OF:
        if (!expect(c, s, k, JSON_ARRAY, "a list of schemas")) return;
        for (const Json *sub = k->child; sub; sub = sub->next) put_is(c, f, sub);
        break;
    case K_ANY_OF:
    case K_ONE_OF:
        if (expect(c, s, k, JSON_ARRAY, "a list of schemas")) put_later(c, f, kind, s, k);
        break;
    case K_NOT: put_not(c, f, k); break;
    case K_IF: put_later(c, f, kind, s, k); break;
    case K_DEPENDENCIES:
        if (!expect(c, s, k, JSON_OBJECT, "an object")) return;
        for (const Json *d = k->child; d; d = d->next) put_later(c, f, kind, s, d);
        break;
    case K_OBJECT:
    case K_ARRAY:
        check_parts(c, s, k);
        if (!has_atom(f, kind == K_OBJECT ? A_OBJECT : A_ARRAY, s))
            put_atom(c, f, kind == K_OBJECT ? A_OBJECT : A_ARRAY, s, s);
        break;
    case K_REQUIRED: take_required(c, f, s, k); break;
    case K_NAMES: put_atom(c, f, A_NAMES, s, k)->term = (Term){TERM_IS, k}; break;
    case K_UNIQUE:
        if (k->kind == JSON_BOOL && !k->boolean) break;
        put_later(c, f, kind, s, k);
        break;
    case K_PATTERN:
    case K_FORMAT:
        if (expect(c, s, k, JSON_STRING, "a string"))
            put_atom(c, f, kind == K_PATTERN ? A_PATTERN : A_FORMAT, s, k);
        break;
    case K_UNEVALUATED: take_unevaluated(c, f, s, k); break;
    default: take_number(c, f, kind, s, k);
    }
}

// Takes one term into the facts.
static void take(Compiler *c, Facts *f, Term t) {
    const Json *s = t.json;
    if (!schema_spend(c, 8)) return;
    if (s->kind == JSON_BOOL) {
        if (s->boolean == (t.kind == TERM_NOT)) f->types = 0;
        return;
    }
    if (s->kind != JSON_OBJECT) {
        schema_fail(c, s, NULL, "expected a schema");
        return;
    }
    if (t.kind == TERM_NOT) {
        put_later(c, f, K_NOT, s, s);
        return;
    }
    if (has_atom(f, A_SEEN, s)) return;
    put_atom(c, f, A_SEEN, s, NULL);
    const Json *ref = json_get_string(s, "$ref");
    for (const Json *k = s->child; k && !c->failed; k = k->next)
        if (!ref || c->draft > 7 || k == ref)
            take_keyword(c, f, s, k); // before 2019-09 $ref stood for all
}

// --- choices

static void go_on(Compiler *c, Facts f, const Json *is, const Json *is_not) {
    if (is) put_is(c, &f, is);
    if (is_not) put_not(c, &f, is_not);
    schema_expand(c, f);
}

static void split_one_of(Compiler *c, Facts f, const Json *list) {
    for (const Json *s = list->child; s && !c->failed; s = s->next) {
        Facts own = f;
        for (const Json *other = list->child; other; other = other->next)
            if (other != s && !schema_disjoint(c, s, other, 0)) put_not(c, &own, other);
        go_on(c, own, s, NULL);
    }
}

static void split_if(Compiler *c, Facts f, const Json *s, const Json *condition) {
    const Json *then = json_get(s, "then"), *otherwise = json_get(s, "else");
    if (!then && !otherwise) {
        schema_expand(c, f);
        return;
    }
    Facts yes = f, no = f;
    put_is(c, &yes, condition);
    go_on(c, yes, then, NULL);
    put_not(c, &no, condition);
    go_on(c, no, otherwise, NULL);
}

// Without the name, or with it and what it asks for.
static void split_dependency(Compiler *c, Facts f, const Json *place, const Json *d) {
    Facts without = f;
    forbid(c, &without, place, d->key);
    schema_expand(c, without);
    f.types &= IS_OBJECT;
    require(c, &f, place, d->key);
    if (d->kind == JSON_ARRAY)
        take_required(c, &f, place, d);
    else
        put_is(c, &f, d);
    schema_expand(c, f);
}

// The branches in which one keyword of a schema does not hold.

static void refuse_denial(Compiler *c, const Json *s, const Json *k) {
    schema_fail(c, s, NULL, "\"%.*s\" under \"not\" or a oneOf that overlaps is not supported",
                SHOWN(k->key));
}

static void deny_property(Compiler *c, Facts f, const Json *s, const Json *p) {
    f.types &= IS_OBJECT;
    require(c, &f, s, p->key);
    put_property(c, &f, s, p->key, (Term){TERM_NOT, p});
    schema_expand(c, f);
}

static void deny_object(Compiler *c, Facts f, const Json *s, const Json *k) {
    if (k->kind == JSON_BOOL && k->boolean) return;
    if (!str_is(k->key, "properties")) {
        refuse_denial(c, s, k);
        return;
    }
    for (const Json *p = k->child; p && !c->failed; p = p->next)
        if (!says_nothing(c, p)) deny_property(c, f, s, p);
}

static void deny_array(Compiler *c, Facts f, const Json *s, const Json *k) {
    if ((k->kind == JSON_BOOL && k->boolean) || says_nothing(c, k)) return;
    if (k->kind != JSON_ARRAY) {
        refuse_denial(c, s, k);
        return;
    }
    uint32_t i = 0;
    for (const Json *item = k->child; item && !c->failed; item = item->next, i++) {
        Facts own = f;
        own.types &= IS_ARRAY;
        raise_to(&own.min_items, i + 1);
        Atom *a = put_atom(c, &own, A_ITEM, s, NULL);
        a->number = i, a->term = (Term){TERM_NOT, item};
        schema_expand(c, own);
    }
}

static void deny_one_of(Compiler *c, Facts f, const Json *list) {
    Facts none = f;
    for (const Json *s = list->child; s; s = s->next) put_not(c, &none, s);
    schema_expand(c, none);
    for (const Json *a = list->child; a && !c->failed; a = a->next)
        for (const Json *b = a->next; b && !c->failed; b = b->next) {
            Facts both = f;
            if (schema_disjoint(c, a, b, 0)) continue;
            put_is(c, &both, a);
            go_on(c, both, b, NULL);
        }
}

static void deny_number(Compiler *c, Facts f, Keyword kind, const Json *s, const Json *k) {
    Facts bounds = {.lo = -INFINITY, .hi = INFINITY};
    f.types &= IS_INTEGER | IS_FRACTION;
    if (kind == K_MULTIPLE) {
        refuse_denial(c, s, k);
        return;
    }
    take_bound(c, &bounds, kind, s, k);
    if (!isinf(bounds.lo)) at_most(&f, bounds.lo, !bounds.lo_is_out);
    if (!isinf(bounds.hi)) at_least(&f, bounds.hi, !bounds.hi_is_out);
    if (!isinf(bounds.lo) || !isinf(bounds.hi)) schema_expand(c, f);
}

static void deny_count(Compiler *c, Facts f, Keyword kind, const Json *s, const Json *k) {
    uint32_t n = schema_count(c, s, k);
    bool is_least = kind == K_MIN_LENGTH || kind == K_MIN_ITEMS || kind == K_MIN_PROPERTIES;
    if (is_least ? n == 0 : n == NO_LIMIT) return;
    switch (kind) {
    case K_MIN_LENGTH: f.types &= IS_STRING, lower_to(&f.max_length, n - 1); break;
    case K_MAX_LENGTH: f.types &= IS_STRING, raise_to(&f.min_length, n + 1); break;
    case K_MIN_ITEMS: f.types &= IS_ARRAY, lower_to(&f.max_items, n - 1); break;
    case K_MAX_ITEMS: f.types &= IS_ARRAY, raise_to(&f.min_items, n + 1); break;
    case K_MIN_PROPERTIES: f.types &= IS_OBJECT, lower_to(&f.max_properties, n - 1); break;
    default: f.types &= IS_OBJECT, raise_to(&f.min_properties, n + 1);
    }
    schema_expand(c, f);
}

static void deny_string(Compiler *c, Facts f, Keyword kind, const Json *s, const Json *k) {
    f.types &= IS_STRING;
    if (!expect(c, s, k, JSON_STRING, "a string")) return;
    put_atom(c, &f, kind == K_PATTERN ? A_PATTERN : A_FORMAT, s, k)->is_negated = true;
    schema_expand(c, f);
}

static void deny_required(Compiler *c, Facts f, const Json *s, const Json *k) {
    f.types &= IS_OBJECT;
    for (const Json *name = k->child; name && !c->failed; name = name->next) {
        Facts own = f;
        if (!expect(c, s, name, JSON_STRING, "a list of names")) return;
        forbid(c, &own, s, name->string);
        schema_expand(c, own);
    }
}

static void deny_dependencies(Compiler *c, Facts f, const Json *s, const Json *k) {
    f.types &= IS_OBJECT;
    for (const Json *d = k->child; d && !c->failed; d = d->next) {
        Facts own = f;
        require(c, &own, s, d->key);
        if (d->kind == JSON_ARRAY)
            deny_required(c, own, s, d);
        else
            go_on(c, own, NULL, d);
    }
}

static void deny_keyword(Compiler *c, Facts f, const Json *s, const Json *k) {
    Keyword kind = schema_keyword(c, s, k->key);
    const Json *then = json_get(s, "then"), *otherwise = json_get(s, "else"), *target;
    Facts own = f;
    switch (kind) {
    case K_ANNOTATION:
    case K_UNKNOWN: break;
    case K_REF:
        if ((target = schema_target(c, s, k))) go_on(c, f, NULL, target);
        break;
    case K_TYPE:
        own.types &= ~schema_types(c, s, k);
        schema_expand(c, own);
        break;
    case K_ENUM:
    case K_CONST:
        put_atom(c, &own, A_NO_VALUE, s, k)->number = kind == K_CONST;
        schema_expand(c, own);
        break;
    case K_ALL_OF:
        for (const Json *sub = k->child; sub && !c->failed; sub = sub->next) go_on(c, f, NULL, sub);
        break;
    case K_ANY_OF:
        for (const Json *sub = k->child; sub; sub = sub->next) put_not(c, &own, sub);
        schema_expand(c, own);
        break;
    case K_ONE_OF: deny_one_of(c, f, k); break;
    case K_NOT: go_on(c, f, k, NULL); break;
    case K_IF:
        put_is(c, &own, k);
        if (then) go_on(c, own, NULL, then);
        if (otherwise) put_not(c, &f, k), go_on(c, f, NULL, otherwise);
        break;
    case K_OBJECT: deny_object(c, f, s, k); break;
    case K_ARRAY: deny_array(c, f, s, k); break;
    case K_REQUIRED: deny_required(c, f, s, k); break;
    case K_DEPENDENCIES: deny_dependencies(c, f, s, k); break;
    case K_PATTERN:
    case K_FORMAT: deny_string(c, f, kind, s, k); break;
    case K_MINIMUM:
    case K_MAXIMUM:
    case K_OVER:
    case K_UNDER:
    case K_MULTIPLE: deny_number(c, f, kind, s, k); break;
    case K_MIN_LENGTH:
    case K_MAX_LENGTH:
    case K_MIN_ITEMS:
    case K_MAX_ITEMS:
    case K_MIN_PROPERTIES:
    case K_MAX_PROPERTIES: deny_count(c, f, kind, s, k); break;
    default: schema_fail(c, s, NULL, "\"%.*s\" under \"not\" is not supported", SHOWN(k->key));
    }
}

static void deny(Compiler *c, Facts f, const Json *s) {
    const Json *ref = json_get_string(s, "$ref");
    for (const Json *k = s->child; k && !c->failed; k = k->next)
        if (!ref || c->draft > 7 || k == ref) deny_keyword(c, f, s, k);
}

static void branch(Compiler *c, Facts f, const Task *t) {
    switch (t->kind) {
    case K_ANY_OF:
        for (const Json *s = t->json->child; s && !c->failed; s = s->next) go_on(c, f, s, NULL);
        break;
    case K_ONE_OF: split_one_of(c, f, t->json); break;
    case K_IF: split_if(c, f, t->term.json, t->json); break;
    case K_DEPENDENCIES: split_dependency(c, f, t->term.json, t->json); break;
    case K_UNIQUE: // as late as it goes: now the number of items is known
        if ((f.types & IS_ARRAY) && f.max_items > 1)
            schema_fail(c, t->term.json, "uniqueItems", "not supported for more than one item");
        else
            schema_expand(c, f);
        break;
    default: deny(c, f, t->json);
    }
}

// A listed value among the facts' own schemas, or NULL.
static const Json *find_values(const Facts *f, int draft) {
    for (const Atom *a = f->atoms; a; a = a->next) {
        if (a->kind != A_SEEN || (draft <= 7 && json_get(a->place, "$ref"))) continue;
        const Json *k = json_get(a->place, "enum");
        if (k && k->kind == JSON_ARRAY) return k;
        if (draft >= 6 && (k = json_get(a->place, "const"))) return k;
    }
    return NULL;
}

// A branch in which values are listed: those of them that fit all the node's terms.
static void emit_listed(Compiler *c, const Json *list) {
    int n = 0, most = str_is(list->key, "const") ? 1 : list->n_items;
    const Json **values = schema_alloc(c, ((size_t)most + 1) * sizeof *values);
    const Json *v = str_is(list->key, "const") ? list : list->child;
    for (int i = 0; i < most && !c->failed; i++, v = v->next) {
        bool fits = true;
        for (int k = 0; fits && k < c->n_terms[c->node]; k++)
            fits = term_holds(c, c->terms[c->node][k], v);
        if (fits) values[n++] = v;
    }
    schema_emit_values(c, values, n);
}

void schema_expand(Compiler *c, Facts f) {
    if (++c->depth > MAX_DEPTH)
        schema_fail(c, f.later ? f.later->term.json : NULL, NULL, "too deeply nested choices");
    while (f.todo && f.types && !c->failed) {
        Term t = f.todo->term;
        f.todo = f.todo->next;
        take(c, &f, t);
    }
    const Json *values = c->failed ? NULL : find_values(&f, c->draft);
    if (c->failed || !f.types || (f.min_length > f.max_length && f.types == IS_STRING)) {
        // no text
    } else if (values) {
        emit_listed(c, values);
    } else if (f.later) {
        const Task *t = f.later;
        f.later = t->next;
        branch(c, f, t);
    } else if (++c->n_alts > MAX_ALTS) {
        schema_fail(c, c->n_terms[c->node] ? c->terms[c->node][0].json : NULL, NULL,
                    "too complex: more than %d combinations of choices", MAX_ALTS);
    } else {
        schema_emit(c, &f);
    }
    c->depth--;
}

static void work_out(Compiler *c, int node) {
    Facts f = schema_facts();
    c->node = node;
    c->n_alts = c->depth = 0;
    for (int i = c->n_terms[node]; i-- > 0;) {
        Term t = c->terms[node][i];
        if (t.kind == TERM_VALUE) {
            schema_emit_values(c, &t.json, 1); // stands alone
            return;
        }
        f.todo = schema_task(c, f.todo, t);
    }
    schema_expand(c, f);
}

Grammar *grammar_schema(const Json *schema, bool is_ordered, Buffer *unknown, Error *err) {
    Compiler c = {.c = grammar_new(),
                  .root = schema,
                  .budget = {COMPILE_BUDGET},
                  .err = err,
                  .unknown = unknown};
    Term root = {TERM_IS, schema};
    c.draft = find_draft(schema);
    c.c->is_ordered = is_ordered;
    grammar_add_node(c.c); // 0: nothing fits
    c.terms = xalloc(256, sizeof *c.terms);
    c.n_terms = xalloc(256, sizeof *c.n_terms);
    c.c->root = schema_node(&c, &root, 1);
    for (int node = 1; node < c.c->n_nodes && !c.failed; node++) work_out(&c, node);
    if (!c.failed) schema_finish(&c);
    if (!c.failed && !c.c->nodes[c.c->root].is_possible)
        schema_fail(&c, NULL, NULL, "no value fits");
    for (Block *b = c.blocks, *next; b; b = next) next = b->next, free(b);
    free(c.known), free(c.terms), free(c.n_terms);
    if (!c.failed) return c.c;
    grammar_free(c.c);
    return NULL;
}

Grammar *grammar_schema_text(Str text, bool is_ordered, Buffer *unknown, Error *err) {
    JsonDoc doc = {0};
    Error why;
    Grammar *c = NULL;
    if (json_parse(&doc, text.data, text.len, &why))
        c = grammar_schema(doc.root, is_ordered, unknown, err);
    else
        error_set(err, EXIT_USAGE, "JSON Schema: %s", why.text);
    json_free(&doc);
    return c;
}
