// The tile unit and the bf16 conversion in software, so that kernels/amx.c can be held against its specification on a
// machine that has only AVX-512. Replaces the intrinsics that the file uses; semantics as in Intel's manual.
#ifndef TESTS_AMX_EMULATE_H
#define TESTS_AMX_EMULATE_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

static _Thread_local struct { uint8_t row[16][64]; } emulated_tile[8];
static _Thread_local int emulated_is_configured;

static inline void emulate_config(const void *config) {
    const uint8_t *c = config;
    emulated_is_configured = c[0] == 1;
    for (int i = 0; i < 8; i++) emulated_is_configured &= c[16 + 2 * i] == 64 && c[17 + 2 * i] == 0 && c[48 + i] == 16;
    memset(emulated_tile, 0, sizeof emulated_tile);
}

static inline void emulate_load(int t, const void *base, long stride) {
    if (!emulated_is_configured) __builtin_trap();
    for (int r = 0; r < 16; r++) memcpy(emulated_tile[t].row[r], (const char *)base + r * stride, 64);
}

static inline void emulate_store(int t, void *base, long stride) {
    if (!emulated_is_configured) __builtin_trap();
    for (int r = 0; r < 16; r++) memcpy((char *)base + r * stride, emulated_tile[t].row[r], 64);
}

static inline float emulate_widen(uint16_t h) {
    uint32_t bits = (h & 0x7f80) ? (uint32_t)h << 16 : (uint32_t)(h & 0x8000) << 16; // denormals are zero
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline void emulate_dp(int c, int a, int b) {
    for (int m = 0; m < 16; m++)
        for (int k = 0; k < 16; k++)
            for (int n = 0; n < 16; n++) {
                uint16_t x[2], y[2];
                float sum;
                memcpy(x, emulated_tile[a].row[m] + 4 * k, 4);
                memcpy(y, emulated_tile[b].row[k] + 4 * n, 4);
                memcpy(&sum, emulated_tile[c].row[m] + 4 * n, 4);
                sum += emulate_widen(x[0]) * emulate_widen(y[0]);
                sum += emulate_widen(x[1]) * emulate_widen(y[1]);
                memcpy(emulated_tile[c].row[m] + 4 * n, &sum, 4);
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

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#define _tile_loadconfig(c)        emulate_config(c)
#define _tile_release()            (emulated_is_configured = 0)
#define _tile_zero(t)              memset(&emulated_tile[t], 0, sizeof emulated_tile[t])
#define _tile_loadd(t, p, stride)  emulate_load(t, p, stride)
#define _tile_stored(t, p, stride) emulate_store(t, p, stride)
#define _tile_dpbf16ps(c, a, b)    emulate_dp(c, a, b)
#define _mm512_cvtne2ps_pbh(h, l)  emulate_to_bf16(h, l)

#endif
