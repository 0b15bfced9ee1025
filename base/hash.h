// A 64-bit hash for tables in memory.
//
// Its values may change from version to version. Hashes that are stored in files must not, and are
// therefore defined by their module: checksum_files() and record_hash(). The prefix cache uses
// BLAKE2b.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

// One step of the hash. The upper half is folded in before and after, because a multiplication
// moves bits up only.
static inline uint64_t hash_mix(uint64_t a, uint64_t factor) {
    a = (a ^ a >> 32) * factor;
    return a ^ a >> 29;
}

// Hash of n bytes. With a seed that is secret, no file can provoke collisions.
static inline uint64_t hash_bytes(uint64_t seed, const void *data, size_t n) {
    const unsigned char *s = data;
    uint64_t h = seed ^ n, word = 0;
    for (; n > 8; s += 8, n -= 8) {
        memcpy(&word, s, 8);
        h = hash_mix(h ^ word, 0xa0761d6478bd642fu);
    }

    // The last 1 to 8 bytes: two halves that may overlap, or the first, middle and last byte.
    if (n >= 4) {
        uint32_t first, last;
        memcpy(&first, s, 4);
        memcpy(&last, s + n - 4, 4);
        word = first | (uint64_t)last << 32;
    } else if (n) {
        word = (uint64_t)s[0] << 16 | (uint64_t)s[n / 2] << 8 | s[n - 1];
    }

    return hash_mix(h ^ word, 0xe7037ed1a0b428dbu);
}
