// Loads a vocabulary from the metadata of a GGUF file, and finds its tokens.
//
//     tokenizer.ggml. ...            fields                           function
//     model, pre                     is_sentencepiece, pretokenizer   load_model, load_pretokenizer
//     token_type                     type                             load_types
//     bos_token_id, eos_token_id ... bos, eos, unknown, stop          load_ids
//     scores                         rank (SentencePiece)             load_scores
//     tokens                         bytes, start, byte_id            load_token
//                                    table, special                   fill_tables
//     add_bos_token ...              adds_bos, has_space_prefix       load_defaults
//     prepend_scheme                 prefix_scheme                    load_prefix_scheme
//     merges                         merges (byte-level BPE)          load_merges
//
// Every key is checked completely, so that encoding cannot fail: each byte has a token, ids are in
// range, and no two tokens of a table have the same bytes.
#include "tokenizer/vocabulary.h"
#include "base/bits.h"
#include "base/nfc.h"

#include <limits.h>
#include <stdio.h>

// Code points of byte letters (see byte_letters_init) are below this: 256 + 68.
enum { N_BYTE_LETTERS = 0x144 };

// Sets an error about the key tokenizer.ggml.KEY; fmt begins with KEY. Evaluates to false.
#define vocabulary_error(t, err, fmt, ...)                                                         \
    error_set(err, EXIT_MODEL, "%s: tokenizer.ggml." fmt, (t)->path, __VA_ARGS__)

// Bytes of tokens.

// GPT-2's vocabularies spell each byte as one printable letter (bytes_to_unicode in its
// encoder.py): printable bytes as themselves, the 68 others as U+0100, U+0101 ... in order. A space
// is U+0120, so that the token " the" is stored as "\u0120the".
static void byte_letters_init(int16_t byte_of[N_BYTE_LETTERS]) {
    int next = 256;
    memset(byte_of, -1, N_BYTE_LETTERS * sizeof *byte_of);
    for (int b = 0; b < 256; b++) {
        bool is_printable = (b >= '!' && b <= '~') || (b >= 0xa1 && b != 0xad);
        byte_of[is_printable ? b : next++] = (int16_t)b;
    }
}

// Decodes a token in byte letters. Returns the number of bytes, or -1 if s has other characters.
static int decode_letters(const int16_t byte_of[N_BYTE_LETTERS], Str s, char *out) {
    int n = 0;
    for (size_t i = 0; i < s.len;) {
        uint32_t code;
        int len = utf8_decode(s.data + i, s.len - i, &code);
        if (!len || code >= N_BYTE_LETTERS || byte_of[code] < 0) return -1;
        out[n++] = (char)byte_of[code];
        i += (size_t)len;
    }
    return n;
}

size_t sentencepiece_unescape(Str s, char *out) {
    size_t n = 0;
    for (size_t i = 0; i < s.len; n++) {
        bool is_space = s.len - i >= 3 && !memcmp(s.data + i, "\xe2\x96\x81", 3);
        out[n] = is_space ? ' ' : s.data[i];
        i += is_space ? 3 : 1;
    }
    return n;
}

static bool is_special_type(int type) {
    return type == TOKEN_UNKNOWN || type == TOKEN_CONTROL || type == TOKEN_USER_DEFINED ||
           type == TOKEN_RESERVED;
}

// Loads a SentencePiece token of a single byte, named <0x00> to <0xFF>.
static bool load_byte_token(Tokenizer *t, int id, Str s, Error *err) {
    char name[8];
    int byte = s.len == 6 ? hex_digit(s.data[3]) * 16 + hex_digit(s.data[4]) : -1;
    snprintf(name, sizeof name, "<0x%02X>", (unsigned)byte & 255);

    if (byte < 0 || !str_is(s, name))
        return vocabulary_error(t, err,
                                "tokens: byte token %d: expected <0x00> to <0xFF>, found \"%.*s\"",
                                id, SHOWN(s));

    if (t->byte_id[byte] >= 0)
        return vocabulary_error(t, err, "tokens: tokens %d and %d are the same byte",
                                t->byte_id[byte], id);
    t->byte_id[byte] = id;
    t->bytes[t->start[id]] = (char)byte;
    t->start[id + 1] = t->start[id] + 1;

    return true;
}

