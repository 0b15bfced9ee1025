// tokenize: text <-> token ids. The ids are those of the text alone, without a token for its beginning; --chat gives
// a dialogue as the model would be fed it.
#include "verbs.h"
#include "../base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void encode(const Options *o, const Tokenizer *t, Str text, Ids *ids) {
    (o->has_special ? tokenizer_encode_special : tokenizer_encode)(t, text.data, text.len, ids);
}

// Calls f for each line that is not empty, with its number.
static void each_line(const Buffer *text, void (*f)(void *arg, Str line, int number), void *arg) {
    int number = 1;
    for (size_t at = 0; at < text->len; number++) {
        const char *line = text->data + at, *end = memchr(line, '\n', text->len - at);
        size_t n = end ? (size_t)(end - line) : text->len - at;
        at += n + 1;
        if (n && line[n - 1] == '\r') n--;
        if (n) f(arg, (Str){line, n}, number);
    }
}

typedef struct {
    const Options *o;
    const Tokenizer *t;
    JsonDoc doc;
    Ids ids;
    Buffer out;
    Message *messages;
    JsonDoc *docs; // what the messages point into
    int n_messages;
} Lines;

static void print_json_line(void *arg, Str line, int number) {
    Lines *l = arg;
    Error err;
    if (!json_parse(&l->doc, line.data, line.len, &err)) die(EXIT_RUNTIME, "line %d: %s", number, err.text);
    if (l->doc.root->kind != JSON_STRING) die(EXIT_RUNTIME, "line %d: expected a JSON string", number);
    l->ids.len = 0;
    encode(l->o, l->t, l->doc.root->string, &l->ids);
    l->out.len = 0;
    buffer_puts(&l->out, "[");
    for (int i = 0; i < l->ids.len; i++) buffer_printf(&l->out, i ? ",%d" : "%d", l->ids.data[i]);
    buffer_puts(&l->out, "]\n");
    fwrite(l->out.data, 1, l->out.len, stdout);
}

static void read_message(void *arg, Str line, int number) {
    Lines *l = arg;
    Error err;
    size_t i = (size_t)l->n_messages++;
    l->docs = xrealloc(l->docs, i + 1, sizeof *l->docs);
    l->messages = xrealloc(l->messages, i + 1, sizeof *l->messages);
    l->docs[i] = (JsonDoc){0};
    if (!json_parse(&l->docs[i], line.data, line.len, &err))
        die(EXIT_RUNTIME, "%s: line %d: %s", l->o->chat_file, number, err.text);
    const Json *role = json_get(l->docs[i].root, "role"), *content = json_get(l->docs[i].root, "content");
    if (!role || role->kind != JSON_STRING || !template_has_role(role->string) || !content ||
        content->kind != JSON_STRING)
        die(EXIT_RUNTIME,
            "%s: line %d: expected {\"role\": \"system\", \"user\", \"assistant\" or \"tool\", \"content\": TEXT}",
            l->o->chat_file, number);
    l->messages[i] = (Message){role->string, content->string};
}

// The ids of a dialogue; if its last message is not the assistant's, what asks for the answer too.
static void encode_chat(const Options *o, const Gguf *g, Lines *l) {
    Buffer text = {0};
    Error err;
    Model model = {.file = *g};
    if (!file_read(o->chat_file, &text, &err)) die_error(&err);
    Template tpl = template_choose(o, &model, l->t);
    each_line(&text, read_message, l);
    if (!l->n_messages) die(EXIT_RUNTIME, "%s: expected at least one message", o->chat_file);
    template_encode(tpl, l->t, l->messages, l->n_messages, 0, !str_is(l->messages[l->n_messages - 1].role, "assistant"),
                    &l->ids);
    for (int i = 0; i < l->n_messages; i++) json_free(&l->docs[i]);
    free(l->docs);
    free(l->messages);
    buffer_free(&text);
}

// A token's bytes as a quoted text: control bytes and what is no character as \xNN.
static void put_piece(Buffer *out, Str s) {
    buffer_puts(out, "\"");
    for (size_t i = 0; i < s.len;) {
        uint32_t code;
        int len = utf8_decode(s.data + i, s.len - i, &code);
        if (len == 0 || code < 0x20 || (code >= 0x7f && code < 0xa0)) {
            if (code == '\n' && len)
                buffer_puts(out, "\\n");
            else
                for (int k = 0; k < (len ? len : 1); k++)
                    buffer_printf(out, "\\x%02x", (unsigned char)s.data[i + (size_t)k]);
        } else {
            if (code == '"' || code == '\\') buffer_puts(out, "\\");
            buffer_append(out, s.data + i, (size_t)len);
        }
        i += len ? (size_t)len : 1;
    }
    buffer_puts(out, "\"");
}

static void print_ids(const Options *o, const Tokenizer *t, const Ids *ids) {
    Buffer out = {0};
    if (o->count_only) buffer_printf(&out, "%d\n", ids->len);
    for (int i = 0; i < ids->len && !o->count_only; i++) {
        if (o->ids_only) {
            buffer_printf(&out, i ? " %d" : "%d", ids->data[i]);
            continue;
        }
        buffer_printf(&out, "%6d  ", ids->data[i]);
        put_piece(&out, tokenizer_piece(t, ids->data[i], true));
        buffer_puts(&out, "\n");
    }
    if (o->ids_only && !o->count_only) buffer_puts(&out, "\n");
    if (out.len) fwrite(out.data, 1, out.len, stdout);
    buffer_free(&out);
}

static void print_text(const Options *o, const Tokenizer *t, const Ids *ids) {
    Buffer out = {0};
    bool is_start = tokenizer_drops_space(t);
    for (int i = 0; i < ids->len; i++) {
        Str s = tokenizer_piece(t, ids->data[i], o->has_special);
        if (is_start && s.len && !tokenizer_is_control(t, ids->data[i])) {
            if (s.data[0] == ' ') s = (Str){s.data + 1, s.len - 1};
            is_start = false;
        }
        buffer_append(&out, s.data, s.len);
    }
    if (out.len) text_write(out.data, out.len);
    buffer_free(&out);
}

int verb_tokenize(const Options *o) {
    Gguf g;
    Error err;
    Buffer text = {0};
    if (o->ids_only + o->count_only + o->is_jsonl + o->is_decode > 1)
        die(EXIT_USAGE, "tokenize: expected one of --ids, --count, --jsonl and --decode");
    if (!o->chat_file) prompt_read(o, &text);
    if (!model_open_file(&g, o->model, &err)) die_error(&err);
    Tokenizer *t = tokenizer_open(&g, &err);
    if (!t) die_error(&err);
    Lines l = {.o = o, .t = t};
    if (o->chat_file)
        encode_chat(o, &g, &l);
    else if (o->is_jsonl)
        each_line(&text, print_json_line, &l);
    else if (o->is_decode)
        ids_parse(text.data, tokenizer_n_vocab(t), &l.ids);
    else
        encode(o, t, (Str){text.data, text.len}, &l.ids);
    if (o->is_decode && !o->chat_file)
        print_text(o, t, &l.ids);
    else if (!o->is_jsonl || o->chat_file)
        print_ids(o, t, &l.ids);
    stdout_flush();
    json_free(&l.doc);
    free(l.ids.data);
    buffer_free(&l.out);
    buffer_free(&text);
    tokenizer_close(t);
    gguf_close(&g);
    return EXIT_OK;
}
