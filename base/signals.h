// How the program ends when it does not end by itself.
#ifndef BASE_SIGNALS_H
#define BASE_SIGNALS_H

// From here on a signal that ends the program removes what is unfinished (files.h) first, as every
// call of exit does. SIGINT makes the exit code 130; a closed pipe and a file that may not grow are
// errors of write(). `interrupted` is what signals_defer speaks of.
void signals_install(volatile int *interrupted);
// The first SIGINT from now on only sets *interrupted, for loops that look at it and end in order;
// a second one ends the program.
void signals_defer(void);

#endif
