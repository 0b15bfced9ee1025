// The draft model generates one token per forward pass of its own; see draft.h.
#include "generate/speculate/draft.h"
#include "base/clock.h"

enum { DRAFT_CHUNK = 256 }; // tokens per forward pass when the draft model catches up

struct DraftModel {
    const Model *model;
    Workspace *workspace;
    Session *session; // the draft model's KV cache of the latest sequence
    // Exponentially decayed counts of drafts; n_accepted / n_verified is the acceptance rate.
    float n_accepted, n_verified;
    double sec_per_draft; // moving average; 0: not measured yet
};

// The rate before any draft has been verified. It counts as much as 8 verified drafts.
static const float prior_rate = 0.7f, prior_weight = 8;

DraftModel *draft_new(const Model *m) {
    DraftModel *d = xalloc(1, sizeof *d);
    *d = (DraftModel){.model = m,
                      .workspace = workspace_new(m, DRAFT_CHUNK, 1),
                      .session = session_new(&m->kv),
                      .n_accepted = prior_rate * prior_weight,
                      .n_verified = prior_weight};
    return d;
}

double draft_estimate(DraftModel *d, float *p_accept, int n) {
    // Every call moves the rate towards the prior by 1 %. Thus a draft model with a rate too low to
    // be used is tried again some time later.
    d->n_accepted += 0.01f * (prior_rate * d->n_verified - d->n_accepted);
    for (int i = 0; i < n; i++) p_accept[i] = d->n_accepted / d->n_verified;
    return d->sec_per_draft;
}

void draft_record(DraftModel *d, int n_accepted, int n) {
    // Drafts after the first rejected one are not counted: they continue a text that was not
    // generated.
    int n_verified = n_accepted < n ? n_accepted + 1 : n;
    for (int i = 0; i < n_verified; i++) {
        d->n_accepted = 0.97f * d->n_accepted + (float)(i < n_accepted);
        d->n_verified = 0.97f * d->n_verified + 1;
    }
}

// Makes the draft model's KV cache hold exactly `tokens` (n): rewinds it to the common prefix and
// feeds the other tokens. False on an interrupt or if memory is short.
static bool catch_up(DraftModel *d, const int *tokens, int n) {
    Session *s = d->session;
    Error err;
    int n_common = 0;
    while (n_common < n && n_common < s->n_tokens && s->tokens[n_common] == tokens[n_common])
        n_common++;
    if (n_common < s->n_tokens) session_rewind(s, n_common);
    while (s->n_tokens < n) {
        int n_left = n - s->n_tokens;
        if (workspace_feed(d->workspace, s, tokens + s->n_tokens, n_left, n_left, &err) < 0)
            return false;
        if (!model_forward(d->model, d->workspace, 0)) return false;
    }
    return true;
}

int draft_generate(DraftModel *d, Sampler *draft_sampler, const Sampler *sampler,
                   const Session *session, int pending, int *out, int n) {
    Session *s = d->session;
    Error err;

    int n_free = d->model->config.max_context - session->n_tokens - 1;
    if (n > n_free) n = n_free;
    if (n < 1 || !catch_up(d, session->tokens, session->n_tokens)) return 0;
    sampler_sync(draft_sampler, sampler);

    double start = now_sec();
    int token = pending, n_drafted = 0;
    while (n_drafted < n && workspace_feed(d->workspace, s, &token, 1, 0, &err) == 1) {
        const float *logits = model_forward(d->model, d->workspace, 0);
        token = logits ? sampler_next(draft_sampler, logits, s->tokens, s->n_tokens) : -1;
        if (token < 0) break;
        out[n_drafted++] = token;
    }

    // An exponentially decayed mean. The divisor n_drafted + 1 is never 0.
    double sec = (now_sec() - start) / (n_drafted + 1);
    d->sec_per_draft = d->sec_per_draft == 0 ? sec : 0.8 * d->sec_per_draft + 0.2 * sec;
    return n_drafted;
}
