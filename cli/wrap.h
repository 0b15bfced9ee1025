// Wraps an answer on a terminal between words.
//
// A word that does not fit the rest of its row is preceded by spaces up to the edge, where the
// terminal breaks the line itself. No newline is added, so a copied paragraph is one line.
#pragma once

#include "base/text.h"

// Zero-initialize for each text.
typedef struct {
    Buffer word;    // the last word, held back until it is complete, with its styles
    size_t width;   // of this word, in columns
    size_t column;  // where it begins
    size_t columns; // of the terminal; 0: a line begins, SIZE_MAX: resized within the line, which
                    // the terminal wraps from here on
} Wrap;

// Appends a character in its printable form; columns: width of the terminal, SIZE_MAX: do not wrap.
// Verbatim text is left to the terminal.
void wrap_put(Wrap *w, const char *shown, bool is_verbatim, size_t columns, Buffer *out);
// Appends an escape sequence.
void wrap_put_style(Wrap *w, const char *sequence, Buffer *out);
// Appends the word that was held back.
void wrap_end(Wrap *w, Buffer *out);
