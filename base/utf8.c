// See utf8.h.
#include "base/utf8.h"

#include <stdbool.h>
#include <string.h>

// Length of a character by its first byte; 0 if no character begins with this byte.
static int length_by_first(unsigned char first) {
    if (first < 0x80) return 1;
    if (first < 0xc2 || first > 0xf4) return 0; // continuation, overlong form or above U+10FFFF
    if (first < 0xe0) return 2;
    return first < 0xf0 ? 3 : 4;
}

size_t utf8_length(const char *s, size_t n) {
    size_t length = 0;
    for (size_t i = 0; i < n; i++) length += ((unsigned char)s[i] & 0xc0) != 0x80;
    return length;
}

int utf8_decode(const char *s, size_t n, uint32_t *code) {
    const unsigned char *u = (const unsigned char *)s;
    if (n == 0) return 0;
    if (u[0] < 0x80) {
        *code = u[0];
        return 1;
    }

    int len = length_by_first(u[0]);
    if (!len || (size_t)len > n) return 0;

    uint32_t c = u[0] & (0x7fu >> len);
    for (int i = 1; i < len; i++) {
        if ((u[i] & 0xc0) != 0x80) return 0;
        c = c << 6 | (u[i] & 0x3f);
    }

    // The smallest code point of each length; a smaller one is an overlong form.
    static const uint32_t smallest[5] = {0, 0, 0x80, 0x800, 0x10000};
    bool is_surrogate = c >= 0xd800 && c < 0xe000;
    if (c < smallest[len] || c > 0x10ffff || is_surrogate) return 0;

    *code = c;
    return len;
}

int utf8_encode(uint32_t c, char out[4]) {
    if (c < 0x80) {
        (void)(out[0] = (char)c);
        return 1;
    }
    int len = 2;
    if (c >= 0x800) len = 3;
    if (c >= 0x10000) len = 4;

    for (int i = len - 1; i > 0; i--, c >>= 6) out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)((0xf00u >> len) | c);
    return len;
}

size_t utf8_complete(const char *s, size_t n) {
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        unsigned char c = (unsigned char)s[n - back];
        if ((c & 0xc0) == 0x80) continue;
        return (size_t)length_by_first(c) > back ? n - back : n;
    }
    return n;
}

// Bidirectional overrides and isolates can make a text look like a different text.
static bool is_bidi_control(uint32_t code) {
    return (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

size_t utf8_escape(const char *s, size_t n, const char *keep, char out[17]) {
    static const char digits[] = "0123456789abcdef";
    uint32_t code;
    int len = utf8_decode(s, n, &code), n_read = len ? len : 1;
    bool is_text = len && code >= 0x20 && (code < 0x7f || code >= 0xa0) && !is_bidi_control(code);
    bool is_kept = is_text || (len && code && code < 0x80 && strchr(keep, (int)code));

    for (int i = 0; i < n_read; i++) {
        unsigned char c = (unsigned char)s[i];
        if (is_kept)
            *out++ = (char)c;
        else
            out = (char *)memcpy(out, (char[4]){'\\', 'x', digits[c >> 4], digits[c & 15]}, 4) + 4;
    }

    *out = 0;
    return (size_t)n_read;
}
