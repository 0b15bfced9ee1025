// JSON (RFC 8259): a strict parser for untrusted text, and a writer.
//
// json_parse() builds a tree of Json nodes in one block of memory; json_get() finds members. A
// JsonWriter appends compact JSON to a buffer.
#pragma once

#include "base/text.h"

typedef enum { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT } JsonKind;

typedef struct Json {
    JsonKind kind;
    bool boolean;
    double number;
    Str string; // of a string: decoded UTF-8, may contain NUL; of a number: as written
    Str key;    // if the parent is an object
    const struct Json *child; // first item of an array or object
    const struct Json *next;  // next item of the parent
    int n_items;
} Json;

// A parsed text. Zero-initialize; parsing again reuses the memory and invalidates the old nodes.
typedef struct {
    const Json *root;
    void *arena; // (cap) bytes: all nodes and strings
    size_t cap;
    bool replaces_surrogates; // lone ones become U+FFFD; otherwise they are errors
    int n_replaced;           // of them, in all texts so far
    bool keeps_last;          // of equal keys; otherwise they are errors
} JsonDoc;

// Parses n bytes, which must be one JSON value and white space. Strict: no comments, trailing
// commas, NaN, lone surrogates, invalid UTF-8 or duplicate keys; at most 64 levels. False with err
// (byte offset and reason; EXIT_RUNTIME).
bool json_parse(JsonDoc *doc, const char *text, size_t n, Error *err);
void json_free(JsonDoc *doc);
// Length in bytes of the string, object or array at the beginning of a text, found by matching
// quotes and brackets; 0 if it is incomplete.
size_t json_span(Str text);
// A member of an object; NULL if there is none or obj is not an object (or NULL).
const Json *json_get(const Json *obj, const char *key);
// A member that is not null, or NULL.
const Json *json_get_value(const Json *obj, const char *key);
// A member that is a string, or NULL.
const Json *json_get_string(const Json *obj, const char *key);
// True if j is a string equal to text. False for NULL.
bool json_is(const Json *j, const char *text);

// The items (n, at least one) of a list "A,B,..." or, for texts with commas, of a JSON array of
// strings. The caller frees the list, then `doc`. NULL with err (exit 2) and an empty `doc` if an
// item is empty or not a string.
Str *json_list(JsonDoc *doc, const char *text, int *n, Error *err);

// Appends JSON without white space to a buffer: `JsonWriter w = {&buffer};`, or json_object() to
// begin with an object, then one call per value. The writer adds commas, so that a function can add
// members to an object that its caller opened. `key` names a member of an object. It is NULL for
// array items, for the outermost value and after json_write_key().
typedef struct {
    Buffer *out;
    bool needs_comma; // the innermost open object or array has a value already
} JsonWriter;

JsonWriter json_object(Buffer *out);
void json_begin_object(JsonWriter *w, const char *key);
void json_end_object(JsonWriter *w);
void json_begin_array(JsonWriter *w, const char *key);
void json_end_array(JsonWriter *w);
// The key of the next value, where it is not a C string.
void json_write_key(JsonWriter *w, Str key);
void json_write_null(JsonWriter *w, const char *key);
void json_write_bool(JsonWriter *w, const char *key, bool value);
void json_write_int(JsonWriter *w, const char *key, int64_t value);
// See buffer_put_double(); null if x is not finite.
void json_write_number(JsonWriter *w, const char *key, double x);
void json_write_string(JsonWriter *w, const char *key, Str s);
// Formatted text, which must be one JSON value: a number of fixed precision, or existing JSON.
void json_write_format(JsonWriter *w, const char *key, const char *fmt, ...) PRINTF_LIKE(3, 4);
// A parsed value. `special`, unless NULL, is called first for the value and for each value inside
// it. If it returns true, it has written that value itself.
void json_write_value(JsonWriter *w, const char *key, const Json *v,
                      bool (*special)(Buffer *out, const Json *v));
// Appends a quoted string. Control characters are escaped; invalid UTF-8 becomes U+FFFD, so that
// the output is always valid JSON.
void json_quote(Buffer *out, Str s);