// Decodes the text of a token into its bytes, and updates max_bytes and has_split_words.
static bool load_token(Tokenizer *t, int id, Str s, const int16_t *byte_of, Error *err) {
    if (t->type[id] == TOKEN_BYTE) return load_byte_token(t, id, s, err);
    char *out = t->bytes + t->start[id];

    // Decode the text of the token. Special tokens, and tokens with other characters than byte
    // letters, are stored as they are.
    int n = -1;
    if (!is_special_type(t->type[id]))
        n = t->is_sentencepiece ? (int)sentencepiece_unescape(s, out)
                                : decode_letters(byte_of, s, out);
    if (n < 0) {
        n = (int)s.len;
        memcpy(out, s.data, s.len);
    }
    t->start[id + 1] = t->start[id] + (uint32_t)n;
    if ((size_t)n > t->max_bytes) t->max_bytes = (size_t)n;
    if (is_special_type(t->type[id])) return true;

    if (t->is_sentencepiece && memchr(s.data, ' ', s.len)) {
        t->type[id] = TOKEN_UNREACHABLE; // the spaces of a text are encoded as U+2581
        return true;
    }

    for (int i = 1; i < n; i++) t->has_split_words &= out[i] != ' ' || out[i - 1] == ' ';
    return true;
}

// The tables.

static Str token_text(const Tokenizer *t, int id) {
    return (Str){t->bytes + t->start[id], t->start[id + 1] - t->start[id]};
}

static bool duplicate_token(const Tokenizer *t, int first, int second, Error *err) {
    return vocabulary_error(t, err, "tokens: duplicate token \"%.*s\" (ids %d and %d)",
                            SHOWN(token_text(t, first)), first, second);
}

// Adds an ordinary token to the table. Two tokens with the same bytes would make encoding
// ambiguous.
static bool add_ordinary(Tokenizer *t, int id, Error *err) {
    Str s = token_text(t, id);
    uint64_t h = token_hash(t, s.data, s.len);
    int other = vocabulary_find_hashed(t, h, s.data, s.len);
    size_t slot = h & t->table.slot_mask;
    if (other >= 0) return duplicate_token(t, other, id, err);
    while (t->table.slots[slot]) slot = (slot + 1) & t->table.slot_mask;
    t->table.slots[slot] = ((uint32_t)(h >> 32) & t->table.tag_mask) | ((uint32_t)id + 1);
    return true;
}

// Inserts a special token at index `at`.
static void add_special(Tokenizer *t, int at, int id) {
    SpecialToken *s = t->special.tokens + at;
    memmove(s + 1, s, (size_t)(t->special.n++ - at) * sizeof *s);
    *s = (SpecialToken){.text = token_text(t, id), .id = id};
    t->special.is_first_byte[(unsigned char)s->text.data[0]] = true;
    t->special.has_user_defined |= t->type[id] == TOKEN_USER_DEFINED;
}

// Sets the prefixes of all special tokens. In sorted order, the longest prefix of a token is the
// token before it or one of that token's own prefixes:
//
//     index   text          prefix
//     0       <|a|>         -1
//     1       <|a|><|b      0
//     2       <|a|><|b|>    1
//     3       <|a|><|c|>    0        tokens 2 and 1 are not prefixes of it, token 0 is
//
// user_defined_prefix skips all tokens that are not user-defined. Without it, a hostile text could
// make every search follow hundreds of prefixes that it is not allowed to match.
static void link_prefixes(Tokenizer *t) {
    SpecialToken *tokens = t->special.tokens;
    for (int i = 0; i < t->special.n; i++) {
        int k = i - 1;
        while (k >= 0 && !str_has_prefix(tokens[i].text, tokens[k].text)) k = tokens[k].prefix;
        tokens[i].prefix = k;
        bool is_found = k < 0 || t->type[tokens[k].id] == TOKEN_USER_DEFINED;
        tokens[i].user_defined_prefix = is_found ? k : tokens[k].user_defined_prefix;
    }
}

static int compare_specials(const void *a, const void *b) {
    const SpecialToken *x = a, *y = b;
    int order = str_compare(x->text, y->text);
    return order ? order : (x->id > y->id) - (x->id < y->id);
}

