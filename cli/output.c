// Text goes straight to the descriptor, so that it appears immediately; stdio's buffer is flushed
// first to keep the order. stderr is unbuffered.
#include "cli/output.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/signals.h"
#include "cli/wrap.h"
#include "generate/generate.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

static const char STDOUT_NAME[] = "standard output";

static bool has_progress; // a progress line is on the screen

static bool is_lost; // see output_is_lost()

static int stdout_flags; // before output_prepare()
static void restore_stdout(void) { fcntl(STDOUT_FILENO, F_SETFL, stdout_flags); }

void output_prepare(void) {
    // Open /dev/null in place of closed standard descriptors. Otherwise a result file could become
    // descriptor 2 and messages would be written into it. The access mode is deliberately the
    // opposite of the usual one, so that reading from a closed stdin, or writing to a closed
    // stdout, remains an error.
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd)
            _exit(EXIT_RUNTIME);

    // Make stdout blocking, because stdio loses data if a write would block. Its flags are shared
    // with other processes and are restored at exit.
    stdout_flags = fcntl(STDOUT_FILENO, F_GETFL);
    if (stdout_flags < 0 || !(stdout_flags & O_NONBLOCK)) return;
    if (fcntl(STDOUT_FILENO, F_SETFL, stdout_flags & ~O_NONBLOCK) == 0) atexit(restore_stdout);
}

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

void progress_interrupt(void) {
    if (isatty(STDERR_FILENO)) fputs("\n", stderr);
    has_progress = false;
}

void progress_prefill(const Options *o, uint64_t n_done, uint64_t n, double share,
                      double start_sec) {
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
                       sec / share * (1 - share));
}

void note(const Options *o, const char *fmt, ...) {
    Buffer text = {0}, shown = {0};
    Wrap wrap = {0};
    va_list ap;
    bool is_dim = terminal_has_color(STDERR_FILENO);
    size_t columns = isatty(STDERR_FILENO) ? terminal_columns(STDERR_FILENO) : SIZE_MAX;

    if (o && o->is_quiet) return;
    progress_end();
    va_start(ap, fmt);
    buffer_vprintf(&text, fmt, ap);
    va_end(ap);

    for (size_t i = 0; i < text.len;) {
        char c[17];
        i += utf8_escape(text.data + i, text.len - i, "\n\t", c);
        wrap_put(&wrap, c, false, columns, &shown);
    }
    wrap_end(&wrap, &shown);
    buffer_puts(&shown, "");

    fprintf(stderr, "%s%s%s\n", is_dim ? "\x1b[2m" : "", shown.data, is_dim ? "\x1b[0m" : "");
    buffer_free(&text);
    buffer_free(&shown);
}

size_t terminal_columns(int fd) {
    struct winsize size = {0};
    if (isatty(fd) && !terminal_has_escapes(fd)) return SIZE_MAX;
    return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : 80;
}

void put_wrapped(Buffer *out, Str text, const char *separator, size_t indent, size_t columns) {
    size_t column = indent;

    // One iteration per part of the text, up to and without the space of a separator.
    while (text.len) {
        size_t end = str_find(text, str_of(separator));
        size_t n = end == SIZE_MAX ? text.len : end + strlen(separator) - 1;

        if (column > indent && column + 1 + n > columns) {
            buffer_printf(out, "\n%*s", (int)indent, "");
            column = indent;
        } else if (column > indent) {
            buffer_puts(out, " ");
            column++;
        }

        buffer_append(out, text.data, n);
        column += n;
        n += end != SIZE_MAX; // the space
        text = (Str){text.data + n, text.len - n};
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
    if (errno != EIO || !signals_are_held()) die_file(path);

    // The terminal is gone. What the answer has so far is kept; SIGHUP follows, unless it is
    // ignored.
    is_lost = true;
    generate_interrupted = 1;
}

bool output_is_lost(void) { return is_lost; }

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

void text_print(Buffer *text) {
    text_write(text->data, text->len);
    buffer_free(text);
}

void text_print_json(JsonWriter *w) {
    json_end_object(w);
    buffer_puts(w->out, "\n");
    text_print(w->out);
}
