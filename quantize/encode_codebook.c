// Weights to points of a grid. The magnitudes of 4 or 8 neighbours are one of 256 to 1024 points,
// and each has a sign, or all but one of eight. A scale for 16 or 32 weights is d unit (s + 1/2),
// s of 4 bits.
//
// Which point is nearest depends on what the errors cost. It is sought among the NEAR that are
// nearest to the cell that the weights fall into when each is rounded for itself. As in encode.c, a
// trial scale gives points, and points a better scale in closed form; with d settled, stored scales
// and their neighbours are tried with the error as it will be read.
#include "encode_codebook.h"
#include "../kernels/blocks.h"
#include "../kernels/codebook.h"
#include "../kernels/quant.h"

#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

enum { NEAR = 8, MAX_CELLS = 6561, BLOCK = 256 };

typedef struct {
    const int8_t *points; // (n_points, dims)
    int n_points, dims, n_levels, n_cells;
    float low, step, top; // what levels stand for; the highest is not always a step from the last
    float unit;
    int group;    // weights that share a scale
    bool is_even; // the number of minus signs of 8 weights
} Grid;

static const Grid grid_iq2_s = {
    codebook_entries8[CODEBOOK_IQ2_S_AT], 1024, 8, 3, 6561, 8, 17.5f, 43, 0.25f, 16, false};
static const Grid grid_iq3_xxs = {
    codebook_entries4[CODEBOOK_IQ3_XXS_AT], 256, 4, 8, 4096, 4, 8, 62, 0.5f, 32, true};
static const Grid grid_iq3_s = {
    codebook_entries4[CODEBOOK_IQ3_S_AT], 512, 4, 8, 4096, 1, 2, 15, 2, 32, false};

// The points nearest to each cell, the nearest first; where the cell is a point, that alone, twice.
typedef struct {
    uint16_t points[MAX_CELLS][NEAR];
} Near;

static int level_value(const Grid *g, int level) {
    return (int)(level < g->n_levels - 1 ? g->low + g->step * (float)level : g->top);
}

static void find_near(const Grid *g, int cell, uint16_t near[NEAR]) {
    int value[8], best[NEAR];
    for (int i = 0, rest = cell; i < g->dims; i++, rest /= g->n_levels)
        value[i] = level_value(g, rest % g->n_levels);
    for (int k = 0; k < NEAR; k++) best[k] = INT_MAX;
    for (int p = 0; p < g->n_points; p++) {
        int distance = 0, k = NEAR;
        for (int i = 0; i < g->dims; i++) {
            int step = g->points[p * g->dims + i] - value[i];
            distance += step * step;
        }
        for (; k && distance < best[k - 1]; k--)
            if (k < NEAR) best[k] = best[k - 1], near[k] = near[k - 1];
        if (k < NEAR) best[k] = distance, near[k] = (uint16_t)p;
    }
    if (!best[0]) near[1] = near[0];
}

// Made by the thread that needs it first; others wait for it.
static const Near *near_of(const Grid *g) {
    enum { NONE, BEGUN, READY };
    static Near tables[3];
    static _Atomic int states[3];
    int id = g == &grid_iq2_s ? 0 : g == &grid_iq3_xxs ? 1 : 2, none = NONE;
    if (atomic_compare_exchange_strong(&states[id], &none, BEGUN)) {
        for (int cell = 0; cell < g->n_cells; cell++) find_near(g, cell, tables[id].points[cell]);
        atomic_store(&states[id], READY);
    }
    while (atomic_load(&states[id]) != READY) {
    } // some 50 ms
    return &tables[id];
}

// A group at a trial scale: its points, and the sums w x p and w p p.
typedef struct {
    uint16_t points[8];
    float xp, pp;
} Trial;

