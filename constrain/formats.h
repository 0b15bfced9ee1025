// Texts of numbers and of JSON Schema's formats, as regular languages.
#ifndef CONSTRAIN_FORMATS_H
#define CONSTRAIN_FORMATS_H

#include "dfa.h"

typedef enum { FORMAT_UNKNOWN, FORMAT_KNOWN, FORMAT_UNSUPPORTED } FormatKind;
// The expression of a format's texts and their greatest length (UINT32_MAX: none). Unsupported ones
// are in the standard.
FormatKind format_find(Str name, const char **pattern, uint32_t *max);

// Numbers a schema allows. lo and hi may be infinite.
typedef struct {
    bool has_integers, has_fractions; // at least one
    bool is_plain;                    // 1.0 is no integer (draft 4)
    double lo, hi;
    bool lo_is_out, hi_is_out; // the bound itself is excluded
    double multiple;           // 0: any; else all are multiples of it
} NumberRange;
// Their texts. False with err.
bool number_dfa(const NumberRange *r, Budget *budget, Dfa *out, Error *err);
// Appends an expression for all the ways json.dumps writes a number.
void number_pattern(Buffer *out, double x, bool is_plain);

#endif
