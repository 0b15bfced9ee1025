// The slash commands of chat, their table, and the completion of input. A command is called with
// the text that follows its name.
// Order: options, files, clipboard, dialogue, the table, completion.
#include "cli/commands/chat.h"
#include "cli/option_values.h"
#include "cli/output.h"
#include "cli/request.h"
#include "cli/shell_name.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#pragma GCC diagnostic ignored "-Wunused-parameter" // some commands need no text

// Options

static const char SET[] = "/set ";

typedef enum { SETTINGS_CHANGED, SETTINGS_ALL, SETTINGS_ONE } ShownSettings;

// Prints the options of /set, one of them, or those that differ from the defaults, as "temp 0.8,
// top-k 40, ...". The parameters of DRY are left out while it is off.
static void show_settings(const Chat *c, ShownSettings which, const Option *one) {
    Buffer settings = {0}, shown = {0};
    OptionWalk walk = option_walk(CMD_SET, c->options, &c->settings, NULL);

    while (option_walk_next(&walk)) {
        bool is_dry = str_begins_with(str_of(walk.name), "--dry-");
        if (which == SETTINGS_ONE && walk.row - 1 != one) continue;
        if (which != SETTINGS_ONE && is_dry && c->settings.sample.dry.multiplier == 0) continue;
        if (which == SETTINGS_CHANGED && !option_walk_has_changed(&walk)) continue;

        const char *value = strcmp(walk.value, "null") ? walk.value : "default";
        buffer_printf(&settings, "%s%s %s", settings.len ? ", " : "", walk.name + 2, value);
    }

    buffer_puts(&shown, which == SETTINGS_CHANGED ? "options   " : "");
    put_wrapped(&shown, buffer_str(&settings), ", ", shown.len, terminal_columns(STDERR_FILENO));
    note(NULL, "%s", shown.data);

    buffer_free(&settings);
    buffer_free(&shown);
}

// "temp" or "--temp" is the option --temp, "top_k" is --top-k, "n" is -n. Writes this name; NULL
// with err if there is no such option of /set.
static const Option *find_setting(const Chat *c, Str name, char option[42], Error *err) {
    while (str_begins_with(name, "-")) name = (Str){name.data + 1, name.len - 1};
    snprintf(option, 42, "%s%.*s", name.len > 1 ? "--" : "-", (int)name.len, name.data);
    for (char *at = option; (at = strchr(at, '_'));) *at = '-';
    return option_find(c->options, CMD_SET, option, err);
}

// NAME VALUE, NAME=VALUE, or NAME alone, which prints the value.
static void command_set(Chat *c, const char *text) {
    char option[42];
    Error err;
    if (str_begins_with(str_of(text), "parameter ")) text += strlen("parameter "); // as in ollama

    Str rest = content_strip(str_of(text));
    size_t n = strcspn(rest.data, " \t=");
    Str name = {rest.data, n < rest.len ? n : rest.len};
    rest = content_strip((Str){rest.data + name.len, rest.len - name.len});
    if (str_begins_with(rest, "=")) rest = content_strip((Str){rest.data + 1, rest.len - 1});
    if (!name.len) {
        show_settings(c, SETTINGS_ALL, NULL);
        return;
    }

    Str value = str_copy(rest);
    const Option *found = find_setting(c, name, option, &err);
    if (!found && option_find(c->options, CMD_CHAT, option, NULL)) {
        chat_error(c, EXIT_RUNTIME, "/set: %s cannot change within a chat; /set lists the others",
                   option);
    } else if (!found) {
        const char *why = strstr(err.text, "unknown"); // up to the hint for the command line
        chat_error(c, EXIT_RUNTIME, "/set: %.*s(/set lists them)", (int)strcspn(why, "("), why);
    } else if (!value.len) {
        show_settings(c, SETTINGS_ONE, found);
    } else if (!setting_set(&c->settings, found, option, value.data, &err)) {
        chat_error(c, EXIT_RUNTIME, "/set: %s", err.text);
    } else if (!strcmp(option, "--seed") || !strcmp(option, "-s")) {
        c->n_answers = 0;
    }
    free((char *)value.data);
}

static void command_show(Chat *c, const char *text) {
    const Dialogue *d = &c->dialogue;
    note(NULL, "model     %s", c->pipeline.model.file.path);
    note(NULL, "template  %s", c->pipeline.tpl.name);
    note(NULL, "context   %d of %d positions, %s", c->session->n_tokens, c->pipeline.ctx,
         count_of(d->n, "message"));
    show_settings(c, SETTINGS_CHANGED, NULL);
    if (dialogue_has(d, 0, "system"))
        note(NULL, "system    %.*s", (int)d->messages[0].content.len, d->messages[0].content.data);
}

