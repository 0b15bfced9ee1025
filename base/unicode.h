// General categories of Unicode 16.0, and the classes that pre-tokenizers distinguish.
#pragma once

#include "base/text.h"

// \p{L}, \p{N} and \s (property White_Space) of regular expressions. Unassigned code points are
// OTHER.
typedef enum { UNICODE_OTHER, UNICODE_LETTER, UNICODE_NUMBER, UNICODE_SPACE } UnicodeClass;
// Bits 0 and 1 of a table entry hold the class, the bits above them hold flags. UPPER (Lu and Lt)
// and LOWER (Ll) apply to letters. MARK (M) applies to OTHER and shares its bit with UPPER.
enum { UNICODE_CLASS = 3, UNICODE_UPPER = 4, UNICODE_MARK = 4, UNICODE_LOWER = 8 };

// Code points from UNICODE_END on are OTHER without flags, except variation selectors, which are
// marks.
enum { UNICODE_END = 0x323b0, UNICODE_SELECTORS = 0xe0100, UNICODE_SELECTORS_END = 0xe01f0 };
extern uint8_t unicode_classes[UNICODE_END];
// Fills the table. Call once before using it.
void unicode_init(void);

// Without white space (unicode_is_space) at the end.
Str unicode_strip_end(Str s);

// The general categories with this name as a set of bits: "Lu", "Uppercase_Letter", "L", "Letter".
// 0 if there is none.
uint32_t unicode_categories(Str name);

// A run of the code points [first, end) of one category. Begins zero-initialized.
typedef struct {
    const char *at;
    uint32_t first, end, category;
} UnicodeRun;
bool unicode_next_run(UnicodeRun *r); // false after the last code point

// Reads the next decimal number of an embedded table.
uint32_t unicode_next_number(const char **s);

static inline int unicode_kind(uint32_t code) {
    if (code < UNICODE_END) return unicode_classes[code];
    return code >= UNICODE_SELECTORS && code < UNICODE_SELECTORS_END ? UNICODE_MARK : UNICODE_OTHER;
}
static inline UnicodeClass unicode_class(uint32_t code) {
    return (UnicodeClass)(unicode_kind(code) & UNICODE_CLASS);
}
// White space as Python's str.strip() has it: the class, and the separators U+001C to U+001F.
static inline bool unicode_is_space(uint32_t code) {
    return unicode_class(code) == UNICODE_SPACE || (code >= 0x1c && code <= 0x1f);
}
