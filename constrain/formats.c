// See formats.h.
#include "constrain/formats.h"
#include "constrain/regex.h"

// Dates and times of RFC 3339; leap seconds only at 23:59:60 UTC.
#define DATE                                                                                       \
    "([0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-("  \
    "0[1-9]|1[0-9]|2[0-8])"                                                                        \
    ")"                                                                                            \
    "|([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29)"
#define CLOCK  "([01][0-9]|2[0-3]):[0-5][0-9]"
#define OFFSET "[+-]" CLOCK
#define TIME                                                                                       \
    "(" CLOCK ":[0-5][0-9](\\.[0-9]+)?([zZ]|" OFFSET ")|23:59:60(\\.[0-9]+)?([zZ]|[+-]00:00))"
#define PLAIN_DATE "(?!0000)" DATE
#define PLAIN_TIME CLOCK ":[0-5][0-9](\\.[0-9]{1,9})?(Z|" OFFSET ")"
#define LABEL      "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define HOST       LABEL "(\\." LABEL ")*"
#define OCTET      "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define IPV4       "(" OCTET "\\.){3}" OCTET
#define H          "[0-9A-Fa-f]{1,4}"
#define LS32       "(" H ":" H "|" IPV4 ")"
#define IPV6                                                                                       \
    "((" H ":){6}" LS32 "|::(" H ":){5}" LS32 "|(" H ")?::(" H ":){4}" LS32 "|((" H ":)?" H        \
    ")?::(" H ":){3}" LS32 "|((" H ":){0,2}" H ")?::(" H ":){2}" LS32 "|((" H ":){0,3}" H ")?::" H \
    ":" LS32 "|((" H ":){0,4}" H ")?::" LS32 "|((" H ":){0,5}" H ")?::" H "|((" H ":){0,6}" H      \
    ")?::)"
// RFC 3986. U: characters that RFC 3987 adds, P: those that it adds in a query.
#define PCT            "%[0-9A-Fa-f]{2}"
#define PCHAR(U)       "([A-Za-z0-9._~!$&'()*+,;=:@" U "-]|" PCT ")"
#define SEGNC(U)       "([A-Za-z0-9._~!$&'()*+,;=@" U "-]|" PCT ")+"
#define USER(U)        "([A-Za-z0-9._~!$&'()*+,;=:" U "-]|" PCT ")*"
#define NAME(U)        "([A-Za-z0-9._~!$&'()*+,;=" U "-]|" PCT ")*"
#define FUTURE         "[vV][0-9A-Fa-f]+\\.[A-Za-z0-9._~!$&'()*+,;=:-]+"
#define AUTH(U)        "(" USER(U) "@)?(\\[(" IPV6 "|" FUTURE ")\\]|" NAME(U) ")(:[0-9]*)?"
#define PATH(U)        "(/" PCHAR(U) "*)*"
#define TAIL(U, P)     "(\\?(" PCHAR(U) "|[/?" P "])*)?(#(" PCHAR(U) "|[/?])*)?"
#define SCHEME         "[A-Za-z][A-Za-z0-9+.-]*:"
#define LONG(U)        "//" AUTH(U) PATH(U) "|/(" PCHAR(U) "+" PATH(U) ")?"
#define PLAIN_URI      SCHEME "(" LONG("") "|" PCHAR("") "+" PATH("") ")" TAIL("", "")
#define ABSOLUTE(U, P) SCHEME "(" LONG(U) "|" PCHAR(U) "+" PATH(U) "|)" TAIL(U, P)
// The forms with and without a scheme share the long one.
#define REFERENCE(U, P)                                                                            \
    "((" SCHEME ")?(" LONG(U) "|)|" SCHEME PCHAR(U) "+" PATH(U) "|" SEGNC(U) PATH(U) ")" TAIL(U, P)
// The last two code points of each plane are not excluded.
#define UCS     "\\u00a0-\\ud7ff\\uf900-\\ufdcf\\ufdf0-\\uffef\\u{10000}-\\u{efffd}"
#define PRIVATE "\\ue000-\\uf8ff\\u{f0000}-\\u{10fffd}"
// RFC 6570
#define VARIABLE "(\\w|" PCT ")+(\\.(\\w|" PCT ")+)*(:[1-9][0-9]{0,3}|\\*)?"
#define LITERALS "[!#$&(-;=?-[\\]_a-z~" UCS PRIVATE "]"
#define TEMPLATE "(" LITERALS "|" PCT "|\\{[+#./;?&=,!@|]?" VARIABLE "(," VARIABLE ")*\\})*"
// RFC 6901
#define POINTER          "(/([^~/]|~[01])*)*"
#define RELATIVE_POINTER "(0|[1-9][0-9]*)([+-](0|[1-9][0-9]*))?(#|" POINTER ")"
#define ATOM(U)          "[A-Za-z0-9!#$%&'*+/=?^_`{|}~" U "-]+"
// RFC 5321; the part before @ has at most 64 characters.
#define EMAIL                                                                                      \
    "^(?=([^@\"]{1,64}@|\"))(" ATOM("") "(\\." ATOM(                                               \
        "") ")*|\"([\\x20\\x21\\x23-\\x5b\\x5d-\\x7e]|\\\\[\\x20-\\x7e]){0,62}\")@(" HOST          \
            "|\\[(" IPV4 "|IPv6:" IPV6 ")\\])"
