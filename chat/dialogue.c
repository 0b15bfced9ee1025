// See dialogue.h.
#include "chat/dialogue.h"
#include "base/files.h"

void dialogue_push(Dialogue *d, Message m) {
    d->messages = xrealloc(d->messages, (size_t)d->n + 1, sizeof *d->messages);
    d->messages[d->n++] = m;
}

bool dialogue_has(const Dialogue *d, int i, const char *role) {
    return i >= 0 && i < d->n && str_is(d->messages[i].role, role);
}

int dialogue_last(const Dialogue *d, const char *role) {
    int i = d->n - 1;
    while (i >= 0 && !dialogue_has(d, i, role)) i--;
    return i;
}

void dialogue_remove(Dialogue *d, int from, int to) {
    size_t n_behind = (size_t)(d->n - to);
    for (int i = from; i < to; i++) message_free(&d->messages[i]);
    if (n_behind) memmove(d->messages + from, d->messages + to, n_behind * sizeof *d->messages);
    d->n -= to - from;
}

void dialogue_free(Dialogue *d) {
    dialogue_remove(d, 0, d->n);
    free(d->messages);
    buffer_free(&d->dropped);
    buffer_free(&d->earlier);
}

int dialogue_join(const Dialogue *d, Dialogue *out) {
    int n_joined = 0;

    for (int i = 0; i < d->n; i++) {
        const Message *m = &d->messages[i];
        bool is_empty = dialogue_has(d, i, "assistant") && !m->content.len && !m->has_calls;
        bool is_joined = dialogue_has(d, i, "user") && dialogue_has(out, out->n - 1, "user");
        if (is_empty && dialogue_has(d, i + 1, "user")) continue;
        if (!is_joined) {
            dialogue_push(out, message_copy(m));
            continue;
        }

        Buffer text = {0};
        Message *last = &out->messages[out->n - 1];
        buffer_put(&text, last->content);
        buffer_puts(&text, "\n\n");
        buffer_put(&text, m->content);
        message_free(last);
        *last = message_make(str_of("user"), buffer_str(&text));
        buffer_free(&text);
        n_joined++;
    }
    return n_joined;
}

static void put_transcript_line(Buffer *out, const Message *m) {
    buffer_put(out, m->json);
    buffer_puts(out, "\n");
}

void dialogue_drop(Dialogue *d, int from, int to) {
    for (int i = from; i < to; i++) put_transcript_line(&d->dropped, &d->messages[i]);
    dialogue_remove(d, from, to);
}

// A line that ends a dialogue.
static const char clear_line[] = "{\"role\":\"clear\"}\n";

void dialogue_keep_earlier(Dialogue *d, int n) {
    Str rest = buffer_str(&d->earlier);
    int n_earlier = 0;
    for (size_t at; (at = str_find(rest, str_of(clear_line))) != SIZE_MAX; n_earlier++)
        rest = (Str){rest.data + at + strlen(clear_line), rest.len - at - strlen(clear_line)};

    rest = buffer_str(&d->earlier);
    for (; n_earlier > n; n_earlier--) {
        size_t end = str_find(rest, str_of(clear_line)) + strlen(clear_line);
        rest = (Str){rest.data + end, rest.len - end};
    }
    if (rest.len) memmove(d->earlier.data, rest.data, rest.len);
    d->earlier.len = rest.len;
}

void dialogue_begin_anew(Dialogue *d) {
    int n_system = dialogue_has(d, 0, "system");
    if (d->n > n_system || d->dropped.len) {
        transcript_put(d, &d->earlier);
        buffer_puts(&d->earlier, clear_line);
    }
    dialogue_remove(d, n_system, d->n);
    d->dropped.len = 0;
}

void dialogue_set_system(Dialogue *d, Str text) {
    if (dialogue_has(d, 0, "system")) dialogue_remove(d, 0, 1);
    if (text.len == 0) return;
    dialogue_push(d, (Message){0});
    memmove(d->messages + 1, d->messages, (size_t)(d->n - 1) * sizeof *d->messages);
    d->messages[0] = message_make(str_of("system"), text);
}

// The dropped messages were between the system prompt and the others.
void transcript_put(const Dialogue *d, Buffer *out) {
    for (int i = 0; i <= d->n; i++) {
        if (i == dialogue_has(d, 0, "system")) buffer_put(out, buffer_str(&d->dropped));
        if (i < d->n) put_transcript_line(out, &d->messages[i]);
    }
}

void transcript_put_last(const Dialogue *d, Buffer *out) {
    put_transcript_line(out, &d->messages[d->n - 1]);
}

void transcript_put_markdown(const Dialogue *d, Buffer *out) {
    Buffer lines = {0};
    JsonDoc doc = {0};
    buffer_puts(&lines, "");
    transcript_put(d, &lines);

    // Dropped messages exist only as lines of the transcript, so the lines are parsed.
    for (char *line = strtok(lines.data, "\n"); line; line = strtok(NULL, "\n")) {
        json_parse(&doc, line, strlen(line), &(Error){0}); // never fails: written by transcript_put
        const Json *content = json_get_string(doc.root, "content");
        bool has_calls = json_get(doc.root, "tool_calls");
        buffer_printf(out, "## %.*s\n\n", SHOWN(json_get_string(doc.root, "role")->string));
        buffer_put(out, content && !has_calls ? content_strip(content->string) : str_of(line));
        buffer_puts(out, "\n\n");
    }

    json_free(&doc);
    buffer_free(&lines);
}

bool transcript_parse(Dialogue *d, Str text, const char *name, size_t *n_truncated, Error *err) {
    JsonDoc doc = {0};
    const char *begin = text.data;
    int n_before = d->n;
    bool ok = true;

    *n_truncated = 0;
    size_t number = 0; // line number
    while (ok && text.len) {
        const char *end = memchr(text.data, '\n', text.len);
        Str line = {text.data, end ? (size_t)(end - text.data) : text.len};
        Message m;
        Error why;

        number++;
        text = (Str){text.data + line.len + !!end, text.len - line.len - !!end};
        if (str_is_blank(line)) continue;

        bool is_json = json_parse(&doc, line.data, line.len, &why);
        if (is_json && json_is(json_get(doc.root, "role"), "clear")) {
            dialogue_remove(d, n_before, d->n);
            d->earlier.len = 0;
            buffer_put(&d->earlier, (Str){begin, (size_t)(text.data - begin)});
        } else if (is_json && message_read(doc.root, &m, &why))
            dialogue_push(d, m);
        else if (!end && str_may_begin_with(line, "{\"role\":")) // the beginning of every line
            *n_truncated = line.len;
        else
            ok = error_set(err, EXIT_RUNTIME, "%s: line %zu: %s", name, number, why.text);
    }

    json_free(&doc);
    return ok;
}

bool transcript_read(Dialogue *d, const char *path, size_t *n_truncated, Error *err) {
    Buffer text = {0};
    bool ok = file_read(path, &text, err) &&
              transcript_parse(d, str_skip_bom(buffer_str(&text)), path, n_truncated, err);
    buffer_free(&text);
    return ok;
}
