// libFuzzer on the target named by $FUZZ_TARGET. The command line is libFuzzer's. FUZZ_TARGET=list
// prints the names of all targets.
#include "tests/fuzz/targets.h"
#include "kernels/ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Turns LeakSanitizer off: parsed options keep their texts until the process ends.
int __lsan_is_turned_off(void); // called by the runtime library
int __lsan_is_turned_off(void) { return 1; }

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
    bool is_list = name && !strcmp(name, "list");
    for (const FuzzTarget *t = fuzz_targets; t->name; t++) {
        if (is_list) printf("%s\n", t->name);
        if (name && !strcmp(name, t->name)) target = t;
    }
    if (is_list) return 0;
    if (!target) {
        fputs("set FUZZ_TARGET to a target, or to list\n", stderr);
        return 2;
    }
    kernels_init(NULL);
    return team_serve(1, run_fuzzer, &(FuzzerArguments){argc, argv});
}
