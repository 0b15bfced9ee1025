// Runs all unit tests, or the suites named in the arguments.
#include "tests/test.h"
#include "kernels/ops.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// The Makefile defines SUITES(X) from the file names: X(text) X(gguf) ...
#define DECLARE(name) void test_##name(void);
SUITES(DECLARE)

static int n_failures, is_skipped;
static const char *case_name;

void test_case(const char *name, void (*fn)(void)) {
    n_failures = is_skipped = 0;
    case_name = name;
    fn();
    if (!n_failures && !is_skipped) printf("ok %s\n", name);
    fflush(stdout);
}

void test_fail(const char *file, int line, const char *fmt, ...) {
    if (++n_failures > 1) return;
    printf("FAIL %s: %s:%d ", case_name, file, line);
    va_list ap;
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    printf("\n");
}

void test_skip(const char *fmt, ...) {
    is_skipped = 1;
    printf("skip %s: ", case_name);
    va_list ap;
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    printf("\n");
}

bool test_matches(const char *text, const char *pattern) {
    static const char gap[] = " ... ";
    for (;;) {
        const char *end = strstr(pattern, gap);
        size_t len = end ? (size_t)(end - pattern) : strlen(pattern);

        while (*text && strncmp(text, pattern, len)) text++;
        if (strncmp(text, pattern, len)) return false;
        if (!end) return true;

        text += len;
        pattern = end + sizeof gap - 1;
    }
}

int test_step(int part) {
    const char *is_ci = getenv("LLAMA31_CI");
    return is_ci && *is_ci ? 1 : part;
}

static const char *find_data(const char *root, const char *name) {
    static char paths[8][1024];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", root, name);
    return access(path, R_OK) ? NULL : path;
}

const char *test_data(const char *name) {
    const char *root = getenv("LLAMA31_DATA");
    return find_data(root ? root : "../shared/data", name);
}

const char *test_model_file(const char *name) {
    const char *root = getenv("LLAMA31_MODELS");
    return root ? find_data(root, name) : NULL;
}

double test_nmse(const float *a, const float *b, size_t n) {
    double e = 0, s = 0;
    for (size_t i = 0; i < n; i++) {
        e += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        s += (double)b[i] * b[i];
    }
    return s > 0 ? e / s : e;
}

static int is_selected(const char *suite, int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], suite)) return 1;
    return argc == 1;
}

typedef struct {
    int argc;
    char **argv;
} TestArguments;

static int run_suites(void *arg) {
    int argc = ((TestArguments *)arg)->argc;
    char **argv = ((TestArguments *)arg)->argv;
#define RUN(name)                                                                                  \
    if (is_selected(#name, argc, argv)) test_##name();
    SUITES(RUN)
    return 0;
}

int main(int argc, char **argv) {
    kernels_init(NULL);
    return team_serve(5, run_suites,
                      &(TestArguments){argc, argv}); // 5: the maximum that a suite uses
}
