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
#include "gguf.h"

#define CHECKSUM_KEY "llama31.checksum" // metadata key; the value is hexadecimal
enum { CHECKSUM_HEX = 2 * BLAKE2B_BYTES + 1 };

// A hash of all bytes of a file and its shards. It finds any accidental change; an attacker can
// construct collisions.
uint64_t checksum_files(const Gguf *g);

uint64_t checksum_leaf_rows(const GgufTensor *t); // rows of a full leaf
size_t checksum_n_leaves(const GgufTensor *t);
// Computes the checksum of n tensors in file order from the digests of all their leaves.
void checksum_combine(const GgufTensor *tensors, int n, const uint8_t *leaves,
                      char hex[CHECKSUM_HEX]);
