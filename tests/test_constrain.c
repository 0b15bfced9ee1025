// Constraints: which texts they accept, which sources they refuse, and token masks compared with
// every token tried alone.
//
// The cases are the rows of tests/constrain_cases.jsonl. A row has a source: "schema" (JSON, or a
// string with the text of a schema), "regex" or "grammar". It also has
//     "accepts", "refuses": texts that match, and texts that do not; or
//     "fails": texts for which a schema does not hold, each with the pattern (test_matches) of the
//     reason; or
//     "says": the pattern of the error for an invalid source.
// A schema also holds for the texts that it "accepts", and does not hold for those that it
// "refuses". It holds for texts in "valid", but does not generate them. It does not hold for texts
// in "unenforced", which its grammar has. "mode" is the mode in which a schema is compiled:
// "ordered", "closed", "checked" or "closed checked"; otherwise properties have any order, and
// objects are open. In a row with "keywords", each of "wrong_values" must be refused as the value
// of each keyword.
#include "base/files.h"
#include "base/json.h"
#include "base/signals.h"
#include "constrain/constrain.h"
#include "constrain/constraint.h"
#include "constrain/regex.h"
#include "tests/make_gguf.h"
#include "tests/test.h"

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
                                     "\":{\"a\":1},\"",
                                     "bcbcbcbcbcbcbcbcbcbcbcbcbcbcbcbcbcbcbcbc"};
enum { N_TOKENS = sizeof tokens / sizeof *tokens };

static const TokenTable *small_tokens(void) {
    static Str pieces[N_TOKENS];
    static const TokenTable *table;
    for (int i = 0; i < N_TOKENS; i++) pieces[i] = str_of(tokens[i]);
    if (!table) table = token_table_new(pieces, N_TOKENS);
    return table;
}

static const TokenTable *byte_tokens(void) {
    static char bytes[256];
    static Str pieces[256];
    static const TokenTable *table;
    for (int i = 0; i < 256; i++) {
        bytes[i] = (char)i;
        pieces[i] = (Str){bytes + i, 1};
    }
    if (!table) table = token_table_new(pieces, 256);
    return table;
}

static bool accepts(const Grammar *g, Str text) {
    Matcher *m = matcher_new(g, small_tokens(), NULL);
    bool ok = matcher_accept(m, text) == text.len && matcher_is_end(m);
    matcher_free(m);
    return ok;
}

static Grammar *schema_of(const char *text, unsigned modes) {
    Error err;
    Grammar *g = grammar_schema_text(str_of(text), NULL, modes, NULL, &err);
    CHECK(g, "%s: %s", text, err.text);
    return g;
}

// The rows of tests/constrain_cases.jsonl.

typedef struct {
    Str line;         // text of the row
    const char *kind; // "schema", "regex" or "grammar"
    const Json *row, *source;
} Case;

// Calls `check` for all rows that have members with the names `kind` and `expected`.
static void for_each_case(const char *kind, const char *expected, void (*check)(const Case *c)) {
    static const char path[] = "tests/constrain_cases.jsonl";
    Buffer file = {0};
    JsonDoc doc = {0};
    Error err;
    int n = 0;

    if (!file_read(path, &file, &err)) {
        test_fail(__FILE__, __LINE__, "%s", err.text);
        return;
    }

    for (size_t at = 0, len; at < file.len; at += len + 1) {
        const char *begin = file.data + at;
        const char *end = memchr(begin, '\n', file.len - at);
        len = end ? (size_t)(end - begin) : file.len - at;

        Str line = {begin, len};
        bool is_json = json_parse(&doc, begin, len, &err);
        CHECK(is_json, "%s: %.*s: %s", path, SHOWN(line), err.text);
        if (!is_json) break;
        const Json *source = json_get(doc.root, kind);
        if (!source || !json_get(doc.root, expected)) continue;

        check(&(Case){line, kind, doc.root, source});
        n++;
    }

    CHECK(n > 0, "%s: no row with \"%s\" and \"%s\"", path, kind, expected);
    json_free(&doc);
    buffer_free(&file);
}

static Grammar *case_grammar(const Case *c, unsigned modes, Error *err) {
    if (!strcmp(c->kind, "regex")) return grammar_regex(c->source->string, err);
    if (!strcmp(c->kind, "grammar")) return grammar_gbnf(c->source->string, err);
    bool is_text = c->source->kind == JSON_STRING;
    return is_text ? grammar_schema_text(c->source->string, NULL, modes, NULL, err)
                   : grammar_schema(c->source, NULL, modes, NULL, err);
}

