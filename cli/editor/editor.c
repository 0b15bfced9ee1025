// The line editor. In order: the terminal and its signals, history, keys, the screen, editing,
// escape sequences, search, completion, and the loop that reads one text (editor_read).
//
// A text is one buffer with a cursor. A key changes the text or the cursor, and draw_text() then
// redraws everything: it lays out prompt and text in rows of the terminal's width, moves the cursor
// up to the first row, clears everything below, writes the rows, and moves the cursor to its place.
// The row of the cursor (cursor_row) is therefore the only state of the screen that is kept. If the
// text has more rows than the screen, only the lines around the cursor are laid out, so that the
// cost of a key does not depend on the length of a paste.
#include "cli/editor/editor.h"
#include "base/files.h"
#include "base/signals.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>
#include <wchar.h>

enum { NO_KEY = -1, END_OF_INPUT = -2, WOKEN = -3 }; // results of next_key() that are not bytes
enum {
    ESCAPE_MS = 50,    // longest pause within an escape sequence
    INTERRUPT_MS = 100 // interval of checking *interrupted when no signal handler wakes the editor
};

struct Editor {
    bool is_terminal;
    bool is_dumb; // a terminal without escape sequences (TERM=dumb); its driver edits lines
    Completer complete;
    int out; // file descriptor of the terminal's screen
    const char *history_path;
    Buffer history; // the history file: one entry per line, with '\r' for newlines in an entry
    size_t seen;    // offset of the history entry on the screen; history.len: the new text
    unsigned char keys[4096]; // input bytes; [next_key, n_keys) are not handled yet
    size_t n_keys, next_key;
    // state of the text being edited
    const char *prompt;
    Buffer text;
    size_t at;      // byte offset of the cursor
    bool is_pasted; // the beginning of the text comes from a paste
    Buffer draft;   // the new text, while a history entry is on the screen
    Buffer killed;  // the last text that was cut; Ctrl-Y inserts it
    int cursor_row; // screen row of the cursor, counted from the first row drawn
};

// The state of the terminal. It is global because signal handlers need it.
static struct {
    struct termios cooked, raw; // original settings; settings of the editor
    volatile sig_atomic_t is_raw;
    volatile int *interrupted;
    int wake[2]; // pipe; signal handlers write to it so that poll() returns
} tty = {.wake = {-1, -1}};

// Write errors are ignored: if the terminal is gone, SIGHUP or the end of input follows.
static void terminal_restore(void) {
    if (!tty.is_raw) return;
    tty.is_raw = 0;
    write_all(STDIN_FILENO, "\x1b[?2004l", 8);
    tcsetattr(STDIN_FILENO, TCSANOW, &tty.cooked);
}

static void terminal_take(void) {
    tcsetattr(STDIN_FILENO, TCSANOW, &tty.raw);
    write_all(STDIN_FILENO, "\x1b[?2004h", 8); // bracketed paste
    tty.is_raw = 1;
}

// Handles Ctrl-C, Ctrl-Z and changes of the window size, then wakes the editor.
static void on_wake_signal(int number) {
    int e = errno;
    if (number == SIGINT) *tty.interrupted = 1;
    if (number == SIGTSTP) {
        // Restore the terminal and stop the process. When continued, take the terminal again.
        struct sigaction own, standard = {.sa_handler = SIG_DFL};
        terminal_restore();
        sigaction(SIGTSTP, &standard, &own);
        raise(SIGTSTP); // SA_NODEFER: not blocked in its handler
        sigaction(SIGTSTP, &own, NULL);
        terminal_take();
    }

    write_all(tty.wake[1], "", 1);
    errno = e;
}

