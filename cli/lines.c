// One buffer holds the bytes that have been read. Lines are returned in place, and are removed from
// the buffer before the next read. The buffer grows with the longest line, at most to the limit
// plus one read.
#include "cli/lines.h"
#include "cli/output.h"
#include "base/files.h"
#include "generate/generate.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

enum { READ_BYTES = 1 << 16 };

void lines_open(LineReader *l, const char *path, size_t limit) {
    bool is_stdin = !path || !strcmp(path, "-");
    *l = (LineReader){.path = is_stdin ? "standard input" : path, .limit = limit};
    l->fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (l->fd < 0) die_file(path);
    if (is_stdin && isatty(l->fd)) note(NULL, "reading lines of standard input; Ctrl-D ends it");
}

// Removes the lines that were returned, and the part of a line beyond the limit. Returns space for
// READ_BYTES more bytes.
static char *reserve_read(LineReader *l) {
    Buffer *b = &l->bytes;
    b->len -= l->begin;
    if (l->begin) memmove(b->data, b->data + l->begin, b->len);
    l->begin = 0;
    if (l->n_dropped || b->len > l->limit) {
        l->n_dropped += b->len;
        b->len = 0;
    }
    l->scanned = b->len;
    return buffer_reserve(b, READ_BYTES);
}

// Returns the line [begin, end); the next one begins at `next`.
static LineState return_line(LineReader *l, size_t end, size_t next, Str *line) {
    bool is_long = l->n_dropped || end - l->begin > l->limit;
    l->number++;
    l->is_whole = next > end;
    *line = (Str){l->bytes.data + l->begin, end - l->begin};
    l->begin = l->scanned = next;
    l->n_dropped = 0;
    if (l->number == 1) *line = str_skip_bom(*line);
    return is_long ? LINE_LONG : LINE_READY;
}

LineState lines_next(LineReader *l, Str *line, bool may_wait) {
    for (;;) {
        Buffer *b = &l->bytes;
        size_t n_new = b->len - l->scanned;
        char *newline = n_new ? memchr(b->data + l->scanned, '\n', n_new) : NULL;
        size_t end = newline ? (size_t)(newline - b->data) : b->len;

        // A complete line, or a last line without a newline.
        if (newline) return return_line(l, end, end + 1, line);
        if (l->at_end && (l->begin < b->len || l->n_dropped)) return return_line(l, end, end, line);
        if (l->at_end) return LINE_END;
        if (generate_interrupted) return LINE_NONE;

        char *space = reserve_read(l);
        if (l->n_dropped > UINT32_MAX) {
            warn("%s: line %ld exceeds 4 GiB; the rest is not read", l->path, l->number + 1);
            l->at_end = true;
        }
        if (!may_wait && poll(&(struct pollfd){.fd = l->fd, .events = POLLIN}, 1, 0) == 0)
            return LINE_NONE;

        ssize_t n = read(l->fd, space, READ_BYTES);
        if (n < 0 && errno != EINTR && !file_wait(l->fd, POLLIN)) die_file(l->path);
        if (n == 0) l->at_end = true;
        if (n > 0) b->len += (size_t)n;
    }
}

bool lines_next_json(LineReader *l, JsonDoc *doc) {
    Str line;
    Error err;
    LineState state;
    while ((state = lines_next(l, &line, true)) == LINE_READY && str_is_blank(line)) {
    }
    if (state == LINE_NONE) exit(EXIT_INTERRUPTED);
    if (state == LINE_LONG)
        die(EXIT_RUNTIME, "%s: line %ld: longer than %zu bytes", l->path, l->number, l->limit);
    if (state == LINE_READY && !json_parse(doc, line.data, line.len, &err))
        die(EXIT_RUNTIME, "%s: line %ld: %s", l->path, l->number, err.text);
    return state == LINE_READY;
}

Str lines_text(const LineReader *l, const JsonDoc *doc) {
    const Json *root = doc->root;
    const Json *text = root->kind == JSON_STRING ? root : json_get_string(root, "text");
    if (!text)
        die(EXIT_RUNTIME, "%s: line %ld: expected a JSON string or {\"text\": STRING}", l->path,
            l->number);
    return text->string;
}
