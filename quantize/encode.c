// Encoders: rows of float32 to blocks, by search.
//
// A group of 16 or 32 weights is fitted by w ~ scale * q - min with small integers q. A few values
// of 1/scale are tried; each gives integers by rounding, and these give the best scale and min in
// closed form (weighted least squares), so a trial is one pass over the group. Where scales
// themselves are stored as small integers, the neighbours of the rounded ones are then tried too,
// with the error of the weights as they will be read.
//
// LANES groups are fitted side by side: every loop over lanes is a vector loop on any machine, and
// every sum runs over one group in row order, so the bytes do not depend on the vector width.
//
// Trials and spans were chosen by the error that is left in products: on 8 matrices of TinyLlama
// 1.1B, the errors of weights times the rms of the inputs that they meet in English text, over the
// weights times the same. More trials than these gain less than 0.5 %.
#include "encode.h"
#include "../kernels/blocks.h"
#include "encode_codebook.h"
#include "../kernels/backends.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { LANES = 16, MAX_GROUP = 32 };

// The levels that integers stand for: lo..hi, or the 16 values of the IQ4 types.
typedef struct {
    float lo, hi;
    bool is_iq4;
} Levels;

// LANES groups of n weights, transposed, and what has been found out about them.
typedef struct {
    int n;
    float x[MAX_GROUP][LANES], w[MAX_GROUP][LANES]; // weights and the cost of their squared error
    float low[LANES], high[LANES];                  // smallest and largest weight, and zero
    float sum_w[LANES], sum_wx[LANES];
    float scale[LANES], min[LANES]; // the best so far ...
    float gain[LANES];            // ... and by how much it lowers the error below that of all zeros
    uint8_t q[LANES * MAX_GROUP]; // the result: levels counted from the lowest, in row order
} Groups;

// The cost of an error is the importance of its column, where that is known: what it adds to the
// squared error of products. Else it is rms + |x|, llama.cpp's rule for most types; 0.3 rms^2 + x^2
// leaves 3 % (Q6_K) to 15 % (Q2_K) more error in products, a constant 6 % less (Q2_K) to 1 % more
// (Q4_K). With importance too, rms + |x| is worse: TinyLlama as Q3_K_M diverges 8 % more.
static void load(Groups *restrict f, int n, int n_groups, const float *restrict x,
                 const float *importance) {
    float square[LANES] = {0}, mean[LANES], low[LANES] = {0}, high[LANES] = {0}, w[LANES] = {0},
          wx[LANES] = {0};
    f->n = n;
    if (n_groups < LANES) memset(f->x, 0, sizeof f->x), memset(f->w, 0, sizeof f->w);
    for (int g = 0; g < n_groups; g++)
        for (int i = 0; i < n; i++) f->x[i][g] = x[g * n + i];
    for (int i = 0; i < n; i++)
        for (int g = 0; g < LANES; g++) {
            float v = f->x[i][g];
            square[g] += v * v;
            low[g] = v < low[g] ? v : low[g];
            high[g] = v > high[g] ? v : high[g];
        }
    for (int g = 0; g < LANES; g++) square[g] /= (float)n;
    for (int g = 0; g < LANES; g++) mean[g] = sqrtf(square[g]);
    for (int i = 0; i < n && !importance; i++)
        for (int g = 0; g < LANES; g++) f->w[i][g] = mean[g] + fabsf(f->x[i][g]);
    for (int g = 0; g < n_groups && importance; g++)
        for (int i = 0; i < n; i++) f->w[i][g] = importance[g * n + i];
    for (int i = 0; i < n; i++)
        for (int g = 0; g < LANES; g++) {
            w[g] += f->w[i][g];
            wx[g] += f->w[i][g] * f->x[i][g];
        }
    memcpy(f->low, low, sizeof low);
    memcpy(f->high, high, sizeof high);
    memcpy(f->sum_w, w, sizeof w);
    memcpy(f->sum_wx, wx, sizeof wx);
    memset(f->scale, 0, sizeof f->scale);
    memset(f->min, 0, sizeof f->min);
    memset(f->gain, 0, sizeof f->gain);
}

