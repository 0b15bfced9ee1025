#include "editor.h"
#include "../cli/output.h"
#include "../base/files.h"

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>
#include <wchar.h>

enum { NO_KEY = -1, END_OF_INPUT = -2, WOKEN = -3, ESCAPE_MS = 50 };
enum { LOOK_MS = 100 }; // how often an interrupt is looked for where none wakes the editor up

struct Editor {
    bool is_terminal, is_dumb; // dumb: it edits lines itself, and knows no escapes
    void (*complete)(void *arg, Str before, Buffer *out);
    void *complete_arg;
    int out; // where keys echo: a terminal
    volatile int *interrupted;
    const char *history_path;
    Buffer history; // as in its file: an entry a line, its own newlines as carriage returns, which
                    // no text holds
    size_t seen;    // where the entry shown begins; the end of the history: the new text
    unsigned char keys[4096]; // read, not yet handled
    size_t n_keys, next_key;
    // while a text is edited
    const char *prompt;
    Buffer text, draft, killed; // draft: the new text while history is shown
    size_t at;                  // cursor, a byte offset
    int cursor_row;             // the row it is on, counted from the first one shown
};

// The terminal outlives us, so signal handlers need its state.
static struct {
    struct termios cooked, raw;
    volatile sig_atomic_t is_raw;
    volatile int *interrupted;
    int wake[2]; // a pipe: handlers wake the editor up
} tty = {.wake = {-1, -1}};

static const int fatal_signals[] = {SIGTERM, SIGHUP, SIGQUIT, SIGSEGV,
                                    SIGBUS,  SIGILL, SIGFPE,  SIGABRT};
enum { N_FATAL = sizeof fatal_signals / sizeof *fatal_signals };
static struct sigaction old_actions[N_FATAL];

static void put(int fd, const char *s, size_t n) {
    if (!write_all(fd, s, n)) return; // a terminal that is gone: SIGHUP or the end of input follows
}

static void terminal_restore(void) {
    if (!tty.is_raw) return;
    tty.is_raw = 0;
    put(STDIN_FILENO, "\x1b[?2004l", 8);
    tcsetattr(STDIN_FILENO, TCSANOW, &tty.cooked);
}

static void terminal_take(void) {
    tcsetattr(STDIN_FILENO, TCSANOW, &tty.raw);
    put(STDIN_FILENO, "\x1b[?2004h", 8); // pastes come in brackets
    tty.is_raw = 1;
}

// Whatever ends the program, the terminal is as it was before.
static void on_fatal(int number) {
    terminal_restore();
    for (int i = 0; i < N_FATAL; i++)
        if (fatal_signals[i] == number) sigaction(number, &old_actions[i], NULL);
    raise(number); // what would have happened: delivered when we return
}

// Ctrl-C, Ctrl-Z and a new size of the window only wake the editor up; being stopped needs the
// terminal back first.
static void on_wake(int number) {
    int e = errno;
    if (number == SIGINT) *tty.interrupted = 1;
    if (number == SIGTSTP) { // be stopped with the terminal as we found it
        struct sigaction own, standard = {.sa_handler = SIG_DFL};
        sigset_t set;
        terminal_restore();
        sigaction(SIGTSTP, &standard, &own);
        sigemptyset(&set);
        sigaddset(&set, SIGTSTP);
        raise(SIGTSTP);
        sigprocmask(SIG_UNBLOCK, &set, NULL);
        sigaction(SIGTSTP, &own, NULL);
        terminal_take();
    }
    put(tty.wake[1], "", 1);
    errno = e;
}

// Signals that were ignored, as under nohup, stay so.
static void install_handlers(void) {
    static const int wakes[] = {SIGINT, SIGTSTP, SIGWINCH};
    struct sigaction fatal = {.sa_handler = on_fatal},
                     wake = {.sa_handler = on_wake, .sa_flags = SA_RESTART};
    for (int i = 0; i < N_FATAL; i++) {
        sigaction(fatal_signals[i], &fatal, &old_actions[i]);
        if (old_actions[i].sa_handler == SIG_IGN)
            sigaction(fatal_signals[i], &old_actions[i], NULL); // nohup
    }
    for (size_t i = 0; i < sizeof wakes / sizeof *wakes; i++) sigaction(wakes[i], &wake, NULL);
}

