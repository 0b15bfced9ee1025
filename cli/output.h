// Output of the commands: text on stdout, notes and progress on stderr.
//
// The two may share a terminal: the progress line is erased before anything else is printed, and
// control characters of models, files and users are escaped, so that they cannot drive the
// terminal. Results that are not text (JSON, tables) may use stdio; it is flushed in order.
#pragma once

#include "cli/options.h"
#include "base/json.h"

// Prepares the standard descriptors: closed ones are replaced, and stdout becomes blocking. Must be
// called before any file is opened.
void output_prepare(void);

// True if fd is a terminal that understands escape sequences (not TERM=dumb).
bool terminal_has_escapes(int fd);
// True if, in addition, NO_COLOR (no-color.org) does not disable colors.
bool terminal_has_color(int fd);

// Prints a note on stderr, unless -q is given (o NULL: always). On a terminal it is dim and its
// lines break at spaces.
void note(const Options *o, const char *fmt, ...) PRINTF_LIKE(2, 3);
// "1 message", "2 messages"; static memory.
const char *count_of(int n, const char *noun);
// A number with three digits and an SI prefix: "4.92 GB". Writes to `out` and returns it.
const char *scaled(char out[24], double n, const char *unit);
// Width of the terminal fd; 80 if it is unknown. SIZE_MAX if it wraps lines by itself (TERM=dumb).
size_t terminal_columns(int fd);
// Appends a text whose lines fit this many columns. Lines are broken after `separator`, whose last
// character is a space. `indent` is the width of a label before the text, in columns; the other
// lines are indented by it.
void put_wrapped(Buffer *out, Str text, const char *separator, size_t indent, size_t columns);
// s with control characters escaped, for one line; static memory.
const char *printable(Str s);

// Replaces the progress line on stderr. Prints nothing without a terminal or with -q.
void progress_print(const Options *o, const char *fmt, ...) PRINTF_LIKE(2, 3);
// The progress of a prefill: n_done of n tokens, which are this share of the work, since start_sec.
// n = 0: the total is unknown.
void progress_prefill(const Options *o, uint64_t n_done, uint64_t n, double share,
                      double start_sec);
void progress_end(void);
// Ends the progress line after an interrupt: on a terminal, what follows begins below its ^C.
void progress_interrupt(void);

// Writes all bytes to a descriptor. A closed pipe ends the program quietly (exit 0), any other
// error with a message (exit 1).
void output_write(int fd, const char *path, const void *data, size_t n);
// True if the terminal went away while signals were held. The text that is being generated ends.
bool output_is_lost(void);
// Flushes stdio's stdout. Errors are handled in the same way.
void stdout_flush(void);
// Writes text to stdout, escaped if that is a terminal.
void text_write(const char *text, size_t n);
// Writes text that is already escaped and styled for a terminal.
void text_write_styled(Str shown);
// Writes a buffer in the same way, and frees it.
void text_print(Buffer *text);
// Ends the outermost JSON object, and prints it as a line.
void text_print_json(JsonWriter *w);
