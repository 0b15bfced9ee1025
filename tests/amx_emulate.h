// Emulates the tile unit and the other instructions of kernels/x86/amx.c beyond AVX-512 VNNI, so
// that the AMX kernels can be tested on a machine that has only AVX-512. Replaces the intrinsics
// that the file uses; their semantics follow Intel's manual.
#pragma once

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

static _Thread_local struct { uint8_t row[16][64]; } emulated_tile[8];
static _Thread_local int emulated_is_configured;

static inline void emulate_config(const void *config) {
    const uint8_t *c = config;
    emulated_is_configured = c[0] == 1;
    for (int i = 0; i < 8; i++)
        emulated_is_configured &= c[16 + 2 * i] == 64 && c[17 + 2 * i] == 0 && c[48 + i] == 16;
    memset(emulated_tile, 0, sizeof emulated_tile);
}

static inline void emulate_load(int t, const void *base, long stride) {
    if (!emulated_is_configured) __builtin_trap();
    for (int r = 0; r < 16; r++)
        memcpy(emulated_tile[t].row[r], (const char *)base + r * stride, 64);
}

static inline void emulate_store(int t, void *base, long stride) {
    if (!emulated_is_configured) __builtin_trap();
    for (int r = 0; r < 16; r++) memcpy((char *)base + r * stride, emulated_tile[t].row[r], 64);
}

// Converts the upper halves of 16 dwords from bf16 to float32; denormals become zero.
static inline __m512 emulate_widen(__m512i pairs) {
    __m512i bits = _mm512_and_si512(pairs, _mm512_set1_epi32((int)0xffff0000));
    return _mm512_castsi512_ps(
        _mm512_maskz_mov_epi32(_mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x7f800000)), bits));
}

static inline void emulate_dp(int c, int a, int b) {
    for (int m = 0; m < 16; m++) {
        __m512 even = _mm512_setzero_ps(), odd = _mm512_setzero_ps(),
               sum = _mm512_loadu_ps(emulated_tile[c].row[m]);
        for (int k = 0; k < 16; k++) {
            int pair;
            memcpy(&pair, emulated_tile[a].row[m] + 4 * k, 4);
            __m512i x = _mm512_set1_epi32(pair), y = _mm512_loadu_si512(emulated_tile[b].row[k]);
            even = _mm512_fmadd_ps(emulate_widen(_mm512_slli_epi32(x, 16)),
                                   emulate_widen(_mm512_slli_epi32(y, 16)), even);
            odd = _mm512_fmadd_ps(emulate_widen(x), emulate_widen(y), odd);
        }
        _mm512_storeu_ps(emulated_tile[c].row[m], _mm512_add_ps(sum, _mm512_add_ps(even, odd)));
    }
}

static inline __m512i emulate_to_bf16(__m512 high, __m512 low) {
    float x[32];
    uint16_t y[32];
    _mm512_storeu_ps(x, low);
    _mm512_storeu_ps(x + 16, high);
    for (int i = 0; i < 32; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], 4);
        y[i] = x[i] != x[i] ? 0x7fc0 : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
    return _mm512_loadu_si512(y);
}

static inline __m512i emulate_permute_bytes(__m512i other, __mmask64 mask, __m512i index,
                                            __m512i from) {
    uint8_t x[64], at[64], y[64];
    _mm512_storeu_si512(x, from);
    _mm512_storeu_si512(at, index);
    _mm512_storeu_si512(y, other);
    for (int i = 0; i < 64; i++)
        if (mask >> i & 1) y[i] = x[at[i] & 63];
    return _mm512_loadu_si512(y);
}

static inline __m512i emulate_permute_128_bytes(__m512i low, __m512i index, __m512i high) {
    __m512i v = emulate_permute_bytes(low, ~0ull, index, low);
    return emulate_permute_bytes(v, _mm512_movepi8_mask(_mm512_slli_epi16(index, 1)), index, high);
}

#undef _mm512_permutex2var_epi8
#define _mm512_permutex2var_epi8(a, i, b) emulate_permute_128_bytes(a, i, b)
#undef _mm512_mask_permutexvar_epi8
#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stream_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#define _tile_loadconfig(c)                      emulate_config(c)
#define _tile_release()                          (emulated_is_configured = 0)
#define _tile_zero(t)                            memset(&emulated_tile[t], 0, sizeof emulated_tile[t])
#define _tile_loadd(t, p, stride)                emulate_load(t, p, stride)
#define _tile_stream_loadd(t, p, stride)         emulate_load(t, p, stride)
#define _tile_stored(t, p, stride)               emulate_store(t, p, stride)
#define _tile_dpbf16ps(c, a, b)                  emulate_dp(c, a, b)
#define _mm512_cvtne2ps_pbh(h, l)                emulate_to_bf16(h, l)
#define _mm512_mask_permutexvar_epi8(o, m, i, x) emulate_permute_bytes(o, m, i, x)
