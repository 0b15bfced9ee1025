// Codebook search. The magnitudes of 4 or 8 neighboring weights are encoded as one of 256 to 1024
// codebook entries p, their signs as a mask. A group of 16 or 32 weights has a scale
//
//     s = d unit (k + 1/2)
//
// with an integer k of 4 bits and a float16 d of the superblock. For magnitudes x_i with costs c_i,
// the search minimizes
//
//     E = sum_i c_i (s p_i - x_i)^2 = s^2 sum c p^2 - 2 s sum c p x + const.
//
// For given entries, the best scale is s = sum c p x / sum c p^2. For a given s, the best entry for
// 4 or 8 weights is that with the smallest s sum c p^2 - 2 sum c p x. Comparing all entries would
// be too slow. Each weight is therefore first rounded to a level of the codebook. The tuple of
// levels is called a cell, and a table lists the N_CANDIDATES entries closest to each cell.
//
// As in encode.c, several scales are tried for each group. Then d is set, and k is chosen among the
// rounded value and its neighbors. This is done twice, the second time with the best d for the
// entries found.
//
// Reference: quantize_row_iq3_xxs and similar functions of ggml-quants.c in llama.cpp. IQ2 follows
// QuIP# (Tseng et al. 2024) in coding 8 weights by an entry of an E8 codebook and their signs.
#include "quantize/encode_codebook.h"
#include "kernels/blocks.h"
#include "kernels/codebook.h"
#include "kernels/team.h"

#include <float.h>
#include <limits.h>
#include <math.h>

enum { N_CANDIDATES = 8, BLOCK = 256, MAX_K = 15 };

typedef struct {
    const int8_t *entries; // (n_entries, len)
    int n_entries, len;
    int n_levels; // different magnitudes: low, low + step, ..., and `top` as the highest
    float low, step, top;
    int n_cells; // n_levels ^ len
    float unit;
    int group;           // weights that share a scale
    bool has_even_signs; // the number of negative weights of 8 is even
    // (n_cells) for each cell, the indices of the entries closest to it, closest first. If the cell
    // itself is an entry, only that entry counts; its index is then stored twice. NULL until
    // build_candidates().
    uint16_t (*candidates)[N_CANDIDATES];
} MagnitudeCodebook;

static void find_candidates(const MagnitudeCodebook *b, int cell, uint16_t found[N_CANDIDATES]) {
    int value[8], best[N_CANDIDATES + 1]; // one more, for the entry that drops out
    uint16_t nearest[N_CANDIDATES + 1] = {0};

    // The magnitudes of the cell. Its number has base n_levels: digit i is the level of weight i.
    for (int i = 0, rest = cell; i < b->len; i++, rest /= b->n_levels) {
        int level = rest % b->n_levels;
        value[i] = (int)(level < b->n_levels - 1 ? b->low + b->step * (float)level : b->top);
    }

    // The nearest entries, by insertion sort.
    for (int k = 0; k < N_CANDIDATES; k++) best[k] = INT_MAX;
    for (int e = 0; e < b->n_entries; e++) {
        int distance = 0, k = N_CANDIDATES;
        for (int i = 0; i < b->len; i++) {
            int difference = b->entries[e * b->len + i] - value[i];
            distance += difference * difference;
        }

        for (; k && distance < best[k - 1]; k--) {
            best[k] = best[k - 1];
            nearest[k] = nearest[k - 1];
        }
        best[k] = distance;
        nearest[k] = (uint16_t)e;
    }

    memcpy(found, nearest, N_CANDIDATES * sizeof *found);
    if (best[0] == 0) found[1] = found[0]; // an exact match: see MagnitudeCodebook
}

// Sets the candidates of a codebook. The first thread that needs them builds them, in about 50 ms;
// other threads wait.
static void build_candidates(MagnitudeCodebook *b) {
    team_lock();
    if (!b->candidates) {
        b->candidates = xalloc((size_t)b->n_cells, sizeof *b->candidates);
        for (int cell = 0; cell < b->n_cells; cell++) find_candidates(b, cell, b->candidates[cell]);
    }
    team_unlock();
}

// The codebook entries chosen for a group of weights at one scale, and the sums from which the best
// scale for these entries follows. c: cost, p: value of the entry, x: weight.
typedef struct {
    uint16_t entries[8]; // indices
    float px, pp;        // sums of c p x and c p^2
} GroupEntries;

