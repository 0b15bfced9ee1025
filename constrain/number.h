// JSON numbers: exact comparison of decimals, and regular languages of numbers (ranges, multiples,
// and the spellings of one number).
//
// Numbers are compared as decimal texts of any length, never as rounded doubles.
#pragma once

#include "constrain/language.h"
#include "base/json.h"

// The sign of a - b.
int number_compare(const Json *a, const Json *b);
bool number_is_integer(const Json *x);
// True if x is a multiple of m (positive, with at most 17 digits).
bool number_is_multiple(const Json *x, const Json *m);

typedef enum {
    NUMBER_ANY,   // any exponent
    NUMBER_DUMPS, // exponents as json.dumps writes them: 1.5e-07, 1e+16
    NUMBER_PLAIN  // no exponent
} NumberNotation;

typedef struct {
    bool has_integers, has_fractions; // which numbers are allowed; at least one is set
    bool is_strict;                   // 1.0 is not an integer (draft 4)
    NumberNotation notation;          // a range with a bound needs DUMPS or PLAIN
    const Json *bounds[2];            // lower and upper; NULL: none
    bool is_excluded[2];              // numbers equal to the bound are not in the range
} NumberRange;

// The texts of all numbers of a range.
int number_language(Languages *l, const NumberRange *r);
// A language whose plain numbers are exactly the multiples of m. It also has texts that are not
// numbers.
int number_multiples(Languages *l, const Json *m);
// Appends an alternative to a regular expression: the spelling of x that is generated or, with
// all_spellings, every spelling in a range of the notation NUMBER_DUMPS or NUMBER_PLAIN. False if x
// has too many digits.
bool number_put_pattern(Buffer *out, const Json *x, bool all_spellings);
