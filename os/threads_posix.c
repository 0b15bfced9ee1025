#include "threads.h"
#include "os.h"

#include <pthread.h>
#include <stdlib.h>

enum { STACK_BYTES = 8 << 20 }; // as Linux gives the first thread; musl gives others 128 KiB

typedef struct {
    pthread_t thread;
    void (*run)(int index);
    int index;
} Worker;

static void *worker_run(void *arg) {
    const Worker *w = arg;
    w->run(w->index);
    return NULL;
}

int threads_run(int n_threads, void (*worker)(int index), int (*program)(int n, void *arg),
                void *arg) {
    Worker *workers = calloc((size_t)n_threads, sizeof *workers);
    pthread_attr_t how;
    int n = 1;
    if (!workers) n_threads = 1;
    pthread_attr_init(&how);
    pthread_attr_setstacksize(&how, STACK_BYTES);
    for (; n < n_threads; n++) {
        Worker *w = &workers[n];
        *w = (Worker){.run = worker, .index = n};
        if (pthread_create(&w->thread, &how, worker_run, w)) break;
    }
    pthread_attr_destroy(&how);
    int code = program(n, arg);
    while (--n > 0) pthread_join(workers[n].thread, NULL);
    free(workers);
    return code;
}

int threads_available(void) { return os_cpus(); }
