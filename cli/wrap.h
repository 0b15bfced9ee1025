// Wraps an answer on a terminal between words.
//
// A newline replaces the white space before a word that does not fit the rest of its row. So copied
// text has its words and no runs of spaces. The white space is held back with the word. A word that
// is longer than a row, and a text without spaces, are left to the terminal.
#pragma once

#include "base/text.h"

// Zero-initialize for each text.
typedef struct {
    Buffer space;       // the white space before the word, held back
    Buffer word;        // the last word, held back until it is complete, with its styles
    size_t space_width; // in columns
    size_t width;       // of the word
    bool is_cut;        // the word continues one of which a row has been written
    size_t column;      // where the white space begins
    size_t columns;     // of the terminal; 0: a line begins, SIZE_MAX: resized within the line,
                        // which the terminal wraps from here on
} Wrap;

// Appends a character in its printable form; columns: width of the terminal, SIZE_MAX: do not wrap.
// Verbatim text is left to the terminal.
void wrap_put(Wrap *w, const char *shown, bool is_verbatim, size_t columns, Buffer *out);
// Appends an escape sequence.
void wrap_put_style(Wrap *w, const char *sequence, Buffer *out);
// Appends what was held back.
void wrap_end(Wrap *w, Buffer *out);