// Where the entry before or after the one at `at` begins.
static size_t history_step(const Buffer *history, size_t at, int by) {
    if (by > 0) return at + strcspn(history->data + at, "\n") + 1;
    for (at--; at > 0 && history->data[at - 1] != '\n'; at--) {
    }
    return at;
}

// Adds a text to the history and its file, unless it is the last entry again.
static void history_add(Editor *l, const Buffer *text) {
    Buffer *h = &l->history;
    size_t begin = h->len, last = begin ? history_step(h, begin, -1) : 0;
    if (!text->len) return;
    buffer_put(h, buffer_str(text));
    buffer_puts(h, "\n");
    for (char *at = h->data + begin; (at = strchr(at, '\n')) && at[1];) *at = '\r';
    if (begin - last == h->len - begin && !memcmp(h->data + last, h->data + begin, begin - last)) {
        h->data[h->len = begin] = 0;
        return;
    }
    int fd = l->history_path
                 ? open(l->history_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)
                 : -1;
    if (fd < 0) return;
    put(fd, h->data + begin, h->len - begin);
    close(fd);
}

Editor *editor_open(const char *history, volatile int *interrupted) {
    Editor *l = xalloc(1, sizeof *l);
    l->interrupted = tty.interrupted = interrupted;
    l->out = isatty(STDOUT_FILENO) ? STDOUT_FILENO : STDERR_FILENO;
    l->is_terminal =
        isatty(STDIN_FILENO) && isatty(l->out) && tcgetattr(STDIN_FILENO, &tty.cooked) == 0;
    l->is_dumb = l->is_terminal && !terminal_has_escapes(l->out);
    if (!l->is_terminal || l->is_dumb) return l;
    buffer_puts(&l->history, "");
    l->history_path = history;
    if (history) file_read(history, &l->history, &(Error){0}); // there may be none yet
    if (l->history.len && l->history.data[l->history.len - 1] != '\n')
        buffer_puts(&l->history, "\n");
    if (!setlocale(LC_CTYPE, "C.UTF-8")) setlocale(LC_CTYPE, ""); // for the width of characters
    if (pipe(tty.wake)) die(EXIT_RUNTIME, "pipe: %s", strerror(errno));
    for (int i = 0; i < 2; i++) fcntl(tty.wake[i], F_SETFL, O_NONBLOCK);
    tty.raw = tty.cooked;
    tty.raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO | IEXTEN);
    tty.raw.c_iflag &= ~(tcflag_t)(ICRNL | INLCR | IXON);
    tty.raw.c_cc[VMIN] = 1;
    tty.raw.c_cc[VTIME] = 0;
    install_handlers();
    atexit(terminal_restore);
    terminal_take();
    return l;
}

void editor_completer(Editor *l, void (*complete)(void *arg, Str before, Buffer *out), void *arg) {
    l->complete = complete;
    l->complete_arg = arg;
}

bool editor_is_terminal(const Editor *l) { return l->is_terminal; }

// The next byte typed; NO_KEY after so long (-1: never), WOKEN, or END_OF_INPUT.
static int next_key(Editor *l, int timeout_ms) {
    while (l->next_key == l->n_keys) {
        struct pollfd fds[2] = {{.fd = STDIN_FILENO, .events = POLLIN},
                                {.fd = tty.wake[0], .events = POLLIN}};
        int ready = poll(fds, tty.wake[0] < 0 ? 1 : 2, timeout_ms);
        if (ready < 0 && errno != EINTR) return END_OF_INPUT;
        if (ready == 0) return NO_KEY;
        if (ready > 0 && fds[1].revents & POLLIN) {
            while (read(tty.wake[0], l->keys, sizeof l->keys) > 0) {
            }
            return WOKEN;
        }
        if (ready < 0 || !fds[0].revents) continue;
        ssize_t n = read(STDIN_FILENO, l->keys, sizeof l->keys);
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (n < 0 && !l->is_terminal) die_file("standard input"); // a terminal may be gone
        if (n <= 0) return END_OF_INPUT;
        l->next_key = 0;
        l->n_keys = (size_t)n;
    }
    return l->keys[l->next_key++];
}

