// See draft_model.h. Each draft token is one forward pass of the draft model.
#include "generate/speculate/draft_model.h"
#include "base/clock.h"
#include "generate/speculate/cost.h"

enum { DRAFT_CHUNK = 256 }; // tokens per forward pass when the draft model catches up

// State of one sequence.
typedef struct {
    DraftModel *shared;
    Sampler *sampler;
    int n_drafted; // for the current pass
} ModelDrafter;

DraftModel *draft_model_new(const Model *m) {
    DraftModel *d = xalloc(1, sizeof *d);
    *d = (DraftModel){
        .model = m, .workspace = workspace_new(m, DRAFT_CHUNK, 1), .session = session_new(&m->kv)};
    return d;
}

static int model_estimate(void *arg, const DraftPoint *at, float *p_accept, int max,
                          double *sec_per_draft) {
    DraftModel *m = ((ModelDrafter *)arg)->shared;
    if (at->n_base > 1) return 0; // there are other sequences
    rate_estimate(&m->rate, p_accept, max);
    *sec_per_draft = m->rate.sec_per_draft;
    return max;
}

// Makes the KV cache hold exactly the tokens of a sequence: rewinds it to the common prefix and
// feeds the other tokens. False on an interrupt or if memory is short.
static bool catch_up(DraftModel *m, const Session *text) {
    Session *s = m->session;
    Error err;
    int n_common = 0;
    while (n_common < text->n_tokens && n_common < s->n_tokens &&
           s->tokens[n_common] == text->tokens[n_common])
        n_common++;

    if (n_common < s->n_tokens) session_rewind(s, n_common);
    while (s->n_tokens < text->n_tokens) {
        int n_left = text->n_tokens - s->n_tokens;
        if (workspace_feed(m->workspace, s, text->tokens + s->n_tokens, n_left, n_left, &err) < 0)
            return false;
        if (!model_forward(m->model, m->workspace, 0)) return false;
    }
    return true;
}

static int model_draft(void *arg, const DraftPoint *at, int *out, int n) {
    ModelDrafter *d = arg;
    DraftModel *m = d->shared;
    Session *s = m->session;
    Error err;

    int n_free = m->model->config.max_context - at->session->n_tokens - 1;
    if (n > n_free) n = n_free;
    if (n < 1 || !catch_up(m, at->session)) return 0;
    sampler_sync(d->sampler, at->sampler);

    // Feed the pending token, then each draft token.
    double start = now_sec();
    int token = at->pending;
    for (d->n_drafted = 0; d->n_drafted < n; d->n_drafted++) {
        if (workspace_feed(m->workspace, s, &token, 1, 0, &err) < 1) break;
        const float *logits = model_forward(m->model, m->workspace, 0);
        if (!logits) break;
        token = sampler_next(d->sampler, logits, s->tokens, s->n_tokens);
        if (token < 0) break;
        out[d->n_drafted] = token;
    }

    if (d->n_drafted > 0)
        m->rate.sec_per_draft =
            cost_average(m->rate.sec_per_draft, (now_sec() - start) / d->n_drafted);
    return d->n_drafted;
}

static void model_accept(void *arg, const Session *session, int row, int n) {
    ModelDrafter *d = arg;
    (void)session;
    (void)row;
    rate_record(&d->shared->rate, n - 1, d->n_drafted);
    d->n_drafted = 0;
}

static void model_free(void *arg) {
    ModelDrafter *d = arg;
    sampler_free(d->sampler);
    free(d);
}

Drafter draft_model_begin(DraftModel *m, const SampleOptions *options) {
    ModelDrafter *d = xalloc(1, sizeof *d);
    d->shared = m;
    d->sampler = sampler_new(options, m->model->config.vocab_size);
    return (Drafter){model_estimate, model_draft, model_accept, model_free, d};
}
