// The JSON parser against the grammar, on valid, invalid and random texts, and the writer against
// the parser.
#include "base/json.h"
#include "base/clock.h"
#include "tests/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// Parses a copy in memory of exactly its size, so that a sanitizer finds reads beyond the end.
static bool parse_copy(JsonDoc *doc, const char *text, size_t n, Error *err) {
    char *copy = malloc(n ? n : 1);
    memcpy(copy, text, n);
    bool ok = json_parse(doc, copy, n, err);
    free(copy);
    CHECK(ok || (err->code == EXIT_RUNTIME && !strncmp(err->text, "byte ", 5)), "%s", err->text);
    CHECK(ok == (doc->root != NULL), "root");
    return ok;
}

static void valid_texts(void) {
    static const char text[] =
        " {\"a\" : [1, -2.5e-3, true,false ,null,\"x\\n\\u20ac\\ud83d\\ude00\\u0000\\/\"],\r\n"
        "\t\"b\":{}, \"\":[], \"\\u0061b\":{\"a\":0}}\n";
    JsonDoc doc = {0};
    Error e = {0};

    CHECK(parse_copy(&doc, text, sizeof text - 1, &e), "%s", e.text);

    const Json *a = json_get(doc.root, "a");
    const Json *item = a ? a->child : NULL;
    CHECK(doc.root && doc.root->kind == JSON_OBJECT && doc.root->n_items == 4 && a &&
              a->n_items == 6,
          "shape");
    if (!item || a->n_items != 6) return;

    // Items of an array.
    CHECK(item->kind == JSON_NUMBER && item->number == 1, "1");
    item = item->next;
    CHECK(item->number == -2.5e-3, "%g", item->number);
    item = item->next;
    CHECK(item->kind == JSON_BOOL && item->boolean && !item->next->boolean, "bools");
    item = item->next->next;
    CHECK(item->kind == JSON_NULL && item->next->kind == JSON_STRING && !item->next->next, "null");

    static const char want[] = "x\n\xe2\x82\xac\xf0\x9f\x98\x80\0/";
    CHECK(str_eq(item->next->string, (Str){want, sizeof want - 1}), "string of %zu",
          item->next->string.len);

    // Members of an object.
    CHECK(json_get(doc.root, "b")->kind == JSON_OBJECT && json_get(doc.root, "b")->n_items == 0,
          "b");
    CHECK(json_get(doc.root, "")->kind == JSON_ARRAY && json_get(json_get(doc.root, "ab"), "a"),
          "keys");
    CHECK(!json_get(doc.root, "c") && !json_get(NULL, "a") && !json_get(a, "a"), "absent");

    // No beginning of the text is complete.
    for (size_t n = 0; n + 2 < sizeof text; n++)
        CHECK(!parse_copy(&doc, text, n, &e), "%zu bytes", n);

    static const char *const scalars[] = {"0",      "-0", "1E+2",  "\"\"",  "null",
                                          " true ", "[]", "0.5e0", "1e-999"};
    for (size_t i = 0; i < sizeof scalars / sizeof *scalars; i++)
        CHECK(parse_copy(&doc, scalars[i], strlen(scalars[i]), &e), "%s: %s", scalars[i], e.text);

    json_free(&doc);
}

