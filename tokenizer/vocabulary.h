// The tokenizer's vocabulary: the metadata tokenizer.ggml.* of a GGUF file, in the form that
// encoding needs. Internal to tokenizer.c and tokenizer/; all other files include tokenizer.h.
//
// A token is either ordinary or special. Ordinary tokens are found by their bytes in a hash table;
// merging produces only ordinary tokens. Special tokens (control, user-defined, unknown, reserved)
// are searched for in the text before it is cut into pieces, and are kept sorted by their text.
#pragma once

#include "tokenizer/pretokenize.h"
#include "tokenizer.h"
#include "base/hash.h"

// Values of tokenizer.ggml.token_type, and two that only this program uses.
typedef enum {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN,
    TOKEN_CONTROL,
    TOKEN_USER_DEFINED,
    TOKEN_UNUSED,
    TOKEN_BYTE,
    TOKEN_UNREACHABLE, // ordinary, but no text can produce it
    TOKEN_RESERVED     // parsed like a control token, but its bytes are part of the output
} TokenType;

enum {
    VOCABULARY_MAX_STOPS = 64,         // models have one to five; more than are known by name
    VOCABULARY_MAX_RESERVED = 64,      // limit of ordinary tokens that a template can make special
    VOCABULARY_MAX_SPECIAL_BYTES = 255 // longer special tokens are not recognized in text
};

// Tokens left and right merge. The index of a rule is its rank: lower ranks are applied first.
typedef struct {
    int left, right;
    int next; // another rule for the same merged token, or -1
} MergeRule;

typedef struct {
    Str text;
    int id;
    int prefix;              // index of the longest special token that is a proper prefix, or -1
    int user_defined_prefix; // index of the longest such token that is user-defined, or -1
} SpecialToken;

// Ordinary tokens by their bytes: a hash table with open addressing. A slot holds, from the highest
// bit down,
//
//     | bits of the hash | id + 1 |     0: free
//
// with as many low bits as the largest id needs. The hash bits reject most wrong slots without a
// comparison of the token's bytes.
typedef struct {
    uint32_t *slots;
    uint32_t tag_mask; // the hash bits of a slot
    size_t slot_mask;  // number of slots - 1
} OrdinaryTokens;

typedef struct {
    SpecialToken *tokens; // (n) in the order of str_compare
    int n, n_reserved;
    bool is_first_byte[256]; // bytes that a special token begins with
    bool has_user_defined;   // there are user-defined tokens
} SpecialTokens;

typedef struct {
    int ids[VOCABULARY_MAX_STOPS], n;
    const char *origins[VOCABULARY_MAX_STOPS]; // (n) see tokenizer_stop_origin()
} StopTokens;

// The texts that get a space in front. The last two are those of Metaspace in tokenizer.json.
typedef enum {
    PREFIX_EVERY,  // every text, and text after a special token (SentencePiece)
    PREFIX_ALWAYS, // the same, except text that begins with a space
    PREFIX_FIRST   // a text that does not begin with a space; not after a special token
} PrefixScheme;

struct Tokenizer {
    Arena memory;                     // of all tables
    const char *path;                 // of the file, for messages
    bool is_sentencepiece;            // else byte-level BPE
    const Pretokenizer *pretokenizer; // of byte-level BPE
    bool adds_bos;                    // texts begin with BOS
    bool has_space_prefix;            // texts get a space in front (SentencePiece)
    PrefixScheme prefix_scheme;       // with has_space_prefix
    bool has_split_words;             // no token has a space after a non-space byte

    int n;            // tokens
    uint8_t *type;    // (n) TokenType
    char *bytes;      // the bytes of all tokens, one token after another
    uint32_t *start;  // (n + 1) token i has bytes [start[i], start[i + 1])
    uint32_t *rank;   // (n) lowest for the highest score; NULL: the rank of a token is its id
    int byte_id[256]; // token of each single byte
    size_t max_bytes; // of the longest token

    OrdinaryTokens table;

    MergeRule *merges; // byte-level BPE; NULL: two tokens merge if their bytes together are a token
    int *first_merge;  // (n) first rule that makes the token (then MergeRule.next), or -1

    SpecialTokens special;
    int bos, eos, unknown; // -1: none
    StopTokens stop;
};

// Hash of a token's bytes. Seeded with an address, so that no file can provoke collisions.
static inline uint64_t token_hash(const Tokenizer *t, const char *s, size_t n) {
    return hash_bytes((uintptr_t)t * 0x9e3779b97f4a7c15u, s, n);
}

// The ordinary token with these bytes and their hash h, or -1.
static inline int vocabulary_find_hashed(const Tokenizer *t, uint64_t h, const char *s, size_t n) {
    for (size_t i = h & t->table.slot_mask; t->table.slots[i]; i = (i + 1) & t->table.slot_mask) {
        uint32_t slot = t->table.slots[i];
        if ((slot ^ h >> 32) & t->table.tag_mask) continue;
        int id = (int)(slot & ~t->table.tag_mask) - 1;
        if (t->start[id + 1] - t->start[id] == n && !memcmp(t->bytes + t->start[id], s, n))
            return id;
    }
    return -1;
}

static inline int vocabulary_find(const Tokenizer *t, const char *s, size_t n) {
    return vocabulary_find_hashed(t, token_hash(t, s, n), s, n);
}

// Loads the vocabulary from the metadata. t->path must be set. False with err.
bool vocabulary_load(Tokenizer *t, const Gguf *g, Error *err);
// The longest special token that s (n bytes) begins with, or -1. A token that is not user-defined
// must end within the first n_template bytes, which a chat template wrote.
int vocabulary_match_special(const Tokenizer *t, const char *s, size_t n, size_t n_template);
// The special token with this text, or -1.
int vocabulary_find_special(const Tokenizer *t, Str s);
// Turns an ordinary token into a special token (TOKEN_RESERVED).
void vocabulary_reserve_token(Tokenizer *t, int id);
// Adds the stop tokens that models use without naming them in their metadata.
void vocabulary_add_known_stops(Tokenizer *t);
// Copies s and replaces U+2581, SentencePiece's visible space, with a space; returns the number of
// bytes written.
size_t sentencepiece_unescape(Str s, char *out);
