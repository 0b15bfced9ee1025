// See wrap.h. An East Asian wide character is a word of its own: a row may end before and after it.
#include "cli/wrap.h"

#include <wchar.h>

// The column after a text of this width, which the terminal wraps.
static void advance(Wrap *w, size_t width) {
    w->column += width;
    if (w->column > w->columns) w->column = (w->column - 1) % w->columns + 1;
}

// Appends the white space, or drops it if it does not fit the row.
static void put_space(Wrap *w, Buffer *out) {
    if (w->space_width <= w->columns - w->column) {
        buffer_put(out, buffer_str(&w->space));
        w->column += w->space_width;
    }
    w->space.len = w->space_width = 0;
}

// A newline instead of the white space.
static void break_row(Wrap *w, Buffer *out) {
    buffer_puts(out, "\n");
    w->space.len = w->space_width = w->column = 0;
}

// Appends white space and word, or a newline and the word.
static void put_word(Wrap *w, Buffer *out) {
    if (!w->word.len) return;

    bool fits = w->space_width + w->width <= w->columns - w->column;
    if (!fits && w->column && !w->is_cut && w->width <= w->columns) break_row(w, out);
    put_space(w, out);

    buffer_put(out, buffer_str(&w->word));
    advance(w, w->width);
    w->word.len = w->width = 0;
}

// Width of a character in its printable form; \xNN has 4 columns.
static size_t width_of(const char *shown) {
    size_t n = strlen(shown);
    uint32_t code;
    if (n == 1 || utf8_decode(shown, n, &code) != (int)n) return n;
    int width = wcwidth((wchar_t)code);
    return width < 0 ? 1 : (size_t)width; // 1: unknown to the C library
}

// A character of a word, of which no more than a row is held back.
static void put_in_word(Wrap *w, const char *shown, Buffer *out) {
    buffer_puts(&w->word, shown);
    w->width += width_of(shown);
    if (w->width < w->columns) return;
    put_word(w, out);
    w->is_cut = true;
}

void wrap_put(Wrap *w, const char *shown, bool is_verbatim, size_t columns, Buffer *out) {
    bool is_space = shown[1] == 0 && strchr(" \t\n", *shown);
    size_t width = width_of(shown);
    bool is_wide = width == 2 && (*shown & 0x80);

    w->columns = w->columns && w->columns != columns ? SIZE_MAX : columns;
    if (!is_space && !is_verbatim && !is_wide) {
        put_in_word(w, shown, out);
        return;
    }

    put_word(w, out);
    w->is_cut = false;
    if (*shown == '\t') width = 8 - (w->column + w->space_width) % 8;

    // White space within a line is held back.
    if (is_space && *shown != '\n' && !is_verbatim) {
        buffer_puts(&w->space, shown);
        w->space_width += width;
        return;
    }

    // Before a wide character, a newline replaces white space only.
    bool fits = w->space_width + width <= w->columns - w->column;
    if (is_wide && w->space.len && !fits) break_row(w, out);
    put_space(w, out);
    buffer_puts(out, shown);
    if (is_wide && w->column + 2 > w->columns) w->column = 0; // the last column stays empty
    advance(w, width);
    if (*shown == '\n') w->column = w->columns = 0;
}

void wrap_put_style(Wrap *w, const char *sequence, Buffer *out) {
    buffer_puts(w->word.len || w->space.len ? &w->word : out, sequence);
}

void wrap_end(Wrap *w, Buffer *out) {
    put_word(w, out);
    put_space(w, out);
    buffer_free(&w->word);
    buffer_free(&w->space);
}