Editor *editor_open(const char *history, Completer complete, volatile int *interrupted) {
    static const int wakes[] = {SIGINT, SIGTSTP, SIGWINCH};
    Editor *e = xalloc(1, sizeof *e);
    const char *term = getenv("TERM");

    tty.interrupted = interrupted;
    e->complete = complete;
    e->out = isatty(STDOUT_FILENO) ? STDOUT_FILENO : STDERR_FILENO;
    e->is_terminal =
        isatty(STDIN_FILENO) && isatty(e->out) && tcgetattr(STDIN_FILENO, &tty.cooked) == 0;
    e->is_dumb = e->is_terminal && term && !strcmp(term, "dumb");
    if (!e->is_terminal || e->is_dumb) return e;

    // Load the history of earlier runs.
    buffer_puts(&e->history, "");
    e->history_path = history;
    if (history) file_read(history, &e->history, &(Error){0}); // may not exist yet
    if (e->history.len && e->history.data[e->history.len - 1] != '\n')
        buffer_puts(&e->history, "\n");

    if (!setlocale(LC_CTYPE, "C.UTF-8")) setlocale(LC_CTYPE, ""); // for wcwidth

    // Switch to single-key input without echo. Signals wake the editor through a pipe.
    if (pipe(tty.wake)) die(EXIT_RUNTIME, "pipe: %s", strerror(errno));
    for (int i = 0; i < 2; i++) fcntl(tty.wake[i], F_SETFL, O_NONBLOCK);
    tty.raw = tty.cooked;
    tty.raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO | IEXTEN);
    tty.raw.c_iflag &= ~(tcflag_t)(ICRNL | INLCR | IXON);
    tty.raw.c_cc[VMIN] = 1;
    tty.raw.c_cc[VTIME] = 0;
    struct sigaction action = {.sa_handler = on_wake_signal, .sa_flags = SA_RESTART | SA_NODEFER};
    for (size_t i = 0; i < sizeof wakes / sizeof *wakes; i++) sigaction(wakes[i], &action, NULL);

    signals_restore_with(terminal_restore);
    terminal_take();
    return e;
}

bool editor_is_terminal(const Editor *e) { return e->is_terminal; }

// History

// Offset of the entry before (by < 0) or after (by > 0) the entry at `at`.
static size_t history_step(const Buffer *history, size_t at, int by) {
    if (by > 0) return at + strcspn(history->data + at, "\n") + 1;
    for (at--; at > 0 && history->data[at - 1] != '\n'; at--) {
    }
    return at;
}

// Adds a text to the history and its file, unless it equals the last entry.
static void history_add(Editor *e, const Buffer *text) {
    Buffer *h = &e->history;
    size_t begin = h->len;
    size_t last = begin ? history_step(h, begin, -1) : 0; // the last entry
    if (!text->len) return;

    // An entry is one line: newlines of the text become carriage returns.
    buffer_put(h, buffer_str(text));
    buffer_puts(h, "\n");
    for (char *at = h->data + begin; (at = strchr(at, '\n')) && at[1];) *at = '\r';

    // Remove the new entry if it equals the last one.
    if (begin - last == h->len - begin && !memcmp(h->data + last, h->data + begin, begin - last)) {
        h->len = begin;
        h->data[begin] = 0;
        return;
    }

    if (!e->history_path) return;
    int fd = open(e->history_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0) return;
    write_all(fd, h->data + begin, h->len - begin);
    close(fd);
}

// Keys

// Returns the next input byte; NO_KEY after timeout_ms (-1: no timeout); WOKEN after a signal; or
// END_OF_INPUT.
static int next_key(Editor *e, int timeout_ms) {
    while (e->next_key == e->n_keys) {
        struct pollfd fds[2] = {{.fd = STDIN_FILENO, .events = POLLIN},
                                {.fd = tty.wake[0], .events = POLLIN}};
        int ready = poll(fds, tty.wake[0] < 0 ? 1 : 2, timeout_ms);

        if (ready < 0 && errno != EINTR) return END_OF_INPUT;
        if (ready == 0) return NO_KEY;
        if (ready > 0 && fds[1].revents & POLLIN) {
            while (read(tty.wake[0], e->keys, sizeof e->keys) > 0) {
            }
            return WOKEN;
        }

        if (ready < 0 || !fds[0].revents) continue;
        ssize_t n = read(STDIN_FILENO, e->keys, sizeof e->keys);
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (n <= 0) return END_OF_INPUT; // n < 0: the terminal hung up

        e->next_key = 0;
        e->n_keys = (size_t)n;
    }

    return e->keys[e->next_key++];
}

