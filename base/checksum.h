// A checksum of a model's tensors: their names, types, shapes and data, whatever the file says
// beside them.
//
// A leaf is as many whole rows of a tensor as a MiB holds (at least one), so that leaves can be
// made in any order. The checksum is the hash of, for each tensor in file order: its name, type (4
// bytes) and four dimensions (8 bytes each, little-endian), and the hashes of its leaves. The hash
// is BLAKE2b of 16 bytes (RFC 7693). scripts/lib/gguf_writer.py makes the same.
#ifndef BASE_CHECKSUM_H
#define BASE_CHECKSUM_H

#include "../gguf.h"

enum { BLAKE2B_BYTES = 16 };
#define CHECKSUM_KEY "llama31.checksum" // of the metadata: the checksum in hexadecimal

void blake2b(const void *data, size_t n, uint8_t out[BLAKE2B_BYTES]);
// Rows of a tensor, of one leaf of it, and its leaves.
uint64_t gguf_tensor_rows(const GgufTensor *t);
uint64_t checksum_leaf_rows(const GgufTensor *t);
size_t checksum_n_leaves(const GgufTensor *t);
// leaves: the hashes of all leaves of n tensors, one after another. `hex` is terminated.
void checksum_combine(const GgufTensor *tensors, int n, const uint8_t *leaves,
                      char hex[2 * BLAKE2B_BYTES + 1]);

#endif
