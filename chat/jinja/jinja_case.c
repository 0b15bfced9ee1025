// Upper, lower and title case of strings, as Python's. str_case() is the entry point.
//
// A character can become several ("ß" is "SS"), which all get its provenance mask. Only the Greek
// capital sigma depends on its neighbors: at the end of a word its lower case is a final sigma.
#include "base/unicode.h"
#include "chat/jinja/jinja_case_table.h"
#include "chat/jinja/jinja_strings.h"

typedef enum { TO_LOWER, TO_UPPER, TO_TITLE } CaseTarget; // indexes of case_specials.to

static const Text capital_sigma = {"Σ", NULL, 2}, final_sigma = {"ς", NULL, 2};

static bool text_is(Text a, Text b) { return str_eq(text_str(a), text_str(b)); }

// The other character of a pair, or 0.
static uint32_t paired(uint32_t code, bool to_lower) {
    for (size_t i = 0; i < sizeof case_pairs / sizeof *case_pairs; i++) {
        uint32_t distance = (uint32_t)case_pairs[i].distance; // modulo 2^32
        uint32_t n = case_pairs[i].n, step = case_pairs[i].step;
        uint32_t offset = code - case_pairs[i].first - (to_lower ? 0 : distance);
        if (offset < n * step && offset % step == 0)
            return to_lower ? code + distance : code - distance;
    }
    return 0;
}

// The case of a character, ignoring its neighbors. The result can be in utf8.
static Text converted(Text c, CaseTarget to, char utf8[4]) {
    uint32_t code = text_code(c);
    if (code < 0x80) { // without a search
        bool is_letter = (code | 32) - 'a' < 26;
        *utf8 = (char)(to == TO_LOWER ? code | 32 : code & ~32u);
        return is_letter ? (Text){utf8, NULL, 1} : c;
    }

    int kind = unicode_kind(code);
    bool has_case = kind & (UNICODE_UPPER | UNICODE_LOWER);
    if ((kind & UNICODE_CLASS) == UNICODE_LETTER && !has_case) return c;

    uint32_t other = paired(code, to == TO_LOWER);
    if (other) return (Text){utf8, NULL, (size_t)utf8_encode(other, utf8)};
    for (size_t i = 0; i < sizeof case_specials / sizeof *case_specials; i++)
        if (text_is(text_of(case_specials[i].from), c)) return text_of(case_specials[i].to[to]);
    return c;
}

static bool is_cased(Text c) {
    char utf8[4];
    int kind = unicode_kind(text_code(c));
    bool has_case = kind & (UNICODE_UPPER | UNICODE_LOWER);
    if ((kind & UNICODE_CLASS) == UNICODE_LETTER && has_case) return true;
    return !text_is(converted(c, TO_LOWER, utf8), c) || !text_is(converted(c, TO_UPPER, utf8), c);
}

// True for marks and for the punctuation within words (an excerpt of Unicode's Case_Ignorable).
static bool is_ignorable(Text c) {
    static const char others[] =
        "'.:^`\u00a8\u00ad\u00af\u00b4\u00b7\u00b8\u2018\u2019\u2024\u2027";
    int kind = unicode_kind(text_code(c));
    bool is_mark = (kind & UNICODE_CLASS) == UNICODE_OTHER && kind & UNICODE_MARK;
    return is_mark || (*c.data && str_find(str_of(others), text_str(c)) != SIZE_MAX);
}

// True if a sigma between two texts ends a word: the nearest character before it has a case, the
// nearest one after it has none.
static bool ends_word(Text before, Text after) {
    bool is_inside = false;
    while (before.len) {
        Text c = text_part(before, text_offset(before, -1), before.len);
        before.len -= c.len;
        if (is_ignorable(c)) continue;
        is_inside = is_cased(c);
        break;
    }
    if (!is_inside) return false;

    while (after.len) {
        Text c = text_next(&after);
        if (!is_ignorable(c)) return !is_cased(c);
    }
    return true;
}

// Appends a text in which all bytes have the mask of the character c.
static void put_as(Heap *h, Text t, Text c) {
    char mask[16];
    memset(mask, c.mask ? *c.mask : 0, sizeof mask);
    heap_put(h, (Text){t.data, mask, t.len});
}

// The case of the next character. The filter "title" uses the upper case.
static CaseTarget target_of(CaseRule rule, bool begins_word) {
    if (rule == CASE_UPPER) return TO_UPPER;
    if (rule == CASE_LOWER || !begins_word) return TO_LOWER;
    return rule == CASE_TITLE_FILTER ? TO_UPPER : TO_TITLE;
}

// True if a word begins after the character c. The method title() begins one after each character
// without case, the filter after white space and brackets.
static bool begins_after(CaseRule rule, Text c) {
    if (rule == CASE_TITLE) return !is_cased(c);
    if (rule != CASE_TITLE_FILTER) return false;
    bool is_space = !text_strip(c, WHITE_SPACE, true, false).len;
    return is_space || (*c.data && strchr("-({[<", *c.data));
}

Value str_case(Heap *h, const Args *a) {
    Text t = value_str(h, a->self);
    CaseRule rule = (CaseRule)a->variant;
    size_t start = h->out.len;
    size_t word = 0;         // offset of the text that decides on a final sigma
    bool begins_word = true; // the next character begins a word

    for (Text rest = t; rest.len;) {
        size_t at = t.len - rest.len;
        Text c = text_next(&rest);
        CaseTarget to = target_of(rule, begins_word);
        if (c.len > 1) heap_spend(h, 4); // for the search

        char utf8[4];
        Text out = converted(c, to, utf8);
        bool is_sigma = to == TO_LOWER && text_is(c, capital_sigma);
        if (is_sigma && ends_word(text_part(t, word, at), rest)) out = final_sigma;
        put_as(h, out, c);

        if (rule == CASE_TITLE_FILTER && begins_word)
            word = at + c.len; // words are converted alone
        begins_word = begins_after(rule, c);
    }

    return heap_pop_string(h, start);
}
