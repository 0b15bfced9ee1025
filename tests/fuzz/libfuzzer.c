// libFuzzer on the target named by $FUZZ_TARGET. The command line is libFuzzer's.
#include "targets.h"
#include "../../kernels/ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerRunDriver(int *argc, char ***argv, int (*run)(const uint8_t *data, size_t n));

static const FuzzTarget *target;

static int run_target(const uint8_t *data, size_t n) {
    target->run(data, n);
    return 0;
}

typedef struct {
    int argc;
    char **argv;
} FuzzerArguments;

static int run_fuzzer(void *arg) {
    FuzzerArguments *a = arg;
    return LLVMFuzzerRunDriver(&a->argc, &a->argv, run_target);
}

int main(int argc, char **argv) {
    const char *name = getenv("FUZZ_TARGET");
    for (int i = 0; i < N_FUZZ_TARGETS; i++)
        if (name && !strcmp(name, fuzz_targets[i].name)) target = &fuzz_targets[i];
    if (!target) {
        fputs("set FUZZ_TARGET to one of", stderr);
        for (int i = 0; i < N_FUZZ_TARGETS; i++) fprintf(stderr, " %s", fuzz_targets[i].name);
        return fputs("\n", stderr), 2;
    }
    kernels_init(NULL);
    return team_serve(1, run_fuzzer, &(FuzzerArguments){argc, argv});
}
