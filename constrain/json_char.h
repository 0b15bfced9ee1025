// Characters read byte by byte: UTF-8, and the escapes of JSON strings.
//
// A partial character is one number, so that it can be part of a machine's state: how it is written
// and how far (the top byte), and the bits of the code point so far (the low 24 bits). For example,
// after the bytes \ud8 of an escape it is "2 hexadecimal digits", bits 0xd8.
#pragma once

#include "nfa.h"

enum { CHAR_COMPLETE = 0, CHAR_INVALID = 0xff };

// The partial character after one more byte: CHAR_COMPLETE, which sets *code; CHAR_INVALID; or
// another. Of plain UTF-8; of the inside of a JSON string, whose closing quote is the caller's.
uint32_t char_step_utf8(uint32_t partial, int byte, uint32_t *code);
uint32_t char_step_json(uint32_t partial, int byte, uint32_t *code);

// The code points that a partial character can become. Returns the number of ranges.
enum { CHAR_MAX_RANGES = 5 };
int char_ranges(uint32_t partial, CodeRange out[CHAR_MAX_RANGES]);
