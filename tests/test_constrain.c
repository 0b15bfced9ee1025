// Constraints: which texts they accept, which sources they refuse, and token masks compared with
// every token tried alone.
#include "../constrain/constrain.h"
#include "../constrain/constraint.h"
#include "../constrain/regex.h"
#include "make_gguf.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Tokens that split JSON at many places: single bytes, parts of strings, the ends of several nested
// values, and parts of UTF-8 characters.
static const char *const tokens[] = {"{",
                                     "}",
                                     "[",
                                     "]",
                                     "\"",
                                     ":",
                                     ",",
                                     " ",
                                     "\n",
                                     "  ",
                                     "    ",
                                     "0",
                                     "1",
                                     "12",
                                     "999",
                                     "-",
                                     ".",
                                     "e",
                                     "E+",
                                     "true",
                                     "false",
                                     "null",
                                     "tr",
                                     "ue",
                                     "a",
                                     "b",
                                     "ab",
                                     "abc",
                                     "name",
                                     "x",
                                     "\"a",
                                     "\"name",
                                     "\":",
                                     "\": ",
                                     "\": \"",
                                     "\",",
                                     "\", \"",
                                     "\"}",
                                     "\"]",
                                     "\"}]",
                                     "}}",
                                     "]}",
                                     "\"},",
                                     "[]",
                                     "{}",
                                     "{\"",
                                     "[\"",
                                     "[{\"",
                                     "\\",
                                     "\\n",
                                     "\\\"",
                                     "u",
                                     "u0",
                                     "\\u00",
                                     "\\u00e9",
                                     "\\ud83d",
                                     "\\ude00",
                                     "d83d",
                                     "\xc3",
                                     "\xa9",
                                     "\xc3\xa9",
                                     "\xe2\x82",
                                     "\xac",
                                     "\xf0\x9f",
                                     "\x98\x80",
                                     "a\"",
                                     "ab\",",
                                     "b\\",
                                     "\x01",
                                     "2024",
                                     "-01",
                                     "T",
                                     "Z",
                                     "\t",
                                     "\xed\xa0",
                                     "\xff",
                                     "z\xc3",
                                     "",
                                     "q",
                                     "9",
                                     "/",
                                     "\r",
                                     "y",
                                     "s",
                                     "n",
                                     "o",
                                     "aaaaaaaa",
                                     "bbbb bbbb",
                                     "\":1,\"a\":",
                                     "\":1,\"b",
                                     "b\":1,\"ab\":1",
                                     "{\"a\":1,\"a\":",
                                     "\":{\"a\":1},\""};
enum { N_TOKENS = sizeof tokens / sizeof *tokens };

static TokenTable *small_tokens(void) {
    static Str pieces[N_TOKENS];
    for (int i = 0; i < N_TOKENS; i++) pieces[i] = str_of(tokens[i]);
    return token_table_new(pieces, N_TOKENS);
}

static TokenTable *byte_tokens(void) {
    static char bytes[256];
    static Str pieces[256];
    for (int i = 0; i < 256; i++) bytes[i] = (char)i, pieces[i] = (Str){bytes + i, 1};
    return token_table_new(pieces, 256);
}

static bool accepts(const Grammar *g, const char *text) {
    TokenTable *v = small_tokens();
    Matcher *m = matcher_new(g, v, NULL);
    Str s = str_of(text);
    bool ok = matcher_accept(m, s) == s.len && matcher_is_end(m);
    matcher_free(m);
    token_table_free(v);
    return ok;
}

static Grammar *schema_of(const char *text, unsigned modes) {
    Error err;
    Grammar *g = grammar_schema_text(str_of(text), modes, NULL, &err);
    CHECK(g, "%s: %s", text, err.text);
    return g;
}

// texts: matching texts, NULL, texts that do not match, NULL. Frees the grammar.
static void check_texts(Grammar *g, const char *what, const char *const *texts) {
    bool expected = true;
    for (int i = 0, n_ends = 0; g && n_ends < 2; i++) {
        if (!texts[i])
            expected = false, n_ends++;
        else
            CHECK(accepts(g, texts[i]) == expected, "%s: %s %s", what, texts[i],
                  expected ? "refused" : "accepted");
    }
    grammar_free(g);
}

#define TEXTS(...) ((const char *const[]){__VA_ARGS__, NULL, NULL})

static Grammar *regex_of(const char *pattern) {
    Error err;
    Grammar *g = grammar_regex(str_of(pattern), &err);
    CHECK(g, "%s: %s", pattern, err.text);
    return g;
}

