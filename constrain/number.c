#include "number.h"
#include "regex.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The length of a number is limited, so that a generated number ends: 60 digits before the decimal
// point, and as many after it as json.dumps writes.
#define DIGITS "(0|[1-9][0-9]{0,59})"
#define PART   "(\\.[0-9]{1,21})"
// Exponents of up to two and of three digits, such that the number is in the range of a double.
#define EXP2 "[eE][+-]?[0-9]{1,2}"
#define EXP3 "[eE]([+-]?[12][0-9]{2}|[+-]?30[0-7])"
// The notation of json.dumps for numbers below 1e-4, and for numbers from 1e16 on.
#define TINY "[1-9](\\.[0-9]{1,16})?e-(0[5-9]|[1-9][0-9]|[12][0-9]{2}|30[0-7])"
#define VAST "[1-9](\\.[0-9]{1,16})?e\\+(1[6-9]|[2-9][0-9]|[12][0-9]{2}|30[0-7])"
// A number without its sign. Used where the number is compared with bounds, for which TINY and VAST
// are below and above any bound.
#define MAGNITUDE "(" DIGITS PART "?|" TINY "|" VAST ")"
#define ZERO      "0(\\.0+)?"

// A number >= 0 in decimal notation: the digits before the point ("0" or no leading zeros), and the
// digits after it (without trailing zeros).
typedef struct {
    char whole[330], part[360];
} Decimal;

static Decimal decimal_of(double x) {
    char text[700];
    Decimal d = {"", ""};
    int n = double_digits(x);
    snprintf(text, sizeof text, "%.*e", n - 1, x); // d.ddde+dd
    int exponent = atoi(strchr(text, 'e') + 1);
    snprintf(text, sizeof text, "%.*f", x == floor(x) ? 0 : n - 1 - exponent, x);
    size_t n_whole = strcspn(text, ".");
    memcpy(d.whole, text, n_whole);
    if (text[n_whole]) strcpy(d.part, text + n_whole + 1);
    return d;
}

// Appends an expression for the magnitudes from 0 to x, without x if it is excluded. For 20.5, the
// alternatives are:
//
//     fewer digits before the point    (0|[1-9][0-9]{0,0})(\.[0-9]+)?
//     a smaller digit before it        [1-1][0-9]{1}(\.[0-9]+)?    (no second digit is below 0)
//     same digits, smaller fraction    20(\.0+)?|20\.[0-4][0-9]*
//     x itself                         20\.50*
static void put_up_to(Buffer *out, double x, bool is_excluded) {
    Decimal d = decimal_of(x);
    size_t n_whole = strlen(d.whole), n_part = strlen(d.part);
    buffer_puts(out, "(" REGEX_NONE);
    if (n_whole > 1) buffer_printf(out, "|(0|[1-9][0-9]{0,%zu})(\\.[0-9]+)?", n_whole - 2);
    for (size_t i = 0; i < n_whole; i++) {
        char least = i == 0 && n_whole > 1 ? '1' : '0';
        if (d.whole[i] > least)
            buffer_printf(out, "|%.*s[%c-%c][0-9]{%zu}(\\.[0-9]+)?", (int)i, d.whole, least,
                          d.whole[i] - 1, n_whole - 1 - i);
    }
    if (n_part) buffer_printf(out, "|%s(\\.0+)?", d.whole);
    for (size_t i = 0; i < n_part; i++) {
        if (i) buffer_printf(out, "|%s\\.%.*s", d.whole, (int)i, d.part);
        if (d.part[i] > '0')
            buffer_printf(out, "|%s\\.%.*s[0-%c][0-9]*", d.whole, (int)i, d.part, d.part[i] - 1);
    }
    if (!is_excluded && n_part) buffer_printf(out, "|%s\\.%s0*", d.whole, d.part);
    if (!is_excluded && !n_part) buffer_printf(out, "|%s(\\.0+)?", d.whole);
    buffer_puts(out, x > 0 ? "|" TINY ")" : ")");
}

// Reduces a DFA of numbers to the numbers up to x or, for a lower bound, from x on. "Far" is the
// sign of the numbers far below an upper bound (-) or far above a lower bound (+), "near" the other
// sign.
static bool keep_within(Dfa *d, double x, bool is_excluded, bool is_lower, Budget *budget,
                        Error *err) {
    Buffer p = {0};
    const char *near = is_lower ? "-" : "", *far = is_lower ? "" : "-";
    bool has_zero = is_lower ? x <= 0 : x >= 0, is_zero = x == 0 && is_excluded;
    // If 0 is within the bound: keeps all numbers of the far sign, and numbers of the near sign up
    // to |x|. Otherwise: removes all numbers of the near sign, and numbers of the far sign before
    // |x|.
    buffer_printf(&p, "%s%s|%s", has_zero ? far : near, MAGNITUDE, has_zero ? near : far);
    put_up_to(&p, fabs(x), has_zero ? is_excluded : !is_excluded);
    bool ok =
        regex_combine(d, has_zero ? DFA_INTERSECT : DFA_SUBTRACT, buffer_str(&p), budget, err);
    if (ok && is_zero) ok = regex_combine(d, DFA_SUBTRACT, str_of("-?" ZERO), budget, err);
    buffer_free(&p);
    return ok;
}