// Chooses the entry for b->len weights, adds to the sums of the group, and returns its index.
static uint16_t choose_entry(const MagnitudeCodebook *b, const float *x, const float *cost,
                             float scale, GroupEntries *sums) {
    const float inv = 1 / (scale * b->step);
    const float half_below = 0.5f - b->low / b->step;

    // Find the cell of the weights.
    int cell = 0;
    for (int i = b->len - 1; i >= 0; i--) {
        float v = x[i] * inv + half_below;
        int level = 0; // also for NaN
        if (v > 0) level = v < (float)b->n_levels ? (int)v : b->n_levels - 1;
        cell = cell * b->n_levels + level;
    }

    // The candidate with the least error.
    const uint16_t *list = b->candidates[cell];
    uint16_t entry = list[0];
    float best = FLT_MAX, best_px = 0, best_pp = 0;
    for (int k = 0; k < N_CANDIDATES && (k == 0 || list[k] != list[0]); k++) {
        const int8_t *p = b->entries + list[k] * b->len;
        float px = 0, pp = 0;
        for (int i = 0; i < b->len; i++) {
            float cp = cost[i] * (float)p[i];
            px += cp * x[i];
            pp += cp * (float)p[i];
        }

        float e = scale * pp - 2 * px; // error / scale
        if (e >= best) continue;

        best = e;
        best_px = px;
        best_pp = pp;
        entry = list[k];
    }

    sums->px += best_px;
    sums->pp += best_pp;
    return entry;
}

static GroupEntries choose_entries(const MagnitudeCodebook *b, const float *x, const float *cost,
                                   float scale) {
    GroupEntries g = {{0}, 0, 0};
    for (int i = 0; i < b->group; i += b->len)
        g.entries[i / b->len] = choose_entry(b, x + i, cost + i, scale, &g);
    return g;
}

// The best scale of a group. The first trial maps the largest weight to the lowest level, because
// each codebook has an entry with all weights at that level. The other trials map it near the
// highest level.
static float fit_group_scale(const MagnitudeCodebook *b, const float *x, const float *cost) {
    enum { TRIALS = 10 };
    float max = 0, best = 0, gain = 0;
    for (int i = 0; i < b->group; i++) max = x[i] > max ? x[i] : max;
    if (max < 1e-30f) return 0;
    for (int trial = 0; trial < TRIALS; trial++) {
        float level = trial ? b->top * (0.75f + 0.0625f * (float)(trial - 1)) : b->low;
        GroupEntries g = choose_entries(b, x, cost, max / level);
        if (!(g.px > 0) || g.px * g.px <= gain * g.pp) continue;
        gain = g.px * g.px / g.pp;
        best = g.px / g.pp;
    }
    return best;
}

// Splits weights into magnitudes and sign bits. If the number of negative weights must be even but
// is odd, the weight for which it costs least gets the wrong sign, and a negative magnitude.
static void split_signs(const MagnitudeCodebook *b, const float *x, const float *cost,
                        float *magnitude, uint8_t *signs) {
    for (int i = 0; i < BLOCK; i += 8) {
        int n_negative = 0, cheapest = i;
        signs[i / 8] = 0;
        for (int j = i; j < i + 8; j++) {
            magnitude[j] = fabsf(x[j]);
            n_negative += x[j] < 0;
            signs[i / 8] |= (uint8_t)((x[j] < 0) << (j - i));
            if (cost[j] * magnitude[j] < cost[cheapest] * magnitude[cheapest]) cheapest = j;
        }
        if (!b->has_even_signs || n_negative % 2 == 0) continue;
        magnitude[cheapest] = -magnitude[cheapest];
        signs[i / 8] ^= (uint8_t)(1 << (cheapest - i));
    }
}

// The file layout of a superblock.
typedef struct {
    uint16_t d;
    int k[16]; // per group
    uint16_t entries[64];
    uint8_t signs[32]; // bit i of a byte: weight i of 8 is negative
} CodebookBlock;

// Chooses k of a group among the three integers nearest to the wanted scale.
static GroupEntries choose_k(const MagnitudeCodebook *b, const float *x, const float *cost,
                             float unit, float wanted, int *k) {
    GroupEntries best = {{0}, 0, 0};
    float least = FLT_MAX;
    int middle = (int)rintf(wanted / unit - 0.5f);

    for (int i = middle - 1; i <= middle + 1; i++) {
        if (i < 0 || i > MAX_K) continue;
        float scale = unit * ((float)i + 0.5f);
        GroupEntries g = choose_entries(b, x, cost, scale);
        float e = scale * (scale * g.pp - 2 * g.px);
        if (e >= least) continue;
        least = e;
        best = g;
        *k = i;
    }

    return best;
}

