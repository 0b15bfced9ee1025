// Which tokens of a vocabulary may come next.
#ifndef CONSTRAIN_MASK_H
#define CONSTRAIN_MASK_H

#include "machine.h"

// The bytes of all tokens as a tree. Built once, never changed, shared by all matchers.
typedef struct Vocabulary Vocabulary;

// pieces: the bytes of each of n tokens; those without any (control tokens) are never allowed.
// Copies nothing: the bytes must stay.
Vocabulary *vocabulary_new(const Str *pieces, int n);
void vocabulary_free(Vocabulary *v);

// One text under way.
typedef struct Matcher Matcher;

// `shared` (or NULL) is a matcher of the same constraint and vocabulary whose tables are used and
// kept alive.
Matcher *matcher_new(const Grammar *c, const Vocabulary *v, Matcher *shared);
void matcher_free(Matcher *m);

// Bit t of the words is set if and only if the bytes of token t lead on towards a text that fits.
// Valid until the next call for any matcher that shares its tables. `skips_space`: a space that the
// token begins with is no part of the text.
const uint64_t *matcher_mask(Matcher *m, bool skips_space);
// The text so far fits.
bool matcher_is_end(const Matcher *m);
// And nothing can follow.
bool matcher_is_done(Matcher *m);
// Takes bytes in; how many were taken before one did not fit (then the matcher stands behind the
// last that did).
size_t matcher_accept(Matcher *m, Str bytes);
// Appends the bytes that must come next because nothing else can, as far as a few thousand.
void matcher_forced(const Matcher *m, Buffer *out);

#endif
