// Threads for the whole of a program: OpenMP's where the compiler has it (threads_openmp.c),
// POSIX's elsewhere (threads_posix.c).
#ifndef OS_THREADS_H
#define OS_THREADS_H

// Runs program(n, arg) here beside n - 1 threads that run worker(1) to worker(n - 1); n is
// n_threads, or less where the system gives no more. Returns what the program says when all have
// ended.
int threads_run(int n_threads, void (*worker)(int index), int (*program)(int n, void *arg),
                void *arg);
// CPUs that this process may use by its affinity mask and, with OpenMP, by OMP_NUM_THREADS.
int threads_available(void);

#endif
