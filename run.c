// llama31: entry point. Parses argv into Options and runs one command on a team of threads.
//
//     argv -> command_choose() -> options_parse() -> choose_kernels() -> enter_sandbox()
//          -> team_serve(command->run)
//
// The process is prepared first: standard descriptors and signal handlers. The commands are in
// cli/commands/, the options in cli/options.c. Read cli/commands/run.c next.
#include "base/files.h"
#include "base/os/os.h"
#include "base/signals.h"
#include "cli/output.h"
#include "cli/privileges.h"
#include "cli/commands/commands.h"
#include "generate/generate.h"
#include "kernels/ops.h"

#include <stdio.h>
#include <unistd.h>

// Prints the version. With -v, also prints what determines the bits and the speed of results on
// this machine: commit, compiler, kernels, threads.
static int print_version(bool is_verbose) {
    puts("llama31 " VERSION);
    if (!is_verbose) return EXIT_OK;
    Buffer missing = {0};
    modules_put_missing(&missing);
    kernels_init(NULL);
    printf("commit %s\ncompiler %s\nkernels %s (of %s)\nthreads %d\n", BUILD_COMMIT, BUILD_COMPILER,
           kernel.name, kernels_names(), team_default_threads());
    if (missing.len) printf("without:%s\n", missing.data);
    return EXIT_OK;
}

// Runs the command and ends the process. It does not return to the end of the team, because the
// barrier of OpenMP there spins on every thread: 3 ms of CPU time with 2 threads (Zen 5, 2026-11).
static int call_command(void *arg) {
    const Options *options = arg;
    int code = command_find(options->command)->run(options);
    stdout_flush();
    exit(code);
}

// Chooses the kernels for this CPU, at most those that LLAMA31_ISA names.
static void choose_kernels(void) {
    const char *isa = getenv("LLAMA31_ISA");
    if (!kernels_init(NULL))
        die(EXIT_USAGE, "LLAMA31_ISA=%s: use scalar, avx2, avxvnni, avx512, amx, neon or i8mm",
            isa);
    if (isa && *isa && !str_is_one_of(str_of(isa), kernels_names()))
        warn("LLAMA31_ISA=%s: not supported by this processor; using %s", isa, kernel.name);
}

// Returns the size of the team: -t or -tb, whichever is greater.
static int choose_threads(ModelOptions *m) {
    int n_threads = m->n_threads > 0 ? m->n_threads : team_default_threads();
    if (n_threads > 8 * team_default_threads()) warn("-t %d: too many for the CPUs", n_threads);
    if (m->n_batch_threads > 0) m->n_threads = n_threads; // the model must not take all threads
    return n_threads > m->n_batch_threads ? n_threads : m->n_batch_threads;
}

// Runs a command with the arguments after its name; returns the exit code. The options are static
// because commands keep pointers to them.
static int run_command(const Command *command, int argc, char **argv) {
    static Options o;
    Error err;

    o = options_default(command->name, command->flag);
    o.args = xalloc((size_t)argc + 1, sizeof *o.args);
    if (!options_parse(&o, argc, argv, &err)) die_error(&err);

    if (o.help.wants_version) return print_version(o.is_verbose);
    if (o.help.wants_usage) {
        command_print_help(command, false);
        return EXIT_OK;
    }
    if (!module_check(command->module, command->name, &err)) die_error(&err);

    // Positional arguments. The first one of some commands is the model.
    if (command->prepare) command->prepare(&o);
    if (o.n_args > command->max_args)
        die(EXIT_USAGE, "%s: unexpected argument \"%s\" (usage: llama31 %s %s)", o.command,
            o.args[command->max_args], o.command, command->usage);

    choose_kernels();
    int n_threads = choose_threads(&o.model.load);

    // No file has been read so far. From here on the process can open only the files that the
    // options name.
    enter_sandbox(&o);
    return team_serve(n_threads, call_command, &o);
}

// Refuses a stack on which parsers and kernels could overflow (`ulimit -s`). It may be too small
// for printf() already.
static void check_stack(void) {
    enum { MIN_BYTES = 320 << 10 };
    static const char message[] = "llama31: expected a stack of 320 KiB or more (ulimit -s)\n";
    if (os_stack_limit() >= MIN_BYTES) return;

    write_all(STDERR_FILENO, message, sizeof message - 1);
    _exit(EXIT_RUNTIME);
}

int main(int argc, char **argv) {
    check_stack();
    output_prepare();
    signals_install(&generate_interrupted);

    int n; // arguments before the options
    const Command *command = command_choose(argc, argv, &n);
    int code = run_command(command, argc - n, argv + n);
    stdout_flush();
    return code;
}
