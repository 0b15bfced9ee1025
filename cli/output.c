#include "output.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char STDOUT_NAME[] = "standard output";

void note(const Options *o, const char *fmt, ...) {
    Buffer text = {0}, shown = {0};
    va_list ap;
    bool is_dim = isatty(STDERR_FILENO) && !getenv("NO_COLOR");
    if (o && o->is_quiet) return;
    va_start(ap, fmt);
    buffer_vprintf(&text, fmt, ap);
    va_end(ap);
    buffer_put_shown(&shown, buffer_str(&text), "\n\t");
    fprintf(stderr, "%s%s%s\n", is_dim ? "\x1b[2m" : "", shown.data, is_dim ? "\x1b[0m" : "");
    buffer_free(&text);
    buffer_free(&shown);
}

static void write_failed(const char *path) {
    if (errno == EPIPE) exit(EXIT_OK); // the reader has had enough
    die_file(path);
}

void output_write(int fd, const char *path, const void *data, size_t n) {
    if (!write_all(fd, data, n)) write_failed(path);
}

void stdout_flush(void) {
    if (fflush(stdout) || ferror(stdout)) write_failed(STDOUT_NAME);
}

void text_write(const char *text, size_t n) {
    if (fflush(stdout)) stdout_flush();
    if (!isatty(STDOUT_FILENO)) {
        output_write(STDOUT_FILENO, STDOUT_NAME, text, n);
        return;
    }
    Buffer shown = {0};
    buffer_put_shown(&shown, (Str){text, n}, "\n\t");
    output_write(STDOUT_FILENO, STDOUT_NAME, shown.data, shown.len);
    buffer_free(&shown);
}

void text_print(Buffer *text) {
    text_write(text->data, text->len);
    buffer_free(text);
}

bool text_emit(void *arg, const char *text, size_t n) {
    (void)arg;
    text_write(text, n);
    return true;
}
