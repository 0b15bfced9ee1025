// A line is handed out where it was read; what is behind it moves only to make room. Of a line over
// the limit the head is kept, to tell whose it is.
#include "lines.h"
#include "../base/files.h"
#include "../generate.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { READ_BYTES = 1 << 16, HEAD_BYTES = 4096 };

void lines_open(LineReader *l, const char *path, size_t limit) {
    bool is_stdin = !path || !strcmp(path, "-");
    *l = (LineReader){.path = is_stdin ? "standard input" : path, .limit = limit};
    l->fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (l->fd < 0) die_file(path);
    l->data = xrealloc(NULL, READ_BYTES, 1);
    l->cap = READ_BYTES;
}

// Makes room at the end of what is held, and gives up a line that is over the limit but for its
// head.
static void make_room(LineReader *l) {
    memmove(l->data, l->data + l->begin, l->end - l->begin);
    l->end -= l->begin;
    l->begin = 0;
    if (l->end > l->limit) l->is_long = true;
    if (l->is_long && l->end > HEAD_BYTES) l->end = HEAD_BYTES;
    if (l->cap >= l->end + READ_BYTES) return;
    l->cap = 2 * l->end + READ_BYTES;
    l->data = xrealloc(l->data, l->cap, 1);
}

// Hands out what ends at `end`; the next line begins at `next`.
static LineState take_line(LineReader *l, size_t end, size_t next, Str *line) {
    bool is_long = l->is_long || end - l->begin > l->limit;
    l->number++;
    l->is_whole = next > end;
    *line = (Str){l->data + l->begin, end - l->begin};
    if (is_long && line->len > HEAD_BYTES) line->len = HEAD_BYTES;
    l->offset += (uint64_t)(next - l->begin);
    l->begin = l->scanned = next;
    l->is_long = false;
    if (l->number == 1) *line = str_skip_mark(*line);
    return is_long ? LINE_LONG : LINE_READY;
}

LineState lines_next(LineReader *l, Str *line, bool may_wait) {
    for (;;) {
        char *newline =
            l->scanned < l->end ? memchr(l->data + l->scanned, '\n', l->end - l->scanned) : NULL;
        if (newline)
            return take_line(l, (size_t)(newline - l->data), (size_t)(newline - l->data) + 1, line);
        if (l->at_end && (l->begin < l->end || l->is_long))
            return take_line(l, l->end, l->end, line);
        if (l->at_end) return LINE_END;
        size_t before = l->end - l->begin;
        make_room(l);
        l->offset += before - l->end;
        l->scanned = l->end;
        if (!may_wait && poll(&(struct pollfd){.fd = l->fd, .events = POLLIN}, 1, 0) == 0)
            return LINE_NONE;
        ssize_t n = read(l->fd, l->data + l->end, READ_BYTES);
        if (n < 0 && generate_interrupted && (errno == EINTR || errno == EAGAIN)) return LINE_NONE;
        if (n < 0 && errno != EINTR && !file_wait(l->fd, POLLIN)) die_file(l->path);
        if (n == 0) l->at_end = true;
        if (n > 0) l->end += (size_t)n;
    }
}

LineState lines_next_json(LineReader *l, JsonDoc *doc, bool may_wait) {
    Str line;
    Error err;
    LineState state;
    while ((state = lines_next(l, &line, may_wait)) == LINE_READY && str_is_blank(line)) {
    }
    if (state == LINE_NONE && generate_interrupted) exit(EXIT_INTERRUPTED);
    if (state == LINE_LONG)
        die(EXIT_RUNTIME, "%s: line %ld: expected at most %zu bytes, found more", l->path,
            l->number, l->limit);
    if (state == LINE_READY && !json_parse(doc, line.data, line.len, &err))
        die(EXIT_RUNTIME, "%s: line %ld: %s", l->path, l->number, err.text);
    return state;
}
