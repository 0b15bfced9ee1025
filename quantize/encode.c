// Encoders: they search for the integers and scales of a block that minimize the weighted squared
// error
//
//     E = sum_i c_i (s q_i - m - x_i)^2
//
// of weights x_i, decoded as s q_i - m, with costs c_i: the importance of the columns or, without
// an importance matrix, rms(group) + |x_i|. The method follows ggml-quants.c in llama.cpp
// (make_qx_quants, make_qkx2_quants), with different trials:
//
//   Rounding (F16, BF16, Q8_0). To nearest; no search.
//
//   Weighted least squares (Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL). A few values of 1/s are tried. Each
//   gives integers by rounding, and these give the best s and m in closed form (see try_scales).
//   The trial with the smallest E wins.
//
//   k-quants (Q2_K to Q6_K, IQ4_XS). The groups of a superblock are fitted likewise; then s and m
//   become small integers times a float16 d (dmin) of the superblock. The neighbors of the rounded
//   integers are tried too. Types below 4 bits then fit d and dmin again to the integers.
//
//   Codebook search (IQ2_S, IQ3_XXS, IQ3_S): encode_codebook.c.
//
// LANES groups are fitted side by side in transposed arrays, so that every loop over lanes is a
// vector loop on any machine. A sum runs over one group in row order, so the bytes do not depend on
// the vector width.
//
// The trials were chosen by the error that remains in products: sum (error * rms of the column's
// inputs on English text)^2 over 8 matrices of TinyLlama 1.1B. More trials gain less than 0.5 %.
#include "quantize/encode.h"
#include "quantize/encode_codebook.h"
#include "kernels/load.h"
#include "kernels/blocks.h"

#include <float.h>
#include <math.h>

enum { LANES = 16, MAX_GROUP = 32 };

// The signs that the minimum m of a type can have. k-quants store m without a sign.
typedef enum { NO_MIN, MIN_NOT_NEGATIVE, MIN_OF_ANY_SIGN } MinSign;

// The levels of a type: the values that q can have, and the minimum.
typedef struct {
    float lo, hi;
    MinSign min_sign;
    bool is_iq4; // q is one of the 16 values of kvalues_iq4nl instead of any integer lo..hi
} QuantLevels;

// LANES groups of n weights, transposed, with their best fit so far.
typedef struct {
    int n;
    float x[MAX_GROUP][LANES], cost[MAX_GROUP][LANES];
    float low[LANES], high[LANES];     // range of the weights and, unless m can be negative, 0
    float sum_c[LANES], sum_cx[LANES]; // sums of c and c x
    float scale[LANES], min[LANES];    // s and m
    float gain[LANES];                 // E with all weights decoded as 0, minus E of this fit
    uint8_t q[LANES * MAX_GROUP];      // result: levels, counted from the lowest, in row order
} WeightGroups;

// Loads n_groups groups of n weights, and sets their costs. Alternatives that were measured: costs
// of 0.3 rms^2 + x^2 instead of rms + |x| leave 3 % (Q6_K) to 15 % (Q2_K) more error in products;
// constant costs, between 6 % less (Q2_K) and 1 % more (Q4_K). Importance times (rms + |x|) is
// worse than importance alone: TinyLlama as Q3_K_M has 8 % more KL divergence.
static void groups_load(WeightGroups *restrict f, MinSign min_sign, int n, int n_groups,
                        const float *restrict x, const float *importance) {
    float square[LANES] = {0}, rms[LANES];
    *f = (WeightGroups){.n = n};

    for (int g = 0; g < n_groups; g++)
        for (int i = 0; i < n; i++) f->x[i][g] = x[g * n + i];

    // Range and root mean square. The range includes 0, unless the minimum may have any sign.
    if (min_sign == MIN_OF_ANY_SIGN)
        for (int g = 0; g < LANES; g++) f->low[g] = f->high[g] = f->x[0][g];
    for (int i = 0; i < n; i++)
        for (int g = 0; g < LANES; g++) {
            float v = f->x[i][g];
            square[g] += v * v;
            f->low[g] = v < f->low[g] ? v : f->low[g];
            f->high[g] = v > f->high[g] ? v : f->high[g];
        }

    for (int g = 0; g < LANES; g++) rms[g] = sqrtf(square[g] / (float)n);

    // Costs: the importance of the columns or, without an importance matrix, rms + |x|.
    if (importance) {
        for (int g = 0; g < n_groups; g++)
            for (int i = 0; i < n; i++) f->cost[i][g] = importance[g * n + i];
    } else {
        for (int i = 0; i < n; i++)
            for (int g = 0; g < LANES; g++) f->cost[i][g] = rms[g] + fabsf(f->x[i][g]);
    }

    for (int i = 0; i < n; i++)
        for (int g = 0; g < LANES; g++) {
            f->sum_c[g] += f->cost[i][g];
            f->sum_cx[g] += f->cost[i][g] * f->x[i][g];
        }
}

