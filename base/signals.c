#include "signals.h"
#include "files.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static volatile int *interrupted, is_deferred;

static void on_end(int signal_number) {
    if (signal_number == SIGINT && is_deferred && !*interrupted) {
        *interrupted = 1;
        return;
    }
    files_cleanup();
    if (signal_number == SIGINT) {
        ssize_t n = isatty(STDERR_FILENO) ? write(STDERR_FILENO, "\n", 1) : 0; // behind the ^C
        (void)n;
        _exit(EXIT_INTERRUPTED);
    }
    signal(signal_number, SIG_DFL);
    raise(signal_number); // what would have happened: delivered when we return
}

void signals_install(volatile int *flag) {
    static const int ends[] = {SIGINT,  SIGTERM,   SIGHUP,  SIGQUIT, SIGXCPU,
                               SIGALRM, SIGVTALRM, SIGUSR1, SIGUSR2};
    struct sigaction action = {.sa_handler = on_end}, before;
    interrupted = flag;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        bool is_ignored =
            !sigaction(ends[i], NULL, &before) && before.sa_handler == SIG_IGN; // as nohup does
        if (!is_ignored || ends[i] == SIGINT) sigaction(ends[i], &action, NULL);
    }
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    atexit(files_cleanup);
}

void signals_defer(void) { is_deferred = 1; }
