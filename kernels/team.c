// The threads live as long as the program (team_serve) and wait for jobs and for the end of
// operations by spinning for some microseconds and then sleeping. Sleeping matters when another
// process wants the core: a spinning thread would keep it from the thread that everyone waits for.
// OpenMP's own end of a region spins for milliseconds.
#include "team.h"
#include "../base/clock.h"
#include "../os/os.h"
#include "../os/threads.h"
#include "../base/text.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum {
    MAX_THREADS = 1024,
    SPINS = 1000,  // some 40 microseconds (Sapphire Rapids): longer than most waits, far shorter
                   // than a time slice
    UNIT_BITS = 26 // of a counter; those above hold the number of the operation
};

// A counter of units taken, on a cache line of its own.
typedef struct {
    _Alignas(64) _Atomic uint64_t taken; // operation << UNIT_BITS | units taken of it
} Counter;

// A word that threads wait on, and how many of them sleep.
typedef struct {
    _Alignas(64) _Atomic unsigned value;
    _Atomic int n_sleeping;
} Signal;

static struct {
    int n_served;                    // threads of team_serve; 0 outside it
    int n_threads;                   // of the job under way
    Signal n_over;                   // operations that are over, of all jobs
    _Alignas(64) _Atomic int n_done; // units of the operation under way that are done
    double mark;                     // when the last operation was over (profile)
    Signal inside;                   // workers in the job, and OPEN while they may enter
    void (*body)(void *arg);         // the job
    void *arg;
    uint64_t first_op;
    _Atomic bool is_ending;
    Signal jobs[MAX_THREADS];    // per worker: jobs it has been called to
    Counter shares[MAX_THREADS]; // of an operation; all of it in the first, if it is not divided
} team;

enum { OPEN = 1 << 30 };

// What a thread knows of itself and of the operation it is in.
static _Thread_local struct {
    int index;
    uint64_t op;         // number of the operation
    int n_units, n_done; // of the operation; done here and not yet counted
    bool is_last;        // counted the last of them
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

static void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

// Returns when the signal is no longer `value`: spinning first, then asleep, which n_sleeping tells
// whoever changes it.
static void signal_wait(Signal *s, unsigned value) {
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&s->value, memory_order_acquire) != value) return;
        relax();
    }
    atomic_fetch_add(&s->n_sleeping, 1);
    while (atomic_load(&s->value) == value) os_sleep_while(&s->value, value);
    atomic_fetch_sub(&s->n_sleeping, 1);
}

static void signal_add(Signal *s, unsigned n) {
    atomic_fetch_add(&s->value, n);
    if (atomic_load(&s->n_sleeping)) os_wake_all(&s->value);
}

// Takes a unit of n by a counter. No counter is ever reset: one that speaks of an earlier operation
// stands for 0, one that speaks of a later one tells that this thread's operation is over.
static bool take(Counter *counter, int n, int *unit) {
    uint64_t seen = atomic_load(&counter->taken), next;
    do {
        if (seen >> UNIT_BITS > me.op) return false;
        next = seen >> UNIT_BITS == me.op ? seen : me.op << UNIT_BITS;
        *unit = (int)(next & ((1u << UNIT_BITS) - 1));
        if (*unit >= n) return false;
    } while (!atomic_compare_exchange_weak(&counter->taken, &seen, next + 1));
    me.n_done++;
    return true;
}

// The same for work that is still wanted; what is not, is taken and counts as done.
static bool take_wanted(Counter *counter, int n, int *unit) {
    while (take(counter, n, unit))
        if (!team_is_interrupted()) return true;
    return false;
}

bool team_next(int n, int *unit) {
    me.n_units = n;
    return take_wanted(&team.shares[0], n, unit);
}

// Counts the units done here; whether all are done is known then.
static bool is_last(void) {
    int n = me.n_done;
    me.n_done = 0;
    if (n && atomic_fetch_add(&team.n_done, n) + n == me.n_units) me.is_last = true;
    return me.is_last;
}

