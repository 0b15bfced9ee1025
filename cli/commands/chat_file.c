// The file of a chat: --session, or the last chats beside the history. Opens and saves it, lists
// its dialogues, and resumes one of them.
//
// While the chat is open, its file only grows: every change of the dialogue is appended
// (chat/dialogue.h), also by the next change if the file cannot be written. At the end of the chat
// the file is written anew, without what /undo removed.
#include "cli/commands/chat.h"
#include "cli/output.h"
#include "cli/privileges.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

// The file of --session, or the n-th file of last chats: the first one, or one of a chat that was
// open at the same time as others. Owned by the caller; NULL if there is no history.
static char *file_path(const Options *o, int n) {
    char suffix[32];
    snprintf(suffix, sizeof suffix, n > 1 ? ".last-chat-%d" : ".last-chat", n);
    return o->chat.session_file ? text_format("%s", o->chat.session_file)
                                : history_beside(o, suffix);
}

// Fills err if a path is no file that can be written, except the null device.
static bool check_history(const char *path, Error *err) {
    struct stat st, null;
    bool exists = stat(path, &st) == 0;
    bool is_null = exists && stat("/dev/null", &null) == 0 && st.st_rdev == null.st_rdev;
    if (exists && !S_ISREG(st.st_mode))
        return is_null || error_set(err, EXIT_USAGE, "%s: expected a file, found a %s", path,
                                    file_kind(st.st_mode));

    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0) return error_file(err, path);
    close(fd);
    return true;
}

const char *chat_history(const Options *o) {
    const char *path = isatty(STDIN_FILENO) ? history_path(o) : NULL;
    Error err;
    if (!path || check_history(path, &err)) return path;
    if (getenv("LLAMA31_HISTORY")) die(EXIT_USAGE, "LLAMA31_HISTORY: %s", err.text);
    warn("%s; the input is not kept", err.text);
    return NULL;
}

// Saving

// Opens and locks the file. If another chat has locked the last chat, this one gets a file of its
// own beside it. False with err.
static bool open_file(Chat *c, Error *err) {
    int n = 1; // chats that are saved at the same time

    while (!(c->is_open = journal_open(&c->journal, c->path, FILE_PRIVATE, err))) {
        if (!c->journal.is_busy || c->options->chat.session_file) return false;
        free(c->path);
        c->path = file_path(c->options, ++n);
    }

    if (n > 1) note(NULL, "(another chat is open; --session %s continues this one)", c->path);
    return true;
}

// Makes the dialogues of the file of the last chat earlier ones of this chat. Of them, the last
// MAX_EARLIER stay. False with err if the file is no transcript, or cannot be written.
static bool keep_last_chats(Chat *c, Error *err) {
    enum { MAX_EARLIER = 9 };
    Dialogue old = {0};
    size_t n_truncated;

    bool ok = transcript_read(&old, c->path, &n_truncated, err);
    if (ok) {
        dialogue_begin_anew(&old);
        dialogue_keep_earlier(&old, MAX_EARLIER);
        ok = journal_replace(&c->journal, buffer_str(&old.earlier), err);
    }

    // Those that this chat has begun anew, while the file could not be written, are later ones.
    if (ok) {
        Buffer later = c->dialogue.earlier;
        c->dialogue.earlier = old.earlier;
        old.earlier = later;
        buffer_put(&c->dialogue.earlier, buffer_str(&later));
    }
    dialogue_free(&old);
    return ok;
}

// Opens the file of the last chat, which keeps earlier ones. False with err.
static bool open_last_chat(Chat *c, Error *err) {
    if (!open_file(c, err)) return false;
    c->is_open = keep_last_chats(c, err);
    if (!c->is_open) journal_close(&c->journal, &(Error){0}); // the next message tries again
    return c->is_open;
}