// Positions in the text

static bool is_word_char(char c) { return isalnum((unsigned char)c) || c == '_' || (c & 0x80); }
static bool is_newline(char c) { return c == '\n'; }
static bool is_visible(char c) { return c != ' ' && c != '\n' && c != '\t'; }

// Offset of the code point that the byte at `at` is part of.
static size_t code_point_start(const Buffer *text, size_t at) {
    while (at > 0 && (text->data[at] & 0xc0) == 0x80) at--;
    return at;
}

// Moves from `at` to the left (by -1) or right (by 1) over all bytes for which class() returns
// is_in. Returns the offset reached.
static size_t skip_class(const Editor *e, size_t at, int by, bool (*class)(char), bool is_in) {
    size_t end = by < 0 ? 0 : e->text.len;
    const char *next = e->text.data - (by < 0);
    while (at != end && class(next[at]) == is_in) at += (size_t)by;
    return at;
}

// Offset of the nearest beginning of a word left of the cursor (by -1), or of the nearest end of a
// word right of it (by 1).
static size_t word_edge(const Editor *e, int by, bool (*class)(char)) {
    return skip_class(e, skip_class(e, e->at, by, class, false), by, class, true);
}

// Offset of the beginning (by -1) or end (by 1) of the cursor's line.
static size_t row_edge(const Editor *e, int by) {
    return skip_class(e, e->at, by, is_newline, false);
}

// The screen

// Returns the length of the character at s in bytes, its printable form, and the width of that form
// in columns. Control characters are shown as ^X; invalid bytes and unprintable characters as "?".
static int show_char(const char *s, size_t n, int *columns, char shown[8]) {
    uint32_t code;
    int len = utf8_decode(s, n, &code); // 0: not UTF-8
    int width = len > 1 ? wcwidth((wchar_t)code) : -1;

    if (*s >= 0x20 && *s < 0x7f)
        snprintf(shown, 8, "%c", *s);
    else if (*s == '\t')
        snprintf(shown, 8, "    ");
    else if (len == 1)
        snprintf(shown, 8, "^%c", *s ^ 0x40);
    else if (width < 0)
        snprintf(shown, 8, "?");
    else
        snprintf(shown, 8, "%.*s", len, s);

    *columns = width < 0 ? (int)strlen(shown) : width;
    return len ? len : 1;
}

// Offset of the end of the character at `at`, including combining characters and joined emoji. A
// newline is never part of another character.
static size_t char_after(const Editor *e, size_t at) {
    char shown[8];
    int columns;
    bool is_joined = false;
    for (size_t begin = at; at < e->text.len;) {
        const char *next = e->text.data + at;
        int len = show_char(next, e->text.len - at, &columns, shown);
        bool is_line_end = is_newline(*next) || (at > begin && is_newline(next[-1]));
        if (at > begin && (is_line_end || (columns > 0 && !is_joined))) break;
        is_joined = len == 3 && !memcmp(next, "\xe2\x80\x8d", 3); // zero width joiner
        at += (size_t)len;
    }
    return at;
}

// Offset of the character before `at`. Scans its line from the left, because joined characters
// cannot be recognized from the right.
static size_t char_before(const Editor *e, size_t at) {
    size_t last = at > 0 ? skip_class(e, at - 1, -1, is_newline, false) : 0;
    for (size_t i = last; i < at; i = char_after(e, i)) last = i;
    return last;
}

