// Encodes text as byte-level BPE (Llama 3) or SentencePiece BPE (Llama 2).
//
// Encoding has three levels, which this file defines from the lowest to the highest:
//
//   encode_piece      merges neighbors in a piece, best pair first, until no two make a token
//   encode_plain      cuts text without special tokens into pieces
//   encode_with_mask  cuts a text at its special tokens
//
// Decoding is a table lookup: tokenizer_piece().
//
//                byte-level BPE                       SentencePiece BPE
//   pieces       matches of a regular expression      words with the spaces in front of them
//                (pretokenize.c)
//   first parts  bytes                                characters; a character without a token
//                                                     becomes the tokens of its bytes
//   best pair    lowest rank: order of the merge      highest score of the merged token
//                list, or id of the merged token
//   whole piece  one token if the vocabulary has it   must be reached by merges
//                (Llama 3 and Tekken)
//
// Invariant: decoding restores the exact bytes of any text. A byte outside of valid UTF-8 counts as
// a character that is neither letter, number nor space. (Exception: SentencePiece writes a space as
// U+2581, so a U+2581 of the text is decoded as a space.)
//
// Meta's reference tokenizer also cuts runs of 25,000 spaces or non-spaces, and texts of 400,000
// characters, before it applies the regular expression. Neither tiktoken nor other programs do
// this, and neither does this file.
#include "tokenizer.h"
#include "tokenizer/vocabulary.h"
#include "base/nfc.h"
#include "base/unicode.h"

#include <limits.h>

enum {
    MAX_CACHED_BYTES = 64, // longer pieces are not cached; words are shorter
    MIN_CACHE = 64,        // entries of the piece cache of a short text
    MAX_CACHE = 1 << 14,   // entries of the piece cache of a long text: 384 KiB, which fits L2
    PART_MERGED = -2       // PiecePart.id of a part that was merged into its left neighbor
};
static const uint32_t NO_RANK = UINT32_MAX; // greater than the rank of any merge

void ids_push(Ids *ids, int id) {
    if (ids->len == INT_MAX) die(EXIT_RUNTIME, "out of memory: too many tokens");
    ids->data = list_grow(ids->data, ids->len, sizeof *ids->data);
    ids->data[ids->len++] = id;
}

// A piece that was encoded before in the same text.
typedef struct {
    const char *s;
    uint32_t len;
    int first, n; // its ids are out->data[first .. first + n)
} CachedPiece;

// A part of a piece: a byte or character, or several that were merged.
typedef struct {
    int prev, next;      // neighbors, or -1
    uint32_t start, end; // bytes [start, end) of the piece
    int id;              // token id, -1 if the part is not a token, or PART_MERGED
} PiecePart;

// Two neighbors that may merge. The pair is stale if its left part was merged into another part, or
// if its right part no longer ends at `end`.
typedef struct {
    uint64_t key; // rank << 32 | index of the left part: ties go to the leftmost pair
    uint32_t end;
    int id; // token of the merged part
} MergePair;

// State of one call of encode_with_mask().
typedef struct {
    const Tokenizer *t;
    Ids *out;
    CachedPiece *cache; // by hash, cache_mask + 1 entries
    size_t cache_mask;
    Arena texts;      // texts in the form of the vocabulary; cached pieces point into them
    PiecePart *parts; // (cap_parts) of the current piece
    MergePair *heap;  // (n_heap) binary heap, lowest key first; room for 2 * cap_parts
    size_t cap_parts, n_heap;
} EncodeState;

// Merging.

// Rank of the merge of two neighbors, and the token that it makes; NO_RANK if they do not merge.
static uint32_t merge_rank(const Tokenizer *t, const char *s, const PiecePart *left,
                           const PiecePart *right, int *id) {
    size_t n = right->end - left->start;
    *id = n <= t->max_bytes ? vocabulary_find(t, s + left->start, n) : -1;
    if (*id < 0) return NO_RANK;
    if (!t->merges) return t->rank ? t->rank[*id] : (uint32_t)*id;

    // The rules that make this token are a list.
    int rule = t->first_merge[*id];
    while (rule >= 0 && (t->merges[rule].left != left->id || t->merges[rule].right != right->id))
        rule = t->merges[rule].next;
    return (uint32_t)rule; // -1 is NO_RANK
}

