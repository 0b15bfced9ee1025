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

// Undone messages

// Moves the messages [from, n) to a new Removal.
void dialogue_undo(Dialogue *d, int from) {
    Removal r = {.n = d->n - from, .from = from - dialogue_has(d, 0, "system")};
    if (r.n <= 0) return;

    r.messages = xalloc((size_t)r.n, sizeof *r.messages);
    memcpy(r.messages, d->messages + from, (size_t)r.n * sizeof *r.messages);
    d->n = from;
    d->undone = xrealloc(d->undone, (size_t)d->n_undone + 1, sizeof *d->undone);
    d->undone[d->n_undone++] = r;
}

int dialogue_redo(Dialogue *d) {
    if (!d->n_undone || d->undone[d->n_undone - 1].from < 0) return -1;
    Removal r = d->undone[--d->n_undone];
    int from = r.from + dialogue_has(d, 0, "system");

    dialogue_undo(d, from);
    for (int i = 0; i < r.n; i++) dialogue_push(d, r.messages[i]);
    free(r.messages);
    return from;
}

void dialogue_forget_undone(Dialogue *d) {
    for (int i = 0; i < d->n_undone; i++) {
        Removal *r = &d->undone[i];
        for (int k = 0; k < r->n; k++) message_free(&r->messages[k]);
        free(r->messages);
    }
    free(d->undone);
    d->undone = NULL;
    d->n_undone = 0;
}

void dialogue_free(Dialogue *d) {
    dialogue_remove(d, 0, d->n);
    free(d->messages);
    dialogue_forget_undone(d);
    buffer_free(&d->dropped);
    buffer_free(&d->earlier);
}

// Removes the tool calls, and their results, that follow the last message of the user.
static void remove_open_calls(Dialogue *d) {
    int n = d->n;
    while (n > 0 && (d->messages[n - 1].has_calls || dialogue_has(d, n - 1, "tool"))) n--;
    if (dialogue_has(d, n - 1, "user")) dialogue_remove(d, n, d->n);
}

