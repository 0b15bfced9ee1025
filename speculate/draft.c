#include "draft.h"

#include <stdlib.h>

enum { CHUNK = 256 }; // tokens fed at once to catch up

struct Draft {
    const Model *model;
    Workspace *ws;
    Session *session;
    float right, tried; // of late
    double sec;         // a guess takes
};

// Before there is experience seven of ten are taken to be right, with the weight of eight tokens.
static const float prior = 0.7f, weight = 8;

Draft *draft_new(const Model *m) {
    Draft *d = xalloc(1, sizeof *d);
    *d = (Draft){
        .model = m, .ws = workspace_new(m, CHUNK, 1), .right = prior * weight, .tried = weight};
    d->session = session_new(&m->kv);
    return d;
}

void draft_free(Draft *d) {
    if (!d) return;
    workspace_free(d->ws);
    session_free(d->session);
    free(d);
}

double draft_expect(Draft *d, float *trust, int n) {
    d->right += 0.01f * (prior * d->tried - d->right); // given up, it is tried again some time
    for (int i = 0; i < n; i++) trust[i] = d->right / d->tried;
    return d->sec;
}

void draft_learn(Draft *d, int n_accepted, int n) {
    int n_tried = n_accepted < n ? n_accepted + 1 : n;
    for (int i = 0; i < n_tried; i++) {
        d->right = 0.97f * d->right + (float)(i < n_accepted);
        d->tried = 0.97f * d->tried + 1;
    }
}

// The session holds all but the last of the tokens. False when they do not fit, or on an interrupt.
static bool catch_up(Draft *d, const int *tokens, int n) {
    Session *s = d->session;
    Error err;
    int same = 0;
    while (same < n - 1 && same < s->n_tokens && s->tokens[same] == tokens[same]) same++;
    if (same < s->n_tokens) session_rewind(s, same);
    while (s->n_tokens < n - 1) {
        int n_left = n - 1 - s->n_tokens;
        if (workspace_feed(d->ws, s, tokens + s->n_tokens, n_left, n_left, &err) < 0) return false;
        if (!model_forward(d->model, d->ws, 0)) return false;
    }
    return true;
}

int draft_propose(Draft *d, Sampler *shadow, const Sampler *sampler, const int *tokens,
                  int n_tokens, int *out, int n) {
    Session *s = d->session;
    Error err;
    if (n > d->model->config.max_context - n_tokens) n = d->model->config.max_context - n_tokens;
    if (n < 1 || !catch_up(d, tokens, n_tokens)) return 0;
    sampler_sync(shadow, sampler);
    double start = now_sec();
    int token = tokens[n_tokens - 1], i = 0;
    for (; i < n; i++) {
        if (workspace_feed(d->ws, s, &token, 1, 0, &err) < 1) break;
        const float *logits = model_forward(d->model, d->ws, 0);
        token = logits ? sampler_next(shadow, logits, s->tokens, s->n_tokens) : -1;
        if (token < 0) break;
        out[i] = token;
    }
    double sec = (now_sec() - start) / (i + 1);
    d->sec = d->sec == 0 ? sec : 0.8 * d->sec + 0.2 * sec;
    return i;
}
