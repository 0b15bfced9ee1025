// GGUF files (v2 and v3, little-endian, sharded or not): metadata and tensor table over a read-only
// mapping.
#ifndef GGUF_H
#define GGUF_H

#include "base/type.h"
#include "base/text.h"

typedef enum {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64
} GgufKind;

typedef struct {
    Str key;
    GgufKind kind; // GGUF_ARRAY: see item_kind, count
    GgufKind
        item_kind;  // kind of the items of an array (never GGUF_ARRAY: nested arrays are refused)
    uint64_t count; // items of an array, else 1
    const uint8_t *data; // first item, unaligned, little-endian; strings are u64 length + bytes,
                         // one after another
    size_t bytes;        // of data
} GgufValue;

typedef struct {
    Str name;
    uint32_t type;    // Type, or a number that type_info knows
    int n_dims;       // 1..4
    uint64_t dims[4]; // dims[0] is the row length (GGUF order); unused ones are 1
    const void *data; // inside the mapping
    size_t bytes;
    int shard; // which file it lies in
} GgufTensor;

typedef struct {
    const uint8_t *data;
    size_t bytes;
    bool is_mapped;
    int fd; // if it is: still open, to see whether the file has changed
    int64_t changed_ns;
} GgufShard;

typedef struct {
    const char *path; // as given, for messages; owned
    uint32_t version;
    int n_values, n_tensors, n_shards;
    GgufValue *values;   // of the first shard, in file order
    GgufTensor *tensors; // of all shards, in file order
    GgufShard *shards;
    const Str **value_index, **tensor_index; // by name
} Gguf;

// Maps a file and checks every byte of its header: all counts, lengths, types, offsets and tensor
// extents are inside the file afterwards. A name ending in -00001-of-0000N.gguf brings its other
// shards. Tensor data is not read. False with err: exit 1 if the file cannot be read, 3 if its
// content is wrong.
bool gguf_open(Gguf *g, const char *path, Error *err);
// The same over bytes in memory (the built-in model, tests); `name` is for messages, the bytes must
// outlive g.
bool gguf_parse(Gguf *g, const void *data, size_t n, const char *name, Error *err);
void gguf_close(Gguf *g);

const GgufValue *gguf_find_value(const Gguf *g, const char *key);    // NULL if absent
const GgufTensor *gguf_find_tensor(const Gguf *g, const char *name); // NULL if absent

// Typed access. Each returns false with err (exit 3: key, expected, found) if the key is absent or
// not convertible without loss; integers of any width serve gguf_get_u64, floats and integers serve
// gguf_get_f64.
bool gguf_get_u64(const Gguf *g, const char *key, uint64_t *out, Error *err);
bool gguf_get_f64(const Gguf *g, const char *key, double *out, Error *err);
bool gguf_get_bool(const Gguf *g, const char *key, bool *out, Error *err);
bool gguf_get_string(const Gguf *g, const char *key, Str *out, Error *err);
// A string, or an empty one where there is none.
Str gguf_get_text(const Gguf *g, const char *key);
// An array whose items are of the given kind; any other is an error.
const GgufValue *gguf_get_array(const Gguf *g, const char *key, GgufKind item_kind, Error *err);

// The name of the mixture of types that a file is (general.file_type, as llama.cpp numbers them),
// or NULL.
const char *gguf_file_type_name(const Gguf *g);
// For a message on a type that cannot be computed with: its name or number, what to use instead and
// the file's mixture. In memory that the next call takes.
const char *gguf_describe_type(const Gguf *g, uint32_t type);

// Iterates over the strings of a string array; start with *cursor = v->data. Bounds were checked at
// open.
Str gguf_next_string(const uint8_t **cursor);

// Has the file read in its order, in the background; nothing if memory is too small for it.
// `is_mapped` has the pages mapped too: the threads that compute would otherwise fault on each.
void gguf_prefetch(const Gguf *g, bool is_mapped);

// Whether the mapped files are as they were when they were opened. What was read of others is not
// to be believed.
bool gguf_is_intact(const Gguf *g, Error *err);
// A mapped file that is cut short by somebody else raises SIGBUS: say so in one line and end with
// exit 1.
void gguf_guard_install(void);

#endif
