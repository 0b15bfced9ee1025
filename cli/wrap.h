// Word wrap for text that arrives in pieces and is printed as soon as possible.
#ifndef CLI_WRAP_H
#define CLI_WRAP_H

#include "../base/text.h"

// Zero-initialise.
typedef struct {
    Buffer word; // not yet written: it may have to move to the next line
    int word_columns;
    int column, columns; // of the cursor; of the terminal, 0 before the first text
} TextWrap;

// Writes text to stdout, wrapped between words if that is a terminal. The last word is held back.
void text_wrap(TextWrap *w, const char *text, size_t n);
// Writes the word that was held back.
void text_wrap_end(TextWrap *w);

#endif
