// The forward pass. forward() has the equations of the model, in order; the rest of the file
// prepares a pass (workspace, steps) and appends its tokens to the sessions.
//
// Every thread of the team runs forward(). The operations that it calls divide their work among the
// threads and end with a barrier, so forward() reads like a single-threaded program. It allocates
// nothing: the workspace and the pages of the KV cache are ready before it starts.
#include "model.h"
#include "kernels/attention.h"
#include "kernels/ops.h"
#include "model/lora/lora.h"

// One token of a session.
typedef struct {
    Session *session;
    int pos;
} Step;

// Functions that the forward pass calls; NULL: none.
typedef struct {
    LayerHook layer; // of draft heads and their targets
    void *layer_arg;
    ProductObserver product;
    void *product_arg;
    bool is_calibration; // the observer needs all steps, but no logits
} Hooks;

struct Workspace {
    int max_steps, max_logits;

    // The next forward pass. Steps of one session follow each other, by position.
    int n_steps, n_logits;
    Step *steps;          // (max_steps)
    int *tokens;          // (max_steps) token of each step
    int *logit_steps;     // (max_logits) indices of the steps that request logits, ascending
    Routing routing;      // of the current layer with experts
    AttentionTile *tiles; // (max_steps) runs of consecutive positions, see make_tiles()

    // Activations, a row for each step.

    float *x;         // (max_steps, dim) residual stream
    float *h;         // (max_steps, width of wq) normed input of attention or FFN, then its output
    float *q, *att;   // (max_steps, n_heads * head_dim)
    float *k, *v;     // (max_steps, n_kv_heads * head_dim)
    float *gate, *up; // (max_steps, widest FFN), the experts that a step uses counting as one FFN
    float *expert_h;  // (max_steps * used experts, dim) input, then output of the experts
    float *logits;    // (max_logits, vocab_size)

    Rope rope; // cis table, as long as the longest session so far
    Attention attention;
    MatmulScratch matmul; // large enough for every product of the model
    LoraScratch lora;
    Hooks hooks;
};

// Sizes the scratch buffers for one call of multiply() with these weights.
static void reserve_products(Workspace *ws, const Tensor *const *weights, int n_weights) {
    lora_scratch_reserve(&ws->lora, &ws->matmul, weights, n_weights, ws->max_steps);
}

// The same for the experts of a layer, of which each multiplies some of the rows.
static void reserve_experts(Workspace *ws, const Layer *l, const ExpertConfig *c) {
    int n_rows = ws->max_steps * c->n_used;
    int n_groups = n_rows < c->n_experts ? n_rows : c->n_experts;
    reserve_products(ws, (const Tensor *[]){&l->router, &l->shared_gate},
                     1 + (l->shared_gate.rows > 0));
    matmul_scratch_reserve(&ws->matmul, (const Tensor *[]){l->expert_gates, l->expert_ups}, 2,
                           n_rows, n_groups);
    matmul_scratch_reserve(&ws->matmul, (const Tensor *[]){l->expert_downs}, 1, n_rows, n_groups);
}

