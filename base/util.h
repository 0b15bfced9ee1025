// Small things every module needs: errors, checked sizes, memory, strings, time.
#ifndef BASE_UTIL_H
#define BASE_UTIL_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Exit codes of the program; part of its contract (see README.md).
enum {
    EXIT_OK = 0,
    EXIT_RUNTIME = 1,      // I/O, memory, NaN
    EXIT_USAGE = 2,        // the command line is wrong
    EXIT_MODEL = 3,        // the model file is wrong
    EXIT_CONTEXT = 4,      // the prompt does not fit the context
    EXIT_RECORDS = 5,      // some batch records failed
    EXIT_INTERRUPTED = 130 // SIGINT
};

#if defined(__GNUC__)
#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define PRINTF_LIKE(fmt, args)
#endif

// What went wrong, for the caller to print or to put into a record. `code` is an exit code.
typedef struct {
    int code;
    char text[512];
} Error;

// Fills `err` and returns false, so that a function can `return error_set(...)`. Control bytes are
// escaped. Nothing here asks for memory: it may be what is short.
bool error_set(Error *err, int code, const char *fmt, ...) PRINTF_LIKE(3, 4);

// The same (exit 1) with a file's name and what errno says.
bool error_file(Error *err, const char *path);

// Prints "llama31: TEXT" as one line on stderr with control bytes escaped; die ends the program
// with `code`.
_Noreturn void die(int code, const char *fmt, ...) PRINTF_LIKE(2, 3);
void warn(const char *fmt, ...) PRINTF_LIKE(1, 2);
// Ends the program with what `err` says; with a file's name and what errno says (exit 1).
_Noreturn void die_error(const Error *err);
_Noreturn void die_file(const char *path);

// a * b and a + b; false when the result does not fit. Every size that comes from outside passes
// through these.
bool size_mul(size_t a, size_t b, size_t *out);
bool size_add(size_t a, size_t b, size_t *out);

// n * size bytes, zeroed, aligned to 64. Ends the program (exit 1) when memory is short. Free with
// free().
void *xalloc(size_t n, size_t size);
// Grows a plain array to n * size bytes, keeping what it holds; new bytes are not zeroed. Not for
// xalloc memory whose alignment matters.
void *xrealloc(void *p, size_t n, size_t size);

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

// Length of the UTF-8 character at s (1..4) or 0 if the bytes are not valid UTF-8; *code is the
// code point.
int utf8_decode(const char *s, size_t n, uint32_t *code);
int utf8_encode(uint32_t code, char out[4]);
// How many of the n bytes can be shown now: all but a trailing sequence that may still become a
// valid character.
size_t utf8_complete(const char *s, size_t n);

// Seconds of a clock that only goes forward.
double now_sec(void);

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