// Lays out prompt and text in rows of `columns` columns, separated by "\r\n". Returns the number of
// rows and the position of the cursor. A row that follows a newline of the text is indented by 2.
// If the cursor or the end of the text follows a full row, a new row begins: a terminal would leave
// the cursor on the last column.
//
// The rows begin with the line that is height - 1 lines above the cursor's, or with the prompt.
// They end at the last row that a screen of `height` rows can show.
static int lay_out(const Editor *e, int columns, int height, Buffer *out, int *cursor_row,
                   int *cursor_column) {
    size_t n_prompt = strlen(e->prompt), n_all = n_prompt + e->text.len;
    int max_rows = INT_MAX; // known once the cursor is laid out
    int row = 0;

    size_t begin = row_edge(e, -1);
    for (int i = 1; i < height && begin > 0; i++)
        begin = skip_class(e, begin - 1, -1, is_newline, false);
    int column = begin > 0 ? 2 : 0;
    buffer_puts(out, begin > 0 ? "  " : "");

    // One iteration per character of prompt and text, and one for the end of the text.
    for (size_t i = begin > 0 ? n_prompt + begin : 0, len = 1; i <= n_all; i += len) {
        char shown[8] = "";
        int width = 0;
        const char *at = i < n_prompt ? e->prompt + i : e->text.data + (i - n_prompt);
        size_t n_left = i < n_prompt ? n_prompt - i : n_all - i;
        bool is_end = n_left == 0, is_line_end = !is_end && *at == '\n';

        len = 1;
        if (!is_end && !is_line_end) len = (size_t)show_char(at, n_left, &width, shown);

        // The cursor takes a column, too.
        bool is_cursor = i == n_prompt + e->at;
        bool is_full = column + width > columns || (column == columns && (is_cursor || is_end));
        if (is_full && !is_line_end) {
            if (row + 1 == max_rows) break;
            row++;
            column = 0;
            buffer_puts(out, "\r\n");
        }

        if (is_cursor) {
            *cursor_row = row;
            *cursor_column = column < columns ? column : columns - 1;
            max_rows = row < height ? height : row + 1;
        }

        if (is_line_end && row + 1 == max_rows) break;
        row += is_line_end;
        column = is_line_end ? 2 : column + width;
        buffer_puts(out, is_line_end ? "\r\n  " : shown);
    }

    return row + 1;
}

// Redraws prompt and text (see the top of this file).
static void draw_text(Editor *e) {
    struct winsize size = {0};
    Buffer rows = {0}, out = {0};
    int row = 0, column = 0;

    if (ioctl(e->out, TIOCGWINSZ, &size) || !size.ws_col || !size.ws_row) {
        size.ws_col = 80;
        size.ws_row = 24;
    }

    // The visible rows are [top, n_rows). They include the row of the cursor.
    int columns = size.ws_col > 8 ? size.ws_col : 8;
    int height = size.ws_row > 2 ? size.ws_row - 1 : 1;
    int n_rows = lay_out(e, columns, height, &rows, &row, &column);
    int top = row >= height ? row - height + 1 : 0;
    const char *begin = rows.data;
    for (int i = 0; i < top; i++) begin = strstr(begin, "\r\n") + 2;

    // Move up to the first row, clear the screen below, write the rows, move back to the cursor.
    if (e->cursor_row > 0) buffer_printf(&out, "\x1b[%dA", e->cursor_row);
    buffer_puts(&out, "\r\x1b[J");
    buffer_puts(&out, begin);

    if (n_rows - 1 > row) buffer_printf(&out, "\x1b[%dA", n_rows - 1 - row);
    buffer_puts(&out, "\r");
    if (column) buffer_printf(&out, "\x1b[%dC", column);
    write_all(e->out, out.data, out.len);
    e->cursor_row = row - top;

    buffer_free(&rows);
    buffer_free(&out);
}

// Editing

static void insert_text(Editor *e, const char *s, size_t n) {
    buffer_append(&e->text, s, n); // grows the buffer
    memmove(e->text.data + e->at + n, e->text.data + e->at, e->text.len - n - e->at);
    memcpy(e->text.data + e->at, s, n);
    e->at += n;
}

