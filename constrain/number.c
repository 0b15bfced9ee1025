// See number.h.
// Order: decimals, languages of ranges and multiples, spellings of one number.
#include "constrain/number.h"

#include <math.h>

// The length of a number is limited, so that a generated number ends: 60 digits before the decimal
// point (19 of an integer without a longer bound), and as many after it as json.dumps writes.
#define DIGITS "(0|[1-9][0-9]{0,59})"
#define PART   "(\\.[0-9]{1,21})"
// Exponents of up to two and of three digits. They keep the number in the range of a double,
// including subnormal numbers.
#define EXP2 "[eE][+-]?[0-9]{1,2}"
#define EXP3 "[eE]([+-]?[12][0-9]{2}|[+-]?30[0-7]|-(30[89]|31[0-9]|32[0-4]))"
// The notation of json.dumps for numbers below 1e-4, and for numbers from 1e16 on.
#define TINY "[1-9](\\.[0-9]{1,16})?e-(0[5-9]|[1-9][0-9]|[12][0-9]{2}|3[01][0-9]|32[0-3])"
#define VAST "[1-9](\\.[0-9]{1,16})?e\\+(1[6-9]|[2-9][0-9]|[12][0-9]{2}|30[0-7])"
// A number of NUMBER_DUMPS without its sign.
#define MAGNITUDE "(" DIGITS PART "?|" TINY "|" VAST ")"
#define ZERO      "0(\\.0+)?"

// Decimals.

// A decimal: its sign, and 0.DIGITS * 10^point, where the digits neither begin nor end with 0. Zero
// has no digits.
typedef struct {
    bool is_negative;
    int64_t point;
    Buffer digits;
    Buffer whole, part; // digits before and after the decimal point, see split_digits()
} Decimal;

enum { MAX_POINT = 400 }; // greatest power of ten that a regular expression spells out

static Decimal decimal_of(const Json *x) {
    const int64_t max_exponent = 100000000000000000; // sums do not overflow
    Decimal d = {.is_negative = x->string.data[0] == '-'};
    const char *s = x->string.data, *end = s + x->string.len;
    bool after_point = false;

    // Collect the digits without leading zeros, and count those before the decimal point.
    for (; s < end && *s != 'e' && *s != 'E'; s++) {
        if (*s == '.') after_point = true;
        if (*s < '0') continue; // a sign or point

        bool is_leading = !d.digits.len && *s == '0';
        if (!is_leading) buffer_append(&d.digits, s, 1);
        d.point += is_leading ? -after_point : !after_point;
    }

    int64_t exponent = s < end ? strtoll(s + 1, NULL, 10) : 0; // json_parse() puts a NUL at `end`
    if (exponent > max_exponent) exponent = max_exponent;
    if (exponent < -max_exponent) exponent = -max_exponent;
    d.point += exponent;

    // Remove trailing zeros, and the sign of 0.
    while (d.digits.len && d.digits.data[d.digits.len - 1] == '0')
        d.digits.data[--d.digits.len] = 0;
    if (!d.digits.len) {
        d.point = 0;
        d.is_negative = false;
    }

    return d;
}

static void decimal_free(Decimal *d) {
    buffer_free(&d->digits);
    buffer_free(&d->whole);
    buffer_free(&d->part);
}

static int sign_of(const Decimal *d) { return d->is_negative ? -1 : d->digits.len > 0; }

int number_compare(const Json *a, const Json *b) {
    if (a->number != b->number) return a->number < b->number ? -1 : 1; // rounding keeps the order
    Decimal x = decimal_of(a), y = decimal_of(b);
    int sign = sign_of(&x), order = sign - sign_of(&y);
    if (!order && x.point != y.point)
        order = x.point > y.point ? sign : -sign;
    else if (!order)
        order = sign * str_compare(buffer_str(&x.digits), buffer_str(&y.digits));
    decimal_free(&x);
    decimal_free(&y);
    return order;
}

bool number_is_integer(const Json *x) {
    Decimal d = decimal_of(x);
    bool is_integer = d.point >= (int64_t)d.digits.len;
    decimal_free(&d);
    return is_integer;
}

