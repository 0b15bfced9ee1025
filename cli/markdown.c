// A state machine over the bytes of a text. All styles except code blocks end with their line, so a
// marker without a counterpart has no effect on later lines.
#include "cli/markdown.h"

#include <ctype.h>
#include <stdio.h>

enum { BOLD = 1, HEADING = 2, CODE = 4, CODE_BLOCK = 8 };

static void put_style(Markdown *m, unsigned style, Buffer *out) {
    char sequence[16];
    snprintf(sequence, sizeof sequence, "\x1b[0%s%sm", style & (BOLD | HEADING) ? ";1" : "",
             style & (CODE | CODE_BLOCK) ? ";36" : "");
    if (!m->is_plain) wrap_put_style(&m->wrap, sequence, out);
}

static void put_char(Markdown *m, const char *shown, Buffer *out) {
    wrap_put(&m->wrap, shown, m->style & CODE_BLOCK, m->columns, out);
}

// The style after a run of markers, given the character `next` after the run. In code, only
// backticks are markers.
static unsigned style_after(const Markdown *m, char next) {
    bool is_word = isalnum((unsigned char)m->before), is_space = isspace((unsigned char)next);
    if (m->marker == '`' && m->n_run >= 3 && !m->in_line) return m->style ^ CODE_BLOCK;
    if (m->style & CODE_BLOCK) return m->style;
    if (m->marker == '`') return m->style ^ CODE;
    if (m->style & CODE) return m->style;
    if (m->marker == '#' && m->n_run <= 6 && next == ' ' && !m->in_line) return m->style | HEADING;
    if (m->marker == '*' && m->n_run >= 2 && (m->style & BOLD || !(is_word || is_space)))
        return m->style ^ BOLD; // not in 2**3 and 2 ** 3
    return m->style;
}

// Appends the run that was held back. Markers have the style of the text that they enclose.
static void put_run(Markdown *m, char next, Buffer *out) {
    unsigned after = style_after(m, next);
    if (after & ~m->style) put_style(m, after, out);
    for (; m->n_run; m->n_run--) put_char(m, (char[]){m->marker, 0}, out);
    if (m->style & ~after) put_style(m, after, out);
    m->style = after;
    m->before = m->marker;
    m->in_line = true;
}

void markdown_put(Markdown *m, Str text, Buffer *out) {
    char shown[17];
    for (size_t i = 0, len; i < text.len; i += len) {
        char c = text.data[i];
        len = utf8_escape(text.data + i, text.len - i, "\n\t", shown);
        if (m->n_run && c != m->marker) put_run(m, c, out);

        if (c && strchr("*`#", c)) {
            m->marker = c;
            m->n_run++;
            continue;
        }
        if (c == '\n' && m->style & ~CODE_BLOCK) put_style(m, m->style &= CODE_BLOCK, out);
        m->in_line = c != '\n' && (m->in_line || !isspace((unsigned char)c));
        m->before = c;
        put_char(m, shown, out);
    }
}

void markdown_end(Markdown *m, Buffer *out) {
    if (m->n_run) put_run(m, '\n', out);
    if (m->style) put_style(m, m->style = 0, out);
    wrap_end(&m->wrap, out);
}
