// The check of a finished text: what the masks of a constraint do not enforce.
#pragma once

#include "constrain/constraint_spec.h"
#include "constrain/grammar.h"

typedef struct TextCheck TextCheck;

// The check of the texts of a grammar that was compiled from a spec. NULL if the grammar enforces
// everything.
TextCheck *text_check_new(const Grammar *g, const ConstraintSpec *spec);
void text_check_free(TextCheck *c); // c may be NULL
// True if a text of the grammar passes; c may be NULL. Otherwise err has the place and what is
// expected there: "#/a: violates ...", or "tool NAME: #/a: violates ..." for the arguments of a
// call.
bool text_check(const TextCheck *c, Str text, Error *err);