// Removes the bytes [from, to) of the text. If is_kept, Ctrl-Y can insert them again.
static void cut_text(Editor *e, size_t from, size_t to, bool is_kept) {
    if (is_kept && to > from) {
        e->killed.len = 0;
        buffer_append(&e->killed, e->text.data + from, to - from);
    }
    memmove(e->text.data + from, e->text.data + to, e->text.len - to + 1);
    e->text.len -= to - from;
    e->at = from;
}

// Replaces the text and moves the cursor to its end.
static void set_text(Editor *e, const char *s, size_t n) {
    e->text.len = e->at = 0;
    e->is_pasted = false;
    insert_text(e, s, n);
}

static void show_entry(Editor *e, size_t at) {
    set_text(e, e->history.data + at, strcspn(e->history.data + at, "\n"));
    for (char *c = e->text.data; (c = strchr(c, '\r'));) *c = '\n';
}

// Moves the cursor one line up (by -1) or down (by 1). From the first or last line, shows the
// previous or next history entry instead.
static void move_row(Editor *e, int by) {
    size_t begin = row_edge(e, -1), end = row_edge(e, 1);
    size_t column = e->at - begin; // bytes

    // Move within the text.
    if (by < 0 ? begin > 0 : end < e->text.len) {
        e->at = by < 0 ? begin - 1 : end + 1;
        begin = row_edge(e, -1);
        end = row_edge(e, 1);
        e->at = code_point_start(&e->text, begin + column < end ? begin + column : end);
        return;
    }

    // Move to another history entry. The new text comes after the last entry.
    if (e->seen == (by < 0 ? 0 : e->history.len)) return;
    if (e->seen == e->history.len) {
        e->draft.len = 0;
        buffer_put(&e->draft, buffer_str(&e->text));
    }

    e->seen = history_step(&e->history, e->seen, by);
    if (e->seen == e->history.len)
        set_text(e, e->draft.data, e->draft.len);
    else
        show_entry(e, e->seen);
}

// Inserts a bracketed paste, up to its closing sequence. Its bytes are text, never keys; all line
// ends become newlines.
static void read_paste(Editor *e) {
    static const char end[] = "\x1b[201~";
    enum { N_END = sizeof end - 1 };
    Buffer in = {0};
    bool is_end = false;

    buffer_puts(&in, "");
    for (int key, last = 0;
         !is_end && (key = next_key(e, -1)) != END_OF_INPUT && !*tty.interrupted;) {
        bool is_pair = key == '\n' && last == '\r';
        if (key > 0 && !is_pair) buffer_append(&in, &(char){key == '\r' ? '\n' : (char)key}, 1);
        if (key >= 0) last = key;
        is_end = in.len >= N_END && !memcmp(in.data + in.len - N_END, end, N_END);
    }

    e->is_pasted |= e->at == 0;
    insert_text(e, in.data, in.len - (is_end ? N_END : 0));
    buffer_free(&in);
}

// Escape sequences

#define CTRL_KEY(letter) ((letter)&31)
#define ALT_KEY(key)     (256 + (key))
enum { KEY_PASTE = ALT_KEY(256) };

