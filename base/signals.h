// Signal handlers and cleanup at the end of the program. Both remove temporary files (files.h).
#pragma once

#include <signal.h>
#include <stdbool.h>

// Installs handlers for the signals that end a program; exit() cleans up too. SIGINT gives exit
// code 130. SIGBUS, raised when a mapped model file is truncated, gives exit code 1 and one line.
// SIGPIPE and SIGXFSZ are ignored: they become errors of write(). A signal that the parent process
// ignores stays ignored, as nohup and the & of scripts expect.
void signals_install(volatile int *interrupted);
// From now on the first signal of this number only sets *interrupted to it, for loops that poll it
// and stop cleanly. The next one ends the program.
void signals_defer(int number);
// While on, the first SIGTERM or SIGHUP sets *interrupted and is held back. signals_hold(false)
// delivers it.
void signals_hold(bool is_on);
bool signals_are_held(void);
// True once *interrupted is set.
bool signals_interrupt(void);
// Registers an async-signal-safe function that is called when the program ends, also by a crash.
void signals_restore_with(void (*function)(void));