// Middles between the values of IQ4, and the steps across them.
static const float iq4_middle[15] = {-115.5f, -93.5f, -74,   -57,   -42, -28.5f, -16, -4.5f,
                                     7,       19,     31.5f, 45.5f, 61,  79,     101};
static const float iq4_step[15] = {23, 21, 18, 16, 14, 13, 12, 11, 12, 12, 13, 15, 16, 20, 24};

// The level nearest to v.
static inline float nearest(float v, float lo, float hi, bool is_iq4) {
    if (is_iq4) {
        float r = -127;
        for (int k = 0; k < 15; k++) r += v > iq4_middle[k] ? iq4_step[k] : 0;
        return r;
    }
    const float magic = 12582912; // 1.5 * 2^23: no fraction survives the addition
    v = v > lo ? v : lo;
    v = v < hi ? v : hi;
    return (v + magic) - magic;
}

// The float16 nearest to a scale, within its range.
static uint16_t half(float f) { return f32_to_f16(f > 65504 ? 65504 : f < -65504 ? -65504 : f); }

// Whether float16 holds a unit with all its digits.
static bool is_stored(float f) { return fabsf(f) >= 0x1p-14f && fabsf(f) < 65504; }

// 1 / scale and min / scale, zero where the scale is.
static void invert(const float *scale, const float *min, float *inv, float *base) {
    for (int g = 0; g < LANES; g++) {
        inv[g] = fabsf(scale[g]) > 1e-30f ? 1 / scale[g] : 0;
        base[g] = min[g] * inv[g];
    }
}

// Weighted sums of the integers that rounding gives: q, q^2 and q x.
typedef struct {
    float q[LANES], qq[LANES], qx[LANES];
} Sums;

static inline void sum_up(const Groups *restrict f, float lo, float hi, bool is_iq4,
                          const float *restrict inv, const float *restrict base,
                          Sums *restrict out) {
    float q[LANES] = {0}, qq[LANES] = {0}, qx[LANES] = {0};
    for (int i = 0; i < f->n; i++)
        for (int g = 0; g < LANES; g++) {
            float v = nearest(f->x[i][g] * inv[g] + base[g], lo, hi, is_iq4), wv = f->w[i][g] * v;
            q[g] += wv;
            qq[g] += wv * v;
            qx[g] += wv * f->x[i][g];
        }
    memcpy(out->q, q, sizeof q);
    memcpy(out->qq, qq, sizeof qq);
    memcpy(out->qx, qx, sizeof qx);
}

WIDE static void sums(const Groups *f, const Levels *levels, const float *inv, const float *base,
                      Sums *out) {
    if (levels->is_iq4)
        sum_up(f, 0, 0, true, inv, base, out);
    else
        sum_up(f, levels->lo, levels->hi, false, inv, base, out);
}

static void keep_better(Groups *f, const float *scale, const float *min, const float *gain) {
    for (int g = 0; g < LANES; g++) {
        bool better = gain[g] > f->gain[g];
        f->gain[g] = better ? gain[g] : f->gain[g];
        f->scale[g] = better ? scale[g] : f->scale[g];
        f->min[g] = better ? min[g] : f->min[g];
    }
}

