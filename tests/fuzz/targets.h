// Fuzz targets, run by libFuzzer (`make fuzz`, libfuzzer.c) and by the unit tests (test_fuzz.c),
// which replay the seeds and random mutations of them.
#pragma once

#include "base/text.h"

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

// Each target is a function fuzz_NAME. Its seeds are in tests/fuzz/seeds/NAME, its dictionary, if
// it has one, in tests/fuzz/NAME.dict.
#define FUZZ_TARGETS(X)                                                                            \
    X(file)                                                                                        \
    X(tokenizer)                                                                                   \
    X(json)                                                                                        \
    X(records)                                                                                     \
    X(template)                                                                                    \
    X(argv)                                                                                        \
    X(constrain)                                                                                   \
    X(editor)                                                                                      \
    X(adapter)                                                                                     \
    X(imatrix)                                                                                     \
    X(templates)                                                                                   \
    X(schemas)                                                                                     \
    X(batch)

typedef struct {
    const char *name;
    void (*run)(const uint8_t *data, size_t n);
} FuzzTarget;

extern const FuzzTarget fuzz_targets[]; // the last one has the name NULL

#define DECLARE_TARGET(name) void fuzz_##name(const uint8_t *data, size_t n);
FUZZ_TARGETS(DECLARE_TARGET)

// A small model file, i from 0 to 3. Number 0 has every kind of tensor that adapters and importance
// matrices refer to.
Str fuzz_valid_model(int i);
// Builds a file from n > 0 bytes of fuzzer input. First byte 0 to 15: valid_file(bits 0 and 1) with
// mutations of four bytes each, a 24-bit position and a byte to xor there; bit 3 truncates the file
// at the first mutation. Else the remaining bytes as they are. *len bytes, aligned to 64; free it.
uint8_t *fuzz_mutate(Str (*valid_file)(int i), const uint8_t *data, size_t n, size_t *len);

// The vocabulary of constraint tests: the 256 bytes, each with its value as id, and parts of JSON.
typedef struct TokenTable TokenTable;
enum { N_FUZZ_TOKENS = 267 };
const TokenTable *fuzz_tokens(void);
Str fuzz_piece(int token);
