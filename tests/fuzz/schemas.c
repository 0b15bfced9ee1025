// Fuzz target: JSON Schemas from a grammar that nests all keywords, and texts that they generate.
#include "tests/fuzz/productions.h"
#include "base/json.h"
#include "constrain/constrain.h"
#include "constrain/constraint.h"

#include <string.h>

// In a production, '@' is a schema and '>' a list of schemas. '!' to '_' are keywords of one kind,
// each with a comma before it: no object has a keyword twice, which the parser would refuse.
// clang-format off
static const char *const schemas[] = {
    "true",
    "{\"type\":\"integer\"}",
    "{\"title\":0!}",
    "{\"title\":0!%}",
    "{\"title\":0!`}",
    "{\"title\":0!<}",
    "{\"title\":0!;}",
    "{\"title\":0!&}",
    "{\"title\":0_}",
    "{\"title\":0!_}",
    "{\"title\":0!_%`<;}",
    "{\"title\":0&%`<;_}",
    "{\"type\":\"object\";}",
    "{\"type\":\"array\"<}",
    "{\"type\":\"string\"`}",
    "{\"type\":\"number\"%}",
    "{\"type\":\"integer\"%}",
    "false",
};
static const char *const lists[] = {"@", "@,@", "@,@,@"};
static const char *const types[] = {
    "",
    ",\"type\":\"null\"",
    ",\"type\":\"boolean\"",
    ",\"type\":\"integer\"",
    ",\"type\":\"number\"",
    ",\"type\":\"string\"",
    ",\"type\":\"array\"",
    ",\"type\":\"object\"",
    ",\"type\":[\"string\",\"integer\",\"null\"]",
    ",\"type\":[\"object\",\"array\",\"boolean\"]",
};
static const char *const listed[] = {"", ",\"const\":=", ",\"enum\":[=]", ",\"enum\":[=,=,=]"};
static const char *const numbers[] = {
    "",
    ",\"minimum\":~",
    ",\"maximum\":~",
    ",\"exclusiveMinimum\":~",
    ",\"exclusiveMaximum\":~",
    ",\"minimum\":~,\"maximum\":~",
    ",\"minimum\":~,\"exclusiveMaximum\":~",
    ",\"exclusiveMinimum\":~,\"exclusiveMaximum\":~,\"minimum\":~",
    ",\"multipleOf\":~",
    ",\"multipleOf\":~,\"minimum\":~,\"maximum\":~",
    ",\"minimum\":~,\"exclusiveMinimum\":true", // draft 4
};
static const char *const strings[] = {
    "",
    ",\"minLength\":?",
    ",\"maxLength\":?",
    ",\"minLength\":?,\"maxLength\":?",
    ",\"pattern\":*",
    ",\"pattern\":*,\"maxLength\":?",
    ",\"format\":+",
    ",\"format\":+,\"pattern\":*",
    ",\"format\":+,\"minLength\":?",
};
static const char *const arrays[] = {
    "",
    ",\"items\":@",
    ",\"prefixItems\":[>]",
    ",\"prefixItems\":[>],\"items\":@",
    ",\"items\":[>],\"additionalItems\":@",
    ",\"minItems\":?,\"items\":@",
    ",\"maxItems\":?,\"items\":@",
    ",\"minItems\":?,\"maxItems\":?,\"prefixItems\":[>]",
    ",\"uniqueItems\":true,\"maxItems\":?",
    ",\"contains\":@",
    ",\"contains\":@,\"minContains\":?,\"uniqueItems\":true",
    ",\"prefixItems\":[>],\"unevaluatedItems\":@",
};
static const char *const objects[] = {
    "",
    ",\"properties\":{\"a\":@,\"b\":@}",
    ",\"properties\":{\"a\":@,\"ab\":@,\"x-y\":@},\"required\":[\"ab\"]",
    ",\"properties\":{\"a\":@},\"required\":[\"b\",\"a\"],\"additionalProperties\":@",
    ",\"additionalProperties\":@",
    ",\"patternProperties\":{*:@}",
    ",\"patternProperties\":{\"a\":@,\"b$\":@},\"properties\":{\"ab\":@}",
    ",\"patternProperties\":{*:@},\"additionalProperties\":@",
    ",\"propertyNames\":@",
    ",\"propertyNames\":{\"enum\":[\"a\",\"b\",\"c\"]},\"minProperties\":?",
    ",\"minProperties\":?",
    ",\"maxProperties\":?,\"properties\":{\"a\":@,\"b\":@}",
    ",\"minProperties\":?,\"maxProperties\":?,\"additionalProperties\":@",
    ",\"dependentRequired\":{\"a\":[\"b\"],\"b\":[\"c\",\"a\"]}",
    ",\"dependencies\":{\"a\":[\"b\"],\"b\":@}",
    ",\"required\":[\"a\",\"c\"]",
    ",\"unevaluatedProperties\":@",
    ",\"dependentSchemas\":{\"a\":@},\"properties\":{\"a\":@},\"unevaluatedProperties\":@",
    ",\"propertyNames\":{\"anyOf\":[{\"enum\":[\"a\",\"x\"]},@]},\"additionalProperties\":@",
    ",\"properties\":{\"a\\\"\\u00e9\":@,\"\":@,\"\\ud83d\\ude00\":@}",
};
static const char *const logic[] = {
    "",
    ",\"allOf\":[>]",
    ",\"anyOf\":[>]",
    ",\"oneOf\":[>]",
    ",\"not\":@",
    ",\"if\":@,\"then\":@",
    ",\"if\":@,\"then\":@,\"else\":@",
    ",\"allOf\":[>],\"not\":@",
    ",\"anyOf\":[>],\"oneOf\":[>]",
    ",\"$ref\":^",
    ",\"$ref\":^,\"anyOf\":[>]",
    ",\"anyOf\":[{\"$ref\":^},@]",
};
static const char *const references[] = {
    "\"#/$defs/p\"", "\"#/$defs/item\"", "\"#/$defs/item/$defs/p\"", "\"#\"", "\"#q\"", "\"item.json\"", "\"http://e/r/m.json\"",
};
static const char *const values[] = {
    "null", "true", "0", "1", "-1", "1.0", "1.5", "1e20", "9007199254740993", "\"\"", "\"a\"",
    "\"ab\"", "\"\\u00e9\\\"\\t\"", "[]", "{}", "[=]", "[=,=]", "{\"a\":=}", "{\"b\":=,\"a\":=}",
};
static const char *const limits[] = {
    "0", "1", "-1", "1.5", "2", "-2.5", "7", "100", "0.25", "1e20", "-1e-06", "12345.678",
    "999999999999999999999", "0.1", "3",
};
static const char *const counts[] = {"0", "1", "2", "3", "4", "20"};
static const char *const patterns[] = {
    "\"a\"", "\"^a\"", "\"b$\"", "\"^[ab]*$\"", "\"^$\"", "\"^.{2,}$\"", "\"x|y\"", "\"^[^a]\"",
    "\"^(?!a).*\\\\d\"", "\"(a|(?=b)[bc])$\"", "\"(?m)^(?!b)a?$\"", "\"(?<=a)b\"", "\"^\\\\p{L}+$\"", "\"^(a|bc){2,3}$\"",
};
static const char *const formats[] = {
    "\"date\"", "\"time\"", "\"date-time\"", "\"duration\"", "\"uuid\"", "\"email\"",
    "\"hostname\"", "\"ipv4\"", "\"ipv6\"", "\"uri\"", "\"uri-reference\"", "\"regex\"",
    "\"iri\"", "\"json-pointer\"", "\"uri-template\"", "\"idn-email\"", "\"int32\"", "\"uint8\"",
    "\"other\"",
};
static const char *const drafts[] = {
    "2020-12/schema", "2019-09/schema", "draft-07/schema#", "draft-06/schema#", "draft-04/schema#",
};
static const Symbol symbols[] = {
    SYMBOL('@', schemas), SYMBOL('>', lists), LEAF_SYMBOL('!', types), SYMBOL('&', listed),
    SYMBOL('%', numbers), SYMBOL('`', strings), SYMBOL('<', arrays), SYMBOL(';', objects),
    SYMBOL('_', logic), SYMBOL('=', values), LEAF_SYMBOL('^', references), LEAF_SYMBOL('~', limits),
    LEAF_SYMBOL('?', counts), LEAF_SYMBOL('*', patterns), LEAF_SYMBOL('+', formats),
    LEAF_SYMBOL('|', drafts), {0}};
