// The unit tests: one file per module, each with a function that runs its cases; main.c calls them
// all. A case prints "ok NAME", "FAIL NAME: FILE:LINE what" or "skip NAME: why"; run.sh counts the
// lines.
#ifndef TESTS_TEST_H
#define TESTS_TEST_H

#include "../base/text.h"

// Runs one case.
void test_case(const char *name, void (*fn)(void));
// Records a failure of the running case, which goes on; the first is printed.
void test_fail(const char *file, int line, const char *fmt, ...) PRINTF_LIKE(3, 4);
// Marks the running case as skipped; return after it.
void test_skip(const char *fmt, ...) PRINTF_LIKE(1, 2);

#define CHECK(cond, ...)                                                                           \
    do {                                                                                           \
        if (!(cond)) test_fail(__FILE__, __LINE__, #cond " -- " __VA_ARGS__);                      \
    } while (0)

// Path of a file under $LLAMA31_DATA (default ../shared/data), or NULL if it is absent. Static
// buffer of 8.
const char *test_data(const char *name);
// The same under $LLAMA31_MODELS (no default).
const char *test_model_file(const char *name);

// xorshift64*, for repeatable random tests (make_gguf.c, which the fuzzer has too).
uint64_t test_random(uint64_t *state);
float test_normal(uint64_t *state); // about N(0, 1)
// Normalised mean squared error: sum (a-b)^2 / sum b^2.
double test_nmse(const float *a, const float *b, size_t n);

#endif