// For Llama 3.1 8B and 512 steps, x, h, q and att are 8 MiB each, gate and up 28 MiB; the logits of
// one step are 0.5 MiB.
Workspace *workspace_new(const Model *m, int max_steps, int max_logits) {
    const Config *c = &m->config;
    size_t n = (size_t)max_steps;
    size_t dim = (size_t)c->dim;
    size_t n_used = (size_t)c->experts.n_used;
    size_t widest = (size_t)c->hidden_dim;
    size_t q_dim = (size_t)(c->n_heads * c->head_dim);
    size_t kv_dim = (size_t)(c->n_kv_heads * c->head_dim);
    Workspace *ws = xalloc(1, sizeof *ws);

    if (n_used * (size_t)c->experts.dim > widest) widest = n_used * (size_t)c->experts.dim;
    if ((size_t)c->experts.shared_dim > widest) widest = (size_t)c->experts.shared_dim;

    ws->max_steps = max_steps;
    ws->max_logits = max_logits;

    // The steps of the next pass.
    ws->steps = xalloc(n, sizeof *ws->steps);
    ws->tokens = xalloc(n, sizeof *ws->tokens);
    ws->logit_steps = xalloc((size_t)max_logits, sizeof *ws->logit_steps);
    ws->tiles = xalloc(n, sizeof *ws->tiles);

    // Activations.
    ws->x = xalloc_large(n * dim, sizeof(float));
    ws->h = xalloc_large(n * (size_t)m->layers->wq.cols, sizeof(float));
    ws->q = xalloc_large(n * q_dim, sizeof(float));
    ws->att = xalloc_large(n * q_dim, sizeof(float));
    ws->k = xalloc_large(n * kv_dim, sizeof(float));
    ws->v = xalloc_large(n * kv_dim, sizeof(float));
    ws->gate = xalloc_large(n * widest, sizeof(float));
    ws->up = xalloc_large(n * widest, sizeof(float));
    ws->expert_h = xalloc_large(n * n_used * dim, sizeof(float));
    ws->logits = xalloc_large((size_t)max_logits * (size_t)c->vocab_size, sizeof(float));

    ws->routing = routing_new(&c->experts, c->n_layers, max_steps);
    rope_init(&ws->rope, &m->rope);

    // Scratch memory for the largest call of multiply().
    reserve_products(ws, (const Tensor *[]){&m->output}, 1);
    for (const Layer *l = m->layers; l < m->layers + c->n_layers; l++) {
        reserve_products(ws, (const Tensor *[]){&l->wq, &l->wk, &l->wv}, 3);
        reserve_products(ws, (const Tensor *[]){&l->wo}, 1);
        if (l->router.rows) reserve_experts(ws, l, &c->experts);
        if (!l->w_gate.rows) continue;
        reserve_products(ws, (const Tensor *[]){&l->w_gate, &l->w_up}, 2);
        reserve_products(ws, (const Tensor *[]){&l->w_down}, 1);
    }

    return ws;
}

void workspace_free(Workspace *ws) {
    if (!ws) return;
    void *buffers[] = {ws->steps, ws->tokens, ws->logit_steps, ws->tiles, ws->x,
                       ws->h,     ws->q,      ws->att,         ws->k,     ws->v,
                       ws->gate,  ws->up,     ws->expert_h,    ws->logits};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) free(buffers[i]);
    free(ws->attention.partial);
    free(ws->matmul.encoded);
    free(ws->lora.hidden);
    routing_free(&ws->routing);
    rope_free(&ws->rope);
    free(ws);
}

int workspace_max_steps(const Workspace *ws) { return ws->max_steps; }

int workspace_feed(Workspace *ws, Session *s, const int *tokens, int n, int first_logits,
                   Error *err) {
    // The first new position follows the session's last step in this pass or, without one, its KV
    // cache.
    const Step *last = ws->n_steps ? &ws->steps[ws->n_steps - 1] : NULL;
    int pos = last && last->session == s ? last->pos + 1 : s->n_tokens;
    int n_left = ws->max_steps - ws->n_steps;
    int n_left_for_logits = first_logits + ws->max_logits - ws->n_logits;
    if (n > n_left) n = n_left;
    if (n > n_left_for_logits) n = n_left_for_logits;

    if (n > 0 && !session_reserve(s, pos + n, err)) return -1;

    for (int i = 0; i < n; i++) {
        if (i >= first_logits) ws->logit_steps[ws->n_logits++] = ws->n_steps;
        ws->tokens[ws->n_steps] = tokens[i];
        ws->steps[ws->n_steps++] = (Step){s, pos + i};
    }

    return n;
}

void workspace_hook(Workspace *ws, LayerHook hook, void *arg) {
    ws->hooks.layer = hook;
    ws->hooks.layer_arg = arg;
}

void workspace_observe(Workspace *ws, ProductObserver observe, void *arg, bool needs_all) {
    ws->hooks.product = observe;
    ws->hooks.product_arg = arg;
    ws->hooks.is_calibration = needs_all;
}

// The state of a thread in the forward pass.
typedef struct {
    const Model *model;
    Workspace *ws;
    Exactness exactness;
    int layer; // index of the layer that is being computed
} Forward;

// out (n, w->rows) = x (n, w->cols) w^T + bias for each product, plus the terms of LoRA adapters.
static void multiply(const Forward *f, const Product *products, int n_products,
                     Exactness exactness) {
    const Workspace *ws = f->ws;
    const Hooks *hooks = &ws->hooks;
    if (hooks->product)
        for (const Product *p = products; p < products + n_products; p++)
            hooks->product(hooks->product_arg, p->w, p->x, p->n);
    lora_matmuls(&ws->lora, &ws->matmul, products, n_products, exactness);
}

