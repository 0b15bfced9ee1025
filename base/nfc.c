// See nfc.h. Order: the tables, decomposition and order of marks, composition.
#include "base/nfc.h"
#include "base/unicode.h"

enum {
    CODE_END = 0x30000,   // characters from here on neither decompose nor combine
    CODE_BYTE = 0x110000, // a byte outside of valid UTF-8, plus the byte
    MAX_MAPPINGS = 2200,  // canonical decompositions
    MAX_GROWTH = 3,       // bytes of form C per byte (UAX #15, section 12)
    N_L = 19,             // Hangul: leading consonants, vowels, trailing consonants and none
    N_V = 21,
    N_T = 28,
    HANGUL = 0xac00, // syllables, in the order of L, V and T
    HANGUL_END = HANGUL + N_L * N_V * N_T,
    JAMO_L = 0x1100,
    JAMO_V = 0x1161,
    JAMO_T = 0x11a7 // none
};

// The code decomposes to the first and the second character; second is 0 if there is only one.
typedef struct {
    uint32_t key; // the code in `decompositions`, the first character in `compositions`
    uint32_t code, first, second;
} Mapping;

static Mapping decompositions[MAX_MAPPINGS]; // (n_decompositions) by key
static Mapping compositions[MAX_MAPPINGS];   // (n_compositions) by key
static size_t n_decompositions, n_compositions;
static uint8_t classes[CODE_END];      // canonical combining classes; 0: a starter
static uint8_t unstable[CODE_END / 8]; // bits: never in form C, or not after every character

// The tables.

extern const char nfc_table[]; // nfc_table.S; scripts/make_nfc.py describes its numbers

static void mark_unstable(uint32_t code) { unstable[code / 8] |= (uint8_t)(1 << code % 8); }

static int compare_keys(const void *a, const void *b) {
    const Mapping *x = a, *y = b;
    return (x->key > y->key) - (x->key < y->key);
}

void nfc_init(void) {
    if (n_decompositions) return;
    const char *s = nfc_table;
    for (uint32_t n = unicode_next_number(&s); n > 0; n--) {
        Mapping m = {0};
        m.code = unicode_next_number(&s);
        m.first = unicode_next_number(&s);
        m.second = unicode_next_number(&s);
        bool composes = unicode_next_number(&s);

        mark_unstable(composes ? m.second : m.code);
        m.key = m.code;
        decompositions[n_decompositions++] = m;
        m.key = m.first;
        if (composes) compositions[n_compositions++] = m;
    }
    qsort(compositions, n_compositions, sizeof *compositions, compare_keys);

    for (uint32_t n = unicode_next_number(&s); n > 0; n--) {
        uint32_t code = unicode_next_number(&s);
        uint32_t end = unicode_next_number(&s);
        uint32_t class = unicode_next_number(&s);
        for (; code < end; code++) {
            classes[code] = (uint8_t) class;
            mark_unstable(code);
        }
    }
    for (uint32_t code = JAMO_V; code < JAMO_T + N_T; code++) mark_unstable(code);
}

// The first character of s, or a byte outside of valid UTF-8. Returns its length.
static size_t code_at(const char *s, size_t n, uint32_t *code) {
    int len = utf8_decode(s, n, code);
    if (len) return (size_t)len;
    *code = CODE_BYTE + (unsigned char)*s;
    return 1;
}

// The quick check: true if the text is in form C, false if it may not be.
static bool is_stable(const char *s, size_t n) {
    for (size_t i = 0; i < n;) {
        uint32_t code = (unsigned char)s[i];
        i += code < 0x80 ? 1 : code_at(s + i, n - i, &code);
        if (code < CODE_END && unstable[code / 8] >> code % 8 & 1) return false;
    }
    return true;
}

// Decomposition. Hangul syllables stay whole: composition adds what follows to them.

// A character as a key of the canonical order: class << 52 | index << 21 | code. The index keeps
// marks of one class in their order.
typedef uint64_t OrderedCode;

static uint32_t code_of(OrderedCode c) { return c & 0x1fffff; }
static unsigned class_of(OrderedCode c) { return (unsigned)(c >> 52); }

// Appends the full decomposition of a character to the n of `out`. Returns the new number.
static size_t decompose(OrderedCode *out, size_t n, uint32_t code) {
    size_t i = list_lower_bound(decompositions, n_decompositions, sizeof *decompositions, code);
    if (i < n_decompositions && decompositions[i].code == code) {
        n = decompose(out, n, decompositions[i].first);
        return decompositions[i].second ? decompose(out, n, decompositions[i].second) : n;
    }
    uint64_t class = code < CODE_END ? classes[code] : 0;
    out[n] = class << 52 | (uint64_t)n << 21 | code;
    return n + 1;
}

static int compare_codes(const void *a, const void *b) {
    const OrderedCode *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

// Sorts each run of marks by class.
static void order_marks(OrderedCode *codes, size_t n) {
    for (size_t i = 0, end; i < n; i = end + 1) {
        for (end = i; end < n && class_of(codes[end]);) end++;
        qsort(codes + i, end - i, sizeof *codes, compare_codes);
    }
}

// Composition.

// The character that two neighbors become, or 0.
static uint32_t compose_pair(uint32_t first, uint32_t second) {
    uint32_t l = first - JAMO_L, v = second - JAMO_V, syllable = first - HANGUL;
    if (l < N_L && v < N_V) return HANGUL + (l * N_V + v) * N_T;
    if (syllable < HANGUL_END - HANGUL && syllable % N_T == 0 && second > JAMO_T &&
        second < JAMO_T + N_T)
        return first + second - JAMO_T;

    size_t i = list_lower_bound(compositions, n_compositions, sizeof *compositions, first);
    for (; i < n_compositions && compositions[i].first == first; i++)
        if (compositions[i].second == second) return compositions[i].code;
    return 0;
}

// Composes characters in place. A mark joins the last starter unless another starter, or a mark of
// the same or a higher class, is between them. Returns the new number.
static size_t compose(OrderedCode *codes, size_t n) {
    size_t n_out = 0, starter = n; // n: none yet
    for (size_t i = 0; i < n; i++) {
        unsigned class = class_of(codes[i]);
        uint32_t composed = 0;
        if (starter < n && (starter + 1 == n_out || class_of(codes[n_out - 1]) < class))
            composed = compose_pair(code_of(codes[starter]), code_of(codes[i]));
        if (composed) {
            codes[starter] = composed;
            continue;
        }
        if (class == 0) starter = n_out;
        codes[n_out++] = codes[i];
    }
    return n_out;
}

void nfc_normalize(const char **s, size_t *n, Arena *a) {
    if (is_stable(*s, *n)) return;
    OrderedCode *codes = xrealloc(NULL, *n, 2 * sizeof *codes);
    char *out = arena_alloc(a, *n, MAX_GROWTH);
    size_t n_codes = 0, n_out = 0;
    for (size_t i = 0; i < *n;) {
        uint32_t code;
        i += code_at(*s + i, *n - i, &code);
        n_codes = decompose(codes, n_codes, code);
    }

    order_marks(codes, n_codes);
    n_codes = compose(codes, n_codes);

    for (size_t i = 0; i < n_codes; i++) {
        uint32_t code = code_of(codes[i]);
        if (code >= CODE_BYTE)
            out[n_out++] = (char)(code - CODE_BYTE);
        else
            n_out += (size_t)utf8_encode(code, out + n_out);
    }
    free(codes);
    *s = out;
    *n = n_out;
}
