// Both tokenizers cut a text into pieces and then merge, within each piece, the best pair of
// neighbours, until none is left.
//
// Bytes (Llama 3 and its kin): the pieces are those of a regular expression, see split.c; parts
// are bytes; a pair's rank is its place in a list of merges, or the token that it makes, see
// load_merges(); Llama 3 and Tekken take a piece that is a token at once.
//
// SentencePiece BPE (Llama 2): a piece is a word with the spaces in front of it, see next_word();
// parts are characters, of which those that are no token become tokens of bytes; the best pair has
// the highest score; a whole piece must be reached by merges.
//
// Text that is not valid UTF-8: each byte outside a valid character is a character of its own,
// neither letter, number nor space. Its bytes are kept, so decoding gives back the same bytes
// whatever they are. (One exception is SentencePiece's own: U+2581, which stands for a space there,
// comes back as one.)
//
// Meta's tokenizer cuts runs of 25,000 (non-)spaces, and texts of 400,000 characters, before the
// expression sees them; tiktoken itself and all other programs do not, and neither do we.
#include "tokenizer.h"
#include "base/unicode.h"
#include "pretokenize.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// tokenizer.ggml.token_type, and two of our own: a claimed token is a control token whose bytes are
// shown
enum { UNDEFINED, NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE, UNREACHABLE, CLAIMED };
enum {
    MAX_STOPS = 16,      // ids that end an answer: models have one to five
    MAX_CACHED = 64,     // bytes of a piece worth remembering; words are shorter
    FEW_SEEN = 64,       // pieces remembered, on the stack, and
    MOST_SEEN = 1 << 14, // of a long text: 384 KiB, which L2 holds
    MAX_NAME = 255,      // bytes of a control token that is found in a text: a bound on the work
    N_LETTERS = 0x144,   // GPT-2's letters for bytes end before it
    CHECKED_MERGES = 1000
};
enum { GONE = -2, MAX_CLAIMS = 64, CLAIM_BYTES = 64 };
static const uint32_t NO_RANK = UINT32_MAX;

// Tokens by their bytes, open addressing: id + 1 in the low bits, some of the hash above them; 0 is
// free.
typedef struct {
    uint32_t *slots, tag_mask;
    size_t mask;
} Table;

// A pair of tokens that a list of merges makes one of.
typedef struct {
    int left, right, id; // id -1: a free slot
    uint32_t rank;
} Merge;

// A token that stands in a text under its name.
typedef struct {
    Str s;
    int id, shorter[2]; // indices of the longest other name, and the longest user-defined one, that
                        // s begins with, -1: none
} Name;

struct Tokenizer {
    const char *file; // for messages
    const Pretokenizer *split;
    Merge *merges; // by their tokens, open addressing; NULL: whatever two tokens make a token merge
    size_t merge_mask;
    int n;
    bool is_sentencepiece, adds_bos, has_prefix;
    bool is_split; // SentencePiece: no token has a space after other bytes, so that words never
                   // merge
    int bos, eos, unknown; // -1: none
    uint8_t *type;         // (n)
    uint32_t *start;       // (n + 1): token i is bytes[start[i]] .. bytes[start[i + 1]]
    char *bytes;           // decoded: no GPT-2 letters, no U+2581, no <0x0A>
    uint32_t *rank;        // (n) order of merging, equal for equal scores; NULL: the id
    int byte_id[256];      // the token of each byte, -1: none
    Table words;           // what merging can reach
    Name *names;           // (n_names) control, user-defined and unknown tokens, by their bytes
    int n_names;
    size_t longest; // of words
    bool is_name_start[256], has_user_defined;
    int stops[MAX_STOPS], n_stops, n_claims;
};

// A message about the vocabulary; false.
#define refuse(t, err, fmt, ...)                                                                   \
    error_set(err, EXIT_MODEL, "%s: tokenizer.ggml: " fmt, (t)->file, __VA_ARGS__)

void ids_push(Ids *ids, int id) {
    if (ids->len == ids->cap) {
        if (ids->cap > INT_MAX / 2) die(EXIT_RUNTIME, "out of memory: too many tokens");
        ids->cap = ids->cap ? 2 * ids->cap : 64;
        ids->data = xrealloc(ids->data, (size_t)ids->cap, sizeof *ids->data);
    }
    ids->data[ids->len++] = id;
}

// A multiplication moves bits up only, so that the upper half is brought down before and after it.
static uint64_t mix(uint64_t a, uint64_t odd) {
    a = (a ^ a >> 32) * odd;
    return a ^ a >> 29;
}

// Seeded with an address, so that no file can be made of colliding tokens.
static uint64_t hash(const Tokenizer *t, const char *s, size_t n) {
    uint64_t h = (uintptr_t)t * 0x9e3779b97f4a7c15u ^ n, w = 0;
    uint32_t low, high;
    for (; n > 8; s += 8, n -= 8) {
        memcpy(&w, s, 8);
        h = mix(h ^ w, 0xa0761d6478bd642fu);
    }
    if (n >= 4) {
        memcpy(&low, s, 4), memcpy(&high, s + n - 4, 4);
        w = low | (uint64_t)high << 32;
    } else if (n) {
        w = (uint64_t)(unsigned char)s[0] << 16 | (uint64_t)(unsigned char)s[n / 2] << 8 |
            (unsigned char)s[n - 1];
    }
    return mix(h ^ w, 0xe7037ed1a0b428dbu);
}

