// The target that FUZZ_TARGET names, driven by libFuzzer; the rest of the command line is its own.
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
} Arguments;

static int drive(void *arg) {
    Arguments *a = arg;
    return LLVMFuzzerRunDriver(&a->argc, &a->argv, run_target);
}

int main(int argc, char **argv) {
    const char *name = getenv("FUZZ_TARGET");
    for (int i = 0; i < N_FUZZ_TARGETS; i++)
        if (name && !strcmp(name, fuzz_targets[i].name)) target = &fuzz_targets[i];
    if (!target) {
        fputs("FUZZ_TARGET: expected one of", stderr);
        for (int i = 0; i < N_FUZZ_TARGETS; i++) fprintf(stderr, " %s", fuzz_targets[i].name);
        return fputs("\n", stderr), 2;
    }
    kernels_init(NULL);
    return team_serve(1, drive, &(Arguments){argc, argv});
}
