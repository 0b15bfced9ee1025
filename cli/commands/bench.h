// Measures the limits of the machine: memory bandwidth, and arithmetic peak from registers.
#pragma once

#include <stddef.h>

// Memory bandwidth in GB/s of n_threads that read `bytes` repeatedly, the best of four passes.
double bench_read_gb(int n_threads, size_t bytes);
// Arithmetic peak in GFLOP/s of the unit kernel.peak_unit, the best of four passes.
double bench_peak_gflop(int n_threads);
