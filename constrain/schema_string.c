// Strings: lengths, patterns and formats. See schema_keywords.h.
#include "constrain/schema_keywords.h"

#include <stdio.h>

// Automata, each built once.

int string_regex(SchemaCompiler *c, const Json *schema, const char *keyword, Str pattern,
                 RegexMode mode) {
    return schema_language(c, schema, keyword, language_regex(&c->languages, pattern, mode));
}

static int any_string(SchemaCompiler *c) {
    return string_regex(c, NULL, NULL, str_of(REGEX_ANY), REGEX_WHOLE);
}

int string_pattern(SchemaCompiler *c, const Json *schema, Str pattern) {
    const char *keyword = json_get(schema, "pattern") ? "pattern" : "patternProperties";
    return string_regex(c, schema, keyword, pattern, REGEX_SEARCH);
}

// A pattern ^X{n,m}$ in which X is one character or class is compiled as ^X*$ with a length.
static Str split_bounded_repeat(SchemaCompiler *c, Str pattern, CountRange *length) {
    int min, max;
    size_t n = regex_bounded_repeat(pattern, &min, &max);
    if (!n) return pattern;

    char *text = arena_alloc(&c->arena, 1, n + 2);
    memcpy(text, pattern.data, n);
    memcpy(text + n, "*$", 2);
    if ((uint32_t)min > length->min) length->min = (uint32_t)min;
    if ((uint32_t)max < length->max) length->max = (uint32_t)max;
    return (Str){text, n + 2};
}

// The DFA of "pattern" or "format"; `format` receives the format, or NULL. -1 after a failure.
// length: the DFA is for generated texts, see split_bounded_repeat(); NULL: for all texts.
static int keyword_language(SchemaCompiler *c, const Json *schema, const Json *value,
                            CountRange *length, const Format **format) {
    Str text = value->string;
    *format = str_is(value->key, "format") ? format_find(text) : NULL;
    if (*format) {
        const Format *f = *format;
        const char *pattern = length && f->generated ? f->generated : f->pattern;
        return string_regex(c, schema, "format", str_of(pattern), REGEX_WHOLE);
    }
    if (length) text = split_bounded_repeat(c, text, length);
    return string_pattern(c, schema, text);
}

// Keywords.

static void assert_language(SchemaCompiler *c, Conjunction *f, const KeywordUse *u) {
    conjunction_add(c, f, CONJUNCT_LANGUAGE, u);
}

static bool check_language(SchemaCompiler *c, const KeywordUse *u, const Json *value) {
    const Format *format;
    int dfa = keyword_language(c, u->schema, u->value, NULL, &format);
    return dfa < 0 ||
           (dfa_match(&c->grammar->defs[dfa].dfa, value->string) &&
            (!format || utf8_length(value->string.data, value->string.len) <= format->max_length));
}

// Formats of strings and, in schema_number.c, of integers.

static void assert_format(SchemaCompiler *c, Conjunction *f, const KeywordUse *u) {
    const Format *format = format_find(u->value->string);
    if (format->is_valid && !schema_leave(c, u->schema, u->value))
        schema_refuse(c, u, ": \"regex\"");
    if (format->pattern)
        assert_language(c, f, u);
    else
        number_assert_format(c, f, format);
}

static void negate_format(SchemaCompiler *c, Conjunction f, const KeywordUse *u) {
    const Format *format = format_find(u->value->string);
    f.types &= format->pattern ? TYPE_STRING : TYPE_NUMBER;
    if (format->pattern)
        schema_negate(c, f, u);
    else
        number_negate_format(c, f, format);
}

static bool check_format(SchemaCompiler *c, const KeywordUse *u, const Json *value) {
    const Format *format = format_find(u->value->string);
    if ((value->kind == JSON_STRING) != (format->pattern != NULL)) return true;
    if (format->is_valid) return format->is_valid(value->string);
    return format->pattern ? check_language(c, u, value) : number_check_format(c, format, value);
}

static const SchemaKeyword keywords[] = {
    {"minLength", TYPE_STRING, VALUE_COUNT, count_assert, schema_negate, .check = count_check},
    {"maxLength", TYPE_STRING, VALUE_COUNT, count_assert, schema_negate, .check = count_check,
     .is_max = true},
    {"pattern", TYPE_STRING, VALUE_STRING, assert_language, schema_negate, .check = check_language},
    {"format", TYPE_STRING | TYPE_NUMBER, VALUE_STRING, assert_format, negate_format,
     .check = check_format},
    {.names = NULL},
};

// Strings of a language and a length.
//
// The machine counts the characters. If the DFA did, it would need a copy of its states for every
// count. StringDef.live has the pairs of a state and a count that can lead to a text that is
// neither too short nor too long.

