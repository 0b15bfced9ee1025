// Options of llama.cpp that have another name here, no effect, or no equivalent.
//
// Users and scripts bring llama.cpp command lines along. spelling_translate() is called for an
// option that the table in options.c does not have.
#pragma once

#include "../base/text.h"

typedef enum {
    SPELLING_UNKNOWN,       // not an option of llama.cpp
    SPELLING_OPTION,        // *name is now the name it has here
    SPELLING_IGNORED,       // accepted without effect
    SPELLING_IGNORED_VALUE, // the same, and so is the argument that follows
    SPELLING_REFUSED        // no equivalent: err says why (exit 2)
} Spelling;

// Looks up *name, an option of llama.cpp. `value` is the next argument or the text after '='
// (NULL: none); `kv_type` is the --kv given so far (NULL: none).
Spelling spelling_translate(const char **name, const char *value, const char *kv_type, Error *err);
