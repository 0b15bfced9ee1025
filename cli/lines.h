// Reads lines of a file, a pipe or a terminal in bounded memory.
//
// Entry points: lines_open(), then lines_next() or lines_next_json(). Memory is bounded by the
// limit for a line. Longer lines are reported and not kept. A line of more than 4 GiB, as an
// endless one of a pipe, is the last one.
#pragma once

#include "base/json.h"

enum { MAX_LINE = 4 << 20 }; // bytes of a request: several times the text of 131072 tokens

typedef struct {
    const char *path;
    int fd;
    size_t limit;  // maximum bytes of a line
    long number;   // number of the line returned last, from 1
    bool is_whole; // that line ended with a newline
    Buffer bytes;  // bytes read; those from `begin` on are not returned yet
    size_t begin;
    size_t scanned;   // [begin, scanned) contains no newline
    bool at_end;      // end of file
    size_t n_dropped; // bytes of the next line that were read and not kept, beyond the limit
} LineReader;

typedef enum {
    LINE_NONE, // no complete line yet (may_wait is false), or an interrupt
    LINE_READY,
    LINE_LONG, // beyond the limit; at most the end of its text is returned
    LINE_END
} LineState;

// Opens a file (NULL or "-": stdin) or dies.
void lines_open(LineReader *l, const char *path, size_t limit);
// Returns the next line without its newline, valid until the next call. Dies on a read error.
LineState lines_next(LineReader *l, Str *line, bool may_wait);
// Parses the next line that is not blank as JSON. False at the end of the file. Ends the program on
// an interrupt, an invalid line or a line beyond the limit.
bool lines_next_json(LineReader *l, JsonDoc *doc);
// Returns the text of the line parsed last: a JSON string or an object {"text": STRING}. Ends the
// program on any other line.
Str lines_text(const LineReader *l, const JsonDoc *doc);
