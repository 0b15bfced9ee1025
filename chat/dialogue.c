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

static void add_resume_point(TokenStream *s) {
    s->resume_points =
        xrealloc(s->resume_points, (size_t)s->n_resume_points + 1, sizeof *s->resume_points);
    s->resume_points[s->n_resume_points++] = (ResumePoint){s->text.len, s->ids.len};
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
static void keep_end(TokenStream *s, const Tokenizer *t, Str text, const char *mask) {
    int eom = tokenizer_special_id(t, "<|eom_id|>"), eot = tokenizer_special_id(t, "<|eot_id|>");
    Str name = tokenizer_piece(t, eot, true);
    bool is_eot = eot >= 0 && text.len - s->text.len >= name.len && mask[s->text.len] &&
                  !memcmp(text.data + s->text.len, name.data, name.len);
    if (eom < 0 || s->answer_stop != eom || !is_eot) return;
    buffer_append(&s->text, text.data + s->text.len, name.len);
    buffer_append(&s->mask, mask + s->mask.len, name.len);
    ids_push(&s->ids, eom);
}

// Takes the answer answer last into the stream, if the new text has it where it was answer.
static void attach(TokenStream *s, const Tokenizer *t, Str text, const char *mask) {
    Str forms[2] = {stripped(buffer_str(&s->answer)), stripped(buffer_str(&s->shown))};
    for (int i = 0; i < 2; i++) {
        size_t n = match_words(text, s->text.len, forms[i]);
        if (!n && forms[i].len) continue;
        buffer_append(&s->text, text.data + s->text.len, n);
        buffer_append(&s->mask, mask + s->mask.len, n);
        for (int k = 0; k < s->answer_ids.len; k++) ids_push(&s->ids, s->answer_ids.data[k]);
        keep_end(s, t, text, mask);
        add_resume_point(s);
        return;
    }
}

void token_stream_update(TokenStream *s, const Tokenizer *t, Str text, const char *mask) {
    size_t same = 0;
    while (same < text.len && same < s->text.len && text.data[same] == s->text.data[same] &&
           mask[same] == s->mask.data[same])
        same++;
    if (s->has_answer && same == s->text.len) attach(s, t, text, mask), same = s->text.len;
    s->has_answer = false;
    while (s->n_resume_points && s->resume_points[s->n_resume_points - 1].text > same)
        s->n_resume_points--;
    ResumePoint from =
        s->n_resume_points ? s->resume_points[s->n_resume_points - 1] : (ResumePoint){0};
    s->ids.len = from.ids;
    s->text.len = s->mask.len = from.text;
    if (from.text == 0) {
        s->n_resume_points = 0;
        template_tokenize(t, text, mask, &s->ids);
    } else {
        tokenizer_encode_masked(t, text.data + from.text, mask + from.text, text.len - from.text,
                                true, &s->ids);
    }
    buffer_append(&s->text, text.data + from.text, text.len - from.text);
    buffer_append(&s->mask, mask + from.text, text.len - from.text);
}

void token_stream_add_answer(TokenStream *s, const int *ids, int n, Str answer, Str shown,
                             int stop) {
    s->has_answer = true;
    s->answer_stop = stop;
    s->answer_ids.len = 0;
    for (int i = 0; i < n; i++) ids_push(&s->answer_ids, ids[i]);
    s->answer.len = s->shown.len = 0;
    buffer_put(&s->answer, answer);
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
        else if (!end && str_may_begin_with(line, HEAD))
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
              transcript_parse(d, str_skip_bom(buffer_str(&text)), path, n_torn, err);
    buffer_free(&text);
    return ok;
}
