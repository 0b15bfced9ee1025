// The kinds of characters that pre-tokenizers tell apart.
#ifndef BASE_UNICODE_H
#define BASE_UNICODE_H

#include <stdint.h>

// \p{L}, \p{N} and \s (the property White_Space) of regular expressions; unassigned code points are
// OTHER.
typedef enum { UNICODE_OTHER, UNICODE_LETTER, UNICODE_NUMBER, UNICODE_SPACE } UnicodeClass;
// Beside the class: upper and title case (Lu, Lt), and marks (M), which are OTHER; lower case (Ll).
enum { UNICODE_CLASS = 3, UNICODE_UPPER = 4, UNICODE_MARK = 4, UNICODE_LOWER = 8 };

// All from here on are OTHER, and no marks but for the variation selectors.
enum { UNICODE_END = 0x323b0, UNICODE_SELECTORS = 0xe0100, UNICODE_SELECTORS_END = 0xe01f0 };
extern uint8_t unicode_classes[UNICODE_END]; // class, and what is beside it
// Fills the table; to be called before it is used.
void unicode_init(void);

static inline int unicode_kind(uint32_t code) {
    if (code < UNICODE_END) return unicode_classes[code];
    return code >= UNICODE_SELECTORS && code < UNICODE_SELECTORS_END ? UNICODE_MARK : UNICODE_OTHER;
}
static inline UnicodeClass unicode_class(uint32_t code) {
    return (UnicodeClass)(unicode_kind(code) & UNICODE_CLASS);
}

#endif
