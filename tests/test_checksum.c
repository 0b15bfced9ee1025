// BLAKE2b against known digests, and the leaves of a tensor's checksum.
#include "gguf/checksum.h"
#include "tests/test.h"

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

    // The first 8 bytes as a number.
    CHECK(blake2b_64(data, 0) == 0xcae66941d9efbd40, "%llx",
          (unsigned long long)blake2b_64(data, 0));
}

// A leaf has as many whole rows as fit 1 MiB, at least one.
static void leaf_rows(void) {
    static const struct {
        size_t row_bytes;
        int n_leaves, last_rows;
    } cases[] = {{64 * 4, 1, 3000},
                 {300000, 1000, 3},
                 {149000, 429, 4}, // 7 rows each, and the rest
                 {1 << 19, 1500, 2},
                 {1 << 21, 3000, 1}};
    for (int i = 0; i < 5; i++) {
        GgufTensor t[2] = {{.dims = {1, 1, 1, 1}, .bytes = 4}, {.dims = {64, 1000, 3, 1}}};
        int n;
        t[1].bytes = 3000 * cases[i].row_bytes;
        ChecksumLeaf *leaves = checksum_leaves(t, 2, &n);

        CHECK(n == 1 + cases[i].n_leaves, "case %d: %d leaves", i, n);
        CHECK(leaves[0].n_rows == 1 && leaves[1].tensor == 1 && leaves[1].first_row == 0, "%d", i);
        CHECK((int)leaves[n - 1].n_rows == cases[i].last_rows, "%d", (int)leaves[n - 1].n_rows);
        CHECK(leaves[n - 1].first_row + leaves[n - 1].n_rows == 3000, "case %d", i);
        free(leaves);
    }
}

void test_checksum(void) {
    test_case("checksum: BLAKE2b", known_digests);
    test_case("checksum: leaves", leaf_rows);
}