// Midpoints between the values of kvalues_iq4nl, and the differences of neighboring values.
static const float iq4_midpoints[15] = {-115.5f, -93.5f, -74,   -57,   -42, -28.5f, -16, -4.5f,
                                        7,       19,     31.5f, 45.5f, 61,  79,     101};
static const float iq4_steps[15] = {23, 21, 18, 16, 14, 13, 12, 11, 12, 12, 13, 15, 16, 20, 24};

static inline float nearest_level(float v, float lo, float hi, bool is_iq4) {
    if (is_iq4) {
        float level = -127;
        for (int k = 0; k < 15; k++) level += v > iq4_midpoints[k] ? iq4_steps[k] : 0;
        return level;
    }

    const float magic = 12582912; // 1.5 * 2^23: adding it rounds to an integer
    v = v > lo ? v : lo;
    v = v < hi ? v : hi;
    return (v + magic) - magic;
}

// True if float16 can represent f with full precision: neither denormal nor overflow.
static bool is_normal_f16(float f) { return fabsf(f) >= 0x1p-14f && fabsf(f) < 65504; }

// 1 / x, or 0 where that could overflow.
static inline float inverse(float x) { return fabsf(x) > 1e-30f ? 1 / x : 0; }

// Computes inv = 1 / s and base = m / s, so that q = round(x inv + base). Both are 0 where s is 0.
static void invert_scales(const float *scale, const float *min, float *inv, float *base) {
    for (int g = 0; g < LANES; g++) {
        inv[g] = inverse(scale[g]);
        base[g] = min[g] * inv[g];
    }
}

// Sums of c q, c q^2 and c q x over each group.
typedef struct {
    float q[LANES], qq[LANES], qx[LANES];
} LevelSums;

static inline void sum_levels_of(const WeightGroups *restrict f, float lo, float hi, bool is_iq4,
                                 const float *restrict inv, const float *restrict base,
                                 LevelSums *restrict out) {
    *out = (LevelSums){0};
    for (int i = 0; i < f->n; i++)
        for (int g = 0; g < LANES; g++) {
            float v = nearest_level(f->x[i][g] * inv[g] + base[g], lo, hi, is_iq4);
            float cv = f->cost[i][g] * v;
            out->q[g] += cv;
            out->qq[g] += cv * v;
            out->qx[g] += cv * f->x[i][g];
        }
}

MULTIVERSION static void sum_levels(const WeightGroups *f, const QuantLevels *levels,
                                    const float *inv, const float *base, LevelSums *out) {
    if (levels->is_iq4)
        sum_levels_of(f, 0, 0, true, inv, base, out);
    else
        sum_levels_of(f, levels->lo, levels->hi, false, inv, base, out);
}

