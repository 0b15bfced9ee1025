// See json_char.h.
#include "constrain/json_char.h"

typedef enum {
    P_NONE,
    P_UTF8_1, // UTF-8: 1 to 3 bytes are missing
    P_UTF8_2,
    P_UTF8_3,
    P_ESCAPE, // after a backslash
    P_HEX_0,  // after \u and 0 to 3 digits
    P_HEX_1,
    P_HEX_2,
    P_HEX_3,
    P_HIGH,           // after a high surrogate such as \ud83d; the bits are its low ten bits
    P_HIGH_BACKSLASH, // after a high surrogate and a backslash
    P_LOW_0,          // after a high surrogate, \u and 0 to 3 digits of the low surrogate
    P_LOW_1,
    P_LOW_2,
    P_LOW_3
} Partial;

static uint32_t make_partial(Partial p, uint32_t bits) { return (uint32_t)p << 24 | bits; }

static uint32_t complete(uint32_t found, uint32_t *code) {
    *code = found;
    return CHAR_COMPLETE;
}

uint32_t char_step_utf8(uint32_t partial, int b, uint32_t *code) {
    Partial p = (Partial)(partial >> 24);
    uint32_t byte = (uint32_t)b;

    if (p == P_NONE) {
        if (byte < 0x80) return complete(byte, code);
        if (byte >= 0xc2 && byte < 0xe0) return make_partial(P_UTF8_1, byte & 31);
        if (byte >= 0xe0 && byte < 0xf0) return make_partial(P_UTF8_2, byte & 15);
        if (byte >= 0xf0 && byte < 0xf5) return make_partial(P_UTF8_3, byte & 7);
        return CHAR_INVALID;
    }

    // A continuation byte adds 6 bits.
    uint32_t bits = (partial & 0xffffff) << 6 | (byte & 63);
    if (byte >> 6 != 2) return CHAR_INVALID;
    if (p == P_UTF8_1) return complete(bits, code);

    bool is_valid = bits >= 0x10 && bits < 0x110; // else overlong or too large
    if (p == P_UTF8_2)
        is_valid = bits >= 0x20 && (bits < 0x360 || bits >= 0x380); // else overlong or a surrogate
    return is_valid ? make_partial(p - 1, bits) : CHAR_INVALID;
}

// hex_codes: characters that may be written as \uXXXX. These are characters without a shorter form,
// so that printable ASCII text can be written in only one way. escaped_codes: characters that may
// be written with any escape.
enum { N_ESCAPED = 4 };
static const CodeRange hex_codes[N_ESCAPED] = {{0, 7}, {11, 11}, {14, 31}, {127, CODE_MAX}};
static const CodeRange escaped_codes[N_ESCAPED] = {
    {0, 31}, {'"', '"'}, {'\\', '\\'}, {127, CODE_MAX}};

// Stores the parts of [lo, hi] that are in a list. Returns their number.
static int clip(uint32_t lo, uint32_t hi, const CodeRange *list, CodeRange *out) {
    int n = 0;
    for (int i = 0; i < N_ESCAPED; i++) {
        CodeRange part = {lo > list[i].lo ? lo : list[i].lo, hi < list[i].hi ? hi : list[i].hi};
        if (part.lo <= part.hi) out[n++] = part;
    }
    return n;
}

static uint32_t step_hex(Partial p, uint32_t bits, uint32_t digit, uint32_t *code) {
    CodeRange unused[N_ESCAPED];
    uint32_t more = bits << 4 | digit;
    switch (p) {
    case P_HEX_3:
        if (more >= 0xdc00 && more < 0xe000) return CHAR_INVALID; // low without high surrogate
        if (more >= 0xd800 && more < 0xdc00) return make_partial(P_HIGH, more & 0x3ff);
        return clip(more, more, hex_codes, unused) ? complete(more, code) : CHAR_INVALID;
    case P_LOW_0: return digit == 13 ? make_partial(P_LOW_1, bits) : CHAR_INVALID; // DC00 to DFFF
    case P_LOW_1:
        return digit >= 12 ? make_partial(P_LOW_2, bits << 2 | (digit & 3)) : CHAR_INVALID;
    case P_LOW_3: return complete(0x10000 + more, code);
    default: return make_partial(p + 1, more);
    }
}

