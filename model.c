// One forward pass for prefill, decode and batch: the equations stand in forward(), each operation
// spread over all threads. Memory is reserved before it begins; nothing in it allocates.
#include "model.h"
#include "lora/lora.h"
#include "kernels/ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

size_t model_weight_bytes(const Model *m) {
    size_t bytes = 0;
    for (int i = 0; i < m->file.n_tensors; i++) bytes += m->file.tensors[i].bytes;
    return bytes;
}

// The forward pass.

// One token to be fed.
typedef struct {
    Session *session;
    int token, pos;
    bool want_logits;
} Step;

struct Workspace {
    int max_steps, max_logits;
    Step *steps; // (max_steps), of which n_steps are to be fed next and n_wanted want logits
    int n_steps, n_wanted;
    float *x;             // (max_steps, dim) residual stream
    float *h;             // (max_steps, dim) normed input, then output, of a block
    float *q, *att;       // (max_steps, n_heads * head_dim)
    float *k, *v;         // (max_steps, n_kv_heads * head_dim)
    float *gate, *up;     // (max_steps, hidden_dim)
    float *logits;        // (max_logits, vocab_size)
    int *tokens, *wanted; // (max_steps)
    AttentionTile *tiles; // (max_steps)
    Rope rope;            // the cis table
};

// Has the operations reserve their memory for the products of a layer, and of the output.
static void reserve_matmuls(const Model *m, int n) {
    ops_reserve_matmuls((const Tensor *[]){&m->output}, 1, n);
    for (int i = 0; i < m->config.n_layers; i++) {
        const Layer *l = &m->layers[i];
        ops_reserve_matmuls((const Tensor *[]){&l->wq, &l->wk, &l->wv}, 3, n);
        ops_reserve_matmuls((const Tensor *[]){&l->wo}, 1, n);
        ops_reserve_matmuls((const Tensor *[]){&l->w_gate, &l->w_up}, 2, n);
        ops_reserve_matmuls((const Tensor *[]){&l->w_down}, 1, n);
    }
}

Workspace *workspace_new(const Model *m, int max_steps, int max_logits) {
    const Config *c = &m->config;
    size_t n = (size_t)max_steps, q_dim = (size_t)(c->n_heads * c->head_dim),
           kv_dim = (size_t)(c->n_kv_heads * c->head_dim);
    Workspace *ws = xalloc(1, sizeof *ws);
    ws->max_steps = max_steps;
    ws->max_logits = max_logits;
    rope_init(&ws->rope, &m->rope);
    ws->x = xalloc(n * (size_t)c->dim, sizeof(float));
    ws->h = xalloc(n * (size_t)c->dim, sizeof(float));
    ws->q = xalloc(n * q_dim, sizeof(float));
    ws->att = xalloc(n * q_dim, sizeof(float));
    ws->k = xalloc(n * kv_dim, sizeof(float));
    ws->v = xalloc(n * kv_dim, sizeof(float));
    ws->gate = xalloc(n * (size_t)c->hidden_dim, sizeof(float));
    ws->up = xalloc(n * (size_t)c->hidden_dim, sizeof(float));
    ws->logits = xalloc((size_t)max_logits * (size_t)c->vocab_size, sizeof(float));
    ws->steps = xalloc(n, sizeof(Step));
    ws->tokens = xalloc(n, sizeof(int));
    ws->wanted = xalloc(n, sizeof(int));
    ws->tiles = xalloc(n, sizeof(AttentionTile));
    reserve_matmuls(m, max_steps);
    return ws;
}

void workspace_free(Workspace *ws) {
    if (!ws) return;
    void *parts[] = {ws->steps, ws->x,  ws->h,      ws->q,      ws->att,    ws->k,    ws->v,
                     ws->gate,  ws->up, ws->logits, ws->tokens, ws->wanted, ws->tiles};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) free(parts[i]);
    rope_free(&ws->rope);
    free(ws);
}

int workspace_feed(Workspace *ws, Session *s, const int *tokens, int n, int wanted, Error *err) {
    const Step *last = ws->n_steps ? &ws->steps[ws->n_steps - 1] : NULL;
    int pos = last && last->session == s ? last->pos + 1 : s->n_tokens;
    if (n > ws->max_steps - ws->n_steps) n = ws->max_steps - ws->n_steps;
    if (n > wanted + ws->max_logits - ws->n_wanted) n = wanted + ws->max_logits - ws->n_wanted;
    if (n > 0 && !session_reserve(s, pos + n, err)) return -1;
    for (int i = 0; i < n; i++) {
        ws->steps[ws->n_steps++] = (Step){s, tokens[i], pos + i, i >= wanted};
        if (i >= wanted) ws->wanted[ws->n_wanted++] = ws->n_steps - 1;
    }
    return n;
}

// What all threads of one forward share.
typedef struct {
    const Model *model;
    Workspace *ws;
    const Step *steps;
    int n, n_tiles, layer, like;
    AttentionShape shape;
} Forward;

// Step i: rotates its queries and keys, and enters keys and values into the cache of layer
// f->layer.
static void rotate_and_store(void *arg, int i) {
    const Forward *f = arg;
    const Config *c = &f->model->config;
    const Step *step = &f->steps[i];
    float *q = f->ws->q + (size_t)i * (size_t)(c->n_heads * c->head_dim);
    float *k = f->ws->k + (size_t)i * (size_t)(c->n_kv_heads * c->head_dim);
    float *v = f->ws->v + (size_t)i * (size_t)(c->n_kv_heads * c->head_dim);
    rope_apply(&f->ws->rope, q, c->n_heads, c->head_dim, step->pos);
    rope_apply(&f->ws->rope, k, c->n_kv_heads, c->head_dim, step->pos);
    float scale = 1.0f / sqrtf((float)c->head_dim);
    for (int d = 0; d < c->n_heads * c->head_dim; d++) q[d] *= scale;
    for (int h = 0; h < c->n_kv_heads; h++) {
        Type type = f->model->kv.type;
        kernel.store(type, session_key(step->session, f->layer, h, step->pos), k + h * c->head_dim,
                     c->head_dim);
        kernel.store(type, session_value(step->session, f->layer, h, step->pos),
                     v + h * c->head_dim, c->head_dim);
    }
}

