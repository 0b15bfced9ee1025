#include "dialogue.h"
#include "../base/files.h"
#include "../base/json.h"

#include <stdlib.h>
#include <string.h>

#define HEAD "{\"role\":" // how a line of a transcript begins

void dialogue_push(Dialogue *d, Str role, Str content) {
    d->messages = xrealloc(d->messages, (size_t)d->n + 1, sizeof *d->messages);
    d->ids = xrealloc(d->ids, (size_t)d->n + 1, sizeof *d->ids);
    d->messages[d->n] = (Message){str_copy(role), str_copy(content)};
    d->ids[d->n++] = (Ids){0};
}

bool dialogue_has(const Dialogue *d, int i, const char *role) {
    return i >= 0 && i < d->n && str_is(d->messages[i].role, role);
}

int dialogue_last_user(const Dialogue *d) {
    int i = d->n - 1;
    while (i >= 0 && !dialogue_has(d, i, "user")) i--;
    return i;
}

void dialogue_remove(Dialogue *d, int from, int to) {
    size_t n_behind = (size_t)(d->n - to);
    for (int i = from; i < to; i++) {
        free((char *)d->messages[i].role.data);
        free((char *)d->messages[i].content.data);
        free(d->ids[i].data);
    }
    if (n_behind) memmove(d->messages + from, d->messages + to, n_behind * sizeof *d->messages);
    if (n_behind) memmove(d->ids + from, d->ids + to, n_behind * sizeof *d->ids);
    d->n -= to - from;
    for (int i = from; i < d->n; i++) d->ids[i].len = 0;
}

static void put_message(Buffer *out, const Message *m) {
    json_put_string(out, HEAD, m->role);
    json_put_string(out, ",\"content\":", m->content);
    buffer_puts(out, "}\n");
}

void dialogue_drop(Dialogue *d, int from, int to) {
    for (int i = from; i < to; i++) put_message(&d->dropped, &d->messages[i]);
    dialogue_remove(d, from, to);
}

void dialogue_system(Dialogue *d, const char *text, size_t n) {
    if (dialogue_has(d, 0, "system")) dialogue_remove(d, 0, 1);
    for (int i = 0; i < d->n; i++) d->ids[i].len = 0;
    if (n == 0) return;
    dialogue_push(d, str_of("system"), (Str){text, n});
    Message system = d->messages[d->n - 1];
    memmove(d->messages + 1, d->messages, (size_t)(d->n - 1) * sizeof system);
    d->messages[0] = system;
}

int dialogue_encode(Dialogue *d, Template tpl, const Tokenizer *t) {
    int n = 0;
    for (int i = 0; i < d->n; i++) {
        if (!d->ids[i].len) template_encode(tpl, t, d->messages, i + 1, i, false, &d->ids[i]);
        n += d->ids[i].len;
    }
    return n;
}

void transcript_put(const Dialogue *d, Buffer *out) {
    for (int i = 0; i <= d->n; i++) {
        if (i == dialogue_has(d, 0, "system")) buffer_put(out, buffer_str(&d->dropped));
        if (i < d->n) put_message(out, &d->messages[i]);
    }
}

void transcript_put_last(const Dialogue *d, Buffer *out) { put_message(out, &d->messages[d->n - 1]); }

// One line of a transcript; the message points into doc.
static bool read_message(JsonDoc *doc, Str line, Message *m, Error *err) {
    if (!json_parse(doc, line.data, line.len, err)) return false;
    const Json *role = json_get_string(doc->root, "role"), *content = json_get_string(doc->root, "content");
    if (!role || !content) return error_set(err, EXIT_RUNTIME, "expected {\"role\":\"...\",\"content\":\"...\"}");
    if (!template_has_role(role->string))
        return error_set(err, EXIT_RUNTIME, "role: expected system, user, assistant, tool or ipython, found \"%.*s\"",
                         SHOWN(role->string));
    *m = (Message){role->string, content->string};
    return true;
}

bool transcript_read(Dialogue *d, const char *path, size_t *n_torn, Error *err) {
    Buffer text = {0};
    JsonDoc doc = {0};
    bool ok = file_read(path, &text, err);
    Str rest = str_skip_mark(buffer_str(&text));
    *n_torn = 0;
    for (size_t number = 1; ok && rest.len; number++) {
        const char *end = memchr(rest.data, '\n', rest.len);
        Str line = {rest.data, end ? (size_t)(end - rest.data) : rest.len};
        Message m;
        Error why;
        rest = (Str){rest.data + line.len + !!end, rest.len - line.len - !!end};
        if (str_is_blank(line)) continue;
        if (read_message(&doc, line, &m, &why))
            dialogue_push(d, m.role, m.content);
        else if (!end && str_begins_alike(line, HEAD))
            *n_torn = line.len;
        else
            ok = error_set(err, EXIT_RUNTIME, "%s: line %zu: %s", path, number, why.text);
    }
    json_free(&doc);
    buffer_free(&text);
    return ok;
}
