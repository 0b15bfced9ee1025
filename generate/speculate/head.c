// Order: the hooks of the two forward passes, opening, the drafter of a sequence.
#include "generate/speculate/head.h"
#include "base/clock.h"
#include "generate/speculate/cost.h"

#include <math.h>

enum { MAX_MEASURED = 8 }; // longest first pass of a draft, in tokens, whose time is recorded

// State of one sequence.
typedef struct {
    DraftHead *head;
    Sampler *sampler;
    Session *session; // keys and values of the pairs from position `first` on
    int first;
    float *kept;     // (HEAD_WINDOW, n_features) features; row P % HEAD_WINDOW is position P
    int end, n_kept; // those of positions [end - n_kept, end) are kept
    int n_drafted;   // for the current pass
} HeadDrafter;

// Hooks.

// The argument of the part of a hook that is divided among the threads.
typedef struct {
    DraftHead *head;
    float *x, *h;
    int slot; // index in DraftHead.layers
} HookRows;

static void copy_target_row(void *arg, int i) {
    const HookRows *r = arg;
    size_t dim = (size_t)r->head->target->config.dim;
    size_t row = (size_t)i * HEAD_LAYERS + (size_t)r->slot;
    memcpy(r->head->target_rows + row * dim, r->x + (size_t)i * dim, dim * sizeof *r->x);
}

// LayerHook of the target: copies the features.
static void observe_target(void *arg, int layer, float *x, float *h, int n) {
    DraftHead *head = arg;
    for (int i = 0; i < HEAD_LAYERS; i++)
        if (head->layers[i] == layer) ops_for(n, 8, copy_target_row, &(HookRows){head, x, h, i});
}

// Fills row i of h with [rmsnorm(e) w1; rmsnorm(g) w2], and replaces the embedding e in x by g or
// by its norm.
static void pair_row(void *arg, int i) {
    const HookRows *r = arg;
    const DraftHead *head = r->head;
    const Model *m = &head->model;
    int dim = m->config.dim;
    size_t first = (size_t)i * (size_t)dim;
    float *x = r->x + first;
    float *g = head->g + first;
    float *normed_token = r->h + 2 * first;
    float *normed_g = normed_token + dim;

    kernel.rmsnorm(normed_token, x, m->layers->attn_norm, m->config.norm_eps, dim);
    kernel.rmsnorm(normed_g, g, head->g_norm, m->config.norm_eps, dim);
    memcpy(x, head->is_residual_normed ? normed_g : g, (size_t)dim * sizeof *x);
}

// g = Wfc f, for the features of n pairs
static void compute_g(DraftHead *head, int n) {
    float *features = head->features;
    if (head->fc_norm)
        ops_rmsnorm(features, features, head->fc_norm, head->model.config.norm_eps, n,
                    head->fc.cols);
    ops_matmuls(&head->matmul, &(Product){head->g, &head->fc, features, n}, 1, (Exactness){0});
}

// LayerHook of the head: before the layer, sets g and the layer's input; after it, keeps x as the g
// of the next pass.
static void run_head(void *arg, int layer, float *x, float *h, int n) {
    DraftHead *head = arg;
    if (layer == 0) {
        if (head->has_features) compute_g(head, n);
        ops_for(n, 1, pair_row, &(HookRows){head, x, h, 0});
    } else {
        ops_gather(head->g, x, &(int){0}, 1, head->model.config.dim);
    }
}

// Opening.

// Completes the head with the matrices that its file leaves to its target, without adapters and
// factors.
static void share_matrices(DraftHead *head) {
    Model *m = &head->model;
    if (!gguf_find_tensor(&m->file, "token_embd.weight")) m->embed = head->target->embed;
    if (!gguf_find_tensor(&m->file, "output.weight")) m->output = head->target->output;
    m->embed.lora = NULL;
    m->embed.scale = m->output.scale = 1;
}

// Refuses a dimension that is not the target's or that of a matrix.
static bool check_dimensions(const DraftHead *head, Error *err) {
    const struct {
        const char *key;
        int expected;
    } counts[] = {{"block_count", 1},
                  {"target_hidden_size", head->target->config.dim},
                  {"embedding_length", head->model.embed.cols},
                  {"embedding_length", head->model.output.cols}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        int found, expected = counts[i].expected;
        if (!family_count(&head->model.file, counts[i].key, expected, expected, &found, err))
            return false;
    }
    return true;
}

static bool read_norm(const DraftHead *head, const char *name, int n, float **out, Error *err) {
    Tensor t;
    if (!tensor_find(&head->model.file, name, 1, 1, n, &t, err)) return false;
    *out = xalloc((size_t)n, sizeof **out);
    quant_decode_row(t.type, t.data, *out, (size_t)n);
    return true;
}

