// NEON: 256 weights of every integer type as signed bytes with scales and minima, held in
// registers.
#ifndef BACKENDS_NEON_UNPACK_H
#define BACKENDS_NEON_UNPACK_H

#include "../kernels/backends.h"
#include "../kernels/codebook.h"
#include "superblock.h"

#include <arm_neon.h>

// Compilers unroll these loops only when told.
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

// As QuantBlock, but with one scale and minimum per group of the type: 16 of them, or 8 if groups
// have 32 weights.
typedef struct {
    int8x16_t q[SUPERBLOCK / 16];
    float32x4_t scale[GROUPS / 4], min[GROUPS / 4];
} Block;

INLINE float f16_at(const void *p) {
    __fp16 h;
    memcpy(&h, p, sizeof h);
    return (float)h;
}

// The f16 values of 8 blocks, `step` bytes apart, times `by`.
INLINE void block_scales(const uint8_t *p, int step, float by, float32x4_t *out) {
    uint16_t h[8];
    for (int i = 0; i < 8; i++) memcpy(h + i, p + i * step, 2);
    float16x8_t v =
        vreinterpretq_f16_u16((uint16x8_t){h[0], h[1], h[2], h[3], h[4], h[5], h[6], h[7]});
    out[0] = vmulq_n_f32(vcvt_f32_f16(vget_low_f16(v)), by);
    out[1] = vmulq_n_f32(vcvt_high_f32_f16(v), by);
}

INLINE void byte_scales(int8x8_t bytes, float d, float32x4_t *out) {
    int16x8_t v = vmovl_s8(bytes);
    out[0] = vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(vget_low_s16(v))), d);
    out[1] = vmulq_n_f32(vcvtq_f32_s32(vmovl_high_s16(v)), d);
}

// Q4_K and Q5_K: f16 d, dmin, then 12 bytes: 6 bits of scales 0..3 and minima 0..3; of the others
// the nibbles in the last four bytes and the high bits on top of the former.
INLINE void k_scales(const uint8_t *p, Block *out) {
    const uint8x16_t low_at = {0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 8, 9, 10, 11};
    const uint8x16_t high_at = {99, 99, 99, 99, 0, 1, 2, 3, 99, 99, 99, 99, 4, 5, 6, 7};
    const uint8x16_t mask = {63, 63, 63, 63, 15, 15, 15, 15, 63, 63, 63, 63, 15, 15, 15, 15};
    const int8x16_t shift = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -4, -4, -4, -4};
    uint8x16_t v = vld1q_u8(p + 4), low = vshlq_u8(vqtbl1q_u8(v, low_at), shift);
    uint8x16_t high = vandq_u8(vshrq_n_u8(vqtbl1q_u8(v, high_at), 2), vdupq_n_u8(0x30));
    int8x16_t s = vreinterpretq_s8_u8(vorrq_u8(vandq_u8(low, mask), high));
    byte_scales(vget_low_s8(s), f16_at(p), out->scale);
    byte_scales(vget_high_s8(s), f16_at(p + 2), out->min);
}

// The types made of 8 pieces of nibbles (Q8_0: of bytes).
INLINE void unpack_pieces(const uint8_t *p, Type type, Block *out) {
    const int bytes = superblock_bytes(type), block = type_info(type)->block;
    const uint8x16_t iq4 = vld1q_u8((const uint8_t *)kvalues_iq4nl);
    bool is_k = type == TYPE_Q4_K || type == TYPE_Q5_K;
    UNROLL
    for (int i = 0; i < 8; i++) { // nibbles end the block
        const uint8_t *at = p + bytes - 128 + 16 * i;
        if (block < SUPERBLOCK) at = p + (i + 1) * (bytes / 8) - 16;
        uint8x16_t v = vld1q_u8(at), low = vandq_u8(v, vdupq_n_u8(15)), high = vshrq_n_u8(v, 4);
        if (type == TYPE_Q8_0) {
            low = vld1q_u8(at - 16), high = v;
        } else if (type == TYPE_Q4_0) { // 16 (q - 8)
            v = veorq_u8(v, vdupq_n_u8(0x88));
            low = vshlq_n_u8(v, 4), high = vandq_u8(v, vdupq_n_u8(0xf0));
        } else if (type == TYPE_IQ4_NL || type == TYPE_IQ4_XS) {
            low = vqtbl1q_u8(iq4, low), high = vqtbl1q_u8(iq4, high);
        } else if (type == TYPE_Q5_K) { // the bit on top of the nibble, other bits above it until
                                        // they are masked
            uint8x16_t bits = vld1q_u8(p + 16 + 16 * (i % 2));
            bits = vshlq_u8(bits, vdupq_n_s8((int8_t)(-2 * (i / 2))));
            low = vandq_u8(vsliq_n_u8(low, bits, 4), vdupq_n_u8(31));
            high = vandq_u8(vsliq_n_u8(high, vshrq_n_u8(bits, 1), 4), vdupq_n_u8(31));
        }
        int first = is_k ? i / 2 * 4 + i % 2 : 2 * i;
        out->q[first] = vreinterpretq_s8_u8(low);
        out->q[first + (is_k ? 2 : 1)] = vreinterpretq_s8_u8(high);
    }
    if (is_k) k_scales(p, out);
    if (block < SUPERBLOCK)
        block_scales(p, bytes / 8, type == TYPE_Q4_0 ? 1 / 16.0f : 1, out->scale);
    if (type == TYPE_Q4_1) block_scales(p + 2, bytes / 8, -1, out->min);
    if (type == TYPE_IQ4_XS) {
        const uint8x8_t pairs = {2, 2, 2, 2, 3, 3, 3, 3}, nibbles = {4, 4, 5, 5, 6, 6, 7, 7};
        const int8x8_t pair = {0, -2, -4, -6, 0, -2, -4, -6}, nibble = {0, -4, 0, -4, 0, -4, 0, -4};
        uint8x8_t v = vld1_u8(p),
                  low = vand_u8(vshl_u8(vtbl1_u8(v, nibbles), nibble), vdup_n_u8(15));
        low = vand_u8(vsli_n_u8(low, vshl_u8(vtbl1_u8(v, pairs), pair), 4), vdup_n_u8(63));
        byte_scales(vsub_s8(vreinterpret_s8_u8(low), vdup_n_s8(32)), f16_at(p), out->scale);
    }
}

