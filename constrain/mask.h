// Token masks: which tokens of a vocabulary may come next according to a grammar.
//
// A TokenTable holds the bytes of all tokens; all grammars share it. A Matcher follows one text.
// Matchers of the same grammar share the machine and the masks computed so far.
#pragma once

#include "constrain/machine.h"

typedef struct TokenTable TokenTable;

// pieces: (n) the bytes of each token, which must outlive the table. Tokens without bytes
// (control tokens) are never allowed. The table is never freed.
TokenTable *token_table_new(const Str *pieces, int n);

typedef struct Matcher Matcher;

// shared: a matcher of the same grammar and tokens, whose tables the new matcher uses and keeps
// alive; or NULL.
Matcher *matcher_new(const Grammar *g, const TokenTable *v, Matcher *shared);
Matcher *matcher_copy(Matcher *m); // after the same text, with the same tables
void matcher_free(Matcher *m);
// Bounds the memory of the tables to about `bytes`. A lower bound costs time, but masks stay exact.
void matcher_set_limit(Matcher *m, size_t bytes);

// Bit t is set if and only if the text so far, followed by the bytes of token t, is the beginning
// of a matching text. Valid until the next call for any matcher with the same tables. skips_space:
// a space at the beginning of a token is not part of the text. NULL: on an interrupt, or if the
// text has so many readings that the mask would take longer than a fraction of a second.
const uint64_t *matcher_mask(Matcher *m, bool skips_space);
// True if the text so far matches.
bool matcher_is_end(const Matcher *m);
// True if the text so far matches and nothing can follow.
bool matcher_is_done(Matcher *m);
// Appends bytes to the text, up to the first byte that does not fit. Returns the number of bytes
// appended.
size_t matcher_accept(Matcher *m, Str bytes);
// The rest of a tag (see Def.tag) that must come next, or empty. It is a text of its own: a control
// token, or text that the tokenizer may have a special token for.
Str matcher_tag(const Matcher *m);
// Appends to `out` the bytes that must come next, up to the first byte that has an alternative, to
// a tag or to the end of a text; at most a few thousand. Fewer on an interrupt or beyond the limit
// of a mask.
void matcher_forced(const Matcher *m, Buffer *out);
