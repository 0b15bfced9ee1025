// The threads exist from the beginning to the end of team_serve(). They wait for jobs, and for the
// end of operations, by spinning for some microseconds and then sleeping. Sleeping matters when
// there are more threads than cores: a thread that spins occupies a core that another thread of the
// operation may need. (The barriers of OpenMP spin for milliseconds.)
//
// Work items are handed out by atomic counters. A counter is never reset between operations.
// Instead, operations are numbered, and a counter holds the number of its operation together with
// the count. If the number is that of an earlier operation, the count is 0; if it is that of a
// later operation, the reading thread is late and its own operation is over. The other threads
// therefore never have to wait for a late thread.
#include "kernels/team.h"
#include "base/clock.h"
#include "base/text.h"
#include "base/os/os.h"
#include "base/os/threads.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    MAX_THREADS = 1024,
    MAX_SPINS = 1000, // about 40 us on Sapphire Rapids: longer than most waits, much shorter than a
                      // time slice of the scheduler
    ITEM_BITS = 26    // low bits of an ItemCounter, for the items; the others number the operation
};

typedef struct {
    _Alignas(64) _Atomic uint64_t count; // operation << ITEM_BITS | items handed out
} ItemCounter;

// A number whose next change threads can wait for.
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
    WaitWord inside;   // number of workers in the job, plus OPEN while workers may enter

    WaitWord n_ops_done;               // completed operations; the number of the current one
    _Alignas(64) _Atomic int n_done;   // finished items of the current operation
    ItemCounter counters[MAX_THREADS]; // items taken from each thread's share; team_next() uses
                                       // only the first
    double op_begin;                   // profile: when the current operation began
    WaitWord calls[MAX_THREADS];       // per worker: number of calls to a job
    _Atomic bool is_ending;            // the workers must return
} team;

enum { OPEN = 1 << 30 };

// State of a thread in its current operation. Finished items are counted here first, and added to
// team.n_done when the thread finds no more items.
static _Thread_local struct {
    int index;     // of the thread, 0 for the caller of team_run()
    uint64_t op;   // number of the operation
    int n_items;   // number of its items; 0: the thread has not asked for any
    int n_done;    // items that this thread has done and not yet added to team.n_done
    bool was_last; // this thread completed the operation
    char *scratch;
} self;

const volatile int *team_interrupted;
bool team_is_interrupted(void) { return team_interrupted && *team_interrupted; }

bool team_profile;
double team_sec[OP_COUNT];

int team_size(void) { return team.n_threads > 1 ? team.n_threads : 1; }
void *team_scratch(void) { return self.scratch; }

// Waiting. A thread first reads the word in a loop, which costs the waking thread nothing. Then it
// sleeps, which costs the waking thread a system call.

static void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

// Returns when the word is no longer `value`. A thread increments n_sleeping before it reads the
// word for the last time, so that a change after this read wakes it.
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

// Takes an item of [0, n) from a counter. After an interrupt, the remaining items are taken and
// counted as done but not returned.
static bool next_from(ItemCounter *counter, int n, int *item) {
    do {
        uint64_t seen = atomic_load(&counter->count), next;
        do {
            if (seen >> ITEM_BITS > self.op) return false; // the operation is over
            next = seen >> ITEM_BITS == self.op ? seen : self.op << ITEM_BITS;
            *item = (int)(next & ((1u << ITEM_BITS) - 1));
            if (*item >= n) return false;
        } while (!atomic_compare_exchange_weak(&counter->count, &seen, next + 1));
        self.n_done++;
    } while (team_is_interrupted());
    return true;
}

bool team_next(int n, int *item) {
    self.n_items = n;
    return next_from(&team.counters[0], n, item);
}

// Adds the items that this thread has done to team.n_done. This is done once for many items,
// because all threads write that counter. True if this thread has completed the operation.
static bool report_done(void) {
    int n = self.n_done;
    self.n_done = 0;
    if (n && atomic_fetch_add(&team.n_done, n) + n == self.n_items) self.was_last = true;
    return self.was_last;
}