// The character at s: its bytes, and the columns it takes on the screen as `shown`.
static int char_at(const char *s, size_t n, int *columns, char shown[8]) {
    uint32_t code;
    int len = utf8_decode(s, n, &code), width = 1;
    unsigned char byte = (unsigned char)*s;
    if (byte == '\t')
        snprintf(shown, 8, "    "), width = 4;
    else if (byte < 0x20 || byte == 0x7f)
        snprintf(shown, 8, "^%c", byte ^ 0x40), width = 2;
    else if (len == 0 || (width = code < 0x7f ? 1 : wcwidth((wchar_t)code)) < 0)
        snprintf(shown, 8, "?"), width = 1;
    else
        snprintf(shown, 8, "%.*s", len, s);
    *columns = width;
    return len ? len : 1;
}

// The offset after the character at `at`, with the combining ones and joined emoji that follow it;
// and before.
static size_t after(const Editor *l, size_t at) {
    char shown[8];
    int columns;
    bool is_joined = false;
    for (size_t begin = at; at < l->text.len;) {
        int len = char_at(l->text.data + at, l->text.len - at, &columns, shown);
        if (at > begin && columns > 0 && !is_joined) break;
        is_joined = len == 3 && !memcmp(l->text.data + at, "\xe2\x80\x8d", 3); // zero width joiner
        at += (size_t)len;
    }
    return at;
}

static size_t before(const Editor *l, size_t at) {
    size_t last = 0;
    for (size_t i = 0; i < at; i = after(l, i)) last = i;
    return last;
}

// Lays prompt and text out in rows of `columns`, with \r\n between. Rows after the first of a text
// with newlines are indented by 2. Sets the cursor's row and column; returns the number of rows.
static int layout(const Editor *l, int columns, Buffer *out, int *cursor_row, int *cursor_column) {
    int row = 0, column = 0;
    for (Str rest = str_of(l->prompt); rest.len;) {
        char shown[8];
        int width, len = char_at(rest.data, rest.len, &width, shown);
        buffer_puts(out, shown);
        column += width;
        rest = (Str){rest.data + len, rest.len - (size_t)len};
    }
    for (size_t i = 0, len = 1;; i += len) {
        char shown[8] = "";
        int width = 0;
        bool is_end = i == l->text.len, is_newline = !is_end && l->text.data[i] == '\n';
        len = is_end || is_newline
                  ? 1
                  : (size_t)char_at(l->text.data + i, l->text.len - i, &width, shown);
        bool is_full = column + width > columns || (column == columns && (i == l->at || is_end));
        if (is_full && !is_newline) {
            row++, column = 0;
            buffer_puts(out, "\r\n");
        }
        if (i == l->at) *cursor_row = row, *cursor_column = column < columns ? column : columns - 1;
        if (is_end) return row + 1;
        row += is_newline;
        column = is_newline ? 2 : column + width;
        buffer_puts(out, is_newline ? "\r\n  " : shown);
    }
}

static const char *skip_rows(const char *s, int n) {
    for (; n > 0; n--) s = strstr(s, "\r\n") + 2;
    return s;
}

