// cli/markdown.c: styles are added, and the text stays as it is.
#include "tests/test.h"
#include "cli/markdown.h"

#include <locale.h>
#include <string.h>
#include <wchar.h>

// Renders a text in pieces of at most `step` bytes, for a terminal of this width.
static void render(const char *text, size_t n, size_t step, size_t columns, Buffer *out) {
    Markdown m = {.columns = columns};
    out->len = 0;
    for (size_t i = 0, k; i < n; i += k) {
        k = n - i < step ? n - i : step;
        markdown_put(&m, (Str){text + i, k}, out);
    }
    markdown_end(&m, out);
    CHECK(!m.style, "style %u at the end", m.style);
}

// Writes the styles of a rendered text as {}, {b}, {c} and {bc}.
static void name_styles(const Buffer *in, Buffer *out) {
    static const char *const styles[][2] = {
        {"\x1b[0m", "{}"}, {"\x1b[0;1m", "{b}"}, {"\x1b[0;36m", "{c}"}, {"\x1b[0;1;36m", "{bc}"}};
    out->len = 0;
    for (size_t i = 0; i < in->len;) {
        size_t k = 0;
        while (k < 4 && !str_begins_with((Str){in->data + i, in->len - i}, styles[k][0])) k++;
        if (k < 4) {
            buffer_puts(out, styles[k][1]);
            i += strlen(styles[k][0]);
        } else {
            buffer_append(out, in->data + i, 1);
            i++;
        }
    }
}

static void examples(void) {
    static const char *const cases[][2] = {
        {"plain * text_ # 1", "plain * text_ # 1"},
        {"a **bold** b", "a {b}**bold**{} b"},
        {"**`x`** y", "{b}**{bc}`x`{b}**{} y"},
        {"2**3 and 2 ** 3", "2**3 and 2 ** 3"},
        {"## Title\nText", "{b}## Title{}\nText"},
        {"#hash\n####### seven\na # b", "#hash\n####### seven\na # b"},
        {"a `b **c** # d` e", "a {c}`b **c** # d`{} e"},
        {"**open\nnext `open\nnext", "{b}**open{}\nnext {c}`open{}\nnext"},
        {"```c\n**p = `q`;\n# x\n```\nend", "{c}```c\n**p = `q`;\n# x\n```{}\nend"},
        {"  ```\nx\n  ```", "  {c}```\nx\n  ```{}"},
        {"# a\n```\nx", "{b}# a{}\n{c}```\nx{}"},
        {"\x1b[31mred", "\\x1b[31mred"},
        {"**", "**"},
    };

    Buffer out = {0}, shown = {0};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        render(cases[i][0], strlen(cases[i][0]), SIZE_MAX, SIZE_MAX, &out);
        name_styles(&out, &shown);
        CHECK(str_is(buffer_str(&shown), cases[i][1]), "case %zu: %s", i, shown.data);
    }

    buffer_free(&out);
    buffer_free(&shown);
}

// Without its styles, the output is the escaped text. The size of the pieces does not matter.
static void text_is_unchanged(void) {
    static const char alphabet[] = "**``##  \n\ta1\x1b\xff";
    uint64_t state = 7;
    Buffer whole = {0}, pieces = {0}, escaped = {0};

    for (int i = 0; i < 3000; i++) {
        char text[60];
        size_t n = (size_t)(i % 60);
        for (size_t k = 0; k < n; k++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            text[k] = alphabet[(state >> 33) % (sizeof alphabet)]; // also a NUL byte
        }

        render(text, n, SIZE_MAX, SIZE_MAX, &whole);
        render(text, n, 1 + (size_t)i % 3, SIZE_MAX, &pieces);
        CHECK(str_eq(buffer_str(&whole), buffer_str(&pieces)), "text %d in pieces", i);

        escaped.len = 0;
        buffer_put_escaped(&escaped, (Str){text, n}, "\n\t");

        // The output without its styles, "\x1b[...m".
        size_t len = 0;
        for (size_t k = 0; k < whole.len; k++) {
            if (whole.data[k] == '\x1b')
                while (whole.data[k] != 'm') k++;
            else
                whole.data[len++] = whole.data[k];
        }

        CHECK(str_eq((Str){whole.data, len}, buffer_str(&escaped)), "text %d", i);
    }

    buffer_free(&whole);
    buffer_free(&pieces);
    buffer_free(&escaped);
}

