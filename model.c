#include "model.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const unsigned char builtin_model[], builtin_model_end[];

// Binding: names and shapes of the file -> Model.

// Reads a hyper-parameter that is a count in [min, max].
static bool read_count(const Gguf *g, const char *key, uint64_t min, uint64_t max, int *out, Error *err) {
    uint64_t v;
    if (!gguf_u64(g, key, &v, err)) return false;
    if (v < min || v > max)
        return error_set(err, EXIT_MODEL, "%s: %s: expected %llu to %llu, found %llu", g->path, key,
                         (unsigned long long)min, (unsigned long long)max, (unsigned long long)v);
    *out = (int)v;
    return true;
}

static bool read_config(Config *c, const Gguf *g, Error *err) {
    Str architecture;
    int key_length = 0, value_length = 0;
    double eps;
    if (!gguf_string(g, "general.architecture", &architecture, err)) return false;
    if (!str_is(architecture, "llama"))
        return error_set(err, EXIT_MODEL, "%s: general.architecture: expected \"llama\", found \"%.*s\"", g->path,
                         (int)(architecture.len < 64 ? architecture.len : 64), architecture.data);
    if (!read_count(g, "llama.embedding_length", 1, 1 << 17, &c->dim, err) ||
        !read_count(g, "llama.block_count", 1, 1 << 12, &c->n_layers, err) ||
        !read_count(g, "llama.feed_forward_length", 1, 1 << 20, &c->hidden_dim, err) ||
        !read_count(g, "llama.attention.head_count", 1, 1 << 10, &c->n_heads, err) ||
        !read_count(g, "llama.context_length", 1, 1 << 28, &c->max_context, err) ||
        !gguf_f64(g, "llama.attention.layer_norm_rms_epsilon", &eps, err))
        return false;
    c->n_kv_heads = c->n_heads;
    if (gguf_find(g, "llama.attention.head_count_kv") &&
        !read_count(g, "llama.attention.head_count_kv", 1, (uint64_t)c->n_heads, &c->n_kv_heads, err))
        return false;
    if (c->n_heads % c->n_kv_heads)
        return error_set(err, EXIT_MODEL, "%s: llama.attention.head_count_kv: expected a divisor of %d, found %d",
                         g->path, c->n_heads, c->n_kv_heads);
    if (!(eps > 0 && eps < 1))
        return error_set(err, EXIT_MODEL, "%s: llama.attention.layer_norm_rms_epsilon: expected 0 to 1, found %g",
                         g->path, eps);
    c->norm_eps = (float)eps;
    if (gguf_find(g, "llama.attention.key_length")) {
        if (!read_count(g, "llama.attention.key_length", 2, 256, &key_length, err)) return false;
    } else if (c->dim % c->n_heads) {
        return error_set(err, EXIT_MODEL, "%s: llama.attention.head_count: expected a divisor of %d, found %d", g->path,
                         c->dim, c->n_heads);
    }
    c->head_dim = key_length ? key_length : c->dim / c->n_heads;
    if (c->head_dim % 2 || c->head_dim > 256)
        return error_set(err, EXIT_MODEL, "%s: head dimension: expected an even number up to 256, found %d", g->path,
                         c->head_dim);
    if (gguf_find(g, "llama.attention.value_length")) {
        if (!read_count(g, "llama.attention.value_length", 1, 1 << 10, &value_length, err)) return false;
        if (value_length != c->head_dim)
            return error_set(err, EXIT_MODEL, "%s: llama.attention.value_length: expected %d, found %d", g->path,
                             c->head_dim, value_length);
    }
    if (gguf_find(g, "llama.expert_count")) {
        int n_experts;
        if (!read_count(g, "llama.expert_count", 0, 0, &n_experts, err)) return false;
    }
    return true;
}

// State of binding: how many of the file's tensors found their place.
typedef struct {
    const Gguf *file;
    Error *err;
    int n_used;
} Binder;

