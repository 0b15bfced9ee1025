// The formats of JSON Schema's "format" as regular expressions.
#pragma once

#include "../base/text.h"

typedef struct {
    const char *name;
    const char *pattern;    // of the whole text (regex.h); NULL: not supported
    uint32_t max_length;    // characters; UINT32_MAX: the RFC has no limit
    uint32_t max_generated; // so that generated texts end
} Format;

// The standard format with this name; NULL if there is none.
const Format *format_find(Str name);
