// Threads by OpenMP. See threads.h.
#include "base/os/threads.h"

#include <omp.h>

int threads_run(int n_threads, void (*worker)(int index), int (*program)(int n, void *arg),
                void *arg) {
    int code = 0;
#pragma omp parallel num_threads(n_threads)
    {
        int index = omp_get_thread_num();
        if (index)
            worker(index);
        else
            code = program(omp_get_num_threads(), arg);
    }
    return code;
}

int threads_available(void) {
    int n = omp_get_num_procs(), most = omp_get_max_threads();
    return most < n ? most : n;
}

bool threads_are_bound(void) { return omp_get_proc_bind() != omp_proc_bind_false; }
