// Text goes straight to the descriptor, so that it appears immediately; stdio's buffer is flushed
// first to keep the order. stderr is unbuffered.
#include "output.h"
#include "../base/clock.h"
#include "../base/files.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

static const char STDOUT_NAME[] = "standard output";

static bool has_progress; // a progress line is on the screen

bool terminal_has_escapes(int fd) {
    const char *term = getenv("TERM");
    return isatty(fd) && !(term && !strcmp(term, "dumb"));
}

bool terminal_has_color(int fd) {
    const char *no_color = getenv("NO_COLOR");
    return terminal_has_escapes(fd) && !(no_color && *no_color);
}

const char *count_of(int n, const char *noun) {
    static char text[40];
    snprintf(text, sizeof text, "%d %s%s", n, noun, n == 1 ? "" : "s");
    return text;
}

const char *scaled(char out[24], double n, const char *unit) {
    static const char *const prefixes[] = {"", "k", "M", "G", "T"};
    int p = 0;
    for (; n >= 999.5 && p < 4; p++) n /= 1000;

    int n_decimals = n < 99.95 ? 1 : 0; // three significant digits
    if (n < 9.995) n_decimals = 2;
    snprintf(out, 24, "%.*f %s%s", n_decimals, n, prefixes[p], unit);
    return out;
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
    enum { MIN_TOKENS = 32 }; // a shorter prefill takes a second or two at most
    double sec = now_sec() - start_sec;
    unsigned long long done = n_done;
    unsigned long long all = n;
    if (!n && n_done)
        progress_print(o, "read %llu tokens, %.0f tok/s", done, sec > 0 ? (double)done / sec : 0);
    else if (n > MIN_TOKENS && !n_done)
        progress_print(o, "reading %llu tokens", all);
    else if (n > MIN_TOKENS)
        progress_print(o, "reading %llu of %llu tokens, %.0f s left", done, all,
                       sec / (double)done * (double)(n - n_done));
}

void note(const Options *o, const char *fmt, ...) {
    Buffer text = {0}, shown = {0};
    va_list ap;
    bool is_dim = terminal_has_color(STDERR_FILENO);
    if (o && o->is_quiet) return;
    progress_end();
    va_start(ap, fmt);
    buffer_vprintf(&text, fmt, ap);
    va_end(ap);
    buffer_put_escaped(&shown, buffer_str(&text), "\n\t");
    fprintf(stderr, "%s%s%s\n", is_dim ? "\x1b[2m" : "", shown.data, is_dim ? "\x1b[0m" : "");
    buffer_free(&text);
    buffer_free(&shown);
}

void options_put_settings(const Options *o, Buffer *out) {
    for (const Option *row = option_table; row < option_table + n_option_rows; row++) {
        const void *field = (const char *)o + row->offset;
        bool is_int = row->kind == OPTION_INT || row->kind == OPTION_BUDGET;
        bool is_unset = is_int && *(const int *)field == INT_MIN;
        if (!(row->commands & CMD_SET) || !row->names[0] || is_unset) continue;
        const char *name = row->names[row->names[0][1] != '-'] + 2; // the first long name
        if (o->sample.dry.multiplier == 0 && str_begins_with(str_of(name), "dry-")) continue;
        buffer_printf(out, "%s%s ", out->len ? ", " : "", name);
        if (is_int)
            buffer_printf(out, "%d", *(const int *)field);
        else if (row->kind == OPTION_FLOAT)
            buffer_printf(out, "%g", (double)*(const float *)field);
        else
            buffer_printf(out, "%llu", (unsigned long long)*(const uint64_t *)field);
    }
}

const char *printable(Str s) {
    static Buffer text;
    text.len = 0;
    buffer_put_escaped(&text, s, "");
    return text.data;
}

static void write_failed(const char *path) {
    if (errno == EPIPE) exit(EXIT_OK); // the reader is gone, as in `llama31 ... | head`
    die_file(path);
}

void output_write(int fd, const char *path, const void *data, size_t n) {
    if (!write_all(fd, data, n)) write_failed(path);
}

void stdout_flush(void) {
    if (fflush(stdout) || ferror(stdout)) write_failed(STDOUT_NAME);
}

void text_write_styled(Str shown) {
    progress_end();
    stdout_flush();
    output_write(STDOUT_FILENO, STDOUT_NAME, shown.data, shown.len);
}

void text_write(const char *text, size_t n) {
    Buffer shown = {0};
    bool is_escaped = isatty(STDOUT_FILENO);
    if (is_escaped) buffer_put_escaped(&shown, (Str){text, n}, "\n\t");
    text_write_styled(is_escaped ? buffer_str(&shown) : (Str){text, n});
    buffer_free(&shown);
}

void text_dim(bool is_dim) {
    if (terminal_has_color(STDOUT_FILENO))
        text_write_styled(str_of(is_dim ? "\x1b[2m" : "\x1b[0m"));
}

void text_print(Buffer *text) {
    text_write(text->data, text->len);
    buffer_free(text);
}

void text_print_json(JsonWriter *w) {
    json_end_object(w);
    buffer_puts(w->out, "\n");
    text_print(w->out);
}

bool text_emit(void *arg, const char *text, size_t n) {
    (void)arg;
    text_write(text, n);
    return true;
}
