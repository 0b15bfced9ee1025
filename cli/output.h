// What a command line says: text on stdout, by one set of rules, and notes on stderr.
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include "options.h"

// A line (or the several of a text) on stderr unless -q (o NULL: always); dim on a terminal, which nothing in it may
// drive.
void note(const Options *o, const char *fmt, ...) PRINTF_LIKE(2, 3);
// Writes to a file, or flushes stdio's stdout. A closed pipe ends the program quietly, any other error with exit 1.
void output_write(int fd, const char *path, const void *data, size_t n);
void stdout_flush(void);
// Writes text to stdout by the same rules, control bytes escaped when it is a terminal.
void text_write(const char *text, size_t n);
// Writes a buffer so, and frees it.
void text_print(Buffer *text);
// text_write as Request.emit.
bool text_emit(void *arg, const char *text, size_t n);

#endif
