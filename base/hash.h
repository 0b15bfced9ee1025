// A 64-bit hash for tables in memory.
//
// Hash values may change between versions. Hashes in files must not change, so the modules that
// store them define their own: checksum_files() and record_hash(). The prefix cache uses BLAKE2b.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

// One step of the hash. A multiplication moves information only to higher bits, so the upper bits
// are folded into the lower ones before and after it.
static inline uint64_t hash_mix(uint64_t a, uint64_t factor) {
    a = (a ^ a >> 32) * factor;
    return a ^ a >> 29;
}

// Hash of n bytes. With a secret seed, no file can provoke collisions.
static inline uint64_t hash_bytes(uint64_t seed, const void *data, size_t n) {
    const unsigned char *s = data;
    uint64_t h = seed ^ n, word = 0;
    for (; n > 8; s += 8, n -= 8) {
        memcpy(&word, s, 8);
        h = hash_mix(h ^ word, 0xa0761d6478bd642fu);
    }

    // The last 1 to 8 bytes: two words that may overlap, or the first, middle and last byte.
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
