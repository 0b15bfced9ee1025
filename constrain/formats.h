// The formats of JSON Schema's "format": regular expressions of strings, and ranges of integers.
//
// A format accepts all that its RFC does. Of these texts, only those are generated that common
// libraries read: `T` and `Z` in upper case, years from 0001, no leap seconds, durations of days to
// seconds, e-mail addresses of letters, digits and `_+-.` at hosts with a dot, and URIs with more
// than a scheme before the query.
#pragma once

#include "base/json.h"

typedef struct {
    const char *name;
    const char *pattern;    // of the whole text (regex.h); NULL: of an integer
    const char *generated;  // of the texts that are generated, if they are fewer; or NULL
    uint32_t max_length;    // characters; UINT32_MAX: the RFC has no limit
    uint32_t max_generated; // characters of a generated text, so that it ends
    bool (*is_valid)(Str);  // checks what the pattern allows; NULL: nothing more
    Json bounds[2];         // of an integer
} Format;

// The format with this name; NULL if it is unknown or an annotation.
const Format *format_find(Str name);
