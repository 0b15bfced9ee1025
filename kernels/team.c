// Threads live as long as the program (team_serve). They wait for jobs, and for the end of
// operations, by spinning for some microseconds and then sleeping. Sleeping matters when another
// process needs the core: a spinning thread would keep it from the thread that all are waiting for.
// The barriers of OpenMP spin for milliseconds.
//
// Work items are handed out by atomic counters. Nothing is ever reset between operations: they are
// numbered, and a counter holds the number of its operation together with its count. A counter of
// an earlier operation counts as 0; one of a later operation tells a late thread that its operation
// is over. That is why no thread has to arrive before the others can go on.
#include "team.h"
#include "../base/clock.h"
#include "../base/text.h"
#include "../os/os.h"
#include "../os/threads.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum {
    MAX_THREADS = 1024,
    MAX_SPINS = 1000, // about 40 us on Sapphire Rapids: longer than most waits, much shorter than a
                      // time slice of the scheduler
    ITEM_BITS = 26    // of an ItemCounter for the items; the others number the operation
};

typedef struct {
    _Alignas(64) _Atomic uint64_t count; // operation << ITEM_BITS | items handed out
} ItemCounter;

// A number that threads wait for to change.
typedef struct {
    _Alignas(64) _Atomic unsigned value;
    _Atomic int n_sleeping;
} WaitWord;

static struct {
    int n_served;  // threads of team_serve(); 0 outside it
    int n_threads; // of the running job
    void (*job)(void *arg);
    void *arg;
    uint64_t first_op; // number of the job's first operation
    WaitWord inside;   // workers in the job, plus OPEN while they may enter

    WaitWord n_ops_done;               // of all jobs: the number of the current operation
    _Alignas(64) _Atomic int n_done;   // finished items of the current operation
    ItemCounter counters[MAX_THREADS]; // shares of the current operation; team_next() uses the
                                       // first for all items
    double op_begin;                   // profile: when the current operation began
    WaitWord calls[MAX_THREADS];       // per worker: jobs that it was called to
    _Atomic bool is_ending;            // workers return
} team;

enum { OPEN = 1 << 30 };

// State of a thread in its current operation. Finished items are counted here first, and added to
// team.n_done when the thread finds no more of them.
static _Thread_local struct {
    int index;
    uint64_t op;   // its number
    int n_items;   // its items; 0: none was asked for
    int n_done;    // items done here that are not yet in team.n_done
    bool was_last; // this thread added the last of them
    char *scratch;
} me;

const volatile int *team_interrupted;
bool team_is_interrupted(void) { return team_interrupted && *team_interrupted; }

bool team_profile;
double team_sec[OP_COUNT];

const char *team_kind_name(OpKind kind) {
    static const char *const names[] = {"embed", "norm",   "encode", "matmul",
                                        "rope",  "attend", "rest"};
    return names[kind];
}

int team_size(void) { return team.n_threads > 1 ? team.n_threads : 1; }
void *team_scratch(void) { return me.scratch; }

// Waiting. A word is read in a loop, which costs the waker nothing, and only then slept on, which
// costs it a system call.

static void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

// Returns when the word is no longer `value`. A thread announces in n_sleeping that it must be
// woken before it looks at the word for the last time, so that no change is missed.
static void wait_while(WaitWord *w, unsigned value) {
    for (int i = 0; i < MAX_SPINS; i++) {
        if (atomic_load_explicit(&w->value, memory_order_acquire) != value) return;
        relax();
    }
    atomic_fetch_add(&w->n_sleeping, 1);
    while (atomic_load(&w->value) == value) os_sleep_while(&w->value, value);
    atomic_fetch_sub(&w->n_sleeping, 1);
}

static void add_and_wake(WaitWord *w, unsigned n) {
    atomic_fetch_add(&w->value, n);
    if (atomic_load(&w->n_sleeping)) os_wake_all(&w->value);
}

// Operations.

// Takes an item of [0, n) from a counter. After an interrupt the items that are left are taken but
// not returned: they count as done.
static bool next_from(ItemCounter *counter, int n, int *item) {
    do {
        uint64_t seen = atomic_load(&counter->count), next;
        do {
            if (seen >> ITEM_BITS > me.op) return false; // a later operation
            next = seen >> ITEM_BITS == me.op ? seen : me.op << ITEM_BITS;
            *item = (int)(next & ((1u << ITEM_BITS) - 1));
            if (*item >= n) return false;
        } while (!atomic_compare_exchange_weak(&counter->count, &seen, next + 1));
        me.n_done++;
    } while (team_is_interrupted());
    return true;
}

bool team_next(int n, int *item) {
    me.n_items = n;
    return next_from(&team.counters[0], n, item);
}

