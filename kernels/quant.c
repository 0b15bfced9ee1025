// Unpacking of every quantized type: the specification of the formats in code. The layouts are
// drawn in blocks.h.
// Order: float types, types with blocks of 32, K types, codebooks, few bits, all types.
#include "kernels/quant.h"
#include "kernels/codebook.h"
#include "base/bits.h"

#include <math.h>

// Float types. A float32 has 1 bit of sign, 8 of exponent (bias 127) and 23 of fraction; float16
// has 1, 5 (bias 15) and 10; bfloat16 is the upper half of a float32.

float f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, u = (uint32_t)(h & 0x7fff) << 13;
    if (u >= 0x0f800000) return float_from_bits(sign | 0x70000000 | u); // infinity, NaN
    // A normal number only needs another exponent bias. The bits of a subnormal become the fraction
    // of a number in [2^-14, 2^-13), from which 2^-14 is then subtracted.
    float f = u < 0x00800000 ? float_from_bits(u + 0x38800000) - 0x1p-14f
                             : float_from_bits(u + 0x38000000);
    return float_from_bits(sign | float_bits(f));
}

uint16_t f32_to_f16(float f) {
    uint32_t u = float_bits(f), sign = (u >> 16) & 0x8000;
    u &= 0x7fffffff;
    if (u > 0x7f800000) return (uint16_t)(sign | 0x7e00);  // NaN
    if (u >= 0x477ff000) return (uint16_t)(sign | 0x7c00); // 65520 and more round to infinity
    // Below 2^-14, adding 0.5 rounds to a multiple of 2^-24, the last bit of a subnormal float16.
    if (u < 0x38800000)
        return (uint16_t)(sign | (float_bits(float_from_bits(u) + 0.5f) - 0x3f000000));
    return (uint16_t)(sign | (u + 0xfff + ((u >> 13) & 1) - 0x38000000) >> 13);
}

float bf16_to_f32(uint16_t h) { return float_from_bits((uint32_t)h << 16); }

