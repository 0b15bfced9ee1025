#include "dialogue.h"
#include "../base/files.h"
#include "../base/json.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define HEAD "{\"role\":" // how a line of a transcript begins

void dialogue_push(Dialogue *d, Message m) {
    d->messages = xrealloc(d->messages, (size_t)d->n + 1, sizeof *d->messages);
    d->messages[d->n++] = m;
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
    for (int i = from; i < to; i++) message_free(&d->messages[i]);
    if (n_behind) memmove(d->messages + from, d->messages + to, n_behind * sizeof *d->messages);
    d->n -= to - from;
}

static void put_line(Buffer *out, const Message *m) {
    buffer_put(out, m->json);
    buffer_puts(out, "\n");
}

void dialogue_drop(Dialogue *d, int from, int to) {
    for (int i = from; i < to; i++) put_line(&d->dropped, &d->messages[i]);
    dialogue_remove(d, from, to);
}

void dialogue_system(Dialogue *d, const char *text, size_t n) {
    if (dialogue_has(d, 0, "system")) dialogue_remove(d, 0, 1);
    if (n == 0) return;
    dialogue_push(d, message_make(str_of("system"), (Str){text, n}));
    Message system = d->messages[d->n - 1];
    memmove(d->messages + 1, d->messages, (size_t)(d->n - 1) * sizeof system);
    d->messages[0] = system;
}

// Tokens

static void add_mark(Stream *s) {
    s->marks = xrealloc(s->marks, (size_t)s->n_marks + 1, sizeof *s->marks);
    s->marks[s->n_marks++] = (StreamMark){s->text.len, s->ids.len};
}

static Str stripped(Str s) {
    while (s.len && isspace((unsigned char)s.data[0])) s.data++, s.len--;
    while (s.len && isspace((unsigned char)s.data[s.len - 1])) s.len--;
    return s;
}

// The bytes of `text` from `at` on that are the words, white space before them aside; 0: it has
// others.
static size_t match_words(Str text, size_t at, Str words) {
    size_t start = at;
    while (at < text.len && words.len && isspace((unsigned char)text.data[at])) at++;
    if (text.len - at < words.len || (words.len && memcmp(text.data + at, words.data, words.len)))
        return 0;
    return at + words.len - start;
}

// A call that the model ended with <|eom_id|> ends with it, where the template has another end.
static void keep_end(Stream *s, const Tokenizer *t, Str text, const char *own) {
    int eom = tokenizer_special(t, "<|eom_id|>"), eot = tokenizer_special(t, "<|eot_id|>");
    Str name = tokenizer_piece(t, eot, true);
    bool is_eot = eot >= 0 && text.len - s->text.len >= name.len && own[s->text.len] &&
                  !memcmp(text.data + s->text.len, name.data, name.len);
    if (eom < 0 || s->said_stop != eom || !is_eot) return;
    buffer_append(&s->text, text.data + s->text.len, name.len);
    buffer_append(&s->own, own + s->own.len, name.len);
    ids_push(&s->ids, eom);
}

// Takes the answer said last into the stream, if the new text has it where it was said.
static void attach(Stream *s, const Tokenizer *t, Str text, const char *own) {
    Str forms[2] = {stripped(buffer_str(&s->said)), stripped(buffer_str(&s->shown))};
    for (int i = 0; i < 2; i++) {
        size_t n = match_words(text, s->text.len, forms[i]);
        if (!n && forms[i].len) continue;
        buffer_append(&s->text, text.data + s->text.len, n);
        buffer_append(&s->own, own + s->own.len, n);
        for (int k = 0; k < s->said_ids.len; k++) ids_push(&s->ids, s->said_ids.data[k]);
        keep_end(s, t, text, own);
        add_mark(s);
        return;
    }
}

void stream_update(Stream *s, const Tokenizer *t, Str text, const char *own) {
    size_t same = 0;
    while (same < text.len && same < s->text.len && text.data[same] == s->text.data[same] &&
           own[same] == s->own.data[same])
        same++;
    if (s->has_said && same == s->text.len) attach(s, t, text, own), same = s->text.len;
    s->has_said = false;
    while (s->n_marks && s->marks[s->n_marks - 1].text > same) s->n_marks--;
    StreamMark from = s->n_marks ? s->marks[s->n_marks - 1] : (StreamMark){0};
    s->ids.len = from.ids;
    s->text.len = s->own.len = from.text;
    if (from.text == 0) {
        s->n_marks = 0;
        template_tokenize(t, text, own, &s->ids);
    } else {
        tokenizer_encode_marked(t, text.data + from.text, own + from.text, text.len - from.text,
                                true, &s->ids);
    }
    buffer_append(&s->text, text.data + from.text, text.len - from.text);
    buffer_append(&s->own, own + from.text, text.len - from.text);
}

void stream_say(Stream *s, const int *ids, int n, Str said, Str shown, int stop) {
    s->has_said = true;
    s->said_stop = stop;
    s->said_ids.len = 0;
    for (int i = 0; i < n; i++) ids_push(&s->said_ids, ids[i]);
    s->said.len = s->shown.len = 0;
    buffer_put(&s->said, said);
    buffer_put(&s->shown, shown);
}

void transcript_put(const Dialogue *d, Buffer *out) {
    for (int i = 0; i <= d->n; i++) {
        if (i == dialogue_has(d, 0, "system")) buffer_put(out, buffer_str(&d->dropped));
        if (i < d->n) put_line(out, &d->messages[i]);
    }
}

void transcript_put_last(const Dialogue *d, Buffer *out) { put_line(out, &d->messages[d->n - 1]); }

bool transcript_parse(Dialogue *d, Str text, const char *name, size_t *n_torn, Error *err) {
    JsonDoc doc = {0};
    bool ok = true;
    *n_torn = 0;
    for (size_t number = 1; ok && text.len; number++) {
        const char *end = memchr(text.data, '\n', text.len);
        Str line = {text.data, end ? (size_t)(end - text.data) : text.len};
        Message m;
        Error why;
        text = (Str){text.data + line.len + !!end, text.len - line.len - !!end};
        if (str_is_blank(line)) continue;
        if (json_parse(&doc, line.data, line.len, &why) && message_read(doc.root, &m, &why))
            dialogue_push(d, m);
        else if (!end && str_begins_alike(line, HEAD))
            *n_torn = line.len;
        else
            ok = error_set(err, EXIT_RUNTIME, "%s: line %zu: %s", name, number, why.text);
    }
    json_free(&doc);
    return ok;
}

bool transcript_read(Dialogue *d, const char *path, size_t *n_torn, Error *err) {
    Buffer text = {0};
    bool ok = file_read(path, &text, err) &&
              transcript_parse(d, str_skip_mark(buffer_str(&text)), path, n_torn, err);
    buffer_free(&text);
    return ok;
}
