// See unicode.h.
#include "base/unicode.h"

#include <stdlib.h>
#include <string.h>

extern const char unicode_table[]; // unicode_table.S; scripts/make_unicode.py describes its numbers

uint8_t unicode_classes[UNICODE_END];

void unicode_init(void) {
    enum {
        ALTERNATE = 15,
        UPPER = UNICODE_LETTER | UNICODE_UPPER,
        LOWER = UNICODE_LETTER | UNICODE_LOWER
    };
    const char *s = unicode_table;

    for (uint8_t *out = unicode_classes; out < unicode_classes + UNICODE_END;) {
        char *end;
        unsigned long run = strtoul(s, &end, 10);
        size_t class = run & 15, n = run >> 4;

        memset(out, class == ALTERNATE ? LOWER : (int)class, n);
        for (size_t k = 0; class == ALTERNATE && k < n; k += 2) out[k] = UPPER;
        out += n;
        s = end;
    }
}
