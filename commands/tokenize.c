// tokenize: text <-> token ids. The ids are those of the text alone, without a token for its
// beginning; --chat gives a dialogue as the model would be fed it.
#include "tokenize_check.h"
#include "../base/files.h"
#include "../chat/dialogue.h"
#include "../cli/open_model.h"
#include "../cli/prompt.h"
#include "../cli/lines.h"
#include "../cli/output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LINE = 1 << 30 }; // bytes: texts that are only cut into tokens may be large

static void encode(const Options *o, const Tokenizer *t, Str text, Ids *ids) {
    (o->has_special ? tokenizer_encode_special : tokenizer_encode)(t, text.data, text.len, ids);
}

static void print_json_lines(const Options *o, const Tokenizer *t) {
    static LineReader lines;
    static JsonDoc doc;
    static Ids ids;
    lines_open(&lines, o->file, MAX_LINE);
    enter_sandbox(o);
    while (lines_next_json(&lines, &doc, true) == LINE_READY) {
        if (doc.root->kind != JSON_STRING)
            die(EXIT_RUNTIME, "%s: line %ld: expected a JSON string", lines.path, lines.number);
        ids.len = 0;
        encode(o, t, doc.root->string, &ids);
        putchar('[');
        for (int i = 0; i < ids.len; i++) printf(i ? ",%d" : "%d", ids.data[i]);
        puts("]");
    }
}

// A dialogue to be rendered: one object of messages, tools and other variables, as it stands, or
// messages a line. Unless it says so itself, what asks for an answer comes after a message that is
// not the assistant's.
static void read_chat(const Options *o, TemplateInput *in) {
    static Dialogue d;
    static Buffer text;
    static JsonDoc doc;
    Error err;
    size_t n_torn;
    if (!file_read(o->chat_file, &text, &err)) die_error(&err);
    Str all = str_skip_bom(buffer_str(&text));
    if (json_parse(&doc, all.data, all.len, &err) && json_get(doc.root, "messages")) {
        in->variables = all;
        in->wants_answer = true;
        return;
    }
    if (!transcript_parse(&d, all, o->chat_file, &n_torn, &err)) die_error(&err);
    if (n_torn || !d.n)
        die(EXIT_RUNTIME, "%s: expected lines of {\"role\":\"...\",\"content\":\"...\"}",
            o->chat_file);
    in->messages = d.messages, in->n_messages = d.n;
    in->wants_answer = !dialogue_has(&d, d.n - 1, "assistant");
}

// The ids of a dialogue, or with --rendered its text on stdout.
static void encode_chat(const Options *o, const Gguf *g, Tokenizer *t, Ids *ids) {
    static Template tpl;
    static Buffer text, own;
    TemplateInput in = {0};
    Error err;
    template_from_options(o, g, t, &tpl);
    template_warn_missing(o, &tpl);
    read_chat(o, &in);
    enter_sandbox(o);
    if (!template_render(&tpl, t, &in, &text, &own, &err)) die_error(&err);
    if (o->is_rendered)
        text_write(text.data, text.len);
    else
        template_tokenize(t, buffer_str(&text), own.data, ids);
}

// A token's bytes, for between quotes.
static void put_piece(Buffer *out, Str s) {
    static const char escaped[] = "\"\\\n", names[] = "\"\\n";
    for (size_t i = 0, end; i < s.len; i = end) {
        const char *found = memchr(escaped, s.data[i], 3);
        if (found) buffer_printf(out, "\\%c", names[found - escaped]);
        for (end = i + !!found; end < s.len && !memchr(escaped, s.data[end], 3);) end++;
        buffer_put_escaped(out, (Str){s.data + i + !!found, end - i - !!found}, "");
    }
}

static void print_ids(const Options *o, const Tokenizer *t, const Ids *ids) {
    if (o->count_only) {
        printf("%d\n", ids->len);
    } else if (o->ids_only) {
        for (int i = 0; i < ids->len; i++) printf(i ? " %d" : "%d", ids->data[i]);
        puts("");
    } else {
        Buffer out = {0};
        for (int i = 0; i < ids->len; i++) {
            buffer_printf(&out, "%6d  \"", ids->data[i]);
            put_piece(&out, tokenizer_piece(t, ids->data[i], true));
            buffer_puts(&out, "\"\n");
        }
        if (out.len) fwrite(out.data, 1, out.len, stdout);
        buffer_free(&out);
    }
}

// The bytes of the ids, without the space that a SentencePiece text begins with.
static void print_text(const Options *o, const Tokenizer *t, const Ids *ids) {
    Buffer out = {0};
    bool is_start = tokenizer_has_space_prefix(t);
    for (int i = 0; i < ids->len; i++) {
        Str s = tokenizer_piece(t, ids->data[i], o->has_special);
        if (is_start && s.len && !tokenizer_is_control(t, ids->data[i])) {
            if (s.data[0] == ' ') s = (Str){s.data + 1, s.len - 1};
            is_start = false;
        }
        buffer_put(&out, s);
    }
    text_print(&out);
}

int command_tokenize(const Options *o) {
    static Gguf g;
    static Buffer text;
    static Ids ids;
    static Tokenizer *t;
    Error err;
    bool is_check = o->json_schema || o->grammar || o->regex;
    if (is_check && !o->is_jsonl) die(EXIT_USAGE, "tokenize with a constraint: expected --jsonl");
    if ((o->ids_only && !o->is_decode) + o->count_only + o->is_jsonl + o->is_decode > 1)
        die(EXIT_USAGE, "tokenize: expected one of --ids, --count, --jsonl and --decode");
    if (o->is_jsonl && (o->chat_file || o->prompt || o->n_args))
        die(EXIT_USAGE, "tokenize --jsonl: expected its lines in -f FILE or standard input");
    if (o->chat_file && (o->prompt || o->file || o->n_args))
        die(EXIT_USAGE, "tokenize --chat: expected no text beside its file");
    if (o->is_rendered && !o->chat_file)
        die(EXIT_USAGE, "tokenize --rendered: expected --chat FILE beside it");
    Options exact = *o;
    exact.keep_newline = true; // a text to count or to compare, not a prompt
    if (!o->chat_file && !o->is_jsonl) prompt_read(&exact, &text);
    if (!model_open_file(&g, o->model, &err)) die_error(&err);
    if (!(t = tokenizer_open(&g, &err))) die_error(&err);
    if (!o->chat_file && !o->is_jsonl) enter_sandbox(o);
    if (o->chat_file)
        encode_chat(o, &g, t, &ids);
    else if (is_check)
        check_lines(o, t);
    else if (o->is_jsonl)
        print_json_lines(o, t);
    else if (o->is_decode)
        ids_parse(text.data, tokenizer_n_vocab(t), &ids);
    else
        encode(o, t, buffer_str(&text), &ids);
    if (o->is_decode && !o->chat_file)
        print_text(o, t, &ids);
    else if (!o->is_jsonl && !o->is_rendered)
        print_ids(o, t, &ids);
    return EXIT_OK;
}