// Improves the fit by a trial with the scales 1 / inv. Its integers give the normal equations of s
// and m:
//
//     s sum c q^2 - m sum c q = sum c q x
//     s sum c q   - m sum c   = sum c x
//
// and a gain of s sum c q x - m sum c x. With m = 0 they give s = sum c q x / sum c q^2.
static void try_scales(WeightGroups *f, const QuantLevels *levels, const float *inv,
                       const float *base) {
    LevelSums s;
    sum_levels(f, levels, inv, base, &s);

    for (int g = 0; g < LANES; g++) {
        // Solve the two normal equations.
        float all = f->sum_c[g] * s.qq[g];
        float det = all - s.q[g] * s.q[g];
        float r = det > 1e-5f * all ? 1 / det : 0;
        float alone = s.qq[g] > 0 ? s.qx[g] / s.qq[g] : 0; // s if m = 0
        float scale = (f->sum_c[g] * s.qx[g] - f->sum_cx[g] * s.q[g]) * r;
        float min = (s.q[g] * s.qx[g] - s.qq[g] * f->sum_cx[g]) * r;
        bool is_alone = r <= 0 || levels->min_sign == NO_MIN ||
                        (levels->min_sign == MIN_NOT_NEGATIVE && min < 0);
        scale = is_alone ? alone : scale;
        min = is_alone ? 0 : min;

        float gain = scale * s.qx[g] - min * f->sum_cx[g];
        bool is_better = gain > f->gain[g];
        f->gain[g] = is_better ? gain : f->gain[g];
        f->scale[g] = is_better ? scale : f->scale[g];
        f->min[g] = is_better ? min : f->min[g];
    }
}

// Fits s and m. The trials divide the range of the weights into hi - 1 to hi + 1 steps.
static void fit_affine(WeightGroups *f, const QuantLevels *levels) {
    enum { TRIALS = 6 }; // 4 leave 0.6 % more error (Q4_K)
    float inv[LANES], base[LANES], per_range[LANES];
    for (int g = 0; g < LANES; g++) {
        per_range[g] = inverse(f->high[g] - f->low[g]);
        float mean = f->sum_c[g] > 0 ? f->sum_cx[g] / f->sum_c[g] : 0; // the fit with s = 0
        f->min[g] = mean < 0 || levels->min_sign == MIN_OF_ANY_SIGN ? -mean : 0;
        f->gain[g] = -f->min[g] * f->sum_cx[g];
    }

    for (int trial = 0; trial < TRIALS; trial++) {
        for (int g = 0; g < LANES; g++) {
            inv[g] = per_range[g] * (levels->hi - 1 + 2.0f / (TRIALS - 1) * (float)trial);
            base[g] = -f->low[g] * inv[g];
        }
        try_scales(f, levels, inv, base);
    }
}

// Fits s, of either sign, without m. The trials map the weight of largest magnitude to n_trials
// levels between lo - reach and lo + reach, and to as many around hi.
static void fit_symmetric(WeightGroups *f, const QuantLevels *levels, float reach, int n_trials) {
    static const float zero[LANES];
    float inv[LANES];
    for (int trial = 0; trial < 2 * n_trials; trial++) {
        float level = (trial % 2 ? levels->hi : levels->lo) +
                      reach * (2 * (float)(trial / 2) / (float)(n_trials - 1) - 1);
        for (int g = 0; g < LANES; g++) {
            float extreme = f->high[g] > -f->low[g] ? f->high[g] : f->low[g];
            inv[g] = inverse(extreme) * level;
        }
        try_scales(f, levels, inv, zero);
    }
}

// k-quants: scales and minima as integers

// Scales or minima as they are stored: integers lo..hi times a float16 d (or dmin) per superblock.
// Blocks of one group have no integers.
typedef struct {
    float value[LANES], unit[LANES]; // of each group: the integer, and d as float32
    float lo, hi;
    uint16_t d[LANES]; // of each block
} StoredScales;

