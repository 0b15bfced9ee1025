// Tensor types: conversions, sizes and unpacking of every block into integers, scales and minima.
#include "quant.h"
#include "codebook.h"

#include <math.h>
#include <string.h>

const int8_t kvalues_iq4nl[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                  1,    13,   25,  38,  53,  69,  89,  113};

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
    // A subnormal's bits as the fraction of a number in [2^-14, 2^-13): subtracting its leading one
    // normalises it.
    float f = u < 0x00800000 ? float_of(u + 0x38800000) - 0x1p-14f : float_of(u + 0x38000000);
    return float_of(sign | bits_of(f));
}

uint16_t f32_to_f16(float f) {
    uint32_t u = bits_of(f), sign = (u >> 16) & 0x8000;
    u &= 0x7fffffff;
    if (u > 0x7f800000) return (uint16_t)(sign | 0x7e00);
    if (u >= 0x477ff000)
        return (uint16_t)(sign | 0x7c00); // 65520 is the first that rounds to infinity
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
        q[i] = kvalues_iq4nl[qs[i] & 15];
        q[i + 16] = kvalues_iq4nl[qs[i] >> 4];
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
        int scale = (b->scales[g % 8] >> g / 8 * 4 & 15) | (b->scales[8 + g % 4] >> g / 4 * 2 & 3)
                                                               << 4;
        out->scale[g] = d * (float)(scale - 32);
    }
    memset(out->min, 0, sizeof out->min);
    unpack_crumbs(out->q, b->qs);
    for (int s = 0; s < 8; s++)
        for (int l = 0; l < 32; l++)
            out->q[32 * s + l] = (int8_t)(out->q[32 * s + l] + ((b->hmask[l] >> s & 1) << 2) - 4);
}

// Scales and minima of Q4_K and Q5_K. Groups 0..3 lie in the low six bits of bytes 0..3 (scales)
// and 4..7 (minima); of groups 4..7 the low nibbles are in bytes 8..11 and the high two bits on top
// of the former.
static void unpack_scales(QuantBlock *out, const uint8_t s[12], float d, float dmin) {
    for (int g = 0; g < 4; g++) {
        float scale[2] = {d * (float)(s[g] & 63), d * (float)((s[g + 8] & 15) | s[g] >> 6 << 4)};
        float min[2] = {dmin * (float)(s[g + 4] & 63),
                        dmin * (float)(s[g + 8] >> 4 | s[g + 4] >> 6 << 4)};
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
            out->q[32 * s + l] =
                (int8_t)(((low[l] >> s % 4 / 2 * 4 & 15) | (high[l] >> s % 4 * 2 & 3) << 4) - 32);
    }
}

// Eight weights, negated where a bit of `signs` is set: all at once, for bit j becomes 1 in byte j,
// and -x is ~x + 1 (no byte overflows).
static void put_signed(int8_t *q, uint64_t point, uint32_t signs) {
    uint64_t bits = (signs * 0x0101010101010101u) & 0x8040201008040201u;
    uint64_t minus = (bits + 0x7f7f7f7f7f7f7f7fu) >> 7 & 0x0101010101010101u;
    point = (point ^ minus * 255) + minus;
    memcpy(q, &point, sizeof point);
}

// A point of IQ1 and an eighth more or less: eight times that is whole.
static void put_shifted(int8_t *q, const int8_t *point, bool is_less) {
    for (int j = 0; j < 8; j++) q[j] = (int8_t)(8 * point[j] + (is_less ? -1 : 1));
}

static uint64_t two_fours(const int8_t *const p[2]) {
    return load_u32(p[0]) | (uint64_t)load_u32(p[1]) << 32;
}

INLINE void unpack_codebook(Type type, const void *block, QuantBlock *out) {
    float d = f16_to_f32(codebook_d(type, block)) * codebook_info(type)->factor;
    for (int g = 0; g < 8; g++) {
        CodebookGroup p = codebook_group(type, block, g);
        out->scale[2 * g] = d * (float)(p.scales & 255);
        out->scale[2 * g + 1] = d * (float)(p.scales >> 8);
        for (int k = 0; k < 4; k++) {
            int8_t *q = out->q + 32 * g + 8 * k;
            uint32_t minus = p.signs >> 8 * k & 255;
            if (codebook_info(type)->has_delta)
                put_shifted(q, p.entries8[k], minus);
            else
                put_signed(q,
                           codebook_info(type)->entry_len == 4 ? two_fours(p.entries4 + 2 * k)
                                                               : load_u64(p.entries8[k]),
                           minus);
        }
    }
    memset(out->min, 0, sizeof out->min);
}