// Adds the items that this thread has done to those of the team, once for many items: all threads
// write this counter. True if this thread thereby completed the operation.
static bool report_done(void) {
    int n = me.n_done;
    me.n_done = 0;
    if (n && atomic_fetch_add(&team.n_done, n) + n == me.n_items) me.was_last = true;
    return me.was_last;
}

static bool is_op_over(void) {
    return atomic_load_explicit(&team.n_ops_done.value, memory_order_acquire) != (unsigned)me.op;
}

// The search for a share that is left reads as many cache lines as there are threads, so it stops
// as soon as all items are known to be done.
bool team_next_near(int n, int *item) {
    int n_threads = team_size();
    me.n_items = n;
    for (int i = 0; i < n_threads; i++) {
        if (i && (report_done() || is_op_over())) return false;
        int share = (me.index + i) % n_threads;
        int begin = (int)((int64_t)n * share / n_threads),
            end = (int)((int64_t)n * (share + 1) / n_threads);
        if (!next_from(&team.counters[share], end - begin, item)) continue;
        *item += begin;
        return true;
    }
    return false;
}

void team_end_op(OpKind kind) {
    if (me.n_items == 0) return; // an operation without items does not count as one
    if (report_done()) {
        if (team_profile) {
            double now = now_sec();
            team_sec[kind] += now - team.op_begin;
            team.op_begin = now;
        }
        atomic_store(&team.n_done, 0);
        add_and_wake(&team.n_ops_done, 1);
    } else {
        wait_while(&team.n_ops_done, (unsigned)me.op);
    }
    me.was_last = false;
    me.op++;
}

// Jobs. A worker that is called may find the job over before it gets to run. team_run() must not
// return, and reuse its argument, while a worker is inside, and must not wait for one that has not
// entered. So `inside` counts the workers, and holds OPEN as long as they may enter.

void team_run(int n_threads, void (*job)(void *arg), void *arg) {
    team.n_threads = n_threads < team.n_served ? n_threads : team.n_served;
    team.op_begin = team_profile ? now_sec() : 0;
    team.job = job;
    team.arg = arg;
    team.first_op = me.op;
    atomic_store(&team.inside.value, OPEN);
    for (int i = 1; i < team.n_threads; i++) add_and_wake(&team.calls[i], 1);
    job(arg);
    atomic_fetch_sub(&team.inside.value, OPEN);
    for (unsigned n; (n = atomic_load(&team.inside.value));) wait_while(&team.inside, n);
}

// A worker enters the running job, unless it is over.
static bool enter_job(void) {
    unsigned inside = atomic_load(&team.inside.value);
    do {
        if (inside < OPEN) return false;
    } while (!atomic_compare_exchange_weak(&team.inside.value, &inside, inside + 1));
    return true;
}

static void allocate_scratch(void) {
    void *p = NULL;
    if (posix_memalign(&p, 64, KERNEL_SCRATCH + OPS_SCRATCH)) die(EXIT_RUNTIME, "out of memory");
    me.scratch = p;
}

// The life of a worker: wait for a call, take part in the job. It may answer a call late: then
// there is no job to enter, or a later one.
static void worker(int index) {
    me.index = index;
    allocate_scratch();
    for (unsigned n_seen = 0;;) {
        wait_while(&team.calls[index], n_seen);
        n_seen = atomic_load(&team.calls[index].value);
        if (team.is_ending) break;
        if (!enter_job()) continue;
        me.op = team.first_op;
        if (index < team.n_threads) team.job(team.arg);
        add_and_wake(&team.inside, -1u);
    }
    free(me.scratch);
}

typedef struct {
    int (*run)(void *arg);
    void *arg;
} TeamProgram;

static int run_program(int n_threads, void *arg) {
    const TeamProgram *p = arg;
    allocate_scratch();
    team.n_served = n_threads;
    int code = p->run(p->arg);
    team.n_served = 0;
    team.is_ending = true;
    for (int i = 1; i < n_threads; i++) add_and_wake(&team.calls[i], 1);
    free(me.scratch);
    return code;
}

int team_serve(int n_threads, int (*program)(void *arg), void *arg) {
    return threads_run(n_threads < MAX_THREADS ? n_threads : MAX_THREADS, worker, run_program,
                       &(TeamProgram){program, arg});
}

int team_default_threads(void) {
    int n = threads_available();
    double cpus = os_cpu_quota();
    return cpus >= n ? n : cpus < 1 ? 1 : (int)cpus;
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
void team_lock(void) { pthread_mutex_lock(&mutex); }
void team_unlock(void) { pthread_mutex_unlock(&mutex); }
