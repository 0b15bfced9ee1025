// The scheduler of batch and score: reads requests, runs many at a time, writes their answers.
#pragma once

#include "batch_output.h"

// What a command does with requests.
typedef struct {
    void (*open)(Pipeline *p); // prepares the pipeline; NULL: nothing to do
    // Parses a request, as record_parse().
    bool (*parse)(Record *r, const Json *root, Str text, Error *err);
    // Receives a finished request. NULL: its answer is written to the output.
    void (*deliver)(const Record *r);
    const Str *only; // the only request, as text; NULL: requests are lines of the input
    bool is_score;   // prompts are scored, no text is generated
} BatchTask;

// Runs all requests and returns the exit code. The task must stay valid.
int batch_run(const Options *o, const BatchTask *task);
