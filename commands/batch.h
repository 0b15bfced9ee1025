// The scheduler of batch and score: reads requests, runs many at a time, writes their answers.
#pragma once

#include "batch_output.h"

// Runs all requests and returns the exit code. The task must stay valid.
int batch_run(const Options *o, const BatchTask *task);
