// A line editor for terminals: several rows, UTF-8, history, paste; plain lines where standard
// input is no terminal.
#ifndef EDITOR_EDITOR_H
#define EDITOR_EDITOR_H

#include "../base/util.h"

typedef struct Editor Editor;

typedef enum {
    EDITOR_TYPED,
    EDITOR_CLOSED,     // end of input, or Ctrl-D at an empty prompt
    EDITOR_INTERRUPTED // Ctrl-C at an empty prompt
} EditorResult;

// Takes the terminal over, if standard input is one, until the end of the process, however it ends:
// keys are read one by one, and Ctrl-C sets *interrupted. `history` is a file that the process may
// keep, or NULL. A terminal without escapes (TERM=dumb) stays as it is and gives whole lines. Once.
Editor *editor_open(const char *history, volatile int *interrupted);
bool editor_is_terminal(const Editor *l);
// What Tab asks: `complete` appends all that the last word of `before` (the text up to the cursor)
// may become, a line each.
void editor_completer(Editor *l, void (*complete)(void *arg, Str before, Buffer *out), void *arg);

// Reads one text into out (replaced), beginning with `text`. A trailing backslash and an open """
// continue it on the next row; the quotes are not part of it.
EditorResult editor_read(Editor *l, const char *prompt, const char *text, Buffer *out);

#endif