static unsigned case_modes(const Case *c) {
    const Json *mode = json_get(c->row, "mode");
    if (!mode) return 0;
    if (json_is(mode, "ordered")) return SCHEMA_ORDERED;
    if (json_is(mode, "checked")) return SCHEMA_CHECKED;
    if (json_is(mode, "closed checked")) return SCHEMA_CLOSED | SCHEMA_CHECKED;
    CHECK(json_is(mode, "closed"), "%.*s: unknown mode", SHOWN(c->line));
    return SCHEMA_CLOSED;
}

// The validator of a case; NULL unless its source is a schema.
static SchemaValidator *case_validator(const Case *c) {
    Buffer schema = {0};
    Error err;
    if (strcmp(c->kind, "schema") != 0) return NULL;
    json_write_value(&(JsonWriter){.out = &schema}, NULL, c->source, NULL);
    SchemaValidator *v = validator_new(buffer_str(&schema), &err);
    CHECK(v, "%.*s: %s", SHOWN(c->line), err.text);
    buffer_free(&schema);
    return v;
}

// Returns the number of texts of a list.
static int check_list(const Case *c, const Grammar *g, SchemaValidator *v, const char *list,
                      bool is_accepted, bool is_valid) {
    const Json *texts = json_get(c->row, list);
    Error why = {0};
    for (const Json *text = texts ? texts->child : NULL; text; text = text->next) {
        CHECK(accepts(g, text->string) == is_accepted, "%.*s: %s: %.*s", SHOWN(c->line), list,
              SHOWN(text->string));
        CHECK(!v || validator_check(v, text->string, &why) == is_valid, "%.*s: %s: %.*s: %s",
              SHOWN(c->line), list, SHOWN(text->string), why.text);
    }
    return texts ? texts->n_items : 0;
}

static void check_texts(const Case *c) {
    Error err;
    Grammar *g = case_grammar(c, case_modes(c), &err);
    CHECK(g, "%.*s: %s", SHOWN(c->line), err.text);
    if (!g) return;

    SchemaValidator *v = case_validator(c);
    int n = check_list(c, g, v, "accepts", true, true);
    n += check_list(c, g, v, "valid", false, true);
    n += check_list(c, g, v, "refuses", false, false);
    int n_unenforced = check_list(c, g, v, "unenforced", true, false);
    CHECK(!n_unenforced || g->unenforced.len, "%.*s: no note", SHOWN(c->line));
    n += n_unenforced;
    CHECK(n > 0, "%.*s: no texts", SHOWN(c->line));
    if (v) validator_free(v);
    grammar_free(g);
}

static void check_failures(const Case *c) {
    SchemaValidator *v = case_validator(c);
    const Json *texts = json_get(c->row, "fails");
    for (const Json *text = texts->child; v && text; text = text->next) {
        Error why = {0};
        Buffer pattern = {0};
        buffer_put(&pattern, text->string);
        CHECK(!validator_check(v, text->key, &why), "%.*s: valid", SHOWN(text->key));
        CHECK(test_matches(why.text, pattern.data), "%.*s: %s", SHOWN(text->key), why.text);
        buffer_free(&pattern);
    }
    if (v) validator_free(v);
}

static void check_refusal(const Case *c) {
    Error err = {0};
    Grammar *g = case_grammar(c, case_modes(c), &err);
    const Json *says = json_get_string(c->row, "says");
    Buffer pattern = {0};
    if (says) buffer_put(&pattern, says->string);
    CHECK(!g && err.code == EXIT_USAGE && pattern.len && test_matches(err.text, pattern.data),
          "%.*s: %s", SHOWN(c->line), g ? "not refused" : err.text);
    grammar_free(g);
    buffer_free(&pattern);
}

static void regexes(void) { for_each_case("regex", "accepts", check_texts); }
static void grammars(void) { for_each_case("grammar", "accepts", check_texts); }
static void schemas(void) { for_each_case("schema", "accepts", check_texts); }
static void failures(void) { for_each_case("schema", "fails", check_failures); }

static void regex_errors(void) {
    Error err = {0};
    for_each_case("regex", "says", check_refusal);
    CHECK(!grammar_regex((Str){"\xff", 1}, &err) && strstr(err.text, "invalid UTF-8"), "%s",
          err.text);
}

static void grammar_errors(void) { for_each_case("grammar", "says", check_refusal); }
static void refused_schemas(void) { for_each_case("schema", "says", check_refusal); }

static void check_wrong_values(const Case *c) {
    const Json *values = json_get(c->row, "wrong_values");
    for (const Json *keyword = c->source->child; keyword; keyword = keyword->next)
        for (const Json *value = values->child; value; value = value->next) {
            Error err = {0};
            Buffer text = {0};
            JsonWriter w = json_object(&text);
            json_begin_array(&w, "anyOf");
            json_begin_object(&w, NULL);
            json_write_key(&w, keyword->string);
            json_write_value(&w, NULL, value, NULL);
            json_end_object(&w);
            json_end_array(&w);
            json_end_object(&w);

            Grammar *g = grammar_schema_text(buffer_str(&text), NULL, 0, NULL, &err);
            CHECK(!g && err.code == EXIT_USAGE, "%.*s: %s", SHOWN(buffer_str(&text)),
                  g ? "not refused" : err.text);
            grammar_free(g);
            buffer_free(&text);
        }
}

