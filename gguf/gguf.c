// One bounds-checked cursor reads the header from front to back. The tables grow as entries are
// read, so a hostile count in the header allocates nothing. Building blocks first; gguf_open() is
// near the end.
#include "gguf/gguf.h"
#include "base/bits.h"

#include <stdarg.h>
#include <stdio.h>

// Limits far above any real file, so that a hostile header costs little time and memory.
enum { MAX_ENTRIES = 1 << 18, MAX_STRINGS = 1 << 22, MAX_KEY = 65535, MAX_TENSOR_NAME = 63 };
enum { DEFAULT_ALIGNMENT = 32, MIN_ALIGNMENT = 8, MAX_ALIGNMENT = 65536 };

static const char *const kind_names[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                         "bool", "string", "array", "u64", "i64", "f64"};
static const uint8_t kind_bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8}; // 0: variable

// A little-endian integer of up to 8 bytes.
static uint64_t load_uint(const uint8_t *p, int bytes) {
    uint64_t v = 0;
    for (int i = 0; i < bytes; i++) v |= (uint64_t)p[i] << 8 * i;
    return v;
}

typedef struct {
    const uint8_t *data; // the whole file
    size_t size, at;     // at <= size
    size_t n_strings;    // strings in arrays so far
    const char *file;
    Str item; // name of the key or tensor that is being read, for messages
    Error *err;
} GgufCursor;