static bool bind(Binder *b, const char *name, int rows, int cols, Tensor *out) {
    const GgufTensor *t = gguf_tensor(b->file, name);
    if (!t)
        return error_set(b->err, EXIT_MODEL, "%s: tensor %s: expected shape (%d, %d), found no such tensor",
                         b->file->path, name, rows, cols);
    if (t->dims[0] != (uint64_t)cols || t->dims[1] != (uint64_t)rows || t->dims[2] != 1 || t->dims[3] != 1)
        return error_set(b->err, EXIT_MODEL, "%s: tensor %s: expected shape (%d, %d), found (%llu, %llu%s)",
                         b->file->path, name, rows, cols, (unsigned long long)t->dims[1],
                         (unsigned long long)t->dims[0], t->dims[2] == 1 && t->dims[3] == 1 ? "" : ", ...");
    if (!quant_is_supported(t->type))
        return error_set(b->err, EXIT_MODEL, "%s: tensor %s: expected a type this program computes with, found %s",
                         b->file->path, name, type_info(t->type)->name);
    *out = (Tensor){t->data, (Type)t->type, rows, cols, quant_row_bytes((Type)t->type, (size_t)cols)};
    b->n_used++;
    return true;
}

static bool bind_layer(Binder *b, int layer, const char *part, int rows, int cols, Tensor *out) {
    char name[64];
    snprintf(name, sizeof name, "blk.%d.%s.weight", layer, part);
    return bind(b, name, rows, cols, out);
}

// A norm's weights as aligned float32, `slot` values into the model's own copy (they are small).
static const float *widen(Model *m, size_t slot, const Tensor *t) {
    float *out = m->widened + slot * (size_t)m->config.dim;
    quant_decode(t->type, t->data, out, (size_t)t->cols);
    return out;
}

static bool bind_tensors(Model *m, Error *err) {
    Config *c = &m->config;
    Binder b = {&m->file, err, 0};
    int q_dim = c->n_heads * c->head_dim, kv_dim = c->n_kv_heads * c->head_dim;
    const GgufTensor *embed = gguf_tensor(&m->file, "token_embd.weight");
    uint64_t n_vocab = embed ? embed->dims[1] : 0;
    const GgufValue *tokens = gguf_find(&m->file, "tokenizer.ggml.tokens");
    if (tokens && embed && tokens->kind == GGUF_ARRAY && tokens->count != n_vocab)
        return error_set(err, EXIT_MODEL,
                         "%s: tensor token_embd.weight: expected %llu rows (the vocabulary), found %llu", m->file.path,
                         (unsigned long long)tokens->count, (unsigned long long)n_vocab);
    if (embed && (n_vocab < 1 || n_vocab > 1 << 24))
        return error_set(err, EXIT_MODEL, "%s: tensor token_embd.weight: expected 1 to %d rows, found %llu",
                         m->file.path, 1 << 24, (unsigned long long)n_vocab);
    c->vocab_size = (int)n_vocab;
    Tensor norm;
    if (!bind(&b, "token_embd.weight", c->vocab_size, c->dim, &m->embed)) return false;
    if (c->n_layers > m->file.n_tensors) // before anything is sized by it
        return error_set(err, EXIT_MODEL, "%s: llama.block_count: expected at most the %d tensors, found %d",
                         m->file.path, m->file.n_tensors, c->n_layers);
    m->layers = xalloc((size_t)c->n_layers, sizeof *m->layers);
    m->widened = xalloc((size_t)c->n_layers * 2 + 1, (size_t)c->dim * sizeof(float));
    if (!bind(&b, "output_norm.weight", 1, c->dim, &norm)) return false;
    m->final_norm = widen(m, (size_t)c->n_layers * 2, &norm);
    m->output = m->embed; // tied, unless the file has a matrix of its own
    if (gguf_tensor(&m->file, "output.weight") && !bind(&b, "output.weight", c->vocab_size, c->dim, &m->output))
        return false;
    for (int i = 0; i < c->n_layers; i++) {
        Layer *l = &m->layers[i];
        if (!bind_layer(&b, i, "attn_norm", 1, c->dim, &norm)) return false;
        l->attn_norm = widen(m, (size_t)i * 2, &norm);
        if (!bind_layer(&b, i, "ffn_norm", 1, c->dim, &norm)) return false;
        l->ffn_norm = widen(m, (size_t)i * 2 + 1, &norm);
        if (!bind_layer(&b, i, "attn_q", q_dim, c->dim, &l->wq) ||
            !bind_layer(&b, i, "attn_k", kv_dim, c->dim, &l->wk) ||
            !bind_layer(&b, i, "attn_v", kv_dim, c->dim, &l->wv) ||
            !bind_layer(&b, i, "attn_output", c->dim, q_dim, &l->wo) ||
            !bind_layer(&b, i, "ffn_gate", c->hidden_dim, c->dim, &l->w_gate) ||
            !bind_layer(&b, i, "ffn_up", c->hidden_dim, c->dim, &l->w_up) ||
            !bind_layer(&b, i, "ffn_down", c->dim, c->hidden_dim, &l->w_down))
            return false;
    }
    int n_known = b.n_used + (gguf_tensor(&m->file, "rope_freqs.weight") != NULL);
    if (n_known < m->file.n_tensors)
        warn("%s: %d of %d tensors are not part of a Llama model and are ignored", m->file.path,
             m->file.n_tensors - n_known, m->file.n_tensors);
    return true;
}