static void try_affine(Groups *f, const Levels *levels, const float *inv, const float *base,
                       bool any_min) {
    Sums s;
    float scale[LANES], min[LANES], gain[LANES];
    sums(f, levels, inv, base, &s);
    for (int g = 0; g < LANES; g++) {
        float all = f->sum_w[g] * s.qq[g], det = all - s.q[g] * s.q[g],
              r = det > 1e-5f * all ? 1 / det : 0;
        float alone = s.qq[g] > 0 ? s.qx[g] / s.qq[g] : 0; // the fit without a minimum
        scale[g] = (f->sum_w[g] * s.qx[g] - f->sum_wx[g] * s.q[g]) * r;
        min[g] = (s.q[g] * s.qx[g] - s.qq[g] * f->sum_wx[g]) * r;
        bool is_alone = r <= 0 || (min[g] < 0 && !any_min);
        scale[g] = is_alone ? alone : scale[g];
        min[g] = is_alone ? 0 : min[g];
        gain[g] = scale[g] * s.qx[g] - min[g] * f->sum_wx[g];
    }
    keep_better(f, scale, min, gain);
}

// Fits scale and min. Minima that are stored without a sign are not negative; any_min lifts that.
static void fit_affine(Groups *f, const Levels *levels, bool any_min) {
    enum { TRIALS = 6 }; // of the whole span as hi - 1 to hi + 1 steps; 4 leave 0.6 % more (Q4_K)
    float inv[LANES], base[LANES], low[LANES], unit[LANES];
    for (int g = 0; g < LANES; g++) low[g] = any_min ? f->x[0][g] : f->low[g];
    for (int g = 0; g < LANES; g++) unit[g] = any_min ? f->x[0][g] : f->high[g];
    for (int i = 1; i < f->n && any_min; i++)
        for (int g = 0; g < LANES; g++) {
            low[g] = f->x[i][g] < low[g] ? f->x[i][g] : low[g];
            unit[g] = f->x[i][g] > unit[g] ? f->x[i][g] : unit[g];
        }
    for (int g = 0; g < LANES; g++) {
        unit[g] = unit[g] - low[g] > 1e-30f ? 1 / (unit[g] - low[g]) : 0;
        float mean = f->sum_w[g] > 0 ? f->sum_wx[g] / f->sum_w[g] : 0; // the fit by min alone
        f->min[g] = mean < 0 || any_min ? -mean : 0;
        f->gain[g] = -f->min[g] * f->sum_wx[g];
    }
    for (int c = 0; c < TRIALS; c++) {
        for (int g = 0; g < LANES; g++) {
            inv[g] = unit[g] * (levels->hi - 1 + 2.0f / (TRIALS - 1) * (float)c);
            base[g] = -low[g] * inv[g];
        }
        try_affine(f, levels, inv, base, any_min);
    }
    invert(f->scale, f->min, inv, base); // the best, rounded again with its own scale and min
    try_affine(f, levels, inv, base, any_min);
}

static void try_symmetric(Groups *f, const Levels *levels, const float *inv) {
    static const float zero[LANES];
    Sums s;
    float scale[LANES], gain[LANES];
    sums(f, levels, inv, zero, &s);
    for (int g = 0; g < LANES; g++) scale[g] = s.qq[g] > 0 ? s.qx[g] / s.qq[g] : 0;
    for (int g = 0; g < LANES; g++) gain[g] = scale[g] * s.qx[g];
    keep_better(f, scale, zero, gain);
}

// Fits a scale of either sign: the largest weight is brought near the lowest level or near the
// highest, `trials` times within `span` of it.
static void fit_symmetric(Groups *f, const Levels *levels, float span, int trials) {
    float inv[LANES], base[LANES], unit[LANES];
    for (int g = 0; g < LANES; g++) {
        float extreme = f->high[g] > -f->low[g] ? f->high[g] : f->low[g];
        unit[g] = fabsf(extreme) > 1e-30f ? 1 / extreme : 0;
    }
    for (int c = 0; c < 2 * trials; c++) {
        float at = (c % 2 ? levels->hi : levels->lo) +
                   span * (2 * (float)(c / 2) / (float)(trials - 1) - 1);
        for (int g = 0; g < LANES; g++) inv[g] = unit[g] * at;
        try_symmetric(f, levels, inv);
    }
    invert(f->scale, f->min, inv, base);
    try_symmetric(f, levels, inv);
}

