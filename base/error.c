// Messages are formatted on the stack, so that "out of memory" can be reported.
#include "base/error.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MESSAGE_BYTES = 1024 };

// Formats and escapes a message of at most cap - 1 bytes. Returns its length.
static size_t format_message(char *out, size_t cap, const char *fmt, va_list ap) {
    char text[MESSAGE_BYTES], escaped[17];
    int n = vsnprintf(text, sizeof text, fmt, ap);
    size_t len = n < 0 ? 0 : (size_t)n, at = 0;
    if (len >= sizeof text) len = utf8_complete(text, sizeof text - 1);
    for (size_t i = 0; i < len;) {
        i += utf8_escape(text + i, len - i, "", escaped);
        size_t n_escaped = strlen(escaped);
        if (at + n_escaped >= cap) break;
        memcpy(out + at, escaped, n_escaped);
        at += n_escaped;
    }
    out[at] = 0;
    return at;
}

bool error_set(Error *err, int code, const char *fmt, ...) {
    Error new_error = {.code = code}; // not *err: an argument may point into it
    va_list ap;
    va_start(ap, fmt);
    format_message(new_error.text, sizeof new_error.text, fmt, ap);
    va_end(ap);
    *err = new_error;
    return false;
}

// Flushes stdout first, so that the order of both streams is kept on a terminal. A single write()
// keeps the line in one piece when several processes share stderr.
static void print_line(const char *prefix, const char *fmt, va_list ap) {
    char line[2 * MESSAGE_BYTES];
    size_t n = (size_t)snprintf(line, sizeof line, "llama31: %s", prefix);
    n += format_message(line + n, sizeof line - n - 1, fmt, ap);
    line[n++] = '\n';
    fflush(stdout);
    ssize_t written = write(STDERR_FILENO, line, n);
    (void)written;
}

void die(int code, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    print_line("", fmt, ap);
    va_end(ap);
    exit(code);
}

void warn(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    print_line("warning: ", fmt, ap);
    va_end(ap);
}

bool error_file(Error *err, const char *path) {
    return error_set(err, EXIT_RUNTIME, "%s: %s", path, strerror(errno));
}

void die_error(const Error *err) { die(err->code, "%s", err->text); }
void die_file(const char *path) { die(EXIT_RUNTIME, "%s: %s", path, strerror(errno)); }
