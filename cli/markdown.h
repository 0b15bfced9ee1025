// Markdown styles for text that arrives in pieces: headings and bold text bold, code in color.
//
// Only SGR sequences are added, and the newlines of wrap.h. The other characters stay as they are,
// with their markers.
#pragma once

#include "cli/wrap.h"

// Zero-initialize for each text, except for the first two fields.
typedef struct {
    bool is_plain;  // no styles
    size_t columns; // of the terminal, where words are wrapped; SIZE_MAX: they are not
    unsigned style; // bits, see markdown.c
    char marker;    // '*', '`' or '#': the character of the last run of markers
    int n_run;      // length of this run if it is held back, else 0
    char before;    // the character before the run
    Wrap wrap;
    bool in_line; // something other than white space precedes it on its line
} Markdown;

// Appends the next piece of a text with its styles. Control characters are escaped. A run of
// markers at the end of the piece is held back, because its effect depends on the next character.
void markdown_put(Markdown *m, Str text, Buffer *out);
// Appends the run that was held back, and ends all styles.
void markdown_end(Markdown *m, Buffer *out);