// clang-format on

// Definitions, to which `references` refer.
static const char root[] =
    "{\"$schema\":\"http://json-schema.org/|\",\"$id\":\"http://e/r/m.json\","
    "\"$defs\":{\"p\":@,\"item\":{\"$id\":\"item.json\",\"$defs\":{\"p\":@}!<_}}"
    "!&%`<;_}";

// A text that is generated from a grammar, token by token, by pseudo-random choices.
typedef struct {
    Matcher *matcher;
    uint64_t state; // of fuzz_random
    Buffer text;
} Walk;

// Appends a token that the mask allows. False if there is none. Invariants: a token is allowed
// exactly if its bytes are accepted, and the forced bytes are.
static bool walk_step(Walk *w, const Grammar *g) {
    enum { N_TRIED = 4 }; // tokens per step
    uint64_t mask[(N_FUZZ_TOKENS + 63) / 64];
    int allowed[N_FUZZ_TOKENS], n_allowed = 0;
    Buffer forced = {0};
    memcpy(mask, matcher_mask(w->matcher, false), sizeof mask);
    for (int i = 0; i < N_FUZZ_TOKENS; i++)
        if (mask[i / 64] >> (i & 63) & 1) allowed[n_allowed++] = i;
    matcher_forced(w->matcher, &forced);
    for (int i = 0; i <= N_TRIED; i++) {
        int token = (int)(fuzz_random(&w->state) % N_FUZZ_TOKENS);
        Str piece = i < N_TRIED ? fuzz_piece(token) : buffer_str(&forced);
        bool is_allowed = i == N_TRIED || (mask[token / 64] >> (token & 63) & 1);
        Matcher *m = matcher_new(g, fuzz_tokens(), w->matcher);
        HOLDS(matcher_accept(m, buffer_str(&w->text)) == w->text.len);
        HOLDS((matcher_accept(m, piece) == piece.len) == is_allowed);
        matcher_free(m);
    }
    buffer_free(&forced);
    HOLDS(n_allowed || matcher_is_end(w->matcher));
    if (!n_allowed) return false;
    // Quotes and brackets are preferred to the many characters of strings, so that texts end.
    int token = allowed[fuzz_random(&w->state) % (uint64_t)n_allowed];
    if (mask['"' / 64] >> ('"' & 63) & 1 && fuzz_random(&w->state) % 3) token = '"';
    buffer_put(&w->text, fuzz_piece(token));
    HOLDS(matcher_accept(w->matcher, fuzz_piece(token)) == fuzz_piece(token).len);
    return true;
}