static void wrong_values(void) { for_each_case("keywords", "wrong_values", check_wrong_values); }

static void choices(void) {
    Error err;
    Str words[] = {str_of("yes"), str_of("no"), str_of("nope")};
    Grammar *g = grammar_choices(words, 3, &err);
    CHECK(g, "%s", err.text);
    if (!g) return;
    for (int i = 0; i < 3; i++) CHECK(accepts(g, words[i]), "%.*s refused", SHOWN(words[i]));
    CHECK(!accepts(g, str_of("nop")), "nop");
    CHECK(!accepts(g, str_of("")), "empty");
    CHECK(!accepts(g, str_of("yesno")), "yesno");
    grammar_free(g);

    Str invalid[] = {str_of("yes"), str_of("a\xff"), str_of("no")};
    CHECK(!grammar_choices(invalid, 3, &err) && strstr(err.text, "is not valid UTF-8"), "%s",
          err.text);
}

// Formats with the length limits of their RFCs, for valid texts, and with those of generated texts.
static void format_lengths(void) {
    static const struct {
        const char *format, *begin, *middle, *end; // middle is repeated
        int max_length, max_generated;
    } cases[] = {{"hostname", "a", ".b", "", 253, 253},
                 {"email", "a@c", ".bb", "", 254, 254},
                 {"email", "", "a", "@b.cc", 69, 69},
                 {"email", "\\\"", "a", "\\\"@b", 66, 0}, // not generated
                 {"uri", "http://a", "/b", "", 4096, 2048},
                 {"date-time", "2024-01-01T10:00:00.", "0", "Z", 4096, 30},
                 {"duration", "P", "1", "D", 4096, 8}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i += (size_t)test_step(3))
        for (int k = 0; k < (cases[i].max_generated ? 6 : 4); k++) {
            bool is_validated = k < 4, is_negated = k >= 2 && k < 4 && i == 0, is_long = k & 1;
            int max = is_validated ? cases[i].max_length : cases[i].max_generated;
            int n_escapes = cases[i].begin[0] == '\\' ? 2 : 0;
            Buffer schema = {0}, text = {0};
            buffer_printf(&schema, "{\"type\":\"string\",%s{\"format\":\"%s\"}%s}",
                          is_negated ? "\"not\":" : "\"allOf\":[", cases[i].format,
                          is_negated ? "" : "]");

            // The longest text that fits or, if is_long, a longer one.
            buffer_printf(&text, "\"%s", cases[i].begin);
            size_t n_end = strlen(cases[i].end) + strlen(cases[i].middle);
            while (text.len - 1 + n_end <= (size_t)(max + n_escapes))
                buffer_puts(&text, cases[i].middle);
            for (int n = is_long && max < 4096 ? 2 : 0; n > 0; n--)
                buffer_puts(&text, cases[i].middle);
            buffer_printf(&text, "%s\"", cases[i].end);

            bool fits = (is_long && max < 4096) == is_negated;
            Error err;
            Grammar *g = schema_of(schema.data, 0);
            SchemaValidator *v = validator_new(buffer_str(&schema), &err);
            bool found = is_validated ? validator_check(v, buffer_str(&text), &err)
                                      : accepts(g, buffer_str(&text));
            CHECK(found == fits, "%s: %s", schema.data, text.data);

            validator_free(v);
            grammar_free(g);
            buffer_free(&schema);
            buffer_free(&text);
        }
}

static void unknown_keywords(void) {
    Error err;
    Buffer unknown = {0};
    Grammar *g = grammar_schema_text(str_of("{\"items\":{\"minlength\":2,\"title\":\"x\"}}"), NULL,
                                     0, &unknown, &err);
    CHECK(g && unknown.len && !strcmp(unknown.data, "#/items/minlength"), "%s",
          unknown.len ? unknown.data : "");
    grammar_free(g);
    buffer_free(&unknown);
}

// Masks.

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
// complete or can be continued. The tables have about `limit` bytes, which change no mask.
static void check_limited_text(const Grammar *g, const char *what, size_t limit, uint64_t *seed) {
    const TokenTable *small = small_tokens();
    Masks t = {g, small, matcher_new(g, small, NULL), what};
    matcher_set_limit(t.tables, limit);
    Matcher *m = matcher_new(g, small, t.tables), *b = matcher_new(g, byte_tokens(), NULL);
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
    matcher_free(m);
    matcher_free(b);
    matcher_free(t.tables);
}

static void check_random_text(const Grammar *g, const char *what, uint64_t *seed) {
    check_limited_text(g, what, 1 << 20, seed);
}