static bool is_op_over(void) {
    return atomic_load_explicit(&team.n_ops_done.value, memory_order_acquire) != (unsigned)self.op;
}

// The search for items in the shares of other threads reads a cache line per thread, so it stops as
// soon as all items are done.
bool team_next_near(int n, int *item) {
    int n_threads = team_size();
    self.n_items = n;
    for (int i = 0; i < n_threads; i++) {
        if (i && (report_done() || is_op_over())) return false;
        int share = (self.index + i) % n_threads;
        int begin = (int)((int64_t)n * share / n_threads),
            end = (int)((int64_t)n * (share + 1) / n_threads);
        if (!next_from(&team.counters[share], end - begin, item)) continue;
        *item += begin;
        return true;
    }
    return false;
}

void team_end_op(OpKind kind) {
    if (self.n_items == 0) return; // an operation without items is not numbered
    if (report_done()) {
        if (team_profile) {
            double now = now_sec();
            team_sec[kind] += now - team.op_begin;
            team.op_begin = now;
        }
        atomic_store(&team.n_done, 0);
        add_and_wake(&team.n_ops_done, 1);
    } else {
        wait_while(&team.n_ops_done, (unsigned)self.op);
    }

    self.was_last = false;
    self.op++;
}

// Jobs. When a worker that was called starts to run, the job may already be over. team_run() must
// not return while a worker uses the job's argument, and must not wait for a worker that has not
// entered the job. Therefore `inside` counts the workers in the job, and holds OPEN as long as more
// may enter.

void team_run(int n_threads, void (*job)(void *arg), void *arg) {
    team.n_threads = n_threads < team.n_served ? n_threads : team.n_served;
    team.op_begin = team_profile ? now_sec() : 0;
    team.job = job;
    team.arg = arg;
    team.first_op = self.op;
    atomic_store(&team.inside.value, OPEN);
    for (int i = 1; i < team.n_threads; i++) add_and_wake(&team.calls[i], 1);
    job(arg);
    atomic_fetch_sub(&team.inside.value, OPEN);
    for (unsigned n; (n = atomic_load(&team.inside.value));) wait_while(&team.inside, n);
}

// Enters the running job on a worker thread. False if the job is over.
static bool enter_job(void) {
    unsigned inside = atomic_load(&team.inside.value);
    do {
        if (inside < OPEN) return false;
    } while (!atomic_compare_exchange_weak(&team.inside.value, &inside, inside + 1));
    return true;
}

static void allocate_scratch(void) { self.scratch = xalloc_large(1, KERNEL_SCRATCH + OPS_SCRATCH); }

// The loop of a worker: wait for a call, take part in the job. If the worker is late, there may be
// no job to enter, or it enters a later one.
static void worker(int index) {
    self.index = index;
    allocate_scratch();
    for (unsigned n_seen = 0;;) {
        wait_while(&team.calls[index], n_seen);
        n_seen = atomic_load(&team.calls[index].value);
        if (team.is_ending) break;
        if (!enter_job()) continue;
        self.op = team.first_op;
        if (index < team.n_threads) team.job(team.arg);
        add_and_wake(&team.inside, -1u);
    }
    free(self.scratch);
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
    free(self.scratch);
    return code;
}

int team_serve(int n_threads, int (*program)(void *arg), void *arg) {
    return threads_run(n_threads < MAX_THREADS ? n_threads : MAX_THREADS, worker, run_program,
                       &(TeamProgram){program, arg});
}

int team_default_threads(void) {
    if (team.n_served) return team.n_served;
    OsCpus cpus = os_cpus();
    int n = threads_available();
    double quota = os_cpu_quota();
    if (n == cpus.n_cpus) n = cpus.n_fast; // otherwise OMP_NUM_THREADS or OMP_PROC_BIND is set
    if (quota >= n) return n;
    return quota < 1 ? 1 : (int)quota;
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
void team_lock(void) { pthread_mutex_lock(&mutex); }
void team_unlock(void) { pthread_mutex_unlock(&mutex); }
