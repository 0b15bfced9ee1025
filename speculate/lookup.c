// Positions are chained by a hash of the three tokens that end there, the latest first. How likely
// a guess is right depends on how many tokens before it agree, and is counted for five ranges of
// that, whether the guess was fed or not: trust costs nothing to learn.
#include "lookup.h"
#include "../base/util.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_TRIED = 32, MOST_AGREEING = 32, N_RANGES = 5, FIRST_HEADS = 1024 };

struct Lookup {
    int *tokens, *earlier; // (n): the token; the last position before with the same hash, or -1
    int n, cap;
    int *heads; // (n_heads, a power of two): last position with this hash, or -1
    int n_heads;
    int guess[SPECULATE_MAX_DRAFT]; // those from n_checked on wait for the token that comes
    int n_guess, n_checked, n_agreeing;
    float right[N_RANGES], tried[N_RANGES];
};

Lookup *lookup_new(void) {
    // Guesses worth having before there is experience (texts that repeat themselves), with the
    // weight of four tokens.
    static const float prior[N_RANGES] = {0.3f, 0.4f, 0.5f, 0.7f, 0.8f};
    Lookup *l = xalloc(1, sizeof *l);
    for (int i = 0; i < N_RANGES; i++) l->tried[i] = 4, l->right[i] = 4 * prior[i];
    return l;
}

void lookup_free(Lookup *l) {
    if (!l) return;
    free(l->tokens);
    free(l->earlier);
    free(l->heads);
    free(l);
}

// 3, 4, 5 and 6, 7 to 10, or more agreeing tokens.
static int range_of(int n_agreeing) {
    int i = 0;
    while (i < N_RANGES - 1 && n_agreeing > LOOKUP_MIN_MATCH - 1 + (1 << i)) i++;
    return i;
}

static int *head_of(const Lookup *l, int end) {
    uint64_t h = 0;
    for (int i = end - LOOKUP_MIN_MATCH + 1; i <= end; i++)
        h = (h ^ (uint32_t)l->tokens[i]) * 0x9e3779b97f4a7c15u;
    return &l->heads[h >> 32 & (uint64_t)(l->n_heads - 1)];
}

static void enter(Lookup *l, int end) {
    if (end < LOOKUP_MIN_MATCH - 1) return;
    int *head = head_of(l, end);
    l->earlier[end] = *head;
    *head = end;
}

static void grow(Lookup *l) {
    l->cap = l->cap ? 2 * l->cap : FIRST_HEADS;
    l->n_heads = l->cap;
    l->tokens = xrealloc(l->tokens, (size_t)l->cap, sizeof *l->tokens);
    l->earlier = xrealloc(l->earlier, (size_t)l->cap, sizeof *l->earlier);
    l->heads = xrealloc(l->heads, (size_t)l->n_heads, sizeof *l->heads);
    for (int i = 0; i < l->n_heads; i++) l->heads[i] = -1;
    for (int i = 0; i < l->n; i++) enter(l, i);
}

// What has become of a guess counts; old experience fades.
static void learn(Lookup *l, int token) {
    int range = range_of(l->n_agreeing + l->n_checked);
    bool is_right = l->guess[l->n_checked++] == token;
    l->tried[range] = 0.97f * l->tried[range] + 1;
    l->right[range] = 0.97f * l->right[range] + (float)is_right;
    if (!is_right) l->n_guess = 0;
}

void lookup_push(Lookup *l, int token) {
    if (l->n_checked < l->n_guess) learn(l, token);
    if (l->n == l->cap) grow(l);
    l->tokens[l->n++] = token;
    enter(l, l->n - 1);
}

// How many tokens up to position a agree with the last ones.
static int agreeing(const Lookup *l, int a) {
    int n = 0;
    while (n < MOST_AGREEING && n <= a && l->tokens[a - n] == l->tokens[l->n - 1 - n]) n++;
    return n;
}

int lookup_draft(Lookup *l, int *out, float *trust) {
    int best = -1, last = l->n - 1;
    l->n_guess = l->n_checked = l->n_agreeing = 0;
    if (l->n <= LOOKUP_MIN_MATCH) return 0;
    for (int a = l->earlier[last], i = 0; a >= 0 && i < MOST_TRIED; a = l->earlier[a], i++) {
        int n = agreeing(l, a);
        if (n >= LOOKUP_MIN_MATCH && n > l->n_agreeing) best = a, l->n_agreeing = n;
    }
    if (best < 0) return 0;
    for (int i = 0, a = best + 1; i < SPECULATE_MAX_DRAFT;
         i++, a++) { // beyond the end what it repeats
        out[i] = l->guess[i] = a <= last ? l->tokens[a] : out[a - last - 1];
        int range = range_of(l->n_agreeing + i);
        trust[i] = l->right[range] / l->tried[range];
    }
    return l->n_guess = SPECULATE_MAX_DRAFT;
}