static uint64_t mask_seed;

static void check_schema_masks(const Case *c) {
    if (json_get(c->row, "mode")) return;
    Error err;
    Grammar *g = case_grammar(c, 0, &err);
    CHECK(g, "%.*s: %s", SHOWN(c->line), err.text);
    Buffer what = {0};
    buffer_put(&what, c->line);
    for (int k = 0; g && k < 3; k++) check_random_text(g, what.data, &mask_seed);
    if (g) check_limited_text(g, what.data, 1 << 12, &mask_seed); // full within a mask
    buffer_free(&what);
    grammar_free(g);
}

static void masks(void) {
    mask_seed = 7;
    for_each_case("schema", "accepts", check_schema_masks);
    Error err;
    Grammar *g = grammar_gbnf(str_of("root ::= a (\",\" a)*\na ::= [^\\x00-\\x1f,]{1,3} | "
                                     "\"\\u20ac\" \"(\" a \")\" | \"{\\\"\"\n"),
                              &err);
    CHECK(g, "%s", err.text);
    for (int k = 0; g && k < 10; k++) check_limited_text(g, "grammar", 1u << 2 * k, &mask_seed);
    grammar_free(g);
    g = grammar_regex(str_of("([a-z]+ [^ ]*\\n)+|\"[^\"]{0,5}\"|\xc3\xa9+"), &err);
    CHECK(g, "%s", err.text);
    for (int k = 0; g && k < 10; k++) check_limited_text(g, "regex", 1u << 2 * k, &mask_seed);
    grammar_free(g);
    g = schema_of("{\"type\":\"string\",\"minLength\":2,\"maxLength\":45}", 0);
    for (int k = 0; k < 10; k++) check_limited_text(g, "counted string", 1u << 2 * k, &mask_seed);
    grammar_free(g);
}

// The grammar of a schema (NULL: none) or calls.
static Grammar *compile_calls(const char *schema, const CallSpec *spec, unsigned modes,
                              ConstraintNotes *notes, Error *err) {
    Buffer shape = {0};
    JsonDoc except = {0};
    Grammar *g = xalloc(1, sizeof *g);

    g->root = NONE;
    calls_put_shape(spec, &shape);
    if (shape.len && !json_parse(&except, shape.data, shape.len, err)) die_error(err);

    if (schema) {
        grammar_free(g);
        g = grammar_schema_text(str_of(schema), except.root, modes, NULL, err);
    }
    if (g && !grammar_add_calls(g, spec, NULL, modes | SCHEMA_CHECKED, notes, err)) {
        grammar_free(g);
        g = NULL;
    }

    buffer_free(&shape);
    json_free(&except);
    return g;
}

