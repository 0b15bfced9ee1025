// Regular expressions of ECMA-262, except for constructs that are not regular: the notation of JSON
// Schema's "pattern" and of --regex.
//
// Supported: literals, `.`, classes [a-z] [^a-z], \d \w \s \D \W \S (ASCII, except \s), \p{Lu} and
// the other general categories, \t \n \r \f \v \0 \cX \xHH \uHHHH \u{H}, groups, alternatives, * +
// ? {n} {n,} {n,m} and their lazy forms, ^ and $ anywhere, (?=...) and (?!...) except in a
// repetition, (?<=X) for one character or class X, and the flags s and m, as in (?s:...). Back
// references, \b and other lookbehind are errors.
// Matching takes time linear in the length of the text.
#pragma once

#include "constrain/dfa.h"

typedef enum {
    REGEX_WHOLE, // the whole text matches
    REGEX_SEARCH // some part of the text matches, as in JSON Schema
} RegexMode;

// Patterns that match all texts, and no text.
#define REGEX_ANY  "[\\s\\S]*"
#define REGEX_NONE "[^\\s\\S]"

// Compiles a pattern. False with err (exit 2: character and reason), also if the automaton would be
// too large.
bool regex_compile(Str pattern, RegexMode mode, Budget *budget, Dfa *out);
// True if a text is a regular expression, as far as it consists of constructs that are supported.
bool regex_is_valid(Str text);
// Appends a literal text as an alternative to a pattern.
void regex_put_literal(Buffer *pattern, Str text);
// For a pattern ^X{n,m}$ in which X is one character or class: returns the length of ^X and sets
// the bounds. Returns 0 for any other pattern.
size_t regex_bounded_repeat(Str pattern, int *min, int *max);
