// cli/markdown.c: styles are added, and the text stays as it is.
#include "tests/test.h"
#include "cli/markdown.h"

#include <string.h>

// Renders a text in pieces of at most `step` bytes.
static void render(const char *text, size_t n, size_t step, Buffer *out) {
    Markdown m = {0};
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
        render(cases[i][0], strlen(cases[i][0]), SIZE_MAX, &out);
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

        render(text, n, SIZE_MAX, &whole);
        render(text, n, 1 + (size_t)i % 3, &pieces);
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

void test_markdown(void) {
    test_case("markdown: examples", examples);
    test_case("markdown: the text stays as it is", text_is_unchanged);
}
