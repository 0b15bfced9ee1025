// Contents, in this order: the frequencies under each scaling rule, the parameters from file and
// command line, the cis table, and rope_apply(), which rotates.
//
// Invariant: frequencies and angles are those that the models were trained with. Meta's code
// computes them in float32, so every operation that is float32 there is rounded to float32 here;
// at position 131071 one bit of a frequency rotates a vector visibly. Powers, sines and cosines are
// computed in double and rounded once.
#include "rope.h"
#include "base/bits.h"

#include "kernels/ops.h"

#include <math.h>

enum { LLAMA3_CONTEXT = 8192 }; // context of Llama 3, which Llama 3.1 extends

static const char *const rule_names[] = {"none", "linear", "ntk", "dynamic",
                                         "yarn", "llama3", "file"};
enum { N_RULES = sizeof rule_names / sizeof *rule_names };

int rope_rule_from_name(Str name) {
    for (int i = 0; i < N_RULES; i++)
        if (str_is(name, rule_names[i])) return i;
    return -1;
}

const char *rope_rule_name(RopeRule rule) { return rule_names[rule]; }

// Frequencies. Low pairs rotate fast and distinguish adjacent positions; high pairs rotate slowly
// and distinguish near positions from far ones. Beyond the training context, the slow pairs would
// reach angles that did not occur in training; the scaling rules slow them down.

// f(i) = theta^(-2i/dim)
static float base_freq(double theta, int i, int dim) {
    float exponent = (float)(2 * i) / (float)dim;
    return 1.0f / (float)pow((double)(float)theta, (double)exponent);
}

// NTK-aware scaling: theta' = theta * factor^(dim / (dim - 2)) divides the frequency of the last
// pair by `factor` and keeps that of the first.
static double ntk_theta(double theta, double factor, int dim) {
    return dim > 2 ? theta * pow(factor, (double)dim / (dim - 2)) : theta;
}

// Llama 3.1, as in apply_scaling() of Meta's code. The result depends on the wavelength 2 pi / f:
//
//     f                                     below orig_ctx / high_freq_factor
//     f / factor                            above orig_ctx / low_freq_factor
//     (1 - s) f / factor + s f              between, with s from 1 to 0
//
// For Llama 3.1 8B (theta 500000, 128 values, factor 8 over 8192 positions) pairs 0 to 28 are kept,
// 29 to 34 are smoothed, and 35 to 63 are divided by 8.
static float llama3_freq(const RopeParams *p, float freq) {
    static const float two_pi = 6.2831853071795864769f;
    float orig = (float)p->orig_ctx, factor = (float)p->factor;
    float low = (float)p->low_freq_factor, high = (float)p->high_freq_factor;
    float wavelength = two_pi / freq;

    if (wavelength < (float)(p->orig_ctx / p->high_freq_factor)) return freq;
    if (wavelength > (float)(p->orig_ctx / p->low_freq_factor)) return freq / factor;

    float smooth = (orig / wavelength - low) / (high - low);
    float interpolated = (1 - smooth) * freq / factor, kept = smooth * freq;
    return interpolated + kept;
}

// Index (a real number) of the pair that makes `rotations` rotations over the original context.
static double yarn_pair(const RopeParams *p, double rotations) {
    return p->dim * log(p->orig_ctx / (rotations * 2 * M_PI)) / (2 * log(p->theta));
}

// YaRN (Peng et al. 2023, section 3.2): pairs that rotate more than beta_fast times over the
// original context are kept, pairs that rotate less than beta_slow times are divided by `factor`,
// and between them r rises linearly with the index of the pair from 0 to 1:
//
//     f (1 - r) + f / factor * r
static float yarn_freq(const RopeParams *p, float freq, int i) {
    float low = fmaxf((float)floor(yarn_pair(p, p->yarn.beta_fast)), 0);
    float high = fminf((float)ceil(yarn_pair(p, p->yarn.beta_slow)), (float)(p->dim - 1));
    float ramp = fminf(fmaxf(((float)i - low) / fmaxf(high - low, 0.001f), 0), 1);
    float kept = freq * (1 - ramp), interpolated = freq / (float)p->factor * ramp;
    return interpolated + kept;
}

