// Threads that live as long as the program: OpenMP threads if the compiler supports OpenMP
// (threads_openmp.c), else POSIX threads (threads_posix.c). kernels/ distributes work among them.
#pragma once

#include <stdbool.h>

// Calls program(n, arg) on this thread while n - 1 further threads call worker(1) to worker(n - 1).
// n is n_threads, or less if the system creates fewer. Returns the result of program() after all
// threads have ended.
int threads_run(int n_threads, void (*worker)(int index), int (*program)(int n, void *arg),
                void *arg);
// CPUs in the affinity mask of the process; with OpenMP at most OMP_NUM_THREADS.
int threads_available(void);
// True if the environment asks OpenMP to bind threads to CPUs.
bool threads_are_bound(void);
