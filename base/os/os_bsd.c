// macOS and other POSIX systems. What POSIX lacks, only macOS answers, through sysctl.
#include "base/os/os.h"

#include <pthread.h>
#include <stdint.h>
#include <unistd.h>
#include <sys/resource.h>

#pragma GCC diagnostic ignored "-Wunused-parameter" // os.h has services that are missing here

// Declared here, because other systems lack <sys/sysctl.h>.
int sysctlbyname(const char *name, void *old, size_t *old_size, const void *new, size_t new_size);

// One condition variable serves all words: there are few, and os_sleep_while() may return early.
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t word_changed = PTHREAD_COND_INITIALIZER;

void os_sleep_while(_Atomic unsigned *word, unsigned value) {
    pthread_mutex_lock(&mutex);
    if (*word == value) pthread_cond_wait(&word_changed, &mutex);
    pthread_mutex_unlock(&mutex);
}

void os_wake_all(_Atomic unsigned *word) {
    pthread_mutex_lock(&mutex);
    pthread_cond_broadcast(&word_changed);
    pthread_mutex_unlock(&mutex);
}

size_t os_stack_limit(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit) || limit.rlim_cur == RLIM_INFINITY) return SIZE_MAX;
    return (size_t)limit.rlim_cur;
}

double os_cpu_quota(void) { return 1e9; }
bool os_has_numa(void) { return false; }
OsEnergy os_energy(void) { return (OsEnergy){0}; }
double os_energy_since(const OsEnergy *start) { return -1; }
const char *os_energy_directory(void) { return NULL; }

// An integer of 4 or 8 bytes; 0 if macOS has no such name, and on other systems.
static uint64_t sysctl_number(const char *name) {
    uint64_t n = 0;
#if defined(__APPLE__)
    size_t size = sizeof n;
    if (sysctlbyname(name, &n, &size, NULL, 0)) return 0;
    if (size == 4) n = *(uint32_t *)(void *)&n;
#endif
    return n;
}

// macOS lists the performance cores of Apple's CPUs as level 0.
OsCpus os_cpus(void) {
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    int n = online > 0 ? (int)online : 1;
    int cores = (int)sysctl_number("hw.physicalcpu");
    int fast = (int)sysctl_number("hw.perflevel0.physicalcpu");
    if (cores < 1 || cores > n) cores = n;
    return (OsCpus){n, cores, fast < 1 || fast > cores ? cores : fast};
}

// The whole memory: sysctl does not say how much of it is available.
size_t os_memory_available(void) {
    uint64_t bytes = sysctl_number("hw.memsize");
    return bytes && bytes < SIZE_MAX ? (size_t)bytes : SIZE_MAX;
}

int64_t os_ctime_ns(int fd, const struct stat *st) { return os_time_ns(st->st_ctim); }

int os_open_temporary(const char *directory, unsigned mode) { return -1; }
bool os_link_temporary(int fd, const char *path) { return false; }

bool os_shell_reads_stdin(const struct stat *st) { return false; }

bool os_enable_amx(void) { return false; }
// macOS has these names. Elsewhere the instructions are not detected, and not used.
bool os_has_dotprod(void) { return sysctl_number("hw.optional.arm.FEAT_DotProd"); }
bool os_has_i8mm(void) { return sysctl_number("hw.optional.arm.FEAT_I8MM"); }