// A schema or calls in the forms of templates. Tags are read from a schema's own texts.
static void schema_or_calls(void) {
    static const char tools[] = "[{\"function\":{\"name\":\"a\"}},{\"function\":{\"name\":\"b\","
                                "\"parameters\":{\"properties\":{\"x\":{\"type\":\"null\"}}}}}]";
    static const char any[] = "{\"type\":\"object\"}", list[] = "{\"type\":\"array\"}";
    static const CallSpec
        bare = {.openers = {"{\"name\"", "<|p|>"}, .n_openers = 2, .closer = "", .key = "p"},
        tagged = {.openers = {"<t>"}, .n_openers = 1, .closer = "\n</t>", .key = "p"},
        listed = {.openers = {"[T]"}, .n_openers = 1, .closer = "", .key = "p", .is_list = true};
    static const struct {
        const char *schema;
        const CallSpec *form;
        const char *text;
        int accepted; // 2: not if is_single
    } cases[] = {
        {any, &bare, "{\"name\":\"a\",\"p\":{}}", 1},
        {any, &bare, "{\"name\":\"b\",\"p\":{\"x\":null}}; {\"name\":\"a\",\"p\":{}}", 2},
        {any, &bare, "{\"name\":\"a\",\"p\":{}}\n", 2},
        {any, &bare, "<|p|>{\"name\":\"a\",\"p\":{}};{\"name\":\"a\",\"p\":{}}", 2},
        {any, &bare, "<|p|>{\"name\":\"a\",\"p\":{}};<|p|>{\"name\":\"a\",\"p\":{}}", 0},
        {any, &bare, "{\"name\":\"b\",\"p\":{\"x\":1}}", 0}, // neither a call nor another object
        {any, &bare, "{\"p\":{},\"name\":\"b\"}", 0},
        {any, &bare, "{\"name\":\"c\",\"p\":{\"x\":1}}", 1},
        {any, &bare, "{\"name\":\"b\",\"p\":1}", 1},
        {any, &bare, "{\"name\":\"c\"}; {\"name\":\"a\",\"p\":{}}", 0},
        {list, &bare, "[{\"name\":\"b\",\"p\":{\"x\":1}}]", 1},
        {any, &tagged, "{\"name\":\"b\",\"p\":{\"x\":1}}", 1},
        {any, &tagged, "<t>\n{\"name\":\"a\",\"p\":{}}\n</t>", 1},
        {any, &tagged, "<t>{\"name\":\"a\",\"p\":{}}\n</t>", 1},
        {any, &tagged, "<t>{\"name\":\"a\",\"p\":{}}</t>", 0},
        {any, &tagged, "<t>   {\"name\":\"a\",\"p\":{}}\n</t>", 0},
        {any, &tagged, "<t>\n{\"name\":\"a\",\"p\":{}}\n</t>\n<t>\n{\"name\":\"a\",\"p\":{}}\n</t>",
         2},
        {any, &tagged, "<t>\n{\"name\":\"a\",\"p\":{}}\n</t>\n{}", 0},
        {NULL, &tagged, "{}", 0},
        {NULL, &tagged, "<t>{\n  \"name\": \"a\",\n  \"p\": {}\n}\n</t>", 1},
        {list, &listed, "[1]", 1},
        {list, &listed, "[T][{\"name\":\"a\",\"p\":{}}]", 1},
        {list, &listed, "[T] [{\"name\": \"a\", \"p\": {}}, {\"name\": \"a\", \"p\": {}}]", 2},
        {list, &listed, "[T][]", 0},
        {list, &listed, "[T][{\"name\":\"a\",\"p\":{}}][]", 0},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int is_single = 0; is_single < 2; is_single++) {
            ConstraintNotes notes = {0};
            Error err;
            CallSpec spec = *cases[i].form;
            spec.tools = str_of(tools);
            spec.is_single = is_single;
            Grammar *g = compile_calls(cases[i].schema, &spec, 0, &notes, &err);
            CHECK(g, "%s", err.text);
            bool is_accepted = cases[i].accepted && !(cases[i].accepted == 2 && is_single);
            CHECK(g && accepts(g, str_of(cases[i].text)) == is_accepted, "%s", cases[i].text);
            for (int k = 0; g && k < 2; k++) check_random_text(g, "schema or calls", &mask_seed);
            grammar_free(g);
        }

    // Behind an opener, a closer ends the text.
    CallSpec spec = tagged;
    spec.tools = str_of(tools);
    spec.is_opened = true;
    ConstraintNotes notes = {0};
    Error err;
    Grammar *g = compile_calls(NULL, &spec, 0, &notes, &err);
    CHECK(accepts(g, str_of("\n{\"name\":\"a\",\"p\":{}}\n</t>")), "behind an opener");
    CHECK(!accepts(g, str_of("{\"name\":\"a\",\"p\":{}}\n</t>\n")), "text behind a closer");

    // The closer is a text of its own.
    Matcher *m = matcher_new(g, small_tokens(), NULL);
    Buffer forced = {0};
    matcher_accept(m, str_of("{\"name\":\"a\""));
    CHECK(!matcher_tag(m).len, "a tag before the end");
    matcher_accept(m, str_of(",\"p\":"));
    matcher_forced(m, &forced);
    CHECK(str_eq(buffer_str(&forced), str_of("{}}")), "%s", forced.data);
    matcher_accept(m, str_of("{}}\n"));
    CHECK(str_eq(matcher_tag(m), str_of("</t>")), "the rest of a tag");
    matcher_free(m);
    buffer_free(&forced);
    grammar_free(g);
}

