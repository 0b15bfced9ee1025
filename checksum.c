#include "checksum.h"

#include <stdio.h>

enum { LEAF_BYTES = 1 << 20 };

uint64_t checksum_leaf_rows(const GgufTensor *t) {
    uint64_t row = t->bytes / gguf_n_rows(t);
    return row >= LEAF_BYTES ? 1 : LEAF_BYTES / row;
}

size_t checksum_n_leaves(const GgufTensor *t) {
    uint64_t step = checksum_leaf_rows(t);
    return (size_t)((gguf_n_rows(t) + step - 1) / step);
}

void checksum_combine(const GgufTensor *tensors, int n, const uint8_t *leaves,
                      char hex[CHECKSUM_HEX]) {
    Buffer all = {0};
    uint8_t digest[BLAKE2B_BYTES];
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
    blake2b(all.data, all.len, digest);
    for (int i = 0; i < BLAKE2B_BYTES; i++) snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    buffer_free(&all);
}
