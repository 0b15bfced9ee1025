// Runs every fuzz target without libFuzzer, on its seeds and on random mutations of them (60 per
// seed, or $LLAMA31_FUZZ). A violated invariant ends the process, which run.sh counts as a failure.
#include "base/files.h"
#include "tests/fuzz/targets.h"
#include "tests/test.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint64_t state; // of test_random
static int n_runs;

// Makes one to four changes: replaces a byte, truncates, appends random bytes, or repeats a few
// bytes.
static void mutate(Buffer *b) {
    for (uint64_t n = test_random(&state) % 4 + 1; n && b->len; n--) {
        size_t at = test_random(&state) % b->len;
        size_t len = test_random(&state) % 8 + 1;
        uint64_t noise = test_random(&state);
        if (len > b->len - at) len = b->len - at;
        switch (test_random(&state) % 4) {
        case 0: b->data[at] = (char)noise; break;
        case 1: b->len = at; break;
        case 2: buffer_append(b, &noise, sizeof noise); break;
        default: buffer_reserve(b, len); buffer_append(b, b->data + at, len);
        }
    }
}

static void replay(const FuzzTarget *t, const char *path) {
    const char *n_mutations = getenv("LLAMA31_FUZZ");
    Buffer seed = {0}, copy = {0};
    Error err;
    if (!file_read(path, &seed, &err)) return;

    t->run((const uint8_t *)seed.data, seed.len);
    n_runs++;

    for (int i = n_mutations ? atoi(n_mutations) : 60 / test_step(6); i > 0; i--, n_runs++) {
        copy.len = 0;
        buffer_put(&copy, buffer_str(&seed));
        mutate(&copy);
        uint8_t *exact = malloc(copy.len + !copy.len); // lets a sanitizer find reads beyond the end
        if (copy.len) memcpy(exact, copy.data, copy.len);
        t->run(exact, copy.len);
        free(exact);
    }

    buffer_free(&seed);
    buffer_free(&copy);
}

static void test_targets(void) {
    // Warnings about mutated files are not shown.
    int saved = dup(STDERR_FILENO);
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(null, STDERR_FILENO);

    for (const FuzzTarget *t = fuzz_targets; t->name; t++) {
        char directory[64], path[400];
        snprintf(directory, sizeof directory, "tests/fuzz/seeds/%s", t->name);

        DIR *d = opendir(directory);
        int n = 0;
        if (d) {
            for (struct dirent *e; (e = readdir(d));) {
                if (*e->d_name == '.') continue;
                snprintf(path, sizeof path, "%s/%s", directory, e->d_name);
                replay(t, path);
                n++;
            }
            closedir(d);
        }
        CHECK(n > 0, "%s: no seeds", directory);
    }

    dup2(saved, STDERR_FILENO);
    close(saved);
    close(null);
    CHECK(n_runs > 50, "%d", n_runs);
}

void test_fuzz(void) { test_case("fuzz: seeds and mutations of them", test_targets); }
