// The regular expressions of byte-level BPE vocabularies, each written out as a function, which is
// many times faster than a regular expression engine.
//
// Notation of the comments: L is \p{L}, N is \p{N}, R is [\r\n], X is [^\s\p{L}\p{N}] (neither
// space, letter nor number). As in the expressions, the first alternative that matches decides, and
// repetitions are greedy. Bytes outside of valid UTF-8 are characters of class X.
//
//     text      "Hello, world! It's 2024.\n"
//     Llama 3   Hello|,| world|!| It|'s| |202|4|.\n
//     Qwen 2    Hello|,| world|!| It|'s| |2|0|2|4|.\n
//     GPT-2     Hello|,| world|!| It|'s| 2024|.|\n
//
// All of them keep the space in front of a word with the word. They differ in how they cut numbers,
// changes of case, and line ends.
#include "tokenizer/pretokenize.h"
#include "base/unicode.h"
#include "base/utf8.h"

typedef struct {
    int class, len; // UnicodeClass and bytes; -1 and 0 at the end of the text
} TextChar;

// The first character of s. ASCII is looked up directly.
static inline TextChar char_at(const char *s, const char *end) {
    if (s == end) return (TextChar){-1, 0};
    if ((unsigned char)*s < 0x80)
        return (TextChar){unicode_classes[(unsigned char)*s] & UNICODE_CLASS, 1};
    uint32_t code;
    int len = utf8_decode(s, (size_t)(end - s), &code);
    return len ? (TextChar){(int)unicode_class(code), len} : (TextChar){UNICODE_OTHER, 1};
}

// Skips the characters of a class: L+, N+ or X+.
static inline const char *skip_class(const char *s, const char *end, int class) {
    for (TextChar c; (c = char_at(s, end)).class == class;) s += c.len;
    return s;
}

static bool is_newline(char c) { return c == '\n' || c == '\r'; }

// 's|'t|'re|'ve|'m|'ll|'d: number of matching bytes after the apostrophe, or 0. Ignoring case
// includes the long s (U+017F).
static int match_contraction(const char *s, size_t n, bool ignores_case) {
    static const char pairs[][2] = {{'r', 'e'}, {'v', 'e'}, {'l', 'l'}};
    char fold = ignores_case ? 0x20 : 0;
    if (n == 0) return 0;
    if (memchr("stmd", s[0] | fold, 4)) return 1;
    if (n == 1) return 0;
    if (ignores_case && !memcmp(s, "\xc5\xbf", 2)) return 2;

    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if ((s[0] | fold) == pairs[i][0] && (s[1] | fold) == pairs[i][1]) return 2;
    return 0;
}

// \s*R+|\s+(?!\S)|\s+ (the first alternative only with has_newlines): white space up to its last
// line end; without a line end all of it, except its last character if text follows.
static const char *match_space(const char *s, const char *end, bool has_newlines) {
    const char *last = s, *line_end = NULL, *next = s;
    for (TextChar c; (c = char_at(next, end)).class == UNICODE_SPACE; next += c.len) {
        last = next;
        if (has_newlines && is_newline(*next)) line_end = next + 1;
    }
    if (line_end) return line_end;
    return next < end && last > s ? last : next;
}

//  ?X+[R also]*|\s*R+|\s+(?!\S)|\s+ at a character that is neither letter nor number.
static const char *match_other(const char *s, const char *end, char also) {
    TextChar first = char_at(s, end);
    const char *next = s + first.len;
    if (first.class == UNICODE_SPACE && (*s != ' ' || char_at(next, end).class != UNICODE_OTHER))
        return match_space(s, end, true);
    next = skip_class(next, end, UNICODE_OTHER);
    while (next < end && (is_newline(*next) || *next == also)) next++;
    return next;
}

// Llama 3 (max_digits 3) and Qwen 2 (1):
// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^R L N]?L+|N{1,max_digits}| ?X+R*|\s*R+|\s+(?!\S)|\s+
static inline const char *match_llama3(const char *s, const char *end, int max_digits) {
    TextChar first = char_at(s, end);
    const char *next = s + first.len;

    if (first.class == UNICODE_LETTER) return skip_class(next, end, UNICODE_LETTER);
    if (first.class == UNICODE_NUMBER) {
        for (int n = 1; n < max_digits; n++) {
            TextChar c = char_at(next, end);
            if (c.class != UNICODE_NUMBER) break;
            next += c.len;
        }
        return next;
    }

    int n = *s == '\'' ? match_contraction(next, (size_t)(end - next), true) : 0;
    if (n) return next + n;
    if (char_at(next, end).class == UNICODE_LETTER && !is_newline(*s))
        return skip_class(next, end, UNICODE_LETTER);
    return match_other(s, end, '\n');
}

static const char *piece_llama3(const char *s, const char *end) { return match_llama3(s, end, 3); }
static const char *piece_qwen2(const char *s, const char *end) { return match_llama3(s, end, 1); }

