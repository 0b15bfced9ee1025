// Tensor types: conversions, sizes and unpacking of every block into integers, scales and minima.
#include "quant.h"
#include "blocks.h"

#include <string.h>

const int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

// IQ2_XXS: 256 points of {8, 25, 43}^8, each written as the number whose ternary digits (lowest first) say which.
#define V(n) (8 + 17 * ((n) % 3) + ((n) % 3) / 2)
#define G(n)                                                                                                           \
    { V(n), V(n / 3), V(n / 9), V(n / 27), V(n / 81), V(n / 243), V(n / 729), V(n / 2187) }
// clang-format off
static const int8_t iq2_grid[256][8] = {
    G(0), G(2), G(4), G(6), G(8), G(10), G(12), G(18), G(20), G(24), G(26), G(28), G(30), G(36), G(42), G(46), G(48),
    G(54), G(56), G(62), G(74), G(82), G(84), G(90), G(94), G(108), G(138), G(150), G(162), G(164), G(182), G(218),
    G(244), G(246), G(252), G(262), G(264), G(270), G(272), G(276), G(288), G(298), G(300), G(306), G(318), G(324),
    G(326), G(330), G(342), G(356), G(376), G(378), G(388), G(412), G(414), G(432), G(462), G(480), G(486), G(490),
    G(492), G(498), G(510), G(514), G(516), G(522), G(524), G(546), G(570), G(594), G(650), G(660), G(730), G(732),
    G(738), G(748), G(756), G(774), G(786), G(792), G(796), G(810), G(816), G(828), G(846), G(854), G(864), G(912),
    G(922), G(972), G(978), G(990), G(994), G(1006), G(1026), G(1068), G(1100), G(1134), G(1148), G(1216), G(1218),
    G(1224), G(1242), G(1270), G(1296), G(1300), G(1368), G(1414), G(1458), G(1460), G(1466), G(1488), G(1504), G(1512),
    G(1514), G(1564), G(1572), G(1620), G(1622), G(1702), G(1704), G(1710), G(1728), G(1742), G(1782), G(1810), G(1830),
    G(1926), G(1950), G(1962), G(2010), G(2136), G(2188), G(2190), G(2196), G(2202), G(2206), G(2208), G(2214), G(2220),
    G(2228), G(2232), G(2242), G(2244), G(2250), G(2268), G(2286), G(2314), G(2322), G(2326), G(2350), G(2358), G(2382),
    G(2390), G(2400), G(2430), G(2436), G(2448), G(2484), G(2500), G(2522), G(2532), G(2592), G(2674), G(2676), G(2682),
    G(2700), G(2704), G(2754), G(2796), G(2800), G(2810), G(2866), G(2898), G(2916), G(2922), G(2926), G(2932), G(2934),
    G(2970), G(2976), G(3000), G(3026), G(3072), G(3142), G(3222), G(3224), G(3248), G(3322), G(3360), G(3402), G(3412),
    G(3418), G(3450), G(3510), G(3570), G(3648), G(3654), G(3672), G(3696), G(3726), G(3766), G(3822), G(3852), G(3888),
    G(3892), G(3978), G(3980), G(4026), G(4160), G(4374), G(4376), G(4382), G(4402), G(4430), G(4458), G(4470), G(4482),
    G(4546), G(4618), G(4620), G(4626), G(4630), G(4644), G(4662), G(4698), G(4730), G(4764), G(4786), G(4806), G(4824),
    G(4862), G(4944), G(5032), G(5106), G(5112), G(5124), G(5130), G(5176), G(5198), G(5238), G(5296), G(5346), G(5366),
    G(5376), G(5464), G(5644), G(5688), G(5834), G(5868), G(5890), G(5920), G(5994), G(6090), G(6354), G(6402),
};
// clang-format on
#undef G
#undef V

