// Asks the drafters of a sequence in turn. The first whose draft is worth verifying drafts.
#include "generate/speculate/speculate.h"
#include "generate/speculate/cost.h"
#include "generate/speculate/draft_model.h"
#include "generate/speculate/head.h"
#include "generate/speculate/lookup.h"
#include "model/size.h"

enum { MAX_DRAFTERS = 2 };

struct Speculation {
    bool has_lookup;
    DraftModel *model; // NULL: none
    DraftHead *head;   // NULL: none
    CostModel cost;
};

struct Drafters {
    const CostModel *cost;
    Drafter list[MAX_DRAFTERS]; // (n) in the order in which they are asked
    int n;
};

Speculation *speculation_new(const Model *m, Workspace *ws, const Model *draft, bool has_lookup,
                             Error *err) {
    if (!draft && !has_lookup) return NULL;
    Speculation *sp = xalloc(1, sizeof *sp);
    sp->has_lookup = has_lookup;

    if (draft && draft->family.head_tensors) {
        sp->head = head_new(draft, m, ws, err);
        if (!sp->head) return NULL;
    } else if (draft) {
        sp->model = draft_model_new(draft);
    }

    for (int n = 1; m->config.experts.n_experts && n <= COST_MAX_TOKENS; n++)
        sp->cost.bytes[n] = model_pass_size(m, n).bytes;
    return sp;
}

Drafters *speculation_begin(Speculation *sp, const SampleOptions *options) {
    if (!sp) return NULL;
    Drafters *d = xalloc(1, sizeof *d);
    d->cost = &sp->cost;
    if (sp->has_lookup) d->list[d->n++] = lookup_begin();
    if (sp->model) d->list[d->n++] = draft_model_begin(sp->model, options);
    if (sp->head) d->list[d->n++] = head_begin(sp->head, options);
    return d;
}

void speculation_end(Drafters *d) {
    if (!d) return;
    for (int i = 0; i < d->n; i++) d->list[i].free(d->list[i].arg);
    free(d);
}

int speculation_draft(Drafters *d, const DraftPoint *at, int *out, int max) {
    if (!d) return 0;
    for (const Drafter *drafter = d->list; drafter < d->list + d->n; drafter++) {
        float p_accept[SPECULATE_MAX_DRAFT];
        double sec_per_draft;
        int n = drafter->estimate(drafter->arg, at, p_accept, max, &sec_per_draft);
        if (n > 0) n = cost_choose(d->cost, at->n_base, p_accept, n, sec_per_draft);
        if (n > 0) return drafter->draft(drafter->arg, at, out, n);
    }
    return 0;
}

void speculation_accept(Drafters *d, const Session *session, int row, int n) {
    if (!d) return;
    for (int i = 0; i < d->n; i++) d->list[i].accept(d->list[i].arg, session, row, n);
}

void speculation_record_pass(Speculation *sp, int n, double sec) {
    if (sp) cost_record(&sp->cost, n, sec);
}
