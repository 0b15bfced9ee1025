// The transformer: weights bound to their names, sessions (KV caches), and the one forward pass.
#ifndef MODEL_H
#define MODEL_H

#include "kernels/ops.h"
#include "rope.h"

typedef struct {
    int dim;        // width of the residual stream
    int hidden_dim; // width of the FFN
    int n_layers, n_heads, n_kv_heads, head_dim, vocab_size;
    int max_context; // positions the model was made for
    float norm_eps;
} Config;

typedef struct {
    const float *attn_norm, *ffn_norm; // (dim)
    Tensor wq;                         // (n_heads * head_dim, dim), q and k rows in Meta's order
    Tensor wk, wv;                     // (n_kv_heads * head_dim, dim)
    Tensor wo;                         // (dim, n_heads * head_dim)
    Tensor w_gate, w_up;               // (hidden_dim, dim)
    Tensor w_down;                     // (dim, hidden_dim)
} Layer;

// Immutable after model_open, but for the cis table, which grows with the longest session.
typedef struct {
    Config config;
    Gguf file;
    Tensor embed, output;    // (vocab_size, dim); the same when tied
    const float *final_norm; // (dim)
    Layer *layers;
    Rope rope;
    int n_threads;
    bool is_invariant; // --deterministic: the same bits alone or in a batch, for any prefill chunk
    Type kv_type;      // of the sessions to come: F16 (default), F32, Q8_0
    float *widened;    // norm weights stored as F16/BF16, as float32
} Model;

// Options that change how a file is run. Zero-initialise for the defaults.
typedef struct {
    int n_threads; // 0: all cores the process may use
    bool is_invariant;
    const char *kv_type;   // NULL: "f16"
    const char *rope_rule; // NULL: what the file says; the figures below are then ignored where 0
    double rope_theta, rope_scale;
    int rope_orig_ctx;
} ModelOptions;

// Binds the tensors of an opened file (which the model then owns), checking every shape. False with err (exit 3:
// tensor, expected shape, found shape). Unknown tensors: one warning.
bool model_bind(Model *m, Gguf *file, const ModelOptions *options, Error *err);
// Opens a file by path, or the built-in model when path is NULL.
bool model_open(Model *m, const char *path, const ModelOptions *options, Error *err);
// Only the file: for verbs that need metadata or a vocabulary.
bool model_open_file(Gguf *g, const char *path, Error *err);
void model_close(Model *m);

// Bytes of KV cache for one position; of a workspace; of all tensors.
size_t model_kv_bytes(const Config *c, Type kv_type);
size_t model_weight_bytes(const Model *m);

// Positions [page * KV_PAGE, ...) of the KV cache of all layers, shared between sessions with a common prefix.
typedef struct KvPage KvPage;

// One sequence under way: the tokens so far and their keys and values.
typedef struct {
    const Model *model;
    int *tokens; // (n_tokens): token at each position that is in the cache
    int n_tokens, cap_tokens;
    KvPage **pages;
    const void **k, **v; // (n_layers, cap_pages): per layer and page, (n_kv_heads, KV_PAGE, head_dim)
    int n_pages, cap_pages;
} Session;

Session *session_new(Model *m);
void session_free(Session *s);
// Makes room for n positions in all. False with err (exit 1) when memory is short. Call before forwarding into them.
bool session_reserve(Session *s, int n, Error *err);
// Forgets all positions from n on.
void session_rewind(Session *s, int n);
// Fills the cache up to position n with zeros, as if tokens had been fed: for measuring at a depth.
bool session_pad(Session *s, int n, Error *err);
// A new session that starts with the first n positions of s: whole pages are shared, the rest of the last is copied.
// NULL when memory is short.
Session *session_fork(const Session *s, int n);

// One token to be fed at the next position of a session.
typedef struct {
    Session *session;
    int token;
    int pos; // == session->n_tokens + (its earlier steps in this call)
    bool want_logits;
} Step;

// Buffers of the forward pass for up to max_steps steps; allocated once.
typedef struct Workspace Workspace;
Workspace *workspace_new(const Model *m, int max_steps, int max_logits);
void workspace_free(Workspace *ws);

// Runs n steps (n <= max_steps; those of one session adjacent, in order; room reserved) and returns the logits of
// those that want them, (n_wanted, vocab_size), valid until the next call. Appends the tokens to their sessions.
// Prefill is many steps of one session, decode is one step, batch is one step of each of many.
const float *model_forward(const Model *m, Workspace *ws, const Step *steps, int n);

#endif
