// A line editor for terminals: UTF-8, texts of several rows, history, search, completion and paste.
// Without a terminal it reads lines.
//
// editor_open() once, then editor_read() for each text. The editor owns the terminal until the
// process ends, and restores it however that happens.
#pragma once

#include "../base/text.h"

typedef struct Editor Editor;

// What Tab asks: appends all completions of the last word of `before`, the text up to the cursor,
// one per line.
typedef void (*Completer)(Str before, Buffer *out);

typedef enum {
    EDITOR_TYPED,
    EDITOR_CLOSED,     // end of input, or Ctrl-D at an empty prompt
    EDITOR_INTERRUPTED // Ctrl-C at an empty prompt
} EditorResult;

// If standard input and output are a terminal, sets it to deliver single keys; Ctrl-C then sets
// *interrupted. A terminal without escape sequences (TERM=dumb) keeps its settings and delivers
// lines. `history`: the file of the history, or NULL.
Editor *editor_open(const char *history, Completer complete, volatile int *interrupted);
bool editor_is_terminal(const Editor *e);

// Reads one text into `out` (replaced); editing begins with `text`. A final backslash or an open
// """ continues the text on the next row; the quotes are removed.
EditorResult editor_read(Editor *e, const char *prompt, const char *text, Buffer *out);
