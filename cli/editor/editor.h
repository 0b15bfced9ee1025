// A line editor for terminals with UTF-8, multi-line texts, history, search, completion and paste.
//
// Call editor_open() once, then editor_read() for each text. The editor owns the terminal until the
// process ends. It restores the terminal on every exit and on every signal that can be caught.
#pragma once

#include "base/text.h"

typedef struct Editor Editor;

// Called for the Tab key. `before` is the text up to the cursor. Appends all completions of its
// last part, one per line, and returns the offset where this part begins.
typedef size_t (*Completer)(Str before, Buffer *out);

typedef enum {
    EDITOR_TYPED,
    EDITOR_PASTED,     // as EDITOR_TYPED; the beginning of the text was pasted
    EDITOR_CLOSED,     // end of input, or Ctrl-D at an empty prompt
    EDITOR_INTERRUPTED // Ctrl-C at an empty prompt
} EditorResult;

// If standard input and output are a terminal, switches it to single-key input; Ctrl-C then sets
// *interrupted. A terminal without escape sequences (TERM=dumb) keeps its settings and delivers
// lines. `history`: path of the history file, or NULL.
Editor *editor_open(const char *history, Completer complete, volatile int *interrupted);
bool editor_is_terminal(const Editor *e);

// Reads one text of the terminal into `out`, whose content it replaces. `text` is the initial text,
// which the user edits. A final backslash or an open """ continues the text on the next line; the
// quotes are removed.
EditorResult editor_read(Editor *e, const char *prompt, const char *text, Buffer *out);
