// A clock for durations.
#pragma once

#include <time.h>

// Seconds since an arbitrary start; never goes backwards.
static inline double now_sec(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