static void invalid_texts(void) {
    static const struct {
        const char *text, *message;
    } invalid[] = {
        {"", "byte 0: expected ... found the end"},
        {"[1,]", "byte 3: expected ... found ']'"},
        {"[1 2]", "byte 3: expected ',' or ']', found '2'"},
        {"{\"a\":1,}", "byte 7: expected a quoted key"},
        {"{\"a\" 1}", "byte 5: expected ':'"},
        {"{a:1}", "a quoted key"},
        {"[1}", "',' or ']'"},
        {"1 1", "byte 2: expected the end"},
        {"[]]", "the end"},
        {"// x\n1", "a JSON value"},
        {"'x'", "a JSON value"},
        {"NaN", "a JSON value"},
        {"-Infinity", "a digit"},
        {"+1", "a JSON value"},
        {"01", "byte 1: expected the end"},
        {"1.", "a digit"},
        {".5", "a JSON value"},
        {"1e", "a digit"},
        {"-", "a digit"},
        {"0x10", "the end"},
        {"1e999", "byte 0: expected a number that fits a double"},
        {"-1e99999999999999999999", "fits a double"},
        {"tru", "a JSON value"},
        {"nulll", "the end"},
        {"\"a\nb\"", "byte 2: expected ... found byte 0x0a"},
        {"\"\\x\"", "after a backslash"},
        {"\"\\u12g4\"", "a hexadecimal digit"},
        {"\"\\u12", "a hexadecimal digit"},
        {"\"\\ud800\"", "byte 1: expected a surrogate pair"},
        {"\"\\udc00\"", "a surrogate pair"},
        {"\"\\ud800\\n\"", "a surrogate pair"},
        {"\"\\ud800\\ud800\"", "a surrogate pair"},
        {"\"\\ud800\\u0041\"", "a surrogate pair"},
        {"\"\xff\"", "byte 1: expected ... found byte 0xff"},
        {"\"\xed\xa0\x80\"", "valid UTF-8"},
        {"\"\xc0\xaf\"", "valid UTF-8"},
        {"\"\xf4\x90\x80\x80\"", "valid UTF-8"},
        {"\"\xe2\x82\"", "valid UTF-8"},
        {"\xef\xbb\xbf{}", "byte 0: expected ... found byte 0xef"},
        {"{\"a\":1,\"b\":2,\"a\":3}", "byte 14: duplicate key \"a\""},
        {"{\"ab\":1,\"a\\u0062\":2}", "duplicate key"},
        {"[{\"a\":{\"x\":1,\"x\":1}}]", "duplicate key"},
    };

    JsonDoc doc = {0};
    Error e = {0};

    for (size_t i = 0; i < sizeof invalid / sizeof *invalid; i++) {
        CHECK(!parse_copy(&doc, invalid[i].text, strlen(invalid[i].text), &e), "%s: accepted",
              invalid[i].text);
        CHECK(test_matches(e.text, invalid[i].message), "%s: %s", invalid[i].text, e.text);
    }
    CHECK(!parse_copy(&doc, "\"a\0\"", 4, &e) &&
              test_matches(e.text, "an escaped control character"),
          "%s", e.text);

    CHECK(!parse_copy(&doc, "[1\0]", 4, &e), "NUL");
    json_free(&doc);
}

static void nesting_limit(void) {
    JsonDoc doc = {0};
    Error e = {0};
    Buffer text = {0};

    for (int n = 63; n <= 66; n++) {
        text.len = 0;
        for (int i = 0; i < n; i++) buffer_puts(&text, "[");
        for (int i = 0; i < n; i++) buffer_puts(&text, "]");
        CHECK(parse_copy(&doc, text.data, text.len, &e) == (n <= 64), "%d levels: %s", n, e.text);
    }

    text.len = 0;
    for (int i = 0; i < 1000000; i++) buffer_puts(&text, i % 2 ? "{\"a\":" : "[");
    CHECK(!parse_copy(&doc, text.data, text.len, &e) && strstr(e.text, "at most 64 levels"), "%s",
          e.text);
    json_free(&doc);
    buffer_free(&text);
}