// Reads what turns features into g and g into the layer's input.
static bool read_weights(DraftHead *head, Error *err) {
    const Gguf *file = &head->model.file;
    int dim = head->model.config.dim, n_features = HEAD_LAYERS * head->target->config.dim;
    bool has_fc_norm = false;
    if (!gguf_get_bool(file, "eagle3.norm_before_fc", &has_fc_norm, err) ||
        !gguf_get_bool(file, "eagle3.norm_before_residual", &head->is_residual_normed, err) ||
        !tensor_find(file, "fc.weight", 1, dim, n_features, &head->fc, err) ||
        !read_norm(head, "blk.0.attn_norm_2.weight", dim, &head->g_norm, err))
        return false;

    head->fc.is_unrounded = head->model.layers->wq.is_unrounded;
    return !has_fc_norm ||
           read_norm(head, "enc.output_norm.weight", n_features, &head->fc_norm, err);
}

// The integers of a metadata array or a tensor.
typedef struct {
    const char *name;
    Str bytes;
    size_t size; // bytes of an integer
} Integers;

// Reads n integers below `limit`, which are indices into the target.
static bool read_indices(const DraftHead *head, const Integers *from, int n, int limit, int *out,
                         Error *err) {
    int n_valid = 0;
    if (from->bytes.len == (size_t)n * from->size) {
        for (int i = 0; i < n; i++) {
            uint64_t value = 0;
            memcpy(&value, from->bytes.data + (size_t)i * from->size, from->size);
            out[i] = (int)value;
            n_valid += value < (uint64_t)limit;
        }
    }
    return n_valid == n ||
           error_set(err, EXIT_MODEL, "%s: %s: expected %d numbers below %d (%s)",
                     head->model.file.path, from->name, n, limit, head->target->file.path);
}

// Reads the layers whose inputs are the features.
static bool read_layers(DraftHead *head, Error *err) {
    static const char key[] = "eagle3.target_layers";
    const GgufValue *layers = gguf_get_array(&head->model.file, key, GGUF_I32, err);
    if (!layers) return false;
    Integers from = {key, {(const char *)layers->data, layers->bytes}, sizeof(int32_t)};
    return read_indices(head, &from, HEAD_LAYERS, head->target->config.n_layers, head->layers, err);
}

// Reads the target's ids of a draft vocabulary. A missing tensor is an error unless the
// vocabularies have the same size.
static bool read_ids(DraftHead *head, Error *err) {
    const GgufTensor *ids = gguf_find_tensor(&head->model.file, "d2t");
    int n_ids = head->model.output.rows, n_vocab = head->model.config.vocab_size;
    if (!ids && n_ids == n_vocab) return true;
    Integers from = {.name = "tensor d2t", .size = sizeof(int64_t)};
    if (ids) from.bytes = (Str){ids->data, ids->bytes};
    head->ids = xalloc((size_t)n_ids, sizeof *head->ids);
    return read_indices(head, &from, n_ids, n_vocab, head->ids, err);
}

static void allocate_pass(DraftHead *head, int max_target_steps) {
    const Config *c = &head->model.config;
    size_t n_features = (size_t)head->fc.cols;
    head->workspace = workspace_new(&head->model, HEAD_WINDOW, 1);
    head->target_rows = xalloc_large((size_t)max_target_steps * n_features, sizeof(float));
    head->features = xalloc_large(HEAD_WINDOW * n_features, sizeof(float));
    head->g = xalloc_large(HEAD_WINDOW * (size_t)c->dim, sizeof(float));
    head->logits = xalloc((size_t)c->vocab_size, sizeof(float));
    matmul_scratch_reserve(&head->matmul, (const Tensor *[]){&head->fc}, 1, HEAD_WINDOW, 1);
}

DraftHead *head_new(const Model *m, const Model *target, Workspace *target_ws, Error *err) {
    DraftHead *head = xalloc(1, sizeof *head);
    *head = (DraftHead){.model = *m, .target = target};
    share_matrices(head);
    if (!check_dimensions(head, err) || !read_weights(head, err) || !read_layers(head, err) ||
        !read_ids(head, err))
        return NULL;

    allocate_pass(head, workspace_max_steps(target_ws));
    workspace_hook(target_ws, observe_target, head);
    workspace_hook(head->workspace, run_head, head);
    return head;
}

// The drafter of a sequence.

static int head_estimate(void *arg, const DraftPoint *at, float *p_accept, int max,
                         double *sec_per_draft) {
    DraftRate *rate = &((HeadDrafter *)arg)->head->rate;
    (void)at;
    rate_estimate(rate, p_accept, max);
    *sec_per_draft = rate->sec_per_draft;
    return max;
}

// The kept features of a position.
static float *kept_row(const HeadDrafter *d, int pos) {
    return d->kept + (size_t)(pos % HEAD_WINDOW) * (size_t)d->head->fc.cols;
}