static uint32_t bits_of(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static float float_of(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

float f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, u = (uint32_t)(h & 0x7fff) << 13;
    if (u >= 0x0f800000) return float_of(sign | 0x70000000 | u); // infinity, NaN
    // A subnormal's bits as the fraction of a number in [2^-14, 2^-13): subtracting its leading one normalises it.
    float f = u < 0x00800000 ? float_of(u + 0x38800000) - 0x1p-14f : float_of(u + 0x38000000);
    return float_of(sign | bits_of(f));
}

uint16_t f32_to_f16(float f) {
    uint32_t u = bits_of(f), sign = (u >> 16) & 0x8000;
    u &= 0x7fffffff;
    if (u > 0x7f800000) return (uint16_t)(sign | 0x7e00);
    if (u >= 0x477ff000) return (uint16_t)(sign | 0x7c00); // 65520 is the first that rounds to infinity
    // Below 2^-14 the addition rounds at 2^-24, the last place of a subnormal.
    if (u < 0x38800000) return (uint16_t)(sign | (bits_of(float_of(u) + 0.5f) - 0x3f000000));
    return (uint16_t)(sign | (u + 0xfff + ((u >> 13) & 1) - 0x38000000) >> 13);
}

float bf16_to_f32(uint16_t h) { return float_of((uint32_t)h << 16); }

uint16_t f32_to_bf16(float f) {
    uint32_t u = bits_of(f);
    if ((u & 0x7fffffff) > 0x7f800000) return (uint16_t)(u >> 16 | 64);
    return (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

// Types of one scale and minimum per 32 weights.
static void set_scale(QuantBlock *out, float scale, float min) {
    out->scale[0] = out->scale[1] = scale;
    out->min[0] = out->min[1] = min;
}

// q[i] = nibble i, plus bit i of `high` (or none) as fifth bit, minus offset.
static void unpack_nibbles(int8_t *q, const uint8_t *low, const uint8_t *high, int offset) {
    for (int i = 0; i < 16; i++) q[i] = (int8_t)((low[i] & 15) - offset);
    for (int i = 0; i < 16; i++) q[i + 16] = (int8_t)((low[i] >> 4) - offset);
    for (int i = 0; high && i < 32; i++) q[i] = (int8_t)(q[i] + ((high[i / 8] >> i % 8 & 1) << 4));
}

static void unpack_q8_0(const void *block, QuantBlock *out) {
    const BlockQ8_0 *b = block;
    set_scale(out, f16_to_f32(b->d), 0);
    memcpy(out->q, b->qs, sizeof b->qs);
}

static void unpack_q4_0(const void *block, QuantBlock *out) {
    const BlockQ4_0 *b = block;
    set_scale(out, f16_to_f32(b->d), 0);
    unpack_nibbles(out->q, b->qs, NULL, 8);
}

static void unpack_q4_1(const void *block, QuantBlock *out) {
    const BlockQ4_1 *b = block;
    set_scale(out, f16_to_f32(b->d), -f16_to_f32(b->m));
    unpack_nibbles(out->q, b->qs, NULL, 0);
}

static void unpack_q5_0(const void *block, QuantBlock *out) {
    const BlockQ5_0 *b = block;
    set_scale(out, f16_to_f32(b->d), 0);
    unpack_nibbles(out->q, b->qs, b->qh, 16);
}

static void unpack_q5_1(const void *block, QuantBlock *out) {
    const BlockQ5_1 *b = block;
    set_scale(out, f16_to_f32(b->d), -f16_to_f32(b->m));
    unpack_nibbles(out->q, b->qs, b->qh, 0);
}

static void unpack_iq4(int8_t *q, const uint8_t *qs) {
    for (int i = 0; i < 16; i++) {
        q[i] = iq4_values[qs[i] & 15];
        q[i + 16] = iq4_values[qs[i] >> 4];
    }
}

static void unpack_iq4_nl(const void *block, QuantBlock *out) {
    const BlockIQ4_NL *b = block;
    set_scale(out, f16_to_f32(b->d), 0);
    unpack_iq4(out->q, b->qs);
}

static void unpack_iq4_xs(const void *block, QuantBlock *out) {
    const BlockIQ4_XS *b = block;
    float d = f16_to_f32(b->d);
    for (int g = 0; g < 8; g++) {
        int scale = (b->scales_l[g / 2] >> g % 2 * 4 & 15) | (b->scales_h >> 2 * g & 3) << 4;
        out->scale[2 * g] = out->scale[2 * g + 1] = d * (float)(scale - 32);
        unpack_iq4(out->q + 32 * g, b->qs + 16 * g);
    }
    memset(out->min, 0, sizeof out->min);
}

// Two-bit integers of Q2_K and Q3_K.
static void unpack_crumbs(int8_t *q, const uint8_t *qs) {
    for (int s = 0; s < 8; s++)
        for (int l = 0; l < 32; l++) q[32 * s + l] = (int8_t)(qs[s / 4 * 32 + l] >> s % 4 * 2 & 3);
}

static void unpack_q2_k(const void *block, QuantBlock *out) {
    const BlockQ2_K *b = block;
    float d = f16_to_f32(b->d), dmin = f16_to_f32(b->dmin);
    for (int g = 0; g < 16; g++) {
        out->scale[g] = d * (float)(b->scales[g] & 15);
        out->min[g] = dmin * (float)(b->scales[g] >> 4);
    }
    unpack_crumbs(out->q, b->qs);
}

static void unpack_q3_k(const void *block, QuantBlock *out) {
    const BlockQ3_K *b = block;
    float d = f16_to_f32(b->d);
    for (int g = 0; g < 16; g++) {
        int scale = (b->scales[g % 8] >> g / 8 * 4 & 15) | (b->scales[8 + g % 4] >> g / 4 * 2 & 3) << 4;
        out->scale[g] = d * (float)(scale - 32);
    }
    memset(out->min, 0, sizeof out->min);
    unpack_crumbs(out->q, b->qs);
    for (int s = 0; s < 8; s++)
        for (int l = 0; l < 32; l++)
            out->q[32 * s + l] = (int8_t)(out->q[32 * s + l] + ((b->hmask[l] >> s & 1) << 2) - 4);
}

// Scales and minima of Q4_K and Q5_K. Groups 0..3 lie in the low six bits of bytes 0..3 (scales) and 4..7 (minima);
// of groups 4..7 the low nibbles are in bytes 8..11 and the high two bits on top of the former.
static void unpack_scales(QuantBlock *out, const uint8_t s[12], float d, float dmin) {
    for (int g = 0; g < 4; g++) {
        float scale[2] = {d * (float)(s[g] & 63), d * (float)((s[g + 8] & 15) | s[g] >> 6 << 4)};
        float min[2] = {dmin * (float)(s[g + 4] & 63), dmin * (float)(s[g + 8] >> 4 | s[g + 4] >> 6 << 4)};
        for (int k = 0; k < 2; k++) {
            out->scale[2 * g + 8 * k] = out->scale[2 * g + 8 * k + 1] = scale[k];
            out->min[2 * g + 8 * k] = out->min[2 * g + 8 * k + 1] = min[k];
        }
    }
}

static void unpack_q4_k(const void *block, QuantBlock *out) {
    const BlockQ4_K *b = block;
    unpack_scales(out, b->scales, f16_to_f32(b->d), f16_to_f32(b->dmin));
    for (int p = 0; p < 4; p++)
        for (int l = 0; l < 32; l++) {
            out->q[64 * p + l] = (int8_t)(b->qs[32 * p + l] & 15);
            out->q[64 * p + 32 + l] = (int8_t)(b->qs[32 * p + l] >> 4);
        }
}

static void unpack_q5_k(const void *block, QuantBlock *out) {
    const BlockQ5_K *b = block;
    unpack_scales(out, b->scales, f16_to_f32(b->d), f16_to_f32(b->dmin));
    for (int p = 0; p < 4; p++)
        for (int l = 0; l < 32; l++) {
            int high = b->qh[l] >> 2 * p;
            out->q[64 * p + l] = (int8_t)((b->qs[32 * p + l] & 15) | (high & 1) << 4);
            out->q[64 * p + 32 + l] = (int8_t)(b->qs[32 * p + l] >> 4 | (high & 2) << 3);
        }
}

static void unpack_q6_k(const void *block, QuantBlock *out) {
    const BlockQ6_K *b = block;
    float d = f16_to_f32(b->d);
    for (int g = 0; g < 16; g++) out->scale[g] = d * (float)b->scales[g];
    memset(out->min, 0, sizeof out->min);
    for (int s = 0; s < 8; s++) { // 32 weights at a time
        const uint8_t *low = b->ql + s / 4 * 64 + s % 2 * 32, *high = b->qh + s / 4 * 32;
        for (int l = 0; l < 32; l++)
            out->q[32 * s + l] = (int8_t)(((low[l] >> s % 4 / 2 * 4 & 15) | (high[l] >> s % 4 * 2 & 3) << 4) - 32);
    }
}

static void unpack_iq2_xxs(const void *block, QuantBlock *out) {
    const BlockIQ2_XXS *b = block;
    float d = f16_to_f32(b->d);
    for (int g = 0; g < 8; g++) {
        const uint8_t *index = b->qs + 8 * g, *s = index + 4;
        uint32_t signs = s[0] | (uint32_t)s[1] << 8 | (uint32_t)s[2] << 16 | (uint32_t)s[3] << 24;
        out->scale[2 * g] = out->scale[2 * g + 1] = d * (0.5f + (float)(signs >> 28)) * 0.25f;
        for (int k = 0; k < 4; k++, signs >>= 7) {
            uint32_t sign = signs & 127, parity = sign ^ sign >> 4; // the eighth makes the number of minus signs even
            parity ^= parity >> 2;
            sign |= ((parity ^ parity >> 1) & 1) << 7;
            // eight negations at once: bit j of `sign` becomes 1 in byte j, and -x is ~x + 1 (no byte overflows)
            uint64_t bits = (sign * 0x0101010101010101u) & 0x8040201008040201u, point;
            uint64_t minus = (bits + 0x7f7f7f7f7f7f7f7fu) >> 7 & 0x0101010101010101u;
            memcpy(&point, iq2_grid[index[k]], sizeof point);
            point = (point ^ minus * 255) + minus;
            memcpy(out->q + 32 * g + 8 * k, &point, sizeof point);
        }
    }
    memset(out->min, 0, sizeof out->min);
}

// Of the integer types.
static const QuantUnpack unpackers[TYPE_COUNT] = {
    [TYPE_Q8_0] = unpack_q8_0,       [TYPE_Q4_0] = unpack_q4_0, [TYPE_Q4_1] = unpack_q4_1,
    [TYPE_Q5_0] = unpack_q5_0,       [TYPE_Q5_1] = unpack_q5_1, [TYPE_IQ4_NL] = unpack_iq4_nl,
    [TYPE_Q2_K] = unpack_q2_k,       [TYPE_Q3_K] = unpack_q3_k, [TYPE_Q4_K] = unpack_q4_k,
    [TYPE_Q5_K] = unpack_q5_k,       [TYPE_Q6_K] = unpack_q6_k, [TYPE_IQ4_XS] = unpack_iq4_xs,
    [TYPE_IQ2_XXS] = unpack_iq2_xxs,
};

bool quant_is_integer(uint32_t type) { return type < TYPE_COUNT && unpackers[type]; }

bool quant_is_supported(uint32_t type) {
    return type == TYPE_F32 || type == TYPE_F16 || type == TYPE_BF16 || quant_is_integer(type);
}

size_t quant_row_bytes(Type type, size_t n) {
    const TypeInfo *t = type_info(type);
    return n / (size_t)t->block * (size_t)t->bytes;
}

QuantUnpack quant_unpack(Type type) { return unpackers[type]; }

void quant_decode(Type type, const void *row, float *out, size_t n) {
    if (type == TYPE_F32) {
        memcpy(out, row, n * sizeof *out);
        return;
    }
    if (!quant_is_integer(type)) {
        const uint16_t *h = row;
        if (type == TYPE_F16)
            for (size_t i = 0; i < n; i++) out[i] = f16_to_f32(h[i]);
        else
            for (size_t i = 0; i < n; i++) out[i] = bf16_to_f32(h[i]);
        return;
    }
    const uint8_t *block = row;
    size_t step = (size_t)type_info(type)->block;
    for (size_t i = 0; i < n; i += step, out += step, block += type_info(type)->bytes) {
        QuantBlock b;
        unpackers[type](block, &b);
        for (size_t g = 0; g < step / QUANT_GROUP; g++)
            for (size_t j = QUANT_GROUP * g; j < QUANT_GROUP * (g + 1); j++)
                out[j] = b.scale[g] * (float)b.q[j] - b.min[g];
    }
}