// h = rmsnorm(x), for n rows of the residual stream
static void norm_stream(const Forward *f, float *h, float *x, const float *weight, int n) {
    const Hooks *hooks = &f->ws->hooks;
    ops_rmsnorm(h, x, weight, f->model->config.norm_eps, n, f->model->config.dim);
    if (hooks->layer) hooks->layer(hooks->layer_arg, f->layer, x, h, n);
}

// Applies the model family's norm and RoPE to the heads of a query or a key, then the Hadamard
// rotation if keys are cached in a quantized type.
static void rotate_heads(const Forward *f, float *vec, const float *norm, int n_heads, int pos) {
    const Config *c = &f->model->config;
    int n = n_heads * c->head_dim;
    int norm_dim = f->model->family.has_qk_row_norm ? n : c->head_dim;
    for (float *part = vec; norm && part < vec + n; part += norm_dim)
        kernel.rmsnorm(part, part, norm, c->norm_eps, norm_dim);
    if (family_has_rope(&f->model->family, f->layer))
        rope_apply(&f->ws->rope, vec, n_heads, c->head_dim, pos);
    attention_rotate(f->model->kv.k_type, vec, n, c->head_dim);
}

// Rotates the queries and keys of step i to its position, and stores its keys and values in the KV
// cache. The factor of the attention scores, 1/sqrt(head_dim), is applied to the queries.
static void rotate_and_store(void *arg, int i) {
    const Forward *f = arg;
    const Config *c = &f->model->config;
    const KvShape *kv = &f->model->kv;
    const Layer *l = &f->model->layers[f->layer];
    const Step *step = &f->ws->steps[i];
    int head_dim = c->head_dim, q_dim = c->n_heads * head_dim, kv_dim = c->n_kv_heads * head_dim;
    float *q = f->ws->q + (size_t)i * (size_t)q_dim;
    float *k = f->ws->k + (size_t)i * (size_t)kv_dim, *v = f->ws->v + (size_t)i * (size_t)kv_dim;
    float scale = family_attn_scale(&f->model->family, head_dim, step->pos);

    // Norm, rotate and scale queries, keys and values for attention.
    rotate_heads(f, q, l->q_norm, c->n_heads, step->pos);
    rotate_heads(f, k, l->k_norm, c->n_kv_heads, step->pos);
    for (int d = 0; d < q_dim; d++) q[d] *= scale;
    attention_rotate(kv->v_type, v, kv_dim, head_dim);

    // The KV cache has a row for each KV head and position.
    for (int h = 0; h < c->n_kv_heads; h++, k += head_dim, v += head_dim) {
        kernel.store(kv->k_type, session_key(step->session, f->layer, h, step->pos), k, head_dim);
        kernel.store(kv->v_type, session_value(step->session, f->layer, h, step->pos), v, head_dim);
    }
}

// FFN of n steps (SwiGLU; Shazeer 2020):  h = Wdown (silu(Wgate h) * Wup h)
static void dense_ffn(const Forward *f, const Layer *l, float *h, int n) {
    Workspace *ws = f->ws;
    multiply(f, (Product[]){{ws->gate, &l->w_gate, h, n}, {ws->up, &l->w_up, h, n}}, 2,
             f->exactness);
    ops_swiglu(ws->gate, ws->up, n, l->w_gate.rows);
    multiply(f, (Product[]){{h, &l->w_down, ws->gate, n}}, 1, f->exactness);
}

// Products of the rows of x, sorted by expert, with one or two matrices of their experts. All are
// one operation, so an expert that many steps have chosen occupies several threads.
static void multiply_experts(const Forward *f, float *const *out, const Tensor *const *experts,
                             int n_matrices, const float *x, int n) {
    const ExpertConfig *c = &f->model->config.experts;
    const int *first_row = routing_first_row(&f->ws->routing, c, f->layer);
    Product products[2 * c->n_experts];
    int n_products = 0;

    for (int e = 0; e < c->n_experts; e++) {
        size_t first = (size_t)first_row[e];
        int n_rows = first_row[e + 1] - first_row[e];
        for (int i = 0; n_rows && i < n_matrices; i++) {
            const Tensor *w = &experts[i][e];
            products[n_products++] =
                (Product){out[i] + first * (size_t)w->rows, w, x + first * (size_t)w->cols, n_rows};
        }
    }

    multiply(f, products, n_products,
             exactness_of_experts(f->exactness, n, c->n_used, c->n_experts));
}