// The word with these n bytes, whose hash is h, or -1.
static int find_hashed(const Tokenizer *t, uint64_t h, const char *s, size_t n) {
    const Table *table = &t->words;
    for (size_t i = h & table->mask; table->slots[i]; i = (i + 1) & table->mask) {
        uint32_t slot = table->slots[i];
        if ((slot ^ h >> 32) & table->tag_mask) continue;
        int id = (int)(slot & ~table->tag_mask) - 1;
        if (t->start[id + 1] - t->start[id] == n && !memcmp(t->bytes + t->start[id], s, n))
            return id;
    }
    return -1;
}

static int find(const Tokenizer *t, const char *s, size_t n) {
    return find_hashed(t, hash(t, s, n), s, n);
}

// How many names are s or stand before it, in the order of bytes.
static int names_upto(const Tokenizer *t, Str s) {
    int low = 0, high = t->n_names;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (str_compare(t->names[middle].s, s) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int find_name(const Tokenizer *t, Str s) {
    int i = names_upto(t, s) - 1;
    return i >= 0 && str_eq(t->names[i].s, s) ? t->names[i].id : -1;
}

// Of so many slots that n take at most half of them: searches stay short.
static size_t mask_for(size_t n) {
    size_t mask = 15;
    while (mask + 1 < 2 * n) mask = 2 * mask + 1;
    return mask;
}

// Room for n of n_tokens tokens.
static void table_init(Table *table, int n_tokens, size_t n) {
    table->tag_mask = ~0u;
    while (~table->tag_mask < (uint32_t)n_tokens) table->tag_mask <<= 1;
    table->mask = mask_for(n);
    table->slots = xalloc(table->mask + 1, sizeof *table->slots);
}

static bool is_named(int type) {
    return type == UNKNOWN || type == CONTROL || type == USER_DEFINED || type == CLAIMED;
}

// GPT-2 spells each byte as one printable letter: itself, or one from U+0100 on.
static void letters_init(int16_t byte_of[N_LETTERS]) {
    int next = 256;
    memset(byte_of, -1, N_LETTERS * sizeof *byte_of);
    for (int b = 0; b < 256; b++) {
        bool is_itself = (b >= '!' && b <= '~') || (b >= 0xa1 && b != 0xad);
        byte_of[is_itself ? b : next++] = (int16_t)b;
    }
}

// Decodes such letters. Returns the number of bytes, or -1 if there are other letters.
static int unspell(const int16_t byte_of[N_LETTERS], Str s, char *out) {
    int n = 0;
    for (size_t i = 0; i < s.len;) {
        uint32_t code;
        int len = utf8_decode(s.data + i, s.len - i, &code);
        if (!len || code >= N_LETTERS || byte_of[code] < 0) return -1;
        out[n++] = (char)byte_of[code];
        i += (size_t)len;
    }
    return n;
}

// Copies with U+2581 as a space; returns the number of bytes.
static size_t unescape_spaces(Str s, char *out) {
    size_t n = 0;
    for (size_t i = 0; i < s.len; n++) {
        bool is_space = s.len - i >= 3 && !memcmp(s.data + i, "\xe2\x96\x81", 3);
        out[n] = is_space ? ' ' : s.data[i];
        i += is_space ? 3 : 1;
    }
    return n;
}

// A byte token, "<0x0A>": its byte goes to *out.
static bool load_byte(Tokenizer *t, int id, Str s, char *out, Error *err) {
    static const char hex[] = "0123456789ABCDEF";
    bool is_long = s.len == 6 && !memcmp(s.data, "<0x", 3) && s.data[5] == '>';
    const char *high = is_long ? memchr(hex, s.data[3], 16) : NULL,
               *low = is_long ? memchr(hex, s.data[4], 16) : NULL;
    if (!high || !low)
        return refuse(t, err, "token %d: expected <0x00> to <0xFF>, found \"%.*s\"", id, SHOWN(s));
    *out = (char)((high - hex) * 16 + (low - hex));
    int *slot = &t->byte_id[(unsigned char)*out];
    if (*slot >= 0)
        return refuse(t, err, "token %d: expected each byte once, found that of %d again", id,
                      *slot);
    *slot = id;
    return true;
}

// Decodes one token into its place.
static bool load_token(Tokenizer *t, int id, Str s, const int16_t *byte_of, Error *err) {
    char *out = t->bytes + t->start[id];
    int type = t->type[id], n = -1;
    if (type == BYTE) {
        if (!load_byte(t, id, s, out, err)) return false;
        n = 1;
    } else if (!is_named(type)) {
        // A space as such never meets the text, where spaces have become U+2581.
        if (t->is_sentencepiece && memchr(s.data, ' ', s.len)) t->type[id] = UNREACHABLE;
        n = t->is_sentencepiece ? (int)unescape_spaces(s, out) : unspell(byte_of, s, out);
    }
    if (n < 0)
        memcpy(out, s.data, s.len),
            n = (int)s.len; // as it stands: a name, or an odd token of a fine-tune
    t->start[id + 1] = t->start[id] + (uint32_t)n;
    if (is_named(type) || t->type[id] == UNREACHABLE) return true;
    if ((size_t)n > t->longest) t->longest = (size_t)n;
    for (int i = 1; i < n; i++) t->is_split &= out[i] != ' ' || out[i - 1] == ' ';
    return true;
}

static bool refuse_twice(const Tokenizer *t, Str s, int one, int other, Error *err) {
    return refuse(t, err, "tokens: expected each once, found \"%.*s\" as %d and %d", SHOWN(s), one,
                  other);
}

// Enters a word into its table, which has room.
static bool enter_word(Tokenizer *t, uint64_t h, int id, Error *err) {
    Table *table = &t->words;
    Str s = tokenizer_piece(t, id, true);
    int other = find_hashed(t, h, s.data, s.len);
    size_t slot = h & table->mask;
    if (other >= 0) return refuse_twice(t, s, other, id, err);
    while (table->slots[slot]) slot = (slot + 1) & table->mask;
    table->slots[slot] = ((uint32_t)(h >> 32) & table->tag_mask) | ((uint32_t)id + 1);
    return true;
}

// Puts a name in its place among the others.
static void enter_name(Tokenizer *t, int at, int id) {
    Str s = tokenizer_piece(t, id, true);
    memmove(t->names + at + 1, t->names + at, (size_t)(t->n_names++ - at) * sizeof *t->names);
    t->names[at] = (Name){.s = s, .id = id};
    t->is_name_start[(unsigned char)s.data[0]] = true;
    t->has_user_defined |= t->type[id] == USER_DEFINED;
}

// What each name begins with: the one before it, or a shorter one of that one's own.
static void link_names(Tokenizer *t) {
    for (int i = 0; i < t->n_names; i++) {
        Str s = t->names[i].s, of;
        int k = i - 1;
        for (; k >= 0; k = t->names[k].shorter[0]) {
            of = t->names[k].s;
            if (of.len <= s.len && !memcmp(of.data, s.data, of.len)) break;
        }
        t->names[i].shorter[0] = k;
        bool is_free = k < 0 || t->type[t->names[k].id] == USER_DEFINED;
        t->names[i].shorter[1] = is_free ? k : t->names[k].shorter[1];
    }
}

static int by_bytes(const void *a, const void *b) {
    const Name *x = a, *y = b;
    int order = str_compare(x->s, y->s);
    return order ? order : (x->id > y->id) - (x->id < y->id);
}

static bool sort_names(Tokenizer *t, Error *err) {
    if (t->n_names) qsort(t->names, (size_t)t->n_names, sizeof *t->names, by_bytes);
    for (int i = 1; i < t->n_names; i++)
        if (str_eq(t->names[i - 1].s, t->names[i].s))
            return refuse_twice(t, t->names[i].s, t->names[i - 1].id, t->names[i].id, err);
    link_names(t);
    return true;
}

// Enters all tokens where encoding looks for them; each slot is fetched some tokens ahead, for most
// are not in cache.
static bool fill_tables(Tokenizer *t, Error *err) {
    enum { AHEAD = 16 };
    uint64_t hashes[AHEAD] = {0};
    for (int i = 0; i < t->n + AHEAD; i++) {
        int id = i - AHEAD;
        uint64_t h = hashes[i % AHEAD];
        if (i < t->n) {
            hashes[i % AHEAD] = hash(t, t->bytes + t->start[i], t->start[i + 1] - t->start[i]);
            __builtin_prefetch(&t->words.slots[hashes[i % AHEAD] & t->words.mask]);
        }
        if (id < 0 || t->type[id] == BYTE || t->type[id] == UNREACHABLE) continue;
        if (t->start[id + 1] == t->start[id]) continue; // nothing spells it
        if (is_named(t->type[id]))
            enter_name(t, t->n_names, id);
        else if (!enter_word(t, h, id, err))
            return false;
    }
    return sort_names(t, err);
}

// An array of one 4-byte item per token, or NULL with err.
static const uint8_t *per_token(const Tokenizer *t, const Gguf *g, const char *key, GgufKind kind,
                                Error *err) {
    const GgufValue *v = gguf_get_array(g, key, kind, err);
    if (v && v->count == (uint64_t)t->n) return v->data;
    if (v)
        error_set(err, EXIT_MODEL, "%s: %s: expected %d items, found %zu", t->file, key, t->n,
                  (size_t)v->count);
    return NULL;
}

// Types of the tokens; all are NORMAL where the file has none.
static bool load_types(Tokenizer *t, const Gguf *g, Error *err) {
    memset(t->type, NORMAL, (size_t)t->n);
    if (!gguf_find_value(g, "tokenizer.ggml.token_type")) return true;
    const uint8_t *data = per_token(t, g, "tokenizer.ggml.token_type", GGUF_I32, err);
    if (!data) return false;
    for (int i = 0; i < t->n; i++) {
        uint32_t type;
        memcpy(&type, data + 4 * (size_t)i, 4);
        if (type > BYTE)
            return refuse(t, err, "token_type: expected 1 to 6, found %d (token %d)", (int)type, i);
        t->type[i] = (uint8_t)type;
    }
    return true;
}

// Scores become ranks: the order of floats is that of their bits, once the sign is taken care of.
static bool load_scores(Tokenizer *t, const Gguf *g, Error *err) {
    const uint8_t *data = per_token(t, g, "tokenizer.ggml.scores", GGUF_F32, err);
    if (!data) return false;
    t->rank = xalloc((size_t)t->n, sizeof *t->rank);
    for (int i = 0; i < t->n; i++) {
        float score;
        uint32_t bits;
        memcpy(&score, data + 4 * (size_t)i, 4);
        if (!(score - score == 0))
            return refuse(t, err, "scores: expected numbers, found %g (%d)", (double)score, i);
        score += 0.0f; // -0 is 0
        memcpy(&bits, &score, 4);
        t->rank[i] = bits >> 31 ? bits : ~(bits | 1u << 31);
    }
    return true;
}

// A token id from the metadata; *id stays as it is if the key is absent. 2^32 - 1 says "none",
// where there may be none.
static bool load_id(const Tokenizer *t, const Gguf *g, const char *key, bool may_be_none, int *id,
                    Error *err) {
    uint64_t v;
    if (!gguf_find_value(g, key)) return true;
    if (!gguf_get_u64(g, key, &v, err)) return false;
    bool is_none = may_be_none && v == UINT32_MAX;
    if (v >= (uint64_t)t->n && !is_none)
        return error_set(err, EXIT_MODEL, "%s: %s: expected less than %d, found %llu", t->file, key,
                         t->n, (unsigned long long)v);
    *id = is_none ? -1 : (int)v;
    return true;
}

// Whatever the file says of its type; -1: there is none.
static void set_control(Tokenizer *t, int id) {
    if (id >= 0 && t->type[id] != UNKNOWN) t->type[id] = CONTROL;
}

static void add_stop(Tokenizer *t, int id) {
    if (id >= 0 && t->n_stops < MAX_STOPS && !tokenizer_is_stop(t, id)) t->stops[t->n_stops++] = id;
    set_control(t, id);
}

// Ids that the metadata names, of control tokens.
static bool load_ids(Tokenizer *t, const Gguf *g, Error *err) {
    static const char *const ends[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    for (int i = 0; i < 3; i++) {
        int id = -1;
        if (!load_id(t, g, ends[i], false, &id, err)) return false;
        add_stop(t, id);
        if (i == 0) t->eos = id;
    }
    if (!load_id(t, g, "tokenizer.ggml.bos_token_id", true, &t->bos, err)) return false;
    set_control(t, t->bos);
    return load_id(t, g, "tokenizer.ggml.unknown_token_id", true, &t->unknown, err);
}

// Names that end a text wherever they are in use.
static void add_known_stops(Tokenizer *t) {
    static const char *const ends[] = {"<|eot_id|>", "<|eom_id|>", "<|end_of_text|>",
                                       "<|im_end|>", "</s>",       "<|endoftext|>"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        add_stop(t, tokenizer_special_id(t, ends[i]));
}

// What follows from names when all tokens are in place.
static bool load_names(Tokenizer *t, const Gguf *g, Error *err) {
    add_known_stops(t);
    if (t->bos < 0 && !gguf_find_value(g, "tokenizer.ggml.bos_token_id"))
        t->bos = tokenizer_special_id(t, t->is_sentencepiece ? "<s>" : "<|begin_of_text|>");
    if (t->unknown < 0) t->unknown = tokenizer_special_id(t, "<unk>");
    t->adds_bos = t->is_sentencepiece || t->split->takes_whole;
    t->has_prefix = t->is_sentencepiece;
    if (gguf_find_value(g, "tokenizer.ggml.add_bos_token") &&
        !gguf_get_bool(g, "tokenizer.ggml.add_bos_token", &t->adds_bos, err))
        return false;
    if (t->is_sentencepiece && gguf_find_value(g, "tokenizer.ggml.add_space_prefix") &&
        !gguf_get_bool(g, "tokenizer.ggml.add_space_prefix", &t->has_prefix, err))
        return false;
    for (int b = 0; b < 256; b++) {
        char c = (char)b;
        if (t->byte_id[b] < 0) t->byte_id[b] = find(t, &c, 1);
        if (t->byte_id[b] < 0) t->byte_id[b] = t->unknown;
        if (t->byte_id[b] < 0 || (!t->is_sentencepiece && t->byte_id[b] == t->unknown))
            return refuse(t, err, "tokens: expected one for every byte, found none for 0x%02x", b);
    }
    return true;
}

// Line i of the list of merges: two parts and the token that they make. bytes: room for it.
static bool read_merge(const Tokenizer *t, Str line, int i, const int16_t *byte_of, char *bytes,
                       Merge *out, Error *err) {
    const char *space = memchr(line.data, ' ', line.len);
    size_t n_left = space ? (size_t)(space - line.data) : 0;
    int n = space ? unspell(byte_of, (Str){line.data, n_left}, bytes) : -1;
    int more = n > 0 ? unspell(byte_of, (Str){space + 1, line.len - n_left - 1}, bytes + n) : -1;
    *out = (Merge){-1, -1, -1, (uint32_t)i};
    if (more > 0) {
        out->left = find(t, bytes, (size_t)n);
        out->right = find(t, bytes + n, (size_t)more);
        out->id = find(t, bytes, (size_t)(n + more));
    }
    return out->id >= 0 ||
           refuse(t, err, "merges: expected two parts of a token, found \"%.*s\" (%d)", SHOWN(line),
                  i);
}

// The slot of a pair, or a free one.
static Merge *merge_slot(const Tokenizer *t, int left, int right) {
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t i = mix(mix(pair, 0xa0761d6478bd642fu), 0xe7037ed1a0b428dbu) & t->merge_mask;
    for (; t->merges[i].id >= 0; i = (i + 1) & t->merge_mask)
        if (t->merges[i].left == left && t->merges[i].right == right) break;
    return &t->merges[i];
}

// The first n merges. Those of a list may come in an order that is not the one of their tokens.
static bool enter_merges(Tokenizer *t, const GgufValue *list, int n, const int16_t *byte_of,
                         char *bytes, bool *is_ordered, Error *err) {
    const uint8_t *cursor = list->data;
    *is_ordered = true;
    t->merge_mask = mask_for((size_t)n);
    free(t->merges);
    t->merges = xalloc(t->merge_mask + 1, sizeof *t->merges);
    for (size_t i = 0; i <= t->merge_mask; i++) t->merges[i].id = -1;
    for (int i = 0, last = 0; i < n; i++) {
        Merge m;
        Str line = gguf_next_string(&cursor);
        if (!read_merge(t, line, i, byte_of, bytes, &m, err)) return false;
        Merge *slot = merge_slot(t, m.left, m.right);
        if (slot->id >= 0)
            return refuse(t, err, "merges: expected each once, found \"%.*s\" again (%d)",
                          SHOWN(line), i);
        *slot = m;
        *is_ordered &= m.id >= last;
        last = m.id;
    }
    return true;
}

// A vocabulary made of ranks, as tiktoken's, lists every pair that makes a token: more pairs than
// tokens, in the order of the tokens. Such a list need not be kept, and only its beginning is
// looked at. One that was trained as pairs lists one for each token, and merges no others.
static bool load_merges(Tokenizer *t, const Gguf *g, const int16_t *byte_of, Error *err) {
    bool is_ordered = false, is_good = true;
    if (t->is_sentencepiece) return true;
    const GgufValue *list = gguf_get_array(g, "tokenizer.ggml.merges", GGUF_STRING, err);
    if (!list) return false;
    char *bytes = xrealloc(NULL, list->bytes + 1, 1);
    int n = list->count < INT_MAX / 4 ? (int)list->count : INT_MAX / 4;
    if (n > t->n) is_good = enter_merges(t, list, CHECKED_MERGES, byte_of, bytes, &is_ordered, err);
    if (is_good && !is_ordered)
        is_good = enter_merges(t, list, n, byte_of, bytes, &(bool){0}, err);
    else
        free(t->merges), t->merges = NULL;
    free(bytes);
    return is_good;
}

static bool check_kind(Tokenizer *t, const Gguf *g, Error *err) {
    Str kind, pre;
    if (!gguf_get_string(g, "tokenizer.ggml.model", &kind, err)) return false;
    t->is_sentencepiece = str_is(kind, "llama");
    if (t->is_sentencepiece) return true;
    if (!str_is(kind, "gpt2"))
        return refuse(t, err, "model: expected gpt2 or llama, found \"%.*s\"", SHOWN(kind));
    if (!gguf_get_string(g, "tokenizer.ggml.pre", &pre, err)) return false;
    t->split = pretokenizer_find(pre);
    return t->split ||
           refuse(t, err, "pre: expected llama-bpe, found \"%.*s\", an unknown way to split text",
                  SHOWN(pre));
}

// All of the vocabulary, each part after those that it looks at.
static bool load(Tokenizer *t, const Gguf *g, Error *err) {
    int16_t byte_of[N_LETTERS];
    letters_init(byte_of);
    if (!check_kind(t, g, err)) return false;
    const GgufValue *tokens = gguf_get_array(g, "tokenizer.ggml.tokens", GGUF_STRING, err);
    if (!tokens) return false;
    if (tokens->count == 0 || tokens->count >= INT_MAX / 2 || tokens->bytes > INT_MAX)
        return refuse(t, err,
                      "tokens: expected 1 to 2^30 with 2 GB in all, found %zu with %zu bytes",
                      (size_t)tokens->count, tokens->bytes);
    size_t n = (size_t)tokens->count;
    t->n = (int)n;
    t->type = xalloc(n, 1);
    t->start = xalloc(n + 1, sizeof *t->start);
    t->bytes = xalloc(tokens->bytes - 8 * n + 1, 1); // decoding makes nothing longer
    if (!load_types(t, g, err) || !load_ids(t, g, err) ||
        (t->is_sentencepiece && !load_scores(t, g, err)))
        return false;
    size_t n_names = 0;
    for (size_t i = 0; i < n; i++) n_names += is_named(t->type[i]);
    table_init(&t->words, t->n, n - n_names);
    t->names = xalloc(n_names + MAX_CLAIMS, sizeof *t->names);
    const uint8_t *cursor = tokens->data;
    for (int i = 0; i < t->n; i++)
        if (!load_token(t, i, gguf_next_string(&cursor), byte_of, err)) return false;
    return fill_tables(t, err) && load_names(t, g, err) && load_merges(t, g, byte_of, err);
}

Tokenizer *tokenizer_open(const Gguf *g, Error *err) {
    Tokenizer *t = xalloc(1, sizeof *t);
    unicode_init();
    t->file = g->path;
    t->bos = t->eos = t->unknown = -1;
    t->is_split = true;
    memset(t->byte_id, -1, sizeof t->byte_id);
    if (load(t, g, err)) return t;
    tokenizer_close(t);
    return NULL;
}

void tokenizer_close(Tokenizer *t) {
    if (!t) return;
    free(t->type);
    free(t->start);
    free(t->bytes);
    free(t->rank);
    free(t->merges);
    free(t->words.slots);
    free(t->names);
    free(t);
}

// SentencePiece: spaces and what follows them up to the next space, where no merge can reach over
// that border.
static const char *next_word(const Tokenizer *t, const char *s, const char *end) {
    if (!t->is_split) return end;
    while (s < end && *s == ' ') s++;
    const char *space = memchr(s, ' ', (size_t)(end - s));
    return space ? space : end;
}

// A piece met before in the same call: its latest occurrence and where its ids stand in the output.
typedef struct {
    const char *s;
    uint32_t len;
    int first, n;
} Seen;

// A part of a piece: its bytes and its token.
typedef struct {
    int prev, next; // neighbours; -1: none
    uint32_t start, end;
    int id; // -1: no token; GONE: merged into another part
} Part;

// A pair that may be merged: rank and number of its left part; stale if it no longer ends at `end`.
typedef struct {
    uint64_t key;
    uint32_t end;
    int id;
} Pair;

// One call of tokenizer_encode.
typedef struct {
    const Tokenizer *t;
    Ids *out;
    Seen *cache;
    size_t cache_mask;
    Part *parts; // of the piece under way; both grow with the longest
    Pair *heap;
    size_t cap_parts, n_heap, cap_heap;
} Encoder;

// Rank of the token with these bytes, NO_RANK if there is none.
static uint32_t look(const Tokenizer *t, const char *s, size_t n, int *id) {
    *id = n <= t->longest ? find(t, s, n) : -1;
    return *id < 0 ? NO_RANK : t->rank ? t->rank[*id] : (uint32_t)*id;
}

// The first part of s: a byte, or a character.
static int first_part(const Tokenizer *t, const char *s, size_t n, int *id) {
    uint32_t code;
    int len = t->is_sentencepiece ? utf8_decode(s, n, &code) : 1;
    if (len == 0) len = 1;
    *id = t->is_sentencepiece ? find(t, s, (size_t)len) : t->byte_id[(unsigned char)*s];
    return len;
}

// A part's token, or, where it is none, those of its bytes.
static void put_part(const Encoder *e, int id, const char *s, size_t n) {
    if (id >= 0)
        ids_push(e->out, id);
    else
        for (size_t i = 0; i < n; i++) ids_push(e->out, e->t->byte_id[(unsigned char)s[i]]);
}

// Takes the best pair out of the heap.
static Pair pop_pair(Encoder *e) {
    Pair *heap = e->heap, best = heap[0], moved = heap[--e->n_heap];
    size_t n = e->n_heap, i = 0;
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && heap[child + 1].key < heap[child].key) child++;
        if (heap[child].key >= moved.key) break;
        heap[i] = heap[child];
    }
    heap[i] = moved;
    return best;
}

// Rank of the merge of a part with the next one, NO_RANK if there is none.
static uint32_t look_pair(const Tokenizer *t, const char *s, const Part *left, const Part *right,
                          int *id) {
    if (!t->merges) return look(t, s + left->start, right->end - left->start, id);
    const Merge *m = merge_slot(t, left->id, right->id);
    *id = m->id;
    return m->id < 0 ? NO_RANK : m->rank;
}

// Adds the pair that part `left` makes with the next one, if it is a token.
static void push_pair(Encoder *e, const char *s, int left) {
    if (left < 0 || e->parts[left].next < 0) return;
    const Part *right = &e->parts[e->parts[left].next];
    Pair p = {.end = right->end};
    uint32_t rank = look_pair(e->t, s, &e->parts[left], right, &p.id);
    if (rank == NO_RANK) return;
    p.key = (uint64_t)rank << 32 | (uint32_t)left;
    if (e->n_heap == e->cap_heap) {
        e->cap_heap = e->cap_heap ? 2 * e->cap_heap : 1024;
        e->heap = xrealloc(e->heap, e->cap_heap, sizeof *e->heap);
    }
    size_t i = e->n_heap++;
    for (; i && e->heap[(i - 1) / 2].key > p.key; i = (i - 1) / 2)
        e->heap[i] = e->heap[(i - 1) / 2];
    e->heap[i] = p;
}

// Merges a piece in n log n steps: a list of parts and a heap of pairs.
static void merge(Encoder *e, const char *s, size_t size) {
    if (size > e->cap_parts)
        e->parts = xrealloc(e->parts, e->cap_parts = 2 * size, sizeof *e->parts);
    int n = 0;
    for (size_t at = 0; at < size; n++) {
        int len = first_part(e->t, s + at, size - at, &e->parts[n].id);
        e->parts[n] =
            (Part){n - 1, n + 1, (uint32_t)at, (uint32_t)at + (uint32_t)len, e->parts[n].id};
        at += (size_t)len;
    }
    e->parts[n - 1].next = -1;
    e->n_heap = 0;
    for (int i = 0; i < n; i++) push_pair(e, s, i);
    while (e->n_heap) {
        Pair p = pop_pair(e);
        int left = (int)(uint32_t)p.key, right = e->parts[left].next;
        if (e->parts[left].id == GONE || right < 0 || e->parts[right].end != p.end) continue;
        e->parts[left].id = p.id;
        e->parts[left].end = p.end;
        e->parts[left].next = e->parts[right].next;
        e->parts[right].id = GONE;
        if (e->parts[right].next >= 0) e->parts[e->parts[right].next].prev = left;
        push_pair(e, s, e->parts[left].prev);
        push_pair(e, s, left);
    }
    for (int i = 0; i >= 0; i = e->parts[i].next)
        put_part(e, e->parts[i].id, s + e->parts[i].start, e->parts[i].end - e->parts[i].start);
}

// A piece becomes the ids it had before, one token, or what merging leaves of it.
static void encode_piece(Encoder *e, const char *s, size_t n) {
    const Tokenizer *t = e->t;
    uint64_t h = n <= MAX_CACHED ? hash(t, s, n) : 0;
    Seen *seen = n <= MAX_CACHED ? &e->cache[h >> 40 & e->cache_mask] : NULL;
    int first = e->out->len;
    if (seen && seen->len == n && !memcmp(seen->s, s, n)) {
        for (int i = 0; i < seen->n; i++) ids_push(e->out, e->out->data[seen->first + i]);
    } else {
        int id = t->is_sentencepiece || !t->split->takes_whole || n > t->longest
                     ? -1
                     : find_hashed(t, h ? h : hash(t, s, n), s, n);
        if (id >= 0)
            ids_push(e->out, id);
        else
            merge(e, s, n);
    }
    if (seen)
        *seen = (Seen){s, (uint32_t)n, first,
                       e->out->len - first}; // the latest is still in the fast caches
}

// Text without names in it. *plain: room for the form SentencePiece works on, which must outlive
// the cache.
static void encode_text(Encoder *e, const char *s, size_t n, bool is_continued, char **plain) {
    if (n == 0) return; // no space in front of nothing
    if (e->t->is_sentencepiece) {
        char *text = *plain;
        if (e->t->has_prefix && !is_continued) *(*plain)++ = ' ';
        *plain += unescape_spaces((Str){s, n}, *plain);
        s = text, n = (size_t)(*plain - text);
    }
    for (const char *end = s + n, *next; s < end; s = next) {
        next = e->t->is_sentencepiece ? next_word(e->t, s, end) : e->t->split->piece(s, end);
        encode_piece(e, s, (size_t)(next - s));
    }
}

// The longest name that s starts with, or -1; control tokens only within the first n_own bytes.
// Every name that s starts with is the last one up to it, or begins that one.
static int name_at(const Tokenizer *t, const char *s, size_t n, size_t n_own) {
    if (!t->is_name_start[(unsigned char)*s]) return -1;
    if (n > MAX_NAME) n = MAX_NAME;
    int i = names_upto(t, (Str){s, n}) - 1;
    size_t same = 0;
    while (i >= 0 && same < n && same < t->names[i].s.len && s[same] == t->names[i].s.data[same])
        same++;
    for (; i >= 0; i = t->names[i].shorter[n_own == 0]) {
        const Name *name = &t->names[i];
        if (name->s.len > same) continue;
        if (name->s.len <= n_own || t->type[name->id] == USER_DEFINED) return name->id;
    }
    return -1;
}

// Control tokens are recognised where own says so; own NULL: everywhere or, has_control false,
// nowhere.
static void encode(const Tokenizer *t, const char *text, size_t n, bool has_control,
                   const char *own, bool is_continued, Ids *out) {
    if (n > INT_MAX / 2)
        die(EXIT_RUNTIME, "a text of %zu bytes: expected at most %d", n, INT_MAX / 2);
    if (n == 0) return;
    Seen few[FEW_SEEN] = {{0}};
    Encoder e = {.t = t, .out = out, .cache = few, .cache_mask = FEW_SEEN - 1};
    while (e.cache_mask < MOST_SEEN - 1 && e.cache_mask < n / 16)
        e.cache_mask = 2 * e.cache_mask + 1;
    if (e.cache_mask > FEW_SEEN - 1) e.cache = xalloc(e.cache_mask + 1, sizeof *e.cache);
    char *copy = t->is_sentencepiece ? xrealloc(NULL, 2 * n + 1, 1) : NULL, *plain = copy;
    const char *from = text, *end = text + n,
               *own_end = has_control && !own ? end : text; // of the run of own bytes at s
    for (const char *s = text; s < end && (has_control || t->has_user_defined);) {
        if (own && own_end <= s) own_end = s;
        while (own && own_end < end && own[own_end - text]) own_end++;
        int id = name_at(t, s, (size_t)(end - s), own_end > s ? (size_t)(own_end - s) : 0);
        if (id < 0) {
            s++;
            continue;
        }
        encode_text(&e, from, (size_t)(s - from), is_continued && from == text, &plain);
        ids_push(out, id);
        from = s += t->start[id + 1] - t->start[id];
    }
    encode_text(&e, from, (size_t)(end - from), is_continued && from == text, &plain);
    free(copy);
    free(e.parts);
    free(e.heap);
    if (e.cache != few) free(e.cache);
}

void tokenizer_encode(const Tokenizer *t, const char *text, size_t n, Ids *out) {
    encode(t, text, n, false, NULL, false, out);
}

void tokenizer_encode_special(const Tokenizer *t, const char *text, size_t n, Ids *out) {
    encode(t, text, n, true, NULL, false, out);
}

void tokenizer_encode_masked(const Tokenizer *t, const char *text, const char *own, size_t n,
                             bool is_continued, Ids *out) {
    encode(t, text, n, true, own, is_continued, out);
}

static bool is_punctuation(char c) { return c > ' ' && c < 0x7f && !isalnum((unsigned char)c); }

// Whether it looks like the name of a control token: letters between marks.
static bool has_shape(Str s) {
    bool has_letter = false;
    for (size_t i = 1; i + 1 < s.len; i++)
        has_letter |= isalpha((unsigned char)s.data[i]) || (s.data[i] & 0x80);
    return has_letter && is_punctuation(s.data[0]) && is_punctuation(s.data[s.len - 1]);
}

// Makes a word of the vocabulary a name, if no encoding can reach it as a word.
static void claim_word(Tokenizer *t, int id) {
    Str s = tokenizer_piece(t, id, true);
    Ids ids = {0};
    uint64_t h = hash(t, s.data, s.len);
    encode(t, s.data, s.len, false, NULL, true, &ids);
    bool is_reached =
        ids.len == 1 && ids.data[0] == id && memcmp(s.data, "<|", 2); // which no word begins with
    free(ids.data);
    if (is_reached || t->n_claims == MAX_CLAIMS) return;
    for (size_t i = h & t->words.mask; t->words.slots[i]; i = (i + 1) & t->words.mask)
        if ((int)(t->words.slots[i] & ~t->words.tag_mask) == id + 1)
            t->words.slots[i] ^= t->words.tag_mask; // found no more
    t->type[id] = CLAIMED;
    t->n_claims++;
    enter_name(t, names_upto(t, s), id);
    link_names(t);
}

void tokenizer_reserve_special(Tokenizer *t, Str text) {
    for (int id = 0; id < t->n && t->has_user_defined; id++) {
        Str s = tokenizer_piece(t, id, true);
        bool is_bracketed =
            s.len > 2 && (s.data[0] == '<' || s.data[0] == '[') && strchr(">]", s.data[s.len - 1]);
        if (t->type[id] == USER_DEFINED && is_bracketed && has_shape(s)) t->type[id] = CLAIMED;
    }
    for (size_t i = 0; i < text.len; i++)
        for (size_t n = 3; n <= CLAIM_BYTES && n <= text.len - i && is_punctuation(text.data[i]);
             n++) {
            Str s = {text.data + i, n};
            if (!is_punctuation(s.data[n - 1]) || !has_shape(s)) continue;
            int name = find_name(t, s), word = name < 0 ? find(t, s.data, n) : -1;
            if (name >= 0 && t->type[name] == USER_DEFINED) t->type[name] = CLAIMED;
            if (word >= 0) claim_word(t, word);
        }
    add_known_stops(t);
}

Str tokenizer_piece(const Tokenizer *t, int id, bool special) {
    if (id < 0 || id >= t->n || (!special && tokenizer_is_control(t, id))) return (Str){"", 0};
    return (Str){t->bytes + t->start[id], t->start[id + 1] - t->start[id]};
}

bool tokenizer_has_space_prefix(const Tokenizer *t) { return t->has_prefix; }
int tokenizer_n_vocab(const Tokenizer *t) { return t->n; }
int tokenizer_special_id(const Tokenizer *t, const char *name) {
    return find_name(t, str_of(name));
}
int tokenizer_bos(const Tokenizer *t) { return t->bos; }
int tokenizer_eos(const Tokenizer *t) { return t->eos; }
bool tokenizer_adds_bos(const Tokenizer *t) { return t->adds_bos && t->bos >= 0; }

bool tokenizer_is_control(const Tokenizer *t, int id) {
    return id >= 0 && id < t->n && (t->type[id] == CONTROL || t->type[id] == UNKNOWN);
}

bool tokenizer_is_special(const Tokenizer *t, int id) {
    return tokenizer_is_control(t, id) || (id >= 0 && id < t->n && t->type[id] == CLAIMED);
}

bool tokenizer_is_stop(const Tokenizer *t, int id) {
    for (int i = 0; i < t->n_stops; i++)
        if (t->stops[i] == id) return true;
    return false;
}
