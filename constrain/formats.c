// See formats.h.
#include "constrain/formats.h"

// Dates and times of RFC 3339; leap seconds only at 23:59:60 UTC.
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
// RFC 5321; the part before @ has at most 64 characters.
#define EMAIL                                                                                      \
    "^(?=([^@\"]{1,64}@|\"))(" ATOM "(\\." ATOM                                                    \
    ")*|\"([\\x20\\x21\\x23-\\x5b\\x5d-\\x7e]|\\\\[\\x20-\\x7e]){0,62}\")@(" HOST "|\\[(" IPV4     \
    "|IPv6:" IPV6 ")\\])"
#define HMS "([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S)"
#define YMD "([0-9]+Y([0-9]+M([0-9]+D)?)?|[0-9]+M([0-9]+D)?|[0-9]+D)"

// Limits of generated texts where the RFC has none.
enum { MAX_TIME = 64, MAX_URI = 2048 };

const Format *format_find(Str name) {
    static const Format formats[] = {
        {"date", DATE, UINT32_MAX, 10},
        {"time", TIME, UINT32_MAX, MAX_TIME},
        {"date-time", DATE "[Tt]" TIME, UINT32_MAX, MAX_TIME},
        {"duration", "P(" YMD "(T" HMS ")?|T" HMS "|[0-9]+W)", UINT32_MAX, MAX_TIME},
        {"uuid", "[0-9A-Fa-f]{8}-([0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}", UINT32_MAX, 36},
        {"email", EMAIL, 254, 254},
        {"hostname", HOST, 253, 253},
        {"ipv4", IPV4, UINT32_MAX, 15},
        {"ipv6", IPV6, UINT32_MAX, 45},
        {"uri", SCHEME HIER TAIL, UINT32_MAX, MAX_URI},
        {"uri-reference", "(" SCHEME HIER "|" REL ")" TAIL, UINT32_MAX, MAX_URI},
    };

    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (str_is(name, formats[i].name)) return &formats[i];
    return NULL;
}
