// Characters read byte by byte: UTF-8, and the escapes of JSON strings.
//
// A partial character is one number, so that it can be part of a machine's state. The top byte is
// the notation and the amount read; the low 24 bits are the bits of the code point so far.
// For example, after the bytes \ud8 the top byte means "two hexadecimal digits", and the bits are
// 0xd8.
#pragma once

#include "constrain/nfa.h"

enum { CHAR_COMPLETE = 0, CHAR_INVALID = 0xff };

// The partial character after one more byte. CHAR_COMPLETE: the character is complete, *code is
// set. CHAR_INVALID: no character begins with these bytes. char_step_json() reads the inside of a
// JSON string; the caller handles the closing quote. An escape is read only for characters without
// a shorter spelling.
uint32_t char_step_utf8(uint32_t partial, int byte, uint32_t *code);
uint32_t char_step_json(uint32_t partial, int byte, uint32_t *code);

// The code points that a partial character can become. Returns the number of ranges.
enum { CHAR_MAX_RANGES = 5 };
int char_ranges(uint32_t partial, CodeRange out[CHAR_MAX_RANGES]);