static inline void add_errors(const Groups *restrict f, float lo, float hi, bool is_iq4,
                              const float *restrict scale, const float *restrict min,
                              float *restrict out) {
    float inv[LANES], base[LANES], e[LANES] = {0};
    invert(scale, min, inv, base);
    for (int i = 0; i < f->n; i++)
        for (int g = 0; g < LANES; g++) {
            float v = nearest(f->x[i][g] * inv[g] + base[g], lo, hi, is_iq4);
            float r = (scale[g] * v - min[g]) - f->x[i][g];
            e[g] += f->w[i][g] * (r * r);
        }
    memcpy(out, e, sizeof e);
}

// Errors of the weights as they will be read back.
WIDE static void errors(const Groups *f, const Levels *levels, const float *scale, const float *min,
                        float *out) {
    if (levels->is_iq4)
        add_errors(f, 0, 0, true, scale, min, out);
    else
        add_errors(f, levels->lo, levels->hi, false, scale, min, out);
}

// Scales or minima as small integers lo..hi times a unit that the groups of a block share.
typedef struct {
    float value[LANES], unit[LANES], lo, hi;
} Stored;

// Sets each block's unit so that the largest of `want` becomes `largest`, or a little less: the
// unit is rounded up to float16, which counts where it is tiny. Rounds the others.
static void stored_init(Stored *s, uint16_t *d, int groups_per_block, const float *want,
                        float largest, float lo, float hi) {
    s->lo = lo, s->hi = hi;
    for (int first = 0; first < LANES; first += groups_per_block) {
        float extreme = 0;
        for (int g = first; g < first + groups_per_block; g++)
            if (fabsf(want[g]) > fabsf(extreme)) extreme = want[g];
        *d = half(extreme / largest);
        if (fabsf(f16_to_f32(*d)) < fabsf(extreme / largest) && (*d & 0x7fff) < 0x7bff) ++*d;
        for (int g = first; g < first + groups_per_block; g++) s->unit[g] = f16_to_f32(*d);
        d++;
    }
    for (int g = 0; g < LANES; g++)
        s->value[g] = fabsf(s->unit[g]) > 0 ? rintf(want[g] / s->unit[g]) : 0;
}

static void stored_at(const Stored *s, int offset, float *value, float *real) {
    for (int g = 0; g < LANES; g++) {
        float v = s->value[g] + (float)offset;
        v = v > s->lo ? v : s->lo;
        v = v < s->hi ? v : s->hi;
        value[g] = v;
        real[g] = v * s->unit[g];
    }
}

// Chooses each group's scale and min among the neighbours of what was fitted. For types without
// minima, `min` is all zeros.
static void choose_stored(Groups *f, const Levels *levels, Stored *scale, Stored *min) {
    float best[LANES], e[LANES], s[LANES], m[LANES], real_s[LANES], real_m[LANES], best_s[LANES],
        best_m[LANES];
    int reach = min->hi > 0;
    for (int g = 0; g < LANES; g++) best[g] = FLT_MAX, best_s[g] = best_m[g] = 0;
    for (int a = -1; a <= 1; a++)
        for (int b = -reach; b <= reach; b++) {
            stored_at(scale, a, s, real_s);
            stored_at(min, b, m, real_m);
            errors(f, levels, real_s, real_m, e);
            for (int g = 0; g < LANES; g++) {
                bool better = e[g] < best[g];
                best[g] = better ? e[g] : best[g];
                best_s[g] = better ? s[g] : best_s[g];
                best_m[g] = better ? m[g] : best_m[g];
            }
        }
    memcpy(scale->value, best_s, sizeof best_s);
    memcpy(min->value, best_m, sizeof best_m);
    for (int g = 0; g < LANES; g++) {
        f->scale[g] = best_s[g] * scale->unit[g];
        f->min[g] = best_m[g] * min->unit[g];
    }
}

