// See text.h.
// Order: strings, buffers, numbers, suggestions for misspelled words.
#include "base/text.h"

#include <errno.h>
#include <float.h>
#include <stdio.h>

Str str_of(const char *c_string) { return (Str){c_string, strlen(c_string)}; }

Str str_copy(Str s) {
    char *copy = xrealloc(NULL, s.len + 1, 1);
    if (s.len) memcpy(copy, s.data, s.len);
    copy[s.len] = 0;
    return (Str){copy, s.len};
}

bool str_eq(Str a, Str b) {
    return a.len == b.len && (a.len == 0 || !memcmp(a.data, b.data, a.len));
}
bool str_is(Str a, const char *c_string) { return str_eq(a, str_of(c_string)); }

bool str_is_one_of(Str s, const char *words) {
    for (size_t n; (n = strcspn(words, " ")); words += n + (words[n] == ' '))
        if (str_eq(s, (Str){words, n})) return true;
    return false;
}

int str_compare(Str a, Str b) {
    size_t n = a.len < b.len ? a.len : b.len;
    int order = n ? memcmp(a.data, b.data, n) : 0;
    return order ? order : (a.len > b.len) - (a.len < b.len);
}

size_t str_find(Str text, Str part) {
    if (!part.len) return 0;
    if (text.len < part.len) return SIZE_MAX;
    const char *at = memmem(text.data, text.len, part.data, part.len);
    return at ? (size_t)(at - text.data) : SIZE_MAX;
}

bool str_contains(Str text, const char *part) { return str_find(text, str_of(part)) != SIZE_MAX; }

bool str_has_prefix(Str s, Str prefix) {
    return s.len >= prefix.len && str_eq((Str){s.data, prefix.len}, prefix);
}
bool str_begins_with(Str s, const char *start) { return str_has_prefix(s, str_of(start)); }

bool str_ends_with(Str s, const char *end) {
    size_t n = strlen(end);
    return s.len >= n && !memcmp(s.data + s.len - n, end, n);
}

bool str_may_begin_with(Str s, const char *start) {
    while (s.len && !s.data[s.len - 1]) s.len--;
    return str_begins_with(s, start) || str_has_prefix(str_of(start), s);
}

Str str_skip_bom(Str s) {
    return str_begins_with(s, "\xef\xbb\xbf") ? (Str){s.data + 3, s.len - 3} : s;
}

bool fence_read(int *state, char c) {
    enum { TICKS = 3, OTHER = 4, INSIDE = 8 }; // ticks that begin the line, or OTHER text
    int n = *state & 7, inside = *state & INSIDE;

    if (c == '\n')
        n = 0;
    else if (c == '`' && n < TICKS)
        n++;
    else if (c != ' ' || n)
        n = OTHER;

    if (n == TICKS) {
        inside ^= INSIDE;
        n = OTHER;
    }
    *state = inside | n;
    return inside;
}

bool str_is_blank(Str s) {
    while (s.len && memchr(" \t\r\n", s.data[s.len - 1], 4)) s.len--;
    return !s.len;
}

char *buffer_reserve(Buffer *b, size_t n) {
    size_t need;
    if (!size_add(b->len, n, &need) || !size_add(need, 1, &need))
        die(EXIT_RUNTIME, "out of memory: size overflow");
    if (need > b->cap) {
        b->cap = need > b->cap * 2 ? need : b->cap * 2;
        b->data = xrealloc(b->data, b->cap, 1);
    }
    return b->data + b->len;
}

void buffer_append(Buffer *b, const void *data, size_t n) {
    buffer_reserve(b, n);
    if (n) memcpy(b->data + b->len, data, n);
    b->len += n;
    b->data[b->len] = 0;
}

void buffer_put(Buffer *b, Str s) { buffer_append(b, s.data, s.len); }
void buffer_puts(Buffer *b, const char *c_string) { buffer_put(b, str_of(c_string)); }
Str buffer_str(const Buffer *b) { return (Str){b->data, b->len}; }

void buffer_vprintf(Buffer *b, const char *fmt, va_list ap) {
    va_list again;
    va_copy(again, ap);
    buffer_reserve(b, 0);
    size_t n_free = b->cap - b->len;
    int n = vsnprintf(b->data + b->len, n_free, fmt, ap);
    if ((size_t)n >= n_free) { // it did not fit
        buffer_reserve(b, (size_t)n);
        vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
    }
    va_end(again);
    b->len += (size_t)n;
}

