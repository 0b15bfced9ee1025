// NEON: a superblock of one row in registers, for every integer type: 256 signed bytes, with a
// scale and a negated minimum for each group of the type. The integers of Q4_0 stay in the high
// bits of a byte, where the sign is; their scales are divided by 16.
#pragma once

#include "kernels/vector/vector.h"
#include "kernels/backends.h"
#include "kernels/codebook.h"

// Asks the compiler to unroll a loop over an array of registers, which it does not do by itself.
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

typedef struct {
    int8x16_t q[SUPERBLOCK / 16];
    float32x4_t scale[SUPERBLOCK_GROUPS / 4];     // 16 values, or 8
    float32x4_t minus_min[SUPERBLOCK_GROUPS / 4]; // the same, where the type has minima
} NeonRow;

// Eight float16 that are `step` bytes apart, times `by`.
INLINE void f16_scales(const uint8_t *p, int step, float by, float32x4_t *out) {
    uint16_t h[8];
    for (int i = 0; i < 8; i++) memcpy(h + i, p + i * step, 2);
    float16x8_t v =
        vreinterpretq_f16_u16((uint16x8_t){h[0], h[1], h[2], h[3], h[4], h[5], h[6], h[7]});
    out[0] = vmulq_n_f32(vcvt_f32_f16(vget_low_f16(v)), by);
    out[1] = vmulq_n_f32(vcvt_high_f32_f16(v), by);
}

// Eight bytes times d.
INLINE void int8_scales(int8x8_t bytes, float d, float32x4_t *out) {
    int16x8_t v = vmovl_s8(bytes);
    out[0] = vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(vget_low_s16(v))), d);
    out[1] = vmulq_n_f32(vcvtq_f32_s32(vmovl_high_s16(v)), d);
}

// Q4_K and Q5_K: float16 d and dmin, then 12 bytes with scales and minima of 6 bits (drawn at
// scales_q4_k in x86_unpack.h). Bytes 0 to 7 hold scales 0 to 3 and minima 0 to 3. Of scales and
// minima 4 to 7, the low 4 bits are the nibbles of bytes 8 to 11, the high 2 bits those of bytes 0
// to 7.
INLINE void k_scales(const uint8_t *p, NeonRow *out) {
    const uint8x16_t low_at = {0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 8, 9, 10, 11};
    const uint8x16_t high_at = {99, 99, 99, 99, 0, 1, 2, 3, 99, 99, 99, 99, 4, 5, 6, 7};
    const uint8x16_t mask = {63, 63, 63, 63, 15, 15, 15, 15, 63, 63, 63, 63, 15, 15, 15, 15};
    const int8x16_t shift = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -4, -4, -4, -4};
    uint8x16_t v = vld1q_u8(p + 4), low = vshlq_u8(vqtbl1q_u8(v, low_at), shift);
    uint8x16_t high = vshrq_n_u8(vqtbl1q_u8(v, high_at), 2) & vdupq_n_u8(0x30);
    int8x16_t s = vreinterpretq_s8_u8((low & mask) | high);
    int8_scales(vget_low_s8(s), f16_at(p), out->scale);
    int8_scales(vget_high_s8(s), -f16_at(p + 2), out->minus_min);
}

INLINE void iq4_xs_scales(const uint8_t *p, NeonRow *out) {
    const uint8x8_t pairs = {2, 2, 2, 2, 3, 3, 3, 3}, nibbles = {4, 4, 5, 5, 6, 6, 7, 7};
    const int8x8_t pair = {0, -2, -4, -6, 0, -2, -4, -6}, nibble = {0, -4, 0, -4, 0, -4, 0, -4};
    uint8x8_t v = vld1_u8(p), low = vshl_u8(vtbl1_u8(v, nibbles), nibble) & vdup_n_u8(15);
    low = vsli_n_u8(low, vshl_u8(vtbl1_u8(v, pairs), pair), 4) & vdup_n_u8(63);
    int8_scales(vsub_s8(vreinterpret_s8_u8(low), vdup_n_s8(32)), f16_at(p), out->scale);
}

