// Measures the limits of the machine: memory bandwidth, and arithmetic peak from registers.
#include "bench.h"
#include "../base/clock.h"
#include "../kernels/ops.h"

#include <stdlib.h>
#include <string.h>

enum {
    STREAMS = 8, // memory streams that a thread reads at a time
    PARTS = 64,  // work items of a pass
    PASSES = 4
};

typedef struct {
    const uint64_t *data;
    size_t n; // values of data
    uint64_t sums[PARTS];
    double operations[PARTS];
    int rounds; // of the arithmetic
} LimitProbe;

// Reads part i of the data in STREAMS concurrent streams: a single one reaches two thirds of the
// bandwidth.
static void read_part(void *arg, int part) {
    LimitProbe *p = arg;
    size_t length = p->n / PARTS / STREAMS;
    const uint64_t *from = p->data + (size_t)part * (p->n / PARTS);
    uint64_t sums[STREAMS][8] = {{0}}, sum = 0;
    for (size_t i = 0; i + 8 <= length; i += 8)
        for (int s = 0; s < STREAMS; s++)
            for (int j = 0; j < 8; j++) sums[s][j] += from[(size_t)s * length + i + (size_t)j];
    for (int s = 0; s < STREAMS; s++)
        for (int j = 0; j < 8; j++) sum += sums[s][j];
    p->sums[part] = sum; // stored, so that the compiler keeps the reads
}

static void peak_part(void *arg, int part) {
    LimitProbe *p = arg;
    p->operations[part] = kernel.peak(p->rounds);
}

static void read_all(void *arg) { ops_for(PARTS, 1, read_part, arg); }
static void peak_all(void *arg) { ops_for(PARTS, 1, peak_part, arg); }

double bench_read_gb(int n_threads, size_t bytes) {
    double best = 0;
    uint64_t *data = xalloc(bytes / sizeof *data, sizeof *data);
    LimitProbe p = {.data = data, .n = bytes / sizeof *data};
    memset(data, 1, bytes); // untouched pages would all be the same page of zeros
    for (int i = 0; i < PASSES; i++) {
        double start = now_sec();
        team_run(n_threads, read_all, &p);
        double gb = (double)bytes * 1e-9 / (now_sec() - start);
        if (gb > best) best = gb;
    }
    free(data);
    return best;
}

double bench_peak_gflop(int n_threads) {
    LimitProbe p = {.rounds = 1000};
    double best = 0;
    for (int i = 0; i < PASSES; i++) {
        double start = now_sec(), operations = 0;
        team_run(n_threads, peak_all, &p);
        double sec = now_sec() - start;
        for (int k = 0; k < PARTS; k++) operations += p.operations[k];
        if (operations * 1e-9 / sec > best) best = operations * 1e-9 / sec;
        if (sec < 0.05) p.rounds *= 8; // too short to measure
    }
    return best;
}
