// The transformer: its weights, and the one forward pass for prefill, decode and batch.
#ifndef MODEL_H
#define MODEL_H

#include "gguf.h"
#include "rope.h"
#include "session.h"

// Positions that a file or an option may speak of: far beyond any model, and an int has room to
// count on.
enum { MAX_CONTEXT = 1 << 28 };

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

// Immutable once open.
typedef struct {
    Config config;
    Gguf file;
    Tensor embed, output;    // (vocab_size, dim); the same when tied
    const float *final_norm; // (dim)
    Layer *layers;
    RopeParams rope;
    KvShape kv; // of the sessions to come
    int n_threads;
    bool is_batch_invariant; // by --deterministic, or because the backend has no other kernels: the
                             // same bits alone or in a batch, for any prefill chunk
    struct Lora *adapters;   // (n_adapters): what they add is with the tensors
    int n_adapters;
    int n_widened;
    float **widened; // (n_widened) vectors that the file has as F16 or BF16
} Model;

// Bytes of all tensors.
size_t model_weight_bytes(const Model *m);

// Buffers of the forward pass for up to max_steps tokens, of which max_logits want logits,
// allocated once; the tokens to be fed next; and the cis table, which grows with the longest
// sequence.
typedef struct Workspace Workspace;
Workspace *workspace_new(const Model *m, int max_steps, int max_logits);
void workspace_free(Workspace *ws);

// Adds up to n tokens to the next forward, at the next positions of a session (whose tokens follow
// each other), as many as there is room for: logits are wanted of those from index `wanted` on.
// Returns how many, or -1 with err (exit 1) when memory is short.
int workspace_feed(Workspace *ws, Session *s, const int *tokens, int n, int wanted, Error *err);

// Runs what was fed and returns the logits of those that want them, (n_wanted, vocab_size), valid
// until the next call; NULL if nothing was fed, or if it was interrupted (team.h), when no token is
// in its session. Else all are. Prefill is many tokens of one session, decode is one, batch is one
// of each of many, a check of proposed tokens is a few of each. The kernels are chosen as for
// `like` tokens: 0 is as many as there are, 1 gives each token the bits of a forward of its own.
const float *model_forward(const Model *m, Workspace *ws, int like);

#endif