// Rounds scales to integers lo..hi. d is chosen so that the scale of largest magnitude becomes lo
// (hi if lo is 0). Its magnitude is rounded up to float16, so no integer exceeds this bound, even
// if d is denormal.
static void stored_init(StoredScales *s, int groups_per_block, const float *wanted, float lo,
                        float hi) {
    float largest = lo < 0 ? lo : hi;
    s->lo = lo;
    s->hi = hi;

    for (int first = 0; first < LANES; first += groups_per_block) {
        uint16_t *d = &s->d[first / groups_per_block];
        float extreme = 0;
        for (int g = first; g < first + groups_per_block; g++)
            if (fabsf(wanted[g]) > fabsf(extreme)) extreme = wanted[g];
        *d = f32_to_f16(extreme / largest);
        if (fabsf(f16_to_f32(*d)) < fabsf(extreme / largest) && (*d & 0x7fff) < 0x7bff) ++*d;
        for (int g = first; g < first + groups_per_block; g++) s->unit[g] = f16_to_f32(*d);
    }

    for (int g = 0; g < LANES; g++)
        s->value[g] = fabsf(s->unit[g]) > 0 ? rintf(wanted[g] / s->unit[g]) : 0;
}

// Computes the stored integers plus an offset, limited to lo..hi, and the scales that they give.
static void stored_at(const StoredScales *s, int offset, float *value, float *scale) {
    for (int g = 0; g < LANES; g++) {
        float v = s->value[g] + (float)offset;
        v = v > s->lo ? v : s->lo;
        v = v < s->hi ? v : s->hi;
        value[g] = v;
        scale[g] = v * s->unit[g];
    }
}

static inline void group_errors_of(const WeightGroups *restrict f, float lo, float hi, bool is_iq4,
                                   const float *restrict scale, const float *restrict min,
                                   float *restrict out) {
    float inv[LANES], base[LANES], e[LANES] = {0};
    invert_scales(scale, min, inv, base);
    for (int i = 0; i < f->n; i++)
        for (int g = 0; g < LANES; g++) {
            float v = nearest_level(f->x[i][g] * inv[g] + base[g], lo, hi, is_iq4);
            float r = (scale[g] * v - min[g]) - f->x[i][g];
            e[g] += f->cost[i][g] * (r * r);
        }
    memcpy(out, e, sizeof e);
}

// Computes E of each group, with the weights as they will be decoded.
MULTIVERSION static void group_errors(const WeightGroups *f, const QuantLevels *levels,
                                      const float *scale, const float *min, float *out) {
    if (levels->is_iq4)
        group_errors_of(f, 0, 0, true, scale, min, out);
    else
        group_errors_of(f, levels->lo, levels->hi, false, scale, min, out);
}

// Chooses the integer scale and minimum of each group among the rounded integers and their
// neighbors. Types without a minimum have min->hi 0.
static void choose_stored(WeightGroups *f, const QuantLevels *levels, StoredScales *scale,
                          StoredScales *min) {
    float s[LANES], m[LANES], real_s[LANES], real_m[LANES], e[LANES]; // a candidate; e: E
    float best_s[LANES], best_m[LANES], best[LANES];                  // the best candidate; best: E
    int reach = min->hi > 0;

    for (int g = 0; g < LANES; g++) {
        best[g] = FLT_MAX;
        best_s[g] = best_m[g] = 0;
    }

    for (int a = -1; a <= 1; a++)
        for (int b = -reach; b <= reach; b++) {
            stored_at(scale, a, s, real_s);
            stored_at(min, b, m, real_m);
            group_errors(f, levels, real_s, real_m, e);

            for (int g = 0; g < LANES; g++) {
                bool is_better = e[g] < best[g];
                best[g] = is_better ? e[g] : best[g];
                best_s[g] = is_better ? s[g] : best_s[g];
                best_m[g] = is_better ? m[g] : best_m[g];
            }
        }

    memcpy(scale->value, best_s, sizeof best_s);
    memcpy(min->value, best_m, sizeof best_m);
    for (int g = 0; g < LANES; g++) {
        f->scale[g] = best_s[g] * scale->unit[g];
        f->min[g] = best_m[g] * min->unit[g];
    }
}

