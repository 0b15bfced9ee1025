// Measures the limits of the machine: memory bandwidth, and arithmetic peak from registers.
#include "cli/commands/bench.h"
#include "base/clock.h"
#include "kernels/load.h"
#include "kernels/ops.h"

enum {
    PARTS = 16, // work items of a pass, per thread
    MAX_PARTS = PARTS * 1024,
    PASSES = 6
};

typedef struct {
    uint64_t *data; // (n) values to read
    size_t n;
    int n_parts;
    int n_streams;             // that a thread reads concurrently: 1, 2 or 4
    uint64_t sums[MAX_PARTS];  // of the values read
    int rounds;                // of arithmetic, per work item
    double amounts[MAX_PARTS]; // bytes read, or arithmetic operations, per work item
} LimitProbe;

// Returns the sum of n values, read in n_streams concurrent streams that are an odd number of lines
// of 64 bytes apart: streams at a distance of a power of two compete for the same sets of a cache.
INLINE uint64_t read_streams(const uint64_t *from, size_t n, int n_streams) {
    const size_t length = ((n / 8 / (size_t)n_streams - 1) | 1) * 8;
    uint64_t sums[4][8] = {{0}}, sum = 0;
    for (size_t i = 0; i < length; i += 8)
        for (int s = 0; s < n_streams; s++)
            for (int j = 0; j < 8; j++) sums[s][j] += from[(size_t)s * length + i + (size_t)j];
    for (int s = 0; s < n_streams; s++)
        for (int j = 0; j < 8; j++) sum += sums[s][j];
    return sum;
}

// Reads a part of the data. The first pass writes it: pages never written to would all map to one
// physical page of zeros, and pages written by one thread would be on one memory node.
static void read_part(void *arg, int part) {
    LimitProbe *p = arg;
    size_t n = p->n / (size_t)p->n_parts;
    uint64_t *from = p->data + (size_t)part * n, sum;
    if (p->amounts[part] == 0) memset(from, 1, n * sizeof *from);

    switch (p->n_streams) {
    case 1: sum = read_streams(from, n, 1); break;
    case 2: sum = read_streams(from, n, 2); break;
    default: sum = read_streams(from, n, 4);
    }
    p->sums[part] = sum; // stored, so that the compiler keeps the reads
    p->amounts[part] = (double)(n * sizeof *from);
}

static void peak_part(void *arg, int part) {
    LimitProbe *p = arg;
    p->amounts[part] = kernel.peak(p->rounds);
}

static void read_all(void *arg) { ops_for(((LimitProbe *)arg)->n_parts, 1, read_part, arg); }
static void peak_all(void *arg) { ops_for(((LimitProbe *)arg)->n_parts, 1, peak_part, arg); }

// The best of several passes, in 1e9 bytes or operations per second. How many streams are fastest
// depends on the CPU (one thread of Zen 5: 32, 37 and 34 GB/s with 1, 2 and 4, 13 with 8,
// 2026-11-28).
static double best_rate(LimitProbe *p, int n_threads, void (*pass)(void *)) {
    double best = 0;
    p->n_parts = n_threads * PARTS;
    for (int i = 0; i < PASSES; i++) {
        p->n_streams = 1 << i % 3;
        double start = now_sec(), sum = 0;
        team_run(n_threads, pass, p);
        double sec = now_sec() - start;
        for (int k = 0; k < p->n_parts; k++) sum += p->amounts[k];
        if (sum * 1e-9 / sec > best) best = sum * 1e-9 / sec;
        if (sec < 0.05) p->rounds *= 8; // too short to measure
    }
    return best;
}

double bench_read_gb(int n_threads, size_t bytes) {
    uint64_t *data = xalloc_large(bytes / sizeof *data, sizeof *data); // in huge pages
    LimitProbe p = {.data = data, .n = bytes / sizeof *data};
    double gb = best_rate(&p, n_threads, read_all);
    free(data);
    return gb;
}

double bench_peak_gflop(int n_threads) {
    return best_rate(&(LimitProbe){.rounds = 1000}, n_threads, peak_all);
}