// Calls of tools. Each schema is a document of its own, with its own references and draft. A tool
// whose schema is invalid or fits no object has any object as its arguments.
static void tool_calls(void) {
    static const char tools[] =
        "[{\"function\":{\"name\":\"n\\\"\"}},"
        "{\"function\":{\"name\":\"a\",\"parameters\":{\"properties\":{\"x\":{\"$ref\":\"#/$defs/"
        "d\"}},"
        "\"required\":[\"x\"],\"$defs\":{\"d\":{\"type\":\"null\"}},\"minlength\":1}}},"
        "{\"function\":{\"name\":\"b\",\"parameters\":{\"type\":[\"object\",\"null\"],"
        "\"properties\":{"
        "\"x\":{\"$ref\":\"#/$defs/d\"},\"y\":{\"$ref\":\"#\"}},\"$defs\":{\"d\":{\"const\":1}}}}},"
        "{\"function\":{\"name\":\"old\",\"parameters\":{\"properties\":{\"x\":{\"const\":1}},"
        "\"$schema\":\"http://json-schema.org/draft-04/schema#\"}}},"
        "{\"function\":{\"name\":\"bad\",\"parameters\":{\"properties\":{\"x\":{\"$dynamicRef\":\"#"
        "\"}}}}"
        "},"
        "{\"function\":{\"name\":\"none\",\"parameters\":{\"type\":\"string\"}}},"
        "{\"function\":{\"name\":\"now\",\"parameters\":null}}]";
    static const struct {
        const char *text;
        bool is_accepted;
    } cases[] = {
        {"{\"name\":\"n\\\"\",\"parameters\":{}}", true},
        {"{\"name\":\"n\\\"\",\"parameters\":{\"x\":[]}}", false},
        {"{\"name\": \"a\", \"parameters\": {\"x\": null}}", true},
        {"{\"name\":\"a\",\"parameters\":{\"x\":1}}", false},
        {"{\"name\":\"a\",\"parameters\":{}}", false},
        {"{\"name\":\"a\"}", false},
        {"{\"parameters\":{\"x\":null},\"name\":\"a\"}", false},
        {"{\"name\":\"b\",\"parameters\":{\"x\":1,\"y\":null}}", true},
        {"{\"name\":\"b\",\"parameters\":{\"x\":null}}", false},
        {"{\"name\":\"b\",\"parameters\":null}", false},
        {"{\"name\":\"b\",\"parameters\":{\"z\":1}}", false},
        {"{\"name\":\"old\",\"parameters\":{\"x\":2}}", true}, // draft 4 has no \"const\"
        {"{\"name\":\"bad\",\"parameters\":{\"q\":{}}}", true},
        {"{\"name\":\"bad\",\"parameters\":[]}", false},
        {"{\"name\":\"none\",\"parameters\":{}}", true},
        {"{\"name\":\"none\",\"parameters\":\"\"}", false},
        {"{\"name\":\"now\",\"parameters\":{}}", true},
        {"{\"name\":\"now\",\"parameters\":{\"x\":1}}", false}, // no \"parameters\"
        {"{\"name\":\"c\",\"parameters\":{}}", false},
    };
    ConstraintNotes notes = {0};
    Error err;
    CallSpec spec = {.tools = str_of(tools), .closer = "", .key = "parameters", .is_single = true};

    Grammar *g = compile_calls(NULL, &spec, SCHEMA_CLOSED, &notes, &err);
    CHECK(g, "%s", err.text);
    for (size_t i = 0; g && i < sizeof cases / sizeof *cases; i++)
        CHECK(accepts(g, str_of(cases[i].text)) == cases[i].is_accepted, "%s", cases[i].text);
    for (int k = 0; g && k < 5; k++) check_random_text(g, "calls", &mask_seed);
    grammar_free(g);

    CHECK(notes.ignored.len &&
              !strcmp(notes.ignored.data, "tool a: JSON Schema: ignored: #/minlength; "
                                          "tool old: JSON Schema: ignored: #/properties/x/const"),
          "%s", notes.ignored.data);
    CHECK(notes.problems.len &&
              test_matches(notes.problems.data, "tool bad: ... #/properties/x: \"$dynamicRef\" ... "
                                                "tool none: ... #: no value fits"),
          "%s", notes.problems.data);

    // An array of calls of one tool.
    spec = (CallSpec){.tools = str_of(tools),
                      .only = str_of("b"),
                      .closer = "",
                      .key = "arguments",
                      .is_list = true};
    g = compile_calls(NULL, &spec, 0, &notes, &err);
    CHECK(g && accepts(g, str_of("[{\"name\":\"b\",\"arguments\":{}},{\"name\":\"b\","
                                 "\"arguments\":{\"z\":1}}]")),
          "a list of calls is refused");
    CHECK(g && !accepts(g, str_of("[]")), "an empty list is accepted");
    CHECK(g && !accepts(g, str_of("[{\"name\":\"a\",\"arguments\":{\"x\":null}}]")), "tool a");
    grammar_free(g);

    spec.only = str_of("c");
    CHECK(!compile_calls(NULL, &spec, 0, &notes, &err) && err.code == EXIT_RUNTIME, "tool c");
    buffer_free(&notes.ignored);
    buffer_free(&notes.problems);
}

// Appends up to 4 alternatives of up to 4 items: characters and rules of random_masks().
static void put_random_rule(Buffer *out, uint64_t *seed) {
    static const char *const items[] = {"\"a\" ", "\"b\" ", "[a-c\\u00e9] ", "r ", "s ", "\"\" "};
    for (uint64_t n = 1 + test_random(seed) % 4; n > 0; n--) {
        for (uint64_t k = 1 + test_random(seed) % 4; k > 0; k--)
            buffer_printf(out, "%s%s ", items[test_random(seed) % 6],
                          test_random(seed) % 8 ? "" : "?");
        buffer_puts(out, n > 1 ? "| " : "\n");
    }
}

