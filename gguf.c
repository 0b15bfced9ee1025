// Reads GGUF through one cursor that knows where the file ends. Nothing is copied but the two
// tables, and nothing is allocated on the word of the file: the tables grow as entries are really
// found.
#include "gguf.h"
#include "base/files.h"
#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

// Far above any real file, low enough that a hostile header costs little time and memory.
enum {
    MAX_ENTRIES = 1 << 18,
    MAX_STRINGS = 1 << 22,
    MAX_KEY = 65535,
    MAX_TENSOR_NAME = 63,
    MAX_ALIGNMENT = 65536
};
enum { DEFAULT_ALIGNMENT = 32 }; // the format's
enum { PREFETCH_BYTES = 4 << 20 };

// Other systems than Linux do without.
#if !defined(MADV_HUGEPAGE)
#define MADV_HUGEPAGE MADV_NORMAL
#endif
#if !defined(MADV_POPULATE_READ)
#define MADV_POPULATE_READ MADV_WILLNEED
#endif

static const char *const kind_names[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                         "bool", "string", "array", "u64", "i64", "f64"};
static const uint8_t kind_bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8}; // 0: it says itself

// A little-endian integer of up to 8 bytes.
static uint64_t load(const uint8_t *p, int bytes) {
    uint64_t v = 0;
    for (int i = 0; i < bytes; i++) v |= (uint64_t)p[i] << 8 * i;
    return v;
}

typedef struct {
    const uint8_t *data;
    size_t size, at;
    size_t n_strings; // in arrays, so far
    const char *file;
    Str item; // the key or tensor under way
    Error *err;
} Cursor;

