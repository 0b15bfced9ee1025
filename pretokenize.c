// The regular expressions by which vocabularies of bytes cut a text, each written out: nothing that
// reads expressions would be as fast.
#include "pretokenize.h"
#include "base/unicode.h"

#include <string.h>

typedef struct {
    int class, len; // UnicodeClass; bytes, 0 at the end of the text
} Char;

// The first character of s and its class.
static inline Char char_at(const char *s, const char *end) {
    if (s == end) return (Char){-1, 0};
    if ((unsigned char)*s < 0x80)
        return (Char){unicode_classes[(unsigned char)*s] & UNICODE_CLASS, 1};
    uint32_t code;
    int len = utf8_decode(s, (size_t)(end - s), &code);
    return len ? (Char){(int)unicode_class(code), len} : (Char){UNICODE_OTHER, 1};
}

// The end of the run of characters of a class that s begins.
static inline const char *skip(const char *s, const char *end, int class) {
    for (Char c; (c = char_at(s, end)).class == class;) s += c.len;
    return s;
}

static bool is_newline(char c) { return c == '\n' || c == '\r'; }

// (?i:'s|'t|'re|'ve|'m|'ll|'d) after its apostrophe: bytes matched, or 0. The long s (U+017F) is an
// s in any case.
static int contraction(const char *s, size_t n) {
    if (n == 0) return 0;
    char a = s[0] | 0x20, b = n > 1 ? s[1] | 0x20 : 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 1;
    if (n > 1 && !memcmp(s, "\xc5\xbf", 2)) return 2;
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 2 : 0;
}

// The end of a run of white space of which nothing else is to be kept: all of it, but for one
// character if text follows.
static const char *split_space(const char *s, const char *end, bool has_lines) {
    const char *last = s, *line_end = NULL, *next = s;
    for (Char c; (c = char_at(next, end)).class == UNICODE_SPACE; next += c.len) {
        last = next;
        if (has_lines && is_newline(*next)) line_end = next + 1;
    }
    return line_end ? line_end : next < end && last > s ? last : next;
}

// " ?[^\s\p{L}\p{N}]+[\R also]*|\s*\R+|\s+(?!\S)|\s+" for an s that is no letter or number. (\R is
// [\r\n].)
static const char *split_rest(const char *s, const char *end, char also) {
    Char first = char_at(s, end);
    const char *next = s + first.len;
    if (first.class == UNICODE_SPACE &&
        (*s != ' ' || char_at(next, end).class != UNICODE_OTHER)) // up to its last line end
        return split_space(s, end, true);
    next = skip(next, end, UNICODE_OTHER);
    while (next < end && (is_newline(*next) || *next == also)) next++;
    return next;
}

// Of each way of splitting: the end of the first piece of s, by the first alternative that matches,
// each as long as it can be.

// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\R\p{L}\p{N}]?\p{L}+|\p{N}{1,n_digits}|
//   ?[^\s\p{L}\p{N}]+\R*|\s*\R+|\s+(?!\S)|\s+
static inline const char *split_words(const char *s, const char *end, int n_digits) {
    Char first = char_at(s, end);
    const char *next = s + first.len;
    if (first.class == UNICODE_LETTER) return skip(next, end, UNICODE_LETTER);
    if (first.class == UNICODE_NUMBER) {
        for (Char c; --n_digits && (c = char_at(next, end)).class == UNICODE_NUMBER;) next += c.len;
        return next;
    }
    int n = *s == '\'' ? contraction(next, (size_t)(end - next)) : 0;
    if (n) return next + n;
    if (char_at(next, end).class == UNICODE_LETTER && !is_newline(*s))
        return skip(next, end, UNICODE_LETTER);
    return split_rest(s, end, '\n');
}

static const char *split_llama3(const char *s, const char *end) { return split_words(s, end, 3); }
static const char *split_qwen2(const char *s, const char *end) { return split_words(s, end, 1); }

// What a character is to the words of Tekken: one that may stand before lower case
// [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}], one that may stand after upper case [\p{Ll}\p{Lm}\p{Lo}\p{M}],
// or both.
enum { MAY_BEGIN = 1, MAY_END = 2 };

