// The threads of the program, and how they divide the work of an operation.
//
// team_run() starts a job: a function that all threads of the team run, and that is a sequence of
// operations. An operation has n work items, numbered from 0. All threads execute it with the same
// n:
//
//     for (int i; team_next(n, &i);) ... compute item i ...
//     team_end_op(OP_...);
//
// team_end_op() returns when all items are done and their results are visible. Any thread may
// compute any item, so the result of an item must not depend on the thread.
//
// If another process occupies the core of a thread, the other threads do not wait for it: they
// compute all items, and the late thread skips the operations that are over. To skip the right
// ones it needs their n, so n must not come from memory that a later operation of the job writes.
#pragma once

#include <stdbool.h>
#include <stddef.h>

// Runs program(arg) on the calling thread and returns its result. Meanwhile n_threads - 1 worker
// threads wait for team_run(). Called once per process.
int team_serve(int n_threads, int (*program)(void *arg), void *arg);
// Runs a job on n_threads threads (at most as many as team_serve() has) and returns when all have
// left it.
void team_run(int n_threads, void (*job)(void *arg), void *arg);
// Number of threads of team_serve(). Outside it, the number of performance cores that this process
// may use, by affinity mask and cgroup quota.
int team_default_threads(void);
// Number of threads of the running job.
int team_size(void);
// A lock for rare critical sections within a job.
void team_lock(void);
void team_unlock(void);

// Takes the next of n work items (at most 2^26); false when none is left.
bool team_next(int n, int *item);
// team_next() in another order: each thread first takes the items of its own contiguous share, then
// items from the shares of others. Items that are neighbors in memory mostly go to one thread, so
// that hardware prefetching works.
bool team_next_near(int n, int *item);

// Operations by kind, for the profile of `bench`.
typedef enum {
    OP_EMBED,
    OP_NORM,
    OP_ENCODE,
    OP_MATMUL,
    OP_ROPE,
    OP_ATTEND,
    OP_ROUTE,
    OP_REST,
    OP_COUNT
} OpKind;
void team_end_op(OpKind kind);

// A flag that a signal handler may set; NULL: none. Once it is set, the remaining work items are
// skipped, so that the job ends soon, with invalid results. The caller of team_run() must then
// check team_is_interrupted().
extern const volatile int *team_interrupted;
bool team_is_interrupted(void);

// Scratch memory of the calling thread, 64-byte aligned: KERNEL_SCRATCH bytes for the running
// kernel, followed by OPS_SCRATCH bytes for the operation that called it.
enum { KERNEL_SCRATCH = 816 << 10, OPS_SCRATCH = 776 << 10 };
void *team_scratch(void);

// Seconds by kind of operation, measured while team_profile is set. The time of an operation is
// counted from the end of the previous one.
extern bool team_profile;
extern double team_sec[OP_COUNT];
