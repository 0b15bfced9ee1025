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
        return error_set(err, EXIT_RUNTIME, "%.*s: a quote is not closed; write \\%c for the character",
                         SHOWN(text), end.quote);
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

void shell_name_complete(Str typed, Buffer *out) {
    Buffer path = {0};
    NameEnd end = read_name(typed, &path);
    Str shown = {typed.data, typed.len - end.is_cut};

    // The directory, and the beginning of the name in it.
    size_t n = path.len;
    while (n > 0 && path.data[n - 1] != '/') n--;
    char *begin = text_format("%s", path.len ? path.data + n : "");
    path.len = n;
    buffer_puts(&path, n ? "" : "./");
    size_t n_folder = path.len;
    DIR *d = opendir(path.data);

    for (struct dirent *e; d && (e = readdir(d));) {
        // A name with a newline would be read as two.
        bool is_hidden = e->d_name[0] == '.' && *begin != '.';
        if (strncmp(e->d_name, begin, strlen(begin)) != 0 || is_hidden || strchr(e->d_name, '\n') ||
            str_is_one_of(str_of(e->d_name), ". .."))
            continue;

        struct stat st;
        path.len = n_folder;
        buffer_puts(&path, e->d_name);
        bool is_folder = stat(path.data, &st) == 0 && S_ISDIR(st.st_mode);

        Buffer name = {0};
        buffer_put(&name, shown);
        put_quoted(&name, e->d_name + strlen(begin), end.quote);
        if (is_folder)
            buffer_puts(&name, "/");
        else if (end.quote)
            buffer_append(&name, &end.quote, 1);
        buffer_puts(&name, "\n");
        if (str_has_prefix(buffer_str(&name), typed)) buffer_put(out, buffer_str(&name));
        buffer_free(&name);
    }

    if (d) closedir(d);
    free(begin);
    buffer_free(&path);
}