// Adds the pair of part `left` and the next one to the heap, if they merge.
static void push_pair(EncodeState *e, const char *s, int left) {
    if (left < 0 || e->parts[left].next < 0) return;
    const PiecePart *right = &e->parts[e->parts[left].next];
    MergePair p = {.end = right->end};
    uint32_t rank = merge_rank(e->t, s, &e->parts[left], right, &p.id);
    if (rank == NO_RANK) return;
    p.key = (uint64_t)rank << 32 | (uint32_t)left;

    size_t i = e->n_heap++;
    for (; i && e->heap[(i - 1) / 2].key > p.key; i = (i - 1) / 2)
        e->heap[i] = e->heap[(i - 1) / 2];
    e->heap[i] = p;
}

static MergePair pop_pair(EncodeState *e) {
    MergePair *heap = e->heap, best = heap[0], moved = heap[--e->n_heap];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < e->n_heap; i = child) {
        if (child + 1 < e->n_heap && heap[child + 1].key < heap[child].key) child++;
        if (heap[child].key >= moved.key) break;
        heap[i] = heap[child];
    }
    heap[i] = moved;
    return best;
}

// Divides a piece of n bytes into one part per character (SentencePiece) or byte. Returns their
// number.
static int divide_piece(EncodeState *e, const char *s, size_t n) {
    const Tokenizer *t = e->t;
    int n_parts = 0;

    if (n > e->cap_parts) {
        e->cap_parts = 2 * n;
        e->parts = xrealloc(e->parts, e->cap_parts, sizeof *e->parts);
        e->heap =
            xrealloc(e->heap, 2 * e->cap_parts, sizeof *e->heap); // n - 1 pairs, one more per merge
    }

    for (size_t at = 0; at < n; n_parts++) {
        uint32_t code;
        int len = t->is_sentencepiece ? utf8_decode(s + at, n - at, &code) : 1;
        if (len == 0) len = 1; // a byte outside of valid UTF-8
        int id = t->is_sentencepiece ? vocabulary_find(t, s + at, (size_t)len)
                                     : t->byte_id[(unsigned char)s[at]];
        e->parts[n_parts] =
            (PiecePart){n_parts - 1, n_parts + 1, (uint32_t)at, (uint32_t)at + (uint32_t)len, id};
        at += (size_t)len;
    }

    e->parts[n_parts - 1].next = -1;
    return n_parts;
}

// Outputs the tokens of the parts. A part without a token is encoded byte by byte.
static void output_parts(EncodeState *e, const char *s) {
    const PiecePart *parts = e->parts;
    for (int i = 0; i >= 0; i = parts[i].next) {
        if (parts[i].id >= 0)
            ids_push(e->out, parts[i].id);
        else
            for (uint32_t k = parts[i].start; k < parts[i].end; k++)
                ids_push(e->out, e->t->byte_id[(unsigned char)s[k]]);
    }
}

// Encodes a piece of n bytes in O(n log n): its parts are a linked list, its pairs a heap. After a
// merge, pairs of the old parts are stale. They stay in the heap and are skipped when popped.
//
//     t h e      parts; pairs: he (rank 2), th (rank 5)
//     t he       he merged, th is stale; new pair: the (rank 9)
//     the        one token
static void merge_piece(EncodeState *e, const char *s, size_t n) {
    int n_parts = divide_piece(e, s, n);
    PiecePart *parts = e->parts;

    e->n_heap = 0;
    for (int i = 0; i < n_parts; i++) push_pair(e, s, i);

    // Merge the best pair until the heap is empty.
    while (e->n_heap) {
        MergePair p = pop_pair(e);
        int left = (int)(uint32_t)p.key;
        int right = parts[left].next;
        bool is_stale = parts[left].id == PART_MERGED || right < 0 || parts[right].end != p.end;
        if (is_stale) continue;

        parts[left].id = p.id;
        parts[left].end = p.end;
        parts[left].next = parts[right].next;
        parts[right].id = PART_MERGED;
        if (parts[right].next >= 0) parts[parts[right].next].prev = left;

        push_pair(e, s, parts[left].prev);
        push_pair(e, s, left);
    }

    output_parts(e, s);
}