// The digits of m as a whole number, m * 10^*scale. 0 if m has too many digits.
static uint64_t whole_of(const Json *m, int64_t *scale) {
    enum { MAX_DIGITS = 17 };
    Decimal d = decimal_of(m);
    uint64_t whole = 0;
    *scale = (int64_t)d.digits.len - d.point;
    for (size_t i = 0; i < d.digits.len && d.digits.len <= MAX_DIGITS; i++)
        whole = whole * 10 + (uint64_t)(d.digits.data[i] - '0');
    decimal_free(&d);
    return whole;
}

bool number_is_multiple(const Json *x, const Json *m) {
    int64_t scale;
    uint64_t whole = whole_of(m, &scale), rest = 0;
    Decimal d = decimal_of(x);
    int64_t n = d.point + scale; // digits of x * 10^scale before the point
    bool is_multiple = whole && n >= (int64_t)d.digits.len && n <= MAX_POINT * 4;
    for (int64_t i = 0; is_multiple && i < n; i++)
        rest = (rest * 10 + (i < (int64_t)d.digits.len ? (uint64_t)(d.digits.data[i] - '0') : 0)) %
               whole;
    is_multiple = !d.digits.len || (is_multiple && rest == 0);
    decimal_free(&d);
    return is_multiple;
}

// Sets d->whole, "0" or digits without leading zeros, and d->part, digits without trailing zeros.
// False if there are too many.
static bool split_digits(Decimal *d) {
    const char *digits = d->digits.data;
    int64_t n = (int64_t)d->digits.len, point = d->point;
    if (n > MAX_POINT || point > MAX_POINT || point < -MAX_POINT) return false;
    for (int64_t i = 0; i < point; i++) buffer_append(&d->whole, i < n ? digits + i : "0", 1);
    if (point <= 0) buffer_puts(&d->whole, "0");
    for (int64_t i = point < 0 ? point : 0; i < 0; i++) buffer_puts(&d->part, "0");
    for (int64_t i = point > 0 ? point : 0; i < n; i++) buffer_append(&d->part, digits + i, 1);
    buffer_puts(&d->part, "");
    return true;
}

// Ranges.

// Appends alternatives for the plain numbers from 0 to whole.part, or below it if is_excluded. For
// 20.5:
//
//     fewer digits before the point    (0|[1-9][0-9]{0,0})(\.[0-9]+)?
//     a smaller digit before it        [1-1][0-9]{1}(\.[0-9]+)?    (no second digit is below 0)
//     same digits, smaller fraction    20(\.0+)?|20\.[0-4][0-9]*
//     the number itself                20\.50*
static void put_plain_up_to(Buffer *out, Str whole, Str part, bool is_excluded) {
    // Fewer digits before the point, or as many: the first i are equal, the next one is smaller.
    if (whole.len > 1) buffer_printf(out, "|(0|[1-9][0-9]{0,%zu})(\\.[0-9]+)?", whole.len - 2);
    for (size_t i = 0; i < whole.len; i++) {
        char least = i == 0 && whole.len > 1 ? '1' : '0';
        if (whole.data[i] > least)
            buffer_printf(out, "|%.*s[%c-%c][0-9]{%zu}(\\.[0-9]+)?", (int)i, whole.data, least,
                          whole.data[i] - 1, whole.len - 1 - i);
    }

    // Equal before the point, and smaller after it.
    const char *w = whole.data; // ends with NUL, as `part` does
    if (part.len) buffer_printf(out, "|%s(\\.0+)?", w);
    for (size_t i = 0; i < part.len; i++) {
        if (i) buffer_printf(out, "|%s\\.%.*s", w, (int)i, part.data);
        if (part.data[i] > '0')
            buffer_printf(out, "|%s\\.%.*s[0-%c][0-9]*", w, (int)i, part.data, part.data[i] - 1);
    }

    // Equal to whole.part.
    if (!is_excluded && part.len) buffer_printf(out, "|%s\\.%s0*", w, part.data);
    if (!is_excluded && !part.len) buffer_printf(out, "|%s(\\.0+)?", w);
}

