// What is fuzzed: by libFuzzer (make fuzz), and by the unit tests, which replay the seeds and some
// changes to them.
#ifndef TESTS_FUZZ_TARGETS_H
#define TESTS_FUZZ_TARGETS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

// What must be true whatever the input is.
#define HOLDS(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fprintf(stdout, "%s:%d: %s\n", __FILE__, __LINE__, #condition), fflush(stdout),        \
                abort();                                                                           \
    } while (0)

typedef struct {
    const char *name; // its seeds are in tests/fuzz/seeds/NAME, its words in tests/fuzz/NAME.dict
    void (*run)(const uint8_t *data, size_t n); // ends the process if something is wrong
} FuzzTarget;

enum { N_FUZZ_TARGETS = 8 };
extern const FuzzTarget fuzz_targets[N_FUZZ_TARGETS];
void fuzz_editor(const uint8_t *data, size_t n); // editor.c, which holds the editor's source

#endif