// Frequency of pair i in a context of n positions. Only ROPE_DYNAMIC depends on n.
static float scaled_freq(const RopeParams *p, int i, int n) {
    double theta = p->theta;
    if (p->rule == ROPE_NTK) theta = ntk_theta(theta, p->factor, p->dim);
    if (p->rule == ROPE_DYNAMIC && n > p->orig_ctx)
        theta = ntk_theta(theta, p->factor * n / p->orig_ctx - (p->factor - 1), p->dim);

    float freq = base_freq(theta, i, p->dim);
    if (p->has_divisors) freq /= p->divisors[i];

    switch (p->rule) {
    case ROPE_LINEAR: return freq / (float)p->factor;
    case ROPE_YARN: return yarn_freq(p, freq, i);
    case ROPE_LLAMA3: return llama3_freq(p, freq);
    case ROPE_FILE: return freq / p->divisors[i];
    default: return freq;
    }
}

// YaRN multiplies attention scores by (0.1 ln(factor) + 1)^2: one factor through the cosines and
// sines of the query, one through those of the key. With a multiplier M (Mistral 3), the factor is
// divided by 0.1 M ln(factor) + 1.
static float attention_factor(const RopeParams *p) {
    const Yarn *yarn = &p->yarn;
    if (p->rule == ROPE_YARN && yarn->attn_factor > 0)
        return (float)(yarn->attn_factor * yarn->magnitude);

    bool has_formula = p->rule == ROPE_YARN && p->factor > 1;
    double log_factor = has_formula ? 0.1 * log(p->factor) : 0;
    double factor = (log_factor + 1) / (yarn->log_multiplier * log_factor + 1);
    return (float)(factor * yarn->magnitude);
}

// Parameters of a file: defaults, then rope.*, then rope.scaling.*, then the divisors. Names of
// keys are given without the architecture (family_key).

// Reads rope.scaling.*.
static bool read_scaling(RopeParams *p, const Gguf *g, Error *err) {
    FamilyKey type_key = family_key(g, "rope.scaling.type");
    const struct {
        const char *name;
        double *value;
    } keys[] = {{"rope.scale_linear", &p->factor}, // the older name of scaling.factor
                {"rope.scaling.factor", &p->factor},
                {"rope.scaling.low_freq_factor", &p->low_freq_factor},
                {"rope.scaling.high_freq_factor", &p->high_freq_factor}};

    // Read the numbers. All are optional.
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!family_number(g, keys[i].name, false, keys[i].value, err)) return false;
    if (p->low_freq_factor >= p->high_freq_factor)
        return gguf_refuse(g, err, "rope.scaling: frequency factors %g and %g are invalid",
                           p->low_freq_factor, p->high_freq_factor);

    if (p->factor != 1) p->rule = ROPE_LINEAR; // rule of a file that has a factor but no type
    if (!gguf_find_value(g, type_key.text)) return true;

    // The type is the name of a rule.
    Str type;
    if (!gguf_get_string(g, type_key.text, &type, err)) return false;
    int rule = rope_rule_from_name(type);
    if (rule < 0 || rule == ROPE_FILE)
        return gguf_refuse(g, err, "%s: unknown rule \"%.*s\"", type_key.text, SHOWN(type));
    p->rule = (RopeRule)rule;
    return true;
}

// True if the divisors equal the ones that the Llama 3.1 rule (p->rule) gives, up to rounding.
static bool is_llama3(const RopeParams *p) {
    for (int i = 0; i < p->dim / 2; i++) {
        float divisor = base_freq(p->theta, i, p->dim) / scaled_freq(p, i, 0);
        if (!(fabsf(divisor - p->divisors[i]) <= 1e-6f * divisor)) return false;
    }
    return p->factor > 1;
}

