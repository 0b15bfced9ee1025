// Prompt lookup (Saxena 2023): where the last tokens have occurred before, what followed them then
// is proposed again.
#ifndef SPECULATE_LOOKUP_H
#define SPECULATE_LOOKUP_H

enum {
    SPECULATE_MAX_DRAFT = 23,
    LOOKUP_MIN_MATCH = 3
}; // most tokens proposed; fewest that must agree

// The tokens of one sequence, indexed by what they end in.
typedef struct Lookup Lookup;
Lookup *lookup_new(void);
void lookup_free(Lookup *l);

// The sequence has one token more. Where it was guessed, it also tells how far such guesses can be
// trusted.
void lookup_push(Lookup *l, int token);
// Writes into out (SPECULATE_MAX_DRAFT) what followed the longest earlier occurrence of the last
// tokens (LOOKUP_MIN_MATCH or more; of equal ones the latest), and into trust (SPECULATE_MAX_DRAFT)
// how likely each is right if those before it are. Returns how many.
int lookup_draft(Lookup *l, int *out, float *trust);

#endif
