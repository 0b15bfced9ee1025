// What is fuzzed: by libFuzzer (make fuzz), and by the unit tests, which replay the seeds and some
// changes to them.
#ifndef TESTS_FUZZ_TARGETS_H
#define TESTS_FUZZ_TARGETS_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    const char *name; // its seeds are in tests/fuzz/seeds/NAME, its words in tests/fuzz/NAME.dict
    void (*run)(const uint8_t *data, size_t n); // ends the process if something is wrong
} FuzzTarget;

enum { N_FUZZ_TARGETS = 7 };
extern const FuzzTarget fuzz_targets[N_FUZZ_TARGETS];

#endif