// Appends an expression for the magnitudes from 0 to |x|, without |x| if it is excluded: plain
// numbers, and numbers of the notations TINY and VAST. False if x has too many digits.
static bool put_up_to(Buffer *out, const Json *x, bool is_excluded) {
    enum { TINY_FIRST = -323, TINY_LAST = -5, VAST_FIRST = 16, VAST_LAST = 307 };
    Decimal d = decimal_of(x);
    bool ok = split_digits(&d);
    int exponent = (int)d.point - 1;
    bool is_tiny = exponent <= TINY_LAST;
    bool is_vast = exponent >= VAST_FIRST;

    buffer_puts(out, "(" REGEX_NONE);
    if (ok) put_plain_up_to(out, buffer_str(&d.whole), buffer_str(&d.part), is_excluded);
    if (d.digits.len && !is_tiny) buffer_puts(out, "|" TINY);

    // With an exponent: any number with a smaller exponent, or a smaller number with this exponent.
    if (ok && d.digits.len && (is_tiny || is_vast)) {
        const char first[] = {*d.digits.data, 0};
        buffer_puts(out, "|[1-9](\\.[0-9]+)?e(" REGEX_NONE);
        for (int e = is_tiny ? TINY_FIRST : VAST_FIRST; e < exponent && e <= VAST_LAST; e++)
            buffer_printf(out, is_tiny ? "|-%02d" : "|\\+%02d", is_tiny ? -e : e);
        buffer_puts(out, ")|(" REGEX_NONE);
        put_plain_up_to(out, str_of(first), (Str){d.digits.data + 1, d.digits.len - 1},
                        is_excluded);
        buffer_printf(out, is_tiny ? ")e-%02d" : ")e\\+%02d", is_tiny ? -exponent : exponent);
    }

    buffer_puts(out, ")");

    decimal_free(&d);
    return ok;
}

// Reduces a language of numbers to the numbers up to x or, for a lower bound, from x on. "Far" is
// the sign of the numbers far below an upper bound (-) or far above a lower bound (+), "near" the
// other sign.
static int keep_within(Languages *l, int language, const Json *x, bool is_excluded, bool is_lower) {
    static const Json zero = {.kind = JSON_NUMBER, .string = {"0", 1}};
    Buffer p = {0};
    const char *near = is_lower ? "-" : "";
    const char *far = is_lower ? "" : "-";
    int sign = number_compare(x, &zero);
    bool has_both = is_lower ? sign < 0 : sign >= 0;

    // If numbers of both signs are within the bound, where 0 counts as positive: keeps all numbers
    // of the far sign, and numbers of the near sign up to |x|. Otherwise: removes all numbers of
    // the near sign, and numbers of the far sign before |x|.
    buffer_printf(&p, "%s%s|%s", has_both ? far : near, MAGNITUDE, has_both ? near : far);
    int bound = -1;
    if (put_up_to(&p, x, has_both ? is_excluded : !is_excluded))
        bound = language_regex(l, buffer_str(&p), REGEX_WHOLE);
    else
        error_set(l->budget.err, EXIT_USAGE, "the bound has too many digits");

    language = language_combine(l, language, has_both ? DFA_INTERSECT : DFA_SUBTRACT, bound);
    buffer_free(&p);
    return language;
}

int number_language(Languages *l, const NumberRange *r) {
    const char *pattern = "-?" MAGNITUDE,
               *integers = r->is_strict ? "-?" DIGITS : "-?(" DIGITS "(\\.0{1,21})?|" VAST ")";
    bool is_long = false;
    for (int i = 0; i < 2; i++) is_long |= r->bounds[i] && fabs(r->bounds[i]->number) >= 1e19;

    if (!r->has_fractions)
        pattern = is_long ? "0|-?[1-9][0-9]{0,59}" : "0|-?[1-9][0-9]{0,18}";
    else if (r->notation == NUMBER_ANY && r->has_integers)
        pattern = "-?(" DIGITS PART "?(" EXP2 ")?|[0-9]" PART "?" EXP3 ")";

    int language = language_regex(l, str_of(pattern), REGEX_WHOLE);
    if (!r->has_integers) language = language_narrow(l, language, DFA_SUBTRACT, str_of(integers));
    if (r->notation == NUMBER_PLAIN)
        language = language_narrow(l, language, DFA_INTERSECT, str_of("-?" DIGITS PART "?"));
    if (r->has_fractions) // -0
        language = language_narrow(l, language, DFA_SUBTRACT, str_of("-" ZERO "([eE].*)?"));

    for (int i = 0; i < 2; i++)
        if (r->bounds[i])
            language = keep_within(l, language, r->bounds[i], r->is_excluded[i], i == 0);

    return language;
}

// Multiples.

