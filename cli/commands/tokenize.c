// tokenize: converts text to token ids and back. No BOS token is added; --chat encodes a whole
// conversation as it would be fed to the model. With a constraint, checks which texts the
// constraint accepts.
// Order: conversations, ids and text, constraints, lines, command_tokenize().
#include "cli/commands/commands.h"
#include "base/files.h"
#include "chat/dialogue.h"
#include "cli/lines.h"
#include "cli/open_answer.h"
#include "cli/output.h"
#include "cli/privileges.h"
#include "cli/prompt.h"
#include "cli/resolve.h"

#include <stdio.h>
#include <stdlib.h>

// Reads a conversation: a message per line, as in a chat's file, or a JSON object with the
// variables of the template (messages, tools ...), which are passed on as they are. The answer of
// the model is expected next, unless the object says otherwise or the last line is a message of the
// assistant.
static void read_conversation(const Options *o, TemplateInput *in) {
    static Dialogue d;
    static Buffer text, variables;
    static JsonDoc doc;
    Error err;
    size_t n_truncated;

    if (!file_read_text(o->tokenize.chat_file, &text, &err)) die_error(&err);
    Str all = buffer_str(&text);

    // As in batch, the arguments of tool calls may be strings of JSON.
    if (json_parse(&doc, all.data, all.len, &err) && json_get(doc.root, "messages")) {
        if (o->prompt.tools) die(EXIT_USAGE, "--tools: write \"tools\" in the object instead");
        json_write_value(&(JsonWriter){.out = &variables}, NULL, doc.root, message_put_arguments);
        in->variables = buffer_str(&variables);
        in->wants_answer = true;
        return;
    }

    if (!transcript_parse(&d, all, o->tokenize.chat_file, &n_truncated, &err)) die_error(&err);
    if (n_truncated || !d.n)
        die(EXIT_RUNTIME, "%s: expected lines of {\"role\":\"...\",\"content\":\"...\"}",
            o->tokenize.chat_file);
    in->messages = d.messages;
    in->n_messages = d.n;
    in->wants_answer = !dialogue_has(&d, d.n - 1, "assistant");
}

// --chat: the ids of a conversation or, with --rendered, its text on stdout.
static void encode_conversation(const Options *o, const Settings *s, const Gguf *g, Tokenizer *t,
                                Ids *ids) {
    static Template tpl;
    static Buffer text, mask;
    TemplateInput in = {.reasoning = settings_reasoning(s)};
    Error err;
    template_from_options(o, g, t, &tpl);
    template_note_missing(o, &tpl);
    read_conversation(o, &in);
    in.tools = tools_read(o, &tpl);
    close_file_access(o);
    if (!template_render(&tpl, t, &in, &text, &mask, &err)) die_error(&err);
    free((char *)in.tools.data);

    if (o->tokenize.is_rendered)
        text_write(text.data, text.len);
    else
        template_tokenize(t, buffer_str(&text), mask.data, ids);
}

// Appends the bytes of a token as they appear between quotes: with \", \\ and \n, and other control
// bytes as \xNN.
static void put_piece(Buffer *out, Str s) {
    for (size_t i = 0; i < s.len;) {
        char c = s.data[i], shown[17];
        i += utf8_escape(s.data + i, s.len - i, "", shown);
        if (c == '"' || c == '\\') buffer_puts(out, "\\");
        buffer_puts(out, c == '\n' ? "\\n" : shown);
    }
}

static void print_ids(const Options *o, const Tokenizer *t, const Ids *ids) {
    Buffer out = {0};
    if (o->tokenize.count_only) {
        buffer_printf(&out, "%d\n", ids->len);
    } else if (o->tokenize.ids_only) {
        for (int i = 0; i < ids->len; i++) buffer_printf(&out, i ? " %d" : "%d", ids->data[i]);
        buffer_puts(&out, "\n");
    } else {
        for (int i = 0; i < ids->len; i++) {
            buffer_printf(&out, "%6d  \"", ids->data[i]);
            put_piece(&out, tokenizer_piece(t, ids->data[i], true));
            buffer_puts(&out, "\"\n");
        }
    }

    text_print(&out);
}