#define UNPACK_CODEBOOK(type, name)                                                                \
    static void unpack_##name(const void *block, QuantBlock *out) {                                \
        unpack_codebook(TYPE_##type, block, out);                                                  \
    }
CODEBOOK_TYPES(UNPACK_CODEBOOK)

// The digit of base 3 that a power of three brings to the top of a byte: 0 to 2.
static int trit(uint8_t byte, int power) { return (uint8_t)(byte * power) * 3 >> 8; }

static void unpack_tq1_0(const void *block, QuantBlock *out) {
    static const uint8_t powers[] = {1, 3, 9, 27, 81};
    const BlockTQ1_0 *b = block;
    for (int n = 0; n < 5; n++) {
        for (int i = 0; i < 32; i++) out->q[32 * n + i] = (int8_t)(trit(b->qs[i], powers[n]) - 1);
        for (int i = 0; i < 16; i++)
            out->q[160 + 16 * n + i] = (int8_t)(trit(b->qs[32 + i], powers[n]) - 1);
        for (int i = 0; i < 4 && n < 4; i++)
            out->q[240 + 4 * n + i] = (int8_t)(trit(b->qh[i], powers[n]) - 1);
    }
    for (int g = 0; g < 16; g++) out->scale[g] = f16_to_f32(b->d);
    memset(out->min, 0, sizeof out->min);
}

static void unpack_tq2_0(const void *block, QuantBlock *out) {
    const BlockTQ2_0 *b = block;
    for (int i = 0; i < 256; i++)
        out->q[i] = (int8_t)((b->qs[i / 128 * 32 + i % 32] >> 2 * (i / 32 % 4) & 3) - 1);
    for (int g = 0; g < 16; g++) out->scale[g] = f16_to_f32(b->d);
    memset(out->min, 0, sizeof out->min);
}

// Of the integer types.
static const QuantUnpack unpackers[TYPE_COUNT] = {
    [TYPE_Q8_0] = unpack_q8_0,       [TYPE_Q4_0] = unpack_q4_0,     [TYPE_Q4_1] = unpack_q4_1,
    [TYPE_Q5_0] = unpack_q5_0,       [TYPE_Q5_1] = unpack_q5_1,     [TYPE_IQ4_NL] = unpack_iq4_nl,
    [TYPE_Q2_K] = unpack_q2_k,       [TYPE_Q3_K] = unpack_q3_k,     [TYPE_Q4_K] = unpack_q4_k,
    [TYPE_Q5_K] = unpack_q5_k,       [TYPE_Q6_K] = unpack_q6_k,     [TYPE_IQ4_XS] = unpack_iq4_xs,
    [TYPE_IQ2_XXS] = unpack_iq2_xxs, [TYPE_IQ2_XS] = unpack_iq2_xs, [TYPE_IQ2_S] = unpack_iq2_s,
    [TYPE_IQ3_XXS] = unpack_iq3_xxs, [TYPE_IQ3_S] = unpack_iq3_s,   [TYPE_IQ1_S] = unpack_iq1_s,
    [TYPE_IQ1_M] = unpack_iq1_m,     [TYPE_TQ1_0] = unpack_tq1_0,   [TYPE_TQ2_0] = unpack_tq2_0,
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

void quant_decode_row(Type type, const void *row, float *out, size_t n) {
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

bool quant_encode_q8_0(const float *x, void *row, size_t n) {
    BlockQ8_0 *b = row;
    for (size_t i = 0; i < n; i += 32, x += 32, b++) {
        float max = 0;
        bool is_valid = true;
        for (int j = 0; j < 32; j++) {
            float a = fabsf(x[j]);
            is_valid &= a <= QUANT_LIMIT;
            max = a > max ? a : max;
        }
        if (!is_valid) return false;
        float d = max / 127, inv = d > 0 ? 1 / d : 0;
        b->d = f32_to_f16(d);
        for (int j = 0; j < 32; j++) b->qs[j] = (int8_t)roundf(x[j] * inv);
    }
    return true;
}
