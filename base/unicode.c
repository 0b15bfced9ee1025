// See unicode.h.
#include "base/unicode.h"

#include <stdlib.h>
#include <string.h>

extern const char unicode_table[]; // unicode_table.S; scripts/make_unicode.py describes its numbers

uint8_t unicode_classes[UNICODE_END];

uint32_t unicode_next_number(const char **s) {
    char *end;
    uint32_t number = (uint32_t)strtoul(*s, &end, 10);
    *s = end;
    return number;
}

void unicode_init(void) {
    enum {
        ALTERNATE = 15,
        UPPER = UNICODE_LETTER | UNICODE_UPPER,
        LOWER = UNICODE_LETTER | UNICODE_LOWER
    };
    const char *s = unicode_table;

    for (uint8_t *out = unicode_classes; out < unicode_classes + UNICODE_END;) {
        uint32_t run = unicode_next_number(&s);
        uint32_t class = run & 15, n = run >> 4;

        memset(out, class == ALTERNATE ? LOWER : (int)class, n);
        for (uint32_t k = 0; class == ALTERNATE && k < n; k += 2) out[k] = UPPER;
        out += n;
    }
}
