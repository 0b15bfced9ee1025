// Options that llama.cpp's users type and this program spells otherwise, does not need, or cannot
// serve.
#ifndef CLI_SPELLINGS_H
#define CLI_SPELLINGS_H

typedef enum {
    SPELLING_SAME,   // means what `text` means here
    SPELLING_TWIN,   // the same, but two of it must agree
    SPELLING_FLAG,   // changes nothing here
    SPELLING_SWITCH, // the same, and "on", "off" or "auto" may follow
    SPELLING_VALUE,  // the same, with a value
    SPELLING_NEVER   // cannot be served, for the reason in `text`
} SpellingKind;

typedef struct {
    const char *name;
    SpellingKind kind;
    const char *text;
} Spelling;

// NULL if llama.cpp has no such option, or we have it too.
const Spelling *spelling_find(const char *name);

#endif
