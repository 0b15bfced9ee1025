// chat: reads texts in a loop. A typed text that begins with a slash is a command
// (chat_commands.c); any other text is a message, which the model answers (chat_turn.c). Without a
// terminal, a line is a message, whatever it contains, unless --commands is given.
#include "cli/commands/commands.h"
#include "cli/commands/chat.h"
#include "cli/answer_view.h"
#include "base/signals.h"
#include "cli/open_generator.h"
#include "cli/request.h"
#include "cli/output.h"
#include "cli/privileges.h"
#include "model/size.h"

#include <unistd.h>

enum { CHUNK = 256 }; // tokens per forward pass: few, so that a long prefill shows progress

static void chat_open(Chat *c, const Options *o) {
    Error err;
    c->options = o;
    pipeline_open(&c->pipeline, c->options);
    c->settings = settings_copy(&c->pipeline.settings);

    int most = c->pipeline.model.config.max_context;
    if (!c->pipeline.ctx) c->pipeline.ctx = most < DEFAULT_CONTEXT ? most : DEFAULT_CONTEXT;
    if (!kv_memory_check(&c->pipeline.model, (size_t)c->pipeline.ctx, &err)) die_error(&err);
    generator_open(&c->pipeline, &c->generator, o->model.chunk ? o->model.chunk : CHUNK, 1);
    c->session = session_new(&c->pipeline.model.kv);

    c->editor = editor_open(chat_history(o), chat_complete, &generate_interrupted);
    c->is_terminal = editor_is_terminal(c->editor);
    if (c->is_terminal && o->prompt.is_jsonl)
        die(EXIT_USAGE, "--jsonl: standard input is a terminal");
    if (!c->is_terminal) lines_open(&c->lines, NULL, MAX_LINE);
    chat_open_file(c);
    template_note_missing(o, &c->pipeline.tpl);
}

// Names the model, tells a new user what to type, and shows where a resumed dialogue ended.
static void greet(const Chat *c) {
    const Options *o = c->options;
    const Model *m = &c->pipeline.model;
    const Dialogue *d = &c->dialogue;
    const char *type = gguf_file_type(&m->file);
    Str name = gguf_get_text(&m->file, "general.name");
    char size[24];
    if (!c->is_terminal || o->output.is_json) return;

    if (!name.len) name = str_of(m->file.path);
    note(o, "%.*s%s%s, %s, context %d of %d", SHOWN(name), type ? " " : "", type ? type : "",
         scaled(size, (double)model_weight_bytes(m), "B"), o->model.ctx, m->config.max_context);
    if (!o->model.path)
        note(o, "The built-in model only tells short stories; -m FILE opens another.");
    else if (c->pipeline.tpl.is_none)
        note(o, "This is a base model. Type the beginning of a text.");
    note(o, "Ctrl-C stops an answer, Ctrl-D ends the chat, /help lists the commands.");

    chat_show_last(c);
    if (d->n > dialogue_has(d, 0, "system"))
        note(o, "%s so far%s", count_of(d->n, "message"),
             dialogue_has(d, d->n - 1, "user") ? "; the last has no answer: /regen" : "");
}

// Reads the next line without a terminal. It is a message, even if it ends with a backslash or
// begins with quotes. With --jsonl it is a JSON string. A failed line is a failed turn.
static EditorResult read_line_of_pipe(Chat *c, Buffer *text) {
    static JsonDoc doc;
    Str line;
    Error err;

    LineState state = lines_next(&c->lines, &line, true);
    if (state == LINE_NONE || state == LINE_END) return EDITOR_CLOSED;

    if (str_ends_with(line, "\r")) line.len--;
    bool ok =
        state == LINE_READY || error_set(&err, EXIT_RUNTIME, "longer than %d bytes", MAX_LINE);
    if (ok && c->options->prompt.is_jsonl && !str_is_blank(line)) {
        ok = json_parse(&doc, line.data, line.len, &err);
        if (ok && (doc.root->kind != JSON_STRING || str_is_blank(doc.root->string)))
            ok = error_set(&err, EXIT_RUNTIME, "expected a JSON string that is not blank");
        if (ok) line = doc.root->string;
    }

    if (!ok) {
        chat_error(c, EXIT_RUNTIME, "standard input: line %ld: %s", c->lines.number, err.text);
        line.len = 0; // skipped, as a blank line is
    }
    text->len = 0;
    buffer_put(text, line);
    return EDITOR_TYPED;
}

// True for a line that begins with a slash, on a terminal or with --commands. A path is a message,
// because the names of commands have no second slash.
static bool is_command(const Chat *c, const Buffer *text) {
    size_t n_word = strcspn(text->data, " \t");
    if (text->data[0] != '/' || !(c->is_terminal || c->options->chat.has_commands)) return false;
    if (strcspn(text->data, "\n") != text->len) return false; // several lines, or a NUL byte
    if (!memchr(text->data + 1, '/', n_word - 1)) return true;
    note(c->options, "(a message: %.*s is not a command)", (int)n_word, text->data);
    return false;
}

// Handles a line that was read. False ends the chat.
static bool handle_line(Chat *c, EditorResult result, const Buffer *text, bool is_editing) {
    Str line = buffer_str(text);
    bool is_typed = c->is_terminal && result == EDITOR_TYPED;
    if (is_typed && !is_editing && str_is_one_of(content_strip(line), "exit quit")) return false;

    bool is_message = result == EDITOR_PASTED || !is_command(c, text);
    if (!is_message) return chat_command(c, text->data);
    if (is_editing)
        chat_replace(c, dialogue_last(&c->dialogue, "user"), line);
    else
        chat_say(c, "user", line);
    return true;
}

// True if no further line is read.
static bool is_over(const Chat *c) {
    return chat_is_stuck(c) || output_is_lost() || (generate_interrupted && !c->is_terminal);
}

// Saves what is not saved yet. Returns the exit code.
static int close_chat(Chat *c) {
    if (c->is_terminal) c->exit_code = EXIT_OK; // the user has seen the errors
    bool is_lost = !chat_close_file(c) && c->options->chat.session_file;
    if (is_lost || output_is_lost()) c->exit_code = EXIT_RUNTIME;
    return generate_interrupted && !output_is_lost() ? EXIT_INTERRUPTED : c->exit_code;
}

int command_chat(const Options *o) {
    static Chat c;
    Buffer text = {0};
    int n_interrupts = 0;

    if (o->chat.lists) return chat_list(o);
    view_check(o);
    chat_open(&c, o);
    signals_defer(SIGINT);
    greet(&c);

    for (;;) {
        buffer_puts(&c.edited, "");
        EditorResult result = c.is_terminal ? editor_read(c.editor, "> ", c.edited.data, &text)
                                            : read_line_of_pipe(&c, &text);
        bool is_editing = c.edited.len;
        c.edited.len = 0;

        bool is_blank = result <= EDITOR_PASTED && str_is_blank(buffer_str(&text));
        if (is_editing && (is_blank || result == EDITOR_INTERRUPTED)) {
            note(o, "(not changed)");
            continue;
        }
        if (result == EDITOR_CLOSED) break;
        if (result == EDITOR_INTERRUPTED) {
            if (++n_interrupts == 2) break;
            note(o, "(Ctrl-C again, or Ctrl-D, ends the chat)");
            continue;
        }
        n_interrupts = 0;
        if (is_blank) continue;

        if (!handle_line(&c, result, &text, is_editing) || is_over(&c)) break;
        generate_interrupted = 0;
    }

    buffer_free(&text);
    return close_chat(&c);
}
