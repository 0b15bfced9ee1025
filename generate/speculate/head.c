// Order: the hooks of the two forward passes, opening, the state of a sequence, logits.
#include "generate/speculate/head.h"

#include <math.h>

// The argument of the part of a hook that is divided among the threads.
typedef struct {
    DraftHead *head;
    float *x, *h;
    int slot; // index in DraftHead.layers
} Rows;

static void copy_target_row(void *arg, int i) {
    const Rows *r = arg;
    size_t dim = (size_t)r->head->target->config.dim;
    size_t row = (size_t)i * HEAD_LAYERS + (size_t)r->slot;
    memcpy(r->head->target_rows + row * dim, r->x + (size_t)i * dim, dim * sizeof *r->x);
}

// LayerHook of the target.
static void observe_target(void *arg, int layer, float *x, float *h, int n) {
    DraftHead *e = arg;
    for (int i = 0; i < HEAD_LAYERS; i++)
        if (e->layers[i] == layer) ops_for(n, 8, copy_target_row, &(Rows){e, x, h, i});
}

// Fills row i of h with [rmsnorm(e) w1; rmsnorm(g) w2], and replaces the embedding e in x by g.
static void pair_row(void *arg, int i) {
    const Rows *r = arg;
    const DraftHead *e = r->head;
    int dim = e->model->config.dim;
    size_t first = (size_t)i * (size_t)dim;
    float *x = r->x + first, *g = e->g + first, *h = r->h + 2 * first, *n = h + dim;
    kernel.rmsnorm(h, x, e->model->layers->attn_norm, e->model->config.norm_eps, dim);
    kernel.rmsnorm(n, g, e->g_norm, e->model->config.norm_eps, dim);
    memcpy(x, e->norm_before_residual ? n : g, (size_t)dim * sizeof *x);
}

// LayerHook of the head: g and the input of the layer, or x after the layer.
static void run_head(void *arg, int layer, float *x, float *h, int n) {
    DraftHead *e = arg;
    const Config *c = &e->model->config;
    float *f = e->features;
    bool has_features = layer == 0 && e->has_features;

    if (has_features && e->fc_norm) ops_rmsnorm(f, f, e->fc_norm, c->norm_eps, n, e->fc.cols);
    if (has_features) ops_matmuls(&e->matmul, &(Product){e->g, &e->fc, f, n}, 1, (Exactness){0});
    if (layer == 0)
        ops_for(n, 1, pair_row, &(Rows){e, x, h, 0});
    else
        ops_gather(e->g, x, &(int){0}, 1, c->dim);
}

static bool read_norm(const DraftHead *e, const char *name, int n, float **out, Error *err) {
    Tensor t;
    if (!tensor_find(&e->model->file, name, 1, 1, n, &t, err)) return false;
    *out = xalloc((size_t)n, sizeof **out);
    quant_decode_row(t.type, t.data, *out, (size_t)n);
    return true;
}

// Reads the n integers that `bytes` are, of `size` bytes each; they must be below `limit`.
static bool read_integers(const DraftHead *e, const char *name, Str bytes, size_t size, int n,
                          int limit, int *out, Error *err) {
    int n_valid = 0;
    for (size_t i = 0; i < (size_t)n && bytes.len == (size_t)n * size; i++) {
        uint64_t value = 0;
        memcpy(&value, bytes.data + i * size, size);
        out[i] = (int)value;
        n_valid += value < (uint64_t)limit;
    }
    return n_valid == n || error_set(err, EXIT_MODEL, "%s: %s: expected %d numbers below %d (%s)",
                                     e->model->file.path, name, n, limit, e->target->file.path);
}

