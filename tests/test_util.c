// Small things: sizes, characters, names, messages, numbers.
#include "test.h"

#include <string.h>

static void sizes(void) {
    size_t n;
    CHECK(!size_mul(SIZE_MAX / 2, 3, &n), "overflow");
    CHECK(!size_add(SIZE_MAX, 1, &n), "overflow");
    CHECK(size_mul(6, 7, &n) && n == 42, "%zu", n);
}

static void utf8(void) {
    uint32_t c;
    CHECK(utf8_decode("\xe2\x82\xac", 3, &c) == 3 && c == 0x20ac, "euro");
    static const char *const bad[] = {
        "\xff", "\xc3\x28", "\xed\xa0\x80", "\xc0\xaf", "\xf4\x90\x80\x80", "\xe2\x82", "\x80"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(utf8_decode(bad[i], strlen(bad[i]), &c) == 0, "case %zu", i);
    for (uint32_t code = 0; code < 0x110000; code += 1 + code / 64) {
        char s[4];
        if (code >= 0xd800 && code < 0xe000) continue;
        int n = utf8_encode(code, s);
        CHECK(utf8_decode(s, (size_t)n, &c) == n && c == code, "U+%04X", code);
        for (int k = 1; k < n; k++)
            CHECK(utf8_complete(s, (size_t)k) == 0, "U+%04X cut at %d", code, k);
        CHECK(utf8_complete(s, (size_t)n) == (size_t)n, "U+%04X", code);
    }
}

static void names(void) {
    static const char *const commands[] = {"run", "chat", "tokenize"};
    const char *s = did_you_mean("tokenise", commands, sizeof *commands, 3);
    CHECK(!strcmp(s, "; did you mean tokenize"), "%s", s);
    CHECK(!*did_you_mean("xyzzy", commands, sizeof *commands, 3), "should be none");
}

static void errors(void) {
    Error e;
    error_set(&e, 3, "a\x1b[2Jb%s", "\n");
    CHECK(!strcmp(e.text, "a\\x1b[2Jb\\x0a"), "%s", e.text);
    error_set(&e, 3, "%s",
              "a\xe2\x80\xae"
              "b\xd7\x90"); // an override, and a letter that needs none
    CHECK(!strcmp(e.text, "a\\xe2\\x80\\xaeb\xd7\x90"), "%s", e.text);
    error_set(&e, 3, "%s again", e.text);
    CHECK(strlen(e.text) > 20, "%s", e.text);
}

static void numbers(void) {
    int64_t i;
    double d;
    CHECK(parse_i64("-12", &i) && i == -12, "");
    CHECK(!parse_i64("12x", &i) && !parse_i64("", &i) && !parse_i64("99999999999999999999", &i),
          "");
    CHECK(parse_f64("1e-5", &d) && d == 1e-5 && !parse_f64("nan", &d) && !parse_f64("inf", &d), "");
}

static void parts(void) {
    static const char *const cases[][2] = {{"", ""},     {"abc", ""},   {"aab", "ab"},
                                           {"abc", "c"}, {"ab", "abc"}, {"abab", "ba"}};
    static const size_t where[] = {0, 0, 1, 2, SIZE_MAX, 1};
    for (size_t i = 0; i < sizeof where / sizeof *where; i++) {
        size_t at = str_find(str_of(cases[i][0]), str_of(cases[i][1]));
        CHECK(at == where[i], "\"%s\" in \"%s\": %zu", cases[i][1], cases[i][0], at);
    }
}

void test_util(void) {
    test_case("util: part of a text", parts);
    test_case("util: checked sizes", sizes);
    test_case("util: UTF-8", utf8);
    test_case("util: nearest name", names);
    test_case("util: control bytes in errors", errors);
    test_case("util: strict numbers", numbers);
}
