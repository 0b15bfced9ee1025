// base/: errors, checked sizes, strings, UTF-8, numbers as text.
#include "tests/test.h"
#include "base/unicode.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void checked_sizes(void) {
    size_t n;
    CHECK(!size_mul(SIZE_MAX / 2, 3, &n), "overflow");
    CHECK(!size_add(SIZE_MAX, 1, &n), "overflow");
    CHECK(size_mul(6, 7, &n) && n == 42, "%zu", n);
}

static void utf8(void) {
    uint32_t c;
    CHECK(utf8_decode("\xe2\x82\xac", 3, &c) == 3 && c == 0x20ac, "euro sign");

    static const char *const invalid[] = {
        "\xff", "\xc3\x28", "\xed\xa0\x80", "\xc0\xaf", "\xf4\x90\x80\x80", "\xe2\x82", "\x80"};
    for (size_t i = 0; i < sizeof invalid / sizeof *invalid; i++)
        CHECK(utf8_decode(invalid[i], strlen(invalid[i]), &c) == 0, "case %zu", i);

    for (uint32_t code = 0; code < 0x110000; code += 1 + code / 64) {
        char s[4];
        if (code >= 0xd800 && code < 0xe000) continue;
        int n = utf8_encode(code, s);
        CHECK(utf8_decode(s, (size_t)n, &c) == n && c == code, "U+%04X", code);
        for (int k = 1; k < n; k++)
            CHECK(utf8_complete(s, (size_t)k) == 0, "U+%04X truncated to %d bytes", code, k);
        CHECK(utf8_complete(s, (size_t)n) == (size_t)n, "U+%04X", code);
    }
}

static void suggestions(void) {
    static const char *const commands[] = {"run", "chat", "tokenize"};
    static const char *const near[] = {"tokenise",   "atokenize", "okenize",   "otkenize",
                                       "tokenizers", "tokeni",    "atokenizer"};
    for (size_t i = 0; i < sizeof near / sizeof *near; i++) {
        const char *s = did_you_mean(near[i], commands, sizeof *commands, 3);
        CHECK(!strcmp(s, "; did you mean tokenize"), "%s%s", near[i], s);
    }
    static const char *const far[] = {"xyzzy", "tokn", "un1", "xxxtokenize", "rnua"};
    for (size_t i = 0; i < sizeof far / sizeof *far; i++)
        CHECK(!*did_you_mean(far[i], commands, sizeof *commands, 3), "a suggestion for %s", far[i]);

    // Only words of up to 40 characters are compared.
    static const char *const words[] = {"a234567890123456789012345678901234567890",
                                        "b2345678901234567890123456789012345678901"};
    CHECK(*did_you_mean("x234567890123456789012345678901234567890", words, sizeof *words, 1), "40");
    CHECK(!*did_you_mean("x2345678901234567890123456789012345678901", words, sizeof *words, 2),
          "41");
}

static void messages_are_escaped(void) {
    static const char override[] = "a\xe2\x80\xae"; // a bidirectional override
    static const char hebrew[] = "b\xd7\x90";       // a right-to-left letter
    Error e;

    error_set(&e, 3, "a\x1b[2Jb%s", "\n");
    CHECK(!strcmp(e.text, "a\\x1b[2Jb\\x0a"), "%s", e.text);

    error_set(&e, 3, "%s%s", override, hebrew);
    CHECK(!strcmp(e.text, "a\\xe2\\x80\\xaeb\xd7\x90"), "%s", e.text);

    error_set(&e, 3, "%s again", e.text); // its own text as an argument
    CHECK(strlen(e.text) > 20, "%s", e.text);
}

static void parsed_numbers(void) {
    int64_t i;
    double d;
    CHECK(parse_i64("-12", &i) && i == -12, "-12");
    CHECK(!parse_i64("12x", &i) && !parse_i64("", &i) && !parse_i64("99999999999999999999", &i),
          "accepted");
    static const char *const refused[] = {"",   "x",  "1x", " 1",   "+1",  "-",
                                          "1e", "0x", "1 ", "0x10", "\t1", "1\n"};
    for (size_t k = 0; k < sizeof refused / sizeof *refused; k++)
        CHECK(!parse_f64(refused[k], &d) && !parse_i64(refused[k], &i), "\"%s\"", refused[k]);
    CHECK(parse_f64("1e-5", &d) && d == 1e-5 && !parse_f64("nan", &d) && !parse_f64("inf", &d),
          "floating point");
}

// double_digits() digits read back as the same number, one digit less as another one.
static void shortest_numbers(void) {
    static const double known[] = {0, 1, -1, 0.1, 1e15, 5e-324, 0x1p-1022, 1.7976931348623157e308};
    uint64_t random = 3;

    for (size_t i = 0; i < 20000; i++) {
        uint64_t bits = test_random(&random);
        double x;
        char text[64];
        memcpy(&x, &bits, sizeof x);

        // Every third number is a float32, every third one a multiple of 0.001.
        if (i % 3 == 0) x = (double)(float)x;
        if (i % 3 == 1) x = (double)(int)bits / 1000;
        if (i < sizeof known / sizeof *known) x = known[i];
        if (!isfinite(x)) continue;

        int n = double_digits(x);
        snprintf(text, sizeof text, "%.*e", n - 1, x);
        CHECK(n >= 1 && n <= 17 && strtod(text, NULL) == x, "%a: %s", x, text);
        if (n > 1) snprintf(text, sizeof text, "%.*e", n - 2, x);
        CHECK(n == 1 || strtod(text, NULL) != x, "%a: %s is shorter", x, text);
    }
}

static void substrings(void) {
    static const struct {
        const char *text, *part;
        size_t offset;
    } cases[] = {{"", "", 0},     {"abc", "", 0},          {"aab", "ab", 1},
                 {"abc", "c", 2}, {"ab", "abc", SIZE_MAX}, {"abab", "ba", 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t at = str_find(str_of(cases[i].text), str_of(cases[i].part));
        CHECK(at == cases[i].offset, "\"%s\" in \"%s\": %zu", cases[i].part, cases[i].text, at);
    }
}

// As str.rstrip() of Python; bytes that are not UTF-8 are no white space.
static void white_space(void) {
    static const struct {
        const char *text;
        size_t n;
    } cases[] = {{"", 0},          {"a", 1},
                 {" a \t\r\n", 2}, {"a\xc2\xa0\xe3\x80\x80\xc2\x85", 1},
                 {" \x1c\x1f", 0}, {"a\xe2\x80\x8b ", 4},
                 {"\x80 ", 1},     {"\x80\x80", 2}};
    unicode_init();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Str s = unicode_strip_end(str_of(cases[i].text));
        CHECK(s.len == cases[i].n, "case %zu: %zu bytes", i, s.len);
    }
}

void test_text(void) {
    test_case("text: white space", white_space);
    test_case("text: substrings", substrings);
    test_case("text: checked sizes", checked_sizes);
    test_case("text: UTF-8", utf8);
    test_case("text: suggested names", suggestions);
    test_case("text: control bytes in messages", messages_are_escaped);
    test_case("text: strict parsing of numbers", parsed_numbers);
    test_case("text: shortest form of numbers", shortest_numbers);
}
