// BLAKE2b with a digest of 16 bytes and no key (RFC 7693).
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { BLAKE2B_BYTES = 16 };

void blake2b(const void *data, size_t n, uint8_t digest[BLAKE2B_BYTES]);
// The first 64 bits of the digest.
uint64_t blake2b_64(const void *data, size_t n);
