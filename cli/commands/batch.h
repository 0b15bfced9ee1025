// The state of a run of batch_run(), which batch.c and batch_schedule.c share.
#pragma once

#include "cli/commands/batch_output.h"
#include "cli/lines.h"
#include "cli/request.h"

typedef struct {
    long first, last;
} LineRange;

// Lines of input, and what is known of earlier ones. Only requests with an id take memory for the
// life of the process.
typedef struct {
    LineReader lines;
    JsonDoc doc;
    RequestForm last_form; // of the last valid request, also used for unreadable lines
    Shard shard;
    bool at_end, is_checking; // is_checking: results of earlier runs are compared
    InternTable seen;         // ids of all requests so far that have one
    LineRange *unnamed;       // (n_unnamed) lines of those without id, ascending
    int n_unnamed;
    InternTable unknown; // names of their unknown fields
} BatchInput;

typedef struct {
    long n_total;                     // records of the input; 0: unknown
    long n_done, n_failed, n_skipped; // n_skipped: records already in the output
    long n_truncated;                 // records that did not fit the context
    int n_loops;                      // answers that ended in a loop
    int n_full;                       // answers that the context cut
    int n_cut;                        // answers that ended within a character
    uint64_t n_prompt, n_shared, n_generated, n_reasoning; // tokens
    uint64_t n_sharable;    // tokens of prompts that an ideal order shares
    InternTable beginnings; // hashes of the beginnings of all prompts, for n_sharable
    // With --check:
    uint64_t n_limit; // tokens that all answers can have, by max_tokens
    long n_unlimited; // answers without that limit
} BatchCounts;

typedef struct {
    double start, last;    // now_sec() of the run and of the last line
    bool is_shown, is_log; // is_log: lines of a log file
} BatchProgress;

typedef struct {
    const BatchTask *task;
    const Options *options;
    Pipeline pipeline;
    Generator generator;
    BatchInput input;
    BatchOutput output;
    BatchCounts counts;
    BatchProgress progress;

    // Scheduling
    Record **window; // (n_window) read and not yet written, in input order
    int n_window;
    size_t window_tokens; // prompt tokens of the window
    Record **waiting;     // (n_waiting) those in the state RECORD_WAITING, sorted by prompt
    int n_waiting;
    long n_read, n_started; // records that have ever been waiting, and those that no longer are
    Record **running;       // (n_running) in the order of their start
    int n_running, max_running;
    Session **prefixes; // (n_prefixes) of finished records, least recently used first
    int n_prefixes, max_prefixes;
    size_t kv_memory; // bytes that KV caches may use

    double check_speed[2]; // --speed; 0: unknown
} Batch;

// batch_stream.c

// Writes what is new in the answers of running records with "stream": true, and the rest of those
// that have finished.
void batch_stream(Batch *b);

// batch_check.c

// Parses --speed. Dies (exit 2) if it is invalid.
void batch_check_parse(const Options *o, double speed[2]);
// Counts the waiting records of the window, and finishes them without an answer.
void batch_check_waiting(Batch *b);
void batch_check_print(const Batch *b);

// batch_schedule.c

enum {
    MAX_WINDOW = 4096,          // records read ahead
    MAX_OVERTAKEN = MAX_WINDOW, // later records that may start before a waiting one
    MAX_BEGINNINGS = 1 << 20    // tokens of different prompts that BatchCounts.beginnings holds
};

// Counts the tokens of a prompt: all, those that were shared, and those that an ideal order shares.
void batch_count_prompt(BatchCounts *counts, const Record *r);
// False with err if the KV cache of a record does not fit in memory, even alone.
bool batch_fits_memory(const Batch *b, const Record *r, Error *err);
// Adds a record to the waiting ones.
void batch_add_waiting(Batch *b, Record *r);
// Starts waiting records, first those with the longest computed prefix. A record that waits for
// memory blocks all others.
void batch_start_waiting(Batch *b);
// Finishes records whose sequence has ended. A record that an interrupt cancelled gets no answer.
void batch_collect_finished(Batch *b);
