// A text ends in k + p tokens of period p if each of its last k tokens equals the token p before
// it. The detector counts k for every p, which costs LOOP_PERIOD comparisons per token.
#include "generate/loop.h"

bool loop_add(int n_equal[LOOP_PERIOD], const int *end, int n, int token) {
    bool is_loop = false;
    for (int p = 1; p <= LOOP_PERIOD && p <= n; p++) {
        int *k = &n_equal[p - 1];
        *k = token == end[-p] ? *k + 1 : 0;
        is_loop |= *k + p >= LOOP_TOKENS && *k + p >= LOOP_TIMES * p;
    }
    return is_loop;
}
