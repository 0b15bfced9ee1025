// How many proposed tokens to feed: what they are likely to save against what a longer step was
// seen to cost.
#ifndef SPECULATE_COST_H
#define SPECULATE_COST_H

enum { COST_MAX_TOKENS = 64 }; // longest step that is measured, in tokens

// Seconds of a step by the number of its tokens; 0 where none was seen.
typedef struct {
    double sec[COST_MAX_TOKENS + 1];
} CostModel;

// A step of n tokens took so long.
void cost_record(CostModel *p, int n, double sec);
// Seconds that a step of n tokens is likely to take.
double cost_estimate(const CostModel *p, int n);
// Of a step that feeds n_sure tokens anyway: how many of at most n guessed ones give the most
// tokens a second. trust[i] is how likely guess i is right if those before it are; each guess
// itself costs sec_each.
int cost_choose(const CostModel *p, int n_sure, const float *trust, int n, double sec_each);

#endif
