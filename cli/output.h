// What a command line says: text on stdout, by one set of rules, and notes on stderr.
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include "options.h"

// Whether escape sequences mean something to the terminal at fd: false for none and for TERM=dumb.
bool terminal_has_escapes(int fd);
// Columns of the terminal that text goes to; 80 where it does not say.
int terminal_columns(int fd);

// A line (or the several of a text) on stderr unless -q (o NULL: always); dim on a terminal, which
// nothing in it may drive.
void note(const Options *o, const char *fmt, ...) PRINTF_LIKE(2, 3);
// "1 message", "2 messages"; in static memory.
const char *count_of(int n, const char *noun);
// A line of progress on stderr, where it is a terminal (no -q, no TERM=dumb), in place of the one
// before. It is erased by progress_end, by a note and by text.
void progress_print(const Options *o, const char *fmt, ...) PRINTF_LIKE(2, 3);
void progress_end(void);
// The same for a prompt of n tokens, n_done of which were read since start_sec; n = 0: nobody knows
// how many there are.
void progress_prefill(const Options *o, uint64_t n_done, uint64_t n, double start_sec);
// Text as it may be shown in one line; valid until the next call.
const char *printable(Str s);
// Writes to a file, or flushes stdio's stdout. A closed pipe ends the program quietly, any other
// error with exit 1.
void output_write(int fd, const char *path, const void *data, size_t n);
void stdout_flush(void);
// Writes text to stdout by the same rules, control bytes escaped when it is a terminal.
void text_write(const char *text, size_t n);
// What follows on stdout is dim, or no longer, if it is a terminal that can.
void text_dim(bool is_dim);
// Writes a buffer so, and frees it.
void text_print(Buffer *text);
// The same, broken between words where a terminal's line ends. Holds the last word back: NULL
// writes it, at the end.
void text_wrap(const char *text, size_t n);
// text_write as Request.emit.
bool text_emit(void *arg, const char *text, size_t n);

#endif
