// Memory that is short ends the program here, so that nobody has to ask; whatever else goes wrong
// is for the caller to report.
#include "util.h"

#include <errno.h>
#include <float.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// What is printed when memory is short cannot ask for memory: messages are made on the stack.
enum { MESSAGE_BYTES = 1024 };

// Bidirectional overrides and isolates, which make a text look like another.
static bool is_bidi(uint32_t code) {
    return (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

// Takes the next character off s. Returns how many bytes stand for it in a text that may be shown:
// itself, or \xNN for each of its bytes if it is a control character that is not in `keep`, turns
// the direction of text, or is no UTF-8.
static size_t take_shown(Str *s, const char *keep, char out[16]) {
    uint32_t code;
    int len = utf8_decode(s->data, s->len, &code), n = len ? len : 1;
    bool is_text = len && code >= 0x20 && (code < 0x7f || code >= 0xa0) && !is_bidi(code);
    bool is_kept = is_text || (len && code && code < 0x80 && strchr(keep, (int)code));
    for (int i = 0; i < n; i++) {
        static const char digits[] = "0123456789abcdef";
        unsigned char c = (unsigned char)s->data[i];
        if (is_kept)
            out[i] = (char)c;
        else
            memcpy(out + 4 * i, (char[4]){'\\', 'x', digits[c >> 4], digits[c & 15]}, 4);
    }
    *s = (Str){s->data + n, s->len - (size_t)n};
    return (size_t)(is_kept ? n : 4 * n);
}

// A message in one line of at most cap - 1 bytes: a file name must not drive the terminal. Returns
// its length.
static size_t put_message(char *out, size_t cap, const char *fmt, va_list ap) {
    char text[MESSAGE_BYTES], shown[16];
    int n = vsnprintf(text, sizeof text, fmt, ap);
    Str rest = {text, n < 0                  ? 0
                      : n < (int)sizeof text ? (size_t)n
                                             : utf8_complete(text, sizeof text - 1)};
    size_t at = 0;
    while (rest.len) {
        size_t k = take_shown(&rest, "", shown);
        if (at + k >= cap) break;
        memcpy(out + at, shown, k);
        at += k;
    }
    out[at] = 0;
    return at;
}

bool error_set(Error *err, int code, const char *fmt, ...) {
    Error made = {.code = code}; // an argument may be err's own text
    va_list ap;
    va_start(ap, fmt);
    put_message(made.text, sizeof made.text, fmt, ap);
    va_end(ap);
    *err = made;
    return false;
}

// On stderr, behind what stdio still holds for stdout.
static void print_line(const char *prefix, const char *fmt, va_list ap) {
    char line[2 * MESSAGE_BYTES];
    size_t n = (size_t)snprintf(line, sizeof line, "llama31: %s", prefix);
    n += put_message(line + n, sizeof line - n - 1, fmt, ap);
    line[n++] = '\n';
    fflush(stdout);
    ssize_t written = write(STDERR_FILENO, line, n); // one line in one piece, whoever else writes
    (void)written;
}

void die(int code, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    print_line("", fmt, ap);
    va_end(ap);
    exit(code);
}

void warn(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    print_line("warning: ", fmt, ap);
    va_end(ap);
}

bool error_file(Error *err, const char *path) {
    return error_set(err, EXIT_RUNTIME, "%s: %s", path, strerror(errno));
}

void die_error(const Error *err) { die(err->code, "%s", err->text); }
void die_file(const char *path) { die(EXIT_RUNTIME, "%s: %s", path, strerror(errno)); }

bool size_mul(size_t a, size_t b, size_t *out) { return !__builtin_mul_overflow(a, b, out); }
bool size_add(size_t a, size_t b, size_t *out) { return !__builtin_add_overflow(a, b, out); }

void *xalloc(size_t n, size_t size) {
    size_t bytes;
    void *p = NULL;
    if (!size_mul(n, size, &bytes) || !size_add(bytes, 64, &bytes))
        die(EXIT_RUNTIME, "out of memory: size overflow");
    bytes = bytes / 64 * 64;
    if (posix_memalign(&p, 64, bytes ? bytes : 64))
        die(EXIT_RUNTIME, "out of memory: %zu bytes", bytes);
    return memset(p, 0, bytes ? bytes : 64);
}

void *xrealloc(void *p, size_t n, size_t size) {
    size_t bytes;
    if (!size_mul(n, size, &bytes)) die(EXIT_RUNTIME, "out of memory: size overflow");
    p = realloc(p, bytes ? bytes : 1);
    if (!p) die(EXIT_RUNTIME, "out of memory: %zu bytes", bytes);
    return p;
}

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

int str_compare(Str a, Str b) {
    size_t n = a.len < b.len ? a.len : b.len;
    int order = n ? memcmp(a.data, b.data, n) : 0;
    return order ? order : (a.len > b.len) - (a.len < b.len);
}

size_t str_find(Str hay, Str part) {
    if (!part.len) return 0;
    for (size_t i = 0; hay.len - i >= part.len; i++) {
        const char *at = memchr(hay.data + i, part.data[0], hay.len - i - part.len + 1);
        if (!at) break;
        i = (size_t)(at - hay.data);
        if (!memcmp(at, part.data, part.len)) return i;
    }
    return SIZE_MAX;
}

bool str_contains(Str hay, const char *needle) { return str_find(hay, str_of(needle)) != SIZE_MAX; }

bool str_begins_with(Str s, const char *begin) {
    size_t n = strlen(begin);
    return s.len >= n && !memcmp(s.data, begin, n);
}

bool str_ends_with(Str s, const char *end) {
    size_t n = strlen(end);
    return s.len >= n && !memcmp(s.data + s.len - n, end, n);
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

bool str_may_begin_with(Str s, const char *start) {
    size_t n = strlen(start);
    return !s.len || !memcmp(s.data, start, s.len < n ? s.len : n);
}

Str str_skip_bom(Str text) {
    bool has_mark = text.len >= 3 && !memcmp(text.data, "\xef\xbb\xbf", 3);
    return has_mark ? (Str){text.data + 3, text.len - 3} : text;
}

bool str_is_blank(Str line) {
    while (line.len && memchr(" \t\r\n", line.data[line.len - 1], 4)) line.len--;
    return !line.len;
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
    int n = vsnprintf(NULL, 0, fmt, ap);
    buffer_reserve(b, (size_t)n);
    vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
    va_end(again);
    b->len += (size_t)n;
}

void buffer_printf(Buffer *b, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    buffer_vprintf(b, fmt, ap);
    va_end(ap);
}

void buffer_put_double(Buffer *b, double x) {
    bool is_whole = x > -0x1p53 && x < 0x1p53 && x == (double)(int64_t)x;
    if (is_whole)
        buffer_printf(b, "%.0f", x);
    else
        buffer_printf(b, "%.*g", double_digits(x), x);
}

void buffer_put_escaped(Buffer *b, Str s, const char *keep) {
    char shown[16];
    buffer_puts(b, "");
    while (s.len) {
        size_t n = take_shown(&s, keep, shown);
        buffer_append(b, shown, n);
    }
}

void buffer_free(Buffer *b) {
    free(b->data);
    *b = (Buffer){0};
}

int utf8_decode(const char *s, size_t n, uint32_t *code) {
    const unsigned char *u = (const unsigned char *)s;
    if (n == 0) return 0;
    if (u[0] < 0x80) return (void)(*code = u[0]), 1;
    int len = u[0] >= 0xf0 ? 4 : u[0] >= 0xe0 ? 3 : 2;
    if (u[0] < 0xc2 || u[0] > 0xf4 || (size_t)len > n) return 0;
    uint32_t c = u[0] & (0x7fu >> len);
    for (int i = 1; i < len; i++) {
        if ((u[i] & 0xc0) != 0x80) return 0;
        c = c << 6 | (u[i] & 0x3f);
    }
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    if (c < least[len] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) return 0;
    *code = c;
    return len;
}

int utf8_encode(uint32_t c, char out[4]) {
    if (c < 0x80) return (void)(out[0] = (char)c), 1;
    int len = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (int i = len - 1; i > 0; i--, c >>= 6) out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)((0xf00u >> len) | c);
    return len;
}

size_t utf8_complete(const char *s, size_t n) {
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        unsigned char c = (unsigned char)s[n - back];
        if ((c & 0xc0) == 0x80) continue;
        size_t want = c >= 0xf0 && c <= 0xf4  ? 4
                      : c >= 0xe0 && c < 0xf0 ? 3
                      : c >= 0xc2 && c < 0xe0 ? 2
                                              : 1;
        return want > back ? n - back : n;
    }
    return n;
}

double now_sec(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int hex_digit(int c) {
    int low = c | 0x20;
    return c >= '0' && c <= '9' ? c - '0' : low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
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
    errno = 0;
    double v = strtod(s, &end);
    if (end == s || *end || !(*s == '-' || *s == '.' || (*s >= '0' && *s <= '9'))) return false;
    if (!(v - v == 0)) return false;
    *out = v;
    return true;
}

int double_digits(double x) {
    char text[32];
    // Any decimal of at most 15 digits survives the way through a normal double, so "%.14e" ends in
    // zeros if there is a shorter form. Subnormal numbers have fewer digits to tell them apart.
    bool is_normal = x >= DBL_MIN || x <= -DBL_MIN;
    int n = is_normal ? 15 : 1;
    for (;; n++) {
        snprintf(text, sizeof text, "%.*e", n - 1, x);
        if (n == 17 || strtod(text, NULL) == x) break;
    }
    const char *last = text + (*text == '-') + n; // "d.dd": the point is one of n + 1 characters
    while (n > 1 && *last-- == '0') n--;
    return n;
}

// Insertions, deletions, replacements and swaps of neighbours that turn a into b; MAX for words too
// long to be a name.
static int edit_distance(const char *a, const char *b) {
    enum { MAX = 40 };
    size_t na = strlen(a), nb = strlen(b);
    int d[MAX + 1][MAX + 1];
    if (na > MAX || nb > MAX) return MAX;
    for (size_t i = 0; i <= na; i++) {
        for (size_t j = 0; j <= nb; j++) {
            if (!i || !j) {
                d[i][j] = (int)(i + j);
                continue;
            }
            int best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            if (d[i - 1][j] + 1 < best) best = d[i - 1][j] + 1;
            if (d[i][j - 1] + 1 < best) best = d[i][j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                d[i - 2][j - 2] + 1 < best)
                best = d[i - 2][j - 2] + 1;
            d[i][j] = best;
        }
    }
    return d[na][nb];
}

const char *did_you_mean(const char *word, const void *names, size_t stride, int n) {
    static char text[80];
    int best = (int)strlen(word + strspn(word, "-")) / 2 + 1;
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
