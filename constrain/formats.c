#include "formats.h"
#include "regex.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// --- formats

#define DATE                                                                                       \
    "([0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-("  \
    "0[1-9]|1[0-9]|2[0-8])"                                                                        \
    ")"                                                                                            \
    "|([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29)"
#define OFFSET "([zZ]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
#define TIME                                                                                       \
    "(([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]+)?" OFFSET                                 \
    "|23:59:60(\\.[0-9]+)?([zZ]|[+-]00:00))"
#define LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define HOST  LABEL "(\\." LABEL ")*"
#define OCTET "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define IPV4  "(" OCTET "\\.){3}" OCTET
#define H     "[0-9A-Fa-f]{1,4}"
#define LS32  "(" H ":" H "|" IPV4 ")"
#define IPV6                                                                                       \
    "((" H ":){6}" LS32 "|::(" H ":){5}" LS32 "|(" H ")?::(" H ":){4}" LS32 "|((" H ":)?" H        \
    ")?::(" H ":){3}" LS32 "|((" H ":){0,2}" H ")?::(" H ":){2}" LS32 "|((" H ":){0,3}" H ")?::" H \
    ":" LS32 "|((" H ":){0,4}" H ")?::" LS32 "|((" H ":){0,5}" H ")?::" H "|((" H ":){0,6}" H      \
    ")?::)"
// RFC 3986
#define PCT    "%[0-9A-Fa-f]{2}"
#define PCHAR  "([A-Za-z0-9._~!$&'()*+,;=:@-]|" PCT ")"
#define SEGNC  "([A-Za-z0-9._~!$&'()*+,;=@-]|" PCT ")+"
#define USER   "([A-Za-z0-9._~!$&'()*+,;=:-]|" PCT ")*"
#define NAME   "([A-Za-z0-9._~!$&'()*+,;=-]|" PCT ")*"
#define FUTURE "[vV][0-9A-Fa-f]+\\.[A-Za-z0-9._~!$&'()*+,;=:-]+"
#define AUTH   "(" USER "@)?(\\[(" IPV6 "|" FUTURE ")\\]|" NAME ")(:[0-9]*)?"
#define PATH   "(/" PCHAR "*)*"
#define TAIL   "(\\?(" PCHAR "|[/?])*)?(#(" PCHAR "|[/?])*)?"
#define SCHEME "[A-Za-z][A-Za-z0-9+.-]*:"
#define HIER   "(//" AUTH PATH "|/(" PCHAR "+" PATH ")?|" PCHAR "+" PATH "|)"
#define REL    "(//" AUTH PATH "|/(" PCHAR "+" PATH ")?|" SEGNC PATH "|)"
#define ATOM   "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
#define HMS    "([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S)"
#define YMD    "([0-9]+Y([0-9]+M([0-9]+D)?)?|[0-9]+M([0-9]+D)?|[0-9]+D)"
#define TOKEN  "(/([^~/]|~[01])*)*"

