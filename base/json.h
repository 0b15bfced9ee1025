// JSON (RFC 8259): a strict reader for untrusted lines and an escaping writer.
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include "util.h"

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

// Appends `before` as it is, then a quoted JSON string. Bytes that are not valid UTF-8 become
// U+FFFD; control characters are escaped.
void json_put_string(Buffer *out, const char *before, Str s);
// Appends a value as it was read, without white space. special: may write a value in another way;
// true if it has.
void json_put_value(Buffer *out, const Json *v, bool (*special)(Buffer *out, const Json *v));
// Appends `before`, then the shortest decimal that reads back as the same double; null if not
// finite.
void json_put_number(Buffer *out, const char *before, double x);

#endif
