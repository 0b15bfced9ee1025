// The transformer (Llama 3.1; Touvron et al. 2023): its weights, and one forward pass that serves
// prefill, decode and batches.
//
// A step is one token of one session at one position. workspace_feed() adds steps to the next
// forward pass, for any number of sessions; model_forward() runs it, writes keys and values into
// the sessions' KV caches, and returns the logits of the steps for which they were requested.
//
// Loading is in model/load.h, the equations are in forward() of model.c, the operations in
// kernels/ops.h and kernels/attention.h.
#pragma once

#include "model/experts.h"
#include "rope.h"
#include "model/session.h"

// Upper limit of the context length that a file or an option may set: far beyond any model, and
// small enough that the sum of two positions fits an int.
enum { MAX_CONTEXT = 1 << 28 };

// The hyper-parameters; the values of Llama 3.1 8B are in brackets.
typedef struct {
    int dim;         // width of the residual stream [4096]
    int hidden_dim;  // width of a dense FFN [14336]
    int n_layers;    // [32]
    int n_heads;     // query heads [32]
    int n_kv_heads;  // key and value heads, a divisor of n_heads (grouped-query attention) [8]
    int head_dim;    // width of a head, even [128]
    int vocab_size;  // [128256]
    int max_context; // positions that the model was trained for [131072]
    float norm_eps;  // [1e-5]
    ExpertConfig experts;
} Config;

// The weights of a layer. A matrix has a row for each output.
typedef struct {
    const float *attn_norm, *ffn_norm; // (dim)
    const float *q_norm, *k_norm;      // (head_dim), or as q and k; NULL: q and k are not normed
    Tensor wq;                         // (n_heads * head_dim, dim), pairs of RoPE as in RopeParams
    Tensor wk, wv;                     // (n_kv_heads * head_dim, dim)
    Tensor wo;                         // (dim, n_heads * head_dim)
    Tensor w_gate, w_up;               // (hidden_dim, dim) FFN
    Tensor w_down;                     // (dim, hidden_dim)

    // A layer with experts (experts.h) has the following instead of the FFN. w_gate, w_up and
    // w_down are the shared expert, of width shared_dim, if there is one.
    Tensor router;                           // (n_experts, dim); no rows: the layer has no experts
    const float *choice_bias;                // (n_experts); NULL: none
    const Tensor *expert_gates, *expert_ups; // (n_experts) of (experts.dim, dim)
    const Tensor *expert_downs;              // (n_experts) of (dim, experts.dim)
    Tensor shared_gate; // (1, dim) v: the factor of the shared expert is sigmoid(v . h); no rows: 1
} Layer;

// Immutable after model_open().
typedef struct {
    Family family;
    Config config;
    Gguf file;
    Tensor embed, output;    // (vocab_size, dim); the same data when tied
    const float *final_norm; // (dim)
    Layer *layers;           // (n_layers)
    RopeParams rope;
    KvShape kv;                     // shape of the KV cache of its sessions
    int n_threads, n_batch_threads; // the latter for passes of many steps; 0: n_threads
    bool is_batch_invariant;        // --deterministic, or it costs at most attend_many in a batch
                                    // (kernels/exactness.h)
    struct Lora *adapters;          // (n_adapters), attached to the tensors (model/lora/lora.h)
    int n_adapters;
    Arena memory; // float32 copies of vectors that the file has in other types; lists of experts
} Model;

// The next forward pass: its steps, the activations, and scratch memory, all allocated once.
typedef struct Workspace Workspace;

// For passes of up to max_steps steps, of which up to max_logits request logits.
Workspace *workspace_new(const Model *m, int max_steps, int max_logits);
void workspace_free(Workspace *ws);
int workspace_max_steps(const Workspace *ws);

// Adds tokens (n) to the next forward pass, at the next positions of a session. All tokens of one
// session must be added before those of another. Logits are computed for tokens [first_logits, n).
// Returns the number of tokens added, which is below n if the pass is full, or -1 with err (exit 1)
// if memory for the KV cache is short.
int workspace_feed(Workspace *ws, Session *s, const int *tokens, int n, int first_logits,
                   Error *err);

// Called with the residual stream x (n, dim) before every layer and before the final norm (layer
// n_layers), after its norm h. All threads call it together, so it may run operations of
// kernels/ops.h. It may replace the rows of both; a row of h has as many values as layer 0 reads.
// After the last attention, a pass has the steps that request logits only. NULL: no hook.
typedef void (*LayerHook)(void *arg, int layer, float *x, float *h, int n);
void workspace_hook(Workspace *ws, LayerHook hook, void *arg);

// Called before every matrix product with its weights and its input x (n, w->cols). All threads
// call it together, so it may run operations of kernels/ops.h. With needs_all, for calibration, a
// pass computes all steps in every layer, but no logits. NULL: no observer.
typedef void (*ProductObserver)(void *arg, const Tensor *w, const float *x, int n);
void workspace_observe(Workspace *ws, ProductObserver observe, void *arg, bool needs_all);

// Runs the forward pass and appends its tokens to the sessions. Returns the requested logits
// (n_logits, vocab_size) in the order of the steps, valid until the next call. Returns NULL if no
// steps were added, or after an interrupt (team.h); no session has changed then.
//
// kernel_rows: row count used to choose kernels (kernels/exactness.h); 0 is the actual one.
const float *model_forward(const Model *m, Workspace *ws, int kernel_rows);
