#include "tokenize_check.h"
#include "../base/clock.h"
#include "../cli/constraint_options.h"
#include "../cli/lines.h"
#include "../cli/output.h"

#include <stdio.h>
#include <stdlib.h>

enum { MAX_LINE = 1 << 30 };

typedef struct {
    double *us; // of each mask
    size_t n, cap;
} Times;

static const uint64_t *timed_mask(ConstraintState *g, Times *times) {
    double start = now_sec();
    const uint64_t *mask = constraint_mask(g);
    if (times->n == times->cap)
        times->us = xrealloc(times->us, times->cap = 2 * times->cap + 64, sizeof *times->us);
    times->us[times->n++] = (now_sec() - start) * 1e6;
    return mask;
}

// Token by token as generation would write the text: where it could not go on, or the end.
static bool check_text(ConstraintState *g, const Ids *ids, Times *times, size_t *at) {
    *at = 0;
    for (int i = 0; i < ids->len; i++) {
        const uint64_t *mask = timed_mask(g, times);
        int id = ids->data[i];
        size_t n;
        bool may = mask[id / 64] >> (id & 63) & 1, fits = constraint_accept(g, id, &n);
        *at += n;
        if (fits && n == 0) continue; // the space that SentencePiece puts in front
        if (!may && fits) die(EXIT_RUNTIME, "token %d fits but is not in the mask", id);
        if (!may || !fits) return false;
    }
    timed_mask(g, times);
    return constraint_is_complete(g);
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_times(const Options *o, double compile_sec, Times *times) {
    double sum = 0, p99 = 0, most = 0;
    if (times->n) qsort(times->us, times->n, sizeof *times->us, by_size);
    for (size_t i = 0; i < times->n; i++) sum += times->us[i];
    if (times->n) p99 = times->us[(times->n - 1) * 99 / 100], most = times->us[times->n - 1];
    double mean = times->n ? sum / (double)times->n : 0;
    if (o->has_stats)
        printf("{\"compile_us\":%.1f,\"n_masks\":%zu,\"mask_mean_us\":%.2f,\"mask_p99_us\":%.2f,"
               "\"mask_max_us\":%.2f}\n",
               compile_sec * 1e6, times->n, mean, p99, most);
    else
        note(o, "compiled in %.0f us | %zu masks: mean %.1f us, p99 %.1f us, largest %.1f us",
             compile_sec * 1e6, times->n, mean, p99, most);
}

void check_lines(const Options *o, const Tokenizer *t) {
    static LineReader lines;
    static JsonDoc doc;
    static Ids ids;
    static Times times;
    Error err;
    ConstraintState *constraint;
    ConstraintCache *cache = constraint_cache_new(t);
    if (!constraint_from_options(cache, o, &constraint, &err)) die_error(&err);
    lines_open(&lines, o->file, MAX_LINE);
    while (lines_next_json(&lines, &doc, true) == LINE_READY) {
        size_t at;
        if (doc.root->kind != JSON_STRING)
            die(EXIT_RUNTIME, "%s: line %ld: expected a JSON string", lines.path, lines.number);
        ids.len = 0;
        tokenizer_encode(t, doc.root->string.data, doc.root->string.len, &ids);
        ConstraintState *text = constraint_clone(constraint);
        bool accepted = check_text(text, &ids, &times, &at);
        printf("{\"accepted\":%s,\"n_tokens\":%d,\"at\":%zu}\n", accepted ? "true" : "false",
               ids.len, at);
        constraint_free(text);
    }
    print_times(o, constraint_compile_sec(constraint), &times);
}