// Masks of random grammars, most of them ambiguous.
static void random_masks(void) {
    uint64_t seed = 11;
    Error err;
    for (int n = 0; n < 20;) {
        Buffer source = {0};
        buffer_puts(&source, "root ::= \"x\" r | s s\nr ::= ");
        put_random_rule(&source, &seed);
        buffer_puts(&source, "s ::= \"b\" | ");
        put_random_rule(&source, &seed);

        Grammar *g = grammar_gbnf(buffer_str(&source), &err);
        CHECK(g || str_contains(str_of(err.text), "left recursion") ||
                  str_contains(str_of(err.text), "no text"),
              "%s: %s", source.data, err.text);
        for (int k = 0; g && k < 2; k++) check_random_text(g, source.data, &seed);
        n += g != NULL;
        grammar_free(g);
        buffer_free(&source);
    }
}

// A text with very many readings meets the limit of a mask; other texts of the grammar do not. Work
// on a mask and on a schema ends on an interrupt.
static void limits(void) {
    enum { N_BYTES = 6000 };
    static char letters[N_BYTES];
    static const Str pieces[] = {{"a", 1}, {letters, N_BYTES}};
    static volatile int interrupted;
    static const TokenTable *both, *first;
    Error err;
    memset(letters, 'a', sizeof letters);
    both = token_table_new(pieces, 2);
    first = token_table_new(pieces, 1);

    Grammar *g = grammar_gbnf(str_of("root ::= \"a\" root root | \"a\" | \"\"\n"), &err);
    Matcher *m = matcher_new(g, both, NULL), *small = matcher_new(g, first, NULL);
    CHECK(!matcher_mask(m, false), "the mask has no limit");
    const uint64_t *mask = matcher_mask(small, false);
    CHECK(mask && *mask == 1, "the mask of a short token is wrong");
    int n = 0;
    for (; n < 1000 && matcher_mask(small, false); n++) matcher_accept(small, str_of("a"));
    CHECK(n > 100 && n < 1000, "the limit is met after %d bytes", n);
    matcher_free(small);
    small = matcher_new(g, first, NULL);

    signals_install(&interrupted);
    interrupted = 1;
    CHECK(!matcher_mask(small, false), "the mask ignores an interrupt");
    CHECK(!grammar_schema_text(str_of("{\"type\":\"object\"}"), NULL, 0, NULL, &err),
          "the compiler ignores an interrupt");
    interrupted = 0;
    mask = matcher_mask(small, false);
    CHECK(mask && *mask == 1, "the mask after an interrupt is wrong");

    matcher_free(m);
    matcher_free(small);
    grammar_free(g);
}

// Twenty objects that begin alike: from many states, most bytes are ruled out together.
static void many_readings(void) {
    static const char *const texts[] = {"{\"k\":\"\xc3\xa9\\u00e9\\n\",\"e7\":[]}",
                                        "{\"k\": -1.5e3, \"e19\": \"x\"}",
                                        "{\n  \"k\": [\n    null,\n    true\n  ],\n  \"e0\": {}\n}",
                                        "{\"k\":{\"\xf0\x9f\x98\x80\":false},\"e1\":1}"};
    Buffer schema = {0}, forced = {0};
    buffer_puts(&schema, "{\"anyOf\":[");
    for (int i = 0; i < 20; i++)
        buffer_printf(&schema,
                      "%s{\"type\":\"object\",\"properties\":{\"k\":{},\"e%d\":{}},"
                      "\"required\":[\"k\",\"e%d\"],\"additionalProperties\":false}",
                      i ? "," : "", i, i);
    buffer_puts(&schema, "]}");

    Grammar *g = schema_of(schema.data, 0);
    for (size_t i = 0; g && i < sizeof texts / sizeof *texts; i++)
        CHECK(accepts(g, str_of(texts[i])), "%s is refused", texts[i]);
    CHECK(g && !accepts(g, str_of("{\"k\":1,\"e20\":1}")), "another name is accepted");
    for (int k = 0; g && k < 3; k++) check_random_text(g, "many objects", &mask_seed);
    grammar_free(g);

    g = schema_of(schema.data, SCHEMA_ORDERED | SCHEMA_CLOSED);
    Matcher *m = matcher_new(g, small_tokens(), NULL);
    matcher_accept(m, str_of("{\""));
    matcher_forced(m, &forced);
    CHECK(forced.len == 3 && !memcmp(forced.data, "k\":", 3), "%zu bytes are forced", forced.len);
    matcher_free(m);
    grammar_free(g);
    buffer_free(&schema);
    buffer_free(&forced);
}

// skips_space: the space that SentencePiece puts before a text is not part of the text.
static void skipped_space(void) {
    static const Str pieces[] = {{" {", 2}, {"{", 1}, {" ", 1}, {" x", 2}};
    static const TokenTable *v;
    v = token_table_new(pieces, 4);
    Grammar *g = schema_of("{\"type\":\"object\"}", 0);
    Matcher *m = matcher_new(g, v, NULL);
    CHECK(matcher_mask(m, false)[0] == 2, "%llx", (unsigned long long)matcher_mask(m, false)[0]);
    CHECK(matcher_mask(m, true)[0] == 3, "%llx", (unsigned long long)matcher_mask(m, true)[0]);
    matcher_free(m);
    grammar_free(g);
}