// RFC 6531; the characters beyond ASCII are not restricted further.
#define IDN       "\\u0080-\\u{10ffff}"
#define IDN_LABEL "[A-Za-z0-9" IDN "]([A-Za-z0-9" IDN "-]{0,61}[A-Za-z0-9" IDN "])?"
#define IDN_EMAIL "(?=[^@]{1,64}@)" ATOM(IDN) "(\\." ATOM(IDN) ")*@" IDN_LABEL "(\\." IDN_LABEL ")*"
#define PLAIN_EMAIL                                                                                \
    "(?=[^@]{1,64}@)[A-Za-z0-9_+-]+(\\.[A-Za-z0-9_+-]+)*@([A-Za-z0-9](-?[A-Za-z0-9]){0,31}\\.)+"   \
    "[A-Za-z]{2,63}"
#define HMS "([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S)"
#define YMD "([0-9]+Y([0-9]+M([0-9]+D)?)?|[0-9]+M([0-9]+D)?|[0-9]+D)"
// Larger numbers exceed the range of a duration in some libraries.
#define N              "[0-9]{1,6}"
#define PLAIN_HMS      "(" N "H(" N "M(" N "S)?)?|" N "M(" N "S)?|" N "S)"
#define PLAIN_DURATION "P(" N "D(T" PLAIN_HMS ")?|T" PLAIN_HMS ")"

// Limits of generated texts where the RFC has none.
enum { MAX_TIME = 64, MAX_URI = 2048 };

#define TEXT(name_, pattern_, generated_, max_length_, max_generated_)                             \
    {                                                                                              \
        .name = name_, .pattern = pattern_, .generated = generated_, .max_length = max_length_,    \
        .max_generated = max_generated_                                                            \
    }
#define NUMBER(x)                                                                                  \
    { .kind = JSON_NUMBER, .string = {#x, sizeof #x - 1}, .number = x }
#define INTEGER(name_, low, high)                                                                  \
    {                                                                                              \
        .name = name_, .bounds = { NUMBER(low), NUMBER(high) }                                     \
    }

const Format *format_find(Str name) {
    static const Format formats[] = {
        TEXT("date", DATE, PLAIN_DATE, UINT32_MAX, 10),
        TEXT("time", TIME, PLAIN_TIME, UINT32_MAX, MAX_TIME),
        TEXT("date-time", DATE "[Tt]" TIME, PLAIN_DATE "T" PLAIN_TIME, UINT32_MAX, MAX_TIME),
        TEXT("duration", "P(" YMD "(T" HMS ")?|T" HMS "|[0-9]+W)", PLAIN_DURATION, UINT32_MAX,
             MAX_TIME),
        TEXT("uuid", "[0-9A-Fa-f]{8}-([0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}", NULL, UINT32_MAX, 36),
        TEXT("email", EMAIL, PLAIN_EMAIL, 254, 254),
        TEXT("hostname", HOST, NULL, 253, 253),
        TEXT("ipv4", IPV4, NULL, UINT32_MAX, 15),
        TEXT("ipv6", IPV6, NULL, UINT32_MAX, 45),
        TEXT("idn-email", IDN_EMAIL, NULL, 254, 254),
        TEXT("uri", ABSOLUTE("", ""), PLAIN_URI, UINT32_MAX, MAX_URI),
        TEXT("uri-reference", REFERENCE("", ""), NULL, UINT32_MAX, MAX_URI),
        TEXT("iri", ABSOLUTE(UCS, PRIVATE), NULL, UINT32_MAX, MAX_URI),
        TEXT("iri-reference", REFERENCE(UCS, PRIVATE), NULL, UINT32_MAX, MAX_URI),
        TEXT("uri-template", TEMPLATE, NULL, UINT32_MAX, MAX_URI),
        TEXT("json-pointer", POINTER, NULL, UINT32_MAX, MAX_URI),
        TEXT("relative-json-pointer", RELATIVE_POINTER, NULL, UINT32_MAX, MAX_URI),
        {.name = "regex",
         .pattern = REGEX_ANY,
         .max_length = UINT32_MAX,
         .max_generated = UINT32_MAX,
         .is_valid = regex_is_valid},
        INTEGER("int8", -128.0, 127.0),
        INTEGER("int16", -32768.0, 32767.0),
        INTEGER("int32", -2147483648.0, 2147483647.0),
        INTEGER("int64", -9223372036854775808.0, 9223372036854775807.0),
        INTEGER("int", -9223372036854775808.0, 9223372036854775807.0),
        INTEGER("uint8", 0.0, 255.0),
        INTEGER("uint16", 0.0, 65535.0),
        INTEGER("uint32", 0.0, 4294967295.0),
        INTEGER("uint64", 0.0, 18446744073709551615.0),
        INTEGER("uint", 0.0, 18446744073709551615.0),
    };

    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (str_is(name, formats[i].name)) return &formats[i];
    return NULL;
}
