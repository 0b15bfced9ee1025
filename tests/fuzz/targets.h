// What is fuzzed: by libFuzzer (make fuzz), and by the unit tests, which replay the seeds and some
// changes to them.
#ifndef TESTS_FUZZ_TARGETS_H
#define TESTS_FUZZ_TARGETS_H

#include "../../base/text.h"

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
    const char *name; // its seeds are in tests/fuzz/seeds/NAME, words in tests/fuzz/NAME.dict
    void (*run)(const uint8_t *data, size_t n); // ends the process if something is wrong
} FuzzTarget;

enum { N_FUZZ_TARGETS = 10 };
extern const FuzzTarget fuzz_targets[N_FUZZ_TARGETS];
void fuzz_editor(const uint8_t *data, size_t n);  // editor.c, which holds the editor's source
void fuzz_imatrix(const uint8_t *data, size_t n); // imatrix.c, which holds the reader's

// Small models; that of number 0 has all kinds of tensors that adapters and importance are for.
Str fuzz_sound_model(int i);
// The file that data (n > 0 bytes) stands for: one of four sound ones with changes, or (first byte
// above 15) the bytes as they are. A change is three bytes of place and one that is xored into it;
// bit 3 of the first byte cuts the file at the first of them. Of *len bytes, 64-byte aligned, to be
// freed.
uint8_t *fuzz_file_of(Str (*sound)(int i), const uint8_t *data, size_t n, size_t *len);

#endif
