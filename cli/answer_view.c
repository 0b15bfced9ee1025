// See answer_view.h. Text is written to its descriptor immediately, as in output.c.
#include "cli/answer_view.h"
#include "cli/output.h"

#include <ctype.h>
#include <unistd.h>

static void write_to(int fd, Str text) {
    if (fd == STDERR_FILENO) {
        progress_end();
        output_write(fd, "standard error", text.data, text.len);
    } else {
        text_write_styled(text);
    }
}

static void set_dim(AnswerView *v, bool is_dim) {
    if (v->is_dim != is_dim && terminal_has_color(v->fd))
        write_to(v->fd, str_of(is_dim ? "\x1b[2m" : "\x1b[0m"));
    v->is_dim = is_dim;
}

// Writes a piece to the descriptor of the view. Without a terminal nothing is held back.
static void write_piece(AnswerView *v, Str text, bool is_end) {
    Markdown *m = &v->markdown;
    Buffer shown = {0};
    if (!isatty(v->fd)) {
        write_to(v->fd, text);
        return;
    }

    m->columns = terminal_columns(v->fd);
    m->is_plain = v->is_dim || !v->is_styled || !terminal_has_color(v->fd);
    markdown_put(m, text, &shown);
    if (is_end) markdown_end(m, &shown);
    write_to(v->fd, buffer_str(&shown));
    buffer_free(&shown);
}

// Ends what has been written to the descriptor of the view. Reasoning on stderr ends with a
// newline.
static void end_piece(AnswerView *v) {
    if (!v->fd) return;
    write_piece(v, (Str){"", 0}, true);
    set_dim(v, false);
    if (v->fd == STDERR_FILENO && !v->ends_line) write_to(v->fd, str_of("\n"));
}

void view_check(const Options *o) {
    const char *format = o->output.reasoning_format;
    if (format && !str_is_one_of(str_of(format), "auto deepseek none"))
        die(EXIT_USAGE, "--reasoning-format: expected auto or none, found \"%s\"", format);
}

bool view_is_raw(const Options *o) {
    return o->output.reasoning_format && !strcmp(o->output.reasoning_format, "none");
}

void view_put(AnswerView *v, Str text, TextPart part) {
    bool is_answer = part == PART_ANSWER || view_is_raw(v->options);
    bool is_shown = is_answer || isatty(STDOUT_FILENO);
    int fd = is_shown ? STDOUT_FILENO : STDERR_FILENO;

    while (v->skips_space && !v->has_text && text.len && isspace((unsigned char)*text.data))
        text = (Str){text.data + 1, text.len - 1};
    if (!text.len) return;
    v->has_text = true;
    if (!is_shown && (part == PART_MARKUP || v->options->is_quiet)) return;

    if (v->fd != fd || v->is_dim == is_answer) end_piece(v);
    v->fd = fd;
    set_dim(v, !is_answer);
    write_piece(v, text, false);
    v->ends_line = str_ends_with(text, "\n");
}

void view_end(AnswerView *v) {
    end_piece(v);
    if (v->fd != STDOUT_FILENO || !v->ends_line) text_write("\n", 1);
}