// Draws the rows around the cursor that the screen can hold.
static void draw(Editor *l) {
    struct winsize size = {0};
    Buffer rows = {0}, out = {0};
    int row = 0, column = 0;
    if (ioctl(l->out, TIOCGWINSZ, &size) || !size.ws_col || !size.ws_row)
        size.ws_col = 80, size.ws_row = 24;
    int columns = size.ws_col > 8 ? size.ws_col : 8, height = size.ws_row > 2 ? size.ws_row - 1 : 1;
    int n_rows = layout(l, columns, &rows, &row, &column);
    int top = row >= height ? row - height + 1 : 0,
        bottom = n_rows < top + height ? n_rows : top + height;
    const char *begin = skip_rows(rows.data, top), *end = rows.data + rows.len;
    if (bottom < n_rows) end = skip_rows(begin, bottom - top) - 2;
    if (l->cursor_row > 0) buffer_printf(&out, "\x1b[%dA", l->cursor_row);
    buffer_puts(&out, "\r\x1b[J");
    buffer_append(&out, begin, (size_t)(end - begin));
    if (bottom - 1 > row) buffer_printf(&out, "\x1b[%dA", bottom - 1 - row);
    buffer_puts(&out, "\r");
    if (column) buffer_printf(&out, "\x1b[%dC", column);
    put(l->out, out.data, out.len);
    l->cursor_row = row - top;
    buffer_free(&rows);
    buffer_free(&out);
}

static void insert(Editor *l, const char *s, size_t n) {
    buffer_append(&l->text, s, n); // makes room
    memmove(l->text.data + l->at + n, l->text.data + l->at, l->text.len - n - l->at);
    memcpy(l->text.data + l->at, s, n);
    l->at += n;
}

// Takes [from, to) out; what is kept can be put back (Ctrl-Y).
static void erase(Editor *l, size_t from, size_t to, bool is_kept) {
    if (is_kept && to > from) {
        l->killed.len = 0;
        buffer_append(&l->killed, l->text.data + from, to - from);
    }
    memmove(l->text.data + from, l->text.data + to, l->text.len - to + 1);
    l->text.len -= to - from;
    l->at = from;
}

// Another text, the cursor behind it.
static void replace(Editor *l, const char *s, size_t n) {
    l->text.len = l->at = 0;
    insert(l, s, n);
}

static bool is_word(char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_' ||
           (c & 0x80);
}

// Where the cursor would be a word further to the left (by -1) or right (by 1).
static size_t word(const Editor *l, int by) {
    size_t at = l->at, end = by < 0 ? 0 : l->text.len;
    const char *next = l->text.data - (by < 0);
    while (at != end && !is_word(next[at])) at += (size_t)by;
    while (at != end && is_word(next[at])) at += (size_t)by;
    return at;
}

// Beginning and end of the row the cursor is on.
static size_t row(const Editor *l, int by) {
    size_t at = l->at, end = by < 0 ? 0 : l->text.len;
    const char *next = l->text.data - (by < 0);
    while (at != end && next[at] != '\n') at += (size_t)by;
    return at;
}

// Shows the entry of the history that begins at `at`.
static void show_entry(Editor *l, size_t at) {
    replace(l, l->history.data + at, strcspn(l->history.data + at, "\n"));
    for (char *c = l->text.data; (c = strchr(c, '\r'));) *c = '\n';
}

// Up and down: within a text of several rows, else through the history.
static void move_row(Editor *l, int by) {
    size_t begin = row(l, -1), end = row(l, 1), column = l->at - begin;
    if (by < 0 ? begin > 0 : end < l->text.len) {
        l->at = by < 0 ? begin - 1 : end + 1;
        begin = row(l, -1), end = row(l, 1);
        l->at = begin + column < end ? begin + column : end;
        while (l->at > begin && l->at < l->text.len && (l->text.data[l->at] & 0xc0) == 0x80)
            l->at--;
        return;
    }
    if (l->seen == (by < 0 ? 0 : l->history.len)) return;
    if (l->seen == l->history.len) {
        l->draft.len = 0;
        buffer_put(&l->draft, buffer_str(&l->text));
    }
    l->seen = history_step(&l->history, l->seen, by);
    if (l->seen == l->history.len) {
        replace(l, l->draft.data, l->draft.len);
        return;
    }
    show_entry(l, l->seen);
}

