// Fuzz targets, run by libFuzzer (`make fuzz`, libfuzzer.c) and by the unit tests (test_fuzz.c),
// which replay the seeds and random mutations of them.
#pragma once

#include "../../base/text.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

// An invariant that no input may break. Ends the process.
#define HOLDS(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fprintf(stdout, "%s:%d: %s\n", __FILE__, __LINE__, #condition), fflush(stdout),        \
                abort();                                                                           \
    } while (0)

typedef struct {
    const char *name; // seeds in tests/fuzz/seeds/NAME, dictionary in tests/fuzz/NAME.dict
    void (*run)(const uint8_t *data, size_t n);
} FuzzTarget;

enum { N_FUZZ_TARGETS = 11 };
extern const FuzzTarget fuzz_targets[N_FUZZ_TARGETS];
void fuzz_editor(const uint8_t *data, size_t n);    // editor.c includes the editor's source
void fuzz_imatrix(const uint8_t *data, size_t n);   // imatrix.c includes the reader's source
void fuzz_templates(const uint8_t *data, size_t n); // templates.c generates them from a grammar
void fuzz_put_template(const uint8_t *data, size_t n, Buffer *out); // the template of an input

// A small model file, i from 0 to 3. Number 0 has every kind of tensor that adapters and importance
// matrices refer to.
Str fuzz_valid_model(int i);
// Builds a file from n > 0 bytes of fuzzer input. First byte 0 to 15: valid_file(bits 0 and 1) with
// mutations of four bytes each, a 24-bit position and a byte to xor there; bit 3 truncates the file
// at the first mutation. Else the remaining bytes as they are. *len bytes, aligned to 64; free it.
uint8_t *fuzz_mutate(Str (*valid_file)(int i), const uint8_t *data, size_t n, size_t *len);
