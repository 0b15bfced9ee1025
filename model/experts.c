// In this order: metadata, the choice of one step, the operations of a forward pass. All sums have
// a fixed order, so a choice depends neither on the other steps of the pass nor on the threads.
#include "model/experts.h"
#include "kernels/team.h"
#include "base/exp.h"

#include <math.h>

// Metadata.

// True if the groups have the same size, and those that are candidates have enough experts.
static bool has_valid_groups(const ExpertConfig *c) {
    return c->n_experts % c->n_groups == 0 && c->n_groups_used >= 1 &&
           c->n_groups_used < c->n_groups &&
           c->n_used <= c->n_groups_used * (c->n_experts / c->n_groups);
}

enum { MAX_WIDTH = 1 << 20, MAX_LAYER = 1 << 12 };

// Numbers of the metadata from which fields of ExpertConfig follow.
typedef struct {
    int dim, shared_dim; // 0: there is no such key
    int n_shared;        // shared experts of that width
    int gate;            // 1: softmax, 2: sigmoid
} ExpertKeys;

static bool read_n_experts(ExpertConfig *c, const Gguf *g, const ExpertTraits *t, Error *err) {
    if (t->presence == EXPERTS_NONE) return true;
    if (t->presence == EXPERTS_REQUIRED)
        return family_count(g, "expert_count", 1, MAX_EXPERTS, &c->n_experts, err);
    return family_optional_count(g, "expert_count", 0, MAX_EXPERTS, &c->n_experts, err);
}

// Reads the counts. A family has a list of those that it requires; others are optional.
static bool read_counts(ExpertConfig *c, ExpertKeys *k, const Gguf *g, const ExpertTraits *t,
                        Error *err) {
    const struct {
        const char *name;
        int min, max, *value;
    } keys[] = {
        {"expert_feed_forward_length", 0, MAX_WIDTH, &k->dim},
        {"expert_shared_feed_forward_length", 0, MAX_WIDTH, &k->shared_dim},
        {"expert_gating_func", 1, 2, &k->gate},
        {"leading_dense_block_count", 0, MAX_LAYER, &c->n_dense_layers},
        {"interleave_moe_layer_step", 1, MAX_LAYER, &c->layer_step},
        {"expert_group_count", 0, MAX_EXPERTS, &c->n_groups},
        {"expert_group_used_count", 0, MAX_EXPERTS, &c->n_groups_used},
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        bool is_required = t->required && str_is_one_of(str_of(keys[i].name), t->required);
        if (!is_required && !gguf_find_value(g, family_key(g, keys[i].name).text)) continue;
        if (!family_count(g, keys[i].name, keys[i].min, keys[i].max, keys[i].value, err))
            return false;
    }

    return family_count(g, "expert_used_count", 1, c->n_experts, &c->n_used, err) &&
           (t->shared_dim != SHARED_DIM_COUNTED ||
            family_count(g, "expert_shared_count", 1, MAX_EXPERTS, &k->n_shared, err));
}

static bool read_weighting(ExpertConfig *c, const Gguf *g, Error *err) {
    double scale = 1;
    if (!gguf_get_bool(g, family_key(g, "expert_weights_norm").text, &c->is_normalized, err) ||
        !family_number(g, "expert_weights_scale", true, &scale, err))
        return false;
    c->weight_scale = (float)scale;
    return true;
}

// Sets the widths. Those without a key follow from others.
static bool set_widths(ExpertConfig *c, const ExpertKeys *k, const Gguf *g, const ExpertTraits *t,
                       int hidden_dim, Error *err) {
    c->dim = k->dim;
    if (!c->dim) c->dim = t->dim == EXPERT_DIM_FFN ? hidden_dim : hidden_dim / c->n_used;

    int shared_dim = k->shared_dim;
    if (!shared_dim && t->shared_dim == SHARED_DIM_FFN) shared_dim = hidden_dim;
    if (!shared_dim && t->shared_dim == SHARED_DIM_COUNTED) shared_dim = c->dim;

    if (c->dim < 1 || shared_dim > MAX_WIDTH / k->n_shared)
        return gguf_refuse(g, err, "invalid width of the experts: %d, %d shared of %d", c->dim,
                           k->n_shared, shared_dim);
    c->shared_dim = shared_dim * k->n_shared;
    return true;
}