// The units of a block that suit its integers best, all else being settled: the weighted least
// squares of d s q - dmin m over all its groups. Kept where float16 can hold what they are.
static void refit_units(Groups *f, const Levels *levels, Stored *scale, uint16_t *d, Stored *min,
                        uint16_t *dmin, int groups_per_block) {
    float inv[LANES], base[LANES];
    Sums s;
    invert(f->scale, f->min, inv, base);
    sums(f, levels, inv, base, &s);
    for (int first = 0; first < LANES; first += groups_per_block, d++, dmin++) {
        float ss = 0, sm = 0, mm = 0, sx = 0, mx = 0;
        for (int g = first; g < first + groups_per_block; g++) {
            float a = scale->value[g], b = min->value[g];
            ss += a * a * s.qq[g], sm += a * b * s.q[g], mm += b * b * f->sum_w[g];
            sx += a * s.qx[g], mx += b * f->sum_wx[g];
        }
        float det = ss * mm - sm * sm, unit = ss > 0 ? sx / ss : 0, unit_min = 0;
        if (det > 1e-5f * ss * mm) {
            unit = (sx * mm - mx * sm) / det;
            unit_min = (sx * sm - mx * ss) / det;
        }
        if (!is_stored(unit) || (mm > 0 && !(unit_min > 0 && is_stored(unit_min)))) continue;
        *d = f32_to_f16(unit), *dmin = f32_to_f16(unit_min);
        for (int g = first; g < first + groups_per_block; g++) {
            scale->unit[g] = f16_to_f32(*d), min->unit[g] = f16_to_f32(*dmin);
            f->scale[g] = scale->value[g] * scale->unit[g];
            f->min[g] = min->value[g] * min->unit[g];
        }
    }
}

// Rounds all weights with the final scales.
static void round_all(Groups *f, const Levels *levels) {
    float inv[LANES], base[LANES];
    invert(f->scale, f->min, inv, base);
    const float lo = levels->lo, hi = levels->hi;
    for (int i = 0; i < f->n; i++) {
        int q[LANES];
        float v[LANES];
        for (int g = 0; g < LANES; g++) v[g] = f->x[i][g] * inv[g] + base[g];
        if (levels->is_iq4)
            for (int g = 0; g < LANES; g++) {
                q[g] = 0;
                for (int k = 0; k < 15; k++) q[g] += v[g] > iq4_middle[k];
            }
        else
            for (int g = 0; g < LANES; g++) q[g] = (int)(nearest(v[g], lo, hi, false) - lo);
        for (int g = 0; g < LANES; g++) f->q[g * f->n + i] = (uint8_t)q[g];
    }
}

// 32 integers: low nibbles in halves, and the fifth bits.
static void pack_32(uint8_t *low, uint8_t *high, const uint8_t *q) {
    for (int i = 0; i < 16; i++) low[i] = (uint8_t)((q[i] & 15) | q[i + 16] << 4);
    if (!high) return;
    memset(high, 0, 4);
    for (int i = 0; i < 32; i++) high[i / 8] |= (uint8_t)(q[i] >> 4 << i % 8);
}