// The file of the last chat is opened by the first message. The first of several failures prints a
// warning; chat_close_file() prints another one if the last one fails too.
void chat_save(Chat *c, Str lines) {
    Error err;
    buffer_put(&c->unsaved, lines);
    if (!c->path) c->unsaved.len = 0;
    if (!c->unsaved.len) return;
    if (!c->is_open && dialogue_last(&c->dialogue, "user") < 0) return;

    bool ok = c->is_open || open_last_chat(c, &err);
    ok = ok && journal_append(&c->journal, buffer_str(&c->unsaved), &err);
    if (!ok && !c->has_failed) warn("%s", err.text);
    c->has_failed = !ok;
    if (ok) c->unsaved.len = 0;
}

void chat_save_change(Chat *c) {
    Buffer lines = {0};
    transcript_put_change(&c->dialogue, c->n_removed, c->n_new, &lines);
    c->n_removed = c->n_new = 0;
    chat_save(c, buffer_str(&lines));
    buffer_free(&lines);
}

void chat_save_system(Chat *c) {
    Buffer line = {0};
    transcript_put_system(&c->dialogue, &line);
    chat_save(c, buffer_str(&line));
    buffer_free(&line);
}

// Writes the file anew, with its dialogues alone.
static bool rewrite(Chat *c, Error *err) {
    Buffer text = {0};
    buffer_put(&text, buffer_str(&c->dialogue.earlier));
    transcript_put(&c->dialogue, &text);
    bool ok = journal_replace(&c->journal, buffer_str(&text), err);
    buffer_free(&text);
    return ok;
}

bool chat_close_file(Chat *c) {
    Error err;
    if (c->has_failed) chat_save(c, (Str){0});
    if (c->has_failed) {
        warn("%s: the last messages are not saved", c->path);
        return false;
    }
    if (c->is_open && c->dialogue.has_changes && !rewrite(c, &err))
        warn("%s; removed messages stay in the file", err.text);
    return true;
}

// Saved dialogues

typedef struct {
    int n_file; // of its file, see file_path()
    int i;      // 0: the last dialogue of the file, i: the i-th before it
    Dialogue dialogue;
} SavedChat;

typedef struct {
    SavedChat *items; // (n) in the order of the files, the last dialogue of a file first
    int n;
} SavedChats;

// Adds the dialogues of a file that have a message of the user.
static bool add_saved(SavedChats *s, int n_file, const char *path, Error *err) {
    Dialogue file = {0};
    Buffer last = {0};
    size_t n_truncated;
    bool ok = transcript_read(&file, path, &n_truncated, err);
    if (ok) transcript_put(&file, &last);

    Str lines = buffer_str(&last);
    for (int i = 0; ok && (i == 0 || lines.data); i++) {
        Dialogue d = {0};
        ok = transcript_parse(&d, lines, path, &n_truncated, err);
        if (ok && dialogue_last(&d, "user") >= 0) {
            s->items = list_grow(s->items, s->n, sizeof *s->items);
            s->items[s->n++] = (SavedChat){n_file, i, d};
        } else {
            dialogue_free(&d);
        }
        lines = dialogue_earlier(&file, i + 1);
    }

    buffer_free(&last);
    dialogue_free(&file);
    return ok;
}

// Reads the dialogues of --session or, if it is not given, of all files of last chats.
static SavedChats read_saved(const Options *o) {
    SavedChats s = {0};
    Error err;
    for (int n = 1; n == 1 || !o->chat.session_file; n++) {
        char *path = file_path(o, n);
        if (!path)
            die(EXIT_USAGE, "%s: the history is disabled (%s)",
                o->chat.lists ? "--list" : "--continue", history_missing(o));
        bool is_end = access(path, F_OK) && (n > 1 || !o->chat.session_file);
        if (is_end && n == 1) die(EXIT_RUNTIME, "%s: no chat has been kept yet", path);
        if (!is_end && !add_saved(&s, n, path, &err)) die_error(&err);
        free(path);
        if (is_end) break;
    }
    return s;
}

static void free_saved(SavedChats *s) {
    for (int i = 0; i < s->n; i++) dialogue_free(&s->items[i].dialogue);
    free(s->items);
}

