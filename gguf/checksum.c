// See checksum.h.
#include "gguf/checksum.h"

#include <stdio.h>

enum { LEAF_BYTES = 1 << 20 };

// Eight independent hashes, so that the processor can overlap their multiplications.
uint64_t checksum_files(const Gguf *g) {
    uint64_t h[8] = {0}, w[8], all = 0;

    // The eight hashes take the 64-bit words of the file in turn.
    for (const FileMapping *m = g->shards; m < g->shards + g->n_shards; m++)
        for (size_t at = 0; at < m->bytes; at += sizeof w) {
            if (m->bytes - at >= sizeof w)
                memcpy(w, m->data + at, sizeof w); // constant size, so that it is inlined
            else
                memcpy(memset(w, 0, sizeof w), m->data + at, m->bytes - at);
            for (int i = 0; i < 8; i++) {
                h[i] = (h[i] ^ w[i]) * 0x9e3779b97f4a7c15u;
                h[i] ^= h[i] >> 29;
            }
        }

    // Combine the eight hashes and the sizes of the files.
    for (int i = 0; i < 8; i++) {
        all = (all ^ h[i]) * 0xd1342543de82ef95u;
        all ^= all >> 31;
    }
    for (int i = 0; i < g->n_shards; i++) all = (all ^ g->shards[i].bytes) * 0x9e3779b97f4a7c15u;

    return all;
}

ChecksumLeaf *checksum_leaves(const GgufTensor *tensors, int n, int *n_leaves) {
    ChecksumLeaf *leaves = NULL;
    *n_leaves = 0;
    for (int i = 0; i < n; i++) {
        uint64_t n_rows = gguf_n_rows(&tensors[i]), row_bytes = tensors[i].bytes / n_rows;
        uint64_t step = row_bytes < LEAF_BYTES ? LEAF_BYTES / row_bytes : 1;
        for (uint64_t row = 0; row < n_rows; row += step) {
            uint64_t n_left = n_rows - row;
            leaves = list_grow(leaves, *n_leaves, sizeof *leaves);
            leaves[(*n_leaves)++] = (ChecksumLeaf){
                .tensor = i, .first_row = row, .n_rows = n_left < step ? n_left : step};
        }
    }
    return leaves;
}

void checksum_combine(const GgufTensor *tensors, const ChecksumLeaf *leaves, int n_leaves,
                      char hex[CHECKSUM_HEX]) {
    Buffer all = {0};
    uint8_t digest[BLAKE2B_BYTES];
    for (const ChecksumLeaf *leaf = leaves; leaf < leaves + n_leaves; leaf++) {
        const GgufTensor *t = &tensors[leaf->tensor];
        if (leaf->first_row == 0) {
            buffer_put(&all, t->name);
            buffer_append(&all, &t->type, sizeof t->type);
            buffer_append(&all, t->dims, sizeof t->dims);
        }
        buffer_append(&all, leaf->digest, sizeof leaf->digest);
    }

    blake2b(all.data, all.len, digest);
    for (int i = 0; i < BLAKE2B_BYTES; i++) snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    buffer_free(&all);
}