// Prepares a pass of the pairs that the head has not read; n more steps will follow. Writes their
// tokens (HEAD_WINDOW), of which the pending one is the last, and returns their number. 0: none.
static int collect_pairs(HeadDrafter *d, const DraftPoint *at, int *tokens, int n) {
    DraftHead *head = d->head;
    size_t n_features = (size_t)head->fc.cols;
    if (d->end != at->session->n_tokens || !d->n_kept) return 0;

    // The cache begins anew where features are lost, and where the head's context is full.
    int n_read = d->end - d->first, n_new = n_read - d->session->n_tokens;
    if (n_new > d->n_kept || n_read + n > head->model.config.max_context) {
        session_rewind(d->session, 0);
        d->first = d->end - d->n_kept;
        n_new = d->n_kept;
    }

    for (int i = 0; i < n_new; i++) {
        int pos = d->end - n_new + i;
        tokens[i] = pos + 1 < d->end ? at->session->tokens[pos + 1] : at->pending;
        memcpy(head->features + (size_t)i * n_features, kept_row(d, pos),
               n_features * sizeof(float));
    }
    return n_new;
}

const float *head_logits(DraftHead *head, const float *logits) {
    if (!head->ids) return logits;
    for (int i = 0; i < head->model.config.vocab_size; i++) head->logits[i] = -INFINITY;
    for (int i = 0; i < head->model.output.rows; i++) head->logits[head->ids[i]] = logits[i];
    return head->logits;
}

// Runs a pass of n pairs, and returns the token that it drafts. -1 on an interrupt or if memory is
// short.
static int draft_token(HeadDrafter *d, const int *tokens, int n) {
    DraftHead *head = d->head;
    Session *s = d->session;
    Error err;
    if (workspace_feed(head->workspace, s, tokens, n, n - 1, &err) < 1) return -1;
    const float *logits = model_forward(&head->model, head->workspace, 0);
    if (!logits) return -1;
    return sampler_next(d->sampler, head_logits(head, logits), s->tokens, s->n_tokens);
}

static int head_draft(void *arg, const DraftPoint *at, int *out, int n) {
    HeadDrafter *d = arg;
    DraftHead *head = d->head;
    int tokens[HEAD_WINDOW];
    int n_pairs = collect_pairs(d, at, tokens, n);
    if (n_pairs == 0) return 0;
    sampler_sync(d->sampler, at->sampler);

    // The first pass has features, each further one continues with the drafted token.
    double start = now_sec();
    int n_read = d->session->n_tokens + n_pairs;
    for (d->n_drafted = 0; d->n_drafted < n; d->n_drafted++) {
        head->has_features = d->n_drafted == 0;
        int token = draft_token(d, tokens, head->has_features ? n_pairs : 1);
        if (token < 0) break;
        out[d->n_drafted] = *tokens = token;
    }
    session_rewind(d->session, n_read); // the features of drafted positions are not known yet

    if (d->n_drafted > 0 && n_pairs <= MAX_MEASURED)
        head->rate.sec_per_draft =
            cost_average(head->rate.sec_per_draft, (now_sec() - start) / d->n_drafted);
    return d->n_drafted;
}

// Keeps the features of the last n positions of the session.
static void keep_features(HeadDrafter *d, const Session *session, int row, int n) {
    size_t n_features = (size_t)d->head->fc.cols;
    int pos = session->n_tokens - n;
    if (pos != d->end) d->n_kept = 0;

    for (int i = n > HEAD_WINDOW ? n - HEAD_WINDOW : 0; i < n; i++)
        memcpy(kept_row(d, pos + i), d->head->target_rows + (size_t)(row + i) * n_features,
               n_features * sizeof(float));
    d->end = session->n_tokens;
    d->n_kept = d->n_kept + n < HEAD_WINDOW ? d->n_kept + n : HEAD_WINDOW;
}

static void head_accept(void *arg, const Session *session, int row, int n) {
    HeadDrafter *d = arg;
    keep_features(d, session, row, n);
    rate_record(&d->head->rate, n - 1, d->n_drafted);
    d->n_drafted = 0;
}

static void head_free(void *arg) {
    HeadDrafter *d = arg;
    sampler_free(d->sampler);
    session_free(d->session);
    free(d->kept);
    free(d);
}

Drafter head_begin(DraftHead *head, const SampleOptions *options) {
    HeadDrafter *d = xalloc(1, sizeof *d);
    d->head = head;
    d->sampler = sampler_new(options, head->model.config.vocab_size);
    d->session = session_new(&head->model.kv);
    d->kept = xalloc_large(HEAD_WINDOW * (size_t)head->fc.cols, sizeof(float));
    return (Drafter){head_estimate, head_draft, head_accept, head_free, d};
}
