// The formats of JSON Schema's "format" as regular expressions.
#pragma once

#include "base/text.h"

typedef struct {
    const char *name;
    const char *pattern;    // of the whole text (regex.h)
    uint32_t max_length;    // characters; UINT32_MAX: the RFC has no limit
    uint32_t max_generated; // characters of a generated text, so that it ends
} Format;

// The format with this name; NULL if it is unknown or an annotation.
const Format *format_find(Str name);