static void regexes(void) {
    static const struct {
        const char *pattern, *texts[16];
    } cases[] = {
        {"a*b", {"b", "aab", NULL, "", "a", "ba", NULL}},
        {"(a|bc){2,3}", {"aa", "abc", "bcbca", NULL, "a", "aaaa", "ab", NULL}},
        {"(a*)*b|(x+x+)+y", {"b", "aaab", "xxy", NULL, "xy", "", NULL}},
        {"[^a-c\\d]+", {"xyz", "\xc3\xa9", NULL, "a", "x1", NULL}},
        {"^a$|^$", {"a", "", NULL, "aa", NULL}},
        {"a^b|c$d|e", {"e", NULL, "ab", "cd", NULL}},
        {"\\u00e9\\x41\\u{1F600}\\.",
         {"\xc3\xa9"
          "A\xf0\x9f\x98\x80.",
          NULL,
          "\xc3\xa9"
          "A\xf0\x9f\x98\x80x",
          NULL}},
        {"(?:a|)(?<n>b)?", {"", "a", "ab", "b", NULL, "ba", NULL}},
        {"^(?!foo$)(?=[a-z]+)\\w*", {"fo", "foox", NULL, "foo", "1", NULL}},
        {"\\p{L}+\\s", {"\xc3\xa9 ", NULL, "1 ", NULL}},
        {"a{2}{", {"aa{", NULL, "aa", NULL}},
        {"[\\w.-]+?", {"a.b-c", NULL, "", NULL}},
        {"\\P{L}\\p{N}\\p{Number}\\p{Letter}", {".12a", NULL, "a12a", ".1aa", ".123", NULL}},
        {"[\\b]\\cJ\\u{41}", {"\010\nA", NULL, "b\nA", "\010jA", NULL}},
        {"\\ud83d\\ude00", {"\360\237\230\200", NULL, "x", NULL}},
        {"[\\w-/]+", {"a-/", NULL, ".", "+", NULL}},
        {"[a-\\d]+", {"a-1", NULL, "b", NULL}},
        {"^(?=a)(?!ab)\\w+", {"ac", "a", NULL, "ab", "abc", "b", NULL}},
        {"\\x41\\t\\r\\f\\v\\$\\u00e9", {"A\t\r\014\013$\303\251", NULL, "A", NULL}},
        {"\\0?a", {"a", NULL, "0a", NULL}},
        {"[\\]\\-^]+", {"^-]", NULL, "\\", NULL}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_texts(regex_of(cases[i].pattern), cases[i].pattern, cases[i].texts);
}

static void regex_errors(void) {
    static const char *const invalid[] = {"(",
                                          "a)",
                                          "[a",
                                          "*a",
                                          "a**",
                                          "\\1",
                                          "(a)\\1",
                                          "\\b",
                                          "a(?=b)",
                                          "(?<=a)",
                                          "[b-a]",
                                          "a{2,1}",
                                          "\\p{Han}",
                                          "((a{1,200}){1,200}){1,200}",
                                          "[ab]*a[ab]{40}",
                                          "\xff",
                                          "\\q",
                                          "x(?i)y",
                                          "[^\\s\\S]",
                                          "\\",
                                          "\\B",
                                          "\\k<a>",
                                          "\\U00000041",
                                          "\\u{}",
                                          "\\u{1234567}",
                                          "\\u{41",
                                          "\\c",
                                          "(?<a",
                                          "a+*",
                                          "a*+",
                                          "+a",
                                          "?a",
                                          "[a-",
                                          "a{99999999}",
                                          "\\u{110000}",
                                          "(?=a(?=b))a",
                                          "(?!",
                                          "[a-\\q]",
                                          "\\x4",
                                          "a|*",
                                          "(?<!a)b"};
    for (size_t i = 0; i < sizeof invalid / sizeof *invalid; i++) {
        Error err = {0};
        Grammar *g = grammar_regex(str_of(invalid[i]), &err);
        CHECK(!g && err.code == EXIT_USAGE && err.text[0], "%s: not refused", invalid[i]);
        grammar_free(g);
    }
}

static Grammar *grammar_of(const char *text) {
    Error err;
    Grammar *g = grammar_gbnf(str_of(text), &err);
    CHECK(g, "%s: %s", text, err.text);
    return g;
}

static void grammars(void) {
    check_texts(grammar_of("root ::= \"yes\" | \"no\" # answers\n"), "words",
                TEXTS("yes", "no", NULL, "", "yesno"));
    check_texts(grammar_of("root ::= expr\nexpr ::= term ([-+*/] term)*\nterm ::= num | \"(\" expr "
                           "\")\"\nnum ::= [0-9]+"),
                "sums", TEXTS("1", "(1+22)*3", "((4))", NULL, "1+", "(1", "1)", ""));
    check_texts(
        grammar_of(
            "root ::= (\n  \"a\" b? |\n  [^\\x00-\\x1fb\"]{2,3}\n)\nb ::= \"b\"\n    | \"c\"\n"),
        "lines", TEXTS("a", "ab", "ac", "xyz", "\xc3\xa9\xc3\xa9", NULL, "b", "x", "xxxx"));
    check_texts(
        grammar_of(
            "root ::= list\nlist ::= \"[\" (item (\",\" item)*)? \"]\"\nitem ::= list | \"x\"\n"),
        "nested", TEXTS("[]", "[x,[x,[]]]", NULL, "[x", "[x,]", "x"));
    check_texts(
        grammar_of("root ::= a a | \"\\u00e9\" .\na ::= \"(\" a \")\" | \"(\" a \"]\" | \"\"\n"),
        "ambiguous", TEXTS("", "(]", "((])", "()(]", "\xc3\xa9x", NULL, "(", "(()"));
    check_texts(grammar_of("root ::= x{2} y{1,} z{0,2}\nx ::= \"x\"\ny ::= \"y\"\nz ::= \"z\""),
                "repeated", TEXTS("xxy", "xxyyyzz", NULL, "xy", "xx", "xxyzzz"));
    check_texts(grammar_of("root ::= a-1 b2\r\na-1 ::=\t\"a\" # text\r\nb2 ::= \"b\"\r\n# end"),
                "names", TEXTS("ab", NULL, "a", "b"));
    check_texts(grammar_of("root ::= [\\^\\-\\]\\[]+ \"\\\"\\t\\U0001F600\""), "escapes",
                TEXTS("^-][\"\t\360\237\230\200", NULL, "a\"\t\360\237\230\200", "^"));
}

static void grammar_errors(void) {
    static const struct {
        const char *text, *where;
    } invalid[] = {{"root ::= \"a", "line 1, column 12"},
                   {"root ::= b", "line 1, column 10"},
                   {"root ::= \"a\"\nb = c", "line 2, column 3"},
                   {"root ::= root \"a\"", "line 1, column 1"},
                   {"a ::= b \"x\"\nb ::= a?\nroot ::= a", "left recursion"},
                   {"root ::= [z-a]", "line 1, column 11"},
                   {"root ::= (\"a\"", "line 1, column 14"},
                   {"x ::= \"a\"", "root"},
                   {"root ::= \"a\" root", "no text"},
                   {"", "root"},
                   {"root ::= *", "line 1, column 10"},
                   {"root ::= \"a\"\nroot ::= \"b\"", "line 2, column 1"},
                   {"root ::= \"a\"{3,2}", "out of order"},
                   {"root ::= <[1]>", "tokens"},
                   {"root ::= \"\\q\"", "unknown escape"},
                   {"root ::= \"a\\", "unknown escape"},
                   {"root ::= \"a\" )", "expected the end of the line"},
                   {"root ::= \"a\"{x}", "expected {n}"},
                   {"root ::= \"a\"{2", "expected {n}"},
                   {"?", "expected the name of a rule"},
                   {"root ::= \"a\"\r\n?", "line 2, column 1"},
                   {"root ::= [a\n]", "not closed"},
                   {"root ::= [a-", "not closed"}};
    for (size_t i = 0; i < sizeof invalid / sizeof *invalid; i++) {
        Error err = {0};
        Grammar *g = grammar_gbnf(str_of(invalid[i].text), &err);
        CHECK(!g && err.code == EXIT_USAGE && strstr(err.text, invalid[i].where), "%s: %s",
              invalid[i].text, err.text);
        grammar_free(g);
    }
}

static void choices(void) {
    Error err;
    Str words[] = {str_of("yes"), str_of("no"), str_of("nope")};
    check_texts(grammar_choices(words, 3, &err), "choices",
                TEXTS("yes", "no", "nope", NULL, "nop", "", "yesno"));
    Str invalid[] = {str_of("yes"), str_of("a\xff"), str_of("no")};
    CHECK(!grammar_choices(invalid, 3, &err) && strstr(err.text, "is not valid UTF-8"), "%s",
          err.text);
}

// Schemas with texts that match and texts that do not. They cover each keyword of the
// specification.
static const struct {
    const char *schema, *texts[20];
} schemas[] = {
    {"true", {"null", "\"x\"", "[1,{}]", "{\"a\":[]}", NULL, "", "{", "[1,]", "nul", NULL}},
    {"{\"type\":[\"integer\",\"null\"]}",
     {"0", "-12", "1.0", "null", NULL, "1.5", "01", "\"1\"", "1e2", NULL}},
    {"{\"type\":\"integer\",\"$schema\":\"http://json-schema.org/draft-04/schema#\"}",
     {"1", NULL, "1.0", NULL}},
    {"{\"type\":\"number\"}", {"1.5", "-0", "1e-05", "2E+10", NULL, "1.", ".5", "+1", "NaN", NULL}},
    {"{\"type\":\"number\",\"minimum\":-1.5,\"exclusiveMaximum\":20}",
     {"-1.5", "0", "19.999", "1e-05", "-0.0", "9", NULL, "-1.51", "20", "20.0", "100", "1e+16",
      NULL}},
    {"{\"type\":\"integer\",\"exclusiveMinimum\":0,\"maximum\":120}",
     {"1", "120", "99", NULL, "0", "-1", "121", "-0", NULL}},
    {"{\"type\":\"number\",\"minimum\":0.05,\"maximum\":0.5}",
     {"0.05", "0.5", "0.12", "0.50", NULL, "0", "0.04", "0.51", "1", NULL}},
    {"{\"type\":\"number\",\"maximum\":-2.5}",
     {"-2.5", "-3", "-100", NULL, "-2.4", "0", "1", "-1e-05", NULL}},
    {"{\"type\":\"integer\",\"multipleOf\":7}", {"0", "7", "-14", "700", NULL, "8", "1", NULL}},
    {"{\"minimum\":5,\"exclusiveMinimum\":true,\"type\":\"integer\"}", {"6", NULL, "5", NULL}},
    {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
     {"\"ab\"", "\"\\u00e9\xf0\x9f\x98\x80\"", "\"\\ud83d\\ude00\\n\\\"\"", NULL, "\"a\"",
      "\"abcd\"", "\"\\ude00\"", "\"a\nb\"", NULL}},
    {"{\"type\":\"string\",\"pattern\":\"^\\\\\\u0000$\"}",
     {"\"\\u0000\"", NULL, "\"a\"", "\"0\"", NULL}},
    {"{\"type\":\"string\",\"pattern\":\"b+$\"}",
     {"\"ab\"", "\"\\u00e9b\"", NULL, "\"ba\"", "\"\"", NULL}},
    {"{\"type\":\"string\",\"pattern\":\"^a*$\",\"minLength\":2,\"maxLength\":4}",
     {"\"aa\"", "\"aaaa\"", NULL, "\"a\"", "\"aaaaa\"", NULL}},
    {"{\"enum\":[\"a\",\"ab\",1,2.5,null,[1],{\"k\":\"v\"}]}",
     {"\"a\"", "\"ab\"", "1", "1.0", "2.5", "null", "[1]", "{\"k\": \"v\"}", NULL, "\"b\"", "2",
      "[]", "{}", NULL}},
    {"{\"const\":\"\xc3\xa9\\n\\\"\"}",
     {"\"\xc3\xa9\\n\\\"\"", "\"\\u00e9\\n\\\"\"", NULL, "\"e\"", NULL}},
    {"{\"enum\":[1,2,30],\"minimum\":2}", {"2", "30", NULL, "1", NULL}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"string\"}"
     "},\"required\":["
     "\"a\"]}",
     {"{\"a\":1}", "{\"b\": \"x\", \"a\": 1}", "{\n  \"a\": 1,\n  \"c\": [\n    {}\n  ]\n}",
      "{\"a\":1,\"c\":{}}", NULL, "{}", "{\"b\":\"x\"}", "{\"a\":\"x\"}", "{\"a\":1,\"a\":2}",
      "{\"a\":1, \"b\":\"x\"}", "{ \"a\":1}", "{\"a\" :1}", "{\n \"a\": 1\n}", NULL}},
    {"{\"properties\":{\"foo\":{},\"fob\":{}},\"additionalProperties\":false,\"type\":\"object\"}",
     {"{}", "{\"foo\":1}", "{\"fob\":1,\"foo\":[]}", NULL, "{\"fo\":1}", "{\"x\":1}",
      "{\"fooo\":1}", NULL}},
    {"{\"type\":\"object\",\"patternProperties\":{\"^x-\":{\"type\":\"string\"},\"n$\":{"
     "\"minLength\":2}},"
     "\"additionalProperties\":{\"type\":\"null\"}}",
     {"{\"x-a\":\"b\"}", "{\"x-n\":\"bb\"}", "{\"n\":5}", "{\"q\":null}", NULL, "{\"x-a\":1}",
      "{\"x-n\":\"b\"}", "{\"q\":1}", NULL}},
    {"{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"^[a-c]+$\",\"maxLength\":2}}",
     {"{}", "{\"ab\":1}", NULL, "{\"d\":1}", "{\"aaa\":1}", NULL}},
    {"{\"type\":\"object\",\"minProperties\":1,\"maxProperties\":2}",
     {"{\"a\":1}", "{\"a\":1,\"b\":2}", NULL, "{}", "{\"a\":1,\"b\":2,\"c\":3}", NULL}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{},\"c\":{}},\"required\":[\"c\"],"
     "\"maxProperties\":2,"
     "\"additionalProperties\":false}",
     {"{\"c\":1}", "{\"a\":1,\"c\":1}", NULL, "{\"a\":1,\"b\":1}", "{\"a\":1,\"b\":1,\"c\":1}",
      NULL}},
    {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":1,\"maxItems\":2}",
     {"[1]", "[1, 2]", "[\n  1\n]", NULL, "[]", "[1,2,3]", "[\"a\"]", "[1 ,2]", NULL}},
    {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"string\"},{\"const\":1}],\"items\":false}",
     {"[]", "[\"a\"]", "[\"a\",1]", NULL, "[1]", "[\"a\",1,1]", NULL}},
    {"{\"type\":\"array\",\"items\":[{\"type\":\"string\"}],\"additionalItems\":{\"type\":\"null\"}"
     "}",
     {"[\"a\",null]", NULL, "[\"a\",1]", NULL}},
    {"{\"anyOf\":[{\"type\":\"string\",\"maxLength\":1},{\"type\":\"integer\",\"minimum\":5}]}",
     {"\"a\"", "5", NULL, "\"ab\"", "4", "null", NULL}},
    {"{\"oneOf\":[{\"type\":\"integer\",\"multipleOf\":3},{\"type\":\"string\"}]}",
     {"3", "\"a\"", NULL, "4", "null", NULL}},
    {"{\"type\":\"object\",\"oneOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}",
     {"{\"a\":1}", "{\"b\":1,\"c\":2}", NULL, "{}", "{\"a\":1,\"b\":1}", NULL}},
    {"{\"allOf\":[{\"type\":\"integer\",\"minimum\":3},{\"maximum\":5},{\"not\":{\"const\":4}}]}",
     {"3", "5", NULL, "2", "4", "6", NULL}},
    {"{\"not\":{\"type\":[\"string\",\"number\"]}}",
     {"null", "{}", "[]", NULL, "1", "\"a\"", NULL}},
    {"{\"type\":\"string\",\"not\":{\"enum\":[\"a\",\"bc\"]}}",
     {"\"b\"", "\"ab\"", "\"\"", NULL, "\"a\"", "\"bc\"", NULL}},
    {"{\"type\":\"string\",\"maxLength\":3,\"not\":{\"pattern\":\"a\"}}",
     {"\"bcd\"", "\"\"", NULL, "\"a\"", "\"ba\"", "\"bbbb\"", NULL}},
    {"{\"if\":{\"properties\":{\"k\":{\"const\":1}},\"required\":[\"k\"]},\"then\":{\"required\":["
     "\"x\"]},\"else\":{"
     "\"required\":[\"y\"]},\"type\":\"object\"}",
     {"{\"k\":1,\"x\":0}", "{\"k\":2,\"y\":0}", "{\"y\":0}", NULL, "{\"k\":1}", "{\"k\":1,\"y\":0}",
      "{}", NULL}},
    {"{\"type\":\"object\",\"dependentRequired\":{\"a\":[\"b\"]},\"dependencies\":{\"c\":{"
     "\"properties\":{\"d\":{"
     "\"const\":1}}}}}",
     {"{}", "{\"b\":1}", "{\"a\":1,\"b\":2}", "{\"c\":1,\"d\":1}", "{\"d\":2}", NULL, "{\"a\":1}",
      "{\"c\":1,\"d\":2}", NULL}},
    {"{\"$ref\":\"#/$defs/"
     "node\",\"$defs\":{\"node\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},"
     "\"next\":{\"$ref\":"
     "\"#/$defs/node\"}},"
     "\"required\":[\"v\"],\"additionalProperties\":false}}}",
     {"{\"v\":1}", "{\"v\":1,\"next\":{\"next\":{\"v\":3},\"v\":2}}", NULL, "{\"next\":{}}",
      "{\"v\":1,\"next\":{}}", NULL}},
    {"{\"$ref\":\"#/definitions/a~1b%25\",\"type\":\"string\",\"definitions\":{\"a/"
     "b%\":{\"type\":\"integer\"}},\"$schema\":\"http://json-schema.org/draft-07/schema#\"}",
     {"1", NULL, "\"a\"", NULL}},
    {"{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}", {"[]", "[[],[[]]]", NULL, "[1]", NULL}},
    {"{\"type\":\"string\",\"format\":\"date\"}",
     {"\"2024-02-29\"", "\"1999-12-31\"", NULL, "\"2023-02-29\"", "\"2024-13-01\"", "\"2024-1-1\"",
      "\"1900-02-29\"", NULL}},
    {"{\"format\":\"date-time\",\"type\":\"string\"}",
     {"\"2024-01-01T10:00:00Z\"", "\"2024-01-01T23:59:59.5+02:00\"", NULL, "\"2024-01-01\"",
      "\"2024-01-01T24:00:00Z\"", NULL}},
    {"{\"format\":\"ipv4\",\"type\":\"string\"}",
     {"\"127.0.0.1\"", NULL, "\"256.1.1.1\"", "\"1.2.3\"", "\"01.2.3.4\"", NULL}},
    {"{\"format\":\"ipv6\",\"type\":\"string\"}",
     {"\"::1\"", "\"1:2:3:4:5:6:7:8\"", "\"::ffff:1.2.3.4\"", "\"1::\"", NULL, "\"1:2:3\"",
      "\":::1\"", "\"1::2::3\"", "\"12345::\"", NULL}},
    {"{\"format\":\"uuid\",\"type\":\"string\"}",
     {"\"123e4567-e89b-12d3-a456-426614174000\"", NULL, "\"123e4567e89b12d3a456426614174000\"",
      NULL}},
    {"{\"format\":\"email\",\"type\":\"string\"}",
     {"\"joe.b@example.com\"", NULL, "\"joe\"", "\"@x\"", "\"a..b@x\"", NULL}},
    {"{\"format\":\"uri\",\"type\":\"string\"}",
     {"\"http://a.b/c?d=e#f\"", "\"urn:x:y\"", "\"http://[::1]:80/\"", NULL, "\"//a/b\"",
      "\"a b:c\"", "\"/x\"", NULL}},
    {"{\"format\":\"hostname\",\"type\":\"string\"}",
     {"\"a.b-c.com\"", NULL, "\"-a\"", "\"a..b\"", "\"a_b\"", NULL}},
    {"{\"type\":\"object\",\"properties\":{\"a\":false,\"b\":{}},\"unevaluatedProperties\":false}",
     {"{}", "{\"b\":1}", NULL, "{\"a\":1}", "{\"c\":1}", NULL}},
    {"{\"type\":\"object\",\"properties\":{\"\\u00e9\\\"\":{\"type\":\"null\"}},"
     "\"additionalProperties\":{\"type\":"
     "\"integer\"}}",
     {"{\"\xc3\xa9\\\"\":null}", "{\"\\u00e9\\\"\":null}", "{\"\xc3\xa9\":1}",
      "{\"\xc3\xa8\\\"\":1}", NULL, "{\"\\u00e9\\\"\":1}", "{\"\xc3\xa9\":null}", NULL}},
    // enum with each other keyword
    {"{\"enum\":[\"a\",\"bcd\",\"ee\",7],\"minLength\":2,\"maxLength\":2}",
     {"\"ee\"", "7", NULL, "\"a\"", "\"bcd\"", NULL}},
    {"{\"enum\":[\"ab\",\"ba\",1],\"pattern\":\"^a\"}", {"\"ab\"", "1", NULL, "\"ba\"", NULL}},
    {"{\"enum\":[\"2024-01-01\",\"x\"],\"format\":\"date\"}",
     {"\"2024-01-01\"", NULL, "\"x\"", NULL}},
    {"{\"enum\":[1,2,3,4.5,6],\"exclusiveMinimum\":1,\"maximum\":4.5,\"multipleOf\":1.5}",
     {"3", "4.5", NULL, "1", "2", "6", NULL}},
    {"{\"$schema\":\"http://json-schema.org/draft-04/"
     "schema#\",\"enum\":[5,6,7],\"minimum\":5,\"exclusiveMinimum\":true,\"maximum\":7,"
     "\"exclusiveMaximum\":true}",
     {"6", NULL, "5", "7", NULL}},
    {"{\"enum\":[[],[1],[1,1],[1,\"a\"],[1,2,3]],\"minItems\":1,\"maxItems\":2,\"uniqueItems\":"
     "true,\"items\":{\"type\":\"integer\"}}",
     {"[1]", NULL, "[]", "[1,1]", "[1,\"a\"]", "[1,2,3]", NULL}},
    {"{\"enum\":[[\"a\",1],[\"a\",\"b\"],[1]],\"prefixItems\":[{\"type\":\"string\"}],\"items\":{"
     "\"type\":\"integer\"}}",
     {"[\"a\",1]", NULL, "[\"a\",\"b\"]", "[1]", NULL}},
    {"{\"$schema\":\"http://json-schema.org/draft-07/"
     "schema#\",\"enum\":[[\"a\"],[\"a\",null],[\"a\",1]],\"items\":[{\"type\":\"string\"}],"
     "\"additionalItems\":{\"type\":\"null\"}}",
     {"[\"a\"]", "[\"a\",null]", NULL, "[\"a\",1]", NULL}},
    {"{\"enum\":[{},{\"a\":1},{\"a\":\"x\"},{\"b\":1},{\"a\":1,\"b\":1,\"c\":1}],\"required\":["
     "\"a\"],\"properties\":{\"a\":{\"type\":\"integer\"}},\"maxProperties\":2}",
     {"{\"a\":1}", NULL, "{}", "{\"a\":\"x\"}", "{\"b\":1}", "{\"a\":1,\"b\":1,\"c\":1}", NULL}},
    {"{\"enum\":[{\"x-a\":1},{\"x-a\":\"s\"},{\"q\":null},{\"q\":1}],\"patternProperties\":{\"^x-"
     "\":{\"type\":\"string\"}},\"additionalProperties\":{\"type\":\"null\"}}",
     {"{\"x-a\":\"s\"}", "{\"q\":null}", NULL, "{\"x-a\":1}", "{\"q\":1}", NULL}},
    {"{\"enum\":[{},{\"ab\":1},{\"abc\":1}],\"propertyNames\":{\"maxLength\":2},\"minProperties\":"
     "1}",
     {"{\"ab\":1}", NULL, "{}", "{\"abc\":1}", NULL}},
    {"{\"enum\":[{\"a\":1},{\"a\":1,\"b\":1},{\"c\":1},{\"c\":1,\"d\":1}],\"dependentRequired\":{"
     "\"a\":[\"b\"]},\"dependentSchemas\":{\"c\":{\"required\":[\"d\"]}}}",
     {"{\"a\":1,\"b\":1}", "{\"c\":1,\"d\":1}", NULL, "{\"a\":1}", "{\"c\":1}", NULL}},
    {"{\"enum\":[1,2,3,4,\"x\"],\"allOf\":[{\"minimum\":2}],\"anyOf\":[{\"maximum\":3},{\"type\":"
     "\"string\"}],\"not\":{\"const\":3}}",
     {"2", "\"x\"", NULL, "1", "3", "4", NULL}},
    {"{\"enum\":[2,3,6],\"oneOf\":[{\"multipleOf\":2},{\"multipleOf\":3}]}",
     {"2", "3", NULL, "6", NULL}},
    {"{\"enum\":[\"a\",1,2],\"if\":{\"type\":\"string\"},\"then\":{\"const\":\"a\"},\"else\":{"
     "\"minimum\":2}}",
     {"\"a\"", "2", NULL, "1", NULL}},
    {"{\"enum\":[1,\"a\"],\"$ref\":\"#/$defs/s\",\"$defs\":{\"s\":{\"type\":\"string\"}}}",
     {"\"a\"", NULL, "1", NULL}},
    // oneOf with disjoint schemas
    {"{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"kind\":{\"const\":\"a\"}},\"required\":["
     "\"kind\"]},{\"type\":\"object\",\"properties\":{\"kind\":{\"const\":\"b\"}},\"required\":["
     "\"kind\"]}]}",
     {"{\"kind\":\"a\",\"x\":1}", "{\"kind\":\"b\"}", NULL, "{}", "{\"kind\":\"c\"}", NULL}},
    {"{\"oneOf\":[{\"type\":\"object\",\"required\":[\"a\"]},{\"type\":\"object\",\"properties\":{"
     "\"b\":{}},\"additionalProperties\":false}]}",
     {"{\"a\":1}", "{\"b\":1}", "{}", NULL, "{\"c\":1}", NULL}},
    // negated keywords
    {"{\"type\":\"integer\",\"not\":{\"minimum\":3,\"maximum\":5}}",
     {"2", "6", NULL, "3", "5", NULL}},
    {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"not\":{\"minItems\":2}}",
     {"[]", "[1]", NULL, "[1,2]", NULL}},
    {"{\"type\":\"array\",\"items\":{\"enum\":[1,2]},\"not\":{\"prefixItems\":[{\"const\":1}]}}",
     {"[2]", "[2,1]", NULL, "[]", "[1]", NULL}},
    {"{\"type\":\"object\",\"not\":{\"required\":[\"a\"]}}",
     {"{}", "{\"b\":1}", NULL, "{\"a\":1}", NULL}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"not\":{\"properties\":{"
     "\"a\":{\"maximum\":5}}}}",
     {"{\"a\":6}", NULL, "{}", "{\"a\":5}", NULL}},
    {"{\"type\":\"string\",\"maxLength\":10,\"not\":{\"format\":\"date\"}}",
     {"\"x\"", NULL, "\"2024-01-01\"", NULL}},
    {"{\"type\":\"object\",\"not\":{\"minProperties\":1}}", {"{}", NULL, "{\"a\":1}", NULL}},
    {"{\"type\":\"string\",\"not\":{\"anyOf\":[{\"minLength\":3},{\"const\":\"a\"}]}}",
     {"\"b\"", "\"ab\"", NULL, "\"abc\"", "\"a\"", NULL}},
    {"{\"type\":\"integer\",\"not\":{\"oneOf\":[{\"minimum\":3},{\"maximum\":5}]}}",
     {"3", "4", "5", NULL, "2", "6", NULL}},
    {"{\"type\":\"integer\",\"not\":{\"if\":{\"minimum\":3},\"then\":{\"maximum\":5},\"else\":{"
     "\"maximum\":-5}}}",
     {"6", "0", NULL, "4", "-6", NULL}},
    {"{\"type\":\"object\",\"not\":{\"dependentRequired\":{\"a\":[\"b\"]}}}",
     {"{\"a\":1}", NULL, "{}", "{\"a\":1,\"b\":1}", NULL}},
    {"{\"type\":\"integer\",\"not\":{\"multipleOf\":3}}", {"1", "-2", NULL, "0", "3", NULL}},
    // negated values of every type
    {"{\"not\":{\"const\":null}}", {"true", "0", "{}", NULL, "null", NULL}},
    {"{\"not\":{\"enum\":[true,0,\"a\"]}}",
     {"false", "1", "null", "\"b\"", NULL, "true", "0", "0.0", "-0", "0e0", "\"a\"", NULL}},
    {"{\"type\":\"number\",\"not\":{\"const\":1}}",
     {"2", "1.5", NULL, "1", "1.0", "10e-1", "0.1e1", NULL}},
    {"{\"type\":\"number\",\"not\":{\"type\":\"integer\"}}",
     {"1.5", "1e-05", NULL, "1", "1.0", "1e2", "1e+16", NULL}},
    {"{\"not\":{\"const\":[1,[null]]}}",
     {"[]", "[1]", "[2,[null]]", "[1,[]]", "[1,[null],2]", "1", NULL, "[1,[null]]", NULL}},
    {"{\"not\":{\"const\":{}}}", {"{\"a\":1}", "[]", NULL, "{}", NULL}},
    {"{\"additionalProperties\":false,\"properties\":{\"a\":{},\"b\":{}},\"not\":{\"const\":"
     "{\"a\":1}}}",
     {"{}", "{\"a\":2}", "{\"b\":1}", "{\"a\":1,\"b\":1}", "[]", NULL, "{\"a\":1}", "{\"a\":1.0}",
      NULL}},
    {"{\"type\":\"object\",\"properties\":{\"f\":{\"type\":\"boolean\"}},\"required\":[\"f\"],"
     "\"if\":{\"properties\":{\"f\":{\"const\":true}}},\"then\":{\"required\":[\"x\"]}}",
     {"{\"f\":false}", "{\"f\":true,\"x\":1}", NULL, "{\"f\":true}", NULL}},
    {"{\"oneOf\":[{\"enum\":[null,true]},{\"enum\":[true,false]}]}",
     {"null", "false", NULL, "true", "0", NULL}},
    // numbers are exact decimals
    {"{\"const\":1.5e-10}", {"1.5e-10", "1.5E-10", "0.00000000015", NULL, "1r5e-10", NULL}},
    {"{\"enum\":[9007199254740993,123456789012345678901234567890]}",
     {"9007199254740993", "123456789012345678901234567890", NULL, "9007199254740992",
      "9007199254740994", "123456789012345680000000000000", NULL}},
    {"{\"enum\":[10e-1,2.50,0.3],\"not\":{\"const\":0.30}}",
     {"1", "1.0", "2.5", NULL, "0.3", "10", NULL}},
    {"{\"type\":\"integer\",\"minimum\":9007199254740993,\"exclusiveMaximum\":1e+20}",
     {"9007199254740993", "99999999999999999999", "1.5e+16", NULL, "9007199254740992", "1e+20",
      "100000000000000000000", NULL}},
    {"{\"type\":\"number\",\"minimum\":1.5e-07,\"maximum\":2e+22}",
     {"1.5e-07", "1.6e-07", "1e-06", "0.001", "1.9e+22", "2e+22", NULL, "1.4e-07", "9e-08",
      "2.1e+22", "1e+23", "0", "-1", NULL}},
    {"{\"type\":\"number\",\"multipleOf\":0.01}",
     {"1", "0.07", "-12.3", "1.230", NULL, "0.001", "1.234", NULL}},
    {"{\"type\":\"number\",\"multipleOf\":1.5}", {"3", "-4.5", "0", NULL, "1", "2.5", NULL}},
    {"{\"type\":\"integer\",\"allOf\":[{\"multipleOf\":2},{\"multipleOf\":3}]}",
     {"6", "-12", NULL, "2", "3", NULL}},
    {"{\"type\":\"integer\"}", {"-0", "2.00", "1e+16", NULL, "1.5", "1e-05", NULL}},
    // names that no property can have
    {"{\"type\":\"object\",\"propertyNames\":{\"type\":\"null\"}}",
     {"{}", NULL, "{\"a\":1}", NULL}},
    {"{\"type\":\"object\",\"propertyNames\":{\"enum\":[null,1]}}",
     {"{}", NULL, "{\"a\":1}", NULL}},
    {"{\"type\":\"object\",\"propertyNames\":false,\"properties\":{\"a\":{}}}",
     {"{}", NULL, "{\"a\":1}", "{\"b\":1}", NULL}},
    // names are not repeated, listed or not
    {"{\"type\":\"object\"}",
     {"{\"a\":1,\"ab\":2,\"\":3,\"b\":{\"a\":1,\"b\":2}}", NULL, "{\"a\":1,\"b\":2,\"a\":3}",
      "{\"\":1,\"\":2}", "{\"\xc3\xa9\":1,\"\\u00e9\":2}", "{\"a\":{\"b\":1,\"b\":2}}",
      "{\n  \"a\": 1,\n  \"a\": 2\n}", NULL}},
    {"{\"items\":{\"additionalProperties\":{\"type\":\"integer\"}}}",
     {"[{\"a\":1},{\"a\":1}]", "{\"a\":{\"a\":{}}}", NULL, "[{\"a\":1,\"a\":1}]", NULL}},
    {"{\"type\":\"object\",\"patternProperties\":{\"^(a|ab|b)$\":{\"type\":\"integer\"}},"
     "\"additionalProperties\":false}",
     {"{\"ab\":1,\"a\":2,\"b\":3}", "{}", NULL, "{\"a\":1,\"a\":2}", "{\"a\":1,\"b\":1,\"b\":1}",
      "{\"a\":1,\"ab\":2,\"b\":3,", NULL}},
    {"{\"type\":\"object\",\"patternProperties\":{\"^[ab]{1,2}$\":{\"enum\":[1,\"a\"]}},"
     "\"properties\":{"
     "\"a\":{},\"abc\":{}},\"additionalProperties\":false}",
     {"{\"ab\":1,\"a\":1,\"bb\":1}", NULL, "{\"ab\":1,\"ab\":1}", "{\"a\":1,\"a\":1}", NULL}},
    {"{\"type\":\"object\",\"minProperties\":3,\"properties\":{\"a\":{}}}",
     {"{\"a\":1,\"b\":2,\"c\":3}", "{\"x\":1,\"b\":2,\"c\":3,\"d\":4}", NULL, "{\"a\":1,\"b\":2}",
      "{\"b\":1,\"b\":2,\"b\":3}", NULL}},
    {"{\"not\":{\"const\":{\"a\":1}}}",
     {"{}", "{\"a\":2}", "{\"a\":1,\"b\":2}", NULL, "{\"a\":1}", NULL}},
    {"{\"type\":\"object\",\"unevaluatedProperties\":false,\"properties\":{\"a\":{\"type\":"
     "\"integer\"}}}",
     {"{\"a\":1}", NULL, "{\"a\":\"x\"}", "{\"b\":1}", NULL}},
    // URIs and anchors
    {"{\"$id\":\"http://a.b/x/y\",\"$ref\":\"z/"
     "i\",\"$defs\":{\"n\":{\"type\":\"string\"},\"i\":{"
     "\"$id\":\"/x/z/i\",\"$defs\":{\"n\":{\"type\":\"null\"}},\"items\":{\"$ref\":\"#/$defs/"
     "n\"}}}}",
     {"[]", "[null]", NULL, "[\"a\"]", NULL}},
    {"{\"$id\":\"urn:x:y\",\"items\":{\"$ref\":\"b#q\"},\"$defs\":{\"a\":{\"$anchor\":\"q\","
     "\"type\":"
     "\"string\"},\"b\":{\"$id\":\"b\",\"items\":{\"$anchor\":\"q\",\"type\":\"null\"}}}}",
     {"[null]", NULL, "[\"a\"]", NULL}},
    {"{\"$ref\":\"#/$defs/e\",\"$defs\":{\"e\":{\"$id\":\"http://a.b/\",\"enum\":[{\"$id\":\"http:/"
     "/"
     "a.b/\"}]}}}",
     {"{\"$id\":\"http://a.b/\"}", NULL, "{}", NULL}},
    {"{\"$ref\":\"#/x/y\",\"x\":{\"y\":{\"type\":\"null\"}}}", {"null", NULL, "1", NULL}},
    {"{\"type\":\"string\",\"pattern\":\"^a$\"}", {"\"a\"", NULL, "\"aa\"", NULL}},
    {"{\"type\":\"string\",\"pattern\":\"^(?:ab)*$\"}",
     {"\"\"", "\"abab\"", NULL, "\"aba\"", NULL}},
    {"{\"type\":\"string\",\"pattern\":\"^[ab]{2}c\"}",
     {"\"abc\"", "\"bacx\"", NULL, "\"ab\"", NULL}},
    {"{\"type\":\"string\",\"pattern\":\"^[ab]{1,9}$\",\"minLength\":2,\"maxLength\":3}",
     {"\"ab\"", "\"bab\"", NULL, "\"a\"", "\"abab\"", NULL}},
    {"{\"type\":\"string\",\"pattern\":\"^[ab]{2,3}$\",\"minLength\":1,\"maxLength\":9}",
     {"\"ab\"", "\"bab\"", NULL, "\"a\"", "\"abab\"", NULL}},
    {"{\"type\":\"string\",\"pattern\":\"\"}", {"\"\"", "\"x\"", NULL, "1", NULL}},
    {"{\"type\":\"string\",\"pattern\":\"^(?!b)\"}", {"\"ab\"", "\"\"", NULL, "\"ba\"", NULL}},
    {"{\"type\":\"string\",\"not\":{\"const\":\"a.b\\\\\"}}",
     {"\"a\"", "\"axb\\\\\"", NULL, "\"a.b\\\\\"", NULL}},
    {"{\"type\":\"string\",\"not\":{\"const\":\"\\u0000\"}}",
     {"\"\\u0001\"", "\"\"", NULL, "\"\\u0000\"", NULL}},
    {"{\"type\":\"string\",\"maxLength\":5000000000,\"minLength\":1}",
     {"\"a\"", NULL, "\"\"", NULL}},
    {"{\"enum\":[1e-400,-1e-400,0],\"exclusiveMinimum\":0}",
     {"1e-400", NULL, "0", "-1e-400", NULL}},
    {"{\"enum\":[1e-400,-1e-400,2e-401,0],\"exclusiveMaximum\":1e-400}",
     {"0", "-1e-400", "2e-401", NULL, "1e-400", NULL}},
    {"{\"enum\":[1.5E2,1e0,0e99999999999999999999]}", {"150", "1", "0", NULL, "15", "2", NULL}},
    {"{\"type\":\"number\",\"multipleOf\":100}", {"300", "-100", "0", NULL, "150", NULL}},
    {"{\"enum\":[1.25,5,-0.5],\"multipleOf\":0.5}", {"5", "-0.5", NULL, "1.25", NULL}},
    {"{\"$schema\":\"http://json-schema.org/draft-04/"
     "schema#\",\"type\":\"integer\",\"not\":{\"minimum\":3,\"exclusiveMinimum\":true}}",
     {"3", "2", NULL, "4", NULL}},
    {"{\"$schema\":\"http://json-schema.org/draft-04/"
     "schema#\",\"enum\":[1,1.0,100.0,7],\"type\":\"integer\"}",
     {"1", "7", NULL, "100", NULL}},
    {"{\"$schema\":\"http://json-schema.org/draft-04/"
     "schema#\",\"enum\":[1e2,1E2,3],\"type\":\"integer\"}",
     {"3", NULL, "100", NULL}},
    {"{\"$schema\":\"http://json-schema.org/draft-04/"
     "schema#\",\"const\":1,\"contains\":{\"type\":\"null\"},\"if\":false}",
     {"2", "null", NULL, "1,", NULL}},
    {"{\"$schema\":\"http://json-schema.org/draft-03/schema#\",\"type\":\"integer\"}",
     {"1", NULL, "1.0", NULL}},
    {"{\"$schema\":\"http://json-schema.org/draft-06/schema#\",\"const\":1}",
     {"1", NULL, "2", NULL}},
    {"{\"$schema\":\"https://json-schema.org/draft/2019-09/"
     "schema\",\"items\":[{\"type\":\"null\"}],\"additionalItems\":false}",
     {"[]", "[null]", NULL, "[1]", "[null,null]", NULL}},
    {"{\"$schema\":\"http://json-schema.org/draft-07/"
     "schema#\",\"$ref\":\"#foo\",\"definitions\":{\"a\":{\"$id\":\"#foo\",\"type\":\"null\"}}}",
     {"null", NULL, "1", NULL}},
    {"{\"$ref\":\"#d\",\"$defs\":{\"x\":{\"$dynamicAnchor\":\"d\",\"type\":\"null\"}}}",
     {"null", NULL, "1", NULL}},
    {"{\"$id\":\"http://a.b/x?q=1\",\"$ref\":\"y\",\"$defs\":{\"y\":{\"$id\":\"http://a.b/"
     "y\",\"type\":\"null\"}}}",
     {"null", NULL, "1", NULL}},
    {"{\"$id\":\"http://a.b/x\",\"$ref\":\"?q\",\"$defs\":{\"y\":{\"$id\":\"http://a.b/"
     "x?q\",\"type\":\"null\"}}}",
     {"null", NULL, "1", NULL}},
    {"{\"$id\":\"http://a.b/x\",\"$ref\":\"//c/d\",\"$defs\":{\"y\":{\"$id\":\"http://c/"
     "d\",\"type\":\"null\"}}}",
     {"null", NULL, "1", NULL}},
    {"{\"$id\":\"http://a.b/x\",\"$ref\":\"/\",\"$defs\":{\"y\":{\"$id\":\"http://a.b/"
     "\",\"type\":\"null\"}}}",
     {"null", NULL, "1", NULL}},
    {"{\"$id\":\"http://a.b\",\"$ref\":\"c\",\"$defs\":{\"y\":{\"$id\":\"http://a.b/"
     "c\",\"type\":\"null\"}}}",
     {"null", NULL, "1", NULL}},
    {"{\"$id\":\"http://a.b?c\",\"$ref\":\"d\",\"$defs\":{\"y\":{\"$id\":\"http://a.b/"
     "d\",\"type\":\"null\"}}}",
     {"null", NULL, "1", NULL}},
    {"{\"prefixItems\":[{\"$ref\":\"#/$defs/a%2\"},{\"$ref\":\"#/$defs/b%zz\"},{\"$ref\":\"#/$defs/"
     "c%2z\"},{\"$ref\":\"#/$defs/d~\"},{\"$ref\":\"#/$defs/"
     "e~2\"}],\"items\":false,\"$defs\":{\"a%2\":{\"type\":\"null\"},\"b%zz\":{\"const\":1},\"c%"
     "2z\":{\"type\":\"null\"},\"d~\":{\"const\":1},\"e~2\":{\"type\":\"null\"}}}",
     {"[null,1,null,1,null]", NULL, "[1]", "[null,null]", NULL}},
    {"{\"items\":{\"$ref\":\"#/$defs/l/prefixItems/"
     "1\"},\"$defs\":{\"l\":{\"prefixItems\":[{},{\"type\":\"null\"}]}}}",
     {"[null]", NULL, "[1]", NULL}},
    {"{\"oneOf\":[{\"allOf\":[{\"allOf\":[{\"allOf\":[{\"allOf\":[{\"allOf\":[{\"allOf\":[{"
     "\"allOf\":[{\"allOf\":[{\"allOf\":[{\"allOf\":[{\"type\":\"string\"}]}]}]}]}]}]}]}]}]}]},{"
     "\"type\":\"null\"}]}",
     {"null", "\"a\"", NULL, "1", NULL}},
    {"{\"type\":\"object\",\"oneOf\":[{\"allOf\":[{\"allOf\":[{\"allOf\":[{\"allOf\":[{\"allOf\":[{"
     "\"allOf\":[{\"allOf\":[{\"allOf\":[{\"allOf\":[{\"required\":[\"a\"]}]}]}]}]}]}]}]}]}]},{"
     "\"required\":[\"b\"]}]}",
     {"{\"a\":1}", "{\"b\":1}", NULL, "{}", "{\"a\":1,\"b\":1}", NULL}},
    {"{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"oneOf\":[{\"$ref\":\"#/"
     "definitions/a\"},{\"$ref\":\"#/definitions/"
     "b\"}],\"definitions\":{\"a\":{\"properties\":{\"k\":{\"const\":1}},\"required\":[\"k\"],"
     "\"type\":\"object\"},\"b\":{\"properties\":{\"k\":{\"const\":2}},\"required\":[\"k\"],"
     "\"type\":\"object\"}}}",
     {"{\"k\":1}", "{\"k\":2}", NULL, "{\"k\":3}", "{}", NULL}},
    {"{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"oneOf\":[{\"$ref\":\"#/"
     "definitions/"
     "a\",\"const\":1},{\"type\":\"object\",\"required\":[\"x\"]}],\"definitions\":{\"a\":{"
     "\"properties\":{\"k\":{\"const\":1}},\"required\":[\"k\"],\"type\":\"object\"}}}",
     {"{\"k\":1}", "{\"x\":2}", NULL, "1", "{\"k\":1,\"x\":2}", NULL}},
    {"{\"oneOf\":[{\"$ref\":\"#/$defs/"
     "a\"},{\"properties\":{\"k\":{\"const\":2}},\"required\":[\"k\"],\"type\":\"object\"}],\"$"
     "defs\":{\"a\":{\"properties\":{\"k\":{\"const\":1}},\"required\":[\"k\"],\"type\":\"object\"}"
     "}}",
     {"{\"k\":1}", "{\"k\":2}", NULL, "{}", "{\"k\":3}", NULL}},
    {"{\"oneOf\":[{\"properties\":{\"k\":{\"const\":2}},\"required\":[\"k\"],\"type\":\"object\"},{"
     "\"allOf\":[{\"properties\":{\"k\":{\"const\":1}},\"required\":[\"k\"],\"type\":\"object\"}]}]"
     "}",
     {"{\"k\":1}", "{\"k\":2}", NULL, "{}", NULL}},
    {"{\"oneOf\":[{\"properties\":{\"k\":{\"const\":2}},\"required\":[\"k\"],\"type\":\"object\"},{"
     "\"anyOf\":[{\"properties\":{\"k\":{\"const\":1}},\"required\":[\"k\"],\"type\":\"object\"},{"
     "\"properties\":{\"k\":{\"const\":3}},\"required\":[\"k\"],\"type\":\"object\"}]}]}",
     {"{\"k\":1}", "{\"k\":2}", "{\"k\":3}", NULL, "{}", NULL}},
    {"{\"oneOf\":[{\"type\":\"object\",\"required\":[\"x\",\"k\"],\"properties\":{\"k\":{\"const\":"
     "1}}},{\"type\":\"object\",\"properties\":{\"k\":{\"const\":2}}}]}",
     {"{\"x\":0,\"k\":1}", "{\"k\":2}", "{}", NULL, "{\"k\":1}", NULL}},
    {"{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"k\":{\"const\":1}}},{\"type\":\"object\","
     "\"properties\":{\"k\":{\"const\":2}},\"required\":[\"k\"]}]}",
     {"{}", "{\"k\":1}", "{\"k\":2}", NULL, "{\"k\":3}", NULL}},
    {"{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"k\":{\"const\":1}}},{\"type\":\"object\","
     "\"properties\":{\"k\":{\"const\":2}}}]}",
     {"{\"k\":1}", "{\"k\":2}", NULL, "{}", "{\"k\":3}", NULL}},
    {"{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"k\":{\"type\":\"integer\"}},\"required\":["
     "\"k\"]},{\"type\":\"object\",\"properties\":{\"k\":{\"minimum\":5}},\"required\":[\"k\"]}]}",
     {"{\"k\":1}", "{\"k\":\"a\"}", NULL, "{\"k\":9}", "{}", NULL}},
    {"{\"oneOf\":[{\"type\":\"object\",\"required\":[\"a\"]},{\"type\":\"object\",\"properties\":{"
     "\"a\":{\"type\":\"null\"}},\"additionalProperties\":true}]}",
     {"{\"a\":1}", "{}", NULL, "{\"a\":null}", NULL}},
    {"{\"not\":{\"oneOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]}}",
     {"1", "{}", NULL, "null", "\"a\"", NULL}},
    {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"null\"}],\"unevaluatedItems\":false}",
     {"[]", "[null]", NULL, "[1]", "[null,null]", NULL}},
    {"{\"type\":\"array\",\"items\":{\"type\":\"null\"},\"unevaluatedItems\":false}",
     {"[]", "[null,null]", NULL, "[1]", NULL}},
    {"{\"$schema\":\"https://json-schema.org/draft/2019-09/"
     "schema\",\"type\":\"array\",\"items\":[{\"type\":\"null\"}],\"unevaluatedItems\":{\"const\":"
     "1}}",
     {"[null,1]", NULL, "[1]", "[null,null]", NULL}},
    {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"null\"}],\"items\":{\"const\":1},"
     "\"unevaluatedItems\":false}",
     {"[null,1]", NULL, "[1]", "[null,null]", NULL}},
    {"{\"type\":\"array\",\"unevaluatedItems\":true}", {"[1]", NULL, "1", NULL}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{}},\"unevaluatedProperties\":true}",
     {"{\"b\":1}", NULL, "1", NULL}},
    {"{\"type\":\"object\",\"additionalProperties\":{\"type\":\"null\"},\"unevaluatedProperties\":"
     "false}",
     {"{\"b\":null}", NULL, "{\"b\":1}", NULL}},
    {"{\"enum\":[[1,1]],\"uniqueItems\":false}", {"[1,1]", NULL, "[1]", NULL}},
    {"{\"type\":[\"array\",\"string\"],\"uniqueItems\":true,\"maxItems\":1}",
     {"[]", "[1]", "\"a\"", NULL, "[1,2]", NULL}},
    {"{\"type\":\"string\",\"uniqueItems\":true}", {"\"a\"", NULL, "[]", NULL}},
    {"{\"type\":\"array\",\"minItems\":3,\"items\":{\"enum\":[1,2]},\"not\":{\"prefixItems\":[{"
     "\"const\":1}]}}",
     {"[2,1,1]", NULL, "[1,1,1]", "[2]", NULL}},
    {"{\"type\":\"object\",\"patternProperties\":{\"^a\":{\"type\":\"null\"},\"^(a)\":{\"type\":["
     "\"null\",\"integer\"]},\"b$\":{}},\"additionalProperties\":false}",
     {"{\"a\":null}", "{\"b\":1}", NULL, "{\"a\":1}", "{\"c\":1}", NULL}},
};
enum { N_SCHEMAS = sizeof schemas / sizeof *schemas };

static void keywords(void) {
    for (int i = 0; i < N_SCHEMAS; i++)
        check_texts(schema_of(schemas[i].schema, SCHEMA_CHECKED), schemas[i].schema,
                    schemas[i].texts);
}

static const struct {
    const char *schema, *why;
} invalid_schemas[] = {
    {"{\"properties\":{\"a\":{\"contains\":{}}}}", "#/properties/a: \"contains\""},
    {"{\"items\":{\"type\":\"strnig\"}}", "#/items/type"},
    {"{\"type\":\"array\",\"uniqueItems\":true}", "uniqueItems"},
    {"{\"$ref\":\"#/$defs/x\"}", "$ref"},
    {"{\"$ref\":\"http://example.com/x.json\"}", "$ref"},
    {"{\"$ref\":\"../x\"}", "#/$ref: \"../x\": \".\" and \"..\" are not supported in a path"},
    {"{\"allOf\":[{\"pattern\":\"(\"}]}", "#/allOf/0/pattern"},
    {"{\"oneOf\":[{\"const\":\"a\"},{\"pattern\":\"(\"}]}", "#/oneOf/1/pattern"},
    {"{\"type\":\"string\",\"format\":\"iri\"}", "#/format"},
    {"{\"type\":\"string\",\"minLength\":3,\"maxLength\":2}", "no value fits"},
    {"{\"type\":\"object\",\"required\":[\"a\"],\"properties\":{\"a\":false}}", "no value fits"},
    {"{\"$ref\":\"#/$defs/"
     "n\",\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"n\":{\"$ref\":\"#/$defs/"
     "n\"}},\"required\":[\"n\"]}}}",
     "no value fits"},
    {"{\"not\":{\"type\":\"array\",\"items\":{\"type\":\"integer\"}}}", "items"},
    {"{\"type\":\"number\",\"multipleOf\":0.123456}", "multipleOf"},
    {"{\"type\":\"number\",\"multipleOf\":0}", "multipleOf"},
    {"{\"const\":1e-999999}", "too many digits"},
    {"{\"$ref\":5}", "\"$ref\": expected a string"},
    {"{\"$id\":\"http://a/\",\"items\":{\"$id\":\"b\",\"$ref\":\"#/$defs/"
     "n\"},\"$defs\":{\"n\":{}}}",
     "#/items/$ref: \"#/$defs/n\""},
    {"{\"$ref\":\"#a\",\"items\":{\"$anchor\":\"a\"},\"not\":{\"$anchor\":\"a\"}}", "twice"},
    {"{\"not\":{\"const\":{\"$id\":\"#a\"}},\"$ref\":\"#a\"}", "$ref"},
    {"{\"not\":{\"properties\":{\"a\":5}}}", "#/not/properties/a: expected a schema"},
    {"{\"$ref\":\"#/x\",\"x\":7}", "#/x: expected a schema"},
    {"{\"minLength\":\"3\"}", "minLength"},
    {"{\"required\":true}", "required"},
    {"{\"type\":\"object\",\"minProperties\":2,\"patternProperties\":{\"^a$\":{}},"
     "\"additionalProperties\":false}",
     "minProperties"},
    {"[1", "JSON Schema: byte"},
    {"3", "expected a schema"},
    {"{\"oneOf\":[{\"$ref\":\"#/x\"},{\"type\":\"null\"}]}", "\"#/x\" is not in the schema"},
    {"{\"not\":{\"$ref\":\"#/x\"}}", "\"#/x\" is not in the schema"},
    {"{\"enum\":[1],\"$ref\":\"#/x\"}", "\"#/x\" is not in the schema"},
    {"{\"$schema\":\"http://json-schema.org/draft-07/"
     "schema#\",\"$ref\":\"#q\",\"definitions\":{\"a\":{\"$anchor\":\"q\"}}}",
     "\"#q\" is not in the schema"},
    {"{\"$schema\":\"https://json-schema.org/draft/2019-09/"
     "schema\",\"$ref\":\"#d\",\"$defs\":{\"x\":{\"$dynamicAnchor\":\"d\"}}}",
     "\"#d\" is not in the schema"},
    {"{\"$ref\":\"#/$defs/l/prefixItems/"
     "x\",\"$defs\":{\"l\":{\"title\":\"t\",\"prefixItems\":[{},{}]}}}",
     "is not in the schema"},
    {"{\"$ref\":\"#/$defs/l/prefixItems/"
     "1-\",\"$defs\":{\"l\":{\"title\":\"t\",\"prefixItems\":[{},{}]}}}",
     "is not in the schema"},
    {"{\"$ref\":\"#/$defs/l/prefixItems/"
     "\",\"$defs\":{\"l\":{\"title\":\"t\",\"prefixItems\":[{},{}]}}}",
     "is not in the schema"},
    {"{\"$ref\":\"#/$defs/l/prefixItems/"
     "5\",\"$defs\":{\"l\":{\"title\":\"t\",\"prefixItems\":[{},{}]}}}",
     "is not in the schema"},
    {"{\"$ref\":\"#/$defs/l/prefixItems/"
     "9999999999\",\"$defs\":{\"l\":{\"title\":\"t\",\"prefixItems\":[{},{}]}}}",
     "is not in the schema"},
    {"{\"$ref\":\"#/$defs/l/title/0\",\"$defs\":{\"l\":{\"title\":\"t\"}}}",
     "is not in the schema"},
    {"{\"properties\":{\"a/b~c\":{\"minLength\":\"x\"}}}", "#/properties/a~1b~0c"},
    {"{\"oneOf\":[{\"type\":\"object\",\"required\":[\"a\"]},{\"type\":\"object\","
     "\"patternProperties\":{\"^a$\":{\"type\":\"null\"}},\"additionalProperties\":false}]}",
     "patternProperties"},
    {"{\"oneOf\":[{\"type\":\"object\",\"required\":[\"a\"]},{\"type\":\"object\","
     "\"properties\":{\"a\":{\"const\":1}},\"additionalProperties\":false}]}",
     "additionalProperties"},
    {"{\"minLength\":1.5}", "\"minLength\": expected a whole number"},
    {"{\"anyOf\":[]}", "expected a list of at least one schema"},
    {"{\"multipleOf\":1.234567890123456789}", "with more than 17 digits"},
    {"{\"multipleOf\":4999.5}", "4999.5 is not supported; use at most 5000"},
    {"{\"multipleOf\":10000}", "10000 is not supported; use at most 5000"},
    {"{\"enum\":[1],\"multipleOf\":0}", "expected a number above 0"},
    {"{\"not\":{\"multipleOf\":-1}}", "expected a number above 0"},
    {"{\"type\":\"number\",\"minimum\":0."
     "11111111111111111111111111111111111111111111111111111111111111111111111111111111111111111"
     "11111111111111111111111111111111111111111111111111111111111111111111111111111111111111111"
     "11111111111111111111111111111111111111111111111111111111111111111111111111111111111111111"
     "11111111111111111111111111111111111111111111111111111111111111111111111111111111111111111"
     "111111111111111111111111111111111111111111111}",
     "the bound has too many digits"},
    {"{\"type\":\"number\",\"not\":{\"const\":0."
     "11111111111111111111111111111111111111111111111111111111111111111111111111111111111111111"
     "11111111111111111111111111111111111111111111111111111111111111111111111111111111111111111"
     "11111111111111111111111111111111111111111111111111111111111111111111111111111111111111111"
     "11111111111111111111111111111111111111111111111111111111111111111111111111111111111111111"
     "111111111111111111111111111111111111111111111}}",
     "too many digits"},
    {"{\"type\":\"object\",\"allOf\":[{}],\"unevaluatedProperties\":false}",
     "\"unevaluatedProperties\" beside \"allOf\" is not supported"},
    {"{\"contains\":{},\"unevaluatedItems\":false}", "contains"},
    {"{\"enum\":[[1]],\"contains\":{}}", "contains"},
    {"{\"enum\":[\"a\"],\"pattern\":\"(\"}", "#/pattern"},
    {"{\"enum\":[[1]],\"unevaluatedItems\":false}", "where values are listed"},
    {"{\"type\":\"object\",\"patternProperties\":{\"^a\":{},\"^b\":{},\"^c\":{},\"^d\":{},\"^"
     "e\":{},\"^f\":{},\"^g\":{},\"^h\":{},\"^i\":{},\"^j\":{},\"^k\":{},\"^l\":{},\"^m\":{},"
     "\"^n\":{},\"^o\":{},\"^p\":{},\"^q\":{},\"^r\":{},\"^s\":{},\"^t\":{}}}",
     "patterns are not supported"},
};

static void refused_schemas(void) {
    // Values of a wrong kind.
    static const char *const keywords[] = {"type",
                                           "enum",
                                           "properties",
                                           "required",
                                           "minProperties",
                                           "maxProperties",
                                           "additionalProperties",
                                           "patternProperties",
                                           "propertyNames",
                                           "dependencies",
                                           "dependentRequired",
                                           "dependentSchemas",
                                           "items",
                                           "prefixItems",
                                           "minItems",
                                           "maxItems",
                                           "uniqueItems",
                                           "minLength",
                                           "maxLength",
                                           "pattern",
                                           "format",
                                           "minimum",
                                           "exclusiveMaximum",
                                           "multipleOf",
                                           "allOf",
                                           "anyOf",
                                           "oneOf",
                                           "not",
                                           "if",
                                           "then",
                                           "else",
                                           "$ref",
                                           "$defs",
                                           "definitions",
                                           "$id",
                                           "$anchor",
                                           "unevaluatedItems",
                                           "unevaluatedProperties"};
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
        for (int k = 0; k < 4; k++) {
            static const char *const values[] = {"null", "[[5]]", "{\"type\":[5]}", "-1.5"};
            Error err = {0};
            Buffer text = {0};
            buffer_printf(&text, "{\"anyOf\":[{\"%s\":%s}]}", keywords[i], values[k]);
            Grammar *g = grammar_schema_text(buffer_str(&text), 0, NULL, &err);
            bool is_number = k == 3 && (str_is(str_of(keywords[i]), "minimum") ||
                                        str_is(str_of(keywords[i]), "exclusiveMaximum"));
            bool is_list = k == 1 && str_is(str_of(keywords[i]), "enum");
            CHECK(is_number || is_list ? g != NULL : !g && err.code == EXIT_USAGE, "%s", text.data);
            grammar_free(g), buffer_free(&text);
        }
    for (size_t i = 0; i < sizeof invalid_schemas / sizeof *invalid_schemas; i++) {
        Error err = {0};
        Grammar *g = grammar_schema_text(str_of(invalid_schemas[i].schema), 0, NULL, &err);
        CHECK(!g && err.code == EXIT_USAGE && strstr(err.text, invalid_schemas[i].why), "%s: %s",
              invalid_schemas[i].schema, err.text);
        grammar_free(g);
    }
}

// Texts that are generated, and valid texts that are not.
static void generated_spellings(void) {
    static const struct {
        const char *schema, *texts[12];
    } cases[] = {
        {"{\"type\":\"integer\"}",
         {"0", "7", "-12", NULL, "-0", "1.0", "2.00", "1e2", "1e+16", "01", NULL}},
        {"{\"type\":[\"integer\",\"string\"],\"minimum\":-3}",
         {"0", "-3", NULL, "-0", "1.0", NULL}},
        {"{\"allOf\":[{\"type\":\"number\"},{\"type\":\"integer\",\"multipleOf\":2}]}",
         {"0", "-2", NULL, "-0", "2.0", NULL}},
        {"{\"type\":\"string\",\"format\":\"time\"}",
         {"\"10:00:00.5Z\"", NULL,
          "\"10:00:00.1234567890123456789012345678901234567890123456789012345678901234Z\"", NULL}},
        {"{\"enum\":[1.0,-0.0,20e-1]}", {"1", "0", "2", NULL, "1.0", "-0", "2.0", NULL}},
        {"{\"enum\":[1.50,15e-11,0.00012,1e70]}",
         {"1.5", "1.5e-10", "0.00012", "1e+70", NULL, "1.50", "15e-11", "1.2e-04", NULL}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_texts(schema_of(cases[i].schema, 0), cases[i].schema, cases[i].texts);
}

// Formats with the length limits of their RFCs, and those of generated texts.
static void format_lengths(void) {
    static const struct {
        const char *format, *begin, *middle, *end; // middle is repeated
        int max_length, max_generated;
    } cases[] = {{"hostname", "a", ".b", "", 253, 253},
                 {"email", "a@c", ".b", "", 254, 254},
                 {"email", "", "a", "@b", 66, 66},
                 {"email", "\\\"", "a", "\\\"@b", 66, 66},
                 {"uri", "http://a", "/b", "", 4096, 2048},
                 {"json-pointer", "", "/b", "", 4096, 2048},
                 {"date-time", "2024-01-01T10:00:00.", "0", "Z", 4096, 64},
                 {"duration", "P", "1", "D", 4096, 64}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int k = 0; k < 6; k++) {
            bool is_checked = k < 4, is_negated = k >= 2 && k < 4 && i == 0, is_long = k & 1;
            int max = is_checked ? cases[i].max_length : cases[i].max_generated;
            int n_escapes = cases[i].begin[0] == '\\' ? 2 : 0;
            Buffer schema = {0}, text = {0};
            buffer_printf(&schema, "{\"type\":\"string\",%s{\"format\":\"%s\"}%s}",
                          is_negated ? "\"not\":" : "\"allOf\":[", cases[i].format,
                          is_negated ? "" : "]");
            buffer_printf(&text, "\"%s", cases[i].begin);
            size_t n_end = strlen(cases[i].end) + strlen(cases[i].middle);
            while (text.len - 1 + n_end <= (size_t)(max + n_escapes))
                buffer_puts(&text, cases[i].middle);
            for (int n = is_long && max < 4096 ? 2 : 0; n > 0; n--)
                buffer_puts(&text, cases[i].middle);
            buffer_printf(&text, "%s\"", cases[i].end);
            bool fits = (is_long && max < 4096) == is_negated;
            check_texts(schema_of(schema.data, is_checked ? SCHEMA_CHECKED : 0), schema.data,
                        fits ? TEXTS(text.data, NULL) : TEXTS(NULL, text.data));
            buffer_free(&schema), buffer_free(&text);
        }
}

// The length of an email address multiplies the states of its automaton. A negation that does not
// fit is an error.
static void negated_format(void) {
    Error err = {0};
    const char *schema = "{\"type\":\"string\",\"not\":{\"format\":\"email\"}}";
    Grammar *g = grammar_schema_text(str_of(schema), SCHEMA_CHECKED, NULL, &err);
    CHECK(!g && strstr(err.text, "too complex"), "%s", err.text);
    grammar_free(g);
}

static void unknown_keywords(void) {
    Error err;
    Buffer unknown = {0};
    Grammar *g = grammar_schema_text(str_of("{\"items\":{\"minlength\":2,\"title\":\"x\"}}"), 0,
                                     &unknown, &err);
    CHECK(g && unknown.len && !strcmp(unknown.data, "#/items/minlength"), "%s",
          unknown.len ? unknown.data : "");
    grammar_free(g);
    buffer_free(&unknown);
}

// With is_ordered, only texts with the properties in the schema's order match.
static void ordered_properties(void) {
    Error err;
    const char *schema =
        "{\"type\":\"object\",\"properties\":{\"b\":{},\"a\":{},\"c\":{}},"
        "\"required\":[\"a\"],\"minProperties\":2,\"patternProperties\":{\"^x$\":{}},"
        "\"additionalProperties\":false}";
    Grammar *g = grammar_schema_text(str_of(schema), SCHEMA_ORDERED, NULL, &err);
    CHECK(!g && strstr(err.text, "minProperties"), "%s", err.text);
    schema = "{\"type\":\"object\",\"properties\":{\"b\":{},\"a\":{},\"c\":{}},\"required\":[\"a\"]"
             ",\"minProperties\":2,"
             "\"additionalProperties\":false}";
    check_texts(grammar_schema_text(str_of(schema), SCHEMA_ORDERED, NULL, &err), "ordered",
                TEXTS("{\"b\":1,\"a\":1}", "{\"a\":1,\"c\":1}", "{\"b\":1,\"a\":1,\"c\":1}", NULL,
                      "{\"a\":1}", "{\"a\":1,\"b\":1}", "{\"b\":1,\"c\":1}"));
}

// --- masks

typedef struct {
    const Grammar *g;
    const TokenTable *v;
    Matcher *tables; // shared by all matchers of the test
    const char *what;
} Masks;

// Compares the mask after a text with each token tried alone, byte by byte, after the same text.
static void check_mask(const Masks *t, Matcher *m, Str text) {
    const uint64_t *mask = matcher_mask(m, false);
    uint64_t copy[(N_TOKENS + 63) / 64];
    memcpy(copy, mask, sizeof copy);
    for (int id = 0; id < N_TOKENS; id++) {
        Matcher *one = matcher_new(t->g, t->v, t->tables);
        Str piece = str_of(tokens[id]);
        CHECK(matcher_accept(one, text) == text.len, "%s: %.*s is refused", t->what, SHOWN(text));
        bool fits = piece.len && matcher_accept(one, piece) == piece.len;
        CHECK(fits == (copy[id / 64] >> (id & 63) & 1),
              "%s: after %.*s, the mask has a wrong bit for token '%s'", t->what, SHOWN(text),
              tokens[id]);
        matcher_free(one);
    }
}

// Generates a random text of a constraint. At each byte, checks the mask, and that the text is
// complete or can be continued.
static void check_random_text(const Grammar *g, const char *what, uint64_t *seed) {
    static TokenTable *small, *bytes;
    if (!small) small = small_tokens(), bytes = byte_tokens();
    Masks t = {g, small, matcher_new(g, small, NULL), what};
    Matcher *m = matcher_new(g, small, t.tables), *b = matcher_new(g, bytes, NULL);
    Buffer text = {0};
    for (int n_bytes = 0; n_bytes < 60; n_bytes++) {
        const uint64_t *mask = matcher_mask(b, false);
        int fits[256], n = 0;
        for (int i = 0; i < 256; i++)
            if (mask[i / 64] >> (i & 63) & 1) fits[n++] = i;
        CHECK(n > 0 || matcher_is_end(b), "%s: %s is a dead end", what, text.len ? text.data : "");
        if (!n || (matcher_is_end(b) && test_random(seed) % 4 == 0)) break;
        check_mask(&t, m, buffer_str(&text));
        char one = (char)fits[test_random(seed) % (uint64_t)n];
        buffer_append(&text, &one, 1);
        CHECK(matcher_accept(b, (Str){&one, 1}) == 1 && matcher_accept(m, (Str){&one, 1}) == 1,
              "%s: %s is refused", what, text.data);
    }
    buffer_free(&text);
    matcher_free(m), matcher_free(b), matcher_free(t.tables);
}

static void masks(void) {
    uint64_t seed = 7;
    for (int i = 0; i < N_SCHEMAS; i++) {
        Grammar *g = schema_of(schemas[i].schema, SCHEMA_CHECKED);
        for (int k = 0; g && k < 3; k++) check_random_text(g, schemas[i].schema, &seed);
        grammar_free(g);
    }
    Grammar *g = grammar_of("root ::= a (\",\" a)*\na ::= [^\\x00-\\x1f,]{1,3} | \"\\u20ac\" \"(\" "
                            "a \")\" | \"{\\\"\"\n");
    for (int k = 0; g && k < 10; k++) check_random_text(g, "grammar", &seed);
    grammar_free(g);
    g = regex_of("([a-z]+ [^ ]*\\n)+|\"[^\"]{0,5}\"|\xc3\xa9+");
    for (int k = 0; g && k < 10; k++) check_random_text(g, "regex", &seed);
    grammar_free(g);
}

// skips_space: the space that SentencePiece puts before a text is not part of the text.
static void skipped_space(void) {
    static const Str pieces[] = {{" {", 2}, {"{", 1}, {" ", 1}, {" x", 2}};
    TokenTable *v = token_table_new(pieces, 4);
    Grammar *g = schema_of("{\"type\":\"object\"}", 0);
    Matcher *m = matcher_new(g, v, NULL);
    CHECK(matcher_mask(m, false)[0] == 2, "%llx", (unsigned long long)matcher_mask(m, false)[0]);
    CHECK(matcher_mask(m, true)[0] == 3, "%llx", (unsigned long long)matcher_mask(m, true)[0]);
    matcher_free(m), grammar_free(g), token_table_free(v);
}

// Text that must come next: the rest of a property name, and of a constant.
static void forced_text(void) {
    TokenTable *v = small_tokens();
    Grammar *g = schema_of(
        "{\"type\":\"object\",\"properties\":{\"name\":{\"const\":\"ab\"}},\"required\":[\"name\"],"
        "\"additionalProperties\":false}",
        0);
    Matcher *m = matcher_new(g, v, NULL);
    Buffer out = {0};
    matcher_accept(m, str_of("{\"n"));
    matcher_forced(m, &out);
    CHECK(out.len == 5 && !strcmp(out.data, "ame\":"), "%s", out.len ? out.data : "");
    matcher_accept(m, str_of("ame\": \"a"));
    out.len = 0;
    matcher_forced(m, &out);
    CHECK(out.len == 3 && !memcmp(out.data, "b\"}", 3), "%s", out.data);
    buffer_free(&out), matcher_free(m), grammar_free(g), token_table_free(v);
}

// The machine's tables are full and flushed repeatedly; masks stay correct.
static void flushes(void) {
    Grammar *g = grammar_of("root ::= x*\nx ::= \"a\" x \"b\" | \"q\" x \"c\" | [d-z]\n");
    TokenTable *v = small_tokens();
    Matcher *m = matcher_new(g, v, NULL), *other = matcher_new(g, v, m);
    Buffer text = {0};
    for (int i = 0; i < 200; i++) buffer_puts(&text, "a");
    buffer_puts(&text, "z");
    matcher_accept(other, str_of("aaz"));
    for (int i = 0; i < 60; i++) {
        Matcher *deep = matcher_new(g, v, m);
        CHECK(matcher_accept(deep, buffer_str(&text)) == text.len, "%s is refused", text.data);
        matcher_mask(deep, false);
        matcher_free(deep);
    }
    const uint64_t *mask = matcher_mask(other, false);
    int b = 25, a = 24;
    CHECK(!strcmp(tokens[b], "b") && mask[0] >> b & 1 && !(mask[0] >> a & 1), "%llx",
          (unsigned long long)mask[0]);
    buffer_free(&text), matcher_free(m), matcher_free(other), grammar_free(g), token_table_free(v);
}

// --- constraints of a tokenizer's texts

typedef struct {
    Buffer file;
    Gguf gguf;
    Tokenizer *tokenizer;
    ConstraintCache *cache;
    ConstraintState *state;
    Request request;
} Constrained;

// Begins a text of a constraint after these prompt tokens. [is_sentencepiece]: opened once.
static Constrained *begin_text(bool is_sentencepiece, ConstraintSpec spec, const int *prompt,
                               int n_prompt) {
    static Constrained all[2];
    Constrained *c = &all[is_sentencepiece];
    Error err;
    if (!c->cache) {
        c->file = make_llama_file(
            (MakeLlama){.is_sentencepiece = is_sentencepiece, .is_vocabulary_only = true});
        if (!gguf_parse(&c->gguf, c->file.data, c->file.len, "small", &err)) die_error(&err);
        c->tokenizer = tokenizer_open(&c->gguf, &err);
        if (!c->tokenizer) die_error(&err);
        c->cache = constraint_cache_new(c->tokenizer);
    }
    constraint_free(c->state);
    CHECK(constraint_new(c->cache, &spec, &c->state, NULL, &err), "%s", err.text);
    c->request = (Request){.prompt = prompt, .n_prompt = n_prompt};
    constraint_attach(c->state, &c->request);
    return c;
}

// The last token with exactly these bytes.
static int token_of(const Constrained *c, const char *text) {
    int id = tokenizer_n_vocab(c->tokenizer) - 1;
    while (id > 0 && !str_is(tokenizer_piece(c->tokenizer, id, false), text)) id--;
    CHECK(id, "\"%s\" is no token", text);
    return id;
}

static bool allows(const Constrained *c, int id) {
    static float logits[1024];
    memset(logits, 0, sizeof logits);
    c->request.constraint->mask(c->request.constraint->arg, logits);
    return logits[id] == 0;
}

// Checks that `good`, but no token of `bad`, may come next. Tokens are single bytes.
static void check_next(const Constrained *c, const char *good, const char *bad) {
    for (const char *s = good; *s; s++)
        CHECK(allows(c, token_of(c, (char[]){*s, 0})), "'%c' is not allowed", *s);
    for (const char *s = bad; *s; s++)
        CHECK(!allows(c, token_of(c, (char[]){*s, 0})), "'%c' is allowed", *s);
}

static void accept_bytes(const Constrained *c, const char *text) {
    for (const char *s = text; *s; s++)
        c->request.constraint->accept(c->request.constraint->arg, token_of(c, (char[]){*s, 0}));
}

// With may_think, the constrained text may follow <think>...</think> and at most two white spaces.
static void reasoning(void) {
    ConstraintSpec spec = {.regex = str_of("[0-9]{2}"), .may_think = true};
    Constrained *c = begin_text(false, spec, NULL, 0);
    int eos = tokenizer_eos(c->tokenizer);
    check_next(c, "<1", "ta>/ ");
    accept_bytes(c, "<");
    check_next(c, "t", "1<h");
    CHECK(allows(c, token_of(c, "th")) && !allows(c, token_of(c, "the")), "parts of <think>");
    accept_bytes(c, "think>");
    check_next(c, "1a< \n", "");
    CHECK(!allows(c, eos) && !constraint_is_complete(c->state), "the end inside the reasoning");
    accept_bytes(c, "so it is 42 or 43, which follows </think from <this and that");
    check_next(c, "1a< \n", "");
    accept_bytes(c, "</think>");
    check_next(c, "1 \n", "a<");
    accept_bytes(c, "\n");
    check_next(c, "\n", "a<");
    accept_bytes(c, "\n");
    check_next(c, "", " \na<");
    accept_bytes(c, "1");
    CHECK(!allows(c, eos), "the end after one digit");
    accept_bytes(c, "2");
    check_next(c, "", "3 <");
    CHECK(allows(c, eos) && constraint_matches(c->state, str_of("12")), "the end");

    begin_text(false, spec, NULL, 0);
    accept_bytes(c, "12"); // without reasoning
    CHECK(constraint_is_complete(c->state), "12");

    static const char prompt[] = "a prompt of more than sixteen tokens <think>\n ";
    Ids ids = {0};
    tokenizer_encode(c->tokenizer, (Str){prompt, sizeof prompt - 1}, false, &ids);
    begin_text(false, spec, ids.data, ids.len);
    check_next(c, "1a<", "");
    CHECK(c->request.constraint->force(c->request.constraint->arg, (int[64]){0}) == 0, "forced");
    begin_text(false, spec, ids.data, ids.len - 4);
    check_next(c, "1<", "a");
    free(ids.data);
}

// Forced tokens are those of the tokenizer for the forced text, without the last one. The first
// token of a SentencePiece text may have a space that is not part of the text.
static void forced_tokens(void) {
    ConstraintSpec spec = {.regex = str_of("the (the )+erin!")};
    for (int is_spm = 0; is_spm < 2; is_spm++)
        for (int n_prompt = 0; n_prompt < 3; n_prompt += 2) {
            Constrained *c = begin_text(is_spm, spec, (int[]){1, 1}, n_prompt);
            const Constraint *hook = c->request.constraint;
            bool drops_space = is_spm && !n_prompt;
            int forced[64], n = hook->force(hook->arg, forced), the = token_of(c, " the");
            CHECK(allows(c, the) == drops_space && allows(c, token_of(c, "th")), "%d", is_spm);
            CHECK(drops_space ? n == 0 : n > 0, "%d forced tokens", n);
            Buffer text = {0};
            for (int i = 0; i < n; i++)
                buffer_put(&text, tokenizer_piece(c->tokenizer, forced[i], false));
            CHECK(str_begins_with(str_of("the the "), text.len ? text.data : ""), "%s", text.data);
            buffer_free(&text);
            hook->accept(hook->arg, drops_space ? the : token_of(c, "the"));
            check_next(c, " ", "etr");
            hook->accept(hook->arg, the);
            accept_bytes(c, " e");
            n = hook->force(hook->arg, forced);
            CHECK(n >= 0 && n < 4, "%d tokens after e", n);
            accept_bytes(c, "rin!");
            CHECK(hook->force(hook->arg, forced) == -1 && constraint_is_complete(c->state), "end");
        }
}

// More constraints than the cache keeps; each is compiled again and correct.
static void many_constraints(void) {
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 80; i++) {
            char pattern[16], text[16];
            snprintf(pattern, sizeof pattern, "a{%d}b", i);
            memset(text, 'a', sizeof text);
            text[i % 14] = 'b', text[i % 14 + 1] = 0;
            Constrained *c = begin_text(false, (ConstraintSpec){.regex = str_of(pattern)}, NULL, 0);
            CHECK(constraint_matches(c->state, str_of(text)) == (i < 14), "%s: %s", pattern, text);
            CHECK(!constraint_matches(c->state, str_of("ba")), "%s", pattern);
        }
}

void test_constrain(void) {
    test_case("constrain_regex", regexes);
    test_case("constrain_regex_errors", regex_errors);
    test_case("constrain_grammars", grammars);
    test_case("constrain_grammar_errors", grammar_errors);
    test_case("constrain_choices", choices);
    test_case("constrain_keywords", keywords);
    test_case("constrain_generated_spellings", generated_spellings);
    test_case("constrain_format_lengths", format_lengths);
    test_case("constrain_refused_schemas", refused_schemas);
    test_case("constrain_negated_format", negated_format);
    test_case("constrain_unknown_keywords", unknown_keywords);
    test_case("constrain_ordered_properties", ordered_properties);
    test_case("constrain_masks", masks);
    test_case("constrain_skipped_space", skipped_space);
    test_case("constrain_forced_text", forced_text);
    test_case("constrain_flushes", flushes);
    test_case("constrain_reasoning", reasoning);
    test_case("constrain_forced_tokens", forced_tokens);
    test_case("constrain_many_constraints", many_constraints);
}
