// Special tokens of a chat template that its vocabulary does not list as control tokens.
//
// The entry is tokenizer_reserve_special(). A reserved token is recognized where a template wrote
// it, and its bytes remain part of the decoded text.
#include "tokenizer/vocabulary.h"

#include <ctype.h>

enum { MAX_NAME = 64 }; // bytes of the longest name that can be reserved

static bool is_ascii_punctuation(char c) {
    return c > ' ' && c < 0x7f && !isalnum((unsigned char)c);
}

// True if s has the form of a special token, such as <|im_start|> or [INST]: punctuation at both
// ends and a letter between them.
static bool is_special_name(Str s) {
    bool has_letter = false;
    for (size_t i = 1; i + 1 < s.len; i++)
        has_letter |= isalpha((unsigned char)s.data[i]) || (s.data[i] & 0x80);
    return has_letter && is_ascii_punctuation(s.data[0]) && is_ascii_punctuation(s.data[s.len - 1]);
}

// True if ordinary text can be encoded to this ordinary token, with bytes s. Names that begin with
// "<|" count as unreachable: no pre-tokenizer makes a piece that begins with "<|" and a letter.
static bool is_reachable(const Tokenizer *t, int id, Str s) {
    static const char provenance[MAX_NAME]; // all bytes are data
    Ids ids = {0};
    tokenizer_encode_masked(t, s.data, provenance, s.len, true, &ids);
    bool is_same = ids.len == 1 && ids.data[0] == id;
    free(ids.data);
    return is_same && memcmp(s.data, "<|", 2);
}

// Reserves a user-defined token that looks like a special token.
static void reserve_user_defined(Tokenizer *t, const SpecialToken *special) {
    Str s = special->text;
    uint8_t *type = &t->type[special->id];
    if (*type != TOKEN_USER_DEFINED || s.len <= 2) return;
    bool has_brackets = strchr("<[", s.data[0]) && strchr(">]", s.data[s.len - 1]);
    if (has_brackets && is_special_name(s)) *type = TOKEN_RESERVED;
}

// Reserves the token of a name in the template, such as <think>, that is ordinary or user-defined.
static void reserve_name(Tokenizer *t, Str name) {
    int special = vocabulary_find_special(t, name);
    if (special >= 0) {
        uint8_t *type = &t->type[special];
        if (*type == TOKEN_USER_DEFINED) *type = TOKEN_RESERVED;
        return;
    }

    int ordinary = vocabulary_find(t, name.data, name.len);
    if (ordinary >= 0 && !is_reachable(t, ordinary, name)) vocabulary_reserve_token(t, ordinary);
}

// Some files list the special tokens of their chat template as user-defined or even as ordinary
// tokens, which a user could type. Therefore every substring of the template that has the form of a
// special token is looked up in the vocabulary.
void tokenizer_reserve_special(Tokenizer *t, Str text) {
    for (int i = 0; i < t->special.n; i++) reserve_user_defined(t, &t->special.tokens[i]);

    for (size_t i = 0; i < text.len; i++) {
        if (!is_ascii_punctuation(text.data[i])) continue;
        for (size_t n = 3; n <= MAX_NAME && n <= text.len - i; n++) {
            Str s = {text.data + i, n};
            if (is_ascii_punctuation(s.data[n - 1]) && is_special_name(s)) reserve_name(t, s);
        }
    }

    vocabulary_add_known_stops(t);
}