static void encode_32(Groups *f, Type type, const Levels *levels, int n_blocks, void *out) {
    uint16_t d[LANES], m[LANES] = {0};
    bool is_affine = type == TYPE_Q4_1 || type == TYPE_Q5_1;
    if (is_affine)
        fit_affine(f, levels, true);
    else
        fit_symmetric(f, levels, levels->is_iq4 ? 7 : 0.6f,
                      levels->is_iq4 ? 7 : 3); // 2 trials leave 2 % more
    for (int g = 0; g < LANES; g++) {
        d[g] = half(f->scale[g]);
        f->scale[g] = f16_to_f32(d[g]);
        if (is_affine) m[g] = half(-f->min[g]);
        f->min[g] = -f16_to_f32(m[g]);
    }
    round_all(f, levels);
    for (int k = 0; k < n_blocks; k++) {
        const uint8_t *q = f->q + 32 * k;
        BlockQ4_1 *q4_1 = (BlockQ4_1 *)out + k;
        BlockQ5_0 *q5_0 = (BlockQ5_0 *)out + k;
        BlockQ5_1 *q5_1 = (BlockQ5_1 *)out + k;
        BlockQ4_0 *q4_0 = (BlockQ4_0 *)out + k; // IQ4_NL has the same fields
        if (type == TYPE_Q4_1) {
            q4_1->d = d[k], q4_1->m = m[k];
            pack_32(q4_1->qs, NULL, q);
        } else if (type == TYPE_Q5_0) {
            q5_0->d = d[k];
            pack_32(q5_0->qs, q5_0->qh, q);
        } else if (type == TYPE_Q5_1) {
            q5_1->d = d[k], q5_1->m = m[k];
            pack_32(q5_1->qs, q5_1->qh, q);
        } else {
            q4_0->d = d[k];
            pack_32(q4_0->qs, NULL, q);
        }
    }
}

// The layout is described at unpack_scales in quant.c.
static void pack_scales(uint8_t *out, const float *scale, const float *min) {
    for (int g = 0; g < 4; g++) {
        int s = (int)scale[g + 4], m = (int)min[g + 4];
        out[g] = (uint8_t)((int)scale[g] | s >> 4 << 6);
        out[g + 4] = (uint8_t)((int)min[g] | m >> 4 << 6);
        out[g + 8] = (uint8_t)((s & 15) | (m & 15) << 4);
    }
}

static void encode_q45_k(Groups *f, Type type, const Levels *levels, int n_blocks, void *out) {
    Stored scale, min;
    uint16_t d[2], dmin[2];
    fit_affine(f, levels, false);
    stored_init(&scale, d, 8, f->scale, 63, 0, 63);
    stored_init(&min, dmin, 8, f->min, 63, 0, 63);
    choose_stored(f, levels, &scale, &min);
    round_all(f, levels);
    for (int k = 0; k < n_blocks; k++) {
        const uint8_t *q = f->q + 256 * k;
        BlockQ4_K *q4 = (BlockQ4_K *)out + k;
        BlockQ5_K *q5 = (BlockQ5_K *)out + k;
        if (type == TYPE_Q4_K)
            q4->d = d[k], q4->dmin = dmin[k];
        else
            q5->d = d[k], q5->dmin = dmin[k];
        pack_scales(type == TYPE_Q4_K ? q4->scales : q5->scales, scale.value + 8 * k,
                    min.value + 8 * k);
        uint8_t *qs = type == TYPE_Q4_K ? q4->qs : q5->qs;
        for (int p = 0; p < 4; p++)
            for (int l = 0; l < 32; l++)
                qs[32 * p + l] = (uint8_t)((q[64 * p + l] & 15) | q[64 * p + 32 + l] << 4);
        for (int l = 0; l < 32 && type == TYPE_Q5_K; l++) {
            int high = 0;
            for (int s = 0; s < 8; s++) high |= q[32 * s + l] >> 4 << s;
            q5->qh[l] = (uint8_t)high;
        }
    }
}

// Two bits of each weight. Weight 32 s + l is in byte 32 (s / 4) + l.
static void pack_crumbs(uint8_t *out, const uint8_t *q) {
    memset(out, 0, 64);
    for (int s = 0; s < 8; s++)
        for (int l = 0; l < 32; l++)
            out[s / 4 * 32 + l] |= (uint8_t)((q[32 * s + l] & 3) << s % 4 * 2);
}

