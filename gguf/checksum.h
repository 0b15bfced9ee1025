// Checksums of model files.
//
// checksum_files() covers whole files, at the speed of memory. The other functions compute the
// checksum of the tensors, independent of the rest of the file:
//
// A tree hash of two levels, so that threads can hash in any order. A leaf is the BLAKE2b digest of
// as many whole rows of a tensor as fit 1 MiB, at least one. The checksum is the digest of, for
// each tensor in file order:
//
//   name  u32 type  u64 dims[4]  digests of its leaves           (little-endian)
//
// The quantizer stores it as metadata; `show --check` and scripts/lib/gguf_writer.py compute the
// same.
#pragma once

#include "base/blake2b.h"
#include "gguf/gguf.h"

#define CHECKSUM_KEY "llama31.checksum" // metadata key; the value is hexadecimal
enum { CHECKSUM_HEX = 2 * BLAKE2B_BYTES + 1 };

// A hash of all bytes of a file and its shards. It finds any accidental change; an attacker can
// construct collisions.
uint64_t checksum_files(const Gguf *g);

typedef struct {
    int tensor; // its index
    uint64_t first_row, n_rows;
    uint8_t digest[BLAKE2B_BYTES]; // set by the caller
} ChecksumLeaf;

// The leaves of n tensors, in file order (*n_leaves); free them.
ChecksumLeaf *checksum_leaves(const GgufTensor *tensors, int n, int *n_leaves);
// Computes the checksum of tensors from the digests of all their leaves.
void checksum_combine(const GgufTensor *tensors, const ChecksumLeaf *leaves, int n_leaves,
                      char hex[CHECKSUM_HEX]);