// Adds every token to the hash table or to the list of special tokens. Byte tokens need neither,
// because byte_id finds them; empty tokens match nothing.
static bool fill_tables(Tokenizer *t, Error *err) {
    SpecialTokens *special = &t->special;
    OrdinaryTokens *table = &t->table;
    int n_special = 0;
    for (int i = 0; i < t->n; i++) n_special += is_special_type(t->type[i]);

    special->tokens = arena_alloc(&t->memory, (size_t)n_special + VOCABULARY_MAX_RESERVED,
                                  sizeof *special->tokens);

    table->slot_mask = 15; // at most half of the slots are used, so that searches are short
    while (table->slot_mask + 1 < 2 * (size_t)(t->n - n_special))
        table->slot_mask = 2 * table->slot_mask + 1;
    table->slots = arena_alloc(&t->memory, table->slot_mask + 1, sizeof *table->slots);
    for (table->tag_mask = ~0u; ~table->tag_mask < (uint32_t)t->n;) table->tag_mask <<= 1;

    for (int id = 0; id < t->n; id++) {
        if (t->type[id] == TOKEN_BYTE || t->type[id] == TOKEN_UNREACHABLE ||
            t->start[id + 1] == t->start[id])
            continue;
        if (is_special_type(t->type[id]))
            add_special(t, special->n, id);
        else if (!add_ordinary(t, id, err))
            return false;
    }

    // Sort the special tokens for count_specials_upto(), and refuse duplicates.
    qsort(special->tokens, (size_t)special->n, sizeof *special->tokens, compare_specials);
    for (int i = 1; i < special->n; i++) {
        const SpecialToken *a = &special->tokens[i - 1], *b = &special->tokens[i];
        if (str_eq(a->text, b->text)) return duplicate_token(t, a->id, b->id, err);
    }
    link_prefixes(t);
    return true;
}

// Special tokens.

