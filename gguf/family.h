// Model families: architectures that differ from Llama in a few points. A family is one row of the
// table in family.c; fields that a row does not set are as in Llama 3.1.
//
// family_read() finds the row of a file and fills in values from its metadata, or reports why the
// file is not supported. family_key() forms the names of metadata keys. Nothing here depends on the
// forward pass.
#pragma once

#include "gguf/gguf.h"

// Parameters of the YaRN rule (rope.c); `magnitude` applies to all rules.
typedef struct {
    double beta_fast, beta_slow; // rotations over the original context: 32 and 1
    double attn_factor;          // factor of cosine and sine; 0: computed by the formula
    double log_multiplier;       // M of the formula; 0: as in the paper
    double magnitude;            // additional factor of cosine and sine, for every rule: 1
} Yarn;

// How the files of a family describe their mixtures of experts (experts.h). Every key is read where
// a file has it. A row says what a file must have, and what holds where it has no key.
typedef struct {
    enum { EXPERTS_NONE, EXPERTS_OPTIONAL, EXPERTS_REQUIRED } presence;
    const char *required; // keys, besides expert_used_count, separated by spaces; NULL: none
    bool is_normalized;   // default of expert_weights_norm
    bool has_shared_gate; // the shared expert is multiplied by sigmoid(v . h)

    // Width of an expert without expert_feed_forward_length: feed_forward_length, or that divided
    // by the number of experts that a token uses.
    enum { EXPERT_DIM_FFN, EXPERT_DIM_SHARE } dim;
    // Width of the shared expert, which is expert_shared_feed_forward_length.
    enum {
        SHARED_DIM_KEY,    // without this key: no shared expert
        SHARED_DIM_FFN,    // without it: feed_forward_length
        SHARED_DIM_COUNTED // expert_shared_count (required) times it or the width of an expert
    } shared_dim;
} ExpertTraits;

typedef struct {
    const char *architecture; // general.architecture, and the first part of the metadata keys
    const char *name;         // for messages
    bool has_half_pairs;      // RoPE rotates the pairs (i, i + dim/2) instead of (2i, 2i + 1)
    bool has_qk_norm;         // RMSNorm of each head of q and k before RoPE
    bool has_qk_row_norm;     // RMSNorm of all heads of q, and of k, as one vector
    bool has_fused_qkv;       // Wq, Wk and Wv are one tensor, attn_qkv.weight
    bool has_scales;          // the file may have the five values below
    bool has_rope_switch;     // the file may say that it has no RoPE (rope.scaling.finetuned)
    bool has_extra_blocks;    // the tensors of nextn_predict_layers blocks at the end are ignored
    bool has_temperature;     // the file may have a temperature and YaRN's log_multiplier
    bool has_yarn_betas;      // the file may have YaRN's beta_fast and beta_slow
    bool is_llama;            // reads YaRN's attn_factor from its own key; see also load_tensor()
    bool has_rope_freqs;      // the file may have the tensor rope_freqs.weight (rope.c)
    const char *head_tensors; // draft heads (generate/speculate/head.h): the tensors that the head
                              // loads itself, separated by spaces; NULL: a model
    int no_rope_interval;     // N: every N-th layer has no RoPE, 1: none has it; 0: all have it
    ExpertTraits experts;

    double embed_scale;    // factor of the embedding
    double residual_scale; // factor of what attention and FFN add to the residual stream
    double attn_scale;     // factor of attention scores; 0: 1 / sqrt(head_dim)
    double logit_scale;    // divisor of the logits
    double temperature;    // growth of attention scores with the position; 0: none
    double orig_context;   // positions between two steps of that growth: the training context
    double window;         // the context length from which a sliding window matters; 0: none
    Yarn yarn;
} Family;

// The name of a metadata key.
typedef struct {
    char text[128];
} FamilyKey;

// "ARCHITECTURE.NAME", with the architecture of the file.
FamilyKey family_key(const Gguf *g, const char *name);
// Reads the optional positive number of a key; *out keeps its value if the key is absent or, with
// zero_is_absent, 0. False with err (exit 3) if the number is invalid.
bool family_number(const Gguf *g, const char *name, bool zero_is_absent, double *out, Error *err);

// Reads a count in [min, max]. False with err (exit 3) if it is absent or invalid.
bool family_count(const Gguf *g, const char *name, int min, int max, int *out, Error *err);
// Reads an optional count; *out keeps its value if the key is absent.
bool family_optional_count(const Gguf *g, const char *name, int min, int max, int *out, Error *err);

// The family of a file. False with err (exit 3) if there is none, if it is a draft head and
// is_draft is not set, or if the file has a part that the forward pass does not compute (recurrent
// layers, soft caps, ...), with the reason and an alternative.
bool family_read(Family *f, const Gguf *g, bool is_draft, Error *err);
// True for a tensor that is not one of the weights in model.h, but read elsewhere.
bool family_uses_tensor(const Family *f, Str name);
// The factor of the attention scores of a query:
// attn_scale (1 + temperature ln(1 + floor(pos / orig_context)))
float family_attn_scale(const Family *f, int head_dim, int pos);
bool family_has_rope(const Family *f, int layer);
// The supported context length of a file whose metadata gives max_context. A sliding window limits
// it to the size of the window, with a warning, because up to there the window has no effect.
int family_context(const Family *f, const Gguf *g, int max_context);