// A paste, up to its closing bracket: text, whatever is in it. Editor ends become newlines.
static void paste(Editor *l) {
    static const char end[] = "\x1b[201~";
    Buffer in = {0};
    size_t n = 0;
    buffer_puts(&in, "");
    for (int key; (key = next_key(l, -1)) != END_OF_INPUT && !*l->interrupted;) {
        if (key < 0) continue;
        buffer_append(&in, &(char){(char)key}, 1);
        if (in.len < sizeof end - 1 ||
            memcmp(in.data + in.len - (sizeof end - 1), end, sizeof end - 1))
            continue;
        in.len -= sizeof end - 1;
        break;
    }
    for (size_t i = 0; i < in.len; i++) {
        if (in.data[i] == '\r' && i + 1 < in.len && in.data[i + 1] == '\n') continue;
        if (in.data[i] == 0) continue;
        in.data[n++] = in.data[i] == '\r' ? '\n' : in.data[i];
    }
    insert(l, in.data, n);
    buffer_free(&in);
}

// Keys beyond bytes, and those of the control keys.
enum {
    KEY_WORD_LEFT = 256,
    KEY_WORD_RIGHT,
    KEY_CUT_WORD_LEFT,
    KEY_CUT_WORD_RIGHT,
    KEY_NEWLINE,
    KEY_PASTE
};
#define CTRL_KEY(letter) ((letter)&31)

// What follows an escape byte, as a key that does the same; 0: nothing we know.
static int escape_key(Editor *l) {
    int key = next_key(l, ESCAPE_MS), final, first = 0, modifier = 0, *number = &first;
    switch (key) {
    case 'b': return KEY_WORD_LEFT;
    case 'f': return KEY_WORD_RIGHT;
    case 'd': return KEY_CUT_WORD_RIGHT;
    case 127:
    case 8: return KEY_CUT_WORD_LEFT;
    case '\r':
    case '\n': return KEY_NEWLINE;
    case '[':
    case 'O': break;
    default: return 0;
    }
    while ((final = next_key(l, ESCAPE_MS)) >= 0 && final < 0x40)
        if (final == ';')
            number = &modifier;
        else if (final >= '0' && final <= '9' && *number < 1000)
            *number = *number * 10 + final - '0';
    switch (final == '~' ? 1000 + first : final) {
    case 'A': return CTRL_KEY('P');
    case 'B': return CTRL_KEY('N');
    case 'C': return modifier >= 3 ? KEY_WORD_RIGHT : CTRL_KEY('F');
    case 'D': return modifier >= 3 ? KEY_WORD_LEFT : CTRL_KEY('B');
    case 'H':
    case 1001:
    case 1007: return CTRL_KEY('A');
    case 'F':
    case 1004:
    case 1008: return CTRL_KEY('E');
    case 1003: return CTRL_KEY('D');
    case 1200: return KEY_PASTE;
    }
    return 0;
}

// Whether a text is still open, on Enter; a trailing backslash has then become a newline.
static bool is_continued(Buffer *text) {
    if (text->len >= 3 && !memcmp(text->data, "\"\"\"", 3)) {
        if (text->len >= 6 && !memcmp(text->data + text->len - 3, "\"\"\"", 3)) return false;
        buffer_puts(text, "\n");
        return true;
    }
    if (text->len == 0 || text->data[text->len - 1] != '\\') return false;
    text->data[text->len - 1] = '\n';
    return true;
}

// The text without the quotes that made it span lines.
static void finish(const Buffer *text, Buffer *out) {
    const char *s = text->data;
    size_t n = text->len;
    if (n >= 6 && !memcmp(s, "\"\"\"", 3) && !memcmp(s + n - 3, "\"\"\"", 3)) {
        s += 3, n -= 6;
        if (n && *s == '\n') s++, n--;
        if (n && s[n - 1] == '\n') n--;
    }
    out->len = 0;
    buffer_append(out, s, n);
}

// Where the last character of a text begins.
static size_t before_in(const Buffer *text) {
    size_t n = text->len;
    while (n > 0 && ((unsigned char)text->data[--n] & 0xc0) == 0x80) {
    }
    return n;
}

// The newest entry of the history before `end` that holds the query: where it begins, or SIZE_MAX.
static size_t history_search(const Buffer *history, size_t end, const Buffer *query) {
    while (end > 0) {
        end = history_step(history, end, -1);
        Str entry = {history->data + end, strcspn(history->data + end, "\n")};
        if (str_contains(entry, query->data)) return end;
    }
    return SIZE_MAX;
}