static void command_stats(Chat *c, const char *text) {
    const ChatTotals *t = &c->totals;
    note(NULL, "%s; prefill %llu tok %.1f tok/s, decode %llu tok %.1f tok/s; KV cache %.1f MB",
         count_of(c->n_answers, "answer"), (unsigned long long)t->n_prefill,
         t->prefill_sec > 0 ? (double)t->n_prefill / t->prefill_sec : 0,
         (unsigned long long)t->n_decode,
         t->decode_sec > 0 ? (double)t->n_decode / t->decode_sec : 0,
         (double)kv_position_bytes(&c->pipeline.model.kv) * c->session->n_tokens * 1e-6);
}

// Files

static const char FORCE[] = "--force "; // of /save

// True for a pipe or a device: reading it could block, and Ctrl-C would not end the wait.
static bool is_stream(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
}

// Reads the file name after a command into *name. False, after an error, if it is invalid.
static bool read_file_name(Chat *c, const char *command, const char *text, Buffer *name) {
    Error err;
    bool ok = shell_name_read(str_of(text), name, &err);
    if (ok && (!name->len || str_is_one_of(buffer_str(name), "- --force")))
        ok = error_set(&err, EXIT_RUNTIME, "%s: expected a file name", command);
    if (ok && is_stream(name->data))
        ok = error_set(&err, EXIT_RUNTIME, "%s: expected a file, found a pipe or device",
                       name->data);
    if (ok) return true;

    chat_error(c, err.code, "%s", err.text);
    buffer_free(name);
    return false;
}

static void command_file(Chat *c, const char *text) {
    Error err;
    Buffer name = {0};
    if (!read_file_name(c, "/file", text, &name)) return;

    const char *path = name.data;
    Ids ids = {0};
    struct stat st;
    size_t before = c->attached.len;
    bool is_regular = stat(path, &st) == 0 && S_ISREG(st.st_mode);

    // The file is appended. If it cannot be read or is too long, it is removed again.
    if (before) buffer_puts(&c->attached, "\n\n");
    bool ok = (!is_regular || text_may_fit(&c->pipeline, (size_t)st.st_size, &err)) &&
              file_read_text(path, &c->attached, &err);
    if (ok) tokenizer_encode(c->pipeline.tokenizer, buffer_str(&c->attached), false, &ids);

    if (ok && context_fits(ids.len, true, c->pipeline.ctx, &err)) {
        note(c->options, "the next message begins with %s: %d tokens", path, ids.len);
    } else {
        c->attached.len = before;
        chat_error(c, err.code, "%s", err.text);
    }

    buffer_free(&name);
    free(ids.data);
}

void chat_show_last(const Chat *c) {
    enum { MAX_BYTES = 2000 }; // of each message
    const Dialogue *d = &c->dialogue;
    int first = dialogue_last(d, "user");
    for (int i = first; c->is_terminal && i >= 0 && i < d->n; i++) {
        Str text = d->messages[i].content;
        size_t skipped = text.len > MAX_BYTES ? text.len - MAX_BYTES : 0;
        while (skipped && skipped < text.len && (text.data[skipped] & 0xc0) == 0x80) skipped++;
        note(c->options, "%s%s%.*s", i == first ? "> " : "", skipped ? "... " : "",
             (int)(text.len - skipped), text.data + skipped);
    }
}

static void command_load(Chat *c, const char *text) {
    Dialogue *d = &c->dialogue, loaded = {0};
    Error err;
    Buffer name = {0};
    size_t n_truncated;

    if (!read_file_name(c, "/load", text, &name)) return;
    bool ok = transcript_read(&loaded, name.data, &n_truncated, &err);
    if (ok && !loaded.n) ok = error_set(&err, EXIT_RUNTIME, "%s: no message", name.data);
    buffer_free(&name);
    if (!ok) {
        chat_error(c, err.code, "%s", err.text);
        dialogue_free(&loaded);
        return;
    }

    // The old dialogue stays in the file.
    if (d->n || dialogue_is_begun(d)) transcript_put_clear(&c->unsaved);
    dialogue_begin_anew(d);
    dialogue_remove(d, 0, d->n);
    for (int i = 0; i < loaded.n; i++) dialogue_push(d, loaded.messages[i]);
    loaded.n = 0;
    dialogue_free(&loaded);
    c->n_new = d->n;
    chat_save_change(c);
    chat_show_last(c);
    note(c->options, "%s", count_of(d->n, "message"));
}