FormatKind format_find(Str name, const char **pattern, uint32_t *max) {
    static const struct {
        const char *name, *pattern;
        uint32_t max;
    } known[] = {
        {"date", DATE, UINT32_MAX},
        {"time", TIME, UINT32_MAX},
        {"date-time", DATE "[Tt]" TIME, UINT32_MAX},
        {"duration", "P(" YMD "(T" HMS ")?|T" HMS "|[0-9]+W)", UINT32_MAX},
        {"uuid", "[0-9A-Fa-f]{8}-([0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}", UINT32_MAX},
        {"email",
         "(" ATOM "(\\." ATOM
         ")*|\"([\\x20\\x21\\x23-\\x5b\\x5d-\\x7e]|\\\\[\\x20-\\x7e])*\")@(" HOST "|\\[(" IPV4
         "|IPv6:" IPV6 ")\\])",
         UINT32_MAX},
        {"ipv4", IPV4, UINT32_MAX},
        {"ipv6", IPV6, UINT32_MAX},
        {"uri", SCHEME HIER TAIL, UINT32_MAX},
        {"uri-reference", "(" SCHEME HIER "|" REL ")" TAIL, UINT32_MAX},
        {"hostname", HOST, 253},
        {"json-pointer", TOKEN, UINT32_MAX},
        {"relative-json-pointer", "(0|[1-9][0-9]*)(#|" TOKEN ")", UINT32_MAX},
    };
    static const char *const others[] = {"idn-email",     "idn-hostname", "iri",
                                         "iri-reference", "uri-template", "regex"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (str_is(name, known[i].name))
            return *pattern = known[i].pattern, *max = known[i].max, FORMAT_KNOWN;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (str_is(name, others[i])) return FORMAT_UNSUPPORTED;
    return FORMAT_UNKNOWN;
}

// --- numbers

// Numbers are bounded, so that a text of them ends: 60 digits before the point, as many behind it
// as json.dumps writes.
#define DIGITS "(0|[1-9][0-9]{0,59})"
#define PART   "(\\.[0-9]{1,21})"
// Of two and three digits, so that the number stays within a double.
#define EXP2 "[eE][+-]?[0-9]{1,2}"
#define EXP3 "[eE]([+-]?[12][0-9]{2}|[+-]?30[0-7])"
// As json.dumps writes what is below 1e-4 or from 1e16 on.
#define TINY "[1-9](\\.[0-9]{1,16})?e-(0[5-9]|[1-9][0-9]|[12][0-9]{2}|30[0-7])"
#define VAST "[1-9](\\.[0-9]{1,16})?e\\+(1[6-9]|[2-9][0-9]|[12][0-9]{2}|30[0-7])"

// A positive double in decimal: digits before the point without leading zeros (but "0"), behind it
// without trailing.
typedef struct {
    char whole[330], part[360];
} Decimal;

static Decimal decimal_of(double x) {
    char text[40];
    Decimal d = {"", ""};
    int p = 0;
    do {
        snprintf(text, sizeof text, "%.*e", p, x);
    } while (strtod(text, NULL) != x && ++p < 17);
    char digits[24] = {text[0]};
    int n = 1, exponent = atoi(strchr(text, 'e') + 1);
    for (const char *s = text + 2; p > 0 && *s != 'e'; s++) digits[n++] = *s;
    while (n > 1 && digits[n - 1] == '0') n--;
    if (exponent >= 0 && x == floor(x)) {
        snprintf(d.whole, sizeof d.whole, "%.0f", x);
        return d;
    }
    if (exponent < 0) {
        strcpy(d.whole, "0");
        memset(d.part, '0', (size_t)(-exponent - 1));
        memcpy(d.part - exponent - 1, digits, (size_t)n);
    } else {
        memcpy(d.whole, digits, (size_t)exponent + 1);
        memcpy(d.part, digits + exponent + 1, (size_t)(n - exponent - 1));
    }
    return d;
}

// Digits that come before c, as a class; false if there are none.
static bool put_below(Buffer *out, char c, char least) {
    if (c <= least) return false;
    buffer_printf(out, "[%c-%c]", least, c - 1);
    return true;
}

// Numbers whose whole part is below that of d.
static void put_whole_below(Buffer *out, const Decimal *d) {
    size_t n = strlen(d->whole);
    if (n > 1) buffer_printf(out, "|(0|[1-9][0-9]{0,%zu})(\\.[0-9]+)?", n - 2);
    for (size_t i = 0; i < n; i++) {
        size_t before = out->len;
        buffer_printf(out, "|%.*s", (int)i, d->whole);
        if (put_below(out, d->whole[i], i == 0 && n > 1 ? '1' : '0'))
            buffer_printf(out, "[0-9]{%zu}(\\.[0-9]+)?", n - 1 - i);
        else
            out->len = before, out->data[before] = 0;
    }
}

// Numbers from 0 up to x (or just below it), as alternatives.
static void put_up_to(Buffer *out, double x, bool is_out) {
    Decimal d = decimal_of(x);
    size_t n = strlen(d.part);
    buffer_puts(out, "([^\\s\\S]"); // nothing, for the alternatives to follow
    put_whole_below(out, &d);
    if (n) buffer_printf(out, "|%s(\\.0+)?", d.whole);
    for (size_t i = 0; i < n; i++) {
        if (i) buffer_printf(out, "|%s\\.%.*s", d.whole, (int)i, d.part);
        if (d.part[i] > '0')
            buffer_printf(out, "|%s\\.%.*s[0-%c][0-9]*", d.whole, (int)i, d.part, d.part[i] - 1);
    }
    if (!is_out && n)
        buffer_printf(out, "|%s\\.%s0*", d.whole, d.part);
    else if (!is_out)
        buffer_printf(out, "|%s(\\.0+)?", d.whole);
    if (x > 0) buffer_puts(out, "|" TINY);
    buffer_puts(out, ")");
}

#define MAGNITUDE "(" DIGITS PART "?|" TINY "|" VAST ")"

// Keeps what is at most x.
static bool keep_up_to(Dfa *d, double x, bool is_out, Budget *budget, Error *err) {
    Buffer p = {0};
    bool is_negated =
        x < 0; // x is beyond those that are greater: -0 to -|x|, and all positive ones
    buffer_puts(&p, is_negated ? MAGNITUDE "|-" : "");
    if (!is_negated && x == 0) buffer_puts(&p, is_out ? "-" MAGNITUDE : "-" MAGNITUDE "|");
    if (!is_negated && x > 0) buffer_puts(&p, "-" MAGNITUDE "|");
    if (is_negated || x > 0 || !is_out) put_up_to(&p, fabs(x), is_negated ? !is_out : is_out);
    bool ok =
        regex_combine(d, is_negated ? DFA_SUBTRACT : DFA_INTERSECT, buffer_str(&p), budget, err);
    if (ok && x == 0 && is_out)
        ok = regex_combine(d, DFA_SUBTRACT, str_of("-0(\\.0+)?"), budget, err);
    buffer_free(&p);
    return ok;
}

static bool keep_from(Dfa *d, double x, bool is_out, Budget *budget, Error *err) {
    Buffer p = {0};
    bool is_negated = x > 0 || (x == 0 && is_out); // then those that are smaller are taken away
    buffer_puts(&p, is_negated ? "-" MAGNITUDE "|" : MAGNITUDE "|-");
    if (x == 0 && is_out)
        buffer_puts(&p, "0(\\.0+)?");
    else
        put_up_to(&p, fabs(x), is_negated ? !is_out : is_out);
    bool ok =
        regex_combine(d, is_negated ? DFA_SUBTRACT : DFA_INTERSECT, buffer_str(&p), budget, err);
    if (ok && x == 0 && is_out) ok = regex_combine(d, DFA_SUBTRACT, str_of("-.*"), budget, err);
    buffer_free(&p);
    return ok;
}

// Keeps the multiples of n. State first + i of the automaton: the digits so far leave remainder i.
static bool keep_multiples(Dfa *d, int n, Budget *budget, Error *err) {
    Nfa nfa = {.budget = budget};
    Dfa multiples;
    int start = nfa_state(&nfa), first = nfa.n_states;
    for (int i = 0; i < n; i++) nfa_state(&nfa);
    int sign = nfa_char_step(&nfa, start, '-');
    nfa_edge(&nfa, start, sign, NFA_EMPTY, 0);
    for (int i = -1; i < n; i++) // -1: before the first digit
        for (int digit = 0; digit < 10; digit++) {
            int after = nfa_char_step(&nfa, i < 0 ? sign : first + i, '0' + (uint32_t)digit);
            nfa_edge(&nfa, after, first + ((i < 0 ? 0 : i) * 10 + digit) % n, NFA_EMPTY, 0);
        }
    int end = nfa_char_step(&nfa, nfa_char_step(&nfa, first, '.'), '0');
    nfa_edge(&nfa, first, end, NFA_EMPTY, 0);
    bool ok = dfa_build(&multiples, &nfa, (NfaFragment){start, end}, -1, err);
    nfa_free(&nfa);
    if (!ok) return false;
    ok = dfa_combine(d, &multiples, DFA_INTERSECT, 0, budget, err);
    dfa_free(&multiples);
    return ok;
}

static bool narrow(const NumberRange *r, Budget *budget, Dfa *d, Error *err) {
    enum { MOST_MULTIPLE = 5000 };
    bool is_integral = r->has_integers && !r->has_fractions;
    if (!r->has_integers &&
        !regex_combine(d, DFA_SUBTRACT, str_of("-?" DIGITS "(\\.0+)?"), budget, err))
        return false;
    for (int side = 0; side < 2; side++) {
        double x = side ? r->hi : r->lo;
        if (!isinf(x) && !is_integral && x != 0 && fabs(x) < 1e-4)
            return error_set(err, EXIT_USAGE, "a bound as near to 0 as %g is not supported", x);
        if (!isinf(x) && !is_integral && (side ? -x : x) >= 1e16)
            return error_set(err, EXIT_USAGE, "a bound as far from 0 as %g is not supported", x);
    }
    if (!isinf(r->lo) && !keep_from(d, r->lo, r->lo_is_out, budget, err)) return false;
    if (!isinf(r->hi) && !keep_up_to(d, r->hi, r->hi_is_out, budget, err)) return false;
    if (r->multiple == 0 || (is_integral && 1 / r->multiple == floor(1 / r->multiple))) return true;
    if (r->multiple != floor(r->multiple) || r->multiple > MOST_MULTIPLE || r->multiple < 1)
        return error_set(err, EXIT_USAGE, "only whole numbers from 1 to %d are supported",
                         MOST_MULTIPLE);
    return keep_multiples(d, (int)r->multiple, budget, err);
}

bool number_dfa(const NumberRange *r, Budget *budget, Dfa *out, Error *err) {
    bool has_bounds = !isinf(r->lo) || !isinf(r->hi);
    const char *pattern = !r->has_fractions ? (r->is_plain ? "-?" DIGITS : "-?" DIGITS "(\\.0)?")
                          : has_bounds      ? "-?" MAGNITUDE
                                       : "-?(" DIGITS PART "?(" EXP2 ")?|[0-9]" PART "?" EXP3 ")";
    if (!regex_compile(str_of(pattern), REGEX_WHOLE, budget, out, err)) return false;
    if (narrow(r, budget, out, err)) return true;
    dfa_free(out);
    return false;
}

void number_pattern(Buffer *out, double x, bool is_plain) {
    char text[40];
    if (x < 0) buffer_puts(out, "-");
    if (x == 0) buffer_puts(out, "-?");
    x = fabs(x);
    Decimal d = decimal_of(x);
    bool has_exponent = x != 0 && (x < 1e-4 || x >= 1e16);
    if (!d.part[0])
        buffer_printf(out, is_plain ? "(%s" : "(%s(\\.0)?", d.whole);
    else
        buffer_printf(out, has_exponent ? "([^\\s\\S]" : "(%s\\.%s", d.whole, d.part);
    for (int p = 0; has_exponent && p < 17; p++) {
        snprintf(text, sizeof text, "%.*e", p, x);
        if (strtod(text, NULL) != x) continue;
        char *e = strchr(text, 'e');
        buffer_printf(out, "|%.*s%s%s", (int)(e - text), text, e[1] == '+' ? "e\\+" : "e-", e + 2);
        break;
    }
    buffer_puts(out, ")");
}