// Ctrl-R: keys make a query, the newest entry that holds it is shown, Ctrl-R again goes further
// back. Any other key ends the search and is then what it always is; Ctrl-G and Ctrl-C bring the
// old text back.
static void search(Editor *l) {
    const char *prompt = l->prompt;
    Buffer query = {0}, shown = {0}, old = {0};
    size_t end = l->history.len, found = SIZE_MAX;
    int key;
    buffer_puts(&query, "");
    buffer_puts(&old, "");
    buffer_put(&old, buffer_str(&l->text));
    for (;;) {
        shown.len = 0;
        buffer_printf(&shown, "search \"%s\"%s: ", query.data,
                      query.len && found == SIZE_MAX ? " (none)" : "");
        l->prompt = shown.data;
        draw(l);
        while ((key = next_key(l, -1)) < 0 && key != END_OF_INPUT && !*l->interrupted) draw(l);
        if (key == CTRL_KEY('R') && found != SIZE_MAX)
            end = found;
        else if ((key == 127 || key == CTRL_KEY('H')) && query.len)
            query.data[query.len = before_in(&query)] = 0, end = l->history.len;
        else if (key >= 0x20 && key != 127)
            buffer_append(&query, &(char){(char)key}, 1), end = l->history.len;
        else if (key != CTRL_KEY('R'))
            break;
        size_t next = query.len ? history_search(&l->history, end, &query) : SIZE_MAX;
        if (next == SIZE_MAX && key == CTRL_KEY('R')) continue;
        found = next;
        if (found != SIZE_MAX) show_entry(l, found);
    }
    if (key == CTRL_KEY('G') || *l->interrupted)
        replace(l, old.data, old.len), *l->interrupted = 0;
    else if (key >= 0)
        l->next_key--; // for whoever reads next
    l->prompt = prompt;
    buffer_free(&query);
    buffer_free(&shown);
    buffer_free(&old);
}

// Tab: what all candidates begin with; where that is nothing new, their list.
static void complete(Editor *l) {
    Buffer list = {0};
    size_t begin = l->at, common = SIZE_MAX, n = 0;
    if (!l->complete) return;
    while (begin > 0 && !strchr(" \n\t", l->text.data[begin - 1])) begin--;
    buffer_puts(&list, "");
    l->complete(l->complete_arg, (Str){l->text.data, l->at}, &list);
    for (const char *at = list.data; *at; at += strcspn(at, "\n") + 1, n++) {
        size_t len = strcspn(at, "\n"), k = 0;
        while (k < len && k < common && at[k] == list.data[k]) k++;
        common = n ? k : len;
    }
    size_t typed = l->at - begin;
    if (n && common > typed) {
        insert(l, list.data + typed, common - typed);
        if (n == 1 && l->text.data[l->at - 1] != '/') insert(l, " ", 1);
    } else if (n > 1) {
        for (char *at = list.data; (at = strchr(at, '\n')) && at[1];) *at = ' ';
        Buffer shown = {0};
        buffer_put_escaped(&shown, buffer_str(&list), "\n");
        put(l->out, "\r\n", 2);
        put(l->out, shown.data, shown.len);
        l->cursor_row = 0;
        buffer_free(&shown);
    }
    buffer_free(&list);
}