// "FILE: byte N: ITEM: FIELD: expected X, found Y". Long paths lose their beginning, not the reason
// its place.
PRINTF_LIKE(4, 5)
static bool refuse(const Cursor *c, size_t at, const char *field, const char *fmt, ...) {
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

// Where p points, as messages count.
static size_t at_of(const Cursor *c, const void *p) {
    return (size_t)((const uint8_t *)p - c->data);
}

// The next n bytes, or NULL.
static const uint8_t *take(Cursor *c, size_t n, const char *field) {
    size_t left = c->size - c->at;
    if (n <= left) return c->data + (c->at += n) - n;
    refuse(c, c->at, field, "expected %zu bytes, found the end of the file after %zu", n, left);
    return NULL;
}

// The next integer, count (of what follows; at most max), string (of min to max bytes) and kind of
// a value. False with err.
static bool take_int(Cursor *c, int bytes, const char *field, uint64_t *out) {
    const uint8_t *p = take(c, (size_t)bytes, field);
    if (p) *out = load(p, bytes);
    return p;
}

static bool take_count(Cursor *c, const char *field, uint64_t max, uint64_t *out) {
    if (!take_int(c, 8, field, out)) return false;
    return *out <= max || refuse(c, c->at - 8, field, "expected at most %zu, found %zu",
                                 (size_t)max, (size_t)*out);
}

static bool take_string(Cursor *c, const char *field, size_t min, size_t max, Str *out) {
    uint64_t len;
    if (!take_int(c, 8, field, &len)) return false;
    if (len < min || len > max)
        return refuse(c, c->at - 8, field, "expected a length of %zu to %zu, found %zu", min, max,
                      (size_t)len);
    *out = (Str){(const char *)take(c, len, field), len};
    return out->data;
}

static bool take_kind(Cursor *c, const char *field, GgufKind *out) {
    uint64_t kind;
    if (!take_int(c, 4, field, &kind)) return false;
    if (kind > GGUF_F64)
        return refuse(c, c->at - 4, field, "expected a value type of 0 to %d, found %zu", GGUF_F64,
                      (size_t)kind);
    *out = (GgufKind)kind;
    return true;
}

// One key and its value, which stays where it lies; strings of an array are walked over once, so
// that gguf_next_string need not look where the file ends.
static bool parse_value(Cursor *c, GgufValue *v) {
    Str s;
    size_t bytes;
    c->item = (Str){0};
    if (!take_string(c, "key", 1, MAX_KEY, &v->key)) return false;
    c->item = v->key;
    if (!take_kind(c, "type", &v->kind)) return false;
    v->item_kind = v->kind;
    v->count = 1;
    if (v->kind == GGUF_ARRAY) {
        if (!take_kind(c, "item type", &v->item_kind)) return false;
        if (v->item_kind == GGUF_ARRAY)
            return refuse(c, c->at - 4, "item type", "expected plain items, found arrays");
        uint64_t max = v->item_kind == GGUF_STRING ? MAX_STRINGS - c->n_strings : SIZE_MAX;
        if (!take_count(c, "count", max, &v->count)) return false;
        if (v->item_kind == GGUF_STRING) c->n_strings += v->count;
    }
    size_t at = c->at;
    v->data = c->data + at;
    if (v->item_kind == GGUF_STRING) {
        for (uint64_t i = 0; i < v->count; i++)
            if (!take_string(c, "string", 0, SIZE_MAX, &s)) return false;
    } else {
        if (!size_mul(v->count, kind_bytes[v->item_kind], &bytes))
            return refuse(c, at, "count", "expected a count that fits the file, found %zu",
                          (size_t)v->count);
        if (!take(c, bytes, "value")) return false;
    }
    v->bytes = c->at - at;
    if (v->kind == GGUF_BOOL && *v->data > 1)
        return refuse(c, at, "value", "expected 0 or 1, found %u", *v->data);
    return true;
}

// Where the data starts is not known yet: until then t->data holds the offset. `own` has the
// metadata.
static bool parse_tensor(Cursor *c, const Gguf *own, GgufTensor *t, size_t alignment,
                         size_t *n_weights) {
    uint64_t offset, n_dims, type;
    size_t n = 1;
    c->item = (Str){0};
    if (!take_string(c, "tensor name", 1, MAX_TENSOR_NAME, &t->name)) return false;
    c->item = t->name;
    if (!take_int(c, 4, "n_dims", &n_dims)) return false;
    if (n_dims < 1 || n_dims > 4)
        return refuse(c, c->at - 4, "n_dims", "expected 1 to 4, found %zu", (size_t)n_dims);
    t->n_dims = (int)n_dims;
    t->dims[0] = t->dims[1] = t->dims[2] = t->dims[3] = 1;
    for (int i = 0; i < t->n_dims; i++) {
        if (!take_int(c, 8, "dimensions", &t->dims[i])) return false;
        if (t->dims[i] == 0 || (size_t)t->dims[i] != t->dims[i] ||
            !size_mul(n, (size_t)t->dims[i], &n))
            return refuse(c, c->at - 8, "dimensions",
                          "expected a product of 1 to %zu, found %llu more", SIZE_MAX,
                          (unsigned long long)t->dims[i]);
    }
    if (!size_add(*n_weights, n, n_weights) || *n_weights > SIZE_MAX / 2)
        return refuse(c, c->at - 8, "dimensions",
                      "expected at most %zu weights in all, found %zu more", SIZE_MAX / 2, n);
    if (!take_int(c, 4, "type", &type)) return false;
    t->type = (uint32_t)type;
    const TypeInfo *info = type_info(t->type);
    if (!info->block)
        return refuse(c, c->at - 4, "type", "expected a tensor type, found %s",
                      gguf_describe_type(own, t->type));
    if (t->dims[0] % (unsigned)info->block)
        return refuse(c, c->at - 4, "type", "expected rows of a multiple of %d for %s, found %zu",
                      info->block, info->name, (size_t)t->dims[0]);
    if (!size_mul(n / (unsigned)info->block, (unsigned)info->bytes, &t->bytes))
        return refuse(c, c->at - 4, "type", "expected a tensor inside the file, found %zu weights",
                      n);
    if (!take_int(c, 8, "offset", &offset)) return false;
    if (offset % alignment)
        return refuse(c, c->at - 8, "offset", "expected a multiple of %zu, found %zu", alignment,
                      (size_t)offset);
    if ((uintptr_t)offset != offset)
        return refuse(c, c->at - 8, "offset", "expected one that memory can hold, found %llu",
                      (unsigned long long)offset);
    t->data = (const void *)(uintptr_t)offset;
    return true;
}

// In the order of their data.
static int by_address(const void *a, const void *b) {
    const GgufTensor *x = *(const GgufTensor *const *)a, *y = *(const GgufTensor *const *)b;
    return (x->data > y->data) - (x->data < y->data);
}

// Turns offsets into pointers; every extent must lie in the file and none in another.
static bool place_tensors(Cursor *c, GgufTensor *tensors, int n, size_t alignment) {
    size_t start =
        (c->at + alignment - 1) / alignment * alignment; // at <= size of a file: cannot overflow
    GgufTensor **order = xrealloc(NULL, (size_t)n, sizeof *order);
    bool ok = true;
    for (int i = 0; i < n && ok; i++) {
        GgufTensor *t = order[i] = &tensors[i];
        size_t offset = (uintptr_t)t->data, end;
        c->item = t->name;
        ok = size_add(start, offset, &end) && size_add(end, t->bytes, &end) && end <= c->size;
        if (ok)
            t->data = c->data + start + offset;
        else
            refuse(c, at_of(c, t->name.data), "offset",
                   "expected %zu bytes inside the file (%zu), found them at %zu + %zu", t->bytes,
                   c->size, start, offset);
    }
    if (ok) qsort(order, (size_t)n, sizeof *order, by_address);
    for (int i = 1; i < n && ok; i++) {
        const GgufTensor *a = order[i - 1], *b = order[i];
        c->item = b->name;
        if ((const uint8_t *)a->data + a->bytes > (const uint8_t *)b->data)
            ok = refuse(c, at_of(c, b->name.data), "offset",
                        "expected its own bytes, found those of %.*s", (int)a->name.len,
                        a->name.data);
    }
    free(order);
    return ok;
}

// An index: pointers to entries, which begin with their name, in the order of the names.
static int by_name(const void *a, const void *b) {
    return str_compare(**(const Str *const *)a, **(const Str *const *)b);
}

// Of n entries, one every `stride` bytes; a name that comes twice is an error.
static bool build_index(const Str ***index, const void *entries, size_t stride, int n,
                        const char *file, Error *err) {
    const Str **x = *index = xalloc((size_t)n, sizeof *x);
    for (int i = 0; i < n; i++) x[i] = (const void *)((const char *)entries + (size_t)i * stride);
    qsort(x, (size_t)n, sizeof *x, by_name);
    for (int i = 1; i < n; i++)
        if (str_eq(*x[i - 1], *x[i]))
            return error_set(err, EXIT_MODEL, "%s: %.*s: expected it once, found it twice", file,
                             SHOWN(*x[i]));
    return true;
}

// The entry of this name, or NULL.
static const void *find(const Str *const *index, int n, const char *name) {
    Str key = str_of(name);
    const Str *const *found =
        n ? bsearch(&(const Str *){&key}, index, (size_t)n, sizeof *index, by_name) : NULL;
    return found ? *found : NULL;
}

static void *grow(void *p, int n, size_t size) { // room for one more, doubling
    return n & (n - 1) ? p : xrealloc(p, n ? 2 * (size_t)n : 1, size);
}

// Magic, version and the two counts.
static bool parse_header(Cursor *c, uint64_t *version, uint64_t *n_tensors, uint64_t *n_values) {
    const uint8_t *magic = take(c, 4, "magic");
    if (!magic) return false;
    bool is_swapped = !memcmp(magic, "FUGG", 4);
    if (!is_swapped && memcmp(magic, "GGUF", 4))
        return refuse(c, 0, "magic", "expected GGUF, found %02x %02x %02x %02x", magic[0], magic[1],
                      magic[2], magic[3]);
    if (!take_int(c, 4, "version", version)) return false;
    if (is_swapped || (*version && *version % 65536 == 0))
        return refuse(c, 4, "byte order", "expected little-endian, found big-endian");
    if (*version != 2 && *version != 3)
        return refuse(c, 4, "version", "expected 2 or 3, found %zu", (size_t)*version);
    return take_count(c, "n_tensors", MAX_ENTRIES, n_tensors) &&
           take_count(c, "n_kv", MAX_ENTRIES, n_values);
}

// What the data begins at a multiple of.
static bool read_alignment(Cursor *c, const Gguf *g, size_t *alignment) {
    const GgufValue *v = gguf_find_value(g, "general.alignment");
    *alignment = DEFAULT_ALIGNMENT;
    if (!v) return true;
    c->item = v->key;
    if (v->kind != GGUF_U32)
        return refuse(c, at_of(c, v->data), "type", "expected u32, found %s", kind_names[v->kind]);
    *alignment = load(v->data, 4);
    if (*alignment >= 8 && *alignment <= MAX_ALIGNMENT && !(*alignment & (*alignment - 1)))
        return true;
    return refuse(c, at_of(c, v->data), "value", "expected a power of two from 8 to %d, found %zu",
                  MAX_ALIGNMENT, *alignment);
}

// Parses one file (a whole model or one shard of it) and appends it to g.
static bool parse_file(Gguf *g, GgufShard file, const char *name, Error *err) {
    Cursor c = {.data = file.data, .size = file.bytes, .file = name, .err = err};
    uint64_t version = 0, n_tensors, n_values, no = 0;
    size_t n_weights = 0, alignment;
    Gguf own = {.path = name, .shards = &file}; // this file's metadata, indexed on its own
    g->shards = xrealloc(g->shards, (size_t)g->n_shards + 1, sizeof *g->shards);
    g->shards[g->n_shards++] = file;
    bool ok = parse_header(&c, &version, &n_tensors, &n_values);
    while (ok && (uint64_t)own.n_values < n_values) {
        own.values = grow(own.values, own.n_values, sizeof *own.values);
        ok = parse_value(&c, &own.values[own.n_values++]);
    }
    ok = ok &&
         build_index(&own.value_index, own.values, sizeof *own.values, own.n_values, name, err);
    ok = ok && read_alignment(&c, &own, &alignment);
    int first = g->n_tensors;
    while (ok && (uint64_t)(g->n_tensors - first) < n_tensors) {
        g->tensors = grow(g->tensors, g->n_tensors, sizeof *g->tensors);
        g->tensors[g->n_tensors].shard = g->n_shards - 1;
        ok = parse_tensor(&c, &own, &g->tensors[g->n_tensors++], alignment, &n_weights);
    }
    if (ok && g->n_tensors > first)
        ok = place_tensors(&c, g->tensors + first, g->n_tensors - first, alignment);
    if (g->n_shards == 1) {
        g->version = (uint32_t)version, g->values = own.values, g->n_values = own.n_values;
        g->value_index = own.value_index;
        return ok;
    }
    ok = ok && gguf_get_u64(&own, "split.no", &no, err);
    if (ok && no != (uint64_t)g->n_shards - 1)
        ok = error_set(err, EXIT_MODEL, "%s: split.no: expected %d, found %zu", name,
                       g->n_shards - 1, (size_t)no);
    free(own.values);
    free(own.value_index);
    return ok;
}

// Opens for reading only what is a regular file: no waiting for a FIFO, no endless device.
static bool map_file(const char *path, GgufShard *out, Error *err) {
    struct stat st;
    bool ok = false;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    *out = (GgufShard){0};
    if (fd < 0 || fstat(fd, &st) != 0) {
        error_file(err, path);
    } else if (!S_ISREG(st.st_mode)) {
        error_set(err, EXIT_RUNTIME, "%s: expected a file, found a %s", path,
                  S_ISDIR(st.st_mode) ? "directory" : "device");
    } else if (st.st_size == 0) {
        ok = true; // for the parser to refuse
    } else {
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
        ok = p != MAP_FAILED;
        // What is read into the page cache from here on comes in large pages, where the file system
        // knows them: they are mapped in a hundredth of the time, now and by every later process.
        if (ok) madvise(p, (size_t)st.st_size, MADV_HUGEPAGE);
        if (ok) file_register_input(path);
        if (ok)
            *out = (GgufShard){p, (size_t)st.st_size, true, fd, os_mtime_ns(&st)};
        else
            error_file(err, path);
    }
    if (fd >= 0 && !out->is_mapped) close(fd);
    return ok;
}

// The shards that the name "DIR/NAME-00001-of-0000N.gguf" tells of, from the second on.
static bool open_shards(Gguf *g, bool is_named, Error *err) {
    enum { TAIL = 20 }; // of "-00001-of-0000N.gguf"
    uint64_t count = 1, n_tensors = 0;
    unsigned no = 1, n = 1;
    int end = 0, stem = (int)strlen(g->path) - TAIL;
    if (!is_named || stem < 0 || sscanf(g->path + stem, "-%5u-of-%5u.gguf%n", &no, &n, &end) != 2 ||
        end != TAIL)
        no = n = 1;
    if (no != 1)
        return error_set(err, EXIT_MODEL, "%s: expected the first shard (-00001-of-...), found %u",
                         g->path, no);
    if (gguf_find_value(g, "split.count") && !gguf_get_u64(g, "split.count", &count, err))
        return false;
    if (count != n && (count > 1 || n > 1))
        return error_set(err, EXIT_MODEL,
                         "%s: split.count: expected %u as in the file's name, found %zu", g->path,
                         n, (size_t)count);
    bool ok = true;
    for (unsigned i = 2; ok && i <= n; i++) {
        Buffer path = {0};
        GgufShard file;
        buffer_printf(&path, "%.*s-%05u-of-%05u.gguf", stem, g->path, i, n);
        ok = map_file(path.data, &file, err) && parse_file(g, file, path.data, err);
        buffer_free(&path);
    }
    if (!ok || n == 1 || !gguf_find_value(g, "split.tensors.count")) return ok;
    if (!gguf_get_u64(g, "split.tensors.count", &n_tensors, err)) return false;
    return n_tensors == (uint64_t)g->n_tensors ||
           error_set(err, EXIT_MODEL,
                     "%s: split.tensors.count: expected %d as in its shards, found %zu", g->path,
                     g->n_tensors, (size_t)n_tensors);
}

// The file that these bytes are, and the other shards that its name tells of.
static bool open_bytes(Gguf *g, GgufShard file, const char *name, Error *err) {
    Str path = str_of(name);
    *g = (Gguf){.path = memcpy(xrealloc(NULL, path.len + 1, 1), name, path.len + 1)};
    bool ok = parse_file(g, file, g->path, err) && open_shards(g, file.is_mapped, err);
    ok = ok &&
         build_index(&g->tensor_index, g->tensors, sizeof *g->tensors, g->n_tensors, name, err);
    if (!ok) gguf_close(g);
    return ok;
}

bool gguf_open(Gguf *g, const char *path, Error *err) {
    GgufShard file;
    *g = (Gguf){0};
    return map_file(path, &file, err) && open_bytes(g, file, path, err);
}

bool gguf_parse(Gguf *g, const void *data, size_t n, const char *name, Error *err) {
    return open_bytes(g, (GgufShard){.data = data, .bytes = n}, name, err);
}

void gguf_close(Gguf *g) {
    for (int i = 0; i < g->n_shards; i++)
        if (g->shards[i].is_mapped) {
            munmap((void *)(uintptr_t)g->shards[i].data, g->shards[i].bytes);
            close(g->shards[i].fd);
        }
    free(g->shards);
    free(g->values);
    free(g->tensors);
    free(g->value_index);
    free(g->tensor_index);
    free((void *)(uintptr_t)g->path);
    *g = (Gguf){0};
}

const GgufValue *gguf_find_value(const Gguf *g, const char *key) {
    return find(g->value_index, g->n_values, key);
}
const GgufTensor *gguf_find_tensor(const Gguf *g, const char *name) {
    return find(g->tensor_index, g->n_tensors, name);
}

// False with err: what was expected of a key, and what it is.
static bool mismatch(const Gguf *g, const GgufValue *v, const char *key, const char *expected,
                     Error *err) {
    if (!v)
        return error_set(err, EXIT_MODEL, "%s: %s: expected %s, found no such key", g->path, key,
                         expected);
    return error_set(err, EXIT_MODEL, "%s: %s: expected %s, found %s%s", g->path, key, expected,
                     v->kind == GGUF_ARRAY ? "an array of " : "", kind_names[v->item_kind]);
}

// A number as what it is and as a float; *is_whole for an integer. False for other kinds.
static bool load_number(const GgufValue *v, uint64_t *bits, double *x, bool *is_whole) {
    if (!v || v->kind == GGUF_STRING || v->kind == GGUF_ARRAY || v->kind == GGUF_BOOL) return false;
    int size = kind_bytes[v->kind], unused = 64 - 8 * size;
    bool is_signed =
        v->kind == GGUF_I8 || v->kind == GGUF_I16 || v->kind == GGUF_I32 || v->kind == GGUF_I64;
    float f;
    *bits = load(v->data, size);
    *is_whole = v->kind != GGUF_F32 && v->kind != GGUF_F64;
    *x = is_signed ? (double)((int64_t)(*bits << unused) >> unused) : (double)*bits;
    if (v->kind == GGUF_F32) memcpy(&f, v->data, sizeof f), *x = (double)f;
    if (v->kind == GGUF_F64) memcpy(x, v->data, sizeof *x);
    return true;
}

bool gguf_get_u64(const Gguf *g, const char *key, uint64_t *out, Error *err) {
    const GgufValue *v = gguf_find_value(g, key);
    double x;
    bool is_whole;
    if (!load_number(v, out, &x, &is_whole) || !is_whole)
        return mismatch(g, v, key, "an unsigned integer", err);
    return x >= 0 || mismatch(g, v, key, "an unsigned integer (it is negative)", err);
}

bool gguf_get_f64(const Gguf *g, const char *key, double *out, Error *err) {
    const GgufValue *v = gguf_find_value(g, key);
    uint64_t bits;
    bool is_whole;
    if (!load_number(v, &bits, out, &is_whole)) return mismatch(g, v, key, "a number", err);
    bool is_exact = !is_whole || (*out <= 0x1p53 && *out >= -0x1p53);
    return is_exact || mismatch(g, v, key, "a number below 2^53", err);
}

bool gguf_get_bool(const Gguf *g, const char *key, bool *out, Error *err) {
    const GgufValue *v = gguf_find_value(g, key);
    if (!v || v->kind != GGUF_BOOL) return mismatch(g, v, key, "a bool", err);
    *out = *v->data;
    return true;
}

bool gguf_get_string(const Gguf *g, const char *key, Str *out, Error *err) {
    const GgufValue *v = gguf_find_value(g, key);
    if (!v || v->kind != GGUF_STRING) return mismatch(g, v, key, "a string", err);
    const uint8_t *cursor = v->data;
    *out = gguf_next_string(&cursor);
    return true;
}

Str gguf_get_text(const Gguf *g, const char *key) {
    Str text;
    Error ignored;
    return gguf_get_string(g, key, &text, &ignored) ? text : (Str){0};
}

// Names and numbers: llama.cpp's enum llama_ftype.
const char *gguf_file_type_name(const Gguf *g) {
    static const char *const names[] = {
        "F32",      "F16",    "Q4_0",    "Q4_1",      "Q4_1_SOME_F16", "Q4_2",     "Q4_3",
        "Q8_0",     "Q5_0",   "Q5_1",    "Q2_K",      "Q3_K_S",        "Q3_K_M",   "Q3_K_L",
        "Q4_K_S",   "Q4_K_M", "Q5_K_S",  "Q5_K_M",    "Q6_K",          "IQ2_XXS",  "IQ2_XS",
        "Q2_K_S",   "IQ3_XS", "IQ3_XXS", "IQ1_S",     "IQ4_NL",        "IQ3_S",    "IQ3_M",
        "IQ2_S",    "IQ2_M",  "IQ4_XS",  "IQ1_M",     "BF16",          "Q4_0_4_4", "Q4_0_4_8",
        "Q4_0_8_8", "TQ1_0",  "TQ2_0",   "MXFP4_MOE", "NVFP4",         "Q1_0"};
    uint64_t number;
    Error ignored;
    if (!gguf_get_u64(g, "general.file_type", &number, &ignored)) return NULL;
    return number < sizeof names / sizeof *names ? names[number] : NULL;
}

// Numbers that only ik_llama.cpp gives types.
enum { IK_FIRST = 97, IK_LAST = 399 };

const char *gguf_describe_type(const Gguf *g, uint32_t type) {
    static const char *const instead[TYPE_COUNT] = {
        [4] = "Q4_1",    [5] = "Q4_1",    [9] = "Q8_0",    [15] = "Q8_0",   [31] = "Q4_0",
        [32] = "Q4_0",   [33] = "Q4_0",   [36] = "IQ4_NL", [37] = "IQ4_NL", [38] = "IQ4_NL",
        [39] = "Q4_K_M", [40] = "Q4_K_M", [41] = "TQ2_0"};
    static char text[160];
    const char *mixture = gguf_file_type_name(g), *other = type < TYPE_COUNT ? instead[type] : NULL;
    bool is_ik = type >= IK_FIRST && type <= IK_LAST;
    char number[16];
    snprintf(number, sizeof number, "%u", type);
    snprintf(text, sizeof text, "%s%s%s%s%s%s%s",
             type_info(type) == type_info(TYPE_COUNT) ? number : type_info(type)->name,
             is_ik ? " (of ik_llama.cpp; use a mixture that llama.cpp has)" : "",
             other ? " (use " : "", other ? other : "", other ? ")" : "",
             mixture ? ", in a mixture named " : "", mixture ? mixture : "");
    return text;
}

const GgufValue *gguf_get_array(const Gguf *g, const char *key, GgufKind item_kind, Error *err) {
    const GgufValue *v = gguf_find_value(g, key);
    char expected[32];
    snprintf(expected, sizeof expected, "an array of %s", kind_names[item_kind]);
    if (v && v->kind == GGUF_ARRAY && v->item_kind == item_kind) return v;
    mismatch(g, v, key, expected, err);
    return NULL;
}

Str gguf_next_string(const uint8_t **cursor) {
    Str s = {(const char *)*cursor + 8, load(*cursor, 8)};
    *cursor += 8 + s.len;
    return s;
}

// In pieces: one madvise for all would read only the first megabytes, or let nobody else change the
// address space.
static void *advise(GgufShard *list, int advice) {
    for (GgufShard *s = list; s->bytes; s++)
        for (size_t at = 0; at < s->bytes; at += PREFETCH_BYTES) {
            size_t n = s->bytes - at < PREFETCH_BYTES ? s->bytes - at : PREFETCH_BYTES;
            void *piece = (void *)(uintptr_t)(s->data + at);
            if (madvise(piece, n, advice)) madvise(piece, n, MADV_WILLNEED); // Linux before 5.14
        }
    free(list);
    return NULL;
}

static void *read_ahead(void *list) { return advise(list, MADV_WILLNEED); }
static void *map_ahead(void *list) { return advise(list, MADV_POPULATE_READ); }

void gguf_prefetch(const Gguf *g, bool is_mapped) {
    size_t bytes = 0, memory = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    GgufShard *list =
        xalloc((size_t)g->n_shards + 1, sizeof *list); // of its own: g may be closed meanwhile
    pthread_t thread;
    for (int i = 0, n = 0; i < g->n_shards; i++) {
        if (g->shards[i].is_mapped) list[n++] = g->shards[i];
        bytes += g->shards[i].bytes;
    }
    // What does not fit would push out what is needed first.
    if (bytes > memory / 4 * 3 ||
        pthread_create(&thread, NULL, is_mapped ? map_ahead : read_ahead, list))
        free(list);
    else
        pthread_detach(thread);
}

bool gguf_is_intact(const Gguf *g, Error *err) {
    for (int i = 0; i < g->n_shards; i++) {
        const GgufShard *s = &g->shards[i];
        struct stat st;
        if (!s->is_mapped) continue;
        if (fstat(s->fd, &st) || (uint64_t)st.st_size != s->bytes ||
            os_mtime_ns(&st) != s->changed_ns)
            return error_set(err, EXIT_RUNTIME, "%s: the model file changed while in use", g->path);
    }
    return true;
}

// Only what a signal handler may do.
static void on_bus_error(int sig) {
    static const char text[] = "llama31: model file changed while in use\n";
    (void)sig;
    files_cleanup();
    ssize_t n = write(STDERR_FILENO, text, sizeof text - 1);
    (void)n;
    _exit(EXIT_RUNTIME);
}

void gguf_guard_install(void) {
    sigaction(SIGBUS, &(struct sigaction){.sa_handler = on_bus_error}, NULL);
}
