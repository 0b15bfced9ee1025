// The three kinds of characters that Llama 3's pre-tokenizer tells apart.
#ifndef BASE_UNICODE_H
#define BASE_UNICODE_H

#include <stdint.h>

// \p{L}, \p{N} and \s (the property White_Space) of regular expressions; unassigned code points are OTHER.
typedef enum { UNICODE_OTHER, UNICODE_LETTER, UNICODE_NUMBER, UNICODE_SPACE } UnicodeClass;

UnicodeClass unicode_class(uint32_t code);
extern const uint8_t unicode_ascii[128]; // the classes of U+0000..U+007F

#endif
