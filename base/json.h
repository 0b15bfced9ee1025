// JSON (RFC 8259): a strict reader for untrusted lines and an escaping writer.
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include "text.h"

typedef enum { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT } JsonKind;

typedef struct Json Json;
struct Json {
    JsonKind kind;
    bool boolean;
    double number;
    Str string;        // decoded UTF-8, which may hold NUL bytes; of a number, as it was written
    Str key;           // name of this member, if its parent is an object
    const Json *child; // first item of an array or object
    const Json *next;  // next item of the parent
    int n_items;
};

// A parsed text and the memory it lives in. Zero-initialise; json_free, or parse again (memory is
// reused).
typedef struct {
    const Json *root;
    void *arena; // (cap) bytes
    size_t cap;
} JsonDoc;

// Parses one JSON value that must fill all n bytes (white space aside). Strict: no comments, no
// trailing commas, no NaN, no lone surrogates, valid UTF-8 only, no duplicate keys in an object, at
// most 64 levels deep. False with err (byte offset and reason; err->code is EXIT_RUNTIME).
bool json_parse(JsonDoc *doc, const char *text, size_t n, Error *err);
void json_free(JsonDoc *doc);
// Member of an object, or NULL (also when obj is NULL or no object).
const Json *json_get(const Json *obj, const char *key);
// The same, or NULL if it is no string.
const Json *json_get_string(const Json *obj, const char *key);
// Whether j is this string; NULL is none.
bool json_is(const Json *j, const char *text);

// Writes JSON without white space into a buffer: `JsonWriter w = {&buffer};`, then one call per
// value. Commas are added where they belong, so a function can add members to an object that its
// caller opened. `key` names a member of an object; it is NULL for array items, the outermost value
// and after json_write_key.
typedef struct {
    Buffer *out;
    bool needs_comma; // the innermost open object or array has a value already
} JsonWriter;

void json_begin_object(JsonWriter *w, const char *key);
void json_end_object(JsonWriter *w);
void json_begin_array(JsonWriter *w, const char *key);
void json_end_array(JsonWriter *w);
// A key that is not a C string; the next value belongs to it.
void json_write_key(JsonWriter *w, Str key);
void json_write_null(JsonWriter *w, const char *key);
void json_write_bool(JsonWriter *w, const char *key, bool value);
void json_write_int(JsonWriter *w, const char *key, int64_t value);
// buffer_put_double, or null if x is not finite.
void json_write_number(JsonWriter *w, const char *key, double x);
void json_write_string(JsonWriter *w, const char *key, Str s);
// Formatted text, which must be one JSON value: a number of fixed precision, or JSON made before.
void json_write_format(JsonWriter *w, const char *key, const char *fmt, ...) PRINTF_LIKE(3, 4);
// A parsed value. `special` (or NULL) may write a value differently, as one JSON value; it then
// returns true.
void json_write_value(JsonWriter *w, const char *key, const Json *v,
                      bool (*special)(Buffer *out, const Json *v));
// Appends a quoted JSON string. Bytes that are not valid UTF-8 become U+FFFD; control characters
// are escaped.
void json_quote(Buffer *out, Str s);

// To be replaced by JsonWriter: append `before`, then the value.
void json_put_string(Buffer *out, const char *before, Str s);
void json_put_number(Buffer *out, const char *before, double x);
void json_put_value(Buffer *out, const Json *v, bool (*special)(Buffer *out, const Json *v));

#endif
