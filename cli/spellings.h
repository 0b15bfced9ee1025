// Options that have another name here, no effect, or no equivalent, most of them llama.cpp's;
// commands of ollama that have no equivalent.
//
// Command lines written for llama.cpp should work here. spelling_translate() is called for an
// option that is not in the table of options.c, and for an unknown command.
#pragma once

#include "base/text.h"

typedef enum {
    SPELLING_UNKNOWN,       // not in the table
    SPELLING_OPTION,        // *name was replaced by the name in the option table
    SPELLING_FILE,          // the same, and "@" was put before *value, the name of a file
    SPELLING_EXISTING,      // as SPELLING_OPTION; *value is a file that must exist
    SPELLING_INVERSE,       // as SPELLING_OPTION, and *value, a number, was replaced by its inverse
    SPELLING_VALUE,         // the same, and *value was replaced; the option itself takes none
    SPELLING_IGNORED,       // accepted without effect
    SPELLING_IGNORED_VALUE, // accepted without effect, together with its value
    SPELLING_REFUSED,       // no equivalent: err says why (exit 2)
    SPELLING_SAMPLER        // the same; a sampling method, which batch records cannot use either
} Spelling;

// Looks up *name, an option or a command. *value is the next argument or the text after '=' (NULL:
// none); `kv_type` is the --kv given so far (NULL: none).
Spelling spelling_translate(const char **name, const char **value, const char *kv_type, Error *err);
