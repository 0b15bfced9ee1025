// batch --check: reads all requests, reports their errors, and counts what a run would compute.
// Nothing is generated; of the model file, only the metadata is read.
#include "cli/commands/batch.h"
#include "cli/output.h"

#include <math.h>
#include <stdio.h>

void batch_check_parse(const Options *o, double speed[2]) {
    const char *text = o->batch.speed;
    int end = 0;
    if (!text) return;
    if (!o->batch.is_check) die(EXIT_USAGE, "--speed: needs --check");
    if (sscanf(text, "%lf,%lf%n", &speed[0], &speed[1], &end) != 2 || text[end] ||
        !(speed[0] > 0 && speed[1] > 0))
        die(EXIT_USAGE, "--speed: expected tokens/s of prefill and generation as P,D, found \"%s\"",
            text);
}

// The most tokens that a record can generate are its max_tokens; without it, the end is unknown.
void batch_check_waiting(Batch *b) {
    for (int i = 0; i < b->n_window; i++) {
        Record *r = b->window[i];
        if (r->state != RECORD_WAITING) continue;

        Error err;
        if (!batch_fits_memory(b, r, &err)) {
            record_fail(r, "out_of_memory", err.text);
            continue;
        }

        bool is_first = r->index % r->parent->n_per_prompt == 0; // choice of its prompt
        if (is_first) batch_count_prompt(&b->counts, r);
        if (r->request.max_tokens >= 0)
            b->counts.n_limit += (uint64_t)r->request.max_tokens;
        else
            b->counts.n_unlimited++;

        r->state = RECORD_DONE;
        r->parent->answer.n_unfinished--;
    }
    b->n_waiting = 0;
}

void batch_check_print(const Batch *b) {
    const BatchCounts *n = &b->counts;
    if (b->options->is_quiet) return;

    fprintf(stderr, "%s, %ld failed, %ld skipped | prompts %llu tok (%s%llu sharable)",
            count_of((int)n->n_done, "record"), n->n_failed, n->n_skipped,
            (unsigned long long)n->n_prompt, n->beginnings.n >= MAX_BEGINNINGS ? "at least " : "",
            (unsigned long long)n->n_sharable);
    fprintf(stderr, " | at most %llu tok to generate", (unsigned long long)n->n_limit);
    if (n->n_unlimited)
        fprintf(stderr, ", and %s without max_tokens", count_of((int)n->n_unlimited, "answer"));

    const double *speed = b->check_speed;
    if (speed[0] > 0) {
        double sec =
            (double)(n->n_prompt - n->n_sharable) / speed[0] + (double)n->n_limit / speed[1];
        sec = fmin(sec, 1e15); // fits a long
        fprintf(stderr, " | at most %ld:%02d:%02d", (long)sec / 3600, (int)((long)sec / 60 % 60),
                (int)((long)sec % 60));
    }
    fputc('\n', stderr);
}