bool experts_read(ExpertConfig *c, const Gguf *g, const Family *f, int hidden_dim, Error *err) {
    const ExpertTraits *t = &f->experts;
    ExpertKeys keys = {.n_shared = 1, .gate = 1};

    *c = (ExpertConfig){.layer_step = 1, .is_normalized = t->is_normalized};
    if (!read_n_experts(c, g, t, err)) return false;
    if (!c->n_experts) return true;

    if (!read_counts(c, &keys, g, t, err) || !read_weighting(c, g, err) ||
        !set_widths(c, &keys, g, t, hidden_dim, err))
        return false;
    c->is_sigmoid = keys.gate == 2;

    return c->n_groups <= 1 || has_valid_groups(c) ||
           gguf_refuse(g, err, "%d of %d expert groups are not a valid choice of %d of %d experts",
                       c->n_groups_used, c->n_groups, c->n_used, c->n_experts);
}

bool experts_in_layer(const ExpertConfig *c, int layer) {
    return c->n_experts && layer >= c->n_dense_layers && (layer + 1) % c->layer_step == 0;
}

double experts_touched(const ExpertConfig *c, int n) {
    double p_unused = 1 - (double)c->n_used / c->n_experts; // an expert is not chosen by one token
    return c->n_experts * (1 - pow(p_unused, n));
}

// The choice of one step.

// Takes the greatest of the n values that are not taken yet, the first of equal ones. Returns its
// index.
static int take_greatest(const float *values, bool *is_taken, int n) {
    int best = -1;
    for (int i = 0; i < n; i++)
        if (!is_taken[i] && (best < 0 || values[i] > values[best])) best = i;
    is_taken[best] = true;
    return best;
}

static float sigmoid(float x) {
    float e = exp_negative(fabsf(x));
    if (isnan(x)) return x;
    return x < 0 ? e / (1 + e) : 1 / (1 + e);
}

// p = softmax(p) or sigmoid(p)
static void probabilities(float *p, int n, bool is_sigmoid) {
    float max = p[0], sum = 0;
    for (int e = 0; e < n; e++) max = p[e] > max ? p[e] : max;

    for (int e = 0; e < n; e++) {
        p[e] = is_sigmoid ? sigmoid(p[e]) : exp_negative(max - p[e]);
        sum += p[e];
    }
    for (int e = 0; !is_sigmoid && e < n; e++) p[e] /= sum;
}

// Excludes the experts outside the best groups: their values become -INFINITY. The value of a group
// is the sum of its two greatest values.
static void keep_best_groups(const ExpertConfig *c, float *values) {
    float sums[MAX_EXPERTS];
    bool is_kept[MAX_EXPERTS] = {false};
    int size = c->n_experts / c->n_groups;

    for (int i = 0; i < c->n_groups; i++) {
        bool is_taken[MAX_EXPERTS] = {false};
        sums[i] = values[i * size + take_greatest(values + i * size, is_taken, size)];
        if (size > 1)
            sums[i] += values[i * size + take_greatest(values + i * size, is_taken, size)];
    }

    for (int i = 0; i < c->n_groups_used; i++) take_greatest(sums, is_kept, c->n_groups);
    for (int e = 0; e < c->n_experts; e++)
        if (!is_kept[e / size]) values[e] = -INFINITY;
}

// Chooses n_used experts by their scores, which become probabilities.
static void choose(const ExpertConfig *c, float *scores, const float *bias, int *chosen,
                   float *weights) {
    // The least divisor is the smallest normal float16, as in llama.cpp.
    static const float least_divisor = 1.0f / (1 << 14);
    float values[MAX_EXPERTS], sum = 0;
    bool is_chosen[MAX_EXPERTS] = {false};
    int n = 0;

    for (int e = 0; e < c->n_experts; e++) sum += bias ? scores[e] + bias[e] : scores[e];
    bool is_finite = isfinite(sum);

    probabilities(scores, c->n_experts, c->is_sigmoid);
    for (int e = 0; e < c->n_experts; e++) values[e] = bias ? scores[e] + bias[e] : scores[e];
    if (c->n_groups > 1) keep_best_groups(c, values);
    for (int i = 0; i < c->n_used; i++) take_greatest(values, is_chosen, c->n_experts);
    for (int e = 0; e < c->n_experts; e++)
        if (is_chosen[e]) chosen[n++] = e;

    // The weights: the bias decides the choice alone.
    sum = 0;
    for (int i = 0; i < n; i++) sum += scores[chosen[i]];
    float divisor = c->is_normalized ? fmaxf(sum, least_divisor) : 1;
    for (int i = 0; i < n; i++)
        weights[i] = is_finite ? scores[chosen[i]] / divisor * c->weight_scale : NAN;
}