// Reads rope_freqs.weight. llama.cpp's converter writes the rule of Llama 3.1 as divisors; they are
// recognized and replaced by the rule, because dividing by a rounded divisor would miss the
// reference's frequencies in the last bit.
static bool read_divisors(RopeParams *p, const Gguf *g, Error *err) {
    static const char name[] = "rope_freqs.weight";
    const GgufTensor *t = gguf_find_tensor(g, name);
    if (!t) return true;

    if (t->type != TYPE_F32 || t->dims[0] != (uint64_t)p->dim / 2 ||
        t->bytes != (size_t)p->dim / 2 * sizeof(float) || (uintptr_t)t->data % sizeof(float))
        return gguf_refuse(g, err, "tensor %s: expected F32 (%d), found %s (%llu)", name,
                           p->dim / 2, type_info(t->type)->name, (unsigned long long)t->dims[0]);

    p->divisors = t->data;
    for (int i = 0; i < p->dim / 2; i++)
        if (!(p->divisors[i] > 1e-9f && p->divisors[i] < 1e9f))
            return gguf_refuse(g, err, "tensor %s: divisor %d: expected 1e-9 to 1e9, found %g",
                               name, i, (double)p->divisors[i]);

    // The Llama 3.1 rule from which the divisors may have been computed.
    RopeParams rule = *p;
    rule.rule = ROPE_LLAMA3;
    rule.factor = p->divisors[p->dim / 2 - 1];
    if (!gguf_find_value(g, family_key(g, "rope.scaling.original_context_length").text))
        rule.orig_ctx = LLAMA3_CONTEXT;

    if (p->rule != ROPE_NONE)
        p->has_divisors = true;
    else if (is_llama3(&rule))
        *p = rule;
    else
        p->rule = ROPE_FILE;

    return true;
}

RopeParams rope_params_default(int dim) {
    return (RopeParams){.dim = dim,
                        .theta = 10000,
                        .factor = 8,
                        .low_freq_factor = 1,
                        .high_freq_factor = 4,
                        .yarn = {.beta_fast = 32, .beta_slow = 1, .magnitude = 1},
                        .orig_ctx = LLAMA3_CONTEXT};
}

bool rope_params_read(RopeParams *p, const Gguf *g, const Family *family, int head_dim,
                      Error *err) {
    *p = rope_params_default(head_dim);
    p->has_half_pairs = family->has_half_pairs;
    p->yarn = family->yarn;
    p->factor = 1;
    p->orig_ctx = (int)family->orig_context;

    // Rotated dimensions and base frequency.
    double dim = head_dim;
    if (!family_number(g, "rope.dimension_count", false, &dim, err) ||
        !family_number(g, "rope.freq_base", false, &p->theta, err))
        return false;
    if (dim > head_dim || dim != 2 * floor(dim / 2))
        return gguf_refuse(g, err, "%s: expected an even number up to %d, found %g",
                           family_key(g, "rope.dimension_count").text, head_dim, dim);
    if (p->theta <= 1)
        return gguf_refuse(g, err, "%s: expected more than 1, found %g",
                           family_key(g, "rope.freq_base").text, p->theta);
    p->dim = (int)dim;

    // Metadata of the Llama 3.1 rule is exact, divisors are rounded.
    if (!read_scaling(p, g, err)) return false;
    return p->rule == ROPE_LLAMA3 || read_divisors(p, g, err);
}

