// The threads: jobs that they run together, and how the work of an operation is handed out among
// them.
//
// A job is a function that every thread of the team runs; it is a sequence of operations. An
// operation is a number of units, and every thread goes through it like this, with the same number:
//
//     for (int unit; team_next(n_units, &unit);) ... compute the unit ...
//     team_end_op(OP_...);
//
// It is over when all its units are done, whoever did them. A thread that had no chance to take
// part (another process has its core) is not waited for: it finds the operation over and goes on to
// the next.
#ifndef KERNELS_TEAM_H
#define KERNELS_TEAM_H

#include <stdbool.h>
#include <stddef.h>

// Runs program(arg) on the calling thread, with n_threads - 1 others waiting for team_run, and
// returns its result. Once in a process, around everything that computes.
int team_serve(int n_threads, int (*program)(void *arg), void *arg);
// Runs body(arg) on n_threads threads, at most those of team_serve, and returns when none is in it
// any more.
void team_run(int n_threads, void (*body)(void *arg), void *arg);
// Threads this process may use: affinity mask and cgroup quota.
int team_default_threads(void);
// Threads of the job under way.
int team_size(void);
// For the rare thing that one thread at a time may do.
void team_lock(void);
void team_unlock(void);

// Takes the next unit of n (at most 2^26) of the operation; false when none is left.
bool team_next(int n, int *unit);
// The same, from this thread's own share first, a run of neighbours: what lies behind a unit in
// memory, and is fetched ahead, will most often be the same thread's.
bool team_next_near(int n, int *unit);

// What operations are counted as in the profile.
typedef enum {
    OP_EMBED,
    OP_NORM,
    OP_ENCODE,
    OP_MATMUL,
    OP_ROPE,
    OP_ATTEND,
    OP_REST,
    OP_COUNT
} OpKind;
// Ends the operation for this thread: returns when all its units are done and their results are
// visible.
void team_end_op(OpKind kind);

// Points at a flag that a signal handler may set, or is NULL. Once it is set, what is left of the
// work is taken and not done: jobs end soon, and whoever runs them asks whether that happened.
extern const volatile int *team_interrupted;
bool team_is_interrupted(void);

// Memory of this thread alone, 64-byte aligned, for what would be too much for its stack.
// KERNEL_SCRATCH bytes belong to the kernel under way, OPS_SCRATCH bytes behind them to the
// operation that called it.
enum { KERNEL_SCRATCH = 816 << 10, OPS_SCRATCH = 776 << 10 };
void *team_scratch(void);

// Seconds spent per kind of operation since the start, while team_profile is on (from the end of
// one operation to the end of the next).
extern bool team_profile;
extern double team_sec[OP_COUNT];
const char *team_kind_name(OpKind kind);

#endif