// Prints a line per dialogue: its number, how many messages it has, and the beginning of the first
// one of the user.
int chat_list(const Options *o) {
    enum { MAX_BYTES = 60 };
    SavedChats s = read_saved(o);

    for (int i = 0; i < s.n; i++) {
        const Dialogue *d = &s.items[i].dialogue;
        int first = 0;
        while (!dialogue_has(d, first, "user")) first++;
        Str text = d->messages[first].content;
        Buffer line = {0};

        if (o->output.is_json) {
            JsonWriter w = json_object(&line);
            json_write_int(&w, "number", i + 1);
            json_write_int(&w, "n_messages", d->n);
            json_write_string(&w, "content", text);
            text_print_json(&w);
            continue;
        }

        const char *end = text.len ? memchr(text.data, '\n', text.len) : NULL;
        size_t n = end ? (size_t)(end - text.data) : text.len;
        if (n > MAX_BYTES) n = MAX_BYTES;
        while (n && n < text.len && (text.data[n] & 0xc0) == 0x80) n--; // no part of a character
        buffer_printf(&line, "%3d  %-12s  %.*s\n", i + 1, count_of(d->n, "message"), (int)n,
                      text.data);
        text_print(&line);
    }

    free_saved(&s);
    return EXIT_OK;
}

// Opening

// The dialogue that --continue chooses. With --session alone it is the last one of the file.
static SavedChat choose_saved(const Options *o) {
    SavedChat chosen = {.n_file = 1};
    int number = o->chat.continued;
    if (!number) return chosen;

    SavedChats s = read_saved(o);
    if (number > s.n)
        die(EXIT_USAGE, "--continue %d: %s saved (chat --list)", number, count_of(s.n, "chat"));
    chosen.n_file = s.items[number - 1].n_file;
    chosen.i = s.items[number - 1].i;
    free_saved(&s);
    return chosen;
}

// Opens the file and resumes a dialogue of it. If another chat has locked a file of last chats,
// this one begins its own file with a copy.
static bool resume(Chat *c, SavedChat chosen, Error *err) {
    const Options *o = c->options;
    Dialogue *d = &c->dialogue;
    char *path = file_path(o, chosen.n_file);
    size_t n_truncated;
    bool ok = open_file(c, err) && transcript_read(d, path, &n_truncated, err);
    bool is_copy = ok && strcmp(c->path, path) != 0;

    free(path);
    if (ok && !is_copy) ok = journal_repair(&c->journal, n_truncated, err);
    if (ok && chosen.i) ok = dialogue_continue_earlier(d, chosen.i, err);
    if (ok && is_copy) {
        d->earlier.len = 0;
        ok = keep_last_chats(c, err);
    }
    if (!ok) return false;

    if (o->prompt.system) dialogue_set_system(d, c->pipeline.system);
    if (is_copy || chosen.i) {
        // Appended again. At the end of the chat the file has an earlier dialogue only once.
        if (!is_copy) transcript_put_clear(&c->unsaved);
        d->has_changes = true;
        c->n_new = d->n;
        chat_save_change(c);
    } else if (o->prompt.system) {
        chat_save_system(c);
    }
    return true;
}

void chat_open_file(Chat *c) {
    const Options *o = c->options;
    Error err;
    bool is_resumed = o->chat.session_file || o->chat.continued;

    if (o->chat.session_file && !strcmp(o->chat.session_file, "-"))
        die(EXIT_USAGE, "--session: expected a file name, found \"-\"");
    SavedChat chosen = choose_saved(o);
    if (is_resumed || c->is_terminal) c->path = file_path(o, chosen.n_file);
    if (is_resumed && !resume(c, chosen, &err)) die_error(&err);
    if (is_resumed || !o->prompt.system) return;
    dialogue_set_system(&c->dialogue, c->pipeline.system);
    c->n_new = c->dialogue.n; // none without a text
    chat_save_change(c);
}