// The equations of the model (Touvron et al. 2023; Meta's reference), on n steps at once. Every
// thread runs this.
static void forward(void *arg) {
    Forward f = *(const Forward *)arg;
    const Model *m = f.model;
    const Config *c = &m->config;
    Workspace *ws = f.ws;
    int n = f.n, dim = c->dim;

    ops_like = f.like;
    ops_embed(ws->x, &m->embed, ws->tokens, n);
    for (f.layer = 0; f.layer < c->n_layers; f.layer++) {
        const Layer *l = &m->layers[f.layer];

        // x += Wo attention(rope(Wq h), rope(Wk h), Wv h), h = rmsnorm(x)
        ops_rmsnorm(ws->h, ws->x, l->attn_norm, c->norm_eps, n, dim);
        ops_matmuls((Product[]){{ws->q, &l->wq}, {ws->k, &l->wk}, {ws->v, &l->wv}}, 3, ws->h, n);
        ops_for(n, 1, rotate_and_store, &f);
        attention(ws->att, ws->q, ws->tiles, f.n_tiles, f.layer, &f.shape);
        ops_matmul(ws->h, ws->att, &l->wo, n);
        ops_add(ws->x, ws->h, n, dim);

        // x += Wdown(silu(Wgate h) * Wup h), h = rmsnorm(x)
        ops_rmsnorm(ws->h, ws->x, l->ffn_norm, c->norm_eps, n, dim);
        ops_matmuls((Product[]){{ws->gate, &l->w_gate}, {ws->up, &l->w_up}}, 2, ws->h, n);
        ops_swiglu(ws->gate, ws->up, n, c->hidden_dim);
        ops_matmul(ws->h, ws->gate, &l->w_down, n);
        ops_add(ws->x, ws->h, n, dim);
    }

    // logits = Woutput rmsnorm(x), of the steps that want them: a few, however many there are
    ops_like = f.like == 1;
    ops_gather(ws->h, ws->x, ws->wanted, ws->n_wanted, dim);
    ops_rmsnorm(ws->h, ws->h, m->final_norm, c->norm_eps, ws->n_wanted, dim);
    if (ws->n_wanted) ops_matmul(ws->logits, ws->h, &m->output, ws->n_wanted);
}

// Cuts the steps into tiles of consecutive positions of one session. None crosses a page: a page's
// tiles are the same wherever the steps begin before it.
static int make_tiles(const Step *steps, int n, int most_steps, AttentionTile *tiles) {
    int n_tiles = 0;
    for (int i = 0; i < n; i++) {
        const Step *s = &steps[i];
        AttentionTile *last = n_tiles ? &tiles[n_tiles - 1] : NULL;
        if (last && s->session == s[-1].session && s->pos % KV_PAGE && last->n_steps < most_steps) {
            last->n_steps++;
            continue;
        }
        tiles[n_tiles++] = (AttentionTile){.first_step = i,
                                           .n_steps = 1,
                                           .first_pos = s->pos,
                                           .k = s->session->k,
                                           .v = s->session->v,
                                           .layer_stride = (size_t)s->session->cap_pages};
    }
    return n_tiles;
}

// The tokens fed are in their sessions. Whole pages of one forward have the bits of any prefill,
// since the kernels for many tokens begin with fewer than a page has.
static void append_tokens(const Model *m, const Step *steps, int n) {
    for (int i = 0; i < n;) {
        Session *s = steps[i].session;
        int first = s->n_tokens;
        for (; i < n && steps[i].session == s; i++) s->tokens[s->n_tokens++] = steps[i].token;
        if (s->n_reproducible != first || (first % KV_PAGE && !m->is_batch_invariant)) continue;
        s->n_reproducible =
            m->is_batch_invariant ? s->n_tokens : first + (s->n_tokens - first) / KV_PAGE * KV_PAGE;
    }
}

const float *model_forward(const Model *m, Workspace *ws, int like) {
    const Config *c = &m->config;
    Forward f = {.model = m, .ws = ws, .steps = ws->steps, .n = ws->n_steps, .like = like};
    f.shape = (AttentionShape){c->n_heads, c->n_kv_heads, c->head_dim, m->kv.type};
    if (f.n == 0) return NULL;
    for (int i = 0; i < f.n; i++) {
        rope_reserve(&ws->rope, f.steps[i].pos + 1);
        ws->tokens[i] = f.steps[i].token;
    }
    f.n_tiles = make_tiles(f.steps, f.n, attention_tile_steps(&f.shape), ws->tiles);
    attention_reserve(ws->tiles, f.n_tiles, &f.shape, m->n_threads);
    ops_is_invariant = m->is_batch_invariant;
    team_run(m->n_threads, forward, &f);
    ws->n_steps = ws->n_wanted = 0;
    if (team_is_interrupted()) return NULL;
    // A cut inside the last page raises no signal: what was read there is zero.
    Error err;
    if (!gguf_is_intact(&m->file, &err)) die_error(&err);
    for (int i = 0; i < m->n_adapters; i++)
        if (!gguf_is_intact(&m->adapters[i].file, &err)) die_error(&err);
    append_tokens(m, f.steps, f.n);
    return ws->logits;
}
