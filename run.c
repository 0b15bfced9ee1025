// llama31: the command line. argv -> Options -> one command.
#include "base/signals.h"
#include "cli/output.h"
#include "generate.h"
#include "kernels/ops.h"
#include "commands/commands.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Descriptors 0 to 2 must be taken before any file is opened: a result file that became "stderr"
// would collect messages.
static void reserve_descriptors(void) {
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd)
            _exit(EXIT_RUNTIME);
}

// What stdio prints it loses when a descriptor says that it would block. Whoever shares it gets it
// back as it was.
static int stdout_flags;
static void stdout_restore(void) { fcntl(STDOUT_FILENO, F_SETFL, stdout_flags); }
static void stdout_block(void) {
    stdout_flags = fcntl(STDOUT_FILENO, F_GETFL);
    if (stdout_flags < 0 || !(stdout_flags & O_NONBLOCK)) return;
    if (fcntl(STDOUT_FILENO, F_SETFL, stdout_flags & ~O_NONBLOCK) == 0) atexit(stdout_restore);
}

typedef struct {
    const Command *command;
    const Options *options;
} Job;

static int run_job(void *arg) {
    const Job *job = arg;
    return job->command->run(job->options);
}

static int run_command(const Command *command, int argc, char **argv) {
    static Options o;
    Error err;
    o = options_default(command->name);
    o.args = xalloc((size_t)argc + 1, sizeof *o.args);
    if (!options_parse(&o, command->flag, argc, argv, &err)) die_error(&err);
    if (o.wants_help) {
        command_print_help(command);
        return EXIT_OK;
    }
    if (!module_check(command->module, command->name, &err)) die_error(&err);
    if (o.n_args > command->max_args)
        die(EXIT_USAGE, "%s: unexpected argument \"%s\" (usage: llama31 %s %s)", o.command,
            o.args[command->max_args], o.command, command->usage);
    if (!kernels_init(NULL))
        die(EXIT_USAGE, "LLAMA31_ISA: expected scalar, avx2, avx512, amx or neon, found \"%s\"",
            getenv("LLAMA31_ISA"));
    int n_threads =
        o.model_options.n_threads > 0 ? o.model_options.n_threads : team_default_threads();
    return team_serve(n_threads, run_job, &(Job){command, &o});
}

static int print_version(bool is_verbose) {
    Buffer missing = {0};
    puts("llama31 " VERSION);
    if (!is_verbose) return EXIT_OK;
    kernels_init(NULL);
    printf("commit %s\ncompiler %s\nkernels %s (of %s)\nthreads %d\n", BUILD_COMMIT, BUILD_COMPILER,
           kernel.name, kernels_names(), team_default_threads());
    modules_put_missing(&missing);
    if (missing.len) printf("without:%s\n", missing.data);
    return EXIT_OK;
}

int main(int argc, char **argv) {
    reserve_descriptors();
    stdout_block();
    signals_install(&generate_interrupted);
    gguf_guard_install();
    if (argc < 2)
        die(EXIT_USAGE,
            "expected a command: llama31 run \"Once upon a time\" (llama31 help lists them)");
    const char *name = argv[1];
    int code = EXIT_OK;
    if (!strcmp(name, "--version"))
        code = print_version(argc > 2 && (!strcmp(argv[2], "-v") || !strcmp(argv[2], "--verbose")));
    else if (!strcmp(name, "--help") || !strcmp(name, "-h"))
        code = run_command(command_find("help"), 0, argv + argc);
    else if (!strcmp(name, "--man") || !strcmp(name, "--completion"))
        code = run_command(command_find("help"), argc - 1, argv + 1);
    else
        code = run_command(command_find(name), argc - 2, argv + 2);
    stdout_flush();
    return code;
}
