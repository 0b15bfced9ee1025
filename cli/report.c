// See report.h.
#include "cli/report.h"
#include "base/clock.h"
#include "model/size.h"
#include "base/os/os.h"
#include "cli/output.h"
#include "kernels/team.h"

#include <stdio.h>
#include <unistd.h>

// The time of computing the first n positions of a context, in units of the first token's time. The
// products of a token take the same time at each position; attention grows with the position.
static double prefill_work(const Model *m, double n) {
    // A multiply-add of attention takes 1.3 to 3.6 times as long as one with 4-bit weights.
    enum { ATTEND_COST = 2 };
    const Config *c = &m->config;
    double products = model_pass_size(m, 1).weights - (double)m->output.rows * m->output.cols;
    double attend_key = 2.0 * c->n_layers * c->n_heads * c->head_dim;
    return n + n * n / 2 * ATTEND_COST * attend_key / products;
}

// A prefill that is shown.
typedef struct {
    const Options *options;
    const Model *model;
    const Sequence *sequence;
    double start_sec;
} Progress;

// Prints the progress of a pass over n tokens where a layer begins, with the product of its first
// matrix: a share of the layers counts as a share of the tokens. One thread prints.
static void observe_layer(void *arg, const Tensor *w, const float *x, int n) {
    const Progress *p = arg;
    const Model *m = p->model;
    const Sequence *s = p->sequence;
    int layer = 0, n_layers = m->config.n_layers;
    (void)x;

    while (layer < n_layers && w != &m->layers[layer].wq) layer++;
    if (layer == n_layers) return;

    for (int item; team_next(1, &item);) {
        int n_cached = s->n_reused + s->n_from_cache, n_prompt = s->request.n_prompt;
        double n_done = s->n_prefilled - n + (double)n * layer / n_layers; // n are in n_prefilled
        double cached = prefill_work(m, n_cached);
        double share = (prefill_work(m, n_done) - cached) / (prefill_work(m, n_prompt) - cached);
        progress_prefill(p->options, (uint64_t)(n_done - n_cached), (uint64_t)(n_prompt - n_cached),
                         share, p->start_sec);
    }
    team_end_op(OP_REST);
}

void prefill_with_progress(const Options *o, Generator *g, Sequence *s, const Request *r,
                           Session *session) {
    Progress p = {o, g->model, s, now_sec()};
    sequence_start(s, g, r, session);
    if (terminal_has_escapes(STDERR_FILENO))
        workspace_observe(g->workspace, observe_layer, &p, false);
    while (s->finish == FINISH_NONE && s->n_prefilled < r->n_prompt && generate_step(g, &s, 1)) {
    }
    workspace_observe(g->workspace, NULL, NULL, false);
    progress_end();
}

void warn_loops(int n, const char *noun) {
    if (n)
        warn("%s ended in a loop; --no-loop-stop lets it continue, --dry-multiplier 0.8 avoids "
             "loops",
             count_of(n, noun));
}

void warn_full(int n, const char *noun, const Model *m, int context) {
    if (n)
        warn("%s cut: context full (%d, %s)", count_of(n, noun), context,
             context < m->config.max_context ? "-c" : "the model's");
}

void warn_unanswered(int n) {
    if (n)
        warn("%s cut within the reasoning, so without an answer (-n, --reasoning-budget)",
             count_of(n, "text"));
}

bool is_cut_by_context(const Sequence *s) {
    int limit = s->request.max_tokens;
    return s->finish == FINISH_LENGTH && (limit < 0 || s->n_generated < limit);
}

bool is_unanswered(const Sequence *s, const Reply *r) {
    return s->finish == FINISH_LENGTH && r->n_reasoning && !r->n_answer;
}

void note_ending(const Options *o, const Sequence *s) {
    if (s->n_cut) note(o, "the text was cut within a character, its beginning is left out");
    if (s->finish == FINISH_LENGTH && s->request.max_tokens && !is_cut_by_context(s))
        note(o, "ended: %s (-n)", count_of(s->n_generated, "token"));
}

// The line must fit 80 columns unless there is reasoning: no decimals from 100 tok/s on.
static void put_speed(Buffer *out, const char *before, uint64_t n, double sec) {
    double per_sec = sec > 0 ? (double)n / sec : 0;
    buffer_printf(out, per_sec < 99.95 ? "%s %llu tok %.1f tok/s" : "%s %llu tok %.0f tok/s",
                  before, (unsigned long long)n, per_sec);
}

void note_stats(const Options *o, const Generator *g, int n_reasoning, int n_answer,
                const SampleOptions *sample) {
    Buffer text = {0};

    put_speed(&text, "prefill", g->n_prefill, g->prefill_sec);
    if (g->n_from_cache)
        buffer_printf(&text, " | cached %llu of %llu tok", (unsigned long long)g->n_from_cache,
                      (unsigned long long)(g->n_from_cache + g->n_prefill));

    if (g->n_decode) put_speed(&text, " | decode", g->n_decode, g->decode_sec);
    if (g->n_decode && o->is_verbose)
        buffer_printf(&text, " %.1f GB/s",
                      (double)g->n_decode_passes / g->decode_sec *
                          model_pass_size(g->model, 1).bytes * 1e-9);
    if (g->n_drafted && o->is_verbose)
        buffer_printf(&text, " | accepted %llu of %llu draft tok",
                      (unsigned long long)g->n_accepted, (unsigned long long)g->n_drafted);

    if (n_reasoning) buffer_printf(&text, " | reasoning %d, answer %d tok", n_reasoning, n_answer);
    if (!sample_is_greedy(sample)) buffer_printf(&text, " | seed %lld", (long long)sample->seed);

    SamplerOrder order = samplers_resolve(&sample->order);
    for (int i = 0; i < order.n && o->is_verbose; i++)
        buffer_printf(&text, "%s%s", i ? ";" : " | ", sampler_name(order.at[i]));

    note(o, "%s", text.data);
    buffer_free(&text);
}

const char *threads_reason(const Options *o, int n) {
    static char text[80];
    OsCpus cpus = os_cpus();
    if (o->model.load.n_batch_threads > 0) {
        snprintf(text, sizeof text, "-tb: %d for prompts", o->model.load.n_batch_threads);
        return text;
    }
    if (o->model.load.n_threads > 0) return "-t";
    if (n != cpus.n_fast) return os_cpu_quota() < cpus.n_fast ? "CPU quota" : "set by OpenMP";
    snprintf(text, sizeof text, "performance cores: %d of %d%s", n, cpus.n_cores,
             cpus.n_cores < cpus.n_cpus ? ", SMT siblings left out" : "");
    return text;
}