bool gguf_refuse(const Gguf *g, Error *err, const char *fmt, ...) {
    char reason[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(reason, sizeof reason, fmt, ap);
    va_end(ap);
    return error_set(err, EXIT_MODEL, "%s: %s", g->path, reason);
}

// Sets the error "FILE: byte N: ITEM: FIELD: REASON" and returns false. Only the end of a long path
// is shown, so that the reason always fits.
PRINTF_LIKE(4, 5)
static bool reject(const GgufCursor *c, size_t at, const char *field, const char *fmt, ...) {
    char reason[200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(reason, sizeof reason, fmt, ap);
    va_end(ap);
    size_t len = strlen(c->file), skip = len > 160 ? len - 160 : 0;
    int item = c->item.len < 64 ? (int)c->item.len : 64;
    return error_set(c->err, EXIT_MODEL, "%s%s: byte %zu: %.*s%s%s: %s", skip ? "..." : "",
                     c->file + skip, at, item, item ? c->item.data : "", item ? ": " : "", field,
                     reason);
}

static size_t offset_of(const GgufCursor *c, const void *p) {
    return (size_t)((const uint8_t *)p - c->data);
}

// The next n bytes, or NULL. Every read of the header goes through here.
static const uint8_t *read_bytes(GgufCursor *c, size_t n, const char *field) {
    size_t left = c->size - c->at;
    if (n <= left) return c->data + (c->at += n) - n;
    reject(c, c->at, field, "truncated file: %zu bytes needed, %zu left; interrupted download?", n,
           left);
    return NULL;
}

static bool read_uint(GgufCursor *c, int bytes, const char *field, uint64_t min, uint64_t max,
                      uint64_t *out) {
    const uint8_t *p = read_bytes(c, (size_t)bytes, field);
    if (!p) return false;
    *out = load_uint(p, bytes);
    return (*out >= min && *out <= max) ||
           reject(c, c->at - (size_t)bytes, field, "expected %llu to %llu, found %llu",
                  (unsigned long long)min, (unsigned long long)max, (unsigned long long)*out);
}

static bool read_string(GgufCursor *c, const char *field, size_t min, size_t max, Str *out) {
    uint64_t len;
    if (!read_uint(c, 8, field, min, max, &len)) return false;
    *out = (Str){(const char *)read_bytes(c, (size_t)len, field), (size_t)len};
    return out->data;
}

// Parses one metadata entry. Reading the strings of an array here checks their lengths, so that
// gguf_next_string() needs no bounds.
static bool parse_metadata(GgufCursor *c, GgufValue *v) {
    uint64_t kind;
    Str string;

    // Error messages name the entry, as soon as its key has been read.
    c->item = (Str){0};
    if (!read_string(c, "key", 1, MAX_KEY, &v->key)) return false;
    c->item = v->key;

    if (!read_uint(c, 4, "kind", 0, GGUF_F64, &kind)) return false;
    v->kind = v->item_kind = (GgufKind)kind;
    v->count = 1;

    if (v->kind == GGUF_ARRAY) {
        if (!read_uint(c, 4, "item kind", 0, GGUF_F64, &kind)) return false;
        if (kind == GGUF_ARRAY) return reject(c, c->at - 4, "item kind", "arrays cannot be nested");
        v->item_kind = (GgufKind)kind;

        bool has_strings = kind == GGUF_STRING;
        uint64_t max = has_strings ? MAX_STRINGS - c->n_strings : SIZE_MAX / 8;
        if (!read_uint(c, 8, "count", 0, max, &v->count)) return false;
        if (has_strings) c->n_strings += (size_t)v->count;
    }

    // Each string has its own length; items of all other kinds have a fixed size.
    v->data = c->data + c->at;
    if (v->item_kind == GGUF_STRING) {
        for (uint64_t i = 0; i < v->count; i++)
            if (!read_string(c, "string", 0, SIZE_MAX, &string)) return false;
    } else if (!read_bytes(c, (size_t)v->count * kind_bytes[v->item_kind], "value")) {
        return false;
    }

    v->bytes = (size_t)(c->data + c->at - v->data);

    if (v->kind == GGUF_BOOL && *v->data > 1)
        return reject(c, c->at - 1, "value", "expected 0 or 1, found %u", *v->data);

    return true;
}

// Parses the shape of a tensor, of *n weights. The total number of weights in the file is limited
// as well.
static bool parse_shape(GgufCursor *c, GgufTensor *t, size_t *n, size_t *n_weights) {
    uint64_t n_dims;
    bool fits = true;
    *n = 1;
    if (!read_uint(c, 4, "n_dims", 1, 4, &n_dims)) return false;
    t->n_dims = (int)n_dims;

    for (int i = 0; i < 4; i++) {
        t->dims[i] = 1;
        if (i < t->n_dims && !read_uint(c, 8, "dimensions", 1, SIZE_MAX, &t->dims[i])) return false;
        fits = fits && size_mul(*n, (size_t)t->dims[i], n);
    }
    if (fits && size_add(*n_weights, *n, n_weights) && *n_weights <= SIZE_MAX / 2) return true;
    return reject(c, c->at - 8, "dimensions", "more weights than memory can hold");
}

// Parses the type of a tensor of n weights. A row must consist of whole blocks.
static bool parse_type(GgufCursor *c, const Gguf *metadata, GgufTensor *t, size_t n) {
    uint64_t type;
    if (!read_uint(c, 4, "type", 0, UINT32_MAX, &type)) return false;
    t->type = (uint32_t)type;
    const TypeInfo *info = type_info(t->type);
    if (!info->block)
        return reject(c, c->at - 4, "type", "unknown tensor type %s",
                      gguf_describe_type(t->type, gguf_file_type(metadata)));
    if (t->dims[0] % (unsigned)info->block)
        return reject(c, c->at - 4, "type", "%s needs rows of a multiple of %d weights, found %zu",
                      info->name, info->block, (size_t)t->dims[0]);
    return size_mul(n / (unsigned)info->block, (unsigned)info->bytes, &t->bytes) ||
           reject(c, c->at - 4, "type", "the tensor is too large");
}

// Parses one entry of the tensor table. The data section begins after the table, at an address that
// is not known yet. Until place_tensors(), t->data holds the offset.
static bool parse_tensor(GgufCursor *c, const Gguf *metadata, GgufTensor *t, size_t alignment,
                         size_t *n_weights) {
    uint64_t offset;
    size_t n;

    c->item = (Str){0};
    if (!read_string(c, "tensor name", 1, MAX_TENSOR_NAME, &t->name)) return false;
    c->item = t->name;

    if (!parse_shape(c, t, &n, n_weights) || !parse_type(c, metadata, t, n)) return false;

    if (!read_uint(c, 8, "offset", 0, UINTPTR_MAX, &offset)) return false;
    if (offset % alignment)
        return reject(c, c->at - 8, "offset", "expected a multiple of %zu, found %zu", alignment,
                      (size_t)offset);
    t->data = (const void *)(uintptr_t)offset; // place_tensors() turns it into a pointer
    return true;
}

static int compare_data(const void *a, const void *b) {
    const GgufTensor *x = *(const GgufTensor *const *)a, *y = *(const GgufTensor *const *)b;
    return (x->data > y->data) - (x->data < y->data);
}

// Turns offsets into pointers. Every tensor must be inside the file.
static bool place_tensors(GgufCursor *c, GgufTensor *tensors, int n, size_t alignment) {
    size_t start = size_round_up(c->at, alignment); // at <= file size: no overflow

    for (GgufTensor *t = tensors; t < tensors + n; t++) {
        size_t offset = (uintptr_t)t->data, end;
        c->item = t->name;
        if (!size_add(start, offset, &end) || !size_add(end, t->bytes, &end) || end > c->size)
            return reject(
                c, offset_of(c, t->name.data), "offset",
                "%zu bytes at %zu + %zu exceed the file (%zu bytes); interrupted download?",
                t->bytes, start, offset, c->size);
        t->data = c->data + start + offset;
    }

    return true;
}

// No two tensors may overlap: by address, none begins before the previous one ends.
static bool check_overlaps(GgufCursor *c, const GgufTensor *tensors, int n) {
    const GgufTensor **order = xrealloc(NULL, (size_t)n, sizeof *order);
    bool ok = true;

    for (int i = 0; i < n; i++) order[i] = &tensors[i];
    qsort(order, (size_t)n, sizeof *order, compare_data);

    for (int i = 1; i < n; i++) {
        const GgufTensor *a = order[i - 1], *b = order[i];
        if ((const uint8_t *)a->data + a->bytes <= (const uint8_t *)b->data) continue;
        c->item = b->name;
        ok = reject(c, offset_of(c, b->name.data), "offset", "data overlaps tensor %.*s",
                    SHOWN(a->name));
        break;
    }

    free(order);
    return ok;
}

// GgufValue and GgufTensor begin with their name, so a pointer to a name is also a pointer to its
// entry, and one kind of index serves both.
static int compare_names(const void *a, const void *b) {
    return str_compare(**(const Str *const *)a, **(const Str *const *)b);
}

// Sorts pointers to n entries of `stride` bytes by name. Refuses duplicates.
static bool build_index(const Gguf *g, const Str ***index, const void *entries, size_t stride,
                        int n, Error *err) {
    const Str **x = *index = xalloc((size_t)n, sizeof *x);
    for (int i = 0; i < n; i++) x[i] = (const void *)((const char *)entries + (size_t)i * stride);
    qsort(x, (size_t)n, sizeof *x, compare_names);
    for (int i = 1; i < n; i++)
        if (str_eq(*x[i - 1], *x[i]))
            return gguf_refuse(g, err, "%.*s: duplicate %s", SHOWN(*x[i]),
                               stride == sizeof(GgufValue) ? "key" : "tensor");
    return true;
}

static const void *find_name(const Str *const *index, int n, const char *name) {
    Str key = str_of(name);
    const Str *const *found =
        n ? bsearch(&(const Str *){&key}, index, (size_t)n, sizeof *index, compare_names) : NULL;
    return found ? *found : NULL;
}

static bool parse_header(GgufCursor *c, uint32_t *version, uint64_t *n_tensors,
                         uint64_t *n_values) {
    uint64_t number;
    const uint8_t *magic = read_bytes(c, 4, "magic");
    if (!magic) return false;

    bool is_swapped = !memcmp(magic, "FUGG", 4);
    if (!is_swapped && memcmp(magic, "GGUF", 4))
        return reject(c, 0, "magic", "expected GGUF, found %s",
                      gguf_describe_magic(c->data, c->size));

    if (!read_uint(c, 4, "version", 0, UINT32_MAX, &number)) return false;
    *version = (uint32_t)number;
    if (is_swapped || (*version && *version % 65536 == 0))
        return reject(c, 4, "byte order", "big-endian files are not supported");
    if (*version != 2 && *version != 3)
        return reject(c, 4, "version", "expected 2 or 3, found %u", *version);

    return read_uint(c, 8, "n_tensors", 0, MAX_ENTRIES, n_tensors) &&
           read_uint(c, 8, "n_values", 0, MAX_ENTRIES, n_values);
}

static bool parse_alignment(GgufCursor *c, const Gguf *g, size_t *alignment) {
    const GgufValue *v = gguf_find_value(g, "general.alignment");
    *alignment = DEFAULT_ALIGNMENT;
    if (!v) return true;
    size_t a = *alignment = v->kind == GGUF_U32 ? (size_t)load_uint(v->data, 4) : 0;
    if (a >= MIN_ALIGNMENT && a <= MAX_ALIGNMENT && !(a & (a - 1))) return true;
    c->item = v->key;
    return reject(c, offset_of(c, v->data), "value", "expected a power of two from %d to %d (u32)",
                  MIN_ALIGNMENT, MAX_ALIGNMENT);
}

// Parses header, metadata and tensor table of a file. The metadata is stored in `own`; the tensors
// are appended to `all`.
static bool parse_contents(GgufCursor *c, Gguf *own, Gguf *all) {
    uint64_t n_tensors, n_values;
    size_t n_weights = 0, alignment;

    if (!parse_header(c, &own->version, &n_tensors, &n_values)) return false;

    while ((uint64_t)own->n_values < n_values) {
        own->values = list_grow(own->values, own->n_values, sizeof *own->values);
        if (!parse_metadata(c, &own->values[own->n_values++])) return false;
    }

    if (!build_index(own, &own->value_index, own->values, sizeof *own->values, own->n_values,
                     c->err) ||
        !parse_alignment(c, own, &alignment))
        return false;

    // The tensors of all shards form one list.
    int first = all->n_tensors;
    while ((uint64_t)(all->n_tensors - first) < n_tensors) {
        all->tensors = list_grow(all->tensors, all->n_tensors, sizeof *all->tensors);
        GgufTensor *t = &all->tensors[all->n_tensors++];
        t->shard = all->n_shards - 1;
        if (!parse_tensor(c, own, t, alignment, &n_weights)) return false;
    }

    int n = all->n_tensors - first;
    if (n == 0) return true;
    return place_tensors(c, all->tensors + first, n, alignment) &&
           check_overlaps(c, all->tensors + first, n);
}

// Checks a number in the metadata. `source` says in the error where the expected number comes from.
static bool check_number(const Gguf *g, const char *key, int expected, const char *source,
                         Error *err) {
    uint64_t found;
    if (!gguf_get_u64(g, key, &found, err)) return false;
    return found == (uint64_t)expected || gguf_refuse(g, err, "%s: expected %d%s, found %zu", key,
                                                      expected, source, (size_t)found);
}

// Parses one file and appends its tensors to g, which then owns the mapping. The metadata of the
// first shard becomes the metadata of g. In other shards only the shard number is checked.
static bool parse_file(Gguf *g, FileMapping file, const char *name, Error *err) {
    GgufCursor c = {.data = file.data, .size = file.bytes, .file = name, .err = err};
    g->shards = xrealloc(g->shards, (size_t)g->n_shards + 1, sizeof *g->shards);
    g->shards[g->n_shards++] = file;
    if (g->n_shards == 1) return parse_contents(&c, g, g);

    Gguf other = {.path = name};
    bool ok =
        parse_contents(&c, &other, g) && check_number(&other, "split.no", g->n_shards - 1, "", err);
    free(other.values);
    free(other.value_index);
    return ok;
}

enum { SHARD_SUFFIX = 20 }; // "-00001-of-0000N.gguf"

// Parses the name of a shard: returns the number of shards and sets *no to the number of this one.
// Both are 1 if the name has another form.
static unsigned parse_shard_name(const char *path, unsigned *no) {
    unsigned n = 1;
    int end = 0, stem = (int)strlen(path) - SHARD_SUFFIX;
    bool is_shard = stem >= 0 && sscanf(path + stem, "-%5u-of-%5u.gguf%n", no, &n, &end) == 2;
    if (is_shard && end == SHARD_SUFFIX) return n;
    *no = 1;
    return 1;
}

unsigned gguf_n_shards(const char *path) { return parse_shard_name(path, &(unsigned){0}); }

void gguf_put_shard_path(Buffer *out, const char *path, unsigned no, unsigned n) {
    buffer_printf(out, "%.*s-%05u-of-%05u.gguf", (int)strlen(path) - SHARD_SUFFIX, path, no, n);
}

// Opens shards 2 to N, and checks that file name and metadata agree on the number of shards.
static bool open_shards(Gguf *g, Error *err) {
    uint64_t count = 1;
    unsigned no = 1;
    unsigned n = g->shards[0].fd < 0 ? 1 : parse_shard_name(g->path, &no);

    if (no != 1) return gguf_refuse(g, err, "shard %u; open the first shard (-00001-of-...)", no);
    if (gguf_find_value(g, "split.count") && !gguf_get_u64(g, "split.count", &count, err))
        return false;
    if (count != n && (count > 1 || n > 1))
        return gguf_refuse(g, err, "split.count: expected %u as in the file name, found %zu", n,
                           (size_t)count);

    for (unsigned i = 2; i <= n; i++) {
        Buffer path = {0};
        FileMapping file;
        gguf_put_shard_path(&path, g->path, i, n);
        bool ok = mapping_open(&file, path.data, err) && parse_file(g, file, path.data, err);
        buffer_free(&path);
        if (!ok) return false;
    }

    // The metadata of the first shard may contain the total number of tensors.
    return n == 1 || !gguf_find_value(g, "split.tensors.count") ||
           check_number(g, "split.tensors.count", g->n_tensors, " as in the shards", err);
}

static bool open_mapping(Gguf *g, FileMapping file, const char *name, Error *err) {
    *g = (Gguf){.path = str_copy(str_of(name)).data};
    bool ok = parse_file(g, file, name, err) && open_shards(g, err) &&
              build_index(g, &g->tensor_index, g->tensors, sizeof *g->tensors, g->n_tensors, err);
    if (!ok) gguf_close(g);
    return ok;
}

bool gguf_open(Gguf *g, const char *path, Error *err) {
    FileMapping file;
    *g = (Gguf){0};
    return mapping_open(&file, path, err) && open_mapping(g, file, path, err);
}

bool gguf_parse(Gguf *g, const void *data, size_t n, const char *name, Error *err) {
    return open_mapping(g, (FileMapping){.data = data, .bytes = n, .fd = -1}, name, err);
}

void gguf_close(Gguf *g) {
    for (int i = 0; i < g->n_shards; i++) mapping_close(&g->shards[i]);
    free(g->shards);
    free(g->values);
    free(g->tensors);
    free(g->value_index);
    free(g->tensor_index);
    free((void *)(uintptr_t)g->path);
    *g = (Gguf){0};
}

const GgufValue *gguf_find_value(const Gguf *g, const char *key) {
    return find_name(g->value_index, g->n_values, key);
}
const GgufTensor *gguf_find_tensor(const Gguf *g, const char *name) {
    return find_name(g->tensor_index, g->n_tensors, name);
}

uint64_t gguf_n_rows(const GgufTensor *t) { return t->dims[1] * t->dims[2] * t->dims[3]; }

int gguf_tensor_layer(Str name) {
    char text[64]; // names are at most 63 bytes
    unsigned layer;
    int end = 0;
    snprintf(text, sizeof text, "%.*s", (int)name.len, name.data);
    return sscanf(text, "blk.%5u.%n", &layer, &end) == 1 && end ? (int)layer : -1;
}

static bool wrong_kind(const Gguf *g, const GgufValue *v, const char *key, const char *expected,
                       Error *err) {
    if (!v) return gguf_refuse(g, err, "%s: missing key (expected %s)", key, expected);
    return gguf_refuse(g, err, "%s: expected %s, found %s%s", key, expected,
                       v->kind == GGUF_ARRAY ? "an array of " : "", kind_names[v->item_kind]);
}

// Reads a number: its bits as stored (integers sign-extended), and its value as a double. An array
// of equal numbers counts as one number. False if v is NULL or not a number.
static bool load_number(const GgufValue *v, uint64_t *bits, double *x, bool *is_integer) {
    GgufKind kind = v ? v->item_kind : GGUF_STRING;
    if (kind == GGUF_STRING || kind == GGUF_BOOL || v->count == 0) return false;

    // Compare each item of an array with the next one: all must be equal.
    int size = kind_bytes[kind], unused = 64 - 8 * size;
    if (memcmp(v->data, v->data + size, v->bytes - (size_t)size)) return false;

    bool is_signed = kind == GGUF_I8 || kind == GGUF_I16 || kind == GGUF_I32 || kind == GGUF_I64;
    *bits = load_uint(v->data, size);
    if (is_signed) *bits = (uint64_t)((int64_t)(*bits << unused) >> unused);
    *x = is_signed ? (double)(int64_t)*bits : (double)*bits;
    *is_integer = kind != GGUF_F32 && kind != GGUF_F64;

    if (kind == GGUF_F32) {
        float f;
        memcpy(&f, v->data, sizeof f);
        *x = (double)f;
    }
    if (kind == GGUF_F64) memcpy(x, v->data, sizeof *x);
    return true;
}

bool gguf_get_u64(const Gguf *g, const char *key, uint64_t *out, Error *err) {
    const GgufValue *v = gguf_find_value(g, key);
    double x;
    bool is_integer;
    if (!load_number(v, out, &x, &is_integer) || !is_integer)
        return wrong_kind(g, v, key, "an unsigned integer", err);
    return x >= 0 || gguf_refuse(g, err, "%s: expected an unsigned integer, found %.0f", key, x);
}

bool gguf_get_f64(const Gguf *g, const char *key, double *out, Error *err) {
    const GgufValue *v = gguf_find_value(g, key);
    uint64_t bits;
    bool is_integer;
    if (!load_number(v, &bits, out, &is_integer)) return wrong_kind(g, v, key, "a number", err);
    bool is_exact = !is_integer || (*out <= 0x1p53 && *out >= -0x1p53);
    return is_exact || wrong_kind(g, v, key, "a number up to 2^53", err);
}

bool gguf_get_bool(const Gguf *g, const char *key, bool *out, Error *err) {
    const GgufValue *v = gguf_find_value(g, key);
    if (v && v->kind != GGUF_BOOL) return wrong_kind(g, v, key, "a bool", err);
    if (v) *out = *v->data;
    return true;
}

bool gguf_get_string(const Gguf *g, const char *key, Str *out, Error *err) {
    const GgufValue *v = gguf_find_value(g, key);
    if (!v || v->kind != GGUF_STRING) return wrong_kind(g, v, key, "a string", err);
    const uint8_t *cursor = v->data;
    *out = gguf_next_string(&cursor);
    return true;
}

Str gguf_get_text(const Gguf *g, const char *key) {
    Str text;
    Error ignored;
    return gguf_get_string(g, key, &text, &ignored) ? text : (Str){0};
}

const GgufValue *gguf_get_array(const Gguf *g, const char *key, GgufKind item_kind, Error *err) {
    const GgufValue *v = gguf_find_value(g, key);
    char expected[32];
    if (v && v->kind == GGUF_ARRAY && v->item_kind == item_kind) return v;
    snprintf(expected, sizeof expected, "an array of %s", kind_names[item_kind]);
    wrong_kind(g, v, key, expected, err);
    return NULL;
}

Str gguf_next_string(const uint8_t **cursor) {
    Str s = {(const char *)*cursor + 8, (size_t)load_uint(*cursor, 8)};
    *cursor += 8 + s.len;
    return s;
}

const char *gguf_file_type(const Gguf *g) {
    uint64_t number;
    Error ignored;
    return gguf_get_u64(g, "general.file_type", &number, &ignored) ? gguf_file_type_name(number)
                                                                   : NULL;
}
