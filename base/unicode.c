// See unicode.h.
#include "base/unicode.h"

extern const char unicode_table[]; // unicode_table.S; scripts/make_unicode.py describes its numbers

uint8_t unicode_classes[UNICODE_END];

// The general categories by their numbers in the table: the names of each and of the groups to
// which it belongs, and its entry in unicode_classes.
static const struct {
    const char *names;
    uint8_t kind;
} categories[] = {
    {"Cn Unassigned C Other", UNICODE_OTHER},
    {"Lu Uppercase_Letter LC Cased_Letter L Letter", UNICODE_LETTER | UNICODE_UPPER},
    {"Ll Lowercase_Letter LC Cased_Letter L Letter", UNICODE_LETTER | UNICODE_LOWER},
    {"Lt Titlecase_Letter LC Cased_Letter L Letter", UNICODE_LETTER | UNICODE_UPPER},
    {"Lm Modifier_Letter L Letter", UNICODE_LETTER},
    {"Lo Other_Letter L Letter", UNICODE_LETTER},
    {"Mn Nonspacing_Mark M Mark Combining_Mark", UNICODE_MARK},
    {"Mc Spacing_Mark M Mark Combining_Mark", UNICODE_MARK},
    {"Me Enclosing_Mark M Mark Combining_Mark", UNICODE_MARK},
    {"Nd Decimal_Number digit N Number", UNICODE_NUMBER},
    {"Nl Letter_Number N Number", UNICODE_NUMBER},
    {"No Other_Number N Number", UNICODE_NUMBER},
    {"Pc Connector_Punctuation P Punctuation punct", UNICODE_OTHER},
    {"Pd Dash_Punctuation P Punctuation punct", UNICODE_OTHER},
    {"Ps Open_Punctuation P Punctuation punct", UNICODE_OTHER},
    {"Pe Close_Punctuation P Punctuation punct", UNICODE_OTHER},
    {"Pi Initial_Punctuation P Punctuation punct", UNICODE_OTHER},
    {"Pf Final_Punctuation P Punctuation punct", UNICODE_OTHER},
    {"Po Other_Punctuation P Punctuation punct", UNICODE_OTHER},
    {"Sm Math_Symbol S Symbol", UNICODE_OTHER},
    {"Sc Currency_Symbol S Symbol", UNICODE_OTHER},
    {"Sk Modifier_Symbol S Symbol", UNICODE_OTHER},
    {"So Other_Symbol S Symbol", UNICODE_OTHER},
    {"Zs Space_Separator Z Separator", UNICODE_SPACE},
    {"Zl Line_Separator Z Separator", UNICODE_SPACE},
    {"Zp Paragraph_Separator Z Separator", UNICODE_SPACE},
    {"Cc Control cntrl C Other", UNICODE_OTHER},
    {"Cf Format C Other", UNICODE_OTHER},
    {"Cs Surrogate C Other", UNICODE_OTHER},
    {"Co Private_Use C Other", UNICODE_OTHER},
    {"Cc Control cntrl C Other", UNICODE_SPACE}, // white space
};

uint32_t unicode_next_number(const char **s) {
    char *end;
    uint32_t number = (uint32_t)strtoul(*s, &end, 10);
    *s = end;
    return number;
}

uint32_t unicode_categories(Str name) {
    uint32_t set = 0;
    for (uint32_t i = 0; i < sizeof categories / sizeof *categories; i++)
        if (str_is_one_of(name, categories[i].names)) set |= 1u << i;
    return set;
}

bool unicode_next_run(UnicodeRun *r) {
    if (!r->at) r->at = unicode_table;
    uint32_t number = unicode_next_number(&r->at);
    r->category = number & 31;
    r->first = r->end;
    r->end += number >> 5;
    return number;
}

Str unicode_strip_end(Str s) {
    while (s.len) {
        size_t at = s.len - 1; // the last character
        while (at > 0 && ((unsigned char)s.data[at] & 0xc0) == 0x80) at--;

        uint32_t code;
        if (!utf8_decode(s.data + at, s.len - at, &code) || !unicode_is_space(code)) break;
        s.len = at;
    }
    return s;
}

void unicode_init(void) {
    UnicodeRun r = {0};
    while (r.end < UNICODE_END && unicode_next_run(&r)) // a run ends at UNICODE_END
        memset(unicode_classes + r.first, categories[r.category].kind, r.end - r.first);
}