static bool read_rope(Model *m, const ModelOptions *o, Error *err) {
    RopeParams p;
    if (!rope_params_read(&p, &m->file, m->config.head_dim, err)) return false;
    if (!rope_params_override(&p, o->rope_rule, o->rope_theta, o->rope_scale, o->rope_orig_ctx, err)) return false;
    rope_init(&m->rope, &p);
    return true;
}

static int kv_type_of(const char *name, int head_dim) {
    if (!name || !strcmp(name, "f16")) return TYPE_F16;
    if (!strcmp(name, "f32")) return TYPE_F32;
    return !strcmp(name, "q8_0") && head_dim % 32 == 0 ? TYPE_Q8_0 : -1;
}

bool model_bind(Model *m, Gguf *file, const ModelOptions *options, Error *err) {
    *m = (Model){.file = *file, .is_invariant = options->is_invariant};
    m->n_threads = options->n_threads > 0 ? options->n_threads : team_default_threads();
    if (file->n_tensors == 0) {
        error_set(err, EXIT_MODEL, "%s: expected tensors, found a vocabulary only", file->path);
    } else if (read_config(&m->config, &m->file, err) && bind_tensors(m, err) && read_rope(m, options, err)) {
        int kv_type = kv_type_of(options->kv_type, m->config.head_dim);
        m->kv_type = (Type)kv_type;
        if (kv_type >= 0) return true;
        error_set(err, EXIT_USAGE, "--kv %s: expected f16, f32 or (head dimension a multiple of 32) q8_0",
                  options->kv_type);
    }
    model_close(m);
    return false;
}

bool model_open_file(Gguf *g, const char *path, Error *err) {
    if (path) return gguf_open(g, path, err);
    return gguf_parse(g, builtin_model, (size_t)(builtin_model_end - builtin_model), "built-in model", err);
}

bool model_open(Model *m, const char *path, const ModelOptions *options, Error *err) {
    Gguf file;
    return model_open_file(&file, path, err) && model_bind(m, &file, options, err);
}

void model_close(Model *m) {
    free(m->layers);
    free(m->widened);
    if (m->rope.freqs) rope_free(&m->rope);
    gguf_close(&m->file);
    *m = (Model){0};
}

size_t model_weight_bytes(const Model *m) {
    size_t bytes = 0;
    for (int i = 0; i < m->file.n_tensors; i++) bytes += m->file.tensors[i].bytes;
    return bytes;
}

// Sessions: the KV cache in pages of KV_PAGE positions of all layers, keys first, then values. Pages are allocated as
// the sequence grows, untouched memory costs nothing, and sequences with a common prefix hold the same pages.

struct KvPage {
    _Atomic int n_owners;
    char *data; // (2, n_layers, n_kv_heads, KV_PAGE, head_dim) of kv_type
};