// Encodes a piece: from the cache, as one token, or by merging. The cache pays because most pieces
// of a text are words that occurred before.
static void encode_piece(EncodeState *e, const char *s, size_t n) {
    const Tokenizer *t = e->t;
    int first = e->out->len;
    bool is_cacheable = n <= MAX_CACHED_BYTES;
    bool may_be_token =
        !t->is_sentencepiece && t->pretokenizer->ignores_merges && n <= t->max_bytes;
    uint64_t h = is_cacheable || may_be_token ? token_hash(t, s, n) : 0;
    CachedPiece *cached = is_cacheable ? &e->cache[h >> 40 & e->cache_mask] : NULL;

    if (cached && cached->len == n && !memcmp(cached->s, s, n)) {
        for (int i = 0; i < cached->n; i++) ids_push(e->out, e->out->data[cached->first + i]);
    } else {
        int id = may_be_token ? vocabulary_find_hashed(t, h, s, n) : -1;
        if (id >= 0)
            ids_push(e->out, id);
        else
            merge_piece(e, s, n);
    }

    // The entry always points to the latest occurrence, whose bytes and ids are still in L1 or L2.
    if (cached) *cached = (CachedPiece){s, (uint32_t)n, first, e->out->len - first};
}

// Pieces.

// The end of the first SentencePiece word of s: leading spaces, and all bytes up to the next space.
// Merging word by word gives the same tokens as merging the whole text only if no token of the
// vocabulary crosses a word boundary (has_split_words). Otherwise the whole text is one piece.
static const char *next_spaced_word(const Tokenizer *t, const char *s, const char *end) {
    if (!t->has_split_words) return end;
    while (s < end && *s == ' ') s++;
    const char *space = memchr(s, ' ', (size_t)(end - s));
    return space ? space : end;
}

// True if a space is put in front of text without special tokens. is_first: no special token is in
// front of it. is_continued: it continues ordinary text.
static bool gets_space(const Tokenizer *t, Str s, bool is_first, bool is_continued) {
    if (!t->has_space_prefix || (is_first && is_continued)) return false;
    if (t->prefix_scheme == PREFIX_EVERY) return true;
    bool has_space = str_has_prefix(s, str_of(" ")) || str_has_prefix(s, str_of("\u2581"));
    return !has_space && (is_first || t->prefix_scheme == PREFIX_ALWAYS);
}

// Encodes text without special tokens.
static void encode_plain(EncodeState *e, const char *s, size_t n, bool is_first,
                         bool is_continued) {
    const Tokenizer *t = e->t;
    if (n == 0) return; // an empty text gets no space prefix
    if (!t->is_sentencepiece && t->pretokenizer->normalizes) nfc_normalize(&s, &n, &e->texts);
    if (t->is_sentencepiece) {
        size_t n_prefix = gets_space(t, (Str){s, n}, is_first, is_continued);
        char *text = arena_alloc(&e->texts, n + 1, 1);
        memset(text, ' ', n_prefix);
        n = n_prefix + sentencepiece_unescape((Str){s, n}, text + n_prefix);
        s = text;
    }

    for (const char *end = s + n, *next; s < end; s = next) {
        next =
            t->is_sentencepiece ? next_spaced_word(t, s, end) : t->pretokenizer->next_piece(s, end);
        encode_piece(e, s, (size_t)(next - s));
    }
}

// Special tokens and text between them.

// The state for a text of n bytes. Its cache has one or two entries per 16 bytes, between MIN_CACHE
// and MAX_CACHE.
static EncodeState encode_begin(const Tokenizer *t, size_t n, Ids *out) {
    EncodeState e = {.t = t, .out = out, .cache_mask = MIN_CACHE - 1};
    while (e.cache_mask < MAX_CACHE - 1 && e.cache_mask < n / 16)
        e.cache_mask = 2 * e.cache_mask + 1;
    e.cache = xalloc(e.cache_mask + 1, sizeof *e.cache);
    return e;
}

static void encode_end(EncodeState *e) {
    arena_free(&e->texts);
    free(e->parts);
    free(e->heap);
    free(e->cache);
}

// The end of the template bytes that begin at s, whose provenance is `mask`. Those before `known`
// are template bytes.
static const char *end_of_template(const char *mask, const char *s, const char *known,
                                   const char *end) {
    const char *at = known > s ? known : s;
    while (at < end && mask[at - s]) at++;
    return at;
}

