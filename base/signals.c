// See signals.h.
#include "base/signals.h"
#include "base/error.h"
#include "base/files.h"

#include <unistd.h>

static volatile int *interrupted;
static volatile unsigned deferred;             // bit N: signal N
static volatile sig_atomic_t is_holding, held; // see signals_hold(); held: a signal, or 0
static void (*restore)(void);                  // see signals_restore_with(); NULL: none

// Handlers call async-signal-safe functions only.
static void on_signal(int number) {
    static const char changed[] = "llama31: the model file changed while in use\n";

    if (deferred >> number & 1 && !*interrupted) {
        *interrupted = number;
        return;
    }

    if ((number == SIGTERM || number == SIGHUP) && is_holding && !held) {
        held = number;
        *interrupted = 1;
        return;
    }

    files_cleanup();
    if (restore) restore();

    if (number == SIGBUS) { // a page of the file can no longer be read
        write_all(STDERR_FILENO, changed, sizeof changed - 1);
        _exit(EXIT_RUNTIME);
    }
    if (number == SIGINT) {
        if (isatty(STDERR_FILENO)) write_all(STDERR_FILENO, "\n", 1); // after the ^C
        _exit(EXIT_INTERRUPTED);
    }

    // Raise the signal again with its default action, so that the parent process is informed of it.
    // It is delivered when this handler returns.
    signal(number, SIG_DFL);
    raise(number);
}

void signals_install(volatile int *flag) {
    static const int fatal[] = {SIGINT,  SIGTERM,   SIGHUP,  SIGQUIT, SIGXCPU,
                                SIGALRM, SIGVTALRM, SIGUSR1, SIGUSR2, SIGBUS};
    struct sigaction action = {.sa_handler = on_signal}, before;
    interrupted = flag;
    for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++) {
        bool is_ignored = !sigaction(fatal[i], NULL, &before) && before.sa_handler == SIG_IGN;
        if (!is_ignored || fatal[i] == SIGBUS) sigaction(fatal[i], &action, NULL);
    }
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    atexit(files_cleanup);
}

void signals_defer(int number) { deferred |= 1u << number; }

void signals_hold(bool is_on) {
    is_holding = is_on;
    if (!is_on && held) raise(held);
}

bool signals_are_held(void) { return is_holding; }

bool signals_interrupt(void) { return interrupted && *interrupted; }

void signals_restore_with(void (*function)(void)) {
    static const int crashes[] = {SIGSEGV, SIGILL, SIGFPE, SIGABRT};
    restore = function;
    atexit(function);
    for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++)
        sigaction(crashes[i], &(struct sigaction){.sa_handler = on_signal}, NULL);
}