// Adds the point that is best for dims weights at this scale.
static void round_point(const Grid *g, const Near *near, const float *x, const float *w,
                        float scale, uint16_t *point, Trial *t) {
    const float inv = 1 / (scale * g->step), half_below = 0.5f - g->low / g->step;
    int cell = 0;
    for (int i = g->dims - 1; i >= 0; i--) {
        float v = x[i] * inv + half_below;
        int level = v > 0 ? v < (float)g->n_levels ? (int)v : g->n_levels - 1 : 0;
        cell = cell * g->n_levels + level;
    }
    const uint16_t *list = near->points[cell];
    float best = FLT_MAX, best_xp = 0, best_pp = 0;
    for (int k = 0; k < NEAR && (k == 0 || list[k] != list[0]); k++) {
        const int8_t *p = g->points + list[k] * g->dims;
        float xp = 0, pp = 0;
        for (int i = 0; i < g->dims; i++) {
            float wp = w[i] * (float)p[i];
            xp += wp * x[i];
            pp += wp * (float)p[i];
        }
        float e = scale * pp - 2 * xp; // what the error grows by, over the scale
        if (e >= best) continue;
        best = e, best_xp = xp, best_pp = pp;
        *point = list[k];
    }
    t->xp += best_xp;
    t->pp += best_pp;
}

static Trial round_group(const Grid *g, const Near *near, const float *x, const float *w,
                         float scale) {
    Trial t = {{0}, 0, 0};
    for (int i = 0; i < g->group; i += g->dims)
        round_point(g, near, x + i, w + i, scale, &t.points[i / g->dims], &t);
    return t;
}

// The best scale of a group, as far as a few trials tell: the largest weight is brought near the
// highest level. But for the first trial: of weights that are all alike each grid has the point at
// the lowest.
static float fit_scale(const Grid *g, const Near *near, const float *x, const float *w) {
    enum { TRIALS = 10 };
    float top = 0, best = 0, gain = 0;
    for (int i = 0; i < g->group; i++) top = x[i] > top ? x[i] : top;
    if (top < 1e-30f) return 0;
    for (int c = 0; c < TRIALS; c++) {
        float level = c ? g->top * (0.75f + 0.0625f * (float)(c - 1)) : g->low;
        Trial t = round_group(g, near, x, w, top / level);
        if (!(t.xp > 0) || t.xp * t.xp <= gain * t.pp) continue;
        gain = t.xp * t.xp / t.pp;
        best = t.xp / t.pp;
    }
    return best;
}

// Magnitudes and signs of a block. Where their number must be even, the weight that loses least by
// it takes the other sign: its magnitude is negative.
static void split_signs(const Grid *g, const float *x, const float *w, float *magnitude,
                        uint8_t *signs) {
    for (int i = 0; i < BLOCK; i += 8) {
        int n_minus = 0, least = i;
        signs[i / 8] = 0;
        for (int j = i; j < i + 8; j++) {
            magnitude[j] = fabsf(x[j]);
            n_minus += x[j] < 0;
            signs[i / 8] |= (uint8_t)((x[j] < 0) << (j - i));
            if (w[j] * magnitude[j] < w[least] * magnitude[least]) least = j;
        }
        if (!g->is_even || n_minus % 2 == 0) continue;
        magnitude[least] = -magnitude[least];
        signs[i / 8] ^= (uint8_t)(1 << (least - i));
    }
}

// A block as it will be stored.
typedef struct {
    uint16_t d;
    int scale[16];
    uint16_t points[64];
    uint8_t signs[32];
} Choice;

// Of the stored scales around the one wanted, the one with the smallest error at this d.
static Trial choose_scale(const Grid *g, const Near *near, const float *x, const float *w,
                          float unit, float want, int *stored) {
    Trial best = {{0}, 0, 0};
    float least = FLT_MAX;
    int middle = (int)rintf(want / unit - 0.5f);
    for (int s = middle - 1; s <= middle + 1; s++) {
        if (s < 0 || s > 15) continue;
        float scale = unit * ((float)s + 0.5f);
        Trial t = round_group(g, near, x, w, scale);
        float e = scale * (scale * t.pp - 2 * t.xp);
        if (e >= least) continue;
        least = e, best = t, *stored = s;
    }
    return best;
}

