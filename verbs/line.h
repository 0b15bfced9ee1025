// A line editor for terminals: several rows, UTF-8, history, paste; plain lines where standard input is no terminal.
#ifndef VERBS_LINE_H
#define VERBS_LINE_H

#include "../base/util.h"

typedef struct Line Line;

typedef enum {
    LINE_TYPED,
    LINE_CLOSED,     // end of input, or Ctrl-D at an empty prompt
    LINE_INTERRUPTED // Ctrl-C at an empty prompt
} LineResult;

// Takes the terminal over, if standard input is one, until the end of the process, however it ends: keys are read one
// by one, and Ctrl-C sets *interrupted. `history` is a file that
// the process may keep, or NULL. Once.
Line *line_open(const char *history, volatile int *interrupted);
bool line_is_terminal(const Line *l);

// Reads one text into out (replaced), beginning with `text`. A trailing backslash and an open """ continue it on the
// next row; the quotes are not part of it.
LineResult line_read(Line *l, const char *prompt, const char *text, Buffer *out);

#endif
