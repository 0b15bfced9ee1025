// A line is broken before a word that does not fit. So a word is printed only when it is complete,
// and white space only after its word.
#include "wrap.h"
#include "output.h"

#include <unistd.h>
#include <wchar.h>

// Columns of the character at s, and its length in bytes.
static int char_columns(const char *s, size_t n, int *len) {
    uint32_t code;
    *len = utf8_decode(s, n, &code);
    int width = *len == 0 ? 1 : code < 0x7f ? 1 : wcwidth((wchar_t)code);
    if (*len == 0) *len = 1;
    return width < 0 ? 1 : width;
}

static void put_word(TextWrap *w) {
    text_write(w->word.data, w->word.len);
    w->column += w->word_columns;
    w->word.len = 0, w->word_columns = 0;
}

static void put_break(TextWrap *w) {
    text_write("\n", 1);
    w->column = 0;
}

// White space follows the word before it; at the end of a line it becomes the line break.
static void wrap_space(TextWrap *w, char c) {
    put_word(w);
    if (c == '\n' || w->column + 1 >= w->columns) {
        put_break(w);
        w->columns = terminal_columns(STDOUT_FILENO);
    } else {
        text_write(&c, 1);
        w->column += c == '\t' ? 8 - w->column % 8 : 1;
    }
}

// Lines may also break beside wide characters (Chinese, Japanese) and within a word that is longer
// than a line.
static void wrap_char(TextWrap *w, const char *s, int n, int width) {
    if (width > 1) put_word(w);
    if (w->column && w->column + w->word_columns + width > w->columns) put_break(w);
    buffer_append(&w->word, s, (size_t)n);
    w->word_columns += width;
    if (width > 1 || w->word_columns >= w->columns) put_word(w);
}

void text_wrap(TextWrap *w, const char *text, size_t n) {
    if (!isatty(STDOUT_FILENO)) {
        text_write(text, n);
        return;
    }
    if (!w->columns) w->columns = terminal_columns(STDOUT_FILENO);
    for (size_t i = 0; i < n;) {
        int len, width = char_columns(text + i, n - i, &len);
        if (text[i] == ' ' || text[i] == '\n' || text[i] == '\t')
            wrap_space(w, text[i]);
        else
            wrap_char(w, text + i, len, width);
        i += (size_t)len;
    }
}

void text_wrap_end(TextWrap *w) {
    if (w->word.len) put_word(w);
    buffer_free(&w->word);
    w->column = w->columns = 0;
}