static size_t head_bytes(const Config *c, Type kv_type) {
    return KV_PAGE * quant_row_bytes(kv_type, (size_t)c->head_dim);
}

static size_t layer_bytes(const Config *c, Type kv_type) { return (size_t)c->n_kv_heads * head_bytes(c, kv_type); }

size_t model_kv_bytes(const Config *c, Type kv_type) {
    return 2 * (size_t)c->n_layers * layer_bytes(c, kv_type) / KV_PAGE;
}

static KvPage *page_new(const Model *m) {
    KvPage *page = calloc(1, sizeof *page);
    void *data = NULL;
    if (!page || posix_memalign(&data, 64, KV_PAGE * model_kv_bytes(&m->config, m->kv_type))) {
        free(page);
        return NULL;
    }
    page->n_owners = 1;
    page->data = data;
    return page;
}

static void page_release(KvPage *page) {
    if (atomic_fetch_sub(&page->n_owners, 1) > 1) return;
    free(page->data);
    free(page);
}

Session *session_new(Model *m) {
    Session *s = xalloc(1, sizeof *s);
    s->model = m;
    return s;
}

void session_free(Session *s) {
    if (!s) return;
    session_rewind(s, 0);
    free(s->tokens);
    free(s->pages);
    free(s->k);
    free(s->v);
    free(s);
}

// Enters a page into the per-layer tables.
static void session_place(Session *s, KvPage *page) {
    const Config *c = &s->model->config;
    size_t bytes = layer_bytes(c, s->model->kv_type);
    for (int l = 0; l < c->n_layers; l++) {
        size_t at = (size_t)l * (size_t)s->cap_pages + (size_t)s->n_pages;
        s->k[at] = page->data + (size_t)l * bytes;
        s->v[at] = page->data + (size_t)(c->n_layers + l) * bytes;
    }
    s->pages[s->n_pages++] = page;
}

static void session_grow_tables(Session *s, int n_pages) {
    int n_old = s->n_pages, n_layers = s->model->config.n_layers;
    if (n_pages <= s->cap_pages) return;
    s->cap_pages = n_pages > 2 * s->cap_pages ? n_pages : 2 * s->cap_pages;
    s->pages = xrealloc(s->pages, (size_t)s->cap_pages, sizeof *s->pages);
    s->k = xrealloc(s->k, (size_t)n_layers * (size_t)s->cap_pages, sizeof *s->k);
    s->v = xrealloc(s->v, (size_t)n_layers * (size_t)s->cap_pages, sizeof *s->v);
    s->n_pages = 0;
    while (s->n_pages < n_old) session_place(s, s->pages[s->n_pages]);
}

bool session_reserve(Session *s, int n, Error *err) {
    int n_pages = (n + KV_PAGE - 1) / KV_PAGE;
    if (n > s->cap_tokens) {
        s->cap_tokens = n_pages * KV_PAGE;
        s->tokens = xrealloc(s->tokens, (size_t)s->cap_tokens, sizeof *s->tokens);
    }
    session_grow_tables(s, n_pages);
    while (s->n_pages < n_pages) {
        KvPage *page = page_new(s->model);
        if (!page)
            return error_set(err, EXIT_RUNTIME, "out of memory: KV cache for %d positions (%zu MiB)", n,
                             ((size_t)n * model_kv_bytes(&s->model->config, s->model->kv_type)) >> 20);
        session_place(s, page);
    }
    rope_reserve((Rope *)&s->model->rope, n_pages * KV_PAGE);
    return true;
}

bool session_pad(Session *s, int n, Error *err) {
    if (!session_reserve(s, n, err)) return false;
    for (int i = s->n_tokens / KV_PAGE; i < s->n_pages; i++)
        memset(s->pages[i]->data, 0, KV_PAGE * model_kv_bytes(&s->model->config, s->model->kv_type));
    while (s->n_tokens < n) s->tokens[s->n_tokens++] = 0;
    return true;
}

