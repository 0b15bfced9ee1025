// BLAKE2b against known digests, and the leaves of a tensor's checksum.
#include "../checksum.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

// Digests of Python's hashlib.
static void known_digests(void) {
    static const struct {
        size_t n;
        const char *hex;
    } cases[] = {
        {0, "cae66941d9efbd404e4d88758ea67670"},    {1, "7025e075d5e2f6cde3cc051a31f07660"},
        {127, "40efb3ed1b6eb973c5f774422adb0230"},  {128, "06e5bcee475a6bf6d9b8a07c6f4ae80a"},
        {129, "2ec7e7bf8a8265ffd68aadd70ecd2b7e"},  {256, "dbb08d79105462394550aa4d4e10133f"},
        {1000, "8095a6f38992fefe1c12ac8ec5e70791"},
    };
    uint8_t data[1000], digest[BLAKE2B_BYTES];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (uint8_t)(i * 7);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char hex[2 * BLAKE2B_BYTES + 1];
        blake2b(data, cases[i].n, digest);
        for (int k = 0; k < BLAKE2B_BYTES; k++) snprintf(hex + 2 * k, 3, "%02x", digest[k]);
        CHECK(!strcmp(hex, cases[i].hex), "%zu bytes: %s", cases[i].n, hex);
    }
}

// A leaf has as many whole rows as fit 1 MiB, at least one.
static void leaf_rows(void) {
    GgufTensor t = {.dims = {64, 1000, 3, 1}, .bytes = 64 * 4 * 3000};
    CHECK(checksum_leaf_rows(&t) == 4096 && checksum_n_leaves(&t) == 1, "%zu",
          checksum_n_leaves(&t));
    t.bytes = (size_t)3000 << 19;
    CHECK(checksum_leaf_rows(&t) == 2 && checksum_n_leaves(&t) == 1500, "%zu",
          checksum_n_leaves(&t));
    t.bytes = (size_t)3000 << 21;
    CHECK(checksum_leaf_rows(&t) == 1 && checksum_n_leaves(&t) == 3000, "%zu",
          checksum_n_leaves(&t));
}

void test_checksum(void) {
    test_case("checksum: BLAKE2b", known_digests);
    test_case("checksum: leaves", leaf_rows);
}