uint32_t char_step_json(uint32_t partial, int b, uint32_t *code) {
    static const char names[] = "\"\\bfnrt", meanings[] = "\"\\\b\f\n\r\t";
    Partial p = (Partial)(partial >> 24);
    uint32_t bits = partial & 0xffffff;

    if (p == P_NONE && b == '\\') return make_partial(P_ESCAPE, 0);
    if (p == P_NONE && b < 0x20) return CHAR_INVALID;
    if (p < P_ESCAPE) return char_step_utf8(partial, b, code);

    if (p == P_ESCAPE) {
        const char *name = b ? strchr(names, b) : NULL;
        if (b == 'u') return make_partial(P_HEX_0, 0);
        return name ? complete((unsigned char)meanings[name - names], code) : CHAR_INVALID;
    }

    if (p == P_HIGH) return b == '\\' ? make_partial(P_HIGH_BACKSLASH, bits) : CHAR_INVALID;
    if (p == P_HIGH_BACKSLASH) return b == 'u' ? make_partial(P_LOW_0, bits) : CHAR_INVALID;

    int digit = hex_digit(b);
    return digit < 0 ? CHAR_INVALID : step_hex(p, bits, (uint32_t)digit, code);
}

int char_ranges(uint32_t partial, CodeRange out[CHAR_MAX_RANGES]) {
    Partial p = (Partial)(partial >> 24);
    if (p == P_ESCAPE || p == P_HEX_0)
        return clip(0, CODE_MAX, p == P_ESCAPE ? escaped_codes : hex_codes, out);

    static const unsigned char bits_missing[] = {
        [P_UTF8_1] = 6, [P_UTF8_2] = 12, [P_UTF8_3] = 18, [P_HEX_1] = 12,
        [P_HEX_2] = 8,  [P_HEX_3] = 4,   [P_HIGH] = 10,   [P_HIGH_BACKSLASH] = 10,
        [P_LOW_0] = 10, [P_LOW_1] = 10,  [P_LOW_2] = 8,   [P_LOW_3] = 4};
    uint32_t n_missing = bits_missing[p];

    // The lowest and highest code point with the bits so far.
    uint32_t lo = (partial & 0xffffff) << n_missing;
    uint32_t hi = lo | ((1u << n_missing) - 1);

    if (p <= P_UTF8_3) {
        uint32_t least = 0; // smaller code points are overlong
        if (p == P_UTF8_2) least = 0x800;
        if (p == P_UTF8_3) least = 0x10000;
        out[0] = (CodeRange){lo > least ? lo : least, hi < CODE_MAX ? hi : CODE_MAX};
        return 1;
    }

    if (p >= P_HIGH) {
        out[0] = (CodeRange){0x10000 + lo, 0x10000 + hi};
        return 1;
    }

    // The digits after \u can begin a character of hex_codes, or the high surrogate of a pair.
    int n = 0;
    if (lo < 0xd800 || lo > 0xdfff)
        n = clip(lo, lo < 0xd800 && hi > 0xd7ff ? 0xd7ff : hi, hex_codes, out);

    uint32_t high_lo = lo > 0xd800 ? lo : 0xd800;
    uint32_t high_hi = hi < 0xdbff ? hi : 0xdbff;
    if (high_lo <= high_hi)
        out[n++] = (CodeRange){0x10000 + ((high_lo & 0x3ff) << 10),
                               0x10000 + ((high_hi & 0x3ff) << 10 | 0x3ff)};
    return n;
}