// Forced text: the rest of a property name, and of a constant.
static void forced_text(void) {
    const TokenTable *v = small_tokens();
    Grammar *g = schema_of(
        "{\"type\":\"object\",\"properties\":{\"name\":{\"const\":\"ab\"}},\"required\":[\"name\"],"
        "\"additionalProperties\":false}",
        0);
    Matcher *m = matcher_new(g, v, NULL);
    Buffer out = {0};

    // The rest of the name.
    matcher_accept(m, str_of("{\"n"));
    matcher_forced(m, &out);
    CHECK(out.len == 5 && !strcmp(out.data, "ame\":"), "%s", out.len ? out.data : "");

    // The rest of the value, with the closing brace.
    matcher_accept(m, str_of("ame\": \"a"));
    out.len = 0;
    matcher_forced(m, &out);
    CHECK(out.len == 3 && !memcmp(out.data, "b\"}", 3), "%s", out.data);

    buffer_free(&out);
    matcher_free(m);
    grammar_free(g);
}

// Fills the machine's tables, which are then flushed, several times. Masks must stay correct.
static void flushes(void) {
    Error err;
    Grammar *g =
        grammar_gbnf(str_of("root ::= x*\nx ::= \"a\" x \"b\" | \"q\" x \"c\" | [d-z]\n"), &err);
    CHECK(g, "%s", err.text);
    if (!g) return;
    const TokenTable *v = small_tokens();
    Matcher *m = matcher_new(g, v, NULL), *other = matcher_new(g, v, m);
    Buffer text = {0};

    // Fill the tables, so that they are flushed while `other` uses them.
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

    buffer_free(&text);
    matcher_free(m);
    matcher_free(other);
    grammar_free(g);
}

// Compiles more constraints than the cache keeps. Those compiled again must be correct.
static void many_constraints(void) {
    static Buffer file; // static, because the cache is never freed and refers to the tokenizer
    static Gguf gguf;
    static ConstraintCache *cache;
    Error err;
    file = make_llama_file((MakeLlama){.is_vocabulary_only = true});
    if (!gguf_parse(&gguf, file.data, file.len, "small", &err)) die_error(&err);
    Tokenizer *tokenizer = tokenizer_open(&gguf, &err);
    if (!tokenizer) die_error(&err);
    cache = constraint_cache_new(tokenizer);

    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 80; i++) {
            char pattern[16], text[16];
            snprintf(pattern, sizeof pattern, "a{%d}b", i);
            memset(text, 'a', sizeof text);
            text[i % 14] = 'b';
            text[i % 14 + 1] = 0;

            CompiledConstraint *c, *again;
            ConstraintSpec spec = {.kind = CONSTRAINT_REGEX, .text = str_of(pattern)};
            if (!constraint_compile(cache, &spec, &c, &err) ||
                !constraint_compile(cache, &spec, &again, &err))
                die_error(&err);
            CHECK(c == again, "%s is compiled twice", pattern);
            constraint_release(again);
            Matcher *good = constraint_begin(c), *bad = constraint_begin(c);
            bool fits = matcher_accept(good, str_of(text)) == strlen(text) && matcher_is_end(good);
            CHECK(fits == (i < 14), "%s: %s", pattern, text);
            CHECK(matcher_accept(bad, str_of("ba")) < 2, "%s", pattern);
            matcher_free(good);
            matcher_free(bad);
            constraint_release(c);
        }
}

void test_constrain(void) {
    test_case("constrain_regex", regexes);
    test_case("constrain_regex_errors", regex_errors);
    test_case("constrain_grammars", grammars);
    test_case("constrain_grammar_errors", grammar_errors);
    test_case("constrain_choices", choices);

    test_case("constrain_schemas", schemas);
    test_case("constrain_failures", failures);
    test_case("constrain_format_lengths", format_lengths);
    test_case("constrain_refused_schemas", refused_schemas);
    test_case("constrain_wrong_values", wrong_values);
    test_case("constrain_unknown_keywords", unknown_keywords);

    test_case("constrain_tool_calls", tool_calls);
    test_case("constrain_schema_or_calls", schema_or_calls);

    test_case("constrain_masks", masks);
    test_case("constrain_random_masks", random_masks);
    test_case("constrain_many_readings", many_readings);
    test_case("constrain_limits", limits);
    test_case("constrain_skipped_space", skipped_space);
    test_case("constrain_forced_text", forced_text);
    test_case("constrain_flushes", flushes);
    test_case("constrain_many_constraints", many_constraints);
}
