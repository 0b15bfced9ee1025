// Prompt lookup decoding (Saxena 2023): if the last tokens of a sequence occurred before, the draft
// is the tokens that followed the earlier occurrence. It needs no model, and pays off where a text
// repeats itself or its prompt: summaries, edits of code, structured answers.
#pragma once

enum {
    LOOKUP_MIN_MATCH = 3, // fewest tokens that must match
    LOOKUP_MAX_DRAFT = 23
};

// The tokens of one sequence, indexed by their n-grams.
typedef struct PromptLookup PromptLookup;
PromptLookup *lookup_new(void);
void lookup_free(PromptLookup *l);

int lookup_n_tokens(const PromptLookup *l);
// Appends a token of the sequence. If the latest draft predicted a token for this position, updates
// the acceptance rate.
void lookup_append(PromptLookup *l, int token);
// Drafts the tokens that followed the longest earlier occurrence of the last LOOKUP_MIN_MATCH or
// more tokens (of equally long ones the latest). Writes them into out (LOOKUP_MAX_DRAFT) and their
// acceptance rates into p_accept (LOOKUP_MAX_DRAFT). Returns their number: all or none.
int lookup_draft(PromptLookup *l, int *out, float *p_accept);
