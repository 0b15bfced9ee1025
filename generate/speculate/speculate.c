// Chooses between prompt lookup and the draft model or head. All sequences of a generator share a
// Speculation. Each has a Drafter.
#include "generate/speculate/speculate.h"
#include "generate/speculate/cost.h"
#include "generate/speculate/draft.h"
#include "model/size.h"

struct Speculation {
    DraftModel *draft_model; // NULL: none
    bool has_lookup;
    CostModel cost;
};

struct Drafter {
    Speculation *shared;
    PromptLookup *lookup;   // NULL: no prompt lookup
    Sampler *draft_sampler; // samples from the draft model; NULL: no draft model
    HeadState head;         // of a draft head; no session: none
    int n_drafted;          // tokens that the draft model or head has drafted for this pass
};

Speculation *speculation_new(Model *m, Model *draft, bool has_lookup, int max_steps, Error *err) {
    if (!draft && !has_lookup) return NULL;
    Speculation *sp = xalloc(1, sizeof *sp);
    *sp = (Speculation){.has_lookup = has_lookup};
    if (draft) sp->draft_model = draft_new(draft, m, max_steps, err);
    if (draft && !sp->draft_model) return NULL;
    for (int n = 1; m->config.experts.n_experts && n <= COST_MAX_TOKENS; n++)
        sp->cost.bytes[n] = model_pass_size(m, n).bytes;
    return sp;
}

Drafter *speculation_begin(Speculation *sp, const SampleOptions *options, int n_vocab) {
    if (!sp) return NULL;
    Drafter *d = xalloc(1, sizeof *d);
    *d = (Drafter){.shared = sp, .lookup = sp->has_lookup ? lookup_new() : NULL};
    if (sp->draft_model) d->draft_sampler = sampler_new(options, n_vocab);
    return d;
}

void speculation_end(Drafter *d) {
    if (!d) return;
    lookup_free(d->lookup);
    sampler_free(d->draft_sampler);
    session_free(d->head.session);
    free(d->head.features);
    free(d);
}

int speculation_draft(Drafter *d, const Session *session, int pending, const Sampler *sampler,
                      int n_base, int *out, int max) {
    if (!d) return 0;

    Speculation *sp = d->shared;
    int found[SPECULATE_MAX_DRAFT], n_found = 0;
    float p_accept[SPECULATE_MAX_DRAFT];

    if (d->lookup) {
        // The index follows the sequence here: tokens generated since the last draft are appended.
        while (lookup_n_tokens(d->lookup) < session->n_tokens)
            lookup_append(d->lookup, session->tokens[lookup_n_tokens(d->lookup)]);
        if (lookup_n_tokens(d->lookup) == session->n_tokens) lookup_append(d->lookup, pending);
        n_found = lookup_draft(d->lookup, found, p_accept);
    }

    if (n_found > max) n_found = max;
    int n = cost_choose(&sp->cost, n_base, p_accept, n_found, 0);
    memcpy(out, found, (size_t)n * sizeof *out);

    // A draft model runs for a single sequence only. In a batch, its time would delay the other
    // sequences. A head reads less than a twentieth of the target's weights.
    if (n > 0 || !sp->draft_model || (n_base > 1 && !d->head.session)) return n;
    double sec = draft_estimate(sp->draft_model, p_accept, max);
    n = cost_choose(&sp->cost, n_base, p_accept, max, sec);
    d->n_drafted = draft_generate(sp->draft_model, &d->head, d->draft_sampler, sampler, session,
                                  pending, out, n);
    return d->n_drafted;
}

void speculation_accept(Drafter *d, const Session *session, int row, int n) {
    DraftModel *m = d ? d->shared->draft_model : NULL;
    if (!m) return;
    if (m->head) head_keep(m->head, &d->head, session->n_tokens - n, row, n);
    draft_record(m, n - 1, d->n_drafted);
    d->n_drafted = 0;
}

void speculation_record_pass(Speculation *sp, int n, double sec) {
    if (sp) cost_record(&sp->cost, n, sec);
}