// The first n positions of page `from`, copied into `to`.
static void page_copy(const Model *m, KvPage *to, const KvPage *from, int n) {
    const Config *c = &m->config;
    size_t stride = head_bytes(c, m->kv_type), used = stride / KV_PAGE * (size_t)n;
    for (size_t i = 0; i < 2 * (size_t)c->n_layers * (size_t)c->n_kv_heads; i++)
        memcpy(to->data + i * stride, from->data + i * stride, used);
}

// The last page, if others hold it too and it is about to be written: a copy of our own.
static bool session_own_last(Session *s, int n) {
    int last = s->n_pages - 1;
    if (n % KV_PAGE == 0 || s->pages[last]->n_owners == 1) return true;
    KvPage *own = page_new(s->model);
    if (!own) return false;
    page_copy(s->model, own, s->pages[last], n % KV_PAGE);
    page_release(s->pages[last]);
    s->n_pages--;
    session_place(s, own);
    return true;
}

void session_rewind(Session *s, int n) {
    if (n < s->n_tokens) s->n_tokens = n;
    while (s->n_pages > (s->n_tokens + KV_PAGE - 1) / KV_PAGE) page_release(s->pages[--s->n_pages]);
    if (!session_own_last(s, s->n_tokens)) die(EXIT_RUNTIME, "out of memory: KV cache");
}

Session *session_fork(const Session *s, int n) {
    Session *f = session_new((Model *)s->model);
    int n_pages = (n + KV_PAGE - 1) / KV_PAGE;
    session_grow_tables(f, n_pages);
    f->tokens = xrealloc(NULL, (size_t)n_pages * KV_PAGE, sizeof *f->tokens);
    f->cap_tokens = n_pages * KV_PAGE;
    memcpy(f->tokens, s->tokens, (size_t)n * sizeof *f->tokens);
    f->n_tokens = n;
    for (int i = 0; i < n_pages; i++) {
        atomic_fetch_add(&s->pages[i]->n_owners, 1);
        session_place(f, s->pages[i]);
    }
    if (session_own_last(f, n)) return f;
    session_free(f);
    return NULL;
}

// The forward pass.

struct Workspace {
    int max_steps, max_logits;
    float *x;             // (max_steps, dim) residual stream
    float *h;             // (max_steps, dim) normed input, then output, of a block
    float *q, *att;       // (max_steps, n_heads * head_dim)
    float *k, *v;         // (max_steps, n_kv_heads * head_dim)
    float *gate, *up;     // (max_steps, hidden_dim)
    float *logits;        // (max_logits, vocab_size)
    int *tokens, *wanted; // (max_steps)
    AttendTile *tiles;    // (max_steps)
    void *encoded;        // activations in the kernels' form
    float *partial;       // attention split over pages
    size_t partial_floats;
};

static size_t encode_bytes(const Tensor *const *weights, int n_weights, int n) {
    size_t bytes = 0;
    for (int i = 0; i < n_weights; i++) bytes += ops_encode_bytes(weights[i], n);
    return bytes;
}

// The largest group of products that share an input, over all layers.
static size_t most_encode_bytes(const Model *m, int n) {
    size_t most = ops_encode_bytes(&m->output, n);
    for (int i = 0; i < m->config.n_layers; i++) {
        const Layer *l = &m->layers[i];
        const Tensor *qkv[] = {&l->wq, &l->wk, &l->wv}, *o[] = {&l->wo}, *gate_up[] = {&l->w_gate, &l->w_up},
                     *down[] = {&l->w_down};
        size_t groups[] = {encode_bytes(qkv, 3, n), encode_bytes(o, 1, n), encode_bytes(gate_up, 2, n),
                           encode_bytes(down, 1, n)};
        for (int g = 0; g < 4; g++)
            if (groups[g] > most) most = groups[g];
    }
    return most;
}

