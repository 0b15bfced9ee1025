// Rotary position embedding (RoPE; Su et al. 2021): frequencies, the scaling rules in use, the cis
// table, and the rotation.
//
// The first `dim` values of a head are dim/2 pairs (x[2i], x[2i+1]), read as complex numbers
// x[2i] + j x[2i+1]. At position p, pair i is multiplied by e^(j p f(i)), with the frequency
// f(i) = theta^(-2i/dim), possibly changed by a scaling rule. The dot product of a rotated query
// and a rotated key then depends only on the distance of their positions. Some families pair
// x[i] with x[i + dim/2] instead (family.h). docs/rope.md explains it with pictures.
#pragma once

#include "gguf/family.h"

// Scaling rules: how frequencies are changed for a context longer than the training context.
typedef enum {
    ROPE_NONE,    // f(i) = theta^(-2i/dim)
    ROPE_LINEAR,  // position interpolation (Chen et al. 2023): f / factor
    ROPE_NTK,     // NTK-aware: a greater theta, so that the lowest frequency is divided by factor
    ROPE_DYNAMIC, // NTK-aware with the factor that the current position needs
    ROPE_YARN,    // YaRN (Peng et al. 2023): by wavelength, with a factor on attention scores
    ROPE_LLAMA3,  // Llama 3.1: f for short wavelengths, f / factor for long ones, smoothed between
    ROPE_FILE     // f(i) / divisors[i], from the tensor rope_freqs.weight
} RopeRule;

typedef struct {
    int dim;             // rotated values of a head, even
    bool has_half_pairs; // pairs are (i, i + dim/2), not (2i, 2i + 1)
    RopeRule rule;
    double theta;                             // base of the frequencies
    double factor;                            // extension of the context, > 0; 1: none
    double low_freq_factor, high_freq_factor; // llama3: 1 and 4
    Yarn yarn;                                // yarn (family.h)
    int orig_ctx;                             // length of the context that `factor` extends
    const float *divisors;                    // (dim / 2) of ROPE_FILE, inside the mapped file
    bool has_divisors;                        // the rule applies to frequencies / divisors
} RopeParams;

// The cis table: cosine and sine of position * frequency, times `scale`.
typedef struct {
    RopeParams params;
    float *freqs; // (dim / 2) frequencies after scaling
    float scale;  // yarn: factor of cosine and sine; other rules: 1
    int n_positions;
    float *cos, *sin; // (n_positions, dim / 2)
} Rope;

// Names of the rules: "none", "linear", "ntk", "dynamic", "yarn", "llama3", "file"; -1 if unknown.
int rope_rule_from_name(Str name);
const char *rope_rule_name(RopeRule rule);

// Parameters without a model: no rule, theta 10000, and for a rule that is set later factor 8 over
// 8192 positions, as in Llama 3.1.
RopeParams rope_params_default(int dim);
// Reads the parameters from metadata (ARCHITECTURE.rope.*) and the tensor rope_freqs.weight. If the
// tensor has the divisors of Llama 3.1 or 3.2, the rule is ROPE_LLAMA3. False with err (exit 3) if
// a value is invalid.
bool rope_params_read(RopeParams *p, const Gguf *g, const Family *family, int head_dim, Error *err);
// Applies options of the command line; NULL and 0 keep the value. A factor alone means rule
// "linear" where the file has none. False with err (exit 2) if a value is invalid.
bool rope_params_override(RopeParams *p, const char *rule, double theta, double factor,
                          int orig_ctx, Error *err);

// Computes the frequencies; the table is empty.
void rope_init(Rope *rope, const RopeParams *params);
void rope_free(Rope *rope);
// Frequency of pair i at a position. Only ROPE_DYNAMIC depends on the position: it computes theta
// for a context that ends there, as in decoding token by token.
float rope_freq(const Rope *rope, int pos, int i);
// Computes cosine and sine of pair i at a position. Returns the angle (position * frequency) in
// radians.
float rope_cis(const Rope *rope, int pos, int i, float *c, float *s);
// Extends the table to n_positions (at most 2^30), on all threads. Must not be called inside a job
// (team.h).
void rope_reserve(Rope *rope, int n_positions);
// Rotates n_heads vectors of head_dim values in place for position pos, which must be in the table.
void rope_apply(const Rope *rope, float *vec, int n_heads, int head_dim, int pos);
