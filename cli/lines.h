// Lines of a file, pipe or terminal, one at a time and in bounded memory.
#ifndef CLI_LINES_H
#define CLI_LINES_H

#include "../base/json.h"

// A file read line by line. Memory is bounded by `limit`, whatever the file holds.
typedef struct {
    const char *path;
    int fd;
    size_t limit;    // bytes of the longest line that is handed out whole
    long number;     // of the line handed out last, from 1
    uint64_t offset; // of the byte after it
    bool is_whole;   // it ended with a newline
    char *data;      // [begin, end) is read and not handed out; no newline before `scanned`
    size_t begin, end, scanned, cap;
    bool at_end, is_long;
} LineReader;
typedef enum { LINE_NONE, LINE_READY, LINE_LONG, LINE_END } LineState;

// Opens a file (NULL or "-": stdin) or dies.
void lines_open(LineReader *l, const char *path, size_t limit);
// The next line without its newline, valid until the next call. LINE_LONG gives the head of one
// over the limit; LINE_NONE: an interrupt, or nothing there yet and may_wait is false. Dies when
// reading fails.
LineState lines_next(LineReader *l, Str *line, bool may_wait);
// The next line that is not blank, as JSON: LINE_READY, or LINE_NONE (not may_wait) or LINE_END.
// Exits on an interrupt, dies if the line is too long or no JSON.
LineState lines_next_json(LineReader *l, JsonDoc *doc, bool may_wait);

#endif