Workspace *workspace_new(const Model *m, int max_steps, int max_logits) {
    const Config *c = &m->config;
    size_t n = (size_t)max_steps, q_dim = (size_t)(c->n_heads * c->head_dim),
           kv_dim = (size_t)(c->n_kv_heads * c->head_dim);
    Workspace *ws = xalloc(1, sizeof *ws);
    ws->max_steps = max_steps;
    ws->max_logits = max_logits;
    ws->x = xalloc(n * (size_t)c->dim, sizeof(float));
    ws->h = xalloc(n * (size_t)c->dim, sizeof(float));
    ws->q = xalloc(n * q_dim, sizeof(float));
    ws->att = xalloc(n * q_dim, sizeof(float));
    ws->k = xalloc(n * kv_dim, sizeof(float));
    ws->v = xalloc(n * kv_dim, sizeof(float));
    ws->gate = xalloc(n * (size_t)c->hidden_dim, sizeof(float));
    ws->up = xalloc(n * (size_t)c->hidden_dim, sizeof(float));
    ws->logits = xalloc((size_t)max_logits * (size_t)c->vocab_size, sizeof(float));
    ws->tokens = xalloc(n, sizeof(int));
    ws->wanted = xalloc(n, sizeof(int));
    ws->tiles = xalloc(n, sizeof(AttendTile));
    size_t one = most_encode_bytes(m, 1), all = most_encode_bytes(m, max_steps);
    ws->encoded = xalloc(one > all ? one : all, 1);
    return ws;
}

void workspace_free(Workspace *ws) {
    if (!ws) return;
    void *parts[] = {ws->x,  ws->h,      ws->q,      ws->att,    ws->k,     ws->v,       ws->gate,
                     ws->up, ws->logits, ws->tokens, ws->wanted, ws->tiles, ws->encoded, ws->partial};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) free(parts[i]);
    free(ws);
}

// What all threads of one forward share.
typedef struct {
    const Model *model;
    Workspace *ws;
    const Step *steps;
    int n, n_wanted, n_tiles, layer;
    AttendShape shape;
} Forward;

// Step i: rotates its queries and keys, and enters keys and values into the cache of layer f->layer.
static void rotate_and_store(void *arg, int i) {
    const Forward *f = arg;
    const Config *c = &f->model->config;
    const Step *step = &f->steps[i];
    const Session *s = step->session;
    Type type = f->model->kv_type;
    float *q = f->ws->q + (size_t)i * (size_t)(c->n_heads * c->head_dim);
    float *k = f->ws->k + (size_t)i * (size_t)(c->n_kv_heads * c->head_dim);
    float *v = f->ws->v + (size_t)i * (size_t)(c->n_kv_heads * c->head_dim);
    rope_apply(&f->model->rope, q, c->n_heads, c->head_dim, step->pos);
    rope_apply(&f->model->rope, k, c->n_kv_heads, c->head_dim, step->pos);
    float scale = 1.0f / sqrtf((float)c->head_dim);
    for (int d = 0; d < c->n_heads * c->head_dim; d++) q[d] *= scale;
    size_t at = (size_t)f->layer * (size_t)s->cap_pages + (size_t)(step->pos / KV_PAGE);
    size_t row = (size_t)(step->pos % KV_PAGE) * quant_row_bytes(type, (size_t)c->head_dim);
    for (int h = 0; h < c->n_kv_heads; h++) {
        size_t offset = (size_t)h * head_bytes(c, type) + row;
        kernel.store(type, (char *)s->k[at] + offset, k + h * c->head_dim, c->head_dim);
        kernel.store(type, (char *)s->v[at] + offset, v + h * c->head_dim, c->head_dim);
    }
}