// True if the content of a file is a prefix of the text, so that nothing is lost if the text
// replaces it.
static bool has_prefix_of(const char *path, Str text) {
    struct stat st;
    Buffer old = {0};
    bool is_prefix = stat(path, &st) == 0 && S_ISREG(st.st_mode) &&
                     (size_t)st.st_size <= text.len && file_read(path, &old, &(Error){0}) &&
                     str_has_prefix(text, buffer_str(&old));
    buffer_free(&old);
    return is_prefix;
}

// Writes a file atomically. A new file gets mode 0600. False with err.
static bool save_file(const char *path, bool is_forced, Str content, Error *err) {
    OutFile f;
    if (!outfile_open(&f, path, FILE_PRIVATE | (is_forced ? FILE_FORCE : 0), err)) return false;
    if (write_all(f.fd, content.data, content.len)) return outfile_close(&f, err);
    error_file(err, path);
    outfile_discard(&f);
    return false;
}

static void command_save(Chat *c, const char *text) {
    Error err;
    Buffer name = {0}, content = {0};
    bool is_forced = str_begins_with(str_of(text), FORCE);

    if (is_forced) text += strlen(FORCE);
    if (!read_file_name(c, "/save", text, &name)) return;

    const char *path = name.data;
    if (str_ends_with(str_of(path), ".md"))
        transcript_put_markdown(&c->dialogue, &content);
    else
        transcript_put(&c->dialogue, &content);

    // A file that holds the beginning of this dialogue is overwritten without --force.
    is_forced |= has_prefix_of(path, buffer_str(&content));
    if (!save_file(path, is_forced, buffer_str(&content), &err))
        chat_error(c, EXIT_RUNTIME, "%s%s", err.text,
                   strstr(err.text, strerror(EACCES))
                       ? "; chat writes below the current directory (--sandbox none: anywhere)"
                       : "");
    else
        note(c->options, "%s saved in %s", count_of(c->dialogue.n, "message"), path);

    buffer_free(&name);
    buffer_free(&content);
}

// Clipboard

// Digit i encodes the bits 6 i to 6 i + 5 of s, which must be followed by a zero byte.
static void put_base64(Buffer *out, Str s) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *bytes = (const unsigned char *)s.data;
    for (size_t i = 0; i < (s.len + 2) / 3 * 4; i++) {
        size_t at = 6 * i / 8, shift = 10 - 6 * i % 8;
        char digit = at < s.len ? digits[(bytes[at] << 8 | bytes[at + 1]) >> shift & 63] : '=';
        buffer_append(out, &digit, 1);
    }
}

// OSC 52 asks the terminal to copy a text to the clipboard. It also works over SSH. Terminals do
// not reply, so it is unknown whether the copy succeeded.
static void command_copy(Chat *c, const char *text) {
    enum { MAX_BYTES = 74994 }; // a sequence of 100,000 bytes, the limit of hterm's osc52.sh
    int fd = terminal_has_escapes(STDERR_FILENO) ? STDERR_FILENO : STDOUT_FILENO;
    int i = dialogue_last(&c->dialogue, "assistant");
    Str answer = i < 0 ? (Str){0} : c->dialogue.messages[i].content;
    Buffer out = {0};

    buffer_puts(&out, "\x1b]52;c;");
    put_base64(&out, answer);
    buffer_puts(&out, "\a");

    if (!answer.len) {
        chat_error(c, EXIT_RUNTIME, "there is no answer to copy");
    } else if (!terminal_has_escapes(fd)) {
        chat_error(c, EXIT_RUNTIME, "/copy: needs a terminal");
    } else if (answer.len > MAX_BYTES) {
        chat_error(c, EXIT_RUNTIME, "/copy: the answer has %zu bytes; terminals accept %d",
                   answer.len, MAX_BYTES);
    } else {
        output_write(fd, "terminal", out.data, out.len);
        note(c->options, "(sent to the clipboard: %zu bytes)", answer.len);
    }
    buffer_free(&out);
}

// The dialogue

// Removes the last message of the user and all messages after it.
static void command_undo(Chat *c, const char *text) {
    Dialogue *d = &c->dialogue;
    int i = dialogue_last(d, "user");
    if (i < 0) {
        chat_error(c, EXIT_RUNTIME, "there is no message to undo");
        return;
    }
    c->n_removed = d->n - i;
    dialogue_undo(d, i);
    chat_save_change(c);
    note(c->options, "(undone: %s left; /redo reverts this)", count_of(d->n, "message"));
}