// Reads an escape sequence after its ESC. Returns the control or Alt key with the same effect,
// KEY_PASTE, or 0 for an unknown sequence. A key with Alt sends ESC KEY. Other keys send xterm's
// sequences: ESC [ FINAL or ESC [ NUMBER ; MODIFIER FINAL (modifier 3 is Alt, 5 is Ctrl).
static int read_escape(Editor *e) {
    // {final byte (1000 + NUMBER if it is '~'), key}
    static const int keys[][2] = {
        {'A', CTRL_KEY('P')},  {'B', CTRL_KEY('N')},  // up, down
        {'C', CTRL_KEY('F')},  {'D', CTRL_KEY('B')},  // right, left
        {'H', CTRL_KEY('A')},  {'F', CTRL_KEY('E')},  // Home, End
        {1001, CTRL_KEY('A')}, {1004, CTRL_KEY('E')}, // Home, End
        {1007, CTRL_KEY('A')}, {1008, CTRL_KEY('E')}, // Home, End
        {1003, CTRL_KEY('D')}, {1200, KEY_PASTE},     // Delete, beginning of a paste
    };
    int key = next_key(e, ESCAPE_MS);
    if (key != '[' && key != 'O') return ALT_KEY(key);

    // Read up to two numbers and the final byte.
    int final, first = 0, modifier = 0, *number = &first;
    while ((final = next_key(e, ESCAPE_MS)) >= 0 && final < 0x40)
        if (final == ';')
            number = &modifier;
        else if (final >= '0' && final <= '9' && *number < 1000)
            *number = *number * 10 + final - '0';

    // The right and left arrows with Alt or Ctrl move by words.
    if (final == 'C' && modifier >= 3) return ALT_KEY('f');
    if (final == 'D' && modifier >= 3) return ALT_KEY('b');

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (keys[i][0] == (final == '~' ? 1000 + first : final)) return keys[i][1];
    return 0;
}

// The end of a text

static bool is_quoted(const Buffer *text) {
    return text->len >= 6 && str_begins_with(buffer_str(text), "\"\"\"") &&
           str_ends_with(buffer_str(text), "\"\"\"");
}

// Handles Enter: adds a newline after an open """, or replaces a final backslash with a newline.
// Returns false if neither applies; the text is then complete.
static bool is_continued(Buffer *text) {
    if (str_begins_with(buffer_str(text), "\"\"\"") && !is_quoted(text)) {
        buffer_puts(text, "\n");
        return true;
    }
    if (!str_ends_with(buffer_str(text), "\\")) return false;
    text->data[text->len - 1] = '\n';
    return true;
}

// Sets `out` to the text without the """ around it.
static void unquote(const Buffer *text, Buffer *out) {
    Str s = buffer_str(text);
    if (is_quoted(text)) {
        s = (Str){s.data + 3, s.len - 6};
        if (str_begins_with(s, "\n")) s = (Str){s.data + 1, s.len - 1};
        if (str_ends_with(s, "\n")) s.len--;
    }
    out->len = 0;
    buffer_put(out, s);
}

// Search and completion

// Offset of the newest history entry before `end` that contains the query, or SIZE_MAX.
static size_t history_find(const Buffer *history, size_t end, const Buffer *query) {
    while (end > 0) {
        end = history_step(history, end, -1);
        Str entry = {history->data + end, strcspn(history->data + end, "\n")};
        if (str_contains(entry, query->data)) return end;
    }
    return SIZE_MAX;
}

// Appends a key to the query of a search, or removes its last character. False if the key has
// another effect.
static bool edit_query(Buffer *query, int key) {
    bool removes = key == 127 || key == CTRL_KEY('H');
    if (removes && query->len) {
        query->len = code_point_start(query, query->len - 1);
        query->data[query->len] = 0;
        return true;
    }

    if (removes || key < 0x20) return false;
    buffer_append(query, &(char){(char)key}, 1);
    return true;
}

