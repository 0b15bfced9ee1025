// The draft model or head generates one token per forward pass of its own; see draft.h.
#include "generate/speculate/draft.h"
#include "base/clock.h"
#include "generate/speculate/cost.h"

// Tokens per forward pass when the draft model catches up, and the longest first pass of a draft
// whose time is recorded.
enum { DRAFT_CHUNK = 256, MAX_MEASURED = 8 };

// The acceptance rate before any draft has been verified. It counts as much as 2 verified drafts.
static const float prior_rate = 0.7f, prior_weight = 2;

DraftModel *draft_new(Model *m, Model *target, int max_steps, Error *err) {
    DraftModel *d = xalloc(1, sizeof *d);
    bool is_head = m->family.head_tensors != NULL;
    DraftHead *head = is_head ? head_new(m, target, max_steps, err) : NULL;
    if (is_head && !head) return NULL;
    *d = (DraftModel){.model = m,
                      .workspace = workspace_new(m, DRAFT_CHUNK, 1),
                      .session = session_new(&m->kv),
                      .head = head};
    return d;
}

double draft_estimate(DraftModel *d, float *p_accept, int n) {
    // Every call lets 0.5 % of the experience fade. Thus a draft model with a rate too low to be
    // used is tried again some time later. If a verified draft adds a tenth to the time of a pass,
    // a rate below 0.16 does not pay (cost_choose). If no draft is ever accepted, the rate is at
    // this limit after 7 drafts, and one draft in 27 passes keeps it there: 0.4 % of the time.
    d->n_accepted *= 0.995f;
    d->n_verified *= 0.995f;
    float p = (prior_rate * prior_weight + d->n_accepted) / (prior_weight + d->n_verified);
    for (int i = 0; i < n; i++) p_accept[i] = p;
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

int draft_generate(DraftModel *d, HeadState *state, Sampler *draft_sampler, const Sampler *sampler,
                   const Session *session, int pending, int *out, int n) {
    int tokens[HEAD_WINDOW] = {pending}, n_new = 1, n_drafted = 0; // n_new: of the next pass
    Error err;

    int n_free = d->model->config.max_context - session->n_tokens - 1;
    if (n > n_free && !d->head) n = n_free;
    if (n < 1) return 0;
    if (d->head) n_new = head_pairs(d->head, state, session, pending, tokens, n);
    if (n_new == 0 || (!d->head && !catch_up(d, session->tokens, session->n_tokens))) return 0;
    sampler_sync(draft_sampler, sampler);

    Session *s = d->head ? state->session : d->session;
    int n_first = n_new, n_read = s->n_tokens + n_new;
    double start = now_sec();
    while (n_drafted < n && workspace_feed(d->workspace, s, tokens, n_new, n_new - 1, &err) > 0) {
        const float *logits = model_forward(d->model, d->workspace, 0);
        if (d->head) logits = head_logits(d->head, logits);
        tokens[0] = logits ? sampler_next(draft_sampler, logits, s->tokens, s->n_tokens) : -1;
        if (tokens[0] < 0) break;
        out[n_drafted++] = tokens[0];
        n_new = 1;
    }
    if (d->head) session_rewind(s, n_read); // the features of drafted positions are not known yet
    if (n_drafted == 0 || n_first > MAX_MEASURED) return n_drafted;

    d->sec_per_draft = cost_average(d->sec_per_draft, (now_sec() - start) / n_drafted);
    return n_drafted;
}