static void encode_q2_k(Groups *f, Type type, const Levels *levels, int n_blocks, void *out) {
    (void)type, (void)n_blocks;
    BlockQ2_K *b = out;
    Stored scale, min;
    fit_affine(f, levels, false);
    stored_init(&scale, &b->d, 16, f->scale, 15, 0, 15);
    stored_init(&min, &b->dmin, 16, f->min, 15, 0, 15);
    choose_stored(f, levels, &scale, &min);
    refit_units(f, levels, &scale, &b->d, &min, &b->dmin, 16);
    round_all(f, levels);
    for (int g = 0; g < 16; g++)
        b->scales[g] = (uint8_t)((int)scale.value[g] | (int)min.value[g] << 4);
    pack_crumbs(b->qs, f->q);
}

static void encode_q3_k(Groups *f, Type type, const Levels *levels, int n_blocks, void *out) {
    (void)type, (void)n_blocks;
    BlockQ3_K *b = out;
    Stored scale, min = {0};
    uint16_t no_min;
    fit_symmetric(f, levels, 0.9f, 4);
    stored_init(&scale, &b->d, 16, f->scale, -32, -32, 31);
    choose_stored(f, levels, &scale, &min);
    refit_units(f, levels, &scale, &b->d, &min, &no_min, 16);
    round_all(f, levels);
    memset(b->scales, 0, sizeof b->scales);
    memset(b->hmask, 0, sizeof b->hmask);
    for (int g = 0; g < 16; g++) {
        int s = (int)scale.value[g] + 32;
        b->scales[g % 8] |= (uint8_t)((s & 15) << g / 8 * 4);
        b->scales[8 + g % 4] |= (uint8_t)(s >> 4 << g / 4 * 2);
    }
    for (int i = 0; i < 256; i++) b->hmask[i % 32] |= (uint8_t)(f->q[i] >> 2 << i / 32);
    pack_crumbs(b->qs, f->q);
}

static void encode_q6_k(Groups *f, Type type, const Levels *levels, int n_blocks, void *out) {
    (void)type, (void)n_blocks;
    BlockQ6_K *b = out;
    Stored scale, min = {0};
    fit_symmetric(f, levels, 0.9f, 4);
    stored_init(&scale, &b->d, 16, f->scale, -128, -128, 127);
    choose_stored(f, levels, &scale, &min);
    round_all(f, levels);
    for (int g = 0; g < 16; g++) b->scales[g] = (int8_t)scale.value[g];
    for (int h = 0; h < 2; h++) {
        const uint8_t *q = f->q + 128 * h;
        for (int l = 0; l < 64; l++)
            b->ql[64 * h + l] = (uint8_t)((q[l] & 15) | (q[l + 64] & 15) << 4);
        for (int l = 0; l < 32; l++)
            b->qh[32 * h + l] = (uint8_t)(q[l] >> 4 | q[l + 32] >> 4 << 2 | q[l + 64] >> 4 << 4 |
                                          q[l + 96] >> 4 << 6);
    }
}

static void encode_iq4_xs(Groups *f, Type type, const Levels *levels, int n_blocks, void *out) {
    (void)type;
    uint16_t d[2];
    Stored scale, min = {0};
    fit_symmetric(f, levels, 7, 7);
    stored_init(&scale, d, 8, f->scale, -32, -32, 31);
    choose_stored(f, levels, &scale, &min);
    round_all(f, levels);
    for (int k = 0; k < n_blocks; k++) {
        BlockIQ4_XS *b = (BlockIQ4_XS *)out + k;
        memset(b, 0, sizeof *b);
        b->d = d[k];
        for (int g = 0; g < 8; g++) {
            int s = (int)scale.value[8 * k + g] + 32;
            b->scales_l[g / 2] |= (uint8_t)((s & 15) << g % 2 * 4);
            b->scales_h |= (uint16_t)(s >> 4 << 2 * g);
            pack_32(b->qs + 16 * g, NULL, f->q + 256 * k + 32 * g);
        }
    }
}