// Reduces a DFA of integers to the multiples of n. In NFA state first + i, the digits so far have
// the remainder i.
static bool keep_multiples(Dfa *d, int n, Budget *budget, Error *err) {
    Nfa nfa = {.budget = budget};
    Dfa multiples;
    int start = nfa_state(&nfa), first = nfa.n_states;
    for (int i = 0; i < n; i++) nfa_state(&nfa);
    int sign = nfa_step(&nfa, start, NFA_SET, nfa_range(&nfa, '-', '-'));
    nfa_edge(&nfa, start, sign, NFA_EMPTY, 0);
    for (int i = -1; i < n; i++) // -1: before the first digit
        for (int digit = 0; digit < 10; digit++) {
            int set = nfa_range(&nfa, '0' + (uint32_t)digit, '0' + (uint32_t)digit);
            int to = first + ((i < 0 ? 0 : i) * 10 + digit) % n;
            nfa_edge(&nfa, i < 0 ? sign : first + i, to, NFA_SET, set);
        }
    int point = nfa_step(&nfa, first, NFA_SET, nfa_range(&nfa, '.', '.'));
    int end = nfa_step(&nfa, point, NFA_SET, nfa_range(&nfa, '0', '0'));
    nfa_edge(&nfa, first, end, NFA_EMPTY, 0);
    bool ok = dfa_build(&multiples, &nfa, &(NfaFragment){start, end}, 0, -1, err);
    nfa_free(&nfa);
    if (!ok) return false;
    ok = dfa_combine(d, &multiples, DFA_INTERSECT, 0, budget, err);
    dfa_free(&multiples);
    return ok;
}

// Reduces a DFA of all numbers to the numbers of a range.
static bool narrow(const NumberRange *r, Budget *budget, Dfa *d, Error *err) {
    enum { MAX_MULTIPLE = 5000 };
    bool is_integral = r->has_integers && !r->has_fractions;
    if (!r->has_integers &&
        !regex_combine(d, DFA_SUBTRACT, str_of("-?" DIGITS "(\\.0+)?"), budget, err))
        return false;
    // TINY and VAST numbers cannot be compared with bounds of their own magnitude.
    for (int is_hi = 0; is_hi < 2; is_hi++) {
        double x = is_hi ? r->hi : r->lo;
        if (!isinf(x) && !is_integral && x != 0 && fabs(x) < 1e-4)
            return error_set(err, EXIT_USAGE,
                             "a bound of %g is not supported; use 0 or at least 1e-4", x);
        if (!isinf(x) && !is_integral && (is_hi ? -x : x) >= 1e16)
            return error_set(err, EXIT_USAGE, "a bound of %g is not supported; use less than 1e16",
                             x);
    }
    if (!isinf(r->lo) && !keep_within(d, r->lo, r->lo_is_excluded, true, budget, err)) return false;
    if (!isinf(r->hi) && !keep_within(d, r->hi, r->hi_is_excluded, false, budget, err))
        return false;
    if (r->multiple == 0 || (is_integral && 1 / r->multiple == floor(1 / r->multiple))) return true;
    if (r->multiple != floor(r->multiple) || r->multiple > MAX_MULTIPLE || r->multiple < 1)
        return error_set(err, EXIT_USAGE, "only one whole number from 1 to %d is supported",
                         MAX_MULTIPLE);
    return keep_multiples(d, (int)r->multiple, budget, err);
}

bool number_dfa(const NumberRange *r, Budget *budget, Dfa *out, Error *err) {
    const char *pattern = "-?(" DIGITS PART "?(" EXP2 ")?|[0-9]" PART "?" EXP3 ")";
    if (!isinf(r->lo) || !isinf(r->hi)) pattern = "-?" MAGNITUDE;
    if (!r->has_fractions) pattern = r->is_strict ? "-?" DIGITS : "-?" DIGITS "(\\.0)?";
    if (!regex_compile(str_of(pattern), REGEX_WHOLE, budget, out, err)) return false;
    if (narrow(r, budget, out, err)) return true;
    dfa_free(out);
    return false;
}

void number_put_pattern(Buffer *out, double x) {
    char text[40];
    buffer_puts(out, out->len ? "|" : "");
    buffer_puts(out, x < 0 ? "-" : x == 0 ? "-?" : "");
    x = fabs(x);
    Decimal d = decimal_of(x);
    bool has_exponent = x != 0 && (x < 1e-4 || x >= 1e16);
    if (!d.part[0])
        buffer_printf(out, "(%s(\\.0)?", d.whole);
    else
        buffer_printf(out, has_exponent ? "(" REGEX_NONE : "(%s\\.%s", d.whole, d.part);
    if (has_exponent) {
        snprintf(text, sizeof text, "%.*e", double_digits(x) - 1, x);
        char *e = strchr(text, 'e');
        buffer_printf(out, "|%.*s%s%s", (int)(e - text), text, e[1] == '+' ? "e\\+" : "e-", e + 2);
    }
    buffer_puts(out, ")");
}