int dialogue_join(const Dialogue *d, bool joins_calls, Dialogue *out) {
    int n_joined = 0;

    for (int i = 0; i < d->n; i++) {
        const Message *m = &d->messages[i];
        if (joins_calls && dialogue_has(d, i, "user")) remove_open_calls(out);
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
    int n_system = dialogue_has(d, 0, "system");
    for (int i = from; i < to; i++) put_transcript_line(&d->dropped, &d->messages[i]);
    for (int i = 0; i < d->n_undone; i++) {
        Removal *r = &d->undone[i];
        r->from = r->from + n_system < to ? -1 : r->from - (to - from);
    }
    dialogue_remove(d, from, to);
}

// Earlier dialogues

// A line that ends a dialogue.
static const char clear_line[] = "{\"role\":\"clear\"}\n";

// Offset of the last n earlier dialogues, or 0 if there are fewer.
static size_t earlier_begin(const Dialogue *d, int n) {
    int n_ends = 0;
    for (Str rest = buffer_str(&d->earlier); rest.len; rest.len--) {
        n_ends += str_ends_with(rest, clear_line);
        if (n_ends > n) return rest.len;
    }
    return 0;
}

Str dialogue_earlier(const Dialogue *d, int i) {
    size_t begin = earlier_begin(d, i), end = earlier_begin(d, i - 1);
    if (!end) return (Str){0};
    return (Str){d->earlier.data + begin, end - begin - strlen(clear_line)};
}

// Removes the bytes [from, to) of the lines of earlier dialogues.
static void cut_earlier(Dialogue *d, size_t from, size_t to) {
    size_t n_behind = d->earlier.len - to;
    if (n_behind) memmove(d->earlier.data + from, d->earlier.data + to, n_behind);
    d->earlier.len -= to - from;
}

void dialogue_keep_earlier(Dialogue *d, int n) { cut_earlier(d, 0, earlier_begin(d, n)); }

bool dialogue_is_begun(const Dialogue *d) {
    return d->n > dialogue_has(d, 0, "system") || d->dropped.len;
}

void dialogue_begin_anew(Dialogue *d) {
    int n_system = dialogue_has(d, 0, "system");
    if (dialogue_is_begun(d)) {
        transcript_put(d, &d->earlier);
        buffer_puts(&d->earlier, clear_line);
    }
    dialogue_remove(d, n_system, d->n);
    dialogue_forget_undone(d);
    d->dropped.len = 0;
}

bool dialogue_continue_earlier(Dialogue *d, int i, Error *err) {
    Dialogue chosen = {0};
    size_t n_truncated;
    Str lines = dialogue_earlier(d, i);
    bool ok = transcript_parse(&chosen, lines, "earlier dialogue", &n_truncated, err);

    if (ok) {
        cut_earlier(d, earlier_begin(d, i), earlier_begin(d, i - 1));
        dialogue_begin_anew(d);
        dialogue_remove(d, 0, d->n);
        for (int k = 0; k < chosen.n; k++) dialogue_push(d, chosen.messages[k]);
        chosen.n = 0;
    }
    dialogue_free(&chosen);
    return ok;
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

void transcript_put_change(Dialogue *d, int n_removed, int n_new, Buffer *out) {
    if (n_removed) {
        buffer_printf(out, "{\"role\":\"undo\",\"n\":%d}\n", n_removed);
        d->has_changes = true;
    }
    for (int i = d->n - n_new; i < d->n; i++) put_transcript_line(out, &d->messages[i]);
}

void transcript_put_system(Dialogue *d, Buffer *out) {
    JsonWriter w = json_object(out);
    json_write_string(&w, "role", str_of("set"));
    json_write_string(&w, "system",
                      dialogue_has(d, 0, "system") ? d->messages[0].content : str_of(""));
    json_end_object(&w);
    buffer_puts(out, "\n");
    d->has_changes = true;
}

void transcript_put_clear(Buffer *out) { buffer_puts(out, clear_line); }

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

// Applies a line that removes messages.
static bool read_undo(Dialogue *d, const Json *line, Error *err) {
    const Json *n = json_get(line, "n");
    int n_most = d->n - dialogue_has(d, 0, "system");
    if (!n || n->kind != JSON_NUMBER || !(n->number >= 1 && n->number <= n_most))
        return error_set(err, EXIT_RUNTIME, "n: expected a number of messages from 1 to %d",
                         n_most);
    dialogue_undo(d, d->n - (int)n->number);
    d->has_changes = true;
    return true;
}

// Applies a line that sets the system prompt.
static bool read_set(Dialogue *d, const Json *line, Error *err) {
    const Json *system = json_get_string(line, "system");
    if (!system) return error_set(err, EXIT_RUNTIME, "set: expected a text \"system\"");
    dialogue_set_system(d, system->string);
    d->has_changes = true;
    return true;
}

bool transcript_parse(Dialogue *d, Str text, const char *name, size_t *n_truncated, Error *err) {
    JsonDoc doc = {0};
    bool ok = true;

    *n_truncated = 0;
    d->earlier.len = 0;
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
        const Json *role = is_json ? json_get(doc.root, "role") : NULL;
        if (json_is(role, "clear")) {
            dialogue_begin_anew(d);
            dialogue_remove(d, 0, d->n);
        } else if (json_is(role, "undo")) {
            ok = read_undo(d, doc.root, &why);
        } else if (json_is(role, "set")) {
            ok = read_set(d, doc.root, &why);
        } else if (is_json && message_read(doc.root, &m, &why))
            dialogue_push(d, m);
        else if (!end && str_may_begin_with(line, "{\"role\":")) // the beginning of every line
            *n_truncated = line.len;
        else
            ok = false;
        if (!ok) error_set(err, EXIT_RUNTIME, "%s: line %zu: %s", name, number, why.text);
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