// --decode: the bytes of the ids, without the leading space of a SentencePiece text.
static void print_text(const Options *o, const Tokenizer *t, const Ids *ids) {
    Buffer out = {0};
    bool drops_space = tokenizer_has_space_prefix(t);
    for (int i = 0; i < ids->len; i++)
        buffer_put(&out,
                   tokenizer_piece_in_text(t, ids->data[i], o->prompt.has_special, &drops_space));
    text_print(&out);
}

// Constraints.

// True if the constraint accepts a text. Its tokens are accepted one by one, as in generation, and
// each is checked against the mask computed before it. Of the control tokens (--special), a stop
// token is accepted after a complete text. *at is the number of accepted bytes.
static bool is_accepted(Matcher *m, const Tokenizer *t, const Ids *ids, size_t *at) {
    bool drops_space = tokenizer_has_space_prefix(t);
    *at = 0;
    for (int i = 0; i < ids->len; i++) {
        const uint64_t *mask = matcher_mask(m, drops_space);
        if (!mask) die(EXIT_INCOMPLETE, "token %d: the constraint is too ambiguous here", i);
        int id = ids->data[i];
        if (tokenizer_is_control(t, id))
            return i == ids->len - 1 && tokenizer_is_stop(t, id) && matcher_is_end(m);
        Str piece = tokenizer_piece_in_text(t, id, false, &drops_space);
        size_t n = matcher_accept(m, piece);
        bool is_allowed = mask[id / 64] >> (id & 63) & 1, fits = n == piece.len;
        *at += n;
        if (fits && n == 0) continue; // SentencePiece's leading space
        if (fits && !is_allowed) die(EXIT_RUNTIME, "token %d fits but is not in the mask", id);
        if (!fits || !is_allowed) return false;
    }

    return matcher_is_end(m);
}

// The judge of the texts of --jsonl.
typedef struct {
    const Tokenizer *tokenizer;
    bool has_special;
    ConstraintCache *cache;
    CompiledConstraint *constraint;
    SchemaValidator *validator; // NULL unless the constraint is a JSON Schema
    Ids ids;
    Buffer line;
} TextChecker;

static void checker_open(TextChecker *c, const Options *o, const Settings *s, const Tokenizer *t) {
    const ConstraintSpec *spec = &s->constraint;
    Error err;
    *c = (TextChecker){
        .tokenizer = t, .has_special = o->prompt.has_special, .cache = constraint_cache_new(t)};
    if (!constraint_open(c->cache, s, spec, &c->constraint, &err)) die_error(&err);

    const ConstraintNotes *notes = constraint_notes(c->constraint);
    if (notes->ignored.len) note(o, "%s", notes->ignored.data);
    if (notes->checked.len) note(o, "%s", notes->checked.data);

    if (spec->kind != CONSTRAINT_SCHEMA_TEXT) return;
    c->validator = validator_new(spec->text, &err);
    if (!c->validator) die_error(&err);
}

// Prints the verdicts about a text: {"valid", "error", "accepted", "n_tokens", "at"}, the first two
// of a JSON Schema, where "at" is the number of bytes before the first byte that the constraint
// rejects.
static void check_text(TextChecker *c, Str text) {
    size_t at;
    Error why = {0};

    c->ids.len = 0;
    tokenizer_encode(c->tokenizer, text, c->has_special, &c->ids);
    Matcher *m = constraint_begin(c->constraint);
    bool accepted = is_accepted(m, c->tokenizer, &c->ids, &at);
    accepted = accepted && constraint_check(c->constraint, text, &(Error){0});
    matcher_free(m);

    c->line.len = 0;
    JsonWriter w = json_object(&c->line);
    if (c->validator) json_write_bool(&w, "valid", validator_check(c->validator, text, &why));
    if (*why.text) json_write_string(&w, "error", str_of(why.text));
    json_write_bool(&w, "accepted", accepted);
    json_write_int(&w, "n_tokens", c->ids.len);
    json_write_int(&w, "at", (int64_t)at);
    json_end_object(&w);
    puts(c->line.data);
}

