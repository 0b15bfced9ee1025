// UTF-8: decoding, encoding, and escaping for display.
#pragma once

#include <stddef.h>
#include <stdint.h>

// Length of the character at s (1 to 4) and its code point; 0 if the n bytes do not begin with
// valid UTF-8.
int utf8_decode(const char *s, size_t n, uint32_t *code);
int utf8_encode(uint32_t code, char out[4]);
size_t utf8_length(const char *s, size_t n); // characters of valid UTF-8
// The number of bytes up to the last complete character: excludes a trailing sequence that more
// bytes could make valid.
size_t utf8_complete(const char *s, size_t n);
// Writes the next character of s as text that is safe to display, NUL-terminated: itself, or \xNN
// for each byte if it is a control character not listed in `keep`, a bidirectional override, or
// invalid UTF-8. Returns the number of bytes read (n > 0).
size_t utf8_escape(const char *s, size_t n, const char *keep, char out[17]);
