// See stops.h.
#include "generate/stops.h"

#include <math.h>

void stops_find(const Stops *s, Str text, size_t from, size_t *stop, size_t *partial) {
    *stop = SIZE_MAX;
    *partial = text.len;
    for (int i = 0; i < s->n_strings; i++) {
        Str string = s->strings[i];
        if (!string.len) continue;

        size_t at = from > string.len ? from - string.len + 1 : 0;
        for (; at < text.len; at++) {
            size_t n_left = text.len - at, n = n_left < string.len ? n_left : string.len;
            size_t *found = n == string.len ? stop : partial;
            if (at < *found && !memcmp(text.data + at, string.data, n)) *found = at;
        }
    }
}

// True if the request names a token as the end of the text: by its id, or by a stop string. A
// control token is not part of the text, where stop strings are searched for.
static bool is_requested(const Stops *s, const Tokenizer *t, int token) {
    for (int i = 0; i < s->n_ids; i++)
        if (s->ids[i] == token) return true;
    for (int i = 0; i < s->n_strings && tokenizer_is_control(t, token); i++)
        if (str_eq(s->strings[i], tokenizer_piece(t, token, true))) return true;
    return false;
}

bool stops_at(const Stops *s, const Tokenizer *t, int token) {
    return is_requested(s, t, token) || tokenizer_is_stop(t, token);
}

void stops_mask(const Stops *s, const Tokenizer *t, bool may_stop, float *logits) {
    int n;
    const int *ids = tokenizer_stops(t, &n);
    for (int i = 0; i < n; i++)
        if (!may_stop || !is_requested(s, t, ids[i])) logits[ids[i]] = -INFINITY;
    for (int id = 0; id < tokenizer_n_vocab(t) && !may_stop; id++)
        if (is_requested(s, t, id)) logits[id] = -INFINITY;
}