uint16_t f32_to_bf16(float f) {
    uint32_t u = float_bits(f);
    if ((u & 0x7fffffff) > 0x7f800000) return (uint16_t)(u >> 16 | 64); // NaN, made quiet
    return (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

// Types with blocks of 32.

// Group g of 32 weights has one scale and one minimum.
static void set_group32(QuantBlock *out, int g, float scale, float min) {
    out->scale[2 * g] = out->scale[2 * g + 1] = scale;
    out->min[2 * g] = out->min[2 * g + 1] = min;
}

// Unpacks n bytes: first all low nibbles, then all high nibbles, minus zero_point.
static void spread_nibbles(int8_t *q, const uint8_t *qs, int n, int zero_point) {
    for (int i = 0; i < n; i++) q[i] = (int8_t)((qs[i] & 15) - zero_point);
    for (int i = 0; i < n; i++) q[n + i] = (int8_t)((qs[i] >> 4) - zero_point);
}

static void unpack_q8_0(const void *block, QuantBlock *out) {
    const BlockQ8_0 *b = block;
    set_group32(out, 0, f16_to_f32(b->d), 0);
    memcpy(out->q, b->qs, sizeof b->qs);
}

// Q4_0, Q4_1, Q5_0 and Q5_1: d, then m if there is a minimum, then qh if q has five bits, then qs.
INLINE void unpack_block32(const uint8_t *b, QuantBlock *out, bool has_min, bool is_5_bit,
                           int zero_point) {
    const uint8_t *qh = b + (has_min ? 4 : 2), *qs = qh + (is_5_bit ? 4 : 0);
    set_group32(out, 0, f16_to_f32(load_u16(b)), has_min ? -f16_to_f32(load_u16(b + 2)) : 0);
    spread_nibbles(out->q, qs, 16, zero_point);
    if (!is_5_bit) return;
    for (int i = 0; i < 32; i++) // bit i of qh is the fifth bit of weight i
        out->q[i] = (int8_t)(out->q[i] + ((qh[i / 8] >> i % 8 & 1) << 4));
}

static void unpack_q4_0(const void *b, QuantBlock *out) { unpack_block32(b, out, false, false, 8); }
static void unpack_q4_1(const void *b, QuantBlock *out) { unpack_block32(b, out, true, false, 0); }
static void unpack_q5_0(const void *b, QuantBlock *out) { unpack_block32(b, out, false, true, 16); }
static void unpack_q5_1(const void *b, QuantBlock *out) { unpack_block32(b, out, true, true, 0); }

// IQ4 types: a nibble selects one of 16 values. They are closer together near zero, where most
// weights are.

const int8_t kvalues_iq4nl[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                  1,    13,   25,  38,  53,  69,  89,  113};

static void unpack_iq4(int8_t *q, const uint8_t *qs) {
    spread_nibbles(q, qs, 16, 0);
    for (int i = 0; i < 32; i++) q[i] = kvalues_iq4nl[q[i]];
}

static void unpack_iq4_nl(const void *block, QuantBlock *out) {
    const BlockIQ4_NL *b = block;
    set_group32(out, 0, f16_to_f32(b->d), 0);
    unpack_iq4(out->q, b->qs);
}

static void unpack_iq4_xs(const void *block, QuantBlock *out) {
    const BlockIQ4_XS *b = block;
    float d = f16_to_f32(b->d);
    for (int g = 0; g < 8; g++) {
        int scale = (b->scales_l[g / 2] >> g % 2 * 4 & 15) | (b->scales_h >> 2 * g & 3) << 4;
        set_group32(out, g, d * (float)(scale - 32), 0);
        unpack_iq4(out->q + 32 * g, b->qs + 16 * g);
    }
}

// K-quants: superblocks of 256. The scale of a group of 16 or 32 weights is a small integer times
// the d of the superblock, so it takes 4 to 8 bits instead of 16.

// The 2-bit integers of 256 weights, as Q2_K, Q3_K and TQ2_0 store them.
static void unpack_2_bit(int8_t *q, const uint8_t *qs) {
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
    unpack_2_bit(out->q, b->qs);
}

// The third bit of a weight comes from hmask; q - 4 is signed.
static void unpack_q3_k(const void *block, QuantBlock *out) {
    const BlockQ3_K *b = block;
    float d = f16_to_f32(b->d);
    for (int g = 0; g < 16; g++) {
        int low = b->scales[g % 8] >> g / 8 * 4 & 15, high = b->scales[8 + g % 4] >> g / 4 * 2 & 3;
        out->scale[g] = d * (float)((low | high << 4) - 32);
    }
    memset(out->min, 0, sizeof out->min);
    unpack_2_bit(out->q, b->qs);
    for (int s = 0; s < 8; s++)
        for (int l = 0; l < 32; l++)
            out->q[32 * s + l] = (int8_t)(out->q[32 * s + l] + ((b->hmask[l] >> s & 1) << 2) - 4);
}

// The 6-bit scales and minima of Q4_K and Q5_K, and the lower four bits of the weights.
static void unpack_k_nibbles(QuantBlock *out, const uint8_t s[12], float d, float dmin,
                             const uint8_t *qs) {
    for (int j = 0; j < 4; j++) {
        set_group32(out, j, d * (float)(s[j] & 63), dmin * (float)(s[j + 4] & 63));
        set_group32(out, j + 4, d * (float)((s[j + 8] & 15) | s[j] >> 6 << 4),
                    dmin * (float)(s[j + 8] >> 4 | s[j + 4] >> 6 << 4));
    }
    for (int p = 0; p < 4; p++) spread_nibbles(out->q + 64 * p, qs + 32 * p, 32, 0);
}

static void unpack_q4_k(const void *block, QuantBlock *out) {
    const BlockQ4_K *b = block;
    unpack_k_nibbles(out, b->scales, f16_to_f32(b->d), f16_to_f32(b->dmin), b->qs);
}

// Q5_K is Q4_K with fifth bits: bit s of qh[l] belongs to weight 32 s + l.
static void unpack_q5_k(const void *block, QuantBlock *out) {
    const BlockQ5_K *b = block;
    unpack_k_nibbles(out, b->scales, f16_to_f32(b->d), f16_to_f32(b->dmin), b->qs);
    for (int s = 0; s < 8; s++)
        for (int l = 0; l < 32; l++)
            out->q[32 * s + l] = (int8_t)(out->q[32 * s + l] + ((b->qh[l] >> s & 1) << 4));
}

// Signed scales of 8 bits, one for each 16 weights.
static void unpack_q6_k(const void *block, QuantBlock *out) {
    const BlockQ6_K *b = block;
    float d = f16_to_f32(b->d);
    for (int g = 0; g < 16; g++) out->scale[g] = d * (float)b->scales[g];
    memset(out->min, 0, sizeof out->min);
    for (int s = 0; s < 8; s++) { // 32 weights
        const uint8_t *low = b->ql + s / 4 * 64 + s % 2 * 32, *high = b->qh + s / 4 * 32;
        for (int l = 0; l < 32; l++)
            out->q[32 * s + l] =
                (int8_t)(((low[l] >> s % 4 / 2 * 4 & 15) | (high[l] >> s % 4 * 2 & 3) << 4) - 32);
    }
}

// Codebook types: codebook.h parses the blocks; these functions apply the sign mask and the scale.

// Writes 8 weights, negating those whose bit in the sign mask is set. To avoid branches, bit j of
// `signs` becomes 1 in byte j of `negative`, and -x is computed as ~x + 1 (no byte overflows).
static void negate_8(int8_t *q, uint64_t entry, uint32_t signs) {
    uint64_t spread = (signs * 0x0101010101010101u) & 0x8040201008040201u;
    uint64_t negative = (spread + 0x7f7f7f7f7f7f7f7fu) >> 7 & 0x0101010101010101u;
    entry = (entry ^ negative * 255) + negative;
    memcpy(q, &entry, sizeof entry);
}

// Constant arguments let the compiler remove all branches on the type.
INLINE void unpack_codebook(Type type, const void *block, QuantBlock *out) {
    float d = f16_to_f32(codebook_d(type, block)) * codebook_info(type)->factor;

    for (int g = 0; g < 8; g++) {
        CodebookGroup group = codebook_group(type, block, g);
        out->scale[2 * g] = d * (float)(group.scales & 255);
        out->scale[2 * g + 1] = d * (float)(group.scales >> 8);

        // A group has 4 x 8 weights. Eight weights are one entry of 8 or two entries of 4.
        for (int k = 0; k < 4; k++) {
            int8_t *q = out->q + 32 * g + 8 * k;
            uint32_t signs = group.signs >> 8 * k & 255;
            const int8_t *e8 = group.entries8[k], *const *e4 = group.entries4 + 2 * k;
            if (codebook_info(type)->has_delta) // 8 (entry +- delta), a whole number
                for (int j = 0; j < 8; j++) q[j] = (int8_t)(8 * e8[j] + (signs ? -1 : 1));
            else if (codebook_info(type)->entry_len == 8)
                negate_8(q, load_u64(e8), signs);
            else
                negate_8(q, load_u32(e4[0]) | (uint64_t)load_u32(e4[1]) << 32, signs);
        }
    }

    memset(out->min, 0, sizeof out->min);
}

#define UNPACK_CODEBOOK(type, name)                                                                \
    static void unpack_##name(const void *block, QuantBlock *out) {                                \
        unpack_codebook(TYPE_##type, block, out);                                                  \
    }
CODEBOOK_TYPES(UNPACK_CODEBOOK)

// Ternary types: weights of -1, 0 and 1, times d.

// Trit n of a byte (0 to 2), where power is 3^n; see blocks.h.
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
    for (int g = 0; g < 8; g++) set_group32(out, g, f16_to_f32(b->d), 0);
}

static void unpack_tq2_0(const void *block, QuantBlock *out) {
    const BlockTQ2_0 *b = block;
    unpack_2_bit(out->q, b->qs);
    for (int i = 0; i < 256; i++) out->q[i]--;
    for (int g = 0; g < 8; g++) set_group32(out, g, f16_to_f32(b->d), 0);
}

// Types of 1 and 2 bits.

static void unpack_q1_0(const void *block, QuantBlock *out) {
    const BlockQ1_0 *b = block;
    for (int i = 0; i < 128; i++) out->q[i] = (int8_t)(2 * (b->qs[i / 8] >> i % 8 & 1) - 1);
    for (int g = 0; g < 4; g++) set_group32(out, g, f16_to_f32(b->d), 0);
}

static void unpack_q2_0(const void *block, QuantBlock *out) {
    const BlockQ2_0 *b = block;
    for (int i = 0; i < 64; i++) out->q[i] = (int8_t)((b->qs[i / 4] >> 2 * (i % 4) & 3) - 1);
    for (int g = 0; g < 2; g++) set_group32(out, g, f16_to_f32(b->d), 0);
}

// All types.

#define UNPACKER(type, name, ...) [TYPE_##type] = unpack_##name,
static const QuantUnpack unpackers[TYPE_COUNT] = {INTEGER_TYPES(UNPACKER, )};

QuantUnpack quant_unpack(Type type) { return unpackers[type]; }

bool quant_is_integer(uint32_t type) { return type < TYPE_COUNT && unpackers[type]; }

bool quant_is_supported(uint32_t type) {
    return type == TYPE_F32 || type == TYPE_F16 || type == TYPE_BF16 || quant_is_integer(type);
}

size_t quant_row_bytes(Type type, size_t n) {
    const TypeInfo *t = type_info(type);
    return n / (size_t)t->block * (size_t)t->bytes;
}

void quant_decode_row(Type type, const void *row, float *out, size_t n) {
    const uint16_t *halves = row;
    if (type == TYPE_F32) memcpy(out, row, n * sizeof *out);
    for (size_t i = 0; type == TYPE_F16 && i < n; i++) out[i] = f16_to_f32(halves[i]);
    for (size_t i = 0; type == TYPE_BF16 && i < n; i++) out[i] = bf16_to_f32(halves[i]);
    if (!quant_is_integer(type)) return;

    const uint8_t *block = row;
    size_t n_block = (size_t)type_info(type)->block;
    for (size_t i = 0; i < n; i += n_block, out += n_block, block += type_info(type)->bytes) {
        QuantBlock b;
        unpackers[type](block, &b);
        for (size_t g = 0; g < n_block / QUANT_GROUP; g++)
            for (size_t j = QUANT_GROUP * g; j < QUANT_GROUP * (g + 1); j++)
                out[j] = b.scale[g] * (float)b.q[j] - b.min[g];
    }
}

bool quant_encode_q8_0(const float *x, void *row, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(x[i]) <= QUANT_LIMIT)) return false;
    for (BlockQ8_0 *b = row; b < (BlockQ8_0 *)row + n / 32; b++, x += 32) {
        float max = 0;
        for (int i = 0; i < 32; i++) max = fabsf(x[i]) > max ? fabsf(x[i]) : max;
        float d = max / 127, inverse = d > 0 ? 1 / d : 0;
        b->d = f32_to_f16(d);
        for (int i = 0; i < 32; i++) b->qs[i] = (int8_t)roundf(x[i] * inverse);
    }
    return true;
}

