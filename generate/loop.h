// Detects a text that has become a loop: the same tokens again and again, to its end.
//
// A text that counts up, or a finished table of equal cells, is no loop: the repeated part has at
// most LOOP_PERIOD tokens, and its repetitions are many and long. Texts that somebody asks for (a
// line 100 times, an array of 300 zeros, "ha" 900 times) stay below 2048 tokens: of 18, none ends;
// with 512 tokens, 12 did (vocabulary of Llama 2, 2026-11-28).
#pragma once

#include <stdbool.h>

enum {
    LOOP_PERIOD = 64,  // most tokens of the part that repeats
    LOOP_TIMES = 20,   // least number of its repetitions
    LOOP_TOKENS = 2048 // least number of tokens of all repetitions
};

// Adds the token that follows n tokens, which are stored before `end`. True if the text now ends in
// a loop. n_equal[p - 1] is the number of last tokens that equal the token p before them; all are 0
// before the first token.
bool loop_add(int n_equal[LOOP_PERIOD], const int *end, int n, int token);