// Tekken splits words where case changes ("camelCase" is camel|Case). Its expression has two
// classes, U = [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}] and V = [\p{Ll}\p{Lm}\p{Lo}\p{M}]. Marks and letters
// without case are in both.
enum { IS_U = 1, IS_V = 2 };

static int case_at(const char *s, const char *end, int *len) {
    uint32_t code = 0;
    *len = s < end ? utf8_decode(s, (size_t)(end - s), &code) : 0;
    int kind = *len ? unicode_kind(code) : UNICODE_OTHER;
    bool is_letter = (kind & UNICODE_CLASS) == UNICODE_LETTER;
    if (is_letter && (kind & UNICODE_UPPER)) return IS_U;
    if (is_letter && (kind & UNICODE_LOWER)) return IS_V;
    return is_letter || kind == UNICODE_MARK ? IS_U | IS_V : 0;
}

// U*V+ or, with is_upper, U+V*: the end of the match, or NULL.
static const char *match_cased_word(const char *s, const char *end, bool is_upper) {
    const char *last_both = NULL, *next = s; // last_both: end of the last character in U and V
    int kind, len;

    while ((kind = case_at(next, end, &len)) & IS_U) {
        next += len;
        if (kind & IS_V) last_both = next;
    }

    // U* ends before a character that is in V, or in neither.
    if (!(kind & IS_V) && is_upper) return next > s ? next : NULL;
    if (!(kind & IS_V)) return last_both;
    if (is_upper && next == s) return NULL;
    while (case_at(next, end, &len) & IS_V) next += len;
    return next;
}

// [^R L N]?U*V+|[^R L N]?U+V*|N| ?X+[R/]*|\s*R+|\s+(?!\S)|\s+
static const char *piece_tekken(const char *s, const char *end) {
    TextChar first = char_at(s, end);
    bool has_prefix =
        first.class != UNICODE_LETTER && first.class != UNICODE_NUMBER && !is_newline(*s);
    for (int is_upper = 0; is_upper < 2; is_upper++)
        for (int prefix = has_prefix; prefix >= 0; prefix--) {
            const char *next = match_cased_word(s + (prefix ? first.len : 0), end, is_upper);
            if (next) return next;
        }
    return first.class == UNICODE_NUMBER ? s + first.len : match_other(s, end, '/');
}

// GPT-2: '(?:[sdmt]|ll|ve|re)| ?L+| ?N+| ?X+|\s+(?!\S)|\s+
// SmolLM (splits_digits): each number character is a piece; the text between them is cut as in
// GPT-2.
static inline const char *match_gpt2(const char *s, const char *end, bool splits_digits) {
    TextChar first = char_at(s, end);
    const char *next = *s == ' ' ? s + 1 : s;
    TextChar c = char_at(next, end);
    if (splits_digits && first.class == UNICODE_NUMBER) return s + first.len;
    int n = *s == '\'' ? match_contraction(s + 1, (size_t)(end - s - 1), false) : 0;
    if (n) return s + 1 + n;
    if (c.len && c.class != UNICODE_SPACE && !(splits_digits && c.class == UNICODE_NUMBER))
        return skip_class(next + c.len, end, c.class);

    // White space. Before a digit that is a piece of its own, all of it.
    next = skip_class(s, end, UNICODE_SPACE);
    if (splits_digits && char_at(next, end).class == UNICODE_NUMBER) return next;
    return match_space(s, end, false);
}

static const char *piece_gpt2(const char *s, const char *end) { return match_gpt2(s, end, false); }
static const char *piece_smollm(const char *s, const char *end) { return match_gpt2(s, end, true); }

// clang-format off
static const Pretokenizer pretokenizers[] = {
    {piece_llama3, true, true, false, {"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1",
                                "pixtral", "midm-2.0", "lfm2"}},
    {piece_llama3, true, false, false, {"smaug-bpe"}},
    {piece_llama3, false, false, false, {"dbrx", "chatglm-bpe", "glm4"}},
    {piece_tekken, true, true, false, {"tekken"}},
    {piece_qwen2, false, false, true, {"qwen2"}},
    {piece_qwen2, false, false, false, {"deepseek-r1-qwen", "kormo", "megrez", "stablelm2", "hunyuan", "solar-open", "grok-2"}},
    {piece_smollm, false, false, false, {"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone",
                           "minerva-7b"}},
    {piece_gpt2, false, false, true, {"olmo"}},
    {piece_gpt2, false, false, false, {"gpt-2", "phi-2", "gigachat", "a.x-4.0", "mellum", "mpt", "jais",
                         "trillion", "granite-docling", "exaone4"}},
};
// clang-format on

const Pretokenizer *pretokenizer_find(Str name) {
    for (size_t i = 0; i < sizeof pretokenizers / sizeof *pretokenizers; i++)
        for (const char *const *known = pretokenizers[i].names; *known; known++)
            if (str_is(name, *known)) return &pretokenizers[i];
    return NULL;
}
