// Regular expressions of ECMA-262 as far as they are regular: what JSON Schema's "pattern" and
// --regex are written in.
#ifndef CONSTRAIN_REGEX_H
#define CONSTRAIN_REGEX_H

#include "dfa.h"

typedef enum {
    REGEX_WHOLE,  // the text is matched from end to end
    REGEX_SEARCH, // some part of the text matches, as JSON Schema has it
    REGEX_PREFIX  // the text begins with a match
} RegexMode;

// Literals, `.`, classes [a-z] [^a-z], \d \w \s \D \W \S (ASCII but for \s), \p{L} \p{N}, \t \n \r
// \f \v \0 \cX \xHH \uHHHH \u{H}, groups, alternation, * + ? {n} {n,} {n,m} (lazy forms too), ^ and
// $ anywhere, and (?=...) (?!...) at the very beginning. Back references, other look-around and \b
// are errors. Time is linear in the text whatever the expression; one whose automaton would grow
// too large is an error. False with err (exit 2: character and reason).
bool regex_compile(Str pattern, RegexMode mode, Budget *budget, Dfa *out, Error *err);

// One character of an expression or grammar after its backslash, by the codes both share (\t \n \r
// \xHH \uHHHH ...): how many bytes of s it takes, 0 if it is none of them.
size_t escape_decode(Str s, uint32_t *code);

#endif
