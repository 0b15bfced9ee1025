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

// Appends white space and word, or a newline and the word.
static void put_word(Wrap *w, Buffer *out) {
    if (!w->word.len) return;

    bool fits = w->space_width + w->width <= w->columns - w->column;
    if (!fits && w->column && !w->is_cut && w->width <= w->columns) {
        buffer_puts(out, "\n");
        w->space.len = w->space_width = w->column = 0;
    }
    put_space(w, out);

    buffer_put(out, buffer_str(&w->word));
    advance(w, w->width);
    w->word.len = w->width = 0;
}

void wrap_put(Wrap *w, const char *shown, bool is_verbatim, size_t columns, Buffer *out) {
    size_t n = strlen(shown);
    uint32_t code;
    bool is_multibyte = n > 1 && utf8_decode(shown, n, &code) == (int)n;
    int width = is_multibyte ? wcwidth((wchar_t)code) : (int)n; // \xNN has 4 columns
    bool is_wide = is_multibyte && width == 2;
    bool is_space = n == 1 && strchr(" \t\n", *shown);

    w->columns = w->columns && w->columns != columns ? SIZE_MAX : columns;
    if (width < 0) width = 1; // unknown to the C library

    // A character of a word, of which no more than a row is held back.
    if (!is_space && !is_verbatim && !is_wide) {
        buffer_puts(&w->word, shown);
        w->width += (size_t)width;
        if (w->width < columns) return;
        put_word(w, out);
        w->is_cut = true;
        return;
    }

    // White space within a line is held back.
    put_word(w, out);
    w->is_cut = false;
    if (*shown == '\t') width = 8 - (int)((w->column + w->space_width) % 8);
    if (is_space && *shown != '\n' && !is_verbatim) {
        buffer_puts(&w->space, shown);
        w->space_width += (size_t)width;
        return;
    }

    // Before a wide character, a newline replaces white space only.
    bool fits = w->space_width + (size_t)width <= w->columns - w->column;
    if (is_wide && !is_verbatim && w->space.len && !fits) {
        buffer_puts(out, "\n");
        w->space.len = w->space_width = w->column = 0;
    }
    put_space(w, out);
    buffer_puts(out, shown);
    if (is_wide && w->column + 2 > w->columns) w->column = 0; // the last column stays empty
    advance(w, (size_t)width);
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
