// Token masks: which tokens of a vocabulary may come next by a grammar.
//
// A Vocabulary holds the bytes of all tokens and is shared by everything. A Matcher follows one
// text; matchers of the same grammar share the machine and the masks that were computed.
#pragma once

#include "machine.h"

typedef struct Vocabulary Vocabulary;

// pieces: (n) the bytes of each token, which must stay; tokens without bytes (control tokens) are
// never allowed.
Vocabulary *vocabulary_new(const Str *pieces, int n);
void vocabulary_free(Vocabulary *v);

typedef struct Matcher Matcher;

// `shared` (or NULL) is a matcher of the same grammar and vocabulary whose tables are used, and
// kept alive.
Matcher *matcher_new(const Grammar *g, const Vocabulary *v, Matcher *shared);
void matcher_free(Matcher *m);

// Bit t is set if and only if the text followed by the bytes of token t is the beginning of a
// matching text. Valid until the next call for any matcher that shares its tables. skips_space: a
// space that the token begins with is not part of the text.
const uint64_t *matcher_mask(Matcher *m, bool skips_space);
// Whether the text matches; whether it does and nothing can follow.
bool matcher_is_end(const Matcher *m);
bool matcher_is_done(Matcher *m);
// Appends bytes to the text, up to the first that does not fit. Returns their number.
size_t matcher_accept(Matcher *m, Str bytes);
// Appends the bytes that must come next, as far as nothing else can; at most a few thousand.
void matcher_forced(const Matcher *m, Buffer *out);