// Types of nibbles, eight times 16 bytes at the end of the block or of each block of 32, and Q8_0,
// which has eight times 32 bytes.
INLINE void unpack_nibbles(Type type, const uint8_t *p, NeonRow *out) {
    const int bytes = superblock_bytes(type), block = type_info(type)->block;
    const uint8x16_t iq4 = vld1q_u8((const uint8_t *)kvalues_iq4nl);

    UNROLL
    for (int i = 0; i < 8; i++) {
        const uint8_t *at =
            block < SUPERBLOCK ? p + (i + 1) * (bytes / 8) - 16 : p + bytes - 128 + 16 * i;
        uint8x16_t v = vld1q_u8(at);
        uint8x16_t low = v & vdupq_n_u8(15);
        uint8x16_t high = vshrq_n_u8(v, 4);

        if (type == TYPE_Q8_0) {
            low = vld1q_u8(at - 16);
            high = v;
        } else if (type == TYPE_Q4_0) { // 16 (q - 8)
            v = v ^ vdupq_n_u8(0x88);
            low = vshlq_n_u8(v, 4);
            high = v & vdupq_n_u8(0xf0);
        } else if (type == TYPE_IQ4_NL || type == TYPE_IQ4_XS) {
            low = vqtbl1q_u8(iq4, low);
            high = vqtbl1q_u8(iq4, high);
        }

        out->q[2 * i] = vreinterpretq_s8_u8(low);
        out->q[2 * i + 1] = vreinterpretq_s8_u8(high);
    }

    if (block < SUPERBLOCK) f16_scales(p, bytes / 8, type == TYPE_Q4_0 ? 1 / 16.0f : 1, out->scale);
    if (type == TYPE_Q4_1) f16_scales(p + 2, bytes / 8, 1, out->minus_min);
    if (type == TYPE_IQ4_XS) iq4_xs_scales(p, out);
}

// Moves a field of each of 16 bytes from bit `from` to bit `to`. Other bits are not cleared.
INLINE uint8x16_t move_field(const uint8_t *p, int from, int to) {
    uint8x16_t v = vld1q_u8(p);
    if (from > to) v = v >> vdupq_n_u8((uint8_t)(from - to));
    if (from < to) v = v << vdupq_n_u8((uint8_t)(to - from));
    return v;
}

// Types of bit fields (bit_layout), 16 columns at a time. Q4_K, Q5_K and Q6_K have vector code for
// their scales.
INLINE void unpack_bit_fields(Type type, const uint8_t *p, NeonRow *out) {
    const BitLayout *b = bit_layout(type);
    const int low_mask = (1 << b->low_bits) - 1, high_mask = ((1 << b->high_bits) - 1)
                                                             << b->low_bits;

    UNROLL
    for (int i = 0; i < 16; i++) {
        const BitPlace low = low_bits_place(b, i / 2);
        uint8x16_t v = move_field(p + low.at + 16 * (i % 2), low.shift, 0);
        if (low.shift + b->low_bits < 8) v = v & vdupq_n_u8((uint8_t)low_mask);

        if (b->high_bits) {
            const BitPlace high = high_bits_place(b, i / 2);
            uint8x16_t bits = move_field(p + high.at + 16 * (i % 2), high.shift, b->low_bits);
            v = vbslq_u8(vdupq_n_u8((uint8_t)high_mask), bits, v);
        }

        v = v - vdupq_n_u8((uint8_t)type_info(type)->zero_point);
        out->q[i] = vreinterpretq_s8_u8(v);
    }

    if (type == TYPE_Q6_K) {
        const BlockQ6_K *q6_k = (const BlockQ6_K *)p;
        int8_scales(vld1_s8(q6_k->scales), f16_at(&q6_k->d), out->scale);
        int8_scales(vld1_s8(q6_k->scales + 8), f16_at(&q6_k->d), out->scale + 2);
    } else {
        k_scales(p, out);
    }
}