bool quant_encode_q4_0(const float *x, void *row, size_t n) {
    for (BlockQ4_0 *b = row; b < (BlockQ4_0 *)row + n / 32; b++, x += 32) {
        float high = 0, low = 0, rest[32], least = INFINITY; // least squared error so far
        int q[32];

        for (int i = 0; i < 32; i++) high = x[i] > high ? x[i] : high;
        for (int i = 0; i < 32; i++) low = x[i] < low ? x[i] : low;

        // Try three scales, which make the value of largest magnitude -7.5, -8 or -8.5 steps, and
        // keep the one with the least squared error.
        for (float level = 7.5f; level <= 8.5f; level += 0.5f) {
            uint16_t scale = f32_to_f16((high > -low ? high : low) / -level);
            float d = f16_to_f32(scale), inverse = d != 0 ? 1 / d : 0, error = 0;
            for (int i = 0; i < 32; i++) {
                float y = x[i] * inverse + 8.5f;
                y = y > 0 ? y : 0;
                q[i] = (int)(y < 15 ? y : 15);
                rest[i] = x[i] - d * (float)(q[i] - 8);
            }
            for (int i = 0; i < 32; i++) error += rest[i] * rest[i];
            if (!(error < least)) continue;

            least = error;
            b->d = scale;
            for (int i = 0; i < 16; i++) b->qs[i] = (uint8_t)(q[i] | q[i + 16] << 4);
        }

        if (least == INFINITY) return false; // a NaN, an infinity, or d is too large for float16
    }

    return true;
}
