// Unicode Normalization Form C (Unicode Standard Annex #15): characters that can be written as a
// letter with marks, or as one character, become one. "e" and U+0301 become U+00E9.
//
// Bytes outside of valid UTF-8 stay as they are and separate the characters around them.
#pragma once

#include "base/memory.h"

// Builds the tables. Call once before the function below.
void nfc_init(void);
// Replaces the text of *n bytes at *s by its form C in memory of `a`, unless it has this form.
void nfc_normalize(const char **s, size_t *n, Arena *a);