static void choose(const Grid *g, const float *x, const float *w, Choice *c) {
    const Near *near = near_of(g);
    const int n_groups = BLOCK / g->group, n_points = g->group / g->dims;
    float magnitude[BLOCK], want[16], largest = 0;
    memset(c, 0, sizeof *c);
    split_signs(g, x, w, magnitude, c->signs);
    for (int k = 0; k < n_groups; k++) {
        want[k] = fit_scale(g, near, magnitude + k * g->group, w + k * g->group);
        largest = want[k] > largest ? want[k] : largest;
    }
    float d = largest / (15.5f * g->unit);
    for (int pass = 0; pass < 2; pass++) {
        float xp = 0, pp = 0;
        c->d = f32_to_f16(d);
        float unit = f16_to_f32(c->d) * g->unit;
        if (!(unit > 0)) return;
        for (int k = 0; k < n_groups; k++) {
            Trial t = choose_scale(g, near, magnitude + k * g->group, w + k * g->group, unit,
                                   want[k], &c->scale[k]);
            float s = g->unit * ((float)c->scale[k] + 0.5f);
            memcpy(c->points + k * n_points, t.points, (size_t)n_points * sizeof *t.points);
            xp += s * t.xp;
            pp += s * s * t.pp;
        }
        d = pp > 0 && xp > 0 ? xp / pp : d; // the best for these points
    }
}

static void pack_iq2_s(const Choice *c, BlockIQ2_S *b) {
    memset(b, 0, sizeof *b);
    b->d = c->d;
    for (int i = 0; i < 32; i++) {
        b->qs[i] = (uint8_t)c->points[i];
        b->qh[i / 4] |= (uint8_t)(c->points[i] >> 8 << 2 * (i % 4));
    }
    for (int k = 0; k < 16; k++) b->scales[k / 2] |= (uint8_t)(c->scale[k] << 4 * (k % 2));
    memcpy(b->signs, c->signs, sizeof b->signs);
}

static void pack_iq3_s(const Choice *c, BlockIQ3_S *b) {
    memset(b, 0, sizeof *b);
    b->d = c->d;
    for (int i = 0; i < 64; i++) {
        b->qs[i] = (uint8_t)c->points[i];
        b->qh[i / 8] |= (uint8_t)(c->points[i] >> 8 << i % 8);
    }
    for (int k = 0; k < 8; k++) b->scales[k / 2] |= (uint8_t)(c->scale[k] << 4 * (k % 2));
    memcpy(b->signs, c->signs, sizeof b->signs);
}

static void pack_iq3_xxs(const Choice *c, BlockIQ3_XXS *b) {
    b->d = c->d;
    for (int i = 0; i < 64; i++) b->qs[i] = (uint8_t)c->points[i];
    for (int k = 0; k < 8; k++) {
        uint32_t word = (uint32_t)c->scale[k] << 28;
        for (int i = 0; i < 4; i++) word |= (uint32_t)(c->signs[4 * k + i] & 127) << 7 * i;
        for (int i = 0; i < 4; i++) b->signs[4 * k + i] = (uint8_t)(word >> 8 * i);
    }
}

void encode_codebook(Type type, const float *x, const float *w, void *block) {
    Choice c;
    choose(type == TYPE_IQ2_S     ? &grid_iq2_s
           : type == TYPE_IQ3_XXS ? &grid_iq3_xxs
                                  : &grid_iq3_s,
           x, w, &c);
    if (type == TYPE_IQ2_S) pack_iq2_s(&c, block);
    if (type == TYPE_IQ3_S) pack_iq3_s(&c, block);
    if (type == TYPE_IQ3_XXS) pack_iq3_xxs(&c, block);
}
