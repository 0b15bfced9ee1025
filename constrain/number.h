// JSON numbers as regular languages: ranges, multiples, and all spellings of a number.
#pragma once

#include "dfa.h"

typedef struct {
    bool has_integers, has_fractions; // which numbers are allowed; at least one is set
    bool is_strict;                   // 1.0 is not an integer (draft 4)
    double lo, hi;                    // may be infinite
    bool lo_is_excluded, hi_is_excluded;
    double multiple; // all numbers are multiples of it; 0: any
} NumberRange;

// The DFA of the texts of all numbers of a range. False with err (exit 2), also if the range is not
// supported.
bool number_dfa(const NumberRange *r, Budget *budget, Dfa *out, Error *err);
// Appends an alternative to a regular expression: every spelling of x that json.dumps may write.
void number_put_pattern(Buffer *out, double x);
