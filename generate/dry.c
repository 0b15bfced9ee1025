// See dry.h. The lengths of all repetitions come from the Z algorithm (Gusfield 1997, section 1.4)
// on the reversed tokens: its prefixes are the suffixes of the sequence.
#include "generate/dry.h"

#include <float.h>
#include <math.h>

static const Str default_breakers[] = {{"\n", 1}, {":", 1}, {"\"", 1}, {"*", 1}};

bool dry_is_on(const DryOptions *o) { return o->multiplier != 0 && o->base >= 1 && o->last_n != 0; }

// Sequence breakers.

// True if a breaker ends at byte `end` of the text of the last of n tokens. It may begin in an
// earlier one of them.
static bool ends_at(const DryOptions *o, const int *tokens, int n, size_t end, Str breaker) {
    Str piece = tokenizer_piece(o->tokenizer, tokens[n - 1], true);
    piece.len = end;
    while (breaker.len > 0) {
        if (piece.len == 0) {
            if (--n == 0) return false;
            piece = tokenizer_piece(o->tokenizer, tokens[n - 1], true);
        } else if (breaker.data[--breaker.len] != piece.data[--piece.len]) {
            return false;
        }
    }
    return true;
}

// True if a breaker ends in the text of the last of n tokens.
static bool has_breaker(const DryOptions *o, const int *tokens, int n) {
    size_t n_bytes = tokenizer_piece(o->tokenizer, tokens[n - 1], true).len;
    const Str *breakers = o->n_breakers ? o->breakers : default_breakers;
    int i = o->n_breakers ? o->n_breakers : (int)(sizeof default_breakers / sizeof *breakers);

    while (--i >= 0 && !str_is(breakers[i], "none"))
        for (size_t end = 1; end <= n_bytes && breakers[i].len; end++)
            if (ends_at(o, tokens, n, end, breakers[i])) return true;

    return false;
}

// Repetitions.

// Writes to match[k], for each 0 < k < n, how many of the last tokens also end k tokens earlier,
// and returns the largest. [begin, end) is the match found so far that reaches furthest; within it
// the tokens are those of [0, end - begin), whose matches are known.
static int find_matches(const int *tokens, int n, int *match) {
    const int *last = tokens + n - 1; // last[-i]: token i of the reversed sequence
    int begin = 0, end = 0, longest = 0;

    for (int k = 1; k < n; k++) {
        int length = k < end ? match[k - begin] : 0;
        if (k < end && length > end - k) length = end - k;
        while (k + length < n && last[-length] == last[-k - length]) length++;

        match[k] = length;
        if (length > longest) longest = length;
        if (k + length > end) {
            begin = k;
            end = k + length;
        }
    }

    return longest;
}

void dry_apply(const DryOptions *o, const int *recent, int n_recent, int *lengths, float *logits) {
    int n = o->last_n > 0 && o->last_n < n_recent ? o->last_n : n_recent;
    const int *tokens = recent + n_recent - n;
    if (n <= o->allowed_length) return;

    // No repetition extends over a breaker.
    int *match = xalloc((size_t)n, sizeof *match);
    int longest = find_matches(tokens, n, match);
    int limit = 0;
    while (limit < longest && !has_breaker(o, tokens, n - limit)) limit++;

    // tokens[n - k] followed the earlier occurrence. Lengths are stored plus 1, because 0 is none.
    for (int k = 1; k < n; k++) {
        int length = match[k] < limit ? match[k] : limit;
        int *most = &lengths[tokens[n - k]];
        if (length >= o->allowed_length && length >= *most) *most = length + 1;
    }
    free(match);

    // The exponent is limited so that the power is a float32: log FLT_MAX = 88.72.
    float log_base = logf(o->base);
    int max_exponent = log_base > 1e-6f ? (int)(88.7228391f / log_base) : n;
    for (int k = 1; k < n; k++) {
        int token = tokens[n - k];
        int exponent = lengths[token] - 1 - o->allowed_length;
        bool is_penalized = lengths[token] > 0 && !has_breaker(o, &token, 1);
        lengths[token] = 0;
        if (!is_penalized) continue;

        if (exponent > max_exponent) exponent = max_exponent;
        double penalty = (double)o->multiplier * pow((double)o->base, exponent);
        logits[token] -= (float)fmin(penalty, (double)FLT_MAX);
    }
}
