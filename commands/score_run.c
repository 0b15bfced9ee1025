// The engine of score (see score.h): packs tasks into forward passes and sums log-probabilities.
#include "score.h"
#include "../base/clock.h"
#include "../cli/output.h"
#include "../cli/request.h"

#include <math.h>

// Feeds as many tokens of a task as fit into the forward pass.
static void feed_task(Scorer *s, ScoreTask *task) {
    Error err;
    const int *tokens = task->ids.data + task->n_fed;
    int first = task->first_scored - 1 - task->n_fed; // first token whose logits are needed
    int n = task->ids.len - 1 - task->n_fed;

    if (first < 0) first = 0;
    if (n > s->chunk) n = s->chunk;
    n = workspace_feed(s->workspace, task->session, tokens, n, first, &err);
    if (n < 0 || (task->reference && workspace_feed(s->reference->workspace, task->reference,
                                                    tokens, n, first, &err) < n))
        die_error(&err);

    task->n_fed += n;
    s->n_fed += (uint64_t)n;
    task->n_logits = n > first ? n - first : 0;
}

// Adds the log-probabilities of the tokens that this pass predicts. Returns the logits of the next
// task.
static const float *add_logprobs(const Scorer *s, ScoreTask *task, const float *logits) {
    int n_vocab = s->pipeline.model.config.vocab_size;

    for (int i = task->n_fed - task->n_logits; i < task->n_fed; i++, logits += n_vocab) {
        float logprob = logits_logprob(logits, n_vocab, task->ids.data[i + 1]);
        if (!isfinite(logprob)) {
            progress_end();
            die(EXIT_RUNTIME, "the logits contain NaN or infinity");
        }

        task->logprob += (double)logprob;
        task->squares += (double)logprob * (double)logprob;
        if (s->reference) kl_compare(s->reference, i, logits);
    }

    task->n_logits = 0;
    return logits;
}

void score_run(Scorer *s, ScoreTask *const *tasks, int n) {
    KlReference *reference = s->reference;
    int first = 0; // first incomplete task

    while (first < n) {
        double share = (double)s->n_fed / (double)s->n_total;
        progress_prefill(s->pipeline.options, s->n_fed, s->n_total, share, s->fed_since);

        // One forward pass for the next tasks.
        int end = n < first + s->parallel ? n : first + s->parallel;
        for (int i = first; i < end; i++) feed_task(s, tasks[i]);
        const float *logits = model_forward(&s->pipeline.model, s->workspace, 0);
        if (reference && reference->workspace)
            reference->rows = model_forward(&reference->model, reference->workspace, 0);

        for (int i = first; i < end; i++) logits = add_logprobs(s, tasks[i], logits);
        while (first < n && tasks[first]->n_fed >= tasks[first]->ids.len - 1) first++;
    }
}

void score_expect(Scorer *s, uint64_t n_total) {
    s->n_fed = 0;
    s->n_total = n_total;
    s->fed_since = now_sec();
}