// Operations.

Routing routing_new(const ExpertConfig *c, int n_layers, int max_steps) {
    size_t n = (size_t)max_steps, n_rows = n * (size_t)c->n_used;
    size_t n_bounds = (size_t)n_layers * ((size_t)c->n_experts + 1);
    if (!c->n_experts) return (Routing){0};
    return (Routing){.scores = xalloc(n * (size_t)c->n_experts, sizeof(float)),
                     .shared_scores = xalloc(n, sizeof(float)),
                     .chosen = xalloc(n_rows, sizeof(int)),
                     .weights = xalloc(n_rows, sizeof(float)),
                     .rows = xalloc(n_rows, sizeof(int)),
                     .steps = xalloc(n_rows, sizeof(int)),
                     .first_row = xalloc(n_bounds, sizeof(int))};
}

void routing_free(Routing *r) {
    void *buffers[] = {r->scores, r->shared_scores, r->chosen,   r->weights,
                       r->rows,   r->steps,         r->first_row};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) free(buffers[i]);
    *r = (Routing){0};
}

int *routing_first_row(const Routing *r, const ExpertConfig *c, int layer) {
    return r->first_row + (size_t)layer * ((size_t)c->n_experts + 1);
}

// Counting sort: numbers the rows by expert, those of an expert by step.
static void sort_rows(Routing *r, const ExpertConfig *c, int *first_row, int n_rows) {
    int next[MAX_EXPERTS]; // next free row of each expert

    memset(first_row, 0, ((size_t)c->n_experts + 1) * sizeof *first_row);
    for (int i = 0; i < n_rows; i++) first_row[r->chosen[i] + 1]++;
    for (int e = 0; e < c->n_experts; e++) {
        next[e] = first_row[e];
        first_row[e + 1] += first_row[e];
    }

    for (int i = 0; i < n_rows; i++) {
        r->rows[i] = next[r->chosen[i]]++;
        r->steps[r->rows[i]] = i / c->n_used;
    }
}

void experts_route(Routing *r, const ExpertConfig *c, int layer, const float *bias, int n) {
    size_t n_experts = (size_t)c->n_experts, n_used = (size_t)c->n_used;

    for (int i; team_next(n, &i);)
        choose(c, r->scores + (size_t)i * n_experts, bias, r->chosen + (size_t)i * n_used,
               r->weights + (size_t)i * n_used);
    team_end_op(OP_ROUTE);

    for (int i; team_next(1, &i);) sort_rows(r, c, routing_first_row(r, c, layer), n * c->n_used);
    team_end_op(OP_ROUTE);
}

void experts_combine(float *h, float *y, const Routing *r, const ExpertConfig *c,
                     bool has_shared_gate, int n, int dim) {
    for (int i; team_next(n, &i);) {
        const int *rows = r->rows + (size_t)i * (size_t)c->n_used;
        const float *weights = r->weights + (size_t)i * (size_t)c->n_used;
        float *out = h + (size_t)i * (size_t)dim;
        float *sum = y + (size_t)rows[0] * (size_t)dim;

        for (int d = 0; d < dim; d++) sum[d] *= weights[0];
        for (int k = 1; k < c->n_used; k++) {
            const float *row = y + (size_t)rows[k] * (size_t)dim;
            for (int d = 0; d < dim; d++) sum[d] += weights[k] * row[d];
        }

        float a = has_shared_gate ? sigmoid(r->shared_scores[i]) : 1;
        for (int d = 0; c->shared_dim && d < dim; d++) sum[d] += a * out[d];
        memcpy(out, sum, (size_t)dim * sizeof *out);
    }
    team_end_op(OP_ROUTE);
}