// The state of the command, until the process ends.
typedef struct {
    Settings settings;
    Gguf gguf;
    Tokenizer *tokenizer;
    Buffer text; // to encode, or ids to decode
    Ids ids;
    LineReader lines;    // of --jsonl
    JsonDoc doc;         // of a line
    TextChecker checker; // of the lines, with a constraint
} Tokenize;

// --jsonl: the text of each line (lines_text()) becomes an array of ids or, with a constraint, the
// result of check_text().
static void process_lines(Tokenize *run, const Options *o, bool has_constraint) {
    Ids *ids = &run->ids;

    if (has_constraint) checker_open(&run->checker, o, &run->settings, run->tokenizer);
    lines_open(&run->lines, o->prompt.file, 1 << 30);
    close_file_access(o);

    while (lines_next_json(&run->lines, &run->doc)) {
        Str text = lines_text(&run->lines, &run->doc);
        if (has_constraint) {
            check_text(&run->checker, text);
            continue;
        }

        ids->len = 0;
        tokenizer_encode(run->tokenizer, text, o->prompt.has_special, ids);
        putchar('[');
        for (int i = 0; i < ids->len; i++) printf(i ? ",%d" : "%d", ids->data[i]);
        puts("]");
    }

    if (has_constraint)
        note(o, "compiled in %.0f us", constraint_compile_sec(run->checker.constraint) * 1e6);
}

static bool is_about_chat(const Options *o) { return o->tokenize.is_rendered || o->prompt.tools; }

// Dies on options that cannot be combined.
static void check_options(const Options *o, bool has_constraint) {
    if (has_constraint && !o->prompt.is_jsonl)
        die(EXIT_USAGE, "tokenize: a constraint needs --jsonl");
    if ((o->tokenize.ids_only && !o->tokenize.is_decode) + o->tokenize.count_only +
            o->prompt.is_jsonl + o->tokenize.is_decode >
        1)
        die(EXIT_USAGE, "tokenize: --ids, --count, --jsonl and --decode exclude each other");
    if (o->prompt.is_jsonl && (o->tokenize.chat_file || o->prompt.text || o->n_args))
        die(EXIT_USAGE, "tokenize --jsonl: reads -f FILE or standard input only");
    if (o->tokenize.chat_file && (o->prompt.text || o->prompt.file || o->n_args))
        die(EXIT_USAGE, "tokenize --chat: cannot be combined with other text");
    if (is_about_chat(o) && !o->tokenize.chat_file)
        die(EXIT_USAGE, "tokenize: --rendered and --tools need --chat FILE");
}

int command_tokenize(const Options *o) {
    static Tokenize run;
    Ids *ids = &run.ids;
    Error err;
    bool has_constraint = o->text.json_schema || o->text.grammar || o->text.regex;
    bool has_text = !o->tokenize.chat_file && !o->prompt.is_jsonl;

    // The text is read before the model is opened, which may take longer.
    check_options(o, has_constraint);
    run.settings = settings_resolve(o, NULL, NULL);
    Options exact = *o;
    exact.prompt.keep_newline = true; // every byte counts
    if (has_text) prompt_read(&exact, &run.text);

    if (!model_open_file(&run.gguf, o->model.path, &err)) die_error(&err);
    Tokenizer *t = tokenizer_open(&run.gguf, &err);
    if (!t) die_error(&err);
    run.tokenizer = t;
    if (has_text) close_file_access(o);

    if (o->tokenize.chat_file)
        encode_conversation(o, &run.settings, &run.gguf, t, ids);
    else if (o->prompt.is_jsonl)
        process_lines(&run, o, has_constraint);
    else if (o->tokenize.is_decode)
        ids_parse(run.text.data, tokenizer_n_vocab(t), ids);
    else
        tokenizer_encode(t, buffer_str(&run.text), o->prompt.has_special, ids);

    if (o->tokenize.is_decode && has_text)
        print_text(o, t, ids);
    else if (!o->prompt.is_jsonl && !o->tokenize.is_rendered)
        print_ids(o, t, ids);

    return EXIT_OK;
}