// Groups back in row order, for what takes a block of them.
static void encode_points(Groups *f, Type type, const Levels *levels, int n_blocks, void *out) {
    (void)levels;
    float x[256], w[256];
    int per_block = 256 / f->n;
    for (int k = 0; k < n_blocks; k++) {
        for (int i = 0; i < 256; i++) {
            x[i] = f->x[i % f->n][k * per_block + i / f->n];
            w[i] = f->w[i % f->n][k * per_block + i / f->n];
        }
        encode_codebook(type, x, w, (uint8_t *)out + k * type_info(type)->bytes);
    }
}

typedef void (*Encoder)(Groups *f, Type type, const Levels *levels, int n_blocks, void *out);

static const struct {
    Encoder encode;
    int group, block;
    Levels levels;
} encoders[TYPE_COUNT] = {
    [TYPE_Q4_0] = {encode_32, 32, 32, {-8, 7, false}},
    [TYPE_Q4_1] = {encode_32, 32, 32, {0, 15, false}},
    [TYPE_Q5_0] = {encode_32, 32, 32, {-16, 15, false}},
    [TYPE_Q5_1] = {encode_32, 32, 32, {0, 31, false}},
    [TYPE_IQ4_NL] = {encode_32, 32, 32, {-127, 113, true}},
    [TYPE_Q2_K] = {encode_q2_k, 16, 256, {0, 3, false}},
    [TYPE_Q3_K] = {encode_q3_k, 16, 256, {-4, 3, false}},
    [TYPE_Q4_K] = {encode_q45_k, 32, 256, {0, 15, false}},
    [TYPE_Q5_K] = {encode_q45_k, 32, 256, {0, 31, false}},
    [TYPE_Q6_K] = {encode_q6_k, 16, 256, {-32, 31, false}},
    [TYPE_IQ4_XS] = {encode_iq4_xs, 32, 256, {-127, 113, true}},
    [TYPE_IQ3_S] = {encode_points, 32, 256, {0, 0, false}},
    [TYPE_IQ3_XXS] = {encode_points, 32, 256, {0, 0, false}},
    [TYPE_IQ2_S] = {encode_points, 16, 256, {0, 0, false}},
};

bool quant_can_encode(Type type) {
    return type == TYPE_F32 || type == TYPE_F16 || type == TYPE_BF16 || type == TYPE_Q8_0 ||
           encoders[type].encode;
}

// True if all values are finite and in range. F32 and BF16: one binade below overflow. F16: 65520
// rounds to infinity.
static bool is_in_range(Type type, const float *x, size_t n) {
    float limit = type == TYPE_F32 || type == TYPE_BF16 ? 3.38e38f
                  : type == TYPE_F16                    ? 65519
                                                        : QUANT_LIMIT;
    int n_outside = 0;
    for (size_t i = 0; i < n; i++) n_outside |= !(fabsf(x[i]) <= limit);
    return !n_outside;
}

bool quant_encode(Type type, const float *x, const float *importance, void *row, size_t n) {
    if (!quant_can_encode(type) || !is_in_range(type, x, n)) return false;
    if (type == TYPE_Q8_0) return quant_encode_q8_0(x, row, n);
    if (type == TYPE_F32) memcpy(row, x, n * sizeof *x);
    if (type == TYPE_F16)
        for (size_t i = 0; i < n; i++) ((uint16_t *)row)[i] = f32_to_f16(x[i]);
    if (type == TYPE_BF16)
        for (size_t i = 0; i < n; i++) ((uint16_t *)row)[i] = f32_to_bf16(x[i]);
    if (!encoders[type].encode) return true;

    size_t group = (size_t)encoders[type].group, step = LANES * group; // one or several blocks
    for (size_t i = 0; i < n; i += step) {
        Groups f;
        size_t left = n - i < step ? n - i : step;
        load(&f, (int)group, (int)(left / group), x + i, importance ? importance + i : NULL);
        encoders[type].encode(&f, type, &encoders[type].levels, (int)left / encoders[type].block,
                              (uint8_t *)row + quant_row_bytes(type, i));
    }
    return true;
}