static int case_at(const char *s, const char *end, int *len) {
    uint32_t code = 0;
    *len = s < end ? utf8_decode(s, (size_t)(end - s), &code) : 0;
    int kind = *len ? unicode_kind(code) : UNICODE_OTHER;
    bool is_letter = (kind & UNICODE_CLASS) == UNICODE_LETTER;
    if (is_letter && (kind & UNICODE_UPPER)) return MAY_BEGIN;
    if (is_letter && (kind & UNICODE_LOWER)) return MAY_END;
    return is_letter || kind == UNICODE_MARK ? MAY_BEGIN | MAY_END : 0;
}

// The end of [begin]*[end]+, or, is_upper, of [begin]+[end]*, at s; NULL if it does not match.
static const char *cased_word(const char *s, const char *end, bool is_upper) {
    const char *both = NULL, *next = s; // both: behind the last that is of both kinds
    int kind, len;
    for (; (kind = case_at(next, end, &len)) & MAY_BEGIN;) {
        next += len;
        if (kind & MAY_END) both = next;
    }
    if (!(kind & MAY_END)) return !is_upper ? both : next > s ? next : NULL;
    if (is_upper && next == s) return NULL;
    while (case_at(next, end, &len) & MAY_END) next += len;
    return next;
}

// [^\R\p{L}\p{N}]?[begin]*[end]+|[^\R\p{L}\p{N}]?[begin]+[end]*|\p{N}|
//   ?[^\s\p{L}\p{N}]+[\R/]*|\s*\R+|\s+(?!\S)|\s+
static const char *split_tekken(const char *s, const char *end) {
    Char first = char_at(s, end);
    bool may_lead =
        first.class != UNICODE_LETTER && first.class != UNICODE_NUMBER && !is_newline(*s);
    for (int is_upper = 0; is_upper < 2; is_upper++)
        for (int lead = may_lead; lead >= 0; lead--) {
            const char *next = cased_word(s + (lead ? first.len : 0), end, is_upper);
            if (next) return next;
        }
    return first.class == UNICODE_NUMBER ? s + first.len : split_rest(s, end, '/');
}

// '(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+; with has_digits, of what
// is left when each number has become a piece.
static inline const char *split_spaced(const char *s, const char *end, bool has_digits) {
    Char first = char_at(s, end);
    const char *next = *s == ' ' ? s + 1 : s;
    Char c = char_at(next, end);
    if (has_digits && first.class == UNICODE_NUMBER) return s + first.len;
    if (*s == '\'' && end - s > 1) {
        if (strchr("sdmt", s[1]) && s[1]) return s + 2;
        if (end - s > 2 &&
            (!memcmp(s + 1, "ll", 2) || !memcmp(s + 1, "ve", 2) || !memcmp(s + 1, "re", 2)))
            return s + 3;
    }
    if (c.len && c.class != UNICODE_SPACE && !(has_digits && c.class == UNICODE_NUMBER))
        return skip(next + c.len, end, c.class);
    next = skip(s, end, UNICODE_SPACE);
    return has_digits && char_at(next, end).class == UNICODE_NUMBER ? next
                                                                    : split_space(s, end, false);
}

static const char *split_gpt2(const char *s, const char *end) {
    return split_spaced(s, end, false);
}
static const char *split_smollm(const char *s, const char *end) {
    return split_spaced(s, end, true);
}

// The names are llama.cpp's; models of architecture llama have some of each line.
static const Pretokenizer splits[] = {
    {split_llama3,
     true,
     {"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2",
      "smaug-bpe"}},
    {split_tekken, true, {"tekken"}},
    {split_llama3, false, {"dbrx", "chatglm-bpe", "glm4"}},
    {split_qwen2,
     false,
     {"qwen2", "deepseek-r1-qwen", "kormo", "megrez", "stablelm2", "hunyuan", "solar-open",
      "grok-2"}},
    {split_smollm,
     false,
     {"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"}},
    {split_gpt2,
     false,
     {"gpt-2", "phi-2", "gigachat", "a.x-4.0", "mellum", "mpt", "olmo", "jais", "trillion",
      "granite-docling", "exaone4"}},
};

const Pretokenizer *pretokenizer_find(Str name) {
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++)
        for (const char *const *known = splits[i].names; *known; known++)
            if (str_is(name, *known)) return &splits[i];
    return NULL;
}
