// Text is written to the descriptor as soon as it is there; what stdio still holds goes first.
#include "output.h"
#include "../base/files.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

static const char STDOUT_NAME[] = "standard output";

static bool has_progress; // a line of it is on the screen

bool terminal_has_escapes(int fd) {
    const char *term = getenv("TERM");
    return isatty(fd) && !(term && !strcmp(term, "dumb"));
}

// By no-color.org: the variable counts unless it is empty.
static bool has_color(int fd) {
    const char *without = getenv("NO_COLOR");
    return terminal_has_escapes(fd) && !(without && *without);
}

int terminal_columns(int fd) {
    struct winsize size = {0};
    return ioctl(fd, TIOCGWINSZ, &size) || !size.ws_col ? 80 : size.ws_col;
}

const char *count_of(int n, const char *noun) {
    static char text[40];
    snprintf(text, sizeof text, "%d %s%s", n, noun, n == 1 ? "" : "s");
    return text;
}

void progress_print(const Options *o, const char *fmt, ...) {
    va_list ap;
    if (o->is_quiet || !terminal_has_escapes(STDERR_FILENO)) return;
    fputs("\r", stderr);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputs("\x1b[K", stderr);
    has_progress = true;
}

void progress_end(void) {
    if (has_progress) fputs("\r\x1b[K", stderr);
    has_progress = false;
}

void progress_prefill(const Options *o, uint64_t n_done, uint64_t n, double start_sec) {
    enum { SHORT = 32 }; // tokens: read in a second or two by a large model
    double sec = now_sec() - start_sec;
    unsigned long long done = n_done, all = n;
    if (!n && n_done)
        progress_print(o, "read %llu tokens, %.0f a second", done,
                       sec > 0 ? (double)done / sec : 0);
    else if (n > SHORT && !n_done)
        progress_print(o, "reading %llu tokens", all);
    else if (n > SHORT)
        progress_print(o, "reading %llu of %llu tokens, %.0f s left", done, all,
                       sec / (double)done * (double)(n - n_done));
}

void note(const Options *o, const char *fmt, ...) {
    Buffer text = {0}, shown = {0};
    va_list ap;
    bool is_dim = has_color(STDERR_FILENO);
    if (o && o->is_quiet) return;
    progress_end();
    va_start(ap, fmt);
    buffer_vprintf(&text, fmt, ap);
    va_end(ap);
    buffer_put_shown(&shown, buffer_str(&text), "\n\t");
    fprintf(stderr, "%s%s%s\n", is_dim ? "\x1b[2m" : "", shown.data, is_dim ? "\x1b[0m" : "");
    buffer_free(&text);
    buffer_free(&shown);
}

void text_dim(bool is_dim) {
    if (!has_color(STDOUT_FILENO)) return;
    stdout_flush();
    output_write(STDOUT_FILENO, "standard output", is_dim ? "\x1b[2m" : "\x1b[0m", 4);
}

const char *printable(Str s) {
    static Buffer text;
    text.len = 0;
    buffer_put_shown(&text, s, "");
    return text.data;
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
    progress_end();
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

// Columns that a character takes.
static int char_columns(const char *s, size_t n, int *len) {
    uint32_t code;
    *len = utf8_decode(s, n, &code);
    int width = *len == 0 ? 1 : code < 0x7f ? 1 : wcwidth((wchar_t)code);
    if (*len == 0) *len = 1;
    return width < 0 ? 1 : width;
}

// What text_wrap knows of the line: its word is not yet written.
static struct {
    Buffer word;
    int column, word_columns, columns;
} line;

static void put_word(void) {
    text_write(line.word.data, line.word.len);
    line.column += line.word_columns;
    line.word.len = 0, line.word_columns = 0;
}

static void put_break(void) {
    text_write("\n", 1);
    line.column = 0;
}

// White space, written behind the word before it; at the end of a line it becomes the break.
static void wrap_space(char c) {
    put_word();
    if (c == '\n' || line.column + 1 >= line.columns) {
        put_break();
        line.columns = terminal_columns(STDOUT_FILENO);
    } else {
        text_write(&c, 1);
        line.column += c == '\t' ? 8 - line.column % 8 : 1;
    }
}

// A character of a word. A line may also end beside a wide one, as Chinese and Japanese are
// written, and in a word that is longer than a line.
static void wrap_char(const char *s, int n, int width) {
    if (width > 1) put_word();
    if (line.column && line.column + line.word_columns + width > line.columns) put_break();
    buffer_append(&line.word, s, (size_t)n);
    line.word_columns += width;
    if (width > 1 || line.word_columns >= line.columns) put_word();
}

void text_wrap(const char *text, size_t n) {
    if (!isatty(STDOUT_FILENO)) {
        if (text) text_write(text, n);
        return;
    }
    if (!line.columns) line.columns = terminal_columns(STDOUT_FILENO);
    for (size_t i = 0; text && i < n;) {
        int len, width = char_columns(text + i, n - i, &len);
        if (text[i] == ' ' || text[i] == '\n' || text[i] == '\t')
            wrap_space(text[i]);
        else
            wrap_char(text + i, len, width);
        i += (size_t)len;
    }
    if (text) return;
    put_word();
    line.column = line.columns = 0;
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