// Fits d and dmin of each superblock to its integers: weighted least squares of d a q - dmin b over
// all groups, where a and b are the integer scale and minimum of a group. Keeps the old values if
// float16 cannot represent the new ones with full precision.
static void refit_units(WeightGroups *f, const QuantLevels *levels, StoredScales *scale,
                        StoredScales *min, int groups_per_block) {
    float inv[LANES], base[LANES];
    LevelSums s;
    invert_scales(f->scale, f->min, inv, base);
    sum_levels(f, levels, inv, base, &s);

    for (int first = 0; first < LANES; first += groups_per_block) {
        int block = first / groups_per_block;
        float ss = 0, sm = 0, mm = 0, sx = 0, mx = 0;

        // The coefficients of the normal equations, summed over the groups of the block.
        for (int g = first; g < first + groups_per_block; g++) {
            float a = scale->value[g], b = min->value[g];
            ss += a * a * s.qq[g];
            sm += a * b * s.q[g];
            mm += b * b * f->sum_c[g];
            sx += a * s.qx[g];
            mx += b * f->sum_cx[g];
        }

        float det = ss * mm - sm * sm;
        float unit = ss > 0 ? sx / ss : 0;
        float unit_min = 0;
        if (det > 1e-5f * ss * mm) {
            unit = (sx * mm - mx * sm) / det;
            unit_min = (sx * sm - mx * ss) / det;
        }
        if (!is_normal_f16(unit) || (mm > 0 && !(unit_min > 0 && is_normal_f16(unit_min))))
            continue;

        scale->d[block] = f32_to_f16(unit);
        min->d[block] = f32_to_f16(unit_min);
        for (int g = first; g < first + groups_per_block; g++) {
            scale->unit[g] = f16_to_f32(scale->d[block]);
            min->unit[g] = f16_to_f32(min->d[block]);
            f->scale[g] = scale->value[g] * scale->unit[g];
            f->min[g] = min->value[g] * min->unit[g];
        }
    }
}

// Sets q from the final s and m.
static void round_weights(WeightGroups *f, const QuantLevels *levels) {
    float inv[LANES], base[LANES];
    invert_scales(f->scale, f->min, inv, base);

    const float lo = levels->lo, hi = levels->hi;
    for (int i = 0; i < f->n; i++)
        for (int g = 0; g < LANES; g++) {
            float v = f->x[i][g] * inv[g] + base[g];
            int q = 0;
            if (levels->is_iq4)
                for (int k = 0; k < 15; k++) q += v > iq4_midpoints[k];
            else
                q = (int)(nearest_level(v, lo, hi, false) - lo);
            f->q[g * f->n + i] = (uint8_t)q;
        }
}

// Packing: the layouts are drawn in kernels/blocks.h

typedef struct {
    Type type;
    const uint8_t *q;         // levels, counted from the lowest, in row order
    const float *scale, *min; // of each group: integers
    uint16_t d, dmin;         // float16; dmin is m in blocks of 32
} EncodedBlock;

static void pack_nibbles(uint8_t *qs, const uint8_t *q) {
    for (int i = 0; i < 16; i++) qs[i] = (uint8_t)((q[i] & 15) | q[i + 16] << 4);
}

// Blocks of 32: d, m if the type has one, the fifth bits of Q5_0 and Q5_1, the low nibbles.
static void pack_block32(const EncodedBlock *e, void *block) {
    uint8_t *out = block;
    memcpy(out, &e->d, sizeof e->d);
    out += sizeof e->d;
    if (type_info(e->type)->has_min) {
        memcpy(out, &e->dmin, sizeof e->dmin);
        out += sizeof e->dmin;
    }
    if (e->type == TYPE_Q5_0 || e->type == TYPE_Q5_1) {
        memset(out, 0, 4);
        for (int i = 0; i < 32; i++) out[i / 8] |= (uint8_t)(e->q[i] >> 4 << i % 8);
        out += 4;
    }
    pack_nibbles(out, e->q);
}

