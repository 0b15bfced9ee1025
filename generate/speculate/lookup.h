// Prompt lookup decoding (Saxena 2023): if the last tokens of a sequence occurred before, the draft
// is the tokens that followed the earlier occurrence. It needs no model, and pays off where a text
// repeats itself or its prompt: summaries, edits of code, structured answers.
#pragma once

#include "generate/speculate/drafter.h"

enum { LOOKUP_MIN_MATCH = 3 }; // fewest tokens that must match

// A drafter for a sequence. It drafts the tokens that followed the longest earlier occurrence of
// the last LOOKUP_MIN_MATCH or more tokens (of equally long ones the latest).
Drafter lookup_begin(void);