bool rope_params_override(RopeParams *p, const char *rule, double theta, double factor,
                          int orig_ctx, Error *err) {
    if (theta > 0) p->theta = theta;
    if (orig_ctx > 0) p->orig_ctx = orig_ctx;
    if (factor > 0) p->factor = factor;
    if (factor > 0 && p->rule == ROPE_NONE) p->rule = ROPE_LINEAR;

    if (rule) {
        int found = rope_rule_from_name(str_of(rule));
        if (found < 0)
            return error_set(err, EXIT_USAGE, "--rope-scaling: unknown rule \"%s\"", rule);
        p->rule = (RopeRule)found;
        p->has_divisors = false;
    }

    if (p->rule == ROPE_FILE && !p->divisors)
        return error_set(err, EXIT_USAGE, "--rope-scaling file: the file has no rope_freqs.weight");
    if (p->theta <= 1)
        return error_set(err, EXIT_USAGE, "--rope-theta: expected more than 1, found %g", p->theta);

    return true;
}

// The cis table. Every layer and head needs the same cosines and sines of a position, so they are
// computed once. The table grows with the longest sequence.

void rope_init(Rope *rope, const RopeParams *params) {
    *rope = (Rope){.params = *params, .freqs = xalloc((size_t)params->dim / 2, sizeof(float))};
    rope->scale = attention_factor(params);
    for (int i = 0; i < params->dim / 2; i++) rope->freqs[i] = scaled_freq(params, i, 0);
}

void rope_free(Rope *rope) {
    free(rope->freqs);
    free(rope->cos);
    free(rope->sin);
    *rope = (Rope){0};
}

float rope_freq(const Rope *rope, int pos, int i) {
    const RopeParams *p = &rope->params;
    return p->rule == ROPE_DYNAMIC && pos >= p->orig_ctx ? scaled_freq(p, i, pos + 1)
                                                         : rope->freqs[i];
}

float rope_cis(const Rope *rope, int pos, int i, float *c, float *s) {
    float angle = (float)pos * rope_freq(rope, pos, i);
    *c = (float)cos((double)angle) * rope->scale;
    *s = (float)sin((double)angle) * rope->scale;
    return angle;
}

// Rows [first, end) of the table, which fill_rows() computes.
typedef struct {
    Rope *rope;
    int first, end;
} CisRows;

static void fill_row(void *arg, int index) {
    const CisRows *rows = arg;
    const Rope *rope = rows->rope;
    int half = rope->params.dim / 2, pos = rows->first + index;
    float *c = rope->cos + (size_t)pos * half, *s = rope->sin + (size_t)pos * half;
    for (int i = 0; i < half; i++) rope_cis(rope, pos, i, &c[i], &s[i]);
}

static void fill_rows(void *arg) {
    enum { ROWS_PER_ITEM = 16 }; // for heads of 128: 1024 cosines and 1024 sines
    const CisRows *rows = arg;
    ops_for(rows->end - rows->first, ROWS_PER_ITEM, fill_row, arg);
}

void rope_reserve(Rope *rope, int n_positions) {
    enum { STEP = 256 }; // rows that the table grows by, so that decoding rarely copies it
    if (n_positions <= rope->n_positions) return;

    size_t row_bytes = (size_t)(rope->params.dim / 2) * sizeof(float);
    int n = round_up(n_positions, STEP);
    rope->cos = xrealloc(rope->cos, (size_t)n, row_bytes);
    rope->sin = xrealloc(rope->sin, (size_t)n, row_bytes);

    CisRows rows = {rope, rope->n_positions, n};
    team_run(INT32_MAX, fill_rows, &rows);
    rope->n_positions = n;
}

void rope_apply(const Rope *rope, float *vec, int n_heads, int head_dim, int pos) {
    bool is_half = rope->params.has_half_pairs;
    int half = rope->params.dim / 2, step = is_half ? 1 : 2, apart = is_half ? half : 1;
    const float *c = rope->cos + (size_t)pos * half, *s = rope->sin + (size_t)pos * half;

    for (int h = 0; h < n_heads; h++, vec += head_dim)
        for (int i = 0; i < half; i++) {
            float re = vec[step * i], im = vec[step * i + apart]; // (re + j im) (c + j s)
            vec[step * i] = re * c[i] - im * s[i];
            vec[step * i + apart] = re * s[i] + im * c[i];
        }
}