// The equations of the model (Touvron et al. 2023; Meta's reference), on n steps at once. Every thread runs this.
static void forward(Team *team, void *arg) {
    Forward f = *(const Forward *)arg;
    const Model *m = f.model;
    const Config *c = &m->config;
    Workspace *ws = f.ws;
    int n = f.n, dim = c->dim, hidden_dim = c->hidden_dim;
    size_t q_dim = (size_t)(c->n_heads * c->head_dim), kv_dim = (size_t)(c->n_kv_heads * c->head_dim);
    bool invariant = m->is_invariant;

    ops_embed(team, ws->x, &m->embed, ws->tokens, n);
    for (f.layer = 0; f.layer < c->n_layers; f.layer++) {
        const Layer *l = &m->layers[f.layer];

        // x += Wo attention(rope(Wq h), rope(Wk h), Wv h), h = rmsnorm(x)
        ops_rmsnorm(team, ws->h, ws->x, l->attn_norm, c->norm_eps, n, dim);
        Product qkv[] = {{ws->q, q_dim, &l->wq}, {ws->k, kv_dim, &l->wk}, {ws->v, kv_dim, &l->wv}};
        ops_matmul(team, qkv, 3, ws->h, n, ws->encoded, invariant);
        ops_for(team, n, 1, rotate_and_store, &f);
        ops_attend(team, ws->att, ws->q, ws->tiles, f.n_tiles, f.layer, &f.shape, ws->partial);
        ops_matmul(team, &(Product){ws->h, (size_t)dim, &l->wo}, 1, ws->att, n, ws->encoded, invariant);
        ops_add(team, ws->x, ws->h, n, dim);

        // x += Wdown(silu(Wgate h) * Wup h), h = rmsnorm(x)
        ops_rmsnorm(team, ws->h, ws->x, l->ffn_norm, c->norm_eps, n, dim);
        Product gate_up[] = {{ws->gate, (size_t)hidden_dim, &l->w_gate}, {ws->up, (size_t)hidden_dim, &l->w_up}};
        ops_matmul(team, gate_up, 2, ws->h, n, ws->encoded, invariant);
        ops_swiglu(team, ws->gate, ws->up, n, hidden_dim);
        ops_matmul(team, &(Product){ws->h, (size_t)dim, &l->w_down}, 1, ws->gate, n, ws->encoded, invariant);
        ops_add(team, ws->x, ws->h, n, dim);
    }

    // logits = Woutput rmsnorm(x), of the steps that want them
    if (f.n_wanted == 0) return;
    ops_gather(team, ws->h, ws->x, ws->wanted, f.n_wanted, dim);
    ops_rmsnorm(team, ws->h, ws->h, m->final_norm, c->norm_eps, f.n_wanted, dim);
    ops_matmul(team, &(Product){ws->logits, (size_t)c->vocab_size, &m->output}, 1, ws->h, f.n_wanted, ws->encoded,
               invariant);
}

// Cuts the steps into tiles of consecutive positions of one session.
static int make_tiles(const Step *steps, int n, int most_steps, AttendTile *tiles) {
    int n_tiles = 0;
    for (int i = 0; i < n; i++) {
        const Step *s = &steps[i];
        AttendTile *last = n_tiles ? &tiles[n_tiles - 1] : NULL;
        if (last && s->session == s[-1].session && s->pos == s[-1].pos + 1 && last->n_steps < most_steps) {
            last->n_steps++;
            continue;
        }
        tiles[n_tiles++] = (AttendTile){.first_step = i,
                                        .n_steps = 1,
                                        .first_pos = s->pos,
                                        .k = s->session->k,
                                        .v = s->session->v,
                                        .layer_stride = (size_t)s->session->cap_pages};
    }
    return n_tiles;
}

const float *model_forward(const Model *m, Workspace *ws, const Step *steps, int n) {
    const Config *c = &m->config;
    Forward f = {.model = m, .ws = ws, .steps = steps, .n = n};
    f.shape = (AttendShape){c->n_heads, c->n_kv_heads, c->head_dim, m->kv_type, m->is_invariant};
    for (int i = 0; i < n; i++) {
        ws->tokens[i] = steps[i].token;
        if (steps[i].want_logits) ws->wanted[f.n_wanted++] = i;
    }
    f.n_tiles = make_tiles(steps, n, ops_attend_tile_steps(&f.shape), ws->tiles);
    size_t floats = ops_attend_floats(&f.shape, m->n_threads, ws->tiles, f.n_tiles);
    if (floats > ws->partial_floats) {
        ws->partial_floats = floats + floats / 2;
        ws->partial = xrealloc(ws->partial, ws->partial_floats, sizeof(float));
    }
    team_run(m->n_threads, forward, &f);
    for (int i = 0; i < n; i++) steps[i].session->tokens[steps[i].session->n_tokens++] = steps[i].token;
    return ws->logits;
}