// Types of bit fields (bit_layout). The fields of the block must be 0.
static void pack_bit_fields(const EncodedBlock *e, void *block) {
    const BitLayout *b = bit_layout(e->type);
    uint8_t *out = block;
    for (int i = 0; i < 256; i++) {
        const BitPlace low = low_bits_place(b, i / 32);
        out[low.at + i % 32] |= (uint8_t)((e->q[i] & ((1 << b->low_bits) - 1)) << low.shift);
        if (!b->high_bits) continue;

        const BitPlace high = high_bits_place(b, i / 32);
        out[high.at + i % 32] |= (uint8_t)(e->q[i] >> b->low_bits << high.shift);
    }
}

static void pack_q2_k(const EncodedBlock *e, void *block) {
    BlockQ2_K *b = block;
    memset(b, 0, sizeof *b);
    b->d = e->d;
    b->dmin = e->dmin;
    for (int g = 0; g < 16; g++) b->scales[g] = (uint8_t)((int)e->scale[g] | (int)e->min[g] << 4);
    pack_bit_fields(e, block);
}

static void pack_q3_k(const EncodedBlock *e, void *block) {
    BlockQ3_K *b = block;
    memset(b, 0, sizeof *b);
    b->d = e->d;
    for (int g = 0; g < 16; g++) {
        int s = (int)e->scale[g] + 32;
        b->scales[g % 8] |= (uint8_t)((s & 15) << g / 8 * 4);
        b->scales[8 + g % 4] |= (uint8_t)(s >> 4 << g / 4 * 2);
    }
    pack_bit_fields(e, block);
}

static void pack_q45_k(const EncodedBlock *e, void *block) {
    BlockQ4_K *b = block; // a BlockQ5_K begins with the same fields
    memset(block, 0, (size_t)type_info(e->type)->bytes);
    b->d = e->d;
    b->dmin = e->dmin;

    // Scales and minima, 6 bits each. The upper 2 bits of groups 4 to 7 are stored in the bytes of
    // groups 0 to 3.
    for (int g = 0; g < 4; g++) {
        int s = (int)e->scale[g + 4];
        int m = (int)e->min[g + 4];
        b->scales[g] = (uint8_t)((int)e->scale[g] | s >> 4 << 6);
        b->scales[g + 4] = (uint8_t)((int)e->min[g] | m >> 4 << 6);
        b->scales[g + 8] = (uint8_t)((s & 15) | (m & 15) << 4);
    }

    pack_bit_fields(e, block);
}

static void pack_q6_k(const EncodedBlock *e, void *block) {
    BlockQ6_K *b = block;
    memset(b, 0, sizeof *b);
    b->d = e->d;
    for (int g = 0; g < 16; g++) b->scales[g] = (int8_t)e->scale[g];
    pack_bit_fields(e, block);
}

static void pack_iq4_xs(const EncodedBlock *e, void *block) {
    BlockIQ4_XS *b = block;
    memset(b, 0, sizeof *b);
    b->d = e->d;
    for (int g = 0; g < 8; g++) {
        int s = (int)e->scale[g] + 32;
        b->scales_l[g / 2] |= (uint8_t)((s & 15) << g % 2 * 4);
        b->scales_h |= (uint16_t)(s >> 4 << 2 * g);
        pack_nibbles(b->qs + 16 * g, e->q + 32 * g);
    }
}

// The types