// Brings back what the last /undo, /edit, /regen or /answer has removed.
static void command_redo(Chat *c, const char *text) {
    Dialogue *d = &c->dialogue;
    int n_before = d->n;
    int from = dialogue_redo(d);
    if (from < 0) {
        chat_error(c, EXIT_RUNTIME, "there is nothing to redo");
        return;
    }
    c->n_removed = n_before - from;
    c->n_new = d->n - from;
    chat_save_change(c);
    chat_show_last(c);
    note(c->options, "(%s)", count_of(d->n, "message"));
}

// With a text, replaces the last message with it. Otherwise puts the last message into the editor;
// the dialogue changes when the edited message is sent.
static void command_edit(Chat *c, const char *text) {
    Dialogue *d = &c->dialogue;
    int i = dialogue_last(d, "user");
    if (i < 0)
        chat_error(c, EXIT_RUNTIME, "there is no message to edit");
    else if (*text)
        chat_replace(c, i, str_of(text));
    else if (c->is_terminal)
        buffer_put(&c->edited, d->messages[i].content);
    else
        chat_error(c, EXIT_RUNTIME, "/edit: expected a text");
}

static void command_regen(Chat *c, const char *text) {
    Dialogue *d = &c->dialogue;
    if (dialogue_last(d, "user") < 0) {
        chat_error(c, EXIT_RUNTIME, "there is no message to answer");
        return;
    }
    chat_replace(c, d->n - dialogue_has(d, d->n - 1, "assistant"), (Str){0});
}

static void command_answer(Chat *c, const char *text) {
    c->begun = text;
    command_regen(c, "");
    c->begun = NULL;
}

static void command_clear(Chat *c, const char *text) {
    Dialogue *d = &c->dialogue;
    c->attached.len = 0;
    if (dialogue_is_begun(d)) {
        dialogue_begin_anew(d);
        transcript_put_clear(&c->unsaved);
        c->n_new = d->n; // the system prompt
        chat_save_change(c);
    }
    note(c->options, "(cleared%s%s%s)", d->n ? "; the system prompt stays" : "",
         c->path ? "; the old messages stay in " : "", c->path ? c->path : "");
}

static void command_system(Chat *c, const char *text) {
    if (c->pipeline.tpl.is_none) {
        chat_error(c, EXIT_RUNTIME, "a model without a chat template takes no system prompt");
        return;
    }
    dialogue_set_system(&c->dialogue, str_of(text));
    chat_save_system(c);
    note(c->options, *text ? "(system prompt set)" : "(system prompt removed)");
}

// Results are assigned to the tool calls of the last answer in order. The model answers after the
// last result. If no call is pending, the message gets the role "ipython" of Llama 3.1.
static void command_tool(Chat *c, const char *text) {
    const Dialogue *d = &c->dialogue;
    JsonDoc doc = {0};
    int n_results = 0;

    // Find the first call without a result, in the message before the results.
    while (dialogue_has(d, d->n - 1 - n_results, "tool")) n_results++;
    const Message *last = d->n > n_results ? &d->messages[d->n - 1 - n_results] : NULL;
    const Json *calls = last && json_parse(&doc, last->json.data, last->json.len, &(Error){0})
                            ? json_get(doc.root, "tool_calls")
                            : NULL;
    const Json *call = calls ? calls->child : NULL;
    for (int i = 0; i < n_results && call; i++) call = call->next;

    if (!call) {
        chat_say(c, "ipython", str_of(text));
    } else {
        const Json *id = json_get_string(call, "id");
        const Json *name = json_get_string(json_get(call, "function"), "name");
        Buffer json = {0};

        JsonWriter w = json_object(&json);
        json_write_string(&w, "role", str_of("tool"));
        json_write_string(&w, "content", str_of(text));
        if (id) json_write_string(&w, "tool_call_id", id->string);
        if (name) json_write_string(&w, "name", name->string);
        json_end_object(&w);

        Message m = {buffer_str(&json), str_copy(str_of("tool")), str_copy(str_of(text)), false};
        chat_add(c, m, !call->next);
        if (call->next) note(c->options, "(another call waits for its result)");
    }
    json_free(&doc);
}

// The table

static void command_list(Chat *c, const char *text);

