// Parts of bench in files of their own: the limits of the machine, and times of single kernels.
#pragma once

#include "../base/json.h"
#include "../model.h"

// Memory bandwidth in GB/s of n_threads that read `bytes` repeatedly, the best of four passes.
double bench_read_gb(int n_threads, size_t bytes);
// Arithmetic peak in GFLOP/s of the unit kernel.peak_unit, the best of four passes.
double bench_peak_gflop(int n_threads);
// Times every kernel for products with each tensor type of the model. Prints a table, or writes an
// array to `json`.
void bench_sweep(const Model *m, JsonWriter *json);