DraftHead *head_new(Model *m, Model *target, int max_steps, Error *err) {
    const Gguf *g = &m->file;
    DraftHead *e = xalloc(1, sizeof *e);
    *e = (DraftHead){.model = m, .target = target};
    int dim = target->config.dim, n_features = HEAD_LAYERS * dim, same;
    int n_vocab = m->config.vocab_size;
    const GgufTensor *ids = gguf_find_tensor(g, "d2t");
    const GgufValue *layers = gguf_get_array(g, "eagle3.target_layers", GGUF_I32, err);
    bool has_fc_norm = false;

    // The matrices that the head shares with its target, without adapters and factors.
    if (!gguf_find_tensor(g, "token_embd.weight")) m->embed = target->embed;
    if (!gguf_find_tensor(g, "output.weight")) m->output = target->output;
    m->embed.lora = NULL;
    m->embed.scale = m->output.scale = 1;
    int n_ids = m->output.rows;

    // family_count() refuses a dimension that is not the target's or that of its matrices.
    if (!layers || !family_count(g, "block_count", 1, 1, &same, err) ||
        !family_count(g, "target_hidden_size", dim, dim, &same, err) ||
        !family_count(g, "embedding_length", m->embed.cols, m->embed.cols, &same, err) ||
        !family_count(g, "embedding_length", m->output.cols, m->output.cols, &same, err) ||
        !gguf_get_bool(g, "eagle3.norm_before_fc", &has_fc_norm, err) ||
        !gguf_get_bool(g, "eagle3.norm_before_residual", &e->norm_before_residual, err) ||
        !tensor_find(g, "fc.weight", 1, m->config.dim, n_features, &e->fc, err) ||
        !read_norm(e, "blk.0.attn_norm_2.weight", m->config.dim, &e->g_norm, err) ||
        (has_fc_norm && !read_norm(e, "enc.output_norm.weight", n_features, &e->fc_norm, err)))
        return NULL;
    e->fc.is_unrounded = m->layers->wq.is_unrounded;

    // The layers whose inputs are the features, and the target's ids of the draft vocabulary.
    Str layer_bytes = {(const char *)layers->data, layers->bytes}, id_bytes = {0};
    if (ids) id_bytes = (Str){ids->data, ids->bytes};
    if (ids || n_ids != n_vocab) e->ids = xalloc((size_t)n_ids, sizeof *e->ids);
    if (!read_integers(e, "eagle3.target_layers", layer_bytes, sizeof(int32_t), HEAD_LAYERS,
                       target->config.n_layers, e->layers, err) ||
        (e->ids &&
         !read_integers(e, "tensor d2t", id_bytes, sizeof(int64_t), n_ids, n_vocab, e->ids, err)))
        return NULL;

    size_t n = (size_t)e->fc.cols;
    e->features = xalloc_large(HEAD_WINDOW * n, sizeof(float));
    e->g = xalloc_large(HEAD_WINDOW * (size_t)m->config.dim, sizeof(float));
    e->logits = xalloc((size_t)m->config.vocab_size, sizeof(float));
    matmul_scratch_reserve(&e->matmul, (const Tensor *[]){&e->fc}, 1, HEAD_WINDOW, 1);
    m->hook = run_head;
    target->hook = observe_target;
    m->hook_arg = target->hook_arg = e;
    e->target_rows = xalloc_large((size_t)max_steps * n, sizeof(float));
    return e;
}

// The features of a position in the ring of a sequence.
static float *kept_row(const DraftHead *e, const HeadState *s, int pos) {
    return s->features + (size_t)(pos % HEAD_WINDOW) * (size_t)e->fc.cols;
}

void head_keep(const DraftHead *e, HeadState *s, int pos, int row, int n) {
    size_t n_features = (size_t)e->fc.cols;
    if (!s->session) s->session = session_new(&e->model->kv);
    if (!s->features) s->features = xalloc_large(HEAD_WINDOW * n_features, sizeof(float));
    if (pos != s->end) s->n_kept = 0;

    for (int i = n > HEAD_WINDOW ? n - HEAD_WINDOW : 0; i < n; i++)
        memcpy(kept_row(e, s, pos + i), e->target_rows + (size_t)(row + i) * n_features,
               n_features * sizeof(float));
    s->end = pos + n;
    s->n_kept = s->n_kept + n < HEAD_WINDOW ? s->n_kept + n : HEAD_WINDOW;
}

int head_pairs(DraftHead *e, HeadState *s, const Session *text, int pending, int *tokens, int n) {
    if (s->end != text->n_tokens || !s->n_kept) return 0;

    // The cache begins anew where features are lost, and where the head's context is full.
    int n_read = s->end - s->first, n_new = n_read - s->session->n_tokens;
    if (n_new > s->n_kept || n_read + n > e->model->config.max_context) {
        session_rewind(s->session, 0);
        s->first = s->end - s->n_kept;
        n_new = s->n_kept;
    }

    for (int i = 0; i < n_new; i++) {
        int pos = s->end - n_new + i;
        tokens[i] = pos + 1 < s->end ? text->tokens[pos + 1] : pending;
        memcpy(e->features + (size_t)i * (size_t)e->fc.cols, kept_row(e, s, pos),
               (size_t)e->fc.cols * sizeof(float));
    }
    e->has_features = true;
    return n_new;
}

const float *head_logits(DraftHead *e, const float *logits) {
    e->has_features = false;
    if (!e->ids || !logits) return logits;
    for (int i = 0; i < e->model->config.vocab_size; i++) e->logits[i] = -INFINITY;
    for (int i = 0; i < e->model->output.rows; i++) e->logits[e->ids[i]] = logits[i];
    return e->logits;
}
