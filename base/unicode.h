// The three kinds of characters that Llama 3's pre-tokenizer tells apart.
#ifndef BASE_UNICODE_H
#define BASE_UNICODE_H

#include <stdint.h>

// \p{L}, \p{N} and \s (the property White_Space) of regular expressions; unassigned code points are
// OTHER.
typedef enum { UNICODE_OTHER, UNICODE_LETTER, UNICODE_NUMBER, UNICODE_SPACE } UnicodeClass;

enum { UNICODE_END = 0x323b0 }; // all from here on are OTHER
extern uint8_t unicode_classes[UNICODE_END];
// Fills the table; to be called before it is used.
void unicode_init(void);

static inline UnicodeClass unicode_class(uint32_t code) {
    return code < UNICODE_END ? (UnicodeClass)unicode_classes[code] : UNICODE_OTHER;
}

#endif
