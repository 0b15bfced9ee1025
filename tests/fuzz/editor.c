// Fuzzes the line editor. Its source is compiled with functions that replace the keyboard and the
// screen.
#include "tests/fuzz/targets.h"
#include "base/files.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static int keys_poll(struct pollfd *fds, unsigned n, int timeout_ms);
static ssize_t keys_read(int fd, void *out, size_t n);
static int screen_size(struct winsize *size);
static bool screen_write(int fd, const void *data, size_t n);

#define editor_open         fuzz_editor_open
#define editor_is_terminal  fuzz_editor_is_terminal
#define editor_read         fuzz_editor_read
#define poll                keys_poll
#define read                keys_read
#define write_all           screen_write
#define ioctl(fd, what, to) screen_size(to)
#include "cli/editor/editor.c"

// The keyboard delivers the fuzzed bytes. Two byte values, which UTF-8 does not use, are events.
enum { WAIT = 0xff, CTRL_C = 0xfe };
static const uint8_t *keys, *keys_end;
static size_t most_keys;
static volatile int was_interrupted;

// Simulates a timeout, a signal that wakes the editor, a key, or the end of input.
static int keys_poll(struct pollfd *fds, unsigned n, int timeout_ms) {
    fds[0].revents = fds[n - 1].revents = 0;
    bool is_wait = keys < keys_end && *keys == WAIT, is_ctrl_c = keys < keys_end && *keys == CTRL_C;
    if (is_wait || is_ctrl_c) keys++;
    if (is_wait && timeout_ms >= 0) return 0;
    if (is_ctrl_c) was_interrupted = 1;
    fds[is_wait || is_ctrl_c ? n - 1 : 0].revents = POLLIN;
    return 1;
}

static ssize_t keys_read(int fd, void *out, size_t n) {
    size_t k = 0;
    if (fd != STDIN_FILENO) return 0; // the wake pipe
    while (k < n && k < most_keys && keys < keys_end && *keys != WAIT && *keys != CTRL_C)
        ((uint8_t *)out)[k++] = *keys++;
    return (ssize_t)k;
}

static struct winsize window;
static int screen_size(struct winsize *size) { return *size = window, 0; }

// Invariant: only escape sequences of the editor reach the screen, never escape sequences in a
// text.
static bool screen_write(int fd, const void *data, size_t n) {
    const char *s = data, *end = s + n;
    HOLDS(fd == STDOUT_FILENO);
    while (s < end) {
        uint32_t code;
        int len = utf8_decode(s, (size_t)(end - s), &code);
        HOLDS(len > 0 && (code < 0x7f || code >= 0xa0));
        s += len;
        if (code >= 0x20 || code == '\r' || code == '\n') continue;
        HOLDS(code == 0x1b && s < end && *s == '[');
        for (s++; s < end && *s >= '0' && *s <= '9';) s++;
        HOLDS(s < end && strchr("ACHJ", *s));
        s++;
    }
    return true;
}

static size_t candidates(Str before, Buffer *out) {
    if (before.len && before.data[before.len - 1] == 'a') buffer_puts(out, "a\x1b[2J\nab\n");
    if (before.len && before.data[before.len - 1] == 'o') buffer_puts(out, "one\n");
    return before.len > 0;
}

// The first byte chooses the size of the window and options.
void fuzz_editor(const uint8_t *data, size_t n) {
    static const char history[] = "one\ntwo\rrows\n\xff\x1b\0\n\n"; // of a corrupt file
    static const unsigned short columns[] = {80, 1, 9, 0}, rows[] = {24, 1, 3, 0};
    Buffer out = {0};
    Editor e = {.is_terminal = true, .out = STDOUT_FILENO, .complete = candidates};
    static bool has_locale; // for the width of characters
    if (!has_locale && !setlocale(LC_CTYPE, "C.UTF-8")) setlocale(LC_CTYPE, "");
    has_locale = true;
    tty.interrupted = &was_interrupted;
    if (n == 0) return;
    window = (struct winsize){.ws_col = columns[*data & 3], .ws_row = rows[*data >> 2 & 3]};
    most_keys = *data & 16 ? 1 : 64;
    keys = data + 1;
    keys_end = data + n;
    buffer_append(&e.history, history, *data & 32 ? sizeof history - 1 : 0);
    for (EditorResult result = EDITOR_TYPED; result != EDITOR_CLOSED;) {
        was_interrupted = 0;
        result = editor_read(&e, "> ", *data & 64 ? "edited" : "", &out);
        HOLDS(e.at <= e.text.len && e.text.data[e.text.len] == 0 && e.seen <= e.history.len);
        HOLDS(!e.history.len || e.history.data[e.history.len - 1] == '\n');
        HOLDS(result != EDITOR_TYPED || out.len <= e.text.len);
    }
    Buffer *all[] = {&e.history, &e.text, &e.draft, &e.killed, &out};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) buffer_free(all[i]);
}
