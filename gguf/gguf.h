// Reader for GGUF model files: versions 2 and 3, little-endian, one file or several shards.
//
// gguf_open() maps the file and validates its header completely: afterwards every count, length,
// type and offset is known to be inside the file, so that the rest of the program reads metadata
// and tensors without bounds checks. Nothing is copied; strings and tensor data point into the
// mapping.
//
//   "GGUF"  u32 version  u64 n_tensors  u64 n_values
//   n_values  x { string key;  u32 kind;  value }
//   n_tensors x { string name; u32 n_dims; u64 dims[n_dims]; u32 type; u64 offset }
//   padding to a multiple of general.alignment (32 unless that key says otherwise)
//   tensor data; the offsets count from here
//
// A string is a u64 length and its bytes. An array value is u32 item kind, u64 count, items.
#pragma once

#include "base/mapping.h"
#include "base/text.h"
#include "base/type.h"

// Kinds of metadata values, numbered as in the file.
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
    GgufKind kind;
    GgufKind item_kind;  // arrays: kind of the items (never GGUF_ARRAY); other values: kind
    uint64_t count;      // arrays: number of items; other values: 1
    const uint8_t *data; // the first item as stored: little-endian, unaligned
    size_t bytes;        // of all items
} GgufValue;

typedef struct {
    Str name;
    uint32_t type;    // Type, or another number that type_info() has a size for
    int n_dims;       // 1 to 4
    uint64_t dims[4]; // row length first; 1 beyond n_dims
    const void *data; // (dims[3], dims[2], dims[1], dims[0]) weights, inside the mapping
    size_t bytes;
    int shard; // index of its file in Gguf.shards
} GgufTensor;

typedef struct {
    const char *path; // as given, for messages; owned
    uint32_t version;
    int n_values, n_tensors, n_shards;
    GgufValue *values;                       // (n_values) of the first shard, in file order
    GgufTensor *tensors;                     // (n_tensors) of all shards, in file order
    FileMapping *shards;                     // (n_shards)
    const Str **value_index, **tensor_index; // pointers to the entries' names, sorted by name
} Gguf;

// Number of shards in the name of a file, "NAME-00001-of-0000N.gguf"; 1 for any other name.
unsigned gguf_n_shards(const char *path);
// Appends the name of shard `no` of the n shards that a file belongs to.
void gguf_put_shard_path(Buffer *out, const char *path, unsigned no, unsigned n);
// Opens a file; FILE-00001-of-0000N.gguf also opens its other shards. Tensor data is not read.
// False with err: exit code 1 if a file cannot be read, 3 if its content is invalid.
bool gguf_open(Gguf *g, const char *path, Error *err);
// Reads one file from memory (the built-in model, tests), which must outlive g. `name` is for
// messages.
bool gguf_parse(Gguf *g, const void *data, size_t n, const char *name, Error *err);
void gguf_close(Gguf *g);
// Sets the error "FILE: ..." with exit code 3, and returns false.
bool gguf_refuse(const Gguf *g, Error *err, const char *fmt, ...) PRINTF_LIKE(3, 4);

const GgufValue *gguf_find_value(const Gguf *g, const char *key);    // NULL if absent
const GgufTensor *gguf_find_tensor(const Gguf *g, const char *name); // NULL if absent
uint64_t gguf_n_rows(const GgufTensor *t);                           // of dims[0] weights each
int gguf_tensor_layer(Str name); // N of a tensor "blk.N...."; -1 if the name is another

// Typed access. False with err (exit code 3) if the key is absent or its value cannot be converted
// without loss. gguf_get_u64 accepts integers of any width, gguf_get_f64 any number, and both an
// array of equal numbers (converters write some numbers once per layer). Bools are optional: *out
// keeps its value if the key is absent.
bool gguf_get_u64(const Gguf *g, const char *key, uint64_t *out, Error *err);
bool gguf_get_f64(const Gguf *g, const char *key, double *out, Error *err);
bool gguf_get_bool(const Gguf *g, const char *key, bool *out, Error *err);
bool gguf_get_string(const Gguf *g, const char *key, Str *out, Error *err);
// An array with items of this kind, or NULL with err.
const GgufValue *gguf_get_array(const Gguf *g, const char *key, GgufKind item_kind, Error *err);
// The string value of a key, or an empty string if there is none.
Str gguf_get_text(const Gguf *g, const char *key);
// Returns the string at *cursor and advances it. Start with an array's data.
Str gguf_next_string(const uint8_t **cursor);

// llama.cpp's name of the file type in the metadata, such as "Q4_K_M", or NULL.
const char *gguf_file_type(const Gguf *g);
// The name of a file type by its number, or NULL. (gguf/names.c)
const char *gguf_file_type_name(uint64_t number);
// Describes an unsupported tensor type for messages: its name, a type to use instead, and file_type
// unless it is NULL. Static buffer. (gguf/names.c)
const char *gguf_describe_type(uint32_t type, const char *file_type);
// Describes a file of n >= 4 bytes that is not GGUF: its format and what to do, or its first bytes.
// Static buffer. (gguf/names.c)
const char *gguf_describe_magic(const uint8_t *data, size_t n);