// FFN of n steps with experts (experts.h):  h = sum of w_e FFN_e(h) over the chosen experts, plus
// the shared expert
static void expert_ffn(const Forward *f, const Layer *l, float *h, int n) {
    const Config *c = &f->model->config;
    const ExpertConfig *x = &c->experts;
    Workspace *ws = f->ws;
    Routing *r = &ws->routing;
    int n_rows = n * x->n_used;
    bool has_shared_gate = l->shared_gate.rows > 0;

    // The router. Its bits are the same for any number of steps, or a choice could depend on it.
    multiply(f,
             (Product[]){{r->scores, &l->router, h, n}, {r->shared_scores, &l->shared_gate, h, n}},
             1 + has_shared_gate, (Exactness){.kernel_rows = 1});
    experts_route(r, x, f->layer, l->choice_bias, n);

    // The experts, for their rows.
    ops_gather(ws->expert_h, h, r->steps, n_rows, c->dim);
    multiply_experts(f, (float *[]){ws->gate, ws->up},
                     (const Tensor *[]){l->expert_gates, l->expert_ups}, 2, ws->expert_h, n);
    ops_swiglu(ws->gate, ws->up, n_rows, x->dim);
    multiply_experts(f, (float *[]){ws->expert_h}, (const Tensor *[]){l->expert_downs}, 1, ws->gate,
                     n);

    // The shared expert replaces its input h by its output, which the sum then includes.
    if (x->shared_dim) dense_ffn(f, l, h, n);
    experts_combine(h, ws->expert_h, r, x, has_shared_gate, n, c->dim);
}

// The equations of the model, for n steps together. A matrix has a row for each output, so an
// element of "Wq h" is the dot product of a row of Wq with h.
static void forward(void *arg) {
    Forward f = *(const Forward *)arg; // this thread's copy: layer and exactness change below
    const Model *m = f.model;
    const Config *c = &m->config;
    Workspace *ws = f.ws;
    float *x = ws->x, *h = ws->h, *att = ws->att;
    int n = ws->n_steps;
    int n_needed = ws->hooks.is_calibration ? n : ws->n_logits; // rows after the last attention

    // x = the row of the embedding matrix that belongs to the token
    ops_embed(x, &m->embed, ws->tokens, n);
    if (m->embed.lora) lora_embed(x, &m->embed, ws->tokens, n);

    for (f.layer = 0; f.layer < c->n_layers; f.layer++) {
        const Layer *l = &m->layers[f.layer];

        // Attention:  h = rmsnorm(x),  q = rope(Wq h),  k = rope(Wk h),  v = Wv h
        //             x += Wo softmax(q K^T / sqrt(head_dim)) V, with the keys and values so far
        norm_stream(&f, h, x, l->attn_norm, n);
        multiply(&f,
                 (Product[]){{ws->q, &l->wq, h, n}, {ws->k, &l->wk, h, n}, {ws->v, &l->wv, h, n}},
                 3, f.exactness);
        ops_for(n, 1, rotate_and_store, &f);

        bool is_last = f.layer == c->n_layers - 1;
        if (is_last && n_needed == 0) return; // all keys and values are stored
        attention(att, ws->q, &ws->attention, f.layer, f.exactness);

        if (is_last && n_needed < n) {
            // From here on only the steps that request logits are computed. Kernels are still
            // chosen for all n rows, so the bits do not change.
            f.exactness.kernel_rows = exactness_rows(f.exactness, n);
            n = n_needed;

            // A gather cannot run in place, so the rows move to buffers that are free from here on.
            float *x_rows = ws->h, *h_rows = ws->x, *att_rows = ws->q;
            ops_gather(x_rows, x, ws->logit_steps, n, c->dim);
            ops_gather(att_rows, att, ws->logit_steps, n, c->n_heads * c->head_dim);
            x = x_rows;
            h = h_rows;
            att = att_rows;
        }

        multiply(&f, (Product[]){{h, &l->wo, att, n}}, 1, f.exactness);
        ops_add(x, h, n, c->dim);

        // FFN:  x += ffn(rmsnorm(x))
        ops_rmsnorm(h, x, l->ffn_norm, c->norm_eps, n, c->dim);
        if (l->router.rows)
            expert_ffn(&f, l, h, n);
        else
            dense_ffn(&f, l, h, n);
        ops_add(x, h, n, c->dim);
    }

    if (ws->hooks.is_calibration) return; // the output matrix is not calibrated

    // logits = Woutput rmsnorm(x), for the steps that request them. A kernel_rows above 1 makes a
    // pass imitate a longer one (kernels/exactness.h), but both compute the same number of rows of
    // logits, so here the actual number chooses the kernel.
    if (f.exactness.kernel_rows > 1) f.exactness.kernel_rows = 0;
    norm_stream(&f, h, x, m->final_norm, n);
    multiply(&f, (Product[]){{ws->logits, &m->output, h, n}}, 1, f.exactness);
}