// True if a character leads from a state to a live pair with `count` characters.
static bool leads_to_live(const Dfa *d, const StringDef *s, int state, uint32_t count) {
    for (int class = 0; class < d->n_classes; class ++)
        if (string_is_live(s, d->next[state * d->n_classes + class], count)) return true;
    return false;
}

// Fills s->live from the greatest count down.
static bool fill_live(SchemaCompiler *c, StringDef *s) {
    enum { MAX_PAIRS = 1 << 24 };
    const Dfa *d = &c->grammar->defs[s->dfa].dfa;
    size_t width = (size_t)s->limit + 1;
    size_t n = (size_t)d->n_states * width; // pairs of a state and a count
    if (s->limit > MAX_PAIRS || n > MAX_PAIRS ||
        !budget_spend(&c->languages.budget, (long)(n / 8) * d->n_classes))
        return schema_fail(c, NULL, NULL, "too complex: a pattern with a length of up to %u",
                           s->limit);

    s->live = arena_alloc(&c->grammar->arena, n / 64 + 1, sizeof *s->live);
    for (uint32_t count = s->limit + 1; count-- > 0;)
        for (int state = 1; state < d->n_states; state++) {
            bool is_end = d->accept[state] && count >= s->min;
            bool is_unlimited = s->max == NO_LIMIT && count == s->limit;
            size_t bit = (size_t)state * width + count;

            if (is_end || is_unlimited || leads_to_live(d, s, state, count + 1))
                s->live[bit / 64] |= (uint64_t)1 << (bit & 63);
        }

    return true;
}

// True if a DFA accepts exactly the texts over a set of characters that is not empty. Then every
// count is live.
static bool is_star(const Dfa *d) {
    bool has_loop = false;
    for (int class = 0; d->n_states == 2 && class < d->n_classes; class ++)
        has_loop |= d->next[d->n_classes + class];
    return has_loop && d->start == 1;
}

// The index of the string with a language and a length; -1 after a failure, NO_TEXT if no text
// matches.
static int add_string(SchemaCompiler *c, int dfa, CountRange length) {
    enum { NO_TEXT = -2 };
    uint32_t key[] = {'"', (uint32_t)dfa, length.min, length.max};
    const Dfa *d = &c->grammar->defs[dfa].dfa;
    if (dfa_is_empty(d) || length.min > length.max) return NO_TEXT;
    int *string = language_find(&c->languages, key, sizeof key);
    if (*string != -1) return *string;

    StringDef s = {.trie = NONE, .dfa = dfa, .min = length.min, .max = length.max};
    s.limit = s.max == NO_LIMIT ? s.min : s.max;

    bool is_limited = s.min > 0 || s.max != NO_LIMIT;
    if (is_limited && !is_star(d) && !fill_live(c, &s)) return -1;
    *string = string_is_live(&s, d->start, 0)
                  ? grammar_add(c->grammar, (Def){DEF_STRING, .string = s})
                  : NO_TEXT;
    return *string;
}

// The DFA of the patterns, formats and excluded values of a conjunction; -1 after a failure.
static int find_language(SchemaCompiler *c, const Conjunction *f, CountRange *length) {
    Languages *l = &c->languages;
    int language = any_string(c);
    Buffer excluded = {0};

    for (const Conjunct *a = f->conjuncts; a && !c->failed; a = a->next) {
        const Format *format;
        const Json *v = a->json;
        bool is_not = a->is_negated;

        // Excluded values are collected and subtracted at the end.
        for (int i = 0; i < a->n_values; i++, v = v->next)
            if (v->kind == JSON_STRING) regex_put_literal(&excluded, v->string);

        if (a->kind != CONJUNCT_LANGUAGE) continue;
        int other = keyword_language(c, a->schema, a->json, is_not ? NULL : length, &format);
        if (other < 0) continue;

        // A generated text ends. A negated format excludes longer texts as well.
        uint32_t max = format ? format->max_generated : NO_LIMIT;
        if (!is_not && max < length->max) length->max = max;
        if (!is_not && language == any_string(c))
            language = other;
        else
            language = language_combine(l, language, is_not ? DFA_SUBTRACT : DFA_INTERSECT, other);
    }

    if (excluded.len) language = language_narrow(l, language, DFA_SUBTRACT, buffer_str(&excluded));
    buffer_free(&excluded);
    return schema_language(c, NULL, NULL, language);
}

static void emit_strings(SchemaCompiler *c, const Conjunction *f) {
    CountRange length = f->length;
    int language = find_language(c, f, &length);
    int string = language < 0 ? -1 : add_string(c, language, length);
    if (string >= 0) schema_add_alt(c, string);
}

const SchemaPart string_part = {keywords, TYPE_STRING, emit_strings, NULL, NULL};