static void control_key(Editor *l, int key) {
    size_t from = l->at;
    switch (key == 27 ? escape_key(l) : key) {
    case CTRL_KEY('A'): l->at = row(l, -1); break;
    case CTRL_KEY('B'): l->at = before(l, l->at); break;
    case CTRL_KEY('D'): erase(l, l->at, after(l, l->at), false); break;
    case CTRL_KEY('E'): l->at = row(l, 1); break;
    case CTRL_KEY('F'): l->at = after(l, l->at); break;
    case CTRL_KEY('H'):
    case 127: erase(l, before(l, l->at), l->at, false); break;
    case CTRL_KEY('K'): erase(l, l->at, row(l, 1), true); break;
    case CTRL_KEY('L'): put(l->out, "\x1b[H\x1b[2J", 7), l->cursor_row = 0; break;
    case CTRL_KEY('N'): move_row(l, 1); break;
    case CTRL_KEY('P'): move_row(l, -1); break;
    case CTRL_KEY('I'): complete(l); break;
    case CTRL_KEY('R'): search(l); break;
    case CTRL_KEY('U'): erase(l, row(l, -1), l->at, true); break;
    case CTRL_KEY('W'): // back to white space
        while (from > 0 && strchr(" \n\t", l->text.data[from - 1])) from--;
        while (from > 0 && !strchr(" \n\t", l->text.data[from - 1])) from--;
        erase(l, from, l->at, true);
        break;
    case CTRL_KEY('Y'): insert(l, l->killed.data, l->killed.len); break;
    case KEY_WORD_LEFT: l->at = word(l, -1); break;
    case KEY_WORD_RIGHT: l->at = word(l, 1); break;
    case KEY_CUT_WORD_LEFT: erase(l, word(l, -1), l->at, true); break;
    case KEY_CUT_WORD_RIGHT: erase(l, l->at, word(l, 1), true); break;
    case KEY_NEWLINE: insert(l, "\n", 1); break;
    case KEY_PASTE: paste(l); break;
    }
}

// Whether the text ends with its last line, which began at `begin`; that loses its carriage return.
static bool ends_plain_line(Buffer *text, size_t begin) {
    if (text->len > begin && text->data[text->len - 1] == '\r') text->data[--text->len] = 0;
    return !is_continued(text);
}

// Without a terminal: a line, or several, by the same rules.
static EditorResult read_plain(Editor *l, const char *prompt, Buffer *out) {
    size_t begin = 0;
    int key = NO_KEY;
    l->text.len = 0;
    buffer_puts(&l->text, "");
    if (l->is_dumb) put(l->out, prompt, strlen(prompt));
    while (!*l->interrupted && key != END_OF_INPUT) {
        key = next_key(l, LOOK_MS);
        if (key >= 0 && key != '\n') {
            buffer_append(&l->text, &(char){(char)key}, 1);
        } else if (key != NO_KEY) {
            if (ends_plain_line(&l->text, begin)) break;
            begin = l->text.len;
        }
    }
    if (l->is_dumb && *l->interrupted) {
        *l->interrupted = 0;
        put(l->out, "\n", 1);
        return EDITOR_INTERRUPTED;
    }
    if (*l->interrupted || (key == END_OF_INPUT && l->text.len == 0)) return EDITOR_CLOSED;
    finish(&l->text, out);
    return EDITOR_TYPED;
}

EditorResult editor_read(Editor *l, const char *prompt, const char *text, Buffer *out) {
    if (!l->is_terminal || l->is_dumb) return read_plain(l, prompt, out);
    l->prompt = prompt;
    l->cursor_row = 0;
    l->seen = l->history.len;
    buffer_puts(&l->draft, "");
    buffer_puts(&l->killed, "");
    buffer_puts(&l->text, "");
    replace(l, text, strlen(text));
    draw(l);
    for (;;) {
        int key = next_key(l, -1);
        if (*l->interrupted) {
            *l->interrupted = 0;
            bool is_given_up = l->text.len == 0 || *text; // what was there to edit stays as it was
            put(l->out, "^C\r\n", 4);
            if (is_given_up) return EDITOR_INTERRUPTED;
            replace(l, "", 0);
            l->cursor_row = 0;
        } else if (key == END_OF_INPUT || (key == 4 && l->text.len == 0)) {
            put(l->out, "\r\n", 2);
            return EDITOR_CLOSED;
        } else if (key == '\r' || key == '\n') {
            l->at = l->text.len;
            if (!is_continued(&l->text)) break;
            l->at = l->text.len;
        } else if (key >= 0x20 && key != 127) {
            insert(l, &(char){(char)key}, 1);
        } else if (key >= 0) {
            control_key(l, key);
        }
        if (l->next_key == l->n_keys) draw(l);
    }
    draw(l);
    put(l->out, "\r\n", 2);
    finish(&l->text, out);
    history_add(l, &l->text);
    return EDITOR_TYPED;
}
