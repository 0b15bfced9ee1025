// Rotary position embedding (Su et al. 2021): frequencies, every scaling rule in use, the cis
// table, the rotation.
#ifndef ROPE_H
#define ROPE_H

#include "gguf.h"

typedef enum {
    ROPE_NONE,    // theta^(-2i/d)
    ROPE_LINEAR,  // position interpolation (Chen et al. 2023): frequencies / factor
    ROPE_NTK,     // NTK-aware base change
    ROPE_DYNAMIC, // dynamic NTK: beyond the original context the base follows the position
    ROPE_YARN,    // YaRN (Peng et al. 2023), with its attention factor
    ROPE_LLAMA3,  // Llama 3.1: long wavelengths / factor, short kept, between them smoothed
    ROPE_FILE     // frequencies / the divisors the file brings (rope_freqs.weight)
} RopeRule;

typedef struct {
    int dim; // rotated values per head, even
    RopeRule rule;
    double theta;                             // base
    double factor;                            // context extension, > 0; 1 = none
    double low_freq_factor, high_freq_factor; // llama3: 1 and 4
    double beta_fast, beta_slow;              // yarn: 32 and 1
    double attn_factor;                       // yarn; 0 = by its formula
    int orig_ctx;                             // context the model was trained with before scaling
    const float *divisors;                    // (dim / 2), rule ROPE_FILE; not owned
} RopeParams;

// Precomputed cos and sin of position * frequency, shape (n_positions, dim / 2), float32.
typedef struct {
    RopeParams params;
    int n_positions;
    float *freqs; // (dim / 2), float32, after scaling
    float scale;  // of cos and sin: yarn's attention factor, else 1
    float *cos, *sin;
} Rope;

// Name <-> rule ("none", "linear", "ntk", "dynamic", "yarn", "llama3", "file"); -1 if unknown.
int rope_rule_from_name(const char *name);
const char *rope_rule_name(RopeRule rule);

// Parameters of no model: no scaling, theta 10000 (the paper's); should a rule be set, factor 8 of
// 8192 positions, as in Llama 3.1.
RopeParams rope_params_default(int dim);
// Reads theta, rule and its figures from GGUF metadata (prefix "llama."). rope_freqs.weight, where
// present, is rule ROPE_FILE, or ROPE_LLAMA3 if it holds the divisors of Llama 3.1's or 3.2's
// release. False with err (exit 3) on a value no model can have.
bool rope_params_read(RopeParams *p, const Gguf *g, int head_dim, Error *err);
// What the command line says instead: rule (NULL: keep), theta, factor and original context (0:
// keep). A factor without a rule, where there is none, is linear. False with err (exit 2) if the
// rule is unknown or impossible.
bool rope_params_override(RopeParams *p, const char *rule, double theta, double factor,
                          int orig_ctx, Error *err);

// Computes the frequencies; the table starts empty.
void rope_init(Rope *rope, const RopeParams *params);
void rope_free(Rope *rope);
// Frequency of pair i at a position. Dynamic: each row has the base of the context that ends there,
// as when decoding token by token, whatever the table's length.
float rope_freq(const Rope *rope, int pos, int i);
// One entry of the table, which need not hold it: returns the angle, position * frequency in
// radians.
float rope_cis(const Rope *rope, int pos, int i, float *c, float *s);
// Makes the table cover at least n_positions (parallel). Not while another thread reads it.
void rope_reserve(Rope *rope, int n_positions);
// Rotates n_heads vectors of head_dim values in place, as position pos: the first `dim` values of
// each are dim/2 complex numbers (adjacent pairs), multiplied by cis[pos].
void rope_apply(const Rope *rope, float *vec, int n_heads, int head_dim, int pos);

#endif