// Encodes a text with its special tokens. Control and reserved tokens are recognized everywhere
// (parse_special), or where the provenance mask is 1, or nowhere if that is NULL. User-defined
// tokens are text that the vocabulary never splits, so they are recognized everywhere.
//
// Invariant: no byte of data is part of a control or reserved token. template_end is the end of the
// run of template bytes that begins at s, and no match may extend beyond it.
static void encode_with_mask(const Tokenizer *t, const char *text, size_t n, bool parse_special,
                             const char *provenance, bool is_continued, Ids *out) {
    if (n > INT_MAX / 2)
        die(EXIT_RUNTIME, "the text has %zu bytes; at most %d can be encoded", n, INT_MAX / 2);
    if (n == 0) return;

    EncodeState e = encode_begin(t, n, out);
    const char *from = text, *end = text + n; // from: end of the last special token
    const char *template_end = parse_special ? end : text;
    bool may_match = parse_special || provenance || t->special.has_user_defined;

    const char *s = may_match ? text : end;
    while (s < end) {
        if (provenance)
            template_end = end_of_template(provenance + (s - text), s, template_end, end);

        size_t n_template = template_end > s ? (size_t)(template_end - s) : 0;
        int id = vocabulary_match_special(t, s, (size_t)(end - s), n_template);
        if (id < 0) {
            s++;
            continue;
        }

        encode_plain(&e, from, (size_t)(s - from), from == text, is_continued);
        ids_push(out, id);
        s += t->start[id + 1] - t->start[id];
        from = s;
    }

    encode_plain(&e, from, (size_t)(end - from), from == text, is_continued);
    encode_end(&e);
}

void tokenizer_encode(const Tokenizer *t, Str text, bool parse_special, Ids *out) {
    encode_with_mask(t, text.data, text.len, parse_special, NULL, false, out);
}

void tokenizer_encode_masked(const Tokenizer *t, const char *text, const char *provenance, size_t n,
                             bool is_continued, Ids *out) {
    encode_with_mask(t, text, n, false, provenance, is_continued, out);
}

// The public interface of the vocabulary.

Tokenizer *tokenizer_open(const Gguf *g, Error *err) {
    Tokenizer *t = xalloc(1, sizeof *t);
    unicode_init();
    t->path = g->path;
    t->bos = t->eos = t->unknown = -1;
    t->has_split_words = true;
    memset(t->byte_id, -1, sizeof t->byte_id);
    if (vocabulary_load(t, g, err)) return t;
    tokenizer_close(t);
    return NULL;
}

void tokenizer_close(Tokenizer *t) {
    if (!t) return;
    arena_free(&t->memory);
    free(t);
}

Str tokenizer_piece(const Tokenizer *t, int id, bool special) {
    if (id < 0 || id >= t->n || (!special && tokenizer_is_control(t, id))) return (Str){"", 0};
    return (Str){t->bytes + t->start[id], t->start[id + 1] - t->start[id]};
}

bool tokenizer_has_space_prefix(const Tokenizer *t) { return t->has_space_prefix; }

Str tokenizer_piece_in_text(const Tokenizer *t, int id, bool special, bool *drops_space) {
    Str s = tokenizer_piece(t, id, special);
    if (!*drops_space || !s.len || tokenizer_is_control(t, id)) return s;
    *drops_space = false;
    return s.data[0] == ' ' ? (Str){s.data + 1, s.len - 1} : s;
}

size_t tokenizer_min_tokens(const Tokenizer *t, size_t n_bytes) {
    // A space may be U+2581 with 3 bytes; form C takes at least a third of the bytes.
    size_t longest = (t->is_sentencepiece || t->pretokenizer->normalizes ? 3 : 1) * t->max_bytes;
    return longest ? n_bytes / longest : 0;
}

int tokenizer_n_vocab(const Tokenizer *t) { return t->n; }
int tokenizer_bos(const Tokenizer *t) { return t->bos; }
int tokenizer_eos(const Tokenizer *t) { return t->eos; }
bool tokenizer_adds_bos(const Tokenizer *t) { return t->adds_bos && t->bos >= 0; }

bool tokenizer_is_control(const Tokenizer *t, int id) {
    return id >= 0 && id < t->n && (t->type[id] == TOKEN_CONTROL || t->type[id] == TOKEN_UNKNOWN);
}

bool tokenizer_is_special(const Tokenizer *t, int id) {
    return tokenizer_is_control(t, id) || (id >= 0 && id < t->n && t->type[id] == TOKEN_RESERVED);
}

bool tokenizer_is_stop(const Tokenizer *t, int id) {
    for (int i = 0; i < t->stop.n; i++)
        if (t->stop.ids[i] == id) return true;
    return false;
}

const int *tokenizer_stops(const Tokenizer *t, int *n) {
    *n = t->stop.n;
    return t->stop.ids;
}

const char *tokenizer_stop_origin(const Tokenizer *t, int i) { return t->stop.origins[i]; }

int tokenizer_special_id(const Tokenizer *t, const char *name) {
    return vocabulary_find_special(t, str_of(name));
}
