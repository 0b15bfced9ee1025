// Text: strings with a length, growing buffers, UTF-8, numbers as text.
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include "memory.h"
#include "utf8.h"

#include <stdarg.h>

// A run of bytes that somebody else owns; not terminated.
typedef struct {
    const char *data;
    size_t len;
} Str;

Str str_of(const char *c_string);
Str str_copy(Str s); // terminated; free its data
bool str_eq(Str a, Str b);
bool str_is(Str a, const char *c_string);
int str_compare(Str a, Str b); // by bytes, as strcmp
// Substring test for text that may hold NUL bytes.
bool str_contains(Str hay, const char *needle);
size_t str_find(Str hay, Str part); // offset of the first, SIZE_MAX if there is none
bool str_begins_with(Str s, const char *begin);
bool str_ends_with(Str s, const char *end);
// Whether s begins with `start`, or is a beginning of it.
bool str_may_begin_with(Str s, const char *start);
// Without the byte order mark that some editors put in front of a text.
Str str_skip_bom(Str text);
// Whether there is only white space.
bool str_is_blank(Str s);
// A Str as the arguments of "%.*s", long ones cut: messages quote what they found.
#define SHOWN(s) (s).len < 60 ? (int)(s).len : 60, (s).data

// Bytes that grow. Zero-initialise; data is always NUL-terminated after the first append.
typedef struct {
    char *data;
    size_t len, cap;
} Buffer;

// Room for n bytes more, and where they go: whoever fills it adds to len.
char *buffer_reserve(Buffer *b, size_t n);
void buffer_append(Buffer *b, const void *data, size_t n);
void buffer_put(Buffer *b, Str s);
void buffer_puts(Buffer *b, const char *c_string);
void buffer_printf(Buffer *b, const char *fmt, ...) PRINTF_LIKE(2, 3);
void buffer_vprintf(Buffer *b, const char *fmt, va_list ap);
// Appends the shortest decimal that reads back as the same double; integers below 2^53 have no
// exponent.
void buffer_put_double(Buffer *b, double x);
// Appends text that may be shown: control bytes but those in `keep`, what turns the direction of
// text, and what is no UTF-8 become \xNN.
void buffer_put_escaped(Buffer *b, Str s, const char *keep);
Str buffer_str(const Buffer *b); // all of it, valid until it grows
void buffer_free(Buffer *b);

// 0 to 15 for a hexadecimal digit in any case, -1 for all else.
int hex_digit(int c);
// Strict decimal parsing of a whole string; false on anything else or out of range.
bool parse_i64(const char *s, int64_t *out);
bool parse_f64(const char *s, double *out);
// Significant decimal digits (1 to 17) of the shortest "%.*e" that reads back as the same double; x
// is finite. One digit less is the precision of "%.*e", all of them that of "%.*g".
int double_digits(double x);

// "; did you mean NAME" for the name that looks most like `word` (Damerau-Levenshtein), or "" if
// none is near. `names` is the first of n pointers to names, one every `stride` bytes. In static
// memory.
const char *did_you_mean(const char *word, const void *names, size_t stride, int n);

#endif