// False if the scale does not fit in float16.
static bool encode_block(const MagnitudeCodebook *b, const float *x, const float *cost,
                         CodebookBlock *out) {
    const int n_groups = BLOCK / b->group;
    const int n_entries = b->group / b->len;
    float magnitude[BLOCK], wanted[16], largest = 0;

    memset(out, 0, sizeof *out);
    split_signs(b, x, cost, magnitude, out->signs);

    // The best scale of each group.
    for (int g = 0; g < n_groups; g++) {
        wanted[g] = fit_group_scale(b, magnitude + g * b->group, cost + g * b->group);
        largest = wanted[g] > largest ? wanted[g] : largest;
    }

    // The first pass uses the d that gives the largest scale k = MAX_K. The second uses the best d
    // for the entries and k of the first.
    float d = largest / (((float)MAX_K + 0.5f) * b->unit);
    for (int pass = 0; pass < 2; pass++) {
        float px = 0, pp = 0;
        out->d = f32_to_f16(d);
        if (!f16_is_finite(out->d)) return false;

        float unit = f16_to_f32(out->d) * b->unit;
        if (!(unit > 0)) return true;

        for (int g = 0; g < n_groups; g++) {
            GroupEntries found = choose_k(b, magnitude + g * b->group, cost + g * b->group, unit,
                                          wanted[g], &out->k[g]);
            memcpy(out->entries + g * n_entries, found.entries,
                   (size_t)n_entries * sizeof *found.entries);

            float s = b->unit * ((float)out->k[g] + 0.5f);
            px += s * found.px;
            pp += s * s * found.pp;
        }

        if (pp > 0 && px > 0) d = px / pp;
    }

    return true;
}

// Packing: the layouts are drawn in kernels/blocks.h

static void pack_iq2_s(const CodebookBlock *c, BlockIQ2_S *b) {
    memset(b, 0, sizeof *b);
    b->d = c->d;
    for (int i = 0; i < 32; i++) {
        b->qs[i] = (uint8_t)c->entries[i];
        b->qh[i / 4] |= (uint8_t)(c->entries[i] >> 8 << 2 * (i % 4));
    }
    for (int g = 0; g < 16; g++) b->scales[g / 2] |= (uint8_t)(c->k[g] << 4 * (g % 2));
    memcpy(b->signs, c->signs, sizeof b->signs);
}

static void pack_iq3_s(const CodebookBlock *c, BlockIQ3_S *b) {
    memset(b, 0, sizeof *b);
    b->d = c->d;
    for (int i = 0; i < 64; i++) {
        b->qs[i] = (uint8_t)c->entries[i];
        b->qh[i / 8] |= (uint8_t)(c->entries[i] >> 8 << i % 8);
    }
    for (int g = 0; g < 8; g++) b->scales[g / 2] |= (uint8_t)(c->k[g] << 4 * (g % 2));
    memcpy(b->signs, c->signs, sizeof b->signs);
}

static void pack_iq3_xxs(const CodebookBlock *c, BlockIQ3_XXS *b) {
    b->d = c->d;
    for (int i = 0; i < 64; i++) b->qs[i] = (uint8_t)c->entries[i];
    for (int g = 0; g < 8; g++) {
        uint32_t word = (uint32_t)c->k[g] << 28;
        for (int i = 0; i < 4; i++) word |= (uint32_t)(c->signs[4 * g + i] & 127) << 7 * i;
        for (int i = 0; i < 4; i++) b->signs[4 * g + i] = (uint8_t)(word >> 8 * i);
    }
}

static MagnitudeCodebook codebooks[TYPE_COUNT] = {
    [TYPE_IQ2_S] = {codebook_entries8[CODEBOOK_IQ2_S_AT], 1024, 8, 3, 8, 17.5f, 43, 6561, 0.25f, 16,
                    false, NULL},
    [TYPE_IQ3_XXS] = {codebook_entries4[CODEBOOK_IQ3_XXS_AT], 256, 4, 8, 4, 8, 62, 4096, 0.5f, 32,
                      true, NULL},
    [TYPE_IQ3_S] = {codebook_entries4[CODEBOOK_IQ3_S_AT], 512, 4, 8, 1, 2, 15, 4096, 2, 32, false,
                    NULL}};

bool encode_codebook(Type type, const float *x, const float *cost, void *block) {
    CodebookBlock c;
    build_candidates(&codebooks[type]);
    if (!encode_block(&codebooks[type], x, cost, &c)) return false;
    if (type == TYPE_IQ2_S) pack_iq2_s(&c, block);
    if (type == TYPE_IQ3_S) pack_iq3_s(&c, block);
    if (type == TYPE_IQ3_XXS) pack_iq3_xxs(&c, block);
    return true;
}