// Cuts the steps into tiles of up to max_tile_steps consecutive positions of one session, whose
// queries read the same keys. Returns the number of tiles.
//
// No tile crosses a page boundary. A page that is computed in one pass is therefore always divided
// into the same tiles, wherever in the prompt the pass began. This matters for attention kernels
// whose bits depend on the size of a tile.
static int make_tiles(Workspace *ws, int max_tile_steps) {
    int n_tiles = 0;
    AttentionTile *tile = NULL; // the tile that was added last

    for (int i = 0; i < ws->n_steps; i++) {
        const Step *s = &ws->steps[i];
        bool continues = tile && s->session == s[-1].session && s->pos % KV_PAGE > 0;
        if (continues && tile->n_steps < max_tile_steps) {
            tile->n_steps++;
            continue;
        }

        tile = &ws->tiles[n_tiles++];
        *tile = (AttentionTile){.first_step = i,
                                .n_steps = 1,
                                .first_pos = s->pos,
                                .k = s->session->k,
                                .v = s->session->v,
                                .layer_stride = (size_t)s->session->cap_pages};
    }

    return n_tiles;
}

// Appends the tokens of the pass to their sessions, whose KV caches now hold their keys and values.
//
// A page that is computed as a whole by one pass is reproducible: every such pass has at least
// KV_PAGE rows, no kernel needs more (MatmulKernel.min_tokens), so all such passes choose the same
// kernels. Passes that use the kernels for one row are the exception.
static void append_tokens(const Model *m, const Workspace *ws, int kernel_rows) {
    for (int i = 0; i < ws->n_steps;) {
        Session *s = ws->steps[i].session;
        int first = s->n_tokens;
        for (; i < ws->n_steps && ws->steps[i].session == s; i++)
            s->tokens[s->n_tokens++] = ws->tokens[i];
        if (s->n_reproducible != first) continue; // an earlier position is not reproducible
        if (m->is_batch_invariant)
            s->n_reproducible = s->n_tokens;
        else if (first % KV_PAGE == 0 && kernel_rows != 1)
            s->n_reproducible += (s->n_tokens - first) / KV_PAGE * KV_PAGE;
    }
}

const float *model_forward(const Model *m, Workspace *ws, int kernel_rows) {
    const Config *c = &m->config;
    AttentionShape shape = {c->n_heads, c->n_kv_heads, c->head_dim, m->kv.k_type, m->kv.v_type};
    Forward f = {.model = m, .ws = ws, .exactness = {kernel_rows, m->is_batch_invariant}};

    int n_threads = m->n_threads;
    if (ws->n_steps == 0) return NULL;
    if (ws->n_steps >= 32 && m->n_batch_threads) n_threads = m->n_batch_threads;

    // All memory is allocated before the threads start.
    for (int i = 0; i < ws->n_steps; i++) rope_reserve(&ws->rope, ws->steps[i].pos + 1);
    int n_tiles = make_tiles(ws, attention_tile_steps(&shape));
    attention_prepare(&ws->attention, &shape, ws->tiles, n_tiles, n_threads);

    team_run(n_threads, forward, &f);
    bool is_done = !team_is_interrupted();
    if (is_done) {
        // If the mapped file was truncated within its last page, reading the missing bytes returns
        // zeros and raises no signal.
        Error err;
        if (!mapping_is_intact(m->file.shards, m->file.n_shards, &err)) die_error(&err);
        for (int i = 0; i < m->n_adapters; i++)
            if (!mapping_is_intact(m->adapters[i].file.shards, 1, &err)) die_error(&err);
        append_tokens(m, ws, kernel_rows);
    }

    ws->n_steps = ws->n_logits = 0;
    return is_done ? ws->logits : NULL;
}

// Next: session.c, the KV cache that forward() fills, then kernels/ops.h and kernels/attention.h,
// the operations that it calls.