static bool is_over(void) {
    return atomic_load_explicit(&team.n_over.value, memory_order_acquire) != (unsigned)me.op;
}

// With many threads the search for a share that is left takes as many cache lines: the last to
// finish, whom all wait for, need not search.
bool team_next_near(int n, int *unit) {
    int n_threads = team_size();
    me.n_units = n;
    for (int i = 0; i < n_threads; i++) {
        if (i && (is_last() || is_over())) return false;
        int share = (me.index + i) % n_threads;
        int begin = (int)((int64_t)n * share / n_threads),
            end = (int)((int64_t)n * (share + 1) / n_threads);
        if (!take_wanted(&team.shares[share], end - begin, unit)) continue;
        *unit += begin;
        return true;
    }
    return false;
}

// Called by the last thread of an operation: it took the time since the last one.
static void profile(OpKind kind) {
    double now = now_sec();
    team_sec[kind] += now - team.mark;
    team.mark = now;
}

void team_end_op(OpKind kind) {
    if (me.n_units == 0) return; // nothing was there to do: no operation
    if (is_last()) {
        if (team_profile) profile(kind);
        atomic_store(&team.n_done, 0);
        signal_add(&team.n_over, 1);
    } else {
        signal_wait(&team.n_over, (unsigned)me.op);
    }
    me.is_last = false;
    me.op++;
}

void team_run(int n_threads, void (*body)(void *arg), void *arg) {
    team.n_threads = n_threads < team.n_served ? n_threads : team.n_served;
    team.mark = team_profile ? now_sec() : 0;
    team.body = body;
    team.arg = arg;
    team.first_op = me.op;
    atomic_store(&team.inside.value, OPEN);
    for (int i = 1; i < team.n_threads; i++) signal_add(&team.jobs[i], 1);
    body(arg);
    atomic_fetch_sub(&team.inside.value, OPEN);
    for (unsigned n; (n = atomic_load(&team.inside.value));) signal_wait(&team.inside, n);
}

// Enters the job, unless it is over already.
static bool enter(void) {
    unsigned inside = atomic_load(&team.inside.value);
    do {
        if (inside < OPEN) return false;
    } while (!atomic_compare_exchange_weak(&team.inside.value, &inside, inside + 1));
    return true;
}

// Waits for jobs and takes part in them. A call may be answered late: then there is nothing to
// enter, or a later job.
static void worker_serve(void) {
    Signal *jobs = &team.jobs[me.index];
    for (unsigned n_seen = 0;;) {
        signal_wait(jobs, n_seen);
        n_seen = atomic_load(&jobs->value);
        if (team.is_ending) return;
        if (!enter()) continue;
        me.op = team.first_op;
        if (me.index < team.n_threads) team.body(team.arg);
        signal_add(&team.inside, -1u);
    }
}

static void scratch_new(void) {
    void *p = NULL;
    if (posix_memalign(&p, 64, KERNEL_SCRATCH + OPS_SCRATCH)) die(EXIT_RUNTIME, "out of memory");
    me.scratch = p;
}

static void worker(int index) {
    me.index = index;
    scratch_new();
    worker_serve();
    free(me.scratch);
}

typedef struct {
    int (*run)(void *arg);
    void *arg;
} Program;

static int program(int n_threads, void *arg) {
    const Program *p = arg;
    scratch_new();
    team.n_served = n_threads;
    int code = p->run(p->arg);
    team.n_served = 0;
    team.is_ending = true;
    for (int i = 1; i < n_threads; i++) signal_add(&team.jobs[i], 1);
    free(me.scratch);
    return code;
}

int team_serve(int n_threads, int (*run)(void *arg), void *arg) {
    return threads_run(n_threads < MAX_THREADS ? n_threads : MAX_THREADS, worker, program,
                       &(Program){run, arg});
}

int team_default_threads(void) {
    int n = threads_available();
    double cpus = os_cpu_quota();
    return cpus >= n ? n : cpus < 1 ? 1 : (int)cpus;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
void team_lock(void) { pthread_mutex_lock(&lock); }
void team_unlock(void) { pthread_mutex_unlock(&lock); }