// Ctrl-R: reads a query key by key and shows the newest history entry that contains it. Another
// Ctrl-R shows the next older match. Ctrl-G and Ctrl-C restore the text; any other key accepts the
// entry and then has its usual effect.
static void search_history(Editor *e) {
    const char *prompt = e->prompt;
    Str old = str_copy(buffer_str(&e->text));
    Buffer query = {0}, shown = {0};
    size_t end = e->history.len, found = SIZE_MAX;
    int key;

    buffer_puts(&query, "");

    for (;;) {
        shown.len = 0;
        buffer_printf(&shown, "search \"%s\"%s: ", query.data,
                      query.len && found == SIZE_MAX ? " (none)" : "");
        e->prompt = shown.data;
        draw_text(e);

        while ((key = next_key(e, -1)) < 0 && key != END_OF_INPUT && !*tty.interrupted)
            draw_text(e);

        bool is_repeated = key == CTRL_KEY('R');
        if (edit_query(&query, key))
            end = e->history.len;
        else if (!is_repeated)
            break;
        else if (found != SIZE_MAX)
            end = found; // the next older entry

        size_t next = query.len ? history_find(&e->history, end, &query) : SIZE_MAX;
        if (next == SIZE_MAX && is_repeated) continue;
        found = next;
        if (found != SIZE_MAX) show_entry(e, found);
    }

    if (key == CTRL_KEY('G') || *tty.interrupted) {
        set_text(e, old.data, old.len);
        *tty.interrupted = 0;
    } else if (key >= 0) {
        e->next_key--; // editor_read() handles this key
    }

    e->prompt = prompt;
    buffer_free(&query);
    buffer_free(&shown);
    free((void *)(uintptr_t)old.data);
}