// Unpacks codebook types, half a group of 32 at a time.
INLINE void unpack_codebook_neon(Type type, const uint8_t *p, NeonRow *out) {
    const CodebookInfo *info = codebook_info(type);
    const uint8x16_t bit = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    const int halves = type_info(type)->group / 16; // halves that share a scale
    uint16_t d = codebook_d(type, p);
    uint64_t scales[2] = {0};

    UNROLL
    for (int i = 0; i < 16; i++) {
        CodebookGroup g = codebook_group(type, p, i / 2);
        const int8_t *const *e = g.entries8 + 2 * (i % 2);
        const int8_t *const *f = g.entries4 + 4 * (i % 2);
        uint32_t signs = g.signs >> 16 * (i % 2);
        uint8x16_t sign_bytes =
            vcombine_u8(vdup_n_u8((uint8_t)signs), vdup_n_u8((uint8_t)(signs >> 8)));
        int8x16_t negative = vreinterpretq_s8_u8(vtstq_u8(sign_bytes, bit));

        int8x16_t v;
        if (info->entry_len == 4)
            v = vreinterpretq_s8_s32((int32x4_t){(int32_t)load_u32(f[0]), (int32_t)load_u32(f[1]),
                                                 (int32_t)load_u32(f[2]), (int32_t)load_u32(f[3])});
        else
            v = vcombine_s8(vld1_s8(e[0]), vld1_s8(e[1]));

        if (info->has_delta) // 8 entry +- 1
            out->q[i] = vaddq_s8(vshlq_n_s8(v, 3), negative | vdupq_n_s8(1));
        else
            out->q[i] = vsubq_s8(v ^ negative, negative);

        uint64_t s = g.scales >> 8 * (i % 2) & 255;
        if (i % halves == 0) scales[i / halves / 8] |= s << 8 * (i / halves % 8);
    }

    int8_scales(vcreate_s8(scales[0]), f16_at(&d) * info->factor, out->scale);
    if (halves == 1) int8_scales(vcreate_s8(scales[1]), f16_at(&d) * info->factor, out->scale + 2);
}

// Unpacks Q1_0 and Q2_0, 16 columns at a time.
INLINE void unpack_few_bits(Type type, const uint8_t *p, NeonRow *out) {
    const uint8x16_t bit = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    const uint8x16_t byte = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3};
    const int8x16_t shift = {0, -2, -4, -6, 0, -2, -4, -6, 0, -2, -4, -6, 0, -2, -4, -6};
    const int block = type_info(type)->block, per_byte = block / 16;

    UNROLL
    for (int i = 0; i < 16; i++) {
        const uint8_t *at = p + 16 * i / block * 18 + 2 + 16 * i % block / per_byte;
        uint8x16_t v;
        if (type == TYPE_Q1_0) // 2 or 0
            v = vtstq_u8(vcombine_u8(vdup_n_u8(at[0]), vdup_n_u8(at[1])), bit) & vdupq_n_u8(2);
        else
            v = vshlq_u8(vqtbl1q_u8(vreinterpretq_u8_u32(vdupq_n_u32(load_u32(at))), byte), shift) &
                vdupq_n_u8(3);
        out->q[i] = vreinterpretq_s8_u8(vsubq_u8(v, vdupq_n_u8(1)));
    }

    for (int g = 0; g < 8; g++) ((float *)out->scale)[g] = f16_at(p + 32 * g / block * 18);
}

// Unpacks types without vector code by the scalar specification (kernels/quant.h).
INLINE void unpack_generic(Type type, const uint8_t *p, NeonRow *out) {
    const int block = type_info(type)->block, group = type_info(type)->group;
    for (int k = 0; k < SUPERBLOCK; k += block, p += type_info(type)->bytes) {
        QuantBlock b;
        quant_unpack(type)(p, &b);
        memcpy((int8_t *)out->q + k, b.q, (size_t)block);
        for (int g = 0; g < block / group; g++) {
            ((float *)out->scale)[k / group + g] = b.scale[g * group / QUANT_GROUP];
            ((float *)out->minus_min)[k / group + g] = -b.min[g * group / QUANT_GROUP];
        }
    }
}

// Unpacks the superblock that holds column k of a row.
INLINE void unpack_row_neon(Type type, const Tensor *w, int row, int k, NeonRow *out) {
    const uint8_t *p;
    uint8_t padded[1][SUPERBLOCK_MAX_BYTES];
    superblock_rows(&p, 1, w, row, row + 1, k, type);
    superblock_pad(&p, 1, padded, matrix_row(w, w->rows), w->cols - k, type);
    if (type == TYPE_Q4_K || type == TYPE_Q5_K || type == TYPE_Q6_K)
        unpack_bit_fields(type, p, out);
    else if (type_info(type)->nibble_offset || type == TYPE_Q8_0)
        unpack_nibbles(type, p, out);
    else if (codebook_info(type)->entry_len)
        unpack_codebook_neon(type, p, out);
    else if (type == TYPE_Q1_0 || type == TYPE_Q2_0)
        unpack_few_bits(type, p, out);
    else
        unpack_generic(type, p, out);

    for (int g = (w->cols - k) / 32; g < 8; g++)
        ((float *)out->scale)[g] = ((float *)out->minus_min)[g] = 0;
}