static const struct {
    const char *name, *help;
    void (*run)(Chat *c, const char *text); // NULL: ends the chat
    bool takes_file;
} commands[] = {
    {"/help", "list these commands", command_list, false},
    {"/exit", "end the chat (also Ctrl-D)", NULL, false},
    {"/clear", "begin another dialogue with the same system prompt", command_clear, false},
    {"/system", "TEXT: set the system prompt; without TEXT remove it", command_system, false},
    {"/undo", "remove the last message and its answer", command_undo, false},
    {"/redo", "bring back what /undo, /edit, /regen or /answer removed", command_redo, false},
    {"/regen", "answer the last message again", command_regen, false},
    {"/answer", "TEXT: answer the last message again, beginning with TEXT", command_answer, false},
    {"/edit", "change the last message and send it again", command_edit, false},
    {"/save", "FILE: save as JSON lines or FILE.md (--force FILE: overwrite)", command_save, true},
    {"/load", "FILE: continue a saved dialogue", command_load, true},
    {"/copy", "copy the last answer to the clipboard", command_copy, false},
    {"/set", "OPTION VALUE: temp, top-k, top-p, min-p, seed ...; alone: list them", command_set,
     false},
    {"/show", "show model, template, context and changed options", command_show, false},
    {"/stats", "show tokens and speed so far", command_stats, false},
    {"/file", "FILE: begin the next message with a file", command_file, true},
    {"/tool", "TEXT: send the result of a tool call", command_tool, false},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

// Names of other programs.
static const char *const aliases[][2] = {
    {"/quit", "/exit"},   {"/bye", "/exit"}, {"/reset", "/clear"}, {"/new", "/clear"},
    {"/retry", "/regen"}, {"/?", "/help"},   {"/model", "/show"},
};

static void command_list(Chat *c, const char *text) {
    for (int i = 0; i < N_COMMANDS; i++) note(NULL, "%-8s %s", commands[i].name, commands[i].help);
    note(NULL,
         "Several lines: end each with \\, enclose them in \"\"\", or paste them.\n"
         "A space before \"/\" sends it as text. Tab completes, Ctrl-R searches the history.");
}

bool chat_command(Chat *c, const char *text) {
    char word[40], option[42];
    size_t n = strcspn(text, " \t");

    snprintf(word, sizeof word, "%.*s", (int)(n < sizeof word ? n : sizeof word - 1), text);
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (!strcmp(word, aliases[i][0])) snprintf(word, sizeof word, "%s", aliases[i][1]);

    // The name of an option, as in "/temp 0.7", sets it.
    Str name = {text + 1, strcspn(text + 1, " \t=")};
    if (find_setting(c, name, option, NULL)) {
        command_set(c, text + 1);
        return true;
    }

    text += n + strspn(text + n, " \t");

    for (int i = 0; i < N_COMMANDS; i++) {
        if (strcmp(word, commands[i].name)) continue;

        if (commands[i].run) commands[i].run(c, text);
        return commands[i].run;
    }

    chat_error(c, EXIT_RUNTIME,
               "unknown command %s%s (/help lists them; a space first makes it a message)", word,
               did_you_mean(word, &commands->name, sizeof *commands, N_COMMANDS));
    return true;
}

// Completion

// The offset of the file name in a command that takes one, or 0.
static size_t file_begin(Str text) {
    for (int i = 0; i < N_COMMANDS; i++) {
        size_t n = strlen(commands[i].name);
        if (!commands[i].takes_file || text.len <= n || !str_begins_with(text, commands[i].name) ||
            text.data[n] != ' ')
            continue;

        while (n < text.len && text.data[n] == ' ') n++;
        Str rest = {text.data + n, text.len - n};
        return n + (str_begins_with(rest, FORCE) ? strlen(FORCE) : 0);
    }
    return 0;
}

size_t chat_complete(Str before, Buffer *out) {
    Str word = before; // to complete
    bool is_command = str_begins_with(before, "/");
    size_t begin = is_command ? file_begin(before) : 0;
    if (begin) {
        shell_name_complete((Str){before.data + begin, before.len - begin}, out);
        return begin;
    }

    for (int i = 0; i < N_COMMANDS && is_command; i++)
        if (str_has_prefix(str_of(commands[i].name), word))
            buffer_printf(out, "%s\n", commands[i].name);

    // Complete the names of options after /set.
    if (!str_begins_with(before, SET)) return 0;
    word = (Str){before.data + strlen(SET), before.len - strlen(SET)};
    for (const Option *o = option_table; o < option_table + n_option_rows; o++) {
        if (!(o->commands & CMD_SET)) continue;
        for (int k = 0; k < 3 && o->names[k]; k++)
            if (!strncmp(o->names[k], "--", 2) && str_has_prefix(str_of(o->names[k] + 2), word))
                buffer_printf(out, "%s\n", o->names[k] + 2);
    }
    return strlen(SET);
}
