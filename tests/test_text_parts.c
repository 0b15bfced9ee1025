// Parts of a text that arrives in pieces: the same as those of the whole text.
#include "generate/text_parts.h"
#include "tests/test.h"

#include <stdio.h>

// What a reader of the parts sees: "r" and "a" before reasoning and answer, markup left out.
static void show(Str text, ReasoningStart start, uint64_t *seed, Buffer *out) {
    TextParts p = text_parts_begin(start);
    size_t n = 0, n_shown = 0;
    TextPart last = PART_MARKUP;
    out->len = 0;
    buffer_puts(out, "");

    while (n < text.len || n_shown < text.len) {
        n += seed ? 1 + test_random(seed) % 4 : text.len;
        if (n > text.len) n = text.len;
        text_parts_read(&p, (Str){text.data, n}, n == text.len);
        CHECK(p.n_assigned >= n_shown && p.n_assigned <= n, "%zu of %zu bytes", p.n_assigned, n);
        while (n_shown < p.n_assigned) {
            size_t end;
            TextPart part = text_parts_at(&p, n_shown, &end);
            if (part != last) buffer_puts(out, part == PART_ANSWER ? "|a:" : "|r:");
            if (part == PART_MARKUP) out->len -= part != last ? 3 : 0;
            if (part != PART_MARKUP) buffer_append(out, text.data + n_shown, end - n_shown);
            last = part;
            n_shown = end;
        }
    }
    buffer_puts(out, "");
}

static const struct {
    const char *text;
    ReasoningStart start;
    const char *shown;
} cases[] = {
    {"<think>It is 42.</think>42", REASONING_NEVER, "|a:<think>It is 42.</think>42"},
    {"<think>It is 42.</think>42", REASONING_MAYBE, "|r:It is 42.|a:42"},
    {" \n<think>\n It is 42.\n</think>\n\n42\n", REASONING_MAYBE, "|r:It is 42.\n|a:42\n"},
    {"It is </thin 42.</think>\n\n42</think>\n", REASONING_BEGUN,
     "|r:It is </thin 42.|a:42</think>\n"},
    {"<think>\nIt is 42.</think>42", REASONING_BEGUN, "|r:It is 42.|a:42"},
    {"It is 42.</thin", REASONING_BEGUN, "|r:It is 42.</thin"},
    {"<</think></think>", REASONING_BEGUN, "|r:<|a:</think>"},
    {"</think>42", REASONING_BEGUN, "|a:42"},
    {" <think></think> ", REASONING_MAYBE, ""},
    {" <thin", REASONING_MAYBE, "|a: <thin"},
    {" <thing>4</think>", REASONING_MAYBE, "|a: <thing>4</think>"},
    {" \n", REASONING_MAYBE, "|a: \n"},
    {"42 <think>x</think>", REASONING_MAYBE, "|a:42 <think>x</think>"},
    {"\xe2\x82\xac</think>\xe2\x82\xac", REASONING_BEGUN, "|r:\xe2\x82\xac|a:\xe2\x82\xac"},
};

static void pieces(void) {
    Buffer shown = {0};
    uint64_t seed = 3;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int trial = 0; trial < 50; trial++) {
            show(str_of(cases[i].text), cases[i].start, trial ? &seed : NULL, &shown);
            CHECK(str_is(buffer_str(&shown), cases[i].shown), "%s: %s", cases[i].text, shown.data);
        }
    }
    buffer_free(&shown);
}

// The text loses a part of a character at its end, which had been assigned.
static void shortened(void) {
    TextParts p = text_parts_begin(REASONING_BEGUN);
    size_t end;
    text_parts_read(&p, str_of("ab\xe2\x82"), false);
    text_parts_read(&p, str_of("ab"), true);
    CHECK(text_parts_at(&p, 0, &end) == PART_REASONING && end == 2, "%zu", end);
}

void test_text_parts(void) {
    test_case("text_parts: pieces of a text have the parts of the whole", pieces);
    test_case("text_parts: a shortened text", shortened);
}
