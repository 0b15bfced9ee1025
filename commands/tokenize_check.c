// A text is accepted token by token, exactly as generation would: each token must be in the mask
// that the constraint computed before it. The times of these masks are what a constraint costs.
#include "tokenize_check.h"
#include "../base/clock.h"
#include "../cli/request.h"
#include "../cli/lines.h"
#include "../cli/output.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct {
    double *us; // (n) microseconds of each mask
    size_t n, cap;
} MaskTimes;

static const uint64_t *timed_mask(ConstraintState *g, MaskTimes *times) {
    double start = now_sec();
    const uint64_t *mask = constraint_mask(g);
    if (times->n == times->cap)
        times->us = xrealloc(times->us, times->cap = 2 * times->cap + 64, sizeof *times->us);
    times->us[times->n++] = (now_sec() - start) * 1e6;
    return mask;
}

// Accepts the tokens of a text one by one, as generation would, and checks each against the mask
// before it. *at is the number of bytes that fit.
static bool is_accepted(ConstraintState *g, const Ids *ids, MaskTimes *times, size_t *at) {
    *at = 0;
    for (int i = 0; i < ids->len; i++) {
        const uint64_t *mask = timed_mask(g, times);
        int id = ids->data[i];
        size_t n;
        bool is_allowed = mask[id / 64] >> (id & 63) & 1, fits = constraint_accept(g, id, &n);
        *at += n;
        if (fits && n == 0) continue; // SentencePiece's leading space
        if (fits && !is_allowed) die(EXIT_RUNTIME, "token %d fits but is not in the mask", id);
        if (!fits || !is_allowed) return false;
    }
    timed_mask(g, times);
    return constraint_is_complete(g);
}

static int compare_times(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_times(const Options *o, double compile_sec, MaskTimes *times) {
    double sum = 0, p99 = 0, max = 0;
    if (times->n) qsort(times->us, times->n, sizeof *times->us, compare_times);
    for (size_t i = 0; i < times->n; i++) sum += times->us[i];
    if (times->n) p99 = times->us[(times->n - 1) * 99 / 100], max = times->us[times->n - 1];
    double mean = times->n ? sum / (double)times->n : 0;
    if (o->has_stats)
        printf("{\"compile_us\":%.1f,\"n_masks\":%zu,\"mask_mean_us\":%.2f,\"mask_p99_us\":%.2f,"
               "\"mask_max_us\":%.2f}\n",
               compile_sec * 1e6, times->n, mean, p99, max);
    else
        note(o, "compiled in %.0f us | %zu masks: mean %.1f us, p99 %.1f us, largest %.1f us",
             compile_sec * 1e6, times->n, mean, p99, max);
}

void constraint_check_lines(const Options *o, const Tokenizer *t) {
    static LineReader lines;
    static JsonDoc doc;
    static Ids ids;
    static MaskTimes times;
    ConstraintState *constraint;
    Error err;
    Str text;
    if (!constraint_from_options(constraint_cache_new(t), o, &constraint, &err)) die_error(&err);
    lines_open(&lines, o->file, TOKENIZE_MAX_LINE);
    while (lines_next_string(&lines, &doc, &text)) {
        size_t at;
        ids.len = 0;
        tokenizer_encode(t, text.data, text.len, &ids);
        ConstraintState *state = constraint_clone(constraint);
        bool accepted = is_accepted(state, &ids, &times, &at);
        printf("{\"accepted\":%s,\"n_tokens\":%d,\"at\":%zu}\n", accepted ? "true" : "false",
               ids.len, at);
        constraint_free(state);
    }
    print_times(o, constraint_compile_sec(constraint), &times);
}