// Number of special tokens whose text is s or sorts before it.
static int count_specials_upto(const Tokenizer *t, Str s) {
    int low = 0, high = t->special.n;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (str_compare(t->special.tokens[middle].text, s) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int vocabulary_find_special(const Tokenizer *t, Str s) {
    int i = count_specials_upto(t, s) - 1;
    return i >= 0 && str_eq(t->special.tokens[i].text, s) ? t->special.tokens[i].id : -1;
}

// Let `last` be the greatest special token, in byte order, that is not greater than s. Every
// special token that is a prefix of s is `last` or a prefix of `last`, so one binary search finds
// all of them, the longest first.
int vocabulary_match_special(const Tokenizer *t, const char *s, size_t n, size_t n_template) {
    if (!t->special.is_first_byte[(unsigned char)*s]) return -1;
    if (n > VOCABULARY_MAX_SPECIAL_BYTES) n = VOCABULARY_MAX_SPECIAL_BYTES;

    // Try `last` and then its prefixes, the longest first.
    Str text = {s, n};
    int i = count_specials_upto(t, text) - 1;
    while (i >= 0) {
        const SpecialToken *special = &t->special.tokens[i];
        bool may_match =
            special->text.len <= n_template || t->type[special->id] == TOKEN_USER_DEFINED;
        if (may_match && str_has_prefix(text, special->text)) return special->id;
        i = n_template ? special->prefix : special->user_defined_prefix;
    }

    return -1;
}

// Makes the slot of the token unfindable but leaves it occupied, because searches for other tokens
// may pass it.
void vocabulary_reserve_token(Tokenizer *t, int id) {
    Str s = token_text(t, id);
    if (t->special.n_reserved == VOCABULARY_MAX_RESERVED) return;
    t->special.n_reserved++;
    size_t slot = token_hash(t, s.data, s.len) & t->table.slot_mask;
    while ((int)(t->table.slots[slot] & ~t->table.tag_mask) != id + 1)
        slot = (slot + 1) & t->table.slot_mask;
    t->table.slots[slot] ^= t->table.tag_mask; // differs from the token's hash in every bit
    t->type[id] = TOKEN_RESERVED;
    add_special(t, count_specials_upto(t, s), id);
    link_prefixes(t);
}

// Metadata.

// The data of an array with one 4-byte item per token, or NULL with err.
static const uint8_t *token_array(const Tokenizer *t, const Gguf *g, const char *key, GgufKind kind,
                                  Error *err) {
    const GgufValue *v = gguf_get_array(g, key, kind, err);
    if (v && v->count == (uint64_t)t->n) return v->data;
    if (v) gguf_refuse(g, err, "%s: expected %d items, found %zu", key, t->n, (size_t)v->count);
    return NULL;
}

// Loads token_type. Without this key, all tokens are normal.
static bool load_types(Tokenizer *t, const Gguf *g, Error *err) {
    memset(t->type, TOKEN_NORMAL, (size_t)t->n);
    if (!gguf_find_value(g, "tokenizer.ggml.token_type")) return true;
    const uint8_t *data = token_array(t, g, "tokenizer.ggml.token_type", GGUF_I32, err);
    if (!data) return false;
    for (int i = 0; i < t->n; i++) {
        uint32_t type;
        memcpy(&type, data + 4 * (size_t)i, 4);
        if (type > TOKEN_BYTE)
            return vocabulary_error(t, err, "token_type: token %d: expected 1 to 6, found %d", i,
                                    (int)type);
        t->type[i] = (uint8_t)type;
    }
    return true;
}

// Turns SentencePiece's scores into ranks: a higher score is a lower rank. The bits of float32
// numbers sort like the numbers if the sign bit of positive numbers and all bits of negative
// numbers are flipped. A rank is the complement of these bits.
static bool load_scores(Tokenizer *t, const Gguf *g, Error *err) {
    const uint8_t *data = token_array(t, g, "tokenizer.ggml.scores", GGUF_F32, err);
    if (!data) return false;
    t->rank = arena_alloc(&t->memory, (size_t)t->n, sizeof *t->rank);

    for (int i = 0; i < t->n; i++) {
        float score;
        memcpy(&score, data + 4 * (size_t)i, 4);
        if (!(score - score == 0))
            return vocabulary_error(t, err, "scores: token %d: expected a finite number, found %g",
                                    i, (double)score);
        score += 0.0f; // -0 equals 0
        uint32_t bits = float_bits(score);
        t->rank[i] = bits >> 31 ? bits : ~(bits | 1u << 31);
    }

    return true;
}

// Reads a token id; *id keeps its value if the key is absent. 2^32 - 1 means "none", with a warning
// for a token that a text needs to end.
static bool load_id(const Tokenizer *t, const Gguf *g, const char *key, bool may_be_none, int *id,
                    Error *err) {
    uint64_t v;
    if (!gguf_find_value(g, key)) return true;
    if (!gguf_get_u64(g, key, &v, err)) return false;
    bool is_none = v == UINT32_MAX;
    if (v >= (uint64_t)t->n && !is_none)
        return gguf_refuse(g, err, "%s: expected an id below %d, found %llu", key, t->n,
                           (unsigned long long)v);
    if (is_none && !may_be_none) warn("%s: %s is 2^32 - 1: no such token", t->path, key);
    *id = is_none ? -1 : (int)v;
    return true;
}

// Turns a token that the metadata refers to into a control token, whatever its type in the file.
static void set_control(Tokenizer *t, int id) {
    if (id >= 0 && t->type[id] != TOKEN_UNKNOWN) t->type[id] = TOKEN_CONTROL;
}

// A stop token is a control token: it is not part of the text.
void tokenizer_add_stop(Tokenizer *t, int id, const char *origin) {
    set_control(t, id);
    for (int i = 0; i < t->stop.n; i++)
        if (t->stop.ids[i] == id) return;
    if (id < 0 || t->stop.n == VOCABULARY_MAX_STOPS) return;
    t->stop.origins[t->stop.n] = origin;
    t->stop.ids[t->stop.n++] = id;
}

// Files often name only one of several stop tokens, or a wrong one. Llama 3.1's EOS is <|eot_id|>
// or <|end_of_text|>, and tool calls end with <|eom_id|>. GLM-4 ends a turn with the token that
// begins the next one.
static const struct {
    const char *text, *model;
} known_stops[] = {
    // clang-format off
    {"<|eot_id|>", "Llama 3"}, {"<|eom_id|>", "Llama 3.1"}, {"<|end_of_text|>", "Llama 3"},
    {"<|im_end|>", "ChatML"}, {"</s>", "Llama 2"}, {"<|endoftext|>", "GPT-2"},
    {"<|eot|>", "Llama 4"}, {"<|end|>", "Phi-3"}, {"<end_of_turn>", "Gemma"}, {"<eos>", "Gemma"},
    {"<turn|>", "Gemma 4"}, {"<｜end▁of▁sentence｜>", "DeepSeek"}, {"<|EOT|>", "DeepSeek Coder"},
    {"<|return|>", "gpt-oss"}, {"<|call|>", "gpt-oss"}, {"<|user|>", "GLM-4"},
    {"<|observation|>", "GLM-4"}, {"<|END_OF_TURN_TOKEN|>", "Command R"},
    {"<|end_of_turn|>", "OpenChat"}, {"[|endofturn|]", "EXAONE"}, {"▁<EOT>", "Code Llama"},
    {"<EOT>", "Refact"}, {"<end_of_utterance>", "SmolVLM"}, {"<|role_end|>", "Ling"},
    {"<|assistant_end|>", "Apertus"}, {"<SPECIAL_12>", "Nemotron"}, {"[e~[", "MiniMax"},
    {"<seed:eos>", "Seed-OSS"}, {"<|message_sep|>", "GigaChat"}, {"<|end_of_msg|>", "Kimi K3"},
    // clang-format on
};

void vocabulary_add_known_stops(Tokenizer *t) {
    for (size_t i = 0; i < sizeof known_stops / sizeof *known_stops; i++)
        tokenizer_add_stop(t, vocabulary_find_special(t, str_of(known_stops[i].text)),
                           known_stops[i].model);
}

// Loads the ids that the metadata names. Runs before load_token(), because it changes token types.
static bool load_ids(Tokenizer *t, const Gguf *g, Error *err) {
    int eot = -1, eom = -1;
    if (!load_id(t, g, "tokenizer.ggml.eos_token_id", false, &t->eos, err) ||
        !load_id(t, g, "tokenizer.ggml.eot_token_id", false, &eot, err) ||
        !load_id(t, g, "tokenizer.ggml.eom_token_id", false, &eom, err) ||
        !load_id(t, g, "tokenizer.ggml.bos_token_id", true, &t->bos, err) ||
        !load_id(t, g, "tokenizer.ggml.unknown_token_id", true, &t->unknown, err))
        return false;
    tokenizer_add_stop(t, t->eos, "eos_token_id");
    tokenizer_add_stop(t, eot, "eot_token_id");
    tokenizer_add_stop(t, eom, "eom_token_id");
    set_control(t, t->bos);
    return true;
}

// Loads the key of scripts/export.py for what add_space_prefix cannot express.
static bool load_prefix_scheme(Tokenizer *t, const Gguf *g, Error *err) {
    Str scheme = {"", 0};
    if (!gguf_find_value(g, "tokenizer.ggml.prepend_scheme")) return true;
    if (!gguf_get_string(g, "tokenizer.ggml.prepend_scheme", &scheme, err)) return false;

    t->prefix_scheme = str_is(scheme, "first") ? PREFIX_FIRST : PREFIX_ALWAYS;
    return t->prefix_scheme == PREFIX_FIRST || str_is(scheme, "always") ||
           vocabulary_error(t, err, "prepend_scheme: expected always or first, found \"%.*s\"",
                            SHOWN(scheme));
}

// Sets defaults for keys that the file lacks. Runs after fill_tables(), because it searches for
// tokens. Every byte must have a token: its own, or with SentencePiece the unknown token.
static bool load_defaults(Tokenizer *t, const Gguf *g, Error *err) {
    vocabulary_add_known_stops(t);

    if (t->bos < 0 && !gguf_find_value(g, "tokenizer.ggml.bos_token_id"))
        t->bos =
            vocabulary_find_special(t, str_of(t->is_sentencepiece ? "<s>" : "<|begin_of_text|>"));
    if (t->unknown < 0) t->unknown = vocabulary_find_special(t, str_of("<unk>"));

    t->adds_bos = t->is_sentencepiece || t->pretokenizer->adds_bos;
    t->has_space_prefix = t->is_sentencepiece;
    if (!gguf_get_bool(g, "tokenizer.ggml.add_bos_token", &t->adds_bos, err) ||
        (t->is_sentencepiece &&
         !gguf_get_bool(g, "tokenizer.ggml.add_space_prefix", &t->has_space_prefix, err)) ||
        !load_prefix_scheme(t, g, err))
        return false;

    // Find a token for each byte that has no byte token.
    for (int b = 0; b < 256; b++) {
        int *id = &t->byte_id[b];
        if (*id < 0) *id = vocabulary_find(t, &(char){(char)b}, 1);
        if (*id < 0 && t->is_sentencepiece) *id = t->unknown;
        if (*id < 0) return vocabulary_error(t, err, "tokens: no token for byte 0x%02x", b);
    }

    return true;
}

// Merges.

// Reads rule i of the list, "LEFT RIGHT" in byte letters. `bytes` must be large enough for both
// parts. Returns the token that the rule makes, or -1 with err.
static int read_merge(const Tokenizer *t, Str text, int i, const int16_t *byte_of, char *bytes,
                      MergeRule *rule, Error *err) {
    const char *space = memchr(text.data, ' ', text.len);
    size_t n_left = space ? (size_t)(space - text.data) : 0;
    int n = space ? decode_letters(byte_of, (Str){text.data, n_left}, bytes) : -1;
    int more =
        n > 0 ? decode_letters(byte_of, (Str){space + 1, text.len - n_left - 1}, bytes + n) : -1;
    int id = more > 0 ? vocabulary_find(t, bytes, (size_t)(n + more)) : -1;

    if (id < 0) {
        vocabulary_error(t, err, "merges: rule %d is not two parts of a token: \"%.*s\"", i,
                         SHOWN(text));
        return -1;
    }

    *rule = (MergeRule){vocabulary_find(t, bytes, (size_t)n),
                        vocabulary_find(t, bytes + n, (size_t)more), -1};
    return id;
}

// Loads the list of merge rules. There are two kinds of lists:
//
// - A list from BPE training has one rule per token, and no other pair may merge.
// - A list that was derived from tiktoken's ranks (Llama 3) has every pair whose bytes together are
//   a token: more rules than tokens, sorted by the id that they make. It contains no more
//   information than the vocabulary, so only its beginning is checked, and encoding uses ids as
//   ranks.
static bool load_merges(Tokenizer *t, const Gguf *g, const int16_t *byte_of, Error *err) {
    enum { N_CHECKED = 1000 };
    const GgufValue *list = gguf_get_array(g, "tokenizer.ggml.merges", GGUF_STRING, err);
    if (!list) return false;

    int n = list->count < INT_MAX / 4 ? (int)list->count : INT_MAX / 4;
    int id = 0; // of the token that the last rule makes; -1 after an error
    char *bytes = xrealloc(NULL, list->bytes + 1, 1);
    const uint8_t *cursor = list->data;

    // Check for a list of the second kind.
    bool is_by_id = n > t->n;
    for (int i = 0, last = 0; i < n && i < N_CHECKED && is_by_id; i++, last = id) {
        id = read_merge(t, gguf_next_string(&cursor), i, byte_of, bytes, &(MergeRule){0}, err);
        is_by_id = id >= last;
    }

    if (id >= 0 && !is_by_id) {
        t->merges = arena_alloc(&t->memory, (size_t)n, sizeof *t->merges);
        t->first_merge = arena_alloc(&t->memory, (size_t)t->n, sizeof *t->first_merge);
        memset(t->first_merge, -1, (size_t)t->n * sizeof *t->first_merge);
    }

    // In a list of the first kind, link the rules that make the same token.
    cursor = list->data;
    if (!t->merges) n = 0;
    for (int i = 0; i < n && id >= 0; i++) {
        MergeRule *rule = &t->merges[i];
        Str text = gguf_next_string(&cursor);
        id = read_merge(t, text, i, byte_of, bytes, rule, err);
        if (id < 0) break;

        rule->next = t->first_merge[id];
        t->first_merge[id] = i;
        for (int k = rule->next; k >= 0; k = t->merges[k].next)
            if (t->merges[k].left == rule->left && t->merges[k].right == rule->right) {
                vocabulary_error(t, err, "merges: duplicate rule %d: \"%.*s\"", i, SHOWN(text));
                id = -1;
            }
    }

    free(bytes);
    return id >= 0;
}

// The pre-tokenizer of a file that does not name it: that of Llama 3, whose first files had no such
// key, if four of its special tokens are there. Otherwise NULL.
static const Pretokenizer *infer_pretokenizer(const Tokenizer *t) {
    static const struct {
        int id;
        const char *text;
    } known[] = {{128000, "<|begin_of_text|>"},
                 {128001, "<|end_of_text|>"},
                 {128006, "<|start_header_id|>"},
                 {128009, "<|eot_id|>"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].id >= t->n || !str_is(token_text(t, known[i].id), known[i].text)) return NULL;
    warn("%s: tokenizer.ggml.pre: missing key; the tokens are those of Llama 3", t->path);
    return pretokenizer_find(str_of("llama-bpe"));
}

// Finds the pre-tokenizer of byte-level BPE. Runs after load_token(), because files may not name
// it.
static bool load_pretokenizer(Tokenizer *t, const Gguf *g, Error *err) {
    Str name;
    if (!gguf_find_value(g, "tokenizer.ggml.pre")) t->pretokenizer = infer_pretokenizer(t);
    if (!t->pretokenizer) {
        if (!gguf_get_string(g, "tokenizer.ggml.pre", &name, err)) return false;
        t->pretokenizer = pretokenizer_find(name);
    }
    if (!t->pretokenizer)
        return vocabulary_error(t, err, "pre: unknown pre-tokenizer \"%.*s\"", SHOWN(name));
    if (t->pretokenizer->normalizes) nfc_init();
    return true;
}

// Loads the kind of the vocabulary.
static bool load_model(Tokenizer *t, const Gguf *g, Error *err) {
    Str model;
    if (!gguf_get_string(g, "tokenizer.ggml.model", &model, err)) return false;
    t->is_sentencepiece = str_is(model, "llama");
    return t->is_sentencepiece || str_is(model, "gpt2") ||
           vocabulary_error(t, err, "model: expected gpt2 or llama, found \"%.*s\"", SHOWN(model));
}

// Finds the list of tokens, and allocates what its length determines. NULL with err.
static const GgufValue *begin_tokens(Tokenizer *t, const Gguf *g, Error *err) {
    const GgufValue *tokens = gguf_get_array(g, "tokenizer.ggml.tokens", GGUF_STRING, err);
    if (!tokens) return NULL;
    if (tokens->count == 0 || tokens->count >= INT_MAX / 2 || tokens->bytes > INT_MAX) {
        vocabulary_error(
            t, err,
            "tokens: expected 1 to 2^30 tokens of up to 2 GB, found %zu tokens of %zu bytes",
            (size_t)tokens->count, tokens->bytes);
        return NULL;
    }

    size_t n = (size_t)tokens->count;
    t->n = (int)n;
    t->type = arena_alloc(&t->memory, n, 1);
    t->start = arena_alloc(&t->memory, n + 1, sizeof *t->start);
    t->bytes = arena_alloc(&t->memory, tokens->bytes - 8 * n + 1, 1); // decoding never adds bytes
    return tokens;
}

static bool load_tokens(Tokenizer *t, const GgufValue *tokens, const int16_t *byte_of, Error *err) {
    const uint8_t *cursor = tokens->data;
    for (int i = 0; i < t->n; i++)
        if (!load_token(t, i, gguf_next_string(&cursor), byte_of, err)) return false;
    return true;
}

// The order matters: token types decide how tokens are decoded, and merge rules refer to tokens by
// their bytes.
bool vocabulary_load(Tokenizer *t, const Gguf *g, Error *err) {
    int16_t byte_of[N_BYTE_LETTERS];
    byte_letters_init(byte_of);
    if (!load_model(t, g, err)) return false;

    const GgufValue *tokens = begin_tokens(t, g, err);
    if (!tokens || !load_types(t, g, err) || !load_ids(t, g, err)) return false;
    if (t->is_sentencepiece)
        return load_scores(t, g, err) && load_tokens(t, tokens, byte_of, err) &&
               fill_tables(t, err) && load_defaults(t, g, err);
    return load_tokens(t, tokens, byte_of, err) && load_pretokenizer(t, g, err) &&
           fill_tables(t, err) && load_defaults(t, g, err) && load_merges(t, g, byte_of, err);
}