typedef struct {
    void (*pack)(const EncodedBlock *e, void *block);
    int group; // weights that share s and m
    QuantLevels levels;
    float reach;       // of fit_symmetric
    int n_trials;      // of fit_symmetric
    float lo, hi;      // integers of the stored scales; 0 and 0: blocks of one group
    bool refits_units; // d and dmin are fitted again
    // Encodes a superblock in the place of the fit above and of `pack`.
    bool (*search)(Type type, const float *x, const float *cost, void *block);
} QuantEncoder;

// clang-format off
static const QuantEncoder encoders[TYPE_COUNT] = {
    //                  pack     group    levels                              reach trials  lo hi    refit  search
    [TYPE_Q4_0]    = {pack_block32, 32, {-8, 7, NO_MIN, false},             0.6f, 3,    0, 0,     false, NULL},
    [TYPE_Q4_1]    = {pack_block32, 32, {0, 15, MIN_OF_ANY_SIGN, false},    0, 0,       0, 0,     false, NULL},
    [TYPE_Q5_0]    = {pack_block32, 32, {-16, 15, NO_MIN, false},           0.6f, 3,    0, 0,     false, NULL},
    [TYPE_Q5_1]    = {pack_block32, 32, {0, 31, MIN_OF_ANY_SIGN, false},    0, 0,       0, 0,     false, NULL},
    [TYPE_IQ4_NL]  = {pack_block32, 32, {-127, 113, NO_MIN, true},          7, 7,       0, 0,     false, NULL},
    [TYPE_Q2_K]    = {pack_q2_k,    16, {0, 3, MIN_NOT_NEGATIVE, false},    0, 0,       0, 15,    true, NULL},
    [TYPE_Q3_K]    = {pack_q3_k,    16, {-4, 3, NO_MIN, false},             0.9f, 4,    -32, 31,  true, NULL},
    [TYPE_Q4_K]    = {pack_q45_k,   32, {0, 15, MIN_NOT_NEGATIVE, false},   0, 0,       0, 63,    false, NULL},
    [TYPE_Q5_K]    = {pack_q45_k,   32, {0, 31, MIN_NOT_NEGATIVE, false},   0, 0,       0, 63,    false, NULL},
    [TYPE_Q6_K]    = {pack_q6_k,    16, {-32, 31, NO_MIN, false},           0.9f, 4,    -128, 127, false, NULL},
    [TYPE_IQ4_XS]  = {pack_iq4_xs,  32, {-127, 113, NO_MIN, true},          7, 7,       -32, 31,  false, NULL},
    [TYPE_IQ3_S]   = {.group = 32, .search = encode_codebook},
    [TYPE_IQ3_XXS] = {.group = 32, .search = encode_codebook},
    [TYPE_IQ2_S]   = {.group = 16, .search = encode_codebook},
};
// clang-format on

// Fits LANES groups.
static void fit_groups(WeightGroups *f, const QuantEncoder *e, int groups_per_block,
                       StoredScales *scale, StoredScales *min) {
    const QuantLevels *levels = &e->levels;
    bool has_min = levels->min_sign != NO_MIN;
    float inv[LANES], base[LANES];

    // Fit scales and minima as real numbers.
    if (has_min)
        fit_affine(f, levels);
    else
        fit_symmetric(f, levels, e->reach, e->n_trials);
    invert_scales(f->scale, f->min, inv, base); // once more, from the best s and m
    try_scales(f, levels, inv, base);

    // Round them to what is stored: integers times d and dmin of a superblock or, in blocks of one
    // group, float16 numbers.
    if (groups_per_block > 1) {
        stored_init(scale, groups_per_block, f->scale, e->lo, e->hi);
        if (has_min) stored_init(min, groups_per_block, f->min, e->lo, e->hi);
        choose_stored(f, levels, scale, min);
        if (e->refits_units) refit_units(f, levels, scale, min, groups_per_block);
    } else {
        for (int g = 0; g < LANES; g++) {
            scale->d[g] = f32_to_f16(f->scale[g]);
            if (has_min) min->d[g] = f32_to_f16(-f->min[g]);
            f->scale[g] = f16_to_f32(scale->d[g]);
            f->min[g] = -f16_to_f32(min->d[g]);
        }
    }

    round_weights(f, levels);
}