static int compare_words(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

// Tab: inserts the longest common prefix of all completions. If it is already typed, lists them.
static void complete_word(Editor *e) {
    Buffer list = {0}, shown = {0};
    char **words = NULL;
    int n = 0;

    buffer_puts(&list, "");
    size_t typed = e->at - e->complete((Str){e->text.data, e->at}, &list);
    for (char *at = strtok(list.data, "\n"); at; at = strtok(NULL, "\n")) {
        words = list_grow(words, n, sizeof *words);
        words[n++] = at;
    }

    // The common prefix of sorted words is that of the first and the last one.
    size_t common = 0;
    if (n) {
        qsort(words, (size_t)n, sizeof *words, compare_words);
        while (words[0][common] && words[0][common] == words[n - 1][common]) common++;
        while (common && (words[0][common] & 0xc0) == 0x80) common--; // no part of a character
    }
    if (n && common > typed) {
        insert_text(e, words[0] + typed, common - typed);
        if (n == 1 && e->text.data[e->at - 1] != '/') insert_text(e, " ", 1);
    } else if (n > 1) {
        buffer_puts(&shown, "\r\n");
        for (int i = 0; i < n; i++) {
            buffer_put_escaped(&shown, str_of(words[i]), "");
            buffer_puts(&shown, i + 1 < n ? " " : "\r\n");
        }
        write_all(e->out, shown.data, shown.len);
        e->cursor_row = 0;
    }

    buffer_free(&list);
    buffer_free(&shown);
    free(words);
}

// Reading a text

// Handles a control key or an escape sequence.
static void handle_key(Editor *e, int key) {
    switch (key == 27 ? read_escape(e) : key) {
    // Move.
    case CTRL_KEY('A'): e->at = row_edge(e, -1); break;
    case CTRL_KEY('B'): e->at = char_before(e, e->at); break;
    case CTRL_KEY('E'): e->at = row_edge(e, 1); break;
    case CTRL_KEY('F'): e->at = char_after(e, e->at); break;
    case CTRL_KEY('N'): move_row(e, 1); break;
    case CTRL_KEY('P'): move_row(e, -1); break;
    case ALT_KEY('b'): e->at = word_edge(e, -1, is_word_char); break;
    case ALT_KEY('f'): e->at = word_edge(e, 1, is_word_char); break;

    // Cut.
    case CTRL_KEY('D'): cut_text(e, e->at, char_after(e, e->at), false); break;
    case CTRL_KEY('H'):
    case 127: cut_text(e, char_before(e, e->at), e->at, false); break;
    case CTRL_KEY('K'): cut_text(e, e->at, row_edge(e, 1), true); break;
    case CTRL_KEY('U'): cut_text(e, row_edge(e, -1), e->at, true); break;
    case CTRL_KEY('W'): cut_text(e, word_edge(e, -1, is_visible), e->at, true); break;
    case ALT_KEY('d'): cut_text(e, e->at, word_edge(e, 1, is_word_char), true); break;
    case ALT_KEY(8):
    case ALT_KEY(127): cut_text(e, word_edge(e, -1, is_word_char), e->at, true); break;

    // Insert.
    case CTRL_KEY('I'): complete_word(e); break;
    case CTRL_KEY('R'): search_history(e); break;
    case CTRL_KEY('Y'): insert_text(e, e->killed.data, e->killed.len); break;
    case ALT_KEY('\r'):
    case ALT_KEY('\n'): insert_text(e, "\n", 1); break;
    case KEY_PASTE: read_paste(e); break;

    case CTRL_KEY('L'):
        write_all(e->out, "\x1b[H\x1b[2J", 7);
        e->cursor_row = 0;
        break;
    }
}

// Reads a text without editing: one line, and another one while is_continued() returns true.
static EditorResult read_line(Editor *e, const char *prompt, Buffer *out) {
    size_t begin = 0;
    int key = NO_KEY;

    set_text(e, "", 0);
    write_all(e->out, prompt, strlen(prompt));

    while (!*tty.interrupted && key != END_OF_INPUT) {
        key = next_key(e, INTERRUPT_MS);
        if (key >= 0 && key != '\n') {
            buffer_append(&e->text, &(char){(char)key}, 1);
        } else if (key != NO_KEY) { // the end of a line or of the input
            if (e->text.len > begin && e->text.data[e->text.len - 1] == '\r')
                e->text.data[--e->text.len] = 0;
            if (!is_continued(&e->text)) break;
            begin = e->text.len;
        }
    }

    if (*tty.interrupted) {
        *tty.interrupted = 0;
        write_all(e->out, "\n", 1);
        return EDITOR_INTERRUPTED;
    }
    if (key == END_OF_INPUT && e->text.len == 0) return EDITOR_CLOSED;

    unquote(&e->text, out);
    return EDITOR_TYPED;
}

// Ctrl-C: leaves the text on the screen and begins an empty one. False if the text was empty or is
// an edit of an earlier one, which ends.
static bool interrupt_text(Editor *e, bool is_edit) {
    bool is_over = e->text.len == 0 || is_edit;
    *tty.interrupted = 0;

    e->at = e->text.len; // moves the cursor to the last row
    draw_text(e);
    write_all(e->out, "^C\r\n", 4);
    if (is_over) return false;

    set_text(e, "", 0);
    e->cursor_row = 0;
    return true;
}

EditorResult editor_read(Editor *e, const char *prompt, const char *text, Buffer *out) {
    if (e->is_dumb) return read_line(e, prompt, out);

    e->prompt = prompt;
    e->cursor_row = 0;
    e->seen = e->history.len;
    buffer_puts(&e->killed, "");
    set_text(e, text, strlen(text));
    draw_text(e);

    for (;;) {
        int key = *tty.interrupted ? WOKEN : next_key(e, -1); // Ctrl-C may have ended a paste

        if (*tty.interrupted) {
            if (!interrupt_text(e, *text)) return EDITOR_INTERRUPTED;
        } else if (key == END_OF_INPUT || (key == 4 && e->text.len == 0)) {
            write_all(e->out, "\r\n", 2);
            return EDITOR_CLOSED;
        } else if (key == '\r' || key == '\n') {
            e->at = e->text.len;
            if (!is_continued(&e->text)) break;
            e->at = e->text.len;
        } else if (key >= 0x20 && key != 127) {
            e->is_pasted &= e->at > 0;
            insert_text(e, &(char){(char)key}, 1);
        } else if (key >= 0) {
            handle_key(e, key);
        }

        if (e->next_key == e->n_keys) draw_text(e);
    }

    draw_text(e);
    write_all(e->out, "\r\n", 2);
    unquote(&e->text, out);
    history_add(e, &e->text);
    return e->is_pasted ? EDITOR_PASTED : EDITOR_TYPED;
}