// Gives 4 (q - 32): the two bits at the top of the byte, the nibble below them.
INLINE void unpack_q6_k(const uint8_t *p, Block *out) {
    const BlockQ6_K *b = (const BlockQ6_K *)p;
    UNROLL
    for (int i = 0; i < 16; i++) { // 128 h + 32 s + 16 j
        int h = i / 8, s = i / 2 % 4, j = i % 2;
        uint8x16_t low = vld1q_u8(b->ql + 64 * h + 32 * (s % 2) + 16 * j),
                   high = vld1q_u8(b->qh + 32 * h + 16 * j);
        low = s < 2 ? vshlq_n_u8(low, 4) : vandq_u8(low, vdupq_n_u8(0xf0));
        high = vshlq_u8(high, vdupq_n_s8((int8_t)(6 - 2 * s)));
        out->q[i] = vreinterpretq_s8_u8(veorq_u8(vsriq_n_u8(high, low, 2), vdupq_n_u8(0x80)));
    }
    byte_scales(vld1_s8(b->scales), f16_at(&b->d) / 4, out->scale);
    byte_scales(vld1_s8(b->scales + 8), f16_at(&b->d) / 4, out->scale + 2);
}

// The i-quants made of points.
INLINE void unpack_points(const uint8_t *p, Type type, Block *out) {
    const uint8x16_t bit = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    const int one_of = type_info(type)->group / 16; // scales
    uint16_t bits = codebook_d(type, p);
    float d = f16_at(&bits) * codebook_info(type)->factor;
    uint64_t odd[2] = {0};
    UNROLL
    for (int i = 0; i < 16; i++) {
        CodebookGroup o = codebook_group(type, p, i / 2);
        const int8_t *const *e = o.entries8 + 2 * (i % 2), *const *f = o.entries4 + 4 * (i % 2);
        uint32_t signs = o.signs >> 16 * (i % 2);
        int8x16_t v,
            minus = vreinterpretq_s8_u8(vtstq_u8(
                vcombine_u8(vdup_n_u8((uint8_t)signs), vdup_n_u8((uint8_t)(signs >> 8))), bit));
        if (codebook_info(type)->entry_len == 4)
            v = vreinterpretq_s8_s32((int32x4_t){(int32_t)load_u32(f[0]), (int32_t)load_u32(f[1]),
                                                 (int32_t)load_u32(f[2]), (int32_t)load_u32(f[3])});
        else
            v = vcombine_s8(vld1_s8(e[0]), vld1_s8(e[1]));
        if (codebook_info(type)->has_delta) // 8 v, less or more one
            out->q[i] = vaddq_s8(vshlq_n_s8(v, 3), vorrq_s8(minus, vdupq_n_s8(1)));
        else
            out->q[i] = vsubq_s8(veorq_s8(v, minus), minus);
        uint64_t s = o.scales >> 8 * (i % 2) & 255;
        if (i % one_of == 0) odd[i / one_of / 8] |= s << 8 * (i / one_of % 8);
    }
    byte_scales(vcreate_s8(odd[0]), d, out->scale);
    if (one_of == 1) byte_scales(vcreate_s8(odd[1]), d, out->scale + 2);
}

// What has no vector code.
INLINE void unpack_other(const uint8_t *p, Type type, Block *out) {
    const int block = type_info(type)->block, group = type_info(type)->group;
    for (int k = 0; k < SUPERBLOCK; k += block, p += type_info(type)->bytes) {
        QuantBlock b;
        quant_unpack(type)(p, &b);
        memcpy((int8_t *)out->q + k, b.q, (size_t)block);
        for (int g = 0; g < block / group; g++) {
            ((float *)out->scale)[k / group + g] = b.scale[g * group / QUANT_GROUP];
            ((float *)out->min)[k / group + g] = b.min[g * group / QUANT_GROUP];
        }
    }
}

// Unpacks 256 columns of a row; if the row ends in them, what follows has scales of zero.
INLINE void unpack_unit(Type type, const Tensor *w, int row, int k, Block *out) {
    const uint8_t *p = (const uint8_t *)w->data + (size_t)row * w->row_bytes;
    uint8_t buffer[MAX_SUPERBLOCK_BYTES];
    p = padded_superblock(type, p + (size_t)(k / SUPERBLOCK) * (size_t)superblock_bytes(type),
                          w->cols - k, buffer);
    if (type == TYPE_Q6_K)
        unpack_q6_k(p, out);
    else if (type_info(type)->nibble_offset || type == TYPE_Q8_0 || type == TYPE_Q5_K)
        unpack_pieces(p, type, out);
    else if (codebook_info(type)->entry_len)
        unpack_points(p, type, out);
    else
        unpack_other(p, type, out);
}

#endif
