// Text: strings with a length, growing buffers, numbers as text.
#pragma once

#include "base/memory.h"
#include "base/utf8.h"

#include <stdarg.h>

// A string that does not own its bytes. It may contain NUL bytes and is not NUL-terminated.
typedef struct {
    const char *data;
    size_t len;
} Str;

Str str_of(const char *c_string);
Str str_copy(Str s);                                       // NUL-terminated; free its data
char *text_format(const char *fmt, ...) PRINTF_LIKE(1, 2); // free it
bool str_eq(Str a, Str b);
bool str_is(Str a, const char *c_string);
bool str_is_one_of(Str s, const char *words); // `words` are separated by a space
int str_compare(Str a, Str b);                // bytewise, like strcmp
size_t str_find(Str text, Str part);          // offset of the first occurrence, or SIZE_MAX
bool str_contains(Str text, const char *part);
bool str_has_prefix(Str s, Str prefix);
bool str_begins_with(Str s, const char *start);
bool str_ends_with(Str s, const char *end);
// True if s begins with `start` or `start` begins with s. NUL bytes at the end of s, which a power
// failure leaves, do not count.
bool str_may_begin_with(Str s, const char *start);
bool str_is_blank(Str s); // white space only
Str str_skip_bom(Str s);  // without a leading UTF-8 byte order mark
// Reads the next byte of a text and returns whether it is inside a Markdown code block: lines
// between two that begin with ```. *state is 0 before the first byte.
bool fence_read(int *state, char c);
// The arguments of "%.*s" for a message, cut to 60 bytes.
#define SHOWN(s) (s).len < 60 ? (int)(s).len : 60, (s).data

// A growing byte array. Zero-initialize; after the first append, data is NUL-terminated.
typedef struct {
    char *data;
    size_t len, cap;
} Buffer;

// Returns space for n more bytes after the content. The caller fills it and increases len.
char *buffer_reserve(Buffer *b, size_t n);
void buffer_append(Buffer *b, const void *data, size_t n);
void buffer_put(Buffer *b, Str s);
void buffer_puts(Buffer *b, const char *c_string);
void buffer_printf(Buffer *b, const char *fmt, ...) PRINTF_LIKE(2, 3);
void buffer_vprintf(Buffer *b, const char *fmt, va_list ap);
// The shortest decimal that reads back as the same double; integers below 2^53 without exponent.
void buffer_put_double(Buffer *b, double x);
// Text that is safe to display, see utf8_escape().
void buffer_put_escaped(Buffer *b, Str s, const char *keep);
Str buffer_str(const Buffer *b); // the content; invalid once the buffer grows
void buffer_free(Buffer *b);

int hex_digit(int c); // 0 to 15, or -1
// Strict parsing: the whole string must be a decimal number in range; no NaN, no infinity.
bool parse_i64(const char *s, int64_t *out);
bool parse_f64(const char *s, double *out);
// Significant digits (1 to 17) of the shortest decimal that reads back as the finite double x. This
// is the precision for "%.*g"; the precision for "%.*e" is one less.
int double_digits(double x);

// "; did you mean NAME" for the name nearest to `word`, or "" if none is near. `names` points to
// the first of n pointers to names, `stride` bytes apart. Static buffer.
const char *did_you_mean(const char *word, const void *names, size_t stride, int n);
