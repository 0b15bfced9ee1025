// See wrap.h. East Asian wide characters need no spaces: a row may end before and after each.
#include "cli/wrap.h"

#include <wchar.h>

// needs_space: a space follows, for which the row must have a column, too.
static void put_word(Wrap *w, bool needs_space, Buffer *out) {
    size_t n_left = w->columns - w->column;
    if (w->column && w->width + needs_space > n_left && w->width <= w->columns) {
        buffer_printf(out, "%*s", (int)n_left, "");
        w->column = 0;
    }

    buffer_put(out, buffer_str(&w->word));
    w->column += w->width;
    if (w->column > w->columns) w->column = (w->column - 1) % w->columns + 1;
    w->word.len = w->width = 0;
}

void wrap_put(Wrap *w, const char *shown, bool is_verbatim, size_t columns, Buffer *out) {
    size_t n = strlen(shown);
    uint32_t code;
    bool is_multibyte = n > 1 && utf8_decode(shown, n, &code) == (int)n;
    int width = is_multibyte ? wcwidth((wchar_t)code) : (int)n; // \xNN has 4 columns
    bool is_space = n == 1 && strchr(" \t\n", *shown);

    w->columns = w->columns && w->columns != columns ? SIZE_MAX : columns;
    if (width < 0) width = 1; // unknown to the C library

    // A character of a word, of which no more than a row is held back.
    if (!is_space && !is_verbatim && !(is_multibyte && width == 2)) {
        buffer_puts(&w->word, shown);
        w->width += (size_t)width;
        if (w->width >= columns) put_word(w, false, out);
        return;
    }

    // A character between words.
    put_word(w, *shown == ' ', out);
    buffer_puts(out, shown);
    if (*shown == '\t') width = 8 - (int)(w->column % 8);
    if (w->column + (size_t)width > columns) w->column = 0; // on the next row
    w->column += (size_t)width;
    if (*shown == '\n') w->column = w->columns = 0;
}

void wrap_put_style(Wrap *w, const char *sequence, Buffer *out) {
    buffer_puts(w->word.len ? &w->word : out, sequence);
}

void wrap_end(Wrap *w, Buffer *out) {
    put_word(w, false, out);
    buffer_free(&w->word);
}