// Invariant of a complete text: it is valid, unless the schema cannot be evaluated or the grammar
// says that it does not enforce all of it. The same holds for repeated names.
static void check_complete(const Grammar *g, Str schema, Str text) {
    JsonDoc doc = {0};
    Error err = {0};
    bool is_parsed = json_parse(&doc, text.data, text.len, &err);
    HOLDS(is_parsed || (g->may_repeat && str_contains(str_of(err.text), "duplicate key")));
    json_free(&doc);

    SchemaValidator *v = validator_new(schema, &err);
    HOLDS(v);
    bool is_valid = validator_check(v, text, &err); // of a repeated name, the last one counts
    if (!is_valid) fuzz_show(str_of(err.text));
    bool is_excused = !is_parsed || g->unenforced.len;
    HOLDS(is_valid || is_excused || str_begins_with(str_of(err.text), "JSON Schema, "));
    validator_free(v);
}

// The first byte has the modes. Bytes that the schema does not use seed the walk.
void fuzz_schemas(const uint8_t *data, size_t n) {
    enum { MAX_DEPTH = 6, MAX_STEPS = 80 };
    if (n == 0) return;
    Productions p = {.symbols = symbols, .max_depth = MAX_DEPTH, .data = data + 1, .n = n - 1};
    JsonDoc doc = {0};
    Error err = {0};
    production_put(&p, *data & 4 ? root : "@");
    fuzz_show(buffer_str(&p.text));
    HOLDS(json_parse(&doc, p.text.data, p.text.len, &err));
    unsigned modes = (*data & 3) | (*data & 8 ? SCHEMA_CHECKED : 0);
    Grammar *g = grammar_schema(doc.root, NULL, modes, NULL, &err);
    HOLDS(g || (err.code == EXIT_USAGE && *err.text));
    if (!g) fuzz_show(str_of(err.text));
    Walk w = {.state = 1};
    for (size_t i = 0; i < p.n; i++) w.state = w.state * 31 + p.data[i];
    if (g) w.matcher = matcher_new(g, fuzz_tokens(), NULL);
    bool goes_on = g;
    for (int i = 0; i < MAX_STEPS && goes_on; i++) goes_on = walk_step(&w, g);
    if (g) fuzz_show(buffer_str(&w.text));
    if (g && matcher_is_end(w.matcher)) check_complete(g, buffer_str(&p.text), buffer_str(&w.text));
    if (g) matcher_free(w.matcher);
    grammar_free(g);
    json_free(&doc);
    buffer_free(&w.text);
    buffer_free(&p.text);
}
