// POSIX threads. See threads.h.
#include "base/os/threads.h"
#include "base/os/os.h"

#include <pthread.h>
#include <stdlib.h>

enum { STACK_BYTES = 8 << 20 }; // the default of glibc; that of musl is 128 KiB

typedef struct {
    pthread_t thread;
    void (*run)(int index);
    int index;
} PosixThread;

static void *thread_main(void *arg) {
    const PosixThread *t = arg;
    t->run(t->index);
    return NULL;
}

int threads_run(int n_threads, void (*worker)(int index), int (*program)(int n, void *arg),
                void *arg) {
    PosixThread *threads = malloc((size_t)n_threads * sizeof *threads);
    pthread_attr_t attributes;
    if (!threads) n_threads = 1;

    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);

    int n = 1; // running threads: this one and those that were started
    for (; n < n_threads; n++) {
        threads[n].run = worker;
        threads[n].index = n;
        if (pthread_create(&threads[n].thread, &attributes, thread_main, &threads[n])) break;
    }

    pthread_attr_destroy(&attributes);

    int code = program(n, arg);
    while (--n > 0) pthread_join(threads[n].thread, NULL);
    free(threads);
    return code;
}

int threads_available(void) { return os_cpus().n_cpus; }

bool threads_are_bound(void) { return false; }