void buffer_printf(Buffer *b, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    buffer_vprintf(b, fmt, ap);
    va_end(ap);
}

char *text_format(const char *fmt, ...) {
    Buffer b = {0};
    va_list ap;
    va_start(ap, fmt);
    buffer_vprintf(&b, fmt, ap);
    va_end(ap);
    return b.data;
}

void buffer_put_double(Buffer *b, double x) {
    bool is_whole = x > -0x1p53 && x < 0x1p53 && x == (double)(int64_t)x; // at most 16 digits
    buffer_printf(b, "%.*g", is_whole ? 16 : double_digits(x), x);
}

void buffer_put_escaped(Buffer *b, Str s, const char *keep) {
    char escaped[17];
    buffer_puts(b, "");
    for (size_t i = 0, n; i < s.len; i += n) {
        n = utf8_escape(s.data + i, s.len - i, keep, escaped);
        buffer_puts(b, escaped);
    }
}

void buffer_free(Buffer *b) {
    free(b->data);
    *b = (Buffer){0};
}

int hex_digit(int c) {
    int low = c | 0x20;
    if (c >= '0' && c <= '9') return c - '0';
    return low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
}

bool parse_i64(const char *s, int64_t *out) {
    char *end;
    errno = 0;
    long long v = strtoll(s, &end, 10);
    if (errno || end == s || *end || !(*s == '-' || (*s >= '0' && *s <= '9'))) return false;
    *out = v;
    return true;
}

bool parse_f64(const char *s, double *out) {
    char *end;
    double v = strtod(s, &end);
    bool is_decimal = *s != '+' && !s[strspn(s, "0123456789.eE+-")]; // no hexadecimal, no spaces
    if (end == s || *end || !is_decimal || !(v - v == 0)) return false;
    *out = v;
    return true;
}

int double_digits(double x) {
    char text[32];
    // A decimal of at most 15 digits survives conversion to a normal double and back. So if a
    // shorter form exists, "%.14e" shows it padded with zeros, and only 15 to 17 digits need to be
    // tried. Subnormal numbers are less precise: all lengths are tried.
    bool is_normal = x >= DBL_MIN || x <= -DBL_MIN;
    int n = is_normal ? 15 : 1;
    for (;; n++) {
        snprintf(text, sizeof text, "%.*e", n - 1, x);
        if (n == 17 || strtod(text, NULL) == x) break;
    }
    const char *last = text + (*text == '-') + n; // of "d.ddd": n digits and a point
    while (n > 1 && *last-- == '0') n--;
    return n;
}

static int less_of(int a, int b) { return a < b ? a : b; }

// Damerau-Levenshtein distance: insertions, deletions, substitutions and transpositions of adjacent
// characters that turn a into b. MAX for longer words.
static int edit_distance(const char *a, const char *b) {
    enum { MAX = 40 };
    size_t na = strlen(a), nb = strlen(b);
    int d[MAX + 1][MAX + 1]; // d[i][j]: distance of the first i bytes of a and j bytes of b
    if (na > MAX || nb > MAX) return MAX;

    for (size_t i = 0; i <= na; i++) d[i][0] = (int)i;
    for (size_t j = 0; j <= nb; j++) d[0][j] = (int)j;

    for (size_t i = 1; i <= na; i++) {
        for (size_t j = 1; j <= nb; j++) {
            // Replace or keep a character, remove one, insert one, or swap two.
            int best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            best = less_of(best, d[i - 1][j] + 1);
            best = less_of(best, d[i][j - 1] + 1);
            bool is_swap = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            d[i][j] = is_swap ? less_of(best, d[i - 2][j - 2] + 1) : best;
        }
    }

    return d[na][nb];
}

const char *did_you_mean(const char *word, const void *names, size_t stride, int n) {
    static char text[80];
    size_t n_letters = strlen(word + strspn(word, "-"));
    int best = n_letters < 9 ? (int)n_letters / 3 + 1 : 3; // the first distance that is too far
    *text = 0;
    for (int i = 0; i < n; i++) {
        const char *name =
            *(const char *const *)(const void *)((const char *)names + (size_t)i * stride);
        int distance = edit_distance(word, name);
        if (distance >= best) continue;
        snprintf(text, sizeof text, "; did you mean %s", name);
        best = distance;
    }
    return text;
}
