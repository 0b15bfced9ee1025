// See shell_name.h. A backslash before a letter or digit is itself: such a name comes from Windows.
#include "cli/shell_name.h"

#include <ctype.h>
#include <dirent.h>
#include <sys/stat.h>

typedef struct {
    char quote;    // the open quote, or 0
    bool is_cut;   // ends with a backslash, whose character is missing
    size_t n_kept; // length of the name without blanks at its end
} NameEnd;

// True for a character that a backslash quotes.
static bool is_special(char c, char quote) {
    if (quote == '\'') return false;
    if (quote == '"') return c && strchr("\"\\$`", c);
    return (unsigned char)c < 0x80 && !isalnum((unsigned char)c);
}

static NameEnd read_name(Str text, Buffer *out) {
    NameEnd end = {0};
    const char *home = getenv("HOME");
    if (str_begins_with(text, "~/") && home) {
        buffer_puts(out, home);
        text = (Str){text.data + 1, text.len - 1};
    }

    for (size_t i = 0; i < text.len; i++) {
        char c = text.data[i];
        bool is_last = i + 1 == text.len;
        if (end.quote ? c == end.quote : c == '\'' || c == '"') {
            end.quote = end.quote ? 0 : c;
            end.n_kept = out->len;
            continue;
        }

        bool is_quoted = end.quote;
        if (c == '\\' && end.quote != '\'') {
            end.is_cut = is_last;
            if (is_last) break;
            is_quoted = is_special(text.data[i + 1], end.quote);
            if (is_quoted) c = text.data[++i];
        }
        buffer_append(out, &c, 1);
        if (is_quoted || (c != ' ' && c != '\t')) end.n_kept = out->len;
    }
    return end;
}

bool shell_name_read(Str text, Buffer *out, Error *err) {
    while (text.len && (*text.data == ' ' || *text.data == '\t'))
        text = (Str){text.data + 1, text.len - 1};

    buffer_puts(out, "");
    NameEnd end = read_name(text, out);
    if (end.quote)
        return error_set(err, EXIT_RUNTIME,
                         "%.*s: a quote is not closed; write \\%c for the character", SHOWN(text),
                         end.quote);
    if (end.is_cut) {
        buffer_puts(out, "\\");
        end.n_kept = out->len;
    }
    out->len = end.n_kept;
    buffer_puts(out, "");
    return true;
}

// Appends a part of a name as it is typed after an open quote, or without one.
static void put_quoted(Buffer *out, const char *name, char quote) {
    for (; *name; name++) {
        if (quote == '\'' && *name == '\'')
            buffer_puts(out, "'\\'");
        else if (is_special(*name, quote) && (quote || !strchr("/._-+,:@%=", *name)))
            buffer_puts(out, "\\");
        buffer_append(out, name, 1);
    }
}

// The part of a file name that has been typed.
typedef struct {
    Str typed;
    Str shown;    // typed, without a backslash at its end
    char quote;   // the open quote, or 0
    char *folder; // the directory, with a slash at its end
    char *begin;  // the beginning of the name in it
} TypedName;

// Appends the spelling of a directory entry, if it continues the typed text.
static void put_entry(const TypedName *t, const char *entry, Buffer *out) {
    // A name with a newline would be read as two.
    bool is_hidden = *entry == '.' && *t->begin != '.';
    if (is_hidden || !str_begins_with(str_of(entry), t->begin) || strchr(entry, '\n')) return;
    if (str_is_one_of(str_of(entry), ". ..")) return;

    struct stat st;
    char *path = text_format("%s%s", t->folder, entry);
    bool is_folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    free(path);

    Buffer name = {0};
    buffer_put(&name, t->shown);
    put_quoted(&name, entry + strlen(t->begin), t->quote);
    if (is_folder)
        buffer_puts(&name, "/");
    else if (t->quote)
        buffer_append(&name, &t->quote, 1);
    buffer_puts(&name, "\n");
    if (str_has_prefix(buffer_str(&name), t->typed)) buffer_put(out, buffer_str(&name));
    buffer_free(&name);
}

void shell_name_complete(Str typed, Buffer *out) {
    Buffer path = {0};
    buffer_puts(&path, "");
    NameEnd end = read_name(typed, &path);

    size_t n = path.len; // of the directory
    while (n > 0 && path.data[n - 1] != '/') n--;
    TypedName t = {.typed = typed,
                   .shown = {typed.data, typed.len - end.is_cut},
                   .quote = end.quote,
                   .folder = n ? text_format("%.*s", (int)n, path.data) : text_format("./"),
                   .begin = text_format("%s", path.data + n)};

    DIR *d = opendir(t.folder);
    for (struct dirent *e; d && (e = readdir(d));) put_entry(&t, e->d_name, out);

    if (d) closedir(d);
    free(t.folder);
    free(t.begin);
    buffer_free(&path);
}