static void large_texts(void) {
    JsonDoc doc = {0};
    Error e = {0};
    Buffer text = {0};

    double start = now_sec();

    // Keys.
    buffer_puts(&text, "{");
    for (int i = 0; i < 200000; i++) buffer_printf(&text, "\"key%d\":%d,", i, i);
    size_t n = text.len;
    buffer_puts(&text, "\"last\":1}");
    CHECK(parse_copy(&doc, text.data, text.len, &e) && doc.root->n_items == 200001, "%s", e.text);

    text.len = n;
    buffer_puts(&text, "\"key4711\":1}");
    CHECK(!parse_copy(&doc, text.data, text.len, &e) && strstr(e.text, "duplicate key \"key4711\""),
          "%s", e.text);

    // A long string.
    text.len = 0;
    buffer_puts(&text, "\"");
    for (int i = 0; i < 1 << 20; i++) buffer_puts(&text, ",[{");
    buffer_puts(&text, "\"");
    CHECK(parse_copy(&doc, text.data, text.len, &e) && doc.root->string.len == 3 << 20, "%s",
          e.text);

    // Comparing all pairs of keys takes a minute.
    CHECK(now_sec() - start < 20, "%g s", now_sec() - start);
    json_free(&doc);
    buffer_free(&text);
}

// Counts the nodes of a tree and the bytes of its strings.
static size_t count_tree(const Json *v, size_t *bytes) {
    size_t n = 1;
    *bytes += v->string.len + v->key.len;
    for (const Json *j = v->child; j; j = j->next) n += count_tree(j, bytes);
    return n;
}

// Random sequences of JSON tokens. A parsed value has no more nodes and bytes than its text.
static void random_texts(void) {
    static const char *const pieces[] = {"[",      "]",
                                         "{",      "}",
                                         ",",      ":",
                                         "\"a\"",  "\"b\"",
                                         "\"\\\"", "\"\\ud83d\\ude00\"",
                                         "1",      "-0.5e3",
                                         "true",   "null",
                                         " ",      "\\",
                                         "\"",     "\xe2\x82\xac",
                                         "\xff",   "\\u0000"};
    JsonDoc doc = {0};
    Error e = {0};
    uint64_t random = 3;
    int n_valid = 0;

    for (int i = 0; i < 100000; i++) {
        Buffer text = {0};
        for (uint64_t n = 1 + test_random(&random) % 8; n; n--)
            buffer_puts(&text, pieces[test_random(&random) % (sizeof pieces / sizeof *pieces)]);

        size_t bytes = 0;
        if (parse_copy(&doc, text.data, text.len, &e)) {
            n_valid++;
            CHECK(count_tree(doc.root, &bytes) <= text.len && bytes <= text.len, "%s", text.data);
        }
        buffer_free(&text);
    }

    CHECK(n_valid > 1000, "%d", n_valid);
    json_free(&doc);
}

static void written_strings(void) {
    static const char all[] = "a\"b\\\n\r\t\b\f\x01\x1f\x7f\0/\xc2\x9b\xe2\x82\xac\xf0\x9f\x98\x80";
    JsonDoc doc = {0};
    Error e = {0};
    Buffer out = {0};

    // Escaped characters.
    json_quote(&out, (Str){all, sizeof all - 1});
    CHECK(!strcmp(out.data, "\"a\\\"b\\\\\\n\\r\\t\\b\\f\\u0001\\u001f\\u007f\\u0000/"
                            "\\u009b\xe2\x82\xac\xf0\x9f\x98\x80\""),
          "%s", out.data);
    CHECK(parse_copy(&doc, out.data, out.len, &e) &&
              str_eq(doc.root->string, (Str){all, sizeof all - 1}),
          "%s", e.text);

    // Bytes that are not UTF-8 become U+FFFD.
    out.len = 0;
    json_quote(&out, str_of("a\xff\xe2\x82z"));
    CHECK(!strcmp(out.data, "\"a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz\""), "%s", out.data);

    // Random bytes give valid JSON.
    uint64_t random = 5;
    for (int i = 0; i < 20000; i++) {
        char bytes[12];
        for (size_t k = 0; k < sizeof bytes; k++) bytes[k] = (char)test_random(&random);
        out.len = 0;
        json_quote(&out, (Str){bytes, sizeof bytes});
        CHECK(parse_copy(&doc, out.data, out.len, &e), "%s", e.text);
    }

    json_free(&doc);
    buffer_free(&out);
}

