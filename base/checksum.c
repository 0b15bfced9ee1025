#include "checksum.h"

#include <stdlib.h>
#include <string.h>

enum { LEAF_BYTES = 1 << 20, BLOCK_BYTES = 128, N_ROUNDS = 12 };

static const uint64_t initial[8] = {0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b,
                                    0xa54ff53a5f1d36f1, 0x510e527fade682d1, 0x9b05688c2b3e6c1f,
                                    0x1f83d9abfb41bd6b, 0x5be0cd19137e2179};
static const uint8_t order[10][16] = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
                                      {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
                                      {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
                                      {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
                                      {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
                                      {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
                                      {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
                                      {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
                                      {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
                                      {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0}};

static uint64_t rotate(uint64_t x, int n) { return x >> n | x << (64 - n); }

static void mix(uint64_t v[16], int a, int b, int c, int d, uint64_t x, uint64_t y) {
    v[a] += v[b] + x, v[d] = rotate(v[d] ^ v[a], 32);
    v[c] += v[d], v[b] = rotate(v[b] ^ v[c], 24);
    v[a] += v[b] + y, v[d] = rotate(v[d] ^ v[a], 16);
    v[c] += v[d], v[b] = rotate(v[b] ^ v[c], 63);
}

// Takes in a block; `count` is how many bytes that makes.
static void compress(uint64_t h[8], const uint8_t block[BLOCK_BYTES], uint64_t count,
                     bool is_last) {
    uint64_t v[16], m[16];
    memcpy(m, block, sizeof m); // this program reads its files as little-endian machines do
    memcpy(v, h, 8 * sizeof *v);
    memcpy(v + 8, initial, sizeof initial);
    v[12] ^= count;
    if (is_last) v[14] = ~v[14];
    for (int r = 0; r < N_ROUNDS; r++) { // unrolled, so that the order is known when it is compiled
        const uint8_t *s = order[r % 10];
        for (int i = 0; i < 4; i++) mix(v, i, 4 + i, 8 + i, 12 + i, m[s[2 * i]], m[s[2 * i + 1]]);
        for (int i = 0; i < 4; i++)
            mix(v, i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4, m[s[8 + 2 * i]],
                m[s[9 + 2 * i]]);
    }
    for (int i = 0; i < 8; i++) h[i] ^= v[i] ^ v[8 + i];
}

void blake2b(const void *data, size_t n, uint8_t out[BLAKE2B_BYTES]) {
    const uint8_t *p = data;
    uint8_t last[BLOCK_BYTES] = {0};
    uint64_t h[8], count = 0;
    memcpy(h, initial, sizeof h);
    h[0] ^= 0x01010000 ^ BLAKE2B_BYTES;
    for (; n - count > BLOCK_BYTES; p += BLOCK_BYTES) compress(h, p, count += BLOCK_BYTES, false);
    if (n > count) memcpy(last, p, n - count);
    compress(h, last, n, true);
    for (int i = 0; i < BLAKE2B_BYTES; i++) out[i] = (uint8_t)(h[i / 8] >> i % 8 * 8);
}

uint64_t gguf_tensor_rows(const GgufTensor *t) { return t->dims[1] * t->dims[2] * t->dims[3]; }

uint64_t checksum_leaf_rows(const GgufTensor *t) {
    uint64_t row = t->bytes / gguf_tensor_rows(t);
    return row >= LEAF_BYTES ? 1 : LEAF_BYTES / row;
}

size_t checksum_n_leaves(const GgufTensor *t) {
    uint64_t step = checksum_leaf_rows(t);
    return (size_t)((gguf_tensor_rows(t) + step - 1) / step);
}

void checksum_combine(const GgufTensor *tensors, int n, const uint8_t *leaves,
                      char hex[2 * BLAKE2B_BYTES + 1]) {
    Buffer all = {0};
    uint8_t hash[BLAKE2B_BYTES];
    for (int i = 0; i < n; i++) {
        const GgufTensor *t = &tensors[i];
        size_t bytes = checksum_n_leaves(t) * BLAKE2B_BYTES;
        buffer_put(&all, t->name);
        for (int k = 0; k < 4; k++) buffer_append(&all, &(char){(char)(t->type >> 8 * k)}, 1);
        for (int k = 0; k < 32; k++)
            buffer_append(&all, &(char){(char)(t->dims[k / 8] >> k % 8 * 8)}, 1);
        buffer_append(&all, leaves, bytes);
        leaves += bytes;
    }
    blake2b(all.data, all.len, hash);
    for (int i = 0; i < BLAKE2B_BYTES; i++) {
        hex[2 * i] = "0123456789abcdef"[hash[i] >> 4];
        hex[2 * i + 1] = "0123456789abcdef"[hash[i] & 15];
    }
    hex[2 * BLAKE2B_BYTES] = 0;
    buffer_free(&all);
}
