// Options that have another name here, no effect, or no equivalent, most of them llama.cpp's;
// commands of ollama that have no equivalent.
//
// Command lines written for llama.cpp should work here. spelling_translate() is called for an
// option that is not in the table of options.c, and for an unknown command. What it does is a row
// of the table in spellings.c.
#pragma once

#include "base/text.h"

typedef enum {
    SPELLING_UNKNOWN,       // not in the table
    SPELLING_OPTION,        // the name and the value were replaced by those of the option table
    SPELLING_VALUE,         // the same, but the typed option takes no value
    SPELLING_IGNORED,       // accepted without effect
    SPELLING_IGNORED_VALUE, // accepted without effect, together with its value
    SPELLING_REFUSED,       // no equivalent: err says why
    SPELLING_SAMPLER        // the same; a sampling method, which batch records cannot use either
} Spelling;

// An option or a command as it was typed, and what it means.
typedef struct {
    const char *name;    // replaced by the name in the option table
    const char *value;   // the next argument or the text after '='; NULL: none
    const char *command; // NULL: none
    const char *kv_type; // the value of --kv so far; NULL: not a command line
    char *const *args;   // the arguments from the option on, then NULL; NULL: none
    char dashed[64];     // space for the name
} TypedOption;

// Looks up an option or a command and translates it. A refusal sets err: exit 2, or 1 for a file
// that does not exist.
Spelling spelling_translate(TypedOption *typed, Error *err);