enum { COLUMNS = 10 };

// What a terminal of COLUMNS columns shows, with "|" where it continues a line on the next row.
static void show_rows(const Buffer *in, Buffer *out) {
    int column = 0;
    out->len = 0;
    for (size_t i = 0, n; i < in->len; i += n) {
        uint32_t code;
        n = (size_t)utf8_decode(in->data + i, in->len - i, &code);
        if (code == 0x1b) {
            n = strcspn(in->data + i, "m") + 1;
            continue;
        }
        int width = code == '\n' ? 0 : wcwidth((wchar_t)code);
        if (column + width > COLUMNS) {
            buffer_puts(out, "|");
            column = 0;
        }
        column = code == '\n' ? 0 : column + width;
        buffer_append(out, in->data + i, n);
    }
}

static void words_are_wrapped(void) {
    static const char *const cases[][2] = {
        {"The quick brown fox", "The quick\nbrown fox"},
        {"ten chars. more", "ten chars.\nmore"},
        {"abcdefghij klm", "abcdefghij\nklm"},
        {"ab cdefghijklmno p", "ab\ncdefghijkl|mno p"},
        {"ab abcdefghijklmnopqrstuvwxyz p", "ab\nabcdefghij|klmnopqrst|uvwxyz p"},
        {"a **bold words** b", "a **bold\nwords** b"},
        {"a  b   cdefghij    k", "a  b\ncdefghij\nk"},
        {"    four    \n  two", "    four\n  two"},
        {"```\nlong code line\n```\nlong text line", "```\nlong code |line\n```\nlong text\nline"},
        {"日本語文 字 ab", "日本語文\n字 ab"},
        {"日本語文字字 ab", "日本語文字|字 ab"},
        {"x日本語文字 ab", "x日本語文|字 ab"},
        {"naïve café crème", "naïve café\ncrème"},
        {"one two\nthree four", "one two\nthree four"},
    };
    Buffer out = {0}, shown = {0};

    setlocale(LC_CTYPE, "C.UTF-8"); // for wcwidth
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *text = cases[i][0];
        render(text, strlen(text), SIZE_MAX, COLUMNS, &out);
        show_rows(&out, &shown);
        CHECK(str_is(buffer_str(&shown), cases[i][1]), "case %zu: %s", i, shown.data);
    }

    // After a change of the width, the terminal wraps the rest of the line.
    Markdown m = {.columns = 8};
    out.len = 0;
    markdown_put(&m, str_of("one two "), &out);
    m.columns = COLUMNS;
    markdown_put(&m, str_of("three four\nlonger words"), &out);
    markdown_end(&m, &out);
    CHECK(str_is(buffer_str(&out), "one two three four\nlonger\nwords"), "%s", out.data);

    buffer_free(&out);
    buffer_free(&shown);
}

// No word that fits a row is cut. Newlines replace single spaces, and nothing else changes.
static void words_stay_whole(void) {
    uint64_t state = 3;
    Buffer text = {0}, out = {0}, shown = {0};

    for (int i = 0; i < 2000; i++) {
        text.len = 0;
        for (int k = 0; k < 12; k++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            buffer_printf(&text, "%s%.*s", k ? " " : "", (int)(1 + (state >> 33) % COLUMNS),
                          "abcdefghij");
        }
        render(text.data, text.len, 1 + (size_t)i % 5, COLUMNS, &out);
        show_rows(&out, &shown);

        CHECK(!strchr(shown.data, '|'), "text %d: %s", i, shown.data);
        for (char *at = out.data; (at = strchr(at, '\n'));) *at = ' ';
        CHECK(str_eq(buffer_str(&out), buffer_str(&text)), "text %d: %s", i, out.data);
    }

    buffer_free(&text);
    buffer_free(&out);
    buffer_free(&shown);
}

void test_markdown(void) {
    test_case("markdown: examples", examples);
    test_case("markdown: the text stays as it is", text_is_unchanged);
    test_case("markdown: words are wrapped at the edge", words_are_wrapped);
    test_case("markdown: words stay whole", words_stay_whole);
}