int number_multiples(Languages *l, const Json *m) {
    enum { MAX_STATES = 5000 };
    Nfa nfa = {.budget = &l->budget};
    Dfa d;
    int64_t scale;
    uint64_t whole = whole_of(m, &scale);
    int *def = language_find(l, m->string.data, m->string.len);
    if (*def >= 0) return *def;

    for (; scale < 0 && whole <= MAX_STATES; scale++) whole *= 10;
    if (!whole || scale > MAX_STATES || whole * ((uint64_t)scale + 1) > MAX_STATES) {
        error_set(l->budget.err, EXIT_USAGE, "%.*s is not supported; use at most %d",
                  SHOWN(m->string), MAX_STATES);
        return -1;
    }

    // State k * n + r: the digits so far, as a whole number, have the remainder r modulo n. k is 0
    // before the point and 1 + the number of digits after it. The syntax of numbers is not checked.
    int n = (int)whole;
    int last = (int)scale + 1;
    for (int i = 0; i < n * (last + 1); i++) nfa_state(&nfa);
    int end = nfa_state(&nfa);
    int zero = nfa_range(&nfa, '0', '0');
    nfa_edge(&nfa, 0, 0, NFA_SET, nfa_range(&nfa, '-', '-'));

    for (int k = 0; k <= last; k++) {
        int next = k ? (k + 1) * n : 0; // state after a digit, with the remainder 0
        int64_t left = 1;               // 10^(remaining digits) modulo n
        for (int i = k ? k : 1; i < last; i++) left = left * 10 % n;

        for (int r = 0; r < n; r++) {
            int state = k * n + r;
            if (!k) nfa_edge(&nfa, state, n + r, NFA_SET, nfa_range(&nfa, '.', '.'));
            for (int digit = 0; digit < 10 && k < last; digit++)
                nfa_edge(&nfa, state, next + (r * 10 + digit) % n, NFA_SET,
                         nfa_range(&nfa, '0' + (uint32_t)digit, '0' + (uint32_t)digit));
            if (r * left % n == 0) nfa_edge(&nfa, state, end, NFA_EMPTY, 0);
        }
    }
    nfa_edge(&nfa, last * n, last * n, NFA_SET, zero); // all further digits are zeros

    if (dfa_build(&d, &nfa, &(NfaFragment){.end = end}, 0, -1))
        *def = grammar_add_dfa(l->grammar, d);
    nfa_free(&nfa);
    return *def;
}

// One number.

// False if json.dumps writes an exponent, or would if the number were not an integer.
static bool has_plain_spelling(const Decimal *d) { return d->point > -4 && d->point <= 60; }

// Appends an expression for the magnitude of a decimal in the notation of json.dumps: 1.5e-07. With
// all_spellings, zeros may follow the digits.
static void put_scientific(Buffer *out, const Decimal *d, bool all_spellings) {
    int exponent = (int)d->point - 1;
    Str rest = {d->digits.data + 1, d->digits.len - 1};
    buffer_append(out, d->digits.data, 1);
    if (rest.len)
        buffer_printf(out, "\\.%.*s%s", (int)rest.len, rest.data, all_spellings ? "0*" : "");
    else if (all_spellings)
        buffer_puts(out, "(\\.0+)?");
    buffer_printf(out, "e%s%02d", exponent < 0 ? "-" : "\\+", abs(exponent));
}

// Appends an expression for the magnitude of a decimal without an exponent, after split_digits().
static void put_plain(Buffer *out, const Decimal *d, bool all_spellings) {
    const char *zeros = all_spellings ? "0*" : "";
    const char *fraction = all_spellings ? "(\\.0+)?" : "";
    if (d->part.len)
        buffer_printf(out, "%s\\.%s%s", d->whole.data, d->part.data, zeros);
    else
        buffer_printf(out, "%s%s", d->whole.data, fraction);
}

bool number_put_pattern(Buffer *out, const Json *x, bool all_spellings) {
    Decimal d = decimal_of(x);
    bool ok = split_digits(&d);
    bool is_plain = has_plain_spelling(&d);

    if (out->len) buffer_puts(out, "|");
    buffer_puts(out, d.is_negative ? "-(" REGEX_NONE : "(" REGEX_NONE);
    if (ok && (all_spellings || is_plain)) {
        buffer_puts(out, d.digits.len || !all_spellings ? "|" : "|-?");
        put_plain(out, &d, all_spellings);
    }
    if (ok && d.digits.len && (all_spellings || !is_plain)) {
        buffer_puts(out, "|");
        put_scientific(out, &d, all_spellings);
    }
    buffer_puts(out, ")");

    decimal_free(&d);
    return ok;
}
