// Unit test framework.
//
// There is one file per module, tests/test_NAME.c, with a function test_NAME() that runs its cases;
// main.c calls them all. A case prints "ok NAME", "FAIL NAME: FILE:LINE message" or "skip NAME:
// reason"; run.sh counts these lines.
#pragma once

#include "base/text.h"

#if defined(_WIN32) // tests/windows.c
enum { PROT_NONE = 0, PROT_WRITE = 2 };
int mprotect(void *p, size_t n, int protection);
char *mkdtemp(char *name);
#endif

// Runs one case.
void test_case(const char *name, void (*fn)(void));
// Records a failure of the running case and continues. Only the first of a case is printed.
void test_fail(const char *file, int line, const char *fmt, ...) PRINTF_LIKE(3, 4);
// Marks the running case as skipped; to be followed by return.
void test_skip(const char *fmt, ...) PRINTF_LIKE(1, 2);

#define CHECK(cond, ...)                                                                           \
    do {                                                                                           \
        if (!(cond)) test_fail(__FILE__, __LINE__, #cond " -- " __VA_ARGS__);                      \
    } while (0)

// True if the text contains all parts of the pattern in order. " ... " separates the parts. The
// pattern for a message contains its keyword and value: "block_count: expected ... found 0".
bool test_matches(const char *text, const char *pattern);

// The step of a loop over many similar cases: 1 in .ci/run, which sets LLAMA31_CI, otherwise
// `part`.
int test_step(int part);

// Path of a file under $LLAMA31_DATA (default ../shared/data), or NULL if it does not exist. The
// last 8 paths returned are valid.
const char *test_data(const char *name);
// As test_data(), for files under $LLAMA31_MODELS (no default).
const char *test_model_file(const char *name);

// xorshift64*, for reproducible tests. Defined in make_gguf.c, which the fuzzer links as well.
uint64_t test_random(uint64_t *state);
float test_normal(uint64_t *state); // approximately N(0, 1)
// Normalized mean squared error: sum (a-b)^2 / sum b^2.
double test_nmse(const float *a, const float *b, size_t n);