// Encodes LANES groups, or those of the last n_blocks blocks, by fit and rounding. False if a scale
// does not fit in float16. NaN and infinity are harmless until then: they lose every comparison,
// and they stay within their block.
static bool encode_by_fit(WeightGroups *f, Type type, int n_blocks, uint8_t *out) {
    const QuantEncoder *e = &encoders[type];
    int block = type_info(type)->block, groups_per_block = block / f->n;
    StoredScales scale = {0}, min = {0};

    fit_groups(f, e, groups_per_block, &scale, &min);
    for (int k = 0; k < n_blocks; k++, out += type_info(type)->bytes) {
        int first = k * groups_per_block;
        if (!f16_is_finite(scale.d[k]) || !f16_is_finite(min.d[k])) return false;
        e->pack(&(EncodedBlock){type, f->q + k * block, scale.value + first, min.value + first,
                                scale.d[k], min.d[k]},
                out);
    }
    return true;
}

// The same by codebook search.
static bool encode_by_search(const WeightGroups *f, Type type, int n_blocks, uint8_t *out) {
    float x[256], cost[256]; // a superblock in row order
    for (int k = 0; k < n_blocks; k++, out += type_info(type)->bytes) {
        int first = k * (256 / f->n);
        for (int i = 0; i < 256; i++) {
            x[i] = f->x[i % f->n][first + i / f->n];
            cost[i] = f->cost[i % f->n][first + i / f->n];
        }
        if (!encoders[type].search(type, x, cost, out)) return false;
    }
    return true;
}

// True if all values are finite and in the range of a type. For F32 and BF16 the limit is slightly
// below the greatest float32. For F16, 65520 would round to infinity. No block type can represent
// more than Q6_K, and below its limit no sum overflows; the range of other types is left to the
// check of their float16 scales.
static bool is_in_range(Type type, const float *x, size_t n) {
    float limit = 32.0f * 128 * 65504;
    if (type == TYPE_F32 || type == TYPE_BF16) limit = 3.38e38f;
    if (type == TYPE_F16) limit = 65519;

    int n_outside = 0;
    for (size_t i = 0; i < n; i++) n_outside |= !(fabsf(x[i]) <= limit);
    return !n_outside;
}

bool quant_encode(Type type, const float *x, const float *importance, void *row, size_t n) {
    if (!is_in_range(type, x, n)) return false;
    if (type == TYPE_Q8_0) return quant_encode_q8_0(x, row, n);

    if (type == TYPE_F32) memcpy(row, x, n * sizeof *x);
    if (type == TYPE_F16)
        for (size_t i = 0; i < n; i++) ((uint16_t *)row)[i] = f32_to_f16(x[i]);
    if (type == TYPE_BF16)
        for (size_t i = 0; i < n; i++) ((uint16_t *)row)[i] = f32_to_bf16(x[i]);

    if (type == TYPE_F32 || type == TYPE_F16 || type == TYPE_BF16) return true;
    if (type >= TYPE_COUNT || !encoders[type].group) return false;

    const QuantEncoder *e = &encoders[type];
    size_t group = (size_t)e->group;
    size_t step = LANES * group; // weights that are encoded together
    for (size_t i = 0; i < n; i += step) {
        WeightGroups f;
        size_t left = n - i < step ? n - i : step;

        groups_load(&f, e->levels.min_sign, (int)group, (int)(left / group), x + i,
                    importance ? importance + i : NULL);
        uint8_t *out = (uint8_t *)row + quant_row_bytes(type, i);
        int n_blocks = (int)left / type_info(type)->block;
        bool ok = e->search ? encode_by_search(&f, type, n_blocks, out)
                            : encode_by_fit(&f, type, n_blocks, out);
        if (!ok) return false;
    }

    return true;
}