static void written_numbers(void) {
    static const struct {
        double x;
        const char *text;
    } known[] = {{0, "0"},
                 {1, "1"},
                 {-1, "-1"},
                 {0.1, "0.1"},
                 {100, "100"},
                 {1e15, "1000000000000000"},
                 {-2.5, "-2.5"},
                 {1e300, "1e+300"},
                 {5e-324, "5e-324"},
                 {0.30000000000000004, "0.30000000000000004"},
                 {9007199254740991, "9007199254740991"},
                 {INFINITY, "null"},
                 {NAN, "null"},
                 {1.7976931348623157e308, "1.7976931348623157e+308"}};

    JsonDoc doc = {0};
    Error e = {0};
    Buffer out = {0};

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        out.len = 0;
        json_write_number(&(JsonWriter){.out = &out}, NULL, known[i].x);
        CHECK(!strcmp(out.data, known[i].text), "%s", out.data);
    }

    // All bit patterns of finite numbers.
    uint64_t random = 9;
    for (int i = 0; i < 50000; i++) {
        uint64_t bits = test_random(&random);
        double x;
        memcpy(&x, &bits, sizeof x);
        if (!isfinite(x)) continue;

        out.len = 0;
        json_write_number(&(JsonWriter){.out = &out}, NULL, x);
        CHECK(parse_copy(&doc, out.data, out.len, &e) && doc.root->number == x, "%s: %s", out.data,
              e.text);
    }

    json_free(&doc);
    buffer_free(&out);
}

static bool write_null_as_one(Buffer *out, const Json *v) {
    if (v->kind == JSON_NULL) buffer_puts(out, "1");
    return v->kind == JSON_NULL;
}

static void writer(void) {
    static const char text[] =
        "{\"a\": [1, null, {}, [ ], \"x\"], \"b\\n\": {\"c\": true, \"d\": 1e3}}";
    JsonDoc doc = {0};
    Error e = {0};
    Buffer out = {0};
    JsonWriter w = {.out = &out};
    CHECK(parse_copy(&doc, text, sizeof text - 1, &e), "%s", e.text);

    // Every function, in an object.
    json_begin_object(&w, NULL);
    json_write_null(&w, "null");
    json_write_bool(&w, "bool", true);
    json_write_int(&w, "int", INT64_MIN);
    json_begin_array(&w, "items");
    json_write_number(&w, NULL, 0.1);
    json_write_number(&w, NULL, NAN);
    json_begin_object(&w, NULL);
    json_end_object(&w);
    json_begin_array(&w, NULL);
    json_end_array(&w);
    json_write_string(&w, NULL, str_of("\""));
    json_end_array(&w);

    json_write_key(&w, str_of("\t"));
    json_write_format(&w, NULL, "%.3f", 1.0);
    json_write_value(&w, "same", doc.root, NULL);
    json_write_value(&w, "other", doc.root, write_null_as_one);
    json_end_object(&w);

    CHECK(!strcmp(out.data, "{\"null\":null,\"bool\":true,\"int\":-9223372036854775808,"
                            "\"items\":[0.1,null,{},[],\"\\\"\"],\"\\t\":1.000,"
                            "\"same\":{\"a\":[1,null,{},[],\"x\"],\"b\\n\":{\"c\":true,\"d\":1e3}},"
                            "\"other\":{\"a\":[1,1,{},[],\"x\"],\"b\\n\":{\"c\":true,\"d\":1e3}}}"),
          "%s", out.data);

    json_free(&doc);
    buffer_free(&out);
}

void test_json(void) {
    test_case("json: valid texts", valid_texts);
    test_case("json: invalid texts", invalid_texts);
    test_case("json: nesting limit", nesting_limit);
    test_case("json: large texts in linear time", large_texts);
    test_case("json: random texts", random_texts);
    test_case("json: writer", writer);
    test_case("json: written strings read back", written_strings);
    test_case("json: written numbers read back", written_numbers);
}
